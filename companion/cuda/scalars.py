"""Numbers as kernels take them: NumPy's scalars.

NumPy is imported when the first of them is made. PyTorch does not need it, and who has no kernels does not either.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@functools.cache
def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise RuntimeError("kernels, on a GPU and in the simulator, need NumPy: pip install numpy") from error
    return numpy


def int32(value: int) -> np.int32:
    """For a parameter ``int``."""
    return _numpy().int32(value)  # type: ignore[no-any-return]


def uint32(value: int) -> np.uint32:
    """For a parameter ``unsigned``."""
    return _numpy().uint32(value)  # type: ignore[no-any-return]


def int64(value: int) -> np.int64:
    """For a parameter ``long long``."""
    return _numpy().int64(value)  # type: ignore[no-any-return]


def float32(value: float) -> np.float32:
    """For a parameter ``float``."""
    return _numpy().float32(value)  # type: ignore[no-any-return]


def float64(value: float) -> np.float64:
    """For a parameter ``double``."""
    return _numpy().float64(value)  # type: ignore[no-any-return]
