"""The committed census of every kernel, by compiler version, and what has moved since.

A kernel whose registers, stack, access widths, barriers or multiply-adds move was changed, or is compiled
differently. Either may be meant, and neither should go unseen. ``python -m mage census --renew`` writes the
baseline of the compilers at hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from mage import paths
from mage.census import compile_pool, counting
from mage.census.compile_pool import Row
from mage.census.offline import Job
from mage.census.tile_census import write_json
from mage.errors import EvidenceError

SCHEMA = "mage.census-baseline/1"
IMPLEMENTATIONS = ("triton", "cutile", "cuda")
RENEW = "python -m mage census --renew"

_NAME = ("operation", "implementation", "variant", "gpu")
COMPARED = (
    "grid", "threads", "registers", "static shared", "dynamic shared", "stack", "local bytes stored", "local bytes loaded",
    "global loads 32", "global loads 64", "global loads 128", "global stores 32", "global stores 64", "global stores 128",
    "shared loads 32", "shared loads 64", "shared loads 128", "shared stores", "cp.async", "barriers", "shuffles",
    "FFMA", "FMUL", "FADD", "tensor-core",
)  # fmt: skip
"""Columns that are compared. Sizes of code and counts of all instructions would move with every scheduler."""


def compiler(implementation: str) -> str:
    """The compiler at hand and its version, as a baseline names it."""
    return compile_pool.compiler(Job(operation="matmul", implementation=implementation, variant="", arch=""))


def path(implementation: str) -> Path:
    """The baseline of the compiler at hand, whether it is there or not."""
    named = re.sub(r"nvidia-cuda-|cuda-", "", ", ".join(compiler(implementation).split(", ")[:2]))
    words = re.sub(r"[^a-zA-Z0-9.]+", "-", named).removeprefix(f"{implementation}-")
    return paths.RETAINED / "census" / f"baseline-{implementation}-{words}.json"


def known(implementation: str) -> str | None:
    """None where there is a baseline for the compiler at hand, else which compilers there are baselines for."""
    if path(implementation).is_file():
        return None
    there = [_read(file)["compiler"] for file in sorted(path(implementation).parent.glob(f"baseline-{implementation}-*.json"))]
    return f"no baseline for {compiler(implementation)}: there is {'; '.join(there) or 'none'} ({RENEW} writes one)"


def moved(implementation: str) -> list[str]:
    """What differs between the baseline and today's code: a line for each kernel, GPU and column, old value and new.

    EvidenceError when the compiler at hand has no baseline.
    """
    if reason := known(implementation):
        raise EvidenceError(reason)
    old = _read(path(implementation))
    columns = list(old["columns"])
    before = {tuple(row[: len(_NAME)]): dict(zip(columns, row, strict=True)) for row in old["rows"]}
    now = {tuple(row[column] for column in _NAME): row for row in _today(implementation)}
    lines = [f"{_named(name)}: is in the baseline and no longer there" for name in before.keys() - now.keys()]
    for name, row in now.items():
        if name not in before:
            lines.append(f"{_named(name)}: is not in the baseline")
        elif row["refused"]:
            lines.append(f"{_named(name)}: {row['refused']}")
        else:
            lines += [
                f"{_named(name)}: {column} was {before[name][column]}, is {row[column]}"
                for column in columns[len(_NAME) :]
                if row[column] != before[name][column]
            ]
    return sorted(lines)


def renew(implementations: Sequence[str] = IMPLEMENTATIONS) -> list[Path]:
    """Write the baseline of each compiler at hand, of the kernels as they are now; EvidenceError if one does not compile."""
    files = []
    for implementation in implementations:
        rows = _today(implementation)
        if refused := [row for row in rows if row["refused"]]:
            raise EvidenceError(f"{_named([refused[0][column] for column in _NAME])}: {refused[0]['refused']}; no baseline was written")
        columns = [*_NAME, *COMPARED]
        record = {
            "schema": SCHEMA,
            "compiler": compiler(implementation),
            "columns": columns,
            "rows": [[row[column] for column in columns] for row in rows],
        }
        write_json(path(implementation), record)
        files.append(path(implementation))
    return files


def _today(implementation: str) -> list[Row]:
    return counting.rows(implementation=implementation)


def _read(file: Path) -> dict:
    try:
        record = json.loads(file.read_bytes())
        good = record["schema"] == SCHEMA and set(_NAME) < set(record["columns"])
        good = good and all(len(row) == len(record["columns"]) for row in record["rows"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EvidenceError(f"{file.name}: not a census baseline ({error}); {RENEW} writes it anew") from None
    if not good:
        raise EvidenceError(f"{file.name}: not a census baseline of {SCHEMA}; {RENEW} writes it anew")
    return record


def _named(name) -> str:
    operation, implementation, variant, gpu = name
    return f"{operation} {implementation} {variant} for {gpu}"
