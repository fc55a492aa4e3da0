"""Calls of the kernels with more elements than 32 bits count."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from companion.multi_argument import kernel as multi_argument
from tests.cuda.weightless import number, of


def network(x: Tensor, dim: int = -1) -> None:
    weights, biases = [number(64, 2), number(64, 64), number(1, 64)], [number(64), number(64), number(1)]
    y = multi_argument.forward(x, weights, biases, 2, dim, False)
    multi_argument.backward(y, x, weights, biases, 2, dim, True, False)


def form(x: Tensor, dim: int = -1) -> None:
    y = multi_argument.form_forward(x, number(6), dim, False)
    multi_argument.form_backward(y, x, number(6), dim, False)


#: What is planned, and the sizes that the launches are told, among others.
PLANNED: dict[str, tuple[Callable[[], None], set[int]]] = {
    "multi_argument, many units": (lambda: network(of(2**31 + 8, 2)), {2**31 + 8}),
    "multi_argument, large maps": (lambda: network(of(1, 2, 2**31 + 8), 1), {2**31 + 8}),
    "quadratic_form, many units": (lambda: form(of(2**31 + 8, 2)), {2**31 + 8}),
    "quadratic_form, large maps": (lambda: form(of(1, 2, 2**31 + 8), 1), {2**31 + 8}),
}
