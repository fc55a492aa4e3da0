"""What losses share that hold the responses of a network to a point for each class."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from companion.operators.checks import check_floating
from companion.operators.observers import in_backward

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class OfClasses(nn.Module):
    """A module with a buffer (K, d) that stays in float32, and follows responses (N, d) with targets (N,)."""

    #: The name of the buffer.
    points: ClassVar[str]

    def _check(self, x: Tensor, target: Tensor) -> None:
        points: Tensor = getattr(self, self.points)
        if self.training and in_backward():
            raise RuntimeError(
                f"forward: called during backward, as torch.utils.checkpoint does, where the {self.points} would move "
                "twice; allowed is one call for each step, outside of what is checkpointed"
            )
        check_floating("x", x)
        dim = points.shape[1]
        if x.ndim != 2 or x.shape[1] != dim:
            raise ValueError(f"x: got shape {tuple(x.shape)}, allowed is (N, {dim})")
        if not isinstance(target, Tensor) or target.dtype not in _INTEGERS:
            got = f"dtype {target.dtype}" if isinstance(target, Tensor) else type(target).__name__
            raise TypeError(f"target: got {got}, allowed is a tensor of whole numbers, one class for each sample")
        if target.shape != x.shape[:1]:
            raise ValueError(f"target: got shape {tuple(target.shape)}, allowed is ({len(x)},): one for each sample")
        for name, operand in (("target", target), ("x", x)):
            if operand.device != points.device:
                raise ValueError(
                    f"{name}: got device {operand.device}, allowed is that of {self.points}, {points.device}"
                )

    def _check_classes(self, target: Tensor) -> None:
        classes = len(getattr(self, self.points))
        target = target.long()  # the number of classes may be more than a short integer holds
        inside = ((target >= 0) & (target < classes)).all()
        if target.device.type == "cpu" and not torch.compiler.is_compiling():
            if not inside:
                raise ValueError(f"target: got {int(target.min())} … {int(target.max())}, allowed is 0 … {classes - 1}")
        else:
            torch._assert_async(inside, f"target: allowed is 0 … {classes - 1}")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> OfClasses:
        points: Tensor = getattr(self, self.points)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        moved: Tensor = getattr(self, self.points)
        if moved.dtype != torch.float32:  # .half(), .double(): in 16 bits a slow mean would stop moving
            setattr(self, self.points, points.to(moved.device))
        return self
