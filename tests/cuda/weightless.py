"""Tensors without memory, to plan launches for."""

from __future__ import annotations

import torch
from torch import Tensor


def of(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """A tensor without memory."""
    return torch.empty(shape, dtype=dtype, device="meta")


def number(*shape: int) -> Tensor:
    return of(*shape, dtype=torch.float32)
