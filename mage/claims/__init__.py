"""Numbers in prose, checked: a note quotes a number through ``Quotes`` or does not quote it.

A claim is a path into evidence and the text a reader will see. The value is looked up, rounded half up in decimal
arithmetic to as many decimals as the text has, and must lie within one last printed digit of the text (a count must
be equal). If not, the note stops with a ClaimError. What the published texts say and their own data contradict is
quoted with ``disagree``, which fails in turn once the two agree.

Beside it:

    measured        medians and ratios of a measured session in prose
    counts          counts of compiled code in prose
    replication     the claims of the notes 004, judged by a session on another device
    series_claims   those of the notes 001 to 003
    reuse           does a tile compiler win where reuse is low?
    reuse_test      the deliberately worse tile: what it predicts, what was measured
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

import pandas as pd

from mage import evidence, paths
from mage.claims.measured import MeasuredQuotes
from mage.errors import ClaimError
from mage.evidence import lookup
from mage.views import palette
from mage.views.display import TableView

THIN = "\u202f"  # narrow no-break space: between a number and its unit
_SPACE = {"µs": THIN, "%": THIN, "×": "", "bytes": "\u00a0", "MHz": THIN, "s": THIN}
_UNIT_OF = {"_us": "µs", "_pct": "%", "_bytes": "bytes", "_mhz": "MHz", "_s": "s"}
_NUMBER = r"[-−]?\d+(?:\.\d+)?(?:e[-−]?\d+)?"
_PRINTED = re.compile(rf"(?P<low>{_NUMBER})(?:–(?P<high>{_NUMBER}))?\s*(?P<unit>{'|'.join(_SPACE)})?")


@dataclass(frozen=True)
class Printed:
    """A number or a range as it stands in a text, with its unit."""

    low: str
    high: str | None
    unit: str

    @classmethod
    def parse(cls, text: str) -> Printed:
        match = _PRINTED.fullmatch(text)
        if not match:
            raise ClaimError(f"claim {text!r}: not a number or a range with a known unit ({', '.join(_SPACE)})")
        return cls(match["low"], match["high"], match["unit"] or "")

    def __str__(self) -> str:
        low, high = (part.replace("-", "−") if part and "e" not in part else part for part in (self.low, self.high))
        return low + (f"–{high}" if high else "") + (_SPACE[self.unit] + self.unit if self.unit else "")


def decimal(value: float | int | str) -> Decimal:
    """A JSON number exactly as the file writes it: 10.325 is not the binary float beside it."""
    return Decimal(str(value).replace("−", "-"))


def rounded(value: Decimal, like: str) -> Decimal:
    """``value`` with as many decimals as the text ``like`` has, half up."""
    return value.quantize(Decimal(1).scaleb(decimal(like).as_tuple().exponent), ROUND_HALF_UP)


def agrees(value: Decimal, printed: str) -> bool:
    """Whether ``printed`` is ``value`` to within one last printed digit."""
    step = Decimal(1).scaleb(decimal(printed).as_tuple().exponent)
    return abs(rounded(value, printed) - decimal(printed)) <= step


class Quotes(MeasuredQuotes):
    """Quotes from the evidence of some experiments: ``q = Quotes("mage-001", "mage-006")``.

    Every method returns the text to print, with the unit set off by a no-break space, and raises ClaimError in one
    line (claim, evidence file and field, both values) when evidence says otherwise.
    """

    def __init__(self, *experiments: str):
        self._evidence = {name: evidence.load(name) for name in experiments}

    def __repr__(self) -> str:
        return f"Quotes from {', '.join(self._evidence)}"

    def __call__(self, path: str, printed: str) -> str:
        """The value at ``path``: a number as ``printed``, or a text that must be the same word for word."""
        value = self._find(path, printed)
        if isinstance(value, str):
            if value != printed:
                raise self._error(path, printed, value)
            return printed
        claim = Printed.parse(printed)
        self._check_unit(claim, _unit_of(path), path)
        self._check(claim.low, value, path, printed)
        return str(claim)

    def ratio(self, over: str, under: str, printed: str) -> str:
        """``over`` divided by ``under``, both times of one kind: ``"1.6"`` or ``"1.6×"``."""
        value = self._number(over, printed) / self._number(under, printed)
        return self._computed(value, f"{over} / {under}", printed, "×")

    def change_pct(self, before: str, after: str, printed: str) -> str:
        """By how much ``after`` is above ``before``, in percent: ``"1.9"`` or ``"1.9 %"``."""
        value = (self._number(after, printed) / self._number(before, printed) - 1) * 100
        return self._computed(value, f"change from {before} to {after}", printed, "%")

    def range(self, chosen: str | Iterable[str], printed: str) -> str:
        """Smallest and largest of the values at some paths (a list counts with every value in it): ``"14–23"``."""
        claim = Printed.parse(printed)
        found = sorted(self._numbers([chosen] if isinstance(chosen, str) else chosen, printed))
        for text, (value, path) in ((claim.low, found[0]), (claim.high or claim.low, found[-1])):
            self._check_unit(claim, _unit_of(path), path)
            self._check(text, value, path, printed)
        return str(claim)

    def least(self, path: str, rows: str, which: str) -> str:
        """The name of the row whose value is the smallest of ``rows`` (each put for ``{}`` in ``path``); it must be ``which``."""
        found = min(rows.split(), key=lambda row: self._number(path.format(row), which))
        if found != which:
            raise self._error(path, f"smallest: {which}", f"smallest for {found}")
        return palette.LABELS.get(which, which)

    def count(self, path: str, printed: str) -> str:
        """How many rows or values there are at ``path``."""
        return self._computed(len(self._find(path, printed)), f"number of {path}", printed, "")

    def product(self, first: str, second: str, printed: str) -> str:
        """Two counts multiplied: rounds × iterations, say."""
        value = self._find(first, printed) * self._find(second, printed)
        return self._computed(value, f"{first} × {second}", printed, "")

    def idle_lanes(self, width: str, printed: str) -> str:
        """Percent of the lanes that do nothing when a row of ``width`` is padded to the next power of two."""
        row = self._find(width, printed)
        padded = 1 << (row - 1).bit_length()
        idle = 100 * (1 - decimal(row) / padded)
        return self._computed(idle, f"idle of {padded} lanes for {width}", printed, "%", exact=True)

    def reads_per_multiply_add(self, rows: int, columns: int, quad: int, printed: str) -> str:
        """Shared-memory reads per multiply-add of a thread that computes ``rows`` × ``columns`` outputs.

        Each step along K needs one value of A per row and one of B per column for ``rows * columns`` multiply-adds;
        one instruction reads ``quad`` neighbouring values (1: a 32-bit read, 4: a 128-bit read).
        """
        reads = decimal(-(-rows // quad) - (-columns // quad))
        place = f"reads of a {rows} × {columns} thread tile, {quad} at a time"
        return self._computed(reads / (rows * columns), place, printed, "", exact=True)

    def published(self, caption: str, path: str, columns: str, rows: dict[str, str], heads: str = "") -> str:
        """Check a published table cell by cell; returns it as it was printed, folded, below a sentence that says so.

        ``path`` holds ``{row}`` and ``{column}``; ``columns`` and each row's values are set apart by blanks, ``heads``
        (the columns' names, where they have none of their own) by commas.
        """
        names = columns.split()
        printed = {row: values.split() for row, values in rows.items()}
        for row, values in printed.items():
            for column, value in zip(names, values, strict=True):
                self(path.format(row=row, column=column), value)
        shown = [head.strip() for head in heads.split(",")] if heads else [palette.LABELS.get(name, name) for name in names]
        cells = [[palette.OPERATIONS.get(row, row), *values] for row, values in printed.items()]
        frame = pd.DataFrame(cells, columns=["Row", *shown])
        table = TableView("published-" + re.sub(r"[^a-z0-9]+", "-", caption.lower()).strip("-"), frame, caption)
        said = f"As published, {len(names) * len(printed)} values: each agrees with the evidence"
        return f"<details><summary>{said}</summary>\n{table.html}\n</details>"

    def tally(self, ours: str, theirs: str, rows: str, within_pct: int, wins: int, draws: int, losses: int) -> str:
        """How often ``ours`` is below ``theirs`` (both paths with ``{}`` for the row): wins, draws, losses.

        Times within ``within_pct`` percent of each other count as a draw. This repeats somebody's count; it is no
        verdict, which needs the samples of one run.
        """
        said, found = f"wins {wins}, draws {draws}, loses {losses}", [0, 0, 0]
        for row in rows.split():
            ratio = self._number(ours.format(row), said) / self._number(theirs.format(row), said)
            found[1 if abs(ratio - 1) * 100 <= within_pct else 0 if ratio < 1 else 2] += 1
        if found != [wins, draws, losses]:
            raise self._error(f"{ours} against {theirs}", said, "wins {}, draws {}, loses {}".format(*found))
        return said

    def disagree(self, printed: str, found: str, why: str, said: str | None = None) -> str:
        """What the published text ``printed`` beside what evidence gives (``found``, itself a quote), marked.

        ``said`` are the text's own words, where it prints no number (``"a third"`` for ``"33 %"``).

        Fails when the two agree, since a disagreement that was mended must not be reported any longer.
        """
        text, data = Printed.parse(printed), Printed.parse(found.replace(THIN, " "))
        pairs = [(text.low, data.low), (text.high or text.low, data.high or data.low)]
        if text.unit == data.unit and all(rounded(decimal(value), said) == decimal(said) for said, value in pairs):
            raise ClaimError(f"claim {text}: reported as contradicted, yet the evidence gives {data}; quote it plainly")
        return _marked(f"published: {said or text}; the evidence gives {data}", why)

    def absent(self, path: str, printed: str, why: str) -> str:
        """A published value that none of the values at ``path`` prints as, marked. Fails when one does."""
        claim = Printed.parse(printed)
        values = [decimal(value) for value in self._find(path, printed)]
        if any(rounded(value, claim.low) == decimal(claim.low) for value in values):
            raise ClaimError(f"claim {claim}: reported as absent, yet {self._place(path)} holds it")
        return _marked(f"published: {claim}; not among the {len(values)} values listed", why)

    def contradicts(self, said: str, holds: str, why: str) -> str:
        """As ``disagree``, for words: nothing can be computed, so the note answers for it."""
        return _marked(f"published: {said}; the data: {holds}", why)

    def mean(self, path: str, printed: str) -> str:
        """The mean of the values at ``path``."""
        values = [decimal(value) for value in self._find(path, printed)]
        return self._computed(sum(values) / len(values), f"mean of {path}", printed, _unit_of(path))

    def stated(self, printed: str) -> str:
        """A number that a published text states and no evidence holds. The sentence around it must say whose it is."""
        return str(Printed.parse(printed))

    def _computed(self, value, path: str, printed: str, unit: str, exact: bool = False) -> str:
        claim = Printed.parse(printed)
        self._check_unit(claim, unit, path)
        self._check(claim.low, value, path, printed, exact)
        return str(claim)

    def _check(self, text: str, value, path: str, printed: str, exact: bool = False) -> None:
        """A measured value may miss the text by one last digit; a count, or what follows from counts, may not."""
        number = decimal(value)
        if not (number == decimal(text) if exact or isinstance(value, int) else agrees(number, text)):
            raise self._error(path, printed, f"{value:.4f}" if isinstance(value, Decimal) else value)

    def _check_unit(self, claim: Printed, unit: str, path: str) -> None:
        if claim.unit and claim.unit != unit:
            kind = f"in {unit}" if unit else "a plain number"
            raise ClaimError(f"claim {claim}: {path} is {kind}, not in {claim.unit}")

    def _numbers(self, chosen: Iterable[str], printed: str) -> Iterable[tuple[Decimal, str]]:
        for path in chosen:
            value = self._find(path, printed)
            yield from ((decimal(one), path) for one in (value if isinstance(value, tuple) else (value,)))

    def _number(self, path: str, printed: str) -> Decimal:
        value = self._find(path, printed)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ClaimError(f"claim {printed}: {path} is not a number")
        return decimal(value)

    def _find(self, path: str, printed: str):
        try:
            experiment, field = lookup.split(path)
            if experiment not in self._evidence:
                raise lookup.PathError(f"{experiment} is not among {', '.join(self._evidence)}")
            return lookup.find(self._evidence[experiment], field)
        except lookup.PathError as error:
            raise ClaimError(f"claim {printed} ({path}): {error}") from None

    def _error(self, path: str, printed: str, value) -> ClaimError:
        return ClaimError(f"claim {printed}: {self._place(path)} is {value}; mend the text or the evidence")

    def _place(self, path: str) -> str:
        """The path with the evidence files it leads to, named as a person finds them."""
        names = [name for name in self._evidence if f"{name} " in path]
        files = [evidence.path(name) for name in names]
        return f"{path} ({', '.join(map(paths.shown, files))})"


def _unit_of(path: str) -> str:
    field = re.sub(r"(\[[^\]]*\])+$", "", path)
    return next((unit for ending, unit in _UNIT_OF.items() if field.endswith(ending)), "")


def _marked(text: str, why: str) -> str:
    return f'<span class="mage-disagreement">{html.escape(text)}</span> ({html.escape(why, quote=False)})'
