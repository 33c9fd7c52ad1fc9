"""From what a session took to evidence: voids with reasons, samples to 0.001 µs, one record an experiment."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from mage import operations, provenance
from mage.evidence.schema import (
    VERSION,
    Ceilings,
    Device,
    Evidence,
    FalseAlarms,
    Inputs,
    KernelCounters,
    KernelLaunch,
    Method,
    Result,
    Round,
    Source,
    Spans,
    TimerCheck,
    Void,
)
from mage.experiment.cases import Case
from mage.experiment.plan import Plan
from mage.experiment.samples import Accepted, Key, Taken, accept, beside_the_stream, loaded_voids, marked, median, too_fast
from mage.notes import vocabulary
from mage.stats import agreement, verdicts

PART = {"span_us": "spans", "kernel_us": "kernels"}
PAIRS = {"span_us": "span pairs", "kernel_us": "kernel pairs"}

Pairs = Mapping[str, Sequence[tuple[Sequence[Sequence[float]], Sequence[Sequence[float]]]]]


@dataclass
class Session:
    """All that one measurement session took, before anything is left out."""

    plan: Plan
    device: Device
    when: datetime = field(default_factory=lambda: datetime.now(UTC))
    cases: list[Case] = field(default_factory=list)
    taken: dict[Key, list[Taken]] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    kernels: dict[str, tuple] = field(default_factory=dict)
    host_us: dict[str, list[float]] = field(default_factory=dict)
    wall_us: dict[str, list[float]] = field(default_factory=dict)
    pairs: dict[str, Pairs] = field(default_factory=dict)
    wrong_after: dict[str, str] = field(default_factory=dict)
    ceilings: Ceilings | None = None
    counters: list[KernelCounters] = field(default_factory=list)
    counters_missing: str | None = None
    cross_checks: list[TimerCheck] = field(default_factory=list)
    cross_checks_missing: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    inputs_sha256: dict[str, str] = field(default_factory=dict)
    instruments: dict[str, str] = field(default_factory=dict)
    method: dict[str, str | int] = field(default_factory=dict)
    wall_s: dict[str, float] = field(default_factory=dict)


@dataclass
class Judged:
    """A session with its rules applied."""

    accepted: dict[Key, Accepted]
    voids: list[Void]
    rounds: list[Round]
    false_alarms: list[FalseAlarms]


def judge(session: Session) -> Judged:
    """Apply the rules of ``mage.experiment.samples`` to everything that the session took."""
    shared_cpu = session.device.kind == "cpu"
    rounds: list[Round] = []
    for part in dict.fromkeys(one.part for one in session.rounds):
        rounds += marked([one for one in session.rounds if one.part == part], unsteady=shared_cpu)
    accepted: dict[Key, Accepted] = {}
    voids: list[Void] = []
    for quantity, part in PART.items():
        taken = {key: turns for key, turns in session.taken.items() if key.quantity == quantity}
        if not taken:
            continue
        # A CPU is never ours alone: its loaded rounds stay visible, and no verdict is drawn from them.
        loaded = {} if shared_cpu else {one.number: one.loaded for one in rounds if one.part == part and one.loaded}
        kept, refused = accept(taken, loaded, session.plan.least_rounds)
        accepted |= kept
        voids += refused
        if not shared_cpu:
            voids += loaded_voids(part, rounds, quantity)
    by_key = {case.key: case for case in session.cases}
    for key in list(accepted):
        reason = session.wrong_after.get(key.row) or _impossible(key, accepted, by_key[key.row], session)
        if reason:
            del accepted[key]
            voids.append(Void(row=key.row, quantity=key.quantity, mode=key.mode, cache=key.cache, reason=reason))
    return Judged(accepted, voids, rounds, false_alarms(session, rounds))


def _impossible(key: Key, accepted: Mapping[Key, Accepted], case: Case, session: Session) -> str | None:
    operation = operations.get(case.operation)
    if session.ceilings:
        moved = operation.bytes(case.dims)
        written = 4 * _elements(operation.output_shape(case.dims))
        reason = too_fast(key, accepted[key].median_us, moved - written, moved, operation.flops(case.dims), session.ceilings)
        if reason:
            return reason
    batch = accepted.get(Key(key.row, "span_us", "batch-10", "warm"))
    if key.quantity == "span_us" and batch:
        return beside_the_stream(session.wall_us.get(key.row, ()), batch.median_us)
    return None


def _elements(shape: Sequence[int]) -> int:
    from math import prod

    return prod(shape)


def false_alarms(session: Session, rounds: Sequence[Round]) -> list[FalseAlarms]:
    """Every pair of the same code, compared as two implementations are; loaded rounds are left out of both arms."""
    result = []
    for quantity, pairs in session.pairs.items():
        loaded = {one.number for one in rounds if one.part == PAIRS[quantity] and one.loaded}
        alarms = not_judged = 0
        ratios: dict[str, list[tuple[float, float, float]]] = {}
        for row, of_row in pairs.items():
            for one, other in of_row:
                kept = [number for number in range(len(one)) if number not in loaded and one[number] and other[number]]
                if len(kept) < session.plan.least_rounds:
                    not_judged += 1
                    continue
                verdict = verdicts.compare([median(one[n]) for n in kept], [median(other[n]) for n in kept])
                alarms += verdict.word in ("faster", "slower")
                interval = verdict.ratio
                ratios.setdefault(row, []).append(
                    (round(interval.median, 4), round(interval.low, 4), round(interval.high, 4))
                )
        count = sum(len(of_row) for of_row in pairs.values())
        result.append(FalseAlarms(quantity=quantity, pairs=count, alarms=alarms, not_judged=not_judged, ratios=ratios))
    return result


def assemble(
    session: Session, judged: Judged, experiment: str, rows: Sequence[Case], beside: Sequence[str] = ()
) -> Evidence:
    """The record of ``experiment``: ``rows`` of the session, and what the session says of itself.

    ``beside`` names the other experiments that the same session wrote.
    """
    mine = {case.key for case in rows}
    plan = session.plan
    here = experiment == "here" or experiment.startswith("here-")
    together = f", in one session with {', '.join(beside)}" if beside else ""
    git = provenance.git_state()
    kernels = provenance.classify(provenance.used)["kernels"]
    wanted = {_shape(case) for case in rows}
    return Evidence.model_validate(
        dict(
            schema=VERSION,
            experiment=experiment,
            origin="here" if here else "retained",
            when=session.when.replace(microsecond=0),
            device=session.device,
            software=provenance.versions(),
            source=Source(
                citation=f"measured by Mage on {session.device.name}{together}",
                git_commit=git["commit"] if git and not git["dirty"] else None,
                files=kernels,
            ),
            inputs=Inputs(
                seed=operations.SEED,
                std=operations.STD,
                distribution=vocabulary.DRAWN,
                sha256={name: one for name, one in session.inputs_sha256.items() if name.partition("/")[0] in wanted},
            ),
            method=Method(
                rounds=plan.rounds,
                rtol=operations.Operation.rtol,
                atol=operations.Operation.atol,
                tf32=False,
                span_statistic="samples",
                kernel_statistic="samples",
                instruments=session.instruments,
                **session.method,
            ),
            configuration=session.settings,
            results=[_result(case, session, judged) for case in rows],
            rounds=judged.rounds,
            voids=[void for void in judged.voids if void.row is None or void.row in mine],
            false_alarms=[_of_rows(one, mine) for one in judged.false_alarms],
            ceilings=session.ceilings,
            counters=[one for one in session.counters if one.row in mine],
            counters_missing=session.counters_missing,
            cross_checks=[one for one in session.cross_checks if one.row in mine],
            cross_checks_missing=session.cross_checks_missing,
            wall_s=session.wall_s,
        )
    )


def _result(case: Case, session: Session, judged: Judged) -> Result:
    mine = {key: one for key, one in judged.accepted.items() if key.row == case.key}
    records = session.kernels.get(case.key, ())
    call = case.call
    spans = [
        Spans(mode=key.mode, cache=key.cache, rounds_us=_rounded(one.parts[0]), rounds=_numbers(one))
        for key, one in mine.items()
        if key.quantity == "span_us"
    ]
    kernels = [
        KernelLaunch(
            name=record.name,
            grid=record.grid,
            block=record.block,
            registers=record.registers,
            shared_bytes=record.shared_bytes,
            mode=key.mode,
            cache=key.cache,
            rounds_us=_rounded(part),
            rounds=_numbers(one),
        )
        for key, one in mine.items()
        if key.quantity == "kernel_us"
        for record, part in zip(records, one.parts, strict=True)
    ]
    made = Result(
        operation=case.operation,
        dims=case.dims,
        at=case.at,
        implementation=case.implementation,
        variant=case.variant,
        launches=case.launches if records else None,
        framework_launches=sum(record.is_framework for record in records) if records else None,
        which=call.which if call else None,
        note=call.note if call else None,
        spans=spans,
        kernels=kernels,
        host_us=_rounded([session.host_us.get(case.key, ())])[0] if spans else (),
        wall_us=_rounded([session.wall_us.get(case.key, ())])[0] if spans else (),
        gate=_gate(case.gate),
        max_abs_error=case.gate.get("max_abs_err"),
    )
    if case.variant != vocabulary.SEARCHING or not kernels:
        return made
    # What a search picks differs from session to session; the kernel that ran says what it was.
    return made.model_copy(update={"note": "; ".join(filter(None, (made.note, f"the search picked {agreement.ran(made)}")))})


def _gate(found: Mapping) -> dict:
    """The gate's record with its checks by name: those that passed, and apart from them any that failed."""
    if "checks" not in found:
        return dict(found)
    passed = [name for name, good in found["checks"].items() if good]
    failed = [name for name, good in found["checks"].items() if not good]
    return {**found, "checks": passed, **({"failed checks": failed} if failed else {})}


def _of_rows(one: FalseAlarms, rows: Collection[str]) -> FalseAlarms:
    """The session's alarms with the ratios of ``rows`` alone: those of other experiments stand in their records."""
    return one.model_copy(update={"ratios": {row: ratios for row, ratios in one.ratios.items() if row in rows}})


def _shape(case: Case) -> str:
    """``neighbor`` or ``neighbor@4096x64x65536+power-law``: whose inputs they are."""
    return case.operation + (f"@{case.at}" if case.at else "")


def _numbers(one: Accepted) -> tuple[int, ...]:
    """The accepted rounds' numbers, or nothing when they are simply 0, 1, 2, …"""
    return () if one.rounds == tuple(range(len(one.rounds))) else one.rounds


def _rounded(rounds: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(round(value, 3) for value in turn) for turn in rounds)
