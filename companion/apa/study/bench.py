"""AGLU beside what people would otherwise use."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion.apa.layers import AGLU
from companion.apa.op import aglu
from companion.study.bench import Competitor, Shape, Subject, step


def published(z: Tensor, kappa: Tensor, lam: Tensor) -> Tensor:
    """AGLU as the paper's Eq. 13 and its published code write it."""
    return z * torch.exp(F.softplus(kappa * z - torch.log(lam), beta=-1.0) / lam)


def published_in_float64(z: Tensor, kappa: Tensor, lam: Tensor) -> Tensor:
    """The published expression, made as accurate as ours in the way that costs least thought."""
    return published(z.double(), kappa.double(), lam.double()).to(z.dtype)


def gelu(z: Tensor, kappa: Tensor, lam: Tensor) -> Tensor:
    """PyTorch's own fixed curve, as a floor."""
    return F.gelu(z)


def _positive(x: Tensor) -> Tensor:
    """κ or λ of a channel, about 1, from a drawn number."""
    return torch.exp(0.3 * x)


def ours_by_channel(z: Tensor, kappa: Tensor, lam: Tensor) -> Tensor:
    """AGLU with κ and λ of their own for each channel."""
    return aglu(z, _positive(kappa), _positive(lam))


def published_by_channel(z: Tensor, kappa: Tensor, lam: Tensor) -> Tensor:
    """The published expression with κ and λ for each channel."""
    return published(z, *(_positive(x)[:, None, None] for x in (kappa, lam)))


class Published(AGLU):
    """The module that the published code is."""

    def forward(self, z: Tensor) -> Tensor:
        return published(z, self.kappa, self.lam)


def maps(device: str) -> list[Shape]:
    """Images × channels × height × width: the stages of a ResNet-20."""
    images = 128 if device == "cpu" else 2048
    return [(images, 16, 32, 32), (images, 32, 16, 16), (images, 64, 8, 8)]


def shapes(device: str) -> list[tuple[int, ...]]:
    """From what fits in a cache to what fits in no cache."""
    return [(2**n,) for n in ((16, 20, 22, 25, 27) if device == "cuda" else (16, 19, 22))]


SUBJECTS = (
    Subject(
        "apa",
        "AGLU with learnable scalar κ and λ, forward and backward",
        (
            Competitor("companion", aglu),
            Competitor("published", published),
            Competitor("companion, compiled", aglu, compiled=True),
            Competitor("published, compiled", published, compiled=True),
            Competitor("published in float64, compiled", published_in_float64, compiled=True),
            Competitor("gelu", gelu),
        ),
        shapes,
        parameters=(1.1, 0.7),
    ),
    Subject(
        "apa-channels",
        "AGLU with learnable κ and λ for each channel, forward and backward",
        (
            Competitor("companion", ours_by_channel),
            Competitor("published", published_by_channel),
            Competitor("companion, compiled", ours_by_channel, compiled=True),
            Competitor("published, compiled", published_by_channel, compiled=True),
            Competitor("gelu", gelu),
        ),
        maps,
        tensors=lambda size: (size, (size[1],), (size[1],), size),
        tiny=(2, 3, 4, 4),
    ),
    step("apa-step", "A ResNet-20 with AGLU", companion=AGLU, published=Published, silu=nn.SiLU),
)
