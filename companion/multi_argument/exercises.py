"""The exercises on the pages of two-argument neurons: right answers, and the mistakes that have words of their own."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from companion.exercises import Exercise
from companion.multi_argument.kernel import HIDDEN

__all__ = ["EXERCISES"]

# --- page multi-argument ----------------------------------------------------------------------------------------------

ON_THE_FIRST_PAGE: tuple[Exercise, ...] = ()

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
