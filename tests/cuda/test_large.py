"""More elements, weights, channels and blocks than 32 bits count: planned right, or refused by name, without memory."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from companion import simulator
from companion.apa import kernel as apa
from companion.dac import kernel as dac
from companion.dac.reference import Geometry
from companion.dnrt import kernel as dnrt
from companion.layeract import kernel as layeract
from companion.multi_argument import kernel as multi_argument
from tests.conftest import needs_cubins
from tests.cuda.stand_in import StandIn

pytestmark = needs_cubins

ALL = (True, True, True)
POINT = Geometry((1, 1), (0, 0), (1, 1), 1, False)
#: The smallest square of more than 2^31 weights.
SIDE = 46_341


@pytest.fixture
def gpu_of_paper(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """It writes down what it is asked to launch."""
    return StandIn(monkeypatch, runs=False)


def of(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """A tensor without memory."""
    return torch.empty(shape, dtype=dtype, device="meta")


def number(*shape: int) -> Tensor:
    return of(*shape, dtype=torch.float32)


def aglu(z: Tensor, parameter: float | Tensor = 1.0) -> None:
    apa.forward(z, parameter, parameter, True, False)
    apa.backward(z, z, parameter, parameter, True, False)


def raa(x: Tensor) -> None:
    weight = number(x.shape[1])
    _, offset = dnrt.forward(x, weight, number(1), 0, False)
    dnrt.backward(x, x, weight, offset, 0, False)


def arr(N: int, d: int, K: int = 3) -> None:
    x, target, seen = of(N, d), of(N, dtype=torch.int64), of(K, dtype=torch.bool)
    _, signs = dnrt.arr_forward(x, target, slice(None), number(K, d), seen, None, 0.1, True, False, False)
    dnrt.arr_backward(number(), signs, None, x.dtype, False)


def layer_act(y: Tensor) -> None:
    _, statistics = layeract.forward(y, 1e-5, False, False, False)
    layeract.backward(y, y, statistics, False, False, False)


def dac_linear(N: int, m: int, n: int) -> None:
    z, weight = of(N, m), of(n, m)
    dac.linear_forward(z, weight, weight, False)
    dac.linear_backward(of(N, n), z, weight, weight, ALL, False)


def dac_conv2d(z: Tensor, weight: Tensor, geometry: Geometry = POINT) -> None:
    bias = of(*weight.shape[:2])
    f = dac.conv_forward(z, weight, bias, geometry, False)
    dac.conv_backward(f, z, weight, bias, geometry, ALL, False)


def network(x: Tensor, dim: int = -1) -> None:
    weights, biases = [number(64, 2), number(64, 64), number(1, 64)], [number(64), number(64), number(1)]
    y = multi_argument.forward(x, weights, biases, 2, dim, False)
    multi_argument.backward(y, x, weights, biases, 2, dim, True, False)


def form(x: Tensor, dim: int = -1) -> None:
    y = multi_argument.form_forward(x, number(6), dim, False)
    multi_argument.form_backward(y, x, number(6), dim, False)


#: What is planned, and the sizes that the launches are told, among others.
PLANNED: dict[str, tuple[Callable[[], None], set[int]]] = {
    "aglu, one row": (lambda: aglu(of(2**31 + 8)), {2**31 + 8}),
    "aglu, many rows": (lambda: aglu(of(2**31, 3, 2), number(1, 3, 1)), {3 * 2**31, 2}),
    "aglu, long columns": (lambda: aglu(of(2**31 + 1, 3), number(1, 3)), {2**31 + 1}),
    "aglu, wide columns": (lambda: aglu(of(2, 2**31 - 1), number(1, 2**31 - 1)), {2**31 - 1}),
    "raa, a long vector": (lambda: raa(of(1, 2**31 + 8, 1)), {2**31 + 8}),
    "raa, many vectors": (lambda: raa(of(2**31 + 8, 3, 1)), {2**31 + 8}),
    "raa, large maps": (lambda: raa(of(2, 3, 2**31 + 8)), {2**31 + 8}),
    "arr, many samples": (lambda: arr(2**31 - 1, 5), {2**31 - 1, 5 * (2**31 - 1)}),
    "arr, long responses": (lambda: arr(3, 2**31 + 8), {2**31 + 8, 3 * (2**31 + 8)}),
    "arr, many classes": (lambda: arr(1, 1, 2**31 + 8), {2**31 + 8}),
    "layer_act, a long row": (lambda: layer_act(of(1, 2**31 + 8)), {2**31 + 8}),
    "layer_act, many rows": (lambda: layer_act(of(2**31 + 8, 3)), {2**31 + 8}),
    "dac_linear, many samples": (lambda: dac_linear(2**31 + 8, 3, 5), {2**31 + 8}),
    "dac_linear, many weights": (lambda: dac_linear(4, SIDE, SIDE), {SIDE, SIDE**2}),
    "dac_linear, wide": (lambda: dac_linear(4, 2**24 - 1, 2**13), {2**24 - 1, (2**24 - 1) * 2**13}),
    "dac_conv2d, many elements": (lambda: dac_conv2d(of(4, 2**10, 2**12, 2**12), of(8, 2**10, 1, 1)), {2**12}),
    "dac_conv2d, tensor cores": (
        lambda: dac_conv2d(of(2, 2**10, 2**12, 2**12), of(8, 2**10, 3, 3), POINT._replace(padding=(1, 1))),
        {2**12},
    ),
    "multi_argument, many units": (lambda: network(of(2**31 + 8, 2)), {2**31 + 8}),
    "multi_argument, large maps": (lambda: network(of(1, 2, 2**31 + 8), 1), {2**31 + 8}),
    "quadratic_form, many units": (lambda: form(of(2**31 + 8, 2)), {2**31 + 8}),
    "quadratic_form, large maps": (lambda: form(of(1, 2, 2**31 + 8), 1), {2**31 + 8}),
}


@pytest.mark.parametrize("case", PLANNED)
def test_sizes_beyond_32_bits_are_handed_over_whole(case: str, gpu_of_paper: StandIn) -> None:
    run, sizes = PLANNED[case]
    run()
    # the stand-in has refused what does not fit its parameter, and grids that no GPU takes
    numbers = {int(x) for at in gpu_of_paper.launched for x in at.numbers if isinstance(x, np.integer)}
    assert sizes <= numbers
    assert any("backward" in at.name or "weight" in at.name for at in gpu_of_paper.launched)


#: What is refused, and with which words.
REFUSED: dict[str, tuple[Callable[[], None], str]] = {
    "aglu, rows": (lambda: aglu(of(2**33, 2, 2), number(1, 2, 1)), r"got tensors for \(2147483648,\) blocks, allowed"),
    "aglu, columns": (lambda: aglu(of(2, 2**31), number(1, 2**31)), r"aglu_reduce: got tensors for \(2147483648, 2\)"),
    "raa, channels of maps": (lambda: raa(of(1, 2**31, 2)), "x: got vectors of 2147483648 elements .* fewer than 2"),
    "arr, samples": (lambda: arr(2**31, 1), r"arr_forward_bf16: got tensors for \(2147483648, 1\) blocks"),
    "layer_act, blocks": (lambda: layer_act(of(2**31, 2**15)), r"got tensors for \(2147483648,\) blocks"),
    "dac_linear, inputs": (lambda: dac_linear(1, 2**24, 1), "weight: got 16777216 weights for one output or input"),
    "dac_linear, outputs": (lambda: dac_linear(1, 1, 2**24), "weight: got 16777216 weights for one output or input"),
    "dac_conv2d, positions": (
        lambda: dac_conv2d(of(1, 1, 2**15, 2**15), of(1, 1, 1, 1)),
        "z: got 1073741824 positions in a channel of all samples, in or out, allowed are fewer than 2",
    ),
    "dac_conv2d, a picture for tensor cores": (
        lambda: dac_conv2d(of(1, 1, 1, 2**31), of(1, 1, 3, 3), POINT._replace(padding=(1, 1))),
        "z: got 2147483648 positions",
    ),
    "dac_conv2d, channels": (lambda: dac_conv2d(of(2**20, 2**10, 1, 1), of(1, 2**10, 1, 1)), "got 1073741824 channels"),
    "dac_conv2d, weights": (lambda: dac_conv2d(of(1, 2**15, 1, 1), of(2**15, 2**15, 1, 1)), "weight: got 1073741824"),
    "dac_conv2d, outputs for tensor cores": (
        lambda: dac_conv2d(of(1, 1, 3, 3), of(2**28, 1, 3, 3)),
        f"weight: got {9 * 2**28} weights",
    ),
    "dac_conv2d, stride": (
        lambda: dac_conv2d(of(1, 1, 2, 2), of(1, 1, 1, 1), POINT._replace(stride=(1, 2**31))),
        "stride: got 2147483648 places, allowed are fewer than 2",
    ),
    "dac_conv2d, padding": (
        lambda: dac_conv2d(of(1, 1, 2, 2), of(1, 1, 1, 1), POINT._replace(padding=(2**28, 0), stride=(2**27, 1))),
        "padding: got 268435456 places",
    ),
    "dac_conv2d, dilation": (
        lambda: dac_conv2d(of(1, 1, 2, 2), of(1, 1, 3, 1), POINT._replace(padding=(2**27, 0), dilation=(2**27, 1))),
        "dilation: got 268435456 places from one end",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_too_large_is_refused_by_name(case: str, gpu_of_paper: StandIn) -> None:
    run, words = REFUSED[case]
    with pytest.raises(ValueError, match=words):
        run()
    del gpu_of_paper


# --- in the kernel -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))
def test_sums_of_more_than_2_31_weights_are_left_where_they_belong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StandIn(monkeypatch)
    weights = SIDE**2
    # Room for the sums, and as much before them, where a product of 32 bits would lead: a file of holes.
    half = 2 * weights * 4
    with (tmp_path / "sums").open("w+b") as file:
        file.truncate(2 * half)
        with mmap.mmap(file.fileno(), 2 * half) as memory:
            room = torch.frombuffer(memory, dtype=torch.float32)
            partial = room[2 * weights :]
            g, z = torch.full((1, SIDE), 3.0), torch.full((1, SIDE), 2.0)
            bias = torch.zeros(64 * SIDE)  # one block reads no more
            arguments = [g, z, bias, partial, np.int64(1), np.int32(SIDE), np.int32(SIDE), np.int32(8)]
            dac.LINEAR.launch("dac_linear_weight_wide_f32", (1,), (256,), arguments, torch.device("cuda"))
            tile = torch.arange(64)[:, None] * SIDE + torch.arange(64)
            assert torch.equal(partial[tile], torch.full((64, 64), 6.0))
            assert torch.equal(partial[weights:][tile], torch.full((64, 64), 3.0))
            del room, partial, arguments
