"""The figure of a dendrite-activated unit that a reader can move."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from companion.study.plotting import (
    COLOURS,
    HEIGHT,
    LISTEN,
    NUMBER,
    WIDTH,
    Picture,
    buttons,
    drawing,
    filled,
    legend,
    moving,
    number,
    slider,
)

__all__ = ["moving_hinges"]

_PARAMETER = (-4.0, 4.0)
_X, _F = 4.0, (-3.0, 4.0)

_SCRIPT = (
    """
for (const figure of document.querySelectorAll(".neuron-hinges:not([data-ready])")) {
  figure.dataset.ready = "";
  const inputs = ["w1", "w2", "w3", "b1", "b2", "b3"].map(name => figure.querySelector(`[name=${name}]`));
  const [low, high] = [@LOW@, @HIGH@], [width, height, reach] = [@WIDTH@, @HEIGHT@, @REACH@];
"""
    + NUMBER
    + """
  // straight between its kinks
  const path = (f, kinks) => "M" + [-reach, ...kinks.filter(x => Math.abs(x) < reach).sort((p, q) => p - q), reach].map(
    x => (width * (x / reach + 1) / 2).toFixed(2) + " " + (height * (high - f(x)) / (high - low)).toFixed(2)).join("L");
  const draw = (...given) => {
    const [w, b] = [given.slice(0, 3), given.slice(3)];
    const hinge = j => x => w[j] * Math.max(0, b[j] + x);
    figure.querySelector(".sum").setAttribute("d", path(x => hinge(0)(x) + hinge(1)(x) + hinge(2)(x), b.map(b => -b)));
    [0, 1, 2].forEach(j => figure.querySelector(`.hinge${j + 1}`).setAttribute("d", path(hinge(j), [-b[j]])));
    const whole = w[0] + w[1] + w[2];
    figure.querySelector(".usual").setAttribute(
      "d", path(x => Math.max(0, b[0] + whole * x), whole === 0 ? [] : [-b[0] / whole]));
    let slope = 0;
    // wires with one kink in common are one step
    const words = [...new Set(b)].sort((p, q) => q - p).map(bias => {
      slope += w.reduce((sum, weight, j) => sum + (b[j] === bias ? weight : 0), 0);
      return ` ${number(slope, 1)} right of ${number(-bias, 1)}`;
    });
    figure.querySelector(".said").textContent = "Slope of the unit: 0 at first, then" + words.join(",") + ".";
  };"""
    + LISTEN
    + """}
"""
)

# Name, weights and biases.
_HINGES = (
    ("a tent", (1.0, -2.0, 1.0), (1.0, 0.0, -1.0)),
    ("a ramp", (1.0, -1.0, 0.0), (1.0, -1.0, 0.0)),
    ("up, level, down", (1.0, -1.0, -1.0), (1.0, 0.0, -1.0)),
    ("|x|, from −3 on", (3.0, -4.0, 2.0), (4.0, 3.0, 0.0)),
    ("x, from −3 on", (-3.0, 4.0, 0.0), (4.0, 3.0, 0.0)),
    ("ReLU", (1.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
)


def moving_hinges(weights: Sequence[float] = (1.0, -2.0, 1.0), biases: Sequence[float] = (1.0, 0.0, -1.0)) -> Picture:
    """A figure of one dendrite-activated unit with its input replicated three times, moved by the reader.

    It draws Σ_j w_j max(0, b_j + x), each of the three terms, and the usual unit with the same weights and the first
    bias alone, max(0, b₁ + x Σ_j w_j). It needs no server and no network.

    Parameters
    ----------
    weights, biases : sequence of float
        Where the six sliders start: three numbers each, in [−4, 4].

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
        "A sum of three hinges over x from −4 to 4, the hinges themselves, thin, and the usual unit with the same "
        "weights, dashed. Six sliders change weights and biases, and the lines follow. The usual unit has one kink at "
        "most, the sum has up to three."
    )
    places = {"LOW": _F[0], "HIGH": _F[1], "WIDTH": WIDTH, "HEIGHT": HEIGHT, "REACH": _X}
    groups = "\n".join(
        '<div style="flex:1 1 15em;min-width:0">\n'
        + "\n".join(
            slider(f"{letter}{j}", f"{letter}{'₁₂₃'[j - 1]}", _PARAMETER, 0.1, values[j - 1], number(values[j - 1]))
            for j in (1, 2, 3)
        )
        + "\n</div>"
        for letter, values in (("b", biases), ("w", weights))
    )
    signs = (
        ("━━", COLOURS[0], "the DAC unit"),
        ("──", COLOURS[1], "its three wires"),
        ("╍╍", COLOURS[4], "usual unit: same weights, b₁ alone"),
    )
    return moving(
        "neuron-hinges",
        "Move weights and biases",
        [
            _hinges(weights, biases, alt),
            legend(*signs),
            f'<div style="display:flex;flex-wrap:wrap;column-gap:1.5em">\n{groups}\n</div>',
            buttons((name, (*w, *b)) for name, w, b in _HINGES),
        ],
        said=_slopes(weights, biases),
        script=filled(_SCRIPT, places),
        alt=alt,
        width=640,
    )


def _slopes(weights: Sequence[float], biases: Sequence[float]) -> str:
    """What is said below the drawing."""
    slope, words = 0.0, []
    for b in sorted(set(biases), reverse=True):  # wires with one kink in common are one step
        slope += sum(w for w, own in zip(weights, biases, strict=True) if own == b)
        words.append(f" {_tenth(slope)} right of {_tenth(-b)}")
    return f"Slope of the unit: 0 at first, then{','.join(words)}."


def _tenth(value: float) -> str:
    return f"{value:z.1f}".replace("-", "−")


def _hinges(weights: Sequence[float], biases: Sequence[float], alt: str) -> str:
    def x(value: float) -> float:
        return WIDTH * (value / _X + 1) / 2

    def y(value: float) -> float:
        return HEIGHT * (_F[1] - value) / (_F[1] - _F[0])

    def path(terms: Sequence[int]) -> str:
        return straight(
            lambda at: sum(weights[j] * max(0.0, biases[j] + at) for j in terms), [-biases[j] for j in terms]
        )

    def straight(function: Callable[[float], float], kinks: Sequence[float]) -> str:
        places = (-_X, *sorted(kink for kink in kinks if abs(kink) < _X), _X)
        return "M" + "L".join(f"{x(at):.2f} {y(function(at)):.2f}" for at in places)

    whole = sum(weights)
    usual = straight(lambda at: max(0.0, biases[0] + whole * at), [-biases[0] / whole] if whole else [])
    dashed = f'<path class="usual" stroke="{COLOURS[4]}" stroke-width="2" stroke-dasharray="7 4" d="{usual}"/>'
    thin = "\n".join(
        f'<path class="hinge{j + 1}" stroke="{COLOURS[1]}" stroke-width="1" d="{path([j])}"/>' for j in range(3)
    )
    thick = f'<path class="sum" stroke="{COLOURS[0]}" d="{path([0, 1, 2])}"/>'
    lines = f"{dashed}\n{thin}\n{thick}"
    return drawing(lines, alt, "x", ((-3, -2, -1, 1, 2, 3), (-2, -1, 1, 2, 3)), x, y)
