"""Networks that stand in no list: shared activations, functions in tables, tied weights, layers of every size."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

from companion import AGLU, RAA, attach_arr, count, replace_activations, restore_activations, to_dac
from tests.strangers import STRANGERS, Detector

NEURONS = ("relu", "silu", "hardswish", "gelu")
OWN = ("like_yolov8", "one_block", "tables", "scales")


def made(name: str) -> tuple[nn.Module, torch.Tensor]:
    make, example = STRANGERS[name]
    model = make().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.bias, std=0.3)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return model, example()


def test_one_object_at_the_places_of_a_whole_network_gets_as_many_successors() -> None:
    model, x = made("like_yolov8")
    shared = model.model[0].act
    places = sum(getattr(module, "act", None) is shared for module in model.modules())
    new = replace_activations(model, {"silu": AGLU})
    assert str(new.replaced).startswith(
        f"SiLU, {places} places of one object → AGLU(num_parameters=1, dim=1, init='near_one') ({places}): model.0.act"
    )
    assert new.replaced.parameters[1] - new.replaced.parameters[0] == 2 * places
    assert len({id(module) for module in new.modules() if isinstance(module, AGLU)}) == places == 28
    new(x)[:, :4].mean().backward()
    assert all(p.grad is not None for module in new.modules() if isinstance(module, AGLU) for p in module.parameters())
    back = restore_activations(pickle.loads(pickle.dumps(new)))
    assert sum(getattr(module, "act", None) is back.model[0].act for module in back.modules()) == places
    assert torch.equal(back(x), model(x))


@pytest.mark.parametrize("make", [RAA, lambda channels, dim: AGLU(channels, dim)])
def test_every_place_has_channels_of_its_own(make) -> None:
    model, x = made("like_yolov8")
    new = replace_activations(model, {"silu": make}, x)
    convolutions = [(module.conv, module.act) for module in new.modules() if hasattr(module, "conv")]
    assert {next(act.parameters()).numel() for _, act in convolutions} == {8, 16, 32}
    assert all(next(act.parameters()).numel() == conv.out_channels and act.dim == 1 for conv, act in convolutions)
    assert new(x).shape == model(x).shape


@pytest.mark.parametrize("name", OWN)
def test_a_network_of_a_stranger_goes_all_the_way(name: str) -> None:
    model, x = made(name)
    before = model(x)
    for make in (AGLU, RAA):
        new = replace_activations(model, dict.fromkeys(NEURONS, make), x)
        assert not [why for why in new.replaced.left.values() if not why.endswith("is called as a function")]
        assert not torch.equal(new(x), before)
        assert torch.equal(restore_activations(new)(x), before)
    counted = count(model, x)
    assert counted.unknown == ()
    assert counted.parameters == sum(parameter.numel() for parameter in model.parameters())
    if name != "scales":
        dac = to_dac(model, x, keep_function=True)
        torch.testing.assert_close(dac(x), before, rtol=1e-4, atol=1e-4)
    layers = {"like_yolov8": "model.4", "one_block": "hidden", "tables": "layers.*", "scales": "head"}[name]
    attach_arr(model, layers, 3, x)
    assert torch.equal(model(x), before)


def test_where_every_layer_is_called_several_times_that_is_what_to_dac_says() -> None:
    model, x = made("scales")
    called = r"stays, Hardswish before Conv2d that is called 3 times: tower\.1, tower\.3; stays, Hardswish before mean"
    with pytest.raises(ValueError, match=called):
        to_dac(model, x)


def test_what_a_report_of_to_dac_calls_an_activation_is_its_place() -> None:
    model, x = made("like_yolov8")
    left = to_dac(model, x, keep_function=True).converted.left
    assert left["model.5.cv2.act"] == "SiLU before Upsample"
    assert left["model.2.m.0.cv2.act"] == "SiLU before add"
    assert isinstance(model, Detector)
    assert model.model[5].cv2.act is model.model[0].act


def test_a_layer_that_is_called_like_an_activation_stays() -> None:
    class GELU(nn.Module):
        """As diffusers has it: a layer and its activation."""

        def __init__(self) -> None:
            super().__init__()
            self.proj = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.gelu(self.proj(x))

    model, x = nn.Sequential(GELU(), nn.Linear(4, 2)), torch.randn(3, 4)
    assert torch.equal(replace_activations(model, {"gelu": nn.GELU})(x), model(x))
