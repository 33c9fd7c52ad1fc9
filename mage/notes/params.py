"""What a run is asked for: params files and ``-p NAME=VALUE``, checked against what the note declares.

Both are YAML 1.2, where ``no`` is a word and ``010`` is ten. Every mistake is found here, before a kernel starts.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mage import notes, paths
from mage.errors import RequestError
from mage.notes import RUNNER_KEYS, Note, vocabulary

CELL_TIMEOUT_S = 900.0
"""Seconds that one cell may take where the params file does not say."""
NOTE_TIMEOUT_S = 3600.0
"""Seconds that a whole note may take where the params file does not say."""


@dataclass(frozen=True, kw_only=True)
class Params:
    """One params file as it stands, checked against the note that it names."""

    path: Path
    content: bytes
    """The file's bytes: what is hashed is what was read."""
    note: Path
    values: dict[str, object]
    """Parameters that the file sets; the note's defaults stand for the others."""
    limits: dict[str, float]
    """Seconds, by runner key."""
    shapes: dict[str, tuple] = field(default_factory=dict)
    """Shapes that are measured beside the operations' own (``mage.experiment.shapes``)."""
    shape_rows: tuple[str, ...] | None = None
    stages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Hand-written stages whose rows the experiment keeps, by operation; of the others every one."""

    @property
    def experiment(self) -> str:
        return self.path.stem


@dataclass(frozen=True, kw_only=True)
class Request:
    """One run: a note, the values of all its parameters, and its limits."""

    note: Note
    params: Params
    values: dict[str, object]
    overrides: dict[str, str] = field(default_factory=dict)
    """``-p`` as given, by name: the text that the command line held."""
    cell_timeout_s: float = CELL_TIMEOUT_S
    note_timeout_s: float = NOTE_TIMEOUT_S

    @property
    def experiment(self) -> str:
        """The experiment, and so the output folder: the params file's, unless ``-p experiment=`` names another."""
        return str(self.values["experiment"]) if "experiment" in self.overrides else self.params.experiment

    @property
    def about(self) -> str:
        """The experiment whose evidence the report is about: another's, where the parameter ``reads`` names one."""
        return str(self.values.get("reads") or self.experiment)

    @property
    def command(self) -> str:
        """The command line that repeats this run."""
        if not self.overrides:
            return f"make {self.note.number} EXPERIMENT={self.params.experiment}"
        import shlex

        options = "".join(f" -p {shlex.quote(f'{name}={text}')}" for name, text in self.overrides.items())
        return f"python -m mage run {self.note.stem} -e {self.params.experiment}{options}"


def requests(note: str, experiment: str | None = None, settings: Sequence[str] = ()) -> list[Request]:
    """Every run that the command line asks for, each checked whole.

    ``note`` names one notebook or all of a number, ``experiment`` one params file of them, and ``settings`` are
    ``NAME=VALUE`` texts. Raises RequestError at the first mistake, with the nearest name or the type wanted.
    """
    found = notes.find(note)
    files = [file for file in notes.params_files() if _may_be_of(found, notes.named_note(file))]
    if experiment is not None:
        files = [_chosen(experiment, files, note)]
    elif not files:
        raise RequestError(f"no params file names {note}: write params/<experiment>.yaml with the first key 'note: {found[0].stem}'")
    asked = _split(settings)
    read = {path.stem: notes.read(path) for path in found}
    loaded = [load(file, read) for file in files]
    checked = [(one, read[one.note.stem]) for one in loaded if one.note.stem in read]
    takers = {name: sorted({one.stem for _, one in checked if _takes(one, name)}) for name in asked}
    for name, taking in takers.items():
        if not taking:
            known = dict.fromkeys(known for _, one in checked for known in one.parameters)
            raise RequestError(f"-p {name}: {note} has no {_unknown('parameter', name, [*known, *RUNNER_KEYS])}")
        if len(taking) > 1:
            raise RequestError(f"-p {name}: {' and '.join(taking)} would both take it; give one note's full name")
    if "experiment" in asked and len(checked) > 1:
        raise RequestError(f"-p experiment: {len(checked)} experiments are asked for; choose one with -e")
    return [_request(one, params, {name: text for name, text in asked.items() if one.stem in takers[name]}) for params, one in checked]


def load(path: Path, read: dict[str, Note] | None = None) -> Params:
    """Read one params file and check every key against the note that it names.

    ``read`` holds notes already read, by name. Raises RequestError, naming file, key, and the nearest name or type.
    """
    where = paths.shown(path)
    try:
        content = path.read_bytes()
        text = content.decode("utf-8")
    except OSError as error:
        raise RequestError(f"{where}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise RequestError(f"{where}: is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    values = _yaml(text, where)
    if not isinstance(values, dict):
        raise RequestError(f"{where}: must hold 'name: value' lines, the first 'note: <notebook>'")
    for key in values:
        if not isinstance(key, str):
            raise RequestError(f"{where}: the key {key!r} is no word; a key is the name of a parameter")
    stem = values.pop("note", None)
    if not isinstance(stem, str):
        raise RequestError(f"{where}: the first key must be note, and name a notebook (note: note-004-load-in-flight)")
    stem = stem.removesuffix(".ipynb")
    note = (read or {}).get(stem) or _named(stem, where)
    limits = {key: _seconds(values.pop(key), f"{where}: {key}") for key in RUNNER_KEYS if key in values}
    measured = _measured(values, where)
    declared = values.get("experiment", path.stem if "experiment" not in note.parameters else None)
    if declared != path.stem:
        got = f", got {declared!r}" if declared is not None else ""
        raise RequestError(f"{where}: experiment must equal the file's name{got}: write 'experiment: {path.stem}'")
    for key in values:
        # A note that takes no experiment may still be run by an experiment's file.
        if key not in note.parameters and key != "experiment":
            known = [*note.parameters, *RUNNER_KEYS]
            raise RequestError(f"{where}: {note.stem} has no {_unknown('parameter', key, known)}")
    checked = {key: _checked(note, key, value, where) for key, value in values.items() if key in note.parameters}
    return Params(path=path, content=content, note=note.path, values=checked, limits=limits, **measured)


def _measured(values: dict, where: str) -> dict:
    """The keys that say what is measured, taken out of ``values``: no note reads them."""
    given = {key: values.pop(key) for key in ("shapes", "shape_rows", "stages") if key in values}
    if not given:
        return {}
    from mage.experiment import shapes

    read = {"shapes": shapes.parse, "shape_rows": shapes.parse_rows, "stages": shapes.parse_stages}
    return {key: read[key](value, where) for key, value in given.items()}


def _request(note: Note, params: Params, overrides: dict[str, str]) -> Request:
    defaults = {name: _checked(note, name, one.default, paths.shown(note.path)) for name, one in note.parameters.items()}
    limits = dict(params.limits)
    values = {**defaults, **params.values}
    for name, text in overrides.items():
        where = f"-p {name}={text}"
        if name in RUNNER_KEYS:
            limits[name] = _seconds(_yaml(text, where), where)
        else:
            value = _typed(text, note.parameters[name].type, where)
            values[name] = _checked(note, name, value, where, named=False)
    if "experiment" in overrides:
        _known_experiment(str(values["experiment"]), params)
    if values.get("reads"):
        _has_evidence(str(values["reads"]), "-p reads" if "reads" in overrides else f"{paths.shown(params.path)}: reads")
    return Request(note=note, params=params, values=values, overrides=overrides, **limits)


def _may_be_of(found: list[Path], named: str | None) -> bool:
    """Whether a params file that names ``named`` belongs to one of ``found``, or was meant to: no name, a misspelt one."""
    if named is None or named in {path.stem for path in found}:
        return True
    return named[:8] == found[0].stem[:8] and named not in {path.stem for path in notes.all_paths()}


def _chosen(experiment: str, files: list[Path], note: str) -> Path:
    for file in files:
        if file.stem == experiment:
            return file
    elsewhere = paths.PARAMS / f"{experiment}.yaml"
    if elsewhere in notes.params_files():
        other = notes.named_note(elsewhere)
        raise RequestError(f"experiment {experiment} belongs to {other or 'no note'}, not to {note}: run {other or note}")
    raise RequestError(f"{note} has no {_unknown('experiment', experiment, [file.stem for file in files])}")


def _named(stem: str, where: str) -> Note:
    for path in notes.all_paths():
        if path.stem == stem:
            return notes.read(path)
    raise RequestError(f"{where}: there is no {_unknown('note', stem, [path.stem for path in notes.all_paths()])}")


def _known_experiment(experiment: str, params: Params) -> None:
    here = experiment == "here" or experiment.startswith("here-")
    if not here and experiment != params.experiment:
        _has_evidence(experiment)


def _has_evidence(experiment: str, where: str = "") -> None:
    known = [file.parent.name for folder in (paths.RETAINED, paths.OUTPUTS) for file in sorted(folder.glob("*/evidence.json"))]
    if experiment not in known:
        raise RequestError(f"{where and f'{where}: '}there is no evidence for {_unknown('experiment', experiment, known)}")


def _takes(note: Note, name: str) -> bool:
    return name in note.parameters or name in RUNNER_KEYS


def _split(settings: Sequence[str]) -> dict[str, str]:
    asked: dict[str, str] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise RequestError(f"-p {setting}: write NAME=VALUE, such as -p statistic=median")
        if name.strip() in asked:
            raise RequestError(f"-p {name.strip()} is given twice; give it once")
        asked[name.strip()] = text.strip()
    return asked


def _typed(text: str, declared: str, where: str) -> object:
    """The YAML value of a command line's text; a list may stand without its brackets."""
    if declared.startswith("list[") and text and not text.startswith("["):
        text = f"[{text}]"
    return _yaml(text, where)


def _checked(note: Note, name: str, value: object, where: str, *, named: bool = True) -> object:
    """``value`` as parameter ``name`` of ``note`` declares it, its words known; RequestError otherwise."""
    parameter = note.parameters[name]
    label = f"{where}: {name}" if named else where
    try:
        value = notes.conform(value, parameter.type)
    except ValueError as error:
        quote = parameter.type == "str" and value is not None and not isinstance(value, list | dict)
        raise RequestError(f"{label}: {name} {error}{_quoting(name, value, named) if quote else ''}") from None
    words = value if isinstance(value, list) else [value]
    for word in words:
        if isinstance(word, str) and not vocabulary.knows(name, word):
            raise RequestError(f"{label}: there is no {_unknown(name.removesuffix('s'), word, list(vocabulary.KNOWN[name]))}")
    if name in vocabulary.KNOWN and isinstance(value, list) and len(set(value)) != len(value):
        raise RequestError(f"{label}: a word stands in it twice; name each once")
    return value


def _quoting(name: str, value: object, named: bool) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f'; quote a word that looks like a number: {name}: "{text}"' if named else f"; quote it: -p '{name}=\"{text}\"'"


def _seconds(value: object, where: str) -> float:
    try:
        seconds = notes.conform(value, "float")
    except ValueError as error:
        raise RequestError(f"{where} {error} (seconds)") from None
    if seconds <= 0:
        raise RequestError(f"{where} must be more than 0 seconds, got {value}")
    return seconds


def _unknown(kind: str, name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{kind} {name!r}; {hint}there is: {', '.join(known) or 'none'}"


def _yaml(text: str, where: str) -> object:
    """One YAML 1.2 document as plain Python values. Duplicate keys are an error of the reader's."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    if text.startswith("%") or "\n%" in text:
        raise RequestError(f"{where}: a YAML directive (%) may not change how the file is read; remove it")
    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark and "\n" in text.strip() else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise RequestError(f"{where}{line}: is not YAML: {' '.join(problem.split())}") from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{where}: is not YAML: {type(error).__name__}: {' '.join(str(error).split())[:80]}") from None
