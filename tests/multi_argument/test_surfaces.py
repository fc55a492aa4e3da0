"""The measures of a learned surface: against eigenvalues, quadrature, and rotations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from companion.multi_argument.op import quadratic_form
from companion.multi_argument.quadratic import fit_quadratic
from companion.multi_argument.study.surfaces import (
    bends,
    curvature,
    hermite_functions,
    shape,
    spectrum,
)


def quadratic(points: Tensor, c: Tensor) -> Tensor:
    return quadratic_form(points, c, points.shape[-1])[..., 0]


def turn(angle: float) -> Tensor:
    return torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64)


@pytest.mark.parametrize("arity", [1, 2, 3, 4])
def test_bends_are_the_eigenvalues_of_half_the_hessian(arity: int) -> None:
    torch.manual_seed(0)
    c, nowhere = torch.randn((arity + 1) * (arity + 2) // 2).double(), torch.zeros(arity, dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(lambda at: quadratic(at, c), nowhere)
    torch.testing.assert_close(bends(c), torch.linalg.eigvalsh(hessian / 2))


def test_the_curvature_is_the_product_of_the_bends_and_the_shape_has_no_scale() -> None:
    torch.manual_seed(0)
    c = torch.randn(6, dtype=torch.float64)
    assert curvature(c) == pytest.approx(bends(c).prod().item())
    low, high = bends(c).tolist()
    assert shape(c) == pytest.approx(2 * low * high / (low**2 + high**2))


def test_the_curvature_keeps_its_sign_and_the_shape_its_size_under_what_leaves_them() -> None:
    torch.manual_seed(0)
    nodes = torch.randn(50, 2, dtype=torch.float64)
    for _ in range(20):
        c = torch.randn(6, dtype=torch.float64)
        for linear, same in ((turn(0.7), True), (torch.randn(2, 2, dtype=torch.float64), False)):
            values = -2 * quadratic(nodes @ linear.T + torch.tensor([0.5, -3.0], dtype=torch.float64), c)
            other, explained = fit_quadratic(nodes, values)
            assert explained == pytest.approx(1)
            assert curvature(other) * curvature(c) > 0
            assert curvature(other) == pytest.approx(4 * torch.linalg.det(linear).item() ** 2 * curvature(c))
            assert (shape(other) == pytest.approx(shape(c))) == same


def test_the_shape_of_a_plane_is_not_a_number() -> None:
    assert math.isnan(shape(torch.tensor([0.0, 0, 0, 1, 2, 3])))


@pytest.mark.parametrize("arity", [1, 2, 3])
def test_hermite_functions_are_orthonormal_on_the_whole_space(arity: int) -> None:
    nodes, weights = np.polynomial.hermite.hermgauss(16)  # for e^(−x²), which is divided out
    grid = torch.cartesian_prod(*[torch.tensor(nodes)] * arity).view(-1, arity)
    factors = torch.tensor(weights * np.exp(nodes**2))
    law = torch.cartesian_prod(*[factors] * arity).view(-1, arity).prod(1)
    every = torch.cat(hermite_functions(grid, 5), 1)
    assert every.shape[1] == math.comb(5 + arity, arity)
    torch.testing.assert_close(every.T @ (law[:, None] * every), torch.eye(every.shape[1], dtype=torch.float64))


def test_no_power_moves_between_degrees_when_a_surface_and_its_inputs_turn() -> None:
    torch.manual_seed(0)
    points = torch.randn(300, 2, dtype=torch.float64) * torch.tensor([1.0, 0.4])  # a law that knows directions
    values = torch.tanh(points[:, 0] + 2 * points[:, 1]) + points.prod(1)
    here, there = (spectrum(values, hermite_functions(at, 6)) for at in (points, points @ turn(0.9).T))
    torch.testing.assert_close(here, there, rtol=1e-10, atol=1e-14)
    sheared = points @ torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=torch.float64).T
    assert (spectrum(values, hermite_functions(sheared, 6)) - here).abs().max() > 0.1 * here.max()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bends(torch.zeros(5)), r"coefficients: got shape \(5,\), allowed are 3, 6, 10"),
        (lambda: curvature(torch.zeros(10)), r"coefficients: got shape \(10,\), allowed is \(6,\)"),
        (lambda: hermite_functions(torch.zeros(4), 2), r"arguments: got shape \(4,\), allowed is \(N, n\)"),
        (lambda: hermite_functions(torch.zeros(4, 2), -1), "degree: got -1, allowed is at least 0"),
        (lambda: spectrum(torch.zeros(3), hermite_functions(torch.zeros(4, 2), 1)), r"values: got shape \(3,\)"),
    ],
)
def test_what_does_not_fit_is_refused(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        call()


def test_integers_are_refused() -> None:
    with pytest.raises(TypeError, match=r"coefficients: got dtype torch.int64, allowed is a floating dtype"):
        bends(torch.zeros(6, dtype=torch.int64))
