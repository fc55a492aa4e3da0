"""How DAC enters a network, and multi-bias, with which its paper compares: activations act behind a bias of each."""

import inspect
from collections.abc import Callable

from torch import Tensor, fx, nn

from companion.dac.calls import built_in
from companion.dac.conversion import to_dac, to_multibias
from companion.neurons import Neuron
from companion.neurons.declaration import Enter
from companion.rehearsal import Example, example_of

__all__ = ["NEURONS"]

# So many biases of each channel, and weights for each: the smallest number that is not one.
_COPIES = 2


def _converting(convert: Callable[[nn.Module, Tensor | None], fx.GraphModule]) -> Enter:
    """A conversion traces the network with one tensor; what takes others is traced without, and has to take them."""

    def enter(model: nn.Module, example: Example, classes: int | None) -> nn.Module:
        args, kwargs = example_of(model, example)
        alone = len(args) == 1 and not kwargs and isinstance(args[0], Tensor)
        new = convert(model, args[0] if alone else None)
        given = inspect.signature(model.forward).bind(*args, **kwargs).arguments
        for node in new.graph.nodes:
            if node.target is built_in:
                _, default, name = node.args
                built_in(given.get(str(name), default), default, str(name))
        return new

    return enter


NEURONS = (
    Neuron("dac", "DAC", "connection", _converting(to_dac), leave=None, keeps_channels=False, decay="kernels"),
    Neuron(
        "multibias",
        f"multi-bias, {_COPIES} copies",
        "connection",
        _converting(lambda model, example: to_multibias(model, _COPIES, example)),
        leave=None,
        keeps_channels=False,
    ),
)
"""By the paper's rules, which in a residual network changes what skip connections carry, see `companion.to_dac`."""
