"""How DAC enters a network, and multi-bias, with which its paper compares: activations act behind a bias of each."""

import inspect
from collections.abc import Callable

from torch import fx, nn

from companion.dac.calls import built_in
from companion.dac.conversion import to_dac, to_multibias
from companion.neurons import Neuron
from companion.neurons.declaration import Enter
from companion.rehearsal import Example, example_of

__all__ = ["NEURONS"]

# So many biases of each channel, and weights for each: the smallest number that is not one.
_COPIES = 2


def _converting(convert: Callable[[nn.Module, Example], fx.GraphModule]) -> Enter:
    """A conversion traces a network of several arguments without them; what it made has to take them."""

    def enter(model: nn.Module, example: Example, classes: int | None) -> nn.Module:
        args, kwargs = example_of(model, example)
        new = convert(model, example)
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
