"""Who looks at a call: compilers, function transforms, tracers, forward mode, and what may take the call whole."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.autograd import forward_ad
from torch.overrides import handle_torch_function, has_torch_function

from companion.operators.choice import COMPILES

P = ParamSpec("P")
R = TypeVar("R")


def overridable(function: Callable[P, R]) -> Callable[P, R]:
    """A public function as PyTorch's own are: a ``TorchFunctionMode``, a tensor subclass with ``__torch_function__`` or
    a proxy of :mod:`torch.fx` may take the whole call, instead of seeing only what it is made of."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        relevant = (*args, *kwargs.values())
        if has_torch_function(relevant):
            result: R = handle_torch_function(call, relevant, *args, **kwargs)
            return result
        return function(*args, **kwargs)

    call.__prepare_scriptable__ = functools.partial(refuse_script, function)  # type: ignore[attr-defined]
    return call


def refuse_script(this: Any) -> None:
    """What ``torch.jit.script`` is told by a function, and by a module as its ``__prepare_scriptable__``."""
    name = getattr(this, "__name__", type(this).__name__)
    raise TypeError(
        f"torch.jit.script: got {name}, which its language cannot say, allowed are torch.compile, torch.export and "
        "torch.jit.trace, whose result cannot always be saved"
    )


def transformed() -> bool:
    """Whether a compiler, a function transform or a tracer is looking: then only plain torch can be followed."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or _traced()


def exporting() -> bool:
    """Whether torch.export is looking: it wants one graph, and breaks none."""
    # torch 2.4 cannot be asked, and the function that asks says True to every compiler in torch 2.11
    return COMPILES and torch.compiler._is_exporting_flag


def in_backward() -> bool:
    """Whether gradients are being computed here: a module that runs meanwhile is run again, by a checkpoint."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


_PROXY, _FUNCTIONAL = torch._C._TorchDispatchModeKey.PROXY, torch._C._TorchDispatchModeKey.FUNCTIONAL


def _traced() -> bool:
    """Whether make_fx, AOTAutograd or torch.jit.trace writes down what is computed: a launch would be lost."""
    return (
        torch._C._get_dispatch_mode(_PROXY) is not None
        or torch._C._get_dispatch_mode(_FUNCTIONAL) is not None
        or torch._C._get_tracing_state() is not None
    )


def on_cpu(x: torch.Tensor) -> bool:
    """Whether this is a tensor in the processor's memory, whose numbers can be looked at."""
    return x.device.type == "cpu" and not isinstance(x, FakeTensor)


def batched(grad: torch.Tensor) -> bool:
    """Whether this is a batch of gradients in disguise, as ``torch.autograd.grad(is_grads_batched=True)`` sends one."""
    return torch._C._functorch.is_legacy_batchedtensor(grad)


def tangent_of(x: Any) -> Tensor | None:
    """What forward-mode differentiation has given to it."""
    if forward_ad._current_level < 0 or not isinstance(x, Tensor):
        return None
    tangent: Tensor | None = forward_ad.unpack_dual(x).tangent  # type: ignore[no-untyped-call]
    return tangent


def has_tangent(x: Any) -> bool:
    """Whether forward-mode differentiation is looking."""
    return tangent_of(x) is not None
