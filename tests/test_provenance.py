"""What a report rests on: the process that used a file says so, with the content it used."""

import hashlib
import json
import subprocess
import sys

import pytest

from mage import paths, provenance

A_NOTE = "from mage import kernels\nkernels.load('triton/first')"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def used(monkeypatch):
    """The list of used files of this process, empty for one test."""
    monkeypatch.setattr(provenance, "used", {})
    return provenance.used


def test_the_first_use_of_a_file_counts(tmp_path, used):
    file = tmp_path / "kernel.py"
    file.write_bytes(b"first")
    provenance.note_use(file)
    file.write_bytes(b"second")
    provenance.note_use(file)
    assert used == {str(file): sha256(b"first")}


def test_what_was_read_counts_and_not_what_is_there_now(tmp_path, used):
    file = tmp_path / "evidence.json"
    file.write_bytes(b"as it is now")
    provenance.note_use(file, b"as it was read")
    assert used[str(file)] == sha256(b"as it was read")


def test_one_file_by_two_names_is_one_file(tmp_path, used):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    provenance.note_use(tmp_path / "file")
    provenance.note_use(str(tmp_path / "link"))
    assert list(used) == [str(tmp_path / "file")]


def test_files_are_told_apart_by_where_they_lie():
    root = paths.ROOT.resolve()
    files = {
        str(root / "outputs/retained/mage-006/evidence.json"): "a",
        str(root / "kernels/cuda/matmul.cu"): "b",
        str(paths.PACKAGE / "tables" / "rows.py"): "c",
        str(root / "pyproject.toml"): "d",
        "/elsewhere/file": "e",
    }
    sorted_out = provenance.classify(files)
    assert sorted_out == {
        "evidence": {"outputs/retained/mage-006/evidence.json": "a"},
        "kernels": {"kernels/cuda/matmul.cu": "b"},
        "library": {"mage/tables/rows.py": "c"},
        "files": {"pyproject.toml": "d", "/elsewhere/file": "e"},
    }
    back = {str(provenance.located(kind, name)) for kind, named in sorted_out.items() for name in named}
    assert back == set(files)


def reported(code: str) -> dict:
    """What a process that records its imports and then runs `code` says it used."""
    program = f"from mage import provenance\nprovenance.record_imports()\n{code}\nprint(provenance.report())"
    command = [sys.executable, "-c", program]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=paths.PACKAGE.parent).stdout)


def test_each_module_of_mage_notes_itself_when_it_is_imported():
    before = set(provenance.classify(reported("")["files"])["library"])
    assert {"mage/__init__.py", "mage/provenance.py", "mage/paths.py"} <= before
    report = reported("import mage.notes, json, email.message")
    library = provenance.classify(report["files"])["library"]
    assert set(library) - before == {"mage/notes/__init__.py", "mage/errors.py"}
    assert library["mage/notes/__init__.py"] == sha256((paths.PACKAGE / "notes" / "__init__.py").read_bytes())


def test_only_imported_packages_have_a_version():
    versions = reported("")["versions"]
    assert versions["python"].count(".") == 2 and versions["mage"] == provenance.mage_version()
    assert set(versions) == {"python", "mage"}
    assert "numpy" in reported("import numpy")["versions"]


def test_the_version_is_the_checkouts_own():
    assert f'version = "{provenance.mage_version()}"' in (paths.PACKAGE.parent / "pyproject.toml").read_text("utf-8")


# --- git ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def repository_at(tmp_path, monkeypatch):
    """A tree of one commit, in which this process looks."""
    root = tmp_path / "tree"
    (root / "sub").mkdir(parents=True)
    (root / "file").write_text("content")
    monkeypatch.setattr(paths, "ROOT", root)
    identity = ["-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "file"], [*identity, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *command], cwd=root, check=True, capture_output=True)
    return root


def test_a_checkout_has_a_commit_and_may_be_dirty(repository_at, monkeypatch):
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository_at, capture_output=True, text=True).stdout.strip()
    # A hook of another repository points git there.
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert provenance.git_state() == {"commit": commit, "dirty": False}
    (repository_at / "file").write_text("changed")
    assert provenance.git_state() == {"commit": commit, "dirty": True}


def test_a_tree_without_git_says_nothing_of_a_repository_around_it(repository_at, monkeypatch):
    monkeypatch.setattr(paths, "ROOT", repository_at / "sub")
    assert provenance.git_state() is None


def test_a_repository_without_a_commit_has_no_state(tmp_path, monkeypatch):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    assert provenance.git_state() is None


# --- a run -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ran(tmp_path_factory, make_tree, run_mage):
    """A tree whose note read one of two kernel files and one evidence file, and edited a third after using it."""
    tree = make_tree(tmp_path_factory.mktemp("provenance") / "tree")
    for name in ("first", "second", "edited"):
        file = tree.root / f"kernels/triton/{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"NAME = {name!r}\n")
    evidence = tree.root / "outputs/retained/tiny/evidence.json"
    evidence.parent.mkdir()
    evidence.write_text('{"origin": "retained", "device": {"name": "A GPU", "during": {}}, "when": "2026-01-02T03:04:05Z"}')
    edit = "kernels.load('triton/edited')\nfrom mage import paths, provenance\n"
    edit += "(paths.KERNELS / 'triton/edited.py').write_text('NAME = 0')\n"
    tree.note(cells=[A_NOTE, edit, "provenance.note_use(paths.RETAINED / 'tiny/evidence.json')"])
    tree.params(statistic="mean")
    result = run_mage("run", "note-900", root=tree.root)
    assert result.rc == 0, result.said
    return tree, json.loads((tree.output() / "provenance.json").read_bytes())


def test_the_record_names_what_the_kernel_used(ran):
    tree, record = ran
    assert record["schema"] == "mage.provenance/1"
    assert (record["note"], record["experiment"], record["origin"]) == ("note-900-tiny", "tiny", "retained")
    assert record["params"] == {
        "experiment": "tiny", "operations": ["matmul"], "implementations": ["pytorch"], "statistic": "mean"
    }  # fmt: skip
    assert record["hashes"]["note"] == sha256((tree.root / "notebooks/note-900-tiny.ipynb").read_bytes())
    assert record["hashes"]["params"] == sha256((tree.root / "params/tiny.yaml").read_bytes())
    assert set(record["hashes"]["kernels"]) == {"kernels/triton/first.py", "kernels/triton/edited.py"}
    assert {"mage/kernels/__init__.py", "mage/provenance.py"} <= set(record["hashes"]["library"])
    assert not {"mage/notebook/runner.py", "mage/notes/params.py"} & set(record["hashes"]["library"]), "the runner's guess"
    about = record["evidence"]["tiny"]
    assert (about["origin"], about["device"], about["when"]) == ("retained", {"name": "A GPU"}, "2026-01-02T03:04:05Z")
    assert about["sha256"] == sha256((tree.root / about["path"]).read_bytes())
    assert record["git"] is None and record["command"] == "make note-900 EXPERIMENT=tiny"
    assert record["started"] <= record["finished"]
    assert record["files"]["report.html"] == sha256((tree.output() / "report.html").read_bytes())
    assert record["files"]["notebook.ipynb"] == sha256((tree.output() / "notebook.ipynb").read_bytes())
    assert "mage/report/__init__.py" in record["page"] and "mage/report/templates/mage/style.css" in record["page"]


def test_a_file_edited_during_the_run_makes_the_report_stale(ran, run_mage):
    tree, record = ran
    assert record["hashes"]["kernels"]["kernels/triton/edited.py"] == sha256(b"NAME = 'edited'\n")
    result = run_mage("check", root=tree.root)
    assert result.rc == 1 and "kernels/triton/edited.py changed" in result.stdout
    assert "first.py" not in result.stdout


def test_a_second_run_differs_in_its_time_alone(ran, run_mage):
    tree, first = ran
    page, notebook = (tree.output() / "report.html").read_text(), (tree.output() / "notebook.ipynb").read_bytes()
    (tree.root / "kernels/triton/edited.py").write_text("NAME = 'edited'\n")
    assert run_mage("run", "note-900", root=tree.root).rc == 0
    second = json.loads((tree.output() / "provenance.json").read_bytes())
    assert (tree.output() / "notebook.ipynb").read_bytes() == notebook
    again = (tree.output() / "report.html").read_text().splitlines()
    changed = [(a, b) for a, b in zip(page.splitlines(), again, strict=True) if a != b]
    assert all("run-time" in a for a, _ in changed) and len(changed) <= 1
    for record in (first, second):
        for key in ("started", "finished", "files"):
            del record[key]
    assert first == second
