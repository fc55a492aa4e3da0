import math

import pytest
import torch
from torch import nn

from companion import AGLU, RAA, DACLinear, MultiBias
from companion.baselines import PReLU
from companion.study.datasets import Part
from companion.study.together import measures
from companion.study.together.measures import (
    attacks,
    calibration_error,
    corruptions,
    judged,
    last_features,
    learned,
    neural_collapse,
    noises,
)
from companion.study.training import train


def test_calibration_is_the_mean_distance_of_accuracy_and_confidence_over_bins():
    # confidences 0.95 (one of two right) and 0.55 (both right), in two of fifteen bins
    logits = torch.tensor([[0.95, 0.05], [0.95, 0.05], [0.45, 0.55], [0.45, 0.55]]).log()
    targets = torch.tensor([0, 1, 1, 1])
    assert calibration_error(logits, targets) == pytest.approx(0.5 * (0.95 - 0.5) + 0.5 * (1 - 0.55))
    # in one bin the errors of the two groups have opposite signs
    assert calibration_error(logits, targets, bins=1) == pytest.approx(0, abs=1e-6)


def test_a_certain_network_that_is_right_is_calibrated():
    assert calibration_error(torch.tensor([[100.0, 0.0], [0.0, 100.0]]), torch.tensor([0, 1])) == pytest.approx(0)


def test_of_a_network_that_diverged_nothing_is_measured():
    nothing, targets = torch.full((4, 2), math.nan), torch.tensor([0, 1, 0, 1])
    assert math.isnan(calibration_error(nothing, targets))
    assert math.isnan(neural_collapse(nothing, targets))


def test_collapse_is_its_formula():
    torch.manual_seed(0)
    targets = torch.arange(300) % 3
    features = torch.randn(3, 5)[targets] + 0.3 * torch.randn(300, 5)
    x = features.double()
    means = torch.stack([x[targets == c].mean(0) for c in range(3)])
    within = torch.stack([(x[targets == c] - means[c]).T @ (x[targets == c] - means[c]) for c in range(3)]).sum(0) / 300
    between = (means - x.mean(0)).T @ (means - x.mean(0)) / 3
    expected = torch.trace(within @ torch.linalg.pinv(between, rtol=1e-9)) / 3
    assert neural_collapse(features, targets) == pytest.approx(float(expected), rel=1e-6)
    turned = 3 * features @ torch.linalg.qr(torch.randn(5, 5)).Q
    assert neural_collapse(turned, targets) == pytest.approx(float(expected), rel=1e-4)


def test_the_last_features_are_what_the_head_is_given():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    inputs = torch.randn(300, 1, 2, 2)
    features, logits = last_features(model, inputs)
    torch.testing.assert_close(features, model[:3](inputs))
    torch.testing.assert_close(logits, model(inputs))


def data(n=80, side=8):
    """Bright and dark images."""
    targets = torch.arange(n) % 2
    generator = torch.Generator().manual_seed(0)
    return Part(
        (0.3 + 0.4 * targets[:, None, None, None] + 0.1 * torch.randn(n, 3, side, side, generator=generator)).clamp(
            0, 1
        ),
        targets,
    )


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.ReLU(), nn.Linear(8, 2))
    train(network, data(), epochs=20, learning_rate=0.1, batch_size=20)
    return network.eval()


def test_noise_that_does_nothing_to_the_mean_does_little_and_noise_that_moves_it_much(model):
    row = noises(model, data(), seed=0)
    assert list(row) == [f"accuracy_std_{x}" for x in measures.DEVIATIONS] + [
        f"accuracy_mean_{x}" for x in measures.MEANS
    ]
    assert row["accuracy_std_0.05"] == 1.0
    # as bright as bright ones, or as dark as dark ones
    assert row["accuracy_mean_0.4"] == row["accuracy_mean_-0.4"] == 0.5


def test_noise_depends_on_the_seed_alone(model):
    assert noises(model, data(), seed=0) == noises(model, data(), seed=0)


def test_the_mean_over_corruptions_is_one_over_all(model):
    row = corruptions(model, data())
    kinds = [value for name, value in row.items() if name != "accuracy_corrupted"]
    assert len(kinds) == 14
    assert row["accuracy_corrupted"] == pytest.approx(sum(kinds) / 14)


def test_an_attack_does_more_than_signs_and_more_with_more():
    # classes lie about 2/255 to both sides of 0.5, and the network asks for the mean alone
    images = data()
    images = Part(0.5 + (images.inputs - 0.5) / 25.5, images.targets)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[-1.0], [1.0]]).expand(2, 192))
        model[1].bias.copy_(torch.tensor([0.5 * 192, -0.5 * 192]))
    row = attacks(model, images, seed=0)
    assert row["accuracy_attacked_8"] < row["accuracy_attacked"] < row["accuracy_signs"]


def test_what_neurons_learned_is_listed_by_layer():
    raa, dac = RAA(2), DACLinear(3, 2)
    with torch.no_grad():
        raa.weight.copy_(torch.tensor([3.0, 4.0]))
        dac.bias.copy_(torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]))
    model = nn.Sequential(AGLU(init=(1.5, 0.5)), PReLU(), raa, dac, MultiBias(4, 2), AGLU(init=(1.0, 1.0)))
    row = learned(model)
    assert row["kappa"] == [1.5, 1.0]
    assert row["lam"] == pytest.approx([0.5, 1.0])
    assert row["slope"] == [0.25]
    assert (row["raa_weight"], row["raa_bias"]) == ([5.0], [0.0])
    # all outputs of the DAC have equal biases, and all copies
    assert row["bias_spread"] == [0.0, 0.0]
    assert learned(nn.Linear(2, 2)) == {}


def test_everything_is_measured_of_as_many_images_as_the_sizes_say(model, monkeypatch):
    seen = {}
    for name in ("noises", "corruptions", "attacks"):
        monkeypatch.setattr(
            measures, name, lambda model, part, *seed, name=name: seen.setdefault(name, len(part)) and {}
        )
    part = data()
    row = judged(model, part, part, {"collapse": 40, "noise": 30, "corrupted": 20, "attacked": 10}, seed=0)
    assert seen == {"noises": 30, "corruptions": 20, "attacks": 10}
    assert row["accuracy"] == 1.0
    assert row["collapse"] == neural_collapse(last_features(model, part.inputs[:40])[0], part.targets[:40])
