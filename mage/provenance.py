"""What a report rests on: every file that was used, by the hash of its content when it was used.

The process that uses a file notes it (``note_use``), so the list is that process's own. Modules of mage note themselves
as they are imported, once ``record_imports`` was called; evidence and kernel sources are noted by what reads them.
Standard library only, and cheap: a note costs one hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from mage import paths

SCHEMA = "mage.provenance/1"

used: dict[str, str] = {}
"""SHA-256 of each file that this process used, by absolute path; the first use counts."""

_VERSIONED = {
    "numpy": "numpy",
    "pandas": "pandas",
    "matplotlib": "matplotlib",
    "pydantic": "pydantic",
    "torch": "torch",
    "triton": "triton",
    "cuda.core": "cuda-core",
    "cuda.bindings": "cuda-bindings",
    "cuda.tile": "cuda-tile",
}
"""Packages whose release can change a number or a figure: module to look for, distribution to ask."""


def note_use(path: str | os.PathLike, content: bytes | None = None) -> None:
    """Note that this process used the file at ``path``; ``content`` is what was read, where that is at hand.

    An edit after the first use is not noted: the hash is that of what was used.
    """
    name = str(Path(path).resolve())
    if name not in used:
        used[name] = hashlib.sha256(Path(name).read_bytes() if content is None else content).hexdigest()


_elsewhere: dict[str, str] = {}
"""Releases that another process used for this one."""


def note_versions(releases: dict[str, str]) -> None:
    """Note releases (by package) that another process imported for what this one shows."""
    _elsewhere.update(releases)


def record_imports() -> None:
    """Note the modules of mage that are loaded, and from now on each one as it is imported."""
    if recording():
        return
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and _is_ours(name):
            note_use(file)
    main = getattr(sys.modules["__main__"], "__file__", None)
    if main and Path(main).resolve().is_relative_to(paths.PACKAGE):
        note_use(main)
    sys.meta_path.insert(0, _Recorder())


def recording() -> bool:
    """Whether this process keeps the list: a run does, a session in JupyterLab does not."""
    return any(isinstance(finder, _Recorder) for finder in sys.meta_path)


class _Recorder(importlib.abc.MetaPathFinder):
    """Finds modules of mage as the ordinary finder does, and notes the file just before it is loaded."""

    def find_spec(self, name, path=None, target=None):
        if not _is_ours(name):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.has_location and spec.origin:
            note_use(spec.origin)
        return spec


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "mage"


def report() -> str:
    """What this process used, as JSON: ``files`` (hash by path) and ``versions`` (release by package)."""
    return json.dumps({"files": used, "versions": versions()})


def versions() -> dict[str, str]:
    """Releases of Python, mage and those packages that this process, or one that worked for it, imported."""
    found = {**_elsewhere, "python": platform.python_version(), "mage": mage_version()}
    for module, distribution in _VERSIONED.items():
        if module in sys.modules:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[distribution] = importlib.metadata.version(distribution)
    return found


def mage_version() -> str:
    """The version of this checkout, installed or not."""
    # Asked of the checkout first: another project of the same name may be installed.
    with contextlib.suppress(OSError, KeyError, ValueError):
        import tomllib

        return tomllib.loads((paths.PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("mage")
    return "unknown"


def git_state() -> dict | None:
    """Commit of the tree, and whether it differs from it; None where the tree is no git checkout."""
    # Only the tree's own repository: one further up says nothing about these files.
    if not (paths.ROOT / ".git").exists():
        return None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=paths.ROOT, env=environment, capture_output=True, text=True, timeout=30, check=True
        ).stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None


def machine() -> dict:
    """The machine that executed the note, from /proc: no driver is called and no GPU is woken."""
    cpu = next(iter(_fields("/proc/cpuinfo", "model name")), platform.machine())
    cards = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    gpus = [name for card in cards for name in _fields(card, "Model")]
    loaded = " ".join(_fields("/proc/driver/nvidia/version", "NVRM version"))
    return {
        "kind": "gpu" if gpus else "cpu",
        "name": gpus[0] if gpus else cpu,
        "gpus": gpus,
        "driver": next((word for word in loaded.split() if word[0].isdigit()), None),
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "platform": f"{platform.system()} {platform.release()}",
    }


def _fields(file: str | Path, key: str) -> list[str]:
    with contextlib.suppress(OSError):
        lines = (line.partition(":") for line in Path(file).read_text(errors="replace").splitlines())
        return [" ".join(value.split()) for name, _, value in lines if name.strip() == key]
    return []


def classify(files: dict[str, str]) -> dict[str, dict[str, str]]:
    """Hashes of used files by what they are: ``evidence``, ``kernels``, ``library``, ``files`` (anything else).

    Keys are relative to the tree; the library's to the folder that holds the package.
    """
    sorted_out: dict[str, dict[str, str]] = {"evidence": {}, "kernels": {}, "library": {}, "files": {}}
    for name, sha256 in sorted(files.items()):
        path = Path(name)
        if path.is_relative_to(paths.PACKAGE):
            sorted_out["library"][str(path.relative_to(paths.PACKAGE.parent))] = sha256
        elif path.is_relative_to(paths.KERNELS.resolve()):
            sorted_out["kernels"][str(path.relative_to(paths.ROOT))] = sha256
        elif path.is_relative_to(paths.OUTPUTS.resolve()):
            sorted_out["evidence"][paths.shown(path)] = sha256
        else:
            sorted_out["files"][paths.shown(path)] = sha256
    return sorted_out


def located(kind: str, name: str) -> Path:
    """The file that ``classify`` put under ``kind`` as ``name``."""
    return (paths.PACKAGE.parent if kind == "library" else paths.ROOT) / name


def evidence_facts(files: dict[str, str]) -> dict[str, dict]:
    """Origin, device, software and time of each evidence file in ``files`` (hash by name), by experiment."""
    facts = {}
    for name, sha256 in files.items():
        record: dict = {}
        with contextlib.suppress(OSError, ValueError):
            record = json.loads(located("evidence", name).read_bytes())
        device = record.get("device")
        if isinstance(device, dict):
            # What was read at one moment is the record's business; a report names the machine.
            device = {key: value for key, value in device.items() if key not in ("before", "during")}
        facts[Path(name).parent.name] = {
            "origin": record.get("origin"),
            "device": device,
            "software": record.get("software") or {},
            "when": record.get("when"),
            "sha256": sha256,
            "path": name,
        }
    return facts
