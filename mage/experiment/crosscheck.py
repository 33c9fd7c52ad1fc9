"""Our times held against another tool's: the same calls timed by NVBench (``cuda-bench``) and by ``ncu``.

NVBench runs in a process of its own, as every instrument does, after our own rounds, and takes of each row what equals a key of ours:

- *awaited, cold*: an isolated call between two events, the cache flushed before it, the stream not held back;
- *graph of ten, warm*: batches of replays of a CUDA graph of ten calls, the time divided by the calls. NVBench
  queues the replays behind one another and gives a mean; we await each replay.

NVBench flushes by writing (a memset as large as the L2 cache), we by reading more than twice as much: what a
cold call has to write back differs. ncu's duration of a row's kernels, summed, stands against kernel time, warm.
``cuda-bench`` is the optional extra ``[crosscheck]``; where it is missing the record says so.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mage import apart, stats
from mage.evidence.schema import Evidence, KernelCounters, Result, TimerCheck
from mage.experiment.plan import A_BATCH, AWAITED, COLD, GRAPH, WARM
from mage.experiment.shapes import Row
from mage.notes import vocabulary

PACKAGE = "cuda-bench"
NCU = "ncu"
READY = "ready"
PREPARED_S, TIMEOUT_S = 60.0, 60.0
SAMPLES = 100
BATCH_S = 0.01
"""Device time that a row's batches add up to."""
TAKES = (("span_us", AWAITED, COLD, "median"), ("span_us", GRAPH, WARM, "mean"))


def version() -> str | None:
    """Version of cuda-bench, or None where it is not installed."""
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None


def chosen(rows: Sequence[Row]) -> list[Row]:
    """The subset that is cross-checked: at the operation's own shape, one row an operation and implementation.

    Of several variants the last: the newest CUDA C++ stage, the tuned configuration, torch.compile as it comes
    (its search is not repeated in another process).
    """
    last: dict[tuple[str, str], Row] = {}
    for row in rows:
        if row.at is None and row.variant != vocabulary.SEARCHING:
            last[row.operation, row.implementation] = row
    return list(last.values())


class Checker:
    """The process that runs NVBench. It prepares its rows while others are compiled and gated, and is quiet until asked."""

    def __init__(self, rows: Sequence[Row]):
        self._rows = {row.key: row for row in rows}
        self._process, self._why_not = None, None
        if version() is None:
            self._why_not = f"{PACKAGE} is not installed"
            return
        self._process = apart.Process(apart.module("mage.experiment.crosscheck"))
        self._process.tell(json.dumps(list(rows)))

    @property
    def held(self) -> bool:
        """Whether there is a process, which is on the device."""
        return self._process is not None

    def ready(self, timeout_s: float = PREPARED_S) -> None:
        """Wait until its rows are prepared, and hold it: from then on it uses neither the device nor a processor."""
        if self._process is None:
            return
        if self._process.hear(timeout_s) == READY:
            self._process.stop()
        else:
            self._give_up(f"{PACKAGE} had not prepared its rows within {timeout_s:.0f} s")

    def take(self, keys: Sequence[str], timeout_s: float = TIMEOUT_S) -> tuple[list[TimerCheck], str | None]:
        """NVBench's times of the rows named ``keys``, or none and the reason. The process has ended afterwards."""
        if self._process is None:
            return [], self._why_not
        self._process.go_on()
        self._process.tell(json.dumps([key for key in keys if key in self._rows]))
        answer = self._process.hear(timeout_s)
        if answer is None:
            self._give_up(f"{PACKAGE} gave no times within {timeout_s:.0f} s")
            return [], self._why_not
        self.end(10.0)
        return [TimerCheck(instrument=PACKAGE, version=version(), **one) for one in json.loads(answer)], None

    def end(self, timeout_s: float = 0.0) -> None:
        """End the process, if there is one."""
        if self._process:
            self._process.end(timeout_s)
            self._process = None

    def _give_up(self, why: str) -> None:
        done, self._process = self._process.end(10.0), None
        self._why_not = why if done.status is None else f"{PACKAGE} ended with status {done.status}: {done.last_line}"


def of_counters(counters: Sequence[KernelCounters], ncu: str | None) -> list[TimerCheck]:
    """ncu's durations as checks of kernel time, warm: a row's kernels summed, each run once under the tool."""
    rows: dict[str, list[float | None]] = {}
    for one in counters:
        rows.setdefault(one.row, []).append(one.duration_us)
    about = {"instrument": NCU, "version": ncu, "quantity": "kernel_us", "mode": AWAITED, "cache": WARM, "statistic": "single"}
    return [
        TimerCheck(row=row, samples=1, time_us=round(sum(times), 3), **about) for row, times in rows.items() if None not in times
    ]


# -- read back -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One check beside our own samples: ``ours_us`` at the same key, ``kernel_us`` our warm kernel time, medians in µs."""

    check: TimerCheck
    result: Result
    ours_us: float | None
    kernel_us: float | None

    @property
    def difference_pct(self) -> float | None:
        """How much longer the other tool says the call takes, in percent of ours."""
        if self.check.time_us is None or self.ours_us is None:
            return None
        return 100 * (self.check.time_us / self.ours_us - 1)


def compared(evidence: Evidence) -> list[Compared]:
    """Every check with this session's own time of that row at equal keys."""
    results = {result.key: result for result in evidence.results}
    return [_compared(check, results[check.row]) for check in evidence.cross_checks if check.row in results]


def _compared(check: TimerCheck, result: Result) -> Compared:
    ours = stats.value(result, check.quantity, "median", mode=check.mode, cache=check.cache)
    kernel = stats.value(result, "kernel_us", "median")
    return Compared(check=check, result=result, ours_us=ours and ours.value, kernel_us=kernel and kernel.value)


# -- in its own process ----------------------------------------------------------------------------------


def run(rows: Sequence[Row], say, hear) -> None:
    """Prepare and warm up every row and say so; then time those whose keys are heard, and say their times as JSON."""
    import cuda.bench as bench
    import torch

    from mage import implementations, operations, timers

    stream = torch.cuda.Stream()
    torch.cuda.set_stream(stream)
    works, voids = {}, {}
    with operations.strict_fp32():
        for row in rows:
            try:
                call = implementations.prepare(row.operation, row.implementation, row.variant, row.make_inputs("cuda"))
                for _ in range(timers.WARMUP):
                    call.run()
                works[row.key, AWAITED] = call.run
                works[row.key, GRAPH] = timers.capture(call.run, A_BATCH).replay
            except Exception as error:  # every compiler and launcher has errors of its own
                first = (str(error).splitlines() or [type(error).__name__])[0][:120]
                what = "cannot be captured in a CUDA graph" if (row.key, AWAITED) in works else "cannot be prepared"
                voids[row.key] = f"{what}: {first}"
        torch.cuda.synchronize()
        say(READY)
        keys = json.loads(hear())
        for (key, mode), work in works.items():
            if key in keys:
                _register(bench, f"{key} {mode}", work, stream, batched=mode == GRAPH)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "nvbench.json"
            bench.run_all_benchmarks(["mage", "--json", str(file), "--quiet"])
            document = json.loads(file.read_text(encoding="utf-8"))
    say(json.dumps(parse(document, [row for row in rows if row.key in keys], voids)))


class _Stream:
    """PyTorch's stream as NVBench takes one."""

    def __init__(self, stream):
        self._handle = stream.cuda_stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def _register(bench, name: str, work, stream, batched: bool) -> None:
    def timed(state):
        state.set_stream(_Stream(stream))
        # An isolated call is submitted while its events run, as our spans are. A batch is held back until two replays
        # are queued, so that the device never waits for the host.
        state.set_disable_blocking_kernel(not batched)
        state.exec(lambda launch: work(), batched=batched)

    made = bench.register(timed)
    made.set_name(name)
    made.set_throttle_threshold(0.0)  # no sample is thrown away for its clock: ours are not
    made.set_throttle_recovery_delay(0.0)
    made.set_stopping_criterion("sample-count")
    made.set_criterion_param_int64("target-samples", SAMPLES)
    made.set_min_samples(SAMPLES)
    made.set_cold_warmup_runs(5)
    made.set_batch_target_time(BATCH_S)
    made.set_timeout(5.0)


def parse(document: dict, rows: Sequence[Row], voids: dict[str, str]) -> list[dict]:
    """What NVBench wrote, by row and take; a take that it did not give is void with a reason. Its times are seconds."""
    states = {one["name"]: one["states"][0] for one in document["benchmarks"] if one["states"]}
    found = []
    for row in rows:
        for quantity, mode, cache, statistic in TAKES:
            one = {"row": row.key, "quantity": quantity, "mode": mode, "cache": cache, "statistic": statistic}
            state = states.get(f"{row.key} {mode}")
            values = _summaries(state) if state else {}
            kind, calls = ("cold", 1) if mode == AWAITED else ("batch", A_BATCH)
            time, samples = values.get(f"nv/{kind}/time/gpu/{statistic}"), values.get(f"nv/{kind}/sample_size")
            if time and samples:
                one |= {"time_us": round(time * 1e6 / calls, 3), "samples": int(samples)}
            else:
                skipped = state.get("skip_reason") if state else None
                one["void"] = skipped or voids.get(row.key) or "NVBench gave no time"
            found.append(one)
    return found


def _summaries(state: dict) -> dict[str, float]:
    """Summaries by tag. NVBench writes 64-bit numbers as text."""
    found = {}
    for summary in state.get("summaries") or ():
        for entry in summary.get("data", ()):
            if entry.get("name") == "value" and entry.get("type") in ("float64", "int64"):
                found[summary["tag"]] = float(entry["value"])
    return found


def _main() -> None:
    apart.end_with_parent()
    # NVBench and the compilers print what they like: the line to the other process is kept apart from it.
    line = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run([Row(*one) for one in json.loads(sys.stdin.readline())], lambda text: print(text, file=line, flush=True), sys.stdin.readline)


if __name__ == "__main__":
    _main()
