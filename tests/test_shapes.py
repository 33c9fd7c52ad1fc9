"""Shapes beside an operation's own: asked for by a params file, measured in the same rounds, told apart everywhere."""

import functools
import os

import measured as made_up
import pytest

from mage import evidence, gate, implementations, operations, profile, tables, timers
from mage.errors import RequestError
from mage.evidence.schema import Device, DeviceState
from mage.experiment import captures, measurement, plan, probe, rounds, shapes, summary
from mage.experiment import record as recorded
from mage.experiment.cases import Case
from mage.experiment.measurement import Asked
from mage.notes import vocabulary
from mage.stats import judged

LISTED = {
    "matmul": [[64, 32, 16], [8, 8, 8]],
    "neighbor": [{"dims": [32, 8, 100], "inputs": "power-law"}],
}
SMALL = {"matmul": (32, 32, 32), "neighbor": (32, 8, 100)}
A_DEVICE = {"CUDA_VISIBLE_DEVICES": f"shapes-{os.getpid()}"}
"""A name of its own for the device, which tests beside this one measure on too."""


# --- asked for ---------------------------------------------------------------------------------------------------


def test_a_shape_is_named_by_its_dims_and_its_inputs():
    found = shapes.parse(LISTED, "a file")
    assert [one.at for one in found["matmul"]] == ["64x32x16", "8x8x8"]
    (graph,) = found["neighbor"]
    assert (graph.dims, graph.inputs, graph.at) == ((32, 8, 100), "power-law", "32x8x100+power-law")
    assert shapes.key("neighbor", "cuda", "quad", graph.at) == "neighbor/cuda:quad@32x8x100+power-law"
    assert shapes.key("neighbor", "cuda", "quad") == "neighbor/cuda:quad"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([[1, 2, 3]], "must map operations"),
        ({"matmull": [[1, 2, 3]]}, "did you mean 'matmul'"),
        ({"matmul": [64, 64, 64]}, "give a list"),
        ({"matmul": [[64, 64]]}, "dims has 2 entries"),
        ({"matmul": [[64, 64, 0]]}, "dimension K is 0"),
        ({"matmul": [[1024, 1024, 1024]]}, "measured at [1024, 1024, 1024] anyway"),
        ({"matmul": [[64, 64, 64], [64, 64, 64]]}, "lists 64x64x64 twice"),
        ({"matmul": [{"dims": [64, 64, 64], "inputs": "power-law"}]}, "no inputs 'power-law'"),
        ({"neighbor": [{"dims": [64, 64, 64], "input": "power-law"}]}, "write {dims"),
        ({"neighbor": [{"dims": [64, 64, 64], "inputs": "zipf"}]}, "there is power-law"),
    ],
)
def test_what_is_no_shape_is_refused_with_the_place(value, said):
    with pytest.raises(RequestError) as error:
        shapes.parse(value, "params/x.yaml")
    assert said in str(error.value)


def test_the_newest_kernel_and_no_search_unless_rows_are_named():
    def there(implementation, variant, wanted=None):
        return shapes.measured_there("matmul", implementation, variant, wanted)

    assert there("pytorch", None) and there("pytorch-compiled", "default") and there("triton", "fixed") and there("triton", "tuned")
    assert not there("pytorch-compiled", vocabulary.SEARCHING)
    newest = list(measurement.implementations.variants("matmul", "cuda"))
    assert [name for name in newest if there("cuda", name)] == newest[-1:]
    assert there("cuda", "tiled", ["cuda:tiled"]) and not there("cuda", newest[-1], ["cuda:tiled"])
    assert there("triton", "fixed", ["triton"]) and not there("pytorch", None, ["triton"])
    with pytest.raises(RequestError, match="no implementation 'cudaa'"):
        shapes.parse_rows(["cudaa"], "params/x.yaml")


def test_a_params_file_lists_shapes_and_no_note_reads_them(tiny_tree, run_mage):
    tiny_tree.note()
    asked = {"operations": ["gelu"], "implementations": ["pytorch", "numpy"]}
    tiny_tree.params("here-tiny", **asked, shapes={"gelu": [[8, 64]]}, shape_rows=["numpy"])
    result = run_mage("measure", "here-tiny", root=tiny_tree.root, env=A_DEVICE)
    assert result.rc == 0, result.said
    found = evidence.read(tiny_tree.output("here-tiny") / "evidence.json")
    assert [row.key for row in found.results] == ["gelu/pytorch", "gelu/numpy", "gelu/numpy@8x64"]
    assert found.results[-1].dims == (8, 64) and "gelu/numpy@8x64" not in result.stderr
    tiny_tree.params("here-tiny", operations=["gelu"], shapes={"gelu": [[8]]})
    refused = run_mage("measure", "here-tiny", root=tiny_tree.root, env=A_DEVICE)
    assert refused.rc == 2 and "params/here-tiny.yaml: shapes: gelu: dims has 1 entries" in refused.message


# --- drawn -------------------------------------------------------------------------------------------------------


def test_a_power_law_graph_is_skewed_seeded_and_whole():
    neighbor = operations.get("neighbor")
    usual, skewed, again = (neighbor.make_inputs(distribution=name) for name in (None, "power-law", "power-law"))
    degrees = (skewed["row_ptr"][1:] - skewed["row_ptr"][:-1]).double()
    plain = (usual["row_ptr"][1:] - usual["row_ptr"][:-1]).double()
    assert degrees.sum() == plain.sum() == 65536
    assert degrees.max() > 1000 and plain.max() < 50 and degrees.median() < 12
    assert all((skewed[name] == again[name]).all() for name in skewed)
    # degrees of the busiest rows fall with their rank to the power −2/3
    ranked = degrees.sort(descending=True).values
    assert ranked[7] / ranked[63] == pytest.approx(8 ** (2 / 3), rel=0.25)
    assert (usual["X"] == skewed["X"]).all() and degrees.argmax() != 0
    with pytest.raises(RequestError, match="no inputs 'zipf'"):
        neighbor.make_inputs(distribution="zipf")


def test_a_power_law_graph_passes_the_gate():
    drawn = functools.partial(operations.get("neighbor").make_inputs, distribution="power-law")
    found = gate.check("neighbor", "pytorch", None, (256, 8, 4096), "cpu", make_inputs=drawn)
    assert found.passed == "passed"


# --- measured ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taken():
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine measures on its GPU")
    listed = shapes.parse(LISTED, "a test")
    with_shapes = Asked(experiment="here-test", operations=("matmul", "neighbor"), implementations=("pytorch", "numpy"), shapes=listed)
    without = Asked(experiment="here-other", operations=("matmul",), implementations=("pytorch",))
    return measurement.measure([with_shapes, without], dims=SMALL, say=lambda line: None)


def test_every_row_is_measured_at_every_shape_in_the_rounds_of_one_session(taken):
    found, other = taken
    at = {"matmul": (None, "64x32x16", "8x8x8"), "neighbor": (None, "32x8x100+power-law")}
    wanted = {shapes.key(name, one, None, where) for name, places in at.items() for where in places for one in ("pytorch", "numpy")}
    assert {row.key for row in found.results} == wanted and len(found.results) == len(wanted)
    assert {row.key for row in other.results} == {"matmul/pytorch"}
    for row in found.results:
        assert row.gate["passed"] == "passed" and row.gate["after timing"] == "passed"
        assert len(row.spans[0].rounds_us) == 5
    by_key = {row.key: row for row in found.results}
    assert by_key["matmul/pytorch@64x32x16"].dims == (64, 32, 16) and by_key["matmul/pytorch"].dims == (32, 32, 32)


def test_the_inputs_of_every_shape_are_hashed_apart(taken):
    found, other = taken
    assert found.inputs.sha256["neighbor/src"] != found.inputs.sha256["neighbor@32x8x100+power-law/src"]
    assert found.inputs.sha256["neighbor/X"] == found.inputs.sha256["neighbor@32x8x100+power-law/X"]
    assert "matmul@8x8x8/A" in found.inputs.sha256 and list(other.inputs.sha256) == ["matmul/A", "matmul/B"]


def test_shapes_get_fewer_samples():
    made = plan.Plan(operations=(), implementations=())
    assert made.samples(20, None) == 20 and made.samples(20, "8x8") == 10 and made.samples(5, "8x8") == 3 and made.samples(2, "8x8") == 2


class Tape:
    """Stands in for a device, its probe and its timers: every launch takes a fixed time and is on record."""

    l2_bytes, multiprocessors, fma_flops = 2**20, 132, 10**15

    def __init__(self, monkeypatch):
        self.records = []
        self.spans, self.synchronize = self, lambda: None
        monkeypatch.setattr("torch.cuda.current_stream", lambda: self)
        monkeypatch.setattr(timers, "Spans", lambda evict: self)
        monkeypatch.setattr(timers, "capture", lambda run, calls: run)
        monkeypatch.setattr(timers, "host_and_wall", lambda run, calls: (5.0, 6.0))
        monkeypatch.setattr(profile, "record", self.capture)

    def launch(self, name, time=4.0, grid=(1, 1, 1)):
        self.records.append(profile.KernelRecord(name, float(len(self.records)), time, grid, (128, 1, 1), 32, 0))

    def capture(self, work):
        self.records.clear()
        work()
        return list(self.records)

    def awaited(self, run, iterations, cold=False):
        return [9.0 if cold else 8.0] * iterations

    def batched(self, run, calls, iterations):
        return [6.0] * iterations

    graphed = batched

    def watched(self, run, iterations):
        return [200.0] * iterations, [205.0] * iterations

    def empty(self, iterations):
        return [1.5] * iterations

    def marker(self, case, segment):
        self.launch("mage_marker", grid=(case + 1, segment + 1, 1))

    def evict(self):
        self.launch("mage_evict")

    def control(self):
        self.launch("mage_control")

    def fma(self):
        self.launch("mage_fma")

    def copy(self, moved, quads):
        return lambda: self.launch("mage_copy")

    def clock(self):
        return 1980.0

    fma_clock = clock

    def nothing(self):
        return None

    forget_persisting_lines = remember = load = nothing

    def state(self):
        return DeviceState()

    def case(self, variant, at=None):
        import torch

        call = implementations.Call("gelu", "cuda", variant, "gpu", "cuda", torch.zeros(4), lambda: self.launch("gelu", 5.0))
        dims = (512, 768) if at else (4096, 768)
        return Case("gelu", "cuda", variant, dims, {"passed": "passed"}, call=call, at=at)


@pytest.fixture
def session_on_tape(monkeypatch):
    tape = Tape(monkeypatch)
    made = [tape.case("elementwise"), tape.case("elementwise", "512x768")]
    chosen = plan.Plan(operations=("gelu",), implementations=("cuda",), pairs=2)
    spanned = rounds.Rounds(made, chosen, tape, tape, print).take()
    captured = captures.Captures(made, chosen, tape, tape, print).take()
    whole = recorded.Session(
        plan=chosen, device=Device(kind="gpu", name="a made-up GPU"), cases=made, taken={**spanned.taken, **captured.taken},
        rounds=[*spanned.rounds, *captured.rounds], kernels=captured.kernels, host_us=spanned.host_us, wall_us=spanned.wall_us,
        pairs={"span_us": spanned.pairs, "kernel_us": captured.pairs}, ceilings=captured.ceilings,
        method={"iterations": 10, "warmup": 5, "order": plan.ORDER},
    )  # fmt: skip
    return recorded.assemble(whole, recorded.judge(whole), "h200-test", made)


def test_beside_its_own_shape_a_row_is_taken_warm_awaited_and_by_its_kernels_alone(session_on_tape):
    own, there = session_on_tape.results
    assert not session_on_tape.voids
    assert [(one.mode, one.cache, len(one.rounds_us), len(one.rounds_us[0])) for one in there.spans] == [("awaited", "warm", 10, 5)]
    assert [(one.mode, one.cache, len(one.rounds_us), len(one.rounds_us[0])) for one in there.kernels] == [("awaited", "warm", 10, 4)]
    assert not there.host_us and not there.wall_us
    every = [("awaited", "warm"), ("batch-10", "warm"), ("graph-10", "warm"), ("awaited", "cold")]
    assert [(one.mode, one.cache) for one in own.spans] == every and len(own.host_us) == 10
    assert [(one.cache, len(one.rounds_us[0])) for one in own.kernels] == [("warm", 8), ("cold", 5)]
    assert {row for one in session_on_tape.false_alarms for row in one.ratios} == {"gelu/cuda:elementwise"}


def test_what_was_not_taken_beside_the_own_shape_is_marked(session_on_tape):
    frame = tables.shapes(session_on_tape).frame
    assert frame["Time"].tolist() == [5.0, 5.0]
    (line,) = (line for line in summary.text([session_on_tape]).splitlines() if "@512x768" in line and "against" not in line)
    assert line.split()[2:9] == ["5.00", "[5.00-5.00]", "-", "8.00", "-", "-", "-"]
    assert tables.modes_here(session_on_tape).frame["Awaited, cold"].tolist() == [9.0]


# --- read back ---------------------------------------------------------------------------------------------------


def gelu(times, at=None, dims=(4096, 768), noise=(1.0, 1.004, 0.997, 1.002, 0.998, 1.001)):
    rows = []
    for (implementation, variant), time in times.items():
        rounds = [[round(time * factor, 3)] * 3 for factor in noise]
        kernel = {"name": "k", "grid": [1, 1, 1], "block": [128, 1, 1], "registers": 32, "shared_bytes": 0, "mode": "awaited"}
        made = {"operation": "gelu", "dims": list(dims), "at": at, "implementation": implementation, "variant": variant}
        rows.append({**made, "kernels": [{**kernel, "cache": "warm", "rounds_us": rounds}]})
    return rows


TIMES = {("pytorch", None): 15.0, ("triton", "fixed"): 8.0, ("triton", "tuned"): 5.0, ("cuda", "elementwise"): 4.4}
THERE = {("pytorch", None): 3.0, ("triton", "fixed"): 2.0, ("triton", "tuned"): 2.2, ("cuda", "elementwise"): 2.5}


def session(**changes):
    return made_up.record(results=[*gelu(TIMES), *gelu(THERE, "512x768", (512, 768))], **changes)


def test_a_row_is_judged_by_its_own_shape_alone():
    record = session()
    own, there = judged.newest_by_shape(record)
    assert (own.key, there.key) == ("gelu/cuda:elementwise", "gelu/cuda:elementwise@512x768")
    best = judged.against_best(there, record.results)
    assert best.other.key == "gelu/triton:fixed@512x768" and best.verdict.word == "slower"
    each = judged.against_each(there, record.results)
    assert [(one.other.variant, one.verdict.word) for one in each] == [(None, "faster"), ("fixed", "slower"), ("tuned", "slower")]
    assert {one.other.at for one in each} == {"512x768"}


def test_other_tables_keep_to_the_operations_own_shapes():
    record = session()
    assert len(tables.verdicts(record).frame) == len(TIMES) and len(tables.modes_here(record).frame) == len(TIMES)
    assert judged.row(record, "gelu", "pytorch").at is None


def test_the_table_of_shapes_has_a_row_a_shape_with_its_verdict():
    frame = tables.shapes(session()).frame
    assert frame["Shape"].tolist() == ["4096\u202f×\u202f768", "512\u202f×\u202f768"]
    assert frame["Best peer"].tolist() == ["Triton, tuned", "Triton"] and frame["Verdict"].tolist() == ["faster", "slower"]
    assert frame["Ratio"].tolist() == pytest.approx([0.88, 1.25], rel=1e-3)
    (row,) = gelu({("cuda", "quad"): 9.0}, "4096x64x65536+power-law", (4096, 64, 65536))
    view = tables.shapes(made_up.record(results=[{**row, "operation": "neighbor"}]))
    assert view.frame["Inputs"].tolist() == ["power-law"] and view.frame["Verdict"].tolist() == ["no verdict"]


def test_a_void_at_a_shape_is_shown_with_it():
    voids = [{"row": "gelu/triton:fixed@512x768", "quantity": "kernel_us", "reason": "9 of 10 records"}]
    assert tables.voids(session(voids=voids)).frame["Row"].tolist() == ["Bias\u00a0+\u00a0GELU, Triton, 512\u202f×\u202f768"]


def test_the_ratio_to_a_copy_is_paired_by_round():
    moved = str(operations.get("gelu").bytes((4096, 768)))
    noise = (1.0, 1.004, 0.997, 1.002, 0.998, 1.001)
    record = session(ceilings={"copy_us": {moved: {number: 4.0 * factor for number, factor in enumerate(noise)}}})
    own, there = judged.newest_by_shape(record)
    found = summary.ratio_to_copy(record, own)
    assert found.ratio.median == pytest.approx(1.1, rel=1e-3) and found.ratio.high - found.ratio.low < 0.002
    assert summary.ratio_to_copy(record, there) is None and summary.ratio_to_copy(session(), own) is None
    assert tables.shapes(record).frame["Of a copy"].tolist()[0] == pytest.approx(1.1, rel=1e-3)
    assert "a copy of its bytes slower 1.100" in summary.text([record])


# --- limits ------------------------------------------------------------------------------------------------------


def test_the_rate_and_the_clock_of_the_fp32_limit_are_of_one_launch():
    limits = {"fma": {0: [600.0], 1: [560.0], 2: [580.0]}, "1000000/1": {0: [2.0, 1.0]}, f"{2**30}/4": {0: [500.0]}}
    found = captures.ceilings(limits, [1700.0, 1905.0, 1800.0], 35_433_480_192)
    assert (found.fp32_tflops, found.fp32_mhz) == (63.27, 1905.0)
    assert captures.ceilings({**limits, "fma": {0: [], 2: [580.0]}}, [1700.0, 1905.0, 1800.0], 35_433_480_192).fp32_mhz == 1800.0
    assert found.dram_gb_s == pytest.approx(2**30 / 500 / 1e3, abs=0.1) and found.l2_gb_s == {"1000000": 1000.0}


def test_a_copy_is_the_faster_of_its_two_ways_round_by_round():
    fast, slow = {0: [4.0, 4.2, 4.1], 1: [4.4, 4.4, 4.4]}, {0: [5.0, 3.9, 5.0], 1: [5.0, 5.0, 5.0]}
    for one, four in ((fast, slow), (slow, fast)):
        assert captures.ceilings({"8000/1": one, "8000/4": four}, [], 1).copy_us == {"8000": {0: 4.1, 1: 4.4}}


def test_the_clock_is_counted_from_the_first_block_of_a_multiprocessor_to_its_last():
    # two multiprocessors, two blocks each; the first block ends early, at a lower clock
    readings = [[0, 1000, 0, 1170, 100], [0, 1000, 0, 2900, 1000], [1, 5000, 0, 5170, 100], [1, 5001, 1, 6900, 1000]]
    assert probe.clock_of(readings) == pytest.approx(1900.0)
