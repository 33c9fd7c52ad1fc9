"""What the correctness gate found on this machine: one row an implementation, and the defects it refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from mage.tables.rows import implementation, operation, shape
from mage.views.display import TableView

if TYPE_CHECKING:
    from mage.gate import GateResult

_SIMULATED = ("host C++", "Triton interpreter")


def gate(results: Sequence[GateResult]) -> TableView:
    """Verdict, largest error and shape of each implementation that was gated, and why the others were not."""
    columns = ["Operation", "Implementation", "Verdict", "Ran on", "Shape", "Largest error", "FP64 ratio", "Remark"]
    records = [
        {
            "Operation": operation(result),
            "Implementation": implementation(result),
            "Verdict": result.passed,
            "Ran on": result.where,
            "Shape": shape(result.dims) if result.where else None,
            "Largest error": _scientific(result.max_abs_err),
            "FP64 ratio": _scientific(result.fp64_ratio),
            "Remark": _remark(result),
        }
        for result in results
    ]
    note = (
        "Largest error is against the FP32 reference, absolute; the FP64 ratio is the largest error over the spread of "
        "the exact result, for the operations that sum products."
    )
    if any(result.found for result in results):
        note += " Gated on this machine; of code, kernels and releases nothing has changed since."
    if any(result.where in _SIMULATED for result in results):
        note += (
            " On the host a thread of a CUDA C++ kernel is a thread of the operating system, and a Triton program is "
            "interpreted: both show whether a kernel is right, at shapes of a few blocks, and neither has a time. "
            "Races within a warp are left to a checker on a GPU."
        )
    return TableView(
        "gate", pd.DataFrame(records, columns=columns), "The correctness gate on the machine that ran this note",
        row_heads=2, missing="nothing to report", note=note, empty="No implementation was gated.",
    )  # fmt: skip


def refused(results: Mapping[str, GateResult]) -> TableView:
    """Each defect that was put into a kernel (``note`` says which), and how the gate answered."""
    columns = ["Defect", "What is wrong", "Verdict", "First wrong element", "Expected", "Got"]
    records = [
        {
            "Defect": name,
            "What is wrong": result.note,
            "Verdict": "refused" if result.passed == "failed" else result.passed,
            "First wrong element": result.first_wrong_index and f"[{', '.join(map(str, result.first_wrong_index))}]",
            "Expected": _plain(result.expected),
            "Got": _plain(result.got),
        }
        for name, result in results.items()
    ]
    return TableView(
        "refused", pd.DataFrame(records, columns=columns), "Kernels with a defect put into them, as the gate answered",
        missing="not checked", note="A kernel that the gate refuses is not timed.",
    )  # fmt: skip


def _remark(result: GateResult) -> str | None:
    parts = [f"mean {mean}: {verdict}" for mean, verdict in result.means.items() if verdict != "passed"]
    return "; ".join(filter(None, [_other_kernel(result), result.reason, *parts])) or None


def _other_kernel(result: GateResult) -> str | None:
    """Which stage or form computed the shape, if the one that was asked for left it to that."""
    if result.implementation != "cuda" or not result.which or result.which == f"{result.operation}_{result.variant}":
        return None
    return f"computed by {result.which.removeprefix(f'{result.operation}_')}"


def _scientific(value: float | None) -> str | None:
    """``4.8e-7`` as a reader writes it; zero as it is."""
    if value is None:
        return None
    if value == 0:
        return "0"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits}e−{abs(int(power))}" if int(power) < 0 else f"{digits}e{int(power)}"


def _plain(value: float | str | None) -> str | None:
    return f"{value:.6g}" if isinstance(value, float) else value
