import pytest
import torch
from torch import nn

from companion import models
from companion.baselines import PReLU


class Drawing(nn.Module):
    """An activation that draws random numbers when it is made, as AGLU does."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(()))

    def forward(self, x):
        return self.gain * x


class Halving(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.channels = channels

    def forward(self, x):
        assert x.shape[1] == self.channels
        return x / 2


# The three residual networks differ only in how many blocks there are.
NETWORKS = {
    "mlp": (1, 8, 8),
    "layer512": (1, 8, 8),
    "cnn": (1, 8, 8),
    "resnet20": (3, 32, 32),
    "resnet32": (3, 32, 32),
    "resnet44": (3, 32, 32),
}
ACTIVATIONS = {"mlp": 2, "layer512": 1, "cnn": 3, "resnet20": 19, "resnet32": 31, "resnet44": 43}


def weights(model):
    return {name: p for name, p in model.named_parameters() if not name.endswith("gain")}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_activation_gets_the_same_weights_from_the_same_seed(name):
    made = []
    for activation in (nn.ReLU, Drawing):
        torch.manual_seed(0)
        made.append(weights(models.build(name, NETWORKS[name], 10, activation)))
    assert made[0].keys() == made[1].keys()
    assert all(torch.equal(made[0][key], made[1][key]) for key in made[0])


@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer_has_an_activation_of_its_own(name):
    model = models.build(name, NETWORKS[name], 10, PReLU)
    activations = [module for module in model.modules() if isinstance(module, PReLU)]
    assert len(activations) == ACTIVATIONS[name]
    assert model(torch.zeros(2, *NETWORKS[name])).shape == (2, 10)


@pytest.mark.parametrize(("name", "attentions"), [("cnn", 3), ("resnet20", 9), ("resnet32", 15), ("resnet44", 21)])
def test_attention_is_made_for_the_channels_that_it_meets(name, attentions):
    model = models.build(name, NETWORKS[name], 10, nn.ReLU, Halving)
    assert sum(isinstance(module, Halving) for module in model.modules()) == attentions
    assert model(torch.randn(2, *NETWORKS[name])).shape == (2, 10)


@pytest.mark.parametrize("name", ["mlp", "layer512"])
def test_a_perceptron_has_no_attention(name):
    with pytest.raises(ValueError, match=f"attention is given with name '{name}'"):
        models.build(name, (1, 8, 8), 10, nn.ReLU, Halving)


def test_an_unknown_network_lists_those_there_are():
    with pytest.raises(ValueError, match="allowed are mlp, layer512, cnn, resnet20, resnet32, resnet44"):
        models.build("vgg", (1, 8, 8), 10, nn.ReLU)


# He et al. (2016), Table 6, in millions.
@pytest.mark.parametrize(
    ("network", "millions"), [(models.resnet20, 0.27), (models.resnet32, 0.46), (models.resnet44, 0.66)]
)
def test_residual_networks_have_the_published_number_of_parameters(network, millions):
    parameters = sum(p.numel() for p in network(3, 10).parameters())
    assert round(parameters / 1e6, 2) == millions


def test_standardisation_in_the_network_is_that_of_the_data_and_is_saved_with_it():
    images = torch.rand(5, 3, 4, 4)
    deviation, mean = torch.std_mean(images, dim=(0, 2, 3), keepdim=True)
    layer = models.Standardise(mean, deviation)
    assert torch.equal(layer(images), (images - mean) / deviation)
    assert list(layer.parameters()) == []
    again = models.Standardise(torch.zeros(1, 3, 1, 1), torch.ones(1, 3, 1, 1))
    again.load_state_dict(layer.state_dict())
    assert torch.equal(again(images), layer(images))


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_the_initial_scale_of_the_signal_is_kept(name):
    torch.manual_seed(0)
    model = models.build(name, (1, 8, 8), 10, nn.ReLU)
    assert 0.1 < model(torch.randn(256, 1, 8, 8)).std() < 3
