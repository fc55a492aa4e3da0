"""The arenas in one picture: every neuron's difference to GELU, its interval, and what could have been seen."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from companion.study import results
from companion.study.analysis import Comparison, alike, compare
from companion.study.plotting import COLOURS, Picture, picture, subplots
from companion.study.together import gpt, graph, mlp, neurons, power, vit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "LABELS",
    "WORDS",
    "Advice",
    "Column",
    "Compared",
    "Verdict",
    "advice",
    "arenas",
    "averaged",
    "differences",
    "finished",
    "shortly",
    "verdict",
]

Verdict = Literal["better", "worse", "same", "open"]
Advice = Literal["use it", "try it", "ahead", "no reason to", "leave it"]

_COLOURS: dict[Verdict, str] = {"better": COLOURS[2], "worse": COLOURS[1], "same": COLOURS[0], "open": COLOURS[4]}
_MARKERS: dict[Verdict, str] = {"better": "^", "worse": "v", "same": "o", "open": "x"}
WORDS: dict[Verdict, str] = {
    "better": "clearly ahead",
    "worse": "clearly behind",
    "same": "no difference that matters",
    "open": "not decided",
}
"""What a verdict is called."""


_EVERY = neurons.NEURONS | mlp.NEURONS | vit.NEURONS | {"swiglu": gpt.NEURONS["swiglu"]}
_ROW = {name: row for row, name in enumerate(_EVERY)}
# What only the transformer for images has is ARR or its rival: it stands beside ARR. SwiGLU stands beside its elder.
_ROW |= {name: _ROW["arr"] for name in vit.NEURONS if name not in neurons.NEURONS} | {"swiglu": _ROW["glu"]}
LABELS = {name: _EVERY[name].label for name in sorted(_EVERY, key=_ROW.__getitem__)}
"""What a neuron is called, by the name that rows have; in the order of a picture's rows."""


class Compared(Protocol):
    """What `differences` draws as one column: see `Column`."""

    @property
    def title(self) -> str: ...
    @property
    def smallest(self) -> float: ...
    @property
    def unit(self) -> float: ...
    def comparisons(self) -> Mapping[str, Comparison[Any]]: ...


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
        return dict(self._compared)

    @cached_property
    def _compared(self) -> dict[str, Comparison[str]]:
        turned = [{**row, self.measure: -row[self.measure] if self.lower else row[self.measure]} for row in self.rows]
        found = compare(turned, factor="neuron", reference=self.reference, measure=self.measure)
        return {comparison.key: comparison for comparison in found}

    def verdicts(self) -> dict[str, Verdict]:
        """Return `verdict` of each neuron."""
        return {name: verdict(found, self.smallest) for name, found in self.comparisons().items()}

    def leads(self, name: str) -> bool:
        """Return whether a neuron is there and clearly ahead of the reference, and no other clearly ahead of it."""
        if self.verdicts().get(name) != "better":
            return False
        return "better" not in replace(self, reference=name).verdicts().values()


def verdict(found: Comparison[Any], smallest: float) -> Verdict:
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


def advice(name: str, accuracy: Column, others: Iterable[Column]) -> Advice:
    """Say what to do with a neuron in an arena: a rule, so that nobody chooses the words.

    Parameters
    ----------
    name : str
        The neuron.
    accuracy : Column
        What the arena is about; it has the neuron.
    others : iterable of Column
        Everything else that was measured there; they may lack it.

    Returns
    -------
    {"use it", "try it", "ahead", "no reason to", "leave it"}
        "leave it" where it is clearly less accurate than the reference, "use it" where it `leads` in accuracy; else
        "try it" where it leads in anything else. Where it leads in nothing: "ahead" if it is clearly more accurate than
        the reference, so that another is more accurate still, and otherwise "no reason to".

    Examples
    --------
    >>> def measured(**means):
    ...     return Column("", [{"neuron": name, "seed": seed, "accuracy": mean + seed / 100 + 0.001 * (seed % 2)}
    ...                        for name, mean in means.items() for seed in range(3)])
    >>> accuracy = measured(gelu=0.5, relu=0.7, mish=0.4, raa=0.6)
    >>> [advice(name, accuracy, []) for name in ("relu", "mish", "raa")]
    ['use it', 'leave it', 'ahead']
    >>> advice("raa", accuracy, [measured(gelu=0.5, mish=0.6, raa=0.6)])
    'try it'
    """
    accurate = accuracy.verdicts()[name]
    if accurate == "worse":
        return "leave it"
    if accuracy.leads(name):
        return "use it"
    if any(each.leads(name) for each in others):
        return "try it"
    return "ahead" if accurate == "better" else "no reason to"


def averaged(rows: Iterable[Mapping[str, Any]], measure: str = "accuracy") -> list[dict[str, Any]]:
    """Return a row for each neuron and seed, with the mean of a measure over the conditions that they met.

    Parameters
    ----------
    rows : iterable of mapping
        One a neuron, seed and condition.
    measure : str
        Key of the number to average.

    Returns
    -------
    list of dict
        With neuron, seed and the measure.

    Raises
    ------
    ValueError
        If a neuron and seed have not met as many conditions as the others.

    Examples
    --------
    >>> averaged([{"neuron": "relu", "seed": 0, "graph": name, "accuracy": x} for name, x in [("a", 0.5), ("b", 1.0)]])
    [{'neuron': 'relu', 'seed': 0, 'accuracy': 0.75}]
    """
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in rows:
        found[row["neuron"], row["seed"]].append(row[measure])
    if len(counts := {len(values) for values in found.values()}) > 1:
        raise ValueError(f"rows has neurons that met {min(counts)} conditions and others that met {max(counts)}")
    return [
        {"neuron": neuron, "seed": seed, measure: fsum(values) / len(values)}
        for (neuron, seed), values in found.items()
    ]


class _Arena(NamedTuple):
    """How an arena's trainings are judged, see `Column`, and what was trained, in words."""

    title: str
    where: str
    smallest: float
    measure: str = "accuracy"
    unit: float = 100.0
    lower: bool = False


_ARENAS = {
    "together-conv": _Arena(
        "photographs,\nconvolutions, points", "six convolutions, photographs", power.SMALLEST_DIFFERENCE
    ),
    "together-vit": _Arena(
        "photographs,\ntransformer, points", "small transformer, photographs", vit.SMALLEST_DIFFERENCE
    ),
    "together-gpt": _Arena(
        "text, transformer,\nbits saved a letter",
        "small transformer, text",
        gpt.SMALLEST_DIFFERENCE,
        "bits",
        1.0,
        lower=True,
    ),
    "together-mlp": _Arena(
        "digits,\nperceptron, points", "perceptron of three layers, digits", mlp.SMALLEST_DIFFERENCE
    ),
    "together-graph": _Arena(
        "graphs,\ntwo networks, points", "two graph networks, citations", graph.SMALLEST_DIFFERENCE
    ),
}


def finished() -> dict[str, Column]:
    """Return the column of each arena whose run is finished, by the experiment's name: accuracy, or bits a character.

    Where an arena has several conditions, each neuron's mean over them is compared, seed by seed.
    """
    there = results.names()
    return {
        name: Column(
            arena.title,
            averaged(results.load(name)["rows"], arena.measure),
            arena.measure,
            arena.smallest,
            arena.unit,
            arena.lower,
        )
        for name, arena in _ARENAS.items()
        if name in there
    }


def arenas() -> Picture:
    """Return the picture of all finished arenas: every neuron beside GELU."""
    columns = list(finished().values())
    found = [column.verdicts() for column in columns]
    labels = {name: label for name, label in LABELS.items() if any(name in verdicts for verdicts in found)}
    said = []
    for column, verdicts in zip(columns, found, strict=True):
        names = {wanted: [LABELS[name] for name, each in verdicts.items() if each == wanted] for wanted in WORDS}
        said.append(
            column.title.replace("\n", " ")
            + "".join(f"; {WORDS[wanted]}: {', '.join(each)}" for wanted, each in names.items() if each)
        )
    return picture(
        differences(columns, labels),
        alt="How much better than GELU every neuron is, with 95 % intervals. " + ". ".join(said) + ".",
        caption="Which neuron gains anything over GELU, in the same network, with as many parameters and the same "
        "search for the learning rate?",
    )


_THEIRS = {
    *("aglu", "dac", "la_silu", "la_hardsilu", "raa", "arr", "relu_arr", "dnrt"),
    *("two_arguments", "two_arguments_last"),
}


def shortly() -> str:
    """Return a table in Markdown: what was trained, who is first, and how the five papers' neurons stand beside GELU.

    Under it stand the differences that matter.

    Examples
    --------
    >>> print(shortly().splitlines()[0])
    | trained | first | the five papers' neurons |
    """
    lines = ["| trained | first | the five papers' neurons |", "| --- | --- | --- |"]
    for name, column in finished().items():
        found, verdicts, digits = column.comparisons(), column.verdicts(), _decimals(column)
        small = {key for key, each in found.items() if abs(each.difference.mean) < column.smallest}
        said = {
            key: f"{LABELS[key].partition(', z')[0]} "
            + f"{column.unit * each.difference.mean:+.{digits}f}".replace("-", "−")
            for key, each in sorted(found.items(), key=lambda item: -item[1].difference.mean)
        }
        first = [f"**{each}**" for key, each in said.items() if column.leads(key)]
        theirs = [key for key in said if key in _THEIRS]
        clear = [
            f"({said[key]})" if key in small else said[key] for key in theirs if verdicts[key] in ("better", "worse")
        ]
        undecided: tuple[Verdict, ...] = ("same", "open")
        rest = {word: [LABELS[key] for key in theirs if verdicts[key] == word] for word in undecided}
        cells = [
            _ARENAS[name].where,
            ", ".join(first) or "nobody is clearly ahead of GELU",
            "; ".join(
                [", ".join(clear)] * bool(clear)
                + [f"{WORDS[word]}: {', '.join(names)}" for word, names in rest.items() if names]
            ),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    matters = [f"{column.unit * column.smallest:g}{' bits' * (column.unit == 1)}" for column in finished().values()]
    lines += ["", f"(What matters, line by line: {', '.join(matters)}; each was written down before the runs.)"]
    return "\n".join(lines)


def _decimals(column: Column) -> int:
    """So many that a tenth of what matters can be told."""
    return max(0, math.ceil(1 - math.log10(column.unit * column.smallest) - 0.5))


def differences(columns: Sequence[Compared], labels: Mapping[str, str]) -> Figure:
    """Draw every neuron's difference to the reference, a row a neuron and a column an arena.

    A point is the mean over seeds, its bar the 95 % interval. The grey band is what could not have been seen: a true
    difference inside it would have been missed in more than one of five such runs. Dotted lines are the difference that
    matters.

    Parameters
    ----------
    columns : sequence of Compared
        From left to right: `Column`, or what has as much.
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
        1,
        len(columns),
        sharey=True,
        squeeze=False,
        figsize=(max(6.4, 2.4 + 1.65 * len(columns)), 1.2 + 0.26 * len(labels)),
    )
    figure.set_layout_engine("constrained", wspace=0.06)  # between the outermost numbers of two columns
    for axis, column in zip(axes[0], columns, strict=True):
        _draw(axis, column, list(labels))
    axes[0][0].set_yticks(range(len(labels)), list(labels.values()))
    axes[0][0].set_ylim(len(labels) - 0.5, -0.5)
    signs: list[Any] = [
        Line2D([], [], color=_COLOURS[name], marker=_MARKERS[name], linestyle="-", markersize=5, label=words)
        for name, words in WORDS.items()
        if name != "same" or any(column.smallest for column in columns)
    ]
    signs.append(Patch(color=COLOURS[4], alpha=0.2, label="true differences missed more than 1 time in 5"))
    if any(column.smallest for column in columns):
        signs.append(Line2D([], [], color="#010203", linewidth=1.2, linestyle=":", label="the difference that matters"))
    figure.legend(handles=signs, loc="outside lower center", ncols=3, fontsize="small")
    return figure


def _draw(axis: Any, column: Compared, names: list[str]) -> None:
    found = column.comparisons()
    axis.axvline(0, color="#010203", linewidth=0.8, linestyle="-")
    for end in (-column.smallest, column.smallest) if column.smallest else ():
        axis.axvline(end * column.unit, color="#010203", linewidth=1.2, linestyle=":")
    for place, name in enumerate(names):
        if name not in found:
            continue
        comparison = found[name]
        middle, decided = comparison.difference, verdict(comparison, column.smallest)
        colour = _COLOURS[decided]
        reach = comparison.detectable * column.unit
        axis.barh(place, 2 * reach, left=-reach, height=0.7, color=COLOURS[4], alpha=0.2, linewidth=0)
        axis.plot(
            [middle.low * column.unit, middle.high * column.unit],
            [place, place],
            color=colour,
            linestyle="-",
            solid_capstyle="butt",
        )
        axis.plot([middle.mean * column.unit], [place], color=colour, marker=_MARKERS[decided], markersize=5)
    axis.set_title(column.title)
    axis.grid(visible=False)
