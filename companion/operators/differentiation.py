"""Of several implementations of the same mathematics one function, differentiable in every way that torch knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._functorch.eager_transforms import enable_inplace_requires_grad
from torch._library.custom_ops import CustomOpDef
from torch.autograd import forward_ad
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from companion.operators.choice import _of_context, _selected
from companion.operators.observers import _traced, batched, has_tangent, tangent_of, transformed
from companion.operators.precision import _exactly, without_autocast


def differentiable(
    plain: Callable[..., Tensor],
    forward: Callable[..., tuple[Tensor, tuple[Tensor, ...]]],
    backward: Callable[..., tuple[Tensor | None, ...]],
    compiled: Callable[..., Tensor] | None = None,
) -> Callable[..., Tensor]:
    """One function of an operator's implementations, whoever looks at it.

    In eager mode ``forward`` and ``backward`` compute: they may launch kernels, work in place, and ask :func:`choose`.
    Derivatives of higher order, batches of gradients, forward mode and the transforms of :mod:`torch.func` see
    ``plain``; so does the compiler. All of them compute without autocast.

    Parameters
    ----------
    plain : callable
        The operands → the result, in differentiable tensor maths. Operands are tensors, or anything else that is
        handed on as it is.
    forward : callable
        The operands → the result, and tensors that are worth saving.
    backward : callable
        The gradient of the result, for each operand whether its gradient is needed, what ``forward`` saved, the
        operands → for each operand its gradient, or None. What is captured follows the operands, here as there.
    compiled : callable, optional
        What the compiler sees instead of ``plain``.

    Returns
    -------
    callable
        Takes the operands, and as ``captured`` tensors that ``plain`` uses without being handed them: what a function
        among the operands has learned.
    """

    class Eager(torch.autograd.Function):
        """Without ``setup_context``: torch would inspect the signature of ``forward`` at every call."""

        @staticmethod
        def forward(ctx: Any, count: int, *given: Any) -> Tensor:
            result: Tensor
            result, saved = _exactly(forward, _resolved(given[:count]))
            ctx.count, ctx.selected = count, _selected()
            ctx.others = [_TENSOR if isinstance(x, Tensor) else x for x in given]
            ctx.save_for_backward(*(x for x in given if isinstance(x, Tensor)), *saved)
            # what follows may work in place, and torch refuses that for a view that was made in here
            return torch.ops.aten._unsafe_view(result, result.shape) if result._is_view() else result

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
            tensors = iter(ctx.saved_tensors)
            given = [next(tensors) if x is _TENSOR else x for x in ctx.others]
            operands, captured, needs = given[: ctx.count], given[ctx.count :], ctx.needs_input_grad[1:]
            if torch.is_grad_enabled() or transformed() or batched(grad) or has_tangent(grad):
                return None, *_gradients_through(plain, grad, operands, captured, needs)
            token = _of_context.set(ctx.selected)
            try:
                return None, *_exactly(backward, _resolved((grad, needs, tuple(tensors), *given)))
            finally:
                _of_context.reset(token)

    seen = plain if compiled is None else compiled

    def function(*operands: Any, captured: tuple[Tensor, ...] = ()) -> Tensor:
        result: Tensor
        if torch._C._are_functorch_transforms_active() or any(map(has_tangent, operands)):
            result = _exactly(plain, operands)
        elif torch.compiler.is_compiling():
            result = _exactly(seen, operands)
        elif _traced() or any(map(is_traceable_wrapper_subclass, operands)):
            # a DTensor, for one, cannot be written into plain memory
            result = _exactly(plain, operands)
        else:
            result = Eager.apply(len(operands), *operands, *captured)
        return result

    return function


_TENSOR = object()


def _resolved(given: Sequence[Any]) -> list[Any]:
    """The same without torch's negative bit: with it memory, where kernels look, has the other sign."""
    return [x.resolve_neg() if isinstance(x, Tensor) else x for x in given]


def _stand_in(x: Any) -> Any:
    """The same tensor without what it comes from: a gradient by it is asked for, and nothing above is disturbed."""
    if not isinstance(x, Tensor):
        return x
    # what eager mode has saved is none of a transform's business
    with torch._C._DisableFuncTorch(), enable_inplace_requires_grad(True):
        leaf = x.detach().requires_grad_(x.requires_grad)
    tangent = tangent_of(x)
    return leaf if tangent is None else forward_ad.make_dual(leaf, tangent)  # type: ignore[no-untyped-call]


def _gradients_through(
    plain: Callable[..., Tensor], grad: Tensor, operands: list[Any], captured: list[Tensor], needs: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The gradients by the plain maths: differentiable functions of everything, if a graph is being made."""
    with torch.enable_grad(), without_autocast(grad.device.type):
        stand_ins = [_stand_in(x) for x in operands]
        f = plain(*stand_ins)
    if not f.requires_grad:  # nothing that is needed has an influence, such as weights behind a step
        return (None,) * len(needs)
    # what is captured are leaves, with nothing above them
    of = [(x, y) for x, y in zip((*stand_ins, *captured), (*operands, *captured), strict=True) if isinstance(x, Tensor)]
    wanted = [need for x, need in zip((*operands, *captured), needs, strict=True) if isinstance(x, Tensor)]
    found = iter(_reattached_gradients([f], [grad], of, wanted))
    return tuple(next(found) if isinstance(x, Tensor) else None for x in (*operands, *captured))


def _reattached_gradients(
    results: list[Tensor], grads: list[Tensor], of: list[tuple[Tensor, Tensor]], wanted: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The gradients of results by stand-ins, where wanted; functions of what these stand for, if a graph is being made.

    ``of`` has pairs: what the results were computed from, and what it stands for.
    """
    create_graph = torch.is_grad_enabled()
    if create_graph and (torch._C._are_functorch_transforms_active() or any(map(batched, grads))):
        raise RuntimeError(
            "create_graph: got True for a batch of gradients of what was computed outside of it, allowed is one "
            "gradient at a time; or let torch.func transform the whole computation"
        )
    seeds = [_stand_in(grad) for grad in grads] if create_graph else grads
    asked = [x for (x, _), want in zip(of, wanted, strict=True) if want]
    with without_autocast(grads[0].device.type):
        gradients = torch.autograd.grad(
            results, asked, seeds, retain_graph=True, create_graph=create_graph, allow_unused=True
        )
    if create_graph:
        known = [x for x in gradients if x is not None]
        pairs = [*of, *zip(seeds, grads, strict=True)]
        attached = iter(_Reattached.apply(known, list(map(tangent_of, known)), pairs, *(x for _, x in pairs)))
        gradients = tuple(None if x is None else next(attached) for x in gradients)
    found = iter(gradients)
    return tuple(next(found) if want else None for want in wanted)


class _Reattached(torch.autograd.Function):
    """Results that were computed from stand-ins, as functions of the originals."""

    @staticmethod
    def forward(
        ctx: Any,
        results: list[Tensor],
        tangents: list[Tensor | None],
        of: list[tuple[Tensor, Tensor]],
        *originals: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.results, ctx.tangents, ctx.of = results, tangents, of
        ctx.set_materialize_grads(False)
        return tuple(x.detach() for x in results)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        known = zip(ctx.results, ctx.tangents, strict=True)
        return tuple(torch.zeros_like(x) if tangent is None else tangent for x, tangent in known)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        known = [(x, g) for x, g in zip(ctx.results, grads, strict=True) if g is not None and x.requires_grad]
        wanted = ctx.needs_input_grad[3:]
        if not known:
            return (None,) * len(ctx.needs_input_grad)
        results, given = (list(each) for each in zip(*known, strict=True))
        return None, None, None, *_reattached_gradients(results, given, ctx.of, wanted)


def opaque(
    name: str,
    operands: str,
    settings: str,
    forward: tuple[Callable[..., Any], Callable[..., Any]],
    backward: tuple[Callable[..., Any], Callable[..., Any]],
) -> tuple[CustomOpDef, CustomOpDef]:
    """An operator that a compiled graph calls and does not look into, and one that computes its gradients.

    Parameters
    ----------
    name : str
        Such as "companion::dac_conv2d"; the second is called ``<name>_backward``.
    operands, settings : str
        Of the schema, as PyTorch writes it: the tensors that have gradients, then the rest. No argument is changed; the
        result is one tensor and shares no memory with them.
    forward : tuple of callable
        What it does, of the operands and settings; it may ask :func:`choose`. And the same from shapes alone: an empty
        tensor with the shape, dtype and strides of what the first returns.
    backward : tuple of callable
        The same for the gradient of the result, the operands, the settings, and which operands' gradients are needed;
        they return a tensor for each operand, empty where it is not needed.
    """
    count = operands.count(",") + 1
    results = ", ".join(["Tensor"] * count)

    def declared(name: str, schema: str, compute: Callable[..., Any], fake: Callable[..., Any]) -> CustomOpDef:
        op = torch.library.custom_op(name, compute, mutates_args=(), schema=schema)
        op.register_fake(fake)
        return op

    op = declared(name, f"({operands}, {settings}) -> Tensor", *forward)
    needed = f"(Tensor grad, {operands}, {settings}, bool[{count}] needs)"
    gradients = declared(f"{name}_backward", f"{needed} -> ({results})", *backward)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:count])
        ctx.settings = inputs[count:]

    def autograd(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        needs = list(ctx.needs_input_grad[:count])
        found = gradients(grad, *ctx.saved_tensors, *ctx.settings, needs)
        return (*(g if need else None for g, need in zip(found, needs, strict=True)), *(None for _ in ctx.settings))

    op.register_autograd(autograd, setup_context=setup)
    return op, gradients
