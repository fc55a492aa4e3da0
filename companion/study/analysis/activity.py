"""What a layer's units do: their mean activation, and how far noise moves them."""

import torch
from torch import Tensor

__all__ = ["fluctuation", "quantiles", "unit_means"]


def unit_means(values: Tensor) -> Tensor:
    """Return the mean of every unit over the samples.

    An activation is "zero-like" where the means of its units are near zero: (1/M) Σ_m a_im ≈ 0.

    Parameters
    ----------
    values : Tensor
        Shape (M, …): sample, then unit.

    Returns
    -------
    Tensor
        Shape (…), float64, on the CPU.

    References
    ----------
    Yoon, Lim (2023), Layer-level activation mechanism, appendix A.

    Examples
    --------
    >>> unit_means(torch.tensor([[1.0, -1.0], [3.0, 1.0]]))
    tensor([2., 0.], dtype=torch.float64)
    """
    return values.cpu().double().mean(0)


def fluctuation(noisy: Tensor, clean: Tensor) -> Tensor:
    """Return how far each sample's layer is from where it is without noise: Σ_i |f(ŷ)_i − f(y)_i|.

    Parameters
    ----------
    noisy, clean : Tensor
        Shape (M, …), the same: the outputs of a layer with and without noise, or its inputs.

    Returns
    -------
    Tensor
        Shape (M,), float64, on the CPU.

    Raises
    ------
    ValueError
        If the shapes differ.

    References
    ----------
    Yoon, Lim (2023), Layer-level activation mechanism, definitions 2.3 and 3.2.

    Examples
    --------
    >>> fluctuation(torch.tensor([[1.0, -2.0], [0.0, 0.5]]), torch.zeros(2, 2))
    tensor([3.0000, 0.5000], dtype=torch.float64)
    """
    if noisy.shape != clean.shape:
        raise ValueError(f"noisy has shape {tuple(noisy.shape)} and clean {tuple(clean.shape)}; they must be equal")
    return (noisy.cpu().double() - clean.cpu().double()).flatten(1).abs().sum(1)


def quantiles(values: Tensor, count: int = 21) -> list[float]:
    """Return evenly spaced quantiles, from the minimum to the maximum: a distribution in a few numbers.

    Parameters
    ----------
    values : Tensor
        At least one value.
    count : int
        How many, at least 2: 21 are the minimum, 5 %, 10 % … 95 %, and the maximum.

    Returns
    -------
    list of float
        Ascending, with six significant digits.

    Raises
    ------
    ValueError
        If `values` is empty or `count` is below 2.

    Examples
    --------
    >>> quantiles(torch.arange(101.0), 5)
    [0.0, 25.0, 50.0, 75.0, 100.0]
    """
    if values.numel() == 0 or count < 2:
        raise ValueError(f"values holds {values.numel()} number(s) and count is {count}; allowed are ≥ 1 and ≥ 2")
    flat = values.detach().cpu().double().flatten()
    levels = torch.linspace(0, 1, count, dtype=torch.float64)
    return [float(f"{value:.6g}") for value in torch.quantile(flat, levels).tolist()]
