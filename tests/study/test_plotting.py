"""Figures have one look, describe themselves, and depend on nothing but their data."""

import re
import subprocess
import sys

import numpy as np
import pytest

from companion.study import plotting


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
        "from companion.study import plotting\n"
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


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        ModuleNotFoundError, match=r'matplotlib is missing: pip install "rethinking-the-neuron\[book\]"'
    ):
        plotting.subplots()


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
    script = "import sys, companion.study.plotting; sys.exit('matplotlib' in sys.modules)"
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
