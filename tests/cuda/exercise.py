"""Every kernel of APA and LayerAct, forward and backward, where packs begin and end at odd places.

``python -m tests.cuda.exercise layeract cuda`` is what a sanitizer watches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor

from companion.functional import aglu, apa, la_hardsilu, la_silu

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

#: One row or many, shorter than a pack, in lanes, in a block, in several blocks.
ROWS = ((1, 3), (7, 33), (5, 1000), (5, 1500), (3, 9001), (2, 70_001))


def shifted(*shape: int, dtype: torch.dtype, device: str) -> Tensor:
    """Random numbers that begin one element after a pack does."""
    size = torch.Size(shape).numel()
    return torch.randn(size + 1, device=device).to(dtype)[1:].view(shape)


def differentiate(function: Callable[..., Tensor], *arguments: Tensor) -> None:
    """One forward and one backward pass."""
    leaves = [argument.detach().requires_grad_() for argument in arguments]
    f = function(*leaves)
    torch.autograd.grad(f, leaves, torch.ones_like(f))


def exercise_apa(device: str) -> None:
    """One pair of parameters for everything, and one for each channel."""
    for dtype in DTYPES:
        for function in (aglu, apa):
            for shape, parameters in (((1001,), ()), ((3, 5, 77), (5,)), ((2, 4, 3000), (4,)), ((9, 5), (5,))):
                z = shifted(*shape, dtype=dtype, device=device)
                kappa, lam = (1 + torch.rand(parameters, device=device) for _ in range(2))
                differentiate(function, z, kappa, lam)


def exercise_layeract(device: str) -> None:
    """Rows of every length that has a kernel of its own."""
    for dtype in DTYPES:
        for function in (la_silu, la_hardsilu):
            for rows, length in ROWS:
                differentiate(function, shifted(rows, length, dtype=dtype, device=device))


EXERCISES = {"apa": exercise_apa, "layeract": exercise_layeract}

if __name__ == "__main__":
    EXERCISES[sys.argv[1]](sys.argv[2])
    if sys.argv[2] == "cuda":
        torch.cuda.synchronize()
