"""Dendrite-activated layers beside what people would otherwise write."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from companion.dac.op import dac_conv2d, dac_linear
from companion.study.bench import Competitor, Shape, Subject


def broadcast(z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Eq. 4 as it is written: every activation of every pair."""
    return (weight * torch.relu(z[:, None] + bias)).sum(-1)


def conv2d(z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The package's convolution that keeps the size of the image."""
    return dac_conv2d(z, weight, bias, padding="same")


def grouped(z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Eq. 5 by a grouped convolution: the image repeated for every output, biased and activated."""
    n = weight.shape[0]
    y = torch.relu(z.repeat(1, n, 1, 1) + bias.reshape(1, -1, 1, 1))
    return F.conv2d(y, weight, None, 1, weight.shape[2] // 2, 1, n)


def usual_linear(z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A bias for each input: the layer of a multilayer perceptron, which is another function."""
    return F.linear(torch.relu(z + bias[0]), weight)


def behind_a_norm(
    layer: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """A layer as it stands in a network: behind a batch normalisation with a scale."""

    def normalised(z: Tensor, weight: Tensor, bias: Tensor, scale: Tensor) -> Tensor:
        return layer(F.batch_norm(z, None, None, scale, training=True), weight, bias)

    return normalised


def usual_conv2d(z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A bias for each input channel: the usual convolution."""
    return F.conv2d(torch.relu(z + bias[0, :, None, None]), weight, padding="same")


def linear_tensors(size: Shape) -> tuple[Shape, ...]:
    """Samples, inputs, outputs → z, weight, bias, f."""
    N, m, n = size
    return (N, m), (n, m), (n, m), (N, n)


def normalised_tensors(size: Shape) -> tuple[Shape, ...]:
    """Samples, inputs, outputs → z, weight, bias, scale, f."""
    *others, f = linear_tensors(size)
    return *others, (size[1],), f


def conv_tensors(size: Shape) -> tuple[Shape, ...]:
    """Samples, inputs, outputs, width of the image, width of the kernel → z, weight, bias, f."""
    N, m, n, h, k = size
    return (N, m, h, h), (n, m, k, k), (n, m), (N, n, h, h)


def linear_sizes(device: str) -> list[Shape]:
    """The paper's batch and widths on SGEMM, and wider."""
    common: list[Shape] = [(1024, 14, 100), (1024, 100, 100), (1024, 128, 128)]
    return [*common, (1024, 200, 200)] if device == "cpu" else [*common, (4096, 512, 512), (8192, 1024, 1024)]


def normalised_sizes(device: str) -> list[Shape]:
    """The widest of these."""
    return linear_sizes(device)[-1:]


def conv_sizes(device: str) -> list[Shape]:
    """The three stages of a CIFAR ResNet, and more channels."""
    samples = 32 if device == "cpu" else 128
    common: list[Shape] = [
        (samples, 16, 16, 32, 3),
        (samples, 32, 32, 16, 3),
        (samples, 64, 64, 8, 3),
        (samples, 32, 32, 32, 3),
    ]
    return common if device == "cpu" else [*common, (samples, 64, 64, 32, 3)]


SUBJECTS = (
    Subject(
        "dac-linear",
        "A dense layer of dendrite-activated connections, forward and backward",
        (
            Competitor("companion", dac_linear),
            Competitor("published", broadcast),
            Competitor("companion, compiled", dac_linear, compiled=True),
            Competitor("published, compiled", broadcast, compiled=True),
            Competitor("usual layer", usual_linear),
        ),
        linear_sizes,
        tensors=linear_tensors,
        tiny=(4, 8, 8),
    ),
    Subject(
        "dac-normalised",
        "The same layer behind a batch normalisation, forward and backward",
        (
            Competitor("companion", behind_a_norm(dac_linear)),
            Competitor("published", behind_a_norm(broadcast)),
            Competitor("companion, compiled", behind_a_norm(dac_linear), compiled=True),
            Competitor("published, compiled", behind_a_norm(broadcast), compiled=True),
            Competitor("usual layer", behind_a_norm(usual_linear)),
        ),
        normalised_sizes,
        tensors=normalised_tensors,
        tiny=(4, 8, 8),
    ),
    Subject(
        "dac-conv2d",
        "A convolution of dendrite-activated connections, forward and backward",
        (
            Competitor("companion", conv2d),
            Competitor("published", grouped),
            Competitor("companion, compiled", conv2d, compiled=True),
            Competitor("published, compiled", grouped, compiled=True),
            Competitor("usual layer", usual_conv2d),
        ),
        conv_sizes,
        tensors=conv_tensors,
        tiny=(2, 4, 4, 4, 3),
    ),
)
