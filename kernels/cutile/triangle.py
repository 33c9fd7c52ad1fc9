"""triangle contraction in cuTile: O[i,j,c] = Σₖ A[i,k,c]·B[j,k,c], FP32.

One matrix product a channel, with the channel as the third grid axis. A tile of A is TILE × TILE × 1:
one channel deep, so neighbours along k lie C floats apart in memory and no load is wide. The third
axis is dropped for the product and put back for the store.
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


KERNEL = triangle_kernel


def grid(dims, config):
    """Programs: tiles along i × tiles along j × channels."""
    N, C = dims
    return (ct.cdiv(N, config["TILE_I"]), ct.cdiv(N, config["TILE_J"]), C)


def arguments(A, B, O, config=FIXED):
    """What the kernel is launched with, in its order."""
    return (A, B, O, config["TILE_I"], config["TILE_J"], config["TILE_K"])
