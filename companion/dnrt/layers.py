"""Modules: RAA."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from companion.dnrt.op import Gate, check_gate, raa
from companion.operator import as_int, refuse_script

__all__ = ["RAA"]


class RAA(nn.Module):
    r"""Response-adaptive activation: GELU with a threshold that depends on the whole vector.

    .. math:: \operatorname{RAA}(\mathbf x) = \mathbf x \odot \Phi(\mathbf x + \mathbf w^{\mathsf T}\mathbf x + b)

    Parameters
    ----------
    channels : int
        d, the elements of a vector, at least 1.
    gate : {"gelu", "silu", "relu"} or callable
        See :func:`companion.functional.raa`.
    dim : int
        Where the elements of a vector lie: −1 for tokens, 1 for images (N, C, H, W).
    inplace : bool
        Accepted where networks give it to every activation, and without effect.

    Attributes
    ----------
    weight : Parameter
        :math:`\mathbf w`, (d,), zero at the start.
    bias : Parameter
        :math:`b`, (1,), zero at the start: a new module is exactly the activation that it replaces.

    Raises
    ------
    TypeError
        If the number of channels is no int, or the gate is neither a name nor callable.
    ValueError
        If there is fewer than one, or the gate's name is unknown.

    Shape
    -----
    Input of floating dtype with d elements along ``dim``, output the same. The chapter, *DNRT*, is not
    written yet.

    References
    ----------
    Qiu et al. (2024), Dynamic Neural Response Tuning, Eq. 4.

    Examples
    --------
    >>> import torch, companion
    >>> layer = companion.RAA(16, dim=1)
    >>> x = torch.randn(8, 16, 5, 5)
    >>> torch.allclose(layer(x), torch.nn.functional.gelu(x), atol=1e-6)
    True
    """

    __prepare_scriptable__ = refuse_script

    def __init__(self, channels: int, gate: Gate = "gelu", dim: int = -1, *, inplace: bool = False) -> None:
        super().__init__()
        channels = as_int("channels", channels, minimum=1)
        check_gate(gate)
        self.gate = gate
        self.dim = as_int("dim", dim)
        self.weight = nn.Parameter(torch.zeros(channels))
        self.bias = nn.Parameter(torch.zeros(1))

    def reset_parameters(self) -> None:
        """Make it again the activation that it replaces."""
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return raa(x, self.weight, self.bias, self.gate, self.dim)

    def extra_repr(self) -> str:
        gate = self.gate if isinstance(self.gate, str) else getattr(self.gate, "__name__", type(self.gate).__name__)
        return f"{self.weight.numel()}, gate={gate!r}, dim={self.dim}"
