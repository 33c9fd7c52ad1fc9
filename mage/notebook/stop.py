"""Why a run has to end before its note does: a signal, or the note's time is over.

A reason that comes while a kernel runs ends the kernel, and the run then ends in order; one that comes while files
are being put in place waits for that. At any other moment it is raised where the run stands.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

from mage.errors import NoteFailed

_WORDS = {signal.SIGHUP: "hung up", signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Interrupted(BaseException):
    """A signal ended the run. Not an Exception: nothing on the way may take it for a failure and go on."""

    def __init__(self, number: int):
        super().__init__(f"{_WORDS[signal.Signals(number)]}; no report was left half done, run it again")
        self.exit_code = 128 + number


class Stop:
    """The first reason to end a run, and what to do about it where the run stands."""

    def __init__(self) -> None:
        self.reason: BaseException | None = None
        self._act: Callable[[], object] | None = None

    def now(self, reason: BaseException) -> None:
        """End the run for ``reason``; only the first counts."""
        if self.reason is not None:
            return
        self.reason = reason
        if self._act is not None:
            self._act()
        elif threading.current_thread() is threading.main_thread():
            raise reason

    def check(self) -> None:
        """Raise the reason, if there is one."""
        if self.reason is not None:
            raise self.reason

    @contextlib.contextmanager
    def acting(self, act: Callable[[], object]) -> Iterator[None]:
        """While inside, a reason calls ``act`` and is raised at the end."""
        self.check()
        self._act = act
        try:
            yield
        finally:
            self._act = None
        self.check()

    @contextlib.contextmanager
    def within(self, seconds: float, message: str) -> Iterator[None]:
        """End the run with NoteFailed(message) when what is inside takes longer than ``seconds``."""
        late = NoteFailed(message)
        timer = threading.Timer(seconds, lambda: self.now(late))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            if self.reason is late:
                self.reason = None  # it ends this note, not those after it
                raise late

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Take SIGINT, SIGTERM and SIGHUP as reasons. One that was ignored before stays so: nohup means it.

        For the last thing that a process does: afterwards they are ignored, since only its exit is left to interrupt.
        """
        for number in _WORDS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda received, _: self.now(Interrupted(received)))
        try:
            yield
        finally:
            for number in _WORDS:
                signal.signal(number, signal.SIG_IGN)
