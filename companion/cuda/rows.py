"""How rows and columns are spread over lanes, blocks and chunks: the plans of the kernels that include ``rows.cuh``.

Plans depend on sizes alone, so that sums are the same on every GPU.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from companion.cuda.scalars import int32, int64

if TYPE_CHECKING:
    import numpy as np

# --- rows of which a sum is needed before their elements are computed ----------------------------------------------

#: Packs of 16 bytes that a thread holds at most: of a short row, of any other row or chunk.
SHORT_PACKS = 4
MOST_PACKS = 8
WARP_THREADS = 128
BLOCK_THREADS = 512
LONG_THREADS = 256


class RowPlan(NamedTuple):
    """How rows are cut.

    ``kind`` "short", "warp": ``lanes`` lanes a row. "block": a block a row. "long": ``chunks`` blocks a row, of
    ``chunk`` elements each but for the last.
    """

    kind: str
    threads: int
    blocks: int
    lanes: int
    chunk: int
    chunks: int
    sizes: tuple[Any, ...]  # as the kernels take them: rows and length, lanes; of long rows length, chunk, chunks


@functools.lru_cache(maxsize=4096)
def row_plan(rows: int, length: int, element_bytes: int) -> RowPlan:
    """The plan for rows of this many elements."""
    pack = 16 // element_bytes
    sizes: tuple[Any, ...]
    packs = max(1, length // pack)  # whole ones, at most
    if packs <= 32 * MOST_PACKS:
        kind, held = ("short", SHORT_PACKS) if packs <= 32 * SHORT_PACKS else ("warp", MOST_PACKS)
        # two lanes at least, where there are two packs: side by side they fill a sector of 32 bytes
        lanes = power_of_two(max(math.ceil(packs / held), min(packs, 2)))
        if length % pack:
            lanes = max(lanes, 2 * pack)  # each holds one of the elements before the first pack and after the last
        sizes = (int64(rows), int32(length), int32(lanes))
        return RowPlan(kind, WARP_THREADS, math.ceil(rows * lanes / WARP_THREADS), lanes, length, 1, sizes)
    if packs <= BLOCK_THREADS * MOST_PACKS:
        threads = round_up(math.ceil(packs / MOST_PACKS), 32)
        sizes = (int64(rows), int32(length))
        return RowPlan("block", threads, rows, 0, length, 1, sizes)
    chunks = math.ceil(length / (LONG_THREADS * MOST_PACKS * pack))
    chunk = round_up(math.ceil(length / chunks), 2 * pack)
    chunks = math.ceil(length / chunk)
    sizes = (int64(length), int32(chunk), int64(chunks))
    return RowPlan("long", LONG_THREADS, rows * chunks, 0, chunk, chunks, sizes)


def round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def power_of_two(n: int) -> int:
    """The smallest that is not below n."""
    return 1 << (n - 1).bit_length()


def aligned(x: Tensor) -> Tensor:
    """The same values, contiguous and from a multiple of 16 bytes on: a copy, if they begin anywhere else."""
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()


# --- elements whose parameters are constant along rows, or along columns -------------------------------------------

THREADS = 256
WARPS = THREADS // 32
#: Elements that one warp takes at least: two packs of 16 bytes for each of its threads, in the widest case.
SHORTEST_CHUNK = 1024
#: Chunks of one row at most: enough to fill the largest GPU several times, few enough to add up quickly.
MOST_CHUNKS = 16384
#: Rows that one thread walks down in the column layout, and chunks of rows at most (the limit of a grid's y is 65535).
ROWS_PER_CHUNK = 64
MOST_ROW_CHUNKS = 4096


class Layout(NamedTuple):
    """How a contiguous tensor lies against its parameters.

    ``kind`` "row": ``rows`` runs of ``length`` elements, run r with the parameters of channel r % channels.
    "column": ``rows`` runs of ``channels`` elements, one per channel.
    """

    kind: str
    rows: int
    length: int
    channels: int


class LayoutPlan(NamedTuple):
    """What a layout asks of a launch, as the kernels take it."""

    chunk: int  # elements (row) or rows (column) per chunk
    chunks: int  # per row (row) or in all (column)
    blocks: int  # along the grid's x (row); in the column layout see `across`
    sizes: tuple[np.int64, ...]


@functools.lru_cache(maxsize=4096)
def layout_plan(layout: Layout) -> LayoutPlan:
    """The plan of a layout."""
    kind, rows, length, channels = layout
    if kind == "row":
        chunk = max(SHORTEST_CHUNK, round_up(math.ceil(length / MOST_CHUNKS), SHORTEST_CHUNK))
        chunks = math.ceil(length / chunk)
        sizes: tuple[int, ...] = (rows, length, channels, chunk, chunks)
        blocks = math.ceil(rows * chunks / WARPS)
    else:
        chunk = max(ROWS_PER_CHUNK, math.ceil(rows / MOST_ROW_CHUNKS))
        chunks = math.ceil(rows / chunk)
        sizes = (rows, channels, chunk)
        blocks, _ = across(channels)
    return LayoutPlan(chunk, chunks, blocks, tuple(int64(size) for size in sizes))


def across(channels: int, width: int = 1) -> tuple[int, int]:
    """The blocks along the grid's x, and their threads, of the column layout, where a thread takes ``width`` channels.

    A warp more than there is work for would do nothing, and hold its place until the block has walked down its rows.
    """
    threads = math.ceil(channels / width)
    block = min(THREADS, round_up(threads, 32))
    return math.ceil(threads / block), block


def layout_of(z: Tensor, *parameters: float | Tensor) -> Layout:
    """The layout of contiguous ``z`` against parameters that broadcast against it."""
    for parameter in parameters:
        if isinstance(parameter, Tensor) and parameter.ndim > 0:
            dim = parameter.shape.index(parameter.numel()) if parameter.numel() != 1 else 0
            channels = parameter.numel()
            if channels == 1:
                continue
            inner = math.prod(z.shape[dim + 1 :])
            outer = math.prod(z.shape[:dim])
            if inner == 1:
                return Layout("column", outer, 1, channels)
            return Layout("row", outer * channels, inner, channels)
    return Layout("row", 1, z.numel(), 1)
