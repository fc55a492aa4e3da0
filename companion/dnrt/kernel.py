"""The bindings of ``raa.cu`` and ``arr.cu``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from companion.cuda.launch import Kernels
from companion.cuda.rows import LONG_THREADS, THREADS, Layout, RowPlan, across, aligned, layout_plan, round_up, row_plan
from companion.cuda.scalars import float32, float64, int32, int64
from companion.operators import KERNEL_DTYPES, Operator

#: Neighbouring vectors, or packs of them, that a block takes where they lie in maps.
MAP_VECTORS = 32

KERNELS = Kernels(
    Path(__file__).with_name("raa.cu"),
    [
        f"raa_{kernel}_{suffix}"
        for kernel in (
            *(
                f"{direction}_{layout}"
                for direction in ("forward", "backward")
                for layout in ("short", "warp", "block", "long", "maps")
            ),
            *("offsets", "slopes", "columns"),
        )
        for suffix in KERNEL_DTYPES.values()
    ]
    + ["raa_join_chunks", "raa_reduce"],
)
OPERATOR = Operator("raa", [KERNELS], "companion.dnrt.proof:exercise")

ARR_KERNELS = Kernels(
    Path(__file__).with_name("arr.cu"),
    [f"arr_{kernel}_{suffix}" for kernel in ("forward", "backward") for suffix in KERNEL_DTYPES.values()]
    + ["arr_finish"],
)
ARR_OPERATOR = Operator("arr", [ARR_KERNELS], "companion.dnrt.proof:arr")
#: Blocks that share the columns of a class, at most: each looks through all of its rows.
MOST_STRIPS = 4


def forward(x: Tensor, weight: Tensor, bias: Tensor, gate: int, simulated: bool) -> tuple[Tensor, Tensor]:
    """RAA of the vectors along the middle dimension, and the offset of each.

    Parameters
    ----------
    x : Tensor
        (outer, d, inner), float32, float16 or bfloat16, not empty.
    weight, bias : Tensor
        (d,) and (1,), float32.
    gate : int
        0: Φ, 1: the sigmoid, 2: the unit step.
    simulated : bool
        Whether the simulator runs the kernels.

    Returns
    -------
    tuple of Tensor
        y, like ``x``, and c, float32 (outer · inner,).
    """
    x, weight, bias = aligned(x), aligned(weight), bias.contiguous()
    outer, length, inner = x.shape
    y, offset = torch.empty_like(x), torch.empty(outer * inner, dtype=torch.float32, device=x.device)
    if inner > 1:
        _launch_maps("forward", [x, weight, bias, y, offset], x, gate, simulated)
        return y, offset
    plan = row_plan(outer, length, x.element_size())
    if plan.kind != "long":
        _launch_rows(f"forward_{plan.kind}", plan, [x, weight, bias, y, offset, *plan.sizes, int32(gate)], x, simulated)
        return y, offset
    partial = torch.empty(plan.blocks, dtype=torch.float32, device=x.device)
    _launch_rows("offsets", plan, [x, weight, partial, *plan.sizes], x, simulated)
    _join(partial, bias, offset, plan, simulated)
    _launch_rows("forward_long", plan, [x, offset, y, *plan.sizes, int32(gate)], x, simulated)
    return y, offset


def backward(
    grad: Tensor, x: Tensor, weight: Tensor, offset: Tensor, gate: int, simulated: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, weight and bias from that of y; those of the parameters in float32.

    Parameters
    ----------
    grad, x : Tensor
        (outer, d, inner), of one dtype.
    weight, offset : Tensor
        float32, (d,) and what :func:`forward` found.
    gate, simulated
        As for :func:`forward`.
    """
    grad, x, weight = aligned(grad), aligned(x), aligned(weight)
    outer, length, inner = x.shape
    dx = torch.empty_like(x)
    if inner > 1:
        blocks = _map_blocks(x)
        partial = torch.empty(blocks, length + 1, dtype=torch.float32, device=x.device)
        _launch_maps("backward", [grad, x, weight, offset, dx, partial], x, gate, simulated)
        return dx, *_reduce(partial, simulated)
    slopes = torch.empty(outer, dtype=torch.float32, device=x.device)
    plan = row_plan(outer, length, x.element_size())
    if plan.kind != "long":
        arguments = [grad, x, weight, offset, dx, slopes, *plan.sizes, int32(gate)]
        _launch_rows(f"backward_{plan.kind}", plan, arguments, x, simulated)
    else:
        sums = torch.empty(plan.blocks, dtype=torch.float32, device=x.device)
        _launch_rows("slopes", plan, [grad, x, offset, sums, *plan.sizes, int32(gate)], x, simulated)
        _join(sums, None, slopes, plan, simulated)
        arguments = [grad, x, weight, offset, slopes, dx, *plan.sizes, int32(gate)]
        _launch_rows("backward_long", plan, arguments, x, simulated)
    return dx, *_columns(x, slopes, simulated)


def _columns(x: Tensor, slopes: Tensor, simulated: bool) -> tuple[Tensor, Tensor]:
    """Σ x_j H over the rows, and Σ H."""
    outer, length, _ = x.shape
    plan, pack = layout_plan(Layout("column", outer, 1, length)), 16 // x.element_size()
    packed = length % pack == 0
    partial = torch.empty(plan.chunks, length + 1, dtype=torch.float32, device=x.device)
    blocks, threads = across(length, pack if packed else 1)
    arguments = [x, slopes, partial, *plan.sizes, int32(packed)]
    grid = (blocks, plan.chunks)
    KERNELS.launch(f"raa_columns_{KERNEL_DTYPES[x.dtype]}", grid, (threads,), arguments, x.device, simulated)
    return _reduce(partial, simulated)


def _reduce(partial: Tensor, simulated: bool) -> tuple[Tensor, Tensor]:
    """The gradients of weight and bias from (parts, d + 1)."""
    parts, sums = partial.shape
    total = torch.empty(sums, dtype=torch.float32, device=partial.device)
    arguments = [partial, total, int64(parts), int64(sums)]
    grid, block = (math.ceil(sums / 32),), (32 * min(32, parts),)
    KERNELS.launch("raa_reduce", grid, block, arguments, partial.device, simulated)
    return total[:-1], total[-1:]


def _join(partial: Tensor, bias: Tensor | None, total: Tensor, plan: RowPlan, simulated: bool) -> None:
    threads = min(LONG_THREADS, round_up(plan.chunks, 32))
    arguments = [partial, bias, total, int64(plan.chunks)]
    KERNELS.launch("raa_join_chunks", (total.numel(),), (threads,), arguments, total.device, simulated)


def _launch_rows(kernel: str, plan: RowPlan, arguments: list[Any], x: Tensor, simulated: bool) -> None:
    name = f"raa_{kernel}_{KERNEL_DTYPES[x.dtype]}"
    KERNELS.launch(name, (plan.blocks,), (plan.threads,), arguments, x.device, simulated)


def _map_width(x: Tensor) -> int:
    """Neighbouring vectors that a thread takes: a pack, where every map begins with one."""
    pack = 16 // x.element_size()
    return pack if x.shape[2] % pack == 0 else 1


def _map_blocks(x: Tensor) -> int:
    return math.ceil(x.shape[0] * x.shape[2] / (MAP_VECTORS * _map_width(x)))


def _launch_maps(direction: str, tensors: list[Tensor], x: Tensor, gate: int, simulated: bool) -> None:
    outer, length, inner = x.shape
    if length >= 2**30:
        raise ValueError(f"x: got vectors of {length} elements that lie in maps, allowed are fewer than 2^30")
    sizes = [int64(outer), int32(length), int64(inner), int32(_map_width(x) > 1), int32(gate)]
    name = f"raa_{direction}_maps_{KERNEL_DTYPES[x.dtype]}"
    KERNELS.launch(name, (_map_blocks(x),), (THREADS,), [*tensors, *sizes], x.device, simulated)


# --- ARR -------------------------------------------------------------------------------------------------------------


def arr_forward(
    x: Tensor,
    target: Tensor,
    own: slice,
    mean: Tensor,
    seen: Tensor,
    share: Tensor | None,
    momentum: float,
    from_first: bool,
    after: bool,
    simulated: bool,
) -> tuple[Tensor, Tensor]:
    """The loss of a batch, and the means after it: two launches.

    Parameters
    ----------
    x : Tensor
        (N, d), float32, float16 or bfloat16, not empty.
    target : Tensor
        (N,), int64. One that is no class stops the kernel.
    own : slice
        The samples that count in the loss; all move the means.
    mean, seen : Tensor
        (K, d), float32, and (K,) of bool, contiguous: they are changed in place.
    share : Tensor or None
        (d,), float32: the weight of each element. None: 1/d.
    momentum, from_first
        As for :func:`companion.dnrt.means.follow`.
    after : bool
        Whether a sample is compared with the mean that it leaves.
    simulated : bool
        Whether the simulator runs the kernels.

    Returns
    -------
    tuple of Tensor
        The loss, 0-d and float32, and the signs of x − μ of the own samples, int8.
    """
    x, target = aligned(x), target.contiguous()
    samples, length = x.shape
    first, last, _ = own.indices(samples)
    packed = length % (16 // x.element_size()) == 0
    strips = min(MOST_STRIPS, math.ceil(length / (THREADS * (16 // x.element_size() if packed else 1))))
    signs = torch.empty(last - first, length, dtype=torch.int8, device=x.device)
    partial = torch.empty(samples, strips, dtype=torch.float64, device=x.device)
    opened = torch.empty(samples, dtype=torch.bool, device=x.device)
    loss = torch.empty((), dtype=torch.float32, device=x.device)
    sizes = [int64(size) for size in (samples, length, len(mean), first, last)]
    flags = [float32(momentum), int32(from_first), int32(after), int32(packed)]
    arguments: list[Any] = [x, target, mean, seen, share, signs, partial, opened, *sizes, *flags]
    name = f"arr_forward_{KERNEL_DTYPES[x.dtype]}"
    ARR_KERNELS.launch(name, (samples, strips), (THREADS,), arguments, x.device, simulated)
    terms = float64(arr_terms(signs, share))
    arguments = [partial, target, opened, seen, loss, int64(samples), int64(partial.numel()), terms]
    ARR_KERNELS.launch("arr_finish", (1,), (THREADS,), arguments, x.device, simulated)
    return loss, signs


def arr_backward(grad: Tensor, signs: Tensor, share: Tensor | None, dtype: torch.dtype, simulated: bool) -> Tensor:
    """The gradient of the own samples from that of the loss: one launch.

    Parameters
    ----------
    grad : Tensor
        0-d, float32.
    signs, share
        What :func:`arr_forward` found, and was given.
    dtype : torch.dtype
        Of the result.
    simulated : bool
        As for :func:`arr_forward`.
    """
    dx = torch.empty(signs.shape, dtype=dtype, device=signs.device)
    if not dx.numel():
        return dx
    sizes = [int64(dx.numel()), int64(dx.shape[1]), float32(arr_terms(signs, share))]
    blocks = math.ceil(dx.numel() / (THREADS * (16 // dx.element_size())))
    name = f"arr_backward_{KERNEL_DTYPES[dtype]}"
    ARR_KERNELS.launch(name, (blocks,), (THREADS,), [grad, signs, share, dx, *sizes], dx.device, simulated)
    return dx


def arr_terms(signs: Tensor, share: Tensor | None) -> int:
    """What the sum is divided by: N d, or N where shares hold what belongs to the elements."""
    return signs.numel() if share is None else len(signs)
