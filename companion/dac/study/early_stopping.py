"""The error of a network that is stopped early, with its standard error, from several runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["EarlyStopping", "early_stopping"]


@dataclass(frozen=True)
class EarlyStopping:
    """What `early_stopping` found.

    Parameters
    ----------
    epoch : int
        The epoch m, counted from 0, in the middle of the window with the lowest validation error.
    error : float
        Mean test error over the replicates and the epochs of that window.
    standard_error : float
        By the paper's formula. It is too large on average.
    direct_standard_error : float
        Of the mean of the replicates' means. Its square is unbiased, and no model of the epochs is behind it.
    """

    epoch: int
    error: float
    standard_error: float
    direct_standard_error: float


def early_stopping(
    validation: Sequence[Sequence[float]], test: Sequence[Sequence[float]], window: int = 5
) -> EarlyStopping:
    """Estimate the test error at the epoch that the validation error chooses.

    With K replicates, W epochs in the window, and t_{k,m+j} the test errors in it:
    m minimises the mean validation error over replicates and window; T̄ is the mean of the t_{k,m+j}; and
    SE² = 1/(K (K−1)) Σ_k (t_{k,m} − T̄)² + 1/(W (W−1)) Σ_j (t_{*,m+j} − T̄)², where * means the mean over replicates.

    Parameters
    ----------
    validation, test : sequence of sequence of float
        Errors, a series over epochs for each replicate: at least two replicates, all equally long.
    window : int
        The number W of epochs, odd and at least 3.

    Returns
    -------
    EarlyStopping
        The epoch, the error and its standard error.

    Raises
    ------
    ValueError
        If the window is even or too small, the series are too short or differ in length, there is one replicate
        only, or an error is not finite.

    References
    ----------
    Metta et al. (2024), Increasing biases can be more efficient than increasing weights, appendix B. The chapter on
    DAC says how far the standard error is right.

    Examples
    --------
    >>> validation = [[0.5, 0.3, 0.2, 0.3, 0.6], [0.5, 0.3, 0.3, 0.2, 0.6]]
    >>> test = [[0.5, 0.4, 0.2, 0.3, 0.6], [0.5, 0.4, 0.3, 0.2, 0.6]]
    >>> found = early_stopping(validation, test, window=3)
    >>> found.epoch, round(found.error, 3)
    (2, 0.3)
    """
    if window < 3 or window % 2 == 0:
        raise ValueError(f"window is {window}; allowed are odd numbers from 3")
    replicates, epochs = len(test), len(test[0]) if test else 0
    if replicates < 2 or len(validation) != replicates:
        raise ValueError(
            f"validation and test hold {len(validation)} and {replicates} replicates; "
            "they need equally many, at least 2"
        )
    if {len(series) for series in (*validation, *test)} != {epochs} or epochs < window:
        raise ValueError(
            f"the series have {sorted({len(series) for series in (*validation, *test)})} epochs; they need equally "
            f"many, at least {window}"
        )
    if not all(math.isfinite(error) for series in (*validation, *test) for error in series):
        raise ValueError("validation and test must be finite: leave out runs that failed, and say so")
    half = window // 2

    def around(series: Sequence[float], epoch: int) -> Sequence[float]:
        return series[epoch - half : epoch + half + 1]

    middles = range(half, epochs - half)
    chosen = min(middles, key=lambda epoch: math.fsum(v for series in validation for v in around(series, epoch)))
    errors = [around(series, chosen) for series in test]
    mean = math.fsum(t for series in errors for t in series) / (replicates * window)
    of_epochs = [math.fsum(column) / replicates for column in zip(*errors, strict=True)]
    of_replicates = [math.fsum(series) / window for series in errors]

    def squares(values: Sequence[float]) -> float:
        """Mean square distance from T̄, for the error of a mean of so many values."""
        return math.fsum((value - mean) ** 2 for value in values) / (len(values) * (len(values) - 1))

    printed = squares([series[half] for series in errors]) + squares(of_epochs)
    return EarlyStopping(chosen, mean, math.sqrt(printed), math.sqrt(squares(of_replicates)))
