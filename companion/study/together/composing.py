"""Which pairs of neurons add, and which cancel: `companion.study.together.pairs`, judged.

A pair *adds* where it is clearly better than the better of its neurons alone, and *cancels* where it is clearly worse.
What is clear is decided as everywhere, after Holm's correction over all pairs and both questions. The second question
is whether what one neuron brings depends on the other: the interaction. Where neither brings anything alone, a pair
that brings nothing is evidence of nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from companion.neurons import declared
from companion.study.analysis import Comparison, alike, by_seed, family
from companion.study.together.pairs import NEURONS, PAIRS, SMALLEST_DIFFERENCE, alone

__all__ = ["Composition", "Pairs", "compositions", "title"]


def title(name: str) -> str:
    """Return what a network is called whose neurons have these names.

    Examples
    --------
    >>> title("raa+arr")
    'RAA + ARR'
    """
    return " + ".join(declared()[each].title for each in name.split("+"))


@dataclass(frozen=True)
class Pairs:
    """A column of `companion.study.together.figures.differences`: a row a pair.

    Parameters
    ----------
    title : str
        Above the column.
    found : mapping
        A comparison for each pair.
    smallest : float
        The difference that matters.
    unit : float
        By what the figure multiplies.
    """

    title: str
    found: Mapping[str, Comparison[Any]]
    smallest: float = 0.0
    unit: float = 100.0

    def comparisons(self) -> Mapping[str, Comparison[Any]]:
        """Return the comparisons."""
        return self.found


@dataclass(frozen=True)
class Composition:
    """What became of a pair.

    Parameters
    ----------
    pair, better : str
        The pair, and the better of the two neurons alone: on the same seeds, which favours it.
    to_better : Comparison
        The pair minus that one.
    interaction : Comparison
        What both bring minus what each brings alone; below zero where one takes from the other.
    """

    pair: str
    better: str
    to_better: Comparison[tuple[str, str]]
    interaction: Comparison[tuple[str, str]]

    @property
    def verdict(self) -> str:
        """ "adds" or "cancels": the pair is clearly better or worse; "neither": alike; else "not decided"."""
        if sign := self.to_better.sign():
            return "adds" if sign > 0 else "cancels"
        return "neither" if alike(self.to_better.difference, SMALLEST_DIFFERENCE) == 1 else "not decided"


def compositions(rows: Iterable[Mapping[str, Any]], measure: str = "accuracy") -> list[Composition]:
    """Compare every pair with its neurons alone, seed by seed, with Holm's correction over all that is asked.

    Parameters
    ----------
    rows : iterable of mapping
        Of this experiment, a row for each of `NEURONS` and seed.
    measure : str
        An accuracy, so that more is better.

    Returns
    -------
    list of Composition
        In the order of `PAIRS`.

    Raises
    ------
    ValueError
        If a network is missing, or has other seeds than what it is compared with.

    Examples
    --------
    >>> gains = {"raa": 0.01, "gelu+arr": 0.02, "raa+arr": 0.03}
    >>> rows = [{"neuron": name, "seed": seed, "accuracy": 0.9 + gains.get(name, 0) + 1e-4 * (seed * len(name) % 5)}
    ...         for name in NEURONS for seed in range(10)]
    >>> dnrt = compositions(rows)[2]
    >>> dnrt.pair, dnrt.better, dnrt.verdict, round(dnrt.interaction.difference.mean, 3)
    ('raa+arr', 'gelu+arr', 'adds', 0.0)
    """
    series = by_seed(rows, measure, lambda row: row["neuron"])
    if missing := [name for name in NEURONS if name not in series]:
        raise ValueError(f"rows has none of {', '.join(missing)}; allowed are rows of {', '.join(NEURONS)}")

    def mean(name: str) -> float:
        return sum(series[name].values()) / len(series[name])

    def total(one: str, other: str) -> dict[int, float]:
        return {seed: series[one][seed] + series[other][seed] for seed in series[one].keys() & series[other].keys()}

    better, asked = {}, {}
    for pair in PAIRS:
        unit, other, plain = alone(pair)
        better[pair] = max(unit, other, key=mean)
        asked[pair, "to better"] = series[pair], series[better[pair]]
        asked[pair, "interaction"] = total(pair, plain), total(unit, other)
    found = {each.key: each for each in family(asked)}
    return [Composition(pair, better[pair], found[pair, "to better"], found[pair, "interaction"]) for pair in PAIRS]
