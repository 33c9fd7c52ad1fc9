"""CUDA C++ through NVRTC: build the kernel files, keep the result on disk, launch on PyTorch's stream.

One kernel file is one program that holds every stage of its operation. It is compiled to a cubin for
a named architecture, which needs no GPU and no driver. A cubin is kept under a name that is the hash of
all that went into it (the text of the kernel file and of mage.cuh, the options, the compiler's version, the
architecture), so an edited file is built again and an unchanged one is never built twice.

Loading and launching need a GPU. All that a launch needs is worked out once, in ``prepare``; the call
itself asks PyTorch for its current stream and enters the driver, and allocates nothing.

Beside it:

    launch     the shortest way from Python to a kernel
    cubins     reading a cubin: its disassembly, what its kernels ask for
    hostcuda   CUDA C++ kernels on the CPU, one OS thread a CUDA thread
    host       the C++ that such a build consists of
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mage import kernels, paths
from mage.cuda import cubins, launch
from mage.errors import MageError, RequestError
from mage.kernels import cuda_stages

if TYPE_CHECKING:
    import torch

OPTIONS = {"std": "c++17", "lineinfo": True}
"""NVRTC options; the rest are its defaults (multiply and add fused, no denormals flushed, exact division and root)."""

_INCLUDE = '#include "mage.cuh"\n'
_DIGEST_BYTES = hashlib.sha256().digest_size


class CompileError(MageError):
    """A kernel file does not compile; the text holds the compiler's first error, by file and line."""


class LaunchError(MageError):
    """The driver refused a launch."""


_importing = threading.Lock()


def _packages():
    """``cuda.core`` and ``cuda.bindings.nvrtc``. Their first import fails when two threads are in it at once."""
    with _importing:
        import cuda.core
        from cuda.bindings import nvrtc

        return cuda.core, nvrtc


# -- source --------------------------------------------------------------------------------------------


def source(operation: str) -> str:
    """Text of the operation's kernel file as it is now, its ``#include "mage.cuh"`` still a line of it."""
    return kernels.source(f"cuda/{operation}")


def whole_text(text: str, name: str) -> str:
    """``text`` with mage.cuh in the place of its include, so that what is hashed is all that is compiled."""
    if _INCLUDE not in text:
        return text
    header = kernels.source(paths.KERNELS / "cuda" / "mage.cuh").replace("#pragma once\n", "\n")
    before, after = text.split(_INCLUDE, 1)
    line = before.count("\n") + 2
    return f'{before}#line 1 "mage.cuh"\n{header}\n#line {line} "{name}"\n{after}'


def with_defines(text: str, name: str, defines: Mapping[str, int]) -> str:
    """``text`` behind a ``#define`` for each of ``defines``; its lines keep their numbers in a compiler's messages."""
    if not defines:
        return text
    made = "".join(f"#define {macro} {value}\n" for macro, value in sorted(defines.items()))
    return f'{made}#line 1 "{name}"\n{text}'


# -- build and cache -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Binary:
    """A cubin: its bytes, the architecture it is for, the hash of what it was built from, whether it came
    from the cache, and the seconds that building or reading took."""

    cubin: bytes = field(repr=False)
    arch: str
    key: str
    from_cache: bool
    seconds: float


def cache_dir() -> Path:
    """Where cubins are kept: $MAGE_CACHE, else $XDG_CACHE_HOME/mage, else ~/.cache/mage."""
    if own := os.environ.get("MAGE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mage"


@functools.cache
def compiler_version() -> str:
    """NVRTC's version as the library states it, and the exact versions of the packages around it, where known."""
    _, nvrtc = _packages()
    status, major, minor = nvrtc.nvrtcVersion()
    if status:
        raise MageError(f"NVRTC does not answer: {status.name}; install nvidia-cuda-nvrtc")
    packages = []
    for package in ("nvidia-cuda-nvrtc", "cuda-core"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            packages.append(f"{package} {importlib.metadata.version(package)}")
    return f"{major}.{minor} ({', '.join(packages) or 'not from packages'})"


def build(operation: str, arch: str, text: str | None = None, defines: Mapping[str, int] | None = None) -> Binary:
    """All stages of ``operation`` for ``arch`` (``sm_90``), from the cache if the same was built before.

    ``text`` replaces the kernel file's text; ``defines`` are macros to build with. CompileError when it does not
    compile. A cache that cannot be written is no error: the next process builds again.
    """
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise RequestError(f"no architecture {arch!r}: give one like sm_89 or sm_90")
    began = time.perf_counter()
    name = f"{operation}.cu"
    whole = with_defines(whole_text(source(operation) if text is None else text, name), name, defines or {})
    asked = json.dumps([whole, OPTIONS, compiler_version(), arch], sort_keys=True)
    key = hashlib.sha256(asked.encode()).hexdigest()
    file = cache_dir() / "cubin" / f"{operation}-{arch}-{key[:32]}.cubin"
    cubin = _read(file)
    from_cache = cubin is not None
    if cubin is None:
        cubin = _compile(whole, name, arch)
        _write(file, cubin)
    return Binary(cubin, arch, key, from_cache, time.perf_counter() - began)


def build_all(arch: str) -> dict[str, Binary]:
    """Every stage of every operation for ``arch``, built side by side."""
    operations = list(cuda_stages.STAGES)
    with ThreadPoolExecutor(max_workers=len(operations)) as pool:
        return dict(zip(operations, pool.map(lambda operation: build(operation, arch), operations), strict=True))


def _compile(whole: str, name: str, arch: str) -> bytes:
    core, _ = _packages()
    try:
        program = core.Program(whole, "c++", core.ProgramOptions(name=name, arch=arch, **OPTIONS))
        try:
            return bytes(program.compile("cubin").code)
        finally:
            program.close()
    except Exception as error:  # cuda.core's own classes differ between its releases
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line and "(" in line), lines[0] if lines else repr(error))
        raise CompileError(f"{name} does not compile for {arch}: {first}") from error


def _read(file: Path) -> bytes | None:
    """A kept cubin, or None if there is none or it is not what was written."""
    try:
        kept = file.read_bytes()
    except OSError:
        return None
    cubin, digest = kept[:-_DIGEST_BYTES], kept[-_DIGEST_BYTES:]
    return cubin if cubin and hashlib.sha256(cubin).digest() == digest else None


def _write(file: Path, cubin: bytes) -> None:
    """Keep a cubin with its digest behind it (readers of ELF files ignore what follows), all or nothing."""
    with contextlib.suppress(OSError):
        paths.write_whole(file, cubin + hashlib.sha256(cubin).digest())


# -- resources -----------------------------------------------------------------------------------------


def resources(operation: str, stage: str, arch: str, text: str | None = None) -> cubins.Resources:
    """Resource request of one stage, read from its cubin by cuobjdump. Needs no GPU."""
    kernel = cuda_stages.get(operation, stage).kernel
    binary = build(operation, arch, text)
    found = cubins.usage(binary.cubin, arch)
    if kernel not in found:
        raise MageError(f"{operation}.cu has no kernel {kernel}: the file names {', '.join(sorted(found))}")
    return found[kernel]


# -- launch --------------------------------------------------------------------------------------------


def device_arch(device: torch.device | int) -> str:
    """Architecture name of a CUDA device, e.g. ``sm_90``."""
    import torch

    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def shared_limit(device: torch.device | int) -> int:
    """Bytes of shared memory that a block may ask for on a CUDA device, with the opt-in of dynamic memory."""
    import torch

    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def prepare(
    operation: str, stage: cuda_stages.Stage, dims: tuple[int, ...], tensors: Sequence[torch.Tensor], text: str | None = None
) -> Callable[[], None]:
    """Build, load and bind ``stage``, which was chosen for this request (``cuda_stages.choose``); the result as of ``bind``.

    ``tensors``: the inputs in their order, then the output, then the stage's workspace if it has one; the inputs
    must have passed the operation's checks. ``text`` replaces the kernel file's text (a defect on purpose).
    RequestError when the tensors are not on the current device.
    """
    import torch

    device = tensors[0].device
    if device.type != "cuda":
        raise RequestError(f"cuda {operation} {stage.name}: the tensors are on {device}; move them to a GPU")
    if device.index != torch.cuda.current_device():
        raise RequestError(
            f"cuda {operation} {stage.name}: the tensors are on {device} and the current device is "
            f"cuda:{torch.cuda.current_device()}; prepare and run under `with torch.cuda.device({device.index})`"
        )
    binary = build(operation, device_arch(device), text, stage.defines)
    return bind(binary, stage.kernel, tensors, dims, stage.grid(dims), stage.block_at(dims), shared=stage.dynamic)


def bind(
    binary: Binary,
    kernel: str,
    tensors: Sequence[torch.Tensor],
    integers: Sequence[int],
    grid: cuda_stages.Grid,
    block: cuda_stages.Grid,
    device: int | None = None,
    shared: int = 0,
) -> Callable[[], None]:
    """One launch of ``kernel``, loaded and ready: its arguments are addresses of ``tensors``, then ``integers`` (int32).
    ``shared``: dynamic shared memory, bytes a block.

    The result queues the launch on PyTorch's current stream of ``device`` (None: the tensors'); it holds on to
    the tensors and allocates nothing.
    """
    from cuda.bindings import driver

    index = tensors[0].device.index if device is None else device
    function = _function(binary, kernel, index)
    if shared:
        _allow_shared(function, kernel, shared)
    # Tensor addresses are 8 bytes and integers 4: the types are given here, since a bare Python int has none.
    values = [*(ctypes.c_void_p(t.data_ptr()) for t in tensors), *(ctypes.c_int32(number) for number in integers)]

    def refused(status: int, held=tuple(tensors)) -> None:
        name = driver.CUresult(status).name
        raise LaunchError(f"cuda {kernel}: the driver refused a launch of {grid} blocks of {block} threads: {name}")

    return launch.prepared(int(function), grid, block, shared, values, functools.partial(_current_stream(), index), refused)


_loaded: dict[tuple[str, int], object] = {}
_loading = threading.Lock()


def _function(binary: Binary, kernel: str, device: int):
    """Handle of ``kernel`` in the device's context; the module is loaded once for each content."""
    from cuda.bindings import driver

    core, _ = _packages()
    with _loading:
        core.Device(device).set_current()
        module = _loaded.get((binary.key, device))
        if module is None:
            module = _loaded[binary.key, device] = core.ObjectCode.from_cubin(binary.cubin)
    # A kernel belongs to no context; its function does, and asking for it loads the code to the device now,
    # not at the first launch.
    status, function = driver.cuKernelGetFunction(module.get_kernel(kernel).handle)
    if status:
        raise LaunchError(f"cuda {kernel}: cannot be loaded on device {device}: {status.name}")
    return function


def _allow_shared(function, kernel: str, size: int) -> None:
    """More than 48 KiB of dynamic shared memory must be asked for, once for each function."""
    from cuda.bindings import driver

    (status,) = driver.cuFuncSetAttribute(
        function, driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, size
    )
    if status:
        raise LaunchError(f"cuda {kernel}: this device has no {size} bytes of shared memory for a block: {status.name}")


def _current_stream() -> Callable[[int], int]:
    """device index -> handle of PyTorch's current stream there, by the shortest way PyTorch has."""
    import torch

    try:
        return torch._C._cuda_getCurrentRawStream
    except AttributeError:
        return lambda index: torch.cuda.current_stream(index).cuda_stream
