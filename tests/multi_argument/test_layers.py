"""The inner network and the quadratic form as modules."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import companion
from companion import MultiArgument, Quadratic, count, replace_activations
from companion.functional import multi_argument, quadratic_form
from companion.multi_argument.quadratic import fit_quadratic
from tests.cases import together


def test_the_papers_network_has_64_parameters_for_each_argument_and_4289_more() -> None:
    # 64n + 64, 64 · 64 + 64, 64 + 1; the paper prints 65n + 4288
    assert [sum(p.numel() for p in MultiArgument(n).parameters()) for n in (1, 2, 3)] == [4353, 4417, 4481]
    assert [tuple(p.shape) for p in MultiArgument(3, hidden=5, depth=3).weights] == [(5, 3), (5, 5), (5, 5), (1, 5)]


def test_it_computes_the_function_with_its_own_parameters() -> None:
    layer, x = MultiArgument(3, hidden=7, depth=1, dim=1, init="linear"), torch.randn(2, 6, 3, 3)
    assert torch.equal(layer(x), multi_argument(x, list(layer.weights), list(layer.biases), 3, 1))
    form = Quadratic(3, dim=1)
    assert torch.equal(form(x), quadratic_form(x, form.coefficients, 3, 1))


def test_xavier_is_homogeneous_and_linear_begins_as_torchs_layers_do() -> None:
    a = torch.randn(100, 2)
    xavier = MultiArgument()
    torch.testing.assert_close(xavier(3 * a), 3 * xavier(a), rtol=1e-4, atol=1e-5)
    assert all(w.abs().max() <= (6 / sum(w.shape)) ** 0.5 for w in xavier.weights)
    assert xavier.weights[1].std().item() == pytest.approx((2 / 128) ** 0.5, rel=0.05)
    linear = MultiArgument(init="linear")
    for weight, bias in zip(linear.weights, linear.biases, strict=True):
        bound = weight.shape[1] ** -0.5
        assert 0 < bias.abs().max() <= bound
        assert weight.abs().max() <= bound
    assert linear.weights[1].std().item() == pytest.approx(8**-1 / 3**0.5, rel=0.05)


def test_the_default_form_is_the_sum_of_all_products() -> None:
    a = torch.randn(5, 3)
    expected = a[:, :1] * a[:, 1:2] + a[:, :1] * a[:, 2:] + a[:, 1:2] * a[:, 2:]
    torch.testing.assert_close(Quadratic(3)(a), expected)


def test_one_instance_learns_in_all_its_places() -> None:
    shared = MultiArgument(hidden=8)
    network = nn.Sequential(nn.Linear(3, 8), shared, nn.Linear(4, 6), shared, nn.Linear(3, 1))
    assert sum(p.numel() for p in network.parameters()) == 4 * 8 + 5 * 6 + 4 + sum(
        p.numel() for p in shared.parameters()
    )
    x = torch.randn(20, 3)
    network(x).sum().backward()
    both = [p.grad.clone() for p in shared.parameters()]
    apart = copy.deepcopy(network)
    apart[3] = copy.deepcopy(shared)
    apart.zero_grad()
    apart(x).sum().backward()
    for total, first, second in zip(both, apart[1].parameters(), apart[3].parameters(), strict=True):
        torch.testing.assert_close(total, first.grad + second.grad)


def test_a_frozen_network_stays_and_lets_what_is_before_it_learn() -> None:
    shared = MultiArgument(hidden=8)
    assert shared.freeze() is shared
    assert shared.freeze() is shared
    before = copy.deepcopy(shared.state_dict())
    network = nn.Sequential(nn.Linear(3, 8), shared)
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    network(torch.randn(20, 3)).sum().backward()
    optimizer.step()
    assert network[0].weight.grad.any()
    assert all(torch.equal(p, before[name]) for name, p in shared.state_dict().items())
    shared.requires_grad_()
    network(torch.randn(20, 3)).sum().backward()
    assert shared.weights[0].grad is not None


@together("make", [MultiArgument, Quadratic])
def test_it_survives_saving_and_copying(make: type[MultiArgument] | type[Quadratic]) -> None:
    layer, x = make(), torch.randn(8, 4)
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_()
    other = make()
    other.load_state_dict(layer.state_dict())
    for same in (other, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(same(x), layer(x))


def test_the_keys_of_the_state_dict() -> None:
    keys = [*(f"weights.{k}" for k in range(3)), *(f"biases.{k}" for k in range(3))]
    assert [*MultiArgument().state_dict()] == keys
    assert [*Quadratic().state_dict()] == ["coefficients"]


def test_a_surface_is_the_function_on_a_grid() -> None:
    first, second = torch.linspace(-1, 1, 3), torch.linspace(0, 4, 5)
    for layer in (MultiArgument(dim=1), Quadratic(dim=1)):
        surface = layer.surface(first, second)
        assert surface.shape == (3, 5)
        assert not surface.requires_grad
        at = layer(torch.tensor([[first[2], second[1]]]))
        torch.testing.assert_close(surface[2, 1], at[0, 0].detach())
    with pytest.raises(ValueError, match="axes: got 1, allowed is one for each of 2 arguments"):
        MultiArgument().surface(first)


def test_the_best_quadratic_of_a_quadratic_is_itself() -> None:
    # |x₁|, |x₂| and |x₁ + x₂| by pairs of hidden units, as far as a hidden layer of six reaches
    rows = torch.tensor([[1.0, 0], [0, 1], [1, 1]])
    layer = MultiArgument(hidden=6, depth=1)
    with torch.no_grad():
        layer.weights[0].copy_(torch.cat([rows, -rows]))
        layer.weights[1].copy_(torch.tensor([[1.0, 2, 0, -1, -2, 0]]))
    form, explained = layer.quadratic(torch.randn(500, 2))
    # max(0, t) − max(0, −t) = t: the network is x₁ + 2x₂
    torch.testing.assert_close(form.coefficients.detach(), torch.tensor([0, 0, 0, 1, 2, 0.0]), atol=1e-5, rtol=0)
    assert explained == pytest.approx(1, abs=1e-9)


def test_what_is_not_quadratic_is_explained_in_part() -> None:
    samples = torch.randn(200_00, 1, dtype=torch.float64)
    # |x| at normal numbers: the squares' share is (Cov(|x|, x²))² / (Var |x| Var x²) = (2/π) / (2 (1 − 2/π))
    _, explained = fit_quadratic(samples, samples[:, 0].abs())
    assert explained == pytest.approx((2 / torch.pi) / (2 * (1 - 2 / torch.pi)), abs=0.01)


def test_a_constant_has_no_variance_to_explain() -> None:
    coefficients, explained = fit_quadratic(torch.randn(20, 2), torch.full((20,), 3.0))
    torch.testing.assert_close(coefficients, torch.tensor([0, 0, 0, 0, 0, 3.0], dtype=torch.float64))
    assert np.isnan(explained)


def test_numbers_of_numpy_are_accepted() -> None:
    layer = MultiArgument(np.int64(2), np.int64(4), np.int64(1), np.int64(-1))
    assert layer(torch.ones(1, 4)).shape == (1, 2)


def test_what_it_prints() -> None:
    assert repr(MultiArgument()) == "MultiArgument(arity=2, hidden=64, depth=2, dim=-1, init='xavier')"
    assert repr(Quadratic(3, dim=1)) == "Quadratic(arity=3, dim=1)"


@together(
    "make, error, message",
    [
        (lambda: MultiArgument(0), ValueError, "arity: got 0, allowed is at least 1"),
        (lambda: MultiArgument(2.0), TypeError, "arity: got 2.0, allowed is an int"),
        (lambda: MultiArgument(hidden=0), ValueError, "hidden: got 0"),
        (lambda: MultiArgument(depth=0), ValueError, "depth: got 0"),
        (lambda: MultiArgument(dim="1"), TypeError, "dim: got '1'"),
        (lambda: MultiArgument(init="he"), ValueError, "init: got 'he', allowed are 'xavier', 'linear'"),
        (lambda: MultiArgument(dtype=torch.int32), TypeError, "dtype: got torch.int32"),
        (lambda: Quadratic(0), ValueError, "arity: got 0"),
        (lambda: Quadratic(2, -1, [1.0]), ValueError, "coefficients: got 1, allowed are 6 for arity 2"),
        (lambda: Quadratic(2, -1, "abcdef"), TypeError, "coefficients: got str"),
        (lambda: MultiArgument()(torch.ones(2, 3)), ValueError, "x: got 3 elements along dim=-1"),
        (lambda: MultiArgument().quadratic(torch.ones(9, 3)), ValueError, r"samples: got shape \(9, 3\)"),
        (lambda: MultiArgument().quadratic(torch.ones(5, 2)), ValueError, r"samples: got shape \(5, 2\)"),
        (lambda: fit_quadratic(torch.ones(9, 2), torch.ones(8)), ValueError, r"values: got shape \(8,\)"),
        (lambda: fit_quadratic(torch.ones(9, 2).int(), torch.ones(9)), TypeError, "samples: got dtype torch.int32"),
    ],
    of=lambda case: case[2],
)
def test_bad_arguments(make: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()  # type: ignore[operator]


def test_what_it_costs() -> None:
    network = nn.Sequential(nn.Linear(4, 6), MultiArgument(hidden=5, depth=2), nn.Linear(3, 1))
    unit = 2 * (2 * 5 + 5 * 5 + 5) + 5 + 5 + 1
    found = count(network, (4,))
    assert found.by_operator() == {"multi_argument": 3 * unit, "aten.addmm": 6 * 9 + 7}
    assert not found.unknown
    # five products, five sums
    assert count(nn.Sequential(nn.Conv2d(3, 4, 1), Quadratic(dim=1)), (3, 5, 7)).by_operator() == {
        "aten.convolution": 4 * 35 * 7,
        "quadratic_form": 2 * 35 * 10,
    }
    assert count(network, (4,)).parameters == sum(p.numel() for p in network.parameters())


def test_in_place_of_an_activation_of_one_argument_stands_one_of_one_argument() -> None:
    network, x = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)), torch.randn(3, 4)
    shared = MultiArgument(1)
    assert replace_activations(network, {nn.ReLU: lambda: shared})[1] is shared
    assert replace_activations(network, {nn.ReLU: lambda: MultiArgument(1)})(x).shape == (3, 2)
    for make in (MultiArgument, Quadratic, "multiargument"):
        with pytest.raises(
            ValueError, match=r"replacements: '1' would become .*arity=2.*, which gives one output of 2"
        ):
            companion.replace_activations(network, {"relu": make})
