"""Who computes it: (operation, implementation, variant) -> a call on given tensors.

    call = prepare("layernorm", "cuda", "row", inputs, out)
    call.run()          # nothing is checked, looked up or, where the library allows, allocated here
    call.out            # the result, on the current stream

On a GPU every implementation but ``numpy`` runs there. With CPU tensors PyTorch and NumPy compute on
the CPU, Triton kernels run in Triton's interpreter and CUDA C++ kernels are built for the host; those
two show whether a kernel is right and must never be timed (``call.where`` tells). cuTile needs a GPU.

Beside it:

    libraries     eager PyTorch, torch.compile and NumPy
    interpreter   Triton's interpreter, in a process of its own
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mage import kernels, operations
from mage.errors import RequestError
from mage.kernels import configurations, cuda_stages, tuned
from mage.notes import vocabulary
from mage.operations import Operation

if TYPE_CHECKING:
    import torch

NAMES = ("pytorch", "pytorch-compiled", "triton", "cutile", "cuda", "numpy")

GPU, CPU, HOST, INTERPRETER = "gpu", "cpu", "host C++", "Triton interpreter"

_GRID_LIMITS = (2**31 - 1, 65535, 65535)
_TUNED_FOR_A_GPU = "configurations are tuned for a GPU; without one the fixed configuration shows whether the kernel is right"
_LARGEST_BLOCK = 2**16  # the last block of a dimension may end this far past it and still be counted in 32 bits


class UnsupportedError(RequestError):
    """This implementation has no kernel for this shape, or cannot run on this machine."""


@dataclass
class Call:
    """One prepared call. ``run()`` takes no arguments and leaves the result in ``out``.

    ``where`` is "gpu", "cpu", "host C++" or "Triton interpreter"; times are taken on the first two only.
    ``which`` names the kernel that really runs. ``launches`` counts the operation's own kernels of one
    call (None: the library decides). ``allocates``: the call makes a new ``out`` every time.
    ``binds`` names inputs whose values were read when the call was prepared: a call is for these, and changing
    them later changes nothing. ``mean_over_std_limit``: largest |μ|/σ of a row for which a layernorm kernel
    holds (None: no limit).
    """

    operation: str
    implementation: str
    variant: str | None
    where: str
    which: str
    out: torch.Tensor
    run: Callable[[], None] = field(repr=False)
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    launches: int | None = None
    allocates: bool = False
    note: str | None = None
    binds: tuple[str, ...] = ()
    mean_over_std_limit: float | None = None


@dataclass(frozen=True)
class Row:
    """Whether one variant of an implementation can compute an operation here, and if not, why."""

    operation: str
    implementation: str
    variant: str | None
    where: str | None
    can_run: bool
    why_not: str | None = None


def variants(operation: str | Operation, implementation: str) -> tuple[str | None, ...]:
    """The variants of an implementation, the plain one first; (None,) where there is only one."""
    operation = operations.get(operation)
    if implementation == "cuda":
        return tuple(cuda_stages.STAGES[operation.name])
    return {
        "pytorch": (None,),
        "pytorch-compiled": vocabulary.COMPILED_MODES,
        "triton": ("fixed", tuned.VARIANT),
        "cutile": ("fixed", tuned.VARIANT),
        "numpy": (None,),
    }[_known(implementation)]


def default_device() -> str:
    """``cuda`` where PyTorch finds one, else ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def available(operation: str | Operation, device: str | None = None) -> list[Row]:
    """Every implementation and variant of an operation: can it run with tensors on ``device``, and if not, why."""
    operation = operations.get(operation)
    device = device or default_device()
    rows = []
    for implementation in NAMES:
        where, why_not = _place(implementation, "cuda" if device.startswith("cuda") else "cpu")
        for variant in variants(operation, implementation):
            if variant == tuned.VARIANT and where != GPU:
                rows.append(Row(operation.name, implementation, variant, None, False, why_not or _TUNED_FOR_A_GPU))
                continue
            rows.append(Row(operation.name, implementation, variant, where, why_not is None, why_not))
    return rows


def _place(implementation: str, device: str) -> tuple[str | None, str | None]:
    """(where it runs, None) or (None, why it cannot)."""
    gpu = device == "cuda"
    if gpu:
        import torch

        if not torch.cuda.is_available():
            return None, "PyTorch finds no CUDA device"
    why_not = {
        "pytorch": lambda: None,
        "pytorch-compiled": lambda: None if gpu else _no_compiler(),
        "triton": lambda: _missing("triton") if gpu else _no_interpreter(),
        "cutile": lambda: _no_tile_compiler() if gpu else "cuTile kernels run on a GPU only",
        "cuda": lambda: _missing("cuda.core") if gpu else _no_compiler(),
        "numpy": lambda: "NumPy computes on the CPU" if gpu else None,
    }[_known(implementation)]()
    if why_not:
        return None, why_not
    if gpu:
        return GPU, None
    return {"triton": INTERPRETER, "cuda": HOST}.get(implementation, CPU), None


def _missing(module: str) -> str | None:
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    return None if found else f"{module} is not installed"


def _no_compiler() -> str | None:
    from mage.cuda import hostcuda

    return None if hostcuda.compiler() else "no C++ compiler on this machine"


def _no_tile_compiler() -> str | None:
    if why_not := _missing("cuda.tile"):
        return why_not
    toolkit = next(filter(None, map(os.environ.get, ("CUDA_HOME", "CUDA_PATH"))), None)
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        if importlib.metadata.version("nvidia-cuda-tileiras"):
            return None
    if shutil.which("tileiras") or (toolkit and shutil.which("tileiras", path=os.path.join(toolkit, "bin"))):
        return None
    return "cuTile's compiler tileiras is neither installed nor on the path"


def _no_interpreter() -> str | None:
    from mage.implementations import interpreter

    return interpreter.why_not()


def _known(implementation: str) -> str:
    if implementation in NAMES:
        return implementation
    raise RequestError(f"no implementation {implementation!r}: there is {', '.join(NAMES)}")


def _variant(operation: Operation, implementation: str, variant: str | None, config: dict | None) -> str | None:
    known = variants(operation, implementation)
    if variant is None:
        return known[-1] if implementation == "cuda" else known[0]
    if variant in known or (config is not None and implementation in ("triton", "cutile")):
        return variant
    listed = ", ".join(str(name) for name in known)
    raise RequestError(f"{operation.name}: {implementation} has no variant {variant!r}; there is {listed}")


def prepare(
    operation: str | Operation,
    implementation: str,
    variant: str | None = None,
    inputs: dict[str, torch.Tensor] | None = None,
    out: torch.Tensor | None = None,
    *,
    config: dict[str, int] | None = None,
    source: str | Path | None = None,
    host: dict | None = None,
) -> Call:
    """Check the inputs and prepare one call of ``implementation`` on them; no kernel runs yet.

    ``variant``: a stage of ``cuda`` (None: the newest), a mode of ``pytorch-compiled``, ``fixed``, ``tuned`` (what
    a search chose on this GPU, see ``mage.kernels.tuned``) or, with ``config``, any name for ``triton`` and ``cutile``.
    ``config`` of ``cuda`` are parameters of the stage. ``inputs`` by name on one device (None: the default
    ones); ``out`` is made when it is not given. ``source`` replaces the kernel file: a Path, or for ``cuda``
    CUDA C++ text. ``host`` are options of ``hostcuda.launch`` (cp_async, tsan, drop_barrier).

    RequestError for inputs that no kernel may be given, UnsupportedError (one of them) for a shape or
    a machine that this implementation has no kernel for.
    """
    import torch

    operation = operations.get(operation)
    variant = _variant(operation, implementation, variant, config)
    if inputs is None:
        device = default_device()
        inputs = {name: tensor.to(device) for name, tensor in operation.make_inputs().items()}
    dims = operation.check(inputs, out=out)
    device = next(iter(inputs.values())).device
    where, why_not = _place(implementation, device.type)
    if why_not:
        raise UnsupportedError(f"{implementation}: {why_not}")
    inputs = {name: tensor.detach() for name, tensor in inputs.items()}
    if out is None:
        out = torch.empty(operation.output_shape(dims), device=device)
    about = (operation.name, implementation, variant, where)
    if implementation in ("pytorch", "pytorch-compiled", "numpy"):
        return _library(operation, about, inputs, out)
    if implementation == "cuda":
        return _cuda(operation, about, dims, inputs, out, config, source, host or {})
    return _tiled(operation, about, dims, inputs, out, config, source)


def _library(operation: Operation, about: tuple, inputs: dict, out: torch.Tensor) -> Call:
    from mage.implementations import libraries

    _, implementation, variant, _ = about
    if implementation == "pytorch":
        compute, allocates, note = libraries.eager(operation, inputs, out)
    elif implementation == "numpy":
        compute, allocates, note = libraries.numpy(operation, inputs, out)
    else:
        compute, allocates, note = libraries.compiled(operation, inputs, out, variant)
    binds = ("row_ptr",) if operation.name == "neighbor" else ()
    call = Call(*about, which=implementation, out=out, run=None, allocates=allocates, note=note, binds=binds)

    def run():
        call.out = compute()

    call.run = run
    return call


# -- Triton and cuTile: a Python kernel file with KERNEL, FIXED, grid(dims, config), perhaps supports(dims) --


def _tiled(operation, about, dims, inputs, out, config, source) -> Call:
    _, implementation, _, where = about
    name = source or f"{implementation}/{operation.name}"
    if where == INTERPRETER:
        # Imported for its grid and limits: importing a kernel file runs no kernel.
        if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
            raise UnsupportedError("TRITON_INTERPRET is set in this process: unset it, Mage interprets in another one")
    elif implementation == "triton" and os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        raise UnsupportedError("TRITON_INTERPRET is set: the kernel would be interpreted, not run; unset it")
    module, note = kernels.load(name), None
    if config is None and about[2] == tuned.VARIANT:
        if where != GPU:
            raise UnsupportedError(f"{implementation} tuned: {_TUNED_FOR_A_GPU}")
        config, note = tuned.choose(operation.name, implementation, dims, _device_name(out), module)
    config = dict(module.FIXED if config is None else config)
    reason = getattr(module, "supports", lambda dims: None)(dims)
    if reason is None and max(dims) > operations.LARGEST - _LARGEST_BLOCK:
        reason = f"a dimension of {max(dims)} leaves no room for the last block's indices in 32 bits"
    grid = module.grid(dims, config)
    over = next((axis for axis, (size, most) in enumerate(zip(grid, _GRID_LIMITS, strict=False)) if size > most), None)
    if reason is None and over is not None:
        reason = f"grid axis {over} would have {grid[over]} blocks, it ends at {_GRID_LIMITS[over]}"
    if reason:
        raise UnsupportedError(f"{implementation} {operation.name} does not take {dims}: {reason}")

    tensors = [*inputs.values(), out]
    which = configurations.function_name(configurations.kernel(module, config))
    if implementation == "cutile":
        return Call(*about, which=which, out=out, run=_cutile_run(module, grid, tensors, config), grid=grid, launches=1, note=note)
    block = (32 * config.get("num_warps", 4), 1, 1)
    if where == INTERPRETER:
        from mage.implementations import interpreter

        def run():
            interpreter.launch(name, tensors, config)
    else:
        launch = module.launch

        def run():
            launch(*tensors, config=config)

    return Call(*about, which=which, out=out, run=run, grid=grid, block=block, launches=1, note=note)


def _device_name(tensor) -> str:
    import torch

    return torch.cuda.get_device_name(tensor.device)


def _cutile_run(module, grid, tensors, config) -> Callable[[], None]:
    import cuda.tile as ct
    import torch

    # An array of no elements has no address to give; a tile that is fully masked reads nothing of this one.
    given = [tensor if tensor.numel() else tensor.new_zeros(1) for tensor in tensors]
    arguments = module.arguments(*given, config=config)
    kernel, launch, stream = configurations.tile_kernel(module, config), ct.launch, torch.cuda.current_stream
    return lambda: launch(stream(), grid, kernel, arguments)


# -- CUDA C++ --------------------------------------------------------------------------------------


def _cuda(operation, about, dims, inputs, out, config, source, host) -> Call:
    _, _, variant, where = about
    limit = None
    if where == GPU:
        from mage import cuda

        limit = cuda.shared_limit(out.device)
    choice = cuda_stages.choose(operation.name, variant, dims, inputs, out, config, limit)
    stage, tensors = choice.stage, _with_workspace(choice.stage, dims, inputs, out)
    if where == HOST:
        run = _host_run(operation, stage, dims, tensors, source, host)
    else:
        text = kernels.source(source) if isinstance(source, Path) else source
        run = cuda.prepare(operation.name, stage, dims, tensors, text)
    return Call(
        *about,
        which=stage.kernel,
        out=out,
        run=run,
        grid=stage.grid(dims),
        block=stage.block_at(dims),
        launches=1,
        note="; ".join(choice.reasons) or None,
        mean_over_std_limit=stage.mean_over_std_limit,
    )


def _with_workspace(stage, dims, inputs, out) -> list[torch.Tensor]:
    """The tensors of one launch in the order of the kernel's parameters: inputs, output, and the stage's own workspace."""
    import torch

    tensors = [*inputs.values(), out]
    if stage.workspace:
        floats, counters = stage.workspace(dims)
        tensors += [torch.empty(floats, device=out.device), torch.zeros(counters, dtype=torch.int32, device=out.device)]
    return tensors


def _host_run(operation, stage, dims, tensors, source, host) -> Callable[[], None]:
    from mage.cuda import hostcuda

    text = source or kernels.path(f"cuda/{operation.name}")
    if stage.defines:
        from mage import cuda

        text = kernels.source(text) if isinstance(text, Path) else text
        text = cuda.with_defines(text, f"{operation.name}.cu", stage.defines)
    arguments = [tensor.numpy() for tensor in tensors] + list(dims)

    def run():
        hostcuda.launch(text, stage.kernel, stage.grid(dims), stage.block_at(dims), arguments, shared=stage.dynamic, **host)

    return run
