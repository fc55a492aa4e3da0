import pytest
import torch
from torch import nn

from companion.experiments import Job, get
from companion.study.together import cost
from companion.study.together.cost import kept
from companion.study.together.neurons import NEURONS
from tests.experiments.committed import assert_current, committed
from tests.together import together

KEYS = {"together-cost": {"neuron", "seed", "memory", "parameters", "flops"}}
SETTINGS = {**get("together-cost").settings("smoke"), "batch_size": 2}


def test_the_smoke_preset_gives_what_is_the_same_on_every_machine(results):
    rows = results["together-cost"]["rows"]
    assert {row["neuron"] for row in rows} == {*NEURONS}
    for row in rows:
        assert row.keys() - {"first_losses"} == KEYS["together-cost"]


@pytest.mark.parametrize("name", committed("together-cost"))
def test_committed_results_are_what_this_code_gives(results, name):
    assert_current(name, results)


def test_what_a_neuron_keeps_is_more_where_it_has_to_be(results):
    memory = {row["neuron"]: row["memory"] for row in results["together-cost"]["rows"]}
    # of ReLU the output is enough, which the next layer keeps anyway; a DAC activates for each of its outputs
    assert memory["relu"] < memory["gelu"] < memory["glu"] < memory["dac"]


def test_kept_are_the_inputs_of_linear_layers_and_of_gelu_each_once():
    model = nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 7))
    x = torch.ones(2, 3)
    assert kept(model, lambda: model(x).sum()) == 4 * 2 * (3 + 5 + 5)
    # one storage, kept by two products
    assert kept(
        model, lambda: model(x).sum() * 0 + (model[0].bias * x[:, :1]).sum() + (x * model[0].weight[0]).sum()
    ) == (4 * 2 * (3 + 5 + 5))


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("neuron", ["gelu", "dnrt", "dac"])
def test_steps_are_timed_in_eager_and_compiled_as_one_graph(neuron):
    (row,) = cost._measure(Job("together-cost", "evaluation", {"neuron": neuron}, {**SETTINGS, "repeats": 2}, 0, None))
    times = {f"{mode}_{what}" for mode in ("eager", "compiled") for what in ("ms", "to_gelu")}
    assert row.keys() >= times
    assert min(row[name] for name in times) > 0
    # that of GELU, and its own
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


@together("neuron", ["aglu", "dnrt", "maxout"])
def test_a_step_moves_every_parameter(neuron):
    step = cost._Step(neuron, SETTINGS)
    for group in step.rule.param_groups:
        group["lr"] = 1.0
    before = [p.clone() for p in step.model.parameters()]
    step()
    still = [n for (n, p), b in zip(step.model.named_parameters(), before, strict=True) if torch.equal(p, b)]
    assert still == []


def test_a_quotient_is_that_of_steps_that_follow_each_other(monkeypatch):
    # GELU and the neuron, eager and compiled; then all again on a machine that is ten times slower
    taken = iter([1.0, 2.0, 1.0, 3.0, 10.0, 20.0, 10.0, 30.0])
    monkeypatch.setattr(cost, "_milliseconds", lambda step: next(taken))
    monkeypatch.setattr(cost._Step, "compiled", lambda step: step)
    row = cost._times("relu", {**SETTINGS, "repeats": 2})
    assert row == {"eager_ms": 11.0, "eager_to_gelu": 2.0, "compiled_ms": 16.5, "compiled_to_gelu": 3.0}


def test_all_presets_have_every_neuron_and_come_from_one_machine():
    experiment = get("together-cost")
    assert experiment.timed
    assert all(preset["competitors"] == [*NEURONS] for preset in experiment.presets.values())
