"""How a hand-written kernel reached its time: its stages from first to last, as a stair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from mage.evidence.schema import Evidence
from mage.figures.canvas import LINE, MARGIN, SMALL, WIDTH, Page, drawing, plain, raised, ticks_to, vertical_grid, width, wrapped
from mage.figures.words import times
from mage.stats import own_stages
from mage.stats.own_stages import Shown
from mage.views import palette, rounding, selection
from mage.views.display import FigureView, TableView
from mage.views.selection import Chosen

HAND_WRITTEN = ("cuda", "rust-oxide")
BAR = 11.0
RIGHT = 44.0
"""Points to the right of the longest bar, for its number."""
COLOUR = palette.HAND.colour


@dataclass(frozen=True, kw_only=True)
class Step:
    """A stage as the experiment that holds its value tells it, and the factor from the stage before it.

    ``changed`` is the short account of the record that lists all stages; the stage's own may be longer.
    """

    stage: Shown
    changed: str
    read_from: str
    factor: float | None


@drawing
def progression(
    evidence: Evidence | Sequence[Evidence], *, operations: Chosen = None, implementations: Chosen = None
) -> FigureView:
    """Kernel time in µs of every stage of the hand-written kernels, each kernel on its own scale from zero.

    A session without kernel times gives what it is judged by instead (``judged.key``), and the figure says so.

    A record lists the stages and names the experiment whose capture holds each value. The value is read
    from that experiment if it is among ``evidence``; else it is the listing record's own, and the table
    says so. Factors lie between captures of different sessions: they are printed, without a verdict.
    """
    records = selection.as_list(evidence)
    hand = set(HAND_WRITTEN) & set(selection.words("implementations", implementations))
    kernels = {operation: _steps(records, operation) for operation in selection.words("operations", operations)} if hand else {}
    kernels = {operation: steps for operation, steps in kernels.items() if steps}
    words = own_stages.words(records[0])
    table = _table(kernels, words)
    title = "How each hand-written kernel reached its time"
    if not kernels:
        names = " and ".join(dict.fromkeys(record.experiment for record in records))
        listed = any(own_stages.shown(record) for record in records)
        none = f"In {names} no stage of a hand-written kernel has a time."
        return FigureView("progression", None, title, "", table, notice=f"Nothing in {names} matches the selection." if listed else none)
    page = Page()
    for operation, steps in kernels.items():
        page.heading(palette.OPERATIONS[operation], f"{words}, µs")
        _stair(page, steps)
    together = own_stages.one_session(records[0])
    page.paragraph(f"÷ is the factor from the stage above; the stages come from {'one session' if together else 'different sessions'}.")
    note = f"{words.capitalize()} at each stage, the experiment it is read from, and what changed. "
    note += "Each kernel has its own scale, from zero. "
    note += (
        "All were measured in one session; each is its median."
        if together
        else "The factor from the stage before lies between captures of different sessions: printed, without a verdict."
    )
    used = [record for record in records if record.experiment in {step.read_from for steps in kernels.values() for step in steps}]
    figure = page.finish(selection.source(used or records))
    return FigureView("progression", figure, title, _in_words(kernels, words), table, note=note)


def _steps(records: list[Evidence], operation: str) -> list[Step]:
    """The stages of ``operation`` from the record that lists most of them."""
    lists = [(record, [stage for stage in own_stages.shown(record) if stage.operation == operation]) for record in records]
    listing, stages = max(lists, key=lambda pair: len(pair[1]))
    by_name = {record.experiment: record for record in records}
    steps: list[Step] = []
    for stage in stages:
        holder = by_name.get(stage.read_from)
        found = next((own for own in own_stages.shown(holder) if own.key == stage.key), None) if holder else None
        read_from = stage.read_from if found or holder is listing else f"{stage.read_from}, as {listing.experiment} states it"
        drawn = found or stage
        factor = steps[-1].stage.time_us / drawn.time_us if steps else None
        steps.append(Step(stage=drawn, changed=times(stage.changed), read_from=read_from, factor=factor))
    return steps


def _stair(page: Page, steps: list[Step]) -> None:
    """For every stage its words and a bar; one line along the ends of the bars, from the first to the last."""
    top, tops = page.y, []
    for step in steps:
        _words(page, step)
        tops.append(page.y)
        page.y += BAR + 5
    height, wide = page.y - top, WIDTH - 2 * MARGIN - RIGHT
    high = max(step.stage.time_us for step in steps)
    panel = page.panel(MARGIN, top, wide, height, ylim=(height, 0))
    panel.set_xlim(0, high)
    times = [step.stage.time_us for step in steps]
    for at, time, step in zip(tops, times, steps, strict=True):
        panel.bar([0], [BAR], [time], at - top, align="edge", color=palette.tint(COLOUR, 0.3), lw=0)
        number = rounding.half_up(time, 2)
        end = MARGIN + wide * time / high + 4
        page.text(end, raised(at + BAR / 2), number, fontweight="bold")
        if step.factor:
            behind = end + width(number, bold=True) + 6
            page.text(behind, raised(at + BAR / 2), _factor(step.factor))
    stair_x = [time for time in times for _ in (0, 1)]
    stair_y = [tops[0], *[at for at in tops[1:] for _ in (0, 1)], tops[-1] + BAR]
    panel.plot(stair_x, [at - top for at in stair_y], color=COLOUR, lw=1.6, clip_on=False, solid_joinstyle="miter", zorder=4)
    ticks = ticks_to(high, 4)
    vertical_grid(panel, ticks[:1])
    panel.set_xticks(ticks, [plain(tick) for tick in ticks])
    panel.get_xticklabels()[0].set_horizontalalignment("left")
    panel.tick_params(axis="x", length=2.5, width=0.6, color=palette.MUTED)
    page.y += SMALL * LINE + 8


_PAPER = {"fc": "white", "ec": "none", "pad": 0}
"""Behind text that the stair may pass under."""


def _words(page: Page, step: Step) -> None:
    """The stage's name in bold, then where its value is read from and what changed, wrapped."""
    stage = step.stage
    name = width(stage.stage, bold=True) + width("  ")
    rest = f"{step.read_from}: {step.changed}"
    room = WIDTH - 2 * MARGIN
    first = wrapped(rest, room - name)[0]
    page.text(MARGIN, page.y + SMALL, stage.stage, fontweight="bold", bbox=_PAPER)
    page.text(MARGIN + name, page.y + SMALL, first, colour=palette.MUTED, bbox=_PAPER)
    page.y += SMALL * LINE
    for line in wrapped(rest[len(first) :], room):
        if line:
            page.text(MARGIN, page.y + SMALL, line, colour=palette.MUTED, bbox=_PAPER)
            page.y += SMALL * LINE
    page.y += 3


def _factor(factor: float) -> str:
    """``÷ 2.43`` for a stage that takes less time, ``× 1.05`` for one that takes more."""
    return f"÷ {rounding.half_up(factor, 2)}" if factor >= 1 else f"× {rounding.half_up(1 / factor, 2)}"


def _bracketed(factor: float | None) -> str:
    return f" ({_factor(factor)})" if factor else ""


def _in_words(kernels: dict[str, list[Step]], words: str) -> str:
    parts = []
    for operation, steps in kernels.items():
        listed = (f"{step.stage.stage} {rounding.half_up(step.stage.time_us, 2)}{_bracketed(step.factor)}" for step in steps)
        parts.append(f"{palette.OPERATIONS[operation]}: {', '.join(listed)}")
    return f"Stairs of {words} in microseconds, one stage after the other. {'. '.join(parts)}."


def _table(kernels: dict[str, list[Step]], words: str) -> TableView:
    time = words.capitalize()
    columns = ["Kernel", "Stage", time, "Factor", "Span", "Read from", "What changed"]
    records = [
        (
            palette.OPERATIONS[operation], step.stage.stage, step.stage.time_us, step.factor, step.stage.span_us,
            step.read_from, times(step.stage.changed),
        )
        for operation, steps in kernels.items()
        for step in steps
    ]  # fmt: skip
    frame = pd.DataFrame(records, columns=columns)
    formats = {time: ".2f", "Factor": ".2f", "Span": ".2f"}
    return TableView(
        "progression-values", frame, f"{time} by stage", units={time: "µs", "Span": "µs"}, formats=formats,
        row_heads=2, missing="no stage before it", note="Factor: time of the stage before, divided by this one's.",
    )  # fmt: skip
