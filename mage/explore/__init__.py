"""Looking at one kernel at a time, in JupyterLab or in a Python session: is it right, how fast, what did it become.

    from mage import explore
    explore.can_run("layernorm")                      who can compute it here, and why the others cannot
    explore.gate("layernorm", "cuda")                 is it right: always first
    explore.times("layernorm", dims=(4096, 768))      µs per call of what may be timed here, and launches
    explore.resources("layernorm", "cuda")            registers, shared bytes, resident blocks
    explore.census("layernorm", "cuda")               loads by width, barriers, shuffles
    explore.code("layernorm", "cuda", "row")          the kernel beside its SASS (or form="ptx")

Kernel files are read anew by every call: an edited kernel is what the next call gates, times and shows, without a
restart. Without a GPU a kernel is simulated (Triton's interpreter, CUDA C++ built for the host) to see whether it is
right, and compiled for a named GPU to be read; a simulated kernel is never timed.

Beside it:

    runs         gates, times and compiles, with every kernel file as it is now
    overviews    its tables: who can run here, how long a call takes
    code_view    a kernel's source beside what a compiler made of it
    comparison   ``mage.compare``: who computes an operation here, and who computes it right
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from mage.errors import RequestError
from mage.notes import vocabulary

if TYPE_CHECKING:
    from mage.explore.code_view import CodeView
    from mage.views.display import TableView

__all__ = [
    "Form", "Implementation", "Operation", "can_run", "census", "code", "file", "gate", "resources", "times",
]  # fmt: skip

OURS = tuple(name for name in vocabulary.IMPLEMENTATIONS if not name.startswith("rust-"))


def _completing(name: str, words: Iterable[str], about: str) -> type[StrEnum]:
    """Words to complete with the tab key, each the plain text that every function takes."""
    made = StrEnum(name, {word.replace("-", "_"): word for word in words})
    made.__doc__ = about
    return made


Operation = _completing("Operation", vocabulary.OPERATIONS, "The operations: ``explore.Operation.matmul`` is the word ``matmul``.")
Implementation = _completing("Implementation", OURS, "The implementations: ``explore.Implementation.cuda`` is the word ``cuda``.")
Form = _completing("Form", ("sass", "ptx"), "What a kernel became: ``sass``, the GPU's own instructions, or ``ptx``, the text before them.")

COMPILED = ("triton", "cutile", "cuda")
"""Implementations whose kernels are in ``kernels/`` and can be compiled for a named GPU."""

Chosen = str | Iterable[str] | None
Dims = tuple[int, ...] | None


def __dir__():
    return __all__


def can_run(operation: str) -> TableView:
    """Every implementation and variant of ``operation``: where it runs on this machine, or why it does not."""
    from mage import implementations
    from mage.explore import overviews

    return overviews.can_run(operation, implementations.available(operation))


def file(operation: str, implementation: str) -> Path:
    """The kernel file to edit: ``kernels/cuda/layernorm.cu``. RequestError for a library, whose code is not ours."""
    from mage import kernels

    if implementation not in COMPILED:
        raise RequestError(f"{implementation} has no kernel file of ours: choose one of {', '.join(COMPILED)}")
    return kernels.path(f"{implementation}/{operation}")


def gate(operation: str, implementations: Chosen = None, dims: Dims = None) -> TableView:
    """Check the output of every chosen implementation and variant against the reference, element by element.

    ``dims`` in the order of the operation's contract (None: the default shape). Simulated kernels are checked at a
    small shape, since a block is as many threads of the operating system, unless ``dims`` is small itself. What is
    wrong is shown with the first wrong element; RequestError for an unknown name or dims that no kernel may be given.
    """
    from mage import tables
    from mage.explore import runs

    return tables.gate(runs.gated(operation, _words(implementations), dims))


def times(operation: str, implementations: Chosen = None, dims: Dims = None, *, rounds: int | None = None) -> TableView:
    """Time per call in µs of every chosen implementation that runs on the device at hand, each gated first.

    On a GPU kernel time and span, medians with quartiles, and launches per call; on a CPU the span of PyTorch and
    NumPy. ``dims`` as for ``gate``; ``rounds``: interleaved rounds (None: the usual number). torch.compile is
    left out on a CPU, where it compiles for most of a minute, unless it is named.
    """
    from mage.explore import overviews, runs

    record, left_out = runs.timed(operation, _words(implementations), dims, rounds)
    return overviews.times(record, left_out)


def resources(operation: str, implementations: Chosen = None, gpu: str | Iterable[str] | None = None, dims: Dims = None) -> TableView:
    """What each compiled kernel asks of a multiprocessor of ``gpu`` ("sm_90"; None: two): registers a thread, shared
    bytes a block, stack, resident blocks, and its FP32 instructions. Nothing runs and no GPU is needed."""
    from mage import tables
    from mage.explore import runs

    return tables.code_census(runs.counted(operation, _words(implementations), gpu, dims))


def census(operation: str, implementations: Chosen = None, gpu: str | Iterable[str] | None = None, dims: Dims = None) -> TableView:
    """How each compiled kernel reaches memory on ``gpu``: loads and stores by width in bits, barriers, shuffles, reads
    of shared memory for one multiply-add. Counts of the code; nothing runs and no GPU is needed."""
    from mage import tables
    from mage.explore import runs

    return tables.access_census(runs.counted(operation, _words(implementations), gpu, dims))


def code(
    operation: str,
    implementation: str,
    variant: str | None = None,
    gpu: str | None = None,
    *,
    form: str = "sass",
    dims: Dims = None,
) -> CodeView:
    """The kernel's source beside what it became for ``gpu`` ("sm_90"; None: the GPU at hand, else sm_90).

    The source of a CUDA C++ kernel is followed by what it uses of its file, such as the template that it is made from.
    ``variant`` is a stage of ``cuda`` (None: the newest) or ``fixed``; ``form`` "sass" or "ptx" (cuTile shows no
    PTX). The view's ``source`` and ``text`` are plain text. MageError says why a compiler refused the kernel.
    """
    from mage.explore import runs

    return runs.code(operation, implementation, variant, gpu, form, dims)


def _words(chosen: Chosen) -> tuple[str, ...]:
    """``chosen`` as names of implementations; None are all of ours."""
    from mage.views import selection

    words = selection.words("implementations", chosen)
    return tuple(word for word in words if word in OURS)
