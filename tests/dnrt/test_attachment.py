"""ARR in any network: it takes the responses that are meant, and it goes where the network goes."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import companion
from companion import AGLU, ARR, attach_arr, detach_arr, replace_activations, rethink
from companion.study.models.vit import VisionTransformer


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))


def data() -> tuple[Tensor, Tensor]:
    return torch.randn(6, 8), torch.tensor([0, 2, 0, 1, 2, 2])


def test_the_loss_is_lambda_times_the_mean_over_the_layers() -> None:
    model, (x, target) = network(), data()
    plain = model(x)
    arr = attach_arr(model, ["1", "2"], 3, (8,), weight=5.0)
    assert torch.equal(model(x), plain)  # the network computes what it did
    ours, theirs = arr.loss(target), [ARR(3, 16), ARR(3, 3)]
    hidden = model[:2](x)
    expected = 5 * sum(arr(y, target) for arr, y in zip(theirs, (hidden, plain), strict=True)) / 2
    torch.testing.assert_close(ours, expected)
    for mean, other in zip(arr.means().values(), theirs, strict=True):
        torch.testing.assert_close(mean, other.mean)
    assert list(arr.means()) == ["1", "2"]
    assert model.arr is arr


def test_both_losses_train_the_layers_before_them() -> None:
    model, (x, target) = network(), data()
    arr = attach_arr(model, "1", 3, (8,))
    (F.cross_entropy(model(x), target) * 0 + arr.loss(target)).backward()
    assert model[0].weight.grad.abs().sum() > 0
    assert not model[2].weight.grad.any()


def tokens(response: object, **options: object) -> Tensor:
    """The class means of a transformer's last block after one image of each class."""
    torch.manual_seed(0)
    model = VisionTransformer(8, 1, 2, patch=4, width=6, depth=2, heads=2)
    arr = attach_arr(model, "blocks.*", 2, (1, 8, 8), response=response)  # type: ignore[arg-type]
    out: list[Tensor] = []
    model.get_submodule("blocks.1").register_forward_hook(lambda *args: out.append(args[2]))
    model(torch.randn(2, 1, 8, 8))
    arr.loss(torch.tensor([0, 1]))
    assert list(arr.means()) == ["blocks.0", "blocks.1"]
    return torch.stack([out[0].detach(), arr.means()["blocks.1"][:, None].expand_as(out[0])])


def test_of_tokens_the_class_token_their_mean_or_what_a_function_says() -> None:
    for response, pick in (
        ("auto", lambda x: x[:, 0]),
        ("class_token", lambda x: x[:, 0]),
        ("mean", lambda x: x.mean(1)),
        (lambda x: x[:, 3], lambda x: x[:, 3]),
    ):
        out, mean = tokens(response)
        torch.testing.assert_close(mean[:, 0], pick(out))


def test_maps_are_averaged_over_their_pixels() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    x = torch.randn(1, 1, 6, 6)
    model(x)
    arr = attach_arr(model, "1", 2, (1, 6, 6))
    model(x)
    arr.loss(torch.tensor([1]))
    torch.testing.assert_close(arr.means()["1"][1], model[:2](x).mean((0, 2, 3)))
    assert "mean over 4 × 4 places: 1" in repr(arr)


@pytest.mark.parametrize(
    ("model", "layer", "shape", "dims"),
    [
        (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU()), "1", (3, 9), 2),
        (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4)), "0", (3, 9), 2),
        (lambda: nn.Sequential(nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU())), "0", (3, 9), 2),
        (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.AdaptiveAvgPool1d(1), nn.PReLU()), "2", (3, 9), 2),
        (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU()), "1", (9, 3), 1),
        (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), Turned(), nn.Linear(4, 4), nn.ReLU()), "3", (3, 9), 1),
        (lambda: nn.Sequential(nn.Conv3d(1, 4, 2), nn.ReLU()), "1", (1, 3, 3, 3), (2, 3, 4)),
    ],
)
def test_responses_are_averaged_over_everything_but_the_units(model, layer, shape, dims) -> None:
    model, out = model(), list[Tensor]()
    arr = attach_arr(model, layer, 2, shape)
    model.get_submodule(layer).register_forward_hook(lambda *args: out.append(args[2]))
    model(torch.randn(1, *shape))
    arr.loss(torch.tensor([1]))
    torch.testing.assert_close(arr.means()[layer][1], out[0].mean(dims)[0])


class Turned(nn.Module):
    """(N, C, L) → (N, L, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


class Sequences(nn.Module):
    """Its activation sees (L, N, d), or rows (N · L, d)."""

    def __init__(self, rows: bool) -> None:
        super().__init__()
        self.rows, self.a, self.act, self.b = rows, nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.rows:
            return self.b(self.act(self.a(x.flatten(0, 1)))).unflatten(0, x.shape[:2]).mean(1)
        return self.b(self.act(self.a(x.transpose(0, 1)))).mean(0)


@pytest.mark.parametrize("example", [(6, 8), torch.zeros(6, 6, 8)])
@pytest.mark.parametrize("rows", [False, True])
def test_what_gives_no_response_for_each_example_is_refused_but_for_a_function_that_makes_one(rows, example) -> None:
    model = Sequences(rows)
    with pytest.raises(ValueError, match=r"'act' gives .* responses where the number of examples is (1|6|7), allowed"):
        attach_arr(model, "act", 3, example)
    length = example[-2] if isinstance(example, tuple) else example.shape[1]
    response = (lambda x: x.unflatten(0, (-1, length))) if rows else lambda x: x.mean(0)
    assert attach_arr(model, "act", 3, example, response=response).widths == {"act": 16}


def test_logits_say_how_many_examples_there_are() -> None:
    class Pooled(nn.Module):
        """Of points (P, 8) that belong to two sets, as networks on graphs see them."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.act = nn.Linear(8, 4), nn.ReLU()
            self.b, self.after, self.c = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)

        def forward(self, x: Tensor, of: Tensor) -> Tensor:
            x = self.act(self.a(x))
            return self.c(self.after(self.b(x.new_zeros(2, 4).index_add(0, of, x))))

    example = (torch.randn(5, 8), torch.tensor([0, 0, 1, 1, 1]))
    assert attach_arr(Pooled(), "after", 3, example).widths == {"after": 4}
    with pytest.raises(ValueError, match=r"'act' gives .* makes 5 responses where the number of examples is 2"):
        attach_arr(Pooled(), "act", 3, example)


class ChannelsLast(nn.Module):
    """A stage as transformers for images have it: (N, C, H, W) → (N, H, W, d)."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x.permute(0, 2, 3, 1))
        return out


@pytest.mark.parametrize("activation", [nn.GELU, AGLU])
@pytest.mark.parametrize("side", [6, 4])
def test_an_activation_after_a_layer_with_its_channels_last_has_them_last(activation, side) -> None:
    model = nn.Sequential(ChannelsLast(), activation())
    last = " with" if side != 4 else ", perhaps with"
    with pytest.raises(ValueError, match=rf"'1' gives \(1, {side}, {side}, 4\){last} its channels last"):
        attach_arr(model, "1", 3, (1, side, side))
    with pytest.raises(ValueError, match=rf"'0' gives \(1, {side}, {side}, 4\){last} its channels last"):
        attach_arr(nn.Sequential(ChannelsLast(), nn.Linear(4, 4)), "0", 3, (1, side, side))


class Product(nn.Module):
    """A layer whose units nobody declares."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.act = nn.Parameter(torch.randn(5, 8)), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(x @ self.weight)
        return out


def test_maps_of_which_nobody_says_where_the_channels_are_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'act' gives \(1, 6, 7, 8\) and no layer before it says where the channels"):
        attach_arr(Product(), "act", 3, (6, 7, 5))


class Meanwhile(nn.Module):
    """Channels that lie last for a while, as ConvNeXt has them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return out


class SideBySide(nn.Module):
    """The channels of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.pool = nn.Conv2d(3, 8, 1), nn.Conv2d(3, 4, 1), nn.AvgPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.pool(torch.cat([self.one(x), self.other(x)], 1))
        return out


def test_maps_with_their_channels_first_are_held_though_the_layer_itself_does_not_say_so() -> None:
    assert attach_arr(SideBySide(), "pool", 2, (3, 8, 8)).widths == {"pool": 12}
    assert attach_arr(nn.Sequential(nn.Conv2d(3, 8, 1), Meanwhile()), "1", 2, (3, 8, 8)).widths == {"1": 8}


class Adding(nn.ModuleDict):
    """A forward that runs all children, and adds or follows them."""

    def __init__(self, adds: bool) -> None:
        super().__init__({"first": nn.Linear(4, 4), "act": nn.ReLU(), "last": nn.Linear(4, 4)})
        self.adds = adds

    def forward(self, x: Tensor) -> Tensor:
        for module in self.values():
            x = module(x) + x * self.adds
        return x


class Ended(nn.Sequential):
    """All children but the last, which it takes for its head; and it asks for a number."""

    def forward(self, x: Tensor) -> Tensor:
        assert x.sum().item() < 1e6
        for module in list(self)[:-1]:
            x = module(x)
        out: Tensor = self[2](x)
        return out


@pytest.mark.parametrize("loss", ["arr", "centre"])
def test_who_adds_up_what_all_children_give_is_refused(loss: str) -> None:
    with pytest.raises(
        ValueError, match=f"got a Adding whose forward goes over its children, and '{loss}' would be one"
    ):
        rethink(Adding(True), loss, (4,), 4)
    with pytest.raises(
        ValueError, match=f"got a Ended whose forward goes over its children, and '{loss}' would be one"
    ):
        rethink(Ended(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), loss, (4,), 4)
    for model in (Adding(False), nn.Sequential(Adding(True))):
        x = torch.randn(3, 4)
        assert torch.equal(rethink(model, loss, (4,), 4)(x), model(x))


def test_maps_with_their_channels_last_are_refused_but_for_a_function_that_averages_them() -> None:
    model = nn.Sequential(ChannelsLast())
    with pytest.raises(ValueError, match=r"'0' gives \(1, 6, 6, 4\) with its channels last"):
        attach_arr(model, "0", 2, (1, 6, 6))
    assert attach_arr(model, "0", 2, (1, 6, 6), response=lambda x: x.mean((1, 2))).widths == {"0": 4}


def step(model: nn.Module, x: Tensor, target: Tensor) -> tuple[Tensor, list[Tensor]]:
    model.zero_grad()
    loss = F.cross_entropy(model(x), target) + model.arr.loss(target)
    loss.backward()
    return loss.detach(), [parameter.grad.clone() for parameter in model.parameters()]


def test_a_copy_a_pickle_and_a_saved_state_go_on_alike_and_apart() -> None:
    model, (x, target) = network(), data()
    arr = attach_arr(model, "1", 3, (8,), weight=2.0, init="zero")
    model(x)  # what was not asked for is not copied
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = network()
    attach_arr(loaded, "1", 3, (8,), weight=2.0, init="zero")
    loaded.load_state_dict(model.state_dict())
    twins = copy.deepcopy(model), torch.load(file, weights_only=False), loaded
    expected, before = step(model, x, target), arr.means()["1"].clone()
    for twin in twins:
        loss, gradients = step(twin, x, target)
        torch.testing.assert_close(loss, expected[0])
        torch.testing.assert_close(gradients, expected[1])
        assert twin.arr is not arr
    assert torch.equal(arr.means()["1"], before)


def test_a_compiled_network_and_a_compiled_step_do_the_same() -> None:
    torch.compiler.reset()
    model, (x, target) = network(), data()
    attach_arr(model, ["1", "2"], 3, (8,), init="zero")
    whole, apart = copy.deepcopy(model), copy.deepcopy(model)
    compiled = torch.compile(apart, fullgraph=True)
    in_one = torch.compile(lambda x, t: F.cross_entropy(whole(x), t) + whole.arr.loss(t), fullgraph=True)
    for _ in range(2):
        loss, gradients = step(model, x, target)
        for network_, other in (
            (apart, F.cross_entropy(compiled(x), target) + apart.arr.loss(target)),
            (whole, in_one(x, target)),
        ):
            torch.testing.assert_close(other, loss)
            network_.zero_grad()
            other.backward()
            torch.testing.assert_close([p.grad for p in network_.parameters()], gradients)
    torch.testing.assert_close(whole.arr.arr.mean, model.arr.arr.mean)


def test_it_lives_with_replaced_activations() -> None:
    model = replace_activations(network(), {"gelu": "raa"}, (8,))
    arr = attach_arr(model, "1", 3, (8,))
    x, target = data()
    model(x)
    assert arr.loss(target).isfinite()


def test_a_detached_network_is_as_it_was() -> None:
    model = network()
    names = list(model.state_dict())
    attach_arr(model, "1", 3, (8,))
    twin = copy.deepcopy(model)
    for network_ in (model, twin):
        assert detach_arr(network_) is network_
        assert list(network_.state_dict()) == names
        assert not network_[1]._forward_hooks
        assert not network_._forward_pre_hooks
    with pytest.raises(ValueError, match="allowed is one that attach_arr has changed"):
        detach_arr(model)


def test_one_inside_another_is_neither_listened_to_nor_detached_with_it() -> None:
    inner, (x, target) = network(), data()
    attach_arr(inner, "1", 3, (8,))
    model = nn.Sequential(inner, nn.ReLU())
    arr = attach_arr(model, "*", 3, (8,))
    assert list(arr.widths) == ["0", "1"]
    detach_arr(model)(x)
    assert inner.arr.loss(target).isfinite()


def test_of_a_layer_that_runs_twice_the_last_output_is_held_and_the_attachment_says_so() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.act = nn.Conv2d(2, 4, 1), nn.Conv2d(4, 5, 1), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            """Maps of four channels are activated, then of five."""
            return self.act(self.second(self.act(self.first(x))))

    arr = attach_arr(Twice(), "act", 3, (2, 6, 7))
    assert arr.widths == {"act": 5}
    assert "the last of 2 outputs, mean over 6 × 7 places: act" in repr(arr)


def test_a_wrong_target_takes_nothing_away() -> None:
    model, (x, target) = network(), data()
    arr = attach_arr(model, "1", 3, (8,))
    model(x)
    with pytest.raises(ValueError, match="target: got"):
        arr.loss(target + 7)
    assert arr.loss(target).isfinite()


def test_evaluation_records_nothing_and_each_pass_is_asked_once() -> None:
    model, (x, target) = network(), data()
    arr = attach_arr(model, "1", 3, (8,))
    model.eval()(x)
    with pytest.raises(RuntimeError, match=r"training mode; this network is in evaluation mode, where nothing is held"):
        arr.loss(target)
    model.train()(x)
    arr.loss(target)
    with pytest.raises(RuntimeError, match=r"one call after each forward pass in training mode$"):
        arr.loss(target)
    with pytest.raises(RuntimeError):
        arr.loss(target)


class Dropping(nn.Module):
    """It may leave a layer out."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.act, self.b, self.drop = nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 3), False
        self.first = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.b(x if self.drop else self.act(self.a(x)))


def test_a_response_of_an_earlier_pass_is_none_of_this_one_and_a_layer_that_did_not_run_is_named() -> None:
    model, (x, target) = Dropping(), data()
    arr = attach_arr(model, ["first", "act"], 3, (8,))
    model(x)
    model.drop = True
    model(x)
    with pytest.raises(RuntimeError, match="'act', which did not run in the last forward pass, as 'first' did;"):
        arr.loss(target)
    model.drop = False
    model(x)
    assert arr.loss(target).isfinite()


def test_what_a_checkpoint_computes_again_is_no_response() -> None:
    model, (x, target) = network(), data()
    arr = attach_arr(model, "1", 3, (8,))
    logits = checkpoint(model, x, use_reentrant=False)
    (F.cross_entropy(logits, target) + arr.loss(target)).backward()
    with pytest.raises(RuntimeError, match="one call after each forward pass"):
        arr.loss(target)


class Checkpointed(nn.Module):
    """A body that runs in a checkpoint, or without gradients."""

    def __init__(self, run: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.run, self.body, self.head = run, nn.Sequential(nn.Linear(8, 16), nn.GELU()), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.run(self.body, x))
        return out


class Masked(nn.Sequential):
    """Gives all that it holds two arguments."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for layer in self:
            x = layer(x, mask)
        return x


class MaskedLayer(nn.Linear):
    """Of two arguments."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return super().forward(x) * mask


def test_a_sequential_of_somebodys_own_may_give_it_more_arguments() -> None:
    model, given = Masked(MaskedLayer(8, 8), MaskedLayer(8, 3)), (torch.randn(2, 8), torch.ones(2, 1))
    expected = model(*given)
    attach_arr(model, "0", 3, example=given)
    assert torch.equal(model(*given), expected)


def reentrant(body: nn.Module, x: Tensor) -> Tensor:
    return checkpoint(body, x.requires_grad_(), use_reentrant=True)


def test_what_would_train_nothing_is_refused_and_what_need_not_train_is_not() -> None:
    x, target = data()
    model = Checkpointed(reentrant)
    arr = attach_arr(model, "body.1", 3, (8,))
    model(x.clone())
    with pytest.raises(RuntimeError, match=r"of 'body\.1' without a gradient.* checkpoints with use_reentrant=False"):
        arr.loss(target)
    model.run = lambda body, x: checkpoint(body, x, use_reentrant=False)
    model(x)
    arr.loss(target).backward()
    assert model.body[0].weight.grad.any()
    model.run = lambda body, x: (torch.no_grad()(body)(x), body(x))[1]  # the last run counts
    model(x)
    assert arr.loss(target).requires_grad
    with torch.no_grad():
        model(x)
        assert arr.loss(target).isfinite()
        model(x)
    with pytest.raises(RuntimeError, match=r"of 'body\.1' without a gradient.* a call in torch\.no_grad"):
        arr.loss(target)
    model.run = torch.no_grad()(lambda body, x: body(x))
    model.body.requires_grad_(False)
    model(x)
    assert not arr.loss(target).requires_grad


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": "blocks.*"}, r"layers: got 'blocks.\*', allowed are names or patterns such as 0, 1, 2"),
        ({"weight": -1.0}, "weight: got -1.0"),
        ({"weight": float("inf")}, "weight: got inf"),
        ({"response": "first"}, "response: got 'first'"),
        ({"momentum": 2.0}, "momentum"),
        ({"num_classes": 0}, "num_classes"),
        ({"example": (9,)}, "module '0', a Linear, cannot take"),
        ({"response": lambda x: x[0]}, r"'1' gives \(16,\)"),
    ],
)
def test_what_cannot_be_is_refused_and_the_network_stays(arguments: dict[str, object], message: str) -> None:
    model = network()
    with pytest.raises(ValueError, match=message):
        attach_arr(model, **{"layers": "1", "num_classes": 3, "example": (8,), **arguments})  # type: ignore[arg-type]
    assert not hasattr(model, "arr")
    assert not model[1]._forward_hooks


def test_without_an_example_it_is_asked_for() -> None:
    model = network()
    with pytest.raises(TypeError, match=r"example: got None, allowed is an input of the network or the shape of one"):
        attach_arr(model, "1", num_classes=3)
    assert not hasattr(model, "arr")


def test_one_object_at_several_places_is_refused_and_what_is_around_it_is_not() -> None:
    activation = nn.GELU()
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), activation) for _ in range(3)))
    for layers in ("*.1", "1.1"):
        with pytest.raises(ValueError, match=r"layers: got '\d\.1', which is one GELU at 3 places"):
            attach_arr(model, layers, 3, (8,))
    arr = attach_arr(model, "*", 3, (8,))
    assert arr.widths == {"0": 8, "1": 8, "2": 8}
    model(torch.randn(4, 8))
    arr.loss(torch.tensor([0, 1, 2, 0])).backward()


def test_two_at_once_are_refused() -> None:
    model = network()
    attach_arr(model, "1", 3, (8,))
    with pytest.raises(ValueError, match="see detach_arr"):
        attach_arr(model, "2", 3, (8,))


def test_what_overwrites_a_response_later_does_not_change_what_is_held() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 3))
    x, target = data()
    arr = attach_arr(model, "0", 3, (8,))
    model(x)
    arr.loss(target)
    expected = ARR(3, 16)
    expected(model[0](x), target)
    torch.testing.assert_close(arr.means()["0"], expected.mean)


def test_a_response_that_is_computed_may_lie_in_a_checkpoint() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.b, self.a(x), use_reentrant=False)

    model, (x, target) = Checkpointed(), data()
    arr = attach_arr(model, "b", 3, (8,), response=F.normalize)
    model(x)
    arr.loss(target).backward()
    assert model.b.weight.grad.abs().sum() > 0


def test_who_inherits_from_a_neuron_is_held_too() -> None:
    class Mine(AGLU):
        pass

    model = companion.rethink(nn.Sequential(nn.Linear(8, 16), Mine(), nn.Linear(16, 3)), "arr", (8,), 3)
    assert [*model.arr.means()] == ["1"]
