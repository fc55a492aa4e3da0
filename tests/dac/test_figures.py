"""The figure that a reader can move draws what the package computes."""

import re

import numpy as np
import pytest
import torch

from companion.dac.study.figures import moving_hinges
from companion.functional import dac_linear

_UNITS = [
    ((1.0, -2.0, 1.0), (1.0, 0.0, -1.0)),
    ((3.0, -4.0, 2.0), (4.0, 3.0, 0.0)),
    ((-4.0, 0.5, 4.0), (-4.0, 4.0, 2.3)),
]


@pytest.mark.parametrize(("weights", "biases"), _UNITS)
def test_the_moving_hinges_start_with_the_packages_unit(weights, biases):
    page = moving_hinges(weights, biases).html
    w, b = torch.tensor([weights], dtype=torch.float64), torch.tensor([biases], dtype=torch.float64)
    terms = {"sum": w, **{f"hinge{j + 1}": w * torch.eye(3, dtype=torch.float64)[j] for j in range(3)}}
    for name, weight in terms.items():
        path = re.search(rf'class="{name}".*? d="M([^"]+)"', page)
        drawn = torch.tensor([[float(number) for number in point.split()] for point in path[1].split("L")])
        x = torch.linspace(-4, 4, 161, dtype=torch.float64)
        expected = dac_linear(x[:, None].expand(-1, 3), weight, b)[:, 0]
        # The path is straight between its points, so between them it must be interpolated.
        between = np.interp(x, drawn[:, 0] / 60 - 4, 4 - drawn[:, 1] / 320 * 7)
        np.testing.assert_allclose(between, expected, atol=0.002)


def test_the_moving_hinges_need_no_network_and_have_labelled_sliders():
    page = moving_hinges().html
    assert "http" not in page
    assert "src=" not in page
    for name in ("w1", "w2", "w3", "b1", "b2", "b3"):
        assert f'name="{name}" aria-label="{name}"' in page


@pytest.mark.parametrize(
    ("weights", "biases", "message"),
    [
        ((1.0, 2.0), (0.0, 0.0, 0.0), "weights must be three numbers"),
        ((1.0, 2.0, 3.0), (0.0, 0.0, 4.1), r"biases must be three numbers in \[-4, 4\]; got \[0.0, 0.0, 4.1\]"),
    ],
)
def test_the_moving_hinges_refuse_a_start_outside_their_sliders(weights, biases, message):
    with pytest.raises(ValueError, match=message):
        moving_hinges(weights, biases)
