"""Verdicts that one session's evidence allows, each from paired rounds of that session alone.

Rounds that ran under load are left out. Published evidence has means without samples, so none is drawn from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mage import stats, verdicts
from mage.schema import Evidence, Result
from mage.verdicts import Verdict

PART = {"span_us": "spans", "kernel_us": "kernels"}
"""The part of a session whose rounds a quantity was taken in."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """``result`` against ``other``, the best of the other implementations at the same shape."""

    result: Result
    other: Result
    verdict: Verdict


def measured(evidence: Evidence) -> bool:
    """Whether the evidence keeps samples, so that a verdict can be drawn from it."""
    return evidence.origin != "published"


def quantity(evidence: Evidence) -> str:
    """What verdicts are about: kernel time on a GPU, the time around a call on a CPU."""
    return "kernel_us" if evidence.device.kind == "gpu" else "span_us"


def loaded(evidence: Evidence, quantity: str) -> frozenset[int]:
    """Rounds of ``quantity`` that ran under load: no row is judged by them."""
    return frozenset(one.number for one in evidence.rounds if one.part == PART[quantity] and one.loaded)


def against_best(
    result: Result, every: Sequence[Result], quantity: str, left_out: frozenset[int] = frozenset()
) -> Judged | None:
    """``result`` against the fastest row of another implementation among ``every``, by median.

    None where there is no such row, or where too few rounds are left to judge by.
    """
    shape = (result.operation, result.dims)
    peers = [one for one in every if (one.operation, one.dims) == shape and one.implementation != result.implementation]
    timed = [(value.value, one) for one in peers if (value := stats.value(one, quantity, "median"))]
    if not timed:
        return None
    best = min(timed, key=lambda pair: pair[0])[1]
    verdict = verdicts.between(result, best, quantity, left_out=left_out)
    return Judged(result=result, other=best, verdict=verdict) if verdict else None


def row(evidence: Evidence, operation: str, implementation: str, variant: str | None = None) -> Result | None:
    """The result that these words name, at the first shape the evidence has of it."""
    wanted = (operation, implementation, variant)
    return next((one for one in evidence.results if (one.operation, one.implementation, one.variant) == wanted), None)
