r"""The inner network in plain torch.

For the arguments :math:`\mathbf a` of one unit, hidden layers :math:`\mathbf h_0 = \mathbf a,\ \mathbf h_k =
\max(0, W_k \mathbf h_{k-1} + \mathbf b_k)` and the gradient :math:`g` of :math:`y = \mathbf w \mathbf h_L + b`:

.. math::
    \boldsymbol\delta_L = g\,\mathbf w \odot [\mathbf h_L > 0],\qquad
    \boldsymbol\delta_{k-1} = W_k^{\mathsf T} \boldsymbol\delta_k \odot [\mathbf h_{k-1} > 0],\qquad
    \frac{\partial\mathcal L}{\partial\mathbf a} = W_1^{\mathsf T} \boldsymbol\delta_1,\qquad
    \frac{\partial\mathcal L}{\partial W_k} = \sum \boldsymbol\delta_k \mathbf h_{k-1}^{\mathsf T},\qquad
    \frac{\partial\mathcal L}{\partial\mathbf b_k} = \sum \boldsymbol\delta_k .

:func:`value` is ordinary differentiable tensor maths, which holds all hidden layers of all units.
:func:`forward_in_chunks` and :func:`backward_in_chunks` hold those of a few units at a time, the second after computing
them anew: a unit has two arguments and a hundred hidden numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

Block: TypeAlias = tuple[slice, slice, slice]


def value(x: Tensor, parameters: Sequence[Tensor], arity: int, dim: int) -> Tensor:
    """The network of all units, in the dtype of the computation; weights and biases take turns in ``parameters``."""
    h = torch.unflatten(x.movedim(dim, -1), -1, (x.shape[dim] // arity, arity))
    *hidden, (weight, bias) = zip(parameters[::2], parameters[1::2], strict=True)
    for w, b in hidden:
        # h_k = max(0, W_k h_{k−1} + b_k)
        h = torch.relu(F.linear(h, w, b))
    # y = w h_L + b
    return F.linear(h, weight, bias).squeeze(-1).movedim(-1, dim).contiguous()


# --- in chunks -------------------------------------------------------------------------------------------------------

#: Hidden numbers of a chunk, on a CPU for each thread up to eight: with their gradients they stay in its cache.
CHUNK = 2**18
#: On other devices, where a launch takes longer than what it computes.
LARGE_CHUNK = 2**21


def units_of_chunk(x: Tensor, widths: Sequence[int]) -> int:
    """How many units have their hidden layers, of these widths, in a chunk."""
    numbers = CHUNK * min(torch.get_num_threads(), 8) if x.device.type == "cpu" else LARGE_CHUNK
    return max(1, numbers // sum(widths))


def as_units(x: Tensor, arity: int, dim: int) -> Tensor:
    """(outer, units, arity, inner)."""
    shape = x.shape
    return x.reshape(shape[:dim].numel(), shape[dim] // arity, arity, shape[dim + 1 :].numel())


def blocks(units: Tensor, many: int) -> Iterator[Block]:
    """What of (outer, units, ·, inner) is taken together: ``many`` units, as they lie."""
    outer, count, _, inner = units.shape
    of_inner = max(1, min(inner, many))
    of_units = max(1, min(count, many // of_inner))
    steps = many // (of_inner * of_units), of_units, of_inner
    ranges = (range(0, size, step) for size, step in zip((outer, count, inner), steps, strict=True))
    for starts in itertools.product(*ranges):
        first, second, third = (slice(start, start + step) for start, step in zip(starts, steps, strict=True))
        yield first, second, third


def arguments_of(units: Tensor, block: Block, dtype: torch.dtype) -> Tensor:
    """A row for each unit of the block."""
    outer, count, inner = block
    rows = units[outer, count, :, inner].movedim(2, -1)
    return rows.reshape(-1, rows.shape[-1]).to(dtype)


def forward_in_chunks(x: Tensor, parameters: Sequence[Tensor], arity: int, dim: int) -> Tensor:
    """The network of all units."""
    units, dtype = as_units(x, arity, dim), parameters[0].dtype
    *hidden, (weight, bias) = zip(parameters[::2], parameters[1::2], strict=True)
    many = units_of_chunk(x, [len(b) for _, b in hidden])
    buffers = _buffers(units, many, hidden, dtype)
    y = x.new_empty(units.shape[0], units.shape[1], units.shape[3])
    for block in blocks(units, many):
        *_, h = _hidden(arguments_of(units, block, dtype), hidden, buffers)
        of_block = y[block]
        of_block.copy_(torch.addmv(bias, h, weight[0]).view(of_block.shape))
    return y.view(*x.shape[:dim], y.shape[1], *x.shape[dim + 1 :])


def backward_in_chunks(
    grad: Tensor, x: Tensor, parameters: Sequence[Tensor], arity: int, dim: int, needs: tuple[bool, bool]
) -> tuple[Tensor | None, list[Tensor] | None]:
    """The gradient of x, and those of the parameters in the dtype of the computation, where they are needed."""
    units, dtype = as_units(x, arity, dim), parameters[0].dtype
    *hidden, (weight, _) = zip(parameters[::2], parameters[1::2], strict=True)
    many = units_of_chunk(x, [len(b) for _, b in hidden])
    buffers, deltas = (_buffers(units, many, hidden, dtype) for _ in range(2))
    dx = torch.empty_like(units, memory_format=torch.contiguous_format) if needs[0] else None
    found = [torch.zeros_like(p, memory_format=torch.contiguous_format) for p in parameters]
    g_of_units = as_units(grad, 1, dim)[:, :, 0]
    for block in blocks(units, many):
        a, g = arguments_of(units, block, dtype), g_of_units[block].reshape(-1).to(dtype)
        layers = [a, *_hidden(a, hidden, buffers)]
        if needs[1]:
            found[-2][0].addmv_(layers[-1].t(), g)
            found[-1].add_(g.sum())
        # δ_L = g w ⊙ [h_L > 0]
        delta = torch.mul(g[:, None], weight, out=deltas[-1][: len(a)])
        ones = torch.ones_like(g)
        for k in reversed(range(len(hidden))):
            h = layers[k + 1]
            torch.ops.aten.threshold_backward.grad_input(delta, h, 0, grad_input=delta)
            if needs[1]:
                # Σ δ_k h_{k−1}ᵀ and Σ δ_k
                found[2 * k].addmm_(delta.t(), layers[k])
                found[2 * k + 1].addmv_(delta.t(), ones)
            if k > 0:
                # W_kᵀ δ_k
                delta = torch.mm(delta, hidden[k][0], out=deltas[k - 1][: len(a)])
        if dx is not None:
            of_block = dx[block[0], block[1], :, block[2]]
            rows = torch.mm(delta, hidden[0][0])
            of_block.copy_(rows.view(of_block.shape[0], of_block.shape[1], of_block.shape[3], -1).movedim(-1, 2))
    return None if dx is None else dx.view(x.shape), found if needs[1] else None


def _buffers(units: Tensor, many: int, hidden: Sequence[tuple[Tensor, Tensor]], dtype: torch.dtype) -> list[Tensor]:
    """For each hidden layer room for the largest chunk."""
    rows = min(many, units.numel() // units.shape[2])
    return [torch.empty(rows, len(bias), dtype=dtype, device=units.device) for _, bias in hidden]


def _hidden(a: Tensor, hidden: Sequence[tuple[Tensor, Tensor]], buffers: Sequence[Tensor]) -> list[Tensor]:
    """The hidden layers of the arguments ``a``, a row for each unit."""
    layers = [a]
    for (weight, bias), buffer in zip(hidden, buffers, strict=True):
        # h_k = max(0, W_k h_{k−1} + b_k)
        layers.append(torch.addmm(bias, layers[-1], weight.t(), out=buffer[: len(a)]).relu_())
    return layers[1:]
