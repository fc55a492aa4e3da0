"""apa and aglu as operators: every backend, eager and compiled, every kind of tensor, and what is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.nn import functional as F

import companion
from companion.apa import reference
from companion.apa.reference import CHUNK
from companion.functional import aglu, apa
from tests.cases import together

FUNCTIONS = {"apa": apa, "aglu": aglu}
INF, NAN = math.inf, math.nan

# 2e-5 is the promise for float32 (test_accuracy.py); of 16 bits, one unit in the last place
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3}


@pytest.fixture(params=FUNCTIONS)
def function(request: pytest.FixtureRequest) -> Callable[..., Tensor]:
    return FUNCTIONS[request.param]


def parameters(form: str, channels: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[Any]:
    """κ and λ that require gradients: "scalar", "channels", or one of each."""
    shapes = {"scalar": [(), ()], "channels": [(channels,)] * 2, "mixed": [(channels,), ()]}[form]
    kappa, lam = (torch.rand(shape, device=device, dtype=dtype) + 0.3 for shape in shapes)
    return [kappa.requires_grad_(), lam.requires_grad_()]


def exact(function: Callable[..., Tensor], z: Tensor, kappa: Tensor, lam: Tensor, g: Tensor, dim: int = 1) -> list[Any]:
    """Value and gradients in double precision, by plain torch on the CPU."""
    z, kappa, lam, g = (x.detach().cpu().double() for x in (z, kappa, lam, g))
    for x in (z, kappa, lam):
        x.requires_grad_()
    y = function(z, kappa, lam, dim)
    return [y, *torch.autograd.grad(y, (z, kappa, lam), g)]


def assert_equals_double_precision(function: Callable[..., Tensor], z: Tensor, form: str, dim: int = 1) -> None:
    """Value and gradients at z, of any layout, against double precision."""
    kappa, lam = parameters(form, z.shape[dim] if z.ndim else 1, str(z.device))
    z.requires_grad_()
    y = function(z, kappa, lam, dim)
    assert (y.shape, y.dtype, y.device) == (z.shape, z.dtype, z.device)
    g = torch.randn_like(y)
    got = [y, *torch.autograd.grad(y, (z, kappa, lam), g)]
    for one, other in zip(got, exact(function, z, kappa, lam, g, dim), strict=True):
        # a sum over n elements is as exact as its terms, and these cancel
        tolerance = TOLERANCE[z.dtype]
        scale = 1 + math.sqrt(z.numel())
        torch.testing.assert_close(one.double().cpu(), other, rtol=tolerance, atol=tolerance * scale)


# --- the family has members with names ---


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_at_kappa_and_lambda_1_they_are_sigmoid_and_silu(backend: str, device: str, dtype: torch.dtype) -> None:
    z = torch.linspace(-20, 20, 1001, device=device).to(dtype)
    rtol = TOLERANCE[dtype]
    torch.testing.assert_close(apa(z, 1.0, 1.0), torch.sigmoid(z.double()).to(dtype), rtol=rtol, atol=0)
    torch.testing.assert_close(aglu(z, 1.0, 1.0), F.silu(z.double()).to(dtype), rtol=rtol, atol=0)


def test_at_lambda_0_it_is_the_gumbel_distribution_function(backend: str, device: str) -> None:
    z = torch.linspace(-4, 20, 101, device=device)
    torch.testing.assert_close(apa(z, 1.0, 0.0).double(), torch.exp(-torch.exp(-z.double())), rtol=2e-5, atol=0)


def test_at_lambda_infinity_they_are_1_and_the_identity(backend: str, device: str) -> None:
    z = torch.tensor([-INF, -1e30, -2.5, 0.0, 2.5, 1e30, INF], device=device)
    torch.testing.assert_close(apa(z, 1.3, INF), torch.ones_like(z))
    torch.testing.assert_close(aglu(z, 1.3, INF), z)


def test_numbers_and_tensors_give_the_same(backend: str, device: str, function: Callable[..., Tensor]) -> None:
    z = torch.randn(2, 5, device=device)
    numbers = function(z, 1.25, 0.5)
    for form in (torch.tensor, lambda p: torch.full((5,), p)):
        kappa, lam = (form(p).to(device) for p in (1.25, 0.5))
        for arguments in ((kappa, lam), (kappa, 0.5), (1.25, lam)):
            torch.testing.assert_close(function(z, *arguments), numbers, rtol=2e-6, atol=1e-7)


def test_integers_are_numbers(function: Callable[..., Tensor]) -> None:
    z = torch.randn(5)
    assert torch.equal(function(z, 1, 2), function(z, 1.0, 2.0))


# --- derivatives ---

FORMS = [
    pytest.param(kappa, lam, id=f"{kappa}-{lam}")
    for kappa, lam in itertools.product(["number", "scalar", "channels"], repeat=2)
]


def double(form: str) -> Any:
    """A parameter for three channels."""
    value = {"number": None, "scalar": torch.rand(()), "channels": torch.rand(3)}[form]
    return 0.7 if value is None else (value.double() + 0.3).requires_grad_()


@pytest.mark.parametrize(("kappa", "lam"), FORMS)
def test_first_and_second_derivatives_in_double_precision(
    function: Callable[..., Tensor], kappa: str, lam: str
) -> None:
    z = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    inputs = (z, double(kappa), double(lam))
    assert gradcheck(function, inputs, check_forward_ad=True)
    assert gradgradcheck(function, inputs, check_fwd_over_rev=True)


def test_third_derivatives(function: Callable[..., Tensor]) -> None:
    # κz from −1.5 to 7: t is on both sides of 0.01, where the series of h takes over in double precision
    z = torch.tensor([[-1.0, 0.2, 1.0, 3.1, 4.5]], dtype=torch.float64, requires_grad=True)
    kappa, lam = (torch.tensor(p, dtype=torch.float64, requires_grad=True) for p in (1.5, 0.6))

    def slopes(*inputs: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(function(*inputs).sum(), inputs, create_graph=True)

    assert gradgradcheck(slopes, (z, kappa, lam))


@together("form", ["scalar", "channels", "mixed"])
def test_second_derivatives_in_float32_agree_with_double_precision(
    backend: str, device: str, function: Callable[..., Tensor], form: str
) -> None:
    def second(z: Tensor, kappa: Tensor, lam: Tensor, weights: list[Tensor]) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(function(z, kappa, lam).sin().sum(), (z, kappa, lam), create_graph=True)
        return torch.autograd.grad(sum((w * f).sum() for w, f in zip(weights, first, strict=True)), (z, kappa, lam))

    inputs = [torch.randn(4, 3, 5, device=device).requires_grad_(), *parameters(form, 3, device)]
    weights = [torch.randn_like(x) for x in inputs]
    in_double = [[x.detach().cpu().double() for x in group] for group in (inputs, weights)]
    for one, other in zip(
        second(*inputs, weights), second(*(x.requires_grad_() for x in in_double[0]), in_double[1]), strict=True
    ):
        torch.testing.assert_close(one.cpu().double(), other, rtol=1e-4, atol=1e-4)


@together("wanted", itertools.product([False, True], repeat=3))
def test_only_what_requires_a_gradient_gets_one(
    backend: str, device: str, function: Callable[..., Tensor], wanted: tuple[bool, bool, bool]
) -> None:
    inputs = [torch.randn(4, 3, device=device), *(p.detach() for p in parameters("channels", 3, device))]
    full = [x.clone().requires_grad_() for x in inputs]
    function(*full).sum().backward()
    some = [x.clone().requires_grad_(want) for x, want in zip(inputs, wanted, strict=True)]
    y = function(*some)
    assert y.requires_grad == any(wanted)
    if any(wanted):
        y.sum().backward()
    for x, everything, want in zip(some, full, wanted, strict=True):
        assert torch.equal(x.grad, everything.grad) if want else x.grad is None


def test_one_tensor_of_the_size_of_z_is_saved(backend: str, device: str, function: Callable[..., Tensor]) -> None:
    for form in ("scalar", "channels"):
        saved: list[Tensor] = []
        z = torch.randn(8, 6, 10, device=device, requires_grad=True)
        kappa, lam = parameters(form, 6, device)
        with torch.autograd.graph.saved_tensors_hooks(lambda x, saved=saved: saved.append(x) or x, lambda x: x):
            function(z, kappa, lam)
        large = {x.data_ptr() for x in saved if x.numel() >= z.numel()}
        assert large == {z.data_ptr()}


def test_a_gradient_may_be_expanded_or_sparse_in_memory(
    backend: str, device: str, function: Callable[..., Tensor]
) -> None:
    z = torch.randn(6, 4, device=device, requires_grad=True)
    kappa, lam = parameters("channels", 4, device)
    y = function(z, kappa, lam)
    for g in (torch.ones(1, 1, device=device).expand(6, 4), torch.ones(4, 6, device=device).t()):
        (grad,) = torch.autograd.grad(y, z, g, retain_graph=True)
        (same,) = torch.autograd.grad(y, z, torch.ones(6, 4, device=device), retain_graph=True)
        assert torch.equal(grad, same)


# --- tensors of all kinds ---

LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "contiguous": lambda: torch.randn(3, 4, 5),
    "transposed": lambda: torch.randn(5, 4, 3).transpose(0, 2),
    "channels last": lambda: torch.randn(2, 8, 3, 5).to(memory_format=torch.channels_last),
    "expanded": lambda: torch.randn(3, 1, 5).expand(3, 4, 5),
    "every other": lambda: torch.randn(6, 8, 5)[::2, ::2],
    "misaligned": lambda: torch.randn(61)[1:].view(3, 4, 5),
    "two dimensions": lambda: torch.randn(7, 8),
    "two dimensions, odd": lambda: torch.randn(7, 9),
    "two dimensions, misaligned": lambda: torch.randn(57)[1:].view(7, 8),
    "one channel": lambda: torch.randn(7, 1, 3),
    "one row": lambda: torch.randn(1, 9),
    "more rows than a thread walks": lambda: torch.randn(150, 8),
    "longer than a warp takes": lambda: torch.randn(2, 2, 1500),
}


@together("layout, form", itertools.product(LAYOUTS, ["scalar", "channels", "mixed"]))
def test_every_layout(backend: str, device: str, function: Callable[..., Tensor], layout: str, form: str) -> None:
    assert_equals_double_precision(function, LAYOUTS[layout]().to(device), form)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@together("layout", ["contiguous", "misaligned", "two dimensions", "two dimensions, odd"])
def test_every_layout_in_16_bits(
    backend: str, device: str, function: Callable[..., Tensor], layout: str, dtype: torch.dtype
) -> None:
    for form in ("scalar", "channels"):
        assert_equals_double_precision(function, LAYOUTS[layout]().to(device, dtype), form)


@together("dim", [0, 1, 2, -1, -3])
def test_channels_along_any_dimension(backend: str, device: str, function: Callable[..., Tensor], dim: int) -> None:
    assert_equals_double_precision(function, torch.randn(3, 4, 5, device=device), "channels", dim)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_every_length_and_every_start(backend: str, device: str, dtype: torch.dtype) -> None:
    # A pack holds 4 or 8 elements: every remainder, before the first pack and behind the last.
    memory = torch.randn(64, device=device).to(dtype)
    kappa, lam = (torch.tensor(p, device=device) for p in (1.2, 0.6))
    expected = aglu(memory.double().cpu(), 1.2, 0.6)
    for start, length in itertools.product(range(9), range(41)):
        y = aglu(memory[start : start + length], kappa, lam)
        torch.testing.assert_close(
            y.double().cpu(), expected[start : start + length], rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
        )


def test_every_length_and_every_start_backward(backend: str, device: str) -> None:
    memory, gradients = torch.randn(2, 64, device=device)
    inputs = memory.double().cpu().requires_grad_(), torch.tensor(1.2).double().requires_grad_()
    for start, length in itertools.product(range(5), range(0, 41, 3)):
        z = memory[start : start + length].clone() if start == 4 else memory[start : start + length].detach()
        z.requires_grad_()
        kappa = torch.tensor(1.2, device=device, requires_grad=True)
        # g starts elsewhere than z: they share no alignment unless start is 1
        g = gradients[1 : 1 + length]
        got = torch.autograd.grad(aglu(z, kappa, 0.6), (z, kappa), g)
        y = aglu(inputs[0][start : start + length], inputs[1], 0.6)
        full, by_kappa = torch.autograd.grad(y, inputs, g.double().cpu())
        torch.testing.assert_close(got[0].double().cpu(), full[start : start + length], rtol=2e-5, atol=1e-6)
        torch.testing.assert_close(got[1].double().cpu(), by_kappa, rtol=2e-5, atol=1e-5)


@together("shape, form", itertools.product([(0,), (0, 3), (4, 0), (2, 0, 3), (2, 3, 0)], ["scalar", "channels"]))
def test_empty_tensors(
    backend: str, device: str, function: Callable[..., Tensor], shape: tuple[int, ...], form: str
) -> None:
    z = torch.empty(shape, device=device, requires_grad=True)
    kappa, lam = parameters(form, shape[-1], device)
    y = function(z, kappa, lam, -1)
    assert y.shape == shape
    y.sum().backward()
    assert z.grad.shape == shape
    assert torch.equal(kappa.grad, torch.zeros_like(kappa))
    assert torch.equal(lam.grad, torch.zeros_like(lam))


def test_zero_dimensions(backend: str, device: str, function: Callable[..., Tensor]) -> None:
    assert_equals_double_precision(function, torch.tensor(0.7, device=device), "scalar")


def test_a_tensor_longer_than_a_chunk(backend: str, device: str) -> None:
    # torch's lean loop adds the sums of its chunks, the kernel those of many warps
    z = torch.randn(CHUNK + 77, device=device, requires_grad=True)
    kappa, lam = (torch.tensor(p, device=device, requires_grad=True) for p in (1.2, 0.6))
    g = torch.rand_like(z)
    y = aglu(z, kappa, lam)
    got = [y, *torch.autograd.grad(y, (z, kappa, lam), g)]
    for one, other in zip(got, exact(aglu, z, kappa, lam, g), strict=True):
        torch.testing.assert_close(one.double().cpu(), other, rtol=2e-5, atol=1e-6)


#: Rows of one channel; rows with the channels of one sample, of two, of a whole chunk and more; channels last.
IN_CHUNKS = [((3, 5, 300), 1), ((3, 40, 20), 1), ((6, 200), 1), ((70, 4), 1), ((2, 9, 7, 3), -1), ((300, 5), 0)]


@pytest.mark.parametrize("form", ["channels", "mixed"])
@pytest.mark.parametrize(("shape", "dim"), IN_CHUNKS, ids=str)
def test_channels_in_chunks(
    function: Callable[..., Tensor], form: str, shape: tuple[int, ...], dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "CHUNK", 700)
    z = torch.randn(shape)
    z.view(-1)[-1] = -90.0  # the last chunk is not lean
    z.requires_grad_()
    kappa, lam = parameters(form, shape[dim])
    g = torch.rand_like(z)
    y = function(z, kappa, lam, dim)
    got = [y, *torch.autograd.grad(y, (z, kappa, lam), g)]
    for one, other in zip(got, exact(function, z, kappa, lam, g, dim), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("kappa", [1.0, torch.tensor(1.0), torch.ones(3)], ids=["number", "scalar", "channels"])
def test_gradients_of_what_is_learned_alone(kappa: float | Tensor) -> None:
    z = torch.randn(4, 3, requires_grad=True)
    (alone,) = torch.autograd.grad(aglu(z, kappa, 0.5).sum(), z)
    learned = torch.ones(3, requires_grad=True)
    both = torch.autograd.grad(aglu(z, learned, 0.5).sum(), (z, learned))
    torch.testing.assert_close(alone, both[0])


def test_the_sum_for_lambda_is_right_where_its_terms_nearly_cancel() -> None:
    # ln(1+t) and t/(1+t) are equal to three digits, and the terms have both signs
    z, g = torch.rand(5000) + 4, torch.randn(5000)
    kappa, lam = (torch.tensor(p, requires_grad=True) for p in (1.2, 0.3))
    z.requires_grad_()
    got = torch.autograd.grad(aglu(z, kappa, lam), lam, g)[0].double()
    other = exact(aglu, z, kappa, lam, g)[3]
    size = exact(aglu, z, kappa, lam, g.abs())[3]
    assert abs(got - other) <= 1e-5 * size


def test_the_same_input_gives_the_same_bits(
    backend: str, device: str, function: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    z, g = torch.randn(2, 4, 6, 700, device=device)
    for form in ("scalar", "channels"):
        kappa, lam = parameters(form, 6, device)
        runs = []
        for workers in ("1", "2", "2"):
            monkeypatch.setenv("COMPANION_SIMULATOR_THREADS", workers)
            x = z.clone().requires_grad_()
            y = function(x, kappa, lam)
            runs.append([y.detach(), *torch.autograd.grad(y, (x, kappa, lam), g)])
        for run in runs[1:]:
            assert all(torch.equal(one, other) for one, other in zip(run, runs[0], strict=True))


# --- dtypes ---


def test_the_output_has_the_dtype_of_z_and_a_gradient_that_of_its_parameter(
    backend: str, device: str, function: Callable[..., Tensor]
) -> None:
    for z_dtype, dtype in itertools.product([torch.float32, torch.bfloat16, torch.float64], repeat=2):
        z = torch.randn(2, 3, device=device).to(z_dtype).requires_grad_()
        kappa, lam = parameters("channels", 3, device, dtype)
        y = function(z, kappa, lam)
        y.sum().backward()
        assert (y.dtype, z.grad.dtype) == (z_dtype, z_dtype)
        assert (kappa.grad.dtype, lam.grad.dtype) == (dtype, dtype)


def test_a_gradient_of_16_bit_parameters_is_summed_in_float32(backend: str, device: str) -> None:
    # 4096 equal terms: summed in bfloat16 they would stop growing at 256 times the term
    z = torch.full((4096,), 0.5, device=device, dtype=torch.bfloat16)
    kappa = torch.ones((), device=device, dtype=torch.bfloat16, requires_grad=True)
    aglu(z, kappa, 1.0).sum().backward()
    one = torch.tensor(0.5).sigmoid()
    assert abs(kappa.grad.item() / (4096 * 0.25 * one * (1 - one)).item() - 1) < 8e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_autocast_casts_nothing(backend: str, device: str, dtype: torch.dtype) -> None:
    z = torch.randn(2, 3, device=device).to(dtype).requires_grad_()
    kappa, lam = parameters("scalar", 3, device)
    outside = aglu(z, kappa, lam)
    with torch.autocast(device, dtype=torch.bfloat16):
        inside = aglu(z, kappa, lam)
        inside.sum().backward()
    assert torch.equal(inside, outside)
    assert inside.dtype == dtype
    assert kappa.grad.dtype == torch.float32


# --- transforms ---


def test_vmap_over_inputs_and_over_parameters(backend: str, device: str, function: Callable[..., Tensor]) -> None:
    z, kappa, lam = torch.randn(4, 5, device=device), *(torch.rand(4, device=device) + 0.3 for _ in range(2))
    for in_dims in itertools.product([0, None], repeat=3):
        if in_dims == (None, None, None):
            continue
        arguments = [x if d == 0 else x[0] for x, d in zip((z, kappa, lam), in_dims, strict=True)]
        batched = torch.vmap(function, in_dims)(*arguments)
        for i in range(4):
            single = function(*(x[i] if d == 0 else x for x, d in zip(arguments, in_dims, strict=True)))
            torch.testing.assert_close(batched[i], single, rtol=2e-5, atol=1e-6)


def test_vmap_over_per_channel_parameters(function: Callable[..., Tensor]) -> None:
    z, kappa, lam = torch.randn(4, 2, 3), torch.rand(4, 3) + 0.3, torch.rand(4, 3) + 0.3
    batched = torch.vmap(function)(z, kappa, lam)
    single = torch.stack([function(*arguments) for arguments in zip(z, kappa, lam, strict=True)])
    torch.testing.assert_close(batched, single, rtol=2e-5, atol=1e-6)


def test_the_transforms_of_torch_func_agree_with_autograd(function: Callable[..., Tensor]) -> None:
    inputs = [torch.randn(3, dtype=torch.float64), *(torch.rand((), dtype=torch.float64) + 0.5 for _ in range(2))]
    argnums = (0, 1, 2)

    def total(*arguments: Tensor) -> Tensor:
        return function(*arguments).sin().sum()

    gradients = torch.autograd.functional.jacobian(total, tuple(inputs))
    hessian = torch.autograd.functional.hessian(total, tuple(inputs))
    assert_all_close(torch.func.grad(total, argnums)(*inputs), gradients)
    assert_all_close(torch.func.jacrev(total, argnums)(*inputs), gradients)
    assert_all_close(torch.func.jacfwd(total, argnums)(*inputs), gradients)
    assert_all_close(torch.func.hessian(total, argnums)(*inputs), hessian)
    assert_all_close(torch.func.jacrev(torch.func.jacrev(total, argnums), argnums)(*inputs), hessian)
    tangents = tuple(torch.randn_like(x) for x in inputs)
    _, slope = torch.func.jvp(total, tuple(inputs), tangents)
    torch.testing.assert_close(slope, sum((g * t).sum() for g, t in zip(gradients, tangents, strict=True)))


def assert_all_close(one: Any, other: Any) -> None:
    if isinstance(one, Tensor):
        torch.testing.assert_close(one, other)
    else:
        for a, b in zip(one, other, strict=True):
            assert_all_close(a, b)


def test_per_sample_gradients(function: Callable[..., Tensor]) -> None:
    z, kappa, lam = torch.randn(4, 3), torch.tensor(1.2), torch.tensor(0.6)
    gradient = torch.func.grad(lambda kappa, z: function(z, kappa, lam, 0).sum())
    batched = torch.vmap(gradient, in_dims=(None, 0))(kappa, z)
    torch.testing.assert_close(batched, torch.stack([gradient(kappa, sample) for sample in z]))


def test_forward_mode(backend: str, device: str, function: Callable[..., Tensor]) -> None:
    inputs = [torch.randn(2, 3, device=device), *(p.detach() for p in parameters("mixed", 3, device))]
    tangents = [torch.randn_like(x) for x in inputs]
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, t) for x, t in zip(inputs, tangents, strict=True)]
        slope = forward_ad.unpack_dual(function(*duals)).tangent
        by_z_alone = forward_ad.unpack_dual(function(duals[0], *inputs[1:])).tangent
    x = [p.clone().requires_grad_() for p in inputs]
    for element in range(6):
        gradients = torch.autograd.grad(function(*x).view(-1)[element], x)
        expected = sum((g * t).sum() for g, t in zip(gradients, tangents, strict=True))
        torch.testing.assert_close(slope.view(-1)[element], expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            by_z_alone.view(-1)[element], (gradients[0] * tangents[0]).sum(), rtol=1e-4, atol=1e-5
        )


# --- the compiler ---


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("form", ["scalar", "channels"])
def test_compiled_equals_eager_without_a_graph_break(form: str) -> None:
    compiled = torch.compile(aglu, fullgraph=True, dynamic=True)
    for rows in (5, 9):  # dynamic shapes: the second size compiles nothing anew
        z = torch.randn(rows, 6, 4, requires_grad=True)
        inputs = [z, *parameters(form, 6)]
        g = torch.randn_like(z)
        results = [[y, *torch.autograd.grad(y, inputs, g)] for y in (aglu(*inputs), compiled(*inputs))]
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=2e-5, atol=1e-5)
    counters = torch._dynamo.utils.counters
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("form", ["number", "scalar", "channels", "mixed"])
def test_the_compiler_sees_one_graph_of_plain_torch_whatever_the_backend(
    function: Callable[..., Tensor], form: str
) -> None:
    z = torch.randn(3, 4, requires_grad=True)
    kappa, lam = (1.2, 0.6) if form == "number" else parameters(form, 4)
    inputs = [x for x in (z, kappa, lam) if isinstance(x, Tensor)]
    expected = [y := function(z, kappa, lam), *torch.autograd.grad(y.sum(), inputs)]
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    with companion.backend("simulator"):
        got = [y := compiled(z, kappa, lam), *torch.autograd.grad(y.sum(), inputs)]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=1e-5)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_compiled_gradients_in_every_dtype_with_one_tensor_for_both_parameters(
    function: Callable[..., Tensor], dtype: torch.dtype, dim: int
) -> None:
    """torch 2.11 loses gradients through a conversion to the same dtype, and through a tensor passed twice."""
    z = torch.randn(3, 4, dtype=dtype, requires_grad=True)
    for shape in ((), (z.shape[dim],)):
        both = (torch.rand(shape) + 0.5).requires_grad_()
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        results = [torch.autograd.grad(f(z, both, both, dim).sum(), (z, both)) for f in (function, compiled)]
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.usefixtures("fresh_compiler")
def test_bad_input_is_refused_under_the_compiler_too() -> None:
    with pytest.raises(Exception, match="allowed is"):
        torch.compile(aglu, fullgraph=True, backend="eager")(torch.zeros(2, 3), torch.ones(2), 1.0)


# --- NaN, infinities, and the limits ---


GUMBEL = math.exp(-math.exp(-0.5))
HALF = 0.5  # (1 + λ)^(−1/λ) at λ = 1
# z, κ, λ, apa, aglu
LIMITS_TABLE = [
    (INF, 1.3, 0.7, 1.0, INF),
    (-INF, 1.3, 0.7, 0.0, -0.0),
    (INF, -1.3, 0.7, 0.0, 0.0),
    (-INF, -1.3, 0.7, 1.0, -INF),
    (INF, 0.0, 1.0, HALF, INF),
    (-INF, 0.0, 1.0, HALF, -INF),
    (0.0, 1.3, 1.0, HALF, 0.0),
    (-0.0, 1.3, 1.0, HALF, -0.0),
    (0.5, 1.0, 0.0, GUMBEL, 0.5 * GUMBEL),
    (INF, 1.0, 0.0, 1.0, INF),
    (-INF, 1.0, 0.0, 0.0, -0.0),
    (0.5, 1.0, INF, 1.0, 0.5),
    (-INF, 1.0, INF, 1.0, -INF),
    (2.0, INF, 1.0, 1.0, 2.0),
    (-2.0, INF, 1.0, 0.0, -0.0),
    (0.0, INF, 1.0, HALF, 0.0),
    (2.0, -INF, 1.0, 0.0, 0.0),
    (3e38, 1.0, 1.0, 1.0, 3e38),
    (-3e38, 1.0, 1.0, 0.0, -0.0),
]


@pytest.mark.parametrize("form", ["number", "scalar", "channels"])
@together("z, kappa, lam, apa_limit, aglu_limit", LIMITS_TABLE)
def test_limits(
    backend: str, device: str, form: str, z: float, kappa: float, lam: float, apa_limit: float, aglu_limit: float
) -> None:
    x = torch.full((1, 3), z, device=device, requires_grad=True)
    shapes: dict[str, Callable[[float], Any]] = {
        "number": float,
        "scalar": lambda p: torch.tensor(p, device=device, requires_grad=True),
        "channels": lambda p: torch.full((3,), p, device=device, requires_grad=True),
    }
    for function, limit in ((apa, apa_limit), (aglu, aglu_limit)):
        inputs = [x, *map(shapes[form], (kappa, lam))]
        y = function(*inputs)
        for got in y.view(-1).tolist():
            assert math.copysign(1, got) == math.copysign(1, limit)
            assert got == pytest.approx(limit, rel=2e-6)
        gradients = torch.autograd.grad(y.sum(), [p for p in inputs if isinstance(p, Tensor)])
        assert all(g.isfinite().all() for g in gradients)


def test_inside_the_gate_large_numbers_count_as_a_bound(backend: str, device: str) -> None:
    """On every backend the same; up to the bound the gate is that of the product."""
    for dtype, bound in ((torch.float32, 2.0**40), (torch.float64, 2.0**100)):
        z = torch.tensor([-3.0, 0.5, 2.0], device=device, dtype=dtype)
        for x, kappa in ((z / bound, bound), (z * (bound / 4), 4 / bound)):
            torch.testing.assert_close(apa(x, kappa, 1.0), torch.sigmoid(z), rtol=2e-6, atol=0)
            torch.testing.assert_close(aglu(x, kappa, 1.0), x * torch.sigmoid(z), rtol=2e-6, atol=0)
        for factor in (4, 1e6):
            x, kappa = z / bound, 1 / bound
            torch.testing.assert_close(apa(x, factor * bound, 1.0), apa(x, bound, 1.0), rtol=2e-6, atol=0)
            one = z.sign() * bound
            torch.testing.assert_close(apa(factor * one, kappa, 1.0), apa(one, kappa, 1.0), rtol=2e-6, atol=0)


def test_the_slope_at_infinity_is_that_of_the_asymptote(backend: str, device: str) -> None:
    z = torch.tensor([-INF, INF], device=device, requires_grad=True)
    for function, slopes in ((apa, [0.0, 0.0]), (aglu, [0.0, 1.0])):
        (slope,) = torch.autograd.grad(function(z, 1.3, 0.7).sum(), z)
        assert slope.tolist() == slopes


def test_the_gradient_by_lambda_at_0_is_that_of_the_gumbel_limit(backend: str, device: str) -> None:
    lam = torch.zeros((), device=device, requires_grad=True)
    z = torch.tensor([0.5], device=device)
    (gradient,) = torch.autograd.grad(apa(z, 1.0, lam).sum(), lam)
    # η D with D = e^(−2z)/2
    assert gradient.item() == pytest.approx(GUMBEL * math.exp(-1.0) / 2, rel=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@together("which", [0, 1, 2])
def test_nan_gives_nan(
    backend: str, device: str, function: Callable[..., Tensor], which: int, dtype: torch.dtype
) -> None:
    parameter_dtype = torch.promote_types(dtype, torch.float32)
    for shape in ((), (1,)):
        inputs = [
            torch.full((2, 1), 0.5, device=device, dtype=dtype),
            *(torch.full(shape, 0.5, device=device, dtype=parameter_dtype) for _ in range(2)),
        ]
        inputs[which].fill_(NAN)
        for x in inputs:
            x.requires_grad_()
        y = function(*inputs)
        y.sum().backward()
        assert y.isnan().all()
        assert all(x.grad.isnan().all() for x in inputs)


def test_nan_stays_where_it_is(backend: str, device: str, function: Callable[..., Tensor]) -> None:
    z = torch.randn(3, 40, device=device)
    z[1, 7] = NAN
    z.requires_grad_()
    for kappa, lam in ((1.2, 0.6), (torch.full((40,), 1.2, device=device), 0.6)):
        y = function(z, kappa, lam)
        (grad,) = torch.autograd.grad(y.sum(), z)
        for x in (y, grad):
            assert x.isnan().nonzero().tolist() == [[1, 7]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_negative_lambda_in_a_tensor_gives_nan_and_no_error(
    backend: str, device: str, function: Callable[..., Tensor], dtype: torch.dtype
) -> None:
    z = torch.randn(2, 3, device=device, dtype=dtype, requires_grad=True)
    lam = torch.tensor(-0.5, device=device, dtype=dtype, requires_grad=True)
    y = function(z, 1.0, lam)
    y.sum().backward()
    assert y.isnan().all()
    assert z.grad.isnan().all()
    assert lam.grad.isnan()
    per_channel = function(z, 1.0, torch.tensor([0.5, -0.5, 0.5], device=device, dtype=dtype))
    assert per_channel.isnan().any(0).tolist() == [False, True, False]


# --- bad input: the error names the argument, what came, and what is allowed ---

Z = torch.zeros(2, 3)
BAD: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "z is no tensor": (([0.0], 1.0, 1.0), TypeError, "z: got list, allowed is a torch.Tensor of floating dtype"),
    "z is an integer": ((Z.long(), 1.0, 1.0), TypeError, "z: got dtype torch.int64, allowed is a floating dtype"),
    "z is boolean": ((Z.bool(), 1.0, 1.0), TypeError, "z: got dtype torch.bool, allowed is a floating dtype"),
    "z is complex": ((Z.cfloat(), 1.0, 1.0), TypeError, "z: got dtype torch.complex64, allowed is a floating"),
    "kappa is a string": ((Z, "1", 1.0), TypeError, "kappa: got str, allowed is a number or a torch.Tensor"),
    "kappa is nothing": ((Z, None, 1.0), TypeError, "kappa: got NoneType, allowed is a number or a torch.Tensor"),
    "lam is boolean": ((Z, 1.0, True), TypeError, "lam: got bool, allowed is a number or a torch.Tensor"),
    "lam is complex": ((Z, 1.0, 1j), TypeError, "lam: got complex, allowed is a number or a torch.Tensor"),
    "kappa of integers": ((Z, torch.ones(3).int(), 1.0), TypeError, "kappa: got dtype torch.int32, allowed is"),
    "lam is negative": ((Z, 1.0, -0.5), ValueError, "lam: got -0.5, allowed is a number ≥ 0"),
    "lam is -infinity": ((Z, 1.0, -INF), ValueError, "lam: got -inf, allowed is a number ≥ 0"),
    "lam is NaN": ((Z, 1.0, NAN), ValueError, "lam: got nan, allowed is a number ≥ 0"),
    "kappa is NaN": ((Z, NAN, 1.0), ValueError, "kappa: got nan, allowed is any number"),
    "kappa of another shape": (
        (Z, torch.ones(2), 1.0),
        ValueError,
        "kappa: got shape (2,), allowed is a number, a 0-d tensor, or shape (3,): one value per channel of z along dim",
    ),
    "kappa of tokens": (
        (torch.zeros(2, 7, 5), torch.ones(5), 1.0),
        ValueError,
        "or shape (7,): one value per channel of z along dim=1; for tokens (N, L, C), as here, dim=-1",
    ),
    "lam of images": (
        (torch.zeros(2, 5, 3, 3), 1.0, torch.ones(5), -1),
        ValueError,
        "or shape (3,): one value per channel of z along dim=-1; for images (N, C, H, W), as here, dim=1",
    ),
    "kappa with two dimensions": ((Z, torch.ones(1, 3), 1.0), ValueError, "kappa: got shape (1, 3), allowed is"),
    "lam of another shape": ((Z, 1.0, torch.ones(4)), ValueError, "lam: got shape (4,), allowed is"),
    "dim does not exist": (
        (Z, torch.ones(3), 1.0, 2),
        ValueError,
        "kappa: got shape (3,) with dim=2, but z has 2 dimensions; allowed is a number, a 0-d tensor, or",
    ),
    "channels of a 0-d z": ((Z[0, 0], torch.ones(1), 1.0), ValueError, "kappa: got shape (1,) with dim=1, but z has 0"),
    "kappa beyond a float": ((Z, 10**400, 1.0), ValueError, "kappa: got a number that no float can hold, allowed is"),
    "dim is a name": ((Z, 1.0, 1.0, "channels"), TypeError, "dim: got 'channels', allowed is an int"),
    "dim is a float": ((Z, torch.ones(3), 1.0, 1.0), TypeError, "dim: got 1.0, allowed is an int"),
    "another device": (
        (Z, torch.ones(3, device="meta"), 1.0),
        ValueError,
        "kappa: got device meta, allowed is the device of z, cpu",
    ),
}


@together("case", BAD)
def test_bad_input_is_refused(function: Callable[..., Tensor], case: str) -> None:
    arguments, kind, message = BAD[case]
    with pytest.raises(kind) as caught:
        function(*arguments)
    assert message in str(caught.value)


def test_z_on_the_meta_device_gives_a_shape(function: Callable[..., Tensor]) -> None:
    y = function(torch.empty(2, 3, device="meta", dtype=torch.bfloat16), 1.0, torch.empty(3, device="meta"))
    assert (y.shape, y.dtype, y.device.type) == ((2, 3), torch.bfloat16, "meta")


@pytest.mark.parametrize("lam", [0.5, torch.linspace(0.2, 2.0, 4)], ids=["scalar", "per channel"])
def test_the_memory_format_of_the_input_is_kept(lam: float | Tensor) -> None:
    z = torch.randn(2, 4, 3, 5).to(memory_format=torch.channels_last)
    y = aglu(z, 1.2, lam)
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, aglu(z.contiguous(), 1.2, lam))


def test_a_number_of_numpy_is_a_number() -> None:
    z = torch.randn(5)
    assert torch.equal(aglu(z, np.float32(1.5), np.float64(0.5)), aglu(z, 1.5, 0.5))


@pytest.mark.parametrize("usual", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("channels", [(), (6,)])
def test_the_usual_dtype_changes_nothing(channels: tuple[int, ...], usual: torch.dtype) -> None:
    z = torch.linspace(-4, 4, 60).view(10, 6).requires_grad_()
    kappa, lam = (torch.full(channels, x, requires_grad=True) for x in (1.2, 0.7))

    def computed() -> list[Tensor]:
        y = aglu(z, kappa, lam)
        return [y, *torch.autograd.grad(y.square().sum(), (z, kappa, lam))]

    expected = computed()
    torch.set_default_dtype(usual)
    try:
        found = computed()
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
