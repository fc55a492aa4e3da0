"""Activations that are called by a name, their derivatives, and torch's modules of this kind."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Hashable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = [
    "ACTIVATIONS",
    "FUNCTIONS",
    "GATES",
    "KINDS",
    "MODULES",
    "NAMES_OF_FUNCTIONS",
    "PULL_BACKS",
    "UNITS",
    "Activation",
    "activated",
    "check_activation",
    "check_elementwise",
    "is_elementwise",
    "is_identity",
    "is_softmax",
    "kind_of",
    "kind_of_function",
    "named",
    "softplus",
]

Activation = Callable[[Tensor], Tensor]


def softplus(x: Tensor) -> Tensor:
    """log(1 + eˣ), without the threshold beyond which torch's own is the identity."""
    return -F.logsigmoid(-x)


def hardswish(x: Tensor) -> Tensor:
    """x·min(max(x + 3, 0), 6)/6. The slopes of torch's own at its kinks depend on the version and on the place."""
    return x * (F.relu6(x + 3) / 6)


#: What ``activation`` may name.
ACTIVATIONS: dict[str, Activation] = {
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "relu6": F.relu6,
    "silu": F.silu,
    "hardswish": hardswish,
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": softplus,
    "identity": lambda x: x,
}

#: torch's modules that are activations, softmax among them.
MODULES: tuple[type[nn.Module], ...] = tuple(
    getattr(nn.modules.activation, name) for name in nn.modules.activation.__all__ if name != "MultiheadAttention"
)


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


_KINDS = {_plain(kind.__name__): kind for kind in MODULES}
_SPELT = {"leakyrelu": "leaky_relu", "logsoftmax": "log_softmax"}
_NAMES = {kind: _SPELT.get(plain, plain) for plain, kind in _KINDS.items()}

#: Of torch's kinds of activations, the module by the name of the function, such as "leaky_relu".
KINDS: dict[str, type[nn.Module]] = {name: kind for kind, name in _NAMES.items()}

#: The kinds that units of a network are activated by. Sigmoid and tanh are not among them: mostly they bound a number.
UNITS = (
    *("relu", "relu6", "leaky_relu", "prelu", "rrelu", "elu", "selu", "celu"),
    *("gelu", "silu", "mish", "hardswish"),
)

#: The kinds that decide which share of another number passes, as in attention to channels.
GATES = ("sigmoid", "hardsigmoid")

#: The name of the kind by whatever torch has to call it: functions, and the names of methods.
FUNCTIONS: dict[Any, str] = {
    found: kind
    for kind in KINDS
    for name in (kind, f"{kind}_")
    for found in (getattr(F, name, None), getattr(torch, name, None), name if hasattr(Tensor, name) else None)
    if found is not None
} | {torch.special.expit: "sigmoid"}

#: The same by the names that functions have themselves: what somebody imported by another name is called so still.
NAMES_OF_FUNCTIONS: dict[str, str] = {
    getattr(function, "__name__", function): kind for function, kind in FUNCTIONS.items()
}

# What other libraries put before and behind the names of activations, and what they call otherwise.
_BEFORE, _BEHIND = r"(pytorch|new|fast|quick|accurate)?", r"(activation|me|jit)?"
_OTHERWISE = {"swish": "silu", "gelutanh": "gelu"}


def kind_of(module: nn.Module) -> str | None:
    """The kind of activation that a module is.

    Parameters
    ----------
    module : nn.Module
        Of one of torch's classes, of a class that inherits from one, or of one that another library calls so, such as
        timm's ``Swish`` or the ``NewGELUActivation`` of transformers.

    Returns
    -------
    str or None
        A name in `KINDS`.

    Examples
    --------
    >>> kind_of(nn.LeakyReLU()), kind_of(nn.Linear(2, 3))
    ('leaky_relu', None)
    """
    for base in type(module).__mro__:
        if base in _NAMES:
            return _NAMES[base]
    kind = named(type(module).__name__)
    if kind and any(sum(size > 1 for size in parameter.shape) > 1 for parameter in module.parameters()):
        return None  # a layer and an activation, as the GELU of diffusers
    return kind


def kind_of_function(function: Any) -> str | None:
    """The kind of activation that a function is: torch's own, one that another library calls so, or one of these with
    settings, by ``functools.partial``."""
    if isinstance(function, functools.partial):
        return kind_of_function(function.func)
    if isinstance(function, Hashable) and function in FUNCTIONS:
        return FUNCTIONS[function]
    return named(function.__name__) if isinstance(function, FunctionType) else None


def is_softmax(kind: str) -> bool:
    """Whether a kind is one of the softmax family, which nobody takes for the activation of a neuron."""
    return "softm" in kind


def named(name: str) -> str | None:
    """The kind of activation that a name means, however it is spelt: "LeakyReLU", "leaky_relu", "Swish"."""
    match = re.fullmatch(rf"{_BEFORE}(.+?){_BEHIND}", _plain(name))
    plain = match.group(2) if match else ""
    kind = _KINDS.get(_plain(_OTHERWISE.get(plain, plain)))
    return None if kind is None else _NAMES[kind]


def is_elementwise(activation: Activation) -> bool:
    """Whether a function is one of each number alone; True where it cannot be tried.

    Examples
    --------
    >>> is_elementwise(nn.Mish()), is_elementwise(nn.Softmax(-1))
    (True, False)
    """
    return not _why_not_elementwise(activation)


def is_identity(activation: Activation) -> bool:
    """Whether a function gives back what it is given."""
    x = _numbers(activation)
    return torch.equal(x, _tried(activation, x)[0])


def check_elementwise(activation: Any) -> None:
    """Refuse what is no activation of a single connection, as softmax is none."""
    check_activation(activation)
    if not isinstance(activation, str) and (why := _why_not_elementwise(activation)):
        name = getattr(activation, "__name__", type(activation).__name__)
        raise ValueError(f"activation: got {name}, which is not elementwise ({why}), allowed is what is, or a name")


def _numbers(activation: Activation) -> Tensor:
    """Twelve numbers in three rows, where the tensors of a module are."""
    tensors = (*activation.parameters(), *activation.buffers()) if isinstance(activation, nn.Module) else ()
    like = next((x for x in tensors if x.is_floating_point()), torch.empty(0, device="cpu"))
    return torch.linspace(-2, 2, 12, device=like.device, dtype=like.dtype).view(3, 4)


@torch.no_grad()
def _tried(activation: Activation, *operands: Tensor) -> list[Tensor]:
    """The values of a function, which may write into its operand and draw random numbers."""
    with torch.random.fork_rng(devices=()):
        return [activation(x.clone()) for x in operands]


def _why_not_elementwise(activation: Activation) -> str:
    """Why a function is not one of each number alone; empty if nothing speaks against it, or if it cannot be tried."""
    x = _numbers(activation)
    try:
        together, again, alone = _tried(activation, x, x, x[1:2, 2:3])
    except Exception as error:
        # a function may want its tensors elsewhere, a module has said where
        return f"{type(error).__name__}: {error}" if isinstance(activation, nn.Module) else ""
    if not all(type(y) is Tensor and y.device.type != "meta" for y in (x, together, alone)):
        return ""
    if (together.shape, alone.shape) != (x.shape, (1, 1)):
        return f"it makes {tuple(together.shape)} of {tuple(x.shape)}"
    if not torch.equal(together.nan_to_num(), again.nan_to_num()):
        return "it makes different numbers of the same ones"
    near = torch.isclose(together[1, 2], alone[0, 0], rtol=1e-2, atol=1e-3, equal_nan=True)
    return "" if near else f"it makes {together[1, 2]:.3f} of a number among others, {alone[0, 0]:.3f} of it alone"


_aten = torch.ops.aten

#: (g, x, φ(x)) → g φ'(x). At its kink ReLU has slope 0. In place where it can be.
PULL_BACKS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    # 0 where y ≤ 0, and g where y is NaN
    "relu": lambda g, x, y: _aten.threshold_backward.grad_input(g, y, 0.0, grad_input=g),
    "leaky_relu": lambda g, x, y: _aten.leaky_relu_backward(g, x, 0.01, False),
    "elu": lambda g, x, y: _aten.elu_backward(g, 1.0, 1.0, 1.0, False, x),
    "relu6": lambda g, x, y: _aten.hardtanh_backward(g, x, 0.0, 6.0),
    "silu": lambda g, x, y: _aten.silu_backward(g, x),
    "hardswish": lambda g, x, y: torch.where(x <= -3, 0.0, torch.where(x >= 3, 1.0, x / 3 + 0.5)).mul_(g),
    "gelu": lambda g, x, y: _aten.gelu_backward(g, x),
    "tanh": lambda g, x, y: _aten.tanh_backward(g, y),
    "sigmoid": lambda g, x, y: _aten.sigmoid_backward(g, y),
    "softplus": lambda g, x, y: torch.sigmoid(x).mul_(g),
    "identity": lambda g, x, y: g,
}


def activated(x: Tensor, activation: str | Activation) -> Tensor:
    """φ(x), in place for ReLU."""
    if activation == "relu":
        return x.clamp_min_(0.0)
    return ACTIVATIONS[activation](x) if isinstance(activation, str) else activation(x)


def check_activation(activation: Any, name: str = "activation", known: Collection[str] = ACTIVATIONS) -> None:
    """Refuse what is neither a known name nor callable."""
    if isinstance(activation, str):
        if activation not in known:
            names = ", ".join(map(repr, known))
            raise ValueError(f"{name}: got {activation!r}, allowed are {names}, or an elementwise function")
    elif isinstance(activation, type):
        raise TypeError(f"{name}: got the class {activation.__name__}, allowed is a module of it, or a function")
    elif not callable(activation):
        raise TypeError(f"{name}: got {type(activation).__name__}, allowed is a name or an elementwise function")
