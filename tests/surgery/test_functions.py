"""Activations that are called as functions are replaced, too, and everything is put back."""

from __future__ import annotations

import copy
import functools
import pickle

import pytest
import torch
import torchvision
from torch import fx, nn
from torch.nn import functional as F
from torchvision.models.feature_extraction import create_feature_extractor

from companion import AGLU, RAA, replace_activations, restore_activations
from tests.together import together


class Functional(nn.Module):
    """Three calls: one in place whose operand is read again, one by a method, one in training only by half."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.head, self.relu = nn.Linear(8, 4), "a name that is taken"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        F.relu(x, inplace=True)
        x = torch.relu(self.second(x)) + x
        out: torch.Tensor = self.head(F.leaky_relu(x.relu() - 1, 0.3).mean((2, 3)))
        return out


X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def test_calls_of_functions_are_replaced_and_the_module_stays_what_it_was() -> None:
    model = Functional()
    handle = model.register_forward_hook(lambda module, args, out: out + 1)
    same = replace_activations(model, {"relu": nn.ReLU})
    assert same.replaced.new == {"relu_1": "ReLU()", "relu_2": "ReLU()", "relu_3": "ReLU()"}
    assert torch.equal(same(X), model(X))
    assert isinstance(same, Functional)
    assert same.state_dict().keys() == model.state_dict().keys()
    handle.remove()
    assert not [name for name, _ in model.named_children() if name.startswith("relu")]


def test_settings_of_functions_stay_where_they_are_not_replaced() -> None:
    model = Functional()
    new = replace_activations(model, {"relu": nn.Tanh}, where="relu_2")
    x = F.relu(model.first(X))
    x = torch.tanh(model.second(x)) + x
    assert torch.equal(new(X), model.head(F.leaky_relu(x.relu() - 1, 0.3).mean((2, 3))))
    slope = replace_activations(model, {"leaky_relu": nn.LeakyReLU})  # another slope
    assert not torch.equal(slope(X), model(X))


@together(
    "use",
    [
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        fx.symbolic_trace,
        lambda model: torch.export.export(model, (X,)).module(),
    ],
)
def test_a_rewritten_network_is_copied_pickled_traced_and_exported(use) -> None:
    new = replace_activations(replace_activations(Functional(), {"relu": RAA}, example=X), {"leaky_relu": "aglu"})
    torch.testing.assert_close(use(new)(X), new(X))


@pytest.mark.compiler
def test_a_rewritten_network_is_compiled() -> None:
    new = replace_activations(Functional(), {"relu": "aglu"})
    torch.testing.assert_close(torch.compile(new, fullgraph=True, backend="aot_eager")(X), new(X))


def test_what_was_replaced_in_place_is_put_back() -> None:
    model = Functional()
    before, expected = dict(vars(model)), model(X)
    children = [*model.named_modules()]
    for replacements in ({"relu": "aglu"}, {"relu": RAA}):
        changed = replace_activations(model, replacements, example=X, inplace=True)
        assert changed is model
        assert not torch.equal(model(X), expected)
        model.double()
        model.float().eval()
        assert restore_activations(model) is model
        assert torch.equal(model(X), expected)
        assert type(model) is Functional
        assert [*model.named_modules()] == children
    assert vars(model).keys() == before.keys()
    with pytest.raises(ValueError, match="in this Functional no activations were replaced"):
        restore_activations(model)


def test_a_failed_replacement_leaves_the_network_as_it_was() -> None:
    model = nn.Sequential(Functional(), nn.PReLU())
    expected, children = model(X), [*model.named_modules()]
    with pytest.raises(ZeroDivisionError):
        replace_activations(model, {"relu": lambda: 1 / 0}, inplace=True)
    assert [*model.named_modules()] == children
    assert torch.equal(model(X), expected)


def test_a_copy_is_restored_with_what_it_has_learned() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.PReLU(), nn.Linear(3, 3), nn.PReLU()).double()
    new = copy.deepcopy(replace_activations(model, {nn.PReLU: AGLU}))
    with torch.no_grad():
        new[0].weight.mul_(2)
    back = restore_activations(new.float())
    assert [type(module) for module in back] == [type(module) for module in model]
    assert {p.dtype for p in back.parameters()} == {torch.float32}
    assert torch.equal(back[0].weight, 2 * model[0].weight.float())


# --- torch's transformers hold a function ------------------------------------------------------------------------


@together("kind", [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer])
@pytest.mark.parametrize("activation", ["relu", F.gelu, nn.ReLU(), nn.GELU()])
def test_the_activation_of_a_transformer_layer_is_replaced_and_put_back(kind, activation) -> None:
    layer = kind(16, 2, 32, dropout=0.0, activation=activation, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    args = (x,) * (1 + (kind is nn.TransformerDecoderLayer))
    new = replace_activations(layer, {"relu": nn.Tanh, "gelu": nn.Tanh})
    expected = kind(16, 2, 32, dropout=0.0, activation=torch.tanh, batch_first=True).eval()
    expected.load_state_dict(layer.state_dict())
    with torch.no_grad():
        for one in (new, copy.deepcopy(new), pickle.loads(pickle.dumps(new))):
            torch.testing.assert_close(one(*args), expected(*args), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(restore_activations(new)(*args), layer(*args), rtol=1e-4, atol=1e-5)


def test_a_whole_transformer_of_torch() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2).eval(), torch.randn(2, 5, 16)
    new = replace_activations(model, {"relu": RAA}, example=(5, 16))
    assert [type(each.activation) for each in new.layers] == [RAA, RAA]
    with torch.no_grad():
        assert (new(x) - model(x)).abs().max() > 1e-3


def test_copies_of_a_decoder_layer_keep_an_activation_that_is_a_module() -> None:
    layer, x = nn.TransformerDecoderLayer(16, 2, 32, dropout=0.0, activation=nn.Tanh()).eval(), torch.randn(2, 5, 16)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), layer)
    assert torch.equal(replace_activations(model, {"relu": "aglu"})[2](x, x), layer(x, x))


class Scaled(nn.Module):
    """Holds a function and calls it with a setting, as some networks of timm do."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.function(x, inplace=False) * 1.7
        return result


def test_a_function_that_a_module_holds_may_be_called_with_settings() -> None:
    x = torch.randn(3, 4)
    model = nn.Sequential(Scaled(F.relu), Scaled(F.silu))
    new = replace_activations(model, {"relu": "aglu"})
    torch.testing.assert_close(new(x), F.silu(new[0].function(x) * 1.7) * 1.7)
    assert new.replaced.left == {"1.function": "no replacement of silu is given"}
    strict = replace_activations(nn.Sequential(*model, nn.ReLU()), {"relu": "aglu"}, strict=True)
    assert strict.replaced.left == {
        "0.function": "relu is called as a function",
        "1.function": "no replacement of silu is given",
    }


def quick_gelu(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """As another library has it."""
    return x * torch.sigmoid(1.702 * x)


def test_a_function_of_another_library_or_one_with_settings_is_meant_too() -> None:
    model = nn.Sequential(Scaled(quick_gelu), Scaled(functools.partial(F.leaky_relu, negative_slope=0.3)))
    new, x = replace_activations(model, {"gelu": "tanh", "leaky_relu": "aglu"}), torch.randn(3, 4)
    torch.testing.assert_close(new(x), new[1].function(torch.tanh(x) * 1.7) * 1.7)
    left = replace_activations(model, {"gelu": "tanh"})
    torch.testing.assert_close(left(x), F.leaky_relu(torch.tanh(x) * 1.7, 0.3) * 1.7)


# --- what cannot be rewritten is said ----------------------------------------------------------------------------


class Undecided(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x) if x.sum() > 0 else x


class Optional(nn.Module):
    def forward(self, x: torch.Tensor, shift: torch.Tensor | None = None) -> torch.Tensor:
        return F.relu(x) if shift is None else F.relu(x + shift)


class Dropping(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.relu(x), 0.5, self.training)


class Listed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x) if isinstance(x, torch.Tensor) else x[0]


class Numbered(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x) * torch.arange(4)


@together(
    "module, why",
    [
        (Undecided(), "torch.fx cannot trace it (TraceError: symbolically traced variables cannot be used as"),
        (Optional(), "its forward has optional arguments"),
        (Dropping(), "it does something else in training"),
        (Listed(), "its forward depends on the kind of its arguments"),
        (Numbered(), "it makes a tensor of numbers"),
    ],
)
def test_where_a_function_cannot_be_replaced_it_stays_and_that_is_said(module: nn.Module, why: str) -> None:
    model = nn.Sequential(nn.ReLU(), module, nn.SiLU())
    for example in (None, (4,)):
        new = replace_activations(model, {"relu": "tanh"}, example=example)
        assert new.replaced.left["1"].startswith(f"relu may be called as a function, but {why}")
        x = torch.randn(3, 4)
        torch.testing.assert_close(new.eval()(x), model[2](module.eval()(torch.tanh(x))))


@pytest.mark.parametrize("name", ["googlenet", "densenet121"])
def test_networks_of_torchvision_that_call_functions(name: str) -> None:
    model = torchvision.models.get_model(name, **({"init_weights": False} if name == "googlenet" else {})).eval()
    x = torch.randn(1, 3, 64, 64)
    assert torch.equal(replace_activations(model, {"relu": nn.ReLU})(x), model(x))
    new = replace_activations(model, {"relu": "aglu"}, example=(3, 64, 64))
    assert new.replaced.left == {}


def test_features_are_extracted_from_a_network_with_other_activations() -> None:
    new = replace_activations(torchvision.models.resnet18(num_classes=3), {"relu": "aglu"}).eval()
    features = create_feature_extractor(new, {"layer1": "one", "fc": "two"})
    x = torch.randn(1, 3, 32, 32)
    assert torch.equal(features(x)["two"], new(x))
