"""The value and the gradient against exact arithmetic, at ordinary rows and at rows made to hurt."""

from __future__ import annotations

from functools import cache

import mpmath
import pytest
import torch
from torch import Tensor

from companion.functional import layer_act
from tests.cases import together

Rows = list[list[float]]

SCALES = ["sigmoid", "hardsigmoid"]


def rows(name: str) -> Tensor:
    """Rows of float32 numbers, so that every dtype but 16 bits computes on the same input."""
    generator = torch.Generator().manual_seed(1)
    normal = torch.randn(4, 24, generator=generator)
    return {
        "ordinary": normal,
        "mean 1e4": normal + 1e4,
        "mean -1e4": normal - 1e4,
        "mean 1e6, deviation 100": 100 * normal + 1e6,
        "small deviation": 1e-3 * normal + 1,
        "deviation below alpha": 1e-4 * normal,
        "one outlier": torch.cat([normal, torch.full((4, 1), 1e4)], 1),
        "first element an outlier": torch.cat([torch.full((4, 1), -1e6), normal], 1),
        "heavy tails": normal.sign() * normal.abs().mul(4).exp(),
        "two elements": normal[:, :2],
        "large": 1e15 * normal,
        "tiny": 1e-30 * normal,
    }[name]


NAMES = [
    *("ordinary", "mean 1e4", "mean -1e4", "mean 1e6, deviation 100", "small deviation", "deviation below alpha"),
    *("one outlier", "first element an outlier", "heavy tails", "two elements", "large", "tiny"),
]
ALPHA = 1e-5


def incoming(y: Tensor) -> Tensor:
    """A gradient of the output."""
    return torch.randn(y.shape, generator=torch.Generator().manual_seed(2))


@cache
def exact(name: str, scale: str, unbiased: bool, digits: int = 60) -> tuple[Rows, ...]:
    """The value and what a relative error of n may cost it; the gradient and the magnitudes of its terms."""
    y, g = rows(name).tolist(), incoming(rows(name)).tolist()
    with mpmath.workdps(digits):
        results = [_exact_row(one, other, scale, unbiased) for one, other in zip(y, g, strict=True)]
        return tuple([[float(x) for x in row[k]] for row in results] for k in range(4))


def _exact_row(y: list[float], g: list[float], scale: str, unbiased: bool) -> tuple[list[mpmath.mpf], ...]:
    d = len(y)
    x = [mpmath.mpf(one) for one in y]
    mean = mpmath.fsum(x) / d
    divisor = d - unbiased
    r = 1 / mpmath.sqrt(mpmath.fsum((one - mean) ** 2 for one in x) / divisor + mpmath.mpf(ALPHA))
    n = [(one - mean) * r for one in x]
    s, slope = zip(*(_scale(one, scale) for one in n), strict=True)
    h = [one * other * third for one, other, third in zip(g, x, slope, strict=True)]
    mean_h = mpmath.fsum(h) / d
    mean_hn = mpmath.fsum(one * other for one, other in zip(h, n, strict=True)) / divisor
    parts = [(g[i] * s[i], r * h[i], -r * mean_h, -r * n[i] * mean_hn) for i in range(d)]
    # sums over the row cancel: their rounding is relative to the sums of magnitudes
    rounding = r * mpmath.fsum(abs(one) for one in h) / d
    return (
        [one * other for one, other in zip(x, s, strict=True)],
        [abs(x[i]) * (s[i] + abs(n[i]) * slope[i]) for i in range(d)],
        [mpmath.fsum(part) for part in parts],
        [mpmath.fsum(abs(one) for one in part) + rounding * (1 + abs(n[i])) for i, part in enumerate(parts)],
    )


def _scale(n: mpmath.mpf, scale: str) -> tuple[mpmath.mpf, mpmath.mpf]:
    if scale == "sigmoid":
        s = 1 / (1 + mpmath.exp(-n))
        return s, s * (1 - s)
    t = n / 6 + mpmath.mpf(1) / 2
    return min(max(t, mpmath.mpf(0)), mpmath.mpf(1)), mpmath.mpf(1) / 6 if 0 < t < 1 else mpmath.mpf(0)


def errors(name: str, scale: str, unbiased: bool, dtype: torch.dtype, device: str) -> tuple[float, float]:
    """The largest errors of the value and of the gradient, relative to the magnitudes of what they are made of."""
    y = rows(name).to(device, dtype).requires_grad_()
    a = layer_act(y, scale, ALPHA, unbiased=unbiased)
    (gradient,) = torch.autograd.grad(a, y, incoming(y).to(device, dtype))
    value, value_terms, slope, slope_terms = (
        torch.tensor(x, dtype=torch.float64) for x in exact(name, scale, unbiased)
    )
    normal = value_terms > torch.finfo(torch.float32).tiny
    value_error = ((a.detach().cpu().double() - value).abs() / value_terms)[normal]
    slope_error = (gradient.cpu().double() - slope).abs() / slope_terms
    return value_error.max().item(), slope_error.max().item()


def test_sixty_digits_suffice() -> None:
    for name in NAMES:
        for scale in SCALES:
            assert exact(name, scale, False) == exact(name, scale, False, digits=120)


either_scale = pytest.mark.parametrize("scale", SCALES)
either_variance = pytest.mark.parametrize("unbiased", [False, True], ids=["biased", "unbiased"])
at_every_row = together("name", NAMES)


@at_every_row
@either_scale
@either_variance
def test_float64(name: str, scale: str, unbiased: bool) -> None:
    assert max(errors(name, scale, unbiased, torch.float64, "cpu")) <= 2e-15


@at_every_row
@either_scale
@either_variance
def test_float32(backend: str, device: str, name: str, scale: str, unbiased: bool) -> None:
    assert max(errors(name, scale, unbiased, torch.float32, device)) <= 1e-6
