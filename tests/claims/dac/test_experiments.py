"""What the paper on DAC says of trained networks, judged by runs of ours.

What counts as clear was written down before the results existed. "Better" means: the mean of the differences, paired by
seed, has the wanted sign with p < 0.05 (t-test, Holm's correction over all differences of one table of the chapter). A
claim about several networks makes a comparison of each. Fewer than six failed trainings decide nothing. Written down
afterwards: what "alike" is, and that "less and less" is tested by the difference between the last gain and the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple
from statistics import mean
from typing import Any

from companion.dac.study.experiments import changes
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
    Verdict,
    effect,
    enumerated,
    judged_alike,
    no_result,
    not_tested,
    number,
    powered,
    rows,
    run_of,
    with_interval,
)

SGEMM, CIFAR = "dac-sgemm", "dac-cifar10"
GAIN = round(min(row.gain for row in pairs("dac-table-1") if row.network == "ResNet20"), 2)
"""Points: the smallest gain of DAC with ResNet20 in Table 1."""


CHANGED = {"trade": "equal-sized DACs", "biases": "unshared biases"}


def shifted(by: float) -> Any:
    """Rows in which DAC's error is another."""
    return lambda row: row | {"log_mse": row["log_mse"] + by * (row["unit"] == "dac")}


def still(by: float, *units: str, **others: Any) -> Any:
    """Rows whose errors differ by unit only, and not by seed: any difference could be seen."""
    return lambda row: row | dict.fromkeys(("log_mse", "test_error"), by * (row["unit"] in units)) | others


def sgemm(kind: str, sign: int, low: float = 0, high: float = math.inf, claimed: float | None = None) -> Verdict:
    """Whether a change moves the error up (+1) or down (−1), by as much as claimed, for baselines of some sizes."""
    run = run_of(SGEMM)
    if run is None:
        return no_result(SGEMM)
    sizes = {(r["shape"], r["depth"], r["width"]): r["parameters"] for r in run.rows if r["unit"] == "base"}
    found = [each for each in changes(run.rows) if each.key.kind == kind and low < sizes[each.key[:3]] <= high]
    if not found:
        largest = max(sizes.values())
        return not_tested(
            f"Our run has no baseline of more than {largest:,} parameters.", "The paper's sizes would decide it."
        )
    means = [each.difference.mean for each in found]
    alone = sum(p < SIGNIFICANT for p in holm([each.p_value for each in found]))
    clear = sum(bool(each.sign()) for each in found)
    # named only where the choice of the family matters
    families = f" (corrected for {found[0].size} comparisons) or {alone} (for these {len(found)})"
    text = (
        f"SGEMM, {run.settings['train_size']:,} rows, {found[0].difference.n} seeds: {CHANGED[kind]} {moved(means)} "
        f"at {len(found)} widths ({widths(found)}), clearly at {clear or 'none'}{families if alone != clear else ''}"
    )
    return judged(run, found, text, sign=sign, claimed=claimed, unit="nats")


def moved(means: Sequence[float]) -> str:
    """ "raised the log test error by 0.10 to 0.20 nats"."""
    low, high = min(means), max(means)
    if low < 0 < high:
        return f"changed the log test error by {low:+.2f} to {high:+.2f} nats"
    near, far = sorted((abs(low), abs(high)))
    return f"{'raised' if high > 0 else 'lowered'} the log test error by {near:.2f} to {far:.2f} nats"


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
    "Section 5, Figs. 3 and 8",
    turned_by=rows(SGEMM, shifted(2)),
)
def test_sgemm_small():
    return sgemm("trade", +1, high=quoted("Appendix D, Fig. 8", "parameters up to which DAC is worse"))


@fatal(
    "dac-experiment-sgemm-large",
    "On SGEMM, above 10⁵ parameters DAC is generally better than a baseline with as many.",
    "Section 5, Figs. 3 and 8",
    turned_by=rows(SGEMM, lambda row: row | {"parameters": 100 * row["parameters"]}),
)
def test_sgemm_large():
    return sgemm("trade", -1, low=quoted("Appendix D, Fig. 8", "parameters above which DAC is better"))


@fatal(
    "dac-experiment-sgemm-biases",
    "On SGEMM, making the biases unshared lowers the error by about 0.25 nats at every width.",
    "Section 5, Fig. 4",
    turned_by=rows(SGEMM, still(-2, "dac")),
)
def test_sgemm_biases():
    return sgemm("biases", -1, claimed=quoted("Section 5, SGEMM", "gain of unshared biases, nats"))


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
        if row["unit"] == "base" and not row["failed"]:
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
        f"SGEMM: doubling weights lowers the log test error by {first:.2g} nats at most at the smallest width; "
        "towards the largest this gain shrinks by "
        f"{enumerated([f'{with_interval(each.difference)} ({each.key[0]})' for each in found])}"
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
    return no_result(CIFAR) if run is None else lower_errors(run, "base", "dac", sign=-1, claimed=GAIN)


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
    return no_result(CIFAR) if run is None else lower_errors(run, "dac", "shared", sign=1, claimed=GAIN)


@matters(
    "dac-experiment-cifar-mba",
    "On CIFAR multi-bias activation lowers the test error less than DAC.",
    "Section 5, comparison with MBA",
    turned_by=rows(CIFAR, still(-0.2, "dac", learning_rate=0.3)),
)
def test_cifar_mba():
    run = run_of(CIFAR)
    if run is None:
        return no_result(CIFAR)
    dac, best = (number("dac-mba", "improvement", model=model) for model in ("DAC", "MBA with K = 4"))
    return lower_errors(run, "dac", "mba2", "mba4", "mba8", sign=1, claimed=dac - best)


@fatal(
    "dac-experiment-efficient",
    "Spending parameters on biases can raise a trained network's accuracy more than spending them on weights.",
    "The title, Sections 1 and 7",
    turned_by=arena.raised("dac"),
)
def test_efficient():
    """Networks with as many parameters. "Can": what one run excludes, another may have."""
    sgemm_run, toy = run_of(SGEMM), run_of("dac-toy")
    if sgemm_run is None or toy is None:
        return no_result(SGEMM)
    traded = [effect(each, None, sign=-1) for each in changes(sgemm_run.rows) if each.key.kind == "trade"]
    [met] = [effect(each, None, scale=100) for each in arena.meeting("dac", ["relu"])]
    case = {"problem": "unit", "start": "spread", "parameters": 5}
    dac, standard = (
        [row["solved"] for row in toy.rows if row.items() >= {**case, "network": unit}.items()]
        for unit in ("dac", "standard")
    )
    return arena.arena().judge(
        f"At equal size DAC {moved([-each.shown.mean for each in traded])} on SGEMM, changed accuracy in the arena by "
        f"{with_interval(met.shown)} points, learned Fig. 7a's toy in {sum(dac):.0f} of {len(dac)} trainings, a "
        f"standard network in {sum(standard):.0f}.",
        [*(each.outcome for each in traded), met.outcome],
        power=powered([met], "points"),
        undecided="dac-sgemm in the sizes of the paper, where the gain was seen, would decide it.",
    )
