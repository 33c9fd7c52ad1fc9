"""How a search's times were taken, in words that stand in its record."""

from mage.tune.subject import CPU, GPU

GRAPH = "CUDA events around a replayed graph of launches, divided by their number; warm"
CUPTI = "kernel time of launches back to back, CUPTI through torch.profiler; warm"
CLOCK = "time.perf_counter_ns around one call"

METRICS = {GPU: (GRAPH, CUPTI), CPU: (CLOCK, CLOCK)}
"""(metric of the candidates, metric of the run-off and the confirmation), by where a candidate runs."""
