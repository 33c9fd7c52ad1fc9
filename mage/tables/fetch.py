"""Who fetches the tiles of a cuTile kernel, and what that leaves of a multiprocessor."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from mage.tables.rows import pick, short
from mage.tables.tuning import words
from mage.views.display import TableView
from mage.views.selection import Chosen


def who_fetches(results: Sequence[dict], *, operations: Chosen = None) -> TableView:
    """Published and chosen configuration of every kernel: TMA copies or loads by threads, and what a block asks for."""
    from mage.census import tile_fetch  # what compiles is no part of a table that is only read

    wanted = {row.operation for row in pick([_Named(row) for row in results], operations)}
    records = [
        {
            "Operation": short(row["operation"]),
            "Configuration": row["which"],
            "As": words(row["config"]),
            "TMA copies": row["bulk copies"],
            "Loads": row["global loads"] + row["cp.async"],
            "Threads": row["threads"],
            "Registers": row["registers"],
            "Shared": row["static shared"],
            "Stack": row["stack"],
            "Blocks a multiprocessor": row["blocks per SM"],
        }
        for row in results
        if row["operation"] in wanted
    ]
    columns = [
        "Operation", "Configuration", "As", "TMA copies", "Loads", "Threads", "Registers", "Shared", "Stack", "Blocks a multiprocessor",
    ]  # fmt: skip
    nothing = (
        "Nothing here matches the selection." if results else f"Nothing was compiled: {tile_fetch.why_not() or 'none was asked for'}."
    )
    made_by = results[0]["compiler"] if results else "today's cuTile"
    return TableView(
        "who-fetches", pd.DataFrame(records, columns=columns), f"Who fetches a tile, and how many blocks fit: {made_by}",
        units={"Shared": "bytes", "Stack": "bytes"}, row_heads=2, empty=nothing,
        note=f"Compiled for {tile_fetch.ARCH} while this report was made; chosen by search on an {tile_fetch.DEVICE}. Instructions in "
        "the code, not executions. TMA copies: to and from a multiprocessor. Loads: by threads, to registers or to shared memory "
        "(cp.async). Blocks: by registers, threads and shared memory together.",
    )  # fmt: skip


class _Named:
    def __init__(self, row: dict):
        self.operation = row["operation"]
