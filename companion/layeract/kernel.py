"""The binding of ``layeract.cu``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from companion.cuda.launch import Kernels
from companion.cuda.rows import LONG_THREADS, RowPlan, aligned, round_up, row_plan
from companion.cuda.scalars import float32, float64, int32, int64
from companion.operators import KERNEL_DTYPES, Operator

KERNELS = Kernels(
    Path(__file__).with_name("layeract.cu"),
    [
        f"layeract_{kernel}_{suffix}"
        for kernel in (
            *(
                f"{direction}_{layout}"
                for direction in ("forward", "backward")
                for layout in ("short", "warp", "block")
            ),
            *("statistics", "forward_long", "sums", "backward_long"),
        )
        for suffix in KERNEL_DTYPES.values()
    ]
    + ["layeract_combine_statistics", "layeract_combine_sums"],
)
OPERATOR = Operator("layer_act", [KERNELS], "companion.layeract.proof:exercise")


def forward(y: Tensor, alpha: float, hard: bool, unbiased: bool, simulated: bool) -> tuple[Tensor, Tensor]:
    """The activation of contiguous rows, and of each row the two parts of its mean and 1/√(v + α).

    Parameters
    ----------
    y : Tensor
        (rows, d), float32, float16 or bfloat16; neither size is 0.
    alpha : float
        α.
    hard : bool
        Whether s is the hard sigmoid.
    unbiased : bool
        Whether the variance is divided by d - 1.
    simulated : bool
        Whether the simulator runs the kernels.

    Returns
    -------
    tuple of Tensor
        a, like ``y``, and float32 statistics (3, rows): mean, what rounding took from it, 1/√(v + α).
    """
    y = aligned(y)
    rows, length = y.shape
    a = torch.empty_like(y)
    statistics = torch.empty(3, rows, dtype=torch.float32, device=y.device)
    plan, suffix, degrees = row_plan(rows, length, y.element_size()), KERNEL_DTYPES[y.dtype], length - int(unbiased)
    flag = int32(hard)
    if plan.kind != "long":
        arguments = [y, a, statistics, *_with_degrees(plan, degrees), float32(alpha), flag]
        _launch(f"forward_{plan.kind}_{suffix}", plan, arguments, y, simulated)
        return a, statistics
    partial = torch.empty(3, plan.blocks, dtype=torch.float32, device=y.device)
    _launch(f"statistics_{suffix}", plan, [y, partial, *plan.sizes], y, simulated)
    combined = [partial, statistics, *plan.sizes, float64(degrees), float64(alpha)]
    _combine("statistics", rows, plan, combined, y, simulated)
    _launch(f"forward_long_{suffix}", plan, [y, a, statistics, int64(rows), *plan.sizes, flag], y, simulated)
    return a, statistics


def backward(grad: Tensor, y: Tensor, statistics: Tensor, hard: bool, unbiased: bool, simulated: bool) -> Tensor:
    """∂L/∂y from ∂L/∂a, ``y`` and what :func:`forward` found out about its rows.

    Parameters
    ----------
    grad, y : Tensor
        (rows, d), contiguous, of one dtype.
    statistics : Tensor
        From :func:`forward`.
    hard, unbiased, simulated : bool
        As for :func:`forward`.

    Returns
    -------
    Tensor
        Like ``y``.
    """
    grad, y = aligned(grad), aligned(y)
    rows, length = y.shape
    dy = torch.empty_like(y)
    plan, suffix, degrees = row_plan(rows, length, y.element_size()), KERNEL_DTYPES[y.dtype], length - int(unbiased)
    flag = int32(hard)
    if plan.kind != "long":
        arguments = [grad, y, dy, statistics, *_with_degrees(plan, degrees), flag]
        _launch(f"backward_{plan.kind}_{suffix}", plan, arguments, y, simulated)
        return dy
    partial = torch.empty(2, plan.blocks, dtype=torch.float32, device=y.device)
    total = torch.empty(2, rows, dtype=torch.float32, device=y.device)
    sizes = (int64(rows), *plan.sizes)
    _launch(f"sums_{suffix}", plan, [grad, y, statistics, partial, *sizes, flag], y, simulated)
    combined = [partial, statistics, total, int64(plan.chunks), float64(length), float64(degrees)]
    _combine("sums", rows, plan, combined, y, simulated)
    _launch(f"backward_long_{suffix}", plan, [grad, y, dy, statistics, total, *sizes, flag], y, simulated)
    return dy


def _with_degrees(plan: RowPlan, degrees: int) -> list[Any]:
    """The sizes of a launch for rows on the chip; 1/0 is infinite, and makes NaN of a row of one element."""
    rows, length, *lanes = plan.sizes
    return [rows, length, float32(1 / length), float32(1 / degrees if degrees else math.inf), *lanes]


def _launch(kernel: str, plan: RowPlan, arguments: list[Any], y: Tensor, simulated: bool) -> None:
    KERNELS.launch(f"layeract_{kernel}", (plan.blocks,), (plan.threads,), arguments, y.device, simulated)


def _combine(what: str, rows: int, plan: RowPlan, arguments: list[Any], y: Tensor, simulated: bool) -> None:
    threads = min(LONG_THREADS, round_up(plan.chunks, 32))
    KERNELS.launch(f"layeract_combine_{what}", (rows,), (threads,), arguments, y.device, simulated)
