"""What a measured session says: verdicts, published claims, voids and limits, from real evidence and from made-up records."""

import json
import re
import subprocess
import sys

import measured
import pytest
from test_figures import faults, words

from mage import evidence, figures, paths, tables
from mage.claims import replication
from mage.errors import RequestError
from mage.stats import judged, own_stages

PUBLISHED = ("mage-001", "mage-002", "mage-003", "mage-004", "mage-006")
VIEWS = {
    "verdicts": tables.verdicts, "counters": tables.counters, "session": tables.session, "voids": tables.voids,
    "modes-here": tables.modes_here, "roofline": figures.roofline,
}  # fmt: skip


@pytest.fixture(scope="module")
def published():
    return [evidence.load(name) for name in PUBLISHED]


@pytest.fixture(scope="module", params=["h200-004", "h200-006"])
def h200(request):
    return evidence.load(request.param)


def rows_of(operation: str, times: dict, noise=(1.0, 1.004, 0.997, 1.002, 0.998, 1.001)) -> list[dict]:
    """Results of one operation, a kernel a call: µs by (implementation, variant), six rounds of three samples."""
    made = []
    for (implementation, variant), time in times.items():
        rounds = [[round(time * factor, 3)] * 3 for factor in noise]
        kernel = {"grid": [1, 1, 1], "block": [128, 1, 1], "registers": 32, "shared_bytes": 0, "cache": "warm", "rounds_us": rounds}
        spans = [{"mode": mode, "cache": "warm", "rounds_us": [[value + 5 for value in one] for one in rounds]} for mode in ("awaited",)]
        made.append(
            {
                "operation": operation, "dims": measured.SHAPES[operation], "implementation": implementation, "variant": variant,
                "launches": 1, "kernels": [{"name": "k", "mode": "awaited", **kernel}], "spans": spans,
            }
        )  # fmt: skip
    return made


def session(results: list[dict], **changes):
    return measured.record(results=results, **changes)


def column(view, name: str, **where) -> list:
    frame = view.frame
    for head, value in where.items():
        frame = frame[frame[head.replace("_", " ")] == value]
    return frame[name].tolist()


# --- verdicts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("time", "word"), [(8.0, "faster"), (10.0, "same"), (12.0, "slower")])
def test_a_row_is_judged_by_the_best_other_implementation(time, word):
    times = {("pytorch", None): 20.0, ("triton", "fixed"): 10.0, ("cuda", "elementwise"): time}
    view = tables.verdicts(session(rows_of("gelu", times)))
    assert column(view, "Verdict", Implementation="CUDA C++, elementwise") == [word]
    assert column(view, "Best other", Implementation="CUDA C++, elementwise") == ["Triton"]
    assert column(view, "Ratio", Implementation="CUDA C++, elementwise") == pytest.approx([time / 10], rel=1e-3)


def test_an_interval_across_the_limit_is_ambiguous():
    rows = rows_of("gelu", {("pytorch", None): 10.0}) + rows_of("gelu", {("triton", "fixed"): 10.0}, (0.9, 1.1, 0.95, 1.05, 0.98, 1.03))
    assert column(tables.verdicts(session(rows)), "Verdict", Implementation="Triton") == ["ambiguous"]


def test_stages_of_one_implementation_are_not_each_others_rival():
    times = {("cuda", "quads"): 10.0, ("cuda", "pipeline"): 8.0, ("pytorch", None): 9.0}
    view = tables.verdicts(session(rows_of("matmul", times)))
    assert column(view, "Best other") == ["CUDA C++, pipeline", "PyTorch", "PyTorch"]


def test_a_loaded_round_judges_nothing_and_is_said():
    rows = rows_of("gelu", {("pytorch", None): 10.0}, (1, 1, 1, 1, 1, 1)) + rows_of("gelu", {("triton", "fixed"): 10.0}, (1, 1, 1, 1, 9, 9))
    rounds = [{"part": "kernels", "number": n, "control_us": [50.0], "loaded": "the control" if n > 3 else None} for n in range(6)]
    for given, low in (((), 1.0), (rounds, 1.0)):
        view = tables.verdicts(session(rows, rounds=list(given)))
        (high,) = column(view, "High", Implementation="Triton")
        assert column(view, "Low", Implementation="Triton") == [low]
        assert (high > 1.5) is (not given)
    assert "Left out as loaded: rounds 4, 5" in view.note


# --- published claims --------------------------------------------------------------------------------------------


def chain(pipeline: float) -> list[dict]:
    times = {"tiled": 360.0, "registers": 150.0, "quads": 80.0, "pipeline": pipeline}
    return rows_of("matmul", {("cuda", stage): time for stage, time in times.items()})


@pytest.mark.parametrize(("pipeline", "word"), [(70.0, "holds"), (90.0, "reversed"), (80.0, "ambiguous")])
def test_a_claim_is_judged_by_the_session_alone(pipeline, word, published):
    view = tables.claims_here(session(chain(pipeline)), published, note="load-in-flight")
    where = {"Published_claim": "pipeline beats quads"}
    assert column(view, "Verdict here", **where) == [word]
    assert column(view, "Published ratio", **where) == pytest.approx([68.62 / 80.00], abs=1e-4)
    assert column(view, "Verdict here", Published_claim="registers beats tiled") == ["holds"]
    assert set(column(view, "Verdict here", Operation="LayerNorm")) == {"not measured here"}


@pytest.mark.parametrize(("time", "word"), [(10.7, "holds"), (9.4, "holds"), (15.0, "reversed"), (11.0, "ambiguous")])
def test_a_draw_holds_within_ten_percent(time, word, published):
    rows = rows_of("layernorm", {("cuda", "pair"): 10.0})
    rows += rows_of("layernorm", {("cutile", "fixed"): time}, (1.0, 1.02, 0.98, 1.01, 0.99, 1.0))
    view = tables.claims_here(session(rows), published, note="what-the-compiler-chose")
    assert column(view, "Verdict here", Published_claim="the tile compiler draws with hand-written") == [word]


def test_queued_calls_are_held_against_kernel_time(published):
    for extra, word in ((0.2, "holds"), (6.0, "reversed")):
        rows = rows_of("gelu", {("cutile", "fixed"): 8.0})
        batch = [[value + extra for value in one] for one in rows[0]["kernels"][0]["rounds_us"]]
        rows[0]["spans"].append({"mode": "batch-10", "cache": "warm", "rounds_us": batch})
        view = tables.claims_here(session(rows), published, note="what-the-compiler-chose", operations=["gelu"])
        assert column(view, "Verdict here", Published_claim="in tens, the tile kernel takes its kernel time") == [word]


def test_awaiting_is_said_to_mislead_only_where_spans_say_more_than_kernels(published):
    claim = "awaited, the tile kernel looks worse beside hand-written"
    for spans, word in ((30.0, "holds"), (9.0, "reversed")):
        rows = rows_of("gelu", {("cutile", "fixed"): 10.0, ("cuda", "elementwise"): 10.0})
        rows[0]["spans"][0]["rounds_us"] = [[spans] * 3] * 6
        view = tables.claims_here(session(rows), published, note="what-the-compiler-chose", operations=["gelu"])
        assert column(view, "Verdict here", Published_claim=claim) == [word]


def test_every_claim_of_both_notes_is_judged_on_the_h200(published):
    for note, name in (("load-in-flight", "h200-006"), ("what-the-compiler-chose", "h200-004")):
        view = tables.claims_here(evidence.load(name), published, note=note)
        found = column(view, "Verdict here")
        assert len(found) == len(replication.NOTES[note]) and set(found) <= {"holds", "reversed", "ambiguous"}
        assert view.frame["Published ratio"].notna().all()
        for ratio, low, high in zip(view.frame["Ratio"], view.frame["Low"], view.frame["High"], strict=True):
            assert low <= ratio <= high


def test_a_cpu_judges_no_claim_about_kernels(published):
    record = session(chain(70.0), device={"kind": "cpu", "name": "a CPU"})
    assert set(column(tables.claims_here(record, published, note="load-in-flight"), "Verdict here")) == {"not measured here"}


def test_an_unknown_note_is_refused(published):
    with pytest.raises(RequestError, match="no claims to judge"):
        tables.claims_here(published[0], published, note="load in flight")


# --- voids, counters, session, limits ----------------------------------------------------------------------------


def test_every_void_is_shown_with_its_reason():
    voids = [
        {"row": "gelu/triton:fixed", "quantity": "kernel_us", "mode": "graph-10", "rounds": [2], "reason": "9 of 10 records"},
        {"quantity": "span_us", "rounds": [1], "reason": "the control took 60 µs"},
    ]
    rows = rows_of("gelu", {("triton", "fixed"): 9.0, ("pytorch", None): 10.0})
    rows[1] |= {"kernels": [], "spans": [], "gate": {"passed": "failed", "reason": "3 elements are wrong"}}
    view = tables.voids(session(rows, voids=voids))
    assert column(view, "Reason") == ["9 of 10 records", "the control took 60 µs", "gate: failed: 3 elements are wrong"]
    assert column(view, "Row")[0::2] == ["Bias\u00a0+\u00a0GELU, Triton", "Bias\u00a0+\u00a0GELU, PyTorch"]
    assert "9 of 10 records" in view.html
    assert column(tables.verdicts(session(rows, voids=voids)), "Verdict", Implementation="PyTorch") == ["no time"]
    assert "Nothing of made-up-001 was voided" in tables.voids(session(rows_of("gelu", {("pytorch", None): 9.0}))).html


def test_counters_say_what_bounds_a_kernel_or_why_there_are_none():
    rows = rows_of("gelu", {("triton", "fixed"): 9.0, ("pytorch", None): 10.0})
    one = {"row": "gelu/triton:fixed", "number": 0, "kernel": "k", "duration_us": 10.0, "dram_bytes": 30_000_000, "issue_busy_pct": 20.0}
    other = {**one, "row": "gelu/pytorch", "dram_bytes": 1000, "stalls": {"barrier": 0.5, "long_scoreboard": 7.0}}
    view = tables.counters(session(rows, counters=[one, other], ceilings={"dram_gb_s": 4000.0}))
    assert column(view, "Near", Implementation="Triton") == ["DRAM (75 %)"]
    assert column(view, "Near", Implementation="PyTorch") == ["latency (issue slots 20 %)"]
    assert column(view, "Waits most for", Implementation="PyTorch") == ["global memory (7.0)"]
    missing = tables.counters(session(rows, counters_missing="the driver keeps them to itself"))
    assert "not available here: the driver keeps them to itself" in missing.html


def test_the_session_says_rounds_control_alarms_and_limits(h200):
    said = dict(zip(column(tables.session(h200), "What"), column(tables.session(h200), "Value"), strict=True))
    assert said["Device"] == "NVIDIA H200"
    for alarms in h200.false_alarms:
        name = {"span_us": "span", "kernel_us": "kernel\u00a0time"}[alarms.quantity]
        assert said[f"False alarms, {name}"].startswith(f"{alarms.alarms} in ") and alarms.pairs >= 200
    assert f"{h200.ceilings.dram_gb_s:,.0f} GB/s" == said["Limit, DRAM"]
    for part in {one.part for one in h200.rounds}:
        loaded = [one.number for one in h200.rounds if one.part == part and one.loaded]
        (value,) = [said[head] for head in said if head == f"Control, {tables.measured.PARTS[part]}"]
        assert ("no round loaded" in value) is (not loaded)
    assert "compile" in said["Wall time"] and "total" in said["Wall time"]


def test_the_roofline_keeps_every_row_below_its_limits_and_can_be_read(h200):
    view = figures.roofline(h200)
    assert faults(view.figure) == []
    frame = view.table.frame
    timed = [row for row in h200.results if row.kernels]
    assert len(frame) == len(timed)
    assert (frame["Rate"] <= frame["Limit by L2"]).all()
    (banks,) = frame[frame["Implementation"] == "CUDA C++, banks"]["Rate"]
    (median,) = column(tables.verdicts(h200, operations=["matmul"]), "Median", Implementation="CUDA C++, banks")
    assert banks == pytest.approx(2 * 1024**3 / median / 1e6)
    for name in ("DRAM", "L2", "FP32", "Matmul", "CUDA C++, banks"):
        assert name in words(view)


@pytest.mark.parametrize(
    "options", [{"operations": ["gelu"]}, {"operations": ["matmul", "triangle"]}, {"implementations": ["cuda"]}], ids=str
)
def test_a_selected_roofline_can_be_read(options, h200):
    assert faults(figures.roofline(h200, **options).figure) == []


@pytest.mark.parametrize("statistic", ["median", "mean"])
@pytest.mark.parametrize("name", ["kernel_time", "spans", "kernel_and_span", "launches"])
def test_figures_of_real_measurements_can_be_read(name, statistic, h200):
    assert faults(getattr(figures, name)(h200, **({} if name == "launches" else {"statistic": statistic})).figure) == []


def test_published_means_fill_no_gap_of_a_measured_session(published):
    record = session(rows_of("gelu", {("pytorch", None): 9.0}))
    view = tables.kernel_times([record, published[2]], statistic="median")
    assert list(view.frame)[2:] == ["PyTorch"]


def test_the_way_of_our_own_stages_is_drawn_from_one_session(h200):
    view = figures.progression(h200)
    assert faults(view.figure) == []
    assert "one session" in words(view) and "different sessions" not in view.html
    frame = view.table.frame
    measured = {(row.operation, row.variant) for row in h200.results if row.implementation == "cuda"}
    expected = [name for operation, way in own_stages.WAY.items() for name in way if (operation, name) in measured]
    assert frame["Stage"].tolist() == expected and {"quads", "banks", "lean"} <= set(expected)
    (median,) = column(tables.verdicts(h200), "Median", Implementation="CUDA C++, banks")
    place = expected.index("banks")
    assert frame["Kernel time"][place] == pytest.approx(median)
    assert column(tables.stages(h200), "Factor", Stage="banks") == pytest.approx([frame["Kernel time"][place - 1] / median])
    assert "one session" in tables.stages(h200).note


def test_many_implementations_stand_below_each_other():
    view = tables.kernel_times(evidence.load("h200-004"), statistic="median")
    assert len(view.frame.columns) == 6 and view.frame["Implementation"].is_unique
    (quads,) = [row for row in view.frame.to_dict("records") if row["Implementation"] == "CUDA C++, quads"]
    verdicts = tables.verdicts(evidence.load("h200-004"))
    assert [value for head, value in quads.items() if head.startswith("Matmul")] == column(
        verdicts, "Median", Implementation="CUDA C++, quads"
    )


# --- published evidence ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_evidence_gets_a_sentence_and_no_verdict(name, published):
    (record,) = [one for one in published if one.experiment == name]
    for id, view in {id: make(record) for id, make in VIEWS.items()}.items():
        assert view.id == id and f"{name} is published evidence" in view.html, id
        assert "<img" not in view.html
    claims = tables.claims_here(record, published, note="load-in-flight")
    assert claims.frame.empty and "no verdict of ours" in claims.html


def test_a_selection_leaves_sentences(h200):
    for id, make in VIEWS.items():
        if id != "session":
            view = make(h200, operations=[])
            assert (view.id == id and "mage-notice" in view.html) or id == "voids", id
    assert judged.measured(h200)


def test_reading_evidence_for_a_note_imports_nothing_that_measures():
    code = (
        "import sys, mage\nmage.obtain('mage-006', ['gelu'], ['triton'])\n"
        "print([name for name in ('torch', 'mage.experiment.measurement', 'mage.timers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"\[\]\s*", done.stdout), done.stdout


# --- what a session found beside times -------------------------------------------------------------------------------


def lines(path) -> list[dict]:
    """The rows of an evidence file, read without the library."""
    return json.loads(path.read_text("utf-8"))["results"]


def test_the_gate_of_a_session_is_shown_row_by_row(h200):
    kept = lines(paths.RETAINED / h200.experiment / "evidence.json")
    view = tables.correctness(h200)
    assert sorted(view.frame["Error"]) == sorted(row["gate"]["max_abs_err"] for row in kept)
    of_cutile = [row["gate"]["max_abs_err"] for row in kept if (row["operation"], row["implementation"]) == ("matmul", "cutile")]
    chosen = tables.correctness(h200, operations=["matmul"], implementations=["cutile"])
    assert chosen.frame["Error"].tolist() == pytest.approx(of_cutile) and set(chosen.frame["Tolerance"]) == {1e-4}


def test_what_the_kernels_of_a_session_ask_for_is_shown_a_kernel_a_row(h200):
    kept = lines(paths.RETAINED / h200.experiment / "evidence.json")
    launches = [one for row in kept for one in row["kernels"] if (one["mode"], one["cache"]) == ("awaited", "warm")]
    frame = tables.requests(h200).frame
    assert sorted(zip(frame["Registers"], frame["Shared memory"], strict=True)) == sorted(
        (one["registers"], one["shared_bytes"]) for one in launches
    )
    assert frame["Kernel"].str.len().max() < 160 and not frame["Kernel"].str.contains("at::|anonymous|_Kt").any()
    of_gelu = frame[(frame["Operation"] == "Bias\u00a0+\u00a0GELU") & (frame["Implementation"] == "PyTorch")]
    assert of_gelu["Kernel"].str.replace("\u200b", "").tolist() == ["elementwise_kernel<…>", "vectorized_elementwise_kernel<…>"]
