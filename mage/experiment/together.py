"""Experiments of this machine that one command asks for are measured once, in one session.

``make notes`` runs each note in a process of its own and says in ``MAGE_RUN`` when it began and which experiments it
means: ``"1790000000 here-001 here-002"``. The first note that measures does so for all of them; the others find
evidence that is younger than the command, of this device, these kernels and these releases, and read it. Without
the variable, and for whatever has changed since, everything is measured anew.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Iterable, Sequence

from mage import evidence, paths, provenance
from mage.errors import EvidenceError, MageError
from mage.evidence.schema import Evidence
from mage.notes import params, vocabulary

RUN = "MAGE_RUN"
"""Environment variable: seconds since 1970 at which the command began, and its experiments of this machine."""


def begin(experiments: Iterable[str]) -> None:
    """Say that a command begins that runs ``experiments``, unless it is part of one that has said so already."""
    if RUN not in os.environ:
        import time

        here = [name for name in experiments if name.startswith("here-")]
        os.environ[RUN] = " ".join([str(int(time.time())), *here])


def others(experiment: str) -> list[str]:
    """The other experiments of this machine that the command in progress runs."""
    return [name for name in _said()[1] if name != experiment]


def kept(experiment: str, operations: Sequence[str], implementations: Sequence[str]) -> bool:
    """Whether this command has measured ``experiment`` already, on this device and with what is installed now.

    The params file of ``experiment`` must ask for every one of ``operations`` and ``implementations``.
    """
    began, _ = _said()
    file = paths.OUTPUTS / experiment / evidence.NAME
    if began is None or not file.is_file() or not experiment.startswith("here-"):
        return False
    try:
        record = evidence.read(file)
    except EvidenceError:
        return False
    return record.when.timestamp() >= began and _covers(experiment, operations, implementations) and _unchanged(record)


def _said() -> tuple[int | None, list[str]]:
    began, *experiments = os.environ.get(RUN, "").split() or [""]
    return (int(began), experiments) if began.isdecimal() else (None, [])


def _covers(experiment: str, operations: Sequence[str], implementations: Sequence[str]) -> bool:
    """Whether the params file, by which the session measured, asks for all of these."""
    try:
        values = params.load(paths.PARAMS / f"{experiment}.yaml").values
    except MageError:
        return False
    known = values.get("operations", vocabulary.OPERATIONS), values.get("implementations", vocabulary.IMPLEMENTATIONS)
    return set(operations) <= set(known[0]) and set(implementations) <= set(known[1])


def _unchanged(record: Evidence) -> bool:
    """Whether the device, the kernel files and the releases that ``record`` names are those at hand."""
    machine, files = provenance.machine(), record.source.files
    here = record.device.name in (machine["name"], *machine["gpus"])
    same = all(_same_file(name, sha256) for name, sha256 in files.items())
    return here and same and all(_release(name) == version for name, version in record.software.items())


def _same_file(name: str, sha256: str) -> bool:
    try:
        return hashlib.sha256((paths.ROOT / name).read_bytes()).hexdigest() == sha256
    except OSError:
        return False


def _release(name: str) -> str | None:
    if name in ("python", "mage"):
        return platform.python_version() if name == "python" else provenance.mage_version()
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
