"""LayerAct's cases for the tests that go through all rooms."""

import torch

from companion import LAHardSiLU, LASiLU, LayerAct
from companion.functional import la_hardsilu, la_silu, layer_act
from companion.proofs.trial import inputs
from tests.cuda.coverage import A_BLOCK_A_ROW, BLOCKS, Unreachable

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
#: By the operand, a call with one that is sparse.
SPARSE = {
    "y": lambda: la_silu(torch.eye(3).to_sparse_csr()),
}
_CHUNKS = r"map_range<.*_chunk<"
_ALIGNED = "rows.aligned has copied what begins inside a pack"
_LONG = "a chunk has more packs than a block has threads"
#: By the operator, what no tensor leads to in its kernels.
UNREACHABLE = {
    "layer_act": [
        Unreachable(_CHUNKS, "packable = packable && misalignment(in[k]) == offset", _ALIGNED),
        Unreachable(_CHUNKS, "int64 head = packable ?", _ALIGNED),
        Unreachable(_CHUNKS, "head = head < length ?", _LONG),
        Unreachable(_CHUNKS, "if (thread < packs) load(present, thread)", _LONG),
        Unreachable("accurate_rsqrt", "x > 0.0f && x <", "alpha is positive, and infinite variances do not come here"),
        Unreachable(r"sum_of<\w+, 1>", "half", "one element has no halves"),
        Unreachable(BLOCKS, "exists", A_BLOCK_A_ROW),
        Unreachable("combine_statistics", "deviation < 0.0 ?", "it takes an unlucky rounding in double"),
    ],
}
