"""Runs one note: lock, execute, verify, say what was used, render, publish.

The last good report stays as it is until the next one is complete. A run that fails leaves its reason and the notebook
as far as it came beside it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from mage import paths, provenance
from mage.errors import MageError, NoteFailed
from mage.experiment import at_hand, together
from mage.notebook import locks, progress, publication, stale
from mage.notebook.stop import Stop
from mage.notebook.verify import Verified, verify
from mage.notes.params import Request

if TYPE_CHECKING:
    from mage.notebook.execute import Session

_LEFT_OUT: set[str] = set()
"""Modules of the runner that have no part in what a page looks like."""


def run_all(requests: Sequence[Request], stop: Stop) -> int:
    """Run each of ``requests``, one after another. Returns the exit code: that of the first one that went wrong.

    What went wrong with one is printed and does not keep the others from running.
    """
    # No path of a run comes from where the caller stands, and a folder that is gone must not matter.
    os.chdir(paths.ROOT)
    code = 0
    together.begin(request.experiment for request in requests)
    for request in requests:
        try:
            report = run(request, stop)
        except MageError as error:
            print(f"mage: {request.experiment}, {request.note.stem}: {error}", file=sys.stderr, flush=True)
            code = code or error.exit_code
        else:
            progress.say(f"{report}")
    return code


def run(request: Request, stop: Stop) -> Path:
    """Run one note and publish its report; returns where it lies.

    Raises BusyError when the output or the device is held, NoteFailed when the note did not come to a report that may
    be shown; the last good report is then byte for byte what it was.
    """
    folder = paths.OUTPUTS / request.experiment
    work = paths.OUTPUTS / ".work" / request.experiment
    with locks.output(request.experiment), _device(request):
        publication.recover(folder)
        shutil.rmtree(work, ignore_errors=True)  # of a run that was killed
        session = None
        try:
            work.mkdir(parents=True)
            session = _session(request, work, stop)
            _execute_and_publish(request, session, folder, stop)
        except Exception as error:
            reason = _reason(error)
            _leave_failed(folder, session, request, reason)
            with contextlib.suppress(OSError, MageError):
                stale.write_index()
            raise NoteFailed(reason) from error
        finally:
            shutil.rmtree(work, ignore_errors=True)
        try:
            stale.write_index()
        except (OSError, MageError) as error:
            raise NoteFailed(f"the report is there, its list is not: {_reason(error)}") from error
    return folder / "report.html"


def _execute_and_publish(request: Request, session: Session, folder: Path, stop: Stop) -> None:
    from mage.notebook.execute import quiet

    started = _now()
    with quiet():
        session.run()
        verified = verify(session.notebook, request.note)
        record = _record(request, session, started)
        page = render(verified, record)
    stop.check()
    _tidy(verified)
    import nbformat

    files = {
        "notebook.ipynb": nbformat.writes(verified.notebook).encode() + b"\n",
        "report.html": page.encode(),
    }
    record["page"] = _page_files()
    record["files"] = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files["provenance.json"] = (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode()
    with stop.acting(lambda: None):
        publication.publish(folder, files)


def render(verified: Verified, record: dict) -> str:
    """The report of a notebook that was verified. Raises NoteFailed when the page is not fit to be shown."""
    if not isinstance(verified, Verified):
        raise TypeError("only a verified notebook is rendered; see mage.notebook.verify.verify")
    if not _LEFT_OUT:
        provenance.record_imports()
        _LEFT_OUT.update(provenance.used)
    from mage import report

    page = report.render(verified.notebook, record)
    for template in sorted(report.TEMPLATES.rglob("*.*")):
        provenance.note_use(template)
    problems = report.check(page)
    if problems:
        raise NoteFailed(f"the page is not fit to be shown: {problems[0]}")
    return page


def _page_files() -> dict[str, str]:
    """Hash of each module and template that made the page, by name: the part of the library that no kernel loads."""
    return provenance.classify({name: sha for name, sha in provenance.used.items() if name not in _LEFT_OUT})["library"]


def _record(request: Request, session: Session, started: str) -> dict:
    """What the report rests on, as the kernel said and as the note and params were read."""
    used = provenance.classify(session.used)
    evidence = provenance.evidence_facts(used["evidence"])
    return {
        "schema": provenance.SCHEMA,
        "note": request.note.stem,
        "title": request.note.title,
        "experiment": request.experiment,
        "params": request.values,
        "params_file": str(request.params.path.relative_to(paths.ROOT)),
        "about": request.about,
        "origin": evidence.get(request.about, {}).get("origin") or "here",
        "evidence": evidence,
        "hashes": {
            "note": request.note.sha256,
            "params": hashlib.sha256(request.params.content).hexdigest(),
            "library": used["library"],
            "kernels": used["kernels"],
            "files": used["files"],
        },
        "git": provenance.git_state(),
        "versions": session.versions,
        "device": provenance.machine(),
        "started": started,
        "finished": _now(),
        "command": request.command,
    }


def _tidy(verified: Verified) -> None:
    """Take out of the notebook what only says when and where it was executed: provenance has that."""
    verified.notebook.metadata.pop("papermill", None)
    for cell in verified.notebook.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)


def _session(request: Request, work: Path, stop: Stop) -> Session:
    label = f"{request.note.stem} {request.experiment}"
    total = sum(cell.get("cell_type") == "code" for cell in request.note.cells)
    from mage.notebook.execute import Session

    return Session(request, work, stop, progress.start(label, total))


def _leave_failed(folder: Path, session: Session | None, request: Request, reason: str) -> None:
    """Put the reason, and the notebook as far as it came, beside the last good report, where that can be written."""
    said = [reason, "", f"{request.note.stem}, {request.experiment}, at {_now()}", f"run again: {request.command}"]
    with contextlib.suppress(OSError):
        if session is not None and session.notebook is not None:
            import nbformat

            publication.replace(folder / "failed.ipynb", nbformat.writes(session.notebook).encode() + b"\n")
            with contextlib.suppress(OSError):
                log = session.log.read_text(errors="replace").strip()
                said += ["", "what the kernel's process wrote:", log] if log else []
        publication.replace(folder / "failed.txt", ("\n".join(said) + "\n").encode())


def _device(request: Request) -> contextlib.AbstractContextManager:
    """The device's lock for a note that measures, by its metadata or because its experiment is this machine's GPU.

    One that only reads evidence takes no device.
    """
    on_gpu = at_hand.is_here(request.experiment) and provenance.machine()["kind"] == "gpu"
    return locks.device() if on_gpu or request.note.metadata.get("device") else contextlib.nullcontext()


def _reason(error: Exception) -> str:
    """One line for what ended a run."""
    if isinstance(error, MageError):
        return str(error)
    if isinstance(error, OSError):
        where = f"{paths.shown(Path(str(error.filename)))}: " if error.filename else ""
        return f"{where}{error.strerror or error}; make room or mend the folder, then run again"
    said = " ".join(str(error).split())[:300]
    return f"an error of the runner's own, {type(error).__name__}: {said}; MAGE_DEBUG=1 shows where"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
