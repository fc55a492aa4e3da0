"""Which parameters an optimiser decays."""

from typing import Any, Literal

from torch import nn

__all__ = ["parameter_groups"]


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
        two or more dimensions, which linear operators multiply with. Biases are spared, also those that a DAC has per
        weight, and so is the scale of a normalisation. "all": all of them.

    Returns
    -------
    list of dict
        One or two groups for any torch optimiser. A parameter that one module lists and another does not is
        not decayed.

    Raises
    ------
    TypeError
        If the model is no module.
    ValueError
        If `weight_decay` is negative, `decay` is unknown, or a listed name is not a parameter of the module that
        lists it.

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
    if weight_decay < 0:
        raise ValueError(f"weight_decay is {weight_decay}; allowed is 0 or more")
    if decay not in ("all", "kernels"):
        raise ValueError(f"decay is {decay!r}; allowed are all, kernels")
    exempt: set[nn.Parameter] = set()
    for module in model.modules():
        # its own or its class's: a compiled module would answer for the one inside
        listed = vars(module).get("no_weight_decay", getattr(type(module), "no_weight_decay", ()))
        if callable(listed):
            method: Any = module.no_weight_decay
            below = dict(module.named_parameters(remove_duplicate=False))
            exempt.update(below[name] for name in method() if name in below)
            listed = ()
        for name in listed:
            own = dict(module.named_parameters(recurse=False, remove_duplicate=False))
            if name not in own:
                raise ValueError(
                    f"{type(module).__name__}.no_weight_decay lists {name!r}; its parameters are {sorted(own)}"
                )
            exempt.add(own[name])
        if decay == "kernels":
            own = dict(module.named_parameters(recurse=False, remove_duplicate=False))
            exempt.update(value for name, value in own.items() if "weight" not in name.split("_") or value.ndim < 2)
    learnable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in learnable if p not in exempt], "weight_decay": weight_decay},
        {"params": [p for p in learnable if p in exempt], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
