"""Does a tile compiler lose where data is used again most? Its time over the hand-written kernel's, against two counts of reuse."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from mage.claims import reuse
from mage.claims.reuse import AS_PUBLISHED, COUNTS, FASTEST, FLOPS, USES, Pair
from mage.evidence.schema import Evidence
from mage.figures.canvas import BODY, LINE, MARGIN, SMALL, WIDTH, Page, drawing, plain, width
from mage.views import palette, rounding, selection
from mage.views.display import FigureView, TableView
from mage.views.selection import Chosen

HEIGHT = 170.0
MARKS = {AS_PUBLISHED: "o", FASTEST: "s"}
SAID = {
    FLOPS: "arithmetic reuse: flops per byte moved at least",
    USES: "uses of an input byte: how often the arithmetic reads it",
}


@drawing
def reuse_and_ratio(
    evidence: Evidence | Sequence[Evidence],
    *,
    operations: Chosen = None,
    implementations: Chosen = None,
    statistic: str = "mean",
) -> FigureView:
    """Kernel time of the tile compiler over the hand-written kernel's, against two counts of reuse (``mage.claims.reuse``).

    All scales are logarithmic. Pairs from two sessions are drawn hollow and said to be so: a ratio across sessions is
    shown as published and is no verdict. Of a measured session the ratio is the median of paired rounds with its
    interval, once for the configurations that were published and once for the fastest rows of either side.
    """
    pairs = reuse.pairs(selection.rows(evidence, operations, implementations), statistic)
    table = _table(pairs)
    title = "Tile compiler against hand-written kernel, by reuse"
    if not pairs:
        return FigureView("reuse-and-ratio", None, title, "", table)
    drawn = list({(id(pair.tile.result), id(pair.hand.result)): pair for pair in reversed(pairs)}.values())[::-1]
    page = Page()
    page.text(MARGIN, page.y + BODY, "Kernel time, tile compiler ÷ hand-written", BODY, fontweight="bold")
    page.y += BODY * LINE + 4
    for count in COUNTS:
        _scatter(page, drawn, count)
        page.paragraph(f"{SAID[count]}; both scales logarithmic")
        page.y += 6
    note = "Above 1 the tile compiler takes longer."
    measured = [pair for pair in pairs if pair.verdict]
    if measured:
        page.paragraph("round: the configurations that were published; square: the fastest rows of either side")
        note += " Lines: 95 % interval of the median of paired rounds."
    across = [pair for pair in pairs if not pair.one_session]
    if across:
        names = dict.fromkeys(row.evidence.experiment for pair in across for row in (pair.tile, pair.hand))
        page.paragraph(f"hollow: the two kernels were captured in different sessions ({', '.join(names)})")
        note += " Hollow: across sessions, as published, so no verdict follows from this figure."
    listed = "; ".join(_in_words(pair) for pair in pairs)
    alt = f"Kernel time, tile compiler over hand-written, against {' and against '.join(COUNTS)}. {listed}."
    figure = page.finish(selection.source([row.evidence for pair in pairs for row in (pair.tile, pair.hand)]))
    return FigureView("reuse-and-ratio", figure, title, alt, table, note=note)


def _scatter(page: Page, pairs: list[Pair], count: str) -> None:
    left = MARGIN + 22
    wide = WIDTH - left - MARGIN - 6
    panel = page.panel(left, page.y, wide, HEIGHT, xscale="log", yscale="log")
    low, high = min(0.5, *(pair.ratio / 1.2 for pair in pairs)), max(2.0, *(pair.ratio * 1.3 for pair in pairs))
    start, end = min(pair.reuse(count) for pair in pairs) / 1.6, max(pair.reuse(count) for pair in pairs) * 1.6
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
        x = left + wide * math.log(pair.reuse(count) / start) / math.log(end / start)
        y = page.y + HEIGHT * math.log(high / pair.ratio) / math.log(high / low)
        spots.append((pair, x, y))
        taken.append((x - 5, y - 5, x + 5, y + 5))
    for pair, x, y in spots:
        _mark(panel, pair, pair.reuse(count))
        label = _label(pair, pairs)
        box = _free_place(x, y, width(label), taken)
        taken.append(box)
        page.text(box[0], box[3] - 2, label)
        middle, near = (box[1] + box[3]) / 2, box[0] - 1 if box[0] > x else box[2] + 1
        if abs(middle - y) > 8:  # too far to be read as this mark's without a line
            page.line((x, near), (y, middle))
    page.y += HEIGHT + SMALL * LINE + 6


def _mark(panel, pair: Pair, at: float) -> None:
    colour = palette.TILE.colour
    if pair.verdict:
        panel.plot([at, at], [pair.verdict.ratio.low, pair.verdict.ratio.high], color=palette.INK, lw=1.2, zorder=4)
    panel.plot([at], [pair.ratio], MARKS[pair.kind], ms=7, mfc=colour if pair.one_session else "white", mec=colour, mew=1.8)


def _label(pair: Pair, pairs: list[Pair]) -> str:
    """The operation and its ratio; the name once where both marks of an operation are drawn."""
    first = next(one for one in pairs if one.operation == pair.operation)
    name = palette.SHORT_OPERATIONS if len(pairs) > len({one.operation for one in pairs}) else palette.OPERATIONS
    return (f"{name[pair.operation]} " if first is pair else "") + f"{rounding.half_up(pair.ratio, 2)}×"


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


def _in_words(pair: Pair) -> str:
    where = " and ".join(f"{rounding.significant(pair.reuse(count))} {count}" for count in COUNTS)
    kind = f", {pair.kind}" if pair.verdict else ""
    return f"{palette.OPERATIONS[pair.operation]}{kind} {rounding.half_up(pair.ratio, 2)} at {where}"


def _table(pairs: list[Pair]) -> TableView:
    heads = [count.capitalize() for count in COUNTS]
    columns = ["Operation", "Compared", *heads, "Tile compiler", "Hand-written", "Ratio", "Low", "High", "Verdict", "Sessions"]
    records = [
        (
            palette.OPERATIONS[pair.operation], f"{pair.tile.name} ÷ {pair.hand.name}", *(pair.reuse(count) for count in COUNTS),
            pair.tile_us, pair.hand_us, pair.ratio, pair.verdict and pair.verdict.ratio.low, pair.verdict and pair.verdict.ratio.high,
            pair.verdict.word if pair.verdict else None,
            "one" if pair.one_session else f"{pair.tile.evidence.experiment} and {pair.hand.evidence.experiment}",
        )
        for pair in pairs
    ]  # fmt: skip
    ratios = ("Ratio", "Low", "High")
    formats = {**dict.fromkeys(heads, ".2f"), "Tile compiler": ".3f", "Hand-written": ".3f", **dict.fromkeys(ratios, ".2f")}
    frame = pd.DataFrame(records, columns=columns)
    caption = "Kernel time of the tile compiler and of the hand-written kernel, with reuse"
    units = {"Tile compiler": "µs", "Hand-written": "µs"}
    return TableView("reuse-and-ratio-values", frame, caption, units=units, formats=formats, row_heads=2, missing="no verdict")
