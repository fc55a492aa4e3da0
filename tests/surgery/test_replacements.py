"""Activations are replaced where they are, and what is left is named."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

from companion import AGLU, RAA, LASiLU, replace_activations, restore_activations
from tests.cases import together


def kinds(model: nn.Module, *wanted: type[nn.Module]) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, wanted)]


def test_activations_are_replaced_where_they_are() -> None:
    model = torchvision.models.resnet18().double().eval()
    relus = kinds(model, nn.ReLU)
    converted = replace_activations(model, {nn.ReLU: AGLU})
    assert kinds(converted, AGLU) == relus
    assert kinds(model, nn.ReLU) == relus
    assert {p.dtype for p in converted.parameters()} == {torch.float64}
    assert converted(torch.randn(1, 3, 32, 32).double()).shape == (1, 1000)
    with pytest.raises(
        ValueError,
        match=r"ResNet holds no GELU to replace; no replacement of ReLU is given \(9\): relu, layer1\.0\.relu, .*, …",
    ):
        replace_activations(model, {nn.GELU: AGLU})


class WithSettings(nn.Module):
    """Calls a function with a setting of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.act = nn.Linear(3, 4), nn.LeakyReLU(0.3)

    def forward(self, x: Tensor) -> Tensor:
        """Activate twice."""
        return F.leaky_relu(self.act(self.layer(x)), 0.7)


def test_what_replaces_an_activation_may_ask_for_it_and_knows_its_settings() -> None:
    model, x = WithSettings(), torch.randn(5, 3)
    new = replace_activations(
        model, {"leaky_relu": lambda old, channels: nn.Sequential(nn.LayerNorm(channels), old)}, (3,)
    )
    expected = F.leaky_relu(F.layer_norm(F.leaky_relu(F.layer_norm(model.layer(x), (4,)), 0.3), (4,)), 0.7)
    torch.testing.assert_close(new(x), expected)
    assert torch.equal(restore_activations(new)(x), model(x))
    # no example is wanted for it
    kept = replace_activations(model, {"leaky_relu": lambda old: old})
    assert torch.equal(kept(x), model(x))


# --- one object in several places --------------------------------------------------------------------------------


def in_two_places(activation: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), activation, nn.Linear(3, 4), activation)


def test_each_place_of_an_activation_without_parameters_gets_a_successor_of_its_own() -> None:
    new = replace_activations(in_two_places(nn.ReLU()), {nn.ReLU: AGLU})
    assert new[1] is not new[3]
    assert str(new.replaced).splitlines() == [
        "ReLU, 2 places of one object → AGLU(num_parameters=1, dim=1, init='near_one'): '1', '3'",
        "parameters: 25 → 29",
    ]
    per_channel = replace_activations(in_two_places(nn.ReLU()), {nn.ReLU: RAA}, example=(2,))
    assert [per_channel[1].weight.numel(), per_channel[3].weight.numel()] == [3, 4]
    assert isinstance(replace_activations(nn.ReLU(), {nn.ReLU: nn.Tanh}), nn.Tanh)


def test_what_was_shared_and_learned_or_learns_nothing_stays_one() -> None:
    for was, make, name in ((nn.PReLU(), AGLU, "PReLU"), (nn.ReLU(), nn.Tanh, "ReLU"), (nn.ReLU(), LASiLU, "ReLU")):
        new = replace_activations(in_two_places(was), {type(was): make})
        assert new[1] is new[3]
        assert str(new.replaced).startswith(f"{name}, 2 places of one object, still one → {make.__name__}(")
    per_channel = {nn.PReLU: RAA, "relu": RAA}
    mixed = nn.Sequential(in_two_places(nn.PReLU()), nn.Linear(4, 5), nn.ReLU())
    new = replace_activations(mixed, per_channel, example=(2,))
    assert new.replaced.left == dict.fromkeys(("0.1", "0.3"), "it is called with 3 and 4 channels")


@together("where", ["*", "1", "3"])
def test_what_was_replaced_in_place_is_shared_again_when_it_is_put_back(where: str) -> None:
    activation = nn.ReLU()
    model = in_two_places(activation)
    replace_activations(model, {nn.ReLU: AGLU}, inplace=True, where=where)
    assert [type(model[1]), type(model[3])].count(AGLU) == (2 if where == "*" else 1)
    assert {model[1], model[3]} - {activation} == {module for module in model if isinstance(module, AGLU)}
    copied = restore_activations(copy.deepcopy(model))
    assert copied[1] is copied[3]
    restore_activations(model)
    assert model[1] is activation
    assert model[3] is activation


class HalfUsed(nn.Module):
    """Two of its three places are not reached."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.first = nn.Linear(2, 3), nn.ReLU()
        self.second = self.third = self.first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.first(self.layer(x))
        return result


def test_what_stays_is_shared_as_it_was() -> None:
    new = replace_activations(HalfUsed(), {nn.ReLU: RAA}, example=(2,))
    assert isinstance(new.first, RAA)
    assert isinstance(new.second, nn.ReLU)
    assert new.second is new.third
    assert new.replaced.left == dict.fromkeys(("second", "third"), "the example does not reach it")
    assert len({id(module) for module in restore_activations(new).children()}) == 2


def test_what_fails_leaves_it_shared() -> None:
    activation = nn.ReLU()
    model = in_two_places(activation)
    with pytest.raises(ValueError, match="holds no GELU"):
        replace_activations(model, {nn.GELU: AGLU}, inplace=True)
    with pytest.raises(TypeError, match="would become a str"):
        replace_activations(model, {nn.ReLU: lambda: "silu"}, inplace=True)  # type: ignore[dict-item,return-value]
    assert model[1] is activation
    assert model[3] is activation


def test_a_shared_module_without_parameters_is_taken_apart_with_what_is_in_it() -> None:
    pair = nn.Sequential(nn.ReLU(), nn.Dropout(0.5))
    model = nn.Sequential(nn.Linear(2, 3), pair, nn.Linear(3, 4), pair)
    new = replace_activations(model, {"relu": RAA}, example=(2,))
    assert [new[1][0].weight.numel(), new[3][0].weight.numel()] == [3, 4]
    assert restore_activations(new)[1] is new[3]
    # of a block with weights there is one, however often it runs, and of its activation, too
    block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    new = replace_activations(nn.Sequential(block, block, block), {"relu": AGLU})
    assert new[0] is new[2]
    assert [*new.replaced.new] == ["0.1"]


def test_hooks_of_a_shared_activation_stay_each_in_its_place() -> None:
    activation, calls = nn.ReLU(), list[str]()
    activation.register_forward_hook(lambda *_: calls.append("hook"))
    model = in_two_places(activation)
    replace_activations(model, {"relu": AGLU}, inplace=True, where="1", example=(2,))
    calls.clear()  # of the rehearsal
    model(torch.randn(1, 2))
    assert calls == ["hook", "hook"]


def test_hooks_that_are_part_of_an_activation_go_with_it() -> None:
    class Slope(nn.PReLU):
        def __init__(self) -> None:
            super().__init__(4)
            self.register_forward_hook(self.note)

        def note(self, *_: object) -> None:
            raise AssertionError

    pruned = nn.utils.prune.l1_unstructured(nn.PReLU(4), "weight", 2)
    for activation in (Slope(), pruned):
        model = replace_activations(nn.Sequential(nn.Linear(3, 4), activation), {"prelu": "aglu"}, inplace=True)
        assert model(torch.ones(2, 3)).shape == (2, 4)


# --- channels ----------------------------------------------------------------------------------------------------


class PerChannel(nn.Module):
    """Wants the number of channels, and where they are: z·w with a weight for each."""

    def __init__(self, channels: int, dim: int = -1) -> None:
        super().__init__()
        self.dim, self.weight = dim, nn.Parameter(torch.full((channels,), 2.0))

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return z * (self.weight if self.dim == -1 else self.weight.view(-1, *(1,) * (z.ndim - self.dim - 1)))


def layouts(model: nn.Module) -> set[tuple[int, int]]:
    return {(len(module.weight), module.dim) for module in model.modules() if isinstance(module, PerChannel)}


@together(
    "name, kind, size, expected",
    [
        ("resnet18", nn.ReLU, 64, {(64, 1), (128, 1), (256, 1), (512, 1)}),
        ("convnext_tiny", nn.GELU, 64, {(384, -1), (768, -1), (1536, -1), (3072, -1)}),
        ("vit_b_16", nn.GELU, 224, {(3072, -1)}),
    ],
)
def test_the_channels_and_where_they_are_are_found_out(
    name: str, kind: type[nn.Module], size: int, expected: set[tuple[int, int]]
) -> None:
    with torch.device("meta"):
        model = torchvision.models.get_model(name)
        converted = replace_activations(model, {kind: PerChannel}, example=(3, size, size))
        assert layouts(converted) == expected
        assert converted(torch.empty(2, 3, size, size)).shape == (2, 1000)
    assert kinds(converted, kind) == []
    assert [*converted.replaced.new] == kinds(model, kind)


def test_a_factory_may_want_the_channels_alone_or_nothing() -> None:
    model = nn.Sequential(nn.Conv1d(3, 5, 3), nn.ReLU(), nn.Conv1d(5, 7, 3), nn.GELU(), nn.Conv1d(7, 9, 3), nn.SiLU())
    factories = {nn.ReLU: lambda channels: nn.PReLU(channels), nn.GELU: lambda: AGLU(init="silu"), nn.SiLU: PerChannel}
    converted = replace_activations(model, factories, example=(3, 16))
    assert converted[1].weight.shape == (5,)
    assert converted[3].init == "silu"
    assert (len(converted[5].weight), converted[5].dim) == (9, 1)


def test_one_pair_per_channel_computes_what_one_pair_does_while_all_are_alike() -> None:
    model = torchvision.models.resnet18(num_classes=10).eval()
    x = torch.randn(2, 3, 32, 32)
    shared = replace_activations(model, {nn.ReLU: lambda: AGLU(init=(1.2, 0.7))})
    make = {nn.ReLU: lambda channels, dim: AGLU(channels, dim, init=(1.2, 0.7))}
    own = replace_activations(model, make, example=x)
    assert own.layer4[1].relu.kappa.shape == (512,)
    torch.testing.assert_close(own(x), shared(x), rtol=1e-4, atol=1e-4)


class Own(nn.Module):
    """A dense layer or a scale of somebody else, who does not say how many channels it gives."""

    def __init__(self, *shape: int, dim: int = -1) -> None:
        super().__init__()
        self.w, self.b, self.dim = nn.Parameter(torch.randn(shape)), nn.Parameter(torch.randn(shape[-1])), dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.w.ndim == 2:
            return x @ self.w + self.b
        return x * self.w.view(-1, *(1,) * (x.ndim - 2)) if self.dim == 1 else x * self.w


@together(
    "layer, shape, expected",
    [
        (Own(6, 12), (5, 6), (12, -1)),
        (Own(6), (5, 6), (6, -1)),
        (Own(6, dim=1), (6, 4, 5), (6, 1)),
        (nn.RMSNorm(6), (5, 6), (6, -1)),
    ],
)
def test_a_layer_that_does_not_say_it_shows_its_channels_by_the_vectors_it_holds(layer, shape, expected) -> None:
    new = replace_activations(nn.Sequential(layer, nn.GELU()), {nn.GELU: PerChannel}, example=shape)
    assert (len(new[1].weight), new[1].dim) == expected


def test_where_a_vector_fits_two_dimensions_nothing_is_guessed() -> None:
    with pytest.raises(ValueError, match=r"no layer before it says where the channels of \(1, 6, 6\) are"):
        replace_activations(nn.Sequential(Own(6, 6), nn.GELU()), {nn.GELU: PerChannel}, example=(6, 6))


class Turned(nn.Module):
    """Its tokens are turned round between the layer and the activation."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.act = nn.Conv1d(4, 8, 1), nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.act(self.layer(x).transpose(1, 2))
        return out


def test_where_an_example_has_two_dimensions_of_one_size_nothing_is_guessed() -> None:
    with pytest.raises(ValueError, match=r"two dimensions of \(1, 8, 8\) have 8 elements, and an example with"):
        replace_activations(Turned(), {nn.GELU: PerChannel}, example=(4, 8))
    directly = nn.Sequential(nn.Conv1d(4, 8, 1), nn.Dropout(), nn.GELU())
    assert replace_activations(directly, {nn.GELU: PerChannel}, example=(4, 8))[2].dim == 1
    maps = nn.Sequential(nn.Conv2d(3, 8, 1), torchvision.ops.Permute([0, 2, 3, 1]), nn.GELU())
    with pytest.raises(ValueError, match=r"two dimensions of \(1, 8, 8, 8\) have 8 elements"):
        replace_activations(maps, {nn.GELU: PerChannel}, example=(3, 8, 8))


class Tokens(nn.Module):
    """Integers in, an activation called as a function, and one that is never reached."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.hidden, self.act = nn.Embedding(10, 6), nn.Linear(6, 12), nn.GELU()
        self.unused, self.gate = nn.GELU(), nn.Sigmoid()

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.gate(self.act(self.hidden(self.embedding(index))).relu())


def test_an_example_may_be_a_tensor_and_what_is_left_is_said_with_the_reason() -> None:
    converted = replace_activations(Tokens(), {nn.GELU: PerChannel}, example=torch.zeros(1, 7, dtype=torch.long))
    assert layouts(converted) == {(12, -1)}
    assert converted.replaced.left == {
        "": "relu is called as a function",
        "unused": "the example does not reach it",
        "gate": "no replacement of Sigmoid is given",
    }
    assert str(converted.replaced).splitlines() == [
        "GELU → PerChannel(): act",
        "stays, relu is called as a function: (itself)",
        "stays, the example does not reach it: unused",
        "stays, no replacement of Sigmoid is given: gate",
        "parameters: 144 → 156",
    ]


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x)


class Ending(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.layer, self.act, self.function = nn.Linear(6, 6), nn.GELU(), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.act(self.layer(x)), self.layer.weight.clamp(min=0))


@together(
    "function, said",
    [
        (lambda x, w: scripted(x), {"": "gelu is called as a function"}),
        (lambda x, w: torch.ops.aten.gelu(x), {"": "gelu is called as a function"}),
        (lambda x, w: torch.ops.aten.silu.default(x), {"": "silu is called as a function"}),
        (lambda x, w: x.clamp_min(0), {"": "clamp_min is called as a function"}),
        (lambda x, w: torch.clamp(x, min=0.0), {"": "clamp is called as a function"}),
        (lambda x, w: x.clamp(0, 1) + x.clamp(min=1e-6) + x.long().clamp(min=0), {}),
    ],
)
def test_activations_are_known_by_what_is_called_in_the_end(function, said) -> None:
    new = replace_activations(Ending(function), {"gelu": "aglu"}, example=(6,))
    assert new.replaced.left == said


def test_what_is_replaced_and_not_reached_is_said() -> None:
    new = replace_activations(Tokens(), {"gelu": "aglu"}, example=torch.zeros(1, 7, dtype=torch.long))
    assert new.replaced.unreached == ["unused"]
    assert "replaced, though the example does not reach it: unused" in str(new.replaced).splitlines()
    assert not replace_activations(Tokens(), {"gelu": "aglu"}).replaced.unreached


class CalledTwice(nn.Module):
    """One activation with one name, between layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.act, self.last = nn.Linear(3, 4), nn.Linear(4, 5), nn.ReLU(), nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(self.act(self.second(self.act(self.first(x)))))
        return result


class CalledTwiceOrThrice(CalledTwice):
    """Nobody can write down what it does."""

    def forward(self, x: torch.Tensor, again: bool = False) -> torch.Tensor:
        result = super().forward(x)
        return self.act(result) if again else result


def test_where_calls_of_one_module_see_several_numbers_of_channels_each_gets_a_successor() -> None:
    model, x = CalledTwice(), torch.randn(2, 3)
    converted = replace_activations(model, {nn.ReLU: PerChannel, nn.GELU: nn.GELU}, example=(3,))
    assert [len(module.weight) for module in (converted.act, converted.act_1)] == [4, 5]
    assert converted.replaced.left == {}
    expected = model.last(2 * model.second(2 * model.first(x)))
    torch.testing.assert_close(converted(x), expected)
    back = restore_activations(converted)
    assert type(back) is CalledTwice
    assert not hasattr(back, "act_1")
    assert torch.equal(back(x), model(x))
    only = replace_activations(nn.Sequential(model, nn.ReLU()), {nn.ReLU: PerChannel}, example=(3,), where="0.act")
    assert [*only.replaced.new] == ["0.act", "0.act_1"]
    # where nothing is told, one is enough
    assert [*replace_activations(model, {nn.ReLU: AGLU}, example=(3,)).replaced.new] == ["act"]


def test_a_network_of_torchvision_whose_blocks_call_one_activation_for_two_widths() -> None:
    with torch.device("meta"):
        model = torchvision.models.resnet50()
        new = replace_activations(model, {nn.ReLU: RAA}, example=(3, 64, 64))
    assert len(new.replaced.new) == 1 + 16 * 3
    assert (new.layer1[0].relu.weight.numel(), new.layer1[0].relu_2.weight.numel()) == (64, 256)


def test_a_module_that_sees_several_numbers_of_channels_is_left_where_its_calls_cannot_be_told_apart() -> None:
    converted = replace_activations(CalledTwiceOrThrice(), {nn.ReLU: PerChannel, nn.GELU: PerChannel}, example=(3,))
    assert converted.replaced.left == {"act": "it is called with 4 and 5 channels"}
    assert kinds(converted, PerChannel) == ["last"]
    shared = nn.Sequential(nn.Linear(3, 4), prelu := nn.PReLU(), nn.Linear(4, 5), prelu, nn.ReLU())
    left = replace_activations(shared, {nn.PReLU: PerChannel, nn.ReLU: AGLU}, example=(3,)).replaced.left
    assert left == dict.fromkeys(("1", "3"), "it is called with 4 and 5 channels")


def test_where_no_layer_says_where_the_channels_are_they_are_not_guessed() -> None:
    with pytest.raises(ValueError, match=r"no layer before it says where the channels of \(1, 4, 4, 4\) are: '1'"):
        replace_activations(nn.Sequential(nn.Identity(), nn.ReLU()), {nn.ReLU: PerChannel}, example=(4, 4, 4))


# --- what a name means -------------------------------------------------------------------------------------------


class Leaky(nn.ReLU):
    """Of whom torch knows nothing."""


class Swish(nn.Module):
    """As other libraries have it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.sigmoid()


def test_subclasses_and_those_that_are_called_so_are_meant_too() -> None:
    model = nn.Sequential(Leaky(), nn.ReLU(), Swish(), nn.SiLU(), nn.Sigmoid())
    for relu, silu in (("relu", "Swish"), (nn.ReLU, nn.SiLU)):
        converted = replace_activations(model, {relu: "aglu", silu: "tanh"})
        assert [type(module) for module in converted] == [AGLU, AGLU, nn.Tanh, nn.Tanh, nn.Sigmoid]
    # rather its own class than one that it inherits from
    assert isinstance(replace_activations(model, {nn.ReLU: "aglu", Leaky: "tanh"})[0], nn.Tanh)


def test_strictly_only_the_class_itself_is_meant() -> None:
    model = nn.Sequential(Leaky(), nn.ReLU(), Swish(), nn.SiLU())
    converted = replace_activations(model, {"relu": AGLU, nn.SiLU: AGLU}, strict=True)
    assert kinds(converted, AGLU) == ["1", "3"]
    assert converted.replaced.left == {"0": "Leaky is a subclass of ReLU", "2": f"Swish of {__name__} is not torch's"}


def test_a_pattern_or_a_function_says_where() -> None:
    model = torchvision.models.resnet18()
    wheres = ("layer[34].*", ["layer3.*", "layer4.*"], lambda name, module: name.startswith(("layer3", "layer4")))
    for where in wheres:
        converted = replace_activations(model, {"relu": "aglu"}, where=where)
        assert kinds(converted, AGLU) == ["layer3.0.relu", "layer3.1.relu", "layer4.0.relu", "layer4.1.relu"]
        assert converted.replaced.left["layer1.0.relu"] == "where leaves it out"


def test_a_parameter_on_its_way_to_a_positive_number_is_no_activation() -> None:
    model = nn.Sequential(nn.Linear(3, 4), AGLU(), nn.Linear(4, 5), nn.ReLU())
    assert replace_activations(model, {nn.ReLU: AGLU}, example=(3,)).replaced.left == {}


def test_what_cannot_be_asked_for_is_an_error() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    with pytest.raises(ValueError, match="example: got None, but what replaces ReLU wants the number of channels"):
        replace_activations(model, {nn.ReLU: PerChannel})
    with pytest.raises(TypeError, match=r"got the module SiLU\(\), allowed is a class or a function that makes one"):
        replace_activations(model, {nn.ReLU: nn.SiLU()})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match=r"got 3, allowed is a name, a class or a function"):
        replace_activations(model, {nn.ReLU: 3})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match=r"got ReLU\(\), allowed are names of activations and classes of modules"):
        replace_activations(model, {nn.ReLU(): AGLU})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="replacements: got str, allowed is a mapping"):
        replace_activations(model, "aglu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"got 'rely', allowed are threshold, relu, .*, or a class"):
        replace_activations(model, {"rely": AGLU})
    with pytest.raises(TypeError, match="where: got 3, allowed are a pattern of names, several, or a function"):
        replace_activations(nn.Sequential(nn.ReLU()), {"relu": "aglu"}, where=3)
    for halves_or_gates in ("glu", "spatial_attention"):
        with pytest.raises(ValueError, match=rf"got '{halves_or_gates}', allowed are (?!.*attention)"):
            replace_activations(nn.Sequential(nn.ReLU()), {"relu": halves_or_gates})
    with pytest.raises(ValueError, match=r"got 'glue', allowed are .*gelu.*aglu.*raa.*, or what makes a module"):
        replace_activations(model, {"relu": "glue"})
    for function in (nn.functional.silu, torch.tanh):
        with pytest.raises(
            TypeError, match=r"replacements: got <.*, allowed is a name, a class or a function that makes"
        ):
            replace_activations(model, {"relu": function})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="replacements: '1' would become a str, allowed is a module"):
        replace_activations(model, {"relu": lambda: "silu"})  # type: ignore[dict-item,return-value]
    for wrong in (lambda c: RAA(c), lambda channels, where: RAA(channels, dim=where), lambda *, width: RAA(width)):
        name = list(inspect.signature(wrong).parameters)[-1]
        with pytest.raises(
            TypeError, match=rf"got <lambda>, which wants '{name}', allowed are parameters called channels"
        ):
            replace_activations(model, {"relu": wrong}, example=(3,))
    assert replace_activations(model, {"relu": lambda dim: AGLU(4, dim)}, example=(3,))[1].dim == -1
    with pytest.raises(ValueError, match="inplace: the model is itself the activation"):
        replace_activations(nn.ReLU(), {"relu": "aglu"}, inplace=True)


def test_the_original_and_its_random_numbers_are_left_alone() -> None:
    model = torchvision.models.resnet18(num_classes=10).train()
    torch.manual_seed(3)
    without = replace_activations(model, {nn.ReLU: AGLU})
    torch.manual_seed(3)
    with_example = replace_activations(model, {nn.ReLU: AGLU}, example=(3, 32, 32))
    pairs = zip(without.parameters(), with_example.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in with_example.modules())


def test_a_transformer_layer_of_torch_computes_the_new_activation_in_its_fused_path_too() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0, activation=nn.ReLU(), batch_first=True)
    new, x = replace_activations(layer, {nn.ReLU: nn.Tanh}).eval(), torch.randn(2, 5, 16)
    with torch.no_grad():
        fused = new(x)
    torch.testing.assert_close(fused, new(x), rtol=1e-4, atol=1e-5)
    assert (fused - layer.eval()(x)).abs().max() > 0.01


class Squeezed(nn.Module):
    """A map that is multiplied by what a dense layer makes of its means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3, padding=1)
        self.dense = nn.Linear(channels, channels)
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        activated: torch.Tensor = self.act(x * self.dense(x.mean((2, 3)))[:, :, None, None])
        return activated


@pytest.mark.parametrize("size", [28, 32])
def test_the_channels_of_a_map_are_not_those_of_a_dense_layer_between(size: int) -> None:
    new = replace_activations(Squeezed(32), {nn.ReLU: RAA}, example=(3, size, size))
    assert (new.act.dim, new.act.weight.numel()) == (1, 32)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()


class OtherBlock(Block):
    pass


def test_a_replaced_parent_takes_its_children_with_it() -> None:
    model = nn.Sequential(nn.ReLU(), Block())
    new = replace_activations(model, {Block: OtherBlock, nn.ReLU: nn.SiLU})
    assert isinstance(new[0], nn.SiLU)
    assert isinstance(new[1].act, nn.ReLU)
    assert set(new.replaced.new) == {"0", "1"}


def test_a_module_may_hold_tensors_as_plain_attributes() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.act = torch.ones(4), nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            activated: torch.Tensor = self.act(x - self.mean)
            return activated

    assert isinstance(replace_activations(Shifted(), {nn.ReLU: RAA}, example=(4,)).act, RAA)
