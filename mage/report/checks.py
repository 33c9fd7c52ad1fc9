"""Is a page fit to be handed on? What would break it offline, or for a reader who cannot see it.

``check`` reads the finished HTML with a parser and returns every problem in words; an empty list
means the page may be published. It trusts nothing that made the page.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterator
from urllib.parse import unquote

from bs4 import BeautifulSoup, Tag

SIZE_LIMIT = 1_500_000
"""Bytes of a page that most mail systems still carry."""
SHORTEST_ALT = 20
"""Characters; less can hardly say what a figure shows."""

# Attributes that make a browser fetch something. `<a href>` and `<area href>` wait for the reader, so they are apart.
FETCHING = ("src", "srcset", "poster", "data", "background", "action", "formaction", "ping", "manifest", "codebase")
EMBEDDING = ("iframe", "object", "embed", "applet", "frame", "base", "portal")
CSS_FETCH = re.compile(
    r"""url\(\s*["']?(?P<url>[^"')]*)|@import\s+["']?(?P<rule>[^"';]*)|image-set\(\s*["'](?P<set>[^"']*)""", re.IGNORECASE
)
NO_DESCRIPTION = "No description has been provided for this image"


def check(page: str) -> list[str]:
    """Problems of the HTML ``page``, each a sentence that names the element and its line; [] = good."""
    soup = BeautifulSoup(page, "html.parser")
    size = len(page.encode())
    problems = [f"the page has {size} bytes, more than {SIZE_LIMIT}: show fewer or simpler figures"] if size > SIZE_LIMIT else []
    for rule in (_scripts, _fetches, _links, _frame, _ids, _headings, _images, _tables, _folds):
        problems.extend(rule(soup))
    return problems


def _at(element: Tag) -> str:
    line = f" (line {element.sourceline})" if element.sourceline else ""
    name = f"#{element['id']}" if element.get("id") else ""
    return f"<{element.name}{name}>{line}"


def _local(url: str) -> bool:
    """Whether a browser finds ``url`` inside the page itself."""
    return not url.strip() or url.strip().startswith(("data:", "#"))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}…"


def _scripts(soup: Tag) -> Iterator[str]:
    for element in soup.find_all("script"):
        yield f"{_at(element)}: a report holds no script"
    for element in soup.find_all(True):
        for name, value in element.attrs.items():
            if name.lower().startswith("on"):
                yield f"{_at(element)}: event handler {name}"
            elif isinstance(value, str) and re.match(r"\s*(javascript|vbscript):", value, re.I):
                yield f"{_at(element)}: {name} runs a script"


def _fetches(soup: Tag) -> Iterator[str]:
    for element in soup.find_all(EMBEDDING):
        yield f"{_at(element)}: a page inside the page, or a base address, is not allowed"
    for element in soup.find_all("meta", attrs={"http-equiv": re.compile("^refresh$", re.I)}):
        yield f"{_at(element)}: the page sends its reader elsewhere"
    for element in soup.find_all(True):
        names = [*FETCHING, *(() if element.name in ("a", "area") else ("href", "xlink:href"))]
        for name in names:
            value = element.get(name)
            # A srcset holds several addresses; a data address in it may hold commas, so it is judged as a whole.
            if isinstance(value, str) and not _local(value):
                yield f"{_at(element)}: {name} fetches {_short(value)}"
        css = element.get("style") or (element.string if element.name == "style" else None)
        yield from (f"{_at(element)}: style fetches {_short(url)}" for url in _css_fetches(css or ""))
        for name in ("src", "href"):
            if re.search(r"[\t\r\n]", element.get(name) or ""):
                yield f"{_at(element)}: {name} is broken over lines, which a browser joins"
            yield from (f"{_at(element)}: the drawing in {name} {problem}" for problem in _drawing(element.get(name)))


def _css_fetches(css: str) -> Iterator[str]:
    for found in CSS_FETCH.finditer(css):
        url = found["url"] or found["rule"] or found["set"] or ""
        if not _local(url) and not url.lower().startswith("url("):
            yield url


def _drawing(url: str | list | None) -> Iterator[str]:
    """What is wrong inside an SVG that a data address carries: it opens on its own when downloaded."""
    if not isinstance(url, str) or not url.startswith("data:image/svg+xml"):
        return
    head, _, body = url.partition(",")
    try:
        text = base64.b64decode(body, validate=True).decode() if head.endswith(";base64") else unquote(body, errors="strict")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        yield "cannot be read"
        return
    svg = BeautifulSoup(text, "html.parser")
    if svg.script or any(name.lower().startswith("on") for element in svg.find_all(True) for name in element.attrs):
        yield "holds a script"
    for element in svg.find_all(["image", "use", "link", "style", "foreignobject"]):
        for name in ("href", "xlink:href"):
            if not _local(element.get(name, "")):
                yield f"fetches {_short(element[name])}"
        yield from (f"fetches {_short(found)}" for found in _css_fetches(element.string or ""))


def _links(soup: Tag) -> Iterator[str]:
    targets = {element["id"] for element in soup.select("[id]")} | {"top"}
    for element in soup.select("a[href^='#']"):
        if element["href"][1:] and unquote(element["href"][1:]) not in targets:
            yield f"{_at(element)}: {element['href']} leads nowhere"


def _frame(soup: Tag) -> Iterator[str]:
    if not (soup.title and soup.title.get_text(strip=True)):
        yield "the page has no title"
    if not (soup.html and soup.html.get("lang")):
        yield "the page does not name its language (html lang)"
    if len(soup.find_all("main")) != 1:
        yield "the page needs exactly one <main>"


def _ids(soup: Tag) -> Iterator[str]:
    counts = Counter(element["id"] for element in soup.select("[id]"))
    yield from (f"id {name!r} is used {count} times" for name, count in counts.items() if count > 1)
    for element in soup.select("[aria-labelledby], [aria-describedby]"):
        for name in ("aria-labelledby", "aria-describedby"):
            missing = [part for part in _words(element.get(name)) if part not in counts]
            yield from (f"{_at(element)}: {name} names no element: {part}" for part in missing)


def _words(value: str | list | None) -> list[str]:
    return value if isinstance(value, list) else (value or "").split()


def _headings(soup: Tag) -> Iterator[str]:
    last = 0
    for element in soup.find_all(re.compile("^h[1-6]$")):
        level = int(element.name[1])
        if level > last + 1:
            yield f"{_at(element)}: heading level {last or 'none'} is followed by {level}: {_short(element.get_text())}"
        if not element.get_text(strip=True):
            yield f"{_at(element)}: an empty heading"
        last = level
    if len(soup.find_all("h1")) != 1:
        yield f"the page needs exactly one first-level heading, it has {len(soup.find_all('h1'))}"


def _images(soup: Tag) -> Iterator[str]:
    titles = {element.get_text(" ", strip=True) for element in soup.find_all(["title", "figcaption", re.compile("^h[1-6]$")])}
    titles |= {element.get_text(" ", strip=True) for element in soup.select("figcaption > *")}
    drawings = [element for element in soup.find_all("svg") if element.get("aria-hidden") != "true"]
    for element in [*soup.find_all("img"), *drawings]:
        alt = element.get("alt") if element.name == "img" else element.get("aria-label")
        if not isinstance(alt, str):
            yield f"{_at(element)}: an image without alt text"
        elif NO_DESCRIPTION in alt:
            yield f"{_at(element)}: an image with a stand-in for alt text"
        elif len(alt.strip()) < SHORTEST_ALT:
            yield f"{_at(element)}: alt text {alt!r} is shorter than {SHORTEST_ALT} characters"
        elif alt.strip() in titles or alt == element.get("title"):
            yield f"{_at(element)}: alt text repeats the title: {_short(alt)!r}"


def _tables(soup: Tag) -> Iterator[str]:
    for table in soup.find_all("table"):
        if not (table.caption and table.caption.get_text(strip=True)):
            yield f"{_at(table)}: a table without a caption (in Markdown: a paragraph 'Table: …' before it)"
        if not table.find("td"):
            yield f"{_at(table)}: a table without rows; one that a script fills stays empty"
        if not table.find("th"):
            yield f"{_at(table)}: a table without header cells"
        for head in table.find_all("th"):
            if not head.get_text(strip=True):
                yield f"{_at(table)}: an empty header cell"
            elif head.get("scope") not in ("col", "row", "colgroup", "rowgroup"):
                yield f"{_at(table)}: header cell {_short(head.get_text())!r} without scope"


def _folds(soup: Tag) -> Iterator[str]:
    for element in soup.find_all("details"):
        if not (element.summary and element.summary.get_text(strip=True)):
            yield f"{_at(element)}: a fold without a summary"
