"""A matplotlib Figure as bytes: SVG with its text as outlines, PNG with few colours. Same figure, same bytes.

The drawing settings are Mage's own, whatever a reader's matplotlibrc says, and no window system takes part.
"""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mage.views import palette, svg_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_WIDTH = 560
"""CSS pixels of a figure where the column is wide enough; a phone shows it at its column's width."""
PNG_WIDTH = 960
PNG_HEIGHT = 1100
"""A tall figure is made smaller, so that its PNG does not outweigh the page."""
SHADES = tuple(step / 10 for step in range(10, 0, -1))
"""Tints of each colour of the palette that a PNG has, for the smoothed edges of marks."""
GREYS = 24

_SETTINGS = {
    "svg.fonttype": "path",  # a text element would be laid out again, by whatever font a reader has
    "svg.hashsalt": "mage",  # ids by content, not by chance
    "font.family": ["DejaVu Sans"],  # comes with matplotlib, so it is the same everywhere
    "axes.unicode_minus": True,
    "hatch.linewidth": 0.8,
}


@contextmanager
def settings():
    """Draw and save under these settings, and under matplotlib's defaults for all others."""
    import matplotlib

    keep = {name: matplotlib.rcParamsDefault[name] for name in matplotlib.rcParamsDefault if not name.startswith("backend")}
    with matplotlib.rc_context({**keep, **_SETTINGS}):
        yield


def pixels(figure: Figure) -> tuple[int, int]:
    """Width and height in CSS pixels at which a page shows the figure."""
    width, height = figure.get_size_inches()
    return SHOWN_WIDTH, round(SHOWN_WIDTH * height / width)


def svg(figure: Figure, title: str) -> bytes:
    """The figure as SVG. ``title`` becomes the document's title."""
    stream = io.StringIO()
    with settings():
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return svg_size.reduced(stream.getvalue(), title).encode()


def png(figure: Figure, title: str) -> bytes:
    """The figure as PNG, ``PNG_WIDTH`` pixels wide, or narrower so that it is at most ``PNG_HEIGHT`` high."""
    from PIL import Image, PngImagePlugin

    stream = io.BytesIO()
    wide, high = figure.get_size_inches()
    with settings():
        figure.savefig(stream, format="png", dpi=min(PNG_WIDTH / wide, PNG_HEIGHT / high), metadata={"Software": None})
    stream.seek(0)
    few = Image.new("P", (1, 1))
    few.putpalette(_few_colours())
    # A palette made from the picture would blend away a colour that few marks have.
    picture = Image.open(stream).convert("RGB").quantize(palette=few, dither=Image.Dither.NONE)
    about = PngImagePlugin.PngInfo()
    about.add_text("Title", title)
    reduced = io.BytesIO()
    picture.save(reduced, "PNG", optimize=True, pnginfo=about)
    return reduced.getvalue()


def _few_colours() -> list[int]:
    """Red, green and blue of every colour a PNG may have: the palette with its tints, and greys."""
    colours = [palette.tint(colour, share) for colour in palette.COLOURS for share in SHADES]
    greys = [round(255 * step / (GREYS - 1)) for step in range(GREYS)]
    found = [int(colour[place : place + 2], 16) for colour in colours for place in (1, 3, 5)]
    return found + [grey for grey in greys for _ in range(3)]
