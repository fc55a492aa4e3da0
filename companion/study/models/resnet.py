"""The residual networks of He et al. (2016) for 32×32 images."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from companion.study.models.initialisation import initialise

__all__ = ["CifarResNet", "resnet20", "resnet32", "resnet44", "resnet56"]


class _Block(nn.Module):
    """Two 3×3 convolutions and a shortcut without parameters (He et al., option A)."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(self._first_norm_channels(in_channels, channels))
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)
        self.inner: nn.Module = nn.Identity()
        self.attention: nn.Module = nn.Identity()
        self.outer: nn.Module = nn.Identity()
        self.stride = stride
        self.new_channels = channels - in_channels

    def _first_norm_channels(self, in_channels: int, channels: int) -> int:
        return channels

    def _shortcut(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))

    def forward(self, x: Tensor) -> Tensor:
        branch = self.inner(self.first_norm(self.first(x)))
        branch = self.attention(self.second_norm(self.second(branch)))
        out: Tensor = self.outer(branch + self._shortcut(x))
        return out


class _PreActivatedBlock(_Block):
    """The block of He et al. (2016b): normalisation and activation come before each convolution, none after the sum.

    `outer` is the activation at the block's entrance, `inner` the one between the convolutions.
    """

    def _first_norm_channels(self, in_channels: int, channels: int) -> int:
        return in_channels

    def forward(self, x: Tensor) -> Tensor:
        branch = self.first(self.outer(self.first_norm(x)))
        branch = self.attention(self.second(self.inner(self.second_norm(branch))))
        out: Tensor = branch + self._shortcut(x)
        return out


class CifarResNet(nn.Module):
    """Three stages of `blocks` residual blocks with 16, 32 and 64 channels: 6·blocks + 2 layers.

    Parameters
    ----------
    blocks : int
        Residual blocks per stage.
    in_channels : int
        Channels of the images.
    num_classes : int
        Logits.
    activation : callable
        Returns a new activation module; called 6·blocks + 1 times.
    attention : callable, optional
        Takes a number of channels and returns a new attention module for the end of each residual branch, as
        in squeeze-and-excitation networks.
    version : {"v1", "v2"}
        "v1": convolution, normalisation, activation, and an activation after each sum. "v2": normalisation,
        activation, convolution, and nothing after the sums; a last normalisation and activation come before the mean.
    width : float
        Multiplies the channels of all stages.

    Raises
    ------
    ValueError
        If the version is unknown.

    References
    ----------
    He et al. (2016), Deep residual learning for image recognition, section 4.2 (v1). He et al. (2016b), Identity
    mappings in deep residual networks (v2).

    Examples
    --------
    >>> import torch
    >>> CifarResNet(1, 3, 10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        blocks: int,
        in_channels: int,
        num_classes: int,
        activation: Callable[[], nn.Module] = nn.ReLU,
        attention: Callable[[int], nn.Module] | None = None,
        version: str = "v1",
        width: float = 1,
    ) -> None:
        super().__init__()
        if version not in ("v1", "v2"):
            raise ValueError(f"version is {version!r}; allowed are v1, v2")
        channels = round(16 * width)
        self.stem = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
        # The first block of v2 normalises and activates what the stem gives.
        self.stem_norm: nn.Module = nn.BatchNorm2d(channels) if version == "v1" else nn.Identity()
        block_type = _Block if version == "v1" else _PreActivatedBlock
        blocks_in_order: list[_Block] = []
        for stage, stage_channels in enumerate((channels, 2 * channels, 4 * channels)):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks_in_order.append(block_type(channels, stage_channels, stride))
                channels = stage_channels
        self.blocks = nn.ModuleList(blocks_in_order)
        self.final_norm: nn.Module = nn.Identity() if version == "v1" else nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, num_classes)
        initialise([layer for layer in self.modules() if isinstance(layer, nn.Conv2d)], self.head)
        self.stem_activation = activation() if version == "v1" else nn.Identity()
        for residual in blocks_in_order:
            residual.inner = activation()
            residual.outer = activation()
            if attention is not None:
                residual.attention = attention(residual.second.out_channels)
        self.final_activation = nn.Identity() if version == "v1" else activation()

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = self.stem_activation(self.stem_norm(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        x = self.final_activation(self.final_norm(x))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


def resnet20(in_channels: int, num_classes: int, *options: Any, **named: Any) -> CifarResNet:
    """Return the ResNet-20: three blocks per stage; the options are those of `CifarResNet`."""
    return CifarResNet(3, in_channels, num_classes, *options, **named)


def resnet32(in_channels: int, num_classes: int, *options: Any, **named: Any) -> CifarResNet:
    """Return the ResNet-32 of the CIFAR experiments: five blocks per stage; the options are those of `CifarResNet`."""
    return CifarResNet(5, in_channels, num_classes, *options, **named)


def resnet44(in_channels: int, num_classes: int, *options: Any, **named: Any) -> CifarResNet:
    """Return the ResNet-44: seven blocks per stage; the options are those of `CifarResNet`."""
    return CifarResNet(7, in_channels, num_classes, *options, **named)


def resnet56(in_channels: int, num_classes: int, *options: Any, **named: Any) -> CifarResNet:
    """Return the ResNet-56: nine blocks per stage; the options are those of `CifarResNet`."""
    return CifarResNet(9, in_channels, num_classes, *options, **named)
