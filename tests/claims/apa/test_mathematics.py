"""What the paper on APA and AGLU says of its functions, judged by computation."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import combinations, pairwise, product
from statistics import NormalDist, pvariance
from typing import Any

import sympy

from companion.study import results, symbolic
from companion.study.analysis import compare, family
from tests.claims.apa import facts
from tests.claims.apa.facts import (
    GRADIENTS,
    LIMITS,
    SAFE,
    TABLE_1,
    Curve,
    aglu,
    apart,
    attention_entropy,
    detail,
    eta,
    evaluator,
    found_by_sympy,
    gelu,
    grid,
    gumbel,
    matters,
    printed,
    sigmoid,
)
from tests.claims.form import (
    ROUNDING,
    Verdict,
    agrees,
    at_most,
    cells,
    count,
    enumerated,
    formula,
    graded,
    run_of,
    swap,
)

LINE = grid(-30, 30, 601)

# --- Section III --------------------------------------------------------------------------------------------


@detail(
    "apa-error-logistic",
    "With a sigmoid output a classifier assumes that the error of its score follows the standard Logistic law.",
    "Section III-A, Eq. 3",
    turned_by=swap(eta=lambda z, kappa, lam: gumbel(z)),
)
def test_error_logistic():
    worst = apart(lambda x: 1 - eta(-x, 1, 1), sigmoid, LINE)
    return Verdict(
        graded(worst < ROUNDING),
        "If the error has the Logistic law, P(error > −score) is the sigmoid of the score: they differ by "
        f"{at_most(worst)}.",
    )


@detail(
    "apa-error-gumbel",
    "With the Gumbel activation as output a classifier assumes that the error of its score follows the Gumbel law.",
    "Section III-A",
    turned_by=swap(eta=lambda z, kappa, lam: 1 - gumbel(-z)),
)
def test_error_gumbel():
    def law(x: float) -> float:
        return 1 - eta(-x, 1, 0)

    to_maxima, to_minima = apart(law, gumbel, LINE), apart(law, lambda x: 1 - gumbel(-x), LINE)
    return Verdict(
        graded(to_maxima < ROUNDING, to_minima < ROUNDING),
        "By Eq. 2 the error follows the Gumbel law of minima, 1 − exp(−exp(x)); the activation, exp(−exp(−x)), is that "
        f"of maxima, which is skewed to the other side and up to {to_maxima:.2f} away.",
    )


@matters(
    "apa-error-any",
    "Every activation function assumes some law of the error.",
    "Section III-A",
    turned_by=swap(TABLE_1={"ReLU": gumbel, "SiLU": sigmoid}, eta=lambda z, kappa, lam: facts.eta(z, abs(kappa), lam)),
)
def test_error_any():
    def is_law(function: Curve) -> bool:
        values = [function(x) for x in grid(-6, 40, 921)]
        return all(a <= b + 1e-15 for a, b in pairwise(values)) and values[0] < 0.01 and abs(values[-1] - 1) < 1e-6

    functions = {
        "Sigmoid": sigmoid,
        "Gumbel": gumbel,
        "APA with κ = 1": lambda x: eta(x, 1, 0.5),
        "APA with κ = −1": lambda x: eta(x, -1, 0.5),
        "ReLU": TABLE_1["ReLU"],
        "SiLU": TABLE_1["SiLU"],
    }
    laws = [name for name, function in functions.items() if is_law(function)]
    others = [name for name in functions if name not in laws]
    return Verdict(
        graded(not others, laws),
        f"{enumerated(laws)} rise from 0 to 1, as what follows from a law must; "
        f"{enumerated(others) or 'none of those looked at'} do not.",
    )


TRUTHS: Sequence[Curve] = (gumbel, sigmoid)
"""The probability of the class by its logit: the Gumbel activation's, as Section III-A assumes, or the sigmoid's."""


@matters(
    "apa-logits-explain",
    "That the logits of imbalanced training lie nearer to a Gumbel law explains why a sigmoid output does worse there.",
    "Section III-B",
    turned_by=swap(TRUTHS=(gumbel, gumbel)),
)
def test_logits_explain():
    """In part, if it follows where classes are as the argument has them: read so when the numbers were known."""
    from scipy.optimize import minimize

    xs = grid(-8, 40, 601)
    # a Gumbel law of scale 2
    density = [math.exp(-x / 2 - math.exp(-x / 2)) / 2 * (xs[1] - xs[0]) for x in xs]

    def best(activation: Curve, truth: Curve) -> float:
        """The log loss where the network may shift and scale its logits."""

        def log_loss(line: Sequence[float]) -> float:
            total = 0.0
            for x, mass, p in zip(xs, density, map(truth, xs), strict=True):
                predicted = min(max(activation(line[0] * x + line[1]), 1e-300), 1 - 1e-16)
                total -= mass * (p * math.log(predicted) + (1 - p) * math.log1p(-predicted))
            return total

        return float(minimize(log_loss, (1, 0), method="Nelder-Mead").fun)

    (assumed, assumed_gumbel), (other, other_gumbel) = ((best(sigmoid, each), best(gumbel, each)) for each in TRUTHS)
    follows = assumed_gumbel < assumed
    return Verdict(
        graded(follows and other_gumbel < other, follows),
        "It follows where the class's probability is the Gumbel activation, as Section III-A assumes (log loss of the "
        f"sigmoid {assumed:.3f}, of the Gumbel activation {assumed_gumbel:.3f}), and not from the logits alone: where "
        f"it is their sigmoid, {other:.3f} and {other_gumbel:.3f}.",
    )


law = gumbel
"""How likely the class is, by its score."""


@matters(
    "apa-initialisation",
    "An output's activation can be seen as an initialisation point, or a prior belief, of how data are distributed.",
    "Sections I and III-A",
    turned_by=swap(law=sigmoid),
)
def test_initialisation():
    from scipy.optimize import minimize

    xs = grid(-4, 4, 201)
    masses = [math.exp(-x * x / 2) for x in xs]
    classes = [law(x) for x in xs]
    total = math.fsum(masses)

    def excess(numbers: Sequence[float]) -> float:
        """By how many nats the log loss is above the lowest: an affine score, and of APA the logarithm of λ."""
        scale, shift, *log_lam = numbers
        lam = math.exp(log_lam[0]) if log_lam else 1.0
        loss = 0.0
        for x, mass, p in zip(xs, masses, classes, strict=True):
            q = min(max(eta(scale * x + shift, 1, lam), 1e-300), 1 - 1e-16)
            loss += mass * (p * math.log(p / q) + ((1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0))
        return loss / total

    fixed, learned = (
        float(
            minimize(excess, start, method="Nelder-Mead", options={"maxiter": 4000, "xatol": 1e-6, "fatol": 1e-10}).fun
        )
        for start in ((1.0, 0.0), (1.0, 0.0, 0.0))
    )
    return Verdict(
        graded(fixed < NOTHING, learned < NOTHING),
        "It is a belief that training cannot leave, unless λ is learned: where classes follow the Gumbel curve, the "
        f"best sigmoid of an affine score stays {fixed:.4f} nats too high, APA, begun as that sigmoid, "
        f"{'no' if learned < NOTHING else f'{learned:.4f}'} more than {NOTHING:g}.",
    )


NOTHING = 1e-4
"""Nats that no training tells from none."""

GATES: dict[str, Sequence[float]] = {
    "all open": (0.9999, 0.9999),
    "all shut": (0.0001, 0.0001),
    "half open and half shut": (0.9999, 0.0001),
    "all half open": (0.5, 0.5),
}
"""What a channel attention may do with two channels; a sigmoid does not reach 0 or 1."""


@matters(
    "apa-entropy-zero",
    "Attention entropy near zero means that all attention weights are near one and leave the features as they are.",
    "Section III-B, Eq. 4",
    turned_by=swap(attention_entropy=lambda weights: 1 - min(weights)),
)
def test_entropy_zero():
    others = [name for name, weights in GATES.items() if attention_entropy(weights) < 0.01 and min(weights) < 0.99]
    return Verdict(
        graded(not others, attention_entropy(GATES["all open"]) < 0.01),
        "So it is where gates are open, as in the paper's images; the entropy is near 0 as well where they are "
        f"{' or '.join(others) or 'nothing else'}.",
    )


@matters(
    "apa-entropy-one",
    "Attention entropy near one means that the attention is informative, as it changes the features.",
    "Section III-B, Eq. 4",
    turned_by=swap(attention_entropy=lambda weights: 4 * pvariance(weights)),
)
def test_entropy_one():
    near_one = {name: weights for name, weights in GATES.items() if attention_entropy(weights) > 0.99}
    changes = all(min(weights) < 0.99 for weights in near_one.values())
    tells_apart = all(max(weights) - min(weights) > 0.1 for weights in near_one.values())
    return Verdict(
        graded(changes and tells_apart, changes),
        f"It is near one where the gates are {enumerated(list(near_one))}, which halves the features and tells no "
        "channel from another.",
    )


# --- Section IV-A: special cases and limits -----------------------------------------------------------------


@detail(
    "apa-richards",
    "APA is Richards' growth curve.",
    "Section IV-A, Eq. 5",
    turned_by=swap(eta=lambda z, kappa, lam: facts.eta(z, kappa, 2 * lam)),
)
def test_richards():
    def richards(z: float, low: float, high: float, c: float, q: float, b: float, nu: float) -> float:
        return low + (high - low) / (c + q * math.exp(-b * z)) ** (1 / nu)

    worst = max(
        abs(eta(z, kappa, lam) - richards(z, 0, 1, 1, lam, kappa, lam))
        for z in grid(-3, 3, 61)
        for kappa in (-1.0, 0.5, 2.0)
        for lam in (0.1, 1.0, 5.0)
    )
    return Verdict(
        graded(worst < ROUNDING),
        f"With A = 0, K = C = 1, B = κ and Q = ν = λ Richards' curve is APA; they differ by {at_most(worst)}.",
    )


@matters(
    "apa-sigmoid",
    "At κ = λ = 1 APA is the sigmoid and responds alike to positive and to negative inputs.",
    "Section IV-A",
    chapter=LIMITS,
    turned_by=swap(eta=lambda z, kappa, lam: facts.eta(z, kappa, 2 * lam)),
)
def test_sigmoid():
    worst = apart(lambda z: eta(z, 1, 1), sigmoid, LINE)
    skew = {lam: max(abs(eta(z, 1, lam) + eta(-z, 1, lam) - 1) for z in LINE) for lam in (1, 2)}
    return Verdict(
        graded(worst < ROUNDING and skew[1] < ROUNDING),
        f"They differ by {at_most(worst)}, and |η(z) + η(−z) − 1| is {at_most(skew[1])}; at λ = 2 it is {skew[2]:.2f}.",
    )


@matters(
    "apa-gumbel",
    "At κ = 1 and for λ → 0 APA becomes the Gumbel activation.",
    "Section IV-A",
    chapter=LIMITS,
    turned_by=formula("apa-gumbel", rhs=sympy.exp(-sympy.exp(symbolic.kappa * symbolic.z))),
)
def test_gumbel():
    gap = apart(lambda z: eta(z, 1, 1e-6), gumbel, grid(-5, 20, 501))
    return Verdict(
        graded(found_by_sympy("apa-gumbel")),
        f"SymPy finds the limit exp(−exp(−κz)); at λ = 1e-6 the distance is at most {gap:.0e} for z ≥ −5.",
    )


@matters(
    "apa-silu",
    "At κ = λ = 1 AGLU is SiLU.",
    "Section IV-A, Table I",
    chapter=LIMITS,
    turned_by=swap(aglu=lambda z, kappa, lam: gelu(z)),
)
def test_silu():
    worst = apart(lambda z: aglu(z, 1, 1), TABLE_1["SiLU"], LINE)
    return Verdict(graded(worst < ROUNDING), f"AGLU(z, 1, 1) and zσ(z) differ by {at_most(worst)} on [−30, 30].")


@detail(
    "apa-gelu",
    "At κ = 1.702 and λ = 1 AGLU is GELU.",
    "Section IV-A, Table I",
    chapter=LIMITS,
    turned_by=swap(gelu=TABLE_1["GELU"]),
)
def test_gelu():
    points = grid(-10, 10, 20001)
    gap, place = max((abs(aglu(z, 1.702, 1) - gelu(z)), abs(z)) for z in points)
    approximated = apart(lambda z: aglu(z, 1.702, 1), TABLE_1["GELU"], points)
    return Verdict(
        graded(gap < ROUNDING, approximated < ROUNDING),
        "It is zσ(1.702z), the usual approximation, which Table I prints in GELU's place; "
        f"from GELU itself, zΦ(z), it differs by up to {gap:.4f}, at |z| = {place:.2f}.",
    )


def relu_gap(kappa: float, lam: float) -> float:
    return apart(lambda z: aglu(z, kappa, lam), TABLE_1["ReLU"], grid(-40 / kappa, 40 / kappa, 8001))


@matters(
    "apa-relu",
    "For κ → ∞ AGLU becomes ReLU.",
    "Section IV-A",
    chapter=LIMITS,
    turned_by=swap(aglu=lambda z, kappa, lam: facts.aglu(z, min(kappa, 10), lam)),
)
def test_relu():
    gaps = [relu_gap(kappa, 1) for kappa in (1.0, 10.0, 100.0)]
    return Verdict(
        graded(all(math.isclose(earlier, 10 * later, rel_tol=1e-6) for earlier, later in pairwise(gaps))),
        "The largest distance falls as 1/κ: at λ = 1 it is "
        f"{enumerated([f'{gap:.5f}' for gap in gaps])} for κ = 1, 10 and 100.",
    )


@detail(
    "apa-identity",
    "For λ → ∞ AGLU becomes the identity, which is PReLU with the slope 1.",
    "Section IV-A",
    chapter=LIMITS,
    turned_by=formula("apa-identity", rhs=sympy.Max(0, symbolic.z)),
)
def test_identity():
    lowest = [min(aglu(z, 1, lam) for z in grid(-20 * lam, 0, 4001)) for lam in (10, 100)]
    return Verdict(
        graded(found_by_sympy("apa-identity") and found_by_sympy("apa-prelu")),
        "SymPy finds the limit z at every z, but not everywhere at once: with κ = 1 AGLU stays above "
        f"{lowest[0]:.1f} at λ = 10 and above {lowest[1]:.1f} at λ = 100, and turns back to 0.",
    )


def nearest(curve: Curve) -> float:
    """How far the nearest AGLU is from a curve on [−8, 8]."""
    import numpy as np
    from scipy.optimize import minimize

    points = np.array(grid(-8, 8, 321))
    wanted = np.array([curve(z) for z in points])

    def distance(logarithms: Sequence[float]) -> float:
        kappa, lam = np.exp(logarithms)
        return float(np.abs(points * np.exp(-np.logaddexp(0, math.log(lam) - kappa * points) / lam) - wanted).max())

    kappas = [0.0, math.log(1.702), math.log(1e4), *np.linspace(-3, 3, 20)]
    start = min(product(kappas, [0.0, *np.linspace(-5, 5, 20)]), key=distance)
    return min(distance(start), float(minimize(distance, start, method="Nelder-Mead", options={"maxiter": 800}).fun))


@detail(
    "apa-prelu-smooth",
    "AGLU can be seen as a smoother version of PReLU.",
    "Sections II-C and IV-A",
    turned_by=swap(nearest=lambda curve: 0.0),
)
def test_prelu_smooth():
    def prelu_of(slope: float) -> Curve:
        return lambda z: max(0.0, z) + slope * min(0.0, z)

    gaps = {slope: nearest(prelu_of(slope)) for slope in (0.25, 0.5, 0.75)}
    limits = found_by_sympy("apa-prelu") and found_by_sympy("apa-relu")
    return Verdict(
        graded(limits and max(gaps.values()) < MEMBER, limits),
        "PReLU with the slopes 0 (κ → ∞) and 1 (λ → ∞) is a limit; with the slopes "
        f"{enumerated([f'{slope:g}' for slope in gaps])} the nearest AGLU is "
        f"{enumerated([f'{gap:.1f}' for gap in gaps.values()])} away on [−8, 8].",
    )


MEMBER = 1e-3
"""Curves nearer than this are members, or limits that a large κ comes near."""


@matters(
    "apa-unifies",
    "APA and AGLU unify most common activation functions in one formula.",
    "Abstract, Sections I and IV-A, Table I",
    turned_by=swap(TABLE_1=TABLE_1 | {"GELU": gelu}),
)
def test_unifies():
    gates = {
        "Sigmoid": apart(lambda z: eta(z, 1, 1), sigmoid, LINE),
        "Gumbel": apart(lambda z: eta(z, 1, 0), gumbel, LINE),
    }
    gaps = gates | {name: nearest(curve) for name, curve in TABLE_1.items()}
    inside = [name for name, gap in gaps.items() if gap < MEMBER]
    outside = [f"{name} ({gap:.2f})" for name, gap in gaps.items() if name not in inside]
    return Verdict(
        graded(2 * len(inside) > len(gaps), inside),
        f"{len(inside)} of {len(gaps)} functions listed or in Table I are inside or limits: {enumerated(inside)} "
        f"(GELU in the paper's form, z·σ(1.702z)); not, with the distance on [−8, 8], {enumerated(outside)}.",
    )


@detail(
    "apa-kappa-real",
    "κ may be any real number and is the gain of APA.",
    "Section IV-A",
    turned_by=swap(eta=lambda z, kappa, lam: facts.eta(z, abs(kappa), lam)),
)
def test_kappa_real():
    cases = {
        f"κ = {kappa}": apart(
            lambda z, kappa=kappa: eta(z, kappa, 0.7), lambda z, kappa=kappa: facts.eta(kappa * z, 1, 0.7), LINE
        )
        < ROUNDING
        for kappa in (-2.0, -0.5, 0.0, 0.5, 3.0)
    }
    return count(cases, "values of κ scale the input, η(z, κ, λ) = η(κz, 1, λ); a negative κ turns the gate round")


@matters(
    "apa-roles",
    "κ controls how close AGLU is to ReLU, λ how much of negative inputs leaks through.",
    "Section IV-A",
    turned_by=swap(aglu=lambda z, kappa, lam: facts.aglu(z, kappa, 0.5)),
)
def test_roles():
    gaps = [relu_gap(kappa, 0.5) for kappa in (0.5, 1.0, 2.0, 5.0, 20.0)]
    leaks = [-aglu(-2, 1, lam) for lam in (0.01, 0.1, 1.0, 10.0, 100.0)]
    nearer = all(later < earlier for earlier, later in pairwise(gaps))
    leakier = all(later > earlier for earlier, later in pairwise(leaks))
    return Verdict(
        graded(nearer and leakier, nearer or leakier),
        f"At λ = 0.5 the distance to ReLU goes from {gaps[0]:.3f} at κ = 0.5 to {gaps[-1]:.3f} at κ = 20; "
        f"|AGLU(−2, 1, λ)| goes from {leaks[0]:.3f} at λ = 0.01 to {leaks[-1]:.3f} at λ = 100.",
    )


@matters(
    "apa-capacity",
    "The two learnable parameters of AGLU enlarge the capacity of a network.",
    "Section I",
    turned_by=swap(aglu=lambda z, kappa, lam: facts.aglu(z, kappa, 1)),
)
def test_capacity():
    absorbed = apart(lambda z: aglu(z, 3, 0.7), lambda z: aglu(3 * z, 1, 0.7) / 3, LINE)
    # the slope at 0 against that far on the right: scaling input and output does not change it
    slopes = [aglu(1e-6, 1, lam) / 1e-6 / (aglu(40, 1, lam) / 40) for lam in (1, 2)]
    return Verdict(
        graded(abs(slopes[0] - slopes[1]) > 0.01),
        "λ changes the shape, but κ ≠ 0 only scales input and output (AGLU(z, κ, λ) and AGLU(κz, 1, λ)/κ differ by "
        f"{at_most(absorbed)}), which neighbouring layers can do themselves unless a skip path lies between.",
    )


# --- Eqs. 7 to 9 --------------------------------------------------------------------------------------------


def derivative(name: str, by: Any, more: str = "") -> Verdict:
    """A printed derivative of AGLU against SymPy's."""
    symbols = symbolic.z, symbolic.kappa, symbolic.lam
    true = evaluator(sympy.diff(symbolic.expand(symbolic.get("apa-aglu").lhs), by), *symbols)
    compared = evaluator(printed(name), *symbols)
    generator = random.Random(0)
    worst, opposite, points = 0.0, 0, 1000
    for _ in range(points):
        point = generator.uniform(-4, 4), generator.uniform(-2, 4), generator.uniform(0.05, 5)
        a, b = compared(*point), true(*point)
        worst = max(worst, abs(a - b) / abs(b))
        opposite += a * b < 0
    return Verdict(
        graded(worst < ROUNDING),
        f"At {points} points it differs from SymPy's derivative of Eq. 6 by {at_most(worst)} of it."
        if worst < ROUNDING
        else f"It has the sign opposite to SymPy's derivative of Eq. 6 at {opposite} of {points} points{more}.",
    )


TWICE = swap(printed=lambda name: 2 * facts.printed(name))


@matters("apa-d-kappa", "∂AGLU/∂κ is z²η/(λ + exp(κz)).", "Eqs. 7 and 14", chapter=GRADIENTS, turned_by=TWICE)
def test_d_kappa():
    return derivative("apa-d-kappa", symbolic.kappa)


# The authors' code for AGLU has a backward pass of its own that follows this formula.
@matters(
    "apa-d-lambda",
    "∂AGLU/∂λ is −(z/λ)η/(λ + exp(κz)).",
    "Eqs. 8 and 15",
    chapter=GRADIENTS,
    turned_by=swap(printed=lambda name: symbolic.get(name).rhs),
)
def test_d_lambda():
    return derivative("apa-d-lambda", symbolic.lam, effect_on_training())


def effect_on_training() -> str:
    run = run_of("apa-lambda-gradient")
    if run is None:
        return ""
    found = []
    for imbalance in run.settings["imbalances"]:
        of = [row for row in run.rows if row["imbalance"] == imbalance]
        [each] = compare(of, factor="gradient", reference="true", measure="test_accuracy")
        found += [abs(100 * each.difference.low), abs(100 * each.difference.high)]
    return (
        "; kostas1515/AGLU follows it at ed45253 (classification/resnet_pytorch.py:97), its detectors' ResNets do not; "
        f"accuracy on digits changes by at most {max(found):.1f} points (95 %)"
    )


@matters("apa-d-z", "∂AGLU/∂z is κzη/(λ + exp(κz)) + η.", "Eqs. 9 and 16", chapter=GRADIENTS, turned_by=TWICE)
def test_d_z():
    return derivative("apa-d-z", symbolic.z)


# --- Table I: output ranges ---------------------------------------------------------------------------------


@detail(
    "apa-range-aglu",
    "The output of AGLU ranges over all real numbers.",
    "Table I",
    chapter=LIMITS,
    turned_by=swap(aglu=lambda z, kappa, lam: z),
)
def test_range_aglu():
    minimum = evaluator(symbolic.get("apa-minimum").rhs, symbolic.kappa, symbolic.lam)
    cases = ((1.0, 1.0), (1.0, 10.0), (5.0, 1.0))
    lowest = [min(aglu(z, kappa, lam) for z in grid(-20 * lam / kappa, 0, 4001)) for kappa, lam in cases]
    bounded = all(low >= minimum(*case) - ROUNDING for low, case in zip(lowest, cases, strict=True))
    linear = math.isclose(aglu(-2e6, 0, 1), 2 * aglu(-1e6, 0, 1))
    return Verdict(
        graded(not bounded, linear),
        f"For κ > 0 AGLU has a minimum, {enumerated([f'{low:.3f}' for low in lowest])} at (κ, λ) = (1, 1), (1, 10) and "
        "(5, 1); only the whole family, or κ = 0, reaches every number.",
    )


def lowest(name: str) -> float:
    return min(TABLE_1[name](z) for z in grid(-12, 0, 12001))


@detail(
    "apa-range-gelu",
    "GELU, printed as zσ(1.702z), ranges over (−0.17, ∞).",
    "Table I",
    turned_by=cells("apa-table-1", {"method": "GELU"}, lower=-0.16),
)
def test_range_gelu():
    [row] = [row for row in results.published("apa-table-1") if row["method"] == "GELU"]
    itself = min(gelu(z) for z in grid(-12, 0, 12001))
    return Verdict(
        graded(agrees(lowest("GELU"), row["lower"]), agrees(itself, row["lower"])),
        f"That is right for GELU itself, zΦ(z), with the minimum {itself:.3f}; the printed approximation has "
        f"{lowest('GELU'):.3f}.",
    )


@detail(
    "apa-range-others",
    "The outputs of ReLU, SiLU and Mish have the lower bounds 0, −0.28 and −0.31.",
    "Table I",
    turned_by=cells("apa-table-1", {"method": "Mish"}, lower=-0.35),
)
def test_range_others():
    lower = {row["method"]: row["lower"] for row in results.published("apa-table-1")}
    cases = {name: agrees(lowest(name), lower[name]) for name in ("ReLU", "SiLU", "Mish")}
    return count(cases, "lower bounds are right to the printed digit; the table excludes them, and they are attained")


# --- Sections IV-B and VII-B: non-linearity -----------------------------------------------------------------


def affinity(inputs: Any, outputs: Any) -> Any:
    """ρ_aff by column: 1 − W₂(T(x), y)/√(2 Var y), where T is affine and T(x) has y's mean and variance."""
    import numpy as np

    x, y = np.sort(inputs, axis=0), np.sort(outputs, axis=0)
    spread = y.std(axis=0)
    alive = spread > 1e-9
    moved = (x - x.mean(axis=0)) / x.std(axis=0) * spread + y.mean(axis=0)
    distance = np.sqrt(((moved - y) ** 2).mean(axis=0))
    return 1 - distance[alive] / (math.sqrt(2) * spread[alive])


def aglu_of(values: Any, kappa: float, lam: float) -> Any:
    """AGLU of an array."""
    import numpy as np

    exponent = np.exp(-kappa * values) if lam == 0 else np.logaddexp(0, math.log(lam) - kappa * values) / lam
    return values * np.exp(-exponent)


SHAPES = ("ReLU", (2, 0), (1, 0), (1, 1))


def activated(values: Any, shape: Any) -> Any:
    return values.clip(0) if shape == "ReLU" else aglu_of(values, *shape)


WIDTHS = (32, 64, 128)
"""Ours: the paper names none."""


def mean_affinity(shape: Any, scheme: str, width: int, seed: int) -> float:
    """The mean score of the units of a random perceptron with three hidden layers, as in Fig. 5."""
    import numpy as np

    generator = np.random.default_rng(seed)
    # the paper's plane has 64² points; 16² give the same order
    side = np.linspace(-1, 1, 16)
    x = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    scores = []
    for fan_in in (2, width, width):
        deviation = math.sqrt(2 / (fan_in + width) if "Xavier" in scheme else 2 / fan_in)
        size = (fan_in, width)
        unit = generator.normal(size=size) if "normal" in scheme else generator.uniform(-1, 1, size) * math.sqrt(3)
        z = x @ (deviation * unit) + generator.uniform(-1, 1, width)
        x = activated(z, shape)
        scores.append(affinity(z, x).mean())
    return float(np.mean(scores))


@detail(
    "apa-nonlinearity",
    "By affinity scores of random perceptrons ReLU is most non-linear, then AGLU with (κ, λ) = (2, 0), (1, 0), (1, 1).",
    "Section IV-B, Fig. 5",
    turned_by=swap(SHAPES=((2, 0), (1, 0), (1, 1))),
)
def test_nonlinearity():
    seeds = range(10)
    steps: dict[tuple[Any, ...], tuple[dict[int, float], dict[int, float]]] = {}
    for setting in product(("Xavier uniform", "Xavier normal", "Kaiming uniform", "Kaiming normal"), WIDTHS):
        scores = [{seed: mean_affinity(shape, *setting, seed) for seed in seeds} for shape in SHAPES]
        for (one, a), (other, b) in pairwise(zip(SHAPES, scores, strict=True)):
            steps[one, other, *setting] = a, b
    found = family(steps)
    among = [each.sign() for each in found if each.key[0] != "ReLU"]
    first = [each.sign() for each in found if each.key[0] == "ReLU"]
    return Verdict(
        graded({*among, *first} == {-1}, -1 in among),
        f"With {enumerated([str(width) for width in WIDTHS])} units a layer and {len(seeds)} seeds, "
        f"{among.count(-1)} of {len(among)} steps among AGLUs and {first.count(-1)} of {len(first)} from ReLU to "
        f"(2, 0) are clear as claimed, and {(among + first).count(1)} clear against it.",
    )


@detail(
    "apa-expected-output",
    "A larger mean output for normal inputs indicates a harder, more non-linear AGLU.",
    "Section VII-B, Fig. 7",
    turned_by=swap(affinity=lambda x, y: y.mean(keepdims=True)),
)
def test_expected_output():
    import numpy as np

    points = np.array([NormalDist().inv_cdf((i + 0.5) / 2000) for i in range(2000)])
    outputs = [aglu_of(points, kappa, lam) for kappa in (0.25, 0.5, 1, 2, 4) for lam in (0, 0.1, 1, 10)]
    found = [(y.mean(), affinity(points[:, None], y[:, None]).item()) for y in outputs]
    agree = sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in combinations(found, 2))
    of = math.comb(len(found), 2)
    return Verdict(
        graded(agree > of / 2),
        f"In {agree} of {of} pairs of AGLUs, κ from 0.25 to 4 and λ from 0 to 10, the larger mean has the smaller "
        'affinity score, the paper\'s measure of linearity; "indicates" is read as: in most.',
    )


# --- Appendices ---------------------------------------------------------------------------------------------


@detail(
    "apa-stable-equal",
    "The form of APA with softplus is equal to that with two powers.",
    "Appendix B-A, Eqs. 5 and 13",
    chapter=SAFE,
    turned_by=formula("apa-stable", rhs=symbolic.sigma(symbolic.kappa * symbolic.z)),
)
def test_stable_equal():
    stable = symbolic.get("apa-stable")
    symbols = symbolic.z, symbolic.kappa, symbolic.lam
    left, right = evaluator(stable.lhs, *symbols), evaluator(stable.rhs, *symbols)
    generator = random.Random(0)
    points = [(generator.uniform(-5, 5), generator.uniform(-2, 5), generator.uniform(0.05, 10)) for _ in range(500)]
    worst = max(abs(right(*point) / left(*point) - 1) for point in points)
    return Verdict(
        graded(worst < ROUNDING),
        f"With 40 digits, at {len(points)} points, Eqs. 5 and 13 have a relative difference of {at_most(worst)}.",
    )


def by_softplus(z: Any, lam: Any) -> Any:
    """Eq. 13 at κ = 1."""
    import torch

    return torch.exp(torch.nn.functional.softplus(z - torch.log(lam), beta=-1) / lam)


def by_powers(z: Any, lam: Any) -> Any:
    """Eq. 5 at κ = 1."""
    return (lam * (-z).exp() + 1) ** (-1 / lam)


@matters(
    "apa-stable",
    "The form of APA with softplus is numerically more stable than that with two powers.",
    "Appendix B-A, Eq. 13",
    chapter=SAFE,
    turned_by=swap(by_softplus=by_powers),
)
def test_stable():
    import torch
    from mpmath import mp, mpf

    # steps that float32 holds exactly, so that only the formulas can lose anything
    cases = [(float(z), lam) for z in range(-100, 101, 4) for lam in (1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e3)]
    z, lam = (torch.tensor(column, dtype=torch.float32) for column in zip(*cases, strict=True))
    found = {"Eq. 5": by_powers(z, lam), "Eq. 13": by_softplus(z, lam)}
    bad, points = dict.fromkeys(found, 0), 0
    for i in range(len(cases)):
        with mp.workdps(60):
            exact_lam = mpf(lam[i].item())
            exact = mp.exp(-mp.log1p(exact_lam * mp.exp(-mpf(z[i].item()))) / exact_lam)
        if exact < torch.finfo(torch.float32).tiny:
            continue
        points += 1
        for name, values in found.items():
            bad[name] += abs(float(values[i].item() / exact - 1)) > 1e-3
    better = bad["Eq. 13"] < bad["Eq. 5"]
    return Verdict(
        graded(better and bad["Eq. 13"] == 0, better),
        f"In float32 Eq. 5 is wrong by more than a thousandth at {bad['Eq. 5']} of {points} points with |z| ≤ 100 and "
        f"λ from 1e-6 to 1e3, Eq. 13 at {bad['Eq. 13']}.",
    )


TURNED = ("expand.weight", "expand.bias", "norm.bias", "gate.kappa")


@matters(
    "apa-init-attention",
    "In channel attention it is slightly better to start κ of APA in (−1, 0) than in (0, 1).",
    "Appendix C-A, Table XVII",
    turned_by=swap(TURNED=("gate.kappa",)),
)
def test_init_attention():
    import torch

    from companion import ChannelAttention

    def trained(turn: bool) -> Any:
        torch.manual_seed(0)
        attention = ChannelAttention.apa_star(16, 4, init="apa_long_tailed").double()
        x, target = torch.randn(2, 32, 16, dtype=torch.float64)
        if turn:
            for name, parameter in attention.named_parameters():
                if name in TURNED:
                    parameter.data.neg_()
        optimiser = torch.optim.SGD(attention.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
        for step in range(20):
            torch.manual_seed(step)
            optimiser.zero_grad()
            (attention(x) - target).square().mean().backward()
            optimiser.step()
        return attention.eval()(x).detach()

    top1 = results.column("apa-table-17", "top1")
    better = top1["U(-1, 0)"] > top1["U(0, 1)"]
    gap = (trained(turn=True) - trained(turn=False)).abs().max().item()
    return Verdict(
        graded(better and gap > 0.01, better),
        f"Table XVII has {top1['U(-1, 0)']} for (−1, 0) and {top1['U(0, 1)']} for (0, 1), without intervals; but "
        "flipping the signs of κ and the layer before it, whose random start is symmetric, changes outputs after 20 "
        f"training steps by {at_most(gap)}.",
    )
