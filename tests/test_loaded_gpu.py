"""A neighbour on the same GPU: the control shows the rounds that it worked through, and these rounds judge nothing."""

import subprocess
import sys

import pytest

from mage.experiment import captures, measurement, rounds
from mage.experiment.measurement import Asked

pytestmark = pytest.mark.gpu

LOADED = (5, 6, 9)
ROUNDS = 12

# Multiplies matrices from "go" to "stop", always several of them queued. Every word it is given is answered once it is true.
NEIGHBOUR = """
import queue, sys, threading, torch
words = queue.Queue()
a = torch.randn(4096, 4096, device="cuda"); b = torch.randn(4096, 4096, device="cuda"); c = torch.mm(a, b)
torch.cuda.synchronize()
threading.Thread(target=lambda: [words.put(line.strip()) for line in sys.stdin] + [words.put("end")], daemon=True).start()
def say(word): print(word, flush=True)
say("ready")
while (word := words.get()) == "go":
    told = False
    while words.empty():
        done = [torch.cuda.Event() for _ in range(4)]
        for event in done:
            torch.mm(a, b, out=c); event.record()
        done[0].synchronize()
        if not told:
            say("running"); told = True
    words.get()
    torch.cuda.synchronize()
    say("stopped")
"""


class Neighbour:
    """The other process. ``work(True)`` returns once it computes, ``work(False)`` once it has ended what it began."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.working = False
        self._hear("ready")

    def _hear(self, word):
        said = self.process.stdout.readline().strip()
        assert said == word, f"the neighbour said {said!r} instead of {word!r}"

    def work(self, wanted):
        if wanted != self.working:
            self.process.stdin.write("go\n" if wanted else "stop\n")
            self.process.stdin.flush()
            self._hear("running" if wanted else "stopped")
            self.working = wanted


@pytest.fixture
def neighbour():
    made = Neighbour()
    yield made
    made.process.kill()
    made.process.wait()


def test_rounds_that_a_neighbour_worked_through_are_voided_with_the_reason(neighbour, monkeypatch):
    class DisturbedRounds(rounds.Rounds):
        """Rounds as they are; the neighbour works from the begin to the end of those in LOADED."""

        def _round(self, part, number, long=False):
            found = super()._round(part, number, long)
            neighbour.work(part == "spans" and number + 1 in LOADED)
            return found

    class DisturbedCaptures(captures.Captures):
        def _round(self, session, number, cases):
            neighbour.work(number in LOADED)
            super()._round(session, number, cases)
            neighbour.work(False)

    monkeypatch.setattr(rounds, "Rounds", DisturbedRounds)
    monkeypatch.setattr(captures, "Captures", DisturbedCaptures)
    wanted = Asked(experiment="here-test", operations=("gelu",), implementations=("pytorch", "cuda"))
    (found,) = measurement.measure([wanted], counters=False, pairs=0, rounds=ROUNDS, say=lambda line: None)
    quiet = tuple(number for number in range(ROUNDS) if number not in LOADED)
    for part, quantity in (("spans", "span_us"), ("kernels", "kernel_us")):
        seen = {one.number: one for one in found.rounds if one.part == part}
        told = [(number, one.control_us, one.control_wall_us, one.loaded) for number, one in seen.items()]
        assert {number for number, one in seen.items() if one.loaded} == set(LOADED), told
        assert all("the device was shared" in seen[number].loaded for number in LOADED), told
        voids = [void for void in found.voids if void.quantity == quantity and void.row is None]
        assert sorted(number for void in voids for number in void.rounds) == list(LOADED)
        assert all("the host waited" in void.reason for void in voids)
    for row in found.results:
        assert row.spans and row.kernels
        assert {taken.rounds for taken in (*row.spans, *row.kernels)} == {quiet}
