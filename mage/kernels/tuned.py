"""The configurations that searches chose, by GPU: ``outputs/retained/tuned/<gpu>.json``, written by ``python -m mage tune --retain``.

A configuration is used on the GPU that it was chosen on, and nowhere else; elsewhere the fixed one runs, and the
call's note says so. It stays in use when its kernel file is edited, and the note then says that it was chosen for another text.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import types
from collections.abc import Mapping
from pathlib import Path

from mage import kernels, paths, provenance
from mage.errors import EvidenceError, RequestError
from mage.kernels import configurations

SCHEMA = "mage.tuned/1"
VARIANT = "tuned"

_NEEDED = ("config", "dims", "kernel_sha256", "when")


def slug(device_name: str) -> str:
    """``NVIDIA H200`` -> ``nvidia-h200``: how files name a GPU."""
    return "-".join(re.findall(r"[a-z0-9]+", device_name.lower())) or "unknown"


def path(device_name: str) -> Path:
    """The file of a GPU, whether it is there or not."""
    return paths.RETAINED / "tuned" / f"{slug(device_name)}.json"


def entries(device_name: str) -> dict[str, dict]:
    """What was chosen on a GPU, by ``matmul/triton`` or ``matmul/cuda:stage``; nothing where there is no file.

    EvidenceError names a file that is not one of these, and what is wrong with it.
    """
    file = path(device_name)
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise EvidenceError(f"{paths.shown(file)}: cannot be read ({error.strerror})") from None
    provenance.note_use(file, content)
    return _parsed(content, paths.shown(file))


@functools.lru_cache(maxsize=8)
def _parsed(content: bytes, where: str) -> dict[str, dict]:
    try:
        record = json.loads(content)
        schema, chosen = record["schema"], record["configurations"]
        missing = [f"{name} has no {key}" for name, entry in chosen.items() for key in _NEEDED if key not in entry]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EvidenceError(f"{where}: no tuned configurations ({type(error).__name__}: {error}); tune again with --retain") from None
    if schema != SCHEMA:
        raise EvidenceError(f"{where}: is {schema!r}, this Mage reads {SCHEMA!r}; update Mage or tune again with --retain")
    if missing:
        raise EvidenceError(f"{where}: {missing[0]}; tune again with --retain")
    return chosen


def entry(operation: str, implementation: str, device_name: str, stage: str | None = None) -> dict | None:
    """All that is kept of one choice: config, dims, when, versions, hash of the kernel file, times; None if there is none."""
    return entries(device_name).get(f"{operation}/{implementation}" + (f":{stage}" if stage else ""))


def config(operation: str, implementation: str, device_name: str, stage: str | None = None) -> dict | None:
    """The configuration chosen on that GPU, or None."""
    found = entry(operation, implementation, device_name, stage)
    return dict(found["config"]) if found else None


def choose(
    operation: str, implementation: str, dims: tuple[int, ...], device_name: str, module: types.ModuleType
) -> tuple[dict[str, int | str | None], str | None]:
    """(configuration to run ``dims`` with on that GPU, what the reader of its times has to know, or None).

    FIXED where nothing was chosen there, or where what was chosen cannot be built as the kernel file now stands.
    """
    found = entry(operation, implementation, device_name)
    if found is None:
        return dict(module.FIXED), f"no tuned configuration for {device_name}: the fixed one runs (python -m mage tune --retain makes one)"
    chosen, notes = found["config"], []
    try:
        whole = configurations.whole(module, chosen)
        reason = getattr(module, "static", lambda dims, config: None)(dims, whole)
    except RequestError as error:
        reason = str(error)
    if reason:
        return dict(module.FIXED), f"the tuned configuration cannot take {dims}, the fixed one runs: {reason}"
    if found["kernel_sha256"] != hashlib.sha256(kernels.path(f"{implementation}/{operation}").read_bytes()).hexdigest():
        notes.append(f"the configuration was chosen for another text of {implementation}/{operation}")
    if tuple(found["dims"]) != tuple(dims):
        notes.append(f"the configuration was chosen at {tuple(found['dims'])}")
    return whole, "; ".join(notes) or None


def words(values: Mapping[str, object]) -> str:
    """A configuration in a line, by the names of its kernel file: ``BLOCK_M=64 BLOCK_N=64 num_warps=4``."""
    return " ".join(f"{name}={value}" for name, value in values.items() if value is not None) or "nothing to choose"
