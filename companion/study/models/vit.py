"""The vision transformer of Dosovitskiy et al. (2021), in the size that the paper on DNRT trains."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["DropPath", "VisionTransformer", "vit_tiny"]


class DropPath(nn.Module):
    """In training, a residual branch is left out for some of the examples: stochastic depth.

    Each example loses the branch with probability `rate`; for the others it is divided by 1 − rate, so the expected
    value stays. In evaluation nothing is left out. Draws from torch's global generator.

    Parameters
    ----------
    rate : float
        At least 0, below 1.

    Raises
    ------
    ValueError
        If the rate is none.

    References
    ----------
    Huang et al. (2016), Deep networks with stochastic depth.

    Examples
    --------
    >>> DropPath(0.5).eval()(torch.ones(1))
    tensor([1.])
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"rate is {rate}; allowed is at least 0 and below 1")
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Leave out, or pass on."""
        if not self.training or self.rate == 0:
            return x
        kept = x.new_empty(x.shape[:1] + (1,) * (x.ndim - 1)).bernoulli_(1 - self.rate)
        return x * kept / (1 - self.rate)

    def extra_repr(self) -> str:
        """The rate."""
        return f"{self.rate:g}"


class _PatchEmbedding(nn.Module):
    """(N, C, H, W) → (N, patches, width): each square patch through one linear map."""

    def __init__(self, in_channels: int, patch: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(in_channels, width, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        patches: Tensor = self.proj(x)
        return patches.flatten(2).transpose(1, 2)


class _Attention(nn.Module):
    """softmax(Q Kᵀ / √(width of a head)) V in each head, and a linear map of all heads together."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        # (N, tokens, 3 · width) → three of (N, heads, tokens, width / heads)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        mixed: Tensor = self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return mixed


class _Perceptron(nn.Module):
    """Width → units → activation → width."""

    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, units)
        self.act: nn.Module = nn.Identity()
        self.fc2 = nn.Linear(units, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc2(self.act(self.fc1(x)))
        return out


class _Block(nn.Module):
    """Attention and perceptron, each normalised before and added to what came in."""

    def __init__(self, width: int, heads: int, drop_path: float, units: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = _Attention(width, heads)
        self.drop_path1 = DropPath(drop_path)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = _Perceptron(width, units)
        self.drop_path2 = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path1(self.attn(self.norm1(x)))
        out: Tensor = x + self.drop_path2(self.mlp(self.norm2(x)))
        return out


class VisionTransformer(nn.Module):
    """Patches of an image and a class token go through blocks of attention and perceptron; the token is classified.

    Normalisation comes before attention and perceptron, positions are learned, and a perceptron is four times as wide
    as the network. Modules and parameters are called as timm's are: ``blocks[i]`` gives (N, 1 + patches, width), the
    class token first, and ``blocks[i].mlp.act`` is its activation. timm's network of the same sizes takes the state.

    Weights of linear maps, the patch embedding's too, and positions are drawn from a normal of deviation 0.02; biases
    and the class token start at zero.

    Parameters
    ----------
    image_size : int
        Height and width of the images.
    in_channels : int
        Channels of the images.
    num_classes : int
        Logits.
    activation : callable
        Returns a new activation module; called once per block. One that must know its channels comes afterwards, by
        :func:`companion.replace_activations`.
    patch : int
        Height and width of a patch; divides `image_size`.
    width : int
        Numbers per token.
    depth : int
        Blocks.
    heads : int
        Of the attention; divides `width`.
    drop_path : float
        Rate of `DropPath` in the last block; it grows linearly from 0 in the first, as in timm.
    units : int, optional
        Hidden ones of each perceptron. Default: four times the width.

    Raises
    ------
    ValueError
        If the patches do not fill the image, the heads do not share the width evenly, or the rate is none.

    References
    ----------
    Dosovitskiy et al. (2021), An image is worth 16x16 words. Qiu et al. (2024), Dynamic Neural Response Tuning,
    section 5.

    Examples
    --------
    >>> model = VisionTransformer(8, 1, 10, patch=2, width=16, depth=2, heads=2)
    >>> model(torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 10])
    """

    no_weight_decay = ("cls_token", "pos_embed")

    def __init__(
        self,
        image_size: int,
        in_channels: int,
        num_classes: int,
        activation: Callable[[], nn.Module] = nn.GELU,
        *,
        patch: int,
        width: int,
        depth: int,
        heads: int,
        drop_path: float = 0.0,
        units: int | None = None,
    ) -> None:
        super().__init__()
        if image_size % patch:
            raise ValueError(f"patch is {patch}; allowed are divisors of image_size, {image_size}")
        if width % heads:
            raise ValueError(f"heads is {heads}; allowed are divisors of width, {width}")
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.empty(1, 1 + (image_size // patch) ** 2, width))
        self.patch_embed = _PatchEmbedding(in_channels, patch, width)
        rates = [drop_path * block / max(depth - 1, 1) for block in range(depth)]
        blocks = [_Block(width, heads, rate, units or 4 * width) for rate in rates]
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, num_classes)
        self._initialise()
        for block in blocks:
            block.mlp.act = activation()

    def _initialise(self) -> None:
        """Draw all weights, in place, from torch's global generator."""
        nn.init.normal_(self.pos_embed, std=0.02)
        for layer in self.modules():
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                nn.init.normal_(layer.weight, std=0.02)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        patches = self.patch_embed(x)
        tokens = torch.cat([self.cls_token.expand(patches.shape[0], -1, -1), patches], 1) + self.pos_embed
        logits: Tensor = self.head(self.norm(self.blocks(tokens))[:, 0])
        return logits


def vit_tiny(image_size: int, in_channels: int, num_classes: int, *options: Any, **named: Any) -> VisionTransformer:
    """Return the ViT-Tiny: patch 4, width 192, 12 blocks, 3 heads; the options are those of `VisionTransformer`."""
    return VisionTransformer(
        image_size, in_channels, num_classes, *options, patch=4, width=192, depth=12, heads=3, **named
    )
