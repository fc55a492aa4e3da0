"""dac_linear.cu, dac_conv.cu, dac_conv3x3.cu, dac_conv3x3_backward.cu: machine code, tiles, values, memory accesses."""

from __future__ import annotations

import itertools
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from companion import simulator
from companion.dac import kernel
from companion.dac.kernel import CONV, CONV3X3, CONV3X3_BACKWARD, LINEAR, TILES, parts_of, tiling
from companion.dac.reference import Geometry, output_size
from tests.cases import together
from tests.cuda.machine_code import ARCHITECTURES, Code, machine_code, under_the_locked_compiler
from tests.cuda.sources import changed

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


each_source = pytest.mark.parametrize(
    "kernels", [LINEAR, CONV, CONV3X3, CONV3X3_BACKWARD], ids=["linear", "conv", "conv3x3", "conv3x3_backward"]
)
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


#: Of the inner loop on tensor cores: what makes 1152 terms, how often it is there, instructions for each on sm_90. On a
#: GPU without comparisons of packed bfloat16 there are more.
PRODUCTS = {
    "forward": ({"HMMA.16816.F32": 1, r"HMNMX2.*NAN": 2}, 24, 4.9),
    "input": ({"HMMA.16816.F32": 1, r"HSETP2.*GTU": 2, "FADD": 4}, 12, 8.7),
    "weight": ({"HMMA.16816.F32": 2, r"HSET2.*GTU": 2, "HMUL2": 2}, 16, 7.9),
}


@pytest.mark.parametrize("kernels", [CONV3X3, CONV3X3_BACKWARD], ids=["forward", "backward"])
def test_instructions_for_1152_terms_on_tensor_cores(kernels: kernel.Kernels) -> None:
    under_the_locked_compiler()
    for name, code in machine_code(kernels.source, 90).items():
        expected, times, most = PRODUCTS[name.split("_")[-2]]
        loop = [body for body in loops(code) if any("HMMA" in text for text in body)][-1]
        for pattern, count in expected.items():
            assert sum(re.search(pattern, text) is not None for text in loop) == times * count, (name, pattern)
        assert len(loop) <= most * times, name


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


def test_the_tensor_core_kernels_and_their_binding_have_the_same_constants() -> None:
    def constants(kernels: kernel.Kernels) -> dict[str, int]:
        found = re.findall(r"constexpr int (\w+) = (\d+);", kernels.source.read_text())
        return {name: int(number) for name, number in found}

    there = constants(CONV3X3)
    assert there["warps"] * there["strips"] * there["strip"] == kernel.PIXELS
    assert there["outputs_at_once"] == kernel.OUTPUTS_AT_ONCE
    assert there["warps"] * 32 == kernel.CONV3X3_THREADS
    there = constants(CONV3X3_BACKWARD)
    assert there["warps"] == kernel.WARPS
    assert there["warp_channels"] == kernel.WARP_CHANNELS
    assert there["strips"] * there["strip"] == kernel.WARP_PIXELS
    assert there["buffer_records"] == kernel.RECORDS
    assert there["outputs_at_once"] == kernel.WARP_OUTPUTS
    assert there["staged"] == kernel.STAGED
    assert there["staged"] == 4 * 32 * there["warps"]  # four pixels a thread


def shares_in(source: Path) -> dict[int, int]:
    """Side of a picture → percent of the computed pixels that are its own, as a comment says."""
    text = " ".join(source.read_text().replace("//", "").split())
    found = re.findall(r"(\d+) %(?: are \w+ in pictures)? of (\d+) × (\d+)", text)
    assert all(height == width for _, height, width in found)
    return {int(side): int(percent) for percent, side, _ in found}


def test_the_useful_share_of_pixels_is_what_the_sources_say() -> None:
    forward, backward = shares_in(CONV3X3.source), shares_in(CONV3X3_BACKWARD.source)
    assert list(forward) == list(backward) == [32, 16, 8, 4, 224]
    for side in forward:
        cut = kernel.cut_of((side, side), (side, side), (1, 1))
        share = side**2 / cut.pixels * cut.useful / kernel.PIXELS
        assert round(100 * share) == forward[side]
        assert share >= (0.55 if side == 4 else 0.7)
        flat = kernel.flat_pixels(torch.empty(1, 1, side, side), torch.empty(1, 1, 3, 3), geometry_of(1))
        assert flat is not None
        assert round(100 * side**2 / (flat.rows * flat.pitch)) == backward[side]


#: Of a row that a kernel of three sees, with its pads: where there is an output.
SIZES_AND_PADDINGS = [
    (size, padding)
    for size, padding in itertools.product([1, 2, 3, 4, 8, 31, 32, 33, 100, 1000], [0, 1, 2, 5])
    if size + 2 * padding >= 3
]


@together("size, padding", SIZES_AND_PADDINGS)
def test_nothing_that_an_output_sees_is_another_row_of_its_picture(size: int, padding: int) -> None:
    """A row of places in memory: what is left of an output's place, modulo the pitch, is a pad or seen."""
    out = size + 2 * padding - 2
    cut = kernel.cut_of((3, size), (3, out), (1, padding))
    assert cut.cuts * cut.columns >= out > (cut.cuts - 1) * cut.columns
    assert cut.useful > 0
    flat = kernel.flat_pixels(torch.empty(2, 1, 3, size), torch.empty(1, 1, 3, 3), geometry_of(padding))
    assert (flat is None) == (size == 1000)
    whole = [cut.pitch] if cut.cuts == 1 else []
    for pitch in whole if flat is None else [*whole, flat.pitch]:
        places = [False] * padding + [True] * size + [False] * (pitch - size - padding)  # of a row: pixel or pad
        assert len(places) == pitch
        for x, b in itertools.product(range(out), range(3)):
            expected = padding <= x + b < padding + size
            assert places[(x + b) % pitch] == expected
    if cut.cuts > 1:
        assert cut.pitch == cut.columns + 2


def geometry_of(padding: int) -> Geometry:
    return Geometry((1, 1), (1, padding), (1, 1), 1, False)


@together("channels, pitch", itertools.product([1, 32, 33, 64, 65, 512], [4, 20, 100, 200, 500, 580]))
def test_records_fit_in_shared_memory(channels: int, pitch: int) -> None:
    pixel_warps, at_once = kernel.input_plan(channels, pitch)
    assert kernel.WARPS % pixel_warps == 0
    assert 1 < at_once <= kernel.WARPS
    assert at_once * (pixel_warps * kernel.WARP_PIXELS + 2 * pitch) <= kernel.RECORDS


@together("length, tiles", itertools.product([32, 1024, 1056, 2080, 100_000, 1_000_000], [1, 3, 64, 300]))
def test_parts_hold_every_pixel_once(length: int, tiles: int) -> None:
    parts, part = kernel.pixel_parts(length, tiles)
    assert (parts - 1) * part < length <= parts * part
    assert part % kernel.STAGED == 0
    assert part <= kernel.MOST_PIXELS
    assert parts <= math.ceil(length / kernel.MOST_PIXELS) or parts * tiles < 2 * kernel.ENOUGH_BLOCKS


def test_small_and_slender_results_have_narrow_tiles() -> None:
    assert tiling("forward", 1024, 128).kind == "narrow"
    assert tiling("forward", 2**20, 16).kind == "narrow"
    assert tiling("forward", 2**20, 128).kind == "wide"
    assert tiling("forward", 4096, 4096) == ("wide", 256, 1024)


@together("terms, tiles", itertools.product([1, 7, 8, 255, 257, 10_000, 2**33 + 1], [1, 3, 64, 300]))
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
    return len(case.z), len(case.weight), *output_size(case.z, case.weight, case.geometry)


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
@together("sizes", LINEAR_SIZES)
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


#: Fewer and more inputs than 16, 32, 64 and 128, from which blocks of warps are laid out differently; one output, odd
#: numbers of them, more than are staged at once; several samples in one block of pixels and several blocks in a sample,
#: several parts; every padding; a picture that the forward kernel cuts, and one too wide for the gradients.
PICTURES = {
    "4 × 4": ((3, 5, 4, 4), (3, 5, 3, 3), (1, 1)),
    "8 × 8": ((3, 40, 8, 8), (9, 40, 3, 3), (1, 1)),
    "9 × 7": ((1, 70, 9, 7), (19, 70, 3, 3), (0, 0)),
    "32 × 32": ((3, 18, 32, 32), (5, 18, 3, 3), (1, 1)),
    "40 × 3": ((3, 33, 40, 3), (2, 33, 3, 3), (1, 1)),
    "5 × 130": ((3, 3, 5, 130), (17, 3, 3, 3), (1, 1)),
    "4 × 600": ((1, 2, 4, 600), (3, 2, 3, 3), (1, 1)),
    "uneven padding": ((1, 16, 3, 4), (2, 16, 3, 3), (2, 0)),
    "wide padding": ((3, 130, 3, 4), (4, 130, 3, 3), (3, 3)),
    "one pixel": ((3, 17, 1, 1), (1, 17, 3, 3), (1, 1)),
}
#: The least that has several of everything.
SMALL = ("4 × 4", "9 × 7", "uneven padding")


def picture(name: str, before: bool = False, dtype: torch.dtype = torch.bfloat16, device: str = "cpu") -> Case:
    z, weight, padding = PICTURES[name]
    return conv_case(z, weight, dtype=dtype, padding=padding, before=before, device=device)


each_order = pytest.mark.parametrize("before", [False, True], ids=["after", "before"])


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@each_order
@pytest.mark.parametrize("name", PICTURES)
def test_tensor_cores(name: str, before: bool, dtype: torch.dtype, simulated: bool, device: str) -> None:
    assert_right(picture(name, before, dtype, device), simulated)


@each_order
@together("bad, name", itertools.product([math.nan, math.inf, -math.inf], SMALL))
def test_what_is_not_a_number_goes_where_it_is_seen(
    name: str, bad: float, before: bool, simulated: bool, device: str
) -> None:
    case = picture(name, before, device=device)
    case.z[0, 3, -1, 0] = bad  # at the border, some positions do not see it
    case.z[-1, 1, 1, 2] = bad
    g = random(output_shape(case), dtype=torch.bfloat16, device=device)[0]
    results, want = found(case, g, simulated), exact(case, g)
    for got, right in zip(results, want, strict=True):
        assert torch.equal(got.isnan(), right.isnan())
        finite = right.isfinite()
        assert torch.equal(got[~finite & ~right.isnan()].double(), right[~finite & ~right.isnan()])
        torch.testing.assert_close(got[finite].double(), right[finite], rtol=2**-8, atol=1e-4)
    if math.isnan(bad):
        assert all(want[k].isnan().any() for k in (0, 2))
        assert not want[2].isnan().all()


@pytest.mark.parametrize("bad", [math.nan, math.inf], ids=str)
def test_a_gradient_that_is_not_finite_spoils_its_own_output(bad: float, simulated: bool, device: str) -> None:
    case = picture(SMALL[0], True, device=device)
    g = random(output_shape(case), dtype=torch.bfloat16, device=device)[0]
    want = found(case, g, simulated)
    spoilt = g.clone()
    spoilt[0, 1, 2, 2] = bad
    _, _, dw, db = found(case, spoilt, simulated)
    assert not dw[1].isfinite().all()
    assert not db[1].isfinite().all()
    others = [i for i in range(len(dw)) if i != 1]
    assert same((dw[others], db[others]), (want[2][others], want[3][others]))


@pytest.mark.parametrize("block_outputs", [4, 16])
def test_outputs_are_the_same_however_many_a_block_has(
    block_outputs: int, simulated: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("4 × 4", "8 × 8", "9 × 7"):
        case = picture(name, device=device)
        assert case.geometry is not None
        alone = kernel.conv_forward(*case[:3], case.geometry, simulated)
        with monkeypatch.context() as patched:
            patched.setattr(kernel, "outputs_of_a_block", lambda n, blocks: block_outputs)
            assert torch.equal(kernel.conv_forward(*case[:3], case.geometry, simulated), alone)


def test_blocks_have_more_outputs_where_there_are_enough_of_them() -> None:
    assert kernel.outputs_of_a_block(64, 4) == 2
    assert kernel.outputs_of_a_block(64, 130) == 8
    assert kernel.outputs_of_a_block(64, 100_000) == 16
    for n, blocks in itertools.product((1, 16, 512), (1, 10, 1000)):
        outputs = kernel.outputs_of_a_block(n, blocks)
        assert outputs == 2 or blocks * math.ceil(n / outputs) >= 4 * kernel.ENOUGH_BLOCKS


def test_which_kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[str] = []
    monkeypatch.setattr(kernel.Kernels, "launch", lambda self, name, *rest: launched.append(name))
    for name in PICTURES:
        case = picture(name)
        found(case, torch.ones(output_shape(case)).bfloat16(), True)
        plain = ["dac_conv_input_narrow_bf16", "dac_conv_weight_narrow_bf16"]
        ours = ["dac_conv3x3_backward_input_bf16", "dac_conv3x3_backward_weight_bf16"]
        backward = plain if name == "4 × 600" else ours
        assert launched == ["dac_conv3x3_forward_bf16", *backward, "dac_conv_finish_bf16"]
        launched.clear()


@needs_simulator
def test_pictures_are_cut_and_sums_have_parts() -> None:
    """The cases above have what their names do not say."""
    sizes = {}
    for name, (z, weight, padding) in PICTURES.items():
        case = picture(name)
        out = output_size(case.z, case.weight, case.geometry or Geometry((1, 1), padding, (1, 1), 1, False))
        cut = kernel.cut_of((z[2], z[3]), out, padding)
        flat = kernel.flat_pixels(case.z, case.weight, case.geometry) if case.geometry else None
        sizes[name] = (cut.cuts, cut.blocks(z[0]), kernel.pixel_parts(flat.length, 1)[0] if flat else 0)
        assert weight[2:] == (3, 3)
    assert sizes["5 × 130"][0] > 1
    assert sizes["5 × 130"][2] > 1
    assert sizes["32 × 32"][1] > 2
    assert sizes["32 × 32"][2] > 1
    assert sizes["4 × 4"] == (1, 1, 1)


@pytest.mark.parametrize("name", ["4 × 4", "32 × 32"])
def test_tensor_cores_give_the_same_bits_every_time(name: str, simulated: bool, device: str) -> None:
    case = picture(name, device=device)
    g = random(output_shape(case), dtype=torch.bfloat16, device=device)[0]
    first = found(case, g, simulated)
    assert same(first, found(case, g, simulated))
    order = [2, 0, 1]  # of samples: what belongs to one sample does not depend on its neighbours
    f, dz, _, _ = found(case._replace(z=case.z[order]), g[order], simulated)
    assert torch.equal(f, first[0][order])
    assert torch.equal(dz, first[1][order])


def test_any_strides_on_tensor_cores(simulated: bool, device: str) -> None:
    case = picture("9 × 7", device=device)
    g = random(output_shape(case), dtype=torch.bfloat16, device=device)[0]
    expected = found(case, g, simulated)
    z, weight = (x.to(memory_format=torch.channels_last) for x in case[:2])
    views = Case(z, weight, case.bias.T.contiguous().T, case.geometry)
    results = found(views, g.flip(3).contiguous().flip(3).transpose(0, 1).contiguous().transpose(0, 1), simulated)
    assert same(results, expected)
    assert all(x.is_contiguous() for x in results)
    constant = torch.ones((), dtype=torch.bfloat16, device=device).expand_as(g)
    assert same(found(case, constant, simulated), found(case, constant.contiguous(), simulated))


@each_order
def test_silent_connections_have_gradients_of_exactly_zero(before: bool, simulated: bool, device: str) -> None:
    case = picture("9 × 7", before, device=device)
    case.bias[::2, 1::3] = -20.0
    g = random(output_shape(case), dtype=torch.bfloat16, device=device)[0]
    _, _, dw, db = found(case, g, simulated)
    silent = torch.zeros_like(case.bias, dtype=torch.bool)
    silent[::2, 1::3] = True
    assert torch.equal(dw[silent], torch.zeros_like(dw[silent]))
    assert torch.equal(db[silent], torch.zeros_like(db[silent]))
    assert torch.equal(db != 0, exact(case, g)[3] != 0)
    assert (db != 0).any()
    dz = kernel.conv_backward(g, case.z, case.weight, case.bias - 40, case.geometry, (True, False, False), simulated)[0]  # type: ignore[arg-type]
    assert dz is not None
    assert torch.equal(dz, torch.zeros_like(dz))


@each_order
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_at_the_kink_the_slope_is_zero_on_tensor_cores(
    before: bool, dtype: torch.dtype, simulated: bool, device: str
) -> None:
    case = picture("4 × 4", before, dtype, device)
    case.z[...] = torch.tensor([0.0, -0.0, 1.5, -0.7, 3.0], dtype=dtype, device=device)[:, None, None]
    case.bias[0] = -case.z[0, :, 0, 0]  # b + z = 0, with zeros of both signs
    case.bias[1] = torch.tensor([-0.0, 0.0, -1.5, 0.7, -3.0], dtype=dtype, device=device)
    case.bias[2] = 0.5
    if before:  # pads are 0
        case.bias[:2, 3] = -1.0
    g = random(output_shape(case), dtype=dtype, device=device)[0]
    _, dz, dw, db = found(case, g, simulated)
    for gradient in (dw[:2], db[:2]):
        assert torch.equal(gradient, torch.zeros_like(gradient))
    last = Case(case.z, case.weight[2:], case.bias[2:], case.geometry)
    assert torch.equal(dz, found(last, g[:, 2:].contiguous(), simulated)[1])
    assert dz.any()


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
    assert held.shape == (1, 2, 2, 32, 4, 2)
    for block, lane, register, e in itertools.product(range(2), range(32), range(4), range(2)):
        position = lane // 4 + 8 * (register % 2)
        channel = 16 * block + lane % 4 * 4 + 2 * (register // 2) + e
        for output in range(2):
            there = position < 9 and channel < 20
            want = weight[output, channel].flatten()[position] if there else 0
            assert held[0, block, output, lane, register, e] == want


def test_rows_of_fragments_hold_weights_and_biases() -> None:
    weight, bias = torch.arange(2 * 20 * 9).view(2, 20, 3, 3), -1000 - torch.arange(2 * 20).view(2, 20)
    held = kernel.row_fragments(weight, bias)
    assert held.shape == (2, 2, 32, 4, 2)
    for block, lane, register, e in itertools.product(range(2), range(32), range(4), range(2)):
        channel, y = 16 * block + lane // 4 + 8 * (register % 2), lane % 4
        for output in range(2):
            value = held[output, block, lane, register, e]
            if channel >= 20:
                assert value == 0
            elif (register // 2, e) == (1, 1):
                assert value == -bias[output, channel]
            else:
                x = 2 - 2 * (register // 2) - e
                assert value == (weight[output, channel, y, x] if y < 3 else 0)


@pytest.mark.parametrize("name", ["3x3", "tensor cores"])
def test_only_the_gradients_that_are_needed(name: str, simulated: bool, device: str) -> None:
    case = picture("9 × 7", device=device) if name == "tensor cores" else CONVOLUTIONS[name](device=device)
    g = torch.ones(output_shape(case), device=device).to(case.z)
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


INSTANCE = {
    LINEAR: ("f32", "float"),
    CONV: ("f32", "float"),
    CONV3X3: ("bf16", "__nv_bfloat16"),
    CONV3X3_BACKWARD: ("bf16", "__nv_bfloat16"),
}


def with_changes(kernels: kernel.Kernels, folder: Path, changes: dict[str, str], **options: bool) -> simulator.Module:
    """The kernels of a source for one dtype, with changes."""
    suffix, T = INSTANCE[kernels]
    text = INSTANCES.sub("", kernels.source.read_text()) + f"COMPANION_KERNELS({suffix}, {T})\n"
    names = [name for name in kernels.names if name.endswith(f"_{suffix}")]
    return simulator.load(changed(folder, kernels.source, text, changes), names, **options)


def linear_cases() -> Iterator[Case]:
    for sizes in ((35, 13, 34), (3, 40, 5), (520, 6, 3)):
        yield linear_case(*sizes)
    yield Case(*(x.round() for x in linear_case(8, 9, 7)[:3]))  # many inputs at the kink


def conv_cases() -> Iterator[Case]:
    for name in ("3x3", "all at once", "wide padding"):
        yield CONVOLUTIONS[name]()
    yield CONVOLUTIONS["all at once"](per_weight=True, before=True)


def conv3x3_cases() -> Iterator[Case]:
    for name in ("4 × 4", "uneven padding", "9 × 7", "5 × 130"):
        yield picture(name, before=name == "uneven padding")
    yield conv_case((1, 18, 17, 5), (3, 18, 3, 3), dtype=torch.bfloat16, padding=(1, 1))


def conv3x3_backward_cases() -> Iterator[Case]:
    yield from conv3x3_cases()
    # many inputs at the kink, and all layouts of warps
    for name in ("4 × 4", "8 × 8", "wide padding"):
        case = picture(name)
        yield case._replace(z=case.z.round(), bias=case.bias.round())


CASES = {LINEAR: linear_cases, CONV: conv_cases, CONV3X3: conv3x3_cases, CONV3X3_BACKWARD: conv3x3_backward_cases}


def found_in_small_blocks(case: Case, g: Tensor) -> list[Tensor]:
    """Values and gradients; a block of ``dac_conv3x3.cu`` has four outputs."""
    with mock.patch.object(kernel, "outputs_of_a_block", return_value=4):
        return found(case, g, True)


def all_results(kernels: kernel.Kernels) -> Iterator[Tensor]:
    """Values and gradients, also with NaN in some places; each computed when it is asked for."""
    for case in CASES[kernels]():
        g = torch.randn(output_shape(case), generator=torch.Generator().manual_seed(2)).to(case.z)
        nan = case.z.clone()
        nan.view(-1)[[0, -1]] = math.nan
        broken = case._replace(z=nan)
        some = {CONV3X3: slice(1), CONV3X3_BACKWARD: slice(1, None)}.get(kernels, slice(None))
        yield from found_in_small_blocks(case, g)[some]
        yield from (x.nan_to_num(nan=1e4) for x in found_in_small_blocks(broken, g)[some])


@pytest.fixture(scope="module")
def expected() -> dict[kernel.Kernels, list[Tensor]]:
    """All results, threads in their natural order."""
    return {kernels: list(all_results(kernels)) for kernels in CASES}


def same(one: Iterable[Tensor], other: Iterable[Tensor]) -> bool:
    """Whether all are, bit for bit; what comes after the first that is not is not computed."""
    return all(torch.equal(x, y) for x, y in zip(one, other, strict=True))


@needs_simulator
@each_source
def test_nothing_is_read_or_written_out_of_bounds(
    kernels: kernel.Kernels,
    expected: dict[kernel.Kernels, list[Tensor]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = with_changes(kernels, tmp_path, {}, sanitize=True)
    monkeypatch.setattr(kernels, "_simulator", lambda: module)
    assert same(all_results(kernels), expected[kernels])


@needs_simulator
@pytest.mark.parametrize("order", ["reversed", "shuffled:1", "warps"])
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
    "position 8 forgotten": (CONV3X3, {"store(&c[o][8][q]": "store(&c[o][7][q]"}),
    "outside counts": (CONV3X3, {"inside = of.before ? full_warp :": "inside = true ? full_warp :"}),
    "outside never counts": (CONV3X3, {"inside = of.before ? full_warp :": "inside ="}),
    "another pixel is inside": (CONV3X3, {"inside >> (8 * place + 4)": "inside >> (8 * place)"}),
    "no barrier before the next outputs": (CONV3X3, {"if (o > first_output) __syncthreads();": ""}),
    "a block begins an output late": (
        CONV3X3,
        {"% output_blocks * block_outputs;": "% output_blocks * block_outputs + 1;"},
    ),
    "no barrier before the shift": (CONV3X3, {"    __syncthreads();\n\n    // shift": "\n    // shift"}),
    "halves of the inputs swapped": (CONV3X3, {"packed_max<T>(with.z[s].x,": "packed_max<T>(with.z[s].y,"}),
    "a shift too far": (CONV3X3, {"i + p / 3 * of.pitch.d + p % 3": "i + p / 3 * of.pitch.d + p % 2"}),
    "a pixel too many": (CONV3X3, {"useful = pixels - 2 * of.pitch.d - 2": "useful = pixels - 2 * of.pitch.d - 1"}),
    "a cut not seen": (CONV3X3, {"at.x_in_cut >= of.columns": "at.x_in_cut > of.columns"}),
    "the same inputs twice": (CONV3X3, {"        accumulate<T>(sum, odd);": "        accumulate<T>(sum, even);"}),
    "an odd block too many": (CONV3X3, {"        if (block + 1 == blocks) break;\n": ""}),
    "no constant": (CONV3X3, {"= of_output[group], lower": "= 0 * of_output[group], lower"}),
    "the first group's weights": (CONV, {"return group * of.outputs": "return 0 * group * of.outputs"}),
}

#: Of the gradients on tensor cores: what is replaced by what.
BACKWARD_FAULTS = {
    "dz: a row too far": (
        "(2 - min(place, 2)) * of.pitch",
        "(1 - min(place, 1)) * of.pitch",
    ),
    "dz: no fourth zero": (
        "low, high & 0xffff,",
        "low, high,",
    ),
    "dz: neighbours swapped": (
        "byte_perm(low, high, 0x5432)",
        "byte_perm(low, high, 0x3254)",
    ),
    "dz: the bias of another row": (
        "__byte_perm(four.w, 0, 0x3232)",
        "__byte_perm(four.z, 0, 0x3232)",
    ),
    "dz: a weight for a bias": (
        "__byte_perm(four.z, 0, 0x3232)",
        "__byte_perm(four.z, 0, 0x1010)",
    ),
    "dz: no barrier before the first output": (
        "    stage(0, 0);\n    __syncthreads();",
        "    stage(0, 0);",
    ),
    "dz: no barrier between outputs": (
        "            }\n        }\n        __syncthreads();\n    }",
        "            }\n        }\n    }",
    ),
    "dz: one buffer": (
        "stage(buffer ^ 1, first + at_once)",
        "stage(buffer, first + at_once)",
    ),
    "dz: the last outputs twice": (
        "here = min(at_once, of.outputs - first)",
        "here = at_once",
    ),
    "dz: a pixel outside": (
        "if (x + 1 >= 0 && x + 1 < of.width)",
        "if (x + 1 >= 0 && x < of.width)",
    ),
    "dz: a channel too many": (
        "if (channel >= of.channels) continue;",
        "",
    ),
    "dz: halves of a block swapped": (
        "float* const of_pair = sum[block][s] + 2 * half",
        "float* const of_pair = sum[block][s] + 2 - 2 * half",
    ),
    "dz: NaN inactive": (
        "if (!(to_float(of_z[0]) <= to_float(of_bound[0])))",
        "if (to_float(of_z[0]) > to_float(of_bound[0]))",
    ),
    "dz: a slope at the kink": (
        "if (!(to_float(of_z[1]) <= to_float(of_bound[1])))",
        "if (!(to_float(of_z[1]) < to_float(of_bound[1])))",
    ),
    "dw: position 8 is 7": (
        "make_uint4(four[p].x, four[8].x, four[p].y, four[8].y)",
        "make_uint4(four[p].x, four[7].x, four[p].y, four[7].y)",
    ),
    "dw: an odd shift is even": (
        "middle_of(pair[0], pair[1]), middle_of(pair[1], pair[2])",
        "pair[0], middle_of(pair[1], pair[2])",
    ),
    "dw: a row too far": (
        "from + (2 - y) * of.pitch",
        "from + y * of.pitch",
    ),
    "dw: pixels of a lane swapped": (
        "{eight.x, eight.y}, {eight.z, eight.w}",
        "{eight.x, eight.z}, {eight.y, eight.w}",
    ),
    "dw: no barrier before a chunk": (
        "        __syncthreads();\n        // a thread moves",
        "        // a thread moves",
    ),
    "dw: parts overlap": (
        "end = min(begin + part_length, of.length)",
        "end = of.length",
    ),
    "dw: z not masked": (
        "packed_product<T>(z_pair[k][h], mask[h])",
        "z_pair[k][h]",
    ),
    "dw: the other output's bias": (
        "packed_one_above<T>(z_pair[k][h], minus_b[o][block])",
        "packed_one_above<T>(z_pair[k][h], minus_b[0][block])",
    ),
    "dw: a sum that is taken again counts twice": (
        "fmaf(g_q, with_z",
        "fmaf(2 * g_q, with_z",
    ),
    "dw: NaN of what is no output": (
        "if (!finite || index < 0 || !isnan(*sum)) continue;",
        "continue;",
    ),
    "dw: a border of outputs too many": (
        "if (x >= of.out_width ||",
        "if (x > of.out_width ||",
    ),
}
FAULTS |= {fault: (CONV3X3_BACKWARD, {old: new}) for fault, (old, new) in BACKWARD_FAULTS.items()}


@needs_simulator
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(
    fault: str, expected: dict[kernel.Kernels, list[Tensor]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels, changes = FAULTS[fault]
    module = with_changes(kernels, tmp_path, changes)
    monkeypatch.setattr(kernels, "_simulator", lambda: module)

    def differs(order: str) -> bool:
        monkeypatch.setenv("COMPANION_SIMULATOR_ORDER", order)
        try:
            return not same(all_results(kernels), expected[kernels])
        except simulator.SimulatorError:
            return True

    assert any(map(differs, ("natural", "reversed", "warps")))  # to the first that does


BEHIND_G = "        __syncthreads();\n        const uint4* factor"
TAKEN_AGAIN = "        const int64 pair = index / taps, i"


@needs_simulator
@pytest.mark.parametrize("barrier", [True, False], ids=["as it is", "a barrier less"])
def test_sums_of_finite_numbers_are_not_taken_again(
    barrier: bool, expected: dict[kernel.Kernels, list[Tensor]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a barrier they are NaN here, because memory is NaN before it is written; taken again they are right."""
    changes = {TAKEN_AGAIN: "        __trap();\n" + TAKEN_AGAIN}
    if not barrier:
        changes[BEHIND_G] = BEHIND_G.replace("__syncthreads();", "")
    module = with_changes(CONV3X3_BACKWARD, tmp_path, changes)
    monkeypatch.setattr(CONV3X3_BACKWARD, "_simulator", lambda: module)
    monkeypatch.setenv("COMPANION_SIMULATOR_ORDER", "warps")
    for case in conv3x3_backward_cases():
        g = torch.ones(output_shape(case), dtype=torch.bfloat16)
        if barrier:
            found(case, g, True)
        else:
            with pytest.raises(simulator.SimulatorError, match="trap"):
                found(case, g, True)


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

    @each_source
    def test_two_runs_give_the_same_bits_and_those_of_the_simulator_nearly(self, kernels: kernel.Kernels) -> None:
        for case in CASES[kernels]():
            there = Case(*(x.cuda() for x in case[:3]), case.geometry)
            g = torch.randn(output_shape(case), generator=torch.Generator().manual_seed(2)).to(case.z)
            near = 1e-5 if case.z.dtype == torch.float32 else 2**-7
            first, second = (found(there, g.cuda(), False) for _ in range(2))
            assert same(first, second)
            for got, want in zip(first, found(case, g, True), strict=True):
                torch.testing.assert_close(got.cpu(), want, rtol=near, atol=near)

    @pytest.mark.parametrize("check", ["memcheck", "racecheck", "synccheck"])
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
