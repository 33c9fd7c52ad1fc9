"""Words are given only when the whole interval supports them."""

import numpy as np
import pytest

from mage.stats import verdicts

ROUNDS = 12


def noisy(centre, spread, seed):
    return centre * (1 + spread * np.random.default_rng(seed).standard_normal(ROUNDS))


@pytest.mark.parametrize(
    "ratio, expected", [(0.9, "faster"), (1.1, "slower"), (1.0, "same"), (0.995, "same")]
)
def test_clear_cases(ratio, expected):
    base = noisy(10, 0.0005, 1)
    assert verdicts.compare(base * ratio, base).word == expected


def test_a_ratio_at_the_margin_is_ambiguous():
    base = noisy(10, 0.001, 1)
    assert verdicts.compare(base * np.linspace(0.97, 1.01, ROUNDS), base).word == "ambiguous"


def test_what_disturbs_both_of_a_round_does_not_disturb_the_ratio():
    load = 1 + 4 * (np.arange(ROUNDS) % 3 == 0)
    verdict = verdicts.compare(9 * load, 10 * load)
    assert verdict.word == "faster" and verdict.ratio.median == pytest.approx(0.9)


def test_one_boosted_round_does_not_carry_a_verdict():
    one, other = noisy(10, 0.0005, 1), noisy(10, 0.0005, 2)
    one[4] = 1.0
    assert verdicts.compare(one, other).word == "same"


def test_the_interval_covers_the_median_it_is_of():
    covered = 0
    for seed in range(200):
        interval = verdicts.median_interval(np.random.default_rng(seed).standard_normal(ROUNDS), seed)
        covered += interval.low <= 0 <= interval.high
    assert covered >= 180


def test_the_same_samples_give_the_same_interval():
    samples = noisy(3, 0.1, 5)
    assert verdicts.median_interval(samples) == verdicts.median_interval(samples)


@pytest.mark.parametrize("samples", [[1.0, 2.0], [], [1.0, float("nan"), 2.0], [1.0, float("inf"), 2.0]])
def test_too_few_or_void_samples_are_refused(samples):
    with pytest.raises(ValueError):
        verdicts.median_interval(samples)


def test_rounds_that_do_not_pair_are_refused():
    with pytest.raises(ValueError, match="paired"):
        verdicts.compare([1.0, 2.0, 3.0], [1.0, 2.0])


def test_rounds_with_the_control_out_of_its_band_are_named():
    control = [5.0] * ROUNDS
    control[3], control[7] = 5.2, 4.8
    control[8] = 5.1
    assert verdicts.loaded_rounds(control) == [3, 7]


def test_the_same_code_against_itself_rarely_raises_an_alarm():
    pairs = [(noisy(10, 0.01, 2 * i), noisy(10, 0.01, 2 * i + 1)) for i in range(200)]
    alarms = sum(verdicts.compare(one, other).word in ("faster", "slower") for one, other in pairs)
    assert alarms / len(pairs) <= 0.05
