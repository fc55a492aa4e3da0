import numpy as np
import pytest
import torch

from companion.study.analysis import fluctuation, quantiles, unit_means


def test_unit_means_are_over_samples_and_keep_the_units():
    values = torch.tensor([[1.0, -1.0, 0.0], [3.0, 1.0, 0.5]])
    assert unit_means(values).tolist() == [2.0, 0.0, 0.25]
    assert unit_means(torch.zeros(4, 2, 3)).shape == (2, 3)


def test_unit_means_do_not_lose_small_numbers_in_float32():
    # In float32 the sum of 2²⁵ and ones stays 2²⁵.
    values = torch.ones(1001, 1)
    values[0] = 2.0**25
    assert unit_means(values).item() == pytest.approx((2.0**25 + 1000) / 1001, rel=1e-12)


def test_fluctuation_is_the_l1_norm_over_all_units_of_a_sample():
    clean = torch.tensor([[[1.0, 2.0]], [[0.0, 0.0]]])
    noisy = torch.tensor([[[0.5, 4.0]], [[0.0, -1.0]]])
    assert fluctuation(noisy, clean).tolist() == [2.5, 1.0]
    assert fluctuation(clean, noisy).tolist() == [2.5, 1.0]
    assert fluctuation(clean, clean).tolist() == [0.0, 0.0]


def test_fluctuation_does_not_broadcast():
    with pytest.raises(ValueError, match=r"noisy has shape \(3, 1\) and clean \(3, 4\)"):
        fluctuation(torch.zeros(3, 1), torch.zeros(3, 4))


def test_quantiles_are_numpys():
    values = torch.randn(500, generator=torch.Generator().manual_seed(0))
    assert quantiles(values) == pytest.approx(np.quantile(values.numpy(), np.linspace(0, 1, 21)), rel=1e-5)
    assert quantiles(values, 2) == pytest.approx([values.min().item(), values.max().item()], rel=1e-5)


@pytest.mark.parametrize(("values", "count"), [(torch.empty(0), 21), (torch.zeros(3), 1)])
def test_quantiles_of_nothing_are_errors(values, count):
    with pytest.raises(ValueError, match="allowed are"):
        quantiles(values, count)
