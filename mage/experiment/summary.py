"""A measurement in a terminal: one line a row, what was voided, where the time went."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mage import operations, stats
from mage.evidence.schema import Evidence, Result
from mage.experiment import crosscheck, shapes
from mage.stats import judged, verdicts
from mage.stats.judged import Key
from mage.stats.verdicts import Verdict

COPIED = ("gelu", "layernorm")
"""Operations that do little more than move their bytes, so that a copy is their limit."""


def text(records: Sequence[Evidence]) -> str:
    """Every row of ``records`` once, in µs: medians, for warm kernel time with quartiles."""
    first = records[0]
    rows: dict[str, tuple[Result, Evidence]] = {}
    for record in records:
        for result in record.results:
            rows.setdefault(result.key, (result, record))
    key = judged.key(first)
    head = (
        "operation", "implementation", "kernel warm [q1-q3]", "cold", "awaited", "cold", "batch", "graph", "launches",
        "against the best other",
    )  # fmt: skip
    lines = [head]
    every = [result for result, _ in rows.values()]
    loaded = judged.loaded(first, key.quantity)
    for result in every:
        kernel = _quartiles(result, "kernel_us")
        name = _name(result)
        if not result.spans and not result.kernels:
            gate = result.gate or {}
            lines.append((result.operation, name, f"no time: gate {gate.get('passed')}: {gate.get('reason') or 'see voids'}"[:110]))
            continue
        lines.append(
            (
                result.operation,
                name,
                kernel,
                _median(result, "kernel_us", "awaited", "cold"),
                _median(result, "span_us", "awaited", "warm"),
                _median(result, "span_us", "awaited", "cold"),
                _median(result, "span_us", "batch-10", "warm"),
                _median(result, "span_us", "graph-10", "warm"),
                "-" if result.launches is None else f"{result.launches} ({result.framework_launches} fills)",
                _verdict(result, every, key, loaded),
            )
        )
    widths = [max(len(line[column]) for line in lines if len(line) == len(head)) for column in range(len(head))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)).rstrip() for line in lines]
    together = first.model_copy(update={"results": tuple(every)})
    instead = [sentence] if (sentence := judged.instead(first)) else []
    return "\n".join([*shown, "", *instead, *_by_shape(together, every, key, loaded), *_checks(records), *_about(records)])


def ratio_to_copy(evidence: Evidence, row: Result) -> Verdict | None:
    """``row`` against a plain device copy that moves as many bytes (inputs read once, output written once), warm.

    Kernel times of one session, paired by round: 1 is as fast as moving the bytes at all. None where either is missing.
    """
    copy = evidence.ceilings.copy_us.get(str(operations.get(row.operation).bytes(row.dims))) if evidence.ceilings else None
    mine = verdicts.by_round(row, "kernel_us")
    left_out = judged.loaded(evidence, "kernel_us")
    shared = [number for number in mine if number in (copy or {}) and number not in left_out]
    if len(shared) < 3:
        return None
    return verdicts.compare([mine[number] for number in shared], [copy[number] for number in shared])


def _checks(records: Sequence[Evidence]) -> list[str]:
    """What other tools say of the same rows, at equal keys."""
    first = records[0]
    if first.cross_checks_missing:
        return [f"cross-check: {first.cross_checks_missing}"]
    lines = {}
    for one in (one for record in records for one in crosscheck.compared(record)):
        check, difference = one.check, one.difference_pct
        said = check.void or f"{check.time_us:.2f} us, ours {one.ours_us:.2f}: {difference:+.1f} %" if one.ours_us else "no time of ours"
        lines[check.key] = f"{check.instrument}, {check.row}, {check.quantity} {check.mode} {check.cache}: {said}"
    return list(lines.values())


def _about(records: Sequence[Evidence]) -> list[str]:
    first = records[0]
    lines = [f"{first.device.name}, {first.method.rounds} rounds; {first.device.other_load}"]
    if first.ceilings:
        c = first.ceilings
        l2 = ", ".join(f"{int(moved) / 1e6:.1f} MB {rate:.0f}" for moved, rate in c.l2_gb_s.items())
        lines.append(f"limits: DRAM {c.dram_gb_s} GB/s; L2 GB/s by footprint: {l2}; FP32 {c.fp32_tflops} TFLOP/s at {c.fp32_mhz} MHz")
    for one in first.false_alarms:
        rate = "no rate" if one.rate is None else f"{100 * one.rate:.1f} %"
        lines.append(f"A/A {one.quantity}: {one.alarms} alarms, {one.pairs - one.not_judged} of {one.pairs} pairs judged: {rate}")
    parts = list(dict.fromkeys(one.part for one in first.rounds))
    for part in parts:
        rounds = [one for one in first.rounds if one.part == part]
        control = [float(np.median(one.control_us)) for one in rounds if one.control_us]
        clock = [one.sm_mhz for one in rounds if one.sm_mhz]
        loaded = [one.number for one in rounds if one.loaded]
        said = f"{part}: control {min(control):.2f} to {max(control):.2f} us" if control else f"{part}: no control"
        said += f", clock {min(clock):.0f} to {max(clock):.0f} MHz" if clock else ""
        lines.append(f"{said}, loaded rounds {loaded or 'none'}")
    voids = list(dict.fromkeys(void for record in records for void in record.voids))
    lines.append(f"voids: {len(voids) or 'none'}")
    alike: dict[tuple, list] = {}
    for void in voids:
        alike.setdefault((void.reason, void.rounds), []).append(void)
    for (reason, rounds), group in list(alike.items())[:40]:
        where = " ".join(filter(None, (group[0].row or "every row", group[0].quantity, group[0].mode, group[0].cache)))
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        lines.append(f"  {where}{more}{f' rounds {list(rounds)}' if rounds else ''}: {reason}")
    counted = sum(len(record.counters) for record in records)
    lines.append(f"counters: {first.counters_missing or f'{counted} kernels'}")
    lines.append("wall time, s: " + ", ".join(f"{part} {seconds:.1f}" for part, seconds in first.wall_s.items()))
    return lines


def _median(result: Result, quantity: str, mode: str, cache: str) -> str:
    value = stats.value(result, quantity, "median", mode=mode, cache=cache)
    return "-" if value is None else f"{value.value:.2f}"


def _quartiles(result: Result, quantity: str) -> str:
    value = stats.value(result, quantity, "median")
    return "-" if value is None else f"{value.value:.2f} [{value.low:.2f}-{value.high:.2f}]"


def _verdict(result: Result, every: Sequence[Result], key: Key, loaded: frozenset[int]) -> str:
    found = judged.against_best(result, every, key, loaded)
    if found is None:
        return "-"
    return f"{_said(found.verdict)} {_name(found.other)}"


def _said(verdict: Verdict) -> str:
    ratio = verdict.ratio
    return f"{verdict.word} {ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def _name(result: Result) -> str:
    return shapes.key("", result.implementation, result.variant, result.at).removeprefix("/")


def _by_shape(first: Evidence, every: Sequence[Result], key: Key, loaded: frozenset[int]) -> list[str]:
    """The newest hand-written row of every shape against each peer there, and against a copy of its bytes."""
    lines = []
    for row in judged.newest_by_shape(first):
        found = judged.against_each(row, every, key, loaded)
        said = [f"{_name(one.other)} {_said(one.verdict)}" for one in found]
        copy = ratio_to_copy(first, row) if row.operation in COPIED else None
        said += [f"a copy of its bytes {_said(copy)}"] if copy else []
        if said:
            lines.append(f"{row.key} against " + "; ".join(said))
    return lines
