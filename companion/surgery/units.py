"""Units of several arguments in somebody else's network: the layers before an activation get more outputs."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from companion.activations import UNITS
from companion.rehearsal import Example, call, example_of, like_of, rehearse
from companion.surgery.functions import call_modules
from companion.surgery.layouts import Operators
from companion.surgery.places import copied, hand_over_hooks, holds, put, put_class
from companion.surgery.replacements import Replaced, replace_activations, restore_activations
from companion.surgery.report import alike, parameters
from companion.surgery.rules import Make, Where, rule_of

__all__ = ["to_units"]


def to_units(
    model: nn.Module,
    activation: Make,
    example: Example,
    *,
    where: Where = "*",
    inplace: bool = False,
) -> nn.Module:
    r"""Replace the activations of a network's units by one of several arguments; the layers before it are widened.

    .. math::
        y_i = f(\mathbf w_{i1}^{\mathsf T} \mathbf x + b_{i1},\ \dots,\ \mathbf w_{in}^{\mathsf T} \mathbf x + b_{in})

    A unit stays a unit: the network has as many as before. The layer that gave one number for each gives n, which stand
    side by side: the first with the weights that there were, the others with new ones, normal with the deviation of
    the old ones, and biases 0. Normalisations and dropout between layer and activation are widened with them.

    Parameters
    ----------
    model : nn.Module
        Any network. It stays as it is, unless `inplace` is given.
    activation : callable or str
        Makes the new module, as in `companion.replace_activations`; its attribute ``arity`` is n, at least 2, and it
        takes the arguments of a unit from neighbours: `MultiArgument`, `companion.baselines.GEGLU`, `Maxout`.
    example : Tensor, sequence of int, tuple or mapping
        An input, the shape of one example without the batch, or all arguments. The network runs on tensors of these
        shapes that hold no numbers, which shows who reads what.
    where : str, sequence of str or callable, optional
        Which activations are meant, as in `companion.replace_activations`. Always those of
        `companion.activations.UNITS`: ReLU, GELU, SiLU and their relatives.
    inplace : bool
        Change the network itself.

    Returns
    -------
    nn.Module
        The copy, or the network itself. Its attribute ``replaced``, a `Replaced`, says which layers were widened, which
        activations stay and why, and what it costs. `companion.restore_activations` undoes it: what the first arguments
        have learned stays.

    Raises
    ------
    ValueError
        If the activation has an arity of 1, or nothing can be widened; the error says why.

    Notes
    -----
    An activation stays where something else reads what comes before it, too, as a skip connection does, or where
    that is a sum; so in a residual network the activations inside of the branches are replaced. Layers are torch's
    Linear and Conv1d to Conv3d, and the Conv1D of transformers, whose outputs nobody else reads; none that is pruned,
    or has its weight made of other tensors in another way. A module without
    parameters that is called several times, as the ReLU of a block of torchvision's, becomes one for each call.
    Hooks of an activation go over to what takes its place, and are given all arguments of its units.
    All hooks run on the example, see `companion.replace_activations`.
    Chapter: *Multi-argument neurons* (``book/mechanisms/multi-argument``).

    References
    ----------
    Kim, Orhan, Yoon, Pitkow (2022), Two-argument activation functions learn soft XOR operations like cortical neurons,
    Section III.

    Examples
    --------
    >>> import companion
    >>> from torch import nn
    >>> from companion.baselines import Maxout
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> print(companion.to_units(model, Maxout, example=(3,)).replaced)
    Linear of 4 → Linear of 8: '0'
    ReLU → Maxout(dim=-1): '1'
    parameters: 26 → 42
    """
    rule = rule_of(activation, told=True)
    before = parameters(model)
    new = replace_activations(model, dict.fromkeys(UNITS, _Slot), example, where=where, inplace=inplace)
    report: Replaced = new.replaced  # type: ignore[assignment]
    try:
        _calls_come_apart(new, example, report)
        slots = {name: slot for name, slot in new.named_modules(remove_duplicate=False) if isinstance(slot, _Slot)}
        made = {name: _made(rule, slot, new) for name, slot in slots.items()}
        arity = _arity(made)
        sources = rehearse(new, functools.partial(_sources, example=example))
        if not sources.layers:
            reasons = "".join(f"; {line}" for line in alike(sources.left | report.left))
            raise ValueError(f"model: in {type(model).__name__} no activation gets more arguments{reasons}")
    except BaseException:
        restore_activations(new)
        raise
    became, was = dict[str, str](), report._was
    for name in dict.fromkeys(layer for layers in sources.layers.values() for layer in layers):
        layer = new.get_submodule(name)
        wide = _widened(layer, arity)
        was[name], became[name] = _described(layer), _described(wide)
        report._undo.append(functools.partial(_narrow, name=name, arity=arity))
        put(new, name, wide)
    for name, slot in slots.items():
        if name in sources.layers:
            became[name] = repr(made[name])
            was.setdefault(name, type(slot.old).__name__)  # of a call that came apart
            put(new, name, made[name])
        else:
            put(new, name, slot.old)
    vars(new)["replaced"] = replace(
        report, new=became, left=report.left | sources.left, parameters=(before, parameters(new))
    )
    return new


class _Slot(nn.Module):
    """What stands where an activation of several arguments may stand, until it is known whether it can."""

    def __init__(self, old: nn.Module, channels: int, dim: int) -> None:
        super().__init__()
        self.old, self.channels, self.dim = old, channels, dim

    def forward(self, x: Tensor) -> Tensor:
        """Activate as before, though not in place: what is read and what is made are two things."""
        result: Tensor = self.old(x.clone())
        return result


def _made(rule: Any, slot: _Slot, model: nn.Module) -> nn.Module:
    """The activation for a place."""
    told = {"channels": slot.channels, "dim": slot.dim}
    new: nn.Module = rule.make(**{name: told[name] for name in rule.wants})
    like = like_of(model)
    hand_over_hooks(slot.old, new)
    return new.to(like).train(slot.training)


def _arity(made: Mapping[str, nn.Module]) -> int:
    """How many arguments the new activations have."""
    arity: int = getattr(next(iter(made.values())), "arity", 1)
    if arity < 2:
        raise ValueError(
            f"activation: got {next(iter(made.values()))}, of one argument, allowed is one of several; "
            "replace_activations takes those of one"
        )
    return arity


def _calls_come_apart(model: nn.Module, example: Example, report: Replaced) -> None:
    """Let each call of a slot without parameters be one of a slot of its own."""
    calls = rehearse(model, functools.partial(_sources, example=example)).calls
    several: defaultdict[str, list[str]] = defaultdict(list)
    for name, module in model.named_modules():
        if isinstance(module, _Slot) and calls[name] > 1 and not holds(module):
            path, _, own = name.rpartition(".")
            several[path].append(own)
    for path, names in several.items():
        parent = model.get_submodule(path)
        kind = type(parent)
        with contextlib.suppress(ValueError):  # it stays one, which is called several times
            made = call_modules(parent, lambda *_: False, names)
            report._undo.append(functools.partial(put_class, path=path, kind=kind, names=made))


# --- who reads what ----------------------------------------------------------------------------------------------

#: Whose outputs can be multiplied, by the attribute that counts them.
_LAYERS = {nn.Linear: "out_features", nn.Conv1d: "out_channels", nn.Conv2d: "out_channels", nn.Conv3d: "out_channels"}
#: What keeps the units of a layer apart or normalises them, by the attribute that counts them; "" where none does.
_PASSAGES = {
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), "num_features"),
    nn.GroupNorm: "num_channels",
    nn.LayerNorm: "normalized_shape",
    **dict.fromkeys((nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d), ""),
    **dict.fromkeys((nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d), ""),
}


def _counted_by(module: nn.Module) -> str:
    """The attribute in which a layer has the number of its outputs; "" if it is no such layer."""
    kind = type(module)
    # a dense layer with its weight the other way round
    of_transformers = kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers.")
    return "nf" if of_transformers else _LAYERS.get(kind, "")


def _is_whole(module: nn.Module) -> bool:
    """Whether a layer holds its weight and its bias and nothing that they are made of."""
    return module._parameters.keys() <= {"weight", "bias"} and not (_counted_by(module) and module._buffers)


#: What reads the numbers of its first tensor alone, and of others at most on which device and of what dtype they are.
_CASTS = ("to", "type_as")


@dataclass
class _Sources:
    """What a run says of the activations that may have several arguments."""

    #: By the name of an activation, the modules that have to give more numbers.
    layers: dict[str, list[str]] = field(default_factory=dict)
    #: By the name of another, why it stays.
    left: dict[str, str] = field(default_factory=dict)
    #: How often each module is called.
    calls: Counter[str] = field(default_factory=Counter)


class _Run(TorchFunctionMode):
    """Notes who makes each tensor and who reads it: modules of some classes as a whole, and else functions."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = 0
        self.kept: list[Tensor] = []  # an address is not given twice
        self.makers: dict[int, tuple[str, Tensor | None]] = {}
        self.readers: defaultdict[int, list[str]] = defaultdict(list)
        self.calls: defaultdict[str, list[Tensor]] = defaultdict(list)

    def enter(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A module is called."""
        if not self.inside:
            self.calls[name].append(next(x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)))
            self.kept.append(self.calls[name][-1])
            self.readers[id(self.kept[-1])].append(name)
        self.inside += 1

    def leave(self, name: str, out: Tensor) -> None:
        """A module gives its result."""
        self.inside -= 1
        if self.inside:
            return
        x = self.calls[name][-1]
        if out is x:  # as of dropout that is at rest
            self.readers[id(x)].remove(name)
        else:
            self.kept.append(out)
            self.makers[id(out)] = name, x

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Take a call of a function."""
        out = func(*args, **(kwargs or {}))
        made = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
        if self.inside or not made:  # who asks for a shape, reads no number
            return out
        given = [x for x in tree_leaves((args, kwargs or {})) if isinstance(x, Tensor)]
        name = getattr(func, "__name__", str(func))
        given = given[:1] if name in _CASTS else given
        overwrites = (
            (name.endswith("_") and not name.endswith("__")) or name.startswith("__i") or "inplace" in str(kwargs)
        )
        for x in given:
            if overwrites or not any(x is y for y in made):
                self.kept.append(x)
                self.readers[id(x)].append(name)
        for y in made:
            if overwrites or not any(x is y for x in given):
                self.kept.append(y)
                self.makers[id(y)] = name, None
        return out


def _sources(model: nn.Module, example: Example) -> _Sources:
    """Where the arguments of activations come from; the network keeps the hooks that it gets here."""
    run, modules = _Run(), dict(model.named_modules())
    for name, module in modules.items():
        if isinstance(module, _Slot) or _counted_by(module) or type(module) in _PASSAGES:
            module.register_forward_pre_hook(lambda _, x, given, name=name: run.enter(name, x, given), with_kwargs=True)
            module.register_forward_hook(lambda _, __, out, name=name: run.leave(name, out))
    with Operators(), run:  # type: ignore[no-untyped-call]
        result = call(model, example_of(model, example), example)
    for x in tree_leaves(result):
        run.readers[id(x)].append("the result")
    found = _Sources(calls=Counter({name: len(inputs) for name, inputs in run.calls.items()}))
    slots = [name for name, module in modules.items() if isinstance(module, _Slot)]
    for name in slots:
        layers, why = _followed(run, modules, name)
        if why:
            found.left[name] = why
        else:
            found.layers[name] = layers
    _only_whole(found, model)
    return found


def _followed(run: _Run, modules: Mapping[str, nn.Module], slot: str) -> tuple[list[str], str]:
    """The modules from an activation back to the layers that it gets its arguments from, or why it gets no more."""
    found = []
    if not run.calls[slot]:
        return [], "the example does not reach it"
    for x in run.calls[slot]:
        between: list[tuple[str, int]] = []
        while True:
            others = [reader for reader in run.readers[id(x)] if reader != slot and reader not in found]
            maker, given = run.makers.get(id(x), ("the input", None))
            if given is None:
                return [], f"{maker} comes before it"
            if others:
                return [], f"{others[0]} reads what comes before it, too"
            if not _is_whole(modules[maker]):
                return [], f"{maker} makes its weight of other tensors, as after pruning"
            if any(run.readers[id(parameter)] for parameter in modules[maker].parameters()):
                return [], f"somebody reads the weight of {maker}, too"
            found.append(maker)
            if _counted_by(modules[maker]):
                break
            between.append((maker, given.ndim))
            x = given
        for name, ndim in between:
            if not _keeps_apart(modules[name], modules[maker], ndim):
                return [], f"{name} works along another dimension"
    return found, ""


def _keeps_apart(module: nn.Module, layer: nn.Module, ndim: int) -> bool:
    """Whether what stands behind a layer, and is given so many dimensions, pools no units and counts what they are."""
    last = not isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
    if isinstance(module, nn.LayerNorm):
        return last and len(module.normalized_shape) == 1
    if isinstance(module, (nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d)):
        return not last
    return not last or ndim == 2 or not _PASSAGES[type(module)]


def _only_whole(found: _Sources, model: nn.Module) -> None:
    """Leave out activations whose layers work for somebody else, too."""
    places = Counter(id(module) for _, module in model.named_modules(remove_duplicate=False))
    owners = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    for name, layers in [*found.layers.items()]:
        for module in map(model.get_submodule, (name, *layers)):
            if places[id(module)] > 1 or any(owners[id(p)] > 1 for p in module.parameters()):
                found.layers.pop(name, None)
                found.left[name] = f"{type(module).__name__} or its parameters stand in several places"
    while True:
        used = Counter(layer for layers in found.layers.values() for layer in layers)
        shared = [n for n, layers in found.layers.items() if any(used[layer] != found.calls[layer] for layer in layers)]
        if not shared:
            return
        for name in shared:
            del found.layers[name]
            found.left[name] = "what comes before it is called elsewhere, too"


# --- layers get more outputs, or fewer ---------------------------------------------------------------------------


def _described(layer: nn.Module) -> str:
    size = getattr(layer, _counted_by(layer) or _PASSAGES[type(layer)] or "none", "")
    return f"{type(layer).__name__} of {size}" if size else type(layer).__name__


def _changed(layer: nn.Module, size: Callable[[int], int], change: Callable[[str, Tensor, int], Tensor]) -> nn.Module:
    """A copy of a layer with other sizes and other tensors, of each of which the dimension of the outputs is given."""
    new, attribute = copied(layer), _counted_by(layer) or _PASSAGES[type(layer)]
    if not attribute:
        return new
    old = getattr(layer, attribute)
    setattr(new, attribute, tuple(map(size, old)) if isinstance(old, tuple) else size(old))
    for name, tensor in [*layer._parameters.items(), *layer._buffers.items()]:
        if tensor is None or tensor.ndim == 0:
            continue
        other = change(name, tensor.detach(), 1 if attribute == "nf" and name == "weight" else 0)
        if name in layer._parameters:
            new.register_parameter(name, nn.Parameter(other, requires_grad=tensor.requires_grad))
        else:
            new.register_buffer(name, other)
    return new


def _widened(layer: nn.Module, arity: int) -> nn.Module:
    """The layer with n outputs side by side for each that it had."""

    def widened(name: str, tensor: Tensor, dim: int) -> Tensor:
        if not _counted_by(layer):
            return tensor.repeat_interleave(arity, dim)
        scale = tensor.std(correction=0) if name == "weight" else 0.0
        others = [scale * torch.randn_like(tensor) for _ in range(arity - 1)]
        return torch.stack((tensor, *others), dim + 1).flatten(dim, dim + 1)

    return _changed(layer, lambda size: size * arity, widened)


def _narrow(model: nn.Module, name: str, arity: int) -> None:
    """Leave each unit its first argument."""

    def narrowed(_: str, tensor: Tensor, dim: int) -> Tensor:
        return tensor[:, ::arity].clone() if dim else tensor[::arity].clone()

    put(model, name, _changed(model.get_submodule(name), lambda size: size // arity, narrowed))
