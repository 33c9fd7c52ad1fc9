"""What was taken and what of it may be shown: plain rules over plain numbers, with a reason for everything left out.

A row's times of one key (quantity, mode, cache) are one ``Taken`` a round. ``accept`` drops rounds and whole keys:

- a round that is void as taken (a kernel record missing), or holds a value that is no positive number;
- a round that ran under load: its control kernel outside the session's median ± 3 %, or awaited by the host for more
  than twice as long as it takes; a throttled device; a process that was not there before;
- a key with too few accepted rounds;
- a key that is faster than the device can be: a cold one above the measured DRAM bandwidth, a warm one above the
  measured L2 bandwidth at that footprint, any one above the measured FP32 peak.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mage.evidence.schema import Ceilings, Round, Void
from mage.experiment import device
from mage.stats import verdicts

TURNS = 2.0
"""Processes take turns on a device, some milliseconds each. A call that has to wait for its turn need not show it in
its own span (on an H200 with a neighbour: 4 % more), since the first event waits too; the host waits twelve times as long."""
WALL_MARGIN, WALL_SLACK_US = 1.25, 5.0
"""Wall time may exceed the span of the same batch by this before work outside the stream is suspected."""


@dataclass(frozen=True)
class Key:
    """Which times: ``row`` as evidence names it, ``quantity`` kernel_us or span_us, ``mode``, ``cache``."""

    row: str
    quantity: str
    mode: str
    cache: str


@dataclass(frozen=True)
class Taken:
    """One round of one key: an array of µs for each kernel of a call (one array for a span), or why it is void."""

    parts: tuple[tuple[float, ...], ...] = ()
    void: str | None = None


@dataclass(frozen=True)
class Accepted:
    """The rounds of one key that may be shown: their numbers, and for each part an array a round."""

    rounds: tuple[int, ...]
    parts: tuple[tuple[tuple[float, ...], ...], ...]

    @property
    def calls_us(self) -> list[float]:
        """Every call's time: the sum over its parts."""
        return [sum(values) for turn in zip(*self.parts, strict=True) for values in zip(*turn, strict=True)]

    @property
    def median_us(self) -> float:
        return median(self.calls_us)


def median(values: Sequence[float]) -> float:
    """The middle value (the mean of the two middle ones)."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def marked(rounds: Sequence[Round], unsteady: bool = False) -> list[Round]:
    """The rounds of one part with ``loaded`` set where the control, the clock or another process says so.

    ``unsteady``: no other process or throttling is known of (a CPU), the control alone speaks.
    """
    controls = [median(one.control_us) if one.control_us else math.nan for one in rounds]
    out_of_band: dict[int, str] = {}
    for long in (False, True):  # a hot device has a control of its own
        places = [place for place, one in enumerate(rounds) if one.long == long and math.isfinite(controls[place])]
        known = [controls[place] for place in places]
        for index in verdicts.loaded_rounds(known) if known else ():
            value, centre = known[index], median(known)
            out_of_band[places[index]] = (
                f"the control took {value:.2f} µs, {100 * (value / centre - 1):+.1f} % of its session median {centre:.2f} µs"
            )
    result = []
    for number, one in enumerate(rounds):
        reason = one.loaded or (None if unsteady else device.throttled(one.state)) or _waited(one) or out_of_band.get(number)
        if reason is None and not math.isfinite(controls[number]):
            reason = "the control was not recorded"
        result.append(one.model_copy(update={"loaded": reason}))
    return result


def _waited(one: Round) -> str | None:
    """Why this round's control shows that somebody else had turns on the device, or None."""
    if not one.control_us or not one.control_wall_us:
        return None
    control, wall = median(one.control_us), median(one.control_wall_us)
    if wall <= TURNS * control:
        return None
    return f"the host waited {wall:.0f} µs for the control, which took {control:.2f} µs: the device was shared"


def accept(
    taken: Mapping[Key, Sequence[Taken | None]], loaded: Mapping[int, str], least: int
) -> tuple[dict[Key, Accepted], list[Void]]:
    """Split what was taken into what may be shown and what may not, with reasons.

    ``loaded`` gives the reason by round; a round in which a key was not taken is None. A key with fewer than
    ``least`` accepted rounds is void whole.
    """
    accepted: dict[Key, Accepted] = {}
    voids: list[Void] = []
    for key, rounds in taken.items():
        refused: dict[str, list[int]] = {}
        kept: list[int] = []
        own = [(number, one) for number, one in enumerate(rounds) if one is not None]
        for number, one in own:
            reason = one.void or _not_a_time(one) or None
            if reason:
                refused.setdefault(reason, []).append(number)
            elif number not in loaded:
                kept.append(number)
        voids += [_void(key, reason, numbers) for reason, numbers in refused.items()]
        if len(kept) < least:
            own_loaded = [loaded[number] for number, _ in own if number in loaded]
            why = next(iter([*refused, *own_loaded]), "none was taken")
            voids.append(_void(key, f"{len(kept)} of {len(own)} rounds were accepted, {least} are needed: {why}"))
            continue
        parts = tuple(zip(*(rounds[number].parts for number in kept), strict=True))
        accepted[key] = Accepted(tuple(kept), parts)
    return accepted, voids


def _not_a_time(one: Taken) -> str | None:
    if not one.parts or not all(one.parts):
        return "no sample was taken"
    for part in one.parts:
        for place, value in enumerate(part):
            if not (math.isfinite(value) and value > 0):
                return f"sample {place} is {value} µs"
    return None


def _void(key: Key, reason: str, rounds: Sequence[int] = ()) -> Void:
    return Void(row=key.row, quantity=key.quantity, mode=key.mode, cache=key.cache, rounds=tuple(rounds), reason=reason)


def loaded_voids(part: str, rounds: Sequence[Round], quantity: str) -> list[Void]:
    """One void for each reason why rounds of every row are not judged."""
    by_reason: dict[str, list[int]] = {}
    for one in rounds:
        if one.part == part and one.loaded:
            by_reason.setdefault(one.loaded, []).append(one.number)
    return [Void(quantity=quantity, rounds=tuple(numbers), reason=reason) for reason, numbers in by_reason.items()]


def too_fast(key: Key, median_us: float, read: int, moved: int, flops: int, ceilings: Ceilings) -> str | None:
    """Why this time cannot be true on a device with these limits, or None.

    ``read``: bytes of the inputs, which a cold call has to fetch from DRAM. ``moved``: inputs and output, which a
    warm call moves through L2. Written bytes are not counted against DRAM: they may stay in the cache.
    """
    if key.quantity != "kernel_us":
        return None  # a span holds the kernel and more
    if key.cache == "cold" and ceilings.dram_gb_s:
        reached = read / median_us / 1e3
        if reached > ceilings.dram_gb_s:
            return f"{reached:.0f} GB/s from a cold cache, above the {ceilings.dram_gb_s:.0f} GB/s measured for DRAM"
    limit = ceilings.l2_gb_s.get(str(moved))
    if key.cache == "warm" and limit:
        reached = moved / median_us / 1e3
        if reached > limit:
            return f"{reached:.0f} GB/s, above the {limit:.0f} GB/s that a warm copy of as many bytes reached"
    if ceilings.fp32_tflops:
        reached = flops / median_us / 1e6
        if reached > ceilings.fp32_tflops:
            return f"{reached:.1f} TFLOP/s, above the {ceilings.fp32_tflops:.1f} TFLOP/s measured for FP32 multiply-adds"
    return None


def beside_the_stream(wall_us: Sequence[float], batch_us: float) -> str | None:
    """Why wall time contradicts the spans of the same batch, or None."""
    if not wall_us:
        return None
    wall = median(wall_us)
    if wall > WALL_MARGIN * batch_us + WALL_SLACK_US:
        return f"the device-synchronised wall time is {wall:.1f} µs a call, the span {batch_us:.1f} µs: work outside the stream"
    return None
