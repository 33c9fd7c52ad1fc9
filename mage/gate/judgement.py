"""The judgement of one output: every element against the reference, and against what a broken kernel leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mage import operations
from mage.operations import Operation

if TYPE_CHECKING:
    import torch

Inputs = "dict[str, torch.Tensor]"


@dataclass
class Verdict:
    """What ``judge`` finds. Numbers that are not finite are the words "nan", "inf" and "-inf"."""

    passed: bool
    reason: str | None = None
    first_wrong_index: list[int] | None = None
    expected: float | str | None = None
    got: float | str | None = None
    wrong: int = 0  # elements outside the tolerance
    max_abs_err: float | None = None  # None: the output has a value that is not finite
    max_rel_err: float | None = None  # over elements with |reference| > atol
    fp64_ratio: float | None = None  # max|out − FP64| / std(FP64), matmul and triangle
    checks: dict[str, bool] = field(default_factory=dict)


def judge(
    operation: str | Operation,
    inputs: Inputs,
    out: torch.Tensor,
    reference: torch.Tensor | None = None,
    exact: torch.Tensor | None = None,
) -> Verdict:
    """Compare every element of ``out`` with the reference of ``inputs`` (or with ``reference``, where that is at hand).

    ``exact`` is the result in FP64, where that is at hand.

    |out − ref| ≤ atol + rtol·|ref|; for matmul and triangle also max|out − FP64| / std(FP64). Non-finite
    values fail, and outputs that are all zero, all equal or an input where the right answer is not.
    """
    import torch

    operation = operations.get(operation)
    expected = operation.reference(inputs) if reference is None else reference
    if tuple(out.shape) != tuple(expected.shape) or out.dtype != torch.float32:
        return Verdict(False, f"the output is {out.dtype} {list(out.shape)}; it has to be FP32 {list(expected.shape)}")
    finite = torch.isfinite(out)
    wide, magnitude = out.double(), expected.double()
    error = (wide - magnitude).abs_()
    magnitude.abs_()
    wrong = ~finite | (error > operation.atol + operation.rtol * magnitude)
    checks = {"finite": bool(finite.all()), "every element": not bool(wrong.any())}
    verdict = Verdict(True, checks=checks, wrong=int(wrong.sum()))
    if checks["finite"]:
        verdict.max_abs_err = float(error.max())
        relative = torch.where(expected.abs() > operation.atol, error / magnitude, 0.0)
        verdict.max_rel_err = float(relative.max()) if relative.numel() else 0.0

    suspicious = None
    for name, same in _degenerate(inputs):
        checks[name] = not same(out) or same(expected)
        if not checks[name] and suspicious is None:
            suspicious = name
    if operation.fp64_ratio is not None and checks["finite"]:
        exact = operation.reference64(inputs) if exact is None else exact
        verdict.fp64_ratio = float((wide - exact).abs_().max()) / operation.spread(inputs, exact)
        checks["FP64 ratio"] = verdict.fp64_ratio <= operation.fp64_ratio

    verdict.passed = all(checks.values())
    if verdict.wrong:
        place = _unravel(int(wrong.reshape(-1).int().argmax()), out.shape)
        verdict.first_wrong_index = place
        verdict.expected, verdict.got = _number(expected[tuple(place)]), _number(out[tuple(place)])
        verdict.reason = (
            f"{verdict.wrong} of {out.numel()} elements are wrong, first at {place}: expected {verdict.expected}, got {verdict.got}"
        )
    elif not checks.get("FP64 ratio", True):
        verdict.reason = (
            f"max|out − FP64| / std(FP64) is {verdict.fp64_ratio:.1e}, FP32 stays within {operation.fp64_ratio:.0e}: "
            "the product was not computed in FP32"
        )
    if suspicious:
        verdict.reason = f"the output is {suspicious.removeprefix('not ')}" + (f"; {verdict.reason}" if verdict.reason else "")
    return verdict


def _degenerate(inputs: Inputs):
    """(name of the check, test): outputs that a kernel which did nothing, or too little, leaves."""
    import torch

    yield "not all zero", lambda t: not bool(t.any())
    yield "not all equal", lambda t: bool((t == t.reshape(-1)[0]).all())
    for name, tensor in inputs.items():
        if tensor.dtype == torch.float32:
            yield f"not input {name}", lambda t, tensor=tensor: t.shape == tensor.shape and torch.equal(t, tensor)


def _number(element) -> float | str:
    value = float(element)
    return value if math.isfinite(value) else str(value)


def _unravel(flat: int, shape) -> list[int]:
    place = []
    for size in reversed(shape):
        flat, index = divmod(flat, size)
        place.append(index)
    return place[::-1]
