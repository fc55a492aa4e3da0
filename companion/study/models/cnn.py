"""A small convolutional network for 8×8 and 28×28 images."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from companion.study.models.initialisation import initialise

__all__ = ["SmallCNN"]


class SmallCNN(nn.Module):
    """Blocks of 3×3 convolution, batch normalisation, activation and, if wanted, channel attention.

    Between blocks the map is halved by average pooling where it is larger than 2×2. The mean over the map
    feeds the head.

    Parameters
    ----------
    in_channels : int
        Channels of the images.
    num_classes : int
        Logits.
    widths : sequence of int
        Channels of the blocks.
    activation : callable
        Returns a new activation module; called once per block.
    attention : callable, optional
        Takes a number of channels and returns a new attention module; called once per block.

    Examples
    --------
    >>> import torch
    >>> SmallCNN(1, 10)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        widths: Sequence[int] = (16, 32, 64),
        activation: Callable[[], nn.Module] = nn.ReLU,
        attention: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        # The normalisation's shift makes a bias of the convolution redundant.
        self.convolutions = nn.ModuleList(
            nn.Conv2d(n, m, 3, padding=1, bias=False) for n, m in pairwise((in_channels, *widths))
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(m) for m in widths)
        self.head = nn.Linear(widths[-1], num_classes)
        initialise(self.convolutions, self.head)
        self.activations = nn.ModuleList(activation() for _ in widths)
        self.attentions = nn.ModuleList(attention(m) if attention else nn.Identity() for m in widths)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        blocks = zip(self.convolutions, self.norms, self.activations, self.attentions, strict=True)
        for block, (convolution, norm, activation, attention) in enumerate(blocks):
            if block > 0 and min(x.shape[2:]) > 2:
                x = F.avg_pool2d(x, 2)
            x = attention(activation(norm(convolution(x))))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits
