"""Activations that are called as functions are replaced, too, and everything is put back."""

from __future__ import annotations

import abc
import copy
import functools
import pickle
from collections import OrderedDict
from collections.abc import Callable

import pytest
import torch
import torchvision
from torch import fx, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torchvision.models.feature_extraction import create_feature_extractor

from companion import AGLU, RAA, replace_activations, restore_activations, rethink
from tests.cases import together


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


class Adding(nn.Module):
    """Adds to a tensor and to a number that have other names, too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.shift = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = skip = self.layer(x)
        x += self.shift
        x *= 2
        size = before = x.shape[0]
        size += 1
        return F.relu(x) + skip * before / size


def test_a_sum_in_place_is_seen_by_every_name() -> None:
    model, x = Adding(), torch.randn(3, 4)
    torch.testing.assert_close(replace_activations(model, {"relu": nn.ReLU})(x), model(x))


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


def test_a_rewritten_class_is_inherited_from_as_sharding_and_parametrisations_do() -> None:
    new = replace_activations(Functional(), {"relu": "aglu"})
    inherited = type("Sharded", (type(new),), {})
    assert (inherited.__name__, inherited.__module__) == ("Sharded", __name__)
    assert inherited.forward == type(new).forward
    with pytest.raises(TypeError, match=r"torch\.jit\.script: got Functional"):
        torch.jit.script(replace_activations(Functional(), {"relu": "silu"}))
    expected = new(X)
    torch.nn.utils.parametrize.register_parametrization(new.head, "weight", nn.Identity())
    new.gain = nn.Parameter(torch.ones(()))
    torch.nn.utils.parametrize.register_parametrization(new, "gain", nn.Identity())
    assert torch.equal(new(X), expected)


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


def test_two_functions_of_one_name_are_two() -> None:
    def made(scale: float) -> nn.Module:
        def own(x: torch.Tensor) -> torch.Tensor:
            return scale * x

        class Own(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return F.relu(own(x))

        return replace_activations(Own(), {"relu": nn.ReLU})

    x = torch.ones(2)
    assert (made(2.0)(x).tolist(), made(3.0)(x).tolist()) == ([2.0, 2.0], [3.0, 3.0])


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


def test_a_transformer_of_torch_takes_padded_batches_as_before() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2)).eval()
    x, padded = torch.randn(2, 5, 16), torch.tensor([[False] * 3 + [True] * 2, [False] * 5])
    new = replace_activations(model, {"relu": "aglu"})
    with torch.no_grad():
        expected = new[0].train()(x, src_key_padding_mask=padded)[~padded]
        torch.testing.assert_close(new[0].eval()(x, src_key_padding_mask=padded)[~padded], expected)
        assert model[0].use_nested_tensor
        assert not new[0].use_nested_tensor
        assert restore_activations(new)[0].use_nested_tensor
        torch.testing.assert_close(new(x), model(x))


def test_copies_of_a_decoder_layer_keep_an_activation_that_is_a_module() -> None:
    layer, x = nn.TransformerDecoderLayer(16, 2, 32, dropout=0.0, activation=nn.Tanh()).eval(), torch.randn(2, 5, 16)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), layer)
    assert torch.equal(replace_activations(model, {"relu": "aglu"})[2](x, x), layer(x, x))


@together("activation", ["relu", F.gelu, nn.ReLU()])
def test_a_run_sees_the_activations_of_encoder_and_decoder(activation) -> None:
    model, x = nn.Transformer(16, 2, 1, 1, 32, batch_first=True, activation=activation), torch.ones(1, 5, 16)
    for inplace in (False, True):
        new = replace_activations(model, {"relu": RAA, "gelu": RAA}, example=(x, x), inplace=inplace)
        assert {*new.replaced.new} == {"encoder.layers.0.activation", "decoder.layers.0.activation"}
        assert new.replaced.left == {}


def test_a_decoder_layer_that_no_run_reaches_keeps_its_function_in_copies_too() -> None:
    layer, x = nn.TransformerDecoderLayer(16, 2, 32, dropout=0.0, activation=F.gelu), torch.randn(2, 5, 16)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    model[0].unused = layer
    new = replace_activations(model, {"relu": RAA, "gelu": RAA}, example=(16,))
    assert new.replaced.left == {"0.unused.activation": "the example does not reach it"}
    assert torch.equal(copy.deepcopy(new)[0].unused(x, x), layer(x, x))


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


# --- functions that no name in the forward gives away ------------------------------------------------------------

TABLE = {"relu": F.relu, "none": lambda x: x}


def bent(x: torch.Tensor) -> torch.Tensor:
    return F.relu(x) + 1


class InAList(nn.Module):
    """A list of functions beside a list of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.activations = [F.relu, torch.tanh, F.relu]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, activation in zip(self.layers, self.activations, strict=True):
            x = activation(layer(x))
        return x


class InATable(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return TABLE["relu"](x)


class InItsClass(nn.Module):
    TABLE = (F.relu,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.TABLE[0](x)


class InALambda(nn.Module):
    def __init__(self, activation=F.relu) -> None:
        super().__init__()
        self.function = lambda x: activation(x) + 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.function(x)
        return result


class ByAnother(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return bent(x)


@together("make, calls", [(InAList, 2), (InATable, 1), (InItsClass, 1), (InALambda, 1), (ByAnother, 1)])
def test_functions_are_found_wherever_a_module_has_them(make: type[nn.Module], calls: int) -> None:
    model, x = make(), torch.randn(3, 4)
    new = replace_activations(model, {"relu": lambda: nn.ReLU()})
    assert [*new.replaced.new] == ["relu", "relu_1"][:calls]
    assert torch.equal(new(x), model(x))
    assert not torch.equal(replace_activations(model, {"relu": "sigmoid"}, (4,))(x), model(x))
    assert type(restore_activations(new)) is make


class HiddenInAList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = [nn.ReLU()]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.hidden[0](x)
        return result


class HiddenInItsClass(nn.Module):
    hidden = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.hidden(x)
        return result


class Listing(nn.Module):
    """Beside what PyTorch sees, a list of the same: nothing is hidden. A default of the class that nobody runs."""

    default = nn.ReLU()

    def __init__(self) -> None:
        super().__init__()
        self.act = self.default
        self.all = [self.act]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.act(x)
        return result


def test_an_activation_that_pytorch_does_not_see_is_named() -> None:
    for make in (HiddenInAList, HiddenInItsClass):
        new = replace_activations(nn.Sequential(nn.ReLU(), make()), {"relu": AGLU})
        assert new.replaced.left == {
            "1.hidden": "ReLU is in a list or in the class, where PyTorch does not see it; it does in an nn.ModuleList "
            "and in self"
        }
    assert replace_activations(Listing(), {"relu": AGLU}).replaced.left == {}


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


# --- what torch.fx would do wrong without a word -----------------------------------------------------------------


class Abstract(nn.Module, abc.ABC):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x)


class Registered(nn.Module):
    def __init_subclass__(cls, *, key: int) -> None:
        super().__init_subclass__()


class OfThem(Registered, key=1):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x)


class Given(nn.Module):
    """Has a forward of its own beside that of its class."""

    def __init__(self) -> None:
        super().__init__()
        self.forward = lambda x: F.relu(x) * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x)


class Decorated(nn.Module):
    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x)


class Inside(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return F.relu(x)


class Asking(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x) if torch.is_tensor(x) else x[0]


class AskingForGradients(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x) if torch.is_grad_enabled() else x.relu() * 3


class AskingForAutocast(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x) / 8 if torch.is_autocast_enabled("cpu") else F.relu(x)


class Averaging(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.mul_(0.9).add_(x.mean(0))
        return F.relu(x - self.mean)


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last, self.all = None, []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x
        self.all.append(x)
        return F.relu(x)


class Named(nn.Module):
    def forward(self, x: torch.Tensor) -> OrderedDict[str, torch.Tensor]:
        return OrderedDict(out=F.relu(x))


class Defaulted(nn.Module):
    """Would find None before a module."""

    act = None

    def __init__(self) -> None:
        super().__init__()
        self.act = F.relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.act(x)
        return result


class AskingForProcesses(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x) if torch.distributed.is_initialized() else F.relu(x) + 1


class Unwritten(Defaulted):
    def forward(self, x: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
        return super().forward(x + shift)


def test_a_function_behind_a_name_of_the_class_is_replaced_where_it_is_called() -> None:
    new, x = replace_activations(Defaulted(), {"relu": "tanh"}), torch.randn(3, 4)
    assert torch.equal(new(x), torch.tanh(x))
    assert new.replaced.left == {}


class Drawing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x) if torch.rand(1).item() < 2 else x


class Checkpointing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(F.relu, x, use_reentrant=False)


class SavedAsACheckpoint(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.checkpoint_sequential = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.checkpoint_sequential(F.relu(x))
        return result


def test_a_child_that_is_called_like_a_context_of_torchs_is_none() -> None:
    assert replace_activations(SavedAsACheckpoint(), {"relu": "tanh"}).replaced.left == {}


@together(
    "make, why",
    [
        (Drawing, "it draws a random number, which would be built in"),
        (Checkpointing, "its forward uses checkpoint"),
        (Abstract, "its class is of the kind ABCMeta"),
        (OfThem, "its class cannot be inherited from"),
        (Given, "its forward is not that of its class"),
        (Decorated, "its forward is decorated"),
        (Inside, "its forward uses autocast"),
        (Asking, "its forward depends on the kind of its arguments"),
        (AskingForGradients, "it decides by a mode of torch's"),
        (AskingForAutocast, "it decides by a mode of torch's"),
        (AskingForProcesses, "its forward uses is_initialized"),
        (Averaging, "it changes its mean"),
        (Remembering, "it changes its last, all"),
        (Named, "it would become a dict: OrderedDict"),
        (lambda: fx.symbolic_trace(Abstract()), "it is a GraphModule, whose copies are made from its graph"),
        (Unwritten, "relu is a function, and the class has something of this name, too"),
    ],
)
def test_what_torch_fx_would_get_wrong_is_left_as_it_was(make, why) -> None:
    model, x = nn.Sequential(make(), nn.ReLU()), torch.randn(3, 4, requires_grad=True)
    before = pickle.dumps(model.state_dict())
    replaced = replace_activations(nn.ModuleList([model]), {"relu": "tanh"}, inplace=True)
    assert [*replaced.replaced.new] == ["0.1"]
    assert why in "; ".join(replaced.replaced.left.values())
    assert not [*model[0].children()]
    assert pickle.dumps(model.state_dict()) == before
    assert not [value for value in vars(model[0]).values() if isinstance(value, fx.Proxy)]
    fresh = make()(x)
    now = model[0](x)
    for one, other in zip(*(each.values() if isinstance(each, dict) else [each] for each in (now, fresh)), strict=True):
        assert torch.equal(one, other)
    assert type(now) is type(fresh)


def test_several_replacements_are_undone_one_after_the_other() -> None:
    model = nn.Sequential(nn.ReLU(), nn.SiLU())
    for replacements in ({"relu": "aglu"}, {"silu": "tanh"}):
        replace_activations(model, replacements, inplace=True)
    assert [type(module) for module in restore_activations(model)] == [AGLU, nn.SiLU]
    assert [*model.replaced.new] == ["0"]
    assert [type(module) for module in restore_activations(model)] == [nn.ReLU, nn.SiLU]
    assert not hasattr(model, "replaced")


class AsksAChild(nn.Module):
    """Asks a child for its mode, or activates a part of a tensor in place."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.a, self.b, self.drop = how, nn.Linear(4, 4), nn.Linear(4, 4), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        if self.how == "mode":
            return self.b(F.dropout(F.relu(h), self.drop.p, self.drop.training))
        h[:, :2].relu_()
        return self.b(h)


@pytest.mark.parametrize(
    ("how", "why"),
    [("mode", "it does something else in training"), ("part", "it activates a part of a tensor in place")],
)
@pytest.mark.parametrize("training", [False, True])
def test_the_mode_of_a_child_and_parts_that_are_activated_in_place_are_left(how: str, why: str, training: bool) -> None:
    model, x = nn.Sequential(AsksAChild(how), nn.ReLU()).train(training), torch.randn(3, 4)
    new = replace_activations(model, {"relu": "relu"}, (4,))
    assert why in str(new.replaced.left)
    torch.testing.assert_close(new.eval()(x), model.eval()(x))


def test_hooks_that_came_after_a_replacement_stay_when_it_is_undone() -> None:
    model, seen = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), []
    replace_activations(model, {"relu": "aglu"}, inplace=True)
    model[1].register_forward_hook(lambda *_: seen.append(1))
    restore_activations(model)(torch.randn(2, 4))
    assert seen == [1]


def test_what_makes_a_weight_is_no_activation() -> None:
    layer = nn.Linear(4, 4)
    nn.utils.parametrize.register_parametrization(layer, "weight", nn.ReLU())
    new = replace_activations(nn.Sequential(layer, nn.ReLU()), {"relu": "aglu"})
    assert [*new.replaced.new] == ["1"]
    assert layer.weight.min() >= 0


def test_the_usual_device_may_be_another() -> None:
    model = Functional()
    with torch.device("meta"):
        new = replace_activations(model, {"relu": "tanh"}, (3, 8, 8))
    assert new(X).shape == (2, 4)


class OtherName(nn.Module):
    """Overwrites under one name what it reads under another."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        view = h[:, :3]
        F.relu(h, inplace=True)
        out: torch.Tensor = self.last(h) * view.sum(1, keepdim=True)
        return out


@pytest.mark.parametrize(
    "replace",
    [
        lambda model: replace_activations(model, {"relu": nn.SiLU}, (6,)),
        lambda model: replace_activations(model, {"relu": nn.SiLU}, (6,), inplace=True),
        lambda model: rethink(model, "norm+silu", (6,)),
        lambda model: rethink(model, "glu", (6,)),
    ],
)
def test_what_is_overwritten_under_another_name_is_seen(replace: Callable[[nn.Module], nn.Module]) -> None:
    model, x = OtherName(), torch.randn(3, 6)
    expected = model(x)
    with pytest.raises(ValueError, match="with modules for functions it gives something else for the example"):
        replace(model)
    assert type(model) is OtherName
    assert torch.equal(model(x), expected)
