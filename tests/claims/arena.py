"""What the arenas say: the neurons of the book in one network, as large, tuned alike.

On digits all of them, in a perceptron with three hidden layers and batch normalisation, on 10,000 images of MNIST; on
photographs some of them, in six convolutions on CIFAR-10, and ARR and DNRT in a transformer. Rows of all
rooms are judged by them, where network and data are in the claim's sensible reading. They are no run of any paper:
digits are not augmented, photographs meet five epochs, in the transformer twelve, and ARR's weight is 1, there 10.
A difference is corrected for all neurons that are compared with the same one in the same arena, as on the page "Which
neuron?".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from companion.study.analysis import Comparison, compare
from tests.claims.form import Change, Effect, Run, both, effect, rows, run_of

NAME, PHOTOGRAPHS, TRANSFORMER = "together-mlp", "together-conv", "together-vit"
PAGE, NOISE_PAGE = "together/which-neuron", "together/under-noise"

Row = Mapping[str, Any]
Measure = Callable[[Row], float]


def arena(name: str = NAME) -> Run:
    found = run_of(name)
    assert found is not None
    return found


def mean_of(beginning: str) -> Measure:
    """The mean over all keys of a row that begin so, as on the page: to choose one would be to choose the answer."""
    return lambda row: fmean(value for key, value in row.items() if key.startswith(beginning))


NOISE, SHIFT = mean_of("accuracy_std_"), mean_of("accuracy_mean_")
"""Accuracy under noise of five widths, and where one of six numbers is added to all pixels."""


def accuracy(row: Row) -> float:
    return float(row["accuracy"])


def meeting(neuron: str, others: Sequence[str], measure: Measure = accuracy, name: str = NAME) -> list[Comparison[str]]:
    """A neuron less each of some others."""
    measured = [{"neuron": row["neuron"], "seed": row["seed"], "measure": measure(row)} for row in arena(name).rows]
    return [
        next(
            each
            for each in compare(measured, factor="neuron", reference=other, measure="measure")
            if each.key == neuron
        )
        for other in others
    ]


def errors(neuron: str, name: str = NAME) -> float:
    """The mean share of test images that a neuron's networks classify wrongly."""
    return 1 - fmean(row["accuracy"] for row in arena(name).rows if row["neuron"] == neuron)


def of_errors(neuron: str, others: Sequence[str], claimed: Sequence[float | None], name: str = NAME) -> list[Effect]:
    """What is shown of gains in accuracy that are claimed as shares of the others' errors, in percent."""
    return [
        effect(each, size, scale=100 / errors(other, name))
        for each, size, other in zip(meeting(neuron, others, name=name), claimed, others, strict=True)
    ]


def of_errors_at_one_rate(neuron: str, claimed: float | None) -> list[Effect]:
    """The same beside GELU in convolutions, where the neuron's short trial had chosen another rate than GELU's: both at
    GELU's, and both at the neuron's."""
    found = []
    for presets in ({"gelu": "laptop", neuron: "same-rate"}, {"gelu": "rates", neuron: "laptop"}):
        rows_of = {name: at_preset(name, preset) for name, preset in presets.items()}
        seeds = set.intersection(*({row["seed"] for row in each} for each in rows_of.values()))
        kept = [row for each in rows_of.values() for row in each if row["seed"] in seeds]
        assert len({row["learning_rate"] for row in kept}) == 1
        (each,) = compare(kept, factor="neuron", reference="gelu", measure="accuracy")
        found.append(effect(each, claimed, scale=100 / errors("gelu", PHOTOGRAPHS)))
    return found


def at_preset(neuron: str, preset: str, name: str = PHOTOGRAPHS) -> list[dict[str, Any]]:
    """A neuron's rows in one preset of an arena."""
    run = run_of(name, presets=(preset,))
    assert run is not None
    return [row for row in run.rows if row["neuron"] == neuron]


def meeting_at(rate: float, neuron: str, others: Sequence[str], measure: Measure) -> list[Comparison[str]]:
    """A neuron less each of some others on digits where all have this learning rate, whatever their trials chose."""
    measured = [
        {"neuron": name, "seed": row["seed"], "measure": measure(row)}
        for name in (neuron, *others)
        for preset in (("rates",) if name == "gelu" else ("laptop", "same-rate", "layeracts-rate"))
        for row in at_preset(name, preset, NAME)
        if row["learning_rate"] == rate
    ]
    found = (compare(measured, factor="neuron", reference=other, measure="measure") for other in others)
    return [each for of in found for each in of if each.key == neuron]


def raised(*neurons: str, by: float = 1.0) -> Change:
    """The planted change: some neurons are far more accurate in both, on clean and on disturbed images."""

    def change(row: dict[str, Any]) -> dict[str, Any]:
        more = by * (row["neuron"] in neurons)
        return row | {key: value + more for key, value in row.items() if key.startswith("accuracy")}

    return both(rows(NAME, change), rows(PHOTOGRAPHS, change))
