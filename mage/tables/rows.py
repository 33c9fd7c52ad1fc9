"""What every table does alike: filter rows by the reader's selection, and say why there are none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pandas as pd

from mage.evidence.schema import Evidence
from mage.notes import vocabulary
from mage.views import palette, selection
from mage.views.display import TableView
from mage.views.selection import Chosen

QUANTITIES = {"kernel_us": "kernel\u00a0time", "span_us": "span"}


def pick(rows: Iterable, operations: Chosen = None, implementations: Chosen = None) -> list:
    """The rows (each with ``operation``, most with ``implementation``) of the selection, in the usual order."""
    wanted = selection.words("operations", operations), selection.words("implementations", implementations)
    chosen = [
        row for row in rows if row.operation in wanted[0] and getattr(row, "implementation", wanted[1][0] if wanted[1] else "") in wanted[1]
    ]
    # Stable, so that what has an order of its own within an operation (stages) keeps it.
    return sorted(chosen, key=lambda row: vocabulary.OPERATIONS.index(row.operation))


def operation(row) -> str:
    """The operation's short name, so that a row stays one line."""
    return short(row.operation)


def short(name: str) -> str:
    """The short name of an operation, in spaces that do not break."""
    return palette.SHORT_OPERATIONS[name].replace(" ", "\u00a0")


def implementation(row) -> str:
    """The implementation's name as a reader knows it."""
    return palette.label(row.implementation, getattr(row, "variant", None))


def table(
    id: str,
    records: Sequence[dict],
    columns: Sequence[str],
    caption: str,
    evidence: Evidence | Sequence[Evidence],
    holds: Iterable,
    what: str,
    **more,
) -> TableView:
    """A TableView whose columns stand even without rows.

    ``holds`` are the rows before the selection, ``what`` is their name: an empty table says whether the evidence
    has none of them or the selection left them out.
    """
    names = list(dict.fromkeys(record.experiment for record in selection.as_list(evidence)))
    joined = " and ".join(names)
    none = f"{joined} {'have' if len(names) > 1 else 'has'} no {what}."
    empty = f"Nothing in {joined} matches the selection." if list(holds) else none
    frame = pd.DataFrame(records, columns=list(columns))
    return TableView(id, frame, caption, **{"empty": empty, **more})


def left_out(evidence: Evidence | Sequence[Evidence], implementations: Chosen) -> str | None:
    """A sentence on asked-for implementations that the evidence has not, and on what it has beside them."""
    asked = selection.words("implementations", implementations)
    records = selection.as_list(evidence)
    have = sorted({row.implementation for record in records for row in record.results}, key=palette.position)
    absent = [palette.LABELS[name] for name in asked if name not in have]
    beside = [palette.LABELS[name] for name in have if name not in asked]
    if implementations in (None, "all") or not absent:
        return None
    names = " and ".join(record.experiment for record in records)
    more = f"; it also holds {', '.join(beside)}" if beside else ""
    return f"{names} holds nothing of {', '.join(absent)}{more}."


def sentences(*parts: str | None) -> str | None:
    """The sentences there are, as one note; None without any."""
    return " ".join(part for part in parts if part) or None


def written(text: str) -> str:
    """``64x64`` as ``64 × 64``, in spaces that do not break: the evidence is in ASCII, a reader is not."""
    return re.sub(r"(?<=\d)x(?=\d)", "\u202f×\u202f", text)


def shape(dims: Sequence[int]) -> str:
    """An operation's dims on one line."""
    return selection.shape(dims).replace(" ", "\u202f")


def breaking(text: str, longest: int = 24) -> str:
    """Names of more than ``longest`` characters in ``text`` with places at which a line may end, so that a column can be narrow."""
    return re.sub(rf"\S{{{longest + 1},}}", lambda word: re.sub(r"(?<=[_/:@-])(?=\w)", "\u200b", word[0]), text)
