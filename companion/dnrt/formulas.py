"""The mathematics of RAA, registered formula by formula.

"The paper" is Qiu et al.: Dynamic Neural Response Tuning (2024). Formulas with its equation numbers stand in the paper.
The others are derived here. The tests check every one, the paper's included.

A vector has d elements x_1, …, x_d. The gate s is any function that has a derivative; the paper's is Φ. Names that
depend on the vector (the offset c, the output y_i) are symbols, so that a page shows them as names; `written_out`
replaces them by what they stand for.
"""

from typing import Any

import sympy
from sympy import KroneckerDelta, Rational, Sum, erfc, exp, pi, sqrt

from companion.symbolic import AnyFunction, Partial, function, register
from companion.vocabulary import Vocabulary

__all__ = ["H", "L", "alpha", "b", "c", "d", "g", "h", "i", "j", "s", "slope", "v", "w", "written_out", "x", "y", "z"]

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
d = sympy.Symbol("d", integer=True, positive=True)
x, w, y, g, h = (sympy.IndexedBase(name, real=True) for name in "xwygh")
b, c, H, v, alpha, z = (sympy.Symbol(name, real=True) for name in ("b", "c", "H", "v", "alpha", "z"))
L = sympy.Symbol(r"\mathcal{L}", real=True)

normal = function("normal", z, printed=r"\Phi")
density = function("normal_density", z, printed=r"\phi")

#: What a name stands for.
words = Vocabulary()


def written_out(expression: Any, count: int) -> Any:
    """Write an expression out for a vector of so many elements.

    Parameters
    ----------
    expression : sympy.Expr
        For example one side of a formula, with numbers for its free indices.
    count : int
        d.

    Returns
    -------
    sympy.Expr
        An expression in x_1, …, x_d, the weights and b. The gate and the upstream gradient g stay as they are.

    Examples
    --------
    >>> written_out(y[1], 2)
    Gate(b + w[1]*x[1] + w[2]*x[2] + x[1])*x[1]
    """
    return words.written_out(expression, {d: count})


# --- gates ------------------------------------------------------------------------------------------------------

register("dnrt-normal", normal(z), erfc(-z / sqrt(2)) / 2, source=f"{PAPER}, after Eq. 1", definition=True)
register("dnrt-normal-density", density(z), exp(-(z**2) / 2) / sqrt(2 * pi), source="its derivative", definition=True)
register("dnrt-normal-slope", sympy.Derivative(normal(z), z), density(z), source="from the definitions")
register("dnrt-normal-symmetry", normal(-z), 1 - normal(z), source="from the definition")
register("dnrt-normal-half", normal(0), Rational(1, 2), source="from the definition")
gelu = function("gelu", z, printed=r"\operatorname{GELU}")
register("dnrt-gelu", gelu(z), z * normal(z), source=f"{PAPER}, Eq. 1", definition=True)

# --- three versions: a number, a line for each element, an offset for the whole vector --------------------------------

shifted = function("raa_number", z, alpha, printed=r"\operatorname{RAA}")
register(
    "dnrt-raa-number",
    shifted(z, alpha),
    z * s(z + alpha),
    source=f"{PAPER}, Eq. 2",
    definition=True,
    note="α is learned; the same for every input.",
)
register(
    "dnrt-raa-number-slope",
    sympy.Derivative(shifted(z, alpha), z),
    s(z + alpha) + z * slope(z + alpha),
    source="from Eq. 2",
)
register("dnrt-raa-number-alpha", sympy.Derivative(shifted(z, alpha), alpha), z * slope(z + alpha), source="from Eq. 2")

element = function("raa_element", z, v, b, printed=r"\operatorname{RAA}")
_line = z + (v * z + b)
register(
    "dnrt-raa-element",
    element(z, v, b),
    z * s(_line),
    source=f"{PAPER}, Eq. 3",
    definition=True,
    note="The paper's scalars w and b; w is called v here, because w is a vector in Eq. 4.",
)
register(
    "dnrt-raa-element-slope",
    sympy.Derivative(element(z, v, b), z),
    s(_line) + (1 + v) * z * slope(_line),
    source="from Eq. 3",
)
register("dnrt-raa-element-weight", sympy.Derivative(element(z, v, b), v), z**2 * slope(_line), source="from Eq. 3")
register("dnrt-raa-element-bias", sympy.Derivative(element(z, v, b), b), z * slope(_line), source="from Eq. 3")

words.define("dnrt-offset", c, Sum(w[k] * x[k], (k, 1, d)) + b, source=f"{PAPER}, Eq. 4")
words.define("dnrt-raa", y[i], x[i] * s(x[i] + c), source=f"{PAPER}, Eq. 4")

# --- its gradients ------------------------------------------------------------------------------------------------

words.name(L, Sum(g[k] * y[k], (k, 1, d)))  # any loss with the upstream gradient g gives the same derivatives
register(
    "dnrt-jacobian",
    Partial(y[i], x[j]),
    KroneckerDelta(i, j) * (s(x[i] + c) + x[i] * slope(x[i] + c)) + w[j] * x[i] * slope(x[i] + c),
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
