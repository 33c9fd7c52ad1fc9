"""Notes 010 and 011: what they say of the hand-written kernels is what the samples of their session say.

Medians and ratios are taken here from the evidence files with the standard library, apart from mage, and looked for
in the pages that `python -m mage run` makes of them.
"""

import json
import re
import statistics

import pytest
from bs4 import BeautifulSoup

NOTES = {"h200-010": "note-010-ahead-of-the-library", "h200-011": "note-011-the-other-four"}
# Row, peer: what the answers compare, in kernel time with a warm cache.
COMPARED = {
    "h200-010": [("matmul/cuda:banks", "matmul/pytorch"), ("matmul/cuda:banks", "matmul/triton:tuned")],
    "h200-011": [
        ("layernorm/cuda:registers", "layernorm/triton:tuned"),
        ("triangle/cuda:shared", "triangle/cutile:tuned"),
        ("triangle/cuda:shared", "triangle/pytorch"),
        ("neighbor/cuda:lean", "neighbor/triton:tuned"),
        ("gelu/cuda:cached", "gelu/triton:tuned"),
    ],
}


def key(row: dict) -> str:
    return f"{row['operation']}/{row['implementation']}" + (f":{row['variant']}" if row.get("variant") else "")


def span(row: dict, mode: str, cache: str = "warm") -> list[list[float]]:
    return next((one["rounds_us"] for one in row["spans"] if (one["mode"], one["cache"]) == (mode, cache)), [])


def kernel(row: dict, cache: str = "warm") -> list[list[float]]:
    """Rounds of samples, each the sum over the kernels of one call."""
    series = [one["rounds_us"] for one in row["kernels"] if one["cache"] == cache]
    return [[sum(parts) for parts in zip(*rounds, strict=True)] for rounds in zip(*series, strict=True)]


def plain(text: str) -> str:
    return " ".join(text.replace("\u202f", " ").replace("\u00a0", " ").split())


def near(printed: str, value: float) -> bool:
    """Whether ``printed`` is ``value`` to within one last printed digit."""
    decimals = len(printed.partition(".")[2])
    return abs(float(printed) - value) <= 1.01 * 10**-decimals


@pytest.fixture(scope="module")
def evidence(repository):
    return {name: json.loads((repository / f"outputs/retained/{name}/evidence.json").read_text()) for name in (*NOTES, "h200-attempts")}


@pytest.fixture(scope="module")
def rows(evidence):
    """Rows at the operations' own shapes, by key."""
    return {name: {key(row): row for row in evidence[name]["results"] if not row.get("at")} for name in NOTES}


@pytest.fixture(scope="module")
def runs(start_note, start_mage, copied_tree):
    changed = copied_tree("changed")
    file = changed.root / "outputs/retained/h200-attempts/evidence.json"
    assert "45.06" in file.read_text()
    file.write_text(file.read_text().replace("45.06", "47.06"))
    started = {name: start_note(name) for name in NOTES}
    started["changed"] = (start_mage("run", NOTES["h200-010"], "-e", "h200-010", root=changed.root), changed)
    return {name: (process.wait(), tree) for name, (process, tree) in started.items()}


@pytest.fixture(scope="module")
def pages(runs):
    found = {}
    for name in NOTES:
        result, tree = runs[name]
        assert result.rc == 0, result.said
        found[name] = BeautifulSoup((tree.output(name) / "report.html").read_text(), "html.parser")
    return found


def answer(soup: BeautifulSoup) -> str:
    """The text between "The answer" and "How sure we are"."""
    whole = plain(soup.select_one("main").get_text(" "))
    return whole.split("The answer", 1)[1].split("How sure we are", 1)[0]


@pytest.mark.parametrize("name", NOTES)
def test_the_answer_gives_the_medians_and_paired_ratios_of_the_samples(name, pages, rows):
    said = answer(pages[name])
    for ours, peer in COMPARED[name]:
        mine, theirs = (kernel(rows[name][one]) for one in (ours, peer))
        middle = statistics.median(value for samples in mine for value in samples)
        assert any(near(text, middle) for text in re.findall(r"(\d+\.\d+) µs", said)), (ours, middle)
        ratio = statistics.median(statistics.median(a) / statistics.median(b) for a, b in zip(mine, theirs, strict=True))
        found = [text for text in re.findall(r"(\d\.\d{3}) \(95 % interval", said) if near(text, ratio)]
        assert found, (ours, peer, ratio)
        word = "faster" if ratio < 0.97 else "slower" if ratio > 1.03 else "ambiguous"
        assert re.search(rf"{found[0]} \(95 % interval [\d.]+–[\d.]+: {word}\)", said)


@pytest.mark.parametrize("name", NOTES)
def test_every_hand_written_row_has_the_smallest_span_or_the_note_says_which(name, rows):
    """ "All four are the shortest" and "the smallest span of all": true of the newest stage of each operation."""
    for operation in {one.partition("/")[0] for one in rows[name]}:
        middle = {
            one: statistics.median(value for samples in span(row, "awaited") for value in samples)
            for one, row in rows[name].items()
            if one.startswith(operation + "/") and span(row, "awaited")
        }
        assert min(middle, key=middle.get).startswith(f"{operation}/cuda:"), middle


@pytest.mark.parametrize("name", NOTES)
def test_every_row_was_gated_before_and_after_it_was_timed(name, evidence):
    timed = [row for row in evidence[name]["results"] if row.get("kernels")]
    assert len(timed) > 30
    for row in timed:
        assert row["gate"]["passed"] == row["gate"]["after timing"] == "passed", key(row)


@pytest.mark.parametrize("name", NOTES)
def test_what_did_not_pay_stands_with_its_number(name, pages, evidence):
    shown = plain(pages[name].select_one("#table-attempts").get_text(" "))
    own = [one for one in evidence["h200-attempts"]["attempts"] if (one["operation"] == "matmul") == (name == "h200-010")]
    assert len(own) >= 18
    for one in own:
        low = one["value_us"][0] if isinstance(one["value_us"], list) else one["value_us"]
        assert plain(one["label"]) in shown and f"{low:.2f}" in shown


@pytest.mark.parametrize("name, shapes", [("h200-010", 9), ("h200-011", 16)])
def test_the_shapes_are_all_there_with_their_ratios_to_the_best_peer(name, shapes, pages, evidence):
    shown = [plain(row.get_text(" ")) for row in pages[name].select_one("#table-shapes").select("tbody tr")]
    assert len(shown) == shapes
    beside: dict[tuple, dict] = {}
    for row in evidence[name]["results"]:
        if row.get("at") and row.get("kernels"):
            beside.setdefault((row["operation"], row["at"]), {})[key(row)] = kernel(row)
    assert len(beside) == shapes - len({operation for operation, _ in beside})
    for (operation, at), times in beside.items():
        (ours,) = [one for one in times if one.startswith(f"{operation}/cuda:")]
        best = min(times.keys() - {ours}, key=lambda one: statistics.median(value for samples in times[one] for value in samples))
        ratio = statistics.median(statistics.median(a) / statistics.median(b) for a, b in zip(times[ours], times[best], strict=True))
        assert any(near(text, ratio) for row in shown for text in re.findall(r"\b\d\.\d{3}\b", row)), (operation, at, ratio)


def test_other_timers_stand_beside(pages, evidence):
    shown = plain(pages["h200-010"].select_one("#table-cross-check-timers").get_text(" "))
    assert "cuda-bench" in shown and "ncu" in shown
    sure = plain(pages["h200-010"].select_one("main").get_text(" "))
    for one in evidence["h200-010"]["cross_checks"]:
        if one["instrument"] == "cuda-bench" and one["mode"] == "graph-10" and one["row"] in ("matmul/cuda:banks", "matmul/triton:tuned"):
            assert any(near(text, one["time_us"]) for text in re.findall(r"(\d+\.\d\d) µs", sure))


def test_a_changed_number_stops_the_note(runs):
    result, tree = runs["changed"]
    assert result.rc == 1 and "45.06" in result.message and "h200-attempts" in result.message
    assert not (tree.output("h200-010") / "report.html").exists()


@pytest.mark.parametrize("name", NOTES)
def test_the_notes_keep_the_order_of_the_series(name, pages):
    heads = [plain(head.get_text()) for head in pages[name].select("main h2")]
    assert "The answer" in heads[:2] and heads[-2] == "Limits" and heads[-1].startswith("Method")
    assert "How sure we are" in [plain(head.get_text()) for head in pages[name].select("h3")]
