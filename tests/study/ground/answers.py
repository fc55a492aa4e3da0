"""Right answers to exercises in several forms, and what is said of wrong ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import sympy
import torch
from torch import Tensor, nn

from companion.study.ground.exercises import CHUNK, softmax, used
from tests.study.words import DTYPE


def used_by_bytes(stride: int) -> float:
    fetched = np.unique((4 * stride * np.arange(32)[:, None] + np.arange(4)) // 32)
    return 128 / (32 * len(fetched))


def _over_its_sum(powers: Tensor) -> Tensor:
    return powers / powers.sum(-1, keepdim=True)


def softmax_by_halves(y: Tensor) -> Tensor:
    # each half has a maximum of its own, and is scaled to the larger one
    halves = [each for each in y.chunk(2, -1) if each.shape[-1]]
    largest = [each.amax(-1, keepdim=True) for each in halves]
    of_all = torch.stack(largest).amax(0)
    powers = [torch.exp(each - m) * torch.exp(m - of_all) for each, m in zip(halves, largest, strict=True)]
    return torch.cat(powers, -1) / sum(each.sum(-1, keepdim=True) for each in powers)


RIGHT: dict[str, list[Any]] = {
    "kernels-1": [240, 240.0, 40 * 256 - 10_000],
    "kernels-2": [
        used_by_bytes,
        lambda stride: max(1 / stride, 1 / 8),
        1 / sympy.Min(sympy.Symbol("stride"), 8),
    ],
    "kernels-3": [
        nn.Softmax(dim=-1),
        lambda y: torch.exp(y.double() - torch.logsumexp(y.double(), -1, keepdim=True)).float(),
        softmax_by_halves,
    ],
    "puzzles-1": [lambda x: x + 10, lambda x: x.add(10.0)],
    "puzzles-2": [lambda x, b: x + b[None], torch.add],
    "puzzles-3": [
        lambda x: torch.stack([each.sum() for each in x.split(CHUNK)]),
        lambda x: torch.zeros(-(-len(x) // CHUNK)).index_add(0, torch.arange(len(x)) // CHUNK, x),
    ],
    "puzzles-4": [lambda x: x.cumsum(1), lambda x: x @ torch.ones(32, 32).triu()],
    "puzzles-5": [lambda x: torch.stack([x.mean(1), x.var(1, correction=0)], 1)],
    "puzzles-6": [torch.matmul, lambda a, b: (a[:, :, None] * b).sum(1)],
}

#: Wrong answers, and what is said of each.
WRONG: dict[str, list[tuple[Any, str]]] = {
    "kernels-1": [
        (40, "So many blocks there are; asked are threads."),
        (16, "So many threads of the last block do have an element; asked are the others."),
        (-16, "With one block less, elements would be left without a thread: round up."),
        (241, "It is one too large."),
        (-240, "The sign is wrong."),
    ],
    "kernels-2": [
        (
            lambda stride: 1 / stride,
            "A lane needs one sector at most: far enough apart, it gets no worse.",
        ),
        (lambda stride: 0.125, "Lanes that are near each other share a sector."),
        (
            lambda stride: 4 * min(stride, 8),
            "That is the number of sectors; asked is which share of their bytes is used.",
        ),
        (lambda stride: 2 * used(stride), "It is twice as large as it should be."),
        (
            lambda stride: 1 / stride if stride < 12 else 0.0,
            "It is zero at 2 of the 6 points tried, and right elsewhere.",
        ),
    ],
    "kernels-3": [
        (
            lambda y: _over_its_sum(y.exp()),
            "The largest element is not subtracted: e¹⁰⁰⁰ is infinite in float32.",
        ),
        (
            lambda y: _over_its_sum((y - y.amax(-1, keepdim=True).clamp_min(0)).exp()),
            "A lane without an element put a 0 into the maximum; in a row of negative numbers that is the largest.",
        ),
        (
            lambda y: softmax(y).double(),
            f"{DTYPE} torch.float64; asked is torch.float32, that of the arguments.",
        ),
        (lambda y: softmax(y).sum(-1), "Its shape is (3,); asked is (3, 40)."),
        (
            lambda y: y.softmax(0),
            "The sums go down the columns; a row is what lies along the last dimension.",
        ),
        (lambda y: None, "It returns None: is there a return?"),
        (lambda y: y.clone(), "That is y itself: the kernel still copies."),
        (
            lambda y: _over_its_sum(
                (y - torch.stack([y[:, j % 32 :: 32].amax(-1) for j in range(y.shape[1])], 1)).exp()
            ),
            "Each lane subtracts a maximum of its own: the maxima of the lanes have to meet, too.",
        ),
        (lambda y: _over_its_sum((y - y[:, :1]).exp()), "It is NaN at 1 of the 8 points tried."),
        (
            lambda y: torch.where(torch.arange(y.shape[1]) < 64, softmax(y), math.nan),
            "It is NaN at 2 of the 8 points tried.",
        ),
    ],
}

#: Likely small numbers that have words of their own.
SMALL: dict[str, tuple[float, ...]] = {
    "kernels-1": (-16, 0, 16, 40, 256, 10_240),
}
