"""The same cases run again by a changed kernel, or with its threads in another order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from companion import simulator
from companion.cuda.launch import Kernels
from tests.cuda.sources import changed, with_instances

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


def memory_and_threads(
    kernels: Kernels,
    instance: str | None,
    names: Sequence[str],
    run: Callable[..., Results],
    cases: Callable[[], Iterable[Sequence[Any]]],
    faults: Mapping[str, Mapping[str, str]],
    orders: Sequence[str] = ("natural", "reversed", "shuffled:1"),
    set_up: Callable[[pytest.MonkeyPatch], None] = lambda patch: None,
) -> type:
    """The tests of one instance of some kernels, as it is and with faults, in the simulator.

    Parameters
    ----------
    kernels
        Whose source is copied.
    instance
        The line of the source that makes the instance; None: the source as it is.
    names
        The kernels of such a copy.
    run, cases
        What is run, and with what.
    faults
        By name what is changed in the copy.
    orders
        Of the threads; the results are compared with those of the natural one.
    set_up
        What else is changed for all of it.
    """

    def copy(folder: Path, changes: Mapping[str, str] | None = None) -> Path:
        source = kernels.source
        return changed(folder, source, with_instances(source, instance) if instance else source.read_text(), changes)

    @pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))
    class Tests:
        @pytest.fixture(scope="class", autouse=True)
        @classmethod
        def expected(cls) -> Iterable[list[Results]]:
            """The results for all cases, threads in their natural order."""
            with pytest.MonkeyPatch.context() as patch:
                set_up(patch)
                yield [run(*case) for case in cases()]

        def test_nothing_is_read_or_written_out_of_bounds(
            self, expected: list[Results], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
        ) -> None:
            sanitized = simulator.load(copy(tmp_path), names, sanitize=True)
            monkeypatch.setattr(kernels, "_simulator", lambda: sanitized)
            assert_equal_bits(run, cases(), expected)

        @pytest.mark.parametrize("order", orders)
        def test_the_result_does_not_depend_on_the_order_of_threads(
            self, order: str, expected: list[Results], monkeypatch: pytest.MonkeyPatch
        ) -> None:
            monkeypatch.setenv("COMPANION_SIMULATOR_ORDER", order)
            assert_equal_bits(run, cases(), expected)

        @pytest.mark.slow
        @pytest.mark.parametrize("fault", faults)
        def test_a_planted_fault_is_found(
            self, fault: str, expected: list[Results], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
        ) -> None:
            module = simulator.load(copy(tmp_path, faults[fault]), names)
            monkeypatch.setattr(kernels, "_simulator", lambda: module)
            assert is_noticed(run, cases(), expected, monkeypatch)

    return Tests
