"""The kernel of a note, what it starts, and the device: nothing outlives a run, and one run has the device at a time."""

import json
import os
import re
import signal

import pytest

from mage import locks
from mage.errors import BusyError

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


def test_a_kernel_that_cannot_start_is_one_line(tree, run_mage, tmp_path):
    """The environment's ipykernel is broken: whatever it says, the run says it in a line."""
    (tmp_path / "ipykernel").mkdir()
    (tmp_path / "ipykernel/__init__.py").write_text("raise ImportError('half an installation')")
    tree.note(cells=[TELL], parameters=OUT)
    result = run_mage("run", "note-900", root=tree.root, env={"PYTHONPATH": f"{os.getcwd()}:{tmp_path}"})
    assert result.rc == 1 and "half an installation" in result.message, result.said
    assert "Traceback" not in result.stderr and "Traceback" in (tree.output() / "failed.txt").read_text()


# --- locks -------------------------------------------------------------------------------------------------------


def measuring(tree, measures: bool) -> None:
    """Write the note, with or without the mark that it uses the device."""
    path = tree.note(cells=[TELL], parameters=OUT)
    notebook = json.loads(path.read_text())
    notebook["metadata"]["mage"]["device"] = measures
    path.write_text(json.dumps(notebook))


def test_one_run_at_a_time_has_the_device(tree, run_mage, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    measuring(tree, True)
    with locks.device():
        result = run_mage("run", "note-900", root=tree.root)
        assert result.rc == 3 and str(os.getpid()) in result.message and "device" in result.message, result.said
        assert not tree.output().exists()
        measuring(tree, False)
        assert run_mage("run", "note-900", root=tree.root).rc == 0, "a note that only reads evidence needs no device"
    measuring(tree, True)
    assert run_mage("run", "note-900", root=tree.root).rc == 0


def test_runs_on_other_devices_do_not_wait(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with locks.device():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,3")
        with pytest.raises(BusyError, match=f"device 3 is busy.*{os.getpid()}"), locks.device():
            pass
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
        with locks.device():
            pass


def test_what_a_dead_holder_wrote_blocks_nobody(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    (locks.runtime_dir() / "device-3.json").write_text('{"pid": 1, "command": "gone", "since": "long ago"}')
    with locks.device():
        pass
    assert not (locks.runtime_dir() / "device-3.json").exists()
