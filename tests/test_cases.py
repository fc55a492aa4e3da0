"""One test of many cases: it runs all of them, and names those that fail and why."""

import pytest
import torch

from tests.cases import together


def test_every_case_that_fails_is_named_with_its_reason():
    @together("n, square", [(2, 4), (3, 8), (4, 16), (5, "five")])
    def squares(n, square):
        assert n * n == square + 0

    with pytest.raises(pytest.fail.Exception) as caught:
        squares()
    summary, *failures = str(caught.value).split("\n--- ")
    assert summary == "squares: 2 of 4 cases fail"
    assert [failure.splitlines()[0] for failure in failures] == ["(3, 8)", "(5, 'five')"]
    assert "AssertionError: assert (3 * 3) == (8 + 0)" in failures[0]
    assert "TypeError" in failures[1]


def test_an_error_that_is_not_raised_is_a_failure_of_its_case_and_cases_may_be_of_two_kinds():
    @together("divisor", [0, 1])
    @together("dividend", [2, 3], of="dividend {}".format)
    def divisions(dividend, divisor):
        with pytest.raises(ZeroDivisionError):
            dividend / divisor

    with pytest.raises(pytest.fail.Exception, match="1 of 2 cases fail") as caught:
        divisions()
    for text in ("--- 1", "2 of 2 cases fail", "--- dividend 2", "--- dividend 3", "DID NOT RAISE"):
        assert text in str(caught.value)


@together("n", lambda: range(3))
def test_fixtures_are_what_is_left_of_the_arguments(n, tmp_path, seed):
    assert tmp_path.is_dir()
    assert torch.equal(torch.rand(2), torch.rand(2, generator=torch.Generator().manual_seed(0)))
    assert n in range(3)


@pytest.mark.parametrize("cases", [[], lambda: iter(())], ids=["list", "function"])
def test_a_test_without_cases_fails(cases):
    @together("n", cases)
    def nothing(n):
        pass

    with pytest.raises(AssertionError, match="nothing: there are no cases"):
        nothing()
