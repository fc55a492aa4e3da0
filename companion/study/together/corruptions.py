"""The corruptions of CIFAR-10-C at the third of five strengths, from their definitions, for whole batches.

Hendrycks and Dietterich define fifteen; here are fourteen. *Frost* lays photographs of ice over an image, and these are
not ours to bring: it is left out, and a mean over these corruptions is one over fourteen. The strengths are those with
which the authors made the files of CIFAR-10-C, milder than the paper's for ImageNet. As in those files, images of 8
bits come out, and what lies between two of their levels is rounded down. The random numbers are others, so images are
alike in kind, not pixel by pixel.

Three are not exactly theirs. The blur of moving cameras, in *motion_blur* and *snow*, is ImageMagick's as it is
defined: half a bell curve along a line, sampled at the nearest pixel, the border repeated; its own arithmetic may round
otherwise. *elastic_transform* interpolates in floating point where OpenCV has positions to a thirty-second of a pixel.
And *jpeg_compression* is that of whichever libjpeg Pillow has. *glass_blur* is what the authors' code does, not what it
means to: where it swaps two pixels it copies one.

References
----------
Hendrycks, Dietterich (2019), Benchmarking neural network robustness to common corruptions and perturbations; strengths
for CIFAR: the authors' ``make_cifar_c.py``.
"""

import io
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from companion.study.corruptions import contrast, gaussian, gaussian_blur

__all__ = ["CIFAR_C", "corrupted"]

_Corruption = Callable[[Tensor, torch.Generator], Tensor]


def corrupted(name: str, images: Tensor, seed: int = 0) -> Tensor:
    """Return images with one of the corruptions.

    Parameters
    ----------
    name : str
        A key of `CIFAR_C`.
    images : Tensor
        (N, 3, H, W), square, the side a power of two, float32 between 0 and 1, on the CPU.
    seed : int
        Of the random numbers; each corruption draws its own.

    Returns
    -------
    Tensor
        Shape of `images`: multiples of 1/255 between 0 and 1.

    Raises
    ------
    ValueError
        If there is no such corruption, or the shape does not fit.

    Examples
    --------
    >>> faded = corrupted("contrast", torch.tensor([0.0, 1.0]).expand(1, 3, 2, 2))
    >>> faded[0, 0, 0] * 255
    tensor([ 76., 178.])
    """
    if name not in CIFAR_C:
        raise ValueError(f"name is {name!r}; allowed are {', '.join(CIFAR_C)}")
    side = images.shape[-1] if images.ndim == 4 else 0
    if side < 2 or images.shape[1:] != (3, side, side) or side & (side - 1):
        raise ValueError(f"images has shape {tuple(images.shape)}; allowed is (N, 3, side, side), side a power of two")
    generator = torch.Generator().manual_seed(seed)
    return _eight_bits(CIFAR_C[name](images, generator))


def _eight_bits(images: Tensor) -> Tensor:
    # A thousandth of a step: a whole number stays one, however it was computed.
    return (images.clamp(0, 1) * 255 + 1e-3).floor() / 255


def _uniform(low: float, high: float, *shape: int, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=generator)


# Noise.


def _gaussian_noise(images: Tensor, generator: torch.Generator) -> Tensor:
    return gaussian(images, generator, std=0.08)


def _shot_noise(images: Tensor, generator: torch.Generator) -> Tensor:
    return torch.poisson(100 * images, generator=generator) / 100


def _impulse_noise(images: Tensor, generator: torch.Generator) -> Tensor:
    hit, white = (
        torch.rand(images.shape, generator=generator) < 0.03,
        torch.rand(images.shape, generator=generator) < 0.5,
    )
    return torch.where(hit, white.to(images.dtype), images)


# Blur.


def _bell(images: Tensor, sigma: float, reach: int, border: str) -> Tensor:
    """A Gaussian blur of so many pixels to each side, with a border of one's choice."""
    padded = F.pad(images, (reach,) * 4, mode=border)
    return gaussian_blur(padded, 2 * reach + 1, sigma)[..., reach:-reach, reach:-reach]


def _defocus_blur(images: Tensor, generator: torch.Generator) -> Tensor:
    # a disk of radius ½ is one pixel, smoothed by 3×3 pixels with σ = 0.6
    return gaussian_blur(images, 3, 0.6)


def _glass_blur(images: Tensor, generator: torch.Generator) -> Tensor:
    n, _, side, _ = images.shape
    blurred = _eight_bits(_bell(images, 0.4, 2, "replicate"))
    up, left = torch.randint(0, 2, (2, n, side, side), generator=generator)
    # each pixel, but for the two first rows and columns, is that, or a neighbour above or to the left
    line = torch.arange(side)
    keep = (line[:, None] < 2) | (line < 2)
    rows = line[:, None] - torch.where(keep, 0, up)
    columns = line - torch.where(keep, 0, left)
    moved = blurred.flatten(2).gather(2, (rows * side + columns).flatten(1)[:, None].expand(-1, 3, -1)).view_as(images)
    return _bell(moved, 0.4, 2, "replicate")


def _along(images: Tensor, radius: int, sigma: float, degrees: Tensor) -> Tensor:
    """Blur along a line: pixel (r, c) is the mean of those behind it, Σ_i w_i x(r + i sin a, c + i cos a)."""
    channels, height, width = images.shape[1:]
    taps = torch.arange(2 * radius + 1)
    weights = torch.exp(-taps.square() / (2 * sigma**2))
    weights = weights / weights.sum()
    angle = torch.deg2rad(degrees)
    out = torch.zeros_like(images)
    for tap, weight in zip(taps.tolist(), weights.tolist(), strict=True):
        down, right = (torch.ceil(tap * f(angle) - 0.5).long() for f in (torch.sin, torch.cos))
        rows = (torch.arange(height) + down[:, None]).clamp(0, height - 1)
        columns = (torch.arange(width) + right[:, None]).clamp(0, width - 1)
        places = (rows[:, :, None] * width + columns[:, None]).flatten(1)[:, None].expand(-1, channels, -1)
        out += weight * images.flatten(2).gather(2, places).view_as(images)
    return out


def _motion_blur(images: Tensor, generator: torch.Generator) -> Tensor:
    return _along(images, 6, 2.0, _uniform(-45, 45, len(images), generator=generator))


def _nearer(images: Tensor, factor: float) -> Tensor:
    """The middle, enlarged: positions of the corners stay, straight lines between pixels."""
    side = images.shape[-1]
    kept = math.ceil(side / factor)
    start = (side - kept) // 2
    middle = images[..., start : start + kept, start : start + kept]
    large = F.interpolate(middle, size=round(kept * factor), mode="bilinear", align_corners=True)
    start = (large.shape[-1] - side) // 2
    return large[..., start : start + side, start : start + side]


def _zoom_blur(images: Tensor, generator: torch.Generator) -> Tensor:
    steps = [_nearer(images, 1 + step / 100) for step in range(16)]
    return torch.stack([images, *steps]).mean(0)


# Weather.


def _grey(images: Tensor) -> Tensor:
    return 0.299 * images[:, :1] + 0.587 * images[:, 1:2] + 0.114 * images[:, 2:]


def _snow(images: Tensor, generator: torch.Generator) -> Tensor:
    n, _, side, _ = images.shape
    flakes = _nearer(0.15 + 0.3 * torch.randn(n, 1, side, side, generator=generator), 1.75)
    flakes = _eight_bits(torch.where(flakes < 0.55, 0.0, flakes))
    falling = _along(flakes, 10, 4.0, _uniform(-135, -45, n, generator=generator))
    whiter = 0.9 * images + 0.1 * torch.maximum(images, 1.5 * _grey(images) + 0.5)
    return whiter + falling + falling.rot90(2, (2, 3))


def _plasma(n: int, side: int, decay: float, generator: torch.Generator) -> Tensor:
    """Clouds (n, side, side) between 0 and 1, on a torus: squares and diamonds, each with less noise than before."""
    clouds = torch.zeros(n, side, side)
    step, size = side, 100.0

    def noisy(total: Tensor) -> Tensor:
        return total / 4 + size * _uniform(-size, size, *total.shape, generator=generator)

    while step >= 2:
        half = step // 2
        corners = clouds[:, ::step, ::step]
        rows = corners + corners.roll(-1, 1)
        clouds[:, half::step, half::step] = noisy(rows + rows.roll(-1, 2))
        middles = clouds[:, half::step, half::step]
        clouds[:, ::step, half::step] = noisy(middles + middles.roll(1, 1) + corners + corners.roll(-1, 2))
        clouds[:, half::step, ::step] = noisy(middles + middles.roll(1, 2) + corners + corners.roll(-1, 1))
        step, size = half, size / decay
    clouds -= clouds.amin((1, 2), keepdim=True)
    return clouds / clouds.amax((1, 2), keepdim=True)


def _fog(images: Tensor, generator: torch.Generator) -> Tensor:
    brightest = images.amax((1, 2, 3), keepdim=True)
    foggy = images + 0.75 * _plasma(len(images), images.shape[-1], 2.5, generator)[:, None]
    return foggy * brightest / (brightest + 0.75)


def _brightness(images: Tensor, generator: torch.Generator) -> Tensor:
    # of hue, saturation and value the last, which is the largest of the three colours
    value = images.amax(1, keepdim=True)
    brighter = (value + 0.15).clamp(max=1)
    return torch.where(value > 0, images * brighter / value.clamp(min=1e-6), brighter)


# Digital.


def _contrast(images: Tensor, generator: torch.Generator) -> Tensor:
    return contrast(images, 0.4)


def _elastic_transform(images: Tensor, generator: torch.Generator) -> Tensor:
    n, _, side, _ = images.shape
    centre, arm, jitter = float(side // 2), float(side // 3), 0.06 * side
    # three points (x, y) and where they go
    points = torch.tensor([[arm, arm], [arm, -arm], [-arm, -arm]]) + centre
    goals = points + _uniform(-jitter, jitter, n, 3, 2, generator=generator)
    # backwards: (x, y) = A (goal, 1)
    back = torch.linalg.solve(torch.cat([goals, torch.ones(n, 3, 1)], 2), points.expand(n, 3, 2))
    axis = torch.arange(side, dtype=images.dtype)
    grid = torch.stack([axis.expand(side, side), axis[:, None].expand(side, side), torch.ones(side, side)], 2)
    turned = _looked_up(images, grid.flatten(0, 1) @ back, borders="pixels")
    shifts = _uniform(-1, 1, n, 2, side, side, generator=generator)
    smooth = 0.08 * side * _bell_symmetric(shifts, 0.06 * side, 3)
    places = grid[..., :2].flatten(0, 1) + smooth.flatten(2).transpose(1, 2)
    return _looked_up(turned, places, borders="edges")


def _bell_symmetric(images: Tensor, sigma: float, deviations: float) -> Tensor:
    """A Gaussian blur that is cut off after some deviations; the border is a mirror between pixels."""
    reach = int(deviations * sigma + 0.5)
    side = images.shape[-1]
    mirror = torch.arange(-reach, side + reach)
    mirror = torch.where(mirror < 0, -1 - mirror, torch.where(mirror >= side, 2 * side - 1 - mirror, mirror))
    padded = images[..., mirror, :][..., mirror]
    return gaussian_blur(padded, 2 * reach + 1, sigma)[..., reach:-reach, reach:-reach]


def _looked_up(images: Tensor, places: Tensor, borders: str) -> Tensor:
    """The values at places (N, H·W, 2), x before y, in pixels; the mirror runs through border pixels or along edges."""
    n, _, side, _ = images.shape
    through = borders == "pixels"
    scaled = 2 * places / (side - 1) - 1 if through else (2 * places + 1) / side - 1
    grid = scaled.view(n, side, side, 2)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=through)


def _by_pillow(change: Callable[..., object], images: Tensor) -> Tensor:
    """Apply what Pillow does to one image of 8 bits."""
    from torchvision.transforms import functional

    return torch.stack([functional.pil_to_tensor(change(functional.to_pil_image(image))) for image in images]) / 255


def _coarse(image: object) -> object:
    from PIL import Image

    assert isinstance(image, Image.Image)
    side = image.width
    small = image.resize((int(0.85 * side),) * 2, Image.Resampling.BOX)
    return small.resize((side, side), Image.Resampling.BOX)


def _compressed(image: object) -> object:
    from PIL import Image

    assert isinstance(image, Image.Image)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=58)
    return Image.open(file)


def _pixelate(images: Tensor, generator: torch.Generator) -> Tensor:
    return _by_pillow(_coarse, images)


def _jpeg_compression(images: Tensor, generator: torch.Generator) -> Tensor:
    return _by_pillow(_compressed, images)


CIFAR_C: dict[str, _Corruption] = {
    "gaussian_noise": _gaussian_noise,
    "shot_noise": _shot_noise,
    "impulse_noise": _impulse_noise,
    "defocus_blur": _defocus_blur,
    "glass_blur": _glass_blur,
    "motion_blur": _motion_blur,
    "zoom_blur": _zoom_blur,
    "snow": _snow,
    "fog": _fog,
    "brightness": _brightness,
    "contrast": _contrast,
    "elastic_transform": _elastic_transform,
    "pixelate": _pixelate,
    "jpeg_compression": _jpeg_compression,
}
"""By name, in the paper's order: images (N, 3, H, W) between 0 and 1 and a generator → images, which may leave that."""
