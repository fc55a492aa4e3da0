"""APA's and AGLU's cases for the tests that go through all rooms."""

import torch

from companion import AGLU, APA, SpatialChannelAttention
from companion.functional import aglu, apa
from companion.proofs.trial import inputs
from tests.cuda.coverage import Unreachable

#: A function of one tensor (2, 3, 4, 5).
FUNCTIONS = {
    "aglu": lambda z: aglu(z, 1.5, torch.tensor(0.7)),
    "aglu, per channel": lambda z: aglu(z, torch.rand(3) + 1, torch.rand(3)),
    "apa": lambda z: apa(z, 1.5, 0.7),
}
#: What makes a layer, and the shape of its input.
EXPORTED = {
    "APA": (APA, (3, 4, 6, 5)),
    "AGLU, a pair for each channel": (lambda: AGLU(4), (3, 4, 6, 5)),
    "attention": (lambda: SpatialChannelAttention(4, reduction=2), (3, 4, 6, 5)),
}
#: An operator with a kernel, and its operands.
LAUNCHED = {"aglu": (aglu, [inputs(3, 5, 9), torch.full((5,), 0.5), torch.ones(5)])}
#: By the operand, a call with one that is sparse.
SPARSE = {
    "z": lambda: aglu(torch.eye(3).to_sparse(), 1.0, 1.0),
    "kappa": lambda: apa(torch.eye(3), torch.ones(3).to_sparse(), 1.0),
}
#: By the operator, what no tensor leads to in its kernels.
UNREACHABLE = {
    "aglu": [
        Unreachable("map_range<1,", "packable = packable && misalignment(in[k]) == offset", "a loop of one round"),
    ],
}
