"""One kernel, submitted in different ways: a panel a way, since each is a quantity of its own."""

from __future__ import annotations

import pandas as pd

from mage.evidence.schema import Evidence, LaunchModes
from mage.figures import submitted
from mage.figures.canvas import MARGIN, SMALL, WIDTH, Page, drawing, raised, width, wrapped
from mage.figures.cells import ROW, Bar, cell
from mage.figures.words import times
from mage.notes import vocabulary
from mage.stats import judged
from mage.views import palette, rounding, selection
from mage.views.display import FigureView, TableView
from mage.views.selection import Chosen

MODES = {
    "awaited_us": "each call awaited",
    "queued_10_us": "queued in tens",
    "queued_100_us": "queued in hundreds",
    "graph_10_us": "graph of ten",
    "graph_25_us": "graph of 25",
    "kernel_us": "kernel only",
}
DRAWN = ("awaited_us", "queued_10_us", "graph_10_us", "graph_25_us", "kernel_us")
RUNS = {"awaited-queued": "first run", "graph": "graph run", "matched": "matched run"}
"""Runs that the published tables come from, by the table's name: their awaited times differ."""


@drawing
def launch_modes(
    evidence: Evidence,
    *,
    operations: Chosen = None,
    implementations: Chosen = None,
    configuration: str | None = None,
    matched: bool = False,
) -> FigureView:
    """Time per launch in µs by how launches are submitted, a row an operation and run, a column a mode.

    ``configuration`` is a tile that the evidence has launch modes for, the tuned one if it is left out.
    ``matched`` shows the run that took several implementations in turn instead of the tile compiler's own
    runs with graphs. Operations have their own scale, from zero. Of a measured session all its rows, by their medians.
    """
    if judged.measured(evidence):
        return submitted.matched(evidence) if matched else submitted.launch_modes(evidence, operations, implementations)
    configuration = configuration or (evidence.search.best if evidence.search else None)
    rows = _chosen(evidence, operations, implementations, configuration, matched)
    id = "launch-modes-matched" if matched else "launch-modes"
    table = _table(f"{id}-values", rows)
    title = "Time per launch by how launches are submitted" + (", all implementations in one run" if matched else "")
    if not rows:
        return FigureView(id, None, title, "", table)
    page = Page()
    drawn = [mode for mode in DRAWN if any(getattr(row, mode) for row in rows)]
    names = {row.key: palette.label(row.implementation) if matched else RUNS[row.table] for row in rows}
    left = MARGIN + 6 + max(width(name) for name in names.values()) + 6
    wide = (WIDTH - MARGIN - left) / len(drawn)
    _heads(page, left, wide, drawn)
    for operation in dict.fromkeys(row.operation for row in rows):
        group = [row for row in rows if row.operation == operation]
        page.heading(palette.OPERATIONS[operation], _shape(evidence, operation))
        high = max(getattr(row, mode) or 0 for row in group for mode in drawn)
        for number, row in enumerate(group):
            page.text(MARGIN + 6, raised(page.y + ROW * (number + 0.5)), names[row.key])
        for number, mode in enumerate(drawn):
            bars = [Bar(value=getattr(row, mode), colour=palette.colour(row.implementation)) for row in group]
            cell(page, left + wide * number, page.y, wide - 3, bars, high)
        page.y += ROW * len(group) + 4
    who = "" if matched else f"{', '.join(dict.fromkeys(palette.label(row.implementation) for row in rows))}, "
    page.paragraph(f"{who}matmul tile {times(configuration or '')}; µs per launch.")
    page.paragraph("Each operation has its own scale, from zero; – not taken.")
    note = (
        "Each column is a quantity of its own: only numbers within a column compare. "
        "A run is one session; its awaited time is the tie between runs."
    )
    figure = page.finish(selection.source(evidence))
    return FigureView(id, figure, title, _in_words(rows, drawn, names), table, note=note)


def _chosen(evidence: Evidence, operations: Chosen, implementations: Chosen, configuration, matched: bool) -> list[LaunchModes]:
    tables = ("matched",) if matched else ("awaited-queued", "graph")
    wanted = selection.words("operations", operations), selection.words("implementations", implementations)
    rows = [
        row
        for row in evidence.launch_modes
        if row.table in tables
        and row.configuration == configuration
        and row.operation in wanted[0]
        and row.implementation in wanted[1]
    ]
    order = vocabulary.OPERATIONS.index
    return sorted(rows, key=lambda row: (order(row.operation), tables.index(row.table), palette.position(row.implementation)))


def _heads(page: Page, left: float, wide: float, modes: list[str]) -> None:
    """The names of the columns, in bold, standing on one line."""
    heads = [wrapped(MODES[mode], wide - 3, SMALL) for mode in modes]
    deepest = max(map(len, heads))
    for place, lines in enumerate(heads):
        for number, line in enumerate(lines):
            page.text(left + wide * place, page.y + (deepest - len(lines) + number + 1) * SMALL * 1.2, line)
    page.y += deepest * SMALL * 1.2 + 4


def _shape(evidence: Evidence, operation: str) -> str:
    dims = next((row.dims for row in evidence.results if row.operation == operation), ())
    return selection.shape(dims)


def _in_words(rows: list[LaunchModes], modes: list[str], names: dict[str, str]) -> str:
    parts = []
    for row in rows:
        taken = (f"{MODES[mode]} {rounding.significant(getattr(row, mode))}" for mode in modes if getattr(row, mode))
        parts.append(f"{palette.OPERATIONS[row.operation]}, {names[row.key]}: {', '.join(taken)}")
    return f"Bars of the time per launch in microseconds, a column a way to submit. {'. '.join(parts)}."


def _table(id: str, rows: list[LaunchModes]) -> TableView:
    records = [
        (
            palette.OPERATIONS[row.operation],
            palette.label(row.implementation),
            RUNS[row.table],
            *(getattr(row, mode) for mode in MODES),
        )
        for row in rows
    ]
    heads = [name[0].upper() + name[1:] for name in MODES.values()]
    frame = pd.DataFrame(records, columns=["Operation", "Implementation", "Run", *heads])
    units = dict.fromkeys(heads, "µs")
    caption = "Time per launch by how launches are submitted"
    if "matched" in id:
        caption += ", all implementations in one run"
    return TableView(id, frame, caption, units=units, formats=dict.fromkeys(heads, ".2f"), row_heads=2)
