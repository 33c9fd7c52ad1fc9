"""What ``mage.explore`` does: gates, times and compiles, with every kernel file as it is now."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING

from mage import implementations, kernels, operations
from mage.errors import MageError, RequestError
from mage.explore.code_view import CodeView
from mage.gate import GateResult, gating
from mage.gate.gating import Case
from mage.implementations import CPU, GPU, HOST, INTERPRETER, Row
from mage.notes import vocabulary

if TYPE_CHECKING:
    import pandas as pd

    from mage.evidence.schema import Evidence

Dims = tuple[int, ...] | None
INTERPRETED_ELEMENTS = 2**16
"""Elements of an output up to which Triton's interpreter takes seconds."""


def gated(operation: str, names: Sequence[str], dims: Dims) -> list[GateResult]:
    """The gate of every variant of ``names``; what cannot run here says why."""
    known = operations.get(operation)
    dims = known.check_dims(dims)
    rows = [row for row in implementations.available(operation) if row.implementation in names and row.variant != vocabulary.SEARCHING]
    rows = [_without_long_builds(row, names) for row in rows]
    return [gating.check(_case(row, dims), row) for row in rows]


def _case(row: Row, dims: tuple[int, ...]) -> Case:
    """The asked shape, or a small one where the kernel is simulated and the shape is too large for that."""
    asked = Case(row.operation, dims)
    if row.where == INTERPRETER:
        return asked if prod(operations.get(row.operation).output_shape(dims)) <= INTERPRETED_ELEMENTS else gating.representative(row)
    return asked if row.where != HOST or gating.fits(asked, row) else gating.representative(row)


def _without_long_builds(row: Row, names: Sequence[str]) -> Row:
    if row.implementation != "pytorch-compiled" or row.where != CPU or len(names) == 1:
        return row
    return Row(row.operation, row.implementation, row.variant, None, False, "compiles for most of a minute: name it alone to run it")


def timed(operation: str, names: Sequence[str], dims: Dims, rounds: int | None) -> tuple[Evidence, list[tuple[Row, str]]]:
    """One small session of ``operation``, and the rows that have no time with the reason of each."""
    from mage.experiment import measurement

    dims = operations.get(operation).check_dims(dims)
    rows = [_without_long_builds(row, names) for row in implementations.available(operation) if row.implementation in names]
    wanted = tuple(dict.fromkeys(row.implementation for row in rows if row.where in (CPU, GPU)))
    if not wanted:
        raise RequestError(f"none of {', '.join(names)} can be timed on this machine: {_why(rows)}")
    asked = measurement.Asked(experiment="here", operations=(operation,), implementations=wanted)
    settings = {"dims": {operation: dims}, "pairs": 0, "searched": False}
    if rounds is not None:
        settings["rounds"] = rounds
    (record,) = measurement.measure([asked], counters=False, say=lambda line: None, **settings)
    measured = {(row.implementation, row.variant) for row in record.results}
    left_out = [(row, _no_time(row)) for row in rows if (row.implementation, row.variant) not in measured]
    return record, left_out


def _no_time(row: Row) -> str:
    if row.where in (HOST, INTERPRETER):
        return f"runs in {row.where} here, which shows whether it is right and has no time"
    if row.variant == vocabulary.SEARCHING:
        return "a search of minutes: make measure has it"
    return row.why_not or "not taken"


def _why(rows: Sequence[Row]) -> str:
    return "; ".join(dict.fromkeys(f"{row.implementation}: {_no_time(row)}" for row in rows))


def counted(operation: str, names: Sequence[str], gpu: str | Iterable[str] | None, dims: Dims) -> pd.DataFrame:
    """The census of ``operation`` for ``gpu``, made of the kernel files as they are now."""
    from mage.census import counting
    from mage.explore import COMPILED

    ours = [name for name in names if name in COMPILED]
    if not ours:
        raise RequestError(f"{', '.join(names)}: library code is not ours to count; choose among {', '.join(COMPILED)}")
    return counting.count_code(operation, ours, gpu or counting.ARCHS, dims=operations.get(operation).check_dims(dims))


def code(operation: str, implementation: str, variant: str | None, gpu: str | None, form: str, dims: Dims) -> CodeView:
    """Source and compiled text of one kernel, side by side."""
    from mage import explore
    from mage.census import offline
    from mage.cuda import cubins

    file = explore.file(operation, implementation)
    if form not in tuple(explore.Form):
        raise RequestError(f"form {form!r} is unknown: choose sass or ptx")
    known = implementations.variants(operation, implementation)
    if variant is None:
        variant = known[-1] if implementation == "cuda" else "fixed"
    if variant not in known:
        raise RequestError(f"{operation}: {implementation} has no variant {variant!r}; there is {', '.join(map(str, known))}")
    gpu = gpu or _at_hand()
    job = offline.Job(operation=operation, implementation=implementation, variant=variant, arch=gpu, dims=dims)
    compiled = offline.compile(job)
    if form == "ptx" and compiled.ptx is None:
        raise MageError(f"{implementation} shows no PTX: ask for form='sass'")
    text = ptx_text(compiled.ptx) if form == "ptx" else sass_text(cubins.cuobjdump("-sass", compiled.cubin), compiled.kernel)
    source = kernels.source(f"{implementation}/{operation}")
    shown = cuda_function(source, compiled.kernel) if implementation == "cuda" else python_function(source, compiled.kernel)
    return CodeView(
        kernel=compiled.kernel, file=file, source=shown.strip("\n"), text=text.strip("\n"), form=form, gpu=gpu, compiler=compiled.compiler
    )


def _at_hand() -> str:
    if implementations.default_device() != "cuda":
        return "sm_90"
    from mage import cuda

    return cuda.device_arch(0)


def cuda_function(source: str, kernel: str) -> str:
    """The text of ``kernel`` in a CUDA C++ file, then what it uses of that file, in the order there: above all the
    template whose body it is. Each with its comment, head and body; the whole file if the kernel is not found.
    """
    head = re.search(rf"^extern \"C\"[^;{{]*?\b{re.escape(kernel)}\(", source, re.MULTILINE)
    if not head:
        return source
    parts = {head.start(): _definition(source, head.start())}
    named, used = _definitions(source), [parts[head.start()]]
    while used:
        words = set(re.findall(r"\w+", re.sub(r"//[^\n]*", "", used.pop())))
        for name in words & named.keys():
            at = named.pop(name)
            parts[at] = _definition(source, at)
            used.append(parts[at])
    own = parts.pop(head.start())
    return "\n\n".join(part.strip("\n") for part in (own, *(parts[at] for at in sorted(parts))))


def _definitions(source: str) -> dict[str, int]:
    """Where the definition of each function and type of the file begins, templates among them, and of each constant."""
    what = r"(?:template ?<|(?:static |inline )*__device__|struct)[^;{]*?(?:(?<=struct )(\w+) \{|\b(?!__)(\w+)\()"
    heads = re.finditer(rf"^{what}|^(?:using|constexpr [\w ]+?) (\w+) =", source, re.MULTILINE)
    return {next(filter(None, head.groups())): head.start() for head in heads}


def _definition(source: str, start: int) -> str:
    """What is defined at ``start``, with the comment above it: to its closing brace, or to a semicolon outside of braces."""
    first, depth = start, 0
    before = source[:start].splitlines(keepends=True)
    while before and (before[-1].startswith("//") or not before[-1].strip()) and not before[-1].startswith("// ---"):
        first -= len(before.pop())
    for place in range(start, len(source)):
        depth += {"{": 1, "}": -1}.get(source[place], 0)
        if not depth and (source[place] == ";" or (source[place] == "}" and source[place + 1 : place + 2] != ";")):
            return source[first : place + 1]
    return source[first:]


def python_function(source: str, kernel: str) -> str:
    """The text of the function ``kernel`` in a Python kernel file, decorators included; the whole file if it is not there."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and (kernel == node.name or kernel.startswith(f"{node.name}_K")):  # cuTile mangles
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            return "\n".join(source.splitlines()[first - 1 : node.end_lineno])
    return source


def ptx_text(text: str) -> str:
    """PTX without what follows the kernel's last line: the names of the kernels after it."""
    return re.sub(r"(\n[ \t]*//[^\n]*|\s)+\Z", "", text)


def sass_text(disassembly: str, kernel: str) -> str:
    """The instructions of ``kernel`` out of ``cuobjdump -sass``, an address and an instruction a line."""
    lines, inside = [], False
    for line in disassembly.splitlines():
        if "Function :" in line:
            inside = line.split("Function :")[1].strip() == kernel
        elif inside and (found := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?;)", line)):
            lines.append(f"{found[1]}  {found[2]}")
    return "\n".join(lines)
