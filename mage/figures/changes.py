"""Differences in percent, from zero: how far unchanged kernels drifted, how far a kernel is behind another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from mage import stats
from mage.evidence.schema import Drift, Evidence
from mage.figures.canvas import LINE, MARGIN, SMALL, WIDTH, Page, drawing, plain, raised, ticks_to, vertical_grid, width
from mage.notes import vocabulary
from mage.views import palette, rounding, selection
from mage.views.display import FigureView, TableView
from mage.views.selection import Chosen

ROW = 14.0


@dataclass(frozen=True, kw_only=True)
class Change:
    """A difference in percent, or a range of it, and the words behind its mark."""

    name: str
    low: float
    high: float
    colour: str
    words: str


@drawing
def drift(
    evidence: Evidence | Sequence[Evidence], *, operations: Chosen = None, implementations: Chosen = None
) -> FigureView:
    """Change of the kernel time of unchanged kernels since an earlier experiment, in percent.

    The first record lists which kernels did not change. A time is read from the results of its own
    experiment if that is among ``evidence``, else it is the listing record's, which may be rounded.
    """
    records = {record.experiment: record for record in selection.as_list(evidence)}
    lead = next(iter(records.values()))
    wanted = selection.words("operations", operations), selection.words("implementations", implementations)
    listed = [row for row in lead.drift if row.operation in wanted[0] and row.implementation in wanted[1]]
    order = vocabulary.OPERATIONS.index
    listed.sort(key=lambda row: (palette.position(row.implementation), order(row.operation)))
    rows = [(row, _kernel(records.get(row.against), row) or row.before_us, _kernel(lead, row) or row.after_us) for row in listed]
    changes = [
        Change(
            name=f"{palette.SHORT_OPERATIONS[row.operation]}, {palette.label(row.implementation)}",
            low=(after / before - 1) * 100,
            high=(after / before - 1) * 100,
            colour=palette.colour(row.implementation),
            words=f"{_signed((after / before - 1) * 100, 2)} %",
        )
        for row, before, after in rows
    ]
    table = _drift_table(rows, changes)
    title = "Drift of the kernels that did not change"
    if not changes:
        return FigureView("drift", None, title, "", table)
    page = Page()
    against = ", ".join(dict.fromkeys(row.against for row in listed))
    page.heading(f"From {against} to {lead.experiment}", "change of kernel time, %")
    _rows(page, changes)
    note = "Change of the mean kernel time of a kernel whose code is the same in both experiments."
    alt = f"Change of kernel time in percent from {against}: {'; '.join(f'{change.name} {change.words}' for change in changes)}."
    return FigureView("drift", page.finish(selection.source(list(records.values()))), title, alt, table, note=note)


def _kernel(record: Evidence | None, row: Drift) -> float | None:
    """Mean kernel time in ``record`` of the operation and implementation that ``row`` names."""
    for result in record.results if record else ():
        if (result.operation, result.implementation) == (row.operation, row.implementation):
            found = stats.value(result, "kernel_us")
            return found.value if found else None
    return None


def _drift_table(rows: list[tuple[Drift, float, float]], changes: list[Change]) -> TableView:
    columns = ["Operation", "Implementation", "Against", "Before", "After", "Change", "Change as published"]
    records = []
    for (row, before, after), change in zip(rows, changes, strict=True):
        which = palette.OPERATIONS[row.operation], palette.label(row.implementation), row.against
        records.append((*which, before, after, change.low, row.change_pct))
    units = {"Before": "µs", "After": "µs", "Change": "%", "Change as published": "%"}
    formats = {"Before": ".3f", "After": ".3f", "Change": "+.2f", "Change as published": "+.1f"}
    caption = "Kernel time of unchanged kernels in two experiments"
    return TableView("drift-values", pd.DataFrame(records, columns=columns), caption, units=units, formats=formats, row_heads=2)


@drawing
def layernorm_gap(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> FigureView:
    """How far the hand-written layer norm is behind Triton's, in percent of Triton's kernel time, three ways.

    From this session's two captures; from the ends of the ranges that all captures of either span; as published.
    """
    wanted = selection.words("operations", operations), selection.words("implementations", implementations)
    shown = "layernorm" in wanted[0] and {"rust-oxide", "triton"} <= set(wanted[1])
    changes = _gaps(evidence) if shown else []
    records = [(change.name, change.low, change.high) for change in changes]
    frame = pd.DataFrame(records, columns=["How", "From", "To"])
    caption = "Layer norm, hand-written kernel behind Triton's"
    table = TableView(
        "layernorm-gap-values", frame, caption, units={"From": "%", "To": "%"}, formats={"From": ".2f", "To": ".2f"}
    )
    title = "Layer norm: how far the hand-written kernel is behind Triton's"
    if not changes:
        return FigureView("layernorm-gap", None, title, "", table)
    page = Page()
    page.heading("LayerNorm", "cuda-oxide above Triton's kernel time, %")
    _rows(page, changes)
    note = "A range is made of the ends of two ranges, each from several sessions; it is no interval."
    alt = f"Gap of the hand-written layer norm to Triton's in percent: {'; '.join(f'{one.name} {one.words}' for one in changes)}."
    return FigureView("layernorm-gap", page.finish(selection.source(evidence)), title, alt, table, note=note)


def _gaps(evidence: Evidence) -> list[Change]:
    hand, colour = "rust-oxide", palette.HAND.colour
    changes = []
    means = {row.implementation: row.means.kernel_us for row in evidence.results if row.operation == "layernorm" and row.means}
    if means.get(hand) and means.get("triton"):
        gap = (means[hand] / means["triton"] - 1) * 100
        changes.append(Change(name="this session", low=gap, high=gap, colour=colour, words=f"{_signed(gap, 1)} %"))
    controls = [row for row in evidence.controls if row.operation == "layernorm" and row.quantity == "kernel_us"]
    seen = {
        name: [value for row in controls if row.implementation == name for value in (*row.captures_us, *(row.band_us or ()))]
        for name in (hand, "triton")
    }
    # Triton's listed captures, not its band: an end of the published band is in no listed session.
    listed = [value for row in controls if row.implementation == "triton" for value in row.captures_us] or seen["triton"]
    if seen[hand] and listed:
        low, high = (min(seen[hand]) / max(listed) - 1) * 100, (max(seen[hand]) / min(listed) - 1) * 100
        changes.append(Change(name="all captures", low=low, high=high, colour=colour, words=_between(low, high, 1)))
    for row in controls:
        if row.gap_to_triton_pct:
            low, high = row.gap_to_triton_pct
            changes.append(Change(name="as published", low=low, high=high, colour=palette.MUTED, words=_between(low, high, 0)))
    return changes


def _rows(page: Page, changes: list[Change]) -> None:
    """A row a change: a dot, or a bar with two ends, on one scale that has zero on it."""
    left = MARGIN + max(width(change.name) for change in changes) + 8
    wide = WIDTH - MARGIN - left
    longest = max(width(change.words) for change in changes) + 8
    low, high = min(0.0, *(change.low for change in changes)), max(0.0, *(change.high for change in changes))
    height = ROW * len(changes)
    panel = page.panel(left, page.y, wide, height, ylim=(height, 0))
    # The words of the rightmost mark stand behind it, so the scale ends before the page does.
    scale = (wide - longest - 6) / (high - low)
    panel.set_xlim(low - 6 / scale, low - 6 / scale + wide / scale)
    ticks = _around_zero(low, high)
    vertical_grid(panel, ticks)
    panel.plot([0, 0], [0, height], color=palette.MUTED, lw=0.8, zorder=1)
    panel.set_xticks(ticks, [plain(tick).replace("-", "−") for tick in ticks])
    for number, change in enumerate(changes):
        middle = ROW * (number + 0.5)
        page.text(MARGIN, raised(page.y + middle), change.name)
        if change.low == change.high:
            panel.plot([0, change.low], [middle, middle], color=change.colour, lw=1.2, zorder=2)
            panel.plot([change.low], [middle], "o", ms=6, color=change.colour, zorder=3, mew=0)
        else:
            panel.plot([change.low, change.high], [middle, middle], color=change.colour, lw=5, zorder=2, solid_capstyle="butt")
        end = left + 6 + (max(change.high, 0) - low) * scale + 6
        page.text(end, raised(page.y + middle), change.words, bbox={"fc": "white", "ec": "none", "pad": 0.5})
    page.y += height + SMALL * LINE + 5


def _around_zero(low: float, high: float) -> list[float]:
    ticks = ticks_to(max(high, -low), 5)
    below = [-tick for tick in ticks[1:] if -tick >= low]
    return [*reversed(below), *(tick for tick in ticks if tick <= high or math.isclose(tick, high))]


def _signed(number: float, decimals: int) -> str:
    text = rounding.half_up(number, decimals)
    return f"−{text[1:]}" if text.startswith("-") else f"+{text}"


def _between(low: float, high: float, decimals: int) -> str:
    return f"{rounding.half_up(low, decimals)}–{rounding.half_up(high, decimals)} %"
