"""The exercises on LayerAct's pages: the right answers, and the mistakes that have words of their own."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from companion.cuda.rows import row_plan
from companion.layeract.op import la_hardsilu, la_silu, layer_act
from companion.study.exercises import Exercise

__all__ = ["EXERCISES"]

ALPHA = 1e-5


def _drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _sigmoid(n: float) -> float:
    return 1 / (1 + math.exp(-n))


# --- page layeract ----------------------------------------------------------------------------------------------------

UNITS = 45
"""Of the second exercise's layer."""


def most_closed() -> int:
    """The most gates that LA-HardSiLU closes in a row of so many elements, each of them one of two numbers."""
    rows = -torch.ones(UNITS - 1, UNITS, dtype=torch.float64).tril()
    return int(((la_hardsilu(rows) == 0) & (rows < 0)).sum(1).max())


def tokens() -> Iterator[tuple[Tensor]]:
    """y (N, T, C): in the second one a token that varies little, in the third one that does not vary."""
    for seed, shape in enumerate([(2, 3, 4), (3, 2, 5), (2, 5, 7)]):
        y = _drawn(*shape, seed=seed)
        if seed == 1:
            y[0, 0] = 2 + 0.003 * y[0, 0]
        if seed == 2:
            y[0, 0] = 2.0
        yield (y,)


def per_token(y: Tensor) -> Tensor:
    """LA-SiLU of each token by itself."""
    return la_silu(y, dims=-1)


def _normalised(y: Tensor) -> Tensor:
    return F.layer_norm(y, y.shape[-1:], eps=ALPHA)


def _centred(y: Tensor) -> Tensor:
    return y - y.mean(-1, keepdim=True)


def _variance(y: Tensor) -> Tensor:
    return y.var(-1, correction=0, keepdim=True)


def sequences() -> Iterator[tuple[Tensor]]:
    """y (T, C); the first one is one token long."""
    for seed, shape in enumerate([(1, 4), (3, 2), (5, 3), (4, 6)]):
        yield (_drawn(*shape, seed=20 + seed) + seed,)


def causal(y: Tensor) -> Tensor:
    """LA-SiLU whose row is all channels of a token and of those before it."""
    return torch.stack([layer_act(y[None, : t + 1])[0, t] for t in range(len(y))])


def _gated(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return y * torch.sigmoid((y - mean) / (variance + ALPHA).sqrt())


def _running(x: Tensor) -> Tensor:
    """The mean over all channels of all tokens so far, (T, 1)."""
    return x.mean(1).cumsum(0)[:, None] / torch.arange(1, len(x) + 1, dtype=x.dtype)[:, None]


def _of_the_past(y: Tensor) -> Tensor:
    before = [y[:t].flatten() for t in range(1, len(y))]
    later = [_gated(each, row.mean(), row.var(correction=0)) for each, row in zip(y[1:], before, strict=True)]
    return torch.stack([math.nan * y[0], *later])


def _by_channel(y: Tensor) -> Tensor:
    return torch.stack([la_silu(y[: t + 1], dims=0)[t] for t in range(len(y))])


ON_THE_FIRST_PAGE = (
    Exercise(
        "layeract-1",
        per_token,
        tokens,
        mistakes={
            "The tokens of a sequence share one row: a gate sees the tokens after it.": la_silu,
            "The whole batch is one row; each token is one.": lambda y: la_silu(y, dims=(0, 1, 2)),
            "Each channel is normalised over the tokens; a row is the channels of one token.": (
                lambda y: la_silu(y, dims=1)
            ),
            "The variance is divided by d − 1, which torch.var does unless told otherwise; the paper divides by d.": (
                lambda y: la_silu(y, dims=-1, unbiased=True)
            ),
            "The gate multiplies n; it multiplies y. That is SiLU after LayerNorm.": lambda y: F.silu(_normalised(y)),
            "That is the gate. LA-SiLU multiplies y by it.": lambda y: torch.sigmoid(_normalised(y)),
            "The gate sees y itself: that is SiLU.": F.silu,
            "It divides by the variance; the deviation is its root.": (
                lambda y: y * torch.sigmoid(_centred(y) / (_variance(y) + ALPHA))
            ),
            "The mean is not subtracted.": lambda y: y * torch.sigmoid(y / (_variance(y) + ALPHA).sqrt()),
            "The deviation is missing: the gate sees y − μ.": lambda y: y * torch.sigmoid(_centred(y)),
            "α is missing: a row of equal numbers is zero over zero.": (
                lambda y: y * torch.sigmoid(_centred(y) / _variance(y).sqrt())
            ),
            "α stands outside the root; it is added to the variance.": (
                lambda y: y * torch.sigmoid(_centred(y) / (_variance(y).sqrt() + ALPHA))
            ),
            "The gate is the hard sigmoid: that is LA-HardSiLU.": lambda y: la_hardsilu(y, dims=-1),
        },
    ),
    Exercise(
        "layeract-2",
        most_closed,
        mistakes={
            "That is half of them, as ReLU closes in a symmetric row; here a tenth is the limit.": lambda: UNITS // 2,
            "Units are whole.": lambda: UNITS / 10,
            "That is more than a tenth.": lambda: UNITS // 10 + 1,
            "So it is with ten units or fewer; this layer is larger.": lambda: 0,
            "Those stay open; asked are those that close.": lambda: UNITS - most_closed(),
            "ReLU can close so many. Here low elements draw the mean down with them.": lambda: UNITS - 1,
            "All of them cannot lie below their own mean.": lambda: UNITS,
        },
    ),
    Exercise(
        "layeract-3",
        causal,
        sequences,
        mistakes={
            "Every token sees the whole sequence, also what comes after it.": lambda y: la_silu(y[None])[0],
            "A token sees itself alone; it may see those before it, too.": per_token,
            "A token sees those before it, but not itself.": _of_the_past,
            "Each channel has statistics of its own; a row is all channels.": _by_channel,
            "Each deviation is taken from the mean of its own time; now all are taken from the mean of now.": (
                lambda y: _gated(y, _running(y), _running((y - _running(y)) ** 2))
            ),
            "The variance is the mean of the squares; the square of the mean is missing.": (
                lambda y: _gated(y, _running(y), _running(y**2))
            ),
            "The variance is that of the token alone.": lambda y: _gated(y, _running(y), _variance(y)),
            "The mean is that of the token alone.": (
                lambda y: _gated(y, y.mean(1, keepdim=True), _running(y**2) - _running(y) ** 2)
            ),
            "Each token sees those after it: the sequence is taken from its end.": lambda y: causal(y.flip(0)).flip(0),
            "The variance is divided by d − 1; the paper divides by d.": lambda y: torch.stack(
                [layer_act(y[None, : t + 1], unbiased=True)[0, t] for t in range(len(y))]
            ),
        },
    ),
)

# --- page layeract-derivation -----------------------------------------------------------------------------------------


def gate_of_a_pair() -> float:
    """Of the larger of two elements far apart, where the variance is divided by d − 1."""
    far = 1e6
    return (la_silu(torch.tensor([0.0, far], dtype=torch.float64), unbiased=True)[1] / far).item()


def thresholds() -> Iterator[tuple[float]]:
    """t of Cantelli's inequality."""
    return iter([(1.0,), (3.0,), (0.5,), (2.0,)])


def best_shift(t: float) -> float:
    """The c > 0 with the smallest (1 + c²)/(t + c)², by halving: left of it the quotient falls."""
    low, high = 1e-3, 1e3
    for _ in range(100):
        c = math.sqrt(low * high)
        # the derivative has the sign of c (t + c) − (1 + c²)
        low, high = (low, c) if c * (t + c) > 1 + c * c else (c, high)
    return low


def sentences() -> Iterator[tuple[Tensor, Tensor]]:
    """y (N, T, C) and valid (N, T): the first without padding, the last with infinite numbers in it."""
    for seed, shape in enumerate([(1, 2, 3), (2, 4, 5), (3, 3, 4)]):
        y = _drawn(*shape, seed=30 + seed)
        lengths = torch.arange(shape[1], shape[1] - shape[0], -1)
        valid = torch.arange(shape[1]) < lengths[:, None]
        y[~valid] = math.inf if seed == 2 else 0.5
        yield y, valid


def padded(y: Tensor, valid: Tensor) -> Tensor:
    """LA-SiLU of each token, and zero for padding."""
    return torch.where(valid[..., None], la_silu(torch.where(valid[..., None], y, 0.0), dims=-1), 0.0)


def mean_gate_slope(hard: bool) -> float:
    """E u s(u) for a standard normal u, by the trapezoidal rule."""
    u = torch.linspace(-12, 12, 48_001, dtype=torch.float64)
    density = torch.exp(-0.5 * u * u) / math.sqrt(2 * math.pi)
    return torch.trapezoid(u * (F.hardsigmoid(u) if hard else torch.sigmoid(u)) * density, u).item()


def place_of_zero() -> float:
    """The mean of a long normal row, in its deviations, where LA-HardSiLU's mean output is zero."""
    return -2 * mean_gate_slope(hard=True)


ON_THE_SECOND_PAGE = (
    Exercise(
        "layeract-derivation-1",
        gate_of_a_pair,
        mistakes={
            "That is with D = d; asked is D = d − 1.": lambda: _sigmoid(1.0),
            "That is the gate of the smaller one.": lambda: 1 - gate_of_a_pair(),
            "That is n; the gate is the sigmoid of it.": lambda: math.sqrt(0.5),
            "The mean lies between the two: each is half of the distance away from it.": (
                lambda: _sigmoid(math.sqrt(2))
            ),
            "That is the hard sigmoid's gate.": lambda: 0.5 + math.sqrt(0.5) / 6,
            "A gate would be open so far only for a far outlier among many; the square sum of the n is bounded.": (
                lambda: 1.0
            ),
            "So open it is at the mean.": lambda: 0.5,
        },
        tolerance=9e-4,
    ),
    Exercise(
        "layeract-derivation-2",
        best_shift,
        thresholds,
        mistakes={
            "It is upside down.": lambda t: t,
            "That is the bound; asked is the c that gives it.": lambda t: 1 / (1 + t * t),
            "That gives Chebyshev's bound. It gets better when the centre moves.": lambda t: 0.0,
            "That moves the centre towards the low elements: c is positive.": lambda t: -1 / t,
            "That is the square of it.": lambda t: 1 / t**2,
        },
    ),
    Exercise(
        "layeract-derivation-3",
        padded,
        sentences,
        mistakes={
            "The padding is not zero.": lambda y, valid: la_silu(y, dims=-1),
            "Zero times NaN is NaN: choose with torch.where, do not multiply.": (
                lambda y, valid: la_silu(y, dims=-1) * valid[..., None]
            ),
            "The tokens of a sentence share one row; each token is one.": lambda y, valid: torch.where(
                valid[..., None], la_silu(torch.where(valid[..., None], y, 0.0)), 0.0
            ),
            "The gate sees y itself: that is SiLU.": lambda y, valid: torch.where(valid[..., None], F.silu(y), 0.0),
            "The tokens are zero, and the padding is not.": lambda y, valid: torch.where(
                valid[..., None], 0.0, la_silu(y, dims=-1)
            ),
            "That is y without its padding; LA-SiLU is missing.": lambda y, valid: torch.where(
                valid[..., None], y, 0.0
            ),
        },
        differentiable=True,
    ),
    Exercise(
        "layeract-derivation-4",
        place_of_zero,
        mistakes={
            "That is LA-SiLU's place; asked is LA-HardSiLU's.": lambda: -2 * mean_gate_slope(hard=False),
            "That balances a whole mean; only half of a row's mean arrives in the output.": (
                lambda: -mean_gate_slope(hard=True)
            ),
            "That counts a slope of one sixth everywhere; beyond three deviations there is none.": lambda: -1 / 3,
            "That is the mean output of a row around zero; asked is which row has none.": (
                lambda: mean_gate_slope(hard=True)
            ),
        },
        tolerance=5e-4,
    ),
)

# --- page layeract-noise ----------------------------------------------------------------------------------------------

MANY, CRY, LISTENER = 100, 20.0, 1.0
"""Elements of a row with mean 0 and variance 1; what one of them becomes that was 0; where another one lies."""


def _listens(mean: float, variance: float) -> float:
    return _sigmoid((LISTENER - mean) / math.sqrt(variance))


def gate_beside_a_cry() -> float:
    """Of LA-SiLU, for the element of the row that lies at one deviation; the others make its variance 1."""
    rest = MANY - 4
    quiet = math.sqrt((MANY - 2 * LISTENER**2) / rest)
    row = torch.tensor([CRY, 0.0, LISTENER, -LISTENER, *[quiet, -quiet] * (rest // 2)], dtype=torch.float64)
    return (la_silu(row, alpha=1e-12)[2] / LISTENER).item()


def small_noises() -> Iterator[tuple[float]]:
    """t, of the noise (t, −t)."""
    return iter([(0.5,), (-1.5,), (2.0,), (0.1,)])


def mixed_term(t: float) -> float:
    """What the variance of (1, −1) + (t, −t) has beside both variances."""
    y, noise = (torch.tensor([x, -x], dtype=torch.float64) for x in (1.0, t))
    both, *alone = (x.var(correction=0).item() for x in (y + noise, y, noise))
    return both - sum(alone)


def noisy_rows() -> Iterator[tuple[Tensor]]:
    """y (d,), around zero and far from it."""
    for seed, (units, mean) in enumerate([(3, 0.0), (5, 4.0), (8, -2.0)]):
        yield (_drawn(units, seed=60 + seed) + mean,)


def _jacobian(y: Tensor) -> Tensor:
    """∂a_i/∂y_j of LA-SiLU, in row i and column j."""
    n = _normalised(y)
    gate, rstd = torch.sigmoid(n), 1 / (_variance(y) + ALPHA).sqrt()
    inner = torch.eye(len(y), dtype=y.dtype) - 1 / len(y) - n[:, None] * n / len(y)
    return torch.diag(gate) + rstd * (y * gate * (1 - gate))[:, None] * inner


def restless(y: Tensor) -> Tensor:
    """The relative fluctuation for a small noise on one element, for each element."""
    return _jacobian(y).abs().sum(0)


ON_NOISE = (
    Exercise(
        "layeract-noise-1",
        gate_beside_a_cry,
        mistakes={
            "The variance moves, too.": lambda: _listens(CRY / MANY, 1.0),
            "The mean moves, too.": lambda: _listens(0.0, 1 + CRY**2 / MANY - (CRY / MANY) ** 2),
            "So far it was open before the cry.": lambda: _listens(0.0, 1.0),
            "That is n; the gate is the sigmoid of it.": (
                lambda: (LISTENER - CRY / MANY) / math.sqrt(1 + CRY**2 / MANY - (CRY / MANY) ** 2)
            ),
            "It divides by the variance; the deviation is its root.": (
                lambda: _listens(CRY / MANY, (1 + CRY**2 / MANY - (CRY / MANY) ** 2) ** 2)
            ),
        },
        tolerance=9e-4,
    ),
    Exercise(
        "layeract-noise-2",
        mixed_term,
        small_noises,
        mistakes={
            "That is the variance of the noise; asked is what is missing beside it.": lambda t: t * t,
            "That is the whole variance of the noisy row.": lambda t: (1 + t) ** 2,
            "That would be zero on average over independent noise; this noise goes along with the row.": lambda t: 0.0,
            "The variance of the noise is in it still.": lambda t: 2 * t + t * t,
        },
    ),
    Exercise(
        "layeract-noise-3",
        restless,
        noisy_rows,
        mistakes={
            "That is how much each output moves; add up the outputs for each input: the other dimension.": (
                lambda y: _jacobian(y).abs().sum(1)
            ),
            "Moves that cancel count, too: absolute values before the sum.": lambda y: _jacobian(y).sum(0).abs(),
            "The absolute values are missing.": lambda y: _jacobian(y).sum(0),
            "Only the element's own output is in it.": lambda y: _jacobian(y).diag().abs(),
            "Its own output is missing.": lambda y: _jacobian(y).abs().sum(0) - _jacobian(y).diag().abs(),
            "The squares are added up; the fluctuation adds absolute values.": lambda y: _jacobian(y).norm(dim=0),
            "That is the mean over the outputs; the fluctuation is a sum.": lambda y: _jacobian(y).abs().mean(0),
        },
    ),
)

# --- page layeract-kernel ---------------------------------------------------------------------------------------------

LENGTH = 100_000
"""Of the rows of the first exercise, in bfloat16."""


def bytes_an_element() -> int:
    """Of the backward pass: y and its gradient are read twice if no block holds the row, ∂L/∂y is written once."""
    size = torch.bfloat16.itemsize
    readings = 2 if row_plan(1, LENGTH, size).kind == "long" else 1
    return (2 * readings + 1) * size


MEAN = 1e5
"""Of the row of the second exercise, in deviations."""


def _spacing(value: float) -> float:
    """The distance of a float32 number from the next larger one."""
    x = torch.tensor(value, dtype=torch.float32)
    return (torch.nextafter(x, x + 1) - x).item()


def largest_error() -> float:
    """Of n, if the mean is rounded to float32 and nothing else."""
    return _spacing(MEAN) / 2


def chunks() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """mean, squares and length of every chunk, (C,): first chunks of one length, then chunks of one mean."""
    for seed, lengths in enumerate([(4, 4), (6, 6, 3), (8, 2), (5, 5, 5, 2)]):
        mean = _drawn(len(lengths), seed=40 + seed) + 3
        if seed == 1:
            mean[:] = 2.0
        length = torch.tensor(lengths, dtype=torch.float64)
        yield mean, _drawn(len(lengths), seed=50 + seed).square() * length, length


def joined(mean: Tensor, squares: Tensor, length: Tensor) -> Tensor:
    """Mean and variance of the row that the chunks make."""
    d = length.sum()
    whole = (length * mean).sum() / d
    return torch.stack([whole, (squares + length * (mean - whole) ** 2).sum() / d])


def _unweighted(mean: Tensor, squares: Tensor, length: Tensor) -> Tensor:
    return torch.stack([mean.mean(), (squares + length * (mean - mean.mean()) ** 2).sum() / length.sum()])


def _but(of: Tensor, variance: Tensor) -> Tensor:
    """The same mean with another variance."""
    return torch.stack([of[0], variance])


ON_THE_THIRD_PAGE = (
    Exercise(
        "layeract-kernel-1",
        bytes_an_element,
        mistakes={
            "So much moves where a row is held. No block holds this one.": lambda: 3 * torch.bfloat16.itemsize,
            "That is float32.": lambda: 2 * bytes_an_element(),
            "That is float32, for a row that is held.": lambda: 3 * torch.float32.itemsize,
            "The result is written, too.": lambda: 4 * torch.bfloat16.itemsize,
            "That is the forward pass of a row that is held.": lambda: 2 * torch.bfloat16.itemsize,
            "Those are tensors; each of their elements has two bytes.": lambda: 5,
            "One tensor alone moves that.": lambda: torch.bfloat16.itemsize,
            "Those are bits.": lambda: 8 * bytes_an_element(),
            "Those are the bytes of the whole row.": lambda: LENGTH * bytes_an_element(),
        },
    ),
    Exercise(
        "layeract-kernel-2",
        largest_error,
        mistakes={
            "That is the distance of neighbours; the nearer one is half of it away at most.": lambda: _spacing(MEAN),
            "That is a mean of ten thousand deviations; asked is ten times that.": lambda: _spacing(1e4) / 2,
            "So far apart are numbers near ten thousand.": lambda: _spacing(1e4),
            "That is a bound for any number of this size; the neighbours of this one are nearer.": (
                lambda: MEAN * 2.0**-24
            ),
            "That is the machine epsilon times the mean: a bound on the distance of neighbours.": (
                lambda: MEAN * 2.0**-23
            ),
            "That is the relative rounding error; the deviation is the unit here.": lambda: 2.0**-24,
        },
        tolerance=5e-4,
    ),
    Exercise(
        "layeract-kernel-3",
        joined,
        chunks,
        mistakes={
            "The means are averaged without their lengths.": _unweighted,
            "The means are averaged without their lengths, and their spread is missing from the variance.": (
                lambda mean, squares, length: torch.stack([mean.mean(), squares.sum() / length.sum()])
            ),
            "The chunks' means differ, and that is missing from the variance.": lambda mean, squares, length: _but(
                joined(mean, squares, length), squares.sum() / length.sum()
            ),
            "That is the spread of the chunks' means alone; within the chunks there is one, too.": (
                lambda mean, squares, length: joined(mean, torch.zeros_like(squares), length)
            ),
            "The spread of the means is not weighted with the lengths.": lambda mean, squares, length: _but(
                joined(mean, squares, length),
                (squares + (mean - (length * mean).sum() / length.sum()) ** 2).sum() / length.sum(),
            ),
            "That is the sum of squares; the variance is their mean.": lambda mean, squares, length: _but(
                joined(mean, squares, length), joined(mean, squares, length)[1] * length.sum()
            ),
            "The variance is divided by d − 1; here D = d.": lambda mean, squares, length: _but(
                joined(mean, squares, length), joined(mean, squares, length)[1] * length.sum() / (length.sum() - 1)
            ),
            "That is the deviation; asked is the variance.": lambda mean, squares, length: _but(
                joined(mean, squares, length), joined(mean, squares, length)[1].sqrt()
            ),
        },
    ),
)

EXERCISES = ON_THE_FIRST_PAGE + ON_THE_SECOND_PAGE + ON_NOISE + ON_THE_THIRD_PAGE
