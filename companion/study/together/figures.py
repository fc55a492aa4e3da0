"""The arenas in one picture: every neuron's difference to GELU, its interval, and what could have been seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from companion.study.analysis import Comparison, alike, compare
from companion.study.plotting import COLOURS, subplots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Column", "Verdict", "differences", "verdict"]

Verdict = Literal["better", "worse", "same", "open"]

_COLOURS: dict[Verdict, str] = {"better": COLOURS[2], "worse": COLOURS[1], "same": COLOURS[0], "open": COLOURS[4]}
_MARKERS: dict[Verdict, str] = {"better": "^", "worse": "v", "same": "o", "open": "x"}
_WORDS: dict[Verdict, str] = {
    "better": "clearly ahead of GELU",
    "worse": "clearly behind",
    "same": "no difference that matters",
    "open": "not decided",
}


@dataclass(frozen=True)
class Column:
    """What one arena, or one measure of it, says of every neuron.

    Parameters
    ----------
    title : str
        Above the column.
    rows : sequence of mapping
        Of a result: one a neuron and seed.
    measure : str
        Key of the number to compare.
    smallest : float
        The difference that matters, in the measure's own unit, written down before the runs.
    unit : float
        By what the figure multiplies: 100 for points of accuracy.
    lower : bool
        Less is better.
    reference : str
        With which neuron the others are compared.
    """

    title: str
    rows: Sequence[Mapping[str, Any]]
    measure: str = "accuracy"
    smallest: float = 0.0
    unit: float = 100.0
    lower: bool = False
    reference: str = "gelu"

    def comparisons(self) -> dict[str, Comparison[str]]:
        """Return the comparison of each neuron with the reference, above zero where the neuron is the better one."""
        turned = [{**row, self.measure: -row[self.measure] if self.lower else row[self.measure]} for row in self.rows]
        found = compare(turned, factor="neuron", reference=self.reference, measure=self.measure)
        return {comparison.key: comparison for comparison in found}

    def verdicts(self) -> dict[str, Verdict]:
        """Return `verdict` of each neuron."""
        return {name: verdict(found, self.smallest) for name, found in self.comparisons().items()}


def verdict(found: Comparison[str], smallest: float) -> Verdict:
    """Say what a comparison decides.

    Parameters
    ----------
    found : Comparison
        Above zero where the neuron is better than the reference.
    smallest : float
        The difference that matters.

    Returns
    -------
    {"better", "worse", "same", "open"}
        "same" where the whole interval lies within the smallest difference that matters, clear or not; "better" and
        "worse" where another difference is clear after Holm's correction; else "open".

    Examples
    --------
    >>> from companion.study.analysis import family
    >>> [found] = family({"aglu": ({0: 0.91, 1: 0.94, 2: 0.92}, {0: 0.90, 1: 0.92, 2: 0.91})})
    >>> verdict(found, 0.007), verdict(found, 0.1)
    ('open', 'same')
    """
    if smallest > 0 and alike(found.difference, smallest) == 1:
        return "same"
    sign = found.sign()
    return "better" if sign > 0 else "worse" if sign < 0 else "open"


def differences(columns: Sequence[Column], labels: Mapping[str, str]) -> Figure:
    """Draw every neuron's difference to the reference, a row a neuron and a column an arena.

    A point is the mean over seeds, its bar the 95 % interval. The grey band is what could not have been seen: a true
    difference inside it would have been missed in more than one of five such runs. Dotted lines are the difference that
    matters.

    Parameters
    ----------
    columns : sequence of Column
        From left to right.
    labels : mapping
        What a neuron is called, by name, from top to bottom. A column may lack some.

    Returns
    -------
    Figure
        For `companion.study.plotting.show`.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure, axes = subplots(
        1, len(columns), sharey=True, squeeze=False, figsize=(2.6 + 2.1 * len(columns), 1.2 + 0.26 * len(labels))
    )
    for axis, column in zip(axes[0], columns, strict=True):
        _draw(axis, column, list(labels))
    axes[0][0].set_yticks(range(len(labels)), list(labels.values()))
    axes[0][0].set_ylim(len(labels) - 0.5, -0.5)
    signs: list[Any] = [
        Line2D([], [], color=_COLOURS[name], marker=_MARKERS[name], linestyle="-", markersize=5, label=words)
        for name, words in _WORDS.items()
    ]
    signs.append(Patch(color=COLOURS[4], alpha=0.2, label="too small to be seen here"))
    figure.legend(handles=signs, loc="outside lower center", ncols=3, fontsize="small")
    return figure


def _draw(axis: Any, column: Column, names: list[str]) -> None:
    found = column.comparisons()
    axis.axvline(0, color="#010203", linewidth=0.8, linestyle="-")
    for end in (-column.smallest, column.smallest):
        axis.axvline(end * column.unit, color="#010203", linewidth=0.8, linestyle=":", alpha=0.6)
    for place, name in enumerate(names):
        if name not in found:
            continue
        comparison = found[name]
        middle, decided = comparison.difference, verdict(comparison, column.smallest)
        colour = _COLOURS[decided]
        reach = comparison.detectable * column.unit
        axis.barh(place, 2 * reach, left=-reach, height=0.7, color=COLOURS[4], alpha=0.2, linewidth=0)
        axis.plot([middle.low * column.unit, middle.high * column.unit], [place, place], color=colour, linestyle="-")
        axis.plot([middle.mean * column.unit], [place], color=colour, marker=_MARKERS[decided], markersize=5)
    axis.set_title(column.title)
    axis.grid(axis="y", visible=False)
