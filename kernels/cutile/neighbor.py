"""neighbor aggregation in cuTile: Y[i] = Σₑ weights[e]·X[src[e]] over the edges of row i, FP32.

A tile program owns TILE_F features of one row. The row's edges are a run of arbitrary length at an
arbitrary place, which is no tile of any partition, so they are gathered by index: sources and weights
TILE_E at a time, then the feature rows that the sources name. A gather gives zero for what is masked
or out of bounds, so an edge past the run adds nothing and needs no branch.

    kernel                 a program owns
    neighbor_kernel        one row; TILE_E edges are a tile, summed over its first axis
    neighbor_rows_kernel   TILE_N rows; EDGES edges of each are walked one by one, their loads in flight together
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


# Summing a tile over its edges means threads meeting in shared memory, every chunk. Here no two threads share a sum:
# a tile is rows × features, and the edges are a loop whose steps do not wait for each other. Rows of a program end
# at different edges; the longest says when to stop, and the others add zeros until then. The mask keeps every index
# inside its array, so the bounds need no second check, which would cost a fifth of the time.


@ct.kernel
def neighbor_rows_kernel(X, weights, row_ptr, src, Y, TILE_N: ConstInt, EDGES: ConstInt, TILE_F: ConstInt):
    # the rows and the features that this program owns, and each row's run of edges
    rows = ct.bid(0) * TILE_N + ct.arange(TILE_N, dtype=ct.int32)
    features = ct.reshape(ct.bid(1) * TILE_F + ct.arange(TILE_F, dtype=ct.int32), (1, TILE_F))
    first = ct.gather(row_ptr, rows)
    last = ct.gather(row_ptr, rows + 1)

    total = ct.zeros((TILE_N, TILE_F), ct.float32)
    for chunk in range(ct.cdiv(ct.max(last - first), EDGES)):
        for n in ct.static_iter(range(EDGES)):
            # the next edge of every row: its source, its weight, the features of its source
            edge = first + chunk * EDGES + n
            inside = edge < last
            source = ct.gather(src, edge, mask=inside, check_bounds=False)
            w = ct.gather(weights, edge, mask=inside, check_bounds=False)
            wanted = ct.reshape(inside, (TILE_N, 1)) & (features < X.shape[1])
            x = ct.gather(X, (ct.reshape(source, (TILE_N, 1)), features), mask=wanted, check_bounds=False)
            total = total + ct.reshape(w, (TILE_N, 1)) * x

    ct.scatter(Y, (ct.reshape(rows, (TILE_N, 1)), features), total)


KERNEL = neighbor_kernel
KERNELS = {"row": neighbor_kernel, "rows": neighbor_rows_kernel}

# what a search may try: every combination; EDGES is no side of a tile, so any number will do
SPACE = {
    "kernel": ("rows",), "TILE_N": (4, 8, 16), "EDGES": (8, 10, 12, 16, 20, 24), "TILE_F": (32, 64),
    "num_worker_warps": (None, 8),
}  # fmt: skip


def static(dims, config):
    """Why a configuration needs no build to be refused, or None."""
    if config.get("kernel") != "rows":
        return None
    rows = config.get("TILE_N", 1)
    threads = 32 * (config.get("num_worker_warps") or 4)
    if rows * config["TILE_F"] < threads:
        return f"{threads} threads share {rows * config['TILE_F']} sums, so some have none"
    return None


def grid(dims, config):
    """Programs: rows, TILE_N a program, × blocks of features."""
    N, F, _ = dims
    return (ct.cdiv(N, config.get("TILE_N", 1)), ct.cdiv(F, config["TILE_F"]), 1)


def arguments(X, weights, row_ptr, src, Y, config=FIXED):
    """What the kernel is launched with, in its order."""
    if config.get("kernel") == "rows":
        return (X, weights, row_ptr, src, Y, config.get("TILE_N", 1), config.get("EDGES", 1), config["TILE_F"])
    return (X, weights, row_ptr, src, Y, config["TILE_E"], config["TILE_F"])
