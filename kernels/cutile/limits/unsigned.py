"""Unsigned row pointers and indices, turned into signed ones where they are used."""

import cuda.tile as ct

ARRAYS = ("uint32[1]", "float32[1]", "float32[1]")


@ct.kernel
def kernel(src, X, Y):
    first = ct.astype(ct.gather(src, ct.bid(0)), ct.int32)
    others = ct.astype(ct.load(src, (ct.bid(0),), (64,)), ct.int32)
    ct.store(Y, (ct.bid(0),), ct.gather(X, first) + ct.gather(X, others))


KERNEL = kernel
