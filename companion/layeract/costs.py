"""What `companion.count` adds for LayerAct: activation functions are free, and so are normalisations."""

from companion.counting import free
from companion.layeract.op import la_hardsilu, la_silu, layer_act

free(la_hardsilu, la_silu, layer_act)
