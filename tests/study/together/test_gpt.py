import math

import pytest
import torch

from companion import LAHardSiLU, LASiLU
from companion.study.experiments import Job, get
from companion.study.together import gpt
from companion.study.together.gpt import NEURONS, REFUSED, build
from tests.cases import together
from tests.study.experiments.committed import committed, runs
from tests.study.together.arenas import assert_equal_size, assert_every_parameter_learns, differing

SIZES = {"context": 12, "width": 32, "heads": 4, "blocks": 2}
KEYS = {
    "together-gpt": {
        *("neuron", "seed", "learning_rate", "bits", "bits_validation", "bits_by_epoch", "epoch"),
        *("parameters", "flops"),
    }
}


def network(name, units=None, sizes=SIZES):
    units = gpt._units(name, 7, **sizes) if units is None else units
    torch.manual_seed(1)
    return build(name, 7, sizes, units)


def job_of(preset, neuron, rate=1e-3, stage="evaluation", **changes):
    settings = {**get("together-gpt").settings(preset), **changes}
    return Job("together-gpt", stage, {"neuron": neuron}, settings, 0, rate)


TestRuns = runs(KEYS, committed("together-gpt"))


@together("name", NEURONS)
def test_no_character_sees_those_to_come(name):
    model = network(name)
    here = torch.randint(0, 7, (2, 12))
    there = here.clone()
    there[:, 8:] = (there[:, 8:] + 1) % 7
    one, other = model(here), model(there)
    torch.testing.assert_close(one[:, :8], other[:, :8])
    assert not torch.allclose(one[:, 8:], other[:, 8:])


def test_layeract_as_published_would_see_them():
    model = network("la_silu")
    for block in model.blocks:
        block.activation = LASiLU()
    here = torch.randint(0, 7, (2, 12))
    there = torch.cat([here[:, :8], (here[:, 8:] + 1) % 7], 1)
    assert not torch.allclose(model(here)[:, :8], model(there)[:, :8])


def test_layeract_is_per_character():
    for name, kind in (("la_silu", LASiLU), ("la_hardsilu", LAHardSiLU)):
        found = [module for module in network(name).modules() if isinstance(module, kind)]
        assert len(found) == SIZES["blocks"]
        assert all(module.dims in (-1, (-1,)) for module in found)


@together("name", NEURONS)
def test_every_network_has_as_many_parameters_as_gelus(name):
    assert_equal_size(network(name), network("gelu"), torch.zeros(1, 12, dtype=torch.int64))


@together("name", NEURONS)
def test_every_parameter_learns(name):
    here, there = torch.randint(0, 7, (2, 8, 12))
    assert_every_parameter_learns(network(name), here, there, gpt._loss)


@together("name", ["relu", "aglu", "raa"])
def test_networks_of_equal_widths_begin_with_equal_weights(name):
    gelu, other = network("gelu", 128).state_dict(), network(name, 128).state_dict()
    assert [key for key in gelu if not torch.equal(gelu[key], other[key])] == []


@together("name", REFUSED)
def test_what_the_arena_does_not_hold_is_refused_with_the_reason(name):
    with pytest.raises(ValueError, match=f"neuron is '{name}', which this arena does not hold: {REFUSED[name][:20]}"):
        network(name, 8)


def test_an_unknown_neuron_is_refused():
    with pytest.raises(ValueError, match="neuron is 'gelux'; allowed are gelu, relu"):
        network("gelux", 8)


def test_a_network_learns_the_syllables():
    # four of them, each as probable: two bits for about 2.75 characters
    curve = gpt._fit(job_of("smoke", "gelu", rate=1e-2, characters=16_000, epochs=3), "test")
    assert curve.bits["test"][-1] < 0.9


def test_where_the_validation_is_best_the_test_counts(monkeypatch):
    bits = iter([math.nan, 6.0, 1.0, 5.0, 2.0, math.nan])
    monkeypatch.setattr(gpt, "_bits", lambda model, part: next(bits))
    (row,) = gpt.measure(job_of("smoke", "gelu", characters=160, epochs=3))
    assert (row["bits_validation"], row["bits"], row["epoch"]) == (1.0, 5.0, 2)


def test_tuning_sees_a_third_of_the_characters_and_no_test():
    presets = get("together-gpt").presets
    laptop, full = presets["laptop"], presets["full"]
    assert laptop["tuning"]["characters"] == round(laptop["characters"] / 3, -3)
    assert full["tuning"]["epochs"] == full["epochs"] // 3
    job = job_of("smoke", "gelu", stage="tuning")
    assert get("together-gpt").validate(job) == -min(gpt._fit(job, "validation").bits["validation"])


def test_the_presets_differ_in_size_alone():
    found = differing("together-gpt")
    assert found["pilot"] == {"seeds", "competitors"}
    assert found["full"] == {
        *("characters", "tuning", "context", "width", "heads", "blocks", "epochs", "batch_size"),
        *("precision", "compiled", "device", "seeds"),
    }


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("neuron", ["aglu", "la_silu", "raa", "swiglu"])
def test_the_full_preset_compiles_every_neuron_in_one_graph(neuron):
    small = {"context": 12, "width": 32, "heads": 4, "blocks": 2, "characters": 240, "epochs": 1, "batch_size": 10}
    curve = gpt._fit(job_of("full", neuron, device="cpu", dataset="syllables", **small), "validation")
    assert curve.bits["validation"][0] < 4
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
