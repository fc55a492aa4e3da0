"""What experiments on image classification share: from a job to a trained network.

Settings that it reads: ``dataset``, ``network``, ``epochs``, ``batch_size``, ``weight_decay``, ``device``
("cpu" or "cuda") and ``augment`` (true: random crops and mirror images; "mirror": mirror images alone). The case may
hold ``imbalance`` or ``wrong_labels``, and ``network`` where networks are compared.

Settings that may be absent:

``validation``
    Fraction of the training images that validate.
``standardise``
    "data" (as if absent): the images are standardised before anything else. "network": the images stay in
    [0, 1], and so do crops and noise; the network's first layer standardises. "none": nothing does.
``milestones``
    Fractions of the training after which the learning rate is a tenth of what it was; absent: a cosine.
``warm_up``
    Fraction of the training during which the learning rate rises in a straight line; the cosine follows.
``optimiser``, ``clip``
    As in `companion.study.training.train`.
``one_cycle``
    True: one cycle of the learning rate (`companion.study.training.one_cycle`) instead of either.
``precision``, ``compiled``
    As in `companion.study.training.train`. Only training is mixed and compiled: what is measured afterwards is computed
    in float32, operator by operator.
``channels_last``
    True: weights, and so feature maps, lie in memory with the channels last.
``tuning``
    What is different while a learning rate is tuned, for example {"epochs": 5}: settings that take the place of
    those of the same name.
``folds``
    Number of folds for cross-validation, instead of ``validation``: fold number seed validates.
``train_size``, ``validation_size``
    How many images of these parts to keep; the seed draws which.
``test_size``
    The same for the test images; they are the same for every seed.
``pool``
    Squares of so many pixels are averaged before anything else.
``decay``
    "kernels": weight decay only for the weights of linear operators. "all" (as if absent): as modules say.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion.study import datasets, models
from companion.study.experiments.registry import Job
from companion.study.training import Loss, Schedule, cosine, evaluate, one_cycle, staircase, train, warm_up

__all__ = ["Fitted", "fit", "settings_of", "splits_of", "validation_accuracy"]


_AUGMENTATIONS: dict[bool | str, Callable[[Tensor], Tensor] | None] = {
    False: None,
    True: datasets.random_crop_and_mirror,
    "mirror": partial(datasets.random_crop_and_mirror, padding=0),
}


@dataclass(frozen=True)
class Fitted:
    """A trained network and the data that it was trained on.

    Parameters
    ----------
    model : nn.Module
        In training mode, on the device of the data.
    splits : Splits
        The training part is long-tailed or has wrong labels if the case says so, and smaller if the settings say so.
    """

    model: nn.Module
    splits: datasets.Splits


def fit(
    job: Job,
    activation: Callable[[], nn.Module],
    attention: Callable[[int], nn.Module] | None = None,
    watch: Callable[[Fitted, int], None] | None = None,
    convert: Callable[[nn.Module, datasets.Splits], nn.Module] | None = None,
    loss: Callable[[Fitted], Loss] | None = None,
) -> Fitted:
    """Train a network as the job says, with `companion.study.training.train`.

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
    watch : callable, optional
        Called after every epoch with the network, its data and the number of the epoch, from 1. It must leave
        the network as it is and draw nothing from torch's global generator.
    convert : callable, optional
        Takes the network that was built, and its data, and returns the one to train.
    loss : callable, optional
        Takes the network and its data and returns the loss, of outputs and targets; absent: cross-entropy.

    Returns
    -------
    Fitted
        The network and its data.
    """
    settings = settings_of(job)
    device = torch.device(settings["device"])
    splits = splits_of(job)
    standardisation = (
        models.Standardise(*datasets.channel_statistics(splits.train))
        if settings.get("standardise") == "network"
        else None
    )
    splits = splits.to(device)
    torch.manual_seed(job.seed)
    network = job.case.get("network") or settings["network"]
    model = models.build(network, splits.train.inputs.shape[1:], splits.num_classes, activation, attention)
    if convert is not None:
        model = convert(model, splits)
    if standardisation is not None:
        model = nn.Sequential(standardisation, model)
    model = model.to(device)
    if settings.get("channels_last", False):
        model = model.to(memory_format=torch.channels_last)
    fitted = Fitted(model, splits)
    train(
        fitted.model,
        splits.train,
        epochs=settings["epochs"],
        learning_rate=job.rate,
        batch_size=settings["batch_size"],
        weight_decay=settings["weight_decay"],
        decay=settings.get("decay", "all"),
        seed=job.seed,
        augment=_AUGMENTATIONS[settings["augment"]],
        schedule=_schedule(settings),
        loss=loss(fitted) if loss else F.cross_entropy,
        optimiser=settings.get("optimiser", "sgd"),
        clip=settings.get("clip"),
        precision=settings.get("precision", "float32"),
        compiled=settings.get("compiled", False),
        after_epoch=partial(watch, fitted) if watch else None,
    )
    return fitted


def settings_of(job: Job) -> dict[str, Any]:
    """Return the settings of a job: while its rate is tuned, with what ``tuning`` puts in their place."""
    return {**job.settings, **(job.settings.get("tuning", {}) if job.stage == "tuning" else {})}


def _schedule(settings: Mapping[str, Any]) -> Schedule:
    if settings.get("one_cycle", False):
        return one_cycle
    if "milestones" in settings:
        return staircase(settings["milestones"])
    return warm_up(settings["warm_up"]) if "warm_up" in settings else cosine


def splits_of(job: Job) -> datasets.Splits:
    """Return a job's data on the CPU, for who trains in another way than `fit`.

    Parameters
    ----------
    job : Job
        Settings, case and seed.

    Returns
    -------
    Splits
        As the settings and the case say.
    """
    settings = settings_of(job)
    place = settings.get("standardise", "data")
    if place not in ("data", "network", "none"):
        raise ValueError(f"standardise is {place!r}; allowed are data, network, none")
    options = {key: settings[key] for key in ("validation", "folds") if key in settings}
    splits = datasets.load(settings["dataset"], job.seed, standardise=place == "data", **options)
    if "imbalance" in job.case:
        splits = datasets.with_long_tail(splits, job.case["imbalance"], job.seed)
    for name, seed in (("train", job.seed), ("validation", job.seed), ("test", 0)):
        if (size := settings.get(f"{name}_size")) is not None:
            part = getattr(splits, name)
            order = torch.randperm(len(part), generator=torch.Generator().manual_seed(seed))
            splits = replace(splits, **{name: part.subset(order[:size])})
    if "wrong_labels" in job.case:
        splits = datasets.with_wrong_labels(splits, job.case["wrong_labels"], job.seed)
    if (pool := settings.get("pool")) is not None:
        parts = {name: getattr(splits, name) for name in ("train", "validation", "test")}
        splits = replace(
            splits, **{name: replace(part, inputs=F.avg_pool2d(part.inputs, pool)) for name, part in parts.items()}
        )
    return splits


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
