"""layernorm in cuTile: Y = gamma·(X − μ)/√(v + 1e-5) + beta over each row, FP32.

A tile program owns one row as a single tile, padded to the next power of two (768 -> 1024: a quarter
of the tile is padding). The row is loaded once; mean, variance of the centred row and result are
computed from the tile. Where the tile lives is the compiler's affair.

The padding is loaded as zero, so it does not disturb the sum; after the mean has been subtracted it
is not zero any more and has to be taken out before the squares are added.
"""

import cuda.tile as ct

FIXED = {}
WIDEST = 16384  # a row is one tile; wider rows would not stay in registers

ConstInt = ct.Constant[int]


@ct.kernel
def layernorm_kernel(X, gamma, beta, Y, D: ConstInt, TILE_D: ConstInt):
    # the row that this program owns: the only read of X
    row = ct.bid(0)
    x = ct.load(X, (row, 0), (1, TILE_D), padding_mode=ct.PaddingMode.ZERO)
    mean = ct.sum(x, axis=1, keepdims=True) * (1.0 / D)

    # variance of the centred row, padding taken out
    inside = ct.reshape(ct.arange(TILE_D, dtype=ct.int32) < D, (1, TILE_D))
    centred = ct.where(inside, x - mean, 0.0)
    variance = ct.sum(centred * centred, axis=1, keepdims=True) * (1.0 / D)

    # scale, shift, write; what sticks out of Y is not written
    g = ct.reshape(ct.load(gamma, (0,), (TILE_D,), padding_mode=ct.PaddingMode.ZERO), (1, TILE_D))
    b = ct.reshape(ct.load(beta, (0,), (TILE_D,), padding_mode=ct.PaddingMode.ZERO), (1, TILE_D))
    ct.store(Y, (row, 0), centred * ct.rsqrt(variance + 1e-5) * g + b)


KERNEL = layernorm_kernel


def supports(dims):
    """Why a shape cannot be taken, or None."""
    _, D = dims
    if D > WIDEST:
        return f"a row is one tile, and {D} elements do not fit the registers of a block (at most {WIDEST})"
    return None


def grid(dims, config):
    """Programs: one a row."""
    R, _ = dims
    return (R, 1, 1)


def arguments(X, gamma, beta, Y, config=FIXED):
    """What the kernel is launched with, in its order."""
    D = X.shape[1]
    padded = 1 << (D - 1).bit_length()
    return (X, gamma, beta, Y, D, padded)
