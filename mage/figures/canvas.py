"""A page of fixed width for small panels and text, laid out in points from the top left corner.

The width is a phone's column: what is drawn here is shown there at 95 % of its size and larger
everywhere else, so a text that fits and can be read here does so on every screen. Panels are stacked,
the page grows downwards, and nothing is left to an automatic layout that might differ by a version.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path

from mage.views import images, palette

WIDTH = 345.6
"""Points, 4.8 inches."""
MARGIN = 3.0
SMALL, BODY = 8.25, 9.0
"""Sizes of text in points. At a phone's 328 pixels the smallest has 7.8 pixels."""
LINE = 1.25
"""Height of a line, in sizes of its text."""


def drawing(function: Callable) -> Callable:
    """Decorator: draw under Mage's settings, whatever a reader's own are."""

    @functools.wraps(function)
    def drawn(*args, **kwargs):
        with images.settings():
            return function(*args, **kwargs)

    return drawn


class Page:
    """The figure being drawn. ``y`` is where the next thing goes, in points from the top.

    ``remarks`` are words that found no room beside their mark, to be said below.
    """

    def __init__(self):
        self.figure = Figure(figsize=(WIDTH / 72, 1), facecolor="white")
        self.y = MARGIN
        self.remarks: list[str] = []
        self._texts: list[tuple] = []
        self._panels: list[tuple] = []
        self._lines: list[tuple] = []

    def text(self, x: float, y: float, text: str, size: float = SMALL, colour: str = palette.INK, **style):
        """Text with its base line at ``y`` and its left at ``x`` (or where ``va`` and ``ha`` say)."""
        style = {"va": "baseline", "ha": "left", **style}
        artist = self.figure.text(0, 0, text, fontsize=size, color=colour, linespacing=LINE, **style)
        self._texts.append((artist, x, y))
        return artist

    def paragraph(self, text: str, colour: str = palette.INK) -> None:
        """Text over the page's width, wrapped, at ``y``, which moves below it."""
        for line in wrapped(text, WIDTH - 2 * MARGIN):
            self.text(MARGIN, self.y + SMALL, line, colour=colour)
            self.y += SMALL * LINE

    def heading(self, text: str, aside: str = "") -> None:
        """What a panel shows in bold, ``aside`` behind it in grey, or below it where both do not fit."""
        self.text(MARGIN, self.y + BODY, text, BODY, fontweight="bold")
        start = MARGIN + width(text, BODY, bold=True) + 5
        if aside and start + width(aside, SMALL) > WIDTH - MARGIN:
            self.y += BODY * LINE
            self.paragraph(aside, palette.MUTED)
            return
        if aside:
            self.text(start, self.y + BODY, aside, SMALL, palette.MUTED)
        self.y += BODY * LINE + 1

    def panel(self, left: float, top: float, width: float, height: float, **axes) -> Axes:
        """Axes at this place, without frame and ticks."""
        panel = self.figure.add_axes((0, 0, 1, 1), **axes)
        self._panels.append((panel, left, top, width, height))
        for spine in panel.spines.values():
            spine.set_visible(False)
        panel.set_facecolor("none")
        panel.tick_params(length=0, labelsize=SMALL, labelcolor=palette.INK, pad=2)
        panel.set_xticks([])
        panel.set_yticks([])
        panel.minorticks_off()
        return panel

    def across(self, panel: Axes, value: float) -> float:
        """Distance in points from the page's left edge to ``value`` on the horizontal scale of ``panel``."""
        left, wide = next((left, wide) for axes, left, _, wide, _ in self._panels if axes is panel)
        (low, _), (high, _), (here, _) = panel.transScale.transform([(at, 1) for at in (*panel.get_xlim(), value)])
        return left + wide * (here - low) / (high - low)

    def line(self, xs: tuple[float, float], ys: tuple[float, float]) -> None:
        """A thin line between two points of the page, from a label to what it names."""
        self._lines.append((self.figure.add_artist(Line2D([], [], color=palette.MUTED, lw=0.6)), xs, ys))

    def finish(self, source: str) -> Figure:
        """The figure, with ``source`` as its last line: it may travel without its page."""
        self.y += 3
        self.paragraph(source, palette.MUTED)
        height = self.y + MARGIN
        self.figure.set_size_inches(WIDTH / 72, height / 72)
        for artist, x, y in self._texts:
            artist.set_position((x / WIDTH, 1 - y / height))
        for line, xs, ys in self._lines:
            line.set_data([x / WIDTH for x in xs], [1 - y / height for y in ys])
        for panel, left, top, wide, high in self._panels:
            panel.set_position((left / WIDTH, 1 - (top + high) / height, wide / WIDTH, high / height))
        return self.figure


def width(text: str, size: float = SMALL, bold: bool = False) -> float:
    """Points that ``text`` takes in one line."""
    return _em(text, bold) * size


@functools.cache
def _em(text: str, bold: bool) -> float:
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal", size=100)
    return text_to_path.get_text_width_height_descent(text, font, ismath=False)[0] / 100


def wrapped(text: str, limit: float, size: float = SMALL, bold: bool = False) -> list[str]:
    """``text`` in lines of at most ``limit`` points, broken at blanks."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and width(longer, size, bold) > limit:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def ticks_to(high: float, most: int = 7) -> list[float]:
    """Round numbers from 0 up to at most ``high``, ``most`` + 1 of them or fewer."""
    step = 10.0 ** math.floor(math.log10(high / most))
    step = next(step * factor for factor in (1, 2, 5, 10) if high / (step * factor) <= most)
    return [step * count for count in range(int(high / step + 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, … from the largest that is at most ``low`` to the smallest that is at least ``high``."""
    first = math.floor(math.log10(low))
    every = [factor * 10.0**power for power in range(first, first + 12) for factor in (1, 2, 5)]
    start = max(number for number in every if number <= low * (1 + 1e-9))
    end = min(number for number in every if number >= high * (1 - 1e-9) and number > start)
    return [number for number in every if start <= number <= end]


def plain(number: float) -> str:
    """A tick's number without exponent or needless decimals: 0.5, 20, 1000."""
    return f"{number:.10g}"


def spaced(ticks: Sequence[float], places: Sequence[float]) -> list[float]:
    """Every tick, or every second, third, …, so that their numbers, centred at ``places`` (points, rising), stand apart."""
    for step in range(1, len(ticks)):
        kept = list(zip(ticks, places, strict=True))[::step]
        if all(there - here >= (width(plain(one)) + width(plain(other))) / 2 + 4 for (one, here), (other, there) in pairwise(kept)):
            return [tick for tick, _ in kept]
    return list(ticks[:1])


def fitting(left: float, labels: Iterable[tuple[float, float]], gap: float, most: float) -> float:
    """Points of width, at most ``most``, for a panel from ``left`` whose labels all end on the page.

    A label is the share of the panel's width where its mark ends, and its own width in points; it stands ``gap`` behind the mark.
    """
    return min([most, *((WIDTH - MARGIN - left - gap - wide) / share for share, wide in labels if share > 0)])


def vertical_grid(panel: Axes, ticks: Sequence[float]) -> None:
    """Faint lines at ``ticks`` behind the marks, in one path."""
    bottom, top = panel.get_ylim()
    panel.plot(
        [at for tick in ticks for at in (tick, tick, math.nan)], [bottom, top, math.nan] * len(ticks),
        color=palette.GRID, lw=0.6, zorder=0, clip_on=False, solid_capstyle="butt",
    )  # fmt: skip


def raised(middle: float, size: float = SMALL) -> float:
    """The base line of text that is to stand level with ``middle`` (both from the top): half of a capital below it."""
    return middle + 0.35 * size
