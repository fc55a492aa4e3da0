import warnings

import numpy as np
import pytest
from scipy import stats

from companion.study.analysis import (
    Comparison,
    alike,
    compare,
    detectable,
    family,
    holm,
    interval,
    paired,
)


def test_the_interval_is_students():
    sample = [0.91, 0.93, 0.90, 0.95, 0.92]
    # mean ± t s/√n, with the quantile from Student's table for 4 degrees of freedom
    half = 2.776445 * np.std(sample, ddof=1) / np.sqrt(5)
    result = interval(sample)
    assert (result.mean, result.n) == (pytest.approx(np.mean(sample)), 5)
    assert (result.low, result.high) == pytest.approx((result.mean - half, result.mean + half), rel=1e-6)
    assert result.half_width == pytest.approx(half, rel=1e-6)
    assert interval(sample, level=0.9).half_width == pytest.approx(half * 2.131847 / 2.776445, rel=1e-6)


def test_equal_values_have_an_interval_of_no_length():
    result = interval([0.1, 0.1, 0.1])
    assert result.low == result.mean == result.high == pytest.approx(0.1)


def test_the_interval_covers_as_often_as_it_says():
    samples = np.random.default_rng(0).normal(size=(2000, 5))
    covered = np.mean([i.low <= 0 <= i.high for i in map(interval, samples)])
    assert covered == pytest.approx(0.95, abs=0.02)


def test_one_value_has_no_interval():
    with pytest.raises(ValueError, match="needs at least 2"):
        interval([1.0])
    with pytest.raises(ValueError, match="0 < level < 1"):
        interval([1.0, 2.0], level=95)


def test_the_paired_test_is_that_of_the_differences():
    a, b = np.random.default_rng(1).normal(size=(2, 8))
    difference, p_value = paired(a, b)
    deviation = np.std(a - b, ddof=1) / np.sqrt(8)
    assert p_value == pytest.approx(2 * stats.t.sf(abs(np.mean(a - b)) / deviation, 7))
    assert difference.half_width == pytest.approx(2.364624 * deviation, rel=1e-6)
    assert difference.mean == pytest.approx(np.mean(a - b))


def test_equal_differences_are_no_division_by_zero():
    assert paired([1.0, 2.0], [1.0, 2.0])[1] == 1.0
    assert paired([2.0, 3.0], [1.0, 2.0])[1] == 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert paired([0.3, 0.4, 0.5], [0.1, 0.2, 0.3])[1] == 0.0  # equal but for rounding


def test_series_of_different_length_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        paired([1.0, 2.0, 3.0], [1.0, 2.0])


# Sorted: 0.01 0.02 0.03 0.04, times 4 3 2 1: 0.04 0.06 0.06 0.04, then the running maximum.
def test_holms_adjustment_by_hand():
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def rows(**offsets):
    noise = [0.3, -0.1, 0.2, 0.0, -0.2]
    return [
        {"activation": name, "seed": seed, "accuracy": noise[seed] + offset + 0.001 * seed * (name == "aglu")}
        for name, offset in offsets.items()
        for seed in range(5)
    ]


def test_comparisons_are_paired_by_seed_and_corrected_together():
    good, same = compare(rows(relu=0.0, aglu=0.05, silu=0.0), factor="activation", reference="relu", measure="accuracy")
    assert (good.key, same.key) == ("aglu", "silu")
    # Between seeds the accuracies differ by more than the effect; within seeds the effect is plain.
    assert good.difference.low > 0.04
    assert good.p_holm == pytest.approx(2 * good.p_value)
    assert same.p_holm == 1.0


def test_rows_of_several_conditions_are_refused():
    twice = rows(relu=0.0, aglu=0.1) * 2
    with pytest.raises(ValueError, match="twice"):
        compare(twice, factor="activation", reference="relu", measure="accuracy")


def test_missing_references_and_seeds_are_refused():
    with pytest.raises(ValueError, match="reference is 'gelu'"):
        compare(rows(relu=0.0), factor="activation", reference="gelu", measure="accuracy")
    with pytest.raises(ValueError, match="'aglu' has the seeds"):
        compare(rows(relu=0.0, aglu=0.1)[:-1], factor="activation", reference="relu", measure="accuracy")


def test_what_is_called_detectable_is_found_four_times_of_five():
    generator = np.random.default_rng(0)
    n, comparisons, deviation = 6, 4, 0.7
    # the spread is known here: an interval that has exactly its width
    sample = np.array([-1.0, 1.0] * (n // 2))
    known = interval(deviation * sample / sample.std(ddof=1))
    effect = detectable(known, comparisons)
    draws = generator.normal(effect, deviation, (40_000, n))
    found = stats.ttest_1samp(draws, 0, axis=1).pvalue < 0.05 / comparisons
    assert found.mean() == pytest.approx(0.8, abs=0.01)
    assert detectable(known, comparisons) > detectable(known) > detectable(known, power=0.5) > 0
    assert detectable(interval([0.2, 0.2, 0.2])) == 0


@pytest.mark.parametrize(
    ("values", "margin", "found"),
    [([0.1, 0.2, 0.0], 0.5, 1), ([0.1, 0.2, 0.0], 0.2, 0), ([0.9, 1.0, 1.1], 0.5, -1), ([-0.9, -1.0, -1.1], 0.5, -1)],
)
def test_alike_is_what_lies_within_the_margin_and_not_what_is_not_different(values, margin, found):
    assert alike(interval(values), margin) == found


def test_a_family_is_corrected_as_one_and_says_in_which_direction():
    noise = {seed: 0.001 * seed for seed in range(5)}
    up, down, none = family(
        {
            "up": ({seed: 1 + 2 * x for seed, x in noise.items()}, noise),
            "down": ({seed: -1 + 2 * x for seed, x in noise.items()}, noise),
            "none": ({seed: x * (-1) ** seed for seed, x in noise.items()}, noise),
        }
    )
    assert [each.sign() for each in (up, down, none)] == [1, -1, 0]
    assert up.p_holm == pytest.approx(3 * up.p_value)
    assert none.detectable == detectable(none.difference, comparisons=3) > up.detectable > 0
    assert [each.size for each in (up, down, none)] == [3, 3, 3]


def test_what_is_clear_alone_and_not_in_its_family_has_no_sign():
    difference = interval([0.1, 0.2, 0.3])
    assert Comparison("it", difference, p_value=0.03, p_holm=0.09, detectable=1.0, size=3).sign() == 0
    assert Comparison("it", difference, p_value=0.01, p_holm=0.03, detectable=1.0, size=3).sign() == 1
