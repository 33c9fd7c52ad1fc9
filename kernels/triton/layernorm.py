"""layernorm in Triton: Y = gamma·(X − μ)/√(v + 1e-5) + beta over each row, FP32.

One program owns one row and holds all of it in registers, padded to the next power of two because a
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


KERNEL = layernorm_kernel


def supports(dims):
    """Why a shape cannot be taken, or None."""
    _, D = dims
    if D > WIDEST:
        return f"one program holds a whole row, and {D} elements do not fit its registers (at most {WIDEST})"
    return None


def grid(dims, config):
    """Programs: one a row."""
    R, _ = dims
    return (R,)


def launch(X, gamma, beta, Y, config=FIXED):
    """Start the kernel on the current stream."""
    R, D = X.shape
    layernorm_kernel[grid((R, D), config)](
        X, gamma, beta, Y, D, BLOCK_D=triton.next_power_of_2(D), **config, enable_fp_fusion=True
    )
