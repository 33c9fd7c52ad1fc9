"""What ran on the device: one record a kernel, from CUPTI through torch.profiler.

A capture holds many cases. Each is announced by a marker kernel whose grid says which case and which
round follows, so records are given to calls by their order on the device, not by their names: two
implementations may launch kernels of the same name. A round whose records do not add up to calls ×
launches is void (pytorch/kineto#996: records can be dropped), and says so.

Kernel time of a call is the sum of its records' durations, µs; the gaps between them are not in it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MARKER = "mage_marker"
IGNORED = ("mage_evict",)
"""Kernels of the harness that run between calls."""

# What frameworks launch around an operation's own kernels: fills and memsets.
_FRAMEWORK = ("Memset", "FillFunctor", "fill_kernel")


@dataclass(frozen=True)
class KernelRecord:
    """One kernel (or memset) as the device ran it; times in µs, shared memory static plus dynamic, bytes."""

    name: str
    start_us: float
    duration_us: float
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    shared_bytes: int

    @property
    def is_framework(self) -> bool:
        """A fill or memset rather than a kernel of the operation."""
        return any(word in self.name for word in _FRAMEWORK)


@dataclass(frozen=True)
class Segment:
    """The records between one marker and the next, in order of start."""

    case: int
    round: int
    records: tuple[KernelRecord, ...]


@dataclass(frozen=True)
class Captured:
    """One case's round: records by call, or none and the reason why it is void."""

    calls: tuple[tuple[KernelRecord, ...], ...] = ()
    void: str | None = None

    @property
    def kernel_us(self) -> list[float]:
        """Kernel time of each call."""
        return [sum(record.duration_us for record in call) for call in self.calls]


def parse_trace(trace: dict) -> list[KernelRecord]:
    """Kernel and memset records of an exported Chrome trace, in order of start."""
    records = []
    for event in trace["traceEvents"]:
        kind = event.get("cat")
        if kind not in ("kernel", "gpu_memset", "gpu_memcpy"):
            continue
        args = event.get("args", {})
        records.append(
            KernelRecord(
                name=event["name"],
                start_us=float(event["ts"]),
                duration_us=float(event["dur"]),
                grid=tuple(args.get("grid", (0, 0, 0))),
                block=tuple(args.get("block", (0, 0, 0))),
                registers=int(args.get("registers per thread", 0)),
                shared_bytes=int(args.get("shared memory", 0)),
            )
        )
    return sorted(records, key=lambda record: record.start_us)


def split(records: Sequence[KernelRecord]) -> list[Segment]:
    """Cut the records at the markers; the harness's own kernels are left out."""
    segments: list[Segment] = []
    current: list[KernelRecord] | None = None
    case = turn = -1
    for record in records:
        if record.name.startswith(MARKER):
            if current is not None:
                segments.append(Segment(case, turn, tuple(current)))
            case, turn, current = record.grid[0] - 1, record.grid[1] - 1, []
        elif current is not None and not record.name.startswith(IGNORED):
            current.append(record)
    if current is not None:
        segments.append(Segment(case, turn, tuple(current)))
    return segments


def by_call(segment: Segment, calls: int, launches: int) -> Captured:
    """The records of each of ``calls`` calls of ``launches`` kernels, or void with the reason."""
    expected = calls * launches
    if len(segment.records) != expected:
        return Captured(void=f"{len(segment.records)} kernel records where {calls} calls × {launches} launches make {expected}")
    grouped = tuple(segment.records[i * launches : (i + 1) * launches] for i in range(calls))
    names = [record.name for record in grouped[0]]
    for number, call in enumerate(grouped):
        if [record.name for record in call] != names:
            return Captured(void=f"call {number} ran {', '.join(r.name for r in call)}, call 0 {', '.join(names)}")
    bad = next((r for r in segment.records if not 0 < r.duration_us < float("inf")), None)
    if bad is not None:
        return Captured(void=f"a record of {bad.name} lasts {bad.duration_us} µs")
    return Captured(calls=grouped)


def record(work: Callable[[], None]) -> list[KernelRecord]:
    """Run ``work`` under torch.profiler and return every kernel record of it."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        work()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        return parse_trace(json.loads(file.read_bytes()))
