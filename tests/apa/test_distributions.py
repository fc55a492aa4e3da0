import numpy as np
import pytest
from scipy import stats

from companion.apa.study.distributions import ks_distance, skewness

FAMILIES = {"logistic": stats.logistic, "gumbel": stats.gumbel_r, "gumbel_left": stats.gumbel_l}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sample_is_nearest_to_its_own_family_wherever_it_lies(family):
    sample = FAMILIES[family].rvs(loc=-7, scale=3, size=2000, random_state=np.random.default_rng(0))
    distances = {name: ks_distance(sample, name) for name in FAMILIES}
    assert min(distances, key=distances.get) == family
    assert distances[family] < 0.03


def test_the_distance_is_the_largest_gap_between_the_distribution_functions():
    sample = np.sort(np.random.default_rng(1).normal(size=50))
    cdf = stats.logistic(*stats.logistic.fit(sample)).cdf(sample)
    steps = np.arange(51) / 50
    gap = max((steps[1:] - cdf).max(), (cdf - steps[:-1]).max())
    assert ks_distance(sample, "logistic") == pytest.approx(gap)


def test_mirroring_a_sample_exchanges_the_two_gumbels():
    sample = np.random.default_rng(2).gumbel(size=300)
    assert ks_distance(sample, "gumbel") == pytest.approx(ks_distance(-sample, "gumbel_left"), abs=1e-6)


def test_skewness_is_the_third_standardised_moment():
    # the moments of 0, 0, 0, 1 about 1/4: 3/16 and 3/32
    assert skewness([0.0, 0.0, 0.0, 1.0]) == pytest.approx((3 / 32) / (3 / 16) ** 1.5)
    assert skewness([0.0, 1.0, 1.0, 1.0]) == pytest.approx(-(3 / 32) / (3 / 16) ** 1.5)


def test_skewness_tells_the_families_apart():
    generator = np.random.default_rng(3)
    assert abs(skewness(generator.logistic(size=100_000))) < 0.1
    assert skewness(generator.gumbel(size=100_000)) == pytest.approx(1.14, abs=0.05)


@pytest.mark.parametrize("sample", [[1.0, 2.0], [1.0, 1.0, 1.0], [1.0, 2.0, float("nan")], [[1.0, 2.0, 3.0]]])
def test_samples_without_a_shape_are_refused(sample):
    with pytest.raises(ValueError, match="sample has shape"):
        ks_distance(sample, "logistic")
    with pytest.raises(ValueError, match="sample has shape"):
        skewness(sample)


def test_an_unknown_family_lists_those_there_are():
    with pytest.raises(ValueError, match="allowed are logistic, gumbel, gumbel_left"):
        ks_distance([1.0, 2.0, 3.0], "normal")
