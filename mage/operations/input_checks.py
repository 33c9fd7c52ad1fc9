"""What no kernel may be given: each check names the tensor, the place in it and the mend.

They run once, when a call is prepared. Each waits for the device, so none belongs in a timed path.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mage.errors import RequestError

if TYPE_CHECKING:
    import torch


def tensor(what: str, value: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    """Refuse a wrong type, layout, dtype, device, shape or stride order. ``what`` reads "matmul: input A"."""
    import torch

    name = what.split()[-1]
    if not isinstance(value, torch.Tensor):
        raise RequestError(f"{what} is a {type(value).__name__}; give a torch.Tensor")
    if value.layout != torch.strided:
        raise RequestError(f"{what} has layout {value.layout}; give a dense tensor, e.g. {name}.to_dense()")
    if value.dtype != dtype:
        raise RequestError(f"{what} is {value.dtype}; give {dtype}, e.g. {name}.to({dtype})")
    if value.device != device:
        raise RequestError(f"{what} is on {value.device}, the first input on {device}; put all on one device")
    if tuple(value.shape) != tuple(shape):
        raise RequestError(f"{what} has shape {list(value.shape)}; it has to be {list(shape)}")
    if not value.is_contiguous():
        raise RequestError(f"{what} has strides {list(value.stride())}; give it row-major, e.g. {name}.contiguous()")


def finite(what: str, value: torch.Tensor) -> None:
    """Refuse NaN and infinity, naming the first index that has one."""
    import torch

    if value.dtype != torch.float32 or value.numel() == 0:
        return
    # The extremes of a tensor with a NaN are NaN: two numbers instead of a mask as large as the tensor.
    low, high = torch.aminmax(value)
    if math.isfinite(low.item()) and math.isfinite(high.item()):
        return
    value = value.cpu()  # the search for the place needs room of its own
    where = (~torch.isfinite(value)).nonzero()[0].tolist()
    raise RequestError(f"{what} is {value[tuple(where)].item()} at {where}; give finite values only")


def apart(operation: str, out: torch.Tensor, inputs: dict[str, torch.Tensor]) -> None:
    """Refuse an output that shares memory with an input: a kernel reads what another block has written."""
    start, end = out.data_ptr(), out.data_ptr() + out.nbytes
    for name, value in inputs.items():
        if start < value.data_ptr() + value.nbytes and value.data_ptr() < end:
            raise RequestError(f"{operation}: out shares memory with input {name}; give it memory of its own")


def graph(operation: str, row_ptr: torch.Tensor, src: torch.Tensor, nodes: int, edges: int) -> None:
    """Refuse row pointers that are not CSR, and source indices outside the nodes."""
    row_ptr, src = row_ptr.cpu(), src.cpu()  # comparisons make tensors, and none belongs on the device yet
    first, last = row_ptr[0].item(), row_ptr[-1].item()
    if first != 0:
        raise RequestError(f"{operation}: row_ptr starts at {first}; row pointers start at 0")
    if last != edges:
        raise RequestError(f"{operation}: row_ptr ends at {last}; it ends at the number of edges, {edges}")
    falls = (row_ptr[1:] < row_ptr[:-1]).nonzero()
    if len(falls):
        row = falls[0].item()
        raise RequestError(
            f"{operation}: row_ptr falls from {row_ptr[row].item()} to {row_ptr[row + 1].item()} at row {row}; "
            "row pointers never decrease: sort the edges by destination first"
        )
    outside = ((src < 0) | (src >= nodes)).nonzero()
    if len(outside):
        edge = outside[0].item()
        raise RequestError(f"{operation}: src[{edge}] is {src[edge].item()}; source indices lie in [0, {nodes})")


def distribution(operation: str, given: str | None, known: tuple[str, ...]) -> None:
    """Refuse a distribution that an operation's inputs are not drawn from; None is the usual one."""
    if given is not None and given not in known:
        raise RequestError(f"{operation}: there are no inputs {given!r}; there is {', '.join(known) or 'only the usual distribution'}")
