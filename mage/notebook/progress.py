"""How far a run is: on a terminal a bar with the cell's heading and the time, in a log one line a cell."""

from __future__ import annotations

import contextlib
import sys
import threading
import time

from mage.notes import Place


class Log:
    """One line for each cell that ended, on standard output; no carriage returns."""

    def __init__(self, label: str, total: int):
        self._label, self._total = label, total
        self._started = time.monotonic()

    def begin(self, place: Place) -> None:
        self._started = time.monotonic()

    def end(self, place: Place) -> None:
        took = time.monotonic() - self._started
        say(f"{self._label}: cell {place.number} of {self._total}, {place.heading or 'no heading'}, {took:.1f} s")

    def close(self) -> None:
        pass


class Bar:
    """A bar on standard error that is cleared at the end."""

    def __init__(self, label: str, total: int):
        from tqdm import tqdm

        self._bar = tqdm(
            total=total,
            desc=label,
            leave=False,
            file=sys.stderr,
            bar_format="{desc}: {n_fmt}/{total_fmt} |{bar:12}| {elapsed} {postfix}",
        )
        # A long cell says nothing itself, and a reader wants to see the time pass.
        self._closed = threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)
        self._clock.start()

    def _tick(self) -> None:
        while not self._closed.wait(1):
            with contextlib.suppress(OSError, ValueError):
                self._bar.refresh()

    def begin(self, place: Place) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._bar.set_postfix_str(place.heading)

    def end(self, place: Place) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._bar.update(place.number - self._bar.n)

    def close(self) -> None:
        self._closed.set()
        self._clock.join()
        with contextlib.suppress(OSError, ValueError):
            self._bar.close()


def start(label: str, total: int) -> Log | Bar:
    """Progress of a note with ``total`` code cells, in the form that suits where it is read."""
    return Bar(label, total) if sys.stderr and sys.stderr.isatty() else Log(label, total)


def say(line: str) -> None:
    """One line on standard output. That its reader went away is no reason to lose a report."""
    with contextlib.suppress(OSError, ValueError):
        print(" ".join(line.split()), flush=True)
