"""The matmul stages that fill a whole multiprocessor with one block, and which tile they take at which shape.

The tile decides how many blocks there are, and so how many waves of them the device needs. A wave takes as long as a
tile is large, so the best tile of a shape is the one with the smallest product of waves, outputs a tile and time an
output; of equals the larger, which reads less for a multiply-add. The tiles were made for 132 multiprocessors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from mage.kernels.stage import Dims, Grid, Stage

MULTIPROCESSORS = 132
"""Of an H200. On another device another tile may be the best; each is right everywhere."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """``rows`` × ``columns`` outputs of a block, ``depth`` along K in one slab, ``slabs`` of them in shared memory.

    ``groups`` of threads share the k of a slab. ``pace``: time of a full wave for each output, in those of ``banks``.
    """

    name: str
    rows: int
    columns: int
    depth: int
    slabs: int = 4
    groups: int = 1
    pace: float = 1.0

    @property
    def bytes(self) -> int:
        """Dynamic shared memory: slabs of A (rows padded by four) and of B, in whose place all groups but one leave sums."""
        ring = self.slabs * self.depth * (self.rows + 4 + self.columns)
        return 4 * max(ring, (self.groups - 1) * self.rows * self.columns)

    def count(self, dims: Dims) -> int:
        return -(-dims[0] // self.rows) * -(-dims[1] // self.columns)

    def whole(self, dims: Dims) -> bool:
        return not (dims[0] % self.rows or dims[1] % self.columns or dims[2] % self.depth)

    def cost(self, dims: Dims) -> float:
        """Waves × outputs of a tile × pace: what the time of a long K is proportional to."""
        return -(-self.count(dims) // MULTIPROCESSORS) * self.rows * self.columns * self.pace


BANKS = Tile(name="banks", rows=64, columns=128, depth=32, groups=4)
OTHERS = (
    Tile(name="third", rows=64, columns=96, depth=32, groups=4),
    Tile(name="broad", rows=192, columns=96, depth=16, groups=2),
    Tile(name="wide", rows=128, columns=256, depth=8),
)
QUARTER = Tile(name="quarter", rows=32, columns=64, depth=64, groups=8, pace=1.16)
EDGE = replace(BANKS, name="edge", pace=1.03)
"""``banks`` with zeros for what sticks out, which takes every shape with rows of whole quads."""
HALF = Tile(name="split", rows=64, columns=64, depth=32, groups=4)
"""The tile that several blocks share."""
LEAST_DEPTH = 128
"""Along K, of a block that shares its tile with others: below that the sums cost more than they save."""


def form(dims: Dims) -> str | None:
    """Name of the kernel that does the work of ``banks`` at ``dims``; None: its own."""
    shared_by = parts(dims)
    if shared_by > 2 or (shared_by == 2 and not QUARTER.whole(dims)):  # two tiles of quarter are as many blocks as two that share
        return "split"
    whole = [tile for tile in (BANKS, *OTHERS, QUARTER) if tile.whole(dims)]
    best = min([*whole, EDGE], key=lambda tile: (tile.cost(dims), -tile.rows * tile.columns))
    return None if best is BANKS else best.name


def parts(dims: Dims) -> int:
    """Blocks that share a tile of ``split``, where all tiles together fill no more than half of the device."""
    if not HALF.whole(dims):
        return 1
    return max(1, min(MULTIPROCESSORS // HALF.count(dims), dims[2] // LEAST_DEPTH))


def whole_tiles(rows: int, columns: int, depth: int) -> Callable[[Dims], str | None]:
    """``refuses`` of a kernel that takes whole tiles only: rows × columns of C, depth along K."""

    def refuses(dims: Dims) -> str | None:
        for name, size, step in zip("MNK", dims, (rows, columns, depth), strict=True):
            if size % step:
                return f"{name} = {size} is not a multiple of {step}, and this kernel takes whole tiles only"
        return None

    return refuses


_refuses = whole_tiles(BANKS.rows, BANKS.columns, BANKS.depth)


def _no_quads(dims: Dims) -> str | None:
    return f"N = {dims[1]} is not a multiple of four" if dims[1] % 4 else None


def _own_tile(dims: Dims, parameters: Mapping[str, int]) -> str | None:
    """The parameters are those of ``banks`` itself, so a shape that goes to a form of it has nothing to choose."""
    other = form(dims)
    return f"shape: {dims} goes to {other}, which has no parameters" if other else None


def _stage(tile: Tile, name: str, changed: str, **more) -> Stage:
    def grid(dims: Dims) -> Grid:
        return (tile.count(dims), 1, 1)

    about = {"grid": grid, "block": (256, 1, 1), "dynamic": tile.bytes, "quads": True, "fallback": "tiled", **more}
    return Stage(operation="matmul", name=name, changed=changed, **about)


STAGES = (
    _stage(BANKS, "groups", "8 × 16 outputs a thread, groups of threads share the k of a slab, four slabs in a ring", refuses=_refuses),
    _stage(BANKS, "spread", "the copies of a slab spread over three steps", refuses=_refuses),
    _stage(
        BANKS, "banks", "sums free of the quads that they are stored in, and a tile for every shape",
        refuses=_no_quads, form=form,
        parameters={"SLABS": BANKS.slabs, "SPREAD": 3, "SNAKE": 0},
        space={"SLABS": (3, 4, 5), "SPREAD": (1, 2, 3, 4, 5, 7), "SNAKE": (0, 1)},
        configure=lambda chosen: {"dynamic": replace(BANKS, slabs=chosen["SLABS"]).bytes},
        static=_own_tile,
    ),
)  # fmt: skip
FORMS = (
    _stage(BANKS, "edge", "banks with zeros for what sticks out of the matrices", refuses=_no_quads),
    _stage(
        HALF, "split", "banks with tiles of 64 × 64, each shared by several blocks, which divide its K", shared=16,
        refuses=whole_tiles(HALF.rows, HALF.columns, HALF.depth),
        grid=lambda dims: (HALF.count(dims) * parts(dims), 1, 1),
        workspace=lambda dims: (HALF.count(dims) * parts(dims) * HALF.rows * HALF.columns, HALF.count(dims)),
    ),
    *(_stage(tile, tile.name, f"banks with tiles of {tile.rows} × {tile.columns}") for tile in (*OTHERS, QUARTER)),
)  # fmt: skip
