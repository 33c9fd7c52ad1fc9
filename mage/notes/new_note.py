"""A new note that runs at once: a notebook and the experiment of this machine, from two files of ``mage/notes/starter``.

Nothing that exists is ever overwritten. Numbers from 100 up are anybody's; those below are the series of this
project. Standard library only.
"""

from __future__ import annotations

import re
from pathlib import Path

from mage import notes, paths
from mage.errors import RequestError

STARTER = paths.PACKAGE / "notes" / "starter"
FIRST, LAST = 100, 999
LONGEST = 48
_SLUG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def create(slug: str) -> tuple[Path, Path]:
    """Write ``notebooks/note-NNN-<slug>.ipynb`` and ``params/here-NNN.yaml``, NNN the first free number from 100 up.

    Raises RequestError for a slug that is not lower-case words joined by hyphens, is longer than 48 characters or
    belongs to a note already, and when no number is left.
    """
    if not _SLUG.fullmatch(slug) or len(slug) > LONGEST:
        raise RequestError(
            f"slug {slug!r}: write lower-case words joined by hyphens, {LONGEST} characters at most: make new-note SLUG=my-idea"
        )
    if re.match(r"note(-\d|$)", slug):
        raise RequestError(f"slug {slug!r}: the number is chosen for you, leave it out: make new-note SLUG=my-idea")
    for path in notes.all_paths():
        if path.stem[9:] == slug:
            raise RequestError(f"{paths.shown(path)} is there already: choose another slug, or edit that note")
    number = _free_number()
    stem = f"note-{number}-{slug}"
    words = {"@NUMBER@": str(number), "@STEM@": stem, "@TITLE@": slug.replace("-", " ").capitalize()}
    made = paths.NOTEBOOKS / f"{stem}.ipynb", paths.PARAMS / f"here-{number}.yaml"
    for path, starter in zip(made, ("note.ipynb", "params.yaml"), strict=True):
        text = (STARTER / starter).read_text(encoding="utf-8")
        for word, value in words.items():
            text = text.replace(word, value)
        try:
            _write(path, text)
        except BaseException:
            if path is not made[0]:
                made[0].unlink(missing_ok=True)  # half a note would be in the way of the next try
            raise
    return made


def _free_number() -> int:
    """The first number that neither a notebook nor any experiment has."""
    taken = {path.stem[5:8] for path in paths.NOTEBOOKS.glob("note-*.ipynb")}
    taken |= {path.stem.rpartition("-")[2] for path in paths.PARAMS.glob("*.yaml")}
    for folder in (paths.RETAINED, paths.OUTPUTS):
        taken |= {path.parent.name.rpartition("-")[2] for path in folder.glob("*/evidence.json")}
    for number in range(FIRST, LAST + 1):
        if str(number) not in taken:
            return number
    raise RequestError(f"every number from {FIRST} to {LAST} is taken: remove a note, or give one a name by hand")


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise RequestError(f"{paths.shown(path)} is there already and is left as it is: try again") from None
    except OSError as error:
        raise RequestError(f"{paths.shown(path)}: cannot be written ({error.strerror}); mend the folder") from None
