"""The figure of a dendrite-activated unit that a reader can move."""

from __future__ import annotations

from collections.abc import Sequence

from companion.plotting import COLOURS, HEIGHT, WIDTH, Picture, buttons, drawing, filled, slider

__all__ = ["moving_hinges"]

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
    places = {"LOW": _F[0], "HIGH": _F[1], "WIDTH": WIDTH, "HEIGHT": HEIGHT, "REACH": _X}
    sliders = "\n".join(
        slider(f"{letter}{j}", f"{letter}{'₁₂₃'[j - 1]}", _PARAMETER, 0.1, value, f"{value:.1f}")
        for j in (1, 2, 3)
        for letter, value in (("w", weights[j - 1]), ("b", biases[j - 1]))
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
{buttons((name, (*w, *b)) for name, w, b in _HINGES)}
<script>{filled(_HINGES_SCRIPT, places)}</script>
</div>"""
    return Picture(page, alt)


def _hinges(weights: Sequence[float], biases: Sequence[float], alt: str) -> str:
    def x(value: float) -> float:
        return WIDTH * (value / _X + 1) / 2

    def y(value: float) -> float:
        return HEIGHT * (_F[1] - value) / (_F[1] - _F[0])

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
    return drawing(f"{thin}\n{thick}", alt, "x", ((-3, -2, -1, 1, 2, 3), (-2, -1, 1, 2, 3)), x, y)
