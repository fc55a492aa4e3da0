import pytest
import torch
from torch import nn

from companion import RAA, DACLinear, LASiLU, MultiArgument, MultiBias
from companion.study import results
from companion.study.experiments import Job, get
from companion.study.together import mlp, neurons
from companion.study.together.mlp import LAYERS, NEURONS, build
from companion.study.training import evaluate, parameter_groups
from tests.cases import together
from tests.study.experiments.committed import committed, runs
from tests.study.together.arenas import (
    assert_equal_size,
    assert_every_parameter_learns,
    differing,
    nothing_is_drawn,
)

SHAPE, CLASSES, WIDTHS = (1, 8, 8), 10, (32, 32, 32)
KEYS = {
    "together-mlp": {
        "neuron",
        "seed",
        "learning_rate",
        *("accuracy", "loss", "calibration_error", "collapse", "parameters", "flops"),
        *(f"accuracy_std_{std}" for std in (0.05, 0.1, 0.15, 0.2, 0.3)),
        *(f"accuracy_mean_{mean}" for mean in (-0.4, -0.2, -0.1, 0.1, 0.2, 0.4)),
    }
}


def network(name, widths=WIDTHS):
    torch.manual_seed(1)
    return build(name, nn.Identity(), SHAPE, CLASSES, widths)


def job_of(preset, stage, neuron, rate=1e-3, **changes):
    settings = {**get("together-mlp").settings(preset), **changes}
    return Job("together-mlp", stage, {"neuron": neuron}, settings, 0, rate)


def kinds(model, kind):
    return sum(isinstance(module, kind) for module in model.modules())


TestRuns = runs(KEYS, committed("together-mlp"))


def test_all_neurons_of_the_convolutional_arena_and_the_learned_ones_in_every_layer():
    assert {*neurons.NEURONS} - {*NEURONS} == {"two_arguments_last"}
    assert {*NEURONS} - {*neurons.NEURONS} == {"one_argument", "two_arguments"}
    assert get("together-mlp").presets["laptop"]["competitors"] == [*NEURONS]


@together("name, kind, times", [
    ("gelu", nn.GELU, LAYERS),
    ("raa", RAA, LAYERS),
    ("la_silu", LASiLU, LAYERS),
    ("maxout", neurons.Maxout, LAYERS),
    # the first layer has no activation before it
    ("dac", DACLinear, LAYERS),
    ("dac", nn.ReLU, 0),
    ("multibias", MultiBias, LAYERS),
])  # fmt: skip
def test_a_neuron_stands_in_every_layer(name, kind, times):
    assert kinds(network(name), kind) == times


@together("name, arity", [("one_argument", 1), ("two_arguments", 2)])
def test_all_units_of_all_layers_share_one_learned_function(name, arity):
    model = network(name)
    assert len(model.activations) == LAYERS
    assert len({tuple(map(id, activation.parameters())) for activation in model.activations}) == 1
    assert isinstance(model.activations[0], MultiArgument)
    assert [linear.out_features for linear in model.linears] == [arity * width for width in WIDTHS]


@together("name", NEURONS)
def test_every_network_has_as_many_parameters_as_gelus(name):
    widths = mlp._widths(mlp.build, name, SHAPE, CLASSES, (64, 64, 64))
    assert_equal_size(network(name, widths), network("gelu", (64, 64, 64)), SHAPE)


@together("name", NEURONS)
def test_every_parameter_learns(name):
    model = network(name)
    assert_every_parameter_learns(model, torch.rand(20, *SHAPE), torch.arange(20) % CLASSES)
    assert sum(len(group["params"]) for group in parameter_groups(model, 1e-3, "kernels")) == len(
        list(model.parameters())
    )


@together("name", ["aglu", "dnrt"])
def test_networks_of_equal_widths_begin_with_equal_weights(name):
    gelu, other = network("gelu"), network(name)
    for one, another in zip([*gelu.linears, gelu.head], [*other.linears, other.head], strict=True):
        assert torch.equal(one.weight, another.weight)


def test_looking_for_widths_draws_nothing():
    with nothing_is_drawn():
        mlp._widths(mlp.build, "maxout", SHAPE, CLASSES, (48, 48, 48))


def test_an_unknown_neuron_is_refused():
    with pytest.raises(ValueError, match=r"neuron is 'two_arguments_last'; allowed are gelu, relu"):
        network("two_arguments_last")


def test_tuning_is_a_third_of_the_schedule_and_sees_no_test_image():
    settings = get("together-mlp").presets["laptop"]
    assert 3 * settings["tuning"]["epochs"] == settings["epochs"]
    short = {"epochs": 1, "tuning": {**settings["tuning"], "epochs": 1}}
    changes = {"dataset": "digits", "train_size": None, **short}
    splits = {stage: mlp.fit(job_of("laptop", stage, "gelu", **changes)).splits for stage in ("tuning", "evaluation")}
    assert {stage: (len(s.train), len(s.validation)) for stage, s in splits.items()} == {
        "tuning": (1212, 135),
        "evaluation": (1347, 0),
    }


def test_the_network_learns():
    fitted = mlp.fit(job_of("smoke", "evaluation", "relu", rate=1e-2, epochs=5, train_size=1300))
    assert evaluate(fitted.model, fitted.splits.test).accuracy > 0.9


def test_arr_is_part_of_the_loss():
    with_arr, without = (mlp.fit(job_of("smoke", "evaluation", name, epochs=1)) for name in ("arr", "gelu"))
    assert not torch.equal(with_arr.model.linears[0].weight, without.model.linears[0].weight)


def test_the_presets_differ_in_size_alone():
    found = differing("together-mlp")
    assert found["pilot"] == {"seeds", "competitors"}
    assert found["full"] == {"train_size", "precision", "compiled", "device"}
    changed = {"learning_rates", "tuning_seeds", "competitors"}
    assert found["rates"] == found["same-rate"] == found["layeracts-rate"] == changed


def test_who_chose_another_rate_than_gelu_is_run_at_gelus():
    rates = {each["neuron"]: each["learning_rate"] for each in results.load("together-mlp")["chosen"]}
    settings = get("together-mlp").presets["same-rate"]
    assert settings["learning_rates"] == [rates["gelu"]]
    assert settings["competitors"] == [name for name, rate in rates.items() if rate != rates["gelu"]]
    settings = get("together-mlp").presets["layeracts-rate"]
    assert settings["learning_rates"] == [rates["la_silu"]] == [rates["la_hardsilu"]] == [rates["mish"]]


# Every kind of entrance: as it is, with a parameter, by hooks, by another graph, with a shared function.
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("neuron", ["la_silu", "aglu", "dnrt", "dac", "multibias", "two_arguments"])
def test_the_full_preset_compiles_every_neuron_in_one_graph(neuron):
    changes = {"dataset": "digits", "widths": [32, 32, 32], "train_size": 130, "epochs": 1, "batch_size": 64}
    fitted = mlp.fit(job_of("full", "evaluation", neuron, device="cpu", **changes))
    assert all(parameter.isfinite().all() for parameter in fitted.model.parameters())
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
