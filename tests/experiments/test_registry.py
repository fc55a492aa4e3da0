import re
from dataclasses import replace

import pytest

from companion.experiments import Experiment, Job, experiments, get, grid, register, registry


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
