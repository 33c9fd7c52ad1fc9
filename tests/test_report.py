"""The report: it says where its numbers come from, opens offline, and is never made of a note that did not run."""

import base64
import re
import subprocess
import sys
from urllib.parse import quote

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_output
from report_sample import ALT, HASH, code, figure, note, provenance, shown, table, text, whole_note

from mage import report
from mage.errors import NoteFailed


@pytest.fixture(scope="module")
def html():
    return report.render(whole_note(), provenance())


@pytest.fixture(scope="module")
def page(html):
    return BeautifulSoup(html, "html.parser")


def rendered(*cells, **changes):
    return BeautifulSoup(report.render(note(*cells), provenance(**changes)), "html.parser")


def problems(*cells):
    return report.check(report.render(note(*cells), provenance()))


def framed(body, head=""):
    """A page without a fault, but for what ``body`` and ``head`` bring."""
    return f'<!DOCTYPE html><html lang="en"><head><title>A page</title>{head}</head><body><main><h1>Heading</h1>{body}</main></body></html>'


# --- the page as a whole -----------------------------------------------------------------------------------------


def test_every_kind_of_cell_makes_a_page_without_a_problem(html):
    assert report.check(html) == []
    assert len(html.encode()) < 1_500_000


def test_the_same_note_gives_the_same_bytes(html):
    assert report.render(whole_note(), provenance()) == html


def test_another_run_differs_in_its_time_alone(html):
    later = report.render(whole_note(), provenance(started="2027-01-02T03:04:05+00:00", finished="2027-01-02T03:05:00+00:00"))
    assert later != html
    pages = [BeautifulSoup(each, "html.parser") for each in (html, later)]
    times = [each.select_one("#run-time").extract().get_text() for each in pages]
    assert str(pages[0]) == str(pages[1])
    assert times == ["30 November 2026, 15:07:12 UTC, 41 s", "2 January 2027, 03:04:05 UTC, 55 s"]


def test_a_note_measured_here_differs_in_its_time_alone_too():
    runs = [{"started": "2026-11-30T15:07:12Z", "finished": "2026-11-30T15:08:00Z"}, {"started": "2027-01-02T03:04:05Z"}]
    pages = [rendered(origin="here", evidence={}, **run) for run in runs]
    for each in pages:
        each.select_one("#run-time").extract()
    assert str(pages[0]) == str(pages[1])


def test_rendering_leaves_the_notebook_alone():
    notebook = whole_note()
    before = nbformat.writes(notebook)
    report.render(notebook, provenance())
    assert nbformat.writes(notebook) == before


def test_title_and_question_open_the_page(page):
    assert page.title.get_text() == "The load in flight · mage-006 · Mage"
    assert [each.get_text() for each in page.select("h1")] == ["The load in flight"]
    assert page.header.select_one(".mage-lead").get_text(strip=True) == "What is in the way?"
    assert page.html["lang"] == "en"


def test_a_reader_can_skip_to_the_content(page):
    first = page.body.find("a")
    assert first["href"] == "#content" and page.select_one("main#content")


def test_contents_follow_the_headings(page):
    contents = page.select_one("nav[aria-label] details > ol")
    top = [item.find("a").get_text() for item in contents.find_all("li", recursive=False)]
    assert top == ["Where the numbers come from", "Four stages a kernel", "Limits"]
    assert [item.get_text() for item in contents.select("li li a")] == ["The pipeline"]
    for link in contents.select("a"):
        assert page.find(id=link["href"][1:]).get_text() == link.get_text()


def test_two_headings_of_one_name_have_addresses_of_their_own():
    page = rendered(text("## Limits"), text("## Limits"))
    assert [each["id"] for each in page.select("main h2")] == ["limits", "limits-2"]


def test_formulas_are_mathml(page):
    inline, display, *_ = page.select("math")
    assert inline.get_text() == "2MNK" and display["display"] == "block"
    assert display.select_one("mfrac")
    assert "$" not in page.main.get_text()


def test_formulas_set_apart_may_stand_on_lines_of_their_own():
    page = rendered(text("$$a = \\frac{b \\quad c}{d} \\qquad e = 1 f_{2}$$"))
    assert [each.get_text() for each in page.select(".mage-formula > math")] == ["a=bcd", "e=1f2"]


def test_a_latex_output_is_mathml():
    page = rendered(code("x", new_output("display_data", {"text/latex": "$\\frac{a}{b}$", "text/plain": "a/b"})))
    assert page.select_one(".mage-output math mfrac").get_text() == "ab"


def test_a_formula_that_cannot_be_shown_is_no_report():
    with pytest.raises(NoteFailed, match=r"\\nosuch"):
        report.render(note(text("It is $\\nosuch{x}$.")), provenance())


def test_code_is_folded_under_what_it_does(page):
    summaries = [each.get_text() for each in page.select("main details.mage-source > summary")]
    assert summaries[:3] == [
        "Code: the parameters and their defaults",
        "Code: the parameters of this run",
        "Code: Stages of both kernels",
    ]
    assert "Code of step 4" in summaries
    assert not page.select("main details.mage-source[open]")
    assert page.select_one(".mage-code .c1").get_text() == "# the evidence this report reads"


def test_printed_text_is_shown_without_colour_codes(page):
    assert any(each.get_text().endswith("red <b>\n") for each in page.select("pre.mage-plain"))


def test_what_a_library_warned_of_can_be_read(page):
    assert "a library's message" in page.select_one("details:-soup-contains('Messages of this step') pre").get_text()


def test_a_raw_cell_is_not_shown():
    raw = nbformat.v4.new_raw_cell("for another format")
    assert "for another format" not in report.render(note(raw), provenance())


def test_a_hidden_cell_is_not_shown(html):
    assert "never shown" not in html and "left_out" not in html


def test_tables_of_a_note_keep_their_numbers(page):
    rows = [[cell.get_text() for cell in row.select("th, td")] for row in page.select("#table-stages tr")]
    assert rows[1][:3] == ["mage-001", "343.99", "18.64"]
    assert "µs" in rows[0][1]


def test_a_markdown_table_gets_caption_scopes_and_alignment(page):
    table = page.find("caption", string="Words of this note").parent
    assert {head["scope"] for head in table.select("th")} == {"col"}
    assert table.select_one("td.num").get_text() == "74.09"
    frame = table.parent
    assert frame["tabindex"] == "0" and page.find(id=frame["aria-labelledby"]).name == "caption"


def test_a_sentence_that_announces_a_table_is_its_caption():
    page = rendered(text("Two clocks. What they read, in *µs*:\n\n| a |\n|---|\n| 1 |"))
    assert page.main.caption.decode_contents() == "What they read, in <em>µs</em>"
    assert page.main.select_one(".mage-text > p").get_text() == "Two clocks."


def test_a_column_of_numbers_is_set_right():
    page = rendered(text("Table: T\n\n| Name | Time | Mixed |\n|---|---|---|\n| a | 1.50 | 1 |\n| 2 | – | b |"))
    columns = zip(*([cell.get("class") for cell in row.select("th, td")] for row in page.main.select("tr")), strict=True)
    assert list(columns) == [(None,) * 3, (["num"],) * 3, (None,) * 3]


def test_a_markdown_table_without_caption_is_a_problem():
    assert any("without a caption" in each for each in problems(text("## T\n\n| a | b |\n|---|---|\n| 1 | 2 |")))


# --- the box: where the numbers come from ------------------------------------------------------------------------


def facts(page):
    return {row.dt.get_text(): row.dd.get_text(" ", strip=True) for row in page.select(".mage-box > dl > div")}


def test_the_box_names_device_driver_clocks_versions_and_date(page):
    """A time without its hardware says nothing."""
    found = facts(page)
    assert found["Device"] == "NVIDIA GeForce RTX 4090"
    assert found["Driver"] == "581.29"
    assert found["Clocks"] == "not locked"
    assert found["Measured with"] == "torch 2.8.0, triton 3.4.0, cuda 12.8"
    assert found["Measured"] == "11 September 2026"
    assert "python 3.11.2" in found["Versions of this run"]


def test_what_was_not_recorded_is_said():
    evidence = {"mage-006": {"origin": "published", "device": None, "when": None, "sha256": HASH, "path": "x"}}
    found = facts(rendered(evidence=evidence, versions={}, started=""))
    assert {found[name] for name in ("Device", "Driver", "Clocks", "Measured", "Time of this run")} == {"not recorded"}


@pytest.mark.parametrize(
    "origin, sentence",
    [
        ("published", "None was measured again here."),
        ("retained", "measured by this project on NVIDIA GeForce RTX 4090 and kept as evidence"),
        ("here", "measured on this machine: NVIDIA GeForce RTX 4090."),
    ],
)
def test_origin_stands_in_the_first_lines(origin, sentence):
    page = rendered(origin=origin)
    assert page.header.select_one(f".mage-kicker .origin-{origin}").get_text() == origin
    assert sentence in page.select_one(".mage-sentence").get_text()


def test_numbers_taken_elsewhere_are_not_put_down_to_this_machine(page):
    said = {name: fact for name, fact in facts(page).items() if "Two cores of this machine" in fact}
    assert list(said) == ["Machine of this run, not of the numbers"]
    assert "this machine" not in page.select_one(".mage-sentence").get_text()


def test_numbers_taken_here_name_this_machine():
    found = facts(rendered(origin="here", evidence={}))
    assert found["Device"] == "Two cores of this machine"
    assert "Machine of this run, not of the numbers" not in found


def test_evidence_is_named_by_hash_short_and_whole(page):
    assert HASH[:12] in facts(page)["Evidence"] and HASH not in facts(page)["Evidence"]
    assert HASH in page.select_one("details:-soup-contains('Hashes') dd code").get_text()


def test_the_command_can_be_copied(page):
    assert page.select_one("pre.mage-command").get_text() == "make note-004 EXPERIMENT=mage-006"


def test_parameters_that_differ_from_the_note_are_marked(page):
    rows = {row.th.get_text(): row for row in page.select("#table-parameters tbody tr")}
    assert rows["experiment"].select_one(".mage-mark").get_text() == "changed"
    assert [cell.get_text() for cell in rows["experiment"].select("td")][1:] == ["mage-001", "the evidence this report reads"]
    assert not rows["operations"].select(".mage-mark")
    assert rows["operations"].td.get_text() == "[matmul, layernorm]"


def test_text_from_outside_stays_text():
    page = BeautifulSoup(
        report.render(note(title="A <b>"), provenance(experiment="<b>", command="make 'a<b>'", params={"x": "<script>alert(1)</script>"})),
        "html.parser",
    )
    assert not page.select("script, b")
    assert page.h1.get_text() == "A <b>" and page.title.get_text() == "A <b> · <b> · Mage"
    assert page.select_one("pre.mage-command").get_text() == "make 'a<b>'"


# --- a note that did not run is no report ------------------------------------------------------------------------

FAILED = new_output("error", ename="ClaimError", evalue="343.99 is not 344.99", traceback=["…"])


def test_a_failed_note_is_not_rendered():
    with pytest.raises(NoteFailed, match=r"ClaimError: 343\.99 is not 344\.99"):
        report.render(note(code("q()", FAILED)), provenance())


def test_a_failure_in_a_hidden_cell_is_a_failure():
    with pytest.raises(NoteFailed, match="ClaimError"):
        report.render(note(code("q()", FAILED, tags=["mage-hidden"])), provenance())


def test_a_cell_that_never_ran_is_not_rendered():
    with pytest.raises(NoteFailed, match=r"cell 2 \(later\) was never executed"):
        report.render(note(code("x = 1", name="later", count=None)), provenance())


def test_an_empty_cell_need_not_run():
    assert report.check(report.render(note(code("  \n", count=None)), provenance())) == []


@pytest.mark.parametrize("kind", ["application/javascript", "application/vnd.jupyter.widget-view+json"])
def test_output_that_needs_a_script_is_refused(kind):
    with pytest.raises(NoteFailed, match=re.escape(kind)):
        report.render(note(code("x", new_output("display_data", {kind: "alert(1)"}))), provenance())


def test_a_widget_that_is_also_text_is_shown_as_text():
    output = new_output("display_data", {"application/javascript": "alert(1)", "text/plain": "a bar"})
    html = report.render(note(code("x", output)), provenance())
    assert "a bar" in html and "alert(1)" not in html


# --- check: what makes a page unfit ------------------------------------------------------------------------------


def test_a_page_without_a_fault_has_no_problem():
    assert report.check(framed("<p>Good.</p>")) == []


OUTSIDE = "https://example.org/x"
SVG = f'<svg xmlns="http://www.w3.org/2000/svg"><image href="{OUTSIDE}"/></svg>'
FETCHES = [
    f'<img src="{OUTSIDE}" alt="{ALT}">',
    f'<img srcset="{OUTSIDE} 2x" alt="{ALT}">',
    f'<img src="figure.png" alt="{ALT}">',
    f'<img src="//example.org/x" alt="{ALT}">',
    f'<video poster="{OUTSIDE}"></video>',
    f'<link rel="stylesheet" href="{OUTSIDE}">',
    f'<iframe src="{OUTSIDE}"></iframe>',
    f'<object data="{OUTSIDE}"></object>',
    '<iframe srcdoc="x"></iframe>',
    f'<svg aria-hidden="true"><use xlink:href="{OUTSIDE}"></use></svg>',
    f'<p style="background: url({OUTSIDE})">x</p>',
    f"<style>@import '{OUTSIDE}';</style>",
    f'<style>p {{ background: URL("{OUTSIDE}") }}</style>',
    f'<form action="{OUTSIDE}"></form>',
    f'<a href="#top" ping="{OUTSIDE}">x</a>',
    f'<meta http-equiv="refresh" content="0; url={OUTSIDE}">',
    f'<base href="{OUTSIDE}">',
    f'<img alt="{ALT}" src="data:image/svg+xml,{quote(SVG)}">',
    f'<img alt="{ALT}" src="data:image/svg+xml;base64,{base64.b64encode(SVG.encode()).decode()}">',
    f'<a download="f.svg" href="data:image/svg+xml,{quote(SVG)}">SVG</a>',
]


@pytest.mark.parametrize("body", FETCHES)
def test_whatever_is_fetched_is_a_problem(body):
    """A report that needs the internet is no report (a single file, opened offline)."""
    assert report.check(framed(body)) != []


def test_a_link_that_waits_for_its_reader_is_none():
    assert report.check(framed(f'<p><a href="{OUTSIDE}">source</a> <a href="mailto:a@example.org">mail</a></p>')) == []


@pytest.mark.parametrize(
    "body",
    [
        "<script>alert(1)</script>",
        '<script type="application/json">{}</script>',
        '<p onclick="alert(1)">x</p>',
        '<p ONLOAD="x">x</p>',
        '<a href="javascript:alert(1)">x</a>',
        f'<img alt="{ALT}" src="data:image/svg+xml,{quote("<svg><script>1</script></svg>")}">',
    ],
)
def test_no_script_whatever_its_shape(body):
    assert report.check(framed(body)) != []


def test_a_script_in_an_output_is_a_problem_of_the_page():
    assert any("no script" in each for each in problems(code("x", shown("<p>hello</p><script>alert(1)</script>"))))


def test_a_page_forbids_scripts_and_requests_by_itself(page):
    policy = page.select_one("meta[http-equiv='Content-Security-Policy']")["content"]
    assert "default-src 'none'" in policy and "script-src" not in policy


@pytest.mark.parametrize(
    "image, problem",
    [
        ('<img src="data:,">', "without alt text"),
        ('<img src="data:," alt="">', "shorter than"),
        ('<img src="data:," alt="Kernel time, µs">', "shorter than"),
        ('<img src="data:," alt="No description has been provided for this image">', "stand-in"),
        (f'<figure><img src="data:," alt="{ALT}"><figcaption>{ALT}</figcaption></figure>', "repeats the title"),
        (f'<figure><img src="data:," alt="{ALT}"><figcaption><b>{ALT}</b> more</figcaption></figure>', "repeats the title"),
        (f'<figure><img src="data:," alt="{ALT}"><figcaption><b>{ALT[:-1]}.</b> x</figcaption></figure>', "repeats the title"),
        (f'<img src="data:," alt="{ALT}" title="{ALT}">', "repeats the title"),
        ("<svg><path></path></svg>", "without alt text"),
    ],
)
def test_an_image_without_a_description_is_a_problem(image, problem):
    assert any(problem in each for each in report.check(framed(image)))


def test_a_drawing_keeps_its_line_breaks():
    drawing = f"<img alt=\"{ALT}\" src=\"data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg'\nwidth='9'></svg>\">"
    page = rendered(code("x", shown(drawing)))
    assert "svg'%0Awidth" in page.main.img["src"]


def test_a_picture_of_a_library_needs_its_alt_text_too():
    pixel = new_output("display_data", {"image/png": "aGVsbG8=\n", "text/plain": "<Figure>"})
    assert any("without alt text" in each for each in problems(code("plt.show()", pixel)))
    pixel.metadata = nbformat.from_dict({"image/png": {"alt": ALT}})
    assert problems(code("plt.show()", pixel)) == []


HEAD = '<thead><tr><th scope="col">A</th></tr></thead>'


@pytest.mark.parametrize(
    "body, problem",
    [
        (f"<table>{HEAD}<tr><td>1</td></tr></table>", "without a caption"),
        (f"<table><caption> </caption>{HEAD}<tr><td>1</td></tr></table>", "without a caption"),
        ("<table><caption>C</caption><tr><th>A</th></tr><tr><td>1</td></tr></table>", "without scope"),
        ("<table><caption>C</caption><tr><th scope='col'></th></tr><tr><td>1</td></tr></table>", "empty header cell"),
        ("<table><caption>C</caption><tr><td>1</td></tr></table>", "without header cells"),
        (f"<table><caption>C</caption>{HEAD}<tbody></tbody></table>", "without rows"),
    ],
)
def test_a_table_that_cannot_be_read_aloud_is_a_problem(body, problem):
    assert any(problem in each for each in report.check(framed(body)))


def test_a_plain_data_frame_is_a_problem_and_a_table_view_is_none():
    frame = table().frame
    found = problems(code("frame", shown(frame.to_html())))
    assert any("without a caption" in each for each in found)
    assert problems(code("view", shown(table()))) == []


def test_an_interactive_table_is_a_problem():
    """Such a table is a header and a script that would fill it."""
    output = shown(f"<table><caption>Times</caption>{HEAD}</table><script>fill()</script>")
    assert {"no script", "without rows"} <= {
        word for each in problems(code("show(frame)", output)) for word in ("no script", "without rows") if word in each
    }


@pytest.mark.parametrize(
    "page, problem",
    [
        (framed('<p id="a">x</p><p id="a">y</p>'), "'a' is used 2 times"),
        (framed("<h3>Deep</h3>"), "heading level 1 is followed by 3"),
        (framed("<h2> </h2>"), "empty heading"),
        (framed("<h1>Second</h1>"), "exactly one first-level heading"),
        (framed("<a href='#gone'>x</a>"), "leads nowhere"),
        (framed("<section aria-labelledby='gone'>x</section>"), "names no element"),
        (framed(f"<img alt='{ALT}' src='data:image/svg+xml,<svg\nwidth=\"1\"></svg>'>"), "broken over lines"),
        (framed("<details><p>x</p></details>"), "fold without a summary"),
        (framed("x").replace(' lang="en"', ""), "language"),
        (framed("x").replace("A page", ""), "no title"),
        (framed("x").replace("main>", "div>"), "<main>"),
        (framed("x" * 1_500_001), "more than 1500000"),
    ],
)
def test_what_else_makes_a_page_unfit(page, problem):
    assert any(problem in each for each in report.check(page))


def test_skipped_heading_levels_of_a_note_are_found():
    assert any("heading level 2 is followed by 4" in each for each in problems(text("## Two\n\n#### Four")))


def test_a_figure_shown_twice_is_found():
    again = [each for each in problems(code("a", shown(figure())), code("b", shown(figure()))) if "is used 2 times" in each]
    assert again


# --- the list of reports -----------------------------------------------------------------------------------------


def row(**changes):
    usual = {"note": "note-004-load-in-flight", "title": "The load in flight", "experiment": "mage-006", "state": "fresh"}
    usual |= {"origin": "published", "device": "NVIDIA GeForce RTX 4090", "when": "2026-09-11T00:40:17Z"}
    return report.IndexRow(**{**usual, "href": "mage-006/report.html", **changes})


def listed(*rows):
    html = report.index(rows)
    assert report.check(html) == []
    return BeautifulSoup(html, "html.parser")


def test_the_index_links_each_report_under_its_note():
    other = row(note="note-004-what-the-compiler-chose", title="What the compiler chose", experiment="mage-004")
    page = listed(other, row(), row(experiment="h200-006", origin="retained", href="h200-006/report.html"))
    assert [each.get_text() for each in page.select("h2")] == ["The load in flight", "What the compiler chose"]
    assert [each["href"] for each in page.select(".mage-card a")][:2] == ["h200-006/report.html", "mage-006/report.html"]
    card = page.select(".mage-card")[1].get_text(" ", strip=True)
    for said in ("mage-006", "published", "NVIDIA GeForce RTX 4090", "11 September 2026", "fresh"):
        assert said in card


def test_the_index_says_what_changed_and_what_failed():
    stale = row(state="stale", reasons=["mage/stats/__init__.py changed", "kernels/cuda/matmul.cu is gone"])
    failed = row(experiment="a", state="failed", reasons=["cell 4 raised ClaimError: <b>343.99"])
    never = row(experiment="b", state="failed", href=None, when="", origin="")
    page = listed(stale, failed, never)
    cards = {card.h3.get_text().partition(":")[0]: card for card in page.select(".mage-card")}
    assert [each.get_text() for each in cards["mage-006"].select("li")] == list(stale.reasons)
    assert "last good report" in cards["a"].get_text() and "<b>343.99" in cards["a"].get_text()
    assert "no earlier report" in cards["b"].get_text() and not cards["b"].select("a")


def test_an_empty_index_says_what_to_do():
    assert "make notes" in listed().main.get_text()


def test_importing_the_report_costs_no_papermill_and_no_torch():
    seen = "import sys, mage.report; sys.exit(bool({'papermill', 'torch', 'nbconvert'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", seen]).returncode == 0
