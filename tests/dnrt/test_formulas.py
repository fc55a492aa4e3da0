"""Every registered formula of RAA and ARR: by SymPy for vectors of one to four elements, or by integration."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath
import pytest
import sympy
import torch
from mpmath import mpf

from companion.dnrt.op import raa
from companion.dnrt.study import formulas
from companion.dnrt.study.formulas import Gate, Slope, Z, b, deviation, i, j, k, m, n, w, written_out, x
from companion.study import symbolic
from tests.cases import together

FORMULAS = symbolic.formulas("dnrt-")
#: Names for what is meant: nothing that could be false.
NAMES = {"dnrt-offset", "dnrt-raa", "dnrt-slope-share", "dnrt-slope-sum", "dnrt-glu-direction", "dnrt-glu-bias"} | {
    "dnrt-arr-loss",
    "dnrt-objective",
}
#: Means, integrals and bounds, which have tests of their own.
BY_NUMBERS = {f"dnrt-arr-{name}" for name in ("spread", "distance", "skewed", "fisher", "variance", "lag")}
MOMENTA = [mpf(each) / 10 for each in (1, 3, 5, 8, 10)]
WIDTH = 4


def sides(formula: symbolic.Formula) -> tuple[Any, ...]:
    return (formula.lhs, *formula.steps, sympy.sympify(formula.rhs))


def instances(formula: symbolic.Formula, count: int) -> list[tuple[Any, ...]]:
    """All sides for all indices, written out, with 1/(1 + T) for the momentum, which is between 0 and 1."""
    cases = [sides(formula)]
    for index in (i, j, k, n):
        cases = [tuple(side.subs(index, number) for side in case) for case in cases for number in range(1, count + 1)]
    momentum = {m: 1 / (1 + sympy.Symbol("T", positive=True))}
    return [
        tuple(symbolic.expand(written_out(side, count, formula.condition)).subs(momentum) for side in case)
        for case in dict.fromkeys(cases)
    ]


def is_zero(difference: Any) -> bool:
    difference = difference.doit()
    if sympy.expand(difference) == 0:
        return True
    difference = difference.replace(sympy.Abs, lambda each: sympy.Abs(sympy.factor(each)))
    if difference.has(sympy.Abs):  # of two that differ, simplify would look for ever
        return bool(sympy.cancel(difference) == 0)
    return bool(sympy.simplify(difference.rewrite(sympy.erf)) == 0)


PROVED = [each for each in FORMULAS if each.name not in NAMES | BY_NUMBERS]


@together("formula", PROVED, of=lambda formula: formula.name)
def test_both_sides_are_the_same_for_every_vector(formula: symbolic.Formula) -> None:
    for count in range(1, WIDTH + 1):
        for left, *others in instances(formula, count):
            assert all(is_zero(left - other) for other in others), (formula.name, count)


def test_a_false_gradient_is_found() -> None:
    """Without the part of the offset, every instance of two elements differs from the derivative."""
    formula = symbolic.get("dnrt-gradient")
    false = formula.rhs - w[j] * formulas.H
    for at in (1, 2):
        left, right = (written_out(side.subs(j, at), 2) for side in (formula.lhs, false))
        assert sympy.simplify(left - right) != 0


@pytest.mark.parametrize("gate", ["gelu", "silu", "relu"])
def test_the_operator_is_the_formula(gate: str) -> None:
    count, functions = (
        3,
        {
            "gelu": lambda u: math.erfc(-u / math.sqrt(2)) / 2,
            "silu": lambda u: 1 / (1 + math.exp(-u)),
            "relu": lambda u: float(u > 0),
        },
    )
    vector, weight, bias = [0.7, -1.2, 0.1], [0.3, -0.5, 2.0], -0.4
    values: dict[Any, Any] = {b: bias}
    values |= {x[at + 1]: vector[at] for at in range(count)} | {w[at + 1]: weight[at] for at in range(count)}
    found = raa(*(torch.tensor(each, dtype=torch.float64) for each in (vector, weight, bias)), gate=gate)
    for at in range(count):
        written = written_out(formulas.y[at + 1], count).subs(values)
        exact = written.replace(Gate, lambda u: sympy.Float(functions[gate](float(u))))
        assert abs(found[at].item() - float(exact)) < 1e-14


def test_with_zeros_it_is_the_activation_that_it_replaces() -> None:
    zeros = {b: 0, **{w[at]: 0 for at in (1, 2)}}
    assert written_out(formulas.y[1], 2).subs(zeros) == x[1] * Gate(x[1])
    assert Slope(formulas.z) == Gate(formulas.z).diff(formulas.z)


# --- what RAA can do and a linear layer before or behind an activation cannot ---------------------------------------


def test_where_the_gate_stands_still_raa_is_a_line_whose_slope_depends_on_the_line() -> None:
    """What the theorem of dnrt-derivation says of RAA; of GELUs it uses dnrt-gelu-bend and dnrt-gelu-pair."""
    weight, bias = torch.tensor([0.5, -2.0, 1.0], dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64)
    along = torch.tensor([1.0, 0.0, -1.5], dtype=torch.float64)  # x_1 + wᵀx does not change
    slopes = []
    for start in (torch.zeros(3, dtype=torch.float64), torch.tensor([0.0, -1.0, 0.4], dtype=torch.float64)):
        line = torch.stack([start + t * along for t in range(-3, 4)])
        y = raa(line, weight, bias)[:, 0]
        torch.testing.assert_close(y.diff(n=2), torch.zeros(5, dtype=torch.float64), atol=1e-14, rtol=0)
        slopes.append(y.diff()[0].item())
    assert abs(slopes[0] - slopes[1]) > 0.3


def test_behind_a_wide_linear_layer_many_weights_give_the_same_function() -> None:
    torch.manual_seed(0)
    value, shift = torch.randn(12, 5, dtype=torch.float64), torch.randn(12, dtype=torch.float64)
    weight, bias = torch.randn(12, dtype=torch.float64), torch.randn((), dtype=torch.float64)
    x = torch.randn(40, 5, dtype=torch.float64) @ value.T + shift
    # w' = w + what is orthogonal to the columns of V; b' takes back what that does to a
    orthogonal = torch.linalg.qr(value, mode="complete").Q[:, 5:] @ torch.randn(7, dtype=torch.float64)
    other = raa(x, weight + orthogonal, bias - orthogonal @ shift)
    torch.testing.assert_close(raa(x, weight, bias), other, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(raa(x, weight, bias), raa(x, weight + orthogonal, bias))


@pytest.mark.parametrize("share", [0.0, -0.4, 1.5])
def test_behind_a_layer_an_offset_along_its_own_row_leaves_a_stretched_gelu(share: float) -> None:
    """With r = l V_i and b̃ = l a_i the gate sees (1 + l) x_i: the theorem wants r and V_i to be independent."""
    torch.manual_seed(0)
    value, shift = torch.randn(8, 3, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    unseen = torch.linalg.qr(value, mode="complete").Q[:, 3:] @ torch.randn(5, dtype=torch.float64)
    weight = unseen + torch.linalg.pinv(value.T) @ (share * value[0])
    bias = share * shift[0] - weight @ shift
    x = torch.randn(40, 3, dtype=torch.float64) @ value.T + shift
    stretched = torch.nn.functional.gelu((1 + share) * x[:, 0]) / (1 + share)
    assert weight.abs().min() > 0.01
    torch.testing.assert_close(raa(x, weight, bias)[:, 0], stretched, rtol=1e-12, atol=1e-12)


def test_a_larger_offset_multiplies_the_smaller_of_two_gates_by_more() -> None:
    growth = sympy.lambdify(formulas.z, symbolic.expand(symbolic.get("dnrt-gate-growth").rhs), "mpmath")
    with mpmath.workdps(40):
        values = [growth(mpf(z) / 4) for z in range(-40, 41)]
    assert all(later < earlier for earlier, later in itertools.pairwise(values))


# --- means, integrals, infinite sums, bounds ------------------------------------------------------------------------


def mean_of(function: Any) -> mpf:
    """Of a function of a standard normal Z; in two halves, because |Z| has a kink."""
    return mpmath.quad(lambda u: function(u) * mpmath.npdf(u), [-mpmath.inf, 0, mpmath.inf])


def number(expression: Any, values: dict[Any, Any]) -> mpf:
    return mpf(sympy.sympify(expression).subs(values).evalf(25))


@pytest.mark.parametrize("momentum", [*MOMENTA[:4]])
def test_the_loss_of_a_normal_class_is_the_integral(momentum: mpf) -> None:
    values = {m: momentum, deviation: mpf("1.7")}
    exact, moving = symbolic.get("dnrt-arr-spread"), symbolic.get("dnrt-arr-distance")
    response = exact.condition.rhs - sympy.Symbol(r"\mu", real=True)
    law = sympy.lambdify(Z, sympy.Abs(response).subs(values), "mpmath")
    assert mpmath.almosteq(mean_of(law), number(exact.rhs, values), rel_eps=1e-12)
    variance = number(moving.condition.rhs, values)
    # x − μ is a sum of independent normals: the new sample, and the old ones with their weights
    weights = [mpf(1)] + [momentum * (1 - momentum) ** age for age in range(1000)]
    spread = values[deviation] * mpmath.sqrt(mpmath.fsum(weight**2 for weight in weights))
    integral = mean_of(lambda u: abs(spread * u))
    for side in (*moving.steps, moving.rhs):
        assert mpmath.almosteq(integral, number(side, values | {moving.condition.lhs: variance}), rel_eps=1e-12)


@together("momentum", MOMENTA)
def test_variance_and_lag_are_what_the_update_tends_to(momentum: mpf) -> None:
    delta = sympy.Symbol(r"\delta", real=True)
    variance, at, lag_before = mpf(0), mpf(0), mpf(0)
    for step in range(1, 1000):
        variance = (1 - momentum) ** 2 * variance + momentum**2 * mpf("1.7") ** 2
        lag_before = 3 * step - at
        at = (1 - momentum) * at + momentum * 3 * step
    found = {"variance": variance, "lag": lag_before}
    for name, limit in found.items():
        formula = symbolic.get(f"dnrt-arr-{name}")
        total = next(side for side in sides(formula) if side.has(sympy.Sum))
        values = {m: momentum, deviation: mpf("1.7"), delta: 3}
        term = sympy.lambdify(formulas.age, total.function.subs(values), "mpmath")
        summed = mpmath.fsum(term(index) for index in range(1000))
        for value in (number(formula.rhs, values), summed):
            assert mpmath.almosteq(limit, value, rel_eps=1e-12, abs_eps=1e-12), name


def test_no_sum_that_holds_two_classes_apart_has_less_spread_than_fishers() -> None:
    formula = symbolic.get("dnrt-arr-fisher")
    spread, bound = (sympy.lambdify(list(fisher_symbols(3)), written_out(side, 3)) for side in sides(formula))
    torch.manual_seed(0)
    for _ in range(300):
        weights, (distances, deviations) = torch.randn(3).tolist(), (0.1 + torch.rand(2, 3)).tolist()
        distances[2] = 0.0  # a feature that is only noise
        assert spread(*weights, *distances, *deviations) >= bound(*weights, *distances, *deviations) - 1e-9
        best = [distance / deviation**2 for distance, deviation in zip(distances, deviations, strict=True)]
        least = spread(*best, *distances, *deviations)
        assert least == pytest.approx(bound(*best, *distances, *deviations))


def fisher_symbols(count: int) -> list[Any]:
    bases = (
        formulas.beta,
        sympy.IndexedBase(r"\Delta", real=True),
        sympy.IndexedBase(r"\sigma", positive=True),
    )
    return [base[index] for base in bases for index in range(1, count + 1)]


@together("place", [mpf(each) for each in ("0.1", "0.693", "1", "3")])
def test_the_loss_of_a_skewed_class_is_the_integral(place: mpf) -> None:
    formula = symbolic.get("dnrt-arr-skewed")
    integral = mpmath.quad(lambda t: abs(t - place) * mpmath.exp(-t), [0, place, mpmath.inf])
    assert mpmath.almosteq(integral, number(formula.rhs, {formulas.mean_place: place}), rel_eps=1e-12)


def test_the_error_is_the_share_beyond_the_middle() -> None:
    formula = symbolic.get("dnrt-arr-error")
    error = sympy.lambdify(formula.lhs.args, symbolic.expand(formula.rhs), "mpmath")
    for distance, spread in ((2, 1), (0.3, 1.5), (4, 0.9)):
        share = mpmath.quad(lambda u, at=distance, sd=spread: mpmath.npdf(u, at / 2, sd), [-mpmath.inf, 0])
        assert mpmath.almosteq(share, error(mpf(distance), mpf(spread)), rel_eps=1e-10)


def test_the_formulas_give_round_numbers_for_a_tenth_as_momentum() -> None:
    """Which dnrt-derivation quotes."""
    at = {m: sympy.Rational(1, 10), deviation: 1, sympy.Symbol(r"\delta", real=True): 1}
    exact, moving, variance, lag, slope = (
        number(symbolic.get(f"dnrt-arr-{name}").rhs, at | {formulas.mean_place: 1})
        for name in ("spread", "distance", "variance", "lag", "skewed-slope")
    )
    assert 1 / variance == pytest.approx(19)
    assert lag == pytest.approx(10)
    assert round(lag / (256 / 100)) == 4  # batches of 256 with 100 classes
    assert float(exact) == pytest.approx(0.798, abs=5e-4)
    assert float(moving / exact - 1) == pytest.approx(0.026, abs=5e-4)
    assert float(slope) == pytest.approx(0.264, abs=5e-4)
