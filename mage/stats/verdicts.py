"""Is one implementation faster than another? Paired ratios, intervals and the words for them.

Rounds of a measurement interleave the implementations, so what disturbs a round disturbs both. The
ratio is therefore taken within each round, and the median of these ratios is what is judged: a
single boosted or stalled round moves neither it nor its interval by much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mage import stats
from mage.evidence.schema import Result

SAME_WITHIN = 0.01
"""Two times count as the same when the whole interval of their ratio lies within 1 ± this."""

RESAMPLES = 10_000
CONTROL_BAND = 0.03
"""A round whose control lies outside its median ± this fraction ran under load and is not judged."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A median with the bootstrap 95 % interval of it, in the unit of the samples."""

    median: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """``ratio`` is time of the one over time of the other: below 1 the one is faster.

    ``word`` is faster, slower, same or ambiguous.
    """

    word: str
    ratio: Interval


def median_interval(samples: Sequence[float], seed: int = 0) -> Interval:
    """Median of ``samples`` and its percentile-bootstrap 95 % interval (Efron 1979), at least 3 samples.

    Seeded, so that the same samples give the same interval. Raises ValueError for fewer samples or
    for values that are not finite: a void sample is left out by whoever voided it, with the reason.
    """
    values = np.asarray(samples, dtype=float)
    if values.ndim != 1 or values.size < 3:
        raise ValueError(f"an interval needs at least 3 samples, got {values.size}")
    if not np.isfinite(values).all():
        raise ValueError("an interval needs finite samples")
    draws = np.random.default_rng(seed).integers(0, values.size, (RESAMPLES, values.size))
    low, high = np.percentile(np.median(values[draws], axis=1), [2.5, 97.5])
    return Interval(median=float(np.median(values)), low=float(low), high=float(high), count=values.size)


def compare(one: Sequence[float], other: Sequence[float], seed: int = 0) -> Verdict:
    """Verdict from one value a round of each, in the same order of rounds (times, any one unit)."""
    if len(one) != len(other):
        raise ValueError(f"paired rounds are needed, got {len(one)} and {len(other)}")
    ratio = median_interval([a / b for a, b in zip(one, other, strict=True)], seed)
    return Verdict(word=word(ratio), ratio=ratio)


def by_round(result: Result, quantity: str, mode: str = "awaited", cache: str = "warm") -> dict[int, float]:
    """Median of every accepted round of a measured result, by the round's number; µs."""
    entries = result.spans if quantity == "span_us" else result.kernels
    entry = next((one for one in entries if (one.mode, one.cache) == (mode, cache)), None)
    if entry is None:
        return {}
    rounds = stats.samples(result, quantity, mode=mode, cache=cache)
    numbers = entry.rounds or range(len(rounds))
    return {number: float(np.median(samples)) for number, samples in zip(numbers, rounds, strict=True)}


def between(
    one: Result,
    other: Result,
    quantity: str,
    mode: str = "awaited",
    cache: str = "warm",
    left_out: frozenset[int] = frozenset(),
) -> Verdict | None:
    """Verdict on two results of one session, at equal keys, from the rounds that both have.

    ``left_out``: rounds not to be judged. None where fewer than three rounds are left.
    """
    mine, theirs = by_round(one, quantity, mode, cache), by_round(other, quantity, mode, cache)
    shared = [number for number in mine if number in theirs and number not in left_out]
    if len(shared) < 3:
        return None
    return compare([mine[number] for number in shared], [theirs[number] for number in shared])


def word(ratio: Interval) -> str:
    """faster, slower or same only when the whole interval says so; else ambiguous."""
    if ratio.high < 1 - SAME_WITHIN:
        return "faster"
    if ratio.low > 1 + SAME_WITHIN:
        return "slower"
    if 1 - SAME_WITHIN <= ratio.low and ratio.high <= 1 + SAME_WITHIN:
        return "same"
    return "ambiguous"


def loaded_rounds(control: Sequence[float]) -> list[int]:
    """Indices of the rounds whose control kernel lies outside its own median ± 3 %."""
    values = np.asarray(control, dtype=float)
    centre = np.median(values)
    return [int(i) for i in np.flatnonzero(np.abs(values - centre) > CONTROL_BAND * centre)]
