"""What a search leaves: its record beside the ledger, and the tuned configurations of a GPU, each written whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from mage import evidence, operations, paths, timers
from mage.errors import EvidenceError
from mage.evidence import searched
from mage.evidence.schema import VERSION, Evidence
from mage.evidence.schema_search import SearchRun, name
from mage.kernels import tuned
from mage.notes import vocabulary

CITATION = "measured by this project: every candidate of `python -m mage tune`, which chose the tuned configurations"


def path(run: SearchRun) -> Path:
    """``outputs/tune/<device>/<operation>-<implementation>[-stage].json``, beside the ledger."""
    stage = [run.variant] if run.variant else []
    return paths.OUTPUTS / "tune" / tuned.slug(run.device) / f"{'-'.join([run.operation, run.implementation, *stage])}.json"


def write(run: SearchRun) -> Path:
    """Keep the record of a search for this machine's reports; the last one of a kernel counts."""
    file = path(run)
    paths.write_whole(file, evidence.laid_out(run.model_dump(mode="json", exclude_defaults=True)), lasting=True)
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
    """Write what searches chose into the tuned configurations of their GPU; what was chosen for other kernels stays.

    A sweep chooses nothing: it shows what given configurations take.
    """
    written = []
    for device in dict.fromkeys(run.device for run in runs):
        chosen = [run for run in runs if run.device == device and run.chosen is not None and run.kind == "search"]
        if not chosen:
            continue
        entries = {**tuned.entries(device), **{name(run.operation, run.implementation, run.variant): _entry(run) for run in chosen}}
        file = tuned.path(device)
        record = {
            "schema": tuned.SCHEMA, "origin": "retained", "when": max(entry["when"] for entry in entries.values()),
            "device": device, "driver": chosen[-1].driver, "configurations": dict(sorted(entries.items())),
        }  # fmt: skip
        paths.write_whole(file, evidence.laid_out(record), lasting=True)
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


def keep(runs: Sequence[SearchRun]) -> list[Path]:
    """Put the records of ``runs`` into the retained searches of their GPU (``mage.evidence.searched``), one file a GPU.

    A record takes the place of the earlier one of the same kernel and kind; those of other kernels stay.
    """
    written = []
    for device in dict.fromkeys(run.device for run in runs):
        before = searched.of(device)
        mine = {run.key: run for run in runs if run.device == device}
        merged = tuple({**{run.key: run for run in (before.searches if before else ())}, **mine}.values())
        record = _evidence(before.experiment if before else searched.experiment(device), merged)
        file = paths.RETAINED / record.experiment / evidence.NAME
        evidence.save(record, file)
        written.append(file)
    return written


def _evidence(experiment: str, runs: tuple[SearchRun, ...]) -> Evidence:
    last = max(runs, key=lambda run: run.when)
    return Evidence.model_validate(
        {
            "schema": VERSION,
            "experiment": experiment,
            "origin": "retained",
            "when": last.when.replace(microsecond=0),
            "device": {"kind": "gpu", "name": last.device, "arch": last.arch, "driver": last.driver},
            "software": last.versions,
            "source": {"citation": CITATION, "files": {run.kernel_file: run.kernel_sha256 for run in runs}},
            "inputs": {"seed": last.seed, "std": operations.STD, "distribution": vocabulary.DRAWN},
            "method": {
                "rounds": max((len(one.rounds_us) for run in runs for one in run.runoff), default=0),
                "iterations": max((len(one.rounds_us[0]) for run in runs for one in run.runoff), default=0),
                "warmup": timers.WARMUP,
                "order": "candidates one at a time, those of the run-off in turn",
                "rtol": operations.Operation.rtol,
                "atol": operations.Operation.atol,
                "tf32": False,
                "span_statistic": "samples",
                "kernel_statistic": "samples",
                "instruments": {"span_us": last.metric, "kernel_us": last.final_metric},
            },
            "results": [],
            "searches": runs,
        }
    )
