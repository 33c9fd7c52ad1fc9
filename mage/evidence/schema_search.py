"""The part of the record that a search over configurations leaves: every candidate, who won, and its confirmation.

One ``SearchRun`` is one kernel (operation, implementation and, for CUDA C++, stage) at one shape on one device. Times
are those of a call with warm caches; ``metric`` and ``final_metric`` say by which instrument. A candidate without a
time has a reason instead.
"""

from __future__ import annotations

from datetime import datetime
from statistics import median
from typing import Annotated, Literal

from pydantic import Field, model_validator

from mage.evidence.schema_base import Count, Microseconds, Operation, Record, Sha256

TIMED, REFUSED, UNCOMPILED, WRONG, CRASHED, HUNG, UNFINISHED = STATES = (
    "timed", "refused", "failed to compile", "wrong", "crashed", "hung", "not finished",
)  # fmt: skip
"""What can become of a candidate: refused by a static rule (or by what its build asks for), the gate's no, or worse."""

State = Literal["timed", "refused", "failed to compile", "wrong", "crashed", "hung", "not finished"]
Value = int | str | None
Config = dict[str, Value]
"""A configuration: what the kernel file names (tile sides, warps, stages, hints; None leaves it to the compiler)."""
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Candidate(Record):
    """One configuration: ``samples_us`` where it was timed, else the reason why it was not."""

    config: Config
    state: State
    reason: str | None = None
    samples_us: tuple[Microseconds, ...] = ()
    registers: Count | None = Field(None, description="a thread, of the compiled code")
    shared_bytes: Count | None = Field(None, description="a block, of the compiled code, static plus dynamic")
    stack_bytes: Count | None = Field(None, description="a thread, of the compiled code: more than 0 where it spills")

    @property
    def median_us(self) -> float | None:
        """Median of the samples, by the search's ``metric``; None where the candidate was not timed."""
        return median(self.samples_us) if self.samples_us else None

    @model_validator(mode="after")
    def _timed_or_has_a_reason(self):
        if (self.state == TIMED) != bool(self.samples_us) or (self.state != TIMED and not self.reason):
            raise ValueError(f"a candidate is timed, or has a reason: {self.config} is {self.state!r}")
        return self


class Measured(Record):
    """A configuration measured again beside others: one array of samples a round."""

    config: Config
    rounds_us: tuple[tuple[Microseconds, ...], ...] = Field(min_length=1)

    @property
    def median_us(self) -> float:
        """Median over all rounds."""
        return median(value for turn in self.rounds_us for value in turn)


class Confirmation(Record):
    """The winner and the fixed configuration in another process, gated and timed on inputs of another seed.

    ``fixed`` is None where it could not be timed; a winner that is the fixed configuration stands in both.
    """

    seed: int
    metric: str
    winner: Measured
    fixed: Measured | None

    @property
    def ratios(self) -> tuple[float, ...]:
        """Winner over fixed, round by round."""
        if self.fixed is None:
            return ()
        return tuple(median(one) / median(other) for one, other in zip(self.winner.rounds_us, self.fixed.rounds_us, strict=True))

    @property
    def held(self) -> bool:
        """Whether the winner is still the faster one."""
        return self.fixed is None or self.winner.config == self.fixed.config or median(self.ratios) < 1


class SearchRun(Record):
    """A search over a declared space, or a sweep over given configurations. ``budget_s`` None: as long as it took.

    ``fixed`` is the published configuration, always one of the candidates. ``runoff`` holds the best few and the fixed
    one, measured again in turn. ``chosen`` is what is to be used: the winner if its confirmation held, else ``fixed``;
    None where not even the fixed one could be timed.
    """

    operation: Operation
    implementation: str
    variant: str | None = Field(None, description="stage of a CUDA C++ kernel")
    dims: tuple[Annotated[int, Field(gt=0)], ...]
    kind: Literal["search", "sweep"]
    when: datetime
    device: str
    arch: str | None = None
    driver: str | None = None
    versions: dict[str, str]
    kernel_file: str
    kernel_sha256: Sha256
    space: dict[str, tuple[Value, ...]] = Field({}, description="declared values by name; empty for a sweep")
    metric: str
    final_metric: str = Field(description="instrument of the run-off; the confirmation names its own")
    seed: int
    budget_s: Seconds | None = None
    wall_s: dict[str, Seconds] = Field({}, description="seconds by part: candidates, run-off, confirmation")
    resumed: Count = Field(0, description="candidates that an earlier, interrupted run had finished")
    fixed: Config
    candidates: tuple[Candidate, ...]
    runoff: tuple[Measured, ...] = ()
    confirmation: Confirmation | None = None
    chosen: Config | None = None
    why: str = Field(description="one sentence: why this one was chosen")

    @property
    def key(self) -> str:
        """``matmul/triton[1024, 1024, 1024]``, of a sweep with ``sweep`` behind it: both may be taken of one kernel."""
        sweep = " sweep" if self.kind == "sweep" else ""
        return name(self.operation, self.implementation, self.variant) + f"{list(self.dims)}{sweep}"

    def count(self, state: str) -> int:
        """How many candidates ended in ``state``."""
        return sum(one.state == state for one in self.candidates)

    def measured(self, config: Config) -> Measured | None:
        """The run-off of ``config``."""
        return next((one for one in self.runoff if one.config == config), None)

    @model_validator(mode="after")
    def _fixed_is_a_candidate(self):
        if all(one.config != self.fixed for one in self.candidates):
            raise ValueError("the fixed configuration is not among the candidates")
        return self


def name(operation: str, implementation: str, variant: str | None = None) -> str:
    """How a search, and its tuned configuration, is named."""
    return f"{operation}/{implementation}" + (f":{variant}" if variant else "")
