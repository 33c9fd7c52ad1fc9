"""Kernel time above, time around the call below: two quantities, two panels, a column an operation."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from mage import stats
from mage.evidence.schema import Evidence
from mage.figures.canvas import BODY, LINE, MARGIN, SMALL, WIDTH, Page, drawing, raised, width
from mage.figures.cells import ROW, Bar, cell
from mage.figures.words import STATISTICS, control_remark
from mage.stats import Value
from mage.views import palette, rounding, selection
from mage.views.display import FigureView, TableView
from mage.views.selection import Chosen, Row

COLUMNS = 3
"""Operations side by side; more go into a further band below."""
GAP = 7.0
QUANTITIES = {"kernel_us": "Kernel time", "span_us": "Span"}

Values = dict[tuple[int, str], Value | None]


@drawing
def kernel_and_span(
    evidence: Evidence | Sequence[Evidence],
    *,
    operations: Chosen = None,
    implementations: Chosen = None,
    statistic: str = "mean",
) -> FigureView:
    """Kernel time (upper panel) and span (lower panel) of every operation in µs, each column with its own scale from zero.

    The two are different quantities from separate runs, so each has its panels. Kernel time of published
    evidence is a mean, whatever ``statistic`` says of the spans, and the panel's name says so.
    """
    rows = selection.rows(evidence, operations, implementations)
    values: Values = {
        (id(row), quantity): stats.value(row.result, quantity, statistic, where=row.evidence.experiment)
        for row in rows
        for quantity in QUANTITIES
    }
    rows = [row for row in rows if any(values[id(row), quantity] for quantity in QUANTITIES)]
    table = _table(rows, values)
    title = "Kernel time and time around the call"
    if not rows:
        return FigureView("kernel-and-span", None, title, "", table)
    page = Page()
    groups = list(selection.by_shape(rows).items())
    for start in range(0, len(groups), COLUMNS):
        band = groups[start : start + COLUMNS]
        lines = dict.fromkeys((row.result.implementation, row.result.variant) for _, group in band for row in group)
        _band(page, band, sorted(lines, key=lambda line: palette.position(line[0])), values)
    page.paragraph("Each column has its own scale, from zero; lower is better.")
    for row in rows:
        found = values[id(row), "kernel_us"]
        if found and (remark := control_remark(row, "kernel_us", found)):
            which = f"{palette.SHORT_OPERATIONS[row.result.operation]}, {row.name} {rounding.significant(found.value)}"
            page.paragraph(f"{which}: {remark}.")
    elsewhere = dict.fromkeys(row.evidence.experiment for row in rows if row.elsewhere)
    if elsewhere:
        page.paragraph(f"Hollow bars come from another session ({', '.join(elsewhere)}).")
    note = (
        "Upper panels: time inside the kernels. Lower panels: time around one awaited call. Each column has its own scale, so "
        "implementations compare within a column; the two panels are different quantities from separate runs."
    )
    if elsewhere:
        note += f" Hollow bars come from another session ({', '.join(elsewhere)}): side by side, without a verdict."
    figure = page.finish(selection.source([row.evidence for row in rows]))
    return FigureView("kernel-and-span", figure, title, _in_words(groups, values), table, note=note)


def _band(page: Page, groups: list, lines: list[tuple], values: Values) -> None:
    """Up to three operations: their names, the kernel panels, the span panels."""
    left = MARGIN + max(width(palette.label(*line)) for line in lines) + 6
    wide = (WIDTH - MARGIN - left - GAP * (COLUMNS - 1)) / COLUMNS
    places = [left + (wide + GAP) * number for number in range(len(groups))]
    for place, ((operation, dims), _) in zip(places, groups, strict=True):
        page.text(place, page.y + BODY, palette.SHORT_OPERATIONS[operation], BODY, fontweight="bold")
        page.text(place, page.y + BODY + SMALL * LINE, selection.shape(dims).replace(" × ", "×"), SMALL, palette.MUTED)
    page.y += (BODY + SMALL) * LINE + 2
    for quantity, name in QUANTITIES.items():
        said = dict.fromkeys(found.statistic for _, group in groups for row in group if (found := values[id(row), quantity]))
        meant = ", ".join(STATISTICS[statistic] for statistic in said) or "not taken"
        page.text(MARGIN, page.y + SMALL, f"{name}, µs ({meant})", SMALL)
        page.y += SMALL * LINE + 2
        for number, line in enumerate(lines):
            page.text(MARGIN, raised(page.y + ROW * (number + 0.5)), palette.label(*line))
        for place, (_, group) in zip(places, groups, strict=True):
            by_line = {(row.result.implementation, row.result.variant): row for row in group}
            high = max(found.value for row in group for each in QUANTITIES if (found := values[id(row), each]))
            cell(page, place, page.y, wide, [_bar(by_line.get(line), line, quantity, values) for line in lines], high)
        page.y += ROW * len(lines) + 5
    page.y += 4


def _bar(row: Row | None, line: tuple, quantity: str, values: Values) -> Bar:
    found = values[id(row), quantity] if row else None
    return Bar(value=found.value if found else None, colour=palette.colour(line[0]), hollow=bool(row and row.elsewhere))


def _in_words(groups: list, values: Values) -> str:
    parts = []
    for (operation, _), group in groups:
        pairs = []
        for row in group:
            numbers = (values[id(row), quantity] for quantity in QUANTITIES)
            kernel, span = (rounding.significant(found.value) if found else "none" for found in numbers)
            pairs.append(f"{row.name} {kernel} and {span}")
        parts.append(f"{palette.OPERATIONS[operation]}: {', '.join(pairs)}")
    return f"Bars in two panels for each operation, kernel time above and span below, in microseconds. {'. '.join(parts)}."


def _table(rows: list[Row], values: Values) -> TableView:
    columns = ["Operation", "Implementation", *QUANTITIES.values(), "Experiment"]
    records = []
    for row in rows:
        numbers = (values[id(row), quantity] for quantity in QUANTITIES)
        drawn = (found.value if found else None for found in numbers)
        records.append((palette.OPERATIONS[row.result.operation], row.name, *drawn, row.evidence.experiment))
    frame = pd.DataFrame(records, columns=columns)
    units = dict.fromkeys(QUANTITIES.values(), "µs")
    caption = "Kernel time and span by operation and implementation"
    return TableView("kernel-and-span-values", frame, caption, units=units, formats=dict.fromkeys(units, ".3f"), row_heads=2)
