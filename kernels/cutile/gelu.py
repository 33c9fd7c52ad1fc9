"""bias + GELU (tanh form) in cuTile: Y = gelu(X + bias), FP32.

A tile program owns TILE_R × TILE_D elements: it loads a tile of X and the piece of the bias above it,
and every row of the tile gets the same piece. Nothing is reused, so the compiler has one decision to
make, how wide to load, and no way to lose.

    kernel               tanh
    gelu_kernel          as a polynomial and exponentials: 7 multiply-adds an element
    gelu_approx_kernel   the GPU's own instruction: 1 multiply-add, and 5e-6 off where the other is 1e-7 off
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


# Memory is what this operation waits for, but only as long as there is little arithmetic: at 5 µs for 25 MB the
# exact tanh takes as long as the loads.


@ct.kernel
def gelu_approx_kernel(X, bias, Y, TILE_R: ConstInt, TILE_D: ConstInt):
    row, column = ct.bid(0), ct.bid(1)
    x = ct.load(X, (row, column), (TILE_R, TILE_D), padding_mode=ct.PaddingMode.ZERO)
    b = ct.load(bias, (column,), (TILE_D,), padding_mode=ct.PaddingMode.ZERO)

    z = x + ct.reshape(b, (1, TILE_D))
    u = 0.7978845608028654 * (z + 0.044715 * z * z * z)
    ct.store(Y, (row, column), 0.5 * z * (1.0 + ct.tanh(u, rounding_mode=ct.RoundingMode.APPROX)))


KERNEL = gelu_kernel
KERNELS = {"exact": gelu_kernel, "approx": gelu_approx_kernel}

# what a search may try: every combination
SPACE = {
    "kernel": ("exact", "approx"), "TILE_R": (1, 2, 4, 8, 16, 32), "TILE_D": (128, 256, 512), "num_worker_warps": (None, 8),
}  # fmt: skip
VALUES = (4, 16)  # elements a thread: with fewer it is busy with addresses, with more only the code gets longer


def static(dims, config):
    """Why a configuration needs no build to be refused, or None."""
    values = config["TILE_R"] * config["TILE_D"] // (32 * (config.get("num_worker_warps") or 4))
    if not VALUES[0] <= values <= VALUES[1]:
        return f"{values} elements a thread, {VALUES[0]} to {VALUES[1]} are tried"
    return None


def grid(dims, config):
    """Programs: tiles along the rows × tiles along the width."""
    R, D = dims
    return (ct.cdiv(R, config["TILE_R"]), ct.cdiv(D, config["TILE_D"]), 1)


def arguments(X, bias, Y, config=FIXED):
    """What the kernel is launched with, in its order."""
    return (X, bias, Y, config["TILE_R"], config["TILE_D"])
