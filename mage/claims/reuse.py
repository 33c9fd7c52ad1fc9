"""Does a tile compiler win where reuse is low and lose where it is high? One session's ratios against two counts of reuse.

*Flops per byte* divides the operation's flops by the bytes that it has to move at least. *Uses of a byte* says how
often the arithmetic reads an input byte: the reads of inputs that the formula makes, over the bytes of the inputs. The
first counts arithmetic, the second what a layout can save; they order the operations differently.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mage import operations, stats
from mage.claims import replication
from mage.stats import judged, verdicts
from mage.stats.verdicts import Verdict
from mage.views import selection
from mage.views.selection import Row

SIDES = {"tile compiler": ("cutile", "rust-cutile"), "hand-written": ("cuda", "rust-oxide")}
AS_PUBLISHED, FASTEST = "as published", "fastest rows"
"""The configuration and the stage that were compared in the published note; or each side's fastest row here."""
FLOPS, USES = "flops per byte", "uses of an input byte"
COUNTS = (FLOPS, USES)
HOLDS, REVERSED, IN_PART, UNDECIDED = "holds", "reversed", "holds in part", "ambiguous"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One operation, both kernel times in µs, and how often its data are used. ``verdict`` is one session's, else None."""

    kind: str
    tile: Row
    hand: Row
    tile_us: float
    hand_us: float
    verdict: Verdict | None = None

    @property
    def operation(self) -> str:
        return self.tile.result.operation

    @property
    def ratio(self) -> float:
        """Tile compiler over hand-written: the median of paired rounds, or the quotient of two published means."""
        return self.verdict.ratio.median if self.verdict else self.tile_us / self.hand_us

    @property
    def one_session(self) -> bool:
        return self.tile.evidence is self.hand.evidence

    def reuse(self, count: str) -> float:
        """By one of ``COUNTS``."""
        return {FLOPS: flops_per_byte, USES: uses_of_a_byte}[count](self.operation, self.tile.result.dims)


@dataclass(frozen=True, kw_only=True)
class Order:
    """How many pairs of operations stand in the claimed order (less reuse, smaller ratio), how many the other way round."""

    count: str
    claimed: int
    opposite: int
    undecided: int

    @property
    def word(self) -> str:
        """What that says of the claim."""
        if not self.claimed and not self.opposite:
            return UNDECIDED
        return IN_PART if self.claimed and self.opposite else HOLDS if self.claimed else REVERSED


def flops_per_byte(operation: str, dims: tuple[int, ...]) -> float:
    """Flops of a call over the bytes it moves at least, each input read once and the output written once."""
    known = operations.get(operation)
    return known.flops(dims) / known.bytes(dims)


def uses_of_a_byte(operation: str, dims: tuple[int, ...]) -> float:
    """Reads of inputs by the formula, over the inputs: both counted in 32-bit words.

    matmul and triangle: two a multiply-add. gelu: x and bias. layernorm: x for the mean and x to be centred, gamma,
    beta. neighbor: an edge's weight and a feature for every feature of it, its index, and two row pointers a row.
    """
    reads = {
        "matmul": lambda M, N, K: 2 * M * N * K,
        "gelu": lambda R, D: 2 * R * D,
        "layernorm": lambda R, D: 4 * R * D,
        "triangle": lambda N, C: 2 * N**3 * C,
        "neighbor": lambda N, F, E: 2 * E * F + E + 2 * N,
    }[operation](*dims)
    return reads / sum(math.prod(shape) for shape in operations.get(operation).input_shapes(dims).values())


def pairs(rows: Sequence[Row], statistic: str = "mean") -> list[Pair]:
    """A pair an operation from published means; from a measured session two: as published, and the fastest rows."""
    found = []
    for (operation, _), group in selection.by_shape(rows).items():
        sides = [[row for row in group if row.result.implementation in names] for names in SIDES.values()]
        if not all(sides):
            continue
        if judged.measured(group[0].evidence):
            wanted = (("cutile", "fixed"), ("cuda", replication.HAND[operation]))
            published = [next((row for row in side if _name(row) == name), None) for side, name in zip(sides, wanted, strict=True)]
            found += _measured(AS_PUBLISHED, *published) + _measured(FASTEST, *map(_fastest, sides))
            continue
        times = [stats.value(side[0].result, "kernel_us", statistic, where=side[0].evidence.experiment) for side in sides]
        if all(times):
            (tile, *_), (hand, *_) = sides
            found.append(Pair(kind=AS_PUBLISHED, tile=tile, hand=hand, tile_us=times[0].value, hand_us=times[1].value))
    return found


def order(given: Iterable[Pair], count: str) -> Order:
    """The claimed order, tried on every two of ``given``. Two ratios differ where their 95 % intervals do not meet;
    published ratios, which have none, where they are not equal."""
    claimed = opposite = undecided = 0
    for one, other in itertools.combinations(given, 2):
        low, high = sorted((one, other), key=lambda pair: pair.reuse(count))
        (low_from, low_to), (high_from, high_to) = map(_interval, (low, high))
        if low_to < high_from:
            claimed += 1
        elif low_from > high_to:
            opposite += 1
        else:
            undecided += 1
    return Order(count=count, claimed=claimed, opposite=opposite, undecided=undecided)


def _name(row: Row) -> tuple[str, str | None]:
    return row.result.implementation, row.result.variant


def _fastest(side: list[Row]) -> Row | None:
    timed = [(value.value, row) for row in side if (value := stats.value(row.result, "kernel_us", "median"))]
    return min(timed, key=lambda pair: pair[0])[1] if timed else None


def _measured(kind: str, tile: Row | None, hand: Row | None) -> list[Pair]:
    if tile is None or hand is None or tile.evidence is not hand.evidence:
        return []
    left_out = judged.loaded(tile.evidence, "kernel_us")
    verdict = verdicts.between(tile.result, hand.result, "kernel_us", left_out=left_out)
    times = [stats.value(row.result, "kernel_us", "median") for row in (tile, hand)]
    if verdict is None or None in times:
        return []
    return [Pair(kind=kind, tile=tile, hand=hand, tile_us=times[0].value, hand_us=times[1].value, verdict=verdict)]


def _interval(pair: Pair) -> tuple[float, float]:
    return (pair.verdict.ratio.low, pair.verdict.ratio.high) if pair.verdict else (pair.ratio, pair.ratio)
