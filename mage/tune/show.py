"""How far a search is: on a terminal a bar with the best so far, in a log one line a candidate."""

from __future__ import annotations

import sys

from mage.evidence.schema_search import TIMED, Candidate, SearchRun
from mage.kernels import tuned
from mage.notebook import progress
from mage.notes import Place
from mage.tune.subject import Config


class Show:
    """Says nothing."""

    def begin(self, name: str, total: int) -> None: ...

    def resumed(self, count: int) -> None: ...

    def done(self, count: int, config: Config, row: Candidate, best: tuple[Config, float] | None) -> None: ...

    def say(self, line: str) -> None: ...

    def end(self, run: SearchRun) -> None: ...

    def close(self) -> None: ...


class Log(Show):
    """A line for each candidate on standard output."""

    def begin(self, name, total):
        self._name, self._total = name, total

    def resumed(self, count):
        if count:
            progress.say(f"{self._name}: {count} of {self._total} candidates were finished by an earlier run")

    def done(self, count, config, row, best):
        said = f"{row.median_us:.2f} µs" if row.state == TIMED else f"{row.state}: {row.reason}"
        progress.say(f"{self._name}: {count} of {self._total}, {tuned.words(config)}: {said}{_best(best)}")

    def say(self, line):
        progress.say(f"{self._name}: {line}")

    def end(self, run):
        progress.say(f"{self._name}: {run.why}")


class Bar(Show):
    """A bar on standard error for each search, with the candidates done and the best so far; then a line."""

    def __init__(self):
        self._bar = None

    def begin(self, name, total):
        self._name, self._bar = name, progress.Bar(name, total)

    def resumed(self, count):
        self._bar.end(Place(number=count, heading=""))

    def done(self, count, config, row, best):
        self._bar.begin(Place(number=count, heading=_best(best).removeprefix("; ")))
        self._bar.end(Place(number=count, heading=""))

    def say(self, line):
        self._bar.begin(Place(number=0, heading=line))

    def end(self, run):
        self.close()
        progress.say(f"{self._name}: {run.why}")

    def close(self):
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def suited() -> Show:
    """What suits where it is read."""
    return Bar() if sys.stderr and sys.stderr.isatty() else Log()


def _best(best: tuple[Config, float] | None) -> str:
    return f"; best {best[1]:.2f} µs at {tuned.words(best[0])}" if best else ""
