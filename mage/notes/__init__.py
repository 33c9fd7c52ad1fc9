"""The notes there are: their files, titles, experiments and declared parameters, read without running anything.

Standard library only, so that the list of notes can be printed by a Python that has nothing installed.

Beside it:

    params       what a run is asked for: params files and ``-p NAME=VALUE``, checked
    vocabulary   the words that a parameter may hold
    new_note     a new note that runs at once, from the two files of ``starter``
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import io
import json
import re
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

from mage import paths
from mage.errors import RequestError

TYPES = ("str", "int", "float", "bool", "list[str]", "list[int]", "list[float]", "list[bool]")
"""What a parameter may be declared as."""

RUNNER_KEYS = ("cell_timeout_s", "note_timeout_s")
"""Keys of a params file that set limits for the run, in seconds, and are no parameters of the note."""

_STEM = re.compile(r"note-\d{3}-.+")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One line of a note's parameters cell."""

    name: str
    type: str
    """One of TYPES."""
    default: object
    meaning: str
    """The comment behind the line; empty when there is none."""


@dataclass(frozen=True, kw_only=True)
class Note:
    """One notebook as its file stands."""

    path: Path
    content: bytes
    """The file's bytes: what is hashed is what was read."""
    title: str
    cells: list[dict]
    metadata: dict
    """The notebook's metadata under ``mage``: title, figures, tables, device."""
    parameters: dict[str, Parameter]

    @property
    def stem(self) -> str:
        return self.path.stem

    @property
    def number(self) -> str:
        """``note-004`` of ``note-004-load-in-flight``."""
        return self.stem[:8]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def declared(self, kind: str) -> list[str]:
        """Ids of the ``figures`` or ``tables`` that the note says it shows."""
        return list(self.metadata.get(kind) or [])


def all_paths() -> list[Path]:
    """Every notebook of the tree, in the order of its name."""
    return sorted(path for path in paths.NOTEBOOKS.glob("note-*.ipynb") if _STEM.fullmatch(path.stem))


def find(request: str) -> list[Path]:
    """The notebooks that ``request`` names: ``note-004``, ``004``, or one full slug.

    Raises RequestError, which lists the notes there are, when there is none.
    """
    wanted = Path(request).name.removesuffix(".ipynb")
    if wanted.isdecimal():
        wanted = f"note-{int(wanted):03d}"
    found = [path for path in all_paths() if path.stem == wanted or path.stem[:8] == wanted]
    if found:
        return found
    stems = [path.stem for path in all_paths()]
    near = difflib.get_close_matches(wanted, stems, 1, 0.75)
    hint = f"did you mean {near[0]}? " if near else ""
    raise RequestError(f"there is no note {request!r}; {hint}the notes are: {', '.join(stems) or 'none'}")


def params_files() -> list[Path]:
    """Every params file of the tree, in the order of its name."""
    return sorted(paths.PARAMS.glob("*.yaml"))


def named_note(params_file: Path) -> str | None:
    """The note that a params file names, read from its ``note:`` line alone; None when it has none."""
    try:
        text = params_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    line = re.search(r"^note:[ \t]*[\"']?([^\s\"'#]+)", text, re.MULTILINE)
    return line[1].removesuffix(".ipynb") if line else None


def title_of(path: Path) -> str:
    """A notebook's title, or its name when the file cannot be read."""
    try:
        notebook = json.loads(path.read_bytes())
        return _title(notebook, path)
    except (OSError, ValueError, AttributeError, TypeError, KeyError):
        return path.stem


def read(path: Path) -> Note:
    """Read one notebook and its declared parameters.

    Raises RequestError when the file is no notebook, or when it has not exactly one well-formed parameters cell.
    """
    where = paths.shown(path)
    try:
        content = path.read_bytes()
        notebook = json.loads(content)
        cells = notebook["cells"]
        if notebook["nbformat"] != 4 or not all(isinstance(_source(cell), str) for cell in cells):
            raise ValueError("not a notebook of format 4")
    except OSError as error:
        raise RequestError(f"{where}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RequestError(f"{where}: is no Jupyter notebook ({_reason(error)}); restore the file") from None
    metadata = notebook.get("metadata", {}).get("mage") or {}
    for kind in ("figures", "tables"):
        ids = metadata.get(kind) or []
        if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids) or len(set(ids)) != len(ids):
            raise RequestError(f"{where}: metadata mage.{kind} must list each id once, got {ids!r}")
    return Note(
        path=path,
        content=content,
        title=_title(notebook, path),
        cells=cells,
        metadata=metadata,
        parameters=declared_parameters(cells, where),
    )


@dataclass(frozen=True)
class Place:
    """Where in a note a code cell stands, for a person: its number among the code cells, and its heading."""

    number: int
    heading: str

    def __str__(self) -> str:
        return f"cell {self.number} ({self.heading})" if self.heading else f"cell {self.number}"


def places(cells: list[dict]) -> list[Place | None]:
    """The place of each cell, None for what is no code. A cell injected by the runner shares the one before it."""
    found: list[Place | None] = []
    number = 0
    for index, cell in enumerate(cells):
        injected = "injected-parameters" in (cell.get("metadata", {}).get("tags") or [])
        number += cell.get("cell_type") == "code" and not injected
        found.append(Place(number, heading_above(cells, index)) if cell.get("cell_type") == "code" else None)
    return found


def heading_above(cells: list[dict], index: int) -> str:
    """The Markdown heading that the cell at ``index`` stands under, without its marks; empty when there is none."""
    for cell in reversed(cells[: index + 1]):
        if cell.get("cell_type") == "markdown":
            found = re.findall(r"^#{1,6}[ \t]+(.+?)[ \t#]*$", _source(cell), re.MULTILINE)
            if found:
                return found[-1].replace("`", "").replace("*", "")
    return ""


def _title(notebook: dict, path: Path) -> str:
    title = (notebook.get("metadata", {}).get("mage") or {}).get("title")
    if title:
        return " ".join(str(title).split())
    for index, cell in enumerate(notebook["cells"]):
        if cell.get("cell_type") == "markdown":
            return heading_above(notebook["cells"], index) or path.stem
    return path.stem


def _source(cell: dict) -> str:
    source = cell.get("source", "")
    return "".join(source) if isinstance(source, list) else source


def declared_parameters(cells: list[dict], where: str) -> dict[str, Parameter]:
    """The parameters that the cell tagged ``parameters`` declares, by name; nothing is executed.

    Raises RequestError, in which ``where`` names the notebook, when it is not exactly one well-formed cell.
    """
    code = [index for index, cell in enumerate(cells) if cell.get("cell_type") == "code"]
    tagged = [i for i, cell in enumerate(cells) if "parameters" in (cell.get("metadata", {}).get("tags") or [])]
    if len(tagged) != 1:
        raise RequestError(
            f"{where}: {len(tagged)} cells are tagged 'parameters', a note has exactly one: "
            "tag the first code cell (in JupyterLab: Property Inspector, Add Tag)"
        )
    if tagged != code[:1]:
        raise RequestError(f"{where}: the cell tagged 'parameters' must be the first code cell; move it there")
    source = _source(cells[tagged[0]])
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise RequestError(f"{where}: the parameters cell is not Python ({_reason(error)})") from None
    comments = _comments(source)
    found: dict[str, Parameter] = {}
    for statement in tree.body:
        parameter = _parameter(statement, comments, f"{where}: parameters cell, line {statement.lineno}")
        if parameter.name in found:
            raise RequestError(f"{where}: {parameter.name!r} is declared twice in the parameters cell; keep one line")
        found[parameter.name] = parameter
    if not found:
        raise RequestError(f"{where}: the parameters cell declares nothing; give it at least `experiment`")
    return found


def _parameter(statement: ast.stmt, comments: dict[int, str], where: str) -> Parameter:
    if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name) or not statement.value:
        raise RequestError(f"{where}: only annotated literals may stand here, such as `rounds: int = 12  # meaning`")
    name, declared = statement.target.id, ast.unparse(statement.annotation)
    if declared not in TYPES:
        raise RequestError(f"{where}: {name} is declared {declared}; a parameter is one of {', '.join(TYPES)}")
    if name in RUNNER_KEYS or name == "note":
        raise RequestError(f"{where}: {name} is a key of the params file itself; give the parameter another name")
    try:
        default = ast.literal_eval(statement.value)
    except ValueError:
        raise RequestError(f"{where}: {name} is not a literal; write the value itself and compute in a later cell") from None
    try:
        default = conform(default, declared)
    except ValueError as error:
        raise RequestError(f"{where}: {name} {error}") from None
    lines = range(statement.lineno, statement.end_lineno + 1)
    meaning = " ".join(comments[line] for line in lines if line in comments)
    return Parameter(name=name, type=declared, default=default, meaning=meaning)


def conform(value: object, declared: str) -> object:
    """``value`` as the type ``declared``, one of TYPES; an int is taken for a float, a bool never for an int.

    Raises ValueError with the type wanted and the one got.
    """
    if declared.startswith("list["):
        inner = declared[5:-1]
        if not isinstance(value, list):
            raise ValueError(f"wants {declared}, got {_described(value)}")
        for item in value:
            if not _is(item, inner):
                raise ValueError(f"wants {declared}, got a list with {_described(item)}")
        return [float(item) for item in value] if inner == "float" else list(value)
    if not _is(value, declared):
        raise ValueError(f"wants {declared}, got {_described(value)}")
    return float(value) if declared == "float" else value


def _is(value: object, declared: str) -> bool:
    if declared == "bool" or isinstance(value, bool):
        return declared == "bool" and isinstance(value, bool)
    if declared == "float":
        # An infinite or undefined value is no measure of anything, and JSON cannot hold it.
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max
    return isinstance(value, {"str": str, "int": int}[declared])


def _described(value: object) -> str:
    if value is None:
        return "nothing"
    text = repr(value) if isinstance(value, str | int | float | list | dict) else str(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '…'}"


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("# ").rstrip() for token in tokens if token.type == tokenize.COMMENT}


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
