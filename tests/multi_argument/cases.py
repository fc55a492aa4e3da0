"""The cases of neurons of several arguments for the tests that go through all rooms."""

from functools import partial

import torch

from companion import MultiArgument, Quadratic
from companion.functional import multi_argument, quadratic_form
from companion.multi_argument.proof import parameters_of
from companion.proofs.trial import inputs, signals
from tests.cuda.coverage import Unreachable

#: A function of one tensor (2, 3, 4, 5).
FUNCTIONS = {
    "multi_argument": lambda z: multi_argument(
        z, [torch.eye(4), torch.ones(1, 4)], [torch.zeros(4), torch.ones(1)], 4, 2
    ),
    "quadratic_form": lambda z: quadratic_form(z, torch.arange(6.0), 2, 2),
}
#: What makes a layer, and the shape of its input.
EXPORTED = {
    "two arguments": (MultiArgument, (3, 5, 8)),
    "two arguments, images": (lambda: MultiArgument(dim=1, init="linear"), (3, 4, 6, 5)),
    "a quadratic": (lambda: Quadratic(dim=1), (3, 4, 6, 5)),
}


def _network(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
    return multi_argument(x, parameters[::2], parameters[1::2], 2)


#: An operator with a kernel, and its operands.
LAUNCHED = {
    "multi_argument": (_network, [inputs(9, 4), *parameters_of(2)]),
    "multi_argument, tensor cores": (_network, [inputs(9, 4, dtype=torch.float16), *parameters_of(2)]),
    "quadratic_form": (partial(quadratic_form, arity=2), [inputs(9, 4), signals(6)]),
}
#: By the operand, a call with one that is sparse.
SPARSE = {
    "weights": lambda: multi_argument(
        torch.eye(3), [torch.eye(3).to_sparse(), torch.ones(1, 3)], [torch.ones(3), torch.ones(3)], 3
    ),
    "coefficients": lambda: quadratic_form(torch.eye(3), torch.ones(3).to_sparse(), 1),
}
_WHOLE_WARPS = "there are 64 sums for each neuron: whole warps"
#: By the operator, what no tensor leads to in its kernels.
UNREACHABLE = {
    "multi_argument": [
        Unreachable("reduce_columns", "column < columns", _WHOLE_WARPS),
        Unreachable("reduce_columns", "column >= columns", _WHOLE_WARPS),
    ],
}
#: A result that the backward pass does not read: what follows may overwrite it. An operator and its operands.
OVERWRITTEN = {
    "quadratic_form": (partial(quadratic_form, arity=1), [inputs(2, 3, 3, 3), signals(3)]),
}
