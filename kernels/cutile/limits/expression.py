"""Tiles without a name, inside one expression, their shape computed from a constant of the kernel."""

import cuda.tile as ct

ARRAYS = ("float32[1]", "float32[1]")
CONSTANTS = (128,)


@ct.kernel
def kernel(X, Y, WIDTH: ct.Constant[int]):
    n = ct.bid(0)
    ct.store(Y, (n,), ct.load(X, (2 * n,), (WIDTH // 2,)) + ct.load(X, (2 * n + 1,), (WIDTH // 2,)))


KERNEL = kernel
