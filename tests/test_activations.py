"""A named activation has the derivative that its name promises."""

from __future__ import annotations

import pytest
import torch

from companion.activations import ACTIVATIONS, PULL_BACKS, activated, check_activation
from tests.together import together


@together("name", ACTIVATIONS)
def test_the_derivative_is_that_of_autograd_and_keeps_nan(name: str) -> None:
    x = torch.tensor([-20.0, -4, -1.5, 0, 0.3, 2, 5.5, 7, torch.nan], dtype=torch.float64, requires_grad=True)
    g = torch.tensor([1.0, -1.2, -2, 3, 0.5, 1.5, 0.7, -0.4, 1], dtype=torch.float64)
    y = ACTIVATIONS[name](x)
    (expected,) = torch.autograd.grad(y, x, g)
    found = PULL_BACKS[name](g.clone(), x.detach(), y.detach())
    if name == "relu":
        expected[-1] = g[-1]  # autograd drops the gradient at NaN
    torch.testing.assert_close(found, expected, equal_nan=True)


@together("name", ACTIVATIONS)
def test_in_place_or_not_the_values_are_the_same(name: str) -> None:
    x = torch.randn(100)
    torch.testing.assert_close(activated(x.clone(), name), ACTIVATIONS[name](x))
    assert torch.equal(activated(x, lambda x: 2 * x), 2 * x)


def test_every_name_has_a_derivative() -> None:
    assert set(PULL_BACKS) == set(ACTIVATIONS)


def test_what_is_no_activation_is_refused() -> None:
    check_activation("relu")
    check_activation(torch.sin)
    with pytest.raises(ValueError, match=r"activation: got 'swish', allowed are 'relu', .* or an elementwise function"):
        check_activation("swish")
    with pytest.raises(TypeError, match="activation: got int, allowed is a name or an elementwise function"):
        check_activation(3)
