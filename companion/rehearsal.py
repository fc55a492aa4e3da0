"""A network runs on tensors that have shapes but hold no numbers, so that something is learned about it."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

__all__ = [
    "Example",
    "call",
    "deepcopy",
    "difference",
    "example_of",
    "like_of",
    "refuse_a_loop",
    "rehearse",
    "without_zeros",
]

T = TypeVar("T")

#: What a network is run on: the shape of one example without the batch, such as (C, H, W); a tensor; a tuple of all
#: arguments; or a dictionary of arguments by their names.
Example: TypeAlias = Sequence[int] | Tensor | tuple[Any, ...] | Mapping[str, Any]


def rehearse(model: nn.Module, work: Callable[[nn.Module], T]) -> T:
    """Let some work run a copy of a network in evaluation mode, whose tensors hold no numbers and want no gradient.

    Only if that fails, as when the network decides by the values of tensors, does a copy run that has them. The network
    itself is not touched; what the work does to the copy, such as hooks, goes with it. Hooks that the network has run
    in the copy, for without them it may compute something else.

    Parameters
    ----------
    model : nn.Module
        Any network.
    work : callable
        Takes the copy. It may be called twice.

    Returns
    -------
    object
        What the work returns.
    """
    from torch._subclasses import fake_tensor

    mode = fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)  # tensors that are plain attributes of a module
    try:
        # deepcopy takes for copied what is in its memory: the copy holds no numbers.
        tensors = [*model.parameters(), *model.buffers()]
        replica = deepcopy(model, {id(tensor): _without_numbers(tensor, mode) for tensor in tensors})
        replica.eval()  # what it returns is up to the network
        with _silent(fake_tensor.log), mode, torch.no_grad():
            return work(replica)
    except Exception:  # torch has many for what is impossible without numbers, and libraries add theirs
        replica = deepcopy(model)
        replica.eval().requires_grad_(False)
        with torch.no_grad():
            return work(replica)


def deepcopy(model: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """A copy; torch's own of a transformer's decoder layer puts ReLU in front of an activation that is a module."""
    new = copy.deepcopy(model, memo)
    for module in new.modules():
        if isinstance(module, nn.TransformerDecoderLayer) and "activation" in module._modules:
            vars(module)["activation"] = module._modules["activation"]
    return new


def difference(model: nn.Module, other: Callable[[tuple[Any, ...], dict[str, Any]], Any], example: Example) -> str:
    """What another way to compute a network gives that the network does not, for an example; "" where it is the same.

    A shape becomes random numbers, two inputs, or one where the network takes no more. It runs twice, since networks
    may keep something, as a copy in evaluation mode, with gradients or without as they are now: networks may ask.
    Where the copy cannot take the example, or holds no numbers, nothing is compared.
    """
    if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
        return ""
    inputs = [example_of(model, example)]
    if _is_shape(example):
        (like,), generator = inputs[0][0], torch.Generator().manual_seed(0)
        inputs = [((torch.randn(count, *example, generator=generator, device="cpu").to(like),), {}) for count in (2, 1)]
    replica = deepcopy(model).eval()
    for args, kwargs in inputs:
        try:
            expected = [_detached(replica(*_cloned(args), **_cloned(kwargs))) for _ in range(2)]
        except Exception:  # who runs the network on it says so
            continue
        try:
            found = [_detached(other(_cloned(args), _cloned(kwargs))) for _ in range(2)]
        except ValueError:  # what is built in says so itself
            raise
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        inside = [torch.finfo(x.dtype).eps for x in (*model.parameters(), *model.buffers()) if x.is_floating_point()]
        return _first_that_differs(found, expected, max(inside, default=0.0))
    return ""


def _first_that_differs(found: Any, expected: Any, eps: float) -> str:
    leaves = tree_leaves(found), tree_leaves(expected)
    if len(leaves[0]) != len(leaves[1]):
        return f"{len(leaves[0])} outputs in place of {len(leaves[1])}"
    for x, y in (pair for pair in zip(*leaves, strict=True) if _are_tensors(*pair)):
        try:
            close = 0.0
            if _is_real(y):  # of the largest number, since sums may be in another order
                close = y.abs().nan_to_num(0.0, 0.0).amax().item() * max(eps, torch.finfo(y.dtype).eps) ** 0.5
            torch.testing.assert_close(x, y, rtol=0.0, atol=close, equal_nan=True)
        except AssertionError as error:
            return " ".join(str(error).split("\n\n")[0].split())
    return ""


class _Nothing(nn.Module):
    """What gives back its first argument, as losses do that stand in a network."""

    def forward(self, x: Any, *others: Any, **named: Any) -> Any:
        return x


def refuse_a_loop(model: nn.Module, name: str, example: Example) -> None:
    """Refuse a network that goes over its children and computes something else with one more that does nothing."""
    if type(model).forward is nn.Sequential.forward:
        return

    def calls_of(replica: nn.Module) -> Counter[str]:
        calls, hooks = Counter[str](), []
        for own, module in replica.named_modules():
            hooks.append(module.register_forward_pre_hook(lambda *_, own=own: calls.update([own])))
        call(replica, example_of(model, example), example)
        for hook in hooks:
            hook.remove()
        return calls

    def is_another(replica: nn.Module) -> bool:
        before = calls_of(replica)
        replica.add_module(name, _Nothing())
        try:
            return calls_of(replica) != before
        except Exception:  # as of a layer that gets another shape
            return True

    if not rehearse(model, is_another):
        return
    other = deepcopy(model).eval()
    other.add_module(name, _Nothing())
    if difference(model, lambda args, kwargs: other(*args, **kwargs), example):
        raise ValueError(
            f"model: got a {type(model).__name__} whose forward goes over its children, and {name!r} would be one; "
            "allowed is one around it, such as nn.Sequential(model)"
        )


@torch.no_grad()
def without_zeros(model: nn.Module) -> nn.Module:
    """A copy in which what begins at nothing, such as biases and the scales of residual branches, has random numbers.

    What comes before a factor of nothing would not be compared.
    """
    new, generator = deepcopy(model), torch.Generator().manual_seed(0)
    for p in new.parameters():
        if type(p) is nn.Parameter and not p.is_meta and _is_real(p) and p.float().abs().max() < 0.01:
            inputs = p[0].numel() if p.dim() else 1
            p.copy_(torch.randn(p.shape, generator=generator) / (2 * inputs**0.5))
    return new


def _is_real(x: Tensor) -> bool:
    return x.is_floating_point() and x.numel() > 0


def _are_tensors(x: Any, y: Any) -> bool:
    return isinstance(x, Tensor) and isinstance(y, Tensor)


@contextlib.contextmanager
def _silent(log: logging.Logger) -> Iterator[None]:
    """Torch would print the failure of every attempt."""
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def _without_numbers(tensor: Tensor, mode: Any) -> Tensor:
    fake: Tensor = mode.from_tensor(tensor.detach())
    return nn.Parameter(fake, requires_grad=False) if isinstance(tensor, nn.Parameter) else fake


def example_of(model: nn.Module, example: Example) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a network: a shape becomes zeros, a batch of one, on the network's device and in its dtype."""
    if isinstance(example, Tensor):
        return (example.clone(),), {}
    if isinstance(example, Mapping):
        return (), _cloned(dict(example))
    if not isinstance(example, Sequence) or isinstance(example, str):
        raise TypeError(f"example: got {example!r}, allowed are a shape, a tensor, a tuple or a mapping of arguments")
    if not _is_shape(example):
        return tuple(_cloned(list(example))), {}
    like = like_of(model)
    return (torch.zeros(1, *example, dtype=like.dtype, device=like.device),), {}


def like_of(model: nn.Module) -> Tensor:
    """What has the device and the dtype of a network: its first parameter or buffer of floating dtype."""
    return next((x for x in (*model.parameters(), *model.buffers()) if x.is_floating_point()), torch.empty(0))


def _is_shape(example: Any) -> TypeGuard[Sequence[int]]:
    """Whether an example is sizes and not arguments."""
    return isinstance(example, Sequence) and all(isinstance(size, int) for size in example)


def _cloned(arguments: Any) -> Any:
    """Without numbers, where there are none."""
    return tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, arguments)


def _detached(outputs: Any) -> Any:
    return tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, outputs)


def call(model: nn.Module, arguments: tuple[tuple[Any, ...], dict[str, Any]], example: Example | None = None) -> Any:
    """The network's result; an error names the module that raised it, and says what became of an example's shape.

    The network keeps the hooks that it gets here.
    """
    running: list[tuple[str, nn.Module, tuple[Any, ...]]] = []
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda module, given, name=name: running.append((name, module, given)))
        module.register_forward_hook(lambda *_: running.pop() and None)
    args, kwargs = arguments
    try:
        return model(*args, **kwargs)
    except Exception as error:
        if not running:
            raise
        name, module, given = running[-1]
        shapes = ", ".join(str(tuple(x.shape)) if isinstance(x, Tensor) else type(x).__name__ for x in given)
        told = (
            f"; the example {tuple(example)} is the shape of one input, a batch of one was put before it, and numbers "
            "of tokens are given as a tensor"
            if _is_shape(example)
            else ""
        )
        where = f"module {name!r}, a {type(module).__name__}," if name else f"the {type(module).__name__}"
        raise ValueError(f"model: {where} cannot take {shapes} ({type(error).__name__}: {error}){told}") from error
