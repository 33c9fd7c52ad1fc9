"""How many blocks a multiprocessor can hold, from a kernel's resource request and the GPU's limits.

Limits are those of the CUDA C++ Programming Guide's table of technical specifications per compute
capability; allocation granularities are those of NVIDIA's occupancy calculator: registers are given
out by the warp in units of 256, warps in units of four, shared memory in units of 128 bytes, and on
these GPUs the system keeps 1024 bytes of shared memory for each block.
"""

from __future__ import annotations

from dataclasses import dataclass

from mage.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one multiprocessor; shared memory in bytes."""

    gpu: str
    threads: int
    blocks: int
    shared: int
    shared_a_block: int
    registers: int = 65536
    reserved_shared: int = 1024


GPUS = {
    "sm_80": Limits(gpu="A100", threads=2048, blocks=32, shared=164 * 1024, shared_a_block=163 * 1024),
    "sm_86": Limits(gpu="RTX 30 series", threads=1536, blocks=16, shared=100 * 1024, shared_a_block=99 * 1024),
    "sm_89": Limits(gpu="RTX 40 series, L40", threads=1536, blocks=24, shared=100 * 1024, shared_a_block=99 * 1024),
    "sm_90": Limits(gpu="H100, H200", threads=2048, blocks=32, shared=228 * 1024, shared_a_block=227 * 1024),
    "sm_100": Limits(gpu="B200", threads=2048, blocks=32, shared=228 * 1024, shared_a_block=227 * 1024),
    "sm_120": Limits(gpu="RTX 50 series", threads=1536, blocks=24, shared=100 * 1024, shared_a_block=99 * 1024),
}


@dataclass(frozen=True)
class Residency:
    """Resident blocks a multiprocessor, what limits them, and the share of its threads they fill."""

    blocks: int
    limited_by: str
    occupancy: float


def limits(arch: str) -> Limits:
    """Limits of ``arch`` (``sm_90``); RequestError names the known ones."""
    try:
        return GPUS[arch.removesuffix("a")]
    except KeyError:
        raise RequestError(f"no limits known for {arch!r}: give one of {', '.join(GPUS)}") from None


def resident(arch: str, threads: int, registers: int, shared: int) -> Residency:
    """Blocks of ``threads`` threads, ``registers`` a thread and ``shared`` bytes that one multiprocessor holds.

    ``shared`` is static plus dynamic. A request beyond the limit of one block gives 0 blocks.
    """
    gpu = limits(arch)
    warps = -(-threads // 32)
    by_warp = -(-registers * 32 // 256) * 256
    room = {
        "threads": gpu.threads // (warps * 32),
        "blocks": gpu.blocks,
        "registers": _down(gpu.registers // by_warp, 4) // warps if registers else gpu.blocks,
        "shared memory": 0
        if shared > gpu.shared_a_block
        else gpu.shared // (-(-(shared + gpu.reserved_shared) // 128) * 128),
    }
    blocks = min(room.values())
    limited_by = next(name for name, count in room.items() if count == blocks)
    return Residency(blocks, limited_by, blocks * warps * 32 / gpu.threads)


def _down(value: int, unit: int) -> int:
    return value // unit * unit
