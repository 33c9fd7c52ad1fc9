"""Searches of a measured session: every candidate that was timed, on one scale for its kernel; and the published tile shapes."""

from __future__ import annotations

import pandas as pd

from mage.evidence import schema_search
from mage.evidence.schema import Evidence
from mage.evidence.schema_search import Candidate, SearchRun
from mage.figures.bars import Named, bars
from mage.figures.canvas import LINE, MARGIN, SMALL, WIDTH, Page, drawing, plain, raised, vertical_grid, width
from mage.views import palette, rounding, selection
from mage.views.display import FigureView, TableView
from mage.views.selection import Chosen

STRIP = 24.0
TITLE = "Every candidate of every search, against the published configuration"
SWEEP_TITLE = "Matrix multiplication by tile shape"


@drawing
def searches(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> FigureView:
    """Median time of each timed candidate over the fixed configuration's, logarithmic: a strip a search, the best one ringed."""
    runs = [run for run in selection.searches(evidence, operations, implementations) if run.kind == "search" and _fixed(run)]
    table = _summary(runs)
    if not runs:
        return FigureView("searches", None, TITLE, "", table, notice=f"There is no search in {evidence.experiment}.")
    page, said = Page(), []
    ratios = {id(run): [one.median_us / _fixed(run) for one in run.candidates if one.median_us] for run in runs}
    low = min(0.9, *(min(found) for found in ratios.values())) / 1.15
    high = max(1.2, *(max(found) for found in ratios.values())) * 1.15
    ticks = [tick for tick in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if low <= tick <= high]
    left = MARGIN + 6 + max(width(_name(run)) for run in runs) + 8
    wide = WIDTH - left - 8
    for operation in dict.fromkeys(run.operation for run in runs):
        group = [run for run in runs if run.operation == operation]
        page.heading(palette.OPERATIONS[operation], selection.shape(group[0].dims))
        for run in group:
            said.append(_strip(page, run, ratios[id(run)], (left, wide, low, high), ticks))
    panel = page.panel(left, page.y, wide, 1, xscale="log", xlim=(low, high))
    panel.set_xticks(ticks, [plain(tick) for tick in ticks])
    panel.minorticks_off()
    page.y += SMALL * LINE + 6
    page.paragraph("time over that of the published configuration (line at 1), logarithmic; ringed: the best")
    note = "A dot is one candidate that passed the gate and was timed; those without a time are in the table, with their reasons."
    alt = f"Strips of dots, the time of every candidate over the published configuration's. {' '.join(said)}"
    return FigureView("searches", page.finish(selection.source(evidence)), TITLE, alt, table, note=note)


@drawing
def tile_sweep(evidence: Evidence, operations: Chosen, implementations: Chosen) -> FigureView:
    """The published tile shapes on this device: a bar a shape from the smallest output tile to the largest, or why there is none."""
    runs = [
        run
        for run in selection.searches(evidence, operations, implementations)
        if run.kind == "sweep" and run.operation == "matmul" and run.implementation == "cutile"
    ]
    if not runs:
        return FigureView("tile-sweep", None, SWEEP_TITLE, "", None, notice=f"There is no tile sweep in {evidence.experiment}.")
    run, page = runs[0], Page()
    shapes = sorted(run.candidates, key=_size)
    timed = [one for one in shapes if one.median_us]
    best = min(timed, key=lambda one: one.median_us, default=None)
    page.heading(f"{len(shapes)} shapes", f"{run.metric}, µs")
    named = [Named(name=_tile(one), value=one.median_us, words=_said(one, run, best), strong=one is best) for one in shapes]
    bars(page, named, palette.TILE.colour)
    page.paragraph(f"{palette.label('cutile')}, tile M × N × K, from the smallest output tile to the largest")
    listed = ", ".join(f"{one.name} {one.words}" for one in named)
    alt = f"Bars of the time of the matrix multiplication by tile shape, in microseconds: {listed}."
    return FigureView(
        "tile-sweep", page.finish(selection.source(evidence)), SWEEP_TITLE, alt, None, note="The values are in the table below."
    )


def _said(one: Candidate, run: SearchRun, best: Candidate | None) -> str:
    """Words behind a shape's bar: its time and what is particular about it, or what became of it."""
    if one.median_us is None:
        return one.state
    marks = [word for word, is_it in (("fastest", one is best), ("published", one.config == run.fixed)) if is_it]
    return " ".join([rounding.significant(one.median_us), *marks])


def _strip(page: Page, run: SearchRun, ratios: list[float], place: tuple, ticks: list[float]) -> str:
    """One search's dots; returns what they show."""
    left, wide, low, high = place
    colour = palette.colour(run.implementation)
    panel = page.panel(left, page.y, wide, STRIP, xscale="log", xlim=(low, high), ylim=(0, 1))
    vertical_grid(panel, ticks)
    panel.plot([1, 1], [0, 1], color=palette.INK, lw=0.9, zorder=1)
    # three levels, so that neighbours in rank do not lie on each other
    ordered = sorted(ratios)
    levels = [0.3 + 0.2 * (number % 3) for number in range(len(ordered))]
    panel.plot(ordered, levels, "o", ms=3.2, mfc=palette.tint(colour, 0.55), mec="white", mew=0.3, zorder=2)
    panel.plot([ordered[0]], [levels[0]], "o", ms=7, mfc="none", mec=palette.INK, mew=1.2, zorder=3, clip_on=False)
    panel.set_xticks([], minor=False)
    panel.minorticks_off()
    page.text(MARGIN + 6, raised(page.y + STRIP / 2 - 5), _name(run))
    counted = f"{len(ordered)} of {len(run.candidates)}"
    page.text(MARGIN + 6, raised(page.y + STRIP / 2 + 5), counted, colour=palette.MUTED)
    page.y += STRIP + 2
    best = min(run.candidates, key=lambda one: one.median_us or float("inf"))
    return (
        f"{palette.OPERATIONS[run.operation]}, {_name(run)}: {counted} timed, from {rounding.significant(ordered[0])} "
        f"to {rounding.significant(ordered[-1])}, the best {rounding.significant(best.median_us)} µs."
    )


def _summary(runs: list[SearchRun]) -> TableView:
    columns = [
        "Operation",
        "Implementation",
        "Candidates",
        *(state.capitalize() for state in schema_search.STATES),
        "Fixed",
        "Best",
        "Worst",
    ]
    records = []
    for run in runs:
        times = sorted(one.median_us for one in run.candidates if one.median_us)
        counts = [run.count(state) for state in schema_search.STATES]
        records.append((palette.OPERATIONS[run.operation], _name(run), len(run.candidates), *counts, _fixed(run), times[0], times[-1]))
    times = ("Fixed", "Best", "Worst")
    return TableView(
        "searches-values", pd.DataFrame(records, columns=columns), "What became of every candidate", row_heads=2,
        units=dict.fromkeys(times, "µs"), formats=dict.fromkeys(times, ".2f"),
    )  # fmt: skip


def _name(run: SearchRun) -> str:
    return palette.label(run.implementation, run.variant)


def _fixed(run: SearchRun) -> float | None:
    return next((one.median_us for one in run.candidates if one.config == run.fixed), None)


def _tile(one: Candidate) -> str:
    return "×".join(str(one.config[side]) for side in ("TILE_M", "TILE_N", "TILE_K"))


def _size(one: Candidate) -> tuple[int, ...]:
    sides = [one.config[side] for side in ("TILE_M", "TILE_N", "TILE_K")]
    return (sides[0] * sides[1], sides[0], sides[2])
