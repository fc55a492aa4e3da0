"""What `companion.count` adds for RAA: a gate is free, as activations are; the offset is a layer of one output."""

from __future__ import annotations

import torch
from torch import Tensor

from companion.counting import declare, linear_flops
from companion.dnrt.op import Gate, raa


def _like(x: Tensor, weight: Tensor, bias: Tensor, gate: Gate = "gelu", dim: int = -1) -> Tensor:
    """A result without numbers."""
    return torch.empty_like(x)


@declare(raa, fake=_like)
def _flops(x: Tensor, weight: Tensor, bias: Tensor, gate: Gate = "gelu", dim: int = -1) -> int:
    return x.numel() // max(x.shape[dim], 1) * linear_flops(x.shape[dim], 1)
