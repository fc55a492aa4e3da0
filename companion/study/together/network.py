"""The convolutional arena's network: six convolutions behind a layer that whitens and does not learn.

Six layers in three blocks: 3×3 convolution, in the first of a block 2×2 max pooling, batch normalisation, activation.
The largest value of each map feeds a linear head. After Jordan (2024), whose network has the same parts.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion.study.models import Standardise
from companion.study.models.initialisation import initialise

__all__ = ["LAYERS", "ArenaCNN", "PerImage", "Whitening", "front"]

#: Convolutions of the network, two a block.
LAYERS = 6

# Added to the patches' variances, as in Jordan's code: what hardly varies is not blown up.
_FLOOR = 5e-4
# A million patches of 32×32 pixels, for a covariance of 12 numbers.
_IMAGES = 1000


class Whitening(nn.Module):
    """A fixed convolution whose maps, one for each number of a k×k patch, are uncorrelated and of variance about 1.

    The filters are the eigenvectors of the patches' covariance, each divided by the root of its eigenvalue.

    Parameters
    ----------
    images : Tensor
        (N, C, H, W): whose patches are measured.
    size : int
        k, the patch's side.

    Attributes
    ----------
    weight : Tensor
        (C·k², C, k, k); a buffer, saved with the network and never trained.

    References
    ----------
    Jordan (2024), 94% on CIFAR-10 in 3.29 seconds on a single GPU, arXiv:2404.00498, section 3.2.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> images = torch.randn(50, 3, 8, 8).cumsum(3)
    >>> maps = Whitening(images)(images)
    >>> maps.shape, torch.allclose(maps.transpose(0, 1).flatten(1).cov(), torch.eye(12), atol=0.02)
    (torch.Size([50, 12, 7, 7]), True)
    """

    weight: Tensor

    def __init__(self, images: Tensor, size: int = 2) -> None:
        super().__init__()
        patches = F.unfold(images, size).movedim(1, 0).flatten(1).double()
        values, vectors = torch.linalg.eigh(patches.cov())
        filters = vectors.T / (values + _FLOOR).sqrt()[:, None]
        # An eigenvector has no sign of its own, and processors differ in the one that they give: it is the sign of its
        # product with a vector that no symmetry of pictures is at right angles to.
        signs = (filters @ torch.arange(1, len(filters) + 1, dtype=filters.dtype).sqrt()).sign()
        filters = (filters * signs[:, None]).to(images.dtype)
        self.register_buffer("weight", filters.unflatten(1, (images.shape[1], size, size)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the maps."""
        return F.conv2d(x, self.weight)


class PerImage(nn.Module):
    """(x − mean) / deviation of each image by itself, over all of its channels and pixels.

    A deviation of less than 1/√n, for n numbers, counts as that: an image of one colour stays what it is.

    Examples
    --------
    >>> image = torch.tensor([0.0, 1.0, 0.0, 1.0]).expand(1, 3, 4, 4)
    >>> torch.allclose(PerImage()(image), PerImage()(0.5 + image / 2))
    True
    """

    def forward(self, x: Tensor) -> Tensor:
        """Standardise."""
        deviation, mean = torch.std_mean(x, dim=(1, 2, 3), keepdim=True, correction=0)
        return (x - mean) / deviation.clamp(min=x[0].numel() ** -0.5)


def front(images: Tensor, *, per_image: bool = False) -> nn.Sequential:
    """Return what comes first in an arena's network: pixels between 0 and 1 are standardised and whitened.

    Parameters
    ----------
    images : Tensor
        (N, C, H, W), between 0 and 1: the training images.
    per_image : bool
        Whether each image is standardised by itself, and not by all training images, channel by channel.

    Returns
    -------
    nn.Sequential
        It learns nothing.
    """
    if per_image:
        standardise: nn.Module = PerImage()
    else:
        deviation, mean = torch.std_mean(images, dim=(0, 2, 3), keepdim=True)
        standardise = Standardise(mean, deviation)
    return nn.Sequential(standardise, Whitening(standardise(images[:_IMAGES])))


class ArenaCNN(nn.Module):
    """The network around a neuron.

    Parameters
    ----------
    front : nn.Module
        Its first layer, see `front`.
    shape : (int, int, int)
        (C, H, W) of what that layer gives.
    num_classes : int
        Logits.
    widths : sequence of int
        Units in the layers of each of the blocks.
    activation : callable
        Takes the number of a layer, from 0 to 5, and of its units, and returns a new module.
    arities : sequence of int
        For each layer, how many maps of the convolution make one unit's map.

    Examples
    --------
    >>> network = ArenaCNN(nn.Identity(), (3, 8, 8), 10, (4, 8, 8), lambda layer, units: nn.ReLU(), (1,) * LAYERS)
    >>> network(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        front: nn.Module,
        shape: tuple[int, int, int],
        num_classes: int,
        widths: Sequence[int],
        activation: Callable[[int, int], nn.Module],
        arities: Sequence[int],
    ) -> None:
        super().__init__()
        channels, *pixels = shape
        units = [width for width in widths for _ in range(2)]
        inputs, maps = [channels, *units[:-1]], [arity * n for arity, n in zip(arities, units, strict=True)]
        self.front = front
        # The normalisation's shift makes a bias of the convolution redundant.
        self.convolutions = nn.ModuleList(
            nn.Conv2d(n, m, 3, padding=1, bias=False) for n, m in zip(inputs, maps, strict=True)
        )
        # A map of one pixel stays as it is.
        sides = [min(pixels) // 2 ** (layer // 2) for layer in range(LAYERS)]
        self.pools = nn.ModuleList(
            nn.MaxPool2d(2) if layer % 2 == 0 and side > 1 else nn.Identity() for layer, side in enumerate(sides)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(m) for m in maps)
        self.activations = nn.ModuleList(activation(layer, n) for layer, n in enumerate(units))
        self.largest = nn.AdaptiveMaxPool2d(1)
        self.head = nn.Linear(units[-1], num_classes)
        initialise(self.convolutions, self.head)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = self.front(x)
        for layer in zip(self.convolutions, self.pools, self.norms, self.activations, strict=True):
            for step in layer:
                x = step(x)
        logits: Tensor = self.head(self.largest(x).flatten(1))
        return logits
