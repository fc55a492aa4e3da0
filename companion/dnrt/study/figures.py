"""The figures of DNRT: a threshold and class means that a reader can move, a model of a neuron, and responses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from companion.dnrt.reference import TAIL, P
from companion.study.gated import GatedElements, percent
from companion.study.plotting import (
    COLOURS,
    HEIGHT,
    LISTEN,
    NUMBER,
    WIDTH,
    Picture,
    buttons,
    check_start,
    drawing,
    filled,
    legend,
    moving,
    number,
    sliders,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["moving_means", "moving_threshold", "responses"]


# --- a threshold that follows its vector --------------------------------------------------------------------------

#: x_1, …, x_7; x_8 is the noise.
_ELEMENTS = (0.8, -1.4, 2.4, 0.2, -0.5, 1.9, -2.2)
_NOISE, _WEIGHT, _BIAS = (0.0, 2.0), (-1.0, 1.0), (-1.0, 1.0)
_FIGURE = GatedElements(
    symbol="x",
    middle=240,
    unit=60,
    reach=3.1,
    row=38,
    gate=284,
    out=422,
    out_unit=36,
    tall=510,
    ticks=range(-3, 4),
    outputs=range(-1, 4),
    open_at=476,
    steps=124,
)

_THRESHOLD_SCRIPT = (
    """
for (const figure of document.querySelectorAll(".neuron-threshold:not([data-ready])")) {
  figure.dataset.ready = "";
  const inputs = ["noise", "weight", "bias"].map(name => figure.querySelector(`[name=${name}]`));
  const others = @ELEMENTS@, tail = @TAIL@;
"""
    + NUMBER
    + """  // Φ(−u) e^(u²/2) is a polynomial in t = 1/(1 + p u), as in the kernel.
  const phi = u => {
    const t = 1 / (1 + @P@ * Math.abs(u));
    const small = t * tail.reduceRight((sum, c) => sum * t + c, 0) * Math.exp(-u * u / 2);
    return u > 0 ? 1 - small : small;
  };
"""
    + _FIGURE.script()
    + """
  const draw = (noise, weight, bias) => {
    const c = weight * noise + bias;
    cross(-c, "threshold " + number(-c));
    fill([...others, noise], value => phi(value + c));
    figure.querySelector(".said").textContent = `Offset c = ${number(c)}. Of x₁ = ${number(others[0], 1)} the gate `
      + `lets ${percent(phi(others[0] + c))} through; GELU would let ${percent(phi(others[0]))}.`;
  };"""
    + LISTEN
    + """}
"""
)

_ROOMS = (
    ("quiet", (0.0, -0.8, 0.0)),
    ("noisy", (1.5, -0.8, 0.0)),
    ("noisy, w₈ > 0", (1.5, 0.8, 0.0)),
    ("w₈ = b = 0: GELU", (1.5, 0.0, 0.0)),
)


def moving_threshold(noise: float = 1.5, weight: float = -0.8, bias: float = 0.0) -> Picture:
    """A figure of one vector under RAA, whose threshold the reader moves by one of the vector's own elements.

    Of eight elements seven stay; the last, called noise, and its weight and the bias are sliders. The other weights are
    zero, so that the offset is c = w₈ x₈ + b. The figure draws the elements as bars, the gate Φ(x + c), and the outputs
    x Φ(x + c) on one axis of x. It needs no server and no network.

    Parameters
    ----------
    noise
        Where the slider of x₈ starts, in [0, 2].
    weight, bias
        Where the sliders of w₈ and b start, in [−1, 1].

    Raises
    ------
    ValueError
        If a start lies outside its slider.
    """
    for name, value, ends in (("noise", noise, _NOISE), ("weight", weight, _WEIGHT), ("bias", bias, _BIAS)):
        check_start(name, value, ends)
    alt = (
        "Eight elements of a vector as bars, the gate and the outputs of RAA below them on the same axis. One vertical "
        "line, the threshold, crosses all three: bars that end to its right are filled, the gate lets them through; "
        "the others are pale. Three sliders move the last element, its weight and the bias; the line moves, "
        "and all elements are opened or closed with it."
    )
    script = filled(_THRESHOLD_SCRIPT, {"ELEMENTS": _ELEMENTS, "TAIL": TAIL, "P": P})
    c = weight * noise + bias
    first = _ELEMENTS[0]
    rows = (
        ("noise", "noise x₈", _NOISE, 0.05, noise, number(noise)),
        ("weight", "weight w₈", _WEIGHT, 0.05, weight, number(weight)),
        ("bias", "bias b", _BIAS, 0.05, bias, number(bias)),
    )
    return moving(
        "neuron-threshold",
        "Move one element, its weight and the bias",
        [
            _threshold(noise, c, alt),
            legend(
                ("━━", COLOURS[0], "RAA"),
                ("╍╍", COLOURS[4], "GELU"),
                ("╍╍", COLOURS[1], "threshold x = −c: half open"),
            ),
            sliders(rows),
            buttons(_ROOMS),
        ],
        said=f"Offset c = {number(c)}. Of x₁ = {first:g} the gate lets {percent(_phi(first + c))} through; "
        f"GELU would let {percent(_phi(first))}.",
        script=script,
        alt=alt,
    )


def _phi(u: float) -> float:
    return 0.5 * math.erfc(-u / math.sqrt(2))


def _threshold(noise: float, c: float, alt: str) -> str:
    names = (*(f"x{index}" for index in "₁₂₃₄₅₆₇"), "noise")
    return _FIGURE.drawing(
        dict(zip(names, (*_ELEMENTS, noise), strict=True)),
        lambda value: _phi(value + c),
        (-c, f"threshold {number(-c)}"),
        {"gelu": lambda at: _FIGURE.output(at * _phi(at))},
        ("gate Φ(x + c)", "output x Φ(x + c)"),
        ['<text x="476" y="16" text-anchor="end">open</text>'],
        alt,
    )


# --- class means that follow their samples ------------------------------------------------------------------------

#: Class, x_1 and x_2, in batch order. Drawn once: normal about (−1.1, −0.5) and (1.1, 0.5).
_SAMPLES = (
    *((1, -2.08, -0.92), (1, -1.12, 0.14), (2, 0.52, 0.59), (1, -0.98, -0.43), (2, 0.17, 0.88), (1, -1.26, -0.91)),
    *((1, -1.33, -0.64), (2, 1.23, 0.52), (1, -0.55, -0.7), (1, -0.15, -0.67), (1, -0.98, -1.8), (1, -1.61, 0.18)),
    *((2, 2.41, 0.13), (2, 1.5, -0.1), (1, -0.36, 1.08), (2, 1.49, 0.84), (2, -0.22, 0.44), (1, -1.36, 0.19)),
    *((2, 1.5, -0.04), (1, -2.08, -0.39), (2, 0.78, 0.67), (2, 1.86, 0.92), (1, -0.97, -1.16), (2, 0.43, 1.15)),
)
_STEP, _MOMENTUM = (1, len(_SAMPLES)), (0.0, 1.0)
_SCALE = 74

_MEANS_SCRIPT = (
    """
for (const figure of document.querySelectorAll(".neuron-means:not([data-ready])")) {
  figure.dataset.ready = "";
  const inputs = ["step", "momentum"].map(name => figure.querySelector(`[name=${name}]`));
  const samples = @SAMPLES@;
"""
    + NUMBER
    + """  const place = ([x, y]) =>
    (@WIDTH@ / 2 + @SCALE@ * x).toFixed(2) + " " + (@HEIGHT@ / 2 - @SCALE@ * y).toFixed(2);
  const set = (name, attribute, value) => figure.querySelector("." + name).setAttribute(attribute, value);
  const draw = (step, m) => {
    const means = {}, trails = {1: [], 2: []};
    let seen, own, x;
    for ([own, ...x] of samples.slice(0, step)) {
      seen = means[own] || x;
      means[own] = seen.map((mean, j) => (1 - m) * mean + m * x[j]);
      trails[own].push(place(means[own]));
    }
    samples.forEach((_, i) => set("sample" + (i + 1), "opacity", i + 1 < step ? "0.4" : i + 1 > step ? "0" : "1"));
    for (const [k, trail] of Object.entries(trails)) {
      set("trail" + k, "d", trail.length ? "M" + trail.join("L") : "");
      set("mean" + k, "transform", `translate(${trail.at(-1) || "-99 -99"})`);
    }
    set("seen", "transform", `translate(${place(seen)})`);
    set("legs", "d", `M${place(seen)}L${place([x[0], seen[1]])}L${place(x)}`);
    const legs = x.map((value, j) => Math.abs(value - seen[j]));
    figure.querySelector(".said").textContent = `Sample ${step} is of class ${own}. Its loss is the mean of the two `
      + `legs: (${legs.map(leg => number(leg)).join(" + ")})/2 = ${number((legs[0] + legs[1]) / 2)}.`;
  };"""
    + LISTEN
    + """}
"""
)

_MOMENTA = (("m = 0: it stays", 0.0), ("m = 0.1, the paper's", 0.1), ("m = 1: it jumps", 1.0))


def moving_means(step: int = 15, momentum: float = 0.1) -> Picture:
    """A figure of two classes whose means follow their samples, moved by the reader.

    The samples have d = 2 elements and come one by one. The first of a class becomes its mean μ; every later one
    moves it, μ ← (1 − m) μ + m r. The figure draws the way of each mean, and for the last sample the way
    whose length is ‖r − μ‖₁, with μ before that sample's own update. It needs no server and no network.

    Parameters
    ----------
    step
        How many samples have come where the slider starts, from 1 to 24.
    momentum
        Where the slider of m starts, in [0, 1].

    Raises
    ------
    ValueError
        If a start lies outside its slider.
    """
    check_start("step", step, _STEP)
    check_start("momentum", momentum, _MOMENTUM)
    alt = (
        "Samples of two classes in a plane, circles to the left and squares to the right, and the way that the mean of "
        "each class has gone. From the last sample two legs, one along each axis, lead to the mean of its class. Two "
        "sliders choose how many samples have come and the momentum m: with m = 0 a mean stays at its first sample, "
        "with m = 1 it jumps to every new one, with m = 0.1 it drifts towards the middle of its class."
    )
    script = filled(_MEANS_SCRIPT, {"SAMPLES": _SAMPLES, "WIDTH": WIDTH, "HEIGHT": HEIGHT, "SCALE": _SCALE})
    svg, said = _means(step, momentum, alt)
    rows = (
        ("step", "sample", _STEP, 1, step, f"{step}"),
        ("momentum", "momentum m", _MOMENTUM, 0.01, momentum, number(momentum)),
    )
    signs = (
        ("●", COLOURS[0], "class 1"),
        ("■", COLOURS[1], "class 2"),
        ("○", COLOURS[3], "mean before this sample"),
        ("◇", "inherit", "means after it"),
    )
    return moving(
        "neuron-means",
        "Move the sample and the momentum",
        [svg, legend(*signs), sliders(rows), buttons((name, (_STEP[1], m)) for name, m in _MOMENTA)],
        said=said,
        script=script,
        alt=alt,
        width=640,
    )


def _means(step: int, momentum: float, alt: str) -> tuple[str, str]:
    """The drawing, and what is said below it."""

    def x(value: float) -> float:
        return WIDTH / 2 + _SCALE * value

    def y(value: float) -> float:
        return HEIGHT / 2 - _SCALE * value

    def place(point: Sequence[float]) -> str:
        return f"{x(point[0]):.2f} {y(point[1]):.2f}"

    means: dict[int, Sequence[float]] = {}
    trails: dict[int, list[str]] = {1: [], 2: []}
    for own, *last in _SAMPLES[:step]:
        seen = means.get(own, last)
        means[own] = (
            (1 - momentum) * seen[0] + momentum * last[0],
            (1 - momentum) * seen[1] + momentum * last[1],
        )
        trails[own].append(place(means[own]))
    shapes = {1: '<circle r="5" ', 2: '<path d="M-4.5 -4.5h9v9h-9z" '}
    samples = "".join(
        f'{shapes[k]}class="sample{i}" fill="{COLOURS[k - 1]}" opacity="{0.4 if i < step else int(i == step)}" '
        f'transform="translate({place(at)})"/>'
        for i, (k, *at) in enumerate(_SAMPLES, 1)
    )
    ways = "".join(
        f'<path class="trail{k}" stroke="{COLOURS[k - 1]}" d="{"M" + "L".join(trail) if trail else ""}"/>'
        f'<path class="mean{k}" stroke="{COLOURS[k - 1]}" d="M0 -8L8 0L0 8L-8 0Z" '
        f'transform="translate({trail[-1] if trail else "-99 -99"})"/>'
        for k, trail in trails.items()
    )
    legs = [abs(last[j] - seen[j]) for j in (0, 1)]
    curves = f"""\
<g stroke="none">{samples}</g>
{ways}
<path class="legs" stroke="{COLOURS[3]}" stroke-dasharray="6 3" \
d="M{place(seen)}L{place((last[0], seen[1]))}L{place(last)}"/>
<circle class="seen" stroke="{COLOURS[3]}" stroke-width="2" r="4" transform="translate({place(seen)})"/>
<text fill="currentColor" font-size="14" style="font-family:sans-serif" x="{x(0) + 8:g}" y="14">r₂</text>"""
    said = (
        f"Sample {step} is of class {own}. Its loss is the mean of the two legs: "
        f"({number(legs[0])} + {number(legs[1])})/2 = {number(sum(legs) / 2)}."
    )
    return drawing(curves, alt, "r₁", ((-2, -1, 1, 2), (-1, 1)), x, y), said


# --- distributions of responses -----------------------------------------------------------------------------------


def responses(axes: Axes, groups: Mapping[str, Tensor | Sequence[Sequence[float]]], channels: int = 20) -> None:
    """Draw how the responses of each channel are distributed, one colour a group, as bands between quantiles.

    A band reaches from a quantile to the one as far from the other end. Inner bands are thicker. The median is a mark.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where to draw.
    groups : mapping of str to tensor or nested sequence
        For each group, for example a class, (channels, quantiles): an odd number of quantiles, at least
        three, ascending.
    channels : int
        So many are drawn, from the first.

    Raises
    ------
    ValueError
        If an array has another shape, or its quantiles descend.

    Examples
    --------
    >>> from companion.study.plotting import picture, subplots
    >>> figure, axes = subplots(figsize=(4, 2))
    >>> responses(axes, {"GELU": [[-0.1, 0.0, 0.4], [-0.2, 0.3, 1.0]]})
    >>> picture(figure, alt="Responses of two channels.")
    Figure: Responses of two channels.
    """
    for place, (name, given) in enumerate(groups.items()):
        quantiles = torch.as_tensor(given, dtype=torch.float64)
        if quantiles.ndim != 2 or quantiles.shape[1] < 3 or quantiles.shape[1] % 2 == 0:
            raise ValueError(
                f"groups: {name!r} must be (channels, quantiles), an odd number from 3; got {tuple(quantiles.shape)}"
            )
        if (quantiles.diff() < 0).any():
            raise ValueError(f"groups: the quantiles of {name!r} must ascend along the second dimension")
        shown = quantiles[:channels].numpy()
        # The groups stand beside each other, within four fifths of a channel.
        shift = 0.8 * ((place + 0.5) / len(groups) - 0.5)
        at = [channel + shift for channel in range(1, len(shown) + 1)]
        middle, colour = shown.shape[1] // 2, COLOURS[place % len(COLOURS)]
        for inner in range(middle):
            width = (1.5 + 3.5 * inner) / len(groups) ** 0.5
            axes.vlines(at, shown[:, inner], shown[:, -1 - inner], color=colour, linewidth=width, alpha=0.6)
        axes.plot(
            at, shown[:, middle], linestyle="none", marker="os^Dv"[place % 5], markersize=4, color=colour, label=name
        )
    axes.locator_params("x", integer=True)
    axes.set(xlabel="channel", ylabel="response")
    axes.label_outer()
