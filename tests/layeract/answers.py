"""Right answers to exercises in several forms, and what is said of wrong ones."""

from __future__ import annotations

import math
from typing import Any

import sympy
import torch
from torch import Tensor, nn

from companion.functional import la_silu
from companion.layeract.layers import LASiLU
from companion.layeract.study.exercises import UNITS, causal, joined, padded
from tests.study.words import CHANGED, DTYPE, FOREIGN


def silu_of_tokens(y: Tensor) -> Tensor:
    n = (y - y.mean(-1, keepdim=True)) / torch.sqrt(y.var(-1, correction=0, keepdim=True) + 1e-5)
    return y * torch.sigmoid(n)


def causal_by_sums(y: Tensor) -> Tensor:
    count = y.shape[1] * torch.arange(1, len(y) + 1)[:, None]
    mean = y.sum(1, keepdim=True).cumsum(0) / count
    variance = (y**2).sum(1, keepdim=True).cumsum(0) / count - mean**2
    return y / (1 + torch.exp(-(y - mean) / torch.sqrt(variance + 1e-5)))


def padded_by_loop(y: Tensor, valid: Tensor) -> Tensor:
    a = torch.zeros_like(y)
    for i, k in valid.nonzero():
        a[i, k] = la_silu(y[i, k])
    return a


def joined_by_two(mean: Tensor, squares: Tensor, length: Tensor) -> Tensor:
    # Chan's formula for two chunks, again and again
    d, m, s = length[0], mean[0], squares[0]
    for k, other, more in zip(length[1:], mean[1:], squares[1:], strict=True):
        s = s + more + (other - m) ** 2 * d * k / (d + k)
        m, d = m + (other - m) * k / (d + k), d + k
    return torch.stack([m, s / d])


def restless_by_autograd(y: Tensor) -> Tensor:
    return torch.autograd.functional.jacobian(la_silu, y).abs().sum(0)


def restless_by_trial(y: Tensor) -> Tensor:
    step = 1e-6
    return torch.stack(
        [(la_silu(y + step * e) - la_silu(y - step * e)).abs().sum() / (2 * step) for e in torch.eye(len(y)).double()]
    )


OF_ARGUMENTS = "asked is torch.float64, that of the arguments."

RIGHT: dict[str, list[Any]] = {
    "layeract-1": [silu_of_tokens, lambda y: la_silu(y, dims=-1), LASiLU(dims=-1)],
    "layeract-2": [4, 4.0, UNITS // 10, sympy.floor(sympy.Rational(UNITS, 10))],
    "layeract-3": [causal_by_sums],
    "layeract-derivation-1": [0.67, 1 / (1 + math.exp(-(0.5**0.5))), 1 / (1 + sympy.exp(-1 / sympy.sqrt(2)))],
    "layeract-derivation-2": [lambda t: 1 / t, 1 / sympy.Symbol("t"), 1 / sympy.Symbol("t", positive=True)],
    "layeract-derivation-3": [padded_by_loop],
    "layeract-derivation-4": [-0.3324, -math.erf(3 / 2**0.5) / 3, -sympy.erf(3 / sympy.sqrt(2)) / 3],
    "layeract-noise-1": [0.589, 0.5888, 1 / (1 + math.exp(-0.8 / 4.96**0.5))],
    "layeract-noise-2": [lambda t: 2 * t, 2 * sympy.Symbol("t")],
    "layeract-noise-3": [restless_by_autograd, restless_by_trial],
    "layeract-kernel-1": [10, 10.0, 5 * torch.bfloat16.itemsize],
    "layeract-kernel-2": [0.003906, 2**-8, 2.0**16 * 2**-24],
    "layeract-kernel-3": [joined_by_two],
}

#: Wrong answers, and what is said of each.
WRONG: dict[str, list[tuple[Any, str]]] = {
    "layeract-2": [
        (3, "It is one too small."),
        (5, "That is more than a tenth."),
        (4.5, "Units are whole."),
        (22, "That is half of them, as ReLU closes in a symmetric row; here a tenth is the limit."),
        (30, "It is too large."),
    ],
    "layeract-1": [
        (la_silu, "The tokens of a sequence share one row: a gate sees the tokens after it."),
        (
            lambda y: nn.functional.silu(nn.functional.layer_norm(y, y.shape[-1:])),
            "The gate multiplies n; it multiplies y. That is SiLU after LayerNorm.",
        ),
        (
            lambda y: y * torch.sigmoid((y - y.mean(-1, keepdim=True)) / y.std(-1, correction=0, keepdim=True)),
            "α is missing: a row of equal numbers is zero over zero.",
        ),
        (lambda y: la_silu(y, dims=-1).float(), f"{DTYPE} torch.float32; {OF_ARGUMENTS}"),
        (lambda y: la_silu(y, dims=-1).sum(-1), "Its shape is (2, 3); asked is (2, 3, 4)."),
    ],
    "layeract-3": [
        (lambda y: la_silu(y[None])[0], "Every token sees the whole sequence, also what comes after it."),
        (lambda y: la_silu(y), "A token sees itself alone; it may see those before it, too."),
        (
            lambda y: causal(y)[-1],
            "Its shape is (4,); asked is (1, 4): a dimension of size one is missing.",
        ),
        (
            lambda y: torch.where(y == y[0], causal(y), 0 * y),
            "It is right at 1 of the 4 points tried, and wrong elsewhere.",
        ),
        (lambda y: -causal(y), "The sign is wrong."),
    ],
    "layeract-derivation-1": [
        (0.731, "That is with D = d; asked is D = d − 1."),
        (0.33, "That is the gate of the smaller one."),
        (0.707, "That is n; the gate is the sigmoid of it."),
        (0.6, "It is too small."),
        (sympy.Symbol("D"), f"{FOREIGN} D; it may have none."),
    ],
    "layeract-derivation-2": [
        (lambda t: t, "It is upside down."),
        (lambda t: 1 / (1 + t**2), "That is the bound; asked is the c that gives it."),
        (lambda t: 1.3 / t, "It is right up to a constant factor."),
        (sympy.Symbol("some"), f"{FOREIGN} some; it may have t."),
        (1 / 3, "This is of type float; asked is a function of (t)."),
    ],
    "layeract-derivation-3": [
        (
            lambda y, valid: la_silu(y, dims=-1) * valid[..., None],
            "Zero times NaN is NaN: choose with torch.where, do not multiply.",
        ),
        (lambda y, valid: la_silu(y, dims=-1), "The padding is not zero."),
        (
            lambda y, valid: torch.where(valid[..., None], la_silu(y, dims=-1), 0.0),
            "Its values are right, and its gradient is NaN: what does not count has to leave before the computation, "
            "and not only its result.",
        ),
        (
            lambda y, valid: padded(y.detach(), valid),
            "Its values are right, and it has no gradient: compute with torch, and detach nothing.",
        ),
        (
            lambda y, valid: padded((y + y.detach()) / 2, valid),
            "Its values are right, and its gradient is not.",
        ),
        (lambda valid, y: padded(y, valid), f"{CHANGED} y and valid."),
        (lambda y: y, "It does not take 2 arguments; asked is a function of (y, valid)."),
        (lambda y, valid: 2 * padded(y, valid), "It is twice as large as it should be."),
    ],
    "layeract-derivation-4": [
        (-0.4132, "That is LA-SiLU's place; asked is LA-HardSiLU's."),
        (
            -0.1662,
            "That balances a whole mean; only half of a row's mean arrives in the output.",
        ),
        (
            -1 / 3,
            "That counts a slope of one sixth everywhere; beyond three deviations there is none.",
        ),
        (0.3324, "The sign is wrong."),
        (-0.5, "It is too small."),
    ],
    "layeract-noise-1": [
        (0.69, "The variance moves, too."),
        (0.6104, "The mean moves, too."),
        (0.359, "That is n; the gate is the sigmoid of it."),
        (0.731, "So far it was open before the cry."),
        (0.9, "It is too large."),
    ],
    "layeract-noise-2": [
        (lambda t: t**2, "That is the variance of the noise; asked is what is missing beside it."),
        (lambda t: 4 * t, "It is twice as large as it should be."),
        (2.0, "This is of type float; asked is a function of (t)."),
    ],
    "layeract-noise-3": [
        (
            lambda y: torch.autograd.functional.jacobian(la_silu, y).abs().sum(1),
            "That is how much each output moves; add up the outputs for each input: the other dimension.",
        ),
        (
            lambda y: torch.autograd.functional.jacobian(la_silu, y).abs().sum(0).max(),
            "Its shape is (); asked is (3,).",
        ),
    ],
    "layeract-kernel-1": [
        (7, "It is too small."),
        (11, "It is one too large."),
        (30, "It is three times as large as it should be."),
        (-10, "The sign is wrong."),
        ("10", "This is of type str; asked is a number."),
    ],
    "layeract-kernel-2": [
        (
            2**-7,
            "That is the distance of neighbours; the nearer one is half of it away at most.",
        ),
        (2**-11, "That is a mean of ten thousand deviations; asked is ten times that."),
        (1e5, "It is too large."),
        (
            1e5 * 2**-24,
            "That is a bound for any number of this size; the neighbours of this one are nearer.",
        ),
        (0.0, "It is too small."),
    ],
    "layeract-kernel-3": [
        (
            lambda mean, squares, length: joined(mean, 0 * squares, length),
            "That is the spread of the chunks' means alone; within the chunks there is one, too.",
        ),
        (
            lambda mean, squares, length: joined(mean, squares, length) * length.sum() / (length.sum() - 1),
            "It is wrong at every point tried.",
        ),
        (
            lambda squares, mean, length: joined(mean, squares, length),
            f"{CHANGED} mean and squares.",
        ),
        (lambda mean, squares, length: mean, "Its shape is (3,); asked is (2,)."),
        (
            lambda mean, squares, length: joined(mean, squares, length)[1],
            "Its shape is (); asked is (2,).",
        ),
    ],
}

#: Likely small numbers that have words of their own.
SMALL: dict[str, tuple[float, ...]] = {
    "layeract-2": (0, 4.5, 5, 22, 41, 44, 45),
    "layeract-kernel-1": (2, 4, 5, 6, 8, 12, 20, 80),
}
