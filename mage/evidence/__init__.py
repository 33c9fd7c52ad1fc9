"""Reading and writing evidence: one validated JSON file an experiment, found by its name.

``outputs/retained/<experiment>/evidence.json`` is committed; ``outputs/<experiment>/evidence.json``
is what a measurement on this machine leaves. Whatever is read or written passes the schema first.

Beside it:

    schema             the record: what was computed, by whom, on which device, every number as taken
    schema_base        what every part of it is made of
    schema_session     the parts that only a measurement has
    schema_search      the part that a search over configurations leaves
    schema_published   the parts that only published evidence has
    lookup             a value by the path that a person would write
    searched           a session read with the searches of its GPU
"""

from __future__ import annotations

import difflib
import hashlib
import json
from pathlib import Path

from pydantic import ValidationError

from mage import paths, provenance
from mage.errors import EvidenceError, RequestError
from mage.evidence.schema import Evidence

NAME = "evidence.json"


def experiments() -> list[str]:
    """Names of the experiments that have evidence here, retained or measured, sorted."""
    found = [*paths.RETAINED.glob(f"*/{NAME}"), *paths.OUTPUTS.glob(f"*/{NAME}")]
    return sorted({file.parent.name for file in found})


def path(experiment: str) -> Path:
    """The evidence file of ``experiment``. Retained evidence comes before what was measured here.

    Raises RequestError, with the nearest name there is, when there is none.
    """
    for folder in (paths.RETAINED, paths.OUTPUTS):
        file = folder / experiment / NAME
        if file.is_file():
            return file
    near = difflib.get_close_matches(experiment, experiments(), 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there is: {', '.join(experiments()) or 'none'}"
    raise RequestError(f"no evidence for experiment {experiment!r}: {hint}")


def load(experiment: str) -> Evidence:
    """Read and validate the evidence of ``experiment``, and note that this process used it."""
    file = path(experiment)
    content = _content(file)
    evidence = parse(content, paths.shown(file))
    if evidence.experiment != experiment:
        raise EvidenceError(f"{paths.shown(file)}: field experiment is {evidence.experiment!r}, the folder says {experiment!r}")
    provenance.note_use(file, content)
    return evidence


def read(file: Path) -> Evidence:
    """Read and validate one file. EvidenceError names the file and the field."""
    return parse(_content(file), paths.shown(file))


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise EvidenceError(f"{paths.shown(file)}: cannot be read ({error.strerror})") from None


def parse(content: bytes, where: str) -> Evidence:
    """Validate the bytes of an evidence file; ``where`` names them in an error."""
    try:
        return Evidence.model_validate(json.loads(content, parse_constant=_refuse_constant))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the record"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise EvidenceError(f"{where}: field {field}: {first['msg']}, got {_short(first['input'])}{more}") from None
    except ValueError as error:
        raise EvidenceError(f"{where}: not JSON ({error})") from None


def save(evidence: Evidence, file: Path) -> str:
    """Validate, then write ``file`` in one step; returns the content's SHA-256."""
    content = to_bytes(evidence)
    parse(content, paths.shown(file))
    paths.write_whole(file, content, lasting=True)
    return hashlib.sha256(content).hexdigest()


def to_bytes(evidence: Evidence) -> bytes:
    """The record as JSON: absent fields left out, laid out as ``laid_out`` says."""
    data = evidence.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return laid_out(data)


def laid_out(data: dict) -> bytes:
    """JSON that a person can read and git can diff: short values, the samples of a round and a list of words stay on one line.

    Numbers in a list have no blank between them: they are most of a record.
    """
    return (_layout(data) + "\n").encode()


def _layout(value, indent: int = 0) -> str:
    flat = _flat(value)
    if len(flat) + indent <= 140 or not isinstance(value, dict | list) or _all(value, int, float) or _all(value, str):
        return flat
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        inner = [f"{pad}{json.dumps(key, ensure_ascii=False)}: {_layout(item, indent + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(inner) + "\n" + " " * indent + "}"
    if all(isinstance(item, list) for item in value):
        pad = ""  # rounds of samples: most of a record, and no easier to read further in
    return "[\n" + ",\n".join(pad + _layout(item, indent + 1) for item in value) + "\n" + " " * indent + "]"


def _flat(value) -> str:
    """``value`` on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {_flat(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list) and not _samples(value):
        return "[" + ", ".join(map(_flat, value)) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _samples(value) -> bool:
    """Whether ``value`` is a list of numbers, or of such lists."""
    return _all(value, int, float) or (isinstance(value, list) and all(_samples(item) for item in value))


def _all(value, *types: type) -> bool:
    return isinstance(value, list) and all(type(item) in types for item in value)


def _refuse_constant(text: str):
    raise ValueError(f"{text} is not a number that JSON or a measurement can hold")


def _short(value) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
