"""The mathematics of DAC, registered formula by formula.

"The paper" is C. Metta et al.: Increasing biases can be more efficient than increasing weights (2024). Formulas with
its equation numbers stand in the paper. The others are derived here. The tests check every one, the paper's included.

A layer has n outputs f_i and m inputs z_j. Names with indices stand for numbers or for sums over other names;
`written_out` replaces the latter by what they stand for, for given sizes.
"""

from collections.abc import Mapping
from typing import Any

import sympy
from sympy import Abs, Eq, Ge, Gt, Integer, Lt, Max, Min, Ne, Rational, Sum

from companion.study.symbolic import AnyFunction, Expected, Holds, Partial, function, register
from companion.study.vocabulary import Vocabulary

__all__ = [
    "Activation",
    "ActivationSlope",
    "K",
    "L",
    "Loss",
    "N",
    "P",
    "Total",
    "W",
    "b",
    "b_next",
    "expected",
    "f",
    "f_next",
    "g",
    "g_next",
    "h",
    "i",
    "j",
    "k",
    "m",
    "n",
    "o",
    "relu",
    "v",
    "w",
    "w_next",
    "written_out",
    "z",
]

PAPER = "Metta et al. 2024"


class ActivationSlope(AnyFunction):
    """The derivative φ' of the activation."""

    printed = r"\varphi'"


class Activation(AnyFunction):
    """The activation φ."""

    printed = r"\varphi"
    slope = ActivationSlope


phi, slope = Activation, ActivationSlope
i, j, k, half, a, c = (sympy.Symbol(name, integer=True) for name in "ijklac")
n, m, N, K, W, L, P = (sympy.Symbol(name, integer=True, positive=True) for name in ("n", "m", "N", "K", "W", "L", "P"))
A, B = (sympy.Symbol(name, integer=True, positive=True) for name in "AB")
padding, stride, dilation = (sympy.Symbol(name, integer=True, nonnegative=True) for name in ("p", "q", "d"))
h, v = (sympy.Symbol(name, integer=True, nonnegative=True) for name in ("h", "v"))
r = sympy.Symbol("r", integer=True, positive=True)
w, b, z, f, g, x = (sympy.IndexedBase(name, real=True) for name in ("w", "b", "z", "f", "g", "x"))
w_next, b_next, f_next, g_next = (sympy.IndexedBase(rf"{name}^{{*}}", real=True) for name in "wbfg")
y = sympy.IndexedBase("y", real=True)
o = sympy.IndexedBase("o", real=True)
e, t_err, Z = (sympy.IndexedBase(name, real=True) for name in (r"\tilde{b}", "t", "Z"))
gamma, beta, n_hat = (sympy.IndexedBase(name, real=True) for name in (r"\gamma", r"\beta", r"\hat{z}"))
Loss = sympy.Symbol(r"\mathcal{L}", real=True)
Total = sympy.Symbol("E", real=True)
u, s, alpha, offset = (sympy.Symbol(name, real=True) for name in ("u", "s", "alpha", "delta"))
kink = sympy.Symbol("b", real=True)
shift = sympy.Symbol("c", real=True)
distance = sympy.Symbol("t", positive=True)
mu, sigma, tau = (sympy.Symbol(name, real=True) for name in (r"\mu", r"\sigma", r"\tau"))
_x, _y = sympy.Symbol("x", real=True), sympy.Symbol("y", real=True)

relu = function("relu", _x, printed=r"\operatorname{relu}")

#: What a name stands for.
words = Vocabulary()


def _over(summand: Any, index: Any, high: Any) -> Any:
    return Sum(summand, (index, 1, high))


def written_out(expression: Any, sizes: Mapping[Any, int], *, given: Any = None) -> Any:
    """Write an expression out for numbers of inputs, outputs and so on.

    Sums become terms, outputs become functions of weights, biases and inputs, and derivatives are taken. The
    activation φ stays a name; the upstream gradients g stay as they are.

    Parameters
    ----------
    expression : sympy.Expr
        For example one side of a formula, with numbers for its free indices.
    sizes : mapping
        A number for each size: n, m, and what else the expression has.
    given : sympy.Eq, optional
        What a name stands for besides, for example the condition of a formula: b_{i,j} = b_j.

    Returns
    -------
    sympy.Expr
        An expression in the elements of weights, biases and inputs.

    Examples
    --------
    >>> written_out(f[1], {m: 2, n: 1})
    Activation(b[1, 1] + z[1])*w[1, 1] + Activation(b[1, 2] + z[2])*w[1, 2]
    """
    return words.written_out(expression, sizes, given)


def expected(expression: Any) -> Any:
    """Return the expected value of a polynomial in independent standard normal Z.

    Parameters
    ----------
    expression : sympy.Expr
        A polynomial in elements of Z, written out.

    Returns
    -------
    sympy.Expr
        Without Z. The mean of an even power p is (p − 1)!!, that of an odd one 0.

    Examples
    --------
    >>> expected((1 + Z[1] + 2 * Z[2]) ** 2)
    6
    """
    noises = sorted((atom for atom in expression.atoms(sympy.Indexed) if atom.base == Z), key=str)
    if not noises:
        return expression
    total = Integer(0)
    for powers, coefficient in sympy.Poly(sympy.expand(expression), *noises).terms():
        if all(power % 2 == 0 for power in powers):
            total += coefficient * sympy.prod(sympy.factorial2(power - 1) for power in powers if power)
    return total


# --- The unit -----------------------------------------------------------------------------------------------

register("dac-relu", relu(_x), Max(0, _x), source="the rectified linear unit", definition=True)
register(
    "dac-standard-sum",
    sympy.Symbol("z_{i}"),
    _over(w[i, j] * y[j], j, m),
    source=f"{PAPER}, Eq. 1",
)
register(
    "dac-standard-output",
    y[i],
    phi(b[i] + sympy.Symbol("z_{i}")),
    source=f"{PAPER}, Eq. 1",
)
register("dac-connection", y[i, j], phi(b[i, j] + z[j]), source=f"{PAPER}, Eq. 2")
words.define("dac-dense", f[i], _over(w[i, j] * phi(b[i, j] + z[j]), j, m), source=f"{PAPER}, Eqs. 2 and 4")
register(
    "dac-conv",
    f[i, h, v],
    Sum(Sum(_over(w[i, j, a, c] * phi(b[i, j] + z[j, h + a, v + c]), j, m), (c, -half, half)), (a, -half, half)),
    source=f"{PAPER}, Eq. 5",
    note="The kernel has L = 2l + 1 rows and columns. Stride 1; the paper does not say what z is outside the image.",
)
_patch = x[j, c]
register(
    "dac-row",
    r,
    stride * h + dilation * a - padding,
    source="convolution with the stride q, the padding p and the dilation d, counted from 0",
    note="Output row h looks at row r of the image where the kernel's row is a. Columns likewise.",
)

# --- The maximum identity -----------------------------------------------------------------------------------

register(
    "dac-maximum",
    relu(kink + u),
    Max(u, -kink) + kink,
    source="from the definition",
    note="max(z, −b) does not round, and b need be added only once per weight, not once per sample.",
)
register(
    "dac-dense-maximum",
    _over(w[i, j] * relu(b[i, j] + z[j]), j, m),
    _over(w[i, j] * Max(z[j], -b[i, j]), j, m) + _over(w[i, j] * b[i, j], j, m),
    source="from eq-dac-maximum",
)

# --- Padding: o_c is 1 inside the image, 0 outside; at one output position, whose patch has P positions ------

_outside = (1 - o[c]) * w[i, j, c]
register(
    "dac-pad-after",
    f[i],
    _over(_over(o[c] * w[i, j, c] * phi(b[i, j] + _patch), c, P), j, m),
    source="zeros around φ(b + z): outside contributes nothing",
)
register(
    "dac-pad-before",
    f[i],
    _over(_over(w[i, j, c] * phi(b[i, j] + o[c] * _patch), c, P), j, m),
    source="zeros around z: outside contributes w φ(b)",
)
register(
    "dac-pad-difference",
    _over(_over(w[i, j, c] * phi(b[i, j] + o[c] * _patch), c, P), j, m)
    - _over(_over(o[c] * w[i, j, c] * phi(b[i, j] + _patch), c, P), j, m),
    _over(phi(b[i, j]) * _over(_outside, c, P), j, m),
    source="before minus after, where every o is 0 or 1",
    note="With ReLU both agree where no bias is positive: at initialisation, when all biases are 0.",
)

# --- The backward pass --------------------------------------------------------------------------------------

words.name(Loss, _over(g[i] * f[i], i, n))  # any loss with the upstream gradient g gives the same derivatives
_backward = f"{PAPER}, Eq. 7"
register("dac-d-weight", Partial(Loss, w[i, j]), g[i] * phi(b[i, j] + z[j]), source=_backward, note="g is ∂L/∂f.")
register("dac-d-bias", Partial(Loss, b[i, j]), g[i] * w[i, j] * slope(b[i, j] + z[j]), source=_backward)
register(
    "dac-d-input",
    Partial(Loss, z[j]),
    _over(g[i] * w[i, j] * slope(b[i, j] + z[j]), i, n),
    source=_backward,
)
register(
    "dac-relu-slope",
    sympy.Derivative(relu(_x), _x),
    Holds(Gt(_x, 0)),
    condition=Ne(_x, 0),
    source="from the definition",
    note="At 0 there is no derivative; torch takes 0, and so does this book.",
)
register(
    "dac-d-shared-input",
    _over(g[i] * w[i, j] * slope(b[j] + z[j]), i, n),
    slope(b[j] + z[j]) * _over(g[i] * w[i, j], i, n),
    source=f"{PAPER}, Section 6: shared biases",
    note="One factor for all outputs: with ReLU the gradient passes whole or not at all.",
)
register(
    "dac-d-weight-batch",
    Partial(sympy.Symbol(r"\mathcal{L}_{N}", real=True), w[i, j]),
    _over(g[r, i] * phi(b[i, j] + z[r, j]), r, N),
    source="from eq-dac-d-weight, summed over N samples",
)
words.name(
    sympy.Symbol(r"\mathcal{L}_{N}", real=True),
    _over(_over(g[r, i] * _over(w[i, j] * phi(b[i, j] + z[r, j]), j, m), i, n), r, N),
)
register(
    "dac-d-bias-batch",
    Partial(sympy.Symbol(r"\mathcal{L}_{N}", real=True), b[i, j]),
    w[i, j] * _over(g[r, i] * slope(b[i, j] + z[r, j]), r, N),
    source="from eq-dac-d-bias, summed over N samples",
)
register(
    "dac-d-bias-patch",
    Partial(sympy.Symbol(r"\mathcal{L}_{P}", real=True), b[i, j]),
    g[i] * _over(w[i, j, c] * slope(b[i, j] + _patch), c, P),
    source="from eq-dac-pad-after, one output position inside the image; sum over positions and samples",
)
words.name(
    sympy.Symbol(r"\mathcal{L}_{P}", real=True),
    _over(g[i] * _over(_over(w[i, j, c] * phi(b[i, j] + _patch), c, P), j, m), i, n),
)
words.name(f_next[k], _over(w_next[k, i] * phi(b_next[k, i] + f[i]), i, n))
words.name(Total, _over(g_next[k] * f_next[k], k, K))
register(
    "dac-layer",
    f_next[k],
    _over(w_next[k, i] * phi(b_next[k, i] + f[i]), i, n),
    source=f"{PAPER}, Section 6: the next layer, with K units",
    note="The sum runs over the inputs, which are the units of the layer before.",
)
register(
    "dac-d-output",
    Partial(Total, f[i]),
    _over(w_next[k, i] * slope(b_next[k, i] + f[i]) * Partial(Total, f_next[k]), k, K),
    source=_backward,
    note="f feeds the next layer, whose K outputs are f*.",
)
register(
    "dac-d-weight-deep",
    Partial(Total, w[i, j]),
    phi(b[i, j] + z[j]) * Partial(Total, f[i]),
    source=_backward,
)
register(
    "dac-d-bias-deep",
    Partial(Total, b[i, j]),
    w[i, j] * slope(b[i, j] + z[j]) * Partial(Total, f[i]),
    source=_backward,
)

# --- Where a DAC is nothing new, and what it swallows --------------------------------------------------------

register(
    "dac-shared",
    f[i],
    _over(w[i, j] * phi(e[j] + z[j]), j, m),
    condition=Eq(b[i, j], e[j]),
    source="from eq-dac-dense: the standard layer after a layer with the biases of its own inputs",
)
register(
    "dac-batch-norm",
    phi(b[i, j] + gamma[j] * n_hat[j] + beta[j]),
    phi(e[i, j] + gamma[j] * n_hat[j]),
    condition=Eq(e[i, j], b[i, j] + beta[j]),
    source=f"{PAPER}, Section 4: BN′",
    note="A shift of the normalised input is a change of biases, so it is redundant.",
)
register(
    "dac-output-bias",
    phi(b_next[k, i] + f[i] + beta[i]),
    phi(e[k, i] + f[i]),
    condition=Eq(e[k, i], b_next[k, i] + beta[i]),
    source="a bias of the output is a change of the next layer's biases",
    note="Hence DAC layers have no output bias. Not so with zeros around z, nor behind the last layer.",
)

# --- Remark 2.1, pooling -------------------------------------------------------------------------------------

register(
    "dac-composition",
    relu(kink + relu(shift + u)),
    relu(kink) + relu(shift + u - relu(-kink)),
    source=f"{PAPER}, Remark 2.1",
    note="A unit with another bias, and for b > 0 a constant besides, which no unit Σ w relu(b + z) has.",
)
register(
    "dac-max-pool",
    Max(relu(kink + u), relu(kink + s)),
    relu(kink + Max(u, s)),
    source="relu does not decrease",
    note="So max pooling may stand before a DAC as after a ReLU.",
)
register(
    "dac-average-pool",
    (relu(kink + u) + relu(kink + s)) / 2,
    relu(kink + (u + s) / 2),
    relation="≥",
    source="Jensen's inequality",
    note="Not equal where one of the two is on and the other off: average pooling and a DAC do not commute.",
)

# --- Parameters and operations -------------------------------------------------------------------------------

_dense_std = function("dac_parameters_dense_standard", n, m, printed=r"P_{\mathrm{std}}")
_dense_dac = function("dac_parameters_dense", n, m, printed=r"P_{\mathrm{DAC}}")
_conv_std = function("dac_parameters_conv_standard", n, m, L, printed=r"P_{\mathrm{std}}")
_conv_dac = function("dac_parameters_conv", n, m, L, printed=r"P_{\mathrm{DAC}}")
_conv_each = function("dac_parameters_conv_per_weight", n, m, L, printed=r"P_{\mathrm{weight}}")
_conv_mba = function("dac_parameters_mba", n, m, L, K, printed=r"P_{\mathrm{MBA}}")
_section = f"{PAPER}, Section 4"
register(
    "dac-parameters-dense-standard",
    _dense_std(n, m),
    m * n + m,
    source=_section,
    note="The weights, and the m biases of the layer before.",
    definition=True,
)
register("dac-parameters-dense", _dense_dac(n, m), 2 * m * n, source=_section, definition=True)
register(
    "dac-parameters-dense-ratio",
    _dense_dac(n, m) / _dense_std(n, m),
    2 - 2 / (n + 1),
    published=2 - 1 / n,
    source=_section,
    note="The paper divides the increase by the weights alone, and leaves out the m biases that the standard layer "
    "has. Both are 1 at n = 1.",
)
register("dac-parameters-conv-standard", _conv_std(n, m, L), m * n * L**2 + m, source=_section, definition=True)
register("dac-parameters-conv", _conv_dac(n, m, L), m * n * L**2 + m * n, source=_section, definition=True)
register(
    "dac-parameters-conv-ratio",
    _conv_dac(n, m, L) / _conv_std(n, m, L),
    1 + (n - 1) / (n * L**2 + 1),
    published=1 + 1 / L**2 - 1 / (n * L**2),
    source=_section,
    note="At L = 1 it is the ratio of the dense layer.",
)
register(
    "dac-parameters-conv-per-weight",
    _conv_each(n, m, L),
    2 * m * n * L**2,
    source=f"{_section}: totally unshared biases",
    definition=True,
)
register(
    "dac-parameters-mba",
    _conv_mba(n, m, L, K),
    K * m * n * L**2 + K * m,
    source=f"{PAPER}, Eq. 3",
    definition=True,
)
register(
    "dac-parameters-mba-ratio",
    _conv_mba(n, m, L, K) / _conv_std(n, m, L),
    K,
    source=f"{PAPER}, Section 3",
    note="Of a layer. In a network the first layer, BN and the last biases do not grow.",
)
_mac_std = function("dac_flops_standard", n, m, L, A, B, printed=r"F_{\mathrm{std}}")
_mac_dac = function("dac_flops", n, m, L, A, B, printed=r"F_{\mathrm{DAC}}")
_mac_each = function("dac_flops_uncached", n, m, L, A, printed=r"F_{\mathrm{weight}}")
register(
    "dac-flops-standard",
    _mac_std(n, m, L, A, B),
    2 * m * n * L**2 * A + m * B,
    source=_section,
    note="A output positions, B input positions, and one addition of a bias per element of the input. A dense layer "
    "has A = B = L = 1.",
    definition=True,
)
register(
    "dac-flops",
    _mac_dac(n, m, L, A, B),
    2 * m * n * L**2 * A + m * n * B,
    source=_section,
    note="Every pair of channels activates the whole input once and keeps it: B is the input's grid. Padding before "
    "the activation makes it that of the padded image.",
    definition=True,
)
register(
    "dac-flops-uncached",
    _mac_each(n, m, L, A),
    3 * m * n * L**2 * A,
    source=f"{_section}: nothing kept, or a bias per weight",
    definition=True,
)
register(
    "dac-flops-ratio",
    _mac_dac(n, m, L, A, B) / _mac_std(n, m, L, A, B),
    1 + (n - 1) * B / (2 * n * L**2 * A + B),
    source="from the two counts",
)
register(
    "dac-flops-ratio-equal",
    _mac_dac(n, m, L, A, B) / _mac_std(n, m, L, A, B),
    1 + (n - 1) / (2 * n * L**2 + 1),
    published=1 + (1 - 1 / n) / (2 * L**2),
    condition=Eq(B, A),
    source=_section,
    note="The paper leaves out the additions of the standard layer's biases, and takes both grids to be equal: so they "
    "are for stride 1 and as much padding as the kernel needs.",
)
register(
    "dac-flops-ratio-strided",
    _mac_dac(n, m, L, A, B) / _mac_std(n, m, L, A, B),
    1 + 4 * (n - 1) / (2 * n * L**2 + 4),
    condition=Eq(B, 4 * A),
    source="from the two counts, for stride 2 on an image of even size",
)
register(
    "dac-flops-dense-ratio",
    _mac_dac(n, m, 1, 1, 1) / _mac_std(n, m, 1, 1, 1),
    Rational(3, 2) - 3 / (2 * (2 * n + 1)),
    published=Rational(3, 2) - 1 / (2 * n),
    source=_section,
)

# --- Multi-bias activations ---------------------------------------------------------------------------------

register(
    "dac-mba",
    f[i],
    _over(_over(w[i, j, k] * phi(b[j, k] + z[j]), k, K), j, m),
    source=f"{PAPER}, Eq. 3",
)

# --- One input, replicated ----------------------------------------------------------------------------------

_replicated = function("dac_replicated", _x, printed=r"f_{\mathrm{DAC}}")
_far = _over(Abs(b[k]), k, m)
register(
    "dac-replicated",
    _replicated(_x),
    _over(w[j] * relu(b[j] + _x), j, m),
    source=f"{PAPER}, Eq. 6",
    definition=True,
)
register(
    "dac-replicated-left",
    _replicated(-distance - _far),
    0,
    source="all m terms are off",
    note="So every such function vanishes on the left: neither x nor a constant other than 0 is one.",
)
register(
    "dac-replicated-slope",
    sympy.Derivative(_replicated(_x), _x),
    _over(w[j] * Holds(Gt(b[j] + _x, 0)), j, m),
    source="from eq-dac-relu-slope, except at the kinks −b_j",
    note="m kinks, so up to m + 1 pieces; the first has the slope 0.",
)
register(
    "dac-affine-on-interval",
    (alpha + alpha * kink - offset) * relu(kink + _x) + (offset - alpha * kink) * relu(1 + kink + _x),
    alpha * _x + offset,
    condition=Ge(_x, -kink),
    source="two equations for two weights",
    note="On an interval every affine function is one, so every continuous piecewise linear one too.",
)
register(
    "dac-replicated-standard",
    relu(kink + _over(w[j] * _x, j, m)),
    relu(kink + _x * _over(w[j], j, m)),
    source=f"{PAPER}, Section 6",
)

# --- Two inputs: Figure 7 -----------------------------------------------------------------------------------

_pair = function("dac_pair", _x, _y, printed="f")
_middle = function("dac_middle", _x, _y, printed="f")
_separator = function("dac_separator", _x, _y, printed=r"g")
register(
    "dac-pair",
    _pair(_x, _y),
    w[1] * relu(b[1] + _x) + w[2] * relu(b[2] + _y),
    source=f"{PAPER}, Fig. 7a: one unit with two inputs",
    definition=True,
)
register(
    "dac-pair-additive",
    _pair(_x, _y) + _pair(u, s),
    _pair(_x, s) + _pair(u, _y),
    source="a function of x plus a function of y",
    note="So no single unit tells the exclusive or: whichever corners of a rectangle are high, the means are equal.",
)
register(
    "dac-middle",
    _middle(_x, _y),
    relu(_y) - 3 * relu(_x - 2),
    source=f"{PAPER}, Fig. 7a, with numbers of ours",
    note="It is 1, 2 and 0 at (1, 1), (2, 2) and (3, 3): the middle of three points on a line.",
    definition=True,
)
register(
    "dac-separator",
    _separator(_x, _y),
    relu(1 + _x) + relu(1 + _y) - 2 * relu(_x) - 2 * relu(_y) - 1,
    source=f"{PAPER}, Fig. 7b",
    definition=True,
)
register(
    "dac-separator-inside",
    _separator(_x, _y),
    1 - Abs(_x) - Abs(_y),
    condition=Ge(Min(_x, _y), -1),
    source=f"{PAPER}, Fig. 7b",
)
register(
    "dac-separator-ray",
    _separator(-1 - distance, 0),
    0,
    source="from eq-dac-separator",
    note="Outside the square, and not negative.",
)
_three = function("dac_three_units", _x, _y, printed="g_{3}")
register(
    "dac-three-units",
    _three(_x, _y),
    relu(2 + _x + _y) - 2 * relu(_x) - 2 * relu(_y) - 1,
    source="a standard layer with three units, and a linear one",
    definition=True,
)
register(
    "dac-three-units-inside",
    _three(_x, _y),
    1 - Abs(_x) - Abs(_y),
    condition=Ge(_x + _y, -2),
    source="from eq-dac-three-units",
)
register(
    "dac-three-units-outside",
    _three(_x, _y),
    -1,
    relation="≤",
    condition=Lt(_x + _y, -2),
    source="from eq-dac-three-units",
    note="So three standard units separate the square, and exactly.",
)

# --- The error of Appendix B --------------------------------------------------------------------------------

_mean = sympy.Symbol(r"\bar{T}", real=True)
_of_replicate = _over(t_err[k, j], j, W) / W
_appendix = f"{PAPER}, Appendix B"
words.define(
    "dac-error-model",
    t_err[k, j],
    mu + sigma * Z[k] + tau * Z[k, j],
    source=_appendix,
    note="Test error of replicate k in the j-th of W epochs; every Z independent and standard normal.",
)
words.define("dac-error-mean", _mean, _over(_over(t_err[k, j], j, W), k, K) / (K * W), source=_appendix)
register(
    "dac-error-first",
    Expected(_over((t_err[k, 1] - _mean) ** 2, k, K) / (K - 1)),
    sigma**2 + tau**2 + tau**2 * (1 - 1 / W) / (K - 1),
    condition=Ge(K, 2),
    source=f"{_appendix}: the first estimate, at one of the epochs",
    note="The paper has σ² + τ².",
)
register(
    "dac-error-direct",
    Expected(_over((_of_replicate - _mean) ** 2, k, K) / (K * (K - 1))),
    sigma**2 / K + tau**2 / (K * W),
    condition=Ge(K, 2),
    source="the variance of the K replicates' means",
    note="An unbiased estimate of the variance; it needs no model of the epochs.",
)
