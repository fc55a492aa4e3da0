r"""LayerAct in plain torch: the value and its gradient, right for rows whose mean is large beside their deviation.

A row is the set of elements that are normalised together. With its mean :math:`\mu`, its variance :math:`v`,
:math:`r = 1/\sqrt{v + \alpha}`, :math:`n = (y - \mu)\,r` and a scale :math:`s`:

.. math::
    a = y\,s(n),\qquad h = g\,y\,s'(n),\qquad
    \frac{\partial\mathcal L}{\partial y} = g\,s(n) + r\Bigl(h - \overline{h} - n\,\tfrac{1}{D}\textstyle\sum h n\Bigr)

with :math:`D = d` for the biased variance and :math:`d - 1` for the unbiased one.

One float32 number cannot hold a mean of :math:`10^4\sigma` well enough: its rounding alone is an error of
:math:`6\cdot 10^{-4}` in :math:`n`. So the mean is taken twice, the second time of :math:`y - \mu_1`, and kept as the
sum of two numbers.

Two implementations follow. :func:`value` is ordinary differentiable tensor maths, which compilers and transforms can
trace. :func:`forward_in_chunks` and :func:`backward_in_chunks` do the same for float32 and 16 bits on a CPU, on chunks
of rows that stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F


def row_length(y: Tensor, dims: tuple[int, ...]) -> int:
    """The number of elements that are normalised together."""
    return math.prod([y.shape[dim] for dim in dims])


# --- differentiable ----------------------------------------------------------------------------------------------


def scale(n: Tensor, hard: bool) -> Tensor:
    """s(n): the sigmoid, or min(max(n/6 + 1/2, 0), 1), whose slope at the kinks is 0."""
    # torch's own hardsigmoid has no second derivative
    return F.hardtanh(n / 6 + 0.5, 0.0, 1.0) if hard else torch.sigmoid(n)


def slope(n: Tensor, hard: bool) -> Tensor:
    """s'(n)."""
    if hard:
        t = n / 6 + 0.5
        return ((t > 0) & (t < 1)).to(n.dtype) / 6
    return torch.sigmoid(n) * torch.sigmoid(-n)


def normalise(y: Tensor, dims: tuple[int, ...], alpha: float, unbiased: bool) -> tuple[Tensor, Tensor]:
    """n and r."""
    # μ = μ₁ + mean(y − μ₁); no μ₁ changes n, so none has a gradient, and the backward pass has a sum less
    centred = y - y.mean(dims, keepdim=True).detach()
    centred = centred - centred.mean(dims, keepdim=True)
    # v = Σ(y − μ)²/D,  r = 1/√(v + α)
    variance = centred.square().sum(dims, keepdim=True) / (row_length(y, dims) - int(unbiased))
    # a variance that has become infinite would make of r a 0, and of every s(n) a half
    rstd = torch.where(variance < math.inf, (variance + alpha).rsqrt(), math.nan)
    return centred * rstd, rstd


def value(y: Tensor, dims: tuple[int, ...], hard: bool, alpha: float, unbiased: bool) -> Tensor:
    """a, with ``y`` in float32 or float64."""
    n, _ = normalise(y, dims, alpha, unbiased)
    return y * scale(n, hard)


def normalise_pullback(h: Tensor, n: Tensor, rstd: Tensor, unbiased: bool) -> Tensor:
    """From ∂L/∂n to ∂L/∂y, for rows along the last dimension; also from ẏ to ṅ: the map is its own transpose."""
    d = n.shape[-1]
    # r (h − mean(h) − n Σ(hn)/D)
    return rstd * (h - h.mean(-1, keepdim=True) - n * ((h * n).sum(-1, keepdim=True) / (d - int(unbiased))))


def gradient(grad: Tensor, y: Tensor, hard: bool, alpha: float, unbiased: bool) -> Tensor:
    """∂L/∂y for rows along the last dimension, itself differentiable."""
    n, rstd = normalise(y, (-1,), alpha, unbiased)
    return grad * scale(n, hard) + normalise_pullback(grad * y * slope(n, hard), n, rstd, unbiased)


def tangent(t: Tensor, y: Tensor, hard: bool, alpha: float, unbiased: bool) -> Tensor:
    """The derivative of a along ``t``, for rows along the last dimension."""
    n, rstd = normalise(y, (-1,), alpha, unbiased)
    return t * scale(n, hard) + y * slope(n, hard) * normalise_pullback(t, n, rstd, unbiased)


# --- float32 on a CPU, in chunks of rows -------------------------------------------------------------------------

#: Elements per chunk and thread: its float32 buffers stay in the cache, and a pass over it takes longer than its call.
CHUNK = 2**16


def _chunks(y: Tensor) -> Iterator[slice]:
    """Runs of whole rows; torch's row kernels share the rows of a run among the threads."""
    threads = torch.get_num_threads()
    length = max(CHUNK * threads // y.shape[1], threads)
    return (slice(start, start + length) for start in range(0, y.shape[0], length))


def _biased(d: int, alpha: float, unbiased: bool) -> tuple[float, float]:
    """k and α' with which the unbiased n is k times a biased one: v d/(d − 1) + α = (v + α')/k²."""
    k = math.sqrt((d - 1) / d) if unbiased else 1.0
    return k, alpha * k * k


def _scale_(n: Tensor, hard: bool) -> Tensor:
    """s(n) in place of n."""
    return n.mul_(1 / 6).add_(0.5).clamp_(0.0, 1.0) if hard else n.sigmoid_()


def forward_in_chunks(y: Tensor, hard: bool, alpha: float, unbiased: bool) -> tuple[Tensor, Tensor]:
    """a of the rows of ``y`` (rows, d), and their statistics (3, rows): the mean as a sum of two, and r."""
    a = torch.empty_like(y)
    rows, d = y.shape
    statistics = torch.empty(3, rows, dtype=torch.float32)
    k, alpha = _biased(d, alpha, unbiased)
    for chunk in _chunks(y):
        x = y[chunk].float()
        mean = x.mean(1, keepdim=True)
        # mean(y − μ₁) comes from the normalisation itself
        n, rest, rstd = torch.native_layer_norm(x - mean, [d], None, None, alpha)
        if not rstd.all():  # of an infinite variance
            rstd = rstd.masked_fill(rstd == 0, math.nan)
            n.masked_fill_(rstd.isnan(), math.nan)
        torch.cat([mean, rest, rstd], 1, out=statistics[:, chunk].t())
        if unbiased:
            n.mul_(k)
        _store(x, _scale_(n, hard), a[chunk])
    if unbiased:
        statistics[2] *= k
    return a, statistics


def backward_in_chunks(grad: Tensor, y: Tensor, statistics: Tensor, hard: bool, unbiased: bool) -> Tensor:
    """∂L/∂y of rows."""
    grad_y = torch.empty_like(y)
    d = y.shape[1]
    k, _ = _biased(d, 1.0, unbiased)
    for chunk in _chunks(y):
        g, x, out = grad[chunk].float(), y[chunk].float(), grad_y[chunk]
        mean, rest, rstd = statistics[:, chunk, None].unbind()
        centred = x - mean
        n = (centred - rest).mul_(rstd)
        if hard:
            # g s, and h = g y/6 between the kinks
            s = n.mul_(1 / 6).add_(0.5)
            h = torch.mul(g, x)
            h.mul_((s > 0).logical_and_(s < 1)).mul_(1 / 6)
            direct = s.clamp_(0.0, 1.0).mul_(g)
        else:
            # g s, and h = y (g s)(1 − s)
            s = n.sigmoid_()
            direct = g * s
            h = torch.mul(x, direct)
            torch.addcmul(h, h, s, value=-1, out=h)
        # r (h − mean(h) − n Σ(hn)/D): the gradient of the biased normalisation with r/k, times k
        if unbiased:
            h.mul_(k)
            rstd = rstd / k
        through, _, _ = torch.ops.aten.native_layer_norm_backward(
            h, centred, [d], rest, rstd, None, None, [True, False, False]
        )
        if out.dtype == torch.float32:
            torch.add(through, direct, out=out)
        else:
            out.copy_(through.add_(direct))
    return grad_y


def _store(value: Tensor, factor: Tensor, out: Tensor) -> None:
    """out = value · factor in float32, rounded once to the dtype of ``out``; ``factor`` is overwritten."""
    if out.dtype == torch.float32:
        torch.mul(value, factor, out=out)
    else:
        out.copy_(factor.mul_(value))
