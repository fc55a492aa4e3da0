import pytest

from companion.study.together.composing import compositions
from companion.study.together.pairs import NEURONS, PAIRS, alone

# What varies from seed to seed, the same for all networks but for a little.
SEEDS = [0.0, 0.004, -0.003, 0.001, -0.002, 0.002, -0.001, 0.003]


def rows(noise=0.0003, **gains):
    """With accuracies of 0.9 and what each network gains, by its name with "_and_" for "+"."""
    gains = {name.replace("_and_", "+"): gain for name, gain in gains.items()}
    assert gains.keys() <= {*NEURONS}
    return [
        {"neuron": name, "seed": seed, "accuracy": 0.9 + gains.get(name, 0) + shift + noise * ((seed * place) % 7 - 3)}
        for place, name in enumerate(NEURONS)
        for seed, shift in enumerate(SEEDS)
    ]


def of(pair, found):
    return next(each for each in found if each.pair == pair)


@pytest.mark.parametrize(
    ("gain", "noise", "verdict"),
    [(0.02, 0.0003, "adds"), (0.0, 0.0003, "cancels"), (0.01, 0.0003, "neither"), (0.01, 0.005, "not decided")],
)
def test_a_pair_is_judged_by_the_better_of_its_neurons(gain, noise, verdict):
    dnrt = of("raa+arr", compositions(rows(noise, raa=0.005, gelu_and_arr=0.01, raa_and_arr=gain)))
    assert (dnrt.better, dnrt.verdict) == ("gelu+arr", verdict)


def test_an_interaction_is_what_both_bring_beyond_what_each_brings():
    found = compositions(rows(0, aglu=0.01, relu=0.002, relu_and_dac=0.005, aglu_and_dac=0.009))
    # 0.007 of both, 0.008 and 0.003 of each
    assert of("aglu+dac", found).interaction.difference.mean == pytest.approx(-0.004)
    assert of("aglu+dac", found).better == "aglu"
    assert of("aglu+arr", found).interaction.difference.mean == pytest.approx(-0.01)


def test_all_pairs_and_both_questions_are_one_family():
    found = compositions(rows())
    assert [each.pair for each in found] == [*PAIRS]
    assert {each.size for one in found for each in (one.to_better, one.interaction)} == {2 * len(PAIRS)}


def test_what_is_missing_is_named():
    for missing in alone("raa+arr"):
        with pytest.raises(ValueError, match="rows has none of"):
            compositions([row for row in rows() if row["neuron"] != missing])
    with pytest.raises(ValueError, match="has the seeds"):
        compositions([row for row in rows() if (row["neuron"], row["seed"]) != ("raa+arr", 3)])
