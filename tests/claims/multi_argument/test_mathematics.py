"""What the paper on two-argument activations says of counts, quadratics and chance, judged by computation."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median

import sympy
import torch
from torch import Tensor

from companion import MultiArgument
from companion.multi_argument.quadratic import count_of
from companion.multi_argument.study import formulas
from companion.multi_argument.study.counts import inner_parameters, match
from companion.multi_argument.study.pretraining import PAPER, PUBLISHED_CODE, Grid, RandomMap
from companion.multi_argument.study.surfaces import bends, curvature, hermite_functions, spectrum
from companion.study import symbolic
from tests.claims.form import ROUNDING, Verdict, at_most, enumerated, formula, graded, not_tested, swap
from tests.claims.multi_argument.facts import (
    BIASES,
    HIDDEN,
    MAPS,
    PIXELS,
    SMALL,
    best_fit,
    chance_of_saddle,
    chance_untrained,
    detail,
    fatal,
    grid,
    matters,
    mean_power,
    outer_networks,
    parameters,
)

TINY = {"MNIST": 4, "CIFAR-10": 12}
"""For planted changes: images so small that a perceptron's first layer is, too."""

# --- Section I: what one neuron can compute -------------------------------------------------------------------

EQUAL, DIFFERENT = ((1, 1), (-1, -1)), ((1, -1), (-1, 1))


def separates(function: Callable[[float, float], float]) -> bool:
    """Whether a threshold at the output makes XOR, or its negation, of the corners of a square."""
    equal, different = ([function(*corner) for corner in corners] for corners in (EQUAL, DIFFERENT))
    return min(equal) > max(different) + ROUNDING or min(different) > max(equal) + ROUNDING


def sensitive(s: float) -> float:
    """A conventional activation, rising."""
    return math.tanh(s)


@matters(
    "multi_argument-neuron-xor",
    "A conventional artificial neuron, a rising activation of one weighted sum, could not compute the exclusive or "
    "(XOR).",
    "Section I",
    turned_by=swap(sensitive=lambda s: s * s),
)
def test_neuron_xor():
    generator = random.Random(0)
    filters = [(1.0, 1.0), *((generator.gauss(0, 1), generator.gauss(0, 1)) for _ in range(1000))]
    able = [f for f in filters if separates(lambda x1, x2, f=f: sensitive(f[0] * x1 + f[1] * x2))]
    square = separates(lambda x1, x2: (x1 + x2) ** 2)
    return Verdict(
        graded(not able),
        "The corners with equal signs have the sums ±s, the others ±t: one pair encloses the other, so no rising curve "
        f"parts them ({len(able)} of {len(filters)} pairs of weights); (x₁ + x₂)², which rises and falls, "
        f"{'does' if square else 'does not'}.",
    )


# --- Section IV-A: the start, and what to look for --------------------------------------------------------------


def explained(map_of: Grid, zeros: bool = False) -> tuple[float, float]:
    """The shares of a random map's variance over its square that a plane and a quadratic explain: medians. The blur
    takes in what is inside the square, or zeros outside it."""
    radius = map_of.cells * map_of.width / 2
    axis = torch.linspace(-radius, radius, 21, dtype=torch.float64)
    points = torch.cartesian_prod(axis, axis)
    x, y = points.unbind(1)
    terms = torch.stack([torch.ones_like(x), x, y, x * x, y * y, x * y], 1)
    values = torch.stack([RandomMap(2, seed, map_of)(points) for seed in range(50)], 1)
    if zeros:
        below, above = (torch.special.ndtr((side - points) / map_of.sigma) for side in (-radius, radius))
        values *= (above - below).prod(1, keepdim=True)
    spread = (values - values.mean(0)).square().sum(0)
    of_plane, of_quadratic = (
        1 - (values - chosen @ torch.linalg.lstsq(chosen, values).solution).square().sum(0) / spread
        for chosen in (terms[:, :3], terms)
    )
    return median(of_plane.tolist()), median(of_quadratic.tolist())


@matters(
    "multi_argument-random-map",
    "A 5 × 5 grid of random unit squares, blurred by a Gaussian with σ = 3 units, is a spatially complex function to "
    "start from.",
    "Section IV-A",
    turned_by=swap(PAPER=PUBLISHED_CODE),
)
def test_random_map():
    inner, padded = explained(PAPER), explained(PAPER, zeros=True)
    _, code = explained(PUBLISHED_CODE)
    return Verdict(
        graded(min(inner[1], padded[1]) < 0.5),
        f"A quadratic explains {inner[1]:.2%} of what varies in such a map, {padded[1]:.2%} with zeros outside "
        f"(medians of 50), a plane {inner[0]:.0%} or {padded[0]:.0%}; smaller units may be meant, as in the published "
        f"code, where a quadratic explains {code:.0%}.",
    )


def gradients(function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    points = torch.randn(500, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (found,) = torch.autograd.grad(function(*points.unbind(1)).sum(), points)
    return found


def is_banded(function: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Whether a function changes in one direction only, so that lines of constant value are parallel."""
    strengths = torch.linalg.svdvals(gradients(function))
    return bool(strengths[1] < 1e-6 * strengths[0])


def one_argument(g: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    return g(0.6 * x - 0.8 * y)


@detail(
    "multi_argument-bands",
    "A two-argument activation that is essentially one of one argument shows as parallel bands.",
    "Section IV-A",
    turned_by=swap(one_argument=lambda g, x, y: g(x) + y**2),
)
def test_bands():
    found = [
        is_banded(lambda x, y, g=g: one_argument(g, x, y)) for g in (torch.relu, torch.tanh, torch.square, torch.sin)
    ]
    product = is_banded(lambda x, y: x * y)
    return Verdict(
        graded(all(found) and not product),
        f"{sum(found)} of {len(found)} functions of 0.6x₁ − 0.8x₂ change in one direction only, and x₁x₂ does not; "
        "among the banded ones is the square of a sum, which computes XOR.",
    )


# --- Section IV-B: parameters ---------------------------------------------------------------------------------


@detail(
    "multi_argument-inner-count",
    "A learned activation of n arguments, with two hidden layers of 64 units, has 65n + 4288 parameters.",
    "Section IV-B",
    turned_by=formula("multi_argument-count-inner-64", published=64 * formulas.n + 4289),
)
def test_inner_count():
    formula_ = symbolic.get("multi_argument-count-inner-64").published
    says = [int(formula_.subs(formulas.n, n)) for n in (1, 2, 3)]
    has = [sum(each.numel() for each in MultiArgument(n).parameters()) for n in (1, 2, 3)]
    agree = [a == b for a, b in zip(says, has, strict=True)]
    return Verdict(
        graded(all(agree), any(agree)),
        f"It has 64n + 4289: for n = 1, 2 and 3 the formula gives {enumerated([*map(str, says)])}, and there are "
        f"{enumerated([*map(str, has)])}; it has a bias for each input of a layer instead of each output.",
    )


def counted(expression: sympy.Expr, pixels: int) -> int:
    """A formula with the sizes of the paper's perceptron."""
    sizes = {formulas.n: 2, formulas.L: len(HIDDEN)}
    sizes |= dict(zip(sympy.symbols("x y", positive=True, integer=True), (pixels, 10), strict=True))
    expression = formulas.words.written_out(symbolic.expand(expression), sizes)
    return int(expression.subs({formulas.h[at + 1]: units for at, units in enumerate(HIDDEN)}))


@detail(
    "multi_argument-count",
    "The paper's formula gives the number of parameters of a perceptron whose units share a learned activation.",
    "Section IV-B",
    turned_by=formula("multi_argument-count", published=symbolic.get("multi_argument-count").rhs),
)
def test_count():
    cases, listed = [], []
    for data, pixels in PIXELS.items():
        says, has = counted(symbolic.get("multi_argument-count").published, pixels), parameters(f"MLP on {data}")
        cases.append(says == has)
        listed.append(f"{says} instead of {has} for {data}")
    return Verdict(
        graded(all(cases), any(cases)),
        f"For two arguments and three layers of 64 units it gives {enumerated(listed)}: one too many for each "
        "input and for the inner network, no biases of layers.",
    )


@matters(
    "multi_argument-dominates",
    "Weights between hidden layers dominate the number of parameters.",
    "Section IV-B",
    turned_by=swap(PIXELS=TINY),
)
def test_dominates():
    shares = {}
    for name, (units, outer) in outer_networks(PIXELS).items():
        filters = 9 if units == MAPS else 1
        between = filters * sum(2 * before * after for before, after in pairwise(units))
        shares[name] = between / (outer(units, 2) + inner_parameters(2))
    most = [share > 0.5 for share in shares.values()]
    listed = enumerated([f"{share:.0%} ({name})" for name, share in shares.items()])
    return Verdict(
        graded(all(most), any(most)),
        f"Their share in the paper's networks of two-argument units is {listed}; in the perceptrons the first layer "
        "has most.",
    )


def scaled(units: int) -> int:
    """The width of a layer of one-argument units for one of two-argument units."""
    return math.isqrt(2 * units**2)


@detail(
    "multi_argument-root",
    "Widths larger by the root of the number of arguments keep the number of weights between two hidden layers.",
    "Section IV-B",
    turned_by=swap(scaled=lambda units: math.isqrt(2 * units)),
)
def test_root():
    wanted, found = 2 * HIDDEN[0] * HIDDEN[1], scaled(HIDDEN[0]) * scaled(HIDDEN[1])
    off = [100 * abs(scaled(a) * scaled(b) / (2 * a * b) - 1) for a, b in (*pairwise(HIDDEN), *pairwise(MAPS))]
    inside = math.isqrt(2 * HIDDEN[0])
    return Verdict(
        graded(max(off) < SMALL),
        f"Rounded down, √2 · 64 units have {found} weights instead of {wanted}, and no layer is off by more than "
        f"{max(off):.1f} %; if the 64 were under the root, as the formula can be read, there would be {inside**2}.",
    )


@matters(
    "multi_argument-beta",
    "After scaling all widths by the root of the number of arguments, a small additive term β makes parameter counts "
    "equal.",
    "Section IV-B, Fig. 6",
    turned_by=swap(PIXELS=TINY),
)
def test_beta():
    betas, missing = {}, []
    for name, (units, outer) in outer_networks(PIXELS).items():
        target = outer(units, 2)
        found = match(units, 2, lambda widths, outer=outer: outer(widths, 1), target)
        betas[name] = found.extra, 100 * found.extra / (found.widths[0] - found.extra)
        if units == HIDDEN:
            missing.append(f"{100 - 100 * outer([width - found.extra for width in found.widths], 1) / target:.0f} %")
    small = [abs(part) < SMALL for _, part in betas.values()]
    listed = enumerated([str(extra) for extra, _ in betas.values()])
    return Verdict(
        graded(all(small), any(small)),
        f"For two arguments β is {listed} in perceptrons and CNNs for MNIST and CIFAR-10, at most "
        f"{max(part for _, part in betas.values()):.0f} % of the width; without it the perceptrons with ReLU have "
        f"{enumerated(missing)} fewer parameters.",
    )


@matters(
    "multi_argument-few",
    "A learned activation adds few parameters, since all units of all layers share it.",
    "Sections IV-B and V",
    turned_by=swap(inner_parameters=lambda arity: 192 * (64 * arity + 4289)),
)
def test_few():
    mine = inner_parameters(2)
    shares = [100 * mine / outer(units, 2) for units, outer in outer_networks(PIXELS).values()]
    return Verdict(
        graded(max(shares) < SMALL),
        f"Its {mine} parameters for two arguments are {enumerated([f'{share:.1f} %' for share in shares])} of the "
        "others in the paper's perceptrons and CNNs for MNIST and CIFAR-10.",
    )


def per_unit() -> int:
    """Multiplications of the inner network for one value of a unit."""
    return sum(before * after for before, after in pairwise((2, 64, 64, 1)))


@matters(
    "multi_argument-cost",
    "Since all units share it, a learned activation does not increase the complexity of the model.",
    "Section IV-B",
    turned_by=swap(per_unit=lambda: 5),
)
def test_cost():
    inside, times = sum(HIDDEN) * per_unit(), []
    for pixels in PIXELS.values():
        layers = 2 * pixels * HIDDEN[0] + sum(2 * a * b for a, b in pairwise(HIDDEN)) + HIDDEN[-1] * 10
        times.append(inside / layers)
    more = [100 * inner_parameters(2) / (parameters(f"MLP on {data}") - inner_parameters(2)) for data in PIXELS]
    return Verdict(
        graded(max(100 * max(times), *more) < SMALL, max(more) < SMALL),
        f"It adds few parameters, but {per_unit()} multiplications for each value of a unit, for an image in the "
        f"paper's perceptron {inside}, {enumerated([f'{each:.1f}' for each in times])} times those of its layers on "
        f"{enumerated([*PIXELS])}.",
    )


def rivals() -> dict[str, int]:
    """Of a network the number of filters of the hidden layers that one with one argument has at as many parameters."""
    found = {}
    for name, (units, outer) in outer_networks(PIXELS).items():
        found[name] = sum(match(units, 2, lambda widths, outer=outer: outer(widths, 1), outer(units, 2)).widths)
    return found


@detail(
    "multi_argument-filters",
    "A two-argument activation that ignores one argument wastes parameters: with one argument, as many parameters make "
    "more distinct filters.",
    "Section IV-D",
    turned_by=swap(rivals=lambda: {name: sum(units) for name, (units, _) in outer_networks(PIXELS).items()}),
)
def test_filters():
    pairs = [(filters, sum(outer_networks(PIXELS)[name][0])) for name, filters in rivals().items()]
    listed = enumerated([f"{more} against {few}" for more, few in pairs])
    return Verdict(
        graded(all(more > few for more, few in pairs)),
        f"Hidden layers have {listed} filters that count, in perceptrons and CNNs for MNIST and CIFAR-10; with both "
        "arguments in use the smaller numbers double.",
    )


# --- Section IV-C: quadratics -----------------------------------------------------------------------------------


def random_quadratics(count: int) -> Tensor:
    return torch.randn(count, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@matters(
    "multi_argument-curvature-sign",
    "For c₁x₁² + c₂x₂² + c₃x₁x₂ and lower terms, the sign of c₁c₂ − c₃²/4 says whether a quadratic has negative "
    "curvature (hyperbolic) or positive (elliptic).",
    "Section IV-C",
    turned_by=swap(curvature=lambda c: float(c[0] * c[1])),
)
def test_curvature_sign():
    right = []
    for each in random_quadratics(1000):
        low, high = bends(each).tolist()
        right.append((curvature(each) < 0) == (low < 0 < high))
    return Verdict(
        graded(all(right)),
        f"It is the product of the bends along both axes of the quadratic, and its sign is right for {sum(right)} of "
        f"{len(right)} random ones; shifts and invertible linear maps of the arguments leave that sign.",
    )


def factors(each: Tensor) -> float:
    """How far a quadratic part is from the product of two linear functions that its eigenvectors give."""
    c1, c2, c3 = each[:3].tolist()
    matrix = torch.tensor([[c1, c3 / 2], [c3 / 2, c2]], dtype=torch.float64)
    (low, high), axes = torch.linalg.eigh(matrix)
    left, right = (high.abs().sqrt() * axes[:, 1] + sign * low.abs().sqrt() * axes[:, 0] for sign in (1, -1))
    product = torch.outer(left, right)
    return (product + product.T - 2 * matrix).abs().max().item()


def is_saddle(each: Tensor) -> bool:
    return curvature(each) < 0


@fatal(
    "multi_argument-interaction",
    "Negative curvature of a quadratic indicates a multiplicative interaction, perhaps of rotated arguments.",
    "Section IV-C, Fig. 7",
    turned_by=swap(is_saddle=lambda each: curvature(each) > 0),
)
def test_interaction():
    worst = max(factors(each) for each in random_quadratics(1000) if is_saddle(each))
    other = curvature(torch.tensor([1.0, 1, 1, 0, 0, 0]))
    return Verdict(
        graded(worst < ROUNDING),
        "But for a shift and a constant, every such quadratic is a product of two linear functions of the arguments "
        f"(difference {at_most(worst)}); an interaction is not always negative: x₁² + x₂² + x₁x₂ has {other:+.2f}.",
    )


NEGATIVE = {
    "x₁x₂": (0.0, 0, 1, 0, 0, 0),
    "AND": (0.0, 0, 1 / 4, 1 / 4, 1 / 4, 1 / 4),
    "OR": (0.0, 0, -1 / 4, 1 / 4, 1 / 4, 3 / 4),
}
"""On the corners (±1, ±1), with as small a degree as possible."""


def value(c: Sequence[float], x1: float, x2: float) -> float:
    return c[0] * x1**2 + c[1] * x2**2 + c[2] * x1 * x2 + c[3] * x1 + c[4] * x2 + c[5]


@fatal(
    "multi_argument-xor-like",
    "A function of two arguments is XOR-like if its best-fit quadratic has negative curvature.",
    "Abstract, Section IV-C, Fig. 7",
    turned_by=swap(NEGATIVE={"x₁x₂": (0.0, 0, 1, 0, 0, 0)}),
)
def test_xor_like():
    bent = {name: curvature(torch.tensor(c)) for name, c in NEGATIVE.items()}
    able = [separates(lambda x1, x2, c=c: value(c, x1, x2)) for c in NEGATIVE.values()]
    flat = (1.0, 1, 2, 0, 0, 0)
    assert max(bent.values()) < 0 == curvature(torch.tensor(flat))
    assert separates(lambda x1, x2: value(flat, x1, x2))
    listed = enumerated([f"{name} ({k:.3g})" for name, k in bent.items()])
    return Verdict(
        graded(all(able), any(able)),
        f"Written as quadratics for arguments ±1, {listed} all have negative curvature (in brackets), but only "
        f"{sum(able)} of {len(able)} solves XOR; (x₁ + x₂)² solves it, too, with curvature 0.",
    )


COINCIDENCE = {
    "σ(x₁)σ(x₂)": lambda x, y: torch.sigmoid(x) * torch.sigmoid(y),
    "ReLU(x₁)ReLU(x₂)": lambda x, y: torch.relu(x) * torch.relu(y),
    "ReLU(min(x₁, x₂))": lambda x, y: torch.relu(torch.minimum(x, y)),
    "a bump around (½, ½)": lambda x, y: torch.exp(-((x - 0.5) ** 2 + (y - 0.5) ** 2) / 2),
}


@detail(
    "multi_argument-coincidence",
    "A quadratic with positive curvature is like coincidence detection.",
    "Section V",
    turned_by=swap(COINCIDENCE={"a bump around 0": lambda x, y: torch.exp(-(x**2 + y**2) / 2)}),
)
def test_coincidence():
    bent = {name: curvature(best_fit(function)) for name, function in COINCIDENCE.items()}
    positive = [k > 0 for k in bent.values()]
    listed = enumerated([f"{k:+.4f} for {name}" for name, k in bent.items()])
    return Verdict(
        graded(all(positive), any(positive)),
        f"Under standard normal inputs the best fit's curvature is {listed}; so what is large only where both "
        "arguments are is curved like XOR.",
    )


def product(x: Tensor, y: Tensor) -> Tensor:
    return x * y


@matters(
    "multi_argument-gating",
    "Gating-like functions emerge: a soft XOR can be read as one input that another one modulates or gates.",
    "Section V, Fig. 7",
    turned_by=swap(product=lambda x, y: x + y),
)
def test_gating():
    (x, y), weights = grid()[0].unbind(1), grid()[1]
    modulates = bool((product(2 * x, y) - 2 * product(x, y)).abs().max() < ROUNDING)
    turned = float(weights[product(x, y) / x < -ROUNDING].sum())
    gate = curvature(best_fit(lambda a, b: a * torch.sigmoid(b)))
    return Verdict(
        graded(modulates),
        "It modulates: x₁x₂ is x₁ times a number, and the gate x₁σ(x₂) is curved like XOR, too "
        f"({gate:+.3f}); but a gate shuts where x₁x₂ turns the sign of x₁, for {turned:.0%} of normal inputs.",
    )


@detail(
    "multi_argument-first",
    "This is the first study that characterises emergent properties of activations of several arguments.",
    "Section II",
)
def test_first():
    return not_tested(
        "Learned functions of several arguments are older: maxout (Goodfellow et al. 2013), and the network in network "
        "that it cites; whether anybody looked at what they became, no search of the literature says.",
        "A search of the literature would decide it.",
    )


def chances() -> dict[str, float]:
    """Of functions that nobody trained: how likely is negative curvature?"""
    without, default = BIASES
    return {
        f"in wide networks with Xavier's weights and {without}": chance_untrained(without),
        f"with {default}": chance_untrained(default),
        "for quadratics with independent normal coefficients": chance_of_saddle(1),
        "for those that prefer no direction": chance_of_saddle(2),
    }


@fatal(
    "multi_argument-even-odds",
    "By chance, negative and positive curvature of a best-fit quadratic are equally likely.",
    "Section IV-C, Fig. 7",
    turned_by=swap(chances=lambda: {"Xavier's weights": 0.5}),
)
def test_even_odds():
    found = chances()
    even = [abs(chance - 0.5) < 0.02 for chance in found.values()]
    listed = enumerated([f"{chance:.0%} {name}" for name, chance in found.items()])
    return Verdict(
        graded(all(even), any(even)),
        f"Under standard normal inputs the chance of negative curvature is {listed}.",
    )


@matters(
    "multi_argument-polynomial",
    "A quadratic in the place of the learned activation would reduce parameters and memory.",
    "Section V",
    turned_by=swap(inner_parameters=lambda arity: 5),
)
def test_polynomial():
    pairs = [(count_of(n), inner_parameters(n)) for n in (2, 3)]
    return Verdict(
        graded(all(few < many for few, many in pairs)),
        f"With two arguments it has {pairs[0][0]} instead of {pairs[0][1]} parameters, with three {pairs[1][0]} "
        f"instead of {pairs[1][1]}, and no hidden values to keep; how networks do with it the paper does not say.",
    )


# --- Section IV-D: spectra ----------------------------------------------------------------------------------------


def powers(function: Callable[[Tensor, Tensor], Tensor]) -> list[float]:
    """At ℓ = 0, 1, … under standard normal inputs, as the paper defines it, with Hermite functions."""
    points, weights = grid()
    of_samples = len(weights) * weights * function(*points.unbind(1))
    return spectrum(of_samples, hermite_functions(points, 4)).tolist()


def quadrupole(x: Tensor, y: Tensor) -> Tensor:
    return x * y


@matters(
    "multi_argument-quadrupole",
    "A function with the structure of a quadrupole, such as x₁x₂, has its strongest power at the frequency ℓ = 2.",
    "Section IV-D, Fig. 8",
    turned_by=swap(quadrupole=lambda x, y: x),
)
def test_quadrupole():
    product, parabola = powers(quadrupole), powers(lambda x, y: (x**2 - 1) / math.sqrt(2))
    strongest = max(range(len(product)), key=product.__getitem__)
    return Verdict(
        graded(strongest == 2),
        f"With products of Hermite functions and standard normal inputs x₁x₂ has the power {product[2]:.4f} at ℓ = 2; "
        f"but so has the parabola (x₁² − 1)/√2 of one argument, {parabola[2]:.4f}: that power does not show two "
        "arguments.",
    )


def power_untrained(biases: str) -> list[float]:
    """At ℓ = 0, 1, … on average over wide networks with Xavier's weights."""
    return [sum(mean_power(each, biases)) for each in hermite_functions(grid()[0], 4)]


@detail(
    "multi_argument-dipole",
    "Randomly initialised inner networks favour the structure of a dipole: most power at the frequency ℓ = 1.",
    "Section IV-D, Fig. 8",
    turned_by=swap(power_untrained=lambda biases: [0.0, 1.0, 2.0]),
)
def test_dipole():
    found = {name: power_untrained(name) for name in BIASES}
    listed, means = (enumerated([f"{p[at] / p[1]:.2f}" for p in found.values()]) for at in (2, 0))
    return Verdict(
        graded(all(max(p[1:]) == p[1] for p in found.values())),
        f"For Xavier's weights, without and with biases, ℓ = 2 has on average {listed} times its power under standard "
        f"normal inputs; the mean, ℓ = 0, has {means} times as much, but is no structure.",
    )


# --- Section IV-E: corruption errors ---------------------------------------------------------------------------------


def relative(mine: Sequence[float], reference: Sequence[float]) -> float:
    """The relative mCE, from how much the error of each network rises by each corruption."""
    return sum(a / b for a, b in zip(mine, reference, strict=True)) / len(mine)


@matters(
    "multi_argument-relative",
    "A relative mean corruption error below 100 % shows that accuracy declines on average less than the reference's.",
    "Section IV-E",
    turned_by=swap(relative=lambda mine, reference: sum(mine) / sum(reference)),
)
def test_relative():
    reference, cases = (10.0, 1.0), ((9.0, 0.9), (10.5, 0.9))
    right = [(relative(mine, reference) < 1) == (sum(mine) < sum(reference)) for mine in cases]
    of_second, means = 100 * relative(cases[1], reference), [sum(each) / 2 for each in (cases[1], reference)]
    return Verdict(
        graded(all(right), any(right)),
        "It does if declines change in one proportion; but it is a mean of ratios: declines of 10.5 and 0.9 points "
        f"beside 10 and 1 give {of_second:.1f} %, and are {means[0]:.1f} against {means[1]:.1f} on average.",
    )
