"""Every pair of neurons trains with correct gradients, or is refused with the reason."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import nn

import companion
from companion.dac import op
from companion.neurons import declared
from tests.neurons.networks import CLASSES, SmallNet, WithLoss, batch

NAMES = [*declared()]


def plain_gradients(whole: nn.Module, *given: torch.Tensor) -> dict[str, torch.Tensor]:
    """By plain autograd: torch.func sees the maths of every operator and none of its own backward passes."""
    state = {name: p.detach() for name, p in whole.named_parameters()}
    buffers = {name: b.clone() for name, b in whole.named_buffers()}
    return torch.func.grad(lambda p, b: torch.func.functional_call(whole, {**p, **b}, given))(state, buffers)


def refused(one: str, other: str) -> bool:
    """What properties forbid, said once more in another way."""
    acts = {declared()[name].acts: declared()[name] for name in (one, other)}
    if len(acts) == 1:
        return acts.keys() <= {"unit", "gate", "connection"}
    several = "connection" in acts and "unit" in acts and not acts["unit"].elementwise
    return several or acts.keys() == {"connection", "loss"}


@pytest.mark.parametrize("first", range(len(NAMES)), ids=NAMES)
def test_a_neuron_with_each_of_those_after_it(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op, "SMALL", 0)  # a small DAC is otherwise computed as it is differentiated here
    for second in range(first, len(NAMES)):
        names = [NAMES[first]] if second == first else [NAMES[first], NAMES[second]]
        torch.manual_seed(0)
        model, (x, target) = SmallNet().double(), batch()
        if len(names) == 2 and refused(*names):
            with pytest.raises(ValueError, match=r"decide|takes activations of one number|holds one response"):
                companion.rethink(model, "+".join(names), x, CLASSES)
            continue
        new = WithLoss(companion.rethink(model, "+".join(names), x, CLASSES)).train()
        again = copy.deepcopy(new)
        expected = plain_gradients(again, x, target)
        rule = torch.optim.SGD(new.parameters(), lr=0.01)
        loss = new(x, target)
        loss.backward()
        for name, parameter in new.named_parameters():
            assert parameter.grad is not None, f"{names}: {name} gets no gradient"
            assert parameter.grad.isfinite().all(), f"{names}: {name}"
            torch.testing.assert_close(parameter.grad, expected[name], msg=lambda m, n=name: f"{names}: {n}: {m}")  # noqa: B023
        rule.step()
        for parameter, moved in zip(again.parameters(), new.parameters(), strict=True):
            parameter.data.copy_(moved)  # with the means and centres of before
        assert again(x, target) < loss, f"{names}: a step does not help"


def test_all_that_go_together_go_together() -> None:
    sizes = {
        names: companion.rethink(SmallNet(), names, (2, 4, 4), CLASSES).rethought.entered[-1].parameters[1]
        for names in ("norm+extra_linear+raa+apa+arr+centre", "multibias+swish+norm+apa", "apa+norm+swish+multibias")
    }
    assert sizes["multibias+swish+norm+apa"] == sizes["apa+norm+swish+multibias"]


def test_there_are_pairs_of_both_kinds() -> None:
    pairs = [refused(*pair) for pair in itertools.combinations(NAMES, 2)]
    assert 50 < sum(pairs) < len(pairs) - 50
