"""Right answers to exercises in several forms, and what is said of wrong ones."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import sympy
import torch
from torch import Tensor, nn

from companion.dac.layers import DACConv2d
from companion.dac.study.constructions import replicated
from companion.dac.study.exercises import AT, BIASES, WEIGHTS, bias_gradient, input_gradient
from companion.functional import dac_linear
from tests.study.words import CHANGED, FOREIGN


def dac_by_loops(z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    f = z.new_zeros(len(z), len(weight))
    for i in range(len(weight)):
        for j in range(z.shape[1]):
            f[:, i] += weight[i, j] * torch.clamp(bias[i, j] + z[:, j], min=0)
    return f


def blocks(weight: Tensor) -> Tensor:
    n, m = weight.shape
    matrix = weight.new_zeros(n, n * m)
    for k in range(n):
        matrix[k, k * m : (k + 1) * m] = weight[k]
    return matrix


def dac_back_by_loops(g: Tensor, z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    back = torch.zeros_like(z)
    padded = nn.functional.pad(g, (1, 1, 1, 1))
    height, width = z.shape[1:]
    for a in range(3):
        for c in range(3):
            # the output at q − p, with the middle of the kernel at 1
            there = padded[:, 2 - a : 2 - a + height, 2 - c : 2 - c + width]
            on = z + bias[:, :, None, None] > 0
            back += (there[:, None] * weight[:, :, a, c, None, None] * on).sum(0)
    return back


def joined_by_cases(weight: Tensor, bias: Tensor, c: Tensor) -> Tensor:
    biases, constants = torch.zeros_like(weight), weight.new_zeros(len(weight), 1)
    for i, j in torch.cartesian_prod(*map(torch.arange, weight.shape)).reshape(-1, 2).tolist():
        biases[i, j] = c[j] + min(bias[i, j].item(), 0.0)
        constants[i] += weight[i, j] * max(bias[i, j].item(), 0.0)
    return torch.cat([biases, constants], 1)


p, q, r = sympy.symbols("p q r")
w, b = sympy.symbols("w b")


RIGHT: dict[str, list[Any]] = {
    "dac-1": [
        -1.5,
        2 - 3.5,
        sympy.Rational(-3, 2),
        sum(w for w, b in zip(WEIGHTS, BIASES, strict=True) if AT + b > 0),
        (lambda f: (f(0.6) - f(0.4)) / 0.2)(
            lambda x: replicated(
                torch.tensor(x).double(), torch.tensor(WEIGHTS).double(), torch.tensor(BIASES).double()
            )
        ),
    ],
    "dac-2": [dac_by_loops, dac_linear, lambda z, weight, bias: ((z[:, None] + bias).relu() * weight).sum(2)],
    "dac-3": [blocks, lambda weight: torch.block_diag(*weight)],
    "dac-derivation-1": [7, 7.0, 5 + 2, sympy.Integer(7)],
    "dac-derivation-2": [p + q - r, lambda p, q, r: p - r + q, lambda p, q, r: torch.tensor(p + q - r)],
    "dac-derivation-3": [
        bias_gradient,
        lambda g, x, weight, bias: (
            g[:, :, None, None] * weight * torch.heaviside(x[:, None] + bias[:, :, None], torch.zeros(()).double())
        ).sum((0, 3)),
    ],
    "dac-conversion-1": [1.5, Fraction(3, 2), 7 / 2 - 2],
    "dac-conversion-2": [5 * w * b, lambda w, b: w * b * (9 - 4)],
    "dac-conversion-3": [
        joined_by_cases,
        lambda weight, bias, c: torch.cat([torch.minimum(c + bias, c), (weight * bias.relu()).sum(1)[:, None]], 1),
    ],
    "dac-kernel-1": [46_080, 48 * 96 * 10.0, sum(each.numel() for each in DACConv2d(48, 96, 3).parameters())],
    "dac-kernel-2": [6272, 64 * 512 * 512 * 196 * 2 / 2**20, Fraction(6272)],
    "dac-kernel-3": [input_gradient, dac_back_by_loops],
}

#: Wrong answers, and what is said of each.
WRONG: dict[str, list[tuple[Any, str]]] = {
    "dac-1": [
        (2.5, "That is the slope where all three wires are on; here one of them is off."),
        (3.25, "That is the value; asked is the slope."),
        (1.5, "The sign is wrong."),
        (0.5, "A wire is on where x + b is above zero, not where x is above b."),
        (-1.6, "It is too small."),
        ("falls", "This is of type str; asked is a number."),
    ],
    "dac-2": [
        (lambda z, weight, bias: z.relu() @ weight.T, "The biases are missing."),
        (
            lambda z, weight, bias: ((z[:, None] + bias) * weight).sum(-1).relu(),
            "The ReLU stands behind the sum; every connection has its own.",
        ),
        (lambda z, weight, bias: (z[:, None] + bias).relu().sum(-1), "The weight is missing."),
        (
            lambda z, weight, bias: (z @ weight.T + bias.sum(1)).relu(),
            "That is the usual layer: the ReLU stands behind the sum, with one bias for each receiver.",
        ),
        (
            lambda z, weight, bias: z.relu() @ weight.T + bias.sum(1),
            "The ReLU sees the signal without its bias.",
        ),
        (
            lambda z, weight, bias: (z + bias[0]).relu() @ weight.T,
            "All receivers use the biases of the first one.",
        ),
        (
            lambda z, weight, bias: dac_linear(z, weight, bias).T,
            "It is transposed: its shape is (2, 3), asked is (3, 2).",
        ),
        (
            lambda z, weight, bias: (z[:, None] + bias).relu() * weight,
            "Its shape is (3, 2, 4); asked is (3, 2).",
        ),
        (lambda z, weight, bias: 2 * dac_linear(z, weight, bias), "It is twice as large as it should be."),
        (lambda z, bias, weight: dac_linear(z, weight, bias), f"{CHANGED} weight and bias."),
    ],
    "dac-3": [
        (lambda weight: weight, "Its shape is (2, 3); asked is (2, 6)."),
        (
            lambda weight: blocks(weight).T,
            "It is transposed: its shape is (6, 2), asked is (2, 6).",
        ),
        (
            lambda weight: torch.cat([weight] * len(weight), 1),
            "Every unit listens to all copies; unit i hears copy i alone.",
        ),
        (
            lambda weight: blocks(weight).ne(0).double(),
            "The right places are found; the weights are those of the layer, not ones.",
        ),
        (
            lambda weight: torch.stack(
                [torch.kron(row, unit) for row, unit in zip(weight, torch.eye(len(weight)).double(), strict=True)]
            ),
            "The copies lie one after the other, each with all inputs; here the copies of one input lie together.",
        ),
    ],
    "dac-derivation-1": [
        (5, "That is the value at zero; the second hinge has begun by then."),
        (-9, "That is the weight of the second hinge."),
        (3, "At x = −1 the line is higher than at zero: it falls."),
        (3.5, "The first hinge has one unit of x to climb, not two."),
        (-7, "The sign is wrong."),
        (sympy.Symbol("b"), f"{FOREIGN} b; it may have none."),
    ],
    "dac-derivation-2": [
        (r, "It need not be the same at both high corners."),
        (r - p - q, "The sign is turned."),
        (p + q + r, "That is a sum of three; the fourth stands on the side of r."),
        (
            lambda p, q, r: p + r - q,
            "That holds with the corners exchanged: (0, 0) and (1, 1) stand on one side.",
        ),
        (sympy.Symbol("x"), f"{FOREIGN} x; it may have p, q, r."),
        (1, "This is of type int; asked is a function of (p, q, r)."),
    ],
    "dac-derivation-3": [
        (
            lambda g, x, weight, bias: torch.einsum(
                "ri,imc,rimc->im", g, weight, (x[:, None] + bias[..., None] >= 0).double()
            ),
            "At the kink the slope is 0 here, as PyTorch takes it.",
        ),
        (
            lambda g, x, weight, bias: torch.einsum("ri,rimc->im", g, (x[:, None] + bias[..., None] > 0).double()),
            "The weight is missing.",
        ),
        (
            lambda g, x, weight, bias: g.T @ torch.ones(len(g), x.shape[1]).double() * weight.sum(-1),
            "The mask is missing: only connections that are on pass something.",
        ),
        (
            lambda g, x, weight, bias: bias_gradient(g, x, weight, bias) / len(g),
            "The samples are averaged; they are added up.",
        ),
        (
            lambda g, x, weight, bias: 2 * bias_gradient(g, x, weight, bias),
            "It is twice as large as it should be.",
        ),
        (
            lambda g, x, weight, bias: bias_gradient(g, x, weight, bias).T,
            "It is transposed: its shape is (3, 2), asked is (2, 3).",
        ),
    ],
    "dac-conversion-1": [
        (3.5, "That comes out with ReLU in front of the pool; asked is by how much it falls."),
        (2, "That comes out with ReLU behind the pool; asked is by how much it falls."),
        (1, "The bias is missing."),
        (0, "So it is with max pooling."),
        (3, "It is twice as large as it should be."),
        (-1.5, "The sign is wrong."),
    ],
    "dac-conversion-2": [
        (4 * w * b, "Those are the positions inside."),
        (lambda w, b: 3 * w * b, "That is in the middle of an edge; at a corner more of the kernel lies outside."),
        (-5 * w * b, "The sign is wrong."),
        (5 * w, "The bias is missing: each position contributes w φ(b)."),
        (p, f"{FOREIGN} p; it may have w, b."),
    ],
    "dac-conversion-3": [
        (
            lambda weight, bias, c: torch.cat([bias.clamp(max=0) + c, torch.zeros(len(weight), 1).double()], 1),
            "The constants are missing.",
        ),
        (
            lambda weight, bias, c: torch.cat([bias.clamp(max=0) + c, (weight * bias).sum(1, keepdim=True)], 1),
            "Only a bias above zero leaves a constant.",
        ),
        (lambda weight, bias, c: bias.clamp(max=0) + c, "Its shape is (2, 3); asked is (2, 4)."),
        (lambda weight, bias, c: -joined_by_cases(weight, bias, c), "The sign is wrong."),
    ],
    "dac-kernel-1": [
        (41_472, "Those are the weights alone."),
        (41_568, "That has a bias for each output; here each pair has one."),
        (
            82_944,
            "That has a bias for each weight; here the nine positions of a pair share one.",
        ),
        (46_081, "It is one too large."),
        (92_160, "It is twice as large as it should be."),
    ],
    "dac-kernel-2": [
        (12_544, "That is float32."),
        (56_448, "The nine positions of a kernel look at the same activation."),
        (12.25, "That is the input alone: each receiver bends it by itself."),
        (6576.668672, "Those are units of a million bytes; a MiB is a little more."),
        (98, "That is one image; asked is the batch."),
        (7000, "It is too large."),
    ],
    "dac-kernel-3": [
        (
            lambda g, z, weight, bias: nn.functional.conv_transpose2d(g[None], weight, padding=1)[0],
            "The mask is missing: where z + b is not above 0, nothing passes.",
        ),
        (
            lambda g, z, weight, bias: nn.functional.conv_transpose2d(g[None], weight, padding=1)[0] * (z > 0),
            "The mask looks at z alone; each output has its own bias.",
        ),
        (
            lambda g, z, weight, bias: dac_back_by_loops(g, z, weight.flip(-1, -2), bias),
            "The kernel is turned round: the pixel q gets what g has at q − p, with p the position.",
        ),
        (
            lambda g, z, weight, bias: dac_back_by_loops(g, z, weight, -bias),
            "The bias has the wrong sign in the mask.",
        ),
        (lambda g, z, weight, bias: g, "Its shape is (2, 4, 5); asked is (3, 4, 5)."),
        (
            lambda g, z, weight, bias: -dac_back_by_loops(g, z, weight, bias),
            "The sign is wrong.",
        ),
    ],
}

#: Likely small numbers that have words of their own.
SMALL: dict[str, tuple[float, ...]] = {
    "dac-conversion-1": (0, 0.5, 1, 2, 3.5),
    "dac-derivation-1": (-9, -2, 3, 3.5, 5, 9),
}
