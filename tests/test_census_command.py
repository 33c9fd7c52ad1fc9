"""The census on a terminal: tables for both GPUs, rows as JSON, and requests that are turned away."""

import json
import signal

import pytest


def test_the_tables_are_printed_for_both_gpus_and_the_rows_written(run_mage, tmp_path):
    done = run_mage("census", "layernorm", "--json", tmp_path / "rows.json")
    assert done.rc == 0 and not done.left, done.said
    for gpu in ("sm_89", "sm_90"):
        assert f"{gpu}. What the compiled kernels ask for" in done.stdout
        assert f"{gpu}. How the compiled kernels reach memory" in done.stdout
    assert "Triton's layer norm against the hand-written pair" in done.stdout and "24\u00a0×\u00a032" in done.stdout
    assert "Compilers: " in done.stdout and "cuTile shows no PTX" in done.stdout
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert {(row["operation"], row["gpu"]) for row in rows} == {("layernorm", "sm_89"), ("layernorm", "sm_90")}
    assert all(row["registers"] > 0 and row["refused"] is None for row in rows)


def test_another_gpu_and_one_operation(run_mage):
    done = run_mage("census", "gelu", "--gpu", "sm_100")
    assert done.rc == 0 and "sm_100. What" in done.stdout and "sm_90" not in done.stdout, done.said
    assert "LayerNorm" not in done.stdout and "layer norm" not in done.stdout


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["layernrom"], "layernorm"),
        (["--gpu", "sm_42"], "sm_90"),
        (["gelu", "--renew"], "leave out the operations"),
        (["--colour"], "--help"),
    ],
)
def test_a_wrong_request_is_turned_away_with_what_there_is(asked, said, run_mage):
    done = run_mage("census", *asked)
    assert done.rc == 2 and said in done.message and done.stdout == ""


def test_a_census_that_is_interrupted_leaves_no_compiler_behind(start_mage, tmp_path, eventually):
    started = start_mage("census", "matmul", env={"MAGE_CACHE": str(tmp_path)})
    eventually(lambda: len(started.family()) > 1, what="a compiler")
    started.process.send_signal(signal.SIGINT)
    done = started.wait()
    assert done.rc == 130 and not done.left and done.message.startswith("mage: interrupted"), done
