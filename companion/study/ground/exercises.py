"""The exercises of the chapter on kernels: the right answers, and the mistakes that have words of their own."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from companion.study.exercises import Exercise

__all__ = ["EXERCISES"]

WARP, SECTOR, FLOAT = 32, 32, 4
"""Lanes of a warp; bytes of a sector; bytes of a number in float32."""

ELEMENTS, BLOCK = 10_000, 256
"""Of the first exercise."""


def idle_threads() -> int:
    """Those of the last block that have no element."""
    return -ELEMENTS % BLOCK


def strides() -> Iterator[tuple[int]]:
    """From one lane's element to the next lane's, in elements."""
    return iter([(1,), (2,), (3,), (8,), (12,), (1000,)])


def used(stride: int, size: int = FLOAT) -> float:
    """The share that a warp's load uses of the bytes that are fetched for it."""
    return WARP * size / (SECTOR * _touched(stride, size))


def _touched(stride: int, size: int = FLOAT) -> int:
    return len({size * stride * lane // SECTOR for lane in range(WARP)})


def rows() -> Iterator[tuple[Tensor]]:
    """y (rows, d) in float32: d from 1 to all that registers hold; around numbers far from 0, and one row over 1000."""
    around = {(3, 40): 0.0, (2, 33): 1000.0, (5, 45): -200.0, (4, 32): 1.0, (2, 31): 0.0, (1, 1): 0.0, (1, 1024): -2e4}
    for seed, (shape, centre) in enumerate(around.items()):
        yield (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) + centre,)
    yield (torch.linspace(0, 1000, 1000).expand(2, -1).clone(),)


def softmax(y: Tensor) -> Tensor:
    """Over each row, rounded once."""
    return torch.softmax(y.double(), -1).to(y)


def _over(y: Tensor, largest: Tensor | float) -> Tensor:
    powers = torch.exp(y - largest)
    return powers / powers.sum(-1, keepdim=True)


def _largest(y: Tensor) -> Tensor:
    return y.amax(-1, keepdim=True)


def _lane_by_lane(y: Tensor) -> Tensor:
    of_lanes = torch.empty_like(y)
    for lane in range(WARP):
        of_lanes[:, lane::WARP] = softmax(y[:, lane::WARP])
    return of_lanes


def _own_maximum(y: Tensor) -> Tensor:
    """Each lane subtracts the largest of its own elements; the sum is over all lanes."""
    powers = torch.empty_like(y)
    for lane in range(min(WARP, y.shape[1])):
        of_lane = y[:, lane::WARP]
        powers[:, lane::WARP] = torch.exp(of_lane - _largest(of_lane))
    return powers / powers.sum(-1, keepdim=True)


def _filled_up(y: Tensor) -> Tensor:
    """With zeros to 1024 elements, as many as the registers hold."""
    return softmax(torch.nn.functional.pad(y, (0, 1024 - y.shape[1])))[:, : y.shape[1]]


EXERCISES = (
    Exercise(
        "kernels-1",
        idle_threads,
        mistakes={
            "So many blocks there are; asked are threads.": lambda: -(-ELEMENTS // BLOCK),
            "So many threads there are in all; most of them have an element.": lambda: -(-ELEMENTS // BLOCK) * BLOCK,
            "So many threads of the last block do have an element; asked are the others.": lambda: ELEMENTS % BLOCK,
            "With one block less, elements would be left without a thread: round up.": lambda: -(ELEMENTS % BLOCK),
            "So it would be if the size of a block divided the number of elements.": lambda: 0,
            "That is a whole block; a block without any element is not launched.": lambda: BLOCK,
        },
    ),
    Exercise(
        "kernels-2",
        used,
        strides,
        mistakes={
            "A lane needs one sector at most: far enough apart, it gets no worse.": lambda stride: 1 / stride,
            "That is the number of sectors; asked is which share of their bytes is used.": _touched,
            "That is the share that nobody uses.": lambda stride: 1 - used(stride),
            "Lanes that are near each other share a sector.": lambda stride: FLOAT / SECTOR,
            "It is upside down: that is fetched for used.": lambda stride: 1 / used(stride),
            "That is for numbers of two bytes; a float has four.": lambda stride: used(stride, 2),
            "That is for numbers of eight bytes; a float has four.": lambda stride: used(stride, 8),
        },
    ),
    Exercise(
        "kernels-3",
        softmax,
        rows,
        mistakes={
            "The largest element is not subtracted: e¹⁰⁰⁰ is infinite in float32.": lambda y: _over(y, 0.0),
            "A lane without an element put a 0 into the maximum; in a row of negative numbers that is the largest.": (
                lambda y: _over(y, _largest(y).clamp_min(0.0))
            ),
            "Lanes without an element have put a zero into the row: it counts in the sum like any number.": (
                _filled_up
            ),
            "Each lane divides by a sum of its own: the sums of the lanes have to meet.": _lane_by_lane,
            "Each lane subtracts a maximum of its own: the maxima of the lanes have to meet, too.": _own_maximum,
            "Each lane subtracts its own maximum, which without an element makes NaN: the maxima have to meet.": (
                lambda y: _own_maximum(y) if y.shape[1] >= WARP else torch.full_like(y, torch.nan)
            ),
            "That is y itself: the kernel still copies.": lambda y: y,
            "That is e to the power y − M; its sum is still to be divided by.": lambda y: torch.exp(y - _largest(y)),
            "That is the softmax's logarithm.": lambda y: torch.log_softmax(y, -1),
            "The sums go down the columns; a row is what lies along the last dimension.": (
                lambda y: torch.softmax(y, 0)
            ),
        },
    ),
)
