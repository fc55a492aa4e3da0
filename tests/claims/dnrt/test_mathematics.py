"""What the paper on DNRT says of its activation and its regulariser, judged by computation."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import NormalDist, fmean

import torch
from torch import nn
from torch.nn import functional as F

from companion.functional import raa
from companion.study import results
from tests.claims.dnrt.facts import NEGLIGIBLE, detail, fatal, matters, quoted
from tests.claims.form import ROUNDING, Verdict, cells, count, enumerated, graded, number, swap

GRID = [k / 10 for k in range(-40, 41) if k]
M = quoted("Section 5", "momentum m")
CHANNELS, MLP = 768, 2 * 192 * 768
"""Of ViT-Tiny: the channels that an activation sees, and the weights of an MLP, from 192 to 768 to 192 channels."""


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
        "GELU's gate Φ(x) rises with x; the rank meant is that in the fixed law N(0, 1), so that 0.5 has the gate "
        f"{gate(0.5):.2f} whether it is the largest or the smallest of a layer's inputs.",
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


FAMILY = {
    "ELU": lambda x, p: x if x > 0 else p * math.expm1(x),
    "SELU": lambda x, p: p * (x if x > 0 else p * math.expm1(x)),
    "SiLU": lambda x, p: x / (1 + math.exp(-p * x)),
}
"""These functions with their parameters."""


@detail(
    "dnrt-strength",
    "Parameters that are learned in ELU, SELU and SiLU change the strength of a response, not the condition that "
    "triggers it.",
    "Section 2.2",
    turned_by=swap(FAMILY={"SiLU": lambda x, p: (x - p) / (1 + math.exp(p - x))}),
)
def test_strength():
    kept = all(function(x, p) * x > 0 for function in FAMILY.values() for x in GRID for p in (0.1, 1.0, 5.0))
    return Verdict(
        graded(kept),
        "Whatever the positive parameters α, λ and β are, the outputs of ELU, SELU and x·σ(βx) change sign at 0, where "
        "the last one's gate is half open, though β makes that gate steeper.",
    )


def lines(context: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Slope and intercept of dynamic ReLU's two lines, which a layer computes from the whole input, here one number."""
    return (1.0, 0.4 * context), (0.1, 0.0)


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
        "Dynamic ReLU (Chen et al. 2020), which Section 2.2 cites, computes two lines from the whole input: with the "
        "slopes 1 and 0.1, the second intercept 0 and the first −0.4 or 0.4, they meet at "
        f"{bends[0]:.2f} or {bends[1]:.2f}.",
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


def by_number(vector, weight, bias):
    """The argument of Φ in Eq. 2."""
    return vector + bias


def by_element(vector, weight, bias):
    """The argument of Φ in Eq. 3, with one weight."""
    return vector + (weight[0] * vector + bias)


def by_vector(vector, weight, bias):
    """The argument of Φ in Eq. 4."""
    return vector + (vector @ weight + bias)[:, None]


def adapts(argument) -> tuple[bool, bool]:
    """Whether a vector's elements get different offsets, and whether one value gets different ones in two vectors."""
    vectors, weight, bias = drawn(100, 8), drawn(9)[1:], drawn(1)
    vectors[:, 0] = VALUE
    offsets = argument(vectors, weight, bias) - vectors
    return offsets.std(1).max().item() > 1e-6, offsets[:, 0].std().item() > 1e-6


@detail(
    "dnrt-constant",
    "A learned number α as the offset, x·Φ(x + α), is inflexible, since it moves the condition of each input alike.",
    "Section 4.1, Eq. 2",
    turned_by=swap(by_number=by_element),
)
def test_constant():
    return Verdict(graded(not any(adapts(by_number))), "The gate Φ(x + α) is half open at −α, whatever the inputs are.")


@detail(
    "dnrt-element-adapts",
    "With Eq. 3, where each element x has the offset wx + b, the condition of a response adapts to the input.",
    "Section 4.1, Eq. 3",
    turned_by=swap(by_element=by_vector),
)
def test_element_adapts():
    within, between = adapts(by_element)
    return Verdict(
        graded(between, within),
        "Eq. 3's offsets differ; but the gate Φ((1 + w)x + b) is a fixed function of x, if w ≠ −1 half open at "
        f"the one value −b/(1 + w), and {VALUE} has the same gate in 100 vectors.",
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
        f"RAA's gate is half open at −(wᵀx + b), which differs between vectors: the element {VALUE} has different "
        "gates in 100 vectors as soon as w is not zero.",
    )


@matters(
    "dnrt-relevance",
    "RAA, x·Φ(x + wᵀx + b), judges the relevance of each signal and adjusts its threshold accordingly.",
    "Sections 3.1 and 4.1, Appendix A.5",
    turned_by=swap(by_vector=lambda vectors, weight, bias: vectors + weight * vectors + (vectors @ weight)[:, None]),
)
def test_relevance():
    within, between = adapts(by_vector)
    return Verdict(
        graded(within and between, between),
        f"An element of {VALUE} can be passed in one vector and suppressed in another; but the elements of one vector "
        "share their offset, so that the larger of two always has the more open gate, as with GELU.",
    )


@detail(
    "dnrt-element-costs",
    "An offset wx + b for each element x, Eq. 3, needs too many parameters.",
    "Section 4.1",
    turned_by=swap(MLP=1000 * MLP),
)
def test_element_costs():
    numbers = (2, 2 * CHANNELS, 2 * 197 * CHANNELS, CHANNELS * (CHANNELS + 1))
    scalars, channels, elements, matrix = shares = [100 * each / MLP for each in numbers]
    return Verdict(
        graded(min(shares) > NEGLIGIBLE, max(shares) > NEGLIGIBLE),
        f"In ViT-Tiny, Eq. 3 adds to an MLP's weights {scalars:.1f} % with the two printed scalars, {channels:.1f} % "
        f"with two numbers a channel, {elements:.0f} % with two for each of 197 · {CHANNELS} elements and "
        f"{matrix:.0f} % as a matrix.",
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


def relu_of_shifted(x, weight, bias):
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
        f"The moving mean is a weighted mean of these responses with a short memory: at m = {M:g} the last 10 samples "
        f"of the class have {sum(of_all[:10]):.0%} of the weight, and its variance is "
        f"{sum(w * w for w in of_all):.3f} of one sample's.",
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
        f"On samples of a normal distribution, ARR's loss is at m = {M:g} on average {exact:.2f} times its standard "
        "deviation, whatever its mean, so that the loss falls exactly when the variance does.",
    )


def mistaken(distance: float, deviation: float) -> float:
    """The share of samples of two normal laws that lie nearer to the other's mean."""
    return NormalDist().cdf(-distance / 2 / deviation)


@fatal(
    "dnrt-specificity",
    "More focused responses, closer to their class's mean, can make classes easier to tell apart.",
    "Sections 3.2 and 4.2",
    turned_by=swap(mistaken=lambda distance, deviation: NormalDist().cdf(-distance / 2)),
)
def test_specificity():
    before, narrower, smaller = (100 * mistaken(*law) for law in ((2, 1), (2, 0.5), (1, 0.5)))
    return Verdict(
        graded(narrower < before),
        "Two normal classes, two standard deviations apart: half the deviation lowers the share of confused samples "
        f"from {before:.0f} % to {narrower:.0f} %; halving all responses, which the next layer can undo, also halves "
        f"ARR's loss, but leaves {smaller:.0f} %.",
    )


def by_hand(x: torch.Tensor, offset: nn.Linear | None = None) -> torch.Tensor:
    """RAA, and without an offset GELU, as its formula is written."""
    shifted = x if offset is None else x + offset(x)
    return x * (1 + torch.erf(shifted / math.sqrt(2))) / 2


def of_package(x: torch.Tensor, offset: nn.Linear) -> torch.Tensor:
    return raa(x, offset.weight[0], offset.bias[0])


def kept(function: Callable[[torch.Tensor], torch.Tensor]) -> float:
    """What autograd keeps for the backward pass, in sizes of the input."""
    storages: dict[int, int] = {}
    alive = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        alive.append(tensor)
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    x = torch.zeros(64, CHANNELS, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        function(x)
    return sum(storages.values()) / (x.numel() * x.element_size())


@matters(
    "dnrt-memory-torch",
    "Beside torch's own GELU, too, what RAA adds to the memory of training is extremely low.",
    "Appendix A.1 (ours: the paper leaves torch's GELU out)",
    turned_by=swap(by_hand=lambda x, offset=None: F.gelu(x) if offset is None else of_package(x, offset)),
)
def test_memory_torch():
    offset = nn.Linear(CHANNELS, 1)
    torchs, hand = kept(F.gelu), kept(by_hand)
    written, packaged = kept(lambda x: by_hand(x, offset)), kept(lambda x: of_package(x, offset))
    most = 1 + NEGLIGIBLE / 100
    return Verdict(
        graded(written < most * torchs, packaged < most * torchs),
        f"For the backward pass torch's GELU keeps {torchs:.1f} times its input, GELU and RAA written by hand, which "
        f"alone the paper compares, {hand:.1f} and {written:.1f} times, RAA with a gate that is computed again, as "
        f"here, {packaged:.1f}.",
    )


@detail(
    "dnrt-space",
    "ARR, which pulls responses to their class's moving mean, keeps only one vector for each of K classes, a "
    "negligible memory.",
    "Section 4.2",
    turned_by=cells("dnrt-table-6", {"network": "TNT-Small"}, training_dnrt=75),
)
def test_space():
    layers, classes, width = 12, 1000, 192
    kept = 4 * layers * classes * width / 2**30
    share = 100 * kept / number("dnrt-table-6", "training_original", network="ViT-Tiny")
    more = [100 * (float(r["training_dnrt"]) / float(r["training_raa"]) - 1) for r in results.published("dnrt-table-6")]
    return Verdict(
        graded(max(share, *more) < NEGLIGIBLE),
        f"For {classes} classes in {layers} layers of ViT-Tiny these vectors, of {width} numbers each, take "
        f"{1024 * kept:.1f} MiB, {share:.2f} % of the training memory, to which ARR adds at most {max(more):.1f} % in "
        f"{len(more)} measured networks.",
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
