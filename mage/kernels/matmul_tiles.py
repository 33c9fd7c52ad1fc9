"""The matmul stages that fill a whole multiprocessor with one block, and which tile they take at which shape.

The tile decides how many blocks there are, and so how many waves of them the device needs. A wave takes as long as a
tile is large, so the best tile of a shape is the one with the smallest product of waves and outputs a tile; of
equals the larger, which reads less for a multiply-add. The tiles were made for 132 multiprocessors.
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

    ``groups`` of threads share the k of a slab.
    """

    name: str
    rows: int
    columns: int
    depth: int
    slabs: int = 4
    groups: int = 1

    @property
    def bytes(self) -> int:
        """Dynamic shared memory: slabs of A (rows padded by four) and of B, in whose place all groups but one leave sums."""
        ring = self.slabs * self.depth * (self.rows + 4 + self.columns)
        return 4 * max(ring, (self.groups - 1) * self.rows * self.columns)

    def count(self, dims: Dims) -> int:
        return -(-dims[0] // self.rows) * -(-dims[1] // self.columns)

    def whole(self, dims: Dims) -> bool:
        return not (dims[0] % self.rows or dims[1] % self.columns or dims[2] % self.depth)

    def cost(self, dims: Dims) -> int:
        """Waves × outputs of a tile: what the time of a long K is proportional to."""
        return -(-self.count(dims) // MULTIPROCESSORS) * self.rows * self.columns


BANKS = Tile(name="banks", rows=64, columns=128, depth=32, groups=4)
OTHERS = (
    Tile(name="third", rows=64, columns=96, depth=32, groups=4),
    Tile(name="broad", rows=192, columns=96, depth=16, groups=2),
    Tile(name="wide", rows=128, columns=256, depth=8),
)
QUARTER = Tile(name="quarter", rows=32, columns=64, depth=64, groups=8)
LONGEST_FOR_QUARTER = 2048
"""Along K: up to it the dearer reads of a small tile cost less than the sums of a shared one."""
LEAST_DEPTH = 128
"""Along K, of a block that shares its tile with others: below that the sums cost more than they save."""


def form(dims: Dims) -> str | None:
    """Name of the kernel that does the work of ``banks`` at ``dims``; None: its own."""
    whole = [tile for tile in (BANKS, *OTHERS) if tile.whole(dims)]
    if not whole:
        return "edge"
    if (shared_by := parts(dims)) > 1:
        small = QUARTER.whole(dims) and dims[2] <= LONGEST_FOR_QUARTER
        return "quarter" if small and QUARTER.cost(dims) * shared_by <= BANKS.cost(dims) else "split"
    best = min(whole, key=lambda tile: (tile.cost(dims), -tile.rows * tile.columns))
    return None if best is BANKS else best.name


def parts(dims: Dims) -> int:
    """Blocks that share a tile of ``banks``, where all tiles together fill no more than half of the device."""
    if not BANKS.whole(dims):
        return 1
    return max(1, min(MULTIPROCESSORS // BANKS.count(dims), dims[2] // LEAST_DEPTH))


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
        BANKS, "split", "banks with several blocks a tile, which share its K", refuses=_refuses, shared=16,
        grid=lambda dims: (BANKS.count(dims) * parts(dims), 1, 1),
        workspace=lambda dims: (BANKS.count(dims) * parts(dims) * BANKS.rows * BANKS.columns, BANKS.count(dims)),
    ),
    *(_stage(tile, tile.name, f"banks with tiles of {tile.rows} × {tile.columns}") for tile in (*OTHERS, QUARTER)),
)  # fmt: skip
