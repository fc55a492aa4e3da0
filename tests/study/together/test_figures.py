"""The arenas' figure: what is drawn is what was compared."""

import pytest

from companion.study.analysis import Comparison, Interval
from companion.study.together.figures import Column, averaged, differences, verdict

SEEDS = range(6)
# GELU, and what the others have beside it; seed by seed they vary a little.
WOBBLE = (0.0, 1.0, -1.0, 0.5, -0.5, 0.0)
ROWS = [
    {"neuron": neuron, "seed": seed, "loss": 1.0 + 0.1 * seed + distance + 0.001 * WOBBLE[seed] * (neuron != "gelu")}
    for neuron, distance in (("gelu", 0.0), ("higher", 0.3), ("lower", -0.3), ("alike", 0.0))
    for seed in SEEDS
]


def column(**options: object) -> Column:
    return Column("loss", ROWS, "loss", **{"smallest": 0.01, "unit": 1.0, **options})  # type: ignore[arg-type]


def test_less_is_better_where_it_is_said() -> None:
    assert column(lower=True).verdicts() == {"higher": "worse", "lower": "better", "alike": "same"}
    assert column().verdicts() == {"higher": "better", "lower": "worse", "alike": "same"}
    assert column(reference="higher").verdicts()["gelu"] == "worse"


@pytest.mark.parametrize(
    ("mean", "half", "p_holm", "expected"),
    [
        (0.5, 0.2, 0.01, "better"),
        (-0.5, 0.2, 0.01, "worse"),
        (0.05, 0.02, 0.01, "same"),  # clear, and too small to matter
        (0.05, 0.06, 0.30, "open"),
        (0.05, 0.04, 0.30, "same"),
        (0.09, 0.05, 0.01, "better"),  # it may matter
    ],
)
def test_what_decides(mean: float, half: float, p_holm: float, expected: str) -> None:
    found = Comparison("aglu", Interval(mean, mean - half, mean + half, 6), p_holm, p_holm, 0.1, 1)
    assert verdict(found, 0.1) == expected


def test_a_point_an_interval_and_what_could_be_seen_of_each_neuron_that_was_compared() -> None:
    labels = {"absent": "not in this arena", "lower": "lower", "higher": "higher"}
    figure = differences([column(lower=True, unit=100.0)], labels)
    axis = figure.axes[0]
    found = column(lower=True).comparisons()
    points = {line.get_ydata()[0]: line.get_xdata()[0] for line in axis.lines if line.get_marker() in "v^ox"}
    assert points == pytest.approx({1: 30.0, 2: -30.0}, abs=0.1)
    bars = {bar.get_y() + bar.get_height() / 2: bar.get_width() for bar in axis.patches}
    assert bars == pytest.approx({1: 200 * found["lower"].detectable, 2: 200 * found["higher"].detectable})
    assert [text.get_text() for text in axis.get_yticklabels()] == list(labels.values())


@pytest.mark.parametrize("smallest", [0.0, 0.01])
def test_what_matters_is_drawn_where_it_was_written_down(smallest: float) -> None:
    figure = differences([column(smallest=smallest)], {"lower": "lower"})
    dotted = [line for line in figure.axes[0].lines if line.get_linestyle() == ":"]
    words = {text.get_text() for text in figure.legends[0].get_texts()}
    assert len(dotted) == (2 if smallest else 0)
    assert ({"no difference that matters", "the difference that matters"} <= words) is bool(smallest)
    assert ("no difference that matters" in words) is bool(smallest)


def test_a_mean_over_conditions_is_of_the_same_conditions_for_all() -> None:
    rows = [{"neuron": n, "seed": 0, "place": p, "loss": p + (n == "b")} for n in "ab" for p in (1.0, 2.0)]
    assert averaged(rows, "loss") == [
        {"neuron": "a", "seed": 0, "loss": 1.5},
        {"neuron": "b", "seed": 0, "loss": 2.5},
    ]
    with pytest.raises(ValueError, match="rows has neurons that met 1 conditions and others that met 2"):
        averaged(rows[1:], "loss")
