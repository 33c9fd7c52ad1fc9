"""Whether the tile compiler's ratios stand in the order of reuse, as the published claim has it."""

from __future__ import annotations

from collections.abc import Sequence

from mage.claims import reuse
from mage.evidence.schema import Evidence
from mage.tables.rows import table
from mage.views import selection
from mage.views.display import TableView
from mage.views.selection import Chosen

NO_VERDICT = "no verdict: two sessions"


def reuse_order(
    evidence: Evidence | Sequence[Evidence],
    *,
    operations: Chosen = None,
    implementations: Chosen = None,
    statistic: str = "mean",
) -> TableView:
    """Every two operations: does the one with less reuse have the smaller ratio? Counted, by both counts of reuse."""
    pairs = reuse.pairs(selection.rows(evidence, operations, implementations), statistic)
    records = []
    for kind in dict.fromkeys(pair.kind for pair in pairs):
        group = [pair for pair in pairs if pair.kind == kind]
        wins = [pair.operation for pair in group if pair.verdict and pair.verdict.word == "faster"]
        for count in reuse.COUNTS:
            order = reuse.order(group, count)
            judged = all(pair.verdict for pair in group)
            records.append(
                {
                    "Compared": kind,
                    "Reuse by": count,
                    "Order": " < ".join(pair.operation for pair in sorted(group, key=lambda pair: pair.reuse(count))),
                    "Tile compiler wins": (", ".join(wins) or "none") if judged else None,
                    "As claimed": order.claimed,
                    "Other way round": order.opposite,
                    "Undecided": order.undecided,
                    "Claim": order.word if judged else NO_VERDICT,
                }
            )
    columns = ["Compared", "Reuse by", "Order", "Tile compiler wins", "As claimed", "Other way round", "Undecided", "Claim"]
    return table(
        "reuse-order", records, columns, "Does the tile compiler fall behind as reuse grows?", evidence, pairs,
        "pair of a tile compiler's and a hand-written kernel", row_heads=2, missing="no verdict",
        note="Counted over every two operations: as claimed where the one with less reuse has the smaller ratio of times (tile "
        "compiler over hand-written). Undecided where the 95 % intervals of the two ratios meet. The claim holds where none is the "
        "other way round, is reversed where none is as claimed, and holds in part in between.",
    )  # fmt: skip
