"""What the arena of digits says: every neuron of the book in one perceptron, as large, tuned alike, on MNIST.

Rows of all rooms are judged by it, where its network and data are in the claim's sensible reading. It is no run of any
paper: three hidden layers with batch normalisation, 10,000 images, no augmentation, ARR's weight 1. A difference is
corrected for all neurons that are compared with the same one, sixteen, as on the page "Which neuron?".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from companion.study.analysis import Comparison, compare
from tests.claims.form import Change, Effect, Run, effect, rows, run_of

NAME = "together-mlp"
PAGE = "together/which-neuron"

Row = Mapping[str, Any]
Measure = Callable[[Row], float]


def arena() -> Run:
    found = run_of(NAME)
    assert found is not None
    return found


def mean_of(beginning: str) -> Measure:
    """The mean over all keys of a row that begin so, as on the page: to choose one would be to choose the answer."""
    return lambda row: fmean(value for key, value in row.items() if key.startswith(beginning))


NOISE, SHIFT = mean_of("accuracy_std_"), mean_of("accuracy_mean_")
"""Accuracy under noise of five widths, and on images that are darker or brighter, by six amounts."""


def accuracy(row: Row) -> float:
    return float(row["accuracy"])


def meeting(neuron: str, others: Sequence[str], measure: Measure = accuracy) -> list[Comparison[str]]:
    """A neuron less each of some others."""
    measured = [{"neuron": row["neuron"], "seed": row["seed"], "measure": measure(row)} for row in arena().rows]
    return [
        next(
            each
            for each in compare(measured, factor="neuron", reference=other, measure="measure")
            if each.key == neuron
        )
        for other in others
    ]


def of_errors(neuron: str, others: Sequence[str], claimed: Sequence[float | None]) -> list[Effect]:
    """What is shown of gains in accuracy that are claimed as shares of the others' errors, in percent."""
    errors = [1 - fmean(row["accuracy"] for row in arena().rows if row["neuron"] == other) for other in others]
    return [
        effect(each, size, scale=100 / of)
        for each, size, of in zip(meeting(neuron, others), claimed, errors, strict=True)
    ]


def raised(*neurons: str, by: float = 1.0) -> Change:
    """The planted change: some neurons are far more accurate, on clean and on disturbed images."""

    def change(row: dict[str, Any]) -> dict[str, Any]:
        more = by * (row["neuron"] in neurons)
        return row | {key: value + more for key, value in row.items() if key.startswith("accuracy")}

    return rows(NAME, change)
