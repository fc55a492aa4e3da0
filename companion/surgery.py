"""These neurons in somebody else's network: activations replaced, activations moved into the layers after them.

:func:`to_dac` and :func:`to_multibias` trace a network with torch.fx and follow two things through it. The first is an
activation on its way to the layer that will apply it. The second are biases on their way there: where the network had
a value v, it now has v − o, with one number o per channel, and whoever uses the value must account for o.
"""

from __future__ import annotations

import copy
import inspect
import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg
from torch.nn import functional as F

from companion.baselines import MultiBias
from companion.dac.layers import DACConv2d, DACLinear
from companion.dac.reference import ACTIVATIONS

__all__ = ["ChannelBias", "PreActivated", "replace_activations", "to_dac", "to_multibias"]


# --- modules that surgery leaves behind --------------------------------------------------------------------------


class ChannelBias(nn.Module):
    """z + b with one b per channel: what remains of the biases of layers whose own were moved.

    Parameters
    ----------
    bias : Tensor
        (C,), where the biases start.
    layout : {"map", "flat", "flattened"}
        Where the channels are: dimension −3, dimension −1, or dimension −1 with the pixels of each channel in a row.

    Examples
    --------
    >>> ChannelBias(torch.tensor([1.0, 2.0]), "map")(torch.zeros(2, 1, 1)).flatten()
    tensor([1., 2.], grad_fn=<ViewBackward0>)
    """

    no_weight_decay = ("bias",)

    def __init__(self, bias: Tensor, layout: str) -> None:
        super().__init__()
        self.bias = nn.Parameter(bias.detach().clone())
        self.layout = layout

    def forward(self, z: Tensor) -> Tensor:
        """Add the biases."""
        bias = self.bias.to(z.dtype)
        if self.layout == "map":
            return z + bias[:, None, None]
        return z + (bias.repeat_interleave(z.shape[-1] // bias.numel()) if self.layout == "flattened" else bias)

    def extra_repr(self) -> str:
        """Channels and layout."""
        return f"{self.bias.numel()}, layout={self.layout!r}"


class PreActivated(nn.Module):
    """layer(φ(z + b)) with one b per input channel, shared by all outputs: a DAC whose pair biases are tied.

    Parameters
    ----------
    layer : nn.Linear or nn.Conv2d
        Without a bias. It becomes part of this module.
    activation : str
        A name in `companion.dac.reference.ACTIVATIONS`.
    bias : Tensor
        One number per input feature or channel, where the biases start.

    References
    ----------
    Metta et al. (2024), Increasing biases can be more efficient than increasing weights, Table 3.

    Examples
    --------
    >>> PreActivated(nn.Linear(3, 2, bias=False), "relu", torch.zeros(3))(torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    """

    no_weight_decay = ("bias",)

    def __init__(self, layer: nn.Linear | nn.Conv2d, activation: str, bias: Tensor) -> None:
        super().__init__()
        self.bias = nn.Parameter(bias.detach().clone())
        self.activation = activation
        self.layer = layer

    def forward(self, z: Tensor) -> Tensor:
        """Bias, activate, and apply the layer."""
        bias = self.bias.to(z.dtype)
        if isinstance(self.layer, nn.Conv2d):
            bias = bias[:, None, None]
        out: Tensor = self.layer(ACTIVATIONS[self.activation](z + bias))
        return out

    def extra_repr(self) -> str:
        """The activation."""
        return f"activation={self.activation!r}"


# --- tracing -----------------------------------------------------------------------------------------------------


class _Tracer(fx.Tracer):
    """torch.fx's tracer, which here can answer questions about shapes and keeps the book's own modules whole."""

    def __init__(self, example_input: Tensor | None) -> None:
        super().__init__()
        self.example_input = example_input
        self.inside: list[nn.Module] = []
        self.values: dict[fx.Node, Any] = {}
        self.computing = False

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module becomes one node of the graph."""
        if super().is_leaf_module(m, module_qualified_name):
            return True
        alone = next(m.children(), None) is None
        owns = next(m.parameters(), next(m.buffers(), None)) is not None
        return alone and (owns or type(m).__module__.startswith("companion."))

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Remember which module is being traced, unless this is a computation for the example."""
        if self.computing:
            return forward(*args, **kwargs)
        self.inside.append(m)
        result = super().call_module(m, forward, args, kwargs)
        # not in a finally: after an error the last one is to blame
        self.inside.pop()
        return result

    def to_bool(self, obj: fx.Proxy) -> bool:
        """Decide as the network does for the example."""
        return super().to_bool(obj) if self.example_input is None else bool(self._value(obj.node))

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        """As many elements as there are for the example."""
        if self.example_input is None:
            return super().iter(obj)
        return iter([operator.getitem(obj, index) for index in range(len(self._value(obj.node)))])

    @torch.no_grad()
    def _value(self, wanted: fx.Node) -> Any:
        """What a node is for the example input."""
        if not self.values:
            self.network = fx.Interpreter(copy.deepcopy(self.root).eval(), graph=self.graph)
            self.network.args_iter = iter([self.example_input])
            self.network.env = self.values
        self.computing = True
        for node in self.graph.nodes:
            if node not in self.values:
                self.values[node] = self.network.run_node(node)
        self.computing = False
        return self.values[wanted]


def _trace(model: nn.Module, example_input: Tensor | None) -> _Network:
    """A copy of a network as a graph in which nothing works in place."""
    root = copy.deepcopy(model)
    tracer = _Tracer(example_input)
    try:
        graph = tracer.trace(root)
    except Exception as error:
        culprit = tracer.inside[-1] if tracer.inside else root
        name = next((name for name, module in root.named_modules() if module is culprit), "")
        where = f"module {name!r}, a {type(culprit).__name__}," if name else f"the forward of {type(culprit).__name__}"
        shapes = "" if example_input is not None else "; where shapes decide, an example_input may help"
        raise ValueError(f"model: torch.fx cannot trace {where} ({type(error).__name__}: {error}){shapes}") from error
    _drop_questions(graph)
    _leave_no_place(root, graph)
    return _Network(root, graph)


def _drop_questions(graph: fx.Graph) -> None:
    """Erase what was asked about shapes only while tracing."""
    asked = (getattr, operator.getitem, operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
    for node in reversed(graph.nodes):
        if not node.users and (node.target in asked or (node.op == "call_method" and node.target in _SHAPE)):
            graph.erase_node(node)


def _leave_no_place(root: nn.Module, graph: fx.Graph) -> None:
    """Let every operation that we know give new memory, and later users of what it overwrote read its result."""
    order = {node: index for index, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in (F.relu, F.leaky_relu, F.elu, F.silu, F.dropout):
            given = inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments
            node.args, node.kwargs = (given.pop("input"),), given
        module = root.get_submodule(node.target) if node.op == "call_module" else None
        overwrites = (
            getattr(module, "inplace", False)
            or node.kwargs.get("inplace", False)
            or node.target in _IN_PLACE
            or (node.op == "call_method" and node.target.endswith("_") and not node.target.endswith("__"))
        )
        if overwrites:
            for user in list(node.args[0].users):
                if order[user] > order[node]:
                    user.replace_input_with(node.args[0], node)
        node.target = _IN_PLACE.get(node.target, node.target)
        node.kwargs = {key: value for key, value in node.kwargs.items() if key != "inplace"}
        if node.target is F.dropout and "training" in node.kwargs:
            # The flag was read from the network's mode when it was traced; a module reads it when it runs.
            name = _free_name(root, node.name)
            root.add_module(name, nn.Dropout(node.kwargs.get("p", 0.5)).train(root.training))
            node.op, node.target, node.kwargs = "call_module", name, {}
    for module in root.modules():
        if getattr(module, "inplace", False):
            module.inplace = False  # type: ignore[assignment]


def _free_name(root: nn.Module, name: str) -> str:
    """The name, with underscores if something is called so already."""
    while hasattr(root, name):
        name += "_"
    return name


# --- what the operations of a graph are --------------------------------------------------------------------------

#: φ(max(x, y)) = max(φ(x), φ(y)) does not hold for these.
NOT_MONOTONE = ("silu", "gelu")
#: φ(0) is not 0.
NOT_ZERO_AT_ZERO = ("sigmoid", "softplus")

_MODULES: dict[type[nn.Module], tuple[str, Mapping[str, Any]]] = {
    nn.ReLU: ("relu", {}),
    nn.LeakyReLU: ("leaky_relu", {"negative_slope": 0.01}),
    nn.ELU: ("elu", {"alpha": 1.0}),
    nn.SiLU: ("silu", {}),
    nn.GELU: ("gelu", {"approximate": "none"}),
    nn.Tanh: ("tanh", {}),
    nn.Sigmoid: ("sigmoid", {}),
    nn.Softplus: ("softplus", {"beta": 1.0}),
}
_FUNCTIONS: dict[Any, str] = {
    **dict.fromkeys((F.relu, torch.relu, "relu"), "relu"),
    F.leaky_relu: "leaky_relu",
    F.elu: "elu",
    F.silu: "silu",
    F.gelu: "gelu",
    **dict.fromkeys((F.tanh, torch.tanh, "tanh"), "tanh"),
    **dict.fromkeys((F.sigmoid, torch.sigmoid, "sigmoid"), "sigmoid"),
    F.softplus: "softplus",
}
# What writes into its first operand, and what gives the same in new memory.
_IN_PLACE: dict[Any, Any] = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
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
_SHAPE = ("size", "dim", "ndimension")
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d)


def _is_slice_of_pixels(index: Any) -> bool:
    """x[:, :, a:b:s, ...], which keeps every channel and its place."""
    everything = slice(None)
    return (
        isinstance(index, tuple)
        and index[:2] == (everything, everything)
        and all(isinstance(part, slice) for part in index)
    )


class _Network:
    """A traced network and what its nodes are."""

    def __init__(self, root: nn.Module, graph: fx.Graph) -> None:
        self.root, self.graph = root, graph
        self.modules = dict(root.named_modules(remove_duplicate=False))
        calls = Counter(id(self.modules[n.target]) for n in graph.nodes if n.op == "call_module")
        read = {str(n.target).rpartition(".")[0] for n in graph.nodes if n.op == "get_attr"}
        # Of a module that is called twice, or whose parameters somebody reads, nothing may be moved.
        self.fixed = {
            n for n in graph.nodes if n.op == "call_module" and (calls[id(self.module(n))] > 1 or n.target in read)
        }

    def module(self, node: fx.Node) -> nn.Module | None:
        """The module that a node calls."""
        return self.modules[node.target] if node.op == "call_module" else None

    def finished(self, model: nn.Module) -> fx.GraphModule:
        """The graph as a network that is called like the one it was made from."""
        self.graph.lint()
        return fx.GraphModule(self.root, self.graph, type(model).__name__)

    def is_function(self, node: fx.Node, *targets: Any) -> bool:
        """Whether a node calls one of some functions or methods."""
        return node.op in ("call_function", "call_method") and node.target in targets

    def activation(self, node: fx.Node) -> str | None:
        """The name of the activation function that a node applies."""
        module = self.module(node)
        if module is not None:
            name, setting = _MODULES.get(type(module), (None, {}))
            return name if all(getattr(module, key) == value for key, value in setting.items()) else None
        if node.op not in ("call_function", "call_method") or len(node.args) != 1 or set(node.kwargs) - {"inplace"}:
            return None
        return _FUNCTIONS.get(node.target)

    def is_linear(self, node: fx.Node) -> bool:
        """Whether a node calls a dense layer or a convolution that may be replaced."""
        module = self.module(node)
        if node in self.fixed or len(node.args) != 1 or node.kwargs:
            return False
        return type(module) is nn.Linear or (type(module) is nn.Conv2d and module.padding_mode == "zeros")


# --- what flows through the graph --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _State:
    """What separates a value of the new network from the one that the old network had in its place.

    old = φ(new + offset), where φ is the activation that is still to come, if there is one.
    """

    activation: str | None = None
    activations: frozenset[fx.Node] = frozenset()
    offset: Mapping[fx.Node, Tensor] = field(default_factory=dict)
    layout: str | None = None
    channels: int | None = None

    @property
    def plain(self) -> bool:
        """Whether old and new are alike."""
        return self.activation is None and not self.offset


class _Flow:
    """One pass through a graph: which layers apply the activations, and which biases reach whom.

    Parameters
    ----------
    net : _Network
        The graph.
    moving : collection of Node
        The activations that move to the layers after them; others stay.
    accepts : callable
        Whether a layer takes over the activation before it.
    biases : bool
        Whether biases move too. Then a sum takes its operands without the activation that was to come (the paper's rule
        for residual networks); otherwise it needs them with it.
    first : Node, optional
        A layer that gets an activation of its own.
    """

    def __init__(
        self,
        net: _Network,
        moving: Collection[fx.Node],
        accepts: Callable[[nn.Module], bool],
        biases: bool,
        first: fx.Node | None,
    ) -> None:
        self.net, self.moving, self.accepts, self.biases, self.first = net, moving, accepts, biases, first
        self.states: dict[fx.Node, _State] = {}
        #: The operands that a node needs as they were in the old network.
        self.needs: dict[fx.Node, list[fx.Node]] = {}
        #: The layers that take over an activation.
        self.takers: list[fx.Node] = []
        for node in net.graph.nodes:
            state = self._visit(node)
            if state is None:
                self.needs[node] = list(node.all_input_nodes)
                state = _State()
            self.states[node] = state

    def _visit(self, node: fx.Node) -> _State | None:
        """The state of a node's result; None if it needs its operands as they were and nothing is known of it."""
        net = self.net
        if net.is_function(node, *_SHAPE) or (net.is_function(node, getattr) and node.args[1] in ("shape", "ndim")):
            return _State()
        if net.is_function(node, operator.add, torch.add, "add"):
            return self._sum(node)
        if net.is_function(node, torch.cat, torch.concat):
            return self._concatenation(node)
        if not node.args or not isinstance(node.args[0], fx.Node):
            return None
        given = self.states[node.args[0]]
        if net.activation(node):
            return self._activation(node, given)
        if net.is_linear(node):
            return self._linear(node, given)
        if type(net.module(node)) in _NORMS and node not in net.fixed:
            return self._norm(node, given)
        return self._passage(node, given)

    def _activation(self, node: fx.Node, given: _State) -> _State:
        if node not in self.moving:
            self.needs[node] = [node.args[0]]  # type: ignore[list-item]
            return _State(layout=given.layout, channels=given.channels)
        if given.activation is not None:
            self.needs[node] = [node.args[0]]  # type: ignore[list-item]
            given = _State(layout=given.layout, channels=given.channels)
        return replace(given, activation=self.net.activation(node), activations=frozenset([node]))

    def _linear(self, node: fx.Node, given: _State) -> _State:
        module = self.net.module(node)
        assert isinstance(module, (nn.Linear, nn.Conv2d))
        if isinstance(module, nn.Linear):
            inputs, outputs, layout = module.in_features, module.out_features, "flat"
        else:
            inputs, outputs, layout = module.in_channels, module.out_channels, "map"
        fits = _reaches(given, inputs, ("flat", "flattened") if layout == "flat" else ("map",))
        if given.activation is not None and fits and self.accepts(module):
            self.takers.append(node)
        else:
            self.needs[node] = [node.args[0]]  # type: ignore[list-item]
        return _State(offset=self._own(node, module.bias), layout=layout, channels=outputs)

    def _norm(self, node: fx.Node, given: _State) -> _State:
        module = self.net.module(node)
        assert isinstance(module, _NORMS)
        layout = "map" if isinstance(module, nn.BatchNorm2d) else "flat"
        # An offset before a normalisation is taken off its running mean.
        if given.activation is not None or not _reaches(given, module.num_features, (layout,)):
            self.needs[node] = [node.args[0]]  # type: ignore[list-item]
        return _State(offset=self._own(node, module.bias), layout=layout, channels=module.num_features)

    def _own(self, node: fx.Node, bias: Tensor | None) -> dict[fx.Node, Tensor]:
        return {} if bias is None or not self.biases else {node: bias.detach()}

    def _passage(self, node: fx.Node, given: _State) -> _State | None:
        """Operations on one map that keep its channels apart."""
        net, module = self.net, self.net.module(node)
        if isinstance(module, (nn.Identity, *_DROPOUTS)):
            return given
        on_map = not given.offset or given.layout == "map"
        if not on_map:
            return given if given.layout == "flattened" and _flattens(net, node) else None
        if _is_max_pool(net, node):
            return None if given.activation in NOT_MONOTONE else given
        if net.is_function(node, operator.getitem) and _is_slice_of_pixels(node.args[1]):
            return given
        if _flattens(net, node):
            return replace(given, layout="flattened" if given.layout == "map" else None)
        if given.activation is None and _is_average(net, node):
            flat = net.is_function(node, "mean", torch.mean) and not node.kwargs.get("keepdim", False)
            return replace(given, layout="flat" if flat and given.layout else given.layout)
        new = _new_channels(net, node)
        if new is not None and given.activation not in NOT_ZERO_AT_ZERO:
            offset = {source: F.pad(part, new) for source, part in given.offset.items()}
            return replace(given, offset=offset, channels=given.channels and given.channels + sum(new))
        return None

    def _sum(self, node: fx.Node) -> _State | None:
        given = [self.states[operand] for operand in node.args if isinstance(operand, fx.Node)]
        if len(given) != 2 or len(node.args) != 2 or node.kwargs:
            return None
        if not self.biases and any(state.activation for state in given):
            return None
        layouts = {state.layout for state in given if state.offset}
        channels = {state.channels for state in given if state.channels is not None}
        if len(layouts) > 1 or (layouts and len(channels) > 1):
            return None
        offset: dict[fx.Node, Tensor] = {}
        for state in given:
            for source, part in state.offset.items():
                offset[source] = offset[source] + part if source in offset else part
        layout = next(iter(layouts), given[0].layout if given[0].layout == given[1].layout else None)
        return _State(offset=offset, layout=layout, channels=next(iter(channels), None))

    def _concatenation(self, node: fx.Node) -> _State | None:
        operands, dim = node.args[0], node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else 0)
        if not isinstance(operands, (list, tuple)) or dim != 1:
            return None
        given = [self.states[operand] for operand in operands if isinstance(operand, fx.Node)]
        if len({state.activation for state in given}) > 1 or any(
            state.layout != "map" or state.channels is None for state in given
        ):
            return None
        total = sum(state.channels or 0 for state in given)
        offset: dict[fx.Node, Tensor] = {}
        before = 0
        for state in given:
            after = total - before - (state.channels or 0)
            for source, part in state.offset.items():
                placed = F.pad(part, (before, after))
                offset[source] = offset[source] + placed if source in offset else placed
            before = total - after
        activations = frozenset[fx.Node]().union(*(state.activations for state in given))
        return _State(given[0].activation, activations, offset, "map", total)

    def followed(self) -> set[fx.Node]:
        """The activations that some layer takes over."""
        return {source for taker in self.takers for source in self.states[taker.args[0]].activations}  # type: ignore[index]

    def moved(self) -> set[fx.Node]:
        """The nodes whose biases move: some layer takes them over, or their own layer has no place for them."""
        taken = {source for taker in self.takers for source in self.states[taker.args[0]].offset}  # type: ignore[index]
        replaced = {*self.takers} | ({self.first} if self.first else set())
        return taken | {node for node in replaced if node in self.states[node].offset}


def _reaches(state: _State, inputs: int, layouts: tuple[str, ...]) -> bool:
    """Whether a state's offset, if it has one, is one of a layer's inputs."""
    if not state.offset:
        return True
    length = next(iter(state.offset.values())).numel()
    return state.layout in layouts and (inputs % length == 0 if state.layout == "flattened" else inputs == length)


def _is_max_pool(net: _Network, node: fx.Node) -> bool:
    module = net.module(node)
    if isinstance(module, (nn.MaxPool2d, nn.AdaptiveMaxPool2d)):
        return not module.return_indices
    pools = (F.max_pool2d, torch.max_pool2d, F.adaptive_max_pool2d)
    return net.is_function(node, *pools) and not node.kwargs.get("return_indices", False)


def _is_average(net: _Network, node: fx.Node) -> bool:
    """Whether a node takes means over pixels of each channel, none of them in the padding."""
    module = net.module(node)
    if isinstance(module, nn.AvgPool2d):
        inside = module.padding in (0, (0, 0)) or not module.count_include_pad
        return inside and module.divisor_override is None
    if isinstance(module, nn.AdaptiveAvgPool2d) or net.is_function(node, F.adaptive_avg_pool2d):
        return True
    if net.is_function(node, F.avg_pool2d):
        return len(node.args) <= 3 and not set(node.kwargs) - {"kernel_size", "stride"}
    if net.is_function(node, "mean", torch.mean):
        dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        return len(node.args) <= 2 and isinstance(dims, (tuple, list)) and set(dims) in ({2, 3}, {-1, -2})
    return False


def _flattens(net: _Network, node: fx.Node) -> bool:
    """Whether a node makes (N, C, H, W) to (N, C·H·W)."""
    module = net.module(node)
    if isinstance(module, nn.Flatten):
        return (module.start_dim, module.end_dim) == (1, -1)
    if net.is_function(node, torch.flatten, "flatten"):
        return (*node.args[1:], *node.kwargs.items()) in ((1,), (1, -1), (("start_dim", 1),))
    if net.is_function(node, "view", "reshape", torch.reshape):
        shape = node.args[1] if isinstance(node.args[1], (tuple, list)) else node.args[1:]
        return bool(len(shape) == 2 and shape[1] == -1) and _is_batch_size(shape[0])
    return False


def _is_batch_size(value: Any) -> bool:
    """Whether a value is x.size(0) or x.shape[0], for any x of the graph."""
    if not isinstance(value, fx.Node):
        return False
    if value.op == "call_method" and value.target == "size":
        return value.args[1:] == (0,)
    if value.target is operator.getitem and value.args[1] == 0:
        shape = value.args[0]
        return isinstance(shape, fx.Node) and (shape.target == "size" or shape.args[1:] == ("shape",))
    return False


def _new_channels(net: _Network, node: fx.Node) -> tuple[int, int] | None:
    """How many channels of zeros a node puts before and behind a map's own."""
    if not net.is_function(node, F.pad) or len(node.args) != 2:
        return None
    if node.kwargs.get("mode", "constant") != "constant" or node.kwargs.get("value") not in (None, 0):
        return None
    pads = node.args[1]
    if not isinstance(pads, (tuple, list)) or len(pads) != 6 or any(pads[:4]):
        return None
    before, after = pads[4:]
    return (before, after) if isinstance(before, int) and isinstance(after, int) and min(before, after) >= 0 else None


# --- the new network ---------------------------------------------------------------------------------------------

# A layer, the activation before it, the biases of its inputs → what stands in its place.
_Maker = Callable[[nn.Linear | nn.Conv2d, str, Tensor | None], nn.Module]


def _rebuild(net: _Network, flow: _Flow, make: _Maker) -> None:
    """Carry out in the graph what a flow found."""
    graph, moved = net.graph, flow.moved()
    # The new network's value for each of the old one's, and the old value where it was made.
    new: dict[fx.Node, fx.Node] = {}
    old: dict[fx.Node, fx.Node] = {}
    order = {node: index for index, node in enumerate(graph.nodes)}
    usual = next((name for name in map(net.activation, graph.nodes) if name is not None), "relu")

    def offset(node: fx.Node) -> Tensor | None:
        parts = [part for source, part in flow.states[node].offset.items() if source in moved]
        return torch.stack(parts).sum(0) if parts else None

    def as_it_was(node: fx.Node, before: fx.Node) -> fx.Node:
        if node in old:
            return old[node]
        state, bias, value = flow.states[node], offset(node), new[node]
        with graph.inserting_before(before):
            if bias is not None:
                assert state.layout is not None
                name = _free_name(net.root, f"{node.name}_bias")
                net.root.add_module(name, ChannelBias(bias, state.layout).train(net.root.training))
                value = graph.call_module(name, (value,))
            if state.activations:
                biased = value
                activation = min(state.activations, key=order.__getitem__)
                value = graph.node_copy(activation, lambda _: biased)
        old[node] = value
        return value

    def taken(node: fx.Node, inputs: int) -> Tensor | None:
        bias = offset(node)
        return bias if bias is None else bias.repeat_interleave(inputs // bias.numel())

    for node in list(graph.nodes):
        needed = flow.needs.get(node, [])

        def operand(value: fx.Node, node: fx.Node = node, needed: list[fx.Node] = needed) -> fx.Node:
            return as_it_was(value, node) if value in needed else new[value]

        if node in flow.moving:
            new[node] = operand(node.args[0])
            continue
        new[node] = node
        module = net.module(node)
        if isinstance(module, (nn.Linear, nn.Conv2d)) and (node in flow.takers or node is flow.first):
            bias = None
            if node in flow.takers:
                bias = taken(node.args[0], module.in_features if isinstance(module, nn.Linear) else module.in_channels)
            activation = flow.states[node.args[0]].activation or usual
            net.root.set_submodule(str(node.target), make(module, activation, bias).train(module.training))
        elif isinstance(module, _NORMS) and module.running_mean is not None and not needed:
            before = offset(node.args[0])
            if before is not None:
                module.running_mean -= before
        if node in moved and isinstance(module, (nn.Linear, nn.Conv2d, *_NORMS)):
            module.register_parameter("bias", None)
        node.args, node.kwargs = map_arg(node.args, operand), map_arg(node.kwargs, operand)
    for node in reversed(list(graph.nodes)):
        if node in flow.moving:
            graph.erase_node(node)


def _follow(net: _Network, accepts: Callable[[nn.Module], bool], biases: bool, first: fx.Node | None = None) -> _Flow:
    """The flow in which every activation that moves is taken over by some layer."""
    moving = {node for node in net.graph.nodes if net.activation(node)}
    while True:
        flow = _Flow(net, moving, accepts, biases, first)
        followed = flow.followed()
        if followed == moving:
            return flow
        moving = followed


# --- public functions --------------------------------------------------------------------------------------------


def _gains(module: nn.Module) -> bool:
    """Whether a layer's outputs share inputs, so that biases of their own make a difference."""
    if isinstance(module, nn.Linear):
        return module.out_features > 1
    assert isinstance(module, nn.Conv2d)
    symmetric = module.padding != "same" or all(
        d * (k - 1) % 2 == 0 for d, k in zip(module.dilation, module.kernel_size, strict=True)
    )
    return module.out_channels // module.groups > 1 and symmetric


def _dac(layer: nn.Linear | nn.Conv2d, activation: str, bias: Tensor | None) -> nn.Module:
    """The layer with dendrites: its weight, and one bias per pair, equal for all outputs."""
    new: DACLinear | DACConv2d
    # On the meta device nothing is drawn from the random generator.
    if isinstance(layer, nn.Linear):
        new = DACLinear(layer.in_features, layer.out_features, activation, device="meta")
    else:
        new = DACConv2d(
            layer.in_channels,
            layer.out_channels,
            layer.kernel_size,
            layer.stride,
            layer.padding,
            layer.dilation,
            layer.groups,
            activation,
            device="meta",
        )
    outputs, inputs = layer.weight.shape[:2]
    pairs = layer.weight.new_zeros(outputs, inputs)
    if bias is not None:
        groups = 1 if isinstance(layer, nn.Linear) else layer.groups
        pairs += bias.reshape(groups, 1, inputs).expand(-1, outputs // groups, -1).reshape(outputs, inputs)
    # the same parameter, so that weights which were tied stay so
    new.weight = layer.weight  # type: ignore[assignment]
    new.bias = nn.Parameter(pairs)
    return new


def _pre_activated(layer: nn.Linear | nn.Conv2d, activation: str, bias: Tensor | None) -> nn.Module:
    inputs = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
    layer.register_parameter("bias", None)
    return PreActivated(layer, activation, layer.weight.new_zeros(inputs) if bias is None else bias)


def to_dac(
    model: nn.Module, example_input: Tensor | None = None, *, first: bool = False, shared: bool = False
) -> fx.GraphModule:
    r"""Return a network whose activations act in the layers after them, with a bias for every connection.

    .. math:: w * \varphi(z + b)\ \to\ \sum_j w_{ij} * \varphi(b_{ij} + z_j)

    Every activation that an ``nn.Linear`` or ``nn.Conv2d`` follows is removed, and the layer becomes a
    :class:`companion.DACLinear` or :class:`companion.DACConv2d`. Its biases begin as those that the activation saw: the
    bias of the layer before, or β of the batch normalisation, which is taken from there. All outputs begin with equal
    biases, so a plain or pre-activated (v2) network computes at first what it computed before; training tells them
    apart. Trained weights are kept. Between activation and layer there may be what commutes with a bias per
    channel and with the activation: max pooling (not with SiLU and GELU, which are not monotone), flattening,
    dropout, concatenation of channels, strided slices and channels of zeros.

    Parameters
    ----------
    model : nn.Module
        A network that torch.fx can trace. It stays as it is.
    example_input : Tensor, optional
        For networks that decide by the shape of their input: the decisions for this one are built in.
    first : bool
        Also replace the first layer, which no activation precedes. Its biases are 0; this changes the function.
    shared : bool
        Instead of a DAC, a `PreActivated` layer: the bias of an input is the same for all outputs. This is the paper's
        ablation; the function is the same at first, the training is not.

    Returns
    -------
    torch.fx.GraphModule
        In the mode, training or evaluation, of `model`. Layers keep their names: the state dict has ``weight``
        and ``bias``, of shape (outputs, inputs), where the layer's own were.

    Raises
    ------
    ValueError
        If the network cannot be traced (the error names the module), nothing in it can be replaced, or `first` is given
        and the first layer cannot be replaced.

    Notes
    -----
    *Residual networks.* An activation that both a layer and a sum read is removed altogether, so the skip connection
    loses it. This is the paper's rule for networks of He et al.'s first kind; their function changes to that of
    the same network with activations in the branches only.

    *What stays.* An activation before average pooling, which does not commute with it, or before anything else that is
    not named above. If a bias that it needs has moved, because a DAC needs it too, a `ChannelBias` comes before it.
    Such a module also takes the biases of a last layer, since a DAC has none for its output. Layers that gain nothing
    (one output per group, as in depthwise convolutions), padding by other than zeros, layers that are called twice, and
    subclasses stay, and so do activations with parameters, or with settings that are not torch's defaults.

    *Normalisation.* A bias that reaches a batch normalisation is taken off its running mean. Of a BatchNorm1d it is
    assumed that it sees (N, C).

    *Dropout* between an activation and its layer now drops z, not φ(z + b): a dropped input contributes φ(b). In
    evaluation there is no difference. Zeros around an image are put there after the activation.

    Chapter: *DAC* (``book/mechanisms/dac``).

    References
    ----------
    Metta et al. (2024), Increasing biases can be more efficient than increasing weights, sections 4 to 6.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2, bias=False)).eval()
    >>> dac, x = to_dac(model), torch.randn(5, 4)
    >>> type(dac.get_submodule("2")).__name__, torch.allclose(dac(x), model(x), atol=1e-6)
    ('DACLinear', True)
    """
    net = _trace(model, example_input)
    entrance = _entrance(net) if first else None
    flow = _follow(net, _gains, True, entrance)
    if not flow.takers and not first:
        raise ValueError(
            f"model: in {type(model).__name__} no activation ({', '.join(ACTIVATIONS)}) is followed by an nn.Linear or "
            "nn.Conv2d with more than one output per group"
        )
    _rebuild(net, flow, _pre_activated if shared else _dac)
    return net.finished(model)


def _entrance(net: _Network) -> fx.Node:
    """The first dense or convolutional layer."""
    layers = (node for node in net.graph.nodes if isinstance(net.module(node), (nn.Linear, nn.Conv2d)))
    entrance: fx.Node | None = next(layers, None)
    if entrance is None:
        raise ValueError("first: the network calls no nn.Linear or nn.Conv2d")
    module = net.module(entrance)
    if not net.is_linear(entrance) or not _gains(module):  # type: ignore[arg-type]
        raise ValueError(f"first: the first layer, {entrance.target}, is {module}, which to_dac does not replace")
    return entrance


def to_multibias(model: nn.Module, copies: int, example_input: Tensor | None = None) -> fx.GraphModule:
    """Return a network with multi-bias activations: each layer after an activation sees K copies of its inputs.

    Every ``nn.Linear`` or ungrouped ``nn.Conv2d`` that an activation comes before, in the sense of :func:`to_dac`,
    becomes a sequence of a :class:`companion.MultiBias` and a layer with K times the inputs, whose weights are new:
    normal with variance 2/fan-in, biases 0. Everything else keeps its weights. Skip connections keep their activation.
    Batch normalisation keeps β, which the K biases make redundant.

    Parameters
    ----------
    model : nn.Module
        A network that torch.fx can trace. It stays as it is.
    copies : int
        K.
    example_input : Tensor, optional
        See `to_dac`.

    Returns
    -------
    torch.fx.GraphModule
        In the mode, training or evaluation, of `model`. A layer ``name`` is now ``name.1``, its biases ``name.0.bias``.
        After flattening every input, not every channel, has biases of its own.

    Raises
    ------
    ValueError
        If the network cannot be traced, nothing in it can be replaced, or `copies` is not positive.

    References
    ----------
    Metta et al. (2024), Increasing biases can be more efficient than increasing weights, Eq. 3 and section 5.

    Examples
    --------
    >>> model = to_multibias(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), 8)
    >>> model.get_submodule("2")[1]
    Linear(in_features=24, out_features=2, bias=True)
    """

    def multibias(layer: nn.Linear | nn.Conv2d, activation: str, _: Tensor | None) -> nn.Module:
        dense = isinstance(layer, nn.Linear)
        channels = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
        shape = [layer.weight.shape[0], copies * channels, *layer.weight.shape[2:]]
        layer.weight = nn.Parameter(nn.init.kaiming_normal_(layer.weight.new_empty(shape), nonlinearity="relu"))
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
        setattr(layer, "in_features" if dense else "in_channels", copies * channels)
        return nn.Sequential(MultiBias(channels, copies, activation).to(layer.weight), layer)

    def ungrouped(layer: nn.Module) -> bool:
        return getattr(layer, "groups", 1) == 1

    net = _trace(model, example_input)
    flow = _follow(net, ungrouped, False)
    if not flow.takers:
        raise ValueError(
            f"model: in {type(model).__name__} no activation ({', '.join(ACTIVATIONS)}) is followed by an nn.Linear or "
            "an ungrouped nn.Conv2d"
        )
    _rebuild(net, flow, multibias)
    return net.finished(model)


def replace_activations(model: nn.Module, replacements: Mapping[type[nn.Module], Callable[[], nn.Module]]) -> nn.Module:
    """Return a copy of a network in which modules of some classes are replaced by new ones.

    Parameters
    ----------
    model : nn.Module
        Any network. It stays as it is.
    replacements : mapping
        From a class, whose subclasses are left alone, to what returns a new module. A module that the network holds
        in several places, or calls several times, gets one successor.

    Returns
    -------
    nn.Module
        Of the class of `model`. The new modules are on the device of its first parameter, with its dtype.

    Raises
    ------
    ValueError
        If there is nothing to replace. Activations that are called as functions are not modules.

    Examples
    --------
    >>> from companion import AGLU
    >>> model = replace_activations(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), {nn.ReLU: AGLU})
    >>> type(model[1]).__name__
    'AGLU'
    """
    model = copy.deepcopy(model)
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    successors: dict[nn.Module, nn.Module] = {}
    for module in list(model.modules()):
        if type(module) in replacements:
            successors[module] = replacements[type(module)]().to(like).train(module.training)
    if not successors:
        names = ", ".join(kind.__name__ for kind in replacements)
        raise ValueError(f"model: {type(model).__name__} holds no module of the class {names}")
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if module in successors and name:
            model.set_submodule(name, successors[module])
    return successors.get(model, model)
