"""Activations that a module calls as functions become modules, so that they can be replaced like others.

Of a module only its own ``forward`` is rewritten: torch.fx traces it with every module inside as one node. The module
stays what it is, an instance of its class with its attributes, hooks and the keys of its state dict.
"""

from __future__ import annotations

import contextlib
import copy
import copyreg
import importlib
import inspect
import operator
import sys
from collections.abc import Callable, Collection, Hashable, Iterator
from types import CellType, CodeType, ModuleType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.immutable_collections import immutable_dict

from companion.activations import FUNCTIONS, NAMES_OF_FUNCTIONS, kind_of_function
from companion.operators import refuse_script
from companion.surgery.modes import QUESTIONS, TRACING, answered_otherwise, nothing_is_drawn
from companion.surgery.places import copied

__all__ = [
    "IN_PLACE",
    "Called",
    "Overwritten",
    "Rewritten",
    "attributes",
    "call_modules",
    "called_functions",
    "is_number",
    "names_in",
    "unseen",
]


class Called(nn.Module):
    """An activation that was called as a function: φ(x), with the settings that it was called with.

    Parameters
    ----------
    function : callable or str
        In `companion.activations.FUNCTIONS`: a function of torch, or the name of a method.
    settings, options
        What it is given after x.
    """

    def __init__(self, function: Any, settings: tuple[Any, ...], options: dict[str, Any]) -> None:
        super().__init__()
        self.function, self.settings, self.options = function, settings, options

    @property
    def kind(self) -> str:
        """The name of the activation."""
        kind = kind_of_function(self.function)
        assert kind is not None
        return kind

    def forward(self, x: Tensor, *settings: Any, **options: Any) -> Tensor:
        """Call the function."""
        function = getattr(Tensor, self.function) if isinstance(self.function, str) else self.function
        result: Tensor = function(x, *self.settings, *settings, **{**self.options, **options})
        return result

    def extra_repr(self) -> str:
        """The name of the function."""
        return self.kind


class Rewritten(type):
    """The kind of classes whose ``forward`` torch.fx wrote down, with modules where functions were called.

    Such a class inherits everything else from the one that a module was of, and has its name. As nobody can import it,
    a pickle makes it again.
    """

    written: tuple[type[nn.Module], str, dict[str, Any]]

    def __new__(cls, base: type[nn.Module], source: str, names: dict[str, Any]) -> Any:
        """Make the class, or find it; of a class that inherits from one, as sharding makes it, Python's own way."""
        if isinstance(base, str):
            return type.__new__(cls, base, source, {"__module__": sys._getframe(1).f_globals["__name__"], **names})
        if type(base) is not type:
            raise ValueError(f"its class is of the kind {type(base).__name__}")
        key = (base, source, frozenset(names.items()))
        if key not in _CLASSES:
            found = dict(names)
            exec(compile(source, "<forward with modules for functions>", "exec"), found)
            own: dict[str, Any] = {"forward": found["forward"], "written": (base, source, names)}
            own["__prepare_scriptable__"] = refuse_script
            own |= {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
            try:
                _CLASSES[key] = type.__new__(cls, base.__name__, (base,), own)
            except TypeError as error:
                raise ValueError(f"its class cannot be inherited from ({error})") from error
        return _CLASSES[key]

    def __init__(cls, base: type[nn.Module], source: str, names: dict[str, Any]) -> None:
        """All is done."""

    def __reduce__(cls) -> Any:
        """Return what makes the class again: Python's modules among the names are named."""
        if "written" not in vars(cls):
            return cls.__qualname__
        base, source, names = cls.written
        modules = {name: thing.__name__ for name, thing in names.items() if isinstance(thing, ModuleType)}
        return _made_again, (base, source, {n: names[n] for n in names if n not in modules}, modules)


_CLASSES: dict[Any, Rewritten] = {}


def _made_again(base: type[nn.Module], source: str, names: dict[str, Any], modules: dict[str, str]) -> Rewritten:
    made: Rewritten = Rewritten(base, source, {**names, **{n: importlib.import_module(modules[n]) for n in modules}})
    return made


copyreg.pickle(Rewritten, Rewritten.__reduce__)


def attributes(module: nn.Module) -> dict[str, Any]:
    """The attributes of a module that are activations as functions, such as that of a transformer layer of torch."""
    if type(module).__module__.startswith("companion."):
        return {}
    own = {name: value for name, value in vars(module).items() if callable(value) and not isinstance(value, nn.Module)}
    return {name: value for name, value in own.items() if kind_of_function(value)}


# --- who calls what ----------------------------------------------------------------------------------------------


def _contained(thing: Any) -> Iterator[Any]:
    """A thing, or what is in it, if it is one of Python's containers."""
    if isinstance(thing, dict):
        yield from thing.values()
    elif isinstance(thing, (list, tuple)):
        yield from thing
    else:
        yield thing


def _own(module: nn.Module) -> Iterator[Any]:
    """What a module has as attributes, and what is in lists and dictionaries there; no modules that it knows of."""
    for name, value in vars(module).items():
        if name not in _TORCHS:
            yield from _contained(value)


_TORCHS = frozenset(vars(nn.Module()))


def _codes(module: nn.Module) -> Iterator[tuple[CodeType, list[tuple[str, Any]]]]:
    """All code that a module's forward may run, with its names and what each may stand for.

    These are the forward itself, methods of its class, functions that the module holds, and those that the code finds
    in its own library.
    """
    kind = type(module)
    library = kind.__module__.partition(".")[0]
    waiting: list[Any] = [kind.forward, *_own(module)]
    seen = set[Any]()
    while waiting:
        function = waiting.pop()
        function = inspect.unwrap(function) if callable(function) else None
        if not inspect.isfunction(function) or function in seen:
            continue
        seen.add(function)
        codes = [function.__code__]
        for code in codes:
            codes.extend(const for const in code.co_consts if isinstance(const, CodeType))
            # what every module has is no way to activations
            methods = [(n, getattr(kind, n)) for n in code.co_names if hasattr(kind, n) and not hasattr(nn.Module, n)]
            known = [(n, function.__globals__[n]) for n in code.co_names if n in function.__globals__]
            known += [("", cell.cell_contents) for cell in function.__closure__ or () if _is_filled(cell)]
            yield code, [(name, None) for name in code.co_names] + methods + known
            waiting.extend(thing for _, things in methods for thing in _contained(things))
            waiting.extend(f for _, things in known for f in _contained(things) if _is_of(library, f))


def names_in(module: nn.Module) -> set[str]:
    """The names in all code that a module's forward may run."""
    return {name for code, _ in _codes(module) for name in code.co_names}


def _is_of(library: str, thing: Any) -> bool:
    return inspect.isfunction(thing) and thing.__module__.partition(".")[0] == library


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def called_functions(module: nn.Module) -> set[str]:
    """The kinds of activations that a module may call as functions, by the names in its code and what it holds."""
    things = [*_own(module)]
    found: set[str] = set()
    for _, named in _codes(module):
        for name, thing in named:
            if name not in module._modules:
                found.add(NAMES_OF_FUNCTIONS.get(name, ""))
                things.extend(_contained(thing))
    callables = (thing for thing in things if callable(thing) and isinstance(thing, Hashable))
    return found - {""} | {FUNCTIONS[thing] for thing in callables if thing in FUNCTIONS}


def unseen(module: nn.Module) -> dict[str, nn.Module]:
    """By the attribute, modules that a module uses and PyTorch does not see: in its lists, in its class."""
    kind = type(module)
    names = names_in(module) - module._modules.keys()
    held = [*vars(module).items(), *((name, getattr(kind, name, None)) for name in names)]
    held = [(name, thing) for name, value in held if name not in _TORCHS for thing in _contained(value)]
    return {name: thing for name, thing in held if isinstance(thing, nn.Module)}


# --- a forward is rewritten --------------------------------------------------------------------------------------


# What torch.fx does without a word: it asks a stand-in for the argument, forgets the context, or builds in an answer.
_ASKING = {"isinstance", "hasattr", "is_tensor"}
_CONTEXTS = {"autocast", "enable_grad", "inference_mode", "is_initialized", "no_grad", "set_grad_enabled"}
_CONTEXTS |= {"checkpoint", "checkpoint_sequential"}


def _contexts(module: nn.Module) -> set[str]:
    """The names of such contexts in a module's forward, which may be those of its children, too."""
    named = [(name, thing) for _, pairs in _codes(module) for name, thing in pairs if name in _CONTEXTS]
    return {name for name, thing in named if name not in module._modules or _is_of("torch", thing)}


_NUMBERS = {len, "item", "tolist", "size", "dim", "ndimension", "numel", "nelement", "stride", "shape", "ndim"}


def is_number(node: fx.Node) -> bool:
    """Whether a node is a number or a shape, which nobody can write into: asked for, or computed from such alone."""
    if "number" not in node.meta:  # of its inputs it is known, for a tracer asks as it makes them
        asked = (node.args[1] if node.target is getattr else node.target) in _NUMBERS
        counted = getattr(node.target, "__module__", "") in ("_operator", "math") and bool(node.all_input_nodes)
        calls = node.op in ("call_function", "call_method")
        node.meta["number"] = calls and (asked or (counted and all(map(is_number, node.all_input_nodes))))
    return bool(node.meta["number"])


class Overwritten(fx.Proxy):
    """What stands for a value that ``x += y`` writes into: to torch.fx it is another one, while x is read as before."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse what a graph forgets, such as ``x.data *= 2``."""
        if name not in ("tracer", "node"):
            raise TypeError(f"it sets {name} of {self.node}")
        super().__setattr__(name, value)


def _in_place(name: str) -> Callable[[fx.Proxy, Any], fx.Proxy]:
    def compute(x: fx.Proxy, y: Any) -> fx.Proxy:
        new = is_number(x.node) or isinstance(y, tuple)  # nobody writes into a tuple, either
        function = getattr(operator, f"__{name}__" if new else f"__i{name}__")
        return x.tracer.create_proxy("call_function", function, (x, y), {})

    return compute


#: By what writes into its first operand, what gives the same in new memory.
IN_PLACE: dict[Any, Any] = {}
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"):
    IN_PLACE[getattr(operator, f"__i{_name}__")] = getattr(operator, f"__{_name}__")
    setattr(Overwritten, f"__i{_name}__", _in_place(_name))


class _Own(fx.Tracer):
    """Traces what a module does itself."""

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """Make what stands for a value."""
        is_number(node)
        return Overwritten(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Every module inside is one node."""
        return True

    def create_arg(self, a: Any) -> Any:
        """Refuse what torch.fx would make a plain dictionary, such as an output with attributes."""
        if isinstance(a, dict) and type(a) is not dict and not isinstance(a, immutable_dict):
            raise TypeError(f"it would become a dict: {type(a).__name__}")
        return super().create_arg(a)


@contextlib.contextmanager
def _all_in(module: nn.Module, training: bool) -> Iterator[None]:
    """A module and those inside, which may be asked for it, in a mode."""
    modes = {inner: inner.training for inner in module.modules()}
    try:
        for inner in modes:
            vars(inner)["training"] = training
        yield
    finally:
        for inner, mode in modes.items():
            vars(inner)["training"] = mode


def _traced(module: nn.Module) -> fx.Graph:
    """The forward of a module as a graph, if it is the same for every call; else the error says why."""
    if isinstance(module, fx.GraphModule):
        raise ValueError("it is a GraphModule, whose copies are made from its graph")
    if "forward" in vars(module):
        raise ValueError("its forward is not that of its class")
    if hasattr(type(module).forward, "__wrapped__"):
        raise ValueError("its forward is decorated")
    signature = inspect.signature(module.forward)
    if any(p.default is not p.empty or p.kind is not p.POSITIONAL_OR_KEYWORD for p in signature.parameters.values()):
        raise ValueError("its forward has optional arguments")
    names = names_in(module)
    if names & _ASKING:
        raise ValueError("its forward depends on the kind of its arguments")
    if contexts := _contexts(module):
        raise ValueError(f"its forward uses {', '.join(sorted(contexts))}")
    written = []
    try:
        # a copy that shares what it holds: what tracing leaves behind, stays there
        replica = copy.deepcopy(module, {id(x): x for x in (*module.children(), *module.parameters(recurse=False))})
        before = _state(replica)
        for training, asked in ((not module.training, ()), (module.training, QUESTIONS), (module.training, ())):
            with TRACING, _all_in(replica, training), answered_otherwise(asked), nothing_is_drawn():
                graph = _Own().trace(replica)
            written.append(graph.python_code("self").src)
    except Exception as error:
        raise ValueError(f"torch.fx cannot trace it ({type(error).__name__}: {error})") from error
    after = _state(replica)
    if after.keys() != before.keys():
        raise ValueError("it makes a tensor of numbers")
    if after != before:
        raise ValueError(f"it changes its {', '.join(name for name in before if after[name] != before[name])}")
    if written[0] != written[2]:
        raise ValueError("it does something else in training")
    if written[1] != written[2]:
        raise ValueError(f"it decides by a mode of torch's, one of {', '.join(QUESTIONS)}")
    return graph


def _state(module: nn.Module) -> dict[str, tuple[Any, int]]:
    """What a module holds itself, and how often or how far that was changed in place."""
    own = {name: thing for name, thing in {**vars(module), **module._buffers}.items() if name != "training"}
    return {
        name: (id(thing), _version(thing) if isinstance(thing, Tensor) else len(thing) if _grows(thing) else 0)
        for name, thing in own.items()
    }


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _grows(thing: Any) -> bool:
    return isinstance(thing, (list, dict, set))


def _overwrites(node: fx.Node) -> bool:
    """Whether a call of an activation writes into its operand."""
    if getattr(node.target, "__name__", str(node.target)).endswith("_"):
        return True
    if isinstance(node.target, str) or not inspect.isfunction(node.target):
        return False
    given = inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments
    return bool(given.get("inplace", False))


def call_modules(module: nn.Module, wanted: Callable[[str, nn.Module], bool], apart: Collection[str] = ()) -> list[str]:
    """Let a module call modules where it calls activations as functions, or where it calls one of its own again.

    Parameters
    ----------
    module : nn.Module
        It is changed: it has new children, and is of a class that is a `Rewritten`.
    wanted : callable
        Asked with the name and the module that a call would become.
    apart : collection of str
        Names of children without parameters. Every call but the first becomes that of a copy.

    Returns
    -------
    list of str
        The names of the new children, which are of the class `Called`, or copies. If there are none, nothing was
        changed.

    Raises
    ------
    ValueError
        If torch.fx cannot write down what the module does.
    """
    graph = _traced(module)
    order = {node: index for index, node in enumerate(graph.nodes)}
    made: dict[str, nn.Module] = {}
    offered: set[str] = set()
    met: set[str] = set()
    for node in list(graph.nodes):
        if node.op == "call_module" and node.target in apart:
            if (again := str(node.target)) in met:
                node.target = next(n for n in _numbered(again) if not hasattr(module, n) and n not in made)
                made[node.target] = copied(module.get_submodule(again))
            met.add(again)
        if node.op not in ("call_function", "call_method") or node.target not in FUNCTIONS:
            continue
        if not (node.args and isinstance(node.args[0], fx.Node)) or node.args[0].op == "get_attr":
            continue  # of a parameter it is no activation, but the way to a positive number
        kind = FUNCTIONS[node.target]
        name = next(n for n in _numbered(kind) if not hasattr(module, n) and n not in offered)
        offered.add(name)
        options = {key: value for key, value in node.kwargs.items() if key != "inplace"}
        called = Called(node.target, node.args[1:], options).train(module.training)
        if _has_nodes(called) or not wanted(name, called):
            continue
        made[name] = called
        if _overwrites(node):
            for user in list(node.args[0].users):
                if order[user] > order[node]:
                    user.replace_input_with(node.args[0], node)
            if not node.users:  # what it wrote into is read by another name
                raise ValueError("it activates a part of a tensor in place")
        node.op, node.target, node.args, node.kwargs = "call_module", name, (node.args[0],), {}
    if made:
        code = graph.python_code("self")
        rewritten = Rewritten(_written_by_somebody(module), code.src, dict(code.globals))
        for name, child in made.items():
            module.add_module(name, child)
        module.__class__ = rewritten  # type: ignore[assignment]
    return [*made]


def _written_by_somebody(module: nn.Module) -> type[nn.Module]:
    """The class that a module is of, or was before its ``forward`` was rewritten."""
    kind: Any = type(module)
    written: type[nn.Module] = kind.written[0] if isinstance(kind, Rewritten) else kind
    return written


def _has_nodes(called: Called) -> bool:
    """Whether a setting is computed by the network, as a slope that is a parameter."""
    nodes: list[fx.Node] = []
    torch.fx.node.map_arg((called.settings, called.options), nodes.append)
    return bool(nodes)


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 1
    while True:
        yield f"{name}_{number}"
        number += 1
