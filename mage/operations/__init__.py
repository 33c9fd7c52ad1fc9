"""What is computed: five FP32 operations, their shapes, inputs, references and tolerances.

Every tensor is FP32 (indices int32), contiguous and row-major. Importing this module needs no torch:
names, shapes and counts serve readers of published evidence too; tensors are made when asked for.

Inputs are normal with mean 0 and standard deviation 0.25, drawn by a CPU generator in FP64 and then
rounded to FP32. (FP32 draws differ between processors with and without AVX2; FP64 draws do not, so
the hashes are the same on every machine.)

Beside it:

    graphs         graphs as neighbor takes them: drawn, and sorted by destination
    input_checks   what no kernel may be given, and how to mend it
    strict         strict FP32: what every operation is computed and compared in
"""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING

from mage.errors import RequestError
from mage.operations import graphs, input_checks
from mage.operations.graphs import csr, destinations
from mage.operations.strict import strict_fp32

if TYPE_CHECKING:
    import torch

SEED = 20260910
STD = 0.25
EPSILON = 1e-5
"""Added to the variance under layernorm's square root."""
LARGEST = 2**31 - 1
"""Most elements a tensor may have: kernels index with 32-bit integers."""

Dims = tuple[int, ...]


class Operation:
    """One operation. ``dims`` is a tuple of ints in the order of ``dims_names``.

    ``atol`` and ``rtol`` bound every element: |out − ref| ≤ atol + rtol·|ref|. ``fp64_ratio`` (None
    where it says nothing) bounds max|out − FP64| / std(FP64): FP32 gives a few 1e-6, TF32 about 1e-3.
    """

    name: str
    formula: str
    dims_names: tuple[str, ...]
    default_dims: Dims
    atol = 1e-4
    rtol = 1e-4
    fp64_ratio: float | None = None
    may_be_zero: frozenset[str] = frozenset()
    distributions: tuple[str, ...] = ()
    """Names of other distributions that inputs may be drawn from."""

    def __repr__(self) -> str:
        return f"<operation {self.name}: {self.formula}>"

    # -- shapes and counts: no torch ---------------------------------------------------------------

    def input_shapes(self, dims: Dims) -> dict[str, Dims]:
        """Shape of every input by name, in the order a kernel takes them."""
        raise NotImplementedError

    def output_shape(self, dims: Dims) -> Dims:
        raise NotImplementedError

    def flops(self, dims: Dims) -> int:
        """Floating-point operations of one call; a multiply-add counts as two, a tanh or a root as one."""
        raise NotImplementedError

    def bytes(self, dims: Dims) -> int:
        """Bytes that one call has to move at least: every input read once, the output written once."""
        shapes = [*self.input_shapes(dims).values(), self.output_shape(dims)]
        return 4 * sum(math.prod(shape) for shape in shapes)

    def check_dims(self, dims: Dims | None) -> Dims:
        """``dims`` as a tuple (the default for None), or RequestError naming the wrong dimension."""
        if dims is None:
            return self.default_dims
        expected = ", ".join(self.dims_names)
        try:
            dims = tuple(dims)
        except TypeError:
            raise RequestError(f"{self.name}: dims is {dims!r}; give a tuple ({expected})") from None
        if len(dims) != len(self.dims_names):
            raise RequestError(f"{self.name}: dims has {len(dims)} entries, {dims}; give ({expected})")
        for name, value in zip(self.dims_names, dims, strict=True):
            least = 0 if name in self.may_be_zero else 1
            if type(value) is not int or value < least:
                kind = "a positive int" if least else "an int from 0"
                raise RequestError(f"{self.name}: dimension {name} is {value!r}; give {kind}")
        for name, shape in {**self.input_shapes(dims), "the output": self.output_shape(dims)}.items():
            if math.prod(shape) > LARGEST:
                size = " × ".join(map(str, shape))
                raise RequestError(
                    f"{self.name}: {name} has {size} elements, past {LARGEST}, the largest 32-bit index; choose smaller dims ({expected})"
                )
        return dims

    # -- tensors -----------------------------------------------------------------------------------

    def make_inputs(
        self, dims: Dims | None = None, seed: int = SEED, std: float = STD, mean: float = 0.0, distribution: str | None = None
    ) -> dict[str, torch.Tensor]:
        """Seeded inputs on the CPU, by name. ``mean`` shifts the first input only (layernorm's gate uses it).

        ``distribution``: one of ``distributions`` (None: the operation's usual one); RequestError for another.
        """
        import torch

        dims = self.check_dims(dims)
        input_checks.distribution(self.name, distribution, self.distributions)
        generator = torch.Generator("cpu").manual_seed(seed)
        drawn = {"distribution": distribution} if distribution else {}
        inputs = self._draw(dims, generator, std, **drawn)
        if mean:
            first = next(iter(inputs))
            inputs[first] = inputs[first] + mean
        return inputs

    def _draw(self, dims: Dims, generator: torch.Generator, std: float) -> dict[str, torch.Tensor]:
        return {name: _normal(shape, generator, std) for name, shape in self.input_shapes(dims).items()}

    def reference(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """What PyTorch computes from ``inputs`` in strict FP32, on the device they are on; contiguous."""
        with strict_fp32():
            return self._formula(inputs).contiguous()

    def reference64(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """The same formula with every floating-point input widened to FP64."""
        import torch

        wide = {name: t.double() if t.dtype == torch.float32 else t for name, t in inputs.items()}
        with torch.no_grad():
            return self._formula(wide).contiguous()

    def _formula(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        raise NotImplementedError

    def spread(self, inputs: dict[str, torch.Tensor], exact: torch.Tensor) -> float:
        """Scale that an FP64 error is divided by: the standard deviation of the exact output.

        A single element has none, so there it is what such a sum of products is expected to have:
        √length · rms of each factor.
        """
        deviation = float(exact.std(correction=0))
        if exact.numel() > 1 and deviation > 0:
            return deviation
        first, second = (t.double() for t in inputs.values())
        length = self._contracted(inputs)
        return math.sqrt(length * float(first.square().mean()) * float(second.square().mean())) or 1.0

    def _contracted(self, inputs: dict[str, torch.Tensor]) -> int:
        raise NotImplementedError

    # -- bad input ---------------------------------------------------------------------------------

    def dims_of(self, inputs: dict[str, torch.Tensor]) -> Dims:
        """The dims that ``inputs`` have, read from their shapes. RequestError when they do not fit together."""
        import torch

        expected = list(self._ndims())
        if list(inputs) != expected:
            raise RequestError(f"{self.name}: inputs are {list(inputs)}; give {expected}, in this order")
        for name, ndim in self._ndims().items():
            tensor = inputs[name]
            if not isinstance(tensor, torch.Tensor):
                raise RequestError(f"{self.name}: input {name} is a {type(tensor).__name__}; give a torch.Tensor")
            if tensor.ndim != ndim:
                raise RequestError(f"{self.name}: input {name} has shape {list(tensor.shape)}; give {ndim} dimensions")
        return self._read_dims(inputs)

    def _ndims(self) -> dict[str, int]:
        return {name: len(shape) for name, shape in self.input_shapes(self.default_dims).items()}

    def _read_dims(self, inputs: dict[str, torch.Tensor]) -> Dims:
        raise NotImplementedError

    def check(self, inputs: dict[str, torch.Tensor], dims: Dims | None = None, out: torch.Tensor | None = None) -> Dims:
        """Refuse what no kernel may be given, and return the dims.

        Run once, when a call is prepared, before anything is allocated for it and never in the timed
        path: it waits for the device. RequestError names the input, what is wrong and how to mend it.
        """
        import torch

        found = self.dims_of(inputs)
        dims = self.check_dims(found if dims is None else dims)
        device = next(iter(inputs.values())).device
        for name, shape in self.input_shapes(dims).items():
            dtype = torch.int32 if name in ("row_ptr", "src") else torch.float32
            input_checks.tensor(f"{self.name}: input {name}", inputs[name], shape, dtype, device)
        if out is not None:
            input_checks.tensor(f"{self.name}: out", out, self.output_shape(dims), torch.float32, device)
            input_checks.apart(self.name, out, inputs)
        for name, tensor in inputs.items():
            input_checks.finite(f"{self.name}: input {name}", tensor)
        self._check_values(inputs, dims)
        return dims

    def _check_values(self, inputs: dict[str, torch.Tensor], dims: Dims) -> None:
        """What an operation asks of its values beyond being finite."""


class Matmul(Operation):
    """C = A·B, A M×K and B K×N."""

    name = "matmul"
    formula = "C[M,N] = A[M,K] · B[K,N]"
    dims_names = ("M", "N", "K")
    default_dims = (1024, 1024, 1024)
    fp64_ratio = 2e-5

    def input_shapes(self, dims):
        M, N, K = dims
        return {"A": (M, K), "B": (K, N)}

    def output_shape(self, dims):
        M, N, _ = dims
        return (M, N)

    def flops(self, dims):
        return 2 * math.prod(dims)

    def _formula(self, inputs):
        return inputs["A"] @ inputs["B"]

    def _contracted(self, inputs):
        return inputs["B"].shape[0]

    def _read_dims(self, inputs):
        A, B = inputs["A"], inputs["B"]
        return (A.shape[0], B.shape[1], B.shape[0])


class Gelu(Operation):
    """tanh GELU of z = X + bias: z/2·(1 + tanh(√(2/π)(z + 0.044715 z³)))."""

    name = "gelu"
    formula = "Y[R,D] = gelu_tanh(X[R,D] + bias[D])"
    dims_names = ("R", "D")
    default_dims = (4096, 768)

    def input_shapes(self, dims):
        R, D = dims
        return {"X": (R, D), "bias": (D,)}

    def output_shape(self, dims):
        return tuple(dims)

    def flops(self, dims):
        # add bias; z², z³·0.044715 (3), + z, ·√(2/π); tanh, + 1, · z, · ½
        return 10 * math.prod(dims)

    def _formula(self, inputs):
        import torch.nn.functional as F  # noqa: N812, the name everyone uses

        return F.gelu(inputs["X"] + inputs["bias"], approximate="tanh")

    def _read_dims(self, inputs):
        return tuple(inputs["X"].shape)


class LayerNorm(Operation):
    """γ(x − μ)/√(v + 1e-5) + β over each row; v is the variance of the centred row, divisor D."""

    name = "layernorm"
    formula = "Y[R,D] = gamma[D] · (X[R,D] − μ[R]) / √(v[R] + 1e-5) + beta[D]"
    dims_names = ("R", "D")
    default_dims = (4096, 768)

    def input_shapes(self, dims):
        R, D = dims
        return {"X": (R, D), "gamma": (D,), "beta": (D,)}

    def output_shape(self, dims):
        return tuple(dims)

    def flops(self, dims):
        # an element: add for μ; subtract, multiply-add for v; subtract, · 1/σ, multiply-add with γ and β.
        # a row: two divisions by D, + ε, the root.
        R, D = dims
        return R * (8 * D + 4)

    def _formula(self, inputs):
        import torch.nn.functional as F  # noqa: N812

        X = inputs["X"]
        return F.layer_norm(X, (X.shape[1],), inputs["gamma"], inputs["beta"], EPSILON)

    def _read_dims(self, inputs):
        return tuple(inputs["X"].shape)


class Triangle(Operation):
    """O[i,j,c] = Σₖ A[i,k,c]·B[j,k,c], one matrix product for each channel."""

    name = "triangle"
    formula = "O[N,N,C] = Σₖ A[i,k,c] · B[j,k,c]"
    dims_names = ("N", "C")
    default_dims = (128, 32)
    fp64_ratio = 2e-5

    def input_shapes(self, dims):
        N, C = dims
        return {"A": (N, N, C), "B": (N, N, C)}

    def output_shape(self, dims):
        N, C = dims
        return (N, N, C)

    def flops(self, dims):
        N, C = dims
        return 2 * N**3 * C

    def _formula(self, inputs):
        import torch

        return torch.einsum("ikc,jkc->ijc", inputs["A"], inputs["B"])

    def _contracted(self, inputs):
        return inputs["A"].shape[1]

    def _read_dims(self, inputs):
        return (inputs["A"].shape[0], inputs["A"].shape[2])


class Neighbor(Operation):
    """Y[i] = Σₑ weights[e]·X[src[e]] over the edges e of row i, which are row_ptr[i] … row_ptr[i+1] − 1.

    In the random graph source and destination of every edge are uniform, or the destinations follow a power law
    (``graphs.power_law``); edges are sorted by destination.
    """

    name = "neighbor"
    formula = "Y[N,F] = Σₑ weights[e] · X[src[e]] over each row's edges"
    dims_names = ("N", "F", "E")
    default_dims = (4096, 64, 65536)
    may_be_zero = frozenset({"E"})
    distributions = ("power-law",)

    def input_shapes(self, dims):
        N, F, E = dims
        return {"X": (N, F), "weights": (E,), "row_ptr": (N + 1,), "src": (E,)}

    def output_shape(self, dims):
        N, F, _ = dims
        return (N, F)

    def flops(self, dims):
        _, F, E = dims
        return 2 * E * F

    def _draw(self, dims, generator, std, distribution=None):
        import torch

        N, F, E = dims
        X = _normal((N, F), generator, std)
        weights = _normal((E,), generator, std)
        src = torch.randint(N, (E,), generator=generator)
        dst = (graphs.power_law if distribution else graphs.uniform)(N, E, generator)
        row_ptr, src = csr(src, dst, N)
        return {"X": X, "weights": weights, "row_ptr": row_ptr, "src": src}

    def _formula(self, inputs):
        import torch

        X, weights = inputs["X"], inputs["weights"]
        messages = X[inputs["src"].long()] * weights[:, None]
        return torch.zeros_like(X).index_add_(0, destinations(inputs["row_ptr"]), messages)

    def _read_dims(self, inputs):
        return (*inputs["X"].shape, inputs["src"].shape[0])

    def _check_values(self, inputs, dims):
        N, _, E = dims
        input_checks.graph(self.name, inputs["row_ptr"], inputs["src"], N, E)


OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in (Matmul(), Gelu(), LayerNorm(), Triangle(), Neighbor())}


def names() -> list[str]:
    """The operations, in the order every table shows them."""
    return list(OPERATIONS)


def get(name: str | Operation) -> Operation:
    """The operation of that name. RequestError suggests the nearest one."""
    if isinstance(name, Operation):
        return name
    if name in OPERATIONS:
        return OPERATIONS[name]
    near = difflib.get_close_matches(str(name), OPERATIONS, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there is: {', '.join(OPERATIONS)}"
    raise RequestError(f"no operation {name!r}: {hint}")


def _normal(shape: Dims, generator: torch.Generator, std: float) -> torch.Tensor:
    import torch

    return (torch.randn(shape, generator=generator, dtype=torch.float64) * std).float()
