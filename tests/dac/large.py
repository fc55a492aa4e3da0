"""Calls of the kernels with more elements than 32 bits count."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from companion.dac import kernel as dac
from companion.dac.reference import Geometry
from tests.cuda.weightless import of

ALL = (True, True, True)
POINT = Geometry((1, 1), (0, 0), (1, 1), 1, False)
#: The smallest square of more than 2^31 weights.
SIDE = 46_341


def dac_linear(N: int, m: int, n: int) -> None:
    z, weight = of(N, m), of(n, m)
    dac.linear_forward(z, weight, weight, False)
    dac.linear_backward(of(N, n), z, weight, weight, ALL, False)


def dac_conv2d(z: Tensor, weight: Tensor, geometry: Geometry = POINT) -> None:
    bias = of(*weight.shape[:2])
    f = dac.conv_forward(z, weight, bias, geometry, False)
    dac.conv_backward(f, z, weight, bias, geometry, ALL, False)


#: What is planned, and the sizes that the launches are told, among others.
PLANNED: dict[str, tuple[Callable[[], None], set[int]]] = {
    "dac_linear, many samples": (lambda: dac_linear(2**31 + 8, 3, 5), {2**31 + 8}),
    "dac_linear, many weights": (lambda: dac_linear(4, SIDE, SIDE), {SIDE, SIDE**2}),
    "dac_linear, wide": (lambda: dac_linear(4, 2**24 - 1, 2**13), {2**24 - 1, (2**24 - 1) * 2**13}),
    "dac_conv2d, many elements": (lambda: dac_conv2d(of(4, 2**10, 2**12, 2**12), of(8, 2**10, 1, 1)), {2**12}),
    "dac_conv2d, tensor cores": (
        lambda: dac_conv2d(of(2, 2**10, 2**12, 2**12), of(8, 2**10, 3, 3), POINT._replace(padding=(1, 1))),
        {2**12},
    ),
}

#: What is refused, and with which words.
REFUSED: dict[str, tuple[Callable[[], None], str]] = {
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
