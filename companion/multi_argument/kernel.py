"""The binding of ``inner.cu``: the shared inner network, arguments → 64 → 64 → 1, in one pass.

Cost of a unit with n arguments. Forward 2 (64 n + 4096 + 64) operations, 8.6 thousand for n = 2, for n + 1 elements of
memory, 12 bytes in float32: 700 operations a byte, where a large GPU has 10 to 20 float32 operations for each byte that
it can move. So arithmetic is the limit. Backward computes the hidden layers again, sends the gradient back through
them, and adds up the gradients of the weights: three times as many, for 2 n + 1 elements.

Plain torch keeps 128 numbers for each unit until backward, and moves each several times: 512 bytes a unit in float32
beside the 12 of argument and result. Here x alone is kept. Beside results, memory goes to the blocks' sums of the
weights' gradients, at most 9 MiB for up to 34 million units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from companion.cuda.launch import Kernels
from companion.cuda.scalars import int32, int64
from companion.operator import KERNEL_DTYPES

#: Neurons in each of the two hidden layers, arguments of a unit at most, threads of a block.
HIDDEN, MOST_ARGUMENTS, THREADS = 64, 8, 128
#: Units that a block computes at a time.
UNITS = {"forward": 256, "backward": 32}
#: Blocks at most, from which on each goes through several such tiles: enough to fill the largest GPU a few times. The
#: numbers depend on no GPU, so that sums are the same on every one.
MOST_BLOCKS = {"forward": 2112, "backward": 528}
#: Units that a block adds up at most.
LONGEST_SUM = 2**16

INNER = Kernels(
    Path(__file__).with_name("inner.cu"),
    [f"inner_{direction}_{suffix}" for direction in UNITS for suffix in KERNEL_DTYPES.values()] + ["inner_reduce"],
)


def serves(x: Tensor, weights: Sequence[Tensor], arity: int) -> bool:
    """Whether the kernels know this network: up to eight arguments, two hidden layers of 64, and a dtype of theirs."""
    shapes = [tuple(weight.shape) for weight in weights]
    network = [(HIDDEN, arity), (HIDDEN, HIDDEN), (1, HIDDEN)]
    return x.dtype in KERNEL_DTYPES and arity <= MOST_ARGUMENTS and shapes == network


def forward(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], arity: int, dim: int, simulated: bool
) -> Tensor:
    """The inner network on every ``arity`` neighbours along ``dim``.

    Parameters
    ----------
    x : Tensor
        float32, float16 or bfloat16, not empty.
    weights, biases : sequence of Tensor
        float32, of the three layers as torch's Linear has them; see :func:`serves`.
    arity, dim : int
        How many arguments a unit has, and along which dimension they lie.
    simulated : bool
        Whether the simulator runs the kernels.

    Returns
    -------
    Tensor
        Like ``x``, with a unit for every ``arity`` elements along ``dim``.
    """
    x = x.contiguous()
    sizes = _sizes(x, arity, dim)
    y = x.new_empty(_result_shape(x, arity, dim))
    _launch("forward", [x, *_parameters(weights, biases), y, *sizes], y, simulated)
    return y


def backward(
    grad: Tensor,
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    arity: int,
    dim: int,
    learned: bool,
    simulated: bool,
) -> tuple[Tensor, list[Tensor] | None]:
    """The gradient of x, and those of weight and bias of each layer in turn, float32, from that of the result.

    Parameters
    ----------
    grad : Tensor
        Like what :func:`forward` returned.
    x, weights, biases, arity, dim, simulated
        As for :func:`forward`.
    learned : bool
        Whether the gradients of the parameters are wanted.
    """
    grad, x = grad.contiguous(), x.contiguous()
    dx, sizes = torch.empty_like(x), _sizes(x, arity, dim)
    partial = None
    if learned:
        sums = HIDDEN * (HIDDEN + 2 + arity)
        partial = torch.empty(_blocks("backward", grad.numel()), sums, dtype=torch.float32, device=x.device)
    *parameters, _ = _parameters(weights, biases)
    _launch("backward", [grad, x, *parameters, dx, partial, *sizes], grad, simulated)
    return dx, None if partial is None else _finish(_reduce(partial, simulated), grad, weights, biases, arity)


def _finish(
    total: Tensor, grad: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], arity: int
) -> list[Tensor]:
    """The gradients of the parameters from the sums E, e and those of the first layer; see ``inner.cu``."""
    second, active, first = total.split([HIDDEN * HIDDEN, HIDDEN, HIDDEN * (arity + 1)])
    second, first = second.view(HIDDEN, HIDDEN), first.view(arity + 1, HIDDEN)
    last = weights[2].view(HIDDEN)
    of_last = ((weights[1] * second).sum(1) + biases[1] * active)[None]
    of_result = grad.sum(dtype=torch.float32).view(1)
    return [first[:-1].t().contiguous(), first[-1].clone(), last[:, None] * second, last * active, of_last, of_result]


def _reduce(partial: Tensor, simulated: bool) -> Tensor:
    parts, sums = partial.shape
    total = torch.empty(sums, dtype=torch.float32, device=partial.device)
    grid, block = (math.ceil(sums / 32),), (32 * min(32, parts),)
    INNER.launch("inner_reduce", grid, block, [partial, total, int64(parts), int64(sums)], partial.device, simulated)
    return total


def _blocks(direction: str, units: int) -> int:
    most = MOST_BLOCKS[direction]
    if direction == "backward":
        most = max(most, math.ceil(units / LONGEST_SUM))
    return min(math.ceil(units / UNITS[direction]), most)


def _result_shape(x: Tensor, arity: int, dim: int) -> list[int]:
    shape = list(x.shape)
    shape[dim] //= arity
    return shape


def _sizes(x: Tensor, arity: int, dim: int) -> list[Any]:
    """What every kernel is told: units, arguments of each, and how far apart these lie."""
    inner = math.prod(x.shape[dim % x.ndim + 1 :])
    return [int64(x.numel() // arity), int32(arity), int64(inner)]


def _parameters(weights: Sequence[Tensor], biases: Sequence[Tensor]) -> list[Tensor]:
    return [x.contiguous() for pair in zip(weights, biases, strict=True) for x in pair]


def _launch(direction: str, arguments: list[Any], units: Tensor, simulated: bool) -> None:
    name = f"inner_{direction}_{KERNEL_DTYPES[units.dtype]}"
    grid = (_blocks(direction, units.numel()),)
    INNER.launch(name, grid, (THREADS,), arguments, units.device, simulated)
