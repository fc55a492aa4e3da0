"""The exercises on DAC's pages: the right answers, and the mistakes that have words of their own."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from companion.dac.layers import DACConv2d
from companion.dac.op import dac_conv2d, dac_linear
from companion.dac.study.constructions import interpolant, replicated
from companion.study.exercises import Exercise

__all__ = ["EXERCISES"]


def _drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# --- page dac ---------------------------------------------------------------------------------------------------------

WEIGHTS, BIASES, AT = (2.0, -3.5, 4.0), (2.0, 0.0, -1.0), 0.5
"""Of the first exercise's unit, and where its slope is asked."""


def _unit(x: Tensor, weights: tuple[float, ...] = WEIGHTS) -> Tensor:
    return replicated(x, x.new_tensor(weights), x.new_tensor(BIASES))


def slope() -> float:
    """The slope of the first exercise's unit, by autograd."""
    x = torch.tensor(AT, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(_unit(x), x)[0].item()


def layers() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """z (N, m), weight and bias (n, m): at first the biases of a sender agree, then they are zero, then anything."""
    for seed, (count, n, m) in enumerate([(3, 2, 4), (5, 4, 3), (4, 3, 5), (2, 5, 6)]):
        z, weight, bias = (_drawn(*shape, seed=10 * seed + k) for k, shape in enumerate([(count, m), (n, m), (n, m)]))
        yield z, weight, (bias[:1].repeat(n, 1) if seed == 0 else 0 * bias if seed == 1 else bias)


def connected(z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A dense DAC layer with ReLU."""
    return dac_linear(z, weight, bias)


def _at_connections(z: Tensor, bias: Tensor) -> Tensor:
    return z[:, None] + bias


def matrices() -> Iterator[tuple[Tensor]]:
    """Weights (n, m) of layers that are rewritten."""
    for seed, shape in enumerate([(2, 3), (4, 5), (3, 2), (5, 4)]):
        yield (_drawn(*shape, seed=40 + seed),)


def behind(weight: Tensor) -> Tensor:
    """The linear layer behind a multi-bias activation that is this DAC layer, read off from what it must compute."""
    n, m = weight.shape
    return torch.diag_embed(weight.mT).permute(1, 2, 0).reshape(n, n * m)


def _by_sender(weight: Tensor) -> Tensor:
    n, m = weight.shape
    return behind(weight).reshape(n, n, m).mT.reshape(n, n * m)


ON_THE_FIRST_PAGE = (
    Exercise(
        "dac-1",
        slope,
        mistakes={
            "That is the slope where all three wires are on; here one of them is off.": lambda: sum(WEIGHTS),
            "That is the value; asked is the slope.": lambda: _unit(torch.tensor(AT, dtype=torch.float64)).item(),
            "That is the wire that is off.": lambda: sum(WEIGHTS) - slope(),
            "That is the first wire alone; look where the second one begins.": lambda: WEIGHTS[0],
            "That is the second wire alone; the first one is on, too.": lambda: WEIGHTS[1],
            "The signs of the weights are lost.": lambda: WEIGHTS[0] - WEIGHTS[1],
            "A wire is on where x + b is above zero, not where x is above b.": lambda: WEIGHTS[1] + WEIGHTS[2],
            "Left of all kinks it would be so.": lambda: 0.0,
        },
    ),
    Exercise(
        "dac-2",
        connected,
        layers,
        mistakes={
            "The ReLU is missing.": lambda z, weight, bias: (weight * _at_connections(z, bias)).sum(-1),
            "The ReLU stands behind the sum; every connection has its own.": (
                lambda z, weight, bias: (weight * _at_connections(z, bias)).sum(-1).relu()
            ),
            "The weight stands inside the ReLU; it multiplies what comes out.": (
                lambda z, weight, bias: (weight * _at_connections(z, bias)).relu().sum(-1)
            ),
            "The bias is added to the weighted signal; it is added to the signal before the weight.": (
                lambda z, weight, bias: (weight * z[:, None] + bias).relu().sum(-1)
            ),
            "All receivers use the biases of the first one.": lambda z, weight, bias: F.linear(
                (z + bias[0]).relu(), weight
            ),
            "The receivers share the mean of their biases.": lambda z, weight, bias: F.linear(
                (z + bias.mean(0)).relu(), weight
            ),
            "The weight is missing.": lambda z, weight, bias: _at_connections(z, bias).relu().sum(-1),
            "That is the usual layer: the ReLU stands behind the sum, with one bias for each receiver.": (
                lambda z, weight, bias: (F.linear(z, weight) + bias.sum(1)).relu()
            ),
            "The ReLU sees the signal without its bias.": (
                lambda z, weight, bias: F.linear(z.relu(), weight) + bias.sum(1)
            ),
            "The bias is subtracted.": lambda z, weight, bias: dac_linear(z, weight, -bias),
            "The biases are missing.": lambda z, weight, bias: F.linear(z.relu(), weight),
            "The connections are averaged; they are added up.": (
                lambda z, weight, bias: (weight * _at_connections(z, bias).relu()).mean(-1)
            ),
        },
    ),
    Exercise(
        "dac-3",
        behind,
        matrices,
        mistakes={
            "The copies lie one after the other, each with all inputs; here the copies of one input lie together.": (
                _by_sender
            ),
            "Every unit listens to all copies; unit i hears copy i alone.": lambda weight: weight.repeat(
                1, len(weight)
            ),
            "Unit i listens to every copy but its own.": (
                lambda weight: weight.repeat(1, len(weight)) - behind(weight)
            ),
            "The copies are in the opposite order: copy i carries the biases of unit i.": (
                lambda weight: behind(weight).reshape(len(weight), len(weight), -1).flip(1).flatten(1)
            ),
            "The right places are found; the weights are those of the layer, not ones.": (
                lambda weight: behind(torch.ones_like(weight))
            ),
        },
    ),
)


# --- page dac-derivation ----------------------------------------------------------------------------------------------

HEIGHT, SLOPE, KINK = 5.0, -2.0, -1.0
"""Of the line that the first exercise asks for: its value at zero, its slope, and where the second hinge begins."""


def first_weight() -> float:
    """Of the two hinges that make that line, one unit apart."""
    weights, _ = interpolant([KINK, KINK + 1], [HEIGHT + SLOPE * KINK, HEIGHT + SLOPE * (KINK + 1)])
    return weights[0].item()


def _second_weight() -> float:
    return SLOPE - first_weight()


def corners() -> Iterator[tuple[float, float, float]]:
    """Values of a unit at (0, 0), (1, 1) and (0, 1), in this order; at first the first two are equal."""
    for seed in range(4):
        p, q, r = _drawn(3, seed=60 + seed).tolist()
        yield p, (p if seed == 0 else q), r


def fourth_corner(p: float, q: float, r: float) -> float:
    """The value at (1, 0) of a sum of a function of x and a function of y, solved for as linear equations."""
    # the unknowns: a(0), a(1), b(0), b(1), with a(0) = 0
    places = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1], [1, 0, 0, 0]], dtype=torch.float64)
    found = torch.linalg.solve(places, torch.tensor([p, q, r, 0.0], dtype=torch.float64))
    return float(found[1] + found[2])


def batches() -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """g (R, n), x (R, m, P), weight (n, m, P), bias (n, m): in the second one some connections are on their kink."""
    for seed, (rows, n, m, places) in enumerate([(4, 2, 3, 5), (5, 3, 2, 4), (3, 4, 5, 2)]):
        shapes = (rows, n), (rows, m, places), (n, m, places), (n, m)
        g, x, weight, bias = (_drawn(*shape, seed=80 + 10 * seed + k) for k, shape in enumerate(shapes))
        if seed == 1:
            x[0], bias[0] = 0.0, 0.0
        yield g, x, weight, bias


def bias_gradient(g: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """By autograd, of a layer whose bias is shared by the places of a kernel."""
    bias = bias.clone().requires_grad_()
    f = torch.einsum("imc,rimc->ri", weight, (x[:, None] + bias[:, :, None]).relu())
    return torch.autograd.grad(f, bias, g)[0]


def _summed(g: Tensor, x: Tensor, weight: Tensor, bias: Tensor, through: str = "ri,imc,rimc->im") -> Tensor:
    on = (x[:, None] + bias[:, :, None] > 0).to(x)
    return torch.einsum(through, g, weight, on)


ON_THE_SECOND_PAGE = (
    Exercise(
        "dac-derivation-1",
        first_weight,
        mistakes={
            "That is the value at zero; the second hinge has begun by then.": lambda: HEIGHT,
            "That is the slope of the line; the first hinge has another one.": lambda: SLOPE,
            "That is the weight of the second hinge.": _second_weight,
            "At x = −1 the line is higher than at zero: it falls.": lambda: HEIGHT + SLOPE,
            "That is the change of slope with the sign turned.": lambda: -_second_weight(),
            "The first hinge has one unit of x to climb, not two.": lambda: first_weight() / 2,
        },
    ),
    Exercise(
        "dac-derivation-2",
        fourth_corner,
        corners,
        mistakes={
            "That is so where the first two are equal to the others on average; add up, and solve for the fourth.": (
                lambda p, q, r: (p + q) / 2
            ),
            "It need not be the same at both high corners.": lambda p, q, r: r,
            "That is a sum of three; the fourth stands on the side of r.": lambda p, q, r: p + q + r,
            "The sign is turned.": lambda p, q, r: r - p - q,
            "That holds with the corners exchanged: (0, 0) and (1, 1) stand on one side.": lambda p, q, r: p - q + r,
            "That holds with the other corners exchanged: (0, 0) and (1, 1) stand on one side.": (
                lambda p, q, r: q - p + r
            ),
            "Values add up here; they are not multiplied.": lambda p, q, r: p * q / r,
        },
    ),
    Exercise(
        "dac-derivation-3",
        bias_gradient,
        batches,
        mistakes={
            "At the kink the slope is 0 here, as PyTorch takes it.": lambda g, x, weight, bias: torch.einsum(
                "ri,imc,rimc->im", g, weight, (x[:, None] + bias[:, :, None] >= 0).to(x)
            ),
            "The mask is missing: only connections that are on pass something.": (
                lambda g, x, weight, bias: torch.einsum("ri,imc->im", g, weight)
            ),
            "The weight is missing.": lambda g, x, weight, bias: _summed(g, x, torch.ones_like(weight), bias),
            "That is the slope by the weights, added up: the activation stands where its slope belongs.": (
                lambda g, x, weight, bias: torch.einsum("ri,rimc->im", g, (x[:, None] + bias[:, :, None]).relu())
            ),
            "The activation stands where its slope belongs.": lambda g, x, weight, bias: torch.einsum(
                "ri,imc,rimc->im", g, weight, (x[:, None] + bias[:, :, None]).relu()
            ),
            "The mask looks at x alone; the bias moves the kink.": lambda g, x, weight, bias: torch.einsum(
                "ri,imc,rmc->im", g, weight, (x > 0).to(x)
            ),
            "The places of the kernel are averaged; they are added up.": (
                lambda g, x, weight, bias: _summed(g, x, weight, bias) / x.shape[-1]
            ),
            "The samples are averaged; they are added up.": (
                lambda g, x, weight, bias: _summed(g, x, weight, bias) / len(g)
            ),
            "That has a gradient for each place; they share a bias, so add up.": (
                lambda g, x, weight, bias: _summed(g, x, weight, bias, "ri,imc,rimc->imc")
            ),
        },
    ),
)


# --- page dac-conversion ----------------------------------------------------------------------------------------------

TWO_PIXELS, BIAS_OF_BOTH = (8.0, -2.0), -1.0
"""What the first exercise pools, and the bias in front of its ReLU."""


def _pooled(bias: float = BIAS_OF_BOTH) -> tuple[float, float]:
    """ReLU and then the average, the average and then ReLU."""
    z = torch.tensor(TWO_PIXELS, dtype=torch.float64) + bias
    return z.relu().mean().item(), z.mean().relu().item()


def fall() -> float:
    """Of an average of two pixels, if ReLU moves behind it."""
    first, behind = _pooled()
    return first - behind


def borders() -> Iterator[tuple[float, float]]:
    """Weight and bias, both above zero."""
    for seed in range(4):
        weight, bias = _drawn(2, seed=150 + seed).abs().tolist()
        yield weight, bias


def at_the_corner(w: float, b: float) -> float:
    """What zeros around z add there to a convolution of 3 × 3, by the package."""
    image, kernel = torch.zeros(1, 1, 4, 4, dtype=torch.float64), torch.full((1, 1, 3, 3), w, dtype=torch.float64)
    bias = torch.full((1, 1), b, dtype=torch.float64)
    before, after = (dac_conv2d(image, kernel, bias, padding=1, pad_order=order) for order in ("before", "after"))
    return (before - after)[0, 0, 0, 0].item()


def two_in_a_row() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """weight (n, m), bias (n, m), c (m,): in the first one all biases are below zero."""
    for seed, (n, m) in enumerate([(2, 3), (3, 4), (4, 2), (1, 5)]):
        weight, bias, c = (_drawn(*shape, seed=160 + 10 * seed + k) for k, shape in enumerate([(n, m), (n, m), (m,)]))
        yield weight, (-bias.abs() if seed == 0 else bias), c


def joined(weight: Tensor, bias: Tensor, c: Tensor) -> Tensor:
    """Biases and constants of the one layer, read off from what the two compute far below and far above all kinks."""
    far = 100.0
    low, high = ((bias + (c + u).relu()).relu() for u in (-far, far))
    return torch.cat([high - low - far, (weight * low).sum(1, keepdim=True)], 1)


def _with(biases: Tensor, constants: Tensor) -> Tensor:
    return torch.cat([biases, constants.sum(1, keepdim=True)], 1)


ON_CONVERSION = (
    Exercise(
        "dac-conversion-1",
        fall,
        mistakes={
            "That comes out with ReLU in front of the pool; asked is by how much it falls.": lambda: _pooled()[0],
            "That comes out with ReLU behind the pool; asked is by how much it falls.": lambda: _pooled()[1],
            "The bias is missing.": lambda: TWO_PIXELS[0] / 2 - sum(TWO_PIXELS) / 2,
            "The bias is subtracted.": lambda: _pooled(-BIAS_OF_BOTH)[0] - _pooled(-BIAS_OF_BOTH)[1],
            "So it is with max pooling.": lambda: 0.0,
        },
    ),
    Exercise(
        "dac-conversion-2",
        at_the_corner,
        borders,
        mistakes={
            "Those are the positions inside.": lambda w, b: 4 * w * b,
            "That is in the middle of an edge; at a corner more of the kernel lies outside.": lambda w, b: 3 * w * b,
            "Those are all positions; only those outside make a difference.": lambda w, b: 9 * w * b,
            "That is one position outside; at a corner there are more.": lambda w, b: w * b,
            "The bias is missing: each position contributes w φ(b).": lambda w, b: 5 * w,
            "The weight is missing: each position contributes w φ(b).": lambda w, b: 5 * b,
        },
    ),
    Exercise(
        "dac-conversion-3",
        joined,
        two_in_a_row,
        mistakes={
            "The constants are missing.": lambda weight, bias, c: _with(c - (-bias).relu(), 0 * weight),
            "Where b is above zero, the kink is the first activation's alone.": (
                lambda weight, bias, c: _with(c + bias, weight * bias.relu())
            ),
            "Only a bias above zero leaves a constant.": (
                lambda weight, bias, c: _with(c - (-bias).relu(), weight * bias)
            ),
            "The constants are weighted, too.": lambda weight, bias, c: _with(c - (-bias).relu(), bias.relu()),
            "The biases of the first activation are missing.": (
                lambda weight, bias, c: _with(-(-bias).relu(), weight * bias.relu())
            ),
            "The sign inside is turned: relu(−b), not relu(b), moves the kink.": (
                lambda weight, bias, c: _with(c - bias.relu(), weight * bias.relu())
            ),
            "A bias below zero moves the kink to the right: relu(−b) is subtracted.": (
                lambda weight, bias, c: _with(c + (-bias).relu(), weight * bias.relu())
            ),
            "The constants come last, behind the biases.": (
                lambda weight, bias, c: joined(weight, bias, c).roll(1, dims=1)
            ),
        },
    ),
)


# --- page dac-kernel --------------------------------------------------------------------------------------------------

INPUTS, OUTPUTS, SIDE = 48, 96, 3
"""Of the convolution whose parameters are counted."""

BATCH, CHANNELS, PIXELS = 64, 512, 14 * 14
"""Of the convolution whose activations are counted."""

MIB = 2**20


def parameters() -> int:
    """Of a DAC convolution, a bias for each pair of channels."""
    return sum(each.numel() for each in DACConv2d(INPUTS, OUTPUTS, SIDE).parameters())


def activations_in_mib() -> float:
    """In bfloat16, one for each image, pair of channels and pixel, all at once."""
    return BATCH * CHANNELS**2 * PIXELS * torch.bfloat16.itemsize / MIB


def pictures() -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """g (n, H, W), z (m, H, W), weight (n, m, 3, 3), bias (n, m)."""
    for seed, (n, m, height, width) in enumerate([(2, 3, 4, 5), (3, 2, 6, 4), (1, 4, 5, 7)]):
        shapes = (n, height, width), (m, height, width), (n, m, 3, 3), (n, m)
        g, z, weight, bias = (_drawn(*shape, seed=120 + 10 * seed + k) for k, shape in enumerate(shapes))
        yield g, z, weight, bias


def input_gradient(g: Tensor, z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """By the package."""
    z = z[None].clone().requires_grad_()
    return torch.autograd.grad(dac_conv2d(z, weight, bias, padding=1), z, g[None])[0][0]


def _terms(g: Tensor, weight: Tensor, flip: bool = False) -> Tensor:
    """t_ij, (n, m, H, W): what reaches the pixels of input j from output i, before the mask."""
    n, m = weight.shape[:2]
    kernel = weight.flip(-1, -2) if flip else weight
    # torch's transposed convolution, each output by itself
    return F.conv_transpose2d(g[None], kernel, padding=1, groups=n).reshape(n, m, *g.shape[1:])


def _mask(z: Tensor, bias: Tensor) -> Tensor:
    return (z + bias[:, :, None, None] > 0).to(z)


ON_THE_THIRD_PAGE = (
    Exercise(
        "dac-kernel-1",
        parameters,
        mistakes={
            "Those are the weights alone.": lambda: INPUTS * OUTPUTS * SIDE**2,
            "That has a bias for each weight; here the nine positions of a pair share one.": (
                lambda: 2 * INPUTS * OUTPUTS * SIDE**2
            ),
            "Those are the biases alone.": lambda: INPUTS * OUTPUTS,
            "That has a bias for each input, as the usual layer.": lambda: INPUTS * OUTPUTS * SIDE**2 + INPUTS,
            "That has a bias for each output; here each pair has one.": lambda: INPUTS * OUTPUTS * SIDE**2 + OUTPUTS,
            "That has a bias for each input and each output, not for each pair.": (
                lambda: INPUTS * OUTPUTS * SIDE**2 + INPUTS + OUTPUTS
            ),
            "That is a dense layer's: the kernel has more than one position.": lambda: 2 * INPUTS * OUTPUTS,
        },
    ),
    Exercise(
        "dac-kernel-2",
        activations_in_mib,
        mistakes={
            "That is float32.": lambda: 2 * activations_in_mib(),
            "That is one byte for each; bfloat16 has more.": lambda: activations_in_mib() / 2,
            "The nine positions of a kernel look at the same activation.": lambda: 9 * activations_in_mib(),
            "That is the input alone: each receiver bends it by itself.": lambda: activations_in_mib() / CHANNELS,
            "That is input and output; each connection has an activation.": lambda: 2 * activations_in_mib() / CHANNELS,
            "That is one image; asked is the batch.": lambda: activations_in_mib() / BATCH,
            "Those are units of a million bytes; a MiB is a little more.": lambda: activations_in_mib() * MIB / 1e6,
            "The pixels are missing.": lambda: activations_in_mib() / PIXELS,
            "Those are GiB.": lambda: activations_in_mib() / 1024,
            "Those are bytes.": lambda: activations_in_mib() * MIB,
        },
    ),
    Exercise(
        "dac-kernel-3",
        input_gradient,
        pictures,
        mistakes={
            "The mask is missing: where z + b is not above 0, nothing passes.": (
                lambda g, z, weight, bias: _terms(g, weight).sum(0)
            ),
            "The mask looks at z alone; each output has its own bias.": (
                lambda g, z, weight, bias: _terms(g, weight).sum(0) * (z > 0)
            ),
            "The kernel is turned round: the pixel q gets what g has at q − p, with p the position.": (
                lambda g, z, weight, bias: (_terms(g, weight, flip=True) * _mask(z, bias)).sum(0)
            ),
            "The mask is turned: it stops what is on.": (
                lambda g, z, weight, bias: (_terms(g, weight) * (1 - _mask(z, bias))).sum(0)
            ),
            "The bias has the wrong sign in the mask.": (
                lambda g, z, weight, bias: (_terms(g, weight) * _mask(z, -bias)).sum(0)
            ),
            "The activation stands where its slope belongs.": lambda g, z, weight, bias: (
                _terms(g, weight) * (z + bias[:, :, None, None]).relu()
            ).sum(0),
            "The outputs are not added up.": lambda g, z, weight, bias: _terms(g, weight) * _mask(z, bias),
        },
    ),
)

EXERCISES = ON_THE_FIRST_PAGE + ON_THE_SECOND_PAGE + ON_CONVERSION + ON_THE_THIRD_PAGE
