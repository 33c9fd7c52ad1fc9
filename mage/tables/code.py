"""Tables of the census: a DataFrame of ``mage.count_code`` or ``tile_census.census`` in, evidence of code, no time.

Counts are of what stands in the code: an instruction in a loop counts once, one that was unrolled as often as
it was unrolled. ``18 × 32`` are eighteen accesses of 32 bits by each thread.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from mage.notes import vocabulary
from mage.tables.rows import sentences, short, written
from mage.views import palette, selection
from mage.views.display import TableView
from mage.views.selection import Chosen

AS_LAUNCHED = "as launched"
NO_ALIGNMENT = "no alignment"
WAYS = {NO_ALIGNMENT: "told nothing of alignment", AS_LAUNCHED: AS_LAUNCHED}
"""How a kernel was compiled, in a reader's words."""

_STATIC = "Counts are of the code, not of its execution: an instruction in a loop counts once."


def code_census(frame: pd.DataFrame, *, operations: Chosen = None) -> TableView:
    """What every kernel asks for, and its arithmetic: registers, shared bytes, stack, resident blocks, FP32 instructions."""
    columns = [
        "Operation", "Kernel", "GPU", "Grid", "Block", "Registers", "Shared", "Stack", "Local stored", "Local loaded", "Blocks per SM",
        "Limited by", "FFMA", "FMUL", "FADD", "MUFU", "Tensor core",
    ]  # fmt: skip
    records = [
        {
            **_name(row),
            "Grid": row["grid"],
            "Block": row["threads"],
            "Registers": row["registers"],
            "Shared": shared(row),
            **_local(row),
            "Blocks per SM": row["blocks per SM"],
            "Limited by": row["limited by"],
            **{name: row[name] for name in ("FFMA", "FMUL", "FADD", "MUFU")},
            "Tensor core": row["tensor-core"],
        }
        for row in _chosen(frame, operations)
    ]
    return _table(
        "code-census", records, columns, "What the compiled kernels ask for, and their arithmetic",
        {"Block": "threads", "Registers": "a thread", "Shared": "bytes", **_LOCAL_UNITS},
        sentences(_refused(frame), _STATIC, _STACK), frame,
    )  # fmt: skip


def access_census(frame: pd.DataFrame, *, operations: Chosen = None) -> TableView:
    """How every kernel reaches memory: loads and stores by width, barriers, shuffles, shared reads a multiply-add."""
    columns = [
        "Operation", "Kernel", "GPU", "Global loads", "In PTX", "Global stores", "cp.async", "Bulk copies", "Shared loads",
        "Shared stores", "Barriers", "Shuffles", "Words", "Reads",
    ]  # fmt: skip
    records = [
        {
            **_name(row),
            "Global loads": widths(row, "global loads"),
            "In PTX": ptx_widths(row, "global loads"),
            "Global stores": widths(row, "global stores"),
            "cp.async": row["cp.async"],
            "Bulk copies": row["bulk copies"],
            "Shared loads": widths(row, "shared loads"),
            "Shared stores": row["shared stores"],
            "Barriers": row["barriers"],
            "Shuffles": row["shuffles"],
            "Words": row["words per multiply-add"],
            "Reads": row["reads per multiply-add"],
        }
        for row in _chosen(frame, operations)
    ]
    note = (
        "Words and Reads: shared memory read for one multiply-add of the hottest loop, in 32-bit words and in instructions. "
        "A bulk copy moves a whole tile and counts once."
    )
    return _table(
        "access-census", records, columns, "How the compiled kernels reach memory",
        {"Global loads": "count × bits", "In PTX": "count × bits", "Global stores": "count × bits", "Shared loads": "count × bits"},
        sentences(_refused(frame), note, "cuTile shows no PTX."), frame,
        formats={"Words": ".3f", "Reads": ".3f"}, missing="none",
    )  # fmt: skip


def kernel_code(frame: pd.DataFrame, *, operations: Chosen = None) -> TableView:
    """The few counts that tell kernels apart, narrow enough for a sheet of paper: ``code_census`` and ``access_census`` have all."""
    columns = ["Operation", "Kernel", "GPU", "Block", "Registers", "Shared", "Loads", "Barriers", "Shuffles", "Reads"]
    records = [
        {
            **_name(row),
            "Block": row["threads"],
            "Registers": row["registers"],
            "Shared": shared(row),
            "Loads": widths(row, "global loads"),
            "Barriers": row["barriers"],
            "Shuffles": row["shuffles"],
            "Reads": row["reads per multiply-add"] or None,
        }
        for row in _chosen(frame, operations)
    ]
    note = "Loads: of global memory, count × bits of each thread. Reads: of shared memory, for one multiply-add of the hottest loop."
    return _table(
        "kernel-code", records, columns, "What the kernels became, compiled",
        {"Block": "threads", "Registers": "a thread", "Shared": "bytes"}, sentences(_refused(frame), note, _STATIC), frame,
        formats={"Reads": ".3f"}, missing="none",
    )  # fmt: skip


def norm_census(frame: pd.DataFrame, *, operations: Chosen = None) -> TableView:
    """Triton's layer norm, compiled both ways, against the hand-written ``pair``."""
    columns = [
        "Kernel", "GPU", "Compiled", "Grid", "Block", "Registers", "Shared", "Loads in PTX", "Loads", "Stores in PTX", "Stores",
        "Passes over x", "Barriers",
    ]  # fmt: skip
    compared = [
        row
        for row in _chosen(frame, operations)
        if row["operation"] == "layernorm" and (row["implementation"] == "triton" or row["variant"] == "pair")
    ]
    records = [
        {
            "Kernel": palette.label(row["implementation"], row["variant"]),
            "GPU": row["gpu"],
            "Compiled": WAYS[row["compiled"]] if row["implementation"] == "triton" else "",
            "Grid": row["grid"].split(" ")[0],
            "Block": row["threads"],
            "Registers": row["registers"],
            "Shared": shared(row),
            "Loads in PTX": ptx_widths(row, "global loads"),
            "Loads": widths(row, "global loads"),
            "Stores in PTX": ptx_widths(row, "global stores"),
            "Stores": widths(row, "global stores"),
            "Passes over x": row["passes over X"],
            "Barriers": row["barriers"],
        }
        for row in sorted(compared, key=lambda row: (row["implementation"] != "triton", row["gpu"], list(WAYS).index(row["compiled"])))
    ]
    note = (
        "A pass ends where the threads of a block exchange values: what is loaded after that is a pass of its own. "
        "The hand-written kernel loops over the row; its loads and stores are those of the unrolled loops."
    )
    compilers = ", ".join(dict.fromkeys(row["compiler"].split(" (")[0] for row in compared))
    return _table(
        "norm-census", records, columns, "Triton's layer norm against the hand-written pair, as compiled",
        {
            "Block": "threads", "Registers": "a thread", "Shared": "bytes", "Loads in PTX": "count × bits", "Loads": "count × bits",
            "Stores in PTX": "count × bits", "Stores": "count × bits",
        },
        sentences(_refused(frame), f"{compilers}." if compilers else None, _STATIC, note), frame, row_heads=1,
    )  # fmt: skip


def tile_census(
    frame: pd.DataFrame, *, operations: Chosen = None, gpus: Iterable[str] | None = None, tiles: Iterable[str] | None = None
) -> TableView:
    """What the tile compiler made of an FP32 product: each way to multiply, tile, GPU and assembler release.

    ``tiles`` as ``"32x128x32"``; a product counts as fused where FFMA does what FMUL and FADD would.
    """
    columns = [
        "Product", "Tile", "GPU", "Release", "Fused", "FFMA", "FMUL", "FADD", "Registers", "Stack", "Local stored", "Local loaded",
        "Counted",
    ]  # fmt: skip
    shown = frame if "matmul" in selection.words("operations", operations) else frame[:0]
    shown = shown[shown.gpu.isin(list(gpus or shown.gpu)) & shown.tile.isin(list(tiles or shown.tile))]
    records = [
        {
            "Product": row["product"],
            "Tile": written(row["tile"]),
            "GPU": row["gpu"],
            "Release": row["release"],
            "Fused": "refused" if not pd.isna(row["refused"]) else "yes" if fused(row) else "no",
            **{name: row[name] for name in ("FFMA", "FMUL", "FADD")},
            "Registers": row["registers"],
            **_local(row),
            "Counted": row["origin"],
        }
        for row in shown.to_dict("records")
    ]
    stale = "Retained rows were counted from another text of the kernel than today's." if shown.stale.any() else None
    note = "Releases are tileiras's. A tile is M × N × K."
    return _table(
        "tile-census", records, columns, "The FP32 product of two tiles, by assembler release",
        {"Registers": "a thread", **_LOCAL_UNITS}, sentences(origin(frame), stale, note, _STATIC, _STACK), frame, row_heads=4,
    )  # fmt: skip


_LOCAL_UNITS = {"Stack": "bytes", "Local stored": "bytes", "Local loaded": "bytes"}
_STACK = (
    "Stack is a thread's frame in local memory, and Local what it stores there and loads back, once through the code: "
    "mostly registers that did not fit."
)


def origin(frame: pd.DataFrame) -> str:
    """Whether the rows of a tile census were computed here, and how to."""
    if (frame.origin == "retained").all():
        return (
            "Counts are the retained ones: the other assembler releases are not installed here. `make tile-compilers` installs "
            "them apart, and the counts are then made anew."
        )
    kept = sorted(frame[frame.origin == "retained"].release.unique())
    return "Counted here." if not kept else f"Counted here, but for {', '.join(kept)}, which is not installed and retained."


def fused(row: dict) -> bool:
    """Whether a product's multiplications and additions are one instruction each pair."""
    return row["FFMA"] > row["FMUL"]


def shared(row: dict) -> int:
    """Shared bytes of a block, static and dynamic."""
    return row["static shared"] + row["dynamic shared"]


def widths(row: dict, kind: str) -> str:
    """Accesses of a kind by width: ``20 × 128``, or ``2 × 32 + 6 × 128``."""
    return _sum({bits: row[f"{kind} {bits}"] for bits in (32, 64, 128)})


def ptx_widths(row: dict, kind: str) -> str | None:
    """As ``widths``, in PTX; None where the compiler shows none."""
    if pd.isna(row[f"ptx {kind}"]):
        return None
    return _sum({32 * words: int(row[f"ptx {kind} {words}x32"]) for words in (1, 2, 4)})


def _sum(counts: dict[int, int]) -> str:
    return " + ".join(f"{count}\u00a0×\u00a0{bits}" for bits, count in counts.items() if count) or "0"


def _name(row: dict) -> dict:
    return {
        "Operation": short(row["operation"]),
        "Kernel": palette.label(row["implementation"], row["variant"].replace("_", " ")),
        "GPU": row["gpu"],
    }


def _local(row: dict) -> dict:
    return {"Stack": row["stack"], "Local stored": row["local bytes stored"], "Local loaded": row["local bytes loaded"]}


def _chosen(frame: pd.DataFrame, operations: Chosen) -> list[dict]:
    """Rows that were compiled, in the usual order of operations, then from Triton to the hand-written stages."""
    wanted = selection.words("operations", operations)
    rows = [row for row in frame.to_dict("records") if row["operation"] in wanted and pd.isna(row["refused"])]
    return sorted(rows, key=lambda row: (vocabulary.OPERATIONS.index(row["operation"]), palette.position(row["implementation"])))


def _refused(frame: pd.DataFrame) -> str | None:
    """A sentence on kernels that could not be compiled."""
    said = [
        f"{palette.label(row['implementation'], row['variant'])} of {short(row['operation'])} for {row['gpu']}: {row['refused']}"
        for row in frame.to_dict("records")
        if not pd.isna(row["refused"])
    ]
    return f"Not compiled: {'; '.join(said)}." if said else None


def _table(id, records, columns, caption, units, note, frame, *, row_heads=3, formats=None, missing="no PTX") -> TableView:
    empty = "Nothing in the census matches the selection." if len(frame) else "There is no census."
    made = pd.DataFrame(records, columns=columns)
    return TableView(id, made, caption, units, note, formats, row_heads=row_heads, missing=missing, empty=empty)
