"""The search of ``max-autotune``, its slow half moved aside: candidates are compiled in processes of their own.

A process compiles one operation in that mode while the session compiles and gates everything else. What it
chooses is thrown away, since others were on the device then: only the compiled candidates stay, in the compilers'
cache, where the session's own search finds them. One that takes too long is ended, and its row says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

from mage import paths
from mage.notes import vocabulary

LONG = ("matmul", "triangle")
"""Operations whose candidates are whole matrix products; the others' search takes a few seconds."""


class Candidates:
    """The processes of one session. ``ready(operation)`` waits for one and says why it is not to be waited for."""

    def __init__(self, wanted: dict[str, tuple[int, ...]], budget_s: float):
        self._until = time.monotonic() + budget_s
        self._budget = budget_s
        path = os.pathsep.join(filter(None, (str(paths.PACKAGE.parent), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path, "MAGE_ROOT": str(paths.ROOT)}
        self._said = {  # closed by end()
            operation: tempfile.TemporaryFile()  # noqa: SIM115
            for operation in wanted
            if operation in LONG
        }
        self._processes = {
            operation: subprocess.Popen(
                [sys.executable, "-P", "-m", "mage.experiment.max_autotune", operation, json.dumps(wanted[operation])],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,  # its compile workers end with it
            )
            for operation, said in self._said.items()
        }

    def ready(self, operation: str) -> str | None:
        """Wait for the candidates of ``operation``; the reason why its search is not to be started, or None."""
        process = self._processes.get(operation)
        if process is None:
            return None
        try:
            process.wait(max(0.0, self._until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return f"the search was not made: its candidates did not compile within {self._budget:.0f} s"
        if process.returncode:
            said = self._said[operation]
            said.seek(0)
            last = (said.read().decode(errors="replace").strip().splitlines() or ["nothing said"])[-1][:160]
            return f"the search was not made: compiling its candidates ended with status {process.returncode}: {last}"
        return None

    def end(self) -> None:
        """End what still runs, compile workers included."""
        for process in self._processes.values():
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()
        for said in self._said.values():
            said.close()


def compile_candidates(operation: str, dims: tuple[int, ...]) -> None:
    """Compile ``operation`` in the searching mode and forget what was chosen."""
    import torch
    from torch._inductor import config

    from mage import implementations, operations

    config.fx_graph_cache = False
    config.autotune_local_cache = False
    made = operations.get(operation).make_inputs(dims)
    with operations.strict_fp32():
        inputs = {name: tensor.to("cuda") for name, tensor in made.items()}
        implementations.prepare(operation, "pytorch-compiled", vocabulary.SEARCHING, inputs).run()
        torch.cuda.synchronize()


if __name__ == "__main__":
    compile_candidates(sys.argv[1], tuple(json.loads(sys.argv[2])))
