"""Counts of compiled code in prose: a note quotes them through ``Counts``, or does not quote them.

    counts = mage.Counts(mage.count_code("layernorm"))
    pair = counts.row(implementation="cuda", variant="pair", gpu="sm_89")
    f"{pair('barriers', '1')} barrier, {pair('registers')} registers"

What a text depends on is given as it is printed, and the note stops where the code says otherwise. What differs
between compiler releases (registers, mostly) is asked for and printed as it was counted.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from mage.claims import Printed, decimal, rounded
from mage.errors import ClaimError

if TYPE_CHECKING:
    import pandas as pd


_NAMES = ("operation", "implementation", "variant", "product", "tile", "release", "gpu", "compiled")


class Counts:
    """Rows of a census (``mage.count_code``, ``tile_census.census``) to quote from."""

    def __init__(self, frame: pd.DataFrame):
        self._frame = frame

    def __repr__(self) -> str:
        return f"Counts of {len(self._frame)} compiled kernels"

    def row(self, **named: str) -> Row:
        """The one row whose columns have these values: ``row(implementation="triton", gpu="sm_89")``."""
        found = self._chosen(named)
        if len(found) != 1:
            raise ClaimError(f"claim on {_said(named)}: {len(found)} rows of the census match; name columns until one does")
        (row,) = found.to_dict("records")
        return Row(row, _said(named))

    def every(self, column: str, printed: str, **named: str) -> str:
        """The number that ``column`` has in every row so named."""
        for row in self._rows(named):
            _checked(row[column], printed, f"{column} of {_said({name: row[name] for name in _NAMES if name in row})}")
        return str(Printed.parse(printed))

    def having(self, column: str, printed: str, **named: str) -> str:
        """How many of the rows so named have anything in ``column``, a stack, say."""
        return _checked(sum(row[column] > 0 for row in self._rows(named)), printed, f"number of {_said(named)} with {column}")

    def most(self, column: str, printed: str, **named: str) -> str:
        """The largest number that ``column`` has in the rows so named."""
        return _checked(max(row[column] for row in self._rows(named)), printed, f"largest {column} of {_said(named)}")

    def _rows(self, named: dict[str, str]) -> list[dict]:
        found = self._chosen(named).to_dict("records")
        if not found:
            raise ClaimError(f"claim on {_said(named)}: no row of the census is that")
        return found

    def _chosen(self, named: dict[str, str]) -> pd.DataFrame:
        found = self._frame[self._frame.refused.isna()]
        for column, value in named.items():
            if column not in found:
                raise ClaimError(f"claim on {_said(named)}: the census has no column {column!r}")
            found = found[found[column] == value]
        return found


class Row:
    """One kernel's counts."""

    def __init__(self, values: dict, name: str):
        self._values, self._name = values, name

    def __call__(self, column: str, printed: str | None = None) -> str:
        """The number in ``column``; it must be ``printed``, where that is given: counts are exact."""
        if self._values.get(column) is None or self._values[column] != self._values[column]:
            raise ClaimError(f"claim {printed or column}: {self._name} has no {column!r}")
        return _checked(self._values[column], printed, f"{column} of {self._name}")

    def total(self, columns: str, printed: str | None = None) -> str:
        """The sum of some columns, set apart by commas."""
        return _checked(self._sum(columns), printed, f"sum of {columns} of {self._name}")

    def ratio(self, over: str, under: str, printed: str) -> str:
        """The sum of the columns ``over`` divided by ``under``, rounded to as many decimals as ``printed`` has."""
        value = Decimal(self._sum(over)) / Decimal(self._values[under])
        return _checked(rounded(value, printed), printed, f"{over} / {under} of {self._name}")

    def _sum(self, columns: str) -> int:
        return sum(self._values[name.strip()] for name in columns.split(","))


def _checked(value, printed: str | None, place: str) -> str:
    plain = f"{value:f}" if isinstance(value, Decimal) else f"{value:.10g}"
    claim = Printed.parse(plain if printed is None else printed)
    if decimal(claim.low) != decimal(plain):
        raise ClaimError(f"claim {printed}: the census has {plain} for {place}; mend the text, or look what moved")
    return str(claim)


def _said(named: dict[str, str]) -> str:
    return ", ".join(f"{column} {value}" for column, value in named.items()) or "the whole census"
