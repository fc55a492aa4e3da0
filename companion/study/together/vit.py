"""``together-vit``: eight neurons in one small vision transformer, on 10,000 photographs of CIFAR-10.

A transformer on few images is where the paper on DNRT has its largest gains, and where ARR, its loss, has the only
clear ones that runs of ours have seen (``dnrt-ablation``). There each has the paper's recipe, and here an arena's.

*The network*: patches of four pixels, a class token that is classified, four blocks of attention and of a perceptron,
each normalised before and added to what came in (`companion.study.models.VisionTransformer`). The neuron is the
perceptrons' activation. ARR holds the class token behind every block with λ = 10, as its published code has it and its
paper's best for a ViT-Tiny on these photographs (appendix A.2); in the other arenas λ is 1.

*The recipe*: pixels are standardised; images are mirrored, and shifted by up to two pixels; AdamW, whose decay acts on
kernels alone, gradients clipped at norm 1, a warm-up over a tenth and a cosine. Each seed draws its own 10,000 images.

*Equal.* The perceptrons' hidden units are as many as give GELU's parameters, within one per cent. Rates, seeds and what
is fixed before the first comparison are as in the convolutional arena (`companion.study.together.experiments`), the
rates from trainings of a third of the epochs. LayerAct normalises over a token's units (``dims=-1``); as published it
would be all tokens' together. Centre loss, ARR's relative, has the weight that the library gives it.

*Power*: `SMALLEST_DIFFERENCE` was written first. The preset "pilot" is five seeds of GELU and ReLU; its spread asks for
the seeds that "laptop" has. "full" has fewer, for another network, whose spread nobody has measured.

*Cost* of "laptop": a training takes three minutes of one core; all of it, tuning and 33 seeds, 13 hours.

*Precision*: float32 in all rows of "laptop"; bfloat16 under autocast in all rows of "full", for a GPU, which trains the
paper's ViT-Tiny on all 50,000 images.

References
----------
Dosovitskiy et al. (2021), An image is worth 16x16 words. Qiu et al. (2024), Dynamic Neural Response Tuning.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from companion.neurons import declared
from companion.study.datasets import random_crop_and_mirror
from companion.study.experiments import Experiment, Job, Row
from companion.study.experiments.classification import Fitted, settings_of, validation_accuracy
from companion.study.models import VisionTransformer
from companion.study.together import neurons
from companion.study.together.measures import last_features, neural_collapse
from companion.study.together.mlp import cases, measured, standardised
from companion.study.together.neurons import Neuron, composed, loss_of, named
from companion.study.together.sizes import as_wide_as
from companion.study.training import train, warm_up

__all__ = ["EXPERIMENT", "NEURONS", "SMALLEST_DIFFERENCE", "ArenaViT", "build", "fit"]

SMALLEST_DIFFERENCE = 0.01
"""Of accuracies: a fiftieth of what such a network gets wrong. Smaller ones do not matter."""

_WEIGHT = 10.0


def _held(neuron: Neuron) -> Neuron:
    """A neuron with ARR, as the paper has ARR in transformers."""
    return replace(neuron, then=(declared()["arr"].holding("blocks.*", _WEIGHT),))


NEURONS: dict[str, Neuron] = {
    **{name: neurons.NEURONS[name] for name in ("gelu", "relu", "la_silu", "raa")},
    **{name: _held(neurons.NEURONS[name]) for name in ("arr", "dnrt")},
    "relu_arr": _held(composed("relu+arr")),
    "centre": composed("gelu+centre"),
}
"""By the name that settings and rows have."""

Shape = tuple[int, int, int]


class ArenaViT(VisionTransformer):
    """A `VisionTransformer` behind a layer that learns nothing.

    Parameters
    ----------
    front : nn.Module
        That layer.
    shape : (int, int, int)
        Of an image.
    num_classes : int
        Logits.
    sizes
        As in `VisionTransformer`.
    """

    def __init__(self, front: nn.Module, shape: Shape, num_classes: int, *options: Any, **sizes: Any) -> None:
        channels, side, _ = shape
        super().__init__(side, channels, num_classes, *options, **sizes)
        self.front = front

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return super().forward(self.front(x))


def build(
    name: str,
    front: nn.Module,
    shape: Shape,
    num_classes: int,
    settings: Mapping[str, Any],
    units: int,
    known: Mapping[str, Neuron] = NEURONS,
) -> nn.Module:
    """Return the arena's network around a neuron.

    Parameters
    ----------
    name : str
        A key of `known`.
    front : nn.Module
        The first layer.
    shape : (int, int, int)
        Of an image.
    num_classes : int
        Logits.
    settings : mapping
        "patch", "width", "depth" and "heads".
    units : int
        Hidden units of the perceptrons.
    known : mapping
        The neurons.

    Returns
    -------
    nn.Module
        Fresh weights from torch's global generator.

    Raises
    ------
    ValueError
        If there is no such neuron.
    """
    neuron = named(name, known)
    place = neuron.places()
    sizes = {key: settings[key] for key in ("patch", "width", "depth", "heads")}
    model = ArenaViT(front, shape, num_classes, lambda: place(units, -1), units=units, **sizes)
    return neuron.enter(model, shape, num_classes)


Build = Callable[[str, nn.Module, Shape, int, Mapping[str, Any], int], nn.Module]


@cache
def _units(
    name: str, shape: Shape, num_classes: int, patch: int, width: int, depth: int, heads: int, build: Build = build
) -> int:
    """The hidden units with which a neuron's network has as many parameters as GELU's with four for each of width."""
    sizes = {"patch": patch, "width": width, "depth": depth, "heads": heads}
    profile = (4 * width,)
    return as_wide_as(
        name, profile, lambda name, widths: build(name, nn.Identity(), shape, num_classes, sizes, *widths)
    )[0]


def fresh(job: Job, build: Build = build) -> Fitted:
    """Return a network as the job says, which has not been trained yet: see `fit`."""
    settings, neuron = settings_of(job), job.case["neuron"]
    front, splits, shape = standardised(job)
    classes = splits.num_classes
    sizes = [settings[key] for key in ("patch", "width", "depth", "heads")]
    units = _units(neuron, shape, classes, *sizes, build=build)
    torch.manual_seed(job.seed)
    return Fitted(build(neuron, front, shape, classes, settings, units).to(splits.train.inputs.device), splits)


def fit(job: Job, build: Build = build) -> Fitted:
    """Train a network as the job says.

    Parameters
    ----------
    job : Job
        With a preset's settings.
    build : callable
        Takes what `build` takes.
    """
    settings, fitted = settings_of(job), fresh(job, build)
    model, splits = fitted.model, fitted.splits
    train(
        model,
        splits.train,
        epochs=settings["epochs"],
        learning_rate=job.rate,
        batch_size=settings["batch_size"],
        weight_decay=settings["weight_decay"],
        decay="kernels",
        seed=job.seed,
        augment=partial(random_crop_and_mirror, padding=settings["shift"]),
        schedule=warm_up(settings["warm_up"]),
        loss=loss_of(model),
        optimiser="adamw",
        clip=settings["clip"],
        precision=settings["precision"],
        compiled=settings["compiled"],
    )
    return fitted


def _measure(job: Job) -> list[Row]:
    fitted = fit(job)
    training = fitted.splits.train
    features, _ = last_features(fitted.model, training.inputs)
    return [measured(fitted, job) | {"collapse": neural_collapse(features, training.targets)}]


_LAPTOP: dict[str, Any] = {
    "dataset": "cifar10",
    "standardise": "none",
    "validation": 0,
    "train_size": 10_000,
    "tuning": {"epochs": 4, "validation": 0.1},
    "patch": 4,
    "width": 64,
    "depth": 4,
    "heads": 2,
    "epochs": 12,
    "batch_size": 100,
    "weight_decay": 0.05,
    "warm_up": 0.1,
    "clip": 1.0,
    "shift": 2,
    "precision": "float32",
    "compiled": False,
    "device": "cpu",
    "noisy": 2000,
    "learning_rates": [1e-3, 3e-3, 1e-2],
    "tuning_seeds": [1000],
    "seeds": 33,
    "competitors": list(NEURONS),
}
# Whether leads outlast a longer training. By the spread of the laptop's differences eight seeds find two points of
# GELU's, half of the smallest lead, among three comparisons.
_LONG: dict[str, Any] = {
    **_LAPTOP,
    "tuning": {"epochs": 12, "validation": 0.1},
    "epochs": 36,
    "learning_rates": [3e-4, 1e-3, 3e-3],
    "seeds": 8,
    "competitors": ["gelu", "relu", "relu_arr"],
}
_FULL: dict[str, Any] = {
    **_LAPTOP,
    "train_size": None,
    "tuning": {"epochs": 10, "validation": 0.1},
    "width": 192,
    "depth": 12,
    "heads": 3,
    "epochs": 30,
    "seeds": 10,
    "precision": "bfloat16",
    "compiled": True,
    "device": "cuda",
}
# To see that all kinds of entrance run. Few steps at a low rate: processors differ little.
_SMOKE: dict[str, Any] = {
    **_LAPTOP,
    "dataset": "digits",
    "tuning": {"epochs": 1, "validation": 0.2},
    "patch": 2,
    "width": 32,
    "depth": 2,
    "epochs": 2,
    "train_size": 200,
    "batch_size": 50,
    "shift": 1,
    "noisy": 100,
    "learning_rates": [1e-3],
    "seeds": 2,
    "competitors": ["gelu", "la_silu", "dnrt", "centre"],
}

EXPERIMENT = Experiment(
    name="together-vit",
    mechanism="together",
    description="Eight neurons in one small vision transformer of equal size on 10,000 images of CIFAR-10",
    presets={
        "smoke": _SMOKE,
        "pilot": {**_LAPTOP, "seeds": 5, "competitors": ["gelu", "relu"]},
        "laptop": _LAPTOP,
        "long": _LONG,
        "full": _FULL,
    },
    cases=cases,
    validate=partial(validation_accuracy, fit),
    measure=_measure,
    columns=("accuracy", "loss", "calibration_error", "collapse", "accuracy_std_0.1", "parameters", "flops"),
    # One noisy image of 100.
    tolerance=0.02,
)
