"""In which order a tensor lies in memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from companion.operators.observers import transformed


def image_format(z: torch.Tensor) -> torch.memory_format:
    """That of the results for the images ``z``: channels-last for channels-last."""
    last = z.is_contiguous(memory_format=torch.channels_last) and not z.is_contiguous()
    return torch.channels_last if last else torch.contiguous_format


def memory_order(x: torch.Tensor) -> list[int] | None:
    """The permutation of dimensions that makes a dense tensor contiguous; None if it is, or if none does."""
    if x.is_contiguous():
        return None
    strides = x.stride()
    order = sorted(range(x.ndim), key=lambda d: (-strides[d], d))
    return order if x.permute(order).is_contiguous() else None


def in_order_of_memory(x: Tensor, dim: int, compute: Callable[[Tensor, int], Tensor]) -> Tensor:
    """``compute(x, dim)`` with the dimensions of a dense tensor in the order in which they lie, channels-last or
    transposed as they are: nothing is copied, and the result lies as ``x`` does."""
    order = None if x.is_contiguous() or transformed() else memory_order(x)
    if order is None:
        return compute(x, dim)
    result = compute(x.permute(order), order.index(dim % x.ndim))
    return result.permute([order.index(d) for d in range(x.ndim)])
