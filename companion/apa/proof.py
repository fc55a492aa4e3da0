"""What the kernels of AGLU and APA must do on a GPU before they are trusted there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from companion.apa.op import aglu, apa
from companion.cuda.exercise import Comparison, compared, inputs
from companion.operator import KERNEL_DTYPES

#: What tests/apa/test_accuracy.py allows: of the result, two units in the last place for 16 bits; of its terms.
RELATIVE = {torch.float32: 2e-5, torch.float16: 2 * 2**-10, torch.bfloat16: 2 * 2**-7}
OF_TERMS = 1e-6

#: One pair of parameters for everything, and one for each channel: rows, long rows, columns.
SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((1001,), ()),
    ((3, 5, 77), (5,)),
    ((2, 4, 3000), (4,)),
    ((9, 5), (5,)),
)


def exercise(device: str) -> Iterator[Comparison]:
    """Every kernel of ``aglu.cu``."""
    for dtype in KERNEL_DTYPES:
        for function in (aglu, apa):
            for shape, channels in SHAPES:
                dim = 1 if channels else 0
                operands = inputs(*shape, dtype=dtype), parameter(0.75, *channels), parameter(0.5, *channels)
                name, f = function.__name__, partial(function, dim=dim)
                yield from compared(name, f, operands, device, RELATIVE, OF_TERMS)


def parameter(start: float, *channels: int) -> Tensor:
    """``start`` for the first channel, a quarter more for each that follows."""
    return (start + 0.25 * torch.arange(torch.Size(channels).numel(), dtype=torch.float32)).view(channels)
