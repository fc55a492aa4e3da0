"""The comparison of arguments with a cubin's parameters finds faults; conftest applies it to every test."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from companion.cuda import launch
from companion.layeract.kernel import KERNELS
from companion.operators import operators
from tests.conftest import needs_cubins
from tests.cuda.parameters import PACKAGE, cubins, faults, sizes_of

pytestmark = needs_cubins

Y = torch.zeros(2, 3)
#: layeract_sums_f32: grad, y, statistics, partial, rows, length, chunk, chunks, hard.
GIVEN = [Y, Y, Y, Y, np.int64(2), np.int64(3), np.int32(3), np.int64(1), np.int32(0)]


def fault(arguments: list[object], threads: int = 256) -> str:
    return faults(KERNELS.source, "layeract_sums_f32", (threads,), sizes_of(arguments))


def test_what_fits_passes() -> None:
    assert fault(GIVEN) == ""


def test_a_number_too_few_too_short_or_at_another_place_is_found() -> None:
    assert "gets 8 arguments and has 9 parameters" in fault(GIVEN[:-1])
    assert "argument 5 has 4 bytes, the parameter 8" in fault([*GIVEN[:5], np.int32(3), *GIVEN[6:]])
    assert "argument 6 has 8 bytes, the parameter 4" in fault([*GIVEN[:6], GIVEN[7], GIVEN[6], GIVEN[8]])


def test_a_block_with_more_threads_than_the_kernel_was_compiled_for_is_found() -> None:
    assert "gets a block of (288,) threads and has at most 256" in fault(GIVEN, 288)


def test_every_kernel_of_the_package_has_its_cubin_read() -> None:
    for kernels in {kernels for operator in operators() for kernels in operator.kernels}:
        if PACKAGE in kernels.source.parents:
            read = cubins(kernels.source)
            assert set(read) == set(kernels.names)
            assert all(cubin.parameters and cubin.threads <= 1024 for cubin in read.values())


def test_every_launch_of_these_tests_is_compared() -> None:
    assert launch.Kernels.launch.__name__ == "launch_checked"
    with pytest.raises(AssertionError, match="gets 0 arguments"):
        KERNELS.launch("layeract_sums_f32", (1,), (32,), [], torch.device("cpu"), simulated=True)
