"""Neurons to compare with compute what their papers write."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import companion
from companion.baselines import (
    GEGLU,
    GLU,
    CentreLoss,
    ExtraLinear,
    GatedPair,
    Maxout,
    Preceded,
    SwiGLU,
    Swish,
    normalisation,
)
from companion.neurons.centre import attach_centre
from tests.neurons.networks import CLASSES, SmallNet


def test_swish_is_silu_with_a_slope_and_has_the_gradient_of_its_formula() -> None:
    layer, x = Swish().double(), torch.linspace(-4, 4, 9, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(layer(x), F.silu(x))
    nn.init.constant_(layer.beta, -0.7)
    torch.testing.assert_close(layer(x), x / (1 + torch.exp(0.7 * x)))
    assert torch.autograd.gradcheck(
        lambda x, beta: torch.func.functional_call(layer, {"beta": beta}, x), (x, layer.beta)
    )
    assert layer(x.detach().half()).dtype == torch.float16
    (group, spared) = companion.parameter_groups(nn.Sequential(nn.Linear(2, 2), Swish()), 0.1)
    assert [len(group["params"]), len(spared["params"])] == [2, 1]


@pytest.mark.parametrize(
    ("kind", "formula"),
    [
        (GLU, lambda a, b: a * torch.sigmoid(b)),
        (GEGLU, lambda a, b: a * F.gelu(b)),
        (SwiGLU, lambda a, b: a * F.silu(b)),
        (Maxout, torch.maximum),
    ],
)
def test_the_two_arguments_of_a_unit_are_neighbours(kind: type[GatedPair], formula: object) -> None:
    torch.manual_seed(0)
    tokens, images = torch.randn(2, 3, 8), torch.randn(2, 8, 3, 5)
    torch.testing.assert_close(kind()(tokens), formula(tokens[..., ::2], tokens[..., 1::2]))  # type: ignore[operator]
    torch.testing.assert_close(kind(dim=1)(images), formula(images[:, ::2], images[:, 1::2]))  # type: ignore[operator]
    torch.testing.assert_close(kind(dim=-3)(images), kind(dim=1)(images))
    for wrong in (torch.randn(2, 3), torch.randn(())):
        with pytest.raises(ValueError, match="allowed is one with two arguments a unit along dim=-1"):
            kind()(wrong)
    with pytest.raises(TypeError, match="dim"):
        kind(dim=1.0)  # type: ignore[arg-type]


def test_what_comes_before_sees_every_token_alone_and_every_image_whole() -> None:
    torch.manual_seed(0)
    tokens, images = torch.randn(2, 3, 8), torch.randn(2, 8, 3, 5)
    for x, layer, dims in ((tokens, normalisation(8), (2,)), (images, normalisation(8, 1), (1, 2, 3))):
        var, mean = torch.var_mean(x, dims, correction=0, keepdim=True)
        torch.testing.assert_close(layer(x), (x - mean) / (var + 1e-5).sqrt())
        # as LayerAct normalises the argument of its gate
        gated = companion.LASiLU(dims=-1 if x is tokens else None)(x)
        torch.testing.assert_close(gated, x * torch.sigmoid(layer(x)))
    both = Preceded(ExtraLinear(8), nn.ReLU())
    nn.init.normal_(both[0].weight)
    torch.testing.assert_close(both(tokens), torch.relu(tokens + tokens @ both[0].weight[:, None]))
    assert torch.equal(both[:1](tokens), both[0](tokens))
    assert repr(both) == "ReLU() of ExtraLinear(8, dim=-1)"


def test_norm_stands_before_what_was_there_with_its_settings() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.3), nn.Linear(4, 2))
    new, x = companion.rethink(model, "norm", (3,)), torch.randn(5, 3)
    expected = model[2](F.leaky_relu(F.layer_norm(model[0](x), (4,)), 0.3))
    torch.testing.assert_close(new(x), expected)


def test_the_centre_loss_is_that_of_its_formula_and_centres_move_by_their_rule() -> None:
    torch.manual_seed(0)
    loss = CentreLoss(num_classes=3, dim=4, rate=0.3)
    centres = [torch.zeros(4, dtype=torch.float64) for _ in range(3)]
    for _ in range(3):
        x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
        target = torch.randint(2, (5,))  # nobody is of the third class
        got = loss(x, target)
        expected = sum(((x[i] - centres[k]) ** 2).sum() for i, k in enumerate(target.tolist())) / 10
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=0)
        (gradient,) = torch.autograd.grad(got, x)
        residuals = torch.stack([x[i] - centres[k] for i, k in enumerate(target.tolist())])
        torch.testing.assert_close(gradient, residuals.detach() / 5, rtol=1e-5, atol=1e-7)
        for k in range(3):
            members = [x[i].detach() for i in range(5) if target[i] == k]
            step = sum((centres[k] - member for member in members), start=torch.zeros(4, dtype=torch.float64))
            centres[k] = centres[k] - 0.3 * step / (1 + len(members))
        torch.testing.assert_close(loss.centres.double(), torch.stack(centres), rtol=1e-5, atol=1e-7)
    before = loss.eval().centres.clone()
    loss(x, target)
    assert torch.equal(loss.centres, before)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: CentreLoss(0, 2), ValueError, "num_classes"),
        (lambda: CentreLoss(2, 0), ValueError, "dim"),
        (lambda: CentreLoss(2, 2, rate=1.5), ValueError, "rate: got 1.5, allowed is a number from 0 to 1"),
        (lambda: CentreLoss(2, 2)(torch.zeros(3, 4), torch.tensor([0])), ValueError, r"\(3, 4\), allowed is \(N, 2\)"),
        (lambda: CentreLoss(2, 2)(torch.zeros(3, 2), torch.tensor([0])), ValueError, r"target: got shape \(1,\)"),
        (lambda: CentreLoss(2, 2)(torch.zeros(1, 2), torch.tensor([-1])), ValueError, r"target: got -1 … -1, allowed"),
        (lambda: CentreLoss(2, 2)(torch.zeros(1, 2), torch.tensor([1.7])), TypeError, "got dtype torch.float32"),
        (lambda: CentreLoss(2, 2)(torch.zeros(3, 2, dtype=torch.long), torch.zeros(3)), TypeError, "x"),
    ],
)
def test_a_wrong_argument_of_the_centre_loss_is_refused(make: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()  # type: ignore[operator]


def test_centres_stay_in_float32() -> None:
    loss = CentreLoss(2, 2)
    loss(torch.tensor([[1.0, 2.0]]), torch.tensor([0]))
    for cast in (loss.half, loss.double):
        assert cast().centres.tolist() == [[0.25, 0.5], [0.0, 0.0]]
        assert loss.centres.dtype == torch.float32


def test_the_centre_loss_holds_what_the_head_sees_and_is_part_of_the_network() -> None:
    torch.manual_seed(0)
    model, x, target = SmallNet(), torch.randn(4, 2, 4, 4), torch.tensor([0, 1, 2, 0])
    attached = attach_centre(model, (2, 4, 4), CLASSES, weight=0.5)
    assert (attached.head, [*attached.state_dict()]) == ("head", ["centre.centres"])
    seen: list[Tensor] = []
    model.head.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    copies = [model, copy.deepcopy(model), pickle.loads(pickle.dumps(model_without_own_hooks(model)))]
    for network in copies:
        network.train()(x)
        expected = 0.5 * seen[0].square().sum(1).mean() / 2
        torch.testing.assert_close(network.centre.loss(target), expected)
    assert attached.centre.centres.any()
    with pytest.raises(RuntimeError, match="got no response of 'head'"):
        attached.loss(target)
    model.train()(x)
    assert copy.deepcopy(model).centre.responses is None  # a copy of what has a graph is impossible
    attached.loss(target)
    model.eval()(x)
    with pytest.raises(RuntimeError, match="got no response of 'head'"):
        attached.loss(target)
    with pytest.raises(ValueError, match="has a 'centre' already"):
        attach_centre(model, (2, 4, 4), CLASSES, weight=0.5)


def model_without_own_hooks(model: nn.Module) -> nn.Module:
    """A copy whose only hook is that of the loss: a lambda cannot be pickled."""
    new = copy.deepcopy(model)
    hooks = new.get_submodule("head")._forward_pre_hooks
    for number in [*hooks][1:]:
        del hooks[number]
    return new


@pytest.mark.parametrize("odd", [float("inf"), float("nan")])
def test_a_response_that_is_not_finite_moves_no_centre(odd: float) -> None:
    loss, other = CentreLoss(3, 2), CentreLoss(3, 2)
    x, target = torch.tensor([[1.0, odd], [2.0, 3.0], [4.0, 5.0]]), torch.tensor([0, 1, 1])
    assert not loss(x, target).isfinite()
    other(x[1:], target[1:])
    assert torch.equal(loss.centres, other.centres)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"weight": -1.0}, ValueError, "weight: got -1.0, allowed is a finite number, at least 0"),
        ({"weight": float("nan")}, ValueError, "weight: got nan"),
        ({"weight": "a"}, TypeError, "weight: got str, allowed is a number"),
        ({"num_classes": 2.5}, TypeError, "num_classes: got 2.5, allowed is an int"),
        ({"num_classes": 0}, ValueError, "num_classes: got 0, allowed is at least 1"),
    ],
)
def test_a_centre_loss_refuses_a_wrong_number_by_its_name(given: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        companion.rethink(SmallNet(), "centre", (2, 4, 4), **{"num_classes": CLASSES, **given})


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_centre_loss_in_a_checkpoint_is_taken_once_or_refused(reentrant: bool) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, CLASSES))

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.inside, x, use_reentrant=reentrant)

    model = companion.rethink(Checkpointed(), "centre", (3,), num_classes=CLASSES)
    logits, target = model(torch.randn(4, 3, requires_grad=True)), torch.tensor([0, 1, 0, 1])
    if reentrant:
        with pytest.raises(RuntimeError, match="without a gradient, in a pass with gradients"):
            companion.extra_loss(model, target)
        return
    (F.cross_entropy(logits, target) + companion.extra_loss(model, target)).backward()
    assert model.centre.responses is None
