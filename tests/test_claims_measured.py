"""Prose quotes medians and verdicts of a measured session only as its samples give them."""

import pytest

from mage import evidence, paths
from mage.claims import Quotes
from mage.errors import ClaimError
from mage.evidence.schema import Round
from mage.tables.launch_cost import cost_us, launch_cost
from tests.measured import record, result

ROW = "made-up-001 results[{}]"
CUDA, TRITON, LIBRARY = (ROW.format(f"gelu/{name}") for name in ("cuda:pipeline", "triton:tuned", "pytorch"))


@pytest.fixture
def session(tmp_path, monkeypatch):
    """Made-up evidence on disk; ``session(**changes)`` quotes from it."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "RETAINED", tmp_path / "retained")

    def made(**changes):
        evidence.save(record(**changes), tmp_path / "retained" / "made-up-001" / evidence.NAME)
        return Quotes("made-up-001")

    return made


def test_a_median_is_that_of_the_samples(session):
    q = session()
    # samples of the row: 20 + 18 + (0, 1, 2) + (0, 0.1, 0.2), a stall in each round; halves in two kernels of a quarter
    assert q.median(CUDA, "39.6 µs", quantity="span_us").replace("\u202f", " ") == "39.6 µs"
    assert q.median(CUDA, "19.8").startswith("19.8")
    with pytest.raises(ClaimError, match="median kernel time, awaited, warm.*mend the text or the evidence"):
        q.median(CUDA, "18.6")
    with pytest.raises(ClaimError, match="no row with samples|not a row with samples"):
        q.median(CUDA, "19.8", cache="cold")


def test_a_ratio_comes_with_its_interval_and_its_word(session):
    q = session()
    said = q.against(CUDA, LIBRARY, "1.86", "slower")
    assert said.startswith("1.86 (95") and said.endswith(": slower)")
    assert q.against(LIBRARY, CUDA, "0.54", "faster").endswith(": faster)")
    with pytest.raises(ClaimError, match="is slower; mend"):
        q.against(CUDA, LIBRARY, "1.86", "faster")
    with pytest.raises(ClaimError):
        q.against(CUDA, LIBRARY, "1.70", "slower")
    assert q.median_ratio(CUDA, LIBRARY, "1.8×") == "1.8×"


def test_a_loaded_round_judges_nothing(session):
    rounds = [Round(part="kernels", number=number, loaded="control out of its band" if number else None) for number in range(3)]
    with pytest.raises(ClaimError, match="too few rounds"):
        session(rounds=[one.model_dump() for one in rounds]).against(CUDA, LIBRARY, "1.86", "slower")


def test_the_best_peer_is_the_fastest_of_the_others(session):
    q = session()
    assert q.best_peer(CUDA, "pytorch") == "pytorch"
    assert q.best_peer(LIBRARY, "pytorch-compiled:default") == "pytorch-compiled:default"
    assert q.best_peer(CUDA, "triton:fixed", variants="triton:tuned triton:fixed") == "triton:fixed"
    with pytest.raises(ClaimError, match="is pytorch; mend"):
        q.best_peer(CUDA, "triton:tuned")


def test_a_launch_costs_what_the_span_holds_beside_timer_and_kernel():
    made = record(rounds=[Round(part="spans", number=number, empty_us=(5.0, 6.0, 7.0)).model_dump() for number in range(3)])
    frame = launch_cost(made, operations=["gelu"]).frame.set_index("Implementation")
    row = next(one for one in made.results if one.key == "gelu/cuda:pipeline")
    # medians of the rounds 38.15, 39.15 and 40.15, two kernels of a quarter of 39.6 each, the timer's own 6
    assert cost_us(row, dict.fromkeys(range(3), 6.0)) == pytest.approx(39.15 - 6 - 19.8, abs=0.06)
    assert frame["Launch cost"].iloc[-1] == pytest.approx(cost_us(row, dict.fromkeys(range(3), 6.0)))
    assert frame["Graph of ten"].isna().all() and frame["Over the graph"].isna().all()
    assert cost_us(row, {}) is None
    assert launch_cost(evidence.load("mage-006")).frame.empty


def test_a_host_that_slows_down_for_some_rounds_makes_no_launch_dearer():
    row = result("gelu", "cuda", "quads", 20.0)
    (span,) = [one for one in row["spans"] if (one["mode"], one["cache"]) == ("awaited", "warm")]
    span["rounds_us"] = [[time + (4.0 if number < 2 else 0.0) for time in turn] for number, turn in enumerate(span["rounds_us"])]
    rounds = [Round(part="spans", number=number, empty_us=(10.0 if number < 2 else 6.0,)).model_dump() for number in range(3)]
    (shown,) = launch_cost(record(results=[row], rounds=rounds)).frame.to_dict("records")
    assert shown["Launch cost"] == pytest.approx(21.15 - 6 - shown["Kernel"])  # 20.15, 21.15 and 22.15 over what the host added


def test_what_an_awaited_call_takes_over_one_in_a_graph_needs_no_kernel_time():
    row = result("gelu", "cuda", "quads", 20.0) | {"kernels": []}
    row["spans"].append({"mode": "graph-10", "cache": "warm", "rounds_us": [[9.0, 9.5, 10.0]] * 3})
    made = record(results=[row], rounds=[Round(part="spans", number=number, empty_us=(6.0,)).model_dump() for number in range(3)])
    (shown,) = launch_cost(made).frame.to_dict("records")
    # medians of the rounds of the span: 20.15, 21.15, 22.15
    assert shown["Graph of ten"] == 9.5 and shown["Over the graph"] == pytest.approx(21.15 - 6.0 - 9.5)
    assert shown["Kernel"] is None and shown["Launch cost"] is None
