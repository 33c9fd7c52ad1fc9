"""neighbor aggregation in Triton: Y[i] = Σₑ weights[e]·X[src[e]] over the edges of row i, FP32.

One program owns BLOCK_F features of one row. Edges are sorted by destination, so those of row i are
the run row_ptr[i] … row_ptr[i+1] − 1, and no two programs add to the same output: no atomics, and a
row with no edges is written as zero by the same store.

Edges are taken BLOCK_E at a time: their sources and weights in one load each, then a block of
BLOCK_E × BLOCK_F features. A feature row of X is contiguous, so each edge is one or two wide reads at
an unpredictable place; how many of them are in flight decides the time. A row of the default graph
has 16 edges on average, so half of a 32-edge block is masked off.
"""

import triton
import triton.language as tl

# the configuration of the published runs
FIXED = {"BLOCK_E": 32, "BLOCK_F": 64, "num_warps": 4}

# what a search may try: every combination
SPACE = {"BLOCK_E": (8, 16, 32, 64), "BLOCK_F": (16, 32, 64), "num_warps": (1, 2, 4)}


def static(dims, config):
    """Why a configuration needs no build to be refused, or None."""
    _, F, _ = dims
    if config["BLOCK_F"] >= 2 * triton.next_power_of_2(F):
        return f"empty blocks: a block of {config['BLOCK_F']} features for {F} of them"
    return None


@triton.jit
def neighbor_kernel(X, weights, row_ptr, src, Y, F, BLOCK_E: tl.constexpr, BLOCK_F: tl.constexpr):
    # the row and the features that this program owns, and the row's run of edges
    row = tl.program_id(0)
    features = tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    feature_inside = features < F
    first = tl.load(row_ptr + row)
    last = tl.load(row_ptr + row + 1)

    total = tl.zeros((BLOCK_F,), dtype=tl.float32)
    for start in range(first, last, BLOCK_E):
        # sources and weights of the next edges; past the run the weight is zero
        edges = start + tl.arange(0, BLOCK_E)
        edge_inside = edges < last
        sources = tl.load(src + edges, mask=edge_inside, other=0)
        w = tl.load(weights + edges, mask=edge_inside, other=0.0)
        # gather their feature rows and add them up
        inside = edge_inside[:, None] & feature_inside[None, :]
        x = tl.load(X + sources[:, None] * F + features[None, :], mask=inside, other=0.0)
        total += tl.sum(w[:, None] * x, axis=0)

    tl.store(Y + row * F + features, total, mask=feature_inside)


KERNEL = neighbor_kernel


def grid(dims, config):
    """Programs: rows × blocks of features."""
    N, F, _ = dims
    return (N, triton.cdiv(F, config["BLOCK_F"]))


def launch(X, weights, row_ptr, src, Y, config=FIXED):
    """Start the kernel on the current stream."""
    N, F = X.shape
    neighbor_kernel[grid((N, F, 0), config)](X, weights, row_ptr, src, Y, F, **config, enable_fp_fusion=True)
