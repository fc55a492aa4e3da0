"""The functions that the paper on APA and AGLU speaks of, in floats."""

from __future__ import annotations

import math


def eta(z: float, kappa: float, lam: float) -> float:
    """η = exp(−ln(1 + λ exp(−κz))/λ), the Gumbel limit at λ = 0."""
    if lam == 0:
        return math.exp(-math.exp(-kappa * z))
    # ln(1 + t) by ln t and |ln t|: t itself may overflow.
    log_t = math.log(lam) - kappa * z
    return math.exp(-(max(log_t, 0.0) + math.log1p(math.exp(-abs(log_t)))) / lam)


def aglu(z: float, kappa: float, lam: float) -> float:
    return z * eta(z, kappa, lam)


def grid(low: float, high: float, count: int) -> list[float]:
    return [low + (high - low) * i / (count - 1) for i in range(count)]


def gelu(z: float) -> float:
    return z * 0.5 * math.erfc(-z / math.sqrt(2))
