"""Hardware counters through ``ncu``, in a process of their own: what bounds a kernel, never how long it takes.

Each row's call is made once between two markers under the tool, which replays every kernel for as many passes
as it needs; clocks are left alone and caches are left warm. Where the tool is missing, or the driver keeps the
counters to itself, the reason takes the counters' place.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mage import apart
from mage.evidence.schema import KernelCounters
from mage.experiment.shapes import Row

TIMEOUT_S = 150.0
STALLS = (
    "long_scoreboard", "short_scoreboard", "barrier", "math_pipe_throttle", "mio_throttle", "lg_throttle", "wait",
    "dispatch_stall", "not_selected", "no_instruction", "branch_resolve", "imc_miss", "drain", "membar",
)  # fmt: skip
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
METRICS = {
    "duration_us": "gpu__time_duration.sum",
    "occupancy_pct": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "dram_bytes": "dram__bytes.sum",
    "l2_bytes": "lts__t_bytes.sum",
    "issue_busy_pct": "sm__inst_issued.avg.pct_of_peak_sustained_active",
    "fma_pct": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
}
"""ncu's metric for each field; `ncu --query-metrics` says what they are."""


def tool() -> str | None:
    """Path of ncu, or None."""
    found = shutil.which("ncu")
    if found:
        return found
    places = [*Path("/opt/nvidia/nsight-compute").glob("*/ncu"), *Path("/usr/local").glob("cuda*/bin/ncu")]
    return str(sorted(places)[-1]) if places else None


def version() -> str | None:
    """What ncu says of its version, such as 2025.3.1.0; None where it is not installed or does not say."""
    ncu = tool()
    done = apart.run([ncu, "--version"], 30) if ncu else None
    found = re.search(r"Version (\S+)", done.said) if done else None
    return found[1] if found else None


def take(rows: Sequence[Row], timeout_s: float = TIMEOUT_S) -> tuple[list[KernelCounters], str | None]:
    """Counters of every kernel of one call of each row, or none and the reason."""
    ncu = tool()
    if ncu is None:
        return [], "ncu is not installed"
    wanted = [*METRICS.values(), *(_STALL.format(stall) for stall in STALLS)]
    for _ in range(3):
        output, reason = _run(ncu, rows, wanted, timeout_s)
        unknown = [name for name in wanted if re.search(rf"metrics?.*{re.escape(name)}", reason or "")]
        if not unknown:
            break
        wanted = [name for name in wanted if name not in unknown]  # this GPU has no counter of that name
    if reason:
        return [], reason
    found = parse(output, rows)
    return found, None if found else "ncu wrote no kernel"


def _run(ncu: str, rows: Sequence[Row], metrics: Sequence[str], timeout_s: float) -> tuple[str, str | None]:
    with tempfile.TemporaryDirectory() as folder:
        request, log = Path(folder) / "rows.json", Path(folder) / "counters.csv"
        request.write_text(json.dumps(rows), encoding="utf-8")
        command = [
            ncu, "--clock-control", "none", "--cache-control", "none", "--profile-from-start", "off",
            "--target-processes", "application-only", "--csv", "--page", "raw", "--print-units", "base",
            "--log-file", str(log), "--metrics", ",".join(metrics),
            *apart.module("mage.experiment.counters", str(request)),
        ]  # fmt: skip
        done = apart.run(command, timeout_s)
        if done.status is None:
            return "", f"ncu did not end within {timeout_s:.0f} s"
        written = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        errors = [line for line in (written + "\n" + done.said).splitlines() if line.startswith(("==ERROR==", "Failed"))]
        if errors:
            return "", "ncu: " + " ".join(line.removeprefix("==ERROR== ") for line in errors)[:400]
        if done.status:
            return "", f"ncu ended with status {done.status}: {done.last_line}"
        return written, None


def parse(text: str, rows: Sequence[Row]) -> list[KernelCounters]:
    """The raw page of ncu as CSV: a line of names, a line of units, one line a kernel; markers say whose it is."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    if len(lines) < 2:
        return []
    table = csv.DictReader(io.StringIO("\n".join(lines)))
    found: list[KernelCounters] = []
    row, number = None, 0
    for line in table:
        if not (line.get("ID") or "").strip():
            continue  # the units
        name, grid = line["Kernel Name"], _triple(line.get("Grid Size"))
        if name.startswith("mage_marker"):
            row, number = grid[0] - 1, 0
            continue
        if row is None or name.startswith("mage_"):
            continue
        values = {field: _number(line.get(metric)) for field, metric in METRICS.items()}
        stalls = {stall: _number(line.get(_STALL.format(stall))) for stall in STALLS}
        found.append(
            KernelCounters(
                row=rows[row].key,
                number=number,
                kernel=name,
                grid=grid,
                block=_triple(line.get("Block Size")),
                duration_us=values["duration_us"] and round(values["duration_us"] / 1e3, 3),  # base unit: ns
                occupancy_pct=_rounded(values["occupancy_pct"]),
                dram_bytes=_whole(values["dram_bytes"]),
                l2_bytes=_whole(values["l2_bytes"]),
                issue_busy_pct=_rounded(values["issue_busy_pct"]),
                fma_pct=_rounded(values["fma_pct"]),
                stalls={stall: round(value, 3) for stall, value in stalls.items() if value is not None and value >= 0.0005},
            )
        )
        number += 1
    return found


def _triple(text: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text or ""))


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


# -- under the tool ------------------------------------------------------------------------------------


def run(rows: Sequence[Row]) -> None:
    """Prepare and warm up every row, then make one call of each behind its marker, inside the profiled range."""
    import torch

    from mage import implementations, operations
    from mage.experiment.probe import Probe

    probe = Probe()
    calls = []
    with operations.strict_fp32():
        for row in rows:
            call = implementations.prepare(row.operation, row.implementation, row.variant, row.make_inputs("cuda"))
            for _ in range(3):
                call.run()
            calls.append(call)
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        for place, call in enumerate(calls):
            probe.marker(place, 0)
            call.run()
            torch.cuda.synchronize()
        torch.cuda.profiler.stop()


if __name__ == "__main__":
    run([Row(*one) for one in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))])
