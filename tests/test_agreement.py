"""Two sessions beside each other: rows agree, or the record says why not, or the command fails."""

import measured
import pytest

from mage import evidence, tables
from mage.errors import RequestError
from mage.stats import agreement

LATER = "2026-12-01T12:00:00Z"


def row(time, implementation="cuda", variant="elementwise", **changes):
    """One gelu row of a kernel a call; ``changes`` are the kernel's: name, grid, registers."""
    kernel = {"name": "k", "grid": [8, 1, 1], "block": [128, 1, 1], "registers": 32, "shared_bytes": 0, "mode": "awaited", "cache": "warm"}
    made = {"operation": "gelu", "dims": [4096, 768], "implementation": implementation, "variant": variant, "launches": 1}
    return {**made, "kernels": [{**kernel, "rounds_us": [[time] * 3] * 3, **changes}] if time else []}


def sessions(first, second, **changes):
    return measured.record(results=first), measured.record(results=second, **{"when": LATER, "experiment": "made-up-002", **changes})


@pytest.mark.parametrize(
    ("one", "other", "word"),
    [
        (50.0, 50.9, "agrees"),  # 1.8 %
        (50.0, 51.1, "DISAGREES"),  # 2.2 %
        (51.1, 50.0, "DISAGREES"),
        (4.00, 4.09, "agrees"),  # 2.3 %, and below 0.1 µs
        (4.00, 4.11, "DISAGREES"),
    ],
)
def test_sessions_agree_within_two_percent_or_a_tenth_of_a_microsecond(one, other, word):
    (found,) = agreement.rows(*sessions([row(one)], [row(other)]))
    assert found.word == word and found.difference_pct == pytest.approx(100 * (other / one - 1))


@pytest.mark.parametrize(
    "change", [{"grid": [16, 1, 1]}, {"block": [256, 1, 1]}, {"registers": 40}, {"shared_bytes": 1024}, {"name": "triton_tem_1"}], ids=str
)
def test_another_configuration_explains_and_is_named(change):
    searched = ("pytorch-compiled", "max-autotune-no-cudagraphs")
    (found,) = agreement.rows(*sessions([row(9.0, *searched)], [row(5.0, *searched, **change)]))
    assert found.word == "explained"
    assert found.why.startswith("other configuration: k (8 blocks of 128 threads, 32 registers, 0 bytes), then ")


def cold(made, time):
    return {**made, "kernels": [*made["kernels"], {**made["kernels"][0], "cache": "cold", "rounds_us": [[time] * 3] * 3}]}


def test_what_differs_warm_and_agrees_cold_differs_by_the_cache():
    (found,) = agreement.rows(*sessions([cold(row(50.0), 60.0)], [cold(row(52.0), 60.9)]))
    assert found.word == "explained"
    assert found.why == "warm only: from a cold cache 60.00 and 60.90 µs, so what the cache holds of its data differs"
    (found,) = agreement.rows(*sessions([cold(row(50.0), 60.0)], [cold(row(52.0), 62.0)]))
    assert found.word == "DISAGREES"
    (found,) = agreement.rows(*sessions([cold(row(50.0), 60.0)], [row(52.0)]))
    assert found.word == "DISAGREES"


def test_the_table_lists_what_both_hold_the_unexplained_first_and_counts_the_rest():
    large = {**row(20.0), "dims": [8192, 768], "at": "8192x768"}
    one, other = sessions([row(9.0), row(4.0, "triton", "fixed"), large], [row(9.1), row(5.0, "triton", "fixed")])
    view = tables.agreement(one, other)
    assert view.frame[["Row", "Agrees"]].to_numpy().tolist() == [["gelu/triton:fixed", "no"], ["gelu/cuda:elementwise", "yes"]]
    assert "Rows of made-up-001 that made-up-002 has not: 1." in view.note
    chosen = tables.agreement(one, other, operations=["matmul"])
    assert chosen.frame.empty and "matches the selection" in chosen.empty


def test_the_table_counts_no_row_that_only_the_other_has():
    norm, elsewhere = {**row(3.0), "operation": "layernorm"}, {**row(5.0), "dims": [128, 768]}
    one, other = sessions([row(9.0), norm], [row(9.0), elsewhere])
    assert "has not: 1." in tables.agreement(one, other).note
    assert "has not" not in tables.agreement(one, other, operations=["gelu"]).note
    chosen = tables.agreement(one, other, operations=["layernorm"])
    assert chosen.frame.empty and chosen.empty == "made-up-002 has none of these rows."


def test_the_table_of_sessions_on_two_devices_is_a_sentence():
    view = tables.agreement(*sessions([row(9.0)], [row(9.0)], device={"kind": "gpu", "name": "NVIDIA L4"}))
    assert view.frame.empty and "nothing to agree on" in view.empty
    assert "one device" not in view.caption


UNEXPLAINED = {
    "h200-004": ["triangle/pytorch-compiled:max-autotune-no-cudagraphs"],
    "h200-006": ["triangle/pytorch-compiled:max-autotune-no-cudagraphs"],
    "h200-010": [],
    "h200-011": [
        "triangle/pytorch-compiled:max-autotune-no-cudagraphs", "triangle/triton:tuned@64x32",
        "neighbor/pytorch-compiled:default@4096x64x65536+power-law", "neighbor/cuda:hubs@4096x64x65536+power-law",
    ],
}


@pytest.mark.parametrize("experiment", UNEXPLAINED)
def test_the_retained_second_session_holds_every_row_at_its_own_shape_and_what_is_unexplained(experiment):
    first, again = evidence.load(experiment), evidence.load("h200-again")
    kept = [one for one in agreement.rows(first, again) if one.word != agreement.ALONE]
    assert {one.key for one in first.results if one.at is None and one.kernels} <= {one.key for one in kept}
    assert all(None not in (one.one_us, one.other_us) for one in kept)
    assert [one.key for one in kept if one.word == agreement.DISAGREES] == UNEXPLAINED[experiment]


def test_no_time_is_explained_by_a_void_or_the_gate_and_by_nothing_else():
    missing = row(None)
    void = {"row": "gelu/cuda:elementwise", "quantity": "kernel_us", "reason": "9 of 10 records"}
    (found,) = agreement.rows(*sessions([row(9.0)], [missing], voids=[void]))
    assert (found.word, found.why) == ("explained", "made-up-002: 9 of 10 records")
    (found,) = agreement.rows(*sessions([row(9.0)], [{**missing, "gate": {"passed": "failed", "reason": "all zero"}}]))
    assert (found.word, found.why) == ("explained", "made-up-002: gate failed: all zero")
    (found,) = agreement.rows(*sessions([row(9.0)], [missing]))
    assert found.word == "DISAGREES" and "no reason is recorded" in found.why
    for elsewhere in ({**void, "quantity": "span_us"}, {**void, "mode": "awaited", "cache": "cold"}):
        (found,) = agreement.rows(*sessions([row(9.0)], [missing], voids=[elsewhere]))
        assert found.word == "DISAGREES"


def test_shapes_are_held_against_their_own():
    large = {**row(20.0), "dims": [8192, 768], "at": "8192x768"}
    found = agreement.rows(*sessions([row(9.0), large], [row(9.0), {**large, "kernels": row(20.1)["kernels"]}]))
    assert [(one.key, one.word) for one in found] == [("gelu/cuda:elementwise", "agrees"), ("gelu/cuda:elementwise@8192x768", "agrees")]


def test_a_row_of_one_session_alone_is_listed_with_what_the_other_lacks():
    other_dims = {**row(5.0, "triton", "fixed"), "dims": [128, 768]}
    first = [row(9.0), row(7.0, variant="quads"), row(5.0, "triton", "fixed"), {**row(20.0), "dims": [8192, 768], "at": "8192x768"}]
    second = [row(9.0), other_dims, {**row(3.0), "operation": "layernorm"}, row(6.0, "cutile", "fixed")]
    found = {(one.key, one.one_us, one.other_us): (one.word, one.why) for one in agreement.rows(*sessions(first, second))}
    assert found == {
        ("gelu/cuda:elementwise", 9.0, 9.0): ("agrees", None),
        ("gelu/cuda:quads", 7.0, None): ("in one only", "made-up-002 has cuda rows of gelu, and not this one"),
        ("gelu/triton:fixed", 5.0, None): ("in one only", "made-up-002 has it at 128 × 768, not at 4096 × 768"),
        ("gelu/cuda:elementwise@8192x768", 20.0, None): ("in one only", "made-up-002 has no row of gelu at 8192x768"),
        ("gelu/triton:fixed", None, 5.0): ("in one only", "made-up-001 has it at 4096 × 768, not at 128 × 768"),
        ("layernorm/cuda:elementwise", None, 3.0): ("in one only", "made-up-001 has no row of layernorm"),
        ("gelu/cutile:fixed", None, 6.0): ("in one only", "made-up-001 has no cutile row of gelu"),
    }
    with pytest.raises(RequestError, match="have no row in common"):
        agreement.rows(*sessions([row(5.0, "triton", "fixed")], [other_dims]))


@pytest.mark.parametrize(
    ("changes", "said"), [({"device": {"kind": "gpu", "name": "NVIDIA L4"}}, "L4"), ({"when": "2026-11-30T12:00:00Z"}, "one session")]
)
def test_what_cannot_agree_is_refused(changes, said):
    with pytest.raises(RequestError, match=said):
        agreement.rows(*sessions([row(9.0)], [row(9.0)], **changes))


@pytest.mark.parametrize(("time", "code"), [(9.05, 0), (9.9, 1)])
def test_the_command_prints_the_table_and_fails_on_what_is_unexplained(time, code, tmp_path, run_mage):
    files = [tmp_path / "one.json", tmp_path / "folder" / "evidence.json"]
    other, new = row(12.0, "triton", "fixed"), row(3.0, "cutile", "fixed")
    for file, made in zip(files, sessions([row(9.0), other], [row(time), other, new]), strict=True):
        evidence.save(made, file)
    result = run_mage("agree", str(files[0]), str(files[1].parent))
    assert result.rc == code, result.said
    lines = result.stdout.splitlines()
    assert lines[-1] == f"3 rows: {2 - code} agree, 0 explained, {code} unexplained, 1 in one session only"
    assert "9.00" in result.stdout and f"{time:.2f}" in result.stdout
    assert ("DISAGREES" in lines[-2]) is bool(code)


def test_an_experiment_is_named_and_an_unknown_one_refused(run_mage):
    assert agreement.named("h200-006").experiment == "h200-006"
    assert run_mage("agree", "h200-006", "h200-06").rc == 2
