"""A notebook is judged by its cells and outputs: what executed it may say what it likes."""

import hashlib
from pathlib import Path

import nbformat
import pytest

from mage.errors import NoteFailed
from mage.notebook import runner
from mage.notebook.verify import Verified, verify
from mage.notes import Note

MARKUP = "<table><tr><td>1</td></tr></table>"


def shown(kind: str, name: str, html: str = MARKUP, **about):
    metadata = {"mage": {"kind": kind, "id": name, "sha256": hashlib.sha256(MARKUP.encode()).hexdigest()} | about}
    return nbformat.v4.new_output("display_data", {"text/html": html, "text/plain": str(name)}, metadata=metadata)


def executed(*outputs_of_cells, counts=None):
    """A notebook that ran: a heading, then a cell for each list of outputs."""
    cells = [nbformat.v4.new_markdown_cell("# Tiny\n\n## The step")]
    for number, outputs in enumerate(outputs_of_cells, 1):
        cell = nbformat.v4.new_code_cell("do()", outputs=list(outputs))
        cell.execution_count = number if counts is None else counts[number - 1]
        cells.append(cell)
    # Marked as completed, as papermill does even for cells that never ran.
    for cell in cells:
        cell.metadata["papermill"] = {"status": "completed", "exception": False}
    return nbformat.v4.new_notebook(cells=cells)


def note(figures=(), tables=()) -> Note:
    metadata = {"figures": list(figures), "tables": list(tables)}
    return Note(path=Path("note-900-tiny.ipynb"), content=b"", title="Tiny", cells=[], metadata=metadata, parameters={})


def test_a_whole_notebook_is_verified():
    whole = executed([shown("table", "a")], [], [shown("figure", "b"), shown("prose", None)])
    assert verify(whole, note(["b"], ["a"])).notebook is whole


def test_an_empty_cell_need_not_run():
    notebook = executed([], [], counts=[1, None])
    notebook.cells[-1].source = " \n"
    verify(notebook, note())


BROKEN = {
    "never executed": (executed([], [], counts=[1, None]), {}, r"cell 2 \(The step\).*never executed"),
    "out of order": (executed([], [], counts=[2, 1]), {}, r"cell 2 .*order"),
    "an error": (
        executed([nbformat.v4.new_output("error", ename="ValueError", evalue="no\nstage")]), {}, r"cell 1 .*ValueError: no stage"
    ),
    "an error of mage's own": (
        executed([nbformat.v4.new_output("error", ename="ClaimError", evalue="68.62 is not 68.7")]),
        {},
        r"cell 1 \(The step\): 68.62 is not 68.7",
    ),
    "an early exit": (executed([nbformat.v4.new_output("error", ename="SystemExit", evalue="0")]), {}, "cell 1 .*early"),
    "a lost figure": (executed([]), {"figures": ["b"]}, "figure 'b'.*not shown"),
    "a lost table": (executed([shown("figure", "a")]), {"figures": ["a"], "tables": ["a"]}, "table 'a'.*not shown"),
    "an undeclared figure": (executed([shown("figure", "c")]), {}, "figure 'c'.*not declared"),
    "a figure twice": (executed([shown("figure", "b")], [shown("figure", "b")]), {"figures": ["b"]}, "figure 'b'.*2 times"),
    "an empty figure": (executed([shown("figure", "b", html="")]), {"figures": ["b"]}, "figure 'b'.*HTML"),
    "a figure cut off": (executed([shown("figure", "b", html=MARKUP[:9])]), {"figures": ["b"]}, "figure 'b'.*part"),
}  # fmt: skip


@pytest.mark.parametrize("notebook, declared, says", BROKEN.values(), ids=BROKEN)
def test_a_broken_notebook_is_refused_with_its_place(notebook, declared, says):
    with pytest.raises(NoteFailed, match=says) as refused:
        verify(notebook, note(**declared))
    assert "\n" not in str(refused.value)


def test_only_a_verified_notebook_is_rendered():
    with pytest.raises(TypeError, match="verified"):
        runner.render(executed([]), {})
    assert "<html" in runner.render(Verified(executed([])), {"title": "Tiny"})
