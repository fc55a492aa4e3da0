"""What `companion.count` adds for APA and AGLU: activation functions are free, however they are computed."""

from __future__ import annotations

import torch
from torch import Tensor

from companion.apa.op import aglu, apa
from companion.apa.reference import Parameter
from companion.counting import declare
from companion.operators import check_parameter


def _like(z: Tensor, kappa: Parameter, lam: Parameter, dim: int = 1) -> Tensor:
    """A result without numbers: plain torch would read those of κ and λ."""
    check_parameter("kappa", kappa, z, dim)
    check_parameter("lam", lam, z, dim, minimum=0.0)
    return torch.empty_like(z)


@declare(aglu, apa, fake=_like)
def _nothing(z: Tensor, kappa: Parameter, lam: Parameter, dim: int = 1) -> int:
    return 0
