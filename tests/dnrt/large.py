"""Calls of the kernels with more elements than 32 bits count."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from companion.dnrt import kernel as dnrt
from tests.cuda.weightless import number, of


def raa(x: Tensor) -> None:
    weight = number(x.shape[1])
    _, offset = dnrt.forward(x, weight, number(1), 0, False)
    dnrt.backward(x, x, weight, offset, 0, False)


def arr(N: int, d: int, K: int = 3) -> None:
    x, target, seen = of(N, d), of(N, dtype=torch.int64), of(K, dtype=torch.bool)
    _, signs = dnrt.arr_forward(x, target, slice(None), number(K, d), seen, None, 0.1, True, False, False)
    dnrt.arr_backward(number(), signs, None, x.dtype, False)


#: What is planned, and the sizes that the launches are told, among others.
PLANNED: dict[str, tuple[Callable[[], None], set[int]]] = {
    "raa, a long vector": (lambda: raa(of(1, 2**31 + 8, 1)), {2**31 + 8}),
    "raa, many vectors": (lambda: raa(of(2**31 + 8, 3, 1)), {2**31 + 8}),
    "raa, large maps": (lambda: raa(of(2, 3, 2**31 + 8)), {2**31 + 8}),
    "arr, many samples": (lambda: arr(2**31 - 1, 5), {2**31 - 1, 5 * (2**31 - 1)}),
    "arr, long responses": (lambda: arr(3, 2**31 + 8), {2**31 + 8, 3 * (2**31 + 8)}),
    "arr, many classes": (lambda: arr(1, 1, 2**31 + 8), {2**31 + 8}),
}

#: What is refused, and with which words.
REFUSED: dict[str, tuple[Callable[[], None], str]] = {
    "raa, channels of maps": (lambda: raa(of(1, 2**31, 2)), "x: got vectors of 2147483648 elements .* fewer than 2"),
    "arr, samples": (lambda: arr(2**31, 1), r"arr_forward_bf16: got tensors for \(2147483648, 1\) blocks"),
}
