"""Networks of units with several arguments, and widths that make their numbers of parameters equal."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from companion.study.models import UnitCNN, UnitMLP, matched_widths


def test_a_perceptron_is_linear_norm_activation_dropout():
    model = UnitMLP(12, 5, (4, 3), lambda: nn.MaxPool1d(2), arity=2, norm=True)
    x = torch.randn(7, 3, 2, 2)
    expected = x.flatten(1)
    for layer, width in zip(model.layers, (8, 6), strict=True):
        z = layer(expected)
        assert z.shape == (7, width)
        z = (z - z.mean(1, keepdim=True)) / (z.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        expected = z.unflatten(1, (-1, 2)).amax(2)
    torch.testing.assert_close(model.eval()(x), model.head(expected))


def test_a_convolutional_network_is_convolution_norm_activation_pool_dropout():
    model = UnitCNN(2, 5, (4, 3, 3), norm=True).eval()
    x = torch.randn(7, 2, 5, 5)
    expected = x
    for convolution, side in zip(model.convolutions, (2, 1, 1), strict=True):
        z = convolution(expected)
        mean, variance = z.mean((1, 2, 3), keepdim=True), z.var((1, 2, 3), correction=0, keepdim=True)
        z = torch.relu((z - mean) / (variance + 1e-5).sqrt())
        expected = F.max_pool2d(z, 2) if z.shape[2] > 1 else z
        assert expected.shape[2:] == (side, side)
    torch.testing.assert_close(model(x), model.head(expected.mean((2, 3))))


@pytest.mark.parametrize("network", [UnitMLP, UnitCNN])
def test_dropout_follows_every_activation_and_norms_have_no_parameters(network):
    model = network(4 if network is UnitMLP else 1, 3, (8, 8), norm=True, dropout=0.5)
    x = torch.randn(5, 1, 2, 2)
    calls = []
    model.dropout.register_forward_hook(lambda module, args, output: calls.append((output == 0).float().mean()))
    model(x)
    assert len(calls) == 2
    assert not torch.equal(model(x), model(x))
    plain = network(4 if network is UnitMLP else 1, 3, (8, 8))
    assert [p.shape for p in plain.parameters()] == [p.shape for p in model.parameters()]
    assert torch.equal(plain.eval()(x), plain(x))


@pytest.mark.parametrize("network", [UnitMLP, UnitCNN])
def test_one_activation_serves_all_layers_where_the_factory_gives_the_same(network):
    shared = nn.PReLU()
    model = network(4 if network is UnitMLP else 1, 3, (2, 2), lambda: shared)
    assert {id(module) for module in model.activations} == {id(shared)}
    assert sum(parameter is shared.weight for parameter in model.parameters()) == 1


def test_the_weights_are_drawn_before_activations_are_made():
    def drawing():
        torch.rand(())
        return nn.ReLU()

    first, second = [], []
    for factory, found in ((nn.ReLU, first), (drawing, second)):
        torch.manual_seed(0)
        found += UnitMLP(4, 3, (5, 5), factory).parameters()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("profile", [(64, 64, 64), (60, 120, 120, 120), (3, 1)])
@pytest.mark.parametrize("budget", [2_000, 50_000])
def test_no_layer_of_matched_widths_could_be_wider(profile, budget):
    def count(widths):
        return sum((n + 1) * m for n, m in zip((7, *widths), (*widths, 10), strict=True))

    widths = matched_widths(profile, count, budget)
    assert count(widths) <= budget
    for layer in range(len(profile)):
        assert count([width + (i == layer) for i, width in enumerate(widths)]) > budget
    shares = [width / whole for width, whole in zip(widths, profile, strict=True)]
    # what the dearest layer can no longer have, cheaper ones get
    assert max(shares) < 1.2 * min(shares) + 1 / min(profile)


def test_too_small_a_budget_is_an_error():
    with pytest.raises(ValueError, match="budget is 3; allowed is 8 or more"):
        matched_widths((1, 1), lambda widths: 4 * sum(widths), 3)
