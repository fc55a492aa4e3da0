"""A named activation has the derivative that its name promises."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import companion
from companion.activations import ACTIVATIONS, PULL_BACKS, activated, check_activation, check_elementwise
from tests.cases import together


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
    assert ACTIVATIONS["hardswish"](torch.tensor([3e4], dtype=torch.float16)).item() == 3e4
    with pytest.raises(ValueError, match=r"activation: got 'swish', allowed are 'relu', .* or an elementwise function"):
        check_activation("swish")
    with pytest.raises(TypeError, match="activation: got int, allowed is a name or an elementwise function"):
        check_activation(3)


@together(
    "activation",
    [
        *ACTIVATIONS.values(),
        *(nn.PReLU(), nn.Hardtanh(), nn.GELU("tanh"), nn.ReLU(inplace=True), nn.RReLU().eval(), nn.PReLU().half()),
        *(companion.AGLU(), companion.APA(), lambda x: F.leaky_relu_(x, 0.3), torch.sin),
        # what cannot be tried is not judged
        *(nn.PReLU(device="meta"), lambda x: x + torch.ones((), device="meta"), lambda x: x[:, :, 0]),
    ],
)
def test_an_elementwise_function_is_accepted_and_no_random_number_is_drawn(activation) -> None:
    before = torch.get_rng_state()
    check_elementwise(activation)
    assert torch.equal(torch.get_rng_state(), before)


ALONE = r"it makes -?\d\.\d+ of a number among others, -?\d\.\d+ of it alone"


@together(
    "activation, why",
    [
        (companion.LASiLU(), ALONE),
        (companion.LayerAct("hardsigmoid"), ALONE),
        (nn.Softmax(-1), ALONE),
        (nn.Softmin(0), ALONE),
        (lambda x: x - x.mean(), ALONE),
        (companion.RAA(4), r"ValueError: weight: got shape \(4,\), allowed is \(1,\)"),
        (companion.RAA(3, dim=1), r"ValueError: weight: got shape \(3,\), allowed is \(4,\)"),
        (companion.GDN(4), "ValueError: x: got shape"),
        (companion.MultiArgument(), r"ValueError: x: got 1 elements|it makes \(3, 2\) of \(3, 4\)"),
        (companion.AGLU(3), "ValueError: kappa: got shape"),
        (nn.PReLU(3), "RuntimeError: "),
        (nn.LayerNorm(4), "RuntimeError: "),
        (nn.GLU(), "RuntimeError: "),
        (torch.flatten, r"it makes \(12,\) of \(3, 4\)"),
        (nn.RReLU(), "it makes different numbers of the same ones"),
    ],
)
def test_what_mixes_numbers_is_no_activation_of_single_connections(activation, why: str) -> None:
    makers = (
        lambda: companion.DACLinear(4, 3, activation),
        lambda: companion.DACConv2d(4, 3, 3, activation=activation),
        lambda: companion.MultiBias(4, 2, activation),
    )
    name = getattr(activation, "__name__", type(activation).__name__)
    for make in makers:
        with pytest.raises(ValueError, match=rf"activation: got {name}, which is not elementwise \((?:{why})"):
            make()
