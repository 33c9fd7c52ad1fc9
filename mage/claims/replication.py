"""Claims of the two notes 004 as published, each judged by the samples of one session on another device.

A published claim is about two rows (A against B). It holds where the whole 95 % interval of the session says so,
is reversed where the whole interval says the opposite, and is ambiguous in between. Nothing is compared across
sessions: the published ratio stands beside the session's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mage.evidence.lookup import PathError, find, split
from mage.evidence.schema import Evidence, Result
from mage.stats import judged, verdicts

HOLDS, REVERSED, AMBIGUOUS, NOT_MEASURED = "holds", "reversed", "ambiguous", "not measured here"
DRAW_WITHIN = 0.10
"""Two times this far apart count as a draw, or as landing on each other, as the published texts count."""

Name = tuple[str, str | None]
Range = tuple[float, float, float]
"""A ratio: median, low and high end of its 95 % interval."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """``kind``: "faster" (A takes less time than B), "draw" (within 10 %), "span misleads" (A over B is larger in
    spans than in kernel time), "lands" (A queued in tens takes its kernel time, within 10 %).

    ``published``: paths of the two published times, A and B.
    """

    text: str
    operation: str
    kind: str
    one: Name
    other: Name
    quantity: str = "kernel_us"
    published: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Found:
    """A claim with what the session says of it; times in µs, ``word`` one of the four."""

    claim: Claim
    word: str
    published: float | None = None
    one_us: float | None = None
    other_us: float | None = None
    ratio: Range | None = None
    bound: str | None = None
    """What the ratio is held against, in words."""


def _stage(operation: str, new: str, old: str) -> Claim:
    path = f"mage-006 stages[{operation}/{{}}].kernel_us"
    return Claim(
        text=f"{new} beats {old}", operation=operation, kind="faster", one=("cuda", new), other=("cuda", old),
        published=(path.format(new), path.format(old)),
    )  # fmt: skip


def _shortest(operation: str, stage: str, other: str) -> Claim:
    path = f"mage-006 results[{operation}/{{}}].means.span_us"
    variant = {"triton": "fixed", "pytorch": None}[other]
    name = {"triton": "Triton", "pytorch": "PyTorch"}[other]
    return Claim(
        text=f"hand-written span below {name}'s", operation=operation, kind="faster", one=("cuda", stage),
        other=(other, variant), quantity="span_us", published=(path.format("rust-oxide"), path.format(other)),
    )  # fmt: skip


LOAD_IN_FLIGHT = (
    _stage("matmul", "registers", "tiled"),
    _stage("matmul", "quads", "registers"),
    _stage("matmul", "pipeline", "quads"),
    Claim(
        text="the library is ahead of pipeline", operation="matmul", kind="faster", one=("pytorch", None),
        other=("cuda", "pipeline"),
        published=("mage-006 results[matmul/pytorch].means.kernel_us", "mage-006 stages[matmul/pipeline].kernel_us"),
    ),
    _stage("layernorm", "warp", "block"),
    _stage("layernorm", "pair", "warp"),
    _stage("layernorm", "row", "pair"),
    Claim(
        text="Triton is ahead of row", operation="layernorm", kind="faster", one=("triton", "fixed"), other=("cuda", "row"),
        published=("mage-006 results[layernorm/triton].means.kernel_us", "mage-006 stages[layernorm/row].kernel_us"),
    ),
    *(
        _shortest(operation, stage, other)
        for operation, stage in (("gelu", "elementwise"), ("layernorm", "row"), ("neighbor", "feature"))
        for other in ("pytorch", "triton")
    ),
)  # fmt: skip

HAND = {"matmul": "quads", "gelu": "elementwise", "layernorm": "pair", "triangle": "elementwise", "neighbor": "feature"}
"""The stage of each hand-written kernel in mage-003, which the tile compiler was published against."""


def _tile(operation: str, text: str, kind: str, swap: bool = False, quantity: str = "kernel_us") -> Claim:
    rows = [("cutile", "fixed"), ("cuda", HAND[operation])]
    paths = [f"mage-004 results[{operation}/rust-cutile].means.{quantity}", f"mage-003 results[{operation}/rust-oxide].means.{quantity}"]
    one, other = reversed(rows) if swap else rows
    return Claim(
        text=text, operation=operation, kind=kind, one=one, other=other, quantity=quantity,
        published=tuple(reversed(paths) if swap else paths),
    )  # fmt: skip


def _lands(operation: str) -> Claim:
    path = f"mage-004 launch_modes[awaited-queued/32x128x32/{operation}/rust-cutile]"
    return Claim(
        text="in tens, the tile kernel takes its kernel time", operation=operation, kind="lands",
        one=("cutile", "fixed"), other=("cutile", "fixed"), published=(f"{path}.queued_10_us", f"{path}.kernel_us"),
    )  # fmt: skip


WHAT_THE_COMPILER_CHOSE = (
    _tile("gelu", "the tile compiler beats hand-written", "faster"),
    _tile("layernorm", "the tile compiler draws with hand-written", "draw"),
    *(_tile(name, "hand-written beats the tile compiler", "faster", swap=True) for name in ("matmul", "triangle", "neighbor")),
    *(_tile(name, "awaited, the tile kernel looks worse beside hand-written", "span misleads", quantity="span_us") for name in HAND),
    *(_lands(name) for name in HAND),
)  # fmt: skip

NOTES = {"load-in-flight": LOAD_IN_FLIGHT, "what-the-compiler-chose": WHAT_THE_COMPILER_CHOSE}


def judge(claim: Claim, evidence: Evidence, published: Sequence[Evidence] = ()) -> Found:
    """What ``evidence``, one session, says of ``claim``; the published ratio is looked up in ``published``."""
    before = _published(claim, {record.experiment: record for record in published})
    rows = [judged.row(evidence, claim.operation, *name) for name in (claim.one, claim.other)]
    if None in rows or evidence.device.kind != "gpu":
        return Found(claim=claim, word=NOT_MEASURED, published=before)
    one, other = rows
    found = _landing(evidence, one) if claim.kind == "lands" else _paired(evidence, one, other, claim.quantity)
    if found is None:
        return Found(claim=claim, word=NOT_MEASURED, published=before)
    times, ratio = found
    word, bound = _word(claim.kind, ratio), "below 1" if claim.kind == "faster" else f"1 ± {DRAW_WITHIN:g}"
    if claim.kind == "span misleads":
        kernel = _paired(evidence, one, other, "kernel_us")
        if kernel is None:
            return Found(claim=claim, word=NOT_MEASURED, published=before)
        word, bound = _above(ratio, kernel[1]), f"above {kernel[1][0]:.3f}, its ratio in kernel time"
    return Found(claim=claim, word=word, published=before, one_us=times[0], other_us=times[1], ratio=ratio, bound=bound)


def _word(kind: str, ratio: Range) -> str:
    _, low, high = ratio
    if kind == "faster":
        interval = verdicts.Interval(median=ratio[0], low=low, high=high, count=0)
        return {"faster": HOLDS, "slower": REVERSED}.get(verdicts.word(interval), AMBIGUOUS)
    if 1 - DRAW_WITHIN <= low and high <= 1 + DRAW_WITHIN:
        return HOLDS
    return REVERSED if high < 1 - DRAW_WITHIN or low > 1 + DRAW_WITHIN else AMBIGUOUS


def _above(span: Range, kernel: Range) -> str:
    """Whether A over B is larger in spans than in kernel time: by intervals that do not meet."""
    if span[1] > kernel[2]:
        return HOLDS
    return REVERSED if span[2] < kernel[1] else AMBIGUOUS


def _paired(evidence: Evidence, one: Result, other: Result, quantity: str) -> tuple[tuple[float, float], Range] | None:
    left_out = judged.loaded(evidence, quantity)
    verdict = verdicts.between(one, other, quantity, left_out=left_out)
    if verdict is None:
        return None
    times = tuple(_interval(row, quantity, "awaited", left_out).median for row in (one, other))
    return times, (verdict.ratio.median, verdict.ratio.low, verdict.ratio.high)


def _landing(evidence: Evidence, row: Result) -> tuple[tuple[float, float], Range] | None:
    """Span a call in batches of ten over kernel time. Their rounds are not the same, so the ends of the two
    intervals are divided: wider than a paired interval, never narrower."""
    queued = _interval(row, "span_us", "batch-10", judged.loaded(evidence, "span_us"))
    kernel = _interval(row, "kernel_us", "awaited", judged.loaded(evidence, "kernel_us"))
    if queued is None or kernel is None:
        return None
    ratio = (queued.median / kernel.median, queued.low / kernel.high, queued.high / kernel.low)
    return (queued.median, kernel.median), ratio


def _interval(row: Result, quantity: str, mode: str, left_out: frozenset[int]) -> verdicts.Interval | None:
    rounds = verdicts.by_round(row, quantity, mode)
    kept = [value for number, value in rounds.items() if number not in left_out]
    return verdicts.median_interval(kept) if len(kept) >= 3 else None


def _published(claim: Claim, records: dict[str, Evidence]) -> float | None:
    """The published ratio of A over B, or None where a record or a value is not at hand."""
    times = []
    for path in claim.published or ():
        experiment, field = split(path)
        try:
            times.append(find(records[experiment], field))
        except (KeyError, PathError):
            return None
    return times[0] / times[1] if times else None
