"""How far a sample is from a family of distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from companion.extras import need

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

__all__ = ["ks_distance", "skewness"]

# SciPy's names. The Gumbel distribution of the papers has the heavy tail on the right; its mirror image is
# another family.
_FAMILIES = {"logistic": "logistic", "gumbel": "gumbel_r", "gumbel_left": "gumbel_l"}


def ks_distance(sample: ArrayLike | Sequence[float], family: Literal["logistic", "gumbel", "gumbel_left"]) -> float:
    """Return the Kolmogorov–Smirnov distance between a sample and the member of a family that fits it best.

    sup_x |F_n(x) − F(x)|, with location and scale of F estimated from the same sample by maximum likelihood
    (SciPy). The paper does not say how it chose location and scale. Because they are fitted, the tables of
    the KS test do not hold, and no p-value is given: compare distances, of one sample to several families
    with two parameters each.

    Parameters
    ----------
    sample : array of float
        One dimension, at least three values that are not all equal.
    family : str
        "logistic" (symmetric), "gumbel" (heavy tail on the right, distribution function exp(−exp(−x)); the
        paper's) or "gumbel_left" (its mirror image).

    Returns
    -------
    float
        Between 0 and 1.

    Raises
    ------
    ValueError
        If the family is unknown or the sample is too small, constant or not finite.

    References
    ----------
    Alexandridis et al. (2025), Adaptive Parametric Activation, section III-B.

    Examples
    --------
    >>> import numpy as np
    >>> skewed = np.random.default_rng(0).gumbel(size=1000)
    >>> ks_distance(skewed, "gumbel") < ks_distance(skewed, "logistic") < ks_distance(skewed, "gumbel_left")
    True
    """
    if family not in _FAMILIES:
        raise ValueError(f"family is {family!r}; allowed are {', '.join(_FAMILIES)}")
    need("experiments", "scipy")
    from scipy import stats

    values = _checked(sample)
    distribution = getattr(stats, _FAMILIES[family])
    return float(stats.ks_1samp(values, distribution(*distribution.fit(values)).cdf).statistic)


def skewness(sample: ArrayLike | Sequence[float]) -> float:
    """Return the third standardised moment, without correction for small samples.

    0 for symmetric distributions such as the Logistic, about 1.14 for the Gumbel with its heavy tail on the
    right.

    Parameters
    ----------
    sample : array of float
        One dimension, at least three values that are not all equal.

    Returns
    -------
    float
        The skewness.

    Examples
    --------
    >>> skewness([0.0, 0.0, 0.0, 1.0]) > 0
    True
    """
    need("experiments", "scipy")
    from scipy import stats

    return float(stats.skew(_checked(sample)))


def _checked(sample: ArrayLike | Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    import numpy as np

    values = np.asarray(sample, dtype=np.float64)
    if values.ndim != 1 or len(values) < 3 or not np.isfinite(values).all() or np.ptp(values) == 0:
        raise ValueError(
            f"sample has shape {values.shape}; allowed are at least three finite values in one dimension, not all equal"
        )
    return values
