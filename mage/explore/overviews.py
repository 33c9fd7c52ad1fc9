"""Tables of ``mage.explore``: who can run here, and how long a call takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from mage import stats
from mage.evidence.schema import Evidence, Result
from mage.views import palette
from mage.views.display import TableView
from mage.views.selection import shape

if TYPE_CHECKING:
    from mage.implementations import Row


def can_run(operation: str, rows: Sequence[Row]) -> TableView:
    """Where each implementation and variant of ``operation`` runs on this machine, or why it does not."""
    records = [
        {"Implementation": row.implementation, "Variant": row.variant, "Runs on": row.where, "Why not": row.why_not} for row in rows
    ]
    frame = pd.DataFrame(records, columns=["Implementation", "Variant", "Runs on", "Why not"])
    note = "What runs in Triton's interpreter or as host C++ is checked and never timed."
    return TableView("can-run", frame, f"Who can compute {operation} on this machine", row_heads=2, missing="not here", note=note)


def times(record: Evidence, left_out: Sequence[tuple[Row, str]]) -> TableView:
    """Medians with quartiles of a small session, µs per call, and the rows without a time."""
    gpu = record.device.kind == "gpu"
    columns = ["Implementation", "Kernel time", "Span", "From", "To", "Launches", "Remark"]
    records = [_timed(row, "kernel_us" if gpu else "span_us") for row in record.results]
    records += [{"Implementation": palette.label(row.implementation, row.variant), "Remark": why} for row, why in left_out]
    which = "kernel time" if gpu else "span"
    dims = next((shape(row.dims) for row in record.results), "")
    operation = next((palette.OPERATIONS[row.operation] for row in record.results), "")
    numbers = ("Kernel time", "Span", "From", "To")
    return TableView(
        "times", pd.DataFrame(records, columns=columns), f"{operation}, {dims}, on {record.device.name}",
        units=dict.fromkeys(numbers, "µs"), formats={**dict.fromkeys(numbers, ".2f"), "Launches": ".0f"}, missing="not taken",
        note=f"Medians of {record.method.rounds} rounds, warm, calls awaited; From and To: quartiles of the {which}. Every row was gated "
        "before it was timed. For a verdict between two rows measure an experiment: it pairs rounds and takes the false-alarm rate.",
    )  # fmt: skip


def _timed(row: Result, leading: str) -> dict:
    found = {quantity: stats.value(row, quantity, "median") for quantity in ("kernel_us", "span_us")}
    gate = row.gate or {}
    wrong = None if gate.get("passed") == "passed" else f"gate: {gate.get('passed')}: {gate.get('reason')}"
    return {
        "Implementation": palette.label(row.implementation, row.variant),
        "Kernel time": found["kernel_us"] and found["kernel_us"].value,
        "Span": found["span_us"] and found["span_us"].value,
        "From": found[leading] and found[leading].low,
        "To": found[leading] and found[leading].high,
        "Launches": row.launches,
        "Remark": wrong or row.note,
    }
