"""Configurations of a Triton or cuTile kernel file: which kernel one names, and what of it is a hint to the compiler.

A kernel file exports ``FIXED``, the published configuration, and ``KERNEL``; one that holds several kernels also
exports ``KERNELS`` by name, and the key ``kernel`` of a configuration names one (the first where it does not). Of a
cuTile configuration ``HINTS`` are not arguments of the kernel but hints to its compiler, which chooses where a hint
is None or not there.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping

from mage.errors import RequestError

HINTS = ("occupancy", "num_worker_warps", "num_ctas")

Config = Mapping[str, "int | str | None"]


def kernel(module: types.ModuleType, config: Config):
    """The kernel of ``module`` that ``config`` names. RequestError says which there are."""
    named = getattr(module, "KERNELS", None)
    wanted = config.get("kernel")
    if named is None and wanted is None:
        return module.KERNEL
    named = named or {}
    if wanted is None:
        return next(iter(named.values()))
    if wanted not in named:
        raise RequestError(f"{module.__file__}: no kernel {wanted!r}; there is {', '.join(named) or 'only one'}")
    return named[wanted]


def hints(config: Config) -> dict[str, int]:
    """The hints of ``config`` that say something."""
    return {name: config[name] for name in HINTS if config.get(name) is not None}


def tile_kernel(module: types.ModuleType, config: Config):
    """cuTile's kernel with the hints of ``config``: the same object every time, since each compiles for itself."""
    return _hinted(kernel(module, config), tuple(sorted(hints(config).items())))


@functools.cache
def _hinted(plain, hinted: tuple[tuple[str, int], ...]):
    return plain.replace_hints(**dict(hinted)) if hinted else plain


def function_name(kernel) -> str:
    """Name of the kernel's function, as it stands in its file."""
    inner = getattr(kernel, "_annotated_function", None)  # cuTile
    return inner.pyfunc.__name__ if inner is not None else kernel.__name__


def whole(module: types.ModuleType, given: Config) -> dict[str, int | str | None]:
    """FIXED with ``given`` over it. RequestError for a key that neither FIXED, SPACE nor the compiler knows."""
    known = {*module.FIXED, *getattr(module, "SPACE", {}), *HINTS, "kernel"}
    if unknown := sorted(given.keys() - known):
        raise RequestError(f"{module.__file__}: no parameter {unknown[0]!r}; there is {', '.join(sorted(known - {*HINTS, 'kernel'}))}")
    return {**module.FIXED, **given}
