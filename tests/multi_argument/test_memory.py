"""What a forward and backward pass holds beyond its input."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from companion import MultiArgument, Quadratic
from tests.memory import peak

#: 2¹⁷ units: their hidden layers are 64 MiB, and as much before ReLU.
ROWS, MAPS = ((512, 512), -1), ((4, 64, 32, 32), 1)


def naive(x: Tensor, layer: MultiArgument) -> Tensor:
    """What must not be held: the test of the test."""
    h = x.unflatten(-1, (-1, 2))
    for w, b in zip(layer.weights[:-1], layer.biases[:-1], strict=True):
        h = torch.relu(F.linear(h, w, b))
    return F.linear(h, layer.weights[-1], layer.biases[-1]).squeeze(-1)


def measured(what: str, shape: tuple[int, ...], dim: int) -> tuple[float, float]:
    """What both passes hold at most, and the sizes of output and input together, in MiB."""
    layer = Quadratic(dim=dim) if what == "quadratic" else MultiArgument(dim=dim)
    function = torch.compile(layer, fullgraph=True) if what == "compiled" else layer
    x = torch.randn(shape, requires_grad=True)
    if what == "compiled":
        function(x).sum().backward()  # the compiler's own
        x.grad = None

    def passes() -> None:
        y = naive(x, layer) if what == "naive" else function(x)
        y.backward(y.detach())  # y and its gradient are one tensor, and x's gradient is new

    return peak(passes), 1.5 * 4 * x.numel() / 2**20


@pytest.mark.parametrize(
    ("what", "shape", "dim"),
    [("network", *ROWS), ("network", *MAPS), ("compiled", *ROWS), ("quadratic", *ROWS)],
    ids=["rows", "maps", "compiled", "quadratic"],
)
def test_the_hidden_layers_are_never_held_together(what: str, shape: tuple[int, ...], dim: int) -> None:
    held, needed = measured(what, shape, dim)
    assert held <= needed + 8  # two of its blocks


def test_the_measure_sees_them_where_they_are_held() -> None:
    held, _ = measured("naive", *ROWS)
    assert held >= 128
