"""Tables: evidence in, a DataFrame with caption, units and notes out.

Every table takes one evidence record (some take several) and the reader's selection by name. What the evidence has
not, or the selection leaves out, is said in a sentence where the rows would stand. Tables of the gate take its
results, tables of the census its DataFrame.

Its modules:

    results       every operation by every implementation, as published or measured
    measured      one measured session: verdicts, published claims judged by it, counters
    conditions    under which conditions numbers were taken
    stability     attempts, controls and drift: how far a number may be trusted
    stages        hand-written kernels stage by stage, and what each asks of the device
    launching     one kernel awaited, queued, replayed from a graph
    submitted     the same of a measured session's rows
    launch_cost   what a launch costs by implementation
    tiles         tile shapes: a sweep, a tuner's search, its winner checked
    tuning        searches and sweeps of a measured session
    shapes        other shapes than an operation's own, other tools than ours
    series        tables of the notes 001 to 003
    reuse         whether ratios stand in the order of reuse
    gate          what the gate found on this machine, and the defects it refused
    code          counts of compiled code, from a census
    fetch         who fetches the tiles of a cuTile kernel
    limits        limits of the tile model, claimed and tried
    rows          what every table does alike
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
from mage.tables.stability import agreement, attempts, controls, drift
from mage.tables.stages import requests, rewrites, stage_spans, stages
from mage.tables.tiles import cross_check, search, tile_effect, tile_sweep
from mage.tables.tuning import not_timed, searches

__all__ = [
    "access_census", "agreement", "attempts", "claim", "claims_here", "code_census", "conditions", "contracts", "controls",
    "correctness", "counters", "cross_check", "cross_check_timers", "drift", "gate", "host_costs", "kernel_code", "kernel_times",
    "launch_cost", "launch_graph", "launch_matched", "launch_modes", "modes_here", "norm_census", "not_timed", "observations", "refused",
    "repeated", "requests", "residency", "results", "reuse_order", "rewrites", "search", "searches", "session", "shapes",
    "stage_spans", "stages", "steps", "tile_census", "tile_effect", "tile_limits", "tile_sweep", "verdicts", "voids",
    "who_fetches", "worse_tile",
]  # fmt: skip
