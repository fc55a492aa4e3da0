"""Approximate functions err as much as the documentation allows, and no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from companion import simulator

SOURCE = Path(__file__).parent / "approximations.cu"
Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def ulp(exact: Array) -> Array:
    """The distance of neighbouring floats at these values."""
    _, exponent = np.frexp(exact)
    return np.ldexp(1.0, np.maximum(exponent - 1, -126) - 23)


@dataclass(frozen=True)
class Case:
    kernel: str
    exact: Callable[[Array], Array]
    low: float
    high: float
    bound: Callable[[Array, Array], Array]  # of the absolute error, from input and exact value


def ulps(n: float) -> Callable[[Array, Array], Array]:
    return lambda _x, exact: n * ulp(exact)


def relative(bound: float) -> Callable[[Array, Array], Array]:
    return lambda _x, exact: bound * np.abs(exact)


def absolute(bound: float) -> Callable[[Array, Array], Array]:
    return lambda _x, exact: np.full_like(exact, bound)


# Bounds: PTX ISA for the first group, the programming guide's table of intrinsic functions for the second.
CASES = (
    Case("apply_exp2", np.exp2, -125, 127, relative(2**-22)),
    Case("apply_exp2_ftz", np.exp2, -125, 127, relative(2**-22)),
    Case("apply_log2", np.log2, 0.5, 2, absolute(2**-22)),
    Case("apply_log2", np.log2, 2.001, 1e30, relative(2**-22)),
    Case("apply_log2", np.log2, 1e-38, 0.499, relative(2**-22)),
    Case("apply_log2_ftz", np.log2, 0.5, 2, absolute(2**-22)),
    Case("apply_reciprocal", np.reciprocal, 1e-3, 1e3, ulps(1)),
    Case("apply_reciprocal_ftz", np.reciprocal, 1e-3, 1e3, ulps(1)),
    Case("apply_tanh", np.tanh, -5, 5, relative(2**-11)),
    Case("apply_tanhf", np.tanh, -5, 5, relative(2**-11)),
    Case("apply_expf", np.exp, -80, 80, lambda x, e: (2 + np.floor(np.abs(1.173 * x))) * ulp(e)),
    Case("apply_exp10f", lambda x: 10.0**x, -30, 30, lambda x, e: (2 + np.floor(np.abs(2.97 * x))) * ulp(e)),
    Case("apply_logf", np.log, 0.5, 2, absolute(2**-21.41)),
    Case("apply_logf", np.log, 2.001, 1e30, ulps(3)),
    Case("apply_log2f", np.log2, 0.5, 2, absolute(2**-22)),
    Case("apply_log2f", np.log2, 2.001, 1e30, ulps(2)),
    Case("apply_log10f", np.log10, 0.5, 2, absolute(2**-24)),
    Case("apply_log10f", np.log10, 2.001, 1e30, ulps(3)),
    Case("apply_sinf", np.sin, -3.14, 3.14, absolute(2**-21.41)),
    Case("apply_cosf", np.cos, -3.14, 3.14, absolute(2**-21.19)),
    Case("apply_fdividef", np.reciprocal, 1e-3, 1e3, ulps(2)),
    Case("apply_rsqrtf", lambda x: 1 / np.sqrt(x), 1e-3, 1e3, ulps(2)),
)


@pytest.fixture(scope="module")
def module() -> simulator.Module:
    return simulator.load(SOURCE, sorted({case.kernel for case in CASES}))


def apply(module: simulator.Module, kernel: str, x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    module.launch(kernel, (-(-x.numel() // 256),), (256,), [x, out, np.int32(x.numel())])
    return out


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kernel} from {case.low} to {case.high}")
def test_the_error_reaches_the_documented_bound_and_stays_within(module: simulator.Module, case: Case) -> None:
    x = torch.linspace(case.low, case.high, 50_000)
    if case.high >= 1e30 or case.low == 1e-38:
        x = torch.logspace(np.log10(case.low), np.log10(case.high), 50_000)
    inputs = x.double().numpy()
    exact = case.exact(inputs)
    share = np.abs(apply(module, case.kernel, x).double().numpy() - exact) / case.bound(inputs, exact)
    assert share.max() <= 1
    assert share.max() > 0.9
    assert np.median(share) > 0.1  # not at a few inputs only


def test_the_error_is_the_same_every_time(module: simulator.Module) -> None:
    x = torch.randn(1000)
    assert torch.equal(apply(module, "apply_expf", x), apply(module, "apply_expf", x))


INF, NAN, TINY = float("inf"), float("nan"), 1e-40  # TINY is subnormal


@pytest.mark.parametrize(
    ("kernel", "x", "expected"),
    [
        ("apply_exp2", [-INF, -TINY, -0.0, 0.0, TINY, INF, NAN, 200], [0, 1, 1, 1, 1, INF, NAN, INF]),
        ("apply_exp2_ftz", [-INF, -TINY, 0.0, TINY, INF, NAN, -130], [0, 1, 1, 1, INF, NAN, 0]),
        ("apply_log2", [-INF, -1, -0.0, 0.0, INF, NAN], [NAN, NAN, -INF, -INF, INF, NAN]),
        ("apply_reciprocal", [-INF, -0.0, 0.0, INF, NAN], [-0.0, -INF, INF, 0, NAN]),
        ("apply_tanh", [-0.0, 0.0, NAN], [-0.0, 0, NAN]),
        ("apply_fdividef", [2.0**127, INF, 0.0, NAN], [0, 0, INF, NAN]),
        ("apply_rsqrtf", [0.0, INF, -1.0, NAN], [INF, 0, NAN, NAN]),
    ],
)
def test_special_values_are_those_of_the_tables(
    module: simulator.Module, kernel: str, x: list[float], expected: list[float]
) -> None:
    result = apply(module, kernel, torch.tensor(x))
    assert torch.equal(result.nan_to_num(nan=-7), torch.tensor(expected).nan_to_num(nan=-7))
    assert torch.equal(result.signbit() & ~result.isnan(), torch.tensor(expected).signbit())


def test_only_the_flushing_variants_flush(module: simulator.Module) -> None:
    def at(kernel: str, x: float) -> float:
        return apply(module, kernel, torch.tensor([float(x)])).item()

    assert at("apply_exp2", -140) > 0 == at("apply_exp2_ftz", -140)
    assert at("apply_log2", TINY) == pytest.approx(np.log2(TINY), rel=1e-6)
    assert at("apply_log2_ftz", TINY) == -INF
    assert at("apply_reciprocal", -(2.0**127)) < 0 == at("apply_reciprocal_ftz", -(2.0**127))
    assert at("apply_reciprocal", -(2.0**-127)) == pytest.approx(-(2.0**127))
    assert at("apply_reciprocal_ftz", -(2.0**-127)) == -INF
