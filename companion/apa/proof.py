"""What the kernels of AGLU and APA must do on a GPU before they are trusted there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from companion.apa.op import aglu, apa
from companion.operators import KERNEL_DTYPES
from companion.proofs.trial import Comparison, compared, inputs

#: What tests/apa/test_accuracy.py allows: of the result, two units in the last place for 16 bits; of its terms.
RELATIVE = {torch.float32: 2e-5, torch.float16: 2 * 2**-10, torch.bfloat16: 2 * 2**-7}
OF_TERMS = 1e-6

#: Shape, channels (none: one pair of parameters for everything), and whether all begins inside a pack.
CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], bool], ...] = (
    ((1001,), (), False),  # a row: packs, and single elements behind them
    ((3, 7, 77), (7,), False),  # rows that begin anywhere in a pack,
    ((40, 7, 3), (7,), False),  # that end before the first pack, and so many that their sums take two warps,
    ((1, 2, 2100), (2,), False),  # of several chunks,
    ((1, 3, 40), (3,), True),  # beside results that begin with a pack
    ((9, 7), (7,), False),  # columns, one by one,
    ((70, 16), (16,), False),  # in packs, several chunks of them,
    ((9, 16), (16,), True),  # one by one, though there are whole packs of them
)
#: Parameters of the first channel, of the second, and so on: ordinary ones, a negative gain, a large one, limits, NaN.
KAPPAS = (0.75, 1.25, -0.5, 60.0, 1.0, 1.0, 1.0)
LAMS = (0.5, 1.0, 2.0, 0.75, 0.0, math.inf, -1.0)


def exercise(device: str) -> Iterator[Comparison]:
    """Every kernel of ``aglu.cu``."""
    for dtype in KERNEL_DTYPES:
        for function in (aglu, apa):
            name = function.__name__
            for shape, channels, shifted in CASES:
                operands = inputs(*shape, dtype=dtype), parameter(KAPPAS, *channels), parameter(LAMS, *channels)
                f = partial(function, dim=1 if channels else 0)
                yield from compared(name, f, operands, device, RELATIVE, OF_TERMS, shifted=shifted)
            numbers = partial(function, kappa=KAPPAS[0], lam=LAMS[0])
            yield from compared(name, numbers, (inputs(50, dtype=dtype),), device, RELATIVE, OF_TERMS)


def parameter(numbers: tuple[float, ...], *channels: int) -> Tensor:
    """A number for each channel, in turn."""
    count = torch.Size(channels).numel()
    return torch.tensor(numbers, dtype=torch.float32).repeat(count // len(numbers) + 1)[:count].view(channels)
