"""The sum of all tiles of an array: the tile that is loaded follows the loop variable.

Where an index does not move, its load is taken out of the loop. So the loads that stand in the loop's code tell whether
the index follows the variable: there are some for the kernel, and none for its twin, which always loads the first tile.
"""

import cuda.tile as ct

ARRAYS = ("float32[1]", "float32[1]")


@ct.kernel
def kernel(X, Y):
    total = ct.zeros((64,), ct.float32)
    for n in range(ct.num_tiles(X, axis=0, shape=(64,))):
        total += ct.load(X, (n,), (64,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(Y, (0,), total)


@ct.kernel
def twin(X, Y):
    total = ct.zeros((64,), ct.float32)
    for _ in range(ct.num_tiles(X, axis=0, shape=(64,))):
        total += ct.load(X, (0,), (64,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(Y, (0,), total)


KERNEL, STANDS_STILL = kernel, twin
