"""Words that several figures say of their numbers."""

from __future__ import annotations

import re

from mage.stats import Value
from mage.views.selection import Row

STATISTICS = {
    "mean": "mean of all calls",
    "median": "median of all calls",
    "fastest-round": "mean of the fastest round",
    "slowest-round": "mean of the slowest round",
}
"""What a statistic is, by its name."""


def times(text: str) -> str:
    """``32x128`` as ``32×128``: evidence is written in plain letters."""
    return re.sub(r"(?<=\d)x(?=\d)", "×", text)


def control_remark(row: Row, quantity: str, value: Value) -> str:
    """What the evidence says of ``value`` as a control if it lies outside the control's band, else nothing."""
    if value.statistic != "mean":
        return ""
    key = row.result.operation, row.result.implementation, quantity
    for control in row.evidence.controls:
        if (control.operation, control.implementation, control.quantity) != key or not (control.band_us and control.observed_us):
            continue
        low, high = control.band_us
        if control.verdict and not low <= control.observed_us <= high:
            return f"control: {control.verdict}"
    return ""
