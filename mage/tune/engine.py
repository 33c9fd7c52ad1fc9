"""The search itself: candidates refused, built side by side, gated and timed one at a time; a run-off; a confirmation.

    static rules → builds in processes without a device ┬→ gate and time in one process with it → run-off → confirmation
                                                        └→ a row with a reason, as for everything that goes wrong

The parent imports neither torch nor a compiler's runtime, and never touches the device: whatever a candidate does to
the process it runs in, its row is written down and the next candidate gets another process. (``cuda.tile.tune`` and
``triton.autotune`` time in the caller's own process or without a gate, and keep no record of what failed; so the
compilers are used here, and their tuners are not.)
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from mage import operations, paths
from mage.errors import MageError, RequestError
from mage.evidence.schema_search import (
    CRASHED,
    HUNG,
    REFUSED,
    TIMED,
    UNCOMPILED,
    UNFINISHED,
    Candidate,
    Confirmation,
    Measured,
    SearchRun,
)
from mage.kernels import tuned
from mage.notebook import locks
from mage.tune import ledger, process, rules
from mage.tune.metrics import METRICS
from mage.tune.process import Worker
from mage.tune.show import Show, suited
from mage.tune.subject import GPU, Config, Subject, distinct, same

CONFIRM_SEED = operations.SEED + 7919
"""Inputs of the confirmation; the candidates were gated and timed on those of ``operations.SEED`` and the next seed."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Longest that each step of one candidate may take, in seconds; ``finalists`` beside the fixed one go to the run-off."""

    build_s: float = 60.0
    screen_s: float = 20.0
    measure_s: float = 60.0
    finalists: int = 4


@contextlib.contextmanager
def on_device(place: str) -> Iterator[Engine]:
    """An engine that has the device to itself, as every search must. BusyError names who holds it; no process is started then."""
    with locks.device(), Engine(place, show=suited()) as engine:
        yield engine


class Engine:
    """The processes of one command, which several searches share. A context manager: leaving it ends them all.

    It takes no lock: ``on_device`` does.
    """

    def __init__(self, place: str = GPU, *, builders: int | None = None, limits: Limits | None = None, show: Show | None = None):
        self.place, self.limits, self.show = place, limits or Limits(), show or Show()
        cores = len(os.sched_getaffinity(0))
        # One core stays with the process that times.
        self._builders = [Worker("compile", place) for _ in range(builders or max(1, cores - 1))]
        self._timer, self._confirmer = Worker("time", place), Worker("time", place)
        self.facts: dict = {}

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *raised) -> None:
        with contextlib.ExitStack() as every:  # one that does not end keeps none of the others
            every.callback(self.show.close)
            for worker in (*self._builders, self._timer, self._confirmer):
                worker.leave()
                every.callback(worker.end)

    def device(self) -> dict:
        """The device that candidates are timed on: name, architecture, driver, versions. RequestError where there is none."""
        if not self.facts:
            for worker in self._builders:
                worker.start()  # they import while the device gets ready
            facts = process.ready(self._timer)
            if why_not := facts.get("why_not"):
                raise RequestError(f"configurations are tuned on a GPU: {why_not}; run this where there is one")
            self.facts = facts
            self._confirmer.start()
        return self.facts

    def run(
        self,
        subject: Subject,
        configs: Sequence[Config],
        *,
        kind: str = "search",
        space: dict | None = None,
        budget_s: float | None = None,
        again: bool = False,
    ) -> SearchRun:
        """Search ``configs`` (the fixed one is added) within ``budget_s`` for the candidates. ``again``: forget the ledger."""
        facts, when = self.device(), datetime.now(UTC)
        self._confirmer.start()  # it gets ready while candidates are timed
        one = _Search(self, subject, distinct([subject.file.fixed, *configs]), again)
        self.show.begin(subject.name, len(one.configs))
        wall, began = {}, time.monotonic()
        try:
            one.candidates(budget_s)
            wall["candidates"], began = _since(began)
            runoff, metric = one.runoff()
            wall["run-off"], began = _since(began)
            confirmation, chosen, why = one.confirm(runoff)
            wall["confirmation"], began = _since(began)
        finally:
            one.close()
            self._forget_confirmer()
        run = SearchRun(
            operation=subject.operation, implementation=subject.implementation, variant=subject.stage, dims=subject.dims,
            kind=kind, when=when.replace(microsecond=0), device=facts["device"], arch=facts["arch"], driver=facts["driver"],
            versions=facts["versions"], kernel_file=paths.shown(Path(subject.source)), kernel_sha256=subject.sha256,
            space=space or {}, metric=one.metric, final_metric=metric, seed=operations.SEED, budget_s=budget_s, wall_s=wall,
            resumed=one.resumed, fixed=subject.file.fixed, candidates=[one.row(number) for number in range(len(one.configs))],
            runoff=runoff, confirmation=confirmation, chosen=chosen, why=why,
        )  # fmt: skip
        self.show.end(run)
        return run

    def _forget_confirmer(self) -> None:
        """End the process that confirmed: the next search is confirmed in a fresh one."""
        self._confirmer.leave()
        self._confirmer.end()
        self._confirmer = Worker("time", self.place)

    # -- one task at a time

    def one(self, worker: Worker, task: dict, seconds: float) -> dict:
        """The answer to one task."""
        worker.ask(task, seconds)
        ((_, _, answer),) = process.wait([worker])
        return answer


class _Search:
    """One search's candidates by number, and what became of them."""

    def __init__(self, engine: Engine, subject: Subject, configs: list[Config], again: bool):
        self.engine, self.subject, self.configs = engine, subject, configs
        self.metric, self._final = METRICS[subject.place]
        facts = engine.facts
        known = {name: facts[name] for name in ("device", "arch", "driver", "versions")}
        self._keys = [ledger.key(subject, config, known) for config in configs]
        self._ledger = ledger.Ledger(ledger.path(subject, facts["device"]))
        self._rows: dict[int, dict] = {}
        self._builds: dict[int, dict] = {}
        self.resumed = 0
        for number, key in enumerate(self._keys):
            if not again and (kept := self._ledger.rows.get(key)):
                self._rows[number] = {name: kept[name] for name in _ROW if name in kept}
                self.resumed += 1

    def close(self) -> None:
        self._ledger.close()

    def row(self, number: int) -> Candidate:
        config = self.configs[number]
        return Candidate(config=config, **self._rows.get(number, {"state": UNFINISHED, "reason": "the search ended before it"}))

    def _finish(self, number: int, row: dict, *, keep: bool = True) -> None:
        built = {name: self._builds[number][name] for name in _BUILT if name in self._builds.get(number, {})}
        self._rows[number] = {**{name: row[name] for name in _ROW if name in row}, **built}
        if keep:
            self._ledger.add(self._keys[number], {"config": self.configs[number], **self._rows[number]})
        self.engine.show.done(len(self._rows), self.configs[number], self.row(number), self._best())

    def _best(self) -> tuple[Config, float] | None:
        timed = [(median(row["samples_us"]), number) for number, row in self._rows.items() if row["state"] == TIMED]
        return (self.configs[min(timed)[1]], min(timed)[0]) if timed else None

    # -- candidates

    def candidates(self, budget_s: float | None) -> None:
        """Refuse, build, gate and time every candidate that no earlier run finished, until the budget is spent."""
        engine, arch = self.engine, self.engine.facts["arch"]
        until = time.monotonic() + (float("inf") if budget_s is None else budget_s)
        self.engine.show.resumed(self.resumed)
        waiting: deque[int] = deque()
        for number, config in enumerate(self.configs):
            if number in self._rows:
                continue
            if reason := rules.refusal(self.subject, config, arch):
                self._finish(number, {"state": REFUSED, "reason": reason}, keep=False)
            else:
                waiting.append(number)
        built: deque[int] = deque()
        workers, timer = engine._builders, engine._timer
        common = {"subject": self.subject.as_dict()}
        while time.monotonic() < until:
            for worker in workers:
                if worker.idle and waiting:
                    number = waiting.popleft()
                    task = {"do": "build", "number": number, "config": self.configs[number], "arch": arch, **common}
                    worker.ask(task, engine.limits.build_s)
            if timer.idle and built:
                number = built.popleft()
                task = {"do": "screen", "number": number, "config": self.configs[number], "seed": operations.SEED, **common}
                timer.ask(task, engine.limits.screen_s)
            busy = [worker for worker in (*workers, timer) if not worker.idle]
            if not busy:
                break
            for worker, task, answer in process.wait(busy, until - time.monotonic()):
                number = task["number"]
                if worker is timer:
                    self._finish(number, _screened(answer))
                elif answer.get("state") == "built":
                    self._builds[number] = answer
                    built.append(number)
                else:
                    self._builds[number] = answer
                    self._finish(number, _unbuilt(answer))
        for worker in (*workers, timer):
            if not worker.idle:
                worker.end()  # the budget is spent: what it was at is not finished
        for number in range(len(self.configs)):
            if number not in self._rows:
                reason = f"the budget of {budget_s:g} s was spent" if budget_s is not None else "the search ended before it"
                self._rows[number] = {"state": UNFINISHED, "reason": reason}

    # -- run-off and confirmation

    def _timed(self) -> list[int]:
        timed = [number for number, row in self._rows.items() if row["state"] == TIMED]
        return sorted(timed, key=lambda number: median(self._rows[number]["samples_us"]))

    def _finalists(self) -> list[int]:
        best = [number for number in self._timed() if number != 0][: self.engine.limits.finalists]
        return ([0] if self._rows[0]["state"] == TIMED else []) + best

    def runoff(self) -> tuple[list[Measured], str]:
        """The fixed configuration and the best few, measured again in turn. One that fails is out, and its row says why."""
        self.engine.show.say("run-off")
        finalists = self._finalists()
        while finalists:
            answer = self._measure(self.engine._timer, finalists, operations.SEED, whole=False)
            if answer.get("state") == TIMED:
                return self._measured([self.configs[number] for number in finalists], answer), answer["metric"]
            self._blame(self.engine._timer, finalists, answer, operations.SEED, whole=False, where="in the run-off")
            finalists = [number for number in finalists if self._rows[number]["state"] == TIMED]
        return [], self._final

    def confirm(self, runoff: list[Measured]) -> tuple[Confirmation | None, Config | None, str]:
        """The winner in another process, on other inputs; (what was found, the configuration to use, why)."""
        self.engine.show.say("confirmation")
        fixed = self.configs[0]
        ranked = sorted(runoff, key=lambda one: one.median_us)
        was = next((one.median_us for one in runoff if one.config == fixed), None)
        while ranked:
            winner = ranked[0]
            both = [winner.config] if winner.config == fixed or was is None else [winner.config, fixed]
            numbers = [self._number(config) for config in both]
            answer = self._measure(self.engine._confirmer, numbers, CONFIRM_SEED, whole=True)
            if answer.get("state") != TIMED:
                self._blame(self.engine._confirmer, numbers, answer, CONFIRM_SEED, whole=True, where="in the confirmation, on other inputs")
                ranked = [one for one in ranked if self._rows[self._number(one.config)]["state"] == TIMED]
                was = was if self._rows[0]["state"] == TIMED else None
                continue
            measured = self._measured(both, answer)
            found = Confirmation(seed=CONFIRM_SEED, metric=answer["metric"], winner=measured[0], fixed=measured[-1] if was else None)
            return (found, *_verdict(winner, fixed, was, found, len(runoff)))
        return None, None, "no candidate could be timed and confirmed"

    @staticmethod
    def _measured(configs: list[Config], answer: dict) -> list[Measured]:
        return [Measured(config=config, rounds_us=rounds) for config, rounds in zip(configs, answer["rounds_us"], strict=True)]

    def _number(self, config: Config) -> int:
        return next(number for number, one in enumerate(self.configs) if one == config)

    def _measure(self, worker: Worker, numbers: list[int], seed: int, *, whole: bool) -> dict:
        configs = [self.configs[number] for number in numbers]
        task = {"do": "measure", "subject": self.subject.as_dict(), "configs": configs, "seed": seed, "whole": whole}
        return self.engine.one(worker, task, self.engine.limits.measure_s)

    def _blame(self, worker: Worker, numbers: list[int], answer: dict, seed: int, *, whole: bool, where: str) -> None:
        """Write the failure into the row of each of ``numbers`` that failed when they were measured together, or MageError."""
        if wrong := [number for number in numbers if same(self.configs[number]) in answer.get("wrong", {})]:
            alone = dict.fromkeys(wrong, answer)
        elif len(numbers) == 1:
            alone = {numbers[0]: answer}
        else:
            # One of them brings the process down: which one shows when each is alone.
            alone = {number: self._measure(worker, [number], seed, whole=whole) for number in numbers}
            alone = {number: said for number, said in alone.items() if said.get("state") != TIMED}
            if not alone:
                reason = _screened(answer)["reason"]
                raise MageError(f"{self.subject.name}: the measurement {where} failed, and no candidate fails alone: {reason}")
        for number, said in alone.items():
            self._fail(number, said, where)

    def _fail(self, number: int, answer: dict, where: str) -> None:
        row = _screened(answer)
        reason = answer.get("wrong", {}).get(same(self.configs[number]), row["reason"])
        self._rows[number] = {"state": row["state"], "reason": f"{where}: {reason}"}
        self.engine.show.say(f"{tuned.words(self.configs[number])}: {row['state']} {where}: {reason}")


def _verdict(winner: Measured, fixed: Config, was: float | None, found: Confirmation, finalists: int) -> tuple[Config, str]:
    """(configuration to use, why)."""
    if was is None:
        return winner.config, "the fastest that was right on other inputs too; the fixed configuration could not be timed"
    if winner.config == fixed:
        return fixed, "no candidate was faster than the fixed configuration in the run-off"
    if not found.held:
        return fixed, "the winner of the run-off was not faster than the fixed configuration in another process on other inputs"
    return winner.config, (
        f"fastest of {finalists} in the run-off, {was / winner.median_us:.2f} times as fast as the fixed configuration; "
        f"{1 / median(found.ratios):.2f} times in another process on other inputs"
    )


_ROW = ("state", "reason", "samples_us", "registers", "shared_bytes", "stack_bytes")
_BUILT = ("registers", "shared_bytes", "stack_bytes")


def _screened(answer: dict) -> dict:
    """A row from what the timing process answered, or from how it ended."""
    if ended := answer.get("ended"):
        state = HUNG if ended == process.HUNG else CRASHED
        return {"state": state, "reason": answer["reason"] if state == HUNG else f"its process ended: {answer['reason']}"}
    return answer


def _unbuilt(answer: dict) -> dict:
    if ended := answer.get("ended"):
        how = "hung" if ended == process.HUNG else "crashed"
        return {"state": UNCOMPILED, "reason": f"the compiler {how}: {answer['reason']}"}
    return answer


def _since(began: float) -> tuple[float, float]:
    now = time.monotonic()
    return round(now - began, 2), now
