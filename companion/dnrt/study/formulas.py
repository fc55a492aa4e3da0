"""The mathematics of RAA and ARR, registered formula by formula.

"The paper" is Qiu et al.: Dynamic Neural Response Tuning (2024). Formulas with its equation numbers stand in the paper.
The others are derived here. The tests check every one, the paper's included.

A vector has d elements x_1, …, x_d. The gate s is any function that has a derivative; the paper's is Φ. Names that
depend on the vector (the offset c, the output y_i) are symbols, so that a page shows them as names; `written_out`
replaces them by what they stand for.

ARR speaks of the samples of one class, in the order in which they come: x_{n,i} is element i of the n-th, and μ_{n,i}
the moving mean after it, with the momentum 0 < m ≤ 1. σ is the deviation within a class, Δ the distance of two classes.
"""

from typing import Any

import sympy
from sympy import Abs, Derivative, Eq, Integral, KroneckerDelta, Piecewise, Sum, erfc, exp, log, oo, pi, sign, sqrt

from companion.study.symbolic import AnyFunction, Expected, Partial, function, register
from companion.study.vocabulary import Vocabulary

__all__ = [
    "C",
    "H",
    "L",
    "Z",
    "age",
    "b",
    "beta",
    "c",
    "d",
    "deviation",
    "g",
    "h",
    "i",
    "j",
    "k",
    "m",
    "mean",
    "mean_deviation",
    "mean_place",
    "n",
    "q",
    "s",
    "slope",
    "w",
    "written_out",
    "x",
    "y",
    "z",
]

PAPER = "Qiu et al. 2024"


class Slope(AnyFunction):
    """The derivative s' of the gate."""

    printed = "s'"


class Gate(AnyFunction):
    """The gate s."""

    printed = "s"
    slope = Slope


s, slope = Gate, Slope
i, j, k = (sympy.Symbol(name, integer=True, positive=True) for name in "ijk")
d, C = (sympy.Symbol(name, integer=True, positive=True) for name in "dC")
n, q, age = (sympy.Symbol(name, integer=True, nonnegative=True) for name in "nqt")
m, deviation, scale = (sympy.Symbol(name, positive=True) for name in ("m", r"\sigma", r"\rho"))
x, w, y, g, h = (sympy.IndexedBase(name, real=True) for name in "xwygh")
b, c, H, z = (sympy.Symbol(name, real=True) for name in "bcHz")
L = sympy.Symbol(r"\mathcal{L}", real=True)
V, a, p, r = (sympy.IndexedBase(name, real=True) for name in "Vapr")
beta = sympy.IndexedBase(r"\beta", real=True)
b_tilde = sympy.Symbol(r"\tilde{b}", real=True)
mean, loss = (sympy.IndexedBase(name, real=True) for name in (r"\mu", r"\ell"))
Z = sympy.Symbol("Z", real=True)

normal = function("normal", z, printed=r"\Phi")
density = function("normal_density", z, printed=r"\phi")

#: What a name stands for.
words = Vocabulary()


def written_out(expression: Any, count: int, given: Any = None) -> Any:
    """Write an expression out for a vector of so many elements.

    Parameters
    ----------
    expression : sympy.Expr
        For example one side of a formula, with numbers for its free indices.
    count : int
        d, and as many inputs of the layer before.
    given : sympy.Eq, optional
        What a vector is, for example the condition of a formula.

    Returns
    -------
    sympy.Expr
        An expression in x_1, …, x_d, the weights and b; moving means in the samples and μ_0. The gate and the upstream
        gradient g stay as they are.

    Examples
    --------
    >>> written_out(y[1], 2)
    Gate(b + w[1]*x[1] + w[2]*x[2] + x[1])*x[1]
    """
    return words.written_out(expression, {d: count, C: count}, given)


# --- gates ----------------------------------------------------------------------------------------------------------

register("dnrt-normal", normal(z), erfc(-z / sqrt(2)) / 2, source=f"{PAPER}, after Eq. 1", definition=True)
register("dnrt-normal-density", density(z), exp(-(z**2) / 2) / sqrt(2 * pi), source="its derivative", definition=True)
gelu = function("gelu", z, printed=r"\operatorname{GELU}")
register("dnrt-gelu", gelu(z), z * normal(z), source=f"{PAPER}, Eq. 1", definition=True)
register("dnrt-gelu-pair", gelu(z) - gelu(-z), z, source="from the symmetry of Φ")
register(
    "dnrt-gelu-bend",
    Derivative(gelu(z), z, z),
    (2 - z**2) * density(z),
    source="from the definitions",
    note="For affine z that differ, up to the sign, these bends are linearly independent: Gaussians times polynomials.",
)

# --- RAA: an offset for the whole vector ----------------------------------------------------------------------------

words.define("dnrt-offset", c, Sum(w[k] * x[k], (k, 1, d)) + b, source=f"{PAPER}, Eq. 4")
words.define("dnrt-raa", y[i], x[i] * s(x[i] + c), source=f"{PAPER}, Eq. 4")
register("dnrt-neuron", y[i], x[i] * s(x[i] + Sum(w[k] * x[k], (k, 1, d)) + b), source=f"{PAPER}, Eq. 4")

# --- its gradients --------------------------------------------------------------------------------------------------

words.name(L, Sum(g[k] * y[k], (k, 1, d)))  # any loss with the upstream gradient g gives the same derivatives
register(
    "dnrt-jacobian",
    Partial(y[i], x[j]),
    KroneckerDelta(i, j) * (s(x[i] + c) + x[i] * slope(x[i] + c)) + w[j] * x[i] * slope(x[i] + c),
    tall=True,
    source=f"from {PAPER}, Eq. 4",
)
words.define("dnrt-slope-share", h[i], g[i] * x[i] * slope(x[i] + c), source="a name")
words.define("dnrt-slope-sum", H, Sum(h[k], (k, 1, d)), source="a name")
register(
    "dnrt-gradient",
    Partial(L, x[j]),
    g[j] * s(x[j] + c) + h[j] + w[j] * H,
    source=f"from {PAPER}, Eq. 4; chain rule",
)
register("dnrt-gradient-weight", Partial(L, w[j]), x[j] * H, source=f"from {PAPER}, Eq. 4; chain rule")
register("dnrt-gradient-bias", Partial(L, b), H, source=f"from {PAPER}, Eq. 4; chain rule")

# --- what the offset does -------------------------------------------------------------------------------------------

activation = function("dnrt_activation", z, printed="A")
register("dnrt-activation", activation(z), z * s(z), source=f"{PAPER}, Eq. 1, for any gate", definition=True)
register(
    "dnrt-split",
    y[i],
    activation(x[i] + c) - c * s(x[i] + c),
    source="from Eq. 4: x = (x + c) − c",
    note="The activation, shifted, less c times the gate: the second part is what no bias before it can make.",
)
register(
    "dnrt-offset-slope",
    Partial(y[i], c),
    x[i] * slope(x[i] + c),
    source=f"from {PAPER}, Eq. 4",
    note="For an increasing gate it has the sign of x_i: a larger offset moves every element away from zero.",
)
register(
    "dnrt-gate-growth",
    Derivative(log(normal(z)), z),
    density(z) / normal(z),
    source="from the definitions",
    note="It falls in z. So a larger offset multiplies the smaller of two gates by more.",
)

# --- behind a linear layer: x = Vp + a with C inputs p --------------------------------------------------------------

_linear = Eq(x[i], a[i] + Sum(V[i, k] * p[k], (k, 1, C)))
words.define("dnrt-glu-direction", r[k], Sum(w[j] * V[j, k], (j, 1, d)), source="a name")
words.define("dnrt-glu-bias", b_tilde, Sum(w[j] * a[j], (j, 1, d)) + b, source="a name")
register(
    "dnrt-glu",
    y[i],
    x[i] * s(a[i] + b_tilde + Sum((r[k] + V[i, k]) * p[k], (k, 1, C))),
    condition=_linear,
    tall=True,
    source="from Eq. 4",
    note="A gated linear unit whose gate has the value's matrix, the same vector r added to every row.",
)

_whole, _task = sympy.symbols(r"\mathcal{L}_{\mathrm{all}} \mathcal{L}_{\mathrm{task}}", real=True)
_held, _lam = sympy.symbols(r"\mathcal{L}_{\mathrm{ARR}} \lambda", real=True)

# --- ARR: the moving mean of a class --------------------------------------------------------------------------------

words.name(mean[n, i], Piecewise((mean[0, i], Eq(n, 0)), ((1 - m) * mean[n - 1, i] + m * x[n, i], True)))
register(
    "dnrt-arr-update",
    mean[n, i],
    (1 - m) * mean[n - 1, i] + m * x[n, i],
    source=f"{PAPER}, Eq. 5",
)
register(
    "dnrt-arr-mean",
    mean[n, i],
    (1 - m) ** n * mean[0, i] + Sum(m * (1 - m) ** (n - q) * x[q, i], (q, 1, n)),
    tall=True,
    source="from Eq. 5, by induction",
)
words.define(
    "dnrt-arr-loss",
    loss[n],
    Sum(Abs(x[n, j] - mean[n - 1, j]), (j, 1, d)) / d,
    source=f"{PAPER}, Eq. 6",
)
register(
    "dnrt-arr-after",
    Sum(Abs(x[n, j] - mean[n, j]), (j, 1, d)) / d,
    (1 - m) * loss[n],
    source="from Eq. 5; the published code reads the mean after its update",
)
words.define("dnrt-objective", _whole, _task + _lam * _held, source=f"{PAPER}, Eq. 7; the mean over layers")
register(
    "dnrt-arr-gradient",
    Partial(loss[n], x[n, i]),
    sign(x[n, i] - mean[n - 1, i]) / d,
    source=f"from {PAPER}, Eq. 6; the mean is a constant",
    note="The same force at every distance; for m < 1 also where the mean is read after its update.",
)
register(
    "dnrt-arr-scale",
    Sum(Abs(scale * x[n, j] - scale * mean[n - 1, j]), (j, 1, d)) / d,
    scale * loss[n],
    source="from Eq. 6",
    note="Smaller responses have a smaller loss, whatever they tell of the classes. Steps shrink them where a class is "
    "as often above its mean as below: the mean is a constant.",
)

# --- ARR where the responses of a class are normal, or drift, or are skewed -----------------------------------------

_mean, _x = sympy.Symbol(r"\mu", real=True), sympy.Symbol("x", real=True)
_drift = sympy.Symbol(r"\delta", real=True)
#: Of a moving mean: its deviation, and where it is among responses that are positive.
mean_deviation, mean_place = (sympy.Symbol(name, positive=True) for name in (r"\sigma_{\mu}", r"\mu"))
_per_deviation = sqrt(2 / pi)
register(
    "dnrt-arr-spread",
    Expected(Abs(_x - _mean)),
    deviation * _per_deviation,
    condition=Eq(_x, _mean + deviation * Z),
    tall=True,
    source="the mean of |Z| for a standard normal Z",
    note="With an exact mean and normal responses the loss is the mean deviation of the channels, times 0.798.",
)
register(
    "dnrt-arr-variance",
    mean_deviation**2,
    m * deviation**2 / (2 - m),
    steps=(Sum(m**2 * (1 - m) ** (2 * age) * deviation**2, (age, 0, oo)),),
    source="from the closed form of the mean; independent samples, many of them",
    note="The variance of the moving mean.",
)
register(
    "dnrt-arr-distance",
    Expected(Abs(_x - _mean)),
    2 * deviation / sqrt(pi * (2 - m)),
    steps=(sqrt(deviation**2 + mean_deviation**2) * _per_deviation,),
    condition=Eq(mean_deviation**2, m * deviation**2 / (2 - m)),
    tall=True,
    source="x − μ has the variance σ² + σ_μ² where the mean is read before its update",
)
register(
    "dnrt-arr-lag",
    Sum(m * (1 - m) ** age * (1 + age) * _drift, (age, 0, oo)),
    _drift / m,
    source="from the closed form; every sample of the class is δ further than the one before",
    note="How far the mean that is read before its update is behind.",
)
_density = exp(-_x)
register(
    "dnrt-arr-skewed",
    Integral(Abs(_x - mean_place) * _density, (_x, 0, oo)),
    mean_place - 1 + 2 * exp(-mean_place),
    source="integration; responses with the exponential law, whose mean is 1",
)
register(
    "dnrt-arr-skewed-slope",
    Derivative(mean_place - 1 + 2 * exp(-mean_place), mean_place),
    1 - 2 * exp(-mean_place),
    source="differentiation",
    note="Zero at the median, ln 2. At the mean it is 1 − 2/e = 0.264, and pushes the responses up.",
)

# --- two classes at ±Δ/2 --------------------------------------------------------------------------------------------

_distance = sympy.Symbol(r"\Delta", positive=True)
_distances, _deviations = sympy.IndexedBase(r"\Delta", real=True), sympy.IndexedBase(r"\sigma", positive=True)
error = function("dnrt_error", _distance, deviation, printed=r"\operatorname{error}")
register(
    "dnrt-arr-error",
    error(_distance, deviation),
    normal(-_distance / (2 * deviation)),
    source="the normal law beyond the middle; both classes equally frequent",
    definition=True,
)
register(
    "dnrt-arr-fisher",
    Sum(beta[j] ** 2 * _deviations[j] ** 2, (j, 1, d)),
    Sum(beta[j] * _distances[j], (j, 1, d)) ** 2 / Sum(_distances[j] ** 2 / _deviations[j] ** 2, (j, 1, d)),
    relation="≥",
    source="Cauchy's inequality; equal where β_j is proportional to Δ_j/σ_j²",
    note="Not all Δ_j are 0. Of all sums that hold the classes as far apart, Fisher's has the smallest deviation.",
)
