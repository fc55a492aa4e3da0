"""``together-pairs``: two of the papers' neurons at once, in the perceptron of `companion.study.together.mlp`.

A pair is a unit's activation and what is done with it: ARR holds what it gives to the mean of its class, a DAC moves it
into the connections. So four networks belong to a pair: with both, with each alone, with neither. ARR alone has GELU
under it, DAC alone ReLU, as in the other arenas.

Names are what `companion.rethink` takes, which builds the networks: "raa+arr" is DNRT. What it refuses, `REFUSED`, no
network can have. The learned function of one argument goes with a DAC, and is left out: an inner network for every
connection takes a hundred times the rest.

*The recipe*, the grid of rates and what is equal are `companion.study.together.mlp`'s, and so are the networks with one
neuron, weight for weight; those of two arguments begin with other weights, of the same deviation.

*What is asked* of a pair, `companion.study.together.composing` says.

*Power*: `SMALLEST_DIFFERENCE` is that of `companion.study.together.mlp`, written first. The preset "pilot" is five
seeds of RAA, ARR, both and neither: an interaction varies more from seed to seed than a difference does.

*Cost* of "laptop" on one core: a training takes 5 to 12 seconds, with two arguments 40, with AGLU in a DAC 100; all of
it, tuning and fifteen seeds, an hour and a half.
"""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from companion import count, rethink
from companion.study.datasets import channel_statistics
from companion.study.experiments import Case, Experiment, Job, Row, grid
from companion.study.experiments.classification import Fitted, settings_of, splits_of, validation_accuracy
from companion.study.models import Standardise
from companion.study.together import mlp
from companion.study.together.measures import calibration_error, learned, noises
from companion.study.together.mlp import SMALLEST_DIFFERENCE, ArenaMLP
from companion.study.together.neurons import loss_of
from companion.study.together.sizes import equal_widths
from companion.study.training import linear, predict, train, warm_up

__all__ = ["EXPERIMENT", "NEURONS", "PAIRS", "REFUSED", "SMALLEST_DIFFERENCE", "alone", "build"]

PAIRS = ("aglu+arr", "la_silu+arr", "raa+arr", "two_arguments+arr", "aglu+dac")
"""The activation first, then what is done with it."""

REFUSED = ("la_silu+dac", "raa+dac", "relu+dac+arr")
"""Of the papers' pairs those of which `companion.rethink` says why they cannot be."""

# What an activation is compared with where something is done with it.
_PLAIN = {"arr": "gelu", "dac": "relu"}

Shape = tuple[int, int, int]


def alone(pair: str) -> tuple[str, str, str]:
    """Return the names of the networks with one of the two neurons of a pair, and with neither.

    Parameters
    ----------
    pair : str
        One of `PAIRS`.

    Returns
    -------
    (str, str, str)
        With the activation alone, with the other one alone, with neither.

    Examples
    --------
    >>> alone("raa+arr"), alone("aglu+dac")
    (('raa', 'gelu+arr', 'gelu'), ('aglu', 'relu+dac', 'relu'))
    """
    unit, other = pair.split("+")
    plain = _PLAIN[other]
    return unit, f"{plain}+{other}", plain


NEURONS = tuple(
    dict.fromkeys(name for group in (*reversed([*zip(*map(alone, PAIRS), strict=True)]), PAIRS) for name in group)
)
"""By the name that rows have: each pair, and what it is compared with."""


def build(name: str, front: nn.Module, shape: Shape, num_classes: int, widths: Sequence[int]) -> nn.Module:
    """Return the perceptron of some widths with some neurons.

    Parameters
    ----------
    name : str
        As `companion.rethink` takes it.
    front : nn.Module
        The first layer.
    shape : (int, int, int)
        Of an image.
    num_classes : int
        Logits.
    widths : sequence of int
        Units of the hidden layers.

    Returns
    -------
    nn.Module
        Fresh weights from torch's global generator.

    Raises
    ------
    ValueError
        If a neuron is unknown, or the neurons do not go together; then the error says why.
    """
    channels, height, width = shape
    plain = ArenaMLP(front, channels * height * width, num_classes, widths, lambda units: nn.GELU())
    return rethink(plain, name, shape, num_classes)


@cache
def _widths(name: str, shape: Shape, num_classes: int, profile: tuple[int, ...]) -> tuple[int, ...]:
    """The widths with which a network has as many parameters as GELU's with those of the profile."""

    def parameters(name: str, widths: Sequence[int]) -> int:
        with torch.random.fork_rng(devices=[]):
            return sum(p.numel() for p in build(name, nn.Identity(), shape, num_classes, widths).parameters())

    return equal_widths(name, profile, partial(parameters, name), parameters("gelu", profile))


def _fit(job: Job) -> Fitted:
    settings, name = settings_of(job), job.case["neuron"]
    splits = splits_of(job)
    front = Standardise(*channel_statistics(splits.train))
    channels, height, width = splits.train.inputs.shape[1:]
    shape, classes = (channels, height, width), splits.num_classes
    widths = _widths(name, shape, classes, tuple(settings["widths"]))
    torch.manual_seed(job.seed)
    model = build(name, front, shape, classes, widths)
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
    )
    return Fitted(model, splits)


def _measure(job: Job) -> list[Row]:
    fitted = _fit(job)
    model, test = fitted.model, fitted.splits.test
    logits = predict(model, test.inputs)
    cost = count(model, test.inputs.shape[1:])
    return [
        {
            "accuracy": float((logits.argmax(1) == test.targets).double().mean()),
            "loss": float(F.cross_entropy(logits, test.targets)),
            "calibration_error": calibration_error(logits, test.targets),
            **noises(model, test.subset(torch.arange(min(job.settings["noisy"], len(test)))), job.seed),
            **learned(model),
            "parameters": cost.parameters,
            "flops": cost.flops,
        }
    ]


def _cases(settings: Mapping[str, Any]) -> list[Case]:
    return grid(neuron=settings["competitors"])


def _like(preset: str, **changes: object) -> dict[str, Any]:
    """A preset of the perceptron's arena, with what is different here. All of it is computed on a CPU, in float32."""
    told = mlp.EXPERIMENT.presets[preset]
    return {key: told[key] for key in told if key not in ("precision", "compiled", "device")} | changes


_LAPTOP = _like("laptop", seeds=15, competitors=list(NEURONS))

EXPERIMENT = Experiment(
    name="together-pairs",
    mechanism="together",
    description="Pairs of neurons, and each alone, in one perceptron of equal size on 10,000 images of MNIST",
    presets={
        "smoke": _like("smoke", competitors=["gelu", "la_silu+arr", "two_arguments+arr", "aglu+dac"]),
        "pilot": {**_LAPTOP, "seeds": 5, "competitors": [*alone("raa+arr"), "raa+arr"]},
        "laptop": _LAPTOP,
    },
    cases=_cases,
    validate=partial(validation_accuracy, _fit),
    measure=_measure,
    columns=("accuracy", "loss", "calibration_error", "accuracy_std_0.3", "accuracy_mean_0.4", "parameters", "flops"),
    tolerance=mlp.EXPERIMENT.tolerance,
)
