"""raa: values, all derivatives, every layout, what is saved, what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

import companion
from companion import simulator
from companion.dnrt import op, reference
from companion.dnrt.op import raa
from companion.dnrt.reference import GATES
from tests.cases import together

#: Shape and dim: tokens, images, what lies in between, one vector, vectors of one element.
SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((2, 7, 12), -1),
    ((9, 33), 1),
    ((2, 8, 4, 4), 1),
    ((3, 5, 3, 3), 1),
    ((4, 6, 5), 0),
    ((11,), 0),
    ((5, 1), -1),
    ((5, 1, 3), 1),
]


def written_out(x: Tensor, weight: Tensor, bias: Tensor, gate: str, dim: int) -> Tensor:
    """Eq. 4 in float64, Φ by erfc."""
    u = x + torch.tensordot(x, weight, ([dim], [0])).unsqueeze(dim) + bias
    s = {
        "gelu": lambda: torch.erfc(-u / math.sqrt(2)) / 2,
        "silu": lambda: torch.sigmoid(u),
        "relu": lambda: (u > 0).to(u.dtype),
    }
    return x * s[gate]()


def operands(shape: tuple[int, ...], dim: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """x, weight and bias, with offsets of about one."""
    d = shape[dim]
    x, weight = torch.randn(shape), torch.randn(d) / math.sqrt(d)
    return [each.to(device) for each in (x.to(dtype), weight, torch.tensor([0.3]))]


def differentiated(function: Callable[..., Tensor], given: list[Tensor], grad: Tensor) -> list[Tensor]:
    leaves = [each.detach().requires_grad_() for each in given]
    y = function(*leaves)
    found = torch.autograd.grad(y, leaves, grad, allow_unused=True)
    return [y.detach(), *(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("gate", GATES)
@together("shape, dim", SHAPES)
def test_the_value_and_all_gradients(
    shape: tuple[int, ...], dim: int, gate: str, dtype: torch.dtype, device: str
) -> None:
    given, grad = operands(shape, dim, device, dtype), torch.randn(shape).to(device, dtype)
    found = differentiated(lambda *given: raa(*given, gate=gate, dim=dim), given, grad)
    exact = differentiated(lambda *x: written_out(*x, gate, dim), [x.double() for x in given], grad.double())
    for one, other, like in zip(found, exact, (given[0], *given), strict=True):
        assert one.dtype == like.dtype
        # two units in the last place of 16 bits, and what the sums lose beside the largest number
        relative = 0.0 if one.dtype == torch.float32 else 2 * torch.finfo(one.dtype).eps
        largest = 1e-6 if dtype == torch.float32 else 5e-5
        bound = relative * other.abs() + largest * max(other.abs().max().item(), 1)
        assert ((one.double() - other).abs() <= bound).all()


@pytest.mark.parametrize("gate", GATES)
def test_zeros_give_the_activation_that_it_replaces(gate: str, device: str) -> None:
    x = torch.linspace(-6, 6, 60, device=device).view(5, 12)
    zeros = torch.zeros(12, device=device), torch.zeros(1, device=device)
    replaced = {"gelu": F.gelu, "silu": F.silu, "relu": F.relu}[gate]
    torch.testing.assert_close(raa(x, *zeros, gate=gate), replaced(x), rtol=2e-6, atol=5e-7)


def test_small_values_of_the_normal_distribution_are_right_relative_to_themselves(device: str) -> None:
    x = torch.linspace(-12.5, 0, 101, device=device)[:, None]
    y = raa(x, torch.zeros(1, device=device), torch.zeros(1, device=device))
    exact = x.double() * torch.erfc(-x.double() / math.sqrt(2)) / 2
    # plain torch rounds u/√2 before it is squared
    rtol = 2e-5 if companion.backend() == "torch" else 3e-6
    torch.testing.assert_close(y.double(), exact, rtol=rtol, atol=1e-37)
    assert (F.gelu(x).double() - exact).abs()[:50].max() > 0.01 * exact.abs()[:50].min()  # 1 + erf loses them


@pytest.mark.parametrize("gate", GATES)
def test_where_the_gate_is_open_or_closed_it_has_no_slope(gate: str, device: str) -> None:
    """However large the number is that the slope meets: nothing of it arrives at the threshold."""
    x = torch.tensor([[1e31, 3e4, -1e31], [1e38, 200.0, -1e38]], device=device)
    y, dx, *others = differentiated(
        lambda *given: raa(*given, gate=gate),
        [x, torch.zeros(3, device=device), torch.zeros(1, device=device)],
        torch.ones_like(x),
    )
    torch.testing.assert_close(y, x.clamp(min=0.0))
    torch.testing.assert_close(dx, (x > 0).float())
    assert not any(gradient.any() for gradient in others)


@pytest.mark.parametrize("dim", [1, -1])
def test_channels_last_and_transposed_stay_as_they_lie(dim: int, device: str) -> None:
    x, weight, bias = operands((2, 6, 6, 6), dim, device)
    for given in (x.to(memory_format=torch.channels_last), x.transpose(0, 3), x[:, :, ::2]):
        weight_ = weight[: given.shape[dim]]
        y = raa(given, weight_, bias, dim=dim)
        torch.testing.assert_close(y, raa(given.contiguous(), weight_, bias, dim=dim), rtol=1e-5, atol=1e-6)
        if given.numel() == x.numel():
            assert y.stride() == given.stride()


def test_one_number_for_each_vector_is_saved(device: str) -> None:
    x, weight, bias = (each.requires_grad_() for each in operands((4, 64), -1, device))
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        raa(x, weight, bias)
    own = [t for t in saved if t.data_ptr() not in (x.data_ptr(), weight.data_ptr(), bias.data_ptr())]
    assert [t.numel() for t in own] == [4]


def test_nan_stays_in_its_vector(device: str) -> None:
    x, weight, bias = operands((3, 40), -1, device)
    x[1, 7] = math.nan
    y = raa(x, weight, bias)
    assert y[1].isnan().all()
    assert not y[::2].isnan().any()


def test_the_parameters_may_have_another_dtype() -> None:
    x, weight, bias = operands((3, 8), -1)
    y = raa(x.bfloat16(), weight.double(), bias.half()[0])
    assert y.dtype == torch.bfloat16


@pytest.mark.parametrize("gate", [*GATES, torch.tanh])
def test_first_and_second_derivatives_in_double_precision(gate: Any) -> None:
    for shape, dim in (((2, 5), -1), ((2, 3, 2, 2), 1)):
        given = [each.double().requires_grad_() for each in operands(shape, dim)]
        torch.autograd.gradcheck(lambda *x, dim=dim: raa(*x, gate=gate, dim=dim), given)
        torch.autograd.gradgradcheck(lambda *x, dim=dim: raa(*x, gate=gate, dim=dim), given, atol=1e-4)


def test_transforms_and_forward_mode_agree_with_autograd() -> None:
    x, weight, bias = operands((4, 6), -1)
    rows = torch.func.vmap(lambda row: raa(row, weight, bias))(x)
    torch.testing.assert_close(rows, raa(x, weight, bias), rtol=1e-5, atol=1e-6)
    jacobian = torch.func.jacfwd(lambda row: raa(row, weight, bias))(x[0])
    torch.testing.assert_close(jacobian, torch.func.jacrev(lambda row: raa(row, weight, bias))(x[0]))
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(raa(forward_ad.make_dual(x[0], torch.ones(6)), weight, bias))
        torch.testing.assert_close(dual.tangent, jacobian @ torch.ones(6))


def test_autocast_leaves_the_sums_alone() -> None:
    x, weight, bias = operands((3, 4096), -1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(raa(x, weight, bias), raa(x, weight, bias))
        inside = raa(x, weight, bias)
    assert torch.equal(inside, raa(x, weight, bias))


@pytest.mark.compiler
@pytest.mark.parametrize("gate", GATES)
def test_compiled_equals_eager_without_a_graph_break(gate: str) -> None:
    torch.compiler.reset()
    given, grad = operands((2, 6, 3, 3), 1), torch.randn(2, 6, 3, 3)

    def function(*given: Tensor) -> Tensor:
        return raa(*given, gate=gate, dim=1)

    found = differentiated(torch.compile(function, fullgraph=True), given, grad)
    for one, other in zip(found, differentiated(function, given, grad), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6)


def test_the_compilers_normal_distribution_is_the_right_one() -> None:
    u = torch.linspace(-13, 13, 2001, requires_grad=True)
    phi = reference.compiled_gate(u, "gelu")
    (slope,) = torch.autograd.grad(phi.sum(), u)
    x = u.detach().double()
    torch.testing.assert_close(phi.double(), torch.erfc(-x / math.sqrt(2)) / 2, rtol=2e-5, atol=0)
    torch.testing.assert_close(slope.double(), torch.exp(-x * x / 2) / math.sqrt(2 * math.pi), rtol=2e-5, atol=0)


def test_empty_input() -> None:
    for shape in ((0, 4), (3, 0)):
        leaves = [torch.ones(*size, requires_grad=True) for size in (shape, shape[1:], (1,))]
        y = raa(*leaves)
        y.sum().backward()
        assert y.shape == shape
        assert leaves[1].grad is not None


def test_a_function_as_a_gate_learns() -> None:
    slope = torch.tensor(1.5, requires_grad=True)
    x, weight, bias = operands((3, 4), -1)
    raa(x, weight, bias, gate=lambda u: torch.sigmoid(slope * u)).sum().backward()
    assert slope.grad is not None
    assert slope.grad != 0


def test_a_large_batch_is_computed_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for shape, dim in (((37, 12), -1), ((7, 12, 5), 1)):
        given, grad = operands(shape, dim), torch.randn(shape)
        whole = differentiated(lambda *x, dim=dim: raa(*x, dim=dim), given, grad)
        monkeypatch.setattr(reference, "CHUNK", 30)
        parts = differentiated(lambda *x, dim=dim: raa(*x, dim=dim), given, grad)
        monkeypatch.undo()
        for one, other in zip(whole, parts, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


BAD: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ((torch.ones(2, 3, dtype=torch.int64), torch.ones(3), torch.ones(1)), {}, TypeError, "x: got dtype torch.int64"),
    (([1.0], torch.ones(1), torch.ones(1)), {}, TypeError, "x: got list"),
    ((torch.ones(2, 3), torch.ones(2), torch.ones(1)), {}, ValueError, r"weight: got shape \(2,\), allowed is \(3,\)"),
    ((torch.ones(2, 3), torch.ones(3, 1), torch.ones(1)), {}, ValueError, r"weight: got shape \(3, 1\)"),
    ((torch.ones(2, 3, 4, 4), torch.ones(3), torch.ones(1)), {}, ValueError, r"; for images .*, as here, dim=1$"),
    ((torch.ones(2, 4, 3), torch.ones(3), torch.ones(1)), {"dim": 1}, ValueError, r"; for tokens .*, as here, dim=-1$"),
    ((torch.ones(2, 3), torch.ones(3), torch.ones(2)), {}, ValueError, r"bias: got shape \(2,\)"),
    ((torch.ones(2, 3), torch.ones(3), torch.ones(1)), {"dim": 2}, ValueError, "dim: got 2 for x with 2 dimensions"),
    ((torch.ones(()), torch.ones(1), torch.ones(1)), {}, ValueError, "dim: got -1 for x with 0 dimensions"),
    ((torch.ones(2, 3), torch.ones(3), torch.ones(1)), {"gate": "tanh"}, ValueError, "gate: got 'tanh', allowed are"),
    ((torch.ones(2, 3), torch.ones(3), torch.ones(1)), {"gate": 3}, TypeError, "gate: got int"),
    ((torch.ones(2, 3), torch.ones(3), torch.ones(1)), {"gate": nn.GELU}, TypeError, "gate: got the class GELU"),
    (
        (torch.ones(2, 3), torch.ones(3), torch.ones(1)),
        {"gate": torch.sum},
        ValueError,
        r"gate: returned shape \(\) for",
    ),
    ((torch.ones(2, 3), torch.ones(3), torch.ones(1)), {"dim": "x"}, TypeError, "dim: got 'x', allowed is an int"),
    ((torch.ones(2, 3), torch.ones(3, device="meta"), torch.ones(1)), {}, ValueError, "weight: got device meta"),
]


@together("given, options, error, message", BAD, of=lambda case: case[3])
def test_bad_input(given: tuple[Any, ...], options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        raa(*given, **options)


def test_the_backward_pass_may_come_after_another_choice() -> None:
    x, weight, bias = (each.requires_grad_() for each in operands((3, 8), -1))
    with companion.backend("simulator" if simulator.available() else "torch"):
        y = raa(x, weight, bias)
    with companion.backend("torch"):
        y.sum().backward()
    exact = differentiated(lambda *x: op.raa(*x), [x, weight, bias], torch.ones(3, 8))
    for leaf, other in zip((x, weight, bias), exact[1:], strict=True):
        torch.testing.assert_close(leaf.grad, other, rtol=1e-5, atol=1e-6)
