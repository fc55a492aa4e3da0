"""The functions that the paper on APA and AGLU speaks of, in floats, and what its claims have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from companion.study import results, symbolic
from tests.claims.form import agrees, by_severity

fatal, matters, detail = by_severity("mechanisms/apa")

GRADIENTS, LIMITS, SAFE = (f"mechanisms/apa-derivation#apa-{part}" for part in ("gradients", "limits", "safe"))
"""Where the book derives what a claim is about."""

Curve = Callable[[float], float]


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def gumbel(z: float) -> float:
    return math.exp(-math.exp(-z))


def eta(z: float, kappa: float, lam: float) -> float:
    """η = exp(−ln(1 + λ exp(−κz))/λ), the Gumbel limit at λ = 0."""
    if lam == 0:
        return gumbel(kappa * z)
    # ln(1 + t) by ln t and |ln t|: t itself may overflow.
    log_t = math.log(lam) - kappa * z
    return math.exp(-(max(log_t, 0.0) + math.log1p(math.exp(-abs(log_t)))) / lam)


def aglu(z: float, kappa: float, lam: float) -> float:
    return z * eta(z, kappa, lam)


def gelu(z: float) -> float:
    return z * 0.5 * math.erfc(-z / math.sqrt(2))


TABLE_1: dict[str, Curve] = {
    "ReLU": lambda z: max(0.0, z),
    "GELU": lambda z: z * sigmoid(1.702 * z),
    "SiLU": lambda z: z * sigmoid(z),
    "Mish": lambda z: z * math.tanh(math.log1p(math.exp(z))),
    "PReLU": lambda z: max(0.0, z) + 0.25 * min(0.0, z),
    "ELU": lambda z: max(0.0, z) + math.expm1(min(0.0, z)),
}
"""The six other rows of the paper's Table I as they are printed there; PReLU and ELU with usual parameters."""


def grid(low: float, high: float, count: int) -> list[float]:
    return [low + (high - low) * i / (count - 1) for i in range(count)]


def apart(one: Curve, other: Curve, points: Sequence[float]) -> float:
    """The largest distance of two curves."""
    return max(abs(one(z) - other(z)) for z in points)


def attention_entropy(weights: Sequence[float]) -> float:
    """Eq. 4 in bits: the mean entropy of the channels' weights."""
    terms = [-p * math.log2(p) for weight in weights for p in (weight, 1 - weight) if p]
    return math.fsum(terms) / len(weights)


# --- Registered formulas ------------------------------------------------------------------------------------


def evaluator(expression: Any, *symbols: Any) -> Callable[..., float]:
    """A registered expression as a function of floats, computed with 40 digits."""
    import sympy
    from mpmath import mp, mpf

    compute = sympy.lambdify(symbols, symbolic.expand(sympy.sympify(expression)).doit(), "mpmath", cse=True)

    def evaluate(*values: float) -> float:
        with mp.workdps(40):
            return float(compute(*map(mpf, values)))

    return evaluate


def found_by_sympy(name: str) -> bool:
    """Whether SymPy finds a registered limit, for positive and for negative z."""
    import sympy

    formula = symbolic.get(name)
    for sign in ("positive", "negative"):
        z = sympy.Symbol("z", **{sign: True})
        found = symbolic.expand(formula.lhs).subs(symbolic.z, z).doit()
        if sympy.simplify(found - symbolic.expand(formula.rhs).subs(symbolic.z, z)) != 0:
            return False
    return True


def printed(name: str) -> Any:
    """The right-hand side that the paper prints: where it is right, the first step of ours."""
    formula = symbolic.get(name)
    return formula.steps[0] if formula.published is None else formula.published


# --- Differences that the paper quotes ----------------------------------------------------------------------


def quoted_differences() -> dict[str, bool]:
    """Whether the tables have the differences that text and superscripts quote, by what is quoted and what is there.

    "best" is the best row of the group that is not the authors' method: the superscripts are gains over it.
    """
    found = {}
    for row in results.published("apa-quoted-differences"):
        name, of = f"apa-table-{row['table']}", row["column"]
        numbers = results.column(name, of)
        if row["against"] == "best":
            rows = {each["method"]: each for each in results.published(name)}
            group = rows[row["method"]]["group"]
            against = max(numbers[m] for m in numbers if rows[m]["group"] == group and rows[m]["kind"] != "ours")
        else:
            against = numbers[row["against"]]
        value = round(numbers[row["method"]] - against, 6)
        over = "the best rival" if row["against"] == "best" else row["against"]
        label = f"{row['quoted']} for {value:g} ({row['method']} over {over}, {of})"
        found[label] = agrees(value, row["quoted"], 1)
    return found


def without(method: str) -> str:
    """The row that a row with the authors' functions is compared with."""
    return method.replace(" APA*+AGLU", "").replace(" AGLU", "")


# --- Our runs -----------------------------------------------------------------------------------------------


def series(rows: Sequence[dict[str, Any]], measure: Callable[[dict[str, Any]], float]) -> dict[int, float]:
    """The mean of a measure by seed."""
    by_seed: dict[int, list[float]] = {}
    for row in rows:
        by_seed.setdefault(row["seed"], []).append(measure(row))
    return {seed: math.fsum(values) / len(values) for seed, values in by_seed.items()}
