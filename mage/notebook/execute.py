"""Executes one note through papermill, in a kernel that is this Python and ends with the run.

Importing this module imports papermill: do so only when a note is about to run.
"""

from __future__ import annotations

import ast
import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# jsonschema compiles a grammar of IRIs for 2 s when this optional package is there; no notebook holds one.
_withheld = sys.modules.setdefault("rfc3987_syntax", None)
import nbformat  # noqa: E402
import papermill  # noqa: E402

if _withheld is None:
    del sys.modules["rfc3987_syntax"]

from jupyter_client.kernelspec import KernelSpecManager  # noqa: E402
from jupyter_client.manager import AsyncKernelManager  # noqa: E402
from nbclient.exceptions import CellTimeoutError, DeadKernelError  # noqa: E402
from papermill.clientwrap import PapermillNotebookClient  # noqa: E402
from papermill.engines import NBClientEngine, papermill_engines  # noqa: E402
from papermill.exceptions import PapermillExecutionError  # noqa: E402
from traitlets.config import Config  # noqa: E402

from mage import notes, paths  # noqa: E402
from mage.errors import NoteFailed  # noqa: E402
from mage.notebook import kernel_launcher, locks, verify  # noqa: E402
from mage.notebook.progress import Bar, Log  # noqa: E402
from mage.notebook.stop import Stop  # noqa: E402
from mage.notes.params import Request  # noqa: E402

KERNEL = "python3"
START_TIMEOUT_S = 120
"""Seconds that a kernel may take to answer for the first time, on a machine that is busy."""
OUTPUT_TIMEOUT_S = 60
"""Seconds that the outputs of a finished cell may take to arrive."""
END_TIMEOUT_S = 3
"""Seconds that a kernel may take to end by itself before it is ended."""

# The runner says what matters in one line of its own.
logging.getLogger("papermill").addHandler(logging.NullHandler())
logging.getLogger("papermill").propagate = False


class Session:
    """One execution: the notebook as far as it came, and what the kernel reported to have used."""

    def __init__(self, request: Request, folder: Path, stop: Stop, progress: Log | Bar):
        self.notebook: Any = None
        """The executed notebook, in part when the run failed; None when no kernel answered."""
        self.used: dict[str, str] = {}
        """Hash of each file that the kernel used, by path."""
        self.versions: dict[str, str] = {}
        self._request, self._folder, self._stop, self._progress = request, folder, stop, progress
        self._places: list[notes.Place | None] = []
        self._place: notes.Place | None = None
        self._process: subprocess.Popen | None = None

    @property
    def log(self) -> Path:
        """What the kernel's process itself wrote: a crash says its reason there."""
        return self._folder / "kernel.log"

    def run(self) -> None:
        """Execute the note. Raises NoteFailed in one line, or the reason for which the run was stopped."""
        request = self._request
        notebook = nbformat.reads(request.note.content.decode("utf-8"), as_version=4)
        # Whatever an editor wrote there, the kernel is this Python.
        notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": KERNEL}
        limit = f"the whole note took longer than {request.note_timeout_s:g} s; raise note_timeout_s in "
        limit += paths.shown(request.params.path)
        try:
            with self._stop.acting(self._end), self._stop.within(request.note_timeout_s, limit):
                try:
                    papermill.execute_notebook(
                        notebook,
                        # papermill formats the path as a template.
                        str(self._folder / "executed.ipynb").replace("{", "{{").replace("}", "}}"),
                        parameters={name: request.values[name] for name in request.note.parameters},
                        engine_name="mage",
                        kernel_name=KERNEL,
                        language="python",
                        progress_bar=False,
                        request_save_on_cell_execute=False,
                        autosave_cell_every=0,
                        session=self,
                    )
                except NoteFailed:
                    raise
                except Exception as error:
                    if self._stop.reason is None:
                        raise NoteFailed(self._described(error)) from error
        finally:
            self._progress.close()

    def execute(self, manager: Any) -> None:
        """What papermill's engine does with a notebook that it has prepared."""
        self.notebook = manager.nb
        for cell in manager.nb.cells:
            if "injected-parameters" in cell.metadata.tags:
                cell["id"] = "injected-parameters"  # papermill draws one at random
        self._places = notes.places(manager.nb.cells)
        # The paths of sockets must be short, and their folder private.
        self._sockets = Path(tempfile.mkdtemp(prefix="run-", dir=locks.runtime_dir()))
        kernel = self._kernel_manager()
        client = PapermillNotebookClient(
            manager,
            km=kernel,
            kernel_name=KERNEL,
            log=logging.getLogger("papermill"),
            timeout_func=lambda cell: self._request.cell_timeout_s,
            startup_timeout=START_TIMEOUT_S,
            shell_timeout_interval=1,
            iopub_timeout=OUTPUT_TIMEOUT_S,
            record_timing=False,
            on_cell_execute=self._begin,
            on_cell_executed=self._ended,
        )
        try:
            with open(self.log, "wb") as log:
                client.start_new_kernel(env=self._environment(), cwd=str(paths.ROOT), stdout=log, stderr=log)
            self._process = kernel.provisioner.process
            self._stop.check()
            client.start_new_kernel_client()
            client.execute()
            if not any(cell.metadata.papermill.get("exception") for cell in manager.nb.cells):
                self._ask(client)
            self._shut_down(client)
        finally:
            self._end_all(client, kernel)

    def _kernel_manager(self) -> AsyncKernelManager:
        """A manager that knows one kernel, whatever JUPYTER_PATH or a user's folders hold under its name."""
        specs = self._sockets / "kernels"
        (specs / KERNEL).mkdir(parents=True)
        spec = {
            "argv": [
                sys.executable,
                "-P",
                "-m",
                "mage.notebook.kernel_launcher",
                "-f",
                "{connection_file}",
            ],
            "display_name": "Python 3",
            "language": "python",
            "metadata": {"supported_encryption": ["curve"]},
        }
        (specs / KERNEL / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
        return AsyncKernelManager(
            kernel_name=KERNEL,
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(specs)], ensure_native_kernel=False),
            # Sockets in a private folder: no port can be taken by another kernel that starts at the same moment.
            transport="ipc",
            connection_file=str(self._sockets / "kernel.json"),
            config=Config({"KernelManager": {"transport_encryption": "auto"}}),
        )

    def _environment(self) -> dict[str, str]:
        """The kernel's environment: the caller's, but for what would change a note's outcome."""
        inherited = os.environ.get("PYTHONPATH")
        return {
            **{name: value for name, value in os.environ.items() if name != "PYTHONSTARTUP"},
            "PYTHONPATH": os.pathsep.join([str(paths.PACKAGE.parent), *([inherited] if inherited else [])]),
            "PYTHONHASHSEED": "0",
            "MAGE_ROOT": str(paths.ROOT),
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
            # A user's profile and start-up files are no part of a note.
            "IPYTHONDIR": str(self._sockets / "ipython"),
            # Without it the debugger, which nobody attaches here, warns about Python's frozen modules.
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
            kernel_launcher.PARENT: str(os.getpid()),
            locks.RUNNER: str(os.getpid()),
            kernel_launcher.FOLDER: str(self._sockets),
        }

    def _begin(self, cell: Any, cell_index: int) -> None:
        self._stop.check()
        self._place = self._places[cell_index]
        if "injected-parameters" not in cell.metadata.tags:
            self._progress.begin(self._place)

    def _ended(self, cell: Any, cell_index: int, execute_reply: dict) -> None:
        if "injected-parameters" not in cell.metadata.tags:
            self._progress.end(self._place)
        for payload in execute_reply["content"].get("payload") or []:
            if payload.get("source") == "ask_exit":
                raise NoteFailed(f"{self._place} ended the kernel early (quit or exit); a note runs to its last cell")

    def _ask(self, client: PapermillNotebookClient) -> None:
        """Let the kernel say what it used, while it is there."""
        asked = {"mage": "__import__('mage.provenance').provenance.report()"}
        reply = client.wait_for_reply(client.kc.execute("", silent=True, user_expressions=asked))
        answer = reply["content"].get("user_expressions", {}).get("mage", {})
        if answer.get("status") != "ok":
            raise NoteFailed(f"the kernel could not say which files it used: {answer.get('evalue', 'no answer')}")
        report = json.loads(ast.literal_eval(answer["data"]["text/plain"]))
        self.used, self.versions = report["files"], report["versions"]

    def _described(self, error: Exception) -> str:
        """One line for whatever papermill, nbclient or the system raised."""
        at = self._place or "the start"
        if isinstance(error, CellTimeoutError):
            if "IOPub" in str(error):
                return f"{at}: its outputs did not arrive within {OUTPUT_TIMEOUT_S} s; show less in one cell"
            raised = f"raise cell_timeout_s in {paths.shown(self._request.params.path)}"
            return f"{at} took longer than {self._request.cell_timeout_s:g} s; make it shorter or {raised}"
        if isinstance(error, DeadKernelError) or (self.notebook is not None and self._place is None):
            return self._death(at)
        if isinstance(error, PapermillExecutionError):
            return verify.first_error(self.notebook) or f"{at} raised {error.ename}: {error.evalue}"
        if isinstance(error, OSError):
            return f"{paths.shown(self._folder)}: cannot be written ({error.strerror or error}); make room or mend it"
        return f"{at}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"

    def _death(self, at: object) -> str:
        code = self._process.poll() if self._process else None
        how = "" if code is None else f", exit code {code}"
        if code is not None and code > 128:
            with contextlib.suppress(ValueError):
                name = signal.Signals(code - 128).name
                how = f", by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
        if self._place is None:
            said = (self.log.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
            return f"the kernel did not start{how}: {said}"
        return f"kernel died in {at}{how}; see failed.txt, then run that cell alone"

    def _end(self) -> None:
        """End the kernel at once, from wherever the run is; its guard takes every descendant along."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.terminate()

    def _shut_down(self, client: PapermillNotebookClient) -> None:
        """Let the kernel end by itself: what it registered for its exit is done."""
        client.kc.shutdown()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_TIMEOUT_S)

    def _end_all(self, client: PapermillNotebookClient, kernel: AsyncKernelManager) -> None:
        self._end()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_TIMEOUT_S)
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)  # in case the guard itself was killed
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_TIMEOUT_S)
        if client.kc is not None:
            client.kc.stop_channels()
        kernel.cleanup_resources()
        shutil.rmtree(self._sockets, ignore_errors=True)


class _Engine(NBClientEngine):
    """Hands the prepared notebook to the session that asked for it."""

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, *, session: Session, **_):
        session.execute(nb_man)


papermill_engines.register("mage", _Engine)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the warnings of the libraries that execute a note from the reader's terminal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
