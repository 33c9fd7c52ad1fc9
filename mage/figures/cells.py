"""Bars in a cell: a small panel with a baseline at zero, a number at the end of every bar."""

from __future__ import annotations

from dataclasses import dataclass

from mage.figures.canvas import SMALL, Page, raised, width
from mage.views import palette, rounding

ROW = 12.0
BAR = 7.0
ROOM = width("88.8") + 5
"""Least points that are kept for the number behind the longest bar."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar: ``value`` None is drawn as a dash, ``hollow`` marks a value from another session."""

    value: float | None
    colour: str
    hollow: bool = False


def cell(page: Page, left: float, top: float, wide: float, bars: list[Bar], high: float) -> None:
    """Draw ``bars`` below each other, ``high`` being as long as the cell allows, from zero."""
    # By `high` alone, which cells of one scale share, so that equal bars are of equal length in all of them.
    room = max(ROOM, width(rounding.significant(high)) + 5)
    panel = page.panel(left, top, wide, ROW * len(bars), ylim=(ROW * len(bars), 0))
    panel.set_xlim(0, wide)
    panel.plot([0, 0], [0, ROW * len(bars)], color=palette.MUTED, lw=0.7, zorder=3, clip_on=False)
    for place, bar in enumerate(bars):
        middle = ROW * (place + 0.5)
        if bar.value is None:
            page.text(left + 4, raised(top + middle), "–", colour=palette.MUTED)
            continue
        length = (wide - room) * bar.value / high
        face = "white" if bar.hollow else bar.colour
        panel.bar([0], [BAR], [length], middle - BAR / 2, align="edge", color=face, edgecolor=bar.colour, lw=1.0)
        page.text(left + length + 3, raised(top + middle), rounding.significant(bar.value), SMALL)
