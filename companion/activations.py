"""Activations that are called by a name, their derivatives, and torch's modules of this kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["ACTIVATIONS", "MODULES", "PULL_BACKS", "Activation", "activated", "check_activation", "softplus"]

Activation = Callable[[Tensor], Tensor]


def softplus(x: Tensor) -> Tensor:
    """log(1 + eˣ), without the threshold beyond which torch's own is the identity."""
    return -F.logsigmoid(-x)


#: What ``activation`` may name.
ACTIVATIONS: dict[str, Activation] = {
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "silu": F.silu,
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

_aten = torch.ops.aten

#: (g, x, φ(x)) → g φ'(x). At its kink ReLU has slope 0. In place where it can be.
PULL_BACKS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    # 0 where y ≤ 0, and g where y is NaN
    "relu": lambda g, x, y: _aten.threshold_backward.grad_input(g, y, 0.0, grad_input=g),
    "leaky_relu": lambda g, x, y: _aten.leaky_relu_backward(g, x, 0.01, False),
    "elu": lambda g, x, y: _aten.elu_backward(g, 1.0, 1.0, 1.0, False, x),
    "silu": lambda g, x, y: _aten.silu_backward(g, x),
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


def check_activation(activation: Any) -> None:
    """Refuse what is neither a known name nor callable."""
    if isinstance(activation, str):
        if activation not in ACTIVATIONS:
            names = ", ".join(map(repr, ACTIVATIONS))
            raise ValueError(f"activation: got {activation!r}, allowed are {names}, or an elementwise function")
    elif isinstance(activation, type):
        raise TypeError(f"activation: got the class {activation.__name__}, allowed is a module of it, or a function")
    elif not callable(activation):
        raise TypeError(f"activation: got {type(activation).__name__}, allowed is a name or an elementwise function")
