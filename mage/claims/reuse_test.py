"""The deliberately worse tile: what it predicts of the time, and what was measured of it.

A 32 × 32 tile with 2 × 4 outputs a thread reads 0.75 words of shared memory for one multiply-add where the 64 × 64
tile with 4 × 4 outputs reads 0.5. If these reads are what the kernel is short of, it takes 1.5 times as long. The
prediction is counted in compiled code; the times are published ones, or paired rounds of one session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mage import stats
from mage.errors import EvidenceError
from mage.evidence.schema import Evidence
from mage.stats import judged, verdicts
from mage.views import selection
from mage.views.rounding import half_up

if TYPE_CHECKING:
    import pandas as pd

WORSE, KEPT = "narrow", "registers"
LEVER = "words per multiply-add"
MERGED = "registers_merged"
"""The kept kernel again, its neighbouring shared reads left to the compiler to merge."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Time of one variant over the kept tile's. Times in µs; ``low`` and ``high``: the ratio's 95 % interval, or None."""

    evidence: Evidence
    quantity: str
    variant: str
    variant_us: float
    kept_us: float
    ratio: float
    low: float | None = None
    high: float | None = None


def predicted(counts: pd.DataFrame, variant: str = WORSE, column: str = LEVER) -> float:
    """Reads of ``variant`` over the kept tile's, as counted in code; the same on every GPU that was counted.

    ``counts``: rows of ``counting.count_code``. EvidenceError where it lacks ``column``, lacks either kernel for a GPU, or
    counts another ratio for another GPU.
    """
    if missing := [name for name in ("operation", "implementation", "variant", "gpu", "refused", column) if name not in counts]:
        raise EvidenceError(f"the census has no column {missing[0]!r}: give what mage.count_code makes of matmul")
    compiled = counts[(counts.operation == "matmul") & (counts.implementation == "cuda")]
    ratios = {gpu: _reads(compiled, variant, gpu, column) / _reads(compiled, KEPT, gpu, column) for gpu in compiled.gpu.unique()}
    if not ratios:
        raise EvidenceError(f"the census has no CUDA C++ kernel of matmul: {column} of {variant} over {KEPT} is not known")
    if len(set(ratios.values())) != 1:
        differ = ", ".join(f"{ratio:.3g} on {gpu}" for gpu, ratio in ratios.items())
        raise EvidenceError(f"{column} of {variant} over {KEPT} differs by GPU: {differ}")
    return next(iter(ratios.values()))


def _reads(compiled: pd.DataFrame, variant: str, gpu: str, column: str) -> float:
    """``column`` of one kernel on ``gpu``; EvidenceError where it was not counted."""
    found = compiled[(compiled.variant == variant) & (compiled.gpu == gpu)]
    if found.empty:
        raise EvidenceError(f"the census has no matmul {variant} for {gpu}: count it with the others")
    row = found.iloc[0]
    if isinstance(row.refused, str):
        raise EvidenceError(f"matmul {variant} was not compiled for {gpu}: {row.refused}")
    if not float(row[column]) > 0:
        raise EvidenceError(f"{column} of matmul {variant} for {gpu} is {row[column]}: no ratio can be taken of it")
    return float(row[column])


def measured(records: Evidence | Sequence[Evidence], variant: str = WORSE) -> list[Measured]:
    """Every measurement of ``variant`` against the kept tile: published ones as they are, a session's with an interval."""
    found: list[Measured] = []
    for record in selection.as_list(records):
        if record.reuse_test and variant == WORSE:
            test = record.reuse_test
            ratio = test.variant_us / test.retained_us
            times = {"variant_us": test.variant_us, "kept_us": test.retained_us}
            found.append(Measured(evidence=record, quantity=test.metric, variant=variant, ratio=ratio, **times))
        rows = [judged.row(record, "matmul", "cuda", name) for name in (variant, KEPT)]
        if judged.measured(record) and None not in rows and record.device.kind == "gpu":
            found += filter(None, (_paired(record, *rows, quantity) for quantity in ("kernel_us", "span_us")))
    return found


def _paired(record: Evidence, worse, kept, quantity: str) -> Measured | None:
    verdict = verdicts.between(worse, kept, quantity, left_out=judged.loaded(record, quantity))
    times = [stats.value(row, quantity, "median") for row in (worse, kept)]
    if verdict is None or None in times:
        return None
    return Measured(
        evidence=record, quantity=quantity, variant=worse.variant, variant_us=times[0].value, kept_us=times[1].value,
        ratio=verdict.ratio.median, low=verdict.ratio.low, high=verdict.ratio.high,
    )  # fmt: skip


def again(record: Evidence) -> str:
    """One sentence: what a session measured of the worse tile, each ratio with its interval."""
    found = measured(record)
    if not found or found[0].low is None:
        return f"On {record.device.name} ({record.experiment}) the worse tile was not timed."
    quantities = {"kernel_us": "kernel time", "span_us": "span"}
    ratios = [
        f"{half_up(one.ratio, 2)}× the {quantities[one.quantity]} (95 % interval {half_up(one.low, 3)}–{half_up(one.high, 3)})"
        for one in found
    ]
    where = f"Run again by this project on an {record.device.name} ({record.experiment})"
    return f"{where}, the worse tile takes {' and '.join(ratios)} of the kept one."
