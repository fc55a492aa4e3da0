"""The figure of AGLU and APA that a reader can move."""

from __future__ import annotations

import math

from companion.study.plotting import COLOURS, HEIGHT, WIDTH, Picture, check_start, drawing, filled, slider

__all__ = ["moving_curve"]

_KAPPA = (-1.0, 10.0)
_LOG_LAM = (-3.0, 3.0)
_Z, _Y = 5.0, (-1.6, 5.0)
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

    Raises
    ------
    ValueError
        If a start lies outside the slider.
    """
    check_start("kappa", kappa, _KAPPA)
    check_start("lam", lam, (10 ** _LOG_LAM[0], 10 ** _LOG_LAM[1]))
    alt = (
        f"The curves of AGLU and of APA for z from {-_Z:g} to {_Z:g}. "
        "Two sliders change kappa and lambda, and the curves follow."
    )
    script = filled(
        _SCRIPT,
        {"LOW": _Y[0], "HIGH": _Y[1], "WIDTH": WIDTH, "HEIGHT": HEIGHT, "REACH": _Z, "SAMPLES": _SAMPLES},
    )
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
{slider("kappa", "κ", _KAPPA, 0.01, kappa, f"{kappa:.2f}")}
{slider("lam", "λ", _LOG_LAM, 0.01, math.log10(lam), f"{lam:.3g}")}
<p style="margin:.3em 0;display:flex;flex-wrap:wrap;gap:.4em">
{places}
</p>
<script>{script}</script>
</div>"""
    return Picture(page, alt)


def _eta(z: float, kappa: float, lam: float) -> float:
    """η, as the script computes it: the page shows the right curve before the script has run."""
    u = math.log(lam) - kappa * z
    return math.exp(-(max(u, 0.0) + math.log1p(math.exp(-abs(u)))) / lam)


def _curves(kappa: float, lam: float, alt: str) -> str:
    def x(z: float) -> float:
        return WIDTH * (z / _Z + 1) / 2

    def y(value: float) -> float:
        return HEIGHT * (_Y[1] - value) / (_Y[1] - _Y[0])

    zs = [_Z * (2 * i / _SAMPLES - 1) for i in range(_SAMPLES + 1)]
    paths = [
        "M" + "L".join(f"{x(z):.2f} {y((z if times_z else 1.0) * _eta(z, kappa, lam)):.2f}" for z in zs)
        for times_z in (True, False)
    ]
    return drawing(
        f"""\
<path class="agl-curve" stroke="{COLOURS[0]}" d="{paths[0]}"/>
<path class="apa-curve" stroke="{COLOURS[1]}" stroke-dasharray="7 4" d="{paths[1]}"/>""",
        alt,
        "z",
        ((-4, -2, 2, 4), (-1, 1, 2, 3, 4)),
        x,
        y,
    )
