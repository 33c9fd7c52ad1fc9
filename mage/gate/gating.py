"""The shapes that every kernel is gated at, and the gate over all of them.

Beside the default shape of each operation: tile tails, widths on both sides of what a stage can take,
graphs with nothing in them or everything in one place, single elements. Where a kernel is simulated
(Triton's interpreter, CUDA C++ on the host) only shapes of a few blocks are taken.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from mage import gate, implementations, operations
from mage.gate import GateResult, defects
from mage.implementations import HOST, INTERPRETER, Row
from mage.kernels import cuda_stages

MOST_THREADS = 8 * 256
"""Of a launch on the host, where each is a thread of the operating system."""


@dataclass(frozen=True)
class Case:
    """One shape, and for neighbor one kind of graph. ``simulated``: small enough for the interpreter and the host."""

    operation: str
    dims: tuple[int, ...]
    name: str | None = None
    make_inputs: Callable | None = field(default=None, compare=False)
    simulated: bool = True

    def __str__(self) -> str:
        return f"{self.operation} {'×'.join(map(str, self.dims))}" + (f" ({self.name})" if self.name else "")


def _graph(edges: Callable):
    """make_inputs of neighbor with the graph that ``edges(nodes, src)`` -> (src, dst) draws."""

    def make(dims, seed=operations.SEED, std=operations.STD, mean=0.0):
        inputs = operations.get("neighbor").make_inputs(dims, seed, std, mean)
        src, dst = edges(dims[0], inputs["src"].long())
        inputs["row_ptr"], inputs["src"] = operations.csr(src, dst, dims[0])
        return inputs

    return make


def _one_row(nodes, src):
    return src, src.new_full(src.shape, nodes // 2)


def _duplicates(nodes, src):
    # every edge three times and more: nodes 0, 1 and 2 send to node 1 only
    src = src % min(3, nodes)
    return src, src.new_full(src.shape, min(1, nodes - 1))


def _every_other_row(nodes, src):
    dst = src.flip(0)
    return src, dst - dst % 2


CASES: tuple[Case, ...] = (
    Case("matmul", (1024, 1024, 1024), simulated=False),
    Case("matmul", (17, 19, 23), "tile tails"),
    Case("matmul", (64, 128, 96), "whole tiles"),
    Case("matmul", (64, 64, 192), "whole tiles"),
    Case("matmul", (64, 128, 64), "whole tiles of the largest blocks"),
    Case("matmul", (17, 20, 40), "tails with rows of whole quads"),
    Case("matmul", (64, 128, 256), "few tiles"),
    Case("matmul", (512, 512, 512), "few tiles", simulated=False),
    Case("matmul", (64, 1024, 4096), "few tiles, long K", simulated=False),
    Case("matmul", (1000, 1000, 1000), "tails with rows of whole quads", simulated=False),
    Case("matmul", (1024, 768, 64), "tiles of 64 × 96", simulated=False),
    Case("matmul", (1536, 1536, 64), "tiles of 192 × 96", simulated=False),
    Case("matmul", (2048, 2048, 64), "tiles of 128 × 256", simulated=False),
    Case("matmul", (1, 1, 1), "single element"),
    Case("gelu", (4096, 768), simulated=False),
    Case("gelu", (3, 257), "tail"),
    Case("gelu", (4, 772), "whole and last block of quads"),
    Case("gelu", (5, 768), "less than a block of rows"),
    Case("gelu", (13, 768), "whole and last block of rows"),
    Case("gelu", (16384, 768), "more than a cache", simulated=False),
    Case("gelu", (1, 1), "single element"),
    Case("layernorm", (4096, 768), simulated=False),
    *(Case("layernorm", (3, width)) for width in (252, 257, 1, 4, 128, 768, 1024, 2048, 4096, 8192)),
    Case("layernorm", (1, 1), "single element"),
    Case("triangle", (128, 32), simulated=False),
    Case("triangle", (17, 3), "tile tails"),
    Case("triangle", (130, 5), "tile tails", simulated=False),
    Case("triangle", (1, 32)),
    Case("triangle", (32, 32), "whole tiles"),
    Case("triangle", (64, 32), "few tiles", simulated=False),
    Case("triangle", (256, 32), "many tiles", simulated=False),
    Case("triangle", (1, 1), "single element"),
    Case("neighbor", (4096, 64, 65536), simulated=False),
    Case("neighbor", (13, 8, 40)),
    Case("neighbor", (9, 70, 50), "features past a block"),
    Case("neighbor", (11, 8, 0), "no edges"),
    Case("neighbor", (7, 12, 45), "all edges in one row", _graph(_one_row)),
    Case("neighbor", (5, 68, 200), "one long row", _graph(_one_row)),
    Case("neighbor", (5, 68, 900), "one very long row", _graph(_one_row)),
    Case("neighbor", (7, 12, 20), "duplicate edges", _graph(_duplicates)),
    Case("neighbor", (10, 5, 24), "empty rows", _graph(_every_other_row)),
    Case("neighbor", (1, 1, 1), "single element"),
)


def small(operation: str) -> Case:
    """The first case of an operation that every implementation can take anywhere."""
    return next(case for case in CASES if case.operation == operation and case.simulated)


def fits(case: Case, row: Row, every_compiled: bool = False) -> bool:
    """Whether this implementation is gated at this case where it runs: simulated kernels take few blocks only,
    and torch.compile, which compiles for seconds at each shape, the small and on a GPU the default one unless
    ``every_compiled``."""
    if row.where == INTERPRETER:
        return case.simulated
    if row.where == HOST:
        stage = cuda_stages.choose(case.operation, row.variant, case.dims).stage
        return case.simulated and prod(stage.grid(case.dims)) * stage.threads <= MOST_THREADS
    if row.implementation == "pytorch-compiled" and not every_compiled:
        default = case.dims == operations.get(case.operation).default_dims and row.where == implementations.GPU
        return default or case == small(case.operation)
    return True


def representative(row: Row) -> Case:
    """One shape to gate an implementation at, small where it is simulated: one that a CUDA C++ stage takes itself,
    not through its fallback, if there is any."""
    if row.implementation == "cuda" and row.where in (HOST, implementations.GPU):
        for case in (case for case in CASES if case.operation == row.operation):
            if fits(case, row) and _takes(row, case):
                return case
    if row.where in (HOST, INTERPRETER):
        return small(row.operation)
    return next(case for case in CASES if case.operation == row.operation)


def _takes(row: Row, case: Case) -> bool:
    """Whether the stage computes this case itself; some stages say so only once they have seen the inputs."""
    if cuda_stages.choose(row.operation, row.variant, case.dims).stage.name != row.variant:
        return False
    make = case.make_inputs or operations.get(row.operation).make_inputs
    return cuda_stages.choose(row.operation, row.variant, case.dims, make(case.dims)).stage.name == row.variant


def here(
    names: Iterable[str] | None = None, implementation_names: Iterable[str] | None = None, device: str | None = None
) -> list[GateResult]:
    """The gate of every implementation and stage on this machine; what it found of the very same code is kept (``mage.gate.gated``)."""
    from mage.gate import gated

    return gated.here(names, implementation_names, device)


def refused_defects(device: str | None = None) -> dict[str, GateResult]:
    """``check_defects``; what the very same code answered is kept (``mage.gate.gated``)."""
    from mage.gate import gated

    return gated.defects(device)


def check_here(
    names: Iterable[str] | None = None, implementation_names: Iterable[str] | None = None, device: str | None = None
) -> list[GateResult]:
    """Gate every implementation and stage on this machine, each at one shape; what cannot run says why.

    ``torch.compile`` on a CPU takes up to a minute to build and is left to the test suite.
    """
    device = device or implementations.default_device()
    rows = []
    for name in names or operations.names():
        for row in implementations.available(name, device):
            if implementation_names is not None and row.implementation not in implementation_names:
                continue
            if row.implementation == "pytorch-compiled" and row.where == implementations.CPU:
                row = Row(name, row.implementation, row.variant, None, False, "takes a minute to build: gated by the test suite")
            rows.append(row)
    # A host launch is a process of its own, most of whose time is not ours: several at once.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        launched = {row: pool.submit(check, representative(row), row, device) for row in rows if row.where == HOST}
        others = {row: check(representative(row), row, device) for row in rows if row not in launched}
        return [others[row] if row in others else launched[row].result() for row in rows]


def check(case: Case, row: Row, device: str | None = None, **options) -> GateResult:
    """Gate one implementation at one case; "not checked on this machine" with the reason where it cannot run."""
    if not row.can_run:
        result = GateResult(case.operation, row.implementation, row.variant, list(case.dims), gate.NOT_CHECKED, row.why_not, case=case.name)
        gate.strict_fp32(result, device or implementations.default_device())
        return result
    return gate.check(
        case.operation, row.implementation, row.variant, case.dims, device,
        make_inputs=case.make_inputs, case=case.name, **options,
    )  # fmt: skip


def pairs(device: str | None = None, only: Iterable[str] | None = None, every_compiled: bool = False) -> Iterator[tuple[Case, Row]]:
    """Every (case, implementation) that makes sense on ``device``; one row a variant for those that cannot run."""
    for name in operations.names():
        if only is not None and name not in only:
            continue
        cases = [case for case in CASES if case.operation == name]
        for row in implementations.available(name, device):
            taken = [case for case in cases if fits(case, row, every_compiled)] if row.can_run else cases[:1]
            yield from ((case, row) for case in taken)


def run_all(
    device: str | None = None,
    *,
    only: Iterable[str] | None = None,
    every_compiled: bool = False,
    fence: bool = True,
    show: bool = True,
    file: str | Path | None = None,
) -> list[GateResult]:
    """Gate every operation × implementation × variant × shape that this machine can, in that order.

    ``only``: names of operations. ``every_compiled``: torch.compile at every shape, which takes minutes.
    ``fence``: see ``gate.check``; leave it out under a memory checker. ``show`` prints a line each and a
    summary. ``file`` receives the results as JSON.
    """
    device = device or implementations.default_device()
    results = []
    began = time.perf_counter()
    for case, row in pairs(device, only, every_compiled):
        results.append(check(case, row, device, fence=fence))
        if show:
            print(line(results[-1]), flush=True)
    if file is not None:
        Path(file).write_text(json.dumps([result.as_dict() for result in results], ensure_ascii=False, indent=1) + "\n")
    if show:
        print(f"{summary(results)}; {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return results


def line(result: GateResult) -> str:
    """One result as a line for a terminal."""
    who = result.implementation + (f" {result.variant}" if result.variant else "")
    shape = "×".join(map(str, result.dims)) + (f" ({result.case})" if result.case else "")
    told = [f"{result.operation:<9} {who:<42} {shape:<38} {result.passed}"]
    if result.where:
        told.append(f"on {result.where}")
    if result.which and result.implementation == "cuda" and result.which != f"{result.operation}_{result.variant}":
        told.append(f"ran {result.which}")
    if result.max_abs_err is not None:
        told.append(f"max error {result.max_abs_err:.1e}")
    if result.fp64_ratio is not None:
        told.append(f"FP64 ratio {result.fp64_ratio:.1e}")
    told += [f"mean {mean}: {verdict}" for mean, verdict in result.means.items() if verdict != gate.PASSED]
    if result.reason:
        told.append(result.reason)
    return ", ".join(told)


def summary(results: list[GateResult]) -> str:
    """How many of each verdict."""
    counts = {verdict: sum(r.passed == verdict for r in results) for verdict in (gate.PASSED, gate.FAILED, gate.NOT_CHECKED)}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


def check_defects(device: str | None = None) -> dict[str, GateResult]:
    """Gate our kernels with each published defect put into them, at a shape of three K tiles: all have to fail.

    By name of ``mage.gate.defects.DEFECTS``; ``note`` says what each stands for. Runs on a GPU, else on the host, else says
    that nothing was checked.
    """
    results = {}
    for name, defect in defects.DEFECTS.items():
        row = next(
            row
            for row in implementations.available(defect.operation, device)
            if (row.implementation, row.variant) == ("cuda", defect.stage)
        )
        case = Case(defect.operation, (64, 64, 96), name)
        results[name] = check(case, row, device, source=defects.source(name))
        results[name].note = defect.stands_for
    return results
