"""Figures: evidence in, a drawing with its description and its table of plotted values out.

Every figure takes one evidence record or several (the first leads) and the reader's selection by name;
those of compiled code take the DataFrame of a census. A selection that nothing matches gives a view with a
sentence in it.
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
