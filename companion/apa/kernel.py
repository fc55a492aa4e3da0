"""The binding of ``aglu.cu``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from companion.apa.reference import Parameter
from companion.cuda.launch import Kernels
from companion.cuda.rows import THREADS, Layout, across, layout_of, layout_plan, round_up
from companion.cuda.scalars import float32, int32, int64
from companion.operators import KERNEL_DTYPES, Operator

if TYPE_CHECKING:
    import numpy as np

KERNELS = Kernels(
    Path(__file__).with_name("aglu.cu"),
    [
        f"{name}_{direction}_{layout}_{suffix}"
        for name in ("apa", "aglu")
        for direction in ("forward", "backward")
        for layout in ("row", "column")
        for suffix in KERNEL_DTYPES.values()
    ]
    + ["aglu_reduce"],
)
OPERATOR = Operator("aglu", [KERNELS], "companion.apa.proof:exercise")


def forward(z: Tensor, kappa: Parameter, lam: Parameter, gated: bool, simulated: bool) -> Tensor:
    """η or zη; the parameters float32 and broadcastable against z, or numbers."""
    z = z.contiguous()
    y = torch.empty_like(z)
    if z.numel() == 0:
        return y
    layout = layout_of(z, kappa, lam)
    _launch("forward", gated, layout, z, (y,), [z, y], kappa, lam, simulated)
    return y


def backward(
    grad: Tensor, z: Tensor, kappa: Parameter, lam: Parameter, gated: bool, simulated: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of z, κ and λ; those of the parameters in float32 and in the parameters' shapes."""
    z, grad = z.contiguous(), grad.contiguous()
    grad_z = torch.empty_like(z)
    layout = layout_of(z, kappa, lam)
    if z.numel() == 0:
        total = torch.zeros(2, layout.channels, dtype=torch.float32, device=z.device)
        return grad_z, _shaped(total[0], kappa), _shaped(total[1], lam)
    plan = layout_plan(layout)
    if layout.kind == "row":
        outer, inner = layout.rows // layout.channels, plan.chunks
    else:
        outer, inner = plan.chunks, 1
    partial = torch.empty(2, outer * layout.channels * inner, dtype=torch.float32, device=z.device)
    total = torch.empty(2, layout.channels, dtype=torch.float32, device=z.device)
    written = [grad, z, grad_z, partial[0], partial[1]]
    _launch("backward", gated, layout, z, (grad, grad_z), written, kappa, lam, simulated)
    KERNELS.launch(
        "aglu_reduce",
        (layout.channels, 2),
        (min(1024, round_up(outer * inner, 32)),),
        [partial[0], partial[1], total[0], total[1], int64(outer), int64(layout.channels), int64(inner)],
        z.device,
        simulated,
    )
    return grad_z, _shaped(total[0], kappa), _shaped(total[1], lam)


def _shaped(total: Tensor, parameter: Parameter) -> Tensor:
    """The sums per channel in the parameter's shape; of a single parameter against channels, their sum."""
    if isinstance(parameter, Tensor) and parameter.numel() == total.numel():
        return total.view(parameter.shape)
    summed = total.sum()
    return summed.view(parameter.shape) if isinstance(parameter, Tensor) else summed


def _launch(
    direction: str,
    gated: bool,
    layout: Layout,
    z: Tensor,
    others: tuple[Tensor, ...],
    tensors: list[Tensor],
    kappa: Parameter,
    lam: Parameter,
    simulated: bool,
) -> None:
    name = f"{'aglu' if gated else 'apa'}_{direction}_{layout.kind}_{KERNEL_DTYPES[z.dtype]}"
    kappa_array, kappa_number = _array_or_number(kappa, layout.channels)
    lam_array, lam_number = _array_or_number(lam, layout.channels)
    parameters = [kappa_array, lam_array, kappa_number, lam_number]
    plan = layout_plan(layout)
    if layout.kind == "row":
        arguments: list[Any] = [*tensors, *parameters, *plan.sizes]
        grid: tuple[int, ...] = (plan.blocks,)
        threads = THREADS
    else:
        pack = 16 // z.element_size()
        packed = layout.channels % pack == 0 and all(x.data_ptr() % 16 == 0 for x in (z, *others))
        arguments = [*tensors, *parameters, *plan.sizes, int32(packed)]
        blocks, threads = across(layout.channels, pack if packed else 1)
        grid = (blocks, plan.chunks)
    KERNELS.launch(name, grid, (threads,), arguments, z.device, simulated)


def _array_or_number(parameter: Parameter, channels: int) -> tuple[Tensor | None, np.float32]:
    """The pointer and the number of which the kernel takes the first if there is one."""
    if not isinstance(parameter, Tensor):
        return None, float32(parameter)
    return parameter.reshape(-1).expand(channels).contiguous(), float32(0)
