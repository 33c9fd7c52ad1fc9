"""The notes as a series: what an early note knew of the hand-written kernels, and which notes stand beside it.

Notes 001 to 003 are about kernels that later notes rewrote. A measured session holds every stage, so an early note
looks at it with its own eyes: the stages that it had, at the default shape of each operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mage import evidence, notes, provenance
from mage.errors import RequestError
from mage.evidence.schema import Evidence, Result, Stage
from mage.stats import own_stages
from mage.views.display import Prose

if TYPE_CHECKING:
    import pandas as pd

    from mage.gate import GateResult

_FIRST = {
    "matmul": ("tiled",),
    "gelu": ("elementwise",),
    "layernorm": ("block",),
    "triangle": ("elementwise",),
    "neighbor": ("feature",),
}
STAGES = {
    "001": _FIRST,
    "002": {**_FIRST, "matmul": ("tiled", "registers"), "layernorm": ("block", "warp")},
    "003": {
        **_FIRST,
        "matmul": ("tiled", "registers", "narrow", "registers_merged", "quads"),
        "layernorm": ("block", "warp", "pair"),
    },
    "004": {
        "matmul": ("tiled", "registers", "narrow", "registers_merged", "quads", "pipeline"),
        "gelu": ("elementwise",),
        "layernorm": ("block", "warp", "pair", "row"),
        "triangle": ("elementwise",),
        "neighbor": ("feature", "quad"),
    },
}
"""Stages of ``cuda`` by note and operation, as far as that note goes; from 003 on with the two tiles it compares with."""


def as_of(note: str, record: Evidence, earlier: Sequence[str] = ()) -> Evidence:
    """``record`` as note ``note`` ("001" to "004") sees it: no stage that came later, no shape but the default ones.

    A published record lists the stages that are new in it; those of the experiments ``earlier`` are put before them.
    """
    if note not in STAGES:
        raise RequestError(f"note {note!r} has every stage: as_of is for {', '.join(STAGES)}")
    known = STAGES[note]
    results = tuple(row for row in record.results if row.at is None and _known(known, row))
    return record.model_copy(update={"results": results, "stages": _stages(known, record, earlier)})


def gated(note: str, results: Sequence[GateResult]) -> list[GateResult]:
    """Those of the gate's ``results`` that note ``note`` is about: its stages, and no configuration tuned later."""
    return [one for one in results if _known(STAGES[note], one)]


def compiled(note: str, counts: pd.DataFrame) -> pd.DataFrame:
    """Those rows of a census that note ``note`` is about: its stages of ``cuda``, and of the compilers nothing tuned."""
    known = [_known(STAGES[note], row) for row in counts.itertuples()]
    return counts[known]


def _known(known: dict[str, tuple[str, ...]], row: Result | GateResult | tuple) -> bool:
    return row.variant in known[row.operation] if row.implementation == "cuda" else row.variant != "tuned"


def _stages(known: dict[str, tuple[str, ...]], record: Evidence, earlier: Sequence[str]) -> tuple[Stage, ...]:
    if record.origin != "published":
        return record.stages
    found: dict[str, Stage] = {}
    for one in (*(evidence.load(name) for name in earlier if name != record.experiment), record):
        found.update({stage.key: stage for stage in own_stages.of(one)})
    wanted = [f"{operation}/{stage}" for operation, stages in known.items() for stage in stages]
    return tuple(found[key] for key in wanted if key in found)


def neighbours(number: str) -> Prose:
    """Links to the notes before and after note ``number`` ("003"), and to any other of the same number.

    In a report they lead to the list of reports, which is there wherever a report is; in JupyterLab to the notebook.
    Only notes of the same hundred follow each other, so nobody's own notes (from 100 on) appear in the series.
    """
    by_number: dict[str, list[str]] = {}
    for path in notes.all_paths():
        by_number.setdefault(path.stem[5:8], []).append(path.stem)
    order = [one for one in sorted(by_number) if one[0] == number[0]]
    if number not in order:
        raise RequestError(f"there is no note {number!r} to stand between others; the notes are: {', '.join(order)}")
    place = order.index(number)
    lines = []
    for words, at in (("Before this", place - 1), ("Beside this", place), ("After this", place + 1)):
        stems = by_number[order[at]] if 0 <= at < len(order) else []
        if at != place or len(stems) > 1:
            lines += [f"- {words}: {_link(stem)}" for stem in stems]
    return Prose("\n".join(lines) or "This note stands alone.")


def _link(stem: str) -> str:
    address = f"../index.html#{stem}" if provenance.recording() else f"{stem}.ipynb"
    return f"[note {stem[5:8]}, {notes.title_of(notes.find(stem)[0])}]({address})"
