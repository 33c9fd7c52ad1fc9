"""The stages of a hand-written kernel in any record: as a published record lists them, or from a session's own rows."""

from __future__ import annotations

from dataclasses import dataclass

from mage import stats
from mage.evidence.schema import Evidence, Result, Stage
from mage.kernels import cuda_stages
from mage.stats import judged

WAY = {
    "matmul": ("tiled", "registers", "quads", "pipeline", "groups", "spread", "banks"),
    "gelu": ("elementwise", "quads", "cached"),
    "layernorm": ("block", "warp", "pair", "row", "registers"),
    "triangle": ("elementwise", "shared"),
    "neighbor": ("feature", "quad", "warp", "lean"),
}
"""Stages that followed each other at the default shapes; the others are comparisons beside the way, or for other shapes."""
LABEL = "ours"


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A stage and its time in µs, kernel time unless ``judged.key`` of its session says otherwise."""

    operation: str
    stage: str
    label: str
    read_from: str
    changed: str
    time_us: float
    span_us: float | None

    @property
    def key(self) -> str:
        return f"{self.operation}/{self.stage}"


def shown(record: Evidence) -> tuple[Shown, ...]:
    """``of``, with a time even where a session has no kernel times: that of ``judged.key``."""
    key = judged.key(record)
    if record.stages or not judged.measured(record) or key == judged.KERNEL:
        return tuple(_shown(one) for one in of(record))
    made = []
    for row, changed in _way(record):
        if time := key.value(row):
            span = judged.CALL.value(row)
            about = {"operation": row.operation, "stage": row.variant, "label": LABEL, "read_from": record.experiment}
            made.append(Shown(**about, changed=changed, time_us=time.value, span_us=span and span.value))
    return tuple(made)


def words(record: Evidence) -> str:
    """What ``Shown.time_us`` of ``record`` is: ``kernel time`` or, where a session has none, what it is judged by."""
    key = judged.key(record) if one_session(record) else judged.KERNEL
    return "kernel time" if key == judged.KERNEL else key.words


def of(record: Evidence) -> tuple[Stage, ...]:
    """Stages that ``record`` lists, or those of our CUDA C++ kernels that it measured: medians, warm, awaited."""
    if record.stages or not judged.measured(record):
        return record.stages
    return tuple(stage for row, changed in _way(record) if (stage := _stage(record, row, changed)))


def one_session(record: Evidence) -> bool:
    """Whether the stages of ``record`` were measured together, so that they may be compared."""
    return judged.measured(record) and not record.stages


def _way(record: Evidence) -> list[tuple[Result, str]]:
    """The rows of the stages that followed each other, in that order, each with what changed."""
    rows = {(row.operation, row.variant): row for row in record.results if row.implementation == "cuda" and row.at is None}
    found = []
    for operation, way in WAY.items():
        there = [name for name in way if (operation, name) in rows]
        if len(there) > 1:  # one stage alone is no way
            found += [(rows[operation, name], cuda_stages.STAGES[operation][name].changed) for name in there]
    return found


def _shown(stage: Stage) -> Shown:
    same = {name: getattr(stage, name) for name in ("operation", "stage", "label", "read_from", "changed")}
    return Shown(**same, time_us=stage.kernel_us, span_us=stage.span_us)


def _stage(record: Evidence, row: Result, changed: str) -> Stage | None:
    kernel, span = (stats.value(row, quantity, "median") for quantity in ("kernel_us", "span_us"))
    launch = next(iter(stats.launches(row)), None)
    if kernel is None or launch is None:
        return None
    return Stage(
        operation=row.operation,
        stage=row.variant,
        kernel=launch.name,
        label=LABEL,
        read_from=record.experiment,
        changed=changed,
        kernel_us=kernel.value,
        span_us=span.value if span else None,
        grid=launch.grid,
        block=launch.block,
        registers=launch.registers,
        shared_bytes=launch.shared_bytes,
        max_abs_error=row.max_abs_error,
    )
