"""How neurons of several arguments enter a network: one activation is shared by all units of all layers."""

from companion.multi_argument.layers import MultiArgument, Quadratic
from companion.neurons import Neuron, Replacing, Widening

__all__ = ["NEURONS"]

NEURONS = (
    Neuron(
        "two_arguments",
        "two arguments, learned",
        "unit",
        Widening(MultiArgument, shared=True),
        modules=(MultiArgument,),
        arity=2,
    ),
    Neuron(
        "quadratic",
        "two arguments, quadratic",
        "unit",
        Widening(Quadratic, shared=True),
        modules=(Quadratic,),
        arity=2,
    ),
    Neuron(
        "one_argument",
        "one argument, learned",
        "unit",
        Replacing(lambda: MultiArgument(1), shared=True),
        modules=(MultiArgument,),
        elementwise=True,
    ),
)
"""The paper's inner network, its quadratic approximation, and the control with one argument."""
