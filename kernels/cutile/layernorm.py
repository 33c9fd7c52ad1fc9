"""layernorm in cuTile: Y = gamma·(X − μ)/√(v + 1e-5) + beta over each row, FP32.

A tile program owns one row as a single tile, padded to the next power of two (768 -> 1024: a quarter
of the tile is padding). The row is loaded once; mean, variance of the centred row and result are
computed from the tile. Where the tile lives is the compiler's affair.

The padding is loaded as zero, so it does not disturb the sum; after the mean has been subtracted it
is not zero any more and has to be taken out before the squares are added.

    kernel                  a row is
    layernorm_kernel        one tile; the compiler lets the tensor memory accelerator (TMA) fetch it
    layernorm_rows_kernel   several tiles side by side, of several rows; each thread fetches its own part
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


# Loads by TMA come with warps that only fetch, and such a block may take every register that a thread can have:
# 255, so one block of 256 threads fills a multiprocessor and each row waits for itself. With allow_tma=False
# the same tile takes 40 registers and twelve blocks share a multiprocessor: 6.4 µs instead of 42 on an H200.


@ct.kernel
def layernorm_rows_kernel(X, gamma, beta, Y, D: ConstInt, TILES: ConstInt, TILE_R: ConstInt, TILE_D: ConstInt):
    # the rows that this program owns, held as a tuple of tiles: the only read of X
    row = ct.bid(0)
    tiles = ()
    for n in ct.static_iter(range(TILES)):
        tiles += (ct.load(X, (row, n), (TILE_R, TILE_D), padding_mode=ct.PaddingMode.ZERO, allow_tma=False),)

    # tiles are added before threads are: one reduction a row, not one a tile
    total = tiles[0]
    for n in ct.static_iter(range(1, TILES)):
        total = total + tiles[n]
    mean = ct.sum(total, axis=1, keepdims=True) * (1.0 / D)

    # the centred rows; only a last tile that sticks out has padding to take out
    centred = ()
    for n in ct.static_iter(range(TILES)):
        c = tiles[n] - mean
        if (n + 1) * TILE_D > D:
            inside = n * TILE_D + ct.arange(TILE_D, dtype=ct.int32) < D
            c = ct.where(ct.reshape(inside, (1, TILE_D)), c, 0.0)
        centred += (c,)
    squares = centred[0] * centred[0]
    for n in ct.static_iter(range(1, TILES)):
        squares = squares + centred[n] * centred[n]
    scale = ct.rsqrt(ct.sum(squares, axis=1, keepdims=True) * (1.0 / D) + 1e-5)

    # scale, shift, write
    for n in ct.static_iter(range(TILES)):
        g = ct.load(gamma, (n,), (TILE_D,), padding_mode=ct.PaddingMode.ZERO, allow_tma=False)
        b = ct.load(beta, (n,), (TILE_D,), padding_mode=ct.PaddingMode.ZERO, allow_tma=False)
        y = centred[n] * scale * ct.reshape(g, (1, TILE_D)) + ct.reshape(b, (1, TILE_D))
        ct.store(Y, (row, n), y, allow_tma=False)


KERNEL = layernorm_kernel
KERNELS = {"row": layernorm_kernel, "rows": layernorm_rows_kernel}

# what a search may try: every combination; TILE_D None is the whole row, padded
SPACE = {"kernel": ("rows",), "TILE_R": (1, 2, 4, 8), "TILE_D": (None, 128, 256, 512), "num_worker_warps": (None, 8)}
MOST_TILES = 16  # the code is unrolled over a row's tiles
VALUES = 64  # elements a thread, all in registers


def static(dims, config):
    """Why a configuration needs no build to be refused, or None."""
    _, D = dims
    rows, wide = config.get("TILE_R", 1), config.get("TILE_D") or _padded(D)
    if config.get("kernel") != "rows":
        return None
    if wide > 128 and wide > _padded(D):
        return f"a tile of {wide} is mostly padding for rows of {D}"
    if -(-D // wide) > MOST_TILES:
        return f"{-(-D // wide)} tiles a row, the code is unrolled for at most {MOST_TILES}"
    values = rows * -(-D // wide) * wide // (32 * (config.get("num_worker_warps") or 4))
    if values > VALUES:
        return f"{values} elements a thread, at most {VALUES} stay in registers"
    return None


def supports(dims):
    """Why a shape cannot be taken, or None."""
    _, D = dims
    if D > WIDEST:
        return f"a row is one tile, and {D} elements do not fit the registers of a block (at most {WIDEST})"
    return None


def grid(dims, config):
    """Programs: TILE_R rows each, one where a configuration does not say."""
    R, _ = dims
    return (ct.cdiv(R, config.get("TILE_R", 1)), 1, 1)


def arguments(X, gamma, beta, Y, config=FIXED):
    """What the kernel is launched with, in its order."""
    D = X.shape[1]
    if config is None or config.get("kernel") != "rows":
        return (X, gamma, beta, Y, D, _padded(D))
    wide = config.get("TILE_D") or _padded(D)
    return (X, gamma, beta, Y, D, ct.cdiv(D, wide), config.get("TILE_R", 1), wide)


def _padded(D):
    return 1 << (D - 1).bit_length()
