"""One row for each operation and implementation, its value as a dot or a bar, names and numbers beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from mage import stats
from mage.evidence.schema import Evidence
from mage.figures.canvas import (
    MARGIN,
    SMALL,
    WIDTH,
    Page,
    decades,
    drawing,
    fitting,
    plain,
    raised,
    spaced,
    ticks_to,
    vertical_grid,
    width,
)  # fmt: skip
from mage.figures.words import STATISTICS, control_remark
from mage.stats import Value
from mage.views import palette, rounding, selection
from mage.views.display import FigureView, TableView
from mage.views.selection import Chosen, Row

ROW = 12.5
"""Points from one row to the next."""
BEHIND = 6.0
"""Points from the end of a mark to its number."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A row with the value that is drawn; ``remark``, words behind its number, makes its mark hollow."""

    row: Row
    value: Value
    remark: str = ""


@drawing
def kernel_time(
    evidence: Evidence | Sequence[Evidence],
    *,
    operations: Chosen = None,
    implementations: Chosen = None,
    statistic: str = "mean",
) -> FigureView:
    """Kernel time of every chosen operation and implementation in µs, on one logarithmic scale.

    Of several records the later ones add what the first has not got, marked (``selection.rows``). A
    control that the evidence itself calls outside its band is drawn hollow, with the published verdict.
    """
    points = _points(evidence, operations, implementations, "kernel_us", statistic)
    table = _table("kernel-time-values", "Kernel time by operation and implementation", points, "Kernel time")
    title = "Kernel time of every operation and implementation"
    if not points:
        return FigureView("kernel-time", None, title, "", table)
    page = Page()
    low, high = min(point.value.value for point in points), max(point.value.value for point in points)
    ticks = decades(low * 0.9, high * 1.05)
    _strip(page, points, ticks, log=True)
    said = _said(points)
    whiskers = _whiskers(points)
    page.paragraph(f"kernel time, µs ({said}), logarithmic scale" + (f"; whiskers: {whiskers}" if whiskers else ""))
    for remark in page.remarks:
        page.paragraph(remark)
    note = f"Time inside the kernels of one call, summed over its launches; {said}; lower is better."
    note += f" Whiskers show the {whiskers}." if whiskers else " One capture a row, so there is no spread to show."
    alt = f"Dot plot on a logarithmic axis, kernel time in microseconds. {_in_words(points)}"
    return FigureView("kernel-time", page.finish(_source(points)), title, alt, table, note=note + _elsewhere(points))


@drawing
def spans(
    evidence: Evidence | Sequence[Evidence],
    *,
    operations: Chosen = None,
    implementations: Chosen = None,
    statistic: str = "mean",
) -> FigureView:
    """Span of every chosen operation and implementation in µs, on one scale from zero, with whiskers.

    The figure names what the whiskers are: the range of the round means, or quartiles for a median.
    """
    points = _points(evidence, operations, implementations, "span_us", statistic)
    table = _table("spans-values", "Time around one awaited call by operation and implementation", points, "Span")
    title = "Time around one awaited call"
    if not points:
        return FigureView("spans", None, title, "", table)
    page = Page()
    high = max(point.value.high or point.value.value for point in points)
    _strip(page, points, ticks_to(high), log=False, top=high)
    said, whiskers = _said(points), _whiskers(points)
    page.paragraph(f"span, µs ({said})" + (f"; whiskers: {whiskers}" if whiskers else ""))
    note = f"Submission, kernels and idle time together; {said}; lower is better."
    note += f" Whiskers show the {whiskers}." if whiskers else ""
    meant = f", whiskers are the {whiskers}" if whiskers else ""
    alt = f"Dot plot from zero, time around one awaited call in microseconds{meant}. {_in_words(points)}"
    return FigureView("spans", page.finish(_source(points)), title, alt, table, note=note + _elsewhere(points))


def _points(evidence, operations, implementations, quantity: str, statistic: str) -> list[Point]:
    points = []
    for row in selection.rows(evidence, operations, implementations):
        found = stats.value(row.result, quantity, statistic, where=row.evidence.experiment)
        if found:
            remark = row.evidence.experiment if row.elsewhere else control_remark(row, quantity, found)
            points.append(Point(row=row, value=found, remark=remark))
    return points


def _strip(page: Page, points: list[Point], ticks: list[float], log: bool, top: float | None = None) -> None:
    """All operations one below the other, each a panel of rows, all on the scale of ``ticks``."""
    names = _name_column([point.row for point in points])
    low, high = ticks[0] if log else 0.0, max(top or ticks[-1], ticks[-1])

    def share(value: float) -> float:
        return math.log(value / low) / math.log(high / low) if log else value / high

    labels = [(share(point.value.high or point.value.value), width(rounding.significant(point.value.value))) for point in points]
    wide = fitting(names, labels, BEHIND, WIDTH - names - 30)
    numbered = spaced(ticks, [wide * share(tick) for tick in ticks])
    groups = selection.by_shape([point.row for point in points])
    by_row = {id(point.row): point for point in points}
    for number, ((operation, dims), group) in enumerate(groups.items()):
        page.heading(palette.OPERATIONS[operation], selection.shape(dims))
        panel = page.panel(names, page.y, wide, ROW * len(group), ylim=(ROW * len(group), 0))
        if log:
            panel.set_xscale("log")
        panel.set_xlim(low, high)
        vertical_grid(panel, ticks)
        for place, row in enumerate(group):
            _point(page, panel, by_row[id(row)], ROW * (place + 0.5))
        shown = numbered if number == len(groups) - 1 else []
        panel.set_xticks(shown, [plain(tick) for tick in shown])
        panel.minorticks_off()
        page.y += ROW * len(group) + 5
    page.y += SMALL * 1.25


def _point(page: Page, panel, point: Point, middle: float) -> None:
    """A mark, its whiskers, its name to the left, its number and its remark to the right, or where there is room."""
    row, value = point.row, point.value
    colour = row.colour
    _name(page, row, page.y + middle)
    panel.plot([panel.get_xlim()[0], value.value], [middle, middle], color=palette.GRID, lw=0.8, zorder=1, clip_on=False)
    if value.low is not None:
        ends = [value.low, value.low, value.low, value.high, value.high, value.high]
        caps = [middle - 2.6, middle + 2.6, middle, middle, middle - 2.6, middle + 2.6]
        panel.plot(ends, caps, color=colour, lw=1.2, zorder=2, solid_capstyle="butt", clip_on=False)
    panel.plot(
        [value.value], [middle], palette.marker(row.result.variant), ms=6, color=colour, zorder=3,
        mfc="white" if point.remark else colour, mew=1.4, clip_on=False,
    )  # fmt: skip
    number, remark = rounding.significant(value.value), _bracketed(point.remark)
    base = raised(page.y + middle)
    start, end = page.across(panel, value.value) - 7, page.across(panel, value.high or value.value) + BEHIND
    if end + width(number + remark) <= WIDTH - MARGIN:
        page.text(end, base, number + remark)
        return
    page.text(end, base, number)
    if start - width(remark) > _name_column([row]):
        page.text(start, base, remark.strip(), ha="right", bbox={"fc": "white", "ec": "none", "pad": 1})
    else:
        page.remarks.append(f"{palette.SHORT_OPERATIONS[row.result.operation]}, {row.name} {number}{remark}")


def _name(page: Page, row: Row, middle: float) -> None:
    page.text(MARGIN + 6, raised(middle), row.name)


def _name_column(rows: Sequence[Row]) -> float:
    """Where marks may start: right of the longest name."""
    return MARGIN + 6 + max(width(row.name) for row in rows) + 9


def _said(points: list[Point]) -> str:
    """The statistic that is really drawn, in words."""
    return ", ".join(STATISTICS[name] for name in dict.fromkeys(point.value.statistic for point in points))


def _whiskers(points: list[Point]) -> str:
    """What the whiskers are, or nothing where there are none."""
    meanings = dict.fromkeys(point.value.whisker_meaning for point in points if point.value.whisker_meaning)
    return ", ".join(meanings)


def _elsewhere(points: list[Point]) -> str:
    names = dict.fromkeys(point.row.evidence.experiment for point in points if point.row.elsewhere)
    if not names:
        return ""
    return f" Hollow marks come from another session ({', '.join(names)}): side by side, without a verdict."


def _source(points: list[Point]) -> str:
    return selection.source([point.row.evidence for point in points])


def _in_words(points: list[Point]) -> str:
    """Every number that is drawn, with its name."""
    groups = selection.by_shape([point.row for point in points])
    by_row = {id(point.row): point for point in points}
    parts = []
    for (operation, _), group in groups.items():
        drawn = [by_row[id(row)] for row in group]
        listed = (f"{point.row.name} {rounding.significant(point.value.value)}{_bracketed(point.remark)}" for point in drawn)
        parts.append(f"{palette.OPERATIONS[operation]}: {', '.join(listed)}")
    return ". ".join(parts) + "."


def _bracketed(remark: str) -> str:
    return f" ({remark})" if remark else ""


def _table(id: str, caption: str, points: list[Point], name: str) -> TableView:
    columns = ["Operation", "Implementation", name, "Low", "High", "Statistic", "Experiment"]
    records = [
        (
            palette.OPERATIONS[point.row.result.operation],
            palette.label(point.row.result.implementation, point.row.result.variant),
            point.value.value, point.value.low, point.value.high, point.value.statistic, point.row.evidence.experiment,
        )
        for point in points
    ]  # fmt: skip
    frame = pd.DataFrame(records, columns=columns)
    whiskers = _whiskers(points)
    if not whiskers:
        frame = frame.drop(columns=["Low", "High"])
    units = {column: "µs" for column in (name, "Low", "High") if column in frame}
    note = f"Low and High are the {whiskers}." if whiskers else None
    return TableView(id, frame, caption, units=units, note=note, row_heads=2, formats={column: ".3f" for column in units})
