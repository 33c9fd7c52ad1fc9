"""Tuned configurations: kept by GPU, used there and nowhere else, and a note wherever they are not what they seem."""

import dataclasses
import json
import shutil

import measured
import numpy as np
import pytest

from mage import cuda, evidence, gate, implementations, kernels, operations, paths
from mage.cuda import hostcuda
from mage.errors import EvidenceError, RequestError
from mage.evidence import searched
from mage.evidence.schema_search import Candidate, Confirmation, Measured, SearchRun
from mage.kernels import configurations, cuda_stages, tuned
from mage.tune import builds, results, rules
from mage.tune.subject import Subject, candidates, declared

H200 = "NVIDIA H200"
BEST = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3}


def found(operation="matmul", implementation="triton", chosen=BEST, device=H200, held=True, **changes) -> SearchRun:
    """The record of a search that chose ``chosen``."""
    what = Subject.of(operation, implementation)
    fixed, times = what.file.fixed, {True: 1.0, False: 3.0}[held]
    fields = {
        "operation": operation, "implementation": implementation, "dims": what.dims, "kind": "search", "when": "2026-09-11T00:40:17Z",
        "device": device, "driver": "580.1", "versions": {"triton": "3.6.0"}, "kernel_file": f"kernels/{implementation}/{operation}.py",
        "kernel_sha256": what.sha256, "metric": "m", "final_metric": "f", "seed": 1, "fixed": fixed, "chosen": chosen if held else fixed,
        "candidates": [
            Candidate(config=fixed, state="timed", samples_us=[2.0]),
            Candidate(config=chosen, state="timed", samples_us=[1.0]),
            Candidate(config={"BLOCK_M": 3}, state="refused", reason="r"),
        ],
        "runoff": [Measured(config=fixed, rounds_us=[[2.0]]), Measured(config=chosen, rounds_us=[[1.0]])],
        "confirmation": Confirmation(
            seed=2, metric="f", winner=Measured(config=chosen, rounds_us=[[times + 0.1]]), fixed=Measured(config=fixed, rounds_us=[[2.2]])
        ),
        "why": "w",
    }  # fmt: skip
    return SearchRun.model_validate(fields | changes)


@pytest.fixture
def retained(tmp_path, monkeypatch):
    """An empty place for what is retained."""
    monkeypatch.setattr(paths, "RETAINED", tmp_path / "retained")
    monkeypatch.setattr(paths, "OUTPUTS", tmp_path / "outputs")
    return tmp_path / "retained"


def test_what_a_search_chose_is_kept_by_gpu_with_both_of_its_numbers_and_read_back(retained):
    (file,) = results.retain([found(), found("gelu", chosen={"BLOCK": 1024, "num_warps": 4})])
    assert file == retained / "tuned" / "nvidia-h200.json" == tuned.path(H200)
    assert tuned.config("matmul", "triton", H200) == BEST
    assert tuned.config("matmul", "triton", "NVIDIA H100") is None and tuned.config("layernorm", "triton", H200) is None
    entry = tuned.entry("matmul", "triton", H200)
    assert entry["fixed_us"] == {"chosen": 2.0, "confirmed": 2.2} and entry["tuned_us"] == {"chosen": 1.0, "confirmed": 1.1}
    assert entry["candidates"] == {"timed": 2, "refused": 1} and entry["driver"] == "580.1" and entry["versions"] == {"triton": "3.6.0"}
    # another search of one kernel leaves the other kernels' choices
    results.retain([found(chosen=BEST | {"num_warps": 8})])
    assert tuned.config("matmul", "triton", H200)["num_warps"] == 8 and tuned.config("gelu", "triton", H200)["BLOCK"] == 1024


def test_a_winner_that_did_not_hold_is_not_kept(retained):
    results.retain([found(held=False)])
    entry = tuned.entry("matmul", "triton", H200)
    assert entry["config"] == entry["fixed"] and entry["tuned_us"] == entry["fixed_us"] == {"chosen": 2.0, "confirmed": 2.2}
    assert results.retain([found("gelu", chosen={"BLOCK": 1024, "num_warps": 4}).model_copy(update={"chosen": None})]) == []


def test_the_tuned_variant_uses_what_was_chosen_on_its_gpu_and_says_what_the_reader_has_to_know(retained):
    module = kernels.load("triton/matmul")
    dims = operations.get("matmul").default_dims
    config, note = tuned.choose("matmul", "triton", dims, "Some GPU", module)
    assert config == module.FIXED and note.startswith("no tuned configuration for Some GPU: the fixed one runs")
    results.retain([found()])
    assert tuned.choose("matmul", "triton", dims, H200, module) == (BEST, None)
    assert tuned.choose("matmul", "triton", (64, 64, 64), H200, module) == (BEST, "the configuration was chosen at (1024, 1024, 1024)")
    results.retain([found(kernel_sha256="0" * 64)])
    config, note = tuned.choose("matmul", "triton", dims, H200, module)
    assert config == BEST and note == "the configuration was chosen for another text of triton/matmul"
    results.retain([found(chosen=BEST | {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64})])
    config, note = tuned.choose("matmul", "triton", dims, H200, module)
    assert config == module.FIXED and "the tuned configuration cannot take (1024, 1024, 1024), the fixed one runs: unrolled" in note
    results.retain([found(chosen=BEST | {"A_KEY_OF_BEFORE": 1})])
    config, note = tuned.choose("matmul", "triton", dims, H200, module)
    assert config == module.FIXED and "no parameter 'A_KEY_OF_BEFORE'" in note


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no tuned configurations"),
        ("[]", "no tuned configurations"),
        ('{"schema": "mage.tuned/9", "configurations": {}}', "is 'mage.tuned/9', this Mage reads 'mage.tuned/1'"),
        ('{"schema": "mage.tuned/1", "configurations": {"gelu/triton": {"config": {}}}}', "gelu/triton has no dims"),
    ],
)
def test_a_file_that_holds_no_tuned_configurations_is_named(retained, text, said):
    file = tuned.path(H200)
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(EvidenceError, match="nvidia-h200.json: ") as error:
        tuned.config("gelu", "triton", H200)
    assert said in str(error.value)


def test_what_is_committed_fits_the_kernel_files():
    for file in sorted(paths.RETAINED.glob("tuned/*.json")):
        device = json.loads(file.read_bytes())["device"]
        assert tuned.path(device) == file
        for name in tuned.entries(device):
            operation, _, implementation = name.partition("/")
            if ":" not in implementation:
                module = kernels.load(f"{implementation}/{operation}")
                _, note = tuned.choose(operation, implementation, operations.get(operation).default_dims, device, module)
                assert "cannot take" not in (note or ""), f"{name}: {note}"


def test_every_tiled_implementation_has_the_variant_and_without_a_gpu_it_says_why_it_does_not_run():
    for operation in operations.names():
        rows = {(row.implementation, row.variant): row for row in implementations.available(operation, "cpu")}
        for implementation in ("triton", "cutile"):
            assert implementations.variants(operation, implementation) == ("fixed", "tuned")
            assert not rows[implementation, "tuned"].can_run and rows[implementation, "tuned"].why_not
    with pytest.raises(implementations.UnsupportedError, match="tuned for a GPU"):
        implementations.prepare("gelu", "triton", "tuned", operations.get("gelu").make_inputs((3, 5)))


@pytest.mark.gpu
@pytest.mark.parametrize("operation", operations.names())
@pytest.mark.parametrize("implementation", ["triton", "cutile"])
def test_the_tuned_variant_passes_the_gate(operation, implementation):
    rows = {(row.implementation, row.variant): row for row in implementations.available(operation, "cuda")}
    if not rows[implementation, "tuned"].can_run:
        pytest.skip(rows[implementation, "tuned"].why_not)
    result = gate.check(operation, implementation, "tuned", None, "cuda")
    assert result.passed == gate.PASSED, result.reason


# --- the record in evidence ------------------------------------------------------------------------------------------


def test_a_search_is_kept_beside_its_ledger(retained):
    run = found(device="AMD EPYC")
    results.write(run)
    assert results.records("AMD EPYC") == (run,) and results.records(H200) == ()


def test_retained_searches_are_read_with_every_session_of_their_gpu(retained):
    run, other, sweep = found(), found("gelu", chosen={"BLOCK": 1024, "num_warps": 4}), found(kind="sweep")
    (file,) = results.keep([run, other])
    assert file == retained / "h200-tune" / evidence.NAME
    (again,) = results.keep([run.model_copy(update={"why": "again"}), sweep])
    assert again == file
    kept = searched.with_searches(measured.record(device={"kind": "gpu", "name": H200}))
    assert [(one.operation, one.kind, one.why) for one in kept.searches] == [
        ("matmul", "search", "again"), ("gelu", "search", "w"), ("matmul", "sweep", "w"),
    ], "a later search replaces the earlier of its kernel, and nothing else"  # fmt: skip
    record = evidence.load("h200-tune")
    assert record.origin == "retained" and record.device.driver == "580.1" and record.software == {"triton": "3.6.0"}
    assert record.source.files == {f"kernels/triton/{one}.py": Subject.of(one, "triton").sha256 for one in ("matmul", "gelu")}
    elsewhere = measured.record(device={"kind": "gpu", "name": "Another"})
    assert searched.with_searches(elsewhere) is elsewhere


def test_a_sweep_is_kept_and_chooses_nothing(retained):
    sweep = found(kind="sweep")
    assert results.retain([sweep]) == [] and tuned.config("matmul", "triton", H200) is None
    results.keep([sweep])
    assert evidence.load("h200-tune").searches == (sweep,)


def test_a_record_without_the_fixed_configuration_is_none():
    with pytest.raises(ValueError, match="the fixed configuration is not among the candidates"):
        found(candidates=[Candidate(config=BEST, state="timed", samples_us=[1.0])])


# --- what a configuration names --------------------------------------------------------------------------------------


def test_a_configuration_names_its_kernel_and_hints_go_to_the_compiler():
    module = kernels.load("cutile/matmul")
    names = list(module.KERNELS)
    assert configurations.kernel(module, {}) is module.KERNEL is module.KERNELS[names[0]]
    other = configurations.kernel(module, {"kernel": names[1]})
    assert configurations.function_name(other) != configurations.function_name(module.KERNEL) == "matmul_kernel"
    with pytest.raises(RequestError, match="no kernel 'mna'; there is " + names[0]):
        configurations.kernel(module, {"kernel": "mna"})
    assert configurations.tile_kernel(module, {"occupancy": None}) is module.KERNEL
    hinted = configurations.tile_kernel(module, {"occupancy": 2, "num_worker_warps": 8})
    assert (hinted._compiler_options.occupancy, hinted._compiler_options.num_worker_warps) == (2, 8)
    assert hinted is configurations.tile_kernel(module, {"num_worker_warps": 8, "occupancy": 2}), "one kernel, one cache of its code"


# --- parameters of CUDA C++ stages -----------------------------------------------------------------------------------

SOURCE = """\
#include "mage.cuh"
#ifndef GELU_SPAN
#define GELU_SPAN 64
#endif
extern "C" __global__ void __launch_bounds__(GELU_SPAN)
gelu_elementwise(const float* X, const float* bias, float* Y, int R, int D) {
    int at = blockIdx.x * GELU_SPAN + threadIdx.x;
    if (at < R * D) Y[at] = GELU_SPAN + 0.0f * X[at] * bias[0];
}
"""


@pytest.fixture
def stage():
    """A stage whose block is a parameter."""

    def configure(chosen):
        return {"block": (chosen["SPAN"], 1, 1), "grid": lambda dims: (-(-dims[0] * dims[1] // chosen["SPAN"]), 1, 1)}

    default, space = {"SPAN": 64}, {"SPAN": (32, 64, 128)}
    plain = cuda_stages.get("gelu", "elementwise")
    return dataclasses.replace(plain, parameters=default, space=space, configure=configure, **configure(default))


def test_a_stage_is_built_and_launched_with_its_parameters(stage, tmp_path, monkeypatch):
    monkeypatch.setenv("MAGE_CACHE", str(tmp_path))
    other = stage.configured({"SPAN": 128})
    assert (other.block, other.grid((4, 100)), dict(other.defines)) == ((128, 1, 1), (4, 1, 1), {"GELU_SPAN": 128})
    assert stage.configured({}) is stage and stage.configured({"SPAN": 64}).defines == {}
    with pytest.raises(RequestError, match="cuda gelu elementwise has no parameter SPANN; there is: SPAN"):
        stage.configured({"SPANN": 1})
    # the defaults are the text itself: one build, whoever asks
    plain, same = (cuda.build("gelu", "sm_90", SOURCE, one.defines) for one in (stage, stage.configured({"SPAN": 64})))
    changed = cuda.build("gelu", "sm_90", SOURCE, other.defines)
    assert plain.key == same.key != changed.key and plain.cubin != changed.cubin


@pytest.mark.skipif(hostcuda.compiler() is None, reason="no C++ compiler")
def test_parameters_reach_the_host_build_too(stage, monkeypatch):
    monkeypatch.setitem(cuda_stages.STAGES["gelu"], "elementwise", stage)
    inputs = operations.get("gelu").make_inputs((3, 50))
    for config, value in (({}, 64), ({"SPAN": 32}, 32)):
        call = implementations.prepare("gelu", "cuda", "elementwise", inputs, config=config, source=SOURCE)
        call.run()
        assert call.block == (value, 1, 1) and np.all(call.out.numpy() == value)


@pytest.mark.skipif(hostcuda.compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("config", [{"SLABS": 3, "SPREAD": 2, "SNAKE": 1}, {"SLABS": 5, "SPREAD": 7}])
def test_a_kernel_of_ours_is_right_on_the_host_in_another_configuration(config):
    dims = (64, 128, 160)  # five slabs of one tile: the ring of three is gone round, and that of five is filled
    inputs = operations.get("matmul").make_inputs(dims)
    call = implementations.prepare("matmul", "cuda", "banks", inputs, config=config)
    assert call.which == "matmul_banks"
    call.run()
    np.testing.assert_allclose(call.out.numpy(), inputs["A"].numpy() @ inputs["B"].numpy(), rtol=1e-5, atol=1e-5)


def test_a_compiler_s_message_keeps_the_line_numbers_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("MAGE_CACHE", str(tmp_path))
    broken = SOURCE.replace("if (at < R * D)", "if (at < R * Dd)").replace('#include "mage.cuh"', "// no header")
    line = broken[: broken.index("Dd")].count("\n") + 1
    with pytest.raises(cuda.CompileError, match=rf"gelu\.cu\({line}\)"):
        cuda.build("gelu", "sm_90", broken, {"GELU_SPAN": 32})


def test_a_stage_with_parameters_is_searched_like_any_other_kernel(stage, tmp_path, monkeypatch):
    monkeypatch.setenv("MAGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(cuda_stages.STAGES["gelu"], "elementwise", stage)
    file = tmp_path / "gelu.cu"
    file.write_text(SOURCE)
    what = Subject.of("gelu", "cuda", "elementwise", source=file)
    assert what.name == "gelu/cuda:elementwise"
    first, *others = candidates(what.file, declared(what))
    assert first == {"SPAN": 64} and sorted(one["SPAN"] for one in others) == [32, 128]
    assert rules.refusal(what, {"SPAN": 48}, "sm_90") == "whole warps: 48 threads a block are no multiple of 32"
    assert rules.refusal(what, {"SPAN": 2048}, "sm_90") == "threads: 2048 a block, a block has at most 1024"
    task = {"subject": what.as_dict(), "arch": "sm_90"}
    small, large = (builds.build({**task, "config": {"SPAN": span}}) for span in (64, 128))
    assert small["state"] == large["state"] == "built" and 0 < small["registers"] <= large["registers"]
    # a header that is edited makes another kernel of the same file
    before = what.text_key
    shutil.copytree(paths.KERNELS / "cuda", tmp_path / "kernels" / "cuda")
    monkeypatch.setattr(paths, "KERNELS", tmp_path / "kernels")
    header = tmp_path / "kernels" / "cuda" / "mage.cuh"
    header.write_text(header.read_text() + "\n// edited\n")
    assert Subject.of("gelu", "cuda", "elementwise", source=file).text_key != before
