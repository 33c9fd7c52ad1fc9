"""The parts of the record that only a measurement has: its rounds, what was voided and why, limits, counters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mage.evidence.schema_base import Count, DeviceState, Microseconds, Quantity, Record

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Round(Record):
    """What was seen of the device in one round; ``part`` is what the round took: spans, kernels, or pairs of one.

    ``sm_mhz`` is the clock of a multiprocessor as a kernel counted it, ``empty_us`` the timer's span around nothing,
    ``control_wall_us`` the host's time around each call of the control. ``loaded`` says why no row is judged by this round.
    ``long``: the round had the rows whose calls run the device to its power limit, and no others.
    """

    part: str
    number: Count
    control_us: tuple[Microseconds, ...] = ()
    control_wall_us: tuple[Microseconds, ...] = ()
    empty_us: tuple[Annotated[float, Field(ge=0)], ...] = ()
    sm_mhz: Positive | None = None
    state: DeviceState | None = None
    loaded: str | None = None
    long: bool = False

    @property
    def key(self) -> str:
        return f"{self.part}/{self.number}"


class Void(Record):
    """Times that were taken and are not shown. ``row`` None: of every row; ``rounds`` empty: of all rounds."""

    row: str | None = None
    quantity: Quantity | None = None
    mode: str | None = None
    cache: str | None = None
    rounds: tuple[Count, ...] = ()
    reason: str


class FalseAlarms(Record):
    """The same code against itself: how often the comparison called it faster or slower.

    ``pairs`` was fixed before running. It, ``alarms`` and ``not_judged`` are totals of the whole session, whose other
    experiments may hold other rows. ``ratios`` holds every judged pair of the record's own rows: median, low and high
    end of the 95 % interval. A pair with too few accepted rounds is in ``not_judged`` only.
    """

    quantity: Quantity
    pairs: Count
    alarms: Count
    not_judged: Count = 0
    ratios: dict[str, tuple[tuple[float, float, float], ...]] = Field(description="by row, of the record's own rows")

    @property
    def rate(self) -> float | None:
        """Share of the judged pairs that raised an alarm; None where none was judged."""
        judged = self.pairs - self.not_judged
        return self.alarms / judged if judged else None


class Ceilings(Record):
    """What this device was seen to reach: GB/s (10⁹ bytes), and FP32 multiply-adds at the clock they ran at.

    ``l2_gb_s`` by the bytes that a warm copy moved (read plus written), ``dram_gb_s`` by far more than the cache holds.
    ``copy_us`` is the median of every round of that copy, by the same footprint, for ratios paired by round.
    ``fp32_tflops`` is what a loop of multiply-adds in registers did (two operations each), ``fp32_mhz`` the clock
    that the same launch counted: its cycles against its nanoseconds.
    """

    dram_gb_s: Positive | None = None
    l2_gb_s: dict[str, Positive] = {}
    copy_us: dict[str, dict[int, Microseconds]] = {}
    fp32_tflops: Positive | None = None
    fp32_mhz: Positive | None = None
    l2_bytes: Count | None = None
    multiprocessors: Count | None = None


class KernelCounters(Record):
    """Hardware counters of one kernel of a row's call; a counter that the tool did not give is absent.

    ``duration_us`` is the kernel under the tool, for a cross-check, never a time of the kernel.
    ``stalls``: warps waiting for that reason, per issued instruction.
    """

    row: str
    number: Count
    kernel: str
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    duration_us: Positive | None = None
    occupancy_pct: float | None = None
    dram_bytes: Count | None = None
    l2_bytes: Count | None = None
    issue_busy_pct: float | None = None
    fma_pct: float | None = None
    stalls: dict[str, float] = {}

    @property
    def key(self) -> str:
        return f"{self.row}/{self.number}"


class TimerCheck(Record):
    """A row's time by another tool, at one of our keys: ``quantity``, ``mode`` and ``cache`` as the row's own samples.

    ``time_us`` a call is ``statistic`` (median or mean) of ``samples``; ``void`` says why there is none.
    """

    row: str
    instrument: str
    version: str | None = None
    quantity: Quantity
    mode: str
    cache: Literal["cold", "warm"]
    statistic: Literal["median", "mean", "single"]
    samples: Count = 0
    time_us: Microseconds | None = None
    void: str | None = None

    @property
    def key(self) -> str:
        return f"{self.row}/{self.instrument}/{self.quantity}/{self.mode}/{self.cache}"
