"""Make matplotlib's SVG several times smaller without changing what is seen.

A report holds every figure twice as SVG, as a picture and as a download, and most of an SVG is the
outlines of letters and their places. Here an outline keeps its shape to 1/400 of the letter's size, in
relative whole numbers; letters stand once in one place, and a word that occurs again refers to itself.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator

SVG = "{http://www.w3.org/2000/svg}"
HREF = "{http://www.w3.org/1999/xlink}href"

GLYPH_UNITS = 16
"""matplotlib's outline units (6400 an em) in one of ours (400 an em): 0.02 pt in text of 8 pt."""
PER_CENT_OF_EM = 4
"""Our outline units in the unit in which matplotlib places letters, 1/100 em."""

_STEPS = re.compile(r"([MLHVQCZz])([^MLHVQCZz]*)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_TRANSLATE = re.compile(r"translate\((?P<x>[-\d.]+)(?:[ ,]+(?P<y>[-\d.]+))?\)")
_SCALE = re.compile(r"scale\((?P<x>[-\d.]+)[ ,]+(?P<y>[-\d.]+)\)")


def reduced(text: str, title: str) -> str:
    """The SVG document ``text`` made small, with ``title`` as its title."""
    ET.register_namespace("", SVG[1:-1])
    ET.register_namespace("xlink", HREF[1 : HREF.index("}")])
    root = ET.fromstring(text)
    glyphs = _take_glyphs(root)
    words = list(_place_letters(root, glyphs))
    defs = ET.Element(f"{SVG}defs")
    defs.extend(_outline(name, path) for name, path in glyphs.values() if path)
    _share_words(words, defs)
    heading = ET.Element(f"{SVG}title")
    heading.text = title
    root[:0] = [heading, defs]
    _shorten(root)
    _rename_clips(root)
    _rename_marks(root)
    _share_styles(root)
    # SVG 2 takes the plain name, which every browser and Inkscape read since 2020
    text = ET.tostring(root, encoding="unicode").replace(" />", "/>")
    return text.replace("xlink:href=", "href=").replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")


def _take_glyphs(root: ET.Element) -> dict[str, tuple[str, str]]:
    """Remove the outlines of letters from ``root``: their id -> (a short id, the reduced outline or "")."""
    glyphs: dict[str, tuple[str, str]] = {}
    for group in root.iter(f"{SVG}g"):
        for defs in group.findall(f"{SVG}defs"):
            for path in defs.findall(f"{SVG}path"):
                if path.get("transform") == "scale(0.015625)":
                    glyphs[path.get("id")] = (f"g{len(glyphs)}", _relative(path.get("d", "")))
                    defs.remove(path)
            if not len(defs):
                group.remove(defs)
    return glyphs


def _outline(name: str, path: str) -> ET.Element:
    return ET.Element(f"{SVG}path", {"id": name, "d": path})


def _relative(d: str) -> str:
    """An outline in absolute M, L, Q and z as relative whole numbers in our units."""
    at, start, before, out = (0, 0), (0, 0), "", []
    for letter, rest in _STEPS.findall(d):
        if letter in "zZ":
            out.append("z")
            at, before = start, "z"
            continue
        numbers = [round(float(number) / GLYPH_UNITS) for number in _NUMBER.findall(rest)]
        pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
        steps = [(x - at[0], y - at[1]) for x, y in pairs]
        at = pairs[-1]
        start = at if letter == "M" else start
        if letter == "L" and 0 in steps[0]:
            step = f"h{steps[0][0]}" if steps[0][1] == 0 else f"v{steps[0][1]}"
        else:
            step = letter.lower() + " ".join(f"{x} {y}" for x, y in steps)
        # a step of the same kind as the one before it needs no letter
        out.append(f" {step[1:]}" if step[0] == before and before in "qhv" else step)
        before = step[0]
    return "".join(out).replace(" -", "-")


def _place_letters(root: ET.Element, glyphs: dict[str, tuple[str, str]]) -> Iterator[ET.Element]:
    """Make every group of letters refer to the reduced outlines; yields these groups."""
    for group in root.iter(f"{SVG}g"):
        letters = [child for child in group if child.get(HREF, "")[1:] in glyphs]
        if not letters:
            continue
        for letter in letters:
            name, path = glyphs[letter.get(HREF)[1:]]
            shift = _TRANSLATE.match(letter.attrib.pop("transform", "")) or {"x": "0", "y": None}
            letter.set(HREF, f"#{name}")
            for axis in "xy":
                place = round(float(shift[axis] or 0) * PER_CENT_OF_EM)
                if place:
                    letter.set(axis, str(place))
            if not path:  # a blank
                group.remove(letter)
        scale = _SCALE.search(group.get("transform"))
        smaller = f"scale({_short(float(scale['x']) / PER_CENT_OF_EM, 6)} {_short(float(scale['y']) / PER_CENT_OF_EM, 6)})"
        group.set("transform", _SCALE.sub(smaller, group.get("transform")))
        yield group


def _share_words(words: list[ET.Element], defs: ET.Element) -> None:
    """Put every word that occurs more than once into ``defs``, and refer to it from its places."""
    spelled = {id(word): tuple(tuple(sorted(letter.attrib.items())) for letter in word) for word in words}
    often = [key for key, count in Counter(spelled.values()).items() if count > 1 and len(key) > 1]
    names = {key: f"w{place}" for place, key in enumerate(often)}
    for word in words:
        name = names.get(spelled[id(word)])
        if not name:
            continue
        if defs.find(f"{SVG}g[@id='{name}']") is None:
            shared = ET.SubElement(defs, f"{SVG}g", {"id": name})
            shared.extend(list(word))
        word[:] = []
        word.tag = f"{SVG}use"
        word.set(HREF, f"#{name}")


def _shorten(root: ET.Element) -> None:
    """Fewer digits, no blanks between elements, no groups and ids that nothing needs."""
    used = set(re.findall(r"#([\w.-]+)", " ".join(value for element in root.iter() for value in element.attrib.values())))
    for parent in root.iter():
        for metadata in parent.findall(f"{SVG}metadata"):
            parent.remove(metadata)
        _unwrap(parent, used)
    for element in root.iter():
        element.text = element.text if (element.text or "").strip() else None
        element.tail = None
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        for name in ("d", "transform", "x", "y", "width", "height", "viewBox"):
            if name in element.attrib and element.tag != f"{SVG}svg":
                element.set(name, _compact(element.get(name), digits=6 if "scale" in element.get(name) else 2))
        if "style" in element.attrib:
            element.set("style", re.sub(r"\s*([:;])\s*", r"\1", element.get("style")))
        if "translate" in element.get("transform", ""):
            # 1/100 pt, as everywhere else; a scale keeps its digits
            element.set("transform", re.sub(r"translate\([^)]*\)", lambda match: _compact(match[0], 2), element.get("transform")))


def _rename_marks(root: ET.Element) -> None:
    """Short ids for shapes that are drawn in several places."""
    shapes = [path for defs in root.iter(f"{SVG}defs") for path in defs.iter(f"{SVG}path") if len(path.get("id", "")) > 6]
    names = {f"#{shape.get('id')}": f"m{place}" for place, shape in enumerate(shapes)}
    for shape in shapes:
        shape.set("id", names[f"#{shape.get('id')}"])
    for element in root.iter():
        if (shape := element.get(HREF)) in names:
            element.set(HREF, f"#{names[shape]}")


def _rename_clips(root: ET.Element) -> None:
    """Short ids for the areas that marks are cut to."""
    clips = [element for element in root.iter(f"{SVG}clipPath") if element.get("id")]
    names = {f"url(#{clip.get('id')})": f"c{place}" for place, clip in enumerate(clips)}
    for clip in clips:
        clip.set("id", names[f"url(#{clip.get('id')})"])
    for element in root.iter():
        if (area := element.get("clip-path")) in names:
            element.set("clip-path", f"url(#{names[area]})")


def _share_styles(root: ET.Element) -> None:
    """A style that occurs more than once becomes a class of the document."""
    counted = Counter(element.get("style") for element in root.iter() if element.get("style"))
    names = {style: f"s{place}" for place, style in enumerate(style for style, count in counted.items() if count > 1)}
    if not names:
        return
    for element in root.iter():
        if (style := element.get("style")) in names:
            del element.attrib["style"]
            element.set("class", names[style])
    sheet = ET.Element(f"{SVG}style")
    sheet.text = "".join(f".{name}{{{style}}}" for style, name in names.items())
    root.insert(1, sheet)


def _unwrap(parent: ET.Element, used: set[str]) -> None:
    """Replace groups in ``parent`` that change nothing by what they hold; leave out invisible paths."""
    children: list[ET.Element] = []
    for child in parent:
        if child.tag == f"{SVG}g":
            _unwrap(child, used)
        plain = child.tag == f"{SVG}g" and set(child.attrib) <= {"id"} and child.get("id") not in used
        if plain:
            children.extend(child)
        elif not (child.tag == f"{SVG}path" and child.get("style") == "fill: none"):
            children.append(child)
    parent[:] = children


def _compact(value: str, digits: int) -> str:
    value = _NUMBER.sub(lambda match: _short(float(match[0]), digits), value)
    value = re.sub(r"\s+", " ", value).strip()
    if not re.match(r"M[ \d]", value):
        return value
    value = re.sub(r" ?([A-Za-z]) ?(?=[-\d. ]|$)", r"\1", value).replace(" -", "-")
    return _straight(value) if set(re.findall("[A-Za-z]", value)) <= set("MLz") else value


def _straight(d: str) -> str:
    """A path of M, L and z whose level and upright steps say so: they need one number instead of two."""
    out, at = [], None
    for letter, rest in re.findall(r"([MLz])([^MLz]*)", d):
        if letter == "z":
            out.append("z")
            continue
        x, y = _NUMBER.findall(rest)
        level, upright = letter == "L" and at[1] == y, letter == "L" and at[0] == x
        out.append(f"H{x}" if level else f"V{y}" if upright else f"{letter}{x} {y}".replace(" -", "-"))
        at = (x, y)
    return "".join(out)


def _short(number: float, digits: int) -> str:
    text = f"{number:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{number:.0f}"
    return "0" if text == "-0" else text
