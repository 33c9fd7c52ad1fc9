"""`mage.explore`: an operation, its kernels and their code, looked at in a session that stays open."""

import importlib
import json
import re
import shutil
from decimal import Decimal

import pytest

import mage
from mage import explore, paths
from mage.cuda import hostcuda
from mage.errors import RequestError
from mage.explore import runs

needs_a_compiler = pytest.mark.skipif(hostcuda.compiler() is None, reason="no C++ compiler on this machine")
on_a_cpu = pytest.mark.skipif(bool(shutil.which("nvidia-smi")), reason="this machine has a GPU")


def rows(view) -> list[dict]:
    return view.frame.to_dict("records")


@pytest.fixture
def kernels(tmp_path, monkeypatch, repository):
    """A folder of kernel files of this test's own, for this process and for those that it starts."""
    shutil.copytree(repository / "kernels", tmp_path / "kernels")
    monkeypatch.setattr(paths, "KERNELS", tmp_path / "kernels")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setenv("MAGE_ROOT", str(tmp_path))
    return tmp_path / "kernels"


# --- an edited kernel ----------------------------------------------------------------------------------------------


@needs_a_compiler
def test_the_edited_kernel_is_gated_counted_and_shown_without_a_restart(kernels):
    file = kernels / "cuda/gelu.cu"
    assert explore.file("gelu", "cuda") == file
    text = file.read_text()
    line = "Y[element] = 0.5f * z * (1.0f + tanh_fast(inner));"
    assert text.count(line) == 1

    def of_elementwise(view) -> dict:
        (row,) = [row for row in rows(view) if "CUDA C++, elementwise" in row.values()]
        return row

    def checked():
        return explore.gate("gelu", "cuda", (3, 257))

    def look():
        gate, counts = (of_elementwise(view) for view in (checked(), explore.resources("gelu", "cuda", "sm_90")))
        code = explore.code("gelu", "cuda", "elementwise", "sm_90")
        return gate["Verdict"], counts["FMUL"] + counts["FADD"] + counts["FFMA"], code

    first = look()
    assert first[0] == "passed" and line in first[2].source
    file.write_text(text.replace(line, "Y[element] = 0.5f * z * (1.0f + tanh_fast(inner)) + 0.25f * z * inner;"))
    second = look()
    assert second[0] == "failed" and "0.25f" in second[2].source
    assert second[1] > first[1] and second[2].text != first[2].text, "the code is the edited kernel's"
    assert re.search(r"\[\d+, \d+\]", of_elementwise(checked())["Remark"]), "the first wrong element"
    file.write_text(text)
    third = look()
    assert third[0] == "passed" and third[2].text == first[2].text


def test_an_edited_triton_kernel_is_what_is_compiled(kernels):
    before = explore.code("layernorm", "triton", gpu="sm_90")
    file = explore.file("layernorm", "triton")
    text = file.read_text()
    line = "    scale = 1.0 / tl.sqrt(variance + 1e-5)"
    assert line in text
    file.write_text(text.replace(line, f"{line} * 0.5 + 7.25"))
    after = explore.code("layernorm", "triton", gpu="sm_90")
    assert "7.25" in after.source and after.text != before.text


# --- times ---------------------------------------------------------------------------------------------------------


@on_a_cpu
def test_on_a_cpu_libraries_are_timed_and_simulated_kernels_are_not():
    view = explore.times("gelu", ["pytorch", "numpy", "triton", "cuda"], (64, 96), rounds=3)
    found = {row["Implementation"]: row for row in rows(view)}
    for name in ("PyTorch", "NumPy"):
        assert 0 < found[name]["From"] <= found[name]["Span"] <= found[name]["To"]
    for name in ("Triton", "CUDA C++, elementwise"):
        assert found[name]["Span"] is None or found[name]["Span"] != found[name]["Span"], f"{name} was simulated"
        assert "no time" in found[name]["Remark"] or "not installed" in found[name]["Remark"]
    assert "64 × 96" in view.caption and "µs" in view.html
    with pytest.raises(RequestError, match="cuda: runs in host C"):
        explore.times("gelu", "cuda")


@pytest.mark.gpu
def test_on_a_gpu_kernel_time_span_and_launches_are_taken():
    found = {row["Implementation"]: row for row in rows(explore.times("gelu", ["pytorch", "cuda"], rounds=4))}
    assert found["PyTorch"]["Launches"] == 2 and found["CUDA C++, elementwise"]["Launches"] == 1
    assert all(row["Kernel time"] < row["Span"] for row in found.values() if row["Launches"])


# --- what a session sees -------------------------------------------------------------------------------------------


def test_code_stands_beside_its_source():
    view = explore.code("matmul", "cuda", "quads", "sm_89")
    assert view.source.startswith("// quads") or "quads" in view.source.splitlines()[0]
    assert "matmul_quads(" in view.source and "matmul_pipeline(" not in view.source
    assert re.match(r"0000  \S+", view.text) and "FFMA" in view.text and "LDS.128" in view.text
    ptx = explore.code("matmul", "cuda", "quads", "sm_89", form="ptx")
    assert ".entry matmul_quads" in ptx.text and "matmul_pipeline" not in ptx.text
    shown = view._repr_html_()
    assert shown.count("<pre") == 2 and "kernels/cuda/matmul.cu" in shown and "SASS for sm_89, NVRTC" in shown
    assert len(repr(view)) < 140 and "matmul_quads" in repr(view)


@pytest.mark.parametrize(
    ("kernel", "made_of", "not_of"),
    [
        ("matmul_banks", ["slabs_body(const", "struct Copies", "struct Plan", "using BanksPlan ="], ["using WidePlan", "registers_body"]),
        ("matmul_registers", ["registers_body(const", "shared_read(const"], ["slabs_body", "matmul_registers_merged("]),
        ("layernorm_team", ["team_row(const", "struct Share"], ["registers_rows("]),
        ("neighbor_warp", ["warp_row(const", " sum_of_edges(const", " lean_sum_of_edges(const"], ["neighbor_quad(", "balanced_rows"]),
        ("neighbor_hubs", ["balanced_rows(const", "warp_row(const", " lean_sum_of_edges(const"], ["neighbor_lean(", "unsigned quads);"]),
        ("matmul_tiled", ["matmul_tiled(const"], ["slabs_body", "load_quad"]),
    ],
)
def test_the_source_of_a_kernel_goes_on_with_what_it_is_made_of(kernel, made_of, not_of):
    source = (paths.KERNELS / "cuda" / f"{kernel.partition('_')[0]}.cu").read_text("utf-8")
    shown = runs.cuda_function(source, kernel)
    for text in made_of:
        assert shown.count(text) == 1, text
    assert not [text for text in not_of if text in shown]
    assert shown.count("__global__") == 1 and shown.count("{") == shown.count("}") and shown.endswith(("}", ";"))
    for part in shown.split("\n\n"):
        assert part in source


def test_names_complete_and_every_public_one_says_what_it_is_for():
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shell.user_ns["explore"], shell.user_ns["mage"] = explore, mage
    for start, expected in (
        ("explore.", {"gate", "times", "code", "census"}),
        ("explore.Operation.", {"matmul", "layernorm"}),
        ("explore.Implementation.", {"cuda", "pytorch_compiled"}),
        ("mage.", {"obtain", "Quotes", "tables"}),
    ):
        with provisionalcompleter():
            found = {one.text.rpartition(".")[2] for one in shell.Completer.completions(start, len(start))}
        assert expected <= found and not {one for one in found if one.startswith("_") and not one.startswith("__")}, start
    assert explore.Operation.matmul == "matmul" and explore.Implementation.pytorch_compiled == "pytorch-compiled"
    for name in ("explore", "figures", "tables"):
        module = importlib.import_module(f"mage.{name}")
        for public in module.__all__:
            assert len(getattr(module, public).__doc__ or "") > 20, f"mage.{name}.{public}"
    for public in mage.__all__:
        assert getattr(mage, public).__doc__, f"mage.{public}"


def test_what_a_cell_ends_in_is_one_line_as_text():
    evidence = mage.load("mage-001")
    for thing in (evidence, mage.Quotes("mage-001"), mage.Counts(mage.count_code("gelu", "cuda")), explore.can_run("gelu")):
        assert len(repr(thing)) < 160 and "\n" not in repr(thing), repr(thing)
    assert "mage-001" in repr(evidence) and "published" in repr(evidence) and "RTX 4090" in repr(evidence)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: explore.gate("glu"), "did you mean 'gelu'"),
        (lambda: explore.gate("gelu", "cud"), "did you mean 'cuda'"),
        (lambda: explore.gate("gelu", dims=(0, 4)), "positive"),
        (lambda: explore.code("gelu", "cuda", "nothing"), "has no variant 'nothing'"),
        (lambda: explore.code("gelu", "cuda", gpu="sm_89", form="asm"), "choose sass or ptx"),
        (lambda: explore.code("gelu", "pytorch"), "no kernel file of ours"),
        (lambda: explore.census("gelu", "numpy"), "library code is not ours"),
    ],
)
def test_a_wrong_word_is_answered_with_what_there_is(ask, says):
    with pytest.raises(RequestError, match=re.escape(says)):
        ask()


# --- the notebook --------------------------------------------------------------------------------------------------


def test_the_notebook_to_explore_with_is_no_note_and_its_cells_run(repository, run_mage, tmp_path):
    path = repository / "notebooks/explore.ipynb"
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert "explore" not in run_mage("notes").stdout
    names: dict = {}
    shown = {}
    for cell in cells:
        *body, last = "".join(cell["source"]).splitlines()
        exec("\n".join(body), names)
        shown[cell["id"]] = None if cell["id"] == "times" else eval(last, names)  # timed in a test of its own
    assert {row["Verdict"] for row in rows(shown["gate"])} <= {"passed", "not checked on this machine"}
    assert shown["choose"] == paths.KERNELS / "cuda/layernorm.cu"
    assert all(Decimal(str(row["Registers"])) > 0 for row in rows(shown["resources"]))
    assert shown["sass"].form == "sass" and shown["ptx"].form == "ptx"
