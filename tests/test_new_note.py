"""`make new-note SLUG=my-idea`: a note of one's own that runs at once, and nothing that exists is touched."""

import json
import subprocess
import sys

import pytest


@pytest.fixture
def tree(tiny_tree):
    """A tree with one note of the series, and one experiment that nobody's note has yet."""
    tiny_tree.note("note-001-one")
    tiny_tree.params("tiny", "note-001-one")
    return tiny_tree


def create(run_mage, tree, *slugs):
    return [run_mage("new-note", "--", slug, root=tree.root) for slug in slugs]


def test_the_first_free_number_from_100_up(tree, run_mage):
    (done,) = create(run_mage, tree, "my-idea")
    assert done.rc == 0, done.said
    assert done.stdout.splitlines()[:2] == ["notebooks/note-100-my-idea.ipynb", "params/here-100.yaml"]
    assert "Next: make note-100" in done.stdout and "outputs/here-100/report.html" in done.stdout
    (tree.root / "params/h200-101.yaml").write_text("note: note-100-my-idea\nexperiment: h200-101\n")
    (tree.root / "outputs/retained/here-102").mkdir()
    (tree.root / "outputs/retained/here-102/evidence.json").write_text("{}")
    (done,) = create(run_mage, tree, "another")
    assert done.stdout.splitlines()[:2] == ["notebooks/note-103-another.ipynb", "params/here-103.yaml"]
    listed = run_mage("notes", root=tree.root).stdout
    assert "note-100  My idea  (note-100-my-idea: h200-101, here-100)" in listed and "note-103  Another" in listed


def test_a_note_that_is_there_is_never_written_over(tree, run_mage):
    create(run_mage, tree, "my-idea")
    note = tree.root / "notebooks/note-100-my-idea.ipynb"
    note.write_text(note.read_text().replace("My idea", "Mine"))
    before = note.read_bytes()
    (done,) = create(run_mage, tree, "my-idea")
    assert done.rc == 2 and "note-100-my-idea.ipynb is there already" in done.message
    assert note.read_bytes() == before
    assert sorted(path.name for path in (tree.root / "params").iterdir()) == ["here-100.yaml", "tiny.yaml"]


BAD = ["", "My-Idea", "my_idea", "my idea", "-x", "x-", "a--b", "../x", "x/y", "idée", "1st", "x" * 49, "note-100-x"]


@pytest.mark.parametrize("slug", BAD)
def test_a_bad_slug_is_refused_with_an_example(slug, tree, run_mage):
    (done,) = create(run_mage, tree, slug)
    assert done.rc == 2 and "SLUG=my-idea" in done.message
    assert len(list((tree.root / "notebooks").iterdir())) == 1 and len(list((tree.root / "params").iterdir())) == 1


def test_the_new_note_runs_as_it_is(copied_tree, run_mage):
    """Made for this machine: gated, measured, counted; every figure and table that it declares is in its report."""
    tree = copied_tree("new-note")
    assert create(run_mage, tree, "my-idea")[0].rc == 0
    done = run_mage("run", "note-100", root=tree.root)
    assert done.rc == 0, done.said
    page = (tree.output("here-100") / "report.html").read_text()
    declared = json.loads((tree.root / "notebooks/note-100-my-idea.ipynb").read_text())["metadata"]["mage"]
    assert declared["title"] == "My idea" and "@" not in page.partition("<main")[2][:2000]
    assert all(f'id="fig-{name}"' in page for name in declared["figures"])
    assert all(f'id="table-{name}"' in page for name in declared["tables"])
    evidence = json.loads((tree.output("here-100") / "evidence.json").read_text())
    assert evidence["origin"] == "here" and {row["operation"] for row in evidence["results"]} == {"layernorm"}


def test_make_asks_for_the_name_and_passes_it_on(repository, tree):
    command = ["make", "-C", str(repository), "ENV=system", f"PYTHON={sys.executable}", "--no-print-directory", "new-note"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "make new-note SLUG=my-idea" in done.stderr
    environment = {"MAGE_ROOT": str(tree.root), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([*command, "SLUG=my-idea"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert (tree.root / "notebooks/note-100-my-idea.ipynb").is_file()
