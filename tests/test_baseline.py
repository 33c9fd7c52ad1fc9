"""The committed baseline: kernels have not moved, and one that moves is named."""

import json
import shutil

import pytest

from mage import paths
from mage.census import baseline
from mage.errors import EvidenceError


@pytest.mark.parametrize("implementation", baseline.IMPLEMENTATIONS)
def test_no_kernel_has_moved(implementation):
    if reason := baseline.known(implementation):
        pytest.skip(reason)
    lines = baseline.moved(implementation)
    assert not lines, "\n".join(["compiled code is not what the baseline has:", *lines, f"if that is meant: {baseline.RENEW}"])


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Kernels, a baseline of Triton's, and a cache of its own, to edit."""
    shutil.copytree(paths.KERNELS, tmp_path / "kernels")
    monkeypatch.setattr(paths, "KERNELS", tmp_path / "kernels")
    monkeypatch.setattr(paths, "RETAINED", tmp_path / "retained")
    monkeypatch.setenv("MAGE_ROOT", str(tmp_path))
    monkeypatch.setenv("MAGE_CACHE", str(tmp_path / "cache"))
    # one operation is enough to tell a baseline by
    every = baseline.counting.rows
    monkeypatch.setattr(baseline.counting, "rows", lambda implementation: every("gelu", implementation))
    return tmp_path


def test_a_kernel_that_moved_is_named_with_both_values(tree):
    (file,) = baseline.renew(["triton"])
    assert baseline.moved("triton") == []
    kernel = tree / "kernels" / "triton" / "gelu.py"
    kernel.write_text(kernel.read_text().replace('"num_warps": 4', '"num_warps": 2'))
    lines = baseline.moved("triton")
    assert "gelu triton fixed for sm_89: threads was 128, is 64" in lines
    assert any("global loads 128" in line for line in lines) and not any("code" in line.split(": ")[1] for line in lines)
    kernel.write_text("raise RuntimeError('broken on purpose')\n")
    assert any("broken on purpose" in line for line in baseline.moved("triton"))
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, "rows": record["rows"][:1]}))
    assert "gelu triton fixed for sm_90: is not in the baseline" in baseline.moved("triton")


def test_a_kernel_that_went_away_is_named_and_one_that_does_not_compile_makes_no_baseline(tree):
    (file,) = baseline.renew(["triton"])
    record = json.loads(file.read_text())
    record["rows"].append(["gelu", "triton", "tuned", *record["rows"][0][3:]])
    file.write_text(json.dumps(record))
    assert baseline.moved("triton") == ["gelu triton tuned for sm_89: is in the baseline and no longer there"]
    before = file.read_bytes()
    (tree / "kernels" / "triton" / "gelu.py").write_text("raise RuntimeError('broken on purpose')\n")
    with pytest.raises(EvidenceError, match="broken on purpose; no baseline was written"):
        baseline.renew(["triton"])
    assert file.read_bytes() == before


def test_another_compiler_has_no_baseline_and_the_reason_says_how_to_make_one(tree):
    (file,) = baseline.renew(["triton"])
    file.rename(file.with_name("baseline-triton-1.0.json"))
    reason = baseline.known("triton")
    assert baseline.compiler("triton") in reason and baseline.RENEW in reason
    with pytest.raises(EvidenceError, match="no baseline for triton"):
        baseline.moved("triton")
    with pytest.raises(EvidenceError, match="not a census baseline"):
        file.write_text("{}")
        baseline.moved("triton")
