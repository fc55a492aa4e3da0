"""Where modules stand in a network, and how they get there: one object may stand at many places, and its successors
need not be one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from companion.rehearsal import deepcopy, like_of

__all__ = [
    "copied",
    "copy_of",
    "forget_hooks",
    "hand_over_hooks",
    "holds",
    "part",
    "places",
    "put",
    "put_back",
    "put_class",
    "put_function",
]


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


def hand_over_hooks(old: nn.Module, new: nn.Module, *, own: bool = False) -> None:
    """Let what takes the place of a module have its hooks, too.

    Those that are part of the module itself go only with `own`: its methods, and what torch computes a parameter by.
    """
    for name, hooks in vars(old).items():
        if name.startswith(("_forward", "_backward")) and "hooks" in name:
            vars(new)[name].update((n, hook) for n, hook in hooks.items() if own or not _is_part_of(old, hook))
    if new._is_full_backward_hook is None:
        new._is_full_backward_hook = old._is_full_backward_hook


def forget_hooks(module: nn.Module) -> None:
    """Let a module have no hooks of its forward and backward passes."""
    for name, hooks in vars(nn.Module()).items():
        if name.startswith(("_forward", "_backward", "_is_full_backward")):
            vars(module)[name] = hooks


def _is_part_of(module: nn.Module, hook: Any) -> bool:
    of_torch = isinstance(hook, (WeightNorm, SpectralNorm, BasePruningMethod))
    return of_torch or isinstance(getattr(hook, "__self__", None), type(module))


def copy_of(model: nn.Module) -> nn.Module:
    """A copy of a network, or why there is none."""
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise TypeError(f"model: got {type(model).__name__}, allowed is an nn.Module, and none that is scripted")
    if hasattr(model, "_orig_mod"):
        raise TypeError("model: got what torch.compile has returned, allowed is the network itself; compile afterwards")
    return deepcopy(model)


def put(model: nn.Module, name: str, new: nn.Module) -> None:
    """Let a module stand at a name."""
    parent, _, own = name.rpartition(".")
    setattr(model.get_submodule(parent), own, new)
    _known_to_torch(model.get_submodule(parent), own)
    _packed_where_known(model, parent)


def put_back(model: nn.Module, name: str, old: nn.Module) -> None:
    """Let a module stand again where it stood, on the device and in the mode that the network has now."""
    like, new = like_of(model), model.get_submodule(name)
    hand_over_hooks(new, old)
    put(model, name, old.to(like).train(new.training))


def put_function(model: nn.Module, path: str, name: str, function: Any) -> None:
    """Let an attribute be the function again that a module stood for."""
    parent = model.get_submodule(path)
    delattr(parent, name)
    vars(parent)[name] = function
    _known_to_torch(parent, name)
    _packed_where_known(model, path)


def put_class(model: nn.Module, path: str, kind: type[nn.Module], names: Iterable[str]) -> None:
    """Let a module be of the class that it was of, and forget the children that its rewritten ``forward`` called."""
    module = model.get_submodule(path)
    for name in names:
        del module._modules[name]
    module.__class__ = kind


def _known_to_torch(parent: nn.Module, name: str) -> None:
    """Let a transformer layer of torch know its activation, wherever it looks for it."""
    activation = getattr(parent, name)
    if hasattr(parent, "activation_relu_or_gelu"):  # by it the fused path knows what to compute
        exact = getattr(activation, "approximate", "none") == "none"
        is_gelu = activation is F.gelu or (type(activation) is nn.GELU and exact)
        is_relu = activation is F.relu or type(activation) is nn.ReLU
        vars(parent)["activation_relu_or_gelu"] = 1 if is_relu else 2 * is_gelu
    if isinstance(parent, nn.TransformerDecoderLayer) and isinstance(activation, nn.Module):
        # copies look for a function, and take ReLU if they find none
        vars(parent)[name] = activation


def _packed_where_known(model: nn.Module, path: str) -> None:
    """Let torch's encoders above a layer pack padded batches only while they know the activations of all their layers.

    A packed batch is a nested tensor, which few functions take.
    """
    names = path.split(".") if path else []
    for end in range(len(names) + 1):
        encoder = model.get_submodule(".".join(names[:end]))
        if isinstance(encoder, nn.TransformerEncoder):
            known = all(getattr(layer, "activation_relu_or_gelu", 0) for layer in encoder.layers)
            if known and vars(encoder).pop("_packed_before", False):
                encoder.use_nested_tensor = True
            elif not known and getattr(encoder, "use_nested_tensor", False):
                encoder.use_nested_tensor, vars(encoder)["_packed_before"] = False, True
