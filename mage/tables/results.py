"""The measured comparison: every operation by every implementation, and what was counted from it."""

from __future__ import annotations

from mage import stats
from mage.evidence.schema import Evidence
from mage.stats import judged
from mage.tables.rows import implementation, left_out, operation, pick, sentences, shape, short, table
from mage.views import palette, selection
from mage.views.display import TableView
from mage.views.selection import Chosen

MOST_COLUMNS = 6
"""Implementations side by side; more of them stand below each other, and operations beside each other."""
STATISTICS = {"mean": "mean", "median": "median", "fastest-round": "fastest round", "slowest-round": "slowest round"}


def results(
    evidence: Evidence,
    *,
    operations: Chosen = None,
    implementations: Chosen = None,
    statistic: str = "mean",
) -> TableView:
    """Kernel time, span and launches of every chosen operation and implementation."""
    stats.check(statistic)
    columns = ["Operation", "Shape", "Implementation", "Kernel time", "Span", "Low", "High", "Launches"]
    records, kinds = [], {"kernel": set(), "span": set(), "spread": set()}
    for row in selection.rows(evidence, operations, implementations):
        kernel, span = (stats.value(row.result, quantity, statistic, where=evidence.experiment) for quantity in ("kernel_us", "span_us"))
        records.append(
            {
                "Operation": operation(row.result),
                "Shape": shape(row.result.dims),
                "Implementation": implementation(row.result),
                "Kernel time": kernel and kernel.value,
                "Span": span and span.value,
                "Low": span and span.low,
                "High": span and span.high,
                "Launches": row.result.launches,
            }
        )
        kinds["kernel"] |= {kernel.statistic} if kernel else set()
        kinds["span"] |= {span.statistic} if span else set()
        kinds["spread"] |= {span.whisker_meaning} if span and span.whisker_meaning else set()
    times = ("Kernel time", "Span", "Low", "High")
    return table(
        "results", records, columns, f"Kernel time, span and launches per call in {evidence.experiment}",
        evidence, evidence.results, "results",
        units=dict.fromkeys(times, "µs"), formats=dict.fromkeys(times, ".2f"), row_heads=3,
        note=sentences(_says(kinds), left_out(evidence, implementations)),
    )  # fmt: skip


def kernel_times(
    evidence: Evidence | list[Evidence],
    *,
    operations: Chosen = None,
    implementations: Chosen = None,
    statistic: str = "mean",
) -> TableView:
    """Kernel time, an operation a row and an implementation a column. Later records add what the first has not."""
    stats.check(statistic)
    first, *others = selection.as_list(evidence)
    chosen = selection.rows(evidence, operations, implementations)
    ordered = sorted(chosen, key=lambda row: (row.elsewhere, palette.position(row.result.implementation)))
    columns = ["Operation", "Shape", *dict.fromkeys(_column(row) for row in ordered)]
    records: dict[tuple, dict] = {}
    found = set()
    for row in chosen:
        record = records.setdefault(
            (row.result.operation, row.result.dims),
            {"Operation": operation(row.result), "Shape": shape(row.result.dims)},
        )
        value = stats.value(row.result, "kernel_us", statistic, where=row.evidence.experiment)
        record[_column(row)] = value and value.value
        found |= {value.statistic} if value else set()
    times = columns[2:]
    rows, heads = list(records.values()), 2
    if len(times) > MOST_COLUMNS:
        rows, columns, heads = _turned(rows, times), ["Implementation", *dict.fromkeys(map(_head, rows))], 1
        times = columns[1:]
    elsewhere = ", ".join(record.experiment for record in others)
    note = sentences(
        f"Kernel time: {_words(found)} of the calls, summed over the kernels of a call." if found else None,
        f"Columns named {elsewhere} were captured in another session: side by side, without a verdict."
        if any(row.elsewhere for row in chosen)
        else None,
        left_out(evidence, implementations),
    )
    return table(
        "kernel-times", rows, columns, f"Kernel time by operation and implementation in {first.experiment}",
        evidence, first.results, "results",
        units=dict.fromkeys(times, "µs"), formats=dict.fromkeys(times, ".2f"), row_heads=heads, note=note,
    )  # fmt: skip


def claim(
    ours: Evidence,
    theirs: Evidence,
    *,
    operations: Chosen = None,
    implementations: Chosen = None,
    draw_within_pct: float = 10,
) -> TableView:
    """A published count of wins, draws and losses, from the two columns it was made from.

    ``ours`` holds the tile compiler, ``theirs`` the hand-written kernels. No verdict of this project's: that needs
    the samples of one session.
    """
    tile, hand = "rust-cutile", "rust-oxide"
    wanted = {tile, hand} <= set(selection.words("implementations", implementations))
    mine = {row.operation: row for row in ours.results if row.implementation == tile and row.means}
    other = {row.operation: row for row in theirs.results if row.implementation == hand and row.means}
    column = {
        tile: f"{palette.LABELS[tile]}, {ours.experiment}",
        hand: f"{palette.LABELS[hand]}, {theirs.experiment}",
    }
    columns = ["Operation", column[tile], column[hand], "Ratio", "Published as"]
    both = [mine[name] for name in mine if name in other]
    records = []
    for row in pick(both, operations) if wanted else ():
        time, against = row.means.kernel_us, other[row.operation].means.kernel_us
        records.append(
            {
                "Operation": operation(row),
                column[tile]: time,
                column[hand]: against,
                "Ratio": time / against,
                "Published as": _counted(time / against, draw_within_pct),
            }
        )
    times = dict.fromkeys(column.values())
    return table(
        "claim", records, columns, "The published claim, operation by operation",
        [ours, theirs], both, "operation that both kinds of kernel computed",
        units={**{name: "µs" for name in times}, "Ratio": "×"}, formats={**{name: ".2f" for name in times}, "Ratio": ".2f"},
        note=f"Kernel time, mean. The two columns come from different sessions, so this repeats the published count and "
        f"is no verdict; the count holds if up to {draw_within_pct:g} % apart is called a draw.",
    )  # fmt: skip


def correctness(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """Largest absolute difference from the reference: by operation, as published with the timings, or of each row of
    a session, as its gate found it. ``implementations`` are of a session's rows.
    """
    if judged.measured(evidence):
        return _gated(evidence, operations, implementations)
    errors = evidence.correctness.max_abs_error if evidence.correctness else {}
    columns = {name: f"Error, {name.replace('_', ' ')}" for name in errors}
    wanted = selection.words("operations", operations)
    names = [name for name in palette.OPERATIONS if name in wanted and any(name in found for found in errors.values())]
    records = [
        {
            "Operation": short(name),
            **{column: errors[key].get(name) for key, column in columns.items()},
            "Tolerance": evidence.correctness.tolerance,
        }
        for name in names
    ]
    numbers = [*columns.values(), "Tolerance"]
    return table(
        "correctness", records, ["Operation", *numbers], "Largest absolute difference from PyTorch with TF32 off",
        evidence, errors, "correctness figures", formats=dict.fromkeys(numbers, ".2e"),
        note="The tolerance is absolute; the check also allows the same share of the reference's magnitude.",
    )  # fmt: skip


def _gated(evidence: Evidence, operations: Chosen, implementations: Chosen) -> TableView:
    records = [
        {
            "Operation": operation(row.result),
            "Implementation": implementation(row.result),
            "Error": row.result.max_abs_error,
            "Tolerance": evidence.method.atol,
        }
        for row in selection.rows(evidence, operations, implementations)
        if row.result.max_abs_error is not None
    ]
    return table(
        "correctness", records, ["Operation", "Implementation", "Error", "Tolerance"],
        "Largest absolute difference from PyTorch with TF32 off",
        evidence, [row for row in evidence.results if row.max_abs_error is not None], "correctness figures",
        formats={"Error": ".2e", "Tolerance": ".2e"}, row_heads=2,
        note=f"Of the gate before the clock, in the session of {evidence.experiment}. The tolerance is absolute; the check "
        "also allows the same share of the reference's magnitude.",
    )  # fmt: skip


def _head(row: dict) -> str:
    return f"{row['Operation']} {row['Shape']}"


def _turned(rows: list[dict], names: list[str]) -> list[dict]:
    """The same values, a name a row and an operation a column: many names do not fit a page side by side."""
    return [{"Implementation": name, **{_head(row): row.get(name) for row in rows}} for name in names]


def _column(row: selection.Row) -> str:
    return f"{row.name}, {row.evidence.experiment}" if row.elsewhere else row.name


def _counted(ratio: float, draw_within_pct: float) -> str:
    if abs(ratio - 1) * 100 <= draw_within_pct:
        return "draw"
    return "win" if ratio < 1 else "loss"


def _says(kinds: dict[str, set[str]]) -> str | None:
    if not kinds["span"] | kinds["kernel"]:
        return None
    spread = f"; low and high are the {' and '.join(sorted(kinds['spread']))}" if kinds["spread"] else ""
    return f"Kernel time: {_words(kinds['kernel'])}. Span: {_words(kinds['span'])}{spread}."


def _words(statistics: set[str]) -> str:
    return " and ".join(STATISTICS[name] for name in STATISTICS if name in statistics) or "not taken"
