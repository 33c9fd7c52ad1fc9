"""What every test may use: a tiny tree of its own, `python -m mage` as a user starts it, and honest skips."""

import contextlib
import hashlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import pytest
from filelock import FileLock

REPOSITORY = Path(__file__).resolve().parent.parent

# What a note declares at least; a tiny note adds its own lines.
USUAL_PARAMETERS = """\
experiment: str = "tiny"  # the run that this report shows
operations: list[str] = ["matmul"]  # the operations to show
implementations: list[str] = ["pytorch"]  # the implementations to show
statistic: str = "median"  # how samples become one number
"""


# --- skips: only a test that is about to run may ask for its device or its browser -------------------------------


@cache
def _cuda_device() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


@cache
def _chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


# The files that take longest, in that order: they begin first, so that the last minutes have short ones for every process.
LONG = (
    "browser", "runner_failures", "tune", "kernels_cuda", "notes_content", "series", "field_cases", "lab", "cuda_build", "gated",
    "figures", "kernel", "hostcuda", "gate", "new_note", "census", "publication", "kernels_triton", "kernels_cutile",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    place = {f"test_{name}": number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONG)))


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and not _cuda_device():
        pytest.skip("no CUDA device")
    if item.get_closest_marker("browser") and not _chromium():
        pytest.skip("no chromium (apt-get install chromium)")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout under test."""
    return REPOSITORY


# --- a tiny tree -------------------------------------------------------------------------------------------------


@dataclass
class TinyTree:
    """A tree laid out like the repository, for MAGE_ROOT: notes of a few cells, without torch."""

    root: Path

    def __post_init__(self):
        for name in ("notebooks", "params", "kernels", "outputs/retained"):
            (self.root / name).mkdir(parents=True, exist_ok=True)

    def note(
        self,
        stem: str = "note-900-tiny",
        cells: list = (),
        *,
        parameters: str = "",
        usual_parameters: bool = True,
        title: str = "Tiny",
        figures: list[str] = (),
        tables: list[str] = (),
        kernelspec: dict | None = {"name": "python3", "display_name": "Python 3", "language": "python"},  # noqa: B006
    ) -> Path:
        """Write notebooks/<stem>.ipynb: a title, the parameters cell, then `cells`.

        A cell is source code, a (kind, source) pair with kind "markdown" or "code", or a whole cell as a dict.
        `parameters` is added to the usual ones, or stands alone with usual_parameters=False; None leaves the cell out.
        """
        source = (USUAL_PARAMETERS if usual_parameters else "") + (parameters or "")
        written = [_cell("markdown", f"# {title}\n\nDoes a tiny note run?", "title")]
        if parameters is not None:
            written.append(_cell("code", source.rstrip("\n"), "parameters", tags=["parameters"]))
        for number, cell in enumerate(cells, 1):
            if isinstance(cell, str):
                cell = ("code", cell)
            written.append(cell if isinstance(cell, dict) else _cell(*cell, f"cell-{number}"))
        metadata = {"language_info": {"name": "python"}}
        metadata["mage"] = {"title": title, "figures": list(figures), "tables": list(tables)}
        if kernelspec is not None:
            metadata["kernelspec"] = kernelspec
        path = self.root / "notebooks" / f"{stem}.ipynb"
        notebook = {"cells": written, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return path

    def params(self, experiment: str = "tiny", note: str = "note-900-tiny", text: str | None = None, **values) -> Path:
        """Write params/<experiment>.yaml: its note, its experiment and `values`; or `text` as it stands."""
        path = self.root / "params" / f"{experiment}.yaml"
        if text is None:
            keys = {"note": note, "experiment": experiment, **values}
            # A JSON value is a YAML 1.2 value, but plain words are what people write.
            text = "".join(
                f"# what {key} is\n{key}: {value if isinstance(value, str) else json.dumps(value)}\n"
                for key, value in keys.items()
            )
        path.write_text(text, encoding="utf-8")
        return path

    def output(self, experiment: str = "tiny") -> Path:
        """Where the runner publishes an experiment."""
        return self.root / "outputs" / experiment

    def published(self, experiment: str = "tiny") -> dict[str, str]:
        """File name -> sha256 of the published set, the failed copy left out."""
        folder = self.output(experiment)
        names = ("report.html", "notebook.ipynb", "provenance.json")
        return {name: _sha256(folder / name) for name in names if (folder / name).exists()}

    def copy(self, root: Path) -> "TinyTree":
        """The same tree, outputs included, at another place."""
        shutil.copytree(self.root, root, symlinks=True, dirs_exist_ok=True)
        return TinyTree(root)


def _cell(kind: str, source: str, name: str, tags: list[str] | None = None) -> dict:
    cell = {"cell_type": kind, "id": name, "metadata": {"tags": tags} if tags else {}, "source": source}
    return cell if kind == "markdown" else cell | {"execution_count": None, "outputs": []}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def tiny_tree(tmp_path) -> TinyTree:
    """An empty tree: write a note and a params file into it."""
    return TinyTree(tmp_path / "tree")


@pytest.fixture(scope="session")
def make_tree():
    """TinyTree itself, for a fixture that outlives one test: make_tree(root)."""
    return TinyTree


def _copy_of_the_repository(root: Path) -> TinyTree:
    made = TinyTree(root)
    for folder in ("notebooks", "params", "kernels", "outputs/retained"):
        shutil.copytree(REPOSITORY / folder, made.root / folder, dirs_exist_ok=True)
    return made


@pytest.fixture(scope="session")
def copied_tree(tmp_path_factory):
    """copied_tree(name): a tree with the repository's notes, params, kernels and retained evidence."""
    return lambda name: _copy_of_the_repository(tmp_path_factory.mktemp(name))


@cache
def _fresh_reports() -> frozenset[str]:
    """Experiments whose report lies in outputs/ already and is what a run today would give."""
    from mage.notebook import stale

    return frozenset(each.experiment for each in stale.statuses() if each.state == "fresh")


class NoteRun:
    """The run of a note in one of the processes of this test run; the others wait for what it left."""

    def __init__(self, ended: Path, started: "Started | None" = None):
        self._ended, self._result = ended, None
        if started:
            self._thread = threading.Thread(target=self._keep, args=(started,), daemon=True)
            self._thread.start()

    def _keep(self, started: "Started") -> None:
        new = self._ended.with_suffix(".new")
        new.write_text(json.dumps(asdict(started.wait())))
        os.replace(new, self._ended)

    def wait(self) -> "Result":
        if self._result is None:
            eventually(self._ended.exists, 240, f"the end of {self._ended.stem}")
            self._result = Result(**json.loads(self._ended.read_text()))
        return self._result


@pytest.fixture(scope="session")
def start_note(tmp_path_factory, start_mage):
    """start_note(experiment): the run of its note, to wait for, and the tree it is in, to read and not to change.

    Each is run once, whoever asks for it, in whichever process of this test run; and not at all where the report that
    lies in outputs/ is what a run today would give.
    """
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "notes-run-once"

    @cache
    def place() -> tuple[TinyTree, dict[str, str]]:
        folder.mkdir(exist_ok=True)
        with FileLock(folder / "tree.lock"):
            if not (folder / "tree").exists():
                _copy_of_the_repository(folder / "copying")
                os.replace(folder / "copying", folder / "tree")
        tree = TinyTree(folder / "tree")
        params = (tree.root / "params").glob("*.yaml")
        return tree, {file.stem: re.search(r"^note: *(\S+)", file.read_text("utf-8"), re.MULTILINE)[1] for file in params}

    @cache
    def start(experiment: str) -> tuple[NoteRun, TinyTree]:
        (tree, notes), ended = place(), folder / f"{experiment}.json"
        if experiment in _fresh_reports():
            ended.write_text(json.dumps(asdict(Result(0, "", ""))))
            return NoteRun(ended), TinyTree(REPOSITORY)
        try:
            (folder / f"{experiment}.claimed").touch(exist_ok=False)
        except FileExistsError:
            return NoteRun(ended), tree
        return NoteRun(ended, start_mage("run", notes[experiment], "-e", experiment, root=tree.root)), tree

    return start


# --- python -m mage ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """How a command ended and what it said."""

    rc: int
    stdout: str
    stderr: str
    left: tuple[int, ...] = ()  # processes of it that were still there 5 s after its end

    @property
    def said(self) -> str:
        return self.stdout + self.stderr

    @property
    def message(self) -> str:
        """The last line on stderr: what, where and what to do."""
        return self.stderr.rstrip("\n").rpartition("\n")[2]


def _environment(root: Path | None, extra: dict[str, str] | None) -> dict[str, str]:
    """The environment of this test run, without what would steer mage, make or matplotlib from outside."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAGE_", "MPLBACKEND", "PYTEST_", "MAKE", "MFLAGS"))}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    if root is not None:
        env["MAGE_ROOT"] = str(root)
    return env | (extra or {})


class Started:
    """A command that runs by itself; every process that it leaves is known by a word in its environment."""

    def __init__(self, folder: Path, command: tuple, root=None, env=None, cwd=None, **options):
        self.token = uuid.uuid4().hex
        self.out, self.err = folder / f"{self.token}.out", folder / f"{self.token}.err"
        environment = _environment(root, {"MAGE_TEST_FAMILY": self.token} | (env or {}))
        options = {"stdin": subprocess.DEVNULL, "start_new_session": True, "cwd": cwd or folder, "env": environment} | options
        with self.out.open("wb") as stdout, self.err.open("wb") as stderr:
            self.process = subprocess.Popen([*map(str, command)], **({"stdout": stdout, "stderr": stderr} | options))

    def wait(self, timeout: float = 240) -> Result:
        rc = self.process.wait(timeout)
        left = () if self.gone(5) else tuple(self.family())
        return Result(rc, self.out.read_text("utf-8", "replace"), self.err.read_text("utf-8", "replace"), left)

    def family(self) -> list[int]:
        """Ids of the processes, the command's own included, that carry its word and still run."""
        word, found = f"MAGE_TEST_FAMILY={self.token}".encode(), []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if word in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue  # gone, or a zombie: its environment went with it
        return found

    def gone(self, seconds: float) -> bool:
        """Whether every process of it ends within `seconds`."""
        deadline = time.monotonic() + seconds
        while self.family():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def end(self) -> None:
        """End what is left of it."""
        for pid in self.family():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(10)


@pytest.fixture(scope="session")
def start(tmp_path_factory):
    """start(*command, root=, env=, cwd=) starts any command; whatever is left of it ends with the session."""
    folder, started = tmp_path_factory.mktemp("working-directory"), []

    def run(*command, **options) -> Started:
        started.append(Started(folder, command, **options))
        return started[-1]

    yield run
    for each in started:
        each.end()


@pytest.fixture(scope="session")
def start_mage(start):
    """start_mage(*args, root=, env=, cwd=) starts `python -m mage` and returns at once."""
    return lambda *args, **options: start(sys.executable, "-m", "mage", *args, **options)


@pytest.fixture(scope="session")
def run_mage(start_mage):
    """run_mage(*args, root=, env=, cwd=) runs `python -m mage` to its end: rc, stdout, stderr."""

    def run(*args, timeout=240, **options) -> Result:
        started = start_mage(*args, **options)
        try:
            return started.wait(timeout)
        finally:
            started.end()

    return run


@pytest.fixture(scope="session")
def mage_on_terminal(start_mage):
    """mage_on_terminal(*args, columns=, env=, ...) runs `python -m mage` on a terminal of its own: how it ended, what it showed."""

    def run(*args, columns: int, env: dict | None = None, **options) -> tuple[Result, str]:
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, columns))
        env = {"TERM": "xterm", **(env or {})}
        started = start_mage(*args, stdin=theirs, stdout=theirs, stderr=theirs, env=env, **options)
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while piece := os.read(ours, 4096):
                seen += piece
        os.close(ours)
        return started.wait(), seen.decode("utf-8", "replace")

    return run


@pytest.fixture(scope="module")
def at_once(request):
    """outcome = at_once("test_name", play): plays the scenarios of one test in the background, several at a time.

    Most of a scenario is start-up and waiting, so some share the cores. Played are the values of the test's `scenario`
    parameter, those alone that were selected; outcome(scenario) waits for one of them and returns what play returned.
    """
    wanted = {}
    for item in request.session.items:
        if item.module is request.module and "scenario" in getattr(getattr(item, "callspec", None), "params", {}):
            wanted.setdefault((item.originalname, item.callspec.params["scenario"]), None)
    pool = ThreadPoolExecutor(max_workers=3)
    futures = {}

    def prepare(test: str, play):
        for key in wanted:
            if key[0] == test and key not in futures:
                futures[key] = pool.submit(play, key[1])
        return lambda scenario: futures[(test, scenario)].result(300)

    yield prepare
    pool.shutdown(cancel_futures=True)


def eventually(condition, seconds: float = 60, what: str = "it") -> None:
    """Wait for a condition that another process brings about; the limit is for a hang, not a timing claim."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.02)


@pytest.fixture(scope="session", name="eventually")
def _eventually():
    return eventually
