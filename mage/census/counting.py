"""What the compiler chose: counts of the generated code, and the resources it asks for, one row a kernel.

    mage.count_code()                                   every kernel of ours, for sm_89 and sm_90
    mage.count_code("layernorm", archs=["sm_89"])       a DataFrame; filter it like any other

Nothing runs and no GPU is needed: kernels are compiled for a named GPU, disassembled by cuobjdump, and
counted. What the columns are: ``mage.census.describe``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mage import cuda
from mage.census import compile_pool, occupancy, offline, sass
from mage.census.compile_pool import Row
from mage.census.offline import Job
from mage.cuda import cubins
from mage.errors import MageError, RequestError
from mage.kernels import cuda_stages

ARCHS = ("sm_89", "sm_90")


def count_code(operation=None, implementation=None, archs: str | Iterable[str] = ARCHS, *, specializations=None, dims=None):
    """A DataFrame with one row a kernel, GPU and specialization; a kernel that cannot be compiled says why in ``refused``.

    ``operation`` and ``implementation`` (a name or several) choose; ``specializations`` defaults to how the
    launcher compiles (``offline.AS_LAUNCHED``); ``offline.NO_ALIGNMENT`` adds rows for Triton, whose compiler is
    told about alignment. ``dims`` of one operation, else the default shapes. RequestError for an unknown name.
    """
    import pandas as pd

    return pd.DataFrame(rows(operation, implementation, archs, specializations=specializations, dims=dims))


def rows(operation=None, implementation=None, archs: str | Iterable[str] = ARCHS, *, specializations=None, dims=None) -> list[Row]:
    """As ``count``, as plain rows."""
    archs = [archs] if isinstance(archs, str) else list(archs)
    for arch in archs:
        occupancy.limits(arch)
    jobs = [
        Job(operation=unit[0], implementation=unit[1], variant=unit[2], arch=arch, specialization=specialization, dims=dims)
        for unit in _chosen(operation, implementation)
        for arch in archs
        for specialization in (specializations or (offline.AS_LAUNCHED,))
        if specialization == offline.AS_LAUNCHED or unit[1] == "triton"
    ]
    return compile_pool.rows(jobs)


def _chosen(operation, implementation) -> list[tuple[str, str, str]]:
    every = offline.units()

    def asked(names, place: int, kind: str) -> set[str]:
        known = {unit[place] for unit in every}
        if names is None:
            return known
        names = {names} if isinstance(names, str) else set(names)
        if unknown := names - known:
            raise RequestError(f"no {kind} {sorted(unknown)[0]!r} in the census: there is {', '.join(sorted(known))}")
        return names

    operations, implementations = asked(operation, 0, "operation"), asked(implementation, 1, "implementation")
    return [unit for unit in every if unit[0] in operations and unit[1] in implementations]


def strict_fp32(operation: str, implementation: str, variant: str, arch: str = "sm_90") -> list[str]:
    """Tensor-core opcodes in the code of one kernel for ``arch``; none of them is strict FP32.

    The kernel is compiled at the operation's default shape, or read from where it was kept: asking again is
    quick. MageError where it cannot be compiled.
    """
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise RequestError(f"no architecture {arch!r}: give one like sm_89 or sm_90")
    if implementation == "cuda":  # the very cubin that is launched, so nothing is compiled for this
        binary = cuda.build(operation, arch)
        return list(_tensor_core(binary.key, binary.cubin, cuda_stages.get(operation, variant).kernel))
    job = Job(operation=operation, implementation=implementation, variant=variant, arch=arch)
    (row,) = compile_pool.rows([job])
    if row["refused"]:
        raise MageError(f"{operation} {implementation} {variant} for {arch}: {row['refused']}")
    return row["tensor-core opcodes"].split()


_found: dict[tuple[str, str], tuple[str, ...]] = {}


def _tensor_core(key: str, cubin: bytes, kernel: str) -> tuple[str, ...]:
    if (key, kernel) not in _found:
        for name, code in sass.parse(cubins.cuobjdump("-sass", cubin)).items():
            _found[key, name] = tuple(sass.tensor_core(code.instructions))
    return _found[key, kernel]
