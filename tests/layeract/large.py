"""Calls of the kernels with more elements than 32 bits count."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from companion.layeract import kernel as layeract
from tests.cuda.weightless import of


def layer_act(y: Tensor) -> None:
    _, statistics = layeract.forward(y, 1e-5, False, False, False)
    layeract.backward(y, y, statistics, False, False, False)


#: What is planned, and the sizes that the launches are told, among others.
PLANNED: dict[str, tuple[Callable[[], None], set[int]]] = {
    "layer_act, a long row": (lambda: layer_act(of(1, 2**31 + 8)), {2**31 + 8}),
    "layer_act, many rows": (lambda: layer_act(of(2**31 + 8, 3)), {2**31 + 8}),
}

#: What is refused, and with which words.
REFUSED: dict[str, tuple[Callable[[], None], str]] = {
    "layer_act, blocks": (lambda: layer_act(of(2**31, 2**15)), r"got tensors for \(2147483648,\) blocks"),
}
