"""The binding of ``raa.cu``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from companion.cuda.launch import Kernels
from companion.cuda.rows import LONG_THREADS, THREADS, Layout, RowPlan, aligned, layout_plan, round_up, row_plan
from companion.cuda.scalars import int32, int64
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
    grid = (math.ceil(plan.blocks / pack) if packed else plan.blocks, plan.chunks)
    arguments = [x, slopes, partial, *plan.sizes, int32(packed)]
    KERNELS.launch(f"raa_columns_{KERNEL_DTYPES[x.dtype]}", grid, (THREADS,), arguments, x.device, simulated)
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
