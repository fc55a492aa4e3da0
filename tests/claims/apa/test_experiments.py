"""What the paper on APA and AGLU says of trained networks, judged by runs of ours.

What counts as clear stood here before the results existed. "Better" means: the mean of the differences, paired by seed,
is above zero with p < 0.05 (t-test, Holm's correction over the rivals of one sentence).
"""

from __future__ import annotations

from typing import Any

from companion.analysis import compare
from tests.claims.form import Verdict, claim, detected, enumerated, no_result, rows, run_of, with_interval

PAGE = "mechanisms/apa"


def ahead(activation: str, by: float) -> Any:
    """Rows in which an activation's accuracy is higher."""
    return lambda row: row | {"test_accuracy": row["test_accuracy"] + by * (row["activation"] == activation)}


def against_rivals(imbalance: float, measure: str) -> Verdict:
    run = run_of("apa-digits")
    if run is None:
        return no_result("apa-digits")
    chosen = [row for row in run.rows if row["imbalance"] == imbalance]
    found = compare(chosen, factor="activation", reference="aglu", measure=measure)
    signs = [each.sign() for each in found]
    listed = enumerated([f"{each.key} {with_interval(each.difference, scale=100)}" for each in found])
    return run.judge(
        f"Points of rivals minus AGLU on digits, {found[0].difference.n} seeds: {listed}.",
        shown=signs.count(-1),
        against=signs.count(1),
        of=len(signs),
        power=detected(found, "points", scale=100),
    )


@claim(
    "apa-aglu-balanced",
    "On balanced data AGLU is better than ReLU, GELU, SiLU, Mish, ELU and PReLU.",
    "Section VI-A",
    severity="fatal",
    chapter=PAGE,
    turned_by=rows("apa-digits", ahead("aglu", 0.5)),
)
def test_aglu_balanced():
    return against_rivals(1, "test_accuracy")
