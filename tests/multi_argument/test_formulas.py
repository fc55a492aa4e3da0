"""Every registered formula of multi-argument neurons: by SymPy, by autograd, by enumeration or by integration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy
import torch
from mpmath import mpf
from scipy import stats
from torch import Tensor, nn

from companion.multi_argument.op import multi_argument, quadratic_form
from companion.multi_argument.study import formulas
from companion.multi_argument.study.counts import inner_parameters, match, mlp_parameters
from companion.multi_argument.study.formulas import L, Z, c, h, i, j, k, n, written_out
from companion.multi_argument.study.surfaces import bends, curvature, hermite_functions, shape, spectrum
from companion.study import symbolic
from tests.cases import together
from tests.claims.multi_argument.facts import grid, p_value, quadratics

ROOM = "multi_argument-"
FORMULAS = {each.name.removeprefix(ROOM): each for each in symbolic.formulas(ROOM)}
#: Names for what is meant: nothing that could be false.
NAMES = {"first", "second", "output", "back-second", "back-first", "count-inner", "count-outer", "count"} | {
    "quadratic",
    "curvature",
    "eigenvalue-high",
    "eigenvalue-low",
    "shape",
    "threshold-unit",
    "amplitude",
    "power",
}
#: Sums over a network, written out for small ones.
WRITTEN_OUT = {name for name in FORMULAS if name.startswith("gradient")}
#: Means, integrals, and what holds for some numbers only.
BY_NUMBERS = {"odds", "odds-turned", "kernel", "fit-mixed", "fit-first"} | {
    "hermite-start",
    "hermite-next",
    "power-product",
}
FALSE = {name for name in FORMULAS if name.endswith("-published")}
ALGEBRA = sorted(set(FORMULAS) - NAMES - WRITTEN_OUT - BY_NUMBERS - FALSE)
x1, x2 = formulas.x1, formulas.x2


def test_every_formula_is_tested_in_one_way() -> None:
    kinds = (NAMES, WRITTEN_OUT, BY_NUMBERS, FALSE)
    assert set().union(*kinds) <= set(FORMULAS)
    assert sum(map(len, kinds)) + len(ALGEBRA) == len(FORMULAS)


@together("name", ALGEBRA)
def test_both_sides_are_the_same_expression(name: str) -> None:
    formula = FORMULAS[name]
    difference = symbolic.expand(sympy.sympify(formula.lhs)) - symbolic.expand(sympy.sympify(formula.rhs))
    difference = sympy.expand_trig(difference.doit())
    assert sympy.simplify(difference) == 0


def test_a_false_expression_is_found() -> None:
    formula = FORMULAS["curvature-eigenvalues"]
    difference = symbolic.expand(formula.lhs).doit() - symbolic.expand(formula.rhs) / 2
    assert sympy.simplify(difference) != 0


# --- the inner network ----------------------------------------------------------------------------------------------


def instances(formula: symbolic.Formula, arity: int, hidden: int) -> Iterator[tuple[Any, Any]]:
    """Both sides for all indices, written out."""
    for at in itertools.product(range(1, arity + 1), *[range(1, hidden + 1)] * 2):
        numbers = dict(zip((i, j, k), at, strict=True))
        left, right = (
            written_out(sympy.sympify(side).subs(numbers), arity, hidden) for side in (formula.lhs, formula.rhs)
        )
        yield left, right


@together("name", sorted(WRITTEN_OUT))
def test_gradients_are_the_derivatives_of_the_network_written_out(name: str) -> None:
    for arity, hidden in ((1, 1), (2, 2), (3, 1)):
        for left, right in instances(FORMULAS[name], arity, hidden):
            assert sympy.expand(left - right) == 0, (arity, hidden)


def test_a_gradient_without_one_of_the_slopes_is_found() -> None:
    formula = FORMULAS["gradient-first"]
    left, right = next(instances(formula, 2, 2))
    assert sympy.expand(left - right.subs(formulas.slope(written_out(formulas.u[1], 2, 2)), 1)) != 0


def inner(arity: int, hidden: int) -> nn.Sequential:
    sizes = (arity, hidden, hidden, 1)
    layers = [nn.Linear(*each, dtype=torch.float64) for each in itertools.pairwise(sizes)]
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])


def test_the_operator_is_the_formula() -> None:
    arity, hidden = 2, 3
    layers = [layer for layer in inner(arity, hidden) if isinstance(layer, nn.Linear)]
    argument = torch.randn(arity, dtype=torch.float64)
    values: dict[Any, float] = {formulas.x[at + 1]: argument[at].item() for at in range(arity)}
    for layer, weight, bias in zip(layers[:2], (formulas.U, formulas.V), (formulas.a, formulas.b), strict=True):
        values |= {weight[at[0] + 1, at[1] + 1]: value.item() for at, value in np.ndenumerate(layer.weight.detach())}
        values |= {bias[at + 1]: value.item() for at, value in enumerate(layer.bias)}
    values |= {formulas.w[at + 1]: value.item() for at, value in enumerate(layers[2].weight[0])}
    written = written_out(formulas.y, arity, hidden).subs(values | {formulas.o: layers[2].bias.item()})
    exact = written.replace(formulas.phi, lambda u: sympy.Max(u, 0))
    found = multi_argument(argument, [each.weight for each in layers], [each.bias for each in layers], arity)
    assert found.item() == pytest.approx(float(exact), rel=1e-14)


def test_the_quadratic_operator_is_the_formula() -> None:
    point, coefficients = torch.randn(2, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    values = dict(zip((x1, x2, *c), [*point.tolist(), *coefficients.tolist()], strict=True))
    exact = float(FORMULAS["quadratic"].rhs.subs(values))
    assert quadratic_form(point, coefficients, 2).item() == pytest.approx(exact, rel=1e-14)
    assert curvature(coefficients) == pytest.approx(float(FORMULAS["curvature"].rhs.subs(values)))
    assert shape(coefficients) == pytest.approx(float(symbolic.expand(FORMULAS["shape"].rhs).subs(values)))
    eigenvalues = [float(FORMULAS[f"eigenvalue-{name}"].rhs.subs(values)) for name in ("low", "high")]
    assert bends(coefficients).tolist() == pytest.approx(eigenvalues)


def test_the_gradients_of_the_paper_network_are_the_formulas() -> None:
    network, arity, hidden = inner(2, 64), 2, 64
    (U, a), (V, b), (w, _) = ((layer.weight, layer.bias) for layer in network if isinstance(layer, nn.Linear))
    argument = torch.randn(arity, dtype=torch.float64, requires_grad=True)
    network(argument).sum().backward()
    u = a + U @ argument
    v = b + V @ u.relu()
    s = w[0] * (v > 0)
    r = (u > 0) * (V.T @ s)
    expected = {argument: U.T @ r, U: torch.outer(r, argument), a: r, V: torch.outer(s, u.relu()), b: s}
    expected |= {w: v.relu()[None]}
    for of, gradient in expected.items():
        torch.testing.assert_close(of.grad, gradient, rtol=1e-12, atol=1e-14)
    assert 0 < (u > 0).sum() < hidden


def test_second_derivatives_of_the_inner_network_are_zero_where_it_has_them() -> None:
    torch.manual_seed(0)
    network = inner(2, 64)
    for point in torch.randn(5, 2, dtype=torch.float64):
        hessian = torch.autograd.functional.hessian(lambda at: network(at).sum(), point)
        assert hessian.abs().max() == 0
        near = point + 1e-7 * torch.randn(2, dtype=torch.float64)
        slope = torch.autograd.functional.jacobian(network, point)[0]
        torch.testing.assert_close(network(near), network(point) + slope @ (near - point), rtol=0, atol=1e-15)


def test_an_inner_network_without_biases_is_a_cone() -> None:
    torch.manual_seed(0)
    network = inner(2, 64)
    for layer in network:
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)
    points = torch.randn(20, 2, dtype=torch.float64)
    torch.testing.assert_close(network(3.5 * points), 3.5 * network(points), rtol=1e-12, atol=1e-14)


# --- what it costs --------------------------------------------------------------------------------------------------


def parameters(network: nn.Module) -> int:
    return sum(each.numel() for each in network.parameters())


def perceptron(inputs: int, hidden: Sequence[int], outputs: int, arity: int) -> nn.Module:
    ends = [(before, arity * after) for before, after in itertools.pairwise((inputs, *hidden))]
    return nn.ModuleList(nn.Linear(*each, device="meta") for each in [*ends, (hidden[-1], outputs)])


def counted(expression: Any, arity: int, inputs: int, hidden: Sequence[int], outputs: int) -> int:
    sizes = {n: arity, L: len(hidden)}
    sizes |= dict(zip(sympy.symbols("x y", positive=True, integer=True), (inputs, outputs), strict=True))
    expression = formulas.words.written_out(symbolic.expand(expression), sizes)
    return int(expression.subs({h[at + 1]: units for at, units in enumerate(hidden)}))


NETWORKS = [(1, 3, (5,), 2), (2, 784, (64, 64, 64), 10), (3, 7, (4, 6), 5), (2, 3072, (64, 64, 64), 10)]


@together("arity, inputs, hidden, outputs", NETWORKS)
def test_the_counts_are_those_of_torch(arity: int, inputs: int, hidden: Sequence[int], outputs: int) -> None:
    network = (arity, inputs, hidden, outputs)
    outer, small = parameters(perceptron(inputs, hidden, outputs, arity)), parameters(inner(arity, 64))
    assert counted(FORMULAS["count-outer"].rhs, *network) == outer == mlp_parameters(inputs, hidden, outputs, arity)
    assert counted(FORMULAS["count-inner-64"].rhs, *network) == small == inner_parameters(arity)
    assert counted(FORMULAS["count"].rhs, *network) == outer + small
    assert int(FORMULAS["count-inner"].rhs.subs({n: arity, formulas.H: 7})) == parameters(inner(arity, 7))
    assert counted(FORMULAS["count-published"].rhs, *network) != outer + small
    inner_published = counted(FORMULAS["count-inner-64-published"].rhs, *network)
    assert inner_published - small == arity - 1
    # a bias for every input of a layer: what torch counts when every layer is turned round
    turned = sum(parameters(nn.Linear(after, before)) for before, after in itertools.pairwise((arity, 64, 64, 1)))
    assert inner_published == turned


def test_for_mnist_the_paper_counts_391_too_many() -> None:
    """Which multi_argument-count quotes."""
    network = (2, 784, (64, 64, 64), 10)
    both = [counted(FORMULAS[name].rhs, *network) for name in ("count-published", "count")]
    assert both == [122_578, 122_187]


# --- XOR ------------------------------------------------------------------------------------------------------------

CORNERS = list(itertools.product((-1, 1), repeat=2))


def solves_xor(unit: Callable[[int, int], float]) -> bool:
    """Whether a threshold, one way or the other, divides equal signs from different ones."""
    same, other = ([unit(*at) for at in CORNERS if (at[0] == at[1]) == equal] for equal in (True, False))
    return max(same) < min(other) or max(other) < min(same)


def test_no_linear_unit_solves_xor_and_one_unit_with_a_product_does() -> None:
    weights = np.random.default_rng(0).standard_normal((2000, 3))
    assert not any(solves_xor(lambda s, t, w=w: w[0] * s + w[1] * t + w[2]) for w in weights)
    assert solves_xor(lambda s, t: s * t)


def test_the_sign_of_the_curvature_does_not_decide_who_solves_xor() -> None:
    """Which multi_argument-xor-quadratic quotes: a bowl does, and so does a function of one filter."""
    bent = sympy.lambdify(c[:3], FORMULAS["curvature"].rhs)
    assert bent(1, 1, 1) == 0.75
    assert bent(1, 1, 2) == 0
    for c3 in (1, 2):
        values = {at: at[0] ** 2 + at[1] ** 2 + c3 * at[0] * at[1] for at in CORNERS}
        assert all((value > 2) == (at[0] == at[1]) for at, value in values.items())
    assert bent(1, -1, 0) < 0
    assert not solves_xor(lambda s, t: s**2 - t**2)


# --- by chance ------------------------------------------------------------------------------------------------------


def odds(ratio: float) -> float:
    (integral,) = FORMULAS["odds"].rhs.atoms(sympy.Integral)
    integrand = sympy.lambdify([formulas.theta, formulas.tau], integral.function, "mpmath")
    factor = FORMULAS["odds"].rhs / integral
    return float(factor) * float(mpmath.quad(lambda at: integrand(at, ratio), [0, mpmath.pi / 2]))


@together("ratio, quoted", [(1e-9, 0.5), (1, 0.649), (2, 0.707)])
def test_the_odds_are_those_of_random_coefficients(ratio: float, quoted: float) -> None:
    found = odds(ratio)
    assert found == pytest.approx(quoted, abs=5e-4)
    c1, c2, c3 = np.random.default_rng(0).standard_normal((3, 400_000))
    share = (c1 * c2 < ratio * c3**2 / 4).mean()
    assert abs(share - found) < 5 * math.sqrt(0.25 / 400_000)


def test_the_odds_grow_with_the_mixed_coefficient_from_one_half() -> None:
    values = [odds(ratio) for ratio in (1e-9, 0.1, 1, 2, 10, 1000)]
    assert values == sorted(values)
    assert values[0] == pytest.approx(0.5)
    assert odds(2) == pytest.approx(1 / math.sqrt(2))


@together("ratio", [0.5, 1.0, math.sqrt(3), 4.0])
def test_without_a_direction_the_odds_are_a_round_cone(ratio: float) -> None:
    found = float(FORMULAS["odds-turned"].rhs.subs(formulas.kappa, ratio))
    # given Z_2² + Z_3² = ρ², whose law is exponential, |Z_1| < ρ/κ
    exact = mpmath.quad(
        lambda rho: rho * mpmath.exp(-(rho**2) / 2) * mpmath.erf(rho / ratio / mpmath.sqrt(2)), [0, 5, 40]
    )
    assert found == pytest.approx(float(exact), rel=1e-10)
    assert (found == pytest.approx(0.5)) == (ratio == math.sqrt(3))


_correlation = sympy.lambdify(sympy.Symbol("t", real=True), FORMULAS["kernel"].rhs, "mpmath")


def correlation(t: mpf) -> mpf:
    return _correlation(min(t, mpf(1)))


@together("cosine", [-0.9, 0.0, 0.3, 1.0])
def test_the_kernel_is_the_mean_product_of_two_relus(cosine: float) -> None:
    angle = mpmath.acos(cosine)
    # over the direction of the weights; the radius gives the same factor to both
    product = mpmath.quad(lambda d: mpmath.cos(d) * mpmath.cos(d - angle), [angle - mpmath.pi / 2, mpmath.pi / 2])
    assert float(correlation(mpf(cosine))) == pytest.approx(float(product / (mpmath.pi / 2)), abs=1e-10)


def ratio_of_wide(layers: int) -> float:
    """κ² of best-fit quadratics."""

    def kernel(angle: mpf) -> mpf:
        value = mpmath.cos(angle)
        for _ in range(layers):
            value = correlation(value)
        return value

    mean, second = (
        mpmath.quad(lambda d, m=m: kernel(d) * mpmath.cos(m * d), mpmath.linspace(0, mpmath.pi, 4)) for m in (0, 2)
    )
    return float(2 * mean / second / 9)


def test_with_two_hidden_layers_the_odds_happen_to_be_nearly_even() -> None:
    """Which the derivation quotes: κ² of wide networks, and the chances."""
    assert ratio_of_wide(1) == pytest.approx(2)
    assert ratio_of_wide(2) == pytest.approx(3.109, abs=5e-4)
    chances = [1 / math.sqrt(1 + ratio_of_wide(layers)) for layers in (1, 2, 3)]
    assert chances == pytest.approx([0.577, 0.493, 0.436], abs=5e-4)


def test_best_fits_of_random_inner_networks_are_saddles_as_often_as_the_wide_limit_says() -> None:
    """Xavier's normal law, no biases, 64 units: 600 networks; four standard errors."""
    torch.manual_seed(0)
    points, weights = grid()
    basis = quadratics()
    torch.testing.assert_close(basis.T @ (weights[:, None] * basis), torch.eye(3, dtype=torch.float64))
    signal = points.expand(600, -1, -1)
    for inputs, outputs in itertools.pairwise((2, 64, 64, 1)):
        scale = math.sqrt(2 / (inputs + outputs))
        signal = signal @ (scale * torch.randn(600, inputs, outputs, dtype=torch.float64))
        signal = signal.relu() if outputs > 1 else signal
    plain, *turned = (signal[..., 0] @ (weights[:, None] * basis)).unbind(1)
    share = (plain**2 < turned[0] ** 2 + turned[1] ** 2).double().mean().item()
    assert abs(share - 1 / math.sqrt(1 + ratio_of_wide(2))) < 4 * math.sqrt(0.25 / 600)


def test_the_papers_p_values_are_of_24_trials_and_its_share_is_of_neither_24_nor_48() -> None:
    assert p_value(7, 10) == pytest.approx(stats.binomtest(7, 10).pvalue)
    shares = {trials: [round(100 * at / trials) for at in range(trials + 1)] for trials in (24, 48)}
    assert not any(78 in of_trials for of_trials in shares.values())
    for printed, successes in ((0.007, 19), (0.06, 17)):
        found = {at for at in range(12, 25) if abs(p_value(at, 24) - printed) < 0.5 * 10 ** -len(str(printed)[2:])}
        assert found == {successes}
    assert not [at for at in range(24, 49) if abs(p_value(at, 48) - 0.007) < 0.0005]
    assert p_value(37, 48) < 0.0003


def test_where_no_direction_is_preferred_37_saddles_of_48_are_what_chance_gives() -> None:
    chance = odds(2)
    assert p_value(37, 48, chance) == pytest.approx(0.43, abs=0.005)
    assert p_value(37, 48, chance) == pytest.approx(stats.binomtest(37, 48, chance).pvalue)
    assert p_value(37, 48, odds(1)) == pytest.approx(0.095, abs=5e-4)
    # of inner networks with two hidden layers one half is nearly right, and so is the paper's conclusion
    assert p_value(37, 48, 1 / math.sqrt(1 + ratio_of_wide(2))) < 0.0003


# --- the best-fit quadratic depends on where one looks --------------------------------------------------------------


def normal_mean(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> float:
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    first, second = np.meshgrid(nodes, nodes, indexing="ij")
    return float((function(first, second) * np.outer(weights, weights)).sum() / (2 * np.pi))


@pytest.mark.parametrize("name", ["fit-mixed", "fit-first"])
def test_coefficients_of_the_best_fit_are_mean_second_derivatives(name: str) -> None:
    f = sympy.sin(x1 + x2 / 2) * sympy.exp(x2 / 3) + x1**2 * x2 + x1 * x2
    derived = {"ma_surface": f, "ma_surface_mixed": f.diff(x1, x2), "ma_surface_twice": f.diff(x1, x1)}
    sides = []
    for side in (FORMULAS[name].lhs, FORMULAS[name].rhs):
        inside = side.replace(symbolic.Expected, lambda each: each)
        for call in inside.atoms(sympy.core.function.AppliedUndef):
            inside = inside.subs(call, derived[call.func.__name__].subs({x1: Z[1], x2: Z[2]}, simultaneous=True))
        sides.append(normal_mean(sympy.lambdify([Z[1], Z[2]], inside)))
    assert sides[0] == pytest.approx(sides[1], rel=1e-10)
    assert abs(sides[0]) > 0.01


# --- spectra --------------------------------------------------------------------------------------------------------


def gaussian(integrand: Any, variable: Any) -> Any:
    """The integral over the whole line of a polynomial times e^(−t²)."""
    polynomial = sympy.Poly(sympy.expand(integrand * sympy.exp(variable**2)), variable)
    even = [(power, factor) for (power,), factor in polynomial.terms() if power % 2 == 0]
    return sum((factor * sympy.gamma(sympy.Rational(power + 1, 2)) for power, factor in even), sympy.Integer(0))


def hermite_by_recurrence(highest: int) -> list[Any]:
    """ψ_0, …, from the two registered formulas."""
    start, following = FORMULAS["hermite-start"], FORMULAS["hermite-next"]
    order = sympy.Symbol("k", integer=True, nonnegative=True)
    table = [sympy.sqrt(start.rhs)]
    for at in range(highest):
        values = {formulas.psi[at]: table[at], formulas.psi[at - 1]: table[at - 1] if at else 0}
        table.append(sympy.expand(following.rhs.subs(order, at).xreplace(values)))
    return table


def test_hermite_functions_are_scaled_polynomials() -> None:
    z, table = formulas.z, hermite_by_recurrence(4)
    for at, each in enumerate(table):
        scale = sympy.sqrt(2**at * sympy.factorial(at) * sympy.sqrt(sympy.pi))
        assert sympy.simplify(each - sympy.hermite(at, z) * sympy.exp(-(z**2) / 2) / scale) == 0


def whole(variable: Any) -> Any:
    return sympy.Tuple(variable, -sympy.oo, sympy.oo)


def amplitudes(f: Any, highest: int) -> dict[tuple[int, int], Any]:
    """Of a polynomial, by the registered integral, for the standard normal density."""
    table, formula = hermite_by_recurrence(highest), FORMULAS["amplitude"]
    law = sympy.exp(-(x1**2 + x2**2) / 2) / (2 * sympy.pi)
    first, second = (sympy.Symbol(name, integer=True, nonnegative=True) for name in "jk")
    found = {}
    for at in itertools.product(range(highest + 1), repeat=2):
        if sum(at) <= highest:
            names = {formulas.psi[at[0], 1]: table[at[0]].subs(formulas.z, x1)}
            names |= {formulas.psi[at[1], 2]: table[at[1]].subs(formulas.z, x2)}
            names |= {formulas.density(x1, x2): law, formulas.surface(x1, x2): f}
            integral = formula.rhs.subs({first: at[0], second: at[1]}).xreplace(names)
            assert integral.limits == (whole(x1), whole(x2))
            found[at] = gaussian(gaussian(integral.function, x1), x2)
    return found


def power(f: Any, highest: int) -> list[Any]:
    found, formula = amplitudes(f, highest), FORMULAS["power"]
    degree = sympy.Symbol("l", integer=True, nonnegative=True)
    names = {formulas.amplitude[at]: value for at, value in found.items()}
    return [sympy.simplify(formula.rhs.subs(degree, at).doit().xreplace(names)) for at in range(highest + 1)]


def test_a_product_and_a_parabola_of_one_argument_have_the_same_power_at_two() -> None:
    product = FORMULAS["power-product"]
    assert product.condition.rhs == x1 * x2
    assert power(x1 * x2, 4) == [0, 0, product.rhs, 0, 0]
    assert power((x1**2 - 1) / sympy.sqrt(2), 2)[2] == product.rhs


def test_the_spectrum_of_the_package_is_the_formula() -> None:
    torch.manual_seed(0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    grid = torch.cartesian_prod(*[torch.tensor(nodes)] * 2)
    law = torch.tensor(np.outer(weights, weights).ravel() / (2 * np.pi))
    values = grid[:, 0] ** 2 + grid.prod(1) - grid[:, 1]
    # a mean over samples with weights is a mean of values times weights
    found = spectrum(values * law * len(law), hermite_functions(grid, 3))
    exact = [float(each) for each in power(x1**2 + x1 * x2 - x2, 3)]
    torch.testing.assert_close(found, torch.tensor(exact, dtype=torch.float64), rtol=1e-10, atol=1e-14)


# --- what the layer before takes over -------------------------------------------------------------------------------


def norm(z: Tensor) -> Tensor:
    """Layer normalisation over all arguments of all units, without weights."""
    return nn.functional.layer_norm(z, z.shape[1:], eps=0.0)


def test_layer_normalisation_lets_through_what_keeps_the_diagonal_and_no_other_rotation() -> None:
    torch.manual_seed(0)
    z = torch.randn(10, 8, 2, dtype=torch.float64)  # samples, units, arguments
    swap = torch.tensor([[0.0, 1], [1, 0]], dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64)
    for kept in (eye, -eye, swap, -swap):
        torch.testing.assert_close(norm(z @ kept.T), norm(z) @ kept.T)
    angle = torch.tensor(0.6, dtype=torch.float64)
    turn = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
    stretch = torch.diag(torch.tensor([2.0, 0.5], dtype=torch.float64))
    for other in (turn, stretch):
        assert (norm(z @ other.T) - norm(z) @ other.T).abs().max() > 0.1
    # where each argument has the mean 0 over the units, every rotation passes
    centred = z - z.mean(1, keepdim=True)
    torch.testing.assert_close(norm(centred @ turn.T), norm(centred) @ turn.T)
    assert (norm(centred @ stretch.T) - norm(centred) @ stretch.T).abs().max() > 0.1


def test_a_network_takes_over_any_linear_map_of_its_arguments() -> None:
    torch.manual_seed(0)
    network, before = inner(2, 8), nn.Linear(5, 6, dtype=torch.float64)
    mapped, shift = torch.randn(2, 2, dtype=torch.float64), torch.randn(2, dtype=torch.float64)
    signal = torch.randn(7, 5, dtype=torch.float64)
    expected = network(before(signal).unflatten(1, (3, 2)) @ mapped.T + shift)
    with torch.no_grad():
        rows = before.weight.view(3, 2, 5)
        before.weight.copy_((mapped @ rows).view(6, 5))
        before.bias.copy_((before.bias.view(3, 2) @ mapped.T + shift).view(6))
    torch.testing.assert_close(network(before(signal).unflatten(1, (3, 2))), expected)


def test_matched_widths_are_not_near_the_scaled_ones_where_the_first_layer_has_the_weights() -> None:
    """MNIST and CIFAR-10 of the paper: the extra units that it calls a small term."""
    hidden = (64, 64, 64)
    for inputs, extra in ((784, 25), (3072, 33)):
        target = mlp_parameters(inputs, hidden, 10, arity=2)
        found = match(hidden, 2, lambda widths, inputs=inputs: mlp_parameters(inputs, widths, 10), target)
        assert found.extra == extra
        first, between = 2 * 64 * inputs, 2 * (2 * 64 * 64)
        assert first > 6 * between  # the paper: the second term dominates
