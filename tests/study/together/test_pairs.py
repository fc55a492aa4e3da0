import pytest
import torch
from torch import nn
from torch.nn import functional as F

from companion import AGLU, RAA, DACLinear, LASiLU, MultiArgument
from companion.dnrt.attachment import AttachedARR
from companion.study.experiments import Job, get
from companion.study.together import mlp, pairs
from companion.study.together.mlp import LAYERS
from companion.study.together.neurons import loss_of
from companion.study.together.pairs import NEURONS, PAIRS, REFUSED, alone, build
from tests.cases import together
from tests.study.experiments.committed import committed, runs
from tests.study.together.arenas import assert_equal_size, assert_every_parameter_learns, nothing_is_drawn

SHAPE, CLASSES, WIDTHS = (1, 8, 8), 10, (32, 32, 32)
# Our name and the arena's.
SINGLE = {
    **{name: name for name in ("gelu", "relu", "aglu", "la_silu", "raa")},
    "gelu+arr": "arr",
    "relu+dac": "dac",
    "raa+arr": "dnrt",
}
KEYS = {
    "together-pairs": {
        *("neuron", "seed", "learning_rate", "accuracy", "loss", "calibration_error", "parameters", "flops"),
        *("accuracy_std_0.3", "accuracy_mean_0.4"),
    }
}


def network(name, widths=WIDTHS, of=build):
    torch.manual_seed(1)
    return of(name, nn.Identity(), SHAPE, CLASSES, widths)


def job_of(experiment, preset, neuron, stage="evaluation"):
    return Job(experiment, stage, {"neuron": neuron}, get(experiment).settings(preset), 0, 1e-3)


TestRuns = runs(KEYS, committed("together-pairs"))


@together("name, theirs", SINGLE.items())
def test_networks_are_those_of_the_perceptrons_arena(name, theirs):
    here, there = network(name).state_dict(), network(theirs, of=mlp.build).state_dict()
    assert here.keys() == there.keys()
    assert [key for key in here if not torch.equal(here[key], there[key])] == []


def test_two_arguments_begin_as_there_with_other_numbers():
    here, there = network("two_arguments"), network("two_arguments", of=mlp.build)
    assert [*map(str, here.norms)] == [*map(str, there.norms)]
    for one, other in zip(here.linears, there.linears, strict=True):
        assert one.weight.shape == other.weight.shape
        torch.testing.assert_close(one.weight.std(), other.weight.std(), rtol=0.05, atol=0)
    # one inner network for all layers
    assert {id(each.weights[0]) for each in here.activations} == {id(here.activations[0].weights[0])}


@pytest.mark.parametrize("neuron", ["gelu", "raa+arr"])
def test_the_recipe_is_that_of_the_perceptrons_arena(neuron):
    here = pairs._fit(job_of("together-pairs", "smoke", neuron)).model.state_dict()
    there = mlp.fit(job_of("together-mlp", "smoke", SINGLE[neuron])).model.state_dict()
    assert [key for key in there if not torch.equal(here[key], there[key])] == []


@together("pair, kind, arr", [
    ("aglu+arr", AGLU, True),
    ("la_silu+arr", LASiLU, True),
    ("raa+arr", RAA, True),
    ("two_arguments+arr", MultiArgument, True),
    ("aglu+dac", DACLinear, False),
])  # fmt: skip
def test_both_neurons_of_a_pair_are_there_in_every_layer(pair, kind, arr):
    model = network(pair)
    assert sum(isinstance(module, kind) for module in model.modules()) == LAYERS
    assert isinstance(getattr(model, "arr", None), AttachedARR) == arr
    if arr:
        assert len(model.arr.widths) == LAYERS
    if kind is DACLinear:
        assert not any(isinstance(module, nn.ReLU) for module in model.modules())
        assert any(isinstance(module, AGLU) for module in model.modules())


def test_what_a_pair_is_compared_with_is_there():
    assert {*NEURONS} == {*PAIRS, *(name for pair in PAIRS for name in alone(pair))}
    assert len(NEURONS) == 13
    assert get("together-pairs").presets["laptop"]["competitors"] == [*NEURONS]


# ARR has no parameter: what is alone in a pair is as wide as the pair.
@together("name", PAIRS)
def test_every_network_has_as_many_parameters_as_gelus(name):
    widths = mlp._widths(build, name, SHAPE, CLASSES, (64, 64, 64))
    assert_equal_size(network(name, widths), network("gelu", (64, 64, 64)), SHAPE)


@together("name", PAIRS)
def test_every_parameter_learns(name):
    assert_every_parameter_learns(network(name), torch.rand(20, *SHAPE), torch.arange(20) % CLASSES)


@together("name", [pair for pair in PAIRS if pair.endswith("+arr")])
def test_arr_is_part_of_the_loss(name):
    model = network(name)
    targets = torch.arange(20) % CLASSES
    for _ in range(2):  # the first batch makes the means
        logits = model(torch.rand(20, *SHAPE))
        value = loss_of(model)(logits, targets)
    assert value > F.cross_entropy(logits, targets) + 1e-3


def test_looking_for_widths_draws_nothing():
    with nothing_is_drawn():
        mlp._widths(build, "la_silu+arr", SHAPE, CLASSES, (48, 48, 48))


@together("name, why", zip(REFUSED, [
    "DAC takes activations of one number alone, and LA-SiLU sees several",
    "DAC takes activations of one number alone, and RAA sees several",
    "ARR holds one response of each unit, and with DAC it has several",
], strict=True))  # fmt: skip
def test_pairs_that_cannot_be_are_refused_with_the_reason(name, why):
    with pytest.raises(ValueError, match=why):
        network(name)


def test_presets_are_the_perceptrons_with_other_neurons():
    ours, theirs = (get(f"together-{name}").presets for name in ("pairs", "mlp"))
    for preset in ("smoke", "laptop", "pilot"):
        assert theirs[preset].keys() - ours[preset].keys() == {"precision", "compiled", "device"}
        assert {key for key in ours[preset] if ours[preset][key] != theirs[preset][key]} == {"competitors"}
