"""What an activation of several arguments does for networks, what it learns, and what the networks bear.

"The paper" is Kim et al. (2022). A *neuron* is "relu"; "arity 1", "arity 2" or "arity 3", an inner network with so
many arguments; or "quadratic", a form of two arguments with six coefficients. Each is run with and without layer
normalisation before it.

One job is the paper's three sessions. I: the inner network learns a random smooth map. II: it learns together with an
outer network. III: it is frozen, and a new outer network, with other weights and another order of the images, learns
alone. The accuracies that are compared are those of session III, where what learns has equal numbers of parameters.
For ReLU, II and III are two trainings of the same kind. Every seed has a map, a function and an outer network for it of
its own.

From the paper: three hidden layers of 64 units or four 3×3 convolutions to 60, 120, 120 and 120 maps with 2×2 max
pooling, dropout ½, Adam, stopping when the validation error has not improved for 20 epochs. What it leaves open is
decided here, as in the published code where that says it:

- Batches of 200, no weight decay, a constant learning rate, 1e-3 where the paper is reproduced; inner and outer network
  share the optimiser. Pixels between 0 and 1 go through (x − ½)/½. No augmentation.
- A tenth of the training images validates. The weights of the epoch with the highest validation accuracy are kept, by
  copy; test images decide nothing. A training of 200 epochs (of the full presets) ends, stopped or not; the paper shows
  400 of session III. A curve over epochs ends where its training did.
- The widths are numbers of units; a unit has its arguments side by side. Normalisation is over all weighted sums of a
  sample, without learned numbers, before the inner network; dropout comes after it, of single numbers, in convolutional
  networks after the pooling; the head has neither. All layers are pooled while the map is at least 2×2, and its mean
  feeds a linear head: the published code's fourth convolution is a linear layer.
- Outer networks have as many parameters as that of "arity 2", all weights and biases counted, within one per cent and
  never more (`companion.study.models.matched_widths`); so do those of one and of three arguments, and "quadratic" has
  the widths of "arity 2". The inner network, 4,417 parameters, is in no count: in session III nothing learns in it.
- Outer weights begin as everywhere in this package, inner ones with Xavier's uniform and biases 0, before session I.
- Session I: the published code's map, noise on ±5 with a blur of a third, 2,000 steps of 512 arguments, after which the
  inner network explains something like half of the map ("map_explained"); outside the square it continues as it will.
  Setting ``map``: "paper" has five by five units with a blur of three, which is nearly a constant. For three arguments
  the cells are 0.4 wide, where 0.1 would take a million of them and leave a contrast of a fiftieth. "quadratic" begins
  as the best fit, for normal arguments, to the inner network that "arity 2" of the same seed begins with.
- ReLU has the same normalisation as its competitors, and the same dropout.

The paper says that hyperparameters were optimised, and describes no search. Here the ``full`` presets are reproductions
with the published rate, for a GPU; ``laptop`` is a comparison: each neuron, with and without normalisation, gets the
rate that the validation accuracy of session II chose from one grid for all, with two seeds that are not evaluated, and
the same rate in session III. It is smaller than the paper, so that two cores can run it: the perceptrons are the
paper's, with 3,000 training, 1,000 validation and 2,000 test images and at most 50 epochs; the convolutional networks
have 8, 16 and 16 maps and images averaged to 8 × 8 pixels, 2,000 of them, at most 30 epochs, and neither three
arguments nor quadratics; for MNIST (``mnist``, where the paper has its largest lead under attack) 9, 16 and 16, and
3,000 images of 14 × 14 pixels. ``functions`` ends after session II: what 24 networks with two arguments learn. (A step
of 200 images takes a perceptron of "arity 2" about 0.04 s on a core, of "arity 1" 0.06 s, of ReLU 0.01 s. With all
54,000 images the 180 trainings of 200 epochs would take two cores 40 hours.)

Of what was learned a row holds, for the weights that session II keeps and, with ``start_``, for those that session I
gives: the best-fit quadratic, the share of the variance that it and that a plane explain, curvature and shape
(`companion.multi_argument.study.surfaces`), and the spectrum of the function with mean 0 and variance 1 in Hermite
functions. The density is that of the arguments: 20,000 of all units, layers and places alike, of 500 validation images;
for the spectrum they are divided by their root mean square. So what a random function has stands beside what was
learned: the sign of a learned curvature is to be compared with the start's, not with even odds. In seed 0 of "arity 2"
a row holds the function on a grid of 41 × 41 points, over ± the 99 % quantile of the arguments' sizes, after some
epochs of session II and for the weights that are kept ("surface_kept"). Where a training diverged these are absent.

What the network of session III bears: corrupted images are `companion.study.corruptions.SEVERITIES`, where the paper
has CIFAR-10-C. The attack is `companion.study.analysis.projected_gradient` with 40 steps on some of the test images, in
evaluation mode, with several ε of black to white, the last with the paper's number. The paper has AutoAttack, which is
stronger: accuracies under attack are upper bounds. But its attack is another in more than that, by the published code:
there pixels lie between -1 and 1, so that 0.3 is 0.15 of black to white; the attack clips to [0, 1], which turns black
into grey; and dropout stays on. So the accuracies of its Table 1 are none of ours. `masking` says where ours cannot be
believed. Where one is not above a tenth, a constant would do as well.

How neurons are compared, fixed before any result: differences of test accuracy in session III, paired by seed, t-test,
with Holm's correction over the four pairs of one result (`comparisons`): "arity 2" with normalisation, which is the
paper's, against ReLU and "arity 1", each with and without it.

References
----------
Kim, Orhan, Yoon, Pitkow (2022), Two-argument activation functions learn soft XOR operations like cortical neurons.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from companion.multi_argument.layers import MultiArgument, Quadratic
from companion.multi_argument.quadratic import fit_quadratic
from companion.multi_argument.study.counts import conv_parameters, mlp_parameters
from companion.multi_argument.study.pretraining import PAPER, PUBLISHED_CODE, Grid, RandomMap, fit
from companion.multi_argument.study.surfaces import curvature, hermite_functions, shape, spectrum
from companion.study.analysis import Comparison, by_seed, family, projected_gradient, quantiles
from companion.study.corruptions import SEVERITIES
from companion.study.datasets import Part, Splits
from companion.study.experiments import Case, Experiment, Job, Row, grid, register
from companion.study.experiments.classification import splits_of
from companion.study.models import Standardise, UnitCNN, UnitMLP, matched_widths
from companion.study.training import Patience, constant, evaluate, train

__all__ = ["comparisons", "label", "masking"]

_ARITIES = {"relu": 1, "arity 1": 1, "arity 2": 2, "arity 3": 3, "quadratic": 2}
_MAPS = {
    "code": {1: PUBLISHED_CODE, 2: PUBLISHED_CODE, 3: Grid(cells=25, width=0.4, sigma=1 / 3)},
    "paper": dict.fromkeys((1, 2, 3), PAPER),
}
#: Added to the seed: the outer network of session III.
_NEW = 10_000

Inner = MultiArgument | Quadratic


# The networks.


def _widths(settings: Mapping[str, Any], shape: Sequence[int], classes: int, arity: int) -> tuple[int, ...]:
    """The units of the hidden layers: as set for two arguments, and for others as many as have no more parameters."""
    hidden = tuple(settings["hidden"])

    def parameters(arity: int, widths: Sequence[int]) -> int:
        if settings["network"] == "mlp":
            return mlp_parameters(math.prod(shape), widths, classes, arity)
        return conv_parameters(shape[0], widths, classes, arity)

    return hidden if arity == 2 else matched_widths(hidden, partial(parameters, arity), parameters(2, hidden))


def _network(job: Job, splits: Splits, inner: Inner | None) -> nn.Module:
    """An outer network around an inner one, or ReLU."""
    settings, arity = job.settings, _ARITIES[job.case["neuron"]]
    channels, *pixels = splits.train.inputs.shape[1:]
    widths = _widths(settings, (channels, *pixels), splits.num_classes, arity)
    activation: Callable[[], nn.Module] = nn.ReLU if inner is None else lambda: inner
    network: nn.Module
    if settings["network"] == "mlp":
        features = channels * math.prod(pixels)
        network = UnitMLP(features, splits.num_classes, widths, activation, arity, job.case["norm"])
    else:
        network = UnitCNN(channels, splits.num_classes, widths, activation, arity, job.case["norm"])
    half = torch.tensor(0.5)
    return nn.Sequential(Standardise(half, half), network)


# The three sessions.


def _pretrained(job: Job) -> tuple[Inner | None, float | None]:
    """Session I: the inner network, and the share of its map's variance that it explains; none for ReLU."""
    neuron, settings = job.case["neuron"], job.settings
    if neuron == "relu":
        return None, None
    arity, dim = _ARITIES[neuron], -1 if settings["network"] == "mlp" else 1
    torch.manual_seed(job.seed)
    inner = MultiArgument(arity, dim=dim)
    target = RandomMap(arity, job.seed, _MAPS[settings["map"]][arity])
    explained = fit(inner, target, target.radius, steps=settings["map_steps"], seed=job.seed)
    if neuron != "quadratic":
        return inner, explained
    normal = torch.randn(4096, arity, generator=torch.Generator().manual_seed(job.seed))
    return inner.quadratic(normal)[0], explained


@dataclass
class _Session:
    """An outer network in training, and what is kept of it.

    Parameters
    ----------
    model : nn.Module
        At the end with the weights of the best epoch.
    accuracies : list of float
        On the validation images, after every epoch.
    best : int
        The epoch whose weights are kept, from 1.
    """

    model: nn.Module
    accuracies: list[float] = field(default_factory=list)
    best: int = 0

    @property
    def accuracy(self) -> float:
        """Of the epoch whose weights are kept; NaN where there is none."""
        return self.accuracies[self.best - 1]


def _train(
    job: Job, splits: Splits, inner: Inner | None, seed: int, watch: Callable[[int], None] | None = None
) -> _Session:
    """Session II, or, with an inner network that is frozen, session III."""
    settings = job.settings
    torch.manual_seed(seed)
    model = _network(job, splits, inner).to(splits.train.inputs.device)
    session, kept = _Session(model), model.state_dict()
    patience = Patience(start=1, epochs=settings["window"], threshold=0.0)

    def after_epoch(epoch: int) -> bool:
        nonlocal kept
        accuracy = evaluate(model, splits.validation).accuracy
        if accuracy > max((each for each in session.accuracies if not math.isnan(each)), default=-1.0):
            session.best, kept = epoch, copy.deepcopy(model.state_dict())
        session.accuracies.append(accuracy)
        if watch is not None:
            watch(epoch)
        return patience(epoch, 1 - accuracy)

    train(
        model,
        splits.train,
        epochs=settings["epochs"],
        learning_rate=job.rate,
        batch_size=settings["batch_size"],
        weight_decay=0.0,
        seed=seed,
        schedule=constant,
        optimiser="adam",
        after_epoch=after_epoch,
    )
    model.load_state_dict(kept)
    return session


def _begun(job: Job) -> tuple[Splits, Inner | None, float | None]:
    """The data and the inner network, where session II computes."""
    splits = splits_of(job).to(job.settings["device"])
    inner, explained = _pretrained(job)
    return splits, inner if inner is None else inner.to(job.settings["device"]), explained


def _validate(job: Job) -> float:
    splits, inner, _ = _begun(job)
    return _train(job, splits, inner, job.seed).accuracy


# What was learned.

_IMAGES, _ARGUMENTS, _DEGREE = 500, 20_000, 6
_EPOCHS, _POINTS, _INSIDE = (0, 1, 2, 3, 5, 10), 41, 0.99


@torch.no_grad()
def _arguments(model: nn.Module, inner: Inner, images: Tensor) -> Tensor:
    """Arguments (N, n) of all units, layers and places alike."""
    found: list[Tensor] = []
    hook = inner.register_forward_pre_hook(
        lambda module, args: found.append(args[0].movedim(inner.dim, -1).reshape(-1, inner.arity))
    )
    training = model.training
    model.eval()(images)
    model.train(training)
    hook.remove()
    everything = torch.cat(found).cpu()
    order = torch.randperm(len(everything), generator=torch.Generator().manual_seed(0))
    return everything[order[:_ARGUMENTS]]


def _plane(arguments: Tensor, values: Tensor) -> float:
    """The share of the variance that a linear function explains."""
    a, f = (each - each.mean(0) for each in (arguments.double(), values.double()))
    rest = f - a @ torch.linalg.lstsq(a, f[:, None], driver="gelsd").solution[:, 0]
    return float(1 - rest.square().sum() / f.square().sum())


@torch.no_grad()
def _function(inner: Inner, arguments: Tensor) -> Row:
    """What a function is, where the arguments are."""
    values = copy.deepcopy(inner).cpu().at(arguments)
    coefficients, explained = fit_quadratic(arguments, values)
    of_size_one = arguments / arguments.square().mean().sqrt()
    power = spectrum((values - values.mean()) / values.std(), hermite_functions(of_size_one, _DEGREE))
    row: Row = {
        "coefficients": coefficients.tolist(),
        "explained": explained,
        "explained_by_plane": _plane(arguments, values),
        "spectrum": power.tolist(),
    }
    return row | ({"curvature": curvature(coefficients), "shape": shape(coefficients)} if inner.arity == 2 else {})


def _surfaces(inners: Mapping[str, Inner], arguments: Tensor) -> Row:
    """Functions on a grid, row by row, to three digits."""
    extent = float(f"{torch.quantile(arguments.abs().flatten(), _INSIDE):.3g}")
    axis = torch.linspace(-extent, extent, _POINTS)
    drawn = {name: copy.deepcopy(inner).cpu().surface(axis, axis) for name, inner in inners.items()}
    return {
        "surface_extent": extent,
        **{f"surface_{name}": [float(f"{v:.3g}") for v in values.flatten().tolist()] for name, values in drawn.items()},
    }


def _learned(model: nn.Module, inner: Inner, start: Inner, earlier: Mapping[str, Inner], images: Tensor) -> Row:
    """What session II made of what session I gave; nothing where it diverged."""
    arguments = _arguments(model, inner, images)
    if not all(bool(each.isfinite().all()) for each in (arguments, *inner.parameters())):
        return {}
    began = {f"start_{key}": value for key, value in _function(start, arguments).items()}
    drawn = _surfaces({**earlier, "kept": inner}, arguments) if earlier else {}
    return {**_function(inner, arguments), **began, "argument_quantiles": quantiles(arguments), **drawn}


# What the networks bear.

_STEPS = (0, 1, 2, 5, 10, 20, 40)


def _robustness(settings: Mapping[str, Any], model: nn.Module, test: Part, seed: int) -> Row:
    """Accuracies on corrupted images, and under attack with all that `masking` asks for."""
    # On the CPU, so that every device meets the same noise.
    images, generator = test.inputs.cpu(), torch.Generator().manual_seed(seed)

    def accuracy(corrupted: Tensor, targets: Tensor) -> float:
        return evaluate(model, Part(corrupted.to(test.inputs.device), targets)).accuracy

    row: Row = {
        f"accuracy_{kind}": [accuracy(corrupt(images, generator), test.targets) for corrupt in severities]
        for kind, severities in SEVERITIES.items()
    }
    some = test.subset(torch.arange(min(settings["attacked"], len(test)), device=test.targets.device))
    x, targets = some.inputs, some.targets
    signs = torch.randn(x.shape, generator=generator).sign().to(x.device)
    margins: dict[int, float] = {}

    def watch(step: int, values: Tensor) -> None:
        margins[step] = float(values.mean())

    under: dict[str, list[float]] = {"attack": [], "one_step": [], "random_signs": []}
    for epsilon in settings["epsilons"]:
        # the last one is watched
        under["attack"].append(accuracy(projected_gradient(model, x, targets, epsilon, watch=watch), targets))
        one_step = projected_gradient(model, x, targets, epsilon, steps=1)
        under["one_step"].append(accuracy(one_step, targets))
        under["random_signs"].append(accuracy((x + epsilon * signs).clamp(0, 1), targets))
    every = [value for kind in SEVERITIES for value in row[f"accuracy_{kind}"]]
    return row | {
        "accuracy_corrupted": math.fsum(every) / len(every),
        "accuracy_attacked": under["attack"][-1],
        **{f"accuracy_{kind}": values for kind, values in under.items()},
        "accuracy_unbounded": accuracy(projected_gradient(model, x, targets, 1.0), targets),
        "without_gradient": float((one_step == x).flatten(1).all(1).double().mean()),
        "margins": [margins[step] for step in _STEPS],
    }


# The experiments.

_COLUMNS = ("accuracy", "accuracy_two", "epochs", "epochs_two", "accuracy_corrupted", "accuracy_attacked")


def _measure(job: Job) -> list[Row]:
    splits, inner, explained = _begun(job)
    validation, earlier = splits.validation, {}
    start, pictures = copy.deepcopy(inner), job.seed == 0 and job.case["neuron"] == "arity 2"

    def watch(epoch: int) -> None:
        if inner is not None and epoch in _EPOCHS:
            earlier[f"epoch_{epoch}"] = copy.deepcopy(inner)

    if pictures:
        watch(0)
    second = _train(job, splits, inner, job.seed, watch if pictures else None)
    row: Row = {
        "accuracy_two": evaluate(second.model, splits.test).accuracy,
        "accuracy_validation_two": second.accuracy,
        "accuracy_by_epoch_two": second.accuracies,
        "epochs_two": len(second.accuracies),
        "best_epoch_two": second.best,
        "parameters_two": _learnable(second.model),
    }
    if inner is not None and start is not None:
        images = validation.inputs[:_IMAGES]
        row |= {"map_explained": explained, **_learned(second.model, inner, start, earlier, images)}
        inner.requires_grad_(False)
    if job.settings.get("sessions") == 2:
        return [dict.fromkeys(_COLUMNS) | row]
    third = _train(job, splits, inner, job.seed + _NEW)
    row |= {
        "accuracy": evaluate(third.model, splits.test).accuracy,
        "accuracy_validation": third.accuracy,
        "accuracy_by_epoch": third.accuracies,
        "epochs": len(third.accuracies),
        "best_epoch": third.best,
        "parameters": _learnable(third.model),
    }
    return [row | _robustness(job.settings, third.model, splits.test, job.seed)]


def _learnable(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _cases(settings: Mapping[str, Any]) -> list[Case]:
    return grid(neuron=settings["neurons"], norm=settings["norms"])


def label(row: Mapping[str, Any]) -> str:
    """The neuron of a row, and whether normalisation comes before it: "arity 2 + norm"."""
    return f"{row['neuron']} + norm" if row["norm"] else str(row["neuron"])


_PAIRS = [("arity 2 + norm", other) for other in ("relu", "relu + norm", "arity 1", "arity 1 + norm")]


def comparisons(result: Mapping[str, Any], measure: str = "accuracy") -> list[Comparison[tuple[str, str]]]:
    """Compare the neurons of a result as the protocol says.

    Parameters
    ----------
    result : mapping
        As `companion.study.results.load` gives it.
    measure : str
        A column of its rows.

    Returns
    -------
    list of Comparison
        By pair of labels, as `label` gives them; differences are first minus second.
    """
    series = by_seed(result["rows"], measure, label)
    return family({(a, b): (series[a], series[b]) for a, b in _PAIRS if a in series and b in series})


def masking(row: Mapping[str, Any]) -> list[str]:
    """Say why a row's accuracies under attack cannot be believed.

    Parameters
    ----------
    row : mapping
        Of a result.

    Returns
    -------
    list of str
        A phrase for each sign that gradients are masked; none if there is no sign.
    """
    margins = row["margins"]
    if None in margins:
        return ["the training diverged"]
    attack = row["accuracy_attack"]
    signs = {
        # the steps at the end go to and fro by a hundredth of the way
        "more steps do less": any(b - a < -0.01 * (margins[-1] - margins[0]) for a, b in pairwise(margins)),
        "one step does more than many": any(a < b for a, b in zip(row["accuracy_one_step"], attack, strict=True)),
        "noise does more than the attack": any(
            a < b for a, b in zip(row["accuracy_random_signs"], attack, strict=True)
        ),
        "an attack without bound leaves some": row["accuracy_unbounded"] > 0,
        "there are images without a gradient": row["without_gradient"] > 0.01,
    }
    return [phrase for phrase, seen in signs.items() if seen]


_COMMON: dict[str, Any] = {
    "standardise": "none",
    "validation": 0.1,
    "batch_size": 200,
    "window": 20,
    "map": "code",
    "map_steps": 2000,
    "attacked": 1000,
    "device": "cpu",
    "neurons": list(_ARITIES),
    "norms": [True, False],
    "seeds": 5,
}
#: The paper's scale and the published rate.
_FULL: dict[str, Any] = {
    **_COMMON,
    "epochs": 200,
    "device": "cuda",
    "learning_rates": [1e-3],
    "tuning_seeds": [],
}
#: What two cores can do.
_LAPTOP: dict[str, Any] = {
    **_COMMON,
    "epochs": 50,
    "train_size": 3000,
    "validation_size": 1000,
    "test_size": 2000,
    "attacked": 200,
    "learning_rates": [3e-4, 1e-3, 3e-3, 1e-2],
    "tuning_seeds": [1000, 1001],
}
_SMOKE: dict[str, Any] = {
    **_LAPTOP,
    "dataset": "digits",
    "epochs": 3,
    "train_size": 400,
    "batch_size": 100,
    "map_steps": 20,
    "epsilons": [0.02, 0.3],
    "learning_rates": [3e-3],
    "tuning_seeds": [],
    "norms": [True],
    "seeds": 1,
}
_MLP: dict[str, Any] = {"network": "mlp", "hidden": [64, 64, 64]}


#: What many networks learn: of that five say little, and it needs no new outer network.
_FUNCTIONS: dict[str, Any] = {"neurons": ["arity 2"], "sessions": 2, "seeds": 24}


def _register(name: str, description: str, **presets: Mapping[str, Any]) -> None:
    register(
        Experiment(
            name=f"multi-argument-{name}",
            mechanism="multi_argument",
            description=description,
            presets=presets,
            cases=_cases,
            validate=_validate,
            measure=_measure,
            columns=_COLUMNS,
            # three of 200 images: in the attack pixels move by whole steps, to the side that a rounding chooses
            tolerance=1.6e-2,
        )
    )


_MNIST_IMAGES = {"dataset": "mnist", "epsilons": [0.02, 0.05, 0.1, 0.3]}
_MNIST = {**_MLP, **_MNIST_IMAGES}
_register(
    "mnist",
    "Perceptrons on MNIST, three sessions (full: reproduction; laptop: comparison with 3,000 images)",
    smoke={**_SMOKE, **_MLP, "hidden": [16, 16]},
    laptop={**_LAPTOP, **_MNIST},
    functions={**_LAPTOP, **_MNIST, **_FUNCTIONS},
    full={**_FULL, **_MNIST},
)

_CIFAR = {"dataset": "cifar10", "epsilons": [0.002, 0.004, 0.008, 0.031]}
_register(
    "cifar10",
    "Perceptrons on CIFAR-10, three sessions (full: reproduction; laptop: comparison with 3,000 images)",
    smoke={**_SMOKE, **_MLP, "hidden": [12], "neurons": ["relu", "arity 2"], "norms": [False], "map": "paper"},
    laptop={**_LAPTOP, **_MLP, **_CIFAR},
    full={**_FULL, **_MLP, **_CIFAR},
)

_CNN = {
    **_LAPTOP,
    **_CIFAR,
    "network": "cnn",
    "hidden": [8, 16, 16],
    "pool": 4,
    "train_size": 2000,
    "epochs": 30,
    "neurons": ["relu", "arity 1", "arity 2"],
}
_register(
    "cnn",
    "Convolutional networks on CIFAR-10, three sessions (full: reproduction; laptop, mnist: comparison, small)",
    # one epoch: of several, rounding errors decide which is the best
    smoke={
        **_SMOKE,
        "network": "cnn",
        "hidden": [4, 8],
        "neurons": ["relu", "arity 2"],
        "epsilons": [0.3],
        "epochs": 1,
    },
    laptop=_CNN,
    functions={**_CNN, **_FUNCTIONS},
    mnist={**_CNN, **_MNIST_IMAGES, "hidden": [9, 16, 16], "pool": 2, "train_size": 3000},
    full={**_FULL, **_CIFAR, "network": "cnn", "hidden": [60, 120, 120, 120]},
)
