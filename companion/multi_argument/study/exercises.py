"""The exercises on the pages of two-argument neurons: right answers, and mistakes that have words of their own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from companion.multi_argument.kernel import HIDDEN
from companion.multi_argument.op import quadratic_form
from companion.multi_argument.study.counts import inner_parameters
from companion.study.exercises import Exercise

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
            "That is made of c₄: Python counts from 0, so c₃ is c[2].": lambda c: 2 * c[3],
            "That is c₄: Python counts from 0, so c₃ is c[2]. And it is half: the product is −1 on one diagonal.": (
                lambda c: c[3]
            ),
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

ARITY, NEURONS = 3, 32
"""Of the inner network that is counted."""


def inner() -> int:
    """Its parameters: a bias for each output."""
    return inner_parameters(ARITY, NEURONS)


def sums() -> Iterator[tuple[Tensor]]:
    """x₁ + x₂ at the corners of XOR: once with each of two different signs, and with two equal ones."""
    return iter([(torch.tensor(t, dtype=torch.float64),) for t in (-2.0, 0.0, 2.0)])


def equal_signs(t: Tensor) -> Tensor:
    """1 where x₁ and x₂, each 1 or −1, have equal signs, −1 where they differ."""
    x1 = torch.where(t == 0, 1.0, t / 2)
    return x1 * (t - x1)


def _at(expression: Any, t: Tensor) -> Any:
    """Put the sum into an expression."""
    return expression.subs({each: t.item() for each in expression.free_symbols if each.name == "t"})


def moments() -> tuple[float, float]:
    """E ReLU(Z) (Z² − 1) and E ReLU(Z) Z of a standard normal Z, by the trapezoidal rule."""
    z = torch.linspace(0, 12, 20_001, dtype=torch.float64)
    weighted = z * torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return torch.trapezoid(weighted * (z * z - 1), z).item(), torch.trapezoid(weighted * z, z).item()


AT_ZERO = 1 / math.sqrt(2 * math.pi)
"""The normal density there, and the mean of ReLU(Z)."""


def coincidence() -> float:
    """K of the best fit of ReLU(x₁) ReLU(x₂) under standard normal samples: products of what each argument gives."""
    bent, slope = moments()
    return (bent * AT_ZERO / 2) ** 2 - (slope * slope) ** 2 / 4


ON_THE_SECOND_PAGE = (
    Exercise(
        "multi-argument-derivation-1",
        inner,
        mistakes={
            "That has a bias for each input of a layer; each output has one.": lambda: inner() + ARITY - 1,
            "The biases are missing.": lambda: NEURONS * (ARITY + NEURONS + 1),
            # one number of two readings: an argument costs as much as the biases of a hidden layer
            "That is for two arguments, or without the biases of one hidden layer.": lambda: inner() - NEURONS,
            "That is for the paper's width; here a hidden layer is narrower.": lambda: inner_parameters(ARITY),
            "The layer between the two hidden ones is missing: every neuron of the second reads all of the first.": (
                lambda: NEURONS * (ARITY + 1) + NEURONS + 1
            ),
            "The output's bias is missing.": lambda: inner() - 1,
            "The biases of both hidden layers are missing.": lambda: inner() - 2 * NEURONS,
            "The output is missing: it weighs the second hidden layer and has a bias.": lambda: inner() - NEURONS - 1,
        },
    ),
    Exercise(
        "multi-argument-derivation-2",
        equal_signs,
        sums,
        mistakes={
            "That is the sum itself. It rises, so where the signs differ it lies in the middle.": lambda t: t,
            "A ReLU never falls, so where the signs differ it cannot lie below both other corners.": torch.relu,
            "It rises from corner to corner; a function with these values must fall and rise.": torch.sign,
            "This tells them apart, but with four and zero; asked are 1 and −1.": lambda t: t**2,
            "This tells them apart, but with two and zero; asked are 1 and −1.": lambda t: t.abs(),
            "This tells them apart, but with 1 and 0; asked are 1 and −1.": lambda t: t**2 / 4,
            "Right where the signs differ. Where they are equal it is too large: t is 2 there, and t² is 4.": (
                lambda t: t**2 - 1
            ),
            "It has one value at all corners, so it tells none apart.": lambda t: torch.cos(math.pi * t),
            "It is 1 where the signs differ; asked is the other way round.": lambda t: -equal_signs(t),
        },
        evaluate=_at,
        names="t",
    ),
    Exercise(
        "multi-argument-derivation-3",
        coincidence,
        mistakes={
            "The second derivative of ReLU is not zero everywhere: the jump of its slope counts.": lambda: -1 / 64,
            "That is the mean second derivative in the place of c₁ and c₂; they are half of it.": (
                lambda: AT_ZERO**4 - 1 / 64
            ),
            "c₃ is two times too large there: its square, over four, is what K takes off.": (
                lambda: AT_ZERO**4 / 4 - 1 / 16
            ),
            "That is c₁c₂ alone; the product x₁x₂ takes something off.": lambda: AT_ZERO**4 / 4,
            "That is c₃; asked is K.": lambda: 1 / 4,
            "That is c₁; asked is K.": lambda: AT_ZERO**2 / 2,
            "The sign is wrong: K is c₁c₂ less the other part.": lambda: -coincidence(),
            "The mean of the other argument's ReLU is missing in c₁ and in c₂.": lambda: AT_ZERO**2 / 4 - 1 / 64,
            "That is the determinant of the mean Hessian; K is that of half of it.": lambda: 4 * coincidence(),
        },
        tolerance=9e-4,  # also of an answer with two digits
    ),
)

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
