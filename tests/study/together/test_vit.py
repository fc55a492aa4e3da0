import pytest
import torch
from torch import nn
from torch.nn import functional as F

from companion import RAA, LASiLU
from companion.dnrt.attachment import AttachedARR
from companion.neurons.centre import AttachedCentre
from companion.study.experiments import Job, get
from companion.study.together import vit
from companion.study.together.neurons import loss_of
from companion.study.together.vit import NEURONS, build
from companion.study.training import evaluate, parameter_groups
from tests.cases import together
from tests.study.experiments.committed import committed, runs
from tests.study.together.arenas import assert_equal_size, assert_every_parameter_learns, differing

SHAPE, CLASSES, SIZES = (1, 8, 8), 10, {"patch": 2, "width": 32, "depth": 2, "heads": 2}
KEYS = {
    "together-vit": {
        *("neuron", "seed", "learning_rate", "accuracy", "loss", "calibration_error", "collapse"),
        *("parameters", "flops", "accuracy_std_0.3", "accuracy_mean_0.4"),
    }
}


def network(name, units=None):
    units = vit._units(name, SHAPE, CLASSES, **SIZES) if units is None else units
    torch.manual_seed(1)
    return build(name, nn.Identity(), SHAPE, CLASSES, SIZES, units)


def job_of(preset, neuron, rate=1e-3, stage="evaluation", **changes):
    settings = {**get("together-vit").settings(preset), **changes}
    return Job("together-vit", stage, {"neuron": neuron}, settings, 0, rate)


def kinds(model, kind):
    return sum(isinstance(module, kind) for module in model.modules())


TestRuns = runs(KEYS, committed("together-vit"))


@together("name, kind, times", [
    ("gelu", nn.GELU, 2),
    ("relu_arr", nn.ReLU, 2),
    ("dnrt", RAA, 2),
    ("la_silu", LASiLU, 2),
    ("arr", AttachedARR, 1),
    ("relu_arr", AttachedARR, 1),
    ("dnrt", AttachedARR, 1),
    ("centre", AttachedCentre, 1),
    ("raa", AttachedARR, 0),
])  # fmt: skip
def test_a_neuron_stands_in_every_block(name, kind, times):
    assert kinds(network(name), kind) == times


@together("name", ["arr", "relu_arr", "dnrt"])
def test_what_arr_holds_is_the_class_token_behind_every_block(name):
    model = network(name)
    seen = []
    for block in model.blocks:
        block.register_forward_hook(lambda module, args, output: seen.append(output[:, 0]))
    model(torch.rand(5, *SHAPE))
    held = [*model.arr.responses.by_layer.values()]
    assert all(torch.equal(*each) for each in zip(held, seen, strict=True))
    assert model.arr.weight == 10
    assert len(seen) == 2


@together("name", NEURONS)
def test_every_network_has_as_many_parameters_as_gelus(name):
    assert_equal_size(network(name), network("gelu"), SHAPE)


@together("name", NEURONS)
def test_every_parameter_learns(name):
    model = network(name)
    assert_every_parameter_learns(model, torch.rand(20, *SHAPE), torch.arange(20) % CLASSES)
    groups = parameter_groups(model, 1e-3, "kernels")
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


@together("name", ["relu", "la_silu", "arr", "dnrt", "centre"])
def test_networks_of_equal_widths_begin_with_equal_weights(name):
    gelu, other = network("gelu", 128).state_dict(), network(name, 128).state_dict()
    assert [key for key in gelu if not torch.equal(gelu[key], other[key])] == []


@together("name", ["arr", "centre"])
def test_a_loss_that_is_attached_is_added(name):
    model = network(name)
    targets = torch.arange(20) % CLASSES
    logits = model(torch.rand(20, *SHAPE))
    whole = loss_of(model)(logits, targets)
    assert whole > F.cross_entropy(logits, targets) + 1e-6


def test_an_unknown_neuron_is_refused():
    with pytest.raises(ValueError, match="neuron is 'mish'; allowed are gelu, relu"):
        network("mish", 8)


def test_images_pass_what_learns_nothing_first():
    class Twice(nn.Module):
        def forward(self, x):
            return 2 * x

    torch.manual_seed(1)
    twice = build("gelu", Twice(), SHAPE, CLASSES, SIZES, 128)
    x = torch.rand(3, *SHAPE)
    assert torch.equal(twice(x), network("gelu", 128)(2 * x))


def test_the_training_has_the_recipe_of_the_preset(monkeypatch):
    told = {}
    monkeypatch.setattr(vit, "train", lambda model, part, **options: told.update(options))
    job = job_of("smoke", "gelu", clip=0.7, weight_decay=0.03, shift=1, epochs=3)
    vit.fit(job)
    recipe = ("clip", "weight_decay", "epochs", "batch_size", "precision", "compiled")
    assert {key: told[key] for key in recipe} == {key: job.settings[key] for key in recipe}
    assert (told["optimiser"], told["decay"], told["learning_rate"]) == ("adamw", "kernels", job.rate)
    whites = told["augment"](torch.ones(200, 1, 8, 8))
    assert {int(image.sum()) for image in whites} == {64, 56, 49}  # not shifted, to one side, to two


def test_a_network_learns(monkeypatch):
    # mirrored and shifted digits of eight pixels are hard, and would take it ten times as long
    monkeypatch.setattr(vit, "random_crop_and_mirror", lambda images, padding: images)
    fitted = vit.fit(job_of("smoke", "gelu", rate=3e-3, epochs=8, train_size=1300, batch_size=20))
    assert evaluate(fitted.model, fitted.splits.test).accuracy > 0.5


def test_tuning_is_a_third_of_the_epochs_and_validates():
    presets = get("together-vit").presets
    for preset in ("laptop", "long", "full"):
        assert presets[preset]["tuning"]["epochs"] == presets[preset]["epochs"] // 3
    splits = vit.fit(job_of("smoke", "gelu", stage="tuning")).splits
    assert (len(splits.train), len(splits.validation)) == (200, 270)


def test_the_presets_differ_in_size_alone():
    found = differing("together-vit")
    assert found["pilot"] == {"seeds", "competitors"}
    assert found["long"] == {"tuning", "epochs", "learning_rates", "seeds", "competitors"}
    assert found["full"] == {
        *("train_size", "tuning", "width", "depth", "heads", "epochs", "seeds", "precision", "compiled", "device"),
    }


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("neuron", ["la_silu", "dnrt", "centre"])
def test_the_full_preset_compiles_every_neuron_in_one_graph(neuron):
    small = {"width": 32, "depth": 2, "heads": 2, "patch": 2, "epochs": 1, "train_size": 100, "batch_size": 50}
    vit.fit(job_of("full", neuron, device="cpu", dataset="digits", shift=1, **small))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
