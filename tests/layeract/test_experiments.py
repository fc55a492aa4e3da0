import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from companion.baselines import PReLU
from companion.layeract.study import experiments
from companion.layeract.study.experiments import comparisons
from companion.study import datasets
from companion.study.analysis import compare, paired
from companion.study.corruptions import CORRUPTIONS
from companion.study.experiments import Job, get
from companion.study.experiments.classification import Fitted, fit, validation_accuracy
from companion.study.models import Standardise
from tests.study.experiments.committed import committed, runs

EPOCHS = (1, 40, 80)
ACCURACIES = {"accuracy_clean", *(f"accuracy_{name}" for name in CORRUPTIONS)}
# The keys that the claims read.
KEYS = {
    "layeract-mnist": {
        "activation",
        "seed",
        "learning_rate",
        "accuracy",
        *(f"{name}_epoch_{epoch}" for name in ("mean_activation", "mean_input") for epoch in EPOCHS),
        *(f"{name}_{noise}" for name in ("fluctuation_mean", "fluctuation_std") for noise in (1, 2)),
        *(f"{name}_{noise}" for name in ("input_fluctuation_mean", "gain_mean") for noise in (1, 2)),
        *(f"{name}_{noise}" for name in ("y_fluctuation_mean", "y_fluctuation_std") for noise in (1, 2)),
    },
    "layeract-cifar10": {"activation", "seed", "network", *ACCURACIES},
    "layeract-cifar100": {"activation", "seed", "network", *ACCURACIES},
}


@pytest.fixture(scope="module")
def mnist(results):
    return results["layeract-mnist"]["rows"]


def settings_of(name, preset, **changes):
    kept = {**get(name).presets[preset], **changes}
    return {key: value for key, value in kept.items() if key not in ("seeds", "learning_rates", "tuning_seeds")}


def job_of(name, activation, seed=0, rate=0.01, preset="smoke", **changes):
    case = {"activation": activation}
    if name != "layeract-mnist":
        case["network"] = changes.pop("network", "cnn")
    return Job(name, "evaluation", case, settings_of(name, preset, **changes), seed, rate)


TestRuns = runs(KEYS, committed("layeract"), again=("layeract-mnist",))


# What the paper fixes, read in its appendix E.
def test_the_reproductions_follow_the_paper_and_tune_nothing():
    mnist = get("layeract-mnist").presets["laptop"]
    assert (mnist["epochs"], mnist["learning_rates"], mnist["weight_decay"]) == (80, [0.01], 1e-4)
    for name in ("layeract-cifar10", "layeract-cifar100"):
        full = get(name).presets["full"]
        steps = full["epochs"] * math.ceil(45_000 / full["batch_size"])
        assert steps == pytest.approx(64_000, rel=0.01)
        assert [steps * milestone for milestone in full["milestones"]] == pytest.approx([32_000, 48_000], rel=0.01)
        assert (full["batch_size"], full["learning_rates"], full["weight_decay"]) == (128, [0.1], 1e-4)
        assert (full["validation"], full["augment"], full["standardise"]) == (0.1, True, "network")
        assert full["networks"] == ["resnet20", "resnet32", "resnet44"]
    for name in KEYS:
        assert len(get(name).presets["full" if "cifar" in name else "laptop"]["activations"]) == 8
        assert get(name).presets["smoke"]["milestones"] == [0.5, 0.75]
    assert mnist["tuning_seeds"] == get("layeract-cifar10").presets["full"]["tuning_seeds"] == []


def test_the_comparison_tunes_every_activation_alike(results):
    tuning = results["layeract-cifar10"]["tuning"]
    tried = {(row["activation"], row["learning_rate"], row["seed"]) for row in tuning}
    assert tried == {(a, rate, 1000) for a in ("relu", "la_silu") for rate in (0.03, 0.1)}


def excerpt_job(stage, case):
    """A job of the excerpt, as it is but for digits, a smaller network, and one whole batch and a rest of 2."""
    settings = settings_of("layeract-cifar10", "excerpt", dataset="digits", train_size=130, epochs=1)
    settings["tuning"] = {"epochs": 1}
    return Job("layeract-cifar10", stage, {**case, "network": "resnet8_half"}, settings, 0, 0.15)


EXCERPT_CASES = get("layeract-cifar10").cases(get("layeract-cifar10").presets["excerpt"])


# One of torch's activations and one of ours; tests/study/test_training.py traces every one of them.
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("name", ["relu", "la_silu"])
def test_the_excerpt_is_tuned_and_measured_the_way_it_will_be(name):
    [case] = [case for case in EXCERPT_CASES if case["activation"] == name]
    experiment = get("layeract-cifar10")
    assert 0 <= experiment.validate(excerpt_job("tuning", case)) <= 1
    [row] = experiment.measure(excerpt_job("evaluation", case))
    assert row.keys() == ACCURACIES
    assert all(0 <= value <= 1 for value in row.values())
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


@pytest.mark.usefixtures("traced")
def test_the_excerpts_network_stays_finite_and_channels_last():
    [case] = [case for case in EXCERPT_CASES if case["activation"] == "la_silu"]
    fitted = experiments._fit(excerpt_job("evaluation", case))
    assert all(parameter.isfinite().all() for parameter in fitted.model.parameters())
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in fitted.model.parameters() if p.ndim == 4)


def test_the_excerpt_differs_from_the_full_preset_in_schedule_and_arithmetic_alone():
    presets = get("layeract-cifar10").presets
    full, excerpt = presets["full"], presets["excerpt"]
    differing = {key for key in full.keys() | excerpt.keys() if full.get(key) != excerpt.get(key)}
    schedule = {"epochs", "milestones", "one_cycle", "learning_rates", "tuning_seeds", "tuning"}
    assert differing == {"networks", "activations", "device", "precision", "compiled", "channels_last", *schedule}
    assert set(excerpt["networks"]) < set(full["networks"])
    assert set(excerpt["activations"]) < set(full["activations"])


POINTS = torch.linspace(-7, 7, 57, dtype=torch.float64)
ELEMENT_LEVEL = {
    "relu": lambda y: y.clamp(min=0),
    "leaky_relu": lambda y: torch.where(y > 0, y, 0.01 * y),
    "prelu": lambda y: torch.where(y > 0, y, 0.25 * y),
    "mish": lambda y: y * torch.tanh(F.softplus(y)),
    "silu": lambda y: y / (1 + torch.exp(-y)),
    "hardsilu": lambda y: y * (y / 6 + 0.5).clamp(0, 1),
}


@pytest.mark.parametrize("name", ELEMENT_LEVEL)
def test_the_element_level_functions_are_those_of_the_paper(name):
    module = experiments._ACTIVATIONS[name]().double()
    torch.testing.assert_close(module(POINTS), ELEMENT_LEVEL[name](POINTS))


@pytest.mark.parametrize("name", ["la_silu", "la_hardsilu"])
def test_the_layer_level_functions_normalise_over_the_layer_with_the_papers_variance(name):
    y = torch.stack([POINTS, POINTS.square()])
    n = (y - y.mean(1, keepdim=True)) / torch.sqrt(y.var(1, correction=0, keepdim=True) + 1e-5)
    gate = torch.sigmoid(n) if name == "la_silu" else (n / 6 + 0.5).clamp(0, 1)
    torch.testing.assert_close(experiments._ACTIVATIONS[name]()(y), y * gate)


def test_the_hidden_layer_is_measured_where_it_is(mnist):
    """Every number of a row, computed a second time with plain tensors from the same network."""
    job = job_of("layeract-mnist", "la_silu")
    fitted = fit(job, experiments._ACTIVATIONS["la_silu"])
    [row] = [row for row in mnist if row["activation"] == "la_silu" and row["seed"] == 0]
    weights = dict(fitted.model.named_parameters())
    test = fitted.splits.test

    def activated(y):
        n = (y - y.mean(1, keepdim=True)) / torch.sqrt(y.var(1, correction=0, keepdim=True) + 1e-5)
        return y * torch.sigmoid(n)

    def layer(images):
        y = images.flatten(1) @ weights["layers.0.weight"].T + weights["layers.0.bias"]
        return y, activated(y)

    with torch.no_grad():
        y, a = layer(test.inputs)
        expected = {
            "mean_activation_epoch_80": a.mean(0).abs().mean(),
            "signed_mean_activation_epoch_80": a.mean(),
            "rms_activation_epoch_80": a.square().mean().sqrt(),
            "mean_input_epoch_80": y.mean(0).abs().mean(),
        }
        for noise, mean in ((1, 0.0), (2, 0.1)):
            generator = torch.Generator().manual_seed(0)
            shift = mean + 0.05 * torch.randn(test.inputs.shape, generator=generator)
            noisy_y, noisy_a = layer(test.inputs + shift)
            change, input_change = (noisy_a - a).abs().sum(1), (noisy_y - y).abs().sum(1)
            expected |= {
                f"fluctuation_mean_{noise}": change.mean(),
                f"fluctuation_std_{noise}": change.std(),
                f"input_fluctuation_mean_{noise}": input_change.mean(),
                f"relative_fluctuation_mean_{noise}": (change / a.abs().sum(1)).mean(),
                f"gain_mean_{noise}": (change / input_change).mean(),
            }
            shifted = y + mean + 0.05 * torch.randn(y.shape, generator=generator)
            expected[f"y_fluctuation_mean_{noise}"] = (activated(shifted) - a).abs().sum(1).mean()
        hits = fitted.model(test.inputs).argmax(1) == test.targets
    expected["accuracy"] = hits.double().mean()
    for key, value in expected.items():
        assert row[key] == pytest.approx(float(value), rel=1e-4), key


def test_distributions_and_their_means_belong_together(mnist):
    for row in mnist:
        for noise in (1, 2):
            for name in ("fluctuation", "input_fluctuation", "y_fluctuation"):
                points = row[f"{name}_quantiles_{noise}"]
                assert points == sorted(points)
                assert points[0] <= row.get(f"{name}_mean_{noise}") <= points[-1]
        for epoch in EPOCHS:
            for name in ("activation", "input"):
                points = row[f"{name}_quantiles_epoch_{epoch}"]
                assert points[0] <= row[f"signed_mean_{name}_epoch_{epoch}"] <= points[-1]
                assert row[f"mean_{name}_epoch_{epoch}"] <= max(-points[0], points[-1])


def test_relu_has_no_negative_mean_and_never_amplifies(mnist):
    for row in mnist:
        if row["activation"] == "relu":
            assert min(row["activation_quantiles_epoch_80"]) >= 0
            assert max(row["gain_mean_1"], row["gain_mean_2"]) <= 1


def test_watching_does_not_change_the_training():
    job = job_of("layeract-mnist", "silu", epochs=2)
    watched, unwatched = fit(job, nn.SiLU, watch=lambda fitted, epoch: None), fit(job, nn.SiLU)
    for a, b in zip(watched.model.parameters(), unwatched.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_watched_epochs_are_those_of_the_training():
    seen = []
    fit(job_of("layeract-mnist", "relu", epochs=3), nn.ReLU, watch=lambda fitted, epoch: seen.append((fitted, epoch)))
    assert [epoch for _, epoch in seen] == [1, 2, 3]
    assert all(isinstance(fitted, Fitted) for fitted, _ in seen)


def test_all_activations_of_one_seed_start_from_the_same_weights_and_meet_the_same_images():
    fitted = [
        fit(job_of("layeract-cifar10", name, epochs=0), experiments._ACTIVATIONS[name]) for name in ("relu", "la_silu")
    ]
    for a, b in zip(fitted[0].model.parameters(), fitted[1].model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(fitted[0].splits.train.inputs, fitted[1].splits.train.inputs)


def test_prelus_slope_is_spared_by_weight_decay():
    from companion.weight_decay import parameter_groups

    fitted = fit(job_of("layeract-mnist", "prelu", epochs=1), experiments._ACTIVATIONS["prelu"])
    [prelu] = [module for module in fitted.model.modules() if isinstance(module, PReLU)]
    decayed = [p for group in parameter_groups(fitted.model, 1e-4) if group["weight_decay"] for p in group["params"]]
    assert all(p is not prelu.weight for p in decayed)


def test_standardisation_is_where_the_settings_say():
    inside = fit(job_of("layeract-cifar10", "relu", epochs=0), nn.ReLU)
    assert isinstance(inside.model[0], Standardise)
    assert (inside.splits.train.inputs.min(), inside.splits.train.inputs.max()) == (0, 1)
    standardised = inside.model[0](inside.splits.train.inputs)
    assert standardised.mean().abs() < 1e-5
    assert standardised.std() == pytest.approx(1, abs=1e-4)
    nowhere = fit(job_of("layeract-mnist", "relu", epochs=0), nn.ReLU)
    assert (nowhere.splits.test.inputs.min(), nowhere.splits.test.inputs.max()) == (0, 1)
    assert not any(isinstance(module, Standardise) for module in nowhere.model.modules())
    with pytest.raises(ValueError, match="standardise is 'yes'; allowed are data, network, none"):
        fit(job_of("layeract-mnist", "relu", standardise="yes"), nn.ReLU)


def test_the_training_part_is_as_large_as_the_settings_say_and_drawn_by_the_seed():
    fitted = [fit(job_of("layeract-cifar10", "relu", seed, epochs=0, train_size=300), nn.ReLU) for seed in (0, 1)]
    whole = datasets.load("digits", 0, validation=0.1, standardise=False)
    kept = fitted[0].splits
    assert len(kept.train) == 300
    rows = {tuple(image.flatten().tolist()) for image in whole.train.inputs}
    assert {tuple(image.flatten().tolist()) for image in kept.train.inputs} < rows
    assert torch.equal(kept.validation.inputs, whole.validation.inputs)
    assert torch.equal(kept.test.inputs, whole.test.inputs)
    assert not torch.equal(kept.train.targets, fitted[1].splits.train.targets)


def test_noise_is_added_between_0_and_1_and_before_standardisation(results):
    job = job_of("layeract-cifar10", "la_silu", rate=0.03)
    [tuned] = [row for row in results["layeract-cifar10"]["chosen"] if row["activation"] == "la_silu"]
    job = Job(**{**vars(job), "learning_rate": tuned["learning_rate"]})
    fitted = fit(job, experiments._ACTIVATIONS["la_silu"])
    [row] = [row for row in results["layeract-cifar10"]["rows"] if row["activation"] == "la_silu" and row["seed"] == 0]
    test = fitted.splits.test
    generator = torch.Generator().manual_seed(0)
    model = fitted.model.eval()
    mean, deviation = datasets.channel_statistics(fitted.splits.train)
    for name, corrupt in CORRUPTIONS.items():
        noisy = (corrupt(test.inputs, generator) - mean) / deviation
        with torch.no_grad():
            accuracy = (model[1](noisy).argmax(1) == test.targets).double().mean()
        assert row[f"accuracy_{name}"] == float(accuracy)


def test_validation_looks_at_the_validation_part(monkeypatch):
    job = job_of("layeract-cifar10", "relu", rate=0.1, epochs=1)
    fitted = fit(job, nn.ReLU)
    monkeypatch.setattr(experiments, "fit", lambda *arguments: fitted)
    part = fitted.splits.validation
    with torch.no_grad():
        expected = (fitted.model.eval()(part.inputs).argmax(1) == part.targets).double().mean()
    assert validation_accuracy(experiments._fit, job) == float(expected)


def noisy_rows(networks=("resnet20",), seeds=5):
    """One LayerAct function is better by two points than all others, in one column only."""
    generator = torch.Generator().manual_seed(0)
    return [
        {
            "network": network,
            "activation": activation,
            "seed": seed,
            "accuracy_clean": 0.9 + 0.002 * torch.randn((), generator=generator).item(),
            "accuracy_blur": 0.5
            + 0.001 * torch.randn((), generator=generator).item()
            + 0.02 * (activation == "la_hardsilu"),
        }
        for network in networks
        for activation in ("relu", "silu", "la_silu", "la_hardsilu")
        for seed in range(seeds)
    ]


def test_comparisons_are_every_layer_level_function_with_every_element_level_one():
    found = comparisons(noisy_rows(("resnet20", "resnet44")), ("accuracy_clean", "accuracy_blur"))
    assert len(found) == 2 * 2 * 2 * 2
    assert {d.key[2:] for d in found} == {(a, b) for a in ("la_silu", "la_hardsilu") for b in ("relu", "silu")}
    significant = {d.key[:3] for d in found if d.p_holm < 0.05}
    assert significant == {(network, "accuracy_blur", "la_hardsilu") for network in ("resnet20", "resnet44")}
    for d in found:
        if d.p_holm < 0.05:
            assert d.difference.mean == pytest.approx(0.02, abs=0.002)


def test_comparisons_are_paired_tests_corrected_over_all_of_them():
    rows = noisy_rows()
    found = comparisons(rows, ("accuracy_clean", "accuracy_blur"))
    [one] = [d for d in found if d.key[1:] == ("accuracy_clean", "la_silu", "silu")]
    a, b = ([r["accuracy_clean"] for r in rows if r["activation"] == name] for name in ("la_silu", "silu"))
    assert (one.difference, one.p_value) == paired(a, b)
    smallest = min(found, key=lambda d: d.p_value)
    assert smallest.p_holm == pytest.approx(min(1.0, len(found) * smallest.p_value))
    # The package's other comparison agrees but for the correction.
    [other] = [
        c for c in compare(rows, factor="activation", reference="silu", measure="accuracy_clean") if c.key == "la_silu"
    ]
    assert (other.difference, other.p_value) == (one.difference, one.p_value)


def test_a_result_with_one_network_has_no_network(mnist):
    found = comparisons(mnist, ("fluctuation_mean_1",))
    assert [d.key for d in found] == [
        (None, "fluctuation_mean_1", "la_silu", "relu"),
        (None, "fluctuation_mean_1", "la_hardsilu", "relu"),
    ]


def test_missing_seeds_are_refused():
    with pytest.raises(ValueError, match=r"element_level='relu'\) has the seeds .*, its reference has \[1, 2, 3, 4\]"):
        comparisons(noisy_rows()[1:], ("accuracy_clean",))
