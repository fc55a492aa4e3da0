"""RAA's and ARR's cases for the tests that go through all rooms."""

import torch

from companion import ARR, RAA
from companion.functional import raa
from companion.proofs.trial import inputs, offsets, signals
from tests.cuda.coverage import A_BLOCK_A_ROW, BLOCKS, Unreachable

#: A function of one tensor (2, 3, 4, 5).
FUNCTIONS = {
    "raa": lambda z: raa(z, torch.ones(3) / 3, torch.zeros(1), dim=1),
    "raa, relu": lambda z: raa(z, torch.ones(5) / 5, torch.zeros(1), gate="relu"),
}
#: What makes a layer, and the shape of its input. ARR is a loss, and no layer of a network that is used.
EXPORTED = {
    "RAA": (lambda: RAA(7), (3, 5, 7)),
    "RAA, SiLU's gate": (lambda: RAA(4, gate="silu", dim=1), (3, 4, 6, 5)),
}
#: An operator with a kernel, and its operands.
LAUNCHED = {
    "raa": (raa, [inputs(7, 33), signals(33), offsets(1)]),
    "arr": (lambda x: ARR(3, 33)(x, torch.arange(7) % 3), [inputs(7, 33)]),
}
#: By the operand, a call with one that is sparse.
SPARSE = {
    "bias": lambda: raa(torch.eye(3), torch.ones(3), torch.ones(1).to_sparse()),
}
#: By the operator, what no tensor leads to in its kernels.
UNREACHABLE = {
    "arr": [Unreachable("follow_class", "assert(k >= 0 && k < classes)", "it would stop the GPU")],
    "raa": [
        Unreachable(BLOCKS, "exists", A_BLOCK_A_ROW),
        Unreachable(BLOCKS, "const Spread<T> spread(", A_BLOCK_A_ROW),
    ],
}
#: A result that the backward pass does not read: what follows may overwrite it. An operator and its operands.
OVERWRITTEN = {
    "raa": (raa, [inputs(2, 3, 3, 3), signals(3), offsets(1)]),
}
