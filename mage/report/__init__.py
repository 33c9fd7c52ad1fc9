"""One executed note as one HTML file that opens from an e-mail: no script, nothing fetched, readable by all.

``render`` makes the page, ``check`` says whether it may be published, ``index`` lists the pages there are.
The template and its style sheet lie in ``mage/report/templates/mage``.

Beside it:

    box      what a report says first: where its numbers come from
    checks   is a page fit to be handed on?
    markup   text of a note to HTML that needs no script
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mage import paths
from mage.errors import MageError, NoteFailed, RequestError
from mage.report.checks import check

__all__ = ["IndexRow", "check", "index", "render"]

TEMPLATES = paths.PACKAGE / "report" / "templates"
HIDDEN_TAGS = {"remove-cell", "mage-hidden"}
"""A cell so tagged is verified and not shown: the runner's own, or one that only prepares."""
SHOWN_TYPES = ("text/html", "text/markdown", "image/svg+xml", "text/latex", "image/png", "image/jpeg", "text/plain")
"""What an output may be shown as, best first. Anything else would need a script."""


@dataclass(frozen=True, kw_only=True)
class IndexRow:
    """One report, for the list of reports."""

    note: str
    """The notebook's stem, ``note-004-load-in-flight``."""
    title: str
    experiment: str
    origin: Literal["published", "retained", "here"] | str
    device: str
    when: str
    """ISO time of the measurement; empty where it is not known."""
    state: Literal["fresh", "stale", "failed"]
    reasons: Sequence[str] = ()
    """What changed since a stale report was made, or why the last run failed."""
    href: str | None = None
    """Where the last good report lies, relative to the index; None where there is none."""


def render(notebook: Any, provenance: Mapping[str, Any]) -> str:
    """The report of an executed ``notebook`` (a NotebookNode), with ``provenance`` in its box.

    Equal inputs give equal bytes. Raises NoteFailed for a notebook that did not run to its end, or whose
    output a page without scripts cannot show: such a page would look finished and would not be.
    """
    import nbformat
    from markupsafe import Markup

    from mage.report import markup
    from mage.report.box import box

    _refuse_unfinished(notebook)
    notebook = nbformat.from_dict(notebook)
    shown = [cell for cell in notebook.cells if not HIDDEN_TAGS & _tags(cell)]
    title, lead, rest = _opening(shown, notebook.metadata.get("mage", {}).get("title") or provenance.get("title", ""))
    for number, cell in enumerate((cell for cell in rest if cell.cell_type == "code"), 1):
        cell.metadata["mage_summary"] = summary(cell, number)
    notebook.cells = rest
    exporter = _exporter()
    page = {
        "title": title,
        "lead": Markup(lead),
        "box": box(provenance, _declared(notebook)),
        "style": Markup(style()),
        "finish": lambda html: _Body(*markup.finish(html)),
    }
    html, _ = exporter.from_notebook_node(notebook, resources={"mage": page})
    return html.strip() + "\n"


def index(rows: Sequence[IndexRow]) -> str:
    """The page that lists the reports, in the order of note and experiment."""
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup

    from mage.report.box import ORIGINS, day

    environment = Environment(loader=FileSystemLoader(TEMPLATES / "mage"), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["day"] = day
    notes: dict[str, list[IndexRow]] = {}
    for row in sorted(rows, key=lambda row: (row.note, row.experiment)):
        notes.setdefault(row.note, []).append(row)
    return environment.get_template("catalog.html.j2").render(notes=notes, origins=ORIGINS, style=Markup(style()))


@dataclass(frozen=True)
class _Body:
    """The notebook's part of the page, and the headings in it."""

    html: str
    headings: Sequence[Any]

    @property
    def contents(self) -> list[tuple[Any, list]]:
        """Sections, each with the sections right below it."""
        sections: list[tuple[Any, list]] = []
        for heading in self.headings:
            if heading.level == 2 or (heading.level == 3 and not sections):
                sections.append((heading, []))
            elif heading.level == 3:
                sections[-1][1].append(heading)
        return sections


@functools.cache
def style() -> str:
    """The page's style sheet, the same for reports and their list."""
    return (TEMPLATES / "mage" / "style.css").read_text(encoding="utf-8")


def summary(cell: Any, number: int) -> str:
    """What the fold of a code cell says: its first line where that is a comment, else which step it is."""
    if "parameters" in _tags(cell):
        return "Code: the parameters and their defaults"
    if "injected-parameters" in _tags(cell):
        return "Code: the parameters of this run"
    first = cell.source.strip().partition("\n")[0]
    comment = re.fullmatch(r"#+\s*(?:%%)?\s*(\S.*)", first)
    return f"Code: {comment[1].rstrip('.: ')}" if comment else f"Code of step {number}"


def _tags(cell: Any) -> set[str]:
    return set(cell.metadata.get("tags") or [])


def _refuse_unfinished(notebook: Any) -> None:
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type != "code":
            continue
        where = f"cell {number} ({cell.get('id') or 'no id'})"
        for output in cell.outputs:
            if output.output_type == "error":
                said = _line(f"{output.get('ename')}: {output.get('evalue')}")
                raise NoteFailed(f"{where} failed with {said}: no report is made of it")
            data = output.get("data")
            if data is not None and not set(data) & set(SHOWN_TYPES):
                kinds = ", ".join(sorted(data)) or "nothing"
                raise NoteFailed(f"{where} shows {kinds}, which needs a script: show a mage.TableView or mage.FigureView")
        if cell.source.strip() and cell.get("execution_count") is None:
            raise NoteFailed(f"{where} was never executed: no report is made of an unfinished note")


def _line(text: Any) -> str:
    return " ".join(str(text or "").split())[:200]


def _opening(cells: list, title: str) -> tuple[str, str, list]:
    """The page's title, the HTML of the question under it, and the cells that follow."""
    from mage.report import markup

    if cells and cells[0].cell_type == "markdown":
        first, _, rest = cells[0].source.strip().partition("\n")
        if re.match(r"#\s+\S", first):
            heading = re.sub(r"[*`#]", "", first).strip()
            return heading, _located(markup.markdown, rest, "cell 1"), cells[1:]
    return str(title or "Untitled note"), "", cells


def _located(convert, source: str, where: str) -> str:
    try:
        return convert(source)
    except NoteFailed:
        raise
    except MageError as error:
        raise NoteFailed(f"{where}: {error}") from None


def _declared(notebook: Any) -> Mapping[str, Any]:
    """The note's parameters by name; none for a notebook that declares none."""
    from mage import notes

    try:
        return notes.declared_parameters(notebook.cells, "the note")
    except RequestError:
        return {}


@functools.cache
def _exporter():
    from markupsafe import Markup
    from nbconvert.exporters.templateexporter import TemplateExporter
    from nbconvert.filters import strip_ansi
    from traitlets.config import Config

    from mage.report import markup

    class Exporter(TemplateExporter):
        """nbconvert with our template and filters only: its own HTML exporter fills in what a note left out."""

        export_from_notebook = None
        file_extension = ".html"
        output_mimetype = "text/html"

        def _create_environment(self):
            environment = super()._create_environment()
            environment.trim_blocks = environment.lstrip_blocks = True
            environment.autoescape = True  # here, and not in a block: an included template does not inherit that
            return environment

        def default_filters(self):
            yield from super().default_filters()
            yield "mage_markdown", lambda text: Markup(_located(markup.markdown, text, "a Markdown cell"))
            yield "mage_formula", lambda text: Markup(_located(markup.formula, text.strip("$ \n"), "an output"))
            yield "mage_code", lambda text: Markup(markup.code_block(text))
            yield "mage_plain", strip_ansi

    config = Config({"NbConvertBase": {"display_data_priority": list(SHOWN_TYPES)}})
    return Exporter(config=config, template_name="mage", template_file="index.html.j2", extra_template_basedirs=[str(TEMPLATES)])
