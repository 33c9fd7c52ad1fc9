"""Mage, a lab notebook for GPU kernels. What a note uses is named here, each name from the module that is its home.

What is computed, who computes it, and whether it is right:

    operations        five FP32 operations: shapes, seeded inputs, reference, tolerance
    kernels           the kernel files: loaded by content; stages, configurations, what was tuned
    implementations   (operation, implementation, variant) -> a call on given tensors
    cuda              CUDA C++ through NVRTC, and on the CPU
    gate              a kernel's whole output against the reference, before any timing

How it is measured, and what is kept:

    timers, profile   spans around calls; what ran on the device, one record a kernel
    census            what the compilers chose, for a named GPU, offline
    tune              which configuration is fastest
    experiment        rounds, controls, captures: params in, evidence out
    evidence          the record: schema, reading, writing
    stats             medians, intervals, paired ratios, verdicts

How it is shown:

    tables, figures   evidence in, a DataFrame or a drawing out
    claims            numbers in prose, checked; published claims, judged
    views             what a cell shows: display, selection, palette, rounding
    explore           one kernel at a time, in JupyterLab

How a note is run:

    notes             the notes there are, their parameters, a new one
    notebook          execute, verify, publish; what is stale
    report            one HTML file
    __main__          ``python -m mage``

Below all of them: ``errors``, ``paths``, ``provenance`` (what was used, by hash) and ``apart`` (a module in a process
of its own). Names are imported when they are first used, so that asking for help or refusing a request stays quick.
"""

import importlib

_HOMES = {
    "load": "evidence",
    "obtain": "experiment.at_hand",
    "show": "views.display",
    "prose": "views.display",
    "Quotes": "claims",
    "with_searches": "evidence.searched",
    "with_sources": "evidence.lookup",
    "as_of": "notebook.series",
    "neighbours": "notebook.series",
    "compare": "explore.comparison",
    "count_code": "census.counting",
    "Counts": "claims.counts",
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
