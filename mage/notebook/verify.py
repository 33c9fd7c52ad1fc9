"""Is an executed notebook whole? Judged from its cells and outputs; what executed it is not asked.

``verify`` is the only maker of ``Verified``, and only a Verified notebook is rendered.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from mage import errors
from mage.errors import MageError, NoteFailed
from mage.notes import Note, Place, places

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MAGE_ERRORS = {name for name, found in vars(errors).items() if isinstance(found, type) and issubclass(found, MageError)}


@dataclass(frozen=True)
class Verified:
    """A notebook that ran to its end and shows exactly what its note declares."""

    notebook: Any


def verify(notebook: Any, note: Note) -> Verified:
    """Check the executed ``notebook`` of ``note``.

    Raises NoteFailed naming the cell: an error in an output, a cell that never ran, a figure or table that the note
    declares and does not show, shows twice, or shows without declaring it.
    """
    error = first_error(notebook)
    if error:
        raise NoteFailed(error)
    last = 0
    for cell, place in zip(notebook.cells, places(notebook.cells), strict=True):
        if place is None or not cell.source.strip():
            continue
        count = cell.execution_count
        if count is None and "skip-execution" in cell.metadata.get("tags", []):
            raise NoteFailed(f"{place} is tagged skip-execution and was not executed; remove the tag or the cell")
        if count is None:
            raise NoteFailed(f"{place} was never executed, though nothing failed; look for a cell that ends the kernel")
        if count <= last:
            raise NoteFailed(f"{place} has execution count {count} after {last}: the cells did not run in order")
        last = count
    for kind in ("figure", "table"):
        _displays(kind, note.declared(f"{kind}s"), _shown(notebook, kind))
    return Verified(notebook)


def first_error(notebook: Any) -> str | None:
    """The first error that a cell left among its outputs, as one line; None when there is none."""
    for cell, place in zip(notebook.cells, places(notebook.cells), strict=True):
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                return _described(output, place)
    return None


def _described(output: Any, place: Place) -> str:
    # An error of mage's own says it all; the name of its class would add nothing.
    said = " ".join(_ANSI.sub("", output.evalue or "").split())
    if output.ename in _MAGE_ERRORS:
        return f"{place}: {said}"
    if output.ename == "SystemExit":
        return f"{place} ended the note early (SystemExit {said}); a note runs to its last cell"
    return f"{place} raised {output.ename}: {said}" if said else f"{place} raised {output.ename}"


def _shown(notebook: Any, kind: str) -> Counter:
    """How often each id of ``kind`` was displayed."""
    found: Counter = Counter()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            about = output.get("metadata", {}).get("mage")
            if isinstance(about, dict) and about.get("kind") == kind:
                page = output.get("data", {}).get("text/html")
                if not page:
                    raise NoteFailed(f"{kind} {about.get('id')!r} was displayed without its HTML; display the object")
                if about.get("sha256") not in (None, hashlib.sha256(page.encode()).hexdigest()):
                    raise NoteFailed(f"{kind} {about.get('id')!r} arrived changed or in part; run the note again")
                found[about.get("id")] += 1
    return found


def _displays(kind: str, declared: list[str], shown: Counter) -> None:
    missing = [name for name in declared if not shown[name]]
    if missing:
        raise NoteFailed(f"{kind} {missing[0]!r} is declared and was not shown; end its cell with the {kind}")
    extra = [name for name in shown if name not in declared]
    if extra:
        raise NoteFailed(f"{kind} {extra[0]!r} was shown and is not declared; add it to the notebook's metadata mage.{kind}s")
    twice = [name for name, count in shown.items() if count > 1]
    if twice:
        raise NoteFailed(f"{kind} {twice[0]!r} was shown {shown[twice[0]]} times; show it once")
