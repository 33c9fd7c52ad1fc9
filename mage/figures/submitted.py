"""A measured session's rows by how their calls were put on the device: a panel a way."""

from __future__ import annotations

import pandas as pd

from mage import stats
from mage.evidence.schema import Evidence
from mage.figures.canvas import MARGIN, SMALL, WIDTH, Page, raised, width, wrapped
from mage.figures.cells import ROW, Bar, cell
from mage.stats import judged
from mage.views import palette, rounding, selection
from mage.views.display import FigureView, TableView
from mage.views.selection import Chosen, Row

MODES = {
    "each call awaited": ("span_us", "awaited"),
    "queued in tens": ("span_us", "batch-10"),
    "graph of ten": ("span_us", "graph-10"),
    "kernel only": ("kernel_us", "awaited"),
}
TITLE = "Time per call by how calls are submitted"


def launch_modes(evidence: Evidence, operations: Chosen, implementations: Chosen) -> FigureView:
    """Medians per call in µs, warm: a row an implementation and variant (of CUDA C++ the newest stage), a column a mode."""
    newest = judged.newest_by_shape(evidence)
    rows = [
        row for row in selection.rows(evidence, operations, implementations) if row.result.implementation != "cuda" or row.result in newest
    ]
    times = {id(row): _times(row) for row in rows}
    rows = [row for row in rows if any(times[id(row)].values())]
    table = _table(rows, times)
    if not rows:
        return FigureView("launch-modes", None, TITLE, "", table)
    page = Page()
    left = MARGIN + 6 + max(width(_name(row)) for row in rows) + 6
    drawn = [mode for mode in MODES if any(times[id(row)][mode] for row in rows)]
    wide = (WIDTH - MARGIN - left) / len(drawn)
    deepest = max(len(wrapped(mode, wide - 3, SMALL)) for mode in drawn)
    for place, mode in enumerate(drawn):
        lines = wrapped(mode, wide - 3, SMALL)
        for number, line in enumerate(lines):
            page.text(left + wide * place, page.y + (deepest - len(lines) + number + 1) * SMALL * 1.2, line)
    page.y += deepest * SMALL * 1.2 + 4
    said = []
    for (operation, dims), group in selection.by_shape(rows).items():
        page.heading(palette.OPERATIONS[operation], selection.shape(dims))
        high = max(value for row in group for value in times[id(row)].values() if value)
        for number, row in enumerate(group):
            page.text(MARGIN + 6, raised(page.y + ROW * (number + 0.5)), _name(row))
            listed = ", ".join(f"{mode} {rounding.significant(value)}" for mode, value in times[id(row)].items() if value)
            said.append(f"{palette.OPERATIONS[operation]}, {_name(row)}: {listed}")
        for number, mode in enumerate(drawn):
            bars = [Bar(value=times[id(row)][mode], colour=row.colour) for row in group]
            cell(page, left + wide * number, page.y, wide - 3, bars, high)
        page.y += ROW * len(group) + 4
    page.paragraph("µs a call, medians, warm; each operation has its own scale, from zero; – not taken.")
    alt = f"Bars of the median time per call in microseconds, a column a way to submit. {'. '.join(said)}."
    note = "Each column is a quantity of its own: only numbers within a column compare. CUDA C++: the newest stage."
    return FigureView("launch-modes", page.finish(selection.source(evidence)), TITLE, alt, table, note=note)


def matched(evidence: Evidence) -> FigureView:
    """A session takes every row in every mode, so there is no second run to draw."""
    notice = f"{evidence.experiment} took every implementation in one session: all of them are in the figure of launch modes."
    return FigureView("launch-modes-matched", None, f"{TITLE}, all implementations in one run", "", None, notice=notice)


def _times(row: Row) -> dict[str, float | None]:
    found = {mode: stats.value(row.result, quantity, "median", mode=way) for mode, (quantity, way) in MODES.items()}
    return {mode: value and value.value for mode, value in found.items()}


def _name(row: Row) -> str:
    return palette.label("cuda") if row.result.implementation == "cuda" else row.name


def _table(rows: list[Row], times: dict[int, dict]) -> TableView:
    heads = {mode: mode[0].upper() + mode[1:] for mode in MODES}
    records = [(palette.OPERATIONS[row.result.operation], row.name, *(times[id(row)][mode] for mode in MODES)) for row in rows]
    return TableView(
        "launch-modes-values", pd.DataFrame(records, columns=["Operation", "Implementation", *heads.values()]), TITLE,
        units=dict.fromkeys(heads.values(), "µs"), formats=dict.fromkeys(heads.values(), ".2f"), row_heads=2, missing="not taken",
    )  # fmt: skip
