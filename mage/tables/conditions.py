"""Under which conditions numbers were taken, and what single launches looked like where somebody looked."""

from __future__ import annotations

from collections.abc import Sequence

from mage.evidence.schema import Evidence
from mage.tables.rows import implementation, operation, pick, table
from mage.views.display import TableView
from mage.views.selection import Chosen


def conditions(records: Sequence[Evidence]) -> TableView:
    """Software, clocks and load of each experiment, a row each."""
    columns = [
        "Experiment", "Taken", "Device", "torch", "Triton", "State", "SM clock", "Memory clock", "Load",
    ]  # fmt: skip
    rows = []
    for record in records:
        during = record.device.during
        load = during.util_pct if during else ()
        rows.append(
            {
                "Experiment": record.experiment,
                "Taken": f"{record.when:%d %b %H:%M}".replace(" ", "\u202f"),
                "Device": record.device.name.removeprefix("NVIDIA GeForce ").removeprefix("NVIDIA ").replace(" ", "\u202f"),
                "torch": record.software.get("torch"),
                "Triton": record.software.get("triton"),
                "State": during and during.pstate,
                "SM clock": during and during.sm_mhz,
                "Memory clock": during and during.mem_mhz,
                "Load": f"{min(load):g}–{max(load):g}" if load else None,
            }
        )
    return table(
        "conditions", rows, columns, "Conditions of each experiment, read during its first rounds", records, rows, "conditions",
        units={"SM clock": "MHz", "Memory clock": "MHz", "Load": "%", "Taken": "UTC"}, missing="not recorded",
        note="Load is the driver's utilization reading, which includes the measurement itself.",
    )  # fmt: skip


def observations(records: Sequence[Evidence], *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """Single launches read in parts of captures: where most lie, the first one, and what lies apart."""
    columns = [
        "Operation", "Implementation", "Experiment", "Launches", "From", "To", "First", "Apart", "Mean",
    ]  # fmt: skip
    found = [
        {
            "Operation": operation(row),
            "Implementation": implementation(row),
            "Experiment": record.experiment,
            "Launches": row.launches_seen,
            "From": row.typical_us[0],
            "To": row.typical_us[1],
            "First": row.first_launch_us,
            "Apart": max(row.outliers_us, default=None),
            "Mean": row.published_mean_us,
        }
        for record in records
        for row in pick(record.observations, operations, implementations)
    ]
    times = columns[4:]
    return table(
        "observations", found, columns, "Single launches, where a capture's list was read in part", records,
        [row for record in records for row in record.observations], "observations of single launches",
        units=dict.fromkeys(times, "µs"), formats=dict.fromkeys(times, ".2f"), row_heads=3, missing="none seen",
        note="Our reading of the parts of the published lists that we saw: so many launches, not whole captures. Most lie "
        "between From and To; First is the first launch, Apart the longest outside that range, Mean the published mean.",
    )  # fmt: skip
