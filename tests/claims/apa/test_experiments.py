"""What the paper on APA and AGLU says of trained networks, judged by runs of ours.

What counts as clear stood here before the results existed. "Better" means: the mean of the differences, paired by seed,
is above zero with p < 0.05 (t-test, Holm's correction over the rivals of one sentence). A gain is claimed as a share of
the errors, since the paper's networks and data are others; of several networks the smallest gain counts.

A choice of ours that turns a verdict is a comparison of its own. So AGLU is compared twice, at the learning rates that
tuning chose and at one rate for all; and logits over the images of other classes and over all images. The paper takes
all, but of its 1203 or 1000 classes the class's own hardly count; of ten they are a tenth of the sample and make a
second hump. "Responses" of channels are its gates or its features behind them.

Chosen when the results were known: that such gates are judged beside the features; that no size is asked for where the
paper names none of the entropy; that a sentence on AGLU's rivals is corrected for all comparisons that it counts;
and that the one on early layers, which the paper says of transformers, is judged by our transformer for text.

The arenas (`tests.claims.arena`) are judged since accuracies on digits are known: for balanced data, for what an
exchange of ReLU costs, and that of digits for the shapes that were learned. They have no long tail, no attention and
no APA at an output. Photographs with a long tail (``together-conv-tail``) are judged with each of their two losses,
where the imbalance is that of the claim.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from companion.study import results
from companion.study.analysis import Comparison, compare, family
from companion.study.together import mlp, power
from companion.study.together.conv_tail import LOSSES
from tests.claims import arena
from tests.claims.apa.facts import aglu, detail, grid, matters, series
from tests.claims.form import (
    Effect,
    Outcome,
    Verdict,
    both,
    effect,
    enumerated,
    jointly,
    no_result,
    no_worse,
    not_tested,
    powered,
    rows,
    run_of,
    share_of_errors,
    with_interval,
)

Row = dict[str, Any]
LONG_TAILED = 100  # how many times as many images the largest class has as the smallest


def where(of: Sequence[Row], **values: Any) -> list[Row]:
    return [row for row in of if row.items() >= values.items()]


def mean(values: Mapping[int, float]) -> float:
    return math.fsum(values.values()) / len(values)


# --- AGLU against other activations -------------------------------------------------------------------------

ALIKE = 0.1
"""One learning rate for all: of five the one with the best median over activations and imbalances."""

FAILED = 0.15
"""Of ten classes: an accuracy below it is chance."""


def fails(row: Row) -> bool:
    """Whether it learnt nothing. At one rate for all such a network is counted, not compared."""
    return (row["test_accuracy"] or 0.0) < FAILED  # null is NaN


Gains = Mapping[str, Sequence[tuple[float, float]]]
"""The paper's accuracies with another activation and with AGLU in its place, by the other's name."""


Setting = Mapping[str, Mapping[int, float]]
"""Accuracies by activation and seed, where all else is equal."""


def on_digits(of: Sequence[Row], imbalance: float, measure: str) -> Setting:
    rows_of = where(of, imbalance=imbalance)
    names = {row["activation"] for row in rows_of}
    return {name: series(where(rows_of, activation=name), lambda row: row[measure]) for name in sorted(names)}


def on_photographs(imbalance: float, measure: str) -> list[Setting]:
    """Convolutions on photographs with a long tail, with each of the two losses."""
    run = run_of("together-conv-tail")
    of = where(run.rows, imbalance=imbalance) if run else []
    names = sorted({row["neuron"] for row in of})
    return [
        {name: series(where(of, loss=loss, neuron=name), lambda row: row[measure]) for name in names}
        for loss in LOSSES
        if names
    ]


def of_both(one: Mapping[int, float], other: Mapping[int, float]) -> tuple[dict[int, float], dict[int, float]]:
    """Of the seeds that both have."""
    seeds = sorted(one.keys() & other.keys())
    return {seed: one[seed] for seed in seeds}, {seed: other[seed] for seed in seeds}


def compared(settings: Sequence[Setting], claimed: Mapping[str, float]) -> list[list[Effect]]:
    """AGLU with others in some settings, corrected for all of them together, and listed by setting."""
    pairs = {
        (at, name): of_both(setting["aglu"], setting[name])
        for at, setting in enumerate(settings)
        for name in claimed
        if name in setting
    }
    found: list[list[Effect]] = [[] for _ in settings]
    for each in family(pairs) if pairs else ():
        at, name = each.key
        found[at].append(effect(each, claimed[name], scale=100 / (1 - mean(settings[at][name]))))
    return found


def against(gains: Gains, imbalance: float, measure: str, *, met: bool = False) -> Verdict:
    """AGLU with others on digits; and where it has ``met`` them, in the arena, too."""
    tuned, every = run_of("apa-digits"), run_of("apa-digits-rates")
    if tuned is None or every is None:
        return no_result("apa-digits" if tuned is None else "apa-digits-rates")
    claimed = {name.lower(): min(share_of_errors(*pair) for pair in pairs) for name, pairs in gains.items()}
    failed = Counter(
        row["activation"] for row in where(every.rows, learning_rate=ALIKE, imbalance=imbalance) if fails(row)
    )

    def at_rate(rate: float) -> Setting:
        learnt = [row for row in where(every.rows, learning_rate=rate) if not fails(row)]
        return on_digits(learnt, imbalance, measure)

    def listed(of: Sequence[Effect]) -> str:
        if len(of) > 2:
            means = [each.shown.mean for each in of]
            return f"{min(means):+.1f} to {max(means):+.1f}"
        return enumerated([with_interval(each.shown, 1) for each in of])

    digits = [on_digits(tuned.rows, imbalance, measure), at_rate(ALIKE)]
    photographs = on_photographs(imbalance, {"few_accuracy": "accuracy_rare"}.get(measure, "accuracy"))
    many = len(gains) > 2
    effects, level, *tail = compared([*digits, *photographs], claimed)
    in_arenas = [
        each
        for name in (arena.NAME, arena.PHOTOGRAPHS) * met
        for each in arena.of_errors("aglu", [*claimed], [*claimed.values()], name)
    ]
    effects, level, others, with_tail = jointly(effects, level, in_arenas, [each for of in tail for each in of])
    every_effect = [*effects, *level, *others, *with_tail]
    judged = [each.outcome for each in every_effect]
    undecided = tuned.with_more_seeds(effects)
    if with_tail and (photographs_run := run_of("together-conv-tail")):
        both_runs = (undecided.partition(", would")[0], photographs_run.with_more_seeds(with_tail))
        undecided = ", and ".join(both_runs)
    on = "the rare classes of digits" if measure == "few_accuracy" else "digits"
    at = f" at imbalance {imbalance:g}" * (many and not with_tail)
    clear = f"{judged.count('for')} of {len(judged)} clearly above zero, {judged.count('against')} below"
    left_out = "".join(f" ({name} failed {count}×)" for name in gains if (count := failed[name.lower()]))
    alike = enumerated([f"{each.shown.mean:+.1f}" for each in level]) if met else listed(level)
    in_front = sum(each.sign > 0 for each in others)
    also = (
        f"; in the arenas {listed(others)} %, clearly in {in_front} of {len(others)}"
        if met
        else f"{left_out if many else ' for all'}{f': {clear}' * (many and not with_tail)}"
    )
    if with_tail:
        seen = enumerated([f"{name}'s" for name in gains if name.lower() in photographs[0]])
        also += f", on photographs {f'{seen} ' * many}by {listed(with_tail)} %" + f": {clear}" * many
    raises = " (negative: raises)" * (not with_tail)
    whose = f"{enumerated([*gains])}'s" if len(gains) <= 2 else f"{len(gains)} rivals'"
    chosen = {case["activation"]: case["learning_rate"] for case in where(tuned.chosen, imbalance=imbalance)}
    rates = sorted({chosen["aglu"], *(chosen[name] for name in claimed), ALIKE})
    if len(gains) == 1 and len({chosen[name] for name in ("aglu", *claimed)}) > 1:
        # who was tuned to another rate may owe its place to the rate: equal ones stand beside it, and do not judge
        [rival] = gains
        equal = [compared([at_rate(rate)], claimed)[0] for rate in rates]
        return tuned.judge(
            f"On {on} AGLU at its tuned {chosen['aglu']:g} lowers errors of {rival} at its {chosen[rival.lower()]:g} "
            f"by {listed(effects)} % (negative: raises), at {enumerated([f'{rate:g}' for rate in rates])} for both by "
            f"{enumerated([listed(each) for each in equal])} %.",
            judged,
            power=powered(every_effect, "% of the errors"),
            undecided=undecided,
        )
    return tuned.judge(
        f"On {on}{at} AGLU lowers {whose} errors{raises} by {listed(effects)} % "
        f"{'(tuned)' if many else 'at tuned rates'}, {alike} % at {ALIKE:g}{also}.",
        judged,
        power=powered(every_effect, "% of the errors"),
        undecided=undecided,
    )


def ahead(row: Row) -> Row:
    """AGLU's accuracies are higher by half."""
    gain = 0.5 * (row["activation"] == "aglu")
    return row | {key: row[key] + gain for key in ("test_accuracy", "few_accuracy")}


def ahead_with_tail(row: Row) -> Row:
    """The same on photographs."""
    gain = 0.5 * (row["neuron"] == "aglu")
    return row | {key: row[key] + gain for key in ("accuracy", "accuracy_rare")}


IN_FRONT = both(
    *(rows(name, ahead) for name in ("apa-digits", "apa-digits-rates")), rows("together-conv-tail", ahead_with_tail)
)


@matters(
    "apa-aglu-balanced",
    "On balanced data AGLU is better than ReLU in ResNets and than GELU in ViT.",
    "Section VI-A, Table VI",
    turned_by=both(IN_FRONT, arena.raised("aglu")),
)
def test_aglu_balanced():
    top1 = results.column("apa-table-6", "top1")
    gains = {
        "ReLU": [(top1["ResNet50"], top1["ResNet50 AGLU"])],
        "GELU": [(top1[name], top1[f"{name} AGLU"]) for name in ("ViT-S", "ViT-B")],
    }
    return against(gains, 1, "test_accuracy", met=True)


HALF_A_POINT = 0.005
"""The loss that we allow on digits; the arenas have others, written down before they ran."""


@matters(
    "apa-experiment-direct",
    "AGLU can be used as a direct replacement of ReLU.",
    "Sections I and V-B",
    turned_by=both(
        rows(
            "apa-digits-rates",
            lambda row: row | {"test_accuracy": row["test_accuracy"] - 0.5 * (row["activation"] == "aglu")},
        ),
        arena.raised("aglu", by=-0.5),
    ),
)
def test_direct():
    """At the learning rate that was tuned for ReLU. What it must not cost is ours: the paper names nothing."""
    tuned, every = run_of("apa-digits"), run_of("apa-digits-rates")
    if tuned is None or every is None:
        return no_result("apa-digits-rates")
    found: list[Comparison[Any]] = []
    for chosen in where(tuned.chosen, activation="relu"):
        at = where(every.rows, imbalance=chosen["imbalance"], learning_rate=chosen["learning_rate"])
        pair = [row for row in at if row["activation"] in ("relu", "aglu")]
        found += compare(pair, factor="activation", reference="relu", measure="test_accuracy")
    allowed = {arena.NAME: mlp.SMALLEST_DIFFERENCE, arena.PHOTOGRAPHS: power.SMALLEST_DIFFERENCE}
    for name in allowed:
        rates = {case["learning_rate"] for case in arena.arena(name).chosen if case["neuron"] in ("relu", "aglu")}
        assert len(rates) == 1, name
    met = {name: arena.meeting("aglu", ["relu"], name=name)[0] for name in allowed}
    outcomes: list[Outcome] = [
        *(no_worse(each, HALF_A_POINT) for each in found),
        *(no_worse(each, allowed[name]) for name, each in met.items()),
    ]
    shown = enumerated([with_interval(each.difference, 2, 100) for each in found])
    effects = [effect(each, 100 * HALF_A_POINT, sign=-1, scale=100) for each in found]
    return tuned.judge(
        f"At ReLU's best rate AGLU's accuracy differs by {shown} points on digits (imbalance 1, 10, 100), "
        f"and by {enumerated([with_interval(each.difference, 2, 100) for each in met.values()])} in the arenas.",
        outcomes,
        power=f"Ours, since the paper names no bound: a loss of {100 * HALF_A_POINT:g} points on digits and of "
        f"{enumerated([f'{100 * size:g}' for size in allowed.values()])} in the arenas is to be excluded.",
        undecided=every.with_more_seeds(effects),
    )


def on_cifar(imbalance: int) -> Verdict:
    accuracies = results.column("apa-table-3b", f"imbalance_{imbalance}")
    return against({"ReLU": [(accuracies["APA*"], accuracies["APA*+AGLU"])]}, imbalance, "test_accuracy")


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
    return against(gains, LONG_TAILED, "few_accuracy")


@matters(
    "apa-aglu-rivals",
    "On long-tailed data AGLU is better than ReLU, PReLU, ELU, Mish, GELU and SiLU.",
    "Section V-C, Table IV (f)",
    turned_by=IN_FRONT,
)
def test_aglu_rivals():
    numbers = results.column("apa-table-4f", "average")
    gains = {name: [(value, numbers["AGLU"])] for name, value in numbers.items() if name != "AGLU"}
    return against(gains, LONG_TAILED, "test_accuracy")


# --- Logits -------------------------------------------------------------------------------------------------

READINGS = ("", "_rest")
"""Of the logits of a class: over all images, as in the paper, and without the images of the class itself."""


def nearer(near: str, far: str, imbalances: Sequence[int]) -> dict[tuple[int, str], Comparison[str]]:
    """By how many points the share of classes whose logits are nearer to one law than to the other is above a half."""
    run = run_of("apa-logits")
    assert run is not None
    found = {}
    for imbalance in imbalances:
        of = where(run.rows, imbalance=imbalance)
        for end in READINGS:
            share = series(of, lambda row, end=end: 100 * (row[f"ks_{near}{end}"] < row[f"ks_{far}{end}"]))
            [found[imbalance, end]] = family({near: (share, dict.fromkeys(share, 50.0))})
    return found


def percent(found: Comparison[str]) -> str:
    shown = found.difference
    return f"{50 + shown.mean:.0f} [{50 + shown.low:.0f}, {50 + shown.high:.0f}]"


LAWS = ("gumbel", "logistic")
OTHER_LAW = rows(
    "apa-logits",
    lambda row: (
        row
        | {
            f"ks_{law}{end}": row[f"ks_{other}{end}"]
            for law, other in zip(LAWS, LAWS[::-1], strict=True)
            for end in READINGS
        }
    ),
)


@matters(
    "apa-logits-balanced",
    "After balanced training the logits of most classes lie nearer to a Logistic than to a Gumbel law.",
    "Section III-B, Fig. 2 (h)",
    turned_by=OTHER_LAW,
)
def test_logits_balanced():
    run = run_of("apa-logits")
    assert run is not None
    found = nearer("logistic", "gumbel", (1, LONG_TAILED))
    return run.judge_effects(
        f"On digits, balanced, the Logistic law is nearer for {percent(found[1, ''])} % of the 10 classes over all "
        f"images, {percent(found[1, '_rest'])} % without a class's own; at imbalance {LONG_TAILED} the latter are "
        f"{percent(found[LONG_TAILED, '_rest'])} %, too.",
        *jointly([effect(found[1, end], None) for end in READINGS]),
        "points",
    )


@matters(
    "apa-logits-long-tailed",
    "After imbalanced training the logits of most classes lie nearer to a Gumbel than to a Logistic law.",
    "Section III-B, Fig. 2 (d)",
    turned_by=OTHER_LAW,
)
def test_logits_long_tailed():
    run = run_of("apa-logits")
    assert run is not None
    found = nearer("gumbel", "logistic", (10, LONG_TAILED))
    shares = {end: enumerated([percent(found[each, end]) for each in (10, LONG_TAILED)]) for end in READINGS}
    return run.judge_effects(
        f"At imbalances of 10 and {LONG_TAILED} the Gumbel law is nearer for {shares['']} % of the ten digits over all "
        f"images, {shares['_rest']} % without a class's own.",
        *jointly([effect(each, None) for each in found.values()]),
        "points",
    )


@matters(
    "apa-logits-skewed",
    "Logits are more skewed after imbalanced than after balanced training.",
    "Section III-B, Fig. 2",
    turned_by=rows("apa-logits", lambda row: row | {"skewness": row["skewness_rest"]}),
)
def test_logits_skewed():
    run = run_of("apa-logits")
    assert run is not None
    effects = []
    for end in READINGS:
        skew = {
            imbalance: series(where(run.rows, imbalance=imbalance), lambda row, end=end: abs(row[f"skewness{end}"]))
            for imbalance in (1, LONG_TAILED)
        }
        effects += [effect(each, None) for each in family({end: (skew[LONG_TAILED], skew[1])})]
    [effects] = jointly(effects)
    every, rest = (with_interval(each.shown) for each in effects)
    return run.judge_effects(
        f"On digits, {effects[0].shown.n} seeds, mean |skewness| at an imbalance of {LONG_TAILED} minus that at 1 is "
        f"{every} over all images, measured as in the paper, and {rest} over images of other classes alone.",
        effects,
        "in skewness",
    )


# --- Channel attention --------------------------------------------------------------------------------------


def attention(of: Sequence[Row], gate: str, measure: str) -> dict[int, float]:
    """A measure of the last attention after imbalanced training, by seed; entropies in bits, as in the paper."""
    scale = math.log(2) if measure.startswith("entropy") else 1.0
    return series(where(of, gate=gate, imbalance=LONG_TAILED), lambda row: row[measure] / scale)


def in_attention(
    one: tuple[str, str],
    other: tuple[str, str],
    evidence: Callable[[Effect, Mapping[int, float]], str],
    *,
    claimed: float | None,
    sign: int,
    unit: str,
) -> Verdict:
    """Whether a measure of the attention differs between two gates, or between rare and frequent classes."""
    run = run_of("apa-attention")
    if run is None:
        return no_result("apa-attention")
    base = attention(run.rows, *other)
    [found] = family({one: (attention(run.rows, *one), base)})
    shown = effect(found, claimed, sign=sign)
    return run.judge_effects(evidence(shown, base), [shown], unit)


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
    return in_attention(
        ("sigmoid", "entropy_rare"),
        ("sigmoid", "entropy_frequent"),
        lambda shown, base: (
            f"On digits, imbalance {LONG_TAILED}, {shown.shown.n} seeds, the entropy for frequent minus rare classes "
            f"is {with_interval(shown.shown)} bits; the gates are near one half, with {mean(base):.2f} of at most 1 "
            "bit for frequent ones."
        ),
        claimed=None,
        sign=-1,
        unit="bits",
    )


@matters(
    "apa-attention-response",
    "After imbalanced training the channels respond less to rare than to frequent classes.",
    "Section III-B, Fig. 3 (f, g)",
    turned_by=rows("apa-attention", lambda row: row | {"response_rare": row["response_rare"] + 0.5}),
)
def test_attention_response():
    """A response is a channel's mean behind the gate, or the gate itself: Fig. 3 shows "channel attention"."""
    run = run_of("apa-attention")
    assert run is not None
    pairs = {
        name: tuple(attention(run.rows, "sigmoid", f"{name}_{classes}") for classes in ("rare", "frequent"))
        for name in ("response", "weight")
    }
    effects = [effect(each, None, sign=-1) for each in family(pairs)]
    features, gates = (with_interval(each.shown, 3) for each in effects)
    return run.judge_effects(
        f"On digits, imbalance {LONG_TAILED}, {effects[0].shown.n} seeds, sigmoid gate, the mean for frequent minus "
        f"rare classes is {features} in features behind the last attention and {gates} in its gates, which may be "
        "meant, too.",
        effects,
        "in response",
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
    [found] = family({"entropy": (attention(run.rows, "apa_star", "entropy_rare"), plain)})
    change = f"On digits, rare classes, APA* minus sigmoid is {with_interval(found.difference)} bits"
    # at most one bit: what the paper saw could not have come out
    if 1 - mean(plain) < RISE:
        return not_tested(
            f"{change}, but the sigmoid's gates are near one half, with {mean(plain):.2f} of at most 1 bit: a rise of "
            f"{RISE:g}, as in the paper, was impossible.",
            "A run with images enough that the sigmoid's gates open, as the paper's do, would decide it.",
        )
    return run.judge_effects(f"{change}.", [effect(found, RISE)], "bits")


# --- What was learned ---------------------------------------------------------------------------------------


def expected_output(kappa: float, lam: float) -> float:
    """The mean of AGLU for normal inputs, by which Section VII-B measures how hard it is."""
    points = grid(-8, 8, 1601)
    weights = [math.exp(-z * z / 2) for z in points]
    return math.fsum(w * aglu(z, kappa, lam) for w, z in zip(weights, points, strict=True)) / math.fsum(weights)


TEXT = "together-gpt"


@detail(
    "apa-early-layers",
    "In trained ImageNet21K-ViT-B and GPT-2 AGLU is harder, its mean output for normal inputs larger, in early layers.",
    "Section VII-B, Fig. 7",
    turned_by=rows(
        TEXT, lambda row: row | ({"lam": row["lam"][::-1], "kappa": row["kappa"][::-1]} if "lam" in row else {})
    ),
)
def test_early_layers():
    def above(name: str) -> list[Comparison[int]]:
        """The first layer less each later one. A curve with −κ is that with κ turned round, and as hard."""
        of = where(arena.arena(name).rows, neuron="aglu")
        layers = [
            series(of, lambda row, at=at: expected_output(abs(row["kappa"][at]), row["lam"][at]))
            for at in range(len(of[0]["lam"]))
        ]
        return family({at: (layers[0], layer) for at, layer in enumerate(layers) if at})

    def span_of(name: str) -> str:
        means = [each.difference.mean for each in above(name)]
        return f"{min(means):+.3f} to {max(means):+.3f}"

    effects = [effect(each, None) for each in above(TEXT)]
    return arena.arena(TEXT).judge_effects(
        "In our transformer for text the first layer's mean output for normal inputs exceeds later ones' by "
        f"{enumerated([with_interval(each.shown, 3) for each in effects])}, in convolutions by "
        f"{span_of(arena.PHOTOGRAPHS)}, in a perceptron by {span_of(arena.NAME)}.",
        effects,
        "in the mean output",
    )
