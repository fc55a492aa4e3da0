"""The exercises on APA's pages: the right answers, and the mistakes that have words of their own."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from companion.apa.op import aglu, apa
from companion.cuda.rows import Layout, layout_plan
from companion.study.analysis import interval, paired
from companion.study.exercises import Exercise

__all__ = ["EXERCISES"]


def _drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


# --- page apa ---------------------------------------------------------------------------------------------------------

#: λ of the first exercise, where κ = 1.
LAM = 3.0


def height_at_zero() -> float:
    """η(0, 1, 3), from the registered formula."""
    from companion.study import symbolic

    values = {symbolic.z: 0, symbolic.kappa: 1, symbolic.lam: int(LAM)}
    return float(symbolic.get("apa-eta").rhs.subs(values))


def absorbed(w: Tensor, b: Tensor, v: Tensor, kappa: Tensor) -> Tensor:
    """The weights w, b and v with which v AGLU(wx + b, 1, λ) is what it was with κ."""
    return torch.stack([kappa * w, kappa * b, v / kappa])


def units() -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """w, b, v and κ; first with κ = 1, where nothing changes."""
    for seed, kappa in enumerate([1.0, 2.0, 0.4, -1.5]):
        w, b, v = _drawn(3, seed=seed)
        yield w, b, v, _number(kappa)


def half_width(a: Tensor, b: Tensor) -> float:
    """Of the 95 % interval of the mean of a − b."""
    return paired(a.tolist(), b.tolist())[0].half_width


def accuracies() -> Iterator[tuple[Tensor, Tensor]]:
    """Two lists of accuracies, seed by seed: what a seed does to one it does to the other."""
    for seed, n in enumerate([5, 8, 20]):
        shared = 90 + 2 * _drawn(n, seed=seed)
        yield shared + 0.3 * _drawn(n, seed=10 + seed), shared + 0.2 + 0.3 * _drawn(n, seed=20 + seed)


def _student(n: int) -> float:
    """Student's factor: by how much the half-width exceeds the standard error of n numbers."""
    numbers = [float(k) for k in range(n)]
    error = torch.tensor(numbers).double().std().item() / math.sqrt(n)
    return interval(numbers).half_width / error


ON_THE_FIRST_PAGE = (
    Exercise(
        "apa-1",
        height_at_zero,
        mistakes={
            "That is the sigmoid's height, with λ = 1.": lambda: 0.5,
            "The exponent lacks its minus: a gate is never above one.": lambda: (1 + LAM) ** (1 / LAM),
            "The exponent is −λ; it is −1/λ.": lambda: (1 + LAM) ** -LAM,
            "The exponent 1/λ is missing.": lambda: 1 / (1 + LAM),
            "λ is missing before the power of e: at z = 0 it is all that is added to the one.": (
                lambda: 2 ** (-1 / LAM)
            ),
            "That is the height in the limit λ → 0.": lambda: math.exp(-1),
            "That is AGLU, the input times its gate; asked is the gate.": lambda: 0.0,
        },
        tolerance=5e-4,  # also of two decimals
    ),
    Exercise(
        "apa-2",
        absorbed,
        units,
        mistakes={
            "The scales are exchanged: the layer before multiplies by κ, the one after divides.": (
                lambda w, b, v, kappa: torch.stack([w / kappa, b / kappa, v * kappa])
            ),
            "The bias is forgotten: the gate sees κ times all of wx + b.": (
                lambda w, b, v, kappa: torch.stack([kappa * w, b, v / kappa])
            ),
            "The weight after is forgotten: AGLU multiplies the gate by its input, which is κ times too large now.": (
                lambda w, b, v, kappa: torch.stack([kappa * w, kappa * b, v])
            ),
            "The weight after is multiplied by κ; it is to be divided.": (
                lambda w, b, v, kappa: torch.stack([kappa * w, kappa * b, v * kappa])
            ),
            "Only the weight after is changed: the gate must see the same as before.": (
                lambda w, b, v, kappa: torch.stack([w, b, v / kappa])
            ),
            "Those are the old weights; with κ = 1 they make another function.": (
                lambda w, b, v, kappa: torch.stack([w, b, v])
            ),
            "The order is another: asked are w, b and v.": (
                lambda w, b, v, kappa: torch.stack([v / kappa, kappa * w, kappa * b])
            ),
        },
    ),
    Exercise(
        "apa-3",
        half_width,
        accuracies,
        mistakes={
            "The lists are not paired: what a seed does to both is still in it.": (
                lambda a, b: _student(len(a)) * math.sqrt((a.var() + b.var()).item() / len(a))
            ),
            "With so few seeds the factor is Student's, not that of the normal law.": (
                lambda a, b: 1.959963984540054 * (a - b).std().item() / math.sqrt(len(a))
            ),
            "That is the interval of one difference, not of their mean: divide by the root of their number.": (
                lambda a, b: _student(len(a)) * (a - b).std().item()
            ),
            "The variance has been divided by n; by n − 1 it is that of the seeds that were not drawn, too.": (
                lambda a, b: _student(len(a)) * (a - b).std(unbiased=False).item() / math.sqrt(len(a))
            ),
            "That is the whole width.": lambda a, b: 2 * half_width(a, b),
            "That is the standard error; an interval of 95 % is wider.": (
                lambda a, b: (a - b).std().item() / math.sqrt(len(a))
            ),
            "That is the difference itself; asked is how well it is known.": lambda a, b: (a - b).mean().item(),
        },
        tolerance=1e-3,
    ),
)

# --- page apa-derivation ----------------------------------------------------------------------------------------------


def lowest() -> float:
    """Where AGLU has its lowest value at κ = λ = 1, from the registered formula."""
    from companion.study import symbolic

    values = {symbolic.kappa: 1, symbolic.lam: 1}
    return float(symbolic.expand(symbolic.get("apa-minimum-at").rhs).subs(values))


def log_slope(z: Tensor, kappa: Tensor, lam: Tensor) -> Tensor:
    """∂ ln η / ∂λ, by autograd."""
    lam = lam.requires_grad_()
    return torch.autograd.grad(apa(z, kappa, lam).log(), lam)[0]


def places() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """z, κ and λ; first z = 0."""
    for z, kappa, lam in [(0.0, 1.0, 1.0), (0.7, 1.3, 0.6), (-2.0, 1.0, 3.0), (-1.1, -0.5, 0.2), (1.5, 2.0, 1.0)]:
        yield _number(z), _number(kappa), _number(lam)


def _parts(z: Tensor, kappa: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
    """L and q."""
    return torch.log1p(lam * torch.exp(-kappa * z)) / lam, 1 / (lam + torch.exp(kappa * z))


def h(t: Tensor) -> Tensor:
    """h(t) in the precision of t; computed in float64, with the series where the formula cancels."""
    x = t.double()
    series = sum((-1) ** n * (n + 1) / (n + 2) * x**n for n in range(12))
    closed = (torch.log1p(x) - x / (1 + x)) / x**2
    return torch.where(x < 0.03, series, closed).to(t.dtype)


def small_and_large() -> Iterator[tuple[Tensor]]:
    """t in float32; first ordinary ones, then small, then some in which neither form alone will do."""
    for low, high, n in [(-0.3, 1.0, 9), (-5.0, -1.5, 12), (-6.0, 2.0, 40)]:
        yield (torch.logspace(low, high, n, dtype=torch.float32),)


ON_THE_SECOND_PAGE = (
    Exercise(
        "apa-derivation-1",
        log_slope,
        places,
        mistakes={
            "The exponent −1/λ is held fixed: λ stands there, too.": (
                lambda z, kappa, lam: -_parts(z, kappa, lam)[1] / lam
            ),
            "The bracket is held fixed: λ stands there, too.": lambda z, kappa, lam: _parts(z, kappa, lam)[0] / lam,
            "The two parts are added; one of them has a minus.": (
                lambda z, kappa, lam: sum(_parts(z, kappa, lam)) / lam
            ),
            "That is the derivative of η; asked is that of its logarithm.": (
                lambda z, kappa, lam: log_slope(z, kappa, lam) * apa(z, kappa, lam.detach())
            ),
            "That is the derivative of AGLU; asked is that of the gate's logarithm.": (
                lambda z, kappa, lam: log_slope(z, kappa, lam) * aglu(z, kappa, lam.detach())
            ),
            "That is the derivative by the product κz.": lambda z, kappa, lam: _parts(z, kappa, lam)[1],
            "That is the logarithm of the gate; asked is its slope.": lambda z, kappa, lam: -_parts(z, kappa, lam)[0],
        },
    ),
    Exercise(
        "apa-derivation-2",
        lowest,
        mistakes={
            "That is the lowest value; asked is where it lies.": (
                lambda: lowest() * (1 / (1 + math.exp(-lowest())))  # z σ(z)
            ),
            "The power of e is forgotten: e to the κz is small there, but not zero.": lambda: -1.0,
            "There the slope of the gate is steepest; asked is where that of AGLU is zero.": lambda: 0.0,
            "That is where e to the z is −z: with λ = 0.": lambda: -0.5671432904097838,
        },
        tolerance=2e-4,  # also of four decimals
    ),
    Exercise(
        "apa-derivation-3",
        h,
        small_and_large,
        mistakes={
            "That is the formula as it stands: where t is small it cancels.": (
                lambda t: (torch.log1p(t) - t / (1 + t)) / t**2
            ),
            "That is the first term of the series alone.": lambda t: torch.full_like(t, 0.5),
            "The second term, t/(1 + t), is missing.": lambda t: torch.log1p(t) / t**2,
            "The two terms are added; they are subtracted.": lambda t: (torch.log1p(t) + t / (1 + t)) / t**2,
            "The series is wrong where t is large: it holds below one.": (
                lambda t: sum((-1) ** n * (n + 1) / (n + 2) * t**n for n in range(8))
            ),
            "The division by t² is missing.": lambda t: h(t) * t**2,
        },
    ),
)

# --- page apa-kernel --------------------------------------------------------------------------------------------------


def backward_bytes() -> int:
    """Of AGLU backward in bfloat16, for an element: z, η and the gradient are read, a gradient is written."""
    return 4 * torch.bfloat16.itemsize


ELEMENTS = 10**6
"""Of the second exercise, with one κ for all."""


def partial_sums() -> int:
    """How many partial sums of ∂κ the first launch leaves."""
    return layout_plan(Layout("row", 1, ELEMENTS, 1)).chunks


def by_kappa(z: Tensor, kappa: Tensor, lam: Tensor) -> Tensor:
    """z²ηq in the precision of z, computed in float64."""
    x, k, m = z.double(), kappa.double(), lam.double()
    log_t = torch.log(m) - k * x
    L = torch.logaddexp(log_t, torch.zeros_like(log_t)) / m
    return (x * x * torch.exp(-L) * torch.sigmoid(log_t) / m).to(z.dtype)


def ends() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """z in float32, κ and λ: ordinary ones, one where E is tiny, one where η is."""
    for centre, kappa, lam in [(0.0, 1.0, 0.5), (95_000.0, 1e-3, 0.5), (-95_000.0, 1e-3, 1.0)]:
        z = centre + (1 + abs(centre) / 100) * torch.linspace(-1, 1, 9)
        yield z, torch.tensor(kappa), torch.tensor(lam)


ON_THE_THIRD_PAGE = (
    Exercise(
        "apa-kernel-1",
        backward_bytes,
        mistakes={
            "That is the forward pass, which does not save it.": lambda: 2 * torch.bfloat16.itemsize,
            "That is float32.": lambda: 4 * torch.float32.itemsize,
            "That is our kernel, which does not read it.": lambda: 3 * torch.bfloat16.itemsize,
            "That is our kernel in float32.": lambda: 3 * torch.float32.itemsize,
            "That is one tensor alone.": lambda: torch.bfloat16.itemsize,
        },
    ),
    Exercise(
        "apa-kernel-2",
        by_kappa,
        ends,
        mistakes={
            "The derivative of APA, the gate, has one factor z less.": (
                lambda z, kappa, lam: by_kappa(z, kappa, lam) / z.where(z != 0, 1.0)
            ),
            "That is zη: the derivative has a factor zq more.": lambda z, kappa, lam: aglu(z, kappa, lam),
            "The rate q is missing.": lambda z, kappa, lam: z * aglu(z, kappa, lam),
        },
    ),
    Exercise(
        "apa-kernel-3",
        partial_sums,
        mistakes={
            "A sum for the rest is missing: the last chunk is shorter, and has one, too.": lambda: partial_sums() - 1,
            "The last chunk is shorter, and has a whole sum.": lambda: ELEMENTS / 1024,
            "Those are the sums of κ and of λ.": lambda: 2 * partial_sums(),
            "That would be a sum for every lane; a warp adds up its lanes first.": lambda: 32 * partial_sums(),
            "Those are blocks; each of its eight warps leaves a sum.": lambda: math.ceil(partial_sums() / 8),
            "That is what the second launch leaves.": lambda: 1,
            "Those are packs; a chunk holds many.": lambda: ELEMENTS // 4,
        },
        tolerance=1e-6,
    ),
)

EXERCISES = ON_THE_FIRST_PAGE + ON_THE_SECOND_PAGE + ON_THE_THIRD_PAGE
