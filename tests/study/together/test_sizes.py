import pytest

from companion.study.together.sizes import equal_widths
from tests.cases import together


def parameters(widths):
    first, second = widths
    return 50 * first + first * second + 10 * second


def test_a_profile_that_is_equal_already_stays():
    assert equal_widths("dac", (40, 20), parameters, int(1.009 * parameters((40, 20)))) == (40, 20)


@together("budget", [1_000, 3_000, 9_000])
def test_the_widths_found_are_within_one_per_cent_and_have_the_profiles_shape(budget):
    first, second = equal_widths("dac", (100, 50), parameters, budget)
    assert abs(parameters((first, second)) - budget) <= 0.01 * budget
    assert abs(first - 2 * second) <= 4


def test_widths_that_cannot_be_equal_are_refused():
    with pytest.raises(
        ValueError, match=r"'dac', which has .* where 150 are asked for; allowed is a difference of one"
    ):
        equal_widths("dac", (2, 2), lambda widths: 100 * sum(widths), 150)
