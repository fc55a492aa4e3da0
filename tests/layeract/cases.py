"""LayerAct's cases for the tests that go through all rooms."""

from companion import LAHardSiLU, LASiLU, LayerAct
from companion.functional import la_hardsilu, la_silu, layer_act
from companion.proofs.trial import inputs

#: A function of one tensor (2, 3, 4, 5).
FUNCTIONS = {"la_silu": lambda z: la_silu(z), "la_hardsilu": lambda z: la_hardsilu(z, dims=1)}
#: What makes a layer, and the shape of its input.
EXPORTED = {
    "LA-SiLU": (LASiLU, (3, 4, 6, 5)),
    "LA-HardSiLU": (LAHardSiLU, (3, 7)),
    "LayerAct": (LayerAct, (3, 4, 6, 5)),
}
#: An operator with a kernel, and its operands.
LAUNCHED = {"layer_act": (layer_act, [inputs(3, 33)])}
