"""A figure of eight elements, the gate that they meet and what comes out of it, on one axis; its line stands where the
gate is half open. A room says what the gate is, `GatedElements` draws it and moves it.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from companion.study.plotting import COLOURS, WIDTH, filled, whole

__all__ = ["GatedElements"]

Curve = Callable[[float], float]

_ROW_STEP, _GATE_UNIT, _TOP = 20, 64, 24

# ``curve`` draws, ``cross`` moves the line and says where it stands, ``fill`` moves the elements; gates are functions.
_SCRIPT = """
  const x = value => @MIDDLE@ + @UNIT@ * value;
  const out = value => @OUT_0@ - @OUT_UNIT@ * value;
  const curve = (name, y) => figure.querySelector(name).setAttribute(
    "d", "M" + Array.from({length: @STEPS@ + 1}, (_, i) => {
      const at = @REACH@ * (2 * i / @STEPS@ - 1);
      return x(at).toFixed(2) + " " + y(at).toFixed(2);
    }).join("L"));
  const cross = (at, said) => {
    figure.querySelector(".line").setAttribute("d", `M${x(at).toFixed(2)} @TOP@V@BOTTOM@`);
    const label = figure.querySelector(".label");
    label.setAttribute("x", Math.min(Math.max(x(at), 90), 350).toFixed(2));
    label.textContent = said;
  };
  const percent = share => (100 * share).toFixed(0) + " %";
  const fill = (elements, gate) => {
    curve(".gate", at => @GATE_0@ - @GATE_UNIT@ * gate(at));
    curve(".output", at => out(at * gate(at)));
    elements.forEach((value, i) => {
      const open = gate(value), row = @ROW@ + @ROW_STEP@ * i;
      const bar = figure.querySelector(`.bar${i + 1}`);
      bar.setAttribute("d", `M@MIDDLE@ ${row - 6}H${x(value).toFixed(2)}V${row + 6}H@MIDDLE@Z`);
      bar.setAttribute("fill-opacity", open.toFixed(2));
      figure.querySelector(`.open${i + 1}`).textContent = percent(open);
      figure.querySelector(`.dot${i + 1}`).setAttribute(
        "transform", `translate(${x(value).toFixed(2)} ${out(value * open).toFixed(2)})`);
    });
  };
"""


def percent(share: float) -> str:
    """As the script writes it."""
    return f"{100 * share:.0f} %"


@dataclass(frozen=True)
class GatedElements:
    """Where everything stands in the drawing, in the units of its SVG.

    Parameters
    ----------
    symbol : str
        What the axis is called.
    middle, unit, reach : float
        Where 0 stands, how wide 1 is, and how far the axis goes to each side.
    row : float
        The height of the first element's bar.
    gate, out, out_unit : float
        The heights of the gate's 0 and of the output's 0, and how high an output of 1 is.
    tall : float
        The drawing's height.
    ticks, outputs : sequence of int
        Numbers at the axis and beside the outputs.
    open_at : float
        Where the column that says how far the gate is open ends.
    steps : int
        Of a curve.
    """

    symbol: str
    middle: float
    unit: float
    reach: float
    row: float
    gate: float
    out: float
    out_unit: float
    tall: float
    ticks: Sequence[int]
    outputs: Sequence[int]
    open_at: float
    steps: int

    def script(self) -> str:
        """The functions ``curve``, ``cross``, ``percent`` and ``fill`` for the room's script."""
        return filled(
            _SCRIPT,
            {
                "MIDDLE": self.middle,
                "UNIT": self.unit,
                "REACH": self.reach,
                "ROW": self.row,
                "ROW_STEP": _ROW_STEP,
                "GATE_0": self.gate,
                "GATE_UNIT": _GATE_UNIT,
                "OUT_0": self.out,
                "OUT_UNIT": self.out_unit,
                "TOP": _TOP,
                "BOTTOM": self.bottom,
                "STEPS": self.steps,
            },
        )

    @property
    def bottom(self) -> float:
        return self.tall - 24

    def height(self, number: int) -> float:
        """Of the bar of an element, numbered from 1."""
        return self.row + _ROW_STEP * (number - 1)

    def x(self, value: float) -> float:
        return self.middle + self.unit * value

    def opening(self, share: float) -> float:
        """The height at which a gate is so far open."""
        return self.gate - _GATE_UNIT * share

    def output(self, value: float) -> float:
        return self.out - self.out_unit * value

    def drawing(
        self,
        elements: Mapping[str, float],
        gate: Curve,
        line: tuple[float, str],
        others: Mapping[str, Curve],
        titles: tuple[str, str],
        texts: Iterable[str],
        alt: str,
    ) -> str:
        """The figure as it stands before it is moved.

        Parameters
        ----------
        elements : mapping of str to float
            Eight values by name; the first and the last are set off by colour and size.
        gate : callable
            How far it is open, from 0 to 1.
        line : tuple of float and str
            Where the gate is half open, and what is said of it.
        others : mapping of str to callable
            Heights of dashed curves by class.
        titles : tuple of str
            Of the gate's and of the output's curve.
        texts : iterable of str
            Further text elements.
        alt : str
            For who does not see it.
        """
        bars, dots, columns = [], [], []
        for i, (name, value) in enumerate(elements.items(), 1):
            height, share = self.height(i), gate(value)
            colour = {1: COLOURS[3], len(elements): COLOURS[2]}.get(i, COLOURS[0])
            bars.append(
                f'<path class="bar{i}" stroke="{colour}" fill="{colour}" fill-opacity="{share:.2f}" '
                f'd="M{self.middle} {height - 6}H{self.x(value):.2f}V{height + 6}H{self.middle}Z"/>'
            )
            dots.append(
                f'<circle class="dot{i}" fill="{colour}" r="{7 if i in (1, len(elements)) else 5}" '
                f'transform="translate({self.x(value):.2f} {self.output(value * share):.2f})"/>'
            )
            columns.append(
                f'<text x="2" y="{height + 5}">{name}</text>'
                f'<text class="open{i}" x="{self.open_at}" y="{height + 5}" text-anchor="end">{percent(share)}</text>'
            )
        dashed = "\n".join(
            f'<path class="{name}" stroke="{COLOURS[4]}" stroke-width="2" stroke-dasharray="5 4" d="{self._path(y)}"/>'
            for name, y in others.items()
        )
        at, said = line
        return f"""\
<svg role="img" aria-label="{html.escape(alt)}" viewBox="0 0 {WIDTH} {self.tall}" style="width:100%;height:auto">
<g stroke="currentColor" fill="none" opacity=".35">{self._axes()}</g>
<g stroke-width="1.5">
{"".join(bars)}
</g>
<g fill="none" stroke-width="3">
{dashed}
<path class="gate" stroke="{COLOURS[0]}" d="{self._path(lambda value: self.opening(gate(value)))}"/>
<path class="output" stroke="{COLOURS[0]}" d="{self._path(lambda value: self.output(value * gate(value)))}"/>
<path class="line" stroke="{COLOURS[1]}" stroke-width="2.5" stroke-dasharray="8 4" \
d="M{self.x(at):.2f} {_TOP}V{self.bottom}"/>
</g>
<g>{"".join(dots)}</g>
<g fill="currentColor" font-size="17" style="font-family:sans-serif">
<text class="label" x="{min(max(self.x(at), 90), 350):.2f}" y="16" text-anchor="middle">{said}</text>
{"".join(columns)}{"".join(texts)}
<text x="50" y="{self.opening(1) - 7}">{titles[0]}</text>
<text x="50" y="{self.output(max(self.outputs)) - 7}">{titles[1]}</text>
{self._marks()}
</g>
</svg>"""

    def _path(self, height: Curve) -> str:
        grid = [self.reach * (2 * i / self.steps - 1) for i in range(self.steps + 1)]
        return "M" + "L".join(f"{self.x(at):.2f} {height(at):.2f}" for at in grid)

    def _axes(self) -> str:
        left, right = self.x(-self.reach), self.x(self.reach)
        heights = (*(self.opening(share) for share in (0, 0.5, 1)), self.out)
        return "".join(f'<path d="M{left:g} {y:g}H{right:g}"/>' for y in heights) + (
            f'<path d="M{self.middle} {_TOP}V{self.bottom}"/>'
        )

    def _marks(self) -> str:
        beside = [(self.opening(share), name) for share, name in ((0, "0"), (0.5, "½"), (1, "1"))]
        beside += [(self.output(value), whole(value)) for value in self.outputs]
        return (
            "".join(
                f'<text x="{self.x(at):g}" y="{self.tall - 4}" text-anchor="middle">{whole(at)}</text>'
                for at in self.ticks
            )
            + "".join(f'<text x="40" y="{y + 5:g}" text-anchor="end">{name}</text>' for y, name in beside)
            + f'<text x="{self.x(self.reach):g}" y="{self.out - 6:g}" text-anchor="end">{self.symbol}</text>'
        )
