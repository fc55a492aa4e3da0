"""Right answers to exercises in several forms, and what is said of wrong ones."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import sympy
import torch
from torch import Tensor, nn

from companion.dnrt.layers import ARR
from companion.dnrt.study import formulas
from companion.dnrt.study.exercises import slope_sum
from companion.functional import raa
from companion.study import exercises, symbolic
from companion.study.exercises import NO_ANSWER
from tests.study.words import FOREIGN, NOT_EXACT


def means_by_a_loop(means: Tensor, x: Tensor, target: Tensor, m: float) -> Tensor:
    means = means.clone()
    for i, k in enumerate(target):
        means[k] += m * (x[i] - means[k])
    return means


def met_by_a_loop(means: Tensor, x: Tensor, target: Tensor, m: float) -> Tensor:
    means, met = means.clone(), torch.empty_like(x)
    for i, k in enumerate(target):
        met[i] = means[k]
        means[k] += m * (x[i] - means[k])
    return met


def met_by_one_product(means: Tensor, x: Tensor, target: Tensor, m: float) -> Tensor:
    earlier = (target[:, None] == target).tril(-1)
    q = earlier.sum(1)
    keep = x.new_tensor(1 - m)
    weights = torch.where(earlier, m * keep ** (q[:, None] - q - 1).clamp(min=0), 0)
    return keep ** q[:, None] * means[target] + weights @ x


def means_by_the_module(means: Tensor, x: Tensor, target: Tensor, m: float) -> Tensor:
    arr = ARR(len(means), means.shape[1], momentum=m, init="zero")
    arr.mean.copy_(means)
    arr(x, target)
    return arr.mean.to(means)


class Tokens(nn.Module):
    """A module that is asked like a function."""

    def forward(self, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        u = x + x @ w[:, None] + b
        return x * (1 + torch.erf(u / 2**0.5)) / 2


sigma, m, some = sympy.Symbol("sigma", positive=True), sympy.Symbol("m"), sympy.Symbol("some")


mean_distance = sigma * sympy.sqrt(2 / sympy.pi)


moving_distance = mean_distance * sympy.sqrt(2 / (2 - m))


other_slope = symbolic.get("dnrt-jacobian").rhs


u_i = formulas.x[formulas.i] + formulas.c


OFFERED = exercises.exercises()["dnrt-derivation-1"].names

RIGHT: dict[str, list[Any]] = {
    "dnrt-1": [-2, -2.0, torch.tensor(-2), torch.tensor([-2.0]), np.float32(-2), sympy.Integer(-2), Fraction(-2)],
    "dnrt-2": [
        raa,
        lambda x, w, b: nn.functional.gelu(x + x @ w[:, None] + b) / (1 + (x @ w[:, None] + b) / x),
        Tokens(),
    ],
    "dnrt-3": [means_by_a_loop, means_by_the_module],
    "dnrt-derivation-1": [
        other_slope,
        formulas.w[formulas.j] * formulas.x[formulas.i] * formulas.slope(u_i),
        formulas.w[formulas.j] * formulas.x[formulas.i] * sympy.exp(-(u_i**2) / 2) / sympy.sqrt(2 * sympy.pi),
        lambda x, w, b, i, j: w[j] * x[i] * math.exp(-((x[i] + x @ w + b) ** 2) / 2) / math.sqrt(2 * math.pi),
    ],
    "dnrt-derivation-2": [mean_distance, lambda s: s * (2 / math.pi) ** 0.5],
    "dnrt-derivation-3": [moving_distance, lambda s, m: s * math.sqrt(4 / math.pi / (2 - m))],
    "dnrt-derivation-4": [44, torch.tensor(44), sympy.ceiling(sympy.log(0.01) / sympy.log(0.9))],
    "dnrt-kernel-1": [4, 4.0],
    "dnrt-kernel-2": [3, 768 // 8 / 32],
    "dnrt-kernel-3": [
        lambda g, x, c: (
            torch.einsum("nd,nd,nd->n", g, x, torch.exp(-((x + c[:, None]) ** 2) / 2)) / math.sqrt(2 * math.pi)
        )
    ],
    "arr-kernel-1": [30, 30.0],
    "arr-kernel-2": [0.081, torch.tensor(0.081)],
    "arr-kernel-3": [met_by_a_loop, met_by_one_product],
}

#: Wrong answers, and what is said of each.
WRONG: dict[str, list[tuple[Any, str]]] = {
    "dnrt-1": [
        (..., NO_ANSWER),
        (None, NO_ANSWER),
        (2, "The sign is wrong."),
        (-4, "It is twice as large as it should be."),
        (7, "It is too large."),
        (-7, "It is too small."),
        (-2.001, NOT_EXACT),
        (math.nan, "It is NaN."),
        (torch.zeros(3), "Its shape is (3,); asked is one number."),
        ("two", "This is of type str; asked is a number."),
        (True, "It gives a bool; asked is a number or a tensor."),
        (lambda: -2, "This is a function; asked is a number."),
    ],
    "dnrt-2": [
        (lambda x, w, b: ..., NO_ANSWER),
        (3, "This is of type int; asked is a function of (x, weight, bias)."),
        (
            lambda x, w, b: nn.functional.gelu(x) * (1 + b * b),
            "It is right where weight is 0 and bias is 0, and wrong elsewhere.",
        ),
        (lambda x: x, "It does not take 3 arguments; asked is a function of (x, weight, bias)."),
        (lambda x, w, b: 1 / 0, "It fails with ZeroDivisionError: division by zero"),
        (lambda x, w, b: None, "It returns None: is there a return?"),
        (lambda x, w, b: [x], "It gives a list; asked is a number or a tensor."),
        (lambda x, w, b: raa(x, w, b).mT, "It is transposed: its shape is (2, 4, 3), asked is (2, 3, 4)."),
        (
            lambda x, w, b: raa(x, w, b)[None],
            "Its shape is (1, 2, 3, 4); asked is (2, 3, 4): a dimension of size one is too many.",
        ),
        (lambda x, w, b: raa(x, w, b).sum(-1), "Its shape is (2, 3); asked is (2, 3, 4)."),
        (
            lambda x, w, b: raa(x, w, b).float(),
            "Its dtype is torch.float32; asked is torch.float64, that of the arguments.",
        ),
        (lambda x, w, b: -raa(x, w, b), "The sign is wrong."),
        (lambda x, w, b: 1.3 * raa(x, w, b), "It is right up to a constant factor."),
        (lambda x, w, b: raa(x, w, b) + 1, "It is off by the same amount everywhere."),
        (lambda x, w, b: x * raa(x, w, b), "There is a factor too many: x."),
        (lambda x, w, b: raa(x, w, b) / len(w), "A factor is missing: the size of dimension 2 of x."),
        (lambda x, w, b: raa(x, w, b) * (0 / w.sum() + 1), "It is NaN where weight is 0 and bias is 0."),
        (
            lambda x, w, b: raa(x, w, b, gate=lambda u: torch.sigmoid(1.5957691216 * (u + 0.044715 * u**3))),
            "It is near and not exact: was something rounded or approximated?",
        ),
        (lambda x, w, b: x.cos(), "It is wrong at every point tried."),
        (
            lambda x, w, b: torch.where(x < 0, raa(x, w, b), x.cos()),
            "It is nowhere right as a whole: 87 of 164 numbers are.",
        ),
        (lambda x, w, b: torch.zeros_like(x), "It is zero everywhere."),
        (lambda x, b, w: raa(x, w, b), "Two arguments have changed places: weight and bias."),
    ],
    "dnrt-derivation-4": [
        (-22, "The sign is wrong. It is half of what it should be."),
        (45, "It is one too large."),
        (43.7, "There it weighs exactly a hundredth. Samples are whole, and it is to weigh less."),
        (43.5, "It is too small."),
    ],
    "dnrt-derivation-1": [
        (formulas.x[formulas.i] * sympy.Symbol("x_j"), f"{FOREIGN} x_j; it may have {OFFERED}."),
        (formulas.x[formulas.k], f"{FOREIGN} k; it may have {OFFERED}."),
    ],
    "dnrt-derivation-2": [
        (0 * sigma, "It is zero everywhere."),
        (mean_distance / sigma, "A factor is missing: sigma."),
        (-mean_distance * sigma, "There is a factor too many: sigma. And the sign is wrong."),
        (2 * mean_distance, "It is twice as large as it should be."),
        (mean_distance / sympy.sqrt(sigma), "A factor is missing: the square root of sigma."),
        (mean_distance + sigma - 1, "It is right where sigma is 1, and wrong elsewhere."),
        (some, "The formula has the symbol some; it may have sigma."),
        (lambda sigma: 0.798 * sigma, NOT_EXACT),
        (1.3 * mean_distance, "It is right up to a constant factor."),
    ],
    "dnrt-derivation-3": [
        (lambda sigma, m: 0.0, "It is zero everywhere."),
        (1.026 * mean_distance, "It is near, not exact, where m is 0.1, and wrong elsewhere."),
        (mean_distance * sympy.sqrt(1 + m**3), "It is right where m is 1, and wrong elsewhere."),
        (
            lambda m, sigma: sigma * math.sqrt(4 / math.pi / (2 - m)),
            "Two arguments have changed places: sigma and m.",
        ),
        (
            lambda m, sigma: sigma * math.sqrt(4 / math.pi / (2 - m)) / (m != 1.5),
            "Two arguments have changed places: sigma and m.",
        ),
        (some, f"{FOREIGN} some; it may have sigma, m."),
    ],
    "dnrt-kernel-3": [
        (
            lambda g, x, c: (g * x * torch.exp(-((x + c[:, None]) ** 2) / 2)).sum(1),
            "It is too large by a factor of the square root of two pi.",
        ),
        (
            lambda g, x, c: (g * x * torch.exp(-((x + c[:, None]) ** 2)) / math.sqrt(2 * math.pi)).sum(1),
            "The exponent of the slope lacks its half.",
        ),
        (
            lambda g, x, c: (g * x * torch.exp((x + c[:, None]) ** 2 / 2) / math.sqrt(2 * math.pi)).sum(1),
            "The exponent of the slope lacks its minus.",
        ),
        (
            lambda g, x, c: slope_sum(g, x, c)[:, None],
            "Its shape is (2, 1); asked is (2,): a dimension of size one is too many.",
        ),
    ],
}

#: Likely small numbers that have words of their own.
SMALL: dict[str, tuple[float, ...]] = {
    "arr-kernel-1": (3, 10, 256, 738, 768),
    "dnrt-kernel-1": (1, 2, 6, 8, 12, 16, 28, 32, 1536, 3072),
    "dnrt-kernel-2": (1, 2, 4, 6, 8, 12, 24, 32, 96),
}
