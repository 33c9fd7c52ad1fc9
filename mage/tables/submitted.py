"""Launch modes and host costs of a measured session: every row by how its calls were put on the device."""

from __future__ import annotations

from statistics import median

from mage import stats
from mage.evidence.schema import Evidence
from mage.notes import vocabulary
from mage.stats import judged
from mage.tables.rows import implementation, left_out, operation, sentences, short, table
from mage.views import palette, selection
from mage.views.display import TableView
from mage.views.selection import Chosen

TAKES = {
    "Awaited": ("span_us", "awaited", "warm"),
    "In tens": ("span_us", "batch-10", "warm"),
    "Graph of ten": ("span_us", "graph-10", "warm"),
    "Kernel": ("kernel_us", "awaited", "warm"),
    "Awaited, cold": ("span_us", "awaited", "cold"),
    "Kernel, cold": ("kernel_us", "awaited", "cold"),
}
"""Quantity, mode and cache of each column."""


def launch_modes(evidence: Evidence, operations: Chosen, implementations: Chosen) -> TableView:
    """Medians of every row: each call awaited, in tens, in a graph of ten, the kernel alone; warm, and cold where taken."""
    chosen = [row.result for row in selection.rows(evidence, operations, implementations)]
    records = []
    for result in chosen:
        found = {head: stats.value(result, quantity, "median", mode=mode, cache=cache) for head, (quantity, mode, cache) in TAKES.items()}
        times = {head: value and value.value for head, value in found.items()}
        both = times["In tens"] and times["Kernel"]
        records.append(
            {
                "Operation": operation(result),
                "Implementation": implementation(result),
                **times,
                "Wait": times["Awaited"] - times["Kernel"] if times["Awaited"] and times["Kernel"] else None,
                "In tens vs kernel": (times["In tens"] / times["Kernel"] - 1) * 100 if both else None,
            }
        )
    units = {**dict.fromkeys([*TAKES, "Wait"], "µs"), "In tens vs kernel": "%"}
    columns = [
        "Operation",
        "Implementation",
        "Awaited",
        "In tens",
        "Graph of ten",
        "Kernel",
        "Wait",
        "In tens vs kernel",
        "Awaited, cold",
        "Kernel, cold",
    ]
    return table(
        "launch-modes", records, columns, f"Time per call in {evidence.experiment} by how calls are submitted", evidence, chosen,
        "launch modes", units=units, formats={**dict.fromkeys(units, ".2f"), "In tens vs kernel": "+.1f"}, row_heads=2,
        missing="not taken",
        note=sentences(
            "Medians of the accepted samples, µs a call. Wait: awaited less kernel. Each column is a quantity of its own: only "
            "numbers within a column compare. Warm: same inputs, back to back. Cold: the cache was filled with other data right "
            "before the call.",
            left_out(evidence, implementations),
        ),
    )  # fmt: skip


def host_costs(evidence: Evidence, implementations: Chosen) -> TableView:
    """Median host time of submitting one of ten calls, a row an implementation and variant, a column an operation."""
    rows = selection.rows(evidence, None, implementations)
    newest = judged.newest_by_shape(evidence)
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        stage = row.result.implementation == "cuda"
        if row.result.host_us and not (stage and row.result not in newest):
            name = palette.label("cuda") if stage else row.name
            found.setdefault(name, {})[short(row.result.operation)] = median(row.result.host_us)
    heads = [short(name) for name in vocabulary.OPERATIONS]
    records = [{"Implementation": name, **times} for name, times in found.items()]
    return table(
        "host-costs", records, ["Implementation", *heads], f"Host time of submitting one call in {evidence.experiment}", evidence,
        rows, "host costs", units=dict.fromkeys(heads, "µs"), formats=dict.fromkeys(heads, ".2f"), missing="not taken",
        note="Medians of the rounds. In each round ten calls are submitted without waiting for the device: the host's time until "
        "the last one is submitted, over ten. CUDA C++: the newest stage. No kernel is in it as long as the queue does not fill.",
    )  # fmt: skip
