"""Neurons enter networks of torchvision, timm and transformers, train, are saved and loaded, and leave again."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
import torchvision
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

import companion
from tests.neurons.networks import CLASSES, SmallNet, batch


def resnet() -> tuple[nn.Module, Any]:
    return torchvision.models.resnet18(num_classes=CLASSES), torch.randn(2, 3, 32, 32)


def vit() -> tuple[nn.Module, Any]:
    sizes = {"img_size": 16, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2}
    return timm.models.VisionTransformer(num_classes=CLASSES, **sizes), torch.randn(2, 3, 16, 16)


def gpt() -> tuple[nn.Module, Any]:
    config = transformers.GPT2Config(
        n_layer=2, n_embd=24, n_head=2, vocab_size=20, n_positions=8, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config), {"input_ids": torch.randint(20, (2, 6))}


def outputs(model: nn.Module, example: Any) -> Tensor:
    """Logits, of whatever the network returns."""
    result = model(**example).logits if isinstance(example, dict) else model(example)
    assert isinstance(result, Tensor)
    return result


@pytest.mark.parametrize(
    ("make", "neurons"),
    [
        (resnet, "aglu"),
        (resnet, "dac"),
        (resnet, "norm+geglu"),
        (resnet, "raa+arr"),
        (resnet, "multibias+swish"),
        (vit, "la_silu+centre"),
        (vit, "dac+aglu"),
        (vit, "two_arguments+arr"),
        (gpt, "raa"),
        (gpt, "la_hardsilu"),
        (gpt, "extra_linear+swiglu"),
        (gpt, "one_argument"),
    ],
)
def test_a_network_is_rethought_trained_saved_loaded_and_undone(
    make: Callable[[], tuple[nn.Module, Any]], neurons: str
) -> None:
    torch.manual_seed(0)
    model, example = make()
    model.eval()
    with torch.no_grad():
        plain = outputs(model, example)
    state = copy.deepcopy(model.state_dict())
    # where weights are drawn, loading must bring them back
    new, other = (companion.rethink(model, neurons, example, CLASSES) for _ in range(2))
    assert sorted(new.rethought.neurons) == sorted(neurons.split("+"))

    # undone as it is and after a pickle, it computes what it did
    undone = companion.undo(pickle.loads(pickle.dumps(new)))
    assert [*undone.state_dict()] == [*state]
    with torch.no_grad():
        assert torch.equal(outputs(undone, example), plain)
        assert torch.equal(outputs(model, example), plain)

    # trained
    new.train()
    rule = torch.optim.SGD(companion.parameter_groups(new, 1e-4, new.rethought.decay), lr=0.01)
    logits = outputs(new, example)
    target = torch.zeros(logits.shape[:-1], dtype=torch.long)
    loss = F.cross_entropy(logits.flatten(0, -2), target.flatten()) + companion.extra_loss(new, target)
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in new.parameters())
    rule.step()

    # saved and loaded
    new.eval()
    file = io.BytesIO()
    torch.save(new.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    with torch.no_grad():
        assert torch.equal(outputs(other.eval(), example), outputs(new, example))
        assert not torch.equal(outputs(new, example), plain)

    # what the plain network knew is in its old places, and goes back into them
    back = companion.undo(new)
    assert type(back) is type(model)
    assert not any(hasattr(back, name) for name in ("rethought", "replaced", "arr", "centre"))
    back.load_state_dict(state)
    with torch.no_grad():
        assert torch.equal(outputs(back, example), plain)


def test_a_network_that_cannot_be_traced_is_not_converted_and_says_why() -> None:
    model, example = gpt()
    with pytest.raises(ValueError, match=r"'dac' cannot enter this GPT2LMHeadModel; model: torch\.fx cannot trace"):
        companion.rethink(model, "dac", example)


def test_what_was_learned_stays_when_activations_leave_and_not_when_a_conversion_does() -> None:
    for neurons, stays in (("aglu+norm+arr", True), ("dac+aglu", False)):
        model = SmallNet()
        new = companion.rethink(model, neurons, (2, 4, 4), CLASSES)
        nn.init.constant_(new.get_submodule("conv").weight, 2.0)
        back = companion.undo(new)
        assert (back.get_submodule("conv").weight == 2.0).all().item() is stays
        assert stays or torch.equal(back.get_submodule("conv").weight, model.conv.weight)


def test_a_copy_knows_what_it_is() -> None:
    for neurons in ("dac+silu", "raa+arr", "centre"):
        new = copy.deepcopy(companion.rethink(SmallNet().double(), neurons, (2, 4, 4), CLASSES))
        x, target = batch()
        new.train()(x)
        assert (companion.extra_loss(new, target) >= 0).item()
        assert type(companion.undo(copy.deepcopy(new))) is SmallNet


def test_undone_after_a_move_it_has_the_new_dtype_and_mode() -> None:
    for neurons in ("dac", "aglu"):
        new = companion.rethink(SmallNet().train(), neurons, (2, 4, 4)).double().eval()
        back = companion.undo(new)
        assert {p.dtype for p in back.parameters()} == {torch.float64}
        assert not any(module.training for module in back.modules())


@pytest.mark.parametrize(
    ("neurons", "kind"), [("aglu", "AGLU"), ("norm", "GELU"), ("norm+raa", "RAA"), ("two_arguments", "MultiArgument")]
)
def test_hooks_of_an_activation_go_over_to_what_takes_its_place_and_back(neurons: str, kind: str) -> None:
    model, x, seen = SmallNet(), torch.randn(2, 2, 4, 4), list[str]()
    hooks = ("forward_pre", "forward", "full_backward_pre", "full_backward")
    for hook in hooks:
        register = getattr(model.dense_act, f"register_{hook}_hook")
        register(lambda module, *_, hook=hook: seen.append(f"{hook} {type(module).__name__}"))
    model.dense_act.register_forward_hook(lambda *given: seen.append(f"{len(given)} are given"), with_kwargs=True)
    new = companion.rethink(model, neurons, (2, 4, 4))
    for network, what in ((copy.deepcopy(new), kind), (companion.undo(new), "GELU")):
        seen.clear()
        network(x).sum().backward()
        assert sorted(seen) == sorted(["4 are given", *(f"{hook} {what}" for hook in hooks)])


def test_what_lies_on_top_is_to_leave_first() -> None:
    x = torch.randn(5, 2, 4, 4)
    new = companion.rethink(SmallNet(), "norm+aglu+arr", (2, 4, 4), CLASSES)
    for model in (new, copy.deepcopy(new), pickle.loads(pickle.dumps(new))):
        companion.replace_activations(model, {companion.AGLU: nn.Tanh}, inplace=True)
        expected = model(x)
        with pytest.raises(ValueError, match="got a SmallNet whose activations were replaced since rethink"):
            companion.undo(model)
        assert torch.equal(model(x), expected)
        companion.restore_activations(model)
        back = companion.undo(model)
        assert not any(hasattr(back, name) for name in ("rethought", "replaced", "arr"))


@pytest.mark.parametrize(("neurons", "times"), [("aglu", 1), ("norm+aglu+arr", 1), ("norm+aglu+arr", 2)])
def test_undone_after_activations_were_restored(neurons: str, times: int) -> None:
    model = SmallNet()
    new = companion.rethink(model, neurons, (2, 4, 4), CLASSES)
    for _ in range(times):
        companion.restore_activations(new)
    back = companion.undo(copy.deepcopy(new))
    assert [*map(type, back.modules())] == [*map(type, model.modules())]
    assert not any(hasattr(back, name) for name in ("rethought", "replaced", "arr"))


def test_undone_after_its_loss_was_detached() -> None:
    new = companion.rethink(SmallNet(), "raa+arr", (2, 4, 4), CLASSES)
    back = companion.undo(companion.detach_arr(new))
    assert not any(hasattr(back, name) for name in ("rethought", "replaced", "arr"))


def test_what_undo_cannot_do_leaves_the_report_there() -> None:
    new = companion.rethink(SmallNet(), "raa+arr", (2, 4, 4), CLASSES)
    new.arr = nn.Identity()
    for _ in range(2):
        with pytest.raises(ValueError, match="without an 'arr'"):
            companion.undo(new)


def test_the_losses_of_several_neurons_add_up() -> None:
    torch.manual_seed(0)
    x, target = batch()
    new = companion.rethink(SmallNet().double(), "arr+relu+centre", x, CLASSES).train()
    again = copy.deepcopy(new)
    new(x), again(x)
    assert companion.extra_loss(new, target) == again.arr.loss(target) + again.centre.loss(target)
    with pytest.raises(RuntimeError, match="after each forward pass in training mode"):
        companion.extra_loss(new, target)
    assert companion.extra_loss(companion.rethink(SmallNet(), "relu", (2, 4, 4)), target) == 0


def test_what_a_pass_without_the_head_leaves_is_no_response_of_an_earlier_one() -> None:
    class Early(nn.Sequential):
        def forward(self, x: Tensor, only: int = 2) -> Tensor:
            return super().forward(x) if only == 2 else self[0](x)

    new = companion.rethink(Early(nn.Linear(4, 4), nn.Linear(4, 3)), "centre", (4,), 3)
    new(torch.randn(2, 4))
    new(torch.randn(2, 4), only=1)
    with pytest.raises(RuntimeError, match="got no response of '1'"):
        companion.extra_loss(new, torch.tensor([0, 1]))


def test_the_losses_of_a_compiled_network_are_those_of_the_network_itself() -> None:
    x, target = batch()
    new = companion.rethink(SmallNet().double(), "arr", x, CLASSES).train()
    again = copy.deepcopy(new)
    compiled = torch.compile(new, backend="eager")
    compiled(x), again(x)
    assert companion.extra_loss(compiled, target) == companion.extra_loss(again, target)


def test_a_wrapper_has_the_losses_of_the_network_in_it_and_is_not_undone() -> None:
    x, target = batch()
    new = companion.rethink(SmallNet().double(), "arr", x, CLASSES).train()
    again, wrapper = copy.deepcopy(new), torch.compile(nn.DataParallel(new), backend="eager")
    new(x), again(x)
    assert companion.extra_loss(wrapper, target) == companion.extra_loss(again, target)
    with pytest.raises(ValueError, match=r"got a DataParallel around .*, allowed is the network itself: model\.module"):
        companion.undo(nn.DataParallel(new))
    with pytest.raises(ValueError, match="got a DataParallel that was not rethought"):
        companion.undo(nn.DataParallel(SmallNet()))


def test_a_loss_holds_what_it_is_told_and_counts_as_much_as_it_is_told() -> None:
    torch.manual_seed(0)
    model, x = vit()
    new = companion.rethink(model, "relu+arr", x, CLASSES, held="blocks.*", weight=10.0)
    by_hand = companion.rethink(model, "relu", x)
    companion.attach_arr(by_hand, "blocks.*", CLASSES, x, weight=10.0)
    new.train()(x), by_hand.train()(x)
    target = torch.tensor([0, 1])
    assert companion.extra_loss(new, target) == by_hand.arr.loss(target)
    assert "weight=10.0, layers=['blocks.0', 'blocks.1']" in str(new.rethought)
    light = companion.rethink(SmallNet(), "arr", (2, 4, 4), CLASSES, weight=0.5)
    assert "weight=0.5, layers=['act'" in str(light.rethought)
    assert companion.rethink(SmallNet(), "centre", (2, 4, 4), CLASSES, weight=0.5).centre.weight == 0.5


def test_a_response_that_is_told_is_held_and_the_reports_say_which() -> None:
    model, x = vit()
    for response, words in (
        (None, "class token, of 5 tokens: blocks.0, blocks.1"),
        ("mean", "mean over 5 tokens: blocks.0, blocks.1"),
        (last, "what last returns: blocks.0, blocks.1"),
    ):
        new = companion.rethink(model, "arr", x, CLASSES, held="blocks.*", response=response)
        assert words in repr(new.arr)
        assert words in str(new.rethought)


def last(x: Tensor) -> Tensor:
    return x[:, -1]


@pytest.mark.parametrize(
    ("neurons", "options", "words"),
    [
        (
            "relu",
            {"response": "mean"},
            "response: got 'mean', allowed beside one loss, 'arr' or 'centre'; of these there is none",
        ),
        ("centre", {"response": "mean"}, "response: got 'mean', allowed is None: centre loss takes what its layer"),
        ("arr", {"response": "first"}, "'arr' cannot enter this SmallNet; response: got 'first', allowed are 'auto'"),
        (
            "relu",
            {"weight": 2.0},
            "held, weight: got None and 2.0, allowed beside one loss, 'arr' or 'centre'; of these there is none",
        ),
        ("arr+centre", {"held": "act"}, "beside one loss, 'arr' or 'centre'; of these there is arr and centre"),
        ("centre", {"held": "act"}, "held: got 'act', allowed is None: centre loss has its own place"),
        ("arr", {"held": "blocks.*"}, "'arr' cannot enter this SmallNet"),
        ("arr", {"weight": -1.0}, "'arr' cannot enter this SmallNet"),
    ],
)
def test_what_a_loss_cannot_hold_is_refused(neurons: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        companion.rethink(SmallNet(), neurons, (2, 4, 4), CLASSES, **options)


def test_the_report_says_what_stands_where_and_what_it_costs() -> None:
    report = companion.rethink(SmallNet(), "arr+geglu", (2, 4, 4), CLASSES).rethought
    before, after = sum(p.numel() for p in SmallNet().parameters()), report.entered[-1].parameters[1]
    assert str(report).splitlines() == [
        "GEGLU (geglu)",
        "  BatchNorm2d of 4 → BatchNorm2d of 8: norm",
        "  Conv2d of 4 → Conv2d of 8: conv, second",
        "  Linear of 6 → Linear of 12: hidden",
        "  ReLU → GEGLU(dim=1): act",
        "  GELU → GEGLU(dim=-1): dense_act",
        "  relu → GEGLU(dim=1): relu",
        "  stays, no replacement of Sigmoid is given: gate",
        "ARR (arr)",
        "  weight=1.0, layers=['act', 'dense_act', 'relu']",
        "  mean over 4 × 4 places: act",
        "  mean over 2 × 2 places: relu",
        f"parameters: {before:,} → {after:,}",
        "loss: add extra_loss(model, target)",
    ]


def test_what_a_neuron_calls_itself_is_no_activation_that_stays() -> None:
    report = str(companion.rethink(SmallNet(), "norm+geglu", (2, 4, 4)).rethought)
    assert "called as a function" not in report


@pytest.mark.parametrize(
    ("neurons", "words"),
    [
        ("relo", "neurons: got 'relo', allowed are aglu, apa"),
        ("relu+", "neurons: got '', allowed are"),
        ("relu+relu", "'relu' is there twice"),
        ("relu+gelu", "both ReLU and GELU decide what units are activated by"),
        ("dac+multibias", "both DAC and multi-bias, 2 copies decide what connections do"),
        ("RAA + DAC", "DAC takes activations of one number alone, and RAA sees several"),
        ("la-silu+multibias", "takes activations of one number alone, and LA-SiLU sees several"),
        ("arr+dac", "ARR holds one response of each unit, and with DAC it has several"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_reason(neurons: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        companion.rethink(SmallNet(), neurons, (2, 4, 4), CLASSES)


def test_a_network_without_a_place_is_refused_with_the_reason() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    for neurons, words in (
        ("aglu", "'aglu' cannot enter this Sequential; model: Sequential holds no ReLU.* to replace"),
        ("apa", "'apa' cannot enter this Sequential; model: Sequential holds no Sigmoid"),
        ("arr", "'arr' cannot enter this Sequential; model: in Sequential no activation of units is a module"),
        ("centre", "'centre' cannot enter this Sequential; model: in Sequential no nn.Linear with 3 outputs sees"),
        ("dac", "'dac' cannot enter this Sequential; model: in Sequential no activation .* is followed by"),
    ):
        with pytest.raises(ValueError, match=words):
            companion.rethink(model, neurons, (3,), CLASSES)


def test_a_wrong_model_or_argument_is_refused() -> None:
    model = companion.rethink(SmallNet(), "silu", (2, 4, 4))
    with pytest.raises(ValueError, match="model: got one that was rethought as 'silu'"):
        companion.rethink(model, "relu", (2, 4, 4))
    with pytest.raises(ValueError, match=r"neurons: got 'dnrt', allowed are aglu, .*; DNRT is 'raa\+arr'"):
        companion.rethink(SmallNet(), "DNRT", (2, 4, 4), CLASSES)
    with pytest.raises(
        ValueError, match=r"the example \(1, 2, 4, 4\) is the shape of one input, a batch of one was put"
    ):
        companion.rethink(SmallNet(), "raa", (1, 2, 4, 4))
    with pytest.raises(TypeError, match="neurons: got list, allowed are names"):
        companion.rethink(SmallNet(), ["relu"], (2, 4, 4))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"model: got str, allowed is an nn\.Module, and none that is scripted"):
        companion.rethink("resnet18", "relu", (2, 4, 4))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"model: got what torch\.compile has returned"):
        companion.rethink(torch.compile(SmallNet()), "relu", (2, 4, 4))
    with pytest.raises(ValueError, match=r"it sees \(4,\), and a batch has a dimension more: '1'"):
        companion.rethink(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), "raa", torch.randn(3))
    with pytest.raises(TypeError, match=r"model: got generator, allowed is an nn\.Module and not its parameters"):
        companion.parameter_groups(model.parameters(), 0.1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="example: got 'relu', allowed are a shape, a tensor"):
        companion.rethink(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), "dac", "relu")
    for call in (companion.undo, lambda model: companion.extra_loss(model, torch.zeros(1))):
        with pytest.raises(ValueError, match="model: got a SmallNet that was not rethought"):
            call(SmallNet())


def test_only_what_stands_before_an_activation_has_an_order() -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.randn(5, 3)
    for names in ("norm+extra_linear", "relu+extra_linear+norm"):
        new = companion.rethink(model, names, (3,))
        nn.init.normal_(next(m for m in new.modules() if type(m).__name__ == "ExtraLinear").weight)
        extra = next(m for m in new.modules() if type(m).__name__ == "ExtraLinear")
        z = model[0](x)
        z = extra(F.layer_norm(z, (4,))) if names.startswith("norm") else F.layer_norm(extra(z), (4,))
        torch.testing.assert_close(new(x), torch.relu(z))


def test_an_example_gives_no_argument_by_which_a_converted_network_would_decide() -> None:
    class Masked(SmallNet):
        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            return super().forward(x if mask is None else x * mask)

    x, _ = batch()
    model = Masked().double()
    assert companion.rethink(model, "dac", {"x": x, "mask": None})(x).shape == model(x).shape
    with pytest.raises(ValueError, match=r"'dac' cannot enter this Masked; mask: got a Tensor, allowed is None"):
        companion.rethink(model, "dac", (x, torch.ones(())))


class Counted(nn.Module):
    """Reads an attribute that is called as a report is."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.first, self.act, self.last = nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)
        self.name = name
        setattr(self, name, False)

    def forward(self, x: Tensor) -> Tensor:
        """Negate, if it is so."""
        result: Tensor = self.last(self.act(self.first(x)))
        return -result if getattr(self, self.name) else result


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("rethought", lambda model: companion.rethink(model, "aglu", (8,))),
        ("replaced", lambda model: companion.rethink(model, "aglu", (8,))),
        ("converted", lambda model: companion.rethink(model, "dac", (8,))),
        ("replaced", lambda model: companion.replace_activations(model, {"relu": "aglu"}, inplace=True)),
        ("replaced", lambda model: companion.to_units(model, companion.baselines.Maxout, (8,), inplace=True)),
        ("converted", companion.to_dac),
        ("converted", lambda model: companion.to_multibias(model, 2)),
    ],
)
def test_a_report_takes_the_place_of_nothing_that_the_network_has(
    name: str, change: Callable[[nn.Module], nn.Module]
) -> None:
    model, x = Counted(name), torch.randn(4, 8)
    expected = model(x)
    with pytest.raises(ValueError, match=f"attribute '{name}' of its own, a bool, allowed is one without"):
        change(model)
    assert torch.equal(model(x), expected)
    assert vars(model)[name] is False
