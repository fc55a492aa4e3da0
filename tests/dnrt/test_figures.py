"""The figures draw what the package computes, before they are moved and after."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from companion.dnrt.study import figures
from companion.dnrt.study.figures import moving_means, moving_threshold, responses
from companion.functional import raa
from companion.study.plotting import subplots
from tests.cases import together
from tests.study.moving import points, said, svg

_ELEMENTS = (0.8, -1.4, 2.4, 0.2, -0.5, 1.9, -2.2)
# The last offset is −3e-17, which is no "−0.00".
_VECTORS = [
    (1.5, -0.8, 0.0),
    (0.0, 1.0, 0.0),
    (2.0, 1.0, 1.0),
    (2.0, -1.0, -1.0),
    (0.65, 0.35, -0.8),
    (0.2, -0.75, 0.15),
]
_MEANS = [(1, 0.1), (3, 0.1), (15, 0.1), (24, 0.0), (24, 1.0), (24, 0.37), (2, 1.0)]


def _is_the_packages_threshold(page: str, noise: float, weight: float, bias: float) -> None:
    drawn = svg(page)
    vector = torch.tensor([*_ELEMENTS, noise], dtype=torch.float64)
    weights = torch.tensor([0.0] * 7 + [weight], dtype=torch.float64)
    b = torch.tensor([bias], dtype=torch.float64)
    # In front of the vector stands one more element with weight 0, which runs along the axis.
    along = torch.linspace(-3.1, 3.1, 125, dtype=torch.float64)
    rows = torch.cat([along[:, None], vector.expand(125, 8)], 1)
    outputs = raa(rows, torch.cat([torch.zeros(1, dtype=torch.float64), weights]), b)[:, 0].numpy()
    for name in ("gate", "output"):
        np.testing.assert_allclose(points(drawn[name])[:, 0], 240 + 60 * along.numpy(), atol=0.006)
    np.testing.assert_allclose((422 - points(drawn["output"])[:, 1]) / 36, outputs, atol=2e-4)
    gelu = torch.nn.functional.gelu(along).numpy()
    np.testing.assert_allclose((422 - points(drawn["gelu"])[:, 1]) / 36, gelu, atol=2e-4)
    gates = (284 - points(drawn["gate"])[:, 1]) / 64
    np.testing.assert_allclose(gates * along.numpy(), outputs, atol=4e-4)
    # the gate is half open where the line stands
    threshold = (points(ElementTree.Element("path", d=drawn["line"].get("d").split("V")[0]))[0, 0] - 240) / 60
    assert np.interp(threshold, along, gates) == pytest.approx(0.5, abs=1e-3)
    assert drawn["label"].text.replace("−", "-") == f"threshold {threshold:z.2f}"
    y = raa(vector, weights, b)
    opened = y / torch.where(vector == 0, 1, vector)
    for i in range(8):
        at = [240 + 60 * vector[i].item(), 422 - 36 * y[i].item()]
        np.testing.assert_allclose(points(drawn[f"dot{i + 1}"])[0], at, atol=0.006)
        assert f"H{at[0]:.2f}V" in drawn[f"bar{i + 1}"].get("d")
        if vector[i] != 0:
            assert drawn[f"open{i + 1}"].text == f"{100 * opened[i]:.0f} %"
            assert drawn[f"bar{i + 1}"].get("fill-opacity") == f"{opened[i]:.2f}"
    assert f"Offset c = {weight * noise + bias:z.2f}. Of x₁ = 0.8 the gate lets {100 * opened[0]:.0f} %" in said(page)
    assert "GELU would let 79 %" in said(page)


@together("noise, weight, bias", _VECTORS)
def test_the_moving_threshold_starts_with_the_packages_vector(noise, weight, bias):
    _is_the_packages_threshold(moving_threshold(noise, weight, bias).html, noise, weight, bias)


@pytest.mark.browser
@together("noise, weight, bias", _VECTORS)
def test_the_threshold_follows_its_sliders(figure, noise, weight, bias):
    figure.show(moving_threshold())
    figure.move(noise=noise, weight=weight, bias=bias)
    _is_the_packages_threshold(figure.now(), noise, weight, bias)


@pytest.mark.browser
def test_a_button_of_the_threshold_lets_the_same_element_pass(figure):
    figure.show(moving_threshold())
    assert "lets 34 % through" in figure.now()
    figure.press("quiet")
    assert "lets 79 % through" in figure.now()
    assert figure.page.locator("output.noise").inner_text() == "0.00"


def _mean_and_loss(step: int, m: float) -> tuple[np.ndarray, np.ndarray, float]:
    """The mean before the last sample, that sample, and its loss: by the sum over the samples of its class."""
    of, x = torch.tensor(figures._SAMPLES, dtype=torch.float64)[:step].split([1, 2], 1)
    own = x[(of == of[-1])[:, 0]]
    first, later = own[0], own[1:-1]
    r = len(later)
    mean = (1 - m) ** r * first + sum(m * (1 - m) ** (r - j - 1) * x_j for j, x_j in enumerate(later))
    return mean.numpy(), own[-1].numpy(), (own[-1] - mean).abs().mean().item()


def _are_the_papers_means(page: str, step: int, m: float) -> None:
    drawn = svg(page)
    mean, x, loss = _mean_and_loss(step, m)

    def place(point):
        return [240 + 74 * point[0], 160 - 74 * point[1]]

    np.testing.assert_allclose(points(drawn["legs"]), [place(mean), place((x[0], mean[1])), place(x)], atol=0.006)
    np.testing.assert_allclose(points(drawn["seen"])[0], place(mean), atol=0.006)
    assert f"= {loss:.2f}." in said(page)
    own = figures._SAMPLES[step - 1][0]
    assert f"Sample {step} is of class {own}." in said(page)
    # the way of its mean ends behind its own update, one of as many points as samples have come
    trail = points(drawn[f"trail{own}"])
    assert len(trail) == sum(k == own for k, *_ in figures._SAMPLES[:step])
    np.testing.assert_allclose(trail[-1], place((1 - m) * mean + m * x), atol=0.006)
    np.testing.assert_allclose(points(drawn[f"mean{own}"])[0], trail[-1], atol=0.006)
    shown = [float(drawn[f"sample{i}"].get("opacity")) for i in range(1, 25)]
    assert shown == [0.4] * (step - 1) + [1] + [0] * (24 - step)


@together("step, m", _MEANS)
def test_the_moving_means_start_where_the_samples_have_brought_them(step, m):
    _are_the_papers_means(moving_means(step, m).html, step, m)


@pytest.mark.browser
@together("step, m", _MEANS)
def test_the_means_follow_their_sliders(figure, step, m):
    figure.show(moving_means())
    figure.move(step=step, momentum=m)
    _are_the_papers_means(figure.now(), step, m)


@pytest.mark.browser
def test_a_mean_stays_without_momentum_and_jumps_with_all_of_it(figure):
    figure.show(moving_means())
    figure.press("m = 0: it stays")
    trail = points(svg(figure.now())["trail1"])
    assert len(np.unique(trail, axis=0)) == 1
    figure.press("m = 1: it jumps")
    of_class_1 = [place for place in figures._SAMPLES if place[0] == 1]
    expected = [[240 + 74 * x, 160 - 74 * y] for _, x, y in of_class_1]
    np.testing.assert_allclose(points(svg(figure.now())["trail1"]), expected, atol=0.006)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: moving_threshold(noise=-0.1), r"noise must lie in \[0, 2\]; got -0.1"),
        (lambda: moving_threshold(weight=1.5), r"weight must lie in \[-1, 1\]; got 1.5"),
        (lambda: moving_threshold(bias=float("nan")), r"bias must lie in \[-1, 1\]; got nan"),
        (lambda: moving_means(step=25), r"step must lie in \[1, 24\]; got 25"),
        (lambda: moving_means(momentum=1.1), r"momentum must lie in \[0, 1\]; got 1.1"),
    ],
)
def test_the_moving_figures_refuse_a_start_outside_their_sliders(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_responses_are_bands_around_their_medians():
    torch.manual_seed(0)
    quantiles = {name: torch.randn(30, 5).sort(1).values for name in ("cat", "dog")}
    _, axes = subplots()
    responses(axes, quantiles, channels=4)
    lines = axes.get_lines()
    assert [line.get_label() for line in lines] == ["cat", "dog"]
    for number, (line, values) in enumerate(zip(lines, quantiles.values(), strict=True)):
        np.testing.assert_allclose(line.get_ydata(), values[:4, 2])
        assert list(np.round(line.get_xdata())) == [1, 2, 3, 4]
        for pair in (0, 1):
            bands = np.array(axes.collections[2 * number + pair].get_segments())
            np.testing.assert_allclose(bands[:, :, 1], values[:4, [pair, 4 - pair]])
            np.testing.assert_allclose(bands[:, 0, 0], line.get_xdata())
    assert set(lines[0].get_xdata()).isdisjoint(lines[1].get_xdata())
    assert lines[0].get_color() != lines[1].get_color()


@pytest.mark.parametrize(
    ("quantiles", "message"),
    [
        ([[0.0, 1.0]], r"'GELU' must be \(channels, quantiles\), an odd number from 3; got \(1, 2\)"),
        ([0.0, 1.0, 2.0], r"got \(3,\)"),
        ([[0.0, 2.0, 1.0]], "quantiles of 'GELU' must ascend"),
    ],
)
def test_responses_refuse_what_are_no_quantiles(quantiles, message):
    _, axes = subplots()
    with pytest.raises(ValueError, match=message):
        responses(axes, {"GELU": quantiles})
