"""What a search has finished, on disk as it goes: one line of JSON a candidate, so that an interrupted search goes on.

A line is written whole, flushed and synchronised before the next candidate begins. The last line of a process that was
killed may be half there: it is no candidate, and is cut off before anything is appended.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from mage import paths
from mage.errors import MageError
from mage.kernels import tuned
from mage.tune.subject import Config, Subject, canonical

VERSION = 1
"""Part of every key: raised when what is timed, or how, changes."""


def path(subject: Subject, device: str) -> Path:
    """``outputs/tune/<device>/<operation>-<implementation>[-stage].jsonl``."""
    name = "-".join(filter(None, (subject.operation, subject.implementation, subject.stage)))
    return paths.OUTPUTS / "tune" / tuned.slug(device) / f"{name}.jsonl"


def key(subject: Subject, config: Config, facts: Mapping[str, object]) -> str:
    """Hash of all that a candidate's result depends on: text, configuration, shape, device and versions (``facts``)."""
    made = [VERSION, subject.name, subject.text_key, list(subject.dims), canonical(config), dict(facts)]
    return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()


class Ledger:
    """The finished candidates in ``file``, by key; ``add`` appends one."""

    def __init__(self, file: Path):
        self.file = file
        self.rows: dict[str, dict] = {}
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._handle = open(file, "a+b")  # noqa: SIM115, closed by close()
        except OSError as error:
            raise MageError(f"{paths.shown(file)}: cannot be written ({error.strerror}); mend the folder") from None
        self._handle.seek(0)
        content = self._handle.read()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) != len(content):
            self._handle.truncate(len(whole))
        for line in whole.splitlines():
            try:
                row = json.loads(line)
                self.rows[row["key"]] = row
            except (ValueError, KeyError, TypeError):
                continue  # a line that is no row says nothing

    def add(self, key: str, row: Mapping) -> None:
        """Keep ``row``; it is on the disk when this returns."""
        kept = {"key": key, **row}
        self.rows[key] = kept
        self._handle.write(json.dumps(kept, ensure_ascii=False).encode() + b"\n")
        self._handle.flush()
        os.fsync(self._handle.fileno())

    def close(self) -> None:
        self._handle.close()
