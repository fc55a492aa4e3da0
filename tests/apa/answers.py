"""Right answers to exercises in several forms, and what is said of wrong ones."""

from __future__ import annotations

import math
from typing import Any

import sympy
import torch
from scipy import stats
from torch import Tensor, nn

from companion.apa.study.exercises import by_kappa, log_slope
from companion.functional import apa
from companion.study import symbolic
from companion.study.analysis import paired
from tests.study.words import NOT_EXACT


def h_as_it_stands(t: Tensor) -> Tensor:
    return (torch.log1p(t) - t / (1 + t)) / t**2


RIGHT: dict[str, list[Any]] = {
    "apa-1": [0.63, 4 ** (-1 / 3), sympy.Rational(1, 4) ** sympy.Rational(1, 3), apa(torch.tensor(0.0), 1.0, 3.0)],
    "apa-2": [
        lambda w, b, v, kappa: torch.stack([w * kappa, b * kappa, v / kappa]),
        lambda w, b, v, kappa: torch.stack([w, b, v]) * torch.stack([kappa, kappa, 1 / kappa]),
    ],
    "apa-3": [
        lambda a, b: paired(a.tolist(), b.tolist())[0].half_width,
        lambda a, b: stats.t.ppf(0.975, len(a) - 1) * stats.sem((a - b).numpy()),
    ],
    "apa-derivation-1": [
        symbolic.expand(symbolic.get("apa-log-d-lambda").rhs).subs(symbolic.lam, sympy.Symbol("lam")),
        lambda z, kappa, lam: (torch.log1p(lam * torch.exp(-kappa * z)) / lam - 1 / (lam + torch.exp(kappa * z))) / lam,
        lambda z, kappa, lam: torch.func.grad(lambda each: -torch.log1p(each * torch.exp(-kappa * z)) / each)(lam),
    ],
    "apa-derivation-2": [-1.2785, -1.27846, -1 - sympy.LambertW(sympy.exp(-1))],
    "apa-derivation-3": [
        lambda t: torch.where(
            t < 0.1, sum((n + 1) / (n + 2) * (-t.clamp(max=0.1)) ** n for n in range(8)), h_as_it_stands(t)
        ),
        lambda t: h_as_it_stands(t.double()).float(),
    ],
    "apa-kernel-1": [8, 8.0],
    "apa-kernel-2": [
        lambda z, kappa, lam: by_kappa(z, kappa, lam),
        lambda z, kappa, lam: (
            (
                z
                * torch.exp(
                    (nn.functional.logsigmoid(lam.log() - kappa * z) - lam.log()) / 2
                    - nn.functional.softplus(lam.log() - kappa * z) / lam / 2
                )
            )
            ** 2
        ),
    ],
    "apa-kernel-3": [977, 977.0, math.ceil(10**6 / 1024)],
}

#: Wrong answers, and what is said of each.
WRONG: dict[str, list[tuple[Any, str]]] = {
    "apa-1": [
        (0.5, "That is the sigmoid's height, with λ = 1."),
        (4 ** (1 / 3), "The exponent lacks its minus: a gate is never above one."),
        (1 / 64, "The exponent is −λ; it is −1/λ."),
        (-0.63, "The sign is wrong."),
        (0.65, "It is too large."),
    ],
    "apa-2": [
        (
            lambda w, b, v, kappa: torch.stack([kappa * w, b, v / kappa]),
            "The bias is forgotten: the gate sees κ times all of wx + b.",
        ),
        (lambda w, b, v, kappa: (w, b, v), "It gives a tuple; asked is a number or a tensor."),
        (
            lambda w, b, v, kappa: torch.stack([w / kappa, b / kappa, v * kappa]),
            "The scales are exchanged: the layer before multiplies by κ, the one after divides.",
        ),
        (lambda w, b, v, kappa: kappa * w, "Its shape is (); asked is (3,)."),
        (
            lambda w, b, v, kappa: torch.stack([abs(kappa) * w, abs(kappa) * b, v / abs(kappa)]),
            "It is right at 3 of the 4 points tried, and wrong elsewhere.",
        ),
    ],
    "apa-3": [
        (
            lambda a, b: 1.96 * (a - b).std() / len(a) ** 0.5,
            "With so few seeds the factor is Student's, not that of the normal law.",
        ),
        (
            lambda a, b: stats.t.ppf(0.975, len(a) - 1) * ((a.var() + b.var()) / len(a)) ** 0.5,
            "The lists are not paired: what a seed does to both is still in it.",
        ),
        (
            lambda a, b: stats.t.ppf(0.975, len(a) - 1) * (a - b).std(),
            "That is the interval of one difference, not of their mean: divide by the root of their number.",
        ),
        (
            lambda a, b: (a - b).std() / len(a) ** 0.5,
            "That is the standard error; an interval of 95 % is wider.",
        ),
        (lambda a, b: a - b, "Its shape is (5,); asked is one number."),
    ],
    "apa-derivation-1": [
        (
            lambda z, kappa, lam: -torch.exp(-kappa * z) / lam / (1 + lam * torch.exp(-kappa * z)),
            "The exponent −1/λ is held fixed: λ stands there, too.",
        ),
        (
            lambda z, kappa, lam: torch.log1p(lam * torch.exp(-kappa * z)) / lam**2,
            "The bracket is held fixed: λ stands there, too.",
        ),
        (
            lambda z, kappa, lam: 1 / (lam + torch.exp(kappa * z)),
            "That is the derivative by the product κz.",
        ),
        (lambda z, kappa, lam: -log_slope(z, kappa, lam), "The sign is wrong."),
        (sympy.Symbol("lambda"), "The formula has the symbol lambda; it may have z, kappa, lam."),
    ],
    "apa-derivation-2": [
        (-0.2785, "That is the lowest value; asked is where it lies."),
        (1.2785, "The sign is wrong."),
        (-1, "The power of e is forgotten: e to the κz is small there, but not zero."),
        (-1.28, NOT_EXACT),
        ("left of zero", "This is of type str; asked is a number."),
    ],
    "apa-derivation-3": [
        (h_as_it_stands, "That is the formula as it stands: where t is small it cancels."),
        (lambda t: 0.5 + 0 * t, "That is the first term of the series alone."),
        (lambda t: torch.log1p(t) - t / (1 + t), "The division by t² is missing."),
        (
            lambda t: h_as_it_stands(t.double()),
            "Its dtype is torch.float64; asked is torch.float32, that of the arguments.",
        ),
        (
            lambda t: sum((-1) ** n * (n + 1) / (n + 2) * t**n for n in range(8)),
            "The series is wrong where t is large: it holds below one.",
        ),
        (
            lambda t: torch.where(
                t < 0.5, sum((n + 1) / (n + 2) * (-t.clamp(max=0.5)) ** n for n in range(8)), h_as_it_stands(t)
            ),
            "It is right at 2 of the 3 points tried, and wrong elsewhere.",
        ),
    ],
    "apa-kernel-1": [
        (4, "That is the forward pass, which does not save it."),
        (16, "That is float32."),
        (6, "That is our kernel, which does not read it."),
        (9, "It is one too large."),
        (-8, "The sign is wrong."),
    ],
    "apa-kernel-2": [
        (
            lambda z, kappa, lam: (
                z * z * (1 + lam * torch.exp(-kappa * z)) ** (-1 / lam) / (lam + torch.exp(kappa * z))
            ),
            "It is zero where kappa is 0.001, and right elsewhere: does a factor underflow, or its inverse overflow?",
        ),
        (lambda z, kappa, lam: -by_kappa(z, kappa, lam), "The sign is wrong."),
        (
            lambda z, kappa, lam: by_kappa(z, lam, kappa),
            "Two arguments have changed places: kappa and lam.",
        ),
        (lambda z, kappa, lam: by_kappa(z, kappa, lam).sum(), "Its shape is (); asked is (9,)."),
        (
            lambda z, kappa, lam: by_kappa(z.double(), kappa, lam),
            "Its dtype is torch.float64; asked is torch.float32, that of the arguments.",
        ),
    ],
    "apa-kernel-3": [
        (
            976,
            "A sum for the rest is missing: the last chunk is shorter, and has one, too.",
        ),
        (10**6 / 1024, "The last chunk is shorter, and has a whole sum."),
        (978, "It is one too large."),
        (1954, "Those are the sums of κ and of λ."),
        (123, "Those are blocks; each of its eight warps leaves a sum."),
    ],
}
