"""Text of a note to HTML that needs no script: Markdown, formulas as MathML, code in colour.

``finish`` makes one page of the pieces: every heading gets an address, every table that scrolls a
name and a place in the tab order. It knows HTML only, neither notebooks nor evidence.
"""

from __future__ import annotations

import functools
import html
import re
import unicodedata
from dataclasses import dataclass

from bs4 import BeautifulSoup, Tag
from bs4.dammit import EntitySubstitution
from bs4.formatter import HTMLFormatter

from mage.errors import MageError

# `<br>` and not `<br/>`, `download` and not `download=""`: the one spelling that HTML validators accept.
HTML = HTMLFormatter(
    entity_substitution=EntitySubstitution.substitute_xml,
    void_element_close_prefix="",
    empty_attributes_are_booleans=True,
)
NUMBER = re.compile(r"[-−+]?\d[\d,\u2009\u202f]*(\.\d+)?(e[-−+]?\d+)?")
MISSING = ("", "–", "—")
CAPTION = re.compile(r"^\s*Table:\s*")


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A heading of the page: its level (2 to 6), its address without ``#``, its content as HTML."""

    level: int
    id: str
    html: str


@functools.cache
def _markdown():
    import mistune

    class Renderer(mistune.HTMLRenderer):
        def block_code(self, code: str, info: str | None = None) -> str:
            return code_block(code, (info or "").split(maxsplit=1)[0] if info else "text")

        def inline_math(self, text: str) -> str:
            return mathml(text)

        def block_math(self, text: str) -> str:
            return formula(text)

    return mistune.create_markdown(renderer=Renderer(escape=False), plugins=["strikethrough", "table", "url", "def_list", "math"])


def markdown(source: str) -> str:
    """HTML of Markdown ``source``; ``$…$`` and ``$$…$$`` become MathML, fenced code is coloured.

    A table's caption is the paragraph ``Table: …`` right before it, or the last sentence there that ends in a
    colon (see ``finish``).
    """
    return _markdown()(source)


def mathml(latex: str, display: bool = False) -> str:
    """MathML of one formula. Raises MageError, naming the formula, where it cannot be converted."""
    from latex2mathml.converter import convert

    try:
        text = convert(latex.strip(), display="block" if display else "inline")
    except Exception as error:  # the converter's errors have no common base
        raise MageError(f"formula ${latex}$: {type(error).__name__} {error}".strip() + ": mend it in the note") from None
    unknown = re.search(r">\s*(\\[A-Za-z]+)", text)
    if unknown:
        raise MageError(f"formula ${latex}$: the converter does not know {unknown[1]}: use another command")
    return text


def formula(latex: str) -> str:
    """A formula on lines of its own. What ``\\quad`` or ``\\qquad`` sets apart may stand on lines of its own, too."""
    parts, depth = [""], 0
    for token in re.findall(r"\\q?quad(?![A-Za-z])|\\.|[^\\]", latex.strip(), re.DOTALL):
        depth += (token == "{") - (token == "}")
        if token in ("\\quad", "\\qquad") and depth == 0 and "\\begin" not in latex:
            parts.append("")
        else:
            parts[-1] += token
    shown = "\n".join(mathml(part, display=True) for part in parts if part.strip())
    return f'<div class="mage-formula">{shown}</div>\n'


def code_block(source: str, language: str = "python") -> str:
    """``source`` in a ``<pre>``, its words marked for the page's syntax colours."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import TextLexer, get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language, stripall=False)
    except ClassNotFound:
        lexer = TextLexer()
    marked = highlight(source.strip("\n"), lexer, HtmlFormatter(nowrap=True))
    # Names, operators and blanks have the colour of text; their marks would be half of a page's elements.
    marked = re.sub(r'<span class="[nopw]">([^<]*)</span>', r"\1", marked)
    return f'<pre class="mage-code"><code>{marked.rstrip()}</code></pre>\n'


def finish(fragment: str) -> tuple[str, list[Heading]]:
    """Complete the HTML ``fragment`` of a page; returns it with the headings a table of contents needs."""
    soup = BeautifulSoup(fragment, "html.parser")
    for output in soup.select(".mage-output"):
        # What a display brings for JupyterLab; here the page's own style sheet does it, in light and dark.
        for style in output.find_all("style"):
            style.decompose()
        for element in output.select("[style]"):
            if not element.find_parent(["svg", "math"]):
                del element["style"]
    for element in soup.select("[src^='data:'], [href^='data:']"):
        name = "src" if element.has_attr("src") else "href"
        # A line break inside an address is dropped by a browser, and with it the space between two words.
        element[name] = element[name].replace("\r", "").replace("\n", "%0A")
    for table in soup.find_all("table"):
        _finish_table(table)
        _align_numbers(table)
    for frame in soup.select("div.mage-table[role=region]"):
        frame.name = "section"  # which is a region by itself once it has a name
        del frame["role"]
    taken = {element["id"] for element in soup.select("[id]")}
    headings = [_finish_heading(element, taken) for element in soup.find_all(re.compile(r"^h[2-6]$"))]
    return soup.decode(formatter=HTML), headings


def _finish_heading(element: Tag, taken: set[str]) -> Heading:
    """Give a heading an address, and make its text the link to it (no second word for a screen reader to say)."""
    address = element.get("id")
    if not address:
        address = base = slug(element.get_text())
        number = 2
        while address in taken:
            address, number = f"{base}-{number}", number + 1
        element["id"] = address
    taken.add(address)
    inner = element.decode_contents(formatter=HTML)
    if element.select_one("a, [id]"):
        return Heading(level=int(element.name[1]), id=address, html=html.escape(element.get_text(), quote=False))
    link = BeautifulSoup(f'<a class="mage-anchor" href="#{address}">{inner}</a>', "html.parser")
    element.clear()
    element.append(link)
    return Heading(level=int(element.name[1]), id=address, html=inner)


def slug(text: str) -> str:
    """An address made of a heading's words: lower case, ASCII letters and digits, joined by ``-``."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)
    name = "-".join(words) or "section"
    return name if name[0].isalpha() else f"section-{name}"


def _align_numbers(table: Tag) -> None:
    """Mark the columns that hold numbers only, so that they are set right, digit below digit."""
    rows = [row.find_all(["td", "th"], recursive=False) for row in table.select("tr")]
    if any(cell.has_attr("colspan") for row in rows for cell in row) or len({len(row) for row in rows}) != 1:
        return
    for column in zip(*rows, strict=True):
        values = [cell.get_text(strip=True) for cell in column if cell.name == "td"]
        if any(map(NUMBER.fullmatch, values)) and all(NUMBER.fullmatch(value) or value in MISSING for value in values):
            for cell in column:
                cell["class"] = sorted({*cell.get("class", []), "num"})


def _caption_from_text(table: Tag) -> None:
    """Take a caption from the paragraph before: all of ``Table: …``, or a last sentence that ends in a colon."""
    before = table.find_previous_sibling()
    if before is None or before.name != "p":
        return
    text = before.decode_contents(formatter=HTML).strip()
    if CAPTION.match(text):
        rest, words = "", CAPTION.sub("", text)
    elif text.endswith(":"):
        rest, stop, words = text.rpartition(". ")
        rest, words = rest + stop.strip(), words.removesuffix(":")
    else:
        return
    table.insert(0, BeautifulSoup(f"<caption>{words}</caption>", "html.parser"))
    if rest:
        before.clear()
        before.append(BeautifulSoup(rest, "html.parser"))
    else:
        before.decompose()


def _finish_table(table: Tag) -> None:
    """Header scopes and a named, focusable frame for a table written in Markdown."""
    if table.find_parent(class_="mage-table"):
        return
    if not table.caption:
        _caption_from_text(table)
    for head in table.select("thead th"):
        if head.get_text(strip=True):
            head["scope"] = head.get("scope", "col")
        else:
            head.name = "td"  # an empty corner heads nothing
    for cell in table.select("[style]"):
        if "right" in cell["style"]:
            cell["class"] = [*cell.get("class", []), "num"]
        del cell["style"]
    if table.caption:
        caption_id = table.caption.get("id") or f"caption-{slug(table.caption.get_text())[:40]}"
        table.caption["id"] = caption_id
        table.wrap(
            BeautifulSoup(f'<div class="mage-table" role="region" tabindex="0" aria-labelledby="{caption_id}"></div>', "html.parser").div
        )
