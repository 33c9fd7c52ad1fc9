"""Figures: evidence in, a drawing with its description and its table of plotted values out.

Every figure takes one evidence record or several (the first leads) and the reader's selection by name;
those of compiled code take the DataFrame of a census. A selection that nothing matches gives a view with a
sentence in it.

Its modules:

    strips        kernel times and spans, one row an operation and implementation
    kernel_span   kernel time above, time around the call below
    progression   a hand-written kernel's stages as a stair
    changes       differences in percent: drift, and one kernel behind another
    controls      what unchanged kernels returned over several captures
    launching     how many kernels a call launches, in squares
    modes         one kernel, submitted in different ways
    submitted     the same of a measured session's rows
    measured      the roofline of a measured session
    tiles         the same kernel under many tile shapes
    tuning        searches of a measured session, every candidate
    worse_tile    a prediction and its test
    reuse         ratios against two counts of reuse
    schematic     why data reuse is a question of layout, drawn from tile sizes
    code          what compiled code reads and computes, from a census
    canvas        a page of fixed width for small panels and text
    bars          bars by name from zero, each with words behind it
    cells         bars in a cell
    words         words that several figures say of their numbers
"""

from mage.figures.changes import drift, layernorm_gap
from mage.figures.code import shared_reads, tile_product
from mage.figures.controls import control_bands
from mage.figures.kernel_span import kernel_and_span
from mage.figures.launching import launches
from mage.figures.measured import roofline
from mage.figures.modes import launch_modes
from mage.figures.progression import progression
from mage.figures.reuse import reuse_and_ratio
from mage.figures.schematic import reuse_ladder, reuse_schematic
from mage.figures.strips import kernel_time, spans
from mage.figures.tiles import tile_sweep
from mage.figures.tuning import searches
from mage.figures.worse_tile import worse_tile

__all__ = [
    "control_bands",
    "drift",
    "kernel_and_span",
    "kernel_time",
    "launch_modes",
    "launches",
    "layernorm_gap",
    "progression",
    "reuse_and_ratio",
    "reuse_ladder",
    "reuse_schematic",
    "roofline",
    "searches",
    "shared_reads",
    "spans",
    "tile_product",
    "tile_sweep",
    "worse_tile",
]
