"""What is measured of a trained classifier in an arena: calibration, collapse, noise, corruptions, attack, parameters.

All of it runs in batches on the network's device, in float32, on some of the test images; together it takes less than a
fifth of the training's time.

- *Noise*: accuracy over the mean and over the deviation of normal noise on every pixel, as in Figs. 9 to 12 of the
  LayerAct paper: the mean stays 0 while the deviation grows, or the deviation is 0.01 while the mean moves. The paper
  prints no numbers on these axes; ours are below. Nothing is clipped.
- *Corruptions*: `companion.study.together.corruptions`, accuracy by kind, and the mean over all fourteen.
- *Attack*: 20 steps of projected gradients (`companion.study.analysis.projected_gradient`) with ε = 2/255. The size
  that is usual for networks that were trained against attacks, 8/255, leaves nothing of one that was not; it is here to
  show that the attack works, on a quarter of the images, and so are signs drawn at random of size 2/255, which must do
  less.
- *Collapse*: NC1, how small the last features vary within a class beside how far classes lie apart.
"""

import math
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion import AGLU, RAA, DACConv2d, DACLinear, MultiBias
from companion.baselines import PReLU
from companion.study.analysis import projected_gradient
from companion.study.corruptions import gaussian
from companion.study.datasets import Part
from companion.study.together.corruptions import CIFAR_C, corrupted
from companion.study.training import hits, predict

__all__ = [
    "attacks",
    "calibration_error",
    "corruptions",
    "judged",
    "last_features",
    "learned",
    "neural_collapse",
    "noises",
]

Row = dict[str, float | list[float]]

#: At a mean of 0.
DEVIATIONS = (0.05, 0.1, 0.15, 0.2, 0.3)
#: At a deviation of 0.01.
MEANS = (-0.4, -0.2, -0.1, 0.1, 0.2, 0.4)
_STEADY = 0.01

_STEPS, _SMALL, _LARGE = 20, 2 / 255, 8 / 255
# Few enough that a batch's maps stay near the processor.
_BATCH = 250


def judged(model: nn.Module, train: Part, test: Part, sizes: Mapping[str, int], seed: int) -> Row:
    """Return everything that is measured of a classifier of images.

    Parameters
    ----------
    model : nn.Module
        Takes images between 0 and 1.
    train, test : Part
        Images and classes; all test images count for accuracy, loss and calibration.
    sizes : mapping
        How many of the first training images are for "collapse", and of the first test images for "noise", "corrupted"
        and "attacked".
    seed : int
        Of the noise and the signs.

    Returns
    -------
    dict
        ``accuracy``, ``loss``, ``calibration_error``, ``collapse``, and what the other functions of this module give.
    """
    logits = predict(model, test.inputs, _BATCH)
    features, _ = last_features(model, train.inputs[: sizes["collapse"]])
    noise, corrupt, attack = (_first(test, sizes[what]) for what in ("noise", "corrupted", "attacked"))
    return {
        "accuracy": float(hits(logits, test.targets).mean()),
        "loss": float(F.cross_entropy(logits, test.targets)),
        "calibration_error": calibration_error(logits, test.targets),
        "collapse": neural_collapse(features, train.targets[: sizes["collapse"]]),
        **noises(model, noise, seed),
        **corruptions(model, corrupt),
        **attacks(model, attack, seed),
        **learned(model),
    }


def _first(part: Part, size: int) -> Part:
    return Part(part.inputs[:size], part.targets[:size])


def calibration_error(logits: Tensor, targets: Tensor, bins: int = 15) -> float:
    r"""Return the expected calibration error: how far confidence and accuracy lie apart.

    .. math:: \sum_b \frac{n_b}{N} \left| \mathrm{accuracy}_b - \mathrm{confidence}_b \right|

    over bins of equal width of the confidence, the probability of the predicted class.

    Parameters
    ----------
    logits : Tensor
        (N, classes).
    targets : Tensor
        (N,).
    bins : int
        How many.

    Returns
    -------
    float
        Between 0 and 1; NaN where a logit is not finite.

    References
    ----------
    Guo et al. (2017), On calibration of modern neural networks, Eq. 3.

    Examples
    --------
    Four predictions with a confidence of ¾, of which two are right:

    >>> logits = torch.tensor([3.0, 1.0]).log().expand(4, 2)
    >>> round(calibration_error(logits, torch.tensor([0, 0, 1, 1])), 6)
    0.25
    """
    if not bool(logits.isfinite().all()):
        return math.nan
    confidence, predicted = logits.double().softmax(1).max(1)
    place = (confidence * bins).long().clamp(max=bins - 1)
    excess = torch.zeros(bins, dtype=torch.float64, device=logits.device)
    excess.index_add_(0, place, (predicted == targets).double() - confidence)
    return float(excess.abs().sum() / len(targets))


def neural_collapse(features: Tensor, targets: Tensor) -> float:
    r"""Return NC1, the variation of features within classes measured by that between them.

    .. math:: \frac1C \operatorname{tr}(\Sigma_W \Sigma_B^{+})

    with the covariance :math:`\Sigma_W` of the features around their class's mean, and that of the C class means around
    the mean of all features. It is 0 where every class has collapsed to a point, and neither a scale nor a rotation
    changes it.

    Parameters
    ----------
    features : Tensor
        (N, d): what the last layer is given; as many of each class.
    targets : Tensor
        (N,): classes 0 … C − 1, each at least once.

    Returns
    -------
    float
        At least 0; NaN where a feature is not finite.

    References
    ----------
    Papyan, Han, Donoho (2020), Prevalence of neural collapse during the terminal phase of deep learning training.

    Examples
    --------
    Two classes at ±1 with a deviation of ½:

    >>> neural_collapse(torch.tensor([[-1.5], [-0.5], [0.5], [1.5]]), torch.tensor([0, 0, 1, 1]))
    0.125
    """
    if not bool(features.isfinite().all()):
        return math.nan
    x = features.double()
    counts = torch.bincount(targets)
    classes = len(counts)
    means = torch.zeros(classes, x.shape[1], dtype=x.dtype, device=x.device).index_add_(0, targets, x) / counts[:, None]
    within = x - means[targets]
    # Σ_B = M ᵀM/C has at most C − 1 directions; the pseudo-inverse is that in them
    _, sizes, directions = torch.linalg.svd((means - x.mean(0)) / classes**0.5, full_matrices=False)
    scaled = (within @ directions[: classes - 1].T) / sizes[: classes - 1]
    return float(scaled.square().sum() / len(x) / classes)


def last_features(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return what a network's last linear layer is given, and the logits.

    Parameters
    ----------
    model : nn.Module
        Its last ``Linear`` or `DACLinear` gives the logits; of a DAC these are the features before its dendrites act.
    inputs : Tensor
        (N, …).

    Returns
    -------
    features, logits : Tensor
        (N, d) and (N, classes).
    """
    *_, last = (module for module in model.modules() if isinstance(module, (nn.Linear, DACLinear)))
    found: list[Tensor] = []
    hook = last.register_forward_pre_hook(lambda module, args: found.append(args[0].detach()))
    logits = predict(model, inputs, _BATCH)
    hook.remove()
    return torch.cat(found), logits


def noises(model: nn.Module, test: Part, seed: int) -> Row:
    """Return the accuracy over the deviation and over the mean of normal noise.

    Parameters
    ----------
    model : nn.Module
        Takes images between 0 and 1.
    test : Part
        Images and classes.
    seed : int
        Of the noise, which is drawn on the CPU: all devices, and all neurons of one seed, meet the same.

    Returns
    -------
    dict
        ``accuracy_std_…`` and ``accuracy_mean_…``.
    """
    images, generator = test.inputs.cpu(), torch.Generator().manual_seed(seed)
    settings = [(f"accuracy_std_{std}", 0.0, std) for std in DEVIATIONS]
    settings += [(f"accuracy_mean_{mean}", mean, _STEADY) for mean in MEANS]
    return {name: _accuracy(model, gaussian(images, generator, mean, std), test) for name, mean, std in settings}


def corruptions(model: nn.Module, test: Part) -> Row:
    """Return the accuracy under each corruption, and their mean. The corrupted images are always the same.

    Parameters
    ----------
    model : nn.Module
        Takes images between 0 and 1.
    test : Part
        Images and classes.

    Returns
    -------
    dict
        ``accuracy_<kind>`` and ``accuracy_corrupted``.
    """
    images = test.inputs.cpu()
    channels = images.shape[1]
    # of a grey image all three colours are alike, and the network is given the first
    colours = images.expand(-1, 3, -1, -1)
    accuracies = {
        f"accuracy_{name}": _accuracy(model, corrupted(name, colours)[:, :channels], test) for name in CIFAR_C
    }
    return {**accuracies, "accuracy_corrupted": sum(accuracies.values()) / len(accuracies)}


def attacks(model: nn.Module, test: Part, seed: int) -> Row:
    """Return the accuracy under attack, and what shows that the attack works.

    Parameters
    ----------
    model : nn.Module
        Takes images between 0 and 1.
    test : Part
        Images and classes.
    seed : int
        Of the signs that are drawn.

    Returns
    -------
    dict
        ``accuracy_attacked`` (ε = 2/255), ``accuracy_signs`` (signs at random, of the same size) and
        ``accuracy_attacked_8`` (ε = 8/255, a quarter of the images).
    """
    signs = torch.randint(0, 2, test.inputs.shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    drawn = (test.inputs + _SMALL * signs.to(test.inputs)).clamp(0, 1)
    quarter = test.subset(torch.arange(max(1, len(test) // 4), device=test.targets.device))
    return {
        "accuracy_attacked": _accuracy(model, _attacked(model, test, _SMALL), test),
        "accuracy_signs": _accuracy(model, drawn, test),
        "accuracy_attacked_8": _accuracy(model, _attacked(model, quarter, _LARGE), quarter),
    }


def _attacked(model: nn.Module, test: Part, epsilon: float) -> Tensor:
    batches = zip(torch.split(test.inputs, _BATCH), torch.split(test.targets, _BATCH), strict=True)
    return torch.cat([projected_gradient(model, images, targets, epsilon, _STEPS) for images, targets in batches])


def _accuracy(model: nn.Module, images: Tensor, test: Part) -> float:
    return float(hits(predict(model, images.to(test.inputs.device), _BATCH), test.targets).mean())


def learned(model: nn.Module) -> Row:
    """Return what the neurons learned, layer by layer: κ and λ, slopes, offsets, and how far biases spread.

    Parameters
    ----------
    model : nn.Module
        With AGLU, PReLU, RAA, MultiBias or DAC layers.

    Returns
    -------
    dict
        ``kappa`` and ``lam`` (AGLU), ``slope`` (PReLU), ``raa_weight``, its length, and ``raa_bias``; ``bias_spread``:
        the standard deviation of the biases that an input has, in its copies (MultiBias) or for the outputs (DAC), mean
        over the inputs.
    """
    row: dict[str, list[float]] = {}
    for name, number in _learned(model.modules()):
        row.setdefault(name, []).append(float(number.detach()))
    return dict(row)


def _learned(modules: Iterable[nn.Module]) -> Iterator[tuple[str, Tensor]]:
    for module in modules:
        match module:
            case AGLU():
                yield from (("kappa", module.kappa), ("lam", module.lam))
            case PReLU():
                yield "slope", module.weight.mean()
            case RAA():
                yield from (("raa_weight", module.weight.norm()), ("raa_bias", module.bias.sum()))
            case MultiBias() | DACLinear() | DACConv2d():
                yield "bias_spread", module.bias.std(0).mean()
