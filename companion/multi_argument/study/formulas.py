"""The mathematics of multi-argument neurons, registered formula by formula.

"The paper" is Kim et al.: Two-argument activation functions learn soft XOR operations like cortical neurons (2022). It
numbers no equations, so sources name its sections. Whatever has another source is derived here. The tests check every
formula, the paper's included.

The inner network has n arguments x_1, …, x_n and H units in each of its two hidden layers; its output is y. Names that
stand for sums (u_j, v_k, y) are symbols, so that a page shows them as names; `written_out` replaces them by what they
stand for. A surface is what an inner network of two arguments computes; q is a quadratic one with the paper's
coefficients c_1, …, c_6, and K the paper's curvature.
"""

from typing import Any

import sympy
from sympy import Eq, Integral, Sum, acos, cos, exp, oo, pi, sin, sqrt

from companion.study.symbolic import AnyFunction, Expected, Holds, Partial, function, register
from companion.study.vocabulary import Vocabulary

__all__ = [
    "H",
    "L",
    "U",
    "V",
    "Z",
    "a",
    "b",
    "c",
    "curvature",
    "eigenvalues",
    "h",
    "i",
    "j",
    "k",
    "kappa",
    "kernel",
    "layer",
    "n",
    "o",
    "phi",
    "psi",
    "q",
    "r",
    "s",
    "shape",
    "slope",
    "tau",
    "theta",
    "u",
    "v",
    "w",
    "written_out",
    "x",
    "y",
]

PAPER = "Kim et al. 2022"


class InnerSlope(AnyFunction):
    """The derivative φ' of the inner network's activation."""

    printed = r"\varphi'"


class InnerActivation(AnyFunction):
    """The inner network's activation φ; the paper's is ReLU."""

    printed = r"\varphi"
    slope = InnerSlope


phi, slope = InnerActivation, InnerSlope
i, j, k, layer = (sympy.Symbol(name, integer=True, positive=True) for name in "ijkl")
n, H, L = (sympy.Symbol(name, integer=True, positive=True) for name in "nHL")
x, u, v, a, b, U, V, w, r, s = (sympy.IndexedBase(name, real=True) for name in "xuvabUVwrs")
o, y, z = (sympy.Symbol(name, real=True) for name in "oyz")

#: What a name stands for.
words = Vocabulary()


def written_out(expression: Any, arity: int, hidden: int, given: Any = None) -> Any:
    """Write an expression out for an inner network of a given size.

    Parameters
    ----------
    expression : sympy.Expr
        For example one side of a formula, with numbers for its free indices.
    arity, hidden : int
        n and H.
    given : sympy.Eq, optional
        What a vector is.

    Returns
    -------
    sympy.Expr
        An expression in arguments, weights and biases, in which the activation stays as it is.

    Examples
    --------
    >>> written_out(u[1], 2, 1)
    U[1, 1]*x[1] + U[1, 2]*x[2] + a[1]
    """
    return words.written_out(expression, {n: arity, H: hidden}, given)


# --- the inner network and its gradients ----------------------------------------------------------------------------

_NETWORK = f"{PAPER}, section III"
_CHAIN = f"from {PAPER}, section III; chain rule"
words.define("multi_argument-first", u[j], a[j] + Sum(U[j, i] * x[i], (i, 1, n)), source=_NETWORK)
words.define("multi_argument-second", v[k], b[k] + Sum(V[k, j] * phi(u[j]), (j, 1, H)), source=_NETWORK)
words.define("multi_argument-output", y, o + Sum(w[k] * phi(v[k]), (k, 1, H)), source=_NETWORK)
words.define("multi_argument-back-second", s[k], w[k] * slope(v[k]), source="a name")
words.define("multi_argument-back-first", r[j], slope(u[j]) * Sum(V[k, j] * s[k], (k, 1, H)), source="a name")
register("multi_argument-gradient", Partial(y, x[i]), Sum(U[j, i] * r[j], (j, 1, H)), source=_CHAIN)
register("multi_argument-gradient-first", Partial(y, U[j, i]), r[j] * x[i], source=_CHAIN)
register("multi_argument-gradient-first-bias", Partial(y, a[j]), r[j], source=_CHAIN)
register("multi_argument-gradient-second", Partial(y, V[k, j]), s[k] * phi(u[j]), source=_CHAIN)
register("multi_argument-gradient-second-bias", Partial(y, b[k]), s[k], source=_CHAIN)
register("multi_argument-gradient-third", Partial(y, w[k]), phi(v[k]), source=_CHAIN)


# --- what it costs --------------------------------------------------------------------------------------------------

_x, _y = sympy.symbols("x y", positive=True, integer=True)
h = sympy.IndexedBase("h", positive=True, integer=True)
_inner = function("inner_parameters", n, H, printed=r"P_{\mathrm{inner}}")
_outer, _all = sympy.symbols(r"P_{\mathrm{outer}} P", real=True)
_COUNTED = "every weight and every bias, layer by layer"
register(
    "multi_argument-count-inner",
    _inner(n, H),
    H * (n + 1) + H * (H + 1) + (H + 1),
    source=_COUNTED,
    definition=True,
)
register("multi_argument-count-inner-sum", _inner(n, H), H**2 + (n + 3) * H + 1, source="from the definition")
register(
    "multi_argument-count-inner-64",
    _inner(n, 64),
    64 * n + 4289,
    published=65 * n + 4288,
    source=f"{PAPER}, section IV-B",
    note="Equal for n = 1 only.",
)
_exact = n * h[1] * (_x + 1) + Sum(n * h[layer + 1] * (h[layer] + 1), (layer, 1, L - 1)) + _y * (h[L] + 1)
words.define("multi_argument-count-outer", _outer, _exact, source=_COUNTED)
_printed = _x * (n * h[1] + 1) + Sum(n * h[layer] * h[layer + 1], (layer, 1, L - 1)) + h[L] * _y + 65 * n + 4288
register(
    "multi_argument-count",
    _all,
    _outer + 64 * n + 4289,
    published=_printed,
    source=f"{PAPER}, section IV-B",
    note="For MNIST and 64-64-64 the paper's formula gives 122,578 and there are 122,187.",
)
words.name(_all, _outer + 64 * n + 4289)

# --- the quadratic surface ------------------------------------------------------------------------------------------

x1, x2 = sympy.symbols("x_1 x_2", real=True)
c = sympy.symbols("c_1:7", real=True)
_c1, _c2, _c3, _c4, _c5, _c6 = c
_bent = c[:3]
theta, tau = sympy.Symbol(r"\theta", real=True), sympy.Symbol(r"\tau", positive=True)
q = function("ma_quadratic", x1, x2, printed="q")
curvature = function("ma_curvature", *_bent, printed="K")
shape = function("ma_shape", *_bent, printed="S")
eigenvalues = tuple(function(f"ma_eigenvalue_{sign}", *_bent, printed=rf"\lambda_{{{sign}}}") for sign in "+-")
_high, _low = (each(*_bent) for each in eigenvalues)
_QUADRATIC = f"{PAPER}, section IV-C"
register(
    "multi_argument-quadratic",
    q(x1, x2),
    _c1 * x1**2 + _c2 * x2**2 + _c3 * x1 * x2 + _c4 * x1 + _c5 * x2 + _c6,
    source=_QUADRATIC,
    definition=True,
)
register("multi_argument-curvature", curvature(*_bent), _c1 * _c2 - _c3**2 / 4, source=_QUADRATIC, definition=True)
_root = sqrt((_c1 - _c2) ** 2 + _c3**2)
for _sign, _eigenvalue in zip((1, -1), eigenvalues, strict=True):
    register(
        f"multi_argument-eigenvalue-{'high' if _sign > 0 else 'low'}",
        _eigenvalue(*_bent),
        (_c1 + _c2 + _sign * _root) / 2,
        source="the matrix with c_1, c_2 on its diagonal and c_3/2 beside it",
        definition=True,
    )
register(
    "multi_argument-curvature-eigenvalues",
    curvature(*_bent),
    _high * _low,
    source="from the definitions",
    note="K < 0: one bend up and one down, a saddle (hyperbolic). K > 0: a bowl or a dome (elliptic). K = 0: bent in "
    "one direction at most, a function of one argument (parabolic).",
)
register(
    "multi_argument-shape",
    shape(*_bent),
    2 * curvature(*_bent) / (_c1**2 + _c2**2 + _c3**2 / 2),
    source="a name",
    definition=True,
    note="K without scale: −1 for x_1 x_2 and its rotations, 0 for a bend in one direction, 1 for a round bowl.",
)

# --- XOR ------------------------------------------------------------------------------------------------------------


def _diagonals(surface: Any) -> tuple[Any, Any]:
    """The sums over the corners with equal signs and over those with different ones."""
    return surface(1, 1) + surface(-1, -1), surface(1, -1) + surface(-1, 1)


_w1, _w2, _bias = sympy.symbols("w_1 w_2 b", real=True)
_line = function("ma_linear_unit", x1, x2, printed="g")
register("multi_argument-threshold-unit", _line(x1, x2), _w1 * x1 + _w2 * x2 + _bias, source="a name", definition=True)
register(
    "multi_argument-xor-linear",
    *_diagonals(_line),
    source="Minsky and Papert 1969",
    note="Were g above a threshold where the signs differ, and below it where they agree, the right side would be "
    "larger. So no unit with one linear filter and a monotone activation computes XOR.",
    tall=True,
)
_equal, _different = _diagonals(q)
register(
    "multi_argument-xor-quadratic",
    _equal,
    4 * _c3 + _different,
    source="from the definition",
    note="On the four corners it is c_3 that matters, and not the sign of K: x_1² + x_2² + x_1 x_2 has K = 3/4, and "
    "(x_1 + x_2)², a function of one filter, has K = 0. A threshold of 2 makes XOR of both.",
)
register(
    "multi_argument-product",
    x1 * x2,
    ((x1 + x2) ** 2 - (x1 - x2) ** 2) / 4,
    source="expansion",
    note="Two units of one argument, with the square as their activation, are one product: no filter is saved.",
)

# --- by chance ------------------------------------------------------------------------------------------------------

kappa = sympy.Symbol("kappa", positive=True)
Z = sympy.IndexedBase("Z", real=True)
_even = cos(theta) ** 2 + tau * sin(theta) ** 2 / 2
register(
    "multi_argument-odds",
    Expected(Holds(curvature(Z[1], Z[2], sqrt(tau) * Z[3]) < 0)),
    2 * Integral(sqrt(_even / (1 + _even)), (theta, 0, pi / 2)) / pi,
    source="the share of the sphere outside an elliptic cone",
    note="The chance of negative curvature for independent normal coefficients, c_3 with τ times the variance of c_1 "
    "and c_2: one half for τ = 0, 0.649 for τ = 1, 0.707 for τ = 2, where no direction is preferred.",
)
_round, _plain, _diagonal = sympy.symbols("a b c", real=True)
register(
    "multi_argument-curvature-hermite",
    curvature((_round + _plain) / 2, (_round - _plain) / 2, _diagonal),
    (_round**2 - _plain**2 - _diagonal**2) / 4,
    source="from the definition",
    note="a, b, c are the coefficients of (x_1² + x_2²)/2 − 1, (x_1² − x_2²)/2 and x_1 x_2: orthonormal under the "
    "standard normal law.",
    broken=True,
)
register(
    "multi_argument-odds-turned",
    Expected(Holds(kappa**2 * Z[1] ** 2 < Z[2] ** 2 + Z[3] ** 2)),
    1 / sqrt(1 + kappa**2),
    source="the share of the sphere outside a round cone",
    note="The same where a law knows no direction: a has κ times the deviation of b and c. One half is κ² = 3.",
)
_cosine = sympy.Symbol("t", real=True)
kernel = function("ma_kernel", _cosine, printed="J")
register(
    "multi_argument-kernel",
    kernel(_cosine),
    (sqrt(1 - _cosine**2) + (pi - acos(_cosine)) * _cosine) / pi,
    source="Cho and Saul 2009, degree 1, divided by its value at 1",
    definition=True,
    note="The correlation behind a wide layer of ReLUs with normal weights and no biases, of two inputs at an angle "
    "with the cosine t. For two hidden layers, J(J(t)).",
)

# --- the best-fit quadratic depends on where one looks --------------------------------------------------------------

surface = function("ma_surface", x1, x2, printed="f")
_mixed = function("ma_surface_mixed", x1, x2, printed=r"\partial_1 \partial_2 f")
_twice = function("ma_surface_twice", x1, x2, printed=r"\partial_1^2 f")
_f = surface(Z[1], Z[2])
register(
    "multi_argument-fit-mixed",
    Expected(Z[1] * Z[2] * _f),
    Expected(_mixed(Z[1], Z[2])),
    source="Stein's identity, twice",
    note="The best fit's c_3 under the standard normal law is the mean of the mixed derivative.",
)
register(
    "multi_argument-fit-first",
    Expected((Z[1] ** 2 - 1) * _f) / 2,
    Expected(_twice(Z[1], Z[2])) / 2,
    source="Stein's identity, twice",
    note="And c_1 is half the mean of the second derivative: K is the determinant of half the mean Hessian.",
)

# --- spectra --------------------------------------------------------------------------------------------------------

psi, P = (sympy.IndexedBase(name, real=True) for name in (r"\psi", "P"))
density = function("ma_density", x1, x2, printed="p")
_HERMITE = "Victor et al. 2006, after the quantum oscillator"
_order = sympy.Symbol("k", integer=True, nonnegative=True)
_other = sympy.Symbol("j", integer=True, nonnegative=True)
_degree = sympy.Symbol("l", integer=True, nonnegative=True)
register(
    "multi_argument-hermite-start",
    psi[0] ** 2,
    exp(-(z**2)) / sqrt(pi),
    source=_HERMITE,
    note="ψ_0 itself is positive.",
)
register(
    "multi_argument-hermite-next",
    psi[_order + 1],
    sqrt(2 / (_order + 1)) * z * psi[_order] - sqrt(_order / (_order + 1)) * psi[_order - 1],
    source=_HERMITE,
    note="ψ_k is the Hermite polynomial H_k times e^(−z²/2), scaled.",
)
amplitude = sympy.IndexedBase(r"\alpha", real=True)
register(
    "multi_argument-amplitude",
    amplitude[_other, _order],
    Integral(
        Integral(density(x1, x2) * surface(x1, x2) * psi[_other, 1] * psi[_order, 2], (x1, -oo, oo)), (x2, -oo, oo)
    ),
    source=f"{PAPER}, section IV-D, for two arguments",
    note="ψ_{j,1} is ψ_j at x_1, and p is the density of the arguments.",
)
register(
    "multi_argument-power",
    P[_degree],
    Sum(amplitude[_order, _degree - _order] ** 2, (_order, 0, _degree)),
    source=f"{PAPER}, section IV-D, for two arguments",
)
register(
    "multi_argument-power-product",
    P[2],
    1 / (16 * pi),
    condition=Eq(surface(x1, x2), x1 * x2),
    source="from the definitions; p is the standard normal density",
    note="All other P_l are 0. That is so for arguments of deviation 1 only: others leave some at the degrees 4, 6, ….",
    tall=True,
)
