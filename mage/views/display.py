"""What a cell of a note shows: a table, a figure or prose, as HTML that needs no script and no network.

Each view knows its own identity. ``_repr_mimebundle_`` hands it on in the metadata of the output, and
so the runner can tell that every declared figure and table was shown, once. The HTML carries classes for
the report to style. The one style it brings is for JupyterLab, which sets every cell of a table to the
right, text too; the report takes it off.
"""

from __future__ import annotations

import base64
import hashlib
import html
import numbers
import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from mage.views import images, rounding

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NOTHING = "Nothing in this evidence matches the selection."


class View:
    """Base of what a cell shows. ``id`` is lower-case words joined by hyphens, or None for prose."""

    kind: str
    id: str | None

    @property
    def html(self) -> str:
        raise NotImplementedError

    def _repr_mimebundle_(self, include=None, exclude=None):
        digest = hashlib.sha256(self.html.encode()).hexdigest()
        data = {"text/html": self.html, "text/plain": repr(self)}
        return data, {"mage": {"kind": self.kind, "id": self.id, "sha256": digest}}


class TableView(View):
    """A DataFrame as a table that a screen reader can walk through.

    ``units`` and ``formats`` are by column: a unit goes into the column's head, a format (``".2f"``) to
    its numbers; a column without one gets as many decimals as its values need, at most three, so that the
    points of a column stand below each other. The first ``row_heads`` columns name the rows. ``missing``
    says what a dash stands for, ``empty`` what to say when there are no rows, ``note`` what a reader needs
    to know below the table. A cell with an ``__html__`` method is markup, everything else is text.
    """

    kind = "table"

    def __init__(
        self,
        id: str,
        frame: pd.DataFrame,
        caption: str,
        units: Mapping[str, str] | None = None,
        note: str | None = None,
        formats: Mapping[str, str] | None = None,
        *,
        row_heads: int = 1,
        missing: str = "not published",
        empty: str = _NOTHING,
    ):
        self.id = _checked(id)
        self.frame = frame
        self.caption, self.note, self.missing, self.empty = caption, note, missing, empty
        self.units, self.formats, self.row_heads = dict(units or {}), dict(formats or {}), row_heads
        columns = [str(column) for column in frame.columns]
        for column in columns:
            if not column.strip() or columns.count(column) > 1:
                raise ValueError(f"table {id}: column {column!r} needs a name of its own")
        for name in {*self.units, *self.formats} - set(columns):
            raise ValueError(f"table {id}: no column {name!r} to give a unit or a format; there is {', '.join(columns)}")

    def __repr__(self) -> str:
        rows, columns = self.frame.shape
        return f"TableView {self.id}: {rows} rows × {columns} columns. {self.caption}"

    def __str__(self) -> str:
        """The table as plain text, with the numbers as the HTML prints them."""
        heads, rows = self._heads(), self._rows()
        if not rows:
            return f"{self.caption}\n{self.empty}"
        lines = [heads, *[[cell if cell is not None else "–" for cell in row] for row in rows]]
        widths = [max(len(line[place]) for line in lines) for place in range(len(heads))]
        align = [str.rjust if column in self._numeric else str.ljust for column in self.frame.columns]
        text = ["  ".join(put(cell, width) for put, cell, width in zip(align, line, widths, strict=True)) for line in lines]
        return "\n".join([self.caption, *(line.rstrip() for line in text)])

    @cached_property
    def html(self) -> str:
        heads = "".join(
            f'<th scope="col"{self._class(column)}>{html.escape(head, quote=False)}</th>'
            for column, head in zip(self.frame.columns, self._heads(), strict=True)
        )
        body = "\n".join(f"<tr>{self._row(row)}</tr>" for row in self._rows())
        if not body:
            body = f'<tr><td colspan="{len(self.frame.columns)}" class="mage-notice">{_inline(self.empty)}</td></tr>'
        note = f'\n<p class="mage-note">{_inline(self.note)}</p>' if self.note else ""
        label = f"table-{self.id}-caption"
        return (
            f'<section class="mage-table" tabindex="0" aria-labelledby="{label}">\n<table id="table-{self.id}">\n'
            f'<caption id="{label}">{_inline(self.caption)}</caption>\n'
            f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>{note}\n</section>"
        )

    def _heads(self) -> list[str]:
        units = ((str(column), self.units.get(str(column))) for column in self.frame.columns)
        return [f"{column} ({unit})" if unit else column for column, unit in units]

    def _rows(self) -> list[list[str | None]]:
        """Every cell as the text that is shown; None where there is no value."""
        columns = [[self._text(column, value) for value in self.frame[column]] for column in self.frame.columns]
        return [list(row) for row in zip(*columns, strict=True)]

    def _text(self, column, value) -> str | None:
        if _absent(value):
            return None
        if hasattr(value, "__html__"):
            return value
        if not _is_number(value):
            return str(value)
        return rounding.formatted(value, self._format[column])

    def _row(self, cells: list[str | None]) -> str:
        parts = []
        for place, (column, cell) in enumerate(zip(self.frame.columns, cells, strict=True)):
            tag = 'th scope="row"' if place < self.row_heads else "td"
            parts.append(f"<{tag}{self._class(column)}>{self._cell(cell)}</{tag[:2]}>")
        return "".join(parts)

    def _cell(self, cell: str | None) -> str:
        if cell is None:
            return f'<abbr title="{html.escape(self.missing)}">–</abbr>'
        return cell.__html__() if hasattr(cell, "__html__") else html.escape(cell, quote=False)

    def _class(self, column) -> str:
        return ' class="num"' if column in self._numeric else ' style="text-align:left"'

    @cached_property
    def _numeric(self) -> set:
        """Columns whose values are all numbers."""
        present = {column: [value for value in self.frame[column] if not _absent(value)] for column in self.frame.columns}
        return {column for column, values in present.items() if values and all(map(_is_number, values))}

    @cached_property
    def _format(self) -> dict:
        """The format of every column that holds a number."""
        formats = {}
        for column in self.frame.columns:
            values = [value for value in self.frame[column] if not _absent(value) and _is_number(value)]
            formats[column] = self.formats.get(str(column)) or f".{rounding.decimals_needed(values)}f"
        return formats


class FigureView(View):
    """A matplotlib Figure with its title, its description and the table of what is plotted.

    ``alt`` says what the figure shows to somebody who does not see it. The page holds the figure as SVG,
    the same SVG and a PNG to keep, and ``table`` folded below. ``figure`` is None when there is nothing to
    draw: then ``notice`` says why. ``note`` is what a reader must know to read the figure rightly.
    """

    kind = "figure"

    def __init__(
        self,
        id: str,
        figure: Figure | None,
        title: str,
        alt: str,
        table: TableView | None = None,
        *,
        note: str | None = None,
        notice: str = _NOTHING,
    ):
        self.id = _checked(id)
        self.figure, self.title, self.alt, self.table, self.note, self.notice = figure, title, alt, table, note, notice
        if figure is not None and (len(alt) < 20 or alt == title):
            raise ValueError(f"figure {id}: alt must say what the figure shows, in 20 characters or more, got {alt!r}")

    def __repr__(self) -> str:
        return f"FigureView {self.id}: {self.title}. {self.alt if self.figure is not None else self.notice}"

    @cached_property
    def svg(self) -> bytes:
        """The figure as SVG, text as outlines: it looks the same whichever fonts a reader has."""
        return images.svg(self.figure, self.title)

    @cached_property
    def png(self) -> bytes:
        """The figure as PNG with few colours."""
        return images.png(self.figure, self.title)

    @cached_property
    def html(self) -> str:
        note = f" {_inline(self.note)}" if self.note else ""
        caption = f"<figcaption><strong>{_inline(self.title)}.</strong>{note}</figcaption>"
        picture = self._picture() if self.figure is not None else f'<p class="mage-notice">{_inline(self.notice)}</p>'
        values = ""
        if self.table is not None:
            values = f"\n<details><summary>Read the plotted values</summary>\n{self.table.html}\n</details>"
        return f'<figure id="fig-{self.id}" class="mage-figure">\n{caption}\n{picture}{values}\n</figure>'

    def _picture(self) -> str:
        width, height = images.pixels(self.figure)
        svg, png = _svg_address(self.svg), f"data:image/png;base64,{base64.b64encode(self.png).decode()}"
        name = html.escape(self.title)
        return (
            f'<img src="{svg}" alt="{html.escape(self.alt)}" width="{width}" height="{height}">\n'
            f'<p class="mage-downloads">'
            f'<a download="{self.id}.svg" href="{svg}" aria-label="SVG of {name}">SVG</a> '
            f'<a download="{self.id}.png" href="{png}" aria-label="PNG of {name}">PNG</a></p>'
        )


class Prose(View):
    """Markdown as HTML; markup that a checked number brings with it is kept."""

    kind = "prose"
    id = None

    def __init__(self, markdown: str):
        self.markdown = markdown

    def __repr__(self) -> str:
        return self.markdown

    @cached_property
    def html(self) -> str:
        import mistune

        return f'<div class="mage-prose">\n{mistune.create_markdown(escape=False)(self.markdown).strip()}\n</div>'


def prose(markdown: str) -> Prose:
    """Prose to end a cell with: ``mage.prose(f"The kernel takes {q(…)}.")``."""
    return Prose(markdown)


def show(*views: View) -> None:
    """Display several views from one cell, in this order."""
    from IPython.display import display

    for view in views:
        display(view)


def _checked(id: str) -> str:
    if not _ID.fullmatch(id):
        raise ValueError(f"id {id!r}: write lower-case words joined by hyphens, it names the element and the file")
    return id


def _svg_address(content: bytes) -> str:
    """A data address for use in an attribute: only what HTML or an address takes amiss is escaped, so it stays small."""
    text = content.decode().replace("%", "%25").replace('"', "'")
    for character in "<>#&":
        text = text.replace(character, f"%{ord(character):02X}")
    return f"data:image/svg+xml,{text}"


def _inline(text: str) -> str:
    """Text of one line as HTML; an object that is markup already stays as it is."""
    return text.__html__() if hasattr(text, "__html__") else html.escape(text, quote=False)


def _is_number(value) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _absent(value) -> bool:
    """None, NaN, NaT or pandas' NA: the kinds of value that are not equal to themselves, and none at all."""
    equal = value == value
    return value is None or (isinstance(equal, bool | np.bool_) and not equal) or type(value).__name__ == "NAType"
