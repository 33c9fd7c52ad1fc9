"""Which reports no longer say what a run would say today, and why: by the content of what they rest on, not by times."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from mage import notes, paths, provenance
from mage.notebook import locks, publication

SHOWN = 6


@dataclass(frozen=True, kw_only=True)
class Status:
    """One experiment's report, as it stands."""

    experiment: str
    note: str
    """The notebook's stem; empty when nothing names one."""
    state: str
    """``fresh``, ``stale``, ``failed`` (the last run did), ``broken`` (files that do not belong together), ``none``."""
    reasons: tuple[str, ...] = ()
    record: dict | None = None
    """The provenance of the last good report."""

    @property
    def few_reasons(self) -> tuple[str, ...]:
        """The reasons, of which those after the sixth are counted: one change to the library can touch half of it."""
        more = len(self.reasons) - SHOWN
        return self.reasons if more <= 1 else (*self.reasons[:SHOWN], f"and {more} more files")

    @property
    def command(self) -> str:
        """What brings the report up to date."""
        return (self.record or {}).get("command") or f"make {self.note[:8]} EXPERIMENT={self.experiment}"


def statuses() -> list[Status]:
    """The state of every experiment that has a params file or a report, in the order of note and experiment."""
    planned = {file.stem: notes.named_note(file) or "" for file in notes.params_files()}
    left = {file.parent.name for name in (*publication.FILES, "failed.txt") for file in paths.OUTPUTS.glob(f"*/{name}")}
    hashes: dict[Path, str | None] = {}
    found = [_status(experiment, planned.get(experiment), hashes) for experiment in sorted({*planned, *left})]
    return sorted(found, key=lambda one: (one.note, one.experiment))


def _status(experiment: str, planned: str | None, hashes: dict[Path, str | None]) -> Status:
    folder = paths.OUTPUTS / experiment
    record = _record(folder / "provenance.json")
    note = planned or (record or {}).get("note", "")
    failed = folder / "failed.txt"
    if failed.is_file():
        said = failed.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
        changes = _changes(record, hashes) if record else []
        return Status(experiment=experiment, note=note, state="failed", reasons=(said, *changes), record=record)
    if record is None:
        broken = any((folder / name).exists() for name in publication.FILES)
        reasons = ("provenance.json is missing or unreadable",) if broken else ()
        return Status(experiment=experiment, note=note, state="broken" if broken else "none", reasons=reasons)
    torn = [name for name, sha in record.get("files", {}).items() if _hash(folder / name, hashes) != sha]
    if torn:
        reasons = tuple(f"{name} is not the one that provenance.json describes" for name in torn)
        return Status(experiment=experiment, note=note, state="broken", reasons=reasons, record=record)
    changes = tuple(_changes(record, hashes))
    return Status(experiment=experiment, note=note, state="stale" if changes else "fresh", reasons=changes, record=record)


def _changes(record: dict, hashes: dict[Path, str | None]) -> list[str]:
    """What a report rests on and is no longer as it was, each with what happened to it."""
    about = record.get("hashes", {})
    rests_on = [
        (paths.NOTEBOOKS / f"{record.get('note')}.ipynb", about.get("note")),
        (paths.ROOT / record.get("params_file", ""), about.get("params")),
        *((paths.ROOT / one["path"], one["sha256"]) for one in record.get("evidence", {}).values()),
    ]
    library = {**about.get("library", {}), **record.get("page", {})}
    for kind, used in (("kernels", about.get("kernels")), ("library", library), ("files", about.get("files"))):
        rests_on += [(provenance.located(kind, name), sha) for name, sha in (used or {}).items()]
    changes = []
    for path, sha in rests_on:
        now = _hash(path, hashes)
        if now != sha:
            shown = path.relative_to(paths.PACKAGE.parent) if path.is_relative_to(paths.PACKAGE) else paths.shown(path)
            changes.append(f"{shown} {'changed' if now else 'is gone'}")
    return changes


def _hash(path: Path, hashes: dict[Path, str | None]) -> str | None:
    if path not in hashes:
        try:
            hashes[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError:
            hashes[path] = None
    return hashes[path]


def _record(path: Path) -> dict | None:
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and record.get("schema") == provenance.SCHEMA else None


def write_index() -> Path:
    """Write outputs/index.html, the list of all reports with their state. Raises OSError."""
    from mage import report

    index = paths.OUTPUTS / "index.html"
    with locks.index():
        rows = [_row(status, report.IndexRow) for status in statuses() if status.state != "none"]
        publication.replace(index, report.index(rows).encode())
    return index


def _row(status: Status, row: type):
    record = status.record or {}
    own = record.get("evidence", {}).get(record.get("about") or status.experiment, {})
    device = own.get("device") or record.get("device") or {}
    there = (paths.OUTPUTS / status.experiment / "report.html").is_file()
    return row(
        note=status.note,
        title=record.get("title") or notes.title_of(paths.NOTEBOOKS / f"{status.note}.ipynb"),
        experiment=status.experiment,
        origin=record.get("origin", ""),
        device=device.get("name", "") if isinstance(device, dict) else str(device),
        when=own.get("when") or record.get("finished", ""),
        state="stale" if status.state == "broken" else status.state,
        reasons=status.few_reasons,
        href=f"{status.experiment}/report.html" if there else None,
    )
