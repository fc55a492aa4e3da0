"""AGLU beside what people would otherwise use."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from companion.apa.op import aglu
from companion.bench import Competitor, Subject


def published(z: Tensor, kappa: Tensor, lam: Tensor) -> Tensor:
    """AGLU as the paper's Eq. 13 and its published code write it."""
    return z * torch.exp(F.softplus(kappa * z - torch.log(lam), beta=-1.0) / lam)


def published_in_float64(z: Tensor, kappa: Tensor, lam: Tensor) -> Tensor:
    """The published expression, made as accurate as ours in the way that costs least thought."""
    return published(z.double(), kappa.double(), lam.double()).to(z.dtype)


def gelu(z: Tensor, kappa: Tensor, lam: Tensor) -> Tensor:
    """PyTorch's own fixed curve, as a floor."""
    return F.gelu(z)


def shapes(device: str) -> list[tuple[int, ...]]:
    """From what fits in a cache to what fits in no cache."""
    return [(2**n,) for n in ((16, 20, 22, 25, 27) if device == "cuda" else (16, 20, 22))]


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
)
