"""A report is replaced whole or not at all, whatever cuts it off, and what no longer holds is listed with its reason."""

import hashlib
import json
import os

import pytest

from mage import paths, provenance
from mage.notebook import publication, stale

OLD = {name: b"old " + name.encode() for name in publication.FILES}
NEW = {name: b"new " + name.encode() for name in publication.FILES}


def found(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_set_goes_in_whole_and_clears_what_failed(tmp_path):
    folder = tmp_path / "outputs" / "tiny"
    publication.publish(folder, OLD)
    for name in publication.FAILED:
        (folder / name).write_bytes(b"failed")
    (folder / "evidence.json").write_bytes(b"measured here")
    publication.publish(folder, NEW)
    assert found(folder) == NEW | {"evidence.json": b"measured here"}


def dying(step: int, action) -> None:
    """Do `action` in a process that ends without a word before its n-th change of a name."""
    child = os.fork()
    if child == 0:
        left = [step]

        def watched(change):
            def changed(*arguments, **options):
                if left[0] == 0:
                    os._exit(9)
                left[0] -= 1
                return change(*arguments, **options)

            return changed

        try:
            for name in ("link", "rename", "replace", "unlink", "rmdir"):
                setattr(os, name, watched(getattr(os, name)))
            action()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


@pytest.mark.parametrize("survived", [{}, OLD], ids=["the first set", "a later set"])
@pytest.mark.parametrize("step", range(20))
def test_a_process_that_dies_at_any_step_costs_no_set(tmp_path, step, survived):
    """The next run finds the old set or the new, even if the one that took it back died over it too."""
    again, moving = 0, True
    while moving:
        folder = tmp_path / f"tiny-{again}"
        if survived:
            publication.publish(folder, survived)
        dying(step, lambda folder=folder: publication.publish(folder, NEW))
        # Only a set that was being moved has to be taken back; doing so takes fewer than nine steps.
        moving = (folder / ".moving").exists() and again < 8
        dying(again, lambda folder=folder: publication.recover(folder))
        publication.recover(folder)
        assert (found(folder) if folder.exists() else {}) in (survived, NEW)
        again += 1


def test_a_run_that_fails_takes_back_what_was_cut_off_before_it(tiny_tree, run_mage):
    tiny_tree.note(cells=["1 / 0"])
    tiny_tree.params()
    publication.publish(tiny_tree.output(), OLD)
    # After the notebook of the new set and the two hard links of the old one.
    dying(9, lambda: publication.publish(tiny_tree.output(), NEW))
    assert run_mage("run", "note-900", root=tiny_tree.root).rc == 1
    assert {name: (tiny_tree.output() / name).read_bytes() for name in publication.FILES} == OLD


@pytest.mark.parametrize("name", publication.FILES)
def test_a_file_that_cannot_be_replaced_keeps_the_others_back(tmp_path, name):
    folder = tmp_path / "tiny"
    publication.publish(folder, OLD)
    (folder / name).unlink()
    (folder / name / "in the way").mkdir(parents=True)
    with pytest.raises(OSError):
        publication.publish(folder, NEW)
    assert {one for one in os.listdir(folder)} == set(publication.FILES)
    assert all((folder / one).read_bytes() == OLD[one] for one in publication.FILES if one != name)


def test_a_single_file_is_whole_too(tmp_path):
    publication.replace(tmp_path / "deep" / "index.html", b"first")
    with pytest.raises(TypeError):
        publication.replace(tmp_path / "deep" / "index.html", "not bytes")
    assert found(tmp_path / "deep") == {"index.html": b"first"}


# --- staleness ---------------------------------------------------------------------------------------------------


def sha256(path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def tree(tiny_tree, monkeypatch):
    """A tree with a report that rests on a note, a params file, evidence, a kernel and a module; this process looks there."""
    for name in ("notebooks", "params", "kernels", "outputs"):
        monkeypatch.setattr(paths, name.upper(), tiny_tree.root / name)
    monkeypatch.setattr(paths, "ROOT", tiny_tree.root)
    monkeypatch.setattr(paths, "PACKAGE", tiny_tree.root / "mage")
    root = tiny_tree.root
    note, params = tiny_tree.note(), tiny_tree.params()
    files = {"evidence": root / "outputs/retained/tiny/evidence.json", "kernel": root / "kernels/cuda/a.cu"}
    files |= {"module": root / "mage/tables.py", "template": root / "mage/report/templates/style.css"}
    for path in files.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("content")
    record = {
        "schema": provenance.SCHEMA,
        "note": "note-900-tiny",
        "title": "Tiny",
        "experiment": "tiny",
        "params_file": "params/tiny.yaml",
        "evidence": {"tiny": {"path": "outputs/retained/tiny/evidence.json", "sha256": sha256(files["evidence"])}},
        "hashes": {
            "note": sha256(note),
            "params": sha256(params),
            "kernels": {"kernels/cuda/a.cu": sha256(files["kernel"])},
            "library": {"mage/tables.py": sha256(files["module"])},
        },
        "page": {"mage/report/templates/style.css": sha256(files["template"])},
        "files": {name: hashlib.sha256(OLD[name]).hexdigest() for name in publication.FILES[:2]},
        "command": "make note-900 EXPERIMENT=tiny",
    }
    publication.publish(tiny_tree.output(), OLD | {"provenance.json": json.dumps(record).encode()})
    return tiny_tree


def state() -> tuple[str, tuple[str, ...]]:
    (status,) = stale.statuses()
    return status.state, status.reasons


@pytest.mark.parametrize(
    "name",
    [
        "notebooks/note-900-tiny.ipynb",
        "params/tiny.yaml",
        "outputs/retained/tiny/evidence.json",
        "kernels/cuda/a.cu",
        "mage/tables.py",
        "mage/report/templates/style.css",
    ],
)
def test_one_byte_of_what_a_report_rests_on_makes_it_stale(tree, name):
    file = tree.root / name
    before = file.read_bytes()
    assert state() == ("fresh", ())
    os.utime(file, (0, 0))
    assert state() == ("fresh", ()), "a time is no content"
    file.write_bytes(before + b" ")
    assert state() == ("stale", (f"{name} changed",))
    file.write_bytes(before)
    assert state() == ("fresh", ())
    if not name.startswith("params/"):
        file.unlink()
        assert state() == ("stale", (f"{name} is gone",))


def test_a_file_that_nothing_rests_on_changes_nothing(tree):
    (tree.root / "kernels/cuda/b.cu").write_text("new")
    (tree.root / "mage/figures.py").write_text("new")
    assert state() == ("fresh", ())


@pytest.mark.parametrize("name", publication.FILES)
def test_a_set_that_does_not_belong_together_is_seen(tree, name):
    (tree.output() / name).write_bytes(b"of another run")
    assert state()[0] == "broken" and name in state()[1][0]
    (tree.output() / name).unlink()
    assert state()[0] == "broken" and name in state()[1][0]


def test_a_failed_run_is_listed_with_its_reason_and_what_changed(tree):
    (tree.output() / "failed.txt").write_text("cell 3 raised ValueError\n\nmore\n")
    (tree.root / "kernels/cuda/a.cu").write_text("changed")
    assert state() == ("failed", ("cell 3 raised ValueError", "kernels/cuda/a.cu changed"))


def test_check_says_which_why_and_what_to_do(tree, run_mage):
    # This process sees a package of the tree's own; `python -m mage` sees the real one, where none of these modules lie.
    (tree.root / "kernels/cuda/a.cu").write_text("changed")
    result = run_mage("check", root=tree.root)
    assert result.rc == 1
    (line,) = result.stdout.splitlines()
    assert "tiny (note-900-tiny)" in line and "kernels/cuda/a.cu changed" in line and "make note-900 EXPERIMENT=tiny" in line


def test_what_changed_is_named_first_and_counted_where_it_is_much():
    reasons = tuple(f"file {number} changed" for number in range(60))
    few, many = (stale.Status(experiment="tiny", note="note-900-tiny", state="stale", reasons=some) for some in (reasons[:7], reasons))
    assert few.few_reasons == few.reasons
    assert many.few_reasons == (*many.reasons[:6], "and 54 more files")


def test_an_experiment_that_never_ran_is_no_failure(tiny_tree, run_mage):
    tiny_tree.note()
    tiny_tree.params()
    result = run_mage("check", root=tiny_tree.root)
    assert result.rc == 0 and "no report yet" in result.stdout
