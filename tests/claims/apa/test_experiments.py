"""What the paper on APA and AGLU says of trained networks, judged by runs of ours.

What counts as clear stood here before the results existed. "Better" means: the mean of the differences, paired by seed,
is above zero with p < 0.05 (t-test, Holm's correction over the rivals of one sentence).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from companion.analysis import Comparison, compare, family
from tests.claims.apa.facts import fatal, matters, series
from tests.claims.form import Verdict, detected, enumerated, no_result, not_tested, rows, run_of, with_interval

Row = dict[str, Any]
LONG_TAILED = 100  # how many times as many images the largest class has as the smallest


def judged(
    experiment: str,
    compared: Callable[[Sequence[Row]], list[Comparison[str]]],
    evidence: Callable[[list[Comparison[str]]], str],
    *,
    wanted: int,
    unit: str,
    scale: float = 1.0,
) -> Verdict:
    """What a run makes of the claim that differences have a sign."""
    run = run_of(experiment)
    if run is None:
        return no_result(experiment)
    found = compared(run.rows)
    signs = [each.sign() for each in found]
    return run.judge(
        evidence(found),
        shown=signs.count(wanted),
        against=signs.count(-wanted),
        of=len(signs),
        power=detected(found, unit, scale),
    )


def where(of: Sequence[Row], **values: Any) -> list[Row]:
    return [row for row in of if row.items() >= values.items()]


# --- AGLU against other activations -------------------------------------------------------------------------


def against_rivals(imbalance: float, measure: str) -> Verdict:
    return judged(
        "apa-digits",
        lambda of: compare(where(of, imbalance=imbalance), factor="activation", reference="aglu", measure=measure),
        lambda found: (
            f"Points of rivals minus AGLU on digits, {found[0].difference.n} seeds: "
            f"{enumerated([f'{each.key} {with_interval(each.difference, scale=100)}' for each in found])}."
        ),
        wanted=-1,
        unit="points",
        scale=100,
    )


def ahead(row: Row) -> Row:
    """AGLU's accuracies are higher by half."""
    gain = 0.5 * (row["activation"] == "aglu")
    return row | {key: row[key] + gain for key in ("test_accuracy", "few_accuracy")}


IN_FRONT = rows("apa-digits", ahead)


@fatal(
    "apa-aglu-balanced",
    "On balanced data AGLU is better than ReLU, GELU, SiLU, Mish, ELU and PReLU.",
    "Section VI-A",
    turned_by=IN_FRONT,
)
def test_aglu_balanced():
    return against_rivals(1, "test_accuracy")


@matters(
    "apa-aglu-imbalance-10",
    "On long-tailed data with an imbalance factor of 10 AGLU is better than ReLU, GELU, SiLU, Mish, ELU and PReLU.",
    "Section V-C",
)
def test_aglu_imbalance_10():
    tuned, every = run_of("apa-digits"), run_of("apa-digits-rates")
    if tuned is None or every is None:
        return no_result("apa-digits-rates")
    chosen, alike = where(tuned.rows, imbalance=10), where(every.rows, imbalance=10, learning_rate=0.1)
    behind, level = (
        compare(of, factor="activation", reference="aglu", measure="test_accuracy") for of in (chosen, alike)
    )
    [rate] = {row["learning_rate"] for row in where(chosen, activation="aglu")}
    worse = sum(each.sign() == 1 for each in behind)
    above, clearly = sum(each.difference.mean < 0 for each in level), sum(each.sign() == -1 for each in level)
    return not_tested(
        f"Three tuning seeds gave AGLU the rate {rate:g} on digits, with which it is clearly behind {worse} of "
        f"{len(behind)} rivals; at 0.1 for all its mean is above {above} of them, clearly in {clearly} cases.",
        "A choice of the rates by more tuning seeds would decide it.",
    )


@fatal(
    "apa-aglu-imbalance-100",
    "On long-tailed data with an imbalance factor of 100 AGLU is better than ReLU, GELU, SiLU, Mish, ELU and PReLU.",
    "Section V-C",
    turned_by=IN_FRONT,
)
def test_aglu_imbalance_100():
    return against_rivals(LONG_TAILED, "test_accuracy")


@matters(
    "apa-aglu-rare",
    "On long-tailed data with an imbalance factor of 100 AGLU is better than six other activations on rare classes.",
    "Section V-C",
    turned_by=IN_FRONT,
)
def test_aglu_rare():
    return against_rivals(LONG_TAILED, "few_accuracy")


# --- Logits -------------------------------------------------------------------------------------------------

# A class's logit is judged over the images of other classes, "_rest". The paper takes all images, but of 1203 or 1000
# classes the class's own hardly count; of ten they are a tenth of the sample and make a second hump.


def nearer(imbalance: float, near: str, far: str) -> Verdict:
    """Whether the logits of most classes are nearer to one law than to the other."""

    def share(of: Sequence[Row], end: str) -> dict[int, float]:
        return series(
            where(of, imbalance=imbalance), lambda row: 100 * (row[f"ks_{near}{end}"] < row[f"ks_{far}{end}"])
        )

    def compared(of: Sequence[Row]) -> list[Comparison[str]]:
        rest, every = share(of, "_rest"), share(of, "")
        over_all = f"{sum(every.values()) / len(every):.0f} % over all images"
        return family({over_all: (rest, dict.fromkeys(rest, 50.0))})

    def evidence(found: list[Comparison[str]]) -> str:
        [rest] = found
        found_share = rest.difference
        low, mean, high = (f"{50 + end:.0f}" for end in (found_share.low, found_share.mean, found_share.high))
        return (
            f"On digits, {found_share.n} seeds, the {near.capitalize()} law is nearer for {mean} % [{low}, {high}] of "
            f"the classes over images of other classes, and for {rest.key}."
        )

    return judged("apa-logits", compared, evidence, wanted=1, unit="points")


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
    return nearer(1, "logistic", "gumbel")


@matters(
    "apa-logits-long-tailed",
    "After imbalanced training the logits of most classes lie nearer to a Gumbel than to a Logistic law.",
    "Section III-B, Fig. 2 (d)",
    turned_by=OTHER_LAW,
)
def test_logits_long_tailed():
    return nearer(LONG_TAILED, "gumbel", "logistic")


@matters(
    "apa-logits-skewed",
    "Logits are more skewed after imbalanced than after balanced training.",
    "Section III-B, Fig. 2",
    turned_by=rows("apa-logits", lambda row: row | {"skewness_rest": row["skewness"]}),
)
def test_logits_skewed():
    def compared(of: Sequence[Row]) -> list[Comparison[str]]:
        tailed, balanced = (
            series(where(of, imbalance=imbalance), lambda row: abs(row["skewness_rest"]))
            for imbalance in (LONG_TAILED, 1)
        )
        return family({"skewness": (tailed, balanced)})

    return judged(
        "apa-logits",
        compared,
        lambda found: (
            f"On digits, {found[0].difference.n} seeds, mean |skewness| at an imbalance of {LONG_TAILED} minus that "
            f"at 1 is {with_interval(found[0].difference)}, over images of other classes."
        ),
        wanted=1,
        unit="in skewness",
    )


# --- Channel attention --------------------------------------------------------------------------------------


def attention(one: tuple[str, str], other: tuple[str, str], what: str, unit: str, wanted: int) -> Verdict:
    """Two means by seed of the last attention under imbalance, each of a gate and a group of classes."""

    def compared(of: Sequence[Row]) -> list[Comparison[str]]:
        pair = [
            series(where(of, gate=gate, imbalance=LONG_TAILED), lambda row, measure=measure: row[measure])
            for gate, measure in (one, other)
        ]
        return family({what: (pair[0], pair[1])})

    return judged(
        "apa-attention",
        compared,
        lambda found: (
            f"On digits, imbalance {LONG_TAILED}, {found[0].difference.n} seeds, {what} is "
            f"{with_interval(found[0].difference, 3)} {unit}."
        ),
        wanted=wanted,
        unit=unit,
    )


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
    what = "the entropy of the last attention for rare minus frequent classes, with a sigmoid gate,"
    return attention(("sigmoid", "entropy_rare"), ("sigmoid", "entropy_frequent"), what, "nats", wanted=-1)


@matters(
    "apa-attention-response",
    "After imbalanced training the channels respond less to rare than to frequent classes.",
    "Section III-B, Fig. 3 (f, g)",
    turned_by=rows("apa-attention", lambda row: row | {"response_rare": row["response_rare"] + 0.5}),
)
def test_attention_response():
    what = "the mean response after the last attention to rare minus frequent classes, with a sigmoid gate,"
    return attention(("sigmoid", "response_rare"), ("sigmoid", "response_frequent"), what, "units", wanted=-1)


@matters(
    "apa-attention-apa",
    "APA* raises the entropy of the last attention above that of the sigmoid.",
    "Section V-E, Fig. 6 (b)",
    turned_by=rows(
        "apa-attention", lambda row: row | {"entropy_rare": row["entropy_rare"] + (row["gate"] == "apa_star")}
    ),
)
def test_attention_apa():
    what = "the entropy of the last attention for rare classes, with APA* minus with the sigmoid,"
    return attention(("apa_star", "entropy_rare"), ("sigmoid", "entropy_rare"), what, "nats", wanted=1)
