"""The random smooth map that the inner network learns before anything else."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from companion import MultiArgument
from companion.multi_argument.study.pretraining import PAPER, PUBLISHED_CODE, Grid, RandomMap, fit
from tests.cases import together


def blurred(surface: RandomMap, point: Tensor) -> float:
    """The mean of the noise under a Gaussian around a point, the square cut into 500² pieces."""
    cells, width, sigma = surface.grid
    axis = (torch.arange(500, dtype=torch.float64) + 0.5) * cells * width / 500 - surface.radius
    weights = [torch.exp(-((axis - p) ** 2) / (2 * sigma**2)) for p in point.double()]
    cell = ((axis + surface.radius) / width).long()
    density = weights[0][:, None] * weights[1]
    return ((density * surface.noise[cell][:, cell]).sum() / density.sum()).item()


@together("grid", [PAPER, Grid(5, 1.0, 0.4)])
def test_it_is_the_mean_of_the_noise_under_a_gaussian(grid: Grid) -> None:
    surface = RandomMap(2, 3, grid)
    for point in torch.tensor([[0.0, 0.0], [1.3, -2.2], [-2.5, 2.5]]):
        assert surface(point).item() == pytest.approx(blurred(surface, point), abs=1e-5)


def test_without_a_blur_it_is_the_noise() -> None:
    surface = RandomMap(3, 0, Grid(4, 1.0, 1e-3))
    centres = torch.arange(4) - 1.5
    at = torch.cartesian_prod(centres, centres, centres)
    torch.testing.assert_close(surface(at).view(4, 4, 4), surface.noise.float())
    assert surface.noise.min() >= -1
    assert surface.noise.max() <= 1


def test_the_seed_decides_and_nothing_else_does() -> None:
    torch.manual_seed(5)
    first = RandomMap(2, 7).noise
    torch.manual_seed(6)
    assert torch.equal(RandomMap(2, 7).noise, first)
    assert not torch.equal(RandomMap(2, 8).noise, first)


@pytest.mark.parametrize(("grid", "varies", "constant"), [(PAPER, 0.060, 0.201), (PUBLISHED_CODE, 0.090, 0.010)])
def test_the_papers_blur_leaves_nearly_a_constant(grid: Grid, varies: float, constant: float) -> None:
    axis = torch.linspace(-1, 1, 41, dtype=torch.float64) * grid.cells * grid.width / 2
    shares = RandomMap(1, 0, grid)._shares(axis)
    # noise of variance 1: the mean of the variances at all points, and the variance of the mean
    everywhere, of_mean = (shares**2).sum(1).mean() ** 2, (shares.mean(0) ** 2).sum() ** 2
    assert math.sqrt(everywhere - of_mean) == pytest.approx(varies, abs=5e-4)
    assert math.sqrt(of_mean) == pytest.approx(constant, abs=5e-4)


def test_what_varies_of_the_papers_map_is_nearly_a_plane() -> None:
    axis = torch.linspace(-2.5, 2.5, 21, dtype=torch.float64)
    points = torch.cartesian_prod(axis, axis)
    shares, contrasts = [], []
    for seed in range(100):
        surface = RandomMap(2, seed, PAPER)
        values = surface(points) - surface(points).mean()
        along = points.T @ values / points.square().sum(0).sqrt()
        shares.append((along.square().sum() / values.square().sum()).item())
        contrasts.append(surface.contrast() ** 2)
    assert 0.94 < sorted(shares)[50] < 0.99
    assert math.sqrt(sum(contrasts) / 100) == pytest.approx(0.060, rel=0.15)


def test_a_network_learns_a_map_whatever_its_dim_is() -> None:
    surface = RandomMap(2, 0, Grid(3, 1.0, 0.5))
    network = MultiArgument(dim=1, init="linear")
    explained = fit(network, surface, surface.radius, steps=150, batch=256, lr=5e-3)
    assert explained > 0.8
    a = torch.rand(2000, 2) * 3 - 1.5
    rest = (surface(a) - network.at(a)).detach()
    assert 1 - (rest.var() / surface(a).var()).item() == pytest.approx(explained, abs=0.05)


def test_the_same_seed_gives_the_same_network() -> None:
    torch.manual_seed(0)
    first = MultiArgument(hidden=4)
    second = MultiArgument(hidden=4)
    second.load_state_dict(first.state_dict())
    assert len({fit(each, lambda a: a[:, 0], 1.0, steps=3) for each in (first, second)}) == 1
    assert all(map(torch.equal, first.parameters(), second.parameters()))


def test_a_frozen_network_is_not_asked_to_learn() -> None:
    with pytest.raises(ValueError, match=r"network: got frozen parameters \(weights.0, .*requires_grad_"):
        fit(MultiArgument().freeze(), RandomMap(), 5.0)


@together(
    "make, error, message",
    [
        (lambda: RandomMap(0), ValueError, "arity: got 0, allowed is at least 1"),
        (lambda: RandomMap(2, "1"), TypeError, "seed: got '1', allowed is an int"),
        (lambda: RandomMap(2)(torch.ones(4, 3)), ValueError, r"arguments: got shape \(4, 3\), allowed is \(..., 2\)"),
        (lambda: RandomMap(2)(torch.ones(4, 2).int()), TypeError, "arguments: got dtype torch.int32"),
    ],
    of=lambda case: case[2],
)
def test_bad_arguments(make: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()  # type: ignore[operator]
