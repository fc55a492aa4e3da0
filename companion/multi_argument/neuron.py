"""How neurons of several arguments enter a network: one activation is shared by all units of all layers."""

from collections.abc import Callable

from torch import nn

from companion.multi_argument.layers import MultiArgument, Quadratic
from companion.neurons import Neuron, replacing, widening
from companion.neurons.declaration import Enter
from companion.rehearsal import Example
from companion.surgery.places import copied

__all__ = ["NEURONS"]


def _shared(make: Callable[[], nn.Module], how: Callable[[Callable[..., nn.Module]], Enter]) -> Enter:
    """Let every place have a module of its own, with its own dimension of the units and the parameters of all."""

    def enter(model: nn.Module, example: Example, classes: int | None) -> nn.Module:
        shared = make()

        def place(channels: int, dim: int) -> nn.Module:
            new = copied(shared)
            new.dim = dim  # type: ignore[assignment]
            return new

        return how(place)(model, example, classes)

    return enter


NEURONS = (
    Neuron(
        "two_arguments",
        "two arguments, learned",
        "unit",
        _shared(MultiArgument, widening),
        modules=(MultiArgument,),
        arity=2,
    ),
    Neuron(
        "quadratic", "two arguments, quadratic", "unit", _shared(Quadratic, widening), modules=(Quadratic,), arity=2
    ),
    Neuron(
        "one_argument",
        "one argument, learned",
        "unit",
        _shared(lambda: MultiArgument(1), replacing),
        modules=(MultiArgument,),
        elementwise=True,
    ),
)
"""The paper's inner network, its quadratic approximation, and the control with one argument."""
