"""Every registered formula of APA and AGLU is true; what is registered as published and false is false."""

import random

import mpmath
import pytest
import sympy
import torch
from mpmath import mp, mpf

from companion.study import symbolic
from companion.study.symbolic import kappa, lam, z
from tests.apa import reference

POSITIVE_KAPPA = sympy.Symbol("kappa", positive=True)
ALL = [formula for formula in symbolic.formulas("apa-") if not formula.definition]
TRUE = [formula for formula in ALL if formula.relation != "?"]
FALSE = [formula for formula in ALL if formula.relation == "?"]
LIMITS = [formula for formula in TRUE if isinstance(formula.lhs, sympy.Limit)]
DERIVATIVES = [formula for formula in TRUE if isinstance(formula.lhs, sympy.Derivative)]
SUMS = [formula for formula in TRUE if sympy.sympify(formula.rhs).has(sympy.Sum)]
RANGES = {"z": (-3, 3), "kappa": (-2, 2.5), "lambda": (0.1, 4), "x": (-2, 2), "beta": (0.5, 2), "a": (-1, 1)}
RANGES |= {"t": (0.05, 0.9), "p": (0.05, 0.95)}
RELATIONS = {
    "=": lambda left, right: mpmath.almosteq(left, right, rel_eps=mpf(10) ** -25, abs_eps=mpf(10) ** -25),
    "≤": lambda left, right: left <= right,
    "<": lambda left, right: left < right,
    "≥": lambda left, right: left >= right,
    ">": lambda left, right: left > right,
}


def identifier(formula):
    return formula.name


def numerical(expression, symbols):
    # cse shares what η, q and D have in common, so that a point takes microseconds.
    return sympy.lambdify(symbols, symbolic.expand(sympy.sympify(expression)).doit(), "mpmath", cse=True)


def points(symbols, count, formula):
    generator = random.Random(formula.name)
    ranges = RANGES | ({"kappa": (0.1, 4)} if formula.condition == (kappa > 0) else {})
    for _ in range(count):
        yield [mpf(generator.uniform(*ranges[symbol.name])) for symbol in symbols]


def free_symbols(*expressions):
    expanded = [symbolic.expand(sympy.sympify(expression)) for expression in expressions]
    return sorted(set().union(*(expression.free_symbols for expression in expanded)), key=str)


@pytest.mark.parametrize(
    "formula",
    [each for each in TRUE if each not in [*LIMITS, *SUMS]],
    ids=identifier,
)
def test_a_formula_holds_at_random_points(formula):
    symbols = free_symbols(formula.lhs, formula.rhs)
    left, *steps, right = (numerical(side, symbols) for side in (formula.lhs, *formula.steps, formula.rhs))
    with mp.workdps(40):
        for point in points(symbols, 50, formula):
            assert RELATIONS[formula.relation](left(*point), right(*point)), point
            for step in steps:
                assert RELATIONS["="](left(*point), step(*point)), point


@pytest.mark.parametrize("formula", DERIVATIVES, ids=identifier)
def test_sympy_proves_a_derivative(formula):
    for side in (*formula.steps, formula.rhs):
        difference = symbolic.expand(formula.lhs).doit() - symbolic.expand(side).doit()
        assert sympy.simplify(sympy.expand(difference)) == 0


@pytest.mark.parametrize("formula", FALSE, ids=identifier)
def test_what_is_registered_as_false_is_false_nearly_everywhere(formula):
    true = symbolic.get(formula.name.removesuffix("-published"))
    symbols = free_symbols(true.rhs, formula.rhs)
    right, published = numerical(true.rhs, symbols), numerical(formula.rhs, symbols)
    relative_errors = [abs(published(*point) / right(*point) - 1) for point in points(symbols, 200, formula)]
    assert sum(error > 0.01 for error in relative_errors) >= 195


def plain_aglu(inputs):
    z, kappa, lam = inputs
    return z * (1 + lam * torch.exp(-kappa * z)) ** (-1 / lam)


def plain_apa(inputs):
    z, kappa, lam = inputs
    return (1 + lam * torch.exp(-kappa * z)) ** (-1 / lam)


@pytest.mark.parametrize(("prefix", "function"), [("apa-d-", plain_aglu), ("apa-eta-d-", plain_apa)])
def test_first_and_second_derivatives_equal_autograd(prefix, function):
    names = ("z", "kappa", "lambda")
    gradient = [numerical(symbolic.get(prefix + name).rhs, (z, kappa, lam)) for name in names]
    order = {name: place for place, name in enumerate(names)}
    hessian = {
        (one, other): numerical(symbolic.get(f"{prefix}{one}-{other}").rhs, (z, kappa, lam))
        for one in names
        for other in names
        if order[one] <= order[other]
    }
    generator = random.Random(2)
    for _ in range(50):
        point = [generator.uniform(-3, 3), generator.uniform(-2, 2.5), generator.uniform(0.1, 4)]
        inputs = torch.tensor(point, dtype=torch.float64)
        auto_first = torch.func.grad(function)(inputs)
        auto_second = torch.func.hessian(function)(inputs)
        for i, derivative in enumerate(gradient):
            assert float(derivative(*point)) == pytest.approx(auto_first[i].item(), rel=1e-9, abs=1e-11)
        for (one, other), derivative in hessian.items():
            expected = auto_second[order[one], order[other]].item()
            assert float(derivative(*point)) == pytest.approx(expected, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize(("prefix", "function"), [("apa-d-", "aglu"), ("apa-eta-d-", "apa")])
def test_first_derivatives_equal_the_oracle_where_nothing_cancels(prefix, function):
    for name, key in (("z", "z"), ("kappa", "kappa"), ("lambda", "lam")):
        derivative = numerical(symbolic.get(prefix + name).rhs, (z, kappa, lam))
        with mp.workdps(40):
            for point in points((z, kappa, lam), 50, symbolic.get(prefix + name)):
                expected = reference.first(function, *point)[key]
                assert mpmath.almosteq(derivative(*point), expected, rel_eps=mpf(10) ** -25)


# --- Series -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["h", "k"])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_first_terms_of_a_sum_are_the_taylor_polynomial(name, count):
    series, exact = symbolic.get(f"apa-{name}-series"), symbolic.get(f"apa-{name}")
    (t,) = exact.lhs.args
    function = symbolic.expand(exact.rhs)
    total = sympy.Sum(series.rhs.function, (series.rhs.limits[0][0], 0, count - 1)).doit()
    polynomial = sympy.series(function, t, 0, count).removeO()
    assert sympy.expand(total - polynomial) == 0


@pytest.mark.parametrize("name", ["h", "k"])
def test_the_series_converges_to_the_function(name):
    series, exact = symbolic.get(f"apa-{name}-series"), symbolic.get(f"apa-{name}")
    (t,) = exact.lhs.args
    term = sympy.lambdify((series.rhs.limits[0][0], t), series.rhs.function, "mpmath")
    function = numerical(exact.rhs, (t,))
    with mp.workdps(40):
        for value in (mpf("0.01"), mpf("0.3"), mpf("0.8")):
            total = mpmath.fsum(term(n, value) for n in range(500))
            assert mpmath.almosteq(total, function(value), rel_eps=mpf(10) ** -25)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_attention_entropy_is_the_mean_of_the_binary_entropies(count):
    formula = symbolic.get("apa-attention-entropy")
    channels = sympy.Symbol("C", integer=True, positive=True)
    attention = [sympy.Rational(1 + i, 7) for i in range(count)]

    def evaluate(side):
        written_out = symbolic.expand(side.subs(channels, count).doit())
        values = {sympy.IndexedBase("A")[i + 1]: value for i, value in enumerate(attention)}
        return float(written_out.subs(values))

    expected = -sum(float(a) * mpmath.log(a) + float(1 - a) * mpmath.log(1 - a) for a in attention) / count
    assert evaluate(formula.rhs) == pytest.approx(float(expected))
    assert evaluate(formula.steps[0]) == pytest.approx(float(expected))


# --- Limits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "formula",
    [each for each in LIMITS if each.name != "apa-relu"],
    ids=identifier,
)
def test_sympy_finds_a_limit(formula):
    limit, expected = symbolic.expand(formula.lhs), symbolic.expand(sympy.sympify(formula.rhs))
    if formula.condition == (kappa > 0):
        limit, expected = limit.subs(kappa, POSITIVE_KAPPA), expected.subs(kappa, POSITIVE_KAPPA)
    difference = limit.doit() - expected
    # max(0, z) + min(0, z) is z, which SymPy sees for each sign of z.
    for signed in (sympy.Symbol("z", positive=True), sympy.Symbol("z", negative=True)):
        assert sympy.simplify(difference.subs(z, signed)) == 0


@pytest.mark.parametrize("sign", ["positive", "negative", "zero"])
def test_sympy_finds_the_relu_limit_for_each_sign_of_z(sign):
    formula = symbolic.get("apa-relu")
    signed = sympy.Integer(0) if sign == "zero" else sympy.Symbol("z", **{sign: True})
    assert sympy.limit(symbolic.expand(formula.lhs.args[0]).subs(z, signed), kappa, sympy.oo) == sympy.Max(0, signed)


def test_the_gumbel_limit_has_the_error_lambda_u_squared_over_two():
    gap, u = numerical(symbolic.get("apa-gumbel-gap").lhs, (z, kappa, lam)), mp.exp(mpf("-0.6"))
    with mp.workdps(60):
        ratios = [gap(mpf("0.6"), mpf(1), mpf(10) ** -n) / (mpf(10) ** -n * u**2 / 2) for n in (3, 6, 9)]
    assert [abs(ratio - 1) < 10.0 ** -(n - 1) for ratio, n in zip(ratios, (3, 6, 9), strict=True)] == [True] * 3
    assert all(ratio <= 1 for ratio in ratios)


@pytest.mark.parametrize("shape", [1e-4, 0.01, 1.0, 30.0])
def test_the_gate_is_within_two_lambda_over_e_squared_of_the_gumbel_curve(shape):
    formula = symbolic.get("apa-gumbel-uniform")
    gap, bound = numerical(formula.lhs, (z, kappa, lam)), shape * 2 * mp.exp(-2)
    with mp.workdps(40):
        gaps = [gap(mpf(a) / 20, mpf(1), mpf(shape)) for a in range(-200, 400)]
        # at E = 2 the bound is the first order in λ
        near = gap(-mp.log(2), mpf(1), mpf(shape)) / bound
    assert min(gaps) >= 0
    assert max(gaps) <= bound
    assert shape > 0.01 or near > 1 - shape


def test_the_bound_is_the_largest_value_of_half_of_l_squared_times_its_gate():
    x = sympy.Symbol("x", positive=True)
    slope = x**2 * sympy.exp(-x) / 2
    (place,) = sympy.solve(sympy.diff(slope, x), x)
    assert sympy.simplify(slope.subs(x, place) - symbolic.get("apa-gumbel-uniform").rhs / lam) == 0
    # D ≤ L²/2: with y = λ L it says 1 − exp(−y) ≥ y − y²/2, which is 0 ≥ 0 at 0 and has the slope exp(−y) ≥ 1 − y
    difference = 1 - sympy.exp(-x) - x + x**2 / 2
    assert sympy.limit(difference, x, 0) == 0
    assert sympy.simplify(sympy.diff(difference, x) - (sympy.exp(-x) - 1 + x)) == 0


def test_the_relu_limit_is_uniform_with_an_error_of_a_constant_over_kappa():
    aglu = numerical(symbolic.get("apa-aglu").lhs, (z, kappa, lam))
    for shape in (0.05, 1.0, 5.0):
        worst = []
        for gain in (1, 10, 100):
            grid = [mpf(a) / 20 / gain for a in range(-2000, 2001)]
            worst.append(max(abs(aglu(x, gain, shape) - max(0, x)) for x in grid))
        assert worst[0] / worst[1] == pytest.approx(10, rel=1e-9)
        assert worst[1] / worst[2] == pytest.approx(10, rel=1e-9)


def test_the_identity_limit_is_reached_at_each_z_but_never_uniformly():
    aglu = numerical(symbolic.get("apa-aglu").lhs, (z, kappa, lam))
    assert abs(aglu(-2.0, 1.0, 1e6) + 2.0) < 1e-4
    for shape in (1e2, 1e4, 1e6):
        far = -100 * mpf(shape)
        assert abs(aglu(far, mpf(1), mpf(shape))) < 1e-30
        assert abs(aglu(far, mpf(1), mpf(shape)) - far) > 99 * shape


def test_the_gelu_differs_from_aglu_by_two_hundredths_and_no_less():
    gap = symbolic.get("apa-gelu-gap")
    function = numerical(gap.lhs, (z,))
    grid = [mpf(i) / 500 for i in range(-5000, 5001)]
    place = max(grid, key=function)
    assert 0.0202 < function(place) < gap.rhs
    assert abs(abs(place) - 2.27) < 0.01
    # Beyond the grid |z| (1 − Φ) and |z| (1 − σ) bound both curves' distance from max(0, z).
    assert 10 * (1 - mpmath.ncdf(10)) + 10 / (1 + mp.exp(17)) < 1e-5


# --- Minimum and range --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [1e-9, 0.01, 1.0, 30.0, 500.0])
def test_the_minimum_is_the_smallest_value_on_a_grid(shape):
    aglu = numerical(symbolic.get("apa-aglu").lhs, (z, kappa, lam))
    with mp.workdps(40):
        minimum = numerical(symbolic.get("apa-minimum").rhs, (kappa, lam))(mpf(1), mpf(shape))
        place = numerical(symbolic.get("apa-minimum-at").lhs, (kappa, lam))(mpf(1), mpf(shape))
        values = [aglu(place * i / 500, mpf(1), mpf(shape)) for i in range(1, 2000)]
        assert min(values) >= minimum - mpf(10) ** -20
        assert mpmath.almosteq(aglu(place, mpf(1), mpf(shape)), minimum, rel_eps=mpf(10) ** -20)


def test_the_minimum_of_silu_is_the_known_one():
    minimum = numerical(symbolic.get("apa-minimum").rhs, (kappa, lam))
    assert float(minimum(1, 1)) == pytest.approx(-0.2784645427610738)
