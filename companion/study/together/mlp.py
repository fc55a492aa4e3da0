"""``together-mlp``: every neuron in one perceptron of three hidden layers, on 10,000 images of MNIST.

The small network is where learned functions of one and of two arguments stand in every layer, as Kim et al. (2022) have
them: one inner network, which all units of all layers share, learns with the rest. It begins with Xavier's weights; the
paper's three sessions are not repeated here.

*The recipe*: pixels are standardised; linear, batch normalisation, activation, three times; a linear head. AdamW, whose
decay acts on the weights of linear operators alone, and one triangle of the learning rate. No augmentation, no dropout.
Each seed draws its own 10,000 training images.

*Equal.* As in the convolutional arena (`companion.study.together.experiments`): parameters within one per cent of
GELU's, an inner network's included; one grid of rates for all, which grows for all, met in trainings of a third of the
schedule; the test images judge after the last step; seeds are paired.

*Fixed for all before the first comparison*: the recipe, of which nothing was tuned but the rates, and what the
convolutional arena fixes for each neuron: ARR's weight, AGLU's start, two copies for multi-bias. LayerAct normalises
over all units of a layer, as published.

*Power*: `SMALLEST_DIFFERENCE` was written first. The preset "pilot" is five seeds of GELU and ReLU; its
spread asks for the seeds that "laptop" has.

*Cost* of "laptop" on one core: a training takes 4 seconds with GELU, 12 with DAC, 35 to 45 with a learned function; all
of it, tuning and fifteen seeds, an hour and a half.

*Precision*: float32 in all rows of "laptop"; bfloat16 under autocast in all rows of "full", for a GPU, which has all
60,000 images.

References
----------
Kim, Orhan, Yoon, Pitkow (2022), Two-argument activation functions learn soft XOR operations like cortical neurons.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion import count
from companion.study.datasets import Splits, channel_statistics
from companion.study.experiments import Case, Experiment, Job, Row, grid
from companion.study.experiments.classification import Fitted, settings_of, splits_of, validation_accuracy
from companion.study.models import Standardise
from companion.study.models.initialisation import initialise
from companion.study.together import neurons
from companion.study.together.measures import calibration_error, last_features, learned, neural_collapse, noises
from companion.study.together.neurons import Neuron, composed, loss_of, named
from companion.study.together.sizes import as_wide_as
from companion.study.training import hits, linear, predict, train, warm_up

__all__ = [
    "EXPERIMENT",
    "NEURONS",
    "SMALLEST_DIFFERENCE",
    "ArenaMLP",
    "build",
    "cases",
    "fit",
    "measured",
    "standardised",
]

SMALLEST_DIFFERENCE = 0.002
"""Of accuracies: a fifteenth of the three per cent that such a network gets wrong. Smaller ones do not matter."""

#: Hidden layers.
LAYERS = 3

Shape = tuple[int, int, int]

NEURONS: dict[str, Neuron] = {
    # in one layer alone is how a network of convolutions can afford it
    **{name: neuron for name, neuron in neurons.NEURONS.items() if name != "two_arguments_last"},
    **{name: composed(name) for name in ("one_argument", "two_arguments")},
}
"""By the name that settings and rows have."""


class ArenaMLP(nn.Module):
    """The network around a neuron: linear, batch normalisation, activation in each layer, and a linear head.

    Parameters
    ----------
    front : nn.Module
        Its first layer, which learns nothing; what it gives is flattened.
    features : int
        Numbers of an example.
    num_classes : int
        Logits.
    widths : sequence of int
        Units of the hidden layers.
    activation : callable
        Takes a number of units and returns the module that makes so many of the weighted sums.
    arity : int
        Weighted sums of a unit.

    Examples
    --------
    >>> ArenaMLP(nn.Identity(), 64, 10, (8, 8, 8), lambda units: nn.ReLU())(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        front: nn.Module,
        features: int,
        num_classes: int,
        widths: Sequence[int],
        activation: Callable[[int], nn.Module],
        arity: int = 1,
    ) -> None:
        super().__init__()
        self.front = front
        # The normalisation's shift makes a bias redundant.
        self.linears = nn.ModuleList(nn.Linear(n, arity * m, bias=False) for n, m in pairwise((features, *widths)))
        self.norms = nn.ModuleList(nn.BatchNorm1d(arity * m) for m in widths)
        self.head = nn.Linear(widths[-1], num_classes)
        initialise(self.linears, self.head)
        # Last: what an activation draws changes no weight.
        self.activations = nn.ModuleList(activation(m) for m in widths)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = self.front(x).flatten(1)
        for layer in zip(self.linears, self.norms, self.activations, strict=True):
            for step in layer:
                x = step(x)
        logits: Tensor = self.head(x)
        return logits


#: Neuron, first layer, shape, classes and widths → the network.
Build = Callable[[str, nn.Module, Shape, int, Sequence[int]], nn.Module]


def build(name: str, front: nn.Module, shape: Shape, num_classes: int, widths: Sequence[int]) -> nn.Module:
    """Return the arena's network around a neuron of `NEURONS`, as `companion.study.together.neurons.build` does."""
    neuron = named(name, NEURONS)
    place = neuron.places()
    channels, height, width = shape
    model = ArenaMLP(front, channels * height * width, num_classes, widths, lambda units: place(units, 1), neuron.arity)
    return neuron.enter(model, shape, num_classes)


@cache
def _widths(build: Build, name: str, shape: Shape, num_classes: int, profile: tuple[int, ...]) -> tuple[int, ...]:
    return as_wide_as(name, profile, lambda name, widths: build(name, nn.Identity(), shape, num_classes, widths))


def standardised(job: Job) -> tuple[Standardise, Splits, Shape]:
    """Return a first layer that standardises the job's images, the data where it computes, and an image's shape."""
    splits = splits_of(job)
    channels, height, width = splits.train.inputs.shape[1:]
    front = Standardise(*channel_statistics(splits.train))
    return front, splits.to(job.settings.get("device", "cpu")), (channels, height, width)


def fit(job: Job, build: Build = build) -> Fitted:
    """Train a network as the job says.

    Parameters
    ----------
    job : Job
        With a preset's settings; without "device", "precision" and "compiled" a CPU computes, in float32.
    build : callable
        As `build`: makes the network.
    """
    settings, neuron = settings_of(job), job.case["neuron"]
    front, splits, shape = standardised(job)
    classes = splits.num_classes
    widths = _widths(build, neuron, shape, classes, tuple(settings["widths"]))
    torch.manual_seed(job.seed)
    model = build(neuron, front, shape, classes, widths).to(splits.train.inputs.device)
    train(
        model,
        splits.train,
        epochs=settings["epochs"],
        learning_rate=job.rate,
        batch_size=settings["batch_size"],
        weight_decay=settings["weight_decay"],
        decay="kernels",
        seed=job.seed,
        schedule=warm_up(settings["warm_up"], linear),
        loss=loss_of(model),
        optimiser="adamw",
        precision=settings.get("precision", "float32"),
        compiled=settings.get("compiled", False),
    )
    return Fitted(model, splits)


def measured(fitted: Fitted, job: Job) -> Row:
    """Return what is measured of a network on the test images, and what it learned and costs."""
    model, test = fitted.model, fitted.splits.test
    logits = predict(model, test.inputs)
    noisy = test.subset(torch.arange(min(job.settings["noisy"], len(test)), device=test.targets.device))
    cost = count(model, test.inputs.shape[1:])
    return {
        "accuracy": float(hits(logits, test.targets).mean()),
        "loss": float(F.cross_entropy(logits, test.targets)),
        "calibration_error": calibration_error(logits, test.targets),
        **noises(model, noisy, job.seed),
        **learned(model),
        "parameters": cost.parameters,
        "flops": cost.flops,
    }


def _measure(job: Job) -> list[Row]:
    fitted = fit(job)
    training = fitted.splits.train
    features, _ = last_features(fitted.model, training.inputs)
    return [measured(fitted, job) | {"collapse": neural_collapse(features, training.targets)}]


def cases(settings: Mapping[str, Any]) -> list[Case]:
    return grid(neuron=settings["competitors"])


_LAPTOP: dict[str, Any] = {
    "dataset": "mnist",
    "standardise": "none",
    "validation": 0,
    "train_size": 10_000,
    "tuning": {"epochs": 5, "validation": 0.1},
    "widths": [128, 128, 128],
    "epochs": 15,
    "batch_size": 100,
    "weight_decay": 0.05,
    "warm_up": 0.2,
    "precision": "float32",
    "compiled": False,
    "device": "cpu",
    "noisy": 2000,
    "learning_rates": [3e-3, 1e-2, 3e-2],
    "tuning_seeds": [1000, 1001],
    "seeds": 15,
    "competitors": list(NEURONS),
}
_FULL: dict[str, Any] = {
    **_LAPTOP,
    "train_size": None,
    "precision": "bfloat16",
    "compiled": True,
    "device": "cuda",
}
# To see that all kinds of entrance run. Few steps at a low rate: processors differ little.
_SMOKE: dict[str, Any] = {
    **_LAPTOP,
    "dataset": "digits",
    "tuning": {"epochs": 1, "validation": 0.2},
    "widths": [32, 32, 32],
    "epochs": 3,
    "train_size": 400,
    "batch_size": 50,
    "noisy": 100,
    "learning_rates": [1e-3],
    "tuning_seeds": [1000],
    "seeds": 2,
    "competitors": ["gelu", "la_silu", "dnrt", "dac", "multibias", "maxout", "two_arguments"],
}

EXPERIMENT = Experiment(
    name="together-mlp",
    mechanism="together",
    description="Every neuron in one perceptron of equal size on 10,000 images of MNIST",
    presets={
        "smoke": _SMOKE,
        "pilot": {**_LAPTOP, "seeds": 5, "competitors": ["gelu", "relu"]},
        "laptop": _LAPTOP,
        "full": _FULL,
        # GELU at the rates that others chose: how much of what they have under noise is the rate's?
        "rates": {**_LAPTOP, "learning_rates": [1e-2, 3e-2, 1e-1], "tuning_seeds": [], "competitors": ["gelu"]},
        # and what they have at GELU's
        "same-rate": {
            **_LAPTOP,
            "learning_rates": [1e-2],
            "tuning_seeds": [],
            "competitors": [
                *("silu", "mish", "prelu", "la_silu", "la_hardsilu", "arr", "multibias", "glu"),
                *("one_argument", "two_arguments"),
            ],
        },
        # what LayerAct's functions are compared with under noise, at their rate
        "layeracts-rate": {
            **_LAPTOP,
            "learning_rates": [1e-1],
            "tuning_seeds": [],
            "competitors": ["relu", "silu", "prelu"],
        },
    },
    cases=cases,
    validate=partial(validation_accuracy, fit),
    measure=_measure,
    columns=(
        "accuracy",
        "loss",
        "calibration_error",
        "collapse",
        "accuracy_std_0.3",
        "accuracy_mean_0.4",
        "parameters",
        "flops",
    ),
    # One noisy image of 100; and how far two arguments collapse differs by 0.013 between two processors.
    tolerance=0.02,
)
