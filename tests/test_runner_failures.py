"""Whatever goes wrong: the right exit code, one line that says what, where and what to do, and the last good report as it was.

Every note here is a few cells without torch; papermill, nbclient and the kernels are the real ones.
"""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

PUBLISHED = {"report.html", "notebook.ipynb", "provenance.json"}

# The first cell of a note tells where its kernel runs; the note's parameter `out` says whom.
TELL = """\
import json, os, pathlib, sys
told = {"pid": os.getpid(), "prefix": sys.prefix, "cwd": os.getcwd(), "argv": sys.argv}
pathlib.Path(out, "kernel.json.new").write_text(json.dumps(told))
os.replace(pathlib.Path(out, "kernel.json.new"), pathlib.Path(out, "kernel.json"))
"""
OUT = 'out: str = "."  # where the note tells about its kernel\n'

# The smallest table that a report takes; a note may declare it.
TABLE = """\
from mage.views.display import View
class Stages(View):
    kind, id = "table", "stages"
    html = ('<div class="mage-table" role="region" tabindex="0" aria-labelledby="stages-caption"><table id="table-stages">'
            '<caption id="stages-caption">Stages</caption><thead><tr><th scope="col">stage</th><th scope="col">time, µs</th></tr>'
            '</thead><tbody><tr><th scope="row">first</th><td class="num">1.0</td></tr></tbody></table></div>')
Stages()
"""
OTHER_TABLE = TABLE.replace("stages", "others")


def message_of(result) -> str:
    """The one line for a person: the last of stderr, with nothing of a traceback before it."""
    assert "Traceback" not in result.stderr and "WARNING" not in result.stderr.upper(), result.stderr
    return result.message


def times(tree, experiment="tiny") -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in tree.output(experiment).iterdir() if path.name in PUBLISHED}


def leftovers(tree, experiment="tiny") -> set[str]:
    """Files of an output that are neither the published set nor the failed copy nor a lock."""
    names = {path.name for path in tree.output(experiment).iterdir()} if tree.output(experiment).is_dir() else set()
    return {name for name in names - PUBLISHED - {"failed.ipynb", "failed.txt"} if "lock" not in name}


@pytest.fixture(scope="session")
def good(tmp_path_factory, make_tree, run_mage):
    """A tree whose note ran well: the last good set that every failure must leave alone."""
    tree = make_tree(tmp_path_factory.mktemp("good") / "tree")
    tree.note(cells=[("markdown", "## The first step"), TELL, "print('well')"], parameters=OUT)
    tree.params(out=str(tree.root))
    result = run_mage("run", "note-900", root=tree.root)
    assert result.rc == 0, result.said
    assert set(tree.published()) == PUBLISHED and not leftovers(tree)
    return tree


@pytest.fixture
def tree(good, tmp_path):
    """A copy of the good tree, to break."""
    copy = good.copy(tmp_path / "tree")
    (copy.root / "kernel.json").unlink()
    return copy


def tell(tree) -> dict:
    return json.loads((tree.root / "kernel.json").read_text())


# --- what a note may do wrong while it runs ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Trouble:
    """A cell that fails a note, and what the message must say of it."""

    name: str
    cell: str | dict
    says: tuple[str, ...]
    params: tuple[tuple[str, object], ...] = ()
    tables: tuple[str, ...] = ()
    after: str = "print('went on')"

    def __repr__(self):
        return self.name


def tagged(source: str, tag: str) -> dict:
    cell = {"cell_type": "code", "id": "tagged", "source": source, "metadata": {"tags": [tag]}}
    return cell | {"outputs": [], "execution_count": None}


def page(html: str) -> str:
    return f"from IPython.display import HTML; HTML({html!r})"


SLEEP = "import time; time.sleep(600)"
TROUBLES = [
    Trouble("exception", "raise ValueError('no such stage')", (r"ValueError", r"no such stage", r"cell \d")),
    Trouble("syntax-error", "this is: not Python", (r"SyntaxError", r"cell \d")),
    Trouble("many-lines", "raise ValueError('first line\\nsecond line')", (r"ValueError", r"first line")),
    Trouble("silent-exception", "class Quiet(Exception): pass\nraise Quiet", (r"Quiet", r"cell \d")),
    Trouble("interrupt-inside", "raise KeyboardInterrupt", (r"KeyboardInterrupt", r"cell \d")),
    Trouble("sys-exit", "import sys; sys.exit(0)", (r"SystemExit|exit", r"cell \d")),
    Trouble("sys-exit-in-last-cell", "import sys; sys.exit()", (r"SystemExit|exit", r"cell \d"), after=""),
    Trouble("quit", "quit()", (r"exit|quit|died|stopped", r"cell \d")),
    Trouble("os-exit", "os._exit(0)", (r"kernel died in cell \d",)),
    Trouble("killed", "import signal; os.kill(os.getpid(), signal.SIGKILL)", (r"kernel died in cell \d",)),
    Trouble("killed-in-last-cell", "import signal; os.kill(os.getpid(), signal.SIGKILL)", (r"kernel died in cell \d",), after=""),
    Trouble("segfault", "import ctypes; ctypes.string_at(0)", (r"kernel died in cell \d",)),
    Trouble("abort", "os.abort()", (r"kernel died in cell \d",)),
    Trouble("asks", "input('which stage? ')", (r"cell \d",)),
    Trouble("cell-timeout", SLEEP, (r"cell \d", r"3 s"), params=(("cell_timeout_s", 3),)),
    Trouble(
        "cell-timeout-deaf",  # a cell that no interrupt reaches: inside a C call that holds the interpreter
        "import ctypes; ctypes.PyDLL(None).sleep(600)",
        (r"cell \d", r"3 s"),
        params=(("cell_timeout_s", 3),),
    ),
    Trouble("note-timeout", SLEEP, (r"note", r"6 s"), params=(("note_timeout_s", 6),)),
    Trouble("note-timeout-deaf", "import ctypes; ctypes.PyDLL(None).sleep(600)", (r"note", r"6 s"), params=(("note_timeout_s", 6),)),
    Trouble("lost-table", "print('no table')", (r"stages", r"table"), tables=("stages",)),
    Trouble("table-twice", TABLE.replace("\nStages()", "\ndisplay(Stages())\nStages()"), (r"stages", r"2|twice"), tables=("stages",)),
    Trouble("undeclared-table", TABLE, (r"stages",)),
    Trouble("wrong-table", OTHER_TABLE, (r"stages|others",), tables=("stages",)),
    Trouble("tolerated-error", tagged("raise ValueError('hushed up')", "raises-exception"), (r"ValueError", r"hushed up")),
    Trouble("skipped-cell", tagged("print('never')", "skip-execution"), (r"cell \d",)),
    Trouble("bad-picture", page('<img src="data:image/png;base64,AA">'), (r"alt|description",)),
    Trouble("script", page("<script>1</script>"), (r"script",)),
    Trouble("external", page('<img src="http://a.b/c.png" alt="twenty letters or more">'), (r"http|external",)),
]


@pytest.mark.parametrize("scenario", TROUBLES, ids=repr)
def test_a_note_that_fails_leaves_the_last_good_report(scenario, good, at_once, run_mage, tmp_path_factory):
    def play(trouble):
        tree = good.copy(tmp_path_factory.mktemp(trouble.name) / "tree")
        (tree.root / "kernel.json").unlink()
        tree.note(cells=[("markdown", "## The first step"), TELL, trouble.cell, trouble.after], parameters=OUT, tables=trouble.tables)
        tree.params(out=str(tree.root), **dict(trouble.params))
        before = tree.published(), times(tree)
        return tree, before, run_mage("run", "note-900", root=tree.root)

    tree, before, result = at_once("test_a_note_that_fails_leaves_the_last_good_report", play)(scenario)
    assert result.rc == 1, result.said
    message = message_of(result)
    for said in scenario.says:
        assert re.search(said, message), f"{said!r} is not in the message: {message}"
    assert "note-900-tiny" in message or "tiny" in message, message
    assert (tree.published(), times(tree)) == before, "the last good set changed"
    assert not leftovers(tree)
    assert tell(tree)["pid"], "the note did run"
    assert result.left == (), "a process of the run is left"
    # The failed copy lies beside, for the one who mends it.
    assert (tree.output() / "failed.ipynb").exists()
    assert re.search(scenario.says[0], (tree.output() / "failed.txt").read_text("utf-8"))


def test_a_first_failure_renders_nothing(tiny_tree, run_mage):
    tiny_tree.note(cells=["raise ValueError('first try')"])
    tiny_tree.params()
    assert run_mage("run", "note-900", root=tiny_tree.root).rc == 1
    assert tiny_tree.published() == {}, "an unverified notebook was rendered"
    assert (tiny_tree.output() / "failed.ipynb").exists()


def test_a_good_run_clears_the_failed_copy(tree, run_mage):
    tree.note(cells=["raise ValueError('once')"], parameters=OUT)
    assert run_mage("run", "note-900", root=tree.root).rc == 1
    tree.note(cells=[TELL], parameters=OUT)
    assert run_mage("run", "note-900", root=tree.root).rc == 0
    assert not (tree.output() / "failed.ipynb").exists() and not (tree.output() / "failed.txt").exists()


def test_one_failed_experiment_does_not_hide_another(tree, run_mage):
    cells = [TELL, "if statistic == 'mean': raise ValueError('no means')"]
    tree.note(cells=cells, parameters=OUT)
    tree.params("a-fails", out=str(tree.root), statistic="mean")
    tree.params("b-works", out=str(tree.root))
    result = run_mage("run", "note-900", root=tree.root)
    assert result.rc == 1
    assert "a-fails" in result.stderr and "no means" in result.stderr
    assert set(tree.published("b-works")) == PUBLISHED and tree.published("a-fails") == {}


# --- signals -----------------------------------------------------------------------------------------------------

BUSY = {
    "sleeps": SLEEP,
    # Inside one C call with the interpreter held: no Python code of the kernel runs any more.
    "deaf": "import ctypes; ctypes.PyDLL(None).sleep(600)",
    # A compiler or a worker that the note started, and that waits for nothing.
    "child": "import subprocess; subprocess.run(['sleep', '600'])",
    "stubborn": "import signal, time\nfor s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)\n"
    "while True: time.sleep(1)",
}
ENDS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGKILL: -9}


@pytest.mark.parametrize("scenario", [(s, busy) for s in ENDS for busy in BUSY], ids=lambda s: f"{s[0].name}-{s[1]}")
def test_a_signal_to_the_runner_ends_everything_within_5_s(scenario, good, at_once, start_mage, run_mage, eventually, tmp_path_factory):
    def play(scenario):
        number, busy = scenario
        tree = good.copy(tmp_path_factory.mktemp("signal") / "tree")
        (tree.root / "kernel.json").unlink()
        tree.note(cells=[TELL, BUSY[busy]], parameters=OUT)
        tree.params(out=str(tree.root))
        before = tree.published(), times(tree)
        started = start_mage("run", "note-900", root=tree.root)
        eventually((tree.root / "kernel.json").exists, what="the first cell")
        if busy == "child":
            eventually(lambda: len(started.family()) > 2, what="the note's child")
        else:
            time.sleep(0.3)  # into the second cell; earlier is as good a moment
        os.kill(started.process.pid, number)
        signalled = time.monotonic()
        gone = started.gone(5)
        result = started.wait(60)
        took = time.monotonic() - signalled
        after = tree.published(), times(tree)
        # What the killed run held must not keep the next one out.
        tree.note(cells=[TELL], parameters=OUT)
        return before, after, gone, result, took, run_mage("run", "note-900", root=tree.root), leftovers(tree)

    outcome = at_once("test_a_signal_to_the_runner_ends_everything_within_5_s", play)
    before, after, gone, result, _, again, left = outcome(scenario)
    assert gone, "a process of the run was there 5 s after the signal"
    assert result.rc == ENDS[scenario[0]], result.said
    if scenario[0] != signal.SIGKILL:
        message = message_of(result)
        assert re.search(r"interrupted|terminated|hung up|stopped", message, re.IGNORECASE), message
    assert after == before, "the last good set changed"
    assert again.rc == 0, again.said
    assert not left, "the run left a temporary file for good"


HALF_ENDED = """\
import ctypes, os, pathlib, platform, signal, subprocess, sys, threading, time
from mage.notebook import kernel_launcher
signal.pthread_sigmask(signal.SIG_BLOCK, kernel_launcher.WATCHED)
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
working = os.fork()
if working:
    sys.exit(kernel_launcher.watch(working))
subprocess.Popen(["sleep", "600"])
threading.Thread(target=time.sleep, args=(600,)).start()
pathlib.Path(sys.argv[1]).touch()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # exit of this thread, not of the process
"""


def test_a_process_whose_first_thread_has_ended_is_ended_with_its_children(start, eventually, tmp_path):
    """So does every process of several threads that is killed, for a moment; its children must not get lost in it."""
    started = start(sys.executable, "-c", HALF_ENDED, str(tmp_path / "there"))
    eventually((tmp_path / "there").exists, what="the process with a child")

    (working,) = Path(f"/proc/{started.process.pid}/task/{started.process.pid}/children").read_text().split()
    eventually(lambda: " Z " in Path(f"/proc/{working}/stat").read_text(), what="the end of the first thread")
    os.kill(started.process.pid, signal.SIGTERM)
    assert started.process.wait(60) == 128 + signal.SIGKILL
    assert started.gone(10), "the child outlived its guard"


def test_interrupt_from_the_keyboard_reaches_kernel_and_runner_alike(tree, start_mage, eventually):
    """A terminal sends SIGINT to the whole group: the kernel gets it too, and still the run ends as interrupted."""
    tree.note(cells=[TELL, SLEEP], parameters=OUT)
    before = tree.published()
    tree.params(out=str(tree.root))
    started = start_mage("run", "note-900", root=tree.root)
    eventually((tree.root / "kernel.json").exists, what="the first cell")
    os.killpg(started.process.pid, signal.SIGINT)
    result = started.wait(60)
    assert result.rc == 130 and result.left == ()
    assert "Traceback" not in result.stderr
    assert tree.published() == before


# --- the disk ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(folder: Path, size: int):
    """`folder` on a file system of its own of `size` bytes, its files copied there; False where that is not allowed."""
    aside = folder.with_name(folder.name + "-aside")
    shutil.copytree(folder, aside, symlinks=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        if mounted:
            shutil.copytree(aside, folder, symlinks=True, dirs_exist_ok=True)
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_the_last_good_report(tree, run_mage):
    tree.note(cells=[TELL, "print('many words ' * 40_000)"], parameters=OUT)
    tree.params(out=str(tree.root))
    before = tree.published()
    with small_disk(tree.root / "outputs", 384 * 1024) as small:
        limits = {}
        if not small:
            limits["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (128 * 1024, 128 * 1024))
        result = run_mage("run", "note-900", root=tree.root, **limits)
        assert tree.published() == before
        assert not leftovers(tree)
    assert result.rc == 1, result.said
    assert re.search(r"[Nn]o space left|disk|too large", message_of(result)), result.stderr
    assert result.left == ()


@pytest.mark.parametrize("scenario", sorted(PUBLISHED))
def test_the_set_is_replaced_together_or_not_at_all(scenario, good, at_once, run_mage, tmp_path_factory):
    """One file of the set cannot be replaced (it is immutable): then none is."""

    def play(name):
        tree = good.copy(tmp_path_factory.mktemp("immutable") / "tree")
        tree.note(cells=[TELL, "print('another result')"], parameters=OUT)
        before, fixed = tree.published(), tree.output() / name
        if subprocess.run(["chattr", "+i", str(fixed)], capture_output=True).returncode:
            return None
        try:
            result, after = run_mage("run", "note-900", root=tree.root), tree.published()
        finally:
            subprocess.run(["chattr", "-i", str(fixed)], check=True)
        return before, result, after, run_mage("run", "note-900", root=tree.root), tree.published(), leftovers(tree)

    outcome = at_once("test_the_set_is_replaced_together_or_not_at_all", play)(scenario)
    if outcome is None:
        pytest.skip("no file can be made immutable here (chattr +i needs root and a file system that knows it)")
    before, result, after, again, at_last, left = outcome
    assert result.rc == 1, result.said
    assert scenario in message_of(result) or "tiny" in message_of(result)
    assert after == before, "the set is half old, half new"
    assert again.rc == 0, again.said
    assert all(at_last[name] != before[name] for name in PUBLISHED), "the next run did not publish the whole set"
    assert not left


# --- refusals: before a kernel starts ----------------------------------------------------------------------------

TYPED = """\
rounds: int = 12  # rounds to take
scale: float = 0.5  # standard deviation of the inputs
cold: bool = False  # evict the cache before each call
tile: list[int] = [64, 64]  # the tile's sides
word: str = "a"  # a word
time: str = "a"  # another
words: list[str] = []  # more of them
"""
HEAD = "note: note-900-tiny\nexperiment: tiny\n"
HEAVY = re.compile(r"^import time:.*\|\s*(torch|papermill|nbclient|nbconvert|ipykernel|jupyter_client|triton)$", re.MULTILINE)


@pytest.fixture
def refused(tree, run_mage):
    """refused(*args) runs the request and checks that it was turned away at the door; returns the message."""

    def refuse(*args, **env) -> str:
        before = tree.published(), times(tree), sorted(p.name for p in tree.output().iterdir())
        result = run_mage(*args, root=tree.root, env={"PYTHONPROFILEIMPORTTIME": "1"} | env)
        lines = [line for line in result.stderr.splitlines() if not line.startswith("import time:")]
        assert result.rc == 2, "\n".join([f"exit {result.rc}", *lines])
        assert len(lines) == 1, f"one line, not: {lines}"
        assert not HEAVY.search(result.stderr), f"imported {HEAVY.search(result.stderr)[1]} to refuse a request"
        assert not (tree.root / "kernel.json").exists(), "a kernel was started"
        assert (tree.published(), times(tree), sorted(p.name for p in tree.output().iterdir())) == before
        return lines[0]

    tree.note(cells=[TELL], parameters=OUT + TYPED)
    return refuse


WRONG_PARAMS = {
    "misspelt": ("ronds: 3", ["ronds", "rounds", "tiny"]),
    "upper-case": ("Rounds: 3", ["Rounds", "rounds"]),
    "word-for-int": ("rounds: twelve", ["rounds", r"\bint", "twelve"]),
    "quoted-int": ('rounds: "12"', ["rounds", r"\bint"]),
    "fraction-for-int": ("rounds: 12.5", ["rounds", r"\bint", "12.5"]),
    "whole-float-for-int": ("rounds: 12.0", ["rounds", r"\bint"]),
    "bool-for-int": ("rounds: true", ["rounds", r"\bint"]),
    "nothing-for-int": ("rounds:", ["rounds", r"\bint"]),
    "sexagesimal": ("rounds: 1:30", ["rounds", r"\bint", "1:30"]),
    "on-for-bool": ("cold: on", ["cold", r"\bbool"]),
    "yes-for-bool": ("cold: yes", ["cold", r"\bbool"]),
    "int-for-bool": ("cold: 1", ["cold", r"\bbool"]),
    "number-for-word": ("word: 12", ["word", r"\bstr"]),
    "bool-for-word": ("word: true", ["word", r"\bstr"]),
    "nothing-for-word": ("word:", ["word", r"\bstr"]),
    "mapping-for-word": ("word: {a: 1}", ["word", r"\bstr"]),
    "word-for-float": ("scale: half", ["scale", r"\bfloat"]),
    "one-for-list": ("tile: 64", ["tile", r"\blist"]),
    "words-in-list": ('tile: [64, "64"]', ["tile", r"\bint"]),
    "operation-for-operations": ("operations: matmul", ["operations", r"\blist"]),
    "duplicate-key": ("rounds: 3\nrounds: 4", ["rounds", "tiny.yaml"]),
    "tab": ("tile:\n\t- 64", ["tiny.yaml", r"line \d|tab"]),
    "broken-yaml": ("tile: [64,", ["tiny.yaml"]),
    "python-object": ("word: !!python/object/apply:os.getcwd []", ["tiny.yaml|word"]),
    "two-documents": ("---\nrounds: 3", ["tiny.yaml"]),
    "key-is-no-word": ("3: 4", ["tiny.yaml"]),
    "bad-cell-limit": ("cell_timeout_s: soon", ["cell_timeout_s"]),
    "negative-note-limit": ("note_timeout_s: -1", ["note_timeout_s"]),
    "misspelt-limit": ("cell_timeout: 3", ["cell_timeout", "cell_timeout_s"]),
}


@pytest.mark.parametrize("text, says", WRONG_PARAMS.values(), ids=WRONG_PARAMS)
def test_a_wrong_params_file_is_refused(tree, refused, text, says):
    tree.params(text=HEAD + text + "\n")
    message = refused("run", "note-900")
    for said in says:
        assert re.search(said, message), f"{said!r} is not in the message: {message}"


WRONG_FILES = {
    "empty": (b"", ["tiny.yaml"]),
    "comments-only": (b"# nothing yet\n", ["tiny.yaml"]),
    "a-list": (b"- note: note-900-tiny\n", ["tiny.yaml"]),
    "a-word": (b"note-900-tiny\n", ["tiny.yaml"]),
    "not-utf-8": (b"note: note-900-tiny\nexperiment: tiny\nword: \xff\xfe\n", ["tiny.yaml"]),
    "no-note": (b"experiment: tiny\nrounds: 3\n", ["tiny.yaml", "note"]),
    "misspelt-note": (b"note: note-900-tinny\nexperiment: tiny\n", ["note-900-tinny", "note-900-tiny", "tiny.yaml"]),
    "another-experiment": (b"note: note-900-tiny\nexperiment: other\n", ["tiny.yaml", "experiment"]),
}


@pytest.mark.parametrize("content, says", WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_params_file_that_is_none_is_refused(tree, refused, content, says):
    (tree.root / "params/tiny.yaml").write_bytes(content)
    message = refused("run", "note-900", "-e", "tiny")
    for said in says:
        assert re.search(said, message), f"{said!r} is not in the message: {message}"


WRONG_REQUESTS = {
    "misspelt-parameter": (["note-900", "-p", "ronds=3"], ["ronds", "rounds"]),
    "wrong-type": (["note-900", "-p", "rounds=twelve"], ["rounds", r"\bint", "twelve"]),
    "no-value": (["note-900", "-p", "rounds"], ["rounds", "="]),
    "no-name": (["note-900", "-p", "=3"], ["="]),
    "empty-value": (["note-900", "-p", "rounds="], ["rounds", r"\bint"]),
    "bad-list": (["note-900", "-p", "tile=[64,"], ["tile"]),
    "unknown-note": (["note-999"], ["note-999", "note-900"]),
    "unknown-slug": (["note-900-tinny"], ["note-900-tinny", "note-900-tiny"]),
    "unknown-experiment": (["note-900", "-e", "tinny"], ["tinny", "tiny"]),
    "no-note": ([], []),
    "unknown-option": (["note-900", "--rounds", "3"], ["--rounds"]),
}


@pytest.mark.parametrize("args, says", WRONG_REQUESTS.values(), ids=WRONG_REQUESTS)
def test_a_wrong_request_is_refused(refused, args, says):
    message = refused("run", *args)
    for said in says:
        assert re.search(said, message), f"{said!r} is not in the message: {message}"


def test_a_parameter_that_two_notes_would_take_is_refused(tree, refused):
    tree.note("note-900-twin", cells=[TELL], parameters=OUT + TYPED)
    tree.params("twin", note="note-900-twin", out=str(tree.root))
    message = refused("run", "note-900", "-p", "rounds=3")
    assert "note-900-tiny" in message and "note-900-twin" in message


WRONG_CELLS = {
    "none": dict(parameters=None),
    "two": dict(parameters=TYPED, cells=[tagged("other: int = 3  # another", "parameters"), TELL]),
    "not-first": dict(parameters=None, cells=["import json", tagged(OUT, "parameters"), TELL]),
    "no-annotation": dict(parameters="rounds = 12  # rounds\n"),
    "no-value": dict(parameters="rounds: int  # rounds\n"),
    "a-call": dict(parameters="rounds: int = len('abc')  # rounds\n"),
    "a-name": dict(parameters="rounds: int = 12  # rounds\nmore: int = rounds  # more\n"),
    "an-import": dict(parameters="import os\n"),
    "an-f-string": dict(parameters='word: str = f"{1}"  # a word\n'),
    "two-names": dict(parameters="a, b = 1, 2  # two\n"),
    "same-name-twice": dict(parameters="rounds: int = 12  # rounds\nrounds: int = 13  # again\n"),
    "value-not-of-its-type": dict(parameters='rounds: int = "12"  # rounds\n'),
    "unknown-type": dict(parameters="rounds: whole = 12  # rounds\n"),
    "reserved-name": dict(parameters="cell_timeout_s: int = 12  # a limit\n"),
    "syntax-error": dict(parameters="rounds: int = = 12  # rounds\n"),
    "markdown": dict(
        parameters=None,
        cells=[{"cell_type": "markdown", "id": "p", "metadata": {"tags": ["parameters"]}, "source": OUT}, TELL],
    ),
}


@pytest.mark.parametrize("how", WRONG_CELLS.values(), ids=WRONG_CELLS)
def test_a_note_without_one_well_formed_parameters_cell_is_refused(tree, refused, how):
    tree.note(**({"cells": [TELL]} | how))
    tree.params()
    message = refused("run", "note-900")
    assert "note-900-tiny" in message and "parameter" in message


def test_a_file_that_is_no_notebook_is_refused(tree, refused):
    (tree.root / "notebooks/note-900-tiny.ipynb").write_text('{"cells": [')
    assert "note-900-tiny" in refused("run", "note-900")


def test_a_note_without_a_params_file_is_refused(tree, refused):
    (tree.root / "params/tiny.yaml").unlink()
    message = refused("run", "note-900")
    assert "note-900" in message and "params" in message


def test_values_arrive_as_they_were_written(tree, run_mage):
    """YAML 1.2, checked types: no word becomes a bool, no number another number, no date a date."""
    show = 'pathlib.Path(out, "seen.json").write_text(json.dumps([rounds, scale, cold, tile, word, time, words, "µs"]))'
    tree.note(cells=[TELL, show], parameters=OUT + TYPED)
    text = HEAD + f'out: "{tree.root}"\nrounds: 0o17\nscale: 1\ncold: true\ntile: [16, 8]\nword: no\ntime: "1:30"\n'
    tree.params(text=text + "words: [on, off, y, n, ~x, 'µ']\n")
    result = run_mage("run", "note-900", "-p", "tile=[4, 2]", root=tree.root)
    assert result.rc == 0, result.said
    seen = json.loads((tree.root / "seen.json").read_text())
    assert seen == [15, 1.0, True, [4, 2], "no", "1:30", ["on", "off", "y", "n", "~x", "µ"], "µs"]
    assert isinstance(seen[1], float)
    provenance = json.loads((tree.output() / "provenance.json").read_text("utf-8"))
    assert provenance["params"]["tile"] == [4, 2] and provenance["params"]["word"] == "no"


def test_a_leading_zero_is_never_octal(tree, run_mage):
    """`010` is eight in YAML 1.1 and ten in 1.2: it is ten here, or refused."""
    tree.note(cells=[TELL, 'pathlib.Path(out, "seen.json").write_text(json.dumps(rounds))'], parameters=OUT + TYPED)
    tree.params(text=HEAD + f'out: "{tree.root}"\nrounds: 010\n')
    result = run_mage("run", "note-900", root=tree.root)
    assert result.rc == 2 or json.loads((tree.root / "seen.json").read_text()) == 10


def test_params_lists_name_type_default_and_meaning(tree, run_mage):
    tree.note(cells=[TELL], parameters=OUT + TYPED)
    for name in ("note-900", "note-900-tiny"):
        result = run_mage("params", name, root=tree.root, env={"PYTHONPROFILEIMPORTTIME": "1"})
        assert result.rc == 0, result.said
        assert not HEAVY.search(result.stderr)
        rows = result.stdout.splitlines()
        for said in (("rounds", "int", "12", "rounds to take"), ("tile", "list[int]", "[64, 64]", "the tile's sides")):
            assert any(all(part in row for part in said) for row in rows), f"{said} in {result.stdout}"


# --- locks -------------------------------------------------------------------------------------------------------

WAIT = 'import time\nwhile not pathlib.Path(out, "go").exists(): time.sleep(0.05)\n'


def test_of_runs_on_one_output_one_finishes_and_the_others_name_it(tree, start_mage, eventually):
    tree.note(cells=[TELL, WAIT, "print('held')"], parameters=OUT)
    tree.params(out=str(tree.root))
    before = tree.published()
    holder = start_mage("run", "note-900", root=tree.root)
    eventually((tree.root / "kernel.json").exists, what="the holder's first cell")
    others = [start_mage("run", "note-900", root=tree.root) for _ in range(7)]
    for other in others:
        result = other.wait(120)
        assert result.rc == 3, result.said
        assert str(holder.process.pid) in message_of(result) and "tiny" in result.message
        assert not re.search(r"cell \d", result.said), "a busy run executes nothing"
    assert tree.published() == before
    (tree.root / "go").touch()
    result = holder.wait(120)
    assert result.rc == 0, result.said
    assert set(tree.published()) == PUBLISHED and tree.published() != before and not leftovers(tree)


def test_notes_with_different_outputs_run_side_by_side(tiny_tree, start_mage):
    names = [f"tiny-{n}" for n in range(8)]
    tiny_tree.note(cells=["print('I am', experiment)"])
    for name in names:
        tiny_tree.params(name)
    started = [start_mage("run", "note-900", "-e", name, root=tiny_tree.root) for name in names]
    for name, each in zip(names, started, strict=True):
        result = each.wait(240)
        assert result.rc == 0, result.said
        assert "WARNING" not in result.stderr.upper()
        assert f"I am {name}" in (tiny_tree.output(name) / "report.html").read_text("utf-8")
        assert json.loads((tiny_tree.output(name) / "provenance.json").read_text("utf-8"))["experiment"] == name
    index = (tiny_tree.root / "outputs/index.html").read_text("utf-8")
    assert all(f"{name}/report.html" in index for name in names), "the index lacks a report that was published at the same time"


def test_a_lock_file_that_nobody_holds_blocks_nobody(tree, start_mage, run_mage, eventually):
    tree.note(cells=[TELL, SLEEP], parameters=OUT)
    tree.params(out=str(tree.root))
    started = start_mage("run", "note-900", root=tree.root)
    eventually((tree.root / "kernel.json").exists, what="the first cell")
    os.kill(started.process.pid, signal.SIGKILL)
    started.wait()
    tree.note(cells=[TELL], parameters=OUT)
    assert run_mage("run", "note-900", root=tree.root).rc == 0


# --- where and how it is started ---------------------------------------------------------------------------------


def test_the_working_directory_does_not_matter(good, run_mage, tmp_path):
    """A directory with a space and a letter beyond ASCII for the tree; from inside it, from /, and from one that is gone."""
    tree = good.copy(tmp_path / "a trée of notes")
    show = 'from mage import paths\npathlib.Path(out, "seen.json").write_text(json.dumps([str(paths.ROOT), str(paths.KERNELS)]))'
    tree.note(cells=[TELL, show], parameters=OUT)
    tree.params(out=f'"{tree.root}"')
    told = []
    for cwd in (tree.root / "notebooks", "/"):
        result = run_mage("run", "note-900", root=tree.root, cwd=cwd)
        assert result.rc == 0, result.said
        assert json.loads((tree.root / "seen.json").read_text()) == [str(tree.root), str(tree.root / "kernels")]
        told.append(tell(tree)["cwd"])
    assert told[0] == told[1], "a note's own directory depends on where the runner was started"


def test_a_working_directory_that_is_gone_does_no_harm(tree, start, tmp_path):
    tree.note(cells=[TELL], parameters=OUT)
    tree.params(out=str(tree.root))
    gone = tmp_path / "gone"
    gone.mkdir()
    result = start("sh", "-c", f'rmdir "{gone}"; exec "{sys.executable}" -m mage run note-900', root=tree.root, cwd=gone).wait()
    assert result.rc == 0, result.said


KERNELSPECS = {
    "venv": {"name": ".venv", "display_name": ".venv (Python 3.9)", "language": "python"},
    "none": None,
    "other-language": {"name": "ir", "display_name": "R", "language": "R"},
    "empty": {},
}


@pytest.mark.parametrize("scenario", KERNELSPECS)
def test_any_kernelspec_runs_in_the_python_of_the_runner(scenario, good, at_once, run_mage, tmp_path_factory):
    def play(name):
        tree = good.copy(tmp_path_factory.mktemp("spec") / "tree")
        tree.note(cells=[TELL], parameters=OUT, kernelspec=KERNELSPECS[name])
        tree.params(out=str(tree.root))
        return tree, run_mage("run", "note-900", root=tree.root)

    tree, result = at_once("test_any_kernelspec_runs_in_the_python_of_the_runner", play)(scenario)
    assert result.rc == 0, result.said
    assert tell(tree)["prefix"] == sys.prefix


def test_a_kernel_that_shadows_python3_is_not_used(tree, run_mage, tmp_path):
    """JUPYTER_PATH comes before the environment's own kernels: a python3 found there must not run the note."""
    spec = tmp_path / "jupyter/kernels/python3"
    spec.mkdir(parents=True)
    trap = f'touch "{tmp_path}/used"; exec "{sys.executable}" -m ipykernel_launcher -f "$0"'
    (spec / "kernel.json").write_text(
        json.dumps({"argv": ["/bin/sh", "-c", trap, "{connection_file}"], "display_name": "Python 3", "language": "python"})
    )
    tree.note(cells=[TELL], parameters=OUT)
    tree.params(out=str(tree.root))
    result = run_mage("run", "note-900", root=tree.root, env={"JUPYTER_PATH": str(tmp_path / "jupyter")})
    assert not (tmp_path / "used").exists(), "the shadowing kernel was started"
    assert result.rc == 0, result.said
    assert tell(tree)["prefix"] == sys.prefix


# --- what a person sees while it runs ----------------------------------------------------------------------------

STEPS = [
    ("markdown", "## Warming up"),
    TELL,
    ("markdown", "## Adding things"),
    "print(1 + 1)",
    ("markdown", "Only words"),
    "print(3)",
]


def test_a_log_has_one_line_a_cell(tree, run_mage):
    tree.note(cells=STEPS, parameters=OUT)
    tree.params(out=str(tree.root))
    result = run_mage("run", "note-900", root=tree.root)
    assert result.rc == 0
    assert "\r" not in result.said and "\x1b" not in result.said
    lines = [line for line in result.said.splitlines() if re.search(r"\bcell \d+", line)]
    assert len(lines) == 4, f"four code cells, these lines: {lines}"
    assert "Warming up" in lines[1] and "Adding things" in lines[2]


def test_a_terminal_shows_a_bar_with_heading_and_time(tree, mage_on_terminal):
    tree.note(cells=STEPS, parameters=OUT)
    tree.params(out=str(tree.root))
    result, text = mage_on_terminal("run", "note-900", columns=100, root=tree.root)
    assert result.rc == 0
    assert "\r" in text and "Adding things" in text and re.search(r"\d:\d\d|\d s", text)
    assert "\rnote-900-tiny tiny" in text and not re.search(r"cell \d", text), "a bar that moves, not a log"
