"""A candidate's gate and its time, in a process of its own.

``screen`` gates one candidate on two sets of inputs and times it alone. ``measure`` times several in turn, round by
round, for the run-off and for the confirmation; the confirmation gates them as a measurement would (``mage.gate``), and
both on inputs of the seed that the task names. Nothing that the gate refuses is timed, and afterwards the output is
gated again: in ``screen`` the one that the timed loop leaves, in ``measure`` that of one more call of each.

On a GPU ``screen`` times a replayed graph of launches by events, which is quick and ranks candidates by the kernel and
the gap behind it; ``measure`` takes kernel time from CUPTI. Plain Python is timed by ``time.perf_counter_ns``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from mage import gate, implementations, operations, timers
from mage.evidence.schema_search import CRASHED, TIMED, WRONG
from mage.experiment import plan
from mage.gate import PASSED
from mage.gate.judgement import judge
from mage.implementations import Call
from mage.tune.metrics import CLOCK, CUPTI, GRAPH
from mage.tune.subject import CPU, GPU, Config, Subject, same

FAILS_AS = CRASHED

ROUNDS = 6
_SAMPLES = 7
_LAUNCHES = 20
_UNCOUNTED = 3
_A_SAMPLE_US = 2000.0  # a sample of slow launches holds fewer of them


def hello(place: str) -> dict:
    """The device of this process, as results are kept by; ``why_not`` where it has none."""
    from mage import provenance

    if place == CPU:
        machine = provenance.machine()
        return {"device": machine["cpu"], "arch": None, "driver": None, "versions": provenance.versions()}
    import torch

    if not torch.cuda.is_available():
        return {"why_not": "PyTorch finds no CUDA device"}
    from mage import cuda

    torch.zeros(1, device="cuda")
    torch.backends.cuda.matmul.allow_tf32 = False
    return {
        "device": torch.cuda.get_device_name(),
        "arch": cuda.device_arch(torch.cuda.current_device()),
        "driver": provenance.machine()["driver"],
        "versions": {**provenance.versions(), **_compilers()},
    }


def _compilers() -> dict[str, str]:
    """Releases of what compiles candidates, whether it is imported here or not."""
    import contextlib
    import importlib.metadata

    found = {}
    for name in ("triton", "cuda-tile", "nvidia-cuda-tileiras", "nvidia-cuda-nvrtc", "cuda-core"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def after_failure() -> dict:
    """Whether this process is of any more use: an error of the device stays with its context."""
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {}
    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").item()
    except Exception:
        return {"leaves": True}
    return {}


# -- one subject's storage -----------------------------------------------------------------------------


class _Bench:
    """Inputs, references and a fenced output of one subject, shared by all of its candidates."""

    def __init__(self, subject: Subject, seed: int):
        self.subject, self.operation = subject, operations.get(subject.operation)
        self.device = "cuda" if subject.place == GPU else "cpu"
        # The second set of layernorm has a mean: a variance that loses its digits shows there.
        mean = gate.MEANS[0] if subject.operation == "layernorm" else 0.0
        self.sets = [self._set(seed), self._set(seed + 1, mean)]
        self.storage = {name: tensor.clone() for name, tensor in self.sets[0][0].items()}
        self.out, self.fences = gate._fenced(self.operation.output_shape(subject.dims), self.device, True)

    def _set(self, seed: int, mean: float = 0.0):
        made = self.operation.make_inputs(self.subject.dims, seed=seed, mean=mean)
        inputs = {name: tensor.to(self.device) for name, tensor in made.items()}
        exact = self.operation.reference64(inputs).float() if mean else self.operation.reference(inputs)
        return inputs, exact

    def call(self, config: Config) -> Call:
        return prepare(self.subject, config, self.storage, self.out)

    def wrong(self, call: Call) -> str | None:
        """Why the call's output is wrong, on either set of inputs, or None. The first set is in the storage afterwards."""
        for inputs, exact in reversed(self.sets):
            for name, tensor in inputs.items():
                self.storage[name].copy_(tensor)
            call.out.fill_(float("nan"))
            synchronize()
            call.run()
            synchronize()
            if reason := self.wrong_now(call, inputs, exact):
                return reason
        return None

    def wrong_now(self, call: Call, inputs=None, exact=None) -> str | None:
        """Why what the last call left is wrong for these inputs (None: the first set), or None."""
        import torch

        if inputs is None:
            inputs, exact = self.sets[0]
        verdict = judge(self.operation, inputs, call.out, exact)
        if not verdict.passed:
            return verdict.reason
        if changed := [name for name, tensor in inputs.items() if not torch.equal(self.storage[name], tensor)]:
            return f"it changed its input {', '.join(changed)}"
        if any(bool((fence.view(torch.int32) != gate._FENCE_BITS).any()) for fence in self.fences):
            return "it wrote outside its output"
        return None


@functools.lru_cache(maxsize=2)
def _bench(subject: Subject, seed: int) -> _Bench:
    return _Bench(subject, seed)


def _wrong(reason: str, **more) -> dict:
    # What was wrong may have written anywhere: the next candidate gets inputs, references and fences anew.
    _bench.cache_clear()
    return {"state": WRONG, "reason": reason, **more}


def prepare(subject: Subject, config: Config, inputs: dict, out) -> Call:
    """The call of one configuration."""
    if subject.place == CPU:
        from mage import kernels

        launch = kernels.load(Path(subject.source)).launch
        arguments = [*inputs.values(), out]
        call = Call(subject.operation, subject.implementation, None, implementations.CPU, "launch", out, None)
        call.run = lambda: launch(*arguments, config=config)
        return call
    variant = subject.stage or "candidate"
    source = Path(subject.source)
    return implementations.prepare(subject.operation, subject.implementation, variant, inputs, out, config=config, source=source)


def synchronize() -> None:
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


# -- tasks ---------------------------------------------------------------------------------------------


def screen(task: dict) -> dict:
    """Gate and time one candidate."""
    subject, config = Subject.parse(task["subject"]), task["config"]
    with operations.strict_fp32():
        bench = _bench(subject, task["seed"])
        call = bench.call(config)
        if reason := bench.wrong(call):
            return _wrong(reason)
        call.out.fill_(float("nan"))
        samples = _screen_gpu(call) if subject.place == GPU else timers.cpu(call.run, _SAMPLES)
        if reason := bench.wrong_now(call):
            return _wrong(f"after timing: {reason}")
    return {"state": TIMED, "samples_us": _rounded(samples)}


def measure(task: dict) -> dict:
    """Time several configurations in turn; ``whole`` gates each as a measurement would. ``wrong`` names those refused."""
    subject, configs = Subject.parse(task["subject"]), task["configs"]
    with operations.strict_fp32():
        bench = _bench(subject, task["seed"])
        wrong = {}
        for config in configs:
            if reason := _whole_gate(subject, config, task["seed"]) if task["whole"] else None:
                wrong[same(config)] = reason
        calls = [bench.call(config) for config in configs]
        for config, call in zip(configs, calls, strict=True):
            if same(config) not in wrong and (reason := bench.wrong(call)):
                wrong[same(config)] = reason
        if wrong:
            return _wrong(next(iter(wrong.values())), wrong=wrong)
        metric, rounds = _rounds_gpu(calls) if subject.place == GPU else (CLOCK, _rounds_cpu(calls))
        for config, call in zip(configs, calls, strict=True):
            # All write to the same output, so each is asked once more for its own.
            call.out.fill_(float("nan"))
            call.run()
            synchronize()
            if reason := bench.wrong_now(call):
                return _wrong(f"after timing: {reason}", wrong={same(config): reason})
    return {"state": TIMED, "metric": metric, "rounds_us": [[_rounded(turn) for turn in of_one] for of_one in rounds]}


def _whole_gate(subject: Subject, config: Config, seed: int) -> str | None:
    operation, moved = operations.get(subject.operation), seed - operations.SEED

    def make_inputs(dims, seed=operations.SEED, mean=0.0):
        return operation.make_inputs(dims, seed=seed + moved, mean=mean)

    result = gate.check(
        operation, subject.implementation, subject.stage, subject.dims, "cuda" if subject.place == GPU else "cpu",
        factory=lambda inputs, out: prepare(subject, config, inputs, out), make_inputs=make_inputs, config=config,
    )  # fmt: skip
    return None if result.passed == PASSED else result.reason


def _rounded(samples) -> list[float]:
    return [round(value, 3) for value in samples]


# -- time on a GPU -------------------------------------------------------------------------------------


@functools.cache
def _spans() -> timers.Spans:
    return timers.Spans()


def _screen_gpu(call: Call) -> list[float]:
    alone = min(_spans().awaited(call.run, 3))
    launches = int(min(_LAUNCHES, max(3, _A_SAMPLE_US / alone)))
    return _spans().graphed(timers.capture(call.run, launches), launches, _SAMPLES)


def _rounds_gpu(calls: list[Call]) -> tuple[str, list[list[list[float]]]]:
    """(metric, samples by call and round): CUPTI's records, or graph replays where those are not complete."""
    for _ in range(2):
        if (found := _captured(calls)) is not None:
            return CUPTI, found
    graphs = [timers.capture(call.run, _LAUNCHES) for call in calls]
    rounds = [[[] for _ in range(ROUNDS)] for _ in calls]
    for number in range(ROUNDS):
        for place in plan.order(len(calls), number, ROUNDS):
            rounds[place][number] = _spans().graphed(graphs[place], _LAUNCHES, _SAMPLES)
    return GRAPH, rounds


def _captured(calls: list[Call]) -> list[list[list[float]]] | None:
    """Kernel time of every counted launch; None where a record is missing, or is of another kernel than was launched."""
    from mage import profile

    turns = [(number, place) for number in range(ROUNDS) for place in plan.order(len(calls), number, ROUNDS)]
    each = _UNCOUNTED + _LAUNCHES

    def work():
        for _, place in turns:
            for _ in range(each):
                calls[place].run()
            synchronize()

    work()
    records = [record for record in profile.record(work) if not record.is_framework]
    if len(records) != len(turns) * each:
        return None
    rounds: list[list[list[float]]] = [[[] for _ in range(ROUNDS)] for _ in calls]
    for at, (number, place) in enumerate(turns):
        of_turn = records[at * each : (at + 1) * each]
        grid = calls[place].grid
        if grid is not None and any(record.grid != (*grid, 1, 1)[:3] for record in of_turn):
            return None
        rounds[place][number] = [record.duration_us for record in of_turn[_UNCOUNTED:]]
    return rounds


def _rounds_cpu(calls: list[Call]) -> list[list[list[float]]]:
    rounds: list[list[list[float]]] = [[[] for _ in range(ROUNDS)] for _ in calls]
    for number in range(ROUNDS):
        for place in plan.order(len(calls), number, ROUNDS):
            rounds[place][number] = timers.cpu(calls[place].run, 5)
    return rounds


DO: dict[str, Callable[[dict], dict]] = {"screen": screen, "measure": measure}
