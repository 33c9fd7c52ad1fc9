"""Another tool's times: read from what it wrote, held against our own at equal keys, and never made up."""

import importlib.metadata

import measured
import pytest

from mage import tables
from mage.evidence.schema import KernelCounters
from mage.experiment import crosscheck
from mage.experiment.shapes import Row

GELU, MATMUL = Row("gelu", "cuda", "elementwise", (4096, 768)), Row("matmul", "pytorch", None, (1024, 1024, 1024))


def state(**summaries):
    """A state as NVBench writes one: seconds as text, and fields that are none of a time."""
    cold, batch = "nv/cold/time/gpu/", "nv/batch/time/gpu/"
    tagged = {
        "awaited": {f"{cold}median": "1.6e-05", f"{cold}mean": "2e-05", "nv/cold/sample_size": "100"},
        "graph": {f"{cold}median": "9.4e-05", f"{batch}mean": "8.7e-05", "nv/batch/sample_size": "330"},
    }
    values = {tag: value for kind in summaries for tag, value in tagged[kind].items()}
    types = {tag: "int64" if tag.endswith("size") else "float64" for tag in values}
    return {
        "is_skipped": not values,
        "skip_reason": "no memory" if not values else None,
        "summaries": [{"tag": t, "data": [{"name": "value", "type": types[t], "value": v}]} for t, v in values.items()]
        + [{"tag": "nv/json/bin", "data": [{"name": "filename", "type": "string", "value": "x.bin"}]}],
    }


def document():
    return {
        "benchmarks": [
            {"name": "gelu/cuda:elementwise awaited", "states": [state(awaited=1)]},
            {"name": "gelu/cuda:elementwise graph-10", "states": [state(graph=1)]},
            {"name": "matmul/pytorch awaited", "states": [state()]},
        ]
    }


def test_times_are_read_by_row_and_key_and_divided_by_the_calls_of_a_graph():
    cold, warm, *_ = crosscheck.parse(document(), [GELU, MATMUL], {})
    assert (cold["row"], cold["mode"], cold["cache"], cold["statistic"]) == (GELU.key, "awaited", "cold", "median")
    assert (cold["time_us"], cold["samples"]) == (16.0, 100)
    assert (warm["mode"], warm["cache"], warm["statistic"], warm["time_us"], warm["samples"]) == ("graph-10", "warm", "mean", 8.7, 330)


def test_a_take_that_was_not_given_is_void_with_its_reason():
    *_, cold, warm = crosscheck.parse(document(), [GELU, MATMUL], {MATMUL.key: "cannot be captured in a CUDA graph: no"})
    assert "time_us" not in cold and cold["void"] == "no memory"
    assert "time_us" not in warm and warm["void"] == "cannot be captured in a CUDA graph: no"
    assert crosscheck.parse({"benchmarks": []}, [GELU], {})[1]["void"] == "NVBench gave no time"


def test_without_the_package_the_record_says_so(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(crosscheck.importlib.metadata, "version", missing)
    checker = crosscheck.Checker([GELU])
    checker.ready()
    assert checker.take([GELU.key]) == ([], "cuda-bench is not installed")


def test_a_process_that_cannot_prepare_its_rows_is_ended_with_its_last_word():
    if crosscheck.version() is None or experiment_has_gpu():
        pytest.skip("needs cuda-bench, and no GPU")
    checker = crosscheck.Checker([GELU])
    checker.ready()
    found, reason = checker.take([GELU.key])
    assert found == [] and reason.startswith("cuda-bench ended with status 1: ")


def experiment_has_gpu():
    import torch

    return torch.cuda.is_available()


def test_one_row_an_operation_and_implementation_is_checked_and_no_search_repeated():
    rows = [
        Row("gelu", "cuda", "elementwise", (4096, 768)), Row("gelu", "cuda", "newer", (4096, 768)),
        Row("gelu", "triton", "fixed", (4096, 768)), Row("gelu", "triton", "tuned", (4096, 768)),
        Row("gelu", "pytorch-compiled", "default", (4096, 768)), Row("gelu", "pytorch-compiled", "max-autotune-no-cudagraphs", (4096, 768)),
        Row("gelu", "cuda", "newer", (512, 768), None, "512x768"),
    ]  # fmt: skip
    assert [row.key for row in crosscheck.chosen(rows)] == ["gelu/cuda:newer", "gelu/triton:tuned", "gelu/pytorch-compiled:default"]


def test_the_profilers_durations_are_summed_over_a_rows_kernels():
    kernels = [KernelCounters(row="gelu/pytorch", number=n, kernel="k", duration_us=5.5) for n in range(2)]
    kernels.append(KernelCounters(row="gelu/cuda:elementwise", number=0, kernel="k"))  # the tool gave no duration
    (one,) = crosscheck.of_counters(kernels, "2025.3.1.0")
    assert (one.row, one.time_us, one.samples, one.statistic) == ("gelu/pytorch", 11.0, 1, "single")
    assert (one.quantity, one.mode, one.cache, one.version) == ("kernel_us", "awaited", "warm", "2025.3.1.0")


# --- read back ---------------------------------------------------------------------------------------------------


def record(**changes):
    kernel = {"name": "k", "grid": [1, 1, 1], "block": [128, 1, 1], "registers": 32, "shared_bytes": 0, "mode": "awaited"}
    result = {
        "operation": "gelu", "dims": [4096, 768], "implementation": "cuda", "variant": "elementwise",
        "kernels": [{**kernel, "cache": cache, "rounds_us": [[time] * 3] * 3} for cache, time in (("warm", 9.0), ("cold", 11.0))],
        "spans": [
            {"mode": mode, "cache": cache, "rounds_us": [[time] * 3] * 3}
            for mode, cache, time in (("awaited", "warm", 14.0), ("awaited", "cold", 20.0), ("graph-10", "warm", 10.0))
        ],
    }  # fmt: skip
    return measured.record(results=[result], **changes)


def check(mode, cache, time, **changes):
    made = {"row": "gelu/cuda:elementwise", "instrument": "cuda-bench", "version": "0.3.0", "quantity": "span_us", "mode": mode}
    return {**made, "cache": cache, "statistic": "median", "samples": 100, "time_us": time, **changes}


def test_only_equal_keys_are_compared():
    ncu = check("awaited", "warm", 9.9, quantity="kernel_us", instrument="ncu")
    found = crosscheck.compared(record(cross_checks=[check("awaited", "cold", 19.0), check("graph-10", "warm", 9.5), ncu]))
    assert [(one.ours_us, one.kernel_us) for one in found] == [(20.0, 9.0), (10.0, 9.0), (9.0, 9.0)]
    assert [one.difference_pct for one in found] == pytest.approx([-5.0, -5.0, 10.0])
    (alone,) = crosscheck.compared(record(cross_checks=[check("graph-25", "warm", 9.5)]))
    assert alone.ours_us is None and alone.difference_pct is None


def test_the_table_shows_both_times_or_says_why_there_are_none():
    void = check("graph-10", "warm", None, void="cannot be captured in a CUDA graph: no", samples=0)
    view = tables.cross_check_timers(record(cross_checks=[check("awaited", "cold", 19.0), void]))
    assert view.id == "cross-check-timers" and view.frame["Its time"].tolist()[0] == 19.0
    assert view.frame["Difference"].tolist()[0] == pytest.approx(-5.0)
    assert view.frame["What"].tolist() == ["span, awaited, cold", "span, graph of ten, warm"]
    assert view.frame["Remark"].tolist()[1] == "cannot be captured in a CUDA graph: no"
    missing = tables.cross_check_timers(record(cross_checks_missing="cuda-bench is not installed"))
    assert "cuda-bench is not installed" in missing.html
    on_a_cpu = record(device={"kind": "cpu", "name": "a CPU"}, cross_checks_missing=None)
    assert "was measured on a CPU" in tables.cross_check_timers(on_a_cpu).html
    assert "has no cross-check" in tables.cross_check_timers(record()).html
