"""``together-graph``: eight neurons in networks on graphs of papers, where DNRT's Table 4 has one graph more.

GCN and GraphSAGE on Cora and CiteSeer. The paper has DGraph, which nobody has without registration, and does not say
more of its networks than "two layers with a 64-dimensional feature space": here the second layer gives the logits, as
in both networks' papers, so there is one layer of neurons.

*The recipe* is close to the GCN paper's: Adam with a constant learning rate, an L² penalty on the weights of both
layers, dropout of ½ before the second, 200 steps on all papers at once. GraphSAGE has the mean of all neighbours, none
drawn. Each seed draws its own 20 papers of each class to train, and 500 others to validate; the published 1,000 test,
after the last step.

*Equal.* Units as in the other arenas (`companion.study.together.experiments`): parameters within one per cent of
GELU's; one grid of rates for all, in trainings of a third of the steps, separately for each network and graph. LayerAct
normalises over the units of a paper, as published: papers are the first dimension. ARR holds what the neurons give for
the papers that train to the mean of their class, with the weight that it has in the other arenas.

*What this arena does not hold* `REFUSED` says, with the reasons.

*Cost* of "laptop" on one core: a training takes 3 to 9 seconds; all of it, tuning and twenty seeds, an hour and a
quarter. A GPU would not be faster, so there is no preset for one.

*Power*: `SMALLEST_DIFFERENCE` was written first. The preset "pilot" is five seeds of GELU and ReLU.

References
----------
Kipf, Welling (2017), Semi-supervised classification with graph convolutional networks. Hamilton, Ying, Leskovec (2017),
Inductive representation learning on large graphs. Qiu et al. (2024), Dynamic Neural Response Tuning, Table 4.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from companion import attach_arr
from companion.study.datasets import Part
from companion.study.experiments import Case, Experiment, Job, Row, grid
from companion.study.experiments.classification import settings_of
from companion.study.models.initialisation import initialise
from companion.study.together import neurons
from companion.study.together.citations import Citations, Rows, load, with_split
from companion.study.together.measures import calibration_error, learned
from companion.study.together.neurons import loss_of, named
from companion.study.together.sizes import as_wide_as
from companion.study.training import constant, hits, predict, train

__all__ = ["EXPERIMENT", "NEURONS", "REFUSED", "SMALLEST_DIFFERENCE", "GraphNetwork", "build", "neighbours"]

SMALLEST_DIFFERENCE = 0.01
"""Of accuracies, where networks get a fifth to a third of the papers wrong. Smaller ones do not matter."""

NEURONS = {name: neurons.NEURONS[name] for name in ("gelu", "relu", "silu", "prelu", "aglu", "la_silu", "raa", "dnrt")}
"""By the name that settings and rows have."""

REFUSED = {
    "dac": "a mean over neighbours stands between the neurons and the weights, for each of which it has a bias",
    "multibias": "a mean over neighbours stands between the neurons and the weights that its copies belong to",
}
"""Neurons that this arena does not hold, and why."""


def neighbours(citations: Citations, kind: str) -> Rows:
    """Return the matrix that brings to a paper what its neighbours have.

    Parameters
    ----------
    citations : Citations
        The graph, with its adjacency matrix A.
    kind : str
        "gcn": D^(−½) (A + I) D^(−½), with the degrees D of A + I. "sage": the mean over neighbours, D^(−1) A.

    Returns
    -------
    Rows
        (papers, papers). Of a paper without neighbours the row has itself, or nothing.

    Raises
    ------
    ValueError
        If there is no such kind.

    References
    ----------
    Kipf, Welling (2017), Eq. 2. Hamilton, Ying, Leskovec (2017), section 3.3.
    """
    papers, edges = len(citations.targets), citations.edges
    match kind:
        case "gcn":
            edges = torch.cat([edges, torch.arange(papers).expand(2, -1)], 1)
            root = edges[0].bincount(minlength=papers).float().rsqrt()
            return Rows(edges, root[edges[0]] * root[edges[1]], papers)
        case "sage":
            degree = edges[0].bincount(minlength=papers).float()
            return Rows(edges, 1 / degree[edges[0]], papers)
    raise ValueError(f"kind is {kind!r}; allowed are gcn, sage")


class GraphNetwork(nn.Module):
    """Two layers on a graph with one layer of neurons between them.

    GCN: Â(act(Â X W₁)) W₂. GraphSAGE: each layer has weights of its own for the paper itself.

    Parameters
    ----------
    citations : Citations
        The graph.
    kind : str
        "gcn" or "sage".
    units : int
        In the hidden layer.
    activation : callable
        Takes a number of units and returns a new module.
    dropout : float
        The share of the neurons' outputs that is dropped.

    Attributes
    ----------
    responses : nn.Identity
        Is given what the neurons give for the papers that are asked for: where ARR listens.

    Shape
    -----
    Input (N,), int64, papers; output (N, classes), their logits.

    Examples
    --------
    >>> from companion.study.together.citations import invented
    >>> GraphNetwork(invented(), "sage", 8, lambda units: nn.ReLU())(torch.arange(5)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        citations: Citations,
        kind: str,
        units: int,
        activation: Callable[[int], nn.Module],
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.kind, self.words, self.neighbours = kind, citations.words, neighbours(citations, kind)
        tables = 2 if kind == "sage" else 1
        self.to_units = nn.Linear(tables * citations.num_words, units)
        self.head = nn.Linear(tables * units, citations.num_classes)
        initialise([self.to_units], self.head)
        self.responses, self.dropout = nn.Identity(), nn.Dropout(dropout)
        # Last: what an activation draws changes no weight.
        self.activation = activation(units)

    def _layer(self, linear: nn.Linear, product: Callable[[Tensor], Tensor]) -> Tensor:
        """A layer of the graph, for a function that multiplies its inputs with a table of weights (inputs, outputs)."""
        if self.kind == "gcn":
            sums: Tensor = self.neighbours(product(linear.weight.T)) + linear.bias
            return sums
        own, theirs = linear.weight.T.chunk(2)
        both: Tensor = product(own) + self.neighbours(product(theirs)) + linear.bias
        return both

    def forward(self, papers: Tensor) -> Tensor:
        """Return the logits."""
        hidden = self.activation(self._layer(self.to_units, self.words))
        self.responses(hidden[papers])
        dropped = self.dropout(hidden)
        return self._layer(self.head, lambda weights: dropped @ weights)[papers]


def build(name: str, citations: Citations, kind: str, units: int) -> nn.Module:
    """Return the arena's network around a neuron.

    Parameters
    ----------
    name : str
        A key of `NEURONS`.
    citations : Citations
        The graph.
    kind : str
        "gcn" or "sage".
    units : int
        In the hidden layer.

    Returns
    -------
    nn.Module
        Fresh weights from torch's global generator.

    Raises
    ------
    ValueError
        If there is no such neuron, or the arena does not hold it; then the error says why.
    """
    neuron = named(name, NEURONS, REFUSED)
    place = neuron.places()
    model = GraphNetwork(citations, kind, units, lambda units: place(units, 1))
    if neuron.then:  # ARR: of the papers that are asked for alone
        attach_arr(model, "responses", citations.num_classes, torch.arange(2))
    return model


def _units(name: str, citations: Citations, kind: str, profile: int) -> int:
    """The units with which a neuron's network has as many parameters as GELU's with those of the profile."""
    return as_wide_as(name, (profile,), lambda name, widths: build(name, citations, kind, *widths))[0]


def _fit(job: Job) -> tuple[nn.Module, Citations]:
    settings, case = settings_of(job), job.case
    citations = with_split(load(case["problem"]), settings["each"], settings["validation"], job.seed)
    units = _units(case["neuron"], citations, case["network"], settings["units"])
    torch.manual_seed(job.seed)
    model = build(case["neuron"], citations, case["network"], units)
    papers = citations.train
    train(
        model,
        Part(papers, citations.targets[papers]),
        epochs=settings["steps"],
        learning_rate=job.rate,
        batch_size=len(papers),
        weight_decay=settings["weight_decay"],
        decay="kernels",
        seed=job.seed,
        schedule=constant,
        loss=loss_of(model),
        optimiser="adam",
    )
    return model, citations


def _validate(job: Job) -> float:
    model, citations = _fit(job)
    logits, papers = predict(model, citations.validation), citations.validation
    return float(hits(logits, citations.targets[papers]).mean())


def _measure(job: Job) -> list[Row]:
    model, citations = _fit(job)
    logits, targets = predict(model, citations.test), citations.targets[citations.test]
    return [
        {
            "accuracy": float(hits(logits, targets).mean()),
            "loss": float(F.cross_entropy(logits, targets)),
            "calibration_error": calibration_error(logits, targets),
            **learned(model),
            "parameters": sum(p.numel() for p in model.parameters()),
        }
    ]


def _cases(settings: Mapping[str, Any]) -> list[Case]:
    return grid(network=["gcn", "sage"], problem=settings["graphs"], neuron=settings["competitors"])


_LAPTOP: dict[str, Any] = {
    "graphs": ["cora", "citeseer"],
    "each": 20,
    "validation": 500,
    "units": 64,
    "steps": 200,
    "tuning": {"steps": 67},
    "weight_decay": 5e-4,
    "learning_rates": [3e-3, 1e-2, 3e-2],
    "tuning_seeds": [1000, 1001, 1002],
    "seeds": 20,
    "competitors": list(NEURONS),
}
_SMOKE: dict[str, Any] = {
    **_LAPTOP,
    "graphs": ["invented"],
    "each": 10,
    "validation": 30,
    "steps": 20,
    "tuning": {"steps": 5},
    "learning_rates": [1e-2],
    "tuning_seeds": [1000],
    "seeds": 2,
    "competitors": ["gelu", "aglu", "la_silu", "dnrt"],
}

EXPERIMENT = Experiment(
    name="together-graph",
    mechanism="together",
    description="Eight neurons in GCN and GraphSAGE of equal size on Cora and CiteSeer",
    presets={
        "smoke": _SMOKE,
        "pilot": {**_LAPTOP, "seeds": 5, "competitors": ["gelu", "relu"]},
        "laptop": _LAPTOP,
    },
    cases=_cases,
    validate=_validate,
    measure=_measure,
    columns=("accuracy", "loss", "calibration_error", "parameters"),
    conditions=("network", "problem"),
    # One of 30 papers.
    tolerance=0.034,
)
