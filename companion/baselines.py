"""What the papers compare with and torch lacks, or has in a form that would make the comparison unfair."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion.activations import ACTIVATIONS, check_elementwise
from companion.operators import as_int, cast, check_floating, compute_dtype, where_else, without_autocast

__all__ = ["GDN", "ExtraLinear", "Gumbel", "MultiBias", "PReLU", "gumbel"]


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
        check_elementwise(activation)
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


class ExtraLinear(nn.Module):
    r"""A linear layer with as few parameters as RAA: one number, linear in the vector, is added to all its elements.

    .. math:: \mathbf y = \mathbf x + (\mathbf w^{\mathsf T}\mathbf x + b)\,\mathbf 1

    The paper compares RAA with "a pure extra layer of linearity with the same number of parameters" before ReLU or
    GELU, and does not say which. This is our reading: RAA's offset, with its d + 1 parameters and its start at zero,
    moves the whole signal instead of the gate alone.

    Parameters
    ----------
    channels : int
        d, the elements of a vector, at least 1.
    dim : int
        Where the elements of a vector lie: −1 for tokens, 1 for images (N, C, H, W).

    Attributes
    ----------
    weight : Parameter
        :math:`\mathbf w`, (d,), zero at the start.
    bias : Parameter
        :math:`b`, (1,), zero at the start: a new layer passes on what it is given.

    Raises
    ------
    TypeError
        If `channels` or `dim` is no int, or the input has no floating dtype.
    ValueError
        If there is no channel, or the input has another number of them.

    Shape
    -----
    Input of floating dtype with d elements along ``dim``, output the same.

    References
    ----------
    Qiu et al. (2024), Dynamic Neural Response Tuning, Table 8.

    Examples
    --------
    >>> import companion
    >>> network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> def extra(channels, dim):
    ...     return nn.Sequential(ExtraLinear(channels, dim), nn.ReLU())
    >>> companion.replace_activations(network, {"relu": extra}, example=(8,))[1][0]
    ExtraLinear(16, dim=-1)
    """

    def __init__(self, channels: int, dim: int = -1) -> None:
        super().__init__()
        self.dim = as_int("dim", dim)
        self.weight = nn.Parameter(torch.zeros(as_int("channels", channels, minimum=1)))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Add the number to all elements."""
        _check_channels(x, len(self.weight), self.dim)
        # wᵀx + b, one for each vector
        offset = F.linear(x.movedim(self.dim, -1), cast(self.weight, x.dtype)[None], cast(self.bias, x.dtype))
        return x + cast(offset.movedim(-1, self.dim), x.dtype)

    def extra_repr(self) -> str:
        """Channels and where they lie."""
        return f"{len(self.weight)}, dim={self.dim}"


class _AtLeast(torch.autograd.Function):
    """max(p, floor), with a gradient that can bring p back from below: only what would push it further down is cut."""

    generate_vmap_rule = True

    @staticmethod
    def forward(p: Tensor, floor: float) -> Tensor:
        return p.clamp(min=floor)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        p, floor = inputs
        ctx.save_for_backward(p)
        ctx.floor = floor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (p,) = ctx.saved_tensors
        # descent goes against the gradient: a negative one lifts p
        return grad * ((p >= ctx.floor) | (grad < 0)), None


class GDN(nn.Module):
    r"""Generalised divisive normalisation: each element is divided by a length of the vector that it learns to measure.

    .. math:: y_i = \frac{x_i}{\sqrt{\beta_i + \sum_j \gamma_{ij} x_j^2}}

    Parameters
    ----------
    channels : int
        d, the elements of a vector, at least 1. The layer has d² + d parameters: used as an activation in wide layers,
        it can be larger than the network around it.
    dim : int
        Where the elements of a vector lie: −1 for tokens, 1 for images (N, C, H, W).

    Attributes
    ----------
    beta : Parameter
        :math:`\beta`, (d,), 1 at the start. Exempt from weight decay, as is ``gamma``.
    gamma : Parameter
        :math:`\gamma`, (d, d), a tenth of the identity at the start.

    Raises
    ------
    TypeError
        If `channels` or `dim` is no int, or the input has no floating dtype.
    ValueError
        If there is no channel, or the input has another number of them.

    Shape
    -----
    Input of floating dtype with d elements along ``dim``, output the same; computed in float32 or better.

    Notes
    -----
    What is used is max(β, 10⁻⁶) and max(γ, 0), so the root exists whatever an optimiser does. The gradient is the true
    one above the bound; below it, only what would push further down is cut, so no parameter stays there for ever. The
    code of GDN's authors has this gradient too, but learns the roots of β and γ: off the diagonal, where γ starts at 0,
    the slope of the square is all but 0. Forward-mode derivatives are not supported.

    References
    ----------
    Ballé, Laparra, Simoncelli (2016), Density modeling of images using a generalized normalization transformation;
    here without its linear map, and with its exponents fixed at 2 and ½. Qiu et al. (2024), Dynamic Neural Response
    Tuning, compare with it; how they start it and keep it positive is not said.

    Examples
    --------
    >>> import companion
    >>> layer = companion.GDN(16, dim=1)
    >>> layer(torch.randn(8, 16, 5, 5)).shape
    torch.Size([8, 16, 5, 5])
    """

    no_weight_decay = ("beta", "gamma")

    def __init__(self, channels: int, dim: int = -1) -> None:
        super().__init__()
        channels = as_int("channels", channels, minimum=1)
        self.dim = as_int("dim", dim)
        self.beta = nn.Parameter(torch.ones(channels))
        self.gamma = nn.Parameter(0.1 * torch.eye(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise."""
        _check_channels(x, len(self.beta), self.dim)
        dtype = compute_dtype(x.dtype)
        beta, gamma = _AtLeast.apply(cast(self.beta, dtype), 1e-6), _AtLeast.apply(cast(self.gamma, dtype), 0.0)
        wide = cast(x, dtype).movedim(self.dim, -1)
        with without_autocast(x.device.type):
            # y_i = x_i / √(β_i + Σ_j γ_ij x_j²)
            y = wide * F.linear(wide.square(), gamma, beta).rsqrt()
        return cast(y.movedim(-1, self.dim), x.dtype)

    def extra_repr(self) -> str:
        """Channels and where they lie."""
        return f"{len(self.beta)}, dim={self.dim}"


def _check_channels(x: Tensor, channels: int, dim: int) -> None:
    check_floating("x", x)
    if not -x.ndim <= dim < x.ndim or x.shape[dim] != channels:
        raise ValueError(
            f"x: got shape {tuple(x.shape)}, allowed is one with {channels} channels along dim={dim}"
            f"{where_else(channels, x)}"
        )
