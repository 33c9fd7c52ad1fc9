"""One number out of a result: what it is, how far it spread, and what is refused."""

import measured
import pytest

from mage import evidence, stats
from mage.errors import EvidenceError, RequestError
from mage.evidence.schema import Result


def published(experiment: str, operation: str, implementation: str) -> Result:
    rows = evidence.load(experiment).results
    return next(row for row in rows if (row.operation, row.implementation) == (operation, implementation))


def sampled(**changes) -> Result:
    return Result.model_validate({**measured.result("gelu", "triton", "fixed", 10.0), **changes})


def test_a_published_span_has_a_mean_in_the_range_of_its_round_means():
    row = published("mage-006", "matmul", "triton")
    mean = stats.value(row, "span_us")
    assert (mean.value, mean.low, mean.high, mean.whisker_meaning) == (93.289, 90.036, 95.293, stats.ROUND_MEANS)
    assert stats.value(row, "span_us", "fastest-round").value == 90.036
    assert stats.value(row, "span_us", "slowest-round").value == 95.293


def test_a_published_kernel_time_is_its_mean_whatever_is_asked_for_and_has_no_spread():
    row = published("mage-006", "matmul", "triton")
    for statistic in stats.PUBLISHED:
        found = stats.value(row, "kernel_us", statistic)
        assert (found.value, found.statistic, found.low, found.whisker_meaning) == (100.796, "mean", None, None)


def test_a_median_of_published_means_is_refused_by_name_with_what_there_is():
    row = published("mage-006", "matmul", "triton")
    with pytest.raises(RequestError, match=r"'median': mage-006 has no samples .*mean, fastest-round, slowest-round"):
        stats.value(row, "span_us", "median", where="mage-006")
    with pytest.raises(RequestError, match="did you mean 'median'"):
        stats.check("medain")


def test_a_measured_median_stands_between_quartiles_of_all_samples():
    found = stats.value(sampled(), "span_us", "median")
    # 10, 10.1, 10.2, 11, 11.1, 11.2, 12, 12.1, 12.2, 70, 71, 72: numpy's linear quartiles
    assert found.value == pytest.approx(11.6)
    assert (found.low, found.high) == pytest.approx((10.8, 26.65))
    assert found.whisker_meaning == stats.QUARTILES


def test_a_measured_mean_takes_its_spread_from_the_rounds():
    rounds = [sum(samples) / 4 for samples in sampled().spans[0].rounds_us]
    found = stats.value(sampled(), "span_us", "mean")
    assert found.value == pytest.approx(sum(rounds) / 3)
    assert (found.low, found.high) == pytest.approx((min(rounds), max(rounds)))
    assert stats.value(sampled(), "span_us", "fastest-round").value == pytest.approx(min(rounds))
    assert stats.value(sampled(), "span_us", "slowest-round").value == pytest.approx(max(rounds))


def test_kernel_time_of_a_call_is_the_sum_of_its_kernels():
    spans = stats.samples(sampled(), "span_us")
    kernels = stats.samples(sampled(), "kernel_us")
    assert [list(samples) for samples in kernels] == [pytest.approx(samples / 2) for samples in spans]


def test_kernels_recorded_for_different_numbers_of_calls_are_not_added():
    kernels = sampled().model_dump()["kernels"]
    kernels[1]["rounds_us"] = kernels[1]["rounds_us"][:2]
    with pytest.raises(EvidenceError, match="gelu/triton:fixed"):
        stats.value(sampled(kernels=kernels), "kernel_us")


def test_only_the_mode_and_cache_asked_for_count():
    assert stats.value(sampled(), "span_us", mode="graph-10") is None
    assert stats.value(sampled(), "span_us", cache="cold") is None
    assert stats.value(sampled(spans=[]), "span_us") is None
