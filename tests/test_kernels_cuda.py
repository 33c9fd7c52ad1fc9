"""Every stage of the CUDA C++ kernels: right at every shape it takes, and each way of breaking it refused.

On the CPU the kernel files are built for the host; marked gpu, the same tests run on a GPU.
"""

from functools import cache

import broken_kernels
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mage import gate, implementations, kernels, operations
from mage.cuda import hostcuda
from mage.cuda.hostcuda import HostKernelError
from mage.errors import RequestError
from mage.gate import FAILED, PASSED, gating
from mage.kernels import cuda_stages

STAGES = [stage for stages in cuda_stages.STAGES.values() for stage in stages.values()]
HOST_ROW = {
    (stage.operation, stage.name): implementations.Row(stage.operation, "cuda", stage.name, implementations.HOST, True) for stage in STAGES
}
needs_compiler = pytest.mark.skipif(hostcuda.compiler() is None, reason="no C++ compiler: not checked on this machine")
gpu = pytest.mark.gpu


def itself(stage, case):
    """Whether the stage computes this case, and no fallback does: that one has tests of its own."""
    return case.operation == stage.operation and stage.supports(case.dims) is None


def on_host(stage, case):
    return itself(stage, case) and gating.fits(case, HOST_ROW[stage.operation, stage.name])


def checked(stage, case, device, **options):
    return gate.check(stage.operation, "cuda", stage.name, case.dims, device, make_inputs=case.make_inputs, case=case.name, **options)


@pytest.mark.parametrize(
    ("stage", "case", "device"),
    [
        *(
            pytest.param(stage, case, "cpu", marks=needs_compiler, id=f"{stage.kernel}-{case}-host")
            for stage in STAGES for case in gating.CASES if on_host(stage, case)
        ),
        *(
            pytest.param(stage, case, "cuda", marks=gpu, id=f"{stage.kernel}-{case}-gpu")
            for stage in STAGES for case in gating.CASES if case.operation == stage.operation
        ),
    ],
)  # fmt: skip
def test_every_stage_at_every_shape(stage, case, device):
    result = checked(stage, case, device)
    assert result.passed == PASSED, gating.line(result)
    inputs = (case.make_inputs or operations.get(case.operation).make_inputs)(case.dims)
    really = cuda_stages.choose(stage.operation, stage.name, case.dims, inputs).stage
    assert result.which == really.kernel
    assert (result.grid, result.block) == (list(really.grid(case.dims)), list(really.block_at(case.dims)))
    assert result.where == ("host C++" if device == "cpu" else "gpu")
    assert result.launches == 1
    assert not result.allocates


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.kernel)
def test_every_stage_is_gated_on_the_host_at_some_shape(stage):
    assert any(on_host(stage, case) for case in gating.CASES)


@needs_compiler
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_stages_without_barriers_at_random_shapes(data):
    """The stages that a thread computes alone, with tails: a few milliseconds each on the host."""
    stage = data.draw(st.sampled_from([s for s in STAGES if s.operation in ("gelu", "triangle", "neighbor")]), label="stage")
    most = {"gelu": (9, 60), "triangle": (7, 9), "neighbor": (12, 9, 40)}[stage.operation]
    dims = tuple(data.draw(st.integers(1, size)) for size in most)
    result = gate.check(stage.operation, "cuda", stage.name, dims, "cpu")
    assert result.passed == PASSED, gating.line(result)


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=gpu)])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_layernorm_at_random_widths(device, data):
    stage = data.draw(st.sampled_from(list(cuda_stages.STAGES["layernorm"])), label="stage")
    dims = (data.draw(st.integers(1, 3), label="R"), data.draw(st.integers(1, 1200), label="D"))
    result = gate.check("layernorm", "cuda", stage, dims, device)
    assert result.passed == PASSED, gating.line(result)


@gpu
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_all_stages_at_random_shapes_on_a_gpu(data):
    stage = data.draw(st.sampled_from(STAGES), label="stage")
    whole = data.draw(st.booleans(), label="whole tiles") and stage.operation == "matmul"
    dims = tuple(data.draw(st.integers(1, 5)) * 64 if whole else data.draw(st.integers(1, 200)) for _ in stage_dims(stage))
    result = gate.check(stage.operation, "cuda", stage.name, dims, "cuda")
    assert result.passed == PASSED, gating.line(result)


def stage_dims(stage):
    return operations.get(stage.operation).dims_names


# -- what a stage cannot take


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=gpu)])
def test_a_shape_that_a_stage_cannot_take_goes_to_one_that_can_and_the_record_says_so(device):
    result = gate.check("layernorm", "cuda", "row", (2, 1032), device)
    assert (result.passed, result.which) == (PASSED, "layernorm_pair")
    assert result.note.startswith("row: width 1032 is more than the 1024")
    result = gate.check("layernorm", "cuda", "row", (2, 257), device)
    assert (result.passed, result.which) == (PASSED, "layernorm_block")
    result = gate.check("matmul", "cuda", "pipeline", (17, 19, 23), device)
    assert (result.passed, result.which) == (PASSED, "matmul_tiled")
    assert "M = 17 is not a multiple of 64" in result.note


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=gpu)])
def test_an_address_that_quads_cannot_take_goes_to_a_stage_without_them(device):
    operation = operations.get("layernorm")
    inputs = {name: tensor.to(device) for name, tensor in operation.make_inputs((2, 128)).items()}
    off = torch.empty(2 * 128 + 1, device=device)[1:].view(2, 128).copy_(inputs["X"])  # 4 bytes past a multiple of 16
    out = torch.full((2, 128), torch.nan, device=device)
    call = implementations.prepare("layernorm", "cuda", "row", {**inputs, "X": off}, out)
    assert call.which == "layernorm_block"
    assert "X does not start at a multiple of 16 bytes" in call.note
    call.run()
    assert gate.judge("layernorm", inputs, out).passed


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=gpu)])
@pytest.mark.parametrize("stage", ["block", "warp", "pair", "row"])
def test_far_from_zero_centred_variances_hold_and_the_others_say_where_they_stop(stage, device):
    result = gate.check("layernorm", "cuda", stage, (4, 256), device)
    assert result.passed == PASSED
    centred = stage in ("block", "warp")
    assert result.means == {"3": PASSED, "100": PASSED if centred else "failed past |μ|/σ = 16"}


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=gpu)])
def test_an_edited_kernel_is_what_the_next_call_runs(device, tmp_path):
    file = tmp_path / "gelu.cu"
    file.write_text(kernels.source("cuda/gelu"))
    (tmp_path / "mage.cuh").write_text(kernels.source(kernels.path("cuda/gelu").parent / "mage.cuh"))
    assert gate.check("gelu", "cuda", None, (3, 50), device, source=file).passed == PASSED
    file.write_text(broken_kernels.broken("gelu-unwritten-tail"))
    assert gate.check("gelu", "cuda", None, (3, 50), device, source=file).passed == FAILED


# -- broken on purpose

BROKEN = list(broken_kernels.BROKEN)
RESULT = [name for name in BROKEN if broken_kernels.BROKEN[name].shows == "result"]


def gated(name, dims, device, **options):
    broken = broken_kernels.BROKEN[name]
    return gate.check(broken.operation, "cuda", broken.stage, dims, device, source=broken.source(), **options)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        *(pytest.param(name, "cpu", marks=needs_compiler, id=f"{name}-host") for name in BROKEN),
        *(pytest.param(name, "cuda", marks=gpu, id=f"{name}-gpu") for name in RESULT),
    ],
)
def test_broken_kernels_are_refused(name, device):
    broken = broken_kernels.BROKEN[name]
    result = gated(name, broken.dims, device)
    assert result.passed == FAILED
    assert result.which == f"{broken.operation}_{broken.stage}"
    if broken.shows == "bounds":
        assert "out-of-bounds" in result.reason
    else:
        assert result.first_wrong_index is not None
    if broken.shows == "late copy":
        assert result.reason.endswith("(asynchronous copies landing at their wait)")
    if broken.hidden_at:
        # where the same change does no harm: a shape that would have hidden it
        assert gated(name, broken.hidden_at, device).passed == PASSED


@needs_compiler
@pytest.mark.parametrize("name", [name for name in BROKEN if broken_kernels.BROKEN[name].shows == "late copy"])
def test_a_wait_that_is_short_shows_only_when_copies_land_late(name):
    assert gated(name, broken_kernels.BROKEN[name].dims, "cpu", host={"cp_async": "issue"}).passed == PASSED


@pytest.mark.parametrize(
    ("dims", "device"),
    [
        pytest.param((16, 16, 64), "cpu", marks=needs_compiler, id="host"),
        pytest.param((256, 256, 256), "cuda", marks=gpu, id="gpu"),
    ],
)
def test_a_product_that_went_through_tf32_is_refused(dims, device):
    """The tiled kernel with each value rounded to what a tensor core reads, ten bits of mantissa, on its way in."""
    source = kernels.source("cuda/matmul")
    rounding = """
__device__ __forceinline__ float narrow_scalar(const float* p) {
    return __uint_as_float((__float_as_uint(shared_scalar(p)) + 0x1000u) & ~0x1fffu);
}
"""
    body = source[source.index("matmul_tiled(") :]
    assert "shared_scalar(" in body
    source = source.replace(body, body.replace("shared_scalar(", "narrow_scalar("))
    source = source.replace('#include "mage.cuh"\n', '#include "mage.cuh"\n' + rounding)
    result = gate.check("matmul", "cuda", "tiled", dims, device, source=source)
    assert result.passed == FAILED
    assert result.checks["FP64 ratio"] is False


# -- barriers, under a race detector


@cache
def thread_sanitizer():
    return hostcuda.can_sanitize("thread")


@pytest.fixture
def tsan():
    if reason := thread_sanitizer():
        pytest.skip(f"ThreadSanitizer: {reason}: not checked on this machine")


RACE_DIMS = {  # the smallest shape that passes every barrier of the stage, twice where it stands in a loop
    "matmul_tiled": (16, 16, 32), "matmul_registers": (64, 64, 64), "matmul_registers_merged": (64, 64, 64),
    "matmul_narrow": (32, 32, 64), "matmul_quads": (64, 64, 128), "matmul_pipeline": (64, 64, 96),
    "gelu_elementwise": (3, 100), "layernorm_block": (1, 300), "layernorm_warp": (8, 132), "layernorm_pair": (4, 132),
    "layernorm_row": (2, 516), "triangle_elementwise": (9, 4), "neighbor_feature": (7, 5, 20), "neighbor_quad": (7, 8, 20),
    "matmul_groups": (64, 128, 64), "matmul_spread": (64, 128, 64), "matmul_banks": (64, 128, 64),
    "gelu_quads": (4, 772), "layernorm_team": (2, 516), "layernorm_registers": (5, 132), "triangle_shared": (32, 32),
    "neighbor_warp": (7, 8, 20), "neighbor_balanced": (3, 8, 400), "gelu_cached": (13, 768), "layernorm_scalars": (2, 257),
    "triangle_tiles": (32, 32), "neighbor_lean": (7, 8, 20), "neighbor_hubs": (3, 8, 400),
}  # fmt: skip


def modes(stage):
    """When asynchronous copies land, where a stage has any: one mode shows what the other hides."""
    return ("issue", "wait") if stage.name in ("pipeline", "groups", "spread", "banks", "shared", "tiles") else ("issue",)


def launched(stage, **options):
    dims = RACE_DIMS[stage.kernel]
    if stage.form(dims):
        itself_on_the_host(stage, dims, tsan=True, **options)
        return
    operation = operations.get(stage.operation)
    inputs = operation.make_inputs(dims)
    out = torch.full(operation.output_shape(dims), torch.nan)
    call = implementations.prepare(stage.operation, "cuda", stage.name, inputs, out, host={"tsan": True, **options})
    assert call.which == stage.kernel
    call.run()
    assert gate.judge(operation, inputs, out).passed


@needs_compiler
@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.kernel)
def test_no_stage_races(stage, tsan):
    for mode in modes(stage):
        launched(stage, cp_async=mode)


FORM_DIMS = {  # small shapes: an edge or the least number of whole tiles, and slabs enough to go round the ring
    "matmul_edge": (17, 20, 40), "matmul_split": (64, 128, 256), "matmul_third": (64, 96, 64), "matmul_broad": (192, 96, 48),
    "matmul_wide": (128, 256, 16), "matmul_quarter": (64, 64, 320), "gelu_by_row": (5, 1028),
}  # fmt: skip
FORMS = [form for forms in cuda_stages.FORMS.values() for form in forms.values()]


def itself_on_the_host(kernel, dims, **options):
    """The kernel, whatever the launcher would take at these dims; returns its workspace."""
    operation = operations.get(kernel.operation)
    inputs, out = operation.make_inputs(dims), torch.full(operation.output_shape(dims), torch.nan)
    floats, counters = kernel.workspace(dims) if kernel.workspace else (0, 0)
    workspace = [torch.full((floats,), torch.nan), torch.zeros(counters, dtype=torch.int32)] if kernel.workspace else []
    arrays = [tensor.numpy() for tensor in (*inputs.values(), out, *workspace)]
    file = kernels.path(f"cuda/{kernel.operation}")
    hostcuda.launch(file, kernel.kernel, kernel.grid(dims), kernel.block_at(dims), [*arrays, *dims], shared=kernel.dynamic, **options)
    assert gate.judge(operation, inputs, out).passed
    return workspace


@needs_compiler
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.kernel)
@pytest.mark.parametrize("cp_async", ["issue", "wait"])
def test_every_form_is_right_on_the_host(form, cp_async):
    workspace = itself_on_the_host(form, FORM_DIMS[form.kernel], cp_async=cp_async)
    assert not workspace or not workspace[1].any()  # the counters are as the next launch wants them


@needs_compiler
@pytest.mark.parametrize("form", [form for form in FORMS if form.name != "split"], ids=lambda form: form.kernel)
def test_no_form_races(form, tsan):
    """All but split, whose fences ThreadSanitizer does not understand."""
    for mode in ("issue", "wait"):
        itself_on_the_host(form, FORM_DIMS[form.kernel], cp_async=mode, tsan=True)


BARRIERS = [
    pytest.param(cuda_stages.get(operation, stage), barrier.number, id=f"{operation}.cu:{barrier.line}-{stage}")
    for operation in cuda_stages.STAGES
    for barrier in broken_kernels.barriers(kernels.source(f"cuda/{operation}"))
    for stage in barrier.stages[:1]
]


@needs_compiler
@pytest.mark.parametrize(("stage", "barrier"), BARRIERS)
def test_each_barrier_is_needed(stage, barrier, tsan):
    found = []
    for mode in modes(stage):
        try:
            launched(stage, drop_barrier=barrier, cp_async=mode)
        except HostKernelError as error:
            found.append(error.kind)
    assert "race" in found


def test_there_are_barriers_to_leave_out():
    stages = {parameter.values[0].kernel for parameter in BARRIERS}
    # as another stage's
    same_text = {"matmul_registers_merged", "matmul_spread", "matmul_banks", "triangle_tiles", "neighbor_hubs"}
    assert {stage.kernel for stage in STAGES if stage.shared or stage.dynamic} - same_text == stages


def test_a_stage_that_does_not_exist():
    with pytest.raises(RequestError, match="cuda has no variant 'pipelined'"):
        gate.check("matmul", "cuda", "pipelined", (64, 64, 64), "cpu")
