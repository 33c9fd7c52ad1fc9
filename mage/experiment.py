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
from dataclasses import dataclass
from pathlib import Path

from mage import evidence, implementations, operations, params, paths, plan, record, search, vocabulary
from mage.at_hand import is_here
from mage.cases import Case, Say, prepare
from mage.errors import RequestError
from mage.plan import Plan
from mage.record import Session
from mage.schema import Evidence, Round
from mage.split import Split

CPU_ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What one experiment wants measured."""

    experiment: str
    operations: tuple[str, ...]
    implementations: tuple[str, ...]

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
        values = params.load(file).values
        found.append(
            Asked(
                experiment=experiment,
                operations=tuple(values.get("operations") or vocabulary.OPERATIONS),
                implementations=tuple(values.get("implementations") or implementations.NAMES),
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
            **{**_defaults(gpu, all(one.here for one in wanted)), **changes},
        )
        session = (_on_gpu if gpu else _on_cpu)(chosen, split, say)
        if gpu:
            _count(session, counters, split, say)
    judged = record.judge(session)
    session.wall_s = split.seconds()
    names = [one.experiment for one in wanted]
    return [
        record.assemble(session, judged, one.experiment, _rows(session, one), [name for name in names if name != one.experiment])
        for one in wanted
    ]


def obtain(experiment: str, wanted_operations: Sequence[str], wanted_implementations: Sequence[str]) -> Evidence:
    """Measure ``experiment`` on this machine for a note that is running; leaves it in ``outputs/<experiment>/``.

    Without a GPU torch.compile is left out: its C++ compiler takes most of a minute, which ``make measure`` has.
    """
    import torch

    chosen = plan.union([wanted_implementations], implementations.NAMES)
    if not torch.cuda.is_available():
        chosen = tuple(name for name in chosen if name != "pytorch-compiled")
    one = Asked(experiment=experiment, operations=plan.union([wanted_operations], vocabulary.OPERATIONS), implementations=chosen)
    (found,) = measure([one], counters=False)
    evidence.save(found, one.file)
    return evidence.load(experiment)


def _defaults(gpu: bool, here: bool) -> dict:
    if not gpu:
        return {"rounds": CPU_ROUNDS, "pairs": 0}
    # A note that measures as it runs does not wait for the search of max-autotune.
    return {"searched": not here}


def _rows(session: Session, one: Asked) -> list[Case]:
    return [case for case in session.cases if case.operation in one.operations and case.implementation in one.implementations]


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
        f"{name}/{which}": hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
        for name in chosen.operations
        for which, tensor in operations.get(name).make_inputs(chosen.shape(name)).items()
    }


# -- on a GPU ----------------------------------------------------------------------------------------


def _on_gpu(chosen: Plan, split: Split, say: Say) -> Session:
    import torch

    from mage.captures import Captures
    from mage.device import Gpu
    from mage.probe import Probe, library_settings
    from mage.rounds import Rounds

    torch.zeros(1, device="cuda")
    gpu = Gpu()
    before = gpu.state()
    with split("compile"):
        probe = Probe()
    cases = prepare(chosen, "cuda", split, say)
    timed = [case for case in cases if case.call is not None]
    say(f"{len(timed)} of {len(cases)} rows are gated and will be timed; {split.spent('compile'):.0f} s of compiling")
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
        cases=cases,
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


def _count(session: Session, wanted: bool, split: Split, say: Say) -> None:
    from mage import counters

    if not wanted:
        session.counters_missing = "not asked for"
        return
    rows = [case for case in session.cases if case.call is not None and case.variant != search.MODE]
    with split("counters"):
        session.counters, session.counters_missing = counters.take([(c.operation, c.implementation, c.variant, c.dims) for c in rows])
    if session.counters_missing:
        say(f"counters: {session.counters_missing}")


# -- on a CPU ----------------------------------------------------------------------------------------


def _on_cpu(chosen: Plan, split: Split, say: Say) -> Session:
    import torch

    from mage import device, timers

    threads = torch.get_num_threads()
    described = device.cpu(threads)
    cases = prepare(chosen, "cpu", split, say)
    timed = [case for case in cases if case.call is not None]
    session = Session(
        plan=chosen,
        device=described,
        cases=cases,
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
