"""Tables hold what the evidence holds, in the reader's selection, and say what it does not hold."""

import inspect

import pytest

from mage import evidence, tables
from mage.errors import RequestError
from mage.evidence.schema import Evidence

# Tables of the gate, of the census and of the contracts take something else, and have tests of their own.
OF_EVIDENCE = [
    name
    for name in tables.__all__
    if not {"results", "frame", "outcomes", "counts"} & set(inspect.signature(getattr(tables, name)).parameters) and name != "contracts"
]
EXPERIMENTS = ("mage-001", "mage-002", "mage-003", "mage-004", "mage-006")


@pytest.fixture(scope="module")
def records() -> dict[str, Evidence]:
    return {name: evidence.load(name) for name in EXPERIMENTS}


def made(name: str, record: Evidence, records: dict[str, Evidence], **selection):
    """A table by name, whatever else it needs beside ``record``, with as much of ``selection`` as it takes."""
    function = getattr(tables, name)
    taken = {key: value for key, value in selection.items() if key in inspect.signature(function).parameters}
    every, third = [list(records.values())], [records["mage-003"]]
    more = {"drift": every, "agreement": third, "claim": third, "claims_here": every}.get(name, [])
    if name == "claims_here":
        taken["note"] = "load-in-flight"
    first = [record] if name in ("conditions", "observations") else record
    return function(first, *more, **taken)


@pytest.mark.parametrize("name", OF_EVIDENCE)
def test_every_table_stands_for_every_experiment_and_selection(name, records):
    """A note may not lose a declared table to a parameter: nothing to show is said in a sentence."""
    ids = set()
    for record in records.values():
        for selection in ({}, {"operations": []}, {"implementations": []}, {"operations": ["gelu"], "implementations": ["numpy"]}):
            view = made(name, record, records, **selection)
            ids.add(view.id)
            if view.frame.empty:
                assert record.experiment in view.empty, view.empty
                assert view.empty in view.html
    assert len(ids) == 1


@pytest.mark.parametrize("name", [name for name in OF_EVIDENCE if "operations" in inspect.signature(getattr(tables, name)).parameters])
def test_a_table_shows_the_chosen_operations_alone(name, records):
    for record in records.values():
        every = made(name, record, records).frame
        one = made(name, record, records, operations=["layernorm"]).frame
        if "Operation" in every:
            assert list(one["Operation"]) == [value for value in every["Operation"] if value == "LayerNorm"]


@pytest.mark.parametrize(
    "name", [name for name in OF_EVIDENCE if "implementations" in inspect.signature(getattr(tables, name)).parameters]
)
def test_a_table_shows_the_chosen_implementations_alone(name, records):
    for record in records.values():
        frame = made(name, record, records, implementations=["triton"]).frame
        if "Implementation" in frame:
            assert set(frame["Implementation"]) <= {"Triton"}


def test_an_unknown_word_is_refused_with_the_nearest(records):
    with pytest.raises(RequestError, match="did you mean 'layernorm'"):
        tables.stages(records["mage-006"], operations=["layernrom"])
    with pytest.raises(RequestError, match="did you mean 'fastest-round'"):
        tables.results(records["mage-006"], statistic="fastest")


def test_the_first_stage_has_no_factor_and_the_others_that_of_the_stage_before(records):
    frame = tables.stages(records["mage-006"]).frame
    matmul = frame[frame["Operation"] == "Matmul"]
    assert matmul["Factor"].isna().tolist() == [True, False, False, False]
    assert matmul["Factor"].tolist()[1:] == pytest.approx([343.99 / 141.70, 141.70 / 80.00, 80.00 / 68.62])
    norm = frame[frame["Operation"] == "LayerNorm"]
    assert norm["Factor"].isna().tolist()[0], "the first stage of an operation has none before it, whatever came above"


def test_rewrites_are_the_last_two_stages_of_each_kernel(records):
    assert tables.rewrites(records["mage-006"]).frame["Stage"].tolist() == ["quads", "pipeline", "pair", "row"]
    assert tables.rewrites(records["mage-003"]).frame["Stage"].tolist() == ["registers", "quads", "warp", "pair"]


def test_a_statistic_chooses_the_span_and_names_what_is_shown(records):
    row = next(row for row in records["mage-006"].results if row.key == "gelu/triton")
    chosen = {"operations": ["gelu"], "implementations": ["triton"]}
    for statistic, value in (
        ("mean", row.means.span_us),
        ("fastest-round", row.means.span_round_min_us),
        ("slowest-round", row.means.span_round_max_us),
    ):
        view = tables.results(records["mage-006"], statistic=statistic, **chosen)
        assert view.frame["Span"].tolist() == [value]
        assert f"Span: {statistic.replace('-', ' ')}" in view.note
        assert "Kernel time: mean" in view.note, "kernel time was published as a mean alone"


def test_a_median_of_published_means_is_refused(records):
    with pytest.raises(RequestError, match="mage-006 has no samples"):
        tables.results(records["mage-006"], statistic="median")


def test_what_was_asked_for_and_is_not_there_is_said(records):
    note = tables.results(records["mage-006"], implementations=["triton", "rust-cutile"]).note
    assert "mage-006 holds nothing of cuTile Rust; it also holds PyTorch, cuda-oxide" in note
    assert "holds nothing" not in tables.results(records["mage-006"], implementations=["triton"]).note


def test_a_column_from_another_experiment_carries_its_name(records):
    view = tables.kernel_times([records["mage-004"], records["mage-003"]])
    assert list(view.frame)[2:] == ["PyTorch", "Triton", "cuTile Rust", "cuda-oxide, mage-003"]
    assert "without a verdict" in view.note
    alone = tables.kernel_times(records["mage-004"])
    assert "mage-003" not in " ".join(map(str, [*alone.frame, alone.note]))


def test_the_published_count_follows_from_the_two_columns(records):
    words = dict(
        zip(*(tables.claim(records["mage-004"], records["mage-003"]).frame[name] for name in ("Operation", "Published as")), strict=True)
    )
    assert list(words.values()) == ["loss", "win", "draw", "loss", "loss"]
    strict = tables.claim(records["mage-004"], records["mage-003"], draw_within_pct=1).frame["Published as"].tolist()
    assert strict == ["loss", "win", "loss", "loss", "loss"]


def test_drift_is_recomputed_from_the_experiment_it_names(records):
    frame = tables.drift(records["mage-006"], records.values()).frame.set_index(["Operation", "Implementation"])
    assert frame.loc[("Neighbor", "cuda-oxide"), "Change"] == pytest.approx((10.334 / 10.325 - 1) * 100)
    assert frame.loc[("Neighbor", "cuda-oxide"), "Published"] == 0.0
    unknown = tables.drift(records["mage-006"], []).frame
    assert unknown["Before"].isna().all() and unknown["Change"].isna().all(), "no other number may stand in"


def test_an_observation_outside_its_band_is_said_to_lie_there(records):
    frame = tables.controls(records["mage-006"], operations=["matmul"], implementations=["triton"]).frame
    assert frame["Remark"][0].startswith("10.71 µs above")


def test_every_trial_of_the_search_is_a_row_fastest_first(records):
    frame = tables.search(records["mage-004"]).frame
    candidates = frame[frame["Trial"] == "candidate"]
    assert len(candidates) == records["mage-004"].search.candidates == 36
    assert candidates["Median"].is_monotonic_increasing and candidates["Rank"].tolist() == list(range(1, 37))
    assert frame["Trial"].tolist()[-2:] == ["run-off", "run-off"]


def test_launch_modes_are_told_apart_by_the_run(records):
    frame = tables.launch_modes(records["mage-004"], operations=["gelu"]).frame
    assert frame["Awaited"].tolist() == [25.76, 24.64] and frame["Matmul tile"].nunique() == 2
    assert frame["Wait"].tolist() == pytest.approx([25.76 - 8.19, 24.64 - 7.97])
    graph = tables.launch_graph(records["mage-004"], operations=["gelu"]).frame
    assert graph["Graph 10"].tolist() == [8.73, 8.67] and graph["Graph 25"].tolist() == [7.77, 7.73]


def test_stages_are_the_hand_written_kernels_own(records):
    for name in ("stages", "stage_spans", "rewrites"):
        assert made(name, records["mage-006"], records, implementations=["pytorch", "triton"]).frame.empty
        assert not made(name, records["mage-006"], records, implementations=["rust-oxide"]).frame.empty


def test_an_empty_table_says_whether_evidence_or_selection_has_nothing(records):
    assert tables.search(records["mage-006"]).empty == "mage-006 has no search."
    assert tables.search(records["mage-004"], operations=["gelu"]).empty == "Nothing in mage-004 matches the selection."
