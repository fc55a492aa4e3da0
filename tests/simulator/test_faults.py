"""A kernel with a fault ends in an error that names it, and the interpreter lives on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from companion import simulator

SOURCE = Path(__file__).parent / "faults.cu"
KERNELS = tuple(re.findall(r"__global__ void (\w+)", SOURCE.read_text()))


@pytest.fixture(scope="module")
def module() -> simulator.Module:
    return simulator.load(SOURCE, KERNELS)


@pytest.fixture(scope="module")
def sanitized() -> simulator.Module:
    return simulator.load(SOURCE, KERNELS, sanitize=True)


def marked_line(name: str) -> str:
    """The place of the planted fault, as an error names it."""
    lines = SOURCE.read_text().splitlines()
    return f"faults.cu:{1 + next(i for i, line in enumerate(lines) if line.endswith(f'// mark: {name}'))}"


def fault_of(module: simulator.Module, name: str, *args: Any, block: int = 64, **options: Any) -> str:
    with pytest.raises(simulator.SimulatorError) as caught:
        module.launch(name, (1,), (block,), args, **options)
    assert f"faults.cu, kernel {name}, " in str(caught.value)
    return str(caught.value)


def test_every_planted_fault_is_tried() -> None:
    assert set(KERNELS) <= set(re.findall(r'"(\w+)"', Path(__file__).read_text()))


# --- barriers ---


def test_a_barrier_that_some_threads_skip_is_divergent(module: simulator.Module) -> None:
    message = fault_of(module, "skipped_barrier", torch.zeros(64))
    assert "block (0, 0, 0): divergent barrier" in message
    assert f"40 threads in __syncthreads at {marked_line('skipped_barrier')} (first: (0, 0, 0))" in message
    assert "24 threads exited (first: (40, 0, 0))" in message


def test_of_several_faulty_blocks_the_first_one_is_named_whichever_comes_first(
    module: simulator.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPANION_SIMULATOR_THREADS", "4")
    for order, block in (("natural", 0), ("reversed", 7)):
        with pytest.raises(simulator.SimulatorError, match=rf"block \({block}, 0, 0\): divergent barrier"):
            module.launch("skipped_late", (8,), (64,), (torch.zeros(64),), order=order)


def test_a_barrier_in_two_places_is_divergent(module: simulator.Module) -> None:
    message = fault_of(module, "two_barriers", torch.zeros(64))
    assert f"divergent barrier: 40 threads in __syncthreads at {marked_line('two_barriers')}" in message


def test_a_missing_barrier_shows_in_another_order(module: simulator.Module) -> None:
    with pytest.raises(simulator.SimulatorError, match=r"depends on the order.*Element 0 of argument 0 is nan"):
        simulator.check_orders(module, "missing_barrier", (1,), (64,), lambda: [torch.zeros(64)])


def test_a_missing_barrier_between_warps_in_step_shows_when_one_runs_ahead(module: simulator.Module) -> None:
    results = {}
    for order in ("natural", "reversed", "shuffled:5", "warps"):
        results[order] = torch.zeros(64)
        module.launch("missing_barrier_in_step", (1,), (64,), [results[order]], order=order)
    right = torch.arange(63.0, -1, -1)
    assert all(torch.equal(results[order], right) for order in ("natural", "reversed", "shuffled:5"))
    assert results["warps"][:32].isnan().all()
    with pytest.raises(simulator.SimulatorError, match=r"depends on the order.* with threads warps"):
        simulator.check_orders(module, "missing_barrier_in_step", (1,), (64,), lambda: [torch.zeros(64)])


def test_a_sum_in_the_order_of_arrival_shows_in_another_order(module: simulator.Module) -> None:
    with pytest.raises(simulator.SimulatorError, match="depends on the order"):
        simulator.check_orders(module, "unordered_sum", (1,), (512,), lambda: [torch.zeros(1)])


@pytest.mark.parametrize("order", ["natural", "reversed", "shuffled:5", "warps"])
def test_threads_that_wait_for_each_other_are_a_deadlock(module: simulator.Module, order: str) -> None:
    message = fault_of(module, "deadlock", torch.zeros(64), order=order)
    assert f"deadlock: 33 threads in __syncthreads at {marked_line('deadlock')}" in message
    assert "31 threads in __shfl_sync with mask 0xffffffff" in message


# --- warps ---


def test_a_shuffle_must_not_read_from_a_lane_that_has_exited(module: simulator.Module) -> None:
    message = fault_of(module, "shuffle_with_exited_lane", torch.zeros(32), block=32)
    assert f"__shfl_down_sync at {marked_line('shuffle_with_exited_lane')}" in message
    assert "thread (4, 0, 0), lane 4, reads from lane 20, which has exited" in message


def test_a_shuffle_must_not_read_from_a_lane_that_does_not_exist(module: simulator.Module) -> None:
    message = fault_of(module, "shuffle_with_exited_lane", torch.zeros(32), block=20)
    assert "reads from lane 20, which does not exist" in message


def test_a_shuffle_must_not_read_from_outside_its_mask(module: simulator.Module) -> None:
    message = fault_of(module, "shuffle_from_outside_the_mask", torch.zeros(32), block=32)
    assert "thread (0, 0, 0), lane 0, reads from lane 16, which is not in the mask" in message


def test_a_lane_must_be_in_the_mask_that_it_gives(module: simulator.Module) -> None:
    message = fault_of(module, "shuffle_without_own_lane", torch.zeros(32), block=32)
    assert "lane 16 calls it but is not in the mask" in message


def test_the_width_of_a_shuffle_is_a_power_of_two(module: simulator.Module) -> None:
    assert "width is 12" in fault_of(module, "shuffle_of_odd_width", torch.zeros(32), block=32)


# --- memory ---


# Sizes whose end is, and is not, where the protected page begins.
@pytest.mark.parametrize("n", [60, 61, 63])
def test_a_write_beyond_an_argument_is_found(module: simulator.Module, n: int) -> None:
    message = fault_of(module, "out_of_bounds_write", torch.zeros(n), torch.zeros(n), np.int32(n))
    assert f"illegal write at {marked_line('out_of_bounds_write')}" in message or n % 4
    assert f"byte {4 * n} of argument 1, which has {4 * n} bytes" in message


def test_a_write_before_an_argument_is_found(module: simulator.Module) -> None:
    message = fault_of(module, "write_before", torch.zeros(64))
    assert "illegal write: byte -1 of argument 0" in message


@pytest.mark.parametrize("offset", [1, 1000, -2000])
def test_a_read_beyond_an_argument_is_found(module: simulator.Module, offset: int) -> None:
    message = fault_of(module, "out_of_bounds_read", torch.zeros(64), torch.zeros(64), np.int32(offset))
    assert f"illegal read at {marked_line('out_of_bounds_read')}: byte" in message
    assert "of argument 0, which has 256 bytes" in message


@pytest.mark.parametrize("offset", [1, -1, -3, 100])
def test_the_sanitizer_finds_every_read_beyond_an_argument(sanitized: simulator.Module, offset: int) -> None:
    message = fault_of(sanitized, "out_of_bounds_read", torch.zeros(61), torch.zeros(64), np.int32(offset), block=61)
    assert f"illegal read of 4 bytes at {marked_line('out_of_bounds_read')}: byte" in message
    assert "thread (" in message
    assert "of argument 0, which has 244 bytes" in message


def test_the_sanitizer_finds_a_write_beyond_an_argument(sanitized: simulator.Module) -> None:
    message = fault_of(sanitized, "out_of_bounds_write", torch.zeros(61), torch.zeros(61), np.int32(61))
    assert f"thread (61, 0, 0): illegal write of 4 bytes at {marked_line('out_of_bounds_write')}" in message


def test_other_faults_are_named_under_the_sanitizer_too(sanitized: simulator.Module) -> None:
    assert "divergent barrier: 40 threads" in fault_of(sanitized, "skipped_barrier", torch.zeros(64))
    assert "integer division by zero" in fault_of(sanitized, "division_by_zero", torch.zeros(1).int())
    assert "far from all arguments" in fault_of(sanitized, "wild_pointer", torch.zeros(1))


def test_an_index_beyond_a_shared_array_is_found(module: simulator.Module) -> None:
    message = fault_of(module, "shared_out_of_bounds", torch.zeros(64), np.int32(33))
    place = marked_line("shared_out_of_bounds")
    assert f"thread (32, 0, 0): index 32 is out of bounds of 'float [32]' at {place}" in message


def test_a_write_beyond_dynamic_shared_memory_is_found(module: simulator.Module) -> None:
    message = fault_of(module, "dynamic_shared_overrun", torch.zeros(64), shared_bytes=252)
    assert "dynamic shared memory has 252 bytes (shared_bytes), but byte 252 was written" in message


def test_an_access_of_sixteen_bytes_must_be_aligned(module: simulator.Module) -> None:
    message = fault_of(module, "misaligned_vector", torch.zeros(64)[1:], torch.zeros(4), block=1)
    assert f"must be aligned to 16 bytes at {marked_line('misaligned_vector')}" in message


def test_a_null_pointer_is_found(module: simulator.Module) -> None:
    assert f"null pointer to 'float' at {marked_line('null_pointer')}" in fault_of(module, "null_pointer", None)


def test_a_pointer_to_nowhere_is_found(module: simulator.Module) -> None:
    message = fault_of(module, "wild_pointer", torch.zeros(64))
    assert f"illegal write, far from all arguments at {marked_line('wild_pointer')}" in message


def test_local_variables_must_fit_on_the_stack(module: simulator.Module) -> None:
    assert "overflow the stack, which has 64 KiB" in fault_of(module, "endless_stack", torch.zeros(64))


# --- others ---


def test_a_division_by_zero_is_found(module: simulator.Module) -> None:
    message = fault_of(module, "division_by_zero", torch.zeros(1).int(), block=1)
    assert f"integer division by zero at {marked_line('division_by_zero')}" in message


def test_a_trap_and_a_failed_assertion_are_found(module: simulator.Module) -> None:
    message = fault_of(module, "trap", torch.zeros(64))
    assert f"thread (3, 0, 0): __trap() was called at {marked_line('trap')}" in message
    message = fault_of(module, "failed_assertion", torch.zeros(64))
    assert f"assertion failed: threadIdx.x < 9 at {marked_line('failed_assertion')}" in message


def test_a_launch_that_fails_changes_nothing(module: simulator.Module) -> None:
    out = torch.zeros(32)
    fault_of(module, "out_of_bounds_write", torch.zeros(32), out, np.int32(32))
    assert out.tolist() == [0] * 32


def test_after_a_fault_the_next_launch_is_as_good_as_ever(module: simulator.Module) -> None:
    for _ in range(20):
        fault_of(module, "deadlock", torch.zeros(64))
        fault_of(module, "endless_stack", torch.zeros(64))
        out = torch.zeros(64)
        module.launch("missing_barrier", (1,), (64,), [out], order="reversed")
        assert out[0] == 63
