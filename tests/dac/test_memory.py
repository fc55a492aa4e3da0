"""What a forward and backward pass holds beyond its operands, measured in a process of its own.

The activations of all samples, outputs, inputs and positions together would be 128 MiB at least in each of these
cases, and 512 MiB in most.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import companion

ROOT = Path(companion.__file__).parents[1]

CODE = """
import ctypes, gc, json, sys, torch
from companion.functional import dac_conv2d, dac_linear

torch.set_num_threads(1)


def kibibytes(what):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(what))


def once(function, *operands):
    f = function(*operands)
    f.sum().backward()
    return f


def twice(function, *operands):
    f = function(*operands)
    gradients = torch.autograd.grad(f.square().sum(), operands, create_graph=True)
    sum(g.square().sum() for g in gradients).backward()
    return f


def measured(call, compiled, dtype, sizes, passes=once):
    function = eval("lambda z, weight, bias: " + call)
    if compiled:
        function = torch.compile(function, fullgraph=True)
    operands = [torch.randn(s).to(getattr(torch, dtype)).requires_grad_() for s in sizes]
    # the compiler, and whatever is loaded at the first call
    few = operands[0] if compiled else operands[0][: max(1, len(operands[0]) // 32)]
    passes(function, few, *operands[1:])
    for x in operands:
        x.grad = None
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the high-water mark begins anew
    before = kibibytes("VmRSS")
    f = passes(function, *operands)
    return (kibibytes("VmHWM") - before) / 1024, sum(x.numel() * x.element_size() for x in [*operands, f]) / 2**20


def materialised(z, weight, bias, phi=torch.relu):  # what must not be held: the test of the test
    return (weight * phi(z[:, None] + bias)).sum(-1)


cases, second = json.load(sys.stdin)
for case in cases:
    print(json.dumps(measured(*case)))
for call in second:
    print(json.dumps(measured(call, False, "float32", ((1024, 128), (128, 128), (128, 128)), twice)))
"""

ROWS = ((8192, 128), (128, 128), (128, 128))
IMAGES = ((32, 32, 64, 64), (32, 32, 3, 3), (32, 32))
IMAGES_PER_WEIGHT = (*IMAGES[:2], IMAGES[1])
FEW_IMAGES = ((8, 32, 64, 64), *IMAGES[1:])

DENSE = "dac_linear(z, weight, bias, {})"
CONV = "dac_conv2d(z, weight, bias, padding=1, activation={})"

#: The call, whether it is compiled, the dtype, the sizes.
CASES = {
    "dense": (DENSE.format("'relu'"), False, "float32", ROWS),
    "dense, bfloat16": (DENSE.format("'relu'"), False, "bfloat16", ROWS),
    "dense, gelu": (DENSE.format("'gelu'"), False, "float32", ROWS),
    "dense, a function": (DENSE.format("torch.tanh"), False, "float32", ROWS),
    "convolution": (CONV.format("'relu'"), False, "float32", IMAGES),
    "convolution, bfloat16": (CONV.format("'relu'"), False, "bfloat16", IMAGES),
    "convolution, silu": (CONV.format("'silu'"), False, "float32", IMAGES),
    "convolution, bias per weight": (CONV.format("'relu'"), False, "float32", IMAGES_PER_WEIGHT),
    "convolution, a function": (CONV.format("torch.tanh"), False, "float32", FEW_IMAGES),
    "dense, compiled": (DENSE.format("'relu'"), True, "float32", ROWS),
    "dense, leaky_relu, compiled": (DENSE.format("'leaky_relu'"), True, "float32", ROWS),
    "dense, identity, compiled": (DENSE.format("'identity'"), True, "float32", ROWS),
    "dense, gelu, compiled": (DENSE.format("'gelu'"), True, "float32", ROWS),
    "convolution, compiled": (CONV.format("'relu'"), True, "float32", IMAGES),
    "convolution, silu, compiled": (CONV.format("'silu'"), True, "float32", IMAGES),
}
CONTROL = ("materialised(z, weight, bias)", False, "float32", ROWS)

#: Second derivatives hold the activations, here and in the formula as it stands.
SECOND = {
    "relu": DENSE.format("'relu'"),
    "relu, as it stands": "materialised(z, weight, bias)",
    "silu": DENSE.format("'silu'"),
    "silu, as it stands": "materialised(z, weight, bias, torch.nn.functional.silu)",
}


@pytest.fixture(scope="module")
def peaks() -> dict[str, tuple[float, float]]:
    """Of every case the peak above the operands, and the size of operands and output, in MiB."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("needs a Linux that counts a process's memory")
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE],
        input=json.dumps([[*CASES.values(), CONTROL], [*SECOND.values()]]),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return dict(zip([*CASES, "control", *SECOND], map(json.loads, result.stdout.splitlines()), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_activations_are_never_held_together(peaks: dict[str, tuple[float, float]], case: str) -> None:
    peak, size = peaks[case]
    assert peak <= 2 * size + 64


@pytest.mark.slow
def test_the_measure_sees_the_activations_where_they_are_held(peaks: dict[str, tuple[float, float]]) -> None:
    assert peaks["control"][0] >= 512


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_second_derivatives_hold_hardly_more_than_those_of_the_formula(
    peaks: dict[str, tuple[float, float]], activation: str
) -> None:
    assert peaks[activation][0] <= 1.6 * peaks[f"{activation}, as it stands"][0]
