"""The parts of the record that only published evidence has: what others typed in, estimated or left out.

Each is a figure as it was published, with the words that its publisher gave it; nothing here is computed from samples.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mage.evidence.schema_base import Count, Microseconds, Operation, Quantity, Record


class Reference(Record):
    label: str
    value_us: Microseconds


class Attempt(Record):
    """A variant that was measured and not adopted; its metric is named, since instruments differ."""

    operation: Operation
    label: str
    metric: Quantity
    value_us: Microseconds | tuple[Microseconds, Microseconds]
    compared_with: Reference


class CensusRow(Record):
    property: str
    values: dict[str, str | int]


class PublishedCensus(Record):
    """A count of instructions typed in by its publisher, not computed here."""

    method: str
    rows: tuple[CensusRow, ...]


class LaunchModes(Record):
    """Time per launch of one implementation by how calls are submitted; a mode not taken is absent."""

    table: Literal["awaited-queued", "graph", "matched"]
    statistic: str = Field(description="what one time is of its samples; the kernel time is a capture's mean")
    configuration: str
    operation: Operation
    implementation: str
    awaited_us: Microseconds
    queued_10_us: Microseconds
    queued_100_us: Microseconds | None = None
    graph_10_us: Microseconds | None = None
    graph_25_us: Microseconds | None = None
    kernel_us: Microseconds | None = None

    @property
    def key(self) -> str:
        return f"{self.table}/{self.configuration}/{self.operation}/{self.implementation}"


class HostCost(Record):
    """Host time of one awaited launch, a published estimate: a value or a range."""

    implementation: str
    case: str
    low_us: Microseconds
    high_us: Microseconds

    @property
    def key(self) -> str:
        return f"{self.implementation}/{self.case}"


class SweepRow(Record):
    tile: str = Field(pattern=r"^\d+x\d+x\d+$", description="BM x BN x BK")
    span_us: Microseconds

    @property
    def key(self) -> str:
        return self.tile


class TileSweep(Record):
    metric: str
    retained: str
    rows: tuple[SweepRow, ...]


class Trial(Record):
    tile: str = Field(pattern=r"^\d+x\d+x\d+$")
    median_us: Microseconds
    min_us: Microseconds
    repetitions: Count
    runoff: bool = Field(False, description="re-measurement of the best two, not a new candidate")

    @property
    def key(self) -> str:
        return self.tile + ("/runoff" if self.runoff else "")


class CrossCheck(Record):
    tile: str
    mode: str
    median_us: Microseconds
    min_us: Microseconds

    @property
    def key(self) -> str:
        return f"{self.tile}/{self.mode}"


class Search(Record):
    """A tuner's search over a declared space of tile shapes."""

    tool: str
    metric: str
    space: dict[str, tuple[int, ...]]
    candidates: Count
    wall_s: float
    budget_s: float
    best: str
    trials: tuple[Trial, ...]
    cross_check: tuple[CrossCheck, ...] = ()


class Control(Record):
    """What an unchanged implementation returned over several captures."""

    operation: Operation
    implementation: str
    quantity: Quantity = "kernel_us"
    band_us: tuple[Microseconds, Microseconds] | None = None
    observed_us: Microseconds | None = None
    captures_us: tuple[Microseconds, ...] = ()
    over: str | None = None
    verdict: str | None = None
    gap_to_triton_pct: tuple[float, float] | None = None

    @property
    def key(self) -> str:
        kind = "band" if self.band_us else "captures"
        return f"{self.operation}/{self.implementation}/{self.quantity}/{kind}"


class Drift(Record):
    """How far an unchanged kernel moved between two experiments, as published."""

    against: str
    operation: Operation
    implementation: str
    before_us: Microseconds
    after_us: Microseconds
    change_pct: float | None = None

    @property
    def key(self) -> str:
        return f"{self.operation}/{self.implementation}"


class Observation(Record):
    """Per-launch values seen in the parts of a capture that were read, not the whole capture."""

    operation: Operation
    implementation: str
    launches_seen: Count
    typical_us: tuple[Microseconds, Microseconds]
    first_launch_us: Microseconds | None = None
    outliers_us: tuple[Microseconds, ...] = ()
    published_mean_us: Microseconds

    @property
    def key(self) -> str:
        return f"{self.operation}/{self.implementation}"


class Correctness(Record):
    tolerance: float
    max_abs_error: dict[str, dict[Operation, float]]


class ReuseTest(Record):
    """A deliberately worse tile: it predicts a ratio, and the ratio is then measured."""

    label: str
    metric: Quantity
    reads_per_multiply_add: dict[str, float]
    predicted_ratio: float
    variant_us: Microseconds
    retained_us: Microseconds


class Step(Record):
    """One published change on the way from a stage to the next."""

    change: str
    metric: Quantity
    value_us: Microseconds


class Paired(Record):
    """Repeated spans of two builds, taken in turn."""

    operation: Operation
    metric: Quantity
    samples_us: dict[str, tuple[Microseconds, ...]]
