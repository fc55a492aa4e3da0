"""Modules: LayerAct, LA-SiLU and LA-HardSiLU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from companion.layeract.op import SCALES, check_alpha, check_dims, layer_act
from companion.operators import check_flag, refuse_script


class LayerAct(nn.Module):
    r"""Every element times a gate that sees the element normalised within its layer.

    .. math:: a_i = y_i\,s(n_i),\qquad n_i = \frac{y_i - \mu}{\sqrt{\sigma^2 + \alpha}}

    Training and evaluation are alike: the statistics are those of each sample itself. There is nothing to learn, and
    nothing in the state dict: like the ε of torch's normalisations, :math:`\alpha` is a setting of the module.

    Parameters
    ----------
    scale : {"sigmoid", "hardsigmoid"}
        The gate :math:`s`.
    alpha : float
        Added to the variance, > 0.
    dims : int or sequence of int, optional
        The dimensions that are normalised together; None: all but the first. For a sequence of tokens give ``dims=-1``:
        otherwise every token's gate sees the tokens after it. For an image without a batch, as in torch.func.vmap, give
        ``dims=(-3, -2, -1)``.
    unbiased : bool
        Divide the sum of squares by d − 1 (as the published code does) instead of d (as the paper writes).
    inplace : bool
        Accepted where networks give it to every activation, and without effect.

    Attributes
    ----------
    alpha : float
        May be set.

    Raises
    ------
    TypeError
        If ``alpha`` is no number, one of ``dims`` no int, or ``unbiased`` no bool.
    ValueError
        If ``scale`` is unknown or ``alpha`` not positive; for ``dims`` see :func:`companion.functional.layer_act`.

    Shape
    -----
    Input (N, ...) of floating dtype, output the same. Chapter: *LayerAct* (``book/mechanisms/layeract``).

    References
    ----------
    Yoon, Lim (2023), Layer-level activation mechanism, Eq. 6.

    Examples
    --------
    >>> import torch, companion
    >>> layer = companion.LayerAct("hardsigmoid", alpha=0.1)
    >>> layer(torch.randn(8, 16, 5, 5)).shape
    torch.Size([8, 16, 5, 5])
    """

    __prepare_scriptable__ = refuse_script

    def __init__(
        self,
        scale: str = "sigmoid",
        alpha: float = 1e-5,
        dims: int | Sequence[int] | None = None,
        unbiased: bool = False,
        *,
        inplace: bool = False,
    ) -> None:
        super().__init__()
        if scale not in SCALES:
            raise ValueError(f"scale: got {scale!r}, allowed are {', '.join(map(repr, SCALES))}")
        self.scale = scale
        self.alpha = check_alpha(alpha)
        given = check_dims(dims)
        self.dims = given[0] if given is not None and not isinstance(dims, Iterable) else given
        check_flag("unbiased", unbiased)
        self.unbiased = unbiased

    def forward(self, y: Tensor) -> Tensor:
        return layer_act(y, self.scale, self.alpha, self.dims, self.unbiased)

    def extra_repr(self) -> str:
        return f"scale={self.scale!r}, alpha={self.alpha:g}, dims={self.dims}, unbiased={self.unbiased}"


class LASiLU(LayerAct):
    r"""LA-SiLU: :class:`LayerAct` with the sigmoid.

    .. math:: a_i = \frac{y_i}{1 + e^{-n_i}},\qquad n_i = \frac{y_i - \mu}{\sqrt{\sigma^2 + \alpha}}

    Parameters, attributes and errors: see :class:`LayerAct`.

    References
    ----------
    Yoon, Lim (2023), Layer-level activation mechanism, Section 3.1.

    Examples
    --------
    >>> import torch, companion
    >>> companion.LASiLU()(torch.tensor([[-1.0, 0.0, 1.0]]))
    tensor([[-0.2271,  0.0000,  0.7729]])
    """

    def __init__(
        self,
        alpha: float = 1e-5,
        dims: int | Sequence[int] | None = None,
        unbiased: bool = False,
        *,
        inplace: bool = False,
    ) -> None:
        super().__init__("sigmoid", alpha, dims, unbiased)


class LAHardSiLU(LayerAct):
    r"""LA-HardSiLU: :class:`LayerAct` with the hard sigmoid.

    .. math:: a_i = y_i \min(\max(n_i/6 + 1/2,\,0),\,1),\qquad n_i = \frac{y_i - \mu}{\sqrt{\sigma^2 + \alpha}}

    Parameters, attributes and errors: see :class:`LayerAct`.

    References
    ----------
    Yoon, Lim (2023), Layer-level activation mechanism, Section 3.1.

    Examples
    --------
    >>> import torch, companion
    >>> companion.LAHardSiLU()(torch.tensor([[-1.0, 0.0, 1.0]]))
    tensor([[-0.2959,  0.0000,  0.7041]])
    """

    def __init__(
        self,
        alpha: float = 1e-5,
        dims: int | Sequence[int] | None = None,
        unbiased: bool = False,
        *,
        inplace: bool = False,
    ) -> None:
        super().__init__("hardsigmoid", alpha, dims, unbiased)
