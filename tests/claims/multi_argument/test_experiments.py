"""What the paper on two-argument activations says of trained networks, judged by runs of ours where there are any.

What counts as clear stood before the results existed: `companion.multi_argument.study.experiments.comparisons`,
differences paired by seed, p < 0.05 by the t-test with Holm's correction over the four comparisons of one result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from companion.multi_argument.study.experiments import comparisons, label
from companion.study.analysis import Comparison
from tests.claims.form import Change, Run, Verdict, both, detected, enumerated, not_tested, rows, run_of, with_interval
from tests.claims.multi_argument.facts import (
    BIASES,
    fatal,
    grid,
    matters,
    mean_power,
    plane,
    quadratics,
    untrained,
)

OURS = "arity 2 + norm"
RIVALS = ("relu", "relu + norm")
RUNS = ("multi-argument-mnist", "multi-argument-cifar10", "multi-argument-cnn")
WHERE = "in perceptrons on MNIST and CIFAR-10 and a CNN"

SIMILAR = 0.9
"""The share of its variance that a best fit explains, from which on we call a function similar to it."""

Measure = Callable[[Run, dict[str, Any]], float]


def runs() -> list[Run]:
    """Perceptrons of the paper's size on parts of MNIST and CIFAR-10, and a small convolutional network."""
    found = [run_of(name) for name in RUNS]
    assert all(found)
    return [run for run in found if run]


def leads(run: Run, measure: Measure) -> list[Comparison[Any]]:
    """Of two arguments over ReLU, without and with the same normalisation."""
    measured = [{**row, "measure": measure(run, row)} for row in run.rows]
    found = {each.key[1]: each for each in comparisons({"rows": measured}, "measure")}
    return [found[rival] for rival in RIVALS]


def against_relu(measure: Measure, words: str, also: Sequence[bool] = (), further: str = "") -> Verdict:
    """Whether two arguments are clearly better than ReLU, without and with the same normalisation, in each run; and
    whether what else is claimed is so, which ``further`` says."""
    judged = [each for run in runs() for each in leads(run, measure)]
    signs = [each.sign() for each in judged]
    means = [f"{100 * each.difference.mean:+.1f}" for each in judged]
    return runs()[0].judge(
        f"Points by which two arguments lead ReLU in {words}, {WHERE}: {enumerated(means[::2])}; normalised ReLU: "
        f"{enumerated(means[1::2])}{further}.",
        shown=signs.count(1) + sum(also),
        against=signs.count(-1) + len(also) - sum(also),
        of=len(signs) + len(also),
        power=detected(judged, "points", 100),
    )


def over_epochs(run: Run, row: dict[str, Any]) -> float:
    """The mean of the validation accuracies after the epochs that all networks have."""
    shortest = epochs(run)
    return sum(row["accuracy_by_epoch"][:shortest]) / shortest


def epochs(run: Run) -> int:
    """After how many epochs all networks of a run were measured: some stop early."""
    return min(len(row["accuracy_by_epoch"]) for row in run.rows)


def under_attack(_: Run, row: dict[str, Any]) -> float:
    """The mean of the accuracies under attack, over all sizes of the perturbation."""
    return sum(row["accuracy_attack"]) / len(row["accuracy_attack"])


def slower(row: dict[str, Any]) -> dict[str, Any]:
    """The planted change: two arguments hardly learn, and do not bear what ReLU bears."""
    if label(row) != OURS:
        return row
    worse = 0.01 * row["seed"] - 1
    return row | {
        "accuracy": worse,
        "accuracy_corrupted": worse,
        "accuracy_by_epoch": [worse] * len(row["accuracy_by_epoch"]),
        "accuracy_attack": [worse] * len(row["accuracy_attack"]),
    }


def in_every_run(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Change:
    """The planted change, of the rows of all runs."""
    return both(*(rows(name, change) for name in RUNS))


@fatal(
    "multi_argument-experiment-faster",
    "Networks with learned activations are above those with ReLU at every epoch: they learn faster.",
    "Abstract, Section IV-B, Fig. 4",
    turned_by=in_every_run(slower),
)
def test_faster():
    always = []
    for run in runs():
        ours, *theirs = (
            [fmean(row["accuracy_by_epoch"][at] for row in run.rows if label(row) == case) for at in range(epochs(run))]
            for case in (OURS, *RIVALS)
        )
        always += [all(a > b for a, b in zip(ours, each, strict=True)) for each in theirs]
    return against_relu(
        over_epochs, "mean accuracy over epochs", also=always, further=f"; ahead at every epoch in {sum(always)} of 6"
    )


@fatal(
    "multi_argument-experiment-better",
    "With as many parameters, networks with two-argument activations end with a higher accuracy than with ReLU.",
    "Abstract, Section IV-B, Fig. 4",
    turned_by=in_every_run(slower),
)
def test_better():
    return against_relu(lambda _, row: float(row["accuracy"]), "accuracy")


@matters(
    "multi_argument-experiment-early",
    "A learned activation finds its form within 1 to 5 epochs; the rest of the training belongs to the outer network.",
    "Section IV-A, Fig. 5",
)
def test_early():
    return not_tested(
        "The paper shows pictures, and curves that look alike with the activation learning and frozen; they would look "
        "alike, too, if its form hardly mattered.",
        "The part of the final function that is there after each epoch, and retraining with the function frozen after "
        "0, 1, 5 and all epochs, would decide it.",
    )


@matters(
    "multi_argument-experiment-two-dimensional",
    "All learned two-argument activations have a two-dimensional structure: none is a function of one weighted sum.",
    "Section IV-A, Figs. 4 and 7",
)
def test_two_dimensional():
    return not_tested(
        "The paper shows pictures, and measures nothing by which one and two dimensions differ; its power at the "
        "frequency ℓ = 2 is as large for a parabola of one argument.",
        "The variance that the best function of one weighted sum leaves, in learned and in untrained networks, would "
        "decide it.",
    )


@matters(
    "multi_argument-experiment-quadratic",
    "Learned two-argument activations are reliably shaped like quadratics, and extremely similar to their best fits.",
    "Sections IV-C and VI, Fig. 7",
    turned_by=in_every_run(lambda row: row | {"explained": 0.3}),
)
def test_quadratic():
    shares, planes, starts = (
        [row[key] for run in runs() for row in run.rows if label(row) == OURS]
        for key in ("explained", "explained_by_plane", "start_explained")
    )
    return runs()[0].judge(
        f"I{WHERE[1:]} a quadratic explains {min(shares):.0%} to {max(shares):.0%} of the variance that the "
        f"learned function has there, {min(starts):.0%} to {max(starts):.0%} before training; a plane alone explains "
        f"{min(planes):.0%} to {max(planes):.0%}.",
        shown=sum(share >= SIMILAR for share in shares),
        against=sum(share < 0.5 for share in shares),
        of=len(shares),
        power=f"We call a function similar to its best fit from {SIMILAR:.0%} of its variance on.",
    )


@matters(
    "multi_argument-experiment-xavier",
    "Inner networks from Xavier's initialisation are far from the quadratic forms that training makes of them.",
    "Section IV-C, Figs. 5 and 7",
)
def test_xavier():
    shares = []
    for name in BIASES:
        weights, covariance = grid()[1], untrained(name)
        whole = (weights @ covariance.diagonal() - weights @ covariance @ weights).item()
        shares.append(f"{sum(mean_power(plane(), name) + mean_power(quadratics(), name)) / whole:.0%}")
    return not_tested(
        "It is seen by eye; of wide untrained networks under standard normal inputs quadratics explain "
        f"{enumerated(shares)} of the variance on average, without and with biases, so that far has to be defined.",
        "The variance that best-fit quadratics explain, and the distance from the final function, over the epochs "
        "of a training would decide it.",
    )


@fatal(
    "multi_argument-experiment-curvature",
    "In trained CNNs most two-argument activations have negative curvature, in perceptrons more have positive.",
    "Section IV-C, Fig. 7",
)
def test_curvature():
    return not_tested(
        "The paper's 78 % of 48 and p = 0.007 do not fit together, and its null is one half, whatever untrained "
        "networks give.",
        "24 trained networks of each kind, with signs under a layer's own inputs, before and after training, would "
        "decide it.",
    )


@matters(
    "multi_argument-experiment-spectrum",
    "Learned activations of two and of three arguments have more power at the frequency ℓ = 2 than Xavier's have.",
    "Sections IV-D and V, Fig. 8",
)
def test_spectrum():
    return not_tested(
        "Fig. 8 has no numbers; the power grows with the scale of a function, and how functions and their "
        "basis, Hermite-Bessel functions, were normalised is not said.",
        "Shares of the power at ℓ = 2 of learned and of untrained functions, at equal variance, would decide it.",
    )


@fatal(
    "multi_argument-experiment-corruptions",
    "Two-argument activations significantly improve a CNN's robustness against corrupted images, to 91.3 % of the "
    "errors with ReLU.",
    "Abstract, Section IV-E, Fig. 9",
    turned_by=rows("multi-argument-cnn", slower),
)
def test_corruptions():
    run = run_of("multi-argument-cnn")
    assert run is not None
    judged, clean = (leads(run, lambda _, row, name=name: row[name]) for name in ("accuracy_corrupted", "accuracy"))
    listed = [with_interval(each.difference, 1, 100) for each in judged]
    signs = [each.sign() for each in judged]
    return run.judge(
        f"In a small CNN, accuracy on noisy, blurred or faint images is higher by {listed[0]} points than with ReLU "
        f"and by {listed[1]} than with normalised ReLU, on clean images by "
        f"{enumerated([f'{100 * each.difference.mean:+.1f}' for each in clean])}.",
        shown=signs.count(1),
        against=signs.count(-1),
        of=2,
        power=detected(judged, "points", 100),
    )


@fatal(
    "multi_argument-experiment-adversarial",
    "Two-argument activations are a better inductive bias against adversarial perturbations than ReLU.",
    "Abstract, Section IV-E, Table 1",
    turned_by=in_every_run(slower),
)
def test_adversarial():
    return against_relu(under_attack, "accuracy under attack (mean over four ε)")


@matters(
    "multi_argument-experiment-cortical",
    "Learned two-argument activations are consistent with XOR as it was found in dendrites of human cortical neurons.",
    "Abstract, Section V",
)
def test_cortical():
    return not_tested(
        "No response of a neuron is compared with a learned function; that both can compute XOR is no evidence, since "
        "a function of one argument that rises and falls can, too.",
        "Learned functions beside recorded responses to the same two inputs would decide it.",
    )
