"""A network runs without numbers where it can, and is left alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import companion
from companion.rehearsal import call, example_of, rehearse


class ByValue(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(("model", "runs"), [(nn.Linear(3, 2), [True]), (ByValue(), [True, False])])
def test_only_who_decides_by_values_gets_numbers(model: nn.Module, runs: list[bool]) -> None:
    tried = []

    def work(replica: nn.Module) -> torch.Size:
        arguments = example_of(replica, (3,))
        tried.append(isinstance(arguments[0][0], FakeTensor))
        assert not torch.is_grad_enabled()
        assert not replica.training
        assert not any(parameter.requires_grad for parameter in replica.parameters())
        return call(replica, arguments).shape

    assert rehearse(model.train(), work)[0] == 1
    assert tried == runs
    assert model.training


def test_the_network_is_not_touched_and_tied_weights_stay_tied() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight

    def work(replica: nn.Module) -> None:
        replica.register_forward_hook(lambda *_: None)
        assert replica[1].weight is replica[0].weight
        assert isinstance(replica[0].weight, nn.Parameter)

    rehearse(model, work)
    assert not model._forward_hooks
    assert not isinstance(model[0].weight, FakeTensor)


def test_an_example_has_the_dtype_of_the_network() -> None:
    (x,), _ = example_of(nn.Linear(3, 2).to(torch.bfloat16), (7, 3))
    assert (x.dtype, x.shape) == (torch.bfloat16, (1, 7, 3))
    assert example_of(nn.ReLU(), (7, 3))[0][0].dtype == torch.float32


@pytest.mark.parametrize("layer", [companion.AGLU(), companion.LASiLU(), companion.DACLinear(3, 3)])
@pytest.mark.parametrize("chosen", ["auto", "torch", "simulator"])
def test_whatever_backend_is_chosen_no_kernel_reads_numbers_that_are_not_there(chosen: str, layer: nn.Module) -> None:
    with companion.backend(chosen):
        assert rehearse(layer, lambda replica: call(replica, example_of(replica, (3,))).shape) == (1, 3)


def test_what_is_no_example_is_said() -> None:
    with pytest.raises(TypeError, match="example: got 4, allowed are a shape, a tensor, a tuple or a mapping"):
        example_of(nn.Linear(4, 2), 4)  # type: ignore[arg-type]
