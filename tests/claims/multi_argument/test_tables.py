"""What the paper on two-argument activations says of its own numbers and of its own trainings, text against text."""

from __future__ import annotations

from math import fsum

from companion.study import results
from tests.claims.form import (
    Verdict,
    agrees,
    both,
    cells,
    count,
    enumerated,
    graded,
    not_tested,
    swap,
    tables,
)
from tests.claims.multi_argument.facts import (
    chance_of_saddle,
    chance_untrained,
    detail,
    fatal,
    matters,
    p_value,
    printed,
    quoted,
)

EVEN = 0.5
"""The paper's chance of negative curvature."""

SIGNIFICANT = 0.05


def trials(what: str) -> int:
    [row] = [row for row in results.published("multi_argument-trials") if row["what"] == what]
    return int(row["count"])


# --- Section IV-A: how networks were trained ----------------------------------------------------------------------


@fatal(
    "multi_argument-hyperparameters",
    "The hyperparameters of the networks that are compared were optimised.",
    "Abstract",
)
def test_hyperparameters():
    rate, dropout = (printed("Section IV-A", name) for name in ("learning rate of Adam", "dropout p"))
    return not_tested(
        f"Section IV-A has one setting for all networks, Adam with the rate {rate} and dropout {dropout}; widths "
        "were chosen for equal numbers of parameters, and no other search is described.",
        "Trainings with an equal search for every activation would show what the comparison gives after it.",
    )


@matters(
    "multi_argument-validation",
    "Training stops when the validation error saturates, on images that are no test images.",
    "Section IV-A, Fig. 4",
)
def test_validation():
    return not_tested(
        "No split is given, Fig. 4 shows test accuracies, and Section IV-E calls the images of CIFAR-10-C, made from "
        "CIFAR-10's test images, validation images.",
        "The authors' split would decide it.",
    )


@matters(
    "multi_argument-new-task",
    "A learned activation is evaluated with newly started outer networks on new task data.",
    "Section IV-A",
)
def test_new_task():
    return not_tested(
        "The only data named are MNIST and CIFAR-10, from which the activations were learned; whether one from the "
        "first was ever used on the second is not said.",
        "Activations learned on one data set and used on another would show whether they serve new data.",
    )


@matters(
    "multi_argument-robust-training",
    "The networks that Table 1 compares under attack were trained for robustness against attacks in the l∞ norm.",
    "Section IV-E, Table 1",
)
def test_robust_training():
    return not_tested(
        "No adversarial training is described, only Section IV-A's; Fig. 9 says of its networks that they were trained "
        "on clean images only.",
        "Accuracies under the same attack after plain and after adversarial training would show which is meant.",
    )


# --- Section IV-C: how many curvatures are negative ------------------------------------------------------------------


@matters(
    "multi_argument-seventy-eight",
    "In convolutional networks 78 % of 48 learned activations have negative curvature, which has p = 0.007 against "
    "even odds.",
    "Section IV-C",
    turned_by=both(
        cells("multi_argument-quoted", {"quantity": "negative curvature, Conv, percent"}, value=79),
        cells("multi_argument-trials", {"what": "trials of the convolutional architecture"}, count=24),
    ),
)
def test_seventy_eight():
    share, p = printed("Section IV-C", "negative curvature, Conv, percent"), printed("Section IV-C", "p, Conv")
    total = trials("trials of the convolutional architecture")
    right = [k for k in range(total + 1) if agrees(100 * k / total, share)]
    both_right = [k for k in right if agrees(p_value(k, total), p)]
    near = [k for k in range(total + 1) if abs(100 * k / total - float(share)) < 100 / total]
    listed = enumerated([f"{k} are {100 * k / total:.1f} % (p = {p_value(k, total):.5f})" for k in near])
    return Verdict(
        graded(both_right, right),
        f"Of {total}, {listed}: neither is {share} % or has p = {p}, which two-sided is that of 19 of 24, "
        f"{100 * 19 / 24:.1f} %.",
    )


READINGS = ((19, 24), (37, 48), (38, 48))
"""Negative curvatures and trials: what gives the printed p, and what is next to the printed share."""


@fatal(
    "multi_argument-conv-significant",
    "In convolutional networks significantly more curvatures are negative than even odds would give.",
    "Section IV-C, Fig. 7",
    turned_by=swap(EVEN=0.7071),
)
def test_conv_significant():
    found = [p_value(k, total, EVEN) for k, total in READINGS]
    named = {"56 %": chance_untrained("PyTorch's default biases"), "71 %": chance_of_saddle(2)}
    assert all(f"{chance:.0%}".replace("%", " %") == name for name, chance in named.items())
    biased, random = (f"{p_value(*READINGS[0], chance):.2f}" for chance in named.values())
    assert max(found[1:]) < found[0]
    return Verdict(
        graded(max(found) < SIGNIFICANT, min(found) < SIGNIFICANT),
        f"By even odds 19 of 24 has p = {found[0]:.3f}, 37 or 38 of 48, near the printed share, less; by the 56 % of "
        f"untrained networks 19 of 24 has {biased}, by the 71 % of random quadratics {random}.",
    )


@matters(
    "multi_argument-mlp-significance",
    "In perceptrons more curvatures are positive, but not significantly: p = 0.06.",
    "Section IV-C",
    turned_by=cells("multi_argument-quoted", {"quantity": "p, MLP"}, value=0.04),
)
def test_mlp_significance():
    p = printed("Section IV-C", "p, MLP")
    fitting = [(k, n) for n in (24, 48) for k in range(n // 2, n + 1) if agrees(p_value(k, n), p)]
    first = p_value(24 - 17, 24, chance_of_saddle(2))
    return Verdict(
        graded(fitting and float(p) >= SIGNIFICANT),
        f"p = {p} belongs to {enumerated([f'{k} of {n}' for k, n in fitting])} positive ones; against random "
        f"quadratics, negative in 71 %, 17 of 24 would have p = {first:.5f} and be the stronger result.",
    )


@matters(
    "multi_argument-trials",
    "The numbers of trials from which learned activations were collected agree with one another.",
    "Sections IV-B and IV-C, Figs. 7 and 8",
    turned_by=cells("multi_argument-trials", {"what": "trials of the learning experiment"}, count=24),
)
def test_trials():
    each, null, conv, shown = map(
        trials,
        (
            "trials of the learning experiment",
            "trials of the binomial null",
            "trials of the convolutional architecture",
            "learned functions of two arguments",
        ),
    )
    agree = [conv in (null, 2 * null), 2 * each == conv]
    return Verdict(
        graded(all(agree), any(agree)),
        f"Section IV-C has {conv} of CNNs, which the {null} in Fig. 7 make if they are of each data set; but {each} "
        f"repetitions on two data sets make {2 * each}, and Fig. 8 has {shown}, of CNNs and perceptrons.",
    )


@fatal(
    "multi_argument-often",
    "Learned two-argument activations often are soft XORs, which here means that their curvature is negative.",
    "Abstract, Section IV-C",
    turned_by=cells("multi_argument-quoted", {"quantity": "negative curvature, Conv, percent"}, value=10),
)
def test_often():
    conv = quoted("Section IV-C", "negative curvature, Conv, percent")
    [positive] = [k for k in range(12, 25) if agrees(p_value(k, 24), printed("Section IV-C", "p, MLP"))]
    mlp = 100 * (24 - positive) / 24
    shares = (conv, mlp)
    together = fsum(shares) / 2
    return Verdict(
        graded(together >= 100 / 3, max(shares) >= 100 / 3),
        f"{conv:.0f} % in CNNs, and in perceptrons {mlp:.0f} % if their p = 0.06 is of 24 trials, about "
        f"{together:.0f} % together: often, but in perceptrons the smaller part.",
    )


# --- Section IV-E: corruptions and attacks ----------------------------------------------------------------------------


@matters(
    "multi_argument-not-only-clean",
    "Corrupted images gain not only by the higher accuracy on clean ones, but by stronger representations.",
    "Section IV-E, Fig. 9",
    turned_by=cells("multi_argument-quoted", {"quantity": "relative mCE, percent"}, value=92),
)
def test_not_only_clean():
    score, of_decline = (printed("Section IV-E", name) for name in ("mCE, percent", "relative mCE, percent"))
    most = 100 * (100 - float(of_decline)) / (100 - float(score))
    return Verdict(
        graded(most >= 50, most > 0),
        f"If both scores, {score} % and {of_decline} %, were ratios of mean errors, at most {most:.0f} % of the gain "
        "on corrupted images would be more than the gain on clean ones; no clean error and no interval is printed.",
    )


def table() -> dict[str, dict[str, float]]:
    """By row of Table 1 its accuracies, and the last column."""
    names = ("two_arg", "one_arg", "relu", "increment")
    rows = results.published("multi_argument-table-1")
    return {f"{row['data']} {row['network']}": {name: float(row[name]) for name in names} for row in rows}


@fatal(
    "multi_argument-all-cases",
    "In all cases of Table 1 networks with two-argument activations are more accurate under attack than with ReLU.",
    "Section IV-E, Table 1",
    turned_by=cells("multi_argument-table-1", {"data": "CIFAR-10", "network": "MLP"}, relu=4.96),
)
def test_all_cases():
    found = table()
    gains = {name: round(row["two_arg"] - row["relu"], 2) for name, row in found.items()}
    exact = all(gains[name] == row["increment"] for name, row in found.items())
    below = [
        f"{row['two_arg']:g} against {row['relu']:g} for {name}" for name, row in found.items() if row["two_arg"] < 10
    ]
    ahead = [gain > 0 for gain in gains.values()]
    return Verdict(
        graded(all(ahead), any(ahead)),
        f"They lead by {enumerated([f'{gain:g}' for gain in gains.values()])} points, {'just' if exact else 'not'} the "
        f"printed increments; {enumerated(below)} are both below the 10 % of a constant answer.",
    )


@detail(
    "multi_argument-slips",
    "References to the paper's figures, sections and sources agree with what is there.",
    "The whole paper",
    turned_by=tables(lambda name, rows: [row | {"printed": row.get("elsewhere", "")} for row in rows]),
)
def test_slips():
    cases = {
        f"{row['about']} ({row['printed']} for {row['elsewhere']})": row["printed"] == row["elsewhere"]
        for row in results.published("multi_argument-slips")
    }
    return count(cases, "places looked at agree with the rest of the paper")
