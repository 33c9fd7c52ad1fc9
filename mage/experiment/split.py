"""Where a measurement's own time went: seconds by part, with nothing counted twice."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

PARTS = ("compile", "gate", "warm-up", "kernels", "harness", "counters", "cross-check")


class Split:
    """``with split("gate"):`` adds to a part; a part inside another interrupts it. All else is the harness."""

    def __init__(self):
        self._spent = dict.fromkeys(PARTS, 0.0)
        self._stack = ["harness"]
        self._begin = self._since = time.perf_counter()

    @contextlib.contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        self._turn()
        self._stack.append(part)
        try:
            yield
        finally:
            self._turn()
            self._stack.pop()

    def _turn(self) -> None:
        now = time.perf_counter()
        self._spent[self._stack[-1]] += now - self._since
        self._since = now

    def spent(self, part: str) -> float:
        """Seconds of one part until now."""
        self._turn()
        return self._spent[part]

    def seconds(self) -> dict[str, float]:
        """Seconds by part, and the total, to 0.01 s."""
        self._turn()
        parts = {part: round(seconds, 2) for part, seconds in self._spent.items() if seconds >= 0.005}
        return {**parts, "total": round(self._since - self._begin, 2)}
