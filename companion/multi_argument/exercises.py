"""The exercises on the pages of two-argument neurons: right answers, and mistakes that have words of their own."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from companion.exercises import Exercise
from companion.multi_argument.counts import inner_parameters
from companion.multi_argument.kernel import HIDDEN
from companion.multi_argument.op import quadratic_form

__all__ = ["EXERCISES"]

# --- page multi-argument ----------------------------------------------------------------------------------------------

#: Corners of XOR: arguments that agree, and that differ.
AGREE, DIFFER = ((-1.0, -1.0), (1.0, 1.0)), ((-1.0, 1.0), (1.0, -1.0))


def forms() -> Iterator[tuple[Tensor]]:
    """Six coefficients."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        yield (torch.randn(6, dtype=torch.float64, generator=generator),)


def _on(corners: tuple[tuple[float, float], ...], c: Tensor) -> Tensor:
    return quadratic_form(torch.tensor(corners, dtype=c.dtype), c, 2)[:, 0]


def apart(c: Tensor) -> Tensor:
    """How far the mean over the corners that agree is above that over those that differ."""
    return _on(AGREE, c).mean() - _on(DIFFER, c).mean()


def layers() -> Iterator[tuple[Tensor, Tensor]]:
    """x (N, 2 · units) and six coefficients."""
    generator = torch.Generator().manual_seed(1)
    for many, units in ((3, 2), (2, 4), (5, 3)):
        x = torch.randn(many, 2 * units, dtype=torch.float64, generator=generator)
        yield x, torch.randn(6, dtype=torch.float64, generator=generator)


def quadratic(x: Tensor, c: Tensor) -> Tensor:
    """The quadratic of neighbours."""
    return quadratic_form(x, c, 2)


def _halves(x: Tensor, c: Tensor) -> Tensor:
    """The first half of the numbers with the second."""
    return quadratic_form(torch.stack(x.chunk(2, 1), -1).flatten(1), c, 2)


def _with(c: Tensor, **changed: Tensor) -> Tensor:
    """Coefficients of which some are others: c1 = …"""
    return torch.stack([changed.get(f"c{k}", each) for k, each in enumerate(c, 1)])


#: Of the third exercise.
INPUTS, UNITS = 100, 64


def parameters_of(sums: int, inputs: int, biases: int) -> int:
    """Weights and biases of a linear layer."""
    return sums * inputs + biases


ON_THE_FIRST_PAGE = (
    Exercise(
        "multi-argument-1",
        apart,
        forms,
        mistakes={
            "That is the difference of the sums; asked is that of the means.": lambda c: 2 * apart(c),
            "That is one mean alone: take the other one away.": lambda c: _on(AGREE, c).mean(),
            "That is the mean where the arguments differ; asked is the other one less this one.": (
                lambda c: _on(DIFFER, c).mean()
            ),
            "The sign is wrong: asked is green less pink.": lambda c: -apart(c),
            "That is half of it: the product is 1 on one diagonal, −1 on the other.": lambda c: apart(c) / 2,
            "That is the curvature K; it does not decide it.": lambda c: c[0] * c[1] - c[2] ** 2 / 4,
            "That is the value of one corner less that of one other: the linear terms are still in it.": (
                lambda c: _on(AGREE, c)[1] - _on(DIFFER, c)[0]
            ),
        },
    ),
    Exercise(
        "multi-argument-2",
        quadratic,
        layers,
        mistakes={
            "The arguments of a unit stand side by side; here they come from two halves.": _halves,
            "The product has no weight: c₃ is missing.": lambda x, c: quadratic(x, _with(c, c3=c.new_ones(()))),
            "The product is missing.": lambda x, c: quadratic(x, _with(c, c3=c.new_zeros(()))),
            "The constant c₆ is missing.": lambda x, c: quadratic(x, _with(c, c6=c.new_zeros(()))),
            "The linear terms are missing.": (
                lambda x, c: quadratic(x, _with(c, c4=c.new_zeros(()), c5=c.new_zeros(())))
            ),
            "The product counts twice, as in the square of a sum; here its weight is c₃.": (
                lambda x, c: quadratic(x, _with(c, c3=2 * c[2]))
            ),
            "The two arguments have changed places.": lambda x, c: quadratic(x, c[[1, 0, 2, 4, 3, 5]]),
            "The weights of the second square and of the product have changed places.": (
                lambda x, c: quadratic(x, c[[0, 2, 1, 3, 4, 5]])
            ),
        },
    ),
    Exercise(
        "multi-argument-3",
        lambda: parameters_of(2 * UNITS, INPUTS, 2 * UNITS),
        mistakes={
            "That is for units with one argument.": lambda: parameters_of(UNITS, INPUTS, UNITS),
            "The biases are missing.": lambda: parameters_of(2 * UNITS, INPUTS, 0),
            "That has one bias for each unit; each of its two sums has one.": (
                lambda: parameters_of(2 * UNITS, INPUTS, UNITS)
            ),
            "That has a bias for each input; each sum has one.": lambda: parameters_of(2 * UNITS, INPUTS, INPUTS),
            "The inner network is counted, too; asked is the linear layer.": (
                lambda: parameters_of(2 * UNITS, INPUTS, 2 * UNITS) + inner_parameters(2)
            ),
            "Those are the sums; each has weights and a bias.": lambda: 2 * UNITS,
        },
    ),
)

# --- page multi-argument-derivation -----------------------------------------------------------------------------------

ON_THE_SECOND_PAGE: tuple[Exercise, ...] = ()

# --- page multi-argument-kernel ---------------------------------------------------------------------------------------


def products(arity: int = 3) -> int:
    """Multiply-adds of a unit, forward."""
    return HIDDEN * arity + HIDDEN * HIDDEN + HIDDEN


IMAGES, MAPS, PIXELS = 32, 120, 32 * 32
"""Of the batch, of the convolution, of a map."""


def mebibytes(units: int = IMAGES * MAPS // 2 * PIXELS, numbers: int = 2 * HIDDEN, size: int = 4) -> float:
    """Of the hidden numbers that torch keeps, layer by layer."""
    return units * numbers * size / 2**20


def delta(grad: Tensor, h: Tensor, z: Tensor, w: Tensor, c: Tensor) -> Tensor:
    """What the neurons of the first layer pass on, (N, H), by autograd."""
    before = h.clone().requires_grad_()
    # relu(z) as a function of h, whatever biases made z of it
    second = torch.relu(z + (before - h) @ w.mT)
    (passed,) = torch.autograd.grad(second @ c, before, grad)
    return passed * (h > 0)


def units() -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]:
    """grad (N,), h and z (N, H), w (H, H), c (H,)."""
    for seed, (count, hidden) in enumerate([(2, 3), (5, 4), (4, 6)]):
        generator = torch.Generator().manual_seed(seed)
        shapes = (count,), (count, hidden), (count, hidden), (hidden, hidden), (hidden,)
        grad, h, z, w, c = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
        yield grad, h.relu(), z, w, c


def _second(grad: Tensor, z: Tensor, c: Tensor) -> Tensor:
    """What the neurons of the second layer pass on."""
    return grad[:, None] * (z > 0) * c


ON_THE_THIRD_PAGE: tuple[Exercise, ...] = (
    Exercise(
        "multi-argument-kernel-1",
        products,
        mistakes={
            # of one number two readings: 64 · 2 + 64 · 64 + 64 and 64 · 3 + 64 · 64
            "That is the count for two arguments, or one without the output's layer.": lambda: products(2),
            "Those are operations; a multiply-add is two of them.": lambda: 2 * products(),
            "Those are operations, and of a unit with two arguments; asked are multiply-adds.": lambda: 2 * products(2),
            "That is the count of weights and biases; a bias is where a sum starts, no product.": (
                lambda: products() + 2 * HIDDEN + 1
            ),
            "That is the second layer alone.": lambda: HIDDEN * HIDDEN,
            "The first layer is missing.": lambda: products(0),
            "That is the first layer alone.": lambda: HIDDEN * 3,
            "The arguments enter the first layer only; the others do not grow with them.": (
                lambda: HIDDEN * 3 + 3 * HIDDEN * HIDDEN + HIDDEN
            ),
            "That is three units of one argument; the hidden layers are there once.": lambda: 3 * products(1),
            "The layers come one after the other: their products are added, not multiplied.": (
                lambda: HIDDEN * 3 * HIDDEN * HIDDEN * HIDDEN
            ),
        },
    ),
    Exercise(
        "multi-argument-kernel-2",
        mebibytes,
        mistakes={
            # of one number two readings: twice the units, or ReLU's inputs besides
            "Two maps make one unit; or, if you counted what ReLU is given too: autograd keeps only what it returns.": (
                lambda: mebibytes(IMAGES * MAPS * PIXELS)
            ),
            "That is one hidden layer, or numbers of two bytes.": lambda: mebibytes(numbers=HIDDEN),
            "Those are the bytes of the arguments; asked are those of the hidden numbers.": lambda: mebibytes(
                numbers=2
            ),
            "Those are the bytes of the result; asked are those of the hidden numbers.": lambda: mebibytes(numbers=1),
            "Those are numbers; each has four bytes.": lambda: mebibytes(size=1),
            "That is for one image of the batch.": lambda: mebibytes(MAPS // 2 * PIXELS),
            "That is for one image, and two maps make one unit.": lambda: mebibytes(MAPS * PIXELS),
            # of one number two readings: a map has as many pixels as a GiB has MiB
            "Those are GiB, or the MiB of a single pixel of all maps.": lambda: mebibytes() / 2**10,
            "The arguments were counted too; asked are the hidden numbers.": lambda: mebibytes(numbers=2 * HIDDEN + 2),
            "Those are units of a million bytes; a MiB is a little more.": lambda: mebibytes() * 2**20 / 1e6,
            "Those are bytes.": lambda: mebibytes() * 2**20,
            "Those are KiB.": lambda: mebibytes() * 2**10,
        },
    ),
    Exercise(
        "multi-argument-kernel-3",
        delta,
        units,
        mistakes={
            "The slope of the first ReLU is missing: where h is 0, nothing passes.": (
                lambda grad, h, z, w, c: _second(grad, z, c) @ w
            ),
            "The slope of the second ReLU is missing: where z is not above 0, nothing passes.": (
                lambda grad, h, z, w, c: (grad[:, None] * c) @ w * (h > 0)
            ),
            "Both slopes of ReLU are missing.": lambda grad, h, z, w, c: (grad[:, None] * c) @ w,
            "The matrix w is transposed: the sum runs over j, its rows.": (
                lambda grad, h, z, w, c: _second(grad, z, c) @ w.mT * (h > 0)
            ),
            "The weights c are missing: neuron j passes on c_j e_j.": (
                lambda grad, h, z, w, c: (grad[:, None] * (z > 0)) @ w * (h > 0)
            ),
            "The weights c stand at neurons i; they belong to neurons j, before the sum.": (
                lambda grad, h, z, w, c: (grad[:, None] * (z > 0)) @ w * c * (h > 0)
            ),
            "The gradient of the result is missing.": (
                lambda grad, h, z, w, c: _second(torch.ones_like(grad), z, c) @ w * (h > 0)
            ),
            "That is what the second layer passes on, before the sum over j.": (
                lambda grad, h, z, w, c: _second(grad, z, c)
            ),
            "The last mask is that of z; neuron i has h.": (lambda grad, h, z, w, c: _second(grad, z, c) @ w * (z > 0)),
            "The first mask is that of h; neuron j has z.": (
                lambda grad, h, z, w, c: (grad[:, None] * (h > 0) * c) @ w * (h > 0)
            ),
            "The factor is h itself; the slope of ReLU is 1 or 0.": (
                lambda grad, h, z, w, c: _second(grad, z, c) @ w * h
            ),
            "The factor is relu(z) itself; the slope of ReLU is 1 or 0.": (
                lambda grad, h, z, w, c: (grad[:, None] * z.relu() * c) @ w * (h > 0)
            ),
            "The units have been added up; each has its own.": (
                lambda grad, h, z, w, c: delta(grad, h, z, w, c).sum(0)
            ),
        },
    ),
)

EXERCISES = ON_THE_FIRST_PAGE + ON_THE_SECOND_PAGE + ON_THE_THIRD_PAGE
