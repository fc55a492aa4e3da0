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

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import nn

from companion import rethink
from companion.study.experiments import Experiment, Job, Row
from companion.study.experiments.classification import validation_accuracy
from companion.study.together import mlp
from companion.study.together.mlp import SMALLEST_DIFFERENCE, ArenaMLP

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
    """Return the perceptron with some neurons, named as `companion.rethink` takes them; it refuses what cannot be."""
    channels, height, width = shape
    plain = ArenaMLP(front, channels * height * width, num_classes, widths, lambda units: nn.GELU())
    return rethink(plain, name, shape, num_classes)


_fit = partial(mlp.fit, build=build)


def _measure(job: Job) -> list[Row]:
    return [mlp.measured(_fit(job), job)]


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
    cases=mlp.cases,
    validate=partial(validation_accuracy, _fit),
    measure=_measure,
    columns=("accuracy", "loss", "calibration_error", "accuracy_std_0.3", "accuracy_mean_0.4", "parameters", "flops"),
    # Five noisy images of 100: two processors' roundings made a difference of four in one network.
    tolerance=0.05,
)
