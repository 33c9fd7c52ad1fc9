"""Verdicts that one session's evidence allows, each from paired rounds of that session alone.

Rounds that ran under load are left out. Published evidence has means without samples, so none is drawn from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mage import stats
from mage.evidence.schema import Evidence, Result
from mage.kernels import cuda_stages
from mage.stats import verdicts
from mage.stats.verdicts import Verdict

PART = {"span_us": "spans", "kernel_us": "kernels"}
"""The part of a session whose rounds a quantity was taken in."""


@dataclass(frozen=True)
class Key:
    """What a verdict is about: a quantity and how its calls were submitted, warm. Only equal keys are compared."""

    quantity: str
    mode: str = "awaited"

    @property
    def words(self) -> str:
        """``kernel time, awaited``, ``span a call, graph of ten`` or ``span, awaited``."""
        return {KERNEL: "kernel time, awaited", GRAPH: "span a call, graph of ten"}.get(self, "span, awaited")

    def value(self, result: Result) -> stats.Value | None:
        """Median of ``result`` at this key in µs, with quartiles; None where it was not taken."""
        return stats.value(result, self.quantity, "median", mode=self.mode)


KERNEL = Key("kernel_us")
GRAPH = Key("span_us", "graph-10")
CALL = Key("span_us")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """``result`` against ``other``, the best of the other implementations at the same shape."""

    result: Result
    other: Result
    verdict: Verdict


def measured(evidence: Evidence) -> bool:
    """Whether the evidence keeps samples, so that a verdict can be drawn from it."""
    return evidence.origin != "published"


def key(evidence: Evidence) -> Key:
    """What verdicts of this session are about: on a GPU kernel time, on a CPU the time around a call.

    A session without a single accepted kernel time (no profiler on that machine, or every capture void) is judged by
    the next best that keeps the host out: the time a call in a graph of ten, the gaps between its kernels included.
    """
    if evidence.device.kind != "gpu":
        return CALL
    if any(one.kernels for one in evidence.results):
        return KERNEL
    graphs = any(entry.mode == GRAPH.mode for one in evidence.results for entry in one.spans)
    return GRAPH if graphs else CALL


def instead(evidence: Evidence) -> str | None:
    """Why a session on a GPU is not judged by kernel time, as a sentence; None where it is."""
    if not measured(evidence) or evidence.device.kind != "gpu" or key(evidence) == KERNEL:
        return None
    return f"No kernel time of {evidence.experiment} was accepted (see what was voided), so this is the {key(evidence).words}."


def loaded(evidence: Evidence, quantity: str) -> frozenset[int]:
    """Rounds of ``quantity`` that ran under load: no row is judged by them."""
    return frozenset(one.number for one in evidence.rounds if one.part == PART[quantity] and one.loaded)


def against_best(
    result: Result, every: Sequence[Result], key: Key = KERNEL, left_out: frozenset[int] = frozenset()
) -> Judged | None:
    """``result`` against the fastest row of another implementation among ``every``, by median at ``key``.

    None where there is no such row, or where too few rounds are left to judge by.
    """
    timed = [(value.value, one) for one in peers(result, every) if (value := key.value(one))]
    if not timed:
        return None
    best = min(timed, key=lambda pair: pair[0])[1]
    verdict = verdicts.between(result, best, key.quantity, key.mode, left_out=left_out)
    return Judged(result=result, other=best, verdict=verdict) if verdict else None


def peers(result: Result, every: Sequence[Result]) -> list[Result]:
    """The rows of other implementations at the same shape and inputs."""
    shape = (result.operation, result.dims, result.at)
    return [one for one in every if (one.operation, one.dims, one.at) == shape and one.implementation != result.implementation]


def against_each(
    result: Result, every: Sequence[Result], key: Key = KERNEL, left_out: frozenset[int] = frozenset()
) -> list[Judged]:
    """``result`` against every row of another implementation at its shape, where enough rounds are left to judge by."""
    found = [(other, verdicts.between(result, other, key.quantity, key.mode, left_out=left_out)) for other in peers(result, every)]
    return [Judged(result=result, other=other, verdict=verdict) for other, verdict in found if verdict]


def newest_by_shape(evidence: Evidence) -> list[Result]:
    """The newest hand-written CUDA C++ row of every shape, in the order of the record."""
    newest: dict[tuple[str, str | None], Result] = {}
    for one in evidence.results:
        if one.implementation != "cuda" or one.variant not in cuda_stages.STAGES[one.operation]:
            continue
        before = newest.get((one.operation, one.at))
        age = list(cuda_stages.STAGES[one.operation]).index
        if before is None or age(one.variant) > age(before.variant):
            newest[one.operation, one.at] = one
    return list(newest.values())


def row(evidence: Evidence, operation: str, implementation: str, variant: str | None = None) -> Result | None:
    """The result that these words name, at the operation's own shape."""
    wanted = (operation, implementation, variant, None)
    return next((one for one in evidence.results if (one.operation, one.implementation, one.variant, one.at) == wanted), None)
