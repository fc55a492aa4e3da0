"""Which parameters an optimiser decays."""

import numbers
import re
from collections import defaultdict
from typing import Any, Literal

from torch import nn
from torch.nn.utils.parametrizations import _WeightNorm

__all__ = ["parameter_groups"]

#: Their scale may have several dimensions.
_NORMS = tuple(getattr(nn, name) for name in ("LayerNorm", "RMSNorm"))


def parameter_groups(
    model: nn.Module, weight_decay: float, decay: Literal["all", "kernels"] = "all"
) -> list[dict[str, Any]]:
    """Return optimiser groups in which what modules list in ``no_weight_decay`` is not decayed.

    Weight decay pulls κ of an APA to 0, where it is constant, and its λ to log 2, so the paper
    exempts them, as He et al. did for PReLU's slope. A module says so in a class attribute: a tuple of the
    names of its own parameters. timm's networks have a method of this name; what it returns are names of parameters as
    seen from that module, and those that there are not are no error.

    Parameters
    ----------
    model : nn.Module
        Any model. Frozen parameters (``requires_grad`` false) are left out, shared ones appear once.
    weight_decay : float
        For all other parameters.
    decay : str
        "kernels": of those only the parameters named ``weight``, or like ``in_proj_weight`` and ``weight_ih_l0``, with
        two or more dimensions, which linear operators multiply with, and those of embeddings. Biases are spared, also
        those that a DAC has per weight, and so are the scale of a normalisation and what units share, as in
        `MultiArgument`. "all": all of them. A parametrised tensor counts as itself; of a normed weight the direction is
        a kernel, and its length is none.

    Returns
    -------
    list of dict
        One or two groups for any torch optimiser. A parameter that one module lists and another does not is
        not decayed.

    Raises
    ------
    TypeError
        If the model is no module, or `weight_decay` no number.
    ValueError
        If `weight_decay` is negative or not finite, `decay` is unknown, or a listed name is not a parameter of the
        module that lists it.

    References
    ----------
    Alexandridis et al. (2025), Adaptive Parametric Activation, section V-B. He et al. (2015), Delving deep
    into rectifiers.

    Examples
    --------
    >>> import companion
    >>> from torch import nn
    >>> from companion.baselines import PReLU
    >>> model = nn.Sequential(nn.Linear(2, 3), PReLU())
    >>> [(len(group["params"]), group["weight_decay"]) for group in companion.parameter_groups(model, 1e-4)]
    [(2, 0.0001), (1, 0.0)]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: got {type(model).__name__}, allowed is an nn.Module and not its parameters")
    if not isinstance(weight_decay, numbers.Real):
        raise TypeError(f"weight_decay: got {type(weight_decay).__name__}, allowed is a number")
    if not 0 <= weight_decay < float("inf"):
        raise ValueError(f"weight_decay: got {weight_decay}, allowed is a finite number, at least 0")
    if decay not in ("all", "kernels"):
        raise ValueError(f"decay: got {decay!r}, allowed are 'all' and 'kernels'")
    if lazy := [name for name, parameter in model.named_parameters() if nn.parameter.is_lazy(parameter)]:
        raise ValueError(f"model: {lazy[0]} has no shape yet; allowed is a network that has run once")
    exempt: set[nn.Parameter] = set()
    for module in model.modules():
        # its own or its class's: a compiled module would answer for the one inside
        listed = vars(module).get("no_weight_decay", getattr(type(module), "no_weight_decay", ()))
        if isinstance(listed, property):
            listed = module.no_weight_decay
        if callable(listed):
            method: Any = module.no_weight_decay
            below = _named(module)
            exempt.update(parameter for name in method() for parameter in below[name])
            listed = ()
        for name in listed:
            own = {name: parameters for name, parameters in _named(module).items() if "." not in name}
            if name not in own:
                raise ValueError(
                    f"{type(module).__name__}.no_weight_decay lists {name!r}; its parameters are {sorted(own)}"
                )
            exempt.update(own[name])
    if decay == "kernels":
        named = model.named_parameters(remove_duplicate=False)
        exempt.update(parameter for name, parameter in named if not _is_kernel(model, name, parameter))
    learnable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in learnable if p not in exempt], "weight_decay": weight_decay},
        {"params": [p for p in learnable if p in exempt], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _named(module: nn.Module) -> defaultdict[str, list[nn.Parameter]]:
    """The parameters by their names, and what a parametrised tensor is made of by the name of that."""
    named = defaultdict(list)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        named[re.sub(r"(^|\.)parametrizations\.(\w+)\.original\d*$", r"\1\2", name)].append(parameter)
    return named


def _is_kernel(model: nn.Module, name: str, parameter: nn.Parameter) -> bool:
    """Whether a parameter is what a linear operator multiplies with, by its whole name."""
    path, _, own = name.rpartition(".")
    if isinstance(model.get_submodule(path), _NORMS):
        return False
    if re.search(r"(^|\.)parametrizations\.\w+$", path) and own.startswith("original"):
        if own == "original0" and isinstance(next(model.get_submodule(path).children()), _WeightNorm):
            return False
        own = path.rpartition(".")[2]
    is_length = own.endswith("_g")  # of torch's older weight_norm
    return parameter.ndim >= 2 and not is_length and "weight" in own.split("_")
