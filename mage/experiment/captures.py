"""Kernel time: captures over interleaved rounds of every row, cut at marker kernels and counted.

Calls of a capture are awaited one by one, so that their key is the awaited span's. Three captures follow one
another in a process: a short one that counts each call's launches, the rounds, and the pairs of the same code.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mage import operations, profile
from mage.evidence.schema import Ceilings, DeviceState, Round
from mage.experiment.cases import Case, Say
from mage.experiment.device import Gpu
from mage.experiment.plan import AWAITED, COLD, WARM, Plan, order
from mage.experiment.probe import Probe
from mage.experiment.rounds import own_shape, put, rounded, turns
from mage.experiment.samples import Key, Taken, median
from mage.profile import KernelRecord

_COUNTED_CALLS = 3
_DRAM_BYTES = 2**30
_COPY_QUADS = (1, 4)
_MARKERS = 60000  # a marker's number is its grid's x and y, and y ends at 65535


@dataclass
class Captured:
    """Everything that the captures took. ``kernels`` holds a call's kernels by row, with what is constant of them."""

    taken: dict[Key, list[Taken]] = field(default_factory=lambda: defaultdict(list))
    kernels: dict[str, tuple[KernelRecord, ...]] = field(default_factory=dict)
    pairs: dict[str, list[tuple[list[list[float]], list[list[float]]]]] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    ceilings: Ceilings | None = None


@dataclass(frozen=True)
class Segment:
    """What one marker announces: a stretch of calls, or a measurement of the device itself."""

    name: str
    kind: str  # warm, cold, control, limit, pair
    number: int
    run: Callable[[], object]
    launches: int
    counted: int
    pair: int = 0
    arm: int = 0


class _Session:
    """One capture: segments are run and remembered under their number, then found again in the records."""

    def __init__(self, probe: Probe, uncounted: int):
        import torch

        self._await = torch.cuda.current_stream().synchronize
        self._probe, self._uncounted = probe, uncounted
        self._done: list[Segment | None] = []
        self.walls_us: dict[int, tuple[float, ...]] = {}
        """The host's time around each counted call of the control, by round."""

    def aside(self) -> None:
        """What follows belongs to no segment: the clock probe, an answer copied to the host."""
        self._begin(None)

    def _begin(self, segment: Segment | None) -> None:
        place = len(self._done)
        self._done.append(segment)
        self._await()
        self._probe.marker(*divmod(place, _MARKERS))

    def run(self, segment: Segment) -> None:
        self._begin(segment)
        walls = []
        for _ in range(self._uncounted + segment.counted):
            if segment.kind == COLD:
                self._probe.evict()
                self._await()
            begin = time.perf_counter_ns()
            segment.run()
            self._await()
            walls.append((time.perf_counter_ns() - begin) / 1e3)
        if segment.kind == "control":
            self.walls_us[segment.number] = rounded(walls[self._uncounted :])

    def found(self, records: Sequence[KernelRecord]) -> list[tuple[Segment, profile.Captured]]:
        return attribute(self._done, self._uncounted, records)


def attribute(
    done: Sequence[Segment | None], uncounted: int, records: Sequence[KernelRecord]
) -> list[tuple[Segment, profile.Captured]]:
    """Each segment of ``done`` with its records by call, or with the reason why it is void.

    A segment's place in ``done`` is its marker's number; the records behind a None belong to nobody. Of a
    segment's calls the first ``uncounted`` must be there too, and are then left out.
    """
    seen = {one.case * _MARKERS + one.round: one for one in profile.split(records)}
    result = []
    for place, segment in enumerate(done):
        if segment is None:
            continue
        if place not in seen:
            captured = profile.Captured(void="its marker was not recorded")
        else:
            captured = profile.by_call(seen[place], uncounted + segment.counted, segment.launches)
            captured = replace(captured, calls=captured.calls[uncounted:])
        result.append((segment, captured))
    return result


class Captures:
    """Takes kernel records of ``cases``, all of which have a call."""

    def __init__(self, cases: Sequence[Case], plan: Plan, probe: Probe, gpu: Gpu, say: Say):
        self.cases, self.plan, self.probe, self.gpu, self.say = cases, plan, probe, gpu, say
        self.copies = {
            (moved, quads): probe.copy(moved, quads)
            for moved in (*sorted({self._moved(case) for case in cases}), _DRAM_BYTES)
            for quads in _COPY_QUADS
        }
        for launch in (*self.copies.values(), probe.fma, probe.evict):
            launch()

    @staticmethod
    def _moved(case: Case) -> int:
        return operations.get(case.operation).bytes(case.dims)

    def take(self) -> Captured:
        """All captures, in their order."""
        self._count_launches()
        found = Captured()
        self._rounds(found)
        self._pairs(found)
        return found

    # -- how many kernels a call has

    def _count_launches(self) -> None:
        def work():
            session = _Session(self.probe, 0)
            for case in self.cases:
                session.run(Segment(case.key, WARM, 0, case.call.run, 1, _COUNTED_CALLS))

        for case in self.cases:
            case.call.run()
        seen = {segment.round: segment for segment in profile.split(profile.record(work))}
        for place, case in enumerate(self.cases):
            count = len(seen[place].records) if place in seen else 0
            # A kernel of ours is one launch by what it is; what a library launches is found out here.
            case.launches = case.call.launches or max(1, round(count / _COUNTED_CALLS))
            if count != _COUNTED_CALLS * case.launches:
                self.say(f"{case.key}: {count} kernel records in {_COUNTED_CALLS} calls; {case.launches} a call are expected")

    # -- the rounds

    def _rounds(self, found: Captured) -> None:
        plan, probe = self.plan, self.probe
        session = _Session(probe, plan.uncounted)
        states: list[tuple[float, DeviceState, str | None]] = []
        clocks: list[float] = []
        long: list[bool] = []

        def work():
            for number, cases in turns(self.cases, plan.rounds):
                self._round(session, number, cases)
                session.aside()
                clocks.append(probe.fma_clock())  # of this round's last fma: the one that is counted
                states.append((probe.clock(), self.gpu.state(), self.gpu.load()))
                long.append(any(case.long for case in cases))

        records = profile.record(work)
        controls: dict[int, list[float]] = {}
        limits: dict[str, dict[int, list[float]]] = defaultdict(dict)
        for segment, captured in session.found(records):
            if segment.kind == "control":
                controls[segment.number] = captured.kernel_us
            elif segment.kind == "limit":
                limits[segment.name][segment.number] = captured.kernel_us
            else:
                key = Key(segment.name, "kernel_us", AWAITED, segment.kind)
                put(found.taken[key], segment.number, taken(captured))
                if captured.calls and segment.name not in found.kernels:
                    found.kernels[segment.name] = captured.calls[0]
        for number, (mhz, state, load) in enumerate(states):
            control = rounded(controls.get(number, ()))
            about = {"sm_mhz": round(mhz, 1), "state": state, "loaded": load, "control_wall_us": session.walls_us.get(number, ())}
            found.rounds.append(Round(part="kernels", number=number, control_us=control, long=long[number], **about))
        found.ceilings = self._ceilings(limits, clocks)

    def _round(self, session: _Session, number: int, cases: Sequence[Case]) -> None:
        """Every row warm, those at their operation's own shape cold too, then the control and the device's limits."""
        plan, probe = self.plan, self.probe
        probe.forget_persisting_lines()
        for case in cases:
            counts = {WARM: plan.samples(plan.captured, case.at), **({COLD: plan.cold} if case.at is None else {})}
            for kind, count in counts.items():
                session.run(Segment(case.key, kind, number, case.call.run, case.launches, count))
        session.run(Segment("control", "control", number, probe.control, 1, plan.control))
        for (moved, quads), launch in self.copies.items():
            session.run(Segment(f"{moved}/{quads}", "limit", number, launch, 1, 2 if moved == _DRAM_BYTES else 5))
        session.run(Segment("fma", "limit", number, probe.fma, 1, 1))

    def _ceilings(self, limits: dict[str, dict[int, list[float]]], clocks: Sequence[float]) -> Ceilings:
        return ceilings(
            limits,
            clocks,
            self.probe.fma_flops,
            l2_bytes=self.probe.l2_bytes,
            multiprocessors=self.probe.multiprocessors,
        )

    # -- the same code against itself

    def _pairs(self, found: Captured) -> None:
        plan, cases = self.plan, own_shape(self.cases)
        count = plan.pairs_a_row(len(cases))
        if not count:
            return
        session = _Session(self.probe, 1)
        loads = []

        def work():
            for number in range(plan.rounds):
                for place in order(len(cases), number, plan.rounds):
                    case = cases[place]
                    for pair in range(count):
                        for arm in ((1, 0) if number % 2 else (0, 1)):
                            session.run(
                                Segment(case.key, "pair", number, case.call.run, case.launches, plan.pair_calls, pair, arm)
                            )
                session.run(Segment("control", "control", number, self.probe.control, 1, plan.control))
                session.aside()
                loads.append((self.gpu.state(), self.gpu.load()))

        records = profile.record(work)
        found.pairs = {case.key: [([], []) for _ in range(count)] for case in cases}
        for segment, captured in session.found(records):
            if segment.kind == "control":
                state, load = loads[segment.number]
                about = {"state": state, "loaded": load, "control_wall_us": session.walls_us.get(segment.number, ())}
                found.rounds.append(
                    Round(part="kernel pairs", number=segment.number, control_us=rounded(captured.kernel_us), **about)
                )
            else:
                found.pairs[segment.name][segment.pair][segment.arm].append(captured.kernel_us)


def taken(captured: profile.Captured) -> Taken:
    """The durations of each kernel of a call over the calls of one round."""
    if captured.void:
        return Taken(void=captured.void)
    return Taken(tuple(tuple(record.duration_us for record in kernel) for kernel in zip(*captured.calls, strict=True)))


def ceilings(limits: Mapping[str, Mapping[int, Sequence[float]]], clocks: Sequence[float], fma_flops: int, **device) -> Ceilings:
    """The best that was seen of each limit.

    ``limits`` holds µs by round of each: ``fma``, whose clock of the same launch stands at the round's place in
    ``clocks`` (MHz), and copies, ``<bytes moved>/<quads a thread>``.
    """
    rates: dict[int, float] = {}
    copies: dict[int, dict[int, float]] = {}
    for name, rounds in limits.items():
        every = [time for times in rounds.values() for time in times]
        if name == "fma" or not every:
            continue
        moved = int(name.partition("/")[0])
        rates[moved] = max(rates.get(moved, 0), moved / min(every) / 1e3)
        medians = {number: round(median(times), 3) for number, times in rounds.items() if times}
        # Of two ways to copy the one that is faster over the whole session.
        if moved not in copies or median([*medians.values()]) < median([*copies[moved].values()]):
            copies[moved] = medians
    dram = rates.pop(_DRAM_BYTES, 0)
    copies.pop(_DRAM_BYTES, None)
    # Rate and clock of one launch: a best rate beside another round's clock would belong to no moment.
    fma = min(((times[-1], number) for number, times in limits.get("fma", {}).items() if times), default=None)
    return Ceilings(
        dram_gb_s=round(dram, 1) or None,
        l2_gb_s={str(moved): round(rate, 1) for moved, rate in rates.items()},
        copy_us={str(moved): medians for moved, medians in copies.items()},
        fp32_tflops=round(fma_flops / fma[0] / 1e6, 2) if fma else None,
        fp32_mhz=round(clocks[fma[1]], 1) if fma and fma[1] < len(clocks) else None,
        **device,
    )
