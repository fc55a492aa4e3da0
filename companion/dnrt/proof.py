"""What the kernels of RAA and ARR must do on a GPU before they are trusted there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from companion.dnrt.held import held
from companion.dnrt.layers import ARR
from companion.dnrt.means import follow
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


# --- ARR -------------------------------------------------------------------------------------------------------------

#: Samples, elements, classes and the widths of layers: one of each; single elements; packs; more samples than a block
#: lists at once, of a class that goes on and of many that begin late; more columns than four blocks have threads for.
ARRS: tuple[tuple[int, int, int, tuple[int, ...] | None], ...] = (
    (1, 1, 1, None),
    (300, 5, 3, (2, 3)),
    (300, 16, 2, None),
    (520, 8, 400, (4, 4)),
    (5, 1027, 2, None),
    (9, 8216, 2, (8000, 216)),
)
RULES: tuple[tuple[Literal["before", "after"], Literal["first", "zero"], float], ...] = (
    ("before", "first", 0.25),
    ("after", "first", 0.75),
    ("before", "zero", 1.0),
    ("after", "zero", 0.0),
)


def arr(device: str) -> Iterator[Comparison]:
    """Every kernel of ``arr.cu``."""
    for dtype in KERNEL_DTYPES:
        for samples, dim, classes, widths in ARRS:
            for read, init, momentum in RULES:
                layer = partial(ARR, classes, dim, momentum, read, init)
                x = inputs(samples, dim, dtype=dtype)
                target = torch.arange(samples) ** 2 % classes
                yield from _followed(layer, x, target, widths, device)
        for dim in (5, 16):
            x = inputs(11, dim, dtype=dtype)
            x[0, 3], x[4, dim - 1] = math.inf, math.nan  # the first of its class, and one among others
            yield from _followed(partial(ARR, 2, dim), x, torch.arange(11) % 2, None, device)
            part = inputs(5, dim, dtype=dtype)
            yield from compared("arr, a part of a batch", _part, (part,), device, RELATIVE, OF_LOSS)
            # every class has one sample, and not all are finite
            yield from _followed(partial(ARR, 11, dim), x, torch.arange(11), None, device)


#: Of the terms of a loss: its means take as many roundings as a class has samples.
OF_LOSS = 4e-6


def _followed(
    layer: Callable[[], ARR], x: Tensor, target: Tensor, widths: tuple[int, ...] | None, device: str
) -> Iterator[Comparison]:
    """Two batches, the second with another class for each sample: its loss and gradient, and the means after it."""
    states = []

    def loss(x: Tensor) -> Tensor:
        module, there = layer().to(x.device), target.to(x.device)
        module.loss(x.detach(), there, widths)
        states.append(module)
        return module.loss(x, there.flip(0), widths)

    signal = torch.tensor(0.5)
    case = f"arr, {layer().extra_repr()}"
    yield from compared(case, loss, (x,), device, RELATIVE, OF_LOSS, signal=signal)
    exact, found = states[-1], states[-2]
    means = exact.mean.double()
    yield Comparison(f"{case}: the means", found.mean, means, torch.full_like(means, 4 * OF_LOSS))
    yield Comparison(f"{case}: the classes with a mean", found.seen, exact.seen.double(), torch.zeros(len(means)))


def _part(x: Tensor) -> Tensor:
    """The samples of one process among those of several."""
    around = inputs(11 - len(x), x.shape[1]).to(x)
    batch, own = torch.cat([around[:3], x.detach(), around[3:]]), slice(3, 3 + len(x))
    target = torch.arange(11, device=x.device) % 3
    mean, seen = torch.zeros(3, x.shape[1], device=x.device), torch.zeros(3, dtype=torch.bool, device=x.device)
    if x.dtype == torch.float64:
        return (x - follow(batch, target, mean.double(), seen, 0.25, True).before[own]).abs().mean()
    return held(x, batch, target, own, mean, seen, None, 0.25, True, False, not x.is_cuda)
