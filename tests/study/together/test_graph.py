import pytest
import torch
from torch import nn

from companion.study.experiments import Job, get
from companion.study.together import graph
from companion.study.together.citations import invented, with_split
from companion.study.together.graph import NEURONS, REFUSED, GraphNetwork, build, neighbours
from tests.cases import together
from tests.study.experiments.committed import committed, runs
from tests.study.together.arenas import assert_every_parameter_learns, differing

KEYS = {
    "together-graph": {
        *("network", "problem", "neuron", "seed", "learning_rate"),
        *("accuracy", "loss", "calibration_error", "parameters"),
    }
}
EVERY = [(kind, name) for kind in ("gcn", "sage") for name in NEURONS]


def network(kind, name, units=64):
    torch.manual_seed(1)
    return build(name, invented(), kind, units)


def job_of(network, neuron, **changes):
    settings = {**get("together-graph").settings("smoke"), **changes}
    case = {"network": network, "problem": "invented", "neuron": neuron}
    return Job("together-graph", "evaluation", case, settings, 0, 0.01)


TestRuns = runs(KEYS, committed("together-graph"))


def adjacency():
    papers = invented()
    matrix = torch.zeros(120, 120)
    matrix[papers.edges[0], papers.edges[1]] = 1
    return matrix


def test_gcn_has_the_normalised_matrix_of_its_paper():
    loops = adjacency() + torch.eye(120)
    root = loops.sum(1).rsqrt()
    torch.testing.assert_close(neighbours(invented(), "gcn")(torch.eye(120)), root[:, None] * loops * root)


def test_graphsage_has_the_mean_of_all_neighbours():
    matrix = adjacency()
    torch.testing.assert_close(neighbours(invented(), "sage")(torch.eye(120)), matrix / matrix.sum(1, keepdim=True))


def test_an_unknown_network_is_refused():
    with pytest.raises(ValueError, match="kind is 'gat'; allowed are gcn, sage"):
        neighbours(invented(), "gat")


@torch.no_grad()
def test_the_networks_are_those_of_their_formulas():
    papers = torch.arange(120)
    x, mean = invented().words(torch.eye(120)), neighbours(invented(), "sage")(torch.eye(120))
    a = neighbours(invented(), "gcn")(torch.eye(120))
    gcn, sage = (GraphNetwork(invented(), kind, 8, lambda units: nn.Tanh()).eval() for kind in ("gcn", "sage"))
    for model in (gcn, sage):
        nn.init.normal_(model.to_units.bias)
    hidden = torch.tanh(a @ x @ gcn.to_units.weight.T + gcn.to_units.bias)
    torch.testing.assert_close(gcn(papers), a @ hidden @ gcn.head.weight.T + gcn.head.bias)
    hidden = torch.tanh(sage.to_units(torch.cat([x, mean @ x], 1)))
    torch.testing.assert_close(sage(papers), sage.head(torch.cat([hidden, mean @ hidden], 1)))


@together("kind, name", EVERY)
def test_every_network_has_as_many_parameters_as_gelus(kind, name):
    own, base = (
        sum(p.numel() for p in network(kind, each, graph._units(each, invented(), kind, 64)).parameters())
        for each in (name, "gelu")
    )
    assert abs(own - base) <= 0.01 * base


@together("kind, name", EVERY)
def test_every_parameter_learns(kind, name):
    papers = torch.arange(60)
    assert_every_parameter_learns(network(kind, name), papers, invented().targets[papers])


@together("kind, name", [(kind, name) for kind in ("gcn", "sage") for name in ("aglu", "raa")])
def test_networks_of_equal_widths_begin_with_equal_weights(kind, name):
    gelu, other = network(kind, "gelu").state_dict(), network(kind, name).state_dict()
    assert [key for key in gelu if not torch.equal(gelu[key], other[key])] == []


def test_arr_hears_what_the_neurons_give_for_the_papers_that_are_asked_for():
    model, papers = network("gcn", "dnrt"), torch.tensor([7, 3, 50])
    given = []
    model.activation.register_forward_hook(lambda module, args, output: given.append(output))
    model.train()(papers)
    model.arr.loss(torch.tensor([0, 1, 2]))
    # at first the means are what was heard
    torch.testing.assert_close(model.arr.means()["responses"], given[0][papers])


def test_arr_is_part_of_the_loss():
    with_arr, without = (graph._fit(job_of("gcn", name, steps=2))[0] for name in ("dnrt", "raa"))
    assert not torch.equal(with_arr.to_units.weight, without.to_units.weight)


def test_the_data_are_not_saved_with_a_network():
    assert not any(name.startswith(("words", "neighbours")) for name in network("gcn", "gelu").state_dict())


@together("name", REFUSED)
def test_what_the_arena_does_not_hold_is_refused_with_the_reason(name):
    with pytest.raises(ValueError, match=f"neuron is '{name}', which this arena does not hold: a mean over neighbours"):
        network("gcn", name)


def test_an_unknown_neuron_is_refused():
    with pytest.raises(ValueError, match="neuron is 'maxout'; allowed are gelu, relu"):
        network("gcn", "maxout")


def test_networks_learn_from_the_graph():
    for kind in ("gcn", "sage"):
        (row,) = graph._measure(job_of(kind, "relu", steps=60))
        assert row["accuracy"] > 0.6


def test_a_rate_is_chosen_by_papers_that_validate():
    job = job_of("gcn", "gelu", steps=5)
    model, _ = graph._fit(job)
    papers = with_split(invented(), job.settings["each"], job.settings["validation"], job.seed).validation
    hits = model.eval()(papers).argmax(1) == invented().targets[papers]
    assert get("together-graph").validate(job) == float(hits.double().mean())


def test_the_presets_differ_in_size_alone():
    presets = get("together-graph").presets
    assert presets["laptop"]["tuning"]["steps"] == round(presets["laptop"]["steps"] / 3)
    assert differing("together-graph")["pilot"] == {"seeds", "competitors"}
