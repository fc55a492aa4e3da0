"""Activations replaced by others."""

from __future__ import annotations

import copy
import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from companion.activations import MODULES
from companion.rehearsal import example_of, rehearse
from companion.surgery.tracing import FUNCTIONS

__all__ = ["Replaced", "replace_activations"]


@dataclass(frozen=True)
class Replaced:
    """What `replace_activations` did to a network.

    Parameters
    ----------
    new : dict
        By the name of a module, what stands there now.
    left : dict
        By the name of a module, why an activation stays there: it is one of another class, it cannot be given the
        number of its channels, or it is called as a function.
    """

    new: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return a line for every activation."""
        lines = [f"{name or '(itself)'}: {what}" for name, what in self.new.items()]
        return "\n".join([*lines, *(f"{name or '(itself)'}: left; {why}" for name, why in self.left.items())])


def replace_activations(
    model: nn.Module,
    replacements: Mapping[type[nn.Module], Callable[..., nn.Module]],
    example: Tensor | Sequence[int] | None = None,
) -> nn.Module:
    """Return a copy of a network in which modules of some classes are replaced by new ones.

    Parameters
    ----------
    model : nn.Module
        Any network. It stays as it is.
    replacements : mapping
        From a class, whose subclasses are left alone, to what makes a new module: a class or a function. If it has a
        parameter ``channels``, it is given the number of channels of what the module sees, and by ``dim``, if it has
        that parameter too, the dimension along which they lie: −1 after a dense layer, 1 after a convolution. A module
        that the network holds in several places, or calls several times, gets one successor.
    example : Tensor or sequence of int, optional
        An input, or the shape of one example without the batch, such as (C, H, W). The network runs once on tensors of
        these shapes that hold no numbers. Only ``channels`` needs it; with it, activations that are called as functions
        are found, too.

    Returns
    -------
    nn.Module
        Of the class of `model`. The new modules are on the device of its first parameter, with its dtype. Its attribute
        ``replaced``, a `Replaced`, says what was replaced, what was left, and why.

    Raises
    ------
    TypeError
        If a replacement is a module instead of something that makes one.
    ValueError
        If nothing is replaced, the error says why; or if ``channels`` is wanted without an example.

    Examples
    --------
    >>> from companion import AGLU
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Sigmoid())
    >>> print(replace_activations(model, {nn.ReLU: AGLU}).replaced)
    1: AGLU(num_parameters=1, dim=1, init='near_one')
    4: left; no replacement of Sigmoid is given
    >>> per_channel = {nn.ReLU: lambda channels, dim: AGLU(channels, dim)}
    >>> replace_activations(model, per_channel, example=(3, 32, 32))[1]
    AGLU(num_parameters=8, dim=1, init='near_one')
    """
    wanted = {kind: _wanted(make) for kind, make in replacements.items()}
    if any(wanted.values()) and example is None:
        kind = next(kind for kind in wanted if wanted[kind])
        raise ValueError(f"example: got None, but what replaces {kind.__name__} wants the number of channels")
    seen = _Seen() if example is None else rehearse(model, functools.partial(_look, example=example))
    model = copy.deepcopy(model)
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    successors: dict[nn.Module, nn.Module] = {}
    replaced: list[str] = []
    report = Replaced(left=dict(seen.functions))
    for name, module in model.named_modules():
        kind = type(module)
        if _is_below(name, replaced):
            continue  # its parent goes, and it with it
        if kind in replacements:
            found, why = seen.channels(name) if wanted[kind] else ({}, "")
            if why:
                report.left[name] = why
            else:
                given = {key: found[key] for key in wanted[kind]}
                successors[module] = replacements[kind](**given).to(like).train(module.training)
                replaced.append(name)
        elif why := _other(module, replacements):
            report.left[name] = why
    if not successors:
        names = ", ".join(kind.__name__ for kind in replacements)
        reasons = "".join(f"; {name or '(itself)'}: {why}" for name, why in report.left.items())
        raise ValueError(f"model: {type(model).__name__} holds no module of the class {names} to replace{reasons}")
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if module in successors and not _is_below(name, replaced):
            report.new[name] = repr(successors[module])
            if name:
                model.set_submodule(name, successors[module])
                parent = model.get_submodule(name.rpartition(".")[0])
                if hasattr(parent, "activation_relu_or_gelu"):
                    # by it torch's transformer layers compute the old activation in their fused path
                    parent.activation_relu_or_gelu = 0  # type: ignore[assignment]
    model = successors.get(model, model)
    model.replaced = report  # type: ignore[assignment]
    return model


def _is_below(name: str, others: Sequence[str]) -> bool:
    """Whether a module is inside one of others."""
    return any(name != other and (not other or name.startswith(f"{other}.")) for other in others)


def _wanted(make: Callable[..., nn.Module]) -> tuple[str, ...]:
    """What a replacement wants to be told: nothing, the number of channels, or also where they are."""
    if isinstance(make, nn.Module):
        raise TypeError(f"replacements: got the module {make}, allowed is a class or a function that makes one")
    parameters = inspect.signature(make).parameters
    if "channels" not in parameters:
        return ()
    return ("channels", "dim") if "dim" in parameters else ("channels",)


def _other(module: nn.Module, replacements: Mapping[type[nn.Module], Any]) -> str:
    """Why an activation of another class stays."""
    kind = type(module)
    base = next((base for base in kind.__mro__ if base in replacements), None)
    if base is not None:
        return f"{kind.__name__} is a subclass of {base.__name__}"
    return f"no replacement of {kind.__name__} is given" if isinstance(module, MODULES) else ""


# --- what is learned from an example -----------------------------------------------------------------------------


@dataclass
class _Seen:
    """What a run of the network showed."""

    #: By module: the number of channels that it saw, and along which dimension.
    layouts: dict[str, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    #: By module: why these are not known.
    doubts: dict[str, str] = field(default_factory=dict)
    #: By module: the activations that it calls as functions.
    functions: dict[str, str] = field(default_factory=dict)

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
    shape = getattr(layer, "normalized_shape", (None,))
    # some subclasses of LayerNorm have the channels first
    return next(((out.shape[dim], dim) for dim in (-1, 1) if tuple(shape) == (out.shape[dim],)), None)


class _Functions(TorchFunctionMode):
    """Notes the activations that are called as functions, outside of modules that are activations themselves."""

    def __init__(self, seen: _Seen, running: list[tuple[str, nn.Module]]) -> None:
        super().__init__()
        self.seen, self.running = seen, running

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Take a call of a function."""
        name, module = self.running[-1]
        called = FUNCTIONS.get(func, FUNCTIONS.get(getattr(func, "__name__", "").removesuffix("_")))
        # of a parameter it is no activation, but the way to a positive number
        x = args[0] if args else (kwargs or {}).get("input")
        if called and not isinstance(module, MODULES) and not isinstance(x, nn.Parameter):
            self.seen.functions[name] = f"{called} is called as a function"
        return func(*args, **(kwargs or {}))


def _look(model: nn.Module, example: Tensor | Sequence[int]) -> _Seen:
    """What a run on an example shows."""
    seen, running = _Seen(), [("", model)]
    # by the number of dimensions: of the layer that ran last, of those that say where their channels are
    latest: dict[int, tuple[int, int]] = {}

    def enter(name: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        running.append((name, module))
        x = inputs[0] if inputs else None
        if not isinstance(x, Tensor) or x.ndim < 2:
            return
        if x.ndim == 2:
            seen.layouts[name].add((x.shape[1], -1))
        elif (layout := latest.get(x.ndim)) and x.shape[layout[1]] == layout[0]:
            seen.layouts[name].add(layout)
        else:
            seen.doubts[name] = f"no layer before it says where the channels of {tuple(x.shape)} are"

    def leave(module: nn.Module, out: Any) -> None:
        running.pop()
        if layout := _layout(module, out):
            latest[out.ndim] = layout

    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda module, inputs, name=name: enter(name, module, inputs))
        module.register_forward_hook(lambda module, _, out: leave(module, out))
    if isinstance(example, Tensor):
        x = torch.zeros(example.shape, dtype=example.dtype, device=example.device)
    else:
        x = example_of(model, example)
    with _Functions(seen, running):
        model(x)
    return seen
