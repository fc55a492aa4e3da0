"""The value and the gradients against exact arithmetic, at ordinary vectors and at vectors made to hurt."""

from __future__ import annotations

from functools import cache

import mpmath
import pytest
import torch
from torch import Tensor

from companion.functional import raa
from tests.cases import together

Numbers = list[float]

NAMES = (
    *("ordinary", "zero weights", "gate shut", "gate open", "offset cancels", "large", "tiny", "one outlier"),
    *("one element", "deep tail"),
)


def vectors(name: str) -> tuple[Tensor, Tensor, float]:
    """x, weight and bias, float32 numbers, so that every dtype but 16 bits computes on the same input."""
    generator = torch.Generator().manual_seed(1)
    x, weight = torch.randn(3, 17, generator=generator), torch.randn(17, generator=generator) / 4
    return {
        "ordinary": (x, weight, 0.25),
        "zero weights": (x, torch.zeros(17), 0.0),
        "gate shut": (x, weight, -8.0),
        "gate open": (x, weight, 9.0),
        "offset cancels": (x, torch.tensor([1e3, -1e3] * 8 + [0.0]), 0.0),
        "large": (1e15 * x, weight, 0.0),
        "tiny": (1e-30 * x, weight, 0.0),
        "one outlier": (torch.cat([x, torch.full((3, 1), 1e4)], 1), torch.cat([weight, torch.tensor([1e-4])]), 0.0),
        "one element": (x[:, :1], weight[:1], -0.5),
        "deep tail": (-x.abs() - 9, torch.zeros(17), 0.0),
    }[name]


def incoming(x: Tensor) -> Tensor:
    """A gradient of the output."""
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(2))


@cache
def exact(name: str, gate: str, digits: int = 60) -> tuple[list[Numbers], list[Numbers]]:
    """y, ∂x, ∂w and ∂b; and for each the magnitudes of what it is made of, rounding of the offset included."""
    x, weight, bias = vectors(name)
    g = incoming(x).tolist()
    with mpmath.workdps(digits):
        w = [mpmath.mpf(each) for each in weight.tolist()]
        rows = [
            _exact_row([mpmath.mpf(v) for v in row], w, bias, gr, gate) for row, gr in zip(x.tolist(), g, strict=True)
        ]
        sums = [[mpmath.fsum(row[k][at] for row in rows) for at in range(len(rows[0][k]))] for k in (2, 3, 6, 7)]
        flat = [[value for row in rows for value in row[k]] for k in (0, 1, 4, 5)]
        value, gradient, value_terms, gradient_terms = flat
        dw, db, dw_terms, db_terms = sums
        found = [value, gradient, dw, db], [value_terms, gradient_terms, dw_terms, db_terms]
        return tuple([[float(v) for v in part] for part in each] for each in found)  # type: ignore[return-value]


def _exact_row(x: Numbers, w: Numbers, bias: float, g: Numbers, gate: str) -> list[Numbers]:
    c = mpmath.fsum(a * b for a, b in zip(w, x, strict=True)) + mpmath.mpf(bias)
    # what rounding of a sum can cost, relative to one unit: the sum of its magnitudes
    terms = mpmath.fsum(abs(a * b) for a, b in zip(w, x, strict=True)) + abs(bias)
    s, slope, bend = zip(*(_gate(each + c, gate) for each in x), strict=True)
    h = [a * b * d for a, b, d in zip(g, x, slope, strict=True)]
    H = mpmath.fsum(h)
    moved = [abs(each) + terms for each in x]  # of u
    h_terms = [abs(a * b) * (abs(d) + abs(k) * m) for a, b, d, k, m in zip(g, x, slope, bend, moved, strict=True)]
    H_terms = mpmath.fsum(h_terms)
    return [
        [a * b for a, b in zip(x, s, strict=True)],
        [a * b + d + e * H for a, b, d, e in zip(g, s, h, w, strict=True)],
        [a * H for a in x],
        [H],
        [abs(a) * (b + d * m) for a, b, d, m in zip(x, s, slope, moved, strict=True)],
        [
            abs(a) * (b + d * m) + e + abs(f) * H_terms
            for a, b, d, m, e, f in zip(g, s, slope, moved, h_terms, w, strict=True)
        ],
        [abs(a) * H_terms for a in x],
        [H_terms],
    ]


def _gate(u: mpmath.mpf, gate: str) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    """s, s' and s''."""
    if gate == "silu":
        s = 1 / (1 + mpmath.exp(-u))
        return s, s * (1 - s), s * (1 - s) * (1 - 2 * s)
    density = mpmath.exp(-u * u / 2) / mpmath.sqrt(2 * mpmath.pi)
    return mpmath.erfc(-u / mpmath.sqrt(2)) / 2, density, -u * density


def largest_error(name: str, gate: str, dtype: torch.dtype, device: str) -> float:
    """The largest error of value and gradients, relative to the magnitudes of what they are made of."""
    x, weight, bias = vectors(name)
    leaves = [each.to(device, dtype).requires_grad_() for each in (x, weight, torch.tensor([bias]))]
    y = raa(*leaves, gate=gate)
    found = [y.detach(), *torch.autograd.grad(y, leaves, incoming(x).to(device, dtype))]
    values, terms = exact(name, gate)
    worst = 0.0
    for one, value, made_of in zip(found, values, terms, strict=True):
        value_, made_of_ = (torch.tensor(each, dtype=torch.float64) for each in (value, made_of))
        # near the smallest normal number results may be 0
        normal = made_of_ > 1e4 * torch.finfo(torch.float32).tiny
        error = ((one.cpu().double().flatten() - value_).abs() / made_of_)[normal]
        worst = max(worst, *error.tolist(), 0.0)
    return worst


def test_sixty_digits_suffice() -> None:
    for name in NAMES:
        for gate in ("gelu", "silu"):
            assert exact(name, gate) == exact(name, gate, digits=120)


@pytest.mark.parametrize("gate", ["gelu", "silu"])
@together("name", NAMES)
def test_float64(name: str, gate: str) -> None:
    assert largest_error(name, gate, torch.float64, "cpu") <= 4e-15


@pytest.mark.parametrize("gate", ["gelu", "silu"])
@together("name", NAMES)
def test_float32(backend: str, device: str, name: str, gate: str) -> None:
    assert largest_error(name, gate, torch.float32, device) <= 1e-6
