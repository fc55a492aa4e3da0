"""Widths that make networks equal: as many parameters as another has, within one per cent."""

from collections.abc import Callable, Sequence
from itertools import product

import torch
from torch import nn

__all__ = ["TOLERANCE", "as_wide_as", "equal_widths"]

TOLERANCE = 0.01
"""The share by which numbers of parameters may differ and still be called equal."""


def equal_widths(
    name: str, profile: Sequence[int], count: Callable[[Sequence[int]], int], budget: int
) -> tuple[int, ...]:
    """Return the widths with which a network has as many parameters as another, within one per cent.

    Those of the profile, if they have: networks of equal widths may then begin with equal weights. Otherwise all widths
    are those of the profile times one number, rounded, and of these and their neighbours, one unit more or fewer in
    each layer, those that come closest.

    Parameters
    ----------
    name : str
        Of the neuron, for an error.
    profile : sequence of int
        The other network's widths.
    count : callable
        Takes widths, returns how many parameters the network has with them; more for wider ones.
    budget : int
        The other network's parameters.

    Returns
    -------
    tuple of int
        One for each of the profile's.

    Raises
    ------
    ValueError
        If no widths come within one per cent.

    Examples
    --------
    >>> equal_widths("dac", (100, 100), lambda widths: 20 * widths[0] + 2 * widths[0] * widths[1], 12_000)
    (73, 72)
    """
    if _near(count(profile), budget):
        return tuple(profile)
    fits, too_many = 0, 2 * max(profile)
    while too_many - fits > 1:
        largest = (too_many + fits) // 2
        if count(_scaled(profile, largest)) <= budget:
            fits = largest
        else:
            too_many = largest
    near = product(*((max(1, width - 1), width, width + 1) for width in _scaled(profile, fits)))
    closest = min(near, key=lambda widths: abs(count(widths) - budget))
    if not _near(found := count(closest), budget):
        raise ValueError(
            f"neuron is {name!r}, which has {found:,} parameters with widths {closest}, where {budget:,} are asked "
            "for; allowed is a difference of one per cent, so a wider profile"
        )
    return closest


def as_wide_as(
    name: str, profile: Sequence[int], build: Callable[[str, Sequence[int]], nn.Module], reference: str = "gelu"
) -> tuple[int, ...]:
    """Return the widths with which a neuron's network has as many parameters as the reference's: see `equal_widths`.

    Parameters
    ----------
    name : str
        Of the neuron.
    profile : sequence of int
        The reference's widths.
    build : callable
        Takes the name of a neuron and widths, and returns the network. What it draws is not drawn from torch's global
        generator.
    reference : str
        The neuron to be equal to.

    Returns
    -------
    tuple of int
        One for each of the profile's.

    Raises
    ------
    ValueError
        If no widths come within one per cent.
    """

    def parameters(name: str, widths: Sequence[int]) -> int:
        with torch.random.fork_rng(devices=[]):
            return sum(p.numel() for p in build(name, widths).parameters())

    return equal_widths(name, profile, lambda widths: parameters(name, widths), parameters(reference, profile))


def _near(found: int, budget: int) -> bool:
    return abs(found - budget) <= TOLERANCE * budget


def _scaled(profile: Sequence[int], largest: int) -> tuple[int, ...]:
    """The profile, as wide as makes its largest width this."""
    return tuple(max(1, round(width * largest / max(profile))) for width in profile)
