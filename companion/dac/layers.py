"""Modules: dense and convolutional layers of dendrite-activated connections."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from companion.activations import check_elementwise
from companion.dac.op import dac_conv2d, dac_linear, geometry_of, pair
from companion.operators import check_dtype, check_flag, refuse_script

Activation = str | Callable[[Tensor], Tensor]


class _Dendrites(nn.Module):
    """The parameters ``weight`` and ``bias``, and how they begin."""

    activation: Any
    weight: nn.Parameter
    bias: nn.Parameter
    __prepare_scriptable__ = refuse_script

    def __init__(
        self,
        weight: Sequence[int],
        bias: Sequence[int],
        activation: Activation,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        check_elementwise(activation)
        check_dtype(dtype)
        # a module keeps its parameters beside these two
        self.activation = activation
        self.weight = nn.Parameter(torch.empty(*weight, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(*bias, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal weights of variance 2/fan-in (He), and biases 0."""
        fan_in = math.prod(self.weight.shape[1:])
        nn.init.normal_(self.weight, 0.0, math.sqrt(2 / max(fan_in, 1)))
        nn.init.zeros_(self.bias)

    def _named(self) -> str:
        activation = self.activation
        if isinstance(activation, str):
            return repr(activation)
        return getattr(activation, "__name__", type(activation).__name__)


class DACLinear(_Dendrites):
    r"""A dense layer of dendrite-activated connections. It stands for an activation and the ``nn.Linear`` after it.

    .. math:: f_i(z) = \sum_{j=1}^m w_{ij}\,\varphi(b_{ij} + z_j)

    Parameters
    ----------
    in_features : int
        How many inputs the layer has: m.
    out_features : int
        How many outputs: n.
    activation : str or callable
        :math:`\varphi`, see :func:`companion.functional.dac_linear`.
    device, dtype
        Of the parameters.

    Attributes
    ----------
    weight : Parameter
        (n, m), normal with variance 2/m.
    bias : Parameter
        (n, m), one per connection, 0.

    Raises
    ------
    TypeError
        If a size is not an int, or the activation neither a name nor callable.
    ValueError
        If a size is negative, the activation's name unknown, or the activation not elementwise, as LA-SiLU and softmax.

    Shape
    -----
    Input (..., m), output (..., n). Chapter: *DAC* (``book/mechanisms/dac``).

    Notes
    -----
    There is no bias of the output; the next layer's biases are that. After the last layer add one, if it is needed.
    Biases of connections are a matrix, and weight decay takes them along with the weights unless
    ``parameter_groups(model, ..., decay="kernels")`` builds the optimiser's groups. No bias here can hold what a batch
    norm adds after it: ``torch.nn.utils.fuse_linear_bn_eval`` would make another function of both.

    References
    ----------
    Metta et al. (2024), Increasing biases can be more efficient than increasing weights, Eq. 4 and Section 5.

    Examples
    --------
    >>> import torch, companion
    >>> layer = companion.DACLinear(20, 30)
    >>> layer(torch.randn(128, 20)).shape
    torch.Size([128, 30])
    >>> sum(p.numel() for p in layer.parameters())
    1200
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        activation: Activation = "relu",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        in_features, out_features = pair("in_features, out_features", (in_features, out_features), 0)
        super().__init__((out_features, in_features), (out_features, in_features), activation, device, dtype)
        self.in_features, self.out_features = in_features, out_features

    def forward(self, z: Tensor) -> Tensor:
        return dac_linear(z, self.weight, self.bias, self.activation)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, activation={self._named()}"


class DACConv2d(_Dendrites):
    r"""A convolution of dendrite-activated connections. It stands for an activation and the ``nn.Conv2d`` after it.

    .. math:: f_i(z)_{hk} = \sum_{a,b} \sum_{j=1}^m w_{ijab}\,\varphi(b_{ij} + z_{j,h+a,k+b})

    Parameters
    ----------
    in_channels : int
        How many channels come in: m.
    out_channels : int
        How many go out: n.
    kernel_size : int or pair of int
        (kh, kw).
    stride, padding, dilation, groups, pad_order
        See :func:`companion.functional.dac_conv2d`.
    activation : str or callable
        :math:`\varphi`, see :func:`companion.functional.dac_linear`.
    per_weight : bool
        One bias for every weight, instead of one for every pair of channels.
    device, dtype
        Of the parameters.

    Attributes
    ----------
    weight : Parameter
        (n, m/groups, kh, kw), normal with variance 2/fan-in.
    bias : Parameter
        (n, m/groups), or the shape of ``weight``; 0.

    Raises
    ------
    TypeError
        If a number is not an int, or the activation neither a name nor callable.
    ValueError
        If a number is too small, the groups do not divide the channels, a name is unknown, or the activation is not
        elementwise, as LA-SiLU and softmax.

    Shape
    -----
    Input (N, m, H, W) or (m, H, W), output as of ``nn.Conv2d``.
    Chapter: *DAC* (``book/mechanisms/dac``).

    Notes
    -----
    There is no bias of the output; the next layer's biases are that. Weight decay takes the biases along with the
    weights, as in `DACLinear`. No bias here can hold what a batch norm adds after it:
    ``torch.nn.utils.fuse_conv_bn_eval`` would make another function of both.

    References
    ----------
    Metta et al. (2024), Increasing biases can be more efficient than increasing weights, Eq. 5 and Section 5.

    Examples
    --------
    >>> import torch, companion
    >>> layer = companion.DACConv2d(16, 32, 3, padding=1)
    >>> layer(torch.randn(8, 16, 28, 28)).shape
    torch.Size([8, 32, 28, 28])
    >>> layer.bias.shape
    torch.Size([32, 16])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        activation: Activation = "relu",
        pad_order: str = "after",
        per_weight: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        kernel = pair("kernel_size", kernel_size, 1)
        in_channels, out_channels = pair("in_channels, out_channels", (in_channels, out_channels), 0)
        geometry = geometry_of(kernel, stride, padding, dilation, groups, pad_order)
        groups = geometry.groups
        check_flag("per_weight", per_weight)
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"groups: got {groups}, which does not divide in_channels={in_channels} and out_channels={out_channels}"
            )
        pairs = (out_channels, in_channels // groups)
        weight = (*pairs, *kernel)
        super().__init__(weight, weight if per_weight else pairs, activation, device, dtype)
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel
        self.stride, self.dilation = geometry.stride, geometry.dilation
        self.padding = padding if isinstance(padding, str) else geometry.padding
        self.groups, self.pad_order, self.per_weight = groups, pad_order, per_weight

    def forward(self, z: Tensor) -> Tensor:
        return dac_conv2d(
            z,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            self.activation,
            self.pad_order,
        )

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"padding={self.padding!r}, dilation={self.dilation}, groups={self.groups}, activation={self._named()}, "
            f"pad_order={self.pad_order!r}, per_weight={self.per_weight}"
        )
