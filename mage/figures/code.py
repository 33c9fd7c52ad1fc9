"""Figures of the census: a DataFrame of ``mage.count_code`` or ``tile_census.census`` in. They show code, not time."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from mage.figures.canvas import MARGIN, SMALL, WIDTH, Page, drawing, plain, raised, ticks_to, vertical_grid, width
from mage.figures.words import times
from mage.views import palette, rounding, selection
from mage.views.display import FigureView, TableView
from mage.views.selection import Chosen

BAR = 7.5
CELL = 14.0
PALE = 0.3
"""Share of colour in the bar that is not the heading's own."""
ARITHMETIC = {"FFMA": 1.0, "FMUL": 0.55, "FADD": 0.25}
"""FP32 instructions of a product, and the share of colour in their part of a bar."""


@drawing
def shared_reads(frame: pd.DataFrame, *, operations: Chosen = None, gpu: str = "sm_89") -> FigureView:
    """Shared memory that one multiply-add of matmul's hottest loop reads, in words and in instructions, a kernel a row."""
    title = "Shared memory read for one multiply-add"
    shown = frame[(frame.operation == "matmul") & (frame.gpu == gpu) & frame.refused.isna()]
    if "matmul" not in selection.words("operations", operations):
        shown = shown[:0]
    rows = sorted(shown.to_dict("records"), key=lambda row: -palette.position(row["implementation"]))
    table = _reads_table(rows)
    if not rows:
        return FigureView("shared-reads", None, title, "", table)
    page = Page()
    page.heading("Matrix multiplication", f"hottest loop, compiled for {gpu}")
    left = MARGIN + max(width(_name(row)) for row in rows) + 6
    wide, high = WIDTH - left - 36, max(row["words per multiply-add"] for row in rows)
    step = 2 * BAR + 6
    height = step * len(rows)
    panel = page.panel(left, page.y, wide, height, ylim=(height, 0))
    ticks = ticks_to(high, 4)
    panel.set_xlim(0, max(high, ticks[-1]))
    vertical_grid(panel, ticks)
    panel.set_xticks(ticks, [plain(tick) for tick in ticks])
    for place, row in enumerate(rows):
        top, colour = step * place + 3, palette.colour(row["implementation"])
        page.text(MARGIN, raised(page.y + top + BAR), _name(row))
        for number, (column, share) in enumerate((("reads per multiply-add", 1), ("words per multiply-add", PALE))):
            value, start = row[column], top + BAR * number
            panel.bar([0], [BAR - 1], [value], start, align="edge", color=palette.tint(colour, share))
            end = left + wide * value / panel.get_xlim()[1] + 3
            page.text(end, raised(page.y + start + BAR / 2 - 0.5), _short(value))
    page.y += height + SMALL * 1.25 + 4
    page.paragraph("full colour: load instructions; pale, below: 32-bit words that they bring")
    said = "; ".join(
        f"{_name(row)} {_short(row['reads per multiply-add'])} instructions, {_short(row['words per multiply-add'])} words"
        for row in rows
    )
    alt = f"Bars from zero, shared memory read for one multiply-add in the hottest loop, compiled for {gpu}. {said}."
    note = "Counted in the compiled code; how long a read takes is not part of it."
    return FigureView("shared-reads", page.finish(_source(shown)), title, alt, table, note=note)


def _reads_table(rows: list[dict]) -> TableView:
    columns = ["Kernel", "GPU", "Instructions", "Words", "Multiply-adds", "Shared loads"]
    records = [
        (
            _name(row), row["gpu"], row["reads per multiply-add"], row["words per multiply-add"], row["loop multiply-adds"],
            row["loop shared loads"],
        )
        for row in rows
    ]  # fmt: skip
    note = "Instructions and words are for one multiply-add; the last two columns are the loop's counts."
    frame, formats = pd.DataFrame(records, columns=columns), {"Instructions": ".4f", "Words": ".4f"}
    return TableView("shared-reads-values", frame, "Shared memory read for one multiply-add", note=note, formats=formats)


@drawing
def tile_product(
    frame: pd.DataFrame, *, operations: Chosen = None, tile: str = "32x128x32", gpu: str = "sm_89"
) -> FigureView:
    """What an FP32 product of tiles became, by assembler release: instructions of ``tile``'s, and every tile's stack."""
    title = "What the tile compiler made of an FP32 product"
    shown = frame[(frame.gpu == gpu) & frame.refused.isna()]
    if "matmul" not in selection.words("operations", operations):
        shown = shown[:0]
    rows = shown.to_dict("records")
    table = _product_table(rows)
    if not rows:
        return FigureView("tile-product", None, title, "", table)
    page = Page()
    said = [_instructions(page, [row for row in rows if row["tile"] == tile], tile, gpu), _stacks(page, rows, gpu)]
    alt = f"Two panels on code that was compiled for {gpu}. {' '.join(said)}"
    note = "Instructions and stack are read from the compiled code. Neither is a time."
    return FigureView("tile-product", page.finish(_tile_source(shown)), title, alt, table, note=note)


def _instructions(page: Page, rows: list[dict], tile: str, gpu: str) -> str:
    """Bars of FFMA, FMUL and FADD for one multiply-add; returns what they show."""
    page.heading("FP32 instructions for one multiply-add", f"tile {times(tile)}, {gpu}")
    left = MARGIN + max(width(f"{row['product']} {row['release']}") for row in rows) + 6
    wide = WIDTH - left - 30
    height = 15.0 * len(rows)
    panel = page.panel(left, page.y, wide, height, ylim=(height, 0))
    totals = [sum(row[name] for name in ARITHMETIC) / row["multiply-adds"] for row in rows]
    ticks = ticks_to(max(totals), 4)
    panel.set_xlim(0, max(totals))
    vertical_grid(panel, ticks)
    panel.set_xticks(ticks, [plain(tick) for tick in ticks])
    told = []
    for place, (row, total) in enumerate(zip(rows, totals, strict=True)):
        middle, start = 15.0 * (place + 0.5), 0.0
        page.text(MARGIN, raised(page.y + middle), f"{row['product']} {row['release']}")
        for name, share in ARITHMETIC.items():
            part = row[name] / row["multiply-adds"]
            face = palette.tint(palette.TILE.colour, share)
            panel.bar([start], [11], [part], middle - 5.5, align="edge", color=face, edgecolor="white", lw=0.8)
            if wide * part / max(totals) > width(name) + 4:
                # ink reads at 5:1 even on the full colour
                page.text(left + wide * start / max(totals) + 3, raised(page.y + middle), name)
            start += part
        page.text(left + wide * total / max(totals) + 3, raised(page.y + middle), rounding.half_up(total, 2))
        parts = ", ".join(f"{row[name]} {name}" for name in ARITHMETIC if row[name])
        told.append(f"{row['product']} under tileiras {row['release']}: {parts}")
    page.y += height + SMALL * 1.25 + 10
    return f"Tile {times(tile)}, FP32 instructions of the code: {'; '.join(told)}."


def _stacks(page: Page, rows: list[dict], gpu: str) -> str:
    """A map of stack bytes, a tile a row, a release a column; returns what it shows."""
    page.heading("Stack of a thread, bytes", f"by tile and tileiras release, {gpu}")
    products, releases, tiles = (list(dict.fromkeys(row[key] for row in rows)) for key in ("product", "release", "tile"))
    tiles.sort(key=_area)
    by_place = {(row["product"], row["release"], row["tile"]): row["stack"] for row in rows}
    left, gap = MARGIN + max(width(times(tile)) for tile in tiles) + 6, 8.0
    side = (WIDTH - MARGIN - left - gap * (len(products) - 1)) / (len(products) * len(releases))
    high = max(by_place.values()) or 1
    top = page.y + 2 * SMALL * 1.25 + 2
    height = CELL * len(tiles)
    for place, tile in enumerate(tiles):
        page.text(MARGIN, raised(top + CELL * (place + 0.5)), times(tile))
    told = []
    for block, product in enumerate(products):
        start = left + (side * len(releases) + gap) * block
        page.text(start, page.y + SMALL, product, fontweight="bold")
        panel = page.panel(start, top, side * len(releases), height, ylim=(height, 0))
        panel.set_xlim(0, side * len(releases))
        panel.bar([0], [height], [side * len(releases)], 0, align="edge", color=palette.SHADE)
        for column, release in enumerate(releases):
            page.text(start + side * (column + 0.5), page.y + SMALL * 2.25, release, ha="center")
            for place, tile in enumerate(tiles):
                stack = by_place.get((product, release, tile))
                middle = start + side * (column + 0.5), raised(top + CELL * (place + 0.5))
                if stack:
                    face = palette.tint(palette.TILE.colour, 0.12 + 0.88 * stack / high)
                    panel.bar([side * column], [CELL], [side], CELL * place, align="edge", color=face, edgecolor="white", lw=1.0)
                    page.text(*middle, str(stack), ha="center")
                elif stack is None:
                    page.text(*middle, "–", ha="center", colour=palette.MUTED)
            found = [by_place[key] for key in by_place if key[:2] == (product, release)]
            told.append(f"{product} under {release}: {sum(map(bool, found))} of {len(found)} tiles have a stack, up to {max(found)} bytes")
    page.y = top + height + 5
    page.paragraph("grey: none; darker: more, for registers that do not fit")
    return f"Stack bytes of a thread by tile: {'; '.join(told)}."


def _area(tile: str) -> tuple[int, ...]:
    """To sort tiles by: the size of the output tile, then its sides."""
    rows, columns, depth = map(int, tile.split("x"))
    return rows * columns, rows, depth


def _product_table(rows: list[dict]) -> TableView:
    names = ["product", "tile", "release", "FFMA", "FMUL", "FADD", "multiply-adds", "registers", "stack", "origin"]
    columns = ["Product", "Tile", "Release", "FFMA", "FMUL", "FADD", "Multiply-adds", "Registers", "Stack", "Counted"]
    records = [[times(row[name]) if name == "tile" else row[name] for name in names] for row in rows]
    frame = pd.DataFrame(records, columns=columns)
    return TableView(
        "tile-product-values", frame, "The FP32 product of two tiles, as compiled", units={"Stack": "bytes"}, row_heads=3
    )


def _short(value: float) -> str:
    """At most three decimals, none that say nothing: 2, 0.5, 0.125."""
    return rounding.half_up(value, rounding.decimals_needed([value]))


def _name(row: dict) -> str:
    return palette.label(row["implementation"], row["variant"].replace("_", " "))


def _source(frame: pd.DataFrame) -> str:
    return "compiled, not run: " + ", ".join(dict.fromkeys(compiler.split(" (")[0] for compiler in frame.compiler))


def _tile_source(frame: pd.DataFrame) -> str:
    origins: Iterable[str] = dict.fromkeys(frame.origin)
    return f"compiled, not run: tileiras {', '.join(dict.fromkeys(frame.release))} · {', '.join(origins)}"
