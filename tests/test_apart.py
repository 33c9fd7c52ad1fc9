"""Processes that are spoken with: they hear and answer, are held and let go, and end with what they started."""

import os
import signal
import sys
import time

from mage import apart

ECHO = [sys.executable, "-c", "import sys\nfor line in sys.stdin: print('heard', line.strip(), flush=True)"]


def state(pid):
    """Letter of a process's state, None once it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except OSError:
        return None


def until(condition, seconds=20.0):
    """Whether ``condition`` comes true in time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_a_process_answers_is_held_and_goes_on():
    process = apart.Process(ECHO)
    process.tell("one")
    assert process.hear(20) == "heard one"
    process.stop()
    assert until(lambda: state(process._process.pid) == "T")
    process.tell("two")
    assert process.hear(0.05) is None
    process.go_on()
    assert process.hear(20) == "heard two"
    assert process.end().status is None and state(process._process.pid) is None


def test_a_process_that_is_held_is_ended_with_what_it_started():
    inner = "import subprocess, sys; child = subprocess.Popen(['sleep', '60']); print(child.pid, flush=True); child.wait()"
    process = apart.Process([sys.executable, "-c", inner])
    child = int(process.hear(20))
    process.stop()
    process.end()
    assert until(lambda: state(child) in (None, "Z"))


def test_what_a_process_says_last_is_its_reason():
    process = apart.Process([sys.executable, "-c", "raise SystemExit('no such device')"])
    assert process.hear(20) is None
    done = process.end(20)
    assert (done.status, done.last_line) == (1, "no such device")
    assert apart.run([sys.executable, "-c", "print('a'); print('b')"], 20) == apart.Done(0, "a\nb\n")


def test_a_command_that_takes_too_long_is_ended():
    done = apart.run([sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"], 2.0)
    assert done.status is None and state(int(done.said)) is None


def test_the_same_mage_and_tree_are_found_there(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.sep + "elsewhere")
    code = "import mage, mage.paths; print(mage.__file__, mage.paths.ROOT)"
    done = apart.run([sys.executable, "-P", "-c", code], 60)
    import mage
    from mage import paths

    assert done.said.split() == [mage.__file__, str(paths.ROOT)]


def test_a_held_process_ends_with_the_one_that_started_it():
    child = "from mage import apart; import os; apart.end_with_parent(); print(os.getpid(), flush=True); input()"
    parent = (
        "import sys; from mage import apart\n"
        f"process = apart.Process([sys.executable, '-c', {child!r}])\n"
        "print(process.hear(60), flush=True); process.stop(); input()"
    )
    process = apart.Process([sys.executable, "-c", parent])
    pid = int(process.hear(60))
    assert until(lambda: state(pid) == "T")
    os.kill(process._process.pid, signal.SIGKILL)
    assert until(lambda: state(pid) in (None, "Z"))
    process.end()
