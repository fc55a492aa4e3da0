import pytest
import torch

from companion.study.experiments import Job, get
from companion.study.together import experiments
from companion.study.together.corruptions import CIFAR_C
from companion.study.together.neurons import NEURONS
from companion.study.training import evaluate
from tests.study.experiments.committed import committed, runs
from tests.study.together.arenas import differing

KEYS = {
    "together-conv": {
        "neuron",
        "seed",
        "learning_rate",
        *("accuracy", "loss", "calibration_error", "collapse", "parameters", "flops"),
        *("accuracy_corrupted", "accuracy_attacked", "accuracy_attacked_8", "accuracy_signs"),
        *(f"accuracy_{name}" for name in CIFAR_C),
        *(f"accuracy_std_{std}" for std in (0.05, 0.1, 0.15, 0.2, 0.3)),
        *(f"accuracy_mean_{mean}" for mean in (-0.4, -0.2, -0.1, 0.1, 0.2, 0.4)),
    }
}


def job_of(preset, stage, neuron, rate=0.01, **changes):
    experiment = get("together-conv")
    settings = {**experiment.presets[preset], **changes}
    return Job("together-conv", stage, {"neuron": neuron}, settings, 0, rate)


TestRuns = runs(KEYS, sorted({*committed("together-conv")} - {*committed("together-conv-tail")}))


def test_rows_that_are_compared_have_equal_parameters(results):
    counts = {row["neuron"]: row["parameters"] for row in results["together-conv"]["rows"]}
    assert max(counts.values()) - min(counts.values()) <= 0.02 * counts["gelu"]


def test_tuning_and_evaluation_see_the_data_that_the_protocol_says():
    sizes = {}
    for stage in ("tuning", "evaluation"):
        job = job_of("laptop", stage, "gelu", dataset="digits", epochs=1, tuning={"epochs": 1, "validation": 0.1})
        splits = experiments.fit(job).splits
        sizes[stage] = len(splits.train), len(splits.validation)
    assert sizes == {"tuning": (1212, 135), "evaluation": (1347, 0)}


def test_the_network_is_channels_last_and_learns():
    fitted = experiments.fit(job_of("smoke", "evaluation", "relu", rate=0.1, epochs=3, train_size=1300))
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in fitted.model.parameters() if p.ndim == 4)
    assert evaluate(fitted.model, fitted.splits.test).accuracy > 0.5


def test_the_presets_differ_in_size_alone():
    assert set(get("together-conv").presets["laptop"]["competitors"]) == {*NEURONS}
    found = differing("together-conv")
    assert found["pilot"] == {"seeds", "competitors"}
    assert found["full"] == {"tuning", "widths", "epochs", "precision", "compiled", "device"}
    assert found["rates"] == {"learning_rates", "tuning_seeds", "competitors"}
    assert found["same-rate"] == {"learning_rates", "tuning_seeds", "competitors", "seeds"}
    assert found["per-image"] == {"per_image", "learning_rates", "tuning_seeds", "competitors", "seeds"}


# Every kind of entrance: as it is, with a parameter, by hooks, by another graph, with two arguments.
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("neuron", ["la_silu", "aglu", "dnrt", "dac", "multibias", "two_arguments_last"])
def test_the_full_preset_compiles_every_neuron_in_one_graph(neuron):
    changes = {"dataset": "digits", "widths": [16, 32, 32], "train_size": 130, "epochs": 1, "batch_size": 64}
    fitted = experiments.fit(job_of("full", "evaluation", neuron, device="cpu", **changes))
    assert all(parameter.isfinite().all() for parameter in fitted.model.parameters())
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
