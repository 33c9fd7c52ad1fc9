"""Tables: evidence in, a DataFrame with caption, units and notes out.

Every table takes one evidence record (some take several) and the reader's selection by name. What the evidence has
not, or the selection leaves out, is said in a sentence where the rows would stand.
"""

from mage.tables.conditions import conditions, observations
from mage.tables.gate import gate, refused
from mage.tables.launching import host_costs, launch_graph, launch_matched, launch_modes
from mage.tables.results import claim, correctness, kernel_times, results
from mage.tables.stability import attempts, controls, drift
from mage.tables.stages import requests, rewrites, stage_spans, stages
from mage.tables.tiles import cross_check, search, tile_effect, tile_sweep

__all__ = [
    "attempts", "claim", "conditions", "controls", "correctness", "cross_check", "drift", "gate", "host_costs",
    "kernel_times", "launch_graph", "launch_matched", "launch_modes", "observations", "refused", "requests", "results",
    "rewrites", "search", "stage_spans", "stages", "tile_effect", "tile_sweep",
]  # fmt: skip
