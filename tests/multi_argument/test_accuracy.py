"""The value and all gradients against exact arithmetic, at ordinary numbers and at numbers made to hurt.

Whatever the inner network and the quadratic form compute are sums of products, so fractions do it exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from companion.functional import multi_argument, quadratic_form
from companion.multi_argument import reference
from tests.cases import together

NAMES = ("ordinary", "no biases", "large", "tiny", "silent", "weights that cancel", "at the kink", "one outlier")

#: Relative to the magnitudes of what a result is made of.
TOLERANCE = {torch.float64: 4e-15, torch.float32: 1e-6}

WIDTHS, UNITS = (2, 12, 8, 1), 9

Exact = list[list[Fraction]]


@pytest.fixture(autouse=True, params=[2**18, 60], ids=["at once", "in chunks"])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of plain torch."""
    monkeypatch.setattr(reference, "CHUNK", request.param)


def operands(name: str) -> list[Tensor]:
    """x, then weights and biases in turns: float32 numbers."""
    generator = torch.Generator().manual_seed(4)
    shapes = [shape for m, n in pairwise(WIDTHS) for shape in ((n, m), (n,))]
    x, *parameters = (torch.randn(shape, generator=generator) for shape in ((UNITS, 2), *shapes))
    match name:
        case "no biases":
            parameters[1::2] = [torch.zeros_like(b) for b in parameters[1::2]]
        case "large":
            x = 1e12 * x
        case "tiny":
            x, parameters[1::2] = 1e-20 * x, [1e-20 * b for b in parameters[1::2]]
        case "silent":
            parameters[1] = parameters[1] - 100
        case "weights that cancel":
            parameters[2] = torch.where(torch.arange(12) % 2 == 0, 1.0, -1.0) + 1e-3 * parameters[2]
            parameters[1] = parameters[1] + 30
        case "at the kink":
            # numbers so short that a sum of them is 0 exactly
            x, parameters = x.round(), [p.round() for p in parameters]
        case "one outlier":
            x[3] = torch.tensor([1e4, -1e4])
    return [x, *parameters]


def fractions(x: Tensor) -> Exact:
    return [[Fraction(v) for v in row] for row in x.reshape(len(x), -1).tolist()]


def product(w: Exact, h: list[Fraction]) -> list[Fraction]:
    return [sum((a * b for a, b in zip(row, h, strict=True)), Fraction()) for row in w]


def magnitudes(w: Exact) -> Exact:
    return [[abs(v) for v in row] for row in w]


@cache
def exact(name: str) -> list[list[float]]:
    """y and the gradient of everything for the incoming gradient 1, 2, …; then the same of the magnitudes."""
    given = [fractions(each) for each in operands(name)]
    true, terms = ([[[Fraction()] * len(row) for row in each] for each in given] for _ in range(2))
    values: Exact = [[], []]
    weights, biases = given[1::2], [[row[0] for row in b] for b in given[2::2]]
    for unit, a in enumerate(given[0]):
        g = Fraction(unit + 1)
        layers, sizes, open_ = [a], [[abs(v) for v in a]], []
        for w, b in zip(weights, biases, strict=True):
            u = [s + c for s, c in zip(product(w, layers[-1]), b, strict=True)]
            size = [s + abs(c) for s, c in zip(product(magnitudes(w), sizes[-1]), b, strict=True)]
            last = len(u) == 1
            open_.append([last or v > 0 for v in u])
            layers.append([v if last else max(v, Fraction()) for v in u])
            sizes.append([s if o else Fraction() for s, o in zip(size, open_[-1], strict=True)])
        values[0].append(layers[-1][0])
        values[1].append(sizes[-1][0])
        delta, of_terms = [g], [g]
        for k in reversed(range(len(weights))):
            delta = [d if o else Fraction() for d, o in zip(delta, open_[k], strict=True)]
            of_terms = [d if o else Fraction() for d, o in zip(of_terms, open_[k], strict=True)]
            for into, d, h in ((true, delta, layers[k]), (terms, of_terms, sizes[k])):
                for i, each in enumerate(d):
                    into[2 * k + 2][i][0] += each
                    for j, v in enumerate(h):
                        into[2 * k + 1][i][j] += each * v
            columns = [list(column) for column in zip(*weights[k], strict=True)]
            delta, of_terms = product(columns, delta), product(magnitudes(columns), of_terms)
        true[0][unit], terms[0][unit] = delta, of_terms
    found = [values[0], *([v for row in each for v in row] for each in true)]
    made_of = [values[1], *([v for row in each for v in row] for each in terms)]
    return [[float(v) for v in each] for each in (*found, *made_of)]


def largest_error(
    function: Callable[..., Tensor], given: list[Tensor], expected: list[list[float]], dtype: torch.dtype
) -> float:
    """Of the value and all gradients, relative to the magnitudes of what they are made of."""
    leaves = [each.to(dtype).requires_grad_() for each in given]
    y = function(*leaves)
    grad = torch.arange(1, UNITS + 1, dtype=dtype)[:, None]
    found = [y.detach(), *torch.autograd.grad(y, leaves, grad)]
    worst = 0.0
    values, terms = expected[: len(found)], expected[len(found) :]
    for one, value, made_of in zip(found, values, terms, strict=True):
        exact_, size = (torch.tensor(each, dtype=torch.float64) for each in (value, made_of))
        error = (one.double().flatten() - exact_).abs()
        assert not error[size == 0].any()
        worst = max(worst, *(error / size)[size > 0].tolist(), 0.0)
    return worst


def network(x: Tensor, *parameters: Tensor) -> Tensor:
    return multi_argument(x, parameters[::2], parameters[1::2], 2)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@together("name", NAMES)
def test_the_network(name: str, dtype: torch.dtype) -> None:
    assert largest_error(network, operands(name), exact(name), dtype) <= TOLERANCE[dtype]


def exact_form(x: Tensor, coefficients: Tensor) -> list[list[float]]:
    c = [row[0] for row in fractions(coefficients)]
    result = []
    for size in (lambda v: v, abs):
        q = [size(v) for v in c]
        y, dx, dc = [], [], [Fraction()] * 6
        for unit, (a, b) in enumerate([size(v) for v in row] for row in fractions(x)):
            terms, g = [a * a, b * b, a * b, a, b, Fraction(1)], unit + 1
            y.append(sum((s * t for s, t in zip(q, terms, strict=True)), Fraction()))
            dx += [g * (2 * q[0] * a + q[2] * b + q[3]), g * (2 * q[1] * b + q[2] * a + q[4])]
            dc = [s + g * t for s, t in zip(dc, terms, strict=True)]
        result += [y, dx, dc]
    return [[float(v) for v in each] for each in result]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@together("name", ["ordinary", "large", "tiny", "one outlier"])
def test_the_quadratic_form(name: str, dtype: torch.dtype) -> None:
    x, coefficients = operands(name)[0], torch.tensor([0.5, -1.25, 3.0, 1e-3, 7.0, -0.1])
    x = x if name != "tiny" else 1e5 * x  # a square of it is a number of float32
    error = largest_error(lambda x, c: quadratic_form(x, c, 2), [x, coefficients], exact_form(x, coefficients), dtype)
    assert error <= TOLERANCE[dtype]
