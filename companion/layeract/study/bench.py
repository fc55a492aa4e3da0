"""LA-SiLU beside what people would otherwise use."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion.layeract.layers import LASiLU
from companion.layeract.op import la_silu
from companion.study.bench import Competitor, Subject, step


def published(y: Tensor) -> Tensor:
    """Eq. 6 as it is written, with the gradient that autograd makes of it."""
    mean = y.mean(1, keepdim=True)
    variance = y.var(1, correction=0, keepdim=True)
    return y * torch.sigmoid((y - mean) / torch.sqrt(variance + 1e-5))


class Published(nn.Module):
    """The published expression over all but the first dimension."""

    def forward(self, y: Tensor) -> Tensor:
        return published(y.flatten(1)).view(y.shape)


def layer_norm_silu(y: Tensor) -> Tensor:
    """PyTorch's own LayerNorm followed by its SiLU: another function, of the same cost."""
    return F.silu(F.layer_norm(y, y.shape[1:]))


def shapes(device: str) -> list[tuple[int, ...]]:
    """Rows of hidden layers (64 to 4096) and of feature maps (16 × 32 × 32 and more); the last is one that splits."""
    if device == "cuda":
        lengths = (64, 256, 1024, 4096, 16384, 65536, 2**20)
        total = [2**22] * (len(lengths) - 1) + [2**27] * len(lengths)
        return [(n // d, d) for n, d in zip(total, (*lengths[:-1], *lengths), strict=True)]
    return [(128, 64), (128, 512), (1024, 1024), (16, 65536), (65536, 64), (8192, 512), (64, 65536), (4, 2**20)]


SUBJECTS = (
    Subject(
        "layeract",
        "LA-SiLU of rows, forward and backward",
        (
            Competitor("companion", la_silu),
            Competitor("published", published),
            Competitor("companion, compiled", la_silu, compiled=True),
            Competitor("published, compiled", published, compiled=True),
            Competitor("LayerNorm and SiLU", layer_norm_silu),
            Competitor("GELU", F.gelu),
        ),
        shapes,
    ),
    step("layeract-step", "A ResNet-20 with LA-SiLU", companion=LASiLU, published=Published, silu=nn.SiLU),
)
