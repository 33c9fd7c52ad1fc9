"""Searches and sweeps of a measured session: what was tried, what could not be, who won, and whether that held."""

from __future__ import annotations

from mage.evidence import schema_search
from mage.evidence.schema import Evidence
from mage.evidence.schema_search import Candidate, Config, SearchRun
from mage.stats import judged, verdicts
from mage.tables.rows import implementation, operation, shape, table
from mage.views import palette, selection
from mage.views.display import TableView
from mage.views.selection import Chosen

TILE_COMPILER = ("cutile",)
MOST = 10
"""Candidates of a search that are listed one by one; of the matrix multiplication, which the published search tuned, all are."""
SIDES = ({"M", "N", "K"}, {"R", "D"}, {"I", "J", "K", "C"})
"""Letters of a tile that is written as a product, in the order of its configuration."""
SHORTENED = "Of operations other than the matrix multiplication the ten fastest and the fixed one are listed, and what failed."


def searches(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """A row a search or sweep: how many candidates, what became of them, the fixed configuration and the winner."""
    columns = [
        "Operation", "Implementation", "Shape", "Kind", "Tried", "Timed", "Not timed", "Fixed", "Best", "Gain", "Confirmed", "Chosen",
    ]  # fmt: skip
    records = []
    for run in selection.searches(evidence, operations, implementations):
        fixed, best = _of(run, run.fixed), _best(run)
        confirmed = run.confirmation
        records.append(
            {
                "Operation": operation(run),
                "Implementation": implementation(run),
                "Shape": shape(run.dims),
                "Kind": run.kind,
                "Tried": len(run.candidates),
                "Timed": run.count(schema_search.TIMED),
                "Not timed": len(run.candidates) - run.count(schema_search.TIMED),
                "Fixed": fixed and fixed.median_us,
                "Best": best and best.median_us,
                "Gain": fixed.median_us / best.median_us if fixed and fixed.median_us and best else None,
                "Confirmed": confirmed.fixed.median_us / confirmed.winner.median_us if confirmed and confirmed.fixed else None,
                "Chosen": _chosen(run),
            }
        )
    return table(
        "searches", records, columns, "Searches over declared configurations, and what came of them", evidence, evidence.searches,
        "search", units={"Fixed": "µs", "Best": "µs", "Gain": "×", "Confirmed": "×"},
        formats={"Fixed": ".2f", "Best": ".2f", "Gain": ".2f", "Confirmed": ".2f"}, row_heads=3, missing="none",
        **({} if evidence.searches else {"empty": _none(evidence)}),
        note="Fixed: the published configuration, always one of those tried. Gain: its time over the best one's, as the search "
        "took them. Confirmed: the same ratio in a fresh process on other inputs; a gain below 1 there keeps the fixed one.",
    )  # fmt: skip


def not_timed(evidence: Evidence, *, operations: Chosen = None, implementations: Chosen = None) -> TableView:
    """Candidates without a time, grouped by what became of them and why."""
    groups: dict[tuple, list[Candidate]] = {}
    runs: dict[tuple, SearchRun] = {}
    for run in selection.searches(evidence, operations, implementations):
        for one in run.candidates:
            if one.state != schema_search.TIMED:
                key = run.operation, run.implementation, run.variant, run.kind, one.state, _rule(one.reason)
                groups.setdefault(key, []).append(one)
                runs[key] = run
    records = [
        {
            "Operation": operation(runs[key]),
            "Implementation": implementation(runs[key]),
            "Kind": key[3],
            "State": key[4],
            "How many": len(group),
            "Reason of the first": group[0].reason,
            "First": words(group[0].config),
        }
        for key, group in groups.items()
    ]
    why = "Every candidate was timed." if evidence.searches else _none(evidence)
    return table(
        "not-timed", records, ["Operation", "Implementation", "Kind", "State", "How many", "Reason of the first", "First"],
        "Candidates without a time, and why", evidence, evidence.searches, "search", row_heads=2, empty=why,
        note="Refused: by a static rule, without a build, or by what its build asks for. Wrong: the gate said no, so it was never timed.",
    )  # fmt: skip


def candidates(evidence: Evidence, operations: Chosen, implementations: Chosen) -> TableView:
    """Every candidate of the tile compiler's searches that was built, fastest first, those without a time last."""
    runs = _of_tile_compiler(evidence, operations, implementations, "search")
    return _listed(
        "search",
        runs,
        "Every candidate of the tile compiler's searches that was built, fastest first",
        evidence,
        "search of the tile compiler",
    )


def sweep(evidence: Evidence, operations: Chosen, implementations: Chosen) -> TableView:
    """The published tile shapes on this device."""
    runs = _of_tile_compiler(evidence, operations, implementations, "sweep")
    return _listed("tile-sweep", runs, "The published tile shapes, tried here", evidence, "tile sweep")


def _of_tile_compiler(evidence: Evidence, operations: Chosen, implementations: Chosen, kind: str) -> list[SearchRun]:
    every = selection.searches(evidence, operations, implementations)
    return [run for run in every if run.implementation in TILE_COMPILER and run.kind == kind]


def _listed(id: str, runs: list[SearchRun], caption: str, evidence: Evidence, what: str) -> TableView:
    records = []
    for run in runs:
        timed = sorted((one for one in run.candidates if one.median_us), key=lambda one: one.median_us)
        untimed = [one for one in run.candidates if not one.median_us and (run.kind == "sweep" or one.state != schema_search.REFUSED)]
        fixed = _of(run, run.fixed)
        for place, one in enumerate([*timed, *untimed], 1):
            if place > MOST and run.kind == "search" and run.operation != "matmul" and one.median_us and one.config != run.fixed:
                continue
            again = run.measured(one.config)
            records.append(
                {
                    "Operation": operation(run),
                    "Configuration": words(one.config),
                    "Rank": place if one.median_us else None,
                    "Median": one.median_us,
                    "Run-off": again and again.median_us,
                    "Against fixed": one.median_us / fixed.median_us if one.median_us and fixed and fixed.median_us else None,
                    "Registers": one.registers,
                    "Shared": one.shared_bytes,
                    "What became of it": _fate(run, one),
                }
            )
    metrics = dict.fromkeys(f"{run.metric}; run-off: {run.final_metric}" for run in runs)
    return table(
        id, records,
        ["Operation", "Configuration", "Rank", "Median", "Run-off", "Against fixed", "Registers", "Shared", "What became of it"],
        caption, evidence, runs, what,
        units={"Median": "µs", "Run-off": "µs", "Against fixed": "×", "Shared": "bytes"},
        formats={"Median": ".2f", "Run-off": ".2f", "Against fixed": ".2f", "Rank": ".0f", "Registers": ".0f", "Shared": ".0f"},
        row_heads=2, missing="none", note=f"Time: {' / '.join(metrics)}. {SHORTENED if id == 'search' else ''}" if metrics else None,
    )  # fmt: skip


def confirmations(evidence: Evidence, operations: Chosen, implementations: Chosen) -> TableView:
    """Winner and fixed configuration of every search, in the run-off and again in a fresh process."""
    records = []
    for run in selection.searches(evidence, operations, implementations):
        if not (confirmed := run.confirmation):
            continue
        held = "held" if confirmed.held else "did not hold"
        for which, measured in (("fixed", confirmed.fixed), ("winner", confirmed.winner)):
            if measured is None:
                continue
            again = run.measured(measured.config)
            records.append(
                {
                    "Operation": operation(run),
                    "Implementation": implementation(run),
                    "Which": which,
                    "Configuration": words(measured.config),
                    "Run-off": again and again.median_us,
                    "Fresh process": measured.median_us,
                    "Verdict": held if which == "winner" else "",
                }
            )
    return table(
        "cross-check", records, ["Operation", "Implementation", "Which", "Configuration", "Run-off", "Fresh process", "Verdict"],
        "The winner of every search against the fixed configuration, measured again", evidence, records, "confirmation",
        units={"Run-off": "µs", "Fresh process": "µs"}, formats={"Run-off": ".2f", "Fresh process": ".2f"}, row_heads=3,
        missing="not in the run-off", note="Fresh process: other inputs than the winner was chosen on, gated again before the clock.",
    )  # fmt: skip


def tuned_effect(evidence: Evidence, operations: Chosen, implementations: Chosen) -> TableView:
    """Fixed and tuned variant of every implementation that has both, from paired rounds of one session."""
    rows = [row.result for row in selection.rows(evidence, operations, implementations)]
    tuned = [one for one in rows if one.variant == "tuned"]
    key = judged.key(evidence)
    unjudged = judged.loaded(evidence, key.quantity)
    records = []
    for one in tuned:
        plain = next((row for row in rows if (row.key, row.dims) == (one.key.replace(":tuned", ":fixed"), one.dims)), None)
        found = plain and verdicts.between(one, plain, key.quantity, key.mode, left_out=unjudged)
        mine, theirs = ((value := key.value(row)) and value.value if row else None for row in (one, plain))
        records.append(
            {
                "Operation": operation(one),
                "Implementation": palette.label(one.implementation),
                "Fixed": theirs,
                "Tuned": mine,
                "Ratio": found and found.ratio.median,
                "Low": found and found.ratio.low,
                "High": found and found.ratio.high,
                "Verdict": found.word if found else "no verdict",
                "Note": one.note,
            }
        )
    return table(
        "tile-effect", records, ["Operation", "Implementation", "Fixed", "Tuned", "Ratio", "Low", "High", "Verdict", "Note"],
        f"What tuning changed in {evidence.experiment}", evidence, tuned, "tuned row",
        units={"Fixed": "µs", "Tuned": "µs"}, formats={"Fixed": ".2f", "Tuned": ".2f", **dict.fromkeys(("Ratio", "Low", "High"), ".3f")},
        row_heads=2, missing="not measured",
        note=f"{key.words.capitalize()}, warm. Ratio: tuned over fixed, paired by round of this session; Low and High: 95 % interval "
        "of its median.",
    )  # fmt: skip


def words(config: Config) -> str:
    """A configuration as a reader sees it: its kernel, the tile's sides, then the rest by name."""
    sides = {name: value for name, value in config.items() if name.startswith(("TILE_", "BLOCK_")) and value is not None}
    shape = any({name.split("_")[1] for name in sides} <= letters for letters in SIDES) and len(sides) > 1
    rest = {name: value for name, value in config.items() if name != "kernel" and value is not None and not (shape and name in sides)}
    product = " × ".join(map(str, sides.values())) if shape else ""
    return ", ".join(filter(None, [config.get("kernel"), product, *(f"{name}={value}" for name, value in rest.items())])) or "as published"


def _none(evidence: Evidence) -> str:
    if evidence.search:
        return f"{evidence.experiment} published one search, which is listed trial by trial; no candidate of it failed."
    return f"There is no search in {evidence.experiment}."


def _of(run: SearchRun, config: Config) -> Candidate | None:
    return next((one for one in run.candidates if one.config == config), None)


def _best(run: SearchRun) -> Candidate | None:
    return min((one for one in run.candidates if one.median_us), key=lambda one: one.median_us, default=None)


def _chosen(run: SearchRun) -> str:
    if run.chosen is None:
        return "nothing"
    return "the fixed one" if run.chosen == run.fixed else words(run.chosen)


def _fate(run: SearchRun, one: Candidate) -> str:
    if one.state != schema_search.TIMED:
        return f"{one.state}: {one.reason}"
    marks = [word for word, config in (("fixed", run.fixed), ("chosen", run.chosen)) if config == one.config]
    return ", ".join(["timed", *marks])


def _rule(reason: str | None) -> str:
    """What reasons of one kind have in common: their words, without the numbers."""
    return "".join(letter for letter in reason or "" if not letter.isdigit()).split(":")[0]
