"""matmul in cuTile: C = A·B, FP32.

A tile program owns one TILE_M × TILE_N tile of C. It says which tile of A and of B it wants next and
that they are to be multiplied; threads, shared memory, the width of a load and the copy in flight do
not appear at all. That is the claim under test: the compiler makes every decision about memory.

Tile dimensions are powers of two. A tile that sticks out of A or B is padded with zeros on the way in
and cut off on the way out, so any shape works. FP32 stays FP32 in ct.mma: TF32 has a type of its own.
"""

import cuda.tile as ct

# the tuned tile of the published runs
FIXED = {"TILE_M": 32, "TILE_N": 128, "TILE_K": 32}

ConstInt = ct.Constant[int]


@ct.kernel
def matmul_kernel(A, B, C, TILE_M: ConstInt, TILE_N: ConstInt, TILE_K: ConstInt):
    # the tile of C that this program owns
    row, column = ct.bid(0), ct.bid(1)

    # walk along K, one tile of A and one of B a step
    total = ct.zeros((TILE_M, TILE_N), ct.float32)
    for step in range(ct.num_tiles(A, axis=1, shape=(TILE_M, TILE_K))):
        a = ct.load(A, (row, step), (TILE_M, TILE_K), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (step, column), (TILE_K, TILE_N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(a, b, total)

    # what sticks out of C is not written
    ct.store(C, (row, column), total)


KERNEL = matmul_kernel


def grid(dims, config):
    """Programs: rows of tiles × columns of tiles."""
    M, N, _ = dims
    return (ct.cdiv(M, config["TILE_M"]), ct.cdiv(N, config["TILE_N"]), 1)


def arguments(A, B, C, config=FIXED):
    """What the kernel is launched with, in its order."""
    return (A, B, C, config["TILE_M"], config["TILE_N"], config["TILE_K"])
