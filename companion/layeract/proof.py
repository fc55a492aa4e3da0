"""What the kernels of LayerAct must do on a GPU before they are trusted there."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from companion.cuda.exercise import Comparison, compared, inputs
from companion.layeract.op import la_hardsilu, la_silu
from companion.operator import KERNEL_DTYPES

#: What tests/layeract/test_accuracy.py allows, relative to the terms of a result; of 16 bits also half a unit.
RELATIVE = {torch.float32: 0.0, torch.float16: 2**-11, torch.bfloat16: 2**-8}
OF_TERMS = 2e-6

#: One row or many: shorter than a pack, in lanes of a warp, in a warp, in a block, in several blocks.
ROWS = ((1, 3), (7, 33), (5, 1000), (5, 1500), (3, 9001), (2, 70_001))


def exercise(device: str) -> Iterator[Comparison]:
    """Every kernel of ``layeract.cu``."""
    for dtype in KERNEL_DTYPES:
        for function in (la_silu, la_hardsilu):
            for shape in ROWS:
                y = inputs(*shape, dtype=dtype)
                yield from compared(function.__name__, function, (y,), device, RELATIVE, OF_TERMS)
