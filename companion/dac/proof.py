"""What the kernels of DAC must do on a GPU before they are trusted there."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from companion.dac import kernel
from companion.dac.op import dac_conv2d, dac_linear
from companion.operators import KERNEL_DTYPES
from companion.proofs.trial import Comparison, compared, inputs, offsets, signals

#: What tests/dac/test_kernel.py allows: half a unit in the last place of the result, and a share of its terms.
RELATIVE = {torch.float32: 2**-24, torch.float16: 2**-11, torch.bfloat16: 2**-8}
OF_TERMS = 2e-6

#: N, m, n, and whether all begins inside a pack: one of everything; around the borders of tiles (128, 64, 32), steps
#: (8) and packs (4); whole packs, and what could be; several parts.
DENSE = (
    (1, 1, 1, False),
    (67, 35, 70, False),
    (130, 4, 129, False),
    (67, 36, 72, False),
    (9, 8, 12, True),
    (600, 9, 5, False),
)

#: Shapes of z and weight, the numbers of a convolution, and whether all begins inside a pack.
CONVOLUTIONS: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], bool], ...] = (
    ((2, 5, 7, 6), (3, 5, 3, 3), {"padding": 1}, False),
    ((1, 2, 2, 3), (2, 2, 3, 2), {"padding": (3, 4), "pad_order": "before"}, False),
    ((2, 4, 11, 9), (6, 2, 3, 2), {"stride": (3, 2), "dilation": (2, 3), "padding": (2, 3), "groups": 2}, False),
    ((3, 20, 9, 10), (35, 20, 1, 1), {}, False),
    ((1, 4, 3, 2), (3, 4, 1, 1), {}, True),
)

#: 3 × 3 as tensor cores take it: fewer and more inputs than 16 and 64, odd numbers of outputs, both orders of padding,
#: several cuts of a picture.
PICTURES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((3, 5, 4, 4), (3, 5, 3, 3), {"padding": 1}),
    ((1, 70, 9, 7), (19, 70, 3, 3), {}),
    ((1, 32, 3, 4), (2, 32, 3, 3), {"padding": (2, 0), "pad_order": "before"}),
    ((1, 3, 5, 130), (17, 3, 3, 3), {"padding": 1}),
    ((1, 3, 2, 2), (2, 3, 3, 3), {"padding": 3}),
)


def dense(device: str) -> Iterator[Comparison]:
    """Every kernel of ``dac_linear.cu``."""
    for dtype in KERNEL_DTYPES:
        for width in kernel.TILES["forward"]:
            with _replaced("tiling", partial(_tiling, width)):
                for N, m, n, shifted in DENSE:
                    operands = inputs(N, m, dtype=dtype), signals(n, m, dtype=dtype), offsets(n, m, dtype=dtype)
                    bounds = RELATIVE, OF_TERMS
                    yield from compared("dac_linear", dac_linear, operands, device, *bounds, dac_linear, shifted)


def convolution(device: str) -> Iterator[Comparison]:
    """Every kernel of ``dac_conv.cu``, and of those for 3 × 3 on tensor cores."""
    for dtype in KERNEL_DTYPES:
        for width in kernel.TILES["forward"]:
            with _replaced("tiling", partial(_tiling, width)):
                for z, weight, numbers, shifted in CONVOLUTIONS:
                    for per_weight in (False, True):
                        operands = _operands(z, weight, per_weight, dtype)
                        yield from _convolved(operands, numbers, device, shifted)
        for outputs in (2, 4):
            with _replaced("outputs_of_a_block", lambda *_, outputs=outputs: outputs):
                for z, weight, numbers in PICTURES:
                    yield from _convolved(_operands(z, weight, False, dtype), numbers, device)
        yield from _infinite(dtype, device)


def _operands(z: tuple[int, ...], weight: tuple[int, ...], per_weight: bool, dtype: torch.dtype) -> list[Tensor]:
    bias = weight if per_weight else weight[:2]
    return [inputs(*z, dtype=dtype), signals(*weight, dtype=dtype), offsets(*bias, dtype=dtype)]


def _convolved(
    operands: list[Tensor],
    numbers: dict[str, Any],
    device: str,
    shifted: bool = False,
    signal: Tensor | None = None,
) -> Iterator[Comparison]:
    f = partial(dac_conv2d, **numbers)
    # with padding before, terms of the border count as well: the kernels add them and take them back
    terms = partial(dac_conv2d, **{**numbers, "pad_order": "before"})
    yield from compared("dac_conv2d", f, operands, device, RELATIVE, OF_TERMS, terms, shifted, signal)


def _infinite(dtype: torch.dtype, device: str) -> Iterator[Comparison]:
    """Infinite inputs, of which tensor cores make NaN in too many places, and a gradient that is NaN itself."""
    z, weight, bias = _operands((1, 3, 5, 4), (2, 3, 3, 3), False, dtype)
    signal = signals(1, 2, 5, 4, dtype=dtype)
    far, unknown = z.clone(), signal.clone()
    far[0, 0, 0, 0], far[0, 1, 2, 1:3] = math.inf, math.inf  # gradients of the first are infinite, of the second NaN
    unknown[0, 1, 2, 2] = math.nan
    yield from _convolved([far, weight, bias], {"padding": 1}, device, signal=signal)
    yield from _convolved([z, weight, bias + 8], {"padding": 1}, device, signal=unknown)  # all are active


@contextlib.contextmanager
def _replaced(name: str, plan: Callable[..., Any]) -> Iterator[None]:
    """Another plan of launches, as only large layers have it."""
    chosen = getattr(kernel, name)
    setattr(kernel, name, plan)
    try:
        yield
    finally:
        setattr(kernel, name, chosen)


def _tiling(width: str, what: str, rows: int, columns: int) -> kernel.Tiling:
    """Tiles of one width for every size."""
    down, across, threads = kernel.TILES[what][width]
    return kernel.Tiling(width, threads, math.ceil(rows / down) * math.ceil(columns / across))
