"""Value and gradients against exact arithmetic, at ordinary operands and at operands made to hurt."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import mpmath
import pytest
import torch
from torch import Tensor

from companion.activations import ACTIVATIONS
from companion.dac import op
from companion.functional import dac_conv2d, dac_linear
from tests.cases import together

# Relative to the sums of the magnitudes of the terms: Σ|w|(|z| + |b|) and likewise for the gradients. A result of 16
# bits is rounded once; below 2⁻¹⁴ float16 loses bits as it nears its smallest number.
TOLERANCE = {torch.float64: 8e-16, torch.float32: 4e-7, torch.bfloat16: 4e-3, torch.float16: 5e-4}
LEAST = {torch.float64: 0.0, torch.float32: 2**-149, torch.bfloat16: 2**-133, torch.float16: 2**-24}

Operands = tuple[Tensor, Tensor, Tensor, Tensor]  # z, weight, bias, gradient of the output

DENSE = ((5, 24), (4, 24), (4, 24), (5, 4))
CONV = ((1, 3, 4, 4), (2, 3, 3, 3), (2, 3), (1, 2, 4, 4))


@pytest.fixture(autouse=True, params=[0, 2**20], ids=["in blocks", "as it stands"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of plain torch."""
    monkeypatch.setattr(op, "SMALL", request.param)


def operands(name: str, shapes: tuple[tuple[int, ...], ...]) -> Operands:
    """Float32 numbers, some of them numbers of 16 bits too."""
    generator = torch.Generator().manual_seed(3)
    z, weight, bias, g = (torch.randn(shape, generator=generator) for shape in shapes)
    match name:
        case "large biases":
            bias = 1e4 * bias
        case "large biases, opposite inputs":
            z, bias = 1000 + z, -1000 + bias
        case "silent":
            bias = -100 - bias.abs()
        case "nothing is silent":
            bias = 100 + bias.abs()
        case "ties at the kink":
            z, bias = z.sign(), -torch.randint(-1, 2, bias.shape, generator=generator).float()
        case "weights that cancel":
            weight = (
                torch.where(torch.arange(weight[0].numel()).view(weight.shape[1:]) % 2 == 0, 1.0, -1.0) + 1e-3 * weight
            )
            bias = 30 + bias
        case "huge":
            z, bias = 1e30 * z, 1e30 * bias
        case "tiny":
            z, bias = 1e-36 * z, 1e-36 * bias
        case "heavy tails":
            z, bias = z.sign() * (4 * z.abs()).exp(), bias.sign() * (4 * bias.abs()).exp()
    return z, weight, bias, g


NAMES = [
    *("ordinary", "large biases", "large biases, opposite inputs", "silent", "nothing is silent"),
    *("ties at the kink", "weights that cancel", "huge", "tiny", "heavy tails"),
]
#: What numbers of 16 bits can hold, their sums too.
SHORT = {
    torch.bfloat16: [name for name in NAMES if name not in ("huge", "tiny")],
    torch.float16: [name for name in NAMES if name not in ("huge", "tiny", "large biases", "heavy tails")],
}


def dense(z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return dac_linear(z, weight, bias)


def convolution(z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return dac_conv2d(z, weight, bias, padding=1)


def connections(shapes: tuple[tuple[int, ...], ...]) -> list[tuple[tuple[int, ...], ...]]:
    """Every term of every output: the indices of z, of the weight, of the bias and of the output."""
    if shapes is DENSE:
        (N, m), (n, _) = shapes[:2]
        return [((s, j), (i, j), (i, j), (s, i)) for s, i, j in itertools.product(range(N), range(n), range(m))]
    (N, m, h, w), (n, _, kh, kw) = shapes[:2]
    return [
        ((s, j, y + p - 1, x + q - 1), (i, j, p, q), (i, j), (s, i, y, x))
        for s, i, j, p, q, y, x in itertools.product(*map(range, (N, n, m, kh, kw, h, w)))
        if 0 <= y + p - 1 < h and 0 <= x + q - 1 < w
    ]


def exact(given: Operands, shapes: tuple[tuple[int, ...], ...]) -> list[tuple[Tensor, Tensor]]:
    """The value and the gradients of z, weight and bias by rational arithmetic, and the magnitudes of their terms."""
    z, weight, bias, g = ({k: Fraction(x[k].item()) for k in itertools.product(*map(range, x.shape))} for x in given)
    order = (shapes[3], *shapes[:3])
    sums = [{k: [Fraction(0), Fraction(0)] for k in itertools.product(*map(range, shape))} for shape in order]
    for at_z, at_w, at_b, at_f in connections(shapes):
        x, w, incoming = z[at_z] + bias[at_b], weight[at_w], g[at_f]
        y, slope = max(x, Fraction(0)), int(x > 0)
        size = abs(z[at_z]) + abs(bias[at_b])
        terms = [(at_f, w * y, w * size), (at_z, incoming * w * slope, incoming * w)]
        terms += [(at_w, incoming * y, incoming * size), (at_b, incoming * w * slope, incoming * w)]
        for total, (index, term, magnitude) in zip(sums, terms, strict=True):
            total[index][0] += term
            total[index][1] += abs(magnitude)
    return [
        tuple(  # type: ignore[misc]
            torch.tensor([float(pair[k]) for pair in total.values()], dtype=torch.float64).view(shape) for k in (0, 1)
        )
        for total, shape in zip(sums, order, strict=True)
    ]


@cache
def exact_of(name: str, conv: bool, dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    shapes = CONV if conv else DENSE
    return exact(tuple(x.to(dtype) for x in operands(name, shapes)), shapes)  # type: ignore[arg-type]


def errors(name: str, conv: bool, dtype: torch.dtype, device: str) -> list[float]:
    """The largest errors of the value and of the three gradients, relative to the magnitudes of their terms."""
    z, weight, bias, g = (x.to(device, dtype) for x in operands(name, CONV if conv else DENSE))
    leaves = [x.requires_grad_() for x in (z, weight, bias)]
    f = (convolution if conv else dense)(*leaves)
    found = [f.detach(), *torch.autograd.grad(f, leaves, g)]
    worst = []
    for got, (value, magnitude) in zip(found, exact_of(name, conv, dtype), strict=True):
        error = (got.cpu().double() - value).abs() - LEAST[dtype]
        worst.append((error.clamp_min(0) / magnitude.clamp_min(1e-300)).max().item())
    return worst


either: Callable[..., pytest.MarkDecorator] = pytest.mark.parametrize("conv", [False, True], ids=["dense", "conv"])


@either
@together("name", NAMES)
def test_float64(name: str, conv: bool) -> None:
    assert max(errors(name, conv, torch.float64, "cpu")) <= TOLERANCE[torch.float64]


@either
@together("name", NAMES)
def test_float32(backend: str, device: str, name: str, conv: bool) -> None:
    assert max(errors(name, conv, torch.float32, device)) <= TOLERANCE[torch.float32]


@either
@together("dtype, name", [(dtype, name) for dtype, names in SHORT.items() for name in names])
def test_sixteen_bits(backend: str, device: str, name: str, conv: bool, dtype: torch.dtype) -> None:
    assert max(errors(name, conv, dtype, device)) <= TOLERANCE[dtype]


def test_plain_torch_is_right_relative_to_what_is_not_silent() -> None:
    # with one large bias among inputs that are silent, nothing of the others is lost
    z, weight, bias, _ = operands("large biases", DENSE)
    ((value, _), *_) = exact_of("large biases", False, torch.float32)
    terms = (weight.double().abs() * torch.relu(z.double()[:, None] + bias.double())).sum(-1)
    assert ((dac_linear(z, weight, bias).double() - value).abs() <= 4e-7 * terms).all()


CURVES: dict[str, Callable[[mpmath.mpf], mpmath.mpf]] = {
    "leaky_relu": lambda x: x if x > 0 else x * mpmath.mpf(0.01),
    "elu": lambda x: x if x > 0 else mpmath.expm1(x),
    "relu6": lambda x: min(max(x, mpmath.mpf(0)), mpmath.mpf(6)),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "hardswish": lambda x: x * min(max(x + 3, mpmath.mpf(0)), mpmath.mpf(6)) / 6,
    "gelu": lambda x: x * mpmath.ncdf(x),
    "tanh": mpmath.tanh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "identity": lambda x: x,
}


def test_every_other_activation_has_its_curve_here() -> None:
    assert set(CURVES) == set(ACTIVATIONS) - {"relu"}


@together("activation", CURVES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 3e-6)], ids=str)
def test_other_activations(activation: str, dtype: torch.dtype, tolerance: float) -> None:
    z = torch.tensor([[-30.0, -8.0, -2.0, -0.5, 1e-3, 0.7, 3.0, 25.0]], dtype=dtype, requires_grad=True)
    weight = torch.tensor([[1.0, -2.0, 1.0, 3.0, -1.0, 2.0, 0.5, -0.25]], dtype=dtype, requires_grad=True)
    bias = torch.tensor([[0.5, 0.25, -0.125, 0.25, 0.5, -1.0, 0.5, 4.0]], dtype=dtype, requires_grad=True)
    f = dac_linear(z, weight, bias, activation)
    dz, dweight, dbias = torch.autograd.grad(f, (z, weight, bias), torch.ones_like(f))
    with mpmath.workdps(40):
        x = [mpmath.mpf(a) + mpmath.mpf(b) for a, b in zip(z[0].tolist(), bias[0].tolist(), strict=True)]
        y = [CURVES[activation](one) for one in x]
        slopes = [w * mpmath.diff(CURVES[activation], one) for w, one in zip(weight[0].tolist(), x, strict=True)]
        value = mpmath.fsum(w * one for w, one in zip(weight[0].tolist(), y, strict=True))
        largest = mpmath.fsum(abs(w * one) for w, one in zip(weight[0].tolist(), y, strict=True))
    assert abs(f.item() - value) <= tolerance * largest
    torch.testing.assert_close(
        dweight[0].double(), torch.tensor([float(v) for v in y], dtype=torch.float64), rtol=tolerance, atol=tolerance
    )
    for gradient in (dz, dbias):
        expected = torch.tensor([float(v) for v in slopes], dtype=torch.float64)
        torch.testing.assert_close(gradient[0].double(), expected, rtol=tolerance, atol=tolerance)
