"""matmul in Triton: C = A·B, FP32.

One program owns one BLOCK_M × BLOCK_N tile of C and walks along K in steps of BLOCK_K. Each step
loads a tile of A and a tile of B, and multiplies them. Where the two tiles are kept (shared memory,
registers), how a tile is spread over the threads, and how many steps are loaded ahead is the
compiler's choice: that is what Triton takes off our hands, and what it takes out of them.

What is said here and matters:
  input_precision="ieee"   without it the product is computed in TF32, with 10 bits of mantissa
  masks                    a tile that sticks out reads zeros and writes nothing, so any shape works
"""

import triton
import triton.language as tl

# the configuration of the published runs
FIXED = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3}

# what a search may try: every combination
SPACE = {
    "BLOCK_M": (32, 64, 128), "BLOCK_N": (32, 64, 128), "BLOCK_K": (32, 64, 128),
    "num_warps": (4, 8), "num_stages": (2, 3, 4),
}  # fmt: skip
UNROLLED = 4096  # multiply-adds a thread in one step: twice as many no longer fit the instruction cache


def shared_bytes(dims, config):
    """At least: all tiles in flight but the one being multiplied lie in shared memory."""
    tiles = (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"]
    return 4 * tiles * max(1, config["num_stages"] - 1)


def registers(dims, config):
    """At least: the sums of a tile stay in the registers of its threads."""
    return config["BLOCK_M"] * config["BLOCK_N"]


def static(dims, config):
    """Why a configuration needs no build to be refused, or None."""
    steps = config["BLOCK_M"] * config["BLOCK_N"] * config["BLOCK_K"] // (32 * config["num_warps"])
    if steps > UNROLLED:
        return f"unrolled steps: {steps} multiply-adds a thread in one, {UNROLLED} fit the instruction cache"
    return None


@triton.jit
def matmul_kernel(
    A, B, C, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # the tile of C that this program owns
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_inside = rows[:, None] < M
    column_inside = columns[None, :] < N

    # walk along K; the sum stays in registers
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        steps = start + tl.arange(0, BLOCK_K)
        a = tl.load(A + rows[:, None] * K + steps[None, :], mask=row_inside & (steps[None, :] < K), other=0.0)
        b = tl.load(B + steps[:, None] * N + columns[None, :], mask=(steps[:, None] < K) & column_inside, other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")

    # write what lies inside C
    tl.store(C + rows[:, None] * N + columns[None, :], total, mask=row_inside & column_inside)


KERNEL = matmul_kernel


def grid(dims, config):
    """Programs: rows of tiles × columns of tiles."""
    M, N, _ = dims
    return (triton.cdiv(M, config["BLOCK_M"]), triton.cdiv(N, config["BLOCK_N"]))


def launch(A, B, C, config=FIXED):
    """Start the kernel on the current stream."""
    M, K = A.shape
    N = B.shape[1]
    matmul_kernel[grid((M, N, K), config)](A, B, C, M, N, K, **config, enable_fp_fusion=True)
