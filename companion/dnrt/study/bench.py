"""RAA and ARR beside what people would otherwise use."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion.dnrt.attachment import AttachedARR, attach_arr
from companion.dnrt.layers import ARR, RAA
from companion.dnrt.op import raa
from companion.study.bench import Competitor, Shape, Subject
from companion.study.models import vit_tiny
from companion.surgery import replace_activations


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


# --- ARR ----------------------------------------------------------------------------------------------------------

_CLASSES = 100


def _targets(count: int, device: torch.device) -> Tensor:
    """Classes in no order, two of a kind, the same for all."""
    return torch.arange(count, device=device) // 2 * 37 % _CLASSES


def at_once(x: Tensor) -> Tensor:
    """ARR of responses (N, d), from its first batch on."""
    loss: Tensor = ARR(_CLASSES, x.shape[1]).to(x.device)(x, _targets(len(x), x.device))
    return loss


def sample_by_sample(x: Tensor) -> Tensor:
    """The same as the published code does it: a loop over the samples, all layers at once."""
    means: dict[int, Tensor] = {}
    losses = [x.new_zeros((), dtype=torch.float32)]
    for sample, k in zip(x.float(), _targets(len(x), x.device).tolist(), strict=True):
        if k in means:
            losses.append((sample - means[k]).abs().mean())
            means[k] = 0.9 * means[k] + 0.1 * sample.detach()
        else:
            means[k] = sample.detach()
    return torch.stack(losses).sum() / len(x)


class _ByHand(RAA):
    """RAA as the published code computes it."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (0.5 * (1 + torch.erf((x + F.linear(x, self.weight[None], self.bias)) / math.sqrt(2))))


def _step(activation: type[RAA] | None, arr: Callable[[Tensor], Tensor] | None) -> Callable[[Tensor], Tensor]:
    """The loss of a ViT-Tiny for a batch of images."""

    @functools.cache
    def network(size: int, dtype: torch.dtype, device: torch.device) -> tuple[nn.Module, list[Tensor]]:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model: nn.Module = vit_tiny(size, 3, _CLASSES)
            if activation is not None:
                model = replace_activations(model, {nn.GELU: activation}, (3, size, size))
        tokens: list[Tensor] = []
        if arr is at_once:
            attach_arr(model, "blocks.*", _CLASSES, (3, size, size))
        elif arr is not None:
            for block in model.get_submodule("blocks").children():
                block.register_forward_hook(lambda _, __, output: tokens.append(output[:, 0]))
        return model.to(device=device, dtype=dtype), tokens

    def loss(images: Tensor) -> Tensor:
        model, tokens = network(images.shape[-1], images.dtype, images.device)
        tokens.clear()
        targets = _targets(len(images), images.device)
        value = F.cross_entropy(model(images).float(), targets)
        if arr is at_once:
            attached = cast(AttachedARR, model.arr)
            attached.arr.reset()
            value = value + attached.loss(targets)
        elif arr is not None:
            value = value + arr(torch.cat(tokens, 1))
        return value

    return loss


def _tensors(size: Shape, channels: int) -> tuple[Shape, ...]:
    return size, (size[channels],), (1,), size


SUBJECTS = (
    *(
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
    ),
    Subject(
        "dnrt-arr",
        "ARR of a batch in 100 classes, twelve layers of 192 side by side, forward and backward",
        (Competitor("companion", at_once), Competitor("published", sample_by_sample)),
        lambda device: [(64, 12 * 192), (256, 12 * 192), (256, 192)],
        tensors=lambda size: (size, ()),
        tiny=(128, 24),
    ),
    Subject(
        "dnrt-step",
        "A ViT-Tiny on 32×32 images, forward and backward: RAA with ARR, both as published, RAA alone, GELU",
        (
            Competitor("companion", _step(RAA, at_once)),
            Competitor("published", _step(_ByHand, sample_by_sample)),
            Competitor("companion, without ARR", _step(RAA, None)),
            Competitor("GELU with ARR", _step(None, at_once)),
            Competitor("GELU", _step(None, None)),
        ),
        lambda device: [(256 if device == "cuda" else 32, 3, 32, 32)],
        tensors=lambda size: (size, ()),
        tiny=(4, 3, 8, 8),
    ),
)
