"""Two hundred cases that nobody chose, always the same ones; `make zoo` draws others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

import companion
from companion import simulator
from tests import fuzz
from tests.dac.drawn import PHI


@pytest.mark.parametrize(("name", "strategy", "holds", "share"), fuzz.KINDS, ids=[kind[0] for kind in fuzz.KINDS])
def test_what_must_hold_holds(
    name: str, strategy: st.SearchStrategy[Any], holds: Callable[[Any], None], share: float
) -> None:
    if "simulator" in name and simulator.why_not() is not None:
        pytest.skip(str(simulator.why_not()))
    fuzz.fuzz(strategy, holds, round(200 * share))


def test_every_public_function_is_drawn() -> None:
    assert set(fuzz.DRAWN) == set(companion.functional.__all__)


def _wrong_value(y: Tensor, *_: Any) -> Tensor:
    return y * 1.001


def _wrong_gradient(y: Tensor, *operands: Any) -> Tensor:
    z = operands[0].nan_to_num(0.0, 0.0, 0.0)
    return y + 1e-3 * (z - z.detach()).sum()


def _wrong_layout(y: Tensor, *operands: Any) -> Tensor:
    return y if operands[0].is_contiguous() or y.ndim < 2 else y.flip(-1)


@pytest.mark.parametrize("fault", [_wrong_value, _wrong_gradient, _wrong_layout])
def test_a_fault_is_found(fault: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *operands, **options: fault(function(*operands, **options), *operands)

    drawn = {name: replace(each, function=faulty(each.function)) for name, each in fuzz.DRAWN.items()}
    monkeypatch.setattr(fuzz, "DRAWN", drawn)
    with pytest.raises(AssertionError, match=r"value|derivative"):
        fuzz.fuzz(fuzz.cases(), fuzz.check, 60)


def test_what_is_not_refused_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(companion.layeract.op, "check_alpha", lambda alpha: 1.0)
    with pytest.raises(AssertionError, match=r"alpha: .* was taken"):
        fuzz.fuzz(fuzz.refusals(), lambda drawn: fuzz.check_refused(*drawn), 400)


def test_a_named_activation_is_that_of_torch() -> None:
    x = torch.linspace(-8, 8, 101, dtype=torch.float64)
    for name, phi in companion.activations.ACTIVATIONS.items():
        torch.testing.assert_close(PHI[name](x), phi(x), rtol=1e-12, atol=1e-12)
