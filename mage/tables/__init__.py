"""Tables: evidence in, a DataFrame with caption, units and notes out.

Every table takes one evidence record (some take several) and the reader's selection by name. What the evidence has
not, or the selection leaves out, is said in a sentence where the rows would stand. Tables of the gate take its
results, tables of the census its DataFrame.
"""

from mage.tables.code import access_census, code_census, norm_census, tile_census
from mage.tables.conditions import conditions, observations
from mage.tables.gate import gate, refused
from mage.tables.launching import host_costs, launch_graph, launch_matched, launch_modes
from mage.tables.measured import claims_here, counters, modes_here, session, verdicts, voids
from mage.tables.results import claim, correctness, kernel_times, results
from mage.tables.stability import attempts, controls, drift
from mage.tables.stages import requests, rewrites, stage_spans, stages
from mage.tables.tiles import cross_check, search, tile_effect, tile_sweep

__all__ = [
    "access_census", "attempts", "claim", "claims_here", "code_census", "conditions", "controls", "correctness",
    "counters", "cross_check", "drift", "gate", "host_costs", "kernel_times", "launch_graph", "launch_matched",
    "launch_modes", "modes_here", "norm_census", "observations", "refused", "requests", "results", "rewrites",
    "search", "session", "stage_spans", "stages", "tile_census", "tile_effect", "tile_sweep", "verdicts", "voids",
]  # fmt: skip
