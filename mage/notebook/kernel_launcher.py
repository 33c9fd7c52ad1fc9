"""Starts the kernel of a note so that it, and whatever it starts, ends with the run.

``python -m mage.notebook.kernel_launcher -f CONNECTION`` becomes two processes. The guard stays small and only watches: when
the kernel ends, when it is told to (SIGTERM), or when the runner dies (however it dies), it ends every descendant
and then itself. The kernel is an ordinary ipykernel that keeps a list of the files of this project that it uses.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

PARENT = "MAGE_RUNNER_PID"
"""Environment variable: the process that the kernel must not outlive."""
FOLDER = "MAGE_RUNNER_FOLDER"
"""Environment variable: the folder that the runner made for the kernel alone."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
WATCHED = {signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD}


def main(arguments: list[str]) -> int:
    """Guard one kernel; the exit code is the kernel's, or 128 + the number of the signal that ended it."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    runner, folder = int(os.environ.pop(PARENT)), os.environ.pop(FOLDER)
    if os.getppid() != runner:
        _clear(folder)
        return 1  # it died before it could be watched
    # Orphans of the kernel, daemons among them, become children of the guard, so that none is lost from sight.
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    guard = os.getpid()
    kernel = os.fork()
    if kernel == 0:
        # SIGKILL, since a kernel inside a long C call hears nothing else.
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        _kernel(arguments)
        return 0
    code = watch(kernel)
    if os.getppid() != runner:
        _clear(folder)
    return code


def _clear(folder: str) -> None:
    """Remove the runner's folder for the kernel: nobody else is left to do it."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def watch(kernel: int) -> int:
    """Wait for a child, then end every descendant; the child's exit code, or 128 + the number of what ended it."""
    code = None
    while code is None:
        # SIGINT is for the kernel, which is in the same group and hears it itself.
        told = signal.sigwait(WATCHED)
        code = _reap(kernel)
        if told in (signal.SIGTERM, signal.SIGHUP):
            break
    for _ in range(500):
        remaining = descendants(os.getpid())
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended = _reap(kernel)
        code = ended if code is None else code
        if not remaining:
            break
        time.sleep(0.01)
    return 128 + signal.SIGTERM if code is None else code


def _reap(kernel: int) -> int | None:
    """Collect every child that ended; the kernel's exit code when it is among them."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == kernel:
                status = os.waitstatus_to_exitcode(ended[1])
                code = status if status >= 0 else 128 - status
    return code


def descendants(ancestor: int) -> list[int]:
    """Processes below ``ancestor`` that still run or are not yet collected, from /proc.

    A process whose first thread has ended looks like one that has ended, while its other threads run and its children
    are still its own: so none is left out by its state.
    """
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name in the second field may hold spaces and brackets: count from its end.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, waiting = [], [ancestor]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _kernel(arguments: list[str]) -> None:
    os.environ["JPY_PARENT_PID"] = str(os.getppid())  # the kernel itself also looks for its parent
    from mage import provenance

    provenance.record_imports()
    from ipykernel import kernelapp

    kernelapp.launch_new_instance(argv=arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
