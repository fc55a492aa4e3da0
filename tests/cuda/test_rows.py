"""rows.cuh and rows.py: every element has one place, and sums are added in a fixed order."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
import torch
from torch import Tensor

from companion import simulator
from companion.cuda import build
from companion.cuda import rows as plans
from companion.cuda.rows import THREADS, WARPS, Layout, across, layout_of, layout_plan, row_plan
from tests.cases import together

needs_simulator = pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))

HEADER = build.INCLUDE / "rows.cuh"
#: Packs that a thread holds.
PACKS = {"short": 4, "warp": 8, "block": 8, "long": 8}

# --- rows ---


def test_the_header_and_its_plans_have_the_same_constants() -> None:
    constants = dict(re.findall(r"^constexpr int (\w+) = ([1-9]\d*);", HEADER.read_text(), re.MULTILINE))
    for name, value in constants.items():
        assert getattr(plans, name.upper()) == int(value), name
    assert len(constants) == 5


LENGTHS = [
    *(1, 2, 3, 7, 8, 9, 31, 32, 33, 100, 127, 128, 129),
    *(2**n + more for n in range(9, 16) for more in (-1, 0, 1)),
    *(515, 516, 1031, 1032, 2055, 2056, 16_387, 16_388, 32_775, 32_776, 70_001, 802_816, 2**20, 2**24 + 5, 2**33 + 7),
]


@together("rows, length, element_bytes", itertools.product([1, 7, 1000], LENGTHS, [2, 4]))
def test_a_plan_gives_every_element_a_place_and_can_be_launched(rows: int, length: int, element_bytes: int) -> None:
    plan, size = row_plan(rows, length, element_bytes), 16 // element_bytes
    edges = 0 if length % size == 0 else 2 * (size - 1)
    assert plan.blocks < 2**31
    assert plan.threads % 32 == 0
    if plan.kind in ("short", "warp"):
        assert plan.lanes in (1, 2, 4, 8, 16, 32)
        assert plan.lanes * PACKS[plan.kind] >= length // size
        assert plan.lanes >= edges
        rows_of_block = plan.threads // plan.lanes
        assert (plan.blocks - 1) * rows_of_block < rows <= plan.blocks * rows_of_block
    elif plan.kind == "block":
        assert plan.threads * PACKS["block"] >= length // size
        assert plan.threads <= plans.BLOCK_THREADS
        assert plan.threads >= edges
        assert plan.blocks == rows
    else:
        assert (plan.chunks - 1) * plan.chunk < length <= plan.chunks * plan.chunk
        assert plan.blocks == rows * plan.chunks
        # each chunk fits, and begins at the same place in a pack as its row
        assert plan.threads * PACKS["long"] * size >= plan.chunk
        assert plan.chunk % size == 0


@pytest.mark.parametrize("element_bytes", [2, 4])
def test_layouts_change_where_registers_are_full(element_bytes: int) -> None:
    size = 16 // element_bytes
    for packs, kinds in ((128, ("short", "warp")), (256, ("warp", "block")), (4096, ("block", "long"))):
        last = packs * size + size - 1
        assert (row_plan(1, last, element_bytes).kind, row_plan(1, last + 1, element_bytes).kind) == kinds


# --- elements whose parameters are constant along rows, or along columns ---


def a_tensor_of(shape: tuple[int, ...]) -> Tensor:
    """A tensor that takes no memory, however large."""
    return torch.empty(shape, device="meta")


def per_channel(shape: tuple[int, ...], dim: int) -> Tensor:
    return a_tensor_of(tuple(n if d == dim else 1 for d, n in enumerate(shape)))


@together(
    "shape, dim, expected",
    [
        ((8, 3, 5), None, Layout("row", 1, 120, 1)),
        ((8, 3, 5), 1, Layout("row", 24, 5, 3)),
        ((8, 3, 5), 0, Layout("row", 8, 15, 8)),
        ((8, 3, 5), 2, Layout("column", 24, 1, 5)),
        ((8, 3, 1), 1, Layout("column", 8, 1, 3)),
        ((8, 1, 5), 1, Layout("row", 1, 40, 1)),
        ((), None, Layout("row", 1, 1, 1)),
        ((2**20, 2**11, 7, 7), 1, Layout("row", 2**31, 49, 2**11)),
        ((2**31, 4), 1, Layout("column", 2**31, 1, 4)),
    ],
)
def test_layouts(shape: tuple[int, ...], dim: int | None, expected: Layout) -> None:
    z = a_tensor_of(shape)
    parameter = 1.0 if dim is None else per_channel(shape, dim)
    assert layout_of(z, parameter, 1.0) == expected
    assert layout_of(z, 1.0, parameter) == expected


LAYOUTS = [
    *(Layout("row", 1, n, 1) for n in (1, 1023, 1024, 1025, 2**24, 2**24 + 1, 2**31 + 5, 2**34)),
    *(Layout("row", rows, n, 2**6) for rows, n in ((2**6, 49), (2**30, 49), (2**20, 2**14 + 3))),
    *(Layout("column", n, 1, c) for n, c in ((1, 1), (64, 3), (65, 4096), (2**18 + 1, 7), (2**31 + 5, 3), (2**33, 2))),
]


@together("layout", LAYOUTS)
def test_chunks_cover_a_run_once_and_a_grid_is_launchable(layout: Layout) -> None:
    plan = layout_plan(layout)
    run = layout.length if layout.kind == "row" else layout.rows
    assert (plan.chunks - 1) * plan.chunk < run <= plan.chunks * plan.chunk
    assert plan.blocks < 2**31
    if layout.kind == "row":
        assert (plan.blocks - 1) * WARPS < layout.rows * plan.chunks <= plan.blocks * WARPS
        # every chunk begins on the same place in a pack as its row
        assert plan.chunk % 32 == 0
    else:
        assert plan.chunks < 2**16
        assert plan.blocks == across(layout.channels)[0]
    assert all(size.dtype == np.int64 for size in plan.sizes)


@together("channels", [1, 7, 32, 33, 64, 256, 257, 4096, 2**20 + 1])
def test_a_block_has_no_warp_without_a_channel(channels: int) -> None:
    for width in (1, 4, 8):
        blocks, threads = across(channels, width)
        assert threads % 32 == 0
        assert threads <= THREADS
        assert (blocks - 1) * threads * width < channels <= blocks * threads * width
        assert blocks > 1 or (threads - 32) * width < channels


# --- in 64 bits ---

PLACES = """
#include "rows.cuh"

extern "C" __global__ void places(const long long* warps, long long row_length, long long chunk_length,
                                  long long chunks_per_row, long long* found, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const auto chunk = companion::chunk_at(warps[i], row_length, chunk_length, chunks_per_row);
    found[3 * i] = chunk.row;
    found[3 * i + 1] = chunk.start;
    found[3 * i + 2] = chunk.length;
}

__device__ void rows_of_chunk(long long rows, long long rows_per_chunk, long long* found) {
    found[2 * blockIdx.y] = -1;
    companion::for_each_row(rows, rows_per_chunk, [&](long long row) {
        if (found[2 * blockIdx.y] < 0) found[2 * blockIdx.y] = row;
        found[2 * blockIdx.y + 1] = row + 1;
    });
}

extern "C" __global__ void rows(long long rows, long long rows_per_chunk, long long* found) {
    rows_of_chunk(rows, rows_per_chunk, found);
}

extern "C" __global__ void last_rows(long long rows, long long rows_per_chunk, long long* found) {
    if (blockIdx.y == gridDim.y - 1) rows_of_chunk(rows, rows_per_chunk, found);
}

extern "C" __global__ void short_chunks(const long long* blocks, long long row_length, int chunk_length,
                                  long long chunks_per_row, long long* found, int n) {
    const int i = threadIdx.x;
    if (i >= n) return;
    const auto chunk = companion::chunk_at(blocks[i], row_length, chunk_length, chunks_per_row);
    found[3 * i] = chunk.row;
    found[3 * i + 1] = chunk.start;
    found[3 * i + 2] = chunk.length;
}

// How often each element of a row is held, by a group that is one block.
extern "C" __global__ void held(const float* row, int length, int* times) {
    const companion::Spread<float> spread(row, length, threadIdx.x, blockDim.x);
    for (int p = 0; p < 4; ++p) {
        for (int j = 0; j < 4; ++j) {
            if (spread.has_pack(p)) atomicAdd(times + spread.pack_at(p) + j, 1);
        }
    }
    if (spread.has_edge()) atomicAdd(times + spread.edge_at(), 1);
}

extern "C" __global__ void columns(const float* partial, float* total, long long parts, long long columns) {
    companion::reduce_columns(partial, total, parts, columns);
}

extern "C" __global__ void second_stage(const float* partial, float* total, long long outer, long long channels,
                                        long long inner) {
    companion::reduce(partial, total, outer, channels, inner);
}
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> simulator.Module:
    """The functions that compute places and sums, as kernels of their own."""
    source = tmp_path_factory.mktemp("places") / "places.cu"
    source.write_text(PLACES)
    return simulator.load(source, re.findall(r"__global__ void (\w+)", PLACES), include=(build.INCLUDE,))


@needs_simulator
@together("layout", [each for each in LAYOUTS if each.kind == "row"])
def test_a_warp_finds_its_chunk_in_64_bits(places: simulator.Module, layout: Layout) -> None:
    plan = layout_plan(layout)
    total = layout.rows * plan.chunks
    warps = sorted({w for near in (0, total // 2, total) for w in range(near - 20, near + 20) if 0 <= w < total})
    found = torch.zeros(len(warps), 3, dtype=torch.int64)
    sizes = [np.int64(n) for n in (layout.length, plan.chunk, plan.chunks)]
    given = [torch.tensor(warps), *sizes, found, np.int32(len(warps))]
    places.launch("places", (math.ceil(len(warps) / 32),), (32,), given)
    for warp, (row, start, length) in zip(warps, found.tolist(), strict=True):
        assert row == warp // plan.chunks
        assert start == row * layout.length + warp % plan.chunks * plan.chunk
        assert length == min(plan.chunk, layout.length - warp % plan.chunks * plan.chunk)


@needs_simulator
def test_a_thread_finds_its_rows_in_64_bits(places: simulator.Module) -> None:
    found = torch.zeros(3, 2, dtype=torch.int64)
    places.launch("rows", (1, 3), (1,), [np.int64(10), np.int64(4), found])
    assert found.tolist() == [[0, 4], [4, 8], [8, 10]]
    # Chunks of 2^32 rows of which all but the last are skipped: the last has seven.
    places.launch("last_rows", (1, 3), (1,), [np.int64(2**33 + 7), np.int64(2**32), found])
    assert found[2].tolist() == [2**33, 2**33 + 7]


@needs_simulator
@pytest.mark.parametrize(("rows", "length"), [(3, 40_000), (2**20, 802_816), (7, 2**31 + 5), (2, 2**33)])
def test_a_block_finds_its_chunk_in_64_bits(places: simulator.Module, rows: int, length: int) -> None:
    plan = row_plan(rows, length, 2)
    blocks = sorted({b for near in (0, plan.blocks // 2, plan.blocks) for b in range(near - 9, near + 9)})
    blocks = [b for b in blocks if 0 <= b < plan.blocks]
    found = torch.zeros(len(blocks), 3, dtype=torch.int64)
    places.launch("short_chunks", (1,), (64,), [torch.tensor(blocks), *plan.sizes, found, np.int32(len(blocks))])
    for block, (row, start, size) in zip(blocks, found.tolist(), strict=True):
        assert row == block // plan.chunks
        assert start == row * length + block % plan.chunks * plan.chunk
        assert size == min(plan.chunk, length - block % plan.chunks * plan.chunk)


@needs_simulator
def test_every_element_of_a_row_has_one_place(places: simulator.Module) -> None:
    memory = torch.zeros(64)
    for start in range(4):
        for length in (*range(12), 30, 31, 32):
            times = torch.zeros(32, dtype=torch.int32)
            places.launch("held", (1,), (8,), [memory[start:], np.int32(length), times])
            assert times.tolist() == [1] * length + [0] * (32 - length), (start, length)


@needs_simulator
@pytest.mark.parametrize(("outer", "inner"), [(1, 1), (40, 1), (1, 1500), (9, 17)])
def test_the_second_stage_adds_in_double_precision_and_in_a_fixed_order(
    outer: int, inner: int, places: simulator.Module
) -> None:
    channels = 3
    partial = torch.randn(outer, channels, inner, generator=torch.Generator().manual_seed(0)) * 1e4
    partial[0, :, 0] = 1e8  # what is added to it in float32 is lost
    total = torch.zeros(channels)
    sizes = [np.int64(n) for n in (outer, channels, inner)]

    def given() -> list[object]:
        return [partial.clone(), total, *sizes]

    for threads in (32, 160, 1024):
        simulator.check_orders(places, "second_stage", (channels,), (threads,), given)
        torch.testing.assert_close(total, partial.double().sum((0, 2)).float(), rtol=1e-6, atol=0)


@needs_simulator
@pytest.mark.parametrize(("parts", "columns"), [(1, 1), (5, 31), (40, 33), (3, 100)])
def test_columns_are_added_in_double_precision_and_in_a_fixed_order(
    parts: int, columns: int, places: simulator.Module
) -> None:
    partial = torch.randn(parts, columns, generator=torch.Generator().manual_seed(0)) * 1e4
    partial[0] = 1e8  # what is added to it in float32 is lost
    total = torch.zeros(columns)

    def given() -> list[object]:
        return [partial.clone(), total, np.int64(parts), np.int64(columns)]

    for warps in (1, 3, 32):
        simulator.check_orders(places, "columns", (math.ceil(columns / 32),), (32 * warps,), given)
        torch.testing.assert_close(total, partial.double().sum(0).float(), rtol=1e-6, atol=0)
