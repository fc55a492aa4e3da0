import pytest
import torch

from companion.study.experiments import Job, get
from companion.study.results import load
from companion.study.together import conv_tail, experiments
from companion.study.together.neurons import NEURONS
from companion.study.together.power import seeds_needed
from companion.study.training import balanced_softmax
from tests.study.experiments.committed import committed, runs

KEYS = {
    "together-conv-tail": {
        *("imbalance", "loss", "neuron", "seed", "learning_rate", "parameters", "flops", "examples"),
        *("accuracy", "accuracy_frequent", "accuracy_rare", "calibration_error"),
    }
}


def job_of(case, stage="evaluation", **changes):
    settings = {**get("together-conv-tail").settings("smoke"), "epochs": 1, **changes}
    return Job("together-conv-tail", stage, {"neuron": "gelu", "imbalance": 100, **case}, settings, 0, 1e-2)


TestRuns = runs(KEYS, committed("together-conv-tail"))


def test_six_neurons_meet_each_loss(results):
    assert {row["imbalance"] for row in results["together-conv-tail"]["rows"]} == {100}
    for preset in ("laptop", "full"):
        cases = get("together-conv-tail").cases(get("together-conv-tail").presets[preset])
        assert len(cases) == 12
        assert {case["neuron"] for case in cases} < {*NEURONS}
        assert {case["loss"] for case in cases} == {*conv_tail.LOSSES}


@pytest.mark.parametrize("neuron", ["gelu", "dnrt"])
def test_network_and_recipe_are_those_of_the_convolutional_arena(neuron):
    job = job_of({"neuron": neuron, "loss": "cross-entropy"}, label_smoothing=0.0)
    here, there = conv_tail._fit(job).model.state_dict(), experiments.fit(job).model.state_dict()
    assert here.keys() == there.keys()
    assert [name for name in here if not torch.equal(here[name], there[name])] == []


def test_the_presets_are_the_convolutional_arenas_with_what_is_said_to_be_different():
    for preset, own in get("together-conv-tail").presets.items():
        other = get("together-conv").presets[preset]
        assert set(other) - set(own) == {"label_smoothing", "measured"}
        changed = {key for key in own if own[key] != other.get(key)}
        assert (
            changed
            == {
                "smoke": {"competitors", "learning_rates", "train_size"},
                "pilot": {"epochs", "tuning"},
                "laptop": {"competitors", "epochs", "tuning", "seeds"},
                "rates": {"learning_rates", "epochs", "tuning", "seeds"},
                "same-rate": {"learning_rates", "epochs", "tuning"},
                "full": {"competitors", "epochs", "tuning", "seeds"},
            }[preset]
        )


def test_its_seeds_find_what_matters_among_six_neurons_by_the_spread_of_the_pilot():
    pilot, laptop = load("together-conv-tail", "pilot"), get("together-conv-tail").presets["laptop"]
    found = {(row["loss"], row["neuron"], row["seed"]): row["accuracy"] for row in pilot["rows"]}
    for loss in conv_tail.LOSSES:
        differences = [found[loss, "relu", seed] - found[loss, "gelu", seed] for seed in pilot["seeds"]]
        asked = seeds_needed(differences, len(laptop["competitors"]) - 1, conv_tail.SMALLEST_DIFFERENCE)
        assert asked <= laptop["seeds"]


def test_who_chose_another_rate_than_gelu_met_it_at_both():
    chosen = {(row["loss"], row["neuron"]): row["learning_rate"] for row in load("together-conv-tail")["chosen"]}
    of_gelu = {chosen[loss, "gelu"] for loss in conv_tail.LOSSES}
    slower = {neuron for (_, neuron), rate in chosen.items() if rate not in of_gelu}
    presets = get("together-conv-tail").presets
    assert {*presets["same-rate"]["competitors"]} == slower
    assert {*presets["same-rate"]["learning_rates"]} == of_gelu
    assert {rate for (_, neuron), rate in chosen.items() if neuron in slower} == {*presets["rates"]["learning_rates"]}


def test_the_rarest_class_has_a_hundredth_and_the_test_all_alike():
    splits = conv_tail._fit(job_of({"loss": "cross-entropy"})).splits
    counts = torch.bincount(splits.train.targets)
    assert int(counts.max()) // 100 == int(counts.min())
    assert torch.bincount(splits.test.targets).min() > 40


def test_balanced_softmax_knows_the_classes_of_the_training_images():
    fitted = conv_tail._fit(job_of({"loss": "balanced softmax"}))
    logits, targets = torch.randn(20, 10), torch.arange(20) % 10
    counts = torch.bincount(fitted.splits.train.targets, minlength=10)
    expected = {"balanced softmax": balanced_softmax(counts), "cross-entropy": torch.nn.functional.cross_entropy}
    for name, loss in expected.items():
        assert conv_tail._loss(fitted, job_of({"loss": name}))(logits, targets) == loss(logits, targets)


def test_balanced_softmax_helps_the_rare():
    rare = {}
    for loss in conv_tail.LOSSES:
        (row,) = conv_tail._measure(job_of({"loss": loss, "neuron": "relu"}, epochs=6))
        rare[loss] = row["accuracy_rare"]
    assert rare["balanced softmax"] > rare["cross-entropy"] + 0.05


def test_an_unknown_loss_is_refused():
    with pytest.raises(ValueError, match="loss is 'hinge'; allowed are cross-entropy, balanced softmax"):
        conv_tail._fit(job_of({"loss": "hinge"}))
