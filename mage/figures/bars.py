"""Bars by name from zero, each with words behind it: tile shapes and their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mage.figures.canvas import LINE, MARGIN, SMALL, WIDTH, Page, fitting, plain, raised, spaced, ticks_to, vertical_grid, width
from mage.views import palette

ROW = 12.5
"""Points from one bar to the next."""
BAR = 8.0
BEHIND = 3.0
"""Points from the end of a bar to its words."""
PALE = 0.4
"""Share of colour in a bar that is not strong."""


@dataclass(frozen=True, kw_only=True)
class Named:
    """A bar: its name, its value (None: there is no bar), the words behind it; ``strong`` is in full colour, its words bold."""

    name: str
    value: float | None
    words: str
    strong: bool = False


def bars(page: Page, named: Sequence[Named], colour: str) -> None:
    """Draw ``named`` below each other at the page's ``y``, which moves below their scale. All words end on the page."""
    high = max((one.value for one in named if one.value is not None), default=1.0)
    left = MARGIN + max(width(one.name) for one in named) + 6
    labels = [(one.value / high, width(one.words, bold=one.strong)) for one in named if one.value is not None]
    wide, height = fitting(left, labels, BEHIND, WIDTH - left - MARGIN), ROW * len(named)
    panel = page.panel(left, page.y, wide, height, ylim=(height, 0))
    panel.set_xlim(0, high)
    ticks = ticks_to(high, 5)
    vertical_grid(panel, ticks)
    ticks = spaced(ticks, [wide * tick / high for tick in ticks])
    panel.set_xticks(ticks, [plain(tick) for tick in ticks])
    for place, one in enumerate(named):
        middle = ROW * (place + 0.5)
        base = raised(page.y + middle)
        page.text(MARGIN, base, one.name)
        if one.value is None:
            page.text(left + 4, base, one.words, colour=palette.MUTED)
            continue
        face = colour if one.strong else palette.tint(colour, PALE)
        panel.bar([0], [BAR], [one.value], middle - BAR / 2, align="edge", color=face)
        page.text(left + wide * one.value / high + BEHIND, base, one.words, fontweight="bold" if one.strong else "normal")
    page.y += height + SMALL * LINE + 4
