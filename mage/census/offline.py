"""Compiling every kernel for a named GPU, on a machine that need not have one.

Each kernel is compiled as it is run: with the constants, the number of warps, and the facts about its
arguments (alignment of pointers, divisibility of sizes) that its launcher gives the compiler for the
operation's default shape. ``NO_ALIGNMENT`` leaves those facts out, which is how a kernel is often
compiled by hand; it is then another kernel than the one that runs, and the rows say so.
"""

from __future__ import annotations

import functools
import importlib.metadata
import math
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from mage import cuda, kernels, operations
from mage.census import ptx, tile_releases
from mage.census.tile_releases import INSTALLED
from mage.cuda import cubins
from mage.errors import MageError
from mage.kernels import cuda_stages

AS_LAUNCHED = "as launched"
NO_ALIGNMENT = "no alignment"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A kernel to compile, as plain data: ``Job(operation="matmul", implementation="cuda", variant="quads", arch="sm_90")``.

    ``dims`` None is the operation's default shape. The last three are cuTile's alone: a tile shape by its
    parameters' names instead of the published one, the function's name in the kernel file, and the release of the
    assembler.
    """

    operation: str
    implementation: str
    variant: str
    arch: str
    specialization: str = AS_LAUNCHED
    dims: tuple[int, ...] | None = None
    config: dict[str, int] | None = field(default=None, hash=False)
    kernel: str = "KERNEL"
    release: str = INSTALLED


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """What came of a job. ``dynamic_shared`` in bytes a block; ``ptx`` where the compiler shows one (cuTile does not)."""

    job: Job
    dims: tuple[int, ...]
    kernel: str
    grid: tuple[int, int, int]
    threads: int
    dynamic_shared: int = 0
    compiler: str
    cubin: bytes = field(repr=False)
    ptx: str | None = field(repr=False, default=None)


def units() -> list[tuple[str, str, str]]:
    """(operation, implementation, variant) of every kernel of ours that can be compiled offline."""
    found = []
    for operation, stages in cuda_stages.STAGES.items():
        found += [(operation, "triton", "fixed"), (operation, "cutile", "fixed")]
        found += [(operation, "cuda", stage) for stage in stages]
    return found


def compile(job: Job) -> Compiled:
    """Compile one kernel. MageError says why a compiler refused it."""
    dims = operations.get(job.operation).check_dims(job.dims)
    compilers = {"triton": _triton, "cuda": _cuda, "cutile": _cutile}
    if job.implementation not in compilers:
        raise MageError(f"{job.implementation} is not compiled offline: give one of {', '.join(compilers)}")
    return compilers[job.implementation](job, dims)


# -- CUDA C++ ------------------------------------------------------------------------------------------


def _cuda(job: Job, dims) -> Compiled:
    stage = cuda_stages.choose(job.operation, job.variant, dims).stage
    name = f"{job.operation}.cu"
    text = ptx.kernels(_cuda_ptx(name, cuda.whole_text(cuda.source(job.operation), name), job.arch))
    return Compiled(
        job=job, dims=dims, kernel=stage.kernel, grid=stage.grid(dims), threads=stage.threads, dynamic_shared=stage.dynamic,
        compiler=f"NVRTC {cuda.compiler_version()}", cubin=cuda.build(job.operation, job.arch).cubin, ptx=text[stage.kernel],
    )  # fmt: skip


@functools.lru_cache(maxsize=16)
def _cuda_ptx(name: str, text: str, arch: str) -> str:
    """PTX of a kernel file, from the front end that ``cuda.build`` runs before it assembles (same text, same options)."""
    from cuda.bindings import nvrtc

    options = [f"--gpu-architecture={arch.replace('sm_', 'compute_')}", f"--std={cuda.OPTIONS['std']}"]
    encoded = [option.encode() for option in options]
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], [])
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        if status:
            raise MageError(f"{name} does not compile to PTX for {arch}: {status.name}")
        _, size = nvrtc.nvrtcGetPTXSize(program)
        made = b" " * size
        nvrtc.nvrtcGetPTX(program, made)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return made.rstrip(b"\0").decode()


# -- Triton --------------------------------------------------------------------------------------------

_INTEGER = "i32"


def _triton(job: Job, dims) -> Compiled:
    """Through ``triton.compile`` for a named target; the JIT's specialization is repeated here.

    The JIT marks a pointer or an integer that is a multiple of 16 as such, and takes an integer that is 1
    as a constant. Tensors of PyTorch start at multiples of 16 bytes and more.
    """
    if os.environ.get("TRITON_INTERPRET"):
        raise MageError("TRITON_INTERPRET is set, and the interpreter cannot compile: unset it, or start another process")
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module = kernels.load(f"triton/{job.operation}")
    config = dict(module.FIXED)
    options = {name: config.pop(name) for name in ("num_warps", "num_stages") if name in config}
    arguments = _triton_arguments(job.operation, module, dims)
    names = list(module.KERNEL.arg_names)
    # what the kernel itself annotates as tl.constexpr
    constants = {p.name: {**arguments, **config}[p.name] for p in module.KERNEL.params if p.is_constexpr}
    signature, divisible = {}, {}
    for place, name in enumerate(names):
        value = arguments.get(name)
        if name in constants:
            signature[name] = "constexpr"
        elif isinstance(value, str):
            signature[name] = value
            divisible[(place,)] = [["tt.divisibility", 16]]
        else:
            signature[name] = _INTEGER
            if value == 1:
                signature[name], constants[name] = "constexpr", 1
            elif value % 16 == 0:
                divisible[(place,)] = [["tt.divisibility", 16]]
    known = divisible if job.specialization == AS_LAUNCHED else {}
    source = ASTSource(fn=module.KERNEL, signature=signature, constexprs=constants, attrs=known)
    target = GPUTarget("cuda", int(job.arch.removeprefix("sm_")), 32)
    built = triton.compile(source, target=target, options={**options, "enable_fp_fusion": True})
    return Compiled(
        job=job, dims=dims, kernel=module.KERNEL.__name__, grid=(*module.grid(dims, module.FIXED), 1, 1)[:3],
        threads=32 * built.metadata.num_warps, dynamic_shared=built.metadata.shared,
        compiler=f"Triton {triton.__version__}", cubin=built.asm["cubin"], ptx=built.asm["ptx"],
    )  # fmt: skip


def _triton_arguments(operation: str, module, dims) -> dict[str, object]:
    """Argument name -> pointer type, integer value or constant, as ``module.launch`` passes them."""
    op = operations.get(operation)
    integers = {"row_ptr", "src"}
    pointers = {name: "*i32" if name in integers else "*fp32" for name in (*op.input_shapes(dims), *_OUTPUTS)}
    scalars = dict(zip(op.dims_names, dims, strict=True))
    if operation == "gelu":
        scalars["count"] = dims[0] * dims[1]
    if operation == "layernorm":
        import triton

        scalars["BLOCK_D"] = triton.next_power_of_2(dims[1])
    # a tensor's name wins over a dimension's: matmul's C is a matrix, triangle's C a count of channels
    wanted = module.KERNEL.arg_names
    outputs = {"matmul": "C", "triangle": "O"}.get(operation, "Y")
    chosen = {name: pointers[name] for name in wanted if name in op.input_shapes(dims) or name == outputs}
    return {**{name: scalars[name] for name in wanted if name in scalars and name not in chosen}, **chosen}


_OUTPUTS = ("C", "O", "Y")


# -- cuTile --------------------------------------------------------------------------------------------

def _cutile(job: Job, dims) -> Compiled:
    """A cuTile kernel, with the signature that ``ct.launch`` derives from PyTorch's tensors.

    cuTile hands the assembler a bytecode that does not depend on the GPU, so one bytecode can be read by
    several releases of the assembler.
    """
    from cuda.tile.compilation import export_kernel

    op = operations.get(job.operation)
    module = kernels.load(f"cutile/{job.operation}")
    config = dict(module.FIXED if job.config is None else job.config)
    function = getattr(module, job.kernel)
    signature = tile_signature(module, op, dims, config)
    signature = signature.with_mangled_symbol(function._annotated_function.pyfunc.__name__)
    with tempfile.TemporaryDirectory() as folder:
        bytecode, file = Path(folder) / "kernel.tileirbc", Path(folder) / "kernel.cubin"
        if job.release == INSTALLED:
            export_kernel(function, [signature], str(file), gpu_code=job.arch, output_format="cubin")
        else:
            version = tile_releases.bytecode_version(job.release)
            export_kernel(function, [signature], str(bytecode), output_format="tileir_bytecode", bytecode_version=version)
            tile_releases.assemble(job.release, bytecode, file, job.arch)
        binary = file.read_bytes()
    return Compiled(
        job=job, dims=dims, kernel=signature.symbol, grid=module.grid(dims, config), threads=cubins.threads(binary),
        compiler=f"cuTile {importlib.metadata.version('cuda-tile')}, tileiras {tile_releases.version(job.release)}", cubin=binary,
    )  # fmt: skip


def tile_signature(module, operation, dims, config: dict):
    """The signature that a kernel of a cuTile file is compiled for, as ``ct.launch`` makes it at ``dims`` with ``config``."""
    from cuda.tile.compilation import CallingConvention, KernelSignature

    # the launcher asks its tensors for nothing but their shapes
    tensors = [SimpleNamespace(name=name, shape=shape) for name, shape in operation.input_shapes(dims).items()]
    tensors.append(SimpleNamespace(name="out", shape=operation.output_shape(dims)))
    arguments = [_array(a) if isinstance(a, SimpleNamespace) else a for a in module.arguments(*tensors, config=config)]
    return KernelSignature(arguments, CallingConvention.cutile_python_v1())


def _array(tensor: SimpleNamespace):
    """What ``ct.launch`` finds out about a contiguous tensor of PyTorch that starts at a multiple of 16 bytes.

    Deriving it from a tensor (``KernelSignature.from_kernel_args``) needs a driver, so it is repeated here.
    """
    import cuda.tile as ct
    from cuda.tile.compilation import ArrayConstraint

    shape = tensor.shape
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return ArrayConstraint(
        dtype=ct.int32 if tensor.name in ("row_ptr", "src") else ct.float32,
        ndim=len(shape),
        index_dtype=ct.int32,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=False,
        stride_constant=(*(None for _ in shape[1:]), 1),
        stride_divisible_by=[4 if stride % 4 == 0 else 1 for stride in strides],
        shape_divisible_by=[16 if length % 16 == 0 else 1 for length in shape],
        base_addr_divisible_by=16,
    )
