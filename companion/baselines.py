"""What the papers compare with and torch lacks, or has in a form that would make the comparison unfair."""

import torch
from torch import Tensor, nn

__all__ = ["Gumbel", "PReLU", "gumbel"]


def gumbel(z: Tensor) -> Tensor:
    """Return exp(−exp(−z)), the Gumbel distribution function, elementwise.

    It is the limit λ → 0 of APA with κ = 1. Nothing overflows in it, but its gradient as autograd would build
    it does: exp(−z) is infinite below z ≈ −88 in float32, and infinity times zero is NaN. Below −20 the value
    is 0 in every dtype, so the argument is held there.

    Parameters
    ----------
    z : Tensor
        Any shape, any floating dtype.

    Returns
    -------
    Tensor
        Shape and dtype of `z`; computed in float32 or better.

    References
    ----------
    Alexandridis et al. (2022), Long-tailed instance segmentation using Gumbel optimized loss.

    Examples
    --------
    >>> gumbel(torch.tensor([-1000.0, 0.0, 1000.0]))
    tensor([0.0000, 0.3679, 1.0000])
    """
    if not z.is_floating_point():
        raise TypeError(f"z has dtype {z.dtype}; allowed are floating dtypes")
    wide = z.to(torch.promote_types(z.dtype, torch.float32))
    # maximum, not clamp: it keeps NaN as NaN and hands the gradient 0 to what lies below.
    floor = torch.full((), -20.0, dtype=wide.dtype, device=wide.device)
    return torch.exp(-torch.exp(-torch.maximum(wide, floor))).to(z.dtype)


class Gumbel(nn.Module):
    """The Gumbel activation exp(−exp(−z)) as a module; see `gumbel`.

    Examples
    --------
    >>> Gumbel()(torch.zeros(1))
    tensor([0.3679])
    """

    def forward(self, z: Tensor) -> Tensor:
        """Apply the activation."""
        return gumbel(z)


class PReLU(nn.PReLU):
    """torch's PReLU with the exemption from weight decay that its authors use.

    Decay would pull the slope to zero, which is ReLU; the comparison would be with a handicapped PReLU.

    References
    ----------
    He et al. (2015), Delving deep into rectifiers, section 2.1: "we do not use weight decay when updating
    a_i".
    """

    no_weight_decay = ("weight",)
