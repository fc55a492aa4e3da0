"""ARR by its kernels: who computes, and the gradient."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from companion.dnrt import kernel
from companion.operators import batched, cast, choose, has_tangent, transformed

__all__ = ["computed_by", "held", "share_of"]


def computed_by(x: Tensor, mean: Tensor, seen: Tensor) -> str:
    """Who computes the loss of responses: "torch", "kernel" or "simulator".

    Where a compiler, a function transform or forward mode looks, and for a state that lies scattered in memory or is of
    another dtype than the kernels take, such as one that was loaded with ``assign``, it is plain torch.
    """
    if transformed() or has_tangent(x):
        return "torch"
    fits = mean.dtype == torch.float32 and seen.dtype == torch.bool and mean.is_contiguous() and seen.is_contiguous()
    if not fits or mean.is_neg():
        return "torch"
    return choose(x, kernel.ARR_OPERATOR)


def share_of(widths: tuple[int, ...], device: torch.device) -> Tensor | None:
    """The weight of each element where layers of these widths lie side by side and count alike, 1/(J d_j), in float32;
    None where all elements weigh the same."""
    if len(set(widths)) == 1:
        return None
    return (_share if _alone(device) else _kept_share)(widths, device)


def _alone(device: torch.device) -> bool:
    """Whether what is made now is for the current stream alone: another one might read it before it is written, and
    what is made while a graph is captured belongs to the graph."""
    if device.type != "cuda":
        return False
    aside = torch.cuda.current_stream(device) != torch.cuda.default_stream(device)
    return aside or torch.cuda.is_current_stream_capturing()


def _share(widths: tuple[int, ...], device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.cat(
            [torch.full((width,), 1 / (len(widths) * width), dtype=torch.float32, device=device) for width in widths]
        )


_kept_share = functools.lru_cache(maxsize=64)(_share)


def held(
    x: Tensor,
    batch: Tensor,
    target: Tensor,
    own: slice,
    mean: Tensor,
    seen: Tensor,
    share: Tensor | None,
    momentum: float,
    from_first: bool,
    after: bool,
    simulated: bool,
) -> Tensor:
    """The loss of ``x``, which is ``batch[own]``; the means move.

    See :func:`companion.dnrt.kernel.arr_forward`. Differentiable by ``x``; the second derivative by ``x`` is 0, and
    none is made, as for every function that is linear in pieces.
    """
    loss: Tensor = _Held.apply(x, batch, target, own, mean, seen, share, momentum, from_first, after, simulated)
    return loss


class _Held(torch.autograd.Function):
    """The means move in ``forward``, so nothing can be computed again: what backward needs is saved, a sign each."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, batch: Tensor, target: Tensor, own: slice, *given: Any) -> Tensor:
        mean, seen, share, *_, simulated = given
        loss, signs = kernel.arr_forward(batch.resolve_neg(), target, own, *given)
        for state in (mean, seen):  # that the kernels have changed them, PyTorch cannot know
            torch.autograd.graph.increment_version(state)
        ctx.save_for_backward(signs, *(() if share is None else (share,)))
        ctx.dtype, ctx.simulated = x.dtype, simulated
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        signs, *shares = ctx.saved_tensors
        share = shares[0] if shares else None
        if torch.is_grad_enabled() or transformed() or batched(grad) or has_tangent(grad):
            dx = cast(grad / kernel.arr_terms(signs, share) * (signs if share is None else signs * share), ctx.dtype)
        else:
            dx = kernel.arr_backward(grad.resolve_neg(), signs, share, ctx.dtype, ctx.simulated)
        return dx, *[None] * 10
