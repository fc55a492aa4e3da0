import pytest
import torch
from torch import nn

from companion.baselines import PReLU
from companion.study import models


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


# The residual networks of a version differ only in how many blocks there are.
NETWORKS = {
    "mlp": (1, 8, 8),
    "layer512": (1, 8, 8),
    "cnn": (1, 8, 8),
    "resnet20": (3, 32, 32),
    "resnet32": (3, 32, 32),
    "resnet44": (3, 32, 32),
    "resnet56": (3, 32, 32),
    "resnet20_v2": (3, 32, 32),
    "resnet32_v2": (3, 32, 32),
    "resnet44_v2": (3, 32, 32),
    "resnet56_v2": (3, 32, 32),
    "resnet20_v2_wide4": (3, 16, 16),
    "vgg20_16": (3, 32, 32),
    "vgg14_32": (3, 32, 32),
    "vit_tiny": (3, 32, 32),
    "vit_64x4": (3, 16, 16),
    "vit_64x4_patch2": (1, 8, 8),
}
ACTIVATIONS = {
    "mlp": 2,
    "layer512": 1,
    "cnn": 3,
    "resnet20": 19,
    "resnet32": 31,
    "resnet44": 43,
    "resnet56": 55,
    "resnet20_v2": 19,
    "resnet32_v2": 31,
    "resnet44_v2": 43,
    "resnet56_v2": 55,
    "resnet20_v2_wide4": 19,
    "vgg20_16": 19,
    "vgg14_32": 13,
    "vit_tiny": 12,
    "vit_64x4": 4,
    "vit_64x4_patch2": 4,
}


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


@pytest.mark.parametrize(
    ("name", "attentions"), [("cnn", 3), ("resnet20", 9), ("resnet32", 15), ("resnet44", 21), ("resnet20_v2", 9)]
)
def test_attention_is_made_for_the_channels_that_it_meets(name, attentions):
    model = models.build(name, NETWORKS[name], 10, nn.ReLU, Halving)
    assert sum(isinstance(module, Halving) for module in model.modules()) == attentions
    assert model(torch.randn(2, *NETWORKS[name])).shape == (2, 10)


@pytest.mark.parametrize("name", ["mlp", "layer512", "vgg20_16", "vit_64x4"])
def test_perceptrons_vggs_and_transformers_have_no_channel_attention(name):
    with pytest.raises(ValueError, match=f"attention is given with name '{name}'"):
        models.build(name, NETWORKS[name], 10, nn.ReLU, Halving)


def test_an_unknown_network_lists_those_there_are():
    with pytest.raises(ValueError, match="allowed are mlp, layer128, layer512, cnn, resnet20, resnet32, resnet44"):
        models.build("vgg", (1, 8, 8), 10, nn.ReLU)


# He et al. (2016), Table 6, in millions.
@pytest.mark.parametrize(
    ("network", "millions"),
    [(models.resnet20, 0.27), (models.resnet32, 0.46), (models.resnet44, 0.66), (models.resnet56, 0.85)],
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


def test_the_keys_of_the_first_residual_network_are_what_they_always_were():
    names = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    keys = {"stem.weight", *(f"stem_norm.{name}" for name in names), "head.weight", "head.bias"}
    for block in range(9):
        for half in ("first", "second"):
            keys |= {f"blocks.{block}.{half}.weight", *(f"blocks.{block}.{half}_norm.{name}" for name in names)}
    assert set(models.resnet20(3, 10).state_dict()) == keys


def test_the_second_version_is_the_papers_sequence():
    model = models.resnet20(3, 10, version="v2").eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.normal_(module.bias)
    x = torch.randn(2, 3, 16, 16)
    # BN → ReLU → conv → BN → ReLU → conv → + input; after the last sum BN → ReLU → mean → head.
    stream = model.stem(x)
    for block in model.blocks:
        branch = torch.relu(block.first_norm(stream))
        branch = torch.relu(block.second_norm(block.first(branch)))
        branch = block.second(branch)
        skip = stream[:, :, :: block.stride, :: block.stride]
        stream = branch
        stream[:, : skip.shape[1]] += skip
    expected = model.head(torch.relu(model.final_norm(stream)).mean((2, 3)))
    torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)


def test_versions_have_equally_many_parameters_and_other_versions_are_refused():
    counts = {sum(p.numel() for p in models.resnet20(3, 10, version=v).parameters()) for v in ("v1", "v2")}
    assert len(counts) == 1
    with pytest.raises(ValueError, match="version is 'v3'; allowed are v1, v2"):
        models.resnet20(3, 10, version="v3")


def test_a_wide_network_has_four_times_the_channels():
    narrow, wide = models.resnet20(3, 10), models.resnet20(3, 10, width=4)
    for a, b in zip(narrow.modules(), wide.modules(), strict=True):
        if isinstance(a, nn.BatchNorm2d):
            assert b.num_features == 4 * a.num_features


# The paper's words: 20/16 doubles after 7 and 13 layers, 14/32 after 5 and 9.
@pytest.mark.parametrize(
    ("network", "channels"),
    [(models.vgg20_16, [16] * 7 + [32] * 6 + [64] * 6), (models.vgg14_32, [32] * 5 + [64] * 4 + [128] * 4)],
)
def test_a_vgg_is_a_plain_sequence_of_convolutions(network, channels):
    model = network(3, 10).eval()
    assert [layer.out_channels for layer in model.convolutions] == channels
    assert {layer.kernel_size for layer in model.convolutions} == {(3, 3)}
    x = features = torch.randn(2, 3, 16, 16)
    for convolution, norm in zip(model.convolutions, model.norms, strict=True):
        features = torch.relu(norm(convolution(features)))
    assert features.shape == (2, channels[-1], 4, 4)
    torch.testing.assert_close(model(x), model.head(features.mean((2, 3))))
