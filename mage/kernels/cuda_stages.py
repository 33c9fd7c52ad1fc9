"""Every stage of the CUDA C++ kernels: how it is launched, what it can take, what was published for it.

A stage is one kernel of ``kernels/cuda/<operation>.cu``. Its grid follows from the dims; its threads a block and its
static shared memory are fixed. A stage that cannot take a shape or an address says why, and names the stage that does
its work instead; ``choose`` follows that chain, which ends at a stage that takes every legal shape. No CUDA, torch or
GPU is needed to ask any of this.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from math import prod

from mage.errors import RequestError
from mage.kernels import matmul_tiles
from mage.kernels.stage import QUAD_BYTES, Choice, Dims, Grid, Published, Stage


def _ceil(n: int, of: int) -> int:
    return -(-n // of)


# -- grids ---------------------------------------------------------------------------------------------

_GRID_Y_LIMIT = 65535


def _tiled_grid(dims: Dims) -> Grid:
    """16 × 16 tiles: columns on x, rows folded over y and z because y ends at 65535."""
    M, N, _ = dims
    rows = _ceil(M, 16)
    z = _ceil(rows, _GRID_Y_LIMIT)
    return (_ceil(N, 16), _ceil(rows, z), z)


def _tiles(side: int) -> Callable[[Dims], Grid]:
    """One block a side × side tile of C, numbered along its rows."""
    return lambda dims: (_ceil(dims[0], side) * _ceil(dims[1], side), 1, 1)


def _rows(a_block: int) -> Callable[[Dims], Grid]:
    return lambda dims: (_ceil(dims[0], a_block), 1, 1)


def _warps_of_rows(dims: Dims) -> Grid:
    """Two warps a block, and two rows a warp where that turns two waves into one.

    With its 127 registers 16 warps fit a multiprocessor, 2112 the 132 of an H200; elsewhere it is as right.
    """
    rows = dims[0]
    return (_ceil(rows, 4 if 2112 < rows <= 4224 else 2), 1, 1)


def _elements(count: Callable[[Dims], int], a_block: int = 256) -> Callable[[Dims], Grid]:
    """``a_block`` elements a block, by default one a thread."""
    return lambda dims: (_ceil(count(dims), a_block), 1, 1)


# -- what a shape must have ----------------------------------------------------------------------------


def _width_of_quads(limit: int | None = None) -> Callable[[Dims], str | None]:
    def refuses(dims: Dims) -> str | None:
        width = dims[1]
        if width % 4:
            return f"width {width} is not a multiple of four"
        if limit and width > limit:
            return f"width {width} is more than the {limit} that a block holds in registers"
        return None

    return refuses


def _features_of_quads(dims: Dims) -> str | None:
    return f"{dims[1]} features are not a multiple of four" if dims[1] % 4 else None


_SCALARS_WIDTH = 1024


def _more_than_scalars(dims: Dims) -> str | None:
    return f"width {dims[1]} is more than the {_SCALARS_WIDTH} that a warp holds in registers" if dims[1] > _SCALARS_WIDTH else None


def _whole_quads(inputs: Mapping[str, object]) -> str | None:
    """Quads are better where there are any; a row that does not start at one has its values only."""
    if inputs["X"].shape[1] % 4 or any(tensor.data_ptr() % QUAD_BYTES for tensor in inputs.values()):
        return None
    return "rows are whole quads, which are faster taken as such"


_CACHED_QUADS = 768
"""Threads of a block of gelu ``cached``, and quads between the two of a thread: a row's quads must divide them."""


def _by_row(dims: Dims) -> str | None:
    quads = dims[1] // 4  # 256 are a whole block of by_row, and its smaller blocks fill a device more evenly
    return None if _CACHED_QUADS % quads == 0 and quads != 256 else "by_row"


def _rows_of_quads(dims: Dims) -> Grid:
    """The quads of a row on x, rows on y."""
    return (dims[1] // 4, _CACHED_QUADS // (dims[1] // 4), 1)


def _by_row_grid(dims: Dims) -> Grid:
    return (_ceil(dims[1], 4 * 256), dims[0], 1)


def _by_row_fits(dims: Dims) -> str | None:
    if reason := _width_of_quads()(dims):
        return reason
    if _by_row(dims) and dims[0] > _GRID_Y_LIMIT:
        return f"{dims[0]} rows are more than the {_GRID_Y_LIMIT} blocks that a grid has on y"
    return None


LONG_ROW = 64
"""Edges above which neighbor ``balanced`` and ``hubs`` divide a row; the same number stands in the kernel file."""


def _no_long_row(inputs: Mapping[str, object]) -> str | None:
    pointers = inputs["row_ptr"]
    most = int((pointers[1:] - pointers[:-1]).max())
    return None if most > LONG_ROW else f"no row has more than {most} edges, and one of {LONG_ROW} fits a warp"


def _whole_slabs(dims: Dims) -> str | None:
    for name, size in zip("NC", dims, strict=True):
        if size % 32:
            return f"{name} = {size} is not a multiple of 32, and this kernel takes whole slabs only"
    if dims[0] // 8 > _GRID_Y_LIMIT or dims[1] // 32 > _GRID_Y_LIMIT:
        return f"{dims} needs more blocks on one axis than the {_GRID_Y_LIMIT} that a grid has"
    return None


# -- the tiles of triangle --------------------------------------------------------------------------------

_TRIANGLE_TILES = {"tiles": (16, 32, 3.2), "shared": (8, 16, 1.0)}
"""Kernel -> i and j of its tile, and how long a block of it takes, in blocks of the smaller (measured at large N)."""


def _triangle_grid(kernel: str) -> Callable[[Dims], Grid]:
    i, j, _ = _TRIANGLE_TILES[kernel]
    return lambda dims: (dims[0] // j, dims[0] // i, dims[1] // 32)


def _triangle_tile(dims: Dims) -> str | None:
    """The kernel that does the work of ``tiles`` at ``dims``: the least time in all waves, of equals the largest tile."""

    def time(kernel: str) -> float:
        return _ceil(prod(_triangle_grid(kernel)(dims)), matmul_tiles.MULTIPROCESSORS) * _TRIANGLE_TILES[kernel][2]

    best = min(_TRIANGLE_TILES, key=time)
    return None if best == "tiles" else best


# -- where E[x²] − μ² holds ----------------------------------------------------------------------------

MEAN_OVER_STD_LIMIT = 16.0
"""Largest |μ|/σ of a row for which ``pair`` and ``row`` hold the gate's tolerance.

With r = |μ|/σ, both terms of v = E[x²] − μ² are about r²σ², and each carries rounding errors of a few
u = 2⁻²⁴ of itself. A tree of sums rounds by about u·√(2/3) (its last level counts fully, each level
below half as much in variance), the division and the square add to that, and μ enters squared, so twice:
together some 2.3 u, and 5 standard deviations of it are 11.5 u. So v is off by up to 11.5 u r² of
itself and 1/√v by half of that, 6 u r². (4.5 u r² is the worst of 12 000 emulated rows of width 128 to
8192.) The output is off by that fraction of γ(x−μ)/σ, of which the tolerance allows 1e-4:
r² ≤ 1e-4 / (6·2⁻²⁴), r ≤ 16.7. Past it the error grows with r²: at mean 100 and σ 0.25, r = 400, it is
some two hundred times the tolerance.
"""

# -- the stages, in the order of the kernel files ------------------------------------------------------


def _published(experiment: str, kernel: str, *request: int) -> Published:
    names = ("blocks", "threads", "registers", "shared")
    return Published(experiment=experiment, kernel=kernel, **dict(zip(names, request, strict=False)))


_ALL = (
    Stage(
        operation="matmul", name="tiled", changed="16 × 16 tiles in shared memory, one output a thread",
        grid=_tiled_grid, block=(16, 16, 1), shared=2048,
        published=_published("mage-001", "tiled_matmul", 4096, 256, 37, 2048),
    ),
    Stage(
        operation="matmul", name="registers",
        changed="4 × 4 outputs a thread, 64 × 64 block tile, K step 32, 128-bit global loads",
        grid=_tiles(64), block=(256, 1, 1), shared=16384,
        refuses=matmul_tiles.whole_tiles(64, 64, 32), quads=True, fallback="tiled",
        published=_published("mage-002", "tiled_matmul_registers", 256, 256, 55, 16384),
    ),
    Stage(
        operation="matmul", name="narrow",
        changed="registers made worse on purpose: 2 × 4 outputs a thread, 32 × 32 block tile",
        grid=_tiles(32), block=(128, 1, 1), shared=8192,
        refuses=matmul_tiles.whole_tiles(32, 32, 32), quads=True, fallback="tiled",
        published=_published("mage-003", "32x32 tile, 2x4 register tile"),
    ),
    Stage(
        operation="matmul", name="registers_merged",
        changed="registers with plain shared reads, which the compiler may widen",
        grid=_tiles(64), block=(256, 1, 1), shared=16384,
        refuses=matmul_tiles.whole_tiles(64, 64, 32), quads=True, fallback="tiled",
        published=_published("mage-002", "none: the compiler's own version of tiled_matmul_registers"),
    ),
    Stage(
        operation="matmul", name="quads",
        changed="128-bit shared reads, A transposed with row stride 68, K step 64",
        grid=_tiles(64), block=(256, 1, 1), shared=33792,
        refuses=matmul_tiles.whole_tiles(64, 64, 64), quads=True, fallback="tiled",
        published=_published("mage-003", "tiled_matmul_registers", 256, 256, 56, 33792),
    ),
    Stage(
        operation="matmul", name="pipeline",
        changed="two shared buffers, the next K tile on its way by cp.async during the multiply-adds",
        grid=_tiles(64), block=(256, 1, 1), shared=33792,
        refuses=matmul_tiles.whole_tiles(64, 64, 32), quads=True, fallback="tiled",
        published=_published("mage-006", "tiled_matmul_pipeline", 256, 256, 96, 33792),
    ),
    *matmul_tiles.STAGES,
    Stage(
        operation="gelu", name="elementwise", changed="one element a thread, approximate tanh",
        grid=_elements(lambda dims: dims[0] * dims[1]), block=(256, 1, 1),
        published=_published("mage-001", "bias_gelu", 12288, 256, 16, 0),
    ),
    Stage(
        operation="gelu", name="quads",
        changed="two 128-bit loads a thread under way before any arithmetic, one exponential and one reciprocal",
        grid=_elements(lambda dims: _ceil(dims[0] * dims[1], 4), a_block=768), block=(384, 1, 1),
        refuses=_width_of_quads(), quads=True, fallback="elementwise",
    ),
    Stage(
        operation="gelu", name="cached",
        changed="X not marked as read once, blocks as wide as a row, and an order for every other width",
        grid=_elements(lambda dims: _ceil(dims[0] * dims[1], 4), a_block=2 * _CACHED_QUADS), block=(_CACHED_QUADS, 1, 1),
        arranged=_rows_of_quads,
        refuses=_by_row_fits, quads=True, fallback="quads", form=_by_row,
    ),
    Stage(
        operation="layernorm", name="block", changed="256 threads a row, three passes, two tree reductions",
        grid=_rows(1), block=(256, 1, 1), shared=1024,
        published=_published("mage-001", "layer_norm", 4096, 256, 27, 1024),
    ),
    Stage(
        operation="layernorm", name="warp", changed="one warp a row, 128-bit quads, shuffles, no shared memory",
        grid=_rows(8), block=(256, 1, 1),
        refuses=_width_of_quads(), quads=True, fallback="block",
        published=_published("mage-002", "layer_norm_warp", 512, 256, 40, 0),
    ),
    Stage(
        operation="layernorm", name="pair",
        changed="two warps a row, sum and sum of squares in one pass, one exchange behind one barrier",
        grid=_rows(4), block=(256, 1, 1), shared=64,
        refuses=_width_of_quads(), quads=True, fallback="block",
        published=_published("mage-003", "layer_norm_pair", 1024, 256, 39, 64),
        mean_over_std_limit=MEAN_OVER_STD_LIMIT,
    ),
    Stage(
        operation="layernorm", name="row",
        changed="one block of 128 threads a row, the row read once and kept in registers, approximate 1/√",
        grid=_rows(1), block=(128, 1, 1), shared=32,
        refuses=_width_of_quads(limit=1024), quads=True, fallback="pair",
        published=_published("mage-006", "layer_norm_row", 4096, 128, 40, 32),
        mean_over_std_limit=MEAN_OVER_STD_LIMIT,
    ),
    Stage(
        operation="layernorm", name="team",
        changed="row with the variance summed around the mean, from registers; up to eight quads a thread",
        grid=_rows(1), block=(128, 1, 1), shared=32,
        refuses=_width_of_quads(limit=4096), quads=True, fallback="warp", versions=8,
    ),
    Stage(
        operation="layernorm", name="registers",
        changed="one warp a row, gamma and beta in registers, the next row asked for before this one is added up",
        grid=_warps_of_rows, block=(64, 1, 1),
        refuses=_width_of_quads(limit=768), quads=True, fallback="team", versions=12,
    ),
    Stage(
        operation="layernorm", name="scalars",
        changed="registers for rows that are no whole quads: a value at a time, all of a row under way at once",
        grid=_rows(1), block=(32, 1, 1),
        refuses=_more_than_scalars, declines=_whole_quads, fallback="registers", versions=8,
    ),
    Stage(
        operation="triangle", name="elementwise", changed="one output a thread",
        grid=_elements(lambda dims: dims[0] * dims[0] * dims[1]), block=(256, 1, 1),
        published=_published("mage-001", "triangle", 2048, 256, 30, 0),
    ),
    Stage(
        operation="triangle", name="shared",
        changed="8 × 8 outputs a thread, operands streamed through shared memory, k dealt out to groups of warps",
        grid=_triangle_grid("shared"), block=(256, 1, 1), dynamic=196608,
        refuses=_whole_slabs, quads=True, fallback="elementwise",
    ),
    Stage(
        operation="triangle", name="tiles", changed="shared with tiles of 16 × 32, where they are enough to fill the device",
        grid=_triangle_grid("tiles"), block=(256, 1, 1), dynamic=196608,
        refuses=_whole_slabs, quads=True, fallback="elementwise", form=_triangle_tile,
    ),
    Stage(
        operation="neighbor", name="feature", changed="one feature a thread, one edge at a time",
        grid=_elements(lambda dims: dims[0] * dims[1]), block=(256, 1, 1),
        published=_published("mage-001", "neighbor", 1024, 256, 24, 0),
    ),
    Stage(
        operation="neighbor", name="quad",
        changed="four features a thread in one 128-bit load, two edges in flight",
        grid=_elements(lambda dims: dims[0] * dims[1] // 4), block=(256, 1, 1),
        refuses=_features_of_quads, quads=True, fallback="feature",
        published=_published("mage-007", "neighbor, one 128-bit feature quad a thread"),
    ),
    Stage(
        operation="neighbor", name="warp",
        changed="a warp a row, eight gathers under way, the next indices fetched meanwhile",
        grid=_rows(4), block=(128, 1, 1),
        refuses=_features_of_quads, quads=True, fallback="feature",
    ),
    Stage(
        operation="neighbor", name="balanced",
        changed="warp, and a row of many edges is divided among the warps of a block",
        grid=_rows(16), block=(512, 1, 1), shared=4224,
        refuses=_features_of_quads, declines=_no_long_row, quads=True, fallback="warp",
    ),
    Stage(
        operation="neighbor", name="lean",
        changed="warp with one pointer an array and one multiply-add a gather's address, eight rows a block",
        grid=_rows(8), block=(256, 1, 1),
        refuses=_features_of_quads, quads=True, fallback="feature",
    ),
    Stage(
        operation="neighbor", name="hubs", changed="balanced with the loop of lean",
        grid=_rows(16), block=(512, 1, 1), shared=4224,
        refuses=_features_of_quads, declines=_no_long_row, quads=True, fallback="lean",
    ),
)  # fmt: skip

STAGES: dict[str, dict[str, Stage]] = {}
"""operation -> stage name -> Stage, oldest first, as in the kernel files."""
for _stage in _ALL:
    STAGES.setdefault(_stage.operation, {})[_stage.name] = _stage


_FORMS = (
    *matmul_tiles.FORMS,
    Stage(
        operation="gelu", name="by_row", changed="cached with one quad a thread, and the blocks of a row to themselves",
        grid=_by_row_grid, block=(256, 1, 1), refuses=_by_row_fits, quads=True, fallback="quads",
    ),
)  # fmt: skip

FORMS: dict[str, dict[str, Stage]] = {}
"""operation -> name -> kernels that do a stage's work at other shapes; they are in the kernel file behind it."""
for _form in _FORMS:
    FORMS.setdefault(_form.operation, {})[_form.name] = _form


def get(operation: str, stage: str) -> Stage:
    """The stage of that name. RequestError suggests the nearest one."""
    stages = _lookup(STAGES, operation, "operation with CUDA C++ kernels")
    return _lookup(stages, stage, f"cuda stage of {operation}")


def choose(
    operation: str,
    stage: str,
    dims: Dims,
    inputs: Mapping[str, object] | None = None,
    out: object = None,
    config: Mapping[str, int] | None = None,
    shared_limit: int | None = None,
) -> Choice:
    """What computes ``dims`` when ``stage`` is asked for: itself, the first of its fallbacks that can, or a form of it.

    ``config`` are parameters of the stage that is asked for; a fallback is built as it stands. ``shared_limit``
    as in ``Stage.supports``.
    """
    asked = current = get(operation, stage).configured(config or {})
    reasons = []
    while reason := current.supports(dims, inputs, out, shared_limit):
        reasons.append(f"{current.name}: {reason}")
        if current.fallback is None:
            raise RequestError(f"no cuda stage of {operation} takes dims {dims}: {'; '.join(reasons)}")
        current = get(operation, current.fallback)
    form = current.form(dims)
    kernels = {**STAGES[operation], **FORMS.get(operation, {})}
    return Choice(asked, kernels[form] if form else current, tuple(reasons))


def _lookup(table: Mapping, name: str, kind: str):
    if name in table:
        return table[name]
    raise RequestError(f"no {kind} {name!r}: {_hint(name, table)}")


def _hint(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name), list(known), 1)
    return f"did you mean {near[0]!r}?" if near else f"there is: {', '.join(known)}"
