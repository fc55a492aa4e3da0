"""What the paper on LayerAct claims, judged by computation. Each public function checks one claim.

What our experiments count as clear stood here before the results existed. Differences are paired by seed; "better" (or
"lower") means that the mean difference has the wanted sign with p < 0.05, by the t-test with Holm's correction over all
comparisons of one result (`companion.layeract.experiments.comparisons`). A claim about both LayerAct functions and all
six element-level functions makes twelve comparisons of each measure. "Similar" means neither significantly worse nor
worse by a percentage point on average. What a run then makes of a claim depends on its scale, by the rule in
:mod:`companion.claims`. Where the paper reports numbers without an interval and nothing here repeats them, the verdict
is about what the printed numbers say.
"""

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import NormalDist, median
from typing import TYPE_CHECKING, Any

from companion import claims as book
from companion.claims import ROUNDING, Run, Verdict, at_most, enumerated, graded, no_result, run_of

if TYPE_CHECKING:
    from companion.layeract.experiments import Difference

Row = Sequence[float]

# --- The functions, in plain Python -------------------------------------------------------------------------

_ALPHA = 1e-5  # the paper's value on CIFAR
_SIGNIFICANT = 0.05
_LAYER_LEVEL = ("LA-SiLU", "LA-HardSiLU")


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _hardsigmoid(x: float) -> float:
    return min(1.0, max(0.0, x / 6 + 0.5))


def _step(x: float) -> float:
    return float(x >= 0)


_LIPSCHITZ: dict[Callable[[float], float], float] = {_sigmoid: 1 / 4, _hardsigmoid: 1 / 6}


def _statistics(row: Row) -> tuple[float, float]:
    mean = math.fsum(row) / len(row)
    return mean, math.fsum((y - mean) ** 2 for y in row) / len(row)


def _normalised(row: Row, alpha: float = _ALPHA) -> list[float]:
    mean, variance = _statistics(row)
    return [(y - mean) / math.sqrt(variance + alpha) for y in row]


def _layer_act(row: Row, scale: Callable[[float], float], alpha: float = _ALPHA) -> list[float]:
    return [y * scale(n) for y, n in zip(row, _normalised(row, alpha), strict=True)]


def _element(row: Row, scale: Callable[[float], float]) -> list[float]:
    return [y * scale(y) for y in row]


def _distance(a: Iterable[float], b: Iterable[float]) -> float:
    """The norm of the paper's Definition 2.2: the sum of absolute differences."""
    return math.fsum(abs(x - y) for x, y in zip(a, b, strict=True))


def _plus(row: Row, noise: Row) -> list[float]:
    return [y + change for y, change in zip(row, noise, strict=True)]


def _normal(generator: random.Random, mean: float, deviation: float, count: int) -> list[float]:
    return [generator.gauss(mean, deviation) for _ in range(count)]


def _quantiles(count: int) -> list[float]:
    """A row that looks like the standard normal law."""
    return [NormalDist().inv_cdf((k + 0.5) / count) for k in range(count)]


def _normal_mean(function: Callable[[float], float]) -> float:
    """E[f(u)] for u from the standard normal law."""
    steps = [k / 200 for k in range(-1800, 1801)]
    return math.fsum(function(u) * math.exp(-u * u / 2) for u in steps) / 200 / math.sqrt(2 * math.pi)


def _spread_rows(seed: int, count: int) -> list[tuple[list[float], list[float]]]:
    """Random rows and noises of many shapes."""
    generator = random.Random(seed)
    made = []
    for _ in range(count):
        size = generator.choice((2, 3, 8, 64))
        mean, deviation = generator.choice((-5, 0, 0.5, 5)), generator.choice((0.1, 1, 5))
        power = generator.choice((1, 3))
        row = [mean + deviation * generator.gauss(0, 1) ** power for _ in range(size)]
        made.append((row, _normal(generator, generator.choice((0, 0.3)), generator.choice((0.01, 0.3, 2)), size)))
    return made


# --- Sections 2 and 3.1: the function and its backward pass -------------------------------------------------


def _printed(name: str) -> Any:
    from companion import symbolic

    return symbolic.get(name).rhs


def _backward_error() -> float:
    """Largest relative error of the paper's ∂L/∂y_1 against SymPy's of Eq. 6, on rows of 2 and 3 elements."""
    import sympy
    from mpmath import mp, mpf

    from companion.layeract import formulas

    worst = 0.0
    generator = random.Random(0)
    scales = {"Scale": lambda x: 1 / (1 + mp.exp(-x)), "Slope": lambda x: 1 / (2 + mp.exp(x) + mp.exp(-x))}
    # By symmetry the first element stands for all.
    sides = formulas.Partial(formulas.L, formulas.y[1]), _printed("layeract-gradient-assembled").subs(formulas.i, 1)
    for count in (2, 3):
        inputs = [base[k + 1] for base in (formulas.y, formulas.g) for k in range(count)]
        function = sympy.lambdify(
            [*inputs, formulas.alpha],
            [formulas.written_out(side, count) for side in sides],
            [scales, "mpmath"],
            cse=True,
        )
        with mp.workdps(40):
            for _ in range(50):
                exact, printed = function(*(mpf(generator.gauss(0, 1)) for _ in inputs), mpf(_ALPHA))
                worst = max(worst, float(abs(printed / exact - 1)))
    return worst


def _code_error(count: int) -> float:
    """Median size of the published code's error, in sizes of the gradient: r n_i Σ h n / (d (d − 1))."""
    generator = random.Random(count)
    ratios = []
    for _ in range(51):
        y, g = (_normal(generator, 0, 1, count) for _ in range(2))
        mean, variance = _statistics(y)
        r = 1 / math.sqrt(variance * count / (count - 1) + _ALPHA)
        n = [(value - mean) * r for value in y]
        s = [_sigmoid(value) for value in n]
        h = [a * b * c * (1 - c) for a, b, c in zip(g, y, s, strict=True)]
        average, along = math.fsum(h) / count, math.fsum(a * b for a, b in zip(h, n, strict=True))
        gradient = [a * b + r * (c - average - e * along / (count - 1)) for a, b, c, e in zip(g, s, h, n, strict=True)]
        error = [r * e * along / (count * (count - 1)) for e in n]
        ratios.append(math.hypot(*error) / math.hypot(*gradient))
    return median(ratios)


def backward() -> Verdict:
    """Section 3.1: the three equations of the backward pass."""
    worst = _backward_error()
    errors = {count: _code_error(count) for count in (8, 64, 1024)}
    return Verdict(
        "holds" if worst < ROUNDING else "does not hold",
        "On 100 random rows of 2 and 3 elements their relative difference from SymPy's derivative of Eq. 6 is "
        f"{at_most(worst)}. The published code has the same backward pass after a variance that divides by d − 1: that "
        f"is wrong by {enumerated([f'{error:.0e}' for error in errors.values()])} of the gradient's length for 8, 64 "
        "and 1024 normal elements (median).",
    )


def scale_definition() -> Verdict:
    """Definition 3.1: do Sigmoid and HardSigmoid satisfy it?"""
    points = [k / 50 for k in range(-500, 501)]
    lipschitz, strict = [], []
    for scale, constant in _LIPSCHITZ.items():
        values = [scale(x) for x in points]
        steps = [later - earlier for earlier, later in pairwise(values)]
        bounded = all(0 <= value <= 1 for value in values) and scale(0) == 0.5
        lipschitz.append(bounded and all(0 <= step <= constant / 50 + 1e-15 for step in steps))
        strict.append(all(step > 0 for step in steps))
    return Verdict(
        graded(all(lipschitz) and all(strict), all(lipschitz)),
        "Both are bounded, 1/2 at zero, and Lipschitz with K = 1/4 and 1/6; but HardSigmoid is constant beyond ±3, so "
        f"it is increasing only if constant pieces are allowed ({sum(strict)} of 2 increase strictly).",
    )


def any_scale() -> Verdict:
    """Section 3.1: any function that satisfies Definition 3.1 can serve."""
    allowed: dict[str, Callable[[float], float]] = {
        "the constant 1/2": lambda x: 0.5,
        "1/2 + (σ(x) − 1/2)/1000": lambda x: 0.5 + (_sigmoid(x) - 0.5) / 1000,
    }
    row = _normal(random.Random(1), 0, 2, 200)
    linear = {name: _distance(_layer_act(row, scale), [y / 2 for y in row]) for name, scale in allowed.items()}
    size = math.fsum(map(abs, row)) / 2
    useless = [name for name, distance in linear.items() if distance < 0.01 * size]
    usual = _distance(_layer_act(row, _sigmoid), [y / 2 for y in row])
    return Verdict(
        "does not hold" if useless else "holds",
        f"It is satisfied by {enumerated(list(allowed))} (which even increases strictly), and with them the function "
        f"is y/2, to {max(linear.values()) / size:.1%} of its size on a normal row (LA-SiLU differs by "
        f"{usual / size:.0%}): linear and never saturated. The definition lacks that s goes to 0 and 1.",
    )


def continuity() -> Verdict:
    """Section 3.1: a scale with a jump makes LayerAct jump, and a ReLU not."""
    tiny = 1e-9
    below, above = [5.0 - tiny, 4.0, 6.0], [5.0 + tiny, 4.0, 6.0]
    jumps = {
        "a LayerAct function": _distance(_layer_act(below, _step), _layer_act(above, _step)),
        "the ReLU": _distance(_element([-tiny], _step), _element([tiny], _step)),
        "LA-SiLU": _distance(_layer_act(below, _sigmoid), _layer_act(above, _sigmoid)),
    }
    layer, relu, smooth = jumps.values()
    return Verdict(
        "holds" if layer > 1 and relu < 1e-6 and smooth < 1e-6 else "does not hold",
        f"With the ReLU's scale a LayerAct function jumps by {layer:.1f} where an element of (5, 4, 6) crosses the "
        "mean; the ReLU itself and LA-SiLU do not jump (less than 1e-6).",
    )


# --- Section 3.2: saturation and outputs --------------------------------------------------------------------


def negative_outputs() -> Verdict:
    """Section 3.2: the output space is not limited below."""
    lowest = {}
    for mean in (-10.0, -100.0, -1000.0):
        row = [mean + u for u in _quantiles(101)]
        lowest[mean] = min(_layer_act(row, _sigmoid)), min(_layer_act(row, _hardsigmoid)), min(_element(row, _sigmoid))
    free = all(low < mean / 3 for mean, lows in lowest.items() for low in lows[:2])
    silu = min(_element([k / 1000 for k in range(-10_000, 1)], _sigmoid))
    return Verdict(
        "holds" if free else "does not hold",
        f"For normal rows with the means {enumerated([f'{mean:.0f}' for mean in lowest])} the lowest output of LA-SiLU "
        f"is {enumerated([f'{lows[0]:.0f}' for lows in lowest.values()])}; SiLU never goes below {silu:.3f}.",
    )


def no_trade_off() -> Verdict:
    """Section 3.2: LayerAct saturates and gives up nothing for it. How many elements can saturate?"""
    share = 0.0
    for row, _ in _spread_rows(2, 1000):
        share = max(share, sum(n <= -3 for n in _normalised(row)) / len(row))
    two_valued = _normalised([-10.0] + [0.0] * 10)
    reached = sum(n <= -3 for n in two_valued) / len(two_valued)
    few = min(min(_normalised([-1e3] + [0.0] * (count - 1))) for count in range(2, 11))
    bounded = max(share, reached) <= 0.1 and few > -3 - 1e-9
    return Verdict(
        "holds in part" if bounded else "holds",
        "There is no floor under the outputs, but there is a limit on saturation instead: in no row has more than "
        f"1/10 of the elements n ≤ −3 (Cantelli; at most {max(share, reached):.1%} in 1001 rows), and with d ≤ 10 "
        "none; a ReLU can switch off all. At the mean of the row the gate is always 1/2.",
    )


def saturation_input() -> Verdict:
    """Section 1: mean and variance of the layer determine where saturation begins."""
    generator = random.Random(4)
    agree = True
    for _ in range(200):
        row = [generator.uniform(-3, 3) + generator.gauss(0, 1) ** 3 for _ in range(50)]
        mean, variance = _statistics(row)
        edge = mean - 3 * math.sqrt(variance + _ALPHA)
        gates = [_hardsigmoid(n) for n in _normalised(row)]
        agree &= all((gate < 1e-12) == (y < edge + 1e-12) for y, gate in zip(row, gates, strict=True))
    return Verdict(
        "holds" if agree else "does not hold",
        "LA-HardSiLU is off exactly where y ≤ μ − 3√(v + α), in each of 200 random rows.",
    )


def figure_6() -> Verdict:
    """Appendix D: in some cases, as in the second panel of Fig. 6, no output is saturated."""
    panels = ((0, 1), (0, 5), (-5, 1), (5, 1))
    counts = {}
    for size in (100, 10_000):
        draws = _quantiles(size)
        counts[size] = [
            sum(n <= -3 for n in _normalised([mean + deviation * u for u in draws])) for mean, deviation in panels
        ]
    none_at_all = counts[100] == [0] * 4
    alike = all(len(set(each)) == 1 for each in counts.values())
    return Verdict(
        graded(none_at_all and not alike, none_at_all),
        f"Such rows exist, but it is not the panel: n is the same for all four, whatever mean and variance. Of 100 "
        f"normal elements {enumerated([str(c) for c in counts[100]])} are saturated in the four panels, of 10000 "
        f"{enumerated([str(c) for c in counts[10_000]])}; what differs is the sample that was drawn.",
    )


def shape_depends() -> Verdict:
    """Appendix D: mean and variance of the input affect the shape of the output."""
    draws = _quantiles(201)
    base = _layer_act(draws, _sigmoid)
    size = math.fsum(map(abs, base))
    stretched = [a / 5 for a in _layer_act([5 * u for u in draws], _sigmoid)]
    moved = _layer_act([u + 5 for u in draws], _sigmoid)
    by_variance = _distance(base, stretched) / size
    by_mean = _distance(base, [a - (math.fsum(moved) - math.fsum(base)) / len(draws) for a in moved]) / size
    return Verdict(
        graded(by_mean > 0.01 and by_variance > 0.01, by_mean > 0.01 or by_variance > 0.01),
        f"The mean does: shifted back, the outputs for μ = 5 differ from those for μ = 0 by {by_mean:.0%} of their "
        "size. The variance alone does not: the curve for μ = 0, σ = 5 is that for σ = 1, five times as large in both "
        f"directions (the difference is {by_variance:.0e} of its size, from α). Only μ/σ changes the shape.",
    )


def zero_like_mechanism() -> Verdict:
    """Sections 1 and 3.2: is a zero-like mean a property of the function? For normal inputs, by integrals."""
    functions: dict[str, Callable[[float, float], float]] = {
        "LA-SiLU": lambda y, u: y * _sigmoid(u),
        "SiLU": lambda y, u: y * _sigmoid(y),
        "ReLU": lambda y, u: max(0.0, y),
    }
    means: dict[str, list[float]] = {}
    for name, function in functions.items():
        means[name] = [_normal_mean(lambda u, f=function, m=m: f(m + u, u)) for m in (-3, 0, 3)]  # type: ignore[misc]
    nearer = [k for k in range(3) if abs(means["LA-SiLU"][k]) < min(abs(means["SiLU"][k]), means["ReLU"][k]) - 1e-9]
    text = "; ".join(f"{name} {enumerated([f'{value:.2f}' for value in values])}" for name, values in means.items())
    return Verdict(
        graded(len(nearer) == 3, nearer),
        f"For long normal rows with deviation 1 and the means −3, 0 and 3 the mean output is: {text}. LA-SiLU gives "
        f"m/2 + {means['LA-SiLU'][1]:.3f}σ: it is nearest to zero in {len(nearer)} of 3 cases, equal to SiLU at m = 0, "
        "and follows a negative mean where the others stay near zero.",
    )


def delivers_statistics() -> Verdict:
    """Section 3.1: mean and variance of the input reach the output."""
    generator = random.Random(6)
    draws = _quantiles(101)

    def output(mean: float, deviation: float) -> tuple[float, float]:
        return _statistics(_layer_act([mean + deviation * u for u in draws], _sigmoid))

    # μ s + σ n s, element by element: both can be read off two outputs.
    worst = 0.0
    gates = [_sigmoid(n) for n in _normalised(draws)]
    for _ in range(100):
        mean, deviation = generator.uniform(-5, 5), generator.uniform(0.5, 5)
        outputs = _layer_act([mean + deviation * u for u in draws], _sigmoid)
        (a, b), (u, w) = [outputs[k] / gates[k] for k in (0, 1)], draws[:2]
        found = (a - b) / (u - w)
        worst = max(worst, abs(found - deviation), abs(a - found * u - mean))
    zero, far = output(0, 1), output(4, 2)
    return Verdict(
        "holds" if worst < 1e-3 and far != zero else "does not hold",
        "An output is μ s(n) + σ n s(n): where n is known, two outputs give both (error below 1e-3 in 100 rows). "
        f"They are not kept as they are: mean and variance 0 and 1 become {zero[0]:.2f} and "
        f"{zero[1]:.2f}, 4 and 4 become {far[0]:.2f} and {far[1]:.2f}.",
    )


def layernorm_erases() -> Verdict:
    """Sections 2.4 and 3.1: after LayerNorm mean and variance of the input are lost."""
    draws = _normal(random.Random(7), 0, 1, 64)
    base = _element(_normalised(draws), _sigmoid)
    size = math.fsum(map(abs, base))
    change = {
        deviation: _distance(base, _element(_normalised([7 + deviation * u for u in draws]), _sigmoid)) / size
        for deviation in (10.0, 1.0, 1e-2, 3e-3)
    }
    lost, kept = change[1.0] < 1e-4 and change[10.0] < 1e-4, change[3e-3] > 0.1
    return Verdict(
        graded(lost and not kept, lost),
        "SiLU after LayerNorm gives the same for 7 + σy as for y, to "
        f"{max(change[1.0], change[10.0]):.0e} of its size at σ = 1 and 10; but where σ² is as small as α = 1e-5 the "
        f"deviation is not lost: {change[1e-2]:.0%} at σ = 0.01 and {change[3e-3]:.0%} at 0.003.",
    )


def scale_sums_alike() -> Verdict:
    """Section 2.4: after LayerNorm the sum of the scales is similar for all samples."""

    def mean_scale(row: Row) -> float:
        return math.fsum(map(_sigmoid, _normalised(row))) / len(row)

    random_rows = [mean_scale(row) for row, _ in _spread_rows(8, 500)]
    skewed = [mean_scale([sign * 100.0] * few + [0.0] * (200 - few)) for few in range(1, 200) for sign in (-1, 1)]
    values = random_rows + skewed
    return Verdict(
        "holds" if max(values) - min(values) < 0.1 else "does not hold",
        f"‖s(n)‖/d lies between {min(values):.3f} and {max(values):.3f} in {len(values)} rows, among them all rows of "
        "200 elements with two values.",
    )


# --- Section 3.3: fluctuation -------------------------------------------------------------------------------


def eq_4() -> Verdict:
    """Eq. 4, for positive inputs as the paper demands."""
    violated, other = 0, 0
    rows = _spread_rows(9, 1000)
    for row, noise in rows:
        for positive in (True, False):
            used = [abs(y) for y in row] if positive else row
            noisy = _plus(used, noise)
            bound = math.fsum(
                y * abs(_sigmoid(z) - _sigmoid(y)) + abs(z - y) * _sigmoid(z) for y, z in zip(used, noisy, strict=True)
            )
            wrong = _distance(_element(noisy, _sigmoid), _element(used, _sigmoid)) > bound * (1 + 1e-9) + 1e-12
            violated += wrong and positive
            other += wrong and not positive
    return Verdict(
        "holds" if not violated else "does not hold",
        f"No violation in {len(rows)} random rows with positive elements ({violated} found). For other rows y_i has "
        f"to be |y_i|: as printed the bound fails in {other / len(rows):.0%} of them.",
    )


def _bound(row: Row, noise: Row, gates: Row, noisy_gates: Row) -> float:
    """The right-hand side of Eq. 7, and of Eq. 4 with |y_i|."""
    return math.fsum(
        abs(y) * abs(after - before) + abs(e) * after
        for y, e, before, after in zip(row, noise, gates, noisy_gates, strict=True)
    )


def eq_7() -> Verdict:
    """Eq. 7."""
    violated = 0
    rows = _spread_rows(10, 1000)
    for row, noise in rows:
        for scale in _LIPSCHITZ:
            noisy = _plus(row, noise)
            gates, noisy_gates = ([scale(n) for n in _normalised(each)] for each in (row, noisy))
            bound = _bound(row, noise, gates, noisy_gates)
            fluctuation = _distance(_layer_act(noisy, scale), _layer_act(row, scale))
            violated += fluctuation > bound * (1 + 1e-9) + 1e-12
    return Verdict(
        "holds" if not violated else "does not hold",
        f"It is the triangle inequality; {violated} violations in {len(rows)} random rows with both scales.",
    )


def eq_8() -> Verdict:
    """Eq. 8 for the scales of the element-level functions."""
    ratios = {}
    for name, scale, constant in (
        ("SiLU", _sigmoid, 1 / 4),
        ("HardSiLU", _hardsigmoid, 1 / 6),
        ("ReLU", _step, 1 / 4),
    ):
        worst = 0.0
        for row, noise in [*_spread_rows(11, 500), ([-1e-6], [2e-6])]:
            moved = math.fsum(abs(scale(y + e) - scale(y)) for y, e in zip(row, noise, strict=True))
            worst = max(worst, moved / (constant * math.fsum(map(abs, noise))))
        ratios[name] = worst
    good = [name for name, ratio in ratios.items() if ratio <= 1 + 1e-9]
    return Verdict(
        graded(len(good) == len(ratios), good),
        f"‖s(ŷ)‖ ≤ d holds for every scale up to 1. The first bound holds for {enumerated(good)} (K = 1/4 and 1/6), "
        f"but the ReLU's scale jumps and has no K: at y = −1e-6, ε = 2e-6 it changes by 1, {ratios['ReLU']:.0e} times "
        "|ε|/4.",
    )


def _eq_9(row: Row, noise: Row, scale: Callable[[float], float]) -> tuple[float, float, float]:
    """The three sides of Eq. 9 with Lipschitz's constant of the scale: change of scales, middle, right."""
    constant = _LIPSCHITZ[scale]
    noisy = _plus(row, noise)
    left = _distance(map(scale, _normalised(noisy)), map(scale, _normalised(row)))
    (mean, variance), (centre, spread) = _statistics(row), _statistics(noise)
    one, other = math.sqrt(variance + _ALPHA + spread), math.sqrt(variance + _ALPHA)
    middle = math.fsum(abs((y + e - mean - centre) / one - (y - mean) / other) for y, e in zip(row, noise, strict=True))
    return left, constant * middle, constant * math.fsum(abs(e - centre) for e in noise) / other


def eq_9_bound() -> Verdict:
    """Eq. 9, the inequality, for noise that is small against the row."""
    generator = random.Random(12)
    white = 0
    for _ in range(300):
        row, noise = _normal(generator, 1, 2, 100), _normal(generator, 0, 0.02, 100)
        left, middle, _ = _eq_9(row, noise, _hardsigmoid)
        white += left <= middle
    count = 1000
    row = [math.sqrt(count)] + [(-1.0) ** k for k in range(count - 1)]
    noise = [0.01] + [0.0] * (count - 1)
    left, middle, right = _eq_9(row, noise, _hardsigmoid)
    ratio = math.sqrt(_statistics(noise)[1] / _statistics(row)[1])
    same = _eq_9([1.0, 2.0, 4.0], [0.125, 0.125, 0.125], _sigmoid)
    return Verdict(
        graded(left <= max(middle, right) and same[0] < same[1], False),
        f"With HardSigmoid it holds in {white} of 300 normal rows with white noise of σ_ε = σ_y/100. Where one of 1000 "
        f"elements is an outlier and only that element is disturbed (σ_ε/σ_y = {ratio:.0e}), the scales change "
        f"{left / middle:.1f} and {left / right:.1f} times as much as the two sides of Eq. 9 allow: ŷ has not the "
        f"variance σ_y² + σ_ε². For equal ε_i both sides are 0, so < should be ≤ ({same[0]:.0f} and {same[1]:.0f}).",
    )


def eq_9_variance() -> Verdict:
    """Eq. 9 takes the variance of y + ε to be the sum of both variances."""
    row = _quantiles(64)
    generator = random.Random(13)
    ratios = []
    for _ in range(2000):
        noise = _normal(generator, 0, 0.1, 64)
        ratios.append((_statistics(_plus(row, noise))[1] - _statistics(row)[1]) / _statistics(noise)[1])
    mean = math.fsum(ratios) / len(ratios)
    outside = sum(not 0.5 < ratio < 1.5 for ratio in ratios) / len(ratios)
    falls = sum(ratio < 0 for ratio in ratios) / len(ratios)
    return Verdict(
        graded(outside == 0, abs(mean - 1) < 0.2),
        "The covariance of row and noise is missing. On average over independent noise it vanishes (the variance grows "
        f"by {mean:.1f} σ_ε²), in a single row it is the larger part: with 64 elements and σ_ε = σ_y/10 the variance "
        f"falls in {falls:.0%} of 2000 draws, and is not within half a σ_ε² of the sum in {outside:.0%}.",
    )


def eq_9_equality() -> Verdict:
    """Eq. 9, the equality: exact, or to first order?"""
    generator = random.Random(14)
    gaps = []
    for ratio in (1.0, 0.1, 0.01):
        row, noise = _normal(generator, 0, 1, 1000), _normal(generator, 0, ratio, 1000)
        _, middle, right = _eq_9(row, noise, _sigmoid)
        gaps.append(abs(middle / right - 1))
    shrinks = gaps[0] > 10 * gaps[1] > 50 * gaps[2]
    return Verdict(
        graded(max(gaps) < ROUNDING, shrinks or gaps[2] < 1e-3),
        f"The two sides differ by {gaps[0]:.1%}, {gaps[1]:.2%} and {gaps[2]:.3%} at σ_ε/σ_y = 1, 0.1 and 0.01: it is "
        "an approximation for small noise, as the text beside it says, printed as an equality.",
    )


def eq_9_denominator() -> Verdict:
    """Eq. 9: √(σ_y² + α) > 1 where σ_y ≫ σ_ε and α is sufficiently large."""
    values = {row["quantity"]: float(row["value"]) for row in book.published("layeract-quoted")}
    used = [values["alpha on CIFAR"], values["alpha on ImageNet"]]
    needed = [math.sqrt(max(0.0, 1 - alpha)) for alpha in used]
    roots = [math.sqrt(0.25 + alpha) for alpha in used]
    return Verdict(
        graded(all(root > 1 for root in roots), all(alpha > 0 for alpha in used)),
        f"It needs σ_y² > 1 − α: with the paper's α = {used[0]:g} and {used[1]:g} σ_y has to exceed {needed[0]:.5f} "
        f"and {needed[1]:.3f}. At σ_y = 0.5 the root is {roots[0]:.2f} and {roots[1]:.2f}, and the bound of Eq. 9 is "
        "larger than that of Eq. 8; only an α above 1 makes it true for every row.",
    )


def eq_9_half() -> Verdict:
    """Eq. 9: ‖s(n̂)‖ = d/2."""
    generator = random.Random(15)
    deviations: dict[str, float] = {}
    for name, scale in (("LA-SiLU", _sigmoid), ("LA-HardSiLU", _hardsigmoid)):
        row = [generator.gauss(0, 1) ** 2 for _ in range(200)]
        deviations[name] = math.fsum(map(scale, _normalised(row))) / len(row) - 0.5
    few = abs(math.fsum(map(_hardsigmoid, _normalised([0.0] * 7 + [9.0]))) / 8 - 0.5)
    symmetric = abs(math.fsum(map(_sigmoid, _normalised([-4.0, -1.0, 1.0, 4.0]))) / 4 - 0.5)
    extreme = max(
        abs(math.fsum(map(_sigmoid, _normalised([1.0] * k + [0.0] * (200 - k)))) / 200 - 0.5) for k in range(1, 200)
    )
    special = few < ROUNDING and symmetric < ROUNDING
    return Verdict(
        graded(max(map(abs, deviations.values())) < ROUNDING, special),
        "It is exact where the row is symmetric, or where the scale is linear on the row (LA-HardSiLU with no element "
        f"beyond ±3), and near otherwise: for squares of normal numbers ‖s(n)‖/d is {0.5 + deviations['LA-SiLU']:.4f} "
        f"with LA-SiLU and {0.5 + deviations['LA-HardSiLU']:.4f} with LA-HardSiLU; rows with two values reach "
        f"{0.5 + extreme:.3f}.",
    )


def _bounds(row: Row, noise: Row) -> tuple[float, float, float, float]:
    """Changes and sums of the scales, element level and layer level: SiLU and LA-SiLU."""
    noisy = _plus(row, noise)
    element = _distance(map(_sigmoid, noisy), map(_sigmoid, row)), math.fsum(map(_sigmoid, noisy))
    n, n_hat = _normalised(row), _normalised(noisy)
    return *element, _distance(map(_sigmoid, n_hat), map(_sigmoid, n)), math.fsum(map(_sigmoid, n_hat))


def _fluctuations(row: Row, noise: Row) -> dict[str, float]:
    noisy = _plus(row, noise)
    size = math.fsum(map(abs, noise))
    changes = {
        "ReLU": _distance([max(0.0, y) for y in noisy], [max(0.0, y) for y in row]),
        "SiLU": _distance(_element(noisy, _sigmoid), _element(row, _sigmoid)),
        "LA-SiLU": _distance(_layer_act(noisy, _sigmoid), _layer_act(row, _sigmoid)),
        "LA-HardSiLU": _distance(_layer_act(noisy, _hardsigmoid), _layer_act(row, _hardsigmoid)),
    }
    return {name: change / size for name, change in changes.items()}


def _row_and_noise(mean: float, deviation: float) -> tuple[list[float], list[float]]:
    generator = random.Random(16)
    return _normal(generator, mean, deviation, 400), _normal(generator, 0, 0.05 * deviation, 400)


def _both_bounds(row: Row, noise: Row) -> tuple[float, float]:
    """Eq. 4 for SiLU (with |y_i|), and Eq. 7 for LA-SiLU."""
    pairs = (row, _plus(row, noise)), (_normalised(row), _normalised(_plus(row, noise)))
    element, layer = (_bound(row, noise, [_sigmoid(x) for x in a], [_sigmoid(x) for x in b]) for a, b in pairs)
    return element, layer


def smaller_bound_exists() -> Verdict:
    """Section 3.3: the fluctuation of LayerAct can have a smaller bound."""
    cases = ((2.0, 2.0), (4.0, 4.0), (5.0, 0.5))
    ratios = {}
    for case in cases:
        element, layer = _both_bounds(*_row_and_noise(*case))
        ratios[case] = layer / element
    smaller = [case for case, ratio in ratios.items() if ratio < 1]
    example = _fluctuations(*_row_and_noise(2.0, 2.0))
    return Verdict(
        "holds" if smaller and example["LA-SiLU"] < example["SiLU"] else "does not hold",
        f"For a normal row with mean 2 and deviation 2 the bound of Eq. 7 (LA-SiLU) is {ratios[2.0, 2.0]:.2f} times "
        f"that of Eq. 4 (SiLU); per unit of noise LA-SiLU fluctuates by {example['LA-SiLU']:.2f}, LA-HardSiLU "
        f"{example['LA-HardSiLU']:.2f}, SiLU {example['SiLU']:.2f}, ReLU {example['ReLU']:.2f}. For mean 5, deviation "
        f"0.5 the ratio of the bounds is {ratios[5.0, 0.5]:.1f}.",
    )


def terms_are_lower() -> Verdict:
    """Section 3.3: both terms of LayerAct are bound to be lower than those of element-level functions."""
    lower = {}
    for mean, deviation in ((2.0, 2.0), (0.0, 0.2), (-3.0, 0.5), (10.0, 1.0)):
        before, total, after, half = _bounds(*_row_and_noise(mean, deviation))
        lower[f"mean {mean:g}, deviation {deviation:g}"] = after < before, half < total
    both = [name for name, terms in lower.items() if all(terms)]
    neither = [name for name, terms in lower.items() if not any(terms)]
    return Verdict(
        "holds" if len(both) == len(lower) else "does not hold",
        f"Of four normal rows both terms of LA-SiLU are lower than SiLU's in {len(both)} ({'; '.join(both)}); neither "
        f"is in {len(neither)} ({'; '.join(neither)}): where σ_y is small the first is larger, where most elements are "
        "negative the second is.",
    )


def fluctuates_less() -> Verdict:
    """Section 3.3 and abstract, read strongly: LayerAct fluctuates less."""
    cases = ((2.0, 2.0), (0.0, 1.0), (10.0, 1.0), (-3.0, 0.5))
    fluctuations = {case: _fluctuations(*_row_and_noise(*case)) for case in cases}
    less = [case for case, each in fluctuations.items() if max(each["LA-SiLU"], each["LA-HardSiLU"]) < each["ReLU"]]
    text = "; ".join(
        f"{each['LA-SiLU']:.2f}, {each['LA-HardSiLU']:.2f}, {each['SiLU']:.2f} and {each['ReLU']:.2f} at mean "
        f"{mean:g}, deviation {deviation:g}"
        for (mean, deviation), each in fluctuations.items()
    )
    return Verdict(
        graded(len(less) == len(cases), less),
        "It depends on the row: white noise of 5 % changes the outputs of LA-SiLU, LA-HardSiLU, SiLU and ReLU by, per "
        f"unit of noise, {text}. The term y(s(n̂) − s(n)) grows like |μ|/σ, so rows far from zero fluctuate more.",
    )


def upper_bound_over_samples() -> Verdict:
    """Definition 2.2 asks for a bound over all samples: which functions have one per unit of noise?"""
    grid = [k / 100 for k in range(-1000, 1001)]
    slopes = {
        name: max(abs(later - earlier) / 0.01 for earlier, later in pairwise(_element(grid, scale)))
        for name, scale in (("SiLU", _sigmoid), ("HardSiLU", _hardsigmoid))
    }
    noise = [1e-6, -1e-6] * 8
    growing = {
        height: _distance(_layer_act(_plus([height] * 16, noise), _sigmoid), _layer_act([height] * 16, _sigmoid))
        / (16 * 1e-6)
        for height in (1.0, 10.0, 100.0)
    }
    unbounded = growing[10.0] > 5 * growing[1.0] and growing[100.0] > 5 * growing[10.0]
    return Verdict(
        "does not hold" if unbounded else "holds",
        "Element-level functions have a bound for all inputs, per unit of noise: ReLU 1, SiLU "
        f"{slopes['SiLU']:.2f}, HardSiLU {slopes['HardSiLU']:.2f}. LayerAct has none: for a row of equal elements 1, "
        f"10 and 100 LA-SiLU changes by {enumerated([f'{value:.0f}' for value in growing.values()])} times a small "
        "noise (1/2 + y/(4√α), α = 1e-5).",
    )


# --- Appendix C: after layer normalisation ------------------------------------------------------------------


def after_layernorm() -> Verdict:
    """Appendix C: the functions become similar as gain and bias come near zero and one, respectively."""
    draws = _normal(random.Random(17), 1, 2, 128)

    def gap(gain: float, bias: float, row: Row = draws) -> float:
        after = [gain * n + bias for n in _normalised(row)]
        element, layer = _element(after, _sigmoid), _layer_act(after, _sigmoid)
        return _distance(element, layer) / math.fsum(map(abs, element))

    printed, swapped, tight = gap(1e-3, 1.0), gap(1.0, 0.0), gap(1.0, 0.0, [1e-3 * u for u in draws])
    return Verdict(
        "holds" if printed < 0.01 else "does not hold",
        f"As printed it is the wrong way round: at gain 0.001 and bias 1 SiLU and LA-SiLU differ by {printed:.0%}; at "
        f"gain 1 and bias 0 by {swapped:.0e}, from α, and by {tight:.0%} where the row's variance is as small as α.",
    )


def two_layernorms() -> Verdict:
    """Appendix C: after a sum of two layer-normalised rows the functions differ."""
    generator = random.Random(18)
    one, other = (_normalised(_normal(generator, 0, 1, 128)) for _ in range(2))
    total = _plus(one, other)
    element, layer = _element(total, _sigmoid), _layer_act(total, _sigmoid)
    gap = _distance(element, layer) / math.fsum(map(abs, element))
    variance = _statistics(total)[1]
    return Verdict(
        "holds" if gap > 0.01 else "does not hold",
        f"The sum of two independent normalised rows has a variance near 2 ({variance:.2f} here), so the gate sees "
        f"another number: SiLU and LA-SiLU differ by {gap:.0%} of SiLU's size.",
    )


# --- The paper's own numbers --------------------------------------------------------------------------------

_NETWORKS = ("resnet20", "resnet32", "resnet44")
_COLUMNS = tuple(f"{data}_{network}" for data in ("cifar10", "cifar100") for network in _NETWORKS)
_NOISES = ("gaussian_1", "gaussian_2", "gaussian_3", "gaussian_4", "poisson", "blur")
_NOISY_TABLES = {
    8: "CIFAR10 ResNet20",
    9: "CIFAR10 ResNet32",
    2: "CIFAR10 ResNet44",
    10: "CIFAR100 ResNet20",
    11: "CIFAR100 ResNet32",
    3: "CIFAR100 ResNet44",
}
_ELEMENT_LEVEL = ("ReLU", "LReLU", "PReLU", "Mish", "SiLU", "HardSiLU")


def _column(table: int, of: str) -> dict[str, float]:
    return book.column(f"layeract-table-{table}", of)


def _quoted(quantity: str) -> float:
    [row] = [row for row in book.published("layeract-quoted") if row["quantity"] == quantity]
    return float(row["value"])


def _best(numbers: Mapping[str, float], among: Iterable[str]) -> tuple[str, float]:
    return max(((name, numbers[name]) for name in among if name in numbers), key=lambda pair: pair[1])


def _tested() -> dict[tuple[str, str], str]:
    """Tables 6 and 7: what is printed for each network and rival."""
    printed = {}
    for table, data in ((6, "cifar10"), (7, "cifar100")):
        for row in book.published(f"layeract-table-{table}"):
            for rival in _ELEMENT_LEVEL:
                printed[f"{data}_{row['network'].lower()}", rival] = row[rival.lower()]
    return printed


def significant_count() -> Verdict:
    """Section 4.2.1: LA-SiLU is significantly better in 30 of 36 comparisons."""
    printed = _tested()
    count = sum(text == "<0.05" for text in printed.values())
    said, of = _quoted("significant"), _quoted("comparisons")
    return Verdict(
        "holds" if (count, len(printed)) == (said, of) else "does not hold",
        f"Tables 6 and 7 have {count} of {len(printed)} entries below 0.05; the text says {said:g} of {of:g}.",
    )


def _welch() -> dict[tuple[str, str], tuple[float, float]]:
    """Difference and p-value of LA-SiLU against each rival, from the printed means and deviations."""
    from scipy import stats

    runs = round(_quoted("runs"))
    found = {}
    for column in _COLUMNS:
        means, deviations = _column(1, column), _column(5, column)
        for rival in _ELEMENT_LEVEL:
            if rival not in means or rival not in deviations:
                continue
            test = stats.ttest_ind_from_stats(
                *(means["LA-SiLU"], deviations["LA-SiLU"], runs, means[rival], deviations[rival], runs),
                equal_var=False,
            )
            found[column, rival] = means["LA-SiLU"] - means[rival], float(test.pvalue)
    return found


def significance_recomputed() -> Verdict:
    """Tables 6 and 7 against Welch's t-test from Tables 1 and 5."""
    from companion.analysis import holm

    found, printed = _welch(), _tested()
    corrected = dict(zip(found, holm([p for _, p in found.values()]), strict=True))
    raw = {key for key, (gain, p) in found.items() if p < _SIGNIFICANT and gain > 0}
    strict = {key for key in found if corrected[key] < _SIGNIFICANT and found[key][0] > 0}
    said = {key for key in found if printed[key] == "<0.05"}

    def names(keys: Iterable[tuple[str, str]]) -> str:
        return enumerated([f"{rival} in {column.replace('_', ' ')}" for column, rival in sorted(keys)]) or "none"

    return Verdict(
        graded(raw == said and strict == said, len(raw & said) > len(said) / 2),
        f"From printed means and deviations with n = {round(_quoted('runs'))}, {len(raw)} of {len(found)} are below "
        f"0.05 (Welch's t-test; the tables print {len(said)} of these). Other verdicts than printed: "
        f"{names(raw ^ said)}. After Holm's correction, which the paper does not make, {len(strict)} remain; lost: "
        f"{names(said - strict)}.",
    )


def missing_prelu() -> Verdict:
    """Table 6 tests ResNet44 with PReLU on CIFAR10, for which Table 1 has no accuracy."""
    printed = _tested()
    gaps = [key for key, text in printed.items() if text and key[1] not in _column(1, key[0])]
    other = _column(1, "cifar10_resnet44")["LA-SiLU"]
    names = enumerated([f"{rival} in {column.replace('_', ' ')} ({printed[column, rival]})" for column, rival in gaps])
    return Verdict(
        "holds in part" if gaps else "holds",
        f"{len(printed) - len(gaps)} of {len(printed)} tests have both accuracies in Table 1. Not {names}: one run "
        f"diverged, Table 1 has a dash beside LA-SiLU's {other}, and the test counts among the "
        f"{_quoted('significant'):g}."
        if gaps
        else f"All {len(printed)} tests have both accuracies in Table 1, for example {other}.",
    )


def clean_best() -> Verdict:
    """Section 4.2.1: LA-SiLU is similar to or better than the others in most cases."""
    places = {}
    for column in _COLUMNS:
        numbers = _column(1, column)
        places[column] = 1 + sum(value > numbers["LA-SiLU"] for value in numbers.values())
    first = [column for column, place in places.items() if place == 1]
    worst = max(places.values())
    tightest = min(
        _column(1, column)["LA-SiLU"] - _best(_column(1, column), _ELEMENT_LEVEL)[1] for column in first or _COLUMNS
    )
    return Verdict(
        graded(len(first) > len(places) / 2 and worst <= 2, first),
        f"It is first in {len(first)} of {len(places)} columns of Table 1 and place {worst} at worst; the narrowest "
        f"lead is {tightest:.2f} points.",
    )


def clean_superior() -> Verdict:
    """Abstract: the performance on clean data is also superior in most cases, for LayerAct functions."""
    wins: dict[str, int] = dict.fromkeys(_LAYER_LEVEL, 0)
    cases = [(1, column) for column in _COLUMNS] + [(4, "clean"), (12, "clean")]
    for table, column in cases:
        numbers = _column(table, column)
        best = _best(numbers, _ELEMENT_LEVEL)[1]
        for name in _LAYER_LEVEL:
            wins[name] += numbers[name] > best
    most = [name for name, count in wins.items() if count > len(cases) / 2]
    return Verdict(
        graded(len(most) == 2, most),
        f"Of {len(cases)} clean columns (Tables 1, 4 and 12) LA-SiLU is above all element-level functions in "
        f"{wins['LA-SiLU']} and LA-HardSiLU in {wins['LA-HardSiLU']}.",
    )


def best_element_level() -> Verdict:
    """Section 4.2.1: which element-level functions are best."""
    said = {
        **{f"cifar10_{network}": "Mish" for network in _NETWORKS},
        "cifar100_resnet20": "ReLU",
        "cifar100_resnet32": "LReLU",
    }
    found = {column: _best(_column(1, column), _ELEMENT_LEVEL) for column in said}
    right = [column for column, name in said.items() if found[column][0] == name]
    text = enumerated([f"{name} {value}" for name, value in found.values()])
    return Verdict(
        graded(len(right) == len(said), right),
        f"{len(right)} of {len(said)} agree with Table 1: {text}.",
    )


def hardsilu_worse_clean() -> Verdict:
    """Section 4.2.3: LA-HardSiLU is worse than SiLU or LReLU on clean CIFAR."""
    worse: list[str] = []
    better: list[str] = []
    for column in _COLUMNS:
        numbers = _column(1, column)
        for rival in ("SiLU", "LReLU"):
            text = f"{column.replace('_', ' ')} {rival}"
            (worse if numbers["LA-HardSiLU"] < numbers[rival] else better).append(text)
    gap = _column(1, "cifar100_resnet44")
    return Verdict(
        graded(not better, worse),
        f"It is below in {len(worse)} of {len(worse) + len(better)} comparisons, by up to "
        f"{max(gap['SiLU'], gap['LReLU']) - gap['LA-HardSiLU']:.2f} points (CIFAR100, ResNet44); not in "
        f"{enumerated(better) or 'any other'}.",
    )


def stable_deviation() -> Verdict:
    """Appendix G: LA-SiLU is similarly or more stable than the others in most cases (Table 5)."""
    lowest, below, total, significant = [], 0, 0, 0
    runs = round(_quoted("runs"))
    from scipy import stats

    # The ratio of two variances that a two-sided F-test with that many runs calls different.
    threshold = float(stats.f.ppf(0.975, runs - 1, runs - 1))
    for column in _COLUMNS:
        numbers = _column(5, column)
        own = numbers["LA-SiLU"]
        if own == min(numbers.values()):
            lowest.append(column)
        for rival in _ELEMENT_LEVEL:
            if rival in numbers:
                total += 1
                below += own < numbers[rival]
                significant += own < numbers[rival] and (numbers[rival] / own) ** 2 > threshold
    return Verdict(
        graded(below > total / 2 and len(lowest) > len(_COLUMNS) / 2, below > total / 2),
        f"Its deviation is the lowest in {len(lowest)} of {len(_COLUMNS)} columns and below the rival's in {below} of "
        f"{total} pairs, in {significant} of them significantly (F-test, n = {runs}, without correction).",
    )


def noisy_cifar_all() -> Verdict:
    """Section 4.2.2: LA-HardSiLU is better on all noisy data sets of Tables 2 and 3."""
    above, beaten, margins = 0, [], {}
    for table in (2, 3):
        for noise in _NOISES:
            numbers = _column(table, noise)
            margins[table, noise] = numbers["LA-HardSiLU"] - _best(numbers, _ELEMENT_LEVEL)[1]
            above += margins[table, noise] > 0
            if numbers["LA-SiLU"] > numbers["LA-HardSiLU"]:
                beaten.append(f"{_NOISY_TABLES[table]} {noise.replace('_', ' ')}")
    narrow = min(margins, key=lambda key: margins[key])
    return Verdict(
        graded(above == len(margins), above),
        f"It is above all element-level functions in {above} of {len(margins)} columns, by "
        f"{min(margins.values()):.2f} ({_NOISY_TABLES[narrow[0]]}, {narrow[1].replace('_', ' ')}) to "
        f"{max(margins.values()):.2f} points; LA-SiLU is higher in {len(beaten)} ({enumerated(beaten) or 'none'}).",
    )


def noisy_significance() -> Verdict:
    """Section 4.2.2: significant, except against ReLU and LReLU on noises 1 and 2 of CIFAR10."""
    numbers = {noise: _column(2, noise) for noise in _NOISES}
    named = [
        f"{numbers[noise]['LA-HardSiLU'] - numbers[noise][rival]:.2f}"
        for noise in ("gaussian_1", "gaussian_2")
        for rival in ("ReLU", "LReLU")
    ]
    others = [
        numbers[noise]["LA-HardSiLU"] - value
        for noise in _NOISES
        for rival, value in numbers[noise].items()
        if rival in _ELEMENT_LEVEL and not (noise in ("gaussian_1", "gaussian_2") and rival in ("ReLU", "LReLU"))
    ]
    return Verdict(
        "not tested",
        "The paper prints no deviations on noisy data, so nobody can recompute the tests. In Table 2 the four excepted "
        f"differences are {enumerated(named)} points, the smallest other one is {min(others):.2f}.",
    )


def noisy_cifar_most() -> Verdict:
    """Appendix G: on noisy data the LayerAct functions are better in most cases (Tables 8 to 11)."""
    counts = dict.fromkeys(_LAYER_LEVEL, 0)
    total = 0
    missed = []
    for table in (8, 9, 10, 11):
        for noise in _NOISES:
            numbers = _column(table, noise)
            rival, best = _best(numbers, _ELEMENT_LEVEL)
            total += 1
            for name in _LAYER_LEVEL:
                counts[name] += numbers[name] > best
                if numbers[name] <= best:
                    missed.append(f"{name} {numbers[name]} below {rival} {best}, {_NOISY_TABLES[table]}")
    most = [name for name, count in counts.items() if count > total / 2]
    return Verdict(
        graded(len(most) == 2, most),
        f"LA-SiLU is above all element-level functions in {counts['LA-SiLU']} of {total} columns, LA-HardSiLU in "
        f"{counts['LA-HardSiLU']}; not: {'; '.join(missed) or 'none'}.",
    )


def noise_with_a_mean() -> Verdict:
    """Appendix G: LayerAct is remarkably robust to noise with a large mean."""
    drops: dict[str, list[float]] = {}
    ahead, total = 0, 0
    for table in _NOISY_TABLES:
        for plain, moved in (("gaussian_1", "gaussian_2"), ("gaussian_3", "gaussian_4")):
            before, after = _column(table, plain), _column(table, moved)
            change = {name: after[name] - before[name] for name in before}
            for name, value in change.items():
                drops.setdefault(name, []).append(value)
            total += 1
            ahead += min(change[name] for name in _LAYER_LEVEL) > max(
                value for name, value in change.items() if name in _ELEMENT_LEVEL
            )
    means = {name: math.fsum(values) / len(values) for name, values in drops.items()}
    best = max((name for name in means if name in _ELEMENT_LEVEL), key=lambda name: means[name])
    higher = all(means[name] > means[best] for name in _LAYER_LEVEL)
    return Verdict(
        graded(ahead == total, higher),
        f"Where the noise gets the mean 0.1, the accuracy changes by {means['LA-SiLU']:+.2f} points with LA-SiLU and "
        f"{means['LA-HardSiLU']:+.2f} with LA-HardSiLU on average over {total} pairs of columns, with the best "
        f"element-level function, {best}, by {means[best]:+.2f}; both are ahead of all six in {ahead} of {total}. "
        "Figures 9 to 12 have no numbers to check.",
    )


def _imagenet(table: int) -> Verdict:
    columns = [key for key in book.published(f"layeract-table-{table}")[0] if key != "method"]
    won: dict[str, int] = dict.fromkeys(_LAYER_LEVEL, 0)
    lost = []
    for of in columns:
        numbers = _column(table, of)
        rival, best = _best(numbers, _ELEMENT_LEVEL)
        for name in _LAYER_LEVEL:
            won[name] += numbers[name] > best
            if numbers[name] <= best:
                relation = "equal to" if numbers[name] == best else "below"
                lost.append(f"{name} {numbers[name]:.2f} on {of.replace('_', ' ')}, {relation} {rival} {best:.2f}")
    return Verdict(
        graded(not lost, any(won.values())),
        f"LA-SiLU is above all element-level functions in {won['LA-SiLU']} of {len(columns)} columns, LA-HardSiLU in "
        f"{won['LA-HardSiLU']}; not: {'; '.join(lost) or 'none'}. It is one seed, without an interval.",
    )


def imagenet() -> Verdict:
    """Section 4.2.3: both LayerAct functions are best on all ImageNet data sets (Table 4)."""
    return _imagenet(4)


def imagenet_second_seed() -> Verdict:
    """The same with the second seed (Table 12)."""
    return _imagenet(12)


def references() -> Verdict:
    """References to figures and tables, against the captions."""
    rows = book.published("layeract-references")
    wrong = [row for row in rows if float(row["printed"]) != float(row["captioned"])]
    text = "; ".join(
        f"{row['place']} sends the reader to {row['kind']} {row['printed']} for the {row['about']}, which is "
        f"{row['kind']} {row['captioned']}"
        for row in wrong
    )
    return Verdict(
        graded(not wrong, len(wrong) < len(rows)),
        f"{len(rows) - len(wrong)} of {len(rows)} references lead where they should{'; ' + text if wrong else ''}.",
    )


# --- Our experiments ----------------------------------------------------------------------------------------

_MNIST, _CIFAR = "layeract-mnist", "layeract-cifar10"
_NAMES = {
    "relu": "ReLU",
    "leaky_relu": "LReLU",
    "prelu": "PReLU",
    "mish": "Mish",
    "silu": "SiLU",
    "hardsilu": "HardSiLU",
    "la_silu": "LA-SiLU",
    "la_hardsilu": "LA-HardSiLU",
}


# What claims compare: with all activations one family of comparisons for each result.
_MEASURES = {
    _MNIST: (
        *(f"mean_activation_epoch_{epoch}" for epoch in (1, 40, 80)),
        *(f"{name}_{noise}" for name in ("fluctuation_mean", "fluctuation_std", "gain_mean") for noise in (1, 2)),
    ),
    _CIFAR: ("accuracy_clean", *(f"accuracy_{noise}" for noise in _NOISES)),
}


def _differences(rows: list[dict[str, Any]], experiment: str) -> list["Difference"]:
    from companion.layeract.experiments import comparisons

    return comparisons(rows, _MEASURES[experiment])


def _significant(found: Sequence["Difference"], sign: int) -> list["Difference"]:
    """Those that are significantly above (+1) or below (−1) zero."""
    return [each for each in found if each.p_holm < _SIGNIFICANT and sign * each.difference.mean > 0]


def _averages(rows: list[dict[str, Any]], measure: str) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(row["activation"], []).append(row[measure])
    return {_NAMES[name]: math.fsum(each) / len(each) for name, each in values.items()}


def _shown(numbers: Mapping[str, float], digits: str = ".3g") -> str:
    return enumerated([f"{name} {value:{digits}}" for name, value in numbers.items()])


def _lower(measures: Sequence[str], what: str) -> Verdict:
    """Whether both LayerAct functions are lower than all six others, in each measure."""
    run = run_of(_MNIST)
    if run is None:
        return no_result(_MNIST)
    found = [each for each in _differences(run.rows, _MNIST) if each.measure in measures]
    lower, higher = _significant(found, -1), _significant(found, +1)
    texts = "; ".join(f"{measure}: {_shown(_averages(run.rows, measure))}" for measure in measures)
    return run.judge(
        f"MNIST, one layer of 512 units, {found[0].difference.n} seeds, means of {what}: {texts.replace('_', ' ')}. "
        f"A LayerAct function is lower on average in {sum(each.difference.mean < 0 for each in found)} of {len(found)} "
        f"comparisons, significantly in {len(lower)}, and significantly higher in {len(higher)} (Holm over all "
        f"{len(_MEASURES[_MNIST]) * 12} comparisons).",
        shown=len(lower),
        against=len(higher),
        of=len(found),
    )


def zero_like_mean() -> Verdict:
    """Section 4.1.1, Fig. 2: after training the units' mean activations are nearer to zero."""
    return _lower(("mean_activation_epoch_40",), "|mean output| over the units")


def zero_like_always() -> Verdict:
    """Fig. 2: the LayerAct functions keep that for all epochs."""
    return _lower(tuple(f"mean_activation_epoch_{epoch}" for epoch in (1, 40, 80)), "|mean output| over the units")


def fluctuation_mean() -> Verdict:
    """Section 4.1.2, Fig. 3: the mean fluctuation of the outputs is lower, with both noises."""
    return _lower(("fluctuation_mean_1", "fluctuation_mean_2"), "the fluctuation over the samples")


def fluctuation_variance() -> Verdict:
    """Section 4.1.2, Fig. 3: so is its variance."""
    return _lower(("fluctuation_std_1", "fluctuation_std_2"), "the deviation of the fluctuation over the samples")


def inherent_mechanism() -> Verdict:
    """Appendix G: the fluctuation is lower because of the mechanism; then also per unit of the input's fluctuation."""
    return _lower(("gain_mean_1", "gain_mean_2"), "output over input fluctuation")


def fluctuation_of_silu() -> Verdict:
    """Section 4.1.2: with the noise that has a mean, SiLU and HardSiLU fluctuate more than ReLU and LReLU."""
    from companion.analysis import holm, paired

    run = run_of(_MNIST)
    if run is None:
        return no_result(_MNIST)
    series: dict[str, dict[int, float]] = {}
    for row in run.rows:
        series.setdefault(row["activation"], {})[row["seed"]] = row["fluctuation_mean_2"]
    seeds = sorted(series["silu"])
    pairs = [(one, other) for one in ("silu", "hardsilu") for other in ("relu", "leaky_relu")]
    values = {name: [of_seed[seed] for seed in seeds] for name, of_seed in series.items()}
    found = [paired(values[one], values[other]) for one, other in pairs]
    corrected = holm([p for _, p in found])
    clear = [d.mean for (d, _), p in zip(found, corrected, strict=True) if p < _SIGNIFICANT]
    more = sum(mean > 0 for mean in clear)
    return run.judge(
        f"MNIST, noise 2, {len(seeds)} seeds: {_shown(_averages(run.rows, 'fluctuation_mean_2'))}; significantly more "
        f"in {more} of {len(pairs)} comparisons (Holm).",
        shown=more,
        against=len(clear) - more,
        of=len(pairs),
    )


def input_fluctuation() -> Verdict:
    """Fig. 8: the fluctuation of the inputs is similar for all functions. Similar: within 10 % of their mean."""
    run = run_of(_MNIST)
    if run is None:
        return no_result(_MNIST)
    averages = {number: _averages(run.rows, f"input_fluctuation_mean_{number}") for number in (1, 2)}
    spread = {
        number: (max(each.values()) - min(each.values())) / (math.fsum(each.values()) / len(each))
        for number, each in averages.items()
    }
    similar = sum(value <= 0.1 for value in spread.values())
    text = "; ".join(
        f"noise {number}: {_shown(each)}, a range of {spread[number]:.0%}" for number, each in averages.items()
    )
    return run.judge(
        f"MNIST, means over seeds and samples, {text} of the mean.", shown=similar, against=2 - similar, of=2
    )


def _setting(run: Run) -> str:
    return "CIFAR-10" + (", a small network and not the paper's" if run.scale == "smaller" else "")


def _robust(name: str) -> Verdict:
    run = run_of(_CIFAR)
    if run is None:
        return no_result(_CIFAR)
    found = [
        each for each in _differences(run.rows, _CIFAR) if each.layer_level == name and each.measure != "accuracy_clean"
    ]
    better, worse = _significant(found, +1), _significant(found, -1)
    ahead = sum(each.difference.mean > 0 for each in found)
    return run.judge(
        f"{_setting(run)}, {found[0].difference.n} seeds, six noises and six rivals: {_NAMES[name]} is ahead on "
        f"average in {ahead} of {len(found)} comparisons, significantly in {len(better)}, and significantly behind in "
        f"{len(worse)} (Holm over all {_all_comparisons(run)} comparisons).",
        shown=len(better),
        against=len(worse),
        of=len(found),
    )


def _all_comparisons(run: Run) -> int:
    return len(_differences(run.rows, _CIFAR))


def robust_la_silu() -> Verdict:
    """Section 4.2.2: LA-SiLU is better on noisy CIFAR-10."""
    return _robust("la_silu")


def robust_la_hardsilu() -> Verdict:
    """Section 4.2.2: LA-HardSiLU is better on noisy CIFAR-10."""
    return _robust("la_hardsilu")


def clean_accuracy() -> Verdict:
    """Section 4.2.1: on clean CIFAR-10 LA-SiLU is similar or better."""
    run = run_of(_CIFAR)
    if run is None:
        return no_result(_CIFAR)
    found = [
        each
        for each in _differences(run.rows, _CIFAR)
        if each.layer_level == "la_silu" and each.measure == "accuracy_clean"
    ]
    better, clearly_worse = _significant(found, +1), _significant(found, -1)
    worse = [each for each in found if each in clearly_worse or each.difference.mean < -0.01]
    text = enumerated([f"{_NAMES[each.element_level]} {book.difference_of_points(each.difference)}" for each in found])
    return run.judge(
        f"{_setting(run)}, {found[0].difference.n} seeds, LA-SiLU minus the other in percentage points with 95 % "
        f"intervals: {text}; significantly better than {len(better)} of {len(found)}, and worse, significantly or by "
        f"more than a point, than {len(worse)} (Holm over all {_all_comparisons(run)} comparisons).",
        shown=len(found) - len(worse),
        against=len(clearly_worse),
        of=len(found),
    )
