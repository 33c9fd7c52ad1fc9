"""What unchanged kernels returned over several captures: bands, and the capture that falls outside its own."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from mage.evidence.schema import Evidence
from mage.figures.canvas import LINE, MARGIN, SMALL, WIDTH, Page, drawing, plain, raised, vertical_grid, width
from mage.notes import vocabulary
from mage.views import palette, rounding, selection
from mage.views.display import FigureView, TableView
from mage.views.selection import Chosen

ROW = 14.0
WORDS = SMALL * LINE + 3
"""Height of the line of words below a row of marks."""


@dataclass(frozen=True, kw_only=True)
class Control:
    """All that one record says of one control's kernel time, in µs."""

    operation: str
    implementation: str
    band: tuple[float, float] | None
    captures: tuple[float, ...]
    observed: float | None
    verdict: str | None

    @property
    def outside(self) -> bool:
        return bool(self.band and self.observed and not self.band[0] <= self.observed <= self.band[1])

    @property
    def every(self) -> tuple[float, ...]:
        return (*(self.band or ()), *self.captures, *([self.observed] if self.observed else []))


@drawing
def control_bands(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> FigureView:
    """Kernel time of the controls in µs: the published band, the captures, and this session's capture if it lies outside.

    Each operation has its own logarithmic scale. The verdict is the record's, shown as published.
    """
    wanted = selection.words("operations", operations), selection.words("implementations", implementations)
    merged = _merged(evidence)
    controls = [control for control in merged if control.operation in wanted[0] and control.implementation in wanted[1]]
    table = _table(controls)
    title = "Kernel time of the controls against their bands"
    if not controls:
        return FigureView("control-bands", None, title, "", table)
    page = Page()
    for operation in dict.fromkeys(control.operation for control in controls):
        page.heading(palette.OPERATIONS[operation], "kernel time, µs, logarithmic scale")
        _operation(page, [control for control in controls if control.operation == operation])
    page.paragraph("grey: published band; dots: captures; ring: this session's capture, outside")
    note = (
        "A control is a kernel that did not change between captures. A capture outside the control's band was taken while "
        "something else used the device; the verdict is the published one."
    )
    return FigureView("control-bands", page.finish(selection.source(evidence)), title, _in_words(controls), table, note=note)


def _merged(evidence: Evidence) -> list[Control]:
    """One entry for each operation and implementation: a record may give its band and its captures apart."""
    rows: dict[tuple[str, str], list] = {}
    for control in evidence.controls:
        if control.quantity == "kernel_us":
            rows.setdefault((control.operation, control.implementation), []).append(control)
    merged = [
        Control(
            operation=key[0],
            implementation=key[1],
            band=next((row.band_us for row in group if row.band_us), None),
            captures=tuple(sorted({value for row in group for value in row.captures_us})),
            observed=next((row.observed_us for row in group if row.observed_us), None),
            verdict=next((row.verdict for row in group if row.verdict), None),
        )
        for key, group in rows.items()
    ]
    order = vocabulary.OPERATIONS.index
    return sorted(merged, key=lambda control: (order(control.operation), palette.position(control.implementation)))


def _operation(page: Page, controls: list[Control]) -> None:
    """One scale for the controls of an operation: for each a row of marks, and its words below it."""
    values = [value for control in controls for value in control.every]
    low, high = min(values) * 0.97, max(values) * 1.03
    left = MARGIN + 6 + max(width(palette.label(control.implementation)) for control in controls) + 8
    wide = WIDTH - MARGIN - 8 - left
    height = (ROW + WORDS) * len(controls)
    panel = page.panel(left, page.y, wide, height, ylim=(height, 0), xscale="log")
    panel.set_xlim(low, high)
    panel.minorticks_off()
    ticks = _ticks(low, high)
    vertical_grid(panel, ticks)
    panel.set_xticks(ticks, [plain(tick) for tick in ticks])
    panel.minorticks_off()
    for number, control in enumerate(controls):
        middle = (ROW + WORDS) * number + ROW / 2
        _marks(panel, control, middle)
        page.text(MARGIN + 6, raised(page.y + middle), palette.label(control.implementation))
        page.text(left, page.y + middle + ROW / 2 + SMALL, _said(control), colour=palette.MUTED, bbox=_PAPER)
    page.y += height + SMALL * LINE + 7


_PAPER = {"fc": "white", "ec": "none", "pad": 0}


def _marks(panel, control: Control, middle: float) -> None:
    colour = palette.colour(control.implementation)
    if control.band:
        low, high = control.band
        panel.bar([low], [9], [high - low], middle - 4.5, align="edge", color=palette.SHADE, edgecolor=palette.MUTED, lw=0.6)
    inside = [value for value in control.captures if value != control.observed or not control.outside]
    if inside:
        panel.plot(inside, [middle] * len(inside), "o", ms=4, color=colour, zorder=3, mew=0)
    if control.outside:
        panel.plot([control.observed], [middle], "o", ms=7, mfc="white", mec=palette.ALERT, mew=1.8, zorder=4)
        panel.plot([control.observed], [middle], "o", ms=3, color=colour, mew=0, zorder=5)


def _said(control: Control) -> str:
    """``band 71.94–90.09; here 100.80: outside; captured under load``."""
    parts = []
    if control.band:
        parts.append(f"band {rounding.half_up(control.band[0], 2)}–{rounding.half_up(control.band[1], 2)}")
    elif control.captures:
        parts.append(f"captures {', '.join(rounding.half_up(value, 2) for value in control.captures)}")
    if control.observed:
        parts.append(f"here {rounding.half_up(control.observed, 2)}{f': {control.verdict}' if control.verdict else ''}")
    return "; ".join(parts)


def _ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers between ``low`` and ``high``."""
    step = 10.0 ** math.floor(math.log10(high - low))
    step = next(step * factor for factor in (0.1, 0.2, 0.5, 1, 2) if (high - low) / (step * factor) <= 6)
    first = math.ceil(low / step - 1e-9)
    return [round(step * count, 10) for count in range(first, math.floor(high / step + 1e-9) + 1)]


def _in_words(controls: list[Control]) -> str:
    names = (f"{palette.OPERATIONS[control.operation]}, {palette.label(control.implementation)}" for control in controls)
    parts = (f"{name}: {_said(control)}" for name, control in zip(names, controls, strict=True))
    return f"Bands of kernel time in microseconds with the captures of unchanged kernels as dots. {'. '.join(parts)}."


def _table(controls: list[Control]) -> TableView:
    columns = ["Operation", "Implementation", "Band from", "Band to", "This session", "Verdict", "All captures"]
    records = [
        (
            palette.OPERATIONS[control.operation], palette.label(control.implementation), *(control.band or (None, None)),
            control.observed, control.verdict,
            ", ".join(rounding.half_up(value, 2) for value in control.captures) or None,
        )
        for control in controls
    ]  # fmt: skip
    times = ["Band from", "Band to", "This session"]
    return TableView(
        "control-bands-values", pd.DataFrame(records, columns=columns), "Kernel time of the controls",
        units=dict.fromkeys([*times, "All captures"], "µs"), formats=dict.fromkeys(times, ".2f"), row_heads=2,
    )  # fmt: skip
