"""The binding of ``layeract.cu``: how rows are spread over lanes, blocks and chunks."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from companion.cuda.launch import Kernels
from companion.cuda.proof import Operator
from companion.cuda.scalars import float32, float64, int32, int64
from companion.operator import KERNEL_DTYPES

#: Packs of 16 bytes that a thread holds at most: of a short row, of any other row or chunk.
SHORT_PACKS = 4
MOST_PACKS = 8
WARP_THREADS = 128
BLOCK_THREADS = 512
LONG_THREADS = 256

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


class Plan(NamedTuple):
    """How rows are cut.

    ``kind`` "short", "warp": ``lanes`` lanes a row. "block": a block a row. "long": ``chunks`` blocks a row, of
    ``chunk`` elements each but for the last.
    """

    kind: str
    threads: int
    blocks: int
    lanes: int
    chunk: int
    chunks: int
    sizes: tuple[Any, ...]  # as the kernels take them; rows on the chip: without per_degrees


@functools.lru_cache(maxsize=4096)
def plan_of(rows: int, length: int, element_bytes: int) -> Plan:
    """The plan for rows of this many elements. It depends on sizes alone, so the sums are the same on every GPU."""
    pack = 16 // element_bytes
    sizes: tuple[Any, ...]
    packs = max(1, length // pack)  # whole ones, at most
    if packs <= 32 * MOST_PACKS:
        kind, held = ("short", SHORT_PACKS) if packs <= 32 * SHORT_PACKS else ("warp", MOST_PACKS)
        # two lanes at least, where there are two packs: side by side they fill a sector of 32 bytes
        lanes = _power_of_two(max(math.ceil(packs / held), min(packs, 2)))
        if length % pack:
            lanes = max(lanes, 2 * pack)  # each holds one of the elements before the first pack and after the last
        sizes = (int64(rows), int32(length), float32(1 / length), int32(lanes))
        return Plan(kind, WARP_THREADS, math.ceil(rows * lanes / WARP_THREADS), lanes, length, 1, sizes)
    if packs <= BLOCK_THREADS * MOST_PACKS:
        threads = _round_up(math.ceil(packs / MOST_PACKS), 32)
        sizes = (int64(rows), int32(length), float32(1 / length))
        return Plan("block", threads, rows, 0, length, 1, sizes)
    chunks = math.ceil(length / (LONG_THREADS * MOST_PACKS * pack))
    chunk = _round_up(math.ceil(length / chunks), 2 * pack)
    chunks = math.ceil(length / chunk)
    sizes = (int64(length), int32(chunk), int64(chunks))
    return Plan("long", LONG_THREADS, rows * chunks, 0, chunk, chunks, sizes)


def _round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _power_of_two(n: int) -> int:
    """The smallest that is not below n."""
    return 1 << (n - 1).bit_length()


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
    y = _aligned(y)
    rows, length = y.shape
    a = torch.empty_like(y)
    statistics = torch.empty(3, rows, dtype=torch.float32, device=y.device)
    plan, suffix, degrees = plan_of(rows, length, y.element_size()), KERNEL_DTYPES[y.dtype], length - int(unbiased)
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
    grad, y = _aligned(grad), _aligned(y)
    rows, length = y.shape
    dy = torch.empty_like(y)
    plan, suffix, degrees = plan_of(rows, length, y.element_size()), KERNEL_DTYPES[y.dtype], length - int(unbiased)
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


def _aligned(x: Tensor) -> Tensor:
    """The same values, contiguous and from a multiple of 16 bytes on: a copy, if they begin anywhere else."""
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()


def _with_degrees(plan: Plan, degrees: int) -> list[Any]:
    """The sizes of a launch for rows on the chip; 1/0 is infinite, and makes NaN of a row of one element."""
    before, after = plan.sizes[:3], plan.sizes[3:]
    return [*before, float32(1 / degrees if degrees else math.inf), *after]


def _launch(kernel: str, plan: Plan, arguments: list[Any], y: Tensor, simulated: bool) -> None:
    KERNELS.launch(f"layeract_{kernel}", (plan.blocks,), (plan.threads,), arguments, y.device, simulated)


def _combine(what: str, rows: int, plan: Plan, arguments: list[Any], y: Tensor, simulated: bool) -> None:
    threads = min(LONG_THREADS, _round_up(plan.chunks, 32))
    KERNELS.launch(f"layeract_combine_{what}", (rows,), (threads,), arguments, y.device, simulated)
