"""One run at a time for an output folder and for a device; a second one learns who holds it.

The kernel's own file lock decides, so a holder that dies, however it dies, lets go at once. The note beside the lock
only says who it is: it may be stale and never blocks anyone.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from mage import paths
from mage.errors import BusyError, NoteFailed

RUNNER = "MAGE_RUNNER"
"""Environment variable of a note's kernel: the process that runs the note. A device which that one holds is held for the kernel."""


@contextlib.contextmanager
def output(experiment: str) -> Iterator[None]:
    """Hold the output folder of ``experiment``. Raises BusyError naming the holder."""
    # Not in the output folder itself: what is there belongs to the last good run until the next one is done.
    with _hold(paths.OUTPUTS / ".locks" / f"{experiment}.lock", f"output {experiment}"):
        yield


@contextlib.contextmanager
def device() -> Iterator[None]:
    """Hold every device that this process may use, whichever tree the run is in. Raises BusyError naming the holder.

    In a note whose runner holds a device already nothing is taken: it is held for what the note's cells do.
    """
    with contextlib.ExitStack() as held:
        for name in _devices():
            held.enter_context(_hold(runtime_dir() / f"device-{name}.lock", f"device {name}", runners=True))
        yield


@contextlib.contextmanager
def index() -> Iterator[None]:
    """Wait for, then hold, the list of reports: a matter of milliseconds."""
    with _hold(paths.OUTPUTS / ".locks" / "index.lock", "outputs/index.html", wait_s=60):
        yield


def runtime_dir() -> Path:
    """A folder of this user on this machine, private, on a short path and the same in every session."""
    # Not TMPDIR: a scheduler gives each job its own, and two jobs share one device.
    for base in ("/tmp", tempfile.gettempdir()):
        folder = Path(base) / f"mage-{os.getuid()}"
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and os.access(folder, os.W_OK):
                return folder
    raise NoteFailed(f"no private folder for locks: neither /tmp nor {tempfile.gettempdir()} can be written; mend one")


def _devices() -> list[str]:
    """Names of the devices this process may use: those made visible, else all of the machine, else its CPU."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        named = sorted({name.strip().replace("/", "-") for name in visible.split(",")} - {""})
        return named or ["cpu"]
    with contextlib.suppress(OSError):
        count = len(os.listdir("/proc/driver/nvidia/gpus"))
        return [str(number) for number in range(count)] or ["cpu"]
    return ["cpu"]


@contextlib.contextmanager
def _hold(path: Path, what: str, wait_s: float = 0, *, runners: bool = False) -> Iterator[None]:
    # runners: what the runner of this very note holds is held for this process.
    from filelock import FileLock, Timeout

    holder = path.with_suffix(".json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        lock.acquire(timeout=wait_s)
    except Timeout:
        if not (runners and _is_runner(holder)):
            raise BusyError(f"{what} is busy: {_held_by(holder)}; wait for it, or end it") from None
        lock = None
    except (OSError, NotImplementedError) as error:
        raise NoteFailed(f"{paths.shown(path)}: cannot be locked ({error}); mend the folder") from None
    if lock is None:
        yield
        return
    try:
        with contextlib.suppress(OSError):  # the lock stands without it
            _write_holder(holder)
        yield
    finally:
        with contextlib.suppress(OSError):
            holder.unlink()
        lock.release()


def _write_holder(holder: Path) -> None:
    said = {
        "pid": os.getpid(),
        "command": shlex.join(["python", "-m", "mage", *sys.argv[1:]]),
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    partial = holder.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(said), encoding="utf-8")
    os.replace(partial, holder)


def _is_runner(holder: Path) -> bool:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads(holder.read_text(encoding="utf-8"))["pid"]) == int(os.environ[RUNNER])
    return False


def _held_by(holder: Path) -> str:
    # A holder that was killed leaves its name, and the next one needs a moment to write its own.
    for _ in range(20):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            said = json.loads(holder.read_text(encoding="utf-8"))
            os.kill(int(said["pid"]), 0)
            return f"held by process {int(said['pid'])} ({said['command']}) since {said['since']}"
        time.sleep(0.05)
    return "held by another process, which has not written its name"
