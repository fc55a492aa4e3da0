"""The figure of LayerAct: a row whose mean and deviation a reader moves, and its gates."""

from __future__ import annotations

import math

from companion.study.gated import GatedElements, percent
from companion.study.plotting import (
    COLOURS,
    LISTEN,
    NUMBER,
    Picture,
    buttons,
    check_start,
    filled,
    legend,
    moving,
    number,
    sliders,
)

__all__ = ["moving_gate"]

#: Eight elements; centred and divided by their deviation they are the row that shift and stretch act on.
_SHAPE = (0.9, -1.1, 1.5, 0.3, -0.2, -1.7, 0.5, -0.2)
_SHIFT, _STRETCH, _PUSH = (-2.0, 2.0), (0.1, 1.5), (0.0, 4.0)
_ALPHA = 1e-5
_FIGURE = GatedElements(
    symbol="y",
    middle=206,
    unit=30,
    reach=5.4,
    row=52,
    gate=296,
    out=440,
    out_unit=18,
    tall=516,
    ticks=range(-4, 5, 2),
    outputs=range(-2, 5, 2),
    open_at=424,
    steps=108,
)

_SCRIPT = (
    """
for (const figure of document.querySelectorAll(".neuron-gate:not([data-ready])")) {
  figure.dataset.ready = "";
  const inputs = ["shift", "stretch", "push"].map(name => figure.querySelector(`[name=${name}]`));
  const shape = @SHAPE@;
"""
    + NUMBER
    + """  const sigmoid = u => 1 / (1 + Math.exp(-u));
"""
    + _FIGURE.script()
    + """
  const draw = (shift, stretch, push) => {
    const row = shape.map((z, i) => shift + stretch * z + (i === 7 ? push : 0));
    const mean = row.reduce((sum, y) => sum + y) / 8;
    const v = row.reduce((sum, y) => sum + (y - mean) ** 2, 0) / 8;
    const gate = y => sigmoid((y - mean) / Math.sqrt(v + @ALPHA@));
    cross(mean, "mean " + number(mean));
    fill(row, gate);
    row.forEach((y, i) => { figure.querySelector(`.silu${i + 1}`).textContent = percent(sigmoid(y)); });
    figure.querySelector(".said").textContent = `The row has mean ${number(mean)} and deviation `
      + `${number(Math.sqrt(v))}. Of y₁ = ${number(row[0])} LA-SiLU lets ${percent(gate(row[0]))} through, `
      + `SiLU ${percent(sigmoid(row[0]))}.`;
  };"""
    + LISTEN
    + """}
"""
)

_PLACES = (
    ("as SiLU", (0.0, 1.0, 0.0)),
    ("all louder", (2.0, 1.0, 0.0)),
    ("all alike", (0.0, 0.1, 0.0)),
    ("one cries out", (0.0, 1.0, 4.0)),
)


def moving_gate(shift: float = 0.0, stretch: float = 1.0, push: float = 0.0) -> Picture:
    """A figure of one row under LA-SiLU, whose mean and deviation the reader moves, and one of its elements.

    The row has eight elements: mean 0 and deviation 1, times ``stretch``, plus ``shift``; the last one also plus
    ``push``. The figure draws the elements as bars, the gates s(n) of LA-SiLU and s(y) of SiLU, and the outputs y s on
    one axis of y. It needs no server and no network.

    Parameters
    ----------
    shift
        Where the slider of the shift starts, in [−2, 2].
    stretch
        Where that of the stretch starts, in [0.1, 1.5].
    push
        Where that of the last element starts, in [0, 4].

    Raises
    ------
    ValueError
        If a start lies outside its slider.
    """
    for name, value, ends in (("shift", shift, _SHIFT), ("stretch", stretch, _STRETCH), ("push", push, _PUSH)):
        check_start(name, value, ends)
    alt = (
        "Eight elements of a row as bars, with the gates of LA-SiLU and SiLU in percent; the two gates and the outputs "
        "below them on the same axis. A vertical line, the mean of the row, crosses all three: LA-SiLU's gate is half "
        "open there, SiLU's at zero. Three sliders shift the row, stretch it, and push its last element. The gate of "
        "LA-SiLU moves and widens with the row, so that its percentages stay; only the push changes them, all of them."
    )
    script = filled(_SCRIPT, {"SHAPE": _shape(), "ALPHA": _ALPHA})
    svg, said = _gate(shift, stretch, push, alt)
    rows = (
        ("shift", "shift all", _SHIFT, 0.05, shift, number(shift)),
        ("stretch", "stretch all", _STRETCH, 0.05, stretch, number(stretch)),
        ("push", "push y₈ alone", _PUSH, 0.05, push, number(push)),
    )
    signs = (
        ("━━", COLOURS[0], "LA-SiLU"),
        ("╍╍", COLOURS[4], "SiLU"),
        ("╍╍", COLOURS[1], "mean of the row: half open"),
    )
    return moving(
        "neuron-gate",
        "Move a row and one of its elements",
        [svg, legend(*signs), sliders(rows), buttons(_PLACES)],
        said=said,
        script=script,
        alt=alt,
    )


def _shape() -> list[float]:
    """Mean 0 and deviation 1, to rounding."""
    mean = math.fsum(_SHAPE) / len(_SHAPE)
    deviation = math.sqrt(math.fsum((z - mean) ** 2 for z in _SHAPE) / len(_SHAPE))
    return [(z - mean) / deviation for z in _SHAPE]


def _sigmoid(u: float) -> float:
    return 1 / (1 + math.exp(-u))


def _gate(shift: float, stretch: float, push: float, alt: str) -> tuple[str, str]:
    """The drawing, and what is said below it."""
    row = [shift + stretch * z for z in _shape()]
    row[-1] += push
    mean = sum(row) / len(row)
    variance = sum((y - mean) ** 2 for y in row) / len(row)

    def gate(y: float) -> float:
        return _sigmoid((y - mean) / math.sqrt(variance + _ALPHA))

    svg = _FIGURE.drawing(
        {f"y{index}": y for index, y in zip("₁₂₃₄₅₆₇₈", row, strict=True)},
        gate,
        (mean, f"mean {number(mean)}"),
        {
            "silu-gate": lambda at: _FIGURE.opening(_sigmoid(at)),
            "silu-output": lambda at: _FIGURE.output(at * _sigmoid(at)),
        },
        ("gate", "output"),
        [
            '<text x="424" y="28" text-anchor="end">LA</text>'
            '<text x="478" y="28" text-anchor="end" opacity=".65">SiLU</text>',
            *(
                f'<text class="silu{i}" opacity=".65" x="478" y="{_FIGURE.height(i) + 5}" text-anchor="end">'
                f"{percent(_sigmoid(y))}</text>"
                for i, y in enumerate(row, 1)
            ),
        ],
        alt,
    )
    return svg, (
        f"The row has mean {number(mean)} and deviation {number(math.sqrt(variance))}. Of y₁ = {number(row[0])} "
        f"LA-SiLU lets {percent(gate(row[0]))} through, SiLU {percent(_sigmoid(row[0]))}."
    )
