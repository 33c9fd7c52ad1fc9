"""Mage, a lab notebook for GPU kernels: what a note uses, each name from the module that is its home.

Names are imported when they are first used, so that asking for help or refusing a request stays quick.
"""

import importlib

_HOMES = {
    "load": "evidence",
    "obtain": "at_hand",
    "show": "display",
    "prose": "display",
    "Quotes": "claims",
    "with_searches": "searched",
    "with_sources": "lookup",
    "as_of": "series",
    "neighbours": "series",
    "compare": "comparison",
    "census": "counting",
    "Counts": "counts",
}

_MODULES = ("explore", "figures", "tables")
"""Modules that a note or a session asks by name: ``mage.tables.stages(…)``."""

__all__ = sorted([*_HOMES, *_MODULES])


def __getattr__(name: str):
    if name in _MODULES:
        return importlib.import_module(f"mage.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'mage' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"mage.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return __all__
