"""A network as a graph: tracing with torch.fx, what its nodes are, and errors that name the module to blame."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import operator
import sys
import traceback
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.immutable_collections import immutable_dict
from torch.nn import functional as F

from companion.activations import ACTIVATIONS, FUNCTIONS, is_elementwise, is_softmax, kind_of
from companion.dac.calls import (
    ByMode,
    Evaluated,
    answers_built_in,
    built_in,
    counted,
    decided,
    differences,
    known,
    let_choose,
)
from companion.neurons import of_module
from companion.rehearsal import Example, deepcopy, example_of
from companion.surgery import functions, modes
from companion.surgery.functions import IN_PLACE, Overwritten, is_number, names_in
from companion.surgery.modes import (
    ANSWERS,
    PROCESSES,
    QUESTIONS,
    TRACING,
    answered_otherwise,
    nothing_is_drawn,
)
from companion.surgery.places import part, put

__all__ = ["SHAPE", "VIEWS", "Network", "free_name", "trace"]


class _Counted:
    """Lets Python unpack a shape, as in ``x.view(*x.shape, 1)``: it asks how long it is."""

    tracer: Any

    def __len__(self) -> int:
        return self.tracer.length(self)  # type: ignore[no-any-return]


class _Attribute(_Counted, fx.proxy.Attribute):
    """What stands for an attribute of a value."""


class _Proxy(_Counted, Overwritten):
    """What stands for a value."""

    def __getattr__(self, name: str) -> Any:
        """Return what stands for the attribute, which may be a method; of a buffer what no ``Module.to`` changes."""
        own = getattr(self.tracer.held(self), name, None)
        lasts = name in ("ndim", "shape") or (isinstance(own, torch.dtype) and not own.is_floating_point)
        lasts = lasts and own is not None
        return own if lasts else _Attribute(self, name)

    def __float__(self) -> float:
        """Return a number that a buffer holds."""
        return float(self.tracer.number(self))

    def __int__(self) -> int:
        """Return a number that a buffer holds."""
        return int(self.tracer.number(self))

    @classmethod
    def __torch_function__(cls, orig_method: Any, types: Any, args: Any = None, kwargs: Any = None) -> Any:
        """Look into a private function of the book's own modules, which another tracer takes whole."""
        ours = inspect.isfunction(orig_method) and orig_method.__module__.startswith("companion.")
        if ours and orig_method.__name__.startswith("_"):
            return inspect.unwrap(orig_method)(*args, **(kwargs or {}))
        return super().__torch_function__(orig_method, types, args, kwargs)


class _Tracer(fx.Tracer):
    """torch.fx's tracer, which here can answer questions about shapes and keeps the book's own modules whole."""

    #: What is computed from buffers is computed when the network runs; they keep their names.
    proxy_buffer_attributes = True

    def __init__(
        self,
        example_input: Tensor | None = None,
        fixed: Mapping[str, Any] | None = None,
        untraced: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.example_input, self.fixed, self.untraced = example_input, fixed or {}, untraced
        self.inside: list[nn.Module] = []
        self.values: dict[fx.Node, Any] = {}
        #: What is computed from buffers alone, and what has no gradient: that, and what shapes decide.
        self.of_buffers, self.without_gradient = set[fx.Node](), set[fx.Node]()
        self.computing = self.done = False
        self.modes = self._modes()

    @staticmethod
    def _modes() -> dict[str, bool]:
        return {name: answer() for name, (answer, _) in QUESTIONS.items()}

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        """Refuse what is computed in another mode of torch's than the network was called in: a graph forgets it."""
        if self.done:
            raise ValueError("it computes with what it has kept of another call")
        node, modes = super().create_node(*args, **kwargs), self._modes()
        inputs, calls = set(node.all_input_nodes), node.op in ("call_function", "call_method")
        if calls and node.kwargs.get("out") is not None:
            raise ValueError("it gives an operation the tensor to write into")
        held = node.op == "get_attr" and (
            node.target in dict(self.root.named_buffers()) or isinstance(vars(self.root).get(str(node.target)), Tensor)
        )
        if calls and inputs and _writes(node) and not inputs <= self.of_buffers:
            self._forget(node.args[0])
        if held or (calls and inputs and inputs <= self.of_buffers):
            self.of_buffers.add(node)
        if held or (calls and (_asks(node) or _name(node) in _WITHOUT_GRADIENT or inputs <= self.without_gradient)):
            self.without_gradient.add(node)
            modes["gradients"] = self.modes["gradients"]
        if modes != self.modes and node.op not in ("placeholder", "get_attr"):
            raise ValueError("it computes inside of torch.no_grad, autocast or the like, which a graph forgets")
        return node

    def _forget(self, into: Any) -> None:
        """What is written into, and all that was made of it, is no longer of buffers alone."""
        changed = {into}
        while isinstance(into, fx.Node) and _is_view(self.root, into):
            changed.add(into := into.all_input_nodes[0])
        for node in self.graph.nodes:
            if node in self.without_gradient and not changed.isdisjoint(node.all_input_nodes):
                changed.add(node)
        self.of_buffers -= changed
        self.without_gradient -= changed

    def create_arg(self, a: Any) -> Any:
        """Refuse what another tracing left behind, and a dictionary of which torch.fx would forget the attributes."""
        if isinstance(a, fx.Proxy) and a.tracer is not self:
            raise ValueError("it computes with what it has kept of another call")
        if isinstance(a, dict) and type(a) not in (dict, OrderedDict, defaultdict, immutable_dict):
            raise TypeError(f"it would become a dict: {type(a).__name__}")
        return super().create_arg(a)

    def create_proxy(self, *args: Any, **kwargs: Any) -> Any:
        """Make what stands for a value; the shape of a buffer is what it is."""
        proxy = super().create_proxy(*args, **kwargs)
        if proxy.node not in self.of_buffers or not is_number(proxy.node):
            return proxy
        value = self._value(proxy.node)
        self.graph.erase_node(proxy.node)
        return value

    def held(self, obj: fx.Proxy) -> Any:
        """What a value is if it is computed from buffers alone; else None."""
        return self._value(obj.node) if obj.node in self.of_buffers else None

    def number(self, obj: fx.Proxy) -> Any:
        """What a buffer holds, or a number is for the example; else an error."""
        value: Any = self._value(obj.node) if self._is_answered(obj) else None
        if obj.node not in self.of_buffers and not isinstance(value, (int, float)):
            raise TypeError("it makes a number of what it computes, which would be built in")
        return self._decided(obj, value)

    def _decided(self, obj: fx.Proxy, answer: Any, ask: Callable[..., None] = decided) -> Any:
        """What an example answers, which the new network asks again whenever it is called."""
        if obj.node not in self.of_buffers:
            line = _line(traceback.extract_stack()) or "its code"
            self.create_proxy("call_function", ask, (obj, answer, line), {})
        return answer

    def _is_answered(self, obj: fx.Proxy) -> bool:
        return self.example_input is not None or obj.node in self.of_buffers

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module becomes one node of the graph."""
        if super().is_leaf_module(m, module_qualified_name):
            return True
        if of_module(m) is not None and not isinstance(m, nn.Sequential):
            return True
        alone = next(m.children(), None) is None
        owns = next(m.parameters(), next(m.buffers(), None)) is not None
        return alone and (owns or type(m).__module__.startswith("companion.") or _asks_for_its_mode(m))

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Remember which module is being traced, unless this is a computation for the example."""
        if self.computing:
            return forward(*args, **kwargs)
        self.inside.append(m)
        result = super().call_module(m, forward, args, kwargs)
        # not in a finally: after an error the last one is to blame
        self.inside.pop()
        return result

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """Make what stands for a value."""
        return _Proxy(node, self)

    def create_args_for_root(self, *args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
        """Let arguments that are fixed be what they are, and not what stands for them."""
        function, given = super().create_args_for_root(*args, **kwargs)
        own = {name: copy.copy(value) for name, value in self.fixed.items()}
        return function, [own.get(str(x.node.target), x) if isinstance(x, fx.Proxy) else x for x in given]

    def is_a(self, obj: fx.Proxy, kinds: Any) -> bool:
        """Whether a value is of a kind for the example; without one, arguments are tensors."""
        if self._is_answered(obj):
            return isinstance(self._value(obj.node), kinds)
        kind = {"placeholder": Tensor, "get_attr": nn.Parameter}.get(obj.node.op)
        if kind is None and not isinstance(obj, kinds) and issubclass(Tensor, kinds):
            raise TypeError("it asks whether a value is a tensor")
        return isinstance(obj, kinds) or issubclass(kind or type(obj), kinds)

    def length(self, obj: fx.Proxy) -> int:
        """How many numbers a shape has for the example; of tensors this is the batch's business."""
        value: Any = self._value(obj.node) if self._is_answered(obj) else None
        return len(value) if isinstance(value, tuple) or obj.node in self.of_buffers else fx.Proxy.__len__(obj)

    def to_bool(self, obj: fx.Proxy) -> bool:
        """Decide as the network does for the example."""
        return self._decided(obj, bool(self._value(obj.node))) if self._is_answered(obj) else super().to_bool(obj)

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        """As many elements as there are for the example."""
        if not self._is_answered(obj):
            return super().iter(obj)
        count = self._decided(obj, len(self._value(obj.node)), counted)
        return iter([operator.getitem(obj, index) for index in range(count)])

    @torch.no_grad()
    def _value(self, wanted: fx.Node) -> Any:
        """What a node is for the example input, or for any if it is computed from buffers alone."""
        if not self.values:
            shared = self.root.parameters() if self.example_input is None else ()
            own = self.root if self.untraced is None else self.untraced
            replica = deepcopy(own, {id(parameter): parameter for parameter in shared})
            replica.eval()
            self.network = fx.Interpreter(replica, graph=self.graph)
            self.network.args_iter = iter([self.example_input])
            self.network.env = self.values
        self.computing = wanted not in self.of_buffers  # a number that is drawn there would be built in
        for node in self.graph.nodes:
            if node not in self.values and (wanted not in self.of_buffers or node in self.of_buffers):
                self.values[node] = self.network.run_node(node)
        self.computing = False
        return self.values[wanted]


def _asks_for_its_mode(module: nn.Module) -> bool:
    """Whether a module may do something else in training, as stochastic depth does: a graph is of one mode."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code is not None and "training" in code.co_names


def trace(model: nn.Module, example: Example | None) -> Network:
    """A copy of a network as a graph in which nothing works in place."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: got {type(model).__name__}, allowed is an nn.Module")
    if hasattr(model, "_orig_mod"):
        raise TypeError("model: got what torch.compile has returned, allowed is the network itself; compile afterwards")
    if "forward" in vars(model):
        raise ValueError(
            f"model: got a {type(model).__name__} whose forward was put on the object, allowed is that of its class; "
            "torch.fx traces no other"
        )
    example_input = _one_tensor(model, example)
    own = {*dir(fx.GraphModule(nn.Module(), fx.Graph()))} - {*dir(nn.Module())}
    if taken := own & {*model._modules, *model._parameters, *model._buffers}:
        raise ValueError(f"model: got something of the name {min(taken)!r}, which a network of torch.fx has itself")
    root = deepcopy(model)
    part(root, lambda _, module: kind_of(module) is not None, lambda name, new, _: put(root, name, new))
    replica = _replica(root)
    root, graph, fixed = _with_arguments(root, example_input)
    _refuse_what_counts(root, graph, replica, example_input, fixed)
    answers = {name: ANSWERS[name]() for name in _asked(root, graph, replica, example_input, fixed)}
    switched, otherwise = _in_both_modes(root, graph, replica, example_input, fixed)
    _drop_questions(graph)
    _leave_no_place(root, graph, switched)
    limits = {name.lstrip("*"): f"{value!r}, which is built in" for name, value in (fixed | answers).items()}
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    with graph.inserting_after(placeholders[-1]) if placeholders else contextlib.nullcontext():
        for node in placeholders:
            if node.target in fixed:
                graph.call_function(built_in, (node, fixed[node.target], node.target.lstrip("*")))
        if answers:
            graph.call_function(answers_built_in, (answers,))
        if otherwise:
            limits["training"] = f"False: {otherwise}"
            graph.call_module(_added(root, "evaluated", Evaluated(otherwise).eval()))
    return Network(root, graph, limits)


def _one_tensor(model: nn.Module, example: Example | None) -> Tensor | None:
    """The network's one argument; what takes several is traced without."""
    args, kwargs = ((), {}) if example is None else example_of(model, example)
    return args[0] if len(args) == 1 and not kwargs and isinstance(args[0], Tensor) else None


def _graph(
    root: nn.Module, example_input: Tensor | None, fixed: Mapping[str, Any], untraced: nn.Module | None = None
) -> fx.Graph:
    """What torch.fx makes of a network, or an error that names the module to blame.

    Of one that was traced before, there is a copy that was not: what tracing left behind cannot always be copied.
    """
    tracer = _Tracer(example_input, fixed, untraced)
    try:
        with TRACING, _questions_are_answered(root), nothing_is_drawn(lambda: tracer.computing):
            graph, tracer.done = tracer.trace(root), True
            return graph
    except Exception as error:
        culprit = tracer.inside[-1] if tracer.inside else root
        names = {module: name for name, module in root.named_modules()}
        if culprit not in names:
            caller = next((module for module in reversed(tracer.inside) if module in names), root)
            raise ValueError(
                f"model: {_described(names, caller)} calls a {type(culprit).__name__} that is none of its children, "
                "such as one in a list or in a class; an nn.ModuleList makes it one"
            ) from error
        shapes = "" if example_input is not None else "; where shapes decide, an example may help"
        said = _line(traceback.extract_tb(error.__traceback__))
        raise ValueError(
            f"model: torch.fx cannot trace {_described(names, culprit)} ({type(error).__name__}: {error})"
            f"{said and f'; it is {said}'}{shapes}; a part of the network, such as a perceptron in it, may be traced "
            "alone"
        ) from error


def _replica(root: nn.Module) -> nn.Module:
    """A copy with the same parameters and buffers. What tracing leaves behind in a network cannot always be copied."""
    return deepcopy(root, {id(tensor): tensor for tensor in (*root.parameters(), *root.buffers())})


def _refuse_what_counts(
    root: nn.Module, graph: fx.Graph, untraced: nn.Module, example_input: Tensor | None, fixed: Mapping[str, Any]
) -> None:
    """Refuse a network that is another one when it is traced again, without reading what it has kept of the first time.

    Of what is kept, a graph does not show whether it is the past that matters, or a table that was made once.
    """
    try:
        again = _graph(root, example_input, fixed, untraced)
    except ValueError:  # what it has kept decides
        return
    if first := differences(root, graph, root, again, {}):
        where = _described({module: name for name, module in root.named_modules()}, _owner(root, first[0][0]))
        raise ValueError(f"model: {where} does something else when it is called again, such as to count its calls")


def _with_arguments(root: nn.Module, example_input: Tensor | None) -> tuple[nn.Module, fx.Graph, dict[str, Any]]:
    """A network, its graph, and the optional arguments that have to be left out, with their defaults.

    What stands for an argument is never None, so that the code of the network may take a wrong decision. It did not if
    the graph with the defaults put in does the same as that of a network that knows them from the start.
    """
    defaults = dict(_optional(root))
    if not defaults:
        return root, _graph(root, example_input, {}), {}
    replica = _replica(root)
    plain: fx.Graph | ValueError
    try:
        plain = _graph(replica, example_input, defaults)
    except ValueError as error:
        plain = error
    try:
        graph = _graph(root, example_input, {})
    except ValueError:
        if isinstance(plain, ValueError):
            raise
        return replica, plain, defaults
    if isinstance(plain, ValueError):  # the network does not work without them
        return root, graph, {}
    values = known(graph, defaults)
    unused = {node for node in values if not node.users}
    if differences(root, graph, replica, plain, values) or any(node.op != "placeholder" for node in unused):
        return replica, plain, defaults
    # an argument that no number depends on may have decided
    return root, graph, {str(node.target): values[node] for node in unused}


def _optional(root: nn.Module) -> Iterator[tuple[str, Any]]:
    """The arguments that may be left out, as torch.fx names them, and what they are then."""
    try:
        parameters = inspect.signature(root.forward).parameters
    except ValueError:  # it is none of Python's, and torch.fx will say so
        return
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield f"*{name}", ()
        elif parameter.kind is parameter.VAR_KEYWORD:
            yield f"**{name}", {}
        elif parameter.default is not parameter.empty:
            yield name, parameter.default


def _asked(
    root: nn.Module, graph: fx.Graph, replica: nn.Module, example_input: Tensor | None, fixed: Mapping[str, Any]
) -> list[str]:
    """What the code of a network asks torch for, where the answer makes its graph another one."""

    def differs(names: Collection[str]) -> bool:
        other_root = _replica(replica)
        try:
            with answered_otherwise(names):
                other = _graph(other_root, example_input, fixed)
        except ValueError:
            return True
        return bool(differences(root, graph, other_root, other, {}))

    asked = [] if not differs(QUESTIONS) else [name for name in QUESTIONS if differs([name])] or [*QUESTIONS]
    written = [m for m in replica.modules() if not type(m).__module__.startswith(("torch.nn.", "companion."))]
    return [*asked, PROCESSES] if any("is_initialized" in names_in(module) for module in written) else asked


def _in_both_modes(
    root: nn.Module, graph: fx.Graph, replica: nn.Module, example_input: Tensor | None, fixed: Mapping[str, Any]
) -> tuple[set[fx.Node], str]:
    """Let numbers of a graph be chosen by the mode; the dropouts that ask for it, and what is else done in training."""
    for module in replica.modules():
        module.training = not module.training
    switched, otherwise = set[fx.Node](), ""
    try:
        other = _graph(replica, example_input, fixed)
    except ValueError as error:
        otherwise = f"in the other mode there is no graph of it: {error}"
    else:
        for node, there in differences(root, graph, replica, other, {}):
            if there is None:
                names = {module: name for name, module in root.named_modules()}
                owner = _described(names, _owner(root, node)).rstrip(",")
                otherwise = f"it does something else in training than in evaluation, first in {owner}"
            elif node.target in _DROPOUTS and _drop(node.target, *there) == _drop(node.target, node.args, node.kwargs):
                switched.add(node)
            else:
                add = functools.partial(_added, root, f"{node.name}_mode")
                let_choose(node, there, _owner(root, node).training, add)
    if otherwise and root.training:
        raise ValueError(f"model: {otherwise}; after eval() it may be converted for evaluation alone")
    return {node for node in graph.nodes if node.target in _DROPOUTS} if otherwise else switched, otherwise


def _drop(function: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """What a dropout as a function is given, but for whether it is in training."""
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    return {name: value for name, value in given.items() if name != "training"}


def _added(root: nn.Module, name: str, new: nn.Module) -> str:
    """The name that a new module got."""
    name = free_name(root, name)
    root.add_module(name, new)
    return name


@contextlib.contextmanager
def _questions_are_answered(root: nn.Module) -> Iterator[None]:
    """Let ``len(x)`` be an operation of the graph, as ``x.size(0)`` is: Python wants a number of it at once.

    Also, ``isinstance(x, kinds)`` is asked about x, not about what stands for it.
    """
    kinds = {base for module in root.modules() for base in type(module).__mro__}
    files = [vars(sys.modules[kind.__module__]) for kind in kinds if kind.__module__ in sys.modules]
    forwards = [getattr(type(module).forward, "__globals__", {}) for module in root.modules()]
    own = {id(g): g for g in (*files, *forwards) if not _is_others(g)}
    answers = [(g, name, answer) for g in own.values() for name, answer in _ANSWERS.items() if name not in g]
    for g, name, answer in answers:
        g[name] = answer
    is_tensor = torch.is_tensor
    imported = [(g, name) for g in own.values() for name, thing in g.items() if thing is is_tensor]
    for g, name in (*imported, (vars(torch), "is_tensor")):
        g[name] = _is_tensor
    try:
        yield
    finally:
        for g, name in (*imported, (vars(torch), "is_tensor")):
            g[name] = is_tensor
        for g, name, _ in answers:
            del g[name]


def _is_others(names: Mapping[str, Any]) -> bool:
    """Whether names are those of a file of torch's, or of Python's."""
    package = str(names.get("__name__", "")).partition(".")[0]
    return package == "torch" or package in sys.stdlib_module_names


def _length(x: Any) -> Any:
    return x.tracer.create_proxy("call_function", len, (x,), {}) if isinstance(x, fx.Proxy) else len(x)


def _is_a(x: Any, kinds: Any) -> bool:
    return x.tracer.is_a(x, kinds) if isinstance(x, _Proxy) else isinstance(x, kinds)


def _is_tensor(x: Any) -> bool:
    return _is_a(x, Tensor)


_ANSWERS: dict[str, Callable[..., Any]] = {"len": _length, "isinstance": _is_a}


def _described(names: Mapping[nn.Module, str], module: nn.Module) -> str:
    name, kind = names[module], type(module).__name__
    return f"module {name!r}, a {kind}," if name else f"the forward of {kind}"


def _line(frames: traceback.StackSummary) -> str:
    """The last line of the network's own code among others."""
    library = str(Path(torch.__file__).parent)
    own = [
        frame
        for frame in frames
        if not frame.filename.startswith((library, __file__, modes.__file__, functions.__file__, contextlib.__file__))
    ]
    return f"the line '{own[-1].line}'" if own and own[-1].line else ""


def _drop_questions(graph: fx.Graph) -> None:
    """Erase what was asked about shapes only while tracing."""
    asked = (
        getattr,
        len,
        operator.getitem,
        operator.lt,
        operator.le,
        operator.gt,
        operator.ge,
        operator.eq,
        operator.ne,
    )
    for node in reversed(graph.nodes):
        if not node.users and (node.target in asked or (node.op == "call_method" and node.target in SHAPE)):
            graph.erase_node(node)


#: What gives a part of a tensor, or another look at it, or perhaps itself: functions, methods, attributes, modules.
_NAMES_OF_VIEWS = """
    getitem view view_as reshape reshape_as chunk split tensor_split hsplit vsplit unbind transpose permute narrow
    select flatten ravel unflatten unfold unsqueeze squeeze expand expand_as broadcast_to detach swapaxes swapdims
    movedim moveaxis t adjoint diagonal einsum as_strided T mT H mH data grad real imag view_as_real view_as_complex
    positive atleast_1d atleast_2d atleast_3d broadcast_tensors dsplit contiguous to cpu cuda type type_as
    float double half bfloat16 dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout
    Identity Flatten Unflatten Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout
"""
VIEWS = frozenset(_NAMES_OF_VIEWS.split())
_OVERLAPPING = frozenset(["expand", "expand_as", "broadcast_to", "broadcast_tensors", "unfold", "as_strided"])


def _is_view(root: nn.Module, node: fx.Node) -> bool:
    if node.op == "call_module":  # what others wrote may give back what it is given
        kind = type(root.get_submodule(str(node.target)))
        return kind.__name__ in VIEWS or not kind.__module__.startswith(("torch.nn.", "companion."))
    if node.target is operator.getitem and _copies(node.args[1]):
        return False
    return node.op in ("call_function", "call_method") and _name(node) in VIEWS and bool(node.all_input_nodes)


def _name(node: fx.Node) -> str:
    """What is called, or asked for."""
    return str(node.args[1] if node.target is getattr else getattr(node.target, "__name__", node.target))


def _writes(node: fx.Node) -> bool:
    """Whether a function or a method writes into its first operand."""
    if node.target in (operator.and_, operator.or_):  # so called because of Python's words
        return False
    named = _name(node).removesuffix("__").endswith("_")  # x.__and__ gives new memory
    return bool(named or node.kwargs.get("inplace", False) or node.target in _IN_PLACE)


#: Comparisons and the like, which have no gradient.
_NAMES_WITHOUT_GRADIENT = "eq ne lt le gt ge isnan isinf isfinite logical_not argmax argmin detach sign"
_WITHOUT_GRADIENT = frozenset(_NAMES_WITHOUT_GRADIENT.split())


def _copies(index: Any) -> bool:
    """Whether an index picks elements, which makes a copy."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(p, (list, Tensor)) or (isinstance(p, fx.Node) and not is_number(p)) for p in parts)


def _are_apart(i: Any, j: Any) -> bool:
    """Whether two indices give other elements of a tensor, such as other heads, or halves that meet in the middle."""
    if isinstance(i, tuple) and isinstance(j, tuple) and len(i) == len(j):
        pairs = list(zip(i, j, strict=True))
        aligned = all(a is b for a, b in pairs if a in (None, ...) or b in (None, ...))
        return aligned and any(_are_apart(a, b) for a, b in pairs)
    if isinstance(i, slice) and isinstance(j, slice):
        return (i.stop is not None and i.stop == j.start) or (j.stop is not None and j.stop == i.start)
    return type(i) is type(j) is int and i != j and (i < 0) == (j < 0)


def _is_apart(node: fx.Node, path: Collection[fx.Node]) -> bool:
    """Whether a node is another part than one on a path of views."""
    if node.target is not operator.getitem or any(_name(part) in _OVERLAPPING for part in path):
        return False
    parts = [part for part in path if part.target is operator.getitem and part.args[0] is node.args[0]]
    return any(_are_apart(part.args[1], node.args[1]) for part in parts)


def _asks(node: fx.Node) -> bool:
    """Whether a node asks for a shape, a dtype and the like."""
    return is_number(node) or (node.target is getattr and node.args[1] not in VIEWS)


def _reads(node: fx.Node, look: fx.Node) -> bool:
    """Whether a node reads numbers of what it is given, not its shape alone."""
    if _asks(node):
        return False
    return not str(node.target).endswith("_as") or node.args[0] is look


def _refuse_what_others_read(root: nn.Module, node: fx.Node, order: Mapping[fx.Node, int]) -> None:
    """What an operation overwrites in a buffer, or in memory that is read by another name later, would be lost."""
    into = node.args[0]
    if not isinstance(into, fx.Node):
        return
    path = [into]
    while _is_view(root, path[-1]):
        path.append(path[-1].all_input_nodes[0])
    looks = path[-1:]
    later = list[fx.Node]()
    for look in looks:
        users = [user for user in look.users if _reads(user, look) and not _is_apart(user, path)]
        views = [user for user in users if _is_view(root, user) and user.all_input_nodes[0] is look]
        looks += [view for view in views if order[view] < order[node]]
        later += [user for user in users if look is not into and order[user] > order[node]]
    if path[-1].op == "get_attr" or later:
        raise ValueError(f"model: {_where(node) or 'its forward'} writes in place into {into}, which is read elsewhere")


def _leave_no_place(root: nn.Module, graph: fx.Graph, switched: Collection[fx.Node]) -> None:
    """Let every operation that we know give new memory, and later users of what it overwrote read its result."""
    order = {node: index for index, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in (
            F.relu,
            F.leaky_relu,
            F.elu,
            F.relu6,
            F.silu,
            F.hardswish,
            *_DROPOUTS,
        ):
            given = inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments
            node.args, node.kwargs = (given.pop("input"),), given
        module = root.get_submodule(node.target) if node.op == "call_module" else None
        if node.target in (operator.and_, operator.or_):  # so called because of Python's words
            continue
        calls = node.op in ("call_function", "call_method")
        if getattr(module, "inplace", False) or (calls and _writes(node)):
            _refuse_what_others_read(root, node, order)
            for user in list(node.args[0].users):
                if order[user] > order[node]:
                    user.replace_input_with(node.args[0], node)
        node.target = _IN_PLACE.get(node.target, node.target)
        node.kwargs = {key: value for key, value in node.kwargs.items() if key != "inplace"}
        if node in switched and "training" in node.kwargs:
            # The flag was read from the network's mode when it was traced; a module reads it when it runs.
            new = _DROPOUTS[node.target](node.kwargs.get("p", 0.5)).train(_owner(root, node).training)
            node.op, node.target, node.kwargs = "call_module", _added(root, node.name, new), {}
    for module in root.modules():
        if getattr(module, "inplace", False):
            module.inplace = False  # type: ignore[assignment]


def _where(node: fx.Node) -> str:
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return stack[-1][0] if stack else ""


def _owner(root: nn.Module, node: fx.Node) -> nn.Module:
    """The module in whose forward a node is."""
    return root.get_submodule(_where(node))


def free_name(root: nn.Module, name: str) -> str:
    """The name, with underscores if something is called so already."""
    while hasattr(root, name):
        name += "_"
    return name


# --- what the operations of a graph are --------------------------------------------------------------------------

_MODULES: dict[type[nn.Module], tuple[str, Mapping[str, Any]]] = {
    nn.ReLU: ("relu", {}),
    nn.LeakyReLU: ("leaky_relu", {"negative_slope": 0.01}),
    nn.ELU: ("elu", {"alpha": 1.0}),
    nn.ReLU6: ("relu6", {}),
    nn.SiLU: ("silu", {}),
    nn.Hardswish: ("hardswish", {}),
    nn.GELU: ("gelu", {"approximate": "none"}),
    nn.Tanh: ("tanh", {}),
    nn.Sigmoid: ("sigmoid", {}),
    nn.Softplus: ("softplus", {"beta": 1.0, "threshold": 20.0}),
}
_DROPOUTS: dict[Any, type[nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d | nn.AlphaDropout]] = {
    F.dropout: nn.Dropout,
    F.dropout1d: nn.Dropout1d,
    F.dropout2d: nn.Dropout2d,
    F.dropout3d: nn.Dropout3d,
    F.alpha_dropout: nn.AlphaDropout,
}
# What writes into its first operand, and what gives the same in new memory.
_IN_PLACE: dict[Any, Any] = {
    **IN_PLACE,
    "add_": "add",
    "relu_": "relu",
    "tanh_": "tanh",
    "sigmoid_": "sigmoid",
    F.relu_: F.relu,
    torch.relu_: torch.relu,
    torch.tanh_: torch.tanh,
    torch.sigmoid_: torch.sigmoid,
    F.leaky_relu_: F.leaky_relu,
    F.elu_: F.elu,
}
SHAPE = ("size", "dim", "ndimension")


class Network:
    """A traced network and what its nodes are."""

    def __init__(self, root: nn.Module, graph: fx.Graph, limits: Mapping[str, str]) -> None:
        self.root, self.graph, self.limits = root, graph, limits
        self.modules = dict(root.named_modules(remove_duplicate=False))
        # A forward of an object's own is none that another module could take over.
        self.modules = {name: module for name, module in self.modules.items() if "forward" not in vars(module)}
        calls = Counter(id(self.module(n)) for n in graph.nodes if n.op == "call_module")
        read = {str(n.target).rpartition(".")[0] for n in graph.nodes if n.op == "get_attr"}
        # Of a module that is called twice, or whose parameters somebody reads or makes, nothing may be moved.
        self.fixed = {
            n
            for n in graph.nodes
            if (module := self.module(n)) is not None
            and (calls[id(module)] > 1 or n.target in read or not {"weight", "bias"} <= module._parameters.keys())
        }

    def module(self, node: fx.Node) -> nn.Module | None:
        """The module that a node calls, if the traced network had it."""
        return self.modules.get(str(node.target)) if node.op == "call_module" else None

    def where(self, node: fx.Node) -> str:
        """The name of the module in whose forward a node is."""
        return _where(node)

    def chooses(self, node: fx.Node) -> bool:
        """Whether a node is a number that the mode chooses."""
        return isinstance(self.module(node), ByMode)

    def kind(self, node: fx.Node) -> str | None:
        """The kind of activation that a node applies, with whatever settings; none of the softmax family."""
        module = self.module(node)
        called = FUNCTIONS.get(node.target) if node.op in ("call_function", "call_method") else None
        kind = kind_of(module) if module is not None else called
        return None if kind is None or is_softmax(kind) else kind

    def what(self, node: fx.Node) -> str:
        """What a node is, for a reader: the class of a module, or the name of a function."""
        if node.op == "call_module":
            return type(self.root.get_submodule(str(node.target))).__name__
        return getattr(node.target, "__name__", str(node.target))

    def finished(self, model: nn.Module) -> fx.GraphModule:
        """The graph as a network that is called like the one it was made from."""
        self.graph.lint()
        new = fx.GraphModule(self.root, self.graph, type(model).__name__)
        still, names = {*new.parameters()}, dict(model.named_parameters(remove_duplicate=False))
        often = Counter(names.values())
        made = {name: module for name, module in new.named_modules() if name == "" or type(module) is nn.Module}
        for name, there in made.items():  # what no forward reads keeps its name; another one of what moved is gone
            was = self.root.get_submodule(name)
            for key, p in was._parameters.items():
                of = names.get(f"{name}.{key}".lstrip("."))
                if key not in there._parameters and (p in still or of is None or often[of] < 2):
                    there.register_parameter(key, p)
            for key, buffer in was._buffers.items():
                if key not in there._buffers and key not in was._non_persistent_buffers_set:
                    there.register_buffer(key, buffer)
        return new

    def is_function(self, node: fx.Node, *targets: Any) -> bool:
        """Whether a node calls one of some functions or methods."""
        return node.op in ("call_function", "call_method") and node.target in targets

    def activation(self, node: fx.Node) -> str | nn.Module | None:
        """The activation that a node applies, if it is one of each number alone: its name, or what has no name here."""
        module = self.module(node)
        if module is not None:
            name, setting = _MODULES.get(type(module), (None, {}))
            if name is None and (neuron := of_module(module)) is not None:
                # one of channels apart is none of each number alone
                return module if neuron.elementwise and is_elementwise(module) else None
            return name if all(getattr(module, key) == value for key, value in setting.items()) else None
        if node.op not in ("call_function", "call_method") or len(node.args) != 1 or set(node.kwargs) - {"inplace"}:
            return None
        name = FUNCTIONS.get(node.target)
        return name if name in ACTIVATIONS else None

    def is_linear(self, node: fx.Node) -> bool:
        """Whether a node calls a dense layer or a convolution that may be replaced."""
        module = self.module(node)
        if node in self.fixed or len(node.args) != 1 or node.kwargs:
            return False
        return type(module) is nn.Linear or (type(module) is nn.Conv2d and module.padding_mode == "zeros")
