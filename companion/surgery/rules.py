"""What is to be replaced by what: the rules that a caller gives, and what they say of a module."""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from companion import rooms
from companion.activations import FUNCTIONS, KINDS, MODULES, is_softmax, kind_of, named
from companion.surgery.functions import Called

__all__ = ["Key", "Make", "Rule", "Rules", "Where", "called_kind", "rule_of"]

Key = type[nn.Module] | str
Make = Callable[..., nn.Module] | str
Where = str | Sequence[str] | Callable[[str, nn.Module], bool]


class Rule(NamedTuple):
    """What makes a new module, what it wants to be told about the channels, and whether about the module before."""

    make: Callable[..., nn.Module]
    wants: tuple[str, ...]
    old: bool


def _makers() -> dict[str, type[nn.Module]]:
    """What a name may stand for: torch's activations and those of all rooms that can be made without being told more
    than the channels; but not GLU, which halves them, nor what is a gate of its own."""
    own = [
        kind
        for room in rooms.modules("layers").values()
        for kind in vars(room).values()
        if isinstance(kind, type) and issubclass(kind, nn.Module) and kind.__module__ == room.__name__
    ]
    known = {**KINDS, **{kind.__name__.lower(): kind for kind in own if not kind.__name__.startswith("_")}}
    return {
        name: make
        for name, make in known.items()
        if {*_needed(make)} <= {"channels", "dim"} and not (name == "glu" or name.endswith("attention"))
    }


def _needed(make: Callable[..., Any]) -> list[str]:
    """The parameters without a default."""
    parameters = inspect.signature(make).parameters.values()
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in several]


def rule_of(make: Make, *, told: bool = False) -> Rule:
    """What makes a module, and what it wants to be told, or a clear error; all that it can be, where that is known."""
    if isinstance(make, str):
        known = _makers()
        spelt = {name.replace("_", ""): name for name in known}.get(make.lower().replace("_", ""))
        if spelt is None:
            raise ValueError(f"replacements: got {make!r}, allowed are {', '.join(known)}, or what makes a module")
        make = known[spelt]
    if isinstance(make, nn.Module):
        raise TypeError(f"replacements: got the module {make}, allowed is a class or a function that makes one")
    if not callable(make) or make in FUNCTIONS:
        raise TypeError(f"replacements: got {make!r}, allowed is a name, a class or a function that makes a module")
    needed = _needed(make)
    if others := [name for name in needed if name not in ("channels", "dim", "old")]:
        what, few = getattr(make, "__name__", repr(make)), ", ".join(map(repr, others))
        raise TypeError(
            f"replacements: got {what}, which wants {few}, allowed are parameters called channels, dim and old, and "
            "others with defaults; such as lambda channels, dim: RAA(channels, dim=dim)"
        )
    given = inspect.signature(make).parameters.keys() & {"channels", "dim"}
    wants = tuple(name for name in ("channels", "dim") if name in (given if told or "channels" in given else needed))
    return Rule(make, wants, "old" in needed)


class Rules:
    """Which module is replaced, and by what."""

    def __init__(self, replacements: Mapping[Key, Make], where: Where, strict: bool) -> None:
        if not (callable(where) or (isinstance(where, Sequence) and all(isinstance(each, str) for each in where))):
            raise TypeError(f"where: got {where!r}, allowed are a pattern of names, several, or a function")
        self.where, self.strict = where, strict
        #: By the name of a module that stands for further calls of another, the name of that.
        self.calls_of: dict[str, str] = {}
        self.classes: dict[type[nn.Module], Rule] = {}
        self.kinds: dict[str, Rule] = {}
        for key, make in replacements.items():
            rule, kind = rule_of(make), named(key) if isinstance(key, str) else None
            if isinstance(key, str):
                if kind is None:
                    raise ValueError(f"replacements: got {key!r}, allowed are {', '.join(KINDS)}, or a class")
                key = KINDS[kind]
            elif not (isinstance(key, type) and issubclass(key, nn.Module)):
                raise TypeError(f"replacements: got {key!r}, allowed are names of activations and classes of modules")
            elif key in MODULES:
                kind = named(key.__name__)
            self.classes[key] = rule
            if kind is not None and not strict:
                self.kinds[kind] = rule

    def wanting(self) -> str:
        """The first class whose successor wants to know its channels."""
        return next((kind.__name__ for kind, rule in self.classes.items() if rule.wants), "")

    def of(self, name: str, module: nn.Module) -> Rule | None:
        """What replaces a module, if anything does."""
        return self._by_kind(module) if self._is_where(name, module) else None

    def wants(self, prefix: str, name: str, module: nn.Module) -> bool:
        """Whether something replaces a module inside of another, whose name is before its own."""
        return self.of(prefix + name, module) is not None

    def _is_where(self, name: str, module: nn.Module) -> bool:
        if "parametrizations" in name.split("."):  # it makes a weight, as a function of a parameter does
            return False
        name = self.calls_of.get(name, name)
        if callable(self.where):
            return self.where(name, module)
        patterns = [self.where] if isinstance(self.where, str) else self.where
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    def _by_kind(self, module: nn.Module) -> Rule | None:
        if self.strict:
            return self.classes.get(type(module))
        by_class = next((self.classes[base] for base in type(module).__mro__ if base in self.classes), None)
        return by_class or self.kinds.get(called_kind(module) or "")

    def why_not(self, name: str, module: nn.Module) -> str:
        """Why an activation stays."""
        kind = called_kind(module)
        if kind is not None and "parametrizations" in name.split("."):
            return "it makes a weight"
        what = kind if isinstance(module, Called) else type(module).__name__
        if self._by_kind(module):
            return "where leaves it out"
        if self.strict and any(issubclass(type(module), base) for base in self.classes):
            base = next(base for base in self.classes if issubclass(type(module), base))
            return f"{what} is a subclass of {base.__name__}"
        if kind is None or is_softmax(kind):
            return ""
        if self.strict and KINDS[kind] in self.classes:
            if isinstance(module, Called):
                return f"{what} is called as a function"
            return f"{what} of {type(module).__module__} is not torch's"
        return f"no replacement of {what} is given"


def called_kind(module: nn.Module) -> str | None:
    return module.kind if isinstance(module, Called) else kind_of(module)
