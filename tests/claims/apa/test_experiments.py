"""What the paper on APA and AGLU says of trained networks, judged by runs of ours.

What counts as clear stood here before the results existed. "Better" means: the mean of the differences, paired by seed,
is above zero with p < 0.05 (t-test, Holm's correction over the rivals of one sentence).

One rule for all rows: a run judges a claim only where the claim could have come out of it. "Not tested" is a claim

- where nothing is clear, and the paper's gain, as a share of the errors, is smaller than what would have been found;
- where the verdict is another if all activations have one learning rate, not the rates that three tuning seeds chose;
- where the measure has no room for the effect that the paper reports.

Its evidence says what could have been seen. Where the paper prints no size, "not seen" stands with its power.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from companion.study import results
from companion.study.analysis import Comparison, compare, family
from tests.claims.apa.facts import matters, series
from tests.claims.form import (
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

Row = dict[str, Any]
LONG_TAILED = 100  # how many times as many images the largest class has as the smallest


def where(of: Sequence[Row], **values: Any) -> list[Row]:
    return [row for row in of if row.items() >= values.items()]


def signs(found: Sequence[Comparison[str]], wanted: int) -> dict[str, int]:
    """How many comparisons show the claim, how many its opposite, and how many there are."""
    clear = [each.sign() for each in found]
    return {"shown": clear.count(wanted), "against": clear.count(-wanted), "of": len(clear)}


def mean(values: Mapping[int, float]) -> float:
    return math.fsum(values.values()) / len(values)


# --- AGLU against other activations -------------------------------------------------------------------------

ALIKE = 0.1
"""One learning rate for all: of five the one with the best median over activations and imbalances."""

Gains = Mapping[str, Sequence[tuple[float, float]]]
"""The paper's accuracies with another activation and with AGLU in its place, by the other's name."""


def against(gains: Gains, imbalance: float, measure: str, data: str) -> Verdict:
    tuned, every = run_of("apa-digits"), run_of("apa-digits-rates")
    if tuned is None or every is None:
        return no_result("apa-digits" if tuned is None else "apa-digits-rates")
    names = {name.lower(): name for name in gains}
    decided_by = f"The paper's networks on {data}, over seeds, would decide it."

    def compared(of: Sequence[Row]) -> list[Comparison[str]]:
        rivals = [row for row in where(of, imbalance=imbalance) if row["activation"] in {*names, "aglu"}]
        return compare(rivals, factor="activation", reference="aglu", measure=measure)

    def listed(of: Sequence[Comparison[str]]) -> str:
        found = [with_interval(each.difference, scale=100) for each in of]
        if len(of) == 1:
            return found[0]
        return enumerated([f"{each} ({names[one.key]})" for each, one in zip(found, of, strict=True)])

    found, level = compared(tuned.rows), compared(where(every.rows, learning_rate=ALIKE))
    on = "the rare classes of digits" if measure == "few_accuracy" else "digits"
    whose = "rivals' accuracies minus AGLU's are"
    if len(gains) == 1:
        whose = f"{enumerated([*gains])}'s accuracy minus AGLU's is"
    lead = f"On {on}, {found[0].difference.n} seeds, {whose} {listed(found)} points"
    visible, claimed, seen = [], [], []
    for each in found:
        accuracies = series(where(tuned.rows, imbalance=imbalance, activation=each.key), lambda row: row[measure])
        shares = [100 * (after - before) / (100 - before) for before, after in gains[names[each.key]]]
        claimed += shares
        visible.append(100 * each.detectable / (1 - mean(accuracies)))
        if max(shares) >= visible[-1]:
            seen.append(names[each.key])
    verdict = tuned.judge(
        f"{lead}.",
        **signs(found, -1),
        power=f"{detected(found, 'points', 100)[:-1]}: as shares of the errors the paper's leads over "
        f"{enumerated(seen)} are larger.",
    )
    if tuned.judge("", **signs(level, -1)).status != verdict.status:
        return not_tested(
            f"{lead} at the learning rates that three tuning seeds chose, but {listed(level)} at the rate {ALIKE:g} "
            "for all, so the verdict depends on the rate.",
            decided_by,
        )
    if not seen and not any(each.sign() for each in found):
        return not_tested(
            f"{lead}; only gains above {min(visible):.1f} % of errors would show with 80 % probability, but the "
            f"paper's is at most {max(claimed):.1f} %.",
            decided_by,
        )
    return verdict


def ahead(row: Row) -> Row:
    """AGLU's accuracies are higher by half."""
    gain = 0.5 * (row["activation"] == "aglu")
    return row | {key: row[key] + gain for key in ("test_accuracy", "few_accuracy")}


IN_FRONT = both(rows("apa-digits", ahead), rows("apa-digits-rates", ahead))


@matters(
    "apa-aglu-balanced",
    "On balanced data AGLU is better than ReLU in ResNets and than GELU in ViT.",
    "Section VI-A, Table VI",
    turned_by=IN_FRONT,
)
def test_aglu_balanced():
    top1 = results.column("apa-table-6", "top1")
    gains = {
        "ReLU": [(top1["ResNet50"], top1["ResNet50 AGLU"])],
        "GELU": [(top1[name], top1[f"{name} AGLU"]) for name in ("ViT-S", "ViT-B")],
    }
    return against(gains, 1, "test_accuracy", "ImageNet1K")


def on_cifar(imbalance: int) -> Verdict:
    accuracies = results.column("apa-table-3b", f"imbalance_{imbalance}")
    gains = {"ReLU": [(accuracies["APA*"], accuracies["APA*+AGLU"])]}
    return against(gains, imbalance, "test_accuracy", "CIFAR100-LT")


@matters(
    "apa-aglu-imbalance-10",
    "On long-tailed data with an imbalance factor of 10 AGLU is better than ReLU.",
    "Section V-C, Table III (b)",
    turned_by=IN_FRONT,
)
def test_aglu_imbalance_10():
    return on_cifar(10)


@matters(
    "apa-aglu-imbalance-100",
    "On long-tailed data with an imbalance factor of 100 AGLU is better than ReLU.",
    "Section V-C, Table III (b)",
    turned_by=IN_FRONT,
)
def test_aglu_imbalance_100():
    return on_cifar(LONG_TAILED)


@matters(
    "apa-aglu-rare",
    "On long-tailed data AGLU is better than ReLU on rare classes.",
    "Section V-C, Table II",
    turned_by=IN_FRONT,
)
def test_aglu_rare():
    few = results.column("apa-table-2", "few")
    gains = {"ReLU": [(few[f"APA* {name}"], few[f"APA*+AGLU {name}"]) for name in ("R50", "X50")]}
    return against(gains, LONG_TAILED, "few_accuracy", "ImageNet-LT")


@matters(
    "apa-aglu-rivals",
    "On long-tailed data AGLU is better than ReLU, PReLU, ELU, Mish, GELU and SiLU.",
    "Section V-C, Table IV (f)",
    turned_by=IN_FRONT,
)
def test_aglu_rivals():
    numbers = results.column("apa-table-4f", "average")
    gains = {name: [(value, numbers["AGLU"])] for name, value in numbers.items() if name != "AGLU"}
    return against(gains, LONG_TAILED, "test_accuracy", "ImageNet-LT")


# --- Logits -------------------------------------------------------------------------------------------------

# A class's logit is judged over the images of other classes, "_rest". The paper takes all images, but of 1203 or 1000
# classes the class's own hardly count; of ten they are a tenth of the sample and make a second hump.


def judged(
    experiment: str,
    pair: Callable[[Sequence[Row]], tuple[Mapping[int, float], Mapping[int, float]]],
    evidence: Callable[[Comparison[str], Sequence[Row]], str],
    *,
    wanted: int,
    unit: str,
) -> Verdict:
    """What a run makes of the claim that one difference has a sign."""
    run = run_of(experiment)
    if run is None:
        return no_result(experiment)
    found = family({experiment: pair(run.rows)})
    return run.judge(evidence(found[0], run.rows), **signs(found, wanted), power=detected(found, unit))


def nearer(near: str, far: str, imbalance: int, other: int) -> Verdict:
    """Whether the logits of most classes are nearer to one law than to the other."""

    def share(of: Sequence[Row], imbalance: int, end: str = "_rest") -> dict[int, float]:
        return series(
            where(of, imbalance=imbalance), lambda row: 100 * (row[f"ks_{near}{end}"] < row[f"ks_{far}{end}"])
        )

    def evidence(found: Comparison[str], of: Sequence[Row]) -> str:
        shown = found.difference
        low, middle, high = (f"{50 + end:.0f}" for end in (shown.low, shown.mean, shown.high))
        elsewhere, every = (f"{mean(shares):.0f}" for shares in (share(of, other), share(of, imbalance, end="")))
        balanced = " (balanced)" if imbalance == 1 else ""
        joined = "and" if (float(every) > 50) == (float(middle) > 50) else "but"
        return (
            f"On digits, {shown.n} seeds, imbalance {imbalance}{balanced}, the {near.capitalize()} law is nearer for "
            f"{middle} % [{low}, {high}] of the classes if each class's own images are left out "
            f"({elsewhere} % at imbalance {other}), {joined} for {every} % over all images."
        )

    def pair(of: Sequence[Row]) -> tuple[Mapping[int, float], Mapping[int, float]]:
        return (shares := share(of, imbalance)), dict.fromkeys(shares, 50.0)

    return judged("apa-logits", pair, evidence, wanted=1, unit="points")


OTHER_LAW = rows(
    "apa-logits",
    lambda row: row | {"ks_gumbel_rest": row["ks_logistic_rest"], "ks_logistic_rest": row["ks_gumbel_rest"]},
)


@matters(
    "apa-logits-balanced",
    "After balanced training the logits of most classes lie nearer to a Logistic than to a Gumbel law.",
    "Section III-B, Fig. 2 (h)",
    turned_by=OTHER_LAW,
)
def test_logits_balanced():
    return nearer("logistic", "gumbel", 1, LONG_TAILED)


@matters(
    "apa-logits-long-tailed",
    "After imbalanced training the logits of most classes lie nearer to a Gumbel than to a Logistic law.",
    "Section III-B, Fig. 2 (d)",
    turned_by=OTHER_LAW,
)
def test_logits_long_tailed():
    return nearer("gumbel", "logistic", LONG_TAILED, 1)


@matters(
    "apa-logits-skewed",
    "Logits are more skewed after imbalanced than after balanced training.",
    "Section III-B, Fig. 2",
    turned_by=rows("apa-logits", lambda row: row | {"skewness_rest": row["skewness"]}),
)
def test_logits_skewed():
    def skew(of: Sequence[Row], imbalance: int) -> dict[int, float]:
        return series(where(of, imbalance=imbalance), lambda row: abs(row["skewness_rest"]))

    return judged(
        "apa-logits",
        lambda of: (skew(of, LONG_TAILED), skew(of, 1)),
        lambda found, of: (
            f"On digits, {found.difference.n} seeds, mean |skewness| at an imbalance of {LONG_TAILED} minus that "
            f"at 1 is {with_interval(found.difference)}, if each class's own images are left out."
        ),
        wanted=1,
        unit="in skewness",
    )


# --- Channel attention --------------------------------------------------------------------------------------


def attention(of: Sequence[Row], gate: str, measure: str) -> dict[int, float]:
    """A measure of the last attention after imbalanced training, by seed; entropies in bits, as in the paper."""
    scale = math.log(2) if measure.startswith("entropy") else 1.0
    return series(where(of, gate=gate, imbalance=LONG_TAILED), lambda row: row[measure] / scale)


@matters(
    "apa-attention-balanced",
    "After balanced training channel attention treats all classes alike.",
    "Section I",
)
def test_attention_balanced():
    return not_tested(
        "Without frequent and rare classes there is no pair of groups to compare, and the paper shows none.",
        "The entropies of single classes, and a bound on how far they may lie apart, would decide it.",
    )


@matters(
    "apa-attention-entropy",
    "After imbalanced training the last attention has a lower entropy for rare than for frequent classes.",
    "Section III-B, Fig. 3 (d, e)",
    turned_by=rows(
        "apa-attention", lambda row: row | {"entropy_rare": row["entropy_frequent"] - 0.1 - 0.01 * (row["seed"] % 2)}
    ),
)
def test_attention_entropy():
    return judged(
        "apa-attention",
        lambda of: (attention(of, "sigmoid", "entropy_rare"), attention(of, "sigmoid", "entropy_frequent")),
        lambda found, of: (
            f"On digits, imbalance {LONG_TAILED}, {found.difference.n} seeds, the entropy for rare minus frequent "
            f"classes is {with_interval(found.difference)} bits; the gates are near one half, with "
            f"{mean(attention(of, 'sigmoid', 'entropy_rare')):.2f} of at most 1 bit."
        ),
        wanted=-1,
        unit="bits",
    )


@matters(
    "apa-attention-response",
    "After imbalanced training the channels respond less to rare than to frequent classes.",
    "Section III-B, Fig. 3 (f, g)",
    turned_by=rows("apa-attention", lambda row: row | {"response_rare": row["response_rare"] + 0.5}),
)
def test_attention_response():
    return judged(
        "apa-attention",
        lambda of: (attention(of, "sigmoid", "response_rare"), attention(of, "sigmoid", "response_frequent")),
        lambda found, of: (
            f"On digits, imbalance {LONG_TAILED}, {found.difference.n} seeds, the mean response after the last "
            f"attention to rare minus frequent classes, with a sigmoid gate, is {with_interval(found.difference)}."
        ),
        wanted=-1,
        unit="in response",
    )


RISE = 0.4
"""In bits: how much APA* raises the entropy at least, by Section V-E."""


@matters(
    "apa-attention-apa",
    "APA* raises the entropy of the last attention above that of the sigmoid.",
    "Section V-E, Fig. 6 (b)",
    # as in the paper, where the sigmoid's entropies are 0.018 and 0.098 bits
    turned_by=rows(
        "apa-attention", lambda row: row | {"entropy_rare": row["entropy_rare"] * (row["gate"] == "apa_star")}
    ),
)
def test_attention_apa():
    run = run_of("apa-attention")
    if run is None:
        return no_result("apa-attention")
    plain = attention(run.rows, "sigmoid", "entropy_rare")
    found = family({"entropy": (attention(run.rows, "apa_star", "entropy_rare"), plain)})
    change = f"On digits, rare classes, APA* minus sigmoid is {with_interval(found[0].difference)} bits"
    if 1 - mean(plain) < RISE:
        return not_tested(
            f"{change}, but the sigmoid's gates are near one half, with {mean(plain):.2f} of at most 1 bit: a rise of "
            f"{RISE:g}, as in the paper, was impossible.",
            "A run with images enough that the sigmoid's gates open, as the paper's do, would decide it.",
        )
    return run.judge(f"{change}.", **signs(found, 1), power=detected(found, "bits"))
