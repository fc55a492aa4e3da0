"""RAA beside what people would otherwise use."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from companion.bench import Competitor, Shape, Subject
from companion.dnrt.op import raa


def _moderate(weight: Tensor) -> Tensor:
    """Weights that make offsets of about one, as a network has them."""
    return weight / math.sqrt(weight.numel())


def ours(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """RAA of tokens."""
    return raa(x, _moderate(weight), bias)


def ours_on_maps(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """RAA of the channels of images."""
    return raa(x, _moderate(weight), bias, dim=1)


def published(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Eq. 4 as it is written and as its published code computes it, for tokens."""
    return x * (0.5 * (1 + torch.erf((x + F.linear(x, _moderate(weight)[None], bias)) / math.sqrt(2))))


def published_on_maps(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same for images: the channels are moved to the end and back."""
    return published(x.permute(0, 2, 3, 1), weight, bias).permute(0, 3, 1, 2)


def gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """PyTorch's own GELU, as a floor: no offset."""
    return F.gelu(x)


def tokens(device: str) -> list[Shape]:
    """Tokens × features: the hidden layers of a ViT-Tiny (32² and 224²), and longer and shorter rows."""
    if device == "cuda":
        lengths = (64, 768, 4096)
        return [*((2**22 // d, d) for d in lengths), *((2**27 // d, d) for d in (*lengths, 32768))]
    return [(8320, 768), (2048, 512), (65536, 64), (256, 16384)]


def maps(device: str) -> list[Shape]:
    """Images × channels × height × width: the stages of a ResNet-18 for 224², and of a ResNet-20 for 32²."""
    sizes: list[Shape] = [(8, 64, 56, 56), (8, 256, 14, 14), (8, 512, 7, 7), (128, 16, 32, 32)]
    return [(n * 32, *rest) for n, *rest in sizes] if device == "cuda" else sizes


def _tensors(size: Shape, channels: int) -> tuple[Shape, ...]:
    return size, (size[channels],), (1,), size


SUBJECTS = tuple(
    Subject(
        f"dnrt-{name}",
        f"RAA of {what}, forward and backward",
        (
            Competitor("companion", package),
            Competitor("published", theirs),
            Competitor("companion, compiled", package, compiled=True),
            Competitor("published, compiled", theirs, compiled=True),
            Competitor("GELU", gelu),
        ),
        shapes,
        tensors=lambda size, at=at: _tensors(size, at),  # type: ignore[misc]
        tiny=tiny,
    )
    for name, what, package, theirs, shapes, at, tiny in (
        ("tokens", "tokens", ours, published, tokens, -1, (16, 12)),
        ("maps", "channels of images", ours_on_maps, published_on_maps, maps, 1, (2, 16, 4, 4)),
    )
)
