"""The rows of a measurement: each compiled, gated on its own storage, and then timed as the very call that was gated."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mage import gate, implementations, operations
from mage.experiment import shapes
from mage.experiment.max_autotune import Candidates
from mage.experiment.plan import Plan
from mage.experiment.shapes import Row, Shape
from mage.experiment.split import Split
from mage.gate import NOT_CHECKED, PASSED, GateResult
from mage.gate.judgement import judge
from mage.implementations import CPU, GPU, Call
from mage.notes import vocabulary

if TYPE_CHECKING:
    import torch

Say = Callable[[str], None]


@dataclass
class Case:
    """One row: what is computed by whom. ``call`` is None where there is nothing to time, and ``gate`` says why."""

    operation: str
    implementation: str
    variant: str | None
    dims: tuple[int, ...]
    gate: dict
    call: Call | None = None
    inputs: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)
    launches: int | None = None
    long: bool = False
    """Whether one call takes so long that it heats the device: it has rounds of its own."""
    at: str | None = None
    """Name of the shape, where it is not the operation's own."""
    drawn: str | None = None
    """Distribution that the inputs are drawn from, where it is not the usual one."""
    expected: tuple = field(default=(None, None), repr=False)
    """What the operation itself makes of the inputs, in FP32 and in FP64, where the gate has it already."""

    @property
    def key(self) -> str:
        return self.row.key

    @property
    def row(self) -> Row:
        """The row as another process is told of it."""
        return Row(self.operation, self.implementation, self.variant, self.dims, self.drawn, self.at)

    def judge_again(self) -> str | None:
        """Gate the output that the timed loop left; the reason where it is wrong. The gate's record says so too."""
        verdict = judge(self.operation, self.inputs, self.call.out, *self.expected)
        self.gate["after timing"] = PASSED if verdict.passed else gate.FAILED
        if verdict.passed:
            return None
        self.gate["after timing reason"] = verdict.reason
        return f"an output of the timed loop fails the gate: {verdict.reason}"


@dataclass(frozen=True)
class _Wanted:
    """A row that may be measured, at one shape; ``found`` says whether it can run here."""

    found: implementations.Row
    shape: Shape

    @property
    def searched(self) -> bool:
        return self.found.variant == vocabulary.SEARCHING


def prepare(plan: Plan, device: str, split: Split, say: Say) -> list[Case]:
    """Every row of the plan that can run on ``device`` or has a reason worth reading, searches last, then in order."""
    rows = _wanted(plan, device)
    searched = {one.found.operation: one.shape.dims for one in rows if one.searched and one.found.can_run}
    candidates = Candidates(searched, plan.compile_budget_s)
    # Every row of an operation is gated with the same draws; nobody writes to them.
    draws = {
        (name, shape): functools.cache(functools.partial(operations.get(name).make_inputs, distribution=shape.inputs))
        for name in plan.operations
        for shape in plan.every_shape(name)
    }
    references: dict[tuple[str, Shape], dict] = {}  # of the shape in hand: its rows stand together
    try:
        if device.startswith("cuda"):
            with split("compile"):
                _compile_side_by_side(rows, say)
        made: dict[int, Case] = {}
        for place, one in sorted(enumerate(rows), key=lambda pair: (pair[1].searched, pair[0])):
            reason = one.found.why_not
            if reason is None and one.searched:
                with split("compile"):
                    reason = candidates.ready(one.found.operation)
            which = (one.found.operation, one.shape)
            if which not in references:
                references = {which: {}}
            made[place] = _prepare(one, reason, draws[which], references[which], device, split, say)
        return [made[place] for place in range(len(rows))]
    finally:
        candidates.end()


def rows(plan: Plan, device: str) -> list[Row]:
    """The rows that ``prepare`` will try to prepare, by what is known without trying."""
    return [
        Row(one.found.operation, one.found.implementation, one.found.variant, one.shape.dims, one.shape.inputs, one.shape.at)
        for one in _wanted(plan, device)
        if one.found.can_run
    ]


def _wanted(plan: Plan, device: str) -> list[_Wanted]:
    """Rows by operation and shape: those of one shape behind one another, so that what disturbs one disturbs its peers."""
    found = []
    for operation in plan.operations:
        rows = [row for row in implementations.available(operation, device) if row.implementation in plan.implementations]
        for shape in plan.every_shape(operation):
            found += [_Wanted(row, shape) for row in rows if _belongs(row, shape, device, plan)]
    return found


def _belongs(row: implementations.Row, shape: Shape, device: str, plan: Plan) -> bool:
    if shape.at and not shapes.measured_there(row.operation, row.implementation, row.variant, plan.shape_rows):
        return False
    if device.startswith("cuda"):
        return row.implementation != "numpy" and (plan.searched or row.variant != vocabulary.SEARCHING)
    # Triton's interpreter and the host build show whether a kernel is right; they are never timed.
    return row.where == CPU and row.variant != vocabulary.SEARCHING


def _prepare(wanted: _Wanted, reason: str | None, make_inputs: Callable, known: dict, device: str, split: Split, say: Say) -> Case:
    row, dims = wanted.found, wanted.shape.dims
    case = Case(row.operation, row.implementation, row.variant, dims, {}, at=wanted.shape.at, drawn=wanted.shape.inputs)
    if reason is not None:
        case.gate = _plain(GateResult(row.operation, row.implementation, row.variant, list(dims), NOT_CHECKED, reason))
        say(f"{case.key}: not measured: {reason}")
        return case

    def factory(inputs, out):
        case.call = implementations.prepare(row.operation, row.implementation, row.variant, inputs, out)
        case.inputs = inputs
        with split("compile"):
            case.call.run()
            if device.startswith("cuda"):
                import torch

                torch.cuda.synchronize()
        return case.call

    before = split.spent("compile")
    with split("gate"):
        try:
            result = gate.check(
                row.operation, row.implementation, row.variant, dims, device,
                factory=factory, make_inputs=make_inputs, references=known,
            )  # fmt: skip
        except Exception as error:  # a compiler with errors of its own must not end the session of the other rows
            first = (str(error).splitlines() or [""])[0][:200]
            result = GateResult(row.operation, row.implementation, row.variant, list(dims), gate.FAILED)
            result.reason = f"{type(error).__name__}: {first}"
        case.gate = _plain(result)
        if result.passed == PASSED:
            # The gate has left its last inputs behind; what is timed are the seeded ones.
            for name, tensor in make_inputs(dims).items():
                case.inputs[name].copy_(tensor)
            case.expected = known.get(("first inputs", case.call.binds), case.expected)
        else:
            case.call, case.inputs = None, {}
            say(f"{case.key}: {result.passed}: {result.reason}")
    spent = split.spent("compile") - before
    if spent > 2:
        say(f"{case.key}: compiled in {spent:.1f} s")
    return case


def _plain(result: GateResult) -> dict:
    """The gate's record without what the row says anyway; a field that says nothing is left out."""
    elsewhere = {"operation", "implementation", "variant", "dims", "inputs", "shapes"}
    return {name: value for name, value in result.as_dict().items() if name not in elsewhere and value not in (None, {}, [])}


def _compile_side_by_side(rows: Sequence[_Wanted], say: Say) -> None:
    """Compile what compilers outside Python compile, all at once. A failure is left to the gate to report."""
    import torch

    here = [one for one in rows if one.found.where == GPU]
    todo = [one for one in here if one.found.implementation in ("triton", "cutile")]
    hand = [one for one in here if one.found.implementation == "cuda"]
    for name, module in (("triton", "triton"), ("cutile", "cuda.tile")):
        if any(one.found.implementation == name for one in todo):
            with contextlib.suppress(Exception):
                __import__(module)  # two threads in a first import would wait for each other

    def build(one):
        row = Row(one.found.operation, one.found.implementation, one.found.variant, one.shape.dims, one.shape.inputs)
        with contextlib.suppress(Exception):
            implementations.prepare(row.operation, row.implementation, row.variant, row.make_inputs("cuda")).run()

    def build_hand():
        from mage import cuda

        with contextlib.suppress(Exception):
            cuda.build_all(cuda.device_arch(torch.cuda.current_device()))

    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(build, one) for one in todo]
        if hand:
            waiting.append(pool.submit(build_hand))
        for future in waiting:
            future.result()
    torch.cuda.synchronize()
    if waiting:
        say(f"{len(waiting)} kernels and kernel files compiled side by side")
