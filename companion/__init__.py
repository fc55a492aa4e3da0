"""New artificial neurons: derived, checked by machine, and implemented with raw CUDA kernels.

An artificial neuron adds up its inputs, adds a bias, and sends the sum through a curve. Five papers change one part
each. `rethink` puts any of the changes into a network that is there already, by name; `undo` takes it out.

>>> import torch, companion
>>> model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 3))
>>> model = companion.rethink(model, "relu+arr", example=(8,), num_classes=3)
>>> x, target = torch.randn(4, 8), torch.tensor([0, 2, 0, 1])
>>> optimizer = torch.optim.AdamW(companion.parameter_groups(model, 0.01, model.rethought.decay))
>>> loss = torch.nn.functional.cross_entropy(model(x), target) + companion.extra_loss(model, target)
>>> loss.backward()
>>> optimizer.step()

``print(model.rethought)`` says what stands where, what stays and why, how many parameters there are, and what to add.

=====================  ==========================================================  =========================
name                   what it is                                                  paper
=====================  ==========================================================  =========================
aglu                   a curve with a slope and an asymmetry that are learned      Alexandridis et al. 2025
apa                    the same for gates, in the place of a sigmoid               Alexandridis et al. 2025
dac                    a bias, and the curve, for every connection                 Metta et al. 2024
multibias              several biases for a unit, each with a copy of it           Li et al. 2016
la_silu, la_hardsilu   the gate of SiLU sees the layer, normalised                 Yoon, Lim 2023
raa                    all units of a layer shift the gate of each                 Qiu et al. 2024
arr                    a loss: responses to a class stay near their mean           Qiu et al. 2024
two_arguments          one small network makes one number of two, for all units    Kim et al. 2022
one_argument           the same of one number                                      Kim et al. 2022
quadratic              a quadratic form of two numbers, with six coefficients      Kim et al. 2022
=====================  ==========================================================  =========================

To compare with: relu, gelu, silu, mish, prelu, swish; of two arguments glu, geglu, swiglu, maxout; before an
activation norm, extra_linear; and the loss centre. Several go together with "+".

*What the book's trainings say.* In five small networks, with equally many parameters and the same search for the
learning rate, no neuron of the five papers is first everywhere. In three of them nobody is clearly ahead of GELU; in a
transformer for images ReLU with one paper's loss (ARR) is first, in one for text SwiGLU, which is of none of the five.

*What it costs.* ``python -m companion count MODEL`` counts parameters and FLOPs; `count` does it for a network at
hand. Everything runs in plain PyTorch, and with the extra ``gpu`` on NVIDIA's GPUs in CUDA kernels;
`backend` chooses. ``python -m companion doctor`` says what is installed here, what works, and what is proved.

*Further.* `replace_activations`, `to_units`, `to_dac`, `to_multibias` and `attach_arr` do each what `rethink` does with
all, and can be told more. Modules live here, such as `AGLU`, and functions in :mod:`companion.functional`. Their help
names the chapter of the book that derives them and tests what their paper claims.

Importing this package imports torch and nothing else that is large; CuPy, SymPy, Matplotlib and torchvision are
imported where they are used.
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
