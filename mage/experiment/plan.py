"""What a measurement is going to do: how many rounds of what, fixed before the first sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from mage.experiment import shapes
from mage.experiment.shapes import Shape

AWAITED, BATCH, GRAPH = "awaited", "batch-10", "graph-10"
WARM, COLD = "warm", "cold"
A_BATCH = 10


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Counts of a measurement. ``dims`` replaces default shapes, by operation (for tests).

    ``shapes`` are measured beside the operation's own, in the same rounds, with the rows that ``shape_rows`` names
    (see ``mage.experiment.shapes``) and with what a verdict needs alone: awaited spans and kernel records, warm, of each
    ``at_shapes`` of the samples a round that the own shape gets, at least 3.

    ``uncounted`` calls come before the counted ones of every round, in the same cache state. ``least_rounds``
    accepted rounds are needed, or a row has no time. ``compile_budget_s``: candidates of a search (the mode
    ``max-autotune-no-cudagraphs``) that are not compiled by then are given up, and the row says so.
    """

    operations: tuple[str, ...]
    implementations: tuple[str, ...]
    dims: dict[str, tuple[int, ...]] = field(default_factory=dict)
    shapes: dict[str, tuple[Shape, ...]] = field(default_factory=dict)
    shape_rows: tuple[str, ...] | None = None
    at_shapes: float = 0.5
    rounds: int = 10
    uncounted: int = 2
    awaited: int = 10
    batches: int = 4
    cold: int = 5
    captured: int = 8
    control: int = 7
    empty: int = 10
    pairs: int = 200
    pair_calls: int = 6
    searched: bool = True
    compile_budget_s: float = 110.0
    cpu_iterations: int = 5

    @property
    def least_rounds(self) -> int:
        return max(3, ceil(self.rounds * 2 / 3))

    def shape(self, operation: str) -> tuple[int, ...]:
        """Dims of the operation's own shape."""
        return shapes.own(operation, self.dims.get(operation)).dims

    def every_shape(self, operation: str) -> tuple[Shape, ...]:
        """The operation's own shape, then those beside it."""
        return (shapes.own(operation, self.dims.get(operation)), *self.shapes.get(operation, ()))

    def samples(self, count: int, at: str | None) -> int:
        """``count`` samples a round at the operation's own shape; fewer at one beside it."""
        return count if at is None else max(min(count, 3), ceil(count * self.at_shapes))

    def pairs_a_row(self, rows: int) -> int:
        """Pairs of the same code against itself that every row gets, so that there are at least ``pairs``."""
        return ceil(self.pairs / rows) if rows and self.pairs else 0


ORDER = "rotates by a step a round, and every other round runs backwards"


def order(count: int, number: int, rounds: int) -> list[int]:
    """The order of ``count`` rows in round ``number``: every row comes early and late, before and after its neighbours."""
    step = max(1, count // max(1, rounds))
    start = number * step % count if count else 0
    turned = [*range(start, count), *range(start)]
    return turned[::-1] if number % 2 else turned


def union(plans: Sequence[Sequence[str]], known: Sequence[str]) -> tuple[str, ...]:
    """Every word of several lists, in the order of ``known``."""
    wanted = {word for words in plans for word in words}
    return tuple(word for word in known if word in wanted)
