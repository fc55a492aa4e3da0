"""What the paper on DNRT says of its activation and its regulariser, judged by computation."""

from __future__ import annotations

import math
import random
from statistics import NormalDist, fmean

import sympy
import torch
from torch import nn
from torch.nn import functional as F

from companion import symbolic
from companion.dnrt.formulas import normal, z
from companion.functional import raa
from tests.claims.dnrt.facts import detail, fatal, matters, quoted
from tests.claims.form import ROUNDING, Verdict, at_most, cells, count, enumerated, formula, graded, number, swap

GRID = [k / 10 for k in range(-40, 41) if k]
M = quoted("Section 5", "momentum m")
CHANNELS = 768
"""Of the vectors that an activation of ViT-Tiny sees."""


def gate(x: float) -> float:
    """Φ, the paper's gate."""
    return NormalDist().cdf(x)


def drawn(*shape: int) -> torch.Tensor:
    """Normal numbers, the same whenever they are asked for."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


# --- Sections 1 and 2.2: activations before RAA -------------------------------------------------------------


@detail(
    "dnrt-rank",
    "With GELU, an input that is smaller than others is more likely to be suppressed.",
    "Section 1",
    turned_by=swap(gate=lambda x: NormalDist().cdf(-x)),
)
def test_rank():
    rises = all(gate(x - 0.1) < gate(x) for x in GRID)
    return Verdict(
        graded(rises),
        "Its gate Φ rises with the input; but the rank is that in the fixed law N(0, 1): among a layer's inputs 0.5 "
        f"keeps the gate {gate(0.5):.2f} whether it is the largest of them or the smallest.",
    )


LEARNED = {"ELU": (), "SELU": (), "SiLU": ("β",)}
"""What the papers that the paper cites learn in these functions."""


@detail(
    "dnrt-learnable",
    "ELU, SELU and SiLU contain learnable parameters.",
    "Section 2.2",
    turned_by=swap(LEARNED={"ELU": ("α",), "SELU": ("λ", "α"), "SiLU": ("β",)}),
)
def test_learnable():
    modules = [parameter for kind in (nn.ELU, nn.SELU, nn.SiLU) for parameter in kind().parameters()]
    return Verdict(
        graded(all(LEARNED.values()), any(LEARNED.values())),
        "The sources that are cited have constants in ELU and SELU, and x·σ(βx), the Swish whose β may be learned, "
        f"for SiLU, which is its case β = 1; PyTorch's three modules have {len(modules)} parameters.",
    )


def lines(context: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Slope and intercept of dynamic ReLU's two lines, which a layer computes from the whole input, here one number."""
    return (1.0, 0.5 * context), (0.1, 0.0)


@matters(
    "dnrt-absent",
    "No activation before RAA adjusts its threshold to the input.",
    "Abstract, Section 2.2",
    turned_by=swap(lines=lambda context: ((1.0, 0.0), (0.1, 0.0))),
)
def test_absent():
    bends = []
    for context in (-1.0, 1.0):
        (steep, high), (flat, low) = lines(context)
        bends.append((low - high) / (steep - flat))
    return Verdict(
        graded(bends[0] == bends[1]),
        "Dynamic ReLU (Chen et al. 2020), which Section 2.2 itself cites, computes slopes and intercepts of two "
        "lines from the whole input: with the slopes 1 and 0.1 and the intercepts −0.5 and 0.5 its threshold is "
        f"{bends[0]:.2f} and {bends[1]:.2f}.",
    )


# --- Section 4.1: RAA ---------------------------------------------------------------------------------------


@matters(
    "dnrt-offset",
    "A negative offset Δ in x·Φ(x + Δ) suppresses an input, and a positive one passes an input that was suppressed.",
    "Section 4.1",
    turned_by=swap(gate=lambda x: NormalDist().cdf(-x)),
)
def test_offset():
    closes, opens = (
        all((abs(x * gate(x + d)) - abs(x * gate(x))) * d > 0 for x in GRID for d in deltas)
        for deltas in ((-2.0, -0.1), (0.1, 2.0))
    )
    return Verdict(
        graded(closes and opens, closes or opens),
        "The output's size falls for every Δ < 0 and rises for every Δ > 0; only the gate moves, so that a negative "
        f"input stays negative: with Δ = 2 the input −1 gives {-gate(1.0):.2f} instead of {-gate(-1.0):.2f}.",
    )


VALUE = 0.7


def by_element(vector: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The argument of Φ in Eq. 3, with one weight."""
    return vector + (weight[0] * vector + bias)


def by_vector(vector: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The argument of Φ in Eq. 4."""
    return vector + (vector @ weight + bias)[:, None]


def adapts(argument) -> tuple[bool, bool]:
    """Whether elements get different offsets, and whether one value gets different ones in different vectors."""
    vectors, weight, bias = drawn(100, 8), drawn(9)[1:], drawn(1)
    vectors[:, 0] = VALUE
    offsets = argument(vectors, weight, bias) - vectors
    return offsets.std().item() > 1e-6, offsets[:, 0].std().item() > 1e-6


@matters(
    "dnrt-element-adapts",
    "With Eq. 3, where each element x has the offset wx + b, the condition of a response adapts to the input.",
    "Section 4.1, Eq. 3",
    turned_by=swap(by_element=by_vector),
)
def test_element_adapts():
    differ, moves = adapts(by_element)
    return Verdict(
        graded(differ and moves, differ),
        "Offsets differ between inputs; but Φ((1 + w)x + b) is again a fixed function of x, half open at the one "
        f"value −b/(1 + w), and {VALUE} has the same gate in 100 vectors.",
    )


@fatal(
    "dnrt-adapts",
    "RAA, x·Φ(x + wᵀx + b) for a vector x, adjusts the condition of its response to the input.",
    "Abstract, Section 4.1, Eq. 4",
    turned_by=swap(by_vector=by_element),
)
def test_adapts():
    return Verdict(
        graded(adapts(by_vector)[1]),
        f"The gate is half open at −(wᵀx + b), which differs between vectors: the element {VALUE} has different gates "
        "in 100 vectors as soon as w is not zero.",
    )


@fatal(
    "dnrt-relevance",
    "RAA, x·Φ(x + wᵀx + b), suppresses irrelevant inputs and passes relevant ones, which strength does not tell apart.",
    "Sections 1, 3.1 and 4.1",
    turned_by=swap(by_vector=lambda vectors, weight, bias: vectors + weight * vectors + (vectors @ weight)[:, None]),
)
def test_relevance():
    vectors, weight, bias = drawn(1000, 8), drawn(9)[1:], drawn(1)
    changed = (by_vector(vectors, weight, bias).argsort(-1) != vectors.argsort(-1)).any(-1).double().mean().item()
    between = adapts(by_vector)[1]
    return Verdict(
        graded(changed and between, changed or between),
        "Between vectors it can at equal strength; but the elements of one vector share an offset, so that the "
        f"stronger of two always has the more open gate, as with GELU: the order changes in {changed:.0%} of 1000 "
        "random vectors.",
    )


@matters(
    "dnrt-each-signal",
    "Where spiking neurons learn a threshold, a layer shares one for all inputs; RAA, in contrast, adjusts it for "
    "each signal.",
    "Appendix A.5",
    turned_by=swap(by_vector=by_element),
)
def test_each_signal():
    vectors, weight, bias = drawn(100, 8), drawn(9)[1:], drawn(1)
    thresholds = vectors - by_vector(vectors, weight, bias)
    between, within = thresholds[:, 0].std().item(), thresholds.std(1).max().item()
    return Verdict(
        graded(between > 1e-6 and within > 1e-6, between > 1e-6),
        f"Each vector has its own, which deviates by {between:.1f} over 100 random vectors; but in RAA, too, the "
        f"neurons of a layer share it: the channels of one vector differ by {at_most(within)}.",
    )


@matters(
    "dnrt-element-costs",
    "An offset wx + b for each element x, Eq. 3, needs too many parameters and operations.",
    "Section 4.1",
    turned_by=formula("dnrt-raa-element", rhs=z * normal(z + sum(sympy.symbols("a:1000")))),
)
def test_element_costs():
    scalars = len(symbolic.get("dnrt-raa-element").rhs.free_symbols - {z})
    return Verdict(
        graded(scalars > CHANNELS + 1),
        f"Eq. 3 has {scalars} scalars, or {2 * CHANNELS} with a pair for each of {CHANNELS} channels; the "
        f"chosen wᵀx + b, Eq. 4, has {CHANNELS + 1}, and both multiply once an element; only a matrix, as in the "
        "published code, costs much.",
    )


@matters(
    "dnrt-start",
    "With w and b zero at the start, RAA, x·Φ(x + wᵀx + b), is the activation that it replaces.",
    "Section 4.1, Eqs. 3 and 4",
    turned_by=swap(raa=lambda x, weight, bias, gate: F.gelu(x + 1)),
)
def test_start():
    x, weight, bias = drawn(50, 8), torch.zeros(8).double(), torch.zeros(1).double()
    gaps = {
        name: (raa(x, weight, bias, name.lower()) - original(x)).abs().max().item()
        for name, original in {"GELU": F.gelu, "SiLU": F.silu, "ReLU": F.relu}.items()
    }
    same = {name: gap < ROUNDING for name, gap in gaps.items()}
    return count(same, "gates, GELU's, SiLU's and ReLU's, give the function that they are named for when w and b are 0")


def learns(function) -> bool:
    """Whether the offset gets a gradient at the start."""
    weight, bias = (torch.zeros(n, dtype=torch.float64, requires_grad=True) for n in (8, 1))
    (function(drawn(50, 8), weight, bias) ** 2).sum().backward()
    return weight.grad is not None and weight.grad.abs().max().item() > 0


def relu_of_shifted(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.relu(x + (x @ weight + bias)[:, None])


@matters(
    "dnrt-extended",
    "RAA, which adds wᵀx + b inside GELU's gate, can be extended to other activations, such as ReLU.",
    "Section 4.1",
    turned_by=swap(relu_of_shifted=lambda x, weight, bias: F.relu(x + 0 * weight)),
)
def test_extended():
    silu, step = (learns(lambda x, w, b, g=g: raa(x, w, b, g)) for g in ("silu", "relu"))
    shifted = learns(relu_of_shifted)
    return Verdict(
        graded(silu and shifted, silu or shifted),
        "SiLU's gate and ReLU(x + wᵀx + b) learn their offset; Eq. 4 with ReLU's own gate, x·[x + wᵀx + b > 0], "
        f"{'learns too' if step else 'never learns it, since its gradient is zero everywhere'}.",
    )


@matters(
    "dnrt-negligible",
    "RAA, GELU with an offset wᵀx + b in its gate, introduces a negligible number of parameters and operations.",
    "Section 4.1",
    turned_by=swap(CHANNELS=CHANNELS**2),
)
def test_negligible():
    block = 2 * 192 * 768
    shares = 100 * (CHANNELS + 1) / block, 100 * CHANNELS / block
    return Verdict(
        graded(max(shares) < 1),
        f"After the first layer of ViT-Tiny's MLPs, 192 to 768 to 192, it adds {CHANNELS + 1} parameters, "
        f"{shares[0]:.2f} % of the MLP's weights, and for each token {CHANNELS} multiplications, {shares[1]:.2f} % of "
        "the MLP's.",
    )


# --- Section 4.2: ARR ---------------------------------------------------------------------------------------


def weights(samples: int) -> list[float]:
    """Of a class's last samples in its moving mean, the newest first."""
    return [M * (1 - M) ** age for age in range(samples)]


@matters(
    "dnrt-history",
    "ARR's moving mean is the mean of a class's historical responses.",
    "Section 4.2, Eq. 5",
    turned_by=swap(weights=lambda samples: [M] * samples),
)
def test_history():
    of_all = weights(1000)
    return Verdict(
        graded(abs(sum(of_all) - 1) < ROUNDING),
        f"It is a weighted mean of them with a short memory: at m = {M:g} the last 10 samples of the class have "
        f"{sum(of_all[:10]):.0%} of the weight, and its variance is {sum(w * w for w in of_all):.3f} of one sample's.",
    )


def moving_mean(mean: float, sample: float) -> float:
    """Eq. 5."""
    return (1 - M) * mean + M * sample


def mean_loss(centre: float, deviation: float) -> float:
    """Eq. 6 for one channel, averaged over samples of a normal law."""
    generator = random.Random(0)
    mean, losses = centre, []
    for _ in range(20_000):
        sample = generator.gauss(centre, deviation)
        losses.append(abs(sample - mean))
        mean = moving_mean(mean, sample)
    return fmean(losses)


@fatal(
    "dnrt-variance",
    "Pulling responses to their historical mean is equivalent to reducing the variance of their normal law.",
    "Section 4.2, below Eq. 6",
    turned_by=swap(moving_mean=lambda mean, sample: 0.0),
)
def test_variance():
    ratios = [mean_loss(centre, deviation) / deviation for centre in (0.0, 5.0) for deviation in (0.5, 1.0, 2.0)]
    exact = math.sqrt(4 / math.pi / (2 - M))
    return Verdict(
        graded(max(abs(ratio - exact) for ratio in ratios) < 0.02),
        f"For samples of a normal law ARR's loss is {exact:.3f} deviations on average at m = {M:g}, wherever the law "
        f"lies (found: {min(ratios):.2f} to {max(ratios):.2f}), so that both fall together; other laws of equal "
        "variance have other losses.",
    )


def mistaken(distance: float, deviation: float) -> float:
    """The share of samples of two normal laws that lie nearer to the other's mean."""
    return NormalDist().cdf(-distance / 2 / deviation)


@fatal(
    "dnrt-specificity",
    "Concentrating each class's responses about its mean makes classes easier to tell apart.",
    "Sections 1, 3.2 and 4.2",
    turned_by=swap(mistaken=lambda distance, deviation: deviation),
)
def test_specificity():
    before, narrower, smaller = (100 * mistaken(*law) for law in ((2, 1), (2, 0.5), (1, 0.5)))
    return Verdict(
        graded(narrower < before and smaller < before, narrower < before),
        f"With the distance of two classes kept, half the deviation lowers the confused share from {before:.0f} % to "
        f"{narrower:.0f} %; but halving all responses, which the next layer can undo, halves ARR's loss as well and "
        f"leaves {smaller:.0f} %.",
    )


@detail(
    "dnrt-space",
    "ARR, which pulls responses to their class's moving mean, keeps only one vector for each of K classes, a "
    "negligible memory.",
    "Section 4.2",
    turned_by=cells("dnrt-table-6", {"network": "ViT-Tiny"}, training_original=0.1),
)
def test_space():
    layers, classes, width = 12, 1000, 192
    kept = 4 * layers * classes * width / 2**30
    share = 100 * kept / number("dnrt-table-6", "training_original", network="ViT-Tiny")
    return Verdict(
        graded(share < 1),
        f"For each layer with ARR it is K vectors: for ViT-Tiny's class token, {layers} layers and {classes} classes "
        f"of {width} numbers, {1024 * kept:.1f} MiB, {share:.2f} % of the training memory in Table 6.",
    )


@matters(
    "dnrt-momentum-limits",
    "A high momentum m makes the moving mean unstable, and a low one lets it lag behind.",
    "Appendix A.2",
    turned_by=swap(share_of_variance=lambda m: 1 - m),
)
def test_momentum_limits():
    momenta = (0.01, 0.1, 0.5, 0.9)
    noise, lag = [share_of_variance(m) for m in momenta], [(1 - m) ** 10 for m in momenta]
    return Verdict(
        graded(noise == sorted(noise) and lag == sorted(lag, reverse=True)),
        f"For m = {enumerated([f'{m:g}' for m in momenta])} the mean's variance is "
        f"{enumerated([f'{v:.2g}' for v in noise])} of a sample's, and {enumerated([f'{each:.0%}' for each in lag])} "
        "of a jump remain after 10 samples of the class.",
    )


def share_of_variance(m: float) -> float:
    """Of a moving mean of independent samples, in variances of one of them."""
    return m / (2 - m)
