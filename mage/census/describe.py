"""One compiled kernel as a row of the census: what it asks for, and counts of its code.

Counts are static: what stands in the code, not how often it is executed. ``loop …`` columns count the body
of the hottest loop alone, ``ptx …`` columns the text before the assembler. Sizes are bytes, registers are
per thread.
"""

from __future__ import annotations

from mage.census import occupancy, ptx, sass
from mage.census.offline import Compiled
from mage.cuda import cubins
from mage.errors import RequestError
from mage.kernels import cuda_stages

COUNTED = (
    "instructions", "FFMA", "FMUL", "FADD", "MUFU", "multiply-adds", "tensor-core",
    "global loads", "global loads 32", "global loads 64", "global loads 128",
    "global stores", "global stores 32", "global stores 64", "global stores 128",
    "shared loads", "shared loads 32", "shared loads 64", "shared loads 128", "shared stores", "shared words read",
    "local loads", "local stores", "cp.async", "bulk copies", "barriers", "shuffles",
)  # fmt: skip
"""What is counted of the whole kernel and of its hottest loop."""

COUNTED_IN_PTX = (
    "global loads", "global loads 1x32", "global loads 2x32", "global loads 4x32",
    "global stores", "global stores 1x32", "global stores 2x32", "global stores 4x32",
    "shared loads", "shared stores", "barriers", "shuffles", "cp.async", "fma",
)  # fmt: skip


def row(compiled: Compiled) -> dict:
    """Resources and counts, by column.

    ``stack`` is the frame that the compiler gave a thread in local memory; ``local bytes stored`` and ``local bytes
    loaded`` are what a thread moves there, once through the code. Mostly they are spilled registers, but a local
    array or a register saved around a call also lies there. ``passes over X`` is layernorm's alone, absent (None) where
    a kernel holds a body for each of several widths, and like all of PTX for cuTile, which shows none.
    """
    job = compiled.job
    kernels = sass.parse(cubins.cuobjdump("-sass", compiled.cubin))
    name, code = next((n, c) for n, c in kernels.items() if n == compiled.kernel or len(kernels) == 1)
    usage = cubins.usage(compiled.cubin, job.arch)[name]
    loop = code.hottest_loop()
    reads = sass.reads_per_multiply_add(loop.body) if loop else None
    columns = {
        "kernel": compiled.kernel,
        "compiler": compiled.compiler,
        "dims": " × ".join(map(str, compiled.dims)),
        "grid": " × ".join(map(str, compiled.grid)),
        "threads": compiled.threads,
        "registers": usage.registers,
        "static shared": usage.shared,
        "dynamic shared": compiled.dynamic_shared,
        "stack": usage.stack,
        "local bytes stored": _moved(code.instructions, "STL"),
        "local bytes loaded": _moved(code.instructions, "LDL"),
        "code": code.code_bytes,
        **_residency(job.arch, compiled.threads, usage.registers, usage.shared + compiled.dynamic_shared),
        **_counts("", COUNTED, sass.count(code.instructions)),
        **_counts("loop ", COUNTED, sass.count(loop.body) if loop else {}),
        "words per multiply-add": reads[0] if reads else None,
        "reads per multiply-add": reads[1] if reads else None,
        "tensor-core opcodes": " ".join(sass.tensor_core(code.instructions)),
        "passes over X": None,
    }
    if compiled.ptx is None:
        return columns | {f"ptx {column}": None for column in COUNTED_IN_PTX}
    if job.operation == "layernorm" and not _several_versions(job):
        columns["passes over X"] = ptx.passes(compiled.ptx, 0)
    return columns | _counts("ptx ", COUNTED_IN_PTX, ptx.count(compiled.ptx))


def _several_versions(job) -> bool:
    """Whether the kernel's code holds a body for each of several widths: its loads then say nothing of one row."""
    stage = cuda_stages.STAGES[job.operation].get(job.variant) if job.implementation == "cuda" else None
    return stage is not None and stage.versions > 1


def _residency(arch: str, threads: int, registers: int, shared: int) -> dict:
    try:
        found = occupancy.resident(arch, threads, registers, shared)
    except RequestError:  # a GPU whose limits are not known here has counts all the same
        return {"blocks per SM": None, "limited by": None, "occupancy": None}
    return {"blocks per SM": found.blocks, "limited by": found.limited_by, "occupancy": found.occupancy}


def _counts(prefix: str, columns: tuple[str, ...], counts: dict[str, int]) -> dict[str, int]:
    return {prefix + column: counts.get(column, 0) for column in columns}


def _moved(instructions, base: str) -> int:
    return sum(i.width // 8 for i in instructions if i.base == base)
