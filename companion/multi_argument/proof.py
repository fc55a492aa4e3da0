"""What the kernels of multi-argument neurons must do on a GPU before they are trusted there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from companion.multi_argument.op import multi_argument, quadratic_form
from companion.operators import KERNEL_DTYPES, compute_dtype
from companion.proofs.trial import Comparison, compared, inputs, signals

Shape = tuple[tuple[int, ...], int, int]
FormShape = tuple[tuple[int, ...], int]

RELATIVE = {torch.float32: 2**-24, torch.float16: 2**-11, torch.bfloat16: 2**-8}
#: What tests/multi_argument/test_kernel.py allows: tensor cores round what goes back to the first layer.
OF_TERMS = {torch.float32: 1e-6, torch.float16: 2**-10, torch.bfloat16: 2**-7}

#: Shape, dim and arity: one unit, rows, maps, numbers of arguments.
SHAPES: tuple[Shape, ...] = (
    ((1, 2), -1, 2),
    ((131, 14), -1, 2),
    ((2, 6, 5, 7), 1, 3),
    ((9, 5), -1, 5),
    ((3, 16, 33), 1, 8),
)
#: More units than all blocks together take at once on the way back.
MANY: dict[torch.dtype, tuple[Shape, ...]] = {
    torch.float32: (((17_000, 1), -1, 1),),
    torch.bfloat16: (((34_000, 1), -1, 1),),
}
#: Of the quadratic form: single units and packs, of rows and of maps.
FORM_SHAPES: tuple[FormShape, ...] = (((3, 14), -1), ((16, 8), -1), ((2, 6, 5, 7), 1), ((3, 2, 4, 8), 1))
MANY_FORMS: dict[torch.dtype, tuple[FormShape, ...]] = {torch.float32: (((1_100_000, 2), -1),)}


def network(device: str) -> Iterator[Comparison]:
    """Every kernel of ``inner.cu`` and ``inner_mma.cu``."""
    for dtype in KERNEL_DTYPES:
        for shape, dim, arity in SHAPES + MANY.get(dtype, ()):

            def function(x: Tensor, *parameters: Tensor, arity: int = arity, dim: int = dim) -> Tensor:
                return multi_argument(x, parameters[::2], parameters[1::2], arity, dim)

            operands = (odd(*shape, count=4, unit=1 / 2).to(dtype), *parameters_of(arity))
            yield from compared("multi_argument", function, operands, device, RELATIVE, OF_TERMS[dtype])
        x = odd(9, 4, count=4, unit=1 / 2).to(dtype)
        yield from compared("multi_argument", _of_arguments, (x,), device, RELATIVE, OF_TERMS[dtype])


def _of_arguments(x: Tensor) -> Tensor:
    """With parameters that learn nothing: their sums are left out."""
    parameters = [parameter.to(x.device, compute_dtype(x.dtype)) for parameter in parameters_of(2)]
    return multi_argument(x, parameters[::2], parameters[1::2], 2)


def form(device: str) -> Iterator[Comparison]:
    """Every kernel of ``quadratic.cu``."""
    for dtype in KERNEL_DTYPES:
        for shape, dim in FORM_SHAPES + MANY_FORMS.get(dtype, ()):
            operands = inputs(*shape, dtype=dtype), signals(6)
            function = partial(quadratic_form, arity=2, dim=dim)
            yield from compared("quadratic_form", function, operands, device, RELATIVE, 1e-6)


def parameters_of(arity: int) -> list[Tensor]:
    """Weight and bias of each layer: of so few bits that bfloat16 holds all hidden numbers, and none of them is 0."""
    return [
        odd(64, arity, count=4, unit=1 / 4),
        odd(64, count=16, unit=1 / 16),
        odd(64, 64, count=8, unit=1 / 16),
        odd(64, count=256, unit=1 / 512),
        odd(1, 64, count=8, unit=1 / 8),
        odd(1, count=8, unit=1 / 8),
    ]


def odd(*shape: int, count: int, unit: float) -> Tensor:
    """Odd multiples of a unit, ``count`` different ones around 0, in an order without a pattern."""
    n = torch.arange(torch.Size(shape).numel(), dtype=torch.int64)
    return ((2 * (n * n * 7919 // 1021 % count) - count + 1) * unit).view(shape)
