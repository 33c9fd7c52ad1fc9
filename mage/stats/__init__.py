"""One number out of a result: which quantity, which statistic, how far it spread, and what that spread is.

A published result has a mean and, for spans, the range of its round means. A measured one has samples a
round, so medians and quartiles too. Whoever draws or prints a ``Value`` says what its low and high are:
the range of a few means is no interval.

Beside it:

    verdicts     is one faster than another: paired ratios, intervals, words
    judged       the verdicts that one session's evidence allows
    agreement    two sessions on one device, row by row
    own_stages   the stages of a hand-written kernel in any record
    limits       how near a row comes to what its device was seen to reach
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mage.errors import EvidenceError, RequestError
from mage.evidence.schema import KernelLaunch, Result
from mage.notes import vocabulary

PUBLISHED = ("mean", "fastest-round", "slowest-round")
"""Statistics that means and the range of round means allow."""
ROUND_MEANS = "range of the round means"
QUARTILES = "quartiles of the samples"


@dataclass(frozen=True, kw_only=True)
class Value:
    """A time in µs. ``statistic`` is what ``value`` really is, which may be less than was asked for."""

    value: float
    statistic: str
    low: float | None = None
    high: float | None = None
    whisker_meaning: str | None = None


def value(
    result: Result, quantity: str, statistic: str = "mean", *, where: str = "", mode: str = "awaited", cache: str = "warm"
) -> Value | None:
    """``quantity`` (``kernel_us`` or ``span_us``) of ``result``, or None where it was not taken.

    Kernel time was published as a mean alone, so of a published kernel time every statistic but the
    median is that mean, and ``Value.statistic`` says so. ``mode`` and ``cache`` choose among the
    samples of a measured result. ``where`` names the evidence in an error.

    Raises RequestError for an unknown quantity or statistic, and for a median of published means.
    """
    check(statistic, where)
    if quantity not in ("kernel_us", "span_us"):
        raise RequestError(f"quantity {quantity!r} is unknown: choose kernel_us or span_us")
    if result.means is not None:
        return _published(result, quantity, statistic, where)
    rounds = samples(result, quantity, mode=mode, cache=cache)
    return _measured(rounds, statistic) if rounds else None


def samples(result: Result, quantity: str, *, mode: str = "awaited", cache: str = "warm") -> list[np.ndarray]:
    """Samples of a measured result in µs per call, one array a round; [] where none were taken.

    Kernel time of a call is the sum over its kernels, so these must have been recorded for the same calls.
    """
    taken = result.spans if quantity == "span_us" else result.kernels
    chosen = [[np.asarray(row) for row in entry.rounds_us] for entry in taken if (entry.mode, entry.cache) == (mode, cache)]
    if not chosen:
        return []
    lengths = {tuple(map(len, entry)) for entry in chosen}
    if len(lengths) > 1:
        raise EvidenceError(f"{result.key}: its kernels were recorded for different numbers of calls, so they cannot be added")
    return [sum(parts) for parts in zip(*chosen, strict=True)]


def launches(result: Result) -> list[KernelLaunch]:
    """The kernels of one warm call of a measured result, in their order; they were recorded from a cold cache too."""
    return [one for one in result.kernels if (one.mode, one.cache) == ("awaited", "warm")]


def check(statistic: str, where: str = "", allowed: Sequence[str] = vocabulary.STATISTICS) -> None:
    """RequestError, naming the evidence ``where``, if ``statistic`` is unknown or not among ``allowed``."""
    if statistic not in vocabulary.STATISTICS:
        near = difflib.get_close_matches(statistic, vocabulary.STATISTICS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(vocabulary.STATISTICS)}"
        raise RequestError(f"statistic {statistic!r} is unknown: {hint}")
    if statistic not in allowed:
        name = where or "this evidence"
        raise RequestError(f"statistic {statistic!r}: {name} has no samples to take it from; it has {', '.join(allowed)}")


def _published(result: Result, quantity: str, statistic: str, where: str) -> Value | None:
    check(statistic, where, PUBLISHED)
    means = result.means
    if quantity == "kernel_us":
        return Value(value=means.kernel_us, statistic="mean") if means.kernel_us else None
    low, high = means.span_round_min_us, means.span_round_max_us
    chosen = {"mean": means.span_us, "fastest-round": low, "slowest-round": high}[statistic]
    if chosen is None:
        return None
    spread = {"low": low, "high": high, "whisker_meaning": ROUND_MEANS} if None not in (low, high) else {}
    return Value(value=chosen, statistic=statistic, **spread)


def _measured(rounds: Sequence[np.ndarray], statistic: str) -> Value:
    every = np.concatenate(rounds)
    if statistic == "median":
        low, middle, high = (float(part) for part in np.percentile(every, [25, 50, 75]))
        return Value(value=middle, statistic=statistic, low=low, high=high, whisker_meaning=QUARTILES)
    means = [float(part.mean()) for part in rounds]
    chosen = {"mean": float(every.mean()), "fastest-round": min(means), "slowest-round": max(means)}[statistic]
    return Value(value=chosen, statistic=statistic, low=min(means), high=max(means), whisker_meaning=ROUND_MEANS)
