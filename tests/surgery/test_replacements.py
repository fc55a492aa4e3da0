"""Activations are replaced where they are, and what is left is named."""

from __future__ import annotations

import pytest
import torch
import torchvision
from torch import nn

from companion import AGLU, replace_activations


def kinds(model: nn.Module, *wanted: type[nn.Module]) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, wanted)]


def test_activations_are_replaced_where_they_are() -> None:
    model = torchvision.models.resnet18().double().eval()
    relus = kinds(model, nn.ReLU)
    converted = replace_activations(model, {nn.ReLU: AGLU})
    assert kinds(converted, AGLU) == relus
    assert kinds(model, nn.ReLU) == relus
    assert {p.dtype for p in converted.parameters()} == {torch.float64}
    assert converted(torch.randn(1, 3, 32, 32).double()).shape == (1, 1000)
    with pytest.raises(ValueError, match="ResNet holds no module of the class GELU"):
        replace_activations(model, {nn.GELU: AGLU})


def test_a_module_in_two_places_gets_one_successor() -> None:
    relu = nn.ReLU()
    converted = replace_activations(nn.Sequential(nn.Linear(2, 2), relu, nn.Linear(2, 2), relu), {nn.ReLU: AGLU})
    assert converted[1] is converted[3]
    assert isinstance(replace_activations(relu, {nn.ReLU: nn.Tanh}), nn.Tanh)
