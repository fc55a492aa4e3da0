"""layeract.cu: its machine code, who takes which elements, its values, its memory accesses."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import companion
from companion import simulator
from companion.layeract import kernel, proof
from companion.layeract.kernel import KERNELS
from companion.proofs import trial
from tests.cases import together
from tests.cuda.machine_code import ARCHITECTURES, machine_code, under_the_locked_compiler
from tests.cuda.runs import memory_and_threads
from tests.cuda.sources import changed, with_instances

ALPHA = 1e-5
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
#: Kernels that hold packs in registers: how many for each of their inputs.
PACKS = {"short": 4, "warp": 8, "block": 8, "statistics": 8, "sums": 8}

needs_simulator = pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))

# --- machine code ---

#: Registers per thread, at most: 64 let an SM hold 1024 threads, 128 half as many. A backward pass holds two tiles.
REGISTERS = {
    **{f"forward_{layout}": limit for layout, limit in (("short", 64), ("warp", 72), ("block", 64), ("long", 64))},
    **{f"backward_{layout}": limit for layout, limit in (("short", 80), ("warp", 128), ("block", 128), ("long", 64))},
    "statistics": 64,
    "sums": 80,
    "combine_statistics": 64,
    "combine_sums": 64,
}
#: Instructions per element of a full tile, at most, on sm_80 and later: everything but the code of the other scale.
#: Forward 60 (f32) and 30 (16 bit), backward 90 and 47 would hide behind the memory of an H200.
INSTRUCTIONS = {
    **{
        ("forward", layout): limits for layout, limits in (("short", (56, 31)), ("warp", (46, 26)), ("block", (44, 26)))
    },
    **{
        ("backward", layout): limits
        for layout, limits in (("short", (68, 50)), ("warp", (57, 45)), ("block", (56, 45)))
    },
}


def parts(name: str) -> tuple[str, str, int]:
    """ "layeract_forward_short_bf16": "forward_short", "short", 8."""
    kind, _, suffix = name.removeprefix("layeract_").rpartition("_")
    return kind, kind.rpartition("_")[2], 4 if suffix == "f32" else 8


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_nothing_spills_and_registers_leave_room_for_enough_threads(arch: int) -> None:
    under_the_locked_compiler()
    for name, code in machine_code(KERNELS.source, arch).items():
        assert not code.spills, name
        kind = name.removeprefix("layeract_")
        assert code.registers <= REGISTERS[kind if "combine" in kind else parts(name)[0]], name


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_rows_are_read_and_written_sixteen_bytes_at_a_time(arch: int) -> None:
    for name, code in machine_code(KERNELS.source, arch).items():
        if "combine" in name:
            continue
        kind, layout, _ = parts(name)
        inputs = 2 if "backward" in kind or kind == "sums" else 1
        outputs = 0 if kind in ("sums", "statistics") else 1
        read, written = code.count(r"\bLDG?\.\S*128"), code.count(r"\bSTG?\.\S*128")
        if layout == "long":
            loop = [text for text in code.loop_over_packs() if re.search(r"\b(LD|ST)G?\.", text)]
            assert loop, name
            assert all(".128" in text for text in loop), name
            assert min(read, written) >= 1, name
        else:
            assert (read, written) == (inputs * PACKS[layout], outputs * PACKS[layout]), name
            # one element at a time: only at the edges of a row
            assert code.count(r"\bLDG?\.\S*U16") == (0 if name.endswith("f32") else inputs), name


@pytest.mark.parametrize("arch", [each for each in ARCHITECTURES if each >= 80])
def test_instructions_per_element(arch: int) -> None:
    under_the_locked_compiler()
    for name, code in machine_code(KERNELS.source, arch).items():
        direction, _, layout = parts(name)[0].partition("_") if "combine" not in name else ("", "", "")
        if (direction, layout) not in INSTRUCTIONS:
            continue
        runs = code.straight_runs()
        hard = [run for run in runs if any("0.16666667" in text for text in run)]
        assert len(hard) >= PACKS[layout], name
        size = parts(name)[2]
        per_element = (len(code.instructions) - sum(map(len, hard))) / (PACKS[layout] * size)
        assert per_element <= INSTRUCTIONS[direction, layout][size // 8], name


# --- a reference in float64 ---


class Reference(NamedTuple):
    """What the kernel should find, and the sum of the magnitudes that the gradient is made of."""

    a: Tensor
    dy: Tensor
    magnitude: Tensor
    mean: Tensor
    rstd: Tensor


def reference(y: Tensor, g: Tensor, hard: bool, unbiased: bool, alpha: float = ALPHA) -> Reference:
    """LayerAct by its formula; the gradient by autograd."""
    y, g, d = y.double().requires_grad_(), g.double(), y.shape[1]
    mean = y.mean(1, keepdim=True)
    rstd = (((y - mean) ** 2).sum(1, keepdim=True) / (d - unbiased) + alpha).rsqrt()
    n = (y - mean) * rstd
    s = torch.nn.functional.hardsigmoid(n) if hard else torch.sigmoid(n)
    (dy,) = torch.autograd.grad(y * s, y, g)
    with torch.no_grad():
        slope = ((n.abs() < 3) / 6.0) if hard else s * torch.sigmoid(-n)
        h = (g * y * slope).abs()
        sums = h.mean(1, keepdim=True) + n.abs() * (h * n.abs()).sum(1, keepdim=True) / (d - unbiased)
        magnitude = (g * s).abs() + rstd * (h + sums)
    return Reference((y * s).detach(), dy, magnitude, mean.detach()[:, 0], rstd.detach()[:, 0])


#: Half the distance of neighbouring numbers, relative; and the smallest distance.
ROUNDING = {torch.float32: (2**-24, 0.0), torch.bfloat16: (2**-8, 0.0), torch.float16: (2**-11, 2**-25)}


def assert_right(y: Tensor, g: Tensor, hard: bool, unbiased: bool, simulated: bool) -> None:
    """Forward and backward agree with float64 to rounding."""
    a, statistics = kernel.forward(y, ALPHA, hard, unbiased, simulated)
    dy = kernel.backward(g, y, statistics, hard, unbiased, simulated)
    want = reference(y, g, hard, unbiased)
    half, smallest = ROUNDING[y.dtype]
    # where hardsigmoid comes out of 0 only its absolute error is small
    error = 1e-6 * want.a.abs() + (3e-7 * y.double().abs() if hard else 0)
    if y.dtype != torch.float32 and not hard:
        error = error + 1e-5 * want.a.abs()  # the short arithmetic
    assert ((a - want.a).abs() <= error + half * want.a.abs() + smallest).all()
    assert ((dy - want.dy).abs() <= 3e-6 * want.magnitude + half * want.dy.abs() + smallest).all()
    mean_error = (statistics[0].double() + statistics[1] - want.mean).abs()
    assert (mean_error * want.rstd <= 1e-7).all()
    torch.testing.assert_close(statistics[2].double(), want.rstd, rtol=1e-6, atol=0)


def random(dtype: torch.dtype, rows: int, length: int, start: int = 0) -> list[Tensor]:
    """y and g, contiguous, ``start`` elements into their memory."""
    generator = torch.Generator().manual_seed(rows * length + start)
    mean_and_deviation = ((0.5, 1.5), (0.0, 1.0))
    return [
        (torch.randn(rows * length + start, generator=generator) * deviation + mean)
        .to(dtype)[start:]
        .view(rows, length)
        for mean, deviation in mean_and_deviation
    ]


@pytest.fixture(params=[pytest.param(True, marks=needs_simulator), pytest.param(False, marks=pytest.mark.gpu)])
def simulated(request: pytest.FixtureRequest) -> bool:
    """Whether the simulator runs the kernels, or a GPU."""
    if not request.param and not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    return bool(request.param)


@pytest.fixture
def device(simulated: bool) -> str:
    return "cpu" if simulated else "cuda"


#: Around every boundary: of a pack, of a number of lanes, of a layout, of a block's size, of a chunk.
FLOAT_LENGTHS = [
    *(2, 3, 4, 5, 7, 8, 9, 16, 31, 32, 33, 63, 64, 65, 127, 128, 129, 511, 512, 515, 516, 517),
    *(1023, 1024, 1025, 1027, 1028, 1029, 2047, 2048, 2049, 5000, 16_383, 16_384, 16_387, 16_388, 16_389, 40_001),
]
SHORTER_LENGTHS = [2, 3, 7, 8, 9, 17, 32, 33, 63, 64, 65, 255, 256, 1023, 1024, 1031, 1032, 1033]
#: Blocks and chunks: two of the four combinations of scale and variance say enough there.
LONGER_LENGTHS = [2047, 2048, 2055, 2056, 2057, 32_767, 32_768, 32_775, 32_776, 50_001]


@pytest.mark.parametrize("unbiased", [False, True], ids=["biased", "unbiased"])
@pytest.mark.parametrize("hard", [False, True], ids=["sigmoid", "hardsigmoid"])
class TestValues:
    @together("length", FLOAT_LENGTHS)
    def test_float32_rows(self, length: int, hard: bool, unbiased: bool, simulated: bool, device: str) -> None:
        rows = 3 if length < 2000 else 2
        y, g = (x.to(device) for x in random(torch.float32, rows, length))
        assert_right(y, g, hard, unbiased, simulated)

    @pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
    @together("length", SHORTER_LENGTHS)
    def test_16_bit_rows(
        self, length: int, dtype: torch.dtype, hard: bool, unbiased: bool, simulated: bool, device: str
    ) -> None:
        y, g = (x.to(device) for x in random(dtype, 3, length))
        assert_right(y, g, hard, unbiased, simulated)

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_many_rows(self, dtype: torch.dtype, hard: bool, unbiased: bool, simulated: bool, device: str) -> None:
        for rows, length in ((1000, 4), (131, 5), (33, 40), (7, 1025)):
            y, g = (x.to(device) for x in random(dtype, rows, length))
            assert_right(y, g, hard, unbiased, simulated)


@pytest.mark.parametrize("flag", [False, True], ids=["sigmoid-biased", "hardsigmoid-unbiased"])
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@together("length", LONGER_LENGTHS)
def test_long_16_bit_rows(length: int, dtype: torch.dtype, flag: bool, simulated: bool, device: str) -> None:
    y, g = (x.to(device) for x in random(dtype, 1, length))
    assert_right(y, g, flag, flag, simulated)


@pytest.mark.parametrize("hard", [False, True], ids=["sigmoid", "hardsigmoid"])
def test_a_row_of_a_million(hard: bool, simulated: bool, device: str) -> None:
    y, g = (x.to(device) for x in random(torch.float32, 1, 2**20))
    y[0, 77_777] = 1e6  # n = 1024 is as large as it can be
    assert_right(y, g, hard, False, simulated)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@together("length", [5, 64, 1030, 2100, 33_000])
def test_rows_may_begin_anywhere_in_memory(length: int, dtype: torch.dtype, simulated: bool, device: str) -> None:
    for start_y, start_g in ((1, 1), (3, 2), (0, 1)):
        y, g = random(dtype, 2, length, start_y)[0], random(dtype, 2, length, start_g)[1]
        memory_y, memory_g = (torch.empty(2 * length + 8, dtype=dtype, device=device) for _ in range(2))
        y = memory_y[start_y : start_y + y.numel()].view_as(y).copy_(y)
        g = memory_g[start_g : start_g + g.numel()].view_as(g).copy_(g)
        assert_right(y, g, False, False, simulated)


# --- numbers that break a naive implementation ---

#: A length in each layout, a full and a ragged one.
EACH_LAYOUT = [24, 37, 1000, 1027, 4096, 5003, 16_384, 40_000, 65_539]


@together("length", EACH_LAYOUT)
def test_a_mean_of_10000_deviations_leaves_five_digits(length: int, simulated: bool, device: str) -> None:
    generator = torch.Generator().manual_seed(length)
    y = (torch.randn(2, length, generator=generator) + 1e4).to(device)
    g = torch.randn(2, length, generator=generator).to(device)
    want = reference(y, g, False, False)
    a, statistics = kernel.forward(y, ALPHA, False, False, simulated)
    dy = kernel.backward(g, y, statistics, False, False, simulated)
    assert ((a - want.a).abs() <= 1e-5 * want.a.abs()).all()
    assert ((dy - want.dy).abs() <= 1e-5 * want.magnitude).all()
    # what a single float32 mean would leave
    single = want.mean.float().double()[:, None]
    naive = y * torch.sigmoid((y.double() - single) * want.rstd[:, None])
    assert ((naive - want.a).abs() / want.a.abs()).max() > 1e-5


# 41 times the rounded 1/41 is not 1: the mean of c must be a true quotient.
@together("length", [1, 41, *EACH_LAYOUT])
@pytest.mark.parametrize("hard", [False, True], ids=["sigmoid", "hardsigmoid"])
def test_in_a_constant_row_variance_and_n_are_exactly_zero(
    length: int, hard: bool, simulated: bool, device: str
) -> None:
    values = [0.0, 1.0, 0.76822180, 0.1, -1 / 3, 0.99999994, 1.0000001, 16777213.0, 333333.3, 1e18, 1e-30]
    rows = values if length < 5000 else values[2:6]
    y = torch.tensor(rows, device=device)[:, None].repeat(1, length)
    a, (mean, rest, rstd) = kernel.forward(y, ALPHA, hard, False, simulated)
    assert torch.equal(mean, y[:, 0])
    assert torch.equal(rest, torch.zeros_like(rest))
    assert ((rstd.double() - ALPHA**-0.5).abs() <= 1e-7 * ALPHA**-0.5).all()
    assert torch.equal(a, y / 2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_of_one_element(dtype: torch.dtype, simulated: bool, device: str) -> None:
    y, g = torch.tensor([[2.5], [-4.0], [0.0]], device=device).to(dtype), torch.ones(3, 1, device=device).to(dtype)
    a, statistics = kernel.forward(y, ALPHA, False, False, simulated)
    assert torch.equal(a, y / 2)
    assert torch.equal(kernel.backward(g, y, statistics, False, False, simulated), g / 2)
    a, statistics = kernel.forward(y, ALPHA, False, True, simulated)
    assert a.isnan().all()
    assert kernel.backward(g, y, statistics, False, True, simulated).isnan().all()


@together("length", EACH_LAYOUT)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_stay_in_their_row(length: int, bad: float, simulated: bool, device: str) -> None:
    y, g = (x.to(device) for x in random(torch.float32, 3, length))
    good = kernel.forward(y, ALPHA, False, False, simulated)
    good_dy = kernel.backward(g, y, good[1], False, False, simulated)
    y[1, length // 3] = bad
    a, statistics = kernel.forward(y, ALPHA, False, False, simulated)
    dy = kernel.backward(g, y, statistics, False, False, simulated)
    assert a[1].isnan().all()
    assert dy[1].isnan().all()
    assert statistics[:, 1].isnan().all()
    for row in (0, 2):
        assert torch.equal(a[row], good[0][row])
        assert torch.equal(dy[row], good_dy[row])


@together("length", EACH_LAYOUT)
def test_huge_and_tiny_values(length: int, simulated: bool, device: str) -> None:
    y, g = (x[:1].to(device) for x in random(torch.float32, 1, length))
    for factor in (1e18, 1e-18, 1e-30):
        scaled = y * factor
        want = reference(scaled, g, False, False)
        a, statistics = kernel.forward(scaled, ALPHA, False, False, simulated)
        dy = kernel.backward(g, scaled, statistics, False, False, simulated)
        assert ((a - want.a).abs() <= 2e-6 * want.a.abs()).all(), factor
        assert ((dy - want.dy).abs() <= 3e-6 * want.magnitude).all(), factor
    # the square overflows: NaN, where r = 0 would make a half of every gate
    if length > 1:
        a, statistics = kernel.forward(y * 1e22, ALPHA, False, False, simulated)
        assert a.isnan().all()
        assert statistics[2].isnan().all()


# --- the scales ---

SCALES = """
template <typename Scale>
__device__ void scale(const float* n, float* value, float* s, float* slope, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    value[i] = Scale::value(n[i]);
    Scale::value_and_slope(n[i], s[i], slope[i]);
}
extern "C" __global__ void sigmoid(const float* n, float* value, float* s, float* slope, int count) {
    scale<companion::Sigmoid<float>>(n, value, s, slope, count);
}
extern "C" __global__ void short_sigmoid(const float* n, float* value, float* s, float* slope, int count) {
    scale<companion::Sigmoid<__half>>(n, value, s, slope, count);
}
extern "C" __global__ void reciprocal_root(const float* x, float* result) {
    result[threadIdx.x] = companion::accurate_rsqrt(x[threadIdx.x]);
}
extern "C" __global__ void hardsigmoid(const float* n, float* value, float* s, float* slope, int count) {
    scale<companion::HardSigmoid>(n, value, s, slope, count);
}
"""
NAMES = [name for name in KERNELS.names if name.endswith("_f32") or "combine" in name]


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> simulator.Module:
    """Functions of layeract.cu and common.cuh, as kernels of their own."""
    source = KERNELS.source
    source = changed(tmp_path_factory.mktemp("functions"), source, with_instances(source, SCALES))
    return simulator.load(source, ["sigmoid", "short_sigmoid", "hardsigmoid", "reciprocal_root"])


def scale_at(functions: simulator.Module, name: str, n: Tensor) -> list[Tensor]:
    """s, s once more, and s'."""
    results = [torch.empty_like(n) for _ in range(3)]
    functions.launch(name, (math.ceil(n.numel() / 256),), (256,), [n, *results, np.int32(n.numel())])
    return results


@needs_simulator
@pytest.mark.parametrize(("name", "bound"), [("sigmoid", 3e-7), ("short_sigmoid", 1.2e-5)])
def test_the_sigmoid_and_its_slope_are_right_wherever_n_can_be(
    functions: simulator.Module, name: str, bound: float
) -> None:
    n = torch.cat([torch.linspace(-1000, 1000, 4001), torch.linspace(-100, 100, 20_001), torch.linspace(-3, 3, 10_000)])
    n = torch.cat([n, n.sign() * 10.0 ** torch.linspace(-30, 0, n.numel())])
    x = n.double()
    s, slope = torch.sigmoid(x), torch.sigmoid(x) * torch.sigmoid(-x)
    value, other, found_slope = scale_at(functions, name, n)
    assert not torch.cat([value, other, found_slope]).isnan().any()
    smallest = 2.0**-126  # what is smaller may be 0
    for found in (value, other):
        assert ((found - s).abs() <= bound * s + smallest).all()
    assert ((found_slope - slope).abs() <= 2 * bound * slope + 2 * smallest).all()
    assert value[n <= -100].max() == 0
    assert value[n >= 100].min() >= 1 - 2**-23
    assert not found_slope[n.abs() >= 100].any()  # it may meet a number of 1e31
    assert scale_at(functions, name, torch.tensor([math.nan]))[0].isnan()


@needs_simulator
def test_the_hard_sigmoid_is_torchs(functions: simulator.Module) -> None:
    n = torch.tensor(
        [-1000, -3.0000002, -3, -2.9999998, -1, 0, 1e-20, 2.9999998, 3, 3.0000002, 1000], dtype=torch.float32
    )
    n = torch.cat([n, torch.linspace(-4, 4, 10_001)]).requires_grad_()
    s = torch.nn.functional.hardsigmoid(n)
    (slope,) = torch.autograd.grad(s.sum(), n)
    value, other, found_slope = scale_at(functions, "hardsigmoid", n.detach())
    torch.testing.assert_close(value, s.detach(), rtol=2e-7, atol=0)
    assert torch.equal(value, other)
    assert torch.equal(found_slope, slope)
    assert scale_at(functions, "hardsigmoid", torch.tensor([math.nan]))[0].isnan()


@needs_simulator
def test_the_reciprocal_root_is_right_to_one_unit_in_the_last_place(functions: simulator.Module) -> None:
    x = torch.cat(
        [torch.linspace(1, 4, 900), 10.0 ** torch.linspace(-44, 38, 120), torch.tensor([0, math.inf, math.nan])]
    )
    found = torch.empty_like(x)
    functions.launch("reciprocal_root", (1,), (x.numel(),), [x, found])
    exact = x.double().rsqrt()
    assert ((found - exact).abs()[:-3] <= 2**-23 * exact[:-3]).all()
    assert found[-3:-1].tolist() == [math.inf, 0]
    assert found[-1].isnan()


@needs_simulator
def test_a_mean_whose_first_part_is_not_rounded_does_not_prove_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = "(correction - back);"
    fused = {old: f"{old[:-1]} + fmaf(sum[0], per_length, -m);"}  # what rounding took from m is still there
    text = with_instances(KERNELS.source, "COMPANION_KERNELS(f32, float)")
    module = simulator.load(changed(tmp_path, KERNELS.source, text, fused), NAMES)
    monkeypatch.setattr(KERNELS, "_simulator", lambda: module)
    monkeypatch.setattr(proof, "KERNEL_DTYPES", [torch.float32])
    with companion.backend("simulator"):
        faults = filter(None, map(trial._fault, proof.exercise("cpu")))
        assert "the result is wrong" in next(faults)


# --- memory and threads ---


def cases() -> Iterator[list[Tensor]]:
    """y and g: every layout, even and ragged, some with several rows to a warp that the last block does not fill."""
    for rows, length in ((37, 4), (5, 3), (9, 33), (3, 128), (3, 515), (5, 1000), (2, 1025), (2, 2056), (1, 16_389)):
        yield random(torch.float32, rows, length)
    yield random(torch.float32, 2, 1030, 1)


def forward_and_backward(y: Tensor, g: Tensor) -> list[Tensor]:
    """All results, of the sigmoid and biased, then of the hard sigmoid and unbiased."""
    results = []
    for flag in (False, True):
        a, statistics = kernel.forward(y, ALPHA, flag, flag, True)
        results += [a, statistics, kernel.backward(g, y, statistics, flag, flag, True)]
    return results


FAULTS: dict[str, dict[str, str]] = {
    "no correction of the mean": {
        "const float correction = c_mean * deviation_unscale;": "const float correction = 0;"
    },
    "a barrier less": {
        "        __syncthreads();\n#pragma unroll\n        for (int v = 0; v < values; ++v) x[v] = ": (
            "#pragma unroll\n        for (int v = 0; v < values; ++v) x[v] = "
        )
    },
    "an edge too many": {"return thread < edges;": "return thread <= edges;"},
    "a pack too many": {"return p * threads + thread < packs;": "return p * threads + thread <= packs;"},
    "sums over a whole warp": {"if (distance < threads) {": "if (distance < warp_size) {"},
    "rows that do not exist": {"return row < rows;": "return true;"},
    "a chunk from the row's start": {
        "return {row, row * row_length + offset, rest": "return {row, row * row_length, rest"
    },
    "squares that forget their scale": {
        "squares += variance_unscale * mean[2 * chunks + i]": "squares += mean[2 * chunks + i]"
    },
    "chunks that forget their distance": {" + k * b * b;": ";"},
}


TestMemoryAndThreads = memory_and_threads(
    KERNELS, "COMPANION_KERNELS(f32, float)", NAMES, forward_and_backward, cases, FAULTS
)


# --- on a GPU ---


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
class TestOnAGpu:
    @needs_simulator
    def test_it_agrees_with_the_simulator(self) -> None:
        for y, g in cases():
            a, statistics = kernel.forward(y, ALPHA, False, False, True)
            dy = kernel.backward(g, y, statistics, False, False, True)
            found, found_statistics = kernel.forward(y.cuda(), ALPHA, False, False, False)
            found_dy = kernel.backward(g.cuda(), y.cuda(), found_statistics, False, False, False)
            torch.testing.assert_close(found.cpu(), a, rtol=2e-6, atol=1e-30)
            torch.testing.assert_close(found_statistics.cpu(), statistics, rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(found_dy.cpu(), dy, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("length", [37, 1000, 5003, 65_539])
    def test_two_runs_give_the_same_bits(self, length: int) -> None:
        y, g = (x.cuda() for x in random(torch.float32, 64, length))
        first, second = (kernel.forward(y, ALPHA, False, False, False) for _ in range(2))
        assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
        one, other = (kernel.backward(g, y, first[1], False, False, False) for _ in range(2))
        assert torch.equal(one, other)

    def test_more_than_2_to_the_31_elements(self) -> None:
        if torch.cuda.mem_get_info()[0] < 30 * 2**30:
            pytest.skip("needs 30 GiB of GPU memory")
        for rows, length in ((2**21 + 3, 1031), (3, 2**30 + 7)):
            y = torch.empty(rows, length, device="cuda", dtype=torch.bfloat16).normal_()
            a, statistics = kernel.forward(y, ALPHA, False, False, False)
            dy = kernel.backward(y, y, statistics, False, False, False)
            last, last_statistics = kernel.forward(y[-1:].clone(), ALPHA, False, False, False)
            assert torch.equal(a[-1:], last)
            assert torch.equal(
                dy[-1:], kernel.backward(y[-1:].clone(), y[-1:].clone(), last_statistics, False, False, False)
            )
