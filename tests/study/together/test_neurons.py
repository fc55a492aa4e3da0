import pytest
import torch
from torch import nn

from companion import RAA, DACConv2d, DACLinear, LASiLU, MultiArgument, MultiBias
from companion.study.together.network import LAYERS, front
from companion.study.together.neurons import NEURONS, Maxout, build, equal_widths
from companion.weight_decay import parameter_groups
from tests.cases import together
from tests.study.together.arenas import assert_equal_size, assert_every_parameter_learns, nothing_is_drawn

SHAPE, CLASSES, WIDTHS = (3, 8, 8), 10, (16, 32, 32)


@pytest.fixture(scope="module")
def first():
    torch.manual_seed(0)
    return front(torch.rand(100, *SHAPE))


def network(name, first, widths=WIDTHS):
    torch.manual_seed(1)
    return build(name, first, SHAPE, CLASSES, widths)


def kinds(model, kind):
    return sum(isinstance(module, kind) for module in model.modules())


@together("name, kind, times", [
    ("gelu", nn.GELU, LAYERS),
    ("raa", RAA, LAYERS),
    ("la_silu", LASiLU, LAYERS),
    ("glu", nn.GLU, LAYERS),
    ("maxout", Maxout, LAYERS),
    ("dnrt", RAA, LAYERS),
    ("dac", DACConv2d, LAYERS - 1),
    ("dac", DACLinear, 1),
    ("dac", nn.ReLU, 0),
    ("multibias", MultiBias, LAYERS),
    ("two_arguments_last", MultiArgument, 1),
    ("two_arguments_last", nn.GELU, LAYERS - 1),
])  # fmt: skip
def test_a_neuron_stands_in_every_layer_that_it_should(first, name, kind, times):
    assert kinds(network(name, first), kind) == times


def test_arr_follows_what_all_activations_give(first):
    for name in ("arr", "dnrt"):
        assert network(name, first).arr.widths == {
            f"activations.{layer}": width for layer, width in enumerate([16, 16, 32, 32, 32, 32])
        }
    assert not hasattr(network("raa", first), "arr")


@together("name", NEURONS)
def test_every_network_has_as_many_parameters_as_gelus(first, name):
    widths = equal_widths(name, first, SHAPE, CLASSES, WIDTHS)
    assert_equal_size(network(name, first, widths), network("gelu", first), SHAPE)


@together("name", NEURONS)
def test_every_parameter_but_the_heads_unused_ones_learns(first, name):
    model = network(name, first)
    assert_every_parameter_learns(model, torch.rand(20, *SHAPE), torch.arange(20) % CLASSES)
    assert sum(len(group["params"]) for group in parameter_groups(model, 1e-3)) == len(list(model.parameters()))


def test_networks_of_equal_widths_begin_with_equal_weights(first):
    gelu, raa = (network(name, first) for name in ("gelu", "dnrt"))
    for one, other in zip(gelu.convolutions, raa.convolutions, strict=True):
        assert torch.equal(one.weight, other.weight)


def test_looking_for_widths_draws_nothing(first):
    with nothing_is_drawn():
        equal_widths("maxout", first, SHAPE, CLASSES, WIDTHS)


def test_a_profile_that_is_equal_already_stays(first):
    assert equal_widths("raa", first, SHAPE, CLASSES, WIDTHS) == WIDTHS
    assert equal_widths("dac", first, SHAPE, CLASSES, WIDTHS) != WIDTHS


def test_networks_that_cannot_be_equal_are_refused(first):
    with pytest.raises(ValueError, match=r"'maxout', which has .* allowed is a difference of one per cent"):
        equal_widths("maxout", first, SHAPE, CLASSES, (1, 2, 2))


def test_an_unknown_neuron_is_refused(first):
    with pytest.raises(ValueError, match=r"neuron is 'gelux'; allowed are gelu, relu"):
        network("gelux", first)


def test_a_dac_network_computes_at_first_what_its_relu_network_does(first):
    torch.testing.assert_close(
        network("dac", first).eval()(torch.ones(2, *SHAPE)), network("relu", first).eval()(torch.ones(2, *SHAPE))
    )
