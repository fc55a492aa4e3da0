"""The public functions. Every one takes tensors of any device and floating dtype."""

from companion.apa.op import aglu, apa
from companion.layeract.op import la_hardsilu, la_silu, layer_act

__all__ = ["aglu", "apa", "la_hardsilu", "la_silu", "layer_act"]
