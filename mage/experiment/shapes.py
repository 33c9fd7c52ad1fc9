"""Shapes beside an operation's own: what a params file lists under ``shapes``, and how a row at one is named.

    shapes:
      matmul: [[512, 512, 512], [2048, 2048, 2048]]
      neighbor: [{dims: [4096, 64, 65536], inputs: power-law}]
    shape_rows: [pytorch, "triton:tuned", cuda]      # what is measured there; without it see ``ROWS``

A row's name ends in ``@512x512x512`` or ``@4096x64x65536+power-law``; at the operation's own shape it ends in nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mage import operations
from mage.errors import RequestError
from mage.notes import vocabulary


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One shape of one operation. ``inputs`` names a distribution of its own; ``at`` is None for the operation's own shape."""

    dims: tuple[int, ...]
    inputs: str | None = None
    at: str | None = None


class Row(NamedTuple):
    """One row as other processes are told of it, in a form that JSON holds."""

    operation: str
    implementation: str
    variant: str | None
    dims: tuple[int, ...]
    inputs: str | None = None
    at: str | None = None

    @property
    def key(self) -> str:
        return key(self.operation, self.implementation, self.variant, self.at)

    def make_inputs(self, device: str) -> dict:
        """The row's seeded inputs, on ``device``."""
        made = operations.get(self.operation).make_inputs(tuple(self.dims), distribution=self.inputs)
        return {name: tensor.to(device) for name, tensor in made.items()}


def key(operation: str, implementation: str, variant: str | None = None, at: str | None = None) -> str:
    """``matmul/cuda:pipeline``, or ``matmul/cuda:pipeline@512x512x512`` at a shape that is not the operation's own."""
    return f"{operation}/{implementation}" + (f":{variant}" if variant else "") + (f"@{at}" if at else "")


def own(operation: str, dims: Sequence[int] | None = None) -> Shape:
    """The operation's own shape (``dims`` in its place, for tests)."""
    return Shape(dims=tuple(dims or operations.get(operation).default_dims))


def parse(value: object, where: str) -> dict[str, tuple[Shape, ...]]:
    """What ``shapes`` of a params file says. RequestError, naming ``where``, for what is no shape of its operation."""
    if not isinstance(value, Mapping):
        raise RequestError(f"{where}: shapes must map operations to lists of dims, such as {{matmul: [[512, 512, 512]]}}")
    found = {}
    for name, listed in value.items():
        operation = operations.get(name)
        if not isinstance(listed, list) or not listed:
            raise RequestError(f"{where}: shapes of {name} must be a list of dims ({', '.join(operation.dims_names)})")
        made = [_shape(operation, one, f"{where}: shapes") for one in listed]
        twice = next((one.at for one in made if made.count(one) > 1), None)
        if twice:
            raise RequestError(f"{where}: shapes: {name} lists {twice} twice; name each once")
        found[name] = tuple(made)
    return found


def _shape(operation, given, where: str) -> Shape:
    inputs = None
    if isinstance(given, Mapping):
        if set(given) - {"dims", "inputs"} or "dims" not in given:
            raise RequestError(f"{where}: {operation.name} has {dict(given)}; write {{dims: [...], inputs: NAME}}")
        given, inputs = given["dims"], given.get("inputs")
    if not isinstance(given, list):
        raise RequestError(f"{where}: {operation.name} has {given!r}; give a list ({', '.join(operation.dims_names)})")
    try:
        dims = operation.check_dims(given)
        # Checked here, before anything is drawn.
        from mage.operations import input_checks

        input_checks.distribution(operation.name, inputs, operation.distributions)
    except RequestError as error:
        raise RequestError(f"{where}: {error}") from None
    if dims == operation.default_dims and inputs is None:
        raise RequestError(f"{where}: {operation.name} is measured at {list(dims)} anyway; leave that shape out")
    return Shape(dims=dims, inputs=inputs, at="x".join(map(str, dims)) + (f"+{inputs}" if inputs else ""))


def parse_rows(value: object, where: str) -> tuple[str, ...]:
    """What ``shape_rows`` says: words ``implementation`` or ``implementation:variant``."""
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise RequestError(f"{where}: shape_rows must be a list of words, such as [pytorch, \"triton:tuned\", cuda]")
    from mage import implementations

    for word in value:
        name, _, variant = word.partition(":")
        if name not in implementations.NAMES:
            raise RequestError(f"{where}: shape_rows: no implementation {name!r}; there is {', '.join(implementations.NAMES)}")
        known = dict.fromkeys(one for operation in vocabulary.OPERATIONS for one in implementations.variants(operation, name) if one)
        if variant and variant not in known:
            raise RequestError(f"{where}: shape_rows: {name} has no variant {variant!r}; there is {', '.join(known) or 'none'}")
    return tuple(value)


def parse_stages(value: object, where: str) -> dict[str, tuple[str, ...]]:
    """What ``stages`` says: operations, and of each the stages of ``cuda`` whose rows are kept."""
    if not isinstance(value, Mapping) or not all(isinstance(listed, list) for listed in value.values()):
        raise RequestError(f"{where}: stages must map operations to lists of stages, such as {{matmul: [quads, pipeline]}}")
    from mage import implementations

    found = {}
    for name, listed in value.items():
        known = implementations.variants(name, "cuda")
        if unknown := [stage for stage in listed if stage not in known]:
            raise RequestError(f"{where}: stages: {name} has no stage {unknown[0]!r}; there is: {', '.join(map(str, known))}")
        found[name] = tuple(listed)
    return found


def measured_there(operation: str, implementation: str, variant: str | None, wanted: Sequence[str] | None) -> bool:
    """Whether a row is measured at shapes that are not the operation's own.

    ``wanted`` None: every implementation, of CUDA C++ the newest stage alone, and no search of max-autotune. The
    word of an implementation means the same of that one; ``implementation:variant`` names a row itself.
    """
    if wanted is not None and f"{implementation}:{variant}" in wanted:
        return True
    if wanted is not None and implementation not in wanted:
        return False
    if implementation == "cuda":
        from mage import implementations

        return variant == implementations.variants(operation, "cuda")[-1]
    return variant != vocabulary.SEARCHING
