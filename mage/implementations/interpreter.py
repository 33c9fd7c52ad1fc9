"""Triton kernels on the CPU: Triton's interpreter, in a process of its own.

TRITON_INTERPRET has to be set before triton is imported, it changes what a kernel is for the whole
process, and it breaks offline compilation there. So this process never sets it: a worker does, which
stays for later calls and ends with this process. The interpreter runs one program after the other in
Python, so it says whether a kernel is right at small shapes, and nothing about time.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from mage import kernels, paths
from mage.errors import MageError

if TYPE_CHECKING:
    import torch

TIMEOUT_S = 300
"""Longest that one launch may take; importing torch and triton in a new worker is included."""

_lock = threading.Lock()
_worker: _Worker | None = None


class InterpreterError(MageError):
    """A kernel raised in the interpreter, or the worker ended under it."""


def why_not() -> str | None:
    """None if kernels can be interpreted on this machine, else the reason."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    # The interpreter of Triton 3.6 turns arrays of one element into ints, which NumPy 2.4 no longer does.
    triton, numpy = (tuple(map(int, importlib.metadata.version(name).split(".")[:2])) for name in ("triton", "numpy"))
    if triton < (3, 7) and numpy >= (2, 4):
        return "the interpreter of Triton 3.6 needs a NumPy below 2.4"
    return None


def launch(name: str | Path, tensors: list[torch.Tensor], config: dict[str, int] | None = None) -> None:
    """Run ``launch(*tensors, config=…)`` of a Triton kernel file on CPU tensors, which are changed in place.

    The file is read again by every launch, so an edited kernel is what runs. The inputs come back
    too: a kernel that writes to one is seen. InterpreterError carries what the kernel raised.
    """
    global _worker
    kernels.source(name)  # notes the use in this process: the worker's own notes are lost with it
    request = (str(kernels.path(name)), [tensor.numpy() for tensor in tensors], config)
    with _lock:
        if _worker is None or not _worker.alive():
            _worker = _Worker()
        try:
            answer = _worker.ask(request)
        except BaseException:
            # What is still under way cannot be told from the answer to the next question.
            _worker.end()
            raise
    if isinstance(answer, str):
        raise InterpreterError(f"{kernels.path(name).name} in Triton's interpreter: {answer}")
    for tensor, array in zip(tensors, answer, strict=True):
        tensor.numpy()[...] = array


class _Worker:
    def __init__(self):
        ours, theirs = socket.socketpair()
        with theirs:
            # Paths in front of what the worker inherits: it must import this very package.
            path = os.pathsep.join(filter(None, (str(paths.PACKAGE.parent), os.environ.get("PYTHONPATH"))))
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "mage.implementations.interpreter", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": path},
            )
        self.connection = Connection(ours.detach())
        atexit.register(self.end)

    def alive(self) -> bool:
        return self.process.poll() is None

    def ask(self, request):
        try:
            self.connection.send(request)
            if not self.connection.poll(TIMEOUT_S):
                raise InterpreterError(f"Triton's interpreter did not answer in {TIMEOUT_S} s: choose a smaller shape")
            return self.connection.recv()
        except (EOFError, OSError):
            code = self.process.wait(10)
            raise InterpreterError(f"Triton's interpreter ended with status {code} under {request[0]}") from None

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.close()
        if self.alive():
            self.process.kill()
        self.process.wait()
        atexit.unregister(self.end)


# -- in the worker ---------------------------------------------------------------------------------


def _serve(connection: Connection) -> None:
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    import torch

    torch.set_num_threads(1)
    while True:
        try:
            file, arrays, config = connection.recv()
        except (EOFError, OSError):
            return
        try:
            tensors = [torch.from_numpy(array) for array in arrays]
            module = kernels.load(Path(file))
            module.launch(*tensors, **({} if config is None else {"config": config}))
            answer = arrays
        except Exception as error:
            # The last line inside the kernel file is where the reader has to look.
            frames = traceback.extract_tb(error.__traceback__)
            line = next((frame.lineno for frame in reversed(frames) if frame.filename == file), None)
            answer = f"{type(error).__name__}: {error}" + (f" (line {line})" if line else "")
        connection.send(answer)


def _end_with_parent(parent: int) -> None:
    # A long launch does not look at its connection; without this it would outlive a killed parent.
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    # The module that holds the classes is the imported one, not this script's copy of it.
    from mage.implementations import interpreter

    interpreter._serve(Connection(int(sys.argv[1])))
