"""Numbers of a measured session in prose: medians and paired ratios, computed from the samples while the note runs.

Mixed into ``claims.Quotes``, which finds rows and compares what is printed. The interval beside a ratio is computed,
never typed: a note states the ratio and the word, and the evidence says how sure they are.
"""

from __future__ import annotations

from mage import stats
from mage.evidence import lookup
from mage.evidence.schema import Evidence, Result
from mage.stats import judged, verdicts

_KIND = {"kernel_us": "kernel time", "span_us": "span"}


class MeasuredQuotes:
    """Methods of ``Quotes`` for evidence that keeps samples."""

    def median(self, row: str, printed: str, quantity: str = "kernel_us", cache: str = "warm", mode: str = "awaited") -> str:
        """Median of ``quantity`` at ``row`` (``"h200-010 results[matmul/cuda:pipeline]"``), as ``printed``: ``"70.9 µs"``."""
        value = self._median(row, printed, quantity, cache, mode)
        return self._computed(value, f"{row}, median {_KIND[quantity]}, {mode}, {cache}", printed, "µs")

    def median_ratio(
        self, one: str, other: str, printed: str, quantity: str = "kernel_us", cache: str = "warm", mode: str = "awaited"
    ) -> str:
        """One median over another, side by side and without a verdict: ``"1.6"`` or ``"1.6×"``."""
        values = [self._median(row, printed, quantity, cache, mode) for row in (one, other)]
        return self._computed(values[0] / values[1], f"{one} / {other}, medians of {_KIND[quantity]}, {mode}, {cache}", printed, "×")

    def against(
        self, one: str, other: str, printed: str, word: str, quantity: str = "kernel_us", cache: str = "warm", mode: str = "awaited"
    ) -> str:
        """Time of ``one`` over time of ``other``, paired by round, with its 95 % interval; ``word`` must be the verdict."""
        results = [self._find(row, printed) for row in (one, other)]
        record = self._record(one)
        left_out = judged.loaded(record, quantity)
        verdict = verdicts.between(*results, quantity, mode, cache, left_out)
        place = f"{one} against {other}, {_KIND[quantity]}, {mode}, {cache}"
        if verdict is None:
            raise self._error(place, printed, "too few rounds to judge by")
        if verdict.word != word:
            raise self._error(place, word, verdict.word)
        ratio = verdict.ratio
        said = self._computed(ratio.median, place, printed, "×")
        return f"{said} (95\u202f% interval {ratio.low:.3f}–{ratio.high:.3f}: {word})"

    def best_peer(
        self, row: str, which: str, cache: str = "warm", variants: str = "", quantity: str = "kernel_us", mode: str = "awaited"
    ) -> str:
        """The fastest row of another implementation at the shape of ``row``, which must be ``which``: ``"triton:tuned"``.

        ``variants``: names of peers to choose among, set apart by blanks; without them all.
        """
        result, record = self._find(row, which), self._record(row)
        wanted = variants.split()
        peers = [one for one in judged.peers(result, record.results) if not wanted or _name(one) in wanted]
        timed = [(found.value, _name(one)) for one in peers if (found := stats.value(one, quantity, "median", mode=mode, cache=cache))]
        found = min(timed)[1] if timed else "none"
        if found != which:
            raise self._error(f"{row}, best peer by {_KIND[quantity]}, {mode}, {cache}", which, found)
        return which

    def _median(self, row: str, printed: str, quantity: str, cache: str, mode: str) -> float:
        found = self._find(row, printed)
        value = stats.value(found, quantity, "median", mode=mode, cache=cache) if isinstance(found, Result) else None
        if value is None:
            raise self._error(row, printed, f"not a row with samples of {_KIND[quantity]}, {mode}, {cache}")
        return value.value

    def _record(self, row: str) -> Evidence:
        return self._evidence[lookup.split(row)[0]]


def _name(result: Result) -> str:
    return result.implementation + (f":{result.variant}" if result.variant else "")
