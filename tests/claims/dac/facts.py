"""What the paper on DAC speaks of: its unit in floats, the layers of its networks, and the rows of its tables."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from statistics import NormalDist, mean
from typing import Any, NamedTuple

from companion.dac.study.experiments import comparisons
from companion.study import results
from companion.study.analysis import Comparison
from tests.claims.form import Run, Verdict, by_severity, effect, enumerated, with_interval

fatal, matters, detail = by_severity("mechanisms/dac")

UNIT, THEOREM, TWO_INPUTS, GRADIENTS, ESTIMATOR = (
    f"mechanisms/dac-derivation#dac-{part}" for part in ("unit", "theorem", "plane", "gradients", "estimator")
)
MOVES, RESIDUAL, RECEIVERS, TWO_ACTIVATIONS = (
    f"mechanisms/dac-conversion#dac-{part}" for part in ("moves", "residual", "receivers", "two-activations")
)
COSTS = "mechanisms/dac-kernel#dac-costs"
"""Where the book derives or counts what a claim is about."""

SIGNIFICANT = 0.05
TWO_SIDED = NormalDist().inv_cdf(1 - SIGNIFICANT / 2)


def printed(place: str, quantity: str) -> str:
    """What the paper says of a quantity in a place."""
    [row] = [row for row in results.published("dac-quoted") if (row["place"], row["quantity"]) == (place, quantity)]
    return row["value"]


def quoted(place: str, quantity: str) -> float:
    return float(printed(place, quantity))


# --- The unit -----------------------------------------------------------------------------------------------


def relu(x: float) -> float:
    return max(0.0, x)


def unit(weights: Sequence[float], biases: Sequence[float], inputs: Sequence[float]) -> float:
    """Eq. 2 with ReLU."""
    return math.fsum(w * relu(b + z) for w, b, z in zip(weights, biases, inputs, strict=True))


def normal(generator: random.Random, count: int) -> list[float]:
    return [generator.gauss(0, 1) for _ in range(count)]


# --- Networks by their layers -------------------------------------------------------------------------------


class Conv(NamedTuple):
    """A convolution of a network: inputs, outputs, side of the kernel, of the input, of the output."""

    m: int
    n: int
    side: int
    image: int
    result: int


RESNETS = {"ResNet20": 3, "ResNet32": 5, "ResNet44": 7, "ResNet56": 9}
VGGS = {"20/16": ((7, 6, 6), 16), "14/32": ((5, 4, 4), 32)}


def resnet(blocks: int, image: int, width: int = 16) -> list[Conv]:
    """The convolutions of a ResNet with 6·blocks + 2 layers; shortcuts have no parameters."""
    convs = [Conv(3, width, 3, image, image)]
    channels = width
    for stage in range(3):
        for block in range(blocks):
            result = image // 2 if stage and not block else image
            wide = width << stage
            convs += [Conv(channels, wide, 3, image, result), Conv(wide, wide, 3, result, result)]
            channels, image = wide, result
    return convs


def vgg(depths: Sequence[int], width: int, image: int, *, strided: bool) -> list[Conv]:
    """The convolutions of the paper's VGG. The paper does not say how maps shrink between its stages: by the stride of
    the next convolution, or by pooling before it."""
    convs: list[Conv] = []
    channels = 3
    for stage, depth in enumerate(depths):
        for layer in range(depth):
            result = image // 2 if stage and not layer else image
            convs.append(Conv(channels, width << stage, 3, image if strided else result, result))
            channels, image = width << stage, result
    return convs


def network_parameters(convs: Sequence[Conv], classes: int, *, dac: bool) -> int:
    """With BN, which has no shift before a DAC (there is none behind the last), and a dense output.

    The first layer stays as it is.
    """
    weights = sum(conv.m * conv.n * conv.side**2 for conv in convs)
    channels = sum(conv.n for conv in convs)
    biases = sum(conv.m * conv.n for conv in convs[1:])
    head = convs[-1].n * classes + classes
    return weights + head + (channels + convs[-1].n + biases if dac else 2 * channels)


def network_flops(convs: Sequence[Conv], classes: int, grid: str, *, skips: bool = False) -> int:
    """Operations of a network with a dense output, BN with two for each element.

    `grid`: "base" is the standard network; "output" and "input" say on which grid a DAC adds its biases. `skips`:
    whether the sums of skip connections count.
    """
    total = 2 * convs[-1].n * classes
    for number, conv in enumerate(convs):
        total += (2 * conv.m * conv.n * conv.side**2 + 2 * conv.n) * conv.result**2
        if skips and number and number % 2 == 0:
            total += conv.n * conv.result**2
        if grid != "base" and number:
            total += conv.m * conv.n * {"output": conv.result, "input": conv.image}[grid] ** 2
    return total


def growth(convs: Sequence[Conv], grid: str = "") -> float:
    """By how many percent a DAC has more parameters than its baseline; with a grid, more operations."""
    if grid:
        return 100 * (network_flops(convs, 10, grid) / network_flops(convs, 10, "base") - 1)
    return 100 * (network_parameters(convs, 10, dac=True) / network_parameters(convs, 10, dac=False) - 1)


def regressor(inputs: int, width: int, depth: int, *, dac: bool) -> int:
    """Parameters of a rectangular network with BN after every layer, and one output."""
    weights = inputs * width + width**2 * (depth - 1)
    return 2 * weights + width * depth + 2 * width + 1 if dac else weights + 2 * width * depth + width + 1


# --- Tables -------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """A row of Table 1 or 2: test errors in percent, and their standard errors."""

    network: str
    version: str
    data: str
    base: float
    dac: float
    base_error: float
    dac_error: float

    @property
    def name(self) -> str:
        return f"{self.network} {self.version} on {self.data}"

    @property
    def gain(self) -> float:
        return self.base - self.dac

    @property
    def p_value(self) -> float:
        """Two-sided, of a normal test with the printed standard errors."""
        return 2 * NormalDist().cdf(-abs(self.gain) / math.hypot(self.base_error, self.dac_error))


def pairs(table: str) -> list[Pair]:
    return [
        Pair(
            *(row[key] for key in ("network", "version", "data")),
            *(float(row[key]) for key in ("base", "dac", "base_error", "dac_error")),
        )
        for row in results.published(table)
    ]


def clearly_better(rows: Sequence[Pair]) -> list[Pair]:
    return [row for row in rows if row.gain > 0 and row.p_value < SIGNIFICANT]


# --- Our runs -----------------------------------------------------------------------------------------------


NAMES = {"dac": "DAC", "shared": "shared biases", "vgg8_8": "plain network", "resnet8_half": "residual network"}
NAMES |= {f"mba{copies}": f"{copies} copies" for copies in (2, 4, 8)}


def named(key: tuple[str, str]) -> str:
    network, unit = (NAMES.get(each, each) for each in key)
    return f"{unit} in the {network}"


def judged(
    run: Run,
    found: Sequence[Comparison[Any]],
    evidence: str,
    *,
    sign: int,
    claimed: float | Sequence[float] | None,
    unit: str,
    scale: float = 1,
    note: str = "",
) -> Verdict:
    """What a run makes of a claim that differences are below (−1) or above (+1) zero, by about so much as claimed, each
    by its own size where there are several; None where the paper has no number. ``evidence`` ends no sentence, nor does
    ``note``, which comes last."""
    sizes = claimed if isinstance(claimed, Sequence) else [claimed] * len(found)
    effects = [effect(each, size, sign=sign, scale=scale) for each, size in zip(found, sizes, strict=True)]
    out = sum(each.outcome == "ruled out" for each in effects)
    excluded = f"; single intervals exclude what is claimed at {out}" if out else ""
    return run.judge_effects(f"{evidence}{excluded}{note}.", effects, unit)


def inside(run: Run, reference: str, *units: str) -> tuple[list[Comparison[Any]], list[str]]:
    """Units against a reference in each network; and whose learning rate was chosen from an edge of the grid: they are
    not compared."""
    edge = run.at_edge("network", "unit")
    every = [each for each in comparisons(run.rows, reference) if each.key[1] in units]
    return [each for each in every if not edge & {each.key, (each.key[0], reference)}], [*map(named, sorted(edge))]


def points(run: Run, found: Sequence[Comparison[Any]]) -> str:
    """How test errors change, and from what level."""
    networks = {each.key[0] for each in found}
    level = mean(row["test_error"] for row in run.rows if row["network"] in networks)
    listed = [f"{with_interval(each.difference, 1, 100)} points with {named(each.key)}" for each in found[:2]]
    more = f" and {len(found) - 2} more" if len(found) > 2 else ""
    errors = f"On CIFAR-10, {found[0].difference.n} seeds, test errors of {100 * level:.0f} %"
    return f"{errors} change by {enumerated(listed)}{more}"


def lower_errors(run: Run, reference: str, *units: str, sign: int, claimed: Mapping[str, float], own: str) -> Verdict:
    """Whether units have test errors below (−1) or above (+1) those of the reference, by so many points as is claimed
    for each network. ``own`` says where the run is: "on CIFAR-10"."""
    found, edge = inside(run, reference, *units)
    if not found:
        return run.beyond_its_grid(
            f"In our small run {own} {enumerated(edge)} did best in tuning at an edge of the grid of learning "
            "rates, so that a better rate may lie beyond it."
        )
    without = f", omitting {enumerated(edge)}, at the learning rates' edge" if edge else ""
    text = f"{points(run, found)}{without}"
    sizes = [claimed[each.key[0]] for each in found]
    return judged(run, found, text, sign=sign, claimed=sizes, unit="points", scale=100)
