"""One function of plain maths, a forward and a backward pass: whoever looks at it sees the right derivatives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint
from torch.utils.checkpoint import create_selective_checkpoint_contexts as selective

from companion import functional
from companion.operators import differentiable
from tests.cases import of_rooms, together

calls: list[str] = []


def plain(x: Tensor, w: Tensor, phi: Callable[[Tensor], Tensor]) -> Tensor:
    calls.append("plain")
    return phi(x) @ w


def forward(x: Tensor, w: Tensor, phi: Callable[[Tensor], Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
    calls.append("forward")
    y = phi(x)
    return y @ w, (y,)


def backward(grad: Tensor, needs: Any, saved: tuple[Tensor], x: Tensor, w: Tensor, phi: Any, *learned: Tensor) -> Any:
    calls.append("backward")
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        dx, *others = torch.autograd.grad(phi(leaf), (leaf, *learned), grad @ w.mT)
    return dx if needs[0] else None, saved[0].mT @ grad if needs[1] else None, None, *others


f = differentiable(plain, forward, backward)


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


def operands() -> tuple[Tensor, Tensor]:
    x, w = torch.randn(2, 3, 3, dtype=torch.float64).requires_grad_()
    return x, w


def test_eager_computes_by_its_own_passes_and_higher_orders_by_the_plain_maths() -> None:
    x, w = operands()
    f(x, w, torch.tanh).sum().backward()
    assert calls == ["forward", "backward"]
    torch.autograd.gradcheck(lambda x, w: f(x, w, torch.tanh), (x, w))
    torch.autograd.gradgradcheck(lambda x, w: f(x, w, torch.tanh), (x, w))


def test_operands_that_depend_on_each_other_keep_their_gradients_apart() -> None:
    """Also in a graph that is differentiated again: there the gradient of the one once held that of the other too."""
    x, w = operands()
    slope = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)

    def learned(x: Tensor) -> Tensor:
        return torch.tanh(slope * x)

    layer = partial(f, captured=(slope,))
    cases: dict[str, tuple[Tensor, tuple[Tensor, ...]]] = {
        "one tensor twice": (f(w, w, torch.tanh), (w,)),
        "one layer after itself": (f(f(x, w, torch.tanh), w, torch.tanh), (x, w)),
        "what a function has learned": (layer(layer(x, w, learned), w, learned), (x, w, slope)),
    }
    for name, (y, leaves) in cases.items():
        once = torch.autograd.grad(y.sum(), leaves, retain_graph=True)
        again = torch.autograd.grad(y.sum(), leaves, create_graph=True)
        for a, b in zip(once, again, strict=True):
            torch.testing.assert_close(a, b, msg=name)
    torch.autograd.gradgradcheck(lambda w: f(f(x, w, torch.tanh), w, torch.tanh), (w,))
    torch.autograd.gradgradcheck(lambda s: layer(layer(x, w, learned), w, learned), (slope,))


def test_what_an_operand_comes_from_is_visited_once() -> None:
    """Also where it has met the same learned function before: hooks are called once, and with gradients."""
    x, w = operands()
    slope = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    visits: list[Tensor] = []

    def learned(x: Tensor) -> Tensor:
        return torch.tanh(slope * x)

    before = learned(x).sin()
    before.register_hook(lambda grad: visits.append(grad))
    y = f(before, w, learned, captured=(slope,))
    first = torch.autograd.grad(y.square().sum(), (x, w, slope), create_graph=True)
    assert len(visits) == 1
    torch.autograd.grad(first[0].square().sum(), (x, w, slope))
    expected = torch.autograd.grad(plain(learned(x).sin(), w, learned).square().sum(), (x, w, slope))
    for a, b in zip(first, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_third_derivatives() -> None:
    x, w = operands()

    def second(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(f(x, w, torch.tanh).pow(3).sum(), (x, w), create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), (x, w), create_graph=True)

    torch.autograd.gradcheck(second, (x, w))


@together("how", ["vmap", "is_grads_batched"])
def test_a_batch_of_gradients_to_be_differentiated_again_is_refused(how: str) -> None:
    x, w = operands()
    y = f(x, w, torch.tanh)
    grads = torch.randn(2, *y.shape, dtype=torch.float64)
    pull_back = partial(torch.autograd.grad, y, x, create_graph=True)
    one_or_all = torch.vmap(pull_back) if how == "vmap" else partial(pull_back, is_grads_batched=True)
    with pytest.raises(RuntimeError, match="create_graph: got True for a batch of gradients"):
        one_or_all(grads)


def test_transforms_and_forward_mode_see_the_plain_maths() -> None:
    x, w = operands()
    torch.func.vmap(lambda x: f(x[None], w, torch.tanh))(x)
    with forward_ad.dual_level():
        y = f(forward_ad.make_dual(x, torch.ones_like(x)), w, torch.tanh)
        assert forward_ad.unpack_dual(y).tangent is not None
    assert set(calls) == {"plain"}


def test_autocast_does_not_reach_inside() -> None:
    x, w = operands()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert f(x.float(), w.float(), torch.tanh).dtype == torch.float32
        assert torch.func.vmap(lambda x: f(x[None], w.float(), torch.tanh))(x.float()).dtype == torch.float32


z = torch.linspace(-3, 3, 120, dtype=torch.float32).view(2, 3, 4, 5)
OPERATORS: dict[str, Callable[[Tensor], Tensor]] = of_rooms("FUNCTIONS")


@together("name, function", OPERATORS.items(), of=lambda case: case[0])
def test_a_batch_of_gradients(name: str, function: Callable[[Tensor], Tensor]) -> None:
    leaf = z.clone().requires_grad_()
    torch.manual_seed(0)
    y = function(leaf)
    grads = torch.randn(4, *y.shape)
    (together_,) = torch.autograd.grad(y, leaf, grads, is_grads_batched=True, retain_graph=True)
    singly = [torch.autograd.grad(y, leaf, grad, retain_graph=True)[0] for grad in grads]
    torch.testing.assert_close(together_, torch.stack(singly), rtol=1e-4, atol=1e-5)


@together("name, function", OPERATORS.items(), of=lambda case: case[0])
def test_a_mode_sees_a_public_function_as_one_call(name: str, function: Callable[[Tensor], Tensor]) -> None:
    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(called)
            return called(*args, **(kwargs or {}))

    with Mode():
        function(z)
    assert getattr(functional, name.split(",")[0]) in seen


@together("name, function", OPERATORS.items(), of=lambda case: case[0])
def test_what_is_traced_is_written_down_whole(name: str, function: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    expected = function(z + 1)
    torch.manual_seed(0)
    graph = make_fx(function)(z)
    torch.manual_seed(0)
    torch.testing.assert_close(graph(z + 1), expected, rtol=1e-4, atol=1e-5)


@together("name, function", OPERATORS.items(), of=lambda case: case[0])
def test_a_checkpoint_may_keep_products_of_matrices(name: str, function: Callable[[Tensor], Tensor]) -> None:
    kept = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default]
    found = []
    for run in (function, partial(checkpoint, function, use_reentrant=False, context_fn=partial(selective, kept))):
        torch.manual_seed(0)
        leaf = z.clone().requires_grad_()
        run(leaf).square().sum().backward()
        found.append(leaf.grad)
    torch.testing.assert_close(*found)


@together("name, function", OPERATORS.items(), of=lambda case: case[0])
def test_vmap_over_gradients(name: str, function: Callable[[Tensor], Tensor]) -> None:
    leaf = z.clone().requires_grad_()
    y = function(leaf)
    grads = torch.randn(3, *y.shape)
    (batch,) = torch.vmap(lambda grad: torch.autograd.grad(y, leaf, grad, retain_graph=True))(grads)
    singly = [torch.autograd.grad(y, leaf, grad, retain_graph=True)[0] for grad in grads]
    torch.testing.assert_close(batch, torch.stack(singly), rtol=1e-4, atol=1e-5)
