"""Noise on images, to see how a network that was trained without it bears it.

The six kinds are those of the LayerAct paper (section 4.2.2). Images are float tensors with values between 0 and 1; the
noise is added to them as they are, before any standardisation. Three things the paper leaves open are decided here:

- Nothing is clipped: noisy pixels may lie outside [0, 1]. ``.clamp(0, 1)`` clips them where that is wanted.
- "Poisson distributed noise" counts photons: a pixel of value x becomes a Poisson number with mean 255·x, divided by
  255, as if the 8-bit value were a count. Its mean is x and its variance x/255.
- The blur reflects the image at its border, without repeating the border itself.

`SEVERITIES` has three kinds in five strengths, clipped to [0, 1]. They are of the kinds of CIFAR-10-C, but neither its
files nor its strengths: strengths that hurt on CIFAR-10 do nothing to MNIST.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["CORRUPTIONS", "SEVERITIES", "contrast", "gaussian", "gaussian_blur", "poisson"]

# The largest 8-bit pixel.
_WHITE = 255.0


def gaussian(images: Tensor, generator: torch.Generator, mean: float = 0.0, std: float = 0.05) -> Tensor:
    """Add independent normal noise to every pixel of every channel.

    Parameters
    ----------
    images : Tensor
        Any shape and floating dtype.
    generator : torch.Generator
        On the images' device.
    mean, std : float
        Of the noise; `std` is 0 or more.

    Returns
    -------
    Tensor
        Shape and dtype of `images`, not clipped.

    Raises
    ------
    TypeError
        If `images` has no floating dtype.
    ValueError
        If `std` is negative.

    References
    ----------
    Yoon, Lim (2023), Layer-level activation mechanism, section 4.2.2.

    Examples
    --------
    >>> noisy = gaussian(torch.full((1000, 1, 8, 8), 0.5), torch.Generator().manual_seed(0), mean=0.1, std=0.05)
    >>> f"{noisy.mean():.2f} ± {noisy.std():.2f}"
    '0.60 ± 0.05'
    """
    _check(images)
    if std < 0:
        raise ValueError(f"std is {std}; allowed is 0 or more")
    noise = torch.randn(images.shape, generator=generator, dtype=images.dtype, device=images.device)
    return images + mean + std * noise


def poisson(images: Tensor, generator: torch.Generator) -> Tensor:
    """Replace every pixel x by a Poisson number with mean 255·x, divided by 255.

    Parameters
    ----------
    images : Tensor
        Any shape and floating dtype, no negative value.
    generator : torch.Generator
        On the images' device.

    Returns
    -------
    Tensor
        Shape and dtype of `images`, not clipped. Black stays black.

    Raises
    ------
    TypeError
        If `images` has no floating dtype.

    References
    ----------
    Yoon, Lim (2023), Layer-level activation mechanism, section 4.2.2.

    Examples
    --------
    >>> counts = 255 * poisson(torch.full((1000, 1, 8, 8), 0.2), torch.Generator().manual_seed(0))
    >>> f"mean {counts.mean():.0f}, variance {counts.var():.0f}"
    'mean 51, variance 51'
    """
    _check(images)
    return torch.poisson(_WHITE * images, generator=generator) / _WHITE


def gaussian_blur(images: Tensor, size: int = 3, sigma: float = 1.0) -> Tensor:
    """Blur every channel with a sampled normal density of `size` × `size` pixels.

    The weights exp(−k²/(2σ²)) of rows and of columns are divided by their sum, so that a plain area stays as it is.

    Parameters
    ----------
    images : Tensor
        Shape (N, C, H, W), floating dtype; H and W above `size` // 2.
    size : int
        Odd.
    sigma : float
        Deviation in pixels, positive.

    Returns
    -------
    Tensor
        Shape and dtype of `images`.

    Raises
    ------
    TypeError
        If `images` has no floating dtype.
    ValueError
        If `size` is not odd or `sigma` not positive.

    References
    ----------
    Yoon, Lim (2023), Layer-level activation mechanism, section 4.2.2.

    Examples
    --------
    >>> point = torch.zeros(1, 1, 5, 5)
    >>> point[0, 0, 2, 2] = 1
    >>> gaussian_blur(point)[0, 0, 1:4, 1:4]
    tensor([[0.0751, 0.1238, 0.0751],
            [0.1238, 0.2042, 0.1238],
            [0.0751, 0.1238, 0.0751]])
    """
    _check(images)
    if size < 1 or size % 2 == 0 or sigma <= 0:
        raise ValueError(f"size is {size} and sigma is {sigma}; allowed are odd sizes and positive deviations")
    reach = size // 2
    offsets = torch.arange(-reach, reach + 1, dtype=images.dtype, device=images.device)
    line = torch.exp(-offsets.square() / (2 * sigma**2))
    line = line / line.sum()
    channels = images.shape[1]
    padded = F.pad(images, (reach,) * 4, mode="reflect")
    rows = F.conv2d(padded, line.view(1, 1, -1, 1).expand(channels, 1, size, 1), groups=channels)
    return F.conv2d(rows, line.view(1, 1, 1, -1).expand(channels, 1, 1, size), groups=channels)


def contrast(images: Tensor, share: float) -> Tensor:
    """Shrink every image's distances from the mean of its pixels, channel by channel.

    Parameters
    ----------
    images : Tensor
        Shape (N, C, H, W), floating dtype.
    share : float
        What is left of them; 0 leaves plain areas.

    Returns
    -------
    Tensor
        Shape and dtype of `images`.

    Raises
    ------
    TypeError
        If `images` has no floating dtype.
    ValueError
        If `share` is negative.

    References
    ----------
    Hendrycks, Dietterich (2019), Benchmarking neural network robustness to common corruptions and perturbations.

    Examples
    --------
    >>> contrast(torch.tensor([[[[0.0, 1.0]]]]), 0.5)
    tensor([[[[0.2500, 0.7500]]]])
    """
    _check(images)
    if share < 0:
        raise ValueError(f"share is {share}; allowed is 0 or more")
    mean = images.mean((2, 3), keepdim=True)
    return mean + share * (images - mean)


def _check(images: Tensor) -> None:
    if not images.is_floating_point():
        raise TypeError(f"images has dtype {images.dtype}; allowed are floating dtypes with values between 0 and 1")


def _blur(images: Tensor, generator: torch.Generator) -> Tensor:
    """Blur 3×3 with σ = 1; it draws nothing."""
    return gaussian_blur(images)


CORRUPTIONS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "gaussian_1": partial(gaussian, mean=0.0, std=0.05),
    "gaussian_2": partial(gaussian, mean=0.1, std=0.05),
    "gaussian_3": partial(gaussian, mean=0.0, std=0.1),
    "gaussian_4": partial(gaussian, mean=0.1, std=0.1),
    "poisson": poisson,
    "blur": _blur,
}
"""The paper's six noises by name: images and generator → noisy images."""


def _noisy(std: float, images: Tensor, generator: torch.Generator) -> Tensor:
    return gaussian(images, generator, std=std).clamp(0, 1)


def _blurred(sigma: float, images: Tensor, generator: torch.Generator) -> Tensor:
    """Blur as far as three deviations reach; it draws nothing."""
    return gaussian_blur(images, 2 * math.ceil(3 * sigma) + 1, sigma)


def _faded(share: float, images: Tensor, generator: torch.Generator) -> Tensor:
    """Shrink the contrast; it draws nothing."""
    return contrast(images, share)


SEVERITIES: dict[str, tuple[Callable[[Tensor, torch.Generator], Tensor], ...]] = {
    "noise": tuple(partial(_noisy, std) for std in (0.05, 0.1, 0.2, 0.3, 0.4)),
    "blur": tuple(partial(_blurred, sigma) for sigma in (0.5, 0.75, 1.0, 1.5, 2.0)),
    "contrast": tuple(partial(_faded, share) for share in (0.7, 0.5, 0.3, 0.2, 0.1)),
}
"""Three kinds of corruption by name, each the weakest first: images and generator → corrupted images.

Noise by its standard deviation, blur by its deviation in pixels, contrast by what is left of it.
"""
