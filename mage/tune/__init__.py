"""Tuning: which configuration of a kernel is fastest on this machine's GPU, by a sweep or a search that can be trusted.

    run = tune.sweep("matmul", "triton", ["32x32x32", "64x64x32"])      # given tile shapes
    run = tune.search("matmul", "triton")                               # the space that the kernel file declares
    run.chosen, run.why, run.confirmation.ratios

Every candidate is a row of the record (``mage.evidence.schema_search.SearchRun``): timed, or why not. ``python -m mage tune``
does the same for many kernels, and ``--retain`` makes what was chosen the ``tuned`` variant on that GPU.

Its modules:

    command   ``python -m mage tune``: what is asked for, checked first
    subject   what is tuned, and the candidates of a search
    rules     what refuses a candidate without a build
    engine    the search itself
    builds    a candidate's build, in a process without a device
    bench     a candidate's gate and its time, in a process of its own
    worker    that process's side
    process   the asking side
    ledger    what a search has finished, on disk as it goes
    results   what a search leaves
    metrics   how its times were taken, in words
    show      how far a search is
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mage.evidence.schema_search import SearchRun

__all__ = ["search", "sweep"]


def sweep(
    operation: str,
    implementation: str,
    configs: Sequence[str | Mapping[str, int | str | None]],
    *,
    stage: str | None = None,
    dims: Sequence[int] | None = None,
    source: str | Path | None = None,
    budget_s: float | None = None,
    again: bool = False,
) -> SearchRun:
    """Measure the given configurations, each over the fixed one: ``"64x64x32"``, ``"BLOCK_M=64,num_warps=8"`` or a mapping.

    ``stage`` names a stage of ``cuda``; ``source`` replaces the kernel file. A candidate that an earlier, interrupted run
    finished is taken from its ledger unless ``again``. RequestError for a name or a key that is not there, and where
    there is no GPU to tune for; BusyError, naming the holder, while another run has the device.
    """
    from mage.tune.subject import Subject, given

    subject = Subject.of(operation, implementation, stage, dims, source)
    wanted = [given(subject.file, one) if isinstance(one, str) else subject.file.whole(one) for one in configs]
    return _run(subject, wanted, kind="sweep", budget_s=budget_s, again=again)


def search(
    operation: str,
    implementation: str,
    space: Mapping[str, Sequence[int | str | None]] | None = None,
    *,
    stage: str | None = None,
    dims: Sequence[int] | None = None,
    source: str | Path | None = None,
    budget_s: float | None = None,
    again: bool = False,
) -> SearchRun:
    """Search every combination of ``space`` (None: the one that the kernel file declares), as ``sweep`` does."""
    from mage.tune.subject import Subject, candidates, declared

    subject = Subject.of(operation, implementation, stage, dims, source)
    space = declared(subject, space)
    return _run(subject, candidates(subject.file, space), kind="search", space=space, budget_s=budget_s, again=again)


def _run(subject, configs, **options) -> SearchRun:
    from mage.tune.engine import on_device

    with on_device(subject.place) as engine:
        return engine.run(subject, configs, **options)
