"""A walk along a row's edges that ends where two scalars, read at run time, are equal."""

import cuda.tile as ct

ARRAYS = ("int32[1]", "float32[1]", "float32[1]")


@ct.kernel
def kernel(row_ptr, weights, Y):
    row = ct.bid(0)
    edge, last = ct.gather(row_ptr, row), ct.gather(row_ptr, row + 1)
    total = 0.0
    while edge < last:
        total = total + ct.gather(weights, edge)
        edge = edge + 1
    ct.scatter(Y, row, total)


KERNEL = kernel
