"""How many parameters a network of multi-argument neurons has, and the widths of others that have as many.

The paper prints a formula, without most biases; here every weight and bias counts, layer by layer. A layer of h units
with n arguments each has n·h outputs for its inner network, and h behind it. The inner network is one for all layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

__all__ = ["Match", "conv_parameters", "inner_parameters", "match", "mlp_parameters"]


class Match(NamedTuple):
    """Widths with nearly as many parameters as were asked for.

    Parameters
    ----------
    extra : int
        The paper's β, the same for all layers.
    widths : tuple of int
        ⌊√n h⌋ + β.
    difference : int
        Parameters with these widths, minus those asked for.
    """

    extra: int
    widths: tuple[int, ...]
    difference: int


def inner_parameters(arity: int, hidden: int = 64) -> int:
    """Return the number of parameters of an inner network with two hidden layers.

    H² + (n + 3)H + 1. For H = 64 it is 64n + 4289, where the paper prints 65n + 4288.

    Parameters
    ----------
    arity, hidden : int
        n and H.

    Returns
    -------
    int

    Examples
    --------
    >>> inner_parameters(1), inner_parameters(2), inner_parameters(3)
    (4353, 4417, 4481)
    """
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise((arity, hidden, hidden, 1)))


def mlp_parameters(inputs: int, hidden: Sequence[int], outputs: int, arity: int = 1) -> int:
    """Return the number of parameters of a perceptron around its inner network, which is not counted.

    Parameters
    ----------
    inputs, outputs : int
        x and y.
    hidden : sequence of int
        The units h_1, …, h_L.
    arity : int
        n, the arguments of a unit; 1 for ReLU.

    Returns
    -------
    int

    Examples
    --------
    >>> mlp_parameters(784, (64, 64, 64), 10, arity=2)
    117770
    """
    return _stack(inputs, hidden, arity, positions=1) + (hidden[-1] + 1) * outputs


def conv_parameters(
    channels: int, maps: Sequence[int], outputs: int, arity: int = 1, positions: int = 1, kernel: int = 3
) -> int:
    """Return the number of parameters of a convolutional network around its inner network, which is not counted.

    Parameters
    ----------
    channels, outputs : int
        Channels of the images, and classes.
    maps : sequence of int
        The feature maps behind each convolution and its activation.
    arity : int
        n, the arguments of a unit; 1 for ReLU.
    positions : int
        Pixels of a map that a dense head reads. The paper does not say; 1 is the mean over the map.
    kernel : int
        The side of a filter.

    Returns
    -------
    int

    Examples
    --------
    >>> conv_parameters(3, (60, 120, 120, 120), 10, arity=2)
    653290
    """
    return _stack(channels, maps, arity, positions=kernel**2) + (maps[-1] * positions + 1) * outputs


def _stack(inputs: int, units: Sequence[int], arity: int, positions: int) -> int:
    """The layers before the head: each reads so many positions of what is behind the one before."""
    return sum((positions * before + 1) * arity * after for before, after in pairwise((inputs, *units)))


def match(hidden: Sequence[int], arity: int, parameters: Callable[[Sequence[int]], int], target: int) -> Match:
    """Find the widths of a network of one-argument units that has as many parameters.

    Those of the paper: every layer has ⌊√n h⌋ + β units, with one β for all layers. Where it prints the width under the
    root, √n · h must be meant.

    Parameters
    ----------
    hidden : sequence of int
        The units h_1, …, h_L of the network with n arguments.
    arity : int
        n.
    parameters : callable
        Takes widths, returns how many parameters a network of one-argument units with them has.
    target : int
        The number of parameters to come near.

    Returns
    -------
    Match
        Of all whole β with positive widths the one that comes nearest, the smaller one of two.

    Examples
    --------
    >>> target = mlp_parameters(784, (64, 64, 64), 10, arity=2)
    >>> match((64, 64, 64), 2, lambda widths: mlp_parameters(784, widths, 10), target)
    Match(extra=25, widths=(115, 115, 115), difference=345)
    """
    scaled = [math.isqrt(arity * units**2) for units in hidden]

    def difference(extra: int) -> int:
        return parameters([units + extra for units in scaled]) - target

    extra = 1 - min(scaled)
    while difference(extra + 1) <= 0:
        extra += 1
    if abs(difference(extra + 1)) < abs(difference(extra)):
        extra += 1
    return Match(extra, tuple(units + extra for units in scaled), difference(extra))
