"""What a launch costs by implementation: the span around an awaited call, less the timer's own, less the kernels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from mage.evidence.schema import Evidence, Result
from mage.stats import judged, verdicts
from mage.tables.measured import no_samples
from mage.tables.rows import left_out, operation, sentences
from mage.views import palette, selection
from mage.views.display import TableView
from mage.views.selection import Chosen


def empty_spans_us(evidence: Evidence) -> dict[int, float]:
    """By round of spans that was judged: the median span around nothing, µs, which the timer alone takes."""
    unjudged = judged.loaded(evidence, "span_us")
    rounds = [one for one in evidence.rounds if one.part == "spans" and one.number not in unjudged and one.empty_us]
    return {one.number: float(np.median(one.empty_us)) for one in rounds}


def over_empty_us(result: Result, empty_us: Mapping[int, float]) -> float | None:
    """What an awaited warm call takes over the timer's own span, µs: within each round, then the median; None without spans.

    Within a round, since both are submitted by the same host and move with its clock.
    """
    spans = verdicts.by_round(result, "span_us")
    over = [span - empty_us[number] for number, span in spans.items() if number in empty_us]
    return float(np.median(over)) if over else None


def cost_us(result: Result, empty_us: Mapping[int, float]) -> float | None:
    """Launch cost of an awaited warm call in µs: what it takes over the empty span, less kernel time; None where a part is missing.

    It can be a little below zero: a kernel of a few µs starts while the timer's second event is still being submitted.
    """
    over, kernel = over_empty_us(result, empty_us), judged.KERNEL.value(result)
    return None if None in (over, kernel) else over - kernel.value


def launch_cost(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """Span, kernel time and what is left of the span for the launch, of every row of a measured session.

    Beside them a call in a graph of ten, whose launch the host has no part in, and what the awaited call takes over it.
    """
    columns = ["Operation", "Implementation", "Span", "Kernel", "Launch cost", "Graph of ten", "Over the graph", "Host time"]
    numbers = columns[2:]
    rows = [row.result for row in selection.rows(evidence, operations, implementations)] if judged.measured(evidence) else []
    empty = empty_spans_us(evidence) if rows else {}
    records = [_record(row, empty) for row in rows]
    return TableView(
        "launch-cost", pd.DataFrame(records, columns=columns), f"What a launch costs in {evidence.experiment}, awaited, warm",
        units=dict.fromkeys(numbers, "µs"), formats=dict.fromkeys(numbers, ".2f"), row_heads=2, missing="not taken",
        empty=no_samples(evidence) or f"Nothing in {evidence.experiment} matches the selection.",
        note=sentences(
            f"Medians. Launch cost: span less the timer's empty span of the same round{_range(empty)} less kernel time.",
            "It is below zero where the kernel starts while the second event is still being submitted. Over the graph: span less "
            "empty span less a call in a graph of ten; at most the launch cost, since that call holds the gap before the next. "
            "Host time: submitting one of ten calls, as the host's clock sees it.",
            left_out(evidence, implementations),
        ),
    )  # fmt: skip


def _range(empty: Mapping[int, float]) -> str:
    return f" ({min(empty.values()):.2f} to {max(empty.values()):.2f} µs)" if empty else ""


def _record(row: Result, empty: Mapping[int, float]) -> dict:
    span, kernel, graph = (key.value(row) for key in (judged.CALL, judged.KERNEL, judged.GRAPH))
    over = over_empty_us(row, empty)
    return {
        "Operation": operation(row),
        "Implementation": palette.label(row.implementation, row.variant),
        "Span": span and span.value,
        "Kernel": kernel and kernel.value,
        "Launch cost": cost_us(row, empty),
        "Graph of ten": graph and graph.value,
        "Over the graph": None if None in (over, graph) else over - graph.value,
        "Host time": float(np.median(row.host_us)) if row.host_us else None,
    }
