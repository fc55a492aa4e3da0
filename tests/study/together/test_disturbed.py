"""What neurons bear, and the rule over everything: from rows, and from the results that are stored."""

import pytest

from companion.study.together import disturbed as module
from companion.study.together.disturbed import advised, attackable, disturbed, mean_over, trained_again
from companion.study.together.figures import Column, finished


def test_a_mean_is_over_all_that_begin_so_and_over_nothing_else() -> None:
    rows = [{"seed": 0, "accuracy": 0.0, "accuracy_std_0.1": 0.5, "accuracy_std_0.3": 1.0, "accuracy_mean_0.1": 0.0}]
    assert mean_over(rows, "accuracy_std_") == [{**rows[0], "mean": 0.75}]
    with pytest.raises(ValueError, match="several keys that begin with accuracy_mean_, got one with 1"):
        mean_over(rows, "accuracy_mean_")


def test_who_is_not_really_attacked_is_not_compared_under_the_attack() -> None:
    left, compared = attackable(), disturbed()["together-conv"]["attack"].verdicts()
    assert {name for name, share in left.items() if share < 0.01} == {"gelu", *compared}
    assert set(left) - {"gelu", *compared} == {"aglu", "two_arguments_last"}


def test_the_rule_asks_for_a_lead_over_all_and_takes_what_was_trained_again_where_asked(monkeypatch) -> None:
    seeds = range(5)

    def of(**leads: float) -> Column:
        return Column(
            "",
            [
                {"neuron": name, "seed": seed, "accuracy": 0.5 + 0.01 * seed + lead + 0.001 * (seed * len(name) % 3)}
                for name, lead in {"gelu": 0.0, **leads}.items()
                for seed in seeds
            ],
        )

    accuracy = {"together-mlp": of(relu=0.1, mish=0.0, prelu=0.2), "together-conv": of(relu=-0.1, raa=0.1, arr=0.1)}
    others = {"together-mlp": {"noise": of(relu=-0.1, mish=0.1)}, "together-conv": {"noise": of(relu=0.1, raa=0.0)}}
    monkeypatch.setattr(module, "finished", lambda: accuracy)
    monkeypatch.setattr(module, "disturbed", lambda: others)
    monkeypatch.setattr(module, "trained_again", lambda: {"accuracy": of(prelu=-0.1), "noise": of(mish=-0.1)})
    # relu is ahead of GELU on digits and prelu ahead of it; raa and arr are ahead of all others, and level.
    photographs = {name: {"together-conv": word} for name, word in (("raa", "use it"), ("arr", "use it"))}
    on_both = {"together-mlp": "ahead", "together-conv": "leave it"}
    first = {"relu": on_both, "mish": {"together-mlp": "try it"}, "prelu": {"together-mlp": "use it"}}
    assert advised() == first | photographs
    # relu was not trained again, so it keeps its place behind the first prelu
    second = {"relu": on_both, "mish": {"together-mlp": "no reason to"}, "prelu": {"together-mlp": "leave it"}}
    assert advised(again=True) == second | photographs


def test_what_was_trained_again_has_the_names_of_the_first_time() -> None:
    first = {"accuracy": finished()["together-mlp"], **disturbed()["together-mlp"]}
    for word, column in trained_again().items():
        names = column.verdicts().keys()
        assert names <= first[word].verdicts().keys()
        assert {"dac", "arr", "dnrt"} <= names
