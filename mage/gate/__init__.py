"""Is it right: a kernel's whole output against the reference, before any timing.

``check`` makes a kernel compute twice with different inputs in the same storage, from a poisoned
output, on a GPU once on a stream of its own, and judges every element. ``judge`` (of ``mage.gate.judgement``)
is the judgement alone, for an output that is already there: one taken from a timed loop, say. A result
is plain data and goes into evidence; a kernel that did not pass (``GateResult.passed``) must not be timed.

Beside it:

    judgement   one output, judged element by element
    gating      the shapes that every kernel is gated at, and the gate over all of them
    gated       the gate that a note shows, done once for one content
    defects     defects of published kernels, so that a check can be shown to refuse them
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mage import implementations, operations
from mage.errors import MageError, RequestError
from mage.gate.judgement import Verdict, judge
from mage.implementations import Call, UnsupportedError
from mage.operations import Operation

if TYPE_CHECKING:
    import torch

Inputs = "dict[str, torch.Tensor]"
Factory = Callable[["dict[str, torch.Tensor]", "torch.Tensor"], Call]

PASSED, FAILED, NOT_CHECKED = "passed", "failed", "not checked on this machine"

MEANS = (3.0, 100.0)
"""Means that layernorm's X is also gated with: the reference centres before it squares."""

_FENCE = 256  # floats before and behind the output that no kernel may touch; keeps it 1024-byte aligned
_FENCE_BITS = 0x7FC0FE4C  # one particular NaN
_DELAY_CYCLES = 20_000_000  # about 10 ms: longer than any host takes from here to the launch


@dataclass
class GateResult:
    """The gate's record of one implementation at one shape.

    ``passed`` is "passed", "failed" or "not checked on this machine" (then ``reason`` says why). ``where``
    is "gpu", "cpu", "host C++" or "Triton interpreter". Errors are the worst over the runs with inputs of mean
    0; the first wrong element is that of the first run that failed. ``means``: layernorm's verdict by mean of X,
    "passed", "failed", or "failed past |μ|/σ = 16" where the kernel states that limit. ``inputs``: SHA-256 by name.
    """

    operation: str
    implementation: str
    variant: str | None
    dims: list[int]
    passed: str
    reason: str | None = None
    where: str | None = None
    which: str | None = None
    grid: list[int] | None = None
    block: list[int] | None = None
    launches: int | None = None
    allocates: bool | None = None
    note: str | None = None
    case: str | None = None
    first_wrong_index: list[int] | None = None
    expected: float | str | None = None
    got: float | str | None = None
    max_abs_err: float | None = None
    max_rel_err: float | None = None
    fp64_ratio: float | None = None
    inputs: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, list[int]] = field(default_factory=dict)
    checks: dict[str, bool] = field(default_factory=dict)
    means: dict[str, str] = field(default_factory=dict)
    found: str | None = None  # when, UTC, of a result that may have been kept (mage.gate.gated); a table says that it was

    def as_dict(self) -> dict:
        """Plain data for JSON, every field."""
        return asdict(self)


# -- the check -------------------------------------------------------------------------------------


def check(
    operation: str | Operation,
    implementation: str = "a call",
    variant: str | None = None,
    dims: tuple[int, ...] | None = None,
    device: str | None = None,
    *,
    factory: Factory | None = None,
    make_inputs: Callable[..., Inputs] | None = None,
    case: str | None = None,
    config: dict[str, int] | None = None,
    source: str | Path | None = None,
    host: dict | None = None,
    fence: bool = True,
    references: dict | None = None,
) -> GateResult:
    """Gate one implementation at one shape.

    ``factory(inputs, out) -> Call`` replaces ``implementations.prepare`` (with ``variant``, ``config``,
    ``source`` and ``host`` as there). ``make_inputs(dims, seed=, mean=)`` replaces the operation's own,
    under the name ``case``. ``fence``: put guard bytes around the output; leave it out under a memory
    checker, which sees a store past the end only when nothing of ours lies there. ``references`` keeps what the
    operation itself makes of the inputs, for the next implementation that is gated with the same ones.

    On the host a CUDA C++ kernel with asynchronous copies is run at both extremes: bytes that land when
    the copy is issued, and bytes that land when it is waited for. Compiled code is also read, on any machine
    (``strict_fp32``). Times are not taken here.
    RequestError for dims or names that do not exist; every other failure is in the result.
    """
    operation = operations.get(operation)
    device = device or implementations.default_device()
    dims = operation.check_dims(dims)
    result = GateResult(operation.name, implementation, variant, list(dims), NOT_CHECKED, case=case)
    make_inputs = make_inputs or operation.make_inputs
    options = [host or {}]
    if implementation == "cuda" and not device.startswith("cuda") and not (host and "cp_async" in host):
        options = [{**(host or {}), "cp_async": when} for when in _copies(operation, variant, source)]
    for option in options:
        prepare = factory or (
            lambda inputs, out, option=option: implementations.prepare(
                operation, implementation, variant, inputs, out, config=config, source=source, host=option
            )
        )
        try:
            _Check(operation, dims, device, prepare, make_inputs, result, fence, {} if references is None else references).run()
        except UnsupportedError as error:
            result.reason = str(error)
            break
        except RequestError:
            raise
        except (MageError, RuntimeError, ValueError, TypeError) as error:
            # A kernel that does not build, hangs, leaves its arrays or is refused by the driver.
            _fail(result, "the call raised nothing", f"{type(error).__name__}: {error}".splitlines()[0])
        if result.passed == FAILED:
            if len(options) > 1:
                result.reason += f" (asynchronous copies landing at their {option['cp_async']})"
            return result
    if factory is None and source is None and config is None:
        strict_fp32(result, device)
    return result


def strict_fp32(result: GateResult, device: str) -> None:
    """Add the check that a kernel's compiled code has no tensor-core instruction; one that has fails, run or not.

    The code is for the device, or for sm_90 where there is no GPU. Where it cannot be compiled there is no such check.
    """
    from mage import cuda
    from mage.census import counting, offline

    variant = result.variant or implementations.variants(result.operation, result.implementation)[-1]
    if (result.operation, result.implementation, variant) not in offline.units():
        return
    arch = cuda.device_arch(device) if device.startswith("cuda") else "sm_90"
    try:
        found = counting.strict_fp32(result.operation, result.implementation, variant, arch)
    except MageError:
        return
    result.checks["strict FP32"] = not found
    if found:
        _fail(result, "strict FP32", f"the code for {arch} computes on tensor cores: {', '.join(found)}")


def _copies(operation: Operation, variant: str | None, source) -> tuple[str, ...]:
    from mage import kernels

    text = source if isinstance(source, str) else kernels.source(source or f"cuda/{operation.name}")
    stage = variant or implementations.variants(operation, "cuda")[-1]
    body = text.partition(f"\n{operation.name}_{stage}(")[2].partition("__global__")[0]
    return ("issue", "wait") if "cp_async" in body else ("issue",)


def _fail(result: GateResult, check_name: str, reason: str, verdict: Verdict | None = None) -> None:
    result.checks[check_name] = False
    if result.passed == FAILED:
        return  # the first failure is the one reported
    result.passed, result.reason = FAILED, reason
    if verdict:
        result.first_wrong_index, result.expected, result.got = verdict.first_wrong_index, verdict.expected, verdict.got


class _Check:
    """The runs of one gate, on one storage."""

    def __init__(self, operation, dims, device, prepare, make_inputs, result, fence, references):
        self.operation, self.dims, self.device, self.result = operation, dims, device, result
        self.references = references
        self.make_inputs = make_inputs
        first = make_inputs(dims)
        result.inputs = {name: hashlib.sha256(t.numpy().tobytes()).hexdigest() for name, t in first.items()}
        result.shapes = {name: list(t.shape) for name, t in first.items()}
        self.first = self._on_device(first)
        self.second = self._on_device(make_inputs(dims, seed=operations.SEED + 1))
        self.storage = {name: t.clone() for name, t in self.first.items()}
        self.out, self.fences = _fenced(operation.output_shape(dims), device, fence)
        result.shapes["out"] = list(self.out.shape)
        self.call = prepare(self.storage, self.out)
        self.second.update({name: self.first[name] for name in self.call.binds})
        result.where, result.which, result.note = self.call.where, self.call.which, self.call.note
        result.grid = list(self.call.grid) if self.call.grid else None
        result.block = list(self.call.block) if self.call.block else None
        result.launches, result.allocates = self.call.launches, self.call.allocates

    def run(self) -> None:
        self.result.passed = PASSED
        before = self._measure("first inputs", self.first)
        self._second_inputs(before)
        if self.operation.name == "layernorm":
            for mean in MEANS:
                self._mean(mean)

    # -- runs

    def _measure(self, what: str, inputs: Inputs) -> torch.Tensor:
        """One run of the call on ``inputs``, with the device idle before and after it."""
        self._load(inputs)
        self._run_idle()
        out = self.call.out.clone()
        self._record(what, judge(self.operation, inputs, out, *self._expected(what, inputs)))
        self._untouched(inputs)
        return out

    def _expected(self, what: str, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The reference of ``inputs``, and where the FP64 ratio is judged the result in FP64.

        Second inputs keep what a call binds of the first, so they are not the same for every implementation.
        """
        key = (what, self.call.binds)
        if key not in self.references:
            exact = self.operation.reference64(inputs) if self.operation.fp64_ratio is not None else None
            self.references[key] = self.operation.reference(inputs), exact
        return self.references[key]

    def _second_inputs(self, before: torch.Tensor) -> None:
        """Other inputs in the same storage; on a GPU on a stream of its own, behind a delay and the inputs' copy."""
        result = self.result
        if self.device.startswith("cuda"):
            out = self._run_on_a_stream(self.second)
        else:
            self._load(self.second)
            self._run_idle()
            out = self.call.out.clone()
        expected = self._expected("second inputs", self.second)
        verdict = judge(self.operation, self.second, out, *expected)
        self._untouched(self.second)
        if not verdict.passed and self.device.startswith("cuda"):
            # With the device idle on both sides the order of streams does not matter: is it right then?
            self._load(self.second)
            self._run_idle()
            if judge(self.operation, self.second, self.call.out, *expected).passed:
                reason = f"the result is not complete on the current stream when that stream is: {verdict.reason}"
                _fail(result, "on the current stream", reason, verdict)
                return
        if not verdict.passed and _same_bits(out, before) and not _same_bits(self.first, self.second):
            reason = f"the output is that of the call before, with other inputs: {verdict.reason}"
            _fail(result, "not remembered", reason, verdict)
            return
        result.checks.setdefault("not remembered", True)
        if self.device.startswith("cuda"):
            result.checks.setdefault("on the current stream", True)
        self._record("second inputs", verdict)

    def _mean(self, mean: float) -> None:
        inputs = self._on_device(self.make_inputs(self.dims, mean=mean))
        self._load(inputs)
        self._run_idle()
        # So far from zero FP32 layer_norm itself uses up part of the tolerance; the same formula in FP64 does not.
        key = (f"mean {mean:g}", self.call.binds)
        if key not in self.references:
            self.references[key] = (self.operation.reference64(inputs).float(), None)
        exact, _ = self.references[key]
        verdict = judge(self.operation, inputs, self.call.out, exact)
        name, limit = f"{mean:g}", self.call.mean_over_std_limit
        self.result.means[name] = PASSED if verdict.passed else FAILED
        if not verdict.passed and limit is not None and _mean_over_std(inputs["X"]) > limit:
            # The kernel says of itself that it does not hold here: recorded, and no failure of it.
            self.result.means[name] = f"failed past |μ|/σ = {limit:g}"
            return
        self._record(f"mean {name}", verdict, errors=False)

    def _run_idle(self) -> None:
        self._poison()
        self._synchronize()
        self.call.run()
        self._synchronize()

    def _run_on_a_stream(self, inputs: Inputs) -> torch.Tensor:
        """Poisoned inputs; then in one stream a delay, the real inputs, the call, and a copy of its output.

        Work that is not ordered behind this stream reads poison, or is not there when the output is copied.
        """
        import torch

        for tensor in self.storage.values():
            tensor.fill_(math.nan if tensor.dtype == torch.float32 else 0)
        self._poison()
        self._synchronize()
        with torch.cuda.stream(torch.cuda.Stream(self.device)):
            torch.cuda._sleep(_DELAY_CYCLES)
            for name, tensor in inputs.items():
                self.storage[name].copy_(tensor, non_blocking=True)
            self.call.run()
            out = self.call.out.clone()
            torch.cuda.current_stream().synchronize()
        self._synchronize()
        return out

    # -- pieces

    def _on_device(self, inputs: Inputs) -> Inputs:
        return {name: tensor.to(self.device) for name, tensor in inputs.items()}

    def _load(self, inputs: Inputs) -> None:
        for name, tensor in inputs.items():
            self.storage[name].copy_(tensor)

    def _poison(self) -> None:
        self.out.fill_(math.nan)
        if self.call.out is not self.out and self.call.allocates:
            self.call.out.fill_(math.nan)  # last call's result: this call has to make another, or write it anew

    def _synchronize(self) -> None:
        if self.device.startswith("cuda"):
            import torch

            torch.cuda.synchronize()

    def _untouched(self, inputs: Inputs) -> None:
        changed = [name for name, tensor in inputs.items() if not _same_bits(self.storage[name], tensor)]
        self.result.checks.setdefault("inputs unchanged", True)
        if changed:
            _fail(self.result, "inputs unchanged", f"the call changed its input {', '.join(changed)}")
        if self.fences:
            self.result.checks.setdefault("nothing written outside", True)
            import torch

            if any(bool((fence.view(torch.int32) != _FENCE_BITS).any()) for fence in self.fences):
                _fail(self.result, "nothing written outside", "the call wrote outside its output")

    def _record(self, what: str, verdict: Verdict, errors: bool = True) -> None:
        result = self.result
        for name in ("max_abs_err", "max_rel_err", "fp64_ratio") if errors else ():
            found = [value for value in (getattr(result, name), getattr(verdict, name)) if value is not None]
            setattr(result, name, max(found, default=None))
        for name, good in verdict.checks.items():
            result.checks[name] = result.checks.get(name, True) and good
        if not verdict.passed:
            _fail(result, what, verdict.reason if what == "first inputs" else f"{what}: {verdict.reason}", verdict)


def _fenced(shape: tuple[int, ...], device: str, fence: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """An output of ``shape``, and the guard floats before and behind it."""
    import torch

    if not fence:
        return torch.empty(shape, device=device), []
    count = math.prod(shape)
    whole = torch.empty(_FENCE + count + _FENCE, device=device)
    whole.view(torch.int32).fill_(_FENCE_BITS)
    return whole[_FENCE : _FENCE + count].view(shape), [whole[:_FENCE], whole[_FENCE + count :]]


def _same_bits(one, other) -> bool:
    import torch

    if isinstance(one, dict):
        return all(_same_bits(one[name], other[name]) for name in one)
    with contextlib.suppress(RuntimeError):
        return torch.equal(one.contiguous().view(torch.int32), other.contiguous().view(torch.int32))
    return False


def _mean_over_std(X: torch.Tensor) -> float:
    """Largest |μ|/√(v + ε) over the rows: what E[x²] − μ² loses its digits by."""
    rows = X.double()
    deviation = (rows.var(dim=1, correction=0) + operations.EPSILON).sqrt()
    return float((rows.mean(dim=1).abs() / deviation).max())


def run_all(device: str | None = None, **options) -> list[GateResult]:
    """Every operation × implementation × variant × shape that this machine can gate; see ``gating.run_all``."""
    from mage.gate import gating

    return gating.run_all(device, **options)
