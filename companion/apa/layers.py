"""Modules: APA, AGLU, and attention whose gate is an APA."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion.apa.op import aglu, apa
from companion.baselines import Gumbel
from companion.operators import as_float, as_int, check_dtype, check_floating, overridable, refuse_script

#: Initialisations by name: ((κ low, κ high), (λ low, λ high)) of two uniform distributions.
INITIALISATIONS: Final[dict[str, tuple[tuple[float, float], tuple[float, float]]]] = {
    # Appendix C-A: "in all other experiments" (generation, ImageNet21K, VLM, GPT)
    "near_one": ((0.8, 1.2), (0.8, 1.2)),
    # Table XV: AGLU, ImageNet-LT, iNaturalist18, CIFAR100-LT, ImageNet1K
    "aglu": ((1.0, 1.3), (0.0, 1.0)),
    # Table XV: APA in attention, iNaturalist18, ImageNet1K
    "apa_balanced": ((0.0, 1.0), (0.0, 1.0)),
    # Table XV and XVII: APA in attention, ImageNet-LT and CIFAR100-LT
    "apa_long_tailed": ((-1.0, 0.0), (0.0, 1.0)),
    # Section IV-A: the members of the family that have names
    "sigmoid": ((1.0, 1.0), (1.0, 1.0)),
    "silu": ((1.0, 1.0), (1.0, 1.0)),
    "gelu": ((1.702, 1.702), (1.0, 1.0)),
}

#: Drawn values of λ are kept at or above it: at 0 the inverse of softplus is −∞.
SMALLEST_INITIAL_LAM: Final = 1e-3


def inverse_softplus(lam: Tensor) -> Tensor:
    """The raw parameter whose softplus is λ."""
    return lam + torch.log(-torch.expm1(-lam))


def _checked_init(init: Any) -> str | tuple[float, float]:
    """A known name, or two numbers."""
    if isinstance(init, str):
        if init not in INITIALISATIONS:
            raise ValueError(f"init: got {init!r}, allowed are {', '.join(INITIALISATIONS)} or (kappa, lam)")
        return init
    if not isinstance(init, Sequence) or len(init) != 2:
        raise TypeError(f"init: got {init!r}, allowed are {', '.join(INITIALISATIONS)} or two numbers, (kappa, lam)")
    kappa, lam = (as_float("init", value) for value in init)
    if not math.isfinite(kappa):
        raise ValueError(f"init: got kappa = {kappa!r}, allowed is a finite number")
    if not 0 < lam < math.inf:
        raise ValueError(f"init: got lam = {lam!r}, allowed is a number > 0")
    return kappa, lam


class _Adaptive(nn.Module):
    """κ and λ as learnable parameters; what APA and AGLU share."""

    #: Parameters that optimisers should not decay, as the paper does (Appendix B).
    no_weight_decay = ("kappa", "raw_lam")

    num_parameters: int
    dim: int
    __prepare_scriptable__ = refuse_script

    def __init__(
        self,
        num_parameters: int = 1,
        dim: int = 1,
        init: str | tuple[float, float] = "near_one",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        inplace: bool = False,
    ) -> None:
        super().__init__()
        check_dtype(dtype)
        self.num_parameters = as_int("num_parameters", num_parameters, minimum=1)
        self.dim = as_int("dim", dim)
        self.init = _checked_init(init)
        shape = () if num_parameters == 1 else (num_parameters,)
        self.kappa = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.raw_lam = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw κ and λ anew from the initialisation named at construction.

        On the CPU: a seed gives the same numbers on every device, and Apple's GPUs have no float64.
        """
        if isinstance(self.init, str):
            kappa_range, lam_range = INITIALISATIONS[self.init]
        else:
            kappa_range, lam_range = (self.init[0],) * 2, (self.init[1],) * 2
        with torch.no_grad():
            shape, dtype = self.kappa.shape, self.kappa.dtype
            self.kappa.copy_(torch.empty(shape, dtype=dtype, device="cpu").uniform_(*kappa_range))
            lam = torch.empty(shape, dtype=torch.float64, device="cpu").uniform_(*lam_range)
            if isinstance(self.init, str):
                lam.clamp_(min=SMALLEST_INITIAL_LAM)
            self.raw_lam.copy_(inverse_softplus(lam).to(dtype))

    @property
    def lam(self) -> Tensor:
        """λ = softplus(raw_lam): positive, and with a gradient that nowhere vanishes."""
        return F.softplus(self.raw_lam)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}, dim={self.dim}, init={self.init!r}"


class APA(_Adaptive):
    r"""Adaptive parametric activation with learnable κ and λ, between 0 and 1; stands where a sigmoid stood.

    .. math:: \eta(z) = (1 + \lambda e^{-\kappa z})^{-1/\lambda},\quad \lambda = \operatorname{softplus}(\rho)

    Parameters
    ----------
    num_parameters : int
        1: one κ and one λ, shared by all channels (the paper's choice). Otherwise the number of channels.
    dim : int
        The dimension along which channels lie, for per-channel parameters: 1 for (N, C) and images, −1 for tokens.
    init : str or (float, float)
        ``"near_one"`` (κ, λ ~ U(0.8, 1.2)), ``"aglu"`` (κ ~ U(1, 1.3), λ ~ U(0, 1)), ``"apa_balanced"`` (both U(0, 1)),
        ``"apa_long_tailed"`` (κ ~ U(−1, 0), λ ~ U(0, 1)), ``"sigmoid"``, ``"silu"`` (κ = λ = 1), ``"gelu"``
        (κ = 1.702, λ = 1), or the two numbers. Drawn values of λ are at least 1e-3.
    device, dtype
        Of the parameters; torch's defaults, whatever the input's.
    inplace : bool
        Accepted where networks give it to every activation, and without effect.

    Attributes
    ----------
    kappa : Parameter
        κ, shape () or (num_parameters,).
    raw_lam : Parameter
        ρ with λ = softplus(ρ); the property ``lam`` gives λ.

    Raises
    ------
    TypeError
        If a number is not one, ``init`` neither a name nor two numbers, or ``dtype`` is not floating.
    ValueError
        If ``init`` is unknown, its λ is not positive, or ``num_parameters`` is below 1.

    Notes
    -----
    Input of any shape; output of the same shape and dtype. The paper trains κ and λ without weight decay:
    :func:`companion.parameter_groups` builds the optimiser's groups.
    ``fully_shard``, FSDP2, refuses parameters without a dimension: give it κ and ρ as ``ignored_params``, and average
    their gradients over the processes yourself; or take one pair per channel.
    Chapter: *APA and AGLU*, equation ``eq-apa-eta``.

    References
    ----------
    Alexandridis, Deng, Nguyen, Luo (2025), Adaptive Parametric Activation, Eq. 5, Tables XV–XVIII.

    Examples
    --------
    >>> import torch, companion
    >>> gate = companion.APA(init=(1.0, 1.0))
    >>> gate(torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """

    def forward(self, z: Tensor) -> Tensor:
        return apa(z, self.kappa, self.lam, self.dim)


class AGLU(_Adaptive):
    r"""Adaptive generalised linear unit with learnable κ and λ; stands where ReLU or GELU stood.

    .. math:: \operatorname{AGLU}(z) = z\,(1 + \lambda e^{-\kappa z})^{-1/\lambda},\quad
        \lambda = \operatorname{softplus}(\rho)

    Parameters
    ----------
    num_parameters : int
        1: one κ and one λ, shared by all channels (the paper's choice). Otherwise the number of channels.
    dim : int
        The dimension along which channels lie, for per-channel parameters: 1 for (N, C) and images, −1 for tokens.
    init : str or (float, float)
        ``"near_one"``, drawn as the paper draws for generators and language models; ``"aglu"``, as for classifiers;
        ``"silu"`` and ``"gelu"``, not drawn; any other name of :class:`APA`; or the two numbers κ and λ.
    device, dtype
        Of the parameters; torch's defaults, whatever the input's.
    inplace : bool
        Accepted where networks give it to every activation, and without effect.

    Attributes
    ----------
    kappa : Parameter
        κ, shape () or (num_parameters,).
    raw_lam : Parameter
        ρ with λ = softplus(ρ); the property ``lam`` gives λ.

    Raises
    ------
    TypeError
        If a number is not one, ``init`` neither a name nor two numbers, or ``dtype`` is not floating.
    ValueError
        If ``init`` is unknown, its λ is not positive, or ``num_parameters`` is below 1.

    Notes
    -----
    Input of any shape; output of the same shape and dtype. The paper trains κ and λ without weight decay:
    :func:`companion.parameter_groups` builds the optimiser's groups.
    ``fully_shard``, FSDP2, refuses parameters without a dimension: give it κ and ρ as ``ignored_params``, and average
    their gradients over the processes yourself; or take one pair per channel.
    Chapter: *APA and AGLU*, equation ``eq-apa-aglu``.

    References
    ----------
    Alexandridis, Deng, Nguyen, Luo (2025), Adaptive Parametric Activation, Eq. 6, Tables XV–XVIII.

    Examples
    --------
    >>> import torch, companion
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 16), companion.AGLU(init="silu"), torch.nn.Linear(16, 2))
    >>> model(torch.zeros(4, 8)).shape
    torch.Size([4, 2])
    """

    def forward(self, z: Tensor) -> Tensor:
        return aglu(z, self.kappa, self.lam, self.dim)


#: What an attention's gate may be: a name, or a factory of modules.
Gate = str | Callable[[], nn.Module]

_GATES: Final[dict[str, Callable[[], nn.Module]]] = {
    "sigmoid": nn.Sigmoid,
    "gumbel": Gumbel,
    "apa": lambda: APA(init="apa_balanced"),
}


def _make_gate(gate: Gate) -> nn.Module:
    if isinstance(gate, str):
        if gate not in _GATES:
            raise ValueError(f"gate: got {gate!r}, allowed are {', '.join(map(repr, _GATES))} or a factory")
        return _GATES[gate]()
    made = gate() if callable(gate) and not isinstance(gate, nn.Module) else None
    if not isinstance(made, nn.Module):
        raise TypeError(f"gate: got {gate!r}, allowed are {', '.join(map(repr, _GATES))} or a factory of a module")
    return made


class ChannelAttention(nn.Module):
    r"""Squeeze and excite: every channel is multiplied by a number that the mean of all channels decides.

    .. math:: X'_{nc} = A_{nc} X_{nc},\quad A_n = \eta(W_2\,\max(0, W_1 \bar X_n + b_1) + b_2)

    where :math:`\bar X_{nc}` is the mean over the positions. The gate η is the sigmoid, the Gumbel curve, or APA.

    Parameters
    ----------
    channels : int
        Channels of the input.
    reduction : int
        The hidden layer has ``max(channels // reduction, 1)`` units.
    gate : {"sigmoid", "gumbel", "apa"} or callable
        The gate, or a factory of a module.
    layer_norm : bool
        Normalise the excitation (over the channels, before the gate).
    dropout : float
        Probability of dropping a hidden unit's value.
    device, dtype
        Of the parameters; torch's defaults, whatever the input's.

    Raises
    ------
    ValueError
        If ``gate`` is unknown, a number too small, or the input has another number of channels.

    Notes
    -----
    Input (N, C) or (N, C, *positions), output of the same shape. Chapter: *APA and AGLU*.
    The paper does not say where LayerNorm and dropout stand; here LayerNorm acts on the last linear layer's
    output and dropout on the hidden units.

    References
    ----------
    Hu, Shen, Sun (2018), Squeeze-and-Excitation Networks. Alexandridis et al. (2025), sections III-B and V-B.

    Examples
    --------
    >>> import torch, companion
    >>> attention = companion.ChannelAttention.apa_star(32)
    >>> attention(torch.randn(4, 32, 8, 8)).shape
    torch.Size([4, 32, 8, 8])
    """

    __prepare_scriptable__ = refuse_script

    def __init__(
        self,
        channels: int,
        reduction: int = 16,
        gate: Gate = "sigmoid",
        layer_norm: bool = False,
        dropout: float = 0.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_dtype(dtype)
        place: Any = {"device": device, "dtype": dtype}
        channels = as_int("channels", channels, minimum=1)
        hidden = max(channels // as_int("reduction", reduction, minimum=1), 1)
        self.channels = channels
        self.reduce = nn.Linear(channels, hidden, **place)
        self.expand = nn.Linear(hidden, channels, **place)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(channels, **place) if layer_norm else nn.Identity()
        self.gate = _make_gate(gate).to(**place)

    @classmethod
    def apa_star(cls, channels: int, reduction: int = 16, init: str = "apa_balanced") -> ChannelAttention:
        """The paper's APA*: APA as the gate, LayerNorm, and dropout of 0.1 (section V-B)."""
        return cls(channels, reduction, gate=lambda: APA(init=init), layer_norm=True, dropout=0.1)

    def attention(self, x: Tensor) -> Tensor:
        """The weights A, shape (N, C)."""
        hidden = self.dropout(torch.relu(self.reduce(_mean_over_positions(x, self.channels))))
        weights: Tensor = self.gate(self.norm(self.expand(hidden)))
        return weights

    def forward(self, x: Tensor) -> Tensor:
        return _weighted(x, self.attention(x))


@overridable
def _mean_over_positions(x: Tensor, channels: int) -> Tensor:
    """(N, C) of (N, C, *positions)."""
    check_floating("x", x)
    if x.ndim < 2 or x.shape[1] != channels:
        raise ValueError(f"x: got shape {tuple(x.shape)}, allowed is (N, {channels}, ...)")
    return x.flatten(2).mean(2) if x.ndim > 2 else x


@overridable
def _weighted(x: Tensor, weights: Tensor) -> Tensor:
    """Each channel, multiplied by its weight."""
    return x * weights.reshape(*weights.shape, *(1,) * (x.ndim - 2))


class SpatialAttention(nn.Module):
    r"""Every position is multiplied by a number that its channels' mean and maximum decide.

    .. math:: X' = A \otimes X,\quad A = \eta(\operatorname{conv}([\operatorname{mean}_c X, \max_c X]))

    Parameters
    ----------
    kernel_size : int
        Of the convolution; odd.
    gate : {"sigmoid", "gumbel", "apa"} or callable
        The gate, or a factory of a module.
    device, dtype
        Of the parameters; torch's defaults, whatever the input's.

    Raises
    ------
    ValueError
        If ``gate`` is unknown, ``kernel_size`` is even, or the input has other dimensions.

    Notes
    -----
    Input and output (N, C, H, W). Chapter: *APA and AGLU*.

    References
    ----------
    Woo, Park, Lee, Kweon (2018), CBAM. Alexandridis et al. (2025), Table IV-b.

    Examples
    --------
    >>> import torch, companion
    >>> companion.SpatialAttention(gate="apa")(torch.randn(2, 8, 5, 5)).shape
    torch.Size([2, 8, 5, 5])
    """

    __prepare_scriptable__ = refuse_script

    def __init__(
        self,
        kernel_size: int = 7,
        gate: Gate = "sigmoid",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_dtype(dtype)
        place: Any = {"device": device, "dtype": dtype}
        if as_int("kernel_size", kernel_size, minimum=1) % 2 == 0:
            raise ValueError(f"kernel_size: got {kernel_size}, allowed is an odd number")
        self.conv = nn.Conv2d(2, 1, kernel_size, padding=kernel_size // 2, **place)
        self.gate = _make_gate(gate).to(**place)

    def attention(self, x: Tensor) -> Tensor:
        """The weights A, shape (N, 1, H, W)."""
        weights: Tensor = self.gate(self.conv(_mean_and_maximum(x)))
        return weights

    def forward(self, x: Tensor) -> Tensor:
        return x * self.attention(x)


@overridable
def _mean_and_maximum(x: Tensor) -> Tensor:
    """(N, 2, H, W), over the channels."""
    check_floating("x", x)
    if x.ndim != 4:
        raise ValueError(f"x: got shape {tuple(x.shape)}, allowed is (N, C, H, W)")
    return torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)


class SpatialChannelAttention(nn.Module):
    """Channel attention, then spatial attention (the order of CBAM), each with a gate of its own.

    Parameters
    ----------
    channels, reduction, kernel_size, gate, device, dtype
        As in :class:`ChannelAttention` and :class:`SpatialAttention`.

    Notes
    -----
    Input and output (N, C, H, W). CBAM's channel attention also reads the maximum over the positions; the paper
    describes channel attention by the mean alone, and so is it here. Chapter: *APA and AGLU*.

    References
    ----------
    Woo, Park, Lee, Kweon (2018), CBAM. Alexandridis et al. (2025), Table IV-b.

    Examples
    --------
    >>> import torch, companion
    >>> companion.SpatialChannelAttention(8, gate="apa")(torch.randn(2, 8, 5, 5)).shape
    torch.Size([2, 8, 5, 5])
    """

    def __init__(
        self,
        channels: int,
        reduction: int = 16,
        kernel_size: int = 7,
        gate: Gate = "sigmoid",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.channel = ChannelAttention(channels, reduction, gate, device=device, dtype=dtype)
        self.spatial = SpatialAttention(kernel_size, gate, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        y: Any = self.spatial(self.channel(x))
        return y  # type: ignore[no-any-return]
