"""One measurement session: params in, evidence out.

    environment and inputs → every row compiled and gated → rounds of spans → captures of kernel time →
    the outputs of the timed loops gated again → counters, in a process of their own → evidence

The order is fixed: spans come before the first capture, since a profiler that was once started stays in the way
of launches. Experiments of one command share a session, each with the rows that its params file asks for.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mage import evidence, implementations, operations, paths
from mage.errors import MageError, RequestError
from mage.evidence.schema import Evidence, Round
from mage.experiment import cases, plan, record, shapes, together
from mage.experiment.at_hand import is_here
from mage.experiment.cases import Case, Say, prepare
from mage.experiment.plan import Plan
from mage.experiment.record import Session
from mage.experiment.shapes import Shape
from mage.experiment.split import Split
from mage.notes import params, vocabulary

if TYPE_CHECKING:
    from mage.experiment.crosscheck import Checker

CPU_ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What one experiment wants measured."""

    experiment: str
    operations: tuple[str, ...]
    implementations: tuple[str, ...]
    shapes: dict[str, tuple[Shape, ...]] = field(default_factory=dict)
    shape_rows: tuple[str, ...] | None = None
    stages: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def here(self) -> bool:
        """Measured for this machine's own report; anything else is retained."""
        return is_here(self.experiment)

    @property
    def file(self) -> Path:
        """Where its evidence goes."""
        return (paths.OUTPUTS if self.here else paths.RETAINED) / self.experiment / evidence.NAME


def asked(experiments: Sequence[str]) -> list[Asked]:
    """The params files of ``experiments``. RequestError for an unknown one, and for published evidence."""
    found = []
    for experiment in experiments:
        file = paths.PARAMS / f"{experiment}.yaml"
        if not file.is_file():
            known = sorted(one.stem for one in paths.PARAMS.glob("*.yaml"))
            raise RequestError(f"no params file for {experiment!r}: write params/{experiment}.yaml; there is: {', '.join(known)}")
        if _is_published(experiment):
            raise RequestError(f"{experiment} is published evidence, which is not measured anew; name an experiment of your own")
        read = params.load(file)
        about = read.values.get("reads") or experiment
        if about != experiment:
            raise RequestError(f"{experiment} reads the evidence of {about}: measure that instead")
        found.append(
            Asked(
                experiment=experiment,
                operations=tuple(read.values.get("operations") or vocabulary.OPERATIONS),
                implementations=tuple(read.values.get("implementations") or implementations.NAMES),
                shapes=read.shapes,
                shape_rows=read.shape_rows,
                stages=read.stages,
            )
        )
    return found


def _is_published(experiment: str) -> bool:
    try:
        file = evidence.path(experiment)
    except RequestError:
        return False  # there is none yet
    return evidence.read(file).origin == "published"


def _aloud(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def measure(wanted: Sequence[Asked], *, counters: bool = True, say: Say = _aloud, **changes) -> list[Evidence]:
    """Measure all of ``wanted`` in one session on this machine's GPU, or on its CPU where there is none.

    ``changes`` replace fields of the plan. The evidence is returned, not written.
    """
    import torch

    split = Split()
    gpu = torch.cuda.is_available()
    if not all(one.here for one in wanted):
        _right_device(wanted, torch.cuda.get_device_name() if gpu else None)
    with operations.strict_fp32(), _no_tf32_in_cudnn():
        chosen = Plan(
            operations=plan.union([one.operations for one in wanted], vocabulary.OPERATIONS),
            implementations=plan.union([one.implementations for one in wanted], implementations.NAMES),
            shapes=_every_shape(wanted),
            shape_rows=_every_shape_row(wanted),
            **{**_defaults(gpu, all(one.here for one in wanted)), **changes},
        )
        session = _on_gpu(chosen, counters, split, say) if gpu else _on_cpu(chosen, split, say)
    judged = record.judge(session)
    session.wall_s = split.seconds()
    names = [one.experiment for one in wanted]
    return [
        record.assemble(session, judged, one.experiment, _rows(session, one), [name for name in names if name != one.experiment])
        for one in wanted
    ]


def obtain(experiment: str, wanted_operations: Sequence[str], wanted_implementations: Sequence[str]) -> Evidence:
    """Measure ``experiment`` on this machine for a note that is running; leaves it in ``outputs/<experiment>/``."""
    chosen = plan.union([wanted_implementations], implementations.NAMES)
    one = Asked(experiment=experiment, operations=plan.union([wanted_operations], vocabulary.OPERATIONS), implementations=chosen)
    wanted = [one, *_beside(experiment)]
    for each, found in zip(wanted, measure(wanted, counters=False), strict=True):
        evidence.save(found, each.file)
    return evidence.load(experiment)


def _beside(experiment: str) -> list[Asked]:
    """The other experiments of this machine that the same command runs: one session serves them all."""
    found: list[Asked] = []
    for name in together.others(experiment):
        with contextlib.suppress(MageError):  # what is wrong with another one is said when its own turn comes
            found += asked([name])
    return found


def _defaults(gpu: bool, here: bool) -> dict:
    if not gpu:
        return {"rounds": CPU_ROUNDS, "pairs": 0}
    # A note that measures as it runs does not wait for the search of max-autotune.
    return {"searched": not here}


def _every_shape(wanted: Sequence[Asked]) -> dict[str, tuple[Shape, ...]]:
    """The shapes of all experiments, each once, in the order that they are first named."""
    return {
        name: tuple(dict.fromkeys(shape for one in wanted for shape in one.shapes.get(name, ()) if name in one.operations))
        for name in vocabulary.OPERATIONS
    }


def _every_shape_row(wanted: Sequence[Asked]) -> tuple[str, ...] | None:
    listed = [one.shape_rows for one in wanted if one.shapes]
    return None if None in listed or not listed else tuple(dict.fromkeys(word for words in listed for word in words))


def _rows(session: Session, one: Asked) -> list[Case]:
    """The cases that ``one`` asked for. A session measures what any experiment wants, so shapes may have more rows."""

    def wanted(case: Case) -> bool:
        if case.operation not in one.operations or case.implementation not in one.implementations:
            return False
        if case.implementation == "cuda" and case.variant not in one.stages.get(case.operation, (case.variant,)):
            return False
        if case.at is None:
            return True
        listed = [shape.at for shape in one.shapes.get(case.operation, ())]
        return case.at in listed and shapes.measured_there(case.operation, case.implementation, case.variant, one.shape_rows)

    return [case for case in session.cases if wanted(case)]


def _right_device(wanted: Sequence[Asked], name: str | None) -> None:
    for one in wanted:
        meant = one.experiment.partition("-")[0]
        if not one.here and meant not in (name or "").lower().replace(" ", ""):
            there = f"this machine has {name}" if name else "PyTorch finds no GPU on this machine"
            raise RequestError(f"{one.experiment} is measured on a GPU whose name holds {meant!r}: {there}; measure here-… instead")


@contextlib.contextmanager
def _no_tf32_in_cudnn():
    import torch

    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def _hashes(chosen: Plan) -> dict[str, str]:
    return {
        f"{name}{f'@{shape.at}' if shape.at else ''}/{which}": hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
        for name in chosen.operations
        for shape in chosen.every_shape(name)
        for which, tensor in operations.get(name).make_inputs(shape.dims, distribution=shape.inputs).items()
    }


# -- on a GPU ----------------------------------------------------------------------------------------


def _on_gpu(chosen: Plan, others: bool, split: Split, say: Say) -> Session:
    """One session; with ``others``, other tools look at its rows too."""
    from mage.experiment import crosscheck

    checker = crosscheck.Checker(crosscheck.chosen(cases.rows(chosen, "cuda"))) if others else None
    try:
        session = _measured(chosen, checker, split, say)
        try:
            _count(session, checker, split, say)
        except Exception as error:  # what was timed is whole without what other tools would have added
            reason = f"the tool's answer could not be read: {type(error).__name__}: {str(error)[:120]}"
            session.counters_missing = session.counters_missing or (None if session.counters else reason)
            session.cross_checks_missing = session.cross_checks_missing or (None if session.cross_checks else reason)
            say(f"counters and cross-check: {reason}")
        return session
    finally:
        if checker:
            checker.end()


def _measured(chosen: Plan, checker: Checker | None, split: Split, say: Say) -> Session:
    import torch

    from mage.experiment.captures import Captures
    from mage.experiment.device import Gpu
    from mage.experiment.probe import Probe, library_settings
    from mage.experiment.rounds import Rounds

    torch.zeros(1, device="cuda")
    gpu = Gpu()
    before = gpu.state()
    with split("compile"):
        probe = Probe()
    found = prepare(chosen, "cuda", split, say)
    if checker:
        with split("cross-check"):
            checker.ready()
        gpu.held = int(checker.held)
    timed = [case for case in found if case.call is not None]
    say(f"{len(timed)} of {len(found)} rows are gated and will be timed; {split.spent('compile'):.0f} s of compiling")
    with split("warm-up"):
        rounds = Rounds(timed, chosen, probe, gpu, say)
    with split("kernels"):
        began = time.perf_counter()
        spanned = rounds.take()
        say(f"spans taken in {time.perf_counter() - began:.1f} s")
        wrong = _judge_again(timed, say)
    with split("warm-up"):
        captures = Captures(timed, chosen, probe, gpu, say)
    with split("kernels"):
        began = time.perf_counter()
        captured = captures.take()
        say(f"kernel records taken in {time.perf_counter() - began:.1f} s")
    with split("gate"):
        wrong |= _judge_again(timed, say)
    every = [*spanned.rounds, *captured.rounds]
    return Session(
        plan=chosen,
        device=gpu.describe(before, every[len(every) // 2].state if every else None),
        cases=found,
        taken={**spanned.taken, **captured.taken},
        rounds=every,
        kernels=captured.kernels,
        host_us=spanned.host_us,
        wall_us=spanned.wall_us,
        pairs={"span_us": spanned.pairs, "kernel_us": captured.pairs} if chosen.pairs else {},
        wrong_after=wrong,
        ceilings=captured.ceilings,
        settings=library_settings(),
        inputs_sha256=_hashes(chosen),
        instruments={
            "span_us": "CUDA events around a call that is awaited",
            "kernel_us": "CUPTI kernel records through torch.profiler, calls awaited one by one",
        },
        method={"iterations": chosen.awaited, "warmup": 5, "order": plan.ORDER},
    )


def _judge_again(cases: Sequence[Case], say: Say) -> dict[str, str]:
    """Gate the output that every timed loop left; the reason by row where it is wrong."""
    wrong = {}
    for case in cases:
        reason = case.judge_again()
        if reason:
            wrong[case.key] = reason
            say(f"{case.key}: {reason}")
    return wrong


def _count(session: Session, checker: Checker | None, split: Split, say: Say) -> None:
    """What other tools say of the same rows, each tool in a process of its own: hardware counters, other timers."""
    from mage.experiment import counters, crosscheck

    if checker is None:
        session.counters_missing = session.cross_checks_missing = "not asked for"
        return
    # At shapes beside the operation's own a row has warm times and nothing else.
    rows = [case.row for case in session.cases if case.call is not None and case.variant != vocabulary.SEARCHING and case.at is None]
    mine = [row.key for row in crosscheck.chosen(rows)]
    with split("cross-check"):
        checks, session.cross_checks_missing = checker.take(mine)
    with split("counters"):
        session.counters, session.counters_missing = counters.take(rows)
        theirs = [one for one in session.counters if one.row in mine]
        session.cross_checks = [*checks, *crosscheck.of_counters(theirs, counters.version() if theirs else None)]
    for name, missing in (("counters", session.counters_missing), ("cross-check", session.cross_checks_missing)):
        if missing:
            say(f"{name}: {missing}")


# -- on a CPU ----------------------------------------------------------------------------------------


def _on_cpu(chosen: Plan, split: Split, say: Say) -> Session:
    import torch

    from mage import timers
    from mage.experiment import device

    threads = torch.get_num_threads()
    described = device.cpu(threads)
    found = prepare(chosen, "cpu", split, say)
    timed = [case for case in found if case.call is not None]
    session = Session(
        plan=chosen,
        device=described,
        cases=found,
        settings={"torch.get_num_threads()": str(threads), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "not set")},
        inputs_sha256=_hashes(chosen),
        instruments={"span_us": f"time.perf_counter_ns around one call, {threads} threads"},
        method={"iterations": chosen.cpu_iterations, "warmup": 1, "order": plan.ORDER},
    )
    work = torch.randn(256, 256)
    product = torch.empty_like(work)

    def control():
        torch.mm(work, work, out=product)

    with split("kernels"):
        for number in range(chosen.rounds):
            for place in plan.order(len(timed), number, chosen.rounds):
                case = timed[place]
                case.call.out.fill_(float("nan"))
                key = record.Key(case.key, "span_us", plan.AWAITED, plan.WARM)
                session.taken.setdefault(key, []).append(record.Taken((tuple(timers.cpu(case.call.run, chosen.cpu_iterations)),)))
            session.rounds.append(
                Round(
                    part="spans",
                    number=number,
                    control_us=tuple(round(value, 3) for value in timers.cpu(control, chosen.control)),
                    empty_us=tuple(round(value, 3) for value in timers.cpu(lambda: None, chosen.empty)),
                )
            )
    with split("gate"):
        session.wrong_after = _judge_again(timed, say)
    return session
