"""Two arguments: its functions as formulas in double precision, calls that nobody chose, and what is refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

import companion.multi_argument.reference
from companion.functional import multi_argument, quadratic_form
from tests.drawing import NO_DIM, Case, Drawn, Numbers, numbers, shapes


def _units(x: Tensor, arity: int, dim: int) -> Tensor:
    """The arguments of a unit along the last dimension."""
    return x.movedim(dim, -1).unflatten(-1, (x.shape[dim] // arity, arity))


def formula_multi_argument(x: Tensor, *parameters: Tensor, arity: int, dim: int = -1) -> Tensor:
    h = _units(x, arity, dim)
    for k, (weight, bias) in enumerate(zip(parameters[::2], parameters[1::2], strict=True)):
        h = torch.relu(h) if k else h
        h = (h.unsqueeze(-2) * weight).sum(-1) + bias
    return h.squeeze(-1).movedim(-1, dim)


def formula_quadratic_form(x: Tensor, coefficients: Tensor, arity: int, dim: int = -1) -> Tensor:
    a, c = _units(x, arity, dim).unbind(-1), coefficients
    products = [a[i] * a[j] for i in range(arity) for j in range(i + 1, arity)]
    y = sum(c[k] * term for k, term in enumerate([*(each * each for each in a), *products, *a]))
    return (y + c[-1]).movedim(-1, dim)


def _multi_argument(x: Tensor, *parameters: Tensor, arity: int, dim: int = -1) -> Tensor:
    """With weights and biases in turn: operands are tensors."""
    return multi_argument(x, parameters[::2], parameters[1::2], arity, dim)


@st.composite
def of_units(draw: Any) -> tuple[Numbers, dict[str, int]]:
    """The arguments of some units: how many of each, and where they lie."""
    arity, shape = draw(st.sampled_from((2, 1, 2, 3))), list(draw(shapes(1, 3)))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    shape[dim] *= arity
    return draw(numbers(shape)), {"arity": arity, "dim": dim}


@st.composite
def of_multi_argument(draw: Any) -> Case:
    x, options = draw(of_units())
    # 64 twice is what the kernels know
    widths = [options["arity"], *draw(st.sampled_from(((3,), (64, 64), (4, 2), (1,), (64, 64), (5, 3, 2)))), 1]
    parameters = []
    for inputs, outputs in itertools.pairwise(widths):
        # at a kink where rounding decides there is no slope to compare
        parameters.append(draw(numbers((outputs, inputs), kind=draw(st.sampled_from(("normal", "normal", "shifted"))))))
        parameters.append(draw(numbers((outputs,), kind=draw(st.sampled_from(("normal", "equal", "zeros"))))))
    return Case("multi_argument", (x, *parameters), tuple(options.items()))


@st.composite
def of_quadratic_form(draw: Any) -> Case:
    x, options = draw(of_units())
    coefficients = draw(numbers(((options["arity"] + 1) * (options["arity"] + 2) // 2,)))
    return Case("quadratic_form", (x, coefficients), tuple(options.items()))


def on_tensor_cores(case: Case) -> bool:
    """Whether the kernel rounds weights and hidden numbers to the 16 bits of the input."""
    sixteen = case.backend == "simulator" and case.dtype in (torch.bfloat16, torch.float16)
    return sixteen and [x.shape[0] for x in case.operands[1:] if isinstance(x, Numbers)] == [64, 64, 64, 64, 1, 1]


def simulated(case: Case) -> Case:
    """Where hidden numbers have 16 bits, which ReLUs are off depends on them, and so does every gradient."""
    if not on_tensor_cores(replace(case, backend="simulator")):
        return case
    modest = (replace(x, size=min(x.size, 1.0), needs_grad=False) for x in case.operands if isinstance(x, Numbers))
    return replace(case, operands=tuple(modest))


WRONG = {"arity": (0, -1, 7, 1.5, "1", None, True), "dim": (*NO_DIM, 9, -9)}
PIECES = companion.multi_argument.reference, "CHUNK", 16
DRAWN = {
    "multi_argument": Drawn(
        _multi_argument, formula_multi_argument, of_multi_argument(), "x", WRONG, PIECES, simulated, on_tensor_cores
    ),
    "quadratic_form": Drawn(
        quadratic_form, formula_quadratic_form, of_quadratic_form(), "x coefficients", WRONG, PIECES
    ),
}
