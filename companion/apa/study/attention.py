"""How much a channel attention decides: the entropy of its weights."""

import torch
from torch import Tensor

__all__ = ["attention_entropy"]


def attention_entropy(weights: Tensor) -> Tensor:
    """Return the mean binary entropy of attention weights over their channels.

    E = −(1/C) Σ_c [a_c ln a_c + (1 − a_c) ln(1 − a_c)], in nats: at most ln 2 ≈ 0.693, where every weight is
    ½, and 0 where every weight is 0 or 1. The paper reads a small entropy as "all channels pass"; "no channel
    passes" gives the same number.

    Parameters
    ----------
    weights : Tensor
        Shape (…, C), values in [0, 1].

    Returns
    -------
    Tensor
        Shape (…), float64, on the CPU: Apple's GPUs have no float64.

    References
    ----------
    Alexandridis et al. (2025), Adaptive Parametric Activation, Eq. 4.

    Examples
    --------
    >>> attention_entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    tensor([0.6931, 0.0000], dtype=torch.float64)
    """
    if not weights.is_floating_point():
        raise TypeError(f"weights has dtype {weights.dtype}; allowed are floating dtypes")
    a = weights.cpu().double()
    # entr(a) = −a ln a, and 0 at a = 0.
    entropy: Tensor = (torch.special.entr(a) + torch.special.entr(1 - a)).mean(-1)
    return entropy
