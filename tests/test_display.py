"""Tables, figures and prose as HTML that a page and a screen reader can take."""

import base64
import hashlib
import io
import re
import xml.etree.ElementTree as ET
from urllib.parse import unquote

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from matplotlib.figure import Figure

from mage.views import display, images, rounding, svg_size
from mage.views.display import FigureView, Prose, TableView


def table(frame: dict, **options) -> TableView:
    return TableView("times", pd.DataFrame(frame), "Times of <things>", **options)


def parsed(view) -> BeautifulSoup:
    return BeautifulSoup(view.html, "html.parser")


def figure(**options) -> FigureView:
    drawing = Figure(figsize=(4.8, 2))
    drawing.subplots().plot([1, 2, 3], label="µ")
    values = TableView("times-values", pd.DataFrame({"x": [1, 2]}), "Plotted values")
    return FigureView("times", drawing, 'A "title" & more', "Three points that rise from one to three", values, **options)


def test_a_table_has_a_caption_and_every_head_its_scope():
    soup = parsed(table({"Name": ["a", "b"], "Time": [1.5, 2.25]}, units={"Time": "µs"}))
    assert soup.caption.text == "Times of <things>"
    assert soup.section["aria-labelledby"] == soup.caption["id"]
    assert [head.text for head in soup.select("thead th[scope=col]")] == ["Name", "Time (µs)"]
    assert [head.text for head in soup.select("tbody th[scope=row]")] == ["a", "b"]
    assert not [head for head in soup.find_all("th") if not head.text.strip()]


def test_numbers_of_a_column_have_one_number_of_decimals_and_round_half_up():
    view = table({"Name": ["a", "b", "c"], "Given": [10.325, 11.415, 2.0], "Own": [1.5, 2.25, 300.0], "Count": [1, None, 3]},
                 formats={"Given": ".2f"})  # fmt: skip
    cells = [[cell.text for cell in row.find_all("td")] for row in parsed(view).select("tbody tr")]
    assert cells == [["10.33", "1.50", "1"], ["11.42", "2.25", "–"], ["2.00", "300.00", "3"]]
    assert all(cell["class"] == ["num"] for cell in parsed(view).select("td"))


def test_what_is_missing_says_why():
    view = table({"Name": ["a", "b"], "Time": [1.0, float("nan")], "Note": [None, "x"]}, missing="not measured")
    marks = parsed(view).find_all("abbr")
    assert [mark["title"] for mark in marks] == ["not measured", "not measured"]
    assert [mark.text for mark in marks] == ["–", "–"]


def test_text_is_text_unless_it_is_markup():
    class Markup(str):
        def __html__(self):
            return str(self)

    soup = parsed(table({"Name": ["<b>bold</b>", Markup("<em>so</em>")], "Text": ["1", "2"]}))
    assert soup.find("b") is None
    assert soup.find("em").text == "so"
    assert "num" not in str(soup)


def test_a_table_without_rows_says_so():
    soup = parsed(TableView("none", pd.DataFrame({"A": [], "B": []}), "Nothing", empty="No operation was chosen."))
    cell = soup.select_one("tbody td")
    assert (cell.text, cell["colspan"]) == ("No operation was chosen.", "2")


def test_a_column_needs_a_name_and_a_unit_a_column():
    with pytest.raises(ValueError, match="no column 'Tiem'"):
        table({"Time": [1]}, units={"Tiem": "µs"})
    with pytest.raises(ValueError, match="name of its own"):
        TableView("twice", pd.DataFrame([[1, 2]], columns=["A", "A"]), "Twice")
    with pytest.raises(ValueError, match="joined by hyphens"):
        TableView("Not an id", pd.DataFrame({"A": [1]}), "Id")


def test_a_table_as_text_has_the_same_numbers_in_line():
    text = str(table({"Name": ["a", "bb"], "Time": [10.325, None]}, formats={"Time": ".2f"}))
    assert text.splitlines() == ["Times of <things>", "Name   Time", "a     10.33", "bb        –"]


def test_a_view_says_who_it_is_in_the_metadata_of_its_output():
    for view, kind, name in ((table({"A": [1]}), "table", "times"), (figure(), "figure", "times"), (Prose("x"), "prose", None)):
        data, metadata = view._repr_mimebundle_()
        assert metadata["mage"] == {"kind": kind, "id": name, "sha256": hashlib.sha256(data["text/html"].encode()).hexdigest()}
        assert data["text/plain"] == repr(view)
        assert len(data["text/plain"]) < 500


def test_a_figure_carries_picture_description_downloads_and_values():
    view = figure(note="Read it so.")
    soup = parsed(view)
    assert soup.figure["id"] == "fig-times"
    assert soup.img["alt"] == "Three points that rise from one to three"
    assert unquote(soup.img["src"].partition(",")[2]).replace("'", '"') == view.svg.decode().replace("'", '"')
    links = {link["download"]: link["href"] for link in soup.find_all("a")}
    assert links["times.svg"] == soup.img["src"]
    assert base64.b64decode(links["times.png"].partition(",")[2]).startswith(b"\x89PNG")
    assert soup.figcaption.text == 'A "title" & more. Read it so.'
    assert soup.details.table["id"] == "table-times-values"
    assert not soup.find_all(["script", "style", "link", "iframe"])


def test_the_picture_is_a_document_of_its_own_with_its_title():
    root = ET.fromstring(unquote(parsed(figure()).img["src"].partition(",")[2]))
    assert root.find("{http://www.w3.org/2000/svg}title").text.replace("'", '"') == 'A "title" & more'


def test_a_description_that_describes_nothing_is_refused():
    for alt in ("too short", 'A "title" & more' * 2):
        with pytest.raises(ValueError, match="alt must say"):
            FigureView("a", Figure(), alt if len(alt) > 20 else "t", alt)


def test_a_figure_with_nothing_to_draw_says_so():
    soup = parsed(FigureView("empty", None, "Nothing", "", notice="No row matches."))
    assert soup.select_one(".mage-notice").text == "No row matches."
    assert soup.img is None


def test_prose_is_markdown_that_keeps_the_marks_of_checked_numbers():
    soup = parsed(Prose('It takes **68.62 µs**, <span class="mage-disagreement">not 69</span>.'))
    assert soup.strong.text == "68.62 µs"
    assert soup.select_one("div.mage-prose p .mage-disagreement").text == "not 69"


def test_show_displays_each_view_with_its_own_metadata(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    views = [table({"A": [1]}), Prose("x")]
    display.show(*views)
    assert shown == views


@pytest.mark.parametrize(
    ("value", "text"), [(343.994, "344"), (8.969, "8.97"), (0.125, "0.125"), (1180.256, "1180"), (9.996, "10.0"), (99.96, "100")]
)
def test_three_significant_digits(value, text):
    assert rounding.significant(value) == text


def test_signs_and_exponents_in_formats():
    assert rounding.formatted(1.605, "+.2f") == "+1.61"
    assert rounding.formatted(-2.5, "+.1f") == "-2.5"
    assert rounding.formatted(1.38e-05, ".2e") == "1.38e-05"


def test_a_small_outline_follows_the_large_one_to_a_four_hundredth_of_a_letter():
    large = (
        "M 1984 4856 \nQ 1566 4138 1362 3434 \nL 1484 3434 \nL 1484 -844 \n"
        "Q 1016 -109 783 600 \nQ 550 1309 550 2009 \nz\nM 7 9 \nL 99 55 \nz\n"
    )
    points = [float(number) / svg_size.GLYPH_UNITS for number in re.findall(r"-?\d+", large)]
    small = svg_size._relative(large)
    at, start, found, kind = (0, 0), (0, 0), [], ""
    tokens = re.findall(r"[a-z]|-?\d+", small)
    while tokens:
        kind = tokens.pop(0) if tokens[0].isalpha() else kind
        if kind == "z":
            at = start
            continue
        count = {"m": 1, "l": 1, "q": 2, "h": 0, "v": 0}[kind]
        if kind in "hv":
            step = int(tokens.pop(0))
            found.append((at[0] + step, at[1]) if kind == "h" else (at[0], at[1] + step))
        else:
            found += [(at[0] + int(tokens.pop(0)), at[1] + int(tokens.pop(0))) for _ in range(count)]
        at = found[-1]
        start = at if kind == "m" else start
    assert [number for pair in found for number in pair] == pytest.approx(points, abs=0.5)
    assert len(small) < len(large) * 0.6


def letters(svg: str) -> list[tuple[float, float]]:
    """Where every letter with an outline stands, in points of the picture; a word may stand in the defs."""
    root = ET.fromstring(svg)

    def link(element: ET.Element) -> str:
        return element.get("href") or element.get("{http://www.w3.org/1999/xlink}href") or ""

    named = {element.get("id"): element for element in root.iter() if element.get("id")}
    found = []
    for group in root.iter():
        transform = re.fullmatch(r"translate\((\S+) (\S+)\) ?scale\((\S+) (\S+)\)", group.get("transform", ""))
        if not transform:
            continue
        x, y, scale, _ = map(float, transform.groups())
        for letter in named[link(group)[1:]] if link(group) else group:
            outline = named.get(link(letter)[1:])
            if outline is not None and outline.get("d"):
                shift = re.match(r"translate\((\S+) ", letter.get("transform", ""))
                found.append((x + scale * float(shift[1] if shift else letter.get("x", 0)), y))
    return found


def marks(svg: str) -> list[tuple]:
    """Every path that is drawn and no letter: its corners, how it is drawn, what it is cut to."""
    root = ET.fromstring(svg)
    classes = dict(re.findall(r"\.(\w+)\{([^}]*)\}", "".join(sheet.text or "" for sheet in root.iter(f"{svg_size.SVG}style"))))
    areas = {
        clip.get("id"): tuple(float(clip[0].get(name)) for name in ("x", "y", "width", "height"))
        for clip in root.iter(f"{svg_size.SVG}clipPath")
    }
    found = []
    for path in root.iter(f"{svg_size.SVG}path"):
        style = path.get("style") or classes.get(path.get("class"), "")
        style = dict(part.split(":") for part in re.sub(r"\s", "", style).strip(";").split(";") if part)
        corners, at = [], (0.0, 0.0)
        for letter, rest in re.findall(r"([MLHV])([^MLHVzZ]*)", path.get("d")):
            numbers = [float(number) for number in re.findall(r"-?[\d.]+", rest)]
            at = {"H": lambda n=numbers, at=at: (n[0], at[1]), "V": lambda n=numbers, at=at: (at[0], n[0])}.get(
                letter, lambda n=numbers: tuple(n)
            )()
            corners.append(at)
        if style and style != {"fill": "none"}:
            area = areas[path.get("clip-path")[5:-1]] if path.get("clip-path") else None
            found.append((corners, style, area))
    return found


def test_a_small_svg_has_every_mark_in_its_place_and_its_colours():
    drawing = Figure(figsize=(3, 2))
    panel = drawing.add_axes((0.1, 0.1, 0.8, 0.8))
    panel.bar([1, 2, 3], [3.0, -1.5, 2.25], color=["#D55E00", "#009E73", "#009E73"])
    panel.plot([0.5, 2.5, 2.5], [1, 1, 2], color="#0072B2", lw=1.3, dashes=(4, 1.5))
    stream = io.StringIO()
    with images.settings():
        drawing.savefig(stream, format="svg")
    expected, kept = marks(stream.getvalue()), marks(svg_size.reduced(stream.getvalue(), "Mage"))
    assert len(kept) == len(expected) > 6
    for (corners, style, area), (small, small_style, small_area) in zip(expected, kept, strict=True):
        assert [at for pair in small for at in pair] == pytest.approx([at for pair in corners for at in pair], abs=0.01)
        assert small_style == style
        assert (small_area is None) == (area is None) and (area is None or small_area == pytest.approx(area, abs=0.01))


def test_a_small_svg_has_every_letter_in_its_place():
    drawing = Figure(figsize=(3, 2))
    for place in (0.1, 0.5, 0.8):
        drawing.text(0.1, place, "Mage and Mage, 68.62 µs", fontsize=8.25)
    stream = io.StringIO()
    with images.settings():
        drawing.savefig(stream, format="svg")
    large, small = stream.getvalue(), svg_size.reduced(stream.getvalue(), "Mage")
    expected, kept = letters(large), letters(small)
    assert len(kept) == len(expected) == 3 * len("MageandMage,68.62µs")
    assert [at for pair in kept for at in pair] == pytest.approx([at for pair in expected for at in pair], abs=0.03)
    assert len(small) < len(large) / 3
