"""What the paper on two-argument activations says of trained networks, judged by runs of ours where there are any.

What counts as clear stood before the results existed: `companion.multi_argument.study.experiments.comparisons`,
differences paired by seed, p < 0.05 by the t-test with Holm's correction over the four comparisons of one result. Two
arguments have the paper's normalisation unless a row says otherwise. What was learned is judged since the results are
known.

The arena (`tests.claims.arena`) has its own normalisation, over the batch, one training instead of three sessions, and
Xavier's start. It is judged since its numbers are known, for accuracy on clean and on disturbed digits; it has no
curves over epochs, no convolutions, no attack, and kept no learned function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import correlation, fmean
from typing import Any

from companion.multi_argument.study.experiments import comparisons, label
from companion.study import results
from companion.study.analysis import Comparison, by_seed, family
from tests.claims import arena
from tests.claims.form import (
    Change,
    Outcome,
    Run,
    Verdict,
    both,
    core_hours,
    effect,
    enumerated,
    not_tested,
    powered,
    rows,
    run_of,
    with_interval,
)
from tests.claims.multi_argument.facts import (
    BIASES,
    at_two,
    drawn,
    fatal,
    grid,
    matters,
    mean_power,
    p_value,
    plane,
    quadratics,
    quoted,
    untrained,
)

OURS, PLAIN = "arity 2 + norm", "arity 2"
RIVALS = ("relu", "relu + norm")
RUNS = ("multi-argument-mnist", "multi-argument-cifar10", "multi-argument-cnn")
WHERE = "in perceptrons on MNIST and CIFAR-10 and a CNN"

UNNAMED = (None, None, None)
"""The sizes of what Fig. 4 shows: it has no numbers."""

TABLE = "multi_argument-table-1"

SIMILAR = 0.9
"""The share of its variance that a best fit explains, from which on we call a function similar to it."""

Measure = Callable[[Run, dict[str, Any]], float]


def runs() -> list[Run]:
    """Perceptrons of the paper's size on parts of MNIST and CIFAR-10, and a small convolutional network."""
    found = [run_of(name) for name in RUNS]
    assert all(found)
    return [run for run in found if run]


def learned() -> list[Run]:
    """The same, where there is one the run that ends with the learned functions: it has more seeds."""
    found = [run_of(name, presets=("functions", "laptop")) for name in RUNS]
    return [run for run in found if run]


def leads(run: Run, measure: Measure) -> list[Comparison[Any]]:
    """Of two arguments over ReLU, without and with the same normalisation."""
    measured = [{**row, "measure": measure(run, row)} for row in run.rows]
    found = {each.key[1]: each for each in comparisons({"rows": measured}, "measure")}
    return [found[rival] for rival in RIVALS]


def against_relu(
    measure: Measure,
    words: str,
    *,
    claimed: Sequence[float | None],
    also: Sequence[bool] = (),
    further: str = "",
    met: Sequence[Outcome] = (),
) -> Verdict:
    """Whether two arguments are clearly better than ReLU, without and with the same normalisation, in each run, by as
    many points as claimed for it; and whether what else is claimed is so, or seen in another run, which ``further``
    says."""
    effects = [
        effect(each, size, scale=100) for run, size in zip(runs(), claimed, strict=True) for each in leads(run, measure)
    ]
    means = [f"{each.shown.mean:+.1f}" for each in effects]
    others: list[Outcome] = ["for" if so else "ruled out" for so in also]
    return runs()[0].judge(
        f"Points by which two arguments lead ReLU in {words}, {WHERE}: {enumerated(means[::2])}; both normalised: "
        f"{enumerated(means[1::2])}{further}.",
        [*(each.outcome for each in effects), *others, *met],
        power=powered(effects, "points"),
        undecided=more_seeds(24),
    )


def more_seeds(seeds: int) -> str:
    """The sentence that all three runs with so many seeds would decide."""
    hours = core_hours(sum(run.hours * seeds / len({row["seed"] for row in run.rows}) for run in runs()))
    return f"The three runs multi-argument-… with {seeds} seeds, about {hours}, would decide it here."


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
        over_epochs,
        "mean accuracy over epochs",
        claimed=UNNAMED,
        also=always,
        further=f"; ahead at every epoch in {sum(always)} of 6",
    )


@fatal(
    "multi_argument-experiment-better",
    "With as many parameters, networks with two-argument activations end with a higher accuracy than with ReLU.",
    "Abstract, Section IV-B, Fig. 4",
    turned_by=in_every_run(slower),
)
def test_better():
    [met] = arena.meeting("two_arguments", ["relu"])
    return against_relu(
        lambda _, row: float(row["accuracy"]),
        "accuracy",
        claimed=UNNAMED,
        further=f"; in the arena {with_interval(met.difference, 2, 100)}",
        met=[effect(met, None).outcome],
    )


HALF_A_POINT = 0.5
"""What we call a gain where the paper names none."""


def preferred(run: Run, arity: int) -> str:
    """With or without normalisation: what did better on the held-out images of the tuning seeds."""
    cases = [case for case in run.chosen if case["neuron"] == f"arity {arity}"]
    return label(max(cases, key=lambda case: case["score"]))


@fatal(
    "multi_argument-experiment-one-argument",
    "Nonlinear interactions of several arguments add to what a learned activation of one argument gives.",
    "Abstract, Sections IV-B and IV-D, Fig. 4",
    turned_by=in_every_run(lambda row: row | {"accuracy": row["accuracy"] + (row["neuron"] == "arity 2")}),
)
def test_one_argument():
    def against_one(names: Callable[[Run], tuple[str, str]]) -> list[Comparison[Any]]:
        by_run = {}
        for run in runs():
            by_name = by_seed(run.rows, "accuracy", label)
            two, one = names(run)
            by_run[run.name] = (by_name[two], by_name[one])
        return family(by_run)

    readings = (
        lambda run: (preferred(run, 2), preferred(run, 1)),
        lambda run: (OURS, OURS.replace("2", "1")),
    )
    effects = [[effect(each, HALF_A_POINT, scale=100) for each in against_one(names)] for names in readings]
    [met] = [effect(each, HALF_A_POINT, scale=100) for each in arena.meeting("two_arguments", ["one_argument"])]
    chosen, normalised = (enumerated([f"{each.shown.mean:+.1f}" for each in found]) for found in effects)
    every = [*(each for found in effects for each in found), met]
    outcomes = [each.outcome for each in every]
    return runs()[0].judge(
        f"Two arguments lead one by {chosen} points (perceptrons on MNIST and CIFAR-10, a CNN), each normalised or not "
        f"as tuning preferred; all normalised {normalised}; arena {with_interval(met.shown)}; clearly in "
        f"{outcomes.count('for') or 'none'}.",
        outcomes,
        power=powered(every, "points", ours=True),
        undecided=more_seeds(24),
    )


def alike(one: Sequence[float], other: Sequence[float]) -> float:
    """Which share of the variance of a surface another one explains, up to scale and height."""
    return correlation(one, other) ** 2


@matters(
    "multi_argument-experiment-early",
    "A learned activation finds its form within 1 to 5 epochs; the rest of the training belongs to the outer network.",
    "Section IV-A, Fig. 5",
)
def test_early():
    drawn_ones = [(run, row) for run in runs() for row in run.rows if row.get("surface_kept")]
    shares = [alike(row["surface_epoch_5"], row["surface_kept"]) for _, row in drawn_ones]
    # epochs of ours are short: what counts is how many images were passed
    passed = [(row["best_epoch_two"] + 1) * run.settings["train_size"] for run, row in drawn_ones]
    return not_tested(
        f"Our whole trainings, of {min(passed):,} to {max(passed):,} images, are 1 to 3 of the paper's epochs; after 5 "
        f"short epochs of ours {len(shares)} functions explain {min(shares):.0%} to {max(shares):.0%} of the variance "
        "of the ones that are kept.",
        "Trainings on all images, with the function after every epoch, would decide it.",
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
    normalised, others, starts = (
        [row[key] for run in learned() for row in run.rows if label(row) == name]
        for name, key in ((OURS, "explained"), (PLAIN, "explained"), (OURS, "start_explained"))
    )
    at_random = [each.explained for each in drawn(2)]
    reached = sum(each >= SIMILAR for each in at_random) / len(at_random)
    return runs()[0].judge(
        f"A quadratic explains {min(normalised):.0%} to {max(normalised):.0%} of what {len(normalised)} normalised "
        f"networks learned ({min(starts):.0%} to {max(starts):.0%} before), {min(others):.0%} to {max(others):.0%} "
        f"without normalisation; of functions with Xavier's weights {reached:.0%} reach {SIMILAR:.0%} untrained.",
        ["for" if each >= SIMILAR else "against" if each < 0.5 else "ruled out" for each in (*normalised, *others)],
        power=f"We call a function similar to its best fit from {SIMILAR:.0%} of its variance on.",
        undecided=more_seeds(24),
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


def bent(at: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The planted change: all learned functions have a curvature of this sign."""
    return lambda row: row | ({"curvature": float(at)} if "curvature" in row else {})


@fatal(
    "multi_argument-experiment-curvature",
    "In trained CNNs most two-argument activations have negative curvature, in perceptrons more have positive.",
    "Section IV-C, Fig. 7",
    turned_by=both(
        rows("multi-argument-cnn", bent(-1)), *(rows(name, bent(1)) for name in RUNS if name != "multi-argument-cnn")
    ),
)
def test_curvature():
    *perceptrons, cnn = learned()

    def negative(of: Sequence[Run], key: str, *labels: str) -> list[bool]:
        return [row[key] < 0 for run in of for row in run.rows if label(row) in labels]

    kinds = {"cnn": [cnn], "mlp": perceptrons}
    counted = {
        (name, key): negative(of, key, OURS, PLAIN)
        for name, of in kinds.items()
        for key in ("curvature", "start_curvature")
    }
    outcomes: list[Outcome] = []
    needed = []
    for name, wanted in (("cnn", True), ("mlp", False)):
        found = counted[name, "curvature"]
        half = len(found) // 2
        least = next(k for k in range(half, len(found) + 1) if 2 * k > len(found) and 2 * p_value(k, len(found)) < 0.05)
        needed.append(f"{least} of {len(found)}")
        agreeing = found.count(wanted)
        clear = 2 * p_value(agreeing, len(found)) < 0.05  # two questions
        outcomes.append("open" if not clear else "for" if 2 * agreeing > len(found) else "against")
    said = {key: f"{found.count(True)} of {len(found)}" for key, found in counted.items()}
    normalised = [negative(of, "curvature", OURS) for of in kinds.values()]
    paper = enumerated([f"{found.count(True)} of {len(found)}" for found in normalised])
    return cnn.judge(
        f"Negative are {said['cnn', 'curvature']} in a small CNN ({said['cnn', 'start_curvature']} before training) "
        f"and {said['mlp', 'curvature']} in perceptrons ({said['mlp', 'start_curvature']}); with the paper's "
        f"normalisation {paper}.",
        outcomes,
        power=f"Claimed: {quoted('Section IV-C', 'negative curvature, Conv, percent'):.0f} % of the CNN's; a majority "
        f"is clear from {' or '.join(needed)} on, corrected for 2 questions.",
        undecided="Curvature of more learned functions would decide it here.",
    )


@matters(
    "multi_argument-experiment-spectrum",
    "Learned activations of two and of three arguments have more power at the frequency ℓ = 2 than Xavier's have.",
    "Sections IV-D and V, Fig. 8",
    turned_by=in_every_run(
        lambda row: row | ({"spectrum": [0, 0.01 * row["seed"], 1, 0, 0, 0, 0]} if "spectrum" in row else {})
    ),
)
def test_spectrum():
    pairs, at_random, starts = {}, [], {}
    for arity in (2, 3):
        xavier = 100 * fmean(each.at_two for each in drawn(arity))
        at_random.append(f"{xavier:.0f}")
        for run in runs():
            learned = {
                row["seed"]: 100 * at_two(row["spectrum"]) for row in run.rows if label(row) == f"arity {arity} + norm"
            }
            if learned:
                pairs[arity, run.name] = (learned, dict.fromkeys(learned, xavier))
                starts.setdefault(arity, []).extend(
                    100 * at_two(row["start_spectrum"]) for row in run.rows if label(row) == f"arity {arity} + norm"
                )
    spans = {}
    for arity, before in starts.items():
        after = [share for (of, _), (learned, _) in pairs.items() if of == arity for share in learned.values()]
        spans[arity] = [f"{min(each):.0f} to {max(each):.0f}" for each in (after, before)]
    found = family(pairs)
    return runs()[0].judge_effects(
        f"At ℓ = 2 learned functions of two arguments have {spans[2][0]} % of their own power (before, {spans[2][1]}), "
        f"of three {spans[3][0]} ({spans[3][1]}), with Xavier's {enumerated(at_random)}; absolute power was not kept.",
        [effect(each, None) for each in found],
        "points of the power",
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
    reached = {rival: fmean(row["accuracy_corrupted"] for row in run.rows if label(row) == rival) for rival in RIVALS}
    claimed = 100 - quoted("Section IV-E", "mCE, percent")
    effects = [
        effect(each, claimed, scale=100 / (1 - reached[rival])) for rival, each in zip(RIVALS, judged, strict=True)
    ]
    shown = [with_interval(each.shown, 1) for each in effects]
    return run.judge_effects(
        f"In a small CNN two arguments take {shown[0]} % off ReLU's errors on noisy, blurred or faint images and "
        f"{shown[1]} % off normalised ReLU's; on clean images they lead by "
        f"{enumerated([f'{100 * each.difference.mean:+.1f}' for each in clean])} points.",
        effects,
        "% of the errors",
    )


@fatal(
    "multi_argument-experiment-adversarial",
    "Two-argument activations are a better inductive bias against adversarial perturbations than ReLU.",
    "Abstract, Section IV-E, Table 1",
    turned_by=in_every_run(slower),
)
def test_adversarial():
    increments = {(row["data"], row["network"]): float(row["increment"]) for row in results.published(TABLE)}
    return against_relu(
        under_attack,
        "accuracy under attack (mean over four ε)",
        claimed=[increments[of] for of in (("MNIST", "MLP"), ("CIFAR-10", "MLP"), ("CIFAR-10", "Conv"))],
    )


@matters(
    "multi_argument-experiment-disturbed",
    "With as many parameters, networks with two-argument activations are more robust to natural perturbations of "
    "images than with ReLU.",
    "Abstract, Section V",
    chapter=arena.NOISE_PAGE,
    turned_by=arena.raised("two_arguments", by=-1.0),
)
def test_disturbed():
    def less(neuron: str, other: str) -> list[Comparison[str]]:
        return [each for measure in (arena.NOISE, arena.SHIFT) for each in arena.meeting(neuron, [other], measure)]

    noise, shift = effects = [effect(each, None, scale=100) for each in less("two_arguments", "relu")]
    one = enumerated([f"{100 * each.difference.mean:+.1f}" for each in less("one_argument", "relu")])
    return arena.arena().judge_effects(
        f"In the arena they lead ReLU by {with_interval(noise.shown, 1)} points under noise and by "
        f"{with_interval(shift.shown, 1)} on darker or brighter images; those with one argument lead it by {one}.",
        effects,
        "points",
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
