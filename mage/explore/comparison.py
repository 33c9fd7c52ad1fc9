"""One call to explore: who can compute an operation here, and who computes it right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mage import implementations, operations
from mage.gate import gating
from mage.gate.gating import Case
from mage.implementations import HOST, INTERPRETER

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("implementation", "variant", "kernel", "runs on", "gate", "gated at", "max error", "why")


def compare(
    operation: str, dims: tuple[int, ...] | None = None, device: str | None = None, *, compiled: bool | None = None
) -> pd.DataFrame:
    """Every implementation of ``operation`` at ``dims`` (None: the default shape): one row a variant.

    ``gate`` is "passed", "failed" or "not checked on this machine"; ``gated at`` the dims of the check,
    which are small ones where a kernel is simulated (``runs on`` "Triton interpreter" or "host C++").
    ``kernel`` is what really ran for the shape, ``why`` the reason of a failure or of a missing check.
    ``compiled``: gate torch.compile too; on a machine without a GPU that takes up to a minute, so there it is
    left out unless asked for. RequestError for an unknown operation or wrong dims.
    """
    import pandas as pd

    operation = operations.get(operation)
    dims = operation.check_dims(dims)
    device = device or implementations.default_device()
    compiled = device.startswith("cuda") if compiled is None else compiled
    rows = []
    for row in implementations.available(operation, device):
        simulated = row.where in (HOST, INTERPRETER)
        case = gating.representative(row) if simulated else Case(operation.name, dims)
        if row.implementation == "pytorch-compiled" and row.can_run and not compiled:
            row = implementations.Row(
                operation.name, row.implementation, row.variant, None, False, "left out; compare(…, compiled=True) runs it"
            )
        result = gating.check(case, row, device)
        rows.append(
            (
                row.implementation,
                row.variant or "",
                result.which or "",
                result.where or "",
                result.passed,
                "×".join(map(str, result.dims)) if result.where else "",
                result.max_abs_err,
                result.reason or result.note or "",
            )
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))
