"""The experiments on multi-argument neurons: three sessions with equal parameters, and what is measured of them."""

import copy
import math

import pytest
import torch
from torch import nn

from companion.multi_argument.layers import MultiArgument, Quadratic
from companion.multi_argument.study import experiments
from companion.multi_argument.study.experiments import comparisons, label, masking
from companion.study.analysis import projected_gradient
from companion.study.experiments import Job, get
from companion.study.models import Standardise
from companion.study.training import evaluate
from tests.study.experiments.committed import committed, runs

KEYS = ("multi-argument-cifar10", "multi-argument-cnn", "multi-argument-mnist")
SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32), "digits": (1, 8, 8)}


def job_of(neuron, name="multi-argument-mnist", norm=True, seed=0, rate=3e-3, **changes):
    settings = {**get(name).presets["smoke"], **changes}
    kept = {key: value for key, value in settings.items() if key not in ("seeds", "learning_rates", "tuning_seeds")}
    return Job(name, "evaluation", {"neuron": neuron, "norm": norm}, kept, seed, rate)


TestRuns = runs(dict.fromkeys(KEYS, ()), committed("multi-argument"))


# What is equal.


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("preset", ["laptop", "mnist", "full"])
def test_outer_networks_have_the_parameters_of_two_arguments_within_one_per_cent_and_never_more(name, preset):
    settings = get(name).presets.get(preset, get(name).presets["laptop"])
    channels, *sides = SHAPES[settings["dataset"]]
    shape = (channels, *(side // settings.get("pool", 1) for side in sides))
    wanted = parameters_of("arity 2", settings, shape)
    for neuron in settings["neurons"]:
        assert 0.99 * wanted <= parameters_of(neuron, settings, shape) <= wanted


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("norm", [True, False])
def test_a_case_is_normalised_or_not_and_nothing_else_differs(name, norm):
    job = job_of("relu", name, norm)
    data = experiments.Part(torch.rand(4, 1, 8, 8), torch.zeros(4))
    network = experiments._network(job, experiments.Splits(data, data, data, 10), None)
    seen = []
    for module in network.modules():
        if isinstance(module, nn.ReLU):
            module.register_forward_pre_hook(lambda _, args: seen.append(args[0].flatten(1)))
    network(data.inputs)
    for x in seen:
        spread = x.var(1, correction=0)
        assert torch.allclose(spread, torch.ones(4), atol=1e-2) == norm
    assert seen


def parameters_of(neuron, settings, shape):
    """Counted on the network itself."""
    job = Job("", "evaluation", {"neuron": neuron, "norm": True}, dict(settings), 0, None)
    data = experiments.Part(torch.zeros(1, *shape), torch.zeros(1))
    with torch.device("meta"):
        network = experiments._network(job, experiments.Splits(data, data, data, 10), nn.Identity())
    return sum(parameter.numel() for parameter in network.parameters())


def test_in_session_three_the_inner_networks_parameters_are_not_counted(results):
    rows = {label(row): row for row in results["multi-argument-mnist"]["rows"]}
    inner = {"arity 1": 4353, "arity 2": 4417, "arity 3": 4481, "quadratic": 6, "relu": 0}
    for neuron, count in inner.items():
        row = rows[f"{neuron} + norm"]
        assert row["parameters_two"] - row["parameters"] == count
        # of so small networks one unit is more than one per cent
        assert 0.97 <= row["parameters"] / rows["arity 2 + norm"]["parameters"] <= 1


# The sessions.


@pytest.mark.parametrize("neuron", ["arity 2", "quadratic"])
def test_session_two_trains_the_inner_network_and_session_three_leaves_it_and_begins_a_new_outer_one(
    neuron, monkeypatch
):
    seen, train = [], experiments._train

    def spy(job, splits, inner, seed, watch=None):
        before = copy.deepcopy(inner.state_dict())
        torch.manual_seed(seed)
        outer = experiments._network(job, splits, inner)[1].head.weight.clone()
        session = train(job, splits, inner, seed, watch)
        seen.append((before, copy.deepcopy(inner.state_dict()), outer, session.model[1].head.weight.clone()))
        return session

    monkeypatch.setattr(experiments, "_train", spy)
    options = {"seed": 3, "epochs": 2, "attacked": 10, "map_steps": 5}
    [row] = experiments._measure(job_of(neuron, **options))
    (start, learned, outer_two, trained_two), (frozen, still, outer_three, trained_three) = seen
    assert all(not torch.equal(start[name], learned[name]) for name in start)
    assert all(torch.equal(learned[name], frozen[name]) for name in start)
    assert all(torch.equal(learned[name], still[name]) for name in start)
    assert not torch.equal(outer_two, outer_three)
    assert not torch.equal(trained_two, outer_two)
    assert not torch.equal(trained_three, outer_three)
    # Where a run asks for what is learned alone, the third one is left out and the rest is the same.
    [learned_alone] = experiments._measure(job_of(neuron, sessions=2, **options))
    assert len(seen) == 3
    assert {key: row[key] for key in row if key.endswith("_two") or key in ("coefficients", "spectrum")} == {
        key: value
        for key, value in learned_alone.items()
        if key.endswith("_two") or key in ("coefficients", "spectrum")
    }
    assert learned_alone["accuracy"] is None


class Scripted:
    """Validation accuracies as given, epoch by epoch, and the weights that were judged."""

    def __init__(self, accuracies):
        self.accuracies, self.weights = iter(accuracies), []

    def __call__(self, model, part):
        self.weights.append(copy.deepcopy(model.state_dict()))
        return type("Evaluation", (), {"accuracy": next(self.accuracies)})


def test_the_weights_of_the_best_epoch_are_kept_and_the_window_ends_the_training(monkeypatch):
    job = job_of("arity 2", epochs=10, window=2, map_steps=1)
    splits, inner, _ = experiments._begun(job)
    script = Scripted([0.5, 0.9, 0.9, 0.8, 1.0])
    monkeypatch.setattr(experiments, "evaluate", script)
    session = experiments._train(job, splits, inner, 0)
    assert (session.accuracies, session.best) == ([0.5, 0.9, 0.9, 0.8], 2)
    kept = session.model.state_dict()
    assert all(torch.equal(kept[name], script.weights[1][name]) for name in kept)
    assert not torch.equal(kept["1.head.weight"], script.weights[2]["1.head.weight"])
    assert torch.equal(inner.weights[0], kept["1.activations.0.weights.0"])


def test_the_rate_is_chosen_by_session_two_on_validation_images():
    job = job_of("relu", epochs=2)
    splits, inner, _ = experiments._begun(job)
    session = experiments._train(job, splits, inner, job.seed)
    assert experiments._validate(job) == max(session.accuracies)
    assert evaluate(session.model, splits.validation).accuracy == max(session.accuracies)


def test_the_quadratic_begins_as_the_best_fit_to_the_inner_network_of_two_arguments():
    inner, explained = experiments._pretrained(job_of("arity 2"))
    form, same = experiments._pretrained(job_of("quadratic"))
    assert isinstance(inner, MultiArgument)
    assert isinstance(form, Quadratic)
    assert explained == same
    torch.manual_seed(7)
    normal = torch.randn(20_000, 2)
    rest = (inner.at(normal) - form.at(normal)).var() / inner.at(normal).var()
    assert rest.item() == pytest.approx(1 - inner.quadratic(normal)[1], abs=0.02)


def test_seeds_and_maps_give_other_functions():
    points = torch.randn(50, 2)
    found = [
        experiments._pretrained(job_of("arity 2", seed=seed, map=kind))[0].at(points)
        for seed, kind in ((0, "code"), (1, "code"), (0, "paper"), (0, "code"))
    ]
    assert torch.equal(found[0], found[3])
    assert not any(torch.allclose(found[0], other) for other in found[1:3])


def test_pixels_of_the_attack_are_those_before_standardisation():
    splits, inner, _ = experiments._begun(job_of("relu"))
    model = experiments._network(job_of("relu"), splits, inner)
    assert isinstance(model[0], Standardise)
    assert splits.test.inputs.min() == 0
    assert splits.test.inputs.max() == 1
    projected_gradient(model, splits.test.inputs[:5], splits.test.targets[:5], 0.1, steps=1)


# What was learned.


@pytest.mark.parametrize("name", ["multi-argument-mnist", "multi-argument-cnn"])
def test_the_arguments_are_those_of_all_units_and_layers(name):
    job = job_of("arity 2", name)
    splits, inner, _ = experiments._begun(job)
    model = experiments._network(job, splits, inner)
    given, made = [], []

    def hook(module, args, output):
        given.append(args[0])
        made.append(output)

    handle = inner.register_forward_hook(hook)
    images = splits.validation.inputs[:3]
    model.eval()(images)
    handle.remove()
    arguments = experiments._arguments(model, inner, images)
    assert len(given) == 2
    assert len(arguments) == sum(x.numel() for x in given) // 2
    everything = torch.cat([y.flatten() for y in made])
    torch.testing.assert_close(inner.at(arguments).sort().values, everything.sort().values)


def test_of_a_known_function_the_measures_are_known():
    arguments = torch.randn(4000, 2)
    product = experiments._function(Quadratic(2, coefficients=[0, 0, 2, 0, 0, 5]), 3 * arguments)
    assert product["explained"] == pytest.approx(1)
    assert product["explained_by_plane"] < 0.05
    assert product["curvature"] == pytest.approx(-1)
    assert product["shape"] == pytest.approx(-1)
    assert max(range(7), key=product["spectrum"].__getitem__) == 2
    plane = experiments._function(Quadratic(2, coefficients=[0, 0, 0, 1, -2, 5]), arguments)
    assert plane["explained_by_plane"] == pytest.approx(1)
    assert max(range(7), key=plane["spectrum"].__getitem__) == 1


def test_the_start_is_measured_where_the_learned_function_is(results):
    for name in KEYS:
        for row in results[name]["rows"]:
            if row["neuron"] == "relu":
                assert not [key for key in row if key.startswith(("start_", "explained", "map_"))]
                continue
            assert row["argument_quantiles"] == sorted(row["argument_quantiles"])
            assert row["explained"] >= row["explained_by_plane"] - 1e-6
            assert row["coefficients"] != row["start_coefficients"]
            assert ("curvature" in row) == ("shape" in row) == (row["neuron"] in ("arity 2", "quadratic"))


def test_surfaces_are_of_the_first_seed_and_show_the_training(results):
    rows = {label(row): row for row in results["multi-argument-mnist"]["rows"]}
    surfaces = {key for key in rows["arity 2 + norm"] if key.startswith("surface_")}
    epochs = (0, 1, 2, 3)
    assert surfaces == {"surface_extent", "surface_kept", *(f"surface_epoch_{epoch}" for epoch in epochs)}
    values = [rows["arity 2 + norm"][f"surface_epoch_{epoch}"] for epoch in epochs]
    assert all(len(each) == 41 * 41 for each in values)
    assert len({tuple(each) for each in values}) == 4
    assert rows["arity 2 + norm"]["surface_kept"] in values
    assert not any(key.startswith("surface_") for key in rows["quadratic + norm"])
    [row] = experiments._measure(job_of("arity 2", seed=1, epochs=1, attacked=5, map_steps=1))
    assert not any(key.startswith("surface_") for key in row)


def test_of_a_training_that_diverged_the_function_is_absent():
    [row] = experiments._measure(job_of("quadratic", norm=False, rate=1e30, epochs=2, attacked=5))
    assert "explained" not in row
    assert "map_explained" in row
    assert math.isnan(row["margins"][-1])


# What the networks bear.


def test_the_attack_in_the_smoke_presets_shows_no_sign_of_masking(results):
    for name in KEYS:
        for row in results[name]["rows"]:
            assert masking(row) == [], (name, label(row))
            assert row["accuracy_attacked"] == row["accuracy_attack"][-1] < row["accuracy"]
            assert len(row["accuracy_noise"]) == len(row["accuracy_blur"]) == len(row["accuracy_contrast"]) == 5


SOUND = {
    "margins": [-5.0, -4.0, -3.0, -1.0, 1.0, 2.0, 2.0],
    "accuracy_attack": [0.5, 0.1],
    "accuracy_one_step": [0.5, 0.2],
    "accuracy_random_signs": [0.8, 0.7],
    "accuracy_unbounded": 0.0,
    "without_gradient": 0.0,
}


@pytest.mark.parametrize(
    ("change", "phrases"),
    [
        ({}, []),
        ({"margins": [-5.0, -4.0, -3.0, -3.5, 1.0, 2.0, 2.0]}, ["more steps do less"]),
        ({"margins": [-5.0, -4.0, -3.0, -1.0, 1.0, 2.02, 2.0]}, []),
        ({"accuracy_one_step": [0.4, 0.2]}, ["one step does more than many"]),
        ({"accuracy_random_signs": [0.4, 0.7]}, ["noise does more than the attack"]),
        ({"accuracy_unbounded": 0.01}, ["an attack without bound leaves some"]),
        ({"without_gradient": 0.3}, ["there are images without a gradient"]),
        ({"margins": [None] * 7}, ["the training diverged"]),
    ],
)
def test_each_sign_of_masking_is_seen(change, phrases):
    assert masking(SOUND | change) == phrases


def test_the_comparisons_are_those_of_the_protocol():
    rows = [
        {"neuron": neuron, "norm": norm, "seed": seed, "accuracy": 0.8 + 0.1 * arity + 0.01 * norm + 0.001 * seed}
        for neuron, arity in experiments._ARITIES.items()
        for norm in (True, False)
        for seed in range(3)
    ]
    found = {c.key: c.difference.mean for c in comparisons({"rows": rows})}
    others = {"relu": 0.11, "relu + norm": 0.1, "arity 1": 0.11, "arity 1 + norm": 0.1}
    assert found == pytest.approx({("arity 2 + norm", other): value for other, value in others.items()})


def test_the_full_presets_are_the_papers():
    for name in KEYS:
        full = get(name).presets["full"]
        assert (full["learning_rates"], full["tuning_seeds"]) == ([1e-3], [])
        assert (full["batch_size"], full["window"], full["map"]) == (200, 20, "code")
        hidden = [60, 120, 120, 120] if name.endswith("cnn") else [64, 64, 64]
        assert full["hidden"] == hidden
        assert full["epsilons"][-1] == (0.3 if name.endswith("mnist") else 0.031)
        laptop = get(name).presets["laptop"]
        assert set(laptop["neurons"]) >= {"relu", "arity 1", "arity 2"}
        assert laptop["norms"] == full["norms"] == [True, False]
        assert len(laptop["learning_rates"]) > 2
