"""The tree as it is committed: one list of dependencies, clean notebooks, a Makefile that works anywhere."""

import ast
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

REPOSITORY = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("note-*.ipynb"))
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
DECLARED = [Requirement(line) for lines in (PROJECT["dependencies"], *EXTRAS.values()) for line in lines]


def tracked() -> list[Path]:
    """The files of the tree that git has or would take."""
    if not (REPOSITORY / ".git").exists():
        pytest.skip("not a git checkout")
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=REPOSITORY, capture_output=True, check=True).stdout.decode().split("\0")
    return [REPOSITORY / name for name in names if name and (REPOSITORY / name).is_file()]


def constraints() -> dict[str, Version]:
    pins = {}
    for line in (REPOSITORY / "constraints.txt").read_text("utf-8").splitlines():
        line = line.split("#")[0].strip()
        if line:
            name, version = re.fullmatch(r"([A-Za-z0-9._-]+)==([^\s;,*]+)", line).groups()
            assert canonicalize_name(name) not in pins, f"{name} is pinned twice"
            pins[canonicalize_name(name)] = Version(version)
    return pins


# --- dependencies ------------------------------------------------------------------------------------------------


def test_environment_yml_only_refers_to_the_one_list():
    from ruamel.yaml import YAML

    environment = YAML(typ="safe").load((REPOSITORY / "environment.yml").read_text("utf-8"))
    plain = [item for item in environment["dependencies"] if isinstance(item, str)]
    (pip,) = [item["pip"] for item in environment["dependencies"] if isinstance(item, dict)]
    assert sorted(re.match(r"[a-z]+", item)[0] for item in plain) == ["pip", "python"]
    assert pip[0] == "-c constraints.txt"
    extras = re.fullmatch(r"-e \.\[([a-z,]+)\]", pip[1])[1].split(",")
    assert len(pip) == 2
    assert set(extras) == set(EXTRAS), "the extras that pyproject.toml has and those that environment.yml installs differ"
    python = next(item for item in plain if item.startswith("python"))
    assert python.removeprefix("python").startswith(PROJECT["requires-python"])


def test_the_makefile_installs_every_extra_with_the_constraints():
    install = next(line for line in (REPOSITORY / "Makefile").read_text("utf-8").splitlines() if "pip install" in line)
    assert "-c constraints.txt" in install
    assert set(re.search(r"'\.\[([a-z,]+)\]'", install)[1].split(",")) == set(EXTRAS)


def test_constraints_pin_every_dependency_within_its_range():
    pins = constraints()
    for requirement in DECLARED:
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin is not None, f"constraints.txt has no version of {requirement.name}"
        assert pin in requirement.specifier, f"constraints.txt pins {requirement.name} {pin}, outside {requirement.specifier}"


def test_constraints_pin_what_the_dependencies_need_in_turn():
    pins, queue, seen = constraints(), [(str(r.name), frozenset(r.extras)) for r in DECLARED], set()
    while queue:
        name, extras = item = queue.pop()
        if item in seen:
            continue
        seen.add(item)
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # an environment that was not built from these lists
        for requirement in map(Requirement, needs):
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in extras or {""}):
                assert canonicalize_name(requirement.name) in pins, f"constraints.txt lacks {requirement.name} ({name})"
                queue.append((requirement.name, frozenset(requirement.extras)))


@pytest.mark.parametrize(
    ("name", "versions"),
    [("torch", ["2.11.0", "2.13.0"]), ("triton", ["3.6.0", "3.7.1"]), ("numpy", ["2.4.6", "2.5.0"]), ("pandas", ["3.0.0"])],
)
def test_ranges_admit_the_other_host(name, versions):
    (requirement,) = [r for r in DECLARED if r.name == name]
    assert all(version in requirement.specifier for version in versions)


def test_the_tile_compiler_is_of_one_release_and_not_of_the_extra():
    pins = constraints()
    assert len({pins[f"nvidia-{part}"] for part in ("cuda-tileiras", "cuda-nvcc", "nvvm")}) == 1
    assert all(not r.extras for r in DECLARED if r.name == "cuda-tile")


def test_constraints_name_no_place():
    text = (REPOSITORY / "constraints.txt").read_text("utf-8")
    assert not re.search(r"^\s*-|://|@ |file:", text, re.MULTILINE)


# Declared, though nothing imports them: programs that are called, and what another package fails without.
CALLED_NOT_IMPORTED = {
    "cuda-bindings", "ipykernel", "jupyterlab", "nvidia-cuda-nvcc", "nvidia-cuda-nvrtc", "nvidia-cuda-tileiras",
    "nvidia-nvvm", "pytest-timeout", "pytest-xdist", "ruff",
}  # fmt: skip
# Part of the standard tools of every Python test environment, through pytest.
COMES_WITH_PYTEST = {"packaging"}
OURS = {"mage", "conftest", "tests", "kernels"}


def imported() -> dict[str, str]:
    """Distribution -> one file that imports it, over the library, the kernels, the notes and the tests."""
    sources = {}
    for path in tracked():
        if path.suffix == ".py":
            sources[path] = path.read_text("utf-8")
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        sources[path] = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    distributions, found = importlib.metadata.packages_distributions(), {}
    for path, source in sources.items():
        local = {p.stem for p in path.parent.glob("*.py")} if path.parent.name == "tests" else set()
        for node in ast.walk(ast.parse(source)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                # a name of a shared namespace (cuda, nvidia) is told apart by its second part
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                top, _, rest = name.partition(".")
                if top in sys.stdlib_module_names or top in OURS or top in local:
                    continue
                owners = distributions.get(top, [top])
                if top == "cuda":
                    owners = [f"cuda-{rest.split('.')[0]}"]
                for owner in {canonicalize_name(o) for o in owners}:
                    found.setdefault(owner, str(path.relative_to(REPOSITORY)))
    return found


def test_what_is_imported_is_declared():
    declared = {canonicalize_name(r.name) for r in DECLARED} | COMES_WITH_PYTEST
    missing = {name: where for name, where in imported().items() if name not in declared}
    assert not missing, f"imported, but not in pyproject.toml: {missing}"


def test_what_is_declared_is_used():
    unused = {canonicalize_name(r.name) for r in DECLARED} - set(imported()) - CALLED_NOT_IMPORTED
    assert not unused, f"in pyproject.toml, but nothing imports or calls it: {sorted(unused)}"


# --- what is committed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_note_is_committed_as_source(path):
    notebook = json.loads(path.read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) >= (4, 5)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert "papermill" not in notebook["metadata"] and "widgets" not in notebook["metadata"]
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z][a-z0-9-]*", name) for name in ids), "ids are short words, not what an editor drew"
    for cell in notebook["cells"]:
        assert not set(cell["metadata"]) - {"tags"}, f"cell {cell['id']} carries an editor's or papermill's metadata"
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None, f"cell {cell['id']} keeps an output"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_note_has_one_parameters_cell_of_annotated_literals(path):
    cells = [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    tagged = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
    assert len(tagged) == 1 and tagged[0] is cells[0], "exactly one parameters cell, the first code cell"
    source = "".join(tagged[0]["source"])
    names = []
    for node in ast.parse(source).body:
        assert isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name), f"line {node.lineno}: name: type = literal"
        ast.literal_eval(node.value)
        assert "#" in ast.get_source_segment(source, node) + source.splitlines()[node.end_lineno - 1], "the meaning, as a comment"
        names.append(node.target.id)
    assert {"experiment", "operations", "implementations", "statistic"} <= set(names)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_note_holds_prose_and_calls_no_logic(path):
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            for node in ast.walk(ast.parse("".join(cell["source"]))):
                assert not isinstance(
                    node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.For | ast.While | ast.Try | ast.With
                ), f"cell {cell['id']}: logic lives in mage, with a test"


def test_the_tracked_tree_is_small():
    size = sum(path.stat().st_size for path in tracked())
    assert size < 4 * 2**20, f"{size / 2**20:.1f} MiB are tracked"


def test_no_file_names_a_machine():
    # A home or a working place of one machine; this file builds the words, so as not to find itself.
    places = "|".join(("root", "work", "opt/" + "wheels", r"home/\w+", r"Users/\w+"))
    machine = re.compile(rf"(?<![\w.~-])/(?:{places})/[\w.]")
    hosts = ("pypi" + r"\.org", "pythonhosted" + r"\.org", "npm" + r"js\.(?:org|com)", "debian" + r"\.org")
    registry = re.compile("|".join(hosts))
    for path in tracked():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # an image
        for number, line in enumerate(text.splitlines(), 1):
            assert not machine.search(line), f"{path.relative_to(REPOSITORY)}:{number} names a place of one machine"
            assert not registry.search(line), f"{path.relative_to(REPOSITORY)}:{number} names a registry's host"


def test_ruff_is_clean():
    check = [sys.executable, "-m", "ruff", "check", "--no-cache", "."]
    done = subprocess.run(check, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# --- the Makefile ------------------------------------------------------------------------------------------------

# Stands for python3 where only the order of installs is asked: it notes every pip call and makes an "environment"
# whose python is itself. The list of notes it leaves to a real one, without the packages of an environment.
STUB = f"""#!/bin/sh
case "$*" in
    "-m mage notes") exec "{sys.executable}" -S -m mage notes ;;
    *"-m venv"*) for last; do :; done; mkdir -p "$last/bin"; cp "$0" "$last/bin/python"; echo venv >> "$STUB_LOG" ;;
    *"-m pip"*) echo pip >> "$STUB_LOG"; [ -z "$STUB_KILL" ] || kill -KILL $PPID; exit ${{STUB_PIP:-0}} ;;
    *version_info*) exit ${{STUB_OLD:-0}} ;;
    *ensurepip*) exit ${{STUB_NO_VENV:-0}} ;;
    --version) echo "Python 3.9.1" ;;
    *) echo "ran $*" ;;
esac
"""


@pytest.fixture
def made(tmp_path, make_tree):
    """make(*args, **env) in a tree of two tiny notes, in a directory with a space and a letter beyond ASCII."""
    root = tmp_path / "a trée"
    tree = make_tree(root)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(REPOSITORY / name, root)
    shutil.copytree(REPOSITORY / "mage", root / "mage", ignore=shutil.ignore_patterns("__pycache__"))
    tree.note("note-900-tiny", title="A tiny note: “½” of it")
    tree.note("note-901-other", title="Another")
    tree.params("tiny", note="note-900-tiny")
    tree.params("tiny-two", note="note-900-tiny")
    stub = tmp_path / "stub-python"
    stub.write_text(STUB)
    stub.chmod(0o755)
    log = tmp_path / "log"
    log.touch()

    def make(*args, root=root, **env):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "MAGE_"))}
        return subprocess.run(
            ["make", f"PYTHON={stub}", *args],
            cwd=root, capture_output=True, text=True, env=clean | {"STUB_LOG": str(log)} | env, timeout=60,
        )  # fmt: skip

    make.root, make.log = root, lambda: log.read_text().split()
    return make


def test_make_alone_prints_the_targets_and_the_notes_with_their_titles(made):
    done = made()
    assert done.returncode == 0 and done.stderr == ""
    for target in ("help", "setup", "note-NNN", "notes", "test", "lab", "params", "check", "clean"):
        assert re.search(rf"^  {target}\s+\S", done.stdout, re.MULTILINE), f"help lacks {target}"
    notes = [line for line in done.stdout.splitlines() if line.startswith("note-9")]
    assert "A tiny note: “½” of it" in notes[0] and "tiny-two" in notes[0] and "no experiment" not in notes[0]
    assert "Another" in notes[1] and "note-901-other" in notes[1]
    assert made.log() == [], "help needs no environment"


def test_make_lists_the_real_notes():
    done = subprocess.run(["make"], cwd=REPOSITORY, capture_output=True, text=True)
    for path in NOTEBOOKS:
        title = json.loads(path.read_text("utf-8"))["metadata"]["mage"]["title"]
        assert re.search(rf"^{path.stem[:8]} +{re.escape(title)} .*{path.stem}", done.stdout, re.MULTILINE)


def test_a_note_that_is_not_there_is_refused_with_those_that_are(made):
    done = made("note-999")
    assert done.returncode != 0
    assert "note-999" in done.stderr and "note-900" in done.stderr and "note-901" in done.stderr
    done = made("params")
    assert done.returncode != 0 and "NOTE=" in done.stderr
    assert made.log() == [], "a wrong request builds no environment"


def test_every_target_but_help_and_clean_builds_the_environment_first(made):
    for target in ("setup", "note-900", "notes", "test", "lab", "check", "params"):
        done = made("--dry-run", target, "NOTE=900")
        assert "-m venv" in done.stdout and "pip install" in done.stdout, target
    for target in ("help", "clean"):
        assert "pip install" not in made("--dry-run", target).stdout


def test_a_second_make_installs_nothing_and_a_changed_list_does(made):
    assert made("setup").returncode == 0
    assert made.log() == ["venv", "pip"]
    assert "ran -m mage run note-900" in made("note-900").stdout
    assert made.log() == ["venv", "pip"]
    newer = (made.root / ".venv/.stamp-installed").stat().st_mtime + 10
    os.utime(made.root / "constraints.txt", (newer, newer))
    made("setup")
    assert made.log() == ["venv", "pip", "pip"]


@pytest.mark.parametrize("how", [{"STUB_PIP": "1"}, {"STUB_KILL": "1"}], ids=["failed", "killed"])
def test_an_install_that_was_cut_short_leaves_no_stamp(made, how):
    assert made("setup", **how).returncode != 0
    assert made("note-900").returncode == 0
    assert made.log() == ["venv", "pip", "venv", "pip"], "the next make starts anew"


def test_a_copied_tree_builds_its_own_environment(made, tmp_path):
    made("setup")
    shutil.copytree(made.root, tmp_path / "copy", symlinks=True)
    made("setup", root=tmp_path / "copy")
    assert made.log() == ["venv", "pip", "venv", "pip"], "the copy's environment points at the first tree"


def test_env_system_installs_nothing_and_finds_mage(made):
    done = made("ENV=system", "note-900", "EXPERIMENT=tiny")
    assert done.returncode == 0 and "ran -m mage run note-900 -e tiny" in done.stdout
    assert made.log() == [] and not (made.root / ".venv").exists()
    show = "print:;@echo $$PYTHONPATH"
    done = made("ENV=system", "--eval", show, "print", PYTHONPATH="/elsewhere")
    assert done.stdout.strip() == f"{made.root}:/elsewhere"


def test_an_old_python_and_a_missing_venv_are_named(made):
    done = made("setup", STUB_OLD="1")
    assert done.returncode != 0 and "3.11" in done.stderr and "3.9.1" in done.stderr and "PYTHON=" in done.stderr
    done = made("setup", STUB_NO_VENV="1")
    assert done.returncode != 0 and "python3-venv" in done.stderr
    assert made.log() == []


def test_clean_keeps_retained_evidence_and_the_environment(made):
    made("setup")
    for name in ("outputs/tiny/report.html", "outputs/index.html", "outputs/retained/x/evidence.json", "mage/__pycache__/a.pyc"):
        (made.root / name).parent.mkdir(parents=True, exist_ok=True)
        (made.root / name).write_text("x")
    assert made("clean").returncode == 0
    assert not (made.root / "outputs/tiny").exists() and not (made.root / "outputs/index.html").exists()
    assert not (made.root / "mage/__pycache__").exists()
    assert (made.root / "outputs/retained/x/evidence.json").exists()
    made("note-900")
    assert made.log() == ["venv", "pip"]


def test_rules_are_written_comment_phony_recipe():
    lines = (REPOSITORY / "Makefile").read_text("utf-8").splitlines()
    for number, line in enumerate(lines):
        if line.startswith("## "):
            assert lines[number + 1].startswith(".PHONY:"), line
            targets = lines[number + 1].removeprefix(".PHONY:").strip()
            assert lines[number + 2].startswith(targets + ":"), line
    text = "\n".join(lines)
    assert re.search(r"^\.NOTPARALLEL:$", text, re.MULTILINE)
    called = set(re.findall(r"-m ([a-z]+)", re.sub(r"#.*", "", text)))
    assert called == {"mage", "pytest", "jupyterlab", "venv", "pip"}
