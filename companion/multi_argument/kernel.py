"""The binding of ``inner.cu`` and ``inner_mma.cu``, the shared inner network, arguments → 64 → 64 → 1, in one pass, and
of ``quadratic.cu``, the quadratic form of two arguments.

float32 is computed as it is, 16 bits on tensor cores where there are any, and else as float32.

Tensor cores take weights and hidden numbers of 16 bits and add up in float32. In random networks, run by the simulator,
values were 0.3 % (bfloat16) and 0.04 % (float16) of their norm off; gradients 5 % and 2 %, because a rounded hidden
number turns a neuron on or off here and there, and its slope changes as a whole.

Cost of a unit with n arguments. Forward 2 (64 n + 4096 + 64) operations, 8576 for n = 2, and n + 1 elements of memory:
6 bytes in 16 bits, 12 in float32. That is 1400 and 700 operations a byte. A GPU like H200 has, by its data sheet, about
200 tensor-core operations in 16 bits for each byte that it moves, and 14 in float32: arithmetic is the limit by far.
Backward computes the hidden layers again, sends the gradient back through them, and adds up the gradients of the
weights, three times as many operations for 2 n + 1 elements. At the peak rates a million units would take 9 µs forward
on tensor cores and 128 µs in float32, against 1.3 and 2.5 µs for their memory. No kernel reaches those rates; how far
they are from them was not measured.

Plain torch in eager mode keeps 128 hidden numbers for each unit until backward, 512 bytes in float32. Forward it writes
or reads 64 of them eight times, which at H200's bandwidth takes at least 430 µs for a million units in float32, 210 µs
in 16 bits. Here x alone is kept, and no hidden number leaves the chip. Beside results, memory goes to the blocks' sums
for the weights' gradients, at most 10 MiB for up to 34 million units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from companion.cuda.launch import Kernels
from companion.cuda.rows import aligned
from companion.cuda.scalars import int32, int64
from companion.operators import KERNEL_DTYPES, Operator

#: Neurons in each of the two hidden layers, arguments of a unit at most, threads of a block.
HIDDEN, MOST_ARGUMENTS, THREADS = 64, 8, 128
#: Blocks at most, from which on each goes through several tiles of units: enough to fill the largest GPU a few times.
#: The numbers depend on no GPU, so that sums are the same on every one.
MOST_BLOCKS = {"forward": 2112, "backward": 528}
#: Units that a block adds up at most: tensor cores cut what they add, so long sums of one sign drift.
LONGEST_SUM = 2**16
#: Compute capability times ten from which on mma.m16n8k16 is there.
TENSOR_CORES = 80

INNER = Kernels(
    Path(__file__).with_name("inner.cu"),
    ["inner_forward_f32", "inner_backward_f32", "inner_reduce"],
)
INNER_MMA = Kernels(
    Path(__file__).with_name("inner_mma.cu"),
    [f"inner_mma_{direction}_{suffix}" for direction in MOST_BLOCKS for suffix in ("f16", "bf16")],
    lowest=TENSOR_CORES,
)
QUADRATIC = Kernels(
    Path(__file__).with_name("quadratic.cu"),
    [f"quadratic_{direction}_{suffix}" for direction in MOST_BLOCKS for suffix in KERNEL_DTYPES.values()]
    + ["quadratic_reduce"],
)
#: Coefficients of the quadratic form, threads of its blocks, and of these backward at most.
COEFFICIENTS, FORM_THREADS, FORM_BLOCKS = 6, 256, 1056
NETWORK = Operator("multi_argument", [INNER, INNER_MMA], "companion.multi_argument.proof:network")
FORM = Operator("quadratic_form", [QUADRATIC], "companion.multi_argument.proof:form")
#: Units that a block computes at a time.
UNITS = {INNER: {"forward": 256, "backward": 32}, INNER_MMA: {"forward": 64, "backward": 64}}


def serves(x: Tensor, weights: Sequence[Tensor], arity: int) -> bool:
    """Whether the kernels know this network: up to eight arguments, two hidden layers of 64, and a dtype of theirs."""
    shapes = [tuple(weight.shape) for weight in weights]
    network = [(HIDDEN, arity), (HIDDEN, HIDDEN), (1, HIDDEN)]
    return x.dtype in KERNEL_DTYPES and arity <= MOST_ARGUMENTS and shapes == network


def has_tensor_cores(x: Tensor) -> bool:
    """Whether there are tensor cores for ``inner_mma.cu`` where ``x`` is; the simulator has them."""
    return not x.is_cuda or torch.cuda.get_device_capability(x.device) >= divmod(TENSOR_CORES, 10)


def _has_kernels(x: Tensor) -> bool:
    return x.dtype == torch.float32 or has_tensor_cores(x)


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
    if not _has_kernels(x):
        return forward(x.float(), weights, biases, arity, dim, simulated).to(x.dtype)
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
    if not _has_kernels(x):
        dx, found = backward(grad.float(), x.float(), weights, biases, arity, dim, learned, simulated)
        return dx.to(x.dtype), found
    grad, x = grad.contiguous(), x.contiguous()
    dx, sizes = torch.empty_like(x), _sizes(x, arity, dim)
    partial = None
    if learned:
        sums = HIDDEN * (HIDDEN + 2 + arity)
        partial = torch.empty(_blocks("backward", grad), sums, dtype=torch.float32, device=x.device)
    *parameters, _ = _parameters(weights, biases)
    _launch("backward", [grad, x, *parameters, dx, partial, *sizes], grad, simulated)
    return dx, None if partial is None else _finish(_reduce(INNER, partial, simulated), grad, weights, biases, arity)


def _finish(
    total: Tensor, grad: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], arity: int
) -> list[Tensor]:
    """The gradients of the parameters from the sums E, S and those of the first layer; see ``inner.cu``."""
    second, active, first = torch.split(total, [HIDDEN * HIDDEN, HIDDEN, HIDDEN * (arity + 1)])
    second, first = second.view(HIDDEN, HIDDEN), first.view(arity + 1, HIDDEN)
    last = weights[2].view(HIDDEN)
    of_last = ((weights[1] * second).sum(1) + biases[1] * active)[None]
    of_result = grad.sum(dtype=torch.float32).view(1)
    return [first[:-1].t().contiguous(), first[-1].clone(), last[:, None] * second, last * active, of_last, of_result]


def _reduce(kernels: Kernels, partial: Tensor, simulated: bool) -> Tensor:
    parts, sums = partial.shape
    total = torch.empty(sums, dtype=torch.float32, device=partial.device)
    grid, block = (math.ceil(sums / 32),), (32 * min(32, parts),)
    arguments = [partial, total, int64(parts), int64(sums)]
    kernels.launch(f"{kernels.source.stem}_reduce", grid, block, arguments, partial.device, simulated)
    return total


def _blocks(direction: str, units: Tensor) -> int:
    count, most = units.numel(), MOST_BLOCKS[direction]
    if direction == "backward":
        most = max(most, math.ceil(count / LONGEST_SUM))
    return min(math.ceil(count / UNITS[_kernels(units)][direction]), most)


def _kernels(x: Tensor) -> Kernels:
    return INNER if x.dtype == torch.float32 else INNER_MMA


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
    kernels = _kernels(units)
    name = f"{kernels.source.stem}_{direction}_{KERNEL_DTYPES[units.dtype]}"
    kernels.launch(name, (_blocks(direction, units),), (THREADS,), arguments, units.device, simulated)


# --- the quadratic form ----------------------------------------------------------------------------------------------


def serves_form(x: Tensor, arity: int) -> bool:
    """Whether the kernels know this form: two arguments, and a dtype of theirs."""
    return x.dtype in KERNEL_DTYPES and arity == 2


def form_forward(x: Tensor, coefficients: Tensor, dim: int, simulated: bool) -> Tensor:
    """The quadratic form of every two neighbours along ``dim``.

    Parameters
    ----------
    x : Tensor
        float32, float16 or bfloat16, not empty.
    coefficients : Tensor
        (6,), float32: of x₁², x₂², x₁x₂, x₁, x₂ and 1.
    dim : int
        Along which dimension the arguments of a unit lie.
    simulated : bool
        Whether the simulator runs the kernels.

    Returns
    -------
    Tensor
        Like ``x``, with a unit for every two elements along ``dim``.
    """
    x = aligned(x)
    y = x.new_empty(_result_shape(x, 2, dim))
    width = _form_width(x, dim)
    arguments = [x, coefficients.contiguous(), y, *_form_sizes(x, dim)]
    _launch_form("forward", math.ceil(y.numel() / (width * FORM_THREADS)), arguments, y, simulated)
    return y


def form_backward(grad: Tensor, x: Tensor, coefficients: Tensor, dim: int, simulated: bool) -> tuple[Tensor, Tensor]:
    """The gradients of x and, in float32, of the coefficients from that of the form.

    Parameters
    ----------
    grad : Tensor
        Like what :func:`form_forward` returned.
    x, coefficients, dim, simulated
        As for :func:`form_forward`.
    """
    grad, x = aligned(grad), aligned(x)
    dx = torch.empty_like(x)
    blocks = min(math.ceil(grad.numel() / (_form_width(x, dim) * FORM_THREADS)), FORM_BLOCKS)
    partial = torch.empty(blocks, COEFFICIENTS, dtype=torch.float32, device=x.device)
    arguments = [grad, x, coefficients.contiguous(), dx, partial, *_form_sizes(x, dim)]
    _launch_form("backward", blocks, arguments, grad, simulated)
    return dx, _reduce(QUADRATIC, partial, simulated)


def _form_width(x: Tensor, dim: int) -> int:
    """Neighbouring units that a thread takes: a pack, where units, or every map of them, are whole packs."""
    pack, inner = 16 // x.element_size(), math.prod(x.shape[dim % x.ndim + 1 :])
    return pack if (inner if inner > 1 else x.numel() // 2) % pack == 0 else 1


def _form_sizes(x: Tensor, dim: int) -> list[Any]:
    units, _, inner = _sizes(x, 2, dim)
    return [units, inner, int32(_form_width(x, dim) > 1)]


def _launch_form(direction: str, blocks: int, arguments: list[Any], units: Tensor, simulated: bool) -> None:
    name = f"quadratic_{direction}_{KERNEL_DTYPES[units.dtype]}"
    QUADRATIC.launch(name, (blocks,), (FORM_THREADS,), arguments, units.device, simulated)
