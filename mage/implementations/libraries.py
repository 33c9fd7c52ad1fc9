"""The libraries as implementations: eager PyTorch, ``torch.compile`` and, on the CPU, NumPy.

Each function takes an operation's inputs and its preallocated output, prepares what can be prepared
once, and returns ``(run, allocates, note)``: ``run()`` makes one call and returns the tensor that
holds its result. ``neighbor`` needs each edge's row, which is worked out from row_ptr beforehand: the
call is for that graph. Where the library has no form that writes into a given tensor, that is a new one
every call and ``allocates`` is true.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable

import torch

from mage import cuda
from mage.operations import EPSILON, Operation, destinations

Inputs = dict[str, torch.Tensor]
Prepared = tuple[Callable[[], torch.Tensor], bool, str | None]


# -- eager -----------------------------------------------------------------------------------------


def eager(operation: Operation, inputs: Inputs, out: torch.Tensor) -> Prepared:
    """PyTorch as written in its documentation, with ``out=`` where there is a form that does not allocate."""
    return _EAGER[operation.name](inputs, out)


def _eager_matmul(inputs, out):
    A, B = inputs.values()
    return (lambda: torch.mm(A, B, out=out)), False, None


def _eager_gelu(inputs, out):
    X, bias = inputs.values()
    z = torch.empty_like(X)
    gelu = torch.ops.aten.gelu.out

    def run():
        torch.add(X, bias, out=z)
        return gelu(z, approximate="tanh", out=out)

    return run, False, "the sum X + bias goes through memory, in a tensor made beforehand"


def _eager_layernorm(inputs, out):
    X, gamma, beta = inputs.values()
    width = (X.shape[1],)
    layer_norm = torch.nn.functional.layer_norm
    return (lambda: layer_norm(X, width, gamma, beta, EPSILON)), True, "layer_norm has no out= and allocates its result"


def _eager_triangle(inputs, out):
    A, B = inputs.values()
    note = "einsum allocates its result, and returns it as a view with the channel outermost in memory"
    return (lambda: torch.einsum("ikc,jkc->ijc", A, B)), True, note


def _eager_neighbor(inputs, out):
    X, weights, row_ptr, src = inputs.values()
    rows = destinations(row_ptr)
    messages = X.new_empty(len(src), X.shape[1])
    column = weights[:, None]

    def run():
        torch.index_select(X, 0, src, out=messages)
        messages.mul_(column)
        return out.zero_().index_add_(0, rows, messages)

    return run, False, "messages, and each edge's row, are tensors made beforehand; the order of additions is not fixed"


_EAGER = {
    "matmul": _eager_matmul,
    "gelu": _eager_gelu,
    "layernorm": _eager_layernorm,
    "triangle": _eager_triangle,
    "neighbor": _eager_neighbor,
}


# -- torch.compile ---------------------------------------------------------------------------------


def compiled(operation: Operation, inputs: Inputs, out: torch.Tensor, mode: str) -> Prepared:
    """``torch.compile`` of the plain formula, for exactly these shapes; compiled at the first call.

    What a C++ compiler makes for a CPU is kept in Mage's cache: it takes some twenty seconds, and the same code is
    asked for by every note.
    """
    tensors = list(inputs.values())
    if not tensors[0].is_cuda:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cuda.cache_dir() / "inductor"))
    if operation.name == "neighbor":
        X, weights, row_ptr, src = tensors
        tensors = [X, weights, destinations(row_ptr), src]
    formula = _fresh(_FORMULAS[operation.name])
    function = torch.compile(formula, mode=mode, dynamic=False, fullgraph=True)
    return (lambda: function(*tensors)), True, "a compiled function allocates its result"


def _fresh(function: Callable) -> Callable:
    # Compiled versions hang on the code object, and past a limit PyTorch runs the function eagerly
    # without a word. With a code object of its own every call has the limit to itself.
    return types.FunctionType(function.__code__.replace(co_name=function.__name__), function.__globals__)


def _matmul(A, B):
    return A @ B


def _gelu(X, bias):
    return torch.nn.functional.gelu(X + bias, approximate="tanh")


def _layernorm(X, gamma, beta):
    return torch.nn.functional.layer_norm(X, (X.shape[1],), gamma, beta, EPSILON)


def _triangle(A, B):
    return torch.einsum("ikc,jkc->ijc", A, B)


def _neighbor(X, weights, rows, src):
    return torch.zeros_like(X).index_add_(0, rows, X[src] * weights[:, None])


_FORMULAS = {
    "matmul": _matmul,
    "gelu": _gelu,
    "layernorm": _layernorm,
    "triangle": _triangle,
    "neighbor": _neighbor,
}


# -- NumPy, on the CPU -----------------------------------------------------------------------------


def numpy(operation: Operation, inputs: Inputs, out: torch.Tensor) -> Prepared:
    """NumPy on the memory of the CPU tensors; temporaries of a formula are allocated as NumPy does."""
    arrays = [tensor.numpy() for tensor in inputs.values()]
    compute, allocates = _NUMPY[operation.name](arrays, out.numpy())

    def run():
        compute()
        return out

    return run, allocates, "temporaries of the formula are allocated every call" if allocates else None


def _numpy_matmul(arrays, out):
    import numpy as np

    A, B = arrays
    return (lambda: np.matmul(A, B, out=out)), False


def _numpy_gelu(arrays, out):
    import numpy as np

    X, bias = arrays
    scale, cubic = np.float32(np.sqrt(2 / np.pi)), np.float32(0.044715)

    def compute():
        z = X + bias
        np.multiply(0.5 * z, 1 + np.tanh(scale * (z + cubic * z * z * z)), out=out)

    return compute, True


def _numpy_layernorm(arrays, out):
    import numpy as np

    X, gamma, beta = arrays

    def compute():
        centred = X - X.mean(axis=1, keepdims=True)
        deviation = np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + np.float32(EPSILON))
        np.add(gamma * (centred / deviation), beta, out=out)

    return compute, True


def _numpy_triangle(arrays, out):
    import numpy as np

    A, B = arrays
    # one matrix product a channel: the channel first, and B turned over
    a, b, o = A.transpose(2, 0, 1), B.transpose(2, 1, 0), out.transpose(2, 0, 1)
    return (lambda: np.matmul(a, b, out=o)), True


def _numpy_neighbor(arrays, out):
    import numpy as np

    X, weights, row_ptr, src = arrays
    # reduceat takes the first element for an empty run, so only rows that have edges are reduced
    filled = np.flatnonzero(np.diff(row_ptr))
    starts = row_ptr[:-1][filled]

    def compute():
        out[...] = 0
        if len(filled):
            out[filled] = np.add.reduceat(X[src] * weights[:, None], starts, axis=0)

    return compute, True


_NUMPY = {
    "matmul": _numpy_matmul,
    "gelu": _numpy_gelu,
    "layernorm": _numpy_layernorm,
    "triangle": _numpy_triangle,
    "neighbor": _numpy_neighbor,
}
