"""The host harness: what it accepts of CUDA C++, and that each thing it promises to catch is caught.

The kernels of this file are written for it, a few lines each, and most are wrong on purpose.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mage import paths
from mage.cuda import hostcuda
from mage.cuda.hostcuda import HostKernelError, launch
from mage.errors import RequestError
from mage.kernels import cuda_stages

pytestmark = pytest.mark.skipif(hostcuda.compiler() is None, reason="no C++ compiler: not checked on this machine")


def needs(sanitizer):
    """Skips where programs of this sanitizer do not build or run (a container may forbid what it needs)."""
    if reason := hostcuda.can_sanitize(sanitizer):
        pytest.skip(f"{sanitizer} sanitizer: {reason}")


def floats(*shape):
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def nans(*shape):
    return np.full(shape, np.nan, np.float32)


def refused(kind, *args, **options):
    """The error of a launch that must fail with ``kind``; its text is one line."""
    with pytest.raises(HostKernelError) as caught:
        launch(*args, **options)
    assert caught.value.kind == kind, caught.value
    assert "\n" not in str(caught.value)
    return str(caught.value)


def kernel(body, parameters="const float* in, float* out, int n", before=""):
    """A kernel ``k``; its body begins on line 3."""
    return f'#include "mage.cuh"{before}\nextern "C" __global__ void __launch_bounds__(256) k({parameters}) {{\n{body}\n}}\n'


REVERSE = kernel("""
    __shared__ float tile[64];
    const int t = threadIdx.x;
    tile[t] = in[blockIdx.x * 64 + t];
    __syncthreads();  // line 7
    out[blockIdx.x * 64 + t] = tile[63 - t];
""")


# ---- the language


def test_threads_blocks_shared_memory_and_a_barrier():
    x, y = floats(4, 64), nans(4, 64)
    report = launch(REVERSE, "k", 4, 64, [x, y, 256])
    np.testing.assert_array_equal(y, x[:, ::-1])
    assert report.shared_bytes == 256
    assert list(report.barriers.values()) == [7]


def test_three_dimensions_of_blocks_and_threads():
    source = kernel(
        """
    const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    atomicAdd(&count[block * blockDim.x * blockDim.y * blockDim.z + thread], block * 1000 + thread);
""",
        "int* count",
    )
    count = np.zeros((12, 30), np.int32)
    launch(source, "k", (2, 3, 2), (5, 3, 2), [count])
    np.testing.assert_array_equal(count, np.arange(12)[:, None] * 1000 + np.arange(30))


def test_shared_declarations_of_every_form():
    source = kernel(
        """
    constexpr int ROWS = 2;
    __shared__ __align__(16) float quads[ROWS][8], /* a comment; with a semicolon */ single;
    volatile __shared__ int flag[
        1];
    extern __shared__ float more[];
    __shared__ float4 wide[2];
    if (threadIdx.x == 0) {
        single = 2.0f; flag[0] = 3; more[n - 1] = 4.0f;
        wide[1] = make_float4(5, 6, 7, 8);
        *reinterpret_cast<float4*>(&quads[1][4]) = wide[1];
        out[0] = single + flag[0] + more[n - 1] + quads[1][7];
    }
"""
    )
    y = nans(1)
    report = launch(source, "k", 1, 1, [floats(1), y, 100], shared=400)
    assert y[0] == 2 + 3 + 4 + 8
    assert report.shared_bytes == 64 + 4 + 4 + 32
    with pytest.raises(RequestError, match="extern __shared__"):
        launch(source, "k", 1, 1, [floats(1), y, 100])


def test_each_instantiation_of_a_template_has_its_own_shared_array():
    before = """
template <int N> __device__ __forceinline__ float* scratch() { __shared__ float own[N]; return own; }"""
    source = kernel("float* a = scratch<4>(); float* b = scratch<8>(); a[0] = 1; b[0] = 2; out[0] = a[0];", before=before)
    y = nans(1)
    assert launch(source, "k", 1, 1, [floats(1), y, 1]).shared_bytes == 48
    assert y[0] == 1


def test_numbers_of_every_kind_reach_the_kernel():
    source = kernel("out[0] = a; out[1] = b; out[2] = c; out[3] = d;", "double* out, int a, long long b, float c, unsigned d")
    y = np.zeros(4)
    launch(source, "k", 1, 1, [y, -3, 2**40, np.float32(0.1), np.int64(4_000_000_000)])
    np.testing.assert_array_equal(y, [-3, 2**40, np.float32(0.1), 4_000_000_000])


def test_the_same_array_given_twice_is_one_array():
    y = np.arange(32, dtype=np.float32)
    launch(kernel("out[threadIdx.x] = in[threadIdx.x] + 1; out[threadIdx.x] = in[threadIdx.x] + 1;"), "k", 1, 32, [y, y, 32])
    np.testing.assert_array_equal(y, np.arange(32) + 2)


@pytest.mark.parametrize(
    "args, says",
    [
        ([np.zeros(4, np.float32)], "takes 3 arguments, 1"),
        ([np.zeros(4, np.float64), np.zeros(4, np.float32), 4], "argument 0"),
        ([np.zeros(4, np.int32), np.zeros(4, np.float32), 4], "argument 0"),
        ([np.zeros(4, np.float32), np.zeros(4, np.float32), 4.0], "argument 2"),
        ([np.zeros(4, np.float32), np.zeros(4, np.float32), 2**32], "argument 2"),
        ([np.zeros((4, 4), np.float32).T, np.zeros(4, np.float32), 4], "contiguous"),
        ([np.zeros(4, np.float32), None, 4], "NoneType"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(args, says):
    with pytest.raises(RequestError, match=says):
        launch(kernel("out[0] = in[0];"), "k", 1, 1, args)


def test_overlapping_arrays_are_refused():
    x = np.zeros(8, np.float32)
    with pytest.raises(RequestError, match="overlaps"):
        launch(kernel("out[0] = in[0];"), "k", 1, 1, [x[:6], x[2:], 1])


def test_unknown_names_are_refused():
    with pytest.raises(RequestError, match="no kernel q"):
        launch(REVERSE, "q", 1, 1, [])
    with pytest.raises(RequestError, match="holds no kernel"):
        launch("int x;", "k", 1, 1, [])


# ---- warps


def shuffled(values, how, amount, width):
    """What the CUDA programming guide says of each shuffle, lane by lane."""
    result = values.copy()
    for lane in range(32):
        first = lane // width * width
        source = {
            "sync": first + amount % width,
            "up_sync": lane - amount if lane - amount >= first else lane,
            "down_sync": lane + amount if lane + amount < first + width else lane,
            "xor_sync": lane ^ amount if lane ^ amount < first + width else lane,
        }[how]
        result[lane] = values[source]
    return result


@pytest.mark.parametrize("how", ["sync", "up_sync", "down_sync", "xor_sync"])
def test_shuffles(how):
    cases = [(amount, width) for width in (2, 8, 32) for amount in (0, 1, 3, 5, 16, 31)]
    calls = "\n".join(
        f"out[{64 * i} + threadIdx.x] = __shfl_{how}(0xffffffffu, in[threadIdx.x], {amount}, {width});"
        for i, (amount, width) in enumerate(cases)
    )
    x, y = floats(64), nans(len(cases), 2, 32)
    launch(kernel(calls), "k", 1, 64, [x, y, 64])
    for i, case in enumerate(cases):
        for warp in range(2):
            np.testing.assert_array_equal(y[i, warp], shuffled(x.reshape(2, 32)[warp], how, *case), err_msg=str(case))


def test_votes_partial_masks_and_wide_values():
    source = kernel(
        """
    const int lane = threadIdx.x;
    out[lane] = __ballot_sync(0xffffffffu, lane % 3 == 0);
    if (lane < 8) out[32 + lane] = __shfl_xor_sync(0xffu, 1ll << 40 | lane, 1) >> 2;
    else out[32 + lane] = __any_sync(0xffffff00u, lane == 9) + 2 * __all_sync(0xffffff00u, lane > 8);
""",
        "long long* out",
    )
    y = np.zeros(64, np.int64)
    launch(source, "k", 1, 32, [y])
    assert set(y[:32]) == {sum(1 << lane for lane in range(0, 32, 3))}
    np.testing.assert_array_equal(y[32:40], [((1 << 40) + (lane ^ 1)) >> 2 for lane in range(8)])
    assert set(y[40:]) == {1}


def test_a_lane_that_takes_no_part_in_a_shuffle_gives_nan():
    x, y = floats(32), nans(32)
    launch(kernel("if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffu, in[threadIdx.x], 20);"), "k", 1, 32, [x, y, 32])
    assert np.isnan(y).all()


# ---- barriers


def test_exited_threads_count_as_arrived():
    source = kernel("""
    __shared__ float tile[64];
    if (threadIdx.x >= n) return;
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    __syncwarp();
    out[threadIdx.x] = tile[n - 1 - threadIdx.x];
""")
    x, y = floats(64), nans(64)
    launch(source, "k", 1, 64, [x, y, 40])
    np.testing.assert_array_equal(y[:40], x[:40][::-1])
    assert np.isnan(y[40:]).all()


def test_threads_at_different_barriers_are_reported():
    source = kernel("if (threadIdx.x < 32)\n__syncthreads();\nelse\n__syncthreads();\nout[0] = 1;")
    message = refused("deadlock", source, "k", 1, 64, [floats(1), nans(1), 1])
    assert "line 4" in message and "line 6" in message and "of block (0, 0, 0)" in message


def test_a_warp_collective_that_waits_for_a_lane_at_a_barrier_is_reported():
    source = kernel("if (threadIdx.x == 5)\n__syncthreads();\nelse\n__syncwarp();\nout[0] = 1;")
    message = refused("deadlock", source, "k", 1, 32, [floats(1), nans(1), 1])
    assert "line 4" in message and "line 6 for lanes 0x00000020" in message


def test_lanes_that_disagree_on_the_mask_are_reported():
    source = kernel("out[threadIdx.x] = __shfl_xor_sync(threadIdx.x < 16 ? 0xffffffffu : 0xffff0001u, in[0], 1);")
    refused("deadlock", source, "k", 1, 32, [floats(1), nans(32), 1])


def test_a_kernel_that_never_ends_is_ended():
    message = refused("deadlock", kernel("while (*(volatile const float*)in == 0);"), "k", 1, 2,
                      [np.zeros(1, np.float32), nans(1), 1], timeout_s=1)  # fmt: skip
    assert "1 s" in message


# ---- memory


def test_shared_memory_is_poisoned_before_every_block():
    source = kernel("""
    __shared__ float tile[4];
    if (n == 0) tile[threadIdx.x] = 1.0f;
    out[blockIdx.x * 4 + threadIdx.x] = tile[threadIdx.x];
    tile[threadIdx.x] = 2.0f;
""")
    y = np.zeros(4 * 600, np.float32)
    launch(source, "k", 600, 4, [floats(1), y, 1])  # more blocks than run at once
    assert np.isnan(y).all()


@pytest.mark.parametrize(
    "index, floats_given, says",
    [("n", 16, "byte 64 of argument 1, which has 64 bytes"), ("n + 5", 16, "byte 84"), ("-1 - n * 300", 16, "byte -19204"),
     ("n", 15, "argument 1 (60 bytes) was written 1 bytes past its end"), ("-1", 16, "before its start")],
)  # fmt: skip
def test_a_write_outside_an_argument_is_caught(index, floats_given, says):
    y = nans(floats_given)
    message = refused("out-of-bounds", kernel(f"out[{index}] = 1.0f;"), "k", 1, 1, [floats(16), y, floats_given])
    assert says in message
    assert np.isnan(y).all(), "arrays are as before after an error"


def test_a_read_past_the_end_names_the_thread_and_the_line():
    x, y = floats(64), nans(64)
    message = refused("out-of-bounds", kernel("out[threadIdx.x] = in[threadIdx.x +\n32];"), "k", 2, 64, [x, y, 64])
    assert "of block (" in message and "thread (" in message and "argument 0" in message
    if any(Path(folder, "addr2line").exists() for folder in os.get_exec_path()):
        assert "kernel.cu:4" in message


def test_address_sanitizer_sees_a_read_of_one_element_past_the_end():
    needs("address")
    source = kernel("out[0] =\nin[n];")
    launch(source, "k", 1, 1, [floats(15), nans(1), 15])  # reads poison, 4 bytes before the wall
    assert "kernel.cu:4" in refused("out-of-bounds", source, "k", 1, 1, [floats(15), nans(1), 15], asan=True)


UNDERSIZED = kernel("""
    __shared__ __align__(16) float small[60];
    __shared__ __align__(16) float neighbour[64];
    neighbour[threadIdx.x] = in[threadIdx.x];
    small[threadIdx.x] = 1.0f;  // line 7
    __syncthreads();
    out[threadIdx.x] = neighbour[threadIdx.x];
""")


def test_an_undersized_shared_array_is_caught():
    message = refused("out-of-bounds", UNDERSIZED, "k", 1, 64, [floats(64), nans(64), 64])
    assert "shared array small (240 bytes, declared at line 4) was written 1 bytes past its end" in message


def test_address_sanitizer_names_the_line_that_leaves_a_shared_array():
    needs("address")
    message = refused("out-of-bounds", UNDERSIZED, "k", 1, 64, [floats(64), nans(64), 64], asan=True)
    assert message.endswith("write of 4 bytes outside an array, kernel.cu:7")


@pytest.mark.parametrize(
    "body",
    [
        "const float4 q = *reinterpret_cast<const float4*>(in + n); out[0] = q.x + q.w;",
        "const float4 q = __ldg(reinterpret_cast<const float4*>(in + n)); out[0] = q.x + q.w;",
        "*reinterpret_cast<float2*>(out + n) = make_float2(in[0], in[1]);",
        "__shared__ float tile[8]; *reinterpret_cast<float4*>(tile) = make_float4(1, 2, 3, 4); out[0] = tile[n];",
        "__shared__ __align__(16) float tile[8]; cp_async_16(tile + n, in); cp_async_commit(); out[0] = 1;",
        "__shared__ __align__(16) float tile[8]; cp_async_16(tile, in + n); cp_async_commit(); out[0] = 1;",
    ],
)
def test_a_misaligned_wide_access_is_caught(body):
    message = refused("misaligned", kernel(body), "k", 1, 1, [floats(16), nans(16), 1])
    assert "thread (0, 0, 0)" in message and "kernel.cu:3" in message
    assert "multiple of 8" in message if "float2" in body else "multiple of 16" in message


@pytest.mark.parametrize("body", ["cp_async_4(tile + 8, in);", "cp_async_16(tile, in + 16);", "cp_async_4(out, in);"])
def test_a_copy_that_leaves_its_array_is_caught(body):
    source = kernel("__shared__ __align__(16) float tile[8]; " + body)
    assert "kernel.cu:3" in refused("out-of-bounds", source, "k", 1, 1, [floats(16), nans(16), 1])


@pytest.mark.parametrize("body, says", [("*(int*)(intptr_t)(n - 16) = 1;", "belongs to no"), ("out[0] = 7 / (n - 16);", "zero")])
def test_other_faults_are_told(body, says):
    assert says in refused("crash", kernel(body), "k", 1, 1, [floats(16), nans(16), 16])


# ---- cp.async


def copies(wait):
    """Two groups of copies by each thread, then a wait that leaves ``wait`` groups, then both are read."""
    return kernel(f"""
    __shared__ __align__(16) float first[32], second[32 * 4];
    const int t = threadIdx.x;
    cp_async_4(&first[t], &in[t]);
    cp_async_commit();
    cp_async_16(&second[4 * t], &in[32 + 4 * t]);
    cp_async_commit();
    cp_async_wait<{wait}>();
    __syncthreads();
    out[t] = first[31 - t];
    for (int i = 0; i < 4; ++i) out[32 + 4 * t + i] = second[4 * t + i];
""")


@pytest.mark.parametrize(
    "mode, wait, first_there, second_there",
    [("issue", 2, True, True), ("wait", 0, True, True), ("wait", 1, True, False), ("wait", 2, False, False)],
)
def test_where_copied_bytes_land(mode, wait, first_there, second_there):
    x, y = floats(160), nans(160)
    launch(copies(wait), "k", 1, 32, [x, y, 160], cp_async=mode)
    np.testing.assert_array_equal(y[:32], x[:32][::-1] if first_there else nans(32))
    np.testing.assert_array_equal(y[32:], x[32:] if second_there else nans(128))


def test_a_copy_into_a_buffer_that_is_still_read_shows_nan_and_a_copy_not_committed_never_lands():
    source = kernel("""
    __shared__ float tile[1];
    tile[0] = 1.0f;
    cp_async_4(tile, in);
    out[0] = tile[0];
    cp_async_wait<0>();
    out[1] = tile[0];
    cp_async_commit();
    cp_async_wait<0>();
    out[2] = tile[0];
""")
    x, y = floats(1), nans(3)
    launch(source, "k", 1, 1, [x, y, 1], cp_async="wait")
    assert np.isnan(y[:2]).all() and y[2] == x[0]


# ---- races


def test_a_barrier_left_out_is_a_race():
    needs("thread")
    x, y = floats(128), nans(128)
    barrier = next(iter(launch(REVERSE, "k", 2, 64, [x, y, 128], tsan=True).barriers))  # none as it stands
    message = refused("race", REVERSE, "k", 2, 64, [x, y, 128], tsan=True, drop_barrier=barrier)
    assert "write of 4 bytes at kernel.cu:6" in message and "read of 4 bytes at kernel.cu:8" in message
    with pytest.raises(HostKernelError, match="not-reached"):
        launch(REVERSE, "k", 2, 64, [x, y, 128], drop_barrier=barrier + 1)


def test_each_barrier_of_a_tree_is_needed():
    needs("thread")
    source = kernel("""
    __shared__ float sums[64];
    sums[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for (int half = 32; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    out[threadIdx.x] = sums[0];
    __syncthreads();
    sums[threadIdx.x] = 0.0f;
""")
    x, y = floats(64), nans(64)
    report = launch(source, "k", 1, 64, [x, y, 64], tsan=True)
    np.testing.assert_allclose(y, x.sum(), rtol=1e-5)
    assert len(report.barriers) == 3
    for barrier in report.barriers:
        refused("race", source, "k", 1, 64, [x, y, 64], tsan=True, drop_barrier=barrier)


def test_a_race_between_two_blocks_is_seen():
    needs("thread")
    source = kernel("out[threadIdx.x] = in[blockIdx.x];")
    refused("race", source, "k", 2, 32, [floats(2), nans(32), 32], tsan=True)


def test_warp_exchanges_and_atomics_raise_no_false_alarm():
    needs("thread")
    source = kernel("""
    __shared__ float warps[4];
    __shared__ int count;
    __shared__ float scratch[128];
    float sum = in[threadIdx.x];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = __shfl_sync(1u, sum, 0);
    if (threadIdx.x == 0) count = 0;
    scratch[threadIdx.x] = 1.0f;
    __syncwarp();
    const float other = scratch[threadIdx.x ^ 1];
    __syncthreads();
    atomicAdd(&count, __popc(__ballot_sync(0xffffffffu, other == 1.0f)) == 32);
    __syncthreads();
    if (threadIdx.x == 0) out[0] = warps[0] + warps[1] + warps[2] + warps[3];
    if (threadIdx.x == 1) out[1] = count;
""")
    x, y = floats(128), nans(2)
    launch(source, "k", 1, 128, [x, y, 128], tsan=True)
    np.testing.assert_allclose(y, [x.sum(), 128], rtol=1e-5)


def test_a_copy_that_only_its_own_thread_waited_for_is_a_race():
    needs("thread")
    source = copies(0)
    x, y = floats(160), nans(160)
    barrier = next(iter(launch(source, "k", 1, 32, [x, y, 160], tsan=True, cp_async="wait").barriers))
    for mode in ("issue", "wait"):
        message = refused("race", source, "k", 1, 32, [x, y, 160], tsan=True, cp_async=mode, drop_barrier=barrier)
        assert "kernel.cu:12" in message, "the reader's line"


# ---- the kernels of this project, each stage once (the gate looks at them closely)


def matmul(dims):
    a, b = floats(dims[0], dims[2]), floats(dims[2], dims[1])
    return [a, b], a.astype(float) @ b


def gelu(dims):
    x, bias = floats(*dims), floats(dims[1])
    z = x.astype(float) + bias
    return [x, bias], z / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))


def layernorm(dims):
    x, gamma, beta = floats(*dims), floats(dims[1]), floats(dims[1])
    centred = x - x.mean(1, keepdims=True, dtype=float)
    return [x, gamma, beta], centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * gamma + beta


def triangle(dims):
    a, b = floats(dims[0], *dims), floats(dims[0], *dims)
    return [a, b], np.einsum("ikc,jkc->ijc", a.astype(float), b)


def neighbor(dims):
    nodes, features, edges = dims
    x, weights = floats(nodes, features), floats(edges)
    rows, sources = (np.random.default_rng(3).integers(0, nodes, edges, dtype=np.int32) for _ in range(2))
    rows.sort()
    pointers = np.searchsorted(rows, np.arange(nodes + 1)).astype(np.int32)
    y = np.zeros((nodes, features))
    np.add.at(y, rows, weights[:, None].astype(float) * x[sources])
    return [x, weights, pointers, sources], y


# Tails where the stage takes them, whole tiles where it does not; at most 4 blocks and 3 K tiles.
SHAPES = {
    "matmul": ((17, 19, 23), (64, 128, 96), (64, 128, 192)),
    "gelu": ((3, 257), (3, 256)),
    "layernorm": ((3, 257), (3, 768)),
    "triangle": ((5, 33), (32, 32)),
    "neighbor": ((21, 33, 60), (21, 36, 60)),
}


@pytest.mark.parametrize("stage", [stage for stages in cuda_stages.STAGES.values() for stage in stages.values()],
                         ids=lambda stage: stage.kernel)  # fmt: skip
@pytest.mark.parametrize("mode", ["issue", "wait"])
def test_each_stage_of_the_kernel_files(stage, mode):
    file = paths.KERNELS / "cuda" / f"{stage.operation}.cu"
    dims = next(dims for dims in SHAPES[stage.operation] if stage.supports(dims) is None)
    inputs, expected = globals()[stage.operation](dims)
    out = np.full(expected.shape, np.nan, np.float32)
    before = [array.copy() for array in inputs]
    report = launch(file, stage.kernel, stage.grid(dims), stage.block_at(dims), [*inputs, out, *dims], cp_async=mode, shared=stage.dynamic)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
    assert report.shared_bytes == stage.shared
    for array, copy in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(array, copy)


# ---- building


def test_a_compile_error_is_one_line_with_file_and_line(tmp_path):
    broken = tmp_path / "broken.cu"
    broken.write_text(kernel("    int x = 1;\n    out[0] = y;"))
    message = refused("compile", broken, "k", 1, 1, [])
    assert message.startswith("compile: broken.cu:4:") and "y" in message


def test_programs_are_cached_by_content(tmp_path, monkeypatch):
    monkeypatch.setenv("MAGE_CACHE", str(tmp_path / "cache"))
    file, header = tmp_path / "one.cu", tmp_path / "more.cuh"
    file.write_text('#include "more.cuh"\n' + kernel("out[0] = VALUE;"))
    header.write_text("#define VALUE 1\n")
    y = nans(1)

    def run():
        launch(file, "k", 1, 1, [floats(1), y, 1])
        return y[0]

    assert run() == 1
    first = hostcuda.build(file)
    with monkeypatch.context() as patch:
        patch.setattr(hostcuda, "_compile", lambda command: pytest.fail("compiled again"))
        assert run() == 1
    header.write_text("#define VALUE 2\n")
    assert run() == 2
    file.write_text(file.read_text().replace("VALUE;", "3;"))
    assert run() == 3
    assert hostcuda.build(file) != first
    left = sorted(path.name for path in (tmp_path / "cache" / "hostcuda").iterdir())
    assert len(left) == 4 and not any(name.startswith("building") for name in left), left


def test_without_a_compiler_the_answer_is_clear(monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert hostcuda.compiler() is None
    assert "no C++ compiler" in refused("compile", REVERSE, "k", 1, 1, [])


def test_a_path_with_spaces_and_other_letters(tmp_path, monkeypatch):
    folder = tmp_path / "Prüfung mit Abstand"
    folder.mkdir()
    monkeypatch.setenv("MAGE_CACHE", str(folder))
    (folder / "kërnel.cu").write_text(REVERSE)
    x, y = floats(64), nans(64)
    launch(folder / "kërnel.cu", "k", 1, 64, [x, y, 64])
    np.testing.assert_array_equal(y, x[::-1])


def test_nothing_is_left_running_when_the_caller_is_killed():
    endless = kernel("while (*(volatile const float*)in == 0);")
    program = hostcuda.build(endless)
    script = (
        "import numpy as np\nfrom mage.cuda.hostcuda import launch\n"
        f"launch({endless!r}, 'k', 1, 1, [np.zeros(1, 'f4'), np.zeros(1, 'f4'), 1])"
    )

    def state(pid):
        """(letter of its state, number of threads), or None when there is no such process."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return fields[0], int(fields[17])

    def until(condition, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if result := condition():
                return result
            time.sleep(0.01)
        return None

    def running_kernel():
        for pid in Path(f"/proc/{caller.pid}/task/{caller.pid}/children").read_text().split():
            with contextlib.suppress(OSError):  # a compiler's process that has just ended
                if os.readlink(f"/proc/{pid}/exe") == str(program) and state(pid)[1] > 1:
                    return int(pid)
        return None

    caller = subprocess.Popen([sys.executable, "-c", script])
    child = until(running_kernel)
    caller.kill()
    caller.wait()
    assert child
    try:
        assert until(lambda: (state(child) or "Z")[0] == "Z", seconds=5), "the kernel's process outlived its caller"
    finally:
        if state(child):
            os.kill(child, signal.SIGKILL)
