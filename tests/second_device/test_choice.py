"""Who computes in a thread of autograd's own, in which the backward pass of another device runs."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import companion
from tests.second_device import device

pytestmark = pytest.mark.skipif(
    not hasattr(torch._C, "_remove_obj_from_tls"), reason="this torch tells threads nothing of the context"
)


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_is_computed_again_for_a_checkpoint_is_computed_as_its_backward_pass_was_told_to(reentrant: bool) -> None:
    companion.backend("torch")
    seen = {}

    def work(x: Tensor) -> Tensor:
        seen[threading.current_thread()] = companion.backend()
        return x.exp()

    x = torch.zeros(2, device=device.NAME, requires_grad=True)
    with companion.backend("simulator"):
        y = checkpoint(work, x, use_reentrant=reentrant)
        y.sum().backward()
    assert list(seen.values()) == ["simulator", "simulator"]
    assert companion.backend() == "torch"
