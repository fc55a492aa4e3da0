"""The exercises on DNRT's pages: the right answers, and the mistakes that have words of their own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from companion.cuda.rows import MOST_PACKS, SHORT_PACKS, row_plan
from companion.dnrt.means import follow
from companion.dnrt.op import raa
from companion.study.exercises import Exercise

__all__ = ["EXERCISES"]


def _drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def normal(u: Tensor) -> Tensor:
    """Φ."""
    return 0.5 * torch.erfc(-u / math.sqrt(2))


def density(u: Tensor) -> Tensor:
    """φ, the slope of Φ."""
    return torch.exp(-0.5 * u * u) / math.sqrt(2 * math.pi)


# --- page dnrt --------------------------------------------------------------------------------------------------------

#: w, b and x of the first exercise.
WEIGHT, BIAS, VECTOR = (0, 0, -1), 0, (-1, 0, 2)


def offset() -> float:
    """c of the vector above, from the registered formula."""
    from companion.dnrt.study import formulas

    values: dict[Any, float] = {formulas.b: BIAS}
    for index, (weight, element) in enumerate(zip(WEIGHT, VECTOR, strict=True), start=1):
        values |= {formulas.w[index]: weight, formulas.x[index]: element}
    return float(formulas.written_out(formulas.c, len(VECTOR)).subs(values))


def tokens() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """x (N, T, d), weight (d,) and bias (1,): first those with which RAA is GELU."""
    for seed, (batch, length, d) in enumerate([(2, 3, 4), (3, 5, 4), (2, 4, 7)]):
        x = _drawn(batch, length, d, seed=seed)
        if seed == 0:
            yield x, torch.zeros(d, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        yield x, _drawn(d, seed=10 + seed), _drawn(1, seed=20 + seed)


def _shifted(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x + (x * weight).sum(-1, keepdim=True) + bias


def updated(means: Tensor, x: Tensor, target: Tensor, m: float) -> Tensor:
    """μ_k ← (1 − m) μ_k + m x for every sample of class k, in the order of the batch."""
    seen = torch.ones(len(means), dtype=torch.bool)
    return follow(x, target, means, seen, m, from_first=False).mean


def batches() -> Iterator[tuple[Tensor, Tensor, Tensor, float]]:
    """means (K, d), x (N, d), target (N,) and m; first a batch in which no class comes twice."""
    for seed, (target, m) in enumerate([([1, 0], 0.3), ([0, 2, 0, 0, 1, 2], 0.3), ([1, 1, 1, 3], 0.1)]):
        yield _drawn(4, 3, seed=seed), _drawn(len(target), 3, seed=10 + seed), torch.tensor(target), m


def _once(means: Tensor, x: Tensor, target: Tensor, m: float) -> Tensor:
    """One step for each class, to the mean of its samples."""
    means = means.clone()
    for of_class in set(target.tolist()):
        means[of_class] = (1 - m) * means[of_class] + m * x[target == of_class].mean(0)
    return means


def _all(means: Tensor, x: Tensor, target: Tensor, m: float) -> Tensor:
    """Each sample moves every mean."""
    for sample in x:
        means = (1 - m) * means + m * sample
    return means


def _last(means: Tensor, x: Tensor, target: Tensor, m: float) -> Tensor:
    """All at once, each sample from the old mean: of a class, the last one stays."""
    old, means = means, means.clone()
    for sample, of_class in zip(x, target.tolist(), strict=True):
        means[of_class] = (1 - m) * old[of_class] + m * sample
    return means


ON_THE_FIRST_PAGE = (
    Exercise(
        "dnrt-1",
        offset,
        mistakes={
            "That is the sum of the weights: each weighs its element of x.": lambda: sum(WEIGHT),
            "That is the mean over the elements; the offset is their sum.": lambda: offset() / len(VECTOR),
            "That is what the last element's gate sees, x + c, or the bias alone; asked is c.": (
                lambda: VECTOR[-1] + offset()
            ),
            "That is what the first element's gate sees, x + c; asked is c alone.": lambda: VECTOR[0] + offset(),
            "That is the sum of the elements; each has a weight.": lambda: sum(VECTOR),
        },
    ),
    Exercise(
        "dnrt-2",
        raa,
        tokens,
        mistakes={
            "The offset also moves what the gate multiplies; that is x itself.": (
                lambda x, w, b: _shifted(x, w, b) * normal(_shifted(x, w, b))
            ),
            "The gate sees the offset alone; it sees x and the offset.": (
                lambda x, w, b: x * normal(_shifted(x, w, b) - x)
            ),
            "That is the gate. RAA multiplies x by it.": lambda x, w, b: normal(_shifted(x, w, b)),
            "The bias is missing.": lambda x, w, b: raa(x, w, torch.zeros_like(b)),
            "The offset has no sum: each element sees only itself, as in the version with a line for each element.": (
                lambda x, w, b: x * normal(x + w * x + b)
            ),
            "The offset is a mean; it is a sum over the elements.": lambda x, w, b: raa(x, w / len(w), b),
            "The offset is summed over tokens too: each token has its own.": (
                lambda x, w, b: x * normal(x + (x * w).sum((1, 2), keepdim=True) + b)
            ),
            "The offset has the wrong sign.": lambda x, w, b: raa(x, -w, -b),
            "There is no offset: that is GELU.": lambda x, w, b: x * normal(x),
            "The gate is the sigmoid; it is Φ.": lambda x, w, b: raa(x, w, b, gate="silu"),
            "The gate is a step; it is Φ.": lambda x, w, b: raa(x, w, b, gate="relu"),
        },
    ),
    Exercise(
        "dnrt-3",
        updated,
        batches,
        mistakes={
            "Each class moves once, to the mean of its samples; it moves for every sample.": _once,
            "Samples of one class do not see each other: every one starts from the old mean, and the last one stays.": (
                _last
            ),
            "The batch is taken from its end.": lambda means, x, target, m: updated(
                means, x.flip(0), target.flip(0), m
            ),
            "The weights of mean and sample are exchanged.": (
                lambda means, x, target, m: updated(means, x, target, 1 - m)
            ),
            "The means are the old ones: nothing was updated.": lambda means, x, target, m: means,
            "Every class moves; a sample moves the mean of its own class only.": _all,
            "The old mean does not shrink: it has the weight 1 − m.": (
                lambda means, x, target, m: means.index_add(0, target, m * x)
            ),
        },
    ),
)

# --- page dnrt-derivation ---------------------------------------------------------------------------------------------


def slope_by_another(x: Tensor, weight: Tensor, bias: Tensor, i: int, j: int) -> Tensor:
    """∂ RAA_i / ∂x_j for i ≠ j, by autograd; i and j count from 0."""
    x = x.requires_grad_()
    return torch.autograd.grad(raa(x, weight, bias)[i], x)[0][j]


def slopes() -> Iterator[tuple[Tensor, Tensor, Tensor, int, int]]:
    """x and weight (d,), bias (1,), i and j."""
    for seed, (i, j) in enumerate([(0, 1), (2, 0), (1, 2), (0, 2)]):
        yield _drawn(3, seed=seed), _drawn(3, seed=10 + seed), _drawn(1, seed=20 + seed), i, j


def _at(expression: Any, x: Tensor, weight: Tensor, bias: Tensor, i: int, j: int) -> Any:
    """Put x and weights into an expression in the names of the registry; its indices count from 1, its gate is Φ."""
    from companion.dnrt.study import formulas
    from companion.study import symbolic

    written = formulas.written_out(expression.subs({formulas.i: i + 1, formulas.j: j + 1}), len(x))
    written = written.replace(formulas.slope, formulas.density).replace(formulas.s, formulas.normal)
    values: dict[Any, float] = {formulas.b: bias.item()}
    for index in range(len(x)):
        values |= {formulas.x[index + 1]: x[index].item(), formulas.w[index + 1]: weight[index].item()}
    return symbolic.expand(written).subs(values)


def _u(x: Tensor, weight: Tensor, bias: Tensor, i: int) -> Tensor:
    return x[i] + x @ weight + bias[0]


def deviations() -> Iterator[tuple[float]]:
    """σ."""
    return iter([(1.0,), (0.5,), (3.0,)])


def distance(sigma: float) -> float:
    """E|x − μ| of a normal x, by the trapezoidal rule."""
    z = torch.linspace(0, 12, 20_001, dtype=torch.float64)
    return 2 * sigma * torch.trapezoid(z * density(z), z).item()


def distances() -> Iterator[tuple[float, float]]:
    """σ and m."""
    return iter([(1.0, 0.1), (1.5, 0.1), (1.5, 0.5), (0.5, 1.0), (1.5, 1.0), (0.5, 0.1)])


def moving_distance(sigma: float, m: float) -> float:
    """E|x − mean| of a normal x that the mean has not seen; the mean weighs old samples m(1 − m)^t."""
    weights = m * (1 - m) ** torch.arange(2000, dtype=torch.float64)
    return distance(sigma) * math.sqrt(1 + weights.square().sum().item())


def forgotten_after() -> int:
    """The number of further samples after which the first one weighs less than a hundredth, at m = 0.1."""
    samples, weight = 0, 1.0
    while weight >= 0.01:
        samples, weight = samples + 1, weight * (1 - 0.1)
    return samples


ON_THE_SECOND_PAGE = (
    Exercise(
        "dnrt-derivation-1",
        slope_by_another,
        slopes,
        mistakes={
            "That is the slope of another element's gate: the weight of x_j, but x_i and u_i.": (
                lambda x, w, b, i, j: w[j] * x[j] * density(_u(x, w, b, j))
            ),
            "The weight is that of x_i; what moves is x_j.": (
                lambda x, w, b, i, j: w[i] * x[i] * density(_u(x, w, b, i))
            ),
            "The factor is x_j; the gate multiplies x_i.": lambda x, w, b, i, j: w[j] * x[j] * density(_u(x, w, b, i)),
            "The factor x_i is missing: the gate multiplies it.": lambda x, w, b, i, j: w[j] * density(_u(x, w, b, i)),
            "The weight w_j is missing: the offset moves by it.": lambda x, w, b, i, j: x[i] * density(_u(x, w, b, i)),
            "The gate stands where its slope belongs.": lambda x, w, b, i, j: w[j] * x[i] * normal(_u(x, w, b, i)),
            "The slope is that of the logistic function; the gate is Φ.": (
                lambda x, w, b, i, j: w[j] * x[i] * torch.sigmoid(_u(x, w, b, i)) * torch.sigmoid(-_u(x, w, b, i))
            ),
            "That is how far the offset moves; asked is how far y_i does.": lambda x, w, b, i, j: w[j],
            "The gate itself was added; x_i does not move when x_j does.": (
                lambda x, w, b, i, j: normal(_u(x, w, b, i)) + w[j] * x[i] * density(_u(x, w, b, i))
            ),
            "x_i moves in its own gate too: that is only so for i = j.": (
                lambda x, w, b, i, j: (1 + w[j]) * x[i] * density(_u(x, w, b, i))
            ),
            "Those are all parts for i = j; here j is another.": (
                lambda x, w, b, i, j: normal(_u(x, w, b, i)) + (1 + w[j]) * x[i] * density(_u(x, w, b, i))
            ),
            "The slope is taken at x_i; the gate is at x_i + c.": lambda x, w, b, i, j: w[j] * x[i] * density(x[i]),
            "The slope is taken at c; the gate is at x_i + c.": (
                lambda x, w, b, i, j: w[j] * x[i] * density(_u(x, w, b, i) - x[i])
            ),
            "The slope is taken in the gate of x_j; y_i has a gate of its own.": (
                lambda x, w, b, i, j: w[j] * x[i] * density(_u(x, w, b, j))
            ),
            "The bias is missing in the gate.": (
                lambda x, w, b, i, j: w[j] * x[i] * density(_u(x, w, torch.zeros_like(b), i))
            ),
        },
        evaluate=_at,
        names="those of companion.dnrt.study.formulas: x[i], x[j], w[i], w[j], b, c, normal, density, s, slope",
    ),
    Exercise(
        "dnrt-derivation-2",
        distance,
        deviations,
        mistakes={
            "That is the standard deviation, the root of the mean square; asked is the mean distance.": (
                lambda sigma: sigma
            ),
            "That is the variance; asked is the mean distance.": lambda sigma: sigma**2,
            "That is one side of the mean only: values below it are as far.": lambda sigma: distance(sigma) / 2,
            "What stands under the root is upside down: the mean distance is less than the deviation.": (
                lambda sigma: sigma**2 / distance(sigma)
            ),
        },
    ),
    Exercise(
        "dnrt-derivation-3",
        moving_distance,
        distances,
        mistakes={
            "That is the distance to the true mean; the moving mean has a spread of its own.": (
                lambda sigma, m: distance(sigma)
            ),
            "That is how far the moving mean is from the true one; x has its own spread besides.": (
                lambda sigma, m: distance(sigma) * math.sqrt(m / (2 - m))
            ),
            "Variances add up, and the distance goes with their root.": (
                lambda sigma, m: distance(sigma) * 2 / (2 - m)
            ),
            "Distances do not add up; variances do.": (lambda sigma, m: distance(sigma) * (1 + math.sqrt(m / (2 - m)))),
            "Variances of independent numbers add up, those of a difference too.": (
                lambda sigma, m: distance(sigma) * math.sqrt(1 - m / (2 - m))
            ),
            "The weights were added up as they are; in a variance each is squared.": (
                lambda sigma, m: distance(sigma) * math.sqrt(2)
            ),
            "Only m was squared; a weight is m times a power of 1 − m.": (
                lambda sigma, m: distance(sigma) * math.sqrt(1 + m)
            ),
            "Only the power of 1 − m was squared; a weight is m times that.": (
                lambda sigma, m: distance(sigma) * math.sqrt(1 + 1 / (2 - m))
            ),
            "Only the newest sample's share of the mean was counted; the older ones move it too.": (
                lambda sigma, m: distance(sigma) * math.sqrt(1 + m**2)
            ),
            "That is the variance of the difference x − μ; asked is its mean size.": (
                lambda sigma, m: 2 * sigma**2 / (2 - m)
            ),
            "That is the distance after the update; asked is the one to the mean that the sample meets.": (
                lambda sigma, m: (1 - m) * moving_distance(sigma, m)
            ),
            "The newest sample in the mean was left out: ages count from 0.": (
                lambda sigma, m: distance(sigma) * math.sqrt(1 + m * (1 - m) ** 2 / (2 - m))
            ),
        },
    ),
    Exercise(
        "dnrt-derivation-4",
        forgotten_after,
        mistakes={
            "At that many it still weighs a little more than a hundredth.": lambda: forgotten_after() - 1,
            "There it weighs exactly a hundredth. Samples are whole, and it is to weigh less.": (
                lambda: math.log(0.01) / math.log(1 - 0.1)
            ),
            "That is for a later sample, whose weight was m at the start; the first one's was the whole mean.": (
                lambda: math.ceil(math.log(0.01 / 0.1) / math.log(1 - 0.1))
            ),
        },
        tolerance=5e-4,  # also of an answer that is not whole, and given to a tenth
    ),
)

# --- page dnrt-kernel -------------------------------------------------------------------------------------------------


def bytes_an_element() -> int:
    """Of RAA forward in float16: x is read once, y written once."""
    return 2 * torch.float16.itemsize


PACKS = 768 * torch.float16.itemsize // 16
"""Of 16 bytes, in a row of 768 numbers in float16."""


def lanes() -> int:
    """Those that hold this row."""
    return row_plan(1, 768, torch.float16.itemsize).lanes


def packs_a_lane() -> int:
    """Packs that each of them holds."""
    return PACKS // lanes()


def slope_sum(grad: Tensor, x: Tensor, offset: Tensor) -> Tensor:
    """H of every row: the gradient of an offset."""
    offset = offset.requires_grad_()
    no_weight = x.new_zeros(x.shape[1])
    y = torch.stack([raa(row, no_weight, c) for row, c in zip(x, offset, strict=True)])
    return torch.autograd.grad(y, offset, grad)[0]


def _with_exponent(grad: Tensor, x: Tensor, offset: Tensor, factor: float) -> Tensor:
    """H, with another factor than −½ before the square."""
    u = x + offset[:, None]
    return (grad * x * torch.exp(factor * u * u)).sum(1) / math.sqrt(2 * math.pi)


def rows() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """grad and x (N, d), offset (N,)."""
    for seed, (count, d) in enumerate([(2, 3), (4, 4), (3, 6)]):
        yield _drawn(count, d, seed=seed), _drawn(count, d, seed=10 + seed), _drawn(count, seed=20 + seed)


ON_THE_THIRD_PAGE = (
    Exercise(
        "dnrt-kernel-1",
        bytes_an_element,
        mistakes={
            "That is float32.": lambda: 2 * torch.float32.itemsize,
            "That is x alone; y is written too.": lambda: torch.float16.itemsize,
            "The row stays in registers: x is read once, not twice.": lambda: 3 * torch.float16.itemsize,
            "That is float32, and x is read once, not twice.": lambda: 3 * torch.float32.itemsize,
            "That is what torch's operations move, each for itself.": lambda: 14 * torch.float16.itemsize,
            "Those are the bytes of a pack; asked are those that move for one element.": lambda: 16,
            "One element alone has more than that.": lambda: 1,
            "Those are bits.": lambda: 8 * bytes_an_element(),
            "Those are the bytes of a whole row; asked are those of one element.": lambda: 768 * bytes_an_element(),
            "Those are the bytes of x in a whole row; asked are those that move for one element.": (
                lambda: 768 * torch.float16.itemsize
            ),
        },
    ),
    Exercise(
        "dnrt-kernel-2",
        packs_a_lane,
        mistakes={
            # of one number two readings: 96 packs / 4, and 8 elements of every pack
            "Those are lanes before they become a power of two, or the elements of a lane; asked are its packs.": (
                lambda: PACKS // SHORT_PACKS
            ),
            "Those are the lanes; asked is what each of them holds.": lanes,
            "That is the most that such a lane may hold. The lanes are a power of two, so these hold fewer.": (
                lambda: SHORT_PACKS
            ),
            "So many a lane holds only where a row is too long for the first line of the table; this one is not.": (
                lambda: MOST_PACKS
            ),
            "That is more than any thread holds: the row wants more lanes.": lambda: PACKS // 8,
            "With so few packs in each, the row would need more lanes than a warp has.": lambda: 2,
            "The row has more packs than a warp has lanes: each holds several.": lambda: 1,
            "That is float32: in float16 a pack holds twice as many elements.": lambda: 2 * packs_a_lane(),
            "Those are the packs of the whole row; the lanes share them.": lambda: PACKS,
        },
    ),
    Exercise(
        "dnrt-kernel-3",
        slope_sum,
        rows,
        mistakes={
            "The factor x is missing from h.": lambda g, x, c: (g * density(x + c[:, None])).sum(1),
            "The gradient g is missing from h.": lambda g, x, c: (x * density(x + c[:, None])).sum(1),
            "The gate stands where its slope belongs.": lambda g, x, c: (g * x * normal(x + c[:, None])).sum(1),
            "The slope is taken at x; the gate is at x + c.": lambda g, x, c: (g * x * density(x)).sum(1),
            "The offset is subtracted; the gate is at x + c.": lambda g, x, c: (g * x * density(x - c[:, None])).sum(1),
            "The exponent of the slope lacks its half.": lambda g, x, c: _with_exponent(g, x, c, -1.0),
            "The exponent of the slope lacks its minus.": lambda g, x, c: _with_exponent(g, x, c, 0.5),
            "Those are the h; H is their sum along a row.": lambda g, x, c: g * x * density(x + c[:, None]),
            "The sum runs over the rows; it runs along each.": lambda g, x, c: (g * x * density(x + c[:, None])).sum(0),
            "That is the mean of the h; H is their sum.": lambda g, x, c: slope_sum(g, x, c) / x.shape[1],
        },
    ),
)

# --- page arr-kernel --------------------------------------------------------------------------------------------------

#: Classes in the batch, samples, and blocks a sample.
CLASSES, SAMPLES, STRIPS = 10, 256, 3

MOMENTUM = 0.1


def working_blocks() -> int:
    """Those of ARR's forward launch that follow a class."""
    return CLASSES * STRIPS


def first_of_four() -> float:
    """The weight of the first sample of a class in the mean that the fourth one meets."""
    unit = torch.eye(4, dtype=torch.float64)
    return met(unit.new_zeros(1, 4), unit, torch.zeros(4, dtype=torch.int64), MOMENTUM)[3, 0].item()


def met(means: Tensor, x: Tensor, target: Tensor, m: float) -> Tensor:
    """The mean that each sample meets, (N, d), if the batch is followed in its order."""
    return follow(x, target, means, torch.ones(len(means), dtype=torch.bool), m, from_first=False).before


def _product(
    means: Tensor,
    x: Tensor,
    target: Tensor,
    m: float,
    *,
    by_place: bool = False,
    all_classes: bool = False,
    exponent: int = -1,
    shrink: bool = True,
) -> Tensor:
    """The same as one product, with a mistake in it where one is asked for."""
    same = torch.ones(len(x), len(x), dtype=torch.bool) if all_classes else target[:, None] == target
    counts = same.tril(-1)
    rank = torch.arange(len(x)) if by_place else counts.sum(1)
    keep = x.new_tensor(1 - m)
    weights = torch.where(counts, m * keep ** (rank[:, None] - rank + exponent).clamp(min=0), 0)
    return (keep ** counts.sum(1)[:, None] if shrink else 1) * means[target] + weights @ x


ON_THE_FOURTH_PAGE = (
    Exercise(
        "arr-kernel-1",
        working_blocks,
        mistakes={
            "Those are all that are launched; the blocks of most samples end at once.": lambda: SAMPLES * STRIPS,
            "Those are the ones that end at once.": lambda: (SAMPLES - CLASSES) * STRIPS,
            "Each class has a block for every strip of columns.": lambda: CLASSES,
            "Those are the samples. Most of them do not lead their class.": lambda: SAMPLES,
            "Those are the blocks of one class.": lambda: STRIPS,
        },
    ),
    Exercise(
        "arr-kernel-2",
        first_of_four,
        mistakes={
            "That is its weight in the mean that the fourth one leaves.": lambda: MOMENTUM * (1 - MOMENTUM) ** 3,
            "That is what is left of the mean from before the batch.": lambda: (1 - MOMENTUM) ** 3,
            "So much it weighs in the mean that the second one meets; two more have moved it since.": lambda: MOMENTUM,
            "So much it weighs in the mean that the third one meets.": lambda: MOMENTUM * (1 - MOMENTUM),
            "That is how much of its weight is left; the weight was m at first.": lambda: (1 - MOMENTUM) ** 2,
        },
    ),
    Exercise(
        "arr-kernel-3",
        met,
        batches,
        mistakes={
            "Those are the means that the samples leave; asked are those that they meet.": (
                lambda means, x, target, m: torch.lerp(met(means, x, target, m), x, m)
            ),
            "Those are the means from before the batch: no sample has moved them.": (
                lambda means, x, target, m: means[target]
            ),
            "Samples of other classes count, too.": (
                lambda means, x, target, m: _product(means, x, target, m, all_classes=True)
            ),
            "The exponent counts all samples in between; only those of the class move its mean.": (
                lambda means, x, target, m: _product(means, x, target, m, by_place=True)
            ),
            "The exponent is one too large: the sample before weighs m, and not m (1 − m).": (
                lambda means, x, target, m: _product(means, x, target, m, exponent=0)
            ),
            "The old mean does not shrink: each sample before takes a share of it.": (
                lambda means, x, target, m: _product(means, x, target, m, shrink=False)
            ),
            "The old mean is missing.": (lambda means, x, target, m: _product(torch.zeros_like(means), x, target, m)),
            "The batch is taken from its end: later samples count, and not earlier ones.": (
                lambda means, x, target, m: met(means, x.flip(0), target.flip(0), m).flip(0)
            ),
        },
    ),
)

EXERCISES = ON_THE_FIRST_PAGE + ON_THE_SECOND_PAGE + ON_THE_THIRD_PAGE + ON_THE_FOURTH_PAGE
