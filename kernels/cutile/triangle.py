"""triangle contraction in cuTile: O[i,j,c] = Σₖ A[i,k,c]·B[j,k,c], FP32.

One matrix product a channel, with the channel as the third grid axis. A tile of A is TILE × TILE × 1:
one channel deep, so neighbours along k lie C floats apart in memory and no load is wide. The third
axis is dropped for the product and put back for the store.

    kernel                     a program owns
    triangle_kernel            one channel
    triangle_channels_kernel   TILE_C neighbouring channels: loads are wide, the products are a batch
"""

import cuda.tile as ct

# gives the grid of the published runs, 4 × 4 × 32 at N = 128, C = 32
FIXED = {"TILE_I": 32, "TILE_J": 32, "TILE_K": 32}

ConstInt = ct.Constant[int]


@ct.kernel
def triangle_kernel(A, B, O, TILE_I: ConstInt, TILE_J: ConstInt, TILE_K: ConstInt):
    # the tile of O[:,:,c] that this program owns
    i, j, c = ct.bid(0), ct.bid(1), ct.bid(2)

    # walk along k; B's tile is turned over for the product
    total = ct.zeros((TILE_I, TILE_J), ct.float32)
    for k in range(ct.num_tiles(A, axis=1, shape=(TILE_I, TILE_K, 1))):
        a = ct.load(A, (i, k, c), (TILE_I, TILE_K, 1), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (j, k, c), (TILE_J, TILE_K, 1), padding_mode=ct.PaddingMode.ZERO)
        a = ct.reshape(a, (TILE_I, TILE_K))
        b = ct.transpose(ct.reshape(b, (TILE_J, TILE_K)))
        total = ct.mma(a, b, total)

    # what sticks out of O is not written
    ct.store(O, (i, j, c), ct.reshape(total, (TILE_I, TILE_J, 1)))


# Memory is read 32 bytes at a time, which are eight neighbouring channels. A program of one channel uses four of them,
# a program of eight channels all: 12 µs instead of 64 on an H200, most of it for this reason.


@ct.kernel
def triangle_channels_kernel(A, B, O, TILE_I: ConstInt, TILE_J: ConstInt, TILE_K: ConstInt, TILE_C: ConstInt):
    # the tile of O that this program owns, TILE_C channels deep
    i, j, c = ct.bid(0), ct.bid(1), ct.bid(2)

    # walk along k; channels come first for the batched product, and last again for the store
    total = ct.zeros((TILE_C, TILE_I, TILE_J), ct.float32)
    for k in range(ct.num_tiles(A, axis=1, shape=(TILE_I, TILE_K, TILE_C))):
        a = ct.load(A, (i, k, c), (TILE_I, TILE_K, TILE_C), padding_mode=ct.PaddingMode.ZERO, allow_tma=False)
        b = ct.load(B, (j, k, c), (TILE_J, TILE_K, TILE_C), padding_mode=ct.PaddingMode.ZERO, allow_tma=False)
        total = ct.mma(ct.permute(a, (2, 0, 1)), ct.permute(b, (2, 1, 0)), total)

    ct.store(O, (i, j, c), ct.permute(total, (1, 2, 0)), allow_tma=False)


KERNEL = triangle_kernel
KERNELS = {"channel": triangle_kernel, "channels": triangle_channels_kernel}

# what a search may try: every combination
SPACE = {
    "kernel": ("channels",), "TILE_I": (16, 32), "TILE_J": (16, 32), "TILE_K": (4, 8, 16), "TILE_C": (4, 8, 16, 32),
    "num_worker_warps": (None, 8),
}  # fmt: skip
SUMS = (8, 64)  # of a thread: with fewer a value is used too seldom, with more they do not stay in registers


def static(dims, config):
    """Why a configuration needs no build to be refused, or None."""
    if config.get("kernel") != "channels":
        return None
    sums = config["TILE_I"] * config["TILE_J"] * config.get("TILE_C", 1) // (32 * (config.get("num_worker_warps") or 4))
    if not SUMS[0] <= sums <= SUMS[1]:
        return f"{sums} sums a thread, {SUMS[0]} to {SUMS[1]} are tried"
    return None


def grid(dims, config):
    """Programs: tiles along i × tiles along j × channels, TILE_C a program."""
    N, C = dims
    return (ct.cdiv(N, config["TILE_I"]), ct.cdiv(N, config["TILE_J"]), ct.cdiv(C, config.get("TILE_C", 1)))


def arguments(A, B, O, config=FIXED):
    """What the kernel is launched with, in its order."""
    tile = (config["TILE_I"], config["TILE_J"], config["TILE_K"])
    return (A, B, O, *tile, config.get("TILE_C", 1)) if config.get("kernel") == "channels" else (A, B, O, *tile)
