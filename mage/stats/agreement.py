"""Do two sessions agree? Their warm kernel times beside each other, and for what differs the reason that the records hold.

Two sessions on one device agree on a row within 2 %, or 0.1 µs where that is more. A row that does not agree is
explained where another kernel ran, or the same one in another configuration: a search may pick differently each
time. It is explained as well where the two agree from a cold cache within the same bound: what is left to differ is what
the cache holds of its data, or where in it, and a session does not choose the physical addresses of its buffers. That is
a diagnosis by the record; what a cache holds is not measured. A row without a time is explained by its gate or its
voids. Whatever is left is unexplained. A row that only one session has is listed with what the other one lacks: there
is nothing to agree on. No verdict is drawn from two sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mage import evidence as records
from mage import stats
from mage.errors import RequestError
from mage.evidence.schema import Evidence, Result, Void
from mage.views import selection

WITHIN, WITHIN_US = 0.02, 0.1
AGREES, EXPLAINED, DISAGREES, ALONE = "agrees", "explained", "DISAGREES", "in one only"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of two sessions: medians in µs (None: no time), one of the four words, and why it is not the first."""

    key: str
    one_us: float | None
    other_us: float | None
    word: str
    why: str | None = None

    @property
    def difference_pct(self) -> float | None:
        return None if None in (self.one_us, self.other_us) else 100 * (self.other_us / self.one_us - 1)


def rows(one: Evidence, other: Evidence) -> list[Row]:
    """Every row of the first session in its order, then those that the other alone has. RequestError for sessions of two
    devices, for one session named twice, and where no row is in both."""
    if one.device.name != other.device.name:
        devices = f"{one.experiment} was measured on {one.device.name}, {other.experiment} on {other.device.name}"
        raise RequestError(f"{devices}: nothing to agree on")
    if one.when == other.when:
        raise RequestError(f"{one.experiment} and {other.experiment} come from one session: of course they agree; name two sessions")
    mine, theirs = ({_name(row): row for row in record.results} for record in (one, other))
    if not mine.keys() & theirs.keys():
        raise RequestError(f"{one.experiment} and {other.experiment} have no row in common")
    found = [_row(row, theirs[name], one, other) if name in theirs else _alone(row, other, one_us=_time(row)) for name, row in mine.items()]
    return found + [_alone(row, one, other_us=_time(row)) for name, row in theirs.items() if name not in mine]


def _name(row: Result) -> tuple[str, tuple[int, ...]]:
    return row.key, row.dims


def _time(result: Result, cache: str = "warm") -> float | None:
    found = stats.value(result, "kernel_us", "median", cache=cache)
    return found and found.value


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= max(WITHIN * min(one, other), WITHIN_US)


def _alone(row: Result, without: Evidence, *, one_us: float | None = None, other_us: float | None = None) -> Row:
    """A row that the session ``without`` does not have, and what that one has instead."""
    return Row(key=row.key, one_us=one_us, other_us=other_us, word=ALONE, why=f"{without.experiment} has {_lacks(row, without)}")


def _lacks(row: Result, without: Evidence) -> str:
    same = [one for one in without.results if one.operation == row.operation]
    if not same:
        return f"no row of {row.operation}"
    if shapes := [one.dims for one in same if one.key == row.key]:
        return f"it at {selection.shape(shapes[0])}, not at {selection.shape(row.dims)}"
    if all(one.at != row.at for one in same):
        return f"no row of {row.operation} at {row.at or 'its usual shape'}"
    if all(one.implementation != row.implementation for one in same):
        return f"no {row.implementation} row of {row.operation}"
    return f"{row.implementation} rows of {row.operation}, and not this one"


def _row(mine: Result, yours: Result, one: Evidence, other: Evidence) -> Row:
    times = [_time(result) for result in (mine, yours)]
    made = {"key": mine.key, "one_us": times[0], "other_us": times[1]}
    if None in times:
        missing = [(result, record) for result, record, time in ((mine, one, times[0]), (yours, other, times[1])) if time is None]
        reasons = [_why_no_time(result, record) for result, record in missing]
        why = "; ".join(dict.fromkeys(reason or "no time, and no reason is recorded" for reason in reasons))
        return Row(word=DISAGREES if None in reasons else EXPLAINED, why=why, **made)
    if _close(*times):
        return Row(word=AGREES, **made)
    if (before := ran(mine)) != (after := ran(yours)):
        return Row(word=EXPLAINED, why=f"other configuration: {before}, then {after}", **made)
    cold = [_time(result, "cold") for result in (mine, yours)]
    if None not in cold and _close(*cold):
        why = f"warm only: from a cold cache {cold[0]:.2f} and {cold[1]:.2f} µs, so what the cache holds of its data differs"
        return Row(word=EXPLAINED, why=why, **made)
    return Row(word=DISAGREES, why="the same kernels in the same configuration", **made)


def ran(result: Result) -> str:
    """The kernels of a warm call and how each was configured, in words: what a search picked can be told by it."""
    return ", ".join(
        f"{one.name[:60]} ({_times(one.grid)} blocks of {_times(one.block)} threads, {one.registers} registers, {one.shared_bytes} bytes)"
        for one in stats.launches(result)
    )


def _times(shape: Sequence[int]) -> str:
    return "×".join(str(number) for number in shape if number != 1) or "1"


def _why_no_time(result: Result, record: Evidence) -> str | None:
    gate = result.gate or {}
    if gate.get("passed") not in (None, "passed"):
        return f"{record.experiment}: gate {gate['passed']}: {gate.get('reason') or 'no reason given'}"
    void = next((one for one in record.voids if one.row in (None, result.key) and _concerns_warm_kernels(one)), None)
    return f"{record.experiment}: {void.reason}" if void else None


def _concerns_warm_kernels(void: Void) -> bool:
    return void.quantity in (None, "kernel_us") and void.mode in (None, "awaited") and void.cache in (None, "warm")


def named(text: str) -> Evidence:
    """The evidence that ``text`` names: a file, a folder that holds one, or an experiment."""
    file = Path(text)
    if file.is_dir():
        file = file / records.NAME
    return records.read(file) if file.is_file() else records.load(text)


def text(found: Sequence[Row]) -> str:
    """The rows as a table of a terminal, the unexplained last, and a line that counts them."""
    head = ("row", "us", "us", "%", "", "")
    lines = [head]
    for one in sorted(found, key=lambda row: row.word == DISAGREES):
        times = ["-" if time is None else f"{time:.2f}" for time in (one.one_us, one.other_us)]
        change = "-" if one.difference_pct is None else f"{one.difference_pct:+.1f}"
        lines.append((one.key, *times, change, one.word, one.why or ""))
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    counts = ", ".join(f"{sum(one.word == word for one in found)} {said}" for word, said in (
        (AGREES, "agree"), (EXPLAINED, "explained"), (DISAGREES, "unexplained"), (ALONE, "in one session only")
    ))  # fmt: skip
    return "\n".join([*shown, f"{len(found)} rows: {counts}"])
