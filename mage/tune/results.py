"""What a search leaves: its record beside the ledger, and the tuned configurations of a GPU, each written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from mage import evidence, paths, tuned
from mage.errors import EvidenceError, RequestError
from mage.schema_search import SearchRun, name


def path(run: SearchRun) -> Path:
    """``outputs/tune/<device>/<operation>-<implementation>[-stage].json``, beside the ledger."""
    stage = [run.variant] if run.variant else []
    return paths.OUTPUTS / "tune" / tuned.slug(run.device) / f"{'-'.join([run.operation, run.implementation, *stage])}.json"


def write(run: SearchRun) -> Path:
    """Keep the record of a search for this machine's reports; the last one of a kernel counts."""
    file = path(run)
    _write(file, run.model_dump(mode="json", exclude_defaults=True))
    return file


def records(device_name: str) -> tuple[SearchRun, ...]:
    """The records of every search that was made on a device, by name. EvidenceError names a file that is none."""
    found = []
    for file in sorted((paths.OUTPUTS / "tune" / tuned.slug(device_name)).glob("*.json")):
        try:
            found.append(SearchRun.model_validate_json(file.read_bytes()))
        except (OSError, ValidationError) as error:
            first = str(error).splitlines()[0]
            raise EvidenceError(f"{paths.shown(file)}: no record of a search ({first}); tune again") from None
    return tuple(found)


def retain(runs: Sequence[SearchRun]) -> list[Path]:
    """Write what ``runs`` chose into the tuned configurations of their GPU; what was chosen for other kernels stays."""
    written = []
    for device in dict.fromkeys(run.device for run in runs):
        chosen = [run for run in runs if run.device == device and run.chosen is not None]
        if not chosen:
            continue
        entries = {**tuned.entries(device), **{name(run.operation, run.implementation, run.variant): _entry(run) for run in chosen}}
        file = tuned.path(device)
        record = {
            "schema": tuned.SCHEMA, "origin": "retained", "when": max(entry["when"] for entry in entries.values()),
            "device": device, "driver": chosen[-1].driver, "configurations": dict(sorted(entries.items())),
        }  # fmt: skip
        _write(file, record)
        written.append(file)
    return written


def _entry(run: SearchRun) -> dict:
    """One configuration as it is kept: what it was chosen for and by which times, µs (None: not timed)."""
    chosen, fixed, confirmed = run.measured(run.chosen), run.measured(run.fixed), run.confirmation
    won = confirmed.winner if confirmed and confirmed.winner.config == run.chosen else confirmed and confirmed.fixed
    return {
        "config": run.chosen,
        "fixed": run.fixed,
        "dims": list(run.dims),
        "kernel_file": run.kernel_file,
        "kernel_sha256": run.kernel_sha256,
        "when": run.when.isoformat(),
        "driver": run.driver,
        "versions": run.versions,
        "metric": confirmed.metric if confirmed else run.final_metric,
        "fixed_us": {"chosen": _us(fixed), "confirmed": _us(confirmed and confirmed.fixed)},
        "tuned_us": {"chosen": _us(chosen), "confirmed": _us(won)},
        "candidates": {state: run.count(state) for state in dict.fromkeys(one.state for one in run.candidates)},
        "why": run.why,
    }


def _us(measured) -> float | None:
    return round(measured.median_us, 3) if measured else None


def put_into(experiment: str, runs: Sequence[SearchRun]) -> Path:
    """Put the records of ``runs`` into the evidence of an experiment, in the place of earlier ones of the same kernels.

    RequestError for evidence of another device: searches are read beside the times of the device they were made on.
    """
    file = evidence.path(experiment)
    record = evidence.read(file)
    if record.origin == "published":
        raise RequestError(f"{experiment} is published evidence, which stays as it is; name an experiment of your own")
    if others := sorted({run.device for run in runs} - {record.device.name}):
        raise RequestError(f"{experiment} was measured on {record.device.name}, the search on {others[0]}")
    merged = {run.key: run for run in (*record.searches, *runs)}
    evidence.save(record.model_copy(update={"searches": tuple(merged.values())}), file)
    return file


def _write(file: Path, record: dict) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(evidence._layout(record) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise
