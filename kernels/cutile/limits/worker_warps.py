"""One warp for a tile program: a hint that the documentation offers from release 13.5 of the assembler on."""

import cuda.tile as ct

ARRAYS = ("float32[1]", "float32[1]")


@ct.kernel(num_worker_warps=1)
def kernel(X, Y):
    ct.store(Y, (ct.bid(0),), ct.load(X, (ct.bid(0),), (128,)))


@ct.kernel(num_worker_warps=4)
def instead(X, Y):
    ct.store(Y, (ct.bid(0),), ct.load(X, (ct.bid(0),), (128,)))


KERNEL, INSTEAD = kernel, instead
