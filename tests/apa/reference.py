"""The oracle for APA and AGLU: values and derivatives at exact inputs, to thirty digits, with mpmath.

With u = exp(−κz), t = λu, s = 1/(1 + t):

    L = ln(1 + t)/λ        η = exp(−L)      AGLU = z η
    q = u s                the derivative of ln η by a = κz
    D = u² h(t)            the derivative of ln η by λ, where h(t) = (ln(1 + t) − t s)/t²
    k(t) = h'(t)           so that ∂D/∂λ = u³ k(t)

No fixed number of digits suffices: at z = 5, κ = 25, λ = 1e-6 the difference in h needs 120 digits before
its first digit appears. For small t this module sums the series of h and k instead, which has no such
difference. In any case it doubles the precision until two results agree to thirty digits. test_reference.py
compares it with the closed forms at a huge precision and with numerical differentiation.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple, SupportsFloat

from mpmath import mp, mpf

__all__ = ["Function", "first", "second", "terms", "value"]

Function = Literal["apa", "aglu"]

_DIGITS = 30
_FIRST_PRECISION = 160  # bits
_SERIES_BELOW = mpf(2) ** -8
# Below exp(−this) nothing is near any floating-point format, and at λ = 0 mpmath would run out of memory.
_VANISHED = 10**7


class _Parts(NamedTuple):
    """η and its derivatives by a = κz and λ."""

    eta: mpf
    a: mpf
    lam: mpf
    a_a: mpf
    a_lam: mpf
    lam_lam: mpf


def value(function: Function, z: SupportsFloat, kappa: SupportsFloat, lam: SupportsFloat) -> mpf:
    """Return the function's value; λ = 0 is the Gumbel limit."""
    return _at(function, z, kappa, lam)[0]


def first(function: Function, z: SupportsFloat, kappa: SupportsFloat, lam: SupportsFloat) -> dict[str, mpf]:
    """Return the first derivatives by "z", "kappa", "lam"."""
    return dict(_at(function, z, kappa, lam)[1])


def second(
    function: Function, z: SupportsFloat, kappa: SupportsFloat, lam: SupportsFloat
) -> dict[tuple[str, str], mpf]:
    """Return the second derivatives by the nine pairs of "z", "kappa", "lam"."""
    half = _at(function, z, kappa, lam)[2]
    return half | {(y, x): derivative for (x, y), derivative in half.items()}


def terms(function: Function, z: SupportsFloat, kappa: SupportsFloat, lam: SupportsFloat) -> dict[str, mpf]:
    """Return, for each first derivative, the sum of the magnitudes of its terms.

    It is the scale of the error that is unavoidable where the terms cancel. Only ∂AGLU/∂z = η + κzηq has two.
    """
    magnitudes = {name: abs(derivative) for name, derivative in first(function, z, kappa, lam).items()}
    if function == "aglu":
        eta = value("apa", z, kappa, lam)
        slope = first("apa", z, kappa, lam)["z"]
        magnitudes["z"] = eta + abs(mpf(float(z)) * slope)
    return magnitudes


def _at(function: Function, z: SupportsFloat, kappa: SupportsFloat, lam: SupportsFloat) -> "_Result":
    return _evaluate(function, float(z), float(kappa), float(lam))


_Result = tuple[mpf, dict[str, mpf], dict[tuple[str, str], mpf]]
_combine: dict[Function, Callable[[mpf, mpf, _Parts], list[mpf]]] = {
    # value; z, κ, λ; zz, zκ, zλ, κκ, κλ, λλ
    "apa": lambda z, kappa, e: [
        e.eta,
        kappa * e.a, z * e.a, e.lam,
        kappa**2 * e.a_a, e.a + kappa * z * e.a_a, kappa * e.a_lam, z**2 * e.a_a, z * e.a_lam, e.lam_lam,
    ],
    "aglu": lambda z, kappa, e: [
        z * e.eta,
        e.eta + kappa * z * e.a, z**2 * e.a, z * e.lam,
        kappa * (2 * e.a + kappa * z * e.a_a), z * (2 * e.a + kappa * z * e.a_a), e.lam + kappa * z * e.a_lam,
        z**3 * e.a_a, z**2 * e.a_lam, z * e.lam_lam,
    ],
}  # fmt: skip
_FIRST = ("z", "kappa", "lam")
_SECOND = (("z", "z"), ("z", "kappa"), ("z", "lam"), ("kappa", "kappa"), ("kappa", "lam"), ("lam", "lam"))


@lru_cache(maxsize=1 << 16)
def _evaluate(function: Function, z: float, kappa: float, lam: float) -> _Result:
    if lam < 0:
        raise ValueError(f"lam: {lam} is negative")
    precision = _FIRST_PRECISION
    previous = None
    while True:
        with mp.workprec(precision):
            exact = mpf(z), mpf(kappa), mpf(lam)
            numbers = _combine[function](exact[0], exact[1], _parts(*exact))
        if previous is not None and all(map(_agree, previous, numbers)):
            by_one, by_two = zip(_FIRST, numbers[1:4], strict=True), zip(_SECOND, numbers[4:], strict=True)
            return numbers[0], dict(by_one), dict(by_two)
        previous = numbers
        precision *= 2


def _agree(one: mpf, other: mpf) -> bool:
    # Two zeros agree, and are true: they come from a factor z or κ. Whatever else is subtracted here is a
    # difference of transcendental numbers, which a doubled precision moves away from zero.
    with mp.workprec(_FIRST_PRECISION):
        return bool(abs(one - other) <= abs(other) * mpf(10) ** -_DIGITS)


def _parts(z: mpf, kappa: mpf, lam: mpf) -> _Parts:
    u = mp.exp(-kappa * z)
    t = lam * u
    exponent = u if lam == 0 else mp.log1p(t) / lam
    if exponent - 3 * abs(kappa * z) > _VANISHED:
        return _Parts(*[mpf(0)] * 6)
    s = 1 / (1 + t)
    h, k = _h_and_k(t, s)
    eta, q, D = mp.exp(-exponent), u * s, u**2 * h
    q_minus_s = s * mp.expm1(-kappa * z)
    return _Parts(
        eta=eta,
        a=eta * q,
        lam=eta * D,
        a_a=eta * q * q_minus_s,
        a_lam=eta * q * (D - q),
        lam_lam=eta * (D**2 + u**3 * k),
    )


def _h_and_k(t: mpf, s: mpf) -> tuple[mpf, mpf]:
    """Return h(t) = (ln(1 + t) − t/(1 + t))/t² and its derivative."""
    if t >= _SERIES_BELOW:
        h = (mp.log1p(t) - t * s) / t**2
        return h, (s**2 - 2 * h) / t
    h, k, power, n = mpf(0), mpf(0), mpf(1), 0
    while abs(power) > mp.eps / 1024:
        h += power * (n + 1) / (n + 2)
        k -= power * (n + 1) * (n + 2) / (n + 3)
        power *= -t
        n += 1
    return h, k
