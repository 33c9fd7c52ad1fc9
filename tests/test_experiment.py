"""A measurement: taken for real on this machine's CPU, and its rules on records that were made up to break them."""

import math
import os
from dataclasses import replace
from random import Random

import pytest

from mage import evidence, implementations, tables
from mage.evidence.schema import Ceilings, Device, DeviceState, Round
from mage.experiment import captures, counters, measurement, plan, record, samples
from mage.experiment.captures import Segment
from mage.experiment.cases import Case
from mage.experiment.measurement import Asked
from mage.experiment.samples import Key, Taken
from mage.experiment.shapes import Row
from mage.experiment.split import Split
from mage.kernels import cuda_stages
from mage.profile import KernelRecord
from mage.stats import verdicts

SMALL = {"matmul": (32, 32, 32), "gelu": (16, 64), "layernorm": (16, 64), "triangle": (8, 4), "neighbor": (32, 8, 100)}
ROUNDS = 12
A_DEVICE = {"CUDA_VISIBLE_DEVICES": f"experiment-{os.getpid()}"}
"""A name of its own for the device, which tests beside this one measure on too."""


# --- on this machine -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured():
    if experiment_has_gpu():
        pytest.skip("this machine measures on its GPU")
    wanted = Asked(
        experiment="here-test", operations=tuple(SMALL), implementations=("pytorch", "triton", "cuda", "numpy")
    )
    return measurement.measure([wanted], dims=SMALL, say=lambda line: None)[0]


def experiment_has_gpu():
    import torch

    return torch.cuda.is_available()


def test_every_row_is_gated_and_then_timed(measured):
    assert {row.operation for row in measured.results} == set(SMALL)
    for row in measured.results:
        assert row.gate["passed"] == "passed" and row.gate["after timing"] == "passed"
        assert row.max_abs_error < 1e-4 and row.dims == SMALL[row.operation]
        (spans,) = row.spans
        assert (spans.mode, spans.cache) == ("awaited", "warm")
        assert [len(one) for one in spans.rounds_us] == [5] * 5


def test_what_is_simulated_on_a_cpu_is_never_timed(measured):
    assert {row.implementation for row in measured.results} == {"pytorch", "numpy"}


def test_the_record_says_how_and_where_it_was_taken(measured):
    assert measured.origin == "here" and measured.device.kind == "cpu"
    assert "threads" in measured.method.instruments["span_us"]
    assert measured.configuration["torch.get_num_threads()"].isdecimal()
    assert len(measured.inputs.sha256) == 2 + 2 + 3 + 2 + 4
    assert [one.number for one in measured.rounds] == list(range(5)) and all(one.control_us for one in measured.rounds)


def test_the_split_of_the_wall_time_adds_up(measured):
    parts = {part: seconds for part, seconds in measured.wall_s.items() if part != "total"}
    assert {"gate", "kernels"} <= set(parts)
    assert sum(parts.values()) == pytest.approx(measured.wall_s["total"], abs=0.1)


def test_the_record_can_be_written_and_read_back(measured, tmp_path):
    evidence.save(measured, tmp_path / "evidence.json")
    assert evidence.read(tmp_path / "evidence.json") == measured


def test_measure_writes_evidence_and_prints_its_table(tiny_tree, run_mage):
    tiny_tree.note()
    tiny_tree.params("here-tiny", operations=["gelu"], implementations=["pytorch", "numpy"])
    result = run_mage("measure", "here-tiny", root=tiny_tree.root, env=A_DEVICE)
    assert result.rc == 0, result.said
    assert "gelu" in result.stdout and "wall time" in result.stdout
    assert evidence.read(tiny_tree.output("here-tiny") / "evidence.json").experiment == "here-tiny"


@pytest.mark.parametrize("name, said", [("nothing", "no params file"), ("z9000-001", "name holds 'z9000'")])
def test_a_measurement_that_cannot_be_is_refused(tiny_tree, run_mage, name, said):
    tiny_tree.note()
    tiny_tree.params("z9000-001", operations=["gelu"])
    result = run_mage("measure", name, root=tiny_tree.root, env=A_DEVICE)
    assert result.rc == 2 and said in result.message


def test_published_evidence_is_not_measured_anew(run_mage):
    result = run_mage("measure", "mage-006", env=A_DEVICE)
    assert result.rc == 2 and "published" in result.message


@pytest.mark.gpu
def test_a_whole_measurement_on_the_gpu():
    wanted = Asked(experiment="here-test", operations=("gelu",), implementations=("pytorch", "triton", "cuda"))
    found = measurement.measure([wanted], counters=False, pairs=6, rounds=4)[0]
    stages = {f"gelu/cuda:{name}" for name in cuda_stages.STAGES["gelu"]}
    rows = {row.key: row for row in found.results}
    assert {"gelu/pytorch", "gelu/triton:fixed", *stages} <= set(rows)
    for row in (row for key, row in rows.items() if key != "gelu/triton:tuned"):  # chosen on a few GPUs only
        keys = {(spans.mode, spans.cache) for spans in row.spans}
        assert row.gate["after timing"] == "passed"
        assert found.voids or keys == {("awaited", "warm"), ("batch-10", "warm"), ("graph-10", "warm"), ("awaited", "cold")}
    assert {one.quantity for one in found.false_alarms} == {"span_us", "kernel_us"}
    assert 500 < found.ceilings.dram_gb_s < 20000


def test_the_probe_has_every_kernel_that_is_launched():
    from mage import cuda
    from mage.cuda import cubins
    from mage.experiment import probe

    found = cubins.usage(cuda.build("probe", "sm_90", probe.source()).cubin, "sm_90")
    names = {"mage_marker", "mage_evict", "mage_control", "mage_clock", "mage_copy", "mage_fma"}
    assert set(found) == names


# --- made-up sessions ----------------------------------------------------------------------------------------------


def round_(number, part="kernels", **changes):
    given = {"control_us": (100.0, 100.1, 99.9), "sm_mhz": 1980.0, "state": DeviceState(throttle_reasons=())}
    return Round(part=part, number=number, **{**given, **changes})


def kernel_key(row="gelu/cuda:elementwise", cache="warm"):
    return Key(row, "kernel_us", "awaited", cache)


def case(row="gelu/cuda:elementwise"):
    operation, _, rest = row.partition("/")
    implementation, _, variant = rest.partition(":")
    return Case(operation, implementation, variant or None, (4096, 768), {"passed": "passed", "max_abs_err": 1e-6})


def session(**changes):
    """A GPU session of one row, nothing wrong with it: twelve rounds of five calls of about 5 µs."""
    random = Random(1)
    turns = [Taken((tuple(5 + 0.01 * random.random() for _ in range(5)),)) for _ in range(ROUNDS)]
    given = {
        "plan": plan.Plan(operations=("gelu",), implementations=("cuda",), rounds=ROUNDS),
        "device": Device(kind="gpu", name="a made-up GPU"),
        "cases": [case()],
        "taken": {kernel_key(): turns},
        "rounds": [round_(number) for number in range(ROUNDS)],
        "kernels": {"gelu/cuda:elementwise": (KernelRecord("gelu_elementwise", 0, 5, (12288, 1, 1), (256, 1, 1), 16, 0),)},
        "ceilings": Ceilings(dram_gb_s=4300, l2_gb_s={"25168896": 5900}, fp32_tflops=60),
        "method": {"iterations": 5, "warmup": 5, "order": plan.ORDER},
    }
    return record.Session(**{**given, **changes})


def with_round(number, taken, key=None):
    """That session with one round of its row replaced."""
    whole = session()
    turns = list(whole.taken[kernel_key()])
    turns[number] = taken
    return replace(whole, taken={kernel_key(): turns})


def with_times(value, cache="warm"):
    return session(taken={kernel_key(cache=cache): [Taken(((value,) * 5,))] * ROUNDS})


def written(made):
    judged = record.judge(made)
    made_up = record.assemble(made, judged, "h200-test", made.cases)
    return made_up, made_up.results[0]


def test_a_session_with_nothing_wrong_keeps_every_round():
    found, row = written(session())
    assert not found.voids and len(row.kernels[0].rounds_us) == ROUNDS and row.kernels[0].rounds == ()
    assert row.kernels[0].registers == 16


def test_a_row_names_the_checks_that_passed_and_apart_from_them_those_that_failed():
    gate = {"passed": "passed", "checks": {"finite": True, "every element": True}}
    _, row = written(session(cases=[replace(case(), gate=gate)]))
    assert row.gate == {"passed": "passed", "checks": ["finite", "every element"]}
    gate = {"passed": "failed", "reason": "first at [3, 4]", "checks": {"finite": True, "every element": False}}
    _, row = written(session(cases=[replace(case(), gate=gate)]))
    assert (row.gate["reason"], row.gate["checks"], row.gate["failed checks"]) == ("first at [3, 4]", ["finite"], ["every element"])
    assert "checks" not in written(session())[1].gate


def test_the_row_of_a_search_says_what_it_picked():
    searched = "gelu/pytorch-compiled:max-autotune-no-cudagraphs"
    call = implementations.Call("gelu", "pytorch-compiled", None, "gpu", "pytorch-compiled", None, None, note="allocates")
    made = session(
        cases=[replace(case(searched), call=call)],
        taken={kernel_key(searched): session().taken[kernel_key()]},
        kernels={searched: session().kernels["gelu/cuda:elementwise"]},
    )
    _, row = written(made)
    assert row.note == "allocates; the search picked gelu_elementwise (12288 blocks of 256 threads, 16 registers, 0 bytes)"
    assert written(session())[1].note is None


def records(segments, lose=None):
    """Kernel records of a capture, in order, without the one numbered ``lose``."""
    found, time = [], 0.0
    for number, segment in enumerate(segments):
        names = [("mage_marker", (1, number + 1, 1))] + [("gelu_elementwise", (12288, 1, 1))] * (2 + segment.counted)
        for name, grid in names:
            time += 10
            found.append(KernelRecord(name, time, 5.0, grid, (256, 1, 1), 16, 0))
    return [one for place, one in enumerate(found) if place != lose]


def test_a_capture_with_a_record_missing_is_void_with_its_reason():
    segments = [Segment("gelu/cuda:elementwise", "warm", number, None, 1, 5) for number in range(ROUNDS)]
    lost = 3 * 8 + 4  # in the fourth round
    turns = [captures.taken(one) for _, one in captures.attribute(segments, 2, records(segments, lost))]
    found, row = written(session(taken={kernel_key(): turns}))
    (void,) = found.voids
    assert void.row == row.key and void.rounds == (3,) and "6 kernel records" in void.reason
    assert row.kernels[0].rounds == (0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11)
    assert all(len(calls) == 5 for calls in row.kernels[0].rounds_us)


def test_a_marker_that_was_not_recorded_voids_what_it_announced():
    segments = [Segment("gelu/cuda:elementwise", "warm", number, None, 1, 5) for number in range(3)]
    found = captures.attribute(segments, 2, records(segments, lose=8))
    assert [bool(one.void) for _, one in found] == [True, True, False]  # its records fall to the segment before


def test_the_uncounted_calls_are_expected_and_left_out():
    segments = [Segment("gelu/cuda:elementwise", "warm", 0, None, 1, 5), None]
    ((_, one),) = captures.attribute(segments, 2, records(segments[:1]))
    assert one.void is None and len(one.calls) == 5


def test_a_round_with_the_control_out_of_its_band_is_judged_for_no_row():
    rounds = [round_(number, control_us=(104.0,) if number == 5 else (100.0,)) for number in range(ROUNDS)]
    found, row = written(session(rounds=rounds))
    (void,) = found.voids
    assert void.row is None and void.rounds == (5,) and "+4.0 %" in void.reason
    assert 5 not in row.kernels[0].rounds and found.rounds[5].loaded


def test_a_round_in_which_the_control_waited_for_its_turn_is_judged_for_no_row():
    # its own time hardly shows it
    waited = {"control_us": (102.0,) * 3, "control_wall_us": (2630.0, 2629.0, 231.0)}
    hiccup = {"control_wall_us": (108.0, 2600.0, 109.0)}
    rounds = [round_(number, **{4: waited, 5: hiccup}.get(number, {"control_wall_us": (108.0,) * 3})) for number in range(ROUNDS)]
    found, row = written(session(rounds=rounds))
    (void,) = found.voids
    assert void.rounds == (4,) and "the host waited 2629 µs for the control, which took 102.00 µs" in void.reason
    assert 4 not in row.kernels[0].rounds


def test_a_device_that_is_shared_all_the_time_has_no_times():
    rounds = [round_(number, control_wall_us=(2630.0,) * 3) for number in range(ROUNDS)]
    assert not written(session(rounds=rounds))[1].kernels


def test_a_session_that_was_loaded_most_of_the_time_has_no_times():
    rounds = [round_(number, control_us=(100.0 + 20 * (number % 3),)) for number in range(ROUNDS)]
    found, row = written(session(rounds=rounds))
    assert not row.kernels
    assert any(void.row == row.key and "4 of 12 rounds were accepted, 8 are needed" in void.reason for void in found.voids)


def test_a_throttled_round_is_void():
    hot = DeviceState(throttle_reasons=("idle", "hardware thermal slowdown"))
    rounds = [round_(number, **({"state": hot} if number == 2 else {})) for number in range(ROUNDS)]
    found, row = written(session(rounds=rounds))
    assert [void.reason for void in found.voids] == ["throttled: hardware thermal slowdown"]
    assert 2 not in row.kernels[0].rounds


def test_an_idle_clock_is_no_throttling():
    idle = [round_(number, state=DeviceState(throttle_reasons=("idle",))) for number in range(ROUNDS)]
    assert not written(session(rounds=idle))[0].voids


def test_a_process_that_came_to_the_device_loads_the_round():
    rounds = [round_(number, **({"loaded": "another process came to the device: 7"} if number == 0 else {})) for number in range(ROUNDS)]
    found, row = written(session(rounds=rounds))
    assert found.voids[0].rounds == (0,) and "process" in found.voids[0].reason and 0 not in row.kernels[0].rounds


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
def test_a_sample_that_is_no_time_voids_its_round(value):
    found, row = written(with_round(7, Taken(((5.0, value, 5.0, 5.0, 5.0),))))
    assert found.voids[0].rounds == (7,) and found.voids[0].reason == f"sample 1 is {value} µs"
    assert 7 not in row.kernels[0].rounds


def test_nothing_taken_is_a_failure_with_a_reason_and_never_a_row():
    found, row = written(session(taken={kernel_key(): [Taken()] * ROUNDS}))
    assert not row.kernels and "0 of 12 rounds" in found.voids[-1].reason


@pytest.mark.parametrize(
    "cache, microseconds, said",
    [
        ("warm", 4.2, "above the 5900 GB/s that a warm copy"),
        ("cold", 2.9, "above the 4300 GB/s measured for DRAM"),
        ("warm", 0.5, "above"),
    ],
)
def test_a_row_that_is_faster_than_the_device_can_be_is_void(cache, microseconds, said):
    found, row = written(with_times(microseconds, cache))
    assert not row.kernels and said in found.voids[0].reason and found.voids[0].cache == cache


def test_a_row_just_below_the_limits_stays():
    assert not written(with_times(4.4))[0].voids
    assert not written(with_times(3.0, "cold"))[0].voids


def test_arithmetic_above_the_measured_peak_is_void():
    reason = samples.too_fast(Key("matmul/triton", "kernel_us", "awaited", "warm"), 20.0, 1, 2, 2 * 1024**3, Ceilings(fp32_tflops=60))
    assert "107.4 TFLOP/s" in reason


def test_an_output_of_the_timed_loop_that_is_wrong_takes_the_times_away():
    found, row = written(session(wrong_after={"gelu/cuda:elementwise": "an output of the timed loop fails the gate: all zero"}))
    assert not row.kernels and "fails the gate" in found.voids[0].reason


def test_wall_time_far_above_the_spans_shows_work_beside_the_stream():
    assert samples.beside_the_stream([12.0, 13.0, 12.5], 10.0) is None
    assert "outside the stream" in samples.beside_the_stream([60.0, 61.0, 62.0], 10.0)


def test_a_loaded_cpu_keeps_its_rounds_and_marks_them():
    turns = [Taken(((50.0,) * 5,))] * 5
    key = Key("gelu/cuda:elementwise", "span_us", "awaited", "warm")
    rounds = [round_(number, "spans", control_us=(100.0 + 50 * (number == 1),), state=None) for number in range(5)]
    quiet = plan.Plan(operations=("gelu",), implementations=("cuda",), rounds=5)
    found, row = written(session(device=Device(kind="cpu", name="a CPU"), taken={key: turns}, rounds=rounds, ceilings=None, plan=quiet))
    assert len(row.spans[0].rounds_us) == 5 and [bool(one.loaded) for one in found.rounds] == [False, True, False, False, False]


# --- the same code against itself ----------------------------------------------------------------------------------


def arms(shift=0.0, seed=0):
    random = Random(seed)
    return tuple(
        [[5 * (1 + step) * (1 + 0.002 * random.random()) for _ in range(6)] for _ in range(ROUNDS)] for step in (0.0, shift)
    )


def alarms(pairs, rounds=()):
    made = session(pairs={"kernel_us": {"gelu/cuda:elementwise": pairs}}, rounds=list(rounds) or session().rounds)
    (found,) = record.judge(made).false_alarms
    return found


def test_equal_arms_raise_no_alarm_and_every_pair_is_kept():
    found = alarms([arms(seed=seed) for seed in range(6)])
    assert (found.pairs, found.alarms, found.rate) == (6, 0, 0.0)
    assert len(found.ratios["gelu/cuda:elementwise"]) == 6


def test_a_record_keeps_the_ratios_of_its_own_rows_and_the_sessions_totals():
    pairs = {"gelu/cuda:elementwise": [arms(), arms(seed=1)], "gelu/cuda:quads": [arms(0.05)]}
    made = session(pairs={"kernel_us": pairs}, cases=[case(), case("gelu/cuda:quads")], ceilings=None)
    found = record.assemble(made, record.judge(made), "h200-test", made.cases[:1])
    (one,) = found.false_alarms
    assert list(one.ratios) == ["gelu/cuda:elementwise"] and len(one.ratios["gelu/cuda:elementwise"]) == 2
    assert (one.pairs, one.alarms) == (3, 1)
    view = tables.session(found)
    assert "1 in 3 of 3 pairs: 33.3 %" in view.frame["Value"].tolist() and "every row of the session" in view.note


def test_an_arm_that_differs_counts_as_an_alarm():
    found = alarms([arms(), arms(0.05)])
    assert (found.alarms, found.rate) == (1, 0.5)


def test_loaded_rounds_of_the_pairs_are_left_out():
    loaded = [round_(number, "kernel pairs", control_us=(100.0 + 30 * (number % 2),)) for number in range(ROUNDS)]
    found = alarms([arms()], loaded)
    assert found.not_judged == 1 and found.rate is None


def test_a_row_has_a_time_from_two_thirds_of_ten_rounds_on():
    chosen = plan.Plan(operations=(), implementations=())
    assert (chosen.rounds, chosen.least_rounds) == (10, 7)


def test_every_row_gets_enough_pairs_for_two_hundred_in_all():
    for rows in (1, 7, 39, 250):
        assert rows * plan.Plan(operations=(), implementations=()).pairs_a_row(rows) >= 200


# --- order, parts, verdicts ----------------------------------------------------------------------------------------


def test_a_round_holds_every_row_once_and_rounds_differ():
    turns = [plan.order(7, number, ROUNDS) for number in range(ROUNDS)]
    assert all(sorted(turn) == list(range(7)) for turn in turns)
    assert len({turn[0] for turn in turns}) >= 6
    neighbours = {(turn[turn.index(3) - 1]) for turn in turns if turn.index(3)}
    assert neighbours == {2, 4}


def test_a_part_inside_another_interrupts_it(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr("mage.experiment.split.time.perf_counter", lambda: float(next(clock)))
    split = Split()
    with split("gate"), split("compile"):
        pass
    seconds = split.seconds()
    assert seconds["gate"] == 2.0 and seconds["compile"] == 1.0 and seconds["total"] == sum(seconds.values()) - seconds["total"]


def test_a_verdict_pairs_the_rounds_that_both_rows_have():
    _, whole = written(session())
    _, short = written(with_round(0, Taken(void="lost")))
    verdict = verdicts.between(whole, short, "kernel_us")
    assert verdict.ratio.count == ROUNDS - 1 and verdict.ratio.median == 1.0 and verdict.word == "same"
    assert verdicts.between(whole, short, "span_us") is None


# --- counters ------------------------------------------------------------------------------------------------------

ROWS = [Row("gelu", "pytorch", None, (4096, 768)), Row("gelu", "cuda", "elementwise", (4096, 768))]


def page():
    metrics = [*counters.METRICS.values(), counters._STALL.format("barrier")]
    head = ["ID", "Kernel Name", "Block Size", "Grid Size", *metrics]
    units = ["", "", "", "", "ns", "%", "byte", "byte", "%", "%", "inst"]
    values = ["5,120", "61.25", "12,582,912", "25,300,000", "33.5", "20.125", "0.25"]
    kernels = [("mage_marker", 1), ("add", 4), ("gelu", 4), ("mage_marker", 2), ("gelu_elementwise", 12288)]
    lines = [[str(number), name, "(256, 1, 1)", f"({grid}, 1, 1)", *values] for number, (name, grid) in enumerate(kernels)]
    return "==PROF== Connected\n" + "\n".join(",".join(f'"{cell}"' for cell in line) for line in [head, units, *lines])


def test_counters_go_to_the_row_whose_marker_came_before():
    found = counters.parse(page(), ROWS)
    assert [one.key for one in found] == ["gelu/pytorch/0", "gelu/pytorch/1", "gelu/cuda:elementwise/0"]
    last = found[-1]
    assert (last.kernel, last.grid, last.duration_us, last.dram_bytes) == ("gelu_elementwise", (12288, 1, 1), 5.12, 12_582_912)
    assert (last.occupancy_pct, last.fma_pct, last.stalls) == (61.25, 20.12, {"barrier": 0.25})


def test_a_counter_that_the_tool_did_not_give_is_absent():
    found = counters.parse(page().replace('"33.5"', '"n/a"'), ROWS)
    assert found[0].issue_busy_pct is None and found[0].occupancy_pct == 61.25


def test_without_the_tool_the_reason_takes_the_counters_place(monkeypatch):
    monkeypatch.setattr(counters, "tool", lambda: None)
    assert counters.take(ROWS) == ([], "ncu is not installed")


def test_rows_of_a_shape_share_what_they_are_judged_by_and_a_wrong_one_is_still_found(monkeypatch):
    """The reference is computed once for all rows; an output that is wrong after the timed loop is judged by it too."""
    import torch

    from mage import operations
    from mage.experiment import cases

    chosen = plan.Plan(operations=("matmul",), implementations=("pytorch", "numpy"), dims=SMALL)
    counted = []
    reference = type(operations.get("matmul")).reference
    monkeypatch.setattr(type(operations.get("matmul")), "reference", lambda self, inputs: counted.append(1) or reference(self, inputs))
    made = cases.prepare(chosen, "cpu", Split(), lambda line: None)
    assert [one.gate["passed"] for one in made] == ["passed", "passed"] and len(counted) == 2  # first and second inputs
    for one in made:
        assert torch.equal(one.expected[0], reference(operations.get("matmul"), one.inputs))
        one.call.run()
        assert one.judge_again() is None
        one.call.out[3, 4] += 1
        assert "first at [3, 4]" in one.judge_again()
