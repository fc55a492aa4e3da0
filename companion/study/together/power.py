"""How many seeds an arena needs: written down before anything else runs.

The smallest difference that matters is 0.7 points of accuracy: for less nobody should exchange the neurons of a network
that works. Each neuron is compared with GELU.

The pilot, five seeds of GELU and ReLU, says how differences vary from seed to seed. `seeds_needed` takes that spread
and asks for a paired t-test that finds 0.7 points with a probability of 80 % after Holm's correction over all
comparisons. A spread of five seeds is itself uncertain by a factor of two, so what a result could have seen is computed
again from its own seeds, and stands beside every comparison.
"""

from collections.abc import Sequence

from companion.study.analysis import Interval, detectable, interval

__all__ = ["SMALLEST_DIFFERENCE", "seeds_needed"]

SMALLEST_DIFFERENCE = 0.007
"""Of accuracies: smaller ones do not matter."""

_MOST = 1000


def seeds_needed(differences: Sequence[float], comparisons: int, smallest: float = SMALLEST_DIFFERENCE) -> int:
    """Return how many seeds find a difference of some size among some comparisons.

    Parameters
    ----------
    differences : sequence of float
        Of a pilot, one a seed, at least two.
    comparisons : int
        With how many Holm's correction reckons.
    smallest : float
        The difference to be found with a probability of 80 %, above zero.

    Returns
    -------
    int
        At least 3.

    Raises
    ------
    ValueError
        If a thousand are too few.

    Examples
    --------
    >>> seeds_needed([0.004, 0.001, -0.002, 0.003, 0.006], comparisons=1)
    4
    >>> seeds_needed([0.004, 0.001, -0.002, 0.003, 0.006], comparisons=15)
    7
    """
    from scipy import stats

    pilot = interval(differences)
    deviation = pilot.half_width / stats.t.ppf(0.975, pilot.n - 1) * pilot.n**0.5
    for n in range(3, _MOST + 1):
        reach = float(deviation / n**0.5 * stats.t.ppf(0.975, n - 1))
        if detectable(Interval(0.0, -reach, reach, n), comparisons) <= smallest:
            return n
    raise ValueError(f"smallest is {smallest}; with differences that vary by {deviation:.3g} a thousand seeds miss it")
