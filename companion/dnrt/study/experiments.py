"""What DNRT does to networks, measured.

"The paper" is Qiu et al. (2024). A *response* is what the hidden layers use: an activation by its name, "raa" (RAA with
the gate of GELU), one of them with "+arr" (ARR on some layers), and "dnrt", which is "raa+arr".

From the paper: AdamW with weight decay 0.05 (RAA's w and b are decayed, as in the published code), gradients clipped
at norm 1, a linear warm-up over a fifteenth of the training and a cosine (the published code: 20 of 300 epochs),
m = 0.1. What the paper leaves open is decided here:

- The hidden layer of the "simple MLP" has 128 units; its batches are of 512, those of a ViT of 256 as in the published
  code; numbers have 32 bits. No augmentation: which of timm's the paper used on MNIST it does not say, and mirrored
  digits are others.
- A tenth of the training images validates; each response's learning rate is tuned on it with two seeds that are not
  evaluated, by whole trainings, from one grid for all. (Trainings of 4 epochs in place of 50 chose rates that are too
  high: GELU's would have been 0.03, with a lead of 0.03 points over 0.01.)
- ARR acts "on the global feature vector aggregated after the activation"; of an MLP "the output directly represents"
  it. Both readings are run: "hidden" is what the activation gives, "output" the logits, which aggregate it. In a ViT it
  is the class token after every block, as in the published code.
- λ is tuned in the paper, per network and data. On MNIST it is 0.01 or 0.1, for each reading what has the higher mean
  validation accuracy; of 0.01, 0.1, 1 and 10 these were the best two, with a seed that is used for nothing else and 8
  epochs. For the ViT it is the paper's 10 for CIFAR-10.

``dnrt-mnist`` is Table 1's first row at the paper's scale: 50 epochs, its eight activations and RAA alone.
``dnrt-ablation`` is Table 5: its ``full`` preset is the paper's ViT-Tiny on CIFAR-100, for a GPU. ``laptop`` is a
comparison of small networks: a ViT of width 64 and four blocks on CIFAR-10's images averaged to 16 × 16 pixels, patches
of 4, 5,000 training images, 20 epochs, crops and mirror images. ``dnrt-overfitting`` is Fig. 5 with the same small
network: 2,000 images, mirrored and nothing else, seen 60 times; the loss and the accuracy on the test images are taken
after every epoch.

Three more are small, so that two cores run them: the perceptron on 5,000 images of MNIST, 30 epochs, batches of 256,
ARR on what the activation gives. ``dnrt-sensitivity`` is Fig. 3: m at λ = 0.1 and λ at m = 0.1, without ARR as λ = 0.
``dnrt-versions`` has the offsets of Eqs. 2, 3 and 4 (a number; w x + b with two numbers for each channel; wᵀx + b) and
the extra layer of Table 8 with as many parameters. ``dnrt-conditions`` trains on data that are not as they should be: a
tenth of the training labels are others, or the classes are long-tailed with balanced softmax as in Table 4; validation
and test stay as they are, and λ is 0.01, 0.1 or 1. ``dnrt-cifar10`` is the second row of Table 1 with 5,000 images; its
``full`` preset has all of them.

Beside the accuracy stands what the network learned: how far w and b moved from zero, how the offsets vary, and in a ViT
whether tokens that matter get higher ones: Spearman's rank correlation, over the tokens of 500 test images, of the
offset c with the token's share in the logit of the true class (less the mean logit), Σ_i y_i ∂/∂y_i of the activation's
output y. And the two things that the paper shows in pictures, as numbers of the test images: how sparse the responses
of the activations are (`companion.study.analysis.sparsity`), and which share of the variance of the aggregated
responses lies within classes (`companion.study.analysis.within_class_share`; "within_responses" is that of the
activations' own), averaged over the layers.

How responses are compared, fixed before any result: differences of test accuracy, paired by seed, t-test, with Holm's
correction over all pairs of one result (`comparisons`). On MNIST the pairs are DNRT, in both readings, with each of the
seven activations and with RAA, and RAA with GELU; in the ablation what RAA adds to GELU, ARR to ReLU, GELU and RAA, and
DNRT against the two activations; in the overfitting test what ARR adds to GELU and to RAA, RAA to GELU, and both; the
same four under each of the conditions. Of the momenta each is compared with 0.1, of the weights each with no ARR; of
the versions each with GELU, Eq. 4 with the other two and with the extra layers, and Eq. 3 with Eq. 2.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion.baselines import GDN, ExtraLinear
from companion.dnrt.attachment import AttachedARR, attach_arr
from companion.dnrt.layers import RAA
from companion.neurons.controls import activations
from companion.study.analysis import (
    Comparison,
    Interval,
    by_seed,
    family,
    interval,
    quantiles,
    sparsity,
    within_class_share,
)
from companion.study.datasets import Part, Splits
from companion.study.experiments import Case, Experiment, Job, Row, register
from companion.study.experiments.classification import Fitted, fit, validation_accuracy
from companion.study.training import Loss, balanced_softmax, evaluate
from companion.surgery import replace_activations

__all__ = ["comparisons", "label", "summaries", "with_chosen_weight"]


class _Elementwise(nn.Module):
    """GELU's gate moved by one learned number (Eq. 2), or by w x + b with two for each of the channels (Eq. 3)."""

    def __init__(self, channels: int | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels)) if channels else None
        self.bias = nn.Parameter(torch.zeros(channels or 1))

    def forward(self, x: Tensor) -> Tensor:
        offset = self.bias if self.weight is None else self.weight * x + self.bias
        gate: Tensor = torch.special.ndtr(x + offset)
        return x * gate


_PLAIN = activations("softplus", "elu", "selu", "silu", "relu", "gelu")
# Those that must know the number of channels take GELU's place.
_WIDE: dict[str, Callable[..., nn.Module]] = {
    "gdn": lambda channels, dim: GDN(channels, dim=dim),
    "raa": lambda channels, dim: RAA(channels, dim=dim),
    "eq2": lambda channels, dim: _Elementwise(None),
    "eq3": lambda channels, dim: _Elementwise(channels),
    "extra relu": lambda channels, dim: nn.Sequential(ExtraLinear(channels, dim=dim), nn.ReLU()),
    "extra gelu": lambda channels, dim: nn.Sequential(ExtraLinear(channels, dim=dim), nn.GELU()),
}
#: Where ARR may be, as `companion.attach_arr` wants it.
_LAYERS = {"hidden": "activations.*", "output": "head", "blocks": "blocks.*"}


def _activation(response: str) -> str:
    return "raa" if response == "dnrt" else response.removesuffix("+arr")


def _convert(case: Case, model: nn.Module, splits: Splits) -> nn.Module:
    """Give a network its activations, and hold its responses to their class."""
    example, activation = splits.train.inputs.shape[1:], _activation(case["response"])
    if activation in _WIDE:
        model = replace_activations(model, {nn.GELU: _WIDE[activation]}, example)
    if "layers" in case:
        layers, momentum = _LAYERS[case["layers"]], case.get("momentum", 0.1)
        attach_arr(model, layers, splits.num_classes, example, weight=case["weight"], momentum=momentum)
    return model


def _loss(case: Case, fitted: Fitted) -> Loss:
    """Cross-entropy, balanced where classes are rare, and λ times ARR's loss where it is attached."""
    classes = torch.bincount(fitted.splits.train.targets, minlength=fitted.splits.num_classes)
    task = balanced_softmax(classes) if "imbalance" in case else F.cross_entropy
    arr = getattr(fitted.model, "arr", None)
    if not isinstance(arr, AttachedARR):
        return task
    return lambda output, target: task(output, target) + arr.loss(target)


def _fit(job: Job, watch: Callable[[Fitted, int], None] | None = None) -> Fitted:
    activation = _PLAIN.get(_activation(job.case["response"]), nn.GELU)
    return fit(job, activation, watch=watch, convert=partial(_convert, job.case), loss=partial(_loss, job.case))


# Looking inside. Of tokens the first, which is classified, counts as the response.


#: So many images at a time: a ViT-Tiny with RAA keeps 5.4 MB of each, and of 10,000 images more than a GPU has.
_BATCH = 125


class _Inside(NamedTuple):
    """Of some images, by layer: RAA's offset of every vector, what the activations give, what is aggregated from it."""

    offsets: list[Tensor]
    responses: list[Tensor]
    aggregated: list[Tensor]


def _hidden(model: nn.Module) -> tuple[list[nn.Module], list[nn.Module]]:
    """The activations of a network, and the layers that aggregate what they give."""
    modules = dict(model.named_modules())
    if "blocks" in modules:
        blocks = list(modules["blocks"].children())
        return [block.get_submodule("mlp.act") for block in blocks], blocks
    return list(modules["activations"].children()), [modules["head"]]


def _run(model: nn.Module, inputs: Tensor) -> tuple[Tensor, _Inside]:
    """Run the network in evaluation mode; all tokens, with their graph."""
    inside = _Inside([], [], [])

    def activation(module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
        if isinstance(module, RAA):
            # c = wᵀx + b
            inside.offsets.append((args[0] @ module.weight + module.bias).detach())
        inside.responses.append(output)

    def aggregation(module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
        inside.aggregated.append(output)

    activations, layers = _hidden(model)
    hooks = [module.register_forward_hook(activation) for module in activations]
    hooks += [module.register_forward_hook(aggregation) for module in layers]
    training = model.training
    logits = model.eval()(inputs)
    model.train(training)
    for hook in hooks:
        hook.remove()
    return logits, inside


def _by_layer(batches: Iterable[list[Tensor]]) -> list[Tensor]:
    """Of each layer all batches."""
    return [torch.cat(layer) for layer in zip(*batches, strict=True)]


@torch.no_grad()
def _look(model: nn.Module, inputs: Tensor) -> _Inside:
    """What happens inside for all images, on the CPU; of tokens the first, but the offsets of all."""
    batches = []
    for images in torch.split(inputs, _BATCH):
        _, inside = _run(model, images)
        batches.append(_Inside(*([_first(x).contiguous().cpu() for x in values] for values in inside)))
    return _Inside(*map(_by_layer, zip(*batches, strict=True)))


def _first(x: Tensor) -> Tensor:
    return x[:, 0] if x.ndim == 3 else x


def _relevance(model: nn.Module, part: Part) -> float:
    """Spearman's correlation of a token's offset with its share in the true class's logit, mean over the layers."""
    from scipy.stats import spearmanr

    offsets, shares = [], []
    for images, targets in zip(*(torch.split(x, _BATCH) for x in (part.inputs, part.targets)), strict=True):
        logits, inside = _run(model, images)
        margin = logits.gather(1, targets[:, None]).sum() - logits.mean(1).sum()
        gradients = torch.autograd.grad(margin, inside.responses)
        shares.append([(y.detach() * g).sum(-1).cpu() for y, g in zip(inside.responses, gradients, strict=True)])
        offsets.append([c.cpu() for c in inside.offsets])
    pairs = zip(_by_layer(offsets), _by_layer(shares), strict=True)
    return _mean(float(spearmanr(c.flatten().numpy(), share.flatten().numpy()).statistic) for c, share in pairs)


def _learned(model: nn.Module, inside: _Inside, part: Part) -> Row:
    """What RAA learned."""
    offsets = inside.offsets
    if not offsets:
        return {}
    layers = [module for module in _hidden(model)[0] if isinstance(module, RAA)]
    row = {
        "weight_norm": _mean(float(raa.weight.detach().norm()) for raa in layers),
        "bias": _mean(float(raa.bias.detach()) for raa in layers),
        "offset_mean": _mean(float(c.mean()) for c in offsets),
        "offset_deviation": _mean(float(c.std()) for c in offsets),
        **{f"offset_quantiles_{layer}": quantiles(c) for layer, c in enumerate(offsets, start=1)},
    }
    return row | ({"relevance": _relevance(model, part)} if offsets[0].ndim == 2 else {})


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)


_CHANNELS, _LEVELS = 20, 5


def _picture(values: Tensor) -> list[float]:
    """Minimum, quartiles and maximum of the first 20 channels, one channel after the other."""
    return [number for channel in values.T[:_CHANNELS] for number in quantiles(channel, _LEVELS)]


def _measure(job: Job, pictures: bool = True) -> list[Row]:
    fitted = _fit(job)
    model, splits = fitted.model, fitted.splits
    test = splits.test
    inside = _look(model, test.inputs)
    responses, aggregated, targets = inside.responses, inside.aggregated, test.targets.cpu()
    evaluation = evaluate(model, test)
    drawn = {
        "responses": _picture(responses[-1]),
        **{f"aggregated_{k}": _picture(aggregated[-1][targets == k]) for k in (0, 1)},
    }
    return [
        {
            "accuracy": evaluation.accuracy,
            "loss": evaluation.loss,
            "accuracy_validation": evaluate(model, splits.validation).accuracy,
            "accuracy_train": evaluate(model, splits.train).accuracy,
            "sparsity": _mean(float(sparsity(y).nanmean()) for y in responses),
            "within_responses": _mean(within_class_share(y, targets) for y in responses),
            "within": _mean(within_class_share(x, targets) for x in aggregated),
            **{f"within_{layer}": within_class_share(x, targets) for layer, x in enumerate(aggregated, start=1)},
            **_learned(model, inside, test.subset(torch.arange(min(500, len(test))))),
            **(drawn if pictures else {}),
        }
    ]


def _cases(settings: Mapping[str, Any]) -> list[Case]:
    """By response, and where ARR is part of it by its layers and λ."""
    cases: list[Case] = []
    for response in settings["responses"]:
        with_arr = response == "dnrt" or response.endswith("+arr")
        kinds = settings["arr"] if with_arr else [{}]
        cases += [{"response": response, **kind} for kind in kinds]
    return cases


def _sensitivity_cases(settings: Mapping[str, Any]) -> list[Case]:
    """Without ARR; each momentum with the first weight; each weight with the first momentum."""
    momenta, weights, layers = settings["momenta"], settings["weights"], settings["layers"]
    pairs = [*((m, weights[0]) for m in momenta), *((momenta[0], weight) for weight in weights[1:])]
    return [
        {"response": "raa"},
        *({"response": "dnrt", "layers": layers, "weight": w, "momentum": m} for m, w in pairs),
    ]


def _condition_cases(settings: Mapping[str, Any]) -> list[Case]:
    return [case | condition for condition in settings["conditions"] for case in _cases(settings)]


def label(row: Mapping[str, Any]) -> str:
    """The response of a row, with what else its result compares: "dnrt hidden", "dnrt m = 0.1 λ = 10"."""
    if "momentum" in row:
        return f"{row['response']} m = {row['momentum']:g} λ = {row['weight']:g}"
    return f"{row['response']} {row['layers']}" if row.get("layers") in ("hidden", "output") else str(row["response"])


def _condition(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Under what condition a network of `dnrt-conditions` learned: ("imbalance 10",); of the others ()."""
    return tuple(f"{key.replace('_', ' ')} {row[key]:g}" for key in ("wrong_labels", "imbalance") if key in row)


_READINGS = ("dnrt hidden", "dnrt output")
_TABLE_1 = [*product(_READINGS, (*_PLAIN, "gdn", "raa")), ("raa", "gelu")]
_MOMENTA, _WEIGHTS = [0.1, 0.01, 0.03, 0.3, 0.5, 0.8, 0.9, 1.0], [0.1, 0.001, 0.01, 1.0, 10.0, 100.0]
_PAIRS = {
    "dnrt-mnist": _TABLE_1,
    "dnrt-cifar10": _TABLE_1,
    "dnrt-sensitivity": [
        *((f"dnrt m = {m:g} λ = 0.1", "dnrt m = 0.1 λ = 0.1") for m in _MOMENTA[1:]),
        *((f"dnrt m = 0.1 λ = {weight:g}", "raa") for weight in _WEIGHTS),
    ],
    "dnrt-versions": [
        *product(("eq2", "eq3", "raa", "extra gelu"), ("gelu",)),
        ("extra relu", "relu"),
        *product(("raa",), ("eq2", "eq3", "extra relu", "extra gelu")),
        ("eq3", "eq2"),
    ],
    "dnrt-conditions": [
        ("gelu+arr hidden", "gelu"),
        ("dnrt hidden", "raa"),
        ("raa", "gelu"),
        ("dnrt hidden", "gelu"),
    ],
    "dnrt-overfitting": [("gelu+arr", "gelu"), ("dnrt", "raa"), ("raa", "gelu"), ("dnrt", "gelu")],
    "dnrt-ablation": [
        ("raa", "gelu"),
        ("relu+arr", "relu"),
        ("gelu+arr", "gelu"),
        ("dnrt", "raa"),
        ("dnrt", "relu"),
        ("dnrt", "gelu"),
    ],
}


def with_chosen_weight(rows: Iterable[Row]) -> list[Row]:
    """Of each response the rows with the λ that validates best, where several were tried.

    Parameters
    ----------
    rows : iterable of dict
        Of a result.

    Returns
    -------
    list of dict
        In their order.
    """
    kept = list(rows)
    scores: dict[tuple[tuple[str, ...], float], list[float]] = {}
    for row in kept:
        if "weight" in row:
            scores.setdefault((_key(row), row["weight"]), []).append(row.get("accuracy_validation", 0.0))
    best: dict[tuple[str, ...], tuple[float, float]] = {}
    for (key, weight), values in scores.items():
        best[key] = max(best.get(key, (-1.0, 0.0)), (_mean(values), weight))
    return [row for row in kept if "weight" not in row or row["weight"] == best[_key(row)][1]]


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (label(row), *_condition(row))


def summaries(result: Mapping[str, Any], measure: str = "accuracy") -> dict[tuple[str, ...], Interval]:
    """Summarise a measure over the seeds.

    Parameters
    ----------
    result : mapping
        As `companion.study.results.load` gives it.
    measure : str
        A column of its rows; rows without it are left out.

    Returns
    -------
    dict
        By label, as `label` gives it, and condition, where there are several: mean and 95 % interval.
    """
    values: dict[tuple[str, ...], list[float]] = {}
    for row in with_chosen_weight(result["rows"]):
        if measure in row:
            values.setdefault(_key(row), []).append(row[measure])
    return {key: interval(each) for key, each in values.items()}


def comparisons(result: Mapping[str, Any], measure: str = "accuracy") -> list[Comparison[tuple[str, ...]]]:
    """Compare the responses of a result as the protocol says.

    Parameters
    ----------
    result : mapping
        As `companion.study.results.load` gives it.
    measure : str
        A column of its rows.

    Returns
    -------
    list of Comparison
        By pair of labels, as `label` gives them, and condition, where there are several; differences are first minus
        second.
    """
    series = by_seed(with_chosen_weight(result["rows"]), measure, _key)
    pairs = {
        (one, other, *condition): (series[one, *condition], series[other, *condition])
        for condition in dict.fromkeys(key[1:] for key in series)
        for one, other in _PAIRS[result["experiment"]]
        if (one, *condition) in series and (other, *condition) in series
    }
    return family(pairs)


_COMMON: dict[str, Any] = {
    "optimiser": "adamw",
    "weight_decay": 0.05,
    "clip": 1.0,
    "warm_up": 1 / 15,
    "batch_size": 512,
    "validation": 0.1,
    "device": "cpu",
    "augment": False,
    "tuning_seeds": [1000, 1001],
    "seeds": 5,
}
_INSIDE = ("accuracy", "accuracy_train", "loss", "sparsity", "within", "within_responses")


# dnrt-mnist: Table 1.

_MNIST: dict[str, Any] = {
    **_COMMON,
    "dataset": "mnist",
    "network": "layer128",
    "epochs": 50,
    "learning_rates": [1e-3, 3e-3, 1e-2, 3e-2, 1e-1],
    "responses": [*_PLAIN, "gdn", "raa", "dnrt"],
    "arr": [{"layers": layers, "weight": weight} for layers in ("hidden", "output") for weight in (0.01, 0.1)],
}
_MNIST_SMOKE: dict[str, Any] = {
    **_MNIST,
    "dataset": "digits",
    "epochs": 3,
    "batch_size": 64,
    "learning_rates": [3e-3],
    "tuning_seeds": [],
    "seeds": 2,
    "responses": ["gelu", "gdn", "dnrt"],
}

register(
    Experiment(
        name="dnrt-mnist",
        mechanism="dnrt",
        description="One hidden layer on MNIST, eight responses and RAA alone (comparison at the scale of Table 1)",
        presets={"smoke": _MNIST_SMOKE, "laptop": _MNIST},
        cases=_cases,
        validate=partial(validation_accuracy, _fit),
        measure=_measure,
        columns=_INSIDE,
    )
)


register(
    Experiment(
        name="dnrt-cifar10",
        mechanism="dnrt",
        description="One hidden layer on CIFAR-10, as dnrt-mnist (full: at the scale of Table 1; laptop: 5,000 images)",
        presets={
            "smoke": _MNIST_SMOKE,
            "laptop": {
                **_MNIST,
                "dataset": "cifar10",
                "train_size": 5000,
                "batch_size": 256,
                "learning_rates": [3e-4, 1e-3, 3e-3, 1e-2, 3e-2],
            },
            # All images, as Table 1; two to three hours of one core. Width, augmentation (none) and λ are ours: the
            # paper augments, but does not tell with what, and names no width or λ here. Rates are tuned with a third of
            # the epochs.
            "full": {
                **_MNIST,
                "dataset": "cifar10",
                "learning_rates": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2],
                "tuning": {"epochs": 17},
                "arr": [{"layers": layers, "weight": w} for layers in ("hidden", "output") for w in (0.01, 0.1, 1.0)],
            },
        },
        cases=_cases,
        validate=partial(validation_accuracy, _fit),
        measure=_measure,
        columns=_INSIDE,
    )
)


# dnrt-ablation: Table 5.

_ABLATION: dict[str, Any] = {
    **_COMMON,
    "dataset": "cifar100",
    "network": "vit_tiny",
    "epochs": 300,
    "batch_size": 256,
    "augment": True,
    "device": "cuda",
    "learning_rates": [2.5e-4],
    "tuning_seeds": [],
    "responses": ["relu", "gelu", "raa", "relu+arr", "gelu+arr", "dnrt"],
    "arr": [{"layers": "blocks", "weight": 20.0}],
}
_ABLATION_SMALL: dict[str, Any] = {
    **_ABLATION,
    "dataset": "cifar10",
    "pool": 2,
    "network": "vit_64x4",
    "epochs": 20,
    "train_size": 5000,
    "batch_size": 128,
    "device": "cpu",
    "learning_rates": [3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2],
    "tuning_seeds": [1000, 1001],
    "arr": [{"layers": "blocks", "weight": 10.0}],
}
_ABLATION_SMOKE: dict[str, Any] = {
    **{key: value for key, value in _ABLATION_SMALL.items() if key != "pool"},
    "dataset": "digits",
    "network": "vit_64x4_patch2",
    # few steps at a low rate: in eight epochs at 3e-3 the rounding errors of two processors grew to 0.02 in a loss
    "epochs": 3,
    "batch_size": 64,
    "train_size": 300,
    "learning_rates": [1e-3],
    "tuning_seeds": [],
    "seeds": 2,
    "responses": ["gelu", "dnrt"],
}

register(
    Experiment(
        name="dnrt-ablation",
        mechanism="dnrt",
        description="What RAA and ARR add, alone and together (full: reproduction of Table 5; laptop: a small ViT)",
        presets={"smoke": _ABLATION_SMOKE, "laptop": _ABLATION_SMALL, "full": _ABLATION},
        cases=_cases,
        validate=partial(validation_accuracy, _fit),
        measure=_measure,
        columns=_INSIDE,
    )
)


# dnrt-overfitting: Fig. 5.


def _record(curves: Row, fitted: Fitted, epoch: int) -> None:
    evaluation = evaluate(fitted.model, fitted.splits.test)
    curves["loss_by_epoch"].append(evaluation.loss)
    curves["accuracy_by_epoch"].append(evaluation.accuracy)


def _measure_overfitting(job: Job) -> list[Row]:
    curves: Row = {"loss_by_epoch": [], "accuracy_by_epoch": []}
    fitted = _fit(job, partial(_record, curves))
    train = evaluate(fitted.model, fitted.splits.train)
    losses, accuracies = curves["loss_by_epoch"], curves["accuracy_by_epoch"]
    return [
        {
            "accuracy": accuracies[-1],
            "loss": losses[-1],
            "loss_rise": losses[-1] - min(losses),
            "accuracy_train": train.accuracy,
            "loss_train": train.loss,
            **curves,
        }
    ]


_OVERFITTING: dict[str, Any] = {
    **_ABLATION,
    "dataset": "cifar10",
    "augment": "mirror",
    "responses": ["gelu", "raa", "gelu+arr", "dnrt"],
    "arr": [{"layers": "blocks", "weight": 10.0}],
}

register(
    Experiment(
        name="dnrt-overfitting",
        mechanism="dnrt",
        description="ViT on CIFAR-10, mirrored and nothing else (full: reproduction of Fig. 5; laptop: a small ViT)",
        presets={
            "smoke": {**_ABLATION_SMOKE, "augment": "mirror", "seeds": 1},
            "laptop": {
                **_ABLATION_SMALL,
                "augment": "mirror",
                "train_size": 2000,
                "epochs": 60,
                "responses": _OVERFITTING["responses"],
            },
            "full": _OVERFITTING,
        },
        cases=_cases,
        validate=partial(validation_accuracy, _fit),
        measure=_measure_overfitting,
        columns=("accuracy", "loss", "loss_rise", "accuracy_train", "loss_train"),
    )
)


# Many cases: one hidden layer, 5,000 images. The full presets are the paper's.

_SMALL: dict[str, Any] = {
    **_MNIST,
    "train_size": 5000,
    "epochs": 30,
    "batch_size": 256,
    "learning_rates": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2],
}
_SMALL_SMOKE: dict[str, Any] = {**_MNIST_SMOKE, "train_size": 300, "seeds": 1}


def _many(
    name: str,
    description: str,
    cases: Callable[[Mapping[str, Any]], list[Case]],
    conditions: tuple[str, ...] = (),
    **presets: Any,
) -> None:
    register(
        Experiment(
            name=name,
            mechanism="dnrt",
            description=description,
            presets={
                "smoke": {**_SMALL_SMOKE, **presets["smoke"]},
                "laptop": {**_SMALL, **presets["laptop"]},
                "full": {**_ABLATION, **presets["full"]},
            },
            cases=cases,
            conditions=conditions,
            validate=partial(validation_accuracy, _fit),
            measure=partial(_measure, pictures=False),
            columns=_INSIDE,
        )
    )


_HIDDEN = {"layers": "hidden", "weight": 0.1}

_many(
    "dnrt-sensitivity",
    "Momentum and weight of ARR (full: reproduction of Fig. 3; laptop: one hidden layer on MNIST)",
    _sensitivity_cases,
    smoke={"layers": "hidden", "momenta": [0.1, 1.0], "weights": [0.1, 10.0]},
    laptop={"layers": "hidden", "momenta": _MOMENTA, "weights": _WEIGHTS},
    full={"layers": "blocks", "momenta": _MOMENTA, "weights": [20.0, 0.1, 1.0, 5.0, 10.0, 50.0, 100.0]},
)
_VERSIONS = {"responses": ["relu", "gelu", "eq2", "eq3", "raa", "extra relu", "extra gelu"], "arr": []}
_many(
    "dnrt-versions",
    "Three offsets and the extra layer (full: reproduction of Table 8; laptop: one hidden layer on MNIST)",
    _cases,
    smoke={**_VERSIONS, "responses": _VERSIONS["responses"][2:]},
    laptop={**_VERSIONS, "seeds": 10},
    full=_VERSIONS,
)
_many(
    "dnrt-conditions",
    "Wrong labels and rare classes (full: reproduction of Table 4's ViT-Tiny; laptop: one hidden layer on MNIST)",
    _condition_cases,
    conditions=("wrong_labels", "imbalance"),
    smoke={"responses": ["gelu", "dnrt"], "arr": [_HIDDEN], "conditions": [{"wrong_labels": 0.1}, {"imbalance": 10}]},
    laptop={
        "responses": ["gelu", "raa", "gelu+arr", "dnrt"],
        "arr": [{"layers": "hidden", "weight": weight} for weight in (0.01, 0.1, 1.0)],
        "conditions": [{"wrong_labels": 0.1}, *({"imbalance": factor} for factor in (10, 50, 100))],
    },
    full={
        "dataset": "cifar10",
        "responses": ["relu", "gelu", "dnrt"],
        "arr": [{"layers": "blocks", "weight": 10.0}],
        "conditions": [{"wrong_labels": 0.1}, *({"imbalance": factor} for factor in (10, 50, 100))],
    },
)
