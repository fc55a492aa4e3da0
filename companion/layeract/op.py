"""The public functions ``layer_act``, ``la_silu``, ``la_hardsilu``: their checks, their autograd, who computes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from companion.layeract import kernel, reference
from companion.operators import (
    as_float,
    as_int,
    cast,
    check_flag,
    check_floating,
    choose,
    compute_dtype,
    differentiable,
    on_cpu,
    overridable,
    transformed,
)

SCALES = ("sigmoid", "hardsigmoid")


@overridable
def layer_act(
    y: Tensor,
    scale: str = "sigmoid",
    alpha: float = 1e-5,
    dims: int | Sequence[int] | None = None,
    unbiased: bool = False,
) -> Tensor:
    r"""Layer-level activation: every element times a gate that sees the element normalised within its layer.

    .. math:: a_i = y_i\,s(n_i),\qquad n_i = \frac{y_i - \mu}{\sqrt{\sigma^2 + \alpha}}

    :math:`\mu` and :math:`\sigma^2` are the mean and the variance over ``dims``, separately for each sample.

    Parameters
    ----------
    y : Tensor
        Input of any shape with at least one dimension, any device and floating dtype.
    scale : {"sigmoid", "hardsigmoid"}
        The gate :math:`s`: :math:`1/(1 + e^{-n})`, or :math:`\min(\max(n/6 + 1/2, 0), 1)`.
    alpha : float
        Added to the variance, > 0. The paper uses 1e-5 on CIFAR and 0.1 on ImageNet.
    dims : int or sequence of int, optional
        The dimensions that are normalised together. None: all but the first, as published; of a 1-D input, all.
        For a sequence of tokens give ``dims=-1``: otherwise every token's gate sees the tokens after it.
    unbiased : bool
        Divide the sum of squares by d − 1 (as the published code does) instead of d (as the paper writes).

    Returns
    -------
    Tensor
        Shape and dtype of ``y``. float16 and bfloat16 are computed in float32. A NaN or an infinity makes its own row
        NaN, and no other; so do deviations whose squares have an infinite sum: in float32 from about 1e19/√d on.

    Raises
    ------
    TypeError
        If ``y`` has no floating dtype, ``alpha`` is no number, one of ``dims`` no int, or ``unbiased`` no bool.
    ValueError
        If ``alpha`` is not positive, ``scale`` is unknown, ``dims`` is empty, out of range or names a dimension twice,
        or if a row has no element (with ``unbiased``: fewer than two).

    Notes
    -----
    Differentiable twice and more. One tensor of y's size is saved, y itself, and three numbers per row. The mean is
    kept as the sum of two numbers: the result is right to 1e-5 even where the mean is 1e4 times the deviation.
    Rows that are not contiguous in memory, such as ``dims=1`` of an NCHW tensor, cost two copies.
    At the kinks n = ±3 of the hard sigmoid the slope is 0. Chapter: *LayerAct*
    (``book/mechanisms/layeract``), equation ``eq-layeract-neuron``; its gradients are in ``layeract-derivation``.

    References
    ----------
    Yoon, Lim (2023), Layer-level activation mechanism, Eq. 6.

    Examples
    --------
    >>> import torch
    >>> from companion.functional import layer_act
    >>> layer_act(torch.tensor([[-1.0, 0.0, 1.0], [9.0, 10.0, 11.0]]))
    tensor([[-0.2271,  0.0000,  0.7729],
            [ 2.0439,  5.0000,  8.5019]])
    """
    if scale not in SCALES:
        raise ValueError(f"scale: got {scale!r}, allowed are {', '.join(map(repr, SCALES))}")
    return _apply(y, scale == "hardsigmoid", alpha, dims, unbiased)


@overridable
def la_silu(y: Tensor, alpha: float = 1e-5, dims: int | Sequence[int] | None = None, unbiased: bool = False) -> Tensor:
    r"""LA-SiLU: :func:`layer_act` with the sigmoid.

    .. math:: a_i = \frac{y_i}{1 + e^{-n_i}},\qquad n_i = \frac{y_i - \mu}{\sqrt{\sigma^2 + \alpha}}

    Parameters, errors and notes: see :func:`layer_act`.

    References
    ----------
    Yoon, Lim (2023), Layer-level activation mechanism, Section 3.1.

    Examples
    --------
    >>> import torch
    >>> from companion.functional import la_silu
    >>> la_silu(torch.tensor([[-1.0, 0.0, 1.0]]))
    tensor([[-0.2271,  0.0000,  0.7729]])
    """
    return _apply(y, False, alpha, dims, unbiased)


@overridable
def la_hardsilu(
    y: Tensor, alpha: float = 1e-5, dims: int | Sequence[int] | None = None, unbiased: bool = False
) -> Tensor:
    r"""LA-HardSiLU: :func:`layer_act` with the hard sigmoid.

    .. math:: a_i = y_i \min(\max(n_i/6 + 1/2,\,0),\,1),\qquad n_i = \frac{y_i - \mu}{\sqrt{\sigma^2 + \alpha}}

    Parameters, errors and notes: see :func:`layer_act`.

    References
    ----------
    Yoon, Lim (2023), Layer-level activation mechanism, Section 3.1.

    Examples
    --------
    >>> import torch
    >>> from companion.functional import la_hardsilu
    >>> la_hardsilu(torch.tensor([[-1.0, 0.0, 1.0]]))
    tensor([[-0.2959,  0.0000,  0.7041]])
    """
    return _apply(y, True, alpha, dims, unbiased)


def check_alpha(alpha: float) -> float:
    """A positive number as a float, or a clear error."""
    alpha = as_float("alpha", alpha)
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha: got {alpha!r}, allowed is a number > 0")
    return alpha


def check_dims(dims: int | Sequence[int] | None) -> tuple[int, ...] | None:
    """The numbers of dimensions as a tuple, or a clear error; None stays None."""
    if dims is None:
        return None
    if isinstance(dims, (str, Tensor)):
        raise TypeError(f"dims: got {dims!r}, allowed is an int or several")
    given = tuple(as_int("dims", dim) for dim in (dims if isinstance(dims, Iterable) else (dims,)))
    if not given:
        raise ValueError("dims: got none, allowed is at least one dimension")
    return given


def normalised_dims(ndim: int, dims: int | Sequence[int] | None) -> tuple[int, ...]:
    """``dims`` as sorted non-negative numbers, or a clear error."""
    if ndim == 0:
        raise ValueError("y: got 0 dimensions, allowed is at least one")
    given = check_dims(dims)
    if given is None:
        return (0,) if ndim == 1 else tuple(range(1, ndim))
    for dim in given:
        if not -ndim <= dim < ndim:
            raise ValueError(f"dims: got {dim}, allowed for y with {ndim} dimensions is {-ndim} to {ndim - 1}")
    result = tuple(sorted([dim % ndim for dim in given]))
    if len(set(result)) < len(result):
        raise ValueError(f"dims: got {given}, which names a dimension twice")
    return result


def _apply(y: Tensor, hard: bool, alpha: float, dims: int | Sequence[int] | None, unbiased: bool) -> Tensor:
    check_floating("y", y)
    alpha = check_alpha(alpha)
    check_flag("unbiased", unbiased)
    within = normalised_dims(y.ndim, dims)
    d = reference.row_length(y, within)
    if d < 1 + unbiased:
        needed = "two elements, because the variance is unbiased" if unbiased else "one element"
        raise ValueError(
            f"y: got shape {tuple(y.shape)} with {d} elements along dims {within}, allowed is at least {needed}"
        )
    if transformed():
        return _value(y, within, hard, alpha, unbiased)
    if y.numel() == 0:
        return y * 1
    return _by_rows(y, within, hard, alpha, unbiased)


def _by_rows(y: Tensor, within: tuple[int, ...], hard: bool, alpha: float, unbiased: bool) -> Tensor:
    """View ``y`` as rows in the order of memory where possible, and compute."""
    d = reference.row_length(y, within)
    if y.is_contiguous() and within[0] == y.ndim - len(within):
        if y.ndim == 2 and y.shape[1] == d:
            return FUNCTION(y, hard, alpha, unbiased)
        return FUNCTION(y.view(-1, d), hard, alpha, unbiased).view(y.shape)
    strides = y.stride()
    across = [dim for dim in range(y.ndim) if dim not in within]
    # in both groups the dimension with the largest stride comes first: channels-last stays as it lies
    order = sorted(across, key=lambda dim: -strides[dim]) + sorted(within, key=lambda dim: -strides[dim])
    ordered = y.permute(order)
    result = FUNCTION(ordered.reshape(-1, d).contiguous(), hard, alpha, unbiased)
    result = result.view(ordered.shape).permute([order.index(dim) for dim in range(y.ndim)])
    return result if ordered.is_contiguous() else torch.empty_like(y).copy_(result)


# --- on rows (rows, d) --------------------------------------------------------------------------------------------


def _plain(y: Tensor, hard: bool, alpha: float, unbiased: bool) -> Tensor:
    return _value(y, (-1,), hard, alpha, unbiased)


def _value(y: Tensor, within: tuple[int, ...], hard: bool, alpha: float, unbiased: bool) -> Tensor:
    x = cast(y, compute_dtype(y.dtype))
    return cast(reference.value(x, within, hard, alpha, unbiased), y.dtype)


def _forward(y: Tensor, hard: bool, alpha: float, unbiased: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
    """a, and what was found out about the rows; plain torch saves nothing but y."""
    who = choose(y, kernel.OPERATOR)
    if who != "torch":
        a, statistics = kernel.forward(y, alpha, hard, unbiased, simulated=who == "simulator")
    elif _lean(y):
        a, statistics = reference.forward_in_chunks(y, hard, alpha, unbiased)
    else:
        return _plain(y, hard, alpha, unbiased), ()
    return a, (statistics,)


def _backward(
    grad: Tensor,
    needs: Sequence[bool],
    saved: tuple[Tensor, ...],
    y: Tensor,
    hard: bool,
    alpha: float,
    unbiased: bool,
) -> tuple[Tensor | None, ...]:
    who = choose(y, kernel.OPERATOR)
    if saved and who != "torch":
        dy = kernel.backward(grad.contiguous(), y, saved[0], hard, unbiased, simulated=who == "simulator")
    elif saved and _lean(y):
        dy = reference.backward_in_chunks(grad.contiguous(), y, saved[0], hard, unbiased)
    else:  # also where the backend was changed between the passes
        dtype = compute_dtype(y.dtype)
        dy = cast(reference.gradient(cast(grad, dtype), cast(y, dtype), hard, alpha, unbiased), y.dtype)
    return dy, None, None, None


def _lean(y: Tensor) -> bool:
    return on_cpu(y) and y.dtype != torch.float64


FUNCTION = differentiable(_plain, _forward, _backward)
