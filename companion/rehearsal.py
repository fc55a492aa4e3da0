"""A network runs on tensors that have shapes but hold no numbers, so that something is learned about it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

__all__ = ["example_of", "rehearse"]

T = TypeVar("T")


def rehearse(model: nn.Module, work: Callable[[nn.Module], T]) -> T:
    """Let some work run a copy of a network in evaluation mode, whose tensors hold no numbers.

    Only if the network decides by the values of tensors does a copy run that has them. The network itself is not
    touched; what the work does to the copy, such as hooks, goes with it.

    Parameters
    ----------
    model : nn.Module
        Any network.
    work : callable
        Takes the copy. It may be called twice.

    Returns
    -------
    object
        What the work returns.
    """
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensorMode,
        UnsupportedFakeTensorException,
    )

    impossible = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException)
    mode = FakeTensorMode(allow_non_fake_inputs=True)  # tensors that are plain attributes of a module
    try:
        # deepcopy takes for copied what is in its memory: the copy holds no numbers.
        tensors = [*model.parameters(), *model.buffers()]
        replica = copy.deepcopy(model, {id(tensor): _without_numbers(tensor, mode) for tensor in tensors}).eval()
        with mode, torch.no_grad():
            return work(replica)
    except impossible:
        with torch.no_grad():
            return work(copy.deepcopy(model).eval())


def _without_numbers(tensor: Tensor, mode: Any) -> Tensor:
    fake: Tensor = mode.from_tensor(tensor.detach())
    return nn.Parameter(fake, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else fake


def example_of(model: nn.Module, input_shape: Sequence[int]) -> Tensor:
    """Zeros: a batch of one example, on the device of a network and in its dtype."""
    like = next((p for p in (*model.parameters(), *model.buffers()) if p.is_floating_point()), torch.empty(0))
    return torch.zeros(1, *input_shape, dtype=like.dtype, device=like.device)
