"""What the paper on DNRT says of trained networks, judged by runs of ours where there are any.

What counts as clear stood before the results existed: `companion.dnrt.study.experiments.comparisons`, differences
paired by seed, p < 0.05 by the t-test with Holm's correction over all comparisons of one result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from companion.dnrt.study.experiments import comparisons, label
from companion.study import results
from companion.study.analysis import Comparison, alike, interval
from tests.claims.dnrt.facts import accuracies, detail, fatal, matters
from tests.claims.form import (
    Change,
    Verdict,
    both,
    detected,
    enumerated,
    no_result,
    not_tested,
    rows,
    run_of,
    with_interval,
)


def compared(
    name: str,
    pairs: Sequence[tuple[str, ...]],
    words: str,
    *,
    measure: str = "accuracy",
    better: int = 1,
    unit: str = "points",
    scale: float = 100.0,
    digits: int = 2,
    printed: float | None = None,
    smaller: bool = False,
) -> Verdict:
    """Whether in a run of ours the first of each pair is clearly better in a measure.

    ``words`` begins the evidence, which lists the differences; ``printed`` is the paper's lead.
    """
    if (run := run_of(name)) is None:
        return no_result(name)
    judged = between(name, pairs, measure)
    signs = [better * each.sign() for each in judged]
    listed = [with_interval(each.difference, digits, scale) + against(each.key) for each in judged]
    return replace(run, smaller=run.smaller or smaller).judge(
        f"{words} {enumerated(listed) if len(listed) < 5 else spread(judged, scale, digits, unit, signs)}.",
        shown=signs.count(1),
        against=signs.count(-1),
        of=len(judged),
        power=detected(judged, unit, scale),
        could_see=printed is None or scale * fmean(each.detectable for each in judged) <= printed,
    )


def between(name: str, pairs: Sequence[tuple[str, ...]], measure: str) -> list[Comparison[tuple[str, ...]]]:
    """The comparisons of some pairs in a run of ours."""
    run = run_of(name)
    assert run is not None
    found = {each.key: each for each in comparisons({"experiment": name, "rows": run.rows}, measure)}
    return [found[pair] for pair in pairs]


def against(key: Sequence[str]) -> str:
    """Whom it was compared with, and under what condition."""
    other, *condition = key[1:]
    names = {name: name.upper() for name in ("relu", "gelu", "gdn", "raa", "elu", "selu")}
    names["extra gelu"] = "the extra layer"
    return f" against {names.get(other, other)}" + "".join(f" at {each}" for each in condition)


def once(name: str, change: Change) -> Change | None:
    """The planted change, where the experiment has a result."""
    return change if run_of(name) else None


def spread(judged, scale, digits, unit, signs):
    """The range of many differences, and how many of them are clear."""
    means = [scale * each.difference.mean for each in judged]
    return (
        f"by {min(means):+.{digits}f} to {max(means):+.{digits}f} {unit}, clearly better in {signs.count(1)} and "
        f"clearly worse in {signs.count(-1)} of {len(signs)} comparisons"
    )


def shifted(name: str, response: str, measure: str = "accuracy", by: float = 1.0):
    """The run in which some responses have far more of a measure, by their label."""
    return rows(name, lambda row: row | {measure: row[measure] + by * (label(row) == response)})


NOTICEABLE = 0.1
"""The rank correlation from which on we say that one thing follows another; by convention a small one."""

RIVALS = ("softplus", "elu", "selu", "silu", "relu", "gelu", "gdn")


def perceptron(name: str, data: str) -> Verdict:
    """DNRT with seven activations, in the reading of ARR that is better for DNRT."""
    printed = accuracies(1)[f"{data} MLP"]
    lead = fmean(printed["DNRT"] - value for rival, value in printed.items() if rival != "DNRT")
    verdicts = {
        reading: compared(
            name,
            [(f"dnrt {reading}", rival) for rival in RIVALS],
            f"Over seven activations, all tuned alike, DNRT with ARR on the {words} leads",
            printed=lead,
        )
        for reading, words in (("hidden", "hidden layer"), ("output", "logits"))
    }
    order = ("holds", "seen at smaller scale", "holds in part", "seen in part at smaller scale", "not decided")
    return min(verdicts.values(), key=lambda each: order.index(each.status) if each.status in order else len(order))


@fatal(
    "dnrt-experiment-mnist",
    "A perceptron with DNRT is more accurate on MNIST than with seven other activations.",
    "Section 5.1, Table 1",
    turned_by=rows("dnrt-mnist", lambda row: row | {"accuracy": row["accuracy"] + (row["response"] == "dnrt")}),
)
def test_mnist():
    return perceptron("dnrt-mnist", "MNIST")


@matters(
    "dnrt-experiment-cifar",
    "A perceptron with DNRT is more accurate on CIFAR-10 than with seven other activations.",
    "Section 5.1, Table 1",
    turned_by=rows("dnrt-cifar10", lambda row: row | {"accuracy": row["accuracy"] + (row["response"] == "dnrt")}),
)
def test_cifar():
    return perceptron("dnrt-cifar10", "CIFAR-10")


@matters(
    "dnrt-experiment-gaussian",
    "A class's aggregated responses follow roughly a normal law in each channel, wider in networks that perform "
    "poorly.",
    "Sections 1 and 3.2, Fig. 1",
)
def test_gaussian():
    return not_tested(
        "The paper shows pictures of networks that it does not name and measures nothing.",
        "Skewness and spread within classes, relative to the distance between them, in networks of known accuracy "
        "would decide it.",
    )


@matters(
    "dnrt-experiment-sparser",
    "RAA, GELU with a learned offset in its gate, makes responses considerably sparser than GELU.",
    "Section 5.6, Appendix A.4, Figs. 2 and 4",
    turned_by=shifted("dnrt-mnist", "raa", "sparsity"),
)
def test_sparser():
    return compared(
        "dnrt-mnist",
        [("raa", "gelu")],
        "In a perceptron on MNIST, sparsity, 1 for one response of many and 0 for equal ones, is with RAA higher by",
        measure="sparsity",
        unit="of 1",
        scale=1.0,
        digits=3,
        smaller=True,
    )


@matters(
    "dnrt-experiment-relevance",
    "RAA suppresses most of what is irrelevant to a network's decision and makes the network more interpretable.",
    "Abstract, Appendices A.1 and A.4",
    turned_by=rows("dnrt-ablation", lambda row: row | {"relevance": 0.5 + 0.01 * row["seed"]}),
)
def test_relevance():
    run = run_of("dnrt-ablation")
    assert run is not None
    followed = {
        name: interval(row["relevance"] for row in run.rows if row["response"] == name) for name in ("raa", "dnrt")
    }
    listed = [with_interval(each, 2) for each in followed.values()]
    return run.judge(
        "In a small ViT the rank correlation of a token's offset with its share in the logit of the true class is "
        f"{listed[0]} with RAA and {listed[1]} with DNRT.",
        shown=sum(each.low > NOTICEABLE for each in followed.values()),
        against=sum(each.high < 0 for each in followed.values()),
        of=2,
        power=f"We say that the offset follows relevance from a correlation of {NOTICEABLE} on.",
    )


@fatal(
    "dnrt-experiment-focused",
    "ARR, a loss that pulls responses to their class's mean, makes trained networks' classes easier to tell apart.",
    "Section 5.6, Appendix A.4, Figs. 2 and 4",
    turned_by=both(
        *(
            rows(name, lambda row: row | {"within": 0.5 + 0.01 * row["seed"]})
            for name in ("dnrt-mnist", "dnrt-ablation")
        )
    ),
)
def test_focused():
    verdicts = [
        between("dnrt-mnist", [("dnrt hidden", "raa"), ("dnrt output", "raa")], "within"),
        between("dnrt-ablation", [("dnrt", "raa"), ("relu+arr", "relu"), ("gelu+arr", "gelu")], "within"),
    ]
    judged = [each for found in verdicts for each in found]
    listed = [with_interval(each.difference, 1, 100.0) for each in judged]
    signs = [-each.sign() for each in judged]
    run = run_of("dnrt-mnist")
    assert run is not None
    return replace(run, smaller=True).judge(
        f"In points, ARR changes the share of variance within classes by {listed[0]} (MNIST, hidden layer), "
        f"{listed[1]} (MNIST, logits) and in a ViT by {enumerated(listed[2:])} (RAA, ReLU, GELU).",
        shown=signs.count(1),
        against=signs.count(-1),
        of=len(signs),
        power=detected(judged, "points", 100.0),
    )


@fatal(
    "dnrt-experiment-overfitting",
    "ARR, a loss that pulls responses to their class's mean, overcomes overfitting where images are hardly augmented.",
    "Section 4.2, Appendix A.6, Fig. 5",
    turned_by=once(
        "dnrt-overfitting",
        rows("dnrt-overfitting", lambda row: row | {"loss_rise": 10.0 * ("+" not in row["response"]) + row["seed"]}),
    ),
)
def test_overfitting():
    run = run_of("dnrt-overfitting")
    # there is no more to take away than the rise without ARR
    rises = [row["loss_rise"] for row in run.rows if row["response"] in ("gelu", "raa")] if run else [0.0]
    return compared(
        "dnrt-overfitting",
        [("gelu+arr", "gelu"), ("dnrt", "raa")],
        f"In a small ViT on 2,000 mirrored images the test loss rises from its lowest value by {fmean(rises):.3f} nats "
        "without ARR, which changes that by",
        measure="loss_rise",
        better=-1,
        unit="nats",
        scale=1.0,
        digits=3,
        printed=fmean(rises),
    )


@matters(
    "dnrt-experiment-versions",
    "That the offset in RAA's gate depends on the input, and is not a learned number, is crucial for better "
    "performance.",
    "Section 4.1, Eqs. 2 to 4",
    turned_by=once("dnrt-versions", both(*(shifted("dnrt-versions", response) for response in ("raa", "eq3")))),
)
def test_versions():
    return compared(
        "dnrt-versions",
        [("raa", "gelu"), ("raa", "eq2"), ("eq3", "gelu"), ("eq3", "eq2")],
        "On a part of MNIST, Eqs. 4 and 3 lead over none and over Eq. 2, in points, by",
    )


HALF_A_POINT = 0.005


def sensitivity(run):
    """By the first label of each pair."""
    return {each.key[0]: each for each in comparisons({"experiment": "dnrt-sensitivity", "rows": run.rows})}


@fatal(
    "dnrt-mechanism",
    "RAA, GELU with a learned offset in its gate, improves accuracy by its mechanism, not merely by more parameters.",
    "Appendix A.1, Table 8",
    turned_by=once("dnrt-versions", shifted("dnrt-versions", "raa")),
)
def test_mechanism():
    top1 = results.column("dnrt-table-8", "top1")
    return compared(
        "dnrt-versions",
        [("raa", "gelu"), ("raa", "extra gelu")],
        "On a part of MNIST, RAA leads over GELU, and over GELU with an extra layer of as many parameters, by",
        printed=top1["RAA"] - top1["ex-L + GELU"],
    )


@detail(
    "dnrt-experiment-momentum",
    "Accuracy hardly depends on the momentum m of ARR's moving means between 0.1 and 0.8, and suffers outside.",
    "Appendix A.2, Fig. 3",
    turned_by=once(
        "dnrt-sensitivity",
        rows(
            "dnrt-sensitivity", lambda row: row | {"accuracy": row["accuracy"] - (row.get("momentum") in (0.01, 1.0))}
        ),
    ),
)
def test_momentum():
    if (run := run_of("dnrt-sensitivity")) is None:
        return no_result("dnrt-sensitivity")
    found = sensitivity(run)
    inside, outside = ([found[f"dnrt m = {m:g} λ = 0.1"] for m in each] for each in ((0.3, 0.5, 0.8), (0.01, 1.0)))
    near = [alike(each.difference, HALF_A_POINT) for each in inside]
    worse = [-each.sign() for each in outside]
    listed = [f"{100 * each.difference.mean:+.2f}" for each in (*inside, *outside)]
    return run.judge(
        f"On a part of MNIST, accuracy differs from that at m = 0.1 by {enumerated(listed[:3])} points at m = 0.3, 0.5 "
        f"and 0.8, and by {enumerated(listed[3:])} at 0.01 and 1.",
        shown=near.count(1) + worse.count(1),
        against=near.count(-1) + worse.count(-1),
        of=5,
        power=detected(outside, "points", 100.0),
    )


@matters(
    "dnrt-experiment-lambda",
    "Small weights λ of ARR's loss do not hurt accuracy, which hardly depends on λ unless it is too large.",
    "Appendix A.2, Fig. 3",
    turned_by=once(
        "dnrt-sensitivity",
        rows("dnrt-sensitivity", lambda row: row | {"accuracy": row["accuracy"] - 0.1 * ("weight" in row)}),
    ),
)
def test_lambda():
    if (run := run_of("dnrt-sensitivity")) is None:
        return no_result("dnrt-sensitivity")
    found = sensitivity(run)
    small, large = (
        [found[f"dnrt m = 0.1 λ = {w:g}"] for w in each] for each in ((0.001, 0.01, 0.1), (1.0, 10.0, 100.0))
    )
    listed = [f"{100 * each.difference.mean:+.2f}" for each in (*small, *large)]
    return run.judge(
        f"On a part of MNIST, accuracy differs from that without ARR by {enumerated(listed[:3])} points at λ = 0.001, "
        f"0.01 and 0.1, and by {enumerated(listed[3:])} at 1, 10 and 100.",
        shown=sum(each.difference.low > -HALF_A_POINT for each in small),
        against=sum(each.sign() < 0 for each in small),
        of=3,
        power=detected(small, "points", 100.0),
    )


@fatal(
    "dnrt-experiment-transformers",
    "Vision Transformers trained from scratch on CIFAR and ImageNet are several points more accurate with DNRT.",
    "Section 5.2, Appendix A.3, Tables 2 and 9",
    turned_by=rows("dnrt-ablation", lambda row: row | {"accuracy": row["accuracy"] + (row["response"] == "dnrt")}),
)
def test_transformers():
    return compared(
        "dnrt-ablation",
        [("dnrt", "gelu"), ("dnrt", "relu")],
        "In a small ViT, 20 epochs on 5,000 images of CIFAR-10, DNRT leads, in points, by",
    )


@matters(
    "dnrt-experiment-long-tails",
    "With balanced softmax, DNRT is better than GELU where classes are rare, at imbalances of 10, 50 and 100.",
    "Section 5.4, Table 4",
    turned_by=once("dnrt-conditions", shifted("dnrt-conditions", "dnrt hidden")),
)
def test_long_tails():
    return compared(
        "dnrt-conditions",
        [("dnrt hidden", "gelu", f"imbalance {factor}") for factor in (10, 50, 100)],
        "On long-tailed MNIST, a perceptron is with DNRT more accurate, in points, by",
    )


@matters(
    "dnrt-experiment-other-tasks",
    "DNRT is better than ReLU and GELU on DGraph, and than spiking activations in ResNet-19.",
    "Section 5.4, Appendix A.5, Tables 4 and 10",
)
def test_other_tasks():
    return not_tested(
        "No run of ours has graphs or ResNet-19, and on what ARR acts in a graph is not said.",
        "Trainings of those networks on those data sets with five seeds would decide it.",
    )
