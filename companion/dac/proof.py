"""What the kernels of DAC must do on a GPU before they are trusted there."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from companion.cuda.exercise import Comparison, compared, inputs, offsets, signals
from companion.dac import kernel
from companion.dac.op import dac_conv2d, dac_linear
from companion.operator import KERNEL_DTYPES

#: What tests/dac/test_kernel.py allows: half a unit in the last place of the result, and a share of its terms.
RELATIVE = {torch.float32: 2**-24, torch.float16: 2**-11, torch.bfloat16: 2**-8}
OF_TERMS = 2e-6

#: N, m, n: one of everything; around the borders of tiles (128, 64, 32), steps (8) and packs (4); several parts.
DENSE = ((1, 1, 1), (67, 35, 70), (130, 4, 129), (600, 9, 5))

#: Shapes of z and weight, and the numbers of a convolution.
CONVOLUTIONS: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 5, 7, 6), (3, 5, 3, 3), {"padding": 1}),
    ((1, 2, 2, 3), (2, 2, 3, 2), {"padding": (3, 4), "pad_order": "before"}),
    ((2, 4, 11, 9), (6, 2, 3, 2), {"stride": (3, 2), "dilation": (2, 3), "padding": (2, 3), "groups": 2}),
    ((3, 20, 9, 10), (35, 20, 1, 1), {}),
)

#: 3 × 3 as tensor cores take it: fewer and more inputs than 16 and 64, odd numbers of outputs, both orders of padding.
PICTURES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((3, 5, 4, 4), (3, 5, 3, 3), {"padding": 1}),
    ((1, 70, 9, 7), (19, 70, 3, 3), {}),
    ((1, 16, 3, 4), (2, 16, 3, 3), {"padding": (2, 0), "pad_order": "before"}),
    ((1, 3, 5, 130), (17, 3, 3, 3), {"padding": 1}),
)


def dense(device: str) -> Iterator[Comparison]:
    """Every kernel of ``dac_linear.cu``."""
    for dtype in KERNEL_DTYPES:
        for width in kernel.TILES["forward"]:
            with _tiles(width):
                for N, m, n in DENSE:
                    operands = inputs(N, m, dtype=dtype), signals(n, m, dtype=dtype), offsets(n, m, dtype=dtype)
                    bounds = RELATIVE, OF_TERMS
                    yield from compared("dac_linear", dac_linear, operands, device, *bounds, dac_linear)


def convolution(device: str) -> Iterator[Comparison]:
    """Every kernel of ``dac_conv.cu``, and of those for 3 × 3 on tensor cores."""
    for dtype in KERNEL_DTYPES:
        for width in kernel.TILES["forward"]:
            with _tiles(width):
                for case in CONVOLUTIONS:
                    yield from _convolved(*case, per_weight=False, dtype=dtype, device=device)
                    yield from _convolved(*case, per_weight=True, dtype=dtype, device=device)
        for case in PICTURES:
            yield from _convolved(*case, per_weight=False, dtype=dtype, device=device)


def _convolved(
    z: tuple[int, ...],
    weight: tuple[int, ...],
    numbers: dict[str, Any],
    per_weight: bool,
    dtype: torch.dtype,
    device: str,
) -> Iterator[Comparison]:
    bias = weight if per_weight else weight[:2]
    operands = inputs(*z, dtype=dtype), signals(*weight, dtype=dtype), offsets(*bias, dtype=dtype)
    f = partial(dac_conv2d, **numbers)
    # with padding before, terms of the border count as well: the kernels add them and take them back
    terms = partial(dac_conv2d, **{**numbers, "pad_order": "before"})
    yield from compared("dac_conv2d", f, operands, device, RELATIVE, OF_TERMS, terms)


@contextlib.contextmanager
def _tiles(width: str) -> Iterator[None]:
    """Tiles of one width for every size, as only large layers have them."""
    chosen = kernel.tiling

    def tiling(what: str, rows: int, columns: int) -> kernel.Tiling:
        down, across, threads = kernel.TILES[what][width]
        return kernel.Tiling(width, threads, math.ceil(rows / down) * math.ceil(columns / across))

    kernel.tiling = tiling
    try:
        yield
    finally:
        kernel.tiling = chosen
