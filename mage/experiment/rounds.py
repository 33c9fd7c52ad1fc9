"""Spans: interleaved rounds over every row of a measurement on a GPU, and the same code against itself.

Each round takes, besides the rows, the control kernel, the timer's empty span, the device's state and the
clock that a kernel counts. Nothing here decides what may be shown: see ``mage.experiment.samples``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mage import timers
from mage.evidence.schema import Round
from mage.experiment.cases import Case, Say
from mage.experiment.device import Gpu
from mage.experiment.plan import A_BATCH, AWAITED, BATCH, COLD, GRAPH, WARM, Plan, order
from mage.experiment.probe import Probe
from mage.experiment.samples import Key, Taken

LONG_US = 1000.0
"""A call of this length runs the device to its power limit, and a round in which that happens judges nothing."""


@dataclass
class Spanned:
    """Everything that the span rounds took."""

    taken: dict[Key, list[Taken | None]] = field(default_factory=lambda: defaultdict(list))
    host_us: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    wall_us: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    pairs: dict[str, list[tuple[list[list[float]], list[list[float]]]]] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)


class Rounds:
    """Takes spans of ``cases``, all of which have a call. Buffers, events and graphs exist before the first sample."""

    def __init__(self, cases: Sequence[Case], plan: Plan, probe: Probe, gpu: Gpu, say: Say):
        self.cases, self.plan, self.probe, self.gpu = cases, plan, probe, gpu
        self.spans = timers.Spans(probe.evict)
        self.graphs, self.no_graph = {}, {}
        for case in cases:
            for _ in range(2 * timers.WARMUP):
                case.call.run()
            try:
                if case.at is None:
                    self.graphs[case.key] = timers.capture(case.call.run, A_BATCH)
            except Exception as error:  # every launcher has errors of its own
                first = (str(error).splitlines() or [type(error).__name__])[0][:120]
                self.no_graph[case.key] = f"cannot be captured in a CUDA graph: {first}"
                say(f"{case.key}: {self.no_graph[case.key]}")
        mark_long(cases)
        for _ in range(timers.WARMUP):
            probe.control()
            probe.clock()
        gpu.state()
        gpu.remember()

    def take(self) -> Spanned:
        """All rounds, then the rounds of the pairs."""
        found = Spanned()
        for number, cases in turns(self.cases, self.plan.rounds):
            for case in cases:
                self._row(case, number, found)
            found.rounds.append(self._round("spans", number, any(case.long for case in cases)))
        self._pairs(found)
        return found

    def _row(self, case: Case, number: int, found: Spanned) -> None:
        plan, run, spans = self.plan, case.call.run, self.spans
        case.call.out.fill_(math.nan)
        self.probe.forget_persisting_lines()

        def keep(mode, cache, samples):
            put(found.taken[Key(case.key, "span_us", mode, cache)], number, Taken((tuple(samples),)))

        keep(AWAITED, WARM, spans.awaited(run, plan.samples(plan.awaited, case.at)))
        if case.at is not None:
            return  # no verdict beside the own shape is about batches, cold caches or the host
        keep(BATCH, WARM, spans.batched(run, A_BATCH, plan.batches))
        if case.key in self.graphs:
            keep(GRAPH, WARM, spans.graphed(self.graphs[case.key], A_BATCH, plan.batches))
        else:
            put(found.taken[Key(case.key, "span_us", GRAPH, WARM)], number, Taken(void=self.no_graph[case.key]))
        host, wall = timers.host_and_wall(run, A_BATCH)
        found.host_us[case.key].append(host)
        found.wall_us[case.key].append(wall)
        keep(AWAITED, COLD, spans.awaited(run, plan.cold, cold=True))

    def _round(self, part: str, number: int, long: bool = False) -> Round:
        """The control, the empty span and the device as they are at the end of a round, still under its work."""
        control, walls = self.spans.watched(self.probe.control, self.plan.control)
        return Round(
            part=part,
            number=number,
            long=long,
            control_us=rounded(control),
            control_wall_us=rounded(walls),
            empty_us=rounded(self.spans.empty(self.plan.empty)),
            sm_mhz=round(self.probe.clock(), 1),
            state=self.gpu.state(),
            loaded=self.gpu.load(),
        )

    def _pairs(self, found: Spanned) -> None:
        """Arms of the same call, one behind the other, which of the two comes first alternating by round."""
        cases = own_shape(self.cases)
        count = self.plan.pairs_a_row(len(cases))
        for case in cases:
            found.pairs[case.key] = [([], []) for _ in range(count)]
        for number in range(self.plan.rounds if count else 0):
            for place in order(len(cases), number, self.plan.rounds):
                case = cases[place]
                for pair in found.pairs[case.key]:
                    for arm in (pair[::-1] if number % 2 else pair):
                        arm.append(self.spans.awaited(case.call.run, self.plan.pair_calls))
            found.rounds.append(self._round("span pairs", number))


def mark_long(cases: Sequence[Case]) -> None:
    """Say of each case whether it is long: all rows of a shape alike, so that they share their rounds, by the shortest of them.

    The least of three calls decides: one of them may have had to wait.
    """
    fastest: dict[tuple, float] = {}
    for case in cases:
        shape = (case.operation, case.at)
        least = min(timers.host_and_wall(case.call.run, 1)[1] for _ in range(3))
        fastest[shape] = min(fastest.get(shape, math.inf), least)
    for case in cases:
        case.long = fastest[case.operation, case.at] > LONG_US


def turns(cases: Sequence[Case], rounds: int) -> Iterator[tuple[int, list[Case]]]:
    """Round by round its number and its cases in their order: first the short ones, then the long in rounds behind them."""
    short, long = [one for one in cases if not one.long], [one for one in cases if one.long]
    for first, some in ((0, short), (rounds if short else 0, long)):  # numbers begin at 0 whatever there is
        for number in range(rounds if some else 0):
            yield first + number, [some[place] for place in order(len(some), number, rounds)]


def put(taken: list[Taken | None], number: int, one: Taken) -> None:
    """Put what round ``number`` took at its place; rounds before it that took nothing of this are None."""
    taken += [None] * (number - len(taken))
    taken.append(one)


def own_shape(cases: Sequence[Case]) -> list[Case]:
    """The cases at their operation's own shape: those that are paired with themselves."""
    return [case for case in cases if case.at is None]


def rounded(samples: Sequence[float]) -> tuple[float, ...]:
    """Samples to 0.001 µs, the resolution of the record."""
    return tuple(round(value, 3) for value in samples)
