"""What a report says first: where its numbers come from, and how to get them again.

Turns a provenance record (see ``mage.provenance``) into the words and rows of the box at the top of the
page. Only ``Box.run`` holds the time of the run, so two reports of equal inputs differ there alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mage.notes import Parameter

ORIGINS = ("published", "retained", "here")
SHORT_HASH = 12
NOT_RECORDED = "not recorded"
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July",
    "August", "September", "October", "November", "December",
)  # fmt: skip

# What of a device stays the same from run to run, and how a reader calls it. Clock readings do not belong here.
DEVICE_FACTS = {
    "name": "Device",
    "arch": "Architecture",
    "driver": "Driver",
    "cuda": "CUDA",
    "platform": "Platform",
    "memory_bytes": "Memory",
    "cores": "Cores",
}
UNIT_STEPS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True, kw_only=True)
class EvidenceRow:
    """One evidence file that the note read."""

    experiment: str
    origin: str
    device: str
    when: str
    """ISO, for machines; empty where the record has none."""
    day: str
    """For people: ``10 September 2026``."""
    sha256: str
    path: str

    @property
    def short(self) -> str:
        return self.sha256[:SHORT_HASH]


@dataclass(frozen=True, kw_only=True)
class ParameterRow:
    name: str
    value: str
    default: str
    meaning: str
    changed: bool


@dataclass(frozen=True, kw_only=True)
class Run:
    """When the page was made: the only part of a report that two equal runs do not share."""

    started: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Box:
    number: str
    experiment: str
    origin: str
    sentence: str
    evidence: tuple[EvidenceRow, ...]
    device: tuple[tuple[str, str], ...]
    measured: str
    """ISO time of the numbers that the report is about; empty where no evidence says it."""
    measured_day: str
    parameters: tuple[ParameterRow, ...]
    versions: tuple[tuple[str, str], ...]
    hashes: tuple[tuple[str, str], ...]
    commit: str
    command: str
    machine: str
    """What executed the note and its live checks, where the numbers were taken elsewhere; else empty."""
    run: Run

    @property
    def changed(self) -> int:
        return sum(row.changed for row in self.parameters)


def box(provenance: Mapping[str, Any], declared: Mapping[str, Parameter]) -> Box:
    """The box of one report. ``declared`` are the note's parameters with their defaults and meanings.

    What the record lacks is said to be not recorded; nothing is filled in.
    """
    experiment = str(provenance.get("experiment", ""))
    evidence = tuple(_evidence(name, entry) for name, entry in sorted((provenance.get("evidence") or {}).items()))
    about = str(provenance.get("about") or experiment)
    own = next((row for row in evidence if row.experiment == about), None)
    origin = provenance.get("origin") if provenance.get("origin") in ORIGINS else (own.origin if own else "here")
    main = (provenance.get("evidence") or {}).get(about) or {}
    machine = _machine(origin, main, provenance)
    when = own.when if own else ""
    return Box(
        number=str(provenance.get("note", ""))[:8].replace("note-", "Field note "),
        experiment=experiment,
        origin=origin,
        sentence=_sentence(origin, about, machine.get("name") or (own.device if own else ""), evidence),
        evidence=evidence,
        device=tuple(_device_facts(machine)),
        measured=when,
        measured_day=_moment(when, origin) if own else "in this run" if origin == "here" else NOT_RECORDED,
        parameters=tuple(_parameters(provenance.get("params") or {}, declared)),
        versions=tuple((str(k), str(v)) for k, v in (provenance.get("versions") or {}).items()),
        hashes=tuple(_hashes(provenance.get("hashes") or {})),
        commit=_commit(provenance.get("git")),
        command=str(provenance.get("command", "")),
        machine="" if origin == "here" else _executed_on(provenance.get("device") or {}),
        run=_run(provenance),
    )


def _evidence(name: str, entry: Mapping[str, Any]) -> EvidenceRow:
    device = entry.get("device")
    when = str(entry.get("when") or "")
    return EvidenceRow(
        experiment=name,
        origin=str(entry.get("origin") or NOT_RECORDED),
        device=str(device.get("name") if isinstance(device, Mapping) else device or NOT_RECORDED),
        when=when,
        day=day(when),
        sha256=str(entry.get("sha256") or ""),
        path=str(entry.get("path") or ""),
    )


def _machine(origin: str, main: Mapping[str, Any], provenance: Mapping[str, Any]) -> dict[str, Any]:
    """The device that the numbers were taken on: the evidence's own, and this machine's only for ``here``."""
    recorded = main.get("device")
    machine = dict(recorded) if isinstance(recorded, Mapping) else {"name": recorded} if recorded else {}
    if origin == "here":
        machine = {**(provenance.get("device") or {}), **machine}
    if main.get("software"):
        machine["software"] = main["software"]
    return machine


def _device_facts(machine: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    cpu = machine.get("kind") == "cpu"
    for key, label in DEVICE_FACTS.items():
        value = machine.get(key)
        if value is None and (key not in ("name", "driver") or (cpu and key == "driver")):
            continue
        yield label, _bytes(value) if key == "memory_bytes" else str(value or NOT_RECORDED)
    if not cpu:
        locked = machine.get("clocks_locked")
        yield "Clocks", str(machine.get("clocks") or {True: "locked", False: "not locked"}.get(locked, NOT_RECORDED))
    if machine.get("software"):
        yield "Measured with", ", ".join(f"{name} {version}" for name, version in machine["software"].items())


def _executed_on(device: Mapping[str, Any]) -> str:
    cores = f"{device['cores']} cores" if device.get("cores") else ""
    return ", ".join(filter(None, (device.get("name"), cores, device.get("platform"))))


def _bytes(value: Any) -> str:
    for step, unit in UNIT_STEPS:
        if isinstance(value, int | float) and value >= step:
            return f"{value / step:.0f} {unit}"
    return str(value)


def _sentence(origin: str, experiment: str, device: str, evidence: tuple[EvidenceRow, ...]) -> str:
    device = device or "a device that was not recorded"
    others = sorted({row.experiment for row in evidence} - {experiment})
    beside = f" Figures of {_list(others)} stand beside them." if others else ""
    if origin == "published":
        said = f"The numbers are the published figures of {experiment}, taken on {device}. None was measured again here."
    elif origin == "retained":
        said = f"The numbers were measured by this project on {device} and kept as evidence. This run measured nothing."
    else:
        said = f"The numbers were measured on this machine: {device}."
    return said + beside


def _list(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _parameters(params: Mapping[str, Any], declared: Mapping[str, Parameter]) -> Iterable[ParameterRow]:
    for name in [*declared, *(name for name in params if name not in declared)]:
        known = declared.get(name)
        value = params.get(name, known.default if known else None)
        yield ParameterRow(
            name=name,
            value=shown(value),
            default=shown(known.default) if known else "",
            meaning=known.meaning if known else "",
            changed=bool(known) and value != known.default,
        )


def shown(value: Any) -> str:
    """A parameter's value as a params file would hold it: ``[a, b]``, ``true``, ``12``."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(shown(item) for item in value)}]"
    return str(value)


def _hashes(hashes: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for kind, entry in hashes.items():
        if isinstance(entry, Mapping):
            yield from ((str(name), str(sha)) for name, sha in sorted(entry.items()))
        elif entry:
            yield str(kind), str(entry)


def _commit(git: Mapping[str, Any] | None) -> str:
    if not git or not git.get("commit"):
        return "not in a git checkout; the hashes below say what ran"
    return f"{git['commit']}{', with changes that are not committed' if git.get('dirty') else ''}"


def _parsed(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def day(text: str) -> str:
    """``2026-09-11T00:40:17Z`` as ``11 September 2026``; month names do not follow the machine's language."""
    moment = _parsed(text)
    return f"{moment.day} {MONTHS[moment.month - 1]} {moment.year}" if moment else NOT_RECORDED


def _moment(text: str, origin: str) -> str:
    """The day, and for numbers of this machine the time: a session serves every note of one command."""
    moment = _parsed(text) if origin == "here" else None
    return f"{day(text)}, {moment:%H:%M} UTC" if moment else day(text)


def _run(provenance: Mapping[str, Any]) -> Run:
    started, finished = (str(provenance.get(key) or "") for key in ("started", "finished"))
    begin, end = _parsed(started), _parsed(finished)
    if not begin:
        return Run(started="", text=NOT_RECORDED)
    took = f", {(end - begin).total_seconds():.0f} s" if end else ""
    return Run(started=started, text=f"{day(started)}, {begin:%H:%M:%S} {begin.tzname() or 'UTC'}{took}")
