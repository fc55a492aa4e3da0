"""Figures have one look, describe themselves, and depend on nothing but their data."""

import re
import subprocess
import sys

import numpy as np
import pytest

from companion import plotting
from companion.functional import aglu, apa, dac_linear


def _figure(offset: float = 0.0):
    figure, axes = plotting.subplots(figsize=(4, 2))
    axes.plot([0, 1, 2], [0, 1 + offset, 4], label="square")
    axes.legend()
    axes.set_title(r"$\lambda = 1$")
    return figure


def test_equal_figures_have_equal_bytes():
    assert plotting.picture(_figure(), alt="A curve.") == plotting.picture(_figure(), alt="A curve.")


def test_figures_have_equal_bytes_in_another_process():
    script = (
        "from companion import plotting\n"
        "figure, axes = plotting.subplots(figsize=(3, 2))\n"
        "axes.hist([1, 2, 2, 3]); axes.scatter([1, 2], [3, 4])\n"
        "print(plotting.picture(figure, alt='Bars.').html)\n"
    )
    pages = {
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(pages) == 1


def test_a_changed_curve_changes_the_bytes():
    assert plotting.picture(_figure(), alt="A curve.") != plotting.picture(_figure(0.05), alt="A curve.")


def test_a_difference_in_the_last_bits_does_not_change_the_bytes():
    assert plotting.picture(_figure(), alt="A curve.") == plotting.picture(_figure(1e-9), alt="A curve.")


def test_a_figure_carries_its_description_and_caption():
    picture = plotting.picture(_figure(), alt='A "curve" & more.', caption="Is it < 4?")
    assert 'role="img" aria-label="A &quot;curve&quot; &amp; more."' in picture.html
    assert "<figcaption>Is it &lt; 4?</figcaption>" in picture.html
    assert repr(picture) == 'Figure: A "curve" & more.'


def test_a_figure_without_description_is_refused():
    with pytest.raises(ValueError, match="alt must describe the figure"):
        plotting.picture(_figure(), alt=" ")


def test_a_figure_takes_the_colour_of_the_page_and_no_style_of_others():
    page = plotting.picture(_figure(), alt="A curve.").html
    assert "currentColor" in page
    assert "#010203" not in page
    assert "#000000" not in page
    assert "<style" not in page


def test_a_figure_holds_no_date_and_no_program():
    page = plotting.picture(_figure(), alt="A curve.").html
    assert "<metadata" not in page
    assert "Created with" not in page


def test_ids_of_two_figures_differ_and_every_reference_has_its_target():
    pages = [plotting.picture(_figure(), alt=alt).html for alt in ("A curve.", "Another curve.")]
    ids = [set(re.findall(r'\bid="([^"]+)"', page)) for page in pages]
    assert not ids[0] & ids[1]
    for page, own in zip(pages, ids, strict=True):
        assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page))
        assert {a or b for a, b in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page)} <= own


def test_show_displays_the_picture_once(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    plotting.show(_figure(), alt="A curve.")
    assert [repr(picture) for picture in shown] == ["Figure: A curve."]


def test_importing_the_module_does_not_import_matplotlib():
    script = "import sys, companion.plotting; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def _linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def _contrast(one: str, other: str) -> float:
    """WCAG 2.1, contrast ratio."""
    high, low = sorted((float(_linear(c) @ [0.2126, 0.7152, 0.0722]) + 0.05 for c in (one, other)), reverse=True)
    return high / low


@pytest.mark.parametrize("colour", plotting.COLOURS)
@pytest.mark.parametrize("background", ["#ffffff", plotting.DARK])
def test_every_colour_can_be_seen_on_white_and_on_black(colour, background):
    assert _contrast(colour, background) >= 3


# Linear-RGB matrices of Viénot, Brettel and Mollon (1999) for a reader without L cones or without M cones.
_COLOUR_BLIND = {
    "protanopia": [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]],
    "deuteranopia": [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]],
}


@pytest.mark.parametrize("kind", _COLOUR_BLIND)
def test_the_first_four_colours_differ_for_a_colour_blind_reader(kind):
    seen = [np.clip(np.array(_COLOUR_BLIND[kind]) @ _linear(colour), 0, 1) ** (1 / 2.2) for colour in plotting.COLOURS]
    distances = [np.linalg.norm(a - b) for i, a in enumerate(seen[:4]) for b in seen[:i]]
    assert min(distances) > 0.12


def test_curves_differ_in_more_than_colour():
    _, axes = plotting.subplots()
    styles = [axes.plot([0, 1])[0].get_linestyle() for _ in plotting.COLOURS[:4]]
    assert len(set(styles)) == 4


@pytest.mark.parametrize(("kappa", "lam"), [(1.0, 1.0), (-1.0, 1e-3), (10.0, 1e3), (0.0, 0.5), (10.0, 1e-3)])
def test_the_moving_figure_starts_with_the_packages_curves(kappa, lam):
    import torch

    page = plotting.moving_curve(kappa, lam).html
    z = torch.linspace(-5, 5, 201, dtype=torch.float64)
    for name, values in (("agl-curve", aglu(z, kappa, lam)), ("apa-curve", apa(z, kappa, lam))):
        path = re.search(rf'class="{name}".*? d="M([^"]+)"', page)
        drawn = np.array([float(point.split()[1]) for point in path[1].split("L")])
        expected = 320 * (5 - values.numpy()) / 6.6
        np.testing.assert_allclose(drawn, expected, atol=0.006)


def test_the_moving_figure_needs_no_network_and_has_labelled_sliders():
    page = plotting.moving_curve().html
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
        plotting.moving_curve(kappa, lam)


_UNITS = [
    ((1.0, -2.0, 1.0), (1.0, 0.0, -1.0)),
    ((3.0, -4.0, 2.0), (4.0, 3.0, 0.0)),
    ((-4.0, 0.5, 4.0), (-4.0, 4.0, 2.3)),
]


@pytest.mark.parametrize(("weights", "biases"), _UNITS)
def test_the_moving_hinges_start_with_the_packages_unit(weights, biases):
    import torch

    page = plotting.moving_hinges(weights, biases).html
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
    page = plotting.moving_hinges().html
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
        plotting.moving_hinges(weights, biases)
