"""One look for every figure of the book, and the figure that a reader can move.

Figures are inline SVG. Their text and axes take the colour of the surrounding page, so they can be read on
white and on black. Their bytes depend on nothing but the data: a changed curve is a changed output, and fails
a test.

This module imports Matplotlib when a figure is made, not when it is imported.
"""

from __future__ import annotations

import hashlib
import html
import io
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "DARK", "Picture", "moving_curve", "moving_hinges", "picture", "show", "subplots"]

COLOURS = ("#0077bb", "#d55e00", "#009e73", "#c2569a", "#7f7f7f", "#a6761d", "#7570d3")
"""The colour cycle. Each has a contrast of at least 3 against white and against `DARK`."""

_LINE_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))

# Matplotlib knows no "colour of the page". It draws text and axes in this one, and `picture` replaces it.
_INK = "#010203"

DARK = "#121212"
"""The background of the book's dark theme."""


def _style() -> dict[Any, Any]:
    from cycler import cycler

    return {
        "axes.edgecolor": _INK,
        "axes.facecolor": "none",
        "axes.grid": True,
        "axes.labelcolor": _INK,
        "axes.prop_cycle": cycler(color=COLOURS, linestyle=_LINE_STYLES),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlecolor": _INK,
        "axes.titlesize": "medium",
        "figure.constrained_layout.use": True,
        "figure.facecolor": "none",
        "figure.figsize": (6.4, 3.6),
        # The font that Matplotlib ships, drawn as paths: the same on every machine.
        "font.family": "DejaVu Sans",
        "font.size": 10.0,
        "grid.alpha": 0.25,
        "grid.color": _INK,
        "legend.edgecolor": "none",
        "legend.facecolor": "none",
        "legend.labelcolor": _INK,
        "lines.linewidth": 1.8,
        "svg.fonttype": "path",
        "svg.hashsalt": "rethinking-the-neuron",
        "text.color": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
    }


@dataclass(frozen=True, repr=False)
class Picture:
    """A piece of HTML that notebooks display, and its description in words.

    Parameters
    ----------
    html
        What a notebook or a rendered page shows.
    alt
        What a reader gets who cannot see it.
    """

    html: str
    alt: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return f"Figure: {self.alt}"


def subplots(rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """Make a figure in the look of the book.

    Works as ``matplotlib.pyplot.subplots``, without pyplot: the figure is shown when `show` is called and
    never by itself. The look stays set for the rest of the process.

    Parameters
    ----------
    rows, columns
        How many axes.
    **options
        ``figsize`` goes to the figure; everything else (``sharex``, ``sharey``, ``width_ratios`` …) to
        ``Figure.subplots``.

    Returns
    -------
    tuple of Figure and Axes
        The axes are one ``Axes``, or an array of them, as pyplot returns them.

    Examples
    --------
    >>> figure, axes = subplots(figsize=(4, 2))
    >>> _ = axes.plot([0, 1], [0, 1])
    >>> picture(figure, alt="A straight line.")
    Figure: A straight line.
    """
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams.update(_style())
    figure = Figure(figsize=options.pop("figsize", None))
    return figure, figure.subplots(rows, columns, **options)


def show(figure: Figure, *, alt: str, caption: str | None = None) -> None:
    """Display a figure in a notebook, as inline SVG with a description, and close it.

    Parameters
    ----------
    figure
        A Matplotlib figure.
    alt
        What the figure shows, in a sentence, for a reader who cannot see it.
    caption
        The question that the figure answers; stands below it.

    Raises
    ------
    ValueError
        If ``alt`` is empty.
    """
    from IPython.display import display  # type: ignore[attr-defined,unused-ignore]

    display(picture(figure, alt=alt, caption=caption))  # type: ignore[no-untyped-call,unused-ignore]
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close(figure)


def picture(figure: Figure, *, alt: str, caption: str | None = None) -> Picture:
    """Turn a figure into the HTML that `show` displays.

    Parameters
    ----------
    figure, alt, caption
        As in `show`.

    Returns
    -------
    Picture
        Equal figures give equal bytes.

    Raises
    ------
    ValueError
        If ``alt`` is empty.
    """
    if not alt.strip():
        raise ValueError(f"alt must describe the figure in words; got {alt!r}")
    import matplotlib

    stream = io.StringIO()
    with matplotlib.rc_context(_style()):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    svg = _inline(stream.getvalue(), alt)
    below = f"\n<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return Picture(f'<figure class="neuron-figure" style="margin:1em 0;overflow-x:auto">\n{svg}{below}\n</figure>', alt)


def _inline(document: str, alt: str) -> str:
    """Matplotlib's SVG document as an element of a page."""
    svg = document[document.index("<svg") :].rstrip()
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Its style sheet names every element of the page; the opening tag below says the same of this figure.
    svg = re.sub(r"\s*<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = svg.replace(_INK, "currentColor")
    # A difference in the last bit of a computed value must not change the bytes.
    # A hundredth of a point cannot be seen.
    svg = re.sub(
        r'(?<=[\s"])(?:d|x|y)="[^"]*"|translate\([^)]*\)',
        lambda attribute: re.sub(r"-?\d+\.\d{3,}", lambda number: _round(number[0]), attribute[0]),
        svg,
    )
    # Ids are shared by everything on a page, and Matplotlib calls the first axes of every figure axes_1. They are
    # numbered, because Matplotlib's own hold hashes of what is drawn.
    prefix = "f" + hashlib.sha256(alt.encode()).hexdigest()[:8]
    names = {name: f"{prefix}-{number}" for number, name in enumerate(re.findall(r'\bid="([^"]+)"', svg))}
    svg = re.sub(
        r'(?P<before>\bid="|href="#|url\(#)(?P<name>[^")]+)', lambda use: use["before"] + names[use["name"]], svg
    )
    width = re.search(r'width="([\d.]+)pt"', svg)
    assert width is not None
    pixels = float(width[1]) * 4 / 3
    # On a phone a figure stops shrinking where its text would become too small, and scrolls in its own box.
    opening = (
        f'<svg role="img" aria-label="{html.escape(alt)}" '
        f'style="width:100%;min-width:{min(pixels, 440):.0f}px;max-width:{pixels:.0f}px;height:auto;'
        'stroke-linejoin:round;stroke-linecap:butt" '
    )
    svg = re.sub(r'\s(?:width|height)="[\d.]+pt"', "", svg, count=2)
    return svg.replace("<svg ", opening, 1)


def _round(number: str) -> str:
    return f"{round(float(number), 2) + 0.0:g}"


_KAPPA = (-1.0, 10.0)
_LOG_LAM = (-3.0, 3.0)
_Z, _Y = 5.0, (-1.6, 5.0)
_WIDTH, _HEIGHT = 480, 320
_SAMPLES = 200

_SCRIPT = """
for (const figure of document.querySelectorAll(".neuron-curve:not([data-ready])")) {
  figure.dataset.ready = "";
  const kappa = figure.querySelector("[name=kappa]"), lam = figure.querySelector("[name=lam]");
  const [low, high] = [@LOW@, @HIGH@], [width, height, reach] = [@WIDTH@, @HEIGHT@, @REACH@];
  // ln eta = -softplus(ln lam - kappa z) / lam; softplus(u) = max(u, 0) + ln(1 + exp(-|u|)) never overflows.
  const eta = (z, k, l) => {
    const u = Math.log(l) - k * z;
    return Math.exp(-(Math.max(u, 0) + Math.log1p(Math.exp(-Math.abs(u)))) / l);
  };
  const path = f => Array.from({length: @SAMPLES@ + 1}, (_, i) => {
    const z = reach * (2 * i / @SAMPLES@ - 1);
    return (i ? "L" : "M") + (width * (z / reach + 1) / 2).toFixed(2) + " "
      + (height * (high - f(z)) / (high - low)).toFixed(2);
  }).join("");
  const draw = () => {
    const k = Number(kappa.value), l = 10 ** Number(lam.value);
    figure.querySelector(".agl-curve").setAttribute("d", path(z => z * eta(z, k, l)));
    figure.querySelector(".apa-curve").setAttribute("d", path(z => eta(z, k, l)));
    const shown = {kappa: k.toFixed(2), lam: l.toPrecision(3)};
    for (const input of [kappa, lam]) {
      figure.querySelector("output." + input.name).textContent = shown[input.name];
      input.setAttribute("aria-valuetext", shown[input.name]);
    }
  };
  for (const input of [kappa, lam]) input.addEventListener("input", draw);
  for (const button of figure.querySelectorAll("button")) button.addEventListener("click", () => {
    kappa.value = button.dataset.kappa;
    lam.value = Math.log10(button.dataset.lam);
    draw();
  });
  draw();
}
"""

_PLACES = (
    ("Sigmoid and SiLU", 1.0, 1.0),
    ("near GELU", 1.702, 1.0),
    ("near ReLU", 10.0, 1.0),
    ("near Gumbel", 1.0, 1e-3),
    ("a line", 0.0, 1.0),
)


def moving_curve(kappa: float = 1.0, lam: float = 1.0) -> Picture:
    """A figure of AGLU and APA in which the reader moves κ and λ.

    It needs no server and no network: the curves are computed where they are shown, by the formula
    η = (1 + λ e^(−κz))^(−1/λ).

    Parameters
    ----------
    kappa
        Where the slider of κ starts, in [−1, 10].
    lam
        Where the slider of λ starts, in [0.001, 1000].

    Returns
    -------
    Picture
        Displays itself when it is the last value of a cell.

    Raises
    ------
    ValueError
        If a start lies outside the slider.
    """
    if not _KAPPA[0] <= kappa <= _KAPPA[1]:
        raise ValueError(f"kappa must lie in [{_KAPPA[0]:g}, {_KAPPA[1]:g}]; got {kappa!r}")
    if not 10 ** _LOG_LAM[0] <= lam <= 10 ** _LOG_LAM[1]:
        raise ValueError(f"lam must lie in [{10 ** _LOG_LAM[0]:g}, {10 ** _LOG_LAM[1]:g}]; got {lam!r}")
    alt = (
        f"The curves of AGLU and of APA for z from {-_Z:g} to {_Z:g}. "
        "Two sliders change kappa and lambda, and the curves follow."
    )
    script = _SCRIPT
    for name, value in {
        "LOW": _Y[0],
        "HIGH": _Y[1],
        "WIDTH": _WIDTH,
        "HEIGHT": _HEIGHT,
        "REACH": _Z,
        "SAMPLES": _SAMPLES,
    }.items():
        script = script.replace(f"@{name}@", f"{value:g}")
    places = "\n".join(
        f'<button type="button" data-kappa="{k:g}" data-lam="{m:g}">{name}</button>' for name, k, m in _PLACES
    )
    page = f"""\
<div class="neuron-curve" role="group" aria-label="Move kappa and lambda"
style="max-width:640px;margin:1em 0">
{_curves(kappa, lam, alt)}
<p style="margin:.3em 0">
<span style="color:{COLOURS[0]}">━━</span> z·η, AGLU &nbsp;
<span style="color:{COLOURS[1]}">╍╍</span> η, APA</p>
{_slider("kappa", "κ", _KAPPA, 0.01, kappa, f"{kappa:.2f}")}
{_slider("lam", "λ", _LOG_LAM, 0.01, math.log10(lam), f"{lam:.3g}")}
<p style="margin:.3em 0;display:flex;flex-wrap:wrap;gap:.4em">
{places}
</p>
<script>{script}</script>
</div>"""
    return Picture(page, alt)


def _slider(name: str, symbol: str, ends: tuple[float, float], step: float, value: float, shown: str) -> str:
    return (
        f'<label style="display:flex;gap:.6em;align-items:center">{symbol} '
        f'<input type="range" name="{name}" aria-label="{name}" '
        f'min="{ends[0]:g}" max="{ends[1]:g}" step="{step:g}" '
        f'value="{value:g}" aria-valuetext="{shown}" style="flex:1;min-width:0">'
        f'<output class="{name}" style="width:4.5em;text-align:right">{shown}</output></label>'
    )


def _eta(z: float, kappa: float, lam: float) -> float:
    """η, as the script computes it: the page shows the right curve before the script has run."""
    u = math.log(lam) - kappa * z
    return math.exp(-(max(u, 0.0) + math.log1p(math.exp(-abs(u)))) / lam)


def _curves(kappa: float, lam: float, alt: str) -> str:
    def x(z: float) -> float:
        return _WIDTH * (z / _Z + 1) / 2

    def y(value: float) -> float:
        return _HEIGHT * (_Y[1] - value) / (_Y[1] - _Y[0])

    zs = [_Z * (2 * i / _SAMPLES - 1) for i in range(_SAMPLES + 1)]
    paths = [
        "M" + "L".join(f"{x(z):.2f} {y((z if times_z else 1.0) * _eta(z, kappa, lam)):.2f}" for z in zs)
        for times_z in (True, False)
    ]
    return _drawing(
        f"""\
<path class="agl-curve" stroke="{COLOURS[0]}" d="{paths[0]}"/>
<path class="apa-curve" stroke="{COLOURS[1]}" stroke-dasharray="7 4" d="{paths[1]}"/>""",
        alt,
        "z",
        ((-4, -2, 2, 4), (-1, 1, 2, 3, 4)),
        x,
        y,
    )


def _drawing(
    curves: str,
    alt: str,
    variable: str,
    ticks: tuple[Sequence[int], Sequence[int]],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> str:
    """Axes through the origin, and curves."""
    marks = "".join(
        f'<path d="M{x(t):g} {y(0) - 3:.2f}v6"/><text x="{x(t):g}" y="{_HEIGHT - 6}" text-anchor="middle">{t}</text>'
        for t in ticks[0]
    ) + "".join(
        f'<path d="M{x(0) - 3:g} {y(t):.2f}h6"/><text x="{x(0) - 8:g}" y="{y(t) + 5:.2f}" text-anchor="end">{t}</text>'
        for t in ticks[1]
    )
    return f"""\
<svg role="img" aria-label="{html.escape(alt)}"
viewBox="0 0 {_WIDTH} {_HEIGHT}" style="width:100%;height:auto">
<g stroke="currentColor" fill="none" opacity=".7"><path d="M0 {y(0):.2f}H{_WIDTH}M{x(0):g} 0V{_HEIGHT}"/></g>
<g stroke="currentColor" stroke-width="1" font-size="14" fill="currentColor"
style="font-family:sans-serif"><g style="stroke-width:.3">{marks}</g>
<text style="stroke-width:.3" x="{_WIDTH - 4}" y="{y(0) - 8:.2f}" text-anchor="end">{variable}</text></g>
<g fill="none" stroke-width="3">
{curves}
</g>
</svg>"""


_PARAMETER = (-4.0, 4.0)
_X, _F = 4.0, (-3.0, 4.0)

_HINGES_SCRIPT = """
for (const figure of document.querySelectorAll(".neuron-hinges:not([data-ready])")) {
  figure.dataset.ready = "";
  const inputs = ["w", "b"].map(name => [1, 2, 3].map(j => figure.querySelector(`[name=${name}${j}]`)));
  const [low, high] = [@LOW@, @HIGH@], [width, height, reach] = [@WIDTH@, @HEIGHT@, @REACH@];
  const draw = () => {
    const [w, b] = inputs.map(row => row.map(input => Number(input.value)));
    // f(x) = sum_j w_j max(0, b_j + x) is straight between its kinks -b_j
    const path = terms => {
      const kinks = terms.map(j => -b[j]).filter(x => Math.abs(x) < reach).sort((p, q) => p - q);
      return "M" + [-reach, ...kinks, reach].map(x => {
        const f = terms.reduce((sum, j) => sum + w[j] * Math.max(0, b[j] + x), 0);
        return (width * (x / reach + 1) / 2).toFixed(2) + " " + (height * (high - f) / (high - low)).toFixed(2);
      }).join("L");
    };
    figure.querySelector(".sum").setAttribute("d", path([0, 1, 2]));
    [0, 1, 2].forEach(j => figure.querySelector(`.hinge${j + 1}`).setAttribute("d", path([j])));
    for (const input of inputs.flat()) {
      const shown = Number(input.value).toFixed(1);
      figure.querySelector("output." + input.name).textContent = shown;
      input.setAttribute("aria-valuetext", shown);
    }
  };
  for (const input of inputs.flat()) input.addEventListener("input", draw);
  for (const button of figure.querySelectorAll("button")) button.addEventListener("click", () => {
    button.dataset.start.split(" ").forEach((value, k) => { inputs.flat()[k].value = value; });
    draw();
  });
  draw();
}
"""

# Name, weights and biases.
_HINGES = (
    ("a tent", (1.0, -2.0, 1.0), (1.0, 0.0, -1.0)),
    ("a ramp", (1.0, -1.0, 0.0), (1.0, -1.0, 0.0)),
    ("|x|, from −3 on", (3.0, -4.0, 2.0), (4.0, 3.0, 0.0)),
    ("ReLU", (1.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
)


def moving_hinges(weights: Sequence[float] = (1.0, -2.0, 1.0), biases: Sequence[float] = (1.0, 0.0, -1.0)) -> Picture:
    """A figure of one dendrite-activated unit with its input replicated three times, moved by the reader.

    It draws Σ_j w_j max(0, b_j + x) and each of the three terms. It needs no server and no network.

    Parameters
    ----------
    weights, biases : sequence of float
        Where the six sliders start: three numbers each, in [−4, 4].

    Returns
    -------
    Picture
        Displays itself when it is the last value of a cell.

    Raises
    ------
    ValueError
        If there are not three numbers, or one lies outside its slider.
    """
    for name, values in (("weights", weights), ("biases", biases)):
        if len(values) != 3 or not all(_PARAMETER[0] <= value <= _PARAMETER[1] for value in values):
            raise ValueError(
                f"{name} must be three numbers in [{_PARAMETER[0]:g}, {_PARAMETER[1]:g}]; got {list(values)!r}"
            )
    alt = (
        "A sum of three hinges over x from −4 to 4, and the hinges themselves, thin. Six sliders change their weights "
        "and biases, and the lines follow."
    )
    script = _HINGES_SCRIPT
    for name, value in {"LOW": _F[0], "HIGH": _F[1], "WIDTH": _WIDTH, "HEIGHT": _HEIGHT, "REACH": _X}.items():
        script = script.replace(f"@{name}@", f"{value:g}")
    sliders = "\n".join(
        _slider(f"{letter}{j}", f"{letter}{'₁₂₃'[j - 1]}", _PARAMETER, 0.1, value, f"{value:.1f}")
        for j in (1, 2, 3)
        for letter, value in (("w", weights[j - 1]), ("b", biases[j - 1]))
    )
    starts = "\n".join(
        f'<button type="button" data-start="{" ".join(f"{value:g}" for value in (*w, *b))}">{name}</button>'
        for name, w, b in _HINGES
    )
    page = f"""\
<div class="neuron-hinges" role="group" aria-label="Move weights and biases"
style="max-width:640px;margin:1em 0">
{_hinges(weights, biases, alt)}
<p style="margin:.3em 0">
<span style="color:{COLOURS[0]}">━━</span> the unit &nbsp;
<span style="color:{COLOURS[1]}">──</span> its three terms</p>
<div style="display:grid;grid-template-columns:repeat(auto-fit,minmax(15em,1fr));grid-auto-flow:row;column-gap:1.5em">
{sliders}
</div>
<p style="margin:.3em 0;display:flex;flex-wrap:wrap;gap:.4em">
{starts}
</p>
<script>{script}</script>
</div>"""
    return Picture(page, alt)


def _hinges(weights: Sequence[float], biases: Sequence[float], alt: str) -> str:
    def x(value: float) -> float:
        return _WIDTH * (value / _X + 1) / 2

    def y(value: float) -> float:
        return _HEIGHT * (_F[1] - value) / (_F[1] - _F[0])

    def path(terms: Sequence[int]) -> str:
        kinks = sorted(-biases[j] for j in terms if abs(biases[j]) < _X)
        points = (
            f"{x(at):.2f} {y(sum(weights[j] * max(0.0, biases[j] + at) for j in terms)):.2f}"
            for at in (-_X, *kinks, _X)
        )
        return "M" + "L".join(points)

    thin = "\n".join(
        f'<path class="hinge{j + 1}" stroke="{COLOURS[1]}" stroke-width="1" d="{path([j])}"/>' for j in range(3)
    )
    thick = f'<path class="sum" stroke="{COLOURS[0]}" d="{path([0, 1, 2])}"/>'
    return _drawing(f"{thin}\n{thick}", alt, "x", ((-3, -2, -1, 1, 2, 3), (-2, -1, 1, 2, 3)), x, y)
