"""DAC and multi-bias in somebody else's network: activations and biases move into the layers after them.

Two things are followed through the graph of a network. The first is an activation on its way to the layer that will
apply it. The second are biases on their way there: where the network had a value v, it now has v − o, with one number o
per channel, and whoever uses the value must account for o.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg
from torch.nn import functional as F

from companion.baselines import MultiBias
from companion.dac.layers import DACConv2d, DACLinear
from companion.dac.reference import ACTIVATIONS
from companion.surgery.replacements import ChannelBias, PreActivated
from companion.surgery.tracing import SHAPE, Network, free_name, trace

__all__ = ["to_dac", "to_multibias"]

#: φ(max(x, y)) = max(φ(x), φ(y)) does not hold for these.
NOT_MONOTONE = ("silu", "gelu")
#: φ(0) is not 0.
NOT_ZERO_AT_ZERO = ("sigmoid", "softplus")

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d)


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
    net : Network
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
        net: Network,
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
        if net.is_function(node, *SHAPE) or (net.is_function(node, getattr) and node.args[1] in ("shape", "ndim")):
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


# --- the new network ---------------------------------------------------------------------------------------------

# A layer, the activation before it, the biases of its inputs → what stands in its place.
_Maker = Callable[[nn.Linear | nn.Conv2d, str, Tensor | None], nn.Module]


def _rebuild(net: Network, flow: _Flow, make: _Maker) -> None:
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
                name = free_name(net.root, f"{node.name}_bias")
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


def _follow(net: Network, accepts: Callable[[nn.Module], bool], biases: bool, first: fx.Node | None = None) -> _Flow:
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
    net = trace(model, example_input)
    entrance = _entrance(net) if first else None
    flow = _follow(net, _gains, True, entrance)
    if not flow.takers and not first:
        raise ValueError(
            f"model: in {type(model).__name__} no activation ({', '.join(ACTIVATIONS)}) is followed by an nn.Linear or "
            "nn.Conv2d with more than one output per group"
        )
    _rebuild(net, flow, _pre_activated if shared else _dac)
    return net.finished(model)


def _entrance(net: Network) -> fx.Node:
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

    net = trace(model, example_input)
    flow = _follow(net, ungrouped, False)
    if not flow.takers:
        raise ValueError(
            f"model: in {type(model).__name__} no activation ({', '.join(ACTIVATIONS)}) is followed by an nn.Linear or "
            "an ungrouped nn.Conv2d"
        )
    _rebuild(net, flow, multibias)
    return net.finished(model)
