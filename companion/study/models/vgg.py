"""The plain convolutional networks of Metta et al. (2024) for 32×32 images."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from companion.study.models.initialisation import initialise

__all__ = ["VGG", "vgg14_32", "vgg20_16"]


class VGG(nn.Module):
    """3×3 convolutions, each with batch normalisation and activation; the mean over the map feeds the head.

    Each stage has twice the channels of the one before it. Its first convolution has stride 2: the paper speaks of
    a plain sequence of convolutions and says nothing of how the map shrinks; the networks that it follows (RepVGG)
    and its residual networks use strides.

    Parameters
    ----------
    depths : sequence of int
        Convolutions of each stage.
    channels : int
        Of the first stage.
    in_channels : int
        Channels of the images.
    num_classes : int
        Logits.
    activation : callable
        Returns a new activation module; called once per convolution.

    References
    ----------
    Metta et al. (2024), Increasing biases can be more efficient than increasing weights, section 5.

    Examples
    --------
    >>> import torch
    >>> VGG((2, 1), 8, 3, 10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        depths: Sequence[int],
        channels: int,
        in_channels: int,
        num_classes: int,
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        convolutions: list[nn.Conv2d] = []
        for stage, depth in enumerate(depths):
            out_channels = channels * 2**stage
            for layer in range(depth):
                stride = 2 if stage > 0 and layer == 0 else 1
                convolutions.append(nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False))
                in_channels = out_channels
        self.convolutions = nn.ModuleList(convolutions)
        self.norms = nn.ModuleList(nn.BatchNorm2d(convolution.out_channels) for convolution in convolutions)
        self.head = nn.Linear(in_channels, num_classes)
        initialise(self.convolutions, self.head)
        self.activations = nn.ModuleList(activation() for _ in convolutions)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        for convolution, norm, activation in zip(self.convolutions, self.norms, self.activations, strict=True):
            x = activation(norm(convolution(x)))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


def vgg20_16(in_channels: int, num_classes: int, activation: Callable[[], nn.Module] = nn.ReLU) -> VGG:
    """Return the paper's 20/16: 19 convolutions, 16 channels that double after 7 and 13 of them; see `VGG`."""
    return VGG((7, 6, 6), 16, in_channels, num_classes, activation)


def vgg14_32(in_channels: int, num_classes: int, activation: Callable[[], nn.Module] = nn.ReLU) -> VGG:
    """Return the paper's 14/32: 13 convolutions, 32 channels that double after 5 and 9 of them; see `VGG`."""
    return VGG((5, 4, 4), 32, in_channels, num_classes, activation)
