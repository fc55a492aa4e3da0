"""How APA and AGLU enter a network: AGLU activates units, APA is a gate."""

from functools import partial

from companion.activations import GATES
from companion.apa.layers import AGLU, APA
from companion.neurons import Neuron, Replacing

__all__ = ["NEURONS"]

NEURONS = (
    Neuron(
        "aglu",
        "AGLU",
        "unit",
        Replacing(partial(AGLU, init="aglu")),
        modules=(AGLU,),
        elementwise=True,
        zero_at_zero=True,
    ),
    # κ may become negative, and then it falls
    Neuron("apa", "APA", "gate", Replacing(partial(APA, init="apa_balanced"), GATES), modules=(APA,), elementwise=True),
)
"""As the paper starts them (Table XV)."""
