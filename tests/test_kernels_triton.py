"""Triton kernels: in the interpreter on any machine and, marked gpu, compiled on a GPU."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mage import gate, implementations, kernels, operations
from mage.errors import RequestError
from mage.gate import FAILED, PASSED, gating
from mage.implementations import UnsupportedError, interpreter

needs_interpreter = pytest.mark.skipif(interpreter.why_not() is not None, reason=f"{interpreter.why_not()}: not checked on this machine")
DEVICES = [pytest.param("cpu", marks=needs_interpreter), pytest.param("cuda", marks=pytest.mark.gpu)]
on_each_device = pytest.mark.parametrize("device", DEVICES)


@pytest.mark.parametrize(
    ("case", "device"),
    [
        *(pytest.param(case, "cpu", marks=needs_interpreter, id=f"{case}-interpreter") for case in gating.CASES if case.simulated),
        *(pytest.param(case, "cuda", marks=pytest.mark.gpu, id=f"{case}-gpu") for case in gating.CASES),
    ],
)
def test_every_kernel_at_every_shape(case, device):
    result = gate.check(case.operation, "triton", "fixed", case.dims, device, make_inputs=case.make_inputs, case=case.name)
    assert result.passed == PASSED, gating.line(result)
    assert result.where == ("Triton interpreter" if device == "cpu" else "gpu")
    assert result.which == f"{case.operation}_kernel"
    assert (result.launches, result.allocates) == (1, False)


@on_each_device
@pytest.mark.parametrize("name", operations.names())
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_every_kernel_at_random_shapes(name, device, data):
    most = {"matmul": (70, 70, 70), "gelu": (6, 300), "layernorm": (4, 600), "triangle": (40, 3), "neighbor": (8, 80, 60)}[name]
    least = [0 if dim in operations.get(name).may_be_zero else 1 for dim in operations.get(name).dims_names]
    dims = tuple(data.draw(st.integers(low, high)) for low, high in zip(least, most, strict=True))
    result = gate.check(name, "triton", "fixed", dims, device)
    assert result.passed == PASSED, gating.line(result)


PUBLISHED_GRIDS = {
    "matmul": (32, 32), "gelu": (12288,), "layernorm": (4096,), "triangle": (4, 4, 32), "neighbor": (4096, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", operations.names())
def test_the_fixed_configuration_has_the_grid_of_the_published_runs(name):
    module = kernels.load(f"triton/{name}")
    assert module.grid(operations.get(name).default_dims, module.FIXED) == PUBLISHED_GRIDS[name]
    assert module.FIXED["num_warps"] == 4


# -- compiled for a named GPU, with none at hand

ARGUMENTS = {
    "matmul": ("A B C", "M N K"), "gelu": ("X bias Y", "count D"), "layernorm": ("X gamma beta Y", "D"),
    "triangle": ("A B O", "N C"), "neighbor": ("X weights row_ptr src Y", "F"),
}  # fmt: skip
PUBLISHED_SHARED = {"matmul": 16384, "gelu": 0, "layernorm": 16, "triangle": 16384, "neighbor": 1024}


def compiled(name, arch, ones=False):
    """The kernel as the JIT compiles it for aligned tensors; ``ones``: for sizes of 1, which become constants."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module = kernels.load(f"triton/{name}")
    tensors, sizes = (names.split() for names in ARGUMENTS[name])
    constants = {key: value for key, value in module.FIXED.items() if key.isupper()}
    if name == "layernorm":
        constants["BLOCK_D"] = 1 if ones else 1024
    signature = {key: "*i32" if key in ("row_ptr", "src") else "*fp32" for key in tensors}
    signature |= {key: "constexpr" if ones else "i32" for key in sizes} | dict.fromkeys(constants, "constexpr")
    aligned = len(tensors) if ones else len(tensors) + len(sizes)
    source = ASTSource(
        fn=module.KERNEL,
        signature=signature,
        constexprs=constants | (dict.fromkeys(sizes, 1) if ones else {}),
        attrs={(i,): [["tt.divisibility", 16]] for i in range(aligned)},
    )
    options = {key: value for key, value in module.FIXED.items() if not key.isupper()}
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options={**options, "enable_fp_fusion": True})


@pytest.mark.parametrize("name", operations.names())
def test_compiles_to_fused_fp32_without_tensor_cores(name):
    found = compiled(name, 90)
    ptx = found.asm["ptx"]
    assert ".target sm_90" in ptx
    assert "fma.rn.f32" in ptx
    assert "mma" not in ptx.replace("fma", "")
    assert "tf32" not in ptx
    assert found.metadata.shared == PUBLISHED_SHARED[name]


@pytest.mark.parametrize("name", operations.names())
def test_compiles_for_sizes_of_one(name):
    # The JIT turns an argument that equals 1 into a constant, which is another kind of object.
    assert ".target sm_89" in compiled(name, 89, ones=True).asm["ptx"]


# -- broken on purpose

BREAKS = {
    "matmul-tail-left-out": ("matmul", (17, 19, 55), "range(0, K, BLOCK_K)", "range(0, K // BLOCK_K * BLOCK_K, BLOCK_K)"),
    "matmul-wrong-step": ("matmul", (32, 32, 64), "steps = start + tl.arange", "steps = tl.arange"),
    "gelu-unwritten-tail": ("gelu", (3, 257), "mask=inside)\n", "mask=inside & (lanes < count - start - 1))\n"),
    "layernorm-padding-counts": ("layernorm", (3, 257), "tl.where(inside, x - mean, 0.0)", "x - mean"),
    "layernorm-one-pass": (
        "layernorm", (3, 256), "tl.sum(centred * centred, axis=0) / D", "tl.sum(x * x, axis=0) / D - mean * mean",
    ),
    "triangle-not-transposed": ("triangle", (17, 3), "(j[None, :] * N + k[:, None]) * C", "(k[:, None] * N + j[None, :]) * C"),
    "neighbor-last-edge": ("neighbor", (13, 8, 40), "edge_inside = edges < last", "edge_inside = edges < last - 1"),
    "writes-its-input": ("gelu", (3, 257), "    # √(2/π)(z", "    tl.store(X + offsets, z, mask=inside)\n    # √(2/π)(z"),
}  # fmt: skip


@on_each_device
@pytest.mark.parametrize("name", BREAKS)
def test_broken_kernels_are_refused(name, device, tmp_path):
    operation, dims, text, replacement = BREAKS[name]
    source = kernels.source(f"triton/{operation}")
    assert source.count(text) == 1
    file = tmp_path / f"{operation}.py"
    file.write_text(source.replace(text, replacement))
    result = gate.check(operation, "triton", "fixed", dims, device, source=file)
    assert result.passed == FAILED
    assert result.where == ("Triton interpreter" if device == "cpu" else "gpu")
    if name == "writes-its-input":
        assert result.checks["inputs unchanged"] is False
    elif name == "layernorm-one-pass":
        assert result.means == {"3": PASSED, "100": FAILED}
    else:
        assert result.first_wrong_index is not None


@pytest.mark.gpu
@pytest.mark.parametrize("operation", ["matmul", "triangle"])
def test_tf32_is_refused(operation, tmp_path):
    file = tmp_path / f"{operation}.py"
    file.write_text(kernels.source(f"triton/{operation}").replace('input_precision="ieee"', 'input_precision="tf32"'))
    result = gate.check(operation, "triton", "fixed", None, "cuda", source=file)
    assert result.passed == FAILED
    assert result.checks["FP64 ratio"] is False


# -- loaded by content


@needs_interpreter
def test_an_edited_file_is_what_the_next_call_runs(tmp_path):
    file = tmp_path / "gelu.py"
    original = kernels.source("triton/gelu")
    file.write_text(original)
    assert gate.check("gelu", "triton", "fixed", (3, 5), "cpu", source=file).passed == PASSED
    first = kernels.load(file)
    assert kernels.load(file) is first
    # The same size and, within a clock tick, the same time: only the content tells them apart.
    stamp = file.stat().st_mtime_ns
    file.write_text(original.replace("0.044715", "0.144715"))
    os.utime(file, ns=(stamp, stamp))
    second = kernels.load(file)
    assert second is not first
    assert "0.144715" in second.gelu_kernel.src
    assert "0.044715" in first.gelu_kernel.src
    assert gate.check("gelu", "triton", "fixed", (3, 5), "cpu", source=file).passed == FAILED
    file.write_text(original)
    assert kernels.load(file) is first


def test_a_file_that_fails_to_load_leaves_nothing_behind(tmp_path):
    file = tmp_path / "gelu.py"
    file.write_text("import triton\nraise ValueError('half a file')\n")
    before = set(sys.modules)
    with pytest.raises(ValueError, match="half a file"):
        kernels.load(file)
    assert {name for name in set(sys.modules) - before if name.startswith("_mage_kernels")} == set()


def test_kernel_files_are_found_in_another_tree(tmp_path):
    tree = tmp_path / "ein Baum ü"
    (tree / "kernels" / "triton").mkdir(parents=True)
    (tree / "kernels" / "triton" / "mine.py").write_text("VALUE = 41\n")
    code = (
        "import sys; from mage import kernels, provenance; module = kernels.load('triton/mine');"
        "assert module.VALUE == 41; assert 'kernels' not in sys.modules;"
        "assert str(kernels.path('triton/mine')) in provenance.used;"
        "kernels.load('triton/gone')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "MAGE_ROOT": str(tree)}, cwd=tmp_path, capture_output=True, text=True
    )
    assert "RequestError: no kernel file" in done.stderr
    assert "set MAGE_ROOT" in done.stderr
    assert str(tree) in done.stderr


@pytest.mark.parametrize("name", ["gelu", "hip/gelu", "triton/", "triton/geluu"])
def test_a_kernel_that_does_not_exist(name):
    with pytest.raises(RequestError, match="no kernel"):
        kernels.load(name)


# -- the interpreter is elsewhere


@needs_interpreter
def test_this_process_is_not_interpreting():
    gate.check("gelu", "triton", "fixed", (1, 2), "cpu")
    assert "TRITON_INTERPRET" not in os.environ
    assert type(kernels.load("triton/gelu").gelu_kernel).__name__ == "JITFunction"


@needs_interpreter
def test_an_interpreting_process_is_refused_not_timed(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(UnsupportedError, match="unset it"):
        implementations.prepare("gelu", "triton", "fixed", operations.get("gelu").make_inputs((1, 2)))


@needs_interpreter
def test_what_a_kernel_raises_names_its_line(tmp_path):
    file = tmp_path / "gelu.py"
    source = kernels.source("triton/gelu").replace("    R, D = X.shape\n", "    R, D, _ = X.shape\n")
    file.write_text(source)
    line = source[: source.index("R, D, _")].count("\n") + 1
    tensors = [*operations.get("gelu").make_inputs((2, 3)).values(), torch.empty(2, 3)]
    with pytest.raises(interpreter.InterpreterError, match=rf"gelu.py in Triton's interpreter: ValueError: .*\(line {line}\)"):
        interpreter.launch(file, tensors)
    # and the worker goes on
    interpreter.launch("triton/gelu", tensors)
    assert torch.isfinite(tensors[-1]).all()


@needs_interpreter
def test_a_worker_that_dies_is_told_and_replaced(tmp_path):
    file = tmp_path / "gelu.py"
    file.write_text("import os\ndef launch(*tensors, config=None):\n    os._exit(7)\n")
    tensors = [*operations.get("gelu").make_inputs((2, 3)).values(), torch.empty(2, 3)]
    with pytest.raises(interpreter.InterpreterError, match="ended with status 7"):
        interpreter.launch(file, tensors)
    interpreter.launch("triton/gelu", tensors)


@needs_interpreter
def test_the_worker_ends_with_a_killed_process(eventually, tmp_path):
    # The worker is in the middle of a launch that never ends, and so does not look at its connection.
    file, told = tmp_path / "gelu.py", tmp_path / "worker"
    file.write_text(
        "import os, pathlib\ndef launch(*tensors, config=None):\n"
        f"    pathlib.Path({str(told)!r} + '.new').write_text(str(os.getpid()))\n"
        f"    os.rename({str(told)!r} + '.new', {str(told)!r})\n"
        "    while True: pass\n"
    )
    code = textwrap.dedent(f"""
        import pathlib, torch
        from mage.implementations import interpreter
        interpreter.launch(pathlib.Path({str(file)!r}), [torch.zeros(1)])
    """)
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        eventually(told.exists, what="the launch")
        worker = int(told.read_text())
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    eventually(lambda: not _runs(worker), what="the end of the worker")


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
