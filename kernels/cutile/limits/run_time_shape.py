"""A tile as wide as the array is at run time. A shape must be known when the kernel is compiled."""

import cuda.tile as ct

ARRAYS = ("float32[1]", "float32[1]")


@ct.kernel
def kernel(X, Y):
    ct.store(Y, (0,), ct.load(X, (0,), (X.shape[0],)))


@ct.kernel
def instead(X, Y):
    # the width is a constant of the kernel, as many tiles as the array needs are not
    for n in range(ct.num_tiles(X, axis=0, shape=(1024,))):
        ct.store(Y, (n,), ct.load(X, (n,), (1024,), padding_mode=ct.PaddingMode.ZERO))


KERNEL, INSTEAD = kernel, instead
