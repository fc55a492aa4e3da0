import pytest

from companion.study import results
from companion.study.analysis import detectable, interval
from companion.study.experiments import get
from companion.study.together import gpt, mlp, vit
from companion.study.together.power import SMALLEST_DIFFERENCE, seeds_needed

PILOT = [0.004, 0.001, -0.002, 0.003, 0.006]


def test_so_many_seeds_are_enough_and_one_fewer_is_not():
    # two values ± d/2 have a known deviation, whatever their number
    needed = seeds_needed(PILOT, 15)
    centre, deviation = sum(PILOT) / 5, (sum((x - sum(PILOT) / 5) ** 2 for x in PILOT) / 4) ** 0.5

    def seen(n):
        half = [centre - 1, centre + 1] * (n // 2) + [centre] * (n % 2)
        spread = (sum((x - centre) ** 2 for x in half) / (n - 1)) ** 0.5
        return detectable(interval([centre + (x - centre) * deviation / spread for x in half]), 15)

    assert seen(needed) <= SMALLEST_DIFFERENCE < seen(needed - 1)


def test_smaller_differences_and_more_comparisons_need_more():
    assert seeds_needed(PILOT, 15, 0.003) > seeds_needed(PILOT, 15) > seeds_needed(PILOT, 1)


def test_a_pilot_without_spread_needs_three():
    assert seeds_needed([0.01, 0.01, 0.01], 15) == 3


def test_what_no_number_of_seeds_would_find_is_refused():
    with pytest.raises(ValueError, match="a thousand seeds miss it"):
        seeds_needed([0.5, -0.5], 15)


@pytest.mark.parametrize(
    ("arena", "smallest"),
    [
        ("together-conv", SMALLEST_DIFFERENCE),
        ("together-mlp", mlp.SMALLEST_DIFFERENCE),
        ("together-vit", vit.SMALLEST_DIFFERENCE),
    ],
)
def test_an_arena_has_as_many_seeds_as_its_pilot_asks_for(arena, smallest):
    pilot, laptop = results.load(arena, "pilot"), get(arena).presets["laptop"]
    found = {(row["neuron"], row["seed"]): row["accuracy"] for row in pilot["rows"]}
    differences = [found["relu", seed] - found["gelu", seed] for seed in pilot["seeds"]]
    assert laptop["seeds"] == seeds_needed(differences, len(laptop["competitors"]) - 1, smallest)
    assert not any(row["at_edge"] for row in pilot["chosen"])


def test_the_arena_of_text_has_the_seeds_that_its_pilot_asks_for_among_four_and_24_seeds_among_all():
    pilot, laptop, run = (
        results.load("together-gpt", "pilot"),
        get("together-gpt").presets["laptop"],
        results.load("together-gpt"),
    )

    def needed(result, comparisons: int) -> int:
        found = {(row["neuron"], row["seed"]): row["bits"] for row in result["rows"]}
        differences = [found["gelu", seed] - found["relu", seed] for seed in result["seeds"]]
        return seeds_needed(differences, comparisons, gpt.SMALLEST_DIFFERENCE)

    assert needed(pilot, 3) == len(run["seeds"]) == 24
    assert needed(run, len(laptop["competitors"]) - 1) == 21
    assert laptop["seeds"] == 24
    for words in ("24 seeds among the four", "21 among all ten"):
        assert words in gpt.__doc__
    assert not any(row["at_edge"] for row in pilot["chosen"])


def test_gelu_learns_in_the_convolutional_arena():
    pilot = results.load("together-conv", "pilot")
    assert min(row["accuracy"] for row in pilot["rows"] if row["neuron"] == "gelu") > 0.85
