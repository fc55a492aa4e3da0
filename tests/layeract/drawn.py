"""LayerAct: its functions as formulas in double precision, calls that nobody chose, and what is refused."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import hypothesis
import torch
from hypothesis import strategies as st
from torch import Tensor

import companion.layeract.reference
from companion.functional import la_hardsilu, la_silu, layer_act
from tests.drawing import INF, NAN, Case, Drawn, numbers, shapes


def formula_layer_act(
    y: Tensor, scale: str = "sigmoid", alpha: float = 1e-5, dims: Any = None, unbiased: bool = False
) -> Tensor:
    dims = (tuple(range(1, y.ndim)) or (0,)) if dims is None else dims
    variance, mean = torch.var_mean(y, dims, correction=int(unbiased), keepdim=True)
    n = (y - mean) / torch.sqrt(variance + alpha)
    return y * (torch.sigmoid(n) if scale == "sigmoid" else (n / 6 + 0.5).clamp(0, 1))


@st.composite
def of_layer_act(draw: Any, name: str) -> Case:
    shape = draw(shapes(1))
    several = st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape), unique=True).map(tuple)
    dims = draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1), several))
    unbiased = draw(st.booleans())
    within = [dims] if isinstance(dims, int) else (range(1, len(shape)) or [0]) if dims is None else dims
    row = math.prod([shape[d] for d in within])
    hypothesis.assume(row > unbiased)
    options = {"alpha": draw(st.sampled_from((1e-5, 0.1, 1, 100.0))), "dims": dims, "unbiased": unbiased}
    if name == "layer_act":
        options["scale"] = draw(st.sampled_from(("sigmoid", "hardsigmoid")))
    # of a row of one large number the formula's own derivative is a difference of much larger ones
    y = draw(numbers(shape, **({"size": 1.0} if row == 1 else {})))
    return Case(name, (y,), tuple(options.items()))


WRONG = {
    "alpha": (0.0, -1e-5, INF, NAN, "1", None, True),
    "dims": ((), (0, 0), 9, -9, (0, 9), 1.5, "0", (True,)),
    "unbiased": (2, "yes", None),
}
PIECES = companion.layeract.reference, "CHUNK", 16
DRAWN = {
    name: Drawn(function, formula, of_layer_act(name), "y", WRONG, PIECES)
    for name, function, formula in (
        ("layer_act", layer_act, formula_layer_act),
        ("la_silu", la_silu, partial(formula_layer_act, scale="sigmoid")),
        ("la_hardsilu", la_hardsilu, partial(formula_layer_act, scale="hardsigmoid")),
    )
}
