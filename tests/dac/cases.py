"""DAC's cases for the tests that go through all rooms."""

import torch
from torch import nn

from companion import DACConv2d, DACLinear, MultiBias
from companion.functional import dac_conv2d, dac_linear
from companion.proofs.trial import inputs, offsets, signals
from tests.cuda.coverage import Unreachable

#: A function of one tensor (2, 3, 4, 5).
FUNCTIONS = {
    "dac_linear": lambda z: dac_linear(z, torch.ones(4, 5), torch.zeros(4, 5)),
    "dac_conv2d": lambda z: dac_conv2d(z, torch.ones(2, 3, 1, 1), torch.zeros(2, 3)),
}
#: What makes a layer, and the shape of its input.
EXPORTED = {
    "DAC, dense": (lambda: DACLinear(4, 5, "silu"), (2, 3, 4)),
    "DAC, convolution": (lambda: DACConv2d(4, 6, 3, padding=1), (3, 4, 5, 5)),
    "DAC, per weight, before, groups": (
        lambda: DACConv2d(4, 6, 3, 2, 1, groups=2, pad_order="before", per_weight=True),
        (3, 4, 6, 5),
    ),
    "DAC, a function": (lambda: DACConv2d(4, 6, 3, padding=1, activation=nn.PReLU()), (3, 4, 5, 5)),
    "several biases": (lambda: MultiBias(4, 2), (3, 4, 6, 5)),
}
#: An operator with a kernel, and its operands.
LAUNCHED = {
    "dac_linear": (dac_linear, [inputs(9, 8), signals(5, 8), offsets(5, 8)]),
    "dac_conv2d": (dac_conv2d, [inputs(2, 3, 5, 4), signals(4, 3, 2, 3), offsets(4, 3)]),
    "dac_conv2d, tensor cores": (
        dac_conv2d,
        [x.to(torch.float16) for x in (inputs(2, 3, 5, 4), signals(4, 3, 3, 3), offsets(4, 3))],
    ),
}
#: By the operand, a call with one that is sparse.
SPARSE = {
    "weight": lambda: dac_linear(torch.eye(3), torch.eye(3).to_sparse(), torch.eye(3)),
}
#: By the operator, what no tensor leads to in its kernels.
UNREACHABLE = {
    "dac_conv2d": [
        Unreachable("sum_over_outputs", "with_z ? z_q : 1.0f", "only where g is not finite, and then no sum is taken"),
    ],
}
#: A result that the backward pass does not read: what follows may overwrite it. An operator and its operands.
OVERWRITTEN = {
    "dac_linear": (dac_linear, [inputs(2, 3, 3, 3), signals(4, 3), offsets(4, 3)]),
    "dac_conv2d": (dac_conv2d, [inputs(2, 3, 3, 3), signals(4, 3, 3, 3), offsets(4, 3)]),
}
