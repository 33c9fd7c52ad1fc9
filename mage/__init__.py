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
    "with_sources": "lookup",
    "compare": "comparison",
    "census": "counting",
    "Counts": "counts",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'mage' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"mage.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_HOMES})
