"""JupyterLab as `make lab` opens it, in a real browser: a note cell by cell, and a kernel edited while the session runs.

``browser/lab.mjs`` drives chromium; what is right is decided here.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

REPOSITORY = Path(__file__).resolve().parent.parent
BROWSER = REPOSITORY / "tests" / "browser"
TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def lab(copied_tree, start, eventually, tmp_path_factory):
    """lab(steps) -> (what each step saw, the tree): a server of its own, on a free port, over a copy of the tree."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    node = shutil.which("node")
    if not node or not (BROWSER / "node_modules" / "playwright-core").is_dir():
        pytest.skip("no playwright-core (apt-get install chromium npm && npm ci --prefix tests/browser)")
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed (make setup)")
    tree, home = copied_tree("lab"), tmp_path_factory.mktemp("lab-home")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"HOME": str(home), "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))}
    environment |= {f"JUPYTER_{name}_DIR": str(home / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    recipe = re.search(r"-m jupyterlab(?P<options>.*)", (REPOSITORY / "Makefile").read_text())["options"]
    options = recipe.replace("$(CURDIR)", str(tree.root)).replace("'", "").split()
    server = start(
        sys.executable, "-m", "jupyterlab", *options, "--no-browser", "--allow-root", "--LabApp.expose_app_in_browser=True",
        f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}",
        root=tree.root, env=environment, cwd=tree.root,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert server.process.poll() is None, server.err.read_text()
        try:
            return urllib.request.urlopen(f"{address}/api/status?token={TOKEN}", timeout=5).status == 200
        except OSError:
            return False

    eventually(answers, 60, "the answer of JupyterLab")

    def work(*steps: dict) -> list:
        command = [node, BROWSER / "lab.mjs", chromium, home / "profile", address, TOKEN, json.dumps(steps)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, env={**os.environ, "HOME": str(home)})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    yield work, tree
    server.end()


def test_a_note_runs_cell_by_cell_and_shows_its_figures(lab):
    work, tree = lab
    path = "notebooks/note-002-the-first-rewrite.ipynb"
    notebook = json.loads((tree.root / path).read_text())
    cells = [cell["id"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    found, *ran = work({"do": "open", "path": path}, *({"do": "run", "cell": cell} for cell in cells))
    assert found == cells
    assert [one["cell"] for one in ran if one["error"]] == [], [one["error"] for one in ran if one["error"]]
    figures = [figure for one in ran for figure in one["figures"]]
    assert sorted(figure["id"] for figure in figures) == sorted(f"fig-{name}" for name in notebook["metadata"]["mage"]["figures"])
    assert all(figure["natural"] > 100 and figure["width"] > 100 and figure["height"] > 50 for figure in figures), figures
    said = {one["cell"]: one["text"] for one in ran}
    assert "343.99" in said["answer"] and "note 003" in said["neighbours"]


def test_an_edited_kernel_is_what_the_next_cell_runs(lab):
    work, tree = lab
    kernel = str(tree.root / "kernels/cuda/layernorm.cu")
    right, wrong = "inverse_std = rsqrt_approx(", "inverse_std = 1.01f * rsqrt_approx("
    gate, edit = {"do": "run", "cell": "gate"}, {"do": "replace", "file": kernel, "after": "layernorm_row("}
    _, setup, choose, before, edited, after, restored, mended = work(
        {"do": "open", "path": "notebooks/explore.ipynb"},
        {"do": "run", "cell": "setup"}, {"do": "run", "cell": "choose"}, gate,
        edit | {"from": right, "to": wrong}, gate, edit | {"from": wrong, "to": right}, gate,
    )  # fmt: skip
    assert "host C++" in setup["text"] or "gpu" in setup["text"]
    assert "kernels/cuda/layernorm.cu" in choose["text"] and edited and restored
    verdicts = [re.search(r"CUDA C\+\+, row\s*(passed|failed)", one["text"]) for one in (before, after, mended)]
    assert [found and found[1] for found in verdicts] == ["passed", "failed", "passed"]
