"""dac_linear and dac_conv2d: every backend, eager and compiled, every kind of tensor, and what is refused."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.nn import functional as F

import companion
from companion import simulator
from companion.activations import ACTIVATIONS
from companion.dac import op, reference
from companion.dac.reference import Geometry
from companion.functional import dac_conv2d, dac_linear
from tests.cases import together

INF, NAN = math.inf, math.nan
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}

each_activation = pytest.mark.parametrize("activation", ACTIVATIONS)
either_order = pytest.mark.parametrize("pad_order", reference.PAD_ORDERS)
either_bias = pytest.mark.parametrize("per_weight", [False, True], ids=["per pair", "per weight"])

#: z, weight, and the numbers of a convolution. Strides that skip pixels, kernels wider than the image, padding that
#: reaches beyond the kernel, kernels that are not square, one pixel.
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 5, 6), (4, 3, 3, 3), {}),
    "padded": ((2, 3, 5, 4), (2, 3, 3, 3), {"padding": 1}),
    "stride": ((1, 2, 7, 6), (3, 2, 3, 3), {"padding": 1, "stride": 2}),
    "stride beyond the kernel": ((1, 2, 8, 7), (3, 2, 2, 1), {"stride": (3, 2)}),
    "dilation": ((1, 2, 7, 7), (2, 2, 3, 2), {"dilation": (2, 3), "padding": 2}),
    "stride and dilation": ((1, 2, 9, 8), (2, 2, 3, 3), {"dilation": 2, "stride": 3, "padding": (2, 3)}),
    "groups": ((2, 4, 4, 4), (6, 2, 3, 3), {"groups": 2, "padding": 1}),
    "depthwise": ((1, 3, 4, 4), (3, 1, 3, 3), {"groups": 3, "padding": 1}),
    "one by one": ((3, 5, 3, 2), (4, 5, 1, 1), {}),
    "one by one, stride": ((2, 3, 5, 5), (4, 3, 1, 1), {"stride": 2}),
    "padding beyond the kernel": ((1, 2, 3, 3), (2, 2, 2, 2), {"padding": 3}),
    "kernel beyond the image": ((1, 2, 2, 3), (2, 2, 4, 3), {"padding": 2}),
    "one pixel": ((2, 3, 1, 1), (2, 3, 3, 3), {"padding": 1}),
}
each_shape = together("shape", SHAPES)


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operands here are tiny, and are to go the way of large ones."""
    monkeypatch.setattr(op, "SMALL", 0)


def conv_by_hand(
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    activation: str = "relu",
    pad_order: str = "after",
) -> Tensor:
    """Eq. 5, one connection and one position at a time, in the dtype of its operands."""
    phi = ACTIVATIONS[activation]
    (sh, sw), (ph, pw), (dh, dw) = (x if isinstance(x, tuple) else (x, x) for x in (stride, padding, dilation))
    (n, own, kh, kw), (_, _, h, w) = weight.shape, z.shape
    outside = 0.0 if pad_order == "before" else NAN
    padded = F.pad(z, (pw, pw, ph, ph), value=outside)
    rows, columns = (h + 2 * ph - dh * (kh - 1) - 1) // sh + 1, (w + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    total = z.new_zeros(z.shape[0], n, rows, columns)
    for i, j, p, q in itertools.product(range(n), range(own), range(kh), range(kw)):
        seen = padded[:, i // (n // groups) * own + j, p * dh :: sh, q * dw :: sw][:, :rows, :columns]
        b = bias[i, j] if bias.ndim == 2 else bias[i, j, p, q]
        inside = torch.ones_like(seen, dtype=torch.bool) if pad_order == "before" else ~seen.isnan()
        term = weight[i, j, p, q] * phi(torch.where(inside, seen, 0.0) + b)
        total[:, i] += torch.where(inside, term, 0.0)
    return total


def linear_by_hand(z: Tensor, weight: Tensor, bias: Tensor, activation: str = "relu") -> Tensor:
    """Eq. 4, one output at a time."""
    phi = ACTIVATIONS[activation]
    return torch.stack([(w * phi(z + b)).sum(-1) for w, b in zip(weight, bias, strict=True)], -1)


def conv_operands(
    shape: str, per_weight: bool, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> tuple[list[Tensor], dict[str, Any]]:
    """z, weight and bias, each with a gradient; and the numbers."""
    image, kernel, numbers = SHAPES[shape]
    sizes = (image, kernel, kernel if per_weight else kernel[:2])
    return [torch.randn(s, device=device).to(dtype).requires_grad_() for s in sizes], numbers


def linear_operands(N: int, m: int, n: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.randn(s, device=device).to(dtype).requires_grad_() for s in ((N, m), (n, m), (n, m))]


def results(f: Tensor, operands: list[Tensor], g: Tensor) -> list[Tensor]:
    """Value and gradients."""
    return [f.detach(), *torch.autograd.grad(f, operands, g)]


def assert_equals_double_precision(
    function: Callable[..., Tensor], by_hand: Callable[..., Tensor], operands: list[Tensor]
) -> None:
    """Value, gradients, and their shapes and dtypes."""
    f = function(*operands)
    assert (f.dtype, f.device) == (operands[0].dtype, operands[0].device)
    g = torch.randn_like(f)
    doubles = [x.detach().cpu().double().requires_grad_() for x in operands]
    expected = results(by_hand(*doubles), doubles, g.cpu().double())
    tolerance = TOLERANCE[f.dtype]
    for got, want, like in zip(results(f, operands, g), expected, [f, *operands], strict=True):
        assert (got.shape, got.dtype) == (like.shape, like.dtype)
        atol = tolerance * max(1.0, want.abs().max().item())
        torch.testing.assert_close(got.cpu().double(), want, rtol=tolerance, atol=atol)


# --- what it computes ---


@together("sizes", [(3, 4, 5), (1, 1, 1), (9, 2, 3), (2, 17, 1), (40, 3, 35)])
def test_it_is_equation_4(backend: str, device: str, sizes: tuple[int, int, int]) -> None:
    assert_equals_double_precision(dac_linear, linear_by_hand, linear_operands(*sizes, device))


@each_shape
@either_bias
@either_order
def test_it_is_equation_5(backend: str, device: str, shape: str, per_weight: bool, pad_order: str) -> None:
    operands, numbers = conv_operands(shape, per_weight, device)
    assert_equals_double_precision(
        lambda *x: dac_conv2d(*x, **numbers, pad_order=pad_order),
        lambda *x: conv_by_hand(*x, **numbers, pad_order=pad_order),
        operands,
    )


@each_activation
@together("dtype", TOLERANCE)
def test_every_activation_in_every_dtype(activation: str, dtype: torch.dtype) -> None:
    assert_equals_double_precision(
        lambda *x: dac_linear(*x, activation),
        lambda *x: linear_by_hand(*x, activation),
        linear_operands(4, 5, 3, dtype=dtype),
    )
    for per_weight in (False, True):
        operands, numbers = conv_operands("stride", per_weight, dtype=dtype)
        assert_equals_double_precision(
            lambda *x, k=numbers: dac_conv2d(*x, **k, activation=activation),
            lambda *x, k=numbers: conv_by_hand(*x, **k, activation=activation),
            operands,
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bits_on_every_backend(backend: str, device: str, dtype: torch.dtype) -> None:
    assert_equals_double_precision(dac_linear, linear_by_hand, linear_operands(5, 6, 4, device, dtype))
    operands, numbers = conv_operands("padded", False, device, dtype)
    assert_equals_double_precision(
        lambda *x: dac_conv2d(*x, **numbers), lambda *x: conv_by_hand(*x, **numbers), operands
    )


@pytest.mark.parametrize(("block", "tile"), [(1, 1), (7, 3), (64, 16), (10**9, 10**9)])
@either_bias
def test_blocks_of_any_size_give_the_same(
    monkeypatch: pytest.MonkeyPatch, block: int, tile: int, per_weight: bool
) -> None:
    monkeypatch.setattr(reference, "BLOCK", block)
    monkeypatch.setattr(reference, "TILE", tile)
    assert_equals_double_precision(dac_linear, linear_by_hand, linear_operands(5, 3, 4))
    for shape in ("padded", "stride and dilation", "groups", "padding beyond the kernel"):
        operands, numbers = conv_operands(shape, per_weight)
        assert_equals_double_precision(
            lambda *x, k=numbers: dac_conv2d(*x, **k), lambda *x, k=numbers: conv_by_hand(*x, **k), operands
        )


@each_shape
@either_bias
def test_small_operands_go_by_the_formula_itself(monkeypatch: pytest.MonkeyPatch, shape: str, per_weight: bool) -> None:
    monkeypatch.setattr(op, "SMALL", 2**20)
    monkeypatch.setattr(op, "FUNCTION", None)
    assert_equals_double_precision(dac_linear, linear_by_hand, linear_operands(5, 3, 4))
    operands, numbers = conv_operands(shape, per_weight)
    assert_equals_double_precision(
        lambda *x: dac_conv2d(*x, **numbers), lambda *x: conv_by_hand(*x, **numbers), operands
    )


@either_order
def test_a_bias_per_weight_that_is_constant_over_the_kernel_is_a_bias_per_pair(
    backend: str, device: str, pad_order: str
) -> None:
    (z, weight, bias), numbers = conv_operands("stride and dilation", False, device)
    many = bias[:, :, None, None].expand_as(weight)
    one, other = (dac_conv2d(z, weight, b, **numbers, pad_order=pad_order) for b in (bias, many))
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_a_kernel_of_one_position_is_a_dense_layer_of_every_pixel(backend: str, device: str) -> None:
    (z, weight, bias), _ = conv_operands("one by one", False, device)
    dense = dac_linear(z.permute(0, 2, 3, 1), weight[:, :, 0, 0], bias).permute(0, 3, 1, 2)
    torch.testing.assert_close(dac_conv2d(z, weight, bias), dense, rtol=1e-5, atol=1e-5)


def test_with_shared_biases_it_is_an_activation_and_a_convolution() -> None:
    (z, weight, _), numbers = conv_operands("padded", False)
    shared = torch.randn(3)
    expected = F.conv2d(F.relu(z + shared[:, None, None]), weight, **numbers)
    torch.testing.assert_close(dac_conv2d(z, weight, shared.expand(2, 3), **numbers), expected, rtol=1e-5, atol=1e-5)


def test_the_pad_orders_differ_at_the_border_alone_and_only_where_a_bias_is_positive() -> None:
    (z, weight, bias), numbers = conv_operands("padded", False)
    after, before = (dac_conv2d(z, weight, bias, **numbers, pad_order=order) for order in ("after", "before"))
    torch.testing.assert_close(after[:, :, 1:-1, 1:-1], before[:, :, 1:-1, 1:-1])
    assert not torch.allclose(after[:, :, 0], before[:, :, 0])
    negative = -bias.abs()
    after, before = (dac_conv2d(z, weight, negative, **numbers, pad_order=order) for order in ("after", "before"))
    torch.testing.assert_close(after, before)


@pytest.mark.parametrize(("kernel", "dilation"), [((3, 3), 1), ((5, 1), 1), ((3, 2), 2)], ids=str)
def test_padding_by_name(kernel: tuple[int, int], dilation: int) -> None:
    z, weight, bias = torch.randn(1, 2, 7, 8), torch.randn(3, 2, *kernel), torch.randn(3, 2)
    same = dac_conv2d(z, weight, bias, padding="same", dilation=dilation)
    assert same.shape == (1, 3, 7, 8)
    around = tuple(dilation * (k - 1) // 2 for k in kernel)
    assert torch.equal(same, dac_conv2d(z, weight, bias, padding=around, dilation=dilation))
    valid = dac_conv2d(z, weight, bias, padding="valid", dilation=dilation)
    assert torch.equal(valid, dac_conv2d(z, weight, bias, dilation=dilation))


def test_a_silent_connection_contributes_exactly_nothing() -> None:
    z, weight = torch.randn(4, 5), torch.randn(3, 5)
    bias = torch.full((3, 5), -1e6)
    bias[:, 0] = 0
    assert torch.equal(dac_linear(z, weight, bias), torch.relu(z[:, :1]) * weight[:, 0])


# --- derivatives ---


@each_activation
def test_first_and_second_derivatives_in_double_precision(activation: str) -> None:
    operands = linear_operands(3, 2, 3, dtype=torch.float64)
    assert gradcheck(lambda *x: dac_linear(*x, activation), operands, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(lambda *x: dac_linear(*x, activation), operands)


@either_bias
@either_order
@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_derivatives_of_the_convolution(per_weight: bool, pad_order: str, activation: str) -> None:
    z = torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 1, 2, 2, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(weight.shape if per_weight else (2, 1), dtype=torch.float64, requires_grad=True)

    def function(*x: Tensor) -> Tensor:
        return dac_conv2d(*x, stride=(2, 1), padding=1, groups=2, activation=activation, pad_order=pad_order)

    assert gradcheck(function, (z, weight, bias), check_forward_ad=True)
    assert gradgradcheck(function, (z, weight, bias))


def test_second_derivatives_on_every_backend(backend: str, device: str) -> None:
    operands = linear_operands(3, 4, 5, device)
    outcomes = []
    for x in (operands, [y.detach().cpu().double().requires_grad_() for y in operands]):
        (first,) = torch.autograd.grad(dac_linear(*x).square().sum(), x[0], create_graph=True)
        outcomes.append(torch.autograd.grad(first.square().sum(), x))
    for one, other in zip(*outcomes, strict=True):
        torch.testing.assert_close(one.cpu().double(), other, rtol=1e-4, atol=1e-3)


def test_forward_mode(backend: str, device: str) -> None:
    operands = [x.detach() for x in linear_operands(3, 4, 5, device)]
    tangents = [torch.randn_like(x) for x in operands]
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, t) for x, t in zip(operands, tangents, strict=True)]
        tangent = forward_ad.unpack_dual(dac_linear(*duals)).tangent
    step = 1e-6
    doubles = [
        [x.cpu().double() + s * t.cpu().double() for x, t in zip(operands, tangents, strict=True)]
        for s in (step, -step)
    ]
    expected = (linear_by_hand(*doubles[0]) - linear_by_hand(*doubles[1])) / (2 * step)
    torch.testing.assert_close(tangent.cpu().double(), expected, rtol=1e-4, atol=1e-4)


def test_the_transforms_of_torch_func_agree_with_autograd() -> None:
    operands, numbers = conv_operands("padded", False, dtype=torch.float64)
    z, weight, bias = (x.detach() for x in operands)

    def loss(weight: Tensor, image: Tensor) -> Tensor:
        return dac_conv2d(image, weight, bias, **numbers).square().sum()

    per_sample = torch.func.vmap(torch.func.grad(loss), (None, 0))(weight, z)
    (expected,) = torch.autograd.grad(loss(operands[1], z), operands[1])
    torch.testing.assert_close(per_sample.sum(0), expected)
    per_sample = torch.func.vmap(lambda row: dac_linear(row, weight[:, :, 0, 0], bias))(z[:, :, 0, 0])
    torch.testing.assert_close(per_sample, dac_linear(z[:, :, 0, 0], weight[:, :, 0, 0], bias))


@together("needed", [needs for needs in itertools.product([False, True], repeat=3) if any(needs)])
def test_only_the_gradients_that_are_needed(backend: str, device: str, needed: tuple[bool, ...]) -> None:
    operands, numbers = conv_operands("groups", False, device)
    for function, x in (
        (lambda *y: dac_conv2d(*y, **numbers), operands),
        (dac_linear, linear_operands(3, 4, 5, device)),
    ):
        f = function(*x)
        g = torch.randn_like(f)
        expected = torch.autograd.grad(f, x, g)
        some = [y.detach().requires_grad_(need) for y, need in zip(x, needed, strict=True)]
        function(*some).backward(g)
        for y, want, need in zip(some, expected, needed, strict=True):
            assert torch.equal(y.grad, want) if need else y.grad is None


def test_the_operands_alone_are_saved(backend: str, device: str) -> None:
    operands, numbers = conv_operands("padded", False, device)
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        dac_conv2d(*operands, **numbers)
    assert sorted(x.numel() for x in saved) == sorted(x.numel() for x in operands)


# --- numbers at the edge ---


def test_the_slope_at_the_kink_is_zero(backend: str, device: str) -> None:
    z = torch.tensor([[-1.5, 2.0]], device=device, requires_grad=True)
    weight = torch.tensor([[3.0, 5.0]], device=device, requires_grad=True)
    bias = torch.tensor([[1.5, -2.0]], device=device, requires_grad=True)
    f = dac_linear(z, weight, bias)
    f.sum().backward()
    assert f.item() == 0
    assert [x.grad.tolist() for x in (z, weight, bias)] == [[[0.0, 0.0]]] * 3


def test_nan_comes_through(backend: str, device: str) -> None:
    z = torch.randn(4, 3, device=device)
    z[1, 2] = NAN
    z.requires_grad_()
    weight, bias = (torch.randn(2, 3, device=device, requires_grad=True) for _ in range(2))
    f = dac_linear(z, weight, bias)
    f.sum().backward()
    assert f.isnan().tolist() == [[False] * 2, [True] * 2, [False] * 2, [False] * 2]
    assert weight.grad[:, 2].isnan().all()
    assert not weight.grad[:, :2].isnan().any()
    assert not z.grad.isnan().any()
    assert torch.equal(z.grad[1, 2], weight[:, 2].sum())


@pytest.mark.parametrize("sign", [1, -1])
def test_infinity_is_itself_or_nothing(backend: str, device: str, sign: int) -> None:
    z = torch.tensor([[sign * INF, 1.0]], device=device, requires_grad=True)
    weight = torch.tensor([[2.0, 3.0]], device=device, requires_grad=True)
    bias = torch.tensor([[0.5, 0.5]], device=device, requires_grad=True)
    f = dac_linear(z, weight, bias)
    f.sum().backward()
    assert f.item() == (INF if sign > 0 else 4.5)
    assert weight.grad.tolist() == [[INF if sign > 0 else 0.0, 1.5]]
    assert z.grad.tolist() == [[2.0 if sign > 0 else 0.0, 3.0]]


# --- tensors of every kind ---


@together("leading", [(), (3,), (2, 3), (2, 1, 3, 2)])
def test_any_number_of_leading_dimensions(backend: str, device: str, leading: tuple[int, ...]) -> None:
    z = torch.randn(*leading, 4, device=device, requires_grad=True)
    weight, bias = (torch.randn(5, 4, device=device, requires_grad=True) for _ in range(2))
    assert dac_linear(z, weight, bias).shape == (*leading, 5)
    assert_equals_double_precision(dac_linear, linear_by_hand, [z, weight, bias])


def test_one_image_without_a_batch() -> None:
    (z, weight, bias), numbers = conv_operands("padded", False)
    one = dac_conv2d(z[0], weight, bias, **numbers)
    torch.testing.assert_close(one, dac_conv2d(z, weight, bias, **numbers)[0])


def _layouts() -> dict[str, Callable[[Tensor], Tensor]]:
    """Views of the same values."""
    return {
        "channels-last": lambda z: z.contiguous(memory_format=torch.channels_last),
        "batch last": lambda z: z.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
        "columns first": lambda z: z.transpose(2, 3).contiguous().transpose(2, 3),
        "every second": lambda z: torch.stack([z, z], -1).flatten(3)[..., ::2],
        "expanded": lambda z: z[:1].expand_as(z),
        "expanded channel": lambda z: z[:, :1].expand_as(z),
    }


@together("layout", _layouts())
def test_every_layout_of_every_operand(backend: str, device: str, layout: str) -> None:
    view = _layouts()[layout]
    operands, numbers = conv_operands("padded", True, device)
    for k in range(3):
        moved = [view(x).detach().requires_grad_() if i == k else x for i, x in enumerate(operands)]
        f = dac_conv2d(*moved, **numbers)
        g = view(torch.randn_like(f))
        plain = [x.detach().clone(memory_format=torch.contiguous_format).requires_grad_() for x in moved]
        expected = results(dac_conv2d(*plain, **numbers), plain, g.contiguous())
        for one, other in zip(results(f, moved, g), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@together("activation", ["relu", "silu", "a function"])
def test_one_image_with_everything_channels_last(activation: str) -> None:
    """With one output a group: there the convolution itself is torch's, which in this layout needs care."""
    phi = F.softplus if activation == "a function" else activation
    operands = [torch.randn(s, dtype=torch.float64) for s in ((1, 4, 5, 5), (2, 2, 3, 3), (2, 2))]
    found = []
    for form in (torch.contiguous_format, torch.channels_last):
        moved = [x.contiguous(memory_format=form) if x.ndim == 4 else x for x in operands]
        moved = [x.detach().requires_grad_() for x in moved]
        f = dac_conv2d(*moved, padding=1, groups=2, activation=phi)
        first = torch.autograd.grad(f.square().sum(), moved, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), moved)
        found.append([f, *first, *second])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@either_bias
@together("limit", [0, 2**20])
def test_without_any_meeting_the_gradients_are_zero(
    monkeypatch: pytest.MonkeyPatch, per_weight: bool, limit: int
) -> None:
    """A kernel whose positions all fall beside the image; torch's convolution does the same."""
    monkeypatch.setattr(op, "SMALL", limit)
    weight = torch.randn(3, 2, 2, 2, requires_grad=True)
    z, bias = torch.randn(1, 2, 1, 1, requires_grad=True), torch.randn(3, 2, requires_grad=True)
    b = bias[..., None, None].expand_as(weight) if per_weight else bias
    f = dac_conv2d(z, weight, b, padding=1, dilation=2)
    assert f.shape == (1, 3, 1, 1)
    assert not f.any()
    for gradient in torch.autograd.grad(f.sum(), (z, weight, bias)):
        assert not gradient.any()


def test_dense_operands_may_be_transposed_or_expanded(backend: str, device: str) -> None:
    z, weight, bias = (
        torch.randn(4, 3, device=device).t(),
        torch.randn(1, 4, device=device).expand(5, 4),
        torch.randn(4, 5, device=device).t(),
    )
    expected = dac_linear(z.contiguous(), weight.contiguous(), bias.contiguous())
    torch.testing.assert_close(dac_linear(z, weight, bias), expected)


def test_channels_last_stays_channels_last() -> None:
    (z, weight, bias), numbers = conv_operands("padded", False)
    z = z.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    f = dac_conv2d(z, weight, bias, **numbers)
    assert f.is_contiguous(memory_format=torch.channels_last)
    assert not f.is_contiguous()
    assert dac_conv2d(z.contiguous(), weight, bias, **numbers).is_contiguous()


@pytest.mark.parametrize(("N", "m", "n"), [(0, 3, 2), (2, 0, 3), (2, 3, 0)], ids=str)
def test_empty_operands(backend: str, device: str, N: int, m: int, n: int) -> None:
    for operands, function in (
        (linear_operands(N, m, n, device), dac_linear),
        ([torch.randn(s, device=device).requires_grad_() for s in ((N, m, 4, 4), (n, m, 3, 3), (n, m))], dac_conv2d),
    ):
        f = function(*operands)
        f.sum().backward()
        assert f.shape[:2] == (N, n)
        assert not f.any()
        for x in operands:
            assert x.grad.shape == x.shape
            assert not x.grad.any()


@pytest.mark.parametrize(("m", "n"), [(0, 3), (3, 0)], ids=str)
def test_empty_weights_whoever_differentiates(m: int, n: int) -> None:
    operands = [torch.randn(s).requires_grad_() for s in ((2, m, 4, 4), (n, m, 3, 3), (n, m))]
    first = torch.autograd.grad(dac_conv2d(*operands).sum(), operands, create_graph=True)
    assert [x.shape for x in first] == [x.shape for x in operands]
    assert not any(x.any() for x in first)
    z, weight, bias = (x.detach() for x in operands)
    assert torch.func.vmap(dac_conv2d, (0, None, None))(torch.stack([z, z]), weight, bias).shape == (2, 2, n, 2, 2)
    _, tangent = torch.func.jvp(lambda z: dac_conv2d(z, weight, bias), (z,), (z,))
    assert tangent.shape == (2, n, 2, 2)
    assert not tangent.any()


def test_parameters_are_cast_to_the_dtype_of_z_and_keep_their_own_gradients(backend: str, device: str) -> None:
    z, weight, bias = linear_operands(3, 4, 5, device)
    half = z.detach().bfloat16()
    f = dac_linear(half, weight, bias)
    assert f.dtype == torch.bfloat16
    assert torch.equal(f, dac_linear(half, weight.bfloat16(), bias.bfloat16()))
    f.sum().backward()
    assert weight.grad.dtype == bias.grad.dtype == torch.float32


def test_a_network_under_autocast(backend: str, device: str) -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), companion.DACConv2d(3, 2, 3), nn.Flatten(), companion.DACLinear(8, 4), nn.Linear(4, 2)
    ).to(device)
    x = torch.randn(2, 1, 6, 6, device=device)
    exact = model(x)
    with torch.autocast(device, torch.bfloat16):
        y = model(x)
        loss = y.float().square().sum()
    loss.backward()
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), exact, rtol=0.1, atol=0.1)
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in model.parameters())


def test_autocast_does_not_shorten_the_sums() -> None:
    z, weight, bias = (x.detach() for x in linear_operands(4, 300, 5))
    exact = dac_linear(z, weight, bias)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(dac_linear(z, weight, bias), exact)
        assert torch.equal(dac_linear(z, weight, bias, torch.relu), dac_linear(z, weight, bias, F.relu))


def test_the_same_input_gives_the_same_bits(backend: str, device: str) -> None:
    operands, numbers = conv_operands("stride", False, device)
    g = torch.randn_like(dac_conv2d(*operands, **numbers))
    one, other = (results(dac_conv2d(*operands, **numbers), operands, g) for _ in range(2))
    assert all(map(torch.equal, one, other))


# --- functions instead of names ---


@each_activation
def test_a_function_gives_what_its_name_gives(activation: str) -> None:
    phi = ACTIVATIONS[activation]
    for shape in ("padded", "groups"):
        operands, numbers = conv_operands(shape, True)
        named, called = (dac_conv2d(*operands, **numbers, activation=a) for a in (activation, phi))
        g = torch.randn_like(named)
        for one, other in zip(results(called, operands, g), results(named, operands, g), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@together("limit", [0, 2**20])
def test_a_function_may_work_in_place(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(op, "SMALL", limit)
    operands, numbers = conv_operands("padded", False)
    g = torch.randn(2, 2, 5, 4)
    found = [
        results(dac_conv2d(*operands, **numbers, activation=phi), operands, g)
        for phi in ("relu", nn.ReLU(inplace=True))
    ]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("block", [1, 2**19])
def test_what_a_function_has_learned_has_derivatives(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(reference, "BLOCK", block)
    slope = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    operands = [*linear_operands(2, 2, 2, dtype=torch.float64), slope]

    def function(z: Tensor, weight: Tensor, bias: Tensor, slope: Tensor) -> Tensor:
        steeper = 2 * slope
        return dac_linear(z, weight, bias, lambda x: x * torch.sigmoid(steeper * x))

    assert gradcheck(function, operands)
    assert gradgradcheck(function, operands)


def test_a_function_that_ignores_its_input_has_slope_zero() -> None:
    operands = linear_operands(3, 4, 2)
    f = dac_linear(*operands, torch.ones_like)
    f.sum().backward()
    torch.testing.assert_close(f, operands[1].sum(1).expand(3, 2))
    assert not operands[0].grad.any()


@pytest.mark.parametrize("phi", [lambda x: x.sum(), lambda x: x.bfloat16(), lambda x: 1.0])
def test_a_function_that_is_not_elementwise_is_refused(phi: Any) -> None:
    with pytest.raises(ValueError, match=r"activation: returned .* keeps both"):
        dac_linear(*linear_operands(3, 4, 2), phi)


# --- the compiler ---

COMPILED: dict[str, Callable[..., Tensor]] = {
    "dense": dac_linear,
    "dense, leaky_relu": lambda z, w, b: dac_linear(z.tanh(), w, b, "leaky_relu"),
    "dense, identity": lambda z, w, b: dac_linear(z, w, b, "identity"),
    "dense, transposed": lambda z, w, b: dac_linear((2 * z).t().contiguous().t(), w, b),
    "dense, behind a norm": lambda z, w, b: dac_linear(F.batch_norm(z, None, None, b[0], b[1], True), w, b),
    "dense, one tensor twice": lambda z, w, b: dac_linear(z, w, w) + b.sum(),
    "dense, silu": lambda z, w, b: dac_linear(z, w, b, "silu"),
    "convolution": lambda z, w, b: dac_conv2d(z, w, b, padding=1),
    "channels-last": lambda z, w, b: dac_conv2d(z.contiguous(memory_format=torch.channels_last), w, b, stride=2),
    "convolution, gelu": lambda z, w, b: dac_conv2d(z, w, b, padding=1, activation="gelu", pad_order="before"),
}


def compiler_operands(case: str) -> list[Tensor]:
    if case.startswith("dense"):
        return linear_operands(4, 5, 3)
    return [torch.randn(s).requires_grad_() for s in ((2, 3, 5, 4), (4, 3, 3, 3), (4, 3))]


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("case", COMPILED)
@pytest.mark.parametrize("compiler", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_equals_eager_in_one_graph(case: str, compiler: str) -> None:
    function, operands = COMPILED[case], compiler_operands(case)
    compiled = torch.compile(function, fullgraph=True, backend=compiler)
    g = torch.randn_like(function(*operands))
    expected, got = (results(f(*operands), operands, g) for f in (function, compiled))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)
        assert one.stride() == other.stride()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("case", ["dense", "dense, silu", "convolution"])
def test_dynamic_sizes_compile_once(case: str) -> None:
    compiled = torch.compile(COMPILED[case], fullgraph=True, dynamic=True, backend="aot_eager")
    z, weight, bias = compiler_operands(case)
    for N in (2, 3, 5):
        images = torch.randn(N, *z.shape[1:], requires_grad=True)
        f = compiled(images, weight, bias)
        torch.testing.assert_close(f, COMPILED[case](images, weight, bias), rtol=1e-5, atol=1e-5)
        f.sum().backward()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "identity"])
def test_compiled_sums_are_those_of_eager_at_the_kinks_and_beyond(activation: str) -> None:
    def function(z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return dac_linear(z, weight, bias, activation)

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    # zeros of both signs, sums of zero, the smallest numbers, infinities, NaN
    z = torch.tensor([[0.0], [-0.0], [0.5], [-0.5], [2e-45], [-1e-38], [math.inf], [-math.inf], [math.nan]])
    bias = torch.tensor([[0.0], [-0.0], [0.5], [-0.5], [-1e-45], [1e-38]])
    operands = [x.requires_grad_() for x in (z, torch.arange(1.0, 7.0)[:, None], bias)]
    for given in (slice(None, -3), slice(-3, None)):  # of what is not finite the sums over samples are not, either
        rows = [operands[0][given].detach().requires_grad_(), *operands[1:]]
        g = torch.ones(len(rows[0]), 6)
        expected, got = (results(f(*rows), rows, g) for f in (function, compiled))
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-30, equal_nan=True)


@pytest.mark.usefixtures("fresh_compiler")
def test_the_compiled_convolution_asks_the_backend() -> None:
    if simulator.why_not() is not None:
        pytest.skip(str(simulator.why_not()))
    operands, numbers = conv_operands("padded", False)
    compiled = torch.compile(lambda *x: dac_conv2d(*x, **numbers), fullgraph=True, backend="aot_eager")
    with companion.backend("simulator"):
        simulated, eager = compiled(*operands), dac_conv2d(*operands, **numbers)
    assert torch.equal(simulated, eager)
    torch.testing.assert_close(simulated, compiled(*operands), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("fresh_compiler")
def test_a_function_breaks_the_graph_and_says_so_when_it_must_not() -> None:
    operands = linear_operands(4, 5, 3)

    def function(*x: Tensor) -> Tensor:
        return 2 * dac_linear(*x, torch.tanh)

    torch.testing.assert_close(torch.compile(function, backend="aot_eager")(*operands), function(*operands))
    torch._dynamo.reset()
    whole = torch.compile(function, fullgraph=True, backend="aot_eager")
    with pytest.raises(torch._dynamo.exc.Unsupported, match="dac_with_a_function"):
        whole(*operands)


@pytest.mark.usefixtures("fresh_compiler")
def test_a_transform_inside_a_compiled_function() -> None:
    (z, weight, bias), _ = conv_operands("padded", False)

    def function(z: Tensor) -> Tensor:
        return torch.func.vmap(lambda one: dac_conv2d(one, weight, bias, padding=1))(z)

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(z), dac_conv2d(z, weight, bias, padding=1), rtol=1e-5, atol=1e-5)


IMAGES = {
    "contiguous": lambda: torch.randn(2, 4, 5, 6),
    "channels-last": lambda: torch.randn(2, 4, 5, 6).contiguous(memory_format=torch.channels_last),
    "permuted": lambda: torch.randn(4, 2, 6, 5).permute(1, 0, 3, 2),
    "expanded": lambda: torch.randn(1, 4, 5, 6).expand(2, -1, -1, -1),
    "empty": lambda: torch.randn(0, 4, 5, 6),
}


@pytest.mark.parametrize("image", IMAGES)
@either_bias
def test_the_compilers_operators_keep_their_promises(image: str, per_weight: bool) -> None:
    z, weight = IMAGES[image](), torch.randn(6, 2, 3, 2)
    bias = torch.randn(weight.shape if per_weight else (6, 2))
    settings = ([2, 1], [1, 1], [1, 2], 2, per_weight, "relu")
    needing = [x.detach().requires_grad_() for x in (z, weight, bias)]
    torch.library.opcheck(op.OP, (*needing, *settings))
    g = torch.randn_like(op.OP(z, weight, bias, *settings))
    torch.library.opcheck(op.OP_BACKWARD, (g, z, weight, bias, *settings, [True, image == "empty", True]))
    torch.library.opcheck(op.IN_MEMORY, (needing[0],))


# --- what is refused ---


def _conv(z: Any = (1, 4, 5, 5), weight: Any = (6, 4, 3, 3), bias: Any = (6, 4), **numbers: Any) -> Tensor:
    return dac_conv2d(*(torch.ones(x) if isinstance(x, tuple) else x for x in (z, weight, bias)), **numbers)


def _linear(z: Any = (2, 3), weight: Any = (4, 3), bias: Any = (4, 3), **settings: Any) -> Tensor:
    return dac_linear(*(torch.ones(x) if isinstance(x, tuple) else x for x in (z, weight, bias)), **settings)


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "integers": (lambda: _linear(z=torch.ones(2, 3, dtype=torch.int64)), TypeError, "z: got dtype torch.int64"),
    "integer weight": (lambda: _conv(weight=torch.ones(6, 4, 3, 3, dtype=torch.int32)), TypeError, "weight: got dtype"),
    "no tensor": (lambda: _linear(bias=[1.0]), TypeError, "bias: got list"),
    "no dimension": (lambda: _linear(z=torch.tensor(1.0)), ValueError, "z: got 0 dimensions"),
    "another device": (lambda: _linear(weight=torch.ones(4, 3, device="meta")), ValueError, "weight: got device meta"),
    "weight": (lambda: _linear(weight=(4, 5)), ValueError, r"weight: got shape \(4, 5\) for z of shape \(2, 3\)"),
    "weight 1-d": (lambda: _linear(weight=(3,)), ValueError, r"weight: got shape \(3,\)"),
    "bias": (lambda: _linear(bias=(4,)), ValueError, r"bias: got shape \(4,\), allowed is .*\(4, 3\)"),
    "activation": (lambda: _linear(activation="swish"), ValueError, "got 'swish', allowed are 'relu', 'leaky_relu'"),
    "activation a number": (lambda: _linear(activation=3), TypeError, "activation: got int"),
    "image": (lambda: _conv(z=(5, 5)), ValueError, r"z: got shape \(5, 5\), allowed is \(N, m, H, W\)"),
    "kernel": (lambda: _conv(weight=(6, 4)), ValueError, r"weight: got shape \(6, 4\), allowed is \(n, m/groups"),
    "channels": (
        lambda: _conv(weight=(6, 3, 3, 3), bias=(6, 3)),
        ValueError,
        r"\(6, 3, 3, 3\) for z of .*\(1, 4, 5, 5\)",
    ),
    "rank of the bias": (lambda: _conv(bias=(6,)), ValueError, r"bias: got shape \(6,\), .* \(6, 4\).* \(6, 4, 3, 3\)"),
    "shape of the bias": (lambda: _conv(bias=(4, 6)), ValueError, r"bias: got shape \(4, 6\)"),
    "stride zero": (lambda: _conv(stride=0), ValueError, "stride: got 0, allowed is at least 1"),
    "stride a float": (lambda: _conv(stride=1.0), TypeError, "stride: got 1.0, allowed is an int"),
    "stride of three": (lambda: _conv(stride=(1, 1, 1)), TypeError, r"stride: got \(1, 1, 1\)"),
    "padding negative": (lambda: _conv(padding=(1, -1)), ValueError, r"padding: got \(1, -1\), allowed is at least 0"),
    "padding unknown": (lambda: _conv(padding="full"), ValueError, "padding: got 'full', allowed are 'same', 'valid'"),
    "same with stride": (lambda: _conv(padding="same", stride=2), ValueError, "padding: got 'same' with stride"),
    "same with an even kernel": (lambda: _conv(weight=(6, 4, 2, 2), padding="same"), ValueError, "kernel of 2 × 2"),
    "dilation": (lambda: _conv(dilation=True), TypeError, "dilation: got True"),
    "groups zero": (lambda: _conv(groups=0), ValueError, "groups: got 0, allowed is at least 1"),
    "groups a float": (lambda: _conv(groups=2.0), TypeError, "groups: got 2.0"),
    "groups do not divide": (
        lambda: _conv(z=(1, 4, 5, 5), weight=(5, 2, 3, 3), bias=(5, 2), groups=2),
        ValueError,
        "groups=2, allowed .* divides m and n",
    ),
    "large kernel": (
        lambda: _conv(dilation=3),
        ValueError,
        r"kernel of 3 × 3 for an image of 5 × 5 with padding \(0, 0\)",
    ),
    "empty kernel": (lambda: _conv(weight=(6, 4, 0, 3)), ValueError, "kernel of 0 × 3"),
    "empty image": (lambda: _conv(z=(1, 4, 0, 5), padding=2), ValueError, "image of 0 × 5"),
    "activation a class": (lambda: _linear(activation=nn.ReLU), TypeError, "activation: got the class ReLU, allowed"),
    "padding beyond memory": (lambda: _conv(padding=10**30), ValueError, r"padding: got 1000.*less than 2\^31"),
    "pad order": (lambda: _conv(pad_order="both"), ValueError, "pad_order: got 'both', allowed are 'after', 'before'"),
}


@together("case", BAD)
def test_bad_input_is_refused(case: str) -> None:
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call()


def test_tensors_on_the_meta_device_give_shapes() -> None:
    z, weight, bias = (torch.empty(s, device="meta") for s in ((2, 3, 8, 8), (4, 3, 3, 3), (4, 3)))
    assert dac_conv2d(z, weight, bias, padding=1).shape == (2, 4, 8, 8)
    assert dac_linear(z, torch.empty(5, 8, device="meta"), torch.empty(5, 8, device="meta")).shape == (2, 3, 8, 5)


def test_every_meeting_of_a_pixel_and_a_position_happens_once() -> None:
    for (image, kernel, numbers), most, single in itertools.product(SHAPES.values(), (None, 3), (False, True)):
        pairs = {key: numbers.get(key, default) for key, default in (("stride", 1), ("padding", 0), ("dilation", 1))}
        geometry = Geometry(*((x, x) if isinstance(x, int) else x for x in pairs.values()), 1, False)
        size = tuple(F.conv2d(torch.zeros(image), torch.zeros(kernel), **numbers).shape[2:])
        seen = []
        for sweep in reference.sweeps(image[2:], kernel[2:], size, geometry, single, most):  # type: ignore[arg-type]
            rows, columns = range(image[2])[sweep.rows], range(image[3])[sweep.columns]
            for position, (above, left), (own_rows, own_columns) in sweep.meetings:
                heights = zip(range(size[0])[above], rows[own_rows], strict=True)
                widths = list(zip(range(size[1])[left], columns[own_columns], strict=True))
                seen += [(position, (y, r), (x, c)) for y, r in heights for x, c in widths]
        (sh, sw), (ph, pw), (dh, dw) = geometry[:3]
        expected = [
            ((p, q), (y, y * sh + p * dh - ph), (x, x * sw + q * dw - pw))
            for p, q, y, x in itertools.product(*map(range, (*kernel[2:], *size)))
            if 0 <= y * sh + p * dh - ph < image[2] and 0 <= x * sw + q * dw - pw < image[3]
        ]
        assert sorted(seen) == sorted(expected)


@together("name", ["a leaf with a hook", "what was computed before", "what depends on z"])
def test_what_an_activation_has_learned_keeps_its_history(name: str) -> None:
    """Also where there are too many activations to hold: blocks would call its hooks once each."""
    z, weight, bias = (torch.randn(*size, dtype=torch.float64) for size in ((400, 70), (60, 70), (60, 70)))
    found = []
    for function in (dac_linear, reference.linear):
        leaf = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
        x = z.clone().requires_grad_() * 1
        if name == "a leaf with a hook":
            leaf.register_hook(lambda grad: 2 * grad)
            slope = leaf
        elif name == "what was computed before":
            slope = leaf.exp()
            slope.register_hook(lambda grad: grad.clamp(-1, 1))
        else:
            slope = leaf * x.mean()
        y = function(x, weight, bias, lambda u, slope=slope: torch.sin(u * slope)).sum()
        (by_x,) = torch.autograd.grad(y, x, retain_graph=True)
        y.backward()
        found.append((by_x, leaf.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_a_function_may_have_no_gradient_for_what_it_uses() -> None:
    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, threshold: Tensor) -> Tensor:
            return (x > threshold).to(x.dtype)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            return grad, None

    layer = nn.Module()
    layer.threshold = nn.Parameter(torch.zeros(()))
    x = torch.randn(512, 64, requires_grad=True)
    weight, bias = torch.randn(64, 64), torch.zeros(64, 64)
    dac_linear(x, weight, bias, lambda u: Spike.apply(u, layer.threshold)).sum().backward()
    assert layer.threshold.grad is None
    torch.testing.assert_close(x.grad, weight.sum(0).expand(512, 64))


def test_a_function_that_has_other_parameters_backwards_is_refused() -> None:
    aglu = companion.AGLU()
    layer = nn.Sequential(aglu, companion.DACLinear(64, 64, activation=lambda x: aglu(x)))
    given = {name: (p.detach() * 1.5 + 0.1).requires_grad_() for name, p in layer.named_parameters()}
    y = torch.func.functional_call(layer, given, torch.randn(512, 64))
    with pytest.raises(RuntimeError, match="backwards the function does not use a parameter that it used forwards"):
        y.sum().backward()


def test_what_an_activation_learned_adds_up_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "BLOCK", 2**11)
    monkeypatch.setattr(reference, "TILE", 2**8)
    torch.manual_seed(0)
    layer = companion.DACLinear(64, 64, companion.AGLU(init=(1.0, 1.0))).bfloat16()
    nn.init.constant_(layer.weight, 0.1)
    x = (torch.rand(512, 64) + 0.5).bfloat16()
    exact = copy.deepcopy(layer).double()
    layer(x).float().sum().backward()
    exact(x.double()).sum().backward()
    for p, wide in zip(layer.activation.parameters(), exact.activation.parameters(), strict=True):
        assert p.grad.dtype == torch.bfloat16
        torch.testing.assert_close(p.grad.double(), wide.grad, rtol=0.01, atol=0.0)


def test_a_learned_activation_has_the_parameters_that_it_was_called_with() -> None:
    """Also backwards, when ``functional_call`` has put the module's own back."""
    layer = companion.DACLinear(64, 64, activation=companion.AGLU()).double()
    x = torch.randn(512, 64, dtype=torch.float64)
    given = {name: (p.detach() * 1.5 + 0.1).requires_grad_() for name, p in layer.named_parameters()}
    torch.func.functional_call(layer, given, x).square().mean().backward()
    with torch.no_grad():
        for name, p in layer.named_parameters():
            p.copy_(given[name])
    layer(x).square().mean().backward()
    for name, p in layer.named_parameters():
        torch.testing.assert_close(given[name].grad, p.grad, msg=name)
