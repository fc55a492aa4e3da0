"""Points at which APA and AGLU are hard to compute, and what is exact there.

The box is z ∈ [−100, 100], κ ∈ [−1, 50], λ ∈ [1e-6, 1e3]. Uniform points would say little: almost all of them give
0, z or 1. So a point is chosen by what could go wrong at it, and κ and z follow from it.
"""

from __future__ import annotations

import functools
import math
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import lambertw

from companion.apa.reference import LEAN_A, LEAN_LAM, LIMITS
from tests.apa import reference

Array = NDArray[np.float64]
Result = Literal["value", "z", "kappa", "lam"]
RESULTS: tuple[Result, ...] = ("value", "z", "kappa", "lam")
LN2 = math.log(2)


class Points(NamedTuple):
    """Points that the dtype can represent, and there the exact results rounded to double precision."""

    z: torch.Tensor  # of the dtype
    kappa: torch.Tensor  # of the dtype, or float32 where that is longer
    lam: torch.Tensor
    log_eta: Array
    exact: dict[tuple[reference.Function, Result], Array]
    terms: dict[tuple[reference.Function, Result], Array]  # the magnitudes of what is added


@functools.cache
def points(dtype: torch.dtype) -> Points:
    """The points of a dtype, some thousands, the same at each call."""
    z, kappa, lam = _in_the_box(dtype)
    exact = {(f, r): np.zeros(len(z)) for f in ("apa", "aglu") for r in RESULTS}
    terms = {(f, r): np.zeros(len(z)) for f in ("apa", "aglu") for r in RESULTS}
    for i, point in enumerate(zip(z.tolist(), kappa.tolist(), lam.tolist(), strict=True)):
        for function in ("apa", "aglu"):
            results = {"value": reference.value(function, *point), **reference.first(function, *point)}
            magnitudes = {"value": abs(results["value"]), **reference.terms(function, *point)}
            for name in RESULTS:
                exact[function, name][i] = float(results[name])
                terms[function, name][i] = float(magnitudes[name])
    with np.errstate(divide="ignore"):
        log_eta = np.log(exact["apa", "value"])
    return Points(z, kappa, lam, log_eta, exact, terms)


def _in_the_box(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(20250701)
    parameters = torch.promote_types(dtype, torch.float32)
    # how far ln η may fall before even z² η q is no longer normal; how many points of each kind
    lowest, n = {
        torch.float64: (720.0, 300),
        torch.float32: (104.0, 300),
        torch.float16: (20.0, 60),
        torch.bfloat16: (104.0, 60),
    }[dtype]
    drawn = [
        _corners(),
        _from_a(rng, *_by_log_eta(rng, 4 * n, 1e-8, lowest)),
        _from_a(rng, *_by_log_eta(rng, 2 * n, lowest / 2, lowest)),
        _from_a(rng, *_at_changes_of_formula(rng, 2 * n)),
        _from_a(rng, *_at_caps(rng, n, LIMITS[parameters].exponent, LIMITS[parameters].product)),
        _from_a(rng, *_at_the_minimum_of_aglu(rng, 2 * n)),
        _from_a(rng, *_at_the_edges_of_the_lean_formulas(rng, n)),
        (rng.uniform(-100, 100, n), rng.uniform(-1, 50, n), _log_uniform_lam(rng, n)),
    ]
    columns = [np.concatenate(column) for column in zip(*drawn, strict=True)]
    z, kappa, lam = columns
    inside = (abs(z) <= 100) & (kappa >= -1) & (kappa <= 50) & (lam >= 1e-6) & (lam <= 1e3)
    count = inside.sum() // 8 * 8  # a multiple of every pack of 16 bytes
    z_, kappa_, lam_ = (torch.from_numpy(column[inside][:count]) for column in columns)
    return z_.to(dtype), kappa_.to(parameters), lam_.to(parameters)


def _from_a(rng: np.random.Generator, a: Array, lam: Array) -> tuple[Array, Array, Array]:
    """z and κ with κz = a: |κ| log-uniform, negative at times."""
    smallest = np.maximum(abs(a) / 100, 1e-3)
    negative = (smallest < 1) & (rng.random(len(a)) < 0.2)
    largest = np.where(negative, 1.0, 50.0)
    kappa = np.exp(rng.uniform(np.log(np.minimum(smallest, largest)), np.log(largest)))
    kappa = np.where(negative, -kappa, kappa)
    return a / kappa, kappa, lam


def _log_uniform_lam(rng: np.random.Generator, n: int) -> Array:
    return np.asarray(10 ** rng.uniform(-6, 3, n))


def _by_log_eta(rng: np.random.Generator, n: int, highest: float, lowest: float) -> tuple[Array, Array]:
    """ln η log-uniform from −highest to −lowest: every error of ln η arrives in η multiplied by it."""
    lam, log_eta = _log_uniform_lam(rng, n), -np.exp(rng.uniform(math.log(highest), math.log(lowest), n))
    # ln(1 + t) = −λ ln η and a = ln λ − ln t
    log_u = -lam * log_eta
    log_t = np.where(log_u > 30, log_u, np.log(np.expm1(np.minimum(log_u, 30))))
    return np.log(lam) - log_t, lam


def _at_changes_of_formula(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """t near the thresholds: series of ln(1+t), of h in t (float32, float64), of h in x = t/(1+t)."""
    lam = _log_uniform_lam(rng, n)
    t = rng.choice([0.03125, 0.09, LIMITS[torch.float64].threshold, 0.085 / (1 - 0.085)], n)
    return np.log(lam / (t * (1 + _nudge(rng, n)))), lam


def _at_caps(rng: np.random.Generator, n: int, exponent: float, product: float) -> tuple[Array, Array]:
    """Where E or λE would overflow, where root_E would underflow, and where the lean formulas end."""
    lam = _log_uniform_lam(rng, n)
    log_lam = np.log(lam)
    places = np.stack(
        [
            np.full(n, -exponent * LN2),
            log_lam - product * LN2,
            np.full(n, 250 * LN2),
            np.full(n, LEAN_A),
            np.full(n, -LEAN_A),
        ]
    )
    return places[rng.integers(0, len(places), n), np.arange(n)] * (1 + _nudge(rng, n)), lam


def _at_the_minimum_of_aglu(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """∂AGLU/∂z = 0 where 1 + aq = 0, which is (a + λ) exp(−a) = −1: two terms cancel."""
    lam = _log_uniform_lam(rng, n)
    a = -lam - np.where(lam < 700, lambertw(np.exp(-np.minimum(lam, 700))).real, 0)
    return a * (1 + _nudge(rng, n)), lam


def _at_the_edges_of_the_lean_formulas(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    edges = np.array([edge for edge in LEAN_LAM if edge <= 1e3], dtype=np.float32)
    neighbours = [np.nextafter(edges, np.float32(direction)) for direction in (0, np.inf)]
    lam = rng.choice(np.concatenate([edges, *neighbours]), n).astype(float)
    a = np.log(lam) - np.log(np.expm1(np.minimum(lam * 10 ** rng.uniform(-6, 2, n), 700)))
    return a, lam


def _corners() -> tuple[Array, Array, Array]:
    z = [-100.0, -1.0, -1e-3, -1e-20, -0.0, 0.0, 1e-20, 1e-3, 1.0, 100.0]
    kappa = [-1.0, -1e-3, 0.0, 1e-20, 1e-3, 1.0, 50.0]
    lam = [1e-6, 1e-3, 1.0, 1e3]
    grid = np.meshgrid(z, kappa, lam, indexing="ij")
    return grid[0].ravel(), grid[1].ravel(), grid[2].ravel()


def _nudge(rng: np.random.Generator, n: int) -> Array:
    """Nothing, or a relative step of 1e-8 to 1e-1 to either side."""
    step = 10 ** rng.uniform(-8, -1, n) * rng.choice([-1, 1], n)
    return np.asarray(np.where(rng.random(n) < 0.05, 0.0, step))


def ulp_distance(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """How many numbers of their dtype, of 16 bits, lie between two tensors."""

    def ordered(x: torch.Tensor) -> torch.Tensor:
        bits = x.view(torch.int16).to(torch.int32)
        return torch.where(bits < 0, -(bits & 0x7FFF), bits)

    return (ordered(one) - ordered(other)).abs()
