"""What the kernels of RAA must do on a GPU before they are trusted there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from companion.dnrt.op import raa
from companion.dnrt.reference import GATES
from companion.operators import KERNEL_DTYPES
from companion.proofs.trial import Comparison, compared, inputs, signals

#: What tests/dnrt/test_kernel.py allows: half a unit in the last place of the result, and a share of its terms.
RELATIVE = {torch.float32: 2**-24, torch.float16: 2**-11, torch.bfloat16: 2**-8}
OF_TERMS = {torch.float32: 2e-6, torch.float16: 4e-5, torch.bfloat16: 4e-5}

#: Rows that begin anywhere in a pack: shorter than one, in a few lanes, in 32 lanes, in a warp, in a block (in 16 bits
#: the row before still is in a warp), in several blocks; maps, packed and not.
SHAPES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((5, 3), -1),
    ((67, 33), -1),
    ((2, 509), -1),
    ((2, 1001), -1),
    ((2, 1501), -1),
    ((2, 9001), -1),
    ((2, 33_001), -1),
    ((3, 19, 5, 5), 1),
    ((2, 9, 4, 8), 1),
)
#: Rows of whole packs, and more rows than a chunk of columns has.
WHOLE = ((66, 32), (2, 1024), (2, 1504), (2, 4096))
#: More chunks than a warp joins.
MANY = (1, 270_001)


def exercise(device: str) -> Iterator[Comparison]:
    """Every kernel of ``raa.cu``."""
    for dtype in KERNEL_DTYPES:
        for gate in GATES:
            for shape, dim in SHAPES:
                yield from _compared(gate, inputs(*shape, dtype=dtype), dim, device)
            far = inputs(2, 33, dtype=dtype)
            far[:, 0] = torch.tensor([100.0, -100.0])
            yield from _compared(gate, far, -1, device)
        yield from _compared("relu", inputs(1, 33, dtype=dtype), -1, device, math.nan)
        for shape in WHOLE:
            yield from _compared("gelu", inputs(*shape, dtype=dtype), -1, device)
    yield from _compared("gelu", inputs(*MANY), -1, device)


def _compared(gate: str, x: Tensor, dim: int, device: str, bias: float = -0.03125) -> Iterator[Comparison]:
    # offsets of a few units, exact in 16 bits
    length = x.shape[dim]
    weight = signals(length) / 2 ** max(0, (length // 8).bit_length())
    function = partial(raa, gate=gate, dim=dim)
    operands = (x, weight, torch.tensor([bias]))
    yield from compared(f"raa, {gate}", function, operands, device, RELATIVE, OF_TERMS[x.dtype])
