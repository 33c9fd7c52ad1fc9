"""Counting what the GPU's own code does: a parser of disassembled SASS.

SASS is what runs. It is read as text, from cuobjdump or nvdisasm, and counted by space and width.
Nothing here knows which compiler wrote the code or needs a GPU.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

_LINE = re.compile(r"^\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?:(?P<predicate>@!?U?P\w+)\s+)?(?P<opcode>[A-Z][\w.]*)\s*(?P<operands>[^;]*);")
_FUNCTION = re.compile(r"^\s*Function : (\S+)|^\.text\.(\S+):")
_LABEL = re.compile(r"^(\.L_\w+):")
_TARGET = re.compile(r"`\((\.L_\w+)\)|\b0x([0-9a-f]+)\s*$")

# Tensor-core instructions by their first word. HFMA2.MMA is none of them: it is how some compilers load a constant.
TENSOR_CORE = ("HMMA", "HGMMA", "IMMA", "IGMMA", "BMMA", "BGMMA", "DMMA", "QMMA", "QGMMA", "OMMA", "UTCHMMA", "UTCQMMA", "UTCIMMA")

_SPACES = {
    "LDG": "global loads", "STG": "global stores", "LD": "generic loads", "ST": "generic stores",
    "LDS": "shared loads", "STS": "shared stores", "LDL": "local loads", "STL": "local stores",
    "LDGSTS": "cp.async",
}
_NAMED = {"FFMA": "FFMA", "FMUL": "FMUL", "FADD": "FADD", "MUFU": "MUFU", "SHFL": "shuffles", "BAR": "barriers"}
_BULK = ("UBLKCP", "UTMALDG", "UTMASTG", "UBLKRED")


class Instruction(NamedTuple):
    """One line of SASS: byte address, opcode with its modifiers, operands, branch target if it has one."""

    address: int
    opcode: str
    operands: str
    target: int | None

    @property
    def base(self) -> str:
        return self.opcode.split(".", 1)[0]

    @property
    def width(self) -> int:
        """Bits one thread moves, of a load or store: 32 where the opcode names no other width."""
        for part in self.opcode.split(".")[1:]:
            if part in ("8", "16", "64", "128", "256"):
                return int(part)
            if part in ("U8", "S8", "U16", "S16"):
                return int(part[1:])
        return 32


@dataclass(frozen=True)
class Loop:
    """A backward branch and what it spans, addresses in bytes."""

    start: int
    end: int
    body: tuple[Instruction, ...]


@dataclass(frozen=True)
class Code:
    """One kernel's instructions, in address order, without the padding behind the last."""

    name: str
    instructions: tuple[Instruction, ...]

    @property
    def code_bytes(self) -> int:
        """Bytes from the first instruction to the end of the last; every instruction takes 16."""
        return self.instructions[-1].address + 16 - self.instructions[0].address if self.instructions else 0

    def loops(self) -> list[Loop]:
        """Backward branches, outermost first among those that start together."""
        found = [
            Loop(i.target, i.address, tuple(j for j in self.instructions if i.target <= j.address <= i.address))
            for i in self.instructions
            if i.target is not None and i.target < i.address
        ]
        return sorted(found, key=lambda loop: (loop.start, -loop.end))

    def hottest_loop(self) -> Loop | None:
        """The loop with the most multiply-adds of its own, not counting those of loops inside it.

        Where no loop multiplies, the innermost with the most instructions. Static: trip counts are not
        known from code, so the loop that does the arithmetic is taken. A loop inside that only waits (a
        spin on a barrier) does not hide the loop around it.
        """
        loops = self.loops()

        def rank(loop: Loop) -> tuple[int, bool, int]:
            inside = [other for other in loops if other is not loop and loop.start <= other.start and other.end <= loop.end]
            own = [i for i in loop.body if not any(other.start <= i.address <= other.end for other in inside)]
            return multiply_adds(own), not inside, len(own)

        return max(loops, key=rank, default=None)


def parse(text: str) -> dict[str, Code]:
    """Kernels of a disassembly (``cuobjdump -sass`` or ``nvdisasm -c``), by name."""
    kernels: dict[str, list] = {}
    labels: dict[str, dict[str, int]] = {}
    pending: list[str] = []
    name = None
    for line in text.splitlines():
        if match := _FUNCTION.match(line):
            name = match[1] or match[2]
            kernels.setdefault(name, [])
            labels.setdefault(name, {})
        elif match := _LABEL.match(line):
            pending.append(match[1])
        elif name is not None and (match := _LINE.match(line)):
            address = int(match["address"], 16)
            labels[name].update(dict.fromkeys(pending, address))
            pending = []
            # `@!PT` is never executed: padding that an erratum or an assembler's habit asks for
            opcode = "NOP" if match["predicate"] == "@!PT" else match["opcode"]
            kernels[name].append((address, opcode, match["operands"].strip()))
    return {name: Code(name, _resolve(rows, labels[name])) for name, rows in kernels.items()}


def _resolve(rows: list[tuple[int, str, str]], labels: dict[str, int]) -> tuple[Instruction, ...]:
    out = []
    for address, opcode, operands in rows:
        target = None
        if opcode.split(".", 1)[0] == "BRA" and (match := _TARGET.search(operands)):
            target = labels.get(match[1]) if match[1] else int(match[2], 16)
            if target == address:  # the self-branch that guards the end of a kernel is padding
                target = None
                opcode = "NOP"
        out.append(Instruction(address, opcode, operands, target))
    while out and out[-1].opcode == "NOP":
        out.pop()
    return tuple(out)


def multiply_adds(instructions) -> int:
    """Multiply-adds that one thread executes in one pass: FFMA, or FMUL with FADD where they were not fused.

    Where products and sums were left apart, a pair counts as one multiply-add.
    """
    base = Counter(i.base for i in instructions)
    return base["FFMA"] + min(base["FMUL"], base["FADD"])


def count(instructions) -> dict[str, int]:
    """Instructions by what they do. Loads and stores are also split by width, ``shared loads 128``.

    ``shared words read`` adds the 32-bit words that shared loads move, one thread.
    """
    counts: Counter[str] = Counter()
    for i in instructions:
        counts["instructions"] += 1
        if space := _SPACES.get(i.base):
            counts[space] += 1
            counts[f"{space} {i.width}"] += 1
            if i.base == "LDS":
                counts["shared words read"] += max(1, i.width // 32)
        elif i.base in _NAMED:
            counts[_NAMED[i.base]] += 1
        elif i.base in _BULK:
            counts["bulk copies"] += 1
        elif i.base in TENSOR_CORE:
            counts["tensor-core"] += 1
            counts[i.base] += 1
    counts["multiply-adds"] = multiply_adds(instructions)
    return dict(counts)


def tensor_core(instructions) -> list[str]:
    """Opcodes that run on tensor cores; strict FP32 code has none."""
    return sorted({i.opcode for i in instructions if i.base in TENSOR_CORE})


def reads_per_multiply_add(instructions) -> tuple[float, float] | None:
    """Shared-memory reads of a multiply-add: (in 32-bit words, in instructions); None without multiply-adds."""
    counts = count(instructions)
    if not counts["multiply-adds"]:
        return None
    return tuple(counts.get(key, 0) / counts["multiply-adds"] for key in ("shared words read", "shared loads"))

