"""What holds of every figure that a reader moves with sliders."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from companion.dac.study.figures import moving_hinges
from companion.dnrt.study.figures import moving_means, moving_threshold
from companion.layeract.study.figures import moving_gate
from companion.multi_argument.study.figures import learned_surface, quadratic_surface
from companion.study.ground.figures import moving_sum
from tests.cases import together
from tests.study.moving import numbers, said, svg

FIGURES = [
    moving_gate(),
    moving_hinges(),
    moving_hinges((-3.0, 0.4, 1.7), (-1.0, 2.3, 2.3)),
    moving_threshold(),
    moving_means(),
    learned_surface([torch.eye(4), -torch.eye(4), torch.arange(16.0).view(4, 4) / 20], ["One.", "Two.", "Three."]),
    quadratic_surface(),
    moving_sum(),
]


@pytest.mark.browser
@together("picture", FIGURES, of=lambda picture: picture.alt[:24])
def test_the_script_redraws_what_stood_there_without_it(figure, picture):
    figure.show(picture)
    before, after = svg(picture.html), svg(figure.now())
    assert before.keys() == after.keys()
    for name, element in before.items():
        assert after[name].text == element.text
        assert after[name].keys() == element.keys()
        for key, value in element.items():
            assert re.sub(r"[\d.]+", "", after[name].get(key)) == re.sub(r"[\d.]+", "", value)
            np.testing.assert_allclose(numbers(after[name].get(key)), numbers(value), atol=0.011)
    assert said(figure.now()) == said(picture.html)


@pytest.mark.browser
@together("picture", FIGURES, of=lambda picture: picture.alt[:24])
def test_the_figures_move_with_the_keyboard_and_fit_a_phone(figure, picture):
    figure.page.set_viewport_size({"width": 390, "height": 844})
    figure.show(picture)
    assert figure.page.evaluate("document.documentElement.scrollWidth") <= 390
    for slider in figure.page.locator("input").all():
        before, shown = figure.now(), slider.get_attribute("aria-valuetext")
        slider.focus()
        figure.page.keyboard.press("ArrowLeft")
        if slider.get_attribute("aria-valuetext") == shown:  # it stood at its end
            figure.page.keyboard.press("ArrowRight")
        assert slider.get_attribute("aria-valuetext") != shown
        assert figure.now() != before


@together("picture", FIGURES, of=lambda picture: picture.alt[:24])
def test_the_moving_figures_need_no_network_and_have_labelled_sliders(picture):
    assert "http" not in picture.html
    assert "src=" not in picture.html
    assert "@" not in picture.html
    names = re.findall(r'<input type="range" name="(\w+)"', picture.html)
    assert names
    for name in names:
        assert f'name="{name}" aria-label="{name}"' in picture.html
