"""The functions that the paper on LayerAct speaks of, in floats, and its printed formulas on rows of numbers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from statistics import NormalDist
from typing import Any

import sympy

from companion.layeract.study import formulas
from tests.claims import form

Row = Sequence[float]
Scale = Callable[[float], float]

ALPHA = 1e-5
"""The paper's value on CIFAR."""

claim = partial(form.claim, chapter="mechanisms/layeract")
derived = partial(form.claim, chapter="mechanisms/layeract-derivation")
on_bounds = partial(form.claim, chapter="mechanisms/layeract-noise")
"""A claim that the page of the derivation discusses."""


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def hardsigmoid(x: float) -> float:
    return min(1.0, max(0.0, x / 6 + 0.5))


def step(x: float) -> float:
    """The scale of ReLU."""
    return float(x >= 0)


def statistics(row: Row) -> tuple[float, float]:
    mean = math.fsum(row) / len(row)
    return mean, math.fsum((y - mean) ** 2 for y in row) / len(row)


def normalised(row: Row, alpha: float = ALPHA) -> list[float]:
    mean, variance = statistics(row)
    return [(y - mean) / math.sqrt(variance + alpha) for y in row]


def layer_act(row: Row, scale: Scale) -> list[float]:
    return [y * scale(n) for y, n in zip(row, normalised(row), strict=True)]


def element(row: Row, scale: Scale) -> list[float]:
    return [y * scale(y) for y in row]


def distance(a: Iterable[float], b: Iterable[float]) -> float:
    """The norm of the paper's Definition 2.2: the sum of absolute differences."""
    return math.fsum(abs(x - y) for x, y in zip(a, b, strict=True))


def plus(row: Row, noise: Row) -> list[float]:
    return [y + change for y, change in zip(row, noise, strict=True)]


def normal(generator: random.Random, mean: float, deviation: float, count: int) -> list[float]:
    return [generator.gauss(mean, deviation) for _ in range(count)]


def quantiles(count: int) -> list[float]:
    """A row that looks like the standard normal law."""
    return [NormalDist().inv_cdf((k + 0.5) / count) for k in range(count)]


def spread_rows(seed: int, count: int) -> list[tuple[list[float], list[float]]]:
    """Random rows and noises of many shapes."""
    generator = random.Random(seed)
    made = []
    for _ in range(count):
        size = generator.choice((2, 3, 8, 64))
        mean, deviation = generator.choice((-5, 0, 0.5, 5)), generator.choice((0.1, 1, 5))
        power = generator.choice((1, 3))
        row = [mean + deviation * generator.gauss(0, 1) ** power for _ in range(size)]
        made.append((row, normal(generator, generator.choice((0, 0.3)), generator.choice((0.01, 0.3, 2)), size)))
    return made


_NAMES = ("y", "epsilon", "y_hat", "n", "n_hat", "a", "a_hat", "f", "f_hat", "d", "D", "alpha", "K")
_NAMES += ("mu", "v", "r", "v_hat", "r_hat", "mu_epsilon", "v_epsilon")


@cache
def _compiled(expression: Any, scale: Scale) -> Callable[..., float]:
    names = [getattr(formulas, name) for name in _NAMES]
    compiled: Callable[..., float] = sympy.lambdify(names, expression, [{"Scale": scale}, "math"])
    return compiled


def value(expression: Any, row: Row, noise: Row, scale: Scale = sigmoid, lipschitz: float = 1.0) -> float:
    """A side of a registered formula, for a row y, its noise ε and a scale s with the constant K."""
    noisy = plus(row, noise)
    lists = (row, noise, noisy, normalised(row), normalised(noisy), layer_act(row, scale), layer_act(noisy, scale))
    of_row, of_noisy, of_noise = statistics(row), statistics(noisy), statistics(noise)
    inverse = [1 / math.sqrt(variance + ALPHA) for _, variance in (of_row, of_noisy)]
    # Indices begin at 1.
    elements = [[math.nan, *each] for each in (*lists, element(row, scale), element(noisy, scale))]
    numbers = (len(row), len(row), ALPHA, lipschitz, *of_row, inverse[0], of_noisy[1], inverse[1], *of_noise)
    return _compiled(expression, scale)(*elements, *numbers)
