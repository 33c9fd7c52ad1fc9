"""The rows of a measurement: each compiled, gated on its own storage, and then timed as the very call that was gated."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mage import gate, implementations, operations
from mage.gate import NOT_CHECKED, PASSED, GateResult
from mage.implementations import CPU, GPU, Call
from mage.judgement import judge
from mage.plan import Plan
from mage.search import MODE as SEARCH
from mage.search import Candidates
from mage.split import Split

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

    @property
    def key(self) -> str:
        return f"{self.operation}/{self.implementation}" + (f":{self.variant}" if self.variant else "")

    def judge_again(self) -> str | None:
        """Gate the output that the timed loop left; the reason where it is wrong. The gate's record says so too."""
        verdict = judge(self.operation, self.inputs, self.call.out)
        self.gate["after timing"] = PASSED if verdict.passed else gate.FAILED
        if verdict.passed:
            return None
        self.gate["after timing reason"] = verdict.reason
        return f"an output of the timed loop fails the gate: {verdict.reason}"


def prepare(plan: Plan, device: str, split: Split, say: Say) -> list[Case]:
    """Every row of the plan that can run on ``device`` or has a reason worth reading, searches last, then in order."""
    rows = [row for operation in plan.operations for row in implementations.available(operation, device)]
    rows = [row for row in rows if row.implementation in plan.implementations and _belongs(row, device, plan)]
    searched = {row.operation: plan.shape(row.operation) for row in rows if row.can_run and row.variant == SEARCH}
    candidates = Candidates(searched, plan.compile_budget_s)
    # Every row of an operation is gated with the same draws; nobody writes to them.
    draws = {name: functools.cache(operations.get(name).make_inputs) for name in plan.operations}
    try:
        if device.startswith("cuda"):
            with split("compile"):
                _compile_side_by_side(plan, rows, say)
        place = {id(row): number for number, row in enumerate(rows)}
        made: dict[int, Case] = {}
        for row in sorted(rows, key=lambda row: (row.variant == SEARCH, place[id(row)])):
            reason = row.why_not
            if reason is None and row.variant == SEARCH:
                with split("compile"):
                    reason = candidates.ready(row.operation)
            made[place[id(row)]] = _prepare(row, reason, draws, plan, device, split, say)
        return [made[number] for number in range(len(rows))]
    finally:
        candidates.end()


def _belongs(row, device: str, plan: Plan) -> bool:
    if device.startswith("cuda"):
        return row.implementation != "numpy" and (plan.searched or row.variant != SEARCH)
    # Triton's interpreter and the host build show whether a kernel is right; they are never timed.
    return row.where == CPU and row.variant != SEARCH


def _prepare(row, reason: str | None, draws: dict, plan: Plan, device: str, split: Split, say: Say) -> Case:
    dims = plan.shape(row.operation)
    case = Case(row.operation, row.implementation, row.variant, dims, {})
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
                row.operation, row.implementation, row.variant, dims, device, factory=factory, make_inputs=draws[row.operation]
            )
        except Exception as error:  # a compiler with errors of its own must not end the session of the other rows
            first = (str(error).splitlines() or [""])[0][:200]
            result = GateResult(row.operation, row.implementation, row.variant, list(dims), gate.FAILED)
            result.reason = f"{type(error).__name__}: {first}"
        case.gate = _plain(result)
        if result.passed == PASSED:
            # The gate has left its last inputs behind; what is timed are the seeded ones.
            for name, tensor in draws[row.operation](dims).items():
                case.inputs[name].copy_(tensor)
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


def _compile_side_by_side(plan: Plan, rows, say: Say) -> None:
    """Compile what compilers outside Python compile, all at once. A failure is left to the gate to report."""
    import torch

    todo = [row for row in rows if row.where == GPU and row.implementation in ("triton", "cutile")]
    hand = [row for row in rows if row.where == GPU and row.implementation == "cuda"]
    for name, module in (("triton", "triton"), ("cutile", "cuda.tile")):
        if any(row.implementation == name for row in todo):
            with contextlib.suppress(Exception):
                __import__(module)  # two threads in a first import would wait for each other

    def build(row):
        made = operations.get(row.operation).make_inputs(plan.shape(row.operation))
        inputs = {name: tensor.to("cuda") for name, tensor in made.items()}
        with contextlib.suppress(Exception):
            implementations.prepare(row.operation, row.implementation, row.variant, inputs).run()

    def build_hand():
        from mage import cuda

        with contextlib.suppress(Exception):
            cuda.build_all(cuda.device_arch(torch.cuda.current_device()))

    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(build, row) for row in todo]
        if hand:
            waiting.append(pool.submit(build_hand))
        for future in waiting:
            future.result()
    torch.cuda.synchronize()
    if waiting:
        say(f"{len(waiting)} kernels and kernel files compiled side by side")
