"""Two numbers for how a layer responds: how sparse its responses are, and how far they are held to their class."""

import torch
from torch import Tensor

__all__ = ["sparsity", "within_class_share"]


def sparsity(responses: Tensor) -> Tensor:
    r"""Return how unevenly each vector spreads over its elements: Hoyer's measure, from 0 to 1.

    .. math:: \frac{\sqrt d - \lVert \mathbf y \rVert_1 / \lVert \mathbf y \rVert_2}{\sqrt d - 1}

    It is 0 if all elements have the same size and 1 if only one differs from zero, and it does not depend on the scale.

    Parameters
    ----------
    responses : Tensor
        (..., d) with d of at least 2.

    Returns
    -------
    Tensor
        (...) in float64, on the CPU; NaN for a vector of zeros.

    Raises
    ------
    ValueError
        If d is below 2.

    References
    ----------
    Hoyer (2004), Non-negative matrix factorization with sparseness constraints, section 3.1.

    Examples
    --------
    >>> sparsity(torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, -2.0, 0.0]]))
    tensor([0., 1.], dtype=torch.float64)
    """
    y = responses.detach().cpu().double()
    if y.ndim == 0 or y.shape[-1] < 2:
        raise ValueError(f"responses has shape {tuple(y.shape)}; allowed is (..., d) with d of at least 2")
    root = y.shape[-1] ** 0.5
    measure: Tensor = (root - y.abs().sum(-1) / y.square().sum(-1).sqrt()) / (root - 1)
    return measure


def within_class_share(responses: Tensor, targets: Tensor) -> float:
    r"""Return the share of the variance of responses that lies within classes, from 0 to 1.

    .. math:: \frac{\sum_i \lVert \mathbf x_i - \bar{\mathbf x}_{k_i} \rVert^2}{\sum_i \lVert \mathbf x_i -
        \bar{\mathbf x} \rVert^2}

    It is 0 where all responses of a class are equal and 1 where the classes have the same mean, and it does not depend
    on the scale.

    Parameters
    ----------
    responses : Tensor
        (N, d).
    targets : Tensor
        (N,), the classes.

    Returns
    -------
    float
        NaN if all responses are equal.

    Raises
    ------
    ValueError
        If the shapes do not fit.

    Examples
    --------
    >>> within_class_share(torch.tensor([[-2.0], [0.0], [0.0], [2.0]]), torch.tensor([0, 0, 1, 1]))
    0.5
    """
    if responses.ndim != 2 or targets.shape != responses.shape[:1]:
        raise ValueError(f"shapes are {tuple(responses.shape)} and {tuple(targets.shape)}; allowed are (N, d) and (N,)")
    x, classes = responses.detach().cpu().double(), targets.cpu()
    within = torch.zeros((), dtype=torch.float64)
    for k in torch.unique(classes):
        of_class = x[classes == k]
        within += (of_class - of_class.mean(0)).square().sum()
    return float(within / (x - x.mean(0)).square().sum())
