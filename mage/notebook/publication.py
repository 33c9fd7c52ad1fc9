"""Puts a finished report in place of the last one: all of its files or none.

Each file goes in whole, by ``os.replace``. The new files and a copy of the old ones stand ready in one folder before
the first is moved, so what was cut off, by an error or by a machine that died, is taken back (``recover``). Until
then it can be seen: provenance.json holds the hashes of the other two.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

FILES = ("notebook.ipynb", "report.html", "provenance.json")
"""What a good run leaves, together."""
FAILED = ("failed.ipynb", "failed.txt")
"""What a failed run leaves beside the last good report."""

_STAGED, _MOVING, _MOVED = ".staged", ".moving", ".moved"
"""The folder of a publication: being filled; complete, and files are being moved; all are in place."""


def publish(folder: Path, files: dict[str, bytes]) -> None:
    """Put ``files`` (content by name, one for each of FILES) into ``folder``, and remove what a failed run left.

    Raises OSError, with the folder as it was, when that cannot be done.
    """
    folder.mkdir(parents=True, exist_ok=True)
    recover(folder)
    try:
        for side in ("new", "old"):
            (folder / _STAGED / side).mkdir(parents=True)
        for name in FILES:
            _write(folder / _STAGED / "new" / name, files[name])
            with contextlib.suppress(FileNotFoundError):
                _keep(folder / name, folder / _STAGED / "old" / name)
        os.rename(folder / _STAGED, folder / _MOVING)
        for name in FILES:
            os.replace(folder / _MOVING / "new" / name, folder / name)
        _sync(folder)
        os.rename(folder / _MOVING, folder / _MOVED)
    except BaseException:
        with contextlib.suppress(OSError):  # what cannot be taken back now is at the next run
            recover(folder)
        raise
    with contextlib.suppress(OSError):
        recover(folder)
        for name in FAILED:
            (folder / name).unlink(missing_ok=True)


def recover(folder: Path) -> None:
    """Bring back the last good set after a publication that was cut off, and clear away what it left."""
    moving = folder / _MOVING
    if moving.is_dir():
        for name in FILES:
            old = moving / "old" / name
            if old.exists():
                if not (folder / name).exists() or (folder / name).read_bytes() != old.read_bytes():
                    # A copy, so that this can itself be cut off and begun again.
                    _keep(old, folder / f".{name}.back")
                    os.replace(folder / f".{name}.back", folder / name)
            elif not (moving / "new" / name).exists():
                (folder / name).unlink(missing_ok=True)  # it was put there by what was cut off
        # In one step: what is half cleared away would be read as a set that has to be taken back.
        shutil.rmtree(folder / _MOVED, ignore_errors=True)
        os.rename(moving, folder / _MOVED)
    for left in (_STAGED, _MOVED):
        shutil.rmtree(folder / left, ignore_errors=True)


def replace(path: Path, content: bytes) -> None:
    """Write one file whole: a reader sees the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.new")
    try:
        _write(partial, content)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _keep(path: Path, copy: Path) -> None:
    copy.unlink(missing_ok=True)
    try:
        os.link(path, copy)
    except FileNotFoundError:
        raise
    except OSError:  # no hard links here
        shutil.copy2(path, copy)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
