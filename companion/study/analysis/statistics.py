"""Statistics over seeds: intervals, paired comparisons, correction for many comparisons."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any, Generic, TypeVar

from companion.extras import need

__all__ = [
    "Comparison",
    "Interval",
    "alike",
    "by_seed",
    "compare",
    "detectable",
    "family",
    "holm",
    "interval",
    "paired",
]

Key = TypeVar("Key", bound=Hashable)

_LEVEL = 0.95
# Relative. Differences that vary by less are equal.
_ROUNDING = 1e-14


@dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval.

    Parameters
    ----------
    mean, low, high : float
        The mean and the ends of the interval.
    n : int
        Number of values behind it.
    """

    mean: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Comparison(Generic[Key]):
    """One comparison of a family, seed by seed.

    Parameters
    ----------
    key : object
        What was compared: the competitor, or whatever the family calls it.
    difference : Interval
        Of what was compared minus the reference; not corrected for the number of comparisons.
    p_value : float
        Of the paired t-test.
    p_holm : float
        The same after Holm's correction over the family.
    detectable : float
        The size of a difference that would be found with a probability of 80 % after the correction, see `detectable`.
    size : int
        Of the family.
    """

    key: Key
    difference: Interval
    p_value: float
    p_holm: float
    detectable: float
    size: int

    def sign(self, level: float = 0.05) -> int:
        """1 or -1 where the difference is clearly above or below zero after the correction, else 0."""
        return 0 if self.p_holm >= level else 1 if self.difference.mean > 0 else -1


def interval(values: Iterable[float], level: float = _LEVEL) -> Interval:
    """Return the mean and its t-interval.

    mean ± t · s/√n with n − 1 degrees of freedom.

    Parameters
    ----------
    values : iterable of float
        One value per seed, at least two.
    level : float
        Coverage, between 0 and 1.

    Returns
    -------
    Interval
        Mean, ends, and how many values.

    Raises
    ------
    ValueError
        If there are fewer than two values: one seed has no interval.

    Examples
    --------
    >>> i = interval([1.0, 2.0, 3.0])
    >>> f"{i.mean:.2f} in [{i.low:.2f}, {i.high:.2f}]"
    '2.00 in [-0.48, 4.48]'
    """
    sample = [float(value) for value in values]
    n = len(sample)
    if n < 2:
        raise ValueError(f"values holds {n} number(s); an interval needs at least 2")
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; allowed is 0 < level < 1")
    need("experiments", "scipy")
    from scipy import stats

    mean = fmean(sample)
    if min(sample) == max(sample):
        return Interval(mean, mean, mean, n)
    low, high = stats.t.interval(level, n - 1, loc=mean, scale=stats.sem(sample))
    return Interval(mean, float(low), float(high), n)


def paired(a: Sequence[float], b: Sequence[float], level: float = _LEVEL) -> tuple[Interval, float]:
    """Compare two series that belong together pairwise, such as two activations on the same seeds.

    Parameters
    ----------
    a, b : sequence of float
        Equally long, at least two values each.
    level : float
        Coverage of the interval.

    Returns
    -------
    difference : Interval
        Of a − b.
    p_value : float
        Two-sided, of the paired t-test.

    Examples
    --------
    >>> difference, p_value = paired([2.0, 3.1, 4.0], [1.0, 2.0, 3.1])
    >>> round(difference.mean, 6), p_value < 0.01
    (1.0, True)
    """
    differences = [x - y for x, y in zip(a, b, strict=True)]
    difference = interval(differences, level)
    if math.isclose(min(differences), max(differences), rel_tol=_ROUNDING):
        # No spread to test against. Only "no difference at all" is compatible with no effect.
        return difference, 1.0 if difference.mean == 0 else 0.0
    need("experiments", "scipy")
    from scipy import stats

    return difference, float(stats.ttest_rel(a, b).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's step-down method.

    Comparing adjusted values with 0.05 keeps the chance of any false alarm among all comparisons below 0.05.

    Parameters
    ----------
    p_values : sequence of float
        Between 0 and 1.

    Returns
    -------
    list of float
        In the order of the input.

    References
    ----------
    Holm (1979), A simple sequentially rejective multiple test procedure.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


@cache
def detectable(difference: Interval, comparisons: int = 1, power: float = 0.8) -> float:
    """Return the size of a true difference that a paired t-test would find with a given probability.

    The differences are taken to vary as they were seen to; the test is two-sided at 5 %, divided by the number of
    comparisons, which is what Holm's correction asks of the first. A difference that was not found and is smaller than
    this one might be there.

    Parameters
    ----------
    difference : Interval
        Of the differences, at 95 %.
    comparisons : int
        How many are corrected for.
    power : float
        The probability, between 0.05 and 1.

    Returns
    -------
    float
        In the unit of the difference; 0 where the differences do not vary.

    Examples
    --------
    >>> round(detectable(interval([0.1, 0.3, 0.2, 0.4, 0.0])), 2)
    0.27
    """
    need("experiments", "scipy")
    from scipy import optimize, stats

    n = difference.n
    error = difference.half_width / stats.t.ppf((1 + _LEVEL) / 2, n - 1)
    if error == 0:
        return 0.0
    critical = stats.t.ppf(1 - (1 - _LEVEL) / 2 / comparisons, n - 1)

    def missing(shift: float) -> float:
        # finding the opposite counts for nothing
        return float(stats.nct.sf(critical, n - 1, shift) - power)

    return float(error * optimize.brentq(missing, 0.0, 4 * critical + 10))


def alike(difference: Interval, margin: float) -> int:
    """Say whether two things are alike, as opposed to: no difference was found.

    Parameters
    ----------
    difference : Interval
        At 95 %.
    margin : float
        What is too small to matter, above zero.

    Returns
    -------
    int
        1 where the interval lies within the margin on both sides of zero, -1 where it lies beyond it, else 0: not
        decided.

    Examples
    --------
    >>> alike(interval([0.1, 0.3, 0.2, 0.4, 0.0]), margin=0.5)
    1
    """
    if -margin < difference.low and difference.high < margin:
        return 1
    return -1 if difference.low > margin or difference.high < -margin else 0


def by_seed(
    rows: Iterable[Mapping[str, Any]], measure: str, name: Callable[[Mapping[str, Any]], Key]
) -> dict[Key, dict[int, float]]:
    """Return a number of each row, by what the row is called and by its seed: the series that `family` compares.

    Parameters
    ----------
    rows : iterable of mapping
        Of a result: one a name and seed.
    measure : str
        Key of the number.
    name : callable
        Takes a row and returns what it is called.

    Raises
    ------
    ValueError
        If a name and seed occur twice.

    Examples
    --------
    >>> by_seed([{"neuron": "relu", "seed": 0, "accuracy": 0.9}], "accuracy", lambda row: row["neuron"])
    {'relu': {0: 0.9}}
    """
    series: dict[Key, dict[int, float]] = {}
    for row in rows:
        of = series.setdefault(name(row), {})
        if row["seed"] in of:
            raise ValueError(f"rows holds {name(row)!r} with seed {row['seed']} twice; give the rows of one condition")
        of[row["seed"]] = row[measure]
    return series


def family(pairs: Mapping[Key, tuple[Mapping[int, float], Mapping[int, float]]]) -> list[Comparison[Key]]:
    """Compare pairs of series, seed by seed, with Holm's correction over all of them.

    Parameters
    ----------
    pairs : mapping
        By whatever names a comparison: two series, of what is compared and of its reference, each a number by seed.

    Returns
    -------
    list of Comparison
        In the order of the pairs.

    Raises
    ------
    ValueError
        If the two series of a pair have different seeds.

    Examples
    --------
    >>> [found] = family({"aglu": ({0: 0.91, 1: 0.94, 2: 0.92}, {0: 0.90, 1: 0.92, 2: 0.91})})
    >>> found.key, round(found.difference.mean, 4), found.sign()
    ('aglu', 0.0133, 0)
    """
    found = []
    for key, (series, base) in pairs.items():
        if series.keys() != base.keys():
            raise ValueError(f"{key!r} has the seeds {sorted(series)}, its reference has {sorted(base)}")
        seeds = sorted(base)
        found.append((key, *paired([series[seed] for seed in seeds], [base[seed] for seed in seeds])))
    corrected = holm([p_value for _, _, p_value in found])
    return [
        Comparison(key, difference, p_value, p_holm, detectable(difference, len(found)), len(found))
        for (key, difference, p_value), p_holm in zip(found, corrected, strict=True)
    ]


def compare(rows: Iterable[Mapping[str, Any]], *, factor: str, reference: Any, measure: str) -> list[Comparison[Any]]:
    """Compare every value of a factor with a reference value, paired by seed, with Holm's correction.

    Parameters
    ----------
    rows : iterable of mapping
        Rows of one condition: one per value of the factor and seed.
    factor : str
        Key that names the competitors, for example "activation".
    reference : object
        The value of the factor to compare with.
    measure : str
        Key of the number to compare, for example "test_accuracy".

    Returns
    -------
    list of Comparison
        One per competitor, which is its key, in the order of the rows; differences are competitor minus reference.

    Raises
    ------
    ValueError
        If the reference is missing, a pair of factor and seed occurs twice, or a competitor has other seeds
        than the reference.

    Examples
    --------
    >>> rows = [{"activation": a, "seed": s, "accuracy": 0.9 + 0.01 * s + (a == "aglu") * (0.01 + 0.001 * s)}
    ...         for a in ("relu", "aglu") for s in range(5)]
    >>> [c] = compare(rows, factor="activation", reference="relu", measure="accuracy")
    >>> c.key, round(c.difference.mean, 4), c.p_holm < 0.05
    ('aglu', 0.012, True)
    """
    series = by_seed(rows, measure, lambda row: row[factor])
    if reference not in series:
        raise ValueError(f"reference is {reference!r}; rows has {sorted(map(str, series))}")
    base = series.pop(reference)
    return family({competitor: (values, base) for competitor, values in series.items()})
