"""Every public function at operands that nobody chose: `make zoo` draws two thousand cases, the tests some.

What is expected is written here a second time, as the formula in double precision. How far a result may be from it is
what a small relative change of the operands does to the exact result, and some units of the last place.
``python -m tests.fuzz SEED`` draws the same cases again.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest import mock

import hypothesis
import torch
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import companion
from companion.functional import (
    aglu,
    apa,
    arr_loss,
    dac_conv2d,
    dac_linear,
    la_hardsilu,
    la_silu,
    layer_act,
    multi_argument,
    quadratic_form,
    raa,
)

INF, NAN = math.inf, math.nan

#: Relative errors of a result, and the relative change of the operands that stands for rounding on the way.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3}
ROUNDING = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 1e-6, torch.float16: 1e-6}
CHANGES, TIMES = 4, 20
#: What rounding on the way is on tensor cores, where the numbers between two layers have 16 bits.
NARROW = {torch.bfloat16: 2e-3, torch.float16: 2.5e-4}

# --- the mathematics, for float64 ------------------------------------------------------------------------------------


def _minus_log_eta(a: Tensor, lam: Tensor) -> Tensor:
    """ln(1 + λ e^(−a))/λ: a series where t = λ e^(−a) is small, λ = 0 among it."""
    u = torch.exp(-a.clamp_min(-200))  # e^(−u) has long been 0
    a, lam = torch.broadcast_tensors(a, lam)
    small = (lam * u < 0.1) & ((lam == 0) | (a > -200))
    series = torch.zeros_like(u)
    for n in reversed(range(18)):
        series = 1 / (n + 1) - torch.where(small, lam * u, 0.0) * series
    large = torch.where(small, 1.0, lam)
    return torch.where(small, u * series, -F.logsigmoid(torch.where(small, 0.0, a) - large.log()) / large)


def formula_apa(z: Tensor, kappa: Tensor, lam: Tensor, dim: int = 1, gated: bool = False) -> Tensor:
    shape = [-1 if d == dim % max(z.ndim, 1) else 1 for d in range(z.ndim)]
    kappa, lam = (p.view(shape) if p.ndim else p for p in (kappa, lam))
    finite = z.clamp(-1e200, 1e200)
    eta = torch.exp(-_minus_log_eta(kappa * finite, torch.where(lam.isinf(), 1.0, lam)))
    eta = torch.where(lam.isinf() & ~z.isnan(), 1.0, eta)
    eta = torch.where(lam < 0, NAN, eta)
    if not gated:
        return eta
    y = finite * eta
    return torch.where(z.isinf() & (y.abs() > 0), z, y)


def formula_raa(x: Tensor, weight: Tensor, bias: Tensor, gate: Any = "gelu", dim: int = -1) -> Tensor:
    x = x.movedim(dim, -1)
    u = x + (x * weight).sum(-1, keepdim=True) + bias.view(())
    return (x * GATES.get(gate, gate)(u)).movedim(-1, dim)


GATES = {
    "gelu": lambda u: torch.erfc(-u / math.sqrt(2)) / 2,
    "silu": torch.sigmoid,
    "relu": lambda u: torch.where(u.isnan(), u, (u > 0).double()),
}


def formula_arr_loss(x: Tensor, mean: Tensor) -> Tensor:
    return (x - mean).abs().sum(-1) / x.shape[-1]


def formula_layer_act(
    y: Tensor, scale: str = "sigmoid", alpha: float = 1e-5, dims: Any = None, unbiased: bool = False
) -> Tensor:
    dims = (tuple(range(1, y.ndim)) or (0,)) if dims is None else dims
    variance, mean = torch.var_mean(y, dims, correction=int(unbiased), keepdim=True)
    n = (y - mean) / torch.sqrt(variance + alpha)
    return y * (torch.sigmoid(n) if scale == "sigmoid" else (n / 6 + 0.5).clamp(0, 1))


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


#: The function and its formula.
FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "apa": (apa, formula_apa),
    "aglu": (aglu, partial(formula_apa, gated=True)),
    "raa": (raa, formula_raa),
    "arr_loss": (arr_loss, formula_arr_loss),
    "layer_act": (layer_act, formula_layer_act),
    "la_silu": (la_silu, partial(formula_layer_act, scale="sigmoid")),
    "la_hardsilu": (la_hardsilu, partial(formula_layer_act, scale="hardsigmoid")),
    "dac_linear": (dac_linear, formula_dac_linear),
    "dac_conv2d": (dac_conv2d, formula_dac_conv2d),
    "multi_argument": (_multi_argument, formula_multi_argument),
    "quadratic_form": (quadratic_form, formula_quadratic_form),
}

# --- what is drawn ---------------------------------------------------------------------------------------------------

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
LAYOUTS = ("contiguous", "transposed", "channels last", "expanded", "every other", "misaligned")
SPECIAL = (INF, -INF, NAN, 0.0, -0.0, 1e-30, -1e-30, 3e38, -3e38, 60000.0)


@dataclass(frozen=True)
class Numbers:
    """A tensor, so short that a failing example can be read."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str = "contiguous"
    kind: str = "normal"
    size: float = 1.0
    positive: bool = False
    needs_grad: bool = False
    seed: int = 0

    def made(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        x = torch.randn(self.shape, dtype=torch.float64, generator=generator)
        match self.kind:
            case "integers":
                x = x.mul(2).round()
            case "shifted":
                x = x + 30
            case "equal":
                x = torch.ones_like(x)
            case "zeros":
                x = torch.zeros_like(x)
        x = (x.abs() if self.positive else x) * self.size
        if self.kind == "special":
            chosen = torch.tensor(SPECIAL, dtype=torch.float64)
            pick = torch.randint(2 * len(SPECIAL), self.shape, generator=generator)
            x = torch.where(pick < len(SPECIAL), chosen[pick % len(SPECIAL)], x)
        return _laid(x.to(self.dtype), self.layout).requires_grad_(self.needs_grad)


def _laid(x: Tensor, layout: str) -> Tensor:
    """The numbers in another order of memory; expanded, a few of them."""
    match layout:
        case "transposed":
            return x.mT.contiguous().mT if x.ndim > 1 else x
        case "channels last":
            return x.movedim(1, -1).contiguous().movedim(-1, 1) if x.ndim > 1 else x
        case "expanded":
            return x[:, :1].expand(x.shape) if x.ndim > 1 else x[:1].expand(x.shape) if x.ndim else x
        case "every other":
            return torch.stack([x, x + 1], -1)[..., 0]
        case "misaligned":
            return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)
    return x


@dataclass(frozen=True)
class Case:
    """A call: the function, its operands in order, and what is around it."""

    function: str
    operands: tuple[Numbers | float, ...]
    options: tuple[tuple[str, Any], ...] = ()
    context: str = "none"
    neighbours: str = "none"
    transform: str = "none"
    backend: str = "torch"
    poisoned: bool = False
    in_pieces: bool = False
    seed: int = 0

    @property
    def dtype(self) -> torch.dtype:
        return self.operands[0].dtype  # type: ignore[union-attr]


sizes = st.sampled_from([3, 1, 2, 4, 5, 8, 9, 3, 2, 4, 5, 0])
seeds = st.integers(0, 10**6)
dtypes = st.sampled_from(DTYPES)


@st.composite
def numbers(draw: Any, shape: Sequence[int], dtype: torch.dtype | None = None, **given: Any) -> Numbers:
    dtype = dtype or draw(dtypes)
    given = {
        "layout": draw(st.sampled_from(LAYOUTS)),
        "kind": draw(st.sampled_from(("normal", "normal", "integers", "shifted", "equal", "zeros"))),
        # a product of four such numbers is one of float32
        "size": draw(st.sampled_from((1.0, 0.1, 10.0, 1e-3) + (() if dtype == torch.float16 else (1e-6, 1e4)))),
        "needs_grad": draw(st.sampled_from((True, True, True, False))),
    } | given
    return Numbers(tuple(shape), dtype, seed=draw(seeds), **given)


@st.composite
def shapes(draw: Any, least: int, most: int = 4) -> tuple[int, ...]:
    shape = draw(st.lists(sizes, min_size=least, max_size=most).filter(lambda shape: math.prod(shape) <= 400))
    return tuple(shape)


@st.composite
def of_apa(draw: Any, name: str) -> Case:
    shape = draw(shapes(0))
    dim = draw(st.integers(-len(shape), len(shape) - 1)) if shape else 1
    extreme = draw(st.integers(0, 3)) == 0
    z = draw(numbers(shape, **({"kind": "special", "needs_grad": False} if extreme else {})))
    forms: list[tuple[int, ...]] = [(), (shape[dim],)] if shape else [()]

    def parameter(positive: bool, values: tuple[float, ...]) -> Any:
        # beyond 1e3 the squares in the gradients leave float32
        tensors = st.sampled_from(forms).flatmap(
            lambda form: numbers(
                form,
                positive=positive and not (extreme and form),
                needs_grad=not extreme and draw(st.sampled_from((True, True, True, False))),
                kind=draw(st.sampled_from(("normal", "equal", "zeros"))),
                size=draw(st.sampled_from((1.0, 0.1, 3.0, 1e-3))),
            )
        )
        return draw(st.one_of(st.sampled_from(values), tensors))

    kappa = parameter(False, (1.0, 1.702, 0.1, -2.0, 0.0, 20.0, 3))
    lam = parameter(True, (1.0, 0.0, 0.3, 1e-6, 50.0, 2, *((INF,) if extreme else ())))
    return Case(name, (z, kappa, lam), (("dim", dim),))


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


@st.composite
def of_layer_act(draw: Any, name: str) -> Case:
    shape = draw(shapes(1))
    several = st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape), unique=True).map(tuple)
    dims = draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1), several))
    unbiased = draw(st.booleans())
    within = [dims] if isinstance(dims, int) else (range(1, len(shape)) or [0]) if dims is None else dims
    hypothesis.assume(math.prod([shape[d] for d in within]) > unbiased)
    options = {"alpha": draw(st.sampled_from((1e-5, 0.1, 1, 100.0))), "dims": dims, "unbiased": unbiased}
    if name == "layer_act":
        options["scale"] = draw(st.sampled_from(("sigmoid", "hardsigmoid")))
    return Case(name, (draw(numbers(shape)),), tuple(options.items()))


activations = st.sampled_from((*["relu"] * 6, *PHI, torch.sin))


@st.composite
def of_dac_linear(draw: Any) -> Case:
    shape = draw(shapes(1))
    pairs = (draw(sizes), shape[-1])
    z, weight, bias = draw(numbers(shape)), draw(numbers(pairs)), draw(numbers(pairs))
    return Case("dac_linear", _as_narrow(z, weight, bias), (("activation", draw(activations)),))


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
    return Case("dac_conv2d", _as_narrow(draw(numbers(shape)), weight, bias), tuple(options.items()))


def _as_narrow(z: Numbers, *others: Numbers) -> tuple[Numbers, ...]:
    """Parameters that are cast to float16 hold what it holds."""
    if z.dtype != torch.float16:
        return z, *others
    return z, *(replace(other, size=min(max(other.size, 0.1), 10.0)) for other in others)


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


CALLS: dict[str, st.SearchStrategy[Case]] = {
    **{name: of_apa(name) for name in ("apa", "aglu")},
    "raa": of_raa(),
    "arr_loss": of_arr_loss(),
    **{name: of_layer_act(name) for name in ("layer_act", "la_silu", "la_hardsilu")},
    "dac_linear": of_dac_linear(),
    "dac_conv2d": of_dac_conv2d(),
    "multi_argument": of_multi_argument(),
    "quadratic_form": of_quadratic_form(),
}
calls = st.sampled_from(list(CALLS)).flatmap(CALLS.__getitem__)

CONTEXTS = (*["none"] * 5, "no_grad", "inference_mode", "autocast")
NEIGHBOURS = ("none", "none", "before", "after", "operand")
TRANSFORMS = (*["none"] * 6, "second", "batched", "vmap", "jvp")


@st.composite
def cases(draw: Any) -> Case:
    """A call and what is around it."""
    case: Case = draw(calls)
    special = any(isinstance(x, Numbers) and x.kind == "special" for x in case.operands)
    transform = draw(st.sampled_from(("none", "vmap") if special else TRANSFORMS))
    if transform == "second":  # what is promised of these in float32 has no small numbers among large ones
        # and at a kink there are none
        kind = {"kind": "normal"} if case.function.startswith("dac") else {}
        doubled = (
            replace(x, dtype=torch.float64, size=min(x.size, 1.0), **kind) if isinstance(x, Numbers) else x
            for x in case.operands
        )
        case = replace(case, operands=tuple(doubled))
    if ("activation", "gelu") in case.options:  # torch's own keeps no small numbers: see exact_outcome
        transform = "none"
    around = {} if transform != "none" else {"neighbours": draw(st.sampled_from(NEIGHBOURS))}
    around |= {"context": draw(st.sampled_from(CONTEXTS))} if transform in ("none", "vmap") else {}
    around |= {"poisoned": draw(st.booleans()), "in_pieces": draw(st.booleans()), "seed": draw(seeds)}
    return replace(case, transform=transform, **around)


def on_tensor_cores(case: Case) -> bool:
    """Whether the simulated kernel rounds weights and hidden numbers to the 16 bits of the input."""
    if case.function != "multi_argument" or case.backend != "simulator" or case.dtype not in NARROW:
        return False
    return [x.shape[0] for x in case.operands[1:] if isinstance(x, Numbers)] == [64, 64, 64, 64, 1, 1]


@st.composite
def simulated(draw: Any) -> Case:
    """A call that goes through the kernels, as their source is run by the simulator."""
    case: Case = draw(calls)
    z = replace(case.operands[0], dtype=draw(st.sampled_from([d for d in DTYPES if d != torch.float64])))
    if case.function.startswith("dac"):
        options = dict(case.options) | {"activation": "relu"}
        case = replace(case, operands=_as_narrow(z, *case.operands[1:]), options=tuple(options.items()))
    z = replace(z, size=min(z.size, 10.0))
    case = replace(case, operands=(z, *case.operands[1:]))
    if on_tensor_cores(replace(case, backend="simulator")):
        # hidden numbers have 16 bits; which ReLUs are off depends on them, and so does every gradient
        modest = (replace(x, size=min(x.size, 1.0), needs_grad=False) for x in case.operands if isinstance(x, Numbers))
        case = replace(case, operands=tuple(modest))
    return replace(
        case,
        backend="simulator",
        neighbours=draw(st.sampled_from(NEIGHBOURS)),
        seed=draw(seeds),
    )


# --- what must hold --------------------------------------------------------------------------------------------------


def _tensors(operands: Iterable[Any]) -> list[Tensor]:
    return [x for x in operands if isinstance(x, Tensor)]


def outcome(function: Callable[..., Tensor], operands: Sequence[Any], g: Tensor, case: Case) -> list[Tensor]:
    """What comes out of a call: the value, and what the transform or a backward pass adds."""
    match case.transform:
        case "vmap":
            dims = tuple(0 if isinstance(x, Tensor) else None for x in operands)
            with torch.autocast("cpu", enabled=False):  # it knows no stack of float16
                pairs = [torch.stack([x, x.flip([*range(x.ndim)])]) if isinstance(x, Tensor) else x for x in operands]
            return [torch.func.vmap(function, dims)(*pairs)]
        case "jvp":
            at = [i for i, x in enumerate(case.operands) if isinstance(x, Numbers)]

            def of_tensors(*given: Tensor) -> Tensor:
                every = list(operands)
                for i, x in zip(at, given, strict=True):
                    every[i] = x
                return function(*every)

            detached = tuple(operands[i].detach().clone() for i in at)  # torch refuses expanded ones
            return list(torch.func.jvp(of_tensors, detached, tuple(x.clamp(-1, 1) for x in detached)))
    wanted = [x for x in _tensors(operands) if x.requires_grad]
    used = list(operands)
    if case.neighbours in ("before", "operand"):
        used[0] = used[0].clone()
    if case.neighbours == "before":
        used[0].mul_(1)
    y = function(*used)
    recorded = torch.is_grad_enabled() and not y.is_inference()
    assert y.requires_grad == (bool(wanted) and recorded), "requires_grad"
    if case.neighbours == "operand":
        used[0].zero_()
    if case.neighbours == "after":
        y.neg_()
        g = -g
    if not y.requires_grad:
        return [y]
    if case.transform == "batched":
        g = torch.stack([g, 2 * g])
        return [y, *torch.autograd.grad(y, wanted, g, is_grads_batched=True, materialize_grads=True)]
    if case.transform != "second":
        return [y, *torch.autograd.grad(y, wanted, g, materialize_grads=True)]
    g = g.clone().requires_grad_()
    first = torch.autograd.grad(y, wanted, g, create_graph=True, materialize_grads=True)
    weights = (torch.arange(x.numel(), dtype=x.dtype).view(x.shape) % 3 - 1 for x in first)
    mixed = (0 * g).sum() + sum((w * x).sum(dtype=torch.float64) for w, x in zip(weights, first, strict=True))
    return [y, *first, *torch.autograd.grad(mixed, [*wanted, g], materialize_grads=True)]


def _exact_operands(case: Case, operands: Sequence[Any]) -> list[Tensor]:
    """The numbers that the function computes with, in double precision."""
    z = operands[0]
    parameter = z.dtype if case.function.startswith("dac") else torch.promote_types(z.dtype, torch.float32)
    exact = [
        torch.tensor(float(x), dtype=torch.float64) if not isinstance(x, Tensor) else x.detach().to(parameter)
        for x in operands[1:]
    ]
    return [z.detach().double(), *(x.double() for x in exact)]


def _changed(x: Tensor, by: float, generator: torch.Generator) -> Tensor:
    return x * (1 + by * torch.randn(x.shape, dtype=torch.float64, generator=generator))


def exact_outcome(case: Case, operands: Sequence[Any], g: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """What the formula gives, and how far it moves where the operands move by what rounding does."""
    formula = partial(FUNCTIONS[case.function][1], **dict(case.options))
    given, generator = _exact_operands(case, operands), torch.Generator().manual_seed(case.seed)
    needs = [isinstance(x, Tensor) and x.requires_grad and _records(case) for x in operands]
    plain = replace(case, neighbours="none")
    found = []
    rounding = NARROW[case.dtype] if on_tensor_cores(case) else ROUNDING[case.dtype]
    for by in (0.0, *[rounding] * CHANGES):
        moved = [_changed(x, by, generator).requires_grad_(need) for x, need in zip(given, needs, strict=True)]
        found.append([x.detach() for x in outcome(formula, moved, _changed(g.double(), by, generator), plain)])
    exact, *others = found
    moves = [
        torch.stack([(x - y).abs() for y in ys]).amax(0) for x, ys in zip(exact, zip(*others, strict=True), strict=True)
    ]
    if case.function.startswith("dac"):
        # sums are right to some units of their terms, z and b apart: of what the identity makes of magnitudes
        largest = [x.abs().requires_grad_(need) for x, need in zip(given, needs, strict=True)]
        sums = outcome(partial(formula, activation="identity"), largest, g.double().abs(), plain)
        moves = [move + ROUNDING[case.dtype] * x.detach().abs() for move, x in zip(moves, sums, strict=True)]
    if case.transform == "second":  # sums of terms of which none is much more than 1
        moves = [move + ROUNDING[torch.float64] for move in moves]
    return exact, moves


def _records(case: Case) -> bool:
    return case.context not in ("no_grad", "inference_mode")


def assert_near(got: Tensor, exact: Tensor, move: Tensor, tolerance: float, least: float, what: str) -> None:
    """NaN where the formula has it, and near it elsewhere; beyond the largest number of a dtype, as large."""
    assert got.shape == exact.shape, f"{what}: got shape {tuple(got.shape)}, expected {tuple(exact.shape)}"
    most = torch.finfo(got.dtype).max
    value, exact = got.detach().double().clamp(-most, most), exact.clamp(-most, most)
    least += torch.finfo(got.dtype).smallest_normal * torch.finfo(got.dtype).eps
    assert torch.equal(value.isnan(), exact.isnan()), f"{what}: NaN in another place: {got}, expected {exact}"
    allowed = tolerance * exact.abs() + TIMES * move.nan_to_num(0.0, INF) + least
    wrong = (value - exact).abs() > allowed
    assert not wrong.any(), f"{what}: got {value[wrong]}, expected {exact[wrong]}, allowed is {allowed[wrong]}"


@contextlib.contextmanager
def _around(case: Case) -> Any:
    contexts = {
        "none": contextlib.nullcontext(),
        "no_grad": torch.no_grad(),
        "inference_mode": torch.inference_mode(),
        "autocast": torch.autocast("cpu", torch.bfloat16),
    }
    with companion.backend(case.backend), contexts[case.context], contextlib.ExitStack() as stack:
        for place, name, few in PIECES if case.in_pieces else ():
            stack.enter_context(mock.patch.object(place, name, few))
        yield


#: What large tensors are cut into, so small that small tensors are cut, too.
PIECES = (
    (companion.apa.reference, "CHUNK", 16),
    (companion.dnrt.reference, "CHUNK", 16),
    (companion.layeract.reference, "CHUNK", 16),
    (companion.dac.op, "SMALL", 0),
    (companion.multi_argument.reference, "CHUNK", 16),
)


def check(case: Case) -> None:
    """All properties of a call."""
    function = partial(FUNCTIONS[case.function][0], **dict(case.options))
    operands = [x.made() if isinstance(x, Numbers) else x for x in case.operands]
    before = [x.detach().clone() for x in _tensors(operands)]
    with _around(case):
        y = function(*operands)
    assert (y.dtype, y.device) == (case.dtype, operands[0].device)
    g = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(case.seed)).to(y.dtype)
    exact, moves = exact_outcome(case, operands, g)
    with _around(case):
        try:
            got = outcome(function, operands, g, case)
        except RuntimeError as error:
            if case.neighbours != "operand" or "modified by an inplace operation" not in str(error):
                raise
            got, exact, moves = [y], exact[:1], moves[:1]
    # where numbers vanish in the dtype of the computation, and what they are then multiplied by
    largest = max([1.0, *(abs(x.size) * 100 for x in case.operands if isinstance(x, Numbers))])
    least = 1e4 * torch.finfo(torch.promote_types(case.dtype, torch.float32)).tiny * largest**3
    names = ["value", *(f"derivative {i}" for i in range(1, len(got)))]
    sign = -1 if case.neighbours == "after" else 1
    for k, (name, one, other, move) in enumerate(zip(names, got, exact, moves, strict=True)):
        narrow = max(TOLERANCE[case.dtype], TOLERANCE[one.dtype])
        assert_near(one, sign * other if k == 0 else other, move, narrow, least, name)
    for x, old in zip(_tensors(operands), before, strict=True):
        assert torch.equal(x.view(x.shape).nan_to_num(7), old.nan_to_num(7)), "an operand was changed"
    if case.poisoned and operands[0].numel() and case.transform == "none":
        check_poisoned(case, function, operands, least)


def check_poisoned(case: Case, function: Callable[..., Tensor], operands: list[Any], least: float) -> None:
    """One NaN in the input reaches what the formula says, and nothing else is another."""
    z = operands[0].detach().contiguous().clone()
    z.view(-1)[case.seed % z.numel()] = NAN
    poisoned = [z, *(x.detach() if isinstance(x, Tensor) else x for x in operands[1:])]
    value = replace(case, context="no_grad", neighbours="none")
    exact, moves = exact_outcome(value, poisoned, z)
    with _around(case):
        y = function(*poisoned)
    assert_near(y, exact[0], moves[0], TOLERANCE[case.dtype], least, "with a NaN")


# --- what is refused -------------------------------------------------------------------------------------------------

_NO_TENSORS: tuple[Any, ...] = ([1.0], "x", None)
_NO_DIM = (1.5, "0", None, True)
_NO_ACTIVATION = ("none", nn.ReLU, None, 3)
#: For an operand by its place or an option by its name: what is no value for it.
WRONG: dict[str, dict[str, tuple[Any, ...]]] = {
    "apa": {"kappa": ("1", None, True, NAN), "lam": ("1", None, False, NAN, -1.0, -1e-9, -INF), "dim": _NO_DIM},
    "raa": {"dim": (*_NO_DIM, 9, -9), "gate": ("tanh", nn.Tanh, None, 3)},
    "layer_act": {
        "alpha": (0.0, -1e-5, INF, NAN, "1", None, True),
        "dims": ((), (0, 0), 9, -9, (0, 9), 1.5, "0", (True,)),
        "unbiased": (2, "yes", None),
    },
    "dac_linear": {"activation": _NO_ACTIVATION},
    "dac_conv2d": {
        "activation": _NO_ACTIVATION,
        "stride": (0, -1, (1, 0), (1, 1, 1), (), 1.5, True, "1", None, 2**31),
        "dilation": (0, (1, -1), (1,), 1.5, None),
        "padding": (-1, (0, -1), "full", (1, 1, 1), 0.5, None),
        "groups": (0, -1, 1.5, "1", None, True),
        "pad_order": ("between", None, 3),
    },
    "arr_loss": {"mean": (torch.zeros(7), torch.zeros(1, 1, 1, 1, 1))},  # no such size is drawn
    "multi_argument": {"arity": (0, -1, 7, 1.5, "1", None, True), "dim": (*_NO_DIM, 9, -9)},
}
WRONG |= {"aglu": WRONG["apa"], "la_silu": WRONG["layer_act"], "la_hardsilu": WRONG["layer_act"]}
WRONG["quadratic_form"] = WRONG["multi_argument"]
#: The names of the tensors; after them, weights and biases in turn.
NAMES = {"apa": "z kappa lam", "aglu": "z kappa lam", "raa": "x weight bias", "layer_act": "y", "la_silu": "y"}
NAMES |= {"la_hardsilu": "y", "dac_linear": "z weight bias", "dac_conv2d": "z weight bias", "arr_loss": "x mean"}
NAMES |= {"multi_argument": "x", "quadratic_form": "x coefficients"}
NO_FLOATS: dict[str, Callable[[Tensor], Any]] = {
    "integers": lambda x: x.int(),
    "truth": lambda x: x > 0,
    "complex": lambda x: x.to(torch.complex64),
    "sparse": lambda x: x.detach().to_sparse(),
    "a list": lambda x: x.tolist() if x.ndim else [x.item()],
    "nothing": lambda x: None,
    "one more along the first dimension": lambda x: x.new_zeros(x.shape[0] + 1, *x.shape[1:]) if x.ndim else None,
    "one more dimension": lambda x: x.new_zeros(2, *x.shape) if x.ndim else x.new_zeros(2, 1, 1),
}


def _names(case: Case) -> list[str]:
    """What the operands are called in errors."""
    names = NAMES[case.function].split()
    return (names + ["weights", "biases"] * len(case.operands))[: len(case.operands)]


@st.composite
def refusals(draw: Any) -> tuple[Case, int | str, Any]:
    """A call, one of its operands by its place or one of its options, and what is put in its place."""
    case: Case = draw(calls)
    names, wrong = _names(case), WRONG[case.function]
    places = [k for k, x in enumerate(case.operands) if isinstance(x, Numbers) or names[k] in wrong]
    at: int | str = draw(st.sampled_from([*places, *(name for name in wrong if name not in names)]))
    name = at if isinstance(at, str) else names[at]
    tensor = not isinstance(at, str) and isinstance(case.operands[at], Numbers)
    if name not in wrong or (tensor and draw(st.booleans())):
        longer = at == 0 or case.function == "arr_loss"  # a mean may broadcast
        ways = [way for way in NO_FLOATS if not (longer and way.startswith("one more"))]
        return case, at, draw(st.sampled_from(ways))
    return case, at, draw(st.sampled_from([(each,) for each in wrong[name]]))


def check_refused(case: Case, at: int | str, wrong: Any) -> None:
    """The error names the argument first."""
    operands: list[Any] = [x.made() if isinstance(x, Numbers) else x for x in case.operands]
    options = dict(case.options)
    given: Any = operands if isinstance(at, int) else options
    given[at] = NO_FLOATS[wrong](given[at]) if isinstance(wrong, str) else wrong[0]
    name = at if isinstance(at, str) else _names(case)[at]
    try:
        FUNCTIONS[case.function][0](*operands, **options)
    except (TypeError, ValueError) as refused:
        message = str(refused)
    else:
        raise AssertionError(f"{name}: {given[at]!r} was taken")
    # of two shapes that do not fit, one is called wrong, and the other is named
    named = re.match(r"\w+: got ", message) and re.search(rf"\b{name}\b", message)
    assert named, f"the error does not name {name}: {message}"


# --- many cases ------------------------------------------------------------------------------------------------------

#: Name, what is drawn, what must hold, and which share of the cases.
KINDS: tuple[tuple[str, st.SearchStrategy[Any], Callable[[Any], None], float], ...] = (
    ("calls", cases(), check, 0.6),
    ("the kernels in the simulator", simulated(), check, 0.1),
    ("refusals", refusals(), lambda drawn: check_refused(*drawn), 0.3),
)


def fuzz(strategy: st.SearchStrategy[Any], holds: Callable[[Any], None], count: int, seed: int | None = None) -> None:
    """Draw ``count`` cases, the same for the same seed, or without one for all time."""

    @hypothesis.settings(
        max_examples=count,
        derandomize=seed is None,
        deadline=None,
        database=None,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @hypothesis.given(strategy)
    def property_of(drawn: Any) -> None:
        holds(drawn)

    (property_of if seed is None else hypothesis.seed(seed)(property_of))()


def main(seed: int, count: int = 2000) -> int:
    """Of every kind its share; how many kinds failed."""
    print(f"seed {seed}: python -m tests.fuzz {seed} draws these cases again", flush=True)
    failed = 0
    for name, strategy, holds, share in KINDS:
        start = time.perf_counter()
        try:
            fuzz(strategy, holds, round(share * count), seed)
        except Exception:
            failed += 1
            traceback.print_exc()
        print(f"{time.perf_counter() - start:6.1f} s | {round(share * count)} cases | {name}", flush=True)
    print(f"{len(KINDS) - failed} of {len(KINDS)} kinds of cases hold")
    return failed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else random.SystemRandom().randrange(2**32)))
