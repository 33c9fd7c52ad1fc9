"""layernorm in Triton: Y = gamma·(X − μ)/√(v + 1e-5) + beta over each row, FP32.

One program owns one row (or ROWS rows) and holds all of it in registers, padded to the next power of two because a
Triton block has no other size: a row of 768 becomes 1024, and a quarter of the lanes idle. The row is
read once. The mean needs the whole row, the variance needs the mean, and the result needs both: three
passes, but only the first touches memory.

The variance is taken from the centred row, Σ(x − μ)²/D, not as E[x²] − μ², which loses every digit
when the mean is large beside the spread. The padding has to be put back to zero after the mean has
been subtracted, or it would count.
"""

import triton
import triton.language as tl

# the configuration of the published runs: one padded row a program, four warps
FIXED = {"num_warps": 4}
WIDEST = 16384  # 128 elements a thread at four warps; wider rows would live in local memory

# what a search may try: every combination; ROWS None is one row a program, by a kernel of its own
SPACE = {"ROWS": (None, 2, 4, 8), "num_warps": (1, 2, 4, 8, 16)}


def registers(dims, config):
    """At least: the padded rows of a program stay in the registers of its threads."""
    return (config.get("ROWS") or 1) * triton.next_power_of_2(dims[1])


def static(dims, config):
    """Why a configuration needs no build to be refused, or None."""
    elements, threads = registers(dims, config), 32 * config["num_warps"]
    if elements < threads:
        return f"idle threads: {threads} threads share {elements} padded elements"
    return None


@triton.jit
def layernorm_kernel(X, gamma, beta, Y, D: tl.constexpr, BLOCK_D: tl.constexpr):
    # the row that this program owns; its width is known when the kernel is compiled, one kernel a width
    start = tl.program_id(0) * D
    columns = tl.arange(0, BLOCK_D)
    inside = columns < D

    # the only read of X
    x = tl.load(X + start + columns, mask=inside, other=0.0)
    mean = tl.sum(x, axis=0) / D

    # variance of the centred row, padding kept out
    centred = tl.where(inside, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / D
    scale = 1.0 / tl.sqrt(variance + 1e-5)

    # write from the same registers
    g = tl.load(gamma + columns, mask=inside, other=0.0)
    b = tl.load(beta + columns, mask=inside, other=0.0)
    tl.store(Y + start + columns, centred * scale * g + b, mask=inside)


# Several rows a program: the same passes over a block of ROWS × BLOCK_D, reduced along each row. More work a
# program and as many reductions side by side; which count is best depends on the width.


@triton.jit
def layernorm_rows_kernel(X, gamma, beta, Y, R, D: tl.constexpr, ROWS: tl.constexpr, BLOCK_D: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK_D)
    column_inside = columns < D
    inside = (rows[:, None] < R) & column_inside[None, :]
    offsets = rows[:, None] * D + columns[None, :]

    x = tl.load(X + offsets, mask=inside, other=0.0)
    mean = tl.sum(x, axis=1) / D

    centred = tl.where(inside, x - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, axis=1) / D
    scale = 1.0 / tl.sqrt(variance + 1e-5)

    g = tl.load(gamma + columns, mask=column_inside, other=0.0)
    b = tl.load(beta + columns, mask=column_inside, other=0.0)
    tl.store(Y + offsets, centred * scale[:, None] * g[None, :] + b[None, :], mask=inside)


KERNEL = layernorm_kernel


def supports(dims):
    """Why a shape cannot be taken, or None."""
    _, D = dims
    if D > WIDEST:
        return f"one program holds a whole row, and {D} elements do not fit its registers (at most {WIDEST})"
    return None


def grid(dims, config):
    """Programs: one for every ROWS rows."""
    R, _ = dims
    return (triton.cdiv(R, config.get("ROWS") or 1),)


def launch(X, gamma, beta, Y, config=FIXED):
    """Start the kernel on the current stream."""
    R, D = X.shape
    programs, options = grid((R, D), config), {"num_warps": config["num_warps"], "enable_fp_fusion": True}
    width = triton.next_power_of_2(D)
    if (config.get("ROWS") or 1) == 1:
        layernorm_kernel[programs](X, gamma, beta, Y, D, BLOCK_D=width, **options)
    else:
        layernorm_rows_kernel[programs](X, gamma, beta, Y, R, D, ROWS=config["ROWS"], BLOCK_D=width, **options)
