"""``pytest --nbval book``: what nbval compares, within what processors may differ by."""

from __future__ import annotations

import os
from typing import Any

import pytest
from nbval import kernel

from book._tools.execute import ENVIRONMENT, patiently
from book._tools.outputs import Tolerance, settled


def pytest_configure() -> None:
    """The kernels that nbval starts see what those of book._tools.execute see."""
    os.environ.update(ENVIRONMENT)
    kernel.start_new_kernel = patiently(kernel.start_new_kernel)


def pytest_itemcollected(item: pytest.Item) -> None:
    """An output that says the same as the committed one reaches nbval as the committed one."""
    if type(item).__name__ != "IPyNbCell":
        return
    cell: Any = item
    compare = cell.compare_outputs
    tolerance = Tolerance.of(cell.cell.metadata.get("tags", ()))
    cell.compare_outputs = lambda new, committed: compare(settled(new, committed, tolerance), committed)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A cell that was not executed has nothing to be compared with, and nbval would pass it."""
    cell: Any = getattr(item, "cell", None)
    if cell is not None and cell.execution_count is None:
        pytest.fail("this cell is committed without having been executed", pytrace=False)
