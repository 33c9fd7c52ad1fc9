"""Failures that people who do this job reported, one test for each: what happened to them must not happen here.

The number is the case's. Cases 9, 10, 11, 16 and 21 are about the page and live in test_report.py and test_browser.py;
18 (two lists of dependencies) has more tests in test_environment.py, and most have more in test_runner_failures.py.
"""

import itertools
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PUBLISHED = {"report.html", "notebook.ipynb", "provenance.json"}

# The first cell of a note tells that a kernel runs, and where.
OUT = 'out: str = "."  # where the note tells about its kernel\n'
TELL = """\
import json, os, pathlib, sys
pathlib.Path(out, "new").write_text(json.dumps({"prefix": sys.prefix, "pid": os.getpid(), "cwd": os.getcwd()}))
os.replace(pathlib.Path(out, "new"), pathlib.Path(out, "kernel.json"))
"""
SLEEP = "import time; time.sleep(600)"
PICTURE = """\
from matplotlib.figure import Figure
from mage.views.display import FigureView
figure = Figure()
figure.subplots().plot([1, 2, 3])
FigureView("chart", figure, "A chart", "A line that rises from one to three")
"""


@pytest.fixture
def tree(tiny_tree):
    """A note that runs well, and its params file."""
    tiny_tree.note(cells=[TELL, "print('well')"], parameters=OUT)
    tiny_tree.params(out=str(tiny_tree.root))
    return tiny_tree


@pytest.fixture
def bare(make_tree, tmp_path):
    """A bare checkout that a Makefile runs: the library itself, a tiny note, a space and a letter beyond ASCII in its path."""
    tree = make_tree(tmp_path / "bare trée")
    shutil.copy(REPOSITORY / "Makefile", tree.root)
    shutil.copytree(REPOSITORY / "mage", tree.root / "mage", ignore=shutil.ignore_patterns("__pycache__"))
    tree.note(cells=[TELL, "import mage; print(mage.__file__)"], parameters=OUT)
    tree.params(out=str(tree.root))
    return tree


@pytest.fixture
def make(start):
    """make(tree, *targets) starts make in a bare checkout, with the Python of this test run and no PYTHONPATH from outside."""

    def run(tree, *targets):
        command = ["make", "--no-print-directory", "ENV=system", f"PYTHON={sys.executable}", *targets]
        return start(*command, cwd=tree.root, env={"PYTHONPATH": ""})

    return run


def hold(tree):
    """Let the note wait in its second cell."""
    tree.note(cells=[TELL, SLEEP], parameters=OUT)


def test_case_01_an_unknown_parameter_is_refused_before_anything_starts(tree, run_mage):
    good = run_mage("run", "note-900", root=tree.root)
    assert good.rc == 0, good.said
    (tree.root / "kernel.json").unlink()
    tree.note(cells=[TELL], parameters=OUT + "rounds: int = 12  # rounds to take\n")
    tree.params(out=str(tree.root), ronuds=3)
    before = tree.published()
    result = run_mage("run", "note-900", root=tree.root, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert result.rc == 2
    message = result.message
    assert "ronuds" in message and "rounds" in message
    assert not re.search(r"\|\s*(torch|papermill)$", result.stderr, re.MULTILINE), "imported to refuse"
    assert not (tree.root / "kernel.json").exists(), "a kernel was started"
    assert tree.published() == before


def test_case_02_a_note_without_the_parameters_tag_is_refused(tree, run_mage):
    tree.note(cells=["rounds = 12"], parameters=None)
    result = run_mage("run", "note-900", root=tree.root)
    assert result.rc == 2
    assert "parameters" in result.message and "note-900-tiny" in result.message
    assert not tree.output().exists()


def test_case_03_a_kernel_that_dies_is_named_and_renders_nothing(tree, run_mage):
    assert run_mage("run", "note-900", root=tree.root).rc == 0
    before = tree.published()
    tree.note(cells=[TELL, "import signal; os.kill(os.getpid(), signal.SIGKILL)", "print('after')"], parameters=OUT)
    result = run_mage("run", "note-900", root=tree.root)
    assert result.rc == 1
    # Code cells count from the parameters cell, as a reader counts them.
    assert re.search(r"kernel died in cell 3\b", result.message), result.message
    assert tree.published() == before


def test_case_04_a_failed_note_fails_again_and_its_report_is_stale(bare, make):
    assert make(bare, "note-900").wait().rc == 0
    before = bare.published()
    bare.note(cells=[TELL, "raise ValueError('no such stage')"], parameters=OUT)
    for _ in range(2):
        result = make(bare, "note-900").wait()
        assert result.rc != 0 and "no such stage" in result.stderr
        assert bare.published() == before
    said = make(bare, "check").wait().stdout
    line = next(line for line in said.splitlines() if "tiny" in line)
    assert "fresh" not in line and re.search(r"failed|stale", line)
    index = (bare.root / "outputs/index.html").read_text("utf-8")
    assert re.search(r"stale|failed", index), "the index shows the old report as if it were today's"


@pytest.mark.parametrize("changed", ["kernel", "note", "params", "library", "evidence"])
def test_case_05_check_lists_exactly_the_reports_whose_content_changed(changed, used_and_not, run_mage, tmp_path):
    tree = used_and_not.copy(tmp_path / "tree")
    file = {
        "kernel": "kernels/triton/tiny.py",
        "note": "notebooks/note-900-uses.ipynb",
        "params": "params/uses.yaml",
        "library": "mage/views/rounding.py",
        "evidence": "outputs/retained/mage-006/evidence.json",
    }[changed]
    check = {"root": tree.root, "env": {"PYTHONPATH": str(tree.root)}}
    path = tree.root / file
    os.utime(path, (1, 1))
    clean = run_mage("check", **check)
    assert clean.rc == 0 and not re.search(r"\bstale\b", clean.stdout), f"a time is no content:\n{clean.said}"
    content = path.read_bytes()
    stat = path.stat()
    path.write_bytes(content.replace(b"Tiny", b"Tinz") if changed == "note" else content + b"\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    said = run_mage("check", **check).stdout
    stale = [line for line in said.splitlines() if re.search(r"\bstale\b", line)]
    assert len(stale) == 1 and stale[0].startswith("uses"), said
    assert Path(file).name in stale[0] or changed in stale[0], "why it is stale"


@pytest.fixture(scope="module")
def used_and_not(make_tree, tmp_path_factory, run_mage):
    """Two published reports: one used a kernel, a module of the library and evidence, the other none of them."""
    tree = make_tree(tmp_path_factory.mktemp("stale") / "tree")
    shutil.copytree(REPOSITORY / "mage", tree.root / "mage", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(REPOSITORY / "outputs/retained/mage-006", tree.root / "outputs/retained/mage-006")
    (tree.root / "kernels/triton").mkdir()
    (tree.root / "kernels/triton/tiny.py").write_text("def double(x):\n    return 2 * x\n")
    imports = "from mage import evidence, kernels; from mage.views import rounding"
    uses = f"{imports}\nkernels.load('triton/tiny').double(2)\nevidence.load('mage-006')"
    tree.note("note-900-uses", cells=[uses])
    tree.note("note-901-uses-not", cells=["print(2)"])
    tree.params("uses", note="note-900-uses")
    tree.params("not", note="note-901-uses-not")
    for number in ("900", "901"):
        result = run_mage("run", f"note-{number}", root=tree.root, env={"PYTHONPATH": str(tree.root)})
        assert result.rc == 0, result.said
    return tree


def test_case_06_a_figure_that_vanishes_fails_the_run(tree, run_mage):
    """MPLBACKEND=Agg makes plt.show() say nothing; a figure that is displayed as an object is there all the same."""
    tree.note(cells=[PICTURE], parameters=OUT, figures=["chart"])
    result = run_mage("run", "note-900", root=tree.root, env={"MPLBACKEND": "Agg"})
    assert result.rc == 0, result.said
    report = (tree.output() / "report.html").read_text("utf-8")
    assert len(re.findall(r'<figure[^>]* id="fig-chart"', report)) == 1
    lost = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()"
    tree.note(cells=[lost], parameters=OUT, figures=["chart"])
    before = tree.published()
    result = run_mage("run", "note-900", root=tree.root, env={"MPLBACKEND": "Agg"})
    assert result.rc == 1 and "chart" in result.message
    assert tree.published() == before


def test_cases_07_and_14_a_bare_checkout_in_an_odd_directory_runs_without_a_warning(bare, make, start):
    result = make(bare, "note-900").wait()
    assert result.rc == 0, result.said
    assert "WARNING" not in result.stderr.upper(), result.stderr
    assert set(bare.published()) == PUBLISHED
    report = (bare.output() / "report.html").read_text("utf-8")
    assert str(bare.root / "mage") in report, "the note imported another mage than the checkout's"
    inside = json.loads((bare.root / "kernel.json").read_text())["cwd"]
    # The same from another directory: no path comes from where the command was given.
    again = start("make", "-C", bare.root, "ENV=system", f"PYTHON={sys.executable}", "note-900", cwd="/").wait()
    assert again.rc == 0, again.said
    assert json.loads((bare.root / "kernel.json").read_text())["cwd"] == inside


@pytest.mark.parametrize("name", [".venv", None])
def test_case_08_the_kernel_is_the_runners_python_whatever_an_editor_saved(tree, run_mage, tmp_path, name):
    shadow = tmp_path / "jupyter/kernels/python3"
    shadow.mkdir(parents=True)
    (shadow / "kernel.json").write_text(json.dumps({"argv": ["/bin/false"], "display_name": "Python 3", "language": "python"}))
    tree.note(cells=[TELL], parameters=OUT, kernelspec=name and {"name": name, "display_name": name, "language": "python"})
    result = run_mage("run", "note-900", root=tree.root, env={"JUPYTER_PATH": str(tmp_path / "jupyter")})
    assert result.rc == 0, result.said
    assert json.loads((tree.root / "kernel.json").read_text())["prefix"] == sys.prefix


def test_case_12_one_output_has_one_run_at_a_time(tree, start_mage, eventually):
    hold(tree)
    holder = start_mage("run", "note-900", root=tree.root)
    eventually((tree.root / "kernel.json").exists, what="the first run's first cell")
    second = start_mage("run", "note-900", root=tree.root).wait()
    assert second.rc == 3
    assert str(holder.process.pid) in second.message, "the holder is named"
    holder.process.send_signal(signal.SIGTERM)
    assert holder.wait().rc == 143


def test_case_12_one_device_has_one_run_at_a_time(tree, start_mage, run_mage, eventually):
    """Two outputs, one device: a note whose metadata says that it measures holds the device while it runs."""
    for stem, cells in (("note-900-tiny", [TELL, SLEEP]), ("note-901-other", [])):
        path = tree.note(stem, cells=cells, parameters=OUT)
        notebook = json.loads(path.read_text("utf-8"))
        notebook["metadata"]["mage"]["device"] = True
        path.write_text(json.dumps(notebook), "utf-8")
    tree.params("other", note="note-901-other")
    # A device of this test's own: the lock of a real one is the whole machine's.
    env = {"CUDA_VISIBLE_DEVICES": f"test-{os.getpid()}"}
    holder = start_mage("run", "note-900", root=tree.root, env=env)
    eventually((tree.root / "kernel.json").exists, what="the holder's first cell")
    second = run_mage("run", "note-901", root=tree.root, env=env)
    assert second.rc == 3 and "device" in second.message and str(holder.process.pid) in second.message
    holder.process.send_signal(signal.SIGKILL)
    holder.wait()
    assert run_mage("run", "note-901", root=tree.root, env=env).rc == 0, "a killed run still holds the device"


def test_case_12_make_runs_notes_one_after_the_other_whatever_j_says(bare, make):
    """Two measurements at once are both wrong: the notes' times must not overlap."""
    times = 'import time\nbegan = time.monotonic(); time.sleep(1)\nprint("ran from", began, "to", time.monotonic())'
    for number in ("900", "901", "902"):
        bare.note(f"note-{number}-timed", cells=[times])
        bare.params(f"timed-{number}", note=f"note-{number}-timed")
    (bare.root / "notebooks/note-900-tiny.ipynb").unlink()
    (bare.root / "params/tiny.yaml").unlink()
    result = make(bare, "-j4", "notes").wait()
    assert result.rc == 0, result.said
    spans = []
    for number in ("900", "901", "902"):
        text = (bare.output(f"timed-{number}") / "notebook.ipynb").read_text("utf-8")
        spans.append(tuple(map(float, re.search(r"ran from ([\d.]+) to ([\d.]+)", text).groups())))
    spans.sort()
    assert all(before[1] < after[0] for before, after in itertools.pairwise(spans)), spans


# A terminal signals the whole group of processes; kill signals make alone.
MAKE_ENDS = [(signal.SIGINT, "group", "interrupted"), (signal.SIGHUP, "group", "hung up"), (signal.SIGTERM, "make", "terminated"),
             (signal.SIGKILL, "make", None)]  # fmt: skip


@pytest.mark.parametrize("scenario", MAKE_ENDS, ids=lambda s: s[0].name)
def test_case_13_ending_make_ends_all_of_it(scenario, bare_good, at_once, make, eventually, tmp_path_factory):
    def play(scenario):
        number, whom, _ = scenario
        tree = bare_good.copy(tmp_path_factory.mktemp("make") / "bare trée")
        (tree.root / "kernel.json").unlink()
        hold(tree)
        tree.params(out=str(tree.root))
        before = tree.published()
        started = make(tree, "note-900")
        eventually((tree.root / "kernel.json").exists, what="the first cell")
        (os.killpg if whom == "group" else os.kill)(started.process.pid, number)
        gone = started.gone(5)
        return before, gone, started.wait(), tree.published()

    before, gone, result, after = at_once("test_case_13_ending_make_ends_all_of_it", play)(scenario)
    assert gone, "a process was there 5 s after the signal"
    assert result.rc != 0
    if scenario[2]:
        (line,) = [line for line in result.stderr.splitlines() if line.startswith("mage:")]
        assert scenario[2] in line
        assert "Traceback" not in result.stderr
    assert after == before


@pytest.fixture(scope="module")
def bare_good(make_tree, tmp_path_factory, start):
    """A bare checkout whose note ran well."""
    tree = make_tree(tmp_path_factory.mktemp("bare") / "bare trée")
    shutil.copy(REPOSITORY / "Makefile", tree.root)
    shutil.copytree(REPOSITORY / "mage", tree.root / "mage", ignore=shutil.ignore_patterns("__pycache__"))
    tree.note(cells=[TELL], parameters=OUT)
    tree.params(out=str(tree.root))
    result = start("make", "ENV=system", f"PYTHON={sys.executable}", "note-900", cwd=tree.root).wait()
    assert result.rc == 0, result.said
    return tree


@pytest.mark.parametrize(
    ("limit", "says"),
    [({"cell_timeout_s": 2}, r"cell 3\b.*\b2 s"), ({"note_timeout_s": 5}, r"note.*\b5 s")],
    ids=["cell", "note"],
)
def test_case_15_a_limit_for_a_cell_and_one_for_the_note(tree, run_mage, limit, says):
    hold(tree)
    tree.params(out=str(tree.root), **limit)
    result = run_mage("run", "note-900", root=tree.root)
    assert result.rc == 1
    assert re.search(says, result.message), result.message
    assert "Traceback" not in result.stderr and result.left == ()


def test_case_17_kernels_live_in_files():
    """Triton and cuTile read a kernel's source from its file: a note only imports it, and no file builds one from a string."""
    for path in (REPOSITORY / "notebooks").glob("*.ipynb"):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            source = "".join(cell["source"])
            assert not re.search(r"@(triton\.jit|ct\.kernel)|__global__", source), f"{path.name}, cell {cell['id']}"


def test_case_17_a_kernel_loaded_from_its_file_knows_its_source(tree, run_mage):
    (tree.root / "kernels/triton").mkdir()
    (tree.root / "kernels/triton/tiny.py").write_text("def double(x):\n    return 2 * x  # as written\n")
    see = "import inspect\nfrom mage import kernels\nprint(inspect.getsource(kernels.load('triton/tiny').double))"
    tree.note(cells=[see])
    tree.params()
    result = run_mage("run", "note-900", root=tree.root)
    assert result.rc == 0, result.said
    assert "# as written" in (tree.output() / "notebook.ipynb").read_text("utf-8").split('"outputs"', 1)[1]


def test_case_18_one_list_of_dependencies():
    text = (REPOSITORY / "environment.yml").read_text("utf-8")
    assert "-e ." in text and "-c constraints.txt" in text
    assert not re.search(r"(torch|numpy|papermill|triton)", text), "a package is listed twice"


def test_case_19_the_readme_says_which_systems():
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    assert "Linux" in readme and "WSL2" in readme


def test_case_20_a_report_says_what_it_ran_on_and_when(tree, run_mage):
    result = run_mage("run", "note-900", root=tree.root)
    assert result.rc == 0, result.said
    provenance = json.loads((tree.output() / "provenance.json").read_text("utf-8"))
    assert provenance["schema"] == "mage.provenance/1"
    assert provenance["versions"]["python"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}")
    assert provenance["device"] and re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d", provenance["started"])
    report = (tree.output() / "report.html").read_text("utf-8")
    for said in (provenance["versions"]["python"], provenance["started"][:10], "make note-900", provenance["hashes"]["note"][:8]):
        assert said in report, f"the report does not say {said}"
    assert str(provenance["device"]["name"]) in report


def test_case_20_loaded_libraries_are_named_with_their_versions(tree, run_mage):
    tree.note(cells=["import numpy"])
    tree.params()
    assert run_mage("run", "note-900", root=tree.root).rc == 0
    import numpy

    versions = json.loads((tree.output() / "provenance.json").read_text("utf-8"))["versions"]
    assert versions["numpy"] == numpy.__version__
    assert "torch" not in versions, "what was not imported did not take part"


def test_case_22_a_failed_notebook_is_not_rendered(tree, run_mage):
    tree.note(cells=["raise ValueError('no such stage')"])
    tree.params()
    assert run_mage("run", "note-900", root=tree.root).rc == 1
    assert list((tree.root / "outputs").rglob("*.html")) in ([], [tree.root / "outputs/index.html"])
