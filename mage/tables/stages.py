"""How the hand-written kernels came to be what they are, stage by stage, and what each asks of the device."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from mage import stats
from mage.evidence.schema import Evidence, KernelLaunch, Result
from mage.stats import judged, own_stages
from mage.tables.rows import breaking, implementation, operation, pick, sentences, table, written
from mage.views import selection
from mage.views.display import TableView
from mage.views.selection import Chosen

HAND_WRITTEN = ("cuda", "rust-oxide")
PER = "Threads and shared memory are a block's, registers a thread's."
CROSS = "Stages come from different captures: the factors are printed, without a verdict."
TOGETHER = "All stages were measured in one session; times are medians."


def stages(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """Time of every stage, the experiment whose capture holds it, and the factor to the stage before."""
    time = own_stages.words(evidence).capitalize()
    columns = ["Operation", "Stage", "Published as", "Read from", time, "Factor", "What changed"]
    records = [
        {
            "Operation": operation(row),
            "Stage": row.stage,
            "Published as": row.label,
            "Read from": row.read_from,
            time: row.time_us,
            "Factor": before.time_us / row.time_us if before else None,
            "What changed": written(row.changed.replace("start: ", "").replace("start", "first arrangement")),
        }
        for before, row in _with_the_one_before(_chosen(own_stages.shown(evidence), operations, implementations))
    ]
    return table(
        "stages", records, columns, "Stages of the hand-written kernels, and how much faster each is than the one before",
        evidence, own_stages.shown(evidence), "stages with a time",
        units={time: "µs", "Factor": "×"}, formats={time: ".2f", "Factor": ".2f"}, row_heads=2, missing="no stage before it",
        note=sentences(judged.instead(evidence), _said(evidence)),
    )  # fmt: skip


def stage_spans(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """Time around one awaited call of every stage, beside the kernel time in it."""
    columns = ["Operation", "Stage", "Published as", "Span", "Kernel time", "Difference", "Factor"]
    chosen = [row for row in _chosen(own_stages.of(evidence), operations, implementations) if row.span_us]
    records = [
        {
            "Operation": operation(row),
            "Stage": row.stage,
            "Published as": row.label,
            "Span": row.span_us,
            "Kernel time": row.kernel_us,
            "Difference": row.span_us - row.kernel_us,
            "Factor": before.span_us / row.span_us if before else None,
        }
        for before, row in _with_the_one_before(chosen)
    ]
    times = ("Span", "Kernel time", "Difference")
    note = (
        "Span and kernel time are two instruments in two runs: their difference says how large submission is, no more, "
        "and is negative where the profiled run was the slower one."
    )
    return table(
        "stage-spans", records, columns, "Time around one awaited call at each stage",
        evidence, own_stages.of(evidence), "stages",
        units={**dict.fromkeys(times, "µs"), "Factor": "×"}, formats={**dict.fromkeys(times, ".2f"), "Factor": ".2f"},
        row_heads=2, missing="no stage before it", note=sentences(note, _said(evidence)),
    )  # fmt: skip


def rewrites(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """What the newest stage of each kernel asks of the device, against the one it replaced."""
    chosen = _chosen(own_stages.of(evidence), operations, implementations)
    last_two = [row for name in dict.fromkeys(row.operation for row in chosen) for row in _last_two(chosen, name)]
    columns = ["Operation", "Stage", "Kernel", "Blocks", "Threads", "Registers", "Shared memory"]
    records = [
        {
            "Operation": operation(row),
            "Stage": row.stage,
            "Kernel": row.kernel,
            "Blocks": math.prod(row.grid),
            "Threads": math.prod(row.block),
            "Registers": row.registers,
            "Shared memory": row.shared_bytes,
        }
        for row in last_two
    ]
    return table(
        "rewrites", records, columns, "Resource request of each newest kernel, below that of the kernel it replaced",
        evidence, own_stages.of(evidence), "stages", units={"Shared memory": "bytes"}, row_heads=2,
        note=PER,
    )  # fmt: skip


def requests(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """What every captured kernel asks of a multiprocessor: as published, or of a session the kernels of each row's call."""
    columns = [
        "Operation", "Implementation", "Kernel", "Blocks", "Threads", "Registers", "Shared memory", "Remark",
    ]  # fmt: skip
    records = [
        {
            "Operation": operation(row),
            "Implementation": implementation(row),
            "Kernel": breaking(written(row.kernel)),
            "Blocks": math.prod(row.grid),
            "Threads": math.prod(row.block),
            "Registers": row.registers,
            "Shared memory": row.shared_bytes,
            "Remark": "; ".join(filter(None, [row.note, row.read_from and f"read from the {row.read_from}"])) or None,
        }
        for row in pick(evidence.resources, operations, implementations)
    ]
    if judged.measured(evidence):
        chosen = [row.result for row in selection.rows(evidence, operations, implementations)]
        columns.remove("Remark")
        records = [_launched(result, launch) for result in chosen for launch in stats.launches(result)]
    return table(
        "requests", records, columns, "Resource request of each captured kernel",
        evidence, evidence.resources or [launch for row in evidence.results for launch in stats.launches(row)], "resource requests",
        units={"Shared memory": "bytes"}, row_heads=3, missing="no remark", note=PER,
    )  # fmt: skip


def _launched(result: Result, launch: KernelLaunch) -> dict:
    return {
        "Operation": operation(result),
        "Implementation": implementation(result),
        "Kernel": breaking(written(_own_name(launch.name)), longest=15),
        "Blocks": math.prod(launch.grid),
        "Threads": math.prod(launch.block),
        "Registers": launch.registers,
        "Shared memory": launch.shared_bytes,
    }


def _own_name(name: str) -> str:
    """A kernel's own name, where a compiler wrote all that it is made for behind it: C++ parameters and template
    arguments but the simplest, namespaces, and what cuTile tells of arrays and constants."""
    found = re.match(r"void (?:(?:\w+|\(anonymous namespace\))::)*(\w+)(<\w+>|<)?", name)
    if not found:
        return re.sub(r"_Kt\d+_.*", "", name)
    return found[1] + ("<…>" if found[2] == "<" else found[2] or "")


def _chosen(stages: Sequence, operations: Chosen, implementations: Chosen) -> list:
    """Those of the chosen operations, if the hand-written kernels, whose stages they are, are chosen too."""
    hand = set(HAND_WRITTEN) & set(selection.words("implementations", implementations))
    return pick(stages, operations) if hand else []


def _said(evidence: Evidence) -> str:
    return TOGETHER if own_stages.one_session(evidence) else CROSS


def _with_the_one_before(rows):
    """Each row with the one before it of the same operation, or None."""
    last = {}
    for row in rows:
        yield last.get(row.operation), row
        last[row.operation] = row


def _last_two(rows, name: str):
    return [row for row in rows if row.operation == name][-2:]
