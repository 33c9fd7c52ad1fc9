"""Limits of the tile model: what was claimed, and what the compiler at hand says when it is tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from mage.views.display import TableView

if TYPE_CHECKING:
    from mage.census.tile_limits import Outcome


def tile_limits(outcomes: Sequence[Outcome]) -> TableView:
    """A row a limit: the claim, whether it is still true, the compiler's words or what its code shows, a way around."""
    from mage.census import tile_limits as limits  # what compiles is no part of a table that is only read

    columns = ["Claim", "Of", "Today", "What the compiler says", "Instead", "Kernel"]
    records = [
        {
            "Claim": one.limit.claim,
            "Of": "published" if one.limit.published else "found here",
            "Today": one.word,
            "What the compiler says": one.said,
            "Instead": one.instead,
            "Kernel": f"{limits.FOLDER}/{one.limit.name}.py",
        }
        for one in outcomes
    ]
    made_by = outcomes[0].compiler if outcomes else "today's cuTile"
    return TableView(
        "tile-limits", pd.DataFrame(records, columns=columns), f"Limits of the tile model, tried with {made_by}",
        empty=f"No limit was tried: {limits.why_not() or 'none was given'}.", missing="none needed", row_heads=1,
        note="Each kernel was compiled for sm_90 while this report was made. The published claims are about cuTile Rust, the kernels "
        "are cuTile Python: “no longer true” says that the same thing can be written today. Instead: the same file's way around.",
    )  # fmt: skip
