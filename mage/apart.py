"""A module of Mage in a process of its own: one instrument a process, ended whole when its time is up."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from mage import paths

_PR_SET_PDEATHSIG = 1
_STARTED_BY = "MAGE_STARTED_BY"


@dataclass(frozen=True)
class Done:
    """How the process ended. ``status`` None: its time was up, and it was ended with everything it had started."""

    status: int | None
    said: str

    @property
    def last_line(self) -> str:
        """The last line it said, for a reason of one line."""
        return (self.said.strip().splitlines() or ["nothing said"])[-1][:200]


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs module ``name`` with this Python."""
    return [sys.executable, "-P", "-m", name, *arguments]


def environment() -> dict[str, str]:
    """This process's environment, in which the same Mage and the same tree are found."""
    path = os.pathsep.join(filter(None, (str(paths.PACKAGE.parent), os.environ.get("PYTHONPATH"))))
    # What torch.compile makes was compiled before and lies in its cache: workers would only take time to start.
    threads = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    return {**threads, **os.environ, "PYTHONPATH": path, "MAGE_ROOT": str(paths.ROOT), _STARTED_BY: str(os.getpid())}


def end_with_parent() -> None:
    """Said by such a process itself: it ends when the one that started it does, be it held at that moment."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ.get(_STARTED_BY, os.getppid())):
        os._exit(1)  # it died before


def run(command: Sequence[str], timeout_s: float) -> Done:
    """Run ``command`` to its end, or end it and its children after ``timeout_s``."""
    process = subprocess.Popen(
        command, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,  # a group of its own, which ends together
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        said, _ = process.communicate()
        return Done(None, said)
    except BaseException:  # an interrupt does not reach another group
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
        raise
    return Done(process.returncode, said)


class Process:
    """A process that is spoken with, a line at a time; what it says elsewhere is kept for a reason."""

    def __init__(self, command: Sequence[str]):
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed by end()
        self._process = subprocess.Popen(
            command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            start_new_session=True,
        )  # fmt: skip

    def hear(self, timeout_s: float) -> str | None:
        """Its next line, or None where it ended or said nothing for so long."""
        heard, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        return (self._process.stdout.readline().strip() or None) if heard else None

    def tell(self, line: str) -> None:
        """Say one line to it; one that has ended hears nothing."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def stop(self) -> None:
        """Hold it and everything it started: it takes no processor until ``go_on``."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on after ``stop``."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGCONT)

    def end(self, timeout_s: float = 0.0) -> Done:
        """How it ended, within ``timeout_s``; after that it is ended with everything it started."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()
            status = None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace")
        self._errors.close()
        return Done(status, said)
