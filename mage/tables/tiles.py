"""Tile shapes: a sweep by hand, a tuner's search, its winner checked, and what the winner changed."""

from __future__ import annotations

from mage.evidence.schema import Evidence
from mage.stats import judged
from mage.tables import tuning
from mage.tables.rows import operation, pick, table, written
from mage.views import palette, selection
from mage.views.display import TableView
from mage.views.selection import Chosen

SHAPE = ("BM", "BN", "BK")


def tile_sweep(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """Every tile shape that was tried by hand, in the order tried, against the one that was kept."""
    if judged.measured(evidence):
        return tuning.sweep(evidence, operations, implementations)
    sweep = evidence.tile_sweep
    rows = sweep.rows if sweep else ()
    shown = rows if _wanted(operations, implementations) else ()
    kept = next((row.span_us for row in rows if row.tile == sweep.retained), None)
    records = [
        {
            "Tile": written(row.tile),
            **_sides(row.tile),
            "Span": row.span_us,
            "Against the kept": row.span_us / kept if kept else None,
            "Kept": "kept" if row.tile == sweep.retained else "",
        }
        for row in shown
    ]
    return table(
        "tile-sweep", records, ["Tile", *SHAPE, "Span", "Against the kept", "Kept"],
        "Tile shapes tried by hand, matrix multiplication", evidence, rows, "tile sweep",
        units={"Span": "µs", "Against the kept": "×"}, formats={"Span": ".1f", "Against the kept": ".2f"},
        note="Span of an awaited call: it includes submission, which is the same for every shape.",
    )  # fmt: skip


def search(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """Every trial of a tuner's search, fastest candidate first, the run-off of the best last."""
    if judged.measured(evidence):
        return tuning.candidates(evidence, operations, implementations)
    found = evidence.search
    trials = found.trials if found else ()
    shown = trials if _wanted(operations, implementations) else ()
    ordered = sorted(shown, key=lambda trial: (trial.runoff, trial.median_us))
    records = [
        {
            "Rank": None if trial.runoff else place,
            "Tile": written(trial.tile),
            **_sides(trial.tile),
            "Median": trial.median_us,
            "Minimum": trial.min_us,
            "Repetitions": trial.repetitions,
            "Trial": "run-off" if trial.runoff else "candidate",
        }
        for place, trial in enumerate(ordered, 1)
    ]
    note = None
    if found:
        space = ", ".join(f"{side} of {', '.join(map(str, values))}" for side, values in found.space.items())
        note = (
            f"{found.tool}, {found.metric.replace('us', 'µs')}; {space}: {found.candidates} candidates in {found.wall_s:g} s "
            f"of {found.budget_s:g} s allowed. A run-off measures the best two again."
        )
    return table(
        "search", records, ["Rank", "Tile", *SHAPE, "Median", "Minimum", "Repetitions", "Trial"],
        "Every trial of the tuner's search, fastest first", evidence, trials, "search",
        units={"Median": "µs", "Minimum": "µs"}, formats={"Median": ".2f", "Minimum": ".2f"},
        row_heads=2, missing="measured again, not ranked", note=note,
    )  # fmt: skip


def cross_check(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """The tile picked by hand and the tuner's, measured again outside the tuner."""
    if judged.measured(evidence):
        return tuning.confirmations(evidence, operations, implementations)
    rows = evidence.search.cross_check if evidence.search else ()
    shown = rows if _wanted(operations, implementations) else ()
    modes = {"awaited": "awaited", "queued_10": "queued in tens"}
    records = [
        {
            "Tile": written(row.tile),
            "Mode": modes.get(row.mode, row.mode),
            "Median": row.median_us,
            "Minimum": row.min_us,
            "Picked by": "tuner" if row.tile == evidence.search.best else "hand",
        }
        for row in shown
    ]
    return table(
        "cross-check", records, ["Tile", "Mode", "Median", "Minimum", "Picked by"],
        "The tuner's tile against the one picked by hand, measured outside the tuner", evidence, rows, "cross-check",
        units={"Median": "µs", "Minimum": "µs"}, formats={"Median": ".2f", "Minimum": ".2f"}, row_heads=2,
    )  # fmt: skip


def tile_effect(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """The same comparison captured with two matmul tiles: one number should move, the others show the drift."""
    if judged.measured(evidence):
        return tuning.tuned_effect(evidence, operations, implementations)
    earlier = evidence.earlier
    before = {row.key: row for row in earlier.results} if earlier else {}
    first, second = (f"Before, {written(earlier.configuration)}" if earlier else "Before"), "After"
    both = [row for row in evidence.results if row.key in before and row.means and before[row.key].means]
    records = [
        {
            "Operation": operation(row),
            "Implementation": palette.label(row.implementation, row.variant),
            first: before[row.key].means.kernel_us,
            second: row.means.kernel_us,
            "Change": (row.means.kernel_us / before[row.key].means.kernel_us - 1) * 100,
        }
        for row in pick(both, operations, implementations)
    ]
    return table(
        "tile-effect", records, ["Operation", "Implementation", first, second, "Change"],
        "Kernel time with the tile picked by hand, then with the tuner's", evidence, both, "earlier capture",
        units={first: "µs", second: "µs", "Change": "%"}, formats={first: ".2f", second: ".2f", "Change": "+.1f"},
        row_heads=2,
        note="Only the tile compiler's matrix multiplication differs: what else moves is drift, or a stall in one capture.",
    )  # fmt: skip


def _wanted(operations: Chosen, implementations: Chosen) -> bool:
    """Sweep and search are the tile compiler's, of matrix multiplication."""
    tile = {"cutile", "rust-cutile"} & set(selection.words("implementations", implementations))
    return bool(tile) and "matmul" in selection.words("operations", operations)


def _sides(tile: str) -> dict[str, int]:
    return dict(zip(SHAPE, map(int, tile.split("x")), strict=True))
