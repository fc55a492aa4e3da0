"""What dendrite-activated connections cost: closed forms for one layer, and what `companion.count` adds for a call.

The convention is at the head of the module :mod:`companion.counting`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula

from companion.counting import conv2d_flops, declare
from companion.dac.op import dac_conv2d, dac_linear, geometry_of

__all__ = ["dac_conv2d_flops", "dac_linear_flops"]


def dac_linear_flops(in_features: int, out_features: int) -> int:
    """Return the FLOPs of a `DACLinear` for one input: 3mn.

    Parameters
    ----------
    in_features : int
        How many inputs the layer has: m.
    out_features : int
        How many outputs: n.

    Returns
    -------
    int

    References
    ----------
    Metta et al. (2024), section 4.

    Examples
    --------
    >>> dac_linear_flops(64, 10)
    1920
    """
    return 3 * in_features * out_features


def dac_conv2d_flops(
    in_channels: int,
    out_channels: int,
    kernel: tuple[int, int],
    image: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    pad_order: str = "after",
    per_weight: bool = False,
) -> int:
    """Return the FLOPs of a `DACConv2d` for one image: those of a convolution, and the additions of its biases.

    With a bias per pair of channels these are n (m/groups) H W, where H × W is the input, or the padded input with
    ``pad_order="before"``. The paper's section 4 writes the output's s × t, which is the same with stride 1 and a
    padding that keeps the size. With a bias per weight nothing can be cached: n (m/groups) kh kw st.

    Parameters
    ----------
    in_channels, out_channels, kernel, image, stride, padding, dilation, groups
        As in `conv2d_flops`.
    pad_order : {"after", "before"}
        Which of padding and activation comes first.
    per_weight : bool
        One bias for every weight, instead of one for every pair of channels.

    Returns
    -------
    int

    References
    ----------
    Metta et al. (2024), section 4.

    Examples
    --------
    >>> dac_conv2d_flops(16, 32, (3, 3), (32, 32), stride=(2, 2), padding=(1, 1))
    2883584
    """
    ordinary = conv2d_flops(in_channels, out_channels, kernel, image, stride, padding, dilation, groups, bias=False)
    if per_weight:
        return ordinary + ordinary // 2
    margin = padding if pad_order == "before" else (0, 0)
    pixels = prod(size + 2 * around for size, around in zip(image, margin, strict=True))
    return ordinary + out_channels * (in_channels // groups) * pixels


# --- what a call costs -------------------------------------------------------------------------------------------

Activation = str | Callable[[Tensor], Tensor]


def _as_dense(z: Tensor, weight: Tensor, bias: Tensor, activation: Activation = "relu") -> Tensor:
    """The shape of the result, by the ordinary layer of the same size."""
    return F.linear(z, weight.to(z.dtype))


@declare(dac_linear, fake=_as_dense)
def _dense(z: Tensor, weight: Tensor, bias: Tensor, activation: Activation = "relu") -> int:
    return z.shape[:-1].numel() * dac_linear_flops(weight.shape[1], weight.shape[0])


def _as_convolution(
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    activation: Activation = "relu",
    pad_order: str = "after",
) -> Tensor:
    """The same for images."""
    return F.conv2d(z, weight.to(z.dtype), None, stride, padding, dilation, groups)


@declare(dac_conv2d, fake=_as_convolution)
def _convolution(
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    activation: Activation = "relu",
    pad_order: str = "after",
) -> int:
    geometry = geometry_of(weight.shape[2:], stride, padding, dilation, groups, pad_order)
    return _images(z.shape, weight.shape, bias.ndim == 4, *geometry[:4], pad_order)


@register_flop_formula(torch.ops.companion.dac_conv2d)
def _compiled(
    z: Sequence[int],
    weight: Sequence[int],
    bias: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    before: bool,
    *_: Any,
    out_shape: Sequence[int],
) -> int:
    """As it stands in graphs that a compiler or an exporter made."""
    return _images(z, weight, len(bias) == 4, stride, padding, dilation, groups, "before" if before else "after")


def _images(
    z: Sequence[int],
    weight: Sequence[int],
    per_weight: bool,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pad_order: str,
) -> int:
    """Shapes and numbers → what all images cost together."""
    *samples, channels, height, width = z
    one = dac_conv2d_flops(
        channels,
        weight[0],
        (weight[2], weight[3]),
        (height, width),
        (stride[0], stride[1]),
        (padding[0], padding[1]),
        (dilation[0], dilation[1]),
        groups,
        pad_order,
        per_weight,
    )
    return prod(samples) * one
