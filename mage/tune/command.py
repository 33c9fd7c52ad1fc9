"""``python -m mage tune``: what is asked for, checked before anything starts; the searches; their table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mage import operations, paths
from mage.errors import MageError, RequestError
from mage.evidence.schema_search import STATES, TIMED, SearchRun, name
from mage.kernels import cuda_stages, tuned
from mage.tune.subject import CPU, GPU, PLACES, Subject, candidates, declared, given


def asked(names: Sequence[str], swept: Sequence[str]) -> list[Subject]:
    """The subjects of ``matmul``, ``matmul/triton``, ``matmul/cuda:stage`` …; none named: all that declare a space.

    RequestError for a name that is not there, or that has neither a space nor a ``--sweep``.
    """
    found: dict[str, Subject] = {}
    for one in names or operations.names():
        operation, _, rest = one.partition("/")
        operations.get(operation)
        implementation, _, stage = rest.partition(":")
        if implementation:
            subjects = [Subject.of(operation, implementation, stage or None)]
        elif swept:
            raise RequestError(f"--sweep needs one kernel: give {operation}/triton, say, instead of {operation}")
        else:
            subjects = _tunable(operation)
        for subject in subjects:
            if not swept:
                declared(subject)
            found[subject.name] = subject
    if not found:
        raise RequestError(f"nothing to tune: no kernel file of {', '.join(names) or 'this tree'} declares a space (SPACE)")
    if len({subject.place for subject in found.values()}) > 1:
        raise RequestError("plain Python is timed on the CPU and everything else on a GPU: tune them in two commands")
    return list(found.values())


def _tunable(operation: str) -> list[Subject]:
    """The kernels of an operation whose files declare a space, in the order of ``PLACES``."""
    found = []
    for implementation, place in PLACES.items():
        if implementation == "cuda":
            stages = cuda_stages.STAGES[operation].values()
            found += [Subject.of(operation, "cuda", stage.name) for stage in stages if stage.space]
        elif place == GPU and (paths.KERNELS / implementation / f"{operation}.py").is_file():
            subject = Subject.of(operation, implementation)
            found += [subject] if subject.file.space else []
    return found


@dataclass(frozen=True, kw_only=True)
class Request:
    """A command that can be carried out: kernels with their candidates, and what to do with what is found."""

    plans: tuple[tuple[Subject, dict], ...]
    budget_s: float | None
    retain: bool
    again: bool


def request(names: Sequence[str], *, swept: Sequence[str], budget_s: float | None, retain: bool, again: bool) -> Request:
    """What is asked for, or RequestError: nothing has been started then."""
    if budget_s is not None and not budget_s > 0:
        raise RequestError(f"--budget is {budget_s:g}: give seconds above 0")
    plans = [(subject, _plan(subject, swept)) for subject in asked(names, swept)]
    place = plans[0][0].place
    if retain and place == CPU:
        raise RequestError("--retain keeps configurations of a GPU, and plain Python is timed on the CPU; leave it out")
    if place == GPU and not _has_gpu():
        raise RequestError("configurations are tuned on a GPU, and this machine has none; run this where there is one")
    return Request(plans=tuple(plans), budget_s=budget_s, retain=retain, again=again)


def tune(asked: Request) -> int:
    """Search each kernel in turn and say what was found. MageError where one has nothing that could be timed and confirmed."""
    from mage.tune import results
    from mage.tune.engine import on_device

    runs: list[SearchRun] = []
    with on_device(asked.plans[0][0].place) as engine:
        for subject, plan in asked.plans:
            runs.append(engine.run(subject, budget_s=asked.budget_s, again=asked.again, **plan))
            results.write(runs[-1])
    print(table(runs))
    for run in runs:
        print(f"{paths.shown(results.path(run))}: every candidate of {name(run.operation, run.implementation, run.variant)}")
    if asked.retain:
        for file in results.retain(runs):
            print(f"{paths.shown(file)}: the tuned configurations of {runs[0].device}")
        for file in results.keep(runs):
            print(f"{paths.shown(file)}: every search of {runs[0].device}")
    if unconfirmed := [name(run.operation, run.implementation, run.variant) for run in runs if run.chosen is None]:
        raise MageError(f"{', '.join(unconfirmed)}: no candidate could be timed and confirmed; the reasons are in the file above")
    return 0


def _plan(subject: Subject, swept: Sequence[str]) -> dict:
    if swept:
        return {"configs": [given(subject.file, one) for one in swept], "kind": "sweep"}
    space = declared(subject)
    return {"configs": candidates(subject.file, space), "kind": "search", "space": space}


def _has_gpu() -> bool:
    # From the driver's own files: PyTorch takes seconds to say the same. Where they are not shown the worker finds out.
    from pathlib import Path

    return any(Path(place).exists() for place in ("/proc/driver/nvidia/gpus", "/dev/nvidiactl", "/dev/dxg"))


def table(runs: Sequence[SearchRun]) -> str:
    """The searches as text: what became of the candidates, the fixed and the chosen configuration, µs."""
    rows = [("kernel", "candidates", "fixed µs", "chosen µs", "times as fast", "confirmed", "configuration")]
    for run in runs:
        fixed, chosen = run.measured(run.fixed), run.chosen is not None and run.measured(run.chosen)
        counts = ", ".join(f"{run.count(state)} {state}" for state in STATES if run.count(state) and state != TIMED)
        ratio = fixed.median_us / chosen.median_us if fixed and chosen else None
        confirmed = run.confirmation
        held = 1 / _median(confirmed.ratios) if confirmed and confirmed.ratios else None
        rows.append(
            (
                name(run.operation, run.implementation, run.variant),
                f"{run.count(TIMED)} timed" + (f", {counts}" if counts else ""),
                f"{fixed.median_us:.2f}" if fixed else "–",
                f"{chosen.median_us:.2f}" if chosen else "–",
                f"{ratio:.3f}" if ratio else "–",
                f"{held:.3f}" if held else "–",
                tuned.words(run.chosen) if run.chosen is not None else "none",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def _median(values) -> float:
    from statistics import median

    return median(values)
