"""A converted network computes what the original did, or what the paper's rule makes of it."""

from __future__ import annotations

import copy
import math
import operator
import pickle
import random
import sys
import time
import types
from collections.abc import Callable
from concurrent import futures
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torchvision
from torch import fx, is_tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune

from companion import (
    AGLU,
    RAA,
    ChannelAttention,
    DACConv2d,
    DACLinear,
    LASiLU,
    MultiBias,
    SpatialChannelAttention,
    to_dac,
    to_multibias,
)
from companion.dac.conversion import ChannelBias, PreActivated
from companion.study import models
from tests.cases import together

BIASED = (nn.Linear, nn.Conv2d, nn.BatchNorm1d, nn.BatchNorm2d)


def trained(model: nn.Module) -> nn.Module:
    """The network in float64, with biases, scales and statistics as after some training, and without dropout."""
    for module in model.modules():
        if isinstance(module, BIASED) and module.bias is not None:
            nn.init.normal_(module.bias, std=0.3)
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.running_mean, std=0.3)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model.double()


def assert_same(converted: nn.Module, model: nn.Module, x: torch.Tensor) -> None:
    """Equal outputs in evaluation and in training, and equal running statistics of what follows."""
    for mode in (False, True, False):
        converted.train(mode)
        model.train(mode)
        torch.testing.assert_close(converted(x), model(x), rtol=1e-8, atol=1e-8)


def kinds(model: nn.Module, *wanted: type[nn.Module]) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, wanted)]


def vgg11(norm: bool) -> nn.Module:
    """torchvision's, with a head of less than a hundred million weights."""
    model = (torchvision.models.vgg11_bn if norm else torchvision.models.vgg11)(num_classes=2, init_weights=False)
    model.classifier[0], model.classifier[3], model.classifier[6] = (
        nn.Linear(25088, 16),
        nn.Linear(16, 16),
        nn.Linear(16, 10),
    )
    return model


class Plain(nn.Sequential):
    """Biases in every layer, both kinds of pooling between convolutions, and a head of two layers."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
            *(
                nn.Conv2d(6, 8, 3, stride=2, padding=2, dilation=2, groups=2),
                nn.BatchNorm2d(8),
                nn.ReLU(),
                nn.AvgPool2d(2),
            ),
            *(nn.Conv2d(8, 4, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.5)),
            *(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5)),
        )


# Plain and pre-activated networks: the paper's, torchvision's, and one with everything in it.
SAME = {
    "mlp": lambda: (models.build("mlp", (3, 16, 16), 10, nn.ReLU), 16),
    "vgg20_16": lambda: (models.vgg20_16(3, 10), 8),
    "vgg14_32": lambda: (models.vgg14_32(3, 10), 8),
    "resnet20_v2": lambda: (models.resnet20(3, 10, version="v2"), 8),
    "resnet32_v2_wide": lambda: (models.resnet32(3, 10, version="v2", width=2), 8),
    "plain": lambda: (Plain(), 32),
    "torchvision_vgg11": lambda: (vgg11(False), 32),
    "torchvision_vgg11_bn": lambda: (vgg11(True), 32),
    "torchvision_squeezenet": lambda: (torchvision.models.squeezenet1_1(num_classes=10), 48),
    "torchvision_densenet": lambda: (torchvision.models.DenseNet(8, (2, 3), 8, num_classes=10), 32),
}


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("shared", [False, True])
def test_a_plain_or_pre_activated_network_computes_what_it_did(name: str, shared: bool) -> None:
    model, size = SAME[name]()
    model = trained(model)
    converted = to_dac(model, shared=shared)
    assert len(kinds(converted, PreActivated if shared else (DACLinear, DACConv2d))) >= 2
    assert_same(converted, model, torch.randn(4, 3, size, size).double())


def test_float32_and_channels_last_too() -> None:
    model = trained(models.vgg14_32(3, 10)).float().eval()
    x = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(to_dac(model)(x), model(x), rtol=1e-5, atol=1e-5)
    last = {"memory_format": torch.channels_last}
    torch.testing.assert_close(to_dac(model.to(**last))(x.to(**last)), model(x), rtol=1e-5, atol=1e-5)


# --- residual networks of the first kind -------------------------------------------------------------------------


def pre_activated_cifar(model: models.CifarResNet, x: torch.Tensor) -> torch.Tensor:
    """The paper's rule with shared biases, written down: nothing but additions on the skip connection."""
    stream = model.stem_norm(model.stem(x))
    for block in model.blocks:
        branch = block.first_norm(block.first(F.relu(stream)))
        branch = block.second_norm(block.second(F.relu(branch)))
        skip = stream[:, :, :: block.stride, :: block.stride]
        zeros = skip.new_zeros(len(skip), branch.shape[1] - skip.shape[1], *skip.shape[2:])
        stream = branch + torch.cat([skip, zeros], 1)
    return model.head(F.relu(stream).mean((2, 3)))


def pre_activated_torchvision(model: torchvision.models.ResNet, x: torch.Tensor) -> torch.Tensor:
    """The same for torchvision's networks: with a pool after the stem and convolutions on some skip connections."""
    stream = model.maxpool(model.bn1(model.conv1(x)))
    for block in (*model.layer1, *model.layer2, *model.layer3, *model.layer4):
        active = F.relu(stream)
        branch = block.bn2(block.conv2(F.relu(block.bn1(block.conv1(active)))))
        stream = branch + (stream if block.downsample is None else block.downsample(active))
    return model.fc(F.relu(stream).mean((2, 3)))


FIRST_KIND = {
    "resnet20": (lambda: models.resnet20(3, 10), pre_activated_cifar, 16),
    "torchvision_resnet18": (lambda: torchvision.models.resnet18(num_classes=10), pre_activated_torchvision, 64),
}


@pytest.mark.parametrize("name", FIRST_KIND)
@pytest.mark.parametrize("shared", [False, True])
def test_a_residual_network_loses_the_activation_on_its_skip_connections(name: str, shared: bool) -> None:
    make, expected, size = FIRST_KIND[name]
    model = trained(make())
    converted = to_dac(model, shared=shared)
    x = torch.randn(4, 3, size, size).double()
    for mode in (False, True):
        converted.train(mode)
        model.train(mode)
        torch.testing.assert_close(converted(x), expected(model, x), rtol=1e-8, atol=1e-8)
    model.eval()
    assert (converted.eval()(x) - model(x)).abs().max() > 1e-3


def test_the_biases_of_a_residual_stream_add_up() -> None:
    model = trained(models.resnet20(3, 10))
    converted = to_dac(model)
    # Two blocks have added their shifts to the stem's before the third block reads the stream.
    expected = model.stem_norm.bias + model.blocks[0].second_norm.bias + model.blocks[1].second_norm.bias
    bias = converted.get_submodule("blocks.2.first").bias
    torch.testing.assert_close(bias, expected.expand(16, 16))
    # The new channels of a stage begin with zeros.
    wider = converted.get_submodule("blocks.4.first").bias - model.blocks[3].second_norm.bias
    assert torch.equal(wider[:, 16:], torch.zeros(32, 16).double())
    assert wider[:, :16].abs().min() > 0


# --- what moves, and what stays ----------------------------------------------------------------------------------


def test_biases_move_from_where_they_were_to_all_pairs() -> None:
    model = trained(
        nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    )
    converted = to_dac(model)
    assert {name: tuple(p.shape) for name, p in converted.named_parameters()} == {
        "0.weight": (3, 4),
        "0.bias": (3,),
        "1.weight": (3,),
        "3.weight": (5, 3),
        "3.bias": (5, 3),
        "5.weight": (2, 5),
        "5.bias": (2, 5),
        "_5_bias.bias": (2,),
    }
    assert torch.equal(converted.get_submodule("3").weight, model[3].weight)
    assert torch.equal(converted.get_submodule("3").bias, model[1].bias.expand(5, 3))
    assert torch.equal(converted.get_submodule("5").bias, model[3].bias.expand(2, 5))
    assert torch.equal(converted.get_submodule("_5_bias").bias, model[5].bias)


def test_flattening_repeats_the_bias_of_a_channel_for_its_pixels() -> None:
    model = trained(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3)))
    converted = to_dac(model)
    assert torch.equal(converted.get_submodule("4").bias, model[0].bias.repeat_interleave(4).expand(3, 8))
    assert_same(converted, model, torch.randn(2, 1, 6, 6).double())


def test_groups_get_the_biases_of_their_own_inputs() -> None:
    model = trained(nn.Sequential(nn.Conv2d(1, 4, 1), nn.ReLU(), nn.Conv2d(4, 6, 1, groups=2)))
    bias = to_dac(model).get_submodule("2").bias
    expected = torch.cat([model[0].bias[:2].expand(3, 2), model[0].bias[2:].expand(3, 2)])
    assert torch.equal(bias, expected)


def test_an_activation_before_average_pooling_stays_and_keeps_its_biases() -> None:
    model = trained(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(5, 2, 1))
    )
    converted = to_dac(model)
    assert kinds(converted, nn.ReLU) == ["3"]
    # The second convolution is a DAC now, without a bias of its output.
    assert torch.equal(converted.get_submodule("_2_bias").bias, model[2].bias)
    assert isinstance(converted.get_submodule("5"), nn.Conv2d)
    assert_same(converted, model, torch.randn(2, 3, 8, 8).double())


def test_a_shift_that_nobody_else_needs_stays_in_its_normalisation() -> None:
    converted = to_dac(models.vgg20_16(3, 10))
    assert [norm.bias is None for norm in converted.norms.children()] == [True] * 18 + [False]
    assert kinds(converted, ChannelBias) == []


@pytest.mark.parametrize(
    ("activation", "between"),
    [
        (nn.SiLU, nn.MaxPool2d(2)),
        (nn.GELU, nn.MaxPool2d(2)),
        (nn.ReLU, nn.ZeroPad2d(1)),
        (nn.ReLU, nn.Upsample(scale_factor=2)),
    ],
)
def test_an_activation_that_does_not_commute_stays(activation: type[nn.Module], between: nn.Module) -> None:
    model = trained(
        nn.Sequential(nn.Conv2d(3, 4, 3), activation(), nn.Conv2d(4, 4, 3), activation(), between, nn.Conv2d(4, 4, 1))
    )
    converted = to_dac(model)
    assert kinds(converted, DACConv2d) == ["2"]
    assert_same(converted, model, torch.randn(2, 3, 9, 9).double())


@pytest.mark.parametrize(
    "activation", [nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SiLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.Softplus]
)
def test_every_named_activation_moves(activation: type[nn.Module]) -> None:
    model = trained(nn.Sequential(nn.Linear(4, 3), activation(), nn.Linear(3, 2)))
    converted = to_dac(model)
    assert kinds(converted, DACLinear) == ["2"]
    assert_same(converted, model, torch.randn(5, 4).double())


@pytest.mark.parametrize(
    "activation", [nn.LeakyReLU(0.2), nn.ELU(2.0), nn.GELU("tanh"), nn.PReLU(), AGLU(3), nn.CELU()]
)
def test_other_activations_stay(activation: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(4, 3), activation, nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    assert kinds(to_dac(model), DACLinear) == ["4"]


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 1, 3), nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")]
)
def test_a_layer_that_gains_nothing_stays_as_it_is(layer: nn.Module) -> None:
    model = trained(nn.Sequential(nn.Conv2d(1, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.ReLU(), layer))
    converted = to_dac(model)
    assert kinds(converted, DACConv2d) == ["2"]
    assert_same(converted, model, torch.randn(2, 1, 5, 5).double())


def test_a_layer_that_is_called_twice_stays() -> None:
    twice = nn.Linear(4, 4)
    model = trained(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), twice, nn.ReLU(), twice, nn.ReLU(), nn.Linear(4, 4)))
    converted = to_dac(model)
    assert kinds(converted, DACLinear) == ["6"]
    assert_same(converted, model, torch.randn(3, 4).double())


class Functional(nn.Module):
    """Two convolutions and an activation between them, called in one of many ways."""

    def __init__(self, call) -> None:
        super().__init__()
        self.first, self.second, self.call = nn.Conv2d(2, 3, 3), nn.Conv2d(3, 4, 3), call

    def forward(self, x):
        return self.second(self.call(self.first(x)))


CALLS = {
    "F.relu": F.relu,
    "F.relu in place": lambda x: F.relu(x, inplace=True),
    "F.relu in place by position": lambda x: F.relu(x, True),
    "torch.relu": torch.relu,
    "method": lambda x: x.relu(),
    "method in place": lambda x: x.relu_(),
    "F.relu_": F.relu_,
    "torch.tanh": torch.tanh,
    "sigmoid_": lambda x: x.sigmoid_(),
    "max pooling": lambda x: F.max_pool2d(F.relu(x), 2),
    "slices": lambda x: F.relu(x)[:, :, ::2, 1:],
}


@pytest.mark.parametrize("call", CALLS)
def test_an_activation_may_be_called_in_any_way(call: str) -> None:
    model = trained(Functional(CALLS[call]))
    converted = to_dac(model)
    assert kinds(converted, DACConv2d) == ["second"]
    assert_same(converted, model, torch.randn(2, 2, 9, 9).double())


@pytest.mark.parametrize(
    "call", [lambda x: F.leaky_relu(x, 0.3), lambda x: F.elu(x, 2.0), lambda x: F.gelu(x, approximate="tanh")]
)
def test_a_function_with_other_settings_stays(call) -> None:
    with pytest.raises(ValueError, match="in Functional no activation"):
        to_dac(Functional(call))


class Overwriting(nn.Module):
    """What is read after it was overwritten is what it was overwritten with."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.left, self.right = nn.Conv2d(2, 3, 1), nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)

    def forward(self, x):
        y = same = self.stem(x)
        active = F.relu(y)
        y += x.mean(1, keepdim=True)
        left = self.left(active)
        size = before = x.shape[1]
        size += 1
        z = self.stem.bias.sum() + same * (size - before)
        F.relu(y, inplace=True)
        return left + self.right(y) + z.mean(1, keepdim=True)


def test_values_that_are_overwritten_are_followed() -> None:
    model = trained(Overwriting())
    converted = to_dac(model)
    assert kinds(converted, DACConv2d) == ["left", "right"]
    assert_same(converted, model, torch.randn(2, 2, 5, 5).double())


def test_an_assignment_in_place_is_refused() -> None:
    def assign(x):
        x[:, 0] = 0
        return F.relu(x)

    with pytest.raises(ValueError, match=r"cannot trace the forward of Functional .* does not support item assignment"):
        to_dac(Functional(assign))


class TwoReaders(nn.Module):
    """One sum is read by an activation and by a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.left, self.right = nn.Conv2d(2, 3, 1), nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x):
        y = self.stem(x)
        return self.left(F.relu(y)) + self.right(self.norm(y))


def test_a_bias_before_a_normalisation_is_taken_off_its_running_mean() -> None:
    model = trained(TwoReaders())
    converted = to_dac(model)
    moved = model.norm.running_mean - converted.get_submodule("norm").running_mean
    torch.testing.assert_close(moved, model.stem.bias.detach())
    assert_same(converted, model, torch.randn(2, 2, 5, 5).double())


def test_a_normalisation_that_may_see_rows_keeps_its_shift() -> None:
    rows = trained(nn.Sequential(nn.Conv1d(4, 4, 1), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)))
    flat = trained(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)))
    assert_same(to_dac(rows), rows, torch.randn(5, 4, 4).double())
    assert rows[1].bias is not None
    assert to_dac(flat).get_submodule("1").bias is None


def test_dropout_drops_the_value_before_its_bias() -> None:
    model = trained(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(3, 2, bias=False)))
    model[2].p = 1.0
    converted = to_dac(model).train()
    expected = model[3](F.relu(model[0].bias))
    torch.testing.assert_close(converted(torch.randn(1, 4).double()), expected[None])


class WithDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        return self.second(F.dropout(F.relu(self.first(x)), 0.5, training=self.training))


def test_dropout_as_a_function_follows_the_mode_of_the_converted_network() -> None:
    model = WithDropout().eval()
    converted = to_dac(model)
    x = torch.randn(3, 64)
    torch.testing.assert_close(converted(x), model(x))
    converted.train()
    assert not torch.allclose(converted(x), converted(x))


class DroppingPaths(nn.Module):
    """Holds no numbers, and is no module of torch."""

    def forward(self, x):
        return x * torch.rand(len(x), 1) if self.training else x


class DroppingMaps(nn.Module):
    def forward(self, x):
        return F.dropout2d(x[..., None, None], 0.5, self.training).flatten(1)


@pytest.mark.parametrize("drop", [DroppingPaths, DroppingMaps])
@pytest.mark.parametrize("training", [False, True])
def test_whatever_asks_for_its_mode_is_asked_again(drop, training: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), drop()).train(training)
    converted, x = to_dac(model), torch.randn(3, 8)
    converted.eval()
    torch.testing.assert_close(converted(x), model.eval()(x))
    converted.train()
    assert not torch.allclose(converted(x), converted(x))


class Calling(nn.Module):
    """A perceptron, of whose output and itself something is made."""

    def __init__(self, call) -> None:
        super().__init__()
        self.first, self.second, self.call = nn.Linear(8, 8), nn.Linear(8, 8), call

    def forward(self, x):
        return self.call(self.second(F.relu(self.first(x))), self)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, module: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5 if module.training else 0.0),
        lambda x, module: F.dropout(x, 0.5 if module.training else 0.0),
        lambda x, module: F.batch_norm(x, None, None, momentum=0.5 if module.training else 1.0, training=True),
    ],
)
@pytest.mark.parametrize("training", [False, True])
def test_a_number_that_the_mode_chooses_is_chosen_again(call, training: bool) -> None:
    model, x = Calling(call).train(training), torch.randn(3, 8)
    converted = pickle.loads(pickle.dumps(to_dac(model)))
    for mode in (True, False):
        torch.manual_seed(0)
        expected = model.train(mode)(x)
        torch.manual_seed(0)
        torch.testing.assert_close(converted.train(mode)(x), expected)


def test_an_addend_that_the_mode_chooses_is_no_skip_connection() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), Shifting(), nn.Linear(4, 4))
    assert_same(to_dac(trained(model)), model, torch.randn(3, 4).double())


class Shifting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Identity()

    def forward(self, x):
        return self.inner(x) + (0.5 if self.training else 0.25)


def test_dropout_that_is_always_on_stays_so() -> None:
    converted, x = to_dac(Calling(lambda x, _: F.dropout(x, 0.5, True)).eval()), torch.randn(3, 8)
    assert not torch.equal(converted(x), converted(x))


@pytest.mark.parametrize("convert", [to_dac, lambda model: to_multibias(model, 2)])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, module: x + torch.randn_like(x) if module.training else x,
        lambda x, module: (x, F.relu(x)) if module.training else x,
    ],
)
def test_what_does_something_else_in_training_is_converted_for_evaluation_alone(convert, call) -> None:
    model, x = Calling(call), torch.randn(3, 8)
    with pytest.raises(ValueError, match=r"training .* after eval\(\) it may be converted for evaluation alone"):
        convert(model)
    converted = convert(model.eval())
    assert "allowed is only training = False" in str(converted.converted)
    assert converted(x).shape == model(x).shape
    with pytest.raises(RuntimeError, match="training: got True, allowed is False"):
        converted.train()(x)


ASKING = {
    "gradients": (torch.is_grad_enabled, torch.no_grad),
    "inference mode": (torch.is_inference_mode_enabled, torch.inference_mode),
    "autocast on CPUs": (lambda: torch.is_autocast_enabled("cpu"), lambda: torch.autocast("cpu")),
    "torch.distributed": (
        lambda: torch.distributed.is_initialized(),
        lambda: mock.patch.object(torch.distributed, "is_initialized", return_value=True),
    ),
}


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize("convert", [to_dac, lambda model: to_multibias(model, 2)])
def test_a_mode_of_torchs_that_decides_is_built_in_and_the_other_one_refused(convert, name: str) -> None:
    asks, otherwise = ASKING[name]
    model, x, was = Calling(lambda x, _: x * (3.0 if asks() else 2.0)), torch.randn(3, 8), asks()
    converted = convert(model)
    assert f"allowed is only {name} = {was}, which is built in" in str(converted.converted)
    assert set(converted.converted.limits) == {name}
    assert converted(x).shape == model(x).shape
    with otherwise(), pytest.raises(RuntimeError, match=f"{name}: got {not was}, allowed is {was}"):
        converted(x)


def test_threads_trace_one_after_the_other() -> None:
    inside, most = [], []

    def slow(x, _):
        inside.append(x)
        most.append(len(inside))
        time.sleep(0.02)
        inside.pop()
        return x

    with futures.ThreadPoolExecutor(2) as threads:
        made = [*threads.map(lambda _: to_dac(Calling(slow)), range(2))]
    assert max(most) == 1
    assert [type(new.second) for new in made] == [DACLinear, DACLinear]


def test_who_asks_for_processes_is_not_answered_otherwise_meanwhile() -> None:
    answers = []

    def asks(x, _):
        answers.append(torch.distributed.is_initialized())
        return x

    converted = to_dac(Calling(asks))
    assert answers
    assert not any(answers)
    assert set(converted.converted.limits) == {"torch.distributed"}


class Optional(nn.Module):
    """Calls something with an argument that may be left out."""

    def __init__(self, call) -> None:
        super().__init__()
        self.first, self.second, self.call = nn.Linear(8, 8), nn.Linear(8, 8), call

    def forward(self, x, mask=None, *rest, scale=1.0, **options):
        x = self.second(F.relu(self.first(x)))
        return self.call(x, mask, rest, scale, options)


DECIDING = {
    "None": lambda x, mask, rest, scale, options: x.softmax(-1) if mask is None else x,
    "not None": lambda x, mask, rest, scale, options: x if mask is None else x * mask,
    "a tensor": lambda x, mask, rest, scale, options: x * mask if isinstance(mask, torch.Tensor) else x,
    "a tensor, in torch": lambda x, mask, rest, scale, options: x * mask if torch.is_tensor(mask) else x,
    "a number": lambda x, mask, rest, scale, options: x if scale > 0 else -x,
    "what is left": lambda x, mask, rest, scale, options: x * rest[0] if rest else x,
    "an option": lambda x, mask, rest, scale, options: x if options.get("bias") is None else x + options["bias"],
}


@pytest.mark.parametrize("decides", DECIDING)
@pytest.mark.parametrize("example", [None, torch.randn(3, 8)])
@pytest.mark.parametrize("convert", [to_dac, lambda model, example: to_multibias(model, 2, example)])
def test_an_argument_that_may_decide_is_left_out_or_refused(decides: str, example, convert) -> None:
    model, x = Optional(DECIDING[decides]), torch.randn(3, 8)
    new = convert(model, example)
    if convert is to_dac:
        torch.testing.assert_close(new(x), model(x))
    given, options = {"what is left": ((None, x), {}), "an option": ((), {"bias": x})}.get(decides, ((x,), {}))
    options = {"scale": -1.0} if decides == "a number" else options
    with pytest.raises(ValueError, match=r"got .*, allowed is .* no part of its graph"):
        new(x, *given, **options)
    assert "which is built in" in str(new.converted)


def test_a_network_that_keeps_what_it_computed_is_converted() -> None:
    def keep(x, module):
        module.kept = x
        return x

    model, x = Calling(keep), torch.randn(3, 8)
    torch.testing.assert_close(to_dac(model)(x), model(x))


@pytest.mark.parametrize("example", [None, torch.randn(3, 8)])
def test_an_argument_that_is_needed_is_a_tensor(example) -> None:
    class Asking(Calling):
        def forward(self, x):
            out = super().forward(x)
            return out.softmax(-1) if isinstance(x, torch.Tensor) else out

    model, x = Asking(lambda x, _: x), torch.randn(3, 8)
    torch.testing.assert_close(to_dac(model, example)(x), model(x))


def test_an_argument_that_decides_nothing_may_be_given() -> None:
    model, x, y = (
        Optional(lambda x, mask, rest, scale, options: (x * scale * 2, mask)),
        torch.randn(3, 8),
        torch.ones(1),
    )
    torch.testing.assert_close(to_dac(model)(x, y, scale=3.0), model(x, y, scale=3.0))


@pytest.mark.parametrize(
    "change",
    [lambda x: F.hardtanh_(x, 0.0, 0.1), lambda x: torch.clamp_(x, max=0.1), lambda x: x.mul_(0.1), operator.and_],
)
def test_what_writes_into_its_operand_is_seen_by_who_reads_that_later(change) -> None:
    class Changed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            x = F.relu(self.layers[1](F.relu(self.layers[0](x))))
            if change is operator.and_:
                mask = x > 0
                change(mask, x > 1)  # gives new memory, in spite of its name
                return self.layers[2](x * mask)
            change(x)
            return self.layers[2](x)

    model, x = trained(Changed()).eval(), torch.randn(5, 4).double()
    assert_same(to_dac(model), model, x)


def test_a_softplus_with_another_threshold_stays() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Softplus(threshold=1), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    converted, x = to_dac(model), 5 * torch.randn(9, 3)
    assert converted.converted.left == {"1": "Softplus has no DAC form"}
    torch.testing.assert_close(converted(x), model(x))


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_what_a_hook_makes_of_a_layer_stays(name: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    prune.l1_unstructured(model[2], name, amount=0.5)
    with torch.no_grad():
        model(torch.randn(1, 3))  # until then the tensor of a pruned layer cannot be copied
    converted, x = to_dac(model), torch.randn(4, 3)
    assert converted.converted.layers == {"4": "Linear → DACLinear"}
    torch.testing.assert_close(converted(x), model(x))


class Random(nn.Module):
    """A random graph of everything that is followed; sums of anything, or only of what no activation has seen."""

    def __init__(self, seed: int, any_sums: bool) -> None:
        super().__init__()
        self.draw = random.Random(seed)
        self.layers = nn.ModuleList()
        self.plan: list[tuple[str, list[int]]] = []
        fresh, kinds = (
            {0: False},
            ["conv", "conv", "norm", "relu", "relu", "add", "cat", "maxpool", "avgpool", "slice", "pad"],
        )
        self.channels = [4]
        for step in range(1, 25):
            kind = self.draw.choice(kinds)
            operands = [self.draw.randrange(max(0, step - 6), step) for _ in range(2 if kind in ("add", "cat") else 1)]
            channels = self.channels[operands[0]]
            if kind == "add":
                same = [i for i in range(step) if self.channels[i] == channels and (any_sums or fresh[i])]
                if not same:
                    kind = "relu"
                operands = self.draw.choices(same, k=2) if same else operands[:1]
            if kind == "cat" and channels + self.channels[operands[1]] > 12:
                kind, operands = "conv", operands[:1]
            self.layers.append(self.layer(kind, channels))
            self.channels.append(
                {"conv": 4, "cat": channels + self.channels[operands[-1]], "pad": channels + 2}.get(kind, channels)
            )
            fresh[step] = kind in ("conv", "norm", "add") or (kind != "relu" and all(fresh[i] for i in operands))
            self.plan.append((kind, operands))
        self.head = nn.Linear(sum(self.channels), 3)

    def layer(self, kind: str, channels: int) -> nn.Module:
        match kind:
            case "conv":
                return nn.Conv2d(channels, 4, 3, padding=1, bias=self.draw.random() < 0.7)
            case "norm":
                return nn.BatchNorm2d(channels)
            case "relu":
                return self.draw.choice([nn.ReLU, nn.Tanh, nn.SiLU, nn.Sigmoid])()
            case "maxpool":
                return nn.MaxPool2d(3, stride=1, padding=1)
            case "avgpool":
                return nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=self.draw.random() < 0.5)
        return nn.Identity()

    def forward(self, x):
        values = [x]
        for (kind, operands), layer in zip(self.plan, self.layers, strict=True):
            given = [values[i] for i in operands]
            match kind:
                case "add":
                    values.append(given[0] + given[1])
                case "cat":
                    values.append(torch.cat(given, 1))
                case "slice":
                    values.append(given[0][:, :, :, :])
                case "pad":
                    values.append(F.pad(given[0], (0, 0, 0, 0, 1, 1)))
                case _:
                    values.append(layer(given[0]))
        return self.head(torch.cat([value.mean((2, 3)) for value in values], 1))


@pytest.mark.parametrize("keep_function", [False, True])
def test_random_networks_compute_what_they_did(keep_function: bool) -> None:
    converted = 0
    for seed in range(120):
        model = trained(Random(seed, any_sums=keep_function))
        x = torch.randn(3, 4, 5, 5).double()
        try:
            network = to_dac(model, keep_function=keep_function)
        except ValueError:
            # There is nothing to convert.
            continue
        converted += len(kinds(network, DACConv2d))
        assert not network.converted.changed
        assert_same(network, model, x)
    # Enough of them had something to convert.
    assert converted > 80


# --- what is said, and what is kept ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIRST_KIND)
def test_a_residual_network_computes_what_it_did_if_that_is_wanted(name: str) -> None:
    make, _, size = FIRST_KIND[name]
    model, x = trained(make()), torch.randn(4, 3, size, size).double()
    plain, kept = to_dac(model), to_dac(model, keep_function=True)
    assert kept.converted.layers == plain.converted.layers
    assert not kept.converted.changed
    assert_same(kept, model, x)
    assert set(plain.converted.changed.values()) == {"a sum reads its operands without their activation"}
    assert len(plain.converted.changed) == {"resnet20": 9, "torchvision_resnet18": 5}[name]


def test_the_report_says_what_was_done_and_what_stays() -> None:
    model = nn.Sequential(
        *(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.PReLU()),
        *(nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Identity(), nn.AvgPool2d(2), nn.ReLU()),
        *(nn.Conv2d(4, 4, 1, groups=4), nn.Flatten(), nn.Linear(4, 2)),
    )
    assert str(to_dac(model).converted).splitlines() == [
        "Conv2d → DACConv2d: '2'",
        "stays, PReLU has parameters of its own: '3'",
        "stays, ReLU before AvgPool2d: '5'",
        "stays, ReLU before depthwise Conv2d: '8'",
        "parameters: 427 → 439",
    ]
    assert to_dac(model, first=True).converted.changed == {"0": "the first layer has an activation"}
    assert to_multibias(model, 2).converted.changed == {"2": "its weights are new"}
    with pytest.raises(ValueError, match="keep_function: got True together with first"):
        to_dac(model, first=True, keep_function=True)
    with pytest.raises(ValueError, match=r"in Sequential no activation .*; its activations: 1 mish, 2 prelu"):
        to_dac(nn.Sequential(nn.Conv2d(3, 4, 3), nn.PReLU(), nn.Conv2d(4, 4, 3), nn.Mish(), nn.PReLU()))
    googlenet = torchvision.models.googlenet(init_weights=False).eval()
    assert to_dac(googlenet).converted.changed == dict.fromkeys(("aux1", "aux2"), "it is not called in this mode")


def test_networks_with_relu6_and_hardswish_are_converted() -> None:
    for make in (torchvision.models.mobilenet_v2, torchvision.models.mobilenet_v3_small):
        model, x = trained(make(num_classes=10)).eval(), torch.randn(2, 3, 32, 32).double()
        torch.testing.assert_close(to_dac(model, keep_function=True)(x), model(x), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("convert", [to_dac, lambda model: to_multibias(model, 2)])
def test_a_converted_network_is_pickled(convert) -> None:
    new, x = convert(models.resnet20(3, 10)).eval(), torch.randn(2, 3, 8, 8)
    again = pickle.loads(pickle.dumps(new))
    assert torch.equal(again(x), new(x))
    assert again.converted == new.converted


def test_a_copy_keeps_the_report() -> None:
    new = to_dac(nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)))
    for copied in (copy.deepcopy(new), pickle.loads(pickle.dumps(new))):
        assert str(copied.converted) == str(new.converted)


def test_hooks_stay_where_they_were() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    called = []
    for module in (model, model[0], model[2]):
        module.register_forward_hook(lambda module, args, out: called.append(type(module).__name__))
    model[2].register_forward_pre_hook(lambda module, args, kwargs: called.append("before"), with_kwargs=True)
    to_dac(model)(torch.randn(1, 3))
    assert called == ["Linear", "before", "DACLinear", "Sequential"]


@pytest.mark.parametrize(
    "convert", [to_dac, lambda model: to_dac(model, shared=True), lambda model: to_multibias(model, 2)]
)
def test_a_hook_of_a_layer_is_called_once_forward_and_once_backward(convert) -> None:
    model, called = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)), []
    model[2].register_forward_hook(lambda *_: called.append("forward"))
    model[2].register_full_backward_pre_hook(lambda *_: called.append("before backward"))
    model[2].register_full_backward_hook(lambda module, into, out: called.append((into[0].shape, out[0].shape)))
    convert(model)(torch.randn(5, 3)).sum().backward()
    assert called == ["forward", "before backward", ((5, 3), (5, 3))]


@pytest.mark.parametrize(
    ("name", "hook", "said"),
    [
        ("0", lambda module, args, out: out * 2, ""),  # the biases that move are those of the normalisation
        ("1", lambda module, args, out: out.clamp(-0.1, 0.1), "its hooks see other values"),
        ("2", lambda module, args, out: out * 2, "its hooks are gone"),
        ("3", lambda module, args, out: out * 2, "its hooks see other values"),
        ("4", lambda module, args, out: out * args[0].mean(), "its hooks see other values"),
        ("5", lambda module, args, out: out * 2, ""),
    ],
)
def test_a_hook_that_sees_another_value_may_change_the_function(name: str, hook, said: str) -> None:
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 3), nn.Sigmoid()
    model, x = trained(nn.Sequential(*layers)).eval(), torch.randn(2, 3, 12, 12).double()
    model[4].bias = None  # no ChannelBias after it
    model.get_submodule(name).register_forward_hook(hook)
    new = to_dac(model)
    assert new.converted.changed == ({name: said} if said else {})
    assert torch.allclose(new(x), model(x)) == (not said)


def test_a_hook_that_the_new_network_gets_is_its_own() -> None:
    model, called = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)), []
    to_dac(model).register_forward_hook(lambda *_: called.append("the new one"))
    model(torch.randn(1, 3))
    assert called == []


def test_what_is_frozen_stays_frozen() -> None:
    model = nn.Sequential(
        *(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    )
    model[:4].requires_grad_(False)
    model[4].weight.requires_grad_(False)  # of this one the bias is trained
    new = to_dac(model)
    trained_ones = {name for name, p in new.named_parameters() if p.requires_grad}
    assert trained_ones == {"6.weight", "6.bias", "_6_bias.bias"}
    assert not any(p.requires_grad for p in to_dac(model.requires_grad_(False), shared=True).parameters())


# --- options -----------------------------------------------------------------------------------------------------


def test_the_first_layer_may_filter_the_input_too() -> None:
    model = trained(models.vgg14_32(3, 10)).eval()
    converted = to_dac(model, first=True)
    layer = converted.get_submodule("convolutions.0")
    assert isinstance(layer, DACConv2d)
    assert torch.equal(layer.bias, torch.zeros(32, 3).double())
    x = torch.randn(2, 3, 8, 8).double()
    torch.testing.assert_close(converted(x), model(F.relu(x)))
    assert not torch.allclose(converted(x), model(x))


def test_the_first_layer_must_gain_from_it() -> None:
    model = nn.Sequential(nn.Conv2d(3, 1, 3), nn.ReLU(), nn.Conv2d(1, 3, 3))
    with pytest.raises(ValueError, match="first: the first layer, 0, is Conv2d"):
        to_dac(model, first=True)
    with pytest.raises(ValueError, match=r"first: the network calls no nn\.Linear"):
        to_dac(nn.Sequential(nn.ReLU()), first=True)


def test_the_ablation_has_a_bias_per_input() -> None:
    model = models.resnet20(3, 10)
    shared, unshared = to_dac(model, shared=True), to_dac(model)
    for name in kinds(unshared, DACConv2d):
        layer, dac = shared.get_submodule(name), unshared.get_submodule(name)
        assert layer.bias.shape == dac.bias.shape[1:]
        assert torch.equal(layer.layer.weight, dac.weight)


def test_training_tells_the_biases_of_an_input_apart() -> None:
    model = to_dac(models.vgg20_16(3, 10))
    bias = model.get_submodule("convolutions.5").bias
    assert torch.equal(bias, bias[:1].expand_as(bias))
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.randn(4, 3, 8, 8)).square().sum().backward()
    optimiser.step()
    assert bias.std(0).min() > 0


# --- the network that was given ----------------------------------------------------------------------------------


@pytest.mark.parametrize("convert", [to_dac, lambda model: to_multibias(model, 2)])
def test_the_original_is_left_alone_and_shares_nothing(convert) -> None:
    model = trained(Plain()).eval()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    converted = convert(model)
    assert isinstance(converted, fx.GraphModule)
    assert not converted.training
    assert model[1].inplace
    with torch.no_grad():
        for tensor in (*converted.parameters(), *converted.buffers()):
            tensor.zero_()
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    if convert is to_dac:
        assert torch.equal(torch.get_rng_state(), state)


def test_a_converted_network_can_be_copied_saved_and_loaded() -> None:
    model = trained(Plain()).eval()
    converted, other = to_dac(model), to_dac(trained(Plain()))
    other.load_state_dict(converted.state_dict())
    x = torch.randn(2, 3, 32, 32).double()
    assert torch.equal(other.eval()(x), converted(x))
    assert torch.equal(copy.deepcopy(converted)(x), converted(x))


class Deciding(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_a_network_that_cannot_be_traced_says_which_module_and_why() -> None:
    inner = nn.Sequential(nn.ReLU(), Deciding())
    model = nn.Sequential(nn.Linear(3, 3), inner, nn.Linear(3, 3))
    before = copy.deepcopy(model.state_dict())
    wrong = (
        r"cannot trace module '1\.1', a Deciding, \(TraceError: symbolically .*\); it is the line 'return x if x\.sum"
    )
    with pytest.raises(ValueError, match=wrong):
        to_dac(model)
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert list(model.modules())[3] is inner[0]


DRAW = random.random


class Forgotten(nn.Module):
    """Does what a graph forgets, what it builds in, or what writes into memory that others read."""

    def __init__(self, how: str = "") -> None:
        super().__init__()
        self.how, self.first, self.last = how, nn.Linear(4, 8), nn.Linear(8, 2)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.how == "draws":
            x = x + torch.randn(4)
        if self.how == "Python draws":
            x = x if random.random() < 2 else -x
        if self.how == "Python draws by another name":
            x = x if DRAW() < 2 else -x
        if self.how == "NumPy draws":
            x = x if np.random.rand() < 2 else -x
        if self.how == "another thread draws":
            with futures.ThreadPoolExecutor() as pool:
                pool.submit(random.random).result()
        if self.how == "buffer":
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        if self.how == "no_grad":
            with torch.no_grad():
                h = self.first(x - self.mean)
        elif self.how == "autocast":
            with torch.autocast("cpu", enabled=not torch.is_autocast_enabled("cpu")):
                h = self.first(x - self.mean)
        else:
            h = self.first(x - self.mean.view(1, -1))
        if self.how == "view":
            h[:, :4].mul_(2)
        if self.how == "overlapping":
            h[..., :5].mul_(2)
            h = h[..., 4:].repeat(1, 2)
        if self.how == "viewed":
            h = h.sigmoid()
            part = h[:, :4]
            h.mul_(2)
            h = torch.cat([part, h[:, 4:]], 1)
        if self.how == "read no more":
            h = torch.flatten(input=h[:, :8], start_dim=1)
            h.mul_(2)
        if self.how == "noise":
            h = h + torch.randn_like(h)
        return self.last(F.relu(h))


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("no_grad", "it computes inside of torch.no_grad, autocast or the like"),
        ("autocast", "it computes inside of torch.no_grad, autocast or the like"),
        ("draws", r"it draws a random number, which would be built in\); where"),
        ("Python draws", "it draws a random number"),
        ("Python draws by another name", "it draws a random number"),
        ("NumPy draws", "it draws a random number"),
        ("buffer", "writes in place into mean, which is read elsewhere"),
        ("view", "writes in place into getitem, which is read elsewhere"),
        ("overlapping", "writes in place into getitem, which is read elsewhere"),
        ("viewed", "writes in place into sigmoid, which is read elsewhere"),
    ],
)
def test_what_a_graph_would_get_wrong_is_refused(how: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        to_dac(Forgotten(how))


@pytest.mark.parametrize("how", ["read no more", "another thread draws"])
def test_what_a_graph_gets_right_is_converted(how: str) -> None:
    model, x = Forgotten(how), torch.randn(3, 4)
    torch.testing.assert_close(to_dac(model)(x), model(x))


class Written(nn.Module):
    """Runs what somebody wrote between two of its layers."""

    def __init__(self, between: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.between, self.first, self.last = [between], nn.Linear(6, 6), nn.Linear(6, 4)
        self.own = OwnLeaf()
        self.register_buffer("b", torch.linspace(-1, 1, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """In between comes what somebody wrote."""
        return self.last(F.relu(self.between[0](self, self.first(x))))


class OwnLeaf(nn.Module):
    """Writes into what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.pos = nn.Parameter(torch.ones(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Write, and give it back."""
        x += self.pos
        return x


def overwritten_copy(net: Any, h: torch.Tensor) -> torch.Tensor:
    m = net.b.clone()
    m.add_(h.mean() * 100)
    return h * float(m.sum())


def overlapping(net: Any, h: torch.Tensor) -> torch.Tensor:
    e = h.unsqueeze(0).expand(2, *h.shape)
    a, c = e[0], e[1]
    a += 1
    return c


def on_the_cpu(net: Any, h: torch.Tensor) -> torch.Tensor:
    k = h.cpu()
    k += net.b
    return h


def by_a_leaf(net: Any, h: torch.Tensor) -> torch.Tensor:
    net.own(h)
    return h


def in_bfloat16(net: Any, h: torch.Tensor) -> torch.Tensor:
    h = h.bfloat16()
    h += net.b
    return h.float() * 100


def by_data(net: Any, h: torch.Tensor) -> torch.Tensor:
    h.data *= 2
    return h


def by_a_number(net: Any, h: torch.Tensor) -> torch.Tensor:
    c = d = math.sqrt(h.shape[-1])
    d *= 2
    return h * d / c


def by_indices(net: Any, h: torch.Tensor) -> torch.Tensor:
    q = h[:, [0, 2]]
    q += 1
    return h + q.sum(1, keepdim=True)


def into_what_is_given(net: Any, h: torch.Tensor) -> torch.Tensor:
    torch.mul(h, 0.1, out=h)
    return h


def by_einsum(net: Any, h: torch.Tensor) -> torch.Tensor:
    turned = torch.einsum("ij->ji", h)
    turned += 1
    return h


def kind_of_tensor(net: Any, h: torch.Tensor) -> torch.Tensor:
    return h if is_tensor(h) else -h


def by_gradients(net: Any, h: torch.Tensor) -> torch.Tensor:
    return h if torch.is_grad_enabled() else -h


def compared(net: Any, h: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        padding = (h == 0).any(1, keepdim=True) | (torch.arange(3.0).sum() > 99)
    return h.masked_fill(padding, 1.0)


@pytest.mark.parametrize("example", [None, torch.randn(3, 6)])
@pytest.mark.parametrize(
    ("between", "refused", "with_example"),
    [
        (overwritten_copy, True, True),
        (overlapping, True, True),
        (on_the_cpu, True, True),
        (by_data, True, True),
        (into_what_is_given, True, True),
        (by_einsum, True, True),
        (by_a_leaf, False, True),  # without an example nobody sees what it does
        (in_bfloat16, False, True),
        (kind_of_tensor, True, False),
        (by_a_number, False, False),
        (by_indices, False, False),
        (by_gradients, False, False),
        (compared, False, False),
    ],
)
def test_what_is_written_is_followed_or_refused(
    between: Any, refused: bool, with_example: bool, example: torch.Tensor | None
) -> None:
    model = Written(between)
    if refused if example is None else with_example:
        with pytest.raises(ValueError, match=r"^model: .*(cannot trace|read elsewhere|something else)"):
            to_dac(model, example)
    elif not with_example:
        x = torch.randn(3, 6)
        torch.testing.assert_close(to_dac(model, example, keep_function=True)(x), model(x))


def test_a_chain_of_additions_takes_no_longer_than_it_is() -> None:
    def chained(count: int) -> Callable[[Any, torch.Tensor], torch.Tensor]:
        def between(net: Any, h: torch.Tensor) -> torch.Tensor:
            for _ in range(count):
                h += 1
            return h

        return between

    def took(count: int) -> float:
        start = time.process_time()
        to_dac(Written(chained(count)))
        return time.process_time() - start

    took(10)
    assert took(800) < 40 * took(100)  # by squares it was some hundred times as long


class Skipping(nn.Module):
    """Overwrites what is kept by another name."""

    def __init__(self, skip) -> None:
        super().__init__()
        self.first, self.last, self.skip = nn.Linear(4, 4), nn.Linear(4, 4), skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        skip = self.skip(h)
        return self.last(F.relu(h, inplace=True)) + skip


@pytest.mark.parametrize(
    "skip", [nn.Identity(), nn.Dropout(), nn.Flatten(), *map(operator.methodcaller, ("contiguous", "float", "ravel"))]
)
def test_what_may_be_the_tensor_itself_is_not_overwritten(skip) -> None:
    with pytest.raises(ValueError, match="writes in place into first, which is read elsewhere"):
        to_dac(Skipping(skip).eval())


class DecidingByInput(nn.Module):
    """Does something else by what it finds of its input."""

    def __init__(self, finds: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.finds, self.first, self.last = finds, nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Negative, or not."""
        y = self.last(F.relu(self.first(x)))
        return y if self.finds(x) else -y


@pytest.mark.parametrize(
    "finds",
    [
        lambda x: x.shape[0] > 1,
        lambda x: int(x.shape[0] ** 0.5) == 2,
        lambda x: float(x.size(0)) > 2,
        lambda x: len([part for part in x]) > 1,  # noqa: C416 - Python unpacks otherwise
        lambda x: x[0, 0] > 0,
    ],
)
def test_what_the_example_decided_is_asked_again(finds) -> None:
    model, example = DecidingByInput(finds), torch.ones(4, 4)
    new = pickle.loads(pickle.dumps(to_dac(model, example)))
    torch.testing.assert_close(new(example), model(example))
    with pytest.raises(ValueError, match=r"^input: got one for which the line '.*' finds .*, allowed are those for"):
        new(-torch.ones(1, 4))


def test_a_shape_is_that_of_one_input_and_not_of_a_batch_of_one() -> None:
    with pytest.raises(ValueError, match=r"^input: .*'return y if .*' finds True, .*a shape stands for one input"):
        to_dac(DecidingByInput(lambda x: x.shape[0] > 1), (4,))


class Hidden(nn.Module):
    """A branch that begins at nothing, or whose sum loses an activation."""

    def __init__(self, branch: nn.Module, bared: bool) -> None:
        super().__init__()
        self.branch, self.bared, self.scale = branch, bared, nn.Parameter(torch.zeros(4))
        self.before, self.after = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A residual sum."""
        if not self.bared:
            return x[:, :4] + self.scale * self.branch(x)
        h = F.relu(self.before(x))
        return self.branch(self.after(h).repeat(1, 2)[:, :6] + h)


@pytest.mark.parametrize("bared", [False, True])
def test_what_differs_behind_nothing_or_beside_a_sum_is_seen(bared: bool) -> None:
    with pytest.raises(ValueError, match="for the example its graph gives something else"):
        to_dac(Hidden(Written(by_a_leaf), bared), (6,))
    assert ("a sum reads" in str(to_dac(Hidden(Written(by_indices), bared), (6,)).converted)) is bared


def counts(net: Any, h: torch.Tensor) -> torch.Tensor:
    net.calls = getattr(net, "calls", 0) + 1
    return h * min(1.0, net.calls / 100)


def remembers(net: Any, h: torch.Tensor) -> torch.Tensor:
    before = getattr(net, "before", net.b)
    net.before = h.detach()
    return h + before


def makes_a_table(net: Any, h: torch.Tensor) -> torch.Tensor:
    if not hasattr(net, "table"):
        net.table = torch.arange(h.shape[-1])
    return h + net.table


def reads_a_table(net: Any, h: torch.Tensor) -> torch.Tensor:
    if not hasattr(net, "table"):
        net.table = torch.arange(h.shape[-1])
    return h + net.table[: h.shape[-1]].to(h.dtype)


def sums_up(net: Any, h: torch.Tensor) -> torch.Tensor:
    net.sum = getattr(net, "sum", 0) + h.mean()
    return h


def test_what_changes_from_call_to_call_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^model: the forward of Written does something else when it is called again"):
        to_dac(Written(counts))
    with pytest.raises(ValueError, match="for the example its graph gives something else"):
        to_dac(Written(remembers), (6,))


@pytest.mark.parametrize("example", [None, (6,)])
@pytest.mark.parametrize("between", [makes_a_table, reads_a_table, sums_up])
def test_what_is_kept_of_a_call_and_decides_nothing_is_computed_at_each(between: Any, example: Any) -> None:
    model, x = Written(between), torch.randn(3, 6)
    new = to_dac(model, example, keep_function=True)
    assert not new.converted.limits
    torch.testing.assert_close(new(x), model(x))


class DropsHalf(nn.Module):
    """A part with a dropout that is called as a function."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Drop half of it, in training."""
        return F.dropout(x, 0.5, self.training)


@pytest.mark.parametrize("mode", [False, True])
def test_a_part_in_another_mode_drops_by_its_own(mode: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4), DropsHalf()).train(mode)
    model[3].train(not mode)
    new, x = to_dac(model), torch.randn(3, 4)
    torch.manual_seed(0)
    there = model(x)
    torch.manual_seed(0)
    torch.testing.assert_close(new(x), there)


class Decoding(nn.Module):
    """Torch's decoder layer, whose copies forget an activation that is a module."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.TransformerDecoderLayer(4, 2, 8, 0.0, nn.GELU(), batch_first=True)
        self.head = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Decode a sequence beside itself."""
        return self.head(self.decoder(x, x))


@pytest.mark.parametrize("example", [None, (5, 4)])
def test_a_decoder_layer_keeps_its_activation(example: Any) -> None:
    model, x = Decoding(), torch.randn(2, 5, 4)
    torch.testing.assert_close(to_dac(model, example)(x), model(x))


class Named(nn.Module):
    """Has names that nobody reads, another name of a bias, and keeps a normalisation as it is."""

    def __init__(self, name: str = "norm") -> None:
        super().__init__()
        self.name, self.head = name, nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        setattr(self, name, nn.BatchNorm1d(4))
        self.token, self.other, self.again = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3)), self.head[2].bias
        self.register_buffer("mean", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise, and a perceptron."""
        return self.head(self.get_submodule(self.name)(x))

    def train(self, mode: bool = True) -> Named:
        """The normalisation is never in training."""
        super().train(mode)
        self.get_submodule(self.name).eval()
        return self


def test_what_no_forward_reads_keeps_its_name_and_a_train_of_its_own_is_said_to_be_gone() -> None:
    new = to_dac(Named())
    assert {"mean", "norm.weight"} <= new.state_dict().keys()
    # one order, for optimizers know parameters by their place; the bias is that of a module of its own now
    assert [name for name, _ in new.named_parameters() if "." not in name] == ["token", "other"]
    assert isinstance(new.token, nn.Parameter)
    assert new.converted.changed == {"": "its own train() is gone"}


@pytest.mark.parametrize("name", ["code", "graph", "meta"])
def test_a_name_that_a_network_of_torch_fx_has_itself_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"^model: got something of the name '{name}'"):
        to_dac(Named(name))


class Output(dict):
    """An output with attributes."""


def as_output(net: Any, h: torch.Tensor) -> Any:
    return Output(h=h)["h"]


def test_outputs_of_a_class_of_ones_own_are_refused() -> None:
    class Gives(Written):
        def forward(self, x: torch.Tensor) -> Any:
            return Output(logits=super().forward(x))

    with pytest.raises(ValueError, match="it would become a dict: Output"):
        to_dac(Gives(as_output))


class Frames(nn.Module):
    """Convolutions of the frames of a film, each for itself, and a layer for all."""

    def __init__(self, batch: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.batch, self.conv, self.head = batch, nn.Conv2d(3, 4, 3), nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Frames become inputs, and one input again."""
        h = F.max_pool2d(F.relu(self.conv(x.flatten(0, 1))), 2)
        return self.head(h.view(self.batch(x, h), -1))


def test_a_batch_size_is_that_of_what_is_flattened() -> None:
    film = Frames(lambda x, h: x.shape[0])
    with pytest.raises(ValueError, match=r"no activation .* is followed by"):
        to_dac(film)  # the order is that of frames, channels and pixels

    class Pictures(Frames):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            count = x.shape[0]
            h = F.max_pool2d(F.relu(self.conv(x)), 2)
            return self.head(h.view(count, -1))

    class Prepared(Pictures):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(F.interpolate((x.float() / 255).clamp(0, 1), scale_factor=1.0))

    for kind in (Pictures, Prepared):
        pictures, x = kind(film.batch), torch.randn(3, 3, 6, 6)
        pictures.head = nn.Linear(16, 5)
        new = to_dac(pictures)
        assert set(new.converted.layers) == {"head"}
        torch.testing.assert_close(new(x), pictures(x))


def asks_for_the_kind(net: Any, h: torch.Tensor) -> torch.Tensor:
    h = F.relu(h)
    return h.clamp(max=6e4) if h.dtype == torch.float16 else h


class OwnDropout(nn.Dropout):
    """Torch's, by another name."""


def test_a_question_for_a_kind_or_a_subclass_of_dropout_is_not_in_the_way() -> None:
    new = to_dac(Written(asks_for_the_kind), (6,))
    assert not any("relu" in name for name in new.state_dict())
    new = to_dac(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), OwnDropout(), nn.Linear(4, 4)))
    assert set(new.converted.layers) == {"3"}


def test_the_comparison_is_as_exact_as_the_numbers_inside() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)) for _ in range(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = x + block(x)
            return x.float()

    assert len(to_dac(Half().bfloat16(), (6,)).converted.layers) == 8


def not_a_number(net: Any, h: torch.Tensor) -> torch.Tensor:
    return h.masked_fill(h < -5, float("nan"))


def test_a_constant_that_is_not_a_number_counts_nothing() -> None:
    assert not to_dac(Written(not_a_number)).converted.limits


@pytest.mark.parametrize("at", ["0", "1", "2"])
def test_what_was_put_on_a_layer_as_its_forward_stays(at: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    layer = model.get_submodule(at)
    was = layer.forward
    layer.forward = lambda x: was(x) + 1
    new, x = to_dac(model), torch.randn(3, 4)
    assert at not in new.converted.layers
    torch.testing.assert_close(new(x), model(x))


def test_a_question_of_a_class_in_another_file_is_answered(monkeypatch) -> None:
    code = """
from torch import Tensor, nn

class Base(nn.Module):
    def positive(self, x):
        return x if isinstance(x, Tensor) else -x
"""
    elsewhere = types.ModuleType("elsewhere")
    exec(code, vars(elsewhere))
    monkeypatch.setitem(sys.modules, "elsewhere", elsewhere)

    class Here(elsewhere.Base):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(F.relu(self.first(self.positive(x))))

    model, x = Here(), torch.randn(3, 4)
    torch.testing.assert_close(to_dac(model)(x), model(x))


class Apart(nn.Module):
    """Overwrites one of several tensors, or what only gives its shape to others."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.first, self.last = how, nn.Linear(4, 4), nn.Linear(4, 4)
        self.attention, self.memory = nn.MultiheadAttention(4, 1), nn.LSTM(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.last(F.relu(self.first(x)))
        if self.how == "heads":
            heads = h.transpose(0, 1)
            q, k = heads[0], heads[1]
            q *= 2
            return q @ k.transpose(0, 1)
        if self.how == "halves":
            q, k = h[..., :2], h[..., 2:]
            q *= 2
            return torch.cat((k, q), -1)
        if self.how == "outputs":
            y, weights = self.attention(h, h, h)
            return F.relu(y, inplace=True) * weights.sum()
        if self.how == "nested outputs":
            y, (last, cell) = self.memory(h)
            return F.relu(last, inplace=True) + cell + y
        y = F.relu(h.flatten(0, 1), inplace=True)
        return y.view_as(h) + y.view(h.shape) + y.view(len(h), h.size(1), -1)


@pytest.mark.parametrize("how", ["heads", "halves", "outputs", "nested outputs", "shape"])
def test_what_lies_apart_may_be_overwritten(how: str) -> None:
    model, x = Apart(how).eval(), torch.randn(3, 2, 4)
    torch.testing.assert_close(to_dac(model)(x), model(x))


#: What the code of a network may ask of a buffer, and then does.
QUESTIONS = {
    "kind": lambda m, x: x * m.mask if isinstance(m.mask, torch.Tensor) else x,
    "tensor": lambda m, x: x * m.mask if torch.is_tensor(m.mask) else x,
    "a parameter": lambda m, x: x * m.mask if isinstance(m.first.weight, nn.Parameter) else x,
    "dtype": lambda m, x: x * m.mask if m.mask.dtype is torch.bool else x,
    "real dtype": lambda m, x: x * m.mask if m.scales.dtype == torch.float32 else x,
    "device": lambda m, x: x * m.mask if m.mask.device.type == "cpu" else x,
    "length": lambda m, x: sum(x * m.scales[i] for i in range(len(m.scales))),
    "shape": lambda m, x: sum(x * m.scales[i] for i in range(m.scales.shape[0] * m.scales.dim())),
    "elements": lambda m, x: sum(x * scale for scale in m.scales),
    "number": lambda m, x: x * float(m.scales[1]) + int(m.ready),
    "truth": lambda m, x: x * m.mask if m.ready else x,
    "computed": lambda m, x: x * m.mask if (m.scales * 2).sum() > 1 else x,
}


class Questioning(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.first, self.last = name, nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("mask", torch.tensor([True, False, True, False]))
        self.register_buffer("scales", torch.tensor([1.0, 2.0]))
        self.register_buffer("ready", torch.tensor(True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = QUESTIONS[self.name](self, self.last(F.relu(self.first(x))))
        return result


@pytest.mark.parametrize("example", [None, (4,)])
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_about_a_buffer_is_answered(name: str, example) -> None:
    model, x = Questioning(name), torch.randn(3, 4)
    torch.testing.assert_close(to_dac(model, example)(x), model(x))


class Positions(nn.Module):
    """Adds what is computed from a buffer and a shape, without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("inv", torch.rand(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            t = torch.arange(x.shape[1], device=x.device)
            angles = t[:, None] * self.inv.to(x.dtype)
            positions = torch.cat((angles.sin(), angles.cos()), 1)
        return self.last(F.relu(self.first(x + positions.expand(len(x), -1, -1))))


def test_what_has_no_gradient_may_be_computed_without() -> None:
    model, x = Positions(), torch.randn(2, 5, 4)
    new = to_dac(model)
    for module in (model, new):
        module.inv.mul_(2)
    torch.testing.assert_close(new(x), model(x))


def test_buffers_keep_their_names_and_noise_is_drawn_at_each_call() -> None:
    new = to_dac(Forgotten("noise"))
    assert [*dict(new.named_buffers())] == ["mean"]
    x = torch.randn(3, 4)
    assert not torch.equal(new(x), new(x))
    plain = to_dac(Forgotten())
    before = plain(x)
    plain.mean.fill_(1.0)
    torch.testing.assert_close(plain(x + 1), before)


def test_a_forward_that_was_put_on_the_object_is_refused() -> None:
    model = Functional(F.relu)
    model.forward = lambda x: 2 * Functional.forward(model, x)
    with pytest.raises(ValueError, match=r"got a Functional whose forward was put on the object, allowed is that"):
        to_dac(model)


def test_an_example_answers_questions_about_shapes() -> None:
    model = trained(models.SmallCNN(3, 10))
    with pytest.raises(ValueError, match=r"cannot trace the forward of SmallCNN .*an example may help"):
        to_dac(model)
    # On maps of 4 × 4 only the first block is followed by average pooling.
    for example in (torch.randn(1, 3, 4, 4).double(), (3, 4, 4)):
        converted = to_dac(model, example)
        assert kinds(converted, DACConv2d) == ["convolutions.2"]
    # Another size of the batch is no other decision.
    assert_same(converted, model, torch.randn(5, 3, 4, 4).double())


def test_nothing_to_convert_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"in Sequential no activation .* before its layers come Linear, the input$"):
        to_dac(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    with pytest.raises(ValueError, match=r"in Sequential no activation .* it has no such layer$"):
        to_dac(nn.Sequential(nn.Flatten()))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda model: to_dac("model"), r"model: got str, allowed is an nn\.Module"),
        (lambda model: to_dac(torch.compile(model)), r"model: got what torch\.compile has returned"),
        (lambda model: to_dac(model, "3"), "example: got '3', allowed are a shape, a tensor"),
        (lambda model: to_multibias(model, 2.5), r"copies: got 2\.5"),
        (lambda model: to_multibias(model, 0), "copies: got 0"),  # before torch warns of weights without elements
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[nn.Module], nn.Module], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        call(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))


class Shared(nn.Module):
    """One block that runs three times, and a head that is the embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))] * 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


class Bent(nn.Module):
    """An activation of somebody else."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (self.rate * x).sin()


def between(activation: nn.Module, last: nn.Module | None = None) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), activation, last or nn.Linear(6, 2))


@together(
    "model, said",
    [
        (
            models.SmallCNN(3, 10),
            "ReLU before avg_pool2d: activations.0, activations.1; stays, ReLU before mean: activat",
        ),
        (
            models.SmallCNN(3, 10, activation=AGLU),
            "AGLU before avg_pool2d: activations.0, activations.1; stays, AGLU before mean: activat",
        ),
        (models.SmallCNN(3, 10, activation=LASiLU), "LASiLU is not elementwise: activations.0, activations.1, activat"),
        (between(AGLU(6)), "AGLU is not elementwise: '1'"),
        (between(RAA(6)), "RAA is not elementwise: '1'"),
        (between(nn.PReLU()), "PReLU has parameters of its own: '1'"),
        (between(nn.LeakyReLU(0.2)), "LeakyReLU has no DAC form: '1'"),
        (between(Bent()), "Bent has parameters of its own: '1'"),
        (between(nn.ReLU(), nn.Linear(6, 1)), "ReLU before Linear with one output: '1'"),
        (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2).requires_grad_(False), nn.ReLU()), ""),
        (Shared(), "GELU before Linear that is called 3 times: blocks.0.1"),
    ],
)
def test_what_is_in_the_way_is_said(model: nn.Module, said: str) -> None:
    x = torch.randn(1, 3, 32, 32) if isinstance(model, models.SmallCNN) else torch.randn(3, 4)
    if not said:
        assert kinds(to_dac(model, x), DACLinear) == ["2"]
        return
    with pytest.raises(ValueError, match=r"no activation .* is followed by an nn\.Linear") as error:
        to_dac(model, x)
    assert f"; stays, {said}" in str(error.value)
    assert str(error.value).endswith(
        "; replace_activations puts others there; averages, sums and products stop them all"
    )


@together(
    "make, layers, left",
    [
        (
            lambda: (models.build("vit_64x4", (3, 16, 16), 10, nn.GELU), 16),
            [f"blocks.{i}.mlp.fc2" for i in range(4)],
            [],
        ),
        (
            lambda: (models.SmallCNN(3, 10, attention=ChannelAttention), 16),
            [f"attentions.{i}.expand" for i in range(3)],
            ["Sigmoid before reshape", "ReLU before flatten, mul"],
        ),
        (
            lambda: (nn.Sequential(nn.Conv2d(3, 8, 3), SpatialChannelAttention(8, gate="apa")), 16),
            ["1.channel.expand"],
            ["APA before mul", "APA before reshape"],
        ),
    ],
)
def test_networks_and_attention_of_this_package_are_converted(make, layers: list[str], left: list[str]) -> None:
    model, size = make()
    model = trained(model)
    converted = to_dac(model, torch.randn(2, 3, size, size).double())
    assert kinds(converted, DACLinear) == layers
    assert {*converted.converted.left.values()} == {*left}
    assert not converted.converted.changed
    assert_same(converted, model, torch.randn(5, 3, size, size).double())


class Lengths(nn.Module):
    """Asks how long a tensor is, and unpacks a shape."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        x = self.second(torch.relu(self.first(x)))
        return x.reshape(*x.shape[:2], 2, 2) if x.ndim == 3 else x


def test_lengths_of_batches_and_shapes_are_followed() -> None:
    model = Lengths().double()
    known = type(model).forward.__globals__
    converted = to_dac(model, torch.randn(2, 3, 4).double())
    assert "len" not in known
    assert kinds(converted, DACLinear) == ["second"]
    assert_same(converted, model, torch.randn(7, 5, 4).double())


def test_a_module_that_is_no_child_is_named_with_who_calls_it() -> None:
    class Listing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.all = [nn.ReLU()]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.all[0](x)
            return result

    with pytest.raises(ValueError, match=r"module '1', a Listing, calls a ReLU that is none of its children"):
        to_dac(between(Listing()))


# --- parameters --------------------------------------------------------------------------------------------------


def stages(layers: list[int], width: int) -> list[tuple[int, int]]:
    """(inputs, outputs) of the convolutions after the first, of three stages."""
    channels = [width * 2**stage for stage, depth in enumerate(layers) for _ in range(depth)]
    return list(pairwise(channels))


# Metta et al., section 4: nm biases for each convolution instead of the m of the activation before it.
@pytest.mark.parametrize(
    ("make", "layers", "width"),
    [
        (models.vgg20_16, [7, 6, 6], 16),
        (models.vgg14_32, [5, 4, 4], 32),
        (lambda c, k: models.resnet20(c, k, version="v2"), [7, 6, 6], 16),
        (lambda c, k: models.resnet56(c, k, version="v2"), [19, 18, 18], 16),
        (lambda c, k: models.resnet20(c, k, version="v2", width=4), [7, 6, 6], 64),
    ],
)
def test_the_number_of_parameters_is_the_papers(make, layers, width) -> None:
    model = make(3, 10)
    base = sum(p.numel() for p in model.parameters())
    dac = sum(p.numel() for p in to_dac(model).parameters())
    assert dac - base == sum(n * m - m for m, n in stages(layers, width))
    assert 0.1 < dac / base - 1 < 0.115


# --- multi-bias and replacement ----------------------------------------------------------------------------------


def test_multi_bias_takes_tokens_and_channels_that_lie_last() -> None:
    model, x = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), torch.randn(2, 6, 7, 4)
    converted = to_multibias(model, 2)
    nn.init.normal_(converted.get_submodule("2")[0].bias)
    torch.testing.assert_close(converted(x), converted(x.reshape(-1, 4)).reshape(2, 6, 7, 3))


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_copies_with_equal_biases_and_shared_out_weights_change_nothing(version: str) -> None:
    model = trained(models.resnet20(3, 10, version=version))
    converted = to_multibias(model, 3)
    names = [name for name in kinds(model, nn.Conv2d) if name != "stem"]
    assert kinds(converted, MultiBias) == [f"{name}.0" for name in names]
    with torch.no_grad():
        for name in names:
            converted.get_submodule(f"{name}.1").weight.copy_(model.get_submodule(name).weight.repeat(1, 3, 1, 1) / 3)
    assert_same(converted, model, torch.randn(4, 3, 8, 8).double())


def test_the_weights_after_multi_bias_are_new_and_kfold() -> None:
    model = trained(nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 300)))
    layer = to_multibias(model, 4).get_submodule("2")[1]
    assert layer.weight.shape == (300, 800)
    assert layer.weight.dtype == torch.float64
    assert abs(layer.weight.std() / (2 / 800) ** 0.5 - 1) < 0.02
    assert torch.equal(layer.bias, torch.zeros(300).double())
    with pytest.raises(ValueError, match="in Sequential no activation"):
        to_multibias(nn.Sequential(nn.ReLU()), 2)
