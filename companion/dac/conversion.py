"""DAC and multi-bias in somebody else's network: activations and biases move into the layers after them.

:mod:`companion.dac.flow` follows both through the graph of a network; here the graph is rebuilt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg

from companion.activations import ACTIVATIONS, is_elementwise, is_identity
from companion.baselines import MultiBias
from companion.dac.flow import NORMS, Flow, follow
from companion.dac.layers import DACConv2d, DACLinear
from companion.dac.tracing import SHAPE, Network, free_name, trace
from companion.operators import as_int
from companion.rehearsal import Example, difference, without_zeros
from companion.surgery.places import forget_hooks, hand_over_hooks
from companion.surgery.report import alike, parameters, put_report, refuse_taken

__all__ = ["ChannelBias", "Converted", "PreActivated", "to_dac", "to_multibias"]


# --- what stands in the place of a layer -------------------------------------------------------------------------


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
    activation : str or module
        A name in `companion.activations.ACTIVATIONS`, or an elementwise module, which becomes part of this one.
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

    def __init__(self, layer: nn.Linear | nn.Conv2d, activation: str | nn.Module, bias: Tensor) -> None:
        super().__init__()
        self.bias = nn.Parameter(bias.detach().clone())
        self.activation = activation
        self.layer = layer

    def forward(self, z: Tensor) -> Tensor:
        """Bias, activate, and apply the layer."""
        bias = self.bias.to(z.dtype)
        if isinstance(self.layer, nn.Conv2d):
            bias = bias[:, None, None]
        phi = ACTIVATIONS[self.activation] if isinstance(self.activation, str) else self.activation
        out: Tensor = self.layer(phi(z + bias))
        return out

    def extra_repr(self) -> str:
        """The activation."""
        return f"activation={self.activation!r}"


# --- the new network ---------------------------------------------------------------------------------------------

# A layer, the activation before it, the biases of its inputs → what stands in its place.
_Maker = Callable[[nn.Linear | nn.Conv2d, str | nn.Module, Tensor | None], nn.Module]


def _rebuild(net: Network, flow: Flow, make: _Maker) -> dict[str, str]:
    """Carry out in the graph what a flow found; by the name of each layer that is replaced, what stands there."""
    graph, moved = net.graph, flow.moved()
    made: dict[str, str] = {}
    # The new network's value for each of the old one's, and the old value where it was made.
    new: dict[fx.Node, fx.Node] = {}
    old: dict[fx.Node, fx.Node] = {}
    order = {node: index for index, node in enumerate(graph.nodes)}
    usual = next((name for name in map(net.activation, graph.nodes) if name is not None), "relu")

    def offset(node: fx.Node) -> Tensor | None:
        parts = [part for source, part in flow.states[node].offset.items() if source in moved]
        return torch.stack(parts).sum(0) if parts else None

    def trains(node: fx.Node) -> bool:
        return any(source in moved & flow.trained for source in flow.states[node].offset)

    def as_it_was(node: fx.Node, before: fx.Node) -> fx.Node:
        if node in old:
            return old[node]
        state, bias, value = flow.states[node], offset(node), new[node]
        with graph.inserting_before(before):
            if bias is not None:
                assert state.layout is not None
                name = free_name(net.root, f"{node.name}_bias")
                net.root.add_module(name, ChannelBias(bias, state.layout).train(net.root.training))
                net.root.get_submodule(name).bias.requires_grad_(trains(node))
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
            trained = module.weight.requires_grad or (bias is not None and trains(node.args[0]))
            what = type(module).__name__
            successor = make(module, activation, bias).train(module.training)
            if isinstance(getattr(successor, "bias", None), nn.Parameter):
                successor.bias.requires_grad_(trained)
            hand_over_hooks(module, successor, own=True)
            forget_hooks(module)  # which may be a part of its successor
            parent, _, child = str(node.target).rpartition(".")
            setattr(net.root.get_submodule(parent), child, successor)
            made[str(node.target)] = f"{what} → {type(successor).__name__}"
        elif isinstance(module, NORMS) and module.running_mean is not None and not needed:
            before = offset(node.args[0])
            if before is not None:
                module.running_mean -= before
        if node in moved and isinstance(module, (nn.Linear, nn.Conv2d, *NORMS)):
            module.register_parameter("bias", None)
        node.args, node.kwargs = map_arg(node.args, operand), map_arg(node.kwargs, operand)
    for node in reversed(list(graph.nodes)):
        if node in flow.moving:
            graph.erase_node(node)
    return made


# --- what was done -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Converted:
    """What `to_dac` or `to_multibias` did to a network.

    Parameters
    ----------
    layers : dict
        By the name of a layer, what it was and what it is.
    left : dict
        By the name of an activation, why it stays.
    changed : dict
        By the name of a module, why the network computes something else than it did, or may: the module makes a sum, is
        new, has hooks on its way forward that see other values now or are gone, or is not called in the mode, training
        or evaluation, in which the network was converted. Empty: it computes the same, but for dropout in training.
    parameters : (int, int)
        How many the network had before, and has now.
    limits : dict
        By the name of an argument, or of ``training``, the one value that the new network takes, and why: the code of
        the old one decides by it. With any other it raises an error.
    """

    layers: dict[str, str]
    left: dict[str, str]
    changed: dict[str, str]
    parameters: tuple[int, int]
    limits: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return lines for layers that are alike, for what stays, changes the function or is built in, and the cost."""
        before, now = self.parameters
        lines = [*alike(self.layers), *(f"stays, {line}" for line in alike(self.left))]
        lines += [f"changes the function, {line}" for line in alike(self.changed)]
        lines += [f"allowed is only {name} = {value}" for name, value in self.limits.items()]
        return "\n".join([*lines, f"parameters: {before:,} → {now:,}"])


def _finished(
    net: Network, flow: Flow, made: dict[str, str], changed: dict[str, str], model: nn.Module
) -> fx.GraphModule:
    """The network, with its hooks and with a report."""
    new = net.finished(model)
    hand_over_hooks(model, new, own=True)
    still = {name for name, _ in new.named_modules(remove_duplicate=False)} | {str(node.target) for node in flow.moving}
    gone = [name for name, _ in model.named_modules() if name not in still and _has_parameters(model, name)]
    changed = changed | {name: "it is not called in this mode" for name in gone if name.rpartition(".")[0] not in gone}
    modules = dict(new.named_modules())
    changed |= {
        name: "its own train() is gone"
        for name, module in model.named_modules()
        if type(module).train is not nn.Module.train and type(modules.get(name)) is not type(module)
    }
    numbers = (parameters(model), parameters(new))
    put_report(new, "converted", Converted(made, _left(net, flow), changed, numbers, dict(net.limits)))
    return new


def _hooked(net: Network, flow: Flow) -> dict[str, str]:
    """By its name, what is to be said of a module with hooks that is given or gives another value than it did."""
    moved, found = flow.moved(), dict[str, str]()

    def is_another(node: fx.Node) -> bool:
        state = flow.states[node]
        return state.activation is not None or not moved.isdisjoint(state.offset)

    for node in net.graph.nodes:
        module = net.module(node)
        if module is None or not (module._forward_hooks or module._forward_pre_hooks):
            continue
        if any(is_another(x) for x in (node, *node.all_input_nodes) if x not in flow.needs.get(node, [])):
            found[str(node.target)] = "its hooks are gone" if node in flow.moving else "its hooks see other values"
    return found


def _has_parameters(model: nn.Module, name: str) -> bool:
    return next(model.get_submodule(name).parameters(), None) is not None


def _left(net: Network, flow: Flow) -> dict[str, str]:
    """By its name, why an activation stays: what comes between it and a layer, or why there is no DAC of it."""
    left = {}
    for node in net.graph.nodes:
        if node in flow.moving or not (net.kind(node) or _acts(net.module(node))):
            continue
        name = str(node.target) if node.op == "call_module" else net.where(node)
        readers = ", ".join(sorted({_described(net, user) for user in _readers(net, node)}))
        left[name] = f"{net.what(node)} {f'before {readers}' if net.activation(node) else _formless(net, node)}"
    return left


def _acts(module: nn.Module | None) -> bool:
    """Whether a module that nobody calls by a name is an activation: one of ours, or elementwise and not nothing."""
    kind = type(module).__module__
    if (
        module is None
        or kind.startswith(("torch.nn.", "companion.dac.", "companion.study.models."))
        or next(module.children(), None)
    ):
        return False
    return kind.startswith("companion.") or (is_elementwise(module) and not is_identity(module))


def _formless(net: Network, node: fx.Node) -> str:
    """Why there is no DAC of an activation."""
    module = net.module(node)
    if module is not None and not is_elementwise(module):
        return "is not elementwise"
    if module is not None and next(module.parameters(), None) is not None:
        return "has parameters of its own"
    return "has no DAC form"


def _readers(net: Network, node: fx.Node) -> Iterator[fx.Node]:
    """Who reads a value, behind what hands it on."""
    for user in node.users:
        if not net.is_function(user, getattr, len, *SHAPE):  # who asks for the shape, reads no number
            yield from _readers(net, user) if type(net.module(user)) is nn.Identity else (user,)


def _described(net: Network, node: fx.Node) -> str:
    module, what = net.module(node), net.what(node)
    if not isinstance(module, (nn.Linear, nn.Conv2d)):
        return what
    if (calls := sum(net.module(other) is module for other in net.graph.nodes)) > 1:
        return f"{what} that is called {calls} times"
    if type(module) not in (nn.Linear, nn.Conv2d):
        return f"{what}, a subclass of {'Linear' if isinstance(module, nn.Linear) else 'Conv2d'}"
    if isinstance(module, nn.Conv2d) and module.padding_mode != "zeros":
        return f"{what} with {module.padding_mode} padding"
    outputs = module.weight.shape[0]
    depthwise = isinstance(module, nn.Conv2d) and outputs == module.groups > 1
    return f"depthwise {what}" if depthwise else f"{what} with one output" if outputs == 1 else what


def _nothing_moves(net: Network, flow: Flow, model: nn.Module, layers: str) -> ValueError:
    """What is said where there is nothing to convert: what there is, what is in its way, and what helps."""
    left = alike(_left(net, flow))
    said = [
        f"model: in {type(model).__name__} no activation ({', '.join(ACTIVATIONS)}) is followed by {layers}",
        f"its activations: {_found(net)}",
        *(f"stays, {line}" for line in left),
    ]
    if not left:
        found = [node for node in net.graph.nodes if isinstance(net.module(node), (nn.Linear, nn.Conv2d))]
        before = {net.what(x) if x.op != "placeholder" else "the input" for node in found for x in node.all_input_nodes}
        said.append(f"before its layers come {', '.join(sorted(before))}" if found else "it has no such layer")
    else:
        said.append("replace_activations puts others there; averages, sums and products stop them all")
    return ValueError("; ".join(said))


def _found(net: Network) -> str:
    """The activations of a network, counted."""
    kinds = Counter(kind for kind in map(net.kind, net.graph.nodes) if kind)
    return ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())) or "none"


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


def _dac(layer: nn.Linear | nn.Conv2d, activation: str | nn.Module, bias: Tensor | None) -> nn.Module:
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


def _pre_activated(layer: nn.Linear | nn.Conv2d, activation: str | nn.Module, bias: Tensor | None) -> nn.Module:
    inputs = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
    layer.register_parameter("bias", None)
    return PreActivated(layer, activation, layer.weight.new_zeros(inputs) if bias is None else bias)


def to_dac(
    model: nn.Module,
    example: Example | None = None,
    *,
    first: bool = False,
    shared: bool = False,
    keep_function: bool = False,
) -> fx.GraphModule:
    r"""Return a network whose activations act in the layers after them, with a bias for every connection.

    .. math:: w * \varphi(z + b)\ \to\ \sum_j w_{ij} * \varphi(b_{ij} + z_j)

    Every activation that an ``nn.Linear`` or ``nn.Conv2d`` follows is removed, and the layer becomes a
    :class:`companion.DACLinear` or :class:`companion.DACConv2d`. Its biases begin as those that the activation saw: the
    bias of the layer before, or β of the batch normalisation, which is taken from there. All outputs begin with equal
    biases, so a plain or pre-activated (v2) network computes at first what it computed before; training tells them
    apart. Trained weights are kept. Between activation and layer there may be what commutes with a bias per
    channel and with the activation: max pooling (not with SiLU, GELU and Hardswish, which are not monotone),
    flattening, dropout, concatenation of channels, strided slices and channels of zeros.

    Parameters
    ----------
    model : nn.Module
        A network that torch.fx can trace. It stays as it is.
    example : sequence of int, Tensor, tuple, mapping, optional
        For networks that decide by the shape or the kind of their input: the decisions for this one are built in, and
        an input for which the code decides otherwise, such as one on another device, is an error. A batch, or the
        shape of one input without the batch; for several arguments nothing is built in. With it the new network is
        compared with the old one.
    first : bool
        Also replace the first layer, which no activation precedes. Its biases are 0; this changes the function.
    shared : bool
        Instead of a DAC, a `PreActivated` layer: the bias of an input is the same for all outputs. This is the paper's
        ablation; the function is the same at first, the training is not.
    keep_function : bool
        Residual networks compute at first what they did, too: where a sum reads an activation, it reads it still.

    Returns
    -------
    torch.fx.GraphModule
        In the mode, training or evaluation, of `model`. It has the name of the network's class and does what its
        ``forward`` does, but is none of that class: other methods, properties and attributes are gone. It and its
        layers keep their hooks of forward and backward passes; those of activations that move are gone, and those of
        modules made of others run only while the network is traced. Checkpoints of activations are gone, too. Layers
        keep their names: the state dict has ``weight`` and ``bias``, of shape (outputs, inputs), where the layer's own
        were. Where nothing was trained, the biases are not either. Its attribute ``converted``, a `Converted`, says
        what was replaced, what stays and why, and where the function changes; ``print`` shows it.

    Raises
    ------
    TypeError
        If `model` is no module, or `example` none of what is allowed.
    ValueError
        If the network cannot be traced (the error names the module), it is in training mode and does something else in
        evaluation, nothing in it can be replaced (it says what activations there are), or `first` is given and the
        first layer cannot be replaced, or with `keep_function`, or the network has an attribute ``converted`` of its
        own.

    Notes
    -----
    *Residual networks.* An activation that both a layer and a sum read is removed altogether, so the skip connection
    loses it. This is the paper's rule for networks of He et al.'s first kind; their function changes to that of
    the same network with activations in the branches only. With `keep_function` the activation is computed for the
    sum, as often as before, and only the layers have it to themselves.

    *What stays.* An activation before average pooling, which does not commute with it, or before anything else that is
    not named above. If a bias that it needs has moved, because a DAC needs it too, a `ChannelBias` comes before it.
    Such a module also takes the biases of a last layer, since a DAC has none for its output. Layers that gain nothing
    (one output per group, as in depthwise convolutions), padding by other than zeros, layers that are called twice, and
    subclasses stay, and so do activations with settings that are not torch's defaults, or with parameters; but for
    those of `companion.rethink` that are elementwise, such as AGLU: what it has learned goes with it into each layer
    that takes it over, and stays one.

    *Weight decay* takes the biases of connections along, unless ``parameter_groups(model, ..., decay="kernels")``.

    *Normalisation.* A bias that reaches a batch normalisation is taken off its running mean. Of a BatchNorm1d it is
    assumed that it sees (N, C).

    *Optional arguments* remain, unless the code of the network may decide by them, as in ``if mask is None``. Then
    their defaults are built in, and another value is an error.

    *Modes.* Where the code chooses numbers by ``self.training``, such as the probability of a dropout, so does the new
    network. Where it does something else in training, such as returning more, a network in training mode is refused,
    and what comes of one in evaluation mode raises an error in training. Where the code asks torch whether there are
    gradients, inference mode, autocast, or several processes, and does something else by the answer, this answer is
    built in: ``converted`` says so, and with another one the new network raises an error.

    *What a network keeps* from one call to the next, such as a state, is gone; with an example that is an error, as is
    a counter that decides something without one. Tables that are made at the first call are made at every call.

    *Buffers* keep their names, and what is computed from them follows when they change. Where the code decides by what
    a buffer holds, or makes a number of it by ``float`` or ``int``, what it held is built in. Code that compares
    ``type(buffer)`` with Tensor, or a dtype of real numbers by ``is``, is misled: ``isinstance`` and ``==`` are right.

    *Dropout* between an activation and its layer now drops z, not φ(z + b): a dropped input contributes φ(b). In
    evaluation there is no difference. Zeros around an image are put there after the activation.

    Chapter: *DAC* (``book/mechanisms/dac``).

    References
    ----------
    Metta et al. (2024), Increasing biases can be more efficient than increasing weights, sections 4 to 6.

    Examples
    --------
    >>> import torch, companion
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2, bias=False)).eval()
    >>> dac, x = companion.to_dac(model), torch.randn(5, 4)
    >>> type(dac.get_submodule("2")).__name__, torch.allclose(dac(x), model(x), atol=1e-6)
    ('DACLinear', True)
    """
    if first and keep_function:
        raise ValueError(
            "keep_function: got True together with first, which changes the function; allowed is one of them"
        )
    refuse_taken(model, "converted", Converted)
    net = trace(model, example)
    entrance = _entrance(net) if first else None
    flow = follow(net, _gains, biases=True, bare_sums=not keep_function, first=entrance)
    if not flow.takers and not first:
        raise _nothing_moves(net, flow, model, "an nn.Linear or nn.Conv2d with more than one output per group")
    changed = _hooked(net, flow)
    changed |= {net.where(node): "a sum reads its operands without their activation" for node in flow.bared}
    if entrance is not None:
        changed[str(entrance.target)] = "the first layer has an activation"
    made = _rebuild(net, flow, _pre_activated if shared else _dac)
    _refuse_another(model, example, moves=True)
    return _finished(net, flow, made, changed, model)


def _refuse_another(model: nn.Module, example: Example | None, moves: bool) -> None:
    """Refuse what would compute something else for an example, but for what is said of it.

    No network is compared with one whose function is to change, as that of a residual one: its copy keeps its
    activations for the sums. Biases shared by all outputs are faster than a DAC, and the same where nothing is trained.
    """
    if example is None:
        return
    copied = without_zeros(model)
    net = trace(copied, example)
    if moves and not _hooked(net, flow := follow(net, _gains, biases=True, bare_sums=False)):
        _rebuild(net, flow, _pre_activated)
    new = net.finished(copied)
    hand_over_hooks(copied, new, own=True)
    new.eval()
    if other := difference(copied, lambda args, kwargs: new(*args, **kwargs), example):
        raise ValueError(
            f"model: for the example its graph gives something else ({other}): the network does what a graph forgets, "
            "such as to write where another name reads; a part of it may be traced alone"
        )


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


def to_multibias(model: nn.Module, copies: int, example: Example | None = None) -> fx.GraphModule:
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
        How many biases a channel has, and copies of it: K.
    example : sequence of int, Tensor, tuple, mapping, optional
        See `to_dac`, also for networks that decide by optional arguments or by their mode.

    Returns
    -------
    torch.fx.GraphModule
        In the mode, training or evaluation, of `model`. A layer ``name`` is now ``name.1``, its biases ``name.0.bias``.
        After flattening every input, not every channel, has biases of its own. Methods and attributes of the network's
        class are gone, see `to_dac`.

    Raises
    ------
    TypeError
        If `model` is no module, `copies` no int, or `example` none of what is allowed.
    ValueError
        If the network cannot be traced, it is in training mode and does something else in evaluation, nothing in it can
        be replaced, `copies` is not positive, or the network has an attribute ``converted`` of its own.

    References
    ----------
    Metta et al. (2024), Increasing biases can be more efficient than increasing weights, Eq. 3 and section 5.

    Examples
    --------
    >>> import companion
    >>> from torch import nn
    >>> model = companion.to_multibias(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), 8)
    >>> model.get_submodule("2")[1]
    Linear(in_features=24, out_features=2, bias=True)
    """

    def multibias(layer: nn.Linear | nn.Conv2d, activation: str | nn.Module, _: Tensor | None) -> nn.Module:
        dense = isinstance(layer, nn.Linear)
        channels = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
        shape = [layer.weight.shape[0], copies * channels, *layer.weight.shape[2:]]
        layer.weight = nn.Parameter(nn.init.kaiming_normal_(layer.weight.new_empty(shape), nonlinearity="relu"))
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
        setattr(layer, "in_features" if dense else "in_channels", copies * channels)
        return nn.Sequential(MultiBias(channels, copies, activation, -1 if dense else 1).to(layer.weight), layer)

    def ungrouped(layer: nn.Module) -> bool:
        return getattr(layer, "groups", 1) == 1

    copies = as_int("copies", copies, minimum=1)
    refuse_taken(model, "converted", Converted)
    net = trace(model, example)
    flow = follow(net, ungrouped, biases=False, bare_sums=False)
    if not flow.takers:
        raise _nothing_moves(net, flow, model, "an nn.Linear or an ungrouped nn.Conv2d")
    changed = _hooked(net, flow)
    made = _rebuild(net, flow, multibias)
    _refuse_another(model, example, moves=False)
    return _finished(net, flow, made, changed | dict.fromkeys(made, "its weights are new"), model)
