"""What is asked of every arena: that its networks are equal, learn, and differ in what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from companion import count
from companion.study.experiments import get
from companion.study.together.neurons import loss_of


def assert_equal_size(own: nn.Module, base: nn.Module, example: Any) -> None:
    """Two networks have as many parameters, within one per cent, and `count` knows all of one."""
    counted, other = (count(model, example) for model in (own, base))
    assert abs(counted.parameters - other.parameters) <= 0.01 * other.parameters
    assert counted.unknown == ()


def assert_every_parameter_learns(
    model: nn.Module, inputs: Tensor, targets: Tensor, loss: Callable[[Tensor, Tensor], Tensor] | None = None
) -> None:
    (loss or loss_of(model))(model(inputs), targets).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []
    assert all(p.grad.isfinite().all() for p in model.parameters())


def differing(name: str) -> dict[str, set[str]]:
    """Of each preset the settings that are not those of "laptop"."""
    presets = get(name).presets
    laptop = presets["laptop"]
    return {
        preset: {key for key in {**laptop, **of} if of.get(key) != laptop.get(key)} for preset, of in presets.items()
    }


@contextmanager
def nothing_is_drawn() -> Iterator[None]:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)
