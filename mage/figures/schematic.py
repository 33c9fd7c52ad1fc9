"""Why data reuse is a question of layout, drawn from tile sizes: no measurement and no image file in it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd
from matplotlib.patches import Rectangle

from mage.figures.canvas import BODY, LINE, MARGIN, SMALL, WIDTH, Page, drawing
from mage.views import palette
from mage.views.display import FigureView, TableView

TILE, HAND = palette.TILE.colour, palette.HAND.colour
SCALE = 1.12
"""Points of one matrix element in the two pictures of tiles."""


@dataclass(frozen=True, kw_only=True)
class Reads:
    """What one step along K costs a thread that computes ``rows`` × ``columns`` outputs.

    It needs a value of A for each row and a value of B for each column, for rows × columns
    multiply-adds; one instruction reads ``quad`` neighbouring values.
    """

    label: str
    rows: int
    columns: int
    quad: int

    @property
    def words(self) -> float:
        """32-bit words read from shared memory for one multiply-add."""
        return (self.rows + self.columns) / (self.rows * self.columns)

    @property
    def instructions(self) -> float:
        """Read instructions for one multiply-add."""
        return (math.ceil(self.rows / self.quad) + math.ceil(self.columns / self.quad)) / (self.rows * self.columns)


@drawing
def reuse_schematic(
    *,
    tile: tuple[int, int, int] = (32, 128, 32),
    operand: int = 32,
    block: tuple[int, int, int] = (64, 64, 64),
    outputs: tuple[int, int] = (4, 4),
    quad: int = 4,
    pad: int = 4,
    size: int = 1024,
) -> FigureView:
    """Reads from shared memory for one multiply-add, and the two layouts of a matrix product of ``size``³.

    ``tile`` is the tile compiler's (BM, BN, BK) with operands of ``operand`` × ``operand``; ``block`` the
    hand-written kernel's (BM, BN, BK), each thread computing ``outputs`` and reading ``quad`` words at once
    from A transposed with rows of BM + ``pad`` values.
    """
    rows, columns = outputs
    ladder = [
        Reads(label="one output a thread", rows=1, columns=1, quad=1),
        Reads(label=f"{rows}×{columns} outputs a thread", rows=rows, columns=columns, quad=1),
        Reads(label=f"{rows}×{columns}, {32 * quad}-bit reads", rows=rows, columns=columns, quad=quad),
    ]
    page = Page()
    page.text(MARGIN, page.y + BODY, "Shared-memory reads for one multiply-add", BODY, fontweight="bold")
    page.y += BODY * LINE + 5
    _ladder(page, ladder)
    page.text(MARGIN, page.y + BODY, "Tile compiler: the compiler lays out the tile", BODY, fontweight="bold")
    page.y += BODY * LINE + 5
    _tile(page, tile, operand, size)
    page.text(MARGIN, page.y + BODY, "Hand-written: the author lays out every value", BODY, fontweight="bold")
    page.y += BODY * LINE + 5
    _block(page, block, outputs, quad, pad, size)
    numbers = "; ".join(
        f"{step.label}: {_number(step.words)} words in {_number(step.instructions)} instructions" for step in ladder
    )
    bm, bn, bk = tile
    alt = (
        f"Schematic of data reuse in a matrix product. Shared-memory reads for one multiply-add: {numbers}. The tile compiler "
        f"computes a {bm}×{bn} tile from a {bm}×{bk} piece of A and a {bk}×{bn} piece of B a step; the hand-written kernel a "
        f"{block[0]}×{block[1]} block, {rows}×{columns} outputs a thread, A transposed with rows of {block[0] + pad} values."
    )
    note = (
        f"Drawn from the tile sizes. A thread with {rows}×{columns} outputs reads {_number(ladder[1].words)} words for one "
        f"multiply-add however wide it reads; {32 * quad}-bit reads make that {_number(ladder[2].instructions)} instructions."
    )
    title = "The same multiply-adds, three numbers of reads"
    figure = page.finish("drawn from the tile sizes, no measurement")
    return FigureView("reuse-schematic", figure, title, alt, _table(ladder), note=note)


@drawing
def reuse_ladder(*tiles: tuple[int, int, int]) -> FigureView:
    """Shared-memory reads for one multiply-add of threads with (rows, columns) outputs that read ``quad`` words at once.

    ``tiles``: two or three (rows, columns, quad); quad 1 is a 32-bit read.
    """
    ladder = [Reads(label=_threads(*tile), rows=tile[0], columns=tile[1], quad=tile[2]) for tile in tiles]
    page = Page()
    page.text(MARGIN, page.y + BODY, "Shared-memory reads for one multiply-add", BODY, fontweight="bold")
    page.y += BODY * LINE + 5
    _ladder(page, ladder)
    said = "; ".join(f"{step.label}: {_number(step.words)} words in {_number(step.instructions)} instructions" for step in ladder)
    alt = f"Schematic of what a thread reads from shared memory, divided by its multiply-adds. {said}."
    note = "What a thread reads for one step along K, and the outputs that it serves."
    figure = page.finish("drawn from the tile sizes, no measurement")
    return FigureView("reuse-ladder", figure, "What a thread reads, and what for", alt, _table(ladder, "reuse-ladder-values"), note=note)


def _threads(rows: int, columns: int, quad: int) -> str:
    if quad > 1:
        return f"{rows}×{columns}, {32 * quad}-bit reads"
    return "one output a thread" if rows * columns == 1 else f"{rows}×{columns} outputs a thread"


def _number(value: float) -> str:
    return f"{value:.10g}"


def _ladder(page: Page, ladder: list[Reads]) -> None:
    """For each way to read: the values of A and B that one step touches, the outputs they serve, and the arithmetic."""
    wide, unit, top = (WIDTH - 2 * MARGIN) / len(ladder), 9.0, page.y
    tallest = max(step.rows for step in ladder) * unit + unit + 4
    for place, step in enumerate(ladder):
        left = MARGIN + wide * place
        panel = page.panel(left, top, wide, tallest, xlim=(0, wide), ylim=(tallest, 0))
        a, b = 14.0, unit + 4  # room for the letters
        grid = (a + unit + 4, b)
        _cells(panel, grid, (step.columns, step.rows), unit, palette.SHADE)
        _cells(panel, (a, b), (1, step.rows), unit, palette.tint(HAND, 0.45), merged=(1, step.quad))
        _cells(panel, (grid[0], 0), (step.columns, 1), unit, palette.tint(HAND, 0.45), merged=(step.quad, 1))
        page.text(left + 2, top + b + SMALL, "A")
        page.text(left + grid[0] + step.columns * unit + 4, top + SMALL, "B")
    page.y += tallest + 4
    for place, step in enumerate(ladder):
        left, reads = MARGIN + wide * place, (step.rows + step.columns)
        products = step.rows * step.columns
        instructions = round(step.instructions * products)
        what = f"{reads} words" if step.quad == 1 else f"{instructions} instructions"
        result = f"{_number(step.instructions)} {'words' if step.quad == 1 else 'instructions'}"
        for number, (line, bold) in enumerate(((step.label, False), (f"{what} ÷ {products} =", False), (result, True))):
            page.text(left, page.y + SMALL + number * SMALL * 1.3, line, fontweight="bold" if bold else "normal")
    page.y += 3 * SMALL * 1.3 + 12


def _cells(panel, corner: tuple, count: tuple[int, int], unit: float, colour: str, merged: tuple[int, int] = (1, 1)) -> None:
    """``count`` (across, down) squares from ``corner``; ``merged`` of them are one read and have one frame."""
    across, down = count
    step_x, step_y = min(merged[0], across), min(merged[1], down)
    for x in range(0, across, step_x):
        for y in range(0, down, step_y):
            place = (corner[0] + x * unit, corner[1] + y * unit)
            size = (step_x * unit - 1, step_y * unit - 1)
            panel.add_patch(Rectangle(place, *size, fc=colour, ec=palette.INK, lw=0.7, clip_on=False))


def _tile(page: Page, tile: tuple[int, int, int], operand: int, size: int) -> None:
    """One program of the tile compiler: its tile of C, and the pieces of A and B of one step along K."""
    bm, bn, bk = tile
    gap = 8.0
    left, top = MARGIN + 2, page.y + SMALL * LINE
    across, down = bk * SCALE + gap + bn * SCALE, bk * SCALE + gap + bm * SCALE
    panel = page.panel(left, top, across, down, xlim=(0, across), ylim=(down, 0))
    c = (bk * SCALE + gap, bk * SCALE + gap)
    light = palette.tint(TILE, 0.3)
    _area(panel, (0, c[1]), bk, bm, light, operand)
    _area(panel, (c[0], 0), bn, bk, light, operand)
    _area(panel, c, bn, bm, palette.tint(TILE, 0.65))
    page.text(left + c[0], top - 3, f"B {bk}×{bn}")
    page.text(left, top + c[1] - 3, f"A {bm}×{bk}")
    page.text(left + c[0] + 5, top + c[1] + bm * SCALE / 2 + 3, f"C {bm}×{bn}")
    programs = (size // bm) * (size // bn)
    pieces = math.ceil(bn / operand) * math.ceil(bk / operand)
    words = [
        "one program a tile of C,", f"{programs} programs for {size}³",
        f"a step along K: {bk} deep,", f"operands of {operand}×{operand}:",
        f"1 of A, {pieces} of B" if bm <= operand else "of A and B",
        "threads, registers, widths:", "the compiler's choice",
    ]  # fmt: skip
    for number, line in enumerate(words):
        page.text(left + across + 14, top + number * SMALL * 1.3, line)
    page.y = top + max(down, len(words) * SMALL * 1.3) + 12


def _block(page: Page, block: tuple[int, int, int], outputs: tuple[int, int], quad: int, pad: int, size: int) -> None:
    """One block of the hand-written kernel: A transposed and padded, B, and a thread's outputs in C."""
    bm, bn, bk = block
    rows, columns = outputs
    gap = 12.0
    scale = min(SCALE * 1.3, (WIDTH - 2 * MARGIN - 2 * gap - 4) / (bm + pad + bn + bn))
    left, top = MARGIN + 2, page.y + 2 * SMALL * LINE
    starts = (0.0, (bm + pad) * scale + gap, (bm + pad + bn) * scale + 2 * gap)
    deep = max(bk, bm) * scale
    panel = page.panel(left, top, starts[2] + bn * scale, deep, xlim=(0, starts[2] + bn * scale), ylim=(deep, 0))
    light, mark = palette.tint(HAND, 0.3), HAND
    row, column = 5 * rows, 8 * columns  # some thread's outputs, to show where its reads fall
    step = bk // 2  # some step along K
    _area(panel, (0, 0), bm, bk, light, scale=scale)
    _area(panel, (bm * scale, 0), pad, bk, "white", scale=scale)
    _area(panel, (starts[1], 0), bn, bk, light, scale=scale)
    _area(panel, (starts[2], 0), bn, bm, palette.SHADE, scale=scale)
    for corner, across, down in (
        ((row * scale, step * scale), rows, 1.6),
        ((starts[1] + column * scale, step * scale), columns, 1.6),
        ((starts[2] + column * scale, row * scale), columns, rows),
    ):
        panel.add_patch(Rectangle(corner, across * scale, down * scale, fc=mark, ec=mark, lw=0.8, zorder=4))
    heads = (
        (f"A transposed, {bk} deep", f"rows of {bm} + {pad} = {bm + pad}"),
        (f"B, {bk} deep", f"rows of {bn}"),
        (f"C {bm}×{bn}", f"{rows}×{columns} a thread"),
    )
    for start, lines in zip(starts, heads, strict=True):
        for number, line in enumerate(lines):
            page.text(left + start, top - 4 - (1 - number) * SMALL * LINE, line)
    page.y = top + deep + 5
    threads = (bm // rows) * (bn // columns)
    reads = math.ceil(rows / quad) + math.ceil(columns / quad)
    page.paragraph(
        f"{(size // bm) * (size // bn)} blocks of {threads} threads for {size}³. Dark: what one thread reads in one step, "
        f"{rows} values of A and {columns} of B in {reads} reads of {32 * quad} bits, and its {rows * columns} outputs.",
    )


def _area(panel, corner: tuple, across: int, down: int, colour: str, every: int | None = None, scale: float = SCALE) -> None:
    """A piece of a matrix, ``across`` × ``down`` elements, with a line between its operands of ``every`` elements."""
    frame = {"fc": colour, "ec": palette.INK, "lw": 0.8, "clip_on": False}
    panel.add_patch(Rectangle(corner, across * scale, down * scale, **frame))
    if every:
        for at in range(every, across, every):
            x = corner[0] + at * scale
            panel.plot([x, x], [corner[1], corner[1] + down * scale], color=palette.INK, lw=0.6)
        for at in range(every, down, every):
            y = corner[1] + at * scale
            panel.plot([corner[0], corner[0] + across * scale], [y, y], color=palette.INK, lw=0.6)


def _table(ladder: list[Reads], id: str = "reuse-schematic-values") -> TableView:
    columns = ["Arrangement", "Outputs a thread", "Words read a multiply-add", "Read instructions a multiply-add"]
    records = [(step.label, step.rows * step.columns, step.words, step.instructions) for step in ladder]
    frame = pd.DataFrame(records, columns=columns)
    return TableView(id, frame, "Reads from shared memory for one multiply-add")
