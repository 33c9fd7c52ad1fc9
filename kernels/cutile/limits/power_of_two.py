"""A row of 768 values as one tile. A tile's sides must be powers of two; a wider, padded tile is the way out."""

import cuda.tile as ct

ARRAYS = ("float32[2]", "float32[2]")


@ct.kernel
def kernel(X, Y):
    row = ct.bid(0)
    ct.store(Y, (row, 0), ct.load(X, (row, 0), (1, 768)))


@ct.kernel
def instead(X, Y):
    # what sticks out of the row is zero on the way in and not written on the way out
    row = ct.bid(0)
    ct.store(Y, (row, 0), ct.load(X, (row, 0), (1, 1024), padding_mode=ct.PaddingMode.ZERO))


KERNEL, INSTEAD = kernel, instead
