"""What `companion.count` adds: for each unit the layers of the inner network, or a quadratic form. ReLU is free."""

from __future__ import annotations

from torch import Tensor

from companion.counting import declare, linear_flops
from companion.multi_argument.op import Tensors, multi_argument, quadratic_form


@declare(multi_argument)
def _flops(x: Tensor, weights: Tensors, biases: Tensors, arity: int, dim: int = -1) -> int:
    """The layers, a weight after the other."""
    return x.numel() // arity * sum(linear_flops(w.shape[1], w.shape[0]) for w in weights)


@declare(quadratic_form)
def _form_flops(x: Tensor, coefficients: Tensor, arity: int, dim: int = -1) -> int:
    """c + Σ a_i (ℓ_i + Σ q_ij a_j): a product and a sum for each coefficient but the constant."""
    return x.numel() // arity * 2 * (coefficients.numel() - 1)
