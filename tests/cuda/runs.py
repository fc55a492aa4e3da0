"""The same cases run again by a changed kernel, or with its threads in another order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from companion import simulator

Results = Sequence[Tensor]


def _equal(one: Results, other: Results) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def assert_equal_bits(run: Callable[..., Results], cases: Iterable[Sequence[Any]], expected: Iterable[Results]) -> None:
    """Every case gives what is expected, in every bit."""
    for number, (case, results) in enumerate(zip(cases, expected, strict=True)):
        assert _equal(run(*case), results), f"case {number}"


def is_noticed(
    run: Callable[..., Results],
    cases: Iterable[Sequence[Any]],
    expected: Iterable[Results],
    monkeypatch: pytest.MonkeyPatch,
) -> bool:
    """Whether a fault is: some case gives something else, or an error, in one of three orders of the threads."""
    pairs = list(zip(cases, expected, strict=True))
    for order, (case, results) in itertools.product(("natural", "reversed", "warps"), pairs):
        monkeypatch.setenv("COMPANION_SIMULATOR_ORDER", order)
        try:
            if not _equal(run(*case), results):
                return True
        except simulator.SimulatorError:
            return True
    return False
