"""What a stage of a CUDA C++ kernel is: how it is launched, what it can take, and what takes over where it cannot.

No CUDA, torch or GPU is needed to ask any of this. The stages themselves are listed in ``mage.kernels.cuda_stages``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from mage.errors import RequestError

Dims = tuple[int, ...]
Grid = tuple[int, int, int]

QUAD_BYTES = 16
"""Alignment of a 128-bit access."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """Resource request recorded for the kernel that a stage stands beside, on an RTX 4090.

    ``blocks`` and ``threads`` are products, ``registers`` is per thread, ``shared`` in bytes a block;
    None where it was not published.
    """

    experiment: str
    kernel: str
    blocks: int | None = None
    threads: int | None = None
    registers: int | None = None
    shared: int | None = None


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One kernel, and all that its launch needs to know.

    ``grid(dims)`` in blocks, ``block`` in threads, ``shared`` static bytes a block, ``dynamic`` the bytes a
    block is launched with on top (more than 48 KiB together need the dynamic kind). ``arranged(dims)`` is the block
    where its axes follow from the dims; its threads are as many as those of ``block`` (``block_at`` asks both). ``refuses(dims)``
    says why a shape cannot be taken, or None; ``declines(inputs)`` why another stage is the better one for these
    values, which it could take all the same. ``quads``: the kernel makes 128-bit accesses to every
    float tensor, so each must be 16-byte aligned. ``fallback`` is the stage that takes over. ``changed``
    is what is new against the stage before. ``mean_over_std_limit`` is the largest |μ|/σ of a
    layernorm row for which the kernel's variance holds (None: no limit of its own). ``published`` is the kernel that
    this one stands beside; None for a stage of our own.

    ``versions``: how often the kernel's body stands in its code, once for each width that it is made for.
    ``form(dims)`` names a kernel that does the stage's work better at these dims (None: its own), such as one with
    another tile; it may be that of an older stage. ``workspace(dims)`` are floats and counters that a launch needs
    beside its tensors; counters are zero before and after it.

    ``parameters`` are the macros that the kernel's text can be built with, by name without the operation
    (``BM`` is ``MATMUL_BM``), and their defaults; ``space`` the values that a search may try. What of a launch
    follows from them is given by ``configure(parameters)``: any of grid, block, shared, dynamic and refuses.
    ``static(dims, parameters)`` says why a choice needs no build to be refused.
    """

    operation: str
    name: str
    changed: str
    grid: Callable[[Dims], Grid]
    block: Grid
    arranged: Callable[[Dims], Grid] | None = None
    shared: int = 0
    dynamic: int = 0
    refuses: Callable[[Dims], str | None] = lambda dims: None
    declines: Callable[[Mapping[str, object]], str | None] = lambda inputs: None
    quads: bool = False
    fallback: str | None = None
    published: Published | None = None
    mean_over_std_limit: float | None = None
    versions: int = 1
    form: Callable[[Dims], str | None] = lambda dims: None
    workspace: Callable[[Dims], tuple[int, int]] | None = None
    parameters: Mapping[str, int] = field(default_factory=dict, hash=False)
    space: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    configure: Callable[[Mapping[str, int]], Mapping[str, object]] = lambda parameters: {}
    static: Callable[[Dims, Mapping[str, int]], str | None] = lambda dims, parameters: None
    defines: Mapping[str, int] = field(default_factory=dict, hash=False)

    def configured(self, config: Mapping[str, int]) -> Stage:
        """The stage built with ``config`` instead of the defaults; RequestError for a parameter it does not have.

        ``defines`` of the result are the macros to build with: none for the defaults, which are in the text.
        """
        if unknown := sorted(config.keys() - self.parameters.keys()):
            known = ", ".join(self.parameters) or "none"
            raise RequestError(f"cuda {self.operation} {self.name} has no parameter {unknown[0]}; there is: {known}")
        if not config:
            return self
        chosen = {**self.parameters, **config}
        defines = {f"{self.operation.upper()}_{name}": value for name, value in chosen.items() if value != self.parameters[name]}
        return replace(self, parameters=chosen, defines=defines, **self.configure(chosen))

    @property
    def kernel(self) -> str:
        """Name of the ``extern "C"`` function in the kernel file."""
        return f"{self.operation}_{self.name}"

    @property
    def threads(self) -> int:
        """Threads in one block."""
        return prod(self.block)

    def block_at(self, dims: Dims) -> Grid:
        """Threads on each axis of a block at ``dims``."""
        return self.arranged(dims) if self.arranged else self.block

    def supports(
        self, dims: Dims, inputs: Mapping[str, object] | None = None, out: object = None, shared_limit: int | None = None
    ) -> str | None:
        """Why this stage cannot compute ``dims`` with these tensors; None if it can.

        ``inputs`` and ``out`` (torch tensors) may be left out; of ``out`` only the address is asked for.
        ``shared_limit``: bytes of shared memory that the device has for a block (None: enough).
        """
        if reason := self.refuses(dims):
            return reason
        if shared_limit is not None and self.shared + self.dynamic > shared_limit:
            return f"a block needs {self.shared + self.dynamic} bytes of shared memory, this device has {shared_limit} for one"
        if inputs is not None and (reason := self.declines(inputs)):
            return reason
        if self.quads:
            tensors = {**(inputs or {}), **({} if out is None else {"out": out})}
            for name, tensor in tensors.items():
                if tensor.data_ptr() % QUAD_BYTES:
                    return f"{name} does not start at a multiple of {QUAD_BYTES} bytes, which 128-bit loads need"
        return None


@dataclass(frozen=True)
class Choice:
    """The stage that will really run for a request, and why each one before it did not."""

    asked: Stage
    stage: Stage
    reasons: tuple[str, ...]
