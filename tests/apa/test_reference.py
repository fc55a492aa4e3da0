"""The oracle is checked by brute force and by numerical differentiation, and where fixed precision fails."""

import random

import pytest
from mpmath import mp, mpf

from tests.apa import reference

POINTS = [
    (0.7, 1.3, 0.4), (-2.0, 1.0, 1.0), (1e-3, 1.0, 1.0),  # ordinary
    (3.0, 2.0, 1e-6),  # t is small: h and k come from the series
    (-3.0, 4.0, 50.0), (-0.5, 0.8, 1e3),  # t is large: they come from the closed form
    (5.0, 1.0, 0.58), (5.0, 1.0, 0.57),  # on either side of the border t = 2^-8
    (2.0, -0.5, 2.0), (0.25, 0.0, 0.5),  # κ is negative, or zero
]  # fmt: skip


def brute_force(function, z, kappa, lam):
    """Return the function from its definition, with no rearrangement."""
    eta = (1 + lam * mp.exp(-kappa * z)) ** (-1 / lam)
    return eta if function == "apa" else z * eta


def close(one, other, digits=25):
    return abs(one - other) <= abs(other) * mpf(10) ** -digits


@pytest.mark.parametrize("function", ["apa", "aglu"])
@pytest.mark.parametrize("point", POINTS)
def test_values_and_derivatives_equal_numerical_differentiation_of_the_definition(function, point):
    names = ("z", "kappa", "lam")
    with mp.workdps(120):
        exact = [mpf(number) for number in point]

        def differentiated(orders):
            return mp.diff(lambda *inputs: brute_force(function, *inputs), exact, orders)

        assert close(reference.value(function, *point), brute_force(function, *exact))
        for i, name in enumerate(names):
            orders = tuple(int(j == i) for j in range(3))
            assert abs(reference.first(function, *point)[name] - differentiated(orders)) < mpf(10) ** -25
        for (one, other), derivative in reference.second(function, *point).items():
            orders = tuple((name == one) + (name == other) for name in names)
            assert abs(derivative - differentiated(orders)) < mpf(10) ** -25


def test_the_derivative_by_lambda_is_not_zero_where_fifty_digits_find_zero():
    z, kappa, lam = 5.0, 25.0, 1e-6

    def closed_form(digits):
        with mp.workdps(digits):
            exact_lam = mpf(lam)
            u = mp.exp(-mpf(kappa) * mpf(z))
            t = exact_lam * u
            difference = mp.log1p(t) / exact_lam - u / (1 + t)
            return z * (1 + t) ** (-1 / exact_lam) * difference / exact_lam

    assert closed_form(50) == 0
    assert close(reference.first("aglu", z, kappa, lam)["lam"], closed_form(400))


def test_the_series_equals_the_closed_form_at_a_precision_that_survives_the_cancellation():
    generator = random.Random(1)
    for _ in range(100):
        # At κz = 700 the difference in k loses 3 · 700 / ln 10, about 900 digits.
        point = generator.uniform(0, 100), generator.uniform(0, 7), 10 ** generator.uniform(-6, 0)
        with mp.workdps(2500):
            z, kappa, lam = (mpf(number) for number in point)
            u = mp.exp(-kappa * z)
            s, q = 1 / (1 + lam * u), u / (1 + lam * u)
            L = mp.log1p(lam * u) / lam
            D = (L - q) / lam
            eta = mp.exp(-L)
            assert close(reference.first("apa", *point)["lam"], eta * D)
            assert close(reference.second("apa", *point)["lam", "lam"], eta * (D**2 + (q**2 - 2 * D) / lam))
            assert close(reference.second("apa", *point)["z", "z"], kappa**2 * eta * q * (q - s))


def test_lambda_zero_is_the_gumbel_limit_and_continues_small_lambda():
    z, kappa = 0.8, 1.5
    with mp.workdps(50):
        u = mp.exp(-mpf(kappa) * mpf(z))
        assert close(reference.value("apa", z, kappa, 0), mp.exp(-u))
        assert close(reference.first("apa", z, kappa, 0)["z"], kappa * u * mp.exp(-u))
        # D is u²/2 and ∂D/∂λ is −2u³/3 at λ = 0.
        assert close(reference.first("apa", z, kappa, 0)["lam"], mp.exp(-u) * u**2 / 2)
        by_lam_twice = mp.exp(-u) * (u**4 / 4 - 2 * u**3 / 3)
        assert close(reference.second("apa", z, kappa, 0)["lam", "lam"], by_lam_twice)
    for key, at_zero in reference.second("aglu", z, kappa, 0).items():
        assert close(reference.second("aglu", z, kappa, 1e-12)[key], at_zero, digits=10)


def test_tiny_and_vanishing_inputs_have_exact_results():
    assert reference.first("aglu", 0.0, 3.0, 0.5)["lam"] == 0
    assert close(reference.second("apa", 1e-300, 1, 1)["z", "z"], mpf(-1e-300) / 8)
    assert reference.value("apa", -100, 50, 0) == 0
    assert 0 < reference.value("apa", -100, 1, 1e-4) < mpf(10) ** -300_000


def test_terms_are_the_magnitudes_of_what_is_added():
    z, kappa, lam = -1.2784645427610738, 1.0, 1.0  # the minimum of SiLU: the derivative by z almost vanishes
    derivative, terms = reference.first("aglu", z, kappa, lam), reference.terms("aglu", z, kappa, lam)
    assert abs(derivative["z"]) < 1e-15
    assert close(terms["z"], 2 * reference.value("apa", z, kappa, lam), digits=14)
    assert terms["lam"] == abs(derivative["lam"])


def test_negative_lambda_is_refused():
    with pytest.raises(ValueError, match=r"lam: -1\.0 is negative"):
        reference.value("apa", 0.0, 1.0, -1.0)
