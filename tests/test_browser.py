"""The report in a real browser, without a network: nothing is fetched, everybody can read it, on any screen and on paper.

``browser/inspect.mjs`` drives chromium and writes down what it found; what is right is decided here.
"""

import functools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from report_sample import provenance, whole_note

from mage import report

pytestmark = pytest.mark.browser

REPOSITORY = Path(__file__).resolve().parent.parent
BROWSER = REPOSITORY / "tests" / "browser"
# Experiments whose evidence is in the repository: their notes only read it, so the reports are quickly made.
EXPERIMENTS = [
    path.stem
    for path in sorted((REPOSITORY / "params").glob("*.yaml"))
    if (REPOSITORY / "outputs" / "retained" / path.stem / "evidence.json").is_file()
]
PAGES = ["sample", "index", *EXPERIMENTS]
VIEWS = ["360 light", "360 dark", "1280 light", "1280 dark"]


@pytest.fixture(scope="session")
def inspect(tmp_path_factory):
    """inspect(html_file) -> what chromium, axe and html-validate found in it."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    node = shutil.which("node")
    if not node or not (BROWSER / "node_modules" / "axe-core").is_dir():
        pytest.skip("no axe-core (apt-get install chromium npm && npm ci --prefix tests/browser)")
    home = tmp_path_factory.mktemp("browser")

    @functools.cache
    def look(file: Path) -> dict:
        command = [node, BROWSER / "inspect.mjs", chromium, home / f"profile-{file.stem}", file]
        environment = {**os.environ, "HOME": str(home)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)[str(file)]

    return look


@pytest.fixture(scope="session")
def made(tmp_path_factory, start_note):
    """made(page) -> its HTML file: the sample's, or the report of a real note."""
    folder = tmp_path_factory.mktemp("pages")

    @functools.cache
    def make(page: str) -> Path:
        if page in EXPERIMENTS:
            return _run(page)
        file = folder / f"{page}.html"
        file.write_text(report.render(whole_note(), provenance()) if page == "sample" else report.index(_rows()))
        return file

    def _run(experiment: str) -> Path:
        started, tree = start_note(experiment)
        done = started.wait()
        assert done.rc == 0, done.said
        return tree.output(experiment) / "report.html"

    return make


def _rows():
    usual = {"note": "note-004-load-in-flight", "title": "The load in flight", "origin": "retained", "device": "NVIDIA H200"}
    for state, reasons in (("fresh", []), ("stale", ["mage/a_module_with_a_long_name_" + "x" * 60]), ("failed", ["cell 4"])):
        yield report.IndexRow(
            **usual, experiment=state, when="2026-09-11T00:00:00Z", state=state, reasons=reasons, href=f"{state}/report.html"
        )


@pytest.fixture(params=PAGES)
def found(request, inspect, made):
    return inspect(made(request.param))


def test_no_request_leaves_the_page(found):
    assert found["requests"] == []
    assert found["console"] == []


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing(found, view):
    assert found["views"][view]["axe"] == []


def test_html_validate_finds_nothing(found):
    assert found["validity"] == []


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_but_a_table_scrolls_sideways(found, view):
    assert found["views"][view]["sideways"] == []


def test_the_keyboard_reaches_and_opens_every_fold(found):
    keyboard = found["keyboard"]
    assert keyboard["folded"] == [] and keyboard["unreached"] == []
    assert keyboard["invisible"] == [], "focus must be visible"


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_follows_dark_and_light(found, width):
    light, dark = (found["views"][f"{width} {scheme}"] for scheme in ("light", "dark"))
    assert _brightness(light["ground"]) > 200 and _brightness(dark["ground"]) < 60


@pytest.mark.parametrize("view", VIEWS)
def test_figures_are_drawn_on_a_light_panel(found, view):
    images = found["views"][view]["images"]
    assert all(image["drawn"] and _brightness(image["background"]) > 240 for image in images)


def test_paper_shows_the_facts_and_no_controls(found):
    paper = found["print"]
    assert paper["sideways"] == [] and paper["clutter"] == []
    assert paper["folded"] == [], "a fold that holds a table is printed open"
    assert _brightness(paper["ground"]) == 255


def _brightness(colour: str) -> float:
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3


def test_the_inspection_sees_what_is_wrong(inspect, tmp_path):
    """A page with one fault of each kind: a silent inspection would prove nothing."""
    page = tmp_path / "bad.html"
    page.write_text(
        '<!DOCTYPE html><html lang="en"><head><title>Bad</title><style>'
        "html { background: #fff } :focus { outline: none } .wide { width: 2000px; color: #ccc }</style></head>"
        '<body><main><h1>Bad</h1><p class="wide">pale</p><img src="https://example.org/x.png" alt="An image from elsewhere">'
        '<details><summary tabindex="-1">Out of reach</summary><table><tr><td>x</td></tr></table></details>'
        "<a href='#x'>link</a><nav><blink>old</blink></nav></main></body></html>"
    )
    found = inspect(page)
    assert found["requests"] == ["https://example.org/x.png"]
    assert any("element-name" in each or "deprecated" in each for each in found["validity"])
    assert all(any("color-contrast" in each for each in found["views"][view]["axe"]) for view in VIEWS)
    assert any("2000" in each or "wide" in each for each in found["views"]["1280 dark"]["sideways"])
    assert found["keyboard"]["folded"] and found["keyboard"]["invisible"]
    assert not found["views"]["360 light"]["images"][0]["drawn"]
    assert found["print"]["clutter"] and found["print"]["sideways"]
