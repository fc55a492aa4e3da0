"""What was done to a network, in few lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from torch import nn

__all__ = ["alike", "parameters"]


def alike(said: Mapping[str, str]) -> list[str]:
    """A line for all names of which the same is said: three of them, and how many there are.

    A name that is a number, as in an ``nn.Sequential``, stands in quotes: it is no count.
    """
    names = defaultdict(list)
    for name, what in said.items():
        names[what].append(repr(name) if name.isdigit() else name or "(itself)")
    return [
        f"{what}: {', '.join(few)}" if len(few) <= 3 else f"{what} ({len(few)}): {', '.join(few[:3])}, …"
        for what, few in names.items()
    ]


def parameters(model: nn.Module) -> int:
    """How many a network has."""
    return sum(parameter.numel() for parameter in model.parameters())
