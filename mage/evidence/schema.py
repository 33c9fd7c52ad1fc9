"""The evidence record: what was computed, by whom, on which device, and every number as it was taken.

One JSON file holds one experiment. Times are microseconds (``_us``), sizes bytes, clocks MHz,
temperatures °C. Samples are stored as they were taken; medians, intervals and ratios are computed
when the record is read. What is constant over the launches of a kernel is stored once, beside an
array of durations. A published record has only means and says so (``Means``): no interval can be
computed from it, so none is shown.

A model is closed: an unknown field is an error, since a misspelt one would otherwise be lost.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from mage.evidence.schema_base import Count, DeviceState, Microseconds, Operation, Quantity, Record, Sha256
from mage.evidence.schema_published import (
    Attempt,
    Control,
    Correctness,
    Drift,
    HostCost,
    LaunchModes,
    Observation,
    Paired,
    PublishedCensus,
    ReuseTest,
    Search,
    Step,
    TileSweep,
)
from mage.evidence.schema_search import SearchRun
from mage.evidence.schema_session import Ceilings, FalseAlarms, KernelCounters, Round, TimerCheck, Void

VERSION = 1
"""Version of the record. A reader takes this one and every older one."""


class Device(Record):
    """The machine part that computed: a GPU, or the CPU where there is none."""

    kind: Literal["gpu", "cpu"]
    name: str
    arch: str | None = Field(None, description="compute capability as a compiler names it, e.g. sm_90")
    driver: str | None = None
    platform: str | None = None
    clocks_locked: bool | None = None
    memory_bytes: Count | None = None
    before: DeviceState | None = None
    during: DeviceState | None = None
    other_load: str | None = Field(None, description="other processes seen on the device")


class Source(Record):
    """Where the figures come from, so that a reader can go there."""

    citation: str
    git_commit: str | None = None
    files: dict[str, Sha256] = Field({}, description="content hash by relative name")


class Inputs(Record):
    """How the input tensors were drawn."""

    seed: int
    std: Annotated[float, Field(gt=0)]
    distribution: str
    sha256: dict[str, Sha256] = {}


class Method(Record):
    """How the numbers were taken."""

    rounds: Count
    iterations: Count
    warmup: Count
    order: str
    rtol: float
    atol: float
    tf32: bool
    span_statistic: str
    kernel_statistic: str
    instruments: dict[Quantity, str] = {}


class Means(Record):
    """The only statistics a published record has: a mean per call, and the range of its round means."""

    kernel_us: Microseconds | None = None
    span_us: Microseconds | None = None
    span_round_min_us: Microseconds | None = None
    span_round_max_us: Microseconds | None = None

    @model_validator(mode="after")
    def _mean_lies_in_its_range(self):
        low, mean, high = self.span_round_min_us, self.span_us, self.span_round_max_us
        if None not in (low, mean, high) and not low <= mean <= high:
            raise ValueError(f"span_us {mean} lies outside its round means {low} to {high}")
        return self


class Spans(Record):
    """Samples of one awaited call, batch or graph replay: one array a round, µs per call."""

    mode: Annotated[str, Field(pattern=r"^(awaited|batch-\d+|graph-\d+)$")]
    cache: Literal["cold", "warm"]
    rounds_us: tuple[tuple[Microseconds, ...], ...]
    rounds: tuple[Count, ...] = Field((), description="numbers of these rounds, where some were voided; else 0, 1, …")


class KernelLaunch(Record):
    """One kernel of a call as the profiler recorded it: what is constant once, durations as arrays."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: Count
    shared_bytes: Count
    mode: str
    cache: Literal["cold", "warm"]
    rounds_us: tuple[tuple[Microseconds, ...], ...]
    rounds: tuple[Count, ...] = Field((), description="numbers of these rounds, where some were voided; else 0, 1, …")


class Result(Record):
    """One operation by one implementation (and stage or configuration) at one shape."""

    operation: Operation
    dims: tuple[Annotated[int, Field(gt=0)], ...]
    at: str | None = Field(None, description="name of shape and inputs, where they are not the operation's own: 512x512x512")
    implementation: str
    variant: str | None = None
    launches: Count | None = Field(None, description="kernels per call")
    framework_launches: Count | None = Field(None, description="how many of them are fills and memsets of the framework")
    which: str | None = Field(None, description="the kernel or library that really ran")
    note: str | None = None
    means: Means | None = None
    spans: tuple[Spans, ...] = ()
    kernels: tuple[KernelLaunch, ...] = ()
    host_us: tuple[Microseconds, ...] = Field((), description="host time of submitting one of ten calls, one value a round")
    wall_us: tuple[Microseconds, ...] = Field((), description="device-synchronised wall time of the same calls, per call")
    gate: dict | None = Field(None, description="what the correctness gate found, before any timing; ``checks`` are those that passed")
    max_abs_error: Annotated[float, Field(ge=0)] | None = None

    @property
    def key(self) -> str:
        """``matmul/cuda:pipeline``, ``matmul/triton``, ``matmul/triton@512x512x512``: how a path names this row."""
        variant, at = f":{self.variant}" if self.variant else "", f"@{self.at}" if self.at else ""
        return f"{self.operation}/{self.implementation}{variant}{at}"


class Stage(Record):
    """One step of a hand-written kernel's history, with the experiment its times are read from."""

    operation: Operation
    stage: str = Field(description="our name of the stage: tiled, registers, …")
    kernel: str = Field(description="name of the published kernel")
    label: str = Field(description="what the published text calls this step")
    read_from: str = Field(description="experiment whose capture holds kernel_us")
    changed: str
    kernel_us: Microseconds
    span_us: Microseconds | None = None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    registers: Count
    shared_bytes: Count
    other_captures_us: tuple[Microseconds, ...] = ()
    max_abs_error: Annotated[float, Field(ge=0)] | None = None

    @property
    def key(self) -> str:
        return f"{self.operation}/{self.stage}"


class Resources(Record):
    """What a kernel asks of a multiprocessor, as a capture reported it."""

    operation: Operation
    implementation: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    registers: Count
    shared_bytes: Count
    grid_is: str | None = None
    read_from: str | None = None
    note: str | None = None

    @property
    def key(self) -> str:
        return f"{self.operation}/{self.kernel}"


class EarlierCapture(Record):
    """The same comparison taken before, with another configuration."""

    label: str
    configuration: str
    results: tuple[Result, ...]


class Evidence(Record):
    """Everything one experiment has to say. See the module text for units."""

    schema_version: int = Field(alias="schema")
    experiment: str
    origin: Literal["published", "retained", "here"]
    when: datetime
    device: Device
    software: dict[str, str]
    source: Source
    inputs: Inputs
    method: Method
    results: tuple[Result, ...]
    configuration: dict[str, str] = {}
    earlier: EarlierCapture | None = None
    stages: tuple[Stage, ...] = ()
    resources: tuple[Resources, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    census: PublishedCensus | None = None
    launch_modes: tuple[LaunchModes, ...] = ()
    host_costs: tuple[HostCost, ...] = ()
    tile_sweep: TileSweep | None = None
    search: Search | None = None
    searches: tuple[SearchRun, ...] = ()
    controls: tuple[Control, ...] = ()
    drift: tuple[Drift, ...] = ()
    correctness: Correctness | None = None
    observations: tuple[Observation, ...] = ()
    matmul_steps: tuple[Step, ...] = ()
    reuse_test: ReuseTest | None = None
    paired: tuple[Paired, ...] = ()
    rounds: tuple[Round, ...] = ()
    voids: tuple[Void, ...] = ()
    false_alarms: tuple[FalseAlarms, ...] = ()
    ceilings: Ceilings | None = None
    counters: tuple[KernelCounters, ...] = ()
    counters_missing: str | None = Field(None, description="why there are no hardware counters")
    cross_checks: tuple[TimerCheck, ...] = ()
    cross_checks_missing: str | None = Field(None, description="why no other tool timed these kernels")
    wall_s: dict[str, float] = Field({}, description="where the measurement's own time went, seconds by part")

    def __repr__(self) -> str:
        """One line: a record printed whole is thousands of samples."""
        return f"Evidence {self.experiment}: {self.origin}, {self.device.name}, {self.when:%Y-%m-%d %H:%M} UTC, {len(self.results)} results"

    __str__ = __repr__

    @field_validator("schema_version")
    @classmethod
    def _known_version(cls, value: int) -> int:
        if not 1 <= value <= VERSION:
            raise ValueError(f"this Mage reads schema versions 1 to {VERSION}, the file has {value}: update Mage")
        return value

    @field_validator("when")
    @classmethod
    def _has_a_zone(cls, value: datetime) -> datetime:
        if value.tzinfo is None:
            raise ValueError("a time needs its zone, e.g. 2026-09-11T00:40:17Z")
        return value

    @model_validator(mode="after")
    def _rows_are_told_apart(self):
        lists = "results stages launch_modes host_costs controls drift rounds counters searches cross_checks"
        for name in lists.split():
            keys = [row.key for row in getattr(self, name)]
            if name == "results":
                keys = [f"{row.key}{list(row.dims)}" for row in self.results]
            twice = sorted({key for key in keys if keys.count(key) > 1})
            if twice:
                raise ValueError(f"{name} has two rows named {twice[0]}")
        if self.origin == "published" and any(row.spans or row.kernels for row in self.results):
            raise ValueError("published evidence has means only; samples belong to retained evidence")
        return self
