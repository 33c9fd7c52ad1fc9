"""Tables of the notes 001 to 003: what is computed, the worse tile, the steps, repeated runs, resident threads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from mage import operations as catalogue
from mage.census import occupancy
from mage.claims import reuse_test
from mage.evidence.schema import Evidence
from mage.tables.rows import QUANTITIES, operation, pick, sentences, shape, short, table, written
from mage.views import palette, selection
from mage.views.display import TableView
from mage.views.selection import Chosen

if TYPE_CHECKING:
    from mage.claims.reuse_test import Measured

MULTIPROCESSORS = {"sm_89": ("RTX 4090", 128), "sm_90": ("H200", 132)}
"""Multiprocessors of the two GPUs, from NVIDIA's data sheets; the census names a GPU by what a compiler calls it."""


def contracts(*, operations: Chosen = None) -> TableView:
    """What each operation computes at its default shape: formula, work, bytes that have to move, tolerance."""
    columns = ["Operation", "Shape", "Formula", "Work", "Moved at least", "Work per byte", "Also against FP64"]
    records = []
    for name in selection.words("operations", operations):
        one = catalogue.get(name)
        flops, moved = one.flops(one.default_dims), one.bytes(one.default_dims)
        records.append(
            {
                "Operation": short(name),
                "Shape": shape(one.default_dims),
                "Formula": one.formula,
                "Work": flops / 1e6,
                "Moved at least": moved / 1e6,
                "Work per byte": flops / moved,
                "Also against FP64": f"{one.fp64_ratio:.0e}".replace("e-0", "e-") if one.fp64_ratio else None,
            }
        )
    return TableView(
        "contracts", pd.DataFrame(records, columns=columns), "What is computed, at the default shapes",
        units={"Work": "Mflop", "Moved at least": "MB"}, formats={"Work": ".1f", "Moved at least": ".1f", "Work per byte": ".2f"},
        row_heads=2, missing="no sum of products",
        note="Dims stand in the order of the contract: M, N, K; rows and width; nodes and channels; nodes, features, edges. "
        "Moved at least: each input read once and the output written once. Every element may be off by 1e-4 plus 1e-4 of its "
        "value; sums of products must also reach the exact result to this share of its spread, which FP32 does and TF32 does not.",
    )  # fmt: skip


def worse_tile(records: Evidence | Sequence[Evidence], counts: pd.DataFrame, *, operations: Chosen = None) -> TableView:
    """The deliberately worse tile against the kept one: predicted from code that was counted, measured where it was."""
    wanted = "matmul" in selection.words("operations", operations)
    rows = [(reuse_test.WORSE, one) for one in reuse_test.measured(records)] if wanted else []
    rows += [(reuse_test.MERGED, one) for one in reuse_test.measured(records, reuse_test.MERGED)] if wanted else []
    columns = ["Variant", "Measured by", "Quantity", "Words", "Reads", "Variant time", "Kept time", "Ratio", "Low", "High"]
    shown = [_worse(variant, one, counts) for variant, one in rows]
    return table(
        "worse-tile", shown, columns, "Two variants of the register tile against the one that was kept",
        records, reuse_test.measured(records), "measurement of the worse tile",
        units={"Variant time": "µs", "Kept time": "µs"},
        formats={
            **dict.fromkeys(("Words", "Reads", "Variant time", "Kept time"), ".2f"),
            **dict.fromkeys(("Ratio", "Low", "High"), ".3f"),
        },
        row_heads=2, missing="published without samples",
        note="Words and Reads: what the variant reads from shared memory for one multiply-add, over what the kept tile reads, in "
        "32-bit words and in instructions, counted in our compiled code. If that were all a kernel is short of, Ratio would equal it. "
        "Ratio, Low and High of a session: median of paired rounds and its 95 % interval.",
    )  # fmt: skip


def _worse(variant: str, one: Measured, counts: pd.DataFrame) -> dict:
    return {
        "Variant": palette.label("cuda", variant.replace("_", " ")),
        "Measured by": one.evidence.experiment,
        "Quantity": QUANTITIES[one.quantity],
        "Words": reuse_test.predicted(counts, variant),
        "Reads": reuse_test.predicted(counts, variant, "reads per multiply-add"),
        "Variant time": one.variant_us,
        "Kept time": one.kept_us,
        "Ratio": one.ratio,
        "Low": one.low,
        "High": one.high,
    }


def steps(evidence: Evidence, *, operations: Chosen = None) -> TableView:
    """Published changes on the way from one stage of the multiply to the next, each with its own instrument."""
    chosen = evidence.matmul_steps if "matmul" in selection.words("operations", operations) else ()
    records = []
    for before, row in zip((None, *chosen), chosen, strict=False):
        alike = before is not None and before.metric == row.metric
        records.append(
            {
                "Change": written(row.change),
                "Quantity": QUANTITIES[row.metric],
                "Time": row.value_us,
                "Factor": before.value_us / row.value_us if alike else None,
            }
        )
    return table(
        "steps", records, ["Change", "Quantity", "Time", "Factor"], "From the first rewrite of the multiply to the second, step by step",
        evidence, evidence.matmul_steps, "published steps", units={"Time": "µs", "Factor": "×"},
        formats={"Time": ".2f", "Factor": ".2f"}, missing="no step before it with the same instrument",
        note="As published. Factor: time of the step before, divided by this one's, where both were taken with one instrument.",
    )  # fmt: skip


def repeated(evidence: Evidence, *, operations: Chosen = None) -> TableView:
    """Repeated runs of two builds, taken in turn: every run, the mean, the range."""
    chosen = pick(evidence.paired, operations)
    runs = max((len(samples) for one in chosen for samples in one.samples_us.values()), default=0)
    heads = [f"Run {number + 1}" for number in range(runs)]
    records = [
        {
            "Operation": operation(one),
            "Build": build,
            **dict(zip(heads, samples, strict=False)),
            "Mean": math.fsum(samples) / len(samples),
            "From": min(samples),
            "To": max(samples),
        }
        for one in chosen
        for build, samples in one.samples_us.items()
    ]
    columns = ["Operation", "Build", *heads, "Mean", "From", "To"]
    times = columns[2:]
    return table(
        "repeated", records, columns, "Repeated runs of two builds", evidence, evidence.paired, "repeated runs",
        units=dict.fromkeys(times, "µs"), formats=dict.fromkeys(times, ".2f"), row_heads=2,
        note="Spans of awaited calls, as published, a run each.",
    )  # fmt: skip


def residency(counts: pd.DataFrame, stages: Iterable[str], *, operations: Chosen = None) -> TableView:
    """Threads of the layer norm that a multiprocessor holds: what the grid offers, what the request lets in."""
    wanted, stages = "layernorm" in selection.words("operations", operations), list(stages)
    columns = ["GPU", "Stage", "Blocks", "Threads a block", "Offered", "Admitted", "Resident", "Share", "Request limits"]
    records = []
    for row in counts.to_dict("records") if wanted else ():
        if row["operation"] != "layernorm" or row["variant"] not in stages or row["gpu"] not in MULTIPROCESSORS:
            continue
        name, multiprocessors = MULTIPROCESSORS[row["gpu"]]
        blocks = math.prod(int(side) for side in row["grid"].split(" × "))
        offered, admitted = blocks * row["threads"] / multiprocessors, row["blocks per SM"] * row["threads"]
        records.append(
            {
                "GPU": f"{name}, {row['gpu']}",
                "Stage": row["variant"],
                "Blocks": blocks,
                "Threads a block": row["threads"],
                "Offered": offered,
                "Admitted": admitted,
                "Resident": min(offered, admitted),
                "Share": 100 * min(offered, admitted) / occupancy.limits(row["gpu"]).threads,
                "Request limits": row["limited by"],
            }
        )
    order = [f"{name}, {gpu}" for gpu, (name, _) in MULTIPROCESSORS.items()]
    records.sort(key=lambda record: (order.index(record["GPU"]), stages.index(record["Stage"])))
    return TableView(
        "residency", pd.DataFrame(records, columns=columns), "Threads of the layer norm on one multiprocessor",
        units={"Offered": "threads", "Admitted": "threads", "Resident": "threads", "Share": "%"},
        formats={"Offered": ".0f", "Resident": ".0f", "Share": ".0f"}, row_heads=2,
        note=sentences(
            "Offered: threads of the grid for each of the GPU's multiprocessors. Admitted: what registers, shared memory and the limits "
            "of a multiprocessor let in at once, from our compiled code. Share is of the threads it can hold.",
        ),
    )  # fmt: skip
