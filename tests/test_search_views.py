"""Searches, sweeps, launch modes and reuse of a measured session: what the tables and figures say of made-up samples."""

import pytest
from bs4 import BeautifulSoup
from measured import record, result

from mage import figures, tables
from mage.claims import reuse
from mage.evidence.schema import Evidence
from mage.tables import tuning
from mage.views import selection

FIXED = {"TILE_M": 32, "TILE_N": 128, "TILE_K": 32}
FAST = {"kernel": "direct", "TILE_M": 64, "TILE_N": 64, "TILE_K": 8}


def timed(config, *samples, **more):
    return {"config": config, "state": "timed", "samples_us": samples, **more}


def not_timed(config, state, reason):
    return {"config": config, "state": state, "reason": reason}


def search(candidates, *, operation="matmul", implementation="cutile", kind="search", fixed=None, **more):
    return {
        "operation": operation, "implementation": implementation, "dims": [1024] * 3, "kind": kind, "when": "2026-11-30T12:00:00Z",
        "device": "NVIDIA H200", "versions": {}, "kernel_file": "kernels/cutile/matmul.py", "kernel_sha256": "0" * 64,
        "metric": "graph of 20 launches", "final_metric": "kernel records", "seed": 1, "fixed": fixed or FIXED,
        "candidates": candidates, "why": "its confirmation held", **more,
    }  # fmt: skip


CANDIDATES = [
    timed(FIXED, 200.0, 210.0, 190.0),
    timed(FAST, 80.0, 79.0, 90.0, registers=232, shared_bytes=20480),
    timed({**FAST, "TILE_K": 16}, 120.0),
    not_timed({**FAST, "TILE_M": 128, "TILE_N": 128}, "refused", "128 sums a thread, 16 to 64 are tried"),
    not_timed({**FAST, "TILE_M": 32, "TILE_N": 32}, "refused", "8 sums a thread, 16 to 64 are tried"),
    not_timed({**FAST, "TILE_K": 4}, "wrong", "gate: first wrong element at (3, 7)"),
    not_timed({**FAST, "TILE_N": 128}, "crashed", "an illegal memory access"),
]
CONFIRMED = {
    "runoff": [{"config": FAST, "rounds_us": [[81.0], [82.0]]}, {"config": FIXED, "rounds_us": [[199.0], [201.0]]}],
    "confirmation": {
        "seed": 2, "metric": "kernel records", "winner": {"config": FAST, "rounds_us": [[80.0], [84.0]]},
        "fixed": {"config": FIXED, "rounds_us": [[205.0], [205.0]]},
    },
    "chosen": FAST,
}  # fmt: skip


@pytest.fixture
def searched() -> Evidence:
    sweep = [
        timed(FIXED, 200.0),
        timed({**FIXED, "TILE_N": 64}, 150.0),
        not_timed({**FIXED, "TILE_M": 256}, "hung", "no answer within 10 s"),
    ]
    return record(searches=[search(CANDIDATES, **CONFIRMED), search(sweep, kind="sweep", why="a sweep chooses nothing")])


def rows(table):
    return table.frame.to_dict("records")


def test_a_search_is_summed_up_with_its_confirmation(searched):
    (row, sweep) = rows(tables.searches(searched))
    assert (row["Tried"], row["Timed"], row["Not timed"]) == (7, 3, 4)
    assert (row["Fixed"], row["Best"], row["Gain"]) == (200.0, 80.0, 2.5)
    assert row["Confirmed"] == pytest.approx(205 / 82)
    assert row["Chosen"] == "direct, 64 × 64 × 8"
    assert (sweep["Kind"], sweep["Chosen"]) == ("sweep", "nothing")


def test_a_confirmation_that_failed_keeps_the_fixed_one():
    failed = {**CONFIRMED["confirmation"], "winner": {"config": FAST, "rounds_us": [[230.0], [231.0]]}}
    evidence = record(searches=[search(CANDIDATES, **{**CONFIRMED, "confirmation": failed, "chosen": FIXED})])
    (row,) = rows(tables.searches(evidence))
    assert row["Chosen"] == "the fixed one" and row["Confirmed"] < 1
    assert rows(tables.cross_check(evidence))[1]["Verdict"] == "did not hold"


def test_every_candidate_without_a_time_is_counted_with_its_reason(searched):
    found = {(row["Kind"], row["State"]): row for row in rows(tables.not_timed(searched))}
    assert found["search", "refused"]["How many"] == 2, "reasons that differ by a number alone are one"
    assert found["search", "wrong"]["Reason of the first"] == "gate: first wrong element at (3, 7)"
    assert found["search", "crashed"]["First"] == "direct, 64 × 128 × 8"
    assert found["sweep", "hung"]["How many"] == 1
    assert sum(row["How many"] for row in found.values()) == 5


def test_what_was_built_is_listed_fastest_first_and_failures_have_no_time(searched):
    listed = rows(tables.search(searched))
    assert [row["Configuration"] for row in listed][:3] == ["direct, 64 × 64 × 8", "direct, 64 × 64 × 16", "32 × 128 × 32"]
    assert [row["What became of it"] for row in listed][:3] == ["timed, chosen", "timed", "timed, fixed"]
    assert {row["What became of it"].split(":")[0] for row in listed[3:]} == {"wrong", "crashed"}
    assert all(row["Rank"] is None or row["Rank"] != row["Rank"] for row in listed[3:])
    assert listed[0]["Run-off"] == 81.5 and listed[0]["Against fixed"] == 0.4 and listed[0]["Registers"] == 232


def test_of_other_operations_ten_and_the_fixed_one_are_listed():
    fixed = {"TILE_R": 8, "TILE_D": 128}
    many = [timed({**fixed, "TILE_R": 1 << place}, 10.0 + place) for place in range(14) if place != 3] + [timed(fixed, 40.0)]
    evidence = record(searches=[search(many, operation="gelu", fixed=fixed)])
    listed = rows(tables.search(evidence))
    assert len(listed) == 11 and listed[-1]["What became of it"] == "timed, fixed"


def test_the_sweep_stands_apart_from_the_search(searched):
    shapes = rows(tables.tile_sweep(searched))
    assert [row["Configuration"] for row in shapes] == ["32 × 64 × 32", "32 × 128 × 32", "256 × 128 × 32"]
    assert shapes[-1]["What became of it"] == "hung: no answer within 10 s"
    drawn = figures.tile_sweep(searched)
    assert "256×128×32 hung" in drawn.alt and "32×64×32 150 fastest" in drawn.alt and "published" in drawn.alt


def test_the_strip_of_a_search_says_how_many_and_the_best(searched):
    drawn = figures.searches(searched)
    assert "3 of 7 timed, from 0.400 to 1.00, the best 80.0 µs" in drawn.alt
    (values,) = rows(drawn.table)
    assert (values["Refused"], values["Wrong"], values["Crashed"], values["Hung"]) == (2, 1, 1, 0)


@pytest.mark.parametrize("view", [tables.searches, tables.not_timed, tables.search, tables.tile_sweep, tables.cross_check])
def test_a_session_without_searches_has_a_sentence_instead(view):
    page = BeautifulSoup(view(record()).html, "html.parser")
    said = page.select_one("td.mage-notice").text
    assert "in made-up-001." in said or "made-up-001 has no " in said


@pytest.mark.parametrize("view", [figures.searches, figures.tile_sweep])
def test_a_session_without_searches_has_no_empty_figure(view):
    drawn = view(record())
    assert drawn.figure is None and "made-up-001" in drawn.notice


def test_a_selection_leaves_searches_out(searched):
    assert tables.searches(searched, operations=["gelu"]).frame.empty
    assert tables.search(searched, implementations=["triton"]).frame.empty
    assert figures.searches(searched, implementations=["triton"]).figure is None


def test_tuned_against_fixed_is_judged_by_paired_rounds():
    (row,) = [row for row in rows(tables.tile_effect(record(), operations=["layernorm"]))]
    assert row["Implementation"] == "Triton" and row["Verdict"] == "slower"
    assert row["Ratio"] == pytest.approx(row["Tuned"] / row["Fixed"], abs=0.1) and row["Low"] <= row["Ratio"] <= row["High"]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "as published"),
        ({"TILE_E": 32, "TILE_F": 64, "kernel": "rows", "TILE_N": 8, "EDGES": 12}, "rows, TILE_E=32, TILE_F=64, TILE_N=8, EDGES=12"),
        ({"BLOCK_I": 64, "BLOCK_J": 64, "BLOCK_K": 32, "num_warps": 4}, "64 × 64 × 32, num_warps=4"),
        ({"kernel": "rows", "TILE_R": 2, "TILE_D": None}, "rows, TILE_R=2"),
    ],
)
def test_a_configuration_is_written_as_a_product_only_where_its_sides_make_one(config, words):
    assert tuning.words(config) == words


# -- launch modes and host costs


def with_modes(operation, which, times, host=()):
    made = result(operation, *which, base=times["awaited"])
    made["spans"] = [{"mode": mode, "cache": "warm", "rounds_us": [[time] * 3] * 3} for mode, time in times.items()]
    return {**made, "host_us": list(host)}


def test_launch_modes_of_a_session_are_medians_of_every_row():
    times = {"awaited": 30.0, "batch-10": 12.0, "graph-10": 11.0}
    evidence = record(results=[with_modes("gelu", ("cutile", "fixed"), times), with_modes("gelu", ("cutile", "tuned"), times)])
    first, second = rows(tables.launch_modes(evidence))
    assert (first["Awaited"], first["In tens"], first["Graph of ten"]) == (30.0, 12.0, 11.0)
    assert first["Wait"] == pytest.approx(30 - first["Kernel"])
    assert first["In tens vs kernel"] == pytest.approx((12 / first["Kernel"] - 1) * 100)
    assert second["Implementation"] == "cuTile, tuned"
    drawn = figures.launch_modes(evidence)
    assert "each call awaited 30.0, queued in tens 12.0, graph of ten 11.0, kernel only" in drawn.alt
    assert figures.launch_modes(evidence, matched=True).figure is None
    for view in (tables.launch_graph, tables.launch_matched):
        assert "columns of the table of launch modes" in view(evidence).html


def test_host_costs_of_a_session_are_by_implementation_and_of_the_newest_stage():
    times = {"awaited": 30.0}
    evidence = record(
        results=[
            with_modes("matmul", ("cutile", "fixed"), times, [11.0, 12.0, 40.0]),
            with_modes("gelu", ("cutile", "fixed"), times, [10.0]),
            with_modes("matmul", ("cuda", "pipeline"), times, [4.0, 5.0]),
            with_modes("matmul", ("cuda", "tiled"), times, [9.0]),
        ]
    )
    tile, hand = rows(tables.host_costs(evidence))
    assert (tile["Matmul"], tile["Bias\u00a0+\u00a0GELU"]) == (12.0, 10.0)
    assert (hand["Implementation"], hand["Matmul"]) == ("CUDA C++", 4.5)


# -- reuse


def test_reuse_is_counted_in_two_ways():
    assert reuse.flops_per_byte("matmul", (1024, 1024, 1024)) == pytest.approx(2 * 1024**3 / (3 * 4 * 1024**2))
    assert reuse.uses_of_a_byte("matmul", (1024, 1024, 1024)) == 1024
    assert reuse.uses_of_a_byte("triangle", (128, 32)) == 128
    assert reuse.uses_of_a_byte("gelu", (4096, 768)) == pytest.approx(2 * 4096 / 4097)
    assert reuse.uses_of_a_byte("layernorm", (4096, 768)) == pytest.approx(4 * 4096 / 4098)
    edges = 2 * 65536 * 64 + 65536 + 2 * 4096
    assert reuse.uses_of_a_byte("neighbor", (4096, 64, 65536)) == pytest.approx(edges / (4096 * 64 + 2 * 65536 + 4097))


HAND = {"matmul": "quads", "gelu": "elementwise", "triangle": "elementwise", "neighbor": "feature", "layernorm": "pair"}


def session(ratios, **more):
    """A session in which the tile compiler takes ``ratios`` times as long as the hand-written stage, in kernel time."""
    made = []
    for operation, ratio in ratios.items():
        for which, time in ((("cutile", "fixed"), 20.0 * ratio), (("cuda", HAND[operation]), 20.0)):
            row = result(operation, *which, base=time)
            row["kernels"] = [{**row["kernels"][0], "rounds_us": [[time * noise] * 3 for noise in (1, 1.001, 0.999, 1.0)]}]
            made.append(row)
    return record(results=made, **more)


@pytest.mark.parametrize(
    ("ratios", "word", "counts"),
    [
        ({"gelu": 0.7, "triangle": 1.5, "matmul": 2.0}, reuse.HOLDS, (3, 0, 0)),
        ({"gelu": 3.0, "triangle": 1.5, "matmul": 0.5}, reuse.REVERSED, (0, 3, 0)),
        ({"gelu": 0.7, "layernorm": 6.0, "matmul": 2.0}, reuse.IN_PART, (2, 1, 0)),
        ({"gelu": 1.5, "matmul": 1.5}, reuse.UNDECIDED, (0, 0, 1)),
    ],
)
def test_the_claim_on_reuse_is_judged_by_the_sessions_own_ratios(ratios, word, counts):
    evidence = session(ratios)
    found = [row for row in rows(tables.reuse_order(evidence)) if row["Compared"] == reuse.AS_PUBLISHED and row["Reuse by"] == reuse.USES]
    (row,) = found
    assert row["Claim"] == word
    assert (row["As claimed"], row["Other way round"], row["Undecided"]) == counts
    assert row["Tile compiler wins"] == (", ".join(name for name in ratios if ratios[name] < 0.99) or "none")


def test_a_measured_pair_has_the_interval_of_its_paired_rounds_and_names_its_rows():
    drawn = figures.reuse_and_ratio(session({"gelu": 0.7, "matmul": 2.0}), statistic="median")
    matmul = next(row for row in rows(drawn.table) if row["Operation"] == "Matrix multiplication")
    assert matmul["Compared"] == "cuTile ÷ CUDA C++, quads"
    assert matmul["Low"] <= 2.0 <= matmul["High"] and matmul["High"] - matmul["Low"] < 0.02
    assert (matmul["Verdict"], matmul["Sessions"]) == ("slower", "one")
    assert "2.00 at 171 flops per byte and 1020 uses of an input byte" in drawn.alt


def test_the_fastest_rows_of_either_side_are_compared_as_well():
    evidence = session({"matmul": 3.0})
    tuned = result("matmul", "cutile", "tuned", base=16.0)
    tuned["kernels"] = [{**tuned["kernels"][0], "rounds_us": [[16.0] * 3] * 4}]
    evidence = Evidence.model_validate({**evidence.model_dump(by_alias=True), "results": [*evidence.model_dump()["results"], tuned]})
    found = {pair.kind: pair for pair in reuse.pairs(selection.rows(evidence))}
    assert found[reuse.AS_PUBLISHED].verdict.word == "slower"
    assert found[reuse.FASTEST].tile.result.variant == "tuned" and found[reuse.FASTEST].verdict.word == "faster"


def test_two_sessions_give_an_order_and_no_verdict(published):
    wanted = {"implementations": ["rust-cutile", "rust-oxide"]}
    pair = [published["mage-004"], published["mage-003"]]
    for row in rows(tables.reuse_order(pair, **wanted)):
        assert row["Claim"].startswith("no verdict") and row["As claimed"] + row["Other way round"] == 10
    drawn = figures.reuse_and_ratio(pair, **wanted)
    assert "hollow" in drawn.note.lower() and drawn.table.frame["Verdict"].isna().all()


@pytest.fixture
def published():
    import mage

    return {name: mage.load(name) for name in ("mage-003", "mage-004")}


def test_a_session_is_read_with_the_retained_searches_of_its_device():
    import mage
    from mage import evidence

    kept = evidence.load("h200-tune")
    assert not kept.results and len(kept.searches) == 12  # ten kernels, the parameters of banks, and the twelve published tiles
    session = mage.with_searches(evidence.load("h200-004"))
    assert session.searches == kept.searches
    elsewhere = evidence.load("h200-004")
    elsewhere = elsewhere.model_copy(update={"device": elsewhere.device.model_copy(update={"name": "NVIDIA L4"})})
    assert mage.with_searches(elsewhere) is elsewhere
    published = evidence.load("mage-004")
    assert mage.with_searches(published) is published


def test_searches_stand_in_one_order_in_tables_and_figures():
    runs = [search([timed(FIXED, 2.0)], implementation=name) for name in ("cutile", "triton")]
    session = record(searches=[search([timed(FIXED, 2.0)], operation="gelu"), *runs])
    assert [run.key for run in selection.searches(session, "matmul", ["cutile"])] == [session.searches[1].key]
    views = tables.searches(session), figures.searches(session).table
    listed, drawn = ([row["Implementation"] for row in view.frame.to_dict("records")] for view in views)
    assert listed == drawn == ["Triton", "cuTile", "cuTile"]
