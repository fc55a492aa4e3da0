"""What the paper on two-argument activations speaks of: its numbers, its networks, and untrained functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from companion.multi_argument.layers import MultiArgument
from companion.multi_argument.quadratic import fit_quadratic
from companion.multi_argument.study.counts import conv_parameters, inner_parameters, mlp_parameters
from companion.multi_argument.study.surfaces import hermite_functions, spectrum
from companion.study import results
from tests.claims.form import by_severity

fatal, matters, detail = by_severity("mechanisms/multi-argument")

DEGREE = 6
"""Of a spectrum, as our runs have it."""

SMALL = 5.0
"""Per cent below which we call a term small, parameters few, and a model no more complex."""


def printed(place: str, quantity: str) -> str:
    """What the paper says of a quantity in a place."""
    rows = results.published("multi_argument-quoted")
    [row] = [row for row in rows if (row["place"], row["quantity"]) == (place, quantity)]
    return row["value"]


def quoted(place: str, quantity: str) -> float:
    return float(printed(place, quantity))


# --- Networks -----------------------------------------------------------------------------------------------

HIDDEN = (64, 64, 64)
"""Units of the perceptron's layers, Section IV-A."""

MAPS = (60, 120, 120, 120)
"""Feature maps of the convolutional network, Section IV-A."""

CHANNELS = {"MNIST": 1, "CIFAR-10": 3}
PIXELS = {"MNIST": 28 * 28, "CIFAR-10": 3 * 32 * 32}

Parameters = Callable[[Sequence[int], int], int]


def outer_networks(pixels: Mapping[str, int]) -> dict[str, tuple[tuple[int, ...], Parameters]]:
    """By name the units of a network's layers, and its parameters by units and number of arguments; the inner network
    is not counted. The convolutional one is taken to average its last maps."""
    networks: dict[str, tuple[tuple[int, ...], Parameters]] = {}
    for data, inputs in pixels.items():
        networks[f"MLP on {data}"] = HIDDEN, lambda units, n, inputs=inputs: mlp_parameters(inputs, units, 10, n)
    for data, channels in CHANNELS.items():
        networks[f"CNN on {data}"] = MAPS, lambda units, n, maps=channels: conv_parameters(maps, units, 10, n)
    return networks


def parameters(name: str, arity: int = 2) -> int:
    """All parameters of a network with a learned activation."""
    units, outer = outer_networks(PIXELS)[name]
    return outer(units, arity) + inner_parameters(arity)


# --- Trials -------------------------------------------------------------------------------------------------


def p_value(successes: int, trials: int, chance: float = 0.5) -> float:
    """Two-sided, of the binomial law: what is no more likely than what was seen."""
    terms = [math.comb(trials, at) * chance**at * (1 - chance) ** (trials - at) for at in range(trials + 1)]
    return math.fsum(each for each in terms if each <= terms[successes] * (1 + 1e-12))


def chance_of_saddle(ratio: float) -> float:
    """The chance of negative curvature for independent normal coefficients, c₃ with `ratio` times the variance of the
    others: multi_argument-odds."""
    theta = (np.arange(10_000) + 0.5) * np.pi / 2 / 10_000
    even = np.cos(theta) ** 2 + ratio * np.sin(theta) ** 2 / 2
    return float(np.sqrt(even / (1 + even)).mean())


# --- Functions of two arguments under the standard normal law --------------------------------------------------


@cache
def grid() -> tuple[Tensor, Tensor]:
    """Points of the plane, and weights by which sums over them are means under the standard normal law."""
    radii, weights = np.polynomial.laguerre.laggauss(16)
    angles = (np.arange(48) + 0.5) * 2 * np.pi / 48
    rho = np.sqrt(2 * radii)[:, None]
    points = np.stack([rho * np.cos(angles), rho * np.sin(angles)], -1).reshape(-1, 2)
    return torch.tensor(points), torch.tensor(np.repeat(weights / 48, 48))


def plane() -> Tensor:
    """Orthonormal functions whose sums, with a constant, are the planes."""
    return grid()[0]


def quadratics() -> Tensor:
    """Orthonormal functions whose sums, with planes, are the quadratics: the bowl and two saddles."""
    x, y = grid()[0].unbind(1)
    return torch.stack([(x**2 + y**2) / 2 - 1, (x**2 - y**2) / 2, x * y], 1)


def best_fit(function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The coefficients of the best-fit quadratic, in the paper's order."""
    (x, y), weights = grid()[0].unbind(1), grid()[1].sqrt()
    terms = torch.stack([x * x, y * y, x * y, x, y, torch.ones_like(x)], 1)
    return torch.linalg.lstsq(weights[:, None] * terms, (weights * function(x, y))[:, None]).solution[:, 0]


BIASES = {"no biases": (0.0, 0.0, 0.0), "PyTorch's default biases": (1 / 6, 1 / 192, 1 / 192)}
"""Variances of the biases of the three layers; the defaults are uniform up to 1/√inputs."""


@cache
def untrained(biases: str) -> Tensor:
    """The covariance of an inner network's outputs at the points of the grid, over Xavier's weights, in the limit of
    wide hidden layers: Cho and Saul 2009."""
    points, _ = grid()
    first, second, third = BIASES[biases]
    # Xavier's variance is 2/(inputs + outputs)
    covariance = 2 / (2 + 64) * points @ points.T + first
    covariance = 64 * 2 / (64 + 64) * _mean_product(covariance) + second
    return 64 * 2 / (64 + 1) * _mean_product(covariance) + third


def _mean_product(covariance: Tensor) -> Tensor:
    """Of two ReLUs, from the covariance of what is in them."""
    deviation = covariance.diagonal().sqrt()
    sizes = deviation[:, None] * deviation
    angle = (covariance / sizes).clamp(-1, 1).acos()
    return sizes * (angle.sin() + (math.pi - angle) * angle.cos()) / (2 * math.pi)


def mean_power(functions: Tensor, biases: str) -> list[float]:
    """The mean square of an untrained network's coefficient for each of these functions on the grid, (N, functions)."""
    weighted = grid()[1][:, None] * functions
    return (weighted * (untrained(biases) @ weighted)).sum(0).tolist()


def chance_untrained(biases: str) -> float:
    """The chance that an untrained network's best-fit quadratic has negative curvature: multi_argument-odds-turned.

    4,000 networks of 64 units each had shares of 0.487 and 0.559, with a standard error of 0.008.
    """
    bowl, saddle, _ = mean_power(quadratics(), biases)
    return 1 / math.sqrt(1 + bowl / saddle)


class Drawn(NamedTuple):
    """An inner network with Xavier's weights and no biases, under standard normal arguments."""

    explained: float
    """The share of its variance that the best-fit quadratic explains."""
    at_two: float
    """The share of its power at the degree 2."""


def at_two(power: Sequence[float]) -> float:
    """The share at the degree 2 of a spectrum that begins with the degree 0."""
    return power[2] / math.fsum(power[1:])


@cache
def drawn(arity: int, count: int = 100, samples: int = 20_000) -> list[Drawn]:
    """Some untrained inner networks."""
    generator = torch.Generator().manual_seed(0)
    arguments = torch.randn(samples, arity, generator=generator)
    arguments /= arguments.square().mean().sqrt()
    functions = hermite_functions(arguments, DEGREE)
    found = []
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(count):
            values = MultiArgument(arity).at(arguments).detach()
            power = spectrum((values - values.mean()) / values.std(), functions)
            found.append(Drawn(fit_quadratic(arguments, values)[1], at_two(power.tolist())))
    return found
