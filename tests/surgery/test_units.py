"""Layers are widened for activations of several arguments, where nobody else reads them, and made narrow again."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune

from companion import MultiArgument, Quadratic, restore_activations, to_units
from companion.baselines import GEGLU, Maxout
from companion.study.models import resnet20, vit_tiny


class First(nn.Module):
    """ReLU of the first of n arguments: with it a widened network computes what the narrow one did."""

    def __init__(self, arity: int, dim: int) -> None:
        super().__init__()
        self.arity, self.dim = arity, dim

    def forward(self, x: Tensor) -> Tensor:
        """Forget the others."""
        return torch.relu(x.unflatten(self.dim, (-1, self.arity)).select(self.dim if self.dim < 0 else self.dim + 1, 0))


class Called(nn.Module):
    """Calls functions, one in place, with normalisation, pooling and dropout before them, and a grouped layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)
        self.second, self.again = nn.Conv2d(6, 6, 3, groups=3), nn.BatchNorm2d(6)
        self.pool, self.drop, self.third = nn.MaxPool2d(2), nn.Dropout(0.5), nn.Linear(6, 4)
        self.layer, self.head = nn.Sequential(nn.LayerNorm(4), nn.GroupNorm(2, 4)), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Three activations."""
        x = F.relu(self.norm(self.first(x)), inplace=True)
        x = torch.relu_(self.again(self.second(x)))
        x = self.drop(self.third(self.pool(x).mean((2, 3))))
        result: Tensor = self.head(F.relu(self.layer(x)))
        return result


def spread(model: nn.Module) -> nn.Module:
    """Nothing in it is 0 or the identity."""
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
            for tensor in (module.weight, module.bias, getattr(module, "running_mean", None)):
                if tensor is not None:
                    nn.init.normal_(tensor)
    return model.eval()


@pytest.mark.parametrize("arity", [2, 3])
def test_each_unit_keeps_its_first_argument_with_the_weights_that_there_were(arity: int) -> None:
    torch.manual_seed(0)
    model, x = spread(Called()), torch.randn(4, 3, 9, 9)
    new = to_units(model, lambda channels, dim: First(arity, dim), x)
    # layer and group normalisation see all arguments together, so the last activation is left out here
    for name in ("first", "second", "third"):
        assert len(new.get_submodule(name).weight) == arity * len(model.get_submodule(name).weight)
        assert torch.equal(new.get_submodule(name).weight[::arity], model.get_submodule(name).weight)
    seen: dict[str, Tensor] = {}
    for which, network in (("old", model), ("new", new)):
        network.get_submodule("third").register_forward_pre_hook(
            lambda _, given, which=which: seen.update({which: given[0]})
        )
        network(x)
    torch.testing.assert_close(seen["new"], seen["old"])


def test_new_weights_are_as_large_as_the_old_ones_and_new_biases_are_0() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(200, 100), nn.ReLU())
    nn.init.normal_(model[0].weight, std=0.3)
    layer = to_units(model, Maxout, (200,))[0]
    assert layer.weight[1::2].std().item() == pytest.approx(0.3, rel=0.05)
    assert not torch.equal(layer.weight[1::2], layer.weight[::2])
    assert layer.bias[1::2].count_nonzero() == 0
    assert torch.equal(layer.bias[::2], model[0].bias)


def test_in_a_residual_network_the_skip_path_stays() -> None:
    new = to_units(resnet20(3, 10, nn.ReLU), lambda channels, dim: GEGLU(dim), (3, 8, 8))
    stay = [name for name, why in new.replaced.left.items() if why == "add comes before it"]
    placed = [name for name, what in new.replaced.new.items() if "GEGLU" in what]
    assert (len(stay), len(placed)) == (9, 10)
    widths = {name: module.out_channels for name, module in new.named_modules() if isinstance(module, nn.Conv2d)}
    plain = {name: module.out_channels for name, module in resnet20(3, 10, nn.ReLU).named_modules() if name in widths}
    wide = {name for name in widths if widths[name] == 2 * plain[name]}
    assert len(wide) == 10
    assert {name for name in widths if widths[name] != plain[name]} == wide
    assert new(torch.randn(2, 3, 8, 8)).shape == (2, 10)


def test_in_a_transformer_the_perceptrons_get_two_arguments_of_each_token_alone() -> None:
    torch.manual_seed(0)
    new = to_units(vit_tiny(8, 3, 10, nn.GELU), lambda channels, dim: MultiArgument(dim=dim), (3, 8, 8)).eval()
    assert sum("MultiArgument" in what for what in new.replaced.new.values()) == 12
    assert new(torch.randn(2, 3, 8, 8)).shape == (2, 10)


@torch.jit.script
def level(x: Tensor) -> Tensor:
    """Its operators are no functions that Python calls."""
    return x.mean(-1, keepdim=True)


class Skip(nn.Module):
    """What comes before the activation is read by something else, too."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.layer, self.act, self.head = how, nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        """In one of several ways."""
        if self.how == "likeness":
            x = x.type_as(self.layer.weight).to(self.layer.weight)
        z = self.layer(x)
        if self.how == "sum":
            return self.head(self.act(z) + z)
        if self.how == "in place":
            z += x
        if self.how == "view":
            z = z.view(-1, 3)
        if self.how == "twice":
            z = self.layer(z)
        if self.how == "scripted":
            return self.head(self.act(z)) * level(z)
        if self.how == "weight":
            return F.linear(self.act(z), self.layer.weight.t())
        if self.how == "result":
            return torch.cat((self.act(z), z), 1)
        return self.head(self.act(z))


class Twice(nn.Module):
    """One activation serves two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head, self.act = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Call it after each."""
        result: Tensor = self.head(self.act(self.second(self.act(self.first(x)))))
        return result


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("sum", "add reads what comes before it, too"),
        ("in place", "add_ comes before it"),
        ("view", "view comes before it"),
        ("twice", "what comes before it is called elsewhere, too"),
        ("result", "cat reads what comes before it, too"),
        ("scripted", r"mean\S* reads what comes before it, too"),
        ("weight", "somebody reads the weight of layer, too"),
    ],
)
def test_where_something_else_reads_the_layer_the_reason_is_said_and_nothing_is_changed(how: str, why: str) -> None:
    model = Skip(how)
    keys = [*model.state_dict()]
    with pytest.raises(ValueError, match=f"no activation gets more arguments; {why}: act"):
        to_units(model, Maxout, (3,), inplace=True)
    assert [*model.state_dict()] == keys
    assert type(model.act) is nn.ReLU


def test_who_asks_what_a_weight_looks_like_reads_none() -> None:
    assert {*to_units(Skip("likeness"), Maxout, (3,)).replaced.new} == {"layer", "act"}


def test_the_report_names_calls_of_one_module_that_came_apart() -> None:
    new = to_units(Twice(), Maxout, (3,))
    assert "ReLU → Maxout(dim=-1): act, act_1" in str(new.replaced)
    assert type(restore_activations(new)) is Twice


@pytest.mark.parametrize("activation", [MultiArgument, Quadratic, Maxout, GEGLU])
def test_a_class_is_told_where_the_channels_are(activation: type[nn.Module]) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.Flatten(), nn.Linear(5 * 5 * 6, 7), nn.ReLU()
    )
    new = to_units(model, activation, (3, 9, 10))
    assert [getattr(module, "dim", None) for module in new if isinstance(module, activation)] == [1, -1]
    assert [x.shape for x in (new[:2](torch.randn(2, 3, 9, 10)), new(torch.randn(2, 3, 9, 10)))] == [
        (2, 4, 7, 8),
        (2, 7),
    ]


def test_a_tied_weight_is_not_widened() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    with pytest.raises(ValueError, match="Linear or its parameters stand in several places: '1'"):
        to_units(model, Maxout, (3,))


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
        lambda layer: prune.random_unstructured(layer, "bias", 0.5),
        torch.nn.utils.spectral_norm,
        torch.nn.utils.weight_norm,
    ],
)
def test_a_layer_that_makes_its_weight_of_other_tensors_is_not_widened(change: Callable[[nn.Module], object]) -> None:
    layer = nn.Linear(3, 4)
    with torch.no_grad():  # else torch could not copy it
        change(layer)
    model = nn.Sequential(layer, nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.raises(ValueError, match="0 makes its weight of other tensors, as after pruning: '2'"):
        to_units(model, Maxout, (3,))


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ([nn.Conv2d(3, 8, 1), nn.LayerNorm((8, 6, 6))], (3, 6, 6)),
        ([nn.Conv1d(3, 8, 1), nn.LayerNorm(8)], (3, 8)),
        ([nn.Linear(3, 8), nn.LayerNorm((5, 8))], (5, 3)),
        ([nn.Linear(3, 8), nn.BatchNorm1d(8)], (8, 3)),
        ([nn.Linear(3, 8), nn.MaxPool1d(3, 1, 1)], (5, 3)),
        ([nn.Linear(3, 8), nn.AvgPool1d(3, 1, 1)], (5, 3)),
    ],
)
def test_what_works_along_another_dimension_than_the_units_is_not_widened(
    layers: list[nn.Module], shape: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="no activation gets more arguments; 1 works along another dimension: '2'"):
        to_units(nn.Sequential(*layers, nn.ReLU()), Maxout, example=shape)


def test_an_activation_of_one_argument_is_refused() -> None:
    with pytest.raises(ValueError, match=r"activation: got GELU\(.*replace_activations takes those of one"):
        to_units(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), "gelu", (3,))


def test_undone_it_computes_what_it_did_and_keeps_what_first_arguments_have_learned() -> None:
    torch.manual_seed(0)
    model, x = spread(Called()), torch.randn(4, 3, 9, 9)
    expected, state = model(x), copy.deepcopy(model.state_dict())
    new = to_units(model, lambda channels, dim: GEGLU(dim), x)
    again = restore_activations(pickle.loads(pickle.dumps(new)))
    assert type(again) is Called
    assert torch.equal(again(x), expected)
    learned = torch.randn_like(new.first.weight)
    new.first.weight.data.copy_(learned)
    back = restore_activations(new)
    assert {name: tensor.shape for name, tensor in back.state_dict().items()} == {n: t.shape for n, t in state.items()}
    assert torch.equal(back.first.weight, learned[::2])


def test_hooks_of_a_widened_layer_are_those_of_who_gave_them() -> None:
    class Collector:
        def __init__(self) -> None:
            self.calls = 0

        def hook(self, *_: object) -> None:
            self.calls += 1

    model, collector = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), Collector()
    model[0].register_forward_hook(collector.hook)
    to_units(model, Quadratic, (4,), inplace=True)(torch.randn(2, 4))
    assert collector.calls == 1
