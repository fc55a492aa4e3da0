"""layer_act as an operator: every backend, eager and compiled, every kind of tensor, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.nn import functional as F

import companion
from companion.functional import la_hardsilu, la_silu, layer_act
from companion.layeract import reference
from tests.cases import together

SCALES = ["sigmoid", "hardsigmoid"]
INF, NAN = math.inf, math.nan
# of float32: the promise is 1e-5; of 16 bits, one unit in the last place
TOLERANCE = {torch.float32: 5e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}

either_scale = pytest.mark.parametrize("scale", SCALES)
either_variance = pytest.mark.parametrize("unbiased", [False, True], ids=["biased", "unbiased"])


def written_out(y: Tensor, scale: str, alpha: float, dims: tuple[int, ...], unbiased: bool) -> Tensor:
    """Eq. 6 by torch's own functions; exact enough in double precision."""
    mean = y.mean(dims, keepdim=True)
    variance = y.var(dims, correction=int(unbiased), keepdim=True)
    n = (y - mean) / torch.sqrt(variance + alpha)
    return y * (torch.sigmoid(n) if scale == "sigmoid" else F.relu6(n + 3) / 6)


def exact(y: Tensor, g: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
    """Value and gradient in double precision, by autograd through Eq. 6."""
    y = y.detach().cpu().double().requires_grad_()
    a = written_out(y, *settings)
    return a.detach(), torch.autograd.grad(a, y, g.detach().cpu().double())[0]


def assert_equals_double_precision(y: Tensor, scale: str, alpha: float, dims: tuple[int, ...], unbiased: bool) -> None:
    """Value and gradient at y, of any layout."""
    y = y.detach().requires_grad_()
    a = layer_act(y, scale, alpha, dims, unbiased)
    assert (a.shape, a.dtype, a.device) == (y.shape, y.dtype, y.device)
    g = torch.randn_like(a)
    (gradient,) = torch.autograd.grad(a, y, g)
    assert gradient.shape == y.shape
    tolerance = TOLERANCE[y.dtype]
    value, slope = exact(y, g, scale, alpha, dims, unbiased)
    torch.testing.assert_close(a.cpu().double(), value, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(gradient.cpu().double(), slope, rtol=tolerance, atol=tolerance * max(1, alpha**-0.5 / 3))


# --- what it computes ---


@either_scale
@either_variance
@together(
    "shape, dims",
    [((3, 5), (1,)), ((2, 3, 4), (1, 2)), ((2, 3, 4), (0,)), ((2, 3, 4, 5), (1, 3)), ((7,), (0,)), ((4, 600), (1,))],
)
def test_it_is_equation_6(
    backend: str, device: str, scale: str, unbiased: bool, shape: tuple[int, ...], dims: tuple[int, ...]
) -> None:
    y = 2 * torch.randn(shape, device=device) + 1
    assert_equals_double_precision(y, scale, 0.1, dims, unbiased)


def test_the_named_functions_are_its_scales(backend: str, device: str) -> None:
    y = torch.randn(3, 8, device=device)
    assert torch.equal(la_silu(y, 0.2, -1, True), layer_act(y, "sigmoid", 0.2, -1, True))
    assert torch.equal(la_hardsilu(y, 0.2, -1, True), layer_act(y, "hardsigmoid", 0.2, -1, True))


@pytest.mark.parametrize(("shape", "dims"), [((4,), (0,)), ((4, 3), (1,)), ((4, 3, 2, 2), (1, 2, 3))], ids=str)
def test_without_dims_all_but_the_first_are_normalised(shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    y = torch.randn(shape)
    assert torch.equal(layer_act(y), layer_act(y, dims=dims))


def test_dims_may_be_negative_or_unordered_or_one_number() -> None:
    y = torch.randn(2, 3, 4, 5)
    assert torch.equal(layer_act(y, dims=(-1, 1)), layer_act(y, dims=(1, 3)))
    assert torch.equal(layer_act(y, dims=2), layer_act(y, dims=[2]))


@either_scale
def test_a_constant_row_is_halved(backend: str, device: str, scale: str) -> None:
    for value in (0.0, 3.0, -1e4, 0.1):
        y = torch.full((2, 37), value, device=device)
        torch.testing.assert_close(layer_act(y, scale), y / 2, rtol=1e-6, atol=0)


@either_scale
def test_a_row_of_one_element_is_halved(backend: str, device: str, scale: str) -> None:
    y = torch.tensor([[3.0], [-2.0]], device=device, requires_grad=True)
    a = layer_act(y, scale)
    assert torch.equal(a, y / 2)
    a.sum().backward()
    assert torch.equal(y.grad, torch.full_like(y, 0.5))


def test_the_hard_sigmoid_saturates_in_no_row_of_ten_elements_and_can_in_one_of_eleven(
    backend: str, device: str
) -> None:
    for d, saturated in ((10, False), (11, True)):
        y = torch.zeros(1, d, device=device)
        y[0, 0] = -1.0  # n = −√(d − 1), up to α
        a = layer_act(y, "hardsigmoid")
        assert (a[0, 0] == 0).item() is saturated


@together("compute", ["eager", "transformed", "float64"])
def test_numbers_are_right_until_their_squares_overflow_and_then_nan(backend: str, device: str, compute: str) -> None:
    """Not halved, as they would be by a variance that is infinite."""
    large = torch.tensor([[1.0, -2.0, 4.0, 0.5]], device=device)
    for scale, finite in ((1e17, True), (1e22, False), (1e37, False)):
        y = torch.cat([large.double() * scale**8, large] if compute == "float64" else [large * scale, large])
        function = torch.vmap(lambda row: la_silu(row)) if compute == "transformed" else la_silu
        y.requires_grad_()
        a = function(y)
        (dy,) = torch.autograd.grad(a.sum(), y)
        n = (large - large.mean()) / large.std(correction=0)
        torch.testing.assert_close(a[1], la_silu(large)[0].to(y.dtype), rtol=1e-5, atol=0)
        if finite:
            torch.testing.assert_close(a[0], y[0].detach() * torch.sigmoid(n[0]).to(y.dtype), rtol=1e-5, atol=0)
            assert dy.isfinite().all()
        else:
            assert a[0].isnan().all()
            assert dy[0].isnan().all()


def test_the_slope_at_the_kinks_is_zero() -> None:
    # d = 10, one element out of line: n = ±3 up to α; without α exactly
    n = torch.tensor([-3.0, 3.0, 0.0], dtype=torch.float64)
    assert reference.slope(n, hard=True).tolist() == [0, 0, 1 / 6]
    n.requires_grad_()
    reference.scale(n, hard=True).sum().backward()
    assert n.grad.tolist() == [0, 0, 1 / 6]


@either_scale
@either_variance
@together("ratio", [1e2, 1e4])
def test_a_mean_much_larger_than_the_deviation_costs_nothing(
    backend: str, device: str, scale: str, unbiased: bool, ratio: float
) -> None:
    for d in (16, 700):
        y = torch.randn(6, d, device=device) + ratio
        assert_right_to(1e-5, y, scale, unbiased)
    # a deviation that is small, not only beside the mean
    assert_right_to(1e-5, 1e-2 * y, scale, unbiased, alpha=1e-8)


def assert_right_to(tolerance: float, y: Tensor, scale: str, unbiased: bool, alpha: float = 1e-5) -> None:
    expected = written_out(y.cpu().double(), scale, alpha, (1,), unbiased)
    error = (layer_act(y, scale, alpha, unbiased=unbiased).cpu().double() - expected).abs()
    assert (error <= tolerance * expected.abs()).all()


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_it_bears_a_large_mean_too() -> None:
    assert_right_to_compiled = torch.compile(layer_act, fullgraph=True)
    y = torch.randn(6, 700) + 1e4
    expected = written_out(y.double(), "sigmoid", 1e-5, (1,), False)
    error = (assert_right_to_compiled(y).double() - expected).abs()
    assert (error <= 1e-5 * expected.abs()).all()


# --- derivatives ---


@either_scale
@either_variance
@together("shape, dims", [((3, 5), None), ((2, 3, 4), (0, 2)), ((4,), None), ((3, 2), -1)])
def test_first_and_second_derivatives_in_double_precision(
    scale: str, unbiased: bool, shape: tuple[int, ...], dims: Any
) -> None:
    y = torch.randn(shape, dtype=torch.float64, requires_grad=True)

    def function(y: Tensor) -> Tensor:
        return layer_act(y, scale, 0.1, dims, unbiased)

    assert gradcheck(function, y, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(function, y)


def test_the_closed_gradient_is_what_autograd_makes_of_equation_6() -> None:
    for scale in SCALES:
        for unbiased in (False, True):
            y, g = torch.randn(2, 5, 9, dtype=torch.float64)
            _, expected = exact(y, g, scale, 0.01, (1,), unbiased)
            closed = reference.gradient(g, y, scale == "hardsigmoid", 0.01, unbiased)
            torch.testing.assert_close(closed, expected, rtol=1e-12, atol=1e-12)


def test_second_derivatives_on_every_backend(backend: str, device: str) -> None:
    y = torch.randn(3, 40, device=device, requires_grad=True)
    g = torch.randn(3, 40, device=device, requires_grad=True)
    direction = torch.randn(3, 40, device=device)
    results = []
    for y_, g_, v in ((y, g, direction), *[[x.detach().double().requires_grad_() for x in (y, g, direction)]]):
        (first,) = torch.autograd.grad(layer_act(y_, alpha=0.1), y_, g_, create_graph=True)
        results.append(torch.autograd.grad(first, (y_, g_), v))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


def test_forward_mode(backend: str, device: str) -> None:
    y, t = torch.randn(2, 3, 20, device=device)
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(layer_act(forward_ad.make_dual(y, t), alpha=0.1))
    y64, t64 = y.cpu().double(), t.cpu().double()
    _, expected = torch.func.jvp(lambda y: written_out(y, "sigmoid", 0.1, (1,), False), (y64,), (t64,))
    torch.testing.assert_close(dual.tangent.cpu().double(), expected, rtol=1e-5, atol=1e-6)
    # forward mode sees plain torch, whoever computes without it
    torch.testing.assert_close(dual.primal, layer_act(y, alpha=0.1), rtol=1e-5, atol=1e-6)


@either_scale
def test_the_transforms_of_torch_func_agree_with_autograd(scale: str) -> None:
    y = torch.randn(4, 6, dtype=torch.float64)

    def loss(row: Tensor) -> Tensor:
        return layer_act(row, scale, 0.1).square().sum()

    per_sample = torch.func.vmap(torch.func.grad(loss))(y)
    y.requires_grad_()
    (expected,) = torch.autograd.grad(layer_act(y, scale, 0.1).square().sum(), y)
    torch.testing.assert_close(per_sample, expected)
    hessian = torch.func.hessian(loss)(y[0].detach())
    torch.testing.assert_close(hessian, hessian.T)


def test_one_tensor_of_the_size_of_y_is_saved(backend: str, device: str) -> None:
    y = torch.randn(5, 64, device=device, requires_grad=True)
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        layer_act(y)
    assert sorted(x.numel() for x in saved) == [3 * 5, 5 * 64]


# --- tensors of every kind ---


def _layouts() -> dict[str, Callable[[str], tuple[Tensor, tuple[int, ...]]]]:
    return {
        "channels-last": lambda device: (
            torch.randn(2, 5, 3, 4, device=device).to(memory_format=torch.channels_last),
            (1, 2, 3),
        ),
        "transposed": lambda device: (torch.randn(6, 5, device=device).t(), (1,)),
        "channels of NCHW": lambda device: (torch.randn(2, 5, 3, 4, device=device), (1,)),
        "expanded": lambda device: (torch.randn(1, 6, device=device).expand(4, 6), (1,)),
        "every second": lambda device: (torch.randn(4, 12, device=device)[:, ::2], (1,)),
        "misaligned": lambda device: (torch.randn(4 * 9 + 1, device=device)[1:].view(4, 9), (1,)),
        "batch last": lambda device: (torch.randn(5, 3, 2, device=device), (0, 1)),
        "all": lambda device: (torch.randn(5, 3, device=device), (0, 1)),
    }


@together("layout", _layouts())
def test_every_layout(backend: str, device: str, layout: str) -> None:
    y, dims = _layouts()[layout](device)
    assert_equals_double_precision(y, "sigmoid", 0.1, dims, False)


@pytest.mark.parametrize("layout", ["channels-last", "transposed", "channels of NCHW", "batch last"])
def test_the_order_of_memory_is_kept(layout: str) -> None:
    y, dims = _layouts()[layout]("cpu")
    assert layer_act(y, dims=dims).stride() == y.stride()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@either_scale
def test_sixteen_bits_are_computed_in_float32(backend: str, device: str, dtype: torch.dtype, scale: str) -> None:
    assert_equals_double_precision(torch.randn(4, 100, device=device).to(dtype), scale, 0.1, (1,), False)


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_more_rows_than_a_chunk_holds(rows: int) -> None:
    d = reference.CHUNK // 500
    assert_equals_double_precision(torch.randn(rows, d), "sigmoid", 0.1, (1,), True)


def test_a_row_longer_than_a_chunk(backend: str, device: str) -> None:
    y = torch.randn(2, reference.CHUNK + 3, device=device)
    assert_equals_double_precision(y, "hardsigmoid", 0.1, (1,), False)


def test_the_same_input_gives_the_same_bits(backend: str, device: str) -> None:
    y = torch.randn(3, 5000, device=device, requires_grad=True)
    g = torch.randn_like(y)
    results = []
    for _ in range(2):
        a = layer_act(y)
        results.append((a, *torch.autograd.grad(a, y, g)))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_a_sample_depends_on_itself_alone(backend: str, device: str) -> None:
    y = torch.randn(5, 64, device=device)
    assert torch.equal(layer_act(y)[2:3], layer_act(y[2:3]))
    # a row that begins elsewhere in a pack of 16 bytes is added up in another order
    y = torch.randn(5, 33, device=device)
    torch.testing.assert_close(layer_act(y)[2:3], layer_act(y[2:3]), rtol=1e-6, atol=1e-6)


@together("bad", [NAN, INF, -INF])
@either_scale
def test_nan_and_infinity_stay_in_their_row(backend: str, device: str, scale: str, bad: float) -> None:
    y = torch.randn(4, 50, device=device)
    y[1, 7] = bad
    y.requires_grad_()
    a = layer_act(y, scale)
    a.sum().backward()
    for x in (a, y.grad):
        assert x[1].isnan().all()
        assert x[[0, 2, 3]].isfinite().all()


@pytest.mark.parametrize("shape", [(0,), (0, 3), (0, 2, 3)], ids=str)
def test_no_rows_give_no_rows(backend: str, device: str, shape: tuple[int, ...]) -> None:
    y = torch.empty(shape, device=device, requires_grad=True)
    dims = None if len(shape) > 1 else ()
    if dims == ():
        with pytest.raises(ValueError, match="0 elements"):
            layer_act(y)
        return
    a = layer_act(y)
    a.sum().backward()
    assert a.shape == y.grad.shape == shape


def test_autocast_casts_nothing(backend: str, device: str) -> None:
    with torch.autocast(device, torch.bfloat16):
        assert layer_act(torch.randn(2, 3, device=device)).dtype == torch.float32


def test_tokens_normalised_together_see_the_future_and_tokens_normalised_alone_do_not() -> None:
    y = torch.randn(1, 6, 8)
    later = y.clone()
    later[:, -1] += 1
    assert not torch.allclose(layer_act(y)[:, 0], layer_act(later)[:, 0])
    assert torch.equal(layer_act(y, dims=-1)[:, :-1], layer_act(later, dims=-1)[:, :-1])


# --- the compiler ---


@pytest.mark.usefixtures("fresh_compiler")
@either_scale
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_the_compiler_sees_one_graph_of_plain_torch_whatever_the_backend(scale: str, dtype: torch.dtype) -> None:
    compiled = torch.compile(layer_act, fullgraph=True, backend="aot_eager")
    y = torch.randn(3, 4, 5).to(dtype).requires_grad_()
    g = torch.randn_like(y)
    for dims in (None, (1,)):
        expected = [a := layer_act(y, scale, dims=dims), *torch.autograd.grad(a, y, g)]
        with companion.backend("simulator"):
            got = [a := compiled(y, scale, dims=dims), *torch.autograd.grad(a, y, g)]
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=TOLERANCE[dtype], atol=2 * TOLERANCE[dtype])


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_equals_eager_without_a_graph_break() -> None:
    compiled = torch.compile(layer_act, fullgraph=True, dynamic=True)
    for rows in (5, 9):  # dynamic shapes: the second size compiles nothing anew
        y = torch.randn(rows, 6, 4, requires_grad=True)
        g = torch.randn_like(y)
        results = [[a, *torch.autograd.grad(a, y, g)] for a in (layer_act(y), compiled(y))]
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    counters = torch._dynamo.utils.counters
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 1


# --- what is refused ---

BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "integers": (lambda: layer_act(torch.ones(2, 3, dtype=torch.int64)), TypeError, "y: got dtype torch.int64"),
    "no tensor": (lambda: layer_act([1.0]), TypeError, "y: got list"),  # type: ignore[arg-type]
    "no dimension": (lambda: layer_act(torch.tensor(1.0)), ValueError, "y: got 0 dimensions"),
    "scale": (lambda: layer_act(torch.ones(2, 3), "relu"), ValueError, "scale: got 'relu'"),
    "alpha zero": (lambda: layer_act(torch.ones(2, 3), alpha=0), ValueError, "alpha: got 0.0"),
    "alpha negative": (lambda: layer_act(torch.ones(2, 3), alpha=-1e-5), ValueError, "alpha: got -1e-05"),
    "alpha NaN": (lambda: layer_act(torch.ones(2, 3), alpha=NAN), ValueError, "alpha: got nan"),
    "alpha infinite": (lambda: layer_act(torch.ones(2, 3), alpha=INF), ValueError, "alpha: got inf"),
    "alpha a tensor": (
        lambda: layer_act(torch.ones(2, 3), alpha=torch.tensor(1.0)),  # type: ignore[arg-type]
        TypeError,
        "alpha: got Tensor",
    ),
    "alpha beyond a float": (
        lambda: layer_act(torch.ones(2, 3), alpha=10**400),
        ValueError,
        "alpha: got a number that",
    ),
    "dims a name": (lambda: layer_act(torch.ones(2, 3), dims="x"), TypeError, "dims: got 'x', allowed is an int or"),
    "dims a float": (lambda: layer_act(torch.ones(2, 3), dims=(1.0,)), TypeError, "dims: got 1.0, allowed is an int"),
    "unbiased": (lambda: layer_act(torch.ones(2, 3), unbiased=None), TypeError, "unbiased: got None, allowed are True"),
    "no dims": (lambda: layer_act(torch.ones(2, 3), dims=()), ValueError, "dims: got none"),
    "dims out of range": (lambda: layer_act(torch.ones(2, 3), dims=2), ValueError, "dims: got 2, allowed .* -2 to 1"),
    "dims twice": (lambda: layer_act(torch.ones(2, 3), dims=(1, -1)), ValueError, "names a dimension twice"),
    "empty row": (lambda: layer_act(torch.ones(2, 0)), ValueError, "0 elements along dims"),
    "unbiased, one element": (lambda: layer_act(torch.ones(2, 1), unbiased=True), ValueError, "at least two elements"),
}


@together("case", BAD)
def test_bad_input_is_refused(case: str) -> None:
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call()


def test_z_on_the_meta_device_gives_a_shape() -> None:
    assert layer_act(torch.empty(2, 3, device="meta")).shape == (2, 3)
