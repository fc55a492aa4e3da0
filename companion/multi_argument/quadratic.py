r"""The quadratic form in plain torch, and the one that fits a function best.

Of n arguments it has (n + 1)(n + 2)/2 coefficients, in the order of the paper: squares, products of two different
arguments (x₁x₂, x₁x₃, …, x₂x₃, …), the arguments themselves, a constant. With the squares and products in an upper
triangular matrix Q, the linear ones in :math:`\boldsymbol\ell`:

.. math::
    y = \mathbf a^{\mathsf T} Q\,\mathbf a + \boldsymbol\ell^{\mathsf T} \mathbf a + c,\qquad
    \frac{\partial\mathcal L}{\partial\mathbf a} = g\,\big((Q + Q^{\mathsf T})\,\mathbf a + \boldsymbol\ell\big) .
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from companion.multi_argument.reference import arguments_of, as_units, blocks, units_of_chunk
from companion.operators import cast, check_floating


def count_of(arity: int) -> int:
    """How many coefficients there are."""
    return (arity + 1) * (arity + 2) // 2


def _pairs(arity: int) -> tuple[list[int], list[int]]:
    """Where in Q the squares and the products stand, in the order of their coefficients."""
    products = [(i, j) for i in range(arity) for j in range(i + 1, arity)]
    rows, columns = zip(*((i, i) for i in range(arity)), *products, strict=True)
    return list(rows), list(columns)


def value(x: Tensor, coefficients: Tensor, arity: int, dim: int) -> Tensor:
    """The form of all units, in the dtype of the computation."""
    a = torch.unflatten(x, dim, (x.shape[dim] // arity, arity)).unbind(dim + 1)
    square_or_product = dict(zip(zip(*_pairs(arity), strict=True), coefficients.unbind(), strict=False))
    linear, constant = coefficients[-arity - 1 : -1].unbind(), coefficients[-1]
    y = constant.expand_as(a[0])
    for i in range(arity):
        # a_i (ℓ_i + Σ_{j ≥ i} q_ij a_j)
        y = y + a[i] * sum((square_or_product[i, j] * a[j] for j in range(i, arity)), linear[i])
    return y


# --- in chunks -------------------------------------------------------------------------------------------------------


def _matrix(coefficients: Tensor, arity: int) -> tuple[Tensor, Tensor, Tensor]:
    """Q, the linear coefficients, the constant."""
    q = coefficients.new_zeros(arity, arity)
    q[_pairs(arity)] = coefficients[: -arity - 1]
    return q, coefficients[-arity - 1 : -1], coefficients[-1]


def forward_in_chunks(x: Tensor, coefficients: Tensor, arity: int, dim: int) -> Tensor:
    """The form of all units."""
    units, (q, linear, constant) = as_units(x, arity, dim), _matrix(coefficients, arity)
    y = x.new_empty(units.shape[0], units.shape[1], units.shape[3])
    for block in blocks(units, units_of_chunk(x, [arity])):
        a, of_block = arguments_of(units, block, coefficients.dtype), y[block]
        # aᵀ(Q a + ℓ) + c
        of_block.copy_((torch.addmm(linear, a, q.t()) * a).sum(1).add_(constant).view(of_block.shape))
    return y.view(*x.shape[:dim], y.shape[1], *x.shape[dim + 1 :])


def backward_in_chunks(
    grad: Tensor, x: Tensor, coefficients: Tensor, arity: int, dim: int, needs: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of x and, in the dtype of the computation, of the coefficients, where they are needed."""
    units, (q, linear, _) = as_units(x, arity, dim), _matrix(coefficients, arity)
    dx = torch.empty_like(units, memory_format=torch.contiguous_format) if needs[0] else None
    dq, dlinear, dconstant = torch.zeros_like(q), torch.zeros_like(linear), q.new_zeros(1)
    g_of_units = as_units(grad, 1, dim)[:, :, 0]
    for block in blocks(units, units_of_chunk(x, [arity])):
        a, g = arguments_of(units, block, q.dtype), g_of_units[block].reshape(-1).to(q.dtype)
        if dx is not None:
            of_block = dx[block[0], block[1], :, block[2]]
            rows = torch.addmm(linear, a, q + q.t()).mul_(g[:, None])
            of_block.copy_(rows.view(of_block.shape[0], of_block.shape[1], of_block.shape[3], -1).movedim(-1, 2))
        if needs[1]:
            # Σ g a aᵀ, Σ g a, Σ g
            dq.addmm_(a.t(), a * g[:, None])
            dlinear.addmv_(a.t(), g)
            dconstant.add_(g.sum())
    found = torch.cat([dq[_pairs(arity)], dlinear, dconstant]) if needs[1] else None
    return None if dx is None else dx.view(x.shape), found


# --- the best fit ----------------------------------------------------------------------------------------------------


def fit_quadratic(samples: Tensor, values: Tensor) -> tuple[Tensor, float]:
    """Fit a quadratic form to a function by least squares.

    Parameters
    ----------
    samples : Tensor
        Arguments (N, n): where the fit is to be good. At least as many as there are coefficients.
    values : Tensor
        (N,): the function there.

    Returns
    -------
    coefficients : Tensor
        ((n + 1)(n + 2)/2,), in float64 on the CPU, in the order of :func:`companion.functional.quadratic_form`. Where
        the samples leave some of them open, the smallest.
    explained : float
        The share of the variance that the form explains, R²: 1 for a quadratic. NaN for a constant function.

    Raises
    ------
    TypeError
        If an argument has no floating dtype.
    ValueError
        If the shapes do not fit, or there are too few samples.

    Examples
    --------
    >>> a = torch.tensor([[-1.0, -1], [-1, 1], [1, -1], [1, 1], [0, 2], [2, 0], [0, 0]])
    >>> coefficients, explained = fit_quadratic(a, 3 * a[:, 0] * a[:, 1] - a[:, 1])
    >>> coefficients.round(decimals=6).add(0)
    tensor([ 0.,  0.,  3.,  0., -1.,  0.], dtype=torch.float64)
    >>> round(explained, 6)
    1.0
    """
    check_floating("samples", samples)
    check_floating("values", values)
    if samples.ndim != 2 or samples.shape[1] == 0 or len(samples) < count_of(samples.shape[1]):
        raise ValueError(f"samples: got shape {tuple(samples.shape)}, allowed is (N, n) with N ≥ (n + 1)(n + 2)/2")
    if values.shape != samples.shape[:1]:
        raise ValueError(f"values: got shape {tuple(values.shape)}, allowed is one for each sample, ({len(samples)},)")
    # CUDA's least squares wants coefficients that the samples determine
    a, f = (cast(each.detach().cpu(), torch.float64) for each in (samples, values))
    rows, columns = _pairs(a.shape[1])
    features = torch.cat([a[:, rows] * a[:, columns], a, torch.ones_like(a[:, :1])], 1)
    coefficients = torch.linalg.lstsq(features, f[:, None], driver="gelsd").solution[:, 0]
    rest, spread = f - features @ coefficients, (f - f.mean()).square().sum().item()
    return coefficients, 1 - rest.square().sum().item() / spread if spread > 0 else math.nan
