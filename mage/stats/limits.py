"""How near a row comes to what its device was seen to reach: the roofline of Williams, Waterman and Patterson (2009).

An operation's arithmetic intensity counts every input read once and the output written once. The roofs are the
measured DRAM and L2 bandwidths and the measured FP32 rate; no data-sheet number enters.
"""

from __future__ import annotations

from dataclasses import dataclass

from mage import operations
from mage.evidence.schema import Ceilings, Result
from mage.stats.judged import KERNEL, Key


@dataclass(frozen=True, kw_only=True)
class Placed:
    """``intensity`` in flops per byte, ``rate`` in TFLOP/s from the median warm time."""

    result: Result
    intensity: float
    rate: float


def place(result: Result, key: Key = KERNEL) -> Placed | None:
    """Where a row stands by its time at ``key``; None where it has none."""
    time = key.value(result)
    if time is None:
        return None
    operation = operations.get(result.operation)
    flops = operation.flops(result.dims)
    return Placed(result=result, intensity=flops / operation.bytes(result.dims), rate=flops / time.value / 1e6)


def l2_gb_s(ceilings: Ceilings) -> float | None:
    """The fastest warm copy that was seen, whatever its footprint."""
    return max(ceilings.l2_gb_s.values(), default=None)


def roof(ceilings: Ceilings, intensity: float, bandwidth_gb_s: float) -> float:
    """TFLOP/s that ``bandwidth_gb_s`` allows at this intensity, at most the FP32 rate."""
    allowed = intensity * bandwidth_gb_s / 1e3
    return min(allowed, ceilings.fp32_tflops) if ceilings.fp32_tflops else allowed
