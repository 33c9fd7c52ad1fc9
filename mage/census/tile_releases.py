"""Releases of tileiras, cuTile's assembler, beside the one in the environment.

They are installed only when asked for (``make tile-compilers``), each in a folder of its own in the
cache, never into the environment: cuTile itself goes on calling the assembler it came with.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

from mage import cuda
from mage.errors import MageError

INSTALLED = "installed"
"""The tileiras of the environment, which cuTile itself calls."""

PACKAGES = {
    "13.3.36": ("nvidia-cuda-tileiras==13.3.36", "nvidia-cuda-nvcc==13.3.33", "nvidia-nvvm==13.3.33"),
    "13.4.92": ("nvidia-cuda-tileiras==13.4.92", "nvidia-cuda-nvcc==13.4.92", "nvidia-nvvm==13.4.92"),
}
"""What each release consists of: the assembler, and the ptxas and libnvvm that it calls."""

_TOOLKIT = Path("nvidia", "cu13")
_ASSEMBLER = _TOOLKIT / "bin" / "tileiras"
_UNFINISHED = ".part"

# An assembler reads the bytecode of its own version and of older ones; 13.3's is read by all of these.
_BYTECODE = "13.3"


def folder() -> Path:
    """Where releases are installed: $MAGE_TILEIRAS, else ``tileiras`` in the cache."""
    return Path(os.environ.get("MAGE_TILEIRAS") or cuda.cache_dir() / "tileiras")


def apart() -> dict[str, Path]:
    """Releases installed apart, by version: the folder that stands for a toolkit."""
    found = [place for place in sorted(folder().glob("*")) if (place / _ASSEMBLER).is_file() and place.suffix != _UNFINISHED]
    return {place.name: place / _TOOLKIT for place in found}


@functools.cache
def installed_version() -> str:
    """Version of the environment's tileiras, ``unknown`` where it is no package."""
    try:
        return importlib.metadata.version("nvidia-cuda-tileiras")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def version(release: str) -> str:
    """The version number that ``release`` stands for."""
    return installed_version() if release == INSTALLED else release


def bytecode_version(release: str) -> str:
    """The bytecode to hand to ``release``: the oldest that it and cuTile have in common."""
    if tuple(map(int, release.split(".")[:2])) < tuple(map(int, _BYTECODE.split("."))):
        raise MageError(f"tileiras {release} reads no bytecode {_BYTECODE}: give a release of 13.3 or later")
    return _BYTECODE


def assemble(release: str, bytecode: Path, cubin: Path, arch: str) -> None:
    """Have ``release`` turn a bytecode file into a cubin for ``arch``. MageError says why it did not."""
    root = apart().get(release)
    if root is None:
        raise MageError(f"tileiras {release} is not installed: `make tile-compilers` installs it apart")
    hidden = ("CUDA_PATH", "LD_LIBRARY_PATH")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"PATH": f"{root / 'bin'}:{os.environ.get('PATH', '')}", "CUDA_HOME": str(root)}
    command = [root / "bin" / "tileiras", bytecode, "-o", cubin, "--gpu-name", arch, "-O3"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[:300]
        raise MageError(f"tileiras {release} refused the kernel for {arch}: {said or f'exit code {done.returncode}'}")


def install() -> list[str]:
    """Install what is not there of ``PACKAGES``, each apart; returns the releases that were installed now."""
    new = [release for release in PACKAGES if release not in apart()]
    for release in new:
        final = folder() / release
        unfinished = final.with_name(f"{release}.{os.getpid()}{_UNFINISHED}")
        try:
            _pip(PACKAGES[release], unfinished)
            if not (unfinished / _ASSEMBLER).is_file():
                raise MageError(f"{' '.join(PACKAGES[release])} holds no {_ASSEMBLER.name}: this platform may have none")
            shutil.rmtree(final, ignore_errors=True)
            unfinished.rename(final)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return new


def _pip(packages: tuple[str, ...], target: Path) -> None:
    # Without dependencies (a release pins a whole toolkit) and without byte-compiling what nobody imports.
    options = ["--disable-pip-version-check", "--quiet", "--no-deps", "--no-compile", "--target", str(target)]
    done = subprocess.run([sys.executable, "-m", "pip", "install", *options, *packages], capture_output=True, text=True, check=False)
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:] or [f"exit code {done.returncode}"]
        raise MageError(f"pip could not install {' '.join(packages)}: {last[0].strip()}")
