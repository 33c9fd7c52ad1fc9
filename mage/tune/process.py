"""A process that does one task at a time, seen from the process that asks: started when needed, ended when it fails.

The two speak JSON, a line each way. A worker has a session of its own, so that it is ended together with whatever it
started (compilers, that is), and a guard that does the same when its parent dies, however it dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from mage import paths
from mage.errors import MageError

PARENT = "MAGE_TUNE_PARENT"
"""Environment variable: the process that a worker must not outlive."""
START_S = 120.0
"""Longest that a worker takes until it can be asked: imports, and the device's context."""
GUARD_S = 10.0
"""Longest that a worker's guard may take to end what is below it."""
END_S = 30.0
"""Longest that a killed process takes to go: the driver waits for its device."""

DIED, HUNG = "died", "hung"


class Worker:
    """One worker of a role (``compile`` or ``time``). ``hello`` is what its process said of itself when it started."""

    def __init__(self, role: str, place: str):
        self.role, self.place = role, place
        self.hello: dict | None = None
        self.task: dict | None = None
        self._process: subprocess.Popen | None = None
        self._said = None
        self._unread = b""
        self._deadline = float("inf")
        self._allowed = 0.0

    @property
    def idle(self) -> bool:
        return self.task is None

    @property
    def process(self) -> int | None:
        """Id of its process, None where it has none."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process, if there is none; it answers when it is ready."""
        if self._process is not None:
            return
        # Paths in front of what the worker inherits: it must import this very package, and compile, not interpret.
        path = os.pathsep.join(filter(None, (str(paths.PACKAGE.parent), os.environ.get("PYTHONPATH"))))
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        environment |= {"PYTHONPATH": path, "MAGE_ROOT": str(paths.ROOT), PARENT: str(os.getpid())}
        self._said = tempfile.TemporaryFile()  # noqa: SIM115, closed by end()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mage.tune.worker", self.role, self.place],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, start_new_session=True,
        )  # fmt: skip
        os.set_blocking(self._process.stdout.fileno(), False)
        self.hello, self._unread = None, b""
        self._deadline = time.monotonic() + START_S

    def ask(self, task: dict, timeout_s: float) -> None:
        """Give it a task; ``wait`` brings the answer. A start that is still under way is not counted."""
        self.start()
        self.task, self._allowed = task, timeout_s
        if self.hello is not None:
            self._deadline = time.monotonic() + timeout_s
        with contextlib.suppress(OSError):  # it has just ended: its answer says so
            self._process.stdin.write(json.dumps(task).encode() + b"\n")
            self._process.stdin.flush()

    def read(self) -> dict | None:
        """The answer, if it is there now: the worker's own, or ``{"ended": "died" | "hung", "reason": …}``.

        MageError for a worker that does not start, or starts without the device that it had.
        """
        answer = None
        try:
            while chunk := os.read(self._process.stdout.fileno(), 65536):
                self._unread += chunk
            gone = True
        except BlockingIOError:
            gone = False
        while b"\n" in self._unread and answer is None:
            line, _, self._unread = self._unread.partition(b"\n")
            said = json.loads(line)
            if "hello" in said:
                self.hello = said["hello"]
                if self.task and (lost := self.hello.get("why_not")):
                    raise MageError(f"the device was lost during the search: {lost}; finished candidates are kept")
                self._deadline = time.monotonic() + self._allowed if self.task else float("inf")
            else:
                answer = said
        if answer is None and gone:
            started, reason = self.hello is not None, self.end()
            if not started:
                self._not_started(reason)
            answer = {"ended": DIED, "reason": reason}
        elif answer is None and time.monotonic() > self._deadline:
            started = self.hello is not None
            self.end()
            if not started:
                self._not_started(f"{START_S:g} s went by")
            answer = {"ended": HUNG, "reason": f"no answer in {self._allowed:g} s"}
        if answer is not None:
            self.task, self._deadline = None, float("inf")
            if answer.get("leaves"):  # its device context is lost
                self.end()
        return answer

    def _not_started(self, reason: str) -> None:
        # No candidate's doing, so no row: this machine cannot search until it is mended.
        raise MageError(f"a {self.role} worker does not start: {reason}")

    def leave(self) -> None:
        """Tell the process to end, without waiting for it."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def end(self) -> str:
        """End the process and all that it started; how it ended, in words."""
        process, self._process, self.task, self._deadline = self._process, None, None, float("inf")
        if process is None:
            return "it was not running"
        try:
            if process.poll() is None:
                process.terminate()  # its guard ends all that is below it, and then itself
            try:
                code = process.wait(GUARD_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise MageError(f"process {process.pid} does not end, {END_S:.0f} s after it was killed: its device may hang") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        words = _ending(code)
        with self._said as said:
            said.seek(0)
            lines = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
        return f"{words}: {' '.join(lines[-1].split())[:200]}" if lines else words

    def fileno(self) -> int:
        return self._process.stdout.fileno()

    @property
    def waits_until(self) -> float:
        """``time.monotonic()`` at which it counts as hung."""
        return self._deadline


def _ending(code: int) -> str:
    """How a process ended; its guard gives a signal as a shell does, with 128 added."""
    number = -code if code < 0 else code - 128
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:
        return f"exit code {code}"


def wait(workers: Sequence[Worker], seconds: float = float("inf")) -> list[tuple[Worker, dict, dict]]:
    """(worker, its task, its answer) of every busy worker that has answered, ended or hung, within ``seconds``."""
    busy = [worker for worker in workers if not worker.idle]
    give_up, found = time.monotonic() + seconds, []
    with selectors.DefaultSelector() as selector:
        for worker in busy:
            selector.register(worker, selectors.EVENT_READ)
        while busy and not found and time.monotonic() < give_up:
            left = min([give_up, *(worker.waits_until for worker in busy)]) - time.monotonic()
            selector.select(None if left == float("inf") else max(0.0, left) + 0.01)
            for worker in busy:
                task = worker.task
                if (answer := worker.read()) is not None:
                    found.append((worker, task, answer))
    return found


def ready(worker: Worker) -> dict:
    """Start ``worker`` and wait for what it says of itself. MageError where it does not start."""
    worker.start()
    with selectors.DefaultSelector() as selector:
        selector.register(worker, selectors.EVENT_READ)
        while worker.hello is None:
            selector.select(max(0.0, worker.waits_until - time.monotonic()) + 0.01)
            worker.read()
    return worker.hello
