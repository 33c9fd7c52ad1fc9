"""triangle contraction in Triton: O[i,j,c] = Σₖ A[i,k,c]·B[j,k,c], FP32.

For every channel c this is a matrix product A[:,:,c]·B[:,:,c]ᵀ, so the kernel is that of matmul with
the channel as a third grid axis. What differs is memory: the channel is the innermost axis, so two
neighbours along k lie C floats apart. A load of one channel uses 4 bytes of every 32 that it moves,
and the C programs of one tile fetch the same sectors again (from cache, when they run together).
The library's einsum pays for this with two transposing copies; this kernel pays in every load.
"""

import triton
import triton.language as tl

# the configuration of the published runs
FIXED = {"BLOCK_I": 32, "BLOCK_J": 32, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3}

# what a search may try: every combination
SPACE = {
    "BLOCK_I": (32, 64, 128), "BLOCK_J": (32, 64, 128), "BLOCK_K": (32, 64),
    "num_warps": (4, 8), "num_stages": (2, 3),
}  # fmt: skip
UNROLLED = 4096  # multiply-adds a thread in one step: twice as many no longer fit the instruction cache


def shared_bytes(dims, config):
    """At least: all tiles in flight but the one being multiplied lie in shared memory."""
    tiles = (config["BLOCK_I"] + config["BLOCK_J"]) * config["BLOCK_K"]
    return 4 * tiles * max(1, config["num_stages"] - 1)


def registers(dims, config):
    """At least: the sums of a tile stay in the registers of its threads."""
    return config["BLOCK_I"] * config["BLOCK_J"]


def static(dims, config):
    """Why a configuration needs no build to be refused, or None."""
    steps = config["BLOCK_I"] * config["BLOCK_J"] * config["BLOCK_K"] // (32 * config["num_warps"])
    if steps > UNROLLED:
        return f"unrolled steps: {steps} multiply-adds a thread in one, {UNROLLED} fit the instruction cache"
    return None


@triton.jit
def triangle_kernel(
    A, B, O, N, C,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # the tile of O[:,:,c] that this program owns
    i = tl.program_id(0) * BLOCK_I + tl.arange(0, BLOCK_I)
    j = tl.program_id(1) * BLOCK_J + tl.arange(0, BLOCK_J)
    c = tl.program_id(2)
    i_inside = i[:, None] < N
    j_inside = j[None, :] < N

    # walk along k; B is read with j along the second axis, which is its transpose
    total = tl.zeros((BLOCK_I, BLOCK_J), dtype=tl.float32)
    for start in range(0, N, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(A + (i[:, None] * N + k[None, :]) * C + c, mask=i_inside & (k[None, :] < N), other=0.0)
        b = tl.load(B + (j[None, :] * N + k[:, None]) * C + c, mask=(k[:, None] < N) & j_inside, other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")

    # write what lies inside O
    tl.store(O + (i[:, None] * N + j[None, :]) * C + c, total, mask=i_inside & j_inside)


KERNEL = triangle_kernel


def grid(dims, config):
    """Programs: tiles along i × tiles along j × channels."""
    N, C = dims
    return (triton.cdiv(N, config["BLOCK_I"]), triton.cdiv(N, config["BLOCK_J"]), C)


def launch(A, B, O, config=FIXED):
    """Start the kernel on the current stream."""
    N, _, C = A.shape
    triangle_kernel[grid((N, C), config)](A, B, O, N, C, **config, enable_fp_fusion=True)
