"""What a note shows of the gate is kept for the very same content, and found anew for any other."""

import json
import shutil
import subprocess
import sys

import pytest

from mage import paths, provenance
from mage.gate import gated, gating


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MAGE_CACHE", str(tmp_path))
    return tmp_path / "gate"


def found_by(monkeypatch):
    """How often the gate itself is asked, while it is."""
    asked = []
    find = gated._find
    monkeypatch.setattr(gated, "_find", lambda *arguments: asked.append(arguments) or find(*arguments))
    return asked


def test_the_second_report_shows_what_the_first_found(cache, monkeypatch):
    asked = found_by(monkeypatch)
    first = gating.here(["gelu"], ["numpy", "triton"])
    second = gating.here(["gelu"], ["numpy", "triton"])
    assert len(asked) == 1 and first == second
    assert [(one.implementation, one.passed) for one in first if one.variant != "tuned"] == [("triton", "passed"), ("numpy", "passed")]
    assert all(one.found and one.found.endswith("+00:00") for one in first)
    gating.here(["gelu"], ["numpy"])
    assert len(asked) == 2


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A cache with one finding in it, to copy."""
    folder = tmp_path_factory.mktemp("found")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAGE_CACHE", str(folder))
        gating.here(["gelu"], ["numpy"])
    return folder / "gate"


@pytest.mark.parametrize("change", ["a module", "a release", "the environment", "a damaged file"])
def test_any_change_has_it_found_anew(change, found, cache, monkeypatch):
    shutil.copytree(found, cache)
    asked = found_by(monkeypatch)
    gating.here(["gelu"], ["numpy"])
    assert not asked, "nothing has changed yet"
    (file,) = cache.iterdir()
    if change == "a module":
        kept = json.loads(file.read_text())
        module = next(name for name in kept["files"] if name.endswith("mage/gate/judgement.py"))
        kept["files"][module] = "0" * 64  # as it would be, had the module been another then
        file.write_text(json.dumps(kept))
    elif change == "a release":
        monkeypatch.setattr(gated.importlib.metadata, "version", lambda name: "99")
    elif change == "the environment":
        monkeypatch.setenv("TRITON_INTERPRET", "0")
    else:
        file.write_text(file.read_text()[:100])
    gating.here(["gelu"], ["numpy"])
    assert len(asked) == 1


def test_a_changed_kernel_is_gated_anew_and_a_wrong_one_fails(cache, tmp_path, monkeypatch):
    """A tree with a kernel of its own: what was kept of the right one is not shown for the wrong one."""
    tree = tmp_path / "tree"
    for folder in ("cuda", "triton", "cutile"):
        (tree / "kernels" / folder).mkdir(parents=True)
        for file in (paths.KERNELS / folder).iterdir():
            if file.is_file():
                (tree / "kernels" / folder / file.name).write_bytes(file.read_bytes())
    code = "from mage.gate import gating; print([r.passed for r in gating.here(['gelu'], ['triton'], 'cpu') if r.variant == 'fixed'])"

    def verdict():
        environment = {**gated.apart.environment(), "MAGE_ROOT": str(tree)}
        return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout

    assert "passed" in verdict()
    kernel = tree / "kernels" / "triton" / "gelu.py"
    kernel.write_text(kernel.read_text().replace("0.044715", "0.054715"))
    assert "failed" in verdict()


def test_what_was_used_belongs_to_the_report_whether_now_or_before(cache, monkeypatch):
    for _ in range(2):
        monkeypatch.setattr(provenance, "used", {})
        monkeypatch.setattr(provenance, "_elsewhere", {})
        gating.here(["gelu"], ["triton"])
        used = provenance.classify(provenance.used)
        assert "kernels/triton/gelu.py" in used["kernels"] and "mage/gate/judgement.py" in used["library"]
        assert not [name for name in used["library"] if "tables" in name or "figures" in name]
        assert "triton" in provenance.versions()
