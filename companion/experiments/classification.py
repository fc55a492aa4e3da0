"""What experiments on image classification share: from a job to a trained network.

Settings that it reads: ``dataset``, ``network``, ``epochs``, ``batch_size``, ``weight_decay``, ``device``
("cpu" or "cuda") and ``augment`` (true: random crops and mirror images). The case may hold ``imbalance``.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from companion import datasets, models
from companion.experiments.registry import Job
from companion.training import evaluate, train

__all__ = ["Fitted", "fit", "validation_accuracy"]


@dataclass(frozen=True)
class Fitted:
    """A trained network and the data that it was trained on.

    Parameters
    ----------
    model : nn.Module
        In training mode, on the device of the data.
    splits : Splits
        The training part is long-tailed if the case says so.
    """

    model: nn.Module
    splits: datasets.Splits


def fit(
    job: Job,
    activation: Callable[[], nn.Module],
    attention: Callable[[int], nn.Module] | None = None,
) -> Fitted:
    """Train a network as the job says, with `companion.training.train`.

    The job's seed decides the split, the rare classes, the weights, the order of the batches, dropout and
    augmentation.

    Parameters
    ----------
    job : Job
        Settings, case, seed and learning rate.
    activation : callable
        Returns a new activation module.
    attention : callable, optional
        Takes a number of channels and returns a new attention module.

    Returns
    -------
    Fitted
        The network and its data.
    """
    settings = job.settings
    device = torch.device(settings["device"])
    splits = datasets.load(settings["dataset"], job.seed)
    splits = datasets.with_long_tail(splits, job.case["imbalance"], job.seed).to(device)
    torch.manual_seed(job.seed)
    model = models.build(
        settings["network"], splits.train.inputs.shape[1:], splits.num_classes, activation, attention
    ).to(device)
    train(
        model,
        splits.train,
        epochs=settings["epochs"],
        learning_rate=job.rate,
        batch_size=settings["batch_size"],
        weight_decay=settings["weight_decay"],
        seed=job.seed,
        augment=datasets.random_crop_and_mirror if settings["augment"] else None,
    )
    return Fitted(model, splits)


def validation_accuracy(fitting: Callable[[Job], Fitted], job: Job) -> float:
    """Return the accuracy of a job's network on the validation part.

    The classes of that part are as in the whole data set, not long-tailed. An experiment says
    ``validate=partial(validation_accuracy, its_own_fitting)``.

    Parameters
    ----------
    fitting : callable
        Job → trained network.
    job : Job
        A tuning job.

    Returns
    -------
    float
        Between 0 and 1.
    """
    fitted = fitting(job)
    return evaluate(fitted.model, fitted.splits.validation).accuracy
