"""DNRT: its functions as formulas in double precision, calls that nobody chose, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

import companion.dnrt.reference
from companion.functional import arr_loss, raa
from tests.drawing import NO_DIM, Case, Drawn, numbers, shapes

GATES = {
    "gelu": lambda u: torch.erfc(-u / math.sqrt(2)) / 2,
    "silu": torch.sigmoid,
    "relu": lambda u: torch.where(u.isnan(), u, (u > 0).double()),
}


def formula_raa(x: Tensor, weight: Tensor, bias: Tensor, gate: Any = "gelu", dim: int = -1) -> Tensor:
    x = x.movedim(dim, -1)
    u = x + (x * weight).sum(-1, keepdim=True) + bias.view(())
    return (x * GATES.get(gate, gate)(u)).movedim(-1, dim)


def formula_arr_loss(x: Tensor, mean: Tensor) -> Tensor:
    return (x - mean).abs().sum(-1) / x.shape[-1]


@st.composite
def of_raa(draw: Any) -> Case:
    shape = draw(shapes(1))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    gate = draw(st.sampled_from(("gelu", "silu", "relu", torch.atan)))
    x, weight = draw(numbers(shape)), draw(numbers((shape[dim],)))
    return Case("raa", (x, weight, draw(numbers(draw(st.sampled_from(((1,), ())))))), (("gate", gate), ("dim", dim)))


@st.composite
def of_arr_loss(draw: Any) -> Case:
    shape = draw(shapes(1).filter(lambda shape: shape[-1] > 0))
    ones = draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    mean = [1 if one else n for one, n in zip(ones, shape, strict=True)]
    return Case("arr_loss", (draw(numbers(shape)), draw(numbers(mean[draw(st.integers(0, len(mean))) :]))))


PIECES = companion.dnrt.reference, "CHUNK", 16
DRAWN = {
    "raa": Drawn(
        raa,
        formula_raa,
        of_raa(),
        "x weight bias",
        {"dim": (*NO_DIM, 9, -9), "gate": ("tanh", nn.Tanh, None, 3)},
        PIECES,
    ),
    "arr_loss": Drawn(
        arr_loss,
        formula_arr_loss,
        of_arr_loss(),
        "x mean",
        {"mean": (torch.zeros(7), torch.zeros(1, 1, 1, 1, 1))},  # no such size is drawn
        PIECES,
        magnitudes=lambda x, mean: (x + mean).mean(-1),
        broadcasts=True,
    ),
}
