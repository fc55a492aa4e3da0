"""What the paper on DAC claims, judged by computation. Each public function checks one claim.

What our experiments count as clear stood here before the results existed. "Better" means that the mean difference,
paired by seed, has the wanted sign with p < 0.05, by the t-test with Holm's correction over all comparisons of the
claim's family (`companion.dac.experiments.changes`, `comparisons`). A claim about several networks makes a comparison
of each. Fewer than six failed trainings decide nothing. Training finds a construction "often" if it does from half of
the seeds with the better start. What a run then makes of a claim depends on its scale, by the rule in
:mod:`companion.claims`. Where the paper reports numbers and nothing here repeats them, the verdict is about what the
printed numbers say.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

from companion import claims as book
from companion.claims import (
    ROUNDING,
    Run,
    Verdict,
    at_most,
    difference_of_points,
    enumerated,
    graded,
    no_result,
    run_of,
)

if TYPE_CHECKING:
    from companion.dac.experiments import Change, Difference

_SIGNIFICANT = 0.05


def _relu(x: float) -> float:
    return max(0.0, x)


def _unit(weights: Sequence[float], biases: Sequence[float], inputs: Sequence[float]) -> float:
    """Eq. 2 with ReLU."""
    return math.fsum(w * _relu(b + z) for w, b, z in zip(weights, biases, inputs, strict=True))


def _normal(generator: random.Random, count: int) -> list[float]:
    return [generator.gauss(0, 1) for _ in range(count)]


def _quoted(place: str, quantity: str) -> float:
    [row] = [row for row in book.published("dac-quoted") if (row["place"], row["quantity"]) == (place, quantity)]
    return float(row["value"])


def _percent(ratio: float, digits: int = 1) -> str:
    return f"{100 * (ratio - 1):+.{digits}f} %"


# --- Sections 2 and 3: the unit -----------------------------------------------------------------------------


def more_general() -> Verdict:
    """Section 2: standard units are DAC units, and a DAC has almost twice as many parameters."""
    generator = random.Random(0)
    worst = 0.0
    for _ in range(200):
        w, shared, z = (_normal(generator, 5) for _ in range(3))
        activated = [_relu(b + value) for b, value in zip(shared, z, strict=True)]
        standard = math.fsum(a * b for a, b in zip(w, activated, strict=True))
        worst = max(worst, abs(standard - _unit(w, shared, z)))
    ratios = {n: _dense(n, 8, dac=True) / _dense(n, 8, dac=False) for n in (2, 16, 256)}
    return Verdict(
        "holds" if worst < ROUNDING and 1.9 < ratios[256] < 2 else "does not hold",
        f"With equal biases for all outputs it is the standard unit (difference {at_most(worst)} on 200 random ones). "
        f"A dense layer of {enumerated([str(n) for n in ratios])} units has "
        f"{enumerated([f'{ratio:.2f}' for ratio in ratios.values()])} times the parameters.",
    )


def _composed(b: float, c: float, z: float) -> float:
    """A post-activation with the bias c, then a pre-activation with the bias b."""
    return _relu(b + _relu(c + z))


def remark_2_1() -> Verdict:
    """Remark 2.1: with ReLU, post- and pre-activation together are a pre-activation with other coefficients."""
    grid = [k / 4 for k in range(-12, 13)]
    low = max(abs(_composed(b, c, z) - _relu(b + c + z)) for b in grid if b <= 0 for c in grid for z in grid)
    whole = max(abs(_composed(b, c, z) - _relu(b) - _relu(c + z - _relu(-b))) for b in grid for c in grid for z in grid)
    rest = _composed(1.0, 0.0, -1e6)
    return Verdict(
        graded(low < ROUNDING and rest == 0, whole < ROUNDING and low < ROUNDING),
        f"For b ≤ 0 it is relu(b + c + z) (difference {at_most(low)} on a grid). For b > 0 it is b + relu(c + z): far "
        f"on the left it stays {rest:g} for b = 1, and every pre-activation is 0 there. In general it is relu(b) + "
        f"relu(c + z − relu(−b)) (difference {at_most(whole)}). The constant Σ w relu(b) can go into the next layer's "
        "biases, but not behind the last layer, nor at a border with zeros around.",
    )


def mba_parameters() -> Verdict:
    """Section 3: MBA needs K times the parameters and computations."""
    ratios = {}
    for copies, (n, m, side) in itertools.product((2, 4, 8), ((32, 16, 3), (64, 64, 1))):
        standard = _conv_parameters(n, m, side, dac=False)
        wide = n * (copies * m) * side**2 + copies * m
        ratios[copies, n] = wide / standard
    exact = all(ratio == copies for (copies, _), ratio in ratios.items())
    convs = _resnet(3, 32)
    first, *others = (conv.m * conv.n * conv.side**2 for conv in convs)
    channels, classes = sum(conv.n for conv in convs), 100
    base = first + sum(others) + 2 * channels + 64 * classes + classes
    # Of BN the scale stays, and the shift becomes K biases.
    grown = [
        (first + copies * sum(others) + (1 + copies) * channels + copies * 64 * classes + classes) / base
        for copies in (2, 4, 8)
    ]
    return Verdict(
        "holds" if exact else "does not hold",
        "A layer with the biases of its inputs has exactly K times the parameters (checked for "
        f"{len(ratios)} layers). A network has a little less, because the first layer and the scales of BN stay: "
        f"ResNet20 for 100 classes {enumerated([f'{ratio:.2f}' for ratio in grown])} times for K = 2, 4 and 8.",
    )


# --- Section 4: parameters and operations -------------------------------------------------------------------


def _dense(n: int, m: int, *, dac: bool) -> int:
    """Parameters of a dense layer with the biases of its inputs."""
    return m * n + (m * n if dac else m)


def _conv_parameters(n: int, m: int, side: int, *, dac: bool) -> int:
    return m * n * side**2 + (m * n if dac else m)


def _conv_flops(n: int, m: int, side: int, outside: int, inside: int, *, dac: bool) -> int:
    """Operations, as the paper counts them, with so many positions of the output and of the input."""
    return 2 * m * n * side**2 * outside + (m * n if dac else m) * inside


class _Conv(NamedTuple):
    """A convolution of a network: inputs, outputs, side of the kernel, of the input, of the output."""

    m: int
    n: int
    side: int
    image: int
    result: int


def _resnet(blocks: int, image: int, width: int = 16) -> list[_Conv]:
    """The convolutions of a ResNet with 6·blocks + 2 layers; shortcuts have no parameters."""
    convs = [_Conv(3, width, 3, image, image)]
    channels = width
    for stage in range(3):
        for block in range(blocks):
            result = image // 2 if stage and not block else image
            convs += [
                _Conv(channels, width << stage, 3, image, result),
                _Conv(width << stage, width << stage, 3, result, result),
            ]
            channels, image = width << stage, result
    return convs


def _vgg(depths: Sequence[int], width: int, image: int) -> list[_Conv]:
    """The convolutions of the paper's VGG; the first of each stage but the first has stride 2, which is our guess."""
    convs: list[_Conv] = []
    channels = 3
    for stage, depth in enumerate(depths):
        for layer in range(depth):
            result = image // 2 if stage and not layer else image
            convs.append(_Conv(channels, width << stage, 3, image, result))
            channels, image = width << stage, result
    return convs


_GRIDS = ("output", "input")
_RESNETS = {"ResNet20": 3, "ResNet32": 5, "ResNet44": 7, "ResNet56": 9}
_VGGS = {"20/16": ((7, 6, 6), 16), "14/32": ((5, 4, 4), 32)}


def _network_parameters(convs: Sequence[_Conv], classes: int, *, dac: bool) -> int:
    """With BN, which has no shift before a DAC (there is none behind the last), and a dense output.

    The first layer stays as it is.
    """
    weights = sum(conv.m * conv.n * conv.side**2 for conv in convs)
    channels = sum(conv.n for conv in convs)
    biases = sum(conv.m * conv.n for conv in convs[1:])
    head = convs[-1].n * classes + classes
    return weights + head + (channels + convs[-1].n + biases if dac else 2 * channels)


def _network_flops(
    convs: Sequence[_Conv], classes: int, grid: str, *, norm: int = 2, skips: bool = False, first: bool = False
) -> int:
    """Operations of a network with a dense output.

    `grid`: "base" is the standard network; "output", "input" and "padded" say on which grid a DAC adds its biases.
    `norm`: operations of BN per element. `skips`: whether the sums of skip connections count. `first`: whether the
    first layer is a DAC too.
    """
    total = 2 * convs[-1].n * classes
    for number, conv in enumerate(convs):
        total += (2 * conv.m * conv.n * conv.side**2 + norm * conv.n) * conv.result**2
        if skips and number and number % 2 == 0:
            total += conv.n * conv.result**2
        if grid != "base" and (number or first):
            sides = {"output": conv.result, "input": conv.image, "padded": conv.image + conv.side - 1}
            total += conv.m * conv.n * sides[grid] ** 2
    return total


def _growth(convs: Sequence[_Conv], classes: int) -> tuple[float, float, float]:
    """Parameters of the DAC over those of the baseline, and operations with biases on the output's and input's grid."""
    parameters = _network_parameters(convs, classes, dac=True) / _network_parameters(convs, classes, dac=False)
    base = _network_flops(convs, classes, "base")
    output, inside = (_network_flops(convs, classes, grid) / base for grid in _GRIDS)
    return parameters, output, inside


def _grouped(generator: random.Random, inputs: int, outputs: int, groups: int) -> bool:
    """Whether a random DAC with so many inputs, outputs and groups is a standard layer after shared biases."""
    w = [_normal(generator, inputs // groups) for _ in range(outputs)]
    b = [_normal(generator, inputs // groups) for _ in range(outputs)]
    readers: dict[int, list[float]] = {}
    for output in range(outputs):
        group = output // (outputs // groups)
        for place in range(inputs // groups):
            readers.setdefault(group * (inputs // groups) + place, []).append(b[output][place])
    if any(len(biases) > 1 for biases in readers.values()):
        return False
    for _ in range(20):
        z = _normal(generator, inputs)
        shared = [_relu(readers[j][0] + value) for j, value in enumerate(z)]
        for output in range(outputs):
            start = output // (outputs // groups) * (inputs // groups)
            own = _unit(w[output], b[output], z[start : start + inputs // groups])
            standard = math.fsum(a * x for a, x in zip(w[output], shared[start:], strict=False))
            if abs(own - standard) > ROUNDING:
                return False
    return True


def no_effect() -> Verdict:
    """Section 4: with one unit, or depthwise, DAC is a standard connection."""
    generator = random.Random(1)
    one = _grouped(generator, 5, 1, 1)
    depthwise = _grouped(generator, 6, 6, 6)
    two = _grouped(generator, 5, 2, 1)
    return Verdict(
        "holds" if one and depthwise and not two else "does not hold",
        "Every input has one bias only, which a standard layer before can have: equal to 1e-12 on 20 random inputs, "
        "for 5 inputs and 1 unit, and for 6 channels, depthwise. With 2 units some input has 2 biases.",
    )


def _biases(inputs: int, outputs: int, groups: int) -> int:
    return outputs * inputs // groups


def otherwise_more() -> Verdict:
    """Section 4: in all other situations DAC has more parameters and operations."""
    generator = random.Random(2)
    more: list[tuple[int, int, int]] = []
    same: list[tuple[int, int, int]] = []
    for inputs, outputs, groups in ((4, 4, 1), (4, 8, 4), (8, 4, 2), (8, 4, 4), (12, 3, 3)):
        (more if _biases(inputs, outputs, groups) > inputs else same).append((inputs, outputs, groups))
    nothing = [case for case in same if _grouped(generator, *case)]
    return Verdict(
        graded(not same, more),
        f"It has for {len(more)} of {len(more) + len(same)} layers tried. But wherever each group has one output it "
        f"has n m/groups = m biases as before, and is a standard layer, though not depthwise: "
        f"{enumerated([f'{m} channels to {n} in {g} groups' for m, n, g in nothing])}.",
    )


def dense_parameters() -> Verdict:
    """Section 4: a dense DAC has 2 − 1/n times the parameters."""
    exact = {n: _dense(n, 7, dac=True) / _dense(n, 7, dac=False) for n in (1, 2, 10, 100)}
    gaps = {n: abs(ratio - (2 - 1 / n)) for n, ratio in exact.items()}
    return Verdict(
        graded(max(gaps.values()) < ROUNDING, gaps[100] < 0.02),
        f"The ratio is 2 − 2/(n + 1): {enumerated([f'{ratio:.3f}' for ratio in exact.values()])} for n = 1, 2, 10 and "
        f"100, where the paper has {enumerated([f'{2 - 1 / n:.3f}' for n in exact])}. It divides by the weights alone "
        "and leaves out the m biases that the standard layer has. Both go to 2.",
    )


def conv_parameters() -> Verdict:
    """Section 4: a convolutional DAC has 1 + 1/L² − 1/(nL²) times the parameters."""
    exact, gaps = {}, []
    for n, side in itertools.product((1, 2, 16, 64), (1, 3, 5)):
        exact[n, side] = _conv_parameters(n, 7, side, dac=True) / _conv_parameters(n, 7, side, dac=False)
        gaps.append(abs(exact[n, side] - (1 + 1 / side**2 - 1 / (n * side**2))))
    return Verdict(
        graded(max(gaps) < ROUNDING, max(gaps) < 0.2),
        f"The ratio is 1 + (n − 1)/(nL² + 1): for 16 kernels of 3 × 3 {exact[16, 3]:.4f}, where the paper has "
        f"{1 + 1 / 9 - 1 / 144:.4f}; for 2 of 1 × 1 {exact[2, 1]:.3f} and 1.500.",
    )


def three_by_three() -> Verdict:
    """Section 4: 3 × 3 kernels have about 11 % more parameters."""
    said = _quoted("Section 4", "more parameters, 3 × 3 convolution, percent")
    exact = {
        n: 100 * (_conv_parameters(n, n, 3, dac=True) / _conv_parameters(n, n, 3, dac=False) - 1) for n in (16, 64)
    }
    return Verdict(
        "holds" if all(abs(value - said) < 1 for value in exact.values()) else "does not hold",
        f"{exact[16]:.1f} % with 16 kernels and {exact[64]:.1f} % with 64; the paper says {said:g} %.",
    )


def dense_flops() -> Verdict:
    """Section 4: a dense DAC has 1.5 − 1/(2n) times the operations."""
    exact = {n: _conv_flops(n, 7, 1, 1, 1, dac=True) / _conv_flops(n, 7, 1, 1, 1, dac=False) for n in (1, 2, 10, 100)}
    gaps = {n: abs(ratio - (1.5 - 1 / (2 * n))) for n, ratio in exact.items()}
    return Verdict(
        graded(max(gaps.values()) < ROUNDING, gaps[100] < 0.01),
        f"By the paper's own count the ratio is 3n/(2n + 1): {enumerated([f'{r:.3f}' for r in exact.values()])} for "
        f"n = 1, 2, 10 and 100, where it has {enumerated([f'{1.5 - 1 / (2 * n):.3f}' for n in exact])}: the additions "
        "of the standard layer's biases are left out. Both go to 1.5.",
    )


def _looked_at(image: int, side: int, stride: int, padding: int) -> tuple[int, int]:
    """Positions of the output, and positions of the image inside that some of them look at: counted one by one."""
    size = (image + 2 * padding - side) // stride + 1
    rows = {stride * h + a - padding for h in range(size) for a in range(side)}
    return size**2, len([row for row in rows if 0 <= row < image]) ** 2


def cached() -> Verdict:
    """Section 4: with the activations kept, mnst additions of biases are needed for an output of s × t."""
    cases = {
        "3 × 3, padding 1": (32, 3, 1, 1),
        "3 × 3, padding 1, stride 2": (32, 3, 2, 1),
        "3 × 3, no padding": (32, 3, 1, 0),
        "1 × 1, stride 2": (32, 1, 2, 0),
    }
    ratios = {name: needed / out for name, (out, needed) in ((n, _looked_at(*case)) for n, case in cases.items())}
    right = [name for name, ratio in ratios.items() if ratio == 1]
    return Verdict(
        graded(len(right) == len(ratios), right),
        "A pair of channels needs one addition for each position of the input that it looks at; per position of the "
        f"output these are {'; '.join(f'{name}: {ratio:.2f}' for name, ratio in ratios.items())} (32 × 32 pixels). "
        "So it is right where the grids are equal, and four times too low for a 3 × 3 kernel with stride 2. With a "
        "bias per weight nothing can be kept.",
    )


def conv_flops() -> Verdict:
    """Section 4: a convolutional DAC has 1 + (1 − 1/n)/(2L²) times the operations."""
    gaps = []
    for n, side in itertools.product((1, 2, 16, 64), (1, 3, 5)):
        exact = _conv_flops(n, 7, side, 100, 100, dac=True) / _conv_flops(n, 7, side, 100, 100, dac=False)
        gaps.append(abs(exact - 1 - (1 - 1 / n) / (2 * side**2)))
    equal = _conv_flops(32, 32, 3, 100, 100, dac=True) / _conv_flops(32, 32, 3, 100, 100, dac=False)
    strided = _conv_flops(32, 32, 3, 100, 400, dac=True) / _conv_flops(32, 32, 3, 100, 400, dac=False)
    return Verdict(
        graded(max(gaps) < ROUNDING and abs(strided - equal) < ROUNDING, max(gaps) < 0.1),
        f"The ratio is 1 + (n − 1)/(2nL² + 1) on equal grids: {equal:.4f} for 32 kernels of 3 × 3, where the paper has "
        f"{1 + (1 - 1 / 32) / 18:.4f}. With stride 2 the input has four times the positions, and the ratio is "
        f"{strided:.3f}.",
    )


def flops_percent() -> Verdict:
    """Section 4: about 5.5 % more operations for 3 × 3, and 50 % for 1 × 1."""
    said = {side: _quoted("Section 4", f"more operations, {side} × {side} convolution, percent") for side in (3, 1)}
    exact = {
        (side, n): 100 * (_conv_flops(n, n, side, 1, 1, dac=True) / _conv_flops(n, n, side, 1, 1, dac=False) - 1)
        for side in (3, 1)
        for n in (16, 64)
    }
    near = all(abs(exact[side, 64] / value - 1) < 0.1 for side, value in said.items())
    return Verdict(
        "holds" if near else "does not hold",
        f"On equal grids {exact[3, 16]:.1f} % and {exact[3, 64]:.1f} % for 3 × 3 with 16 and 64 kernels (the paper: "
        f"{said[3]:g} %), {exact[1, 16]:.1f} % and {exact[1, 64]:.1f} % for 1 × 1 ({said[1]:g} %).",
    )


def shift_redundant() -> Verdict:
    """Section 4: before a DAC batch normalisation needs no shift."""
    generator = random.Random(3)
    worst = 0.0
    for _ in range(200):
        w, b, beta, z = (_normal(generator, 4) for _ in range(4))
        shifted = [value + shift for value, shift in zip(z, beta, strict=True)]
        moved = [bias + shift for bias, shift in zip(b, beta, strict=True)]
        worst = max(worst, abs(_unit(w, b, shifted) - _unit(w, moved, z)))
    # A 3-wide kernel at the border of a row of zeros, activated after padding.
    inside = _unit([1.0, 1.0], [1.0, 1.0], [2.0, 2.0])
    outside = _relu(1.0 + 0.0) - _relu(0.0 + 0.0)
    return Verdict(
        "holds" if worst < ROUNDING and inside == 6 and outside == 1 else "does not hold",
        f"φ(b + (z + β)) = φ((b + β) + z): difference {at_most(worst)} on 200 random units. The only exception is a "
        f"border of zeros around z that is activated too: there a bias b contributes w relu(b), which is {outside:g} "
        "for a bias 1 and 0 for the bias 0 with the shift 1.",
    )


# --- Section 5: sizes of networks ---------------------------------------------------------------------------


def _sizes(place: str, networks: Mapping[str, Sequence[_Conv]]) -> Verdict:
    parameters, operations = (_quoted(place, f"more {what}, percent") for what in ("parameters", "operations"))
    grown = {name: _growth(convs, 10) for name, convs in networks.items()}
    right = [abs(100 * (each[0] - 1) - parameters) < 0.75 for each in grown.values()]
    by_output = [abs(100 * (each[1] - 1) - operations) < 0.25 for each in grown.values()]
    by_input = [abs(100 * (each[2] - 1) - operations) < 0.25 for each in grown.values()]
    text = "; ".join(
        f"{name}: {_percent(each[0])} parameters, {_percent(each[1])} operations with the biases added on the output's "
        f"grid, {_percent(each[2])} on the input's"
        for name, each in grown.items()
    )
    return Verdict(
        graded(all(right) and all(by_input), all(right) and (all(by_output) or all(by_input))),
        f"{text}. The paper says {parameters:g} % and {operations:g} %.",
    )


def vgg_size() -> Verdict:
    """Section 5: the VGGs with DAC have 11 % more parameters and 5.5 % more operations."""
    # Where the maps shrink is not said; here it is with stride 2 where the width doubles.
    return _sizes("Section 5, VGG", {name: _vgg(*shape, 32) for name, shape in _VGGS.items()})


def wide_size() -> Verdict:
    """Section 5: so has the wide ResNet20."""
    return _sizes("Section 5, wide ResNet20", {"ResNet20, four times as wide": _resnet(3, 32, 64)})


def wide_parameters() -> Verdict:
    """Section 5: a ResNet20 four times as wide has 4.3 million parameters."""
    said = _quoted("Section 5, wide ResNet20", "parameters, millions")
    exact = _network_parameters(_resnet(3, 32, 64), 10, dac=False)
    narrow = _network_parameters(_resnet(3, 32), 10, dac=False)
    return Verdict(
        "holds" if f"{exact / 1e6:.1f}" == f"{said:.1f}" else "does not hold",
        f"{exact:,} with BN and without parameters in the shortcuts, where the ordinary one has {narrow:,}; the paper "
        f"says {said:g} million.",
    )


def _reproduced(printed: Mapping[str, Mapping[str, str]], image: int) -> dict[str, int]:
    """For each grid, how many of the printed numbers the best convention reproduces."""
    best = dict.fromkeys((*_GRIDS, "padded"), 0)
    nets = {name: _resnet(_RESNETS[name], image) for name in printed}

    def same(name: str, column: str, flops: int, cut: bool) -> bool:
        thousandths = flops // 10**6 if cut else round(flops / 10**6)
        return thousandths == round(1000 * float(printed[name][column]))

    for norm, skips, cut in itertools.product(range(4), (False, True), (False, True)):
        base = sum(
            same(name, "base", _network_flops(convs, 10, "base", norm=norm, skips=skips), cut)
            for name, convs in nets.items()
        )
        for grid, own, first in itertools.product(best, range(4), (False, True)):
            dac = sum(
                same(name, "dac", _network_flops(convs, 10, grid, norm=own, skips=skips, first=first), cut)
                for name, convs in nets.items()
            )
            best[grid] = max(best[grid], base + dac)
    return best


def gflops() -> Verdict:
    """Table 2: GFLOPs of ResNet20 and ResNet32, baseline and DAC, at 80 × 80 pixels."""
    image = round(_quoted("Section 5, Imagenette", "image size"))
    printed = {row["network"]: row for row in book.published("dac-table-2-gflops")}
    counted = {
        name: {grid: _network_flops(_resnet(_RESNETS[name], image), 10, grid) / 1e9 for grid in ("base", *_GRIDS)}
        for name in printed
    }
    best = _reproduced(printed, image)
    text = "; ".join(
        f"{name} {row['base']} and {row['dac']}, counted {counted[name]['base']:.4f} and {counted[name]['input']:.4f} "
        f"with the biases added on the input's grid ({counted[name]['output']:.4f} on the output's)"
        for name, row in printed.items()
    )
    steps = [float(row["dac"]) / float(row["base"]) for row in printed.values()]
    numbers = 2 * len(printed)
    return Verdict(
        graded(max(best.values()) == numbers, max(best.values()) > numbers / 2),
        f"Printed: {text}. Of {numbers} numbers the best of 128 ways of counting (BN with 0 to 3 operations an "
        "element, with or without skip connections, with or without a DAC in the first layer, digits rounded or cut "
        f"off) meets {best['input']} with the input's grid, {best['output']} with the output's, {best['padded']} with "
        "the padded input's. So the table does not add the biases on the output's grid, as the text says; its own "
        "numbers mean "
        f"{enumerated([_percent(step) for step in steps])} operations, not 5.5 %.",
    )


def _regressor(inputs: int, width: int, depth: int, *, dac: bool) -> int:
    """Parameters of a rectangular network with BN after every layer, and one output."""
    pairs = [(inputs, width)] + [(width, width)] * (depth - 1)
    weights = sum(m * n for m, n in pairs)
    if dac:
        return 2 * weights + width * depth + 2 * width + 1
    return weights + 2 * width * depth + width + 1


_SGEMM_PLACE = "Section 5, SGEMM"


def sgemm_range() -> Verdict:
    """Section 5: depths from 5 to 16 and widths from 16 to 250 give 1700 to 1.4 million parameters."""
    inputs, *limits, fewest, most = (
        _quoted(_SGEMM_PLACE, quantity)
        for quantity in (
            *("inputs", "fewest layers", "narrowest layer", "most layers", "widest layer"),
            *("fewest parameters", "most parameters"),
        )
    )
    shallow, narrow, deep, wide = map(round, limits)
    smallest = _regressor(round(inputs), narrow, shallow, dac=False)
    largest = {dac: _regressor(round(inputs), wide, deep, dac=dac) for dac in (False, True)}
    return Verdict(
        graded(smallest <= fewest and most <= largest[False], smallest <= fewest and most <= largest[True]),
        f"The smallest baseline has {smallest:,} (printed: {fewest:,.0f}) and the largest, with {wide} units in each "
        f"of {deep} layers, {largest[False]:,}: no baseline of these widths has {most:,.0f}. A DAC of that size would "
        f"have {largest[True]:,}, so the upper end belongs to DACs that are no partners of a baseline.",
    )


def sgemm_width() -> Verdict:
    """Section 5: DACs with 141 units have as many parameters as baselines with 200."""
    inputs, actual, equivalent = (
        round(_quoted(_SGEMM_PLACE, quantity)) for quantity in ("inputs", "actual width", "equivalent width")
    )
    depths = range(round(_quoted(_SGEMM_PLACE, "fewest layers")), round(_quoted(_SGEMM_PLACE, "most layers")) + 1)
    gaps = [
        _regressor(inputs, actual, depth, dac=True) / _regressor(inputs, equivalent, depth, dac=False) - 1
        for depth in depths
    ]
    small = [
        _regressor(inputs, round(width / math.sqrt(2)), 5, dac=True) / _regressor(inputs, width, 5, dac=False) - 1
        for width in (25, 50, 100)
    ]
    return Verdict(
        "holds" if max(map(abs, gaps)) < 0.02 else "does not hold",
        f"They have {100 * min(gaps):+.1f} to {100 * max(gaps):+.1f} % more, for {min(depths)} to {max(depths)} "
        f"layers, with {actual} and {equivalent} units; for 25, 50 and 100 units and 5 layers "
        f"{enumerated([f'{100 * gap:+.1f} %' for gap in small])}.",
    )


def sgemm_failures() -> Verdict:
    """Section 5: DAC fails to train significantly less often, p = 0.0063."""
    from scipy import stats

    runs = {name: round(_quoted(_SGEMM_PLACE, f"{name} runs")) for name in ("baseline", "DAC")}
    failed = {name: round(_quoted(_SGEMM_PLACE, f"{name} failures")) for name in runs}
    table = [[failed[name], max(0, runs[name] - failed[name])] for name in runs]
    exact = float(stats.fisher_exact(table)[1])
    plain = float(stats.chi2_contingency(table, correction=False)[1])
    corrected = float(stats.chi2_contingency(table)[1])
    said = _quoted(_SGEMM_PLACE, "p-value of the failures")
    return Verdict(
        graded(f"{exact:.4f}" == f"{said:.4f}", exact < _SIGNIFICANT),
        f"{failed['baseline']} of {runs['baseline']} against {failed['DAC']} of {runs['DAC']}: Fisher's exact test "
        f"gives p = {exact:.4f} (printed: {said}), the χ² test {plain:.4f}, with Yates' correction {corrected:.4f}. "
        "The test takes all trainings for independent, and networks of all sizes for alike.",
    )


def sgemm_experiments() -> Verdict:
    """Figure 8: 1008 experiments are shown."""
    shown = _quoted("Appendix D, Fig. 8", "experiments")
    runs = sum(_quoted(_SGEMM_PLACE, f"{name} runs") for name in ("baseline", "DAC"))
    failed = sum(_quoted(_SGEMM_PLACE, f"{name} failures") for name in ("baseline", "DAC"))
    return Verdict(
        "holds" if shown == runs - failed else "does not hold",
        f"{runs:.0f} runs less {failed:.0f} failed ones are {runs - failed:.0f}; the caption says {shown:.0f}.",
    )


class _Training(NamedTuple):
    """What section 5 says of the training on a data set, and how many epochs that is."""

    images: float
    training: float
    batch: float
    steps: float
    said: float
    epochs: float


def _training(place: str, parts: str, of: int) -> _Training:
    """The training on so many `parts` of the images; batches are those of CIFAR."""
    images, batch = _quoted(place, "images"), _quoted("Section 5, images", "batch size")
    steps, training = _quoted(place, "steps"), images * _quoted(place, parts) / of
    return _Training(images, training, batch, steps, _quoted(place, "epochs"), steps * batch / training)


def cifar_epochs() -> Verdict:
    """Section 5: 80,000 steps are 256 epochs."""
    cifar = _training("Section 5, CIFAR", "training parts of six", of=6)
    return Verdict(
        "holds" if abs(cifar.epochs - cifar.said) < 0.5 else "does not hold",
        f"Four sixths of {cifar.images:.0f} images are {cifar.training:.0f}; {cifar.steps:.0f} steps of "
        f"{cifar.batch:.0f} pass over them {cifar.epochs:.1f} times.",
    )


def imagenette_epochs() -> Verdict:
    """Section 5: 64,000 steps are 259 epochs, with the same hyperparameters."""
    images, training, batch, steps, said, epochs = _training("Section 5, Imagenette", "training parts of seven", of=7)
    return Verdict(
        "holds" if abs(epochs / said - 1) < 0.1 else "does not hold",
        f"With batches of {batch:.0f}, as for CIFAR, they are {epochs:.0f} epochs of the {training:.0f} images that "
        f"train (4 of 7 parts of {images:.0f}). {said:.0f} epochs would need {steps * batch / said:.0f} training "
        f"images, more than the data set has, or batches of about {said * training / steps:.0f}.",
    )


# --- Section 5: the tables ----------------------------------------------------------------------------------


class _Row(NamedTuple):
    name: str
    base: float
    dac: float
    base_error: float
    dac_error: float
    bold: str

    @property
    def gain(self) -> float:
        return self.base - self.dac

    @property
    def p_value(self) -> float:
        """Two-sided, of a normal test with the printed standard errors."""
        return 2 * NormalDist().cdf(-abs(self.gain) / math.hypot(self.base_error, self.dac_error))

    @property
    def welch(self) -> float:
        """Two-sided, of Welch's t-test with five replicates on each side."""
        from scipy import stats

        spread = math.sqrt(5)
        values = (self.base, self.base_error * spread, 5, self.dac, self.dac_error * spread, 5)
        return float(stats.ttest_ind_from_stats(*values, equal_var=False).pvalue)


def _table(number: int) -> list[_Row]:
    return [
        _Row(
            f"{row['network']} {row['version']} on {row['data']}",
            float(row["base"]),
            float(row["dac"]),
            float(row["base_error"]),
            float(row["dac_error"]),
            row["bold"],
        )
        for row in book.published(f"dac-table-{number}")
    ]


def _significant_rows(rows: Sequence[_Row]) -> tuple[list[_Row], list[_Row]]:
    """The rows in which DAC is significantly better: without and with Holm's correction."""
    from companion.analysis import holm

    corrected = holm([row.p_value for row in rows])
    plain = [row for row in rows if row.gain > 0 and row.p_value < _SIGNIFICANT]
    strict = [row for row, p in zip(rows, corrected, strict=True) if row.gain > 0 and p < _SIGNIFICANT]
    return plain, strict


def vgg_significant() -> Verdict:
    """Section 5: the improvements of the VGGs are significant in all cases."""
    rows = book.published("dac-vgg")
    ratios = [float(row["improvement"]) / float(row["uncertainty"]) for row in rows]
    clear = [ratio for ratio in ratios if ratio > NormalDist().inv_cdf(0.975)]
    return Verdict(
        graded(len(clear) == len(ratios), clear),
        f"The improvements are {enumerated([f'{ratio:.1f}' for ratio in ratios])} times what stands behind ±; even if "
        "that is one standard error, the smallest gives p = "
        f"{2 * NormalDist().cdf(-min(ratios)):.1g}.",
    )


def in_favour() -> Verdict:
    """Section 5: 15 of 16 comparisons are in favour of DAC."""
    place = "Section 5, ResNet"
    said, of = (_quoted(place, quantity) for quantity in ("comparisons in favour of DAC", "comparisons"))
    rows = _table(1)
    better = [row for row in rows if row.gain > 0]
    bold = [row for row in rows if row.bold == "DAC"]
    others = [row for row in rows if row.gain <= 0]
    other = enumerated([f"{row.name} ({row.gain:+.2f} points)" for row in others]) or "none"
    return Verdict(
        graded((len(better), len(rows)) == (said, of) and len(bold) == said, len(better) == len(bold)),
        f"In Table 1 DAC has the lower error in {len(better)} of {len(rows)}, and the bold type in {len(bold)}; the "
        f"text says {said:.0f} of {of:.0f}, of its other estimate. The exception: {other}.",
    )


def significant() -> Verdict:
    """Section 5: 9 of the 16 differences are significant."""
    said = _quoted("Section 5, ResNet", "significant comparisons")
    rows = _table(1)
    plain, strict = _significant_rows(rows)
    welch = [row for row in rows if row.gain > 0 and row.welch < _SIGNIFICANT]
    return Verdict(
        graded(len(plain) == len(welch) == len(strict) == said, abs(len(plain) - said) <= 1),
        f"From the standard errors in Table 1, a normal test finds {len(plain)} of {len(rows)} below 5 %, Welch's "
        f"t-test for five replicates each {len(welch)}; the text says {said:.0f}, of its other estimate. After Holm's "
        f"correction of the normal test, which the paper does not make, {len(strict)} remain.",
    )


def fewer_layers() -> Verdict:
    """Section 5: some DACs beat baselines with more layers."""
    rows = book.published("dac-table-1")
    found = []
    for one, other in itertools.product(rows, rows):
        same = one["data"] == other["data"] and one["version"] == other["version"]
        if same and one["network"] < other["network"] and float(one["dac"]) < float(other["base"]):
            found.append(
                f"{one['network']} {one['version']} {one['dac']} against {other['network']} {other['base']} "
                f"({one['data']})"
            )
    return Verdict(
        "holds" if found else "does not hold",
        f"In Table 1 {len(found)} do: {'; '.join(found) or 'none'}.",
    )


def subsets_better() -> Verdict:
    """Table 2: marked improvements on Imagenette and Imgewoof."""
    rows = _table(2)
    better = [row for row in rows if row.gain > 0]
    plain, strict = _significant_rows(rows)
    small = [row for row in rows if row not in plain]
    text = enumerated([f"{row.name} ({row.gain:.2f} points, p = {row.p_value:.2f})" for row in small]) or "none"
    return Verdict(
        graded(len(plain) == len(rows), len(better) == len(rows)),
        f"DAC has the lower error in {len(better)} of {len(rows)}. By the printed standard errors {len(plain)} are "
        f"significant ({len(strict)} with Holm's correction); not {text}.",
    )


def v1_worse() -> Verdict:
    """Section 5: on these data the baseline v1 is much worse than the baseline v2 and all DACs."""
    rows = book.published("dac-table-2")
    gaps, weak = [], []
    for row in (row for row in rows if row["version"] == "v1"):
        others = [r for r in rows if (r["data"], r["network"]) == (row["data"], row["network"])]
        rivals = [(r, kind) for r in others for kind in ("base", "dac") if (r["version"], kind) != ("v1", "base")]
        for rival, kind in rivals:
            gap = float(row["base"]) - float(rival[kind])
            gaps.append(gap)
            if gap < 1.96 * math.hypot(float(rival[f"{kind}_error"]), float(row["base_error"])):
                name = "the baseline" if kind == "base" else "the DAC"
                weak.append(f"{gap:.2f} points to {name} {rival['version']}, {row['network']} on {row['data']}")
    return Verdict(
        graded(min(gaps) > 0 and not weak, min(gaps) > 0),
        f"It is worse by {min(gaps):.2f} to {max(gaps):.2f} points in {len(gaps)} comparisons; "
        f"{len(weak)} of these are within the error ({enumerated(weak) or 'none'}).",
    )


def isic() -> Verdict:
    """Section 5: the improvements on ISIC 2019."""
    rows = book.published("dac-isic")
    found = {row["network"]: float(row["base"]) - float(row["dac"]) for row in rows}
    right = [row for row in rows if f"{found[row['network']]:.2f}" == f"{float(row['improvement']):.2f}"]
    return Verdict(
        graded(len(right) == len(rows), right),
        f"The differences are {enumerated([f'{gain:.2f} ({name})' for name, gain in found.items()])}, as printed in "
        f"{len(right)} of {len(rows)} cases. There is no number of runs and no interval.",
    )


def _bounds_of_ratio(absolute: float, relative: float) -> tuple[float, float]:
    """Smallest and largest improvement by DAC that both rounded numbers allow, in points."""
    corners = [
        100 * (abs(absolute) + a) / (abs(relative) + r) for a, r in itertools.product((-0.005, 0.005), (-0.5, 0.5))
    ]
    return min(corners), max(corners)


def ablation_columns() -> Verdict:
    """Table 3: the relative values are relative to the improvement by DAC."""
    gains = {
        (row["data"], row["version"]): float(row["base"]) - float(row["dac"])
        for row in book.published("dac-table-1")
        if row["network"] == "ResNet20"
    }
    fits, texts = [], []
    for row in book.published("dac-table-3"):
        key = row["data"], row["version"]
        low, high = _bounds_of_ratio(float(row["absolute"]), float(row["relative"]))
        # Two printed numbers, each rounded to 0.01, stand behind the difference in Table 1.
        if low - 0.01 <= gains[key] <= high + 0.01:
            fits.append(key)
        texts.append(f"{key[0]} {key[1]} {low:.2f} to {high:.2f} points, in Table 1 {gains[key]:.2f}")
    return Verdict(
        graded(len(fits) == len(texts), fits),
        f"The two columns imply these improvements by DAC: {'; '.join(texts)}. The lowest errors of Table 1 agree in "
        f"{len(fits)} of {len(texts)}; on CIFAR-10 they are larger than the other estimate, whose values are printed "
        "nowhere.",
    )


def ablation_small() -> Verdict:
    """Table 3: pre-activation alone is comparable to the baseline, and distinctly worse than DAC."""
    rows = book.published("dac-table-3")
    absolute, relative = ([float(row[key]) for row in rows] for key in ("absolute", "relative"))
    worse = sum(value < 0 for value in absolute)
    return Verdict(
        "holds" if max(map(abs, absolute)) < 0.2 and max(relative) < 50 and worse <= 1 else "does not hold",
        f"It changes the accuracy by {min(absolute):+.2f} to {max(absolute):+.2f} points, {worse} of {len(rows)} times "
        f"for the worse, and reaches at most {max(relative):.0f} % of what DAC gains. Standard errors are not printed.",
    )


def mba_less() -> Verdict:
    """Section 5: MBA gains less than DAC on CIFAR-100 with ResNet20."""
    rows = {row["model"]: float(row["improvement"]) for row in book.published("dac-mba")}
    dac = rows.pop("DAC")
    best = max(rows, key=lambda name: rows[name])
    first = {
        row["version"]: float(row["base"]) - float(row["dac"])
        for row in book.published("dac-table-1")
        if (row["data"], row["network"]) == ("CIFAR-100", "ResNet20")
    }
    return Verdict(
        "holds" if rows[best] < dac else "does not hold",
        f"The best, {best}, gains {rows[best]:.2f} points, DAC {dac:.2f}. In Table 1 DAC gains {first['v1']:.2f} with "
        f"v1 and {first['v2']:.2f} with v2; it is not said which network this is. There are no intervals, and the "
        "learning rate of MBA was not tuned.",
    )


# --- Section 6: one input, replicated -----------------------------------------------------------------------


def _interpolated(knots: Sequence[float], values: Sequence[float], points: Sequence[float]) -> list[float]:
    """What a DAC unit through these points gives, by the construction in `companion.dac.constructions`."""
    import torch

    from companion.dac import constructions

    weight, bias = constructions.interpolant(knots, values)
    found: list[float] = constructions.replicated(torch.tensor(points, dtype=torch.float64), weight, bias).tolist()
    return found


def universal() -> Verdict:
    """Section 6: Eq. 6 approximates a large class of functions."""
    errors = {}
    points = [math.pi * (2 * k / 1237 - 1) for k in range(1238)]
    for pieces in (10, 100, 1000):
        knots = [math.pi * (2 * k / pieces - 1) for k in range(pieces + 1)]
        found = _interpolated(knots, [math.cos(t) for t in knots], points)
        errors[pieces] = max(abs(value - math.cos(t)) for value, t in zip(found, points, strict=True))
    left = max(map(abs, _interpolated([0.0, 1.0, 2.0], [1.0, 1.0, 1.0], [-10.0, -100.0])))
    dense = errors[100] < errors[10] / 50
    return Verdict(
        graded(dense and left > 0, dense),
        "On an interval it can approximate every continuous function: the interpolant of cos on [−π, π] with "
        f"{enumerated([str(pieces + 1) for pieces in errors])} terms is off by "
        f"{enumerated([f'{error:.0e}' for error in errors.values()])}. On all of ℝ the class is exactly the continuous "
        f"piecewise linear functions that vanish on the left (the interpolant of 1 is {left:g} at −10 and −100), so no "
        "constant but 0 and no other line is near any of them.",
    )


def replication_alone() -> Verdict:
    """Section 6: for a standard unit replication changes nothing."""
    generator = random.Random(5)
    worst = 0.0
    for _ in range(200):
        w, x, b = _normal(generator, 6), generator.gauss(0, 3), generator.gauss(0, 1)
        worst = max(worst, abs(_relu(b + math.fsum(v * x for v in w)) - _relu(b + math.fsum(w) * x)))
    return Verdict(
        "holds" if worst < ROUNDING else "does not hold",
        f"b + Σ w_j x = b + (Σ w_j) x: difference {at_most(worst)} for 200 units with 6 copies.",
    )


def _second_layer(x: float, weights: Sequence[float], biases: Sequence[float], slopes: Sequence[float]) -> float:
    return math.fsum(w * _relu(b + v * x) for w, b, v in zip(weights, biases, slopes, strict=True))


def reparametrised() -> Verdict:
    """Section 6: the hidden weights can be replaced by their signs."""
    generator = random.Random(6)
    worst = 0.0
    silu = 0.0
    for _ in range(200):
        w, b, v = (_normal(generator, 4) for _ in range(3))
        x = generator.gauss(0, 2)
        signs = [math.copysign(1.0, slope) for slope in v]
        moved = [bias / abs(slope) for bias, slope in zip(b, v, strict=True)]
        scaled = [weight * abs(slope) for weight, slope in zip(w, v, strict=True)]
        worst = max(worst, abs(_second_layer(x, w, b, v) - _second_layer(x, scaled, moved, signs)))
        t, a = b[0] + v[0] * x, abs(v[0])
        silu = max(silu, abs(t / (1 + math.exp(-t)) - a * (t / a) / (1 + math.exp(-t / a))))
    constant = _second_layer(3.0, [2.0], [1.5], [0.0])
    return Verdict(
        graded(worst < ROUNDING and constant == 0, worst < ROUNDING),
        f"True for ReLU where no hidden weight is 0 (difference {at_most(worst)} for 200 networks with 4 units). At 0 "
        f"it divides by 0, and the unit is a constant (2 relu(1.5) = {constant:g}). It needs φ(ax) = aφ(x) for a > 0: "
        f"with SiLU the two sides differ by up to {silu:.1f}.",
    )


def similar_power() -> Verdict:
    """Section 6: two standard layers have a power similar to one DAC unit."""
    generator = random.Random(7)
    lowest = math.inf
    for _ in range(300):
        w, b, v = (_normal(generator, 4) for _ in range(3))
        lowest = min(lowest, _relu(generator.gauss(0, 1) + _second_layer(generator.gauss(0, 3), w, b, v)))
    negative = _unit([-1.0], [0.0], [2.0])
    line = max(abs(_second_layer(x, [1.0, -1.0], [0.0, 0.0], [1.0, -1.0]) - x) for x in (-5.0, -1.0, 0.0, 2.0))
    return Verdict(
        graded(lowest < 0, lowest >= 0 and line == 0),
        "As written, with an activation outside, two layers are never negative (the lowest of 300 outputs is "
        f"{lowest:g}), so they cannot be −relu(x), which a DAC unit is ({negative:g} at 2). Without it they are more "
        f"than a DAC unit: relu(x) − relu(−x) = x (difference {line:g}), which Eq. 6 is not.",
    )


# --- Section 6: backpropagation -----------------------------------------------------------------------------


def _printed(name: str) -> Any:
    from companion import symbolic

    return symbolic.get(name).rhs


def _backward_error() -> float:
    """Largest difference of Eq. 7 from SymPy's derivatives of a network whose three widths are 2, 3 and 2."""
    import sympy

    from companion.dac import formulas
    from companion.symbolic import Partial

    sizes = {formulas.m: 2, formulas.n: 3, formulas.K: 2}
    generator = random.Random(8)
    worst = 0.0
    at = {formulas.i: 3, formulas.j: 2}
    tanh = {"Activation": math.tanh, "ActivationSlope": lambda x: 1 - math.tanh(x) ** 2}
    for name, by in (
        ("dac-d-weight-deep", formulas.w[3, 2]),
        ("dac-d-bias-deep", formulas.b[3, 2]),
        ("dac-d-output", formulas.f[3]),
    ):
        sides = [formulas.written_out(side, sizes) for side in (Partial(formulas.Total, by), _printed(name).subs(at))]
        atoms = sorted(set().union(*(side.atoms(sympy.Indexed) for side in sides)), key=str)
        slots = [sympy.Dummy() for _ in atoms]
        names = dict(zip(atoms, slots, strict=True))
        function = sympy.lambdify(slots, [side.xreplace(names) for side in sides], [tanh, "math"])
        for _ in range(50):
            true, printed = function(*_normal(generator, len(atoms)))
            worst = max(worst, abs(true - printed))
    return worst


def backward() -> Verdict:
    """Eq. 7."""
    worst = _backward_error()
    return Verdict(
        "holds" if worst < ROUNDING else "does not hold",
        f"In a network with 2 inputs, 3 and 2 units and tanh it differs from SymPy's derivatives by {at_most(worst)} "
        "(150 random cases). It holds for every activation with a derivative, in a plain chain of layers; at the kink "
        "of a ReLU one has to choose, and torch chooses 0.",
    )


def masks() -> Verdict:
    """Section 6: with unshared biases the gradient is masked more finely."""
    generator = random.Random(10)
    outputs, inputs = 16, 200
    shared, unshared = set(), set()
    for _ in range(inputs):
        z = generator.gauss(0, 1)
        one = generator.gauss(0, 1)
        shared.add(sum([one + z > 0] * outputs))
        unshared.add(sum(generator.gauss(0, 1) + z > 0 for _ in range(outputs)))
    return Verdict(
        "holds" if shared <= {0, outputs} and len(unshared) > 2 else "does not hold",
        f"Of {outputs} outputs either {enumerated([str(each) for each in sorted(shared)])} pass gradient to an input "
        f"with shared biases; with random unshared ones {len(unshared)} different numbers of them do, from "
        f"{min(unshared)} to {max(unshared)} ({inputs} inputs).",
    )


# --- Appendix C ---------------------------------------------------------------------------------------------


def _values(construction: str, points: Sequence[tuple[float, float]], *more: float) -> list[float]:
    import torch

    from companion.dac import constructions

    found: list[float] = getattr(constructions, construction)(torch.tensor(points, dtype=torch.float64), *more).tolist()
    return found


_PLANE = [(x / 10, y / 10) for x in range(-40, 41) for y in range(-40, 41)]


def figure_7a() -> Verdict:
    """Fig. 7a: one DAC unit separates what one standard unit cannot."""
    low, high, again = _values("middle", [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)])
    separated = high > max(low, again)
    generator = random.Random(11)
    worst = 0.0
    for _ in range(200):
        w, b = _normal(generator, 2), _normal(generator, 2)
        corners = [_unit(w, b, corner) for corner in ((0.0, 0.0), (1.0, 1.0), (0.0, 1.0), (1.0, 0.0))]
        worst = max(worst, abs(corners[0] + corners[1] - corners[2] - corners[3]))
    return Verdict(
        "holds" if separated else "does not hold",
        f"relu(y) − 3 relu(x − 2) is {low:g}, {high:g} and {again:g} at (1, 1), (2, 2) and (3, 3); no line has the "
        "middle point on one side and the others on the other. But it is a function of x plus a function of y, so f(0, "
        f"0) + f(1, 1) = f(0, 1) + f(1, 0) (to {worst:.0e} in 200 units): no single unit computes the exclusive or.",
    )


def figure_7b() -> Verdict:
    """Fig. 7b: g(f(x)) is 1 − |x| − |y| in the square, positive there and negative outside."""
    found = _values("separator", _PLANE)
    inside = [(p, v) for p, v in zip(_PLANE, found, strict=True) if abs(p[0]) + abs(p[1]) < 1 - 1e-9]
    outside = [(p, v) for p, v in zip(_PLANE, found, strict=True) if abs(p[0]) + abs(p[1]) > 1 + 1e-9]
    right = all(v > 0 and abs(v - 1 + abs(p[0]) + abs(p[1])) < 1e-9 for p, v in inside)
    touching = [p for p, v in outside if v > -1e-12]
    far = _values("separator", [(-10.0, 0.0), (0.0, -1e6)])
    higher = max(value for value in _values("separator", [p for p, _ in outside], 1.1))
    return Verdict(
        graded(right and not touching, right),
        f"Inside it is, at all {len(inside)} points of a grid. Outside it is 0 at {len(touching)} of {len(outside)}, "
        f"on the rays (x, 0) and (0, y) with x, y ≤ −1: g is {far[0]:g} at (−10, 0) and {far[1]:g} at (0, −10⁶). So "
        "the set where g ≥ 0 is unbounded, which the caption holds against the standard layer. With 1.1 for the last 1 "
        f"of g it is bounded (outside the square g is at most {higher:.1f}).",
    )


def _network_2_2(
    w: Sequence[Sequence[float]], c: Sequence[float], v: Sequence[float], d: float, u: tuple[float, float]
) -> float:
    """A standard layer with two units, and a linear one."""
    return d + math.fsum(v[k] * _relu(w[k][0] * u[0] + w[k][1] * u[1] + c[k]) for k in range(2))


def _escapes(w: Sequence[Sequence[float]], c: Sequence[float], v: Sequence[float], d: float, activated: bool) -> bool:
    """Whether the set where the network is ≥ 0 is empty on a grid, or has a way to infinity from a point of it."""
    grid = [(x / 2, y / 2) for x in range(-8, 9) for y in range(-8, 9)]
    if activated:  # the network sees relu(x)
        grid = [(_relu(x), _relu(y)) for x, y in grid]
    inside = [u for u in grid if _network_2_2(w, c, v, d, u) >= 0]
    if not inside:
        return True
    start = inside[0]
    determinant = w[0][0] * w[1][1] - w[0][1] * w[1][0]
    for k, sign in itertools.product(range(2), (1, -1)):
        # Along this line only unit k changes its input: by +1 or −1 for each step.
        way = (sign * w[1 - k][1] / determinant, -sign * w[1 - k][0] / determinant)
        way = way if k == 0 else (-way[0], -way[1])
        if activated:
            # As soon as the line leaves the quadrant, an input is off, and can go to −∞.
            leaves = [start[axis] / -way[axis] for axis in range(2) if way[axis] < 0]
            reach = min(leaves, default=1e4)
        else:
            reach = 1e4
        steps = [reach * share / 50 for share in range(51)]
        if all(_network_2_2(w, c, v, d, (start[0] + s * way[0], start[1] + s * way[1])) >= -1e-6 for s in steps):
            return True
    return False


def figure_7b_standard() -> Verdict:
    """Fig. 7b: for a standard layer with two units and a linear unit the set is unbounded or empty."""
    generator = random.Random(12)
    caught = {False: 0, True: 0}
    count = 400
    for activated in caught:
        for _ in range(count):
            w = [_normal(generator, 2), _normal(generator, 2)]
            caught[activated] += not _escapes(
                w, _normal(generator, 2), _normal(generator, 2), generator.gauss(0, 1), activated
            )
    return Verdict(
        "holds" if not any(caught.values()) else "does not hold",
        f"In {count} random networks {caught[False]} have a point of the set without a way to infinity in it, and "
        f"{caught[True]} if the inputs are activated too. In general: along the line on which one hidden unit alone "
        "changes, the network grows or stays in one direction, and with dependent units it is constant along a line.",
    )


def four_units() -> Verdict:
    """Fig. 7: a standard network needs four units in the first layer."""
    found = _values("three_units", _PLANE)
    sums = [abs(x) + abs(y) for x, y in _PLANE]
    right = all((value > 0) == (total < 1) for total, value in zip(sums, found, strict=True) if abs(total - 1) > 1e-9)
    size = {units: units * 3 + units + 1 for units in (3, 4)}
    return Verdict(
        "does not hold" if right else "holds",
        "Three do: relu(2 + x + y) − 2 relu(x) − 2 relu(y) − 1 is positive exactly in the square (checked at "
        f"{len(found)} points), and unlike the DAC it is negative everywhere outside. It has {size[3]} parameters, two "
        f"DAC units and the linear one have {2 * 4 + 2 + 1}, four standard units {size[4]}. Two standard units are not "
        "enough.",
    )


def _pieces(weights: Sequence[float], biases: Sequence[float]) -> int:
    """Linear components of Σ w relu(b + x)."""
    kinks: dict[float, float] = {}
    for w, b in zip(weights, biases, strict=True):
        kinks[-b] = kinks.get(-b, 0.0) + w
    return 1 + sum(w != 0 for w in kinks.values())


def theorem_1() -> Verdict:
    """Theorem C.1, 1: a DAC unit with k copies of the input represents all of PL_k, with 2k parameters."""
    generator = random.Random(13)
    components = {}
    lefts = []
    for k in (1, 2, 3, 5):
        components[k] = {_pieces(_normal(generator, k), _normal(generator, k)) for _ in range(100)}
        lefts += [_unit(_normal(generator, k), _normal(generator, k), [-1e9] * k) for _ in range(100)]
    same = all(found == {k} for k, found in components.items())
    reaches = any(value != 0 for value in lefts)
    knots = sorted(generator.uniform(-1, 1) for _ in range(6))
    values = _normal(generator, 6)
    exact = max(abs(a - b) for a, b in zip(_interpolated(knots, values, knots), values, strict=True))
    return Verdict(
        graded(same and reaches, same or reaches),
        f"Neither contains the other. With k = 1, 2, 3 and 5 random terms the unit has "
        f"{enumerated([str(max(found)) for found in components.values()])} components, not k; and every unit is 0 far "
        f"on the left ({sum(value != 0 for value in lefts)} of {len(lefts)} are not), so f(x) = x and f(x) = 1, both "
        "in PL_1, are never reached. True is: k terms are the functions with at most k + 1 components of which the "
        f"first is 0; on an interval k + 1 terms, 2k + 2 parameters, are all of PL_k (off by {exact:.0e} with 5 random "
        "components).",
    )


def theorem_2() -> Verdict:
    """Theorem C.1, 2: one standard layer does not represent PL_k."""
    points = [k / 10 for k in range(-10, 11)]
    steps = [k / 4 for k in range(-16, 17)]

    def nearest(target: Callable[[float], float]) -> float:
        return min(max(abs(_relu(w * x + b) - target(x)) for x in points) for w, b in itertools.product(steps, steps))

    gaps = {"x": nearest(lambda x: x), "|x|": nearest(abs), "relu(x)": nearest(_relu)}
    return Verdict(
        "holds" if gaps["x"] > 0.1 and gaps["|x|"] > 0.1 else "does not hold",
        f"On [−1, 1] the nearest φ(wx + b) is {gaps['x']:.2f} away from x (k = 1) and {gaps['|x|']:.2f} from |x| (k = "
        f"2), and {gaps['relu(x)']:g} from relu(x), on a grid of w and b. Without the activation, as last layers are "
        "used, PL_1 is represented.",
    )


def _two_layers(kinks: Sequence[float], slopes: Sequence[float], height: float, x: float) -> tuple[float, float]:
    """A piecewise linear function with the value `height` at its first kink: as it is, and by one unit per component.

    Two units lie at the first kink, one in each direction; each other kink has one.
    """
    first = kinks[0]
    value, left = height, first
    if x < first:
        value += slopes[0] * (x - first)
    else:
        for slope, right in zip(slopes[1:], [*kinks[1:], math.inf], strict=True):
            value += slope * (min(x, right) - left)
            left = right
            if x < right:
                break
    units = [(slopes[1], _relu(x - first)), (-slopes[0], _relu(first - x))]
    units += [(slopes[k + 1] - slopes[k], _relu(x - kinks[k])) for k in range(1, len(kinks))]
    return value, height + math.fsum(weight * active for weight, active in units)


def theorem_3() -> Verdict:
    """Theorem C.1, 3: the minimal standard structure for PL_k is two layers and 3k + 1 parameters."""
    generator = random.Random(14)
    worst, nearest = 0.0, math.inf
    for _ in range(100):
        k = generator.choice((2, 3, 5))
        kinks, slopes = sorted(_normal(generator, k - 1)), _normal(generator, k)
        for x in _normal(generator, 20):
            value, network = _two_layers(kinks, slopes, 0.7, x)
            worst = max(worst, abs(value - network))
        # k − 1 units, one per kink: those that look left make the slope at −∞, which so is a sum of some changes.
        changes = [b - a for a, b in itertools.pairwise(slopes)]
        sums = [-math.fsum(some) for size in range(k) for some in itertools.combinations(changes, size)]
        nearest = min(nearest, min(abs(slopes[0] - each) for each in sums))
    one = max(abs(_relu(3.0 * x + 5.0) * 2 - 1 - x) for x in (-100.0, 100.0))
    activated = _relu(-1.0)
    enough = worst < ROUNDING and nearest > 0
    return Verdict(
        graded(enough and activated == -1 and one < 1, enough),
        "True for k ≥ 2, and only if the second layer has no activation (with it, no output is negative: the value −1 "
        f"becomes {activated:g}): k units are enough (difference {at_most(worst)} for 100 random functions), k − 1 "
        "not, because the slope at −∞ is then a sum of some changes of slope, which random functions miss. The paper's "
        "reason, k slopes need k units, is not one: k − 1 units have k slopes. For k = 1 four parameters are too few: "
        "one unit is constant on a half-line, and f(x) = x takes two, 7 parameters. This is about one hidden layer; "
        "that no deeper network gets by with fewer, neither the paper nor this check shows.",
    )


def _rank(k: int, seed: int) -> tuple[int, int]:
    """Rank of the derivative of values by k slopes and intercepts, and by k weights and biases of a DAC unit."""
    import torch

    generator = random.Random(seed)
    # Component number q is tangent to a parabola at q: neighbours meet between, in order.
    slopes = torch.tensor([2.0 * q for q in range(k)], dtype=torch.float64)
    lines = torch.stack([slopes, torch.tensor([-float(q * q) for q in range(k)], dtype=torch.float64)])
    x = torch.linspace(-1.0, k, 40 * k, dtype=torch.float64)

    def polygon(lines: torch.Tensor) -> torch.Tensor:
        return (lines[0] * x[:, None] + lines[1]).amax(1)

    def unit(parameters: torch.Tensor) -> torch.Tensor:
        return (parameters[0] * torch.relu(parameters[1] + x[:, None])).sum(1)

    parameters = torch.tensor([_normal(generator, k), [-0.5 - q for q in range(k)]], dtype=torch.float64)
    found = []
    for function, inputs in ((polygon, lines), (unit, parameters)):
        jacobian: torch.Tensor = torch.func.jacrev(function)(inputs).flatten(1)
        found.append(int(torch.linalg.matrix_rank(jacobian, rtol=1e-9)))
    return found[0], found[1]


def remark_c_2() -> Verdict:
    """Remark C.2: PL_k depends on exactly 2k parameters."""
    ranks = {k: _rank(k, k)[0] for k in (1, 2, 3, 5)}
    return Verdict(
        "holds" if all(rank == 2 * k for k, rank in ranks.items()) else "does not hold",
        f"Slopes and intercepts of k = {enumerated([str(k) for k in ranks])} components move the function in "
        f"{enumerated([str(rank) for rank in ranks.values()])} independent directions. Counted otherwise: k slopes, "
        "k − 1 kinks and one height.",
    )


def remark_c_2_minimum() -> Verdict:
    """Remark C.2: DAC units realise PL_k with the least possible number of parameters."""
    ranks = {k: _rank(k, k)[1] for k in (1, 2, 3, 5)}
    generator = random.Random(15)
    reached = sum(_unit(_normal(generator, 3), _normal(generator, 3), [-1e9] * 3) != 0 for _ in range(100))
    return Verdict(
        "holds" if reached else "does not hold",
        f"What k terms realise has as many dimensions as parameters ({enumerated([str(r) for r in ranks.values()])} "
        f"for k = {enumerated([str(k) for k in ranks])}), so none is wasted; but it is another class than PL_k, since "
        f"its functions vanish on the left ({reached} of 100 random ones do not). A standard network without "
        "activation at its output, whose hidden weights are fixed to ±1, realises PL_k for k ≥ 2 with 2k + 1.",
    )


# --- Appendix B: the error of the error ----------------------------------------------------------------------


def _noises(seed: int, draws: int, sigma: float, tau: float, memory: float = 0.0) -> list[list[list[float]]]:
    """Test errors of 5 replicates in 5 epochs by the paper's model; `memory` is the correlation of neighbours."""
    generator = random.Random(seed)
    made = []
    for _ in range(draws):
        replicates = []
        for _ in range(5):
            level = sigma * generator.gauss(0, 1)
            noise = generator.gauss(0, 1)
            series = []
            for _ in range(5):
                series.append(level + tau * noise)
                noise = memory * noise + math.sqrt(1 - memory**2) * generator.gauss(0, 1)
            replicates.append(series)
        made.append(replicates)
    return made


def _estimates(sample: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """T̄, and the paper's estimates of σ² and of τ²/5."""
    mean = math.fsum(map(math.fsum, sample)) / 25
    first = math.fsum((series[2] - mean) ** 2 for series in sample) / 4
    epochs = [math.fsum(column) / 5 for column in zip(*sample, strict=True)]
    return mean, first, math.fsum((value - mean) ** 2 for value in epochs) / 4


def _average(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed)


def error_variance() -> Verdict:
    """Appendix B: under the model the variance of the estimate is σ²/5 + τ²/25."""
    found = {}
    for sigma, tau in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
        means = [_estimates(sample)[0] for sample in _noises(16, 3000, sigma, tau)]
        found[sigma, tau] = _average(mean**2 for mean in means) / (sigma**2 / 5 + tau**2 / 25)
    correlated = _average(_estimates(sample)[0] ** 2 for sample in _noises(17, 3000, 0.0, 1.0, memory=0.8)) * 25
    return Verdict(
        "holds" if all(abs(ratio - 1) < 0.1 for ratio in found.values()) else "does not hold",
        f"In 3000 simulations each the variance is {enumerated([f'{ratio:.2f}' for ratio in found.values()])} times "
        "that, for (σ, τ) = (1, 0), (0, 1) and (1, 1). The model takes the epochs to be independent: where neighbours "
        f"have the correlation 0.8, the second term is {correlated:.1f} times as large.",
    )


def error_first() -> Verdict:
    """Appendix B: the estimate of the first term is conservative, about σ² + τ²."""
    excess = {}
    for sigma, tau in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
        first = _average(_estimates(sample)[1] for sample in _noises(18, 3000, sigma, tau))
        excess[sigma, tau] = first - sigma**2
    low = min(excess.values())
    return Verdict(
        "holds" if low > -0.1 and excess[0.0, 1.0] > 1 else "does not hold",
        f"Its mean is σ² + 1.2 τ²: in simulations with (σ, τ) = (1, 0), (0, 1) and (1, 1) it exceeds σ² by "
        f"{enumerated([f'{abs(each):.2f}' for each in excess.values()])}. Needlessly: the variance of the five "
        "replicates' means, over 5, is an unbiased estimate of the whole.",
    )


def error_second() -> Verdict:
    """Appendix B: the estimate of the second term is conservative as well."""
    ratios = {}
    for memory in (0.0, 0.8):
        sample = _noises(19, 3000, 1.0, 1.0, memory)
        second = _average(_estimates(each)[2] for each in sample)
        true = _average(_estimates(each)[0] ** 2 for each in _noises(20, 3000, 0.0, 1.0, memory)) * 5
        ratios[memory] = second / true
    whole = {
        memory: _average(
            first / 5 + second / 5 for _, first, second in map(_estimates, _noises(21, 3000, 1.0, 1.0, memory))
        )
        / (0.2 + _average(_estimates(each)[0] ** 2 for each in _noises(22, 3000, 0.0, 1.0, memory)))
        for memory in (0.0, 0.8)
    }
    return Verdict(
        graded(min(ratios.values()) > 1.05, min(whole.values()) > 1),
        f"By itself it is unbiased, not conservative ({ratios[0.0]:.2f} times the true value), and too small where "
        f"neighbouring epochs are correlated ({ratios[0.8]:.2f} times at 0.8). The sum of both is conservative all the "
        f"same, because the first is: {whole[0.0]:.2f} and {whole[0.8]:.2f} times the true variance for σ = τ.",
    )


def error_robust() -> Verdict:
    """Appendix B: the estimate is more reliable than the lowest test error."""
    from companion.analysis import early_stopping

    generator = random.Random(23)
    epochs, tau = 60, 1.0
    gaps: dict[str, list[float]] = {"independent": [], "shared": [], "lowest": []}
    for _ in range(150):
        level = [generator.gauss(0, 0.5) for _ in range(5)]
        test = [[mean + tau * generator.gauss(0, 1) for _ in range(epochs)] for mean in level]
        validation = [[generator.gauss(0, tau) for _ in range(epochs)] for _ in range(5)]
        half = [
            [0.7 * (t - mean) + 0.7 * v for t, v in zip(of_test, own, strict=True)]
            for of_test, own, mean in zip(test, validation, level, strict=True)
        ]
        true = _average(level)
        gaps["independent"].append(early_stopping(validation, test).error - true)
        gaps["shared"].append(early_stopping(half, test).error - true)
        gaps["lowest"].append(min(_average(column) for column in zip(*test, strict=True)) - true)
    bias = {name: _average(each) for name, each in gaps.items()}
    return Verdict(
        "holds" if abs(bias["independent"]) < abs(bias["shared"]) < abs(bias["lowest"]) else "does not hold",
        f"Where nothing changes over {epochs} epochs but noise (τ = 1), the lowest mean test error of five replicates "
        f"is {bias['lowest']:+.2f} off, the estimate {bias['independent']:+.2f}; {bias['shared']:+.2f} if validation "
        "and test error share half of their noise, as two errors of one network may. Tables 1 and 2 have the lowest "
        "errors.",
    )


# --- Our experiments ----------------------------------------------------------------------------------------

_SGEMM, _CIFAR, _TOY = "dac-sgemm", "dac-cifar10", "dac-toy"


def _changes(rows: list[dict[str, Any]], kind: str) -> list["Change"]:
    from companion.dac.experiments import changes

    return [each for each in changes(rows) if each.kind == kind]


def _nats(found: Sequence["Change"]) -> str:
    """The differences by width; by shape and depth too where there are several."""
    several = len({(each.shape, each.depth) for each in found}) > 1
    return enumerated(
        [
            (f"{each.shape}, {each.depth} layers, " if several else "")
            + f"{each.width}: {book.difference_of_numbers(each.difference)}"
            for each in found
        ]
    )


def _base_parameters(rows: list[dict[str, Any]], change: "Change") -> int:
    [count] = {
        row["parameters"]
        for row in rows
        if (row["shape"], row["depth"], row["unit"], row["width"]) == (change.shape, change.depth, "base", change.width)
    }
    return int(count)


def _clear(found: Sequence["Change | Difference"], sign: int) -> int:
    """How many differences are clearly above (+1) or below (−1) zero."""
    return sum(each.p_holm < _SIGNIFICANT and sign * each.difference.mean > 0 for each in found)


def _traded(low: float, high: float, sign: int) -> Verdict:
    """Whether trading weights for biases moves the error up (+1) or down (−1), for baselines of a range of sizes."""
    run = run_of(_SGEMM)
    if run is None:
        return no_result(_SGEMM)
    found = [each for each in _changes(run.rows, "trade") if low < _base_parameters(run.rows, each) <= high]
    size = f"up to {high:,.0f}" if math.isfinite(high) else f"more than {low:,.0f}"
    if not found:
        return Verdict("not tested", f"The result of {_SGEMM} has no pair of networks with {size} parameters.")
    clear = _clear(found, sign)
    depths = enumerated([str(depth) for depth in sorted({each.depth for each in found})])
    return run.judge(
        f"SGEMM, {depths} layers, {size} parameters, ln MSE of DAC minus baseline with about as many, by the "
        f"baseline's width, with 95 % intervals: {_nats(found)}; {clear} of {len(found)} clearly "
        f"{'worse' if sign > 0 else 'better'} (Holm).",
        shown=clear,
        against=_clear(found, -sign),
        of=len(found),
    )


def sgemm_small() -> Verdict:
    """Figures 3 and 8: up to 10⁴ parameters DAC is worse."""
    return _traded(0, _quoted("Appendix D, Fig. 8", "parameters up to which DAC is worse"), +1)


def sgemm_large() -> Verdict:
    """Figures 3 and 8: above 10⁵ parameters DAC is better."""
    return _traded(_quoted("Appendix D, Fig. 8", "parameters above which DAC is better"), math.inf, -1)


def sgemm_biases() -> Verdict:
    """Figure 4: unshared biases lower the error by about 0.25 nats at every width."""
    run = run_of(_SGEMM)
    if run is None:
        return no_result(_SGEMM)
    said = _quoted(_SGEMM_PLACE, "gain of unshared biases, nats")
    found = _changes(run.rows, "biases")
    if not found:
        return Verdict("not tested", f"The result of {_SGEMM} has no baseline and DAC of one width that both trained.")
    lower, higher = _clear(found, -1), _clear(found, +1)
    about = _clear([each for each in found if 0.5 * said < -each.difference.mean < 1.5 * said], -1)
    return run.judge(
        f"SGEMM, ln MSE of DAC minus baseline of the same width, by width, with 95 % intervals: {_nats(found)}; "
        f"{lower} of {len(found)} clearly lower (Holm), {about} of these within half of {said:g}; {higher} clearly "
        "higher.",
        shown=lower,
        against=higher,
        of=len(found),
        whole=about == len(found),
    )


def sgemm_weights() -> Verdict:
    """Figure 4: more weights help less and less."""
    run = run_of(_SGEMM)
    if run is None:
        return no_result(_SGEMM)
    found = sorted(_changes(run.rows, "weights"), key=lambda each: (each.shape, each.depth, each.width))
    groups = [list(group) for _, group in itertools.groupby(found, key=lambda each: (each.shape, each.depth))]
    ends = [(group[0].difference, group[-1].difference) for group in groups if len(group) > 1]
    if not ends:
        return Verdict("not tested", f"The result of {_SGEMM} has too few widths to compare.")
    apart = sum(first.high < last.low for first, last in ends)
    return run.judge(
        f"SGEMM, ln MSE of twice the weights minus baseline, by width, with 95 % intervals: {_nats(found)}; in {apart} "
        f"of {len(ends)} series of widths the last interval lies above the first.",
        shown=apart,
        against=sum(last.high < first.low for first, last in ends),
        of=len(ends),
    )


def sgemm_trains() -> Verdict:
    """Section 5: DAC fails to train less often."""
    run = run_of(_SGEMM)
    if run is None:
        return no_result(_SGEMM)
    from scipy import stats

    runs = {unit: [row["failed"] for row in run.rows if row["unit"] == unit] for unit in ("base", "dac")}
    failed = {unit: sum(each) for unit, each in runs.items()}
    counts = [f"{failed[unit]} of {len(runs[unit])}" for unit in runs]
    text = f"SGEMM: {counts[0]} baselines and {counts[1]} DACs failed"
    if sum(failed.values()) < 6:
        return Verdict("not tested", f"{text}: too few to tell.")
    p = float(stats.fisher_exact([[failed[unit], len(runs[unit]) - failed[unit]] for unit in runs])[1])
    less = failed["dac"] / len(runs["dac"]) < failed["base"] / len(runs["base"])
    clear = p < _SIGNIFICANT
    return run.judge(f"{text} (Fisher's exact test: p = {p:.2g}).", shown=clear and less, against=clear and not less)


def _of_unit(found: Sequence["Difference"], *units: str) -> list["Difference"]:
    return [each for each in found if each.unit in units]


def _on_cifar(rows: list[dict[str, Any]]) -> list["Difference"]:
    from companion.dac.experiments import comparisons

    return comparisons(rows)


def _shown(found: Sequence["Difference"]) -> str:
    return enumerated([f"{each.unit} in {each.network} {difference_of_points(each.difference)}" for each in found])


def _setting(run: Run) -> str:
    networks = ", small networks and not the paper's" if run.scale == "smaller" else ""
    return f"CIFAR-10{networks}, test error minus the baseline's in points, with 95 % intervals"


def cifar_better() -> Verdict:
    """Section 5: DAC has the lower test error on CIFAR-10."""
    run = run_of(_CIFAR)
    if run is None:
        return no_result(_CIFAR)
    found = _of_unit(_on_cifar(run.rows), "dac")
    lower, higher = _clear(found, -1), _clear(found, +1)
    return run.judge(
        f"{_setting(run)}: {_shown(found)}; clearly lower in {lower} of {len(found)}, clearly higher in {higher} "
        "(Holm).",
        shown=lower,
        against=higher,
        of=len(found),
    )


def _against_dac(rows: list[dict[str, Any]], *units: str) -> list[tuple[str, str, float, float]]:
    """Network, unit, mean of unit minus DAC, and Holm's p-value over all of them."""
    from companion.analysis import holm, paired

    series: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        series.setdefault((row["network"], row["unit"]), {})[row["seed"]] = row["test_error"]
    found = []
    for (network, unit), errors in series.items():
        if unit in units:
            dac = series[network, "dac"]
            seeds = sorted(errors.keys() & dac.keys())
            difference, p = paired([errors[s] for s in seeds], [dac[s] for s in seeds])
            found.append((network, unit, difference.mean, p))
    corrected = holm([entry[-1] for entry in found])
    return [(network, unit, mean, p) for (network, unit, mean, _), p in zip(found, corrected, strict=True)]


def cifar_shared() -> Verdict:
    """Section 5: pre-activation alone is comparable to the baseline and worse than DAC."""
    run = run_of(_CIFAR)
    if run is None:
        return no_result(_CIFAR)
    found = _of_unit(_on_cifar(run.rows), "shared")
    moved = _clear(found, -1) + _clear(found, +1)
    against_dac = [mean for _, _, mean, p in _against_dac(run.rows, "shared") if p < _SIGNIFICANT]
    worse = sum(mean > 0 for mean in against_dac)
    return run.judge(
        f"{_setting(run)}: {_shown(found)}; {moved} of {len(found)} differ clearly from the baseline, and DAC is "
        f"clearly better in {worse} (Holm).",
        shown=len(found) - moved + worse,
        against=moved + len(against_dac) - worse,
        of=2 * len(found),
    )


def cifar_mba() -> Verdict:
    """Section 5: MBA gains less than DAC, though it is larger."""
    run = run_of(_CIFAR)
    if run is None:
        return no_result(_CIFAR)
    units = "mba2", "mba4", "mba8"
    found = [(mean, p < _SIGNIFICANT) for _, _, mean, p in _against_dac(run.rows, *units)]
    higher, clearly_higher = sum(mean > 0 for mean, _ in found), sum(clear and mean > 0 for mean, clear in found)
    clearly_lower = sum(clear and mean < 0 for mean, clear in found)
    return run.judge(
        f"{_setting(run)}: {_shown(_of_unit(_on_cifar(run.rows), *units))}. Against DAC the error is higher on average "
        f"in {higher} of {len(found)}, clearly in {clearly_higher}; clearly lower in {clearly_lower} (Holm).",
        shown=clearly_higher,
        against=clearly_lower,
        of=len(found),
    )


def _solved(rows: list[dict[str, Any]], problem: str) -> dict[tuple[str, int], float]:
    """Share of seeds that found a solution, with the better start, by network and units."""
    runs: dict[tuple[str, int], dict[str, list[float]]] = {}
    for row in rows:
        if row["problem"] == problem:
            runs.setdefault((row["network"], row["units"]), {}).setdefault(row["start"], []).append(row["solved"])
    return {key: max(map(_average, starts.values())) for key, starts in runs.items()}


def _size(units: int) -> str:
    """A hidden layer in words; without one, the output unit is alone."""
    return f"{units} hidden unit{'s' if units > 1 else ''}" if units else "one unit alone"


def _toy(problem: str, dac: int, standard: int) -> Verdict:
    run = run_of(_TOY)
    if run is None:
        return no_result(_TOY)
    shares = _solved(run.rows, problem)
    often, never = shares["dac", dac] >= 0.5, shares["standard", standard] == 0
    text = "; ".join(
        f"{'DAC' if network == 'dac' else 'standard'} with {_size(units)} {share:.0%}"
        for (network, units), share in shares.items()
    )
    return run.judge(
        f"Solved, of the trainings with the better start: {text}.",
        shown=never and shares["dac", dac] > 0,
        against=not never,
        whole=often and never,
    )


def toy_unit() -> Verdict:
    """Fig. 7a, trained."""
    return _toy("unit", 0, 0)


def toy_layer() -> Verdict:
    """Fig. 7b, trained: standard networks need four units."""
    return _toy("layer", 2, 3)


def toy_line() -> Verdict:
    """Appendix C.2, trained: with as many parameters a DAC unit fits a piecewise linear function better."""
    run = run_of(_TOY)
    if run is None:
        return no_result(_TOY)
    from companion.analysis import holm, paired

    errors: dict[tuple[str, int, str], dict[int, float]] = {}
    parameters: dict[tuple[str, int], int] = {}
    for row in run.rows:
        if row["problem"] == "line":
            key = row["network"], row["units"], row["start"]
            errors.setdefault(key, {})[row["seed"]] = math.log(max(row["error"], 1e-12))
            parameters[row["network"], row["units"]] = row["parameters"]

    def best(network: str, units: int) -> dict[int, float]:
        """The errors with the better start."""
        return min(
            (series for key, series in errors.items() if key[:2] == (network, units)),
            key=lambda series: _average(series.values()),
        )

    pairs = [
        (k, n)
        for (one, k), (other, n) in itertools.product(parameters, parameters)
        if (one, other) == ("dac", "standard") and parameters[one, k] == parameters[other, n]
    ]
    found = []
    for k, n in pairs:
        dac, standard = best("dac", k), best("standard", n)
        seeds = sorted(dac)
        found.append(paired([dac[s] for s in seeds], [standard[s] for s in seeds]))
    corrected = holm([p for _, p in found])
    clear = [difference.mean for (difference, _), p in zip(found, corrected, strict=True) if p < _SIGNIFICANT]
    better = sum(mean < 0 for mean in clear)
    text = enumerated(
        [
            f"{parameters['dac', k]} parameters {book.difference_of_numbers(difference)}"
            for (k, _), (difference, _) in zip(pairs, found, strict=True)
        ]
    )
    return run.judge(
        f"ln of the squared error, DAC minus two standard layers, on five pieces in [−1, 1], with the better start and "
        f"95 % intervals: {text}; clearly lower in {better} of {len(found)} (Holm).",
        shown=better,
        against=len(clear) - better,
        of=len(found),
    )
