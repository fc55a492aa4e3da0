"""What the kernels of LayerAct must do on a GPU before they are trusted there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from companion.layeract.op import la_hardsilu, la_silu
from companion.operators import KERNEL_DTYPES
from companion.proofs.trial import Comparison, compared, inputs

#: What tests/layeract/test_accuracy.py allows, relative to the terms of a result; of 16 bits also half a unit.
RELATIVE = {torch.float32: 0.0, torch.float16: 2**-11, torch.bfloat16: 2**-8}
OF_TERMS = 2e-6

#: Rows that begin anywhere in a pack: shorter than one, in a few lanes, in 32 lanes, in a warp, in a block (in 16 bits
#: the row before still is in a warp), in several blocks.
ROWS = ((5, 3), (7, 33), (2, 509), (2, 1001), (2, 1501), (2, 9001), (2, 33_001))
#: Rows of whole packs.
WHOLE = ((5, 32), (2, 1024), (2, 1504), (2, 4096))
#: More chunks than a warp joins.
MANY = (1, 270_001)


def exercise(device: str) -> Iterator[Comparison]:
    """Every kernel of ``layeract.cu``."""
    for dtype in KERNEL_DTYPES:
        for function in (la_silu, la_hardsilu):
            for shape in ROWS:
                yield from _compared(function, inputs(*shape, dtype=dtype), device)
            yield from _compared(function, _uneven(7, 33, dtype=dtype), device)
        for shape in WHOLE:
            yield from _compared(la_silu, inputs(*shape, dtype=dtype), device)
    for shape in ROWS:  # a mean that takes two floats, of rows that are constant or hardly vary
        yield from _compared(la_silu, torch.full(shape, 1000.3), device)
        yield from _compared(la_silu, 1e4 + inputs(*shape), device)
    yield from _compared(la_silu, inputs(*MANY), device)
    yield from _compared(la_silu, _uneven(3, 16_500, dtype=torch.float32), device)


def _uneven(*shape: int, dtype: torch.dtype) -> Tensor:
    """Rows of which one element is far from the others, on either side, and infinitely far."""
    y = inputs(*shape, dtype=dtype)
    y[:3, 0] = torch.tensor([50.0, -50.0, math.inf])
    return y


def _compared(function: Callable[..., Tensor], y: Tensor, device: str) -> Iterator[Comparison]:
    yield from compared(function.__name__, function, (y,), device, RELATIVE, OF_TERMS)
