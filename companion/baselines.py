"""What the papers compare with and torch lacks, or has in a form that would make the comparison unfair."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from companion.activations import ACTIVATIONS, check_activation

__all__ = ["Gumbel", "MultiBias", "PReLU", "gumbel"]


def gumbel(z: Tensor) -> Tensor:
    """Return exp(−exp(−z)), the Gumbel distribution function, elementwise.

    It is the limit λ → 0 of APA with κ = 1. Nothing overflows in it, but its gradient as autograd would build
    it does: exp(−z) is infinite below z ≈ −88 in float32, and infinity times zero is NaN. Below −20 the value
    is 0 in every dtype, so the argument is held there.

    Parameters
    ----------
    z : Tensor
        Any shape, any floating dtype.

    Returns
    -------
    Tensor
        Shape and dtype of `z`; computed in float32 or better.

    References
    ----------
    Alexandridis et al. (2022), Long-tailed instance segmentation using Gumbel optimized loss.

    Examples
    --------
    >>> gumbel(torch.tensor([-1000.0, 0.0, 1000.0]))
    tensor([0.0000, 0.3679, 1.0000])
    """
    if not z.is_floating_point():
        raise TypeError(f"z has dtype {z.dtype}; allowed are floating dtypes")
    wide = z.to(torch.promote_types(z.dtype, torch.float32))
    # maximum, not clamp: it keeps NaN as NaN and hands the gradient 0 to what lies below.
    floor = torch.full((), -20.0, dtype=wide.dtype, device=wide.device)
    return torch.exp(-torch.exp(-torch.maximum(wide, floor))).to(z.dtype)


class Gumbel(nn.Module):
    """The Gumbel activation exp(−exp(−z)) as a module; see `gumbel`.

    Examples
    --------
    >>> Gumbel()(torch.zeros(1))
    tensor([0.3679])
    """

    def forward(self, z: Tensor) -> Tensor:
        """Apply the activation."""
        return gumbel(z)


class PReLU(nn.PReLU):
    """torch's PReLU with the exemption from weight decay that its authors use.

    Decay would pull the slope to zero, which is ReLU; the comparison would be with a handicapped PReLU.

    References
    ----------
    He et al. (2015), Delving deep into rectifiers, section 2.1: "we do not use weight decay when updating
    a_i".
    """

    no_weight_decay = ("weight",)


class MultiBias(nn.Module):
    r"""Multi-bias activation (MBA): K copies of every channel, each with a bias of its own, activated.

    .. math:: y_{kj} = \varphi(b_{kj} + z_j),\qquad k = 1, \dots, K

    Followed by a linear layer with K times the inputs, this is the paper's Eq. 3. All outputs of that layer see the
    same K biases of a channel, while each output of a :class:`companion.DACLinear` has its own.

    Parameters
    ----------
    channels : int
        C, the size of the input's dimension 1.
    copies : int
        K.
    activation : str or callable
        :math:`\varphi`, see :func:`companion.functional.dac_linear`.

    Attributes
    ----------
    bias : Parameter
        (K, C), 0.

    Raises
    ------
    TypeError
        If the activation is neither a name nor callable.
    ValueError
        If the activation's name is unknown, `channels` or `copies` is not positive, or the input has other channels.

    Shape
    -----
    Input (N, C, ...), output (N, K·C, ...): all channels with their first bias, then all with their second, and so on.
    Chapter: *DAC* (``book/mechanisms/dac``).

    References
    ----------
    Li et al. (2016), Multi-bias non-linear activation in deep neural networks. Metta et al. (2024), Increasing biases
    can be more efficient than increasing weights, Eq. 3.

    Examples
    --------
    >>> layer = MultiBias(16, 4)
    >>> layer(torch.randn(8, 16, 28, 28)).shape
    torch.Size([8, 64, 28, 28])
    """

    no_weight_decay = ("bias",)

    def __init__(self, channels: int, copies: int, activation: str | Callable[[Tensor], Tensor] = "relu") -> None:
        super().__init__()
        check_activation(activation)
        if min(channels, copies) < 1:
            raise ValueError(f"channels and copies are {channels} and {copies}; allowed are positive numbers")
        self.activation = activation
        self.bias = nn.Parameter(torch.zeros(copies, channels))

    def forward(self, z: Tensor) -> Tensor:
        """Copy, bias and activate."""
        copies, channels = self.bias.shape
        if z.ndim < 2 or z.shape[1] != channels:
            raise ValueError(f"z has shape {tuple(z.shape)}; allowed is (N, {channels}, ...)")
        phi = self.activation if callable(self.activation) else ACTIVATIONS[self.activation]
        # y_kj = φ(b_kj + z_j)
        bias = self.bias.to(z.dtype).reshape(copies, channels, *(1,) * (z.ndim - 2))
        return phi(bias + z.unsqueeze(1)).flatten(1, 2)

    def extra_repr(self) -> str:
        """Channels, copies and activation."""
        copies, channels = self.bias.shape
        return f"{channels}, copies={copies}, activation={self.activation!r}"
