"""Networks with weights written down by hand, for what the paper claims of their powers; the chapter plots them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from companion.dac import reference

__all__ = ["interpolant", "middle", "replicated", "separator", "three_units"]


def middle(points: Tensor) -> Tensor:
    """One unit that is higher at (2, 2) than at (1, 1) and (3, 3): relu(y) − 3 relu(x − 2).

    The middle of three points on a line lies on no side of a line that has the others on its other side.

    Parameters
    ----------
    points : Tensor
        (..., 2).

    Returns
    -------
    Tensor
        (...): 1, 2 and 0 at the three points; a threshold of 3/2 tells them apart.

    References
    ----------
    The idea of Metta et al. (2024), Figure 7a, which has no numbers. Chapter on DAC.

    Examples
    --------
    >>> middle(torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]))
    tensor([1., 2., 0.])
    """
    weight, bias = points.new_tensor([[-3.0, 1.0]]), points.new_tensor([[-2.0, 0.0]])
    return reference.linear(points, weight, bias, torch.relu).squeeze(-1)


def separator(points: Tensor, threshold: float = 1.0) -> Tensor:
    """Two units with the weights 1, the biases 1 and 0, and behind them y₁ − 2 y₂ − threshold.

    With the paper's threshold 1 it is 1 − |x| − |y| where x, y ≥ −1, and 0 on two rays outside. With a larger one it
    is negative outside of a bounded set.

    Parameters
    ----------
    points : Tensor
        (..., 2).
    threshold : float
        What is subtracted.

    Returns
    -------
    Tensor
        (...).

    References
    ----------
    Metta et al. (2024), Figure 7b. Chapter on DAC.

    Examples
    --------
    >>> separator(torch.tensor([[0.0, 0.0], [0.5, 0.5], [2.0, 2.0], [-2.0, 0.0]]))
    tensor([ 1.,  0., -3.,  0.])
    """
    weight, bias = points.new_ones(2, 2), points.new_tensor([[1.0, 1.0], [0.0, 0.0]])
    y = reference.linear(points, weight, bias, torch.relu)
    return y[..., 0] - 2 * y[..., 1] - threshold


def three_units(points: Tensor) -> Tensor:
    """Three standard units that mark the square of Fig. 7b: relu(2 + x + y) − 2 relu(x) − 2 relu(y) − 1.

    Parameters
    ----------
    points : Tensor
        (..., 2).

    Returns
    -------
    Tensor
        (...): 1 − |x| − |y| where x + y ≥ −2, at most −1 elsewhere.

    References
    ----------
    Against Metta et al. (2024), Figure 7. Chapter on DAC.

    Examples
    --------
    >>> three_units(torch.tensor([[0.0, 0.0], [0.5, 0.5], [2.0, 2.0], [-2.0, 0.0]]))
    tensor([ 1.,  0., -3., -1.])
    """
    weight, bias = points.new_tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]), points.new_tensor([2.0, 0.0, 0.0])
    hidden = torch.relu(points @ weight.T + bias)
    return hidden @ points.new_tensor([1.0, -2.0, -2.0]) - 1


def replicated(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """One unit whose inputs are copies of one number: Σ_j w_j relu(b_j + x).

    Parameters
    ----------
    x : Tensor
        Any shape.
    weight, bias : Tensor
        (k,).

    Returns
    -------
    Tensor
        The shape of x.

    References
    ----------
    Metta et al. (2024), Eq. 6. Chapter on DAC.

    Examples
    --------
    >>> replicated(torch.tensor([-1.0, 0.0, 2.0]), torch.tensor([1.0, -1.0]), torch.tensor([1.0, 0.0]))
    tensor([0., 1., 1.])
    """
    copies = x[..., None].expand(*x.shape, len(weight))
    return reference.linear(copies, weight[None], bias[None], torch.relu).squeeze(-1)


def interpolant(knots: Sequence[float], values: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Return weights and biases of a unit that goes through given points, linearly between them.

    For k pieces between k + 1 knots it has k + 1 terms: two make the first piece, each other changes the slope once.
    Left of the first knot it falls to zero within the first piece's length, and stays there.

    Parameters
    ----------
    knots, values : sequence of float
        Where, increasing, and what; at least two.

    Returns
    -------
    weight, bias : Tensor
        (k + 1,) each, float64, for `replicated`.

    Raises
    ------
    ValueError
        If the knots do not increase, are fewer than two, or differ in number from the values.

    References
    ----------
    What holds of Metta et al. (2024), Theorem C.1. Chapter on DAC.

    Examples
    --------
    >>> weight, bias = interpolant([0.0, 1.0, 3.0], [2.0, 1.0, 5.0])
    >>> replicated(torch.tensor([0.0, 0.5, 1.0, 2.0], dtype=torch.float64), weight, bias).tolist()
    [2.0, 1.5, 1.0, 3.0]
    """
    if len(knots) < 2 or len(knots) != len(values):
        raise ValueError(f"there are {len(knots)} knots and {len(values)} values; they need equally many, at least 2")
    lengths = [right - left for left, right in pairwise(knots)]
    if min(lengths) <= 0:
        raise ValueError(f"knots are {list(knots)}; they must increase")
    rises = [right - left for left, right in pairwise(values)]
    slopes = [rise / length for rise, length in zip(rises, lengths, strict=True)]
    start = values[0] / lengths[0]  # the slope with which it rises to the first value
    changes = [start, slopes[0] - start, *(new - old for old, new in pairwise(slopes))]
    kinks = [knots[0] - lengths[0], *knots[:-1]]
    return torch.tensor(changes, dtype=torch.float64), torch.tensor([-kink for kink in kinks], dtype=torch.float64)
