"""The stages of a hand-written kernel in any record: as a published record lists them, or from a session's own rows."""

from __future__ import annotations

from mage import cuda_stages, judged, stats
from mage.schema import Evidence, Result, Stage

WAY = {
    "matmul": ("tiled", "registers", "quads", "pipeline", "groups"),
    "gelu": ("elementwise", "quads"),
    "layernorm": ("block", "warp", "pair", "row", "registers"),
    "triangle": ("elementwise", "shared"),
    "neighbor": ("feature", "quad", "warp"),
}
"""Stages that followed each other; the others are comparisons beside the way."""
LABEL = "ours"


def of(record: Evidence) -> tuple[Stage, ...]:
    """Stages that ``record`` lists, or those of our CUDA C++ kernels that it measured: medians, warm, awaited."""
    if record.stages or not judged.measured(record):
        return record.stages
    rows = {(row.operation, row.variant): row for row in record.results if row.implementation == "cuda" and row.at is None}
    made = []
    for operation, way in WAY.items():
        there = [name for name in way if (operation, name) in rows]
        if len(there) > 1:  # one stage alone is no way
            made += [_stage(record, rows[operation, name]) for name in there]
    return tuple(stage for stage in made if stage)


def one_session(record: Evidence) -> bool:
    """Whether the stages of ``record`` were measured together, so that they may be compared."""
    return judged.measured(record) and not record.stages


def _stage(record: Evidence, row: Result) -> Stage | None:
    kernel, span = (stats.value(row, quantity, "median") for quantity in ("kernel_us", "span_us"))
    launch = next((one for one in row.kernels if (one.mode, one.cache) == ("awaited", "warm")), None)
    if kernel is None or launch is None:
        return None
    return Stage(
        operation=row.operation,
        stage=row.variant,
        kernel=launch.name,
        label=LABEL,
        read_from=record.experiment,
        changed=cuda_stages.STAGES[row.operation][row.variant].changed,
        kernel_us=kernel.value,
        span_us=span.value if span else None,
        grid=launch.grid,
        block=launch.block,
        registers=launch.registers,
        shared_bytes=launch.shared_bytes,
        max_abs_error=row.max_abs_error,
    )
