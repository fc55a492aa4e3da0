"""What neurons declare of themselves is so, and decides what becomes of them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import companion
from companion import rethinking, rooms
from companion.activations import is_elementwise
from companion.baselines import PReLU
from companion.neurons import Neuron, controls, declared, of_module, units_of
from tests.cases import together
from tests.neurons.networks import CLASSES, SmallNet

ACTIVATIONS = [neuron for neuron in declared().values() if neuron.acts in ("unit", "gate")]


def test_every_room_declares_its_neurons_and_no_name_is_there_twice() -> None:
    rooms_of = rooms.modules("neuron")
    assert [*rooms_of] == [*rooms.ROOMS]
    names = [neuron.name for module in (*rooms_of.values(), controls) for neuron in module.NEURONS]
    assert sorted(names) == sorted(declared())


def test_the_docstring_of_rethink_names_every_neuron() -> None:
    assert [name for name in declared() if f'"{name}"' not in str(companion.rethink.__doc__)] == []


def test_the_help_of_the_package_names_every_neuron_on_one_page() -> None:
    lines = str(companion.__doc__).splitlines()
    assert [name for name in declared() if not re.search(rf"\b{name}\b", "\n".join(lines))] == []
    assert len(lines) <= 60


def put_in(neuron: Neuron) -> nn.Module:
    """The activation that it puts behind a dense layer of four units."""
    old = nn.Sigmoid() if neuron.acts == "gate" else nn.ReLU()
    return neuron.enter(nn.Sequential(nn.Linear(3, 4), old), (3,), None)[1]


def learned(activation: nn.Module) -> nn.Module:
    """The same with other parameters, as after some training."""
    for parameter in activation.parameters():
        nn.init.normal_(parameter, std=2.0)
    return activation


@together("neuron", ACTIVATIONS, lambda neuron: neuron.name)
def test_an_activation_is_what_its_neuron_says(neuron: Neuron) -> None:
    activation = put_in(neuron)
    assert getattr(activation, "arity", 1) == neuron.arity
    assert is_elementwise(activation) == neuron.elementwise
    if neuron.modules:
        assert of_module(activation) is neuron
    if neuron.elementwise:
        z = torch.linspace(-3, 3, 601)[:, None]
        with torch.no_grad():
            curves = [learned(activation)(z) for _ in range(50)]
        assert any((y.diff(dim=0) < -1e-6).any() for y in curves) != neuron.monotone
        assert all(y[300].abs() < 1e-6 for y in curves) == neuron.zero_at_zero


@together("neuron", [n for n in declared().values() if n.needs_labels], lambda neuron: neuron.name)
def test_a_neuron_that_needs_labels_has_a_loss_and_wants_the_classes(neuron: Neuron) -> None:
    assert neuron.loss is not None
    with pytest.raises(ValueError, match=f"'{neuron.name}', but {neuron.title} has to know how many classes there are"):
        companion.rethink(SmallNet(), neuron.name, (2, 4, 4))


def test_properties_and_not_names_decide_what_goes_together() -> None:
    dac, raa, arr, relu, glu = (declared()[name] for name in ("dac", "raa", "arr", "relu", "glu"))
    assert "sees several" in rethinking._why_not([dac, raa], None)
    assert rethinking._why_not([dac, dataclasses.replace(raa, elementwise=True)], None) == ""
    assert "sees several" in rethinking._why_not([glu, dac], None)
    assert "one response of each unit" in rethinking._why_not([arr, dac], 3)
    assert rethinking._why_not([arr, dataclasses.replace(dac, keeps_channels=True)], 3) == ""
    assert "decide what units" in rethinking._why_not([relu, raa], None)
    assert rethinking._why_not([relu, dataclasses.replace(raa, acts="before")], None) == ""
    assert "has to know" in rethinking._why_not([arr], None)
    assert rethinking._why_not([dataclasses.replace(arr, needs_labels=False)], None) == ""


class Pooled(nn.Module):
    """Between an activation and a layer there is max pooling, or there are new channels of zeros."""

    def __init__(self, between: str) -> None:
        super().__init__()
        self.between, self.first, self.act = between, nn.Conv2d(2, 3, 3), nn.ReLU()
        self.second = nn.Conv2d(3 if between == "pool" else 5, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Two layers."""
        x = self.act(self.first(x))
        x = F.max_pool2d(x, 2) if self.between == "pool" else F.pad(x, (0, 0, 0, 0, 1, 1))
        result: Tensor = self.second(x)
        return result


@pytest.mark.parametrize(
    ("between", "property"),
    [("pool", "monotone"), ("pad", "zero_at_zero")],
)
def test_what_lies_between_activation_and_layer_lets_pass_what_properties_allow(between: str, property: str) -> None:
    """Each elementwise activation moves or stays as declared, and in both cases the function is the same at first."""
    neurons = [neuron for neuron in ACTIVATIONS if neuron.elementwise and neuron.acts == "unit"]
    moved = set()
    for neuron in neurons:
        torch.manual_seed(0)
        model, x = Pooled(between).eval(), torch.randn(2, 2, 6, 6)
        plain = neuron.enter(model, (2, 6, 6), None)
        learned(plain.act)
        with torch.no_grad():
            expected = plain(x)
        try:
            new = companion.to_dac(plain, x)
        except ValueError:  # it stays, and there is no other
            continue
        torch.testing.assert_close(new(x), expected)
        moved.add(neuron.name)
    assert moved == {neuron.name for neuron in neurons if getattr(neuron, property)}


def test_an_activation_goes_into_every_layer_after_it_and_stays_one() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    new = companion.rethink(model, "prelu+dac", (3,))
    assert sorted(name for name in new.state_dict() if "activation" in name) == [
        "2.activation.weight",
        "4.activation.weight",
    ]
    slopes = [new.get_submodule(f"{layer}.activation") for layer in (2, 4)]
    assert all(type(slope) is PReLU for slope in slopes)
    for slope, value in zip(slopes, (0.5, -0.3), strict=True):
        nn.init.constant_(slope.weight, value)
    x = torch.randn(5, 3)
    y = F.prelu(model[0](x), torch.tensor([0.5]))
    y = F.prelu(model[2](y), torch.tensor([-0.3]))
    torch.testing.assert_close(new(x), model[4](y))


def test_per_channel_parameters_are_not_of_each_number_alone() -> None:
    model = nn.Sequential(nn.Linear(3, 4), companion.AGLU(4), nn.Linear(4, 2))
    with pytest.raises(ValueError, match="AGLU is not elementwise"):
        companion.to_dac(model)


def test_units_are_activations_and_what_was_put_in_their_place_but_no_gates() -> None:
    model = SmallNet()
    assert units_of(model) == ["act", "dense_act"]  # a function has no name
    for name in ("norm", "raa", "maxout", "norm+swish"):
        assert sorted(units_of(companion.rethink(model, name, (2, 4, 4)))) == ["act", "dense_act", "relu"]


def test_tokens_do_not_see_each_other() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.act, self.second = nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.second(self.act(self.first(x)))
            return result

    x = torch.randn(1, 5, 3)
    later = torch.cat((x[:, :4], torch.randn(1, 1, 3)), 1)
    for neuron in declared().values():
        if neuron.acts in ("unit", "before"):
            new = companion.rethink(Tokens(), neuron.name, x, CLASSES).eval()
            torch.testing.assert_close(new(x)[:, :4], new(later)[:, :4], msg=neuron.name)


@pytest.mark.parametrize("name", ["two_arguments", "quadratic", "one_argument"])
def test_all_units_of_a_network_share_one_learned_activation(name: str) -> None:
    new = companion.rethink(SmallNet(), name, (2, 4, 4))
    places = [new.get_submodule(place) for place in ("act", "relu", "dense_act")]
    assert len({*map(id, places)}) == 3
    assert len({tuple(map(id, place.parameters())) for place in places}) == 1
    assert {place.dim for place in places} == {1, -1}


@pytest.mark.parametrize("name", ["two_arguments", "quadratic", "one_argument"])
def test_what_units_share_they_share_on_the_meta_device_and_after_loading_too(name: str) -> None:
    real = companion.rethink(SmallNet(), name, (2, 4, 4))
    with torch.device("meta"):
        model = SmallNet()
    new = companion.rethink(model, name, (2, 4, 4))
    assert new.rethought.entered[0].parameters == real.rethought.entered[0].parameters
    loaded = new.to_empty(device="cpu")
    loaded.load_state_dict(real.state_dict())
    copied = pickle.loads(pickle.dumps(copy.deepcopy(real)))
    copied.load_state_dict(real.state_dict(), assign=True)
    for tied in (loaded, copied):
        places = [tied.get_submodule(place) for place in ("act", "relu", "dense_act")]
        assert len({tuple(map(id, place.parameters())) for place in places}) == 1
        assert torch.equal(tied.eval()(torch.ones(1, 2, 4, 4)), real.eval()(torch.ones(1, 2, 4, 4)))
    undone, state = companion.undo(loaded), real.state_dict()
    assert type(undone) is SmallNet
    assert not {key for key in undone.state_dict() if key not in state}
