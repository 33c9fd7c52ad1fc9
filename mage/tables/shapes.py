"""Other shapes than an operation's own, and other tools than ours: what a measured session says of both."""

from __future__ import annotations

import pandas as pd

from mage.evidence.schema import Evidence, Result
from mage.experiment import crosscheck, summary
from mage.notes import vocabulary
from mage.stats import judged
from mage.stats.judged import Key
from mage.tables.measured import no_samples
from mage.tables.rows import QUANTITIES, operation, pick, shape
from mage.views import palette, selection
from mage.views.display import TableView
from mage.views.selection import Chosen


def shapes(evidence: Evidence, *, operations: Chosen = None) -> TableView:
    """The newest hand-written kernel at every shape, against the best peer there, by paired rounds of this session."""
    columns = [
        "Operation", "Shape", "Inputs", "Hand-written", "Time", "Best peer", "Its time", "Ratio", "Low", "High", "Verdict", "Of a copy",
    ]  # fmt: skip
    key = judged.key(evidence)
    unjudged = judged.loaded(evidence, key.quantity)
    rows = pick(judged.newest_by_shape(evidence), operations) if judged.measured(evidence) else []
    records = [_shape(row, evidence, key, unjudged) for row in rows]
    numbers = ("Ratio", "Low", "High", "Of a copy")
    empty = no_samples(evidence) or f"{evidence.experiment} has no hand-written kernel at any shape of the selection."
    return TableView(
        "shapes", pd.DataFrame(records, columns=columns), f"Hand-written kernels of {evidence.experiment} at every shape measured",
        units={"Time": "µs", "Its time": "µs"}, formats={"Time": ".2f", "Its time": ".2f", **dict.fromkeys(numbers, ".3f")},
        row_heads=2, missing="not measured", empty=empty,
        note=f"{key.words.capitalize()}, warm, medians. Ratio: our time over the best peer's at the same shape "
        "and inputs, paired by round; Low and High: 95 % interval of its median; verdicts as in every table. Of a copy: our time "
        "over that of a device copy of as many bytes in the same rounds, for the operations that are little else. Power-law: "
        "edges end at few nodes, the share of nodes with d edges falling as d^−2.5.",
    )  # fmt: skip


def _shape(row: Result, evidence: Evidence, key: Key, unjudged: frozenset[int]) -> dict:
    median = key.value(row)
    found = judged.against_best(row, evidence.results, key, unjudged)
    other = found and key.value(found.other)
    ratio = found.verdict.ratio if found else None
    copy = summary.ratio_to_copy(evidence, row) if row.operation in summary.COPIED else None
    return {
        "Operation": operation(row),
        "Shape": shape(row.dims),
        "Inputs": (row.at or "").partition("+")[2] or "usual",
        "Hand-written": row.variant,
        "Time": median and median.value,
        "Best peer": found and palette.label(found.other.implementation, found.other.variant),
        "Its time": other and other.value,
        "Ratio": ratio and ratio.median,
        "Low": ratio and ratio.low,
        "High": ratio and ratio.high,
        "Verdict": found.verdict.word if found else "no verdict" if median else "no time",
        "Of a copy": copy and copy.ratio.median,
    }


MODES = {"awaited": "awaited", "graph-10": "graph of ten"}


def cross_check_timers(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """The same kernels timed by other tools, beside our own times at the same key."""
    columns = [
        "Operation", "Implementation", "Tool", "What", "Its time", "Samples", "Our median", "Difference", "Our kernel time", "Remark",
    ]  # fmt: skip
    keys = {row.result.key for row in selection.rows(evidence, operations, implementations)}
    found = crosscheck.compared(evidence)
    order = vocabulary.OPERATIONS.index
    records = [
        {
            "Operation": operation(one.result),
            "Implementation": palette.label(one.result.implementation, one.result.variant),
            "Tool": " ".join(filter(None, (one.check.instrument, one.check.version))),
            "What": f"{QUANTITIES[one.check.quantity]}, {MODES.get(one.check.mode, one.check.mode)}, {one.check.cache}",
            "Its time": one.check.time_us,
            "Samples": one.check.samples or None,
            "Our median": one.ours_us,
            "Difference": one.difference_pct,
            "Our kernel time": one.kernel_us,
            "Remark": one.check.void or (f"its {one.check.statistic}" if one.check.statistic != "median" else None),
        }
        for one in sorted(found, key=lambda one: order(one.result.operation))
        if one.result.key in keys
    ]
    why = f"No other tool timed these kernels: {evidence.cross_checks_missing}." if evidence.cross_checks_missing else None
    if evidence.device.kind == "cpu":
        why = f"Not available here: {evidence.experiment} was measured on a CPU."
    nothing = f"Nothing in {evidence.experiment} matches the selection." if found else f"{evidence.experiment} has no cross-check."
    return TableView(
        "cross-check-timers", pd.DataFrame(records, columns=columns), f"Kernels of {evidence.experiment} timed by other tools",
        units={"Its time": "µs", "Our median": "µs", "Difference": "%", "Our kernel time": "µs"},
        formats={"Its time": ".2f", "Our median": ".2f", "Difference": "+.1f", "Our kernel time": ".2f", "Samples": ".0f"},
        row_heads=2, missing="not taken", empty=no_samples(evidence) or why or nothing,
        note="Each tool in a process of its own, one row an operation and implementation. Only equal keys are compared. cuda-bench "
        "is NVBench: awaited, cold is its isolated call with the stream not held back, after a memset over the L2 cache; graph of ten, "
        "warm its mean over batches of replays that queue up, where ours are awaited. ncu's time is one replayed run of each "
        "kernel. Our warm kernel time stands beside for the size of the launch in each.",
    )  # fmt: skip
