import pytest
import torch
from torch import nn

from companion.study.experiments import Job, get
from companion.study.results import load
from companion.study.together import cost, gpt, mlp, vit
from companion.study.together.cost import kept
from companion.study.together.neurons import NEURONS
from tests.cases import together
from tests.study.experiments.committed import assert_current, committed

KEYS = {"together-cost": {"mode", "neuron", "seed", "ms", "to_gelu", "memory", "parameters", "flops"}}
SETTINGS = {**get("together-cost").settings("smoke"), "batch_size": 2}


def job_of(mode, neuron, **changes):
    case = {"mode": mode, "neuron": neuron}
    return Job("together-cost", "evaluation", case, {**SETTINGS, **changes}, 0, None)


def test_the_arena_runs_and_gives_the_rows_that_pages_read(results):
    rows = results["together-cost"]["rows"]
    assert {row["neuron"] for row in rows} == {*NEURONS}
    for row in rows:
        assert row.keys() - {"first_losses"} == KEYS["together-cost"]
        # of a time the smoke preset does not ask that it be the same
        assert {key for key, value in row.items() if isinstance(value, float)} == {"ms", "to_gelu"}


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
@pytest.mark.parametrize("neuron", ["aglu", "arr", "dac"])
def test_a_compiled_step_is_one_graph(neuron):
    (row,) = cost._measure(job_of("compiled", neuron))
    assert row["ms"] > 0
    # that of GELU, and its own
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="mode is 'traced'; allowed are eager, compiled"):
        cost._measure(job_of("traced", "relu"))


@together(
    "preset, neuron",
    [
        ("smoke", "aglu"),
        ("smoke", "dnrt"),
        ("smoke", "maxout"),
        ("perceptron", "dac"),
        ("perceptron", "two_arguments"),
        ("vit", "relu_arr"),
        ("text", "swiglu"),
    ],
)
def test_a_step_moves_every_parameter(preset, neuron):
    # with eight images both of ReLU's sides are met
    step = cost._Step(neuron, {**get("together-cost").settings(preset), "batch_size": 8}, "eager")
    for group in step.rule.param_groups:
        group["lr"] = 1.0
    before = [p.clone() for p in step.model.parameters()]
    step()
    still = [n for (n, p), b in zip(step.model.named_parameters(), before, strict=True) if torch.equal(p, b)]
    assert still == []


def test_a_quotient_is_that_of_steps_that_follow_each_other(monkeypatch):
    # GELU and the neuron; then both on a machine that is ten times slower
    taken = iter([1.0, 2.0, 10.0, 20.0])
    monkeypatch.setattr(cost, "_milliseconds", lambda step: next(taken))
    (row,) = cost._measure(job_of("eager", "relu", repeats=2))
    assert (row["ms"], row["to_gelu"]) == (11.0, 2.0)


def test_all_presets_have_every_neuron_and_times_come_from_one_machine():
    experiment = get("together-cost")
    assert experiment.timed
    for name, preset in experiment.presets.items():
        if name == "perceptron":
            assert {"gelu", "one_argument", "two_arguments"} <= {*preset["competitors"]} <= {*mlp.NEURONS}
        elif name in ("vit", "text"):
            assert preset["competitors"] == [*{"vit": vit, "text": gpt}[name].NEURONS]
        else:
            assert preset["competitors"] == [*NEURONS]
        assert preset["modes"] == (["eager"] if name in ("smoke", "vit", "text") else [*cost.MODES])


@pytest.mark.parametrize(("preset", "arena"), [("vit", "together-vit"), ("text", "together-gpt")])
def test_a_transformers_step_is_that_of_its_arena(preset, arena):
    settings, laptop = get("together-cost").settings(preset), get(arena).settings("laptop")
    shared = settings.keys() & laptop.keys()
    assert {"batch_size", "heads", "width"} <= shared
    assert {key: settings[key] for key in shared - {"seeds"}} == {key: laptop[key] for key in shared - {"seeds"}}
    step = cost._Step("relu", settings, "eager")
    assert step.arena.clip == laptop["clip"]
    rows = load(arena)["rows"]
    assert {row["parameters"] for row in rows if row["neuron"] == "relu"} == {
        sum(p.numel() for p in step.model.parameters())
    }


def test_the_perceptrons_step_is_that_of_its_arena():
    settings, arena = get("together-cost").settings("perceptron"), get("together-mlp").settings("laptop")
    step = cost._Step("two_arguments", settings, "eager")
    assert [settings[key] for key in ("widths", "batch_size", "precision")] == [
        arena[key] for key in ("widths", "batch_size", "precision")
    ]
    assert isinstance(step.model, mlp.ArenaMLP)
    assert isinstance(step.rule, torch.optim.AdamW)
    assert step.inputs.shape == (100, 1, 28, 28)
    # without smoothed labels: equal logits cost ln 10, and a confident right answer nothing
    assert float(step.of(100 * torch.eye(10)[step.targets], step.targets)) < 1e-6
