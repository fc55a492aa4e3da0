"""In which dtype an operator computes, whatever autocast says."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for float64, float32 for everything shorter."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``x`` in another dtype. A conversion to the same dtype is left out, not left to ``x.to``: inside an
    ``autograd.Function``, the compiler of torch 2.11 returns zero gradients where it sees one."""
    return x if x.dtype == dtype else x.to(dtype)


#: Of the devices on which somebody may compute, those that have autocast. Asked here: the compiler of torch 2.11 cannot
#: trace the question.
_AUTOCAST = frozenset(filter(torch.amp.is_autocast_available, ("cpu", "cuda", "mps", "xpu", "hpu", "mtia")))


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """A context in which autocast is off: what is computed inside keeps the dtypes that it was given."""
    if device_type in _AUTOCAST and torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return contextlib.nullcontext()


def _exactly(compute: Callable[..., Any], given: Sequence[Any]) -> Any:
    """The result without autocast; the first of what is given is a tensor."""
    if not torch._C._is_any_autocast_enabled():
        return compute(*given)
    with without_autocast(given[0].device.type):
        return compute(*given)
