"""What every operator shares: who computes, what is checked before, and how it is differentiated.

An operator has up to three implementations of the same mathematics: plain torch, the CUDA kernel on a GPU, and the
same kernel in the CPU simulator. :func:`backend` chooses; :func:`choose` is how an operator asks.
:func:`differentiable` makes of them one function that can be differentiated in every way that torch knows.
"""

from companion.operators.checks import (
    as_float,
    as_int,
    check_dtype,
    check_flag,
    check_floating,
    check_parameter,
    where_else,
)
from companion.operators.choice import COMPILES, KERNEL_DTYPES, OLDEST_COMPILER, backend, choose
from companion.operators.classes import OfClasses
from companion.operators.declaration import Operator, operators
from companion.operators.differentiation import differentiable, opaque
from companion.operators.memory import image_format, in_order_of_memory, memory_order
from companion.operators.observers import (
    batched,
    exporting,
    has_tangent,
    in_backward,
    on_cpu,
    overridable,
    refuse_script,
    tangent_of,
    transformed,
)
from companion.operators.precision import cast, compute_dtype, without_autocast

__all__ = [
    "COMPILES",
    "KERNEL_DTYPES",
    "OLDEST_COMPILER",
    "OfClasses",
    "Operator",
    "as_float",
    "as_int",
    "backend",
    "batched",
    "cast",
    "check_dtype",
    "check_flag",
    "check_floating",
    "check_parameter",
    "choose",
    "compute_dtype",
    "differentiable",
    "exporting",
    "has_tangent",
    "image_format",
    "in_backward",
    "in_order_of_memory",
    "memory_order",
    "on_cpu",
    "opaque",
    "operators",
    "overridable",
    "refuse_script",
    "tangent_of",
    "transformed",
    "where_else",
    "without_autocast",
]
