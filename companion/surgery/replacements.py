"""Activations replaced by others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import torch
from torch import nn

__all__ = ["replace_activations"]


def replace_activations(model: nn.Module, replacements: Mapping[type[nn.Module], Callable[[], nn.Module]]) -> nn.Module:
    """Return a copy of a network in which modules of some classes are replaced by new ones.

    Parameters
    ----------
    model : nn.Module
        Any network. It stays as it is.
    replacements : mapping
        From a class, whose subclasses are left alone, to what returns a new module. A module that the network holds
        in several places, or calls several times, gets one successor.

    Returns
    -------
    nn.Module
        Of the class of `model`. The new modules are on the device of its first parameter, with its dtype.

    Raises
    ------
    ValueError
        If there is nothing to replace. Activations that are called as functions are not modules.

    Examples
    --------
    >>> from companion import AGLU
    >>> model = replace_activations(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), {nn.ReLU: AGLU})
    >>> type(model[1]).__name__
    'AGLU'
    """
    model = copy.deepcopy(model)
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    successors: dict[nn.Module, nn.Module] = {}
    for module in list(model.modules()):
        if type(module) in replacements:
            successors[module] = replacements[type(module)]().to(like).train(module.training)
    if not successors:
        names = ", ".join(kind.__name__ for kind in replacements)
        raise ValueError(f"model: {type(model).__name__} holds no module of the class {names}")
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if module in successors and name:
            model.set_submodule(name, successors[module])
    return successors.get(model, model)
