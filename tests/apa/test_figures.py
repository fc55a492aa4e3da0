"""The figure that a reader can move draws what the package computes."""

import re

import numpy as np
import pytest
import torch

from companion.apa.study.figures import moving_curve
from companion.functional import aglu, apa


@pytest.mark.parametrize(("kappa", "lam"), [(1.0, 1.0), (-1.0, 1e-3), (10.0, 1e3), (0.0, 0.5), (10.0, 1e-3)])
def test_the_moving_figure_starts_with_the_packages_curves(kappa, lam):
    page = moving_curve(kappa, lam).html
    z = torch.linspace(-5, 5, 201, dtype=torch.float64)
    for name, values in (("agl-curve", aglu(z, kappa, lam)), ("apa-curve", apa(z, kappa, lam))):
        path = re.search(rf'class="{name}".*? d="M([^"]+)"', page)
        drawn = np.array([float(point.split()[1]) for point in path[1].split("L")])
        expected = 320 * (5 - values.numpy()) / 6.6
        np.testing.assert_allclose(drawn, expected, atol=0.006)


def test_the_moving_figure_needs_no_network_and_has_labelled_sliders():
    page = moving_curve().html
    assert "http" not in page
    assert "src=" not in page
    assert [re.search(rf'name="{name}" aria-label="{name}"', page) is not None for name in ("kappa", "lam")] == [
        True
    ] * 2


@pytest.mark.parametrize(
    ("kappa", "lam", "message"),
    [(11.0, 1.0, r"kappa must lie in \[-1, 10\]; got 11.0"), (1.0, 0.0, "lam must lie in")],
)
def test_the_moving_figure_refuses_a_start_outside_its_sliders(kappa, lam, message):
    with pytest.raises(ValueError, match=message):
        moving_curve(kappa, lam)
