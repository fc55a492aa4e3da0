"""How LayerAct enters a network: over each token alone where there are tokens, else over a whole example."""

from torch import nn

from companion.layeract.layers import LAHardSiLU, LASiLU
from companion.neurons import Neuron, Replacing

__all__ = ["NEURONS"]


def _la_silu(channels: int, dim: int) -> nn.Module:
    return LASiLU(dims=-1 if dim == -1 else None)


def _la_hardsilu(channels: int, dim: int) -> nn.Module:
    return LAHardSiLU(dims=-1 if dim == -1 else None)


NEURONS = (
    Neuron("la_silu", "LA-SiLU", "unit", Replacing(_la_silu), modules=(LASiLU,), zero_at_zero=True),
    Neuron("la_hardsilu", "LA-HardSiLU", "unit", Replacing(_la_hardsilu), modules=(LAHardSiLU,), zero_at_zero=True),
)
"""With the paper's α. With the published dimensions, all but the first, a token would see those after it."""
