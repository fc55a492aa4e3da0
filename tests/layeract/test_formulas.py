"""Every registered formula of LayerAct is true; what is registered as published and false is false."""

import itertools
import math
import random

import mpmath
import pytest
import sympy
import torch
from mpmath import mp, mpf
from sympy import Eq, Le

from companion.layeract.study import formulas
from companion.layeract.study.formulas import D, Holds, K, Scale, Slope, alpha, d, i, j, written_out
from companion.study import symbolic

ALL = [formula for formula in symbolic.formulas("layeract-") if not formula.definition]
FREE = {"c": (-3, 3), "x": (-8, 8), "u": (-8, 8), "q": (0.1, 5), "t": (0.1, 5), "tau": (0.1, 4), "m": (-4, 4)}
APART = ("layeract-gaussian-mean", "layeract-code-error")


def identifier(formula):
    return formula.name


def sides(formula):
    return [sympy.sympify(side) for side in (formula.lhs, *formula.steps, formula.rhs)]


def speaks_of_rows(formula):
    return any(side.has(sympy.Indexed, formulas.L, formulas.mu, formulas.v) for side in sides(formula))


OF_ROWS = [formula for formula in ALL if speaks_of_rows(formula) and formula.name not in APART]
TRUE = [formula for formula in OF_ROWS if formula.relation != "?"]
FALSE = [formula for formula in OF_ROWS if formula.relation == "?"]
OF_NUMBERS = [formula for formula in ALL if not speaks_of_rows(formula) and formula.name not in APART]

RELATIONS = {
    "=": lambda left, right: mpmath.almosteq(left, right, rel_eps=mpf(10) ** -25, abs_eps=mpf(10) ** -25),
    "≤": lambda left, right: left <= right + mpf(10) ** -25,
    "<": lambda left, right: left < right,
    "≥": lambda left, right: left >= right - mpf(10) ** -25,
}

# --- Numbers for a row --------------------------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + mp.exp(-x))


def hardsigmoid(x):
    return min(mpf(1), max(mpf(0), mpf(x) / 6 + mpf(1) / 2))


# A scale, its slope, and 1/K.
SCALES = {
    "sigmoid": (sigmoid, lambda x: sigmoid(x) * sigmoid(-x), 4),
    "hardsigmoid": (hardsigmoid, lambda x: mpf(1) / 6 if abs(x) < 3 else mpf(0), 6),
}


def elementary(expression):
    """Without defined functions; only where there were any is something left to do."""
    expanded = symbolic.expand(expression)
    return expression if expanded is expression else expanded.doit()


def compiled(expressions):
    """A function of the numbers of a row, and of a scale's name."""
    expressions = [
        elementary(expression).replace(Holds, lambda relation: sympy.Piecewise((1, relation), (0, True)))
        for expression in expressions
    ]
    atoms = set().union(*(each.atoms(sympy.Indexed, sympy.Symbol) for each in expressions))
    names = sorted((atom for atom in atoms if not isinstance(atom, sympy.Idx)), key=str)
    labels = {element.base.label for element in names if isinstance(element, sympy.Indexed)}
    names = [name for name in names if name not in labels]
    chosen = {}
    modules = [{"Scale": lambda x: chosen["s"](x), "Slope": lambda x: chosen["slope"](x)}, "mpmath"]
    function = sympy.lambdify(names, expressions, modules, cse=True)

    def evaluate(values, scale):
        chosen["s"], chosen["slope"], inverse = SCALES[scale]
        values = values | {K: mpf(1) / inverse}
        return function(*(mpf(values[name]) for name in names))

    return evaluate


def rows(count, generator):
    """Rows that are hard for one formula or another: all with small and large α."""
    kinds = {
        "normal": lambda: [generator.gauss(0, 1) for _ in range(count)],
        "far": lambda: [generator.gauss(50, 0.5) for _ in range(count)],
        "tight": lambda: [generator.gauss(-1, 1e-3) for _ in range(count)],
        "outlier": lambda: [generator.gauss(0, 0.1) for _ in range(count - 1)] + [generator.choice((-20, 20))],
        "tied": lambda: [float(generator.choice((-1, 2))) for _ in range(count)],
    }
    for kind, make in kinds.items():
        for noise in (0.01, 1.0, 5.0):
            values = {formulas.y[k + 1]: value for k, value in enumerate(make())}
            for base, size in ((formulas.epsilon, noise), (formulas.g, 1)):
                values |= {base[k + 1]: generator.gauss(0, size) for k in range(count)}
            values |= {alpha: generator.choice((1e-5, 1e-3, 0.1, 1.0))}
            for name, ends in FREE.items():
                symbol = sympy.Symbol(name, **({"positive": True} if ends[0] > 0 else {"real": True}))
                values[symbol] = generator.uniform(*ends)
            yield kind, values


def allows(formula, count, unbiased):
    """Whether the condition of a formula allows rows of so many elements, and this variance."""
    condition = formula.condition
    if isinstance(condition, Eq) and condition.lhs == D:
        return unbiased == (condition.rhs == d - 1)
    if isinstance(condition, (Eq, Le)) and condition.lhs == d:
        return bool(condition.subs(d, count))
    return True


def instances(formula, count):
    """The sides of a formula, for every choice of its free indices."""
    used = [index for index in (i, j) if any(index in side.free_symbols for side in sides(formula))]
    return [
        [side.subs(dict(zip(used, numbers, strict=True))) for side in sides(formula)]
        for numbers in itertools.product(range(1, count + 1), repeat=len(used))
    ]


def evaluated(formula, count, unbiased):
    """Yield all sides of a formula, for hard rows and both scales."""
    given = formula.condition
    chosen = instances(formula, count)
    function = compiled([written_out(side, count, unbiased=unbiased, given=given) for case in chosen for side in case])
    generator = random.Random(f"{formula.name} {count} {unbiased}")
    width = len(sides(formula))
    with mp.workdps(50):
        for kind, values in rows(count, generator):
            for scale in SCALES:
                results = function(values, scale)
                for start in range(0, len(results), width):
                    yield f"{kind}, {scale}, {values}", results[start : start + width]


# Four elements with one variance only: they take longest, and the other variance changes nothing but a divisor.
SIZES = [(1, False), (2, False), (2, True), (3, False), (3, True), (4, False)]


def cases(formulas_, sizes):
    return [
        pytest.param(formula, count, unbiased, id=f"{formula.name}-{count}-{'unbiased' if unbiased else 'biased'}")
        for formula in formulas_
        for count, unbiased in sizes
        if allows(formula, count, unbiased)
    ]


@pytest.mark.parametrize(("formula", "count", "unbiased"), cases(TRUE, SIZES))
def test_a_formula_holds_for_all_kinds_of_rows(formula, count, unbiased):
    for row, (left, *steps, right) in evaluated(formula, count, unbiased):
        assert RELATIONS[formula.relation](left, right), row
        assert all(RELATIONS["="](left, step) for step in steps), row


@pytest.mark.parametrize("formula", FALSE, ids=identifier)
def test_what_is_registered_as_false_is_false_for_most_rows(formula):
    unbiased = formula.condition is not None
    differences = [
        abs(left - right) / (abs(left) + abs(right))
        for row, (left, right) in evaluated(formula, 4, unbiased)
        # In exactly symmetric rows, or where no element is beyond ±3, the scales do sum to d/2.
        if not (formula.name == "layeract-scale-sum-published" and "hardsigmoid" in row)
    ]
    assert sum(difference > 1e-15 for difference in differences) > 0.8 * len(differences)


@pytest.mark.parametrize("formula", OF_NUMBERS, ids=identifier)
def test_a_formula_of_the_scales_holds_at_random_points(formula):
    left, right = (symbolic.expand(side).doit() for side in (formula.lhs, sympy.sympify(formula.rhs)))
    symbols = sorted(left.free_symbols | right.free_symbols, key=str)
    functions = [sympy.lambdify(symbols, side, ["mpmath"]) for side in (left, right)]
    generator = random.Random(formula.name)
    limit = 3 if formula.condition is not None else 8
    with mp.workdps(40):
        for _ in range(300):
            point = [mpf(generator.uniform(-limit, limit)) for _ in symbols]
            assert RELATIONS[formula.relation](*(function(*point) for function in functions)), point


# --- Proofs by SymPy ----------------------------------------------------------------------------------------

PROVED = [
    *("mean-d-y", "variance-d-mean", "variance-d-y", "rstd-d-variance", "normalised-d-y", "output-d-y", "gradient"),
    *("gradient-assembled", "sum-normalised", "sum-squares", "constant-gradient", "constant-output", "one-output"),
    *("two-normalised", "two-other", "noisy-variance", "shift-normalised", "mean-gradient", "variance-gradient"),
]


def is_zero(difference, count, unbiased):
    """Prove that an expression in a row is zero, for every scale: v + α becomes the square of a symbol."""
    spread = written_out(formulas.v, count, unbiased=unbiased)
    root = sympy.Symbol("R", positive=True)
    names = {}

    def named(kind):
        return lambda argument: names.setdefault(
            (kind, sympy.cancel(argument.subs(alpha, root**2 - spread))), sympy.Dummy()
        )

    for kind in (Scale, Slope):
        difference = difference.replace(kind, named(kind))
    return sympy.cancel(difference.subs(alpha, root**2 - spread)) == 0


@pytest.mark.parametrize(
    ("formula", "count", "unbiased"),
    cases([symbolic.get(f"layeract-{name}") for name in PROVED], [*SIZES, (4, True)]),
)
def test_sympy_proves_a_step_for_every_row_and_every_scale(formula, count, unbiased):
    # By symmetry the first element, and a pair of the first and another, stand for all.
    first = {i: 1, j: min(2, count)}
    constant = isinstance(formula.condition, Eq) and formula.condition.lhs.has(formulas.y)
    for pair in (first, {i: 1, j: 1}):
        left, *others = (
            written_out(side.subs(pair), count, unbiased=unbiased, given=formula.condition) for side in sides(formula)
        )
        for other in others:
            if constant:
                assert sympy.simplify(left - other) == 0
            else:
                assert is_zero(left - other, count, unbiased)


# --- Autograd -----------------------------------------------------------------------------------------------


def layer_act(y, alpha, scale, unbiased):
    """Eq. 6 of the paper, in torch's own words."""
    normalised = (y - y.mean()) / torch.sqrt(y.var(correction=int(unbiased)) + alpha)
    # torch's own hardsigmoid has the slope 1/6 in single precision even where its input is float64.
    return y * (torch.sigmoid(normalised) if scale == "sigmoid" else (normalised / 6 + 0.5).clamp(0, 1))


def in_torch(values, base, count):
    return torch.tensor([float(values[base[k + 1]]) for k in range(count)], dtype=torch.float64)


@pytest.mark.parametrize(("count", "unbiased"), [(1, False), (2, False), (2, True), (5, False), (5, True)])
def test_output_and_gradient_equal_autograd(count, unbiased):
    names = ("layeract-output", "layeract-gradient")
    functions = [
        compiled([written_out(symbolic.get(name).rhs.subs(i, k + 1), count, unbiased=unbiased) for k in range(count)])
        for name in names
    ]
    for scale, (_, values) in itertools.product(SCALES, rows(count, random.Random(7))):
        y, g = (in_torch(values, base, count) for base in (formulas.y, formulas.g))

        def function(row, alpha=float(values[alpha]), scale=scale):
            return layer_act(row, alpha, scale, unbiased)

        output, pullback = torch.func.vjp(function, y)
        expected = output, pullback(g)[0]
        for name, own, theirs in zip(names, functions, expected, strict=True):
            computed = torch.tensor([float(value) for value in own(values, scale)], dtype=torch.float64)
            torch.testing.assert_close(computed, theirs, rtol=1e-8, atol=1e-9, msg=f"{name}, {scale}")


@pytest.mark.parametrize("count", [2, 3, 6])
def test_the_published_backward_pass_is_wrong_by_the_registered_error(count):
    code, error = (symbolic.get(f"layeract-{name}").rhs for name in ("gradient-code", "code-error"))
    function = compiled(
        [written_out(side.subs(i, k + 1), count, unbiased=True) for side in (code, error) for k in range(count)]
    )
    for scale, (kind, values) in itertools.product(SCALES, rows(count, random.Random(11))):
        y, g = (in_torch(values, base, count).requires_grad_() for base in (formulas.y, formulas.g))
        layer_act(y, float(values[alpha]), scale, unbiased=True).backward(g.detach())
        computed = torch.tensor([float(value) for value in function(values, scale)], dtype=torch.float64)
        published, wrong = computed.split(count)
        torch.testing.assert_close(published - y.grad, wrong, rtol=1e-6, atol=1e-7)
        if kind == "normal":
            assert wrong.abs().max() > 1e-4


# --- How sharp the bounds are -------------------------------------------------------------------------------


def statistics(row, alpha, unbiased=False):
    """μ, v, r and n of a row, in plain Python."""
    mean = math.fsum(row) / len(row)
    variance = math.fsum((value - mean) ** 2 for value in row) / (len(row) - unbiased)
    root = 1 / math.sqrt(variance + alpha)
    return mean, variance, root, [(value - mean) * root for value in row]


@pytest.mark.parametrize("unbiased", [False, True], ids=["biased", "unbiased"])
@pytest.mark.parametrize("count", [2, 5, 10, 11, 100])
def test_one_outlier_reaches_the_largest_normalised_value(count, unbiased):
    *_, normalised = statistics([0.0] * (count - 1) + [1e6], 1e-5, unbiased)
    bound = symbolic.get("layeract-largest").rhs.subs({d: count, D: count - unbiased})
    assert max(map(abs, normalised)) == pytest.approx(float(bound), rel=1e-9)
    assert (max(map(abs, normalised)) > 3) == (count > 10)


def test_one_element_in_ten_can_come_as_near_to_saturation_as_one_likes_and_no_more():
    *_, normalised = statistics([-10.0] + [0.0] * 9, 1e-5)
    assert normalised[0] == pytest.approx(-3, rel=1e-5)
    assert normalised[0] > -3
    bound = symbolic.get("layeract-low-share").rhs
    assert float(bound.subs(sympy.Symbol("t", positive=True), 3)) == pytest.approx(0.1)


def test_rows_that_were_searched_for_the_purpose_do_not_break_the_bound_on_noise():
    generator = random.Random(5)
    largest = 0.0
    for _ in range(3000):
        count = generator.choice((2, 3, 5, 20))
        alpha = generator.choice((1e-5, 1e-2, 1.0))
        row = [generator.gauss(0, 1) ** generator.choice((1, 3)) for _ in range(count)]
        factor = generator.choice((-2.0, -1.0, -0.5, 0.0, 1.0))
        noise = [factor * value + generator.gauss(0, generator.choice((1e-3, 0.1, 1))) for value in row]
        noisy = [value + change for value, change in zip(row, noise, strict=True)]
        (_, _, r, n), (_, _, r_hat, n_hat) = statistics(row, alpha), statistics(noisy, alpha)
        centre = math.fsum(noise) / count
        bound = 2 / (1 / r + 1 / r_hat) * math.dist(noise, [centre] * count)
        largest = max(largest, math.dist(n, n_hat) / bound)
    assert 0.99 < largest <= 1 + 1e-9


def test_the_bound_on_noise_is_reached_where_the_noise_permutes_the_row():
    row, noisy = [0.3, -1.2, 2.5, 0.1], [2.5, 0.3, 0.1, -1.2]
    (_, _, r, n), (_, _, r_hat, n_hat) = statistics(row, 0.1), statistics(noisy, 0.1)
    assert math.dist(n, n_hat) == pytest.approx(2 / (1 / r + 1 / r_hat) * math.dist(row, noisy))


# --- Long rows, and many samples ----------------------------------------------------------------------------


@pytest.mark.parametrize(("mean", "deviation", "stability"), [(0, 1, 1e-5), (2, 0.5, 0.1), (-3, 4, 1.0)])
@pytest.mark.parametrize("scale", SCALES)
def test_the_mean_output_of_a_normal_row_is_the_integral(scale, mean, deviation, stability):
    formula = symbolic.get("layeract-gaussian-mean")
    names = {"m": mean, "tau": deviation, "alpha": stability}
    function, derivative, _ = SCALES[scale]

    def value(side):
        total = mpf(0)
        for term in sympy.Add.make_args(sympy.expand(symbolic.expand(side))):
            numbers = {symbol: names[symbol.name] for symbol in term.free_symbols if symbol.name in names}
            factor, integral = term.as_independent(sympy.Integral, as_Add=False)
            if integral == 1:
                total += mpf(factor.subs(numbers))
                continue
            (variable,) = integral.variables
            integrand = sympy.lambdify(
                variable, integral.function.subs(numbers), [{"Scale": function, "Slope": derivative}, "mpmath"]
            )
            edge = 3 * mp.sqrt(deviation**2 + stability) / deviation
            total += mpf(factor.subs(numbers)) * mp.quad(integrand, sorted([-40, -8, -edge, 0, edge, 8, 40]))
        return total

    values = [value(side) for side in (*formula.steps, formula.rhs)]
    assert all(mpmath.almosteq(each, values[0], rel_eps=1e-10) for each in values)
    count = 20_001
    quantiles = [math.sqrt(2) * float(mp.erfinv(2 * (k + 0.5) / count - 1)) for k in range(0, count, 20)]
    row = torch.tensor([mean + deviation * u for u in quantiles], dtype=torch.float64)
    assert layer_act(row, stability, scale, False).mean().item() == pytest.approx(float(values[0]), abs=0.02)


def test_a_row_is_written_out_with_another_meaning_of_the_noisy_row():
    normalised = sympy.IndexedBase(r"\hat{n}", real=True)
    own = written_out(normalised[1], 2, given=symbolic.get("layeract-shift-normalised").condition)
    noisy = written_out(normalised[1], 2)
    assert not own.has(formulas.epsilon)
    assert noisy.has(formulas.epsilon)
