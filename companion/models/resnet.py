"""The residual networks of He et al. (2016) for 32×32 images."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from companion.models.initialisation import initialise

__all__ = ["CifarResNet", "resnet20", "resnet32", "resnet44"]


class _Block(nn.Module):
    """Two 3×3 convolutions and a shortcut without parameters (He et al., option A)."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)
        self.inner: nn.Module = nn.Identity()
        self.attention: nn.Module = nn.Identity()
        self.outer: nn.Module = nn.Identity()
        self.stride = stride
        self.new_channels = channels - in_channels

    def forward(self, x: Tensor) -> Tensor:
        branch = self.inner(self.first_norm(self.first(x)))
        branch = self.attention(self.second_norm(self.second(branch)))
        shortcut = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))
        out: Tensor = self.outer(branch + shortcut)
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
        in squeeze-and- excitation networks.

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
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(16)
        blocks_in_order: list[_Block] = []
        channels = 16
        for stage, width in enumerate((16, 32, 64)):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks_in_order.append(_Block(channels, width, stride))
                channels = width
        self.blocks = nn.ModuleList(blocks_in_order)
        self.head = nn.Linear(channels, num_classes)
        initialise([layer for layer in self.modules() if isinstance(layer, nn.Conv2d)], self.head)
        self.stem_activation = activation()
        for residual in blocks_in_order:
            residual.inner = activation()
            residual.outer = activation()
            if attention is not None:
                residual.attention = attention(residual.second.out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = self.stem_activation(self.stem_norm(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


def resnet20(
    in_channels: int,
    num_classes: int,
    activation: Callable[[], nn.Module] = nn.ReLU,
    attention: Callable[[int], nn.Module] | None = None,
) -> CifarResNet:
    """Return the ResNet-20: three blocks per stage; see `CifarResNet`."""
    return CifarResNet(3, in_channels, num_classes, activation, attention)


def resnet32(
    in_channels: int,
    num_classes: int,
    activation: Callable[[], nn.Module] = nn.ReLU,
    attention: Callable[[int], nn.Module] | None = None,
) -> CifarResNet:
    """Return the ResNet-32 of the CIFAR experiments: five blocks per stage; see `CifarResNet`."""
    return CifarResNet(5, in_channels, num_classes, activation, attention)


def resnet44(
    in_channels: int,
    num_classes: int,
    activation: Callable[[], nn.Module] = nn.ReLU,
    attention: Callable[[int], nn.Module] | None = None,
) -> CifarResNet:
    """Return the ResNet-44: seven blocks per stage; see `CifarResNet`."""
    return CifarResNet(7, in_channels, num_classes, activation, attention)
