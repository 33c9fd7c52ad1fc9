"""Two sessions beside each other: rows agree, or the record says why not, or the command fails."""

import measured
import pytest

from mage import evidence
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
