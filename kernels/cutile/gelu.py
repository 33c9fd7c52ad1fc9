"""bias + GELU (tanh form) in cuTile: Y = gelu(X + bias), FP32.

A tile program owns TILE_R × TILE_D elements: it loads a tile of X and the piece of the bias above it,
and every row of the tile gets the same piece. Nothing is reused, so the compiler has one decision to
make, how wide to load, and no way to lose.
"""

import cuda.tile as ct

# 8 × 128 gives the grid of the published runs, 512 × 6 at 4096 × 768
FIXED = {"TILE_R": 8, "TILE_D": 128}

ConstInt = ct.Constant[int]


@ct.kernel
def gelu_kernel(X, bias, Y, TILE_R: ConstInt, TILE_D: ConstInt):
    # the tile that this program owns, and the bias of its columns
    row, column = ct.bid(0), ct.bid(1)
    x = ct.load(X, (row, column), (TILE_R, TILE_D), padding_mode=ct.PaddingMode.ZERO)
    b = ct.load(bias, (column,), (TILE_D,), padding_mode=ct.PaddingMode.ZERO)

    # z/2·(1 + tanh(√(2/π)(z + 0.044715 z³)))
    z = x + ct.reshape(b, (1, TILE_D))
    u = 0.7978845608028654 * (z + 0.044715 * z * z * z)
    ct.store(Y, (row, column), 0.5 * z * (1.0 + ct.tanh(u)))


KERNEL = gelu_kernel


def grid(dims, config):
    """Programs: tiles along the rows × tiles along the width."""
    R, D = dims
    return (ct.cdiv(R, config["TILE_R"]), ct.cdiv(D, config["TILE_D"]), 1)


def arguments(X, bias, Y, config=FIXED):
    """What the kernel is launched with, in its order."""
    return (X, bias, Y, config["TILE_R"], config["TILE_D"])
