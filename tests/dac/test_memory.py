"""What a forward and backward pass holds beyond its operands.

The activations of all samples, outputs, inputs and positions together would be 128 MiB at least in each of these
cases.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from companion.functional import dac_conv2d, dac_linear
from tests.memory import peak

Call = Callable[[Tensor, Tensor, Tensor], Tensor]

ROWS = ((2048, 128), (128, 128), (128, 128))
IMAGES = ((8, 32, 32, 32), (32, 32, 3, 3), (32, 32))
IMAGES_PER_WEIGHT = (*IMAGES[:2], IMAGES[1])


def dense(activation: str | Callable[[Tensor], Tensor]) -> Call:
    return lambda z, weight, bias: dac_linear(z, weight, bias, activation)


def behind_a_norm(activation: str) -> Call:
    """Its inputs have a price, and what is dear a compiler likes to keep."""
    return lambda z, weight, bias: dac_linear(
        F.batch_norm(z, None, None, bias[0], bias[1], True), weight, bias, activation
    )


def convolution(activation: str | Callable[[Tensor], Tensor]) -> Call:
    return lambda z, weight, bias: dac_conv2d(z, weight, bias, padding=1, activation=activation)


def materialised(phi: Callable[[Tensor], Tensor]) -> Call:
    """What must not be held: the test of the test."""
    return lambda z, weight, bias: (weight * phi(z[:, None] + bias)).sum(-1)


def measured(
    call: Call, sizes: tuple[tuple[int, ...], ...], dtype: torch.dtype = torch.float32, *, twice: bool = False
) -> tuple[float, float]:
    """What the passes hold at most, and the sizes of operands and output together, in MiB."""
    operands = [torch.randn(s, dtype=dtype).requires_grad_() for s in sizes]
    outputs = []

    def passes() -> None:
        f = call(*operands)
        outputs.append(f.detach())
        if twice:
            gradients = torch.autograd.grad(f.square().sum(), operands, create_graph=True)
            sum((g.square().sum() for g in gradients), torch.zeros(())).backward()
        else:
            f.sum().backward()

    held = peak(passes)
    return held, sum(x.numel() * x.element_size() for x in [*operands, *outputs]) / 2**20


@pytest.mark.parametrize(
    ("call", "sizes", "dtype"),
    [
        (dense("relu"), ROWS, torch.float32),
        (dense("relu"), ROWS, torch.bfloat16),
        (dense("gelu"), ROWS, torch.float32),
        (dense(torch.tanh), ROWS, torch.float32),
        (convolution("relu"), IMAGES, torch.float32),
        (convolution("relu"), IMAGES, torch.bfloat16),
        (convolution("silu"), IMAGES, torch.float32),
        (convolution("relu"), IMAGES_PER_WEIGHT, torch.float32),
        (convolution(torch.tanh), IMAGES, torch.float32),
    ],
    ids=[
        "dense",
        "dense, bfloat16",
        "dense, gelu",
        "dense, a function",
        "convolution",
        "convolution, bfloat16",
        "convolution, silu",
        "convolution, bias per weight",
        "convolution, a function",
    ],
)
def test_the_activations_are_never_held_together(
    call: Call, sizes: tuple[tuple[int, ...], ...], dtype: torch.dtype
) -> None:
    held, operands = measured(call, sizes, dtype)
    assert held <= 2 * operands + 16


@pytest.mark.parametrize(
    ("call", "sizes"),
    [
        (dense("relu"), ROWS),
        (dense("leaky_relu"), ROWS),
        (dense("identity"), ROWS),
        (dense("gelu"), ROWS),
        *((behind_a_norm(name), ROWS) for name in ("relu", "leaky_relu")),
        (convolution("relu"), IMAGES),
        (convolution("silu"), IMAGES),
    ],
    ids=[
        *("dense", "dense, leaky_relu", "dense, identity", "dense, gelu"),
        *("behind a norm", "behind a norm, leaky_relu"),
        *("convolution", "convolution, silu"),
    ],
)
def test_nor_where_the_layer_is_compiled(call: Call, sizes: tuple[tuple[int, ...], ...]) -> None:
    function = torch.compile(call, fullgraph=True)
    measured(function, sizes)  # the compiler's own
    held, operands = measured(function, sizes)
    assert held <= 2 * operands + 16


def test_the_measure_sees_the_activations_where_they_are_held() -> None:
    held, _ = measured(materialised(torch.relu), ROWS)
    assert held >= 128


@pytest.mark.parametrize(("activation", "phi"), [("relu", torch.relu), ("silu", F.silu)], ids=["relu", "silu"])
def test_second_derivatives_hold_hardly_more_than_those_of_the_formula(
    activation: str, phi: Callable[[Tensor], Tensor]
) -> None:
    few = ((512, 128), *ROWS[1:])
    held, _ = measured(dense(activation), few, twice=True)
    formula, _ = measured(materialised(phi), few, twice=True)
    assert held <= 1.6 * formula
