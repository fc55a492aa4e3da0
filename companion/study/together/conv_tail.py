"""``together-conv-tail``: the convolutional arena where classes are rare, with and without balanced softmax.

Six neurons, among them those whose papers speak of long tails. Of the most frequent class of CIFAR-10 there are a
hundred times as many training images as of the rarest, which class is which each seed decides anew; validation and test
have all classes alike. About 12,400 images train for ten epochs, so there are half as many steps as in
`companion.study.together.experiments`, whose network, widths, augmentation and recipe these are.

*One thing is different for all*: labels are not smoothed. Smooth labels ask for the same small probability of every
wrong class, and balanced softmax multiplies a rare class's with a hundredth: a network that did what both ask would
call a frequent class's image rare.

Each pair of a neuron and a loss has its own learning rate, from one grid for all. "frequent" and "rare" are the three
tenths of the classes with the most and the fewest images (`companion.study.datasets.frequent_and_rare`). Where some
neurons chose another rate than GELU, "rates" has GELU at theirs, and "same-rate" them at GELU's.

*Cost* of "laptop" on one core: a training takes two minutes with GELU and up to three with the others; all of it,
tuning and five seeds, three hours.

*Power*: `SMALLEST_DIFFERENCE` was written first. The preset "pilot" is five seeds of GELU and ReLU with each loss. By
the deviation of their differences over all classes, a third of a point, five seeds find it among five comparisons.

References
----------
Cao et al. (2019), Learning imbalanced datasets with label-distribution-aware margin loss. Ren et al. (2020), Balanced
meta-softmax for long-tailed visual recognition.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from companion import count
from companion.study.datasets import frequent_and_rare
from companion.study.experiments import Case, Experiment, Job, Row, grid
from companion.study.experiments.classification import Fitted, validation_accuracy
from companion.study.together import experiments as conv
from companion.study.together.measures import calibration_error, learned
from companion.study.together.neurons import loss_of
from companion.study.training import Loss, evaluate, predict

__all__ = ["EXPERIMENT", "LOSSES", "SMALLEST_DIFFERENCE"]

SMALLEST_DIFFERENCE = 0.02
"""Of accuracies, where balanced softmax is worth ten points. Smaller ones do not matter."""

LOSSES = ("cross-entropy", "balanced softmax")
"""By the name that rows have."""

_NEURONS = ["gelu", "relu", "aglu", "la_silu", "raa", "dnrt"]
_IMBALANCE = 100


def _loss(fitted: Fitted, job: Job) -> Loss:
    """One of the two, and ARR's loss where it is attached."""
    name = job.case["loss"]
    if name not in LOSSES:
        raise ValueError(f"loss is {name!r}; allowed are {', '.join(LOSSES)}")
    loss, splits = loss_of(fitted.model), fitted.splits
    if name == "cross-entropy":
        return loss
    # log n_j + z_j, and an ordinary softmax: `companion.study.training.balanced_softmax`
    prior = torch.bincount(splits.train.targets, minlength=splits.num_classes).float().log()
    return lambda logits, targets: loss(logits + prior, targets)


_fit = partial(conv.fit, loss=_loss)


def _measure(job: Job) -> list[Row]:
    fitted = _fit(job)
    model, test = fitted.model, fitted.splits.test
    found = evaluate(model, test)
    frequent, rare = frequent_and_rare(fitted.splits.num_classes, job.seed)
    cost = count(model, test.inputs.shape[1:])
    return [
        {
            "accuracy": found.accuracy,
            "accuracy_frequent": found.accuracy_of(frequent),
            "accuracy_rare": found.accuracy_of(rare),
            "test_loss": found.loss,
            "calibration_error": calibration_error(predict(model, test.inputs), test.targets),
            "examples": len(fitted.splits.train),
            **learned(model),
            "parameters": cost.parameters,
            "flops": cost.flops,
        }
    ]


def _cases(settings: Mapping[str, Any]) -> list[Case]:
    return grid(imbalance=[_IMBALANCE], loss=LOSSES, neuron=settings["competitors"])


def _tail(preset: Mapping[str, Any], **changes: object) -> dict[str, Any]:
    """A preset of the convolutional arena, with what is different here."""
    kept = {key: value for key, value in preset.items() if key not in ("measured", "label_smoothing")}
    return {**kept, "competitors": _NEURONS, **changes}


_LAPTOP = _tail(conv._LAPTOP, epochs=10, tuning={"epochs": 3, "validation": 0.1}, seeds=5)

EXPERIMENT = Experiment(
    name="together-conv-tail",
    mechanism="together",
    description="Six neurons in the convolutional arena with rare classes, with and without balanced softmax",
    presets={
        # At the arena's own rates a hundred steps go other ways on other processors.
        "smoke": _tail(conv._SMOKE, train_size=None, learning_rates=[0.001], competitors=["gelu", "aglu", "dnrt"]),
        "pilot": {**_LAPTOP, "competitors": ["gelu", "relu"]},
        "laptop": _LAPTOP,
        # GELU at the rate that RAA and DNRT chose
        "rates": {**_LAPTOP, "learning_rates": [0.1], "tuning_seeds": [], "competitors": ["gelu"]},
        # and these two at GELU's
        "same-rate": {**_LAPTOP, "learning_rates": [0.3], "tuning_seeds": [], "competitors": ["raa", "dnrt"]},
        "full": _tail(conv._FULL, epochs=20, tuning={"epochs": 6, "validation": 0.1}, seeds=10),
    },
    cases=_cases,
    validate=partial(validation_accuracy, _fit),
    measure=_measure,
    columns=("accuracy", "accuracy_frequent", "accuracy_rare", "test_loss", "calibration_error"),
    conditions=("imbalance",),
    # Two images of the 135 whose classes are rare.
    tolerance=0.02,
)
