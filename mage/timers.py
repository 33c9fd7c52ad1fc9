"""How long a call takes, as its caller sees it: spans around awaited calls, batches and graphs.

A span is the time between two CUDA events around what was submitted: host submission, the kernels,
and whatever the device idles between. Kernel time is another quantity, from another instrument
(``mage.profile``); the two are never mixed. All times are microseconds per call.

Everything that a sample needs (events, graphs, the buffer that evicts the cache) exists before the
first sample, and a call is made a few times before it is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Run = Callable[[], object]

WARMUP = 5
"""Calls before the first sample of a round: the first launch after a pause is cold in more than its cache."""


class Spans:
    """Takes spans on one CUDA device, on PyTorch's current stream.

    ``evict`` (see ``Evictor``) is called and awaited before each sample of a cold cache; where it is
    None only warm samples can be taken.
    """

    def __init__(self, evict: Run | None = None, most: int = 256):
        import torch

        self._torch = torch
        self._evict = evict
        self._pairs = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(most)
        ]
        for _ in range(WARMUP):  # the timer itself is called before the first sample, too
            self.awaited(lambda: None, 4)

    def awaited(self, run: Run, iterations: int, *, cold: bool = False) -> list[float]:
        """``iterations`` samples of one call that is awaited before the next is submitted."""
        return self._samples(run, iterations, 1, cold)[0]

    def batched(self, run: Run, calls: int, iterations: int, *, cold: bool = False) -> list[float]:
        """Samples of ``calls`` calls submitted one behind the other, divided by ``calls``.

        Only the first call of a batch can find a cold cache: the others find what it left.
        """

        def batch():
            for _ in range(calls):
                run()

        return self._samples(batch, iterations, calls, cold)[0]

    def graphed(self, graph, calls: int, iterations: int) -> list[float]:
        """Samples of one replay of ``graph``, which holds ``calls`` calls (see ``capture``), divided by ``calls``."""
        return self._samples(graph.replay, iterations, calls, cold=False)[0]

    def watched(self, run: Run, iterations: int) -> tuple[list[float], list[float]]:
        """Spans of awaited calls, and the host's time around each of them.

        Where another process has its turn on the device, calls wait in ways that their spans need not show: the first
        event waits too. The host's clock does show it.
        """
        return self._samples(run, iterations, 1, cold=False)

    def empty(self, iterations: int) -> list[float]:
        """Spans with nothing between the events: what the timer alone costs."""
        return self.awaited(lambda: None, iterations)

    def _samples(self, run: Run, iterations: int, calls: int, cold: bool) -> tuple[list[float], list[float]]:
        """Spans of ``run``, each divided by the ``calls`` it makes, and the host's time around each, not divided."""
        if cold and self._evict is None:
            raise ValueError("a cold sample needs an evictor")
        if iterations > len(self._pairs):
            raise ValueError(f"at most {len(self._pairs)} samples a round, got {iterations}")
        synchronize = self._torch.cuda.current_stream().synchronize
        for _ in range(-(-WARMUP // calls)):
            run()
        synchronize()
        walls = []
        clock = time.perf_counter_ns
        for start, end in self._pairs[:iterations]:
            if cold:
                self._evict()
                synchronize()
            begin = clock()
            start.record()
            run()
            end.record()
            end.synchronize()
            walls.append((clock() - begin) / 1e3)
        return [start.elapsed_time(end) * 1e3 / calls for start, end in self._pairs[:iterations]], walls


def capture(run: Run, calls: int):
    """A CUDA graph of ``calls`` calls, captured on a stream of its own after a warm-up there."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARMUP):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(calls):
            run()
    return graph


def host_and_wall(run: Run, calls: int) -> tuple[float, float]:
    """Host time of submitting ``calls`` calls, and device-synchronised wall time of the same, each per call.

    Wall time is a cross-check of the spans: work that a call puts on another stream is in it and not in theirs.
    Few enough calls that no queue fills up: a full queue would put the device's time into the host's.
    """
    import torch

    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    for _ in range(calls):
        run()
    submitted = time.perf_counter_ns()
    torch.cuda.synchronize()
    end = time.perf_counter_ns()
    return (submitted - begin) / 1e3 / calls, (end - begin) / 1e3 / calls


def cpu(run: Run, iterations: int) -> list[float]:
    """Samples of one call on the CPU, ``time.perf_counter_ns`` around it."""
    run()
    samples = []
    for _ in range(iterations):
        begin = time.perf_counter_ns()
        run()
        samples.append((time.perf_counter_ns() - begin) / 1e3)
    return samples
