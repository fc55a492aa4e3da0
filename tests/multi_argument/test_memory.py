"""What a forward and backward pass holds beyond its operands, measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import companion

ROOT = Path(companion.__file__).parents[1]

CODE = """
import json, resource, sys, torch
from companion import MultiArgument, Quadratic
from torch.nn import functional as F

torch.set_num_threads(1)


def naive(x, layer, dim):  # what must not be held: the test of the test
    h = x.movedim(dim, -1).unflatten(-1, (-1, 2))
    for w, b in zip(layer.weights[:-1], layer.biases[:-1]):
        h = torch.relu(F.linear(h, w, b))
    return F.linear(h, layer.weights[-1], layer.biases[-1]).squeeze(-1).movedim(-1, dim)


def high():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


what, shape, dim = json.load(sys.stdin)
layer = Quadratic(dim=dim) if what == "quadratic" else MultiArgument(dim=dim)
function = (lambda x: naive(x, layer, dim)) if what == "naive" else torch.compile(layer, fullgraph=True) \\
    if what == "compiled" else layer
small = torch.randn([min(n, 16) for n in shape], requires_grad=True)
function(small).sum().backward()
x = torch.randn(shape, requires_grad=True)
before = high()
y = function(x)
y.backward(y.detach())
# x was there before; y and its gradient are one tensor, and x's gradient is new
print(json.dumps([high() - before, 4 * y.numel() / 2**20, 4 * x.numel() / 2**20]))
"""

#: 2²¹ units: their hidden layers are 1 GiB, and as much before ReLU.
ROWS, MAPS = ((2**13, 512), -1), ((16, 64, 64, 64), 1)


def measured(what: str, shape: tuple[int, ...], dim: int) -> tuple[float, float, float]:
    """What the pass added to the high-water mark, and the sizes of output and input, in MiB."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE],
        input=json.dumps([what, shape, dim]),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    peak, output, given = json.loads(result.stdout)
    return peak, output, given


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts memory as Linux does")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "shape", "dim"),
    [("network", *ROWS), ("network", *MAPS), ("compiled", *ROWS), ("quadratic", *ROWS)],
    ids=["rows", "maps", "compiled", "quadratic"],
)
def test_the_hidden_layers_are_never_held_together(what: str, shape: tuple[int, ...], dim: int) -> None:
    peak, output, given = measured(what, shape, dim)
    assert peak <= output + given + 64


@pytest.mark.slow
def test_the_measure_sees_them_where_they_are_held() -> None:
    # 2 GiB where nothing is swapped out; a machine short of memory counts less
    peak, output, given = measured("naive", *ROWS)
    assert peak > 4 * (output + given + 64)
