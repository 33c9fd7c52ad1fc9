"""Does a tile compiler lose where data is used again most? Its time over the hand-written kernel's, against reuse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from mage import operations as catalogue
from mage import palette, rounding, selection, stats
from mage.display import FigureView, TableView
from mage.figures.canvas import BODY, LINE, MARGIN, SMALL, WIDTH, Page, drawing, plain, width
from mage.schema import Evidence
from mage.selection import Chosen, Row

HEIGHT = 170.0
SIDES = {"tile compiler": ("cutile", "rust-cutile"), "hand-written": ("cuda", "rust-oxide")}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One operation: flops per byte that has to move, and both kernel times in µs."""

    operation: str
    reuse: float
    tile: float
    hand: float
    rows: tuple[Row, Row]

    @property
    def ratio(self) -> float:
        return self.tile / self.hand

    @property
    def one_session(self) -> bool:
        return self.rows[0].evidence is self.rows[1].evidence


@drawing
def reuse_and_ratio(
    evidence: Evidence | Sequence[Evidence],
    *,
    operations: Chosen = None,
    implementations: Chosen = None,
    statistic: str = "mean",
) -> FigureView:
    """Kernel time of the tile compiler over the hand-written kernel's, against arithmetic reuse in flops per byte.

    Reuse is flops of a call over the bytes it has to move at least, each input read and the output written
    once. Both scales are logarithmic. Pairs from two sessions are drawn hollow and said to be so: a ratio
    across sessions is shown as published and is no verdict.
    """
    pairs = _pairs(selection.rows(evidence, operations, implementations), statistic)
    table = _table(pairs)
    title = "Tile compiler against hand-written kernel, by arithmetic reuse"
    if not pairs:
        return FigureView("reuse-and-ratio", None, title, "", table)
    page = Page()
    page.text(MARGIN, page.y + BODY, "Kernel time, tile compiler ÷ hand-written", BODY, fontweight="bold")
    page.y += BODY * LINE + 4
    _scatter(page, pairs)
    page.paragraph("arithmetic reuse: flops per byte moved at least; both scales logarithmic")
    across = [pair for pair in pairs if not pair.one_session]
    note = "Above 1 the tile compiler takes longer. Reuse counts each input read once and the output written once."
    if across:
        names = dict.fromkeys(row.evidence.experiment for pair in across for row in pair.rows)
        words = f"hollow: the two kernels were captured in different sessions ({', '.join(names)})"
        page.paragraph(words)
        note += " Hollow: across sessions, as published, so no verdict follows from this figure."
    listed = "; ".join(
        f"{palette.OPERATIONS[pair.operation]} {rounding.half_up(pair.ratio, 2)} at {rounding.significant(pair.reuse)}"
        for pair in pairs
    )
    alt = f"Kernel time, tile compiler over hand-written, against flops per byte, both scales logarithmic. {listed}."
    figure = page.finish(selection.source([row.evidence for pair in pairs for row in pair.rows]))
    return FigureView("reuse-and-ratio", figure, title, alt, table, note=note)


def _pairs(rows: Sequence[Row], statistic: str) -> list[Pair]:
    pairs = []
    for (name, dims), group in selection.by_shape(rows).items():
        sides = []
        for choices in SIDES.values():
            row = next((row for row in group if row.result.implementation in choices), None)
            found = stats.value(row.result, "kernel_us", statistic, where=row.evidence.experiment) if row else None
            sides.append((row, found.value) if found else None)
        if all(sides):
            (tile, tile_us), (hand, hand_us) = sides
            operation = catalogue.get(name)
            reuse = operation.flops(dims) / operation.bytes(dims)
            pairs.append(Pair(operation=name, reuse=reuse, tile=tile_us, hand=hand_us, rows=(tile, hand)))
    return pairs


def _scatter(page: Page, pairs: list[Pair]) -> None:
    left = MARGIN + 22
    wide = WIDTH - left - MARGIN - 6
    panel = page.panel(left, page.y, wide, HEIGHT, xscale="log", yscale="log")
    low, high = min(0.5, *(pair.ratio / 1.2 for pair in pairs)), max(2.0, *(pair.ratio * 1.3 for pair in pairs))
    start, end = min(pair.reuse for pair in pairs) / 1.6, max(pair.reuse for pair in pairs) * 1.6
    panel.set(xlim=(start, end), ylim=(low, high))
    x_ticks = [tick for tick in (0.1, 1, 10, 100, 1000) if start <= tick <= end]
    y_ticks = [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if low <= tick <= high]
    for tick in x_ticks:
        panel.axvline(tick, color=palette.GRID, lw=0.6, zorder=0)
    for tick in y_ticks:
        panel.axhline(tick, color=palette.INK if tick == 1 else palette.GRID, lw=0.9 if tick == 1 else 0.6, zorder=0)
    panel.set_xticks(x_ticks, [plain(tick) for tick in x_ticks])
    panel.set_yticks(y_ticks, [plain(tick) for tick in y_ticks])
    panel.minorticks_off()
    right = left + wide - 2
    line = page.y + HEIGHT * math.log(high) / math.log(high / low)
    sides = ("↑ tile compiler slower", page.y + SMALL), ("↓ tile compiler faster", page.y + HEIGHT - 4)
    for words, base in sides:
        page.text(right, base, words, ha="right", colour=palette.MUTED)
    # Taken places: the line at 1, the words beside it, then every mark and every label that is set.
    taken = [(left, line - 1, right, line + 1)]
    taken += [(right - width(words), base - SMALL, right, base + 2) for words, base in sides]
    spots = []
    for pair in pairs:
        x = left + wide * math.log(pair.reuse / start) / math.log(end / start)
        y = page.y + HEIGHT * math.log(high / pair.ratio) / math.log(high / low)
        spots.append((pair, x, y))
        taken.append((x - 5, y - 5, x + 5, y + 5))
    for pair, x, y in spots:
        colour = palette.TILE.colour
        panel.plot([pair.reuse], [pair.ratio], "o", ms=7, mfc=colour if pair.one_session else "white", mec=colour, mew=1.8)
        label = f"{palette.OPERATIONS[pair.operation]} {rounding.half_up(pair.ratio, 2)}×"
        box = _free_place(x, y, width(label), taken)
        taken.append(box)
        page.text(box[0], box[3] - 2, label)
        middle, near = (box[1] + box[3]) / 2, box[0] - 1 if box[0] > x else box[2] + 1
        if abs(middle - y) > 8:  # too far to be read as this mark's without a line
            page.line((x, near), (y, middle))
    page.y += HEIGHT + SMALL * LINE + 6


def _free_place(x: float, y: float, wide: float, taken: list[tuple]) -> tuple[float, float, float, float]:
    """Where a label of width ``wide`` may stand beside a mark at (x, y): the first place that nothing else takes."""
    tall = SMALL + 2
    rights, lefts, middles = (x + 8, x - 8 - wide, x - wide / 2)
    places = [(side, y - tall / 2 + shift) for shift in (0, -6, 6) for side in (rights, lefts)]
    places += [(middles, y - tall - 6), (middles, y + 6)]
    places += [(side, y - tall / 2 + shift) for away in range(12, 72, 6) for shift in (-away, away) for side in (rights, lefts)]
    boxes = [(place, top, place + wide, top + tall) for place, top in places]
    inside = [box for box in boxes if box[0] >= MARGIN + 22 and box[2] <= WIDTH - MARGIN]
    free = [box for box in inside if not any(_overlap(box, other) for other in taken)]
    return (free or inside or boxes)[0]


def _overlap(one: tuple, other: tuple) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _table(pairs: list[Pair]) -> TableView:
    columns = ["Operation", "Flops per byte", "Tile compiler", "Hand-written", "Ratio", "Sessions"]
    records = [
        (
            palette.OPERATIONS[pair.operation], pair.reuse, pair.tile, pair.hand, pair.ratio,
            "one" if pair.one_session else " and ".join(row.evidence.experiment for row in pair.rows),
        )
        for pair in pairs
    ]  # fmt: skip
    formats = {"Flops per byte": ".2f", "Tile compiler": ".3f", "Hand-written": ".3f", "Ratio": ".2f"}
    frame = pd.DataFrame(records, columns=columns)
    caption = "Kernel time of the tile compiler and of the hand-written kernel, with arithmetic reuse"
    units = {"Tile compiler": "µs", "Hand-written": "µs"}
    return TableView("reuse-and-ratio-values", frame, caption, units=units, formats=formats)
