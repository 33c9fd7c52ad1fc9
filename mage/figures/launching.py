"""How many kernels a call launches, counted in squares."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from mage.evidence.schema import Evidence
from mage.figures.canvas import MARGIN, SMALL, WIDTH, Page, drawing, raised, width, wrapped
from mage.views import palette, selection
from mage.views.display import FigureView, TableView
from mage.views.selection import Chosen, Row

SQUARE, GAP = 8.0, 2.0
MOST_SQUARES = 6
"""More kernels than this are given by their number alone."""
MOST_COLUMNS = 4
"""Implementations side by side; more go into a further block below."""
ROW = 15.0


@drawing
def launches(
    evidence: Evidence | Sequence[Evidence], *, operations: Chosen = None, implementations: Chosen = None
) -> FigureView:
    """Kernels launched by one call: a row an operation, a column an implementation, a square a kernel."""
    rows = [row for row in selection.rows(evidence, operations, implementations) if row.result.launches is not None]
    table = _table(rows)
    title = "Kernel launches in one call"
    if not rows:
        return FigureView("launches", None, title, "", table)
    columns = list(dict.fromkeys((row.result.implementation, row.result.variant) for row in rows))
    page = Page()
    left = MARGIN + 10 + max(width(palette.OPERATIONS[row.result.operation]) for row in rows)
    widest = max(width(word, bold=True) for column in columns for word in palette.label(*column).split()) + 6
    across = max(1, min(MOST_COLUMNS, int((WIDTH - MARGIN - left) / widest)))
    for start in range(0, len(columns), across):
        _block(page, rows, columns[start : start + across], left, (WIDTH - MARGIN - left) / across)
    page.paragraph("a square is one kernel launched by one call")
    words = (
        f"{palette.OPERATIONS[operation]}: " + ", ".join(f"{row.name} {row.result.launches}" for row in group)
        for (operation, _), group in selection.by_shape(rows).items()
    )
    alt = f"Grid of squares, one for each kernel that one call launches. {'. '.join(words)}."
    note = "Fewer launches explain part of a span; they do not decide how long a kernel takes."
    return FigureView("launches", page.finish(selection.source([row.evidence for row in rows])), title, alt, table, note=note)


def _block(page: Page, rows: list[Row], columns: list[tuple], left: float, wide: float) -> None:
    """Operations down, some implementations across, each ``wide``."""
    groups = selection.by_shape(rows)
    heads = [wrapped(palette.label(*column), wide - 6, bold=True) for column in columns]
    deepest = max(map(len, heads))
    for place, lines in enumerate(heads):
        for number, line in enumerate(lines):
            below = page.y + (deepest - len(lines) + number + 1) * SMALL * 1.2
            page.text(left + place * wide, below, line, fontweight="bold")
    page.y += deepest * SMALL * 1.2 + 4
    panel = page.panel(left, page.y, wide * len(columns), ROW * len(groups), ylim=(ROW * len(groups), 0))
    panel.set_xlim(0, wide * len(columns))
    for number, ((operation, _), group) in enumerate(groups.items()):
        middle = ROW * (number + 0.5)
        page.text(MARGIN, raised(page.y + middle), palette.OPERATIONS[operation])
        for row in group:
            column = (row.result.implementation, row.result.variant)
            if column in columns:
                _count(page, panel, row, left, columns.index(column) * wide, middle)
    page.y += ROW * len(groups) + 6


def _count(page: Page, panel, row: Row, left: float, start: float, middle: float) -> None:
    """The squares of one cell and their number."""
    count = row.result.launches
    squares = count if count <= MOST_SQUARES else 0
    if squares:
        places = [start + (SQUARE + GAP) * number for number in range(squares)]
        panel.bar(places, SQUARE, SQUARE, middle - SQUARE / 2, align="edge", color=row.colour)
    page.text(left + start + (SQUARE + GAP) * squares + 1, raised(page.y + middle), str(count))


def _table(rows: list[Row]) -> TableView:
    columns = ["Operation", "Implementation", "Launches per call", "Experiment"]
    records = [
        (palette.OPERATIONS[row.result.operation], row.name, row.result.launches, row.evidence.experiment) for row in rows
    ]
    return TableView("launches-values", pd.DataFrame(records, columns=columns), "Kernels launched by one call", row_heads=2)
