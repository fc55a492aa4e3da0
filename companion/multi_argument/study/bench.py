"""The inner network beside what people would otherwise do with it, and beside ReLU."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from companion.multi_argument.op import multi_argument, quadratic_form
from companion.study.bench import Competitor, Shape, Subject

#: Two arguments, two hidden layers of 64: the paper's network.
WIDTHS = (2, 64, 64, 1)


def _moderate(parameters: tuple[Tensor, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """Weights and biases from normal numbers, so that no layer makes its input larger or smaller."""
    weights = [w * math.sqrt(2 / w.shape[1]) for w in parameters[::2]]
    return weights, [b / 8 for b in parameters[1::2]]


def ours(x: Tensor, *parameters: Tensor) -> Tensor:
    """The inner network on the last dimension."""
    return multi_argument(x, *_moderate(parameters), 2)


def ours_on_maps(x: Tensor, *parameters: Tensor) -> Tensor:
    """The same on the channels of images."""
    return multi_argument(x, *_moderate(parameters), 2, dim=1)


def _layers(h: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        h = torch.relu(F.linear(h, w, b))
    return F.linear(h, weights[-1], biases[-1])


def unit_by_unit(x: Tensor, *parameters: Tensor) -> Tensor:
    """As the published code computes it: a loop over the units."""
    weights, biases = _moderate(parameters)
    return torch.cat([_layers(a, weights, biases) for a in x.split(2, -1)], -1)  # type: ignore[no-untyped-call]


def unit_by_unit_on_maps(x: Tensor, *parameters: Tensor) -> Tensor:
    """The same for images, with convolutions of one pixel."""
    weights, biases = _moderate(parameters)
    units = []
    for h in x.split(2, 1):  # type: ignore[no-untyped-call]
        for w, b in zip(weights[:-1], biases[:-1], strict=True):
            h = torch.relu(F.conv2d(h, w[..., None, None], b))
        units.append(F.conv2d(h, weights[-1][..., None, None], biases[-1]))
    return torch.cat(units, 1)


def batched(x: Tensor, *parameters: Tensor) -> Tensor:
    """All units at once, with everything that autograd keeps."""
    return _layers(x.view(*x.shape[:-1], -1, 2), *_moderate(parameters)).squeeze(-1)


def batched_on_maps(x: Tensor, *parameters: Tensor) -> Tensor:
    """The same for images."""
    units = x.view(x.shape[0], -1, 2, *x.shape[2:]).movedim(2, -1)
    return _layers(units, *_moderate(parameters)).squeeze(-1)


def soft_xor(x: Tensor, *parameters: Tensor) -> Tensor:
    """A quadratic form in place of the network."""
    return quadratic_form(x, parameters[0].flatten()[:6], 2)


def soft_xor_on_maps(x: Tensor, *parameters: Tensor) -> Tensor:
    """The same for images."""
    return quadratic_form(x, parameters[0].flatten()[:6], 2, dim=1)


def relu(x: Tensor, *parameters: Tensor) -> Tensor:
    """ReLU of as many units, as a floor: each has one argument."""
    return torch.relu(x[..., : x.shape[-1] // 2])


def relu_on_maps(x: Tensor, *parameters: Tensor) -> Tensor:
    """The same for images."""
    return torch.relu(x[:, : x.shape[1] // 2])


def tokens(device: str) -> list[Shape]:
    """Examples × arguments: the paper's hidden layers of 64 units, and wider ones."""
    sizes: list[Shape] = [(200, 128), (256, 512), (1024, 128)]
    return [(n * 64, m) for n, m in sizes] if device == "cuda" else sizes


def maps(device: str) -> list[Shape]:
    """Images × channels × height × width: the first two convolutions of the paper's network."""
    batch = 256 if device == "cuda" else 4
    return [(batch, 120, 32, 32), (batch, 240, 16, 16)]


def _tensors(size: Shape, at: int) -> tuple[Shape, ...]:
    output = [*size]
    output[at] //= 2
    return size, *(shape for m, n in pairwise(WIDTHS) for shape in ((n, m), (n,))), tuple(output)


SUBJECTS = tuple(
    Subject(
        f"multi-argument-{name}",
        f"A network 2 → 64 → 64 → 1 as the activation of {what}, forward and backward",
        (
            Competitor("companion", package),
            Competitor("published", theirs),
            Competitor("all units at once", at_once),
            Competitor("companion, compiled", package, compiled=True),
            Competitor("published, compiled", theirs, compiled=True),
            Competitor("all units at once, compiled", at_once, compiled=True),
            Competitor("quadratic form", form),
            Competitor("ReLU", floor),
        ),
        shapes,
        tensors=lambda size, at=at: _tensors(size, at),  # type: ignore[misc]
        tiny=tiny,
    )
    for name, what, package, theirs, at_once, form, floor, shapes, at, tiny in (
        ("units", "a dense layer", ours, unit_by_unit, batched, soft_xor, relu, tokens, -1, (16, 12)),
        (
            *("maps", "channels of images", ours_on_maps, unit_by_unit_on_maps, batched_on_maps),
            *(soft_xor_on_maps, relu_on_maps, maps, 1, (2, 8, 4, 4)),
        ),
    )
)
