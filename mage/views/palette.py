"""One palette: a colour says which family of implementation, a marker which variant of it.

The colours are those of Okabe and Ito (2008) that reach a contrast of 3:1 on white, so that a mark can
be told from the page; with any common colour blindness they stay apart. In grey they do not all, so no
figure leaves the telling to colour: a mark stands beside its name.
"""

from __future__ import annotations

from dataclasses import dataclass

from mage.notes import vocabulary

BLACK, BLUE, VERMILLION, GREEN, PURPLE = "#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7"
COLOURS = (BLACK, BLUE, VERMILLION, GREEN, PURPLE)


@dataclass(frozen=True, kw_only=True)
class Family:
    """Implementations that give the same party the decisions about a kernel."""

    label: str
    colour: str


PYTORCH = Family(label="PyTorch", colour=BLACK)  # a library decides; when to use: eager and compiled, the baseline
TRITON = Family(label="Triton", colour=VERMILLION)  # a compiler places data, the author blocks: every Triton kernel
TILE = Family(label="tile compiler", colour=GREEN)  # a compiler decides layout and threads: cuTile, Python or Rust
HAND = Family(label="hand-written", colour=BLUE)  # the author decides every thread and byte: CUDA C++, cuda-oxide
NUMPY = Family(label="NumPy", colour=PURPLE)  # the CPU's own baseline; never beside a GPU's number in one panel

INK = "#1A1A1A"
"""Text, axes and what is said about data."""
MUTED = "#5A5A5A"
"""Text that may be skipped: dimensions, sources. 7:1 on white."""
GRID = "#D9D9D9"
"""Lines to read values off, and frames: fainter than any mark."""
SHADE = "#E8E8E8"
"""An area that is context, not data: a band, a tile that is not the one spoken of."""
ALERT = PURPLE
"""A ring round a value that must not be used: it always comes with words."""

FAMILIES = {
    "pytorch": PYTORCH,
    "pytorch-compiled": PYTORCH,
    "triton": TRITON,
    "cutile": TILE,
    "rust-cutile": TILE,
    "cuda": HAND,
    "rust-oxide": HAND,
    "numpy": NUMPY,
}

LABELS = {
    "pytorch": "PyTorch",
    "pytorch-compiled": "PyTorch compiled",
    "triton": "Triton",
    "cutile": "cuTile",
    "rust-cutile": "cuTile Rust",
    "cuda": "CUDA C++",
    "rust-oxide": "cuda-oxide",
    "numpy": "NumPy",
}
"""Names as they stand beside a mark: short enough for a phone."""

ORDER = ("pytorch", "pytorch-compiled", "triton", "cutile", "rust-cutile", "cuda", "rust-oxide", "numpy")
"""From the library that decides everything to the author who does, then the CPU."""

OPERATIONS = {
    "matmul": "Matrix multiplication",
    "gelu": "Bias + GELU",
    "layernorm": "LayerNorm",
    "triangle": "Triangle contraction",
    "neighbor": "Neighbor aggregation",
}
SHORT_OPERATIONS = {**OPERATIONS, "matmul": "Matmul", "triangle": "Triangle", "neighbor": "Neighbor"}

_MARKERS = {
    None: "o",
    "fixed": "o",
    "default": "o",
    "tuned": "s",
    vocabulary.SEARCHING: "D",
}
_STAGE_MARKERS = ("o", "^", "v", "s", "D", "P", "X")


def colour(implementation: str) -> str:
    """The colour of the family that ``implementation`` belongs to."""
    return FAMILIES[implementation].colour


def marker(variant: str | None) -> str:
    """The marker of a variant; a stage of a hand-written kernel gets one by its name, always the same."""
    if variant in _MARKERS:
        return _MARKERS[variant]
    return _STAGE_MARKERS[sum(map(ord, variant)) % len(_STAGE_MARKERS)]


def label(implementation: str, variant: str | None = None) -> str:
    """``Triton``, or ``Triton, tuned``; ``compiled, max-autotune`` is cut to what a phone has room for."""
    name = LABELS[implementation]
    if variant in (None, "fixed", "default"):
        return name
    return f"{name.removeprefix('PyTorch ')}, {variant.removesuffix('-no-cudagraphs')}"


def tint(colour: str, share: float) -> str:
    """``colour`` mixed with white: ``share`` 1 is the colour itself, 0 is white."""
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(255 - share * (255 - part)):02X}" for part in parts)


def position(implementation: str) -> int:
    """Place in ``ORDER``, to sort by."""
    return ORDER.index(implementation)
