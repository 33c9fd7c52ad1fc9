"""Kernels broken on purpose, one small change each: what the gate must refuse.

``BROKEN[name].source()`` is the kernel file with the change in it. Each says at which dims it shows and
how: "result" (wrong numbers, every time), "late copy" (wrong numbers when the bytes of a cp.async land
no sooner than the wait that covers them, which a GPU may but need not do), "bounds" (an access outside a
shared array). Barriers are left out one at a time by ``without_barrier``: what that does depends on
timing, so it is for a race detector to find.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mage import kernels
from mage.gate import defects
from mage.gate.defects import Defect


@dataclass(frozen=True, kw_only=True)
class Broken(Defect):
    """A defect, the dims at which it shows, and how: ``result``, ``late copy`` or ``bounds``."""

    dims: tuple[int, ...]
    shows: str = "result"
    hidden_at: tuple[int, ...] | None = None
    """Dims at which the same change does no harm, where it is known for that."""

    def source(self) -> str:
        return self.apply(kernels.source(f"cuda/{self.operation}"))


def _published(name: str) -> Broken:
    return Broken(dims=(64, 64, 96), **vars(defects.DEFECTS[name]))


BROKEN: dict[str, Broken] = {
    "pipeline-buffer-units": _published("pipeline-buffer-units"),
    "pipeline-last-buffer": _published("pipeline-last-buffer"),
    "pipeline-wait-short": Broken(
        operation="matmul", stage="pipeline", dims=(64, 64, 96), shows="late copy",
        text="cp_async_wait<1>();", replacement="cp_async_wait<2>();",
        stands_for="a wait that leaves one group too many under way",
    ),
    "pipeline-last-wait-short": Broken(
        operation="matmul", stage="pipeline", dims=(64, 64, 32), shows="late copy",
        text="const int last = (tiles - 1) % 2;\n    cp_async_wait<0>();",
        replacement="const int last = (tiles - 1) % 2;\n    cp_async_wait<1>();",
        stands_for="the last tile waits as all others do, and its own group is the one that may be under way",
    ),
    "pipeline-single-buffer": Broken(
        operation="matmul", stage="pipeline", dims=(64, 64, 96),
        text="copy_tile(a_buffers, b_buffers, tile % 2, a_from, b_from, N, K);",
        replacement="copy_tile(a_buffers, b_buffers, (tile + 1) % 2, a_from, b_from, N, K);",
        stands_for="the copy two steps ahead goes to the buffer that holds the next tile",
    ),
    "quads-undersized": Broken(
        operation="matmul", stage="quads", dims=(64, 64, 64), shows="bounds",
        text="__shared__ __align__(16) float a_tile[64 * A_STRIDE];",
        replacement="__shared__ __align__(16) float a_tile[64 * 64];",
        stands_for="a shared array sized for the plain layout and used for the padded one: it overwrites its neighbour",
    ),
    "tiled-unwritten-tail": Broken(
        operation="matmul", stage="tiled", dims=(17, 19, 23),
        text="if (row_inside && column_inside) C[", replacement="if (row + 1 < M && column_inside) C[",
        stands_for="the last row is never written",
    ),
    "tiled-tail-not-zero": Broken(
        operation="matmul", stage="tiled", dims=(17, 19, 23),
        text="const int tiles = (K - 1) / 16 + 1;", replacement="const int tiles = K / 16;",
        stands_for="the part of K beyond the last whole tile is left out",
    ),
    "pair-span": Broken(
        operation="layernorm", stage="pair", dims=(4, 128), hidden_at=(4, 768),
        text="const int end = begin + half < quads ? begin + half : quads;",
        replacement="const int whole = (half + 31) / 32 * 32;\n"
        "    const int end = begin + whole < quads ? begin + whole : quads;",
        stands_for="a warp goes on to the end of its last 32-lane step and counts the other warp's quads again",
    ),
    "warp-no-broadcast": Broken(
        operation="layernorm", stage="warp", dims=(8, 128),
        text="return __shfl_sync(FULL_WARP, total, 0);", replacement="return total;",
        stands_for="each lane uses its own partial total instead of lane 0's",
    ),
    "block-unwritten-tail": Broken(
        operation="layernorm", stage="block", dims=(3, 257),
        text="for (unsigned d = threadIdx.x; d < D; d += 256) y[d] =",
        replacement="for (unsigned d = threadIdx.x; d < D / 256 * 256; d += 256) y[d] =",
        stands_for="the end of each row is never written",
    ),
    "row-unwritten-tail": Broken(
        operation="layernorm", stage="row", dims=(2, 768), hidden_at=(2, 512),
        text="if (second < D) store_normalized(", replacement="if (second < 512) store_normalized(",
        stands_for="the masked second quad is read and never written",
    ),
    "gelu-unwritten-tail": Broken(
        operation="gelu", stage="elementwise", dims=(3, 100), hidden_at=(4, 256),
        text="if (element >= static_cast<unsigned>(R) * D) return;",
        replacement="if (element >= static_cast<unsigned>(R) * D / 256 * 256) return;",
        stands_for="the last, incomplete block writes nothing",
    ),
    "triangle-unwritten-tail": Broken(
        operation="triangle", stage="elementwise", dims=(9, 4),
        text="if (output >= static_cast<unsigned>(N) * N * C) return;",
        replacement="if (output >= static_cast<unsigned>(N) * N * C / 256 * 256) return;",
        stands_for="the last, incomplete block writes nothing",
    ),
    "neighbor-odd-edge": Broken(
        operation="neighbor", stage="quad", dims=(7, 8, 20),
        text="if (e < end) {", replacement="if (e + 1 < end) {",
        stands_for="the last edge of a row with an odd number of them is left out",
    ),
}  # fmt: skip


def broken(name: str) -> str:
    """The kernel file of broken kernel ``name``, with the change in it."""
    return BROKEN[name].source()


@dataclass(frozen=True)
class Barrier:
    """One ``__syncthreads()`` of a kernel file: its number from 0, its line from 1, the function it stands in."""

    number: int
    line: int
    function: str
    for_parts: bool = False  # stands where only a kernel that shares a tile among blocks comes

    @property
    def stages(self) -> tuple[str, ...]:
        """Stages that pass it."""
        if self.function == "slabs_body" and self.for_parts:
            return ()
        shared = {
            "registers_body": ("registers", "registers_merged"),
            "tree_sum": ("block",),
            "team_sum": ("team",),
            "slabs_body": ("groups", "spread", "banks"),
            "tile_body": ("shared", "tiles"),
            "balanced_rows": ("balanced", "hubs"),
        }
        return shared.get(self.function) or (self.function.split("_", 1)[1],)


_CODE_BARRIER = re.compile(r"^[ \t]*__syncthreads\(\);\n", re.M)
_FUNCTION = re.compile(r"^(?:__device__ .*?|)(\w+)\((?:const )?(?:float|int)", re.M)


def barriers(source: str) -> list[Barrier]:
    """Every barrier of a kernel file, in order."""
    return [
        Barrier(
            number,
            source.count("\n", 0, match.start()) + 1,
            _FUNCTION.findall(source, 0, match.start())[-1],
            "if (!SPLIT) return;" in source[: match.start()],
        )
        for number, match in enumerate(_CODE_BARRIER.finditer(source))
    ]


def without_barrier(source: str, number: int) -> str:
    """``source`` without its barrier ``number``; an empty line is left, so that line numbers stay."""
    match = list(_CODE_BARRIER.finditer(source))[number]
    return source[: match.start()] + "\n" + source[match.end() :]
