"""Records are given to calls by their order; what does not add up is void and says why."""

from dataclasses import replace

from mage import profile


def kernel(name, start, duration=2.0, grid=(8, 1, 1)):
    return {
        "cat": "kernel", "name": name, "ts": start, "dur": duration,
        "args": {"grid": list(grid), "block": [128, 1, 1], "registers per thread": 40, "shared memory": 16},
    }  # fmt: skip


def marker(case, turn, start):
    return kernel("mage_marker", start, 1.0, grid=(case + 1, turn + 1, 1))


TRACE = {
    "traceEvents": [
        {"cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 5},
        marker(1, 0, 20),
        kernel("b", 34, 5.0), kernel("mage_evict", 33, 90.0), kernel("a", 31, 3.0), kernel("a", 41, 3.5), kernel("b", 44, 5.5),
        marker(0, 0, 10),
        kernel("before the first marker", 1),
        kernel("gemm", 12), kernel("gemm", 15),
        {"cat": "gpu_memset", "name": "Memset (Device)", "ts": 11, "dur": 1.0, "args": {}},
        marker(0, 1, 60),
    ]
}  # fmt: skip


def segments():
    return {(s.case, s.round): s for s in profile.split(profile.parse_trace(TRACE))}


def test_records_are_cut_at_the_markers_in_device_order():
    found = segments()
    assert [r.name for r in found[1, 0].records] == ["a", "b", "a", "b"]
    assert [r.name for r in found[0, 0].records] == ["Memset (Device)", "gemm", "gemm"]
    assert found[0, 1].records == ()


def test_a_record_carries_its_resource_request():
    record = segments()[1, 0].records[0]
    assert (record.grid, record.block, record.registers, record.shared_bytes) == ((8, 1, 1), (128, 1, 1), 40, 16)


def test_kernel_time_is_the_sum_over_a_call():
    assert profile.by_call(segments()[1, 0], calls=2, launches=2).kernel_us == [8.0, 9.0]


def test_a_missing_record_voids_the_round_with_its_count():
    whole = segments()[1, 0]
    short = replace(whole, records=whole.records[:-1])
    captured = profile.by_call(short, calls=2, launches=2)
    assert captured.kernel_us == [] and "3 kernel records" in captured.void and "make 4" in captured.void


def test_calls_that_run_different_kernels_void_the_round():
    whole = segments()[1, 0]
    swapped = replace(whole, records=(whole.records[0], whole.records[1], whole.records[3], whole.records[2]))
    assert "call 1" in profile.by_call(swapped, calls=2, launches=2).void


def test_a_nan_or_zero_duration_voids_the_round():
    whole = segments()[1, 0]
    for value in (float("nan"), 0.0):
        spoilt = replace(whole, records=(*whole.records[:3], replace(whole.records[3], duration_us=value)))
        assert "lasts" in profile.by_call(spoilt, calls=2, launches=2).void


def test_a_round_without_any_record_is_void():
    assert profile.by_call(segments()[0, 1], calls=2, launches=1).void


def test_fills_are_told_apart_from_an_operations_own_kernels():
    records = segments()[0, 0].records
    assert [r.is_framework for r in records] == [True, False, False]
