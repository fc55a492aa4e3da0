"""What the paper on DAC says of trained networks, judged by runs of ours.

What counts as clear was written down before the results existed. "Better" means: the mean of the differences, paired by
seed, has the wanted sign with p < 0.05 (t-test, Holm's correction over all differences of one table of the chapter). A
claim about several networks makes a comparison of each. Fewer than six failed trainings decide nothing. Written down
afterwards: what "alike" is; that "less and less" is tested by the difference between the last gain and the first; that
claims of Fig. 4 are about rectangular networks, as that figure is; that what is said of large networks is judged above
10⁵ parameters alone; and that a plain network is asked for the gain of the paper's plain networks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple
from statistics import mean
from typing import Any

from companion.dac.study.experiments import changes
from companion.study import results
from companion.study.analysis import Comparison, Interval, family, holm
from tests.claims import arena
from tests.claims.dac.facts import (
    SIGNIFICANT,
    detail,
    fatal,
    inside,
    judged,
    lower_errors,
    matters,
    pairs,
    points,
    quoted,
)
from tests.claims.form import (
    Run,
    Verdict,
    effect,
    enumerated,
    jointly,
    judged_alike,
    no_result,
    not_tested,
    number,
    powered,
    rows,
    run_of,
    with_interval,
)

SGEMM, CIFAR, PLACE = "dac-sgemm", "dac-cifar10", "Section 5, SGEMM"
GAIN = round(min(row.gain for row in pairs("dac-table-1") if row.network == "ResNet20"), 2)
"""Points: the smallest gain of DAC with ResNet20 in Table 1."""
GAINS = {
    "vgg8_8": min(float(row["improvement"]) for row in results.published("dac-vgg") if row["data"] == "CIFAR-10"),
    "resnet8_half": GAIN,
}
"""Points: the smallest gain of DAC on CIFAR-10 with a network of the kind of ours."""

ABOVE, BELOW = (
    quoted("Appendix D, Fig. 8", f"parameters {which}")
    for which in ("above which DAC is better", "up to which DAC is worse")
)
ALL_ROWS = quoted(PLACE, "combinations") * quoted(PLACE, "training share, percent") / 100
RECTANGULAR = "rectangular"
"""The shape of the networks in Fig. 4."""

LARGE = ("full", "large", "laptop")
"""Presets for claims about many parameters: "large" has a baseline of 200 units a layer and a DAC of 141, in full."""


def shifted(by: float) -> Any:
    """Rows in which DAC's error is another."""
    return lambda row: row | {"log_mse": row["log_mse"] + by * (row["unit"] == "dac")}


def still(by: float, *units: str, **others: Any) -> Any:
    """Rows whose errors differ by unit only, and not by seed: any difference could be seen."""
    return lambda row: row | dict.fromkeys(("log_mse", "test_error"), by * (row["unit"] in units)) | others


def changed(run: Run, kind: str, low: float = 0, high: float = math.inf) -> list[Comparison[Any]]:
    """What a change does to baselines of some sizes."""
    sizes = base_sizes(run)
    return [each for each in changes(run.rows) if each.key.kind == kind and low < sizes[each.key[:3]] <= high]


def base_sizes(run: Run) -> dict[tuple[str, int, int], int]:
    """Parameters of baselines by shape, depth and width."""
    return {(row["shape"], row["depth"], row["width"]): row["parameters"] for row in run.rows if row["unit"] == "base"}


def trades(sign: int, presets: Sequence[str] = ("full", "laptop"), low: float = 0, high: float = math.inf) -> Verdict:
    """Whether DACs of equal size move the error up (+1) or down (−1) for baselines of some sizes."""
    run = run_of(SGEMM, presets=presets)
    if run is None:
        return no_result(SGEMM)
    found = changed(run, "trade", low, high)
    if not found:
        largest = max(base_sizes(run).values())
        return not_tested(
            f"Our run has no baseline of more than {largest:,} parameters.",
            "Preset large of dac-sgemm would show it at one size; the paper's sizes would decide it.",
        )
    means = [each.difference.mean for each in found]
    alone = sum(p < SIGNIFICANT for p in holm([each.p_value for each in found]))
    clear = sum(bool(each.sign()) for each in found)
    # named only where the choice of the family matters
    families = f" (corrected for {found[0].size} comparisons) or {alone} (for these {len(found)})"
    seeds = found[0].difference.n
    sizes = f"{len(found)} {'widths' if len(found) > 1 else 'width'} ({widths(found)})"
    text = (
        f"SGEMM, {training_rows(run):,} rows, {seeds} seeds: equal-sized DACs {moved(means)} at {sizes}, "
        f"clearly at {clear or 'none'}{families if alone != clear else ''}"
    )
    # without the clip of the inputs, where a run has it
    inner = changed(run, "inner", low, high)
    listed = enumerated([f"{with_interval(each.difference)} ({each.key.width})" for each in inner])
    note = f"; behind a usual layer {listed}" if inner else ""
    return judged(run, found, text, sign=sign, claimed=None, unit="nats", note=note)


def training_rows(run: Run) -> int:
    return run.settings["train_size"] or round(ALL_ROWS)


def moved(means: Sequence[float]) -> str:
    """ "raised the log test error by 0.10 to 0.20 nats"."""
    low, high = min(means), max(means)
    if low < 0 < high:
        return f"changed the log test error by {low:+.2f} to {high:+.2f} nats"
    sizes = dict.fromkeys(f"{size:.2f}" for size in sorted((abs(low), abs(high))))
    return f"{'raised' if high > 0 else 'lowered'} the log test error by {' to '.join(sizes)} nats"


def widths(found: Sequence[Comparison[Any]]) -> str:
    """ "rectangular 25 to 100"."""
    by_shape: dict[str, list[int]] = {}
    for each in found:
        by_shape.setdefault(each.key.shape, []).append(each.key.width)
    return ", ".join(
        [f"{shape} {' to '.join(dict.fromkeys(f'{w}' for w in (min(of), max(of))))}" for shape, of in by_shape.items()]
    )


@matters(
    "dac-experiment-sgemm-small",
    "On SGEMM, up to 10⁴ parameters DAC is worse than a baseline with as many.",
    "Appendix D, Fig. 8",
    turned_by=rows(SGEMM, shifted(2)),
)
def test_sgemm_small():
    return trades(+1, high=BELOW)


@fatal(
    "dac-experiment-sgemm-large",
    "On SGEMM, above 10⁵ parameters DAC is generally better than a baseline with as many, such as 141 units a layer "
    "than 200.",
    "Section 5, Figs. 3 and 8",
    turned_by=rows(SGEMM, shifted(2)),
)
def test_sgemm_large():
    return trades(-1, LARGE, low=ABOVE)


@fatal(
    "dac-experiment-sgemm-biases",
    "On SGEMM, making the biases of rectangular networks unshared lowers the error by about 0.25 nats at every width.",
    "Section 5, Fig. 4",
    turned_by=rows(SGEMM, still(-2, "dac")),
)
def test_sgemm_biases():
    large, run = run_of(SGEMM, presets=LARGE), run_of(SGEMM)
    if large is None or run is None:
        return no_result(SGEMM)
    gain = quoted(PLACE, "gain of unshared biases, nats")
    in_full = [each for each in changed(large, "biases") if training_rows(large) == round(ALL_ROWS)]
    found = [each for each in changed(run, "biases") if each.key.shape == RECTANGULAR]
    above, effects = jointly(*([effect(each, gain, sign=-1) for each in of] for of in (in_full, found)))
    clear = sum(bool(each.sign) for each in effects)
    out = sum(each.outcome == "ruled out" for each in effects)
    compared = {each.key.width for each in found}
    epochs = mean(row["epochs"] for row in run.rows if row["shape"] == RECTANGULAR and row["width"] in compared)
    updates = epochs * math.ceil(training_rows(run) / run.settings["batch_size"])
    batches = ALL_ROWS // quoted(PLACE, "batch size")
    theirs = batches * quoted(PLACE, "first epoch of early stopping")  # at least, down to thousands
    at_full_size = "".join(
        f"All rows, {each.difference.n} seeds, width {each.key.width}: unshared biases "
        f"{with_interval(each.difference)} nats. "
        for each in in_full
    )
    means = [each.difference.mean for each in found]
    return large.judge_effects(
        f"{at_full_size}{training_rows(run):,} rows, {round(updates, -2):,.0f} updates (the paper: at least "
        f"{theirs // 1000 * 1000:,.0f}), {found[0].difference.n} seeds, {len(found)} widths: {min(means):+.2f} to "
        f"{max(means):+.2f}, {clear or 'none'} clearly; intervals exclude −{gain:g} at {out or 'none'}.",
        [*above, *effects],
        "nats",
    )


@matters(
    "dac-experiment-sgemm-weights",
    "On SGEMM, doubling the weights helps less and less as the width grows.",
    "Section 5, Fig. 4",
    turned_by=rows(SGEMM, lambda row: row | {"log_mse": row["log_mse"] + (100 / row["width"]) ** 2}),
)
def test_sgemm_weights():
    """The gain at the largest width against that at the smallest one, by seed."""
    run = run_of(SGEMM)
    if run is None:
        return no_result(SGEMM)
    errors: dict[tuple[str, int], dict[int, dict[int, float]]] = {}
    for row in run.rows:
        if row["unit"] == "base" and row["shape"] == RECTANGULAR and not row["failed"]:
            errors.setdefault((row["shape"], row["depth"]), {}).setdefault(row["width"], {})[row["seed"]] = row[
                "log_mse"
            ]
    gains = {}
    first = 0.0
    for case, by_width in errors.items():
        sizes = sorted(by_width)
        last, start = (
            {seed: by_width[big][seed] - by_width[small][seed] for seed in by_width[small]}
            for small, big in (sizes[-2:], sizes[:2])
        )
        gains[case] = (last, start)
        first = max(first, -mean(start.values()))
    found = family(gains)
    text = (
        f"SGEMM: doubling the weights of rectangular networks lowers the log test error by {first:.2g} nats at the "
        "smallest width; towards the largest this gain shrinks by "
        f"{enumerated([with_interval(each.difference) for each in found])}"
    )
    # the gain cannot shrink by more than what it is at the smallest width
    return judged(run, found, text, sign=1, claimed=first, unit="nats")


@detail(
    "dac-experiment-sgemm-trains",
    "On SGEMM, DAC fails to train less often than the baseline.",
    "Section 5, SGEMM",
    turned_by=rows(SGEMM, lambda row: row | {"failed": row["unit"] == "base" and row["seed"] == 0}),
)
def test_sgemm_trains():
    from scipy import stats

    run = run_of(SGEMM)
    if run is None:
        return no_result(SGEMM)
    runs = {unit: [row["failed"] for row in run.rows if row["unit"] == unit] for unit in ("base", "dac")}
    base, dac = (sum(each) for each in runs.values())
    text = f"{base} of {len(runs['base'])} baselines and {dac} of {len(runs['dac'])} DACs failed"
    if base + dac < 6:
        return not_tested(
            f"In our smaller run {text}, so that there is nothing to compare.",
            "dac-sgemm in the sizes of the paper, where 15 of 576 baselines failed, would decide it.",
        )
    p_value = float(stats.fisher_exact([[sum(each), len(each) - sum(each)] for each in runs.values()])[1])
    less = dac / len(runs["dac"]) < base / len(runs["base"])
    clear = p_value < SIGNIFICANT
    return run.judge(
        f"SGEMM: {text} (Fisher's exact test: p = {p_value:.2g}).",
        ["open" if not clear else "for" if less else "against"],
        power="The paper's 15 of 576 baselines and 2 of 449 DACs are what is claimed.",
        undecided="dac-sgemm in the sizes of the paper would decide it.",
    )


@fatal(
    "dac-experiment-cifar-better",
    "On CIFAR-10 networks with DAC have a lower test error than their baselines.",
    "Section 5, Figs. 5 and 6",
    turned_by=rows(CIFAR, still(-0.2, "dac")),
)
def test_cifar_better():
    run = run_of(CIFAR)
    if run is None:
        return no_result(CIFAR)
    return lower_errors(run, "base", "dac", sign=-1, claimed=GAINS, own="on CIFAR-10")


@matters(
    "dac-experiment-cifar-shared",
    "On CIFAR pre-activation with shared biases has about the test error of the baseline.",
    "Section 5, Table 3",
    turned_by=rows(CIFAR, still(0.2, "dac")),
)
def test_cifar_shared():
    run = run_of(CIFAR)
    if run is None:
        return no_result(CIFAR)
    found, _ = inside(run, "base", "shared")
    percent = [Interval(*(100 * x for x in astuple(each.difference)[:3]), each.difference.n) for each in found]
    # alike is what differs by less than the paper's smallest gain of DAC with the network of this ablation
    below = f"below {GAIN:.2f}, DAC's least gain with ResNet20"
    return judged_alike(run, f"{points(run, found)}, where alike means {below}.", percent, margin=GAIN)


@matters(
    "dac-experiment-cifar-worse",
    "On CIFAR pre-activation with shared biases has a distinctly higher test error than DAC.",
    "Section 5, Table 3",
    turned_by=rows(CIFAR, still(-0.2, "dac", learning_rate=0.3)),
)
def test_cifar_worse():
    run = run_of(CIFAR)
    if run is None:
        return no_result(CIFAR)
    return lower_errors(run, "dac", "shared", sign=1, claimed=GAINS, own="on CIFAR-10")


@matters(
    "dac-experiment-cifar-mba",
    "On CIFAR-100 multi-bias activation lowers the test error less than DAC.",
    "Section 5, comparison with MBA",
    turned_by=rows(CIFAR, still(0.2, "mba2", "mba4", "mba8", learning_rate=0.3)),
)
def test_cifar_mba():
    run = run_of(CIFAR)
    if run is None:
        return no_result(CIFAR)
    dac, best = (number("dac-mba", "improvement", model=model) for model in ("DAC", "MBA with K = 4"))
    base = number("dac-table-1", "base", network="ResNet20", data="CIFAR-100", version="v1")
    # other data: as large a share of the errors
    errors = 100 * mean(row["test_error"] for row in run.rows if row["unit"].startswith("mba"))
    claimed = {"resnet8_half": (dac - best) / (base - best) * errors}
    own = "on CIFAR-10, not CIFAR-100,"
    return lower_errors(run, "dac", "mba2", "mba4", "mba8", sign=1, claimed=claimed, own=own)


@fatal(
    "dac-experiment-efficient",
    "Where more weights no longer help, parameters spent on biases can raise accuracy more.",
    "The title, Sections 1 and 7",
    turned_by=arena.raised("dac"),
)
def test_efficient():
    """Networks with as many parameters. "Can": what one run excludes, another may have. Smaller ones than those in
    which the paper sees a gain say nothing of it."""
    large, small = run_of(SGEMM, presets=LARGE), run_of(SGEMM)
    if large is None or small is None:
        return no_result(SGEMM)
    above, [met] = jointly(
        [effect(each, None, sign=-1) for each in changed(large, "trade", low=ABOVE)],
        [effect(each, None, scale=100) for each in arena.meeting("dac", ["relu"])],
    )
    smaller = changed(small, "trade", high=ABOVE)
    clear = f"{sum(each.sign() != 0 for each in smaller) or 'none'} clearly"
    below = [each.difference.mean for each in smaller]
    sizes = {row["neuron"]: row["parameters"] for row in arena.arena().rows}
    assert min(sizes["dac"], sizes["relu"]) > ABOVE
    alone = f"{with_interval(met.shown)} points"
    here = f"DAC changed accuracy in the arena beside an equal-sized ReLU network (wider ones untried) by {alone}"
    there = f"it {moved(below)} at {len(below)} SGEMM sizes, {clear}"
    if above:
        on_tables = moved([-each.shown.mean for each in above])
        more = enumerated([f"{each.difference.mean:+.2f}" for each in changed(large, "weights")])
        here = f"an equal-sized DAC {on_tables} on SGEMM (doubled weights: {more}), moved arena accuracy by {alone}"
        there = f"by {min(below):+.2f} to {max(below):+.2f} nats, {clear}"
    return arena.arena().judge(
        f"Above 10⁵ parameters {here}; below, {there}.",
        [*(each.outcome for each in above), met.outcome],
        power=powered([met], "points"),
        undecided="dac-sgemm in the sizes of the paper, where the gain was seen, would decide it.",
    )
