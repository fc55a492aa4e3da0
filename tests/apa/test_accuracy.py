"""The value and every first derivative, element by element, against thirty exact digits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

import companion
from companion import simulator
from companion.apa.reference import LEAN_A, LEAN_LAM
from companion.functional import aglu, apa
from tests.apa import reference
from tests.apa.points import RESULTS, Array, Points, points, ulp_distance

FUNCTIONS = {"apa": apa, "aglu": aglu}
Results = dict[str, torch.Tensor]
Function = Callable[..., torch.Tensor]

# --- ways to the result; each gives the derivatives of every single element ---


def per_channel(function: Function, at: Points, device: str) -> Results:
    """One element per channel: the columns of the kernel, plain maths in torch."""
    z = at.z[None].to(device).requires_grad_()
    kappa, lam = (x.to(device, copy=True).requires_grad_() for x in (at.kappa, at.lam))
    y = function(z, kappa, lam)
    y.sum().backward()
    return named(y[0], z.grad[0], kappa.grad, lam.grad)


def per_row(function: Function, at: Points, device: str) -> Results:
    """Eight equal elements per channel, of which one has a gradient: the rows of the kernel."""
    z = at.z[None, :, None].repeat(1, 1, 8).to(device).requires_grad_()
    kappa, lam = (x.to(device, copy=True).requires_grad_() for x in (at.kappa, at.lam))
    y = function(z, kappa, lam)
    incoming = torch.zeros_like(y)
    incoming[..., 3] = 1
    y.backward(incoming)
    return named(y[0, :, 3], z.grad[0, :, 3], kappa.grad, lam.grad)


def one_by_one(function: Function, at: Points, device: str) -> Results:
    """A call per element with scalar parameters: in torch on a CPU, the lean formulas where they hold."""
    rows = []
    for element in zip(at.z[:, None], at.kappa, at.lam, strict=True):
        z, kappa, lam = (x.to(device, copy=True).requires_grad_() for x in element)
        y = function(z, kappa, lam)
        y.backward(torch.ones_like(y))
        rows.append((y[0], z.grad[0], kappa.grad, lam.grad))
    return named(*map(torch.stack, zip(*rows, strict=True)))


def compiled(function: Function, at: Points, device: str) -> Results:
    """What the compiler makes of the plain maths."""
    return per_channel(torch.compile(function, fullgraph=True), at, device)


def named(*tensors: torch.Tensor) -> Results:
    return dict(zip(RESULTS, (x.detach().cpu() for x in tensors), strict=True))


def lean(at: Points) -> Points:
    """The points at which the lean formulas hold, and every tenth of the others."""
    chosen = (at.kappa * at.z).abs() < LEAN_A
    chosen &= (at.lam >= LEAN_LAM[0]) & (at.lam <= LEAN_LAM[1])
    chosen[::10] = True
    keep = chosen.numpy()
    return Points(
        at.z[chosen],
        at.kappa[chosen],
        at.lam[chosen],
        at.log_eta[keep],
        {key: x[keep] for key, x in at.exact.items()},
        {key: x[keep] for key, x in at.terms.items()},
    )


gpu = pytest.mark.gpu
simulated = pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))
#: Backend, way, and which of the points it takes.
KERNEL_WAYS = [
    pytest.param("simulator", per_channel, id="simulator-columns", marks=simulated),
    pytest.param("simulator", per_row, id="simulator-rows", marks=simulated),
    pytest.param("kernel", per_channel, id="kernel-columns", marks=gpu),
    pytest.param("kernel", per_row, id="kernel-rows", marks=gpu),
]
WAYS = [
    pytest.param("torch", per_channel, id="torch-plain"),
    pytest.param("torch", one_by_one, id="torch-lean"),
    *KERNEL_WAYS,
]


def computed(name: str, backend: str, way: Callable[..., Results], at: Points) -> Results:
    if backend == "kernel" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    with companion.backend(backend):
        return way(FUNCTIONS[name], at, "cuda" if backend == "kernel" else "cpu")


# --- the bounds ---


def is_normal(exact: Array, dtype: torch.dtype) -> Array:
    info = torch.finfo(dtype)
    return (abs(exact) >= info.tiny) & (abs(exact) <= info.max)


def assert_accurate(name: str, results: Results, at: Points, relative: Array, of_terms: float) -> None:
    """|error| ≤ relative · |exact|, or ≤ of_terms · terms where the terms cancel; tiny where the exact result is."""
    for result in RESULTS:
        exact, terms = at.exact[name, result], at.terms[name, result]
        got = results[result].double().numpy()
        normal = is_normal(exact, at.z.dtype)
        tiny = 1.01 * torch.finfo(at.z.dtype).tiny
        allowed = np.where(normal, np.maximum(relative * abs(exact), of_terms * terms), abs(exact) + tiny)
        excess = np.nan_to_num(abs(got - exact) / allowed, nan=np.inf)
        worst = excess.argmax()
        assert excess[worst] <= 1, where(name, result, at, worst, got[worst])


def assert_within_two_ulps(name: str, results: Results, at: Points) -> None:
    """Within two units in the last place of the rounded exact value, or 1e-6 of the terms where these cancel."""
    for result in RESULTS:
        exact, terms = at.exact[name, result], at.terms[name, result]
        got = results[result].to(at.z.dtype)
        ulps = ulp_distance(got, torch.from_numpy(exact).to(at.z.dtype)).numpy()
        small = abs(got.double().numpy() - exact) <= 1e-6 * terms
        ulps = np.where(np.isnan(got.float().numpy()), 1 << 16, np.where(small, 0, ulps))
        worst = ulps.argmax()
        assert ulps[worst] <= 2, where(name, result, at, worst, got[worst])


def where(name: str, result: str, at: Points, i: int, got: float) -> str:
    what = name if result == "value" else f"∂{name}/∂{result}"
    return (
        f"{what} at z = {at.z[i].item()!r}, κ = {at.kappa[i].item()!r}, λ = {at.lam[i].item()!r} "
        f"(ln η = {at.log_eta[i]:.4g}): got {float(got)!r}, exact is {at.exact[name, result][i]!r}"
    )


def float32_bound(at: Points) -> Array:
    return np.where(abs(at.log_eta) <= 40, 2e-5, 5e-5)


# --- the tests ---


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64_is_exact_to_1e_10(name: str) -> None:
    at = points(torch.float64)
    assert_accurate(name, per_channel(FUNCTIONS[name], at, "cpu"), at, np.full(len(at.z), 1e-10), 1e-15)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("backend", "way"), WAYS)
def test_float32_is_exact_to_2e_5_and_5e_5_where_eta_is_tiny(
    backend: str, way: Callable[..., Results], name: str
) -> None:
    at = points(torch.float32)
    if way is one_by_one:
        at = lean(at)
    assert_accurate(name, computed(name, backend, way, at), at, float32_bound(at), 1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_float32_is_as_exact() -> None:
    at = points(torch.float32)
    assert_accurate("aglu", computed("aglu", "torch", compiled, at), at, float32_bound(at), 1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize(("backend", "way"), WAYS)
def test_16_bits_are_within_two_units_in_the_last_place(
    backend: str, way: Callable[..., Results], dtype: torch.dtype, name: str
) -> None:
    at = points(dtype)
    assert_within_two_ulps(name, computed(name, backend, way, at), at)


def test_a_chunk_that_holds_one_hard_element_is_as_exact_as_any() -> None:
    # The lean formulas are chosen per chunk, by its largest |κz|; κ and λ are 1.
    easy, hard = torch.linspace(-79, 79, 7), torch.tensor([-87.0, -81.0, 99.0])
    alone, together = aglu(easy, 1.0, 1.0), aglu(torch.cat([easy, hard]), 1.0, 1.0)
    exact = torch.nn.functional.silu(torch.cat([easy, hard]).double())
    torch.testing.assert_close(alone.double(), exact[:7], rtol=2e-5, atol=0)
    torch.testing.assert_close(together.double(), exact, rtol=2e-5, atol=0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_in_float64_are_exact_to_1e_10(name: str) -> None:
    # Ordinary points: where η is normal and nothing overflows.
    rng = np.random.default_rng(7)
    lam, a, kappa = 10 ** rng.uniform(-6, 3, 300), rng.uniform(-6, 12, 300), rng.uniform(0.1, 5, 300)
    inputs = [torch.from_numpy(x).requires_grad_() for x in ((a / kappa)[None], kappa, lam)]
    first = torch.autograd.grad(FUNCTIONS[name](*inputs).sum(), inputs, create_graph=True)
    for one, gradient in zip(RESULTS[1:], first, strict=True):
        second = torch.autograd.grad(gradient.sum(), inputs, retain_graph=True)
        for other, got in zip(RESULTS[1:], second, strict=True):
            exact = [
                float(reference.second(name, *point)[one, other]) for point in zip(a / kappa, kappa, lam, strict=True)
            ]
            torch.testing.assert_close(
                got.reshape(-1), torch.tensor(exact, dtype=torch.float64), rtol=1e-10, atol=1e-290
            )


# --- the bounds bite: what the paper prints does not pass ---


def as_published(z: torch.Tensor, kappa: torch.Tensor, lam: torch.Tensor) -> torch.Tensor:
    """AGLU as the authors' code has it."""
    return z * torch.exp(1 / lam * softplus(kappa * z - torch.log(lam), beta=-1))


def test_the_published_expression_is_too_inexact_in_float32() -> None:
    at = points(torch.float32)
    results = per_channel(as_published, at, "cpu")
    with pytest.raises(AssertionError, match="aglu"):
        assert_accurate("aglu", results, at, float32_bound(at), 1e-6)

    def error(result: str) -> Array:
        exact = at.exact["aglu", result]
        normal = is_normal(exact, torch.float32)
        relative = abs(results[result].double().numpy() - exact)[normal] / abs(exact)[normal]
        return np.asarray(relative / float32_bound(at)[normal])

    assert error("value").max() > 1
    # autograd differentiates 1/λ and the logarithm apart, and then subtracts
    assert (error("lam") > 1).mean() > 0.4
    assert error("lam").max() > 1e15


def test_the_published_derivative_by_lambda_has_the_wrong_sign() -> None:
    at = points(torch.float64)
    z, kappa, lam = at.z.double(), at.kappa.double(), at.lam.double()
    eta = apa(z[None], kappa, lam)[0]
    published = (-z / lam * eta / (lam + torch.exp(kappa * z))).numpy()
    exact = at.exact["aglu", "lam"]
    seen = is_normal(exact, torch.float64) & is_normal(published, torch.float64)
    assert seen.sum() > 2000
    assert (np.sign(published) == -np.sign(exact))[seen].all()
