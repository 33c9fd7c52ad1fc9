"""The kernel of a note, what it starts, and the device: nothing outlives a run, and one run has the device at a time."""

import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from filelock import FileLock

from mage.errors import BusyError
from mage.notebook import locks

TELL = "import os, pathlib\npathlib.Path(out, 'pids').write_text(f'{os.getppid()} {os.getpid()}')\n"
OUT = 'out: str = "."  # where the note tells about its kernel\n'
# A daemon: a session of its own, its parent gone, deaf to what a terminal sends.
DAEMON = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', {!r}], check=True)\n".format(
    "import os, signal, time\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)\n"
    "time.sleep(600)"
)
WAIT = "import time\ntime.sleep(600)\n"


@pytest.fixture
def tree(tiny_tree):
    tiny_tree.params(out=str(tiny_tree.root))
    return tiny_tree


def test_a_daemon_that_a_note_started_ends_with_it(tree, run_mage):
    tree.note(cells=[TELL, DAEMON], parameters=OUT)
    result = run_mage("run", "note-900", root=tree.root)
    assert result.rc == 0, result.said
    assert result.left == ()


@pytest.mark.parametrize("which", [0, 1], ids=["guard", "kernel"])
def test_a_kernel_or_guard_that_is_killed_ends_the_run_and_all_below(tree, start_mage, eventually, which):
    child = "import subprocess\nsubprocess.Popen(['sleep', '600'])\npathlib.Path(out, 'ready').touch()\n"
    tree.note(cells=[TELL, child, WAIT], parameters=OUT)
    started = start_mage("run", "note-900", root=tree.root)
    eventually((tree.root / "ready").exists, what="the note's child")
    os.kill(int((tree.root / "pids").read_text().split()[which]), signal.SIGKILL)
    result = started.wait(60)
    assert result.rc == 1 and re.search(r"kernel died in cell \d", result.message), result.said
    assert result.left == ()


def test_a_kernel_outlives_neither_runner_nor_guard(tree, start_mage, eventually):
    """Both are killed at once, so neither can end it, and it is inside a C call that hears nothing."""
    deaf = "pathlib.Path(out, 'ready').write_text(os.path.dirname(os.environ['IPYTHONDIR']))\nimport ctypes\nctypes.PyDLL(None).sleep(600)"
    tree.note(cells=[TELL, deaf], parameters=OUT)
    started = start_mage("run", "note-900", root=tree.root)
    ready = tree.root / "ready"
    eventually(lambda: ready.exists() and ready.read_text(), what="the second cell")
    for pid in (started.process.pid, int((tree.root / "pids").read_text().split()[0])):
        os.kill(pid, signal.SIGKILL)
    assert started.wait(60).left == ()
    shutil.rmtree(ready.read_text())  # the kernel's folder, which nobody is left to remove


def test_what_the_caller_has_set_for_himself_changes_no_note(tree, run_mage, tmp_path):
    cell = """\
import os
print(os.environ["MPLBACKEND"], hash("a word"), "mine" in globals())
"""
    tree.note(cells=[cell], parameters=OUT)
    assert run_mage("run", "note-900", root=tree.root).rc == 0
    first = tree.published()["notebook.ipynb"]
    startup = tmp_path / "ipython/profile_default/startup/mine.py"
    startup.parent.mkdir(parents=True)
    startup.write_text("mine = 1")
    own = {"MPLBACKEND": "Agg", "PYTHONHASHSEED": "7", "PYTHONSTARTUP": str(startup), "IPYTHONDIR": str(tmp_path / "ipython")}
    assert run_mage("run", "note-900", root=tree.root, env=own).rc == 0
    assert tree.published()["notebook.ipynb"] == first


def test_a_path_may_look_like_a_template(make_tree, run_mage, tmp_path):
    tree = make_tree(tmp_path / "a {tree} of notes, naïve")
    tree.note(cells=["print(1)"])
    tree.params()
    result = run_mage("run", "note-900", root=tree.root)
    assert result.rc == 0, result.said


def test_a_note_that_takes_too_long_costs_the_next_nothing(tree, run_mage):
    tree.note(cells=["import time\nif experiment == 'long': time.sleep(600)"], parameters=OUT)
    tree.params("long", note_timeout_s=5)
    result = run_mage("run", "note-900", root=tree.root)
    assert result.rc == 1 and "long" in result.message and "5 s" in result.message
    assert set(tree.published("tiny")) and not tree.published("long")


def test_a_kernel_that_cannot_start_is_one_line(tree, run_mage, tmp_path):
    """The environment's ipykernel is broken: whatever it says, the run says it in a line."""
    (tmp_path / "ipykernel").mkdir()
    (tmp_path / "ipykernel/__init__.py").write_text("raise ImportError('half an installation')")
    tree.note(cells=[TELL], parameters=OUT)
    result = run_mage("run", "note-900", root=tree.root, env={"PYTHONPATH": f"{os.getcwd()}:{tmp_path}"})
    assert result.rc == 1 and "half an installation" in result.message, result.said
    assert "Traceback" not in result.stderr and "Traceback" in (tree.output() / "failed.txt").read_text()


A_DEVICE = f"test-{os.getpid()}"
"""A device that no other run on this machine asks for."""

# --- locks -------------------------------------------------------------------------------------------------------


def measuring(tree, measures: bool, cells=(TELL,)) -> None:
    """Write the note, with or without the mark that it uses the device."""
    path = tree.note(cells=list(cells), parameters=OUT)
    notebook = json.loads(path.read_text())
    notebook["metadata"]["mage"]["device"] = measures
    path.write_text(json.dumps(notebook))


def test_one_run_at_a_time_has_the_device(tree, run_mage, own_device):
    measuring(tree, True)
    with locks.device():
        result = run_mage("run", "note-900", root=tree.root)
        assert result.rc == 3 and str(os.getpid()) in result.message and "device" in result.message, result.said
        assert not tree.output().exists()
        measuring(tree, False)
        assert run_mage("run", "note-900", root=tree.root).rc == 0, "a note that only reads evidence needs no device"
    measuring(tree, True)
    assert run_mage("run", "note-900", root=tree.root).rc == 0


def test_what_a_cell_measures_has_the_device_that_its_note_holds(tree, run_mage, own_device):
    uses = "from mage.notebook import locks\nwith locks.device():\n    pathlib.Path(out, 'used').touch()\n"
    for measures in (True, False):
        measuring(tree, measures, [TELL, uses])
        result = run_mage("run", "note-900", root=tree.root)
        assert result.rc == 0, result.said
        (tree.root / "used").unlink()
    with locks.device():  # another run than the note's own
        result = run_mage("run", "note-900", root=tree.root)
    assert result.rc == 1 and f"held by process {os.getpid()}" in result.message and not (tree.root / "used").exists()


@pytest.fixture
def own_device(monkeypatch):
    """A device of this test's own, and nothing of it afterwards."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", A_DEVICE)
    yield
    for file in locks.runtime_dir().glob(f"device-{A_DEVICE}*"):
        file.unlink()


def test_runs_on_other_devices_do_not_wait(own_device, monkeypatch):
    with locks.device():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{A_DEVICE}-b,{A_DEVICE}")
        with pytest.raises(BusyError, match=f"device {A_DEVICE} is busy.*{os.getpid()}"), locks.device():
            pass
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{A_DEVICE}-b")
        with locks.device():
            pass


def test_the_holder_named_is_one_that_lives(own_device):
    """A run was killed and another took the lock: before that one has written its name, the dead one's is there."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    (locks.runtime_dir() / f"device-{A_DEVICE}.json").write_text(json.dumps({"pid": ended.pid, "command": "gone", "since": "then"}))
    with FileLock(locks.runtime_dir() / f"device-{A_DEVICE}.lock"), pytest.raises(BusyError) as busy, locks.device():
        pass
    assert "gone" not in str(busy.value) and str(ended.pid) not in str(busy.value)


def test_what_a_dead_holder_wrote_blocks_nobody(own_device):
    (locks.runtime_dir() / f"device-{A_DEVICE}.json").write_text('{"pid": 1, "command": "gone", "since": "long ago"}')
    with locks.device():
        pass
    assert not (locks.runtime_dir() / f"device-{A_DEVICE}.json").exists()
