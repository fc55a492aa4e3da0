"""How activations and biases flow through the graph of a network on their way into the layers after them.

Two things are followed. The first is an activation on its way to the layer that will apply it. The second are biases on
their way there: where the network had a value v, it now has v − o, with one number o per channel, and whoever uses the
value must account for o.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from companion.dac.tracing import SHAPE, VIEWS, Network
from companion.neurons import of_module

__all__ = ["NORMS", "Flow", "State", "follow"]

# φ(max(x, y)) = max(φ(x), φ(y)) does not hold for these.
_NOT_MONOTONE = ("silu", "gelu", "hardswish")
# φ(0) is not 0.
_NOT_ZERO_AT_ZERO = ("sigmoid", "softplus")


def _is_monotone(activation: str | nn.Module | None) -> bool:
    """Whether φ(max(x, y)) = max(φ(x), φ(y)); without an activation it is so."""
    if isinstance(activation, nn.Module):
        neuron = of_module(activation)
        return neuron is not None and neuron.monotone
    return activation not in _NOT_MONOTONE


def _is_zero_at_zero(activation: str | nn.Module | None) -> bool:
    """Whether φ(0) = 0; without an activation it is so."""
    if isinstance(activation, nn.Module):
        neuron = of_module(activation)
        return neuron is not None and neuron.zero_at_zero
    return activation not in _NOT_ZERO_AT_ZERO


#: The normalisations whose β moves.
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
_PASSES = {kind.forward for kind in (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d)}


@dataclass(frozen=True)
class State:
    """What separates a value of the new network from the one that the old network had in its place.

    old = φ(new + offset), where φ is the activation that is still to come, if there is one.
    """

    activation: str | nn.Module | None = None
    activations: frozenset[fx.Node] = frozenset()
    offset: Mapping[fx.Node, Tensor] = field(default_factory=dict)
    layout: str | None = None
    channels: int | None = None

    @property
    def plain(self) -> bool:
        """Whether old and new are alike."""
        return self.activation is None and not self.offset


class Flow:
    """One pass through a graph: which layers apply the activations, and which biases reach whom.

    Parameters
    ----------
    net : Network
        The graph.
    moving : collection of Node
        The activations that move to the layers after them; others stay.
    accepts : callable
        Whether a layer takes over the activation before it.
    biases : bool
        Whether biases move too.
    bare_sums : bool
        Whether a sum takes its operands without the activation that was to come, which is the paper's rule for residual
        networks and changes their function; otherwise it needs them with it.
    first : Node, optional
        A layer that gets an activation of its own.
    """

    def __init__(
        self,
        net: Network,
        moving: Collection[fx.Node],
        accepts: Callable[[nn.Module], bool],
        biases: bool,
        bare_sums: bool,
        first: fx.Node | None,
    ) -> None:
        self.net, self.moving, self.accepts, self.first = net, moving, accepts, first
        self.biases, self.bare_sums = biases, bare_sums
        self.states: dict[fx.Node, State] = {}
        #: The operands that a node needs as they were in the old network.
        self.needs: dict[fx.Node, list[fx.Node]] = {}
        #: The layers that take over an activation.
        self.takers: list[fx.Node] = []
        #: The sums that lose activations of their operands.
        self.bared: list[fx.Node] = []
        #: The nodes whose own biases are trained.
        self.trained: set[fx.Node] = set()
        for node in net.graph.nodes:
            state = self._visit(node)
            if state is None:
                self.needs[node] = list(node.all_input_nodes)
                state = State()
            self.states[node] = state

    def _visit(self, node: fx.Node) -> State | None:
        """The state of a node's result; None if it needs its operands as they were and nothing is known of it."""
        net = self.net
        if net.is_function(node, len, *SHAPE) or (net.is_function(node, getattr) and node.args[1] not in VIEWS):
            return State()
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
        if type(net.module(node)) in NORMS and node not in net.fixed:
            return self._norm(node, given)
        return self._passage(node, given)

    def _activation(self, node: fx.Node, given: State) -> State:
        if node not in self.moving:
            self.needs[node] = [node.args[0]]  # type: ignore[list-item]
            return State(layout=given.layout, channels=given.channels)
        if given.activation is not None:
            self.needs[node] = [node.args[0]]  # type: ignore[list-item]
            given = State(layout=given.layout, channels=given.channels)
        return replace(given, activation=self.net.activation(node), activations=frozenset([node]))

    def _linear(self, node: fx.Node, given: State) -> State:
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
        return State(offset=self._own(node, module.bias), layout=layout, channels=outputs)

    def _norm(self, node: fx.Node, given: State) -> State | None:
        module = self.net.module(node)
        assert isinstance(module, NORMS)
        layout = "map" if isinstance(module, nn.BatchNorm2d) else "flat"
        if layout == "flat" and given.layout not in ("flat", "flattened"):
            return None  # it may see (N, C, L), whose channels a dense layer does not take
        # An offset before a normalisation is taken off its running mean.
        if given.activation is not None or not _reaches(given, module.num_features, (layout,)):
            self.needs[node] = [node.args[0]]  # type: ignore[list-item]
        return State(offset=self._own(node, module.bias), layout=layout, channels=module.num_features)

    def _own(self, node: fx.Node, bias: Tensor | None) -> dict[fx.Node, Tensor]:
        if bias is None or not self.biases:
            return {}
        if bias.requires_grad:
            self.trained.add(node)
        return {node: bias.detach()}

    def _passage(self, node: fx.Node, given: State) -> State | None:
        """Operations on one map that keep its channels apart."""
        net, module = self.net, self.net.module(node)
        if module is not None and type(module).forward in _PASSES:
            return given
        on_map = not given.offset or given.layout == "map"
        if not on_map:
            return given if given.layout == "flattened" and _flattens(net, node) else None
        if _is_max_pool(net, node):
            return given if _is_monotone(given.activation) else None
        if net.is_function(node, operator.getitem) and _is_slice_of_pixels(node.args[1]):
            return given
        if _flattens(net, node):
            return replace(given, layout="flattened" if given.layout == "map" else None)
        if given.activation is None and _is_average(net, node):
            flat = net.is_function(node, "mean", torch.mean) and not node.kwargs.get("keepdim", False)
            return replace(given, layout="flat" if flat and given.layout else given.layout)
        new = _new_channels(net, node)
        if new is not None and _is_zero_at_zero(given.activation):
            offset = {source: F.pad(part, new) for source, part in given.offset.items()}
            return replace(given, offset=offset, channels=given.channels and given.channels + sum(new))
        return None

    def _sum(self, node: fx.Node) -> State | None:
        operands = [operand for operand in node.args if isinstance(operand, fx.Node) and not self.net.chooses(operand)]
        given = [self.states[operand] for operand in operands]
        if len(given) != 2 or len(node.args) != 2 or node.kwargs:
            return None
        activated = any(state.activation for state in given)
        if activated and not self.bare_sums:
            return None
        layouts = {state.layout for state in given if state.offset}
        channels = {state.channels for state in given if state.channels is not None}
        if len(layouts) > 1 or (layouts and len(channels) > 1):
            return None
        if activated:
            self.bared.append(node)
        offset: dict[fx.Node, Tensor] = {}
        for state in given:
            for source, part in state.offset.items():
                offset[source] = offset[source] + part if source in offset else part
        layout = next(iter(layouts), given[0].layout if given[0].layout == given[1].layout else None)
        return State(offset=offset, layout=layout, channels=next(iter(channels), None))

    def _concatenation(self, node: fx.Node) -> State | None:
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
        return State(given[0].activation, activations, offset, "map", total)

    def followed(self) -> set[fx.Node]:
        """The activations that some layer takes over."""
        return {source for taker in self.takers for source in self.states[taker.args[0]].activations}  # type: ignore[index]

    def moved(self) -> set[fx.Node]:
        """The nodes whose biases move: some layer takes them over, or their own layer has no place for them."""
        taken = {source for taker in self.takers for source in self.states[taker.args[0]].offset}  # type: ignore[index]
        replaced = {*self.takers} | ({self.first} if self.first else set())
        return taken | {node for node in replaced if node in self.states[node].offset}


def _reaches(state: State, inputs: int, layouts: tuple[str, ...]) -> bool:
    """Whether a state's offset, if it has one, is one of a layer's inputs."""
    if not state.offset:
        return True
    length = next(iter(state.offset.values())).numel()
    return state.layout in layouts and (inputs % length == 0 if state.layout == "flattened" else inputs == length)


def _is_slice_of_pixels(index: Any) -> bool:
    """x[:, :, a:b:s, ...], which keeps every channel and its place."""
    everything = slice(None)
    return (
        isinstance(index, tuple)
        and index[:2] == (everything, everything)
        and all(isinstance(part, slice) for part in index)
    )


def _is_max_pool(net: Network, node: fx.Node) -> bool:
    module = net.module(node)
    if isinstance(module, (nn.MaxPool2d, nn.AdaptiveMaxPool2d)):
        return not module.return_indices
    pools = (F.max_pool2d, torch.max_pool2d, F.adaptive_max_pool2d)
    return net.is_function(node, *pools) and not node.kwargs.get("return_indices", False)


def _is_average(net: Network, node: fx.Node) -> bool:
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


def _flattens(net: Network, node: fx.Node) -> bool:
    """Whether a node makes (N, C, H, W) to (N, C·H·W)."""
    module = net.module(node)
    if isinstance(module, nn.Flatten):
        return (module.start_dim, module.end_dim) == (1, -1)
    if net.is_function(node, torch.flatten, "flatten"):
        return (*node.args[1:], *node.kwargs.items()) in ((1,), (1, -1), (("start_dim", 1),))
    if net.is_function(node, "view", "reshape", torch.reshape):
        shape = node.args[1] if isinstance(node.args[1], (tuple, list)) else node.args[1:]
        return bool(len(shape) == 2 and shape[1] == -1) and _is_batch_size(net, node.args[0], shape[0])
    return False


def _is_batch_size(net: Network, x: Any, value: Any) -> bool:
    """Whether a value is how many inputs x has: asked of x, or of what it was made of while inputs stayed apart."""
    asked, made_of = _asked_for_its_length(value), [x]
    for node in made_of:
        if _keeps_inputs_apart(net, node):
            made_of += [operand for operand in node.all_input_nodes if operand not in made_of]
    return asked in made_of


def _asked_for_its_length(value: Any) -> Any:
    """The x of len(x), x.size(0) or x.shape[0]."""
    if not isinstance(value, fx.Node):
        return None
    if value.target is len or (value.target == "size" and value.args[1:] == (0,)):
        return value.args[0]
    shape = value.args[0] if value.target is operator.getitem and value.args[1] == 0 else None
    known = isinstance(shape, fx.Node) and (shape.target == "size" or shape.args[1:] == ("shape",))
    return shape.args[0] if known else None  # type: ignore[union-attr]


_NAMES_APART = """
    add iadd sub isub mul imul truediv itruediv neg pow clamp cat pad clone contiguous to float half type relu_ dropout
    dropout2d max_pool2d avg_pool2d adaptive_max_pool2d adaptive_avg_pool2d interpolate conv2d batch_norm group_norm
    layer_norm local_response_norm normalize
"""
_APART = frozenset(_NAMES_APART.split())


def _keeps_inputs_apart(net: Network, node: fx.Node) -> bool:
    module = net.module(node)
    if module is not None:
        return not isinstance(module, (nn.Flatten, nn.Unflatten, nn.Fold, nn.Unfold))
    called = str(getattr(node.target, "__name__", node.target))
    return net.kind(node) is not None or (node.op in ("call_function", "call_method") and called in _APART)


def _new_channels(net: Network, node: fx.Node) -> tuple[int, int] | None:
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


def follow(
    net: Network,
    accepts: Callable[[nn.Module], bool],
    *,
    biases: bool,
    bare_sums: bool,
    first: fx.Node | None = None,
) -> Flow:
    """The flow in which every activation that moves is taken over by some layer."""
    moving = {node for node in net.graph.nodes if net.activation(node)}
    while True:
        flow = Flow(net, moving, accepts, biases, bare_sums, first)
        followed = flow.followed()
        if followed == moving:
            return flow
        moving = followed
