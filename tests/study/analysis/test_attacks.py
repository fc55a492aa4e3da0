"""The attack by projected gradients, on networks for which the worst image is known."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from companion.study.analysis import margin, projected_gradient
from companion.study.models import Standardise


@pytest.fixture
def linear():
    """Two classes, so that the worst image within ε is known: every pixel moves by the sign of w₁ − w₀."""
    layer = nn.Linear(12, 2)
    return layer, nn.Sequential(nn.Flatten(), layer)


def test_the_margin_is_positive_where_another_class_wins():
    logits = torch.randn(200, 5)
    targets = torch.randint(5, (200,))
    assert torch.equal(margin(logits, targets) > 0, logits.argmax(1) != targets)
    others = [max(v for k, v in enumerate(row) if k != t) - row[t] for row, t in zip(logits, targets, strict=True)]
    torch.testing.assert_close(margin(logits, targets), torch.stack(others))


@pytest.mark.parametrize("steps", [1, 2, 3, 40])
def test_of_a_linear_network_the_attack_finds_the_worst_image(linear, steps):
    layer, model = linear
    images, targets = torch.rand(30, 3, 2, 2), torch.randint(2, (30,))
    found = projected_gradient(model, images, targets, 0.1, steps)
    direction = (layer.weight[1] - layer.weight[0]).sign().view(1, 3, 2, 2) * (1 - 2 * targets.view(-1, 1, 1, 1))
    torch.testing.assert_close(found, (images + 0.1 * direction).clamp(0, 1))


def test_epsilon_is_in_pixels_whatever_the_network_does_to_them_first(linear):
    _, model = linear
    images, targets = torch.rand(30, 3, 2, 2), torch.randint(2, (30,))
    first = Standardise(torch.tensor(0.5), torch.tensor(0.01))
    found = projected_gradient(nn.Sequential(first, model), images, targets, 0.1)
    assert (found - images).abs().max() <= 0.1 + 1e-6
    assert (found - images).abs().max() > 0.099
    assert found.min() >= 0
    assert found.max() <= 1


def test_a_network_that_is_sure_is_attacked_where_the_cross_entropy_has_no_gradient():
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[1000.0], [-1000.0]]))
    image, target = torch.full((1, 1, 1, 1), 0.75, requires_grad=True), torch.tensor([0])
    [gradient] = torch.autograd.grad(F.cross_entropy(model(image), target), image)
    assert gradient.item() == 0
    found = projected_gradient(model, image.detach(), target, 0.5)
    assert found.item() == 0.25


def test_whoever_watches_sees_the_margins_before_each_step_and_after_the_last(linear):
    _, model = linear
    images, targets = torch.rand(30, 3, 2, 2), torch.randint(2, (30,))
    seen = {}
    found = projected_gradient(model, images, targets, 0.3, 4, lambda step, margins: seen.update({step: margins}))
    assert list(seen) == [0, 1, 2, 3, 4]
    torch.testing.assert_close(seen[0], margin(model(images), targets).detach())
    torch.testing.assert_close(seen[4], margin(model(found), targets).detach())


@pytest.mark.parametrize("training", [True, False])
def test_dropout_is_off_in_the_attack_and_the_mode_and_the_gradients_stay(training):
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)).train(training)
    images, targets = torch.rand(6, 1, 2, 2), torch.arange(6) % 3
    found = [projected_gradient(model, images, targets, 0.2) for _ in range(2)]
    assert torch.equal(*found)
    assert model.training == training
    assert not found[0].requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_is_no_attack_is_an_error(linear):
    _, model = linear
    images, targets = torch.rand(2, 3, 2, 2), torch.tensor([0, 1])
    for epsilon, steps in ((-0.1, 5), (0.1, 0)):
        with pytest.raises(ValueError, match=f"epsilon is {epsilon} and steps is {steps}"):
            projected_gradient(model, images, targets, epsilon, steps)
    for wrong in (images - 1, images + 0.9, images * torch.nan):
        with pytest.raises(ValueError, match="not between 0 and 1"):
            projected_gradient(model, wrong, targets, 0.1)
