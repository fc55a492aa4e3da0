"""Right answers to exercises in several forms, and what is said of wrong ones."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import sympy
import torch
from torch import Tensor, nn

from companion.multi_argument.layers import Quadratic
from tests.study.words import FOREIGN, NOT_EXACT


def delta_by_autograd(grad: Tensor, h: Tensor, z: Tensor, w: Tensor, c: Tensor) -> Tensor:
    # any u whose ReLU is h, with slope 0 where h is 0
    u = torch.where(h > 0, h, -1.0).requires_grad_()
    second = z + (u.relu() - h) @ w.mT
    return torch.autograd.grad((grad[:, None] * c * second.relu()).sum(), u)[0]


def quadratic_by_a_loop(x: Tensor, c: Tensor) -> Tensor:
    pairs = [(x[:, k], x[:, k + 1]) for k in range(0, x.shape[1], 2)]
    return torch.stack([c @ torch.stack([a * a, b * b, a * b, a, b, torch.ones_like(a)]) for a, b in pairs], 1)


class Corners(nn.Module):
    """GELU falls before it rises, so it parts the corners of XOR, too."""

    def forward(self, t: Tensor) -> Tensor:
        low, high = (nn.functional.gelu(each - 0.75) for each in (torch.zeros(()).double(), t))
        return torch.where(high > low, 1.0, -1.0).double()


RIGHT: dict[str, list[Any]] = {
    "multi-argument-1": [
        lambda c: 2 * c[2],
        lambda c: (c[0] + c[1] + c[2] + c[5]) - (c[0] + c[1] - c[2] + c[5]),
    ],
    "multi-argument-2": [
        quadratic_by_a_loop,
        lambda x, c: Quadratic(coefficients=c.tolist(), dtype=x.dtype)(x),
    ],
    "multi-argument-3": [12_928, 12_928.0, nn.Linear(100, 128).weight.numel() + 128],
    "multi-argument-derivation-1": [1217, 1217.0, 4 * 32 + 33 * 32 + 33],
    "multi-argument-derivation-2": [
        lambda t: t**2 / 2 - 1,
        lambda t: abs(t) - 1,
        lambda t: -math.cos(math.pi * t / 2),
        lambda t: 1 if t * t > 1 else -1,
        sympy.Symbol("t") ** 2 / 2 - 1,
        torch.nn.Sequential(Corners()),
    ],
    "multi-argument-derivation-3": [
        1 / (16 * math.pi**2) - 1 / 64,
        -0.0093,
        1 / (16 * sympy.pi**2) - sympy.Rational(1, 64),
    ],
    "multi-argument-kernel-1": [4352, 4352.0, 64 * (3 + 64 + 1)],
    "multi-argument-kernel-2": [960, 32 * 60 * 1024 * 512 / 2**20, Fraction(960)],
    "multi-argument-kernel-3": [
        lambda grad, h, z, w, c: torch.einsum("n,nj,j,ji->ni", grad, (z > 0).double(), c, w) * h.sign(),
        delta_by_autograd,
        lambda grad, h, z, w, c: (grad.outer(c) * torch.where(z > 0, 1.0, 0.0)) @ w * (h != 0),
    ],
}

#: Wrong answers, and what is said of each.
WRONG: dict[str, list[tuple[Any, str]]] = {
    "multi-argument-1": [
        (lambda c: 4 * c[2], "That is the difference of the sums; asked is that of the means."),
        (
            lambda c: c[2],
            "That is half of it: the product is 1 on one diagonal, −1 on the other.",
        ),
        (lambda c: -2 * c[2], "The sign is wrong: asked is green less pink."),
        (
            lambda c: c[0] * c[1] - c[2] ** 2 / 4,
            "That is the curvature K; it does not decide it.",
        ),
        (lambda c: 2 * c[0], "It is wrong at every point tried."),
        (2, "This is of type int; asked is a function of (c)."),
    ],
    "multi-argument-2": [
        (
            lambda x, c: quadratic_by_a_loop(torch.stack(x.chunk(2, 1), -1).flatten(1), c),
            "The arguments of a unit stand side by side; here they come from two halves.",
        ),
        (
            lambda x, c: quadratic_by_a_loop(x, c) - c[5],
            "The constant c₆ is missing.",
        ),
        (
            lambda x, c: quadratic_by_a_loop(x, c[[1, 0, 2, 4, 3, 5]]),
            "The two arguments have changed places.",
        ),
        (lambda x, c: quadratic_by_a_loop(x, c).mean(1), "Its shape is (3,); asked is (3, 2)."),
        (lambda x: x, "It does not take 2 arguments; asked is a function of (x, c)."),
    ],
    "multi-argument-3": [
        (64 * 101, "That is for units with one argument."),
        (128 * 100, "The biases are missing."),
        (128 * 100 + 64, "That has one bias for each unit; each of its two sums has one."),
        (128 * 100 + 100, "That has a bias for each input; each sum has one."),
        (128 * 101 + 4417, "The inner network is counted, too; asked is the linear layer."),
    ],
    "multi-argument-derivation-1": [
        (1218, "It is one too large."),
        (-1217, "The sign is wrong."),
        (4417, "It is too large."),
        ("64n + 4289", "This is of type str; asked is a number."),
        (sympy.Symbol("n"), f"{FOREIGN} n; it may have none."),
    ],
    "multi-argument-derivation-2": [
        (1, "This is of type int; asked is a function of (t)."),
        (
            lambda x1, x2: x1 * x2,
            "It does not take 1 arguments; asked is a function of (t).",
        ),
        (
            lambda t: t / 2,
            "It rises from corner to corner; a function with these values must fall and rise.",
        ),
        (lambda t: t**2 / 2 + 3, "It is off by the same amount everywhere."),
        (lambda t: torch.tanh(t), "It is wrong at every point tried."),
        (lambda t: t**2 - 2, "It is twice as large as it should be."),
        (
            lambda t: torch.where(t > 0, 1.0, -1.0).double(),
            "It is right at 2 of the 3 points tried, and wrong elsewhere.",
        ),
        (sympy.Symbol("x"), f"{FOREIGN} x; it may have t."),
    ],
    "multi-argument-derivation-3": [
        (-0.0183, "It is too small."),
        (-0.00935, NOT_EXACT),
        (0.0, "It is too large."),
        (math.nan, "It is NaN."),
        (lambda x: x, "This is a function; asked is a number."),
    ],
    "multi-argument-kernel-1": [
        (4353, "It is one too large."),
        (-4352, "The sign is wrong."),
        (64 * 2 + 64 * 64, "It is too small."),
        ("4352", "This is of type str; asked is a number."),
        (lambda: 64 * 68, "This is a function; asked is a number."),
    ],
    "multi-argument-kernel-2": [
        (15, "Those are the bytes of the arguments; asked are those of the hidden numbers."),
        (1006.63296, "Those are units of a million bytes; a MiB is a little more."),
        (961, "It is one too large."),
        (1000, "It is too large."),
        (96, "It is a tenth of what it should be."),
    ],
    "multi-argument-kernel-3": [
        (
            lambda grad, h, z, w, c: grad[:, None] * (c * (z > 0)) @ w,
            "The slope of the first ReLU is missing: where h is 0, nothing passes.",
        ),
        (
            lambda grad, h, z, w, c: (grad[:, None] * (c @ w)) * (h > 0),
            "The slope of the second ReLU is missing: where z is not above 0, nothing passes.",
        ),
        (
            lambda grad, h, z, w, c: (w @ (grad[:, None] * (z > 0) * c).T).T * (h > 0),
            "The matrix w is transposed: the sum runs over j, its rows.",
        ),
        (
            lambda grad, h, z, w, c: ((grad[:, None] * (z > 0) * c) @ w * (h > 0)).T,
            "It is transposed: its shape is (3, 2), asked is (2, 3).",
        ),
        (
            lambda grad, z, h, w, c: (grad[:, None] * (z > 0) * c) @ w * (h > 0),
            "Two arguments have changed places: h and z.",
        ),
        (
            lambda grad, h, z, w, c: h,
            "It is nowhere right as a whole: 20 of 50 numbers are.",
        ),
    ],
}

#: Likely small numbers that have words of their own.
SMALL: dict[str, tuple[float, ...]] = {
    "multi-argument-kernel-1": (192, 4096, 4160, 4288, 4481, 8576, 8704),
    "multi-argument-kernel-2": (7.5, 15, 30, 60, 240, 480, 1920),
}
