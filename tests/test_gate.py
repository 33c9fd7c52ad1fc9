"""The gate: what passes it, and that each way of being wrong is refused and told apart.

The calls here are a few lines of PyTorch that are wrong on purpose, on the CPU and, marked gpu, on a GPU.
"""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mage
from mage import gate, implementations, operations
from mage.cuda import hostcuda
from mage.errors import RequestError
from mage.gate import FAILED, NOT_CHECKED, PASSED, gating
from mage.gate.judgement import judge
from mage.implementations import Call, interpreter

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
on_each_device = pytest.mark.parametrize("device", DEVICES)
DIMS = {"matmul": (24, 20, 40), "gelu": (6, 40), "layernorm": (6, 40), "triangle": (12, 3), "neighbor": (11, 5, 30)}


def call_of(compute, allocates=False, limit=None):
    """A factory of calls: ``compute(inputs, out)`` writes to ``out`` or returns a new tensor."""

    def factory(inputs, out):
        operation = next(name for name in operations.names() if list(operations.get(name).input_shapes(DIMS[name])) == list(inputs))
        where = "gpu" if out.is_cuda else "cpu"
        call = Call(operation, "test", None, where, "test", out, None, allocates=allocates, mean_over_std_limit=limit)

        def run():
            made = compute(inputs, out)
            if allocates:
                call.out = made

        call.run = run
        return call

    return factory


def right(name):
    return lambda inputs, out: out.copy_(operations.get(name).reference(inputs))


def gated(name, compute, device="cpu", allocates=False, limit=None, **options):
    result = gate.check(name, dims=DIMS[name], device=device, factory=call_of(compute, allocates, limit), **options)
    json.dumps(result.as_dict(), allow_nan=False)  # it goes into evidence
    return result


# -- what passes


@on_each_device
@pytest.mark.parametrize("name", [name for name in operations.names() if name != "triangle"])  # told from matmul by its inputs
def test_the_reference_passes_and_the_record_is_whole(name, device):
    result = gated(name, right(name), device)
    assert result.passed == PASSED, result.reason
    assert result.reason is None
    assert all(result.checks.values())
    assert {"finite", "every element", "inputs unchanged", "nothing written outside", "not remembered"} <= set(result.checks)
    assert ("on the current stream" in result.checks) == (device == "cuda")
    assert result.max_abs_err <= 1e-5
    assert set(result.inputs) == set(operations.get(name).input_shapes(DIMS[name]))
    assert all(len(digest) == 64 for digest in result.inputs.values())
    assert result.shapes["out"] == list(operations.get(name).output_shape(DIMS[name]))
    assert result.means == ({"3": PASSED, "100": PASSED} if name == "layernorm" else {})


@on_each_device
def test_a_call_that_allocates_its_result_passes(device):
    assert gated("gelu", lambda inputs, out: operations.get("gelu").reference(inputs), device, allocates=True).passed == PASSED


@pytest.mark.parametrize("name", operations.names())
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_the_tolerance_is_met_or_exceeded_by_one_element(name, data):
    operation = operations.get(name)
    inputs = operation.make_inputs(DIMS[name], seed=data.draw(st.integers(0, 2**32), label="seed"))
    expected = operation.reference(inputs)
    at = data.draw(st.integers(0, expected.numel() - 1), label="element")
    allowed = operation.atol + operation.rtol * abs(expected.view(-1)[at].item())
    off, sign = expected.clone(), data.draw(st.sampled_from([-1, 1]), label="sign")
    off.view(-1)[at] += sign * 1.01 * allowed
    verdict = judge(name, inputs, off)
    assert not verdict.passed
    assert verdict.wrong == 1
    assert verdict.first_wrong_index == [int(i) for i in torch.unravel_index(torch.tensor(at), expected.shape)]
    assert verdict.expected == expected.view(-1)[at].item()
    assert verdict.got == off.view(-1)[at].item()
    near = expected.clone()
    near.view(-1)[at] += sign * 0.97 * allowed
    verdict = judge(name, inputs, near)
    assert verdict.checks["every element"]
    # an error that large in one element is far more than FP32 leaves in a sum of products
    assert verdict.passed == (operation.fp64_ratio is None)


# -- what is refused


@on_each_device
@pytest.mark.parametrize(
    ("compute", "says", "failed"),
    [
        (lambda inputs, out: out.zero_(), "the output is all zero", "not all zero"),
        (lambda inputs, out: out.fill_(0.1), "the output is all equal", "not all equal"),
        (lambda inputs, out: out.copy_(inputs["X"]), "the output is input X", "not input X"),
        (lambda inputs, out: None, "got nan", "finite"),  # nothing written: the poison is still there
        (lambda inputs, out: right("gelu")(inputs, out)[-1, -3:].fill_(math.inf), "first at [5, 37]", "finite"),
        (lambda inputs, out: out[:-1].copy_(operations.get("gelu").reference(inputs)[:-1]), "first at [5, 0]", "finite"),
        (lambda inputs, out: right("gelu")(inputs, out).roll(1, 1), None, None),
    ],
    ids=["zeros", "equal", "input", "nothing", "infinite tail", "unwritten tail", "harmless"],
)
def test_outputs_of_kernels_that_did_too_little(compute, says, failed, device):
    result = gated("gelu", compute, device)
    if says is None:
        assert result.passed == PASSED
        return
    assert result.passed == FAILED
    assert says in result.reason
    assert result.checks[failed] is False


def test_what_is_degenerate_and_right_passes():
    # No edges: all zero is the answer. Every row the same value: all equal is.
    assert gate.check("neighbor", "numpy", dims=(5, 3, 0), device="cpu").passed == PASSED
    inputs = {"X": torch.zeros(3, 4), "bias": torch.full((4,), 0.5)}
    assert judge("gelu", inputs, operations.get("gelu").reference(inputs)).passed
    inputs = {"X": torch.zeros(3, 4), "bias": torch.zeros(4)}  # gelu(0) = 0: the output is its input
    assert judge("gelu", inputs, operations.get("gelu").reference(inputs)).passed


@on_each_device
def test_the_first_wrong_element_is_named(device):
    def compute(inputs, out):
        right("gelu")(inputs, out)
        out[3, 7] += 0.5
        out[4, 1] += 0.5

    result = gated("gelu", compute, device)
    assert (result.passed, result.first_wrong_index) == (FAILED, [3, 7])
    assert result.got == pytest.approx(result.expected + 0.5)
    assert "2 of 240 elements are wrong, first at [3, 7]" in result.reason


@on_each_device
def test_a_product_in_tf32(device):
    def compute(inputs, out):
        # what a tensor core reads: ten bits of mantissa, rounded to nearest
        rounded = [((t.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32) for t in inputs.values()]
        torch.mm(*rounded, out=out)

    result = gated("matmul", compute, device)
    assert result.passed == FAILED
    assert result.checks["FP64 ratio"] is False
    assert 1e-4 < result.fp64_ratio < 1e-2


def test_a_product_in_tf32_that_every_element_forgives():
    # At a short K each element is within the tolerance, and only the ratio to FP64 gives it away.
    operation = operations.get("matmul")
    inputs = operation.make_inputs((64, 64, 4), std=0.1)
    rounded = {k: ((t.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32) for k, t in inputs.items()}
    verdict = judge("matmul", inputs, rounded["A"] @ rounded["B"])
    assert verdict.checks["every element"]
    assert not verdict.passed
    assert "not computed in FP32" in verdict.reason


@pytest.mark.gpu
def test_a_product_on_tensor_cores():
    def compute(inputs, out):
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            torch.mm(inputs["A"], inputs["B"], out=out)
        finally:
            torch.set_float32_matmul_precision(before)

    factory = call_of(compute)
    result = gate.check("matmul", dims=(1024, 1024, 1024), device="cuda", factory=factory)
    assert result.passed == FAILED
    assert result.checks["FP64 ratio"] is False


@on_each_device
@pytest.mark.parametrize("allocates", [False, True])
def test_a_result_remembered_from_the_last_call(allocates, device):
    kept = []

    def compute(inputs, out):
        if not kept:
            kept.append(operations.get("gelu").reference(inputs))
        return kept[0].clone() if allocates else out.copy_(kept[0])

    result = gated("gelu", compute, device, allocates=allocates)
    assert result.passed == FAILED
    assert result.checks["not remembered"] is False
    assert "the call before" in result.reason


@on_each_device
def test_the_same_tensor_handed_out_again(device):
    kept = []

    def compute(inputs, out):
        if not kept:
            kept.append(operations.get("gelu").reference(inputs))
        return kept[0]

    assert gated("gelu", compute, device, allocates=True).passed == FAILED


@on_each_device
@pytest.mark.parametrize("allocates", [False, True])
def test_elements_that_only_the_first_call_writes(allocates, device):
    """Rows with no edges are 0 whatever the inputs: left over from the call before they would look right."""

    def one_row(dims, **options):
        inputs = operations.get("neighbor").make_inputs(dims, **options)
        inputs["row_ptr"], inputs["src"] = operations.csr(inputs["src"].long(), torch.full((dims[2],), 5), dims[0])
        return inputs

    kept = []

    def compute(inputs, out):
        expected = operations.get("neighbor").reference(inputs)
        if not kept:
            kept.append(expected if allocates else out.copy_(expected))
        kept[0][5] = expected[5]
        return kept[0]

    result = gated("neighbor", compute, device, allocates=allocates, make_inputs=one_row)
    assert result.passed == FAILED
    assert (result.first_wrong_index, result.got) == ([0, 0], "nan")


@on_each_device
def test_a_changed_input(device):
    def compute(inputs, out):
        right("gelu")(inputs, out)
        inputs["bias"][3] += 1

    result = gated("gelu", compute, device)
    assert result.passed == FAILED
    assert result.checks["inputs unchanged"] is False
    assert result.reason == "the call changed its input bias"


@on_each_device
@pytest.mark.parametrize("where", [-1, 240])
def test_a_store_outside_the_output(where, device):
    def compute(inputs, out):
        right("gelu")(inputs, out)
        out.as_strided((1,), (1,), out.storage_offset() + where).fill_(0.0)

    result = gated("gelu", compute, device)
    assert result.passed == FAILED
    assert result.reason == "the call wrote outside its output"


def test_a_call_that_raises():
    def compute(inputs, out):
        raise RuntimeError("an illegal memory access\nand more")

    result = gated("gelu", compute)
    assert (result.passed, result.reason) == (FAILED, "RuntimeError: an illegal memory access")


# -- streams


def on_another_stream(wait_before, wait_after):
    def factory(inputs, out):
        other = torch.cuda.Stream()

        def compute(inputs, out):
            current = torch.cuda.current_stream()
            if wait_before:
                other.wait_stream(current)
            with torch.cuda.stream(other):
                right("gelu")(inputs, out)
            if wait_after:
                current.wait_stream(other)

        return call_of(compute)(inputs, out)

    return factory


@pytest.mark.gpu
def test_work_on_another_stream():
    result = gate.check("gelu", dims=DIMS["gelu"], device="cuda", factory=on_another_stream(False, False))
    assert result.passed == FAILED
    assert result.checks["on the current stream"] is False
    assert "not complete on the current stream" in result.reason


@pytest.mark.gpu
def test_work_that_another_stream_does_too_early():
    # Joined again, so it is complete; but it did not wait for the inputs.
    result = gate.check("gelu", dims=DIMS["gelu"], device="cuda", factory=on_another_stream(False, True))
    assert result.passed == FAILED
    assert result.checks["on the current stream"] is False


@pytest.mark.gpu
def test_another_stream_that_waits_and_is_waited_for():
    result = gate.check("gelu", dims=DIMS["gelu"], device="cuda", factory=on_another_stream(True, True))
    assert result.passed == PASSED, result.reason


@pytest.mark.gpu
def test_a_stream_that_was_taken_when_the_call_was_prepared():
    def factory(inputs, out):
        prepared_on = torch.cuda.current_stream()

        def compute(inputs, out):
            with torch.cuda.stream(prepared_on):
                right("gelu")(inputs, out)

        return call_of(compute)(inputs, out)

    assert gate.check("gelu", dims=DIMS["gelu"], device="cuda", factory=factory).checks["on the current stream"] is False


# -- layernorm far from zero


def one_pass(inputs, out):
    X = inputs["X"]
    variance = (X.square().mean(1, keepdim=True) - X.mean(1, keepdim=True).square()).clamp(min=0)
    out.copy_((X - X.mean(1, keepdim=True)) / (variance + 1e-5).sqrt() * inputs["gamma"] + inputs["beta"])


@on_each_device
def test_a_variance_that_loses_its_digits_is_refused(device):
    result = gated("layernorm", one_pass, device)
    assert result.passed == FAILED
    assert result.means == {"3": PASSED, "100": FAILED}
    assert result.reason.startswith("mean 100: ")


@on_each_device
def test_a_variance_whose_limit_is_stated_is_recorded(device):
    result = gated("layernorm", one_pass, device, limit=16.0)
    assert result.passed == PASSED
    assert result.means == {"3": PASSED, "100": "failed past |μ|/σ = 16"}
    # At mean 3 the rows have |μ|/σ of about 12 to 16: a limit above it does not excuse a wrong result there.
    wrong = gated("layernorm", lambda inputs, out: one_pass(inputs, out) or out.add_(inputs["X"] > 1), device, limit=1e6)
    assert wrong.passed == FAILED


# -- who can be gated here


def test_what_cannot_run_here_is_not_checked_and_never_passed(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    row = next(row for row in implementations.available("gelu", "cpu") if row.implementation == "cuda")
    assert (row.can_run, row.why_not) == (False, "no C++ compiler on this machine")
    result = gate.check("gelu", "cuda", "elementwise", (3, 5), "cpu")
    assert (result.passed, result.where) == (NOT_CHECKED, None)
    assert "no C++ compiler" in result.reason


def test_cutile_is_not_checked_without_a_gpu():
    result = gate.check("gelu", "cutile", "fixed", (3, 5), "cpu")
    assert result.passed == NOT_CHECKED
    assert "GPU only" in result.reason


@pytest.mark.skipif(interpreter.why_not() is not None, reason=str(interpreter.why_not()))
def test_a_shape_without_a_kernel_is_not_checked():
    result = gate.check("layernorm", "triton", "fixed", (1, 2**15), "cpu")
    assert result.passed == NOT_CHECKED
    assert "does not take (1, 32768)" in result.reason


def test_wrong_requests_are_errors_not_results():
    with pytest.raises(RequestError, match="dimension D is 0"):
        gate.check("gelu", "numpy", dims=(3, 0), device="cpu")
    with pytest.raises(RequestError, match="no implementation"):
        gate.check("gelu", "cudnn", dims=(3, 3), device="cpu")


@pytest.mark.parametrize(
    ("case", "device"),
    [
        *((case, "cpu") for case in gating.CASES if case.simulated),
        *(pytest.param(case, "cuda", marks=pytest.mark.gpu) for case in gating.CASES),
    ],
    ids=str,
)
def test_the_libraries(case, device):
    """Eager PyTorch and NumPy at every shape; torch.compile at each on a GPU and at one on the CPU."""
    for row in implementations.available(case.operation, device):
        if row.implementation in ("pytorch", "numpy") and row.can_run:
            result = gating.check(case, row, device)
            assert result.passed == PASSED, gating.line(result)
            assert result.where == ("cpu" if device == "cpu" else "gpu")


@pytest.mark.parametrize(
    ("case", "device"),
    [
        (gating.small("gelu"), "cpu"),
        *(pytest.param(case, "cuda", marks=pytest.mark.gpu) for case in gating.CASES if not case.simulated),
        *(pytest.param(gating.small(name), "cuda", marks=pytest.mark.gpu) for name in operations.names()),
    ],
    ids=str,
)
def test_torch_compile(case, device):
    for row in implementations.available(case.operation, device):
        if row.implementation == "pytorch-compiled":
            if not row.can_run:
                pytest.skip(row.why_not)
            result = gating.check(case, row, device)
            assert result.passed == PASSED, gating.line(result)
            assert result.allocates


@pytest.mark.skipif(hostcuda.compiler() is None and not torch.cuda.is_available(), reason="no C++ compiler and no GPU")
def test_both_published_pipeline_defects_are_refused_anywhere():
    results = gating.refused_defects()
    assert set(results) == {"pipeline-buffer-units", "pipeline-last-buffer"}
    for name, result in results.items():
        assert result.passed == FAILED, name
        assert result.which == "matmul_pipeline"
        assert result.first_wrong_index is not None
        assert result.checks["every element"] is False


@pytest.mark.skipif(hostcuda.compiler() is None, reason="no C++ compiler here")
@pytest.mark.parametrize(
    ("name", "stage", "remark"),
    [("layernorm", "scalars", None), ("neighbor", "balanced", None), ("neighbor", "hubs", None), ("triangle", "tiles", "elementwise")],
)
def test_a_stage_that_declines_is_gated_where_it_does_the_work_or_says_who_did(name, stage, remark):
    """Whole quads, short rows and few tiles are left to another stage, which then is what passed."""
    row = next(one for one in implementations.available(name, "cpu") if one.variant == stage)
    result = gating.check(gating.representative(row), row, "cpu")
    assert (result.passed, result.which) == (PASSED, f"{name}_{remark or stage}")
    (shown,) = mage.tables.gate([result]).frame["Remark"]
    assert shown == (remark and f"computed by {remark}")


def test_compare_lists_every_implementation_with_its_verdict():
    table = mage.compare("gelu", dims=(31, 70))
    listed = list(zip(table["implementation"], table["variant"], strict=True))
    assert listed == [
        ("pytorch", ""), ("pytorch-compiled", "default"), ("pytorch-compiled", "max-autotune-no-cudagraphs"),
        ("triton", "fixed"), ("triton", "tuned"), ("cutile", "fixed"), ("cutile", "tuned"), ("cuda", "elementwise"),
        ("cuda", "quads"), ("cuda", "cached"), ("numpy", ""),
    ]  # fmt: skip
    table = table[table["variant"] != "tuned"]
    verdicts = table.set_index("implementation")["gate"]
    assert verdicts["pytorch"] == PASSED
    for _, row in table.iterrows():
        assert (row["gate"] == PASSED) == (row["runs on"] != ""), row
        assert row["gate"] == PASSED or row["why"], row
    if not torch.cuda.is_available():
        assert verdicts["numpy"] == PASSED
        assert verdicts["cutile"] == NOT_CHECKED
        assert table.set_index("implementation").loc["triton", "runs on"] in ("Triton interpreter", "")


def test_compare_refuses_what_does_not_exist():
    with pytest.raises(RequestError, match="did you mean 'matmul'"):
        mage.compare("matmull")
    with pytest.raises(RequestError, match="dims has 2 entries"):
        mage.compare("matmul", dims=(3, 4))
