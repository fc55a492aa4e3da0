"""The modules: equal to their functions, alike in training and evaluation, nothing in their state."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from companion import LAHardSiLU, LASiLU, LayerAct
from companion.functional import la_hardsilu, la_silu, layer_act

MODULES = [LayerAct, LASiLU, LAHardSiLU]
each = pytest.mark.parametrize("module", MODULES)


def test_a_module_is_its_function() -> None:
    y = torch.randn(3, 4, 5)
    settings = (0.2, (1,), True)
    assert torch.equal(LayerAct("hardsigmoid", *settings)(y), layer_act(y, "hardsigmoid", *settings))
    assert torch.equal(LASiLU(*settings)(y), la_silu(y, *settings))
    assert torch.equal(LAHardSiLU(*settings)(y), la_hardsilu(y, *settings))


@each
def test_by_default_it_is_the_papers(module: type[LayerAct]) -> None:
    layer = module()
    assert (layer.alpha, layer.dims, layer.unbiased) == (1e-5, None, False)
    assert not list(layer.parameters())


@each
def test_training_and_evaluation_are_alike_and_both_have_gradients(module: type[LayerAct]) -> None:
    layer = module()
    y = torch.randn(3, 8, requires_grad=True)
    results = []
    for mode in (True, False):
        a = layer.train(mode)(y)
        results.append((a, *torch.autograd.grad(a.square().sum(), y)))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_alpha_is_the_same_in_half_precision_and_after_a_copy() -> None:
    layer = LASiLU(alpha=1e-5)
    for other in (layer.half(), copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.alpha == 1e-5


@each
def test_states_go_to_and_from_a_network_with_a_plain_activation_here(module: type[LayerAct]) -> None:
    plain = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    replaced = nn.Sequential(nn.Linear(3, 4), module(alpha=0.1))
    replaced.load_state_dict(plain.state_dict())
    plain.load_state_dict(replaced.state_dict())
    assert replaced[1].alpha == 0.1


@each
def test_inplace_is_accepted_and_without_effect(module: type[LayerAct]) -> None:
    y = torch.randn(2, 5)
    before = y.clone()
    assert torch.equal(module(inplace=True)(y), module()(y))
    assert torch.equal(y, before)


@each
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dims": "x"}, "dims: got 'x', allowed is an int or several"),
        ({"dims": 1.5}, "dims: got 1.5, allowed is an int"),
        ({"dims": torch.tensor(1)}, r"dims: got tensor\(1\), allowed is an int or several"),
        ({"dims": (1, True)}, "dims: got True, allowed is an int"),
        ({"unbiased": "no"}, "unbiased: got 'no', allowed are True and False"),
        ({"alpha": "1e-5"}, "alpha: got str, allowed is a number"),
    ],
)
def test_arguments_of_another_kind_are_refused(module: type[LayerAct], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        module(**arguments)


@each
@pytest.mark.parametrize("alpha", [0.0, -1e-5, math.nan, math.inf])
def test_a_bad_alpha_is_refused_at_construction(module: type[LayerAct], alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha: got"):
        module(alpha=alpha)


def test_an_unknown_scale_is_refused_at_construction() -> None:
    with pytest.raises(ValueError, match="scale: got 'tanh', allowed are 'sigmoid', 'hardsigmoid'"):
        LayerAct("tanh")


def test_it_says_what_it_is() -> None:
    assert repr(LAHardSiLU(alpha=0.1, dims=[-1])) == (
        "LAHardSiLU(scale='hardsigmoid', alpha=0.1, dims=(-1,), unbiased=False)"
    )


def gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    y = model(x)
    return [y.detach(), *torch.autograd.grad(y.square().sum(), list(model.parameters()))]


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_model_trains_as_in_eager() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), LASiLU(), nn.Flatten(), nn.Linear(64, 8), LAHardSiLU(), nn.Linear(8, 3))
    x = torch.randn(5, 2, 6, 6)
    eager = gradients(model, x)
    for one, other in zip(gradients(torch.compile(model, fullgraph=True), x), eager, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_a_network_learns_with_it(backend: str, device: str) -> None:
    x = torch.randn(64, 2, device=device)
    target = (x.prod(1, keepdim=True) > 0).float()
    model = nn.Sequential(nn.Linear(2, 16), LASiLU(), nn.Linear(16, 1)).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(60):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
