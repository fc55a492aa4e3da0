"""The surfaces are what the package computes, seen from where the sliders say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from companion import MultiArgument
from companion.functional import quadratic_form
from companion.multi_argument.study.figures import learned_surface, quadratic_surface
from companion.multi_argument.study.surfaces import curvature
from tests.cases import together
from tests.study.moving import numbers, points, said, svg

_HAND = [(30.0, 35.0), (-135.0, 60.0), (90.0, 0.0), (180.0, 90.0), (-40.0, 15.0)]
_FORMS = [
    (0.0, 0.0, 1.0, 0.0, 0.0, 0.0),
    (0.5, -0.5, 0.0, 0.1, -0.2, 0.3),
    (1.0, 1.0, 1.0, 0.0, 0.0, -1.0),
    (-0.25, -0.25, 0.5, 0.0, 0.0, 0.0),
    (0.0, 0.0, 0.0, 0.7, 0.7, 0.0),
    (0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    (-1.0, -0.5, 0.3, 0.0, 0.0, 0.0),
]


def _seen(a, b, z, turn, tilt):
    """A point of the square at a height, turned about the vertical, then tilted about the drawing's horizontal."""
    t, v = math.radians(turn), math.radians(90 - tilt)
    about_vertical = np.array([[math.cos(t), -math.sin(t), 0], [math.sin(t), math.cos(t), 0], [0, 0, 1]])
    about_horizontal = np.array([[1, 0, 0], [0, math.cos(v), -math.sin(v)], [0, math.sin(v), math.cos(v)]])
    right, down, _ = about_horizontal @ about_vertical @ np.array([140 * a, 140 * b, 100 * z])
    return 220 + right, 230 + down


def _is_the_surface(page: str, heights: np.ndarray, turn: float, tilt: float) -> None:
    n, drawn = len(heights), svg(page)
    faces = [element for name, element in drawn.items() if name.partition(" ")[0] == "face"]
    assert len(faces) == (n - 1) ** 2
    axis = np.linspace(-1, 1, n)
    expected = {}
    for i in range(n - 1):
        for j in range(n - 1):
            corners = [(i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)]
            place = [_seen(axis[k], axis[m], heights[k, m], turn, tilt) for k, m in corners]
            expected[i, j] = np.array(place), np.mean([heights[c] for c in corners])
    order = []
    for face in faces:
        at = points(face)
        nearest = min(expected, key=lambda key: np.abs(expected[key][0] - at).max() + 1000 * (key in order))
        order.append(nearest)
        np.testing.assert_allclose(at, expected[nearest][0], atol=0.011)
        mean, (red, _, blue) = expected[nearest][1], numbers(face.get("fill"))
        assert (red > blue) == (mean > 0) or abs(mean) < 0.02
        assert abs(red - blue) == pytest.approx(213 * min(1, 1.4 * abs(mean)), abs=30)
    # of two neighbours the one that is nearer to the eye, lower in the plane, is drawn later
    s, c = math.sin(math.radians(turn)), math.cos(math.radians(turn))
    for i, j in expected:
        for other, nearer in (((i + 1, j), s), ((i, j + 1), c)):
            if other in expected and abs(nearer) > 1e-9:
                assert (order.index(other) > order.index((i, j))) == (nearer > 0)


def _moments() -> list[torch.Tensor]:
    torch.manual_seed(0)
    axis = torch.linspace(-2, 2, 6)
    return [MultiArgument().surface(axis, axis) for _ in range(3)]


def _heights(moment: int) -> np.ndarray:
    moments = torch.stack(_moments()).double()
    return (moments[moment - 1] / moments.abs().max()).numpy()


@together("turn, tilt", _HAND)
def test_the_learned_surface_begins_at_its_last_moment(turn, tilt):
    page = learned_surface(_moments(), ["one.", "two.", "three."], turn, tilt).html
    _is_the_surface(page, _heights(3), turn, tilt)
    assert said(page) == "three."


@pytest.mark.browser
@together("turn, tilt", _HAND)
def test_the_learned_surface_goes_through_its_moments_and_turns(figure, turn, tilt):
    figure.show(learned_surface(_moments(), ["one.", "two.", "three."]))
    figure.move(moment=1, turn=turn, tilt=tilt)
    _is_the_surface(figure.now(), _heights(1), turn, tilt)
    assert said(figure.now()) == "one."


def _states(page: str, states: torch.Tensor, turn: float, tilt: float) -> None:
    drawn = svg(page)
    for k, (a, b, z) in enumerate(states.tolist()):
        expected = _seen(a, b, z / torch.stack(_moments()).abs().max().item(), turn, tilt)
        np.testing.assert_allclose(points(drawn[f"corner{k}"])[0], expected, atol=0.02)


@pytest.mark.browser
def test_the_states_of_xor_move_with_the_moment_and_the_surface(figure):
    states = [torch.rand(4, 3, generator=torch.Generator().manual_seed(k)) * 2 - 1 for k in range(3)]
    picture = learned_surface(_moments(), ["one.", "two.", "three."], 20, 40, states)
    _states(picture.html, states[2], 20, 40)
    figure.show(picture)
    figure.move(moment=1, turn=-50, tilt=25)
    _states(figure.now(), states[0], -50, 25)
    assert "signs equal" in picture.html
    assert "signs equal" not in learned_surface(_moments(), ["one.", "two.", "three."]).html


@pytest.mark.browser
def test_a_finger_turns_the_surface_and_lets_it_go(figure):
    figure.show(learned_surface(_moments(), ["one.", "two.", "three."]))
    mouse, place = figure.page.mouse, figure.page.locator("svg").bounding_box()
    x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    mouse.move(x, y)
    mouse.down()
    mouse.move(x + 40, y + 20)
    mouse.up()
    mouse.move(x - 40, y)
    turn, tilt = (figure.page.locator(f"output.{name}").inner_text() for name in ("turn", "tilt"))
    assert (turn, tilt) == ("10", "45")
    _is_the_surface(figure.now(), _heights(3), 10, 45)


def _is_the_form(page: str, c: tuple[float, ...], turn: float, tilt: float) -> None:
    form = torch.tensor(c, dtype=torch.float64)
    axis = torch.linspace(-1.5, 1.5, 17, dtype=torch.float64)
    heights = (quadratic_form(torch.cartesian_prod(axis, axis), form, 2).view(17, 17) / 3).clamp(-1, 1).numpy()
    _is_the_surface(page, heights, turn, tilt)
    corners = [(-1, -1), (1, 1), (-1, 1), (1, -1)]
    values = quadratic_form(torch.tensor(corners, dtype=torch.float64), form, 2)[:, 0]
    drawn = svg(page)
    for k, (x, y) in enumerate(corners):
        expected = _seen(x / 1.5, y / 1.5, values[k].item() / 3, turn, tilt)
        np.testing.assert_allclose(points(drawn[f"corner{k}"])[0], expected, atol=0.011)
    words, (equal, different) = said(page), values.view(2, 2).tolist()
    K = curvature(form)
    kind = {
        1: "a bowl" if c[0] > 0 else "a dome",
        -1: "a saddle",
        0: "bent in one direction" if any(c[:2]) else "a plane",
    }
    assert words.startswith(f"K = {K:z.3f}: {kind[int(np.sign(round(K, 9)))]}.")
    assert f"equal: {equal[0]:z.2f} and {equal[1]:z.2f}; where they differ: {different[0]:z.2f} and" in words
    solved = min(equal) > max(different) + 1e-9 or max(equal) < min(different) - 1e-9
    assert ("XOR is solved" in words) == solved


@together("c", _FORMS)
def test_the_quadratic_starts_with_the_packages_form(c):
    _is_the_form(quadratic_surface(c).html, c, 30, 35)


@pytest.mark.browser
@together("c", _FORMS)
def test_the_quadratic_follows_its_sliders(figure, c):
    figure.show(quadratic_surface())
    figure.move(**{f"c{k}": value for k, value in enumerate(c, 1)}, turn=-50, tilt=20)
    _is_the_form(figure.now(), c, -50, 20)


@pytest.mark.browser
def test_a_button_makes_a_bowl_that_does_not_solve_xor(figure):
    figure.show(quadratic_surface())
    assert "a saddle" in said(figure.now())
    figure.press("a bowl")
    assert "a bowl" in said(figure.now())
    assert "No threshold" in said(figure.now())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: quadratic_surface([0, 0, 1]), "coefficients: got 3, allowed are six"),
        (lambda: quadratic_surface([2, 0, 0, 0, 0, 0]), r"c1 must lie in \[-1, 1\]; got 2"),
        (lambda: learned_surface([], []), "said: got 0 sentences for 0 moments"),
        (lambda: learned_surface([torch.zeros(3, 3)], ["a.", "b."]), "said: got 2 sentences for 1 moments"),
        (lambda: learned_surface([torch.zeros(3, 4)], ["a."]), r"got shapes \(3, 4\), allowed are equal squares"),
        (lambda: learned_surface([torch.zeros(3, 3)], ["a."], turn=200.0), "turn must lie in"),
        (
            lambda: learned_surface([torch.zeros(3, 3)], ["a."], states=[torch.zeros(4, 2)]),
            r"states: got shapes \(4, 2\)",
        ),
    ],
)
def test_bad_starts_and_shapes_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
