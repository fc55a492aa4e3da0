"""What a learned activation of several arguments looks like, in numbers: its bends, and its spectrum.

The best-fit quadratic is :func:`companion.multi_argument.quadratic.fit_quadratic`'s; here are the paper's measures of
it, and of the function itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from companion.operators import as_int, check_floating

__all__ = ["bends", "curvature", "hermite_functions", "shape", "spectrum"]


def bends(coefficients: Tensor) -> Tensor:
    """Return the eigenvalues of a quadratic's matrix: how much it is bent along its own axes.

    The matrix has the squares' coefficients on its diagonal, and half of the products' beside it.

    Parameters
    ----------
    coefficients : Tensor
        ((n + 1)(n + 2)/2,) in the paper's order: squares, products, arguments, constant.

    Returns
    -------
    Tensor
        (n,) in float64, the smallest first.

    Raises
    ------
    TypeError
        If the coefficients have no floating dtype.
    ValueError
        If their number belongs to no number of arguments.

    Examples
    --------
    >>> bends(torch.tensor([0.0, 0, 1, 0, 0, 0]))  # x₁x₂
    tensor([-0.5000,  0.5000], dtype=torch.float64)
    """
    check_floating("coefficients", coefficients)
    # (n + 1)(n + 2)/2 = count
    arity = (math.isqrt(1 + 8 * coefficients.numel()) - 3) // 2
    if coefficients.ndim != 1 or arity < 1 or (arity + 1) * (arity + 2) // 2 != len(coefficients):
        raise ValueError(
            f"coefficients: got shape {tuple(coefficients.shape)}, allowed are 3, 6, 10, … for 1, 2, 3, … arguments"
        )
    c = coefficients.detach().cpu().double()
    matrix = torch.diag(c[:arity])
    for product, (i, j) in zip(c[arity:], itertools.combinations(range(arity), 2), strict=False):
        matrix[i, j] = matrix[j, i] = product / 2
    eigenvalues: Tensor = torch.linalg.eigvalsh(matrix)
    return eigenvalues


def curvature(coefficients: Tensor) -> float:
    """Return the paper's curvature of a quadratic of two arguments, c₁c₂ − c₃²/4.

    Negative for a saddle, positive for a bowl or a dome, 0 for a bend in one direction. Linear maps of the arguments,
    shifts and a factor at the output leave its sign, but not its size.

    Parameters
    ----------
    coefficients : Tensor
        (6,) in the paper's order.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If there are not six.

    References
    ----------
    Kim et al. (2022), section IV-C.

    Examples
    --------
    >>> curvature(torch.tensor([1.0, 1, 0, 0, 0, 0])), curvature(torch.tensor([0.0, 0, 2, 0, 0, 0]))
    (1.0, -1.0)
    """
    c1, c2, c3 = _bent(coefficients)
    return c1 * c2 - c3**2 / 4


def shape(coefficients: Tensor) -> float:
    """Return the curvature of a quadratic of two arguments without its scale, from −1 to 1.

    2λ₁λ₂/(λ₁² + λ₂²) for the bends λ: −1 for x₁x₂ and its rotations alone, 0 for a bend in one direction, 1 for a round
    bowl. Rotations, shifts and a factor leave it; other linear maps of the arguments leave its sign.

    Parameters
    ----------
    coefficients : Tensor
        (6,) in the paper's order.

    Returns
    -------
    float
        NaN where nothing is bent.

    Raises
    ------
    ValueError
        If there are not six.

    Examples
    --------
    >>> shape(torch.tensor([4.0, -1, 0, 0, 0, 0]))
    -0.47058823529411764
    """
    c1, c2, c3 = _bent(coefficients)
    size = c1**2 + c2**2 + c3**2 / 2
    return 2 * (c1 * c2 - c3**2 / 4) / size if size > 0 else math.nan


def _bent(coefficients: Tensor) -> tuple[float, float, float]:
    if coefficients.shape != (6,):
        raise ValueError(f"coefficients: got shape {tuple(coefficients.shape)}, allowed is (6,), for two arguments")
    c1, c2, c3 = coefficients.detach().cpu().double()[:3].tolist()
    return c1, c2, c3


def hermite_functions(arguments: Tensor, degree: int) -> list[Tensor]:
    r"""Return the Hermite functions of several arguments, degree by degree.

    Products :math:`\psi_{k_1}(x_1) \cdots \psi_{k_n}(x_n)` with :math:`k_1 + \dots + k_n` the degree, and

    .. math:: \psi_0 = \pi^{-1/4} e^{-x^2/2},\qquad
        \psi_{k+1} = \sqrt{\tfrac{2}{k+1}}\, x\, \psi_k - \sqrt{\tfrac{k}{k+1}}\, \psi_{k-1} .

    They are orthonormal on the whole space, with no weight. A rotation of the arguments turns those of one degree into
    sums of one another.

    Parameters
    ----------
    arguments : Tensor
        (N, n).
    degree : int
        The highest.

    Returns
    -------
    list of Tensor
        For each degree from 0 on (N, number of products), in float64.

    Raises
    ------
    TypeError
        If the arguments have no floating dtype, or the degree is not an int.
    ValueError
        If the shape does not fit, or the degree is negative.

    References
    ----------
    Victor et al. (2006), Responses of V1 neurons to two-dimensional Hermite functions. Kim et al. (2022), section IV-D,
    call them Hermite-Bessel functions.

    Examples
    --------
    >>> [each.shape[1] for each in hermite_functions(torch.zeros(1, 2), 3)]
    [1, 2, 3, 4]
    """
    x = _points(arguments, degree)
    before, last = torch.zeros_like(x), torch.exp(-(x**2) / 2) / math.pi**0.25
    table = [last]
    for k in range(degree):
        # ψ_{k+1} = √(2/(k + 1)) x ψ_k − √(k/(k + 1)) ψ_{k−1}
        before, last = last, math.sqrt(2 / (k + 1)) * x * last - math.sqrt(k / (k + 1)) * before
        table.append(last)
    found = []
    for total in range(degree + 1):
        orders = [each for each in itertools.product(range(total + 1), repeat=x.shape[1]) if sum(each) == total]
        products = [math.prod((table[k][:, i] for i, k in enumerate(each)), start=torch.ones(())) for each in orders]
        found.append(torch.stack(products, 1))
    return found


def _points(arguments: Tensor, degree: int) -> Tensor:
    check_floating("arguments", arguments)
    if arguments.ndim != 2 or arguments.shape[1] == 0:
        raise ValueError(f"arguments: got shape {tuple(arguments.shape)}, allowed is (N, n)")
    as_int("degree", degree, minimum=0)
    return arguments.cpu().double()


def spectrum(values: Tensor, functions: Sequence[Tensor]) -> Tensor:
    r"""Return the power of a surface at each degree.

    .. math:: P_l = \sum_m \left(\frac{1}{N} \sum_s f(\mathbf x_s)\, \phi_{lm}(\mathbf x_s)\right)^2

    The samples stand for the paper's density p(x), so that only what a network has seen of its surface counts. The
    square of a factor at the output is a factor of the spectrum: compare shares of the sum. A spectrum cannot tell
    x₁x₂ from a parabola of one argument.

    Parameters
    ----------
    values : Tensor
        (N,): the surface at the samples.
    functions : sequence of Tensor
        What `hermite_functions` gives for the samples.

    Returns
    -------
    Tensor
        One number for each degree from 0 on, in float64.

    Raises
    ------
    TypeError
        If the values have no floating dtype.
    ValueError
        If there is not one value for each sample.

    References
    ----------
    Kim et al. (2022), section IV-D.

    Examples
    --------
    >>> x = torch.randn(200_000, 2, generator=torch.Generator().manual_seed(0))
    >>> power = spectrum(x[:, 0] * x[:, 1], hermite_functions(x, 4))
    >>> (power / power.sum()).round(decimals=2).add(0)
    tensor([0., 0., 1., 0., 0.], dtype=torch.float64)
    """
    check_floating("values", values)
    if any(values.shape != each.shape[:1] for each in functions):
        raise ValueError(f"values: got shape {tuple(values.shape)}, allowed is one for each sample")
    f = values.detach().cpu().double()
    return torch.stack([(each * f[:, None]).mean(0).square().sum() for each in functions])
