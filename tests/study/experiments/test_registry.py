import re
from collections import Counter
from dataclasses import replace

import pytest

from companion.study.experiments import Experiment, Job, experiments, get, grid, register, registry


def toy(name="apa-toy"):
    return Experiment(name, "apa", "A toy.", {"smoke": {"seeds": 1}}, lambda s: [{}], lambda job: [{}], ())


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    experiments()
    monkeypatch.setattr(registry, "_EXPERIMENTS", dict(registry._EXPERIMENTS))


def test_a_registered_experiment_is_found_by_name():
    experiment = register(toy())
    assert get("apa-toy") is experiment
    assert experiment in experiments()


def test_names_are_unique_and_carry_the_mechanism():
    register(toy())
    with pytest.raises(ValueError, match="registered twice"):
        register(toy())
    with pytest.raises(ValueError, match="must begin with 'apa-'"):
        register(toy("toy"))
    several = replace(toy("multi-argument-toy"), mechanism="multi_argument")
    assert register(several) is several
    with pytest.raises(ValueError, match="must begin with 'multi-argument-'"):
        register(replace(several, name="multi_argument-toy"))


def test_unknown_names_and_presets_list_those_there_are():
    with pytest.raises(ValueError, match=r"the experiments are .*apa-digits"):
        get("apa-none")
    with pytest.raises(ValueError, match="apa-toy has smoke"):
        toy().preset("huge")


def test_a_grid_is_every_combination():
    assert grid(a=[1, 2], b=["x", "y"]) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def test_a_job_without_a_learning_rate_says_so():
    job = Job("apa-toy", "evaluation", {}, {}, 0, None)
    with pytest.raises(ValueError, match="does not tune"):
        _ = job.rate


def test_a_condition_shares_no_rate():
    shared = replace(toy(), conditions=("noise", "network"), one_rate_for=("network",))
    with pytest.raises(ValueError, match="network of apa-toy is in conditions and in one_rate_for; allowed is one"):
        register(shared)


def test_what_a_job_is_told_is_its_preset_without_the_runs_own():
    run = {"seeds": 1, "learning_rates": [1.0], "tuning_seeds": [1000], "competitors": ["relu"]}
    experiment = replace(toy(), presets={"smoke": {**run, "epochs": 3, "device": "cpu"}})
    assert experiment.settings("smoke") == {"epochs": 3, "device": "cpu"}
    assert experiment.settings("smoke", "cuda") == {"epochs": 3, "device": "cuda"}
    with pytest.raises(ValueError, match="apa-toy smoke has none: its setting has no precision"):
        experiment.settings("smoke", precision="float32")
    mixed = replace(toy(), presets={"smoke": {"seeds": 1, "precision": "bfloat16"}})
    assert mixed.settings("smoke", precision="float32") == {"precision": "float32"}
    with pytest.raises(ValueError, match="precision is 'float16'; apa-toy smoke has float32, bfloat16"):
        mixed.settings("smoke", precision="float16")


# What a case may hold that says where the competitors meet, and not who they are. Of apa-logits it is what is compared.
PLACES = {"imbalance", "wrong_labels", "network", "problem"}


@pytest.mark.parametrize("experiment", experiments(), ids=lambda e: e.name)
def test_the_conditions_of_an_experiment_are_keys_of_its_cases_and_somebody_competes_under_each(experiment):
    if experiment.name in ("apa-logits", "dac-toy"):
        assert experiment.conditions == {"apa-logits": (), "dac-toy": ("problem",)}[experiment.name]
        return
    for preset, settings in experiment.presets.items():
        cases = experiment.cases(settings)
        assert set(experiment.conditions) == PLACES & {key for case in cases for key in case}
        if preset == "rates":
            # The others are the rows of "laptop".
            others = experiment.cases(experiment.presets["laptop"])
            assert all(case in others for case in cases)
            assert len(others) > len(cases)
        elif preset != "smoke":
            competitors = Counter(experiment.condition(case) for case in cases)
            assert min(competitors.values()) > 1


@pytest.mark.parametrize("experiment", experiments(), ids=lambda e: e.name)
def test_every_experiment_is_complete(experiment):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", experiment.name)
    assert "smoke" in experiment.presets
    for settings in experiment.presets.values():
        assert experiment.cases(settings)
        if experiment.validate:
            assert len(settings["learning_rates"]) > 0
            assert all(seed >= 1000 > settings["seeds"] for seed in settings["tuning_seeds"])
    for preset in set(experiment.presets) - {"smoke"}:
        # A conclusion needs at least five seeds.
        assert experiment.presets[preset]["seeds"] >= 5
