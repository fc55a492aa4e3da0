"""What a run of a network shows: where the channels lie that its activations see, and which functions it calls."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from companion.activations import FUNCTIONS, NAMES_OF_FUNCTIONS, kind_of
from companion.rehearsal import Example, call, example_of
from companion.surgery.functions import Called

__all__ = ["Seen", "look"]


@dataclass
class Seen:
    """What a run of the network showed."""

    #: By module: the number of channels that it saw, and along which dimension.
    layouts: dict[str, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    #: By module: why these are not known.
    doubts: dict[str, str] = field(default_factory=dict)
    #: By module: the kinds of activations that it calls as functions.
    functions: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: The modules that ran.
    reached: set[str] = field(default_factory=set)
    #: Of modules with doubts those that saw something with the channels first, as far as layers say.
    first: set[str] = field(default_factory=set)
    #: By module: along which dimension the channels of what it gave last lie, where that is known.
    gives: dict[str, int] = field(default_factory=dict)
    #: The numbers of dimensions in which something was turned round since the layer that ran last.
    turned: set[int] = field(default_factory=set)

    def channels(self, name: str) -> tuple[dict[str, int], str]:
        """The channels of a module and where they are, or why this is not known."""
        if name in self.doubts:
            return {}, self.doubts[name]
        layouts = sorted(self.layouts[name])
        if not layouts:
            return {}, "the example does not reach it"
        if len(layouts) > 1:
            return {}, f"it is called with {' and '.join(str(channels) for channels, _ in layouts)} channels"
        return {"channels": layouts[0][0], "dim": layouts[0][1]}, ""


def _layout(layer: nn.Module, out: Any) -> tuple[int, int] | None:
    """The channels that a layer gives and where they are; None if it does not say."""
    if not isinstance(out, Tensor) or out.ndim < 2:
        return None
    for name, dim in (("out_features", -1), ("out_channels", 1), ("num_features", 1), ("num_channels", 1)):
        if out.shape[dim] == getattr(layer, name, None):
            return out.shape[dim], dim
    # some subclasses of LayerNorm have the channels first
    if shape := tuple(getattr(layer, "normalized_shape", ())):
        return next(((out.shape[dim], dim) for dim in (-1, 1) if shape == (out.shape[dim],)), None)
    # a vector of numbers that it has learned, as a bias or a scale, is one of its channels; a single number is for all
    vectors = {parameter.shape[0] for parameter in layer.parameters(recurse=False) if parameter.ndim == 1} - {1}
    found = [(out.shape[dim], dim) for dim in (-1, 1)[: out.ndim - 1] if out.shape[dim] in vectors]
    return found[0] if len(found) == 1 else None


#: What may let the channels lie along another dimension.
_NAMES_OF_TURNING = "permute transpose movedim moveaxis swapaxes swapdims einsum reshape view unflatten stack __get__"
_TURNING = frozenset(_NAMES_OF_TURNING.split())


class _Functions(TorchFunctionMode):
    """Notes the activations that are called as functions, outside of modules that are activations themselves."""

    def __init__(self, seen: Seen, running: list[tuple[str, nn.Module]]) -> None:
        super().__init__()
        self.seen, self.running = seen, running

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Take a call of a function."""
        name, module = self.running[-1]
        x = args[0] if args else (kwargs or {}).get("input")
        # an operator of torch.ops has the name of its overload, too, as in "gelu.default"
        own = str(getattr(func, "__name__", "")).partition(".")[0]
        called = FUNCTIONS.get(func) or NAMES_OF_FUNCTIONS.get(own)
        if own.removesuffix("_") in ("clamp", "clamp_min", "clip") and _rectifies(*args, **(kwargs or {})):
            called = own
        # of a parameter it is no activation, but the way to a positive number
        inside = isinstance(module, Called) or kind_of(module) is not None or _is_ours(module)
        if called and not inside and not isinstance(x, nn.Parameter):
            self.seen.functions[name].add(called)
        out = func(*args, **(kwargs or {}))
        if own in _TURNING and isinstance(out, Tensor):
            self.seen.turned.add(out.ndim)
        return out


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Shows to a mode of functions the operators that no function called, as a scripted function does."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Take a call of an operator."""
        return func(*args, **(kwargs or {}))


def _rectifies(input: Tensor, min: Any = None, max: Any = None, **others: Any) -> bool:
    """Whether a clamp does what ReLU does."""
    return max is None and isinstance(min, (int, float)) and min == 0 and input.is_floating_point()


def _is_ours(module: nn.Module) -> bool:
    """Whether a module is one of the book's own, and no network of it."""
    return type(module).__module__.startswith("companion.") and next(module.children(), None) is None


def look(model: nn.Module, example: Example) -> Seen:
    """What a run on an example shows; the network keeps the hooks that it gets here."""
    seen, running = Seen(), [("", model)]
    # by the number of dimensions: of the layer that ran last, of those that say where their channels are
    latest: dict[int, tuple[int, int]] = {}
    # what that layer gave, or what a module that was given it made of it
    given: dict[int, Tensor] = {}

    def enter(name: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        running.append((name, module))
        seen.reached.add(name)
        x = inputs[0] if inputs else None
        if not isinstance(x, Tensor):
            return
        if x.ndim < 2:
            seen.doubts[name] = f"it sees {tuple(x.shape)}, and a batch has a dimension more"
        elif x.ndim == 2:
            seen.layouts[name].add((x.shape[1], -1))
        elif (layout := latest.get(x.ndim)) and x.shape[layout[1]] == layout[0]:
            # tokens may have been turned round since then, maps are so only by some functions
            turned = x.ndim == 3 or x.ndim in seen.turned
            if turned and [*x.shape[1:]].count(layout[0]) > 1 and given.get(x.ndim) is not x:
                seen.doubts[name] = (
                    f"two dimensions of {tuple(x.shape)} have {layout[0]} elements, and an example with different "
                    "ones would tell which has the channels"
                )
            seen.layouts[name].add(layout)
        else:
            seen.doubts[name] = f"no layer before it says where the channels of {tuple(x.shape)} are"
            if layout and layout[1] == 1 and x.ndim not in seen.turned:
                seen.first.add(name)

    def leave(name: str, module: nn.Module, inputs: tuple[Any, ...], out: Any) -> None:
        running.pop()
        seen.gives.pop(name, None)
        if layout := _layout(module, out):
            latest[out.ndim] = layout
            seen.turned.discard(out.ndim)
        straight = isinstance(out, Tensor) and out.ndim not in seen.turned
        if straight and (layout or any(x is given.get(out.ndim) for x in inputs)):
            given[out.ndim] = out
        known = isinstance(out, Tensor) and (out.ndim == 3 or out.ndim not in seen.turned)
        if known and (last := latest.get(out.ndim)) and out.shape[last[1]] == last[0]:
            seen.gives[name] = last[1]

    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda module, inputs, name=name: enter(name, module, inputs))
        module.register_forward_hook(lambda module, inputs, out, name=name: leave(name, module, inputs, out))
    with Operators(), _Functions(seen, running):  # type: ignore[no-untyped-call]
        call(model, example_of(model, example), example)
    return seen
