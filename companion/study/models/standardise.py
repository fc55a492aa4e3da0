"""Standardisation as a part of the network."""

from torch import Tensor, nn

__all__ = ["Standardise"]


class Standardise(nn.Module):
    """(x − mean) / deviation with numbers that are fixed: a first layer for networks that are given pixels.

    With it, whatever comes before the network, such as crops and noise, works on pixels between 0 and 1. The numbers
    are saved with the network.

    Parameters
    ----------
    mean, deviation : Tensor
        Of the training images; any shape that broadcasts to the input, (1, C, 1, 1) for one pair per channel.

    Examples
    --------
    >>> import torch
    >>> Standardise(torch.tensor(1.0), torch.tensor(2.0))(torch.tensor([1.0, 5.0]))
    tensor([0., 2.])
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)

    def forward(self, x: Tensor) -> Tensor:
        """Standardise."""
        return (x - self.mean) / self.deviation
