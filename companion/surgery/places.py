"""Where modules stand in a network: one object may stand at many places, and its successors need not be one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

from torch import nn

__all__ = ["copied", "holds", "part", "places"]


def places(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules of a network by their names, parents first. One that stands in several places comes with each.

    What is inside of such a module stands in one place, and comes with the first.
    """
    seen: set[nn.Module] = set()

    def walk(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        yield name, module
        if module not in seen:
            seen.add(module)
            for own, child in module._modules.items():
                if child is not None:
                    yield from walk(f"{name}.{own}" if name else own, child)

    return walk("", model)


def holds(module: nn.Module) -> bool:
    """Whether a module holds numbers: parameters, buffers, or what else is in its state."""
    return any(True for _ in (*module.parameters(), *module.buffers())) or bool(module.state_dict())


def part(
    model: nn.Module, wanted: Callable[[str, nn.Module], bool], put: Callable[[str, nn.Module, nn.Module], None]
) -> dict[nn.Module, nn.Module]:
    """Let every place but the first of a module that holds nothing have a copy of its own.

    Parameters
    ----------
    model : nn.Module
        The network.
    wanted : callable
        Of a name and a module: whether it is of interest. Only such a module is copied, or one around it.
    put : callable
        Puts a copy in its place, given a name, the copy and the original.

    Returns
    -------
    dict
        The original by the copy, for all that was copied.
    """
    originals: dict[nn.Module, nn.Module] = {}
    met: set[nn.Module] = set()
    for name, module in [*places(model)]:
        again = module in met
        met.add(module)
        if again and not holds(module) and any(wanted(_below(name, own), inner) for own, inner in places(module)):
            put(name, copied(module, originals), module)
    return originals


def _below(name: str, own: str) -> str:
    return ".".join(part for part in (name, own) if part)


def copied(module: nn.Module, originals: dict[nn.Module, nn.Module] | None = None) -> nn.Module:
    """A copy of a module that holds nothing, and of those in it, with hooks of its own; what else it has is the same.

    Into `originals` goes the original of each copy.
    """
    new = copy.copy(module)
    for name, value in vars(module).items():
        if isinstance(value, dict) and name.startswith("_"):
            vars(new)[name] = copy.copy(value)
    new._modules = {own: child and copied(child, originals) for own, child in module._modules.items()}
    if originals is not None:
        originals[new] = module
    return new
