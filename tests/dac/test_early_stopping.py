"""The estimate of the error under early stopping: what it chooses, what it averages, and how large its errors are."""

import math
import random

import numpy
import pytest

from companion.dac.study.early_stopping import early_stopping


def series(seed, replicates=5, epochs=30):
    generator = random.Random(seed)
    return [[generator.gauss(0.3, 0.1) for _ in range(epochs)] for _ in range(replicates)]


@pytest.mark.parametrize("window", [3, 5, 7])
@pytest.mark.parametrize(("replicates", "epochs"), [(2, 7), (5, 30), (4, 12)])
def test_the_estimate_is_the_papers_in_numpys_words(replicates, epochs, window):
    validation, test = series(1, replicates, epochs), series(2, replicates, epochs)
    v, t = numpy.array(validation), numpy.array(test)
    moving = numpy.lib.stride_tricks.sliding_window_view(v.mean(0), window).mean(1)
    middle = int(moving.argmin()) + window // 2
    part = t[:, middle - window // 2 : middle + window // 2 + 1]
    mean = part.mean()
    first = ((t[:, middle] - mean) ** 2).sum() / (replicates - 1) / replicates
    second = ((part.mean(0) - mean) ** 2).sum() / (window - 1) / window
    found = early_stopping(validation, test, window)
    assert found.epoch == middle
    assert found.error == pytest.approx(mean)
    assert found.standard_error == pytest.approx(math.sqrt(first + second))
    assert found.direct_standard_error == pytest.approx(part.mean(1).std(ddof=1) / math.sqrt(replicates))


def test_the_validation_error_alone_chooses():
    validation = [[1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]] * 2
    test = [[0.5, 0.5, 0.9, 0.8, 0.7, 0.0, 0.0, 0.0]] * 2
    found = early_stopping(validation, test, window=3)
    assert found.epoch == 3
    assert found.error == pytest.approx(0.8)


def test_one_lucky_epoch_is_not_chosen():
    lucky = [1.0, 1.0, -1.0, 1.0, 1.0, 0.2, 0.2, 0.2, 0.2, 0.2]
    assert early_stopping([lucky] * 2, [lucky] * 2).epoch == 7


def test_the_direct_variance_is_unbiased_and_the_printed_one_too_large():
    """Epochs and replicates as the paper's model has them, σ = 0.5 and τ = 1; five epochs leave no choice."""
    generator = random.Random(0)
    errors, printed, direct = [], [], []
    for _ in range(4000):
        test = []
        for _ in range(5):
            level = generator.gauss(0, 0.5)
            test.append([level + generator.gauss(0, 1) for _ in range(5)])
        found = early_stopping(test, test)
        errors.append(found.error)
        printed.append(found.standard_error**2)
        direct.append(found.direct_standard_error**2)
    true = 0.5**2 / 5 + 1 / 25
    assert numpy.var(errors) == pytest.approx(true, rel=0.08)
    assert numpy.mean(direct) == pytest.approx(true, rel=0.05)
    assert numpy.mean(printed) == pytest.approx((0.5**2 + 1.2) / 5 + 1 / 25, rel=0.05)


@pytest.mark.parametrize(
    ("validation", "test", "window", "message"),
    [
        (series(1), series(2), 4, "window is 4; allowed are odd numbers from 3"),
        (series(1), series(2), 1, "window is 1"),
        (series(1, replicates=1), series(2, replicates=1), 5, "1 and 1 replicates"),
        (series(1, replicates=4), series(2), 5, "4 and 5 replicates"),
        ([], [], 5, "0 and 0 replicates"),
        (series(1, epochs=4), series(2, epochs=4), 5, r"the series have \[4\] epochs"),
        (series(1, epochs=9), series(2), 5, r"the series have \[9, 30\] epochs"),
        (series(1), [[math.nan] * 30] * 5, 5, "must be finite"),
    ],
)
def test_what_no_estimate_can_be_made_of_is_refused(validation, test, window, message):
    with pytest.raises(ValueError, match=message):
        early_stopping(validation, test, window)
