"""Rows of a matrix in an order that another array names: gathered by index, bounds checked, no pointer in sight."""

import cuda.tile as ct

ARRAYS = ("float32[2]", "int32[1]", "float32[2]")


@ct.kernel
def kernel(X, src, Y):
    block = ct.bid(0)
    sources = ct.load(src, (block,), (16,), padding_mode=ct.PaddingMode.ZERO)
    columns = ct.arange(64, dtype=ct.int32)
    rows = ct.gather(X, (ct.reshape(sources, (16, 1)), ct.reshape(columns, (1, 64))))
    ct.store(Y, (block, 0), rows)


KERNEL = kernel
