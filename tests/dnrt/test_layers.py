"""RAA as a module."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from companion import count
from companion.dnrt.layers import RAA
from companion.dnrt.op import raa


def test_a_new_module_is_gelu_and_has_one_parameter_more_than_the_vector() -> None:
    layer, x = RAA(7), torch.randn(4, 7)
    torch.testing.assert_close(layer(x), F.gelu(x), rtol=2e-6, atol=5e-7)
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == {"weight": (7,), "bias": (1,)}


def test_it_computes_the_function_with_its_own_parameters() -> None:
    layer, x = RAA(6, gate="silu", dim=1), torch.randn(2, 6, 3, 3)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    assert torch.equal(layer(x), raa(x, layer.weight, layer.bias, "silu", 1))
    layer.reset_parameters()
    torch.testing.assert_close(layer(x), F.silu(x), rtol=2e-6, atol=5e-7)


def test_it_learns_and_survives_saving_and_copying() -> None:
    layer, x = RAA(5), torch.randn(8, 5)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    layer(x).sum().backward()
    optimizer.step()
    assert layer.weight.abs().min() > 0
    other = RAA(5)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))


def test_numbers_of_numpy_and_inplace_are_accepted() -> None:
    x = torch.randn(3, 4)
    before = x.clone()
    assert torch.equal(RAA(np.int64(4), dim=np.int64(1), inplace=True)(x), RAA(4)(x))
    assert torch.equal(x, before)


def test_what_it_prints() -> None:
    assert repr(RAA(5, dim=1)) == "RAA(5, gate='gelu', dim=1)"
    assert repr(RAA(5, gate=torch.tanh)) == "RAA(5, gate='tanh', dim=-1)"
    assert "gate='Tanh'" in repr(RAA(5, gate=nn.Tanh()))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"channels": 2.0}, TypeError, "channels: got 2.0, allowed is an int"),
        ({"channels": True}, TypeError, "channels: got True"),
        ({"channels": 0}, ValueError, "channels: got 0"),
        ({"channels": 3, "gate": "tanh"}, ValueError, "gate: got 'tanh'"),
        ({"channels": 3, "gate": nn.GELU}, TypeError, "gate: got the class GELU"),
        ({"channels": 3, "dim": 1.0}, TypeError, "dim: got 1.0"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        RAA(**arguments)  # type: ignore[arg-type]


def test_it_costs_a_layer_of_one_output_for_each_vector() -> None:
    assert [row.flops for row in count(nn.Sequential(nn.Linear(4, 6), RAA(6)), (4,)).layers] == [54, 13]
    maps = count(nn.Sequential(nn.Conv2d(3, 5, 1, bias=False), RAA(5, dim=1)), (3, 2, 4))
    assert [row.flops for row in maps.layers] == [2 * 3 * 5 * 8, 8 * 11]
    assert not maps.unknown
