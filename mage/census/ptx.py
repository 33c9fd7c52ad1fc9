"""Reading PTX, what a front end hands to the assembler: counts, and how often a kernel goes over an input.

The assembler may still drop, merge and move what stands here; ``mage.census.sass`` counts what it made of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

_STATEMENT = re.compile(r"^\s*(?:@!?%?\w+\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<operands>[^;]*);")
_ENTRY = re.compile(r"^\s*(?:\.visible\s+|\.weak\s+)?\.entry\s+(\w+)|^\s*(?:\.visible\s+|\.weak\s+)?\.func\b", re.MULTILINE)
_TYPE = re.compile(r"\.(?:v(?P<vector>[248])\.)?[bufs](?P<bits>8|16|32|64|128)\b")
_SPACES = {"global": "global", "shared": "shared", "shared::cta": "shared", "local": "local", "param": "param"}
_REGISTER = re.compile(r"%\w+")


class Statement(NamedTuple):
    """One instruction: its opcode with modifiers, and its operands as text."""

    opcode: str
    operands: str

    @property
    def base(self) -> str:
        return self.opcode.split(".", 1)[0]

    @property
    def space(self) -> str:
        """Memory that a load or store goes to; ``generic`` where the opcode names none."""
        return next((_SPACES[part] for part in self.opcode.split(".")[1:] if part in _SPACES), "generic")


def kernels(text: str) -> dict[str, str]:
    """The text of each kernel of a module, by name."""
    starts = list(_ENTRY.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)]
    return {match[1]: text[match.start() : end] for match, end in zip(starts, ends, strict=True) if match[1]}


def statements(text: str) -> Iterator[Statement]:
    """Instructions in the order they are written, comments and directives left out."""
    for line in text.splitlines():
        if match := _STATEMENT.match(line.split("//", 1)[0].lstrip("{ \t")):
            yield Statement(match["opcode"], match["operands"].strip())


def count(text: str) -> dict[str, int]:
    """Instructions by what they do; loads and stores by space, and by width as ``global loads 4x32``.

    ``1x32`` is a scalar 32-bit access, ``4x32`` a vector of four: 128 bits.
    """
    counts: Counter[str] = Counter()
    for statement in statements(text):
        opcode = statement.opcode
        if statement.base in ("ld", "st"):
            if statement.space == "param":
                continue
            kind = f"{statement.space} {'loads' if statement.base == 'ld' else 'stores'}"
            counts[kind] += 1
            if width := _TYPE.search(opcode):
                counts[f"{kind} {width['vector'] or 1}x{width['bits']}"] += 1
        elif statement.base in ("bar", "barrier"):
            counts["barriers"] += 1
        elif statement.base == "shfl":
            counts["shuffles"] += 1
        elif opcode.startswith(("cp.async.ca", "cp.async.cg")):
            counts["cp.async"] += 1
        elif opcode.startswith(("fma.rn.f32", "fma.rn.ftz.f32")):
            counts["fma"] += 1
        elif opcode.startswith(("mma.", "wgmma.mma")):
            counts["tensor-core"] += 1
    return dict(counts)


def passes(text: str, parameter: int) -> int:
    """How often a kernel goes over the memory behind its pointer ``parameter`` (a place, from 0).

    Loads belong to one pass until the threads of a block exchange something (a shuffle or a barrier): what is loaded
    after that is loaded again, or at least later. The kernel is taken in the order it is written, so this is for
    kernels that exchange between passes, not for those that exchange inside a loop over their input.
    """
    code = list(statements(text))
    pointers = _derived(code, parameter)
    found, exchanged = 0, True
    for statement in code:
        if statement.base in ("shfl", "bar", "barrier"):
            exchanged = True
        elif statement.base == "ld" and statement.space == "global" and pointers & _registers(_address(statement)):
            found += exchanged
            exchanged = False
    return found


def _derived(code: list[Statement], parameter: int) -> set[str]:
    """Registers that hold an address computed from the pointer ``parameter``."""
    pointers: set[str] = set()
    name = re.compile(rf"_param_{parameter}\b")
    while True:
        before = len(pointers)
        for statement in code:
            target, _, sources = statement.operands.partition(",")
            if statement.base == "ld":
                # what is loaded from memory is data, not an address into it
                if statement.space == "param" and name.search(sources):
                    pointers.add(target.strip())
            elif statement.base not in ("st", "bra", "setp", "bar", "shfl") and pointers & _registers(sources):
                pointers.add(target.strip())
        if len(pointers) == before:
            return pointers


def _address(statement: Statement) -> str:
    return statement.operands.rpartition("[")[2]


def _registers(text: str) -> set[str]:
    return set(_REGISTER.findall(text))
