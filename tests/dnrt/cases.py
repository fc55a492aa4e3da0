"""RAA's and ARR's cases for the tests that go through all rooms."""

import torch

from companion import ARR, RAA
from companion.functional import raa
from companion.proofs.trial import inputs, offsets, signals

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
