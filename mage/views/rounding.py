"""Numbers as text, rounded half up in decimal arithmetic, as a person rounds.

Binary floats round 11.415 to 11.41, since the float lies just below it; a published table prints
11.42. What JSON or Python prints as 11.415 is taken as exactly that.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal

_FIXED = re.compile(r"(?P<sign>\+?)\.(?P<decimals>\d+)f")


def half_up(value: float, decimals: int) -> str:
    """``value`` with ``decimals`` digits after the point: ``half_up(10.325, 2) == "10.33"``."""
    return f"{Decimal(str(value)).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP):f}"


def significant(value: float, digits: int = 3) -> str:
    """``value`` with ``digits`` significant digits, never in exponent form: 68.6, 8.97, 344."""
    number = Decimal(str(value))
    if not number:
        return "0"
    rounded = number.quantize(Decimal(1).scaleb(number.adjusted() - digits + 1), ROUND_HALF_UP)
    # 9.996 becomes 10.00: one digit more than asked for, so the last one goes.
    return half_up(float(rounded), max(0, digits - 1 - rounded.adjusted()))


def formatted(value: float, spec: str) -> str:
    """``value`` by a format specification; ``.2f`` and ``+.1f`` round half up, others are Python's."""
    fixed = _FIXED.fullmatch(spec)
    if not fixed:
        return format(value, spec)
    text = half_up(value, int(fixed["decimals"]))
    return f"+{text}" if fixed["sign"] and not text.startswith("-") else text


def decimals_needed(values, most: int = 3) -> int:
    """Fewest decimals, at most ``most``, that print every one of ``values`` as it stands."""
    exponents = (Decimal(str(value)).normalize().as_tuple().exponent for value in values)
    return min(most, max((-exponent for exponent in exponents if exponent < 0), default=0))
