"""What the papers compare with and torch lacks, or has in a form that would make the comparison unfair."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion.activations import ACTIVATIONS, check_elementwise
from companion.operators import (
    OfClasses,
    as_float,
    as_int,
    cast,
    check_dtype,
    check_floating,
    compute_dtype,
    overridable,
    where_else,
    without_autocast,
)

__all__ = [
    "GDN",
    "GEGLU",
    "GLU",
    "CentreLoss",
    "ExtraLinear",
    "GatedPair",
    "Gumbel",
    "Maxout",
    "MultiBias",
    "PReLU",
    "Preceded",
    "SwiGLU",
    "Swish",
    "gumbel",
    "normalisation",
]


@overridable
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
    check_floating("z", z)
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

    def forward(self, input: Tensor) -> Tensor:
        """Apply the activation, in the input's dtype."""
        return _prelu(input, self.weight)


@overridable
def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    return F.prelu(x, cast(weight, x.dtype))


class Swish(nn.Module):
    r"""SiLU with a slope that is learned, one for the layer.

    .. math:: y = x\,\sigma(\beta x)

    Parameters
    ----------
    device, dtype
        Of the parameters; torch's defaults, whatever the input's.

    Attributes
    ----------
    beta : Parameter
        :math:`\beta`, of shape (), 1 at the start: a new module is SiLU. Exempt from weight decay, which would pull it
        towards half of the identity.

    Raises
    ------
    TypeError
        If the input has no floating dtype.

    Shape
    -----
    Input of any shape and floating dtype, output the same; computed in float32 or better.

    Notes
    -----
    ``fully_shard``, FSDP2, refuses parameters without a dimension: give it β as one of its ``ignored_params``, and
    average its gradient over the processes yourself.

    References
    ----------
    Ramachandran, Zoph, Le (2017), Searching for activation functions, section 4.1.

    Examples
    --------
    >>> Swish()(torch.tensor([-1.0, 0.0, 1.0])).detach()
    tensor([-0.2689,  0.0000,  0.7311])
    """

    no_weight_decay = ("beta",)

    def __init__(self, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        check_dtype(dtype)
        self.beta = nn.Parameter(torch.ones((), device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Make it SiLU again."""
        nn.init.ones_(self.beta)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the activation."""
        return _swish(x, self.beta)


@overridable
def _swish(x: Tensor, beta: Tensor) -> Tensor:
    check_floating("x", x)
    dtype = compute_dtype(x.dtype)
    wide = cast(x, dtype)
    # y = x σ(βx)
    return cast(wide * torch.sigmoid(cast(beta, dtype) * wide), x.dtype)


@overridable
def _pairs(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The first and the second argument of all units: neighbours along a dimension."""
    check_floating("x", x)
    if not -x.ndim <= dim < x.ndim or x.shape[dim] % 2:
        raise ValueError(f"x: got shape {tuple(x.shape)}, allowed is one with two arguments a unit along dim={dim}")
    first, second = x.unflatten(dim, (-1, 2)).unbind(dim + 1 if dim >= 0 else dim)  # type: ignore[no-untyped-call]
    return first, second


class GatedPair(nn.Module):
    r"""A gated linear unit: of two arguments one is multiplied with what a gate makes of the other.

    .. math:: y_i = x_{2i}\,\varphi(x_{2i + 1})

    The two arguments of a unit are neighbours, as those of :class:`companion.MultiArgument`.

    Parameters
    ----------
    gate : callable
        :math:`\varphi`, elementwise.
    dim : int
        Where the units lie: −1 for tokens, 1 for images (N, C, H, W).

    Raises
    ------
    TypeError
        If `dim` is not an int, or the input has no floating dtype.
    ValueError
        If the input has an odd number of elements along ``dim``.

    Shape
    -----
    Input of floating dtype with two elements for each unit along ``dim``, output with one.

    References
    ----------
    Dauphin, Fan, Auli, Grangier (2017), Language modeling with gated convolutional networks, Eq. 1, for the sigmoid.
    Shazeer (2020), GLU variants improve transformer, Eq. 5.

    Examples
    --------
    >>> GatedPair(torch.sigmoid)(torch.tensor([[4.0, 0.0, 1.0, 100.0]]))
    tensor([[2., 1.]])
    """

    arity = 2

    def __init__(self, gate: Callable[[Tensor], Tensor], dim: int = -1) -> None:
        super().__init__()
        self.gate, self.dim = gate, as_int("dim", dim)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply."""
        value, gate = _pairs(x, self.dim)
        return value * self.gate(gate)

    def extra_repr(self) -> str:
        """Where the units lie."""
        return f"dim={self.dim}"


class GLU(GatedPair):
    """:class:`GatedPair` with the sigmoid; torch's own takes the arguments of a unit from the two halves.

    References
    ----------
    Dauphin, Fan, Auli, Grangier (2017), Language modeling with gated convolutional networks, Eq. 1.

    Examples
    --------
    >>> GLU()(torch.tensor([[2.0, 0.0]]))
    tensor([[1.]])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__(torch.sigmoid, dim)


class GEGLU(GatedPair):
    """:class:`GatedPair` with GELU.

    References
    ----------
    Shazeer (2020), GLU variants improve transformer, Eq. 5.

    Examples
    --------
    >>> GEGLU()(torch.tensor([[2.0, 1.0]]))
    tensor([[1.6827]])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__(F.gelu, dim)


class SwiGLU(GatedPair):
    """:class:`GatedPair` with SiLU.

    References
    ----------
    Shazeer (2020), GLU variants improve transformer, Eq. 5.

    Examples
    --------
    >>> SwiGLU()(torch.tensor([[2.0, 1.0]]))
    tensor([[1.4621]])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__(F.silu, dim)


class Maxout(nn.Module):
    r"""The larger of two arguments.

    .. math:: y_i = \max(x_{2i}, x_{2i + 1})

    Parameters, errors and shapes: see :class:`GatedPair`. Where both are equal, each has half of the slope.

    References
    ----------
    Goodfellow, Warde-Farley, Mirza, Courville, Bengio (2013), Maxout networks, section 3; here with two pieces.

    Examples
    --------
    >>> Maxout()(torch.tensor([[1.0, 3.0, 2.0, 0.0]]))
    tensor([[3., 2.]])
    """

    arity = 2

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = as_int("dim", dim)

    def forward(self, x: Tensor) -> Tensor:
        """Take the larger one."""
        first, second = _pairs(x, self.dim)
        return torch.maximum(first, second)

    def extra_repr(self) -> str:
        """Where the units lie."""
        return f"dim={self.dim}"


class Preceded(nn.Sequential):
    """Modules, one before the other, which print as one line: the last one first.

    Examples
    --------
    >>> Preceded(nn.Linear(2, 2), nn.ReLU())
    ReLU() of Linear(in_features=2, out_features=2, bias=True)
    """

    def __repr__(self) -> str:
        """Name all."""
        return " of ".join(map(repr, reversed(self)))


def normalisation(channels: int, dim: int = -1) -> nn.Module:
    r"""Return torch's normalisation over all units of an example, or of a token, without parameters.

    .. math:: n_i = \frac{y_i - \mu}{\sqrt{\sigma^2 + \alpha}},\qquad \alpha = 10^{-5}

    It is what LayerAct does to the argument of its gate, here done to what an activation sees.

    Parameters
    ----------
    channels : int
        How many units there are along `dim`.
    dim : int
        −1: of each token alone, so that none sees another. 1: of all channels and pixels.

    Returns
    -------
    nn.Module
        A LayerNorm, or a GroupNorm with one group.

    References
    ----------
    Ba, Kiros, Hinton (2016), Layer normalization, Eq. 3.

    Examples
    --------
    >>> normalisation(4)(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    tensor([[-1.3416, -0.4472,  0.4472,  1.3416]])
    """
    if dim == -1:
        return nn.LayerNorm(channels, elementwise_affine=False)
    return nn.GroupNorm(1, channels, affine=False)


class CentreLoss(OfClasses):
    r"""Centre loss: how far responses lie from the centre of their class, squared; the centres follow.

    .. math::
        \mathcal L = \frac1{2N} \sum_i \lVert \mathbf x_i - \mathbf c_{k_i} \rVert^2,\qquad
        \mathbf c_k \leftarrow \mathbf c_k - \alpha \frac{\sum_{i: k_i = k} (\mathbf c_k - \mathbf x_i)}{1 + n_k}

    where :math:`n_k` counts the responses of class k in the batch. It is what ARR is nearest to: ARR takes absolute
    values, moves a mean by every sample in turn, and acts on several layers.

    Parameters
    ----------
    num_classes : int
        K, at least 1.
    dim : int
        The length of a response, d, at least 1: a size, and no axis.
    rate : float
        :math:`\alpha`, from 0 to 1.

    Attributes
    ----------
    centres : Tensor
        (K, d) in float32, whatever the network's dtype, 0 at the start; a buffer. It moves in training mode and gets no
        gradient. A response that is not finite moves no centre.

    Raises
    ------
    TypeError
        If a number is not one, the input has no floating dtype, or the targets are not whole numbers.
    ValueError
        If a number is out of range, the input has another shape than (N, d) with targets (N,), or a target is not one
        of 0 … K − 1. The centres stay as they are then.
    RuntimeError
        If it is computed again during backward, in training mode.

    Notes
    -----
    The paper adds the sum over a batch to a sum of cross-entropies; here both are means. In a distributed training each
    process moves centres by its own batches. DistributedDataParallel gives all those of rank 0 before a forward pass,
    as it does with every buffer; with ``broadcast_buffers=False`` they differ.

    References
    ----------
    Wen, Zhang, Li, Qiao (2016), A discriminative feature learning approach for deep face recognition, Eqs. 2 to 4.

    Examples
    --------
    >>> loss = CentreLoss(num_classes=2, dim=2, rate=0.5)
    >>> loss(torch.tensor([[2.0, 0.0], [0.0, 4.0]]), torch.tensor([0, 1]))
    tensor(5.)
    >>> loss.centres
    tensor([[0.5000, 0.0000],
            [0.0000, 1.0000]])
    """

    points = "centres"
    centres: Tensor

    def __init__(self, num_classes: int, dim: int, rate: float = 0.5) -> None:
        super().__init__()
        classes, dim = as_int("num_classes", num_classes, minimum=1), as_int("dim", dim, minimum=1)
        self.rate = as_float("rate", rate)
        if not 0 <= self.rate <= 1:
            raise ValueError(f"rate: got {rate}, allowed is a number from 0 to 1")
        self.register_buffer("centres", torch.zeros(classes, dim, dtype=torch.float32))

    def reset_parameters(self) -> None:
        """Forget all centres."""
        self.centres.zero_()

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Take the loss; in training mode the centres move."""
        self._check(x, target)
        self._check_classes(target)
        target = target.long()
        with without_autocast(x.device.type):
            x = cast(x, compute_dtype(x.dtype))
            centres = cast(self.centres, x.dtype)
            loss = (x - centres[target]).square().sum(1).mean() / 2
            if self.training:
                with torch.no_grad():
                    finite = x.isfinite().all(1)
                    # (K, N): which response is of which class, of those that are finite
                    members = F.one_hot(target, len(centres)).T.to(x.dtype) * finite
                    counts = members.sum(1, keepdim=True)
                    sums = members @ torch.where(finite[:, None], x, 0)
                    self.centres -= cast(self.rate * (counts * centres - sums) / (1 + counts), self.centres.dtype)
        return loss

    def extra_repr(self) -> str:
        """Classes, length and rate."""
        classes, dim = self.centres.shape
        return f"{classes}, {dim}, rate={self.rate}"


class MultiBias(nn.Module):
    r"""Multi-bias activation (MBA): K copies of every channel, each with a bias of its own, activated.

    .. math:: y_{kj} = \varphi(b_{kj} + z_j),\qquad k = 1, \dots, K

    Followed by a linear layer with K times the inputs, this is the paper's Eq. 3. All outputs of that layer see the
    same K biases of a channel, while each output of a :class:`companion.DACLinear` has its own.

    Parameters
    ----------
    channels : int
        C, the size of the input's dimension `dim`.
    copies : int
        How many biases a channel has, and copies of it: K.
    activation : str or callable
        :math:`\varphi`, see :func:`companion.functional.dac_linear`.
    dim : int
        Where the channels lie: 1 for (N, C) and images, −1 for what a dense layer gives.
    device, dtype
        Of the parameters; torch's defaults, whatever the input's.

    Attributes
    ----------
    bias : Parameter
        (K, C), 0.

    Raises
    ------
    TypeError
        If the activation is neither a name nor callable, `channels` or `copies` is no int, or the input has no floating
        dtype.
    ValueError
        If the activation's name is unknown, `channels` or `copies` is not positive, or the input has other channels.

    Shape
    -----
    Input (N, C, ...), output (N, K·C, ...): all channels with their first bias, then all with their second, and so on.
    With ``dim=-1`` input (..., C), output (..., K·C).
    Chapter: *DAC* (``book/mechanisms/dac``).

    References
    ----------
    Li et al. (2016), Multi-bias non-linear activation in deep neural networks. Metta et al. (2024), Increasing biases
    can be more efficient than increasing weights, Eq. 3.

    Examples
    --------
    >>> import torch, companion
    >>> layer = companion.MultiBias(16, 4)
    >>> layer(torch.randn(8, 16, 28, 28)).shape
    torch.Size([8, 64, 28, 28])
    """

    no_weight_decay = ("bias",)

    def __init__(
        self,
        channels: int,
        copies: int,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        dim: int = 1,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_elementwise(activation)
        check_dtype(dtype)
        channels, copies = as_int("channels", channels, minimum=1), as_int("copies", copies, minimum=1)
        if dim not in (1, -1):
            raise ValueError(f"dim: got {dim!r}, allowed are 1 and -1")
        self.activation, self.dim = activation, dim
        self.bias = nn.Parameter(torch.zeros(copies, channels, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Make all biases 0."""
        nn.init.zeros_(self.bias)

    def forward(self, z: Tensor) -> Tensor:
        """Copy, bias and activate."""
        phi = self.activation if callable(self.activation) else ACTIVATIONS[self.activation]
        # y_kj = φ(b_kj + z_j)
        y = phi(_copied(z, self.bias, self.dim))
        return y.flatten(1, 2) if self.dim == 1 else y.flatten(-2)

    def extra_repr(self) -> str:
        """Channels, copies and activation, and where the channels lie if it is not dimension 1."""
        copies, channels = self.bias.shape
        return f"{channels}, copies={copies}, activation={self.activation!r}" + ", dim=-1" * (self.dim == -1)


@overridable
def _copied(z: Tensor, bias: Tensor, dim: int) -> Tensor:
    """Each channel with each of its biases."""
    check_floating("z", z)
    copies, channels = bias.shape
    if z.ndim < max(1, 1 + dim) or z.shape[dim] != channels:
        allowed = f"(N, {channels}, ...)" if dim == 1 else f"(..., {channels})"
        raise ValueError(f"z: got shape {tuple(z.shape)}, allowed is {allowed}")
    place = dim % z.ndim
    return bias.to(z.dtype).reshape(copies, channels, *(1,) * (z.ndim - 1 - place)) + z.unsqueeze(place)


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
    device, dtype
        Of the parameters; torch's defaults, whatever the input's.

    Attributes
    ----------
    weight : Parameter
        :math:`\mathbf w`, (d,), zero at the start.
    bias : Parameter
        :math:`b`, (1,), zero at the start: a new layer passes on what it is given.

    Raises
    ------
    TypeError
        If `channels` or `dim` is not an int, or the input has no floating dtype.
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

    def __init__(
        self,
        channels: int,
        dim: int = -1,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        channels = as_int("channels", channels, minimum=1)
        check_dtype(dtype)
        self.dim = as_int("dim", dim)
        self.weight = nn.Parameter(torch.zeros(channels, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(1, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Make it pass on what it is given."""
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Add the number to all elements."""
        return _extra_linear(x, self.weight, self.bias, self.dim)

    def extra_repr(self) -> str:
        """Channels and where they lie."""
        return f"{len(self.weight)}, dim={self.dim}"


@overridable
def _extra_linear(x: Tensor, weight: Tensor, bias: Tensor, dim: int) -> Tensor:
    _check_channels(x, len(weight), dim)
    # wᵀx + b, one for each vector
    offset = F.linear(x.movedim(dim, -1), cast(weight, x.dtype)[None], cast(bias, x.dtype))
    return x + cast(offset.movedim(-1, dim), x.dtype)


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
    device, dtype
        Of the parameters; torch's defaults, whatever the input's.

    Attributes
    ----------
    beta : Parameter
        :math:`\beta`, (d,), 1 at the start. Exempt from weight decay, as is ``gamma``.
    gamma : Parameter
        :math:`\gamma`, (d, d), a tenth of the identity at the start.

    Raises
    ------
    TypeError
        If `channels` or `dim` is not an int, or the input has no floating dtype.
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
    >>> import torch, companion
    >>> layer = companion.GDN(16, dim=1)
    >>> layer(torch.randn(8, 16, 5, 5)).shape
    torch.Size([8, 16, 5, 5])
    """

    no_weight_decay = ("beta", "gamma")

    def __init__(
        self,
        channels: int,
        dim: int = -1,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        channels = as_int("channels", channels, minimum=1)
        check_dtype(dtype)
        self.dim = as_int("dim", dim)
        self.beta = nn.Parameter(torch.empty(channels, device=device, dtype=dtype))
        self.gamma = nn.Parameter(torch.empty(channels, channels, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Begin again: β is 1, γ a tenth of the identity."""
        with torch.no_grad():
            self.beta.fill_(1)
            self.gamma.zero_().fill_diagonal_(0.1)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise."""
        return _gdn(x, self.beta, self.gamma, self.dim)

    def extra_repr(self) -> str:
        """Channels and where they lie."""
        return f"{len(self.beta)}, dim={self.dim}"


@overridable
def _gdn(x: Tensor, beta: Tensor, gamma: Tensor, dim: int) -> Tensor:
    _check_channels(x, len(beta), dim)
    dtype = compute_dtype(x.dtype)
    beta, gamma = _AtLeast.apply(cast(beta, dtype), 1e-6), _AtLeast.apply(cast(gamma, dtype), 0.0)
    wide = cast(x, dtype).movedim(dim, -1)
    with without_autocast(x.device.type):
        # y_i = x_i / √(β_i + Σ_j γ_ij x_j²)
        y = wide * F.linear(wide.square(), gamma, beta).rsqrt()
    return cast(y.movedim(-1, dim), x.dtype)


def _check_channels(x: Tensor, channels: int, dim: int) -> None:
    check_floating("x", x)
    if not -x.ndim <= dim < x.ndim or x.shape[dim] != channels:
        raise ValueError(
            f"x: got shape {tuple(x.shape)}, allowed is one with {channels} channels along dim={dim}"
            f"{where_else(channels, x)}"
        )
