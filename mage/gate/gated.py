"""The gate that a note shows, done once for one content.

Six reports of a note gate the same kernels with the same code. What was found is kept in Mage's cache under a hash of
everything it came from: every file of the library and of the kernels, the releases, the compiler, the machine. When
anything of these changes, it is done anew, in a process of its own, which says which files and releases it used: they
belong to the report whether they were used now or a minute ago. Each result says when it was found.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from mage import apart, cuda, paths, provenance
from mage.errors import MageError
from mage.gate import GateResult

TIMEOUT_S = 900.0
RELEASES = ("torch", "triton", "numpy", "cuda-core", "cuda-bindings", "cuda-tile", "nvidia-cuda-nvrtc", "nvidia-cuda-tileiras")
VARIABLES = ("CXX", "CXXFLAGS", "TRITON_INTERPRET", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES")
"""Environment that decides what is built and where it runs."""


def here(names: Iterable[str] | None, implementations: Iterable[str] | None, device: str | None) -> list[GateResult]:
    """``gating.check_here`` of these arguments, as found now or kept."""
    listed = [None if words is None else list(words) for words in (names, implementations)]
    return [GateResult(**one) for one in _results("check_here", [*listed, device])]


def defects(device: str | None) -> dict[str, GateResult]:
    """``gating.check_defects``, as found now or kept."""
    return {name: GateResult(**one) for name, one in _results("check_defects", [device]).items()}


def _results(what: str, arguments: Sequence) -> list | dict:
    file = cuda.cache_dir() / "gate" / f"{what}-{fingerprint(what, arguments)}.json"
    kept = _read(file)
    if kept is None:
        kept = _find(what, arguments)
        with contextlib.suppress(OSError):  # a cache that cannot be written is no error
            paths.write_whole(file, json.dumps(kept).encode())
    for name, content in _contents(kept["files"]).items():
        provenance.note_use(name, content)
    provenance.note_versions(kept["versions"])
    return kept["results"]


def _read(file: Path) -> dict | None:
    """What was kept, if it is whole and the files that it came from are still what they were."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        contents = _contents(kept["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return kept if all(hashlib.sha256(contents[name]).hexdigest() == sha256 for name, sha256 in kept["files"].items()) else None


def _contents(files: Iterable[str]) -> dict[str, bytes]:
    return {name: Path(name).read_bytes() for name in files}


def _find(what: str, arguments: Sequence) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "found.json"
        done = apart.run(apart.module("mage.gate.gated", what, json.dumps(arguments), str(answer)), TIMEOUT_S)
        if done.status is None:
            raise MageError(f"the gate did not end within {TIMEOUT_S:.0f} s")
        if done.status:
            raise MageError(f"the gate ended with status {done.status}: {done.last_line}")
        return json.loads(answer.read_text(encoding="utf-8"))


def fingerprint(what: str, arguments: Sequence) -> str:
    """Hash of everything that the gate's findings come from, but for modules: those it used are listed in what is kept."""
    parts = [what, json.dumps(arguments), platform.python_version(), json.dumps(provenance.machine(), sort_keys=True)]
    roots = (paths.PACKAGE / "cuda" / "host", paths.KERNELS, paths.RETAINED / "tuned")
    for file in sorted(file for root in roots for file in root.rglob("*") if file.is_file() and file.suffix != ".pyc"):
        parts += [str(file), hashlib.sha256(file.read_bytes()).hexdigest()]
    for name in RELEASES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            parts.append(f"{name} {importlib.metadata.version(name)}")
    parts += [f"{name}={os.environ.get(name)}" for name in VARIABLES]
    compiler = _compiler()
    parts += [compiler or "no compiler", str(os.stat(compiler).st_mtime_ns) if compiler else ""]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _compiler() -> str | None:
    from mage.cuda import hostcuda

    return hostcuda.compiler()


# -- in its own process ----------------------------------------------------------------------------------


def _main(what: str, arguments: str, answer: str) -> None:
    apart.end_with_parent()
    provenance.record_imports()
    from mage.gate import gating

    found = getattr(gating, what)(*json.loads(arguments))
    when = datetime.now(UTC).isoformat(timespec="minutes")
    for one in found.values() if isinstance(found, dict) else found:
        one.found = when
    results = {name: one.as_dict() for name, one in found.items()} if isinstance(found, dict) else [one.as_dict() for one in found]
    made = {"files": dict(provenance.used), "versions": provenance.versions(), "results": results}
    Path(answer).write_text(json.dumps(made), encoding="utf-8")


if __name__ == "__main__":
    _main(*sys.argv[1:])
