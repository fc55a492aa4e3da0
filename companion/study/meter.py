"""How many operations torch makes of a formula, and the bytes that they move."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

__all__ = ["Meter"]


class Meter(TorchFunctionMode):
    """Counts operations, and the bytes of the tensors that they read and write, each tensor once an operation.

    A view moves nothing and does not count.

    Attributes
    ----------
    operations : int
        So far.
    bytes : int
        So far; what a cache would save is not known here.

    Examples
    --------
    >>> x = torch.zeros(10)
    >>> with Meter() as meter:
    ...     y = (x.view(2, 5) + 1).sum()
    >>> meter.operations, meter.bytes
    (2, 124)
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.bytes = 0

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation, and count it."""
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not result._is_view():
            self.operations += 1
            tensors = [each for each in tree_leaves((args, kwargs, result)) if isinstance(each, torch.Tensor)]
            self.bytes += sum(each.nbytes for each in tensors)
        return result
