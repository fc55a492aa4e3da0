"""dac_linear.cu, dac_conv.cu and dac_conv3x3.cu: their machine code, tiles, values, memory accesses."""

from __future__ import annotations

import itertools
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from companion import simulator
from companion.cuda import build
from companion.dac import kernel
from companion.dac.kernel import CONV, CONV3X3, LINEAR, TILES, Geometry, parts_of, tiling
from tests.cuda.machine_code import ARCHITECTURES, Code, machine_code, under_the_locked_compiler

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
ALL = (True, True, True)

needs_simulator = pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))


@pytest.fixture(params=[pytest.param(True, marks=needs_simulator), pytest.param(False, marks=pytest.mark.gpu)])
def simulated(request: pytest.FixtureRequest) -> bool:
    """Whether the simulator runs the kernels, or a GPU."""
    if not request.param and not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    return bool(request.param)


@pytest.fixture
def device(simulated: bool) -> str:
    return "cpu" if simulated else "cuda"


# --- machine code ---

#: What a thread of wide and narrow tiles computes: terms a step, and the rounds of the inner loop.
TERMS = {"forward": (512, 256), "input": (256, 256), "weight": (128, 128)}
ROUNDS = {"forward": 8, "input": 8, "weight": 2}
#: Instructions a term on sm_90, f32: those of the inner loop, of wide and narrow tiles, and those of a step with all
#: that it brings, even what is for borders only. The arithmetic alone is 2, 2 and 3.
INNER = {"forward": (2.25, 2.41), "input": (2.45, 2.38), "weight": (3.21, 3.21)}
STEP = {
    ("linear", "forward"): (2.6, 3.1),
    ("linear", "input"): (3.0, 3.1),
    ("linear", "weight"): (4.0, 4.0),
    ("conv", "forward"): (3.0, 4.3),
    ("conv", "input"): (3.7, 4.5),
    ("conv", "weight"): (5.1, 6.1),
}


each_source = pytest.mark.parametrize("kernels", [LINEAR, CONV, CONV3X3], ids=["linear", "conv", "conv3x3"])
each_tiled_source = pytest.mark.parametrize("kernels", [LINEAR, CONV], ids=["linear", "conv"])


@pytest.mark.parametrize("arch", ARCHITECTURES)
@each_source
def test_nothing_spills_and_two_wide_blocks_share_a_multiprocessor(kernels: kernel.Kernels, arch: int) -> None:
    under_the_locked_compiler()
    for name, code in machine_code(kernels.source, arch).items():
        assert not code.spills, name
        assert code.registers <= (168 if arch == 120 and "conv_forward" in name else 128), name


def loops(code: Code) -> list[list[str]]:
    """The bodies of all loops, the longest first."""
    bodies = []
    for address, text in code.instructions:
        target = re.search(r"BRA(?:\.\w+)* .*?(0x[0-9a-f]+)", text)
        if target and int(target[1], 16) < address:
            bodies.append([other for at, other in code.instructions if int(target[1], 16) <= at <= address])
    return sorted(bodies, key=len, reverse=True)


@each_tiled_source
def test_instructions_per_term(kernels: kernel.Kernels) -> None:
    under_the_locked_compiler()
    for name, code in machine_code(kernels.source, 90).items():
        found = re.fullmatch(r"dac_(\w+)_(\w+)_(wide|narrow)_f32", name)
        if not found:
            continue
        layer, what, width = found.groups()
        place, rounds = width == "narrow", ROUNDS[what]
        step, inner = (len(body) for body in loops(code)[:2])
        terms = TERMS[what][place]
        assert inner * rounds / terms <= INNER[what][place], name
        assert (step + inner * (rounds - 1)) / terms <= STEP[layer, what][place], name


@each_tiled_source
def test_max_and_comparison_are_one_instruction_and_keep_nan(kernels: kernel.Kernels) -> None:
    for name, code in machine_code(kernels.source, 90).items():
        if "forward" in name:
            assert code.count(r"\bFMNMX\.NAN") >= 32, name
        elif "finish" not in name:
            assert code.count(r"\bFSETP\.GTU") >= 32, name


def test_a_tensor_core_product_takes_eleven_instructions_for_1152_terms() -> None:
    under_the_locked_compiler()
    for name, code in machine_code(CONV3X3.source, 90).items():
        loop = loops(code)[0]
        products = sum("HMMA.16816.F32" in text for text in loop)
        assert products == 12, name
        assert sum(re.search(r"HMNMX2.*NAN", text) is not None for text in loop) == 2 * products, name
        assert len(loop) <= 11 * products, name


# --- tiles ---


def test_the_source_and_its_binding_have_the_same_constants() -> None:
    header = (LINEAR.source.with_name("dac.cuh")).read_text()
    constants = dict(re.findall(r"constexpr int (\w+) = (\d+);", header))
    assert int(constants["depth_step"]) == kernel.DEPTH_STEP
    assert int(constants["finish_threads"]) == kernel.FINISH_THREADS
    tiles = re.findall(r"using (Wide|Narrow)(\w+) = Tile2d<(\d+), (\d+), (\d+), (\d+)>", header)
    assert len(tiles) == 6
    for width, what, *numbers in tiles:
        rows, columns, down, across = map(int, numbers)
        assert TILES[what.lower()][width.lower()] == (rows * down, columns * across, down * across)
        assert int(constants[f"{width.lower()}_threads"]) == down * across


def test_the_tensor_core_kernel_and_its_binding_have_the_same_constants() -> None:
    constants = dict(re.findall(r"constexpr int (\w+) = (\d+);", CONV3X3.source.read_text()))
    assert int(constants["side"]) == kernel.SIDE
    assert int(constants["outputs_at_once"]) == kernel.OUTPUTS_AT_ONCE
    assert int(constants["warps"]) * 32 == kernel.CONV3X3_THREADS


def test_small_and_slender_results_have_narrow_tiles() -> None:
    assert tiling("forward", 1024, 128).kind == "narrow"
    assert tiling("forward", 2**20, 16).kind == "narrow"
    assert tiling("forward", 2**20, 128).kind == "wide"
    assert tiling("forward", 4096, 4096) == ("wide", 256, 1024)


@pytest.mark.parametrize("tiles", [1, 3, 64, 300])
@pytest.mark.parametrize("terms", [1, 7, 8, 255, 257, 10_000, 2**33 + 1])
def test_parts_hold_every_term_once(terms: int, tiles: int) -> None:
    parts, length = parts_of(terms, tiles)
    assert (parts - 1) * length < terms <= parts * length
    assert length % kernel.DEPTH_STEP == 0
    assert length <= 2**30
    assert parts <= math.ceil(terms / 2**29) or parts * tiles < 2 * kernel.ENOUGH_BLOCKS


def test_the_prepared_division_is_exact() -> None:
    for divisor in (1, 2, 3, 5, 7, 9, 25, 64, 1023, 1024, 1025, 50_176, 2**30 - 1, 2**30, 2**31 - 1):
        magic, shift = kernel.magic(divisor), (divisor - 1).bit_length()
        assert 0 < magic < 2**32
        near = (k * divisor + d for k in (0, 1, 2, 3, 1000, (2**31 - 1) // divisor) for d in (-1, 0, 1))
        for n in (*near, 2**31 - 1, 2**31 - 2, 12_345_678):
            if 0 <= n < 2**31:
                assert (n + (n * magic >> 32)) >> shift == n // divisor


# --- references in float64, written another way than the kernels ---


class Case(NamedTuple):
    """A layer's tensors, and the geometry if it is a convolution."""

    z: Tensor
    weight: Tensor
    bias: Tensor
    geometry: Geometry | None = None


def linear_reference(z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The broadcast form."""
    return (weight * torch.relu(bias + z[:, None, :])).sum(2)


def conv_reference(z: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry) -> Tensor:
    """torch's convolution of all activated copies: for bias per pair by groups, for bias per weight by unfolding."""
    stride, padding, dilation, groups, before = geometry
    N, (n, inputs, kh, kw) = len(z), weight.shape
    if before:
        z = F.pad(z, (padding[1], padding[1], padding[0], padding[0]))
        padding = (0, 0)
    of_group = z.view(N, groups, 1, inputs, *z.shape[2:]).expand(-1, -1, n // groups, -1, -1, -1)
    of_output = of_group.reshape(N, n, inputs, *z.shape[2:])  # the inputs that each output sees
    if bias.ndim == 2:
        activated = torch.relu(of_output + bias[None, :, :, None, None]).flatten(1, 2)
        return F.conv2d(activated, weight, None, stride, padding, dilation, groups=n)
    cut = [
        F.unfold(x, (kh, kw), dilation, padding, stride) for x in (of_output.flatten(1, 2), torch.ones_like(z[:, :1]))
    ]
    patches, inside = cut[0].view(N, n, inputs * kh * kw, -1), cut[1].view(N, 1, 1, kh * kw, -1)
    activated = torch.relu(patches + bias.reshape(1, n, -1, 1)).view(N, n, inputs, kh * kw, -1)
    out = (activated * (inside != 0) * weight.reshape(1, n, inputs, kh * kw, 1)).sum((2, 3))
    over = [(z.shape[2 + d] + 2 * padding[d] - dilation[d] * ((kh, kw)[d] - 1) - 1) // stride[d] + 1 for d in (0, 1)]
    return out.view(N, n, *over)


def exact(case: Case, g: Tensor) -> list[Tensor]:
    """f and the gradients of z, weight and bias, in float64."""
    parameters = [x.double().detach().requires_grad_() for x in case[:3]]
    f = conv_reference(*parameters, case.geometry) if case.geometry else linear_reference(*parameters)
    return [f.detach(), *torch.autograd.grad(f, parameters, g.double())]


def output_shape(case: Case) -> tuple[int, ...]:
    if case.geometry is None:
        return len(case.z), len(case.weight)
    return len(case.z), len(case.weight), *kernel.output_size(case.z, case.weight, case.geometry)


def found(case: Case, g: Tensor, simulated: bool) -> list[Tensor]:
    """The same, by the kernels."""
    if case.geometry is None:
        f = kernel.linear_forward(*case[:3], simulated)
        gradients = kernel.linear_backward(g, *case[:3], ALL, simulated)
    else:
        f = kernel.conv_forward(*case, simulated)
        gradients = kernel.conv_backward(g, *case, ALL, simulated)
    return [f, *(x for x in gradients if x is not None)]


#: Half the distance of neighbouring numbers, relative; and the smallest distance.
ROUNDING = {torch.float32: (2**-24, 0.0), torch.bfloat16: (2**-8, 0.0), torch.float16: (2**-11, 2**-25)}


def bounds(case: Case, g: Tensor) -> list[Tensor]:
    """Errors that float32 sums may have: so many roundings of the sum of the magnitudes of all that is added."""
    geometry = case.geometry and case.geometry._replace(before=True)  # the border adds w b and takes it back
    absolute = Case(*(x.double().abs() for x in case[:3]), geometry)
    sums = exact(absolute, g.abs())  # with |b| + |z| > 0 everywhere nothing is left out
    return [2e-6 * x for x in sums]


def assert_right(case: Case, simulated: bool) -> None:
    """Forward and gradients agree with float64 to rounding."""
    generator = torch.Generator().manual_seed(1)
    g = torch.randn(output_shape(case), generator=generator).to(case.z)
    results = found(case, g, simulated)
    half, smallest = ROUNDING[case.z.dtype]
    for what, got, want, bound in zip(
        ("f", "dz", "dweight", "dbias"), results, exact(case, g), bounds(case, g), strict=True
    ):
        assert got.dtype == case.z.dtype, what
        assert got.shape == want.shape, what
        assert ((got - want).abs() <= bound + half * want.abs() + smallest).all(), what


def random(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, device: str = "cpu") -> list[Tensor]:
    generator = torch.Generator().manual_seed(sum(map(sum, shapes)))
    return [torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes]


def linear_case(N: int, m: int, n: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Case:
    return Case(*random((N, m), (n, m), (n, m), dtype=dtype, device=device))


def conv_case(
    z: tuple[int, ...],
    weight: tuple[int, ...],
    per_weight: bool = False,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    before: bool = False,
) -> Case:
    tensors = random(z, weight, weight if per_weight else weight[:2], dtype=dtype, device=device)
    return Case(*tensors, Geometry(stride, padding, dilation, groups, before))


# --- values ---

#: Around the borders of tiles (128, 64, 32) and steps (8), packs (4), one of everything, several parts (N > 256).
LINEAR_SIZES = [
    *((1, 1, 1), (3, 5, 2), (67, 35, 70), (129, 33, 65), (127, 8, 31), (2, 64, 33), (130, 4, 129)),
    *((600, 9, 5), (5, 130, 3), (40, 36, 72)),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", LINEAR_SIZES, ids=str)
def test_dense(sizes: tuple[int, int, int], dtype: torch.dtype, simulated: bool, device: str) -> None:
    assert_right(linear_case(*sizes, dtype, device), simulated)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide tiles for every size."""
    monkeypatch.setattr(kernel, "ENOUGH_BLOCKS", 2)
    monkeypatch.setattr(kernel, "tiling", lambda *sizes: tiling_as("wide", *sizes))


def tiling_as(kind: str, what: str, rows: int, columns: int) -> kernel.Tiling:
    height, width, threads = TILES[what][kind]
    return kernel.Tiling(kind, threads, math.ceil(rows / height) * math.ceil(columns / width))


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("sizes", [(67, 35, 70), (130, 66, 129), (600, 9, 5)], ids=str)
def test_dense_in_wide_tiles(sizes: tuple[int, int, int], simulated: bool, device: str) -> None:
    assert_right(linear_case(*sizes, device=device), simulated)


#: Every parameter of a convolution at least once away from its default, kernels that reach over the whole picture and
#: beyond, one pixel, rows and columns of different fate, more than one tile of everything.
CONVOLUTIONS: dict[str, Callable[..., Case]] = {
    "3x3": lambda **k: conv_case((2, 5, 7, 6), (3, 5, 3, 3), padding=(1, 1), **k),
    "1x1": lambda **k: conv_case((2, 9, 5, 4), (4, 9, 1, 1), **k),
    "one pixel": lambda **k: conv_case((1, 1, 1, 1), (1, 1, 1, 1), **k),
    "wide padding": lambda **k: conv_case((1, 2, 2, 3), (2, 2, 3, 2), padding=(3, 4), **k),
    "stride": lambda **k: conv_case((2, 3, 9, 8), (4, 3, 3, 3), stride=(2, 3), padding=(1, 2), **k),
    "dilation": lambda **k: conv_case((1, 3, 9, 10), (2, 3, 3, 2), dilation=(2, 3), padding=(2, 1), **k),
    "groups": lambda **k: conv_case((2, 6, 5, 5), (9, 2, 3, 3), padding=(1, 1), groups=3, **k),
    "depthwise": lambda **k: conv_case((2, 5, 4, 6), (5, 1, 3, 3), padding=(1, 1), groups=5, **k),
    "all at once": lambda **k: conv_case(
        (2, 4, 11, 9), (6, 2, 3, 2), stride=(3, 2), dilation=(2, 3), padding=(2, 3), groups=2, **k
    ),
    "many tiles": lambda **k: conv_case((3, 20, 9, 10), (35, 20, 3, 3), padding=(1, 1), **k),
}


@pytest.mark.parametrize("per_weight", [False, True], ids=["per pair", "per weight"])
@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, before: bool, per_weight: bool, simulated: bool, device: str) -> None:
    assert_right(CONVOLUTIONS[name](before=before, per_weight=per_weight, device=device), simulated)


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.parametrize("name", ["3x3", "all at once", "many tiles"])
def test_convolutions_of_16_bits(name: str, dtype: torch.dtype, simulated: bool, device: str) -> None:
    assert_right(CONVOLUTIONS[name](dtype=dtype, per_weight=name == "all at once", device=device), simulated)


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("name", ["all at once", "many tiles"])
def test_convolutions_in_wide_tiles(name: str, simulated: bool, device: str) -> None:
    for per_weight in (False, True):
        assert_right(CONVOLUTIONS[name](per_weight=per_weight, device=device), simulated)


#: Fewer and more inputs than 16, several blocks of them, odd numbers of outputs, tiles in both directions.
PICTURES = {
    "one tile": ((2, 5, 7, 6), (3, 5, 3, 3), (1, 1)),
    "several tiles": ((2, 35, 19, 34), (5, 35, 3, 3), (1, 1)),
    "uneven padding": ((1, 16, 3, 4), (2, 16, 3, 3), (3, 0)),
    "one pixel": ((3, 17, 1, 1), (1, 17, 3, 3), (1, 1)),
}


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("name", PICTURES)
def test_tensor_cores(name: str, before: bool, dtype: torch.dtype, simulated: bool, device: str) -> None:
    z, weight, padding = PICTURES[name]
    case = conv_case(z, weight, dtype=dtype, padding=padding, before=before, device=device)
    assert kernel.suits_tensor_cores(*case)
    assert_right(case, simulated)
    bad = case.z.clone()
    bad[0, 3, -1, 0] = math.nan
    f = kernel.conv_forward(case._replace(z=bad).z, *case[1:], simulated)
    want = exact(case._replace(z=bad), torch.zeros(output_shape(case), device=device))[0]
    assert torch.equal(f.isnan(), want.isnan())
    assert f.isnan().any()


def test_what_tensor_cores_are_not_for() -> None:
    suitable = {"z": (1, 4, 6, 6), "weight": (2, 4, 3, 3), "dtype": torch.bfloat16}
    assert kernel.suits_tensor_cores(*conv_case(**suitable))
    others: list[dict[str, object]] = [
        {"dtype": torch.float32},
        {"per_weight": True},
        {"stride": (1, 2)},
        {"dilation": (2, 1)},
        {"groups": 2, "weight": (2, 2, 3, 3)},
        {"weight": (2, 4, 3, 1)},
    ]
    for other in others:
        assert not kernel.suits_tensor_cores(*conv_case(**(suitable | other)))  # type: ignore[arg-type]


def test_fragments_hold_every_weight_where_a_lane_looks_for_it() -> None:
    weight = torch.arange(2 * 20 * 9).view(2, 20, 3, 3)
    held = kernel.fragments(weight)
    assert held.shape == (2, 2, 32, 4, 2)
    for block, lane, register, e in itertools.product(range(2), range(32), range(4), range(2)):
        position = lane // 4 + 8 * (register % 2)
        channel = 16 * block + lane % 4 * 2 + 8 * (register // 2) + e
        for output in range(2):
            there = position < 9 and channel < 20
            want = weight[output, channel].flatten()[position] if there else 0
            assert held[output, block, lane, register, e] == want


def test_only_the_gradients_that_are_needed(simulated: bool, device: str) -> None:
    case = CONVOLUTIONS["3x3"](device=device)
    g = torch.ones(output_shape(case), device=device)
    every = kernel.conv_backward(g, *case, ALL, simulated)
    for needs in itertools.product((False, True), repeat=3):
        for some, one, needed in zip(kernel.conv_backward(g, *case, needs, simulated), every, needs, strict=True):
            assert (some is not None) == needed
            assert some is None or torch.equal(some, one)


def test_any_strides(simulated: bool, device: str) -> None:
    z, weight, bias, _ = linear_case(9, 12, 7, device=device)
    f = kernel.linear_forward(z, weight, bias, simulated)
    views = [x.T.contiguous().T for x in (z, weight, bias)]
    assert torch.equal(kernel.linear_forward(*views, simulated), f)
    shifted = torch.cat([torch.zeros(1, device=device), z.flatten()])[1:].view(9, 12)
    assert torch.equal(kernel.linear_forward(shifted, weight, bias, simulated), f)
    case = CONVOLUTIONS["3x3"](device=device)
    last = case.z.to(memory_format=torch.channels_last)
    assert torch.equal(kernel.conv_forward(last, *case[1:], simulated), kernel.conv_forward(*case, simulated))


# --- numbers that break a naive implementation ---


def test_an_output_without_an_active_input_is_exactly_zero(simulated: bool, device: str) -> None:
    z, weight, bias, _ = linear_case(70, 37, 40, device=device)
    assert torch.equal(kernel.linear_forward(z, weight, bias - 10, simulated), torch.zeros(70, 40, device=device))
    case = CONVOLUTIONS["many tiles"](device=device)
    f = kernel.conv_forward(case.z, case.weight, case.bias - 10, case.geometry, simulated)
    assert torch.equal(f, torch.zeros_like(f))


def test_nan_reaches_every_output_of_its_sample_and_no_other(simulated: bool, device: str) -> None:
    case = linear_case(5, 12, 9, device=device)
    g = torch.randn(5, 9, device=device)
    good, z = found(case, g, simulated), case.z.clone()
    z[2, 7] = math.nan
    f, dz, dw, db = found(case._replace(z=z), g, simulated)
    others = torch.arange(5, device=device) != 2
    assert f[2].isnan().all()
    assert torch.equal(f[others], good[0][others])
    assert dw[:, 7].isnan().all()
    columns = torch.arange(12, device=device) != 7
    assert torch.equal(dw[:, columns], good[2][:, columns])
    # at NaN torch's slope is 1
    want = exact(case._replace(z=z), g)
    torch.testing.assert_close(dz.double(), want[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(db.double(), want[3], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
def test_nan_in_a_picture_reaches_what_sees_it(before: bool, simulated: bool, device: str) -> None:
    case = CONVOLUTIONS["3x3"](before=before, device=device)
    case.z[1, 3, 0, 2] = math.nan
    g = torch.randn(output_shape(case), device=device)
    for got, want in zip(found(case, g, simulated), exact(case, g), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert found(case, g, simulated)[0].isnan().sum() == 3 * 2 * 3


def test_infinite_inputs_are_active_or_not(simulated: bool, device: str) -> None:
    case = linear_case(4, 6, 5, device=device)
    case.z[1, 2], case.z[2, 3] = math.inf, -math.inf
    g = torch.randn(4, 5, device=device)
    for got, want in zip(found(case, g, simulated), exact(case, g), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_at_the_kink_the_slope_is_zero(simulated: bool, device: str) -> None:
    bias = torch.randn(7, 5, device=device)
    z = -bias[3:4].clone()  # b + z = 0 for output 3
    g = torch.zeros(1, 7, device=device)
    g[0, 3] = 1.0
    dz, dw, db = kernel.linear_backward(g, z, torch.ones_like(bias), bias, ALL, simulated)
    for gradient in (dz, dw, db):
        assert gradient is not None
        assert torch.equal(gradient, torch.zeros_like(gradient))


# --- memory and threads ---

INSTANCES = re.compile(r"^COMPANION_KERNELS\(\w+, \w+\)$", re.MULTILINE)


INSTANCE = {LINEAR: ("f32", "float"), CONV: ("f32", "float"), CONV3X3: ("bf16", "__nv_bfloat16")}


def changed(kernels: kernel.Kernels, folder: Path, changes: dict[str, str], **options: bool) -> simulator.Module:
    """The kernels of a source for one dtype, with changes."""
    texts = {path.name: path.read_text() for path in (kernels.source, kernels.source.with_name("dac.cuh"))}
    texts["common.cuh"] = (build.INCLUDE / "common.cuh").read_text()
    suffix, T = INSTANCE[kernels]
    texts[kernels.source.name] = INSTANCES.sub("", texts[kernels.source.name]) + f"COMPANION_KERNELS({suffix}, {T})\n"
    for old, new in changes.items():
        assert sum(text.count(old) for text in texts.values()) == 1, old
        texts = {name: text.replace(old, new) for name, text in texts.items()}
    for name, text in texts.items():
        (folder / name).write_text(text)
    names = [name for name in kernels.names if name.endswith(f"_{suffix}")]
    return simulator.load(folder / kernels.source.name, names, **options)


def linear_cases() -> Iterator[Case]:
    for sizes in ((35, 13, 34), (3, 40, 5), (520, 6, 3)):
        yield linear_case(*sizes)
    yield Case(*(x.round() for x in linear_case(8, 9, 7)[:3]))  # many inputs at the kink


def conv_cases() -> Iterator[Case]:
    for name in ("3x3", "all at once", "wide padding"):
        yield CONVOLUTIONS[name]()
    yield CONVOLUTIONS["all at once"](per_weight=True, before=True)


def conv3x3_cases() -> Iterator[Case]:
    for name in ("one tile", "uneven padding"):
        z, weight, padding = PICTURES[name]
        yield conv_case(z, weight, dtype=torch.bfloat16, padding=padding, before=name == "one tile")
    yield conv_case((1, 18, 17, 5), (3, 18, 3, 3), dtype=torch.bfloat16, padding=(1, 1))


CASES = {LINEAR: linear_cases, CONV: conv_cases, CONV3X3: conv3x3_cases}


def all_results(kernels: kernel.Kernels) -> list[Tensor]:
    """Values and gradients, and where NaN goes."""
    results = []
    for case in CASES[kernels]():
        g = torch.randn(output_shape(case), generator=torch.Generator().manual_seed(2)).to(case.z)
        nan = case.z.clone()
        nan[0, 0] = math.nan
        broken = case._replace(z=nan)
        if kernels is CONV3X3:  # it has no gradients
            results += [kernel.conv_forward(*case, True), kernel.conv_forward(*broken, True).isnan()]
        else:
            results += [*found(case, g, True), *(x.isnan() for x in found(broken, g, True))]
    return results


@pytest.fixture(scope="module")
def expected() -> dict[kernel.Kernels, list[Tensor]]:
    """All results, threads in their natural order."""
    return {kernels: all_results(kernels) for kernels in CASES}


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(one, other, strict=True))


@needs_simulator
@each_source
def test_nothing_is_read_or_written_out_of_bounds(
    kernels: kernel.Kernels,
    expected: dict[kernel.Kernels, list[Tensor]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = changed(kernels, tmp_path, {}, sanitize=True)
    monkeypatch.setattr(kernels, "_simulator", lambda: module)
    assert same(all_results(kernels), expected[kernels])


@needs_simulator
@pytest.mark.parametrize("order", ["reversed", "shuffled:1"])
@each_source
def test_the_result_does_not_depend_on_the_order_of_threads(
    kernels: kernel.Kernels,
    order: str,
    expected: dict[kernel.Kernels, list[Tensor]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COMPANION_SIMULATOR_ORDER", order)
    assert same(all_results(kernels), expected[kernels])


STEP_BARRIER = "        if (more) (panels.store(stage), ...);\n        __syncthreads();\n"
FAULTS: dict[str, tuple[kernel.Kernels, dict[str, str]]] = {
    "no barrier between steps": (LINEAR, {STEP_BARRIER: STEP_BARRIER.replace("__syncthreads();", "")}),
    "no barrier before the first step": (
        LINEAR,
        {"(panels.store(0), ...);\n    __syncthreads();": "(panels.store(0), ...);"},
    ),
    "a max that loses NaN": (LINEAR, {"at_least(z[r], -b[c])": "fmaxf(z[r], -b[c])"}),
    "the constant sum forgotten": (LINEAR, {"wb_sum = fmaf(": "wb_sum = 0 * fmaf("}),
    "a slope at the kink": (LINEAR, {"return !(z <= minus_b);": "return z >= minus_b;"}),
    "NaN inactive": (LINEAR, {"return !(z <= minus_b);": "return z > minus_b;"}),
    "no mask": (LINEAR, {"if (is_above(z[r][c], -b[c])) sum": "sum"}),
    "dw without its bias": (LINEAR, {"fmaf(b, g_sum, gz_sum)": "gz_sum"}),
    "rows and columns swapped": (LINEAR, {"fmaf(g[r], w[c], sum": "fmaf(g[c], w[r % 4], sum"}),
    "a term too many": (LINEAR, {"x[r] = r < there ?": "x[r] = r <= there ?"}),
    "the other stage": (LINEAR, {"        compute(stage);\n": "        compute(stage ^ 1);\n"}),
    "one part only": (LINEAR, {"part < parts; ++part": "part < 1; ++part"}),
    "samples of all parts": (LINEAR, {"count = N - begin < samples ? N - begin : samples": "count = N - begin"}),
    "zero outside": (CONV, {"before ? 0.0f : __int_as_float(0xff800000)": "0.0f"}),
    "-1 outside": (CONV, {"before ? 0.0f : __int_as_float(0xff800000)": "before ? 0.0f : -1.0f"}),
    "a border row too many": (CONV, {"y < of.height && x >= 0": "y <= of.height && x >= 0"}),
    "no remainder": (CONV, {"of.stride_y.rest(fine_y, y) == 0 &&": ""}),
    "y and x swapped": (CONV, {"return {channel, y * of.dilation_y, x *": "return {channel, x * of.dilation_y, y *"}),
    "one bias for all positions": (CONV, {"return of.per_weight ? k :": "return of.per_weight ? 0 :"}),
    "position 8 forgotten": (CONV3X3, {"if (group == 0) c[o][8]": "if (group == 0) c[o][7]"}),
    "outside counts": (CONV3X3, {"const bool counts = of.before || ": "const bool counts = true || "}),
    "outside never counts": (CONV3X3, {"const bool counts = of.before || ": "const bool counts = "}),
    "no barrier before the shift": (CONV3X3, {"    __syncthreads();\n\n    // shift": "\n    // shift"}),
    "halves of the inputs swapped": (CONV3X3, {"pair_at(b), pair_at(b + 8)": "pair_at(b + 8), pair_at(b)"}),
    "a shift too far": (CONV3X3, {"(y + p / 3) * halo_side + x + p % 3": "(y + p / 3) * halo_side + x + p % 2"}),
    "no constant": (CONV3X3, {"= of_output[group], lower": "= 0 * of_output[group], lower"}),
    "the first group's weights": (CONV, {"return group * of.outputs": "return 0 * group * of.outputs"}),
}


@needs_simulator
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(
    fault: str, expected: dict[kernel.Kernels, list[Tensor]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels, changes = FAULTS[fault]
    module = changed(kernels, tmp_path, changes)
    monkeypatch.setattr(kernels, "_simulator", lambda: module)
    seen = False
    for order in ("natural", "reversed"):
        monkeypatch.setenv("COMPANION_SIMULATOR_ORDER", order)
        try:
            seen |= not same(all_results(kernels), expected[kernels])
        except simulator.SimulatorError:
            seen = True
    assert seen


# --- on a GPU ---


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
class TestOnAGpu:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    @pytest.mark.parametrize("sizes", [(1024, 128, 128), (4096, 515, 1030), (16_384, 64, 10)], ids=str)
    def test_dense_layers_of_real_size(self, sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
        N, m, n = sizes
        case = linear_case(N, m, n, dtype, "cuda")
        g = torch.randn(N, n, device="cuda").to(dtype)
        f, dz, dw, db = found(case, g, False)
        half, smallest = ROUNDING[dtype]
        some = torch.arange(0, N, max(1, N // 64), device="cuda")
        few = case._replace(z=case.z[some])
        for got, want, bound in zip((f[some], dz[some]), exact(few, g[some]), bounds(few, g[some]), strict=False):
            assert ((got - want).abs() <= bound + half * want.abs() + smallest).all()
        rows = torch.arange(0, n, max(1, n // 8), device="cuda")
        few = Case(case.z, case.weight[rows], case.bias[rows])
        for got, want, bound in zip(
            (dw[rows], db[rows]), exact(few, g[:, rows])[2:], bounds(few, g[:, rows])[2:], strict=True
        ):
            assert ((got - want).abs() <= bound + half * want.abs() + smallest).all()

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    @pytest.mark.parametrize(("stride", "size"), [(1, 32), (2, 33)])
    def test_convolutions_of_real_size(self, stride: int, size: int, dtype: torch.dtype) -> None:
        case = conv_case((16, 64, size, size), (48, 64, 3, 3), dtype=dtype, padding=(1, 1), device="cuda")
        assert case.geometry is not None
        assert_right(case._replace(geometry=case.geometry._replace(stride=(stride, stride))), False)

    @pytest.mark.parametrize("kernels", [LINEAR, CONV], ids=["linear", "conv"])
    def test_two_runs_give_the_same_bits_and_those_of_the_simulator_nearly(self, kernels: kernel.Kernels) -> None:
        for case in CASES[kernels]():
            there = Case(*(x.cuda() for x in case[:3]), case.geometry)
            g = torch.randn(output_shape(case), generator=torch.Generator().manual_seed(2))
            first, second = (found(there, g.cuda(), False) for _ in range(2))
            assert same(first, second)
            for got, want in zip(first, found(case, g, True), strict=True):
                torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("check", ["memcheck", "racecheck", "synccheck", "initcheck"])
    def test_compute_sanitizer_finds_nothing(self, check: str) -> None:
        sanitizer = shutil.which("compute-sanitizer")
        if sanitizer is None:
            pytest.skip("needs compute-sanitizer")
        code = (
            "from tests.dac.test_kernel import CASES, found, output_shape, Case; import torch\n"
            "for cases in CASES.values():\n"
            "    for case in cases():\n"
            "        case = Case(*(x.cuda() for x in case[:3]), case.geometry)\n"
            "        found(case, torch.ones(output_shape(case)).to(case.z), False)\n"
        )
        command = [sanitizer, "--tool", check, "--kernel-name", "kernel_substring=dac_", "--error-exitcode", "9"]
        root = Path(__file__).parents[2]
        result = subprocess.run([*command, sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
