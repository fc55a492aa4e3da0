"""The figure of LayerAct: a row whose mean and deviation a reader moves, and its gates."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence

from companion.plotting import (
    COLOURS,
    LISTEN,
    NUMBER,
    WIDTH,
    Picture,
    buttons,
    check_start,
    filled,
    legend,
    moving,
    number,
    sliders,
    whole,
)

__all__ = ["moving_gate"]

#: Eight elements; centred and divided by their deviation they are the row that shift and stretch act on.
_SHAPE = (0.9, -1.1, 1.5, 0.3, -0.2, -1.7, 0.5, -0.2)
_SHIFT, _STRETCH, _PUSH = (-2.0, 2.0), (0.1, 1.5), (0.0, 4.0)
_ALPHA = 1e-5
#: The elements, the gate and the output share one axis of y; the line of the mean crosses all three.
_MIDDLE, _UNIT, _REACH = 206, 30, 5.4
_ROW, _BETWEEN_ROWS = 52, 20
_GATE_0, _GATE_UNIT = 296, 64
_OUT_0, _OUT_UNIT = 440, 18
_TOP, _BOTTOM, _TALL = 24, 492, 516
_STEPS = 108

_SCRIPT = (
    """
for (const figure of document.querySelectorAll(".neuron-gate:not([data-ready])")) {
  figure.dataset.ready = "";
  const inputs = ["shift", "stretch", "push"].map(name => figure.querySelector(`[name=${name}]`));
  const shape = @SHAPE@;
"""
    + NUMBER
    + """  const sigmoid = u => 1 / (1 + Math.exp(-u));
  const x = value => @MIDDLE@ + @UNIT@ * value;
  const out = value => @OUT_0@ - @OUT_UNIT@ * value;
  const path = y => "M" + Array.from({length: @STEPS@ + 1}, (_, i) => {
    const at = @REACH@ * (2 * i / @STEPS@ - 1);
    return x(at).toFixed(2) + " " + y(at).toFixed(2);
  }).join("L");
  const draw = (shift, stretch, push) => {
    const row = shape.map((z, i) => shift + stretch * z + (i === 7 ? push : 0));
    const mean = row.reduce((sum, y) => sum + y) / 8;
    const v = row.reduce((sum, y) => sum + (y - mean) ** 2, 0) / 8;
    const gate = y => sigmoid((y - mean) / Math.sqrt(v + @ALPHA@));
    figure.querySelector(".gate").setAttribute("d", path(at => @GATE_0@ - @GATE_UNIT@ * gate(at)));
    figure.querySelector(".output").setAttribute("d", path(at => out(at * gate(at))));
    figure.querySelector(".mean").setAttribute("d", `M${x(mean).toFixed(2)} @TOP@V@BOTTOM@`);
    const label = figure.querySelector(".label");
    label.setAttribute("x", x(mean).toFixed(2));
    label.textContent = "mean " + number(mean);
    row.forEach((y, i) => {
      const open = gate(y), height = @ROW@ + @BETWEEN_ROWS@ * i;
      const bar = figure.querySelector(`.bar${i + 1}`);
      bar.setAttribute("d", `M@MIDDLE@ ${height - 6}H${x(y).toFixed(2)}V${height + 6}H@MIDDLE@Z`);
      bar.setAttribute("fill-opacity", open.toFixed(2));
      figure.querySelector(`.open${i + 1}`).textContent = (100 * open).toFixed(0) + " %";
      figure.querySelector(`.silu${i + 1}`).textContent = (100 * sigmoid(y)).toFixed(0) + " %";
      figure.querySelector(`.dot${i + 1}`).setAttribute(
        "transform", `translate(${x(y).toFixed(2)} ${out(y * open).toFixed(2)})`);
    });
    figure.querySelector(".said").textContent = `The row has mean ${number(mean)} and deviation `
      + `${number(Math.sqrt(v))}. Of y₁ = ${number(row[0])} LA-SiLU lets ${(100 * gate(row[0])).toFixed(0)} % through, `
      + `SiLU ${(100 * sigmoid(row[0])).toFixed(0)} %.`;
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

    Returns
    -------
    Picture
        Displays itself when it is the last value of a cell.

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
    script = filled(
        _SCRIPT,
        {
            "SHAPE": _shape(),
            "ALPHA": _ALPHA,
            "MIDDLE": _MIDDLE,
            "UNIT": _UNIT,
            "REACH": _REACH,
            "ROW": _ROW,
            "BETWEEN_ROWS": _BETWEEN_ROWS,
            "GATE_0": _GATE_0,
            "GATE_UNIT": _GATE_UNIT,
            "OUT_0": _OUT_0,
            "OUT_UNIT": _OUT_UNIT,
            "TOP": _TOP,
            "BOTTOM": _BOTTOM,
            "STEPS": _STEPS,
        },
    )
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

    said = (
        f"The row has mean {number(mean)} and deviation {number(math.sqrt(variance))}. Of y₁ = {number(row[0])} "
        f"LA-SiLU lets {100 * gate(row[0]):.0f} % through, SiLU {100 * _sigmoid(row[0]):.0f} %."
    )
    return _drawing(row, mean, gate, alt), said


def _drawing(row: Sequence[float], mean: float, gate: Callable[[float], float], alt: str) -> str:
    def x(value: float) -> float:
        return _MIDDLE + _UNIT * value

    def out(value: float) -> float:
        return _OUT_0 - _OUT_UNIT * value

    grid = [_REACH * (2 * i / _STEPS - 1) for i in range(_STEPS + 1)]

    def path(height: Callable[[float], float]) -> str:
        return "M" + "L".join(f"{x(at):.2f} {height(at):.2f}" for at in grid)

    bars, dots, texts = [], [], []
    for i, y in enumerate(row, 1):
        height, opening = _ROW + _BETWEEN_ROWS * (i - 1), gate(y)
        colour = {1: COLOURS[3], 8: COLOURS[2]}.get(i, COLOURS[0])
        bars.append(
            f'<path class="bar{i}" stroke="{colour}" fill="{colour}" fill-opacity="{opening:.2f}" '
            f'd="M{_MIDDLE} {height - 6}H{x(y):.2f}V{height + 6}H{_MIDDLE}Z"/>'
        )
        dots.append(
            f'<circle class="dot{i}" fill="{colour}" r="{7 if i in (1, 8) else 5}" '
            f'transform="translate({x(y):.2f} {out(y * opening):.2f})"/>'
        )
        texts.append(
            f'<text x="2" y="{height + 5}">y{"₁₂₃₄₅₆₇₈"[i - 1]}</text>'
            f'<text class="open{i}" x="424" y="{height + 5}" text-anchor="end">{100 * opening:.0f} %</text>'
            f'<text class="silu{i}" opacity=".65" x="478" y="{height + 5}" text-anchor="end">'
            f"{100 * _sigmoid(y):.0f} %</text>"
        )
    left, right = x(-_REACH), x(_REACH)
    axes = "".join(
        f'<path d="M{left:g} {y:g}H{right:g}"/>' for y in (_GATE_0, _GATE_0 - _GATE_UNIT / 2, _GATE_0 - _GATE_UNIT)
    )
    axes += f'<path d="M{left:g} {_OUT_0}H{right:g}M{_MIDDLE} {_TOP}V{_BOTTOM}"/>'
    marks = "".join(
        f'<text x="{x(at):g}" y="{_TALL - 4}" text-anchor="middle">{whole(at)}</text>' for at in (-4, -2, 0, 2, 4)
    )
    marks += "".join(
        f'<text x="36" y="{_GATE_0 - _GATE_UNIT * at + 5:g}" text-anchor="end">{name}</text>'
        for at, name in ((0, "0"), (0.5, "½"), (1, "1"))
    )
    marks += "".join(f'<text x="36" y="{out(at) + 5:g}" text-anchor="end">{whole(at)}</text>' for at in (-2, 0, 2, 4))
    silu = f'stroke="{COLOURS[4]}" stroke-width="2" stroke-dasharray="5 4"'
    return f"""\
<svg role="img" aria-label="{html.escape(alt)}" viewBox="0 0 {WIDTH} {_TALL}" style="width:100%;height:auto">
<g stroke="currentColor" fill="none" opacity=".35">{axes}</g>
<g stroke-width="1.5">
{"".join(bars)}
</g>
<g fill="none" stroke-width="3">
<path class="silu-gate" {silu} d="{path(lambda at: _GATE_0 - _GATE_UNIT * _sigmoid(at))}"/>
<path class="silu-output" {silu} d="{path(lambda at: out(at * _sigmoid(at)))}"/>
<path class="gate" stroke="{COLOURS[0]}" d="{path(lambda at: _GATE_0 - _GATE_UNIT * gate(at))}"/>
<path class="output" stroke="{COLOURS[0]}" d="{path(lambda at: out(at * gate(at)))}"/>
<path class="mean" stroke="{COLOURS[1]}" stroke-width="2.5" stroke-dasharray="8 4" d="M{x(mean):.2f} {_TOP}V{_BOTTOM}"/>
</g>
<g>{"".join(dots)}</g>
<g fill="currentColor" font-size="17" style="font-family:sans-serif">
<text class="label" x="{x(mean):.2f}" y="16" text-anchor="middle">mean {number(mean)}</text>
<text x="424" y="28" text-anchor="end">LA</text><text x="478" y="28" text-anchor="end" opacity=".65">SiLU</text>
{"".join(texts)}
<text x="46" y="{_GATE_0 - _GATE_UNIT - 7}">gate</text><text x="46" y="{_OUT_0 - 82}">output</text>
<text x="{right:g}" y="{_OUT_0 - 6}" text-anchor="end">y</text>{marks}
</g>
</svg>"""
