"""matmul in cuTile: C = A·B, FP32.

A tile program owns one TILE_M × TILE_N tile of C. It says which tile of A and of B it wants next and
that they are to be multiplied; threads, shared memory, the width of a load and the copy in flight do
not appear at all. That is the claim under test: the compiler makes every decision about memory.

Tile dimensions are powers of two. A tile that sticks out of A or B is padded with zeros on the way in
and cut off on the way out, so any shape works. FP32 stays FP32 in ct.mma: TF32 has a type of its own.

    kernel                 how the two tiles are multiplied
    matmul_kernel          ct.mma: the compiler chooses the instructions as well
    matmul_direct_kernel   ct.mma, with the tensor memory accelerator (TMA) left out of it
    matmul_rank1_kernel    a column of A times a row of B, added up over K, written out one by one
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


# Where TMA fetches the tiles, four warps multiply and four only wait for it, and the block takes all registers of a
# multiprocessor. Where each thread fetches its own part, two blocks fit, and one multiplies while the other loads.


@ct.kernel
def matmul_direct_kernel(A, B, C, TILE_M: ConstInt, TILE_N: ConstInt, TILE_K: ConstInt):
    row, column = ct.bid(0), ct.bid(1)

    total = ct.zeros((TILE_M, TILE_N), ct.float32)
    for step in range(ct.num_tiles(A, axis=1, shape=(TILE_M, TILE_K))):
        a = ct.load(A, (row, step), (TILE_M, TILE_K), padding_mode=ct.PaddingMode.ZERO, allow_tma=False)
        b = ct.load(B, (step, column), (TILE_K, TILE_N), padding_mode=ct.PaddingMode.ZERO, allow_tma=False)
        total = ct.mma(a, b, total)

    ct.store(C, (row, column), total, allow_tma=False)


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
KERNELS = {"mma": matmul_kernel, "direct": matmul_direct_kernel, "rank-1": matmul_rank1_kernel}

# what a search may try: every combination
SPACE = {
    "kernel": ("direct", "rank-1"), "TILE_M": (32, 64, 128), "TILE_N": (32, 64, 128), "TILE_K": (4, 8, 16),
    "num_worker_warps": (None, 8), "occupancy": (None, 2),
}  # fmt: skip
SUMS = (16, 64)  # of a thread: with fewer a value is used too seldom, with more they do not stay in registers
UNROLLED = 512  # multiply-adds a thread in one step of the rank-1 kernel, all of them written out


def static(dims, config):
    """Why a configuration needs no build to be refused, or None."""
    kernel, warps = config.get("kernel"), config.get("num_worker_warps")
    if kernel is None:
        return None
    sums = config["TILE_M"] * config["TILE_N"] // (32 * (warps or 4))
    if not SUMS[0] <= sums <= SUMS[1]:
        return f"{sums} sums a thread, {SUMS[0]} to {SUMS[1]} are tried"
    if kernel == "rank-1" and sums * config["TILE_K"] > UNROLLED:
        return f"{sums * config['TILE_K']} multiply-adds a thread in a step, at most {UNROLLED} are written out"
    if kernel != "direct" and (warps or config.get("occupancy")):
        return "hints: tried with the direct kernel alone, which is the fastest without them"
    if config.get("occupancy") and not warps:
        return "occupancy: two blocks of four warps fit whatever registers they take"
    return None


def grid(dims, config):
    """Programs: rows of tiles × columns of tiles."""
    M, N, _ = dims
    return (ct.cdiv(M, config["TILE_M"]), ct.cdiv(N, config["TILE_N"]), 1)


def arguments(A, B, C, config=FIXED):
    """What the kernel is launched with, in its order."""
    return (A, B, C, config["TILE_M"], config["TILE_N"], config["TILE_K"])
