"""neighbor aggregation in cuTile: Y[i] = Σₑ weights[e]·X[src[e]] over the edges of row i, FP32.

A tile program owns TILE_F features of one row. The row's edges are a run of arbitrary length at an
arbitrary place, which is no tile of any partition, so they are gathered by index: sources and weights
TILE_E at a time, then the feature rows that the sources name. A gather gives zero for what is masked
or out of bounds, so an edge past the run adds nothing and needs no branch.
"""

import cuda.tile as ct

# chunks of 32 edges × 64 features, as in the published runs
FIXED = {"TILE_E": 32, "TILE_F": 64}

ConstInt = ct.Constant[int]


@ct.kernel
def neighbor_kernel(X, weights, row_ptr, src, Y, TILE_E: ConstInt, TILE_F: ConstInt):
    # the row and the features that this program owns, and the row's run of edges
    row, block = ct.bid(0), ct.bid(1)
    first = ct.gather(row_ptr, row)
    last = ct.gather(row_ptr, row + 1)
    features = block * TILE_F + ct.arange(TILE_F, dtype=ct.int32)

    total = ct.zeros((TILE_F,), ct.float32)
    for chunk in range(ct.cdiv(last - first, TILE_E)):
        # sources and weights of the next edges; past the run the weight is zero
        edges = first + chunk * TILE_E + ct.arange(TILE_E, dtype=ct.int32)
        inside = edges < last
        sources = ct.gather(src, edges, mask=inside)
        w = ct.gather(weights, edges, mask=inside)
        # gather their feature rows and add them up
        x = ct.gather(X, (ct.reshape(sources, (TILE_E, 1)), ct.reshape(features, (1, TILE_F))))
        total = total + ct.sum(ct.reshape(w, (TILE_E, 1)) * x, axis=0)

    ct.scatter(Y, (row, features), total)


KERNEL = neighbor_kernel


def grid(dims, config):
    """Programs: rows × blocks of features."""
    N, F, _ = dims
    return (N, ct.cdiv(F, config["TILE_F"]), 1)


def arguments(X, weights, row_ptr, src, Y, config=FIXED):
    """What the kernel is launched with, in its order."""
    return (X, weights, row_ptr, src, Y, config["TILE_E"], config["TILE_F"])
