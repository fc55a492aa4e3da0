r"""RAA in plain torch.

For a vector :math:`\mathbf x` with its offset :math:`c = \mathbf w^{\mathsf T}\mathbf x + b`, :math:`u = \mathbf x + c`
and a gate :math:`s`, and with :math:`h = g\,x\,s'(u)`, :math:`H = \sum_j h_j`:

.. math::
    y = x\,s(u),\qquad \frac{\partial\mathcal L}{\partial x} = g\,s(u) + h + w H,\qquad
    \frac{\partial\mathcal L}{\partial w} = \sum x H,\qquad \frac{\partial\mathcal L}{\partial b} = \sum H .

:func:`value` is ordinary differentiable tensor maths. :func:`forward_in_chunks` and :func:`backward_in_chunks` do the
same in place, on chunks that stay in the cache; theirs is (outer, d, inner), the vectors along the middle dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from companion.operators import compute_dtype

#: The gates by name, in the order of the numbers by which the kernels know them.
GATES = ("gelu", "silu", "relu")

PER_ROOT_2 = 1 / math.sqrt(2)
LN_PER_ROOT_2_PI = -0.5 * math.log(2 * math.pi)

#: Φ(−x) e^(x²/2) of x ≥ 0 is t (c_1 + c_2 t + …) with t = 1/(1 + p x), relative error 9e-8 up to 14: see gates.cuh.
P = 0.35
TAIL = (
    *(1.39621307e-1, 1.39863515e-1, 1.19821288e-1, 1.05552501e-1, -2.32123510e-2),
    *(1.59319692e-1, -2.55839029e-1, 1.44030919e-1, -2.91578856e-2),
)


def gated(u: Tensor, gate: str) -> Tensor:
    """s(u). Φ comes from erfc: 1 + erf would lose its small values."""
    if gate == "gelu":
        return 0.5 * torch.erfc(u * -PER_ROOT_2)
    # [u > 0], with a slope of 0 and NaN for NaN
    return torch.sigmoid(u) if gate == "silu" else u.clamp(0, 1).ceil()


class _Normal(torch.autograd.Function):
    """Φ in float32 for the compiler, which makes loops over vectors of everything but erfc."""

    @staticmethod
    def forward(ctx: Any, u: Tensor) -> Tensor:
        ctx.save_for_backward(u)
        t = 1 / (1 + P * u.abs())
        tail = torch.full_like(u, TAIL[-1])
        for coefficient in reversed(TAIL[:-1]):
            tail = tail * t + coefficient
        tail = tail * t * torch.exp(u * u * -0.5)
        return torch.where(u > 0, 1 - tail, tail)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (u,) = ctx.saved_tensors
        return grad * torch.exp(u * u * -0.5 + LN_PER_ROOT_2_PI)


def compiled_gate(u: Tensor, gate: str) -> Tensor:
    """s(u) for the compiler."""
    if gate == "gelu" and u.dtype == torch.float32:
        result: Tensor = _Normal.apply(u)
        return result
    return gated(u, gate)


def value(x: Tensor, weight: Tensor, bias: Tensor, gate: Callable[[Tensor], Tensor], dim: int) -> Tensor:
    """x s(x + c) in the dtype of the computation, with ``weight`` (d,) and ``bias`` (1,)."""
    shape = [1] * x.ndim
    shape[dim] = -1
    # c = Σ w x + b
    offset = (x * weight.view(shape)).sum(dim, keepdim=True) + bias
    return x * gate(x + offset)


# --- in chunks ---------------------------------------------------------------------------------------------------

#: Elements per chunk and thread: its buffers stay in the cache, and a pass over it takes longer than its call.
CHUNK = 2**16
#: Elsewhere there is no such cache, and a pass takes longer than its launch.
LARGE_CHUNK = 2**24


def _many(x: Tensor) -> int:
    """Outer elements of a chunk."""
    elements = CHUNK * torch.get_num_threads() if x.device.type == "cpu" else LARGE_CHUNK
    return max(1, elements // x[0].numel())


def _chunks(x: Tensor) -> Iterator[slice]:
    many = _many(x)
    return (slice(start, start + many) for start in range(0, x.shape[0], many))


def _buffers(count: int, x: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """As long as the longest chunk."""
    shape = min(_many(x), x.shape[0]), *x.shape[1:]
    return [torch.empty(shape, dtype=dtype, device=x.device) for _ in range(count)]


def _offset(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """c as (outer, 1, inner)."""
    if x.shape[2] == 1:
        return torch.addmv(bias, x[:, :, 0], weight)[:, None, None]
    return torch.add(torch.matmul(weight, x), bias)[:, None]


def forward_in_chunks(x: Tensor, weight: Tensor, bias: Tensor, gate: str) -> tuple[Tensor, Tensor]:
    """y, and the offsets (outer, 1, inner)."""
    dtype = compute_dtype(x.dtype)
    short = x.dtype != dtype
    y, offsets = torch.empty_like(x), torch.empty(x.shape[0], 1, x.shape[2], dtype=dtype, device=x.device)
    zero, buffers = weight.new_zeros(()), _buffers(1 + short, x, dtype)
    for chunk in _chunks(x):
        of_chunk, out = x[chunk], y[chunk]
        s, *wide = (buffer[: len(out)] for buffer in buffers)
        if short:
            of_chunk = wide[0].copy_(of_chunk)
        offset = _offset(of_chunk, weight, bias)
        offsets[chunk] = offset
        share = 1.0
        if gate == "gelu":
            # Φ(u) = erfc(−u/√2)/2
            torch.add(offset * -PER_ROOT_2, of_chunk, alpha=-PER_ROOT_2, out=s).erfc_()
            share = 0.5
        else:
            torch.add(of_chunk, offset, out=s)
            s = s.sigmoid_() if gate == "silu" else s.clamp_(0, 1).ceil_()
        torch.addcmul(zero, of_chunk, s, value=share, out=s if short else out)
        if short:
            out.copy_(s)
    return y, offsets


def backward_in_chunks(
    grad: Tensor, x: Tensor, weight: Tensor, offsets: Tensor, gate: str
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, weight and bias; those of the parameters in the dtype of the computation."""
    dtype, dx = weight.dtype, torch.empty_like(x)
    short = x.dtype != dtype
    dweight, dbias = torch.zeros_like(weight), weight.new_zeros(1)
    constant, buffers = weight.new_tensor(LN_PER_ROOT_2_PI), _buffers(5 if short else 3, x, dtype)
    for chunk in _chunks(x):
        g, of_chunk, out, offset = grad[chunk], x[chunk], dx[chunk], offsets[chunk]
        h, s, slope, *wide = (buffer[: len(out)] for buffer in buffers)
        if short:
            g, of_chunk = wide[0].copy_(g), wide[1].copy_(of_chunk)
        if gate == "relu":
            out.copy_(torch.add(of_chunk, offset, out=s).clamp_(0, 1).ceil_().mul_(g))
            continue
        torch.mul(g, of_chunk, out=h)
        if gate == "gelu":
            # v = −u/√2,  h = g x φ(u) with φ(u) = e^(−v²)/√(2π),  g s = g erfc(v)/2
            v = torch.add(offset * -PER_ROOT_2, of_chunk, alpha=-PER_ROOT_2, out=s)
            h.mul_(torch.addcmul(constant, v, v, value=-1, out=slope).exp_())
            s, share = v.erfc_(), 0.5
        else:
            # h = g x s (1 − s)
            torch.add(of_chunk, offset, out=s).sigmoid_()
            share = 1.0
            h.mul_(s)
            h.addcmul_(h, s, value=-1)
        H = h.sum(1, keepdim=True)
        # g s + h + w H
        h.addcmul_(g, s, value=share)
        torch.addcmul(h, weight[:, None], H, out=h if short else out)
        if short:
            out.copy_(h)
        if x.shape[2] == 1:
            dweight.addmv_(of_chunk[:, :, 0].t(), H[:, 0, 0])
        else:
            dweight += torch.matmul(of_chunk, H.mT)[:, :, 0].sum(0)
        dbias += H.sum()
    return dx, dweight, dbias
