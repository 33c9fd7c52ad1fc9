"""Find a value in evidence by the path a person would write.

A path is an experiment, a blank, and fields with selectors: ``mage-006 stages[matmul/pipeline].kernel_us``,
``mage-001 software.triton``, ``mage-006 attempts[2].value_us[0]``. A selector names a row by its key (each row of
the schema says its own), an entry of a mapping by its name, or a place in a list by its number from 0.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from mage import evidence
from mage.evidence.schema import Evidence

_STEP = re.compile(r"\.?(?P<name>[A-Za-z_]\w*)|\[(?P<selector>[^\]]+)\]")


class PathError(LookupError):
    """A path leads nowhere; the text says at which step, and what there is instead."""


def split(path: str) -> tuple[str, str]:
    """``"mage-006 results[…].launches"`` as its experiment and its field."""
    experiment, blank, field = path.partition(" ")
    if not blank or not field.strip():
        raise PathError(f"{path!r} is not a path: write the experiment, a blank and a field")
    return experiment, field.strip()


def find(record: BaseModel, field: str):
    """The value of ``field`` in ``record``: a number, a text, a row or a list of them."""
    value, done = record, 0
    while done < len(field):
        step = _STEP.match(field, done)
        if not step:
            raise PathError(f"{field!r} cannot be read from {field[done:]!r} on")
        name, selector = step["name"], step["selector"]
        value = _named(value, name, field[:done]) if name else _selected(value, selector, field[:done])
        done = step.end()
    if value is None:
        raise PathError(f"{field} is absent")
    return value


def with_sources(record: Evidence) -> list[Evidence]:
    """``record`` and, as far as they are here, the experiments whose captures its stages were read from."""
    names = dict.fromkeys(stage.read_from for stage in record.stages if stage.read_from != record.experiment)
    here = evidence.experiments()
    return [record, *(evidence.load(name) for name in names if name in here)]


def _named(value, name: str, where: str):
    if value is None:
        raise PathError(f"{where} is absent")
    names = list(type(value).model_fields) if isinstance(value, BaseModel) else []
    names = list(value) if isinstance(value, Mapping) else names
    if name not in names:
        raise PathError(f"{where or 'the record'} has no {name!r}{_instead(name, names)}")
    return value[name] if isinstance(value, Mapping) else getattr(value, name)


def _selected(value, selector: str, where: str):
    if isinstance(value, Mapping):
        return _named(value, selector, where)
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise PathError(f"{where} is one value, so [{selector}] selects nothing")
    rows = [row for row in value if getattr(row, "key", None) == selector]
    if len(rows) == 1:
        return rows[0]
    if rows:
        raise PathError(f"{where} has {len(rows)} rows named {selector!r}")
    if selector.isdecimal() and int(selector) < len(value):
        return value[int(selector)]
    keys = [row.key for row in value if hasattr(row, "key")]
    raise PathError(f"{where} has no [{selector}]{_instead(selector, keys) or f': it has {len(value)} rows'}")


def _instead(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f", did you mean {near[0]!r}?"
    return f": there is {', '.join(names)}" if 0 < len(names) <= 12 else ""
