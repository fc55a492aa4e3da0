"""One graph for all calls of a network: where its code decides by arguments or by its mode, graphs are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate, map_arg

from companion.surgery.modes import ANSWERS

__all__ = [
    "ByMode",
    "Evaluated",
    "answers_built_in",
    "built_in",
    "counted",
    "decided",
    "differences",
    "known",
    "let_choose",
]


def built_in(value: Any, default: Any, name: str) -> None:
    """Refuse an argument that is not as it was when a network was traced, where its code decides by it."""
    if isinstance(value, fx.Proxy):
        value.tracer.create_proxy("call_function", built_in, (value, default, name), {})
    elif value is not default and (isinstance(value, Tensor) or value != default):
        got = repr(value) if isinstance(value, (bool, int, float, str, type(None))) else f"a {type(value).__name__}"
        raise ValueError(
            f"{name}: got {got}, allowed is {default!r}; what a network does with other values is no part of its graph"
        )


def decided(value: Any, answer: Any, line: str) -> None:
    """Refuse an input for which the code of a network decides otherwise than for the example it was converted with."""
    if isinstance(value, fx.Proxy):
        value.tracer.create_proxy("call_function", decided, (value, answer, line), {})
    elif (now := type(answer)(value)) != answer:
        raise ValueError(
            f"input: got one for which {line} finds {now}, allowed are those for which it finds {answer}, as for the "
            "example of the conversion (a shape stands for one input, of zeros; give a batch of real ones in its "
            "place); what the network does otherwise is no part of its graph"
        )


def counted(value: Any, count: int, line: str) -> None:
    """Refuse an input that has more elements, or fewer, where the code of a network asked for each."""
    if isinstance(value, fx.Proxy):
        value.tracer.create_proxy("call_function", counted, (value, count, line), {})
    else:
        decided(len(value), count, line)


def answers_built_in(answers: Mapping[str, bool]) -> None:
    """Refuse a mode of torch's that is not as it was when a network was traced, where its code decides by it."""
    for name, answer in answers.items():
        if ANSWERS[name]() != answer:
            raise RuntimeError(
                f"{name}: got {not answer}, allowed is {answer}, as when the network was converted; what it does "
                "otherwise is no part of its graph"
            )


class ByMode(nn.Module):
    """What the code of a network chooses by its mode, such as the probability of a dropout.

    Parameters
    ----------
    evaluation, training : number, str or None
        The choices.
    """

    def __init__(self, evaluation: Any, training: Any) -> None:
        super().__init__()
        self.choices = (evaluation, training)

    def forward(self) -> Any:
        """Choose."""
        return self.choices[self.training]

    def extra_repr(self) -> str:
        """Both."""
        return f"evaluation={self.choices[0]!r}, training={self.choices[1]!r}"


class Evaluated(nn.Module):
    """Refuses training mode, in which the network that was traced does something else.

    Parameters
    ----------
    why : str
        What does.
    """

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why

    def forward(self) -> None:
        """Raise an error in training mode."""
        if self.training:
            raise RuntimeError(
                f"training: got True, allowed is False; the network was converted for evaluation alone: {self.why}"
            )

    def extra_repr(self) -> str:
        """The reason."""
        return self.why


def known(graph: fx.Graph, defaults: Mapping[str, Any]) -> dict[fx.Node, Any]:
    """What the nodes of a graph are that depend on nothing but arguments that are left out."""
    values: dict[fx.Node, Any] = {}
    for node in graph.nodes:
        if node.op == "placeholder" and node.target in defaults:
            values[node] = defaults[node.target]
        elif node.op in ("call_function", "call_method") and values.keys() >= {*node.all_input_nodes}:
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
            try:
                function = node.target if callable(node.target) else getattr(type(args[0]), node.target)
                values[node] = function(*args, **kwargs)
            except Exception:  # of None nothing can be computed
                continue
    return values


def differences(
    root: nn.Module, graph: fx.Graph, other_root: nn.Module, other: fx.Graph, values: Mapping[fx.Node, Any]
) -> list[tuple[fx.Node, Any]]:
    """The nodes of a graph that are others in another one.

    Parameters
    ----------
    root, graph
        A network and its graph.
    other_root, other
        The same network, traced in another way.
    values : mapping
        The nodes that the other graph does not have, and what it has instead.

    Returns
    -------
    list of (Node, (args, kwargs) or None)
        With what a node is called there, if that differs in numbers alone; otherwise None, and nothing comes after it.
    """
    left_out = {node.target for node in values if node.op == "placeholder"}
    twins: dict[fx.Node, fx.Node] = {}
    found: list[tuple[fx.Node, Any]] = []
    own = [node for node in graph.nodes if node not in values]
    for node, twin in zip_longest(own, [n for n in other.nodes if n.op != "placeholder" or n.target not in left_out]):
        if node is None or twin is None or not _does_the_same(root, node, other_root, twin):
            return [*found, (node or own[-1], None)]
        twins[twin] = node
        here = map_arg((node.args, node.kwargs), lambda n: values.get(n, n))
        there = map_arg((twin.args, twin.kwargs), twins.__getitem__)
        (form, leaves), (other_form, other_leaves) = _taken_apart(here), _taken_apart(there)
        pairs = [(x, y) for x, y in zip_longest(leaves, other_leaves) if not _same(x, y)]
        if form != other_form or any(isinstance(x, fx.Node) for pair in pairs for x in pair):
            return [*found, (node, None)]
        if pairs:
            found.append((node, there))
    return found


def _does_the_same(root: nn.Module, node: fx.Node, other_root: nn.Module, twin: fx.Node) -> bool:
    if node.op == twin.op == "get_attr":
        x, y = _attribute(root, str(node.target)), _attribute(other_root, str(twin.target))
        return x is y or (
            isinstance(x, Tensor)
            and isinstance(y, Tensor)
            and x.dtype == y.dtype
            and torch.equal(x.detach(), y.detach())
        )
    return bool(node.op == twin.op and node.target == twin.target)


def _attribute(root: nn.Module, name: str) -> Any:
    parent, _, own = name.rpartition(".")
    return getattr(root.get_submodule(parent), own)


def _taken_apart(arguments: Any) -> tuple[Any, list[Any]]:
    leaves: list[Any] = []
    return map_aggregate(arguments, leaves.append), leaves


def _same(x: Any, y: Any) -> bool:
    return x is y or (type(x) is type(y) and bool(x == y or (x != x and y != y)))


def let_choose(node: fx.Node, there: Any, training: bool, add: Callable[[ByMode], str]) -> None:
    """Let the arguments of a node, where they differ from others, be chosen by the mode.

    Parameters
    ----------
    node : Node
        Its arguments are those of one mode.
    there : (args, kwargs)
        Those of the other mode.
    training : bool
        Whether the first mode is training.
    add : callable
        Gives a module its name in the network.
    """
    _, leaves = _taken_apart(there)
    others = iter(leaves)

    def chosen(x: Any) -> Any:
        y = next(others)
        if _same(x, y):
            return x
        return node.graph.call_module(add(ByMode(*((y, x) if training else (x, y))).train(training)))

    with node.graph.inserting_before(node):
        node.args, node.kwargs = map_aggregate((node.args, node.kwargs), chosen)
