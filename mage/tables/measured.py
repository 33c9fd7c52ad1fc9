"""What one measured session says: its verdicts, the published claims judged by it, counters, and the session itself.

Published evidence has means without samples, so each of these tables is then one sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from mage import stats
from mage.claims import replication, series_claims
from mage.errors import RequestError
from mage.evidence.schema import Evidence, KernelCounters, Round, Void
from mage.stats import judged
from mage.tables.rows import QUANTITIES, left_out, operation, pick, sentences, shape, short, written
from mage.views import palette, rounding, selection
from mage.views.display import TableView
from mage.views.selection import Chosen

CLAIMS = {**replication.NOTES, **series_claims.NOTES}
"""The published claims that a session can judge, by the note that makes them."""
NEAR = 60.0
"""A limit counts as near from this share of it on, in percent: the usual rule of profilers."""
PARTS = {
    "spans": "spans", "span pairs": "same code against itself, spans", "kernels": "kernel time",
    "kernel pairs": "same code against itself, kernel time",
}  # fmt: skip
MODES = {"batch-10": "in tens", "graph-10": "graph of ten"}
STALLS = {
    "long_scoreboard": "global memory", "short_scoreboard": "shared memory", "mio_throttle": "shared-memory queue",
    "lg_throttle": "global-memory queue", "math_pipe_throttle": "arithmetic pipe", "not_selected": "other warps' turn",
    "wait": "fixed latency", "no_instruction": "instruction fetch", "imc_miss": "constant cache",
    "branch_resolve": "a branch", "membar": "memory barrier", "drain": "stores to drain", "dispatch_stall": "dispatch",
}  # fmt: skip
"""What a warp waits for, in words, by the profiler's name of the stall."""


def verdicts(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """Every row against the fastest row of another implementation, from paired rounds of this session."""
    columns = ["Operation", "Shape", "Implementation", "Median", "Best other", "Ratio", "Low", "High", "Verdict"]
    key = judged.key(evidence)
    unjudged = judged.loaded(evidence, key.quantity)
    chosen = [row.result for row in selection.rows(evidence, operations, implementations)] if judged.measured(evidence) else []
    records = []
    for result in chosen:
        median = key.value(result)
        found = judged.against_best(result, chosen, key, unjudged)
        ratio = found.verdict.ratio if found else None
        records.append(
            {
                "Operation": operation(result),
                "Shape": shape(result.dims),
                "Implementation": _name(result),
                "Median": median and median.value,
                "Best other": found and _name(found.other),
                "Ratio": ratio and ratio.median,
                "Low": ratio and ratio.low,
                "High": ratio and ratio.high,
                "Verdict": found.verdict.word if found else "no verdict" if median else "no time",
            }
        )
    numbers = ("Ratio", "Low", "High")
    loaded = f"Left out as loaded: {_numbers(sorted(unjudged))}." if unjudged else "No round was loaded."
    return _table(
        "verdicts", records, columns, f"Each row of {evidence.experiment} against the best other implementation",
        evidence, chosen, "results",
        units={"Median": "µs"}, formats={"Median": ".2f", **dict.fromkeys(numbers, ".3f")}, row_heads=3, missing="not measured",
        note=sentences(
            judged.instead(evidence),
            f"{key.words.capitalize()}, warm. Ratio: this row's time over the other's, paired by round; "
            "Low and High: 95 % interval of its median. Faster or slower only where the whole interval lies outside 0.99 to 1.01, "
            "same where it lies inside, else ambiguous. The other is the fastest by median that is chosen here. "
            f"{loaded} No verdict: fewer than three rounds were left.",
            left_out(evidence, implementations),
        ),
    )  # fmt: skip


def claims_here(
    evidence: Evidence,
    published: Iterable[Evidence],
    *,
    note: str,
    operations: Chosen = None,
) -> TableView:
    """The published claims of ``note`` (a key of ``CLAIMS``), each judged by this session alone."""
    if note not in CLAIMS:
        raise RequestError(f"note {note!r} has no claims to judge; there is: {', '.join(CLAIMS)}")
    columns = ["Operation", "Published claim", "Verdict here", "Published ratio", "Ratio", "Low", "High", "Holds if", "A", "B"]
    records = []
    claims = pick(CLAIMS[note], operations) if judged.measured(evidence) else []
    for found in (replication.judge(claim, evidence, list(published)) for claim in claims):
        middle, low, high = found.ratio or (None, None, None)
        records.append(
            {
                "Operation": operation(found.claim),
                "Published claim": found.claim.text,
                "Verdict here": found.word,
                "Published ratio": found.published,
                "Ratio": middle,
                "Low": low,
                "High": high,
                "Holds if": found.bound,
                "A": found.one_us,
                "B": found.other_us,
            }
        )
    ratios = ("Published ratio", "Ratio", "Low", "High")
    return _table(
        "claims-here", records, columns, f"Published claims, judged by {evidence.experiment} on {evidence.device.name}",
        evidence, claims, "claims",
        units={"A": "µs", "B": "µs"}, formats={**dict.fromkeys(ratios, ".3f"), "A": ".2f", "B": ".2f"}, row_heads=2,
        missing="not measured",
        note="The published ratio is another GPU's and another session's, by means: it stands beside, and no verdict rests on it. "
        "Ratio: A over B in this session, A being named first in the claim; Low and High: its 95 % interval. "
        "Holds: the whole interval does. Reversed: the whole interval says the opposite. Else ambiguous. "
        f"{_pairs(note)}",
    )  # fmt: skip


def counters(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """What the hardware counted in every kernel of a call, and which limit that is near."""
    columns = [
        "Operation", "Implementation", "Kernel", "Occupancy", "DRAM", "L2", "Issue slots", "FMA pipe", "Waits most for", "Near",
    ]  # fmt: skip
    results = {row.result.key: row.result for row in selection.rows(evidence, operations, implementations)}
    chosen = [one for one in evidence.counters if one.row in results]
    records = [
        {
            "Operation": operation(results[one.row]),
            "Implementation": _name(results[one.row]),
            "Kernel": one.number + 1,
            "Occupancy": one.occupancy_pct,
            "DRAM": _millions(one.dram_bytes),
            "L2": _millions(one.l2_bytes),
            "Issue slots": one.issue_busy_pct,
            "FMA pipe": one.fma_pct,
            "Waits most for": _waits(one),
            "Near": _near(one, evidence),
        }
        for one in sorted(chosen, key=lambda one: (list(results).index(one.row), one.number))
    ]
    shares = dict.fromkeys(("Occupancy", "Issue slots", "FMA pipe"), "%")
    why = f"Counters are not available here: {evidence.counters_missing}." if evidence.counters_missing else None
    if evidence.device.kind == "cpu":
        why = f"Not available here: {evidence.experiment} was measured on a CPU."
    return _table(
        "counters", records, columns, f"What bounds each kernel: hardware counters of {evidence.experiment}",
        evidence, evidence.counters, "hardware counters", why=why,
        units={**shares, "DRAM": "MB", "L2": "MB"},
        formats={**dict.fromkeys(shares, ".0f"), "DRAM": ".1f", "L2": ".1f", "Kernel": ".0f"}, row_heads=3, missing="not counted",
        note="Counted by ncu in a process of its own, clocks left alone; its durations are not used as times. Occupancy: warps "
        "resident, of the most a multiprocessor holds. Near: DRAM bandwidth, issue slots or FMA pipe used to at least "
        f"{NEAR:g} %, DRAM against the measured bandwidth; else the kernel waits (latency). Kernel numbers a call's kernels.",
    )  # fmt: skip


def session(evidence: Evidence) -> TableView:
    """How the session went: rounds, control, load, clocks, false alarms, limits, and where its time went."""
    records = [{"What": what, "Value": value} for what, value in _session(evidence)] if judged.measured(evidence) else []
    return _table(
        "session", records, ["What", "Value"], f"The session that measured {evidence.experiment}", evidence, records, "facts of a session",
        note="The control is a fixed kernel in every round; a round in which it leaves its median ± 3 %, or in which the host "
        "waits for it twice as long as it takes, is loaded and judges nothing. False alarms: the same code compared with "
        "itself, called faster or slower, over every row of the session. Limits are what this device was seen to reach.",
    )  # fmt: skip


def voids(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """Times that were taken and are not shown, and rows that have none, each with its reason."""
    columns = ["Row", "Quantity", "Mode", "Cache", "Rounds", "Reason"]
    chosen = selection.rows(evidence, operations, implementations, shapes=True)
    names = {row.result.key: ", ".join((short(row.result.operation), _name(row.result), *_at(row.result))) for row in chosen}
    records = [_void(void, names) for void in evidence.voids if void.row is None or void.row in names]
    records += [
        {"Row": names[row.result.key], "Reason": f"gate: {gate.get('passed')}: {gate.get('reason') or 'no reason given'}"}
        for row in chosen
        if (gate := row.result.gate or {}).get("passed") not in (None, "passed")
    ]
    why = f"Nothing of {evidence.experiment} was voided." if not evidence.voids else None
    return _table(
        "voids", records, columns, f"Taken in {evidence.experiment} and not shown, with the reason", evidence, evidence.voids, "voids",
        why=why, missing="all", note="A voided time is in no median, no figure and no verdict.",
    )  # fmt: skip


def modes_here(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """Every row by how its calls were submitted, warm and cold: medians of this session."""
    takes = {
        "Awaited": ("span_us", "awaited", "warm"),
        "In tens": ("span_us", "batch-10", "warm"),
        "Graph of ten": ("span_us", "graph-10", "warm"),
        "Kernel": ("kernel_us", "awaited", "warm"),
        "Awaited, cold": ("span_us", "awaited", "cold"),
        "Kernel, cold": ("kernel_us", "awaited", "cold"),
    }
    columns = ["Operation", "Implementation", *takes]
    chosen = selection.rows(evidence, operations, implementations) if judged.measured(evidence) else []
    records = [
        {
            "Operation": operation(row.result),
            "Implementation": _name(row.result),
            **{
                head: (found := stats.value(row.result, quantity, "median", mode=mode, cache=cache)) and found.value
                for head, (quantity, mode, cache) in takes.items()
            },
        }
        for row in chosen
    ]
    return _table(
        "modes-here", records, columns, f"Time per call in {evidence.experiment} by how calls are submitted",
        evidence, chosen, "results",
        units=dict.fromkeys(takes, "µs"), formats=dict.fromkeys(takes, ".2f"), row_heads=2, missing="not taken",
        note="Medians of the accepted samples. Each column is a quantity of its own: only numbers within a column compare. "
        "Warm: same inputs, back to back. Cold: the cache was filled with other data right before the call.",
    )  # fmt: skip


def no_samples(evidence: Evidence) -> str | None:
    """Why published evidence has no verdict of ours; None where the evidence keeps samples."""
    if judged.measured(evidence):
        return None
    return f"{evidence.experiment} is published evidence: it has means without samples, so there is no verdict of ours."


def _table(id, records, columns, caption, evidence: Evidence, holds: Sequence, what: str, *, why: str | None = None, **more):
    nothing = f"Nothing in {evidence.experiment} matches the selection." if holds else f"There are no {what} in {evidence.experiment}."
    empty = no_samples(evidence) or why or nothing
    return TableView(id, pd.DataFrame(records, columns=list(columns)), caption, empty=empty, **more)


def _name(result) -> str:
    return palette.label(result.implementation, result.variant)


def _at(result) -> tuple[str, ...]:
    """Shape and inputs, where they are not the operation's own."""
    return (written(result.at.replace("+", ", ")),) if result.at else ()


def _pairs(note: str) -> str:
    if note != "what-the-compiler-chose":
        return "Kernel time, but for the claims about spans; hand-written: our CUDA C++ stages."
    return (
        "The tile compiler is cuTile Python with its fixed tiles, hand-written our CUDA C++ stage of the same algorithm as in "
        "mage-003. Kernel time, but for awaited calls (spans) and calls in tens (span a call over kernel time)."
    )


def _millions(count: int | None) -> float | None:
    return None if count is None else count / 1e6


def _waits(one: KernelCounters) -> str | None:
    if not one.stalls:
        return None
    name = max(one.stalls, key=one.stalls.get)
    return f"{STALLS.get(name, name.replace('_', ' '))} ({rounding.half_up(one.stalls[name], 1)})"


def _near(one: KernelCounters, evidence: Evidence) -> str | None:
    shares = {"issue slots": one.issue_busy_pct, "FMA pipe": one.fma_pct}
    limit = evidence.ceilings.dram_gb_s if evidence.ceilings else None
    if one.dram_bytes is not None and one.duration_us and limit:
        # bytes and duration under the same tool: a rate, not a time of the kernel
        shares["DRAM"] = 100 * one.dram_bytes / one.duration_us / 1e3 / limit
    known = {name: share for name, share in shares.items() if share is not None}
    if not known:
        return None
    most = max(known, key=known.get)
    return f"{most} ({known[most]:.0f} %)" if known[most] >= NEAR else f"latency ({most} {known[most]:.0f} %)"


def _by_footprint(rates: Mapping[str, float]) -> dict[str, float]:
    """The best rate by size to 0.1 MB; what is smaller than a megabyte is over before a rate shows."""
    found: dict[str, float] = {}
    for moved, rate in rates.items():
        if int(moved) >= 10**6:
            size = f"{int(moved) / 1e6:.1f} MB"
            found[size] = max(rate, found.get(size, 0.0))
    return found


def _session(evidence: Evidence) -> Iterable[tuple[str, str]]:
    device = evidence.device
    yield "Device", device.name
    yield "Taken", f"{evidence.when:%Y-%m-%d %H:%M} UTC, {evidence.source.citation}"
    if device.other_load:
        yield "Other load", device.other_load
    yield "Rounds", f"{evidence.method.rounds}, {evidence.method.iterations} awaited calls each; order {evidence.method.order}"
    for quantity, instrument in evidence.method.instruments.items():
        yield f"Instrument, {QUANTITIES[quantity]}", instrument
    for part in dict.fromkeys(one.part for one in evidence.rounds):
        yield f"Control, {PARTS.get(part, part)}", _part([one for one in evidence.rounds if one.part == part])
    for one in evidence.false_alarms:
        rate = "no pair was judged" if one.rate is None else f"{100 * one.rate:.1f} %"
        yield f"False alarms, {QUANTITIES[one.quantity]}", f"{one.alarms} in {one.pairs - one.not_judged} of {one.pairs} pairs: {rate}"
    if not evidence.false_alarms:
        yield "False alarms", "no pairs of the same code were taken"
    limits = evidence.ceilings
    if limits:
        yield "Limit, DRAM", f"{limits.dram_gb_s:,.0f} GB/s" if limits.dram_gb_s else "not measured"
        yield "Limit, L2 by footprint", "; ".join(f"{size} {rate:,.0f} GB/s" for size, rate in _by_footprint(limits.l2_gb_s).items())
        if limits.fp32_tflops:
            yield "Limit, FP32", f"{limits.fp32_tflops:.1f} TFLOP/s at {limits.fp32_mhz:.0f} MHz"
    yield "Voids", str(len(evidence.voids)) if evidence.voids else "none"
    yield "Counters", evidence.counters_missing or (f"{len(evidence.counters)} kernels" if evidence.counters else "none")
    yield from evidence.configuration.items()
    yield "Wall time", ", ".join(f"{part} {seconds:.1f} s" for part, seconds in evidence.wall_s.items())


def _part(rounds: Sequence[Round]) -> str:
    control = [float(np.median(one.control_us)) for one in rounds if one.control_us]
    clock = [one.sm_mhz for one in rounds if one.sm_mhz]
    empty = [float(np.median(one.empty_us)) for one in rounds if one.empty_us]
    loaded = [one.number for one in rounds if one.loaded]
    said = [f"{min(control):.2f} to {max(control):.2f} µs" if control else "not taken"]
    said += [f"clock {min(clock):.0f} to {max(clock):.0f} MHz"] if clock else []
    said += [f"empty span {float(np.median(empty)):.2f} µs"] if empty else []
    return "; ".join([*said, f"loaded: {_numbers(loaded)}" if loaded else "no round loaded"])


def _numbers(rounds: Sequence[int]) -> str:
    return f"round{'s' if len(rounds) > 1 else ''} {', '.join(map(str, rounds))}"


def _void(void: Void, names: dict[str, str]) -> dict:
    return {
        "Row": names[void.row] if void.row else None,
        "Quantity": QUANTITIES[void.quantity] if void.quantity else None,
        "Mode": MODES.get(void.mode, void.mode),
        "Cache": void.cache,
        "Rounds": ", ".join(map(str, void.rounds)) or None,
        "Reason": void.reason,
    }
