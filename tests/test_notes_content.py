"""The two field notes 004 say what was published, and every number of it stands in the evidence and in the report.

The values below were typed in from the published texts. Each is compared with the evidence file as JSON and with the
page that `python -m mage run` makes of it: decimally, half up, within one last printed digit.
"""

import ast
import json
import re
import shutil
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise

import pytest
from bs4 import BeautifulSoup

LOAD, CHOSE = "note-004-load-in-flight", "note-004-what-the-compiler-chose"
NAMES = {
    "pytorch": "PyTorch", "triton": "Triton", "rust-oxide": "cuda-oxide", "rust-cutile": "cuTile Rust",
    "matmul": "Matmul", "gelu": "Bias + GELU", "layernorm": "LayerNorm", "triangle": "Triangle", "neighbor": "Neighbor",
}  # fmt: skip


# --- the published numbers ---------------------------------------------------------------------------------------

STAGES = """
matmul    tiled     mage-001 343.99 326.72   64*64 16*16  37  2048
matmul    registers mage-002 141.70 144.41   256   256    55 16384
matmul    quads     mage-003  80.00  82.60   256   256    56 33792
matmul    pipeline  mage-006  68.62  74.09   256   256    96 33792
layernorm block     mage-001  18.64  19.47   4096  256    27  1024
layernorm warp      mage-003  11.03  15.43   512   256    40     0
layernorm pair      mage-003  10.05  12.91   1024  256    39    64
layernorm row       mage-006   8.97  12.26   4096  128    40    32
"""
# By column: PyTorch, Triton, hand-written.
KERNEL_006 = """
matmul     66.2 100.8 68.6
gelu       18.3   7.7 11.2
layernorm  11.2   8.3  9.0
triangle   28.6 100.5 81.6
neighbor  120.9   6.1 10.3
"""
SPAN_006 = """
matmul     61.0  93.3 74.1
gelu       35.6  28.4 14.0
layernorm  26.4  27.0 12.3
triangle   75.0 100.1 86.9
neighbor  124.1  27.6 15.9
"""
LAUNCHES_006 = """
matmul    1 1 1
gelu      2 1 1
layernorm 1 1 1
triangle  3 1 1
neighbor  4 1 1
"""
# Hand-written: kernel and span in mage-006, kernel in mage-001, kernel in mage-003.
OXIDE = """
matmul    68.6 74.1 344.0 80.0
gelu      11.2 14.0  11.2 11.0
layernorm  9.0 12.3  18.6 10.1
triangle  81.6 86.9  81.2 80.1
neighbor  10.3 15.9  10.3 10.3
"""
# Metric, value or range, value it is compared with.
ATTEMPTS = """
kernel_us  8.99       8.09
kernel_us  9.11       8.85
span_us   13.3-13.7  12.67
span_us   14.3       12.67
span_us   13.88      12.67
"""
# PyTorch, Triton, tile compiler, hand-written (of mage-003).
KERNEL_004 = """
matmul    56.04  83.06 131.56 80.00
gelu      15.88   7.73   8.19 11.0
layernorm 11.42   8.15  10.76 10.05
triangle  28.64 102.19 116.08 80.1
neighbor  67.32   7.97  35.37 10.3
"""
# Awaited, queued in tens, kernel only.
MODES_004 = """
matmul    150.53 127.07 131.56
gelu       25.76   8.50   8.19
layernorm  30.62  10.64  10.76
triangle  136.19 121.80 116.08
neighbor   49.28  33.28  35.37
"""
SWEEP = {"16x16x8": "738", "128x64x8": "201", "128x128x8": "469"}
CROSS_CHECK = {"128x64x8": "189.44", "32x128x32": "137.28"}

# What the prose of the published texts quotes: it must stand in the prose of the reports. With a unit where it has one.
PROSE = {
    LOAD: """
        343.99 µs | 326.72 | 68.35 | 68.60 | 68.68 | 68.62 µs | 44.03–66.22 µs | 71.94–90.09 µs | 100.80 µs | 7.99–8.19 µs
        8.32 µs | 8.85 µs | 8.97 µs | 11.09 µs | 11.03 µs | 1.6 % | 1.9 % | 0.0 % | 67.33 | 120.93 µs | 7–10 % | 10.97
        11.15 µs | 80.07 | 81.60 µs | 10.33 | 80.00 µs | 10.05 µs | 18.64 µs | 141.70 | 144.41 | 82.60 | 74.09 µs | 19.47
        15.43 | 12.91 | 12.26 µs | 7.99 | 8.06 | 8.07 | 8.09 | 8.10 | 71.94 | 79.84 | 86.95 | 90.09 | 68.35–68.68 µs
        8.85–8.97 µs | 33792 bytes | 56 | 96 | 40 | 32 bytes | 256 | 4096 | 128 | 68 | 300 | 100 | 15 | 69 µs | 0.0 | 1e-7 | 1e-4
        8.99 µs | 9.11 µs | 13.3–13.7 µs | 14.3 µs | 13.88 µs | 12.67 µs
    """,
    CHOSE: """
        8.19 | 11.0 µs | 10.76 | 10.05 µs | 131.56 | 80.00 µs | 116.08 | 80.1 µs | 35.37 | 10.3 µs | 1.6× | 14–23 µs | 2–3 µs
        29.97 µs | 8.19 µs | 7.77 µs | 738 µs | 201 µs | 469 µs | 2.3× | 36 | 137.28 | 189.44 µs | 1.5e-5 | 0.125 | 0.5 | 2 | 768
        1024 | wins 1, draws 1, loses 3 | 3–20 | 12
    """,
}
DISAGREE = {
    LOAD: [
        "published: 11.03 µs; the evidence gives 11.09 µs",
        "published: six values from their own stage's experiment; the data: seven",
        "published: 7–10 %; the evidence gives 6.4–12.3 %",
        "published: 8.19 µs; not among the 6 values listed",
        "published: 12.67 µs; the evidence gives 12.69 µs",
        "published: 0.0 %; the evidence gives 0.09 %",
        "published: Triton's loads are scalar; the data: 128 bits wide",
    ],
    CHOSE: [
        "published: means of 100 launches; the data: medians of 100 samples",
        "published: 7.77 µs; the evidence gives 8.73 µs",
        "published: a third; the evidence gives 25 %",
        "published: 1.5e-5; the evidence gives 1.38e-5",
        "published: the same multiply-adds; the data: twice the FP32 instructions",
    ],
}


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def agree(value, printed: str) -> bool:
    """Half up to the digits of ``printed``, at most one last digit apart."""
    step = Decimal(1).scaleb(Decimal(printed).as_tuple().exponent)
    return abs(Decimal(str(value)).quantize(step, ROUND_HALF_UP) - Decimal(printed)) <= step


# --- runs, once, side by side ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory, repository, make_tree, start_mage, start_note):
    """Every run that the tests below look at: by name its result, its tree and its process's last words."""

    def tree(name: str):
        made = make_tree(tmp_path_factory.mktemp(name))
        for folder in ("notebooks", "params", "kernels", "outputs/retained"):
            shutil.copytree(repository / folder, made.root / folder, dirs_exist_ok=True)
        for params in (made.root / "params").glob("*.yaml"):
            if not params.stem.startswith("mage-"):
                params.unlink()  # what is measured here depends on the machine
        return made

    second, other, changed = (tree(name) for name in ("second", "other", "changed"))
    file = changed.root / "outputs/retained/mage-006/evidence.json"
    text = file.read_text()
    assert text.count('"kernel_us": 343.99,') == 1
    file.write_text(text.replace('"kernel_us": 343.99,', '"kernel_us": 344.99,'))
    chosen = ["-p", "operations=[layernorm, gelu]", "-p", "statistic=fastest-round"]
    load = [*chosen, "-p", "experiment=mage-003", "-p", "implementations=triton"]
    chose = [*chosen, "-p", "experiment=mage-001", "-p", "implementations=[triton, rust-cutile]"]
    started = {
        **{name: start_note(name) for name in ("mage-006", "mage-004", "h200-004")},
        "second": (start_mage("run", "note-004", root=second.root), second),
        "changed": (start_mage("run", LOAD, root=changed.root), changed),
        LOAD: (start_mage("run", LOAD, *load, root=other.root), other),
        CHOSE: (start_mage("run", CHOSE, *chose, root=other.root), other),
    }
    yield {name: (process.wait(), made) for name, (process, made) in started.items()}


@pytest.fixture(scope="module")
def pages(runs):
    """The two reports of a plain run, parsed."""
    found = {}
    for stem, experiment in ((LOAD, "mage-006"), (CHOSE, "mage-004")):
        result, tree = runs[experiment]
        assert result.rc == 0, result.said
        found[stem] = page(tree, experiment)
    return found


def page(tree, experiment: str) -> BeautifulSoup:
    return BeautifulSoup((tree.output(experiment) / "report.html").read_text(), "html.parser")


@pytest.fixture(scope="module")
def evidence(repository):
    return {path.parent.name: json.loads(path.read_text()) for path in (repository / "outputs/retained").glob("*/evidence.json")}


def means(evidence, experiment: str, operation: str, implementation: str) -> dict:
    (row,) = [row for row in evidence[experiment]["results"] if (row["operation"], row["implementation"]) == (operation, implementation)]
    return row["means"] | {"launches": row["launches"]}


def plain(text: str) -> str:
    return " ".join(text.replace("\u202f", " ").replace("\u00a0", " ").split())


def table(soup: BeautifulSoup, id: str) -> list[dict[str, str]]:
    """Rows of a table by the heads of its columns, units left out."""
    found = soup.select_one(f"#table-{id}")
    assert found is not None, id
    heads = [re.sub(r" \([^()]*\)$", "", plain(th.get_text())) for th in found.select("thead th")]
    return [
        dict(zip(heads, (plain(cell.get_text()) for cell in row.find_all(["th", "td"])), strict=True)) for row in found.select("tbody tr")
    ]


def cell(soup, id: str, column: str, **heads: str) -> str:
    """The one cell of ``column`` in the row whose cells are ``heads``."""
    rows = [row for row in table(soup, id) if all(row[name.replace("_", " ")] == value for name, value in heads.items())]
    assert len(rows) == 1, (id, heads, rows)
    return rows[0][column]


# --- tables ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", lines(STAGES), ids=lambda row: row[1])
def test_every_stage_stands_in_evidence_and_report(row, pages, evidence):
    operation, stage, source, kernel, span, grid, block, registers, shared = row
    (record,) = [one for one in evidence["mage-006"]["stages"] if (one["operation"], one["stage"]) == (operation, stage)]
    assert agree(record["kernel_us"], kernel) and agree(record["span_us"], span)
    assert record["read_from"] == source
    assert (record["registers"], record["shared_bytes"]) == (int(registers), int(shared))
    assert "*".join(str(side) for side in record["grid"] if side > 1) == grid
    assert "*".join(str(side) for side in record["block"] if side > 1) == block
    held = [one for one in evidence[source]["stages"] if (one["operation"], one["stage"]) == (operation, stage)]
    assert agree(held[0]["kernel_us"], kernel)
    where = {"Operation": NAMES[operation], "Stage": stage}
    assert agree(cell(pages[LOAD], "stages", "Kernel time", **where), kernel)
    assert cell(pages[LOAD], "stages", "Read from", **where) == source
    assert agree(cell(pages[LOAD], "stage-spans", "Span", **where), span)


def test_the_factor_between_stages_is_recomputed(pages):
    times = [Decimal(row[3]) for row in lines(STAGES) if row[0] == "matmul"]
    shown = [row["Factor"] for row in table(pages[LOAD], "stages") if row["Operation"] == "Matmul"]
    assert shown[0] == "–"
    assert [Decimal(text) for text in shown[1:]] == [
        (before / after).quantize(Decimal("0.01"), ROUND_HALF_UP) for before, after in pairwise(times)
    ]


@pytest.mark.parametrize(
    ("printed", "field", "column", "figure"),
    [
        (KERNEL_006, "kernel_us", "Kernel time", "kernel-time-values"),
        (SPAN_006, "span_us", "Span", "spans-values"),
        (LAUNCHES_006, "launches", "Launches", "launches-values"),
    ],
    ids=["kernel", "span", "launches"],
)
def test_every_result_of_mage_006_stands_in_evidence_table_and_figure(printed, field, column, figure, pages, evidence):
    for operation, *values in lines(printed):
        for implementation, value in zip(("pytorch", "triton", "rust-oxide"), values, strict=True):
            held = means(evidence, "mage-006", operation, implementation)[field]
            shown = cell(pages[LOAD], "results", column, Operation=NAMES[operation], Implementation=NAMES[implementation])
            drawn = [row for row in table(pages[LOAD], figure) if row["Implementation"] == NAMES[implementation]]
            number = {"Kernel time", "Span", "Launches per call"} & set(drawn[0])
            plotted = [row[number.copy().pop()] for row in drawn if row["Operation"].startswith(NAMES[operation][:3])]
            exact = field == "launches"
            for found in (held, shown, *plotted):
                assert str(found) == value if exact else agree(found, value), (operation, implementation, found, value)
            assert len(plotted) == 1


@pytest.mark.parametrize("row", lines(OXIDE), ids=lambda row: row[0])
def test_the_hand_written_kernels_over_three_experiments(row, pages, evidence):
    operation, kernel, span, first, third = row
    for experiment, field, value in (
        ("mage-006", "kernel_us", kernel), ("mage-006", "span_us", span),
        ("mage-001", "kernel_us", first), ("mage-003", "kernel_us", third),
    ):  # fmt: skip
        assert agree(means(evidence, experiment, operation, "rust-oxide")[field], value)
    before = [one for one in table(pages[LOAD], "published-kernel-time-of-cuda-oxide-before")]
    texts = [one for one in before if one["Row"].startswith(NAMES[operation][:3])]
    assert [(one["mage-001"], one["mage-003"]) for one in texts] == [(first, third)]


def test_resource_requests_of_the_rewritten_kernels(pages):
    for operation, stage, _, _, _, grid, block, registers, shared in lines(STAGES):
        if stage in ("quads", "pipeline", "pair", "row"):
            (row,) = [one for one in table(pages[LOAD], "rewrites") if (one["Operation"], one["Stage"]) == (NAMES[operation], stage)]
            assert [row["Blocks"], row["Threads"], row["Registers"], row["Shared memory"]] == [grid, block, registers, shared]


def test_every_attempt_with_its_metric(pages, evidence):
    shown = table(pages[LOAD], "attempts")
    assert len(shown) == len(lines(ATTEMPTS))
    for row, record, (metric, value, reference) in zip(shown, evidence["mage-006"]["attempts"], lines(ATTEMPTS), strict=True):
        low, _, high = value.partition("-")
        assert record["metric"] == metric and row["Metric"] == {"kernel_us": "kernel time", "span_us": "span"}[metric]
        assert agree(row["Value"], low) and (agree(row["Up to"], high) if high else row["Up to"] == "–")
        assert record["value_us"] == ([float(low), float(high)] if high else float(low))
        assert agree(row["Its value"], reference)


def test_drift_is_recomputed_beside_the_published_value(pages, evidence):
    for operation, published in (("gelu", "1.6"), ("triangle", "1.9"), ("neighbor", "0.0")):
        before, after = (Decimal(str(means(evidence, name, operation, "rust-oxide")["kernel_us"])) for name in ("mage-003", "mage-006"))
        change = ((after / before - 1) * 100).quantize(Decimal("0.01"), ROUND_HALF_UP)
        where = {"Operation": NAMES[operation], "Implementation": "cuda-oxide"}
        assert Decimal(cell(pages[LOAD], "drift", "Change", **where)) == change
        assert Decimal(cell(pages[LOAD], "drift", "Published", **where)) == Decimal(published)


@pytest.mark.parametrize("row", lines(KERNEL_004), ids=lambda row: row[0])
def test_kernel_times_of_four_implementations(row, pages, evidence):
    operation, *values = row
    for implementation, value in zip(("pytorch", "triton", "rust-cutile", "rust-oxide"), values, strict=True):
        experiment = "mage-003" if implementation == "rust-oxide" else "mage-004"
        column = NAMES[implementation] + (", mage-003" if experiment == "mage-003" else "")
        assert agree(means(evidence, experiment, operation, implementation)["kernel_us"], value)
        assert agree(cell(pages[CHOSE], "kernel-times", column, Operation=NAMES[operation]), value)


def test_the_claim_counts_one_win_one_draw_and_three_losses(pages):
    words = [row["Published as"] for row in table(pages[CHOSE], "claim")]
    assert [words.count(word) for word in ("win", "draw", "loss")] == [1, 1, 3]
    assert "no verdict" in pages[CHOSE].select_one("#table-claim").find_parent().get_text()


@pytest.mark.parametrize("row", lines(MODES_004), ids=lambda row: row[0])
def test_launch_modes_of_five_operations(row, pages, evidence):
    operation, *values = row
    (record,) = [
        one
        for one in evidence["mage-004"]["launch_modes"]
        if (one["table"], one["configuration"], one["operation"]) == ("awaited-queued", "32x128x32", operation)
    ]
    for field, column, value in zip(("awaited_us", "queued_10_us", "kernel_us"), ("Awaited", "In tens", "Kernel"), values, strict=True):
        assert agree(record[field], value)
        assert agree(cell(pages[CHOSE], "launch-modes", column, Operation=NAMES[operation], Matmul_tile="32 × 128 × 32"), value)


def test_tile_shapes_of_the_sweep_the_search_and_its_check(pages, evidence):
    sweep = {row["tile"]: row["span_us"] for row in evidence["mage-004"]["tile_sweep"]["rows"]}
    assert len(sweep) == len(table(pages[CHOSE], "tile-sweep")) == 12
    for tile, value in SWEEP.items():
        assert agree(sweep[tile], value)
        assert agree(cell(pages[CHOSE], "tile-sweep", "Span", Tile=tile.replace("x", " × ")), value)
    trials = table(pages[CHOSE], "search")
    assert [row["Trial"] for row in trials].count("candidate") == 36
    for tile, value in CROSS_CHECK.items():
        assert agree(cell(pages[CHOSE], "cross-check", "Median", Tile=tile.replace("x", " × "), Mode="awaited"), value)


# --- prose -------------------------------------------------------------------------------------------------------


def quoted(stem: str) -> list[str]:
    return [part.strip() for part in PROSE[stem].replace("\n", "|").split("|") if part.strip()]


@pytest.mark.parametrize(("stem", "number"), [(stem, number) for stem in PROSE for number in quoted(stem)])
def test_a_number_of_the_published_prose_stands_in_the_report(stem, number, pages):
    prose = plain(" ".join(part.get_text() for part in pages[stem].select("main p, main li")))
    assert re.search(rf"(?<![\d.–]){re.escape(number)}(?![\d]|\.\d)", prose), number


@pytest.mark.parametrize(("stem", "said"), [(stem, said) for stem, every in DISAGREE.items() for said in every])
def test_a_known_disagreement_is_shown_as_one(stem, said, pages):
    marked = [plain(span.get_text()) for span in pages[stem].select(".mage-disagreement")]
    assert said in marked


@pytest.mark.parametrize("stem", [LOAD, CHOSE])
def test_no_other_disagreement_is_shown(stem, pages):
    assert len(pages[stem].select(".mage-disagreement")) == len(DISAGREE[stem])


@pytest.mark.parametrize("stem", [LOAD, CHOSE])
def test_no_measured_number_is_typed_into_prose(stem, repository):
    """A number with a unit comes out of a checked quote; outside one it would be nobody's."""
    notebook = json.loads((repository / "notebooks" / f"{stem}.ipynb").read_text())
    for each in notebook["cells"]:
        text = "".join(each["source"])
        if each["cell_type"] == "code":
            calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
            prose = [call.args[0] for call in calls if getattr(call.func, "attr", "") == "prose"]
            parts = [part for one in prose if isinstance(one, ast.JoinedStr) for part in one.values]
            text = "\0".join(part.value for part in parts if isinstance(part, ast.Constant))
        assert not re.search(r"\d[\u202f\u00a0 ]?(µs|%|ms\b|MHz|×(?! ?\d))", text), each["id"]


@pytest.mark.parametrize("stem", [LOAD, CHOSE])
def test_a_cell_is_short_and_holds_no_logic(stem, repository):
    notebook = json.loads((repository / "notebooks" / f"{stem}.ipynb").read_text())
    for each in notebook["cells"]:
        if each["cell_type"] == "code":
            text = "".join(each["source"])
            assert len(text.splitlines()) <= 15, each["id"]
            assert not re.search(r"^\s*(if|for|while|def|class|try|with|lambda)\b", text, re.MULTILINE), each["id"]


@pytest.mark.parametrize("stem", [LOAD, CHOSE])
def test_a_note_opens_with_the_answer_and_ends_with_limits_and_method(stem, pages):
    heads = [head.get_text() for head in pages[stem].select("h2")]
    assert heads[1:2] == ["The answer"] or heads[0] == "The answer", heads
    assert heads[-2] == "Limits" and heads[-1].startswith("Method"), heads
    assert "How sure we are" in [head.get_text() for head in pages[stem].select("h3")]


def test_formulas_are_mathml(pages):
    spoken = [plain(math.get_text("")) for math in pages[CHOSE].find_all("math")]
    assert any("0.125" in one for one in spoken) and any("submit" in one for one in spoken)


# --- what a run promises -----------------------------------------------------------------------------------------


def test_a_changed_number_stops_the_note_with_one_line(runs):
    result, tree = runs["changed"]
    assert result.rc == 1
    for part in ("claim 343.99", "stages[matmul/tiled].kernel_us", "outputs/retained/mage-006/evidence.json", "344.99"):
        assert part in result.message
    assert not (tree.output("mage-006") / "report.html").exists()


@pytest.mark.parametrize("experiment", ["mage-006", "mage-004"])
def test_two_runs_give_the_same_report_but_for_the_time_of_the_run(experiment, runs):
    texts = []
    for name in (experiment, "second"):
        result, tree = runs[name]
        assert result.rc == 0, result.said
        record = json.loads((tree.output(experiment) / "provenance.json").read_text())
        html = (tree.output(experiment) / "report.html").read_text()
        soup = BeautifulSoup(html, "html.parser")
        # A report made in the checkout names its commit; one of a copied tree cannot.
        labels = [dt for dt in soup.find_all("dt") if dt.get_text(strip=True) in ("Time of this run", "git commit")]
        assert len(labels) == 2
        for label in labels:
            label.find_next_sibling("dd").decompose()
        assert record["started"] not in soup.get_text()
        texts.append(str(soup))
    assert texts[0] == texts[1]


def test_other_parameters_give_another_load_in_flight(runs, evidence):
    result, tree = runs[LOAD]
    assert result.rc == 0, result.said
    soup = page(tree, "mage-003")
    rows = table(soup, "results")
    assert [(row["Operation"], row["Implementation"]) for row in rows] == [("Bias + GELU", "Triton"), ("LayerNorm", "Triton")]
    for row, operation in zip(rows, ("gelu", "layernorm"), strict=True):
        held = means(evidence, "mage-003", operation, "triton")
        assert agree(row["Span"], f"{held['span_round_min_us']:.2f}") and agree(row["Kernel time"], f"{held['kernel_us']:.2f}")
    drawn = table(soup, "spans-values")
    assert {(row["Implementation"], row["Statistic"]) for row in drawn} == {("Triton", "fastest-round")}
    # The hand-written kernels were left out, and with them their stages: a sentence stands where the rows were.
    assert "matches the selection" in soup.select_one("#table-stages").get_text()
    assert "343.99" in soup.get_text(), "the prose goes on quoting its own evidence"


def test_other_parameters_give_another_what_the_compiler_chose(runs, evidence):
    result, tree = runs[CHOSE]
    assert result.rc == 0, result.said
    soup = page(tree, "mage-001")
    assert {row["Implementation"] for row in table(soup, "results")} == {"Triton"}
    held = means(evidence, "mage-001", "gelu", "triton")
    assert agree(cell(soup, "results", "Span", Operation="Bias + GELU"), f"{held['span_round_min_us']:.2f}")
    assert "mage-001 holds nothing of cuTile Rust" in plain(soup.select_one("#table-results").find_parent().get_text())
    assert "mage-001 has no search" in soup.select_one("#table-search").get_text()
    assert "mage-001 has no tile sweep" in soup.select_one("#table-tile-sweep").get_text()


def test_the_readme_shows_a_figure_as_the_note_draws_it(repository):
    """When the drawing changes, write the SVG anew: the figure's own ``svg`` is the file."""
    import matplotlib

    import mage
    from mage import figures

    readme = (repository / "README.md").read_text()
    (name,) = re.findall(r"!\[[^\]]{20,}\]\(([^)]+\.svg)\)", readme)
    shown = (repository / name).read_bytes()
    assert len(shown) < 60_000
    (tested,) = re.findall(r"^matplotlib==(\S+)$", (repository / "constraints.txt").read_text(), re.MULTILINE)
    if matplotlib.__version__ != tested:
        pytest.skip(f"the figure was drawn with matplotlib {tested}; this is {matplotlib.__version__}")
    assert shown == figures.progression(mage.with_sources(mage.load("mage-006"))).svg, f"{name} is not what is drawn now"


# --- what ran while the note ran ---------------------------------------------------------------------------------


def gate_rows(pages, table):
    rows = pages[LOAD].find("table", id=f"table-{table}").find_all("tr")
    return [[cell.get_text(" ", strip=True) for cell in row.find_all(["th", "td"])] for row in rows[1:]]


def test_the_gates_table_has_every_kernel_and_nothing_failed(pages):
    from mage.kernels import cuda_stages

    rows = gate_rows(pages, "gate")
    verdicts = {row[2] for row in rows}
    assert verdicts <= {"passed", "not checked on this machine"} and "passed" in verdicts
    text = pages[LOAD].find("table", id="table-gate").get_text(" ")
    for stages in cuda_stages.STAGES.values():
        assert all(f"CUDA C++, {stage}" in text for stage in stages)


def test_both_published_pipeline_defects_are_refused_in_the_report(pages):
    rows = gate_rows(pages, "refused")
    assert [row[0] for row in rows] == ["pipeline-buffer-units", "pipeline-last-buffer"]
    assert [row[2] for row in rows] == ["refused", "refused"]
    assert all(row[3].startswith("[") and row[4] != row[5] for row in rows)


def test_the_census_of_the_layer_norm_stands_both_ways_with_its_judgement(pages):
    rows = {(row["Kernel"], row["GPU"], row["Compiled"]): row for row in table(pages[LOAD], "norm-census")}
    for gpu in ("sm_89", "sm_90"):
        alone, launched = (rows["Triton", gpu, way] for way in ("told nothing of alignment", "as launched"))
        assert (alone["Loads in PTX"], alone["Stores in PTX"], alone["Shared"]) == ("24 × 32", "8 × 32", "16")
        assert (launched["Loads"], launched["Stores"], launched["Passes over x"]) == ("6 × 128", "2 × 128", "1")
        assert rows["CUDA C++, pair", gpu, ""]["Passes over x"] == "2"
    prose = plain(" ".join(part.get_text() for part in pages[LOAD].select("main p, main li")))
    assert "the loads of Triton's layer norm are wide" in prose


def test_what_the_fp32_product_became_stands_per_release_and_is_said_to_be_retained(pages):
    rows = [row for row in table(pages[CHOSE], "tile-census") if (row["Tile"], row["GPU"]) == ("32 × 128 × 32", "sm_89")]
    fused = {(row["Product"], row["Release"]): (row["Fused"], row["FFMA"], row["FMUL"]) for row in rows}
    assert fused["ct.mma", "13.3.36"] == fused["ct.mma", "13.4.92"] == ("no", "0", "1024")
    assert fused["ct.mma", "13.5.37"] == ("yes", "1024", "0") and fused["rank-1", "13.3.36"] == ("yes", "1024", "0")
    note = plain(pages[CHOSE].select_one("#table-tile-census").parent.select_one(".mage-note").get_text())
    counted = {row["Counted"] for row in rows}
    assert counted <= {"retained", "computed here"} and ("make tile-compilers" in note) == (counted == {"retained"})


# --- measured evidence -------------------------------------------------------------------------------------------


def test_a_retained_experiment_says_its_device_and_judges_the_published_claims(runs):
    result, tree = runs["h200-004"]
    assert result.rc == 0, result.said
    soup = page(tree, "h200-004")
    assert soup.select_one(".origin-retained") is not None
    assert "measured by this project on NVIDIA H200" in plain(soup.get_text())
    verdicts = {row["Verdict here"] for row in table(soup, "claims-here")}
    assert "holds" in verdicts and verdicts <= {"holds", "reversed", "ambiguous"}
    assert {row["Verdict"] for row in table(soup, "verdicts")} <= {"faster", "slower", "same", "ambiguous"}
    declared = json.loads((tree.root / "notebooks" / f"{CHOSE}.ipynb").read_text())["metadata"]["mage"]
    for kind, ids in (("fig", declared["figures"]), ("table", declared["tables"])):
        assert all(len(soup.select(f"#{kind}-{id}")) == 1 for id in ids)
    assert soup.select_one("#fig-launch-modes img") is not None and soup.select_one("#fig-reuse-and-ratio img") is not None
    assert "8.19 µs" in plain(soup.get_text()), "the prose goes on quoting the published experiments"


@pytest.mark.parametrize("stem", [LOAD, CHOSE])
def test_a_published_experiment_says_that_it_has_no_samples(stem, pages):
    for place in ("#table-claims-here", "#table-verdicts", "#table-session", *(["#fig-roofline"] if stem == LOAD else [])):
        assert "is published evidence" in plain(pages[stem].select_one(place).get_text()), place
