"""What the arenas' networks bear that no training showed them, and what follows for a neuron from all that is measured.

Three arenas have it: the perceptron on digits, the convolutions on photographs, and the transformer.
"""

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from companion.study import results
from companion.study.together.figures import LABELS, Advice, Column, advice, finished

__all__ = ["advised", "attackable", "disturbed", "mean_over", "trained_again"]

_NOISE, _SHIFT = "accuracy_std_", "accuracy_mean_"

# An attack of four times the size should leave nothing; where it leaves some, the attack does not work.
_LEFT_BY_A_WORKING_ATTACK = 0.01


def mean_over(rows: Iterable[Mapping[str, Any]], beginning: str) -> list[dict[str, Any]]:
    """Return rows with one key more, "mean": the mean over all keys that begin so.

    Parameters
    ----------
    rows : iterable of mapping
        Of a result.
    beginning : str
        Of the keys.

    Returns
    -------
    list of dict
        As many rows.

    Raises
    ------
    ValueError
        If a row has fewer than two such keys: a mean of one says nothing else.

    Examples
    --------
    >>> mean_over([{"accuracy_std_0.1": 0.5, "accuracy_std_0.2": 0.25}], "accuracy_std_")[0]["mean"]
    0.375
    """
    found = []
    for row in rows:
        values = [value for key, value in row.items() if key.startswith(beginning)]
        if len(values) < 2:
            raise ValueError(f"rows must have several keys that begin with {beginning}, got one with {len(values)}")
        found.append({**row, "mean": fmean(values)})
    return found


def _unlike_the_training(rows: list[dict[str, Any]]) -> dict[str, Column]:
    return {
        "noise": Column("noise\n(five widths), points", mean_over(rows, _NOISE), "mean"),
        "shift": Column("shift of all pixels\n(six amounts), points", mean_over(rows, _SHIFT), "mean"),
        "calibration": Column("calibration, GELU's\nerror less this, points", rows, "calibration_error", lower=True),
    }


def attackable() -> dict[str, float]:
    """Return the share of photographs that an attack of four times the size leaves right, by neuron; GELU's first.

    Examples
    --------
    >>> next(iter(attackable()))
    'gelu'
    """
    rows = results.load("together-conv")["rows"]
    names = dict.fromkeys(["gelu", *(row["neuron"] for row in rows)])
    return {name: fmean(row["accuracy_attacked_8"] for row in rows if row["neuron"] == name) for name in names}


def disturbed() -> dict[str, dict[str, Column]]:
    """Return what was measured beside clean accuracy: by arena, and there by a word.

    On photographs neurons are left out of the attack whose networks it does not really attack (`attackable`).

    Examples
    --------
    >>> {name: list(columns) for name, columns in disturbed().items()}  # doctest: +NORMALIZE_WHITESPACE
    {'together-mlp': ['noise', 'shift', 'calibration'], 'together-conv': ['noise', 'shift', 'corruptions', 'attack'],
     'together-vit': ['noise', 'shift', 'calibration']}
    """
    rows, left = results.load("together-conv")["rows"], attackable()
    attacked = [row for row in rows if left[row["neuron"]] < _LEFT_BY_A_WORKING_ATTACK]
    of_digits, of_transformers = (
        _unlike_the_training(results.load(name)["rows"]) for name in ("together-mlp", "together-vit")
    )
    return {
        "together-mlp": of_digits,
        "together-conv": {
            "noise": Column(of_digits["noise"].title, mean_over(rows, _NOISE), "mean"),
            "shift": Column(of_digits["shift"].title, mean_over(rows, _SHIFT), "mean"),
            "corruptions": Column("corruptions\n(fourteen), points", rows, "accuracy_corrupted"),
            "attack": Column("attack\n(2/255), points", attacked, "accuracy_attacked"),
        },
        "together-vit": of_transformers,
    }


def trained_again() -> dict[str, Column]:
    """Return the columns on digits of the networks that were trained once more, beside pairs of neurons.

    Examples
    --------
    >>> list(trained_again())
    ['accuracy', 'noise', 'shift', 'calibration']
    """
    called = {"relu+dac": "dac", "gelu+arr": "arr", "raa+arr": "dnrt"}
    rows = [
        {**row, "neuron": name}
        for row in results.load("together-pairs")["rows"]
        if (name := called.get(row["neuron"], row["neuron"])) in LABELS
    ]
    smallest = finished()["together-mlp"].smallest
    return {"accuracy": Column("digits", rows, smallest=smallest)} | _unlike_the_training(rows)


def advised(*, again: bool = False) -> dict[str, dict[str, Advice]]:
    """Return what the rule `advice` says: by neuron, and there by the name of each arena in which it met GELU.

    Parameters
    ----------
    again : bool
        With the networks on digits that were trained once more in place of the first ones, for the neurons that were.

    Examples
    --------
    >>> advised()["la_hardsilu"]
    {'together-conv': 'leave it', 'together-gpt': 'leave it', 'together-mlp': 'leave it'}
    """
    others, second = disturbed(), trained_again() if again else {}
    trained = {word: each.verdicts() for word, each in second.items()}
    found: dict[str, dict[str, Advice]] = {name: {} for name in LABELS}
    for arena, accuracy in finished().items():
        columns = {"accuracy": accuracy, **others.get(arena, {})}
        for name in accuracy.verdicts():
            of = {
                word: second[word] if arena == "together-mlp" and name in trained.get(word, {}) else each
                for word, each in columns.items()
            }
            found[name][arena] = advice(name, of.pop("accuracy"), of.values())
    return {name: words for name, words in found.items() if words}
