"""The mathematics of APA and AGLU, registered formula by formula.

"The paper" is K. P. Alexandridis, J. Deng, A. Nguyen, S. Luo: Adaptive Parametric Activation: Unifying and
Generalising Activation Functions Across Tasks (2025). Formulas with its equation numbers stand in the paper.
The others are derived here. The tests check every one, the paper's included.
"""

import sympy
from sympy import Abs, Derivative, Limit, Max, Min, Ne, Sum, exp, log, oo

from companion.study.symbolic import function, kappa, lam, register, sigma, z

__all__ = [
    "AGLU",
    "D",
    "H",
    "L",
    "Phi",
    "eta",
    "h",
    "k",
    "prelu",
    "q",
    "s",
    "softplus",
    "t",
    "w",
    "z_min",
]

PAPER = "Alexandridis et al. 2025"

_t = sympy.Symbol("t", positive=True)
_x = sympy.Symbol("x", real=True)
_beta = sympy.Symbol("beta", real=True, nonzero=True)
_slope = sympy.Symbol("a", real=True)
_p = sympy.Symbol("p", positive=True)
_n = sympy.Symbol("n", integer=True, nonnegative=True)
_i = sympy.Symbol("i", integer=True, positive=True)
_C = sympy.Symbol("C", integer=True, positive=True)
_A = sympy.IndexedBase("A")

eta = function("eta", z, kappa, lam, printed=r"\eta")
AGLU = function("AGLU", z, kappa, lam, printed=r"\operatorname{AGLU}")
t = function("t", z, kappa, lam, abbreviation=True)
s = function("s", z, kappa, lam, abbreviation=True)
q = function("q", z, kappa, lam, abbreviation=True)
L = function("L", z, kappa, lam, abbreviation=True)
D = function("D", z, kappa, lam, abbreviation=True)
h = function("h", _t)
k = function("k", _t)
Phi = function("Phi", _x, printed=r"\Phi")
softplus = function("softplus", _x, _beta, printed=r"\operatorname{softplus}")
prelu = function("PReLU", _x, _slope, printed=r"\operatorname{PReLU}")
H = function("H", _p)
w = function("w", lam, abbreviation=True)
z_min = function("z_min", kappa, lam, printed=r"z_{\min}", abbreviation=True)

_all = (z, kappa, lam)
_eta, _aglu, _tt, _s, _q, _L, _D = (each(*_all) for each in (eta, AGLU, t, s, q, L, D))
_decay = exp(-kappa * z)

# --- The two functions, and the functions they are compared with --------------------------------------------

register("apa-eta", _eta, (1 + lam * _decay) ** (-1 / lam), source=f"{PAPER}, Eq. 5", definition=True)
register("apa-aglu", _aglu, z * _eta, source=f"{PAPER}, Eq. 6", definition=True)
register("apa-logistic", sigma(_x), 1 / (1 + exp(-_x)), source=f"{PAPER}, Section III-A", definition=True)
register(
    "apa-normal",
    Phi(_x),
    (1 + sympy.erf(_x / sympy.sqrt(2))) / 2,
    source="the distribution function of the standard normal law",
    definition=True,
)
register(
    "apa-softplus",
    softplus(_x, _beta),
    log(1 + exp(_beta * _x)) / _beta,
    source=f"{PAPER}, Appendix B-A",
    definition=True,
)
register(
    "apa-prelu-function",
    prelu(_x, _slope),
    Max(0, _x) + _slope * Min(0, _x),
    source=f"{PAPER}, Table I",
    definition=True,
)

# --- Abbreviations: L is −ln η, and q and D are the derivatives of ln η by κz and by λ ----------------------

register("apa-t", _tt, lam * _decay, source="abbreviation", definition=True)
register("apa-s", _s, 1 / (1 + _tt), source="abbreviation", definition=True)
register("apa-exponent", _L, log(1 + _tt) / lam, source="abbreviation", definition=True)
register("apa-rate", _q, 1 / (lam + exp(kappa * z)), source="abbreviation", definition=True)
register("apa-lambda-factor", _D, (_L - _q) / lam, source="abbreviation", definition=True)
register("apa-h", h(_t), (log(1 + _t) - _t / (1 + _t)) / _t**2, source="abbreviation", definition=True)
register("apa-k", k(_t), ((1 + _t) ** -2 - 2 * h(_t)) / _t, source="abbreviation", definition=True)

register("apa-eta-log1p", _eta, exp(-log(1 + lam * _decay) / lam), source="from Eq. 5 of the paper")
register(
    "apa-stable",
    _eta,
    exp(softplus(kappa * z - log(lam), -1) / lam),
    source=f"{PAPER}, Eq. 13",
)
register(
    "apa-exponent-large",
    _L,
    (log(lam) - kappa * z + log(1 + exp(kappa * z) / lam)) / lam,
    source="from ln(1 + t) = ln t + ln(1 + 1/t)",
    note="The form for large t, where λ exp(−κz) overflows.",
)

# --- First derivatives --------------------------------------------------------------------------------------

register(
    "apa-log-d-lambda",
    Derivative(log(_eta), lam),
    _D,
    steps=(Derivative(-log(1 + lam * _decay) / lam, lam), log(1 + _tt) / lam**2 - _decay / (lam * (1 + _tt))),
    source="product rule; λ stands in the base and in the exponent of η",
)
register("apa-eta-d-z", Derivative(_eta, z), kappa * _eta * _q, source="from Eq. 5 of the paper")
register("apa-eta-d-kappa", Derivative(_eta, kappa), z * _eta * _q, source="from Eq. 5 of the paper")
register("apa-eta-d-lambda", Derivative(_eta, lam), _eta * _D, source="from Eq. 5 of the paper")

register(
    "apa-d-z",
    Derivative(_aglu, z),
    _eta + kappa * z * _eta * _q,
    steps=(kappa * z * _eta / (lam + exp(kappa * z)) + _eta,),
    source=f"{PAPER}, Eq. 9",
)
register(
    "apa-d-kappa",
    Derivative(_aglu, kappa),
    z**2 * _eta * _q,
    steps=(z**2 * _eta / (lam + exp(kappa * z)),),
    source=f"{PAPER}, Eq. 7",
)
register(
    "apa-d-lambda",
    Derivative(_aglu, lam),
    z * _eta * _D,
    steps=(z * _eta / lam * (log(1 + _tt) / lam - 1 / (lam + exp(kappa * z))),),
    published=-z / lam * _eta / (lam + exp(kappa * z)),
    source=f"{PAPER}, Eqs. 8 and 15",
    note="The paper differentiates the base and leaves out that λ stands in the exponent as well.",
)

# --- D without cancellation ---------------------------------------------------------------------------------

register("apa-lambda-factor-h", _D, exp(-2 * kappa * z) * h(_tt), source="from the abbreviations")
register(
    "apa-lambda-factor-positive",
    _D,
    0,
    relation=">",
    source="from ln(1 + t) > t / (1 + t)",
    note="So ∂AGLU/∂λ has the sign of z, and the published derivative has the opposite one.",
)
register(
    "apa-h-series",
    h(_t),
    Sum((-1) ** _n * (_n + 1) / (_n + 2) * _t**_n, (_n, 0, oo)),
    condition=_t < 1,
    source="from the series of ln(1 + t) and t / (1 + t)",
)
register(
    "apa-k-series",
    k(_t),
    Sum((-1) ** (_n + 1) * (_n + 1) * (_n + 2) / (_n + 3) * _t**_n, (_n, 0, oo)),
    condition=_t < 1,
    source="the derivative of the series of h",
)

# --- Second derivatives -------------------------------------------------------------------------------------

_lambda_factor_by_lambda = (_q**2 - 2 * _D) / lam
register(
    "apa-lambda-factor-d-lambda",
    Derivative(_D, lam),
    exp(-3 * kappa * z) * k(_tt),
    steps=(_lambda_factor_by_lambda,),
    source="from the abbreviations; the form with k does not cancel",
)

_curvature = _q - _s
_second = {
    (z, z): (kappa**2 * _eta * _q * _curvature, kappa * _eta * _q * (2 + kappa * z * _curvature)),
    (z, kappa): (_eta * _q * (1 + kappa * z * _curvature), z * _eta * _q * (2 + kappa * z * _curvature)),
    (z, lam): (kappa * _eta * _q * (_D - _q), _eta * (_D + kappa * z * _q * (_D - _q))),
    (kappa, kappa): (z**2 * _eta * _q * _curvature, z**3 * _eta * _q * _curvature),
    (kappa, lam): (z * _eta * _q * (_D - _q), z**2 * _eta * _q * (_D - _q)),
    (lam, lam): (
        _eta * (_D**2 + _lambda_factor_by_lambda),
        z * _eta * (_D**2 + _lambda_factor_by_lambda),
    ),
}
_source = "from the first derivatives"
for _by, (_of_eta, _of_aglu) in _second.items():
    _names = "-".join(symbol.name for symbol in _by)
    register(f"apa-eta-d-{_names}", Derivative(_eta, *_by), _of_eta, source=_source)
    register(f"apa-d-{_names}", Derivative(_aglu, *_by), _of_aglu, source=_source)

# --- The minimum, and so the range --------------------------------------------------------------------------

register(
    "apa-w",
    w(lam),
    sympy.LambertW(exp(-lam)),
    source="abbreviation; W is Lambert's function, w exp(w) = exp(−λ)",
    definition=True,
)
_w = w(lam)
_depth = (lam + _w) * (_w / (lam + _w)) ** (1 / lam)
register(
    "apa-minimum-at",
    z_min(kappa, lam),
    -(lam + _w) / kappa,
    condition=kappa > 0,
    source="the zero of Eq. 9 of the paper",
    definition=True,
)
register(
    "apa-minimum",
    AGLU(z_min(kappa, lam), kappa, lam),
    -_depth / kappa,
    condition=kappa > 0,
    source="from the place of the minimum",
    note="Table I of the paper gives the range (−∞, ∞).",
)

# --- Special cases and limits -------------------------------------------------------------------------------


_gelu_slope = sympy.Float("1.702")

register("apa-sigmoid", eta(z, 1, 1), sigma(z), source=f"{PAPER}, Section IV-A")
register("apa-gumbel", Limit(_eta, lam, 0), exp(-_decay), source=f"{PAPER}, Section IV-A")
register(
    "apa-gumbel-gap",
    _decay - _L,
    lam * exp(-2 * kappa * z) / 2,
    relation="≤",
    source="from ln(1 + t) ≥ t − t²/2",
    note="How far ln η is from its limit; the left-hand side is never negative.",
)
register(
    "apa-gumbel-uniform",
    _eta - exp(-_decay),
    2 * lam * exp(-2),
    relation="≤",
    source="from ∂η/∂λ = η D, D ≤ L²/2 and L² exp(−L)/2 ≤ 2 exp(−2)",
    note="How far η is from its limit, at every z and κ; the left-hand side is never negative.",
)
register("apa-silu", AGLU(z, 1, 1), z * sigma(z), source=f"{PAPER}, Section IV-A")
register("apa-gelu", AGLU(z, _gelu_slope, 1), z * sigma(_gelu_slope * z), source=f"{PAPER}, Section IV-A")
register(
    "apa-gelu-gap",
    Abs(AGLU(z, _gelu_slope, 1) - z * Phi(z)),
    sympy.Float("0.0204"),
    relation="<",
    source="numerically; the maximum 0.0203 lies at |z| = 2.27",
)
register("apa-relu", Limit(_aglu, kappa, oo), Max(0, z), source=f"{PAPER}, Section IV-A")
register(
    "apa-scaling",
    _aglu,
    AGLU(kappa * z, 1, lam) / kappa,
    condition=Ne(kappa, 0),
    source="from Eq. 6 of the paper",
    note="κ sets the scale; the shape depends on λ alone.",
)
register(
    "apa-relu-gap",
    Abs(_aglu - Max(0, z)),
    Max(exp(-1), _depth) / kappa,
    relation="≤",
    condition=kappa > 0,
    source="from the scaling, the minimum, and a (1 − η) ≤ a exp(−a) ≤ 1/e",
    note="For a fixed λ the convergence to the ReLU is uniform in z, at the rate 1/κ.",
)
register("apa-identity", Limit(_aglu, lam, oo), z, source=f"{PAPER}, Section IV-A")
register(
    "apa-prelu",
    Limit(AGLU(z, 1, lam), lam, oo),
    prelu(z, 1),
    source=f"{PAPER}, Section IV-A",
    note="PReLU with the slope 1 is the identity.",
)
register(
    "apa-left-tail",
    Limit(_aglu, z, -oo),
    0,
    condition=kappa > 0,
    source="from Eq. 6 of the paper",
    note="For every λ, so no AGLU with κ > 0 has a slope on the far left.",
)

# --- Attention ----------------------------------------------------------------------------------------------

register("apa-binary-entropy", H(_p), -_p * log(_p) - (1 - _p) * log(1 - _p), source="definition", definition=True)
register(
    "apa-attention-entropy",
    sympy.Symbol("E_l"),
    Sum(H(_A[_i]), (_i, 1, _C)) / _C,
    steps=(-Sum(_A[_i] * log(_A[_i]) + (1 - _A[_i]) * log(1 - _A[_i]), (_i, 1, _C)) / _C,),
    source=f"{PAPER}, Eq. 4",
    note="The index of A is missing in the paper.",
)
