"""The static rules: what refuses a candidate without a build, and says which rule it was."""

from __future__ import annotations

from mage.census import occupancy
from mage.errors import MageError
from mage.tune.subject import Config, Subject

GRID = (2**31 - 1, 65535, 65535)
"""Most blocks along each axis (CUDA C++ Programming Guide, technical specifications)."""
THREADS = 1024
REGISTERS = 255
"""Most a thread can have."""

_TILES = ("BLOCK", "TILE", "ROWS")


def refusal(subject: Subject, config: Config, arch: str | None = None) -> str | None:
    """The rule by which ``config`` needs no build, as ``rule: what breaks it``; None if it may be built.

    ``arch`` (``sm_90``) names the GPU whose shared memory is the budget; a GPU whose limits are not known has none.
    A kernel file that raises when it is asked refuses the candidate too.
    """
    try:
        for rule in _RULES:
            if reason := rule(subject, config, arch):
                return reason
    except Exception as error:  # a kernel file's own code, asked about a configuration it may not have thought of
        return f"the kernel file: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return None


def shared_budget(arch: str | None) -> int | None:
    """Bytes of shared memory that one block can have on ``arch``; None where that is not known."""
    try:
        return occupancy.limits(arch).shared_a_block if arch else None
    except MageError:
        return None


def _whole_warps(subject: Subject, config: Config, arch) -> str | None:
    warps = config.get("num_warps")
    if warps is not None and not _power_of_two(warps):
        return f"whole warps: num_warps is {warps}, and compilers take powers of two"
    threads = subject.file.threads(config)
    if threads is None or subject.place != "gpu":
        return None
    if threads % 32:
        return f"whole warps: {threads} threads a block are no multiple of 32"
    if not 32 <= threads <= THREADS:
        return f"threads: {threads} a block, a block has at most {THREADS}"
    return None


def _powers_of_two(subject: Subject, config: Config, arch) -> str | None:
    if subject.implementation not in ("triton", "cutile"):
        return None
    for name, value in config.items():
        if name.startswith(_TILES) and not _power_of_two(value):
            return f"tile sides: {name} is {value}, and a tile's sides are powers of two"
    return None


def _own(subject: Subject, config: Config, arch) -> str | None:
    return subject.file.static(subject.dims, config)


def _grid(subject: Subject, config: Config, arch) -> str | None:
    if subject.place != "gpu":
        return None
    for axis, (size, most) in enumerate(zip(subject.file.grid(subject.dims, config), GRID, strict=False)):
        if not 0 < size <= most:
            return f"grid: axis {axis} would have {size} blocks, it ends at {most}"
    return None


def _shared(subject: Subject, config: Config, arch) -> str | None:
    wanted, budget = subject.file.shared_bytes(subject.dims, config), shared_budget(arch)
    if budget is not None and wanted > budget:
        return f"shared memory: at least {wanted} bytes a block, {arch} has {budget}"
    return None


def _registers(subject: Subject, config: Config, arch) -> str | None:
    threads = subject.file.threads(config)
    wanted = subject.file.registers(subject.dims, config)
    if threads and wanted > REGISTERS * threads:
        return f"registers: at least {wanted} values a block, {threads} threads have {REGISTERS} each"
    return None


_RULES = (_whole_warps, _powers_of_two, _own, _grid, _shared, _registers)


def _power_of_two(value) -> bool:
    return isinstance(value, int) and value > 0 and value & (value - 1) == 0
