"""A candidate's build, in a process without a device: what it costs is known before it is run, and the cache is filled.

Triton and cuTile are asked for exactly what their launch would ask for, so that the process that times a candidate
finds its code in the compilers' own caches on disk.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from mage import kernels, operations
from mage.cuda import cubins
from mage.evidence.schema_search import REFUSED, UNCOMPILED
from mage.kernels import configurations
from mage.tune import rules
from mage.tune.subject import Config, Subject

FAILS_AS = UNCOMPILED
BUILT = "built"


def hello(place: str) -> dict:
    if place == "gpu":
        import torch  # noqa: F401, a second or two that no candidate's time limit has to cover
    return {"role": "compile"}


def after_failure() -> dict:
    return {}


def build(task: dict) -> dict:
    """Build one candidate for ``arch``: registers a thread and shared bytes a block of its code, or why it is refused."""
    subject, config, arch = Subject.parse(task["subject"]), task["config"], task["arch"]
    made = _BUILDERS[subject.implementation](subject, config, arch)
    budget, wanted = rules.shared_budget(arch), made.get("shared_bytes") or 0
    if budget is not None and wanted > budget:
        return {"state": REFUSED, "reason": f"shared memory: its code takes {wanted} bytes a block, {arch} has {budget}", **made}
    return {"state": BUILT, **made}


def _shaped(subject: Subject) -> list:
    """The call's tensors without memory: a compiler asks for shapes, types and addresses (0, as aligned as can be)."""
    import torch

    operation = operations.get(subject.operation)
    types = {"row_ptr": torch.int32, "src": torch.int32}
    shapes = {**operation.input_shapes(subject.dims), "out": operation.output_shape(subject.dims)}
    return [torch.empty(shape, device="meta", dtype=types.get(name, torch.float32)) for name, shape in shapes.items()]


# -- Triton --------------------------------------------------------------------------------------------


class _NoDevice:
    """Stands in for Triton's driver: says for which GPU to compile, and has none."""

    def __init__(self, arch: str):
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget("cuda", int(arch.removeprefix("sm_").rstrip("a")), 32)

    def get_current_target(self):
        return self._target

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=None):
        return 0


def _triton(subject: Subject, config: Config, arch: str) -> dict:
    import triton

    triton.runtime.driver.set_active(_NoDevice(arch))
    module = kernels.load(Path(subject.source))
    built = []
    _compile_only(module, built)
    module.launch(*_shaped(subject), config=config)
    used = [resources for one in built for resources in cubins.usage(one.asm["cubin"], arch).values()]
    shared = max((one.metadata.shared for one in built), default=0)  # it is dynamic, so the code does not show it
    return {**_most(used), "shared_bytes": shared}


def _compile_only(module, built: list) -> None:
    """From now on a launch of any kernel of ``module`` compiles it, puts it into ``built`` and starts nothing."""
    import triton

    for kernel in vars(module).values():
        if isinstance(kernel, triton.runtime.JITFunction):
            compiling = type(kernel).run

            def run(*arguments, grid, warmup, kernel=kernel, compiling=compiling, **options):
                built.append(compiling(kernel, *arguments, grid=grid, warmup=True, **options))

            kernel.run = run


# -- cuTile --------------------------------------------------------------------------------------------


def _cutile(subject: Subject, config: Config, arch: str) -> dict:
    from cuda.tile.compilation import export_kernel

    from mage.census import offline

    module = kernels.load(Path(subject.source))
    signature = offline.tile_signature(module, operations.get(subject.operation), subject.dims, config)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        export_kernel(configurations.tile_kernel(module, config), [signature], str(file), gpu_code=arch, output_format="cubin")
        used = cubins.usage(file.read_bytes(), arch)
    return _most(used.values())


# -- CUDA C++ ------------------------------------------------------------------------------------------


def _cuda(subject: Subject, config: Config, arch: str) -> dict:
    from mage import cuda

    stage = subject.file.stage.configured(config)
    binary = cuda.build(subject.operation, arch, kernels.source(Path(subject.source)), stage.defines)
    made = _most([cubins.usage(binary.cubin, arch)[stage.kernel]])
    return {**made, "shared_bytes": max(made["shared_bytes"], stage.shared) + stage.dynamic}


# -- plain Python --------------------------------------------------------------------------------------


def _python(subject: Subject, config: Config, arch: str) -> dict:
    """A file of plain Python has nothing to compile, unless it says what (``build(dims, config)``)."""
    module = kernels.load(Path(subject.source))
    getattr(module, "build", lambda dims, config: None)(subject.dims, config)
    return {}


def _most(resources) -> dict:
    used = list(resources)
    return {
        "registers": max((one.registers for one in used), default=0),
        "shared_bytes": max((one.shared for one in used), default=0),
        "stack_bytes": max((one.stack for one in used), default=0),
    }


_BUILDERS = {"triton": _triton, "cutile": _cutile, "cuda": _cuda, "python": _python}
DO = {"build": build}

os.environ.setdefault("CUDA_TILE_COMPILER_TIMEOUT_SEC", "120")  # the parent's own limit comes first
