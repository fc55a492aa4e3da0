"""Parameters of networks, counted as torch counts them, and the widths that match the paper's networks."""

from __future__ import annotations

import itertools
import math

import pytest
from torch import nn

from companion.multi_argument.study.counts import conv_parameters, inner_parameters, match, mlp_parameters
from tests.cases import together


def parameters(layers: list[nn.Module]) -> int:
    return sum(each.numel() for layer in layers for each in layer.parameters())


@together("arity, positions", [(1, 1), (2, 4), (3, 1)])
def test_a_convolutional_network_has_the_parameters_of_torchs_layers(arity: int, positions: int) -> None:
    maps = (6, 12, 10)
    ends = [(before, arity * after) for before, after in itertools.pairwise((3, *maps))]
    layers: list[nn.Module] = [nn.Conv2d(*each, 3, device="meta") for each in ends]
    layers.append(nn.Linear(maps[-1] * positions, 7, device="meta"))
    assert conv_parameters(3, maps, 7, arity, positions) == parameters(layers)


MLP, CNN = (64, 64, 64), (60, 120, 120, 120)
#: The paper's networks, ten classes; the CNN with the mean over the map before its head.
PAPER = {
    ("MLP", "MNIST"): (MLP, lambda widths, arity=1: mlp_parameters(784, widths, 10, arity)),
    ("MLP", "CIFAR-10"): (MLP, lambda widths, arity=1: mlp_parameters(3072, widths, 10, arity)),
    ("CNN", "MNIST"): (CNN, lambda widths, arity=1: conv_parameters(1, widths, 10, arity)),
    ("CNN", "CIFAR-10"): (CNN, lambda widths, arity=1: conv_parameters(3, widths, 10, arity)),
}


@pytest.mark.parametrize("name", PAPER, ids="-".join)
def test_no_other_beta_matches_better(name: tuple[str, str]) -> None:
    hidden, count = PAPER[name]
    target = count(hidden, 2)
    found = match(hidden, 2, count, target)
    scaled = [math.floor(math.sqrt(2) * units) for units in hidden]
    every = {beta: count([units + beta for units in scaled]) - target for beta in range(-50, 60)}
    assert found.extra == min(every, key=lambda beta: abs(every[beta]))
    assert found.difference == every[found.extra]
    assert found.widths == tuple(units + found.extra for units in scaled)


def test_only_where_the_first_layer_is_small_is_beta() -> None:
    found = {name: match(hidden, 2, count, count(hidden, 2)) for name, (hidden, count) in PAPER.items()}
    assert {name: (each.extra, each.difference) for name, each in found.items()} == {
        ("MLP", "MNIST"): (25, 345),
        ("MLP", "CIFAR-10"): (33, -911),
        ("CNN", "MNIST"): (1, 2190),
        ("CNN", "CIFAR-10"): (1, 1560),
    }


def test_learned_activations_of_one_argument_get_the_same_widths() -> None:
    for hidden, count in PAPER.values():
        target = count(hidden, 2) + inner_parameters(2)
        relu = match(hidden, 2, count, count(hidden, 2))
        one = match(hidden, 2, lambda widths, count=count: count(widths) + inner_parameters(1), target)
        assert one.widths == relu.widths
        assert one.difference == relu.difference - 64


def test_where_one_argument_is_asked_for_nothing_changes() -> None:
    assert match(MLP, 1, lambda widths: mlp_parameters(784, widths, 10), mlp_parameters(784, MLP, 10)) == (0, MLP, 0)


def test_a_target_below_every_width_gives_the_smallest() -> None:
    assert match((3, 5), 1, lambda widths: mlp_parameters(4, widths, 2), 1).widths == (1, 3)
