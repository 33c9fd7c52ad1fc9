"""The roofline of a measured session: what every row reaches, under what the device was seen to reach."""

from __future__ import annotations

import math

import pandas as pd

from mage.evidence.schema import Ceilings, Evidence
from mage.figures.canvas import MARGIN, SMALL, WIDTH, Page, drawing, plain, raised, vertical_grid, width
from mage.stats import judged, limits
from mage.stats.limits import Placed
from mage.views import palette, rounding, selection
from mage.views.display import FigureView, TableView
from mage.views.selection import Chosen, Row

ROW = 12.5
HEIGHT = 190.0
"""Points of the log–log panel."""
LEFT = 30.0
RIGHT = 30.0
DRAM, L2 = (0, (4, 2)), "-"
"""Line styles of the two bandwidths."""


@drawing
def roofline(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> FigureView:
    """Achieved TFLOP/s against flops per byte, log–log, below the measured DRAM, L2 and FP32 limits.

    Every row of an operation has the same flops and bytes, so an operation is a column of marks. Below, each
    operation's rows are drawn by name on one scale, with its own limits.
    """
    title = "What each kernel reaches, and what the device allows"
    rows = selection.rows(evidence, operations, implementations) if judged.measured(evidence) else []
    key = judged.key(evidence)
    points = [(row, placed) for row in rows if (placed := limits.place(row.result, key))]
    ceilings = evidence.ceilings
    table = _table(points, ceilings)
    if not points or ceilings is None or not ceilings.dram_gb_s or not ceilings.l2_gb_s or not ceilings.fp32_tflops:
        return FigureView("roofline", None, title, "", table, notice=_why_none(evidence, bool(points)))
    page = Page()
    _plane(page, [placed for _, placed in points], ceilings)
    _strips(page, points, ceilings)
    page.paragraph(f"TFLOP/s from the median warm {key.words}; logarithmic scales.")
    page.paragraph("In each row: dashed line, limit by DRAM; solid line, limit by L2; both at most the FP32 rate.")
    note = f"{instead} " if (instead := judged.instead(evidence)) else ""
    note += (
        "Flops per byte count every input read once and the output written once. The limits were measured in the same session: "
        "a large copy from DRAM, the fastest warm copy from L2, a loop of multiply-adds. Warm data come from L2, so a mark may "
        "stand above the DRAM line."
    )
    return FigureView("roofline", page.finish(selection.source(evidence)), title, _in_words(points, ceilings), table, note=note)


def _plane(page: Page, points: list[Placed], ceilings: Ceilings) -> None:
    """Roofs and marks; every column of marks has its operation's name at its foot."""
    low_x, high_x = min(one.intensity for one in points) / 3, max(one.intensity for one in points) * 3
    # both slopes and the flat part are in sight, whatever was selected
    knee = 1e3 * ceilings.fp32_tflops / ceilings.dram_gb_s
    low_x, high_x = min(low_x, knee / 30), max(high_x, knee * 8)
    low_y, high_y = min(one.rate for one in points) / 2, 2.6 * ceilings.fp32_tflops
    page.text(MARGIN, page.y + SMALL, "TFLOP/s")
    page.y += SMALL * 1.5
    wide, top = WIDTH - LEFT - MARGIN, page.y
    panel = page.panel(LEFT, top, wide, HEIGHT, xscale="log", yscale="log", xlim=(low_x, high_x), ylim=(low_y, high_y))

    def x(value: float) -> float:
        return LEFT + wide * math.log(value / low_x) / math.log(high_x / low_x)

    def y(value: float) -> float:
        return top + HEIGHT * (1 - math.log(value / low_y) / math.log(high_y / low_y))

    for bandwidth, style in ((ceilings.dram_gb_s, DRAM), (limits.l2_gb_s(ceilings), L2)):
        ends = [low_x, 1e3 * ceilings.fp32_tflops / bandwidth, high_x]
        panel.plot(ends, [limits.roof(ceilings, end, bandwidth) for end in ends], color=palette.INK, lw=1, ls=style, zorder=2)
    for intensity in dict.fromkeys(one.intensity for one in points):
        best = max(one.rate for one in points if one.intensity == intensity)
        panel.plot([intensity, intensity], [low_y, best], color=palette.GRID, lw=0.8, zorder=1)
    for one in points:
        colour = palette.colour(one.result.implementation)
        panel.plot(
            [one.intensity], [one.rate], palette.marker(one.result.variant), ms=5, color=colour, mfc="white", mew=1.2, zorder=3,
        )  # fmt: skip
    _roof_names(page, ceilings, x, y, high_x)
    ticks_y = _powers(low_y, high_y)
    for tick in ticks_y:
        page.text(LEFT - 4, raised(y(tick)), plain(tick), ha="right")
    page.y = top + HEIGHT + 2
    _columns(page, points, x)
    page.paragraph("below each column: operation, flops per byte (logarithmic from left to right)", palette.MUTED)
    page.y += 5


def _roof_names(page: Page, ceilings: Ceilings, x, y, high_x: float) -> None:
    l2 = limits.l2_gb_s(ceilings)
    peak = ceilings.fp32_tflops
    page.text(x(high_x) - 2, y(peak) - 4, f"FP32 {rounding.significant(peak)} TFLOP/s", ha="right")
    # beside the slopes: left of the upper one, right of the lower one, a third of the way below the knee
    lower, upper = sorted((ceilings.dram_gb_s, l2))
    names = {ceilings.dram_gb_s: "DRAM", l2: "L2"}
    at = 1e3 * peak / upper / 2.2
    page.text(max(x(at) - 5, LEFT + width(_said(names[upper], upper)) + 4), y(at * upper / 1e3) - 3, _said(names[upper], upper), ha="right")
    at = 1e3 * peak / lower / 2.2
    page.text(x(at) + 6, y(at * lower / 1e3) + SMALL, _said(names[lower], lower))


def _said(name: str, gb_s: float) -> str:
    return f"{name} {rounding.significant(gb_s / 1e3)} TB/s"


def _columns(page: Page, points: list[Placed], x) -> None:
    """Each operation's name below its column, in as many lines as keep the names apart."""
    lines: list[float] = []
    base = page.y
    for one in sorted({point.result.operation: point for point in points}.values(), key=lambda point: point.intensity):
        name = f"{palette.SHORT_OPERATIONS[one.result.operation]} {rounding.significant(one.intensity)}"
        half = width(name) / 2
        middle = min(max(x(one.intensity), MARGIN + half), WIDTH - MARGIN - half)
        place = next((number for number, end in enumerate(lines) if end + 6 < middle - half), len(lines))
        lines[place : place + 1] = [middle + half]
        page.text(middle, base + SMALL * (1.25 * place + 1), name, ha="center")
    page.y = base + SMALL * 1.25 * len(lines) + 2


def _strips(page: Page, points: list[tuple[Row, Placed]], ceilings: Ceilings) -> None:
    """Every row by name on one scale of TFLOP/s, with the limits of its operation."""
    names = MARGIN + 6 + max(width(row.name) for row, _ in points) + 9
    low, high = min(placed.rate for _, placed in points) * 0.8, ceilings.fp32_tflops * 1.05
    ticks = _powers(low, high)
    groups = selection.by_shape([row for row, _ in points])
    placed = {id(row): place for row, place in points}
    for number, ((operation, dims), group) in enumerate(groups.items()):
        page.heading(palette.OPERATIONS[operation], selection.shape(dims))
        tall = ROW * len(group)
        panel = page.panel(names, page.y, WIDTH - names - RIGHT, tall, ylim=(tall, 0), xscale="log", xlim=(low, high))
        vertical_grid(panel, ticks)
        for bandwidth, style in ((ceilings.dram_gb_s, DRAM), (limits.l2_gb_s(ceilings), L2)):
            at = limits.roof(ceilings, placed[id(group[0])].intensity, bandwidth)
            panel.plot([at, at], [0, tall], color=palette.INK, lw=1, ls=style, zorder=1, clip_on=False)
        for place, row in enumerate(group):
            middle, rate = ROW * (place + 0.5), placed[id(row)].rate
            page.text(MARGIN + 6, raised(page.y + middle), row.name)
            panel.plot([low, rate], [middle, middle], color=palette.GRID, lw=0.8, zorder=1, clip_on=False)
            panel.plot([rate], [middle], palette.marker(row.result.variant), ms=6, color=row.colour, zorder=3, clip_on=False)
            page.text(page.across(panel, rate) + 6, raised(page.y + middle), rounding.significant(rate), bbox=_PAPER)
        # after the marks: a panel's scale forgets what was set before its ticks are
        panel.set_xticks(ticks if number == len(groups) - 1 else [])
        panel.set_xticks([], minor=True)
        if number == len(groups) - 1:
            panel.set_xticklabels([plain(tick) for tick in ticks])
        page.y += tall + 5
    page.y += SMALL * 1.25


_PAPER = {"fc": "white", "ec": "none", "pad": 0.5}
"""Behind a number that a line may pass under."""


def _powers(low: float, high: float) -> list[float]:
    """Powers of ten between two rates."""
    found = [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
    return found or [10.0 ** round(math.log10(high))]


def _why_none(evidence: Evidence, points: bool) -> str:
    if not judged.measured(evidence):
        return f"{evidence.experiment} is published evidence: no limit of its device was measured, so there is no roofline."
    if evidence.device.kind != "gpu":
        return f"{evidence.experiment} was measured on a CPU: no limit of it was measured, so there is no roofline."
    return f"{evidence.experiment} has no measured limits." if points else f"Nothing in {evidence.experiment} matches the selection."


def _in_words(points: list[tuple[Row, Placed]], ceilings: Ceilings) -> str:
    roofs = f"DRAM {ceilings.dram_gb_s:.0f} GB/s, L2 {limits.l2_gb_s(ceilings):.0f} GB/s, FP32 {ceilings.fp32_tflops:.1f} TFLOP/s"
    placed = {id(row): place for row, place in points}
    parts = []
    for (operation, _), group in selection.by_shape([row for row, _ in points]).items():
        listed = ", ".join(f"{row.name} {rounding.significant(placed[id(row)].rate)}" for row in group)
        at = rounding.significant(placed[id(group[0])].intensity)
        parts.append(f"{palette.OPERATIONS[operation]} at {at} flops per byte: {listed}")
    return f"Roofline, TFLOP/s against flops per byte on logarithmic axes. Limits: {roofs}. {'. '.join(parts)}."


def _table(points: list[tuple[Row, Placed]], ceilings: Ceilings | None) -> TableView:
    columns = ["Operation", "Implementation", "Flops per byte", "Rate", "Limit by DRAM", "Limit by L2", "Of the L2 limit"]
    records = []
    for row, placed in points:
        found = {}
        for name, bandwidth in (("DRAM", ceilings and ceilings.dram_gb_s), ("L2", ceilings and limits.l2_gb_s(ceilings))):
            found[name] = limits.roof(ceilings, placed.intensity, bandwidth) if bandwidth else None
        share = 100 * placed.rate / found["L2"] if found["L2"] else None
        records.append(
            (palette.OPERATIONS[row.result.operation], row.name, placed.intensity, placed.rate, found["DRAM"], found["L2"], share)
        )
    rates = ("Rate", "Limit by DRAM", "Limit by L2")
    return TableView(
        "roofline-values", pd.DataFrame(records, columns=columns), "Rate of each row, and the limits at its flops per byte",
        units={**dict.fromkeys(rates, "TFLOP/s"), "Of the L2 limit": "%"},
        formats={"Flops per byte": ".2f", **dict.fromkeys(rates, ".3f"), "Of the L2 limit": ".0f"}, row_heads=2, missing="not measured",
        note="Each limit is the measured bandwidth times flops per byte, at most the measured FP32 rate.",
    )  # fmt: skip
