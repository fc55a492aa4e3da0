"""One look for every figure of the book, and the parts of figures that a reader can move.

Figures are inline SVG. Their text and axes take the colour of the surrounding page, so they can be read on
white and on black. Their bytes depend on nothing but the data: a changed curve is a changed output, and fails
a test.

This module imports Matplotlib when a figure is made, not when it is imported.
"""

from __future__ import annotations

import hashlib
import html
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from companion.extras import need

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "DARK", "HEIGHT", "WIDTH", "Picture", "drawing", "picture", "show", "slider", "subplots"]

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
    need("book", "matplotlib")
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
    need("book", "IPython")
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
    on_a_phone = f"--on-a-phone:{0.6 * pixels:.0f}px;" if 0.6 * pixels > 441 else ""
    opening = (
        f'<svg role="img" aria-label="{html.escape(alt)}" '
        f'style="width:100%;min-width:{min(pixels, 440):.0f}px;max-width:{pixels:.0f}px;{on_a_phone}height:auto;'
        'stroke-linejoin:round;stroke-linecap:butt" '
    )
    svg = re.sub(r'\s(?:width|height)="[\d.]+pt"', "", svg, count=2)
    return svg.replace("<svg ", opening, 1)


def _round(number: str) -> str:
    return f"{round(float(number), 2) + 0.0:g}"


WIDTH, HEIGHT = 480, 320
"""Of a figure that a reader can move, in the units of its SVG."""


def slider(name: str, symbol: str, ends: tuple[float, float], step: float, value: float, shown: str) -> str:
    """A row with a symbol, an input that the reader moves between the ends, and the value as text."""
    return (
        f'<label style="display:flex;gap:.6em;align-items:center">{symbol} '
        f'<input type="range" name="{name}" aria-label="{name}" '
        f'min="{ends[0]:g}" max="{ends[1]:g}" step="{step:g}" '
        f'value="{value:g}" aria-valuetext="{shown}" style="flex:1;min-width:0">'
        f'<output class="{name}" style="width:4.5em;text-align:right">{shown}</output></label>'
    )


def sliders(rows: Iterable[tuple[str, str, tuple[float, float], float, float, str]]) -> str:
    """Sliders whose symbols are equally wide; a row is what `slider` takes."""
    return "\n".join(
        slider(name, f'<span style="flex:none;width:7.5em">{symbol}</span>', ends, step, value, shown)
        for name, symbol, ends, step, value, shown in rows
    )


def legend(*signs: tuple[str, str, str]) -> str:
    """Signs, their colours and what they mean; no line breaks between a sign and its meaning."""
    each = " &nbsp; ".join(
        f'<span style="white-space:nowrap"><span style="color:{colour}">{sign}</span> {meaning}</span>'
        for sign, colour, meaning in signs
    )
    return f'<p style="margin:.3em 0">{each}</p>'


def moving(
    name: str, label: str, parts: Iterable[str], *, said: str, script: str, alt: str, width: int = 560
) -> Picture:
    """A figure that a reader moves: a class that its script looks for, drawing and sliders, a sentence, the script."""
    inside = "\n".join(parts)
    return Picture(
        f"""\
<div class="{name}" role="group" aria-label="{label}"
style="max-width:{width}px;margin:1em 0">
{inside}
<p class="said" role="status" style="margin:.3em 0">{html.escape(said, quote=False)}</p>
<script>{script}</script>
</div>""",
        alt,
    )


def number(value: float) -> str:
    """Two decimals and a true minus, zero without one, as `NUMBER` writes it."""
    return f"{value:z.2f}".replace("-", "−")


def whole(value: int) -> str:
    """A whole number with a true minus."""
    return f"{value}".replace("-", "−")


NUMBER = """
  const number = (value, digits = 2) => value.toFixed(digits).replace(/^-(?=0\\.?0*$)/, "").replace("-", "−");
"""
"""What a script of a figure that moves begins with: numbers as text."""

LISTEN = """
  const update = () => {
    draw(...inputs.map(input => Number(input.value)));
    for (const input of inputs) {
      const shown = number(Number(input.value), input.step.includes(".") ? 2 : 0);
      figure.querySelector("output." + input.name).textContent = shown;
      input.setAttribute("aria-valuetext", shown);
    }
  };
  for (const input of inputs) input.addEventListener("input", update);
  for (const button of figure.querySelectorAll("button")) button.addEventListener("click", () => {
    button.dataset.start.split(" ").forEach((value, k) => { inputs[k].value = value; });
    update();
  });
  update();
"""
"""What it ends with: ``draw`` is called with the values of ``inputs`` at each move of a slider or press of a button."""


def check_start(name: str, value: float, ends: tuple[float, float]) -> None:
    """Refuse a start that lies outside its slider."""
    if not ends[0] <= value <= ends[1]:
        raise ValueError(f"{name} must lie in [{ends[0]:g}, {ends[1]:g}]; got {value!r}")


def buttons(places: Iterable[tuple[str, Sequence[float]]]) -> str:
    """A row of buttons, each with what it is called and where it moves the sliders, in their order."""
    each = "\n".join(
        f'<button type="button" data-start="{" ".join(f"{value:g}" for value in start)}">{name}</button>'
        for name, start in places
    )
    return f'<p style="margin:.3em 0;display:flex;flex-wrap:wrap;gap:.4em">\n{each}\n</p>'


def filled(script: str, values: Mapping[str, object]) -> str:
    """A script with numbers, and lists of them, in the place of @NAMES@."""
    for name, value in values.items():
        text = f"{value:g}" if isinstance(value, int | float) else json.dumps(value)
        script = script.replace(f"@{name}@", text)
    return script


def drawing(
    curves: str,
    alt: str,
    variable: str,
    ticks: tuple[Sequence[int], Sequence[int]],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> str:
    """Axes through the origin, and curves."""
    marks = "".join(
        f'<path d="M{x(t):g} {y(0) - 3:.2f}v6"/><text x="{x(t):g}" y="{HEIGHT - 6}" text-anchor="middle">{t}</text>'
        for t in ticks[0]
    ) + "".join(
        f'<path d="M{x(0) - 3:g} {y(t):.2f}h6"/><text x="{x(0) - 8:g}" y="{y(t) + 5:.2f}" text-anchor="end">{t}</text>'
        for t in ticks[1]
    )
    return f"""\
<svg role="img" aria-label="{html.escape(alt)}"
viewBox="0 0 {WIDTH} {HEIGHT}" style="width:100%;height:auto">
<g stroke="currentColor" fill="none" opacity=".7"><path d="M0 {y(0):.2f}H{WIDTH}M{x(0):g} 0V{HEIGHT}"/></g>
<g stroke="currentColor" stroke-width="1" font-size="14" fill="currentColor"
style="font-family:sans-serif"><g style="stroke-width:.3">{marks}</g>
<text style="stroke-width:.3" x="{WIDTH - 4}" y="{y(0) - 8:.2f}" text-anchor="end">{variable}</text></g>
<g fill="none" stroke-width="3">
{curves}
</g>
</svg>"""
