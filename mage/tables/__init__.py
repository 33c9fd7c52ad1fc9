"""Tables: evidence in, a DataFrame with caption, units and notes out.

Every table takes one evidence record (some take several) and the reader's selection by name. What the evidence has
not, or the selection leaves out, is said in a sentence where the rows would stand. Tables of the gate take its
results, tables of the census its DataFrame.
"""

from mage.tables.code import access_census, code_census, kernel_code, norm_census, tile_census
from mage.tables.conditions import conditions, observations
from mage.tables.fetch import who_fetches
from mage.tables.gate import gate, refused
from mage.tables.launch_cost import launch_cost
from mage.tables.launching import host_costs, launch_graph, launch_matched, launch_modes
from mage.tables.limits import tile_limits
from mage.tables.measured import claims_here, counters, modes_here, session, verdicts, voids
from mage.tables.results import claim, correctness, kernel_times, results
from mage.tables.reuse import reuse_order
from mage.tables.series import contracts, repeated, residency, steps, worse_tile
from mage.tables.shapes import cross_check_timers, shapes
from mage.tables.stability import attempts, controls, drift
from mage.tables.stages import requests, rewrites, stage_spans, stages
from mage.tables.tiles import cross_check, search, tile_effect, tile_sweep
from mage.tables.tuning import not_timed, searches

__all__ = [
    "access_census", "attempts", "claim", "claims_here", "code_census", "conditions", "contracts", "controls",
    "correctness", "counters", "cross_check", "cross_check_timers", "drift", "gate", "host_costs", "kernel_code", "kernel_times",
    "launch_cost", "launch_graph", "launch_matched", "launch_modes", "modes_here", "norm_census", "not_timed", "observations", "refused",
    "repeated", "requests", "residency", "results", "reuse_order", "rewrites", "search", "searches", "session", "shapes",
    "stage_spans", "stages", "steps", "tile_census", "tile_effect", "tile_limits", "tile_sweep", "verdicts", "voids",
    "who_fetches", "worse_tile",
]  # fmt: skip
