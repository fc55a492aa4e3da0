"""The mathematics of LayerAct, registered formula by formula.

"The paper" is K. Yoon, C. Lim: Layer-level activation mechanism (2023). Formulas with its equation numbers stand
in the paper. The others are derived here. The tests check every one, the paper's included.

A row has d elements y_1, …, y_d. The names of its statistics (μ, v, r, n_i, …) are symbols, so that a page shows
them as names; `written_out` replaces them by what they stand for, for a given d.
"""

from typing import Any

import sympy
from sympy import Abs, Eq, Integral, KroneckerDelta, Le, Max, Min, Rational, Sum, exp, oo, pi, sqrt

from companion.study.symbolic import AnyFunction, Formula, Holds, Partial, function, register, sigma
from companion.study.vocabulary import Vocabulary

__all__ = [
    "D",
    "Holds",
    "K",
    "L",
    "Partial",
    "Scale",
    "Slope",
    "a",
    "alpha",
    "d",
    "epsilon",
    "g",
    "h",
    "hardsigmoid",
    "i",
    "j",
    "mu",
    "n",
    "r",
    "s",
    "slope",
    "v",
    "written_out",
    "y",
    "y_hat",
]

PAPER = "Yoon and Lim 2023"


class Slope(AnyFunction):
    """The derivative s' of the activation scale."""

    printed = "s'"


class Scale(AnyFunction):
    """The activation scale s."""

    printed = "s"
    slope = Slope


s, slope = Scale, Slope
i, j = (sympy.Symbol(name, integer=True, positive=True) for name in "ij")
d = sympy.Symbol("d", integer=True, positive=True)
D = sympy.Symbol("D", integer=True, positive=True)
alpha = sympy.Symbol("alpha", positive=True)
y, g, n, a, h, f = (sympy.IndexedBase(name, real=True) for name in "ygnahf")
epsilon = sympy.IndexedBase(r"\varepsilon", real=True)
y_hat, n_hat, a_hat, f_hat = (sympy.IndexedBase(rf"\hat{{{name}}}", real=True) for name in "ynaf")
mu, mu_hat, mu_epsilon = (sympy.Symbol(name, real=True) for name in ("mu", r"\hat{\mu}", r"\mu_{\varepsilon}"))
v, v_hat, v_epsilon = (sympy.Symbol(name, nonnegative=True) for name in ("v", r"\hat{v}", r"v_{\varepsilon}"))
r, r_hat = (sympy.Symbol(name, positive=True) for name in ("r", r"\hat{r}"))
L = sympy.Symbol(r"\mathcal{L}", real=True)
K = sympy.Symbol("K", positive=True)
c, m, x, u = (sympy.Symbol(name, real=True) for name in "cmxu")
q, t, tau = (sympy.Symbol(name, positive=True) for name in ("q", "t", "tau"))

hardsigmoid = function("hardsigmoid", x, printed=r"\operatorname{hardsigmoid}")
density = function("density", u, printed=r"\varphi")

#: What a name stands for.
words = Vocabulary()
_HATS = {mu: mu_hat, v: v_hat, r: r_hat, y: y_hat, n: n_hat, a: a_hat, f: f_hat}


def _sum(summand: Any) -> Any:
    return Sum(summand, (j, 1, d))


def _define(name: str, lhs: Any, rhs: Any, **more: Any) -> Formula:
    """Register what a name stands for; the same name with a hat belongs to another row ŷ."""
    words.name(lhs, rhs)
    head = lhs.base if isinstance(lhs, sympy.Indexed) else lhs
    if head in _HATS:
        words.name(_hatted(lhs), _hatted(rhs))
    return register(name, lhs, rhs, **more)


def _hatted(expression: Any) -> Any:
    elements = {
        element: _HATS[element.base][element.indices]
        for element in expression.atoms(sympy.Indexed)
        if element.base in _HATS
    }
    return expression.xreplace(elements | {name: _HATS[name] for name in (mu, v, r)})


def written_out(expression: Any, count: int, *, unbiased: bool = False, given: Any = None) -> Any:
    """Write an expression out for a row of so many elements.

    Sums become terms, statistics become functions of y_1, …, y_d and α, and derivatives are taken. The scale s
    stays a name; the upstream gradient g_i and the noise ε_i stay as they are.

    Parameters
    ----------
    expression : sympy.Expr
        For example one side of a formula, with numbers for its free indices.
    count : int
        The number d of elements.
    unbiased : bool
        Whether the variance divides by d − 1 instead of d.
    given : sympy.Eq, optional
        What a row is, for example the condition of a formula: ŷ_i = c y_i. By default, ŷ_i = y_i + ε_i.

    Returns
    -------
    sympy.Expr
        An expression in the elements of the row.

    Examples
    --------
    >>> written_out(mu, 2)
    y[1]/2 + y[2]/2
    >>> written_out(Partial(mu, y[1]), 2)
    1/2
    """
    return words.written_out(expression, {d: count, D: count - unbiased}, given)


# --- The function -------------------------------------------------------------------------------------------

_define("layeract-mean", mu, _sum(y[j]) / d, source=f"{PAPER}, Eq. 5")
_define(
    "layeract-variance",
    v,
    _sum((y[j] - mu) ** 2) / D,
    source=f"{PAPER}, Eq. 5",
    note="D = d in the paper (biased); D = d − 1 in the published code (unbiased).",
)
_define("layeract-rstd", r, 1 / sqrt(v + alpha), source=f"from {PAPER}, Eq. 6")
_define("layeract-normalised", n[i], r * (y[i] - mu), source=f"{PAPER}, Eq. 6")
_define("layeract-output", a[i], y[i] * s(n[i]), source=f"{PAPER}, Eq. 6")
register(
    "layeract-neuron",
    a[i],
    y[i] * s((y[i] - mu) / sqrt(v + alpha)),
    source=f"{PAPER}, Eq. 6",
    note="Both halves of Eq. 6 in one.",
)
register("layeract-sigmoid", sigma(x), 1 / (1 + exp(-x)), source=f"{PAPER}, Eq. 3 and Section 3.1")
register(
    "layeract-hardsigmoid",
    hardsigmoid(x),
    Max(0, Min(1, Rational(1, 2) + x / 6)),
    source=f"{PAPER}, Section 3.1",
    definition=True,
)
_define("layeract-element-output", f[i], y[i] * s(y[i]), source=f"{PAPER}, Eq. 2")

# --- The two scales -----------------------------------------------------------------------------------------

register(
    "layeract-sigmoid-lipschitz",
    Abs(sigma(x) - sigma(u)),
    Abs(x - u) / 4,
    relation="≤",
    source=f"{PAPER}, Definition 3.1, with K = 1/4",
)
register(
    "layeract-hardsigmoid-lipschitz",
    Abs(hardsigmoid(x) - hardsigmoid(u)),
    Abs(x - u) / 6,
    relation="≤",
    source=f"{PAPER}, Definition 3.1, with K = 1/6",
)

# --- What normalising does to a row -------------------------------------------------------------------------

register("layeract-sum-normalised", _sum(n[j]), 0, source="from the definitions")
register(
    "layeract-sum-squares",
    _sum(n[j] ** 2),
    D * v / (v + alpha),
    steps=(D * (1 - alpha * r**2),),
    source="from the definitions",
)
register(
    "layeract-largest",
    Abs(n[i]),
    sqrt(D * (d - 1) / d),
    relation="≤",
    source="Samuelson's inequality",
    note="No element is further from the mean, whatever the row.",
)
register(
    "layeract-largest-biased",
    Abs(n[i]),
    sqrt(d - 1),
    relation="≤",
    condition=Eq(D, d),
    source="Samuelson's inequality",
)
register(
    "layeract-few-never-saturate",
    Abs(n[i]),
    3,
    relation="<",
    condition=Le(d, 10),
    source="from Samuelson's inequality and α > 0",
    note="So with at most ten elements LA-HardSiLU has no saturated element.",
)
register(
    "layeract-low-share",
    _sum(Holds(Le(n[j], -t))) / d,
    1 / (1 + t**2),
    relation="≤",
    source="Cantelli's inequality",
)
register(
    "layeract-saturated-share",
    _sum(Holds(Le(n[j], -3))) / d,
    Rational(1, 10),
    relation="≤",
    source="Cantelli's inequality at t = 3",
    note="In no row does LA-HardSiLU switch off more than one element in ten.",
)
_shifted, _scaled = Eq(y_hat[i], c + y[i]), Eq(y_hat[i], q * y[i])
register("layeract-shift-normalised", n_hat[i], n[i], condition=_shifted, source="from the definitions")
register(
    "layeract-scale-normalised",
    n_hat[i],
    (y[i] - mu) / sqrt(v + alpha / q**2),
    condition=_scaled,
    source="from the definitions",
    note="Up to α, scaling a row leaves its scales alone, and so scales its outputs.",
)
register(
    "layeract-scale-sum",
    _sum(s(n[j])),
    d / 2 + _sum(s(n[j]) - Rational(1, 2) - n[j] * slope(0)),
    published=d / 2,
    source=f"{PAPER}, Eq. 9",
    note="The sum of the scales is d/2 where the scale is linear on the row, or the row symmetric; else near it.",
)

# --- Special rows -------------------------------------------------------------------------------------------

_constant = Eq(y[i], c)
register("layeract-constant-output", a[i], c * s(0), condition=_constant, source="from the definitions, n_i = 0")
register(
    "layeract-constant-gradient",
    Partial(L, y[i]),
    g[i] * s(0) + c * slope(0) / sqrt(alpha) * (g[i] - _sum(g[j]) / d),
    condition=_constant,
    source="from the gradient",
    note="s(0) is 1/2, and s'(0) is 1/4 or 1/6. With α = 1e-5 the second factor is 316 s'(0) c.",
)
register("layeract-one-output", a[1], y[1] * s(0), condition=Eq(d, 1), source="from the definitions, n_1 = 0")
register(
    "layeract-two-normalised",
    n[1],
    (y[1] - y[2]) / sqrt(2 * (y[1] - y[2]) ** 2 / D + 4 * alpha),
    condition=Eq(d, 2),
    source="from the definitions",
    note="Without α, and biased, it is 1 or −1: the larger element gets the scale s(1), the smaller s(−1).",
)
register("layeract-two-other", n[2], -n[1], condition=Eq(d, 2), source="from the definitions")

# --- The backward pass, step by step ------------------------------------------------------------------------

_source = "from the definitions"
register("layeract-mean-d-y", Partial(mu, y[j]), 1 / d, source=_source)
register("layeract-variance-d-mean", Partial(v, mu), 0, steps=(-2 * _sum(y[j] - mu) / D,), source=_source)
register(
    "layeract-variance-d-y",
    Partial(v, y[i]),
    sympy.Mul(2 / D, y[i] - mu, evaluate=False),
    steps=(2 * _sum((y[j] - mu) * (KroneckerDelta(i, j) - 1 / d)) / D,),
    source=_source,
)
register(
    "layeract-rstd-d-variance",
    Partial(r, v),
    -(r**3) / 2,
    steps=(-1 / (2 * (v + alpha) ** Rational(3, 2)),),
    source=_source,
)
_centred_delta = KroneckerDelta(i, j) - 1 / d - n[i] * n[j] / D
register(
    "layeract-normalised-d-y",
    Partial(n[i], y[j]),
    r * _centred_delta,
    steps=(r * (KroneckerDelta(i, j) - 1 / d) + (y[i] - mu) * Partial(r, v) * Partial(v, y[j]),),
    source="product rule",
)
register(
    "layeract-output-d-y",
    Partial(a[i], y[j]),
    KroneckerDelta(i, j) * s(n[i]) + r * y[i] * slope(n[i]) * _centred_delta,
    steps=(KroneckerDelta(i, j) * s(n[i]) + y[i] * slope(n[i]) * Partial(n[i], y[j]),),
    source="product and chain rule",
)
words.name(L, _sum(g[j] * a[j]))  # any loss with the upstream gradient g gives the same derivatives
_define("layeract-h", h[i], g[i] * y[i] * slope(n[i]), source="abbreviation")
_gradient = g[i] * s(n[i]) + r * (h[i] - _sum(h[j]) / d - n[i] * _sum(h[j] * n[j]) / D)
register(
    "layeract-gradient",
    Partial(L, y[i]),
    _gradient,
    steps=(_sum(g[j] * Partial(a[j], y[i])),),
    source="from ∂a/∂y",
    note="g is the upstream gradient ∂L/∂a.",
)
register(
    "layeract-mean-gradient",
    Partial(L, mu),
    -_sum(g[j] * y[j] * slope(n[j])) / sqrt(v + alpha),
    source=f"{PAPER}, Section 3.1, backward pass",
)
register(
    "layeract-variance-gradient",
    Partial(L, v),
    -_sum(g[j] * y[j] * n[j] * slope(n[j])) / sympy.Mul(2, v + alpha, evaluate=False),
    source=f"{PAPER}, Section 3.1, backward pass",
)
register(
    "layeract-gradient-assembled",
    Partial(L, y[i]),
    g[i] * s(n[i])
    + g[i] * slope(n[i]) * y[i] / sqrt(v + alpha)
    + Partial(L, mu) / d
    + sympy.Mul(2 / d, y[i] - mu, Partial(L, v), evaluate=False),
    condition=Eq(D, d),
    source=f"{PAPER}, Section 3.1, backward pass",
    note="With the variance of the paper, which divides by d.",
)
register(
    "layeract-gradient-code",
    Partial(L, y[i]),
    g[i] * s(n[i]) + r * (h[i] - _sum(h[j]) / d - n[i] * _sum(h[j] * n[j]) / d),
    relation="?",
    condition=Eq(D, d - 1),
    source="the published code: the variance divides by d − 1, the backward pass by d",
    note="False; see eq-layeract-code-error for the difference.",
)
_error = sympy.Symbol("e_{i}", real=True)
register(
    "layeract-code-error",
    _error,
    r * n[i] * _sum(h[j] * n[j]) / (d * (d - 1)),
    condition=Eq(D, d - 1),
    source="the published code's ∂L/∂y_i minus the true one",
    note="In the published code the last term is 1/d of itself too small.",
)

# --- The mean of the output ---------------------------------------------------------------------------------

register(
    "layeract-density",
    density(u),
    exp(-(u**2) / 2) / sqrt(2 * pi),
    source="the density of the standard normal law",
    definition=True,
)
_ratio = tau / sqrt(tau**2 + alpha)
_mean_output = sympy.Symbol(r"\operatorname{E} a", real=True)
register(
    "layeract-gaussian-mean",
    _mean_output,
    m / 2 + tau**2 / sqrt(tau**2 + alpha) * Integral(slope(_ratio * u) * density(u), (u, -oo, oo)),
    steps=(
        Integral((m + tau * u) * s(_ratio * u) * density(u), (u, -oo, oo)),
        m / 2 + tau * Integral(u * s(_ratio * u) * density(u), (u, -oo, oo)),
    ),
    source="a long row of normal elements with mean m and deviation τ; the last step is partial integration",
    note="For a scale with s(−x) = 1 − s(x).",
)

# --- Noise: ŷ = y + ε, and hats on everything of ŷ ----------------------------------------------------------

_define("layeract-noisy-row", y_hat[i], y[i] + epsilon[i], source=f"{PAPER}, Definition 2.3")
_define("layeract-noise-mean", mu_epsilon, _sum(epsilon[j]) / d, source=f"{PAPER}, Eq. 9")
_define("layeract-noise-variance", v_epsilon, _sum((epsilon[j] - mu_epsilon) ** 2) / D, source=f"{PAPER}, Eq. 9")
_noise = epsilon[j] - mu_epsilon
register(
    "layeract-fluctuation",
    _sum(Abs(a_hat[j] - a[j])),
    _sum(Abs(y[j] * (s(n_hat[j]) - s(n[j])) + epsilon[j] * s(n_hat[j]))),
    steps=(_sum(Abs(y_hat[j] * s(n_hat[j]) - y[j] * s(n[j]))),),
    source=f"{PAPER}, Definition 3.2",
)
register(
    "layeract-element-bound",
    _sum(Abs(f_hat[j] - f[j])),
    _sum(Abs(y[j]) * Abs(s(y_hat[j]) - s(y[j])) + Abs(epsilon[j]) * s(y_hat[j])),
    relation="≤",
    source=f"{PAPER}, Eq. 4",
    note="The paper has y_i for |y_i|, and assumes that all elements are positive.",
)
register(
    "layeract-bound",
    _sum(Abs(a_hat[j] - a[j])),
    _sum(Abs(y[j]) * Abs(s(n_hat[j]) - s(n[j])) + Abs(epsilon[j]) * s(n_hat[j])),
    relation="≤",
    source=f"{PAPER}, Eq. 7",
)
register(
    "layeract-element-scales",
    _sum(Abs(s(y_hat[j]) - s(y[j]))),
    K * _sum(Abs(epsilon[j])),
    relation="≤",
    source=f"{PAPER}, Eq. 8",
    note="For a scale with the Lipschitz constant K. The ReLU's has none.",
)
register("layeract-element-scale-sum", _sum(s(y_hat[j])), d, relation="≤", source=f"{PAPER}, Eq. 8")
register(
    "layeract-noisy-variance",
    v_hat,
    v + v_epsilon + 2 * _sum((y[j] - mu) * _noise) / D,
    published=v + v_epsilon,
    source=f"{PAPER}, Eq. 9",
    note="The published form leaves out the covariance of row and noise.",
)
register(
    "layeract-noisy-normalised",
    n_hat[i] - n[i],
    r_hat * (epsilon[i] - mu_epsilon) + (r_hat - r) * (y[i] - mu),
    source="from the definitions",
)
register(
    "layeract-noisy-scales",
    _sum(Abs(s(n_hat[j]) - s(n[j]))),
    K * _sum(Abs(n_hat[j] - n[j])),
    relation="≤",
    source=f"from {PAPER}, Definition 3.1",
)
_without_covariance = _sum(
    Abs((y[j] + epsilon[j] - mu - mu_epsilon) / sqrt(v + alpha + v_epsilon) - (y[j] - mu) / sqrt(v + alpha))
)
register(
    "layeract-noisy-sum",
    _sum(Abs(n_hat[j] - n[j])),
    _sum(Abs(r_hat * _noise + (r_hat - r) * (y[j] - mu))),
    published=_without_covariance,
    source=f"{PAPER}, Eq. 9",
    note="The paper has the published form as a bound; it is neither equal nor larger.",
)
register(
    "layeract-noisy-sum-simplified",
    _without_covariance,
    _sum(Abs(_noise)) / sqrt(v + alpha),
    relation="?",
    source=f"{PAPER}, Eq. 9",
    note="False as an equality, and near where the variance of the noise is small against that of the row.",
)
register(
    "layeract-noise-bound",
    sqrt(_sum((n_hat[j] - n[j]) ** 2)),
    2 / (1 / r + 1 / r_hat) * sqrt(_sum(_noise**2)),
    relation="≤",
    source="the inequality of Dunkl and Williams for the vectors (y − μ, √(Dα)) and (ŷ − μ̂, √(Dα))",
    note="What Eq. 9 should say: in the Euclidean norm, with the harmonic mean of both 1/√(v + α).",
)
register(
    "layeract-fluctuation-bound",
    _sum(Abs(a_hat[j] - a[j])),
    2 * K / (1 / r + 1 / r_hat) * sqrt(_sum(y[j] ** 2)) * sqrt(_sum(_noise**2)) + _sum(Abs(epsilon[j]) * s(n_hat[j])),
    relation="≤",
    source="from Eq. 7, Cauchy's inequality and eq-layeract-noise-bound",
    note="The first term grows with |μ|/√v: a row far from zero fluctuates more.",
)

# --- After layer normalisation ------------------------------------------------------------------------------

register(
    "layeract-after-layernorm",
    n_hat[i],
    n[i] / sqrt(1 + alpha * (1 - r**2)),
    condition=Eq(y_hat[i], n[i]),
    source="from the definitions",
    note="LayerAct after LayerNorm with gain 1 and bias 0 is the element-level function up to α, where v is not as "
    "small as α.",
)
