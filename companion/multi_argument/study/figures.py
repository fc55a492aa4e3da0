"""Figures of two-argument neurons: surfaces that a reader turns, as they were learned and as six numbers make them."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from companion.multi_argument.op import quadratic_form
from companion.multi_argument.study.surfaces import curvature
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

__all__ = ["learned_surface", "quadratic_surface"]

_TURN, _TILT = (-180.0, 180.0), (0.0, 90.0)
#: Of the drawing; the middle of the square, half its side, and the length of a height of 1.
_WIDTH, _HEIGHT, _X, _Y, _SIDE, _RISE = 440, 460, 220, 230, 140, 100
#: The square lies as deep below 0 as the highest point is above.
_FLOOR = -1.0
#: Far above 0, at 0, far below.
_UP, _MIDDLE, _DOWN = (213, 94, 0), (236, 236, 236), (0, 119, 187)

# Height fields: whatever is nearer to the eye is drawn later, row after row from the far edge.
_MESH = """
  const radians = degrees => degrees * Math.PI / 180;
  const mesh = (heights, turn, tilt) => {
    const n = Math.sqrt(heights.length), c = Math.cos(radians(turn)), s = Math.sin(radians(turn));
    const flat = @SIDE@ * Math.sin(radians(tilt)), rise = @RISE@ * Math.cos(radians(tilt));
    const place = (a, b, z) => [@X@ + @SIDE@ * (a * c - b * s), @Y@ + flat * (a * s + b * c) - rise * z];
    const text = point => point.map(each => each.toFixed(2)).join(" ");
    const at = (i, j) => place(2 * i / (n - 1) - 1, 2 * j / (n - 1) - 1, heights[i * n + j]);
    const faces = figure.querySelectorAll(".face");
    for (let p = 0; p < n - 1; p++) for (let q = 0; q < n - 1; q++) {
      const i = s < 0 ? n - 2 - p : p, j = c < 0 ? n - 2 - q : q;
      const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]];
      const z = corners.reduce((sum, [k, l]) => sum + heights[k * n + l], 0) / 4;
      const end = z > 0 ? @UP@ : @DOWN@, face = faces[p * (n - 1) + q];
      face.setAttribute("d", "M" + corners.map(corner => text(at(...corner))).join("L") + "Z");
      face.setAttribute("fill", "rgb(" + @MIDDLE@.map(
        (m, k) => Math.round(m + Math.min(1.4 * Math.abs(z), 1) * (end[k] - m))).join() + ")");
    }
    const floor = [[-1, -1], [1, -1], [1, 1], [-1, 1]].map(([a, b]) => place(a, b, @FLOOR@));
    figure.querySelector(".floor").setAttribute("d", "M" + floor.map(text).join("L") + "Z");
    [[1.13, 0], [0, 1.13]].forEach(([a, b], k) => {
      const [x, y] = place(a, b, @FLOOR@), label = figure.querySelector(".axis" + (k + 1));
      label.setAttribute("x", x.toFixed(2));
      label.setAttribute("y", y.toFixed(2));
    });
    return place;
  };
"""
# The surface is turned by the finger that drags it; a page still scrolls when it is dragged up or down on a phone.
_DRAG = """
  const drawn = figure.querySelector("svg"), at = name => inputs.find(input => input.name === name);
  drawn.addEventListener("pointerdown", event => drawn.setPointerCapture(event.pointerId));
  drawn.addEventListener("pointermove", event => {
    if (!drawn.hasPointerCapture(event.pointerId)) return;
    const turned = Number(at("turn").value) - event.movementX / 2;
    at("turn").value = turned > 180 ? turned - 360 : turned < -180 ? turned + 360 : turned;
    at("tilt").value = Number(at("tilt").value) + event.movementY / 2;
    update();
  });
"""
_NUMBERS = {
    "SIDE": _SIDE,
    "RISE": _RISE,
    "X": _X,
    "Y": _Y,
    "FLOOR": _FLOOR,
    "UP": _UP,
    "MIDDLE": _MIDDLE,
    "DOWN": _DOWN,
}


def _place(a: float, b: float, z: float, turn: float, tilt: float) -> tuple[float, float]:
    """Where a point of the square [−1, 1]² stands in the drawing, at a height."""
    c, s = math.cos(math.radians(turn)), math.sin(math.radians(turn))
    flat, rise = _SIDE * math.sin(math.radians(tilt)), _RISE * math.cos(math.radians(tilt))
    return _X + _SIDE * (a * c - b * s), _Y + flat * (a * s + b * c) - rise * z


def _text(point: Sequence[float]) -> str:
    return " ".join(f"{each:.2f}" for each in point)


def _drawing(heights: Tensor, turn: float, tilt: float, alt: str, above: str = "", letter: str = "x") -> str:
    """The surface as faces, its floor, and what is drawn above it. As `_MESH` has it."""
    n = len(heights)
    z = heights.double().tolist()
    backwards = math.sin(math.radians(turn)) < 0, math.cos(math.radians(turn)) < 0
    faces = []
    for p in range(n - 1):
        for q in range(n - 1):
            i, j = n - 2 - p if backwards[0] else p, n - 2 - q if backwards[1] else q
            corners = (i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)
            mean = sum(z[k][m] for k, m in corners) / 4
            end, share = _UP if mean > 0 else _DOWN, min(1.4 * abs(mean), 1.0)
            fill = ",".join(f"{math.floor(m + share * (e - m) + 0.5)}" for m, e in zip(_MIDDLE, end, strict=True))
            points = [_place(2 * k / (n - 1) - 1, 2 * m / (n - 1) - 1, z[k][m], turn, tilt) for k, m in corners]
            faces.append(f'<path class="face" d="M{"L".join(map(_text, points))}Z" fill="rgb({fill})"/>')
    floor = [_place(a, b, _FLOOR, turn, tilt) for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    ends = [_place(a, b, _FLOOR, turn, tilt) for a, b in ((1.13, 0), (0, 1.13))]
    axes = "".join(
        f'<text class="axis{k}" x="{x:.2f}" y="{y:.2f}" text-anchor="middle">{letter}{"₁₂"[k - 1]}</text>'
        for k, (x, y) in enumerate(ends, 1)
    )
    return f"""\
<svg role="img" aria-label="{html.escape(alt)}" viewBox="0 0 {_WIDTH} {_HEIGHT}"
style="width:100%;height:auto;touch-action:pan-y;cursor:grab">
<path class="floor" fill="none" stroke="currentColor" opacity=".5" d="M{"L".join(map(_text, floor))}Z"/>
<g stroke="#333" stroke-width=".5" stroke-linejoin="round">
{"".join(faces)}
</g>
<g>{above}</g>
<g fill="currentColor" font-size="18" style="font-family:sans-serif">{axes}</g>
</svg>"""


def _rgb(colour: Sequence[int]) -> str:
    return f"rgb({','.join(map(str, colour))})"


_SIGNS = (("■", _rgb(_UP), "above 0"), ("■", _rgb(_DOWN), "below 0"))
_KINDS = (("●", COLOURS[2], "signs equal"), ("●", COLOURS[3], "signs differ"))

# --- from a random map to what was learned ----------------------------------------------------------------------------

_LEARNED_SCRIPT = (
    """
for (const figure of document.querySelectorAll(".neuron-learned:not([data-ready])")) {
  figure.dataset.ready = "";
  const inputs = ["moment", "turn", "tilt"].map(name => figure.querySelector(`[name=${name}]`));
  const moments = @MOMENTS@, said = @SAID@, states = @STATES@;
"""
    + NUMBER
    + _MESH
    + """  const draw = (moment, turn, tilt) => {
    const place = mesh(moments[moment - 1], turn, tilt);
    (states[moment - 1] || []).forEach((state, k) => {
      const point = place(...state).map(each => each.toFixed(2)).join(" ");
      figure.querySelector(".corner" + k).setAttribute("transform", `translate(${point})`);
    });
    figure.querySelector(".said").textContent = said[moment - 1];
  };"""
    + LISTEN
    + _DRAG
    + """}
"""
)


def learned_surface(
    moments: Sequence[Tensor],
    said: Sequence[str],
    turn: float = 30.0,
    tilt: float = 35.0,
    states: Sequence[Tensor] = (),
) -> Picture:
    """A figure of an activation of two arguments at several moments of its training, turned by hand.

    It starts at the last moment. A slider goes through the moments, two more turn and tilt the surface, and so does a
    finger or a mouse that drags it. It needs no server and no network.

    Parameters
    ----------
    moments : sequence of Tensor
        What `companion.MultiArgument.surface` gives, (n, n), each on the same grid; of one number only. The highest
        point of all, up or down, is drawn at the height 1.
    said : sequence of str
        A sentence for each.
    turn, tilt : float
        Where their sliders start, in degrees: in [−180, 180] and [0, 90]; 90 looks from above.
    states : sequence of Tensor
        None, or (4, 3) for each moment: where the states of XOR stand, two with equal signs and two with different
        ones. Of each its arguments, −1 and 1 at the edges of the square, and the value there.

    Raises
    ------
    ValueError
        If a start lies outside its slider, there is not a sentence for each moment, a surface is no square grid like
        the others, or states are there for some moments only.

    Examples
    --------
    >>> import companion
    >>> axis, inner = torch.linspace(-2, 2, 9), companion.MultiArgument()
    >>> learned_surface([inner.surface(axis, axis)], ["At the start."]).alt[:27]
    'An activation of two argume'
    """
    check_start("turn", turn, _TURN)
    check_start("tilt", tilt, _TILT)
    if not moments or len(moments) != len(said):
        raise ValueError(f"said: got {len(said)} sentences for {len(moments)} moments, allowed is one for each")
    n = len(moments[0])
    if n < 2 or any(each.shape != (n, n) for each in moments):
        raise ValueError(
            f"moments: got shapes {', '.join(str(tuple(each.shape)) for each in moments)}, allowed are equal squares"
        )
    scale = max(float(each.abs().max()) for each in moments) or 1.0
    if states and [tuple(each.shape) for each in states] != [(4, 3)] * len(moments):
        shapes = ", ".join(str(tuple(each.shape)) for each in states)
        raise ValueError(f"states: got shapes {shapes}, allowed is (4, 3) for each moment")
    heights = [each.double() / scale for each in moments]
    at = [(each.double() / each.new_tensor([1, 1, scale])).tolist() for each in states]
    alt = (
        "An activation of two arguments as a surface over the square of its arguments, orange above zero and blue "
        f"below. A slider goes through {len(moments)} moments of its training, two more turn and tilt it. "
        f"{'Four dots on it are the states of XOR. ' if states else ''}"
        f"{said[0]} {said[-1]}"
    )
    script = filled(
        _LEARNED_SCRIPT,
        _NUMBERS
        | {
            "MOMENTS": [[round(z, 4) for z in each.flatten().tolist()] for each in heights],
            "SAID": list(said),
            "STATES": [[[round(each, 4) for each in state] for state in four] for four in at],
        },
    )
    last = len(moments)
    rows = (
        ("moment", "moment", (1.0, float(last)), 1, last, f"{last}"),
        *_hand(turn, tilt),
    )
    return moving(
        "neuron-learned",
        "Choose a moment, turn and tilt the surface",
        [
            _drawing(heights[-1], turn, tilt, alt, _dots(at[-1], turn, tilt) if at else "", letter="z"),
            legend(*_SIGNS, *(_KINDS if at else ())),
            sliders(rows),
        ],
        said=said[-1],
        script=script,
        alt=alt,
    )


def _dots(states: Sequence[Sequence[float]], turn: float, tilt: float) -> str:
    """The states of XOR, two with equal signs and two with different ones, in the square and at their heights."""
    return "".join(
        f'<circle class="corner{k}" r="8" fill="{COLOURS[2] if k < 2 else COLOURS[3]}" stroke="#fff" '
        f'transform="translate({_text(_place(a, b, z, turn, tilt))})"/>'
        for k, (a, b, z) in enumerate(states)
    )


def _hand(turn: float, tilt: float) -> tuple[tuple[str, str, tuple[float, float], float, float, str], ...]:
    """The rows of the two sliders that turn a surface."""
    return (
        ("turn", "turn, °", _TURN, 5, turn, number(turn).removesuffix(".00")),
        ("tilt", "tilt, °", _TILT, 5, tilt, number(tilt).removesuffix(".00")),
    )


# --- six numbers ------------------------------------------------------------------------------------------------------

_C = tuple(f"c{index}" for index in range(1, 7))
_POINTS, _REACH, _TALLEST = 17, 1.5, 3.0
_SIX = (-1.0, 1.0)
#: x₁ and x₂ at the corners of XOR.
_CORNERS = ((-1, -1), (1, 1), (-1, 1), (1, -1))

_SIX_SCRIPT = (
    """
for (const figure of document.querySelectorAll(".neuron-quadratic:not([data-ready])")) {
  figure.dataset.ready = "";
  const names = @NAMES@;
  const inputs = names.map(name => figure.querySelector(`[name=${name}]`));
"""
    + NUMBER
    + _MESH
    + """  const draw = (c1, c2, c3, c4, c5, c6, turn, tilt) => {
    const f = (x, y) => c1 * x * x + c2 * y * y + c3 * x * y + c4 * x + c5 * y + c6;
    const height = (x, y) => Math.max(-1, Math.min(1, f(x, y) / @TALLEST@));
    const axis = Array.from({length: @POINTS@}, (_, i) => @REACH@ * (2 * i / (@POINTS@ - 1) - 1));
    const place = mesh(axis.flatMap(x => axis.map(y => height(x, y))), turn, tilt);
    const values = @CORNERS@.map(([x, y], k) => {
      const point = place(x / @REACH@, y / @REACH@, height(x, y)).map(each => each.toFixed(2));
      figure.querySelector(".corner" + k).setAttribute("transform", `translate(${point.join(" ")})`);
      return Math.round(100 * f(x, y)) / 100;
    });
    const K = c1 * c2 - c3 * c3 / 4, bend = Math.abs(K) < 1e-9 ? 0 : K;
    const kind = bend < 0 ? "a saddle" : bend > 0 ? (c1 > 0 ? "a bowl" : "a dome")
      : c1 || c2 ? "bent in one direction" : "a plane";
    const [a, b, c, d] = values;
    const apart = Math.min(a, b) > Math.max(c, d) || Math.max(a, b) < Math.min(c, d);
    figure.querySelector(".said").textContent = `K = ${number(bend, 3)}: ${kind}. Values where the signs are equal: `
      + `${number(a)} and ${number(b)}; where they differ: ${number(c)} and ${number(d)}. `
      + (apart ? "One threshold tells them apart: XOR is solved." : "No threshold tells them apart.");
  };"""
    + LISTEN
    + _DRAG
    + """}
"""
)

_HAND = (30.0, 35.0)
_PLACES = (
    ("product x₁x₂", (0, 0, 1, 0, 0, 0)),
    ("turned by 45°", (0.5, -0.5, 0, 0, 0, 0)),
    ("a linear neuron", (0, 0, 0, 0.7, 0.7, 0)),
    ("a bowl", (0.5, 0.5, 0, 0, 0, -0.5)),
)


def quadratic_surface(coefficients: Sequence[float] = (0, 0, 1, 0, 0, 0)) -> Picture:
    """A figure of a quadratic form of two arguments, whose six coefficients the reader moves.

    It draws the surface over [−1.5, 1.5]², cut off at ±3, and the four corners of XOR on it; and says the curvature
    K = c₁c₂ − c₃²/4, and whether one threshold solves XOR. It needs no server and no network.

    Parameters
    ----------
    coefficients : sequence of float
        c₁, …, c₆ in the order of `companion.Quadratic`, each in [−1, 1].

    Raises
    ------
    ValueError
        If there are not six, or one lies outside its slider.

    Examples
    --------
    >>> "a saddle" in quadratic_surface().html
    True
    """
    if len(coefficients) != len(_C):
        raise ValueError(f"coefficients: got {len(coefficients)}, allowed are six")
    for name, each in zip(_C, coefficients, strict=True):
        check_start(name, each, _SIX)
    c = torch.tensor(coefficients, dtype=torch.float64)
    axis = torch.linspace(-_REACH, _REACH, _POINTS, dtype=torch.float64)
    at = torch.cartesian_prod(axis, axis).view(_POINTS, _POINTS, 2)

    def height(points: Tensor) -> Tensor:
        return (quadratic_form(points, c, 2)[..., 0] / _TALLEST).clamp(-1, 1)

    alt = (
        "A quadratic form of two arguments as a surface over their square, orange above zero and blue below, and on it "
        "four points where both arguments are 1 in size: two with equal signs, two with different ones. Six sliders "
        "move the coefficients; saddles, bowls and planes come of them. Two more turn and tilt the surface."
    )
    corners = torch.tensor(_CORNERS, dtype=torch.float64)
    places = zip(_CORNERS, height(corners).tolist(), strict=True)
    dots = _dots([(x / _REACH, y / _REACH, z) for (x, y), z in places], *_HAND)
    names = [*_C, "turn", "tilt"]
    script = filled(
        _SIX_SCRIPT,
        _NUMBERS | {"NAMES": names, "TALLEST": _TALLEST, "POINTS": _POINTS, "REACH": _REACH, "CORNERS": _CORNERS},
    )
    of = ("x₁²", "x₂²", "x₁x₂", "x₁", "x₂", "constant")
    rows = (
        *(
            (name, f"c{'₁₂₃₄₅₆'[k]}, {what}", _SIX, 0.05, each, number(each))
            for k, (name, what, each) in enumerate(zip(_C, of, coefficients, strict=True))
        ),
        *_hand(*_HAND),
    )
    return moving(
        "neuron-quadratic",
        "Move six coefficients, turn and tilt the surface",
        [
            _drawing(height(at), *_HAND, alt, dots),
            legend(*_SIGNS, *_KINDS),
            buttons((name, (*start, *_HAND)) for name, start in _PLACES),
            sliders(rows),
        ],
        said=_sentence(c, quadratic_form(corners, c, 2)[:, 0]),
        script=script,
        alt=alt,
    )


def _sentence(c: Tensor, corners: Tensor) -> str:
    """What is said of a form, as the script says it."""
    K = curvature(c)
    bend = K if abs(K) >= 1e-9 else 0.0
    first, second = c[:2].tolist()
    if bend:
        kind = "a saddle" if bend < 0 else "a bowl" if first > 0 else "a dome"
    else:
        kind = "bent in one direction" if first or second else "a plane"
    equal, different = [[round(each, 2) for each in part] for part in corners.view(2, 2).tolist()]
    apart = min(equal) > max(different) or max(equal) < min(different)
    return (
        f"K = {f'{bend:z.3f}'.replace('-', '−')}: {kind}. Values where the signs are equal: "
        f"{' and '.join(map(number, equal))}; where they differ: {' and '.join(map(number, different))}. "
        + ("One threshold tells them apart: XOR is solved." if apart else "No threshold tells them apart.")
    )
