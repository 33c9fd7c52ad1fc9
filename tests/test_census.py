"""The census, computed: counts known from the published texts, from contracts, and from the device itself."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mage
from mage import cuda, gate, paths, provenance
from mage.census import compile_pool, counting, describe, offline
from mage.errors import RequestError
from mage.kernels import cuda_stages
from mage.notebook import kernel_launcher

ARCHS = ("sm_89", "sm_90")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Kernels of its own, to edit, and a cache of its own; returns the kernels' folder."""
    shutil.copytree(paths.KERNELS, tmp_path / "kernels")
    monkeypatch.setattr(paths, "KERNELS", tmp_path / "kernels")
    monkeypatch.setenv("MAGE_ROOT", str(tmp_path))
    monkeypatch.setenv("MAGE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "kernels"


@pytest.fixture(scope="module")
def norm():
    """Triton's layernorm both ways and the hand-written pair, by (GPU, implementation, how compiled)."""
    ways = (offline.AS_LAUNCHED, offline.NO_ALIGNMENT)
    frame = counting.count_code("layernorm", ["triton", "cuda"], ARCHS, specializations=ways)
    frame = frame[(frame.implementation == "triton") | (frame.variant == "pair")]
    return {(row["gpu"], row["implementation"], row["compiled"]): row for row in frame.to_dict("records")}


@pytest.mark.parametrize("arch", ARCHS)
def test_without_alignment_tritons_norm_has_the_published_scalar_accesses(norm, arch):
    row = norm[arch, "triton", offline.NO_ALIGNMENT]
    assert (row["ptx global loads"], row["ptx global loads 1x32"]) == (24, 24)
    assert (row["ptx global stores"], row["ptx global stores 1x32"]) == (8, 8)
    # the width is known: the assembler leaves out the accesses that lie past it in every thread
    assert (row["global loads"], row["global loads 32"], row["global stores"]) == (18, 18, 6)
    assert row["static shared"] + row["dynamic shared"] == 16
    assert (row["grid"], row["threads"]) == ("4096 × 1 × 1", 128)


@pytest.mark.parametrize("arch", ARCHS)
def test_as_the_jit_specializes_it_the_accesses_are_128_bits_wide(norm, arch):
    row = norm[arch, "triton", offline.AS_LAUNCHED]
    assert (row["ptx global loads"], row["ptx global loads 4x32"]) == (6, 6)
    assert (row["ptx global stores"], row["ptx global stores 4x32"]) == (2, 2)
    assert (row["global loads 128"], row["global stores 128"]) == (6, 2)
    assert row["static shared"] + row["dynamic shared"] == 16


@pytest.mark.parametrize("arch", ARCHS)
def test_the_pair_kernel_asks_for_what_the_contract_says(norm, arch):
    row = norm[arch, "cuda", offline.AS_LAUNCHED]
    assert (row["grid"], row["threads"], row["static shared"], row["barriers"]) == ("1024 × 1 × 1", 256, 64, 1)
    assert row["global loads"] == row["global loads 128"] > 0


def test_passes_over_the_row_come_out_of_the_code():
    frame = counting.count_code("layernorm", ["cuda", "triton"], ["sm_89"])
    passes = {variant: count for variant, count in zip(frame.variant, frame["passes over X"], strict=True) if count == count}
    # team and registers hold a version for every width, so that their loads say nothing of one row.
    assert passes == {"fixed": 1, "block": 3, "warp": 3, "pair": 2, "row": 1}


@pytest.fixture(scope="module")
def matmul():
    frame = counting.count_code("matmul", "cuda", ARCHS)
    return {(row["gpu"], row["variant"]): row for row in frame.to_dict("records")}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    "stage, words, instructions",
    [("tiled", 2, 2), ("registers", 0.5, 0.5), ("narrow", 0.75, 0.75), ("quads", 0.5, 0.125), ("pipeline", 0.5, 0.125)],
)
def test_shared_reads_of_a_multiply_add_come_out_of_the_code(matmul, arch, stage, words, instructions):
    row = matmul[arch, stage]
    assert (row["words per multiply-add"], row["reads per multiply-add"]) == (words, instructions)


@pytest.mark.parametrize("arch", ARCHS)
def test_both_wide_stages_ask_for_33792_bytes(matmul, arch):
    assert {matmul[arch, stage]["static shared"] for stage in ("quads", "pipeline")} == {33792}
    assert matmul[arch, "pipeline"]["cp.async"] > 0 and matmul[arch, "quads"]["cp.async"] == 0


# What cuTile's own launcher derived from PyTorch's tensors on a GPU: a mangled name states every assumption.
LAUNCHED = {
    "matmul": "Kt1_A2f32_1v4l0_2t1_3i16_p16_A2f32_1v4l0_2t1_3i16_p16_A2f32_1v4l0_2t1_3i16_p16_I32_I128_I32",
    "gelu": "Kt1_A2f32_1v4l0_2t1_3i16_p16_A1f32_1i16t1_p16_A2f32_1v4l0_2t1_3i16_p16_I8_I128",
    "layernorm": "Kt1_A2f32_1v4l0_2t1_3i16_p16_A1f32_1i16t1_p16_A1f32_1i16t1_p16_A2f32_1v4l0_2t1_3i16_p16_I768_I1024",
    "triangle": "Kt1_A3f32_3v4l0_4t1_7i16_p16_A3f32_3v4l0_4t1_7i16_p16_A3f32_3v4l0_4t1_7i16_p16_I32_I32_I32",
    "neighbor": "Kt1_A2f32_1v4l0_2t1_3i16_p16_A1f32_1i16t1_p16_A1i32_1t1_p16_A1i32_1i16t1_p16_A2f32_1v4l0_2t1_3i16_p16_I32_I64",
}


def test_cutile_kernels_are_compiled_as_they_are_launched():
    frame = counting.count_code(None, "cutile", ["sm_90"])
    assert dict(zip(frame.operation, frame.kernel, strict=True)) == {
        operation: f"{operation}_kernel_{mangled}" for operation, mangled in LAUNCHED.items()
    }


def test_no_kernel_of_ours_uses_tensor_cores_or_is_refused():
    frame = counting.count_code()
    assert len(frame) == 2 * len(offline.units())
    assert frame.refused.isna().all() and (frame["tensor-core"] == 0).all()


def test_ptx_is_counted_where_there_is_some():
    frame = counting.count_code("neighbor", archs=["sm_90"])
    counted = dict(zip(frame.variant.where(frame.implementation == "cuda", frame.implementation), frame["ptx global loads"], strict=True))
    assert counted.pop("cutile") != counted["triton"], "cuTile shows no PTX"
    assert set(counted) == {"triton", "feature", "quad", "warp", "balanced", "lean", "hubs"}
    assert all(count > 0 for count in counted.values())


def test_a_local_array_lies_on_the_stack():
    text = """
    extern "C" __global__ void k(float* X, int i, int n) {
        float a[64];
        for (int j = 0; j < n; ++j) a[j * 7 % 64] = X[j];
        X[0] = a[i];
    }"""
    job = offline.Job(operation="gelu", implementation="cuda", variant="k", arch="sm_90")
    cubin = cuda.build("gelu", "sm_90", text).cubin
    row = describe.row(offline.Compiled(job=job, dims=(1, 1), kernel="k", grid=(1, 1, 1), threads=32, compiler="", cubin=cubin))
    assert row["stack"] == 64 * 4 and row["local bytes stored"] > 0 and row["local bytes loaded"] == 4


def test_the_function_is_there_whatever_was_imported():
    assert mage.count_code is counting.count_code


def test_shared_memory_that_a_launch_asks_for_counts_as_much_as_what_the_code_declares():
    frame = counting.count_code("triangle", "cuda", ["sm_89", "sm_90"]).set_index(["variant", "gpu"])
    asked = cuda_stages.get("triangle", "shared").dynamic
    assert asked > 99 * 1024 and frame.loc[("shared", "sm_90"), "dynamic shared"] == asked
    assert tuple(frame.loc[("shared", "sm_90"), ["blocks per SM", "limited by"]]) == (1, "shared memory")
    assert tuple(frame.loc[("shared", "sm_89"), ["blocks per SM", "limited by"]]) == (0, "shared memory")  # does not fit there


def test_a_second_census_compiles_nothing(monkeypatch):
    counting.count_code("gelu", "cuda", ["sm_90"])
    monkeypatch.setattr(compile_pool, "_Worker", None)
    assert len(counting.count_code("gelu", "cuda", ["sm_90"])) == 3


@pytest.mark.parametrize("arguments", [("layernrom",), (None, "tritn"), (None, None, ["sm_1"])])
def test_an_unknown_name_is_refused_with_the_known_ones(arguments):
    with pytest.raises(RequestError, match="layernorm|triton|sm_90"):
        counting.count_code(*arguments)


def test_a_census_notes_the_kernel_files_that_it_rests_on_whether_compiled_or_kept(monkeypatch):
    for _ in range(2):
        monkeypatch.setattr(provenance, "used", {})
        counting.rows("gelu", ["cuda", "cutile"], ["sm_90"])
        used = {os.path.relpath(file, paths.KERNELS) for file in provenance.used}
        assert {"cuda/gelu.cu", "cuda/mage.cuh", "cutile/gelu.py"} <= used


def test_another_compiler_counts_anew(monkeypatch):
    (job,) = [offline.Job(operation="gelu", implementation="triton", variant="fixed", arch="sm_90")]
    before = compile_pool._key(job)
    assert compile_pool._key(job) == before
    monkeypatch.setattr(compile_pool, "compiler", lambda job: "triton 99")
    assert compile_pool._key(job) != before


def test_an_edited_kernel_is_counted_anew(tree):
    before = counting.rows("gelu", "triton", ["sm_90"])
    file = tree / "triton" / "gelu.py"
    file.write_text(file.read_text().replace('"num_warps": 4', '"num_warps": 8'))
    after = counting.rows("gelu", "triton", ["sm_90"])
    assert [row["threads"] for row in (*before, *after)] == [128, 256]


def test_a_compiler_that_crashes_takes_one_row_with_it(tree):
    (tree / "triton" / "gelu.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    rows = counting.rows(["gelu", "neighbor"], "triton", ["sm_90"])
    said = {row["operation"]: row["refused"] for row in rows}
    assert said["neighbor"] is None and "SIGSEGV" in said["gelu"]
    (tree / "triton" / "gelu.py").write_text("import nothing_of_this_name\n")
    (row,) = counting.rows("gelu", "triton", ["sm_90"])
    assert "nothing_of_this_name" in row["refused"]


def test_what_goes_wrong_on_this_side_leaves_no_compiler_behind(tree, monkeypatch):
    monkeypatch.setattr(compile_pool, "_keep", None)
    with pytest.raises(TypeError):
        counting.rows("gelu", "triton", ["sm_90"])
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in kernel_launcher.descendants(os.getpid())]
    assert not any(b"compile_pool" in command for command in commands)


def test_the_interpreter_of_a_process_does_not_reach_the_compilers(tree, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    (row,) = counting.rows("gelu", "triton", ["sm_90"])
    assert row["refused"] is None


def test_a_script_without_a_main_guard_may_ask(tree):
    done = subprocess.run(
        [sys.executable], input='import mage; print(len(mage.count_code("neighbor", "cuda", "sm_90")))',
        env={**os.environ, "PYTHONPATH": str(paths.PACKAGE.parent)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "6", done.stderr


def test_tf32_is_found_and_fails_the_gate(tree):
    file = tree / "triton" / "matmul.py"
    assert counting.strict_fp32("matmul", "triton", "fixed") == []
    file.write_text(file.read_text().replace('input_precision="ieee"', 'input_precision="tf32"'))
    assert any("TF32" in opcode for opcode in counting.strict_fp32("matmul", "triton", "fixed"))
    result = gate.GateResult("matmul", "triton", "fixed", [64, 64, 64], gate.PASSED)
    gate.strict_fp32(result, "cpu")
    assert result.passed == gate.FAILED and "HMMA" in result.reason and result.checks == {"strict FP32": False}


@pytest.mark.parametrize("unit", offline.units(), ids=" ".join)
@pytest.mark.parametrize("arch", ARCHS)
def test_every_kernel_is_strict_fp32(unit, arch):
    assert counting.strict_fp32(*unit, arch) == []
