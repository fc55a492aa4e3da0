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
from sympy import (
    Abs,
    Derivative,
    Eq,
    Integral,
    KroneckerDelta,
    Lt,
    Ne,
    Rational,
    Sum,
    acos,
    cos,
    exp,
    factorial,
    floor,
    oo,
    pi,
    sin,
    sqrt,
)

from companion.study.symbolic import AnyFunction, Expected, Holds, Partial, function, register
from companion.study.vocabulary import Vocabulary

__all__ = [
    "H",
    "L",
    "T",
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
    "p",
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
    "widths",
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
n, H, L, m, N = (sympy.Symbol(name, integer=True, positive=True) for name in ("n", "H", "L", "m", "N"))
x, u, v, a, b, U, V, w, r, s, p, T, t = (sympy.IndexedBase(name, real=True) for name in "xuvabUVwrspTt")
o, y, z = (sympy.Symbol(name, real=True) for name in "oyz")

#: What a name stands for.
words = Vocabulary()


def written_out(expression: Any, arity: int, hidden: int, given: Any = None) -> Any:
    """Write an expression out for an inner network of a given size, behind a layer with two inputs.

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
    return words.written_out(expression, {n: arity, H: hidden, m: 2}, given)


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
register("multi_argument-gradient-third-bias", Partial(y, o), sympy.Integer(1), source=_CHAIN)

relu = function("inner_relu", z, printed=r"\operatorname{ReLU}")
_stretch = sympy.Symbol("t", positive=True)
register("multi_argument-relu", relu(z), z * Holds(z > 0), source=_NETWORK, definition=True)
register(
    "multi_argument-relu-slope",
    Derivative(relu(z), z),
    Holds(z > 0),
    condition=Ne(z, 0),
    source="from the definition",
    note="At 0 there is no derivative. Where no u_j and no v_k is 0, y is affine around x, and all its second "
    "derivatives are 0.",
)
register(
    "multi_argument-relu-homogeneous",
    relu(_stretch * z),
    _stretch * relu(z),
    source="from the definition; t > 0",
    note="So an inner network without biases has y(t x) = t y(x): a cone, given by its values on a circle.",
)

# --- what it costs --------------------------------------------------------------------------------------------------

_x, _y = sympy.symbols("x y", positive=True, integer=True)
h = sympy.IndexedBase("h", positive=True, integer=True)
_inner = function("inner_parameters", n, H, printed=r"P_{\mathrm{inner}}")
_swapped = function("swapped_parameters", n, H, printed=r"P_{\mathrm{swapped}}")
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
register(
    "multi_argument-count-swapped",
    _swapped(n, H),
    n * (H + 1) + H * (H + 1) + 2 * H,
    source="a bias for every input of a layer instead of every output",
    definition=True,
)
register(
    "multi_argument-count-swapped-64",
    _swapped(n, 64),
    65 * n + 4288,
    source="from the definition",
    note="The number that the paper prints; its x (n h_1 + 1) is counted in the same way.",
)
register("multi_argument-count-excess", _swapped(n, H) - _inner(n, H), n - 1, source="from the definitions")
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
register(
    "multi_argument-count-difference",
    _printed - _all,
    _x - Sum(n * h[layer], (layer, 1, L)) - _y + n - 1,
    source="from both counts",
    note="One too many for each input but none for the biases of the layers.",
)
widths = sympy.symbols("h_{l} h_{1+l}", positive=True)
_before, _after = widths
register(
    "multi_argument-width",
    floor(sqrt(n) * _before) * floor(sqrt(n) * _after),
    n * _before * _after,
    relation="≤",
    source=f"{PAPER}, section IV-B, with the root of n alone",
    note="Between hidden layers, widths larger by √n keep the number of weights.",
)
register(
    "multi_argument-width-published",
    floor(sqrt(n * _before)) * floor(sqrt(n * _after)),
    n * _before * _after,
    relation="?",
    source=f"{PAPER}, section IV-B",
    note="With the width under the root the product grows like h and not like h². It can only be √n · h that is meant.",
)

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
register(
    "multi_argument-curvature-hessian",
    Derivative(q(x1, x2), x1, x1) * Derivative(q(x1, x2), x2, x2) - Derivative(q(x1, x2), x1, x2) ** 2,
    4 * curvature(*_bent),
    source="from the definitions",
    note="K is the determinant of the matrix of the quadratic part, which is half the Hessian.",
)
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
    "multi_argument-turned",
    q(x1 * cos(theta), x1 * sin(theta)),
    x1**2 * (_c1 + _c2 + (_c1 - _c2) * cos(2 * theta) + _c3 * sin(2 * theta)) / 2
    + x1 * (_c4 * cos(theta) + _c5 * sin(theta))
    + _c6,
    source="from the definition",
    note="Along a line through 0 at the angle θ: the bend is between the eigenvalues, and takes both as values.",
)
register(
    "multi_argument-turned-mixed",
    Derivative(
        q(x1 * cos(theta) - x2 * sin(theta), x1 * sin(theta) + x2 * cos(theta)),
        x1,
        x2,
    ),
    _c3 * cos(2 * theta) - (_c1 - _c2) * sin(2 * theta),
    source="from the definition",
    note="The mixed coefficient after a rotation of the arguments. Some angle makes it 0, so that K alone and not c_3 "
    "says what the surface is.",
)
_t11, _t12, _t21, _t22 = T[1, 1], T[1, 2], T[2, 1], T[2, 2]


def _bend(left: tuple[Any, Any], right: tuple[Any, Any]) -> Any:
    """What two columns of T make of the quadratic part's matrix."""
    return _c1 * left[0] * right[0] + _c2 * left[1] * right[1] + _c3 * (left[0] * right[1] + left[1] * right[0]) / 2


_first, _second = (_t11, _t21), (_t12, _t22)
register(
    "multi_argument-curvature-mapped",
    curvature(_bend(_first, _first), _bend(_second, _second), 2 * _bend(_first, _second)),
    (_t11 * _t22 - _t12 * _t21) ** 2 * curvature(*_bent),
    source="the arguments of q are T x instead of x",
    note="A linear map of the arguments cannot change the sign of K. A rotation leaves K as it is.",
)
_scale = sympy.Symbol("t", real=True)
register(
    "multi_argument-curvature-scaled",
    curvature(*(_scale * each for each in _bent)),
    _scale**2 * curvature(*_bent),
    source="from the definition",
    note="Nor can a factor at the output, not even a negative one: that is so for two arguments, and not for three.",
)
_t1, _t2 = t[1], t[2]
register(
    "multi_argument-shifted",
    q(x1 + _t1, x2 + _t2) - q(x1, x2),
    (2 * _c1 * _t1 + _c3 * _t2) * x1
    + (2 * _c2 * _t2 + _c3 * _t1) * x2
    + (_c1 * _t1**2 + _c2 * _t2**2 + _c3 * _t1 * _t2 + _c4 * _t1 + _c5 * _t2),
    source="from the definition",
    note="A shift of the arguments changes c_4, c_5, c_6 and nothing else.",
)
_centre = {x1: (_c3 * _c5 - 2 * _c2 * _c4) / (4 * curvature(*_bent))}
_centre[x2] = (_c3 * _c4 - 2 * _c1 * _c5) / (4 * curvature(*_bent))
register(
    "multi_argument-centre",
    q(x1 + _centre[x1], x2 + _centre[x2]) - q(_centre[x1], _centre[x2]),
    _c1 * x1**2 + _c2 * x2**2 + _c3 * x1 * x2,
    condition=Ne(curvature(*_bent), 0),
    source="where both derivatives are 0",
    note="So every quadratic with K ≠ 0 is its quadratic part around its centre.",
)
register(
    "multi_argument-saddle",
    _high * x1**2 + _low * x2**2,
    (sqrt(Abs(_high)) * x1 - sqrt(Abs(_low)) * x2) * (sqrt(Abs(_high)) * x1 + sqrt(Abs(_low)) * x2),
    condition=Lt(curvature(*_bent), 0),
    source="from K < 0: the eigenvalues have different signs",
    note="Along its own axes, every saddle is a product of two linear functions: the soft XOR of these two.",
)
register(
    "multi_argument-asymptotes",
    (_high + _low) / (_high - _low),
    (_c1 + _c2) / _root,
    source="from the definitions",
    note="Where K < 0 its size is the cosine of the angle between the lines on which a saddle is 0. They are "
    "perpendicular, and the saddle is x_1 x_2 up to rotation and scale, where c_1 + c_2 = 0 and only there.",
)
_angle = pi / 4
register(
    "multi_argument-soft-xor",
    (x1 * cos(_angle) - x2 * sin(_angle)) * (x1 * sin(_angle) + x2 * cos(_angle)),
    (x1**2 - x2**2) / 2,
    source="x_1 x_2 turned by an eighth of a turn",
)
register(
    "multi_argument-shape",
    shape(*_bent),
    2 * curvature(*_bent) / (_c1**2 + _c2**2 + _c3**2 / 2),
    source="a name",
    definition=True,
    note="K without scale: −1 for x_1 x_2 and its rotations, 0 for a bend in one direction, 1 for a round bowl.",
)
register(
    "multi_argument-shape-eigenvalues",
    shape(*_bent),
    2 * _high * _low / (_high**2 + _low**2),
    source="from the definitions",
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
    tall=True,
)
register(
    "multi_argument-product",
    x1 * x2,
    ((x1 + x2) ** 2 - (x1 - x2) ** 2) / 4,
    source="expansion",
    note="Two units of one argument, with the square as their activation, are one product: no filter is saved.",
)

# --- how many ReLUs a product needs ---------------------------------------------------------------------------------

_left, _right = sympy.symbols("a b", real=True)
_error = sympy.Symbol(r"\varepsilon", positive=True)
register(
    "multi_argument-square-bend",
    _left**2 - 2 * ((_left + _right) / 2) ** 2 + _right**2,
    (_right - _left) ** 2 / 2,
    source="expansion",
    note="It is 0 for a linear function. So on an interval of length s no linear function is nearer to the square than "
    "s²/8, and the chord is above it by up to s²/4.",
)
register(
    "multi_argument-units-needed",
    _error,
    1 / (2 * (N + 1) ** 2),
    relation="≥",
    source="x_1 = x_2 = t turns the product into t²; N ReLUs have N kinks or fewer on that line",
    note="The largest error of one hidden layer with N ReLUs for x_1 x_2 on the square −1 ≤ x_1, x_2 ≤ 1.",
)
register(
    "multi_argument-units-enough",
    _error,
    4 / N**2,
    relation="≤",
    source="the two squares, each by N/2 chords of equal length",
    note="What an even number N of ReLUs reaches in one hidden layer. With depth, O(ln 1/ε) do: Yarotsky 2017.",
)
_pieces = sympy.Symbol(r"N_{\mathrm{pieces}}", positive=True)
register(
    "multi_argument-pieces",
    _pieces,
    (H + 1) ** 2,
    relation="≤",
    source="the first layer has H kinks on a line; the second up to H more in each piece between them",
    note="On any line. So with H = 64 its largest error for x_1 x_2 on that square is at least 2.8 · 10⁻⁸.",
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
    tall=True,
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
register(
    "multi_argument-ratio",
    Rational(2, 9)
    * Integral(kernel(cos(theta)), (theta, 0, pi))
    / Integral(kernel(cos(theta)) * cos(2 * theta), (theta, 0, pi)),
    sympy.Integer(2),
    source="κ² of the best-fit quadratics of wide networks with one hidden layer, standard normal arguments",
    note="A cone r f(θ) has E r (r² − 2)/2 times the mean of f as its a, and E r³/2 times the mean of f cos 2θ as its "
    "b. With J(J(cos θ)) κ² is 3.109 and the chance 0.493; with one hidden layer 0.577.",
)

# --- the best-fit quadratic depends on where one looks --------------------------------------------------------------

surface = function("ma_surface", x1, x2, printed="f")
_mixed = function("ma_surface_mixed", x1, x2, printed=r"\partial_1 \partial_2 f")
_twice = function("ma_surface_twice", x1, x2, printed=r"\partial_1^2 f")
_deviation = sympy.Symbol(r"\sigma", positive=True)
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
_wave = (_deviation * Z[1]) ** 4 - _scale * (_deviation * Z[1]) ** 2
register(
    "multi_argument-fit-scale",
    Expected((Z[1] ** 2 - 1) * _wave) / (2 * _deviation**2),
    6 * _deviation**2 - _scale,
    source="E Z² = 1, E Z⁴ = 3, E Z⁶ = 15",
    note="The c_2 of x_1² + x_2⁴ − t x_2² under normal arguments of deviation σ, where c_1 = 1 and c_3 = 0: K is "
    "negative for narrow inputs and positive for wide ones.",
)

# --- spectra --------------------------------------------------------------------------------------------------------

psi, psi_bent, P = (sympy.IndexedBase(name, real=True) for name in (r"\psi", r"\psi''", "P"))
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
register(
    "multi_argument-hermite-orthonormal",
    Integral(psi[_other] * psi[_order], (z, -oo, oo)),
    KroneckerDelta(_other, _order),
    source=_HERMITE,
    note="On the whole line and with no weight.",
)
register(
    "multi_argument-hermite-oscillator",
    z**2 * psi[_order] - psi_bent[_order],
    (2 * _order + 1) * psi[_order],
    source=_HERMITE,
    note="Summed over the arguments, the left side has no preferred direction. Products of degree l are all its "
    "solutions for one eigenvalue, so a rotation turns them into sums of one another: P_l stays the same.",
)
hermite = function("ma_hermite_polynomial", _degree, z, printed=r"\operatorname{He}")
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
    "multi_argument-power-degree",
    P[_degree],
    Rational(1, 2) ** _degree / (4 * pi),
    condition=Eq(surface(x1, x2), hermite(_degree, x1) / sqrt(factorial(_degree))),
    source="from the definitions; p is the standard normal density",
    note="Hermite's polynomial with the leading term x_1^l, of one argument and of variance 1. Degree 2 has "
    "1/(16π), and so has x_1 x_2: the spectrum does not tell a soft XOR from a parabola. Of equally strong parts the "
    "steeper one shows less.",
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

# --- what the layer before takes over -------------------------------------------------------------------------------

W, beta = sympy.IndexedBase("W", real=True), sympy.IndexedBase(r"\beta", real=True)
register(
    "multi_argument-absorbed",
    t[i] + Sum(T[i, k] * (beta[k] + Sum(W[k, j] * p[j], (j, 1, m))), (k, 1, n)),
    t[i] + Sum(T[i, k] * beta[k], (k, 1, n)) + Sum(Sum(T[i, k] * W[k, j], (k, 1, n)) * p[j], (j, 1, m)),
    source="the same sum in another order; m inputs p_j of the layer before",
    note="The inner networks f(x) and f(T x + t) give the same networks, with other weights before them. So what is "
    "learned is settled up to T and t; the sign of K is, K is not, and the spectrum is up to rotations only.",
)
_turned = (x1 * cos(theta) - x2 * sin(theta), x1 * sin(theta) + x2 * cos(theta))
register(
    "multi_argument-norm-size",
    _turned[0] ** 2 + _turned[1] ** 2,
    x1**2 + x2**2,
    source="a rotation",
    note="What a normalisation divides by does not change under a rotation, once the mean is 0.",
)
register(
    "multi_argument-norm-mean",
    _turned[0] + _turned[1],
    (cos(theta) + sin(theta)) * x1 + (cos(theta) - sin(theta)) * x2,
    source="a rotation",
    note="What it subtracts does, but for half a turn. With layer normalisation before the inner network, which has no "
    "weights of its own, T is the identity or swaps the arguments, or minus that, and t is 0.",
)
