"""How far a number may be trusted: attempts with their instrument, a second session, controls with their band, and drift."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from mage import stats
from mage.errors import RequestError
from mage.evidence.schema import Evidence
from mage.stats import agreement as sessions
from mage.tables.measured import no_samples
from mage.tables.rows import QUANTITIES, breaking, implementation, operation, pick, table
from mage.views import rounding
from mage.views.display import TableView
from mage.views.selection import Chosen


def attempts(evidence: Evidence, *, operations: Chosen = None) -> TableView:
    """What was measured and not adopted; each row names its metric, since the instruments differ."""
    columns = ["Operation", "Attempt", "Metric", "Value", "Up to", "Compared with", "Its value", "Slower by"]
    records = []
    for row in pick(evidence.attempts, operations):
        low, high = row.value_us if isinstance(row.value_us, tuple) else (row.value_us, None)
        records.append(
            {
                "Operation": operation(row),
                "Attempt": row.label,
                "Metric": QUANTITIES[row.metric],
                "Value": low,
                "Up to": high,
                "Compared with": row.compared_with.label,
                "Its value": row.compared_with.value_us,
                "Slower by": (low / row.compared_with.value_us - 1) * 100,
            }
        )
    times = ("Value", "Up to", "Its value")
    return table(
        "attempts", records, columns, "Measured and not adopted", evidence, evidence.attempts, "attempts",
        units={**dict.fromkeys(times, "µs"), "Slower by": "%"}, formats={**dict.fromkeys(times, ".2f"), "Slower by": ".1f"},
        row_heads=2, missing="one value, no range",
        note="Single runs during development, whose captures were not kept. The last column is arithmetic, not a verdict.",
    )  # fmt: skip


def agreement(evidence: Evidence, other: Evidence, *, operations: Chosen = None) -> TableView:
    """Warm kernel times of every row beside those that another session on the same device took.

    What ``other`` does not hold is counted below; where the two cannot be held beside each other, a sentence says why.
    """
    columns = ["Row", "Kernel time", "In the other", "Difference", "Agrees", "Why not"]
    reason, found = no_samples(evidence) or no_samples(other), []
    try:
        found = [] if reason else sessions.rows(evidence, other)
    except RequestError as error:
        reason = f"{str(error)[:1].upper()}{str(error)[1:]}."
    chosen = {row.key for row in pick(evidence.results, operations)}
    # Those of the evidence come first; what only the other has is none of its rows.
    found = [row for row in found[: len(evidence.results)] if row.key in chosen]
    both = [row for row in found if row.word != sessions.ALONE]
    records = [
        {
            "Row": breaking(row.key), "Kernel time": row.one_us, "In the other": row.other_us, "Difference": row.difference_pct,
            "Agrees": {sessions.AGREES: "yes", sessions.EXPLAINED: "explained"}.get(row.word, "no"),
            "Why not": row.why and breaking(row.why),
        }
        for row in sorted(both, key=lambda row: [sessions.DISAGREES, sessions.EXPLAINED, sessions.AGREES].index(row.word))
    ]  # fmt: skip
    alone = f" Rows of {evidence.experiment} that {other.experiment} has not: {len(found) - len(both)}." if len(found) > len(both) else ""
    nothing = f"{other.experiment} has none of these rows." if found else f"Nothing in {evidence.experiment} matches the selection."
    return TableView(
        "agreement", pd.DataFrame(records, columns=columns),
        f"Two sessions{'' if reason else ' on one device'}: {evidence.experiment} and {other.experiment}",
        units={**dict.fromkeys(columns[1:3], "µs"), "Difference": "%"},
        formats={**dict.fromkeys(columns[1:3], ".2f"), "Difference": "+.1f"}, missing="–",
        empty=reason or nothing,
        note=f"Medians, warm. Agrees: within {100 * sessions.WITHIN:.0f} %, or {sessions.WITHIN_US} µs where that is more. "
        f"The other session was taken {other.when:%Y-%m-%d %H:%M} UTC.{alone}",
    )  # fmt: skip


def controls(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """What implementations that did not change returned over several captures, and where this one lies."""
    columns = ["Operation", "Implementation", "Quantity", "From", "To", "Observed", "Captures", "Remark"]
    records = []
    for row in pick(evidence.controls, operations, implementations):
        low, high = row.band_us or (None, None)
        records.append(
            {
                "Operation": operation(row),
                "Implementation": implementation(row),
                "Quantity": QUANTITIES[row.quantity],
                "From": low,
                "To": high,
                "Observed": row.observed_us,
                "Captures": ", ".join(rounding.half_up(value, 2) for value in row.captures_us) or None,
                "Remark": "; ".join(filter(None, [_lies(low, row.observed_us, high), row.verdict, row.over])) or None,
            }
        )
    times = ("From", "To", "Observed")
    return table(
        "controls", records, columns, "What controls returned over several captures", evidence, evidence.controls, "controls",
        units={**dict.fromkeys(times, "µs"), "Captures": "µs"}, formats=dict.fromkeys(times, ".2f"), row_heads=2,
        note="From and To are the published band, the remarks the publisher's. "
        "An observation outside its band marks its capture as taken under load.",
    )  # fmt: skip


def drift(evidence: Evidence, earlier: Iterable[Evidence], *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """Movement of kernels that did not change between two experiments: recomputed, beside what was published.

    ``earlier`` are records to recompute from; each row uses the one that it was published against. Its own choice
    of implementations is shown, not the comparison's, unless ``implementations`` says otherwise.
    """
    by_name = {record.experiment: record for record in earlier}
    columns = ["Operation", "Implementation", "Against", "Before", "After", "Change", "Published"]
    records = []
    for row in pick(evidence.drift, operations, implementations):
        before, after = (_mean(by_name.get(row.against), row), _mean(evidence, row))
        records.append(
            {
                "Operation": operation(row),
                "Implementation": implementation(row),
                "Against": row.against,
                "Before": before,
                "After": after,
                "Change": (after / before - 1) * 100 if before and after else None,
                "Published": row.change_pct,
            }
        )
    return table(
        "drift", records, columns, "Kernels that did not change, from one experiment to the next",
        evidence, evidence.drift, "drift",
        units={"Before": "µs", "After": "µs", "Change": "%", "Published": "%"},
        formats={"Before": ".3f", "After": ".3f", "Change": "+.2f", "Published": "+.1f"}, row_heads=2,
        note="Change is recomputed from the kernel means of the two experiments.",
    )  # fmt: skip


def _lies(low: float | None, observed: float | None, high: float | None) -> str | None:
    if observed is None or low is None:
        return None
    if low <= observed <= high:
        return "inside"
    return f"{abs(observed - (high if observed > high else low)):.2f} µs {'above' if observed > high else 'below'}"


def _mean(record: Evidence | None, row) -> float | None:
    """Mean kernel time of the result that a drift row speaks of."""
    for result in record.results if record else ():
        if (result.operation, result.implementation) == (row.operation, row.implementation):
            found = stats.value(result, "kernel_us", "mean")
            return found and found.value
    return None
