"""The arenas: every neuron in one network, on one data set, by one recipe, with equal parameters and equal tuning.

``together-conv``: CIFAR-10, six convolutions (`companion.study.together.network`), all neurons of `NEURONS`.

*The recipe* is after Jordan (2024) and written anew: a first layer that whitens patches of 2×2 pixels and learns
nothing, max pooling, batch normalisation, label smoothing of 0.2, mirror images, shifts by up to two pixels, SGD with
Nesterov's momentum, and one triangle of the learning rate. Left out of his: the second half of the whitening filters
(the negatives) and the activation behind them, the bias there that learns for some epochs, Dirac initialisation, the
alternating flip (here each image is mirrored with probability ½), reflected borders of shifted images (here they are
black), the 64 times faster learning of the normalisations' shifts and their frozen scales, decoupled weight decay
(here it is added to the gradient of kernels alone), lookahead (the average of slow weights), the head's fixed factor,
test images seen from several sides, and half precision. Blocks are 32, 64 and 64 units wide where his are 64, 256 and
256, which the preset "full" has.

*Equal.* Widths are such that all networks have as many parameters as GELU's, within one per cent
(`companion.study.together.neurons.equal_widths`); rows say parameters and FLOPs. All neurons meet one grid of rates,
which grows for all where anybody's best lies at its edge, in trainings of two of the five epochs (three of ten) on
45,000 images; 5,000 validate. Then all 50,000 train, and the test images judge, after the last step. Seeds are paired:
the same order of batches, and the same weights at the start where the widths are the profile's, but for AGLU, which
draws κ and λ before them: its pairs share batches alone.

*Fixed for all before the first comparison*: the recipe, of which nothing was tuned but the rates; ARR's weight, 1,
which the paper has where it does not tune, on what all six activations give, averaged over pixels; AGLU as the paper
starts it in classifiers; LayerAct over all channels and pixels of an image, as published; two copies for multi-bias.
The learned function of two arguments is in the last layer alone, with GELU in the others: in all layers it costs
fifteen times a usual activation. It begins with Xavier's weights and learns with the rest; the paper's three sessions
are not repeated here.

*Per image*: in the preset "per-image" every image is standardised by itself, over its channels and pixels, in place of
by all training images (`companion.study.together.network.PerImage`); GELU and LA-SiLU, at the rate that both chose
without it.

*Power*: `companion.study.together.power`, written first. The preset "pilot" is five seeds of GELU and ReLU.

*Precision*: float32 in all rows of "laptop"; bfloat16 under autocast in all rows of "full", for a GPU.

References
----------
Jordan (2024), 94% on CIFAR-10 in 3.29 seconds on a single GPU, arXiv:2404.00498.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from companion import count
from companion.study.datasets import random_crop_and_mirror
from companion.study.experiments import Case, Experiment, Job, Row, grid, register
from companion.study.experiments.classification import Fitted, settings_of, splits_of, validation_accuracy
from companion.study.together.measures import judged
from companion.study.together.network import front
from companion.study.together.neurons import NEURONS, build, equal_widths, loss_of
from companion.study.training import Loss, linear, train, warm_up

__all__ = ["fit"]


def _smooth(fitted: Fitted, job: Job) -> Loss:
    return loss_of(fitted.model, job.settings["label_smoothing"])


def fit(job: Job, loss: Callable[[Fitted, Job], Loss] = _smooth) -> Fitted:
    """Train a network as the job says.

    Parameters
    ----------
    job : Job
        With a preset's settings.
    loss : callable
        Takes the network and its data, and the job.
    """
    settings, neuron = settings_of(job), job.case["neuron"]
    splits = splits_of(job)
    first = front(splits.train.inputs, per_image=settings.get("per_image", False))
    splits = splits.to(settings["device"])
    channels, height, width = splits.train.inputs.shape[1:]
    shape, classes = (channels, height, width), splits.num_classes
    widths = equal_widths(neuron, first, shape, classes, settings["widths"])
    torch.manual_seed(job.seed)
    model = build(neuron, first, shape, classes, widths).to(settings["device"])
    fitted = Fitted(model.to(memory_format=torch.channels_last), splits)
    train(
        fitted.model,
        splits.train,
        epochs=settings["epochs"],
        learning_rate=job.rate,
        batch_size=settings["batch_size"],
        weight_decay=settings["weight_decay"],
        decay="kernels",
        momentum=settings["momentum"],
        nesterov=True,
        seed=job.seed,
        augment=partial(random_crop_and_mirror, padding=settings["shift"]),
        schedule=warm_up(settings["warm_up"], linear),
        loss=loss(fitted, job),
        precision=settings["precision"],
        compiled=settings["compiled"],
    )
    return fitted


def _measure(job: Job) -> list[Row]:
    fitted = fit(job)
    model, splits = fitted.model, fitted.splits
    cost = count(model, splits.test.inputs.shape[1:])
    return [
        {
            **judged(model, splits.train, splits.test, job.settings["measured"], job.seed),
            "parameters": cost.parameters,
            "flops": cost.flops,
        }
    ]


def _cases(settings: Mapping[str, Any]) -> list[Case]:
    return grid(neuron=settings["competitors"])


_LAPTOP: dict[str, Any] = {
    "dataset": "cifar10",
    "standardise": "none",
    "validation": 0,
    "tuning": {"epochs": 2, "validation": 0.1},
    "widths": [32, 64, 64],
    "epochs": 5,
    "batch_size": 250,
    "momentum": 0.9,
    "weight_decay": 5e-4,
    "label_smoothing": 0.2,
    "shift": 2,
    "warm_up": 0.2,
    "precision": "float32",
    "compiled": False,
    "device": "cpu",
    "measured": {"collapse": 10_000, "noise": 2000, "corrupted": 1000, "attacked": 1000},
    "learning_rates": [0.3, 1.0, 3.0],
    "tuning_seeds": [1000],
    "seeds": 13,
    "competitors": list(NEURONS),
}
_FULL: dict[str, Any] = {
    **_LAPTOP,
    "tuning": {"epochs": 3, "validation": 0.1},
    "widths": [64, 256, 256],
    "epochs": 10,
    "precision": "bfloat16",
    "compiled": True,
    "device": "cuda",
}
# To see that all kinds of entrance run. Few steps at a low rate: processors differ little.
_SMOKE: dict[str, Any] = {
    **_LAPTOP,
    "dataset": "digits",
    "tuning": {"epochs": 1, "validation": 0.2},
    "widths": [16, 32, 32],
    "epochs": 3,
    "train_size": 200,
    "shift": 1,
    "measured": {"collapse": 200, "noise": 60, "corrupted": 60, "attacked": 60},
    "batch_size": 40,
    "learning_rates": [0.003, 0.01],
    "seeds": 2,
    "competitors": ["gelu", "la_silu", "dnrt", "dac", "multibias", "maxout", "two_arguments_last"],
}

register(
    Experiment(
        name="together-conv",
        mechanism="together",
        description="Every neuron in one convolutional network of equal size on CIFAR-10",
        presets={
            "smoke": _SMOKE,
            "pilot": {**_LAPTOP, "seeds": 5, "competitors": ["gelu", "relu"]},
            "laptop": _LAPTOP,
            "full": _FULL,
            # GELU at the rate that RAA chose: how much of what RAA loses is the rate's?
            "rates": {**_LAPTOP, "learning_rates": [0.3], "tuning_seeds": [], "competitors": ["gelu"]},
            # and what RAA and DNRT have at GELU's
            "same-rate": {
                **_LAPTOP,
                "learning_rates": [1.0],
                "tuning_seeds": [],
                "seeds": 5,
                "competitors": ["raa", "dnrt"],
            },
            # What LA-SiLU is to bear, a change of an image's level and contrast, taken away before the network sees it
            "per-image": {
                **_LAPTOP,
                "per_image": True,
                "learning_rates": [1.0],
                "tuning_seeds": [],
                "seeds": 5,
                "competitors": ["gelu", "la_silu"],
            },
        },
        cases=_cases,
        validate=partial(validation_accuracy, fit),
        measure=_measure,
        columns=(
            "accuracy",
            "loss",
            "calibration_error",
            "collapse",
            "accuracy_std_0.1",
            "accuracy_mean_0.2",
            "accuracy_corrupted",
            "accuracy_attacked",
            "parameters",
            "flops",
        ),
        # One image of 60; other numbers differ by 2e-3 between processors.
        tolerance=0.02,
    )
)
