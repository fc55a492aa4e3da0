"""multi_argument and quadratic_form: values, all derivatives, every layout, what is saved, what is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from companion.functional import multi_argument, quadratic_form
from companion.multi_argument import op, reference
from companion.multi_argument.quadratic import count_of
from tests.cases import together

#: Shape, dim and arity: tokens, images, what lies in between, one unit, one argument, many.
SHAPES: list[tuple[tuple[int, ...], int, int]] = [
    ((3, 7, 12), -1, 2),
    ((2, 6, 4, 3), 1, 2),
    ((2, 6, 4, 3), 1, 3),
    ((4, 6, 5), 0, 2),
    ((10,), 0, 5),
    ((5, 2), -1, 2),
    ((9, 4), 1, 1),
]


def written_out(x: Tensor, weights: list[Tensor], biases: list[Tensor], arity: int, dim: int) -> Tensor:
    """Unit by unit, as the paper's figure draws it."""
    outputs = []
    for start in range(0, x.shape[dim], arity):
        h = x.narrow(dim, start, arity).movedim(dim, 0)
        for k, (w, b) in enumerate(zip(weights, biases, strict=True)):
            h = torch.tensordot(w, h, 1) + b.view(-1, *[1] * (h.ndim - 1))
            if k < len(weights) - 1:
                h = h.clamp(min=0.0)
        outputs.append(h[0])
    return torch.stack(outputs, dim)


def form_written_out(x: Tensor, coefficients: Tensor, arity: int, dim: int) -> Tensor:
    """A sum over all monomials."""
    a = [x.narrow(dim, i, x.shape[dim] - arity + 1).movedim(dim, -1)[..., ::arity] for i in range(arity)]
    terms = [v * v for v in a] + [a[i] * a[j] for i in range(arity) for j in range(i + 1, arity)] + a
    terms.append(torch.ones_like(a[0]))
    return sum(c * t for c, t in zip(coefficients, terms, strict=True)).movedim(-1, dim)


def parameters(arity: int, widths: tuple[int, ...] = (64, 64), dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Weights and biases in turns."""
    sizes = [arity, *widths, 1]
    found = []
    for m, n in itertools.pairwise(sizes):
        found += [torch.randn(n, m, dtype=dtype) * math.sqrt(2 / m), torch.randn(n, dtype=dtype) / 2]
    return found


def network(x: Tensor, *given: Tensor, arity: int = 2, dim: int = -1) -> Tensor:
    return multi_argument(x, given[::2], given[1::2], arity, dim)


def differentiated(function: Callable[..., Tensor], given: list[Tensor], grad: Tensor) -> list[Tensor]:
    leaves = [each.detach().requires_grad_() for each in given]
    y = function(*leaves)
    return [y.detach(), *torch.autograd.grad(y, leaves, grad)]


def size(shape: tuple[int, ...], dim: int, arity: int) -> tuple[int, ...]:
    """That of the output."""
    result = list(shape)
    result[dim] //= arity
    return tuple(result)


@pytest.fixture(params=[2**18, 600], ids=["at once", "in chunks"])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of plain torch."""
    monkeypatch.setattr(reference, "CHUNK", request.param)


def assert_near(found: list[Tensor], exact: list[Tensor], like: list[Tensor]) -> None:
    for one, other, dtype in zip(found, exact, (x.dtype for x in like), strict=True):
        assert one.dtype == dtype
        # two units in the last place of 16 bits, and what the sums lose beside the largest number
        relative = 0.0 if dtype in (torch.float32, torch.float64) else 2 * torch.finfo(dtype).eps
        bound = relative * other.abs() + 4e-6 * other.abs().max().clamp(min=1e-3)
        assert one.shape == other.shape
        assert ((one.double() - other).abs() <= bound).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@together("shape, dim, arity", SHAPES)
def test_the_value_and_all_gradients(
    shape: tuple[int, ...], dim: int, arity: int, dtype: torch.dtype, chunk: None
) -> None:
    given, grad = [torch.randn(shape).to(dtype), *parameters(arity)], torch.randn(size(shape, dim, arity)).to(dtype)
    found = differentiated(lambda *x: network(*x, arity=arity, dim=dim), given, grad)
    exact = differentiated(
        lambda x, *p: written_out(x, p[::2], p[1::2], arity, dim), [x.double() for x in given], grad.double()
    )
    assert_near(found, exact, [given[0], *given])


@together("widths", [(5,), (7, 3), (4, 9, 2), (1, 1)])
def test_any_width_and_depth(widths: tuple[int, ...], chunk: None) -> None:
    given, grad = [torch.randn(50, 8), *parameters(2, widths)], torch.randn(50, 4)
    found = differentiated(network, given, grad)
    exact = differentiated(
        lambda x, *p: written_out(x, p[::2], p[1::2], 2, -1), [x.double() for x in given], grad.double()
    )
    assert_near(found, exact, [given[0], *given])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@together("shape, dim, arity", SHAPES)
def test_the_quadratic_form_and_all_gradients(
    shape: tuple[int, ...], dim: int, arity: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "CHUNK", 13)
    given, grad = [torch.randn(shape).to(dtype), torch.randn(count_of(arity))], torch.randn(size(shape, dim, arity))
    found = differentiated(lambda *x: quadratic_form(*x, arity, dim), given, grad.to(dtype))
    exact = differentiated(
        lambda *x: form_written_out(*x, arity, dim), [x.double() for x in given], grad.to(dtype).double()
    )
    assert_near(found, exact, [given[0], *given])


def test_the_coefficients_of_two_arguments_are_in_the_papers_order() -> None:
    x1, x2, c = 3.0, -2.0, [1.0, 10.0, 100.0, 1e3, 1e4, 1e5]
    y = quadratic_form(torch.tensor([x1, x2]), torch.tensor(c), 2)
    assert y.item() == c[0] * x1**2 + c[1] * x2**2 + c[2] * x1 * x2 + c[3] * x1 + c[4] * x2 + c[5]


def both(x: Tensor, dim: int) -> list[Tensor]:
    torch.manual_seed(1)
    return [network(x, *parameters(2), dim=dim), quadratic_form(x, torch.randn(6), 2, dim)]


@pytest.mark.parametrize("dim", [1, -1])
def test_channels_last_and_transposed_stay_as_they_lie(dim: int, chunk: None) -> None:
    x = torch.randn(4, 6, 6, 6)
    for given in (x, x.to(memory_format=torch.channels_last), x.transpose(0, 3)):
        for y, contiguous in zip(both(given, dim), both(given.contiguous(), dim), strict=True):
            torch.testing.assert_close(y, contiguous, rtol=1e-5, atol=1e-6)
            order = sorted(range(4), key=lambda d: -y.stride(d))
            assert order == sorted(range(4), key=lambda d: -given.stride(d))
            assert y.permute(order).is_contiguous()


@together("make", [lambda x: x[:, ::2], lambda x: x[:1].expand(4, 6, 6, 6), lambda x: x.flip(0)[:, :4]], of=id)
def test_views_of_every_kind(make: Callable[[Tensor], Tensor], chunk: None) -> None:
    given = make(torch.randn(2, 6, 6, 6))
    for y, contiguous in zip(both(given, -1), both(given.contiguous(), -1), strict=True):
        torch.testing.assert_close(y, contiguous, rtol=1e-5, atol=1e-6)


def test_in_chunks_only_the_operands_are_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "CHUNK", 600)
    given = [x.requires_grad_() for x in (torch.randn(40, 8), *parameters(2))]
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        network(*given)
        quadratic_form(given[0], given[2][:6], 2)
    assert {t.data_ptr() for t in saved} <= {t.data_ptr() for t in given}


def test_a_nan_stays_in_its_unit(chunk: None) -> None:
    x = torch.randn(3, 40)
    x[1, 7] = math.nan
    for y in both(x, -1):
        assert y.isnan().nonzero().tolist() == [[1, 3]]


def test_the_parameters_may_have_another_dtype(chunk: None) -> None:
    x, p = torch.randn(20, 8), parameters(2)
    expected = network(x, *p)
    assert torch.equal(network(x, *(each.double() for each in p)), expected)
    assert network(x.bfloat16(), *p).dtype == torch.bfloat16


def test_first_and_second_derivatives_in_double_precision(chunk: None) -> None:
    for shape, dim in (((3, 8), -1), ((2, 4, 2, 2), 1)):
        given = [torch.randn(shape, dtype=torch.float64), *parameters(2, (60, 3), torch.float64)]
        leaves = [each.requires_grad_() for each in given]
        torch.autograd.gradcheck(lambda *x, dim=dim: network(*x, dim=dim), leaves, fast_mode=True)
        torch.autograd.gradgradcheck(lambda *x, dim=dim: network(*x, dim=dim), leaves, fast_mode=True)
        c = torch.randn(6, dtype=torch.float64, requires_grad=True)
        torch.autograd.gradcheck(lambda *x, dim=dim: quadratic_form(*x, 2, dim), (leaves[0], c))
        torch.autograd.gradgradcheck(lambda *x, dim=dim: quadratic_form(*x, 2, dim), (leaves[0], c))


def test_only_what_asks_for_a_gradient_gets_one(chunk: None) -> None:
    x, p = torch.randn(30, 8), parameters(2)
    grad = torch.randn(30, 4)
    dx, *dp = differentiated(network, [x, *p], grad)[1:]
    leaf = x.clone().requires_grad_()
    network(leaf, *p).backward(grad)
    torch.testing.assert_close(leaf.grad, dx)
    for k in range(len(p)):
        own = [each.clone() for each in p]
        own[k].requires_grad_()
        network(x, *own).backward(grad)
        torch.testing.assert_close(own[k].grad, dp[k])


@together("name", ["multi_argument", "quadratic_form"])
def test_transforms_and_forward_mode_agree_with_autograd(name: str, chunk: None) -> None:
    x, p, c = torch.randn(12, 6), parameters(2), torch.randn(6)

    def function(x: Tensor) -> Tensor:
        return network(x, *p) if name == "multi_argument" else quadratic_form(x, c, 2)

    torch.testing.assert_close(torch.func.vmap(function)(x), function(x), rtol=1e-5, atol=1e-5)
    jacobian = torch.func.jacfwd(function)(x[0])
    torch.testing.assert_close(jacobian, torch.func.jacrev(function)(x[0]))
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(function(forward_ad.make_dual(x[0], torch.ones(6))))
        torch.testing.assert_close(dual.tangent, jacobian @ torch.ones(6))
    leaf = x.clone().requires_grad_()
    y, grads = function(leaf), torch.randn(3, 12, 3)
    (batch,) = torch.autograd.grad(y, leaf, grads, is_grads_batched=True, retain_graph=True)
    singly = [torch.autograd.grad(y, leaf, grad, retain_graph=True)[0] for grad in grads]
    torch.testing.assert_close(batch, torch.stack(singly), rtol=1e-4, atol=1e-5)


def test_a_network_for_each_sample_by_vmap() -> None:
    x, p = torch.randn(3, 5, 8), [torch.stack([each, -each, 2 * each]) for each in parameters(2)]
    found = torch.func.vmap(network)(x, *p)
    torch.testing.assert_close(found, torch.stack([network(x[k], *(each[k] for each in p)) for k in range(3)]))


def test_autocast_leaves_the_sums_alone(chunk: None) -> None:
    x = torch.randn(30, 8)
    outside = both(x, -1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = both(x, -1)
    assert all(map(torch.equal, inside, outside))


@pytest.mark.compiler
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels last"])
def test_compiled_equals_eager_without_a_graph_break(layout: torch.memory_format) -> None:
    torch.compiler.reset()
    x, grad = torch.randn(2, 6, 3, 3).to(memory_format=layout), torch.randn(2, 3, 3, 3)
    for function, given in (
        (lambda *operands: network(*operands, dim=1), [x, *parameters(2, (8, 8))]),
        (lambda x, c: quadratic_form(x, c, 2, 1), [x, torch.randn(6)]),
    ):
        found = differentiated(torch.compile(function, fullgraph=True), given, grad)
        expected = differentiated(function, given, grad)
        assert found[0].stride() == expected[0].stride()
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.compiler
def test_the_compilers_operator_is_what_it_says() -> None:
    flat = torch.cat([p.flatten() for p in parameters(2, (4, 3))])
    x = torch.randn(2, 6, 3, 3)
    views = [x, x.to(memory_format=torch.channels_last), x.transpose(0, 3), x[:1].expand(2, 6, 3, 3), x[:0]]
    for given in views:
        leaves = given.detach().requires_grad_(), flat.detach().requires_grad_()
        torch.library.opcheck(op.OP, (*leaves, [2, 4, 3, 1], 1))


def test_empty_input(chunk: None) -> None:
    for shape in ((0, 4), (3, 0), (2, 0, 5)):
        given = [x.requires_grad_() for x in (torch.ones(shape), *parameters(2), torch.ones(6))]
        dim = 1 if len(shape) == 3 else -1
        y = network(*given[:-1], dim=dim), quadratic_form(given[0], given[-1], 2, dim)
        (y[0].sum() + y[1].sum()).backward()
        assert y[0].shape == y[1].shape == size(shape, dim, 2)
        assert all(x.grad is not None and not x.grad.any() for x in given)


X, P = torch.ones(2, 6), [torch.ones(4, 2), torch.ones(4), torch.ones(1, 4), torch.ones(1)]
W, B = P[::2], P[1::2]
BAD: list[tuple[tuple[Any, ...], type[Exception], str]] = [
    ((X.int(), W, B, 2), TypeError, "x: got dtype torch.int32"),
    ((X, W, B, 0), ValueError, "arity: got 0, allowed is at least 1"),
    ((X, W, B, 2.0), TypeError, "arity: got 2.0, allowed is an int"),
    ((X, W, B, 4), ValueError, "x: got 6 elements along dim=-1, allowed is a multiple of arity, 4"),
    ((X, W, B, 2, 2), ValueError, "dim: got 2 for x with 2 dimensions"),
    ((torch.ones(()), W, B, 1), ValueError, "dim: got -1 for x with 0 dimensions"),
    ((X, W, B, 3), ValueError, r"weights: got shape \(4, 2\) at place 0, allowed is \(h, 3\) there"),
    ((X, [W[0], torch.ones(2, 4)], B, 2), ValueError, r"weights: got shape \(2, 4\) at place 1, allowed is \(1, 4\)"),
    ((X, [W[0], torch.ones(4)], B, 2), ValueError, r"weights: got shape \(4,\) at place 1"),
    ((X, W, [B[0], torch.ones(())], 2), ValueError, r"biases: got shape \(\) at place 1, allowed is \(1,\)"),
    ((X, W[:1], B[:1], 2), ValueError, "weights: got 1, allowed is a hidden layer at least"),
    ((X, W, B[:1], 2), ValueError, "biases: got 1 for 2 weights"),
    ((X, W[0], B, 2), TypeError, "weights: got Tensor, allowed is a sequence of tensors"),
    ((X, W, None, 2), TypeError, "biases: got NoneType, allowed is a sequence"),
    ((X, [W[0].int(), W[1]], B, 2), TypeError, "weights: got dtype torch.int32"),
    ((X, W, [B[0].to("meta"), B[1]], 2), ValueError, "biases: got device meta, allowed is the device of x, cpu"),
]
BAD_FORM: list[tuple[tuple[Any, ...], type[Exception], str]] = [
    ((X, torch.ones(5), 2), ValueError, r"coefficients: got shape \(5,\), allowed is \(6,\) for arity 2"),
    ((X, torch.ones(6).int(), 2), TypeError, "coefficients: got dtype torch.int32"),
    ((X, torch.ones(6), -1), ValueError, "arity: got -1, allowed is at least 1"),
    ((X, torch.ones(15), 4), ValueError, "x: got 6 elements"),
    ((X, torch.ones(6), 2, -3), ValueError, "dim: got -3 for x with 2 dimensions"),
]


@together("given, error, message", BAD, of=lambda case: case[2])
def test_bad_input(given: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        multi_argument(*given)


@together("given, error, message", BAD_FORM, of=lambda case: case[2])
def test_bad_input_of_the_form(given: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        quadratic_form(*given)


def test_lists_of_parameters_are_sequences() -> None:
    weights, biases = (nn.ParameterList(each) for each in (W, B))
    assert torch.equal(multi_argument(X, weights, biases, 2), multi_argument(X, W, B, 2))
