"""The words a parameter may hold, in one place, so that a misspelt one is refused before anything starts.

A parameter of a note that has one of these names takes its values from here, whichever note it is.
"""

import re

OPERATIONS = ("matmul", "gelu", "layernorm", "triangle", "neighbor")
IMPLEMENTATIONS = ("pytorch", "pytorch-compiled", "triton", "cutile", "cuda", "numpy", "rust-oxide", "rust-cutile")
SEARCHING = "max-autotune-no-cudagraphs"
"""The mode of torch.compile that searches: kernels from templates, each candidate timed."""
DRAWN = "normal, drawn on the CPU in FP64 and rounded to FP32"
"""How inputs are drawn, but for those that a shape says otherwise of."""
COMPILED_MODES = ("default", SEARCHING)
"""Modes of torch.compile, which are the variants of ``pytorch-compiled``."""
STATISTICS = ("mean", "median", "fastest-round", "slowest-round")
CACHES = ("cold", "warm")
MODES = ("awaited", "batch-N", "graph-N")
"""How calls are put on the device: each awaited, N in a row, or N in one graph (N from 1 up)."""

KNOWN = {
    "operations": OPERATIONS,
    "operation": OPERATIONS,
    "implementations": IMPLEMENTATIONS,
    "implementation": IMPLEMENTATIONS,
    "statistic": STATISTICS,
    "mode": MODES,
    "modes": MODES,
    "cache": CACHES,
    "caches": CACHES,
}
"""Words by parameter name; a list parameter holds each word at most once."""


def knows(parameter: str, word: str) -> bool:
    """Whether ``word`` may stand in ``parameter``; always true for a parameter without a vocabulary."""
    words = KNOWN.get(parameter)
    if words is None or (word in words and not word.endswith("-N")):
        return True
    return words is MODES and re.fullmatch(r"(batch|graph)-[1-9][0-9]*", word) is not None
