"""The shortest way from Python to a kernel: one driver call whose arguments were all made beforehand.

``cuLaunchKernelEx`` takes four pointers: where the launch is described, the function, and where the kernel's
arguments lie. All of it is written once; a launch looks up the current stream (some 0.06 µs), writes it where it
changed, and enters the driver (some 0.1 µs to get there through ctypes, three for the driver itself, on the
host of an H200). Nothing is converted, and nothing is allocated.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of the CUDA driver API: grid in blocks, block in threads, dynamic shared memory in bytes."""

    _fields_ = (
        *((f"grid_{axis}", ctypes.c_uint) for axis in "xyz"),
        *((f"block_{axis}", ctypes.c_uint) for axis in "xyz"),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


@functools.cache
def _entry():
    return ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx


def prepared(
    function: int,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    values: Sequence[ctypes._SimpleCData],
    current_stream: Callable[[], int],
    refused: Callable[[int], None],
) -> Callable[[], None]:
    """A launch of ``function`` (a CUfunction) on the stream that ``current_stream()`` names at that moment.

    ``values``: the kernel's arguments in C's types. They are read at each launch, so the result holds on to them.
    ``refused(status)`` is called with the driver's status where that is not zero.
    """
    config = LaunchConfig(*grid, *block, shared, None, None, 0)
    places = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    launch = functools.partial(
        _entry(), ctypes.byref(config), ctypes.c_void_p(function), ctypes.c_void_p(ctypes.addressof(places)), None
    )
    written = 0

    def run(held=(tuple(values), places)) -> None:
        nonlocal written
        stream = current_stream()
        if stream != written:
            config.stream = written = stream
        if status := launch():
            refused(status)

    return run
