"""One kernel, several ways to put it on the device: awaited, queued, replayed from a graph; and what the host pays."""

from __future__ import annotations

from mage.evidence.schema import Evidence
from mage.stats import judged
from mage.tables import submitted
from mage.tables.rows import implementation, operation, pick, table, written
from mage.views import palette, selection
from mage.views.display import TableView
from mage.views.selection import Chosen

MEDIANS = "Microseconds per launch, medians of the samples; the kernel time is the mean of a capture."


def launch_modes(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """Awaited one at a time and queued in tens, against the time inside the kernel; of a measured session every row."""
    if judged.measured(evidence):
        return submitted.launch_modes(evidence, operations, implementations)
    columns = [
        "Operation", "Matmul tile", "Implementation", "Awaited", "In tens", "Kernel", "Wait", "In tens vs kernel",
    ]  # fmt: skip
    rows = [row for row in evidence.launch_modes if row.table == "awaited-queued"]
    records = [
        {
            "Operation": operation(row),
            "Matmul tile": _tile(row),
            "Implementation": implementation(row),
            "Awaited": row.awaited_us,
            "In tens": row.queued_10_us,
            "Kernel": row.kernel_us,
            "Wait": row.awaited_us - row.kernel_us if row.kernel_us else None,
            "In tens vs kernel": (row.queued_10_us / row.kernel_us - 1) * 100 if row.kernel_us else None,
        }
        for row in pick(rows, operations, implementations)
    ]
    times = ("Awaited", "In tens", "Kernel", "Wait")
    return table(
        "launch-modes", records, columns, "Time per launch by how calls are submitted", evidence, rows, "launch modes",
        units={**dict.fromkeys(times, "µs"), "In tens vs kernel": "%"},
        formats={**dict.fromkeys(times, ".2f"), "In tens vs kernel": "+.1f"}, row_heads=2, missing="not taken",
        note=f"{MEDIANS} In tens: queued, not awaited. Wait: awaited less kernel. The matmul tile names the run; only matmul "
        "uses it.",
    )  # fmt: skip


def launch_graph(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """Queued and replayed from a recorded graph, ten launches at once and more."""
    columns = [
        "Operation", "Matmul tile", "Implementation", "Awaited", "In tens", "In hundreds",
        "Graph 10", "Graph 25", "Kernel",
    ]  # fmt: skip
    rows = [row for row in evidence.launch_modes if row.table == "graph"]
    records = [
        {
            "Operation": operation(row),
            "Matmul tile": _tile(row),
            "Implementation": implementation(row),
            "Awaited": row.awaited_us,
            "In tens": row.queued_10_us,
            "In hundreds": row.queued_100_us,
            "Graph 10": row.graph_10_us,
            "Graph 25": row.graph_25_us,
            "Kernel": row.kernel_us,
        }
        for row in pick(rows, operations, implementations)
    ]
    times = columns[3:]
    return table(
        "launch-graph", records, columns, "Time per launch, queued and replayed from a graph", evidence, rows, "graph replays",
        units=dict.fromkeys(times, "µs"), formats=dict.fromkeys(times, ".2f"), row_heads=2, missing="not taken",
        note=f"{MEDIANS} In tens and in hundreds are queued, not awaited.", **_elsewhere(evidence),
    )  # fmt: skip


def launch_matched(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """The same two ways for every implementation that was timed both ways."""
    columns = ["Operation", "Implementation", "Matmul tile", "Awaited", "Queued in tens", "Difference"]
    rows = [row for row in evidence.launch_modes if row.table == "matched"]
    records = [
        {
            "Operation": operation(row),
            "Implementation": implementation(row),
            "Matmul tile": _tile(row),
            "Awaited": row.awaited_us,
            "Queued in tens": row.queued_10_us,
            "Difference": row.awaited_us - row.queued_10_us,
        }
        for row in pick(rows, operations, implementations)
    ]
    times = columns[3:]
    return table(
        "launch-matched", records, columns, "Awaited and queued, each implementation by the same path", evidence, rows,
        "launch modes of several implementations",
        units=dict.fromkeys(times, "µs"), formats=dict.fromkeys(times, ".2f"), row_heads=2,
        note="Microseconds per launch, medians of the samples. The matmul tile names the run.", **_elsewhere(evidence),
    )  # fmt: skip


def host_costs(evidence: Evidence, *, implementations: Chosen = None) -> TableView:
    """Host time of one launch: as published an estimate of awaited calls, measured the median of submitting one."""
    if judged.measured(evidence):
        return submitted.host_costs(evidence, implementations)
    wanted = selection.words("implementations", implementations)
    chosen = sorted(
        (row for row in evidence.host_costs if row.implementation in wanted),
        key=lambda row: palette.position(row.implementation),
    )
    records = [{"Implementation": implementation(row), "Case": row.case, "From": row.low_us, "To": row.high_us} for row in chosen]
    return table(
        "host-costs", records, ["Implementation", "Case", "From", "To"], "Host time of one awaited launch, as published",
        evidence, evidence.host_costs, "host costs", units={"From": "µs", "To": "µs"}, formats={"From": ".0f", "To": ".0f"},
        row_heads=2, note="Estimates: span less kernel time, from two instruments.",
    )  # fmt: skip


def _elsewhere(evidence: Evidence) -> dict[str, str]:
    """Of a measured session one table shows all modes of all rows."""
    if not judged.measured(evidence):
        return {}
    return {"empty": f"{evidence.experiment} took every mode of every row: they are columns of the table of launch modes."}


def _tile(row) -> str:
    return written(row.configuration)
