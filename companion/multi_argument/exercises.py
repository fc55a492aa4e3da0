"""The exercises on the pages of two-argument neurons: right answers, and mistakes that have words of their own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from companion.exercises import Exercise
from companion.multi_argument.counts import inner_parameters

__all__ = ["EXERCISES"]

# --- page multi-argument ----------------------------------------------------------------------------------------------

ON_THE_FIRST_PAGE: tuple[Exercise, ...] = ()

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

ON_THE_THIRD_PAGE: tuple[Exercise, ...] = ()

EXERCISES = ON_THE_FIRST_PAGE + ON_THE_SECOND_PAGE + ON_THE_THIRD_PAGE
