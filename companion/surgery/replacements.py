"""Activations replaced by others, and put back."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn

from companion.activations import is_softmax
from companion.rehearsal import Example, deepcopy, difference, like_of, rehearse
from companion.surgery.functions import Called, Rewritten, attributes, call_modules, called_functions, unseen
from companion.surgery.layouts import Seen, look
from companion.surgery.places import (
    copy_of,
    hand_over_hooks,
    holds,
    part,
    places,
    put,
    put_back,
    put_class,
    put_function,
)
from companion.surgery.report import alike, parameters, refuse_taken
from companion.surgery.rules import Key, Make, Rule, Rules, Where, called_kind

__all__ = ["Replaced", "replace_activations", "restore_activations"]


@dataclass(frozen=True)
class Replaced:
    """What `replace_activations` did to a network.

    Parameters
    ----------
    new : dict
        By the name of a module, what stands there now.
    left : dict
        By the name of a module, why an activation stays there.
    unreached : list of str
        The names of modules that were replaced though the example does not reach them: their parameters have no
        gradient where nothing else reaches them either.
    parameters : (int, int)
        How many the network had before, and has now.
    """

    new: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    unreached: list[str] = field(default_factory=list)
    parameters: tuple[int, int] = (0, 0)
    _was: dict[str, str] = field(default_factory=dict, repr=False)
    _undo: list[functools.partial[None]] = field(default_factory=list, repr=False, compare=False)

    def __str__(self) -> str:
        """Return a line for all activations that are alike, one for all that stay for one reason, and the cost."""
        new = {name: f"{self._was[name]} → {what}" for name, what in self.new.items()}
        left = {name: f"stays, {why}" for name, why in self.left.items()}
        unreached = dict.fromkeys(self.unreached, "replaced, though the example does not reach it")
        before, now = self.parameters
        return "\n".join([*alike(new), *alike(left), *alike(unreached), f"parameters: {before:,} → {now:,}"])


def replace_activations(
    model: nn.Module,
    replacements: Mapping[Key, Make],
    example: Example | None = None,
    *,
    where: Where = "*",
    strict: bool = False,
    inplace: bool = False,
) -> nn.Module:
    """Replace the activations of a network by new ones.

    Parameters
    ----------
    model : nn.Module
        Any network. It stays as it is, unless `inplace` is given.
    replacements : mapping
        From a class of modules, or a name such as "relu", to what makes a new module: a class, a function, or a name
        such as "aglu". Of torch's activations every form is meant: subclasses, modules that another library calls so
        (timm's ``Swish`` is a "silu"), and calls of functions. If what makes it has a parameter ``channels``, it is
        given the number of channels of what the module sees, and by ``dim``, if it has that parameter too, the
        dimension along which they lie: −1 after a dense layer, 1 after a convolution. If it wants ``old``, that is the
        module which stood there, or one that calls the function. It wants nothing else. A module
        that the network holds in several places gets a successor for each, unless it has parameters, which they then
        share as before. One that it calls several times gets one, unless it wants channels and they differ.
    example : Tensor, sequence of int, tuple or mapping, optional
        An input, the shape of one example without the batch, such as (C, H, W), or all arguments. The network runs once
        on tensors of these shapes that hold no numbers. Only ``channels`` needs it; with it, the report knows all of
        torch's functions that are called, ``clamp`` at 0 and those in scripted functions among them; but not what is
        written as arithmetic, such as ``x * (x > 0)``.
    where : str, sequence of str or callable, optional
        Which modules may be replaced: a pattern of names, such as ``"layer4.*"``, or several, or a function of a name
        and a module.
    strict : bool
        Replace only modules that are of exactly the class.
    inplace : bool
        Change the network itself. `restore_activations` undoes it.

    Returns
    -------
    nn.Module
        The copy, or the network itself. Its attribute ``replaced``, a `Replaced`, says what was replaced, what stays
        and why, and what it costs; ``print`` shows it. New modules have the device and the dtype of its first
        parameter.

    Raises
    ------
    TypeError
        If a replacement is a module instead of something that makes one, or wants to be told something else than
        ``channels`` and ``dim``; if `replacements` is no mapping, or a key of it no class of modules; or if the model
        is no module, or a scripted one.
    ValueError
        If a name is not known; if nothing is replaced, the error says why; if ``channels`` is wanted without an
        example; if a new module has an ``arity`` other than 1, as `MultiArgument` has: the layer before it would
        need more outputs; or if the network has an attribute ``replaced`` of its own.

    Notes
    -----
    A name makes its module with the defaults: "aglu" begins near one, and "la_silu" and "la_hardsilu" normalise over
    all dimensions but the first, so that in a network of tokens every token's gate sees those after it. There give
    ``lambda: LASiLU(dims=-1)``. :func:`companion.rethink` does it, and begins AGLU as its paper does in classifiers,
    ``AGLU(init="aglu")``.

    A call of a function is found where torch.fx can write down what its module does, with the modules inside as they
    are. That module is of a subclass then, whose ``forward`` is what torch.fx wrote: settings that it reads are built
    in as they are, and other methods still call the functions. Where it cannot, because the module decides by its input
    or by a mode of torch's such as autocast, uses torch's checkpoints, has optional arguments or changes itself, the
    report says so.

    Hooks of a module go over to what takes its place, unless the module stays there as ``old``; they see what the new
    one is given and gives, and one that takes several places has the hooks of all. With `inplace` the handle of such a
    hook removes it from the old module alone.

    Hooks are part of what a network computes, so they run on the example, too, perhaps more than once: in evaluation
    mode, without gradients, on tensors that hold no numbers or on those of the example. A hook that keeps something,
    such as a mean, should do so in training alone, or be registered afterwards.

    A new activation gives new memory. A network that reads what an activation with ``inplace=True`` has overwritten, by
    another name than that of its result, reads something else now.

    Examples
    --------
    >>> import companion
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Sigmoid())
    >>> print(companion.replace_activations(model, {"relu": "aglu"}).replaced)
    ReLU → AGLU(num_parameters=1, dim=1, init='near_one'): '1'
    stays, no replacement of Sigmoid is given: '4'
    parameters: 224 → 226
    >>> per_channel = {nn.ReLU: lambda channels, dim: companion.AGLU(channels, dim)}
    >>> companion.replace_activations(model, per_channel, example=(3, 32, 32))[1]
    AGLU(num_parameters=8, dim=1, init='near_one')
    """
    if not isinstance(replacements, Mapping):
        raise TypeError(
            f"replacements: got {type(replacements).__name__}, allowed is a mapping such as {{'relu': 'aglu'}}"
        )
    rules = Rules(replacements, where, strict)
    if example is None and (wanting := rules.wanting()):
        raise ValueError(f"example: got None, but what replaces {wanting} wants the number of channels")
    if inplace and rules.of("", model):
        raise ValueError("inplace: the model is itself the activation; replace it by the new one, or let it be copied")
    refuse_taken(model, "replaced", Replaced)
    before = parameters(model)
    target = model if inplace else copy_of(model)
    report = Replaced()
    if "replaced" in vars(target):  # of a replacement before this one
        report._undo.append(functools.partial(_put_report, report=vars(target)["replaced"]))
    try:
        left = _functions_become_modules(target, rules, report)
        parted = _part(target, rules, report)
        seen = Seen()
        if example is not None:
            seen = rehearse(target, functools.partial(look, example=example))
            if _calls_come_apart(target, rules, seen, report):
                seen = rehearse(target, functools.partial(look, example=example))
        if example is not None and any(isinstance(type(m), Rewritten) for m in target.modules()):
            written = _as_written(target, report) if inplace else model
            other = difference(written, lambda args, kwargs: deepcopy(target).eval()(*args, **kwargs), example)
            if other:
                raise ValueError(
                    f"model: with modules for functions it gives something else for the example ({other}): it does "
                    "what torch.fx forgets, such as to write where another name reads"
                )
        report.left.update(left)
        for name, kinds in seen.functions.items():
            if kinds := {kind for kind in kinds if not is_softmax(kind)}:
                report.left.setdefault(name, f"{' and '.join(sorted(kinds))} is called as a function")
        new = _replace(target, rules, seen, report, parted)
    except BaseException:
        _undo(target, report)
        raise
    numbers = before, parameters(new)
    made = Replaced(report.new, report.left, report.unreached, numbers, report._was, report._undo)
    vars(new)["replaced"] = made
    return new


def restore_activations(model: nn.Module) -> nn.Module:
    """Undo what `replace_activations` did: the old activations stand where they stood, in the network itself.

    Parameters
    ----------
    model : nn.Module
        What `replace_activations` returned. What it has learned since then stays, but for its activations.

    Returns
    -------
    nn.Module
        The same network.

    Raises
    ------
    ValueError
        If nothing was replaced in it.

    Notes
    -----
    Of several replacements, one after the other, each call undoes the last.

    Examples
    --------
    >>> import companion
    >>> from torch import nn
    >>> model = companion.replace_activations(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), {"relu": "aglu"})
    >>> companion.restore_activations(model)
    Sequential(
      (0): Linear(in_features=3, out_features=4, bias=True)
      (1): ReLU()
    )
    """
    report = getattr(model, "replaced", None)
    if not isinstance(report, Replaced) or not report._undo:
        raise ValueError(f"model: in this {type(model).__name__} no activations were replaced")
    del model.replaced
    _undo(model, report)
    return model


def _put_report(model: nn.Module, report: Replaced) -> None:
    vars(model)["replaced"] = report


def _undo(model: nn.Module, report: Replaced) -> None:
    while report._undo:
        report._undo.pop()(model)


def _functions_become_modules(model: nn.Module, rules: Rules, report: Replaced) -> dict[str, str]:
    """Let modules be called wherever a function is to be replaced; say why of modules where that is impossible."""
    left = {}
    seen = set(model.modules())
    for path, module in [*model.named_modules()]:
        prefix = f"{path}." if path else ""
        for name, hidden in ({} if _has_a_forward_of_its_own(module) else unseen(module)).items():
            if hidden not in seen and rules.of(prefix + name, hidden):
                left[prefix + name] = (
                    f"{type(hidden).__name__} is in a list or in the class, where PyTorch does not see it; it does in "
                    "an nn.ModuleList and in self"
                )
        behind: dict[str, str] = {}
        for name, function in attributes(module).items():
            called = Called(function, (), {}).train(module.training)
            if rules.of(prefix + name, called):
                if hasattr(type(module), name):  # that would be found before a module
                    behind[prefix + name] = (
                        f"{called.kind} is a function, and the class has something of this name, too"
                    )
                    continue
                called.register_forward_pre_hook(_without_settings, with_kwargs=True)
                report._undo.append(functools.partial(put_function, path=path, name=name, function=function))
                delattr(module, name)
                put(model, prefix + name, called)
            elif why := rules.why_not(prefix + name, called):
                left[prefix + name] = why
        kinds = set() if _has_a_forward_of_its_own(module) else called_functions(module) & set(rules.kinds)
        kind, names = type(module), []
        try:
            names = call_modules(module, functools.partial(rules.wants, prefix)) if kinds else []
        except ValueError as error:
            left[path] = f"{' and '.join(sorted(kinds))} may be called as a function, but {error}"
        if names:
            report._undo.append(functools.partial(put_class, path=path, kind=kind, names=names))
        else:
            left |= behind
    return left


def _as_written(model: nn.Module, report: Replaced) -> nn.Module:
    """A copy of a network with the functions that its forward called."""
    written = deepcopy(model)
    for undo in reversed(report._undo):
        if undo.func in (put_function, put_class):  # a part of its own computes what the shared one does
            undo(written)
    return written


class _Parted(NamedTuple):
    """What was one object in several places and is to be replaced: each place has a copy of it."""

    originals: dict[nn.Module, nn.Module]
    places: dict[str, nn.Module]


def _part(model: nn.Module, rules: Rules, report: Replaced) -> _Parted:
    """Let each place of what holds no numbers have a module of its own, which a run can see and a rule replace."""
    where: dict[str, nn.Module] = {}

    def put_copy(name: str, new: nn.Module, original: nn.Module) -> None:
        report._undo.append(functools.partial(put_back, name=name, old=original))
        where[name] = original
        put(model, name, new)

    return _Parted(part(model, lambda name, module: rules.of(name, module) is not None, put_copy), where)


def _calls_come_apart(model: nn.Module, rules: Rules, seen: Seen, report: Replaced) -> bool:
    """Let each call be one of a module of its own, where one without parameters sees different numbers of channels."""
    several: defaultdict[str, list[str]] = defaultdict(list)
    for name, module in places(model):
        rule = rules.of(name, module)
        if rule and rule.wants and not holds(module) and len(seen.layouts[name]) > 1:
            path, _, own = name.rpartition(".")
            several[path].append(own)
    apart = False
    for path, names in several.items():
        parent = model.get_submodule(path)
        kind, made = type(parent), list[str]()
        with contextlib.suppress(ValueError):  # of what cannot be written down the report says what it is called with
            made = [] if _has_a_forward_of_its_own(parent) else call_modules(parent, lambda *_: False, names)
        if made:
            report._undo.append(functools.partial(put_class, path=path, kind=kind, names=made))
            prefix, apart = f"{path}." if path else "", True
            for new in made:
                own = max((name for name in names if new.startswith(f"{name}_")), key=len)
                rules.calls_of[prefix + new] = prefix + own
    return apart


def _has_a_forward_of_its_own(module: nn.Module) -> bool:
    """Whether a module is one of torch's or ours, or is itself an activation."""
    library = type(module).__module__.startswith(("torch.nn.", "companion."))
    return library or called_kind(module) is not None


def _without_settings(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What stands where a function stood is called as that was, perhaps with ``inplace``."""
    return (args, kwargs) if isinstance(module, Called) else (args[:1], {})


def _replace(model: nn.Module, rules: Rules, seen: Seen, report: Replaced, parted: _Parted) -> nn.Module:
    like = like_of(model)
    first: dict[nn.Module, str] = {}  # a run knows a module by its first name
    shared: dict[nn.Module, nn.Module] = {}
    successors: dict[str, tuple[nn.Module, nn.Module]] = {}
    for name, module in places(model):
        first.setdefault(module, name)
        if _is_below(name, [*successors]):
            continue  # its parent goes, and it with it
        rule = rules.of(name, module)
        found, why = seen.channels(first[module]) if rule and rule.wants else ({}, "")
        if rule and not why:
            original = parted.originals.get(module, module)
            new = shared[original] if original in shared else _made(rule, found, name, module, like)
            if holds(module) or not (rule.wants or holds(new)):
                shared[original] = new
            successors[name] = module, new
        elif why := why or rules.why_not(name, module):
            report.left[name] = why
    if not successors:
        names = ", ".join(kind.__name__ for kind in rules.classes)
        reasons = "".join(f"; {line}" for line in alike(report.left))
        raise ValueError(f"model: {type(model).__name__} holds no {names} to replace{reasons}")
    standing = Counter(parted.originals.get(module, module) for module, _ in successors.values())
    for name, (module, new) in successors.items():
        original = parted.originals.get(module, module)
        was = module.kind if isinstance(module, Called) else type(module).__name__
        if (number := standing[original]) > 1:
            was += f", {number} places of one object" + (", still one" if original in shared else "")
        report.new[name], report._was[name] = repr(new), was
        if seen.reached and first[module] not in seen.reached:
            report.unreached.append(name)
        if name:
            report._undo.append(functools.partial(put_back, name=name, old=module))
            put(model, name, new)
    for name, module in parted.places.items():
        if not _is_below(name, [*successors]) and not any(f"{other}.".startswith(f"{name}.") for other in successors):
            put(model, name, module)  # what stays is shared as it was
    return successors[""][1] if "" in successors else model


def _made(rule: Rule, found: Mapping[str, int], name: str, old: nn.Module, like: Tensor) -> nn.Module:
    """The successor of a module."""
    told: dict[str, Any] = {key: found[key] for key in rule.wants}
    new = rule.make(**told, **({"old": old} if rule.old else {}))
    if not isinstance(new, nn.Module):
        raise TypeError(f"replacements: {name!r} would become a {type(new).__name__}, allowed is a module")
    if (arity := getattr(new, "arity", 1)) != 1:
        raise ValueError(
            f"replacements: {name!r} would become {new}, which gives one output of {arity} inputs, allowed is "
            f"what keeps their number; to_units gives the layer before it {arity} times the outputs"
        )
    new.to(like).train(old.training)
    if all(module is not old for module in new.modules()):
        hand_over_hooks(old, new)
    elif _without_settings in old._forward_pre_hooks.values():
        new.register_forward_pre_hook(_without_settings, with_kwargs=True)
    return new


def _is_below(name: str, others: Sequence[str]) -> bool:
    """Whether a module is inside one of others."""
    return any(name != other and (not other or name.startswith(f"{other}.")) for other in others)
