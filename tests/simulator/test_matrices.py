"""Tensor cores: where a product finds its elements, how it rounds, who must take part."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from companion import simulator
from companion.cuda import build
from companion.cuda.launch import Kernels
from tests.cuda.machine_code import machine_code

SOURCE = Path(__file__).with_name("matrices.cu")
SUFFIX = {torch.float16: "f16", torch.bfloat16: "bf16"}
KERNELS = Kernels(SOURCE, [f"multiply_{suffix}" for suffix in SUFFIX.values()])

each_dtype = pytest.mark.parametrize("dtype", SUFFIX, ids=str)


@pytest.fixture(scope="module")
def module() -> simulator.Module:
    return simulator.load(SOURCE, KERNELS.names, include=(build.INCLUDE,))


def multiply(
    module: simulator.Module, a: Tensor, b: Tensor, d: Tensor, lanes: int = 32, order: str = "natural"
) -> Tensor:
    result = d.clone()
    arguments = [a.contiguous(), b.T.contiguous(), result, np.int32(lanes)]
    module.launch(f"multiply_{SUFFIX[a.dtype]}", (1,), (32,), arguments, order=order)
    return result


@each_dtype
@pytest.mark.parametrize("order", ["natural", "reversed", "shuffled:3"])
def test_whole_numbers_are_multiplied_exactly(module: simulator.Module, dtype: torch.dtype, order: str) -> None:
    a, b, d = torch.randint(-9, 9, (16, 16)), torch.randint(-9, 9, (16, 8)), torch.randint(-99, 99, (16, 8))
    found = multiply(module, a.to(dtype), b.to(dtype), d.float(), order=order)
    assert torch.equal(found, (a @ b + d).float())


@each_dtype
def test_products_are_exact_and_sums_have_an_error_of_float32(module: simulator.Module, dtype: torch.dtype) -> None:
    a, b, d = torch.randn(16, 16).to(dtype), torch.randn(16, 8).to(dtype), torch.randn(16, 8)
    exact = a.double() @ b.double() + d
    magnitude = a.double().abs() @ b.double().abs() + d.abs()
    error = (multiply(module, a, b, d) - exact).abs()
    assert (error <= 16 * 2**-23 * magnitude).all()
    # cut off, not rounded: sums of positive numbers come out too small
    too_small = multiply(module, a.abs(), b.abs(), d.abs())
    assert (too_small <= magnitude).all()
    assert (too_small < magnitude).float().mean() > 0.5


def test_nan_and_infinity_stay_in_their_column(module: simulator.Module) -> None:
    a, b = torch.ones(16, 16).bfloat16(), torch.ones(16, 8).bfloat16()
    b[3, 2], b[5, 6] = math.nan, math.inf
    found = multiply(module, a, b, torch.zeros(16, 8))
    assert found[:, 2].isnan().all()
    assert (found[:, 6] == math.inf).all()
    assert (found[:, [0, 1, 3, 4, 5, 7]] == 16).all()


def test_a_warp_that_lost_a_lane_is_a_fault(module: simulator.Module) -> None:
    a, b = torch.ones(16, 16).half(), torch.ones(16, 8).half()
    with pytest.raises(simulator.SimulatorError, match="all 32 lanes of a warp must take part, here are 31"):
        multiply(module, a, b, torch.zeros(16, 8), lanes=31)


TWO_PLACES = """#include "common.cuh"
extern "C" __global__ void two_places(float* x) {
    const unsigned a[4] = {}, b[2] = {};
    float d[4] = {};
    if (threadIdx.x < 16) companion::multiply_add<__half>(d, a, b);
    else companion::multiply_add<__half>(d, a, b);
    x[threadIdx.x] = d[0];
}
"""


@pytest.mark.usefixtures("module")
def test_lanes_in_two_places_are_a_fault() -> None:
    kernels = Kernels.from_text(TWO_PLACES)
    with pytest.raises(simulator.SimulatorError, match=r"the same instruction: 16 threads .*\.cu:5 .*; 16 .*\.cu:6"):
        kernels.launch("two_places", (1,), (32,), [torch.zeros(32)], torch.device("cpu"), simulated=True)


def test_it_is_one_instruction() -> None:
    for name, code in machine_code(SOURCE, 90).items():
        kind = "BF16" if name.endswith("bf16") else "F32"
        assert code.count(rf"\bHMMA\.16816\.F32.*{kind}|\bHMMA\.16816\.{kind}") == 1, name


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@each_dtype
def test_a_gpu_puts_the_elements_in_the_same_places(module: simulator.Module, dtype: torch.dtype) -> None:
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("needs a GPU of compute capability 8.0, which has these tensor cores")
    a, b, d = torch.randint(-9, 9, (16, 16)), torch.randint(-9, 9, (16, 8)), torch.randint(-99, 99, (16, 8))
    found = d.float().cuda()
    arguments = [a.to(dtype).cuda(), b.to(dtype).T.contiguous().cuda(), found, np.int32(32)]
    KERNELS.launch(f"multiply_{SUFFIX[dtype]}", (1,), (32,), arguments, found.device)
    assert torch.equal(found.cpu(), (a @ b + d).float())
