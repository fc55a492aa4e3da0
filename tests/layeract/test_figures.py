"""The figure draws what the package computes, before it is moved and after."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from companion.functional import la_silu
from companion.layeract.study.figures import moving_gate
from tests.cases import together
from tests.study.moving import points, said, svg

#: Shift, stretch and push.
_PLACES = [(0.0, 1.0, 0.0), (2.0, 1.5, 4.0), (-2.0, 0.1, 0.0), (0.35, 0.65, 1.3), (-1.0, 1.0, 4.0)]


def _row(shift: float, stretch: float, push: float) -> torch.Tensor:
    shape = torch.tensor([0.9, -1.1, 1.5, 0.3, -0.2, -1.7, 0.5, -0.2], dtype=torch.float64)
    y = shift + stretch * (shape - shape.mean()) / shape.std(correction=0)
    y[7] += push
    return y


def _is_the_packages_row(page: str, shift: float, stretch: float, push: float) -> None:
    drawn, y = svg(page), _row(shift, stretch, push)
    a = la_silu(y)
    along = torch.linspace(-5.4, 5.4, 109, dtype=torch.float64)
    open_along = torch.sigmoid((along - y.mean()) / (y.var(correction=0) + 1e-5).sqrt())
    for name, gates in (("", open_along), ("silu-", torch.sigmoid(along))):
        gate, output = points(drawn[f"{name}gate"]), points(drawn[f"{name}output"])
        np.testing.assert_allclose(gate[:, 0], 206 + 30 * along.numpy(), atol=0.006)
        np.testing.assert_allclose((296 - gate[:, 1]) / 64, gates, atol=1e-4)
        np.testing.assert_allclose((440 - output[:, 1]) / 18, along * gates, atol=4e-4)
    line = float(re.match(r"M([\d.]+) ", drawn["line"].get("d"))[1])
    assert line == pytest.approx(206 + 30 * y.mean().item(), abs=0.006)
    assert drawn["label"].text.replace("−", "-") == f"mean {y.mean():z.2f}"
    for i in range(8):
        np.testing.assert_allclose(points(drawn[f"dot{i + 1}"])[0], [206 + 30 * y[i], 440 - 18 * a[i]], atol=0.006)
        assert f"H{206 + 30 * y[i]:.2f}V" in drawn[f"bar{i + 1}"].get("d")
        assert drawn[f"open{i + 1}"].text == f"{100 * a[i] / y[i]:.0f} %"
        assert drawn[f"silu{i + 1}"].text == f"{100 * torch.sigmoid(y[i]):.0f} %"
        assert drawn[f"bar{i + 1}"].get("fill-opacity") == f"{a[i] / y[i]:.2f}"
    assert f"mean {y.mean():z.2f} and deviation {y.std(correction=0):.2f}." in said(page)
    assert f"LA-SiLU lets {100 * a[0] / y[0]:.0f} % through, SiLU {100 * torch.sigmoid(y[0]):.0f} %." in said(page)


@together("place", _PLACES)
def test_the_gates_start_as_the_package_computes_them(place):
    _is_the_packages_row(moving_gate(*place).html, *place)


@pytest.mark.browser
@together("place", _PLACES)
def test_the_gates_follow_the_sliders(figure, place):
    figure.show(moving_gate())
    figure.move(**dict(zip(("shift", "stretch", "push"), place, strict=True)))
    _is_the_packages_row(figure.now(), *place)


@pytest.mark.browser
def test_a_shift_leaves_the_gates_and_a_cry_moves_them(figure):
    figure.show(moving_gate())
    opened = lambda: [svg(figure.now())[f"open{i}"].text for i in range(1, 8)]  # noqa: E731
    quiet = opened()
    figure.press("all louder")
    assert opened() == quiet
    figure.press("one cries out")
    assert all(now != then for now, then in zip(opened(), quiet, strict=True))


@together("name, value, ends", [("shift", 3, "−2, 2"), ("stretch", 0.0, "0.1, 1.5"), ("push", -1, "0, 4")])
def test_a_start_outside_its_slider_is_refused(name, value, ends):
    with pytest.raises(ValueError, match=f"{name} must lie in \\[{ends.replace('−', '-')}\\]"):
        moving_gate(**{name: value})
