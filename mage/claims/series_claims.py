"""Published claims of notes 001 to 003, for a session on another device to judge (see ``mage.claims.replication``)."""

from __future__ import annotations

from collections.abc import Sequence

from mage.claims import replication
from mage.claims.replication import Claim
from mage.evidence.schema import Evidence
from mage.views.rounding import half_up

_ROWS = {"PyTorch": ("pytorch", None), "Triton": ("triton", "fixed")}
_LIBRARIES = {"PyTorch": "pytorch", "Triton": "triton"}


def _means(experiment: str, operation: str, implementation: str, quantity: str) -> str:
    return f"{experiment} results[{operation}/{implementation}].means.{quantity}"


def _claim(experiment: str, operation: str, stage: str, library: str, *, ahead: bool, quantity: str = "kernel_us") -> Claim:
    """That ``library`` takes less time than the hand-written ``stage`` (``ahead``), or that it takes more."""
    what = "span" if quantity == "span_us" else "kernel"
    rows = [_ROWS[library], ("cuda", stage)]
    paths = [_means(experiment, operation, name, quantity) for name in (_LIBRARIES[library], "rust-oxide")]
    if not ahead:
        rows, paths = rows[::-1], paths[::-1]
    text = f"{library}'s {what} below {stage}'s" if ahead else f"{stage}'s {what} below {library}'s"
    return Claim(
        text=text, operation=operation, kind="faster", one=rows[0], other=rows[1], quantity=quantity, published=(paths[0], paths[1])
    )


def _stage(operation: str, new: str, old: str, published: tuple[str, str]) -> Claim:
    return Claim(
        text=f"{new} beats {old}", operation=operation, kind="faster", one=("cuda", new), other=("cuda", old), published=published
    )


FIRST_COMPARISON = (
    _claim("mage-001", "matmul", "tiled", "PyTorch", ahead=True),
    _claim("mage-001", "matmul", "tiled", "Triton", ahead=True),
    _claim("mage-001", "gelu", "elementwise", "PyTorch", ahead=False),
    _claim("mage-001", "gelu", "elementwise", "Triton", ahead=True),
    _claim("mage-001", "layernorm", "block", "PyTorch", ahead=True),
    _claim("mage-001", "layernorm", "block", "Triton", ahead=True),
    _claim("mage-001", "triangle", "elementwise", "PyTorch", ahead=True),
    _claim("mage-001", "triangle", "elementwise", "Triton", ahead=False),
    _claim("mage-001", "neighbor", "feature", "PyTorch", ahead=False),
    _claim("mage-001", "neighbor", "feature", "Triton", ahead=True),
    _claim("mage-001", "gelu", "elementwise", "Triton", ahead=False, quantity="span_us"),
    _claim("mage-001", "layernorm", "block", "Triton", ahead=False, quantity="span_us"),
    _claim("mage-001", "neighbor", "feature", "Triton", ahead=False, quantity="span_us"),
)

FIRST_REWRITE = (
    _stage("matmul", "registers", "tiled", tuple(f"mage-00{n} results[matmul/rust-oxide].means.kernel_us" for n in (2, 1))),
    _claim("mage-002", "matmul", "registers", "PyTorch", ahead=True),
    _claim("mage-002", "matmul", "registers", "Triton", ahead=True),
    _stage("layernorm", "warp", "block", tuple(f"mage-00{n} results[layernorm/rust-oxide].means.kernel_us" for n in (2, 1))),
    _claim("mage-002", "layernorm", "warp", "PyTorch", ahead=False),
    _claim("mage-002", "layernorm", "warp", "Triton", ahead=True),
)

SHORT_OF = (
    _stage("matmul", "registers", "narrow", ("mage-003 reuse_test.retained_us", "mage-003 reuse_test.variant_us")),
    _stage("matmul", "quads", "registers", ("mage-003 stages[matmul/quads].kernel_us", "mage-003 stages[matmul/registers].kernel_us")),
    _claim("mage-003", "matmul", "quads", "PyTorch", ahead=True),
    _claim("mage-003", "matmul", "quads", "Triton", ahead=True),
    _stage("layernorm", "pair", "warp", ("mage-003 stages[layernorm/pair].kernel_us", "mage-003 stages[layernorm/warp].kernel_us")),
    _claim("mage-003", "layernorm", "pair", "PyTorch", ahead=False),
    _claim("mage-003", "layernorm", "pair", "Triton", ahead=True),
)

NOTES = {"first-comparison": FIRST_COMPARISON, "first-rewrite": FIRST_REWRITE, "short-of": SHORT_OF}


def held(record: Evidence, note: str, published: Sequence[Evidence] = ()) -> str:
    """One sentence on how many claims of ``note`` (a key of NOTES) the session ``record`` bears out."""
    words = [replication.judge(claim, record, published).word for claim in NOTES[note]]
    judged = [word for word in words if word != replication.NOT_MEASURED]
    if not judged:
        return f"On {record.device.name} no claim of this note could be judged."
    counted = {word: judged.count(word) for word in (replication.HOLDS, replication.REVERSED, replication.AMBIGUOUS)}
    rest = [f"{count} {'is' if count == 1 else 'are'} {word}" for word, count in counted.items() if word != replication.HOLDS and count]
    holds = counted[replication.HOLDS]
    said = f"{holds} of {len(judged)} published claims of this note {'holds' if holds == 1 else 'hold'}"
    return f"On an {record.device.name}, measured by this project ({record.experiment}), {', '.join([said, *rest])}."


def second_warp(record: Evidence) -> str:
    """One sentence on whether the session ``record`` finds two warps a row faster than one."""
    claim = next(one for one in SHORT_OF if (one.one[1], one.other[1]) == ("pair", "warp"))
    found = replication.judge(claim, record)
    if found.ratio is None:
        return f"Whether a second warp a row helps was not measured on {record.device.name}."
    ratio, low, high = (half_up(value, 3) for value in found.ratio)
    which = {replication.HOLDS: "helps there too", replication.REVERSED: "does the opposite there"}.get(found.word, "decides nothing there")
    return f"The second warp a row {which}: `pair` takes {ratio} of `warp`'s kernel time (95 % interval {low}–{high})."
