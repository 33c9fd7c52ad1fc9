"""What a session is judged by: kernel time, and where not one was accepted the time a call in a graph of ten."""

import pytest

from mage import evidence, figures, paths, tables
from mage.claims import Quotes
from mage.errors import ClaimError
from mage.experiment import summary
from mage.stats import judged, own_stages
from tests import measured

TIMES = {("pytorch", None): 20.0, ("triton", "tuned"): 16.0, ("cuda", "tiled"): 60.0, ("cuda", "registers"): 30.0, ("cuda", "quads"): 12.0}
VOIDS = [{"quantity": "kernel_us", "reason": "throttled: software power cap"}]
CEILINGS = {"dram_gb_s": 4000.0, "l2_gb_s": {"25165824": 6000.0}, "fp32_tflops": 60.0, "fp32_mhz": 1980.0, "copy_us": {}}


def rows(modes=("awaited", "graph-10"), kernels=False):
    """A matrix product whose graph of ten takes as long a call as its kernel, and an awaited call 10 µs more."""
    found = []
    for (implementation, variant), base in TIMES.items():
        one = measured.result("matmul", implementation, variant, base)
        extra = {"awaited": 10.0, "graph-10": 0.0}
        one["spans"] = [
            {"mode": mode, "cache": "warm", "rounds_us": [[(base + extra[mode]) * f for f in (1, 1.001)] for _ in range(5)]}
            for mode in modes
        ]
        if not kernels:
            one["kernels"] = []
        found.append(one)
    return found


@pytest.fixture
def without_kernels():
    return measured.record(results=rows(), voids=VOIDS, ceilings=CEILINGS)


def test_kernel_time_leads_as_soon_as_one_was_accepted():
    assert judged.key(measured.record(results=rows(kernels=True))) == judged.KERNEL
    assert judged.instead(measured.record(results=rows(kernels=True))) is None


def test_a_session_without_kernel_times_is_judged_by_graphs_and_says_so(without_kernels):
    assert judged.key(without_kernels) == judged.GRAPH
    view = tables.verdicts(without_kernels)
    assert "No kernel time of made-up-001 was accepted" in view.note and "Span a call, graph of ten" in view.note
    (quads,) = [row for row in view.frame.to_dict("records") if row["Implementation"] == "CUDA C++, quads"]
    assert (quads["Best other"], quads["Verdict"]) == ("Triton, tuned", "faster") and quads["Ratio"] == pytest.approx(0.75)
    assert quads["Median"] == pytest.approx(12.006)
    (shape,) = tables.shapes(without_kernels).frame.to_dict("records")
    assert shape["Time"] == pytest.approx(12.006) and shape["Verdict"] == "faster"
    assert "graph of ten" in tables.shapes(without_kernels).note
    assert "No kernel time of made-up-001 was accepted" in summary.text([without_kernels])


def test_without_graphs_too_the_call_is_what_is_left():
    record = measured.record(results=rows(modes=("awaited",)), voids=VOIDS)
    assert judged.key(record) == judged.CALL and "span, awaited" in judged.instead(record)


def test_a_processor_is_judged_by_calls_and_needs_no_excuse():
    record = measured.record(results=rows(), device={"kind": "cpu", "name": "a processor"})
    assert judged.key(record) == judged.CALL and judged.instead(record) is None


def test_the_stages_are_still_drawn_under_the_name_of_what_was_taken(without_kernels):
    assert [one.stage for one in own_stages.shown(without_kernels)] == ["tiled", "registers", "quads"]
    assert own_stages.of(without_kernels) == ()
    table = tables.stages(without_kernels)
    assert "Kernel time" not in table.frame and table.frame["Span a call, graph of ten"].tolist() == pytest.approx([60.03, 30.015, 12.006])
    figure = figures.progression(without_kernels)
    assert "graph of ten" in figure.alt and "kernel time" not in figure.alt
    assert figure.figure is not None


def test_the_roofline_names_what_its_rates_come_from(without_kernels):
    view = figures.roofline(without_kernels)
    assert view.figure is not None and "No kernel time of made-up-001" in view.note
    assert any("graph of ten" in text.get_text() for text in view.figure.findobj() if hasattr(text, "get_text"))


def test_prose_quotes_what_it_names(without_kernels, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "RETAINED", tmp_path / "retained")
    evidence.save(without_kernels, tmp_path / "retained" / "made-up-001" / evidence.NAME)
    q, row = Quotes("made-up-001"), "made-up-001 results[matmul/{}]".format
    graph = {"quantity": "span_us", "mode": "graph-10"}
    assert q.median(row("cuda:quads"), "12.01", **graph) == "12.01"
    assert q.against(row("cuda:quads"), row("triton:tuned"), "0.750", "faster", **graph).startswith("0.750")
    assert q.median_ratio(row("cuda:quads"), row("pytorch"), "0.60×", **graph) == "0.60×"
    assert q.best_peer(row("cuda:quads"), "triton:tuned", **graph) == "triton:tuned"
    with pytest.raises(ClaimError, match="graph-10"):
        q.against(row("cuda:quads"), row("triton:tuned"), "0.85", "faster", **graph)
    with pytest.raises(ClaimError, match="kernel time"):
        q.median(row("cuda:quads"), "12.01")


def test_a_machine_without_times_of_kernels_gets_a_sentence_instead_of_stages():
    libraries = [one for one in rows() if one["implementation"] != "cuda"]
    record = measured.record(results=libraries, device={"kind": "cpu", "name": "a processor"})
    assert tables.stages(record).empty == "made-up-001 has no stages with a time."
    assert figures.progression(record).notice == "In made-up-001 no stage of a hand-written kernel has a time."
