"""The figure of the chapter on kernels: lanes that add up their numbers, an exchange at each step of a slider."""

from __future__ import annotations

import html

from companion.study.plotting import (
    COLOURS,
    LISTEN,
    NUMBER,
    WIDTH,
    Picture,
    check_start,
    filled,
    legend,
    moving,
    sliders,
)

__all__ = ["moving_sum"]

#: A warp of eight lanes: their numbers before the first exchange, and how far away each exchange reads.
_NUMBERS, _DISTANCES = (3, 1, 4, 1, 5, 9, 2, 6), (4, 2, 1)
_LANES, _LAST = range(len(_NUMBERS)), len(_DISTANCES)
_EXCHANGES = (0, _LAST)
_LEFT, _TOP, _ACROSS, _DOWN, _RADIUS, _TALL = 84, 62, 53, 82, 19, 336

_SCRIPT = (
    """
for (const figure of document.querySelectorAll(".neuron-sum:not([data-ready])")) {
  figure.dataset.ready = "";
  const inputs = ["exchanges"].map(name => figure.querySelector(`[name=${name}]`));
  const numbers = @NUMBERS@, distances = @DISTANCES@;
"""
    + NUMBER
    + """  const x = lane => @LEFT@ + @ACROSS@ * lane, y = row => @TOP@ + @DOWN@ * row;
  const set = (name, attribute, value) => figure.querySelector("." + name).setAttribute(attribute, value);
  const draw = exchanges => {
    const sums = [numbers], told = numbers.map(String);
    distances.forEach(far => sums.push(sums.at(-1).map((sum, lane) => sum + sums.at(-1)[lane ^ far])));
    // the lanes whose numbers are in lane 0's sum, from the last row upwards
    const within = [];
    within[exchanges] = [0];
    for (let row = exchanges; row > 0; row--)
      within[row - 1] = within[row].flatMap(lane => [lane, lane ^ distances[row - 1]]);
    let tree = "";
    sums.forEach((sum, row) => sum.forEach((value, lane) => {
      const inside = row <= exchanges && within[row].includes(lane);
      figure.querySelector(`.sum${row}-${lane}`).textContent = row <= exchanges ? value : "";
      set(`at${row}-${lane}`, "fill-opacity", inside ? "0.3" : "0");
      set(`at${row}-${lane}`, "stroke-opacity", row <= exchanges ? "1" : "0.2");
      if (inside && row) for (const from of [lane, lane ^ distances[row - 1]])
        tree += `M${x(from)} ${y(row - 1) + @RADIUS@}L${x(lane)} ${y(row) - @RADIUS@}`;
    }));
    set("tree", "d", tree);
    distances.forEach((_, row) => set("links" + row, "stroke-opacity", row < exchanges ? "0.6" : "0.12"));
    for (const far of distances.slice(0, exchanges)) {
      const before = [...told];
      before.forEach((text, lane) => {
        told[lane] = [text, before[lane ^ far]].map(each => each.includes("+") ? `(${each})` : each).join(" + ");
      });
    }
    figure.querySelector(".said").textContent = exchanges === 0
      ? `Before the first exchange lane 0 holds its own number, ${numbers[0]}.`
      : `After exchange ${exchanges} lane 0 holds ${told[0]} = ${sums[exchanges][0]}: `
        + (exchanges < distances.length ? `${2 ** exchanges} of the numbers.` : "all of them, and so does every lane.");
  };"""
    + LISTEN
    + """}
"""
)


def moving_sum(exchanges: int = 1) -> Picture:
    """A figure of eight lanes that add up their numbers in three exchanges; the reader says after how many.

    In each exchange a lane adds what the lane at a distance of 4, then 2, then 1 holds. Marked is what lane 0's sum
    is made of. The figure needs no server and no network.

    Parameters
    ----------
    exchanges
        Where the slider starts, from 0 to 3.

    Raises
    ------
    ValueError
        If the start lies outside the slider.
    """
    check_start("exchanges", exchanges, _EXCHANGES)
    alt = (
        "Eight lanes side by side, each with a number, in four rows: before any exchange, and after the first, the "
        "second and the third. Lines lead from each lane, and from the lane at a distance of 4, then 2, then 1, to the "
        "sum of the two below. A slider says how many exchanges are done. What lane 0's sum is made of is "
        "marked: one number, then two, then four, then all eight; after the third exchange all lanes hold the same sum."
    )
    script = filled(
        _SCRIPT,
        {
            "NUMBERS": _NUMBERS,
            "DISTANCES": _DISTANCES,
            "LEFT": _LEFT,
            "TOP": _TOP,
            "ACROSS": _ACROSS,
            "DOWN": _DOWN,
            "RADIUS": _RADIUS,
        },
    )
    return moving(
        "neuron-sum",
        "Move the number of exchanges",
        [
            _lanes(exchanges, alt),
            legend(("●", COLOURS[1], "in lane 0's sum")),
            sliders([("exchanges", "exchanges", _EXCHANGES, 1, exchanges, f"{exchanges}")]),
        ],
        said=_said(exchanges),
        script=script,
        alt=alt,
    )


def _sums() -> list[list[int]]:
    """What the lanes hold before the first exchange and after each."""
    sums = [list(_NUMBERS)]
    for far in _DISTANCES:
        sums.append([sums[-1][lane] + sums[-1][lane ^ far] for lane in _LANES])
    return sums


def _within(exchanges: int) -> list[list[int]]:
    """In each row up to the last, the lanes that lane 0's sum is made of."""
    within = [[0]]
    for far in reversed(_DISTANCES[:exchanges]):
        within.insert(0, [each for lane in within[0] for each in (lane, lane ^ far)])
    return within


def _said(exchanges: int) -> str:
    if exchanges == 0:
        return f"Before the first exchange lane 0 holds its own number, {_NUMBERS[0]}."
    told = [str(each) for each in _NUMBERS]
    for far in _DISTANCES[:exchanges]:
        inner = [f"({each})" if "+" in each else each for each in told]
        told = [f"{inner[lane]} + {inner[lane ^ far]}" for lane in _LANES]
    held = f"{2**exchanges} of the numbers." if exchanges < _LAST else "all of them, and so does every lane."
    return f"After exchange {exchanges} lane 0 holds {told[0]} = {_sums()[exchanges][0]}: {held}"


def _x(lane: int) -> int:
    return _LEFT + _ACROSS * lane


def _y(row: int) -> int:
    return _TOP + _DOWN * row


def _lines(row: int, lanes: list[int]) -> str:
    """From what an exchange reads to the lanes that it gives a sum, in the row below."""
    far = _DISTANCES[row]
    return "".join(
        f"M{_x(source)} {_y(row) + _RADIUS}L{_x(lane)} {_y(row + 1) - _RADIUS}"
        for lane in lanes
        for source in (lane, lane ^ far)
    )


def _lanes(exchanges: int, alt: str) -> str:
    """The drawing."""
    within = _within(exchanges)
    links = "".join(
        f'<path class="links{row}" stroke-opacity="{0.6 if row < exchanges else 0.12}" '
        f'd="{_lines(row, list(_LANES))}"/>'
        for row in range(_LAST)
    )
    tree = "".join(_lines(row - 1, [lane]) for row in range(1, exchanges + 1) for lane in _LANES if lane in within[row])
    circles, texts = [], []
    for row, sums in enumerate(_sums()):
        for lane, value in enumerate(sums):
            done = row <= exchanges
            circles.append(
                f'<circle class="at{row}-{lane}" cx="{_x(lane)}" cy="{_y(row)}" r="{_RADIUS}" fill="{COLOURS[1]}" '
                f'fill-opacity="{0.3 if done and lane in within[row] else 0}" stroke-opacity="{1 if done else 0.2}"/>'
            )
            texts.append(
                f'<text class="sum{row}-{lane}" x="{_x(lane)}" y="{_y(row) + 6}" text-anchor="middle">'
                f"{value if done else ''}</text>"
            )
    beside = "".join(
        f'<text x="2" y="{_y(row) + _DOWN // 2 + 6}">{far} apart</text>' for row, far in enumerate(_DISTANCES)
    )
    above = "".join(f'<text x="{_x(lane)}" y="26" text-anchor="middle">{lane}</text>' for lane in _LANES)
    return f"""\
<svg role="img" aria-label="{html.escape(alt)}" viewBox="0 0 {WIDTH} {_TALL}" style="width:100%;height:auto">
<g stroke="currentColor" fill="none" stroke-width="1.2">{links}</g>
<path class="tree" stroke="{COLOURS[1]}" fill="none" stroke-width="2.5" d="{tree}"/>
<g stroke="{COLOURS[0]}" stroke-width="1.5">{"".join(circles)}</g>
<g fill="currentColor" font-size="17" style="font-family:sans-serif">
<g opacity=".75"><text x="2" y="26">lane</text>{above}{beside}</g>
{"".join(texts)}
</g>
</svg>"""
