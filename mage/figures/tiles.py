"""The same kernel under many tile shapes: a sweep by hand and a tuner's search, two quantities apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from mage.evidence.schema import Evidence, Search, TileSweep
from mage.figures import tuning
from mage.figures.bars import Named, bars
from mage.figures.canvas import LINE, MARGIN, SMALL, WIDTH, Page, drawing, raised, width
from mage.figures.words import times
from mage.stats import judged
from mage.views import palette, rounding, selection
from mage.views.display import FigureView, TableView
from mage.views.selection import Chosen

COLOUR = palette.TILE.colour
LIGHTEST = 0.12
"""Share of colour in the cell of the fastest candidate; the slowest one's is 1, on which ink still reads at 5:1."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A tile shape BM × BN × BK and its time in µs."""

    bm: int
    bn: int
    bk: int
    time: float

    @classmethod
    def parse(cls, text: str, time: float) -> Tile:
        bm, bn, bk = map(int, text.split("x"))
        return cls(bm=bm, bn=bn, bk=bk, time=time)

    @property
    def name(self) -> str:
        return f"{self.bm}×{self.bn}×{self.bk}"

    @property
    def doubled(self) -> set[tuple[int, int, int]]:
        """Shapes with one side of the output tile twice as long."""
        return {(2 * self.bm, self.bn, self.bk), (self.bm, 2 * self.bn, self.bk)}


@drawing
def tile_sweep(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> FigureView:
    """Time of the tile compiler's matmul in µs by tile shape: twelve by hand (span), the tuner's candidates (device time).

    The two are different quantities and stand in separate panels. The fastest shape of each is named, and
    so is the cliff of the sweep: the shapes with one side twice as long as the fastest one's. Of a measured session
    only its sweep is drawn here; its searches are a figure of their own.
    """
    if judged.measured(evidence):
        return tuning.tile_sweep(evidence, operations, implementations)
    wanted = selection.words("operations", operations), selection.words("implementations", implementations)
    shown = "matmul" in wanted[0] and "rust-cutile" in wanted[1]
    sweep, search = (evidence.tile_sweep, evidence.search) if shown else (None, None)
    table = _table(sweep, search)
    title = "Matrix multiplication by tile shape"
    if not sweep and not search:
        return FigureView("tile-sweep", None, title, "", table)
    page, said = Page(), []
    if sweep:
        said.append(_by_hand(page, sweep))
    if search:
        said.append(_by_tuner(page, search))
    note = "Tiles are BM × BN × BK. Span (above) and device time (below) are different quantities: compare within a panel only."
    alt = f"Matrix multiplication by tile shape, in microseconds. {' '.join(said)}"
    return FigureView("tile-sweep", page.finish(selection.source(evidence)), title, alt, table, note=note)


def _by_hand(page: Page, sweep: TileSweep) -> str:
    """Bars from the smallest output tile to the largest; returns what they show."""
    tiles = sorted(
        (Tile.parse(row.tile, row.span_us) for row in sweep.rows), key=lambda tile: (tile.bm * tile.bn, tile.bm, tile.bk)
    )
    best = min(tiles, key=lambda tile: tile.time)
    page.heading(f"{len(tiles)} shapes by hand", "span of an awaited call, µs")
    named, cliffs = [], []
    for tile in tiles:
        words = rounding.half_up(tile.time, 1)
        cliff = tile is not best and (tile.bm, tile.bn, tile.bk) in best.doubled
        if cliff:
            factor = rounding.half_up(tile.time / best.time, 1)
            cliffs.append(f"{tile.name} {words}, {factor} times that")
            words += f" cliff: {factor}×"
        named.append(Named(name=tile.name, value=tile.time, words=words + " fastest" * (tile is best), strong=cliff or tile is best))
    bars(page, named, COLOUR)
    page.paragraph(f"cliff: one side twice as long as in the fastest shape, {best.name}")
    page.y += 8
    cliff = f"; with one side doubled {', '.join(cliffs)}" if cliffs else ""
    slowest = max(tiles, key=lambda tile: tile.time)
    return (
        f"Span of {len(tiles)} hand-picked shapes: fastest {best.name} with {rounding.half_up(best.time, 1)}{cliff}; "
        f"slowest {slowest.name} with {rounding.half_up(slowest.time, 1)}."
    )


def _by_tuner(page: Page, search: Search) -> str:
    """A map for each K step, darker is slower, every number in its cell; returns what it shows."""
    tiles = [Tile.parse(trial.tile, trial.median_us) for trial in search.trials if not trial.runoff]
    best, worst = min(tiles, key=lambda tile: tile.time), max(tiles, key=lambda tile: tile.time)
    page.heading(f"{len(tiles)} candidates of the tuner", "device time, median, µs")
    bks, bms, bns = (sorted({getattr(tile, side) for tile in tiles}) for side in ("bk", "bm", "bn"))
    left = MARGIN + width("BM 128") + 4
    gap = 9
    wide = (WIDTH - MARGIN - left - gap * (len(bks) - 1)) / len(bks)
    side = wide / len(bns)
    top = page.y + 2 * SMALL * LINE + 2
    for row, bm in enumerate(bms):
        page.text(MARGIN, raised(top + 18 * (row + 0.5)), f"BM {bm}")
    for block, bk in enumerate(bks):
        start = left + (wide + gap) * block
        page.text(start, page.y + SMALL, f"BK {bk}", fontweight="bold")
        panel = page.panel(start, top, wide, 18 * len(bms), ylim=(18 * len(bms), 0))
        panel.set_xlim(0, wide)
        for column, bn in enumerate(bns):
            head = str(bn) if column else f"BN {bn}"
            page.text(start + side * (column + 0.5), page.y + SMALL * (1 + LINE), head, ha="center")
        for tile in tiles:
            if tile.bk == bk:
                x, y = side * bns.index(tile.bn), 18.0 * bms.index(tile.bm)
                _cell(page, panel, tile, (x, y, side), (start, top), best, worst)
    page.y = top + 18 * len(bms) + 4
    page.paragraph(
        f"darker is slower; ringed: fastest, {best.name} with {rounding.significant(best.time)} µs; "
        f"slowest, {worst.name}: {rounding.half_up(worst.time / best.time, 1)}× that",
    )
    return (
        f"Median device time of the {len(tiles)} candidates of the tuner: fastest {best.name} with "
        f"{rounding.half_up(best.time, 1)}, slowest {worst.name} with {rounding.half_up(worst.time, 1)}."
    )


def _cell(page: Page, panel, tile: Tile, place: tuple, corner: tuple, best: Tile, worst: Tile) -> None:
    """One candidate: its colour by the logarithm of its time, its number in ink."""
    x, y, side = place
    depth = math.log(tile.time / best.time) / math.log(worst.time / best.time) if worst.time > best.time else 0
    colour = palette.tint(COLOUR, LIGHTEST + (1 - LIGHTEST) * depth)
    ring = {"edgecolor": palette.INK, "lw": 2.0, "zorder": 4} if tile is best else {"edgecolor": "white", "lw": 1.0}
    panel.bar([x], [18], [side], y, align="edge", color=colour, **ring, clip_on=False)
    page.text(
        corner[0] + x + side / 2, raised(corner[1] + y + 9), rounding.half_up(tile.time, 0), ha="center",
        fontweight="bold" if tile is best else "normal",
    )  # fmt: skip


def _table(sweep: TileSweep | None, search: Search | None) -> TableView:
    columns = ["Tile BM×BN×BK", "Taken by", "Quantity", "Time", "Minimum", "Repetitions"]
    records: list[tuple] = []
    if sweep:
        records += [(times(row.tile), "hand", "span, awaited", row.span_us, None, None) for row in sweep.rows]
    if search:
        records += [
            (
                times(trial.tile), "tuner, run-off" if trial.runoff else "tuner", "device time, median", trial.median_us,
                trial.min_us, trial.repetitions,
            )
            for trial in search.trials
        ]  # fmt: skip
    frame = pd.DataFrame(records, columns=columns)
    formats = {"Time": ".1f", "Minimum": ".1f", "Repetitions": ".0f"}
    note = "A run-off measures the two best candidates once more; it is not drawn." if search else None
    return TableView(
        "tile-sweep-values", frame, "Matrix multiplication by tile shape", units={"Time": "µs", "Minimum": "µs"},
        formats=formats, note=note, row_heads=2,
    )  # fmt: skip
