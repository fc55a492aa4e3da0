"""The paper's claims about LayerAct as runs.

Two kinds of runs, and each description says which it is. A *reproduction* follows the paper's recipe, its learning
rate included, and tunes nothing. A *comparison* is scaled down and gives every activation the learning rate that
validation data chose for it, from one grid for all.

``layeract-mnist`` is a reproduction of section 4.1. One hidden layer of 512 units, 80 epochs of SGD with momentum
0.9, learning rate 0.01, a tenth of it from epoch 41 and a hundredth from epoch 61, cross-entropy, weight decay 1e-4.
What the paper leaves open is decided here:

- "Batch gradient descent" names no size. Batches of 128, as in the paper's experiments on CIFAR. With all 60,000
  images as one batch there would be 80 steps, which end at 84 % accuracy (one ReLU network); the first epoch of
  batches of 128 ends at 91 %.
- Pixels lie between 0 and 1 (the 8-bit value divided by 255) and are not standardised: the paper rescales to [0, 1]
  and adds its noise there, and does not speak of standardisation on MNIST. All 60,000 training images train.
- The layers have biases, which start at zero, and no normalisation. The weights start as everywhere in this package:
  Kaiming normal before the activation, variance 1/fan-in for the head.
- Weight decay spares PReLU's slope, as PReLU's authors want it.
- "For the noisy input ŷ we used two different noises with a normal distribution" does not say where the noise is
  added nor how large it is. The paper reports the fluctuation of the activation's *input* as a result, so it was not
  the input that was drawn: noise 1 and 2 are added to the images, N(0, 0.05²) and N(0.1, 0.05²), the first two of
  section 4.2.2, not clipped; they differ by the shift alone. For Definitions 2.3 and 3.2 as they stand, the columns
  that begin with ``y_`` add the same two noises to the activation's input itself.
- The fluctuation of a sample is Σ_i |f(ŷ)_i − f(y)_i|, over all 10,000 test images. An activation with small outputs
  fluctuates little whatever else it does, so the relative fluctuation (divided by Σ_i |f(y)_i|) and the gain (divided
  by Σ_i |ŷ_i − y_i|) stand beside it; so does the root mean square of the output beside the units' means.

``layeract-cifar10`` and ``layeract-cifar100`` follow section 4.2. The ``full`` presets are reproductions, for a GPU:
ResNet-20, 32 and 44, batches of 128 for 182 epochs (64,064 steps; the paper: "about 64000 iterations"), learning rate
0.1, a tenth after one half and after three quarters (32,032 and 48,048 steps), momentum 0.9, weight decay 1e-4, a
tenth of the training images held out, crops and mirror images before standardisation. Five seeds, the paper has
thirty. The ``laptop`` preset of CIFAR-10 is a comparison, and says little about the paper's scale: three convolutions
with batch normalisation (16, 32 and 64 channels) for a ResNet, 15,000 of the training images, six epochs, no
augmentation, the same staircase of learning rates, and each activation's learning rate tuned on validation data with
two seeds that are not evaluated; epochs and grid come from runs of ReLU alone, with a further seed and validation
data. The ``excerpt`` preset of CIFAR-10 is a comparison with the paper's network and data and a tenth of its schedule:
the ResNet-20 alone, all 50,000 images (45,000 train, 5,000 validate, as in the paper), batches of 128, crops and mirror
images, the six noises; but four activations, and 20 epochs with one cycle of the learning rate in place of 182 with a
staircase. Each activation's highest rate is tuned from one grid for all, with two seeds that are not evaluated, by
trainings of 4 epochs with a cycle of the same shape. It trains on CPUs, in bfloat16 where autocast allows it, compiled,
channels last, one thread a training; accuracies are computed in float32.

The weights of the last step count everywhere; nothing is selected on test data. Noise is added to the test
images between 0 and 1 and before standardisation (`companion.study.corruptions`); in one seed all activations meet the
same noisy images, the same order of batches and the same initial weights.

How activations are compared, fixed before any result: per column the difference of each LayerAct function to each
element-level function, paired by seed, t-test, with Holm's correction over all comparisons of one result
(`comparisons`). The paper's own procedure, where a test of normality chooses between the t-test and Wilcoxon's, is not
repeated.

References
----------
Yoon, Lim (2023), Layer-level activation mechanism.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from companion.layeract.layers import LAHardSiLU, LASiLU
from companion.neurons.controls import activations
from companion.study.analysis import Comparison, by_seed, family, fluctuation, quantiles, unit_means
from companion.study.corruptions import CORRUPTIONS
from companion.study.datasets import Part
from companion.study.experiments import Case, Experiment, Job, Row, grid, register
from companion.study.experiments.classification import Fitted, fit, validation_accuracy
from companion.study.models import MLP
from companion.study.training import evaluate

__all__ = ["Pair", "comparisons"]

_ELEMENT_LEVEL = activations("relu", "leaky_relu", "prelu", "mish", "silu")
# y · min(max(y/6 + ½, 0), 1), which torch calls hardswish.
_ELEMENT_LEVEL["hardsilu"] = nn.Hardswish
# Over all dimensions but the first, as published.
_LAYER_LEVEL: dict[str, Callable[[], nn.Module]] = {"la_silu": LASiLU, "la_hardsilu": LAHardSiLU}
_ACTIVATIONS = {**_ELEMENT_LEVEL, **_LAYER_LEVEL}

_COMMON: dict[str, Any] = {
    "batch_size": 128,
    "weight_decay": 1e-4,
    "milestones": [0.5, 0.75],
    "device": "cpu",
}


def _fit(job: Job) -> Fitted:
    return fit(job, _ACTIVATIONS[job.case["activation"]])


# layeract-mnist: section 4.1.

_WATCHED = (1, 40, 80)
_NOISES = {1: CORRUPTIONS["gaussian_1"], 2: CORRUPTIONS["gaussian_2"]}


def _hidden(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Return the projection and the activation of a perceptron's only hidden layer."""
    if not isinstance(model, MLP):
        raise TypeError(f"model is a {type(model).__name__}; allowed is MLP")
    [projection], [activation] = model.layers, model.activations
    return projection, activation


def _layer(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return input and output of the hidden layer's activation, (N, units) both."""
    projection, activation = _hidden(model)
    with torch.no_grad():
        y = projection(inputs.flatten(1))
        return y, activation(y)


def _watch(rows: Row, fitted: Fitted, epoch: int) -> None:
    """Add how far from zero the units' means are: mean |mean|, and the distribution of the means."""
    if epoch not in _WATCHED:
        return
    for name, values in zip(("input", "activation"), _layer(fitted.model, fitted.splits.test.inputs), strict=True):
        means = unit_means(values)
        rows[f"mean_{name}_epoch_{epoch}"] = float(means.abs().mean())
        rows[f"signed_mean_{name}_epoch_{epoch}"] = float(means.mean())
        rows[f"rms_{name}_epoch_{epoch}"] = float(values.cpu().double().square().mean().sqrt())
        rows[f"{name}_quantiles_epoch_{epoch}"] = quantiles(means)


def _moments(name: str, noise: int, values: Tensor) -> Row:
    return {f"{name}_mean_{noise}": float(values.mean()), f"{name}_std_{noise}": float(values.std())}


def _measure_layer(job: Job) -> list[Row]:
    row: Row = {}
    fitted = fit(job, _ACTIVATIONS[job.case["activation"]], watch=partial(_watch, row))
    model, test = fitted.model, fitted.splits.test
    row["accuracy"] = evaluate(model, test).accuracy
    y, output = _layer(model, test.inputs)
    size = output.cpu().double().abs().sum(1)
    _, activation = _hidden(model)
    for number, corrupt in _NOISES.items():
        generator = torch.Generator().manual_seed(job.seed)
        noisy = corrupt(test.inputs, generator)
        noisy_y, noisy_output = _layer(model, noisy)
        input_change, change = fluctuation(noisy_y, y), fluctuation(noisy_output, output)
        row |= _moments("fluctuation", number, change) | _moments("input_fluctuation", number, input_change)
        row |= _moments("relative_fluctuation", number, change / size)
        row |= _moments("gain", number, change / input_change)
        row[f"fluctuation_quantiles_{number}"] = quantiles(change)
        row[f"input_fluctuation_quantiles_{number}"] = quantiles(input_change)
        row[f"accuracy_noise_{number}"] = evaluate(model, Part(noisy, test.targets)).accuracy
        with torch.no_grad():
            change = fluctuation(activation(corrupt(y, generator)), output)
        row |= _moments("y_fluctuation", number, change) | _moments("y_relative_fluctuation", number, change / size)
        row[f"y_fluctuation_quantiles_{number}"] = quantiles(change)
    return [row]


def _activation_cases(settings: Mapping[str, Any]) -> list[Case]:
    return grid(activation=settings["activations"])


_MNIST: dict[str, Any] = {
    **_COMMON,
    "dataset": "mnist",
    "network": "layer512",
    "epochs": 80,
    "augment": False,
    "standardise": "none",
    "validation": 0,
    "learning_rates": [0.01],
    "tuning_seeds": [],
    "seeds": 5,
    "activations": list(_ACTIVATIONS),
}

register(
    Experiment(
        name="layeract-mnist",
        mechanism="layeract",
        description="One layer of 512 units: unit means and fluctuation under noise (reproduction of section 4.1)",
        presets={
            "smoke": {**_MNIST, "dataset": "digits", "seeds": 2, "activations": ["relu", "la_silu", "la_hardsilu"]},
            "laptop": _MNIST,
        },
        cases=_activation_cases,
        measure=_measure_layer,
        columns=(
            "mean_activation_epoch_1",
            "mean_activation_epoch_40",
            "mean_activation_epoch_80",
            "fluctuation_mean_1",
            "fluctuation_std_1",
            "fluctuation_mean_2",
            "fluctuation_std_2",
            "input_fluctuation_mean_1",
            "input_fluctuation_mean_2",
            "accuracy",
        ),
    )
)


# layeract-cifar10 and layeract-cifar100: section 4.2.

_NOISY_COLUMNS = ("accuracy_clean", *(f"accuracy_{name}" for name in CORRUPTIONS))


def _measure_noisy(job: Job) -> list[Row]:
    fitted = _fit(job)
    test = fitted.splits.test
    row: Row = {"accuracy_clean": evaluate(fitted.model, test).accuracy}
    # On the CPU, so that every device meets the same noise.
    images, generator = test.inputs.cpu(), torch.Generator().manual_seed(job.seed)
    for name, corrupt in CORRUPTIONS.items():
        noisy = Part(corrupt(images, generator).to(test.inputs.device), test.targets)
        row[f"accuracy_{name}"] = evaluate(fitted.model, noisy).accuracy
    return [row]


def _network_cases(settings: Mapping[str, Any]) -> list[Case]:
    return grid(network=settings["networks"], activation=settings["activations"])


_CIFAR: dict[str, Any] = {
    **_COMMON,
    "networks": ["resnet20", "resnet32", "resnet44"],
    "epochs": 182,
    "augment": True,
    "standardise": "network",
    "validation": 0.1,
    "device": "cuda",
    "learning_rates": [0.1],
    "tuning_seeds": [],
    "seeds": 5,
    "activations": list(_ACTIVATIONS),
}
_CIFAR_EXCERPT: dict[str, Any] = {
    **{key: value for key, value in _CIFAR.items() if key != "milestones"},
    "networks": ["resnet20"],
    "epochs": 20,
    "one_cycle": True,
    "precision": "bfloat16",
    "compiled": True,
    "channels_last": True,
    "device": "cpu",
    "learning_rates": [0.05, 0.15, 0.5, 1.5],
    "tuning_seeds": [1000, 1001],
    "tuning": {"epochs": 4},
    "activations": ["relu", "silu", "la_silu", "la_hardsilu"],
}
_CIFAR_SMALL: dict[str, Any] = {
    **_CIFAR,
    "networks": ["cnn"],
    "epochs": 6,
    "train_size": 15000,
    "augment": False,
    "device": "cpu",
    "learning_rates": [0.1, 0.3, 1.0],
    "tuning_seeds": [1000, 1001],
}
_DIGITS: dict[str, Any] = {
    **_CIFAR_SMALL,
    "dataset": "digits",
    "epochs": 2,
    "train_size": 500,
    "learning_rates": [0.03, 0.1],
    "tuning_seeds": [1000],
    "seeds": 2,
    "activations": ["relu", "la_silu"],
}

register(
    Experiment(
        name="layeract-cifar10",
        mechanism="layeract",
        description=(
            "CIFAR-10, clean and under six noises (full: reproduction; laptop: comparison of small networks; "
            "excerpt: comparison of the ResNet-20s, a tenth of the schedule)"
        ),
        presets={
            "smoke": _DIGITS,
            "laptop": {**_CIFAR_SMALL, "dataset": "cifar10"},
            "excerpt": {**_CIFAR_EXCERPT, "dataset": "cifar10"},
            "full": {**_CIFAR, "dataset": "cifar10"},
        },
        cases=_network_cases,
        conditions=("network",),
        validate=partial(validation_accuracy, _fit),
        measure=_measure_noisy,
        columns=_NOISY_COLUMNS,
    )
)

register(
    Experiment(
        name="layeract-cifar100",
        mechanism="layeract",
        description="CIFAR-100, clean and under six noises (reproduction of section 4.2)",
        presets={
            # The same networks on digits: only to see that they run.
            "smoke": {
                **_DIGITS,
                "networks": ["resnet20"],
                "epochs": 1,
                "train_size": 200,
                "learning_rates": [0.1],
                "tuning_seeds": [],
            },
            "full": {**_CIFAR, "dataset": "cifar100"},
        },
        cases=_network_cases,
        conditions=("network",),
        measure=_measure_noisy,
        columns=_NOISY_COLUMNS,
    )
)


# The test that was fixed beforehand.


class Pair(NamedTuple):
    """What is compared: a LayerAct function and an element-level function, in one column and network.

    Parameters
    ----------
    network : str or None
        None where the experiment has one network.
    measure : str
        The column.
    layer_level, element_level : str
        The activations.
    """

    network: str | None
    measure: str
    layer_level: str
    element_level: str


def comparisons(rows: Iterable[Mapping[str, Any]], measures: Sequence[str] = _NOISY_COLUMNS) -> list[Comparison[Pair]]:
    """Compare each LayerAct function with each element-level function as the protocol says.

    Parameters
    ----------
    rows : iterable of mapping
        The rows of one result.
    measures : sequence of str
        Columns; one family of comparisons with all activations and networks.

    Returns
    -------
    list of Comparison
        By network, column, layer-level and element-level activation; differences are layer-level minus element-level.

    Raises
    ------
    ValueError
        If two activations have different seeds.
    """
    rows = list(rows)
    series = {of: by_seed(rows, of, lambda row: (row.get("network"), row["activation"])) for of in measures}
    networks = dict.fromkeys(row.get("network") for row in rows)
    pairs = (Pair(*names) for names in product(networks, measures, _LAYER_LEVEL, _ELEMENT_LEVEL))
    sides = {pair: [series[pair.measure].get((pair.network, each)) for each in pair[2:]] for pair in pairs}
    return family({pair: (one, other) for pair, (one, other) in sides.items() if one and other})
