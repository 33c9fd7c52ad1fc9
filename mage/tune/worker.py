"""The worker's side: ``python -m mage.tune.worker compile|time gpu|cpu``, tasks in and answers out, a line of JSON each.

A task is ``{"do": "build" | "screen" | "measure", "subject": …, …}``. What goes wrong with one candidate is an answer
with a ``state`` and a ``reason``; what brings the process down is seen by its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys

from mage.notebook import kernel_launcher
from mage.tune.process import PARENT

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(role: str, place: str) -> int:
    """Becomes two processes: a small guard, which ends all that is left when its parent dies, and the one that works."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    signal.pthread_sigmask(signal.SIG_BLOCK, kernel_launcher.WATCHED)
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(os.environ[PARENT]):
        return 1  # it died before it could be watched
    # A compiler that hangs outlives the process that started it, and becomes a child of the guard.
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    guard, working = os.getpid(), os.fork()
    if working:
        return kernel_launcher.watch(working)
    # SIGKILL, since a process inside a compiler or behind a kernel that hangs hears nothing else.
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, kernel_launcher.WATCHED)
    _serve(role, place)
    return 0


def _serve(role: str, place: str) -> None:
    # Compilers and kernels write to stdout as they like, and read from stdin: what is theirs is not ours.
    asked = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)

    def answer(said: dict) -> None:
        answers.write(json.dumps(said) + "\n")
        answers.flush()

    if role == "compile":
        from mage.tune import builds as tasks
    else:
        from mage.tune import bench as tasks
    answer({"hello": tasks.hello(place)})
    for line in asked:
        said = _do(tasks, json.loads(line))
        answer(said)
        if said.get("leaves"):
            break


def _do(tasks, task: dict) -> dict:
    try:
        return tasks.DO[task["do"]](task)
    except Exception as error:  # compilers and kernels have errors of their own
        return {"state": tasks.FAILS_AS, "reason": words(error), **tasks.after_failure()}


def words(error: BaseException) -> str:
    """An exception in one line: where a compiler's message has many, its first and its last."""
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    ends = dict.fromkeys([*lines[:1], *lines[-1:]])
    return f"{type(error).__name__}: {' … '.join(line[:200] for line in ends)}".rstrip(": ")


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main(*sys.argv[1:3]))
