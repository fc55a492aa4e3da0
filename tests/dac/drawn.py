"""DAC: its functions as formulas in double precision, calls that nobody chose, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import companion.dac.op
from companion.functional import dac_conv2d, dac_linear
from tests.drawing import Case, Drawn, as_narrow, numbers, shapes, sizes

PHI = {
    "relu": torch.relu,
    "leaky_relu": lambda x: torch.where(x > 0, x, 0.01 * x),
    "elu": lambda x: torch.where(x > 0, x, torch.expm1(torch.where(x > 0, 0.0, x))),
    "relu6": lambda x: torch.where(x <= 0, 0.0, torch.where(x >= 6, 6.0, x)),
    "silu": lambda x: x * torch.sigmoid(x),
    "hardswish": lambda x: torch.where(x <= -3, 0.0, torch.where(x >= 3, x, x * (x + 3) / 6)),
    "gelu": lambda x: x * torch.erfc(-x / math.sqrt(2)) / 2,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": lambda x: -F.logsigmoid(-x),
    "identity": lambda x: x,
}


def formula_dac_linear(z: Tensor, weight: Tensor, bias: Tensor, activation: Any = "relu") -> Tensor:
    return (weight * PHI.get(activation, activation)(bias + z.unsqueeze(-2))).sum(-1)


def formula_dac_conv2d(
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    activation: Any = "relu",
    pad_order: str = "after",
) -> Tensor:
    if z.ndim == 3:
        given = stride, padding, dilation, groups, activation, pad_order
        return formula_dac_conv2d(z[None], weight, bias, *given)[0]
    size = weight.shape[2:]
    (sh, sw), (dh, dw) = (x if isinstance(x, tuple) else (x, x) for x in (stride, dilation))
    if isinstance(padding, str):
        padding = tuple(d * (k - 1) // 2 if padding == "same" else 0 for d, k in zip((dh, dw), size, strict=True))
    ph, pw = padding if isinstance(padding, tuple) else (padding, padding)
    around = (pw, pw, ph, ph)
    padded, inside = F.pad(z, around), F.pad(torch.ones_like(z[:1, :1]), around)
    inside = torch.ones_like(inside) if pad_order == "before" else inside
    h, w = ((n - d * (k - 1) - 1) // s for n, d, k, s in zip(padded.shape[2:], (dh, dw), size, (sh, sw), strict=True))
    total: Any = 0.0
    for a in range(size[0]):
        for b in range(size[1]):
            at = (..., slice(a * dh, a * dh + h * sh + 1, sh), slice(b * dw, b * dw + w * sw + 1, sw))
            near = padded[at].unflatten(1, (groups, 1, -1))  # N, groups, 1, m/groups, H', W'
            bias_ab, weight_ab = (
                x.unflatten(0, (groups, -1))[..., None, None]
                for x in (bias if bias.ndim == 2 else bias[..., a, b], weight[..., a, b])
            )
            active = PHI.get(activation, activation)(bias_ab + near) * inside[at][:, None, None]
            total = total + (weight_ab * active).sum(3)
    result: Tensor = total.flatten(1, 2)
    return result


activations = st.sampled_from((*["relu"] * 6, *PHI, torch.sin))


@st.composite
def of_dac_linear(draw: Any) -> Case:
    shape = draw(shapes(1))
    pairs = (draw(sizes), shape[-1])
    z, weight, bias = draw(numbers(shape)), draw(numbers(pairs)), draw(numbers(pairs))
    return Case("dac_linear", as_narrow(z, weight, bias), (("activation", draw(activations)),))


@st.composite
def of_dac_conv2d(draw: Any) -> Case:
    groups = draw(st.sampled_from((1, 1, 2, 3)))
    n, m = draw(st.sampled_from((1, 2, 0))), draw(st.sampled_from((1, 2, 3)))
    kernel = draw(st.sampled_from(((3, 3), (1, 1), (2, 3), (3, 1))))
    ones = st.sampled_from((1, 2, (1, 2), (2, 1)))
    stride, dilation = draw(ones), draw(ones)
    same = stride == 1 and all(k % 2 for k in kernel)
    padding = draw(st.sampled_from((0, 1, (0, 1), (2, 1), "valid", *(("same",) if same else ()))))
    image = tuple(draw(st.integers(3 if k == 1 else 5, 6)) for k in kernel)  # 1 + 2 · (3 − 1)
    shape = (*draw(st.sampled_from(((), (1,), (2,), (0,)))), m * groups, *image)
    weight = draw(numbers((n * groups, m, *kernel)))
    bias = draw(numbers(draw(st.sampled_from((weight.shape[:2], weight.shape)))))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    options |= {"activation": draw(activations), "pad_order": draw(st.sampled_from(("after", "before")))}
    return Case("dac_conv2d", as_narrow(draw(numbers(shape)), weight, bias), tuple(options.items()))


def simulated(case: Case) -> Case:
    """The kernels know ReLU alone, and parameters of the input's dtype."""
    options = {**dict(case.options), "activation": "relu"}
    z, *others = case.operands
    return replace(case, operands=as_narrow(z, *others), options=tuple(options.items()))


def of_magnitudes(formula: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The sum of what is added up, z and b apart: no activation takes anything away."""
    return lambda *operands, **options: formula(*operands, **options | {"activation": "identity"})


NO_ACTIVATION = ("none", nn.ReLU, None, 3)
DRAWN = {
    "dac_linear": Drawn(
        dac_linear,
        formula_dac_linear,
        of_dac_linear(),
        "z weight bias",
        {"activation": NO_ACTIVATION},
        (companion.dac.op, "SMALL", 0),
        simulated,
        magnitudes=of_magnitudes(formula_dac_linear),
        casts=True,
    ),
    "dac_conv2d": Drawn(
        dac_conv2d,
        formula_dac_conv2d,
        of_dac_conv2d(),
        "z weight bias",
        {
            "activation": NO_ACTIVATION,
            "stride": (0, -1, (1, 0), (1, 1, 1), (), 1.5, True, "1", None, 2**31),
            "dilation": (0, (1, -1), (1,), 1.5, None),
            "padding": (-1, (0, -1), "full", (1, 1, 1), 0.5, None),
            "groups": (0, -1, 1.5, "1", None, True),
            "pad_order": ("between", None, 3),
        },
        (companion.dac.op, "SMALL", 0),
        simulated,
        magnitudes=of_magnitudes(formula_dac_conv2d),
        casts=True,
    ),
}
