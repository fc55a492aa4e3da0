"""Calls of the kernels with more elements than 32 bits count."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from companion.apa import kernel as apa
from tests.cuda.weightless import number, of


def aglu(z: Tensor, parameter: float | Tensor = 1.0) -> None:
    apa.forward(z, parameter, parameter, True, False)
    apa.backward(z, z, parameter, parameter, True, False)


#: What is planned, and the sizes that the launches are told, among others.
PLANNED: dict[str, tuple[Callable[[], None], set[int]]] = {
    "aglu, one row": (lambda: aglu(of(2**31 + 8)), {2**31 + 8}),
    "aglu, many rows": (lambda: aglu(of(2**31, 3, 2), number(1, 3, 1)), {3 * 2**31, 2}),
    "aglu, long columns": (lambda: aglu(of(2**31 + 1, 3), number(1, 3)), {2**31 + 1}),
    "aglu, wide columns": (lambda: aglu(of(2, 2**31 - 1), number(1, 2**31 - 1)), {2**31 - 1}),
}

#: What is refused, and with which words.
REFUSED: dict[str, tuple[Callable[[], None], str]] = {
    "aglu, rows": (lambda: aglu(of(2**33, 2, 2), number(1, 2, 1)), r"got tensors for \(2147483648,\) blocks, allowed"),
    "aglu, columns": (lambda: aglu(of(2, 2**31), number(1, 2**31)), r"aglu_reduce: got tensors for \(2147483648, 2\)"),
}
