"""What a kernel may be given, on a GPU as in the simulator: neither looks at what an address or a number was."""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor


def check_memory(where: str, tensor: Tensor, there: bool, place: str) -> None:
    """Refuse a tensor whose address does not lead to its elements.

    Parameters
    ----------
    where : str
        What a message calls the argument.
    tensor : Tensor
        What is given for a pointer.
    there : bool
        Whether it lies where the kernel runs.
    place : str
        What a message calls that place.
    """
    if not there:
        raise ValueError(f"{where}: got a tensor on {tensor.device}, allowed is one on {place}")
    if not (tensor.is_contiguous() or _without_gaps(tensor)):
        raise ValueError(f"{where}: got strides {tensor.stride()}, allowed is a tensor without gaps or overlap")
    if tensor.is_neg():  # its memory has the other sign
        raise ValueError(f"{where}: got a tensor with the negative bit, allowed is what its resolve_neg() returns")


def is_number(argument: Any) -> bool:
    """Whether this is a NumPy scalar, which knows its size: of Python's numbers a kernel would read other bytes."""
    numpy = sys.modules.get("numpy")  # who never imported it has none of its scalars
    return numpy is not None and isinstance(argument, numpy.generic)


def _without_gaps(tensor: Tensor) -> bool:
    """Whether the elements fill one piece of memory; the order of dimensions (channels last) may be any."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 0:
            return True
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True
