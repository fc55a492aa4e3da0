"""New artificial neurons: derived, checked by machine, and implemented with raw CUDA kernels.

Modules live here, such as `AGLU`, and functions in :mod:`companion.functional`; `rethink` puts them into a network that
is there already, by name. Importing this package imports torch and nothing else
that is large; CuPy, SymPy, Matplotlib and torchvision are imported where they are used.
"""

from companion import functional
from companion.apa.layers import AGLU, APA, ChannelAttention, SpatialAttention, SpatialChannelAttention
from companion.baselines import GDN, MultiBias
from companion.counting import count
from companion.dac.conversion import to_dac, to_multibias
from companion.dac.layers import DACConv2d, DACLinear
from companion.dnrt.attachment import attach_arr, detach_arr
from companion.dnrt.layers import ARR, RAA
from companion.layeract.layers import LAHardSiLU, LASiLU, LayerAct
from companion.multi_argument.layers import MultiArgument, Quadratic
from companion.operators import backend
from companion.proofs.verdicts import warmup
from companion.rethinking import extra_loss, rethink, undo
from companion.surgery import replace_activations, restore_activations, to_units
from companion.weight_decay import parameter_groups

__version__ = "0.2.0"

__all__ = [
    "AGLU",
    "APA",
    "ARR",
    "GDN",
    "RAA",
    "ChannelAttention",
    "DACConv2d",
    "DACLinear",
    "LAHardSiLU",
    "LASiLU",
    "LayerAct",
    "MultiArgument",
    "MultiBias",
    "Quadratic",
    "SpatialAttention",
    "SpatialChannelAttention",
    "attach_arr",
    "backend",
    "count",
    "detach_arr",
    "extra_loss",
    "functional",
    "parameter_groups",
    "replace_activations",
    "restore_activations",
    "rethink",
    "to_dac",
    "to_multibias",
    "to_units",
    "undo",
    "warmup",
]
