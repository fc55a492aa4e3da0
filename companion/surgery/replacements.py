"""Small replacements: activations for others, and the modules that the rules of DAC leave behind."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from companion.dac.reference import ACTIVATIONS

__all__ = ["ChannelBias", "PreActivated", "replace_activations"]


class ChannelBias(nn.Module):
    """z + b with one b per channel: what remains of the biases of layers whose own were moved.

    Parameters
    ----------
    bias : Tensor
        (C,), where the biases start.
    layout : {"map", "flat", "flattened"}
        Where the channels are: dimension −3, dimension −1, or dimension −1 with the pixels of each channel in a row.

    Examples
    --------
    >>> ChannelBias(torch.tensor([1.0, 2.0]), "map")(torch.zeros(2, 1, 1)).flatten()
    tensor([1., 2.], grad_fn=<ViewBackward0>)
    """

    no_weight_decay = ("bias",)

    def __init__(self, bias: Tensor, layout: str) -> None:
        super().__init__()
        self.bias = nn.Parameter(bias.detach().clone())
        self.layout = layout

    def forward(self, z: Tensor) -> Tensor:
        """Add the biases."""
        bias = self.bias.to(z.dtype)
        if self.layout == "map":
            return z + bias[:, None, None]
        return z + (bias.repeat_interleave(z.shape[-1] // bias.numel()) if self.layout == "flattened" else bias)

    def extra_repr(self) -> str:
        """Channels and layout."""
        return f"{self.bias.numel()}, layout={self.layout!r}"


class PreActivated(nn.Module):
    """layer(φ(z + b)) with one b per input channel, shared by all outputs: a DAC whose pair biases are tied.

    Parameters
    ----------
    layer : nn.Linear or nn.Conv2d
        Without a bias. It becomes part of this module.
    activation : str
        A name in `companion.dac.reference.ACTIVATIONS`.
    bias : Tensor
        One number per input feature or channel, where the biases start.

    References
    ----------
    Metta et al. (2024), Increasing biases can be more efficient than increasing weights, Table 3.

    Examples
    --------
    >>> PreActivated(nn.Linear(3, 2, bias=False), "relu", torch.zeros(3))(torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    """

    no_weight_decay = ("bias",)

    def __init__(self, layer: nn.Linear | nn.Conv2d, activation: str, bias: Tensor) -> None:
        super().__init__()
        self.bias = nn.Parameter(bias.detach().clone())
        self.activation = activation
        self.layer = layer

    def forward(self, z: Tensor) -> Tensor:
        """Bias, activate, and apply the layer."""
        bias = self.bias.to(z.dtype)
        if isinstance(self.layer, nn.Conv2d):
            bias = bias[:, None, None]
        out: Tensor = self.layer(ACTIVATIONS[self.activation](z + bias))
        return out

    def extra_repr(self) -> str:
        """The activation."""
        return f"activation={self.activation!r}"


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
