"""What the paper on two-argument activations says of trained networks: what no run of ours has decided, and what would
decide it."""

from __future__ import annotations

from tests.claims.form import enumerated, not_tested
from tests.claims.multi_argument.facts import (
    BIASES,
    fatal,
    grid,
    matters,
    mean_power,
    plane,
    printed,
    quadratics,
    untrained,
)
from tests.claims.multi_argument.test_tables import table


@fatal(
    "multi_argument-experiment-faster",
    "Networks with learned activations are above those with ReLU at every epoch: they learn faster.",
    "Abstract, Section IV-B, Fig. 4",
)
def test_faster():
    return not_tested(
        "Fig. 4 shows means of four trainings; no number of epochs and no test is given, and an epoch takes "
        "several times the multiplications that it takes with ReLU.",
        "Epochs to a given accuracy at equal parameters, with LayerNorm and a tuned learning rate for ReLU too, over "
        "at least five seeds, would decide it.",
    )


@fatal(
    "multi_argument-experiment-better",
    "With as many parameters, networks with two-argument activations end with a higher accuracy than with ReLU.",
    "Abstract, Section IV-B, Fig. 4",
)
def test_better():
    return not_tested(
        "No accuracy on clean images is printed, nor are the widths of the networks with ReLU; whether these have the "
        "layer normalisation that stands before learned activations is not said expressly.",
        "Accuracies of perceptrons and CNNs with ReLU, one and two arguments, all with LayerNorm and equal parameters, "
        "over at least five seeds, would decide it.",
    )


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
)
def test_quadratic():
    shares = []
    for name in BIASES:
        weights, covariance = grid()[1], untrained(name)
        whole = (weights @ covariance.diagonal() - weights @ covariance @ weights).item()
        shares.append(f"{sum(mean_power(plane(), name) + mean_power(quadratics(), name)) / whole:.0%}")
    return not_tested(
        "The paper shows pictures and no measure of the fit; of wide untrained networks under standard normal inputs "
        f"quadratics explain {enumerated(shares)} of the variance on average, without and with biases.",
        "The variance that best-fit quadratics explain under a layer's own inputs, before and after training, would "
        "decide it.",
    )


@matters(
    "multi_argument-experiment-xavier",
    "Inner networks from Xavier's initialisation are far from the quadratic forms that training makes of them.",
    "Section IV-C, Figs. 5 and 7",
)
def test_xavier():
    return not_tested(
        "It is seen by eye; without biases an untrained network is a cone, and quadratics fit most of it, so that "
        "far has to be defined.",
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
)
def test_corruptions():
    score = printed("Section IV-E", "mCE, percent")
    return not_tested(
        f"{score} % is the mean of 15 ratios, without the number of trainings, an interval, a test or the errors on "
        "clean images.",
        "Errors on corrupted and on clean images with both activations at equal parameters, over at least five seeds, "
        "would decide it.",
    )


@fatal(
    "multi_argument-experiment-adversarial",
    "Two-argument activations are a better inductive bias against adversarial perturbations than ReLU.",
    "Abstract, Section IV-E, Table 1",
)
def test_adversarial():
    found = table()
    numbers = [row[name] for row in found.values() for name in ("two_arg", "one_arg", "relu")]
    below = sum(number < 10 for number in numbers)
    ahead = [
        f"{row['one_arg']:g} against {row['two_arg']:g}" for row in found.values() if row["one_arg"] > row["two_arg"]
    ]
    return not_tested(
        f"Table 1 has means of four trainings without deviations, {below} of {len(numbers)} below the 10 % of a "
        f"constant answer, and in {len(ahead)} of {len(found)} rows one argument leads two ({enumerated(ahead)}).",
        "Accuracies under the same attack at several sizes of perturbation, beside clean ones, over at least five "
        "seeds, would decide it.",
    )


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
