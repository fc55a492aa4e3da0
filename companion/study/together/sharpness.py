r"""``together-sharpness``: is it the bend of a curve that tells neurons apart in the two transformers?

One family holds the usual curves, :math:`z\,\sigma(\beta z)`: SiLU with β = 1, GELU all but with 1.7, ReLU in the
limit. Where what a curve is given is small beside 1/β, it is all but a line, and a perceptron around it computes next
to nothing that is not linear. A transformer's weights begin with a deviation of 0.02, so what its curves are given
begins at 0.02·√width: 0.16 in the arena of images, 0.23 in that of text.

So there are a SiLU that bends four times as fast, and one sixteen times; and, in "images", a GELU whose layer before
begins with weights four times as large, so that what it is given is. All else is `companion.study.together.vit`'s or
`companion.study.together.gpt`'s, whose results hold GELU, ReLU and LA-SiLU (and SiLU on text) for the same seeds.

*Beginning and training.* A factor can move from the curve into the weights beside it: :math:`z\,\sigma(4z)` is SiLU
with weights four times as large before it and a quarter of them behind it. The function is the same; its training is
not. Adam moves a weight by a step that does not depend on the weight's size. So weights of a quarter move four times as
far, relative to themselves, and weights four times as large a quarter as far. (Decay shrinks both alike. The norm at
which gradients are clipped is of all weights together, and so does depend on it.) Beside SiLU :math:`z\,\sigma(4z)`
thus has a sharper beginning, four times the relative step before the curve, and a quarter of it behind. In "folded"
SiLU begins as :math:`z\,\sigma(4z)` and keeps SiLU's steps. In "steps" three begin as SiLU: one has both of the steps
of :math:`z\,\sigma(4z)`, one that before the curve alone, one that behind it alone. Steps are steps at a learning rate,
so in "one-rate" the three run at that of all other curves. Beginning and steps together are two different things, as
they are counted: an absolute step that stays is another relative one. So "relu" asks what misfitting steps cost alone.
ReLU with weights four times as large before it and a quarter behind it, or the other way round, is the same function at
the same bend, and only the steps no longer fit the weights.

What curves are given is measured as ``spread``, the root of its mean square, one number a block, before training
(``spread_start``) and after it, on images of the test.

*Power*: differences of a point, or 0.02 bits, matter, as in those arenas. By the spread of GELU's and ReLU's, eight
seeds in "images" find two points among four comparisons, and ReLU is four ahead; twelve seeds in "text" find 0.025.

*Cost* on one core: "images" a training of three minutes, 112 minutes in all; "text" 45 minutes.

References
----------
Elfwing, Uchibe, Doya (2017), Sigmoid-weighted linear units for neural network function approximation in reinforcement
learning. Hendrycks, Gimpel (2016), Gaussian error linear units. Ramachandran, Zoph, Le (2017), Searching for activation
functions.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion.study.experiments import Experiment, Job, Row
from companion.study.experiments.classification import Fitted, validation_accuracy
from companion.study.together import gpt, neurons, vit
from companion.study.together.mlp import cases, measured
from companion.study.together.neurons import Neuron
from companion.study.training import predict

__all__ = ["EXPERIMENT", "NEURONS", "Sharp", "bent", "spreads"]


class Sharp(nn.Module):
    r"""The curve :math:`z\,\sigma(\beta z)` with a fixed β: SiLU for 1, nearly GELU for 1.7, nearly ReLU for many.

    Parameters
    ----------
    beta : float
        β.
    height : float
        By what the curve is multiplied.

    Examples
    --------
    >>> z = torch.tensor([-1.0, 0.1, 2.0])
    >>> torch.equal(Sharp(1.0)(z), nn.functional.silu(z))
    True
    """

    def __init__(self, beta: float, height: float = 1.0) -> None:
        super().__init__()
        self.beta, self.height = beta, height

    def forward(self, z: Tensor) -> Tensor:
        """Bend."""
        return F.silu(self.beta * z) / self.beta * self.height


def bent(curve: Callable[[Tensor], Tensor], spread: float) -> float:
    r"""Return which share of what a curve gives is not a line, where what it is given is normal.

    Of :math:`z \sim N(0, s^2)` the line that comes closest to :math:`\varphi(z)` in the mean square has the slope
    :math:`\operatorname{E}[z\,\varphi(z)] / s^2`. The share is what it leaves of the variance.

    Parameters
    ----------
    curve : callable
        :math:`\varphi`, element by element.
    spread : float
        s.

    Examples
    --------
    Of ReLU (π − 2) / (2π − 2) whatever the spread, of SiLU s²/2 for small ones:

    >>> [round(bent(curve, 0.1), 3) for curve in (F.relu, F.silu)]
    [0.267, 0.005]
    """
    # the trapezoid rule: exponentially close for a smooth curve, and within 1e-6 for ReLU
    unit = torch.linspace(-10, 10, 20_001, dtype=torch.float64)
    weights = torch.exp(-unit.square() / 2)
    weights /= weights.sum()
    given = spread * unit
    out = curve(given)
    out = out - (weights * out).sum()
    along = (weights * given * out).sum()
    return float(1 - along.square() / (weights * given.square()).sum() / (weights * out.square()).sum())


def _sharp(beta: float, height: float = 1.0, label: str | None = None) -> Neuron:
    return Neuron(label or f"z·σ({beta:g}z)", lambda: lambda units, dim: Sharp(beta, height))


_WIDE = 4.0
NEURONS: dict[str, Neuron] = {
    **{name: neurons.NEURONS[name] for name in ("silu", "gelu", "relu")},
    "sharp_4": _sharp(4.0),
    "sharp_16": _sharp(16.0),
    "gelu_wide": neurons.composed("gelu", f"GELU, weights before it begin {_WIDE:g} times as large"),
    "silu_folded": neurons.composed(
        "silu", f"SiLU, weights before it begin {_WIDE:g} times as large, behind it 1/{_WIDE:g}"
    ),
    "silu_both": _sharp(_WIDE, 1.0, "SiLU at first, both steps of z·σ(4z)"),
    "silu_before": _sharp(_WIDE, _WIDE, "SiLU at first, the step of z·σ(4z) before the curve"),
    "silu_behind": _sharp(1.0, 1 / _WIDE, "SiLU at first, the step of z·σ(4z) behind the curve"),
    "relu_folded": neurons.composed(
        "relu", f"ReLU, weights before it begin {_WIDE:g} times as large, behind it 1/{_WIDE:g}"
    ),
    "relu_both": neurons.composed(
        "relu", f"ReLU, weights before it begin 1/{_WIDE:g} times as large, behind it {_WIDE:g}"
    ),
}
"""By the name that settings and rows have."""

_BEGIN = {
    "gelu_wide": (_WIDE, 1.0),
    "silu_folded": (_WIDE, 1 / _WIDE),
    "silu_both": (1 / _WIDE, _WIDE),
    "silu_before": (1 / _WIDE, 1.0),
    "silu_behind": (1.0, _WIDE),
    "relu_folded": (_WIDE, 1 / _WIDE),
    "relu_both": (1 / _WIDE, _WIDE),
}
"""How many times as large as usual weights begin before the curve, and behind it."""


def _vit(
    name: str, front: nn.Module, shape: vit.Shape, num_classes: int, settings: Mapping[str, Any], units: int
) -> nn.Module:
    model = vit.build(name, front, shape, num_classes, settings, units, NEURONS)
    with torch.no_grad():
        for which, times in zip(("fc1", "fc2"), _BEGIN.get(name, (1.0, 1.0)), strict=True):
            for layer in _layers(model, which):
                layer.weight.mul_(times)
    return model


def _layers(model: nn.Module, which: str) -> list[nn.Linear]:
    """Those before the curves of a vision transformer, "fc1", or behind them, "fc2"."""
    found = [layer for name, layer in model.named_modules() if name.endswith(f"mlp.{which}")]
    return [layer for layer in found if isinstance(layer, nn.Linear)]


_gpt = partial(gpt.build, known=NEURONS)


def _text(job: Job) -> bool:
    return "characters" in job.settings


def _validate(job: Job) -> float:
    return gpt.validate(job, _gpt) if _text(job) else validation_accuracy(partial(vit.fit, build=_vit), job)


def spreads(model: nn.Module, images: Tensor) -> list[float]:
    """Return the root mean square of what the curve of each block of a vision transformer is given.

    Parameters
    ----------
    model : nn.Module
        Each block has a perceptron ``mlp``, whose first layer is ``fc1``.
    images : Tensor
        (N, C, H, W).

    Examples
    --------
    >>> from companion.study.models import VisionTransformer
    >>> model = VisionTransformer(8, 1, 10, patch=2, width=64, depth=1, heads=2)
    >>> 0.14 < spreads(model, torch.rand(50, 1, 8, 8))[0] < 0.18
    True
    """
    layers = _layers(model, "fc1")
    squares: list[list[Tensor]] = [[] for _ in layers]

    def watch(into: list[Tensor]) -> Callable[..., None]:
        return lambda module, given, out: into.append(out.detach().square().mean())

    handles = [layer.register_forward_hook(watch(into)) for layer, into in zip(layers, squares, strict=True)]
    predict(model, images)
    for handle in handles:
        handle.remove()
    return [float(torch.stack(each).mean().sqrt()) for each in squares]


_IMAGES = 500


def _measure(job: Job) -> list[Row]:
    if _text(job):
        return gpt.measure(job, _gpt)

    def seen(fitted: Fitted) -> list[float]:
        return spreads(fitted.model, fitted.splits.test.inputs[:_IMAGES])

    start = seen(vit.fresh(job, _vit))
    fitted = vit.fit(job, _vit)
    return [measured(fitted, job) | {"spread": seen(fitted), "spread_start": start}]


EXPERIMENT = Experiment(
    name="together-sharpness",
    mechanism="together",
    description="Curves that bend faster or later in the two transformers, of equal size and tuned alike",
    presets={
        "smoke": {**vit.EXPERIMENT.presets["smoke"], "competitors": ["sharp_4", "gelu_wide"]},
        "images": {
            **vit.EXPERIMENT.presets["laptop"],
            "seeds": 8,
            "competitors": ["silu", "sharp_4", "sharp_16", "gelu_wide"],
        },
        "folded": {**vit.EXPERIMENT.presets["laptop"], "seeds": 8, "competitors": ["sharp_4", "silu_folded"]},
        "steps": {
            **vit.EXPERIMENT.presets["laptop"],
            "seeds": 8,
            "competitors": ["silu_both", "silu_before", "silu_behind"],
        },
        "one-rate": {
            **vit.EXPERIMENT.presets["laptop"],
            "seeds": 8,
            "learning_rates": [0.001],
            "tuning_seeds": [],
            "competitors": ["silu_both", "silu_before", "silu_behind"],
        },
        "relu": {
            **vit.EXPERIMENT.presets["laptop"],
            "seeds": 8,
            "learning_rates": [0.001],
            "tuning_seeds": [],
            "competitors": ["relu_folded", "relu_both"],
        },
        "text": {**gpt.EXPERIMENT.presets["laptop"], "seeds": 12, "competitors": ["sharp_4", "sharp_16"]},
    },
    cases=cases,
    validate=_validate,
    measure=_measure,
    columns=("parameters", "flops"),
    # One noisy image of 100.
    tolerance=0.02,
)
