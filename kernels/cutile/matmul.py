"""matmul in cuTile: C = A·B, FP32.

A tile program owns one TILE_M × TILE_N tile of C. It says which tile of A and of B it wants next and
that they are to be multiplied; threads, shared memory, the width of a load and the copy in flight do
not appear at all. That is the claim under test: the compiler makes every decision about memory.

Tile dimensions are powers of two. A tile that sticks out of A or B is padded with zeros on the way in
and cut off on the way out, so any shape works. FP32 stays FP32 in ct.mma: TF32 has a type of its own.

    kernel                how the two tiles are multiplied
    matmul_kernel         ct.mma: the compiler chooses the instructions as well
    matmul_rank1_kernel   a column of A times a row of B, added up over K, written out one by one
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


# The same product without ct.mma. Column k of the tile of A times row k of the tile of B is a matrix of
# rank one, and the tiles' product is the sum of those over k. The loop is unrolled at compile time
# (an index into a tile must be known then), so TILE_K decides how long the code gets. Written like this
# nothing is left to choose but multiply-adds; what ct.mma becomes differs between assembler releases.


@ct.kernel
def matmul_rank1_kernel(A, B, C, TILE_M: ConstInt, TILE_N: ConstInt, TILE_K: ConstInt):
    row, column = ct.bid(0), ct.bid(1)

    total = ct.zeros((TILE_M, TILE_N), ct.float32)
    for step in range(ct.num_tiles(A, axis=1, shape=(TILE_M, TILE_K))):
        a = ct.load(A, (row, step), (TILE_M, TILE_K), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (step, column), (TILE_K, TILE_N), padding_mode=ct.PaddingMode.ZERO)
        for k in ct.static_iter(range(TILE_K)):
            # every element of the column meets every element of the row: TILE_M × TILE_N multiply-adds
            total += ct.extract(a, (0, k), (TILE_M, 1)) * ct.extract(b, (k, 0), (1, TILE_N))

    ct.store(C, (row, column), total)


KERNEL = matmul_kernel


def grid(dims, config):
    """Programs: rows of tiles × columns of tiles."""
    M, N, _ = dims
    return (ct.cdiv(M, config["TILE_M"]), ct.cdiv(N, config["TILE_N"]), 1)


def arguments(A, B, C, config=FIXED):
    """What the kernel is launched with, in its order."""
    return (A, B, C, config["TILE_M"], config["TILE_N"], config["TILE_K"])
