"""The public functions. Every one takes tensors of any device and floating dtype."""

from companion.apa.op import aglu, apa
from companion.dac.op import dac_conv2d, dac_linear
from companion.dnrt.op import arr_loss, raa
from companion.layeract.op import la_hardsilu, la_silu, layer_act
from companion.multi_argument.op import multi_argument, quadratic_form

__all__ = [
    "aglu",
    "apa",
    "arr_loss",
    "dac_conv2d",
    "dac_linear",
    "la_hardsilu",
    "la_silu",
    "layer_act",
    "multi_argument",
    "quadratic_form",
    "raa",
]
